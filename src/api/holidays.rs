//! Days off of the site and of domains.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One day off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Holiday)]
pub struct HolidayView {
    #[schema(format = Date)]
    pub day: String,
    /// Empty where it has none.
    pub name: String,
}

/// Days off of the site or of one domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = HolidayCalendar)]
pub struct HolidayCalendarView {
    /// Name of the domain; null: the whole site.
    pub domain: Option<String>,
    /// In order.
    pub days: Vec<HolidayView>,
    /// The caller may change it.
    pub may_change: bool,
    /// Version, and ETag.
    pub generation: u64,
}

/// The days that a calendar has from now on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewHolidays)]
#[serde(deny_unknown_fields)]
pub struct HolidaysBody {
    /// Name or id of the domain; left out: the whole site.
    #[serde(default)]
    pub domain: Option<String>,
    /// One day a line with its name behind it, such as `2026-12-25 Christmas`; CSV and iCalendar files are read as well.
    pub list: String,
}
