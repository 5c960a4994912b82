//! Closed months and their statements: what was used, in whole units that add up, with what the server signed.

use rules::metering::UsageSum;
use rules::statement::{
    HourPrices, StatementLine, StatementPart, UNITS_OF_GIB_HOUR, UNITS_OF_HOUR, hours_text,
    price_text,
};
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One closed month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ClosedMonth)]
pub struct ClosedMonthView {
    /// Such as `2026-10`.
    pub month: String,
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// The end, not included.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// The zone in which months are counted; that of the first close.
    pub time_zone: String,
    #[schema(value_type = String, format = DateTime)]
    pub closed_at: Timestamp,
    /// Of the amounts; empty: there were no prices.
    pub currency: String,
}

/// Which month is to be closed.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewClosedMonth)]
#[serde(deny_unknown_fields)]
pub struct NewClosedMonthBody {
    /// Such as `2026-10`.
    #[schema(pattern = "^(19[7-9][0-9]|[2-8][0-9]{3})-(0[1-9]|1[0-2])$")]
    pub month: String,
    /// IANA name such as `Asia/Seoul`. The first close settles in which zone months are counted: this one, or the caller's.
    /// Later ones name the same or none.
    #[serde(default)]
    pub time_zone: Option<String>,
}

/// Whether a closed month is what was signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MonthCheck)]
pub struct MonthCheckView {
    pub month: String,
    pub lines: u64,
    pub whole: bool,
    /// What is wrong with it; empty where it is whole.
    pub code: String,
    /// The same in words.
    pub text: String,
}

/// Which statement is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatementQuery {
    /// Empty: the newest closed month.
    pub month: String,
    /// Name of a domain; empty: every domain that the reader sees.
    pub domain: String,
    /// Name, or `DOMAIN/NAME`.
    pub project: String,
    /// Name at the close; the reader's own is that of today.
    pub user: String,
}

/// What was used in a closed month, as far as its reader sees it. A program checks it with the certificate of the
/// server's authority alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Statement)]
pub struct StatementView {
    pub month: String,
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// The end, not included.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    pub time_zone: String,
    #[schema(value_type = String, format = DateTime)]
    pub closed_at: Timestamp,
    /// Of the amounts; empty: there were no prices.
    pub currency: String,
    /// The sum of all items.
    pub total: StatementAmounts,
    /// What each user used in each project, by domain, project and user.
    pub items: Vec<StatementItem>,
    /// The signed totals of projects, domains and the site that the reader sees whole.
    pub totals: Vec<StatementItem>,
    /// What the server signed of the month, byte for byte.
    pub statement: String,
    /// In base64.
    pub signature: String,
    /// SHA-256 of every line of the month in hexadecimal, in their order; of lines of others it is all that is said.
    pub digests: Vec<String>,
}

/// One line of a statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatementItem {
    /// Place among all lines of the month, from 1.
    pub position: u64,
    /// `use`, or `late` for use of earlier months, found after their close or before the first one; of totals `project`, `domain` or `site`.
    pub part: String,
    /// Empty where the line sums more than one.
    pub domain: String,
    pub project: String,
    pub user: String,
    pub used: StatementAmounts,
    /// The line as it was written, byte for byte.
    pub statement: String,
}

/// Whole units, which add up exactly. 360,000,000 are a GPU or a core for an hour; 3,686,400,000 are a GiB for an hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatementAmounts {
    /// Hundredths of a GPU times milliseconds.
    pub gpu_units: u64,
    /// Hundredths of a core times milliseconds.
    pub core_units: u64,
    /// MiB times milliseconds.
    pub memory_units: u64,
    pub session_milliseconds: u64,
    /// Sessions that got a place.
    pub starts: u64,
    pub waited_milliseconds: u64,
    /// Millionths of the currency; 0 without prices.
    pub amount_micros: u64,
}

impl StatementAmounts {
    pub fn new(used: UsageSum, amount: u64) -> Self {
        Self {
            gpu_units: used.gpu,
            core_units: used.cpu,
            memory_units: used.memory,
            session_milliseconds: used.session,
            starts: used.starts,
            waited_milliseconds: used.waited,
            amount_micros: amount,
        }
    }

    /// Hours with four decimals, rounded.
    pub fn gpu_hours(&self) -> String {
        hours_text(self.gpu_units, UNITS_OF_HOUR)
    }

    pub fn core_hours(&self) -> String {
        hours_text(self.core_units, UNITS_OF_HOUR)
    }

    pub fn memory_gib_hours(&self) -> String {
        hours_text(self.memory_units, UNITS_OF_GIB_HOUR)
    }

    pub fn session_hours(&self) -> String {
        hours_text(self.session_milliseconds, 3_600_000)
    }

    /// Exact, as a decimal.
    pub fn amount(&self) -> String {
        price_text(self.amount_micros)
    }
}

impl StatementItem {
    /// `statement` is the line as it was written.
    pub fn new(line: &StatementLine, statement: String) -> Self {
        Self {
            position: line.position,
            part: line.part.word().to_owned(),
            domain: line.domain.clone(),
            project: line.project.clone(),
            user: line.user.clone(),
            used: StatementAmounts::new(line.used(), line.amount),
            statement,
        }
    }

    /// True for use of earlier months.
    pub fn is_late(&self) -> bool {
        StatementPart::parse(&self.part) == Some(StatementPart::Late)
    }
}

/// What an hour costs: decimals with up to six places. They hold for months that are closed from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Prices)]
pub struct PricesView {
    /// Empty: there are no prices.
    pub currency: String,
    pub gpu_hour: String,
    pub core_hour: String,
    pub gib_hour: String,
    /// Version, and ETag.
    pub generation: u64,
}

impl PricesView {
    pub fn new(prices: HourPrices, generation: u64) -> Self {
        Self {
            gpu_hour: price_text(prices.gpu),
            core_hour: price_text(prices.core),
            gib_hour: price_text(prices.gib),
            currency: prices.currency,
            generation,
        }
    }
}

/// All prices at once; what is left out costs nothing. Without a currency there are none, and each is empty or 0.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewPrices)]
#[serde(deny_unknown_fields, default)]
pub struct NewPricesBody {
    /// Three capital letters such as `KRW`; empty: no prices, and none may be above 0.
    #[schema(pattern = "^([A-Z]{3})?$")]
    pub currency: String,
    #[schema(pattern = "^([0-9]{1,7}([.][0-9]{1,6})?)?$")]
    pub gpu_hour: String,
    #[schema(pattern = "^([0-9]{1,7}([.][0-9]{1,6})?)?$")]
    pub core_hour: String,
    #[schema(pattern = "^([0-9]{1,7}([.][0-9]{1,6})?)?$")]
    pub gib_hour: String,
}
