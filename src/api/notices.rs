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
    /// A node in maintenance: sessions of the user run there, or wait.
    Maintenance,
}

/// One notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Notice)]
pub struct NoticeView {
    /// When it happened; of `will-end`, when it ends; of `maintenance`, when it began.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub kind: NoticeWord,
    /// The session's id; null for `maintenance`, for requests of reservations and for messages of courses.
    pub session: Option<String>,
    /// Its name, null once it was deleted; of `maintenance`, the node's; of a request, the reservation's; of a message, the
    /// course's.
    pub name: Option<String>,
    /// How it ended; null where it runs again, ended again later, was deleted, or did not end.
    #[schema(value_type = Option<OutcomeShape>)]
    pub outcome: Option<Outcome>,
    #[schema(value_type = Option<ReasonShape>)]
    pub reason: Option<Reason>,
    /// What the administrator says of the maintenance; of `idle-warned`, what happens when, such as `stop in 15 min`;
    /// of `reservation-warned`, when it begins; of `course-warned`, when the term ends; of `course-message`, the text; of
    /// `reservation-asked`, the project; of a request that was approved or refused, why; null for every other notice.
    pub message: Option<String>,
    pub unread: bool,
}
