//! Notices: what a user should know of their own sessions and requests. Decides nothing.

use rules::reason::Reason;
use rules::session::Outcome;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::values::{OutcomeShape, ReasonShape};

/// What a notice tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NoticeKind)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeWord {
    Started,
    Ended,
    /// It was stopped for a session of higher priority, and is queued again.
    Preempted,
    /// It was stopped before it ran.
    Cancelled,
    /// It uses more memory of a GPU than it was given.
    GpuWarned,
    /// It is idle, and a rule acts soon.
    IdleWarned,
    /// It is idle by a rule, and runs on or was paused.
    FoundIdle,
    /// Where it runs a reservation of others begins soon, and ends it.
    ReservationWarned,
    /// A lead asked for a reservation, and the reader decides.
    ReservationAsked,
    /// What the reader asked for is booked.
    ReservationApproved,
    ReservationRefused,
    /// Its start came before an administrator decided.
    ReservationExpired,
    /// The term of its course ends soon, and the session with it.
    CourseWarned,
    /// A teacher of a course tells its members something.
    CourseMessage,
    /// Its time limit ends it soon.
    WillEnd,
    /// The account of the reader ends soon.
    AccountEnds,
    /// The account of the reader was signed in to from a network that they never came from.
    SignedIn,
    /// Strangers asked for accounts, and the reader decides.
    SignUpsWait,
    /// A node in maintenance: sessions of the user run there, or wait.
    Maintenance,
    /// A budget of the reader's, or one that they look after, is nearly used.
    BudgetWarned,
    /// The folders of the reader take nearly what they may.
    StorageWarned,
    /// Limits of the reader are raised for a while.
    LimitRaised,
    /// The higher limits that the reader asked for are declined.
    LimitDeclined,
    /// Users ask for higher limits, and the reader decides.
    LimitsAsked,
    /// A folder of another user or of a project is offered to the reader, who has not answered.
    FolderOffered,
    /// An administrator looks into the session or the folder, and said why.
    BreakGlass,
    /// Acts of other administrators wait, and the reader decides.
    ApprovalsWait,
}

/// A kind of notice that may leave the console: by mail, or to a webhook.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeTopic {
    WillEnd,
    Failed,
    ReservationWarned,
    ReservationAsked,
    SignUp,
    LimitAsked,
    Budget,
    Storage,
    IdleWarned,
    Course,
    BreakGlass,
    Approval,
    SignIn,
    ReservationDecided,
    Started,
    Ended,
    Cancelled,
    GpuWarned,
    FoundIdle,
    Maintenance,
}

impl NoticeTopic {
    pub const ALL: [Self; 20] = [
        Self::WillEnd,
        Self::Failed,
        Self::ReservationWarned,
        Self::ReservationAsked,
        Self::SignUp,
        Self::LimitAsked,
        Self::Budget,
        Self::Storage,
        Self::IdleWarned,
        Self::Course,
        Self::BreakGlass,
        Self::Approval,
        Self::SignIn,
        Self::ReservationDecided,
        Self::Started,
        Self::Ended,
        Self::Cancelled,
        Self::GpuWarned,
        Self::FoundIdle,
        Self::Maintenance,
    ];

    /// The word in rows and requests.
    pub fn word(self) -> &'static str {
        match self {
            Self::WillEnd => "will-end",
            Self::Failed => "failed",
            Self::ReservationWarned => "reservation-warned",
            Self::ReservationAsked => "reservation-asked",
            Self::SignUp => "sign-up",
            Self::LimitAsked => "limit-asked",
            Self::Budget => "budget",
            Self::Storage => "storage",
            Self::IdleWarned => "idle-warned",
            Self::Course => "course",
            Self::BreakGlass => "break-glass",
            Self::Approval => "approval",
            Self::SignIn => "sign-in",
            Self::ReservationDecided => "reservation-decided",
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Cancelled => "cancelled",
            Self::GpuWarned => "gpu-warned",
            Self::FoundIdle => "found-idle",
            Self::Maintenance => "maintenance",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.word() == word)
    }

    /// Whether its reader has to do something, or to know: these are mailed to users who chose nothing.
    pub fn needs_answer(self) -> bool {
        match self {
            Self::WillEnd
            | Self::Failed
            | Self::ReservationWarned
            | Self::ReservationAsked
            | Self::SignUp
            | Self::LimitAsked
            | Self::Budget
            | Self::Storage
            | Self::IdleWarned
            | Self::Course
            | Self::BreakGlass
            | Self::Approval
            | Self::SignIn => true,
            Self::ReservationDecided
            | Self::Started
            | Self::Ended
            | Self::Cancelled
            | Self::GpuWarned
            | Self::FoundIdle
            | Self::Maintenance => false,
        }
    }
}

/// One notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Notice)]
pub struct NoticeView {
    /// When it happened; of `will-end`, when it ends; of `maintenance`, when it began.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub kind: NoticeWord,
    /// The session's id; null for `maintenance`, `budget-warned`, `storage-warned`, `limit-raised`, `limit-declined`,
    /// `limits-asked`, `folder-offered`, `signed-in`, reservation requests and messages of courses.
    pub session: Option<String>,
    /// Its name, null once it was deleted; of `maintenance`, the node's; of a request, the reservation's; of a message, the
    /// course's; of `budget-warned`, whose budget it is.
    pub name: Option<String>,
    /// How it ended; null where it runs again, ended again later, was deleted, or did not end.
    #[schema(value_type = Option<OutcomeShape>)]
    pub outcome: Option<Outcome>,
    #[schema(value_type = Option<ReasonShape>)]
    pub reason: Option<Reason>,
    /// What the administrator says of the maintenance; of `idle-warned`, what happens when, such as `stop in 15 min`;
    /// of `reservation-warned`, when it begins; of `course-warned`, when the term ends; of `course-message`, the text; of
    /// `budget-warned` and `storage-warned`, how much is used, such as `80 %`; of `limit-raised`, which, until when and why; of
    /// `limit-declined`, why; of `limits-asked`, how many; of
    /// `reservation-asked`, the project; of `folder-offered`, the owner; of `break-glass`, who it is and why; of
    /// `signed-in`, the address; of a request that was approved or refused, why; null for every other notice.
    pub message: Option<String>,
    pub unread: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_is_written_as_its_word() {
        for topic in NoticeTopic::ALL {
            let written = serde_json::to_value(topic).expect("a word");
            assert_eq!(written, topic.word());
            assert_eq!(NoticeTopic::parse(topic.word()), Some(topic));
        }
        assert_eq!(NoticeTopic::parse("all"), None);
    }
}
