//! `/statements`: what was used in a closed month, in sums and by user, as files too; for administrators the close of the
//! next month, and prices.

use api::statements::{
    ClosedMonthView, NewClosedMonthBody, NewPricesBody, StatementItem, StatementQuery,
    StatementView,
};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, post};
use rules::permissions::Permission;
use rules::statement::StatementPart;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::statements::{self, NextMonth};

use super::authentication::PageCaller;
use super::choice_field::{ChoiceField, MAX_LISTED};
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::history::HistoryView;
use super::layout::{Nav, PageLayout};
use super::request_context::{RequestContext, zones};
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, TableCell, TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;
use crate::doors::{csv, download};

const PATH: &str = "/statements";
const CLOSE: &str = "/statements/close";
const PRICES: &str = "/statements/prices";
/// Not `of`, by which a notice names what it is about.
const FILTERS: [&str; 2] = ["month", "whose"];
/// Months that are offered before the first close. Higher: the list is long. Lower: an older one is closed on the command
/// line.
const MAX_OFFERED: usize = 200;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/statements.html", blocks = ["list"])]
pub struct StatementsPage {
    pub t: Text,
    pub f: PageLayout,
    /// Empty while none is closed.
    pub month: String,
    pub months: Vec<Choice>,
    /// Whose statement it is, of a few by a list.
    pub subjects: Vec<Choice>,
    /// The field into which one of many is typed.
    pub subject: Option<ChoiceField>,
    pub csv: String,
    pub json: String,
    /// When it was closed, and in which zone months are counted.
    pub closed: String,
    pub next: Option<NextClose>,
    pub prices: Option<PriceForm>,
    pub view: HistoryView,
    pub table: DataTable,
}

/// The month that an administrator closes next.
pub struct NextClose {
    pub title: String,
    pub lead: String,
    /// Empty while it is not over, and where months are offered.
    pub href: String,
    pub go: String,
    /// Before the first close the months that are over, newest first.
    pub months: Vec<Choice>,
    /// The zones in which months may be counted.
    pub zones: Vec<Choice>,
}

/// Prices as they are, or as they were typed.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct PriceForm {
    pub currency: String,
    pub gpu_hour: String,
    pub core_hour: String,
    pub gib_hour: String,
    /// Version that was shown.
    pub generation: String,
    /// Which statement stands above the form, by its filters.
    pub month: String,
    pub whose: String,
}

/// What is read of closed months for the page.
#[derive(Default)]
pub(super) struct ReadStatements {
    pub(super) closed: Vec<ClosedMonthView>,
    pub(super) found: Option<StatementView>,
    /// The statement of all that the reader sees, where a part of it was chosen.
    pub(super) whole: Option<StatementView>,
    pub(super) next: Option<NextClose>,
    pub(super) prices: Option<PriceForm>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedMonth {
    month: String,
    /// Of the first close.
    time_zone: String,
}

impl ListPage for StatementsPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/statements", get(show))
        .route("/statements/export", get(export))
        .route("/statements/signed", get(signed))
        .route("/statements/close", get(ask_close).post(close))
        .route("/statements/prices", post(set_prices))
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Usage);
    responses::failure(console, visit, Some(frame), failure)
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let state = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &state, &asked) {
        return short;
    }
    let page = read(&console, &visit, &caller, &headers, &asked, None).await;
    answer(&console, &visit, &state, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

/// `GET /statements/export`: the lines as CSV, with exact units.
async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let state = TableState::read(PATH, &FILTERS, &asked);
    match statements::statement(&console.server, &caller, &query(&state)).await {
        Ok(found) => {
            let file = csv::statement(&found).into_bytes();
            download::bytes(&csv::statement_name(&found), csv::KIND, file)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /statements/signed`: the same with what the server signed, to be checked without it.
async fn signed(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let state = TableState::read(PATH, &FILTERS, &asked);
    let found = statements::statement(&console.server, &caller, &query(&state)).await;
    let written = found.and_then(|found| {
        let name = format!("statement-{}.json", found.month);
        let text = serde_json::to_vec(&found)
            .map_err(|error| server::ServerFault::new("write a statement", error))?;
        Ok((name, text))
    });
    match written {
        Ok((name, text)) => download::bytes(&name, "application/json", text),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `project:DOMAIN/NAME`, `domain:NAME` or `user:NAME`, as the choice has it; a project where nothing says what it is.
fn query(state: &TableState) -> StatementQuery {
    let mut query = StatementQuery {
        month: state.filter("month").to_owned(),
        ..StatementQuery::default()
    };
    match state.filter("whose").split_once(':') {
        Some(("project", name)) => name.clone_into(&mut query.project),
        Some(("domain", name)) => name.clone_into(&mut query.domain),
        Some(("user", name)) => name.clone_into(&mut query.user),
        _ => state.filter("whose").clone_into(&mut query.project),
    }
    query
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
    typed: Option<&PriceForm>,
) -> Result<StatementsPage, Failure> {
    let t = visit.text;
    let state = TableState::read(PATH, &FILTERS, asked);
    let closed = statements::months(&console.server, caller).await?;
    let wanted = query(&state);
    let found = match closed.is_empty() {
        true => None,
        false => Some(statements::statement(&console.server, caller, &wanted).await?),
    };
    // What is offered does not depend on what was chosen.
    let whole = match (&found, state.filter("whose").is_empty()) {
        (Some(_), false) => {
            let all = StatementQuery {
                month: wanted.month.clone(),
                ..StatementQuery::default()
            };
            Some(statements::statement(&console.server, caller, &all).await?)
        }
        _ => None,
    };
    let is_administrator = caller.subject.can(Permission::SystemWrite);
    let (next, prices) = match is_administrator {
        true => {
            let next = statements::next(&console.server, caller).await?;
            let next = next.map(|next| next_close(t, &next));
            let kept = statements::prices(&console.server, caller).await?;
            let kept = PriceForm {
                gpu_hour: shown_price(&kept.currency, kept.gpu_hour),
                core_hour: shown_price(&kept.currency, kept.core_hour),
                gib_hour: shown_price(&kept.currency, kept.gib_hour),
                currency: kept.currency,
                generation: kept.generation.to_string(),
                month: state.filter("month").to_owned(),
                whose: state.filter("whose").to_owned(),
            };
            (next, Some(typed.cloned().unwrap_or(kept)))
        }
        false => (None, None),
    };
    let read = ReadStatements {
        closed,
        found,
        whole,
        next,
        prices,
    };
    let f = layout(console, visit, caller, Nav::Usage);
    Ok(page(visit, f, caller.name.as_str(), headers, asked, read))
}

/// The page of what was read, for the reader of that name. O(lines of the month).
pub(super) fn page(
    visit: &RequestContext,
    f: PageLayout,
    reader: &str,
    headers: &HeaderMap,
    asked: &[(String, String)],
    read: ReadStatements,
) -> StatementsPage {
    let t = visit.text;
    let ReadStatements {
        closed,
        found,
        whole,
        next,
        prices,
    } = read;
    let mut state = TableState::read(PATH, &FILTERS, asked);
    let month = found
        .as_ref()
        .map_or(String::new(), |found| found.month.clone());
    let items: &[StatementItem] = found
        .as_ref()
        .map_or(&[][..], |found| found.items.as_slice());
    let several = items.iter().any(|item| item.domain != items[0].domain);
    let has_prices = found
        .as_ref()
        .is_some_and(|found| !found.currency.is_empty());
    let columns = columns(t, several, has_prices);
    state.choose_columns("statements", &columns, asked, headers, visit);
    let rows = state
        .page_of(items.iter().collect())
        .into_iter()
        .map(|item| TableLine {
            id: format!("s-{}", item.position),
            mark: None,
            cells: state.columns.iter().map(|key| cell(t, key, item)).collect(),
            action: None,
        })
        .collect();
    let empty = match closed.is_empty() {
        true => {
            EmptyTable::without_rows("scroll-text", t.statements_none(), t.statements_none_lead())
        }
        false => EmptyTable::without_rows("scroll-text", t.usage_none(), t.usage_none_lead()),
    };
    let total = items.len() as u64;
    let whose = state.filter("whose");
    let subjects = subjects(t, whole.as_ref().or(found.as_ref()), reader, whose);
    StatementsPage {
        t,
        f,
        months: months(&closed, &month),
        subject: subject(t, &subjects, whose),
        subjects,
        csv: state.beside("/statements/export"),
        json: state.beside("/statements/signed"),
        closed: found.as_ref().map_or(String::new(), |found| {
            t.statements_closed(visit.clock.date(found.closed_at), &found.time_zone)
        }),
        next,
        prices,
        view: found
            .as_ref()
            .map(|found| view(t, found))
            .unwrap_or_default(),
        table: DataTable::new(t, &state, &columns, "", rows, total, empty),
        month,
    }
}

fn shown_price(currency: &str, price: String) -> String {
    match currency {
        "" => String::new(),
        _ => price,
    }
}

pub(super) fn next_close(t: Text, next: &NextMonth) -> NextClose {
    let month = next.month.to_string();
    match (next.is_over(), next.is_first) {
        (true, true) => NextClose {
            title: t.statements_first().to_owned(),
            lead: t.statements_first_lead().to_owned(),
            href: String::new(),
            go: t.statements_first_go().to_owned(),
            months: first_months(next),
            zones: zones(&next.time_zone),
        },
        (is_over, _) => NextClose {
            title: t.statements_next(&month),
            lead: match is_over {
                true => t.statements_next_lead(&next.time_zone),
                false => t.statements_next_later(&next.time_zone),
            },
            href: match is_over {
                true => format!("{CLOSE}?month={month}"),
                false => String::new(),
            },
            go: t.statements_close(&month),
            months: Vec::new(),
            zones: Vec::new(),
        },
    }
}

/// The months that may be closed first, newest first; the first with use is chosen.
fn first_months(next: &NextMonth) -> Vec<Choice> {
    let mut months = Vec::new();
    let mut month = next.newest;
    while month >= next.month && months.len() < MAX_OFFERED {
        let name = month.to_string();
        months.push(Choice::new(
            name.as_str(),
            name.as_str(),
            month == next.month,
        ));
        month = month.previous();
    }
    months
}

fn months(closed: &[ClosedMonthView], chosen: &str) -> Vec<Choice> {
    closed
        .iter()
        .map(|one| Choice::new(one.month.as_str(), one.month.as_str(), one.month == chosen))
        .collect()
}

/// All that the reader sees, themselves, and the projects and domains of which they see all.
fn subjects(t: Text, found: Option<&StatementView>, reader: &str, chosen: &str) -> Vec<Choice> {
    let own = (format!("user:{reader}"), reader.to_owned());
    let totals = found.map_or(&[][..], |found| found.totals.as_slice());
    let of_totals = totals
        .iter()
        .filter_map(|item| match StatementPart::parse(&item.part)? {
            StatementPart::Project => {
                let name = format!("{}/{}", item.domain, item.project);
                Some((format!("project:{name}"), name))
            }
            StatementPart::Domain => {
                let words = format!("{} {}", t.projects_domain(), item.domain);
                Some((format!("domain:{}", item.domain), words))
            }
            StatementPart::Use | StatementPart::Late | StatementPart::Site => None,
        });
    let offered: Vec<(String, String)> = std::iter::once(own).chain(of_totals).collect();
    let pairs = offered
        .iter()
        .map(|(value, words)| (value.as_str(), words.as_str()));
    Choice::of_filter(t.statements_all(), pairs, chosen)
}

/// The field for one of more than a page lists; None where they are a list.
fn subject(t: Text, subjects: &[Choice], chosen: &str) -> Option<ChoiceField> {
    let is_long = subjects.len() > MAX_LISTED;
    is_long.then(|| ChoiceField::of(t, subjects.to_vec(), chosen))
}

fn columns(t: Text, several: bool, has_prices: bool) -> Vec<TableColumn> {
    let mut columns = vec![
        TableColumn::new("user", t.projects_add_user())
            .display(ColumnDisplay::Fixed)
            .class("first"),
        TableColumn::new("project", t.sessions_project()).display(ColumnDisplay::Fixed),
    ];
    if several {
        columns.push(TableColumn::new("domain", t.projects_domain()));
    }
    columns.extend([
        TableColumn::new("gpu", t.history_gpu_hours()).class("num"),
        TableColumn::new("cpu", t.history_core_hours()).class("num"),
        TableColumn::new("memory", t.usage_memory_hours()).class("num wide"),
        TableColumn::new("starts", t.nav_sessions()).class("num wide"),
    ]);
    if has_prices {
        columns.push(TableColumn::new("amount", t.statements_amount()).class("num"));
    }
    columns
}

fn cell(t: Text, key: &str, item: &StatementItem) -> TableCell {
    let used = &item.used;
    match key {
        "user" => TableCell::Text {
            text: item.user.clone(),
            note: match item.is_late() {
                true => t.statements_late().to_owned(),
                false => String::new(),
            },
        },
        "project" => TableCell::text(item.project.clone()),
        "domain" => TableCell::text(item.domain.clone()),
        "gpu" => TableCell::text(components::grouped(used.gpu_hours())),
        "cpu" => TableCell::text(components::grouped(used.core_hours())),
        "memory" => TableCell::text(components::grouped(used.memory_gib_hours())),
        "starts" => TableCell::text(components::grouped(used.starts)),
        "amount" => TableCell::text(components::grouped(used.amount())),
        _ => TableCell::Empty,
    }
}

/// The total; the page shows it as sums.
fn view(t: Text, found: &StatementView) -> HistoryView {
    let total = &found.total;
    let sum = |name: &str, amount: String| (name.to_owned(), components::grouped(amount));
    let mut sums = vec![
        sum(t.history_gpu_hours(), total.gpu_hours()),
        sum(t.history_core_hours(), total.core_hours()),
        sum(t.usage_memory_hours(), total.memory_gib_hours()),
        sum(t.nav_sessions(), total.starts.to_string()),
    ];
    if !found.currency.is_empty() {
        let amount = components::grouped(total.amount());
        let amount = format!("{amount} {}", found.currency);
        sums.push((t.statements_amount().to_owned(), amount));
    }
    HistoryView {
        period: found.month.clone(),
        sums,
        ..HistoryView::default()
    }
}

/// `GET /statements/close`: asks first, for what is closed stays closed.
async fn ask_close(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<TypedMonth>,
) -> Response {
    let t = visit.text;
    let next = match statements::next(&console.server, &caller).await {
        Ok(next) => next,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    // The first close settles the zone: that of the address, or the one in which the page shows times.
    let settled = next.as_ref().filter(|next| !next.is_first);
    let settled = settled.map(|next| next.time_zone.clone());
    let is_first = settled.is_none();
    let zone = settled.unwrap_or_else(|| match asked.time_zone.trim() {
        "" => visit.clock.name().to_owned(),
        zone => zone.to_owned(),
    });
    // The month that the address names, or the one that is due: the server says which can be closed.
    let month = match (next, asked.month.is_empty()) {
        (Some(next), true) => next.month.to_string(),
        _ => asked.month,
    };
    let frame = layout(&console, &visit, &caller, Nav::Usage);
    let title = t.statements_close_title(&month);
    let lead = t.statements_close_lead(&zone);
    let mut fields = vec![("month", month.clone())];
    if is_first {
        fields.push(("time_zone", zone));
    }
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, &lead);
    page.form = Some(DialogForm {
        action: CLOSE.to_owned(),
        fields,
        icon: "shield-check",
        go: t.statements_close(&month),
        ends: false,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Usage, page)
}

async fn close(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<TypedMonth>,
) -> Response {
    let asked = NewClosedMonthBody {
        month: sent.month,
        time_zone: Some(sent.time_zone),
    };
    match statements::close(&console.server, &caller, &asked).await {
        Ok(closed) => {
            let place = format!("{PATH}?month={}", closed.month);
            responses::see_with(&place, "month-closed", &closed.month)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn set_prices(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<PriceForm>,
) -> Response {
    let asked = NewPricesBody {
        currency: sent.currency.trim().to_uppercase(),
        gpu_hour: sent.gpu_hour.clone(),
        core_hour: sent.core_hour.clone(),
        gib_hour: sent.gib_hour.clone(),
    };
    let seen = sent.generation.parse().ok();
    // The same statement stands above the form again.
    let shown = [("month", &sent.month), ("whose", &sent.whose)]
        .map(|(name, value)| (name.to_owned(), value.clone()));
    let refusal = match statements::set_prices(&console.server, &caller, &asked, seen).await {
        Ok(_) => {
            let place = TableState::read(PATH, &FILTERS, &shown).address();
            return responses::see_with(&place, "prices-saved", "");
        }
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::SystemWrite) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let form = RefusedForm::new(visit.text, PRICES, &refusal).otherwise_at("currency");
    let visit = visit.refusing(form);
    match read(&console, &visit, &caller, &headers, &shown, Some(&sent)).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_of_a_close_chooses_nothing() {
        let asked = [
            ("month", "2026-10"),
            ("notice", "month-closed"),
            ("of", "2026-10"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let state = TableState::read(PATH, &FILTERS, &asked);
        assert_eq!(state.address(), "/statements?month=2026-10");
    }

    #[test]
    fn of_more_than_fifty_subjects_one_is_typed() {
        let t = Text::default();
        let some = |count: usize| -> Vec<Choice> {
            let name = |n| format!("project:default/lab-{n:03}");
            (0..count)
                .map(|n| Choice::new(name(n), name(n), false))
                .collect()
        };
        assert!(subject(t, &some(MAX_LISTED), "").is_none());
        let chosen = "project:default/lab-900";
        let field = subject(t, &some(1_000), chosen).expect("a field");
        let shown = field.control("whose", "", "");
        assert!(shown.as_str().contains(&format!(" value=\"{chosen}\"")));
        for (whose, project, domain) in [
            ("default/lab-900", "default/lab-900", ""),
            ("project:lab-900", "lab-900", ""),
            ("domain:physics", "", "physics"),
            ("", "", ""),
        ] {
            let asked = [("whose".to_owned(), whose.to_owned())];
            let query = query(&TableState::read(PATH, &FILTERS, &asked));
            assert_eq!(
                (query.project.as_str(), query.domain.as_str()),
                (project, domain)
            );
        }
    }
}
