//! The statement of a closed month: what one line of it states, what the server signs, what amounts cost, and where a
//! statement is broken. A line may be shown as its digest alone, and the chain of lines is whole. Whole numbers only, so
//! that lines add up exactly. Never computes SHA-256 or a signature itself: the caller brings both.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::audit::{AuditHash, NO_HASH, hex, linked, quote};
use crate::metering::UsageSum;
use crate::names::UserId;
use crate::refusal::Refusal;
use crate::refusals;
use crate::tenancy::{DomainId, ProjectId};
use crate::units::Timestamp;

/// The form of statements; another number is another form.
pub const STATEMENT_FORM: u32 = 1;

/// Hundredths of a device, or of a core, times milliseconds: what one of them for an hour comes to.
pub const UNITS_OF_HOUR: u64 = 100 * 3_600_000;
/// MiB times milliseconds: what one GiB for an hour comes to.
pub const UNITS_OF_GIB_HOUR: u64 = 1024 * 3_600_000;
/// Millionths in one of a currency.
pub const MICROS: u64 = 1_000_000;
/// Digits of a price in front of its decimals. Higher: the amount of a large site leaves 63 bits. Lower: a currency of
/// small units has no price for a GPU-hour.
pub const MAX_PRICE_DIGITS: usize = 7;
/// Decimals of a price.
pub const MAX_PRICE_DECIMALS: usize = 6;

/// What a line sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatementPart {
    /// What a user used in a project in the month.
    Use,
    /// What a user used in a project in earlier months: it was found after their close, or they stand before the first month
    /// that was closed.
    Late,
    /// All of a project.
    Project,
    /// All of a domain.
    Domain,
    /// All of the site.
    Site,
}

impl StatementPart {
    pub const ALL: [Self; 5] = [
        Self::Use,
        Self::Late,
        Self::Project,
        Self::Domain,
        Self::Site,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Late => "late",
            Self::Project => "project",
            Self::Domain => "domain",
            Self::Site => "site",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// True where other lines add up to it.
    pub fn is_total(self) -> bool {
        match self {
            Self::Use | Self::Late => false,
            Self::Project | Self::Domain | Self::Site => true,
        }
    }
}

/// What an hour costs, in millionths of a currency.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HourPrices {
    /// Three capital letters; empty: there are no prices.
    pub currency: String,
    pub gpu: u64,
    pub core: u64,
    pub gib: u64,
}

impl HourPrices {
    pub fn is_off(&self) -> bool {
        self.currency.is_empty()
    }

    /// What use costs, in millionths: each kind rounded to the next one, halves up. The same use has the same amount.
    pub fn amount(&self, used: &UsageSum) -> u64 {
        if self.is_off() {
            return 0;
        }
        let cost = |units: u64, price: u64, hour: u64| {
            let exact = u128::from(units) * u128::from(price) + u128::from(hour / 2);
            u64::try_from(exact / u128::from(hour)).unwrap_or(u64::MAX)
        };
        cost(used.gpu, self.gpu, UNITS_OF_HOUR)
            .saturating_add(cost(used.cpu, self.core, UNITS_OF_HOUR))
            .saturating_add(cost(used.memory, self.gib, UNITS_OF_GIB_HOUR))
    }
}

/// Reads `1500` or `0.125` as millionths; None for what is no price, and for more digits than one has.
pub fn parse_price(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, max: usize| {
        (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !digits(whole, MAX_PRICE_DIGITS) || !digits(decimals, MAX_PRICE_DECIMALS) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let micros: u64 = format!("{decimals:0<6}").parse().ok()?;
    Some(whole * MICROS + micros)
}

/// Millionths as a decimal, with as few decimals as it has: `1500`, `0.125`.
pub fn price_text(micros: u64) -> String {
    let (whole, rest) = (micros / MICROS, micros % MICROS);
    match rest {
        0 => whole.to_string(),
        _ => format!("{whole}.{rest:06}")
            .trim_end_matches('0')
            .to_owned(),
    }
}

/// Units as hours with four decimals, rounded; `hour` is what one comes to.
pub fn hours_text(units: u64, hour: u64) -> String {
    let parts = (u128::from(units) * 10_000 + u128::from(hour / 2)) / u128::from(hour);
    format!("{}.{:04}", parts / 10_000, parts % 10_000)
}

/// One line of a closed month. Written once, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementLine {
    /// Millionths of the currency; 0 without prices.
    pub amount: u64,
    pub cpu: u64,
    /// Names are those of the moment of the close; empty where the line sums more than one.
    pub domain: String,
    pub domain_id: Option<DomainId>,
    pub gpu: u64,
    pub memory: u64,
    /// Such as `2026-10`.
    pub month: String,
    pub part: StatementPart,
    /// Place in the month, from 1 without a gap.
    pub position: u64,
    pub project: String,
    pub project_id: Option<ProjectId>,
    /// Sixteen random bytes in hexadecimal, so that a line cannot be guessed from its digest.
    pub salt: String,
    pub session: u64,
    pub starts: u64,
    pub user: String,
    pub user_id: Option<UserId>,
    pub waited: u64,
}

impl StatementLine {
    /// What was used.
    pub fn used(&self) -> UsageSum {
        UsageSum {
            session: self.session,
            gpu: self.gpu,
            cpu: self.cpu,
            memory: self.memory,
            starts: self.starts,
            waited: self.waited,
        }
    }

    /// As JSON of one form: keys in the order of their letters, no blanks. Costs its length.
    pub fn canonical(&self) -> String {
        let mut out = String::with_capacity(640);
        let _ = write!(out, "{{\"amount\":{},\"cpu\":{}", self.amount, self.cpu);
        text(&mut out, "domain", &self.domain);
        id(&mut out, "domain_id", self.domain_id.map(|id| id.0));
        let _ = write!(out, ",\"gpu\":{},\"memory\":{}", self.gpu, self.memory);
        text(&mut out, "month", &self.month);
        text(&mut out, "part", self.part.word());
        let _ = write!(out, ",\"position\":{}", self.position);
        text(&mut out, "project", &self.project);
        id(&mut out, "project_id", self.project_id.map(|id| id.0));
        text(&mut out, "salt", &self.salt);
        let _ = write!(
            out,
            ",\"session\":{},\"starts\":{}",
            self.session, self.starts
        );
        text(&mut out, "user", &self.user);
        id(&mut out, "user_id", self.user_id.map(|id| id.0));
        let _ = write!(out, ",\"waited\":{}}}", self.waited);
        out
    }

    /// Whether this line is among those that the total `of` sums.
    fn is_within(&self, of: &Self) -> bool {
        !self.part.is_total()
            && match of.part {
                StatementPart::Use | StatementPart::Late => false,
                StatementPart::Project => self.project_id == of.project_id,
                StatementPart::Domain => self.domain_id == of.domain_id,
                StatementPart::Site => true,
            }
    }
}

fn text(out: &mut String, key: &str, value: &str) {
    let _ = write!(out, ",\"{key}\":");
    quote(out, value);
}

fn id(out: &mut String, key: &str, value: Option<Uuid>) {
    let _ = match value {
        Some(id) => write!(out, ",\"{key}\":\"{id}\""),
        None => write!(out, ",\"{key}\":null"),
    };
}

/// A closed month, as the server signs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementHead {
    pub closed_at: Timestamp,
    /// Millionths for an hour.
    pub core_price: u64,
    /// Empty: there were no prices.
    pub currency: String,
    /// Hours since 1970 UTC.
    pub from: i64,
    pub gib_price: u64,
    pub gpu_price: u64,
    /// Of the last line, in hexadecimal.
    pub hash: String,
    /// Which server.
    pub installation: Uuid,
    pub lines: u64,
    pub month: String,
    /// Digest of the head of the month before, in hexadecimal; zeros before the first.
    pub previous: String,
    pub statement: u32,
    pub time_zone: String,
    /// The end, not included.
    pub until: i64,
}

impl StatementHead {
    /// What is signed, byte for byte: JSON of one form, keys in the order of their letters.
    pub fn canonical(&self) -> String {
        let mut out = format!("{{\"closed_at\":\"{}\"", self.closed_at);
        let _ = write!(out, ",\"core_price\":{}", self.core_price);
        text(&mut out, "currency", &self.currency);
        let _ = write!(
            out,
            ",\"from\":{},\"gib_price\":{},\"gpu_price\":{}",
            self.from, self.gib_price, self.gpu_price
        );
        text(&mut out, "hash", &self.hash);
        id(&mut out, "installation", Some(self.installation));
        let _ = write!(out, ",\"lines\":{}", self.lines);
        text(&mut out, "month", &self.month);
        text(&mut out, "previous", &self.previous);
        let _ = write!(out, ",\"statement\":{}", self.statement);
        text(&mut out, "time_zone", &self.time_zone);
        let _ = write!(out, ",\"until\":{}}}", self.until);
        out
    }

    pub fn prices(&self) -> HourPrices {
        HourPrices {
            currency: self.currency.clone(),
            gpu: self.gpu_price,
            core: self.core_price,
            gib: self.gib_price,
        }
    }

    /// True where these digests, in the order of the lines, are those that were signed. Costs one call of `sha256` on
    /// 64 bytes a line.
    pub fn has_lines(&self, digests: &[AuditHash], sha256: impl Fn(&[u8]) -> AuditHash) -> bool {
        let hash = chained(digests, sha256);
        digests.len() as u64 == self.lines && hex(&hash) == self.hash
    }
}

/// The hash of the last of some lines.
pub fn chained(digests: &[AuditHash], sha256: impl Fn(&[u8]) -> AuditHash) -> AuditHash {
    digests
        .iter()
        .fold(NO_HASH, |hash, digest| linked(&hash, digest, &sha256))
}

/// How a statement is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementBreak {
    /// What was signed is another text, or by another key.
    Signature { month: String },
    /// The head is of another month than the one it stands for.
    Head { month: String },
    /// Lines are missing, were added, or one is not what was written.
    Lines { month: String },
    /// This line is not what was written.
    Line { position: u64 },
    /// The lines do not add up to this total.
    Total { position: u64 },
    /// The amount of this line is not that of its use.
    Amount { position: u64 },
}

impl StatementBreak {
    /// The same as a refusal that names the place.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Signature { month } => refusals::statement_signature_wrong(month),
            Self::Head { month } => refusals::statement_head_wrong(month),
            Self::Lines { month } => refusals::statement_lines_wrong(month),
            Self::Line { position } => refusals::statement_line_changed(position),
            Self::Total { position } => refusals::statement_total_wrong(position),
            Self::Amount { position } => refusals::statement_amount_wrong(position),
        }
    }
}

/// What a sum of lines comes to.
pub fn total<'a>(lines: impl Iterator<Item = &'a StatementLine>) -> (UsageSum, u64) {
    lines.fold((UsageSum::default(), 0), |(used, amount), line| {
        (
            used.plus(line.used()),
            u64::saturating_add(amount, line.amount),
        )
    })
}

/// Checks that every total among these lines is the sum of what is under it, and that each line of use costs what the
/// prices say. Every line under a total must be among them. Costs lines × totals.
pub fn check_sums(lines: &[StatementLine], prices: &HourPrices) -> Result<(), StatementBreak> {
    for line in lines {
        let position = line.position;
        if !line.part.is_total() {
            if prices.amount(&line.used()) != line.amount {
                return Err(StatementBreak::Amount { position });
            }
            continue;
        }
        let under = lines.iter().filter(|one| one.is_within(line));
        if total(under) != (line.used(), line.amount) {
            return Err(StatementBreak::Total { position });
        }
    }
    Ok(())
}

/// What one user used in one project, as it goes into a month that is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenUse {
    pub part: StatementPart,
    pub domain: String,
    pub domain_id: DomainId,
    pub project: String,
    pub project_id: ProjectId,
    pub user: String,
    pub user_id: UserId,
    pub used: UsageSum,
}

/// The lines of a month: use by domain, project and user, each followed by what was found late, then the totals of
/// projects, of domains and of the site. The last is always there. `salts` gives sixteen random bytes for each.
pub fn lines_of(
    month: &str,
    mut used: Vec<FrozenUse>,
    prices: &HourPrices,
    mut salt: impl FnMut() -> [u8; 16],
) -> Vec<StatementLine> {
    used.sort_by(|one, other| key(one).cmp(&key(other)));
    let mut lines: Vec<StatementLine> = Vec::with_capacity(used.len() * 2 + 1);
    let mut projects: Vec<StatementLine> = Vec::new();
    let mut domains: Vec<StatementLine> = Vec::new();
    let mut site = empty(month, StatementPart::Site);
    for one in used {
        let line = StatementLine {
            amount: prices.amount(&one.used),
            cpu: one.used.cpu,
            domain: one.domain,
            domain_id: Some(one.domain_id),
            gpu: one.used.gpu,
            memory: one.used.memory,
            project: one.project,
            project_id: Some(one.project_id),
            session: one.used.session,
            starts: one.used.starts,
            user: one.user,
            user_id: Some(one.user_id),
            waited: one.used.waited,
            ..empty(month, one.part)
        };
        let is_of_last = |kept: Option<&StatementLine>, part| match part {
            StatementPart::Project => kept.is_some_and(|last| last.project_id == line.project_id),
            _ => kept.is_some_and(|last| last.domain_id == line.domain_id),
        };
        // They are sorted: what belongs together stands together.
        if !is_of_last(projects.last(), StatementPart::Project) {
            projects.push(StatementLine {
                domain: line.domain.clone(),
                domain_id: line.domain_id,
                project: line.project.clone(),
                project_id: line.project_id,
                ..empty(month, StatementPart::Project)
            });
        }
        if !is_of_last(domains.last(), StatementPart::Domain) {
            domains.push(StatementLine {
                domain: line.domain.clone(),
                domain_id: line.domain_id,
                ..empty(month, StatementPart::Domain)
            });
        }
        for sum in projects
            .last_mut()
            .into_iter()
            .chain(domains.last_mut())
            .chain([&mut site])
        {
            add(sum, &line);
        }
        lines.push(line);
    }
    lines.extend(projects);
    lines.extend(domains);
    lines.push(site);
    for (at, line) in lines.iter_mut().enumerate() {
        line.position = at as u64 + 1;
        line.salt = hex(&salt());
    }
    lines
}

/// Ids stand behind names: of two users of one name, one of whom is gone, each has a line.
fn key(one: &FrozenUse) -> (&str, DomainId, &str, ProjectId, &str, UserId, StatementPart) {
    (
        one.domain.as_str(),
        one.domain_id,
        one.project.as_str(),
        one.project_id,
        one.user.as_str(),
        one.user_id,
        one.part,
    )
}

fn empty(month: &str, part: StatementPart) -> StatementLine {
    StatementLine {
        amount: 0,
        cpu: 0,
        domain: String::new(),
        domain_id: None,
        gpu: 0,
        memory: 0,
        month: month.to_owned(),
        part,
        position: 0,
        project: String::new(),
        project_id: None,
        salt: String::new(),
        session: 0,
        starts: 0,
        user: String::new(),
        user_id: None,
        waited: 0,
    }
}

fn add(sum: &mut StatementLine, line: &StatementLine) {
    let used = sum.used().plus(line.used());
    sum.session = used.session;
    sum.gpu = used.gpu;
    sum.cpu = used.cpu;
    sum.memory = used.memory;
    sum.starts = used.starts;
    sum.waited = used.waited;
    sum.amount = sum.amount.saturating_add(line.amount);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(domain: u128, project: u128, user: u128, part: StatementPart, gpu: u64) -> FrozenUse {
        FrozenUse {
            part,
            domain: format!("d{domain}"),
            domain_id: DomainId(Uuid::from_u128(domain)),
            project: format!("p{project}"),
            project_id: ProjectId(Uuid::from_u128(project)),
            user: format!("u{user}"),
            user_id: UserId(Uuid::from_u128(user)),
            used: UsageSum {
                session: gpu / 100,
                gpu,
                cpu: 3 * gpu + 1,
                memory: 7 * gpu,
                starts: 1,
                waited: 5,
            },
        }
    }

    fn some() -> Vec<FrozenUse> {
        vec![
            used(2, 5, 9, StatementPart::Use, 360_000_001),
            used(1, 4, 8, StatementPart::Late, 17),
            used(1, 4, 8, StatementPart::Use, 100),
            used(1, 3, 7, StatementPart::Use, 999_999_999),
            used(1, 4, 7, StatementPart::Use, 33),
        ]
    }

    fn prices() -> HourPrices {
        HourPrices {
            currency: "KRW".to_owned(),
            gpu: 1_500 * MICROS,
            core: 7,
            gib: 333_333,
        }
    }

    #[test]
    fn lines_add_up_at_every_level_and_money_does_too() {
        for prices in [HourPrices::default(), prices()] {
            let lines = lines_of("2026-10", some(), &prices, || [7; 16]);
            check_sums(&lines, &prices).expect("they add up");
            let parts: Vec<_> = lines.iter().map(|line| line.part.word()).collect();
            assert_eq!(
                parts,
                [
                    "use", "use", "use", "late", "use", "project", "project", "project", "domain",
                    "domain", "site",
                ]
            );
            let names: Vec<_> = lines
                .iter()
                .take(5)
                .map(|line| line.user.as_str())
                .collect();
            assert_eq!(names, ["u7", "u7", "u8", "u8", "u9"]);
            let (all, amount) = total(lines.iter().filter(|line| !line.part.is_total()));
            let site = lines.last().expect("the site");
            assert_eq!((site.used(), site.amount), (all, amount));
            assert_eq!(amount > 0, !prices.is_off());
        }
        let nothing = lines_of("2026-10", Vec::new(), &prices(), || [0; 16]);
        assert_eq!(nothing.len(), 1, "a month without use has its total");
        assert_eq!(nothing[0].used(), UsageSum::default());
    }

    #[test]
    fn a_wrong_sum_and_a_wrong_amount_are_found_and_where() {
        let good = lines_of("2026-10", some(), &prices(), || [7; 16]);
        for at in 0..good.len() {
            let position = at as u64 + 1;
            let mut changed = good.clone();
            changed[at].gpu += UNITS_OF_HOUR;
            let found = check_sums(&changed, &prices()).expect_err("changed");
            let expected = match good[at].part.is_total() {
                true => StatementBreak::Total { position },
                false => StatementBreak::Amount { position },
            };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_line_has_one_form_and_is_read_back_by_a_program() {
        let line = &lines_of("2026-10", some(), &prices(), || [171; 16])[0];
        assert_eq!(
            line.canonical(),
            "{\"amount\":4167299678,\"cpu\":2999999998,\"domain\":\"d1\",\
             \"domain_id\":\"00000000-0000-0000-0000-000000000001\",\"gpu\":999999999,\
             \"memory\":6999999993,\"month\":\"2026-10\",\"part\":\"use\",\"position\":1,\
             \"project\":\"p3\",\"project_id\":\"00000000-0000-0000-0000-000000000003\",\
             \"salt\":\"abababababababababababababababab\",\"session\":9999999,\"starts\":1,\
             \"user\":\"u7\",\"user_id\":\"00000000-0000-0000-0000-000000000007\",\"waited\":5}"
        );
    }

    #[test]
    fn prices_are_decimals_and_amounts_are_rounded_once() {
        for (text, micros) in [
            ("1500", Some(1_500_000_000)),
            ("0.125", Some(125_000)),
            ("0.000001", Some(1)),
            ("9999999.999999", Some(9_999_999_999_999)),
            ("10000000", None),
            ("0.0000001", None),
            ("", None),
            (".5", None),
            ("5.", None),
            ("-1", None),
            ("1,5", None),
        ] {
            assert_eq!(parse_price(text), micros, "{text}");
            if let Some(micros) = micros {
                assert_eq!(price_text(micros), text);
            }
        }
        assert_eq!(hours_text(UNITS_OF_HOUR / 2, UNITS_OF_HOUR), "0.5000");
        assert_eq!(hours_text(17, UNITS_OF_HOUR), "0.0000");
        let hour = UsageSum {
            gpu: UNITS_OF_HOUR,
            ..UsageSum::default()
        };
        assert_eq!(prices().amount(&hour), 1_500 * MICROS);
        assert_eq!(HourPrices::default().amount(&hour), 0);
    }

    #[test]
    fn every_edit_of_a_chain_differs_from_what_was_signed() {
        // No cryptography: enough to tell apart what this test tells apart.
        let mixed = |bytes: &[u8]| {
            let mut out = NO_HASH;
            let mut state = 0xcbf2_9ce4_8422_2325_u64;
            for (at, byte) in bytes.iter().enumerate() {
                state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
                out[at % 32] ^= state.to_le_bytes()[3];
            }
            out
        };
        let lines = lines_of("2026-10", some(), &prices(), || [7; 16]);
        let digests: Vec<_> = lines
            .iter()
            .map(|line| mixed(line.canonical().as_bytes()))
            .collect();
        let head = StatementHead {
            closed_at: Timestamp::from_millis(1_800_000_000_000),
            core_price: 7,
            currency: "KRW".to_owned(),
            from: 490_000,
            gib_price: 333_333,
            gpu_price: 1_500 * MICROS,
            hash: hex(&chained(&digests, mixed)),
            installation: Uuid::from_u128(5),
            lines: digests.len() as u64,
            month: "2026-10".to_owned(),
            previous: hex(&NO_HASH),
            statement: STATEMENT_FORM,
            time_zone: "Asia/Seoul".to_owned(),
            until: 490_744,
        };
        assert!(head.has_lines(&digests, mixed));
        assert_eq!(head.prices(), prices());
        for at in 0..digests.len() {
            let mut other = digests.clone();
            other[at][5] ^= 1;
            assert!(!head.has_lines(&other, mixed));
            let mut fewer = digests.clone();
            fewer.remove(at);
            assert!(!head.has_lines(&fewer, mixed));
        }
    }
}
