//! Reservations: what is booked of machines for a time.

use rules::names::TenantName;
use rules::object::Object;
use rules::reservation::{BeforeReservation, ReservationAmount, ReservationState};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::values::{BeforeReservationShape, ReservationStateShape};

/// How much is reserved; what is left out is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReservedResources)]
#[serde(deny_unknown_fields)]
pub struct ReservedResources {
    /// Whole devices.
    #[serde(default)]
    #[schema(value_type = f64)]
    pub gpu: GpuShare,
    /// Cores, at most two decimals.
    #[serde(default)]
    #[schema(value_type = f64)]
    pub cpu: CpuShare,
    /// Bytes.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub memory: Bytes,
}

impl From<ReservationAmount> for ReservedResources {
    fn from(amount: ReservationAmount) -> Self {
        Self {
            gpu: amount.gpu,
            cpu: amount.cpu,
            memory: amount.memory,
        }
    }
}

impl From<ReservedResources> for ReservationAmount {
    fn from(resources: ReservedResources) -> Self {
        Self {
            gpu: resources.gpu,
            cpu: resources.cpu,
            memory: resources.memory,
        }
    }
}

/// One time of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReservationTime)]
pub struct ReservationTimeView {
    /// From 1, in the order of time.
    pub number: u32,
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    #[schema(value_type = ReservationStateShape)]
    pub state: ReservationState,
}

/// One reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Reservation)]
pub struct ReservationView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    #[schema(value_type = String)]
    pub name: TenantName,
    /// `DOMAIN/NAME` of the project that it is for.
    pub project: Option<String>,
    /// Name of the user that it is for; neither: it is for maintenance.
    pub user: Option<String>,
    /// Name of the lead who booked or asked for it; null: an administrator booked.
    pub asked_by: Option<String>,
    /// What the administrator said who approved or refused it.
    pub reason: Option<String>,
    pub resources: ReservedResources,
    #[schema(value_type = BeforeReservationShape)]
    pub before: BeforeReservation,
    /// IANA name of the zone in which its weeks keep their time of day.
    pub time_zone: String,
    /// Of the time that is now or next; of the last one where none is left.
    #[schema(value_type = ReservationStateShape)]
    pub state: ReservationState,
    /// The start of that time.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// Its end.
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    /// In order; a weekly one has several.
    pub times: Vec<ReservationTimeView>,
    /// Version, and ETag.
    pub generation: u64,
}

/// For one project, one user or maintenance. Defaults: once, other sessions are drained, in the caller's time zone.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewReservation)]
#[serde(deny_unknown_fields)]
pub struct NewReservationBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    /// Id, name or `DOMAIN/NAME` of the project.
    #[serde(default)]
    pub project: Option<String>,
    /// Id or name of the user.
    #[serde(default)]
    pub user: Option<String>,
    /// No session runs there meanwhile.
    #[serde(default)]
    pub maintenance: bool,
    #[serde(default, deserialize_with = "rules::object::read")]
    pub resources: ReservedResources,
    /// Local time, such as `2026-11-30T09:00`, or one with `Z` or an offset, such as `2026-11-30T09:00:00+09:00`.
    pub from: String,
    pub to: String,
    /// Weeks in a row, each at the same time of day; left out: once.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 60)]
    pub repeats: Option<u32>,
    #[serde(default)]
    #[schema(value_type = Option<BeforeReservationShape>)]
    pub before: Option<BeforeReservation>,
    /// IANA name of the zone of both times.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// Weeks that begin on a holiday of the site or of the holder's domain are left out.
    #[serde(default)]
    pub skip_holidays: bool,
}

/// A merge patch: what is left out stays. A weekly one changes from its next time on, and has no other amount while one
/// of its times is warned of or active.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = ReservationPatch)]
#[serde(deny_unknown_fields)]
pub struct ReservationPatchBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: Option<String>,
    #[schema(value_type = Option<ReservedResources>)]
    pub resources: Option<Object<ReservedResources>>,
    /// The next start, written as in a new one.
    pub from: Option<String>,
    pub to: Option<String>,
    #[schema(minimum = 1, maximum = 60)]
    pub repeats: Option<u32>,
    #[schema(value_type = Option<BeforeReservationShape>)]
    pub before: Option<BeforeReservation>,
    /// IANA name of the zone of both times; left out: the reservation's.
    pub time_zone: Option<String>,
    /// As in a new one; left out: as it was booked.
    pub skip_holidays: Option<bool>,
}

/// The decision on a request.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = ReservationApproval)]
#[serde(deny_unknown_fields)]
pub struct ReservationApprovalBody {
    /// A sentence for the user who asked.
    #[serde(default)]
    #[schema(max_length = 300)]
    pub reason: Option<String>,
}

/// The decision on a request that is not granted.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = ReservationRefusal)]
#[serde(deny_unknown_fields)]
pub struct ReservationRefusalBody {
    /// A sentence for the user who asked.
    #[schema(min_length = 1, max_length = 300)]
    pub reason: String,
}

/// What the leads of a project book without asking. GPU-hours are texts with two decimals, such as `120.50`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReservationQuota)]
pub struct ReservationQuotaView {
    /// In any so many days: a time counts with the day of its start, as an hour at least. `0.00`: all is asked for.
    pub gpu_hours: String,
    pub days: u64,
    /// The most of any such days that hold this moment, rounded up.
    pub used: String,
    /// What can be booked now without asking.
    pub left: String,
    /// A booking that starts in less than so many hours is asked for all the same; 0: the start does not matter.
    pub notice_hours: u32,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewReservationQuota)]
#[serde(deny_unknown_fields)]
pub struct ReservationQuotaBody {
    pub gpu_hours: String,
}
