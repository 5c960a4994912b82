//! Courses: projects with a term, and what teachers do with all of their members at once.

use rules::course::CourseState;
use rules::names::TenantName;
use rules::reason::Reason;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::reservations::ReservedResources;
use crate::sessions::Owner;
use crate::values::{CourseStateShape, ReasonShape};

/// One course.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Course)]
pub struct CourseView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// `DOMAIN/NAME` of the project: its members are those of the course, its leads the teachers.
    pub project: String,
    /// Unique in its project.
    #[schema(value_type = String)]
    pub name: TenantName,
    /// What people read; empty: the name.
    pub title: String,
    #[schema(value_type = CourseStateShape)]
    pub state: CourseState,
    /// When the term begins.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// When it ends: then sessions of members are stopped, and they launch nothing.
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    /// IANA name of the zone in which both were typed.
    pub time_zone: String,
    /// Image of its sessions; empty: programs of the machine.
    pub image: String,
    /// Name of the preset of its sessions; empty: none.
    pub preset: String,
    /// Time limit of sessions that name none.
    pub max_runtime_seconds: Option<u64>,
    /// What members are told where they launch.
    pub rules: String,
    /// Version, and ETag.
    pub generation: u64,
}

impl CourseView {
    /// What people read.
    pub fn heading(&self) -> &str {
        match self.title.is_empty() {
            true => self.name.as_str(),
            false => &self.title,
        }
    }
}

/// A new course is a draft. What is left out: no title, the usual image, no preset, no time limit, no rules, and the
/// caller's time zone.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewCourse)]
#[serde(deny_unknown_fields)]
pub struct NewCourseBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    /// Id, name or `DOMAIN/NAME` of the project.
    pub project: String,
    /// Local time, such as `2027-03-02T09:00`, or one with `Z` or an offset.
    pub from: String,
    pub to: String,
    /// IANA name of the zone of both times.
    #[serde(default)]
    pub time_zone: Option<String>,
    #[serde(default)]
    #[schema(max_length = 100, format = "plain-text")]
    pub title: Option<String>,
    /// `host`, or the reference or id of an image.
    #[serde(default)]
    pub image: Option<String>,
    /// Name of a preset of the project.
    #[serde(default)]
    #[schema(pattern = "^([a-z0-9][a-z0-9._-]{0,62})?$")]
    pub preset: Option<String>,
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_runtime_seconds: Option<u64>,
    #[serde(default)]
    #[schema(max_length = 1_000, format = "plain-text")]
    pub rules: Option<String>,
}

/// A merge patch: what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = CoursePatch)]
#[serde(deny_unknown_fields)]
pub struct CoursePatchBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: Option<String>,
    #[schema(max_length = 100, format = "plain-text")]
    pub title: Option<String>,
    /// `open` for a draft, or for a course that is closed and goes on; `closed` ends the term now; `draft`, `archived`.
    #[schema(value_type = Option<CourseStateShape>)]
    pub state: Option<CourseState>,
    pub from: Option<String>,
    pub to: Option<String>,
    /// IANA name of the zone of both times; left out: the course's.
    pub time_zone: Option<String>,
    pub image: Option<String>,
    /// Empty: none.
    #[schema(pattern = "^([a-z0-9][a-z0-9._-]{0,62})?$")]
    pub preset: Option<String>,
    /// A null takes the limit out.
    #[serde(default, deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub max_runtime_seconds: Option<Option<u64>>,
    #[schema(max_length = 1_000, format = "plain-text")]
    pub rules: Option<String>,
}

/// A weekly time of a course, which is booked for its project until the term ends.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewCourseSlot)]
#[serde(deny_unknown_fields)]
pub struct CourseSlotBody {
    /// `mon`, `tue`, `wed`, `thu`, `fri`, `sat` or `sun`.
    pub day: String,
    /// Time of day such as `09:00`, in the time zone of the course.
    pub from: String,
    pub to: String,
    #[serde(default, deserialize_with = "rules::object::read")]
    pub resources: ReservedResources,
    /// Weeks that begin on a holiday are left out.
    #[serde(default)]
    pub skip_holidays: bool,
}

/// A folder that the members of a course read until its term ends.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewCourseHandOut)]
#[serde(deny_unknown_fields)]
pub struct CourseHandOutBody {
    /// Id, name or `OWNER/NAME` of a folder that the teacher shares.
    pub folder: String,
}

/// How a member of a course stands, by their newest session in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[schema(as = CourseMemberState)]
#[serde(rename_all = "lowercase")]
pub enum MemberStanding {
    /// No session in this term.
    Away,
    Waiting,
    /// It has its place and is on its way to run, or to end.
    Starting,
    Running,
    /// It runs, and a rule says that it is idle.
    Idle,
    Failed,
    Ended,
}

impl MemberStanding {
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Idle,
        Self::Starting,
        Self::Waiting,
        Self::Failed,
        Self::Ended,
        Self::Away,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Idle => "idle",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }
}

/// One member of a course, as its teachers see them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CourseMember)]
pub struct CourseMemberView {
    pub user: Owner,
    pub state: MemberStanding,
    /// Why it waits: `scheduled`, `depends`, `held`, `never` where no node is large enough, or `room`.
    pub why: Option<String>,
    /// Id of the newest session in the course.
    pub session: Option<String>,
    /// When it started or ended, or since when it waits.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// When its time limit ends it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ends_at: Option<Timestamp>,
}

/// For whom a teacher starts sessions.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = CourseStart)]
#[serde(default, deny_unknown_fields)]
pub struct CourseStartBody {
    /// Names or ids of members; left out: all but the teachers.
    #[schema(max_items = 500)]
    pub users: Option<Vec<String>>,
    /// Say what would happen, and start nothing.
    pub dry_run: bool,
}

/// Whose sessions a teacher stops.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = CourseStop)]
#[serde(default, deny_unknown_fields)]
pub struct CourseStopBody {
    /// Names or ids of members; left out: all but the teachers.
    #[schema(max_items = 500)]
    pub users: Option<Vec<String>>,
}

/// Whose sessions run longer.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = CourseExtension)]
#[serde(deny_unknown_fields)]
pub struct CourseExtensionBody {
    #[schema(minimum = 1, maximum = 1_440)]
    pub minutes: u64,
    /// Names or ids of members; left out: all but the teachers.
    #[serde(default)]
    #[schema(max_items = 500)]
    pub users: Option<Vec<String>>,
}

/// A message of a teacher's.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = CourseMessage)]
#[serde(deny_unknown_fields)]
pub struct CourseMessageBody {
    #[schema(min_length = 1, max_length = 500, format = "plain-text")]
    pub text: String,
    /// Names or ids of members; left out: all but the teachers.
    #[serde(default)]
    #[schema(max_items = 500)]
    pub users: Option<Vec<String>>,
}

/// A member for whom it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CourseRefusal)]
pub struct RefusedMemberView {
    pub user: String,
    #[schema(value_type = ReasonShape)]
    pub why: Reason,
}

/// What an act on the members of a course did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CourseAct)]
pub struct CourseActView {
    /// Sessions that were started, stopped or extended; members who were told.
    pub done: u64,
    /// Of those that were started, how many wait by what the scheduler says.
    pub waiting: u64,
    /// Members who had a live session already, and got no second one.
    pub skipped: u64,
    /// Sessions beyond what one request takes: repeat it for them.
    pub left: u64,
    pub refused: Vec<RefusedMemberView>,
}

/// What one member did in the term.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CourseAttendance)]
pub struct AttendanceView {
    pub user: Owner,
    /// Sessions that ran in it.
    pub sessions: u64,
    /// When the first one started; the begin of the term for one that ran then.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub first: Option<Timestamp>,
    /// When the last one did.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last: Option<Timestamp>,
    /// In which they ran, added up.
    pub seconds: u64,
}
