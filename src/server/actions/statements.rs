//! Months that are closed: a site administrator closes them in their order, and each reads the statement of what they may
//! see. What is closed never changes; what is found of it later goes into the next month. Prices hold from the next close.

use api::statements::{
    ClosedMonthView, MonthCheckView, NewClosedMonthBody, NewPricesBody, PricesView,
    StatementAmounts, StatementItem, StatementQuery, StatementView,
};
use base::tls::signature::SigningAuthority;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::audit::hex;
use rules::metering;
use rules::names::UserId;
use rules::permissions::{Permission, may, reach};
use rules::refusal::Refusal;
use rules::refusals;
use rules::statement::{
    HourPrices, StatementHead, StatementLine, StatementPart, parse_price, price_text, total,
};
use rules::tenancy::Scope;
use rules::units::Timestamp;

use super::allowed;
use super::usage::{UsageMonth, known_zone};
use crate::access::Caller;
use crate::appliance::lazy_stores::tls_failure;
use crate::catalog::events::NewEvent;
use crate::catalog::ledger::UsageWindow;
use crate::catalog::statements::{ClosedMonthRow, MonthToClose};
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server};

const HOUR_MILLIS: i64 = 3_600_000;

/// The month that is closed next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextMonth {
    /// Before the first close the first with use; any later one that is over may be closed in its place.
    pub month: UsageMonth,
    /// The last that is over.
    pub newest: UsageMonth,
    /// The zone in which months are counted; before the first close that of the caller, or UTC.
    pub time_zone: String,
    /// No month is closed yet.
    pub is_first: bool,
}

impl NextMonth {
    /// False while it has not ended.
    pub fn is_over(&self) -> bool {
        self.month <= self.newest
    }
}

/// All closed months, newest first.
///
/// Errors: `month.unreadable`.
pub async fn months(server: &Server, caller: &Caller) -> Result<Vec<ClosedMonthView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let rows = server
        .catalog()
        .read_now("list closed months", |view| view.closed_months())?;
    Ok(rows.iter().map(|row| month_view(&row.head)).collect())
}

/// The month that is closed next; None before anything was used.
///
/// Errors: `month.unreadable`.
pub async fn next(server: &Server, caller: &Caller) -> Result<Option<NextMonth>, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    let now = server.clock().now();
    server
        .catalog()
        .read_now("look for the next month to close", |view| {
            next_month(view, &caller.time_zone, now)
        })
}

/// Closes a month: freezes its use, signs it and says so in the audit log. A month that is closed already stays as it is.
/// The first may be any month that is over; earlier use stands in it as found late.
///
/// Errors: `denied` without `system:write`; `usage.month-invalid`; `time-zone.unknown`, `month.zone-needed`,
/// `month.zone-settled` at their field; `month.not-over`, `month.out-of-order`, `month.nothing-used`,
/// `month.unreadable`; those of the certificates.
pub async fn close(
    server: &Server,
    caller: &Caller,
    asked: &NewClosedMonthBody,
) -> Result<ClosedMonthView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let month = month_of(&asked.month)?;
    let named = match asked.time_zone.as_deref().map(str::trim) {
        None | Some("") => None,
        Some(typed) => {
            Some(known_zone(typed).ok_or_else(|| refusals::time_zone_unknown().at("/time_zone"))?)
        }
    };
    // What is held now is counted first: nothing of the month is found late that can be known today.
    server
        .catalog()
        .write_of_server(Lane::Loops, "meter sessions", |rows| rows.meter().map(drop))
        .await?;
    let keeper = server.certificates()?;
    let installation = server.installation_id();
    let (actor, own_zone) = (caller.name.clone(), known_zone(&caller.time_zone));
    let (zone, own, now) = (named.clone(), own_zone.clone(), server.clock().now());
    // All hours of all users of a month are many rows: they are summed by a reader, so that no other write waits for it.
    let summed = server
        .catalog()
        .read("sum up a month", move |view| {
            if view.closed_month(&month.to_string())?.is_some() {
                return Ok(None);
            }
            let (_, hours) = zone_and_hours(view, month, zone, own, now)?;
            view.sum_month(hours).map(Some)
        })
        .await?;
    let closed = server
        .catalog()
        .write(Lane::Requests, "close a month", move |rows| {
            let name = month.to_string();
            if let Some(closed) = rows.closed_month(&name)? {
                return Ok(closed);
            }
            let (time_zone, hours) = zone_and_hours(rows, month, named, own_zone, rows.now)?;
            let closing = MonthToClose {
                month: name.clone(),
                hours,
                time_zone,
                installation,
            };
            let sign = |text: &[u8]| keeper.sign(text).map_err(tls_failure);
            let closed = rows.close_month(&closing, summed, sign)?;
            rows.note(NewEvent {
                actor: actor.as_str(),
                topic: "system",
                object: &name,
                scope: Scope::SITE,
                code: "month.closed",
                before: "",
                after: &closed.head.hash,
            })?;
            Ok(closed)
        })
        .await?;
    Ok(month_view(&closed.head))
}

/// Checks every closed month against what was signed of it, newest first. Costs a digest of every line.
///
/// Errors: those of the certificates.
pub async fn check(server: &Server, caller: &Caller) -> Result<Vec<MonthCheckView>, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    let authority = SigningAuthority::read(&server.certificates()?.authority().pem)?;
    let months = server
        .catalog()
        .read("name closed months", |view| view.closed_month_names())
        .await?;
    let mut checked = Vec::with_capacity(months.len());
    // One read a month: a reader of the catalog is not held for all of them.
    for month in months {
        let authority = authority.clone();
        let found = server
            .catalog()
            .read("check a closed month", move |view| {
                let signed = |text: &[u8], signature: &[u8]| authority.signed(text, signature);
                let (lines, found) = view.check_closed_month(&month, signed)?;
                Ok(check_view(
                    month,
                    lines,
                    found.map_err(|broken| broken.refusal()),
                ))
            })
            .await?;
        checked.push(found);
    }
    Ok(checked)
}

fn check_view(month: String, lines: u64, found: Result<(), Refusal>) -> MonthCheckView {
    let whole = found.is_ok();
    let (code, text) = match found {
        Ok(()) => (String::new(), String::new()),
        Err(refusal) => (refusal.code, refusal.text),
    };
    MonthCheckView {
        month,
        lines,
        whole,
        code,
        text,
    }
}

/// The statement of a closed month: the lines that the caller may see and that the query names, the totals that they add
/// up to, and what was signed. Costs a visit to each line of the month.
///
/// Errors: `usage.month-invalid`; `month.not-closed`, `month.none-closed`, `month.unreadable`.
pub async fn statement(
    server: &Server,
    caller: &Caller,
    asked: &StatementQuery,
) -> Result<StatementView, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let month = match asked.month.as_str() {
        "" => None,
        typed => Some(month_of(typed)?.to_string()),
    };
    let reach = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    let wanted = asked.clone();
    let own = (caller.name.as_str().to_owned(), caller.subject.user);
    server
        .catalog()
        .read("read a statement", move |view| {
            let found = match &month {
                Some(month) => view
                    .closed_month(month)?
                    .ok_or_else(|| refusals::month_not_closed(month))?,
                None => view
                    .newest_closed_month()?
                    .ok_or_else(refusals::month_none_closed)?,
            };
            let mut lines = view.statement_lines(&reach, &found.head.month)?;
            lines.retain(|(line, _)| is_wanted(line, &wanted, &own));
            let digests = view.statement_digests(&found.head.month)?;
            Ok(statement_view(
                &found,
                lines,
                digests.iter().map(|digest| hex(digest)).collect(),
            ))
        })
        .await
}

fn statement_view(
    found: &ClosedMonthRow,
    lines: Vec<(StatementLine, String)>,
    digests: Vec<String>,
) -> StatementView {
    let (sums, items): (Vec<_>, Vec<_>) = lines
        .into_iter()
        .partition(|(line, _)| line.part.is_total());
    let (used, amount) = total(items.iter().map(|(line, _)| line));
    let shown = |lines: Vec<(StatementLine, String)>| {
        let lines = lines.into_iter();
        lines
            .map(|(line, text)| StatementItem::new(&line, text))
            .collect()
    };
    let ClosedMonthView {
        month,
        from,
        until,
        time_zone,
        closed_at,
        currency,
    } = month_view(&found.head);
    StatementView {
        month,
        from,
        until,
        time_zone,
        closed_at,
        currency,
        total: StatementAmounts::new(used, amount),
        items: shown(items),
        totals: shown(sums),
        statement: found.statement.clone(),
        signature: STANDARD.encode(&found.signature),
        digests,
    }
}

/// Whether a line is among those that a query names. A total is wanted where all that it sums is. The reader's `own` name
/// means their id: lines keep the names of their close, and a user may have been renamed since.
fn is_wanted(line: &StatementLine, asked: &StatementQuery, own: &(String, UserId)) -> bool {
    let named = |typed: &str, name: &str| typed.trim().is_empty() || typed.trim() == name;
    let is_of_user = match asked.user.trim() == own.0 {
        true => line.user_id == Some(own.1),
        false => named(&asked.user, &line.user),
    };
    let (domain, project) = match asked.project.trim().split_once('/') {
        Some((domain, project)) => (domain, project),
        None => ("", asked.project.trim()),
    };
    let is_of_domain = named(&asked.domain, &line.domain) && named(domain, &line.domain);
    let (of_user, of_project) = (!asked.user.trim().is_empty(), !project.is_empty());
    let of_domain = !asked.domain.trim().is_empty() || !domain.is_empty();
    match line.part {
        StatementPart::Use | StatementPart::Late => {
            is_of_domain && named(project, &line.project) && is_of_user
        }
        StatementPart::Project => !of_user && is_of_domain && named(project, &line.project),
        StatementPart::Domain => !of_user && !of_project && is_of_domain,
        StatementPart::Site => !of_user && !of_project && !of_domain,
    }
}

/// What an hour costs from the next close on.
pub async fn prices(server: &Server, caller: &Caller) -> Result<PricesView, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    let found = server
        .catalog()
        .read_now("show prices", |view| view.prices())?;
    Ok(PricesView::new(found.prices, found.generation))
}

/// Sets all prices at once; without a currency there are none. Months that are closed keep theirs.
///
/// Errors: `denied` without `system:write`; `price.currency-invalid`, `price.currency-needed`, `price.invalid`,
/// each at its field; `price.stale` where they are of another version than the caller has seen.
pub async fn set_prices(
    server: &Server,
    caller: &Caller,
    asked: &NewPricesBody,
    if_match: Option<u64>,
) -> Result<PricesView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let after = prices_of(asked)?;
    let actor = caller.name.clone();
    let set = server
        .catalog()
        .write(Lane::Requests, "set prices", move |rows| {
            let seen = rows.prices()?;
            if if_match.is_some_and(|generation| generation != seen.generation) {
                return Err(refusals::price_stale(seen.generation).into());
            }
            let before = seen.prices;
            if before != after {
                rows.put_prices(&after)?;
                rows.note(NewEvent {
                    actor: actor.as_str(),
                    topic: "system",
                    object: "prices",
                    scope: Scope::SITE,
                    code: "prices.changed",
                    before: &told(&before),
                    after: &told(&after),
                })?;
            }
            rows.prices()
        })
        .await?;
    Ok(PricesView::new(set.prices, set.generation))
}

fn prices_of(asked: &NewPricesBody) -> Result<HourPrices, Refusal> {
    let currency = asked.currency.trim();
    let is_code = currency.len() == 3 && currency.bytes().all(|letter| letter.is_ascii_uppercase());
    if !currency.is_empty() && !is_code {
        return Err(refusals::price_currency_invalid().at("/currency"));
    }
    let price = |typed: &str, at: &str| match typed.trim() {
        "" => Ok(0),
        typed => parse_price(typed).ok_or_else(|| refusals::price_invalid().at(at)),
    };
    let prices = HourPrices {
        currency: currency.to_owned(),
        gpu: price(&asked.gpu_hour, "/gpu_hour")?,
        core: price(&asked.core_hour, "/core_hour")?,
        gib: price(&asked.gib_hour, "/gib_hour")?,
    };
    if !prices.is_off() {
        return Ok(prices);
    }
    // Months that are closed in the belief that there are prices stay without them.
    if [prices.gpu, prices.core, prices.gib] != [0; 3] {
        return Err(refusals::price_currency_needed().at("/currency"));
    }
    Ok(HourPrices::default())
}

/// `1500 / 20 / 0.5 KRW`: a GPU, a core and a GiB for an hour; empty without prices.
fn told(prices: &HourPrices) -> String {
    if prices.is_off() {
        return String::new();
    }
    let [gpu, core, gib] = [prices.gpu, prices.core, prices.gib].map(price_text);
    format!("{gpu} / {core} / {gib} {}", prices.currency)
}

fn month_of(typed: &str) -> Result<UsageMonth, Refusal> {
    UsageMonth::parse(typed.trim()).ok_or_else(|| refusals::usage_month_invalid().at("/month"))
}

/// The hours of a month. One that holds the border of two months, where the zone is not whole hours from UTC, belongs to
/// the later month: no hour is in both.
fn hours(month: UsageMonth, zone: &str) -> UsageWindow {
    UsageWindow {
        from: metering::hour_of(month.begins(zone)),
        until: metering::hour_of(month.next().begins(zone)),
    }
}

/// The zone and the hours of the month that is closed next, where it is this one.
fn zone_and_hours(
    view: &ReadTransaction<'_>,
    month: UsageMonth,
    named: Option<String>,
    own_zone: Option<String>,
    now: Timestamp,
) -> Result<(String, UsageWindow), Failure> {
    match view.newest_closed_month()? {
        Some(last) => Ok(following(&last.head, month, named, now)?),
        None => first(view, month, named.or(own_zone), now),
    }
}

/// The zone and the hours of a month that is closed after another.
fn following(
    last: &StatementHead,
    month: UsageMonth,
    named: Option<String>,
    now: Timestamp,
) -> Result<(String, UsageWindow), Refusal> {
    let zone = last.time_zone.clone();
    if named.is_some_and(|named| named != zone) {
        return Err(refusals::month_zone_settled(&zone).at("/time_zone"));
    }
    let due = month_after(last)?;
    is_over(month, &zone, now)?;
    if month != due {
        return Err(refusals::month_out_of_order(due));
    }
    let hours = UsageWindow {
        // Where the last one ended, also by new rules of the zone: no hour is lost, and none is in two months.
        from: last.until,
        ..hours(month, &zone)
    };
    Ok((zone, hours))
}

/// The same of the month that is closed first: one that is over, and none before there was use.
fn first(
    view: &ReadTransaction<'_>,
    month: UsageMonth,
    zone: Option<String>,
    now: Timestamp,
) -> Result<(String, UsageWindow), Failure> {
    let hour = view
        .first_hour_of_use()?
        .ok_or_else(refusals::month_nothing_used)?;
    let zone = zone.ok_or_else(|| refusals::month_zone_needed().at("/time_zone"))?;
    is_over(month, &zone, now)?;
    let used = month_of_hour(hour, &zone);
    if month < used {
        return Err(refusals::month_out_of_order(used).into());
    }
    let hours = hours(month, &zone);
    Ok((zone, hours))
}

fn is_over(month: UsageMonth, zone: &str, now: Timestamp) -> Result<(), Refusal> {
    match month.next().begins(zone) <= now {
        true => Ok(()),
        false => Err(refusals::month_not_over(month)),
    }
}

fn month_after(last: &StatementHead) -> Result<UsageMonth, Refusal> {
    let last_month = UsageMonth::parse(&last.month);
    Ok(last_month
        .ok_or_else(|| refusals::month_unreadable(&last.month))?
        .next())
}

/// The month that an hour is in: that of its end, as `hours` has it.
fn month_of_hour(hour: i64, zone: &str) -> UsageMonth {
    let end = hour.saturating_add(1).saturating_mul(HOUR_MILLIS) - 1;
    UsageMonth::of(Timestamp::from_millis(end), zone)
}

fn next_month(
    view: &ReadTransaction<'_>,
    own_zone: &str,
    now: Timestamp,
) -> Result<Option<NextMonth>, Failure> {
    let (month, time_zone, is_first) = match view.newest_closed_month()? {
        Some(last) => (month_after(&last.head)?, last.head.time_zone, false),
        None => {
            let Some(hour) = view.first_hour_of_use()? else {
                return Ok(None);
            };
            let zone = known_zone(own_zone).unwrap_or_else(|| "UTC".to_owned());
            (month_of_hour(hour, &zone), zone, true)
        }
    };
    let newest = UsageMonth::of(now, &time_zone).previous();
    Ok(Some(NextMonth {
        month,
        newest,
        time_zone,
        is_first,
    }))
}

fn month_view(head: &StatementHead) -> ClosedMonthView {
    let at = |hour: i64| Timestamp::from_millis(hour.saturating_mul(HOUR_MILLIS));
    ClosedMonthView {
        month: head.month.clone(),
        from: at(head.from),
        until: at(head.until),
        time_zone: head.time_zone.clone(),
        closed_at: head.closed_at,
        currency: head.currency.clone(),
    }
}

#[cfg(test)]
mod tests;
