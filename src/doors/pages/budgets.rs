//! `/budgets`: GPU-hours that projects and users may use in a time, and the forms that give and change them. Decides
//! nothing.

use std::cmp::Reverse;

use api::budgets::{BudgetPatchBody, BudgetView, NewBudgetBody};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use rules::budget::GpuHours;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::budgets::{self, BudgetWarning, ListedBudget};

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{AnnouncementBanner, Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, ROWS_BY_FORM, RowAction, TableCell,
    TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::typed::point;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/budgets";
const FILTERS: [&str; 1] = ["q"];
/// Budgets that have a banner of their own; of more the number is told. Higher: an administrator of many projects sees
/// nothing but banners. Lower: a user of two projects is not told which is nearly used.
const BANNERS: usize = 2;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/budgets.html", blocks = ["list"])]
pub struct BudgetsPage {
    pub t: Text,
    pub f: PageLayout,
    /// None for those who only look.
    pub form: Option<BudgetForm>,
    /// Above the list: there is nothing to list yet, or the form was refused.
    pub is_form_first: bool,
    pub filter: FilterBar,
    pub table: DataTable,
}

impl ListPage for BudgetsPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/budget.html")]
pub struct BudgetPage {
    pub t: Text,
    pub f: PageLayout,
    pub whose: String,
    pub here: String,
    /// What is known of it, by name.
    pub facts: Vec<(&'static str, String)>,
    /// None for those who only look.
    pub form: Option<BudgetForm>,
}

/// The fields of a budget, as they are or as they were typed.
pub struct BudgetForm {
    /// Where it is sent.
    pub action: String,
    pub typed: TypedBudget,
    pub levels: Vec<Choice>,
    pub is_new: bool,
}

/// What a form sent.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct TypedBudget {
    /// `project` or `user`.
    pub level: String,
    pub subject: String,
    pub gpu_hours: String,
    pub month: String,
    pub from: String,
    pub until: String,
    pub hard: String,
    /// Of the row that the form shows; empty for a new one.
    pub generation: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/budgets", get(list).post(create))
        .route("/budgets/{id}", get(show).post(change))
        .route("/budgets/{id}/remove", get(ask_remove).post(remove))
}

/// A sentence for each budget of the reader that is nearly used; one for all where there are many.
pub(super) fn banners(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
) -> Vec<AnnouncementBanner> {
    let t = visit.text;
    let banner = |key: String, text: String| AnnouncementBanner {
        key,
        is_warning: true,
        seconds_left: None,
        text,
        link: None,
    };
    let warnings = budgets::warnings(&console.server, caller);
    let all: Vec<AnnouncementBanner> = match warnings.len() {
        0..=BANNERS => warnings
            .iter()
            .map(|one| {
                let id = one.id.0.simple().to_string();
                let key = format!("budget-{}-{}", &id[20..], one.percent);
                banner(key, t.budgets_warned(one.whose.as_str(), one.percent))
            })
            .collect(),
        count => vec![banner(key_of_many(&warnings), t.budgets_warned_many(count))],
    };
    let closed = |key: &str| visit.closed.split('.').any(|one| one == key);
    all.into_iter().filter(|one| !closed(&one.key)).collect()
}

/// The same for the same budgets at the same warnings, in whatever order: a banner that was closed is shown again where
/// there is another one.
fn key_of_many(warnings: &[BudgetWarning]) -> String {
    let parts = warnings.iter().map(|one| {
        let (_, id) = one.id.0.as_u64_pair();
        id.wrapping_mul(one.percent)
    });
    format!("budgets-{:016x}", parts.fold(0, u64::wrapping_add))
}

/// `12.00 of 4,000.50 GPU-hours · to 31 Dec 2026`, as the limits of a user tell it.
pub(super) fn as_limit(
    visit: &RequestContext,
    used: impl std::fmt::Display,
    amount: impl std::fmt::Display,
    until: Timestamp,
) -> (&'static str, String) {
    let t = visit.text;
    let [used, amount] = [components::grouped(used), components::grouped(amount)];
    let hours = t.budgets_hours_of(used, amount);
    let end = t.budgets_until_day(visit.clock.last_day(until));
    (t.budgets_one(), format!("{hours} · {end}"))
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Budgets);
    responses::failure(console, visit, Some(frame), failure)
}

/// `DOMAIN/PROJECT`, or the name of the user.
fn whose(budget: &BudgetView) -> String {
    match (&budget.project, &budget.user) {
        (Some(project), _) => format!("{}/{project}", budget.domain),
        (None, user) => user.clone().unwrap_or_default(),
    }
}

fn hundredths(hours: &str) -> u64 {
    GpuHours::parse(hours).map_or(0, |hours| hours.0)
}

fn period(visit: &RequestContext, budget: &BudgetView) -> String {
    let clock = &visit.clock;
    let (first, last) = (clock.day(budget.from), clock.last_day(budget.until));
    match first == last {
        true => first,
        false => format!("{first} – {last}"),
    }
}

fn state_word(budget: &BudgetView, now: Timestamp) -> &'static str {
    match () {
        () if budget.until <= now => "ended",
        () if budget.from > now => "planned",
        () => "current",
    }
}

/// Class and word of its state: ended, planned, warned of, or nothing to say.
fn state(t: Text, budget: &BudgetView, now: Timestamp) -> (&'static str, String) {
    match state_word(budget, now) {
        "ended" => ("", t.budgets_over().to_owned()),
        "planned" => ("acc", t.budgets_planned().to_owned()),
        _ => match warning(budget) {
            0 => ("ok", t.budgets_current().to_owned()),
            percent => ("warn", t.budgets_reached(percent)),
        },
    }
}

/// The percentage to warn of that the use has reached now.
fn warning(budget: &BudgetView) -> u64 {
    let (used, amount) = (hundredths(&budget.used), hundredths(&budget.gpu_hours));
    let reached = rules::budget::BUDGET_WARNINGS.iter().rev();
    let mut reached = reached.filter(|percent| used > 0 && used * 100 >= amount * **percent);
    reached.next().copied().unwrap_or(0)
}

fn kind(t: Text, budget: &BudgetView) -> &'static str {
    match budget.hard {
        true => t.budgets_hard_word(),
        false => t.budgets_soft_word(),
    }
}

/// When it is used up, at the rates of the last week and the last four.
fn forecast(visit: &RequestContext, budget: &BudgetView) -> String {
    let (Some(earliest), Some(latest)) = (budget.used_earliest, budget.used_latest) else {
        return String::new();
    };
    let (first, last) = (visit.clock.day(earliest), visit.clock.day(latest));
    match first == last {
        true => first,
        false => format!("{first} – {last}"),
    }
}

/// `GET /budgets`: the page, or the list alone for the page's own script.
async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = listed(&console, &visit, &caller, &headers, &asked, None).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

async fn listed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
    refused: Option<TypedBudget>,
) -> Result<BudgetsPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let mut known = budgets::listed(&console.server, caller).await?;
    let none = known.is_empty();
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.rows = ROWS_BY_FORM;
    state.choose_columns("budgets", &columns, asked, headers, visit);
    for word in state.filter("q").to_lowercase().split_whitespace() {
        known.retain(|one| found(&one.budget, word, now));
    }
    let by_name = |one: &ListedBudget| whose(&one.budget).to_lowercase();
    match state.sort.as_str() {
        "name" => known.sort_by_cached_key(by_name),
        "-name" => known.sort_by_cached_key(|one| Reverse(by_name(one))),
        "until" => known.reverse(),
        _ => {}
    }
    let total = known.len() as u64;
    let page = state.page_of(known);
    let rows = page.iter().map(|one| row(visit, &state, one, now));
    let rows = rows.collect();
    let empty = match none {
        true => EmptyTable::without_rows("scroll-text", t.budgets_none(), t.budgets_none_lead()),
        false => EmptyTable::no_match(t, t.budgets_no_match(), PATH),
    };
    let words = FilterWords {
        table: "budgets",
        path: PATH,
        hint: t.budgets_filter_hint(),
        label: t.budgets_filter(),
        shipped: &[
            (t.budgets_view_all(), ""),
            (t.budgets_view_current(), "q=state%3Acurrent"),
        ],
        examples: &[
            ("vision", t.budgets_help_word()),
            ("kind:hard", t.budgets_help_kind()),
            ("state:current", t.budgets_help_state()),
        ],
    };
    let may_write = budgets::may_write(caller);
    Ok(BudgetsPage {
        t,
        f: layout(console, visit, caller, Nav::Budgets),
        is_form_first: none || refused.is_some(),
        form: may_write.then(|| new_form(t, refused.unwrap_or_default())),
        filter: filter_bar(visit, headers, &state, &columns, &words),
        table: DataTable::new(t, &state, &columns, "-until", rows, total, empty),
    })
}

fn row(
    visit: &RequestContext,
    state: &TableState,
    one: &ListedBudget,
    now: Timestamp,
) -> TableLine {
    TableLine {
        id: format!("b-{}", one.budget.id),
        mark: None,
        cells: state
            .columns
            .iter()
            .map(|key| cell(visit, key, &one.budget, now))
            .collect(),
        action: one.may_change.then(|| RowAction {
            href: format!("{PATH}/{}/remove", one.budget.id),
            icon: "trash-2",
            label: visit.text.budgets_remove_of(whose(&one.budget)),
            dialog: true,
        }),
    }
}

/// Whether a word of the filter finds the budget: by project, domain or user, `kind:` or `state:`.
fn found(budget: &BudgetView, word: &str, now: Timestamp) -> bool {
    match word.split_once(':') {
        Some(("kind", "hard")) => budget.hard,
        Some(("kind", "soft")) => !budget.hard,
        Some(("state", wanted)) => state_word(budget, now) == wanted,
        _ => [&whose(budget), &budget.domain]
            .iter()
            .any(|text| text.to_lowercase().contains(word)),
    }
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.budgets_whose())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("used", t.budgets_used()).class("u below"),
        TableColumn::new("reserved", t.budgets_reserved()).class("below"),
        TableColumn::new("left", t.budgets_left()).class("below"),
        TableColumn::new("state", t.budgets_state()).class("below"),
        TableColumn::new("forecast", t.budgets_forecast()).class("below"),
        TableColumn::new("period", t.budgets_period())
            .sorted_by("-until")
            .class("below"),
    ]
}

fn cell(visit: &RequestContext, key: &str, budget: &BudgetView, now: Timestamp) -> TableCell {
    let t = visit.text;
    match key {
        "name" => {
            let level = match budget.project {
                Some(_) => t.budgets_of_project(),
                None => t.budgets_of_user(),
            };
            let mut notes = vec![level, kind(t, budget)];
            notes.extend(budget.of_site.then(|| t.budgets_of_site()));
            TableCell::Link {
                href: format!("{PATH}/{}", budget.id),
                text: whose(budget),
                note: notes.join(" · "),
            }
        }
        "used" => {
            let (used, amount) = (hundredths(&budget.used), hundredths(&budget.gpu_hours));
            let told = [&budget.used, &budget.gpu_hours].map(components::grouped);
            TableCell::Bar {
                text: t.common_of_two(&told[0], &told[1]),
                percent: components::percent(used as f64, amount as f64),
                accent: warning(budget) == 0,
            }
        }
        "reserved" => TableCell::text(components::grouped(&budget.reserved)),
        "left" => TableCell::text(components::grouped(&budget.left)),
        "state" => {
            let (tone, text) = state(t, budget, now);
            TableCell::Pill {
                tone,
                text,
                note: String::new(),
            }
        }
        "forecast" => TableCell::text(forecast(visit, budget)),
        "period" => TableCell::text(period(visit, budget)),
        _ => TableCell::Empty,
    }
}

fn new_form(t: Text, typed: TypedBudget) -> BudgetForm {
    let is_user = typed.level == "user";
    BudgetForm {
        action: PATH.to_owned(),
        levels: vec![
            Choice::new("project", t.budgets_of_project(), !is_user),
            Choice::new("user", t.budgets_of_user(), is_user),
        ],
        typed,
        is_new: true,
    }
}

impl TypedBudget {
    fn of(budget: &BudgetView) -> Self {
        Self {
            gpu_hours: budget.gpu_hours.clone(),
            hard: match budget.hard {
                true => "1".to_owned(),
                false => String::new(),
            },
            generation: budget.generation.to_string(),
            ..Self::default()
        }
    }

    fn body(&self) -> NewBudgetBody {
        let said = |typed: &str| Some(typed.trim().to_owned()).filter(|typed| !typed.is_empty());
        let subject = said(&self.subject);
        let (project, user) = match self.level.as_str() {
            "user" => (None, subject),
            _ => (subject, None),
        };
        NewBudgetBody {
            project,
            user,
            gpu_hours: point(&self.gpu_hours).into_owned(),
            month: said(&self.month),
            from: said(&self.from),
            until: said(&self.until),
            hard: !self.hard.is_empty(),
        }
    }

    fn patch(&self) -> BudgetPatchBody {
        BudgetPatchBody {
            gpu_hours: Some(point(&self.gpu_hours).into_owned()),
            hard: Some(!self.hard.is_empty()),
        }
    }
}

/// The field of the form that a place in the request is about: project and user are one field here.
fn refused(visit: &RequestContext, action: &str, refusal: Refusal) -> (RefusedForm, Refusal) {
    let is_subject = matches!(refusal.pointer.as_deref(), Some("/project" | "/user"));
    let refusal = match is_subject {
        true => refusal.at("/subject"),
        false => refusal,
    };
    let form = RefusedForm::new(visit.text, action, &refusal).otherwise_at("gpu_hours");
    (form, refusal)
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<TypedBudget>,
) -> Response {
    let refusal = match budgets::create(&console.server, &caller, sent.body(), None).await {
        Ok(made) => return responses::see_with(PATH, "budget-added", &whose(&made.value)),
        Err(Failure::Refusal(refusal)) if budgets::may_write(&caller) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (form, refusal) = refused(&visit, PATH, refusal);
    let visit = visit.refusing(form);
    match listed(&console, &visit, &caller, &headers, &[], Some(sent)).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    one: &ListedBudget,
    typed: TypedBudget,
) -> BudgetPage {
    let t = visit.text;
    let budget = &one.budget;
    let here = format!("{PATH}/{}", budget.id);
    let now = console.server.clock().now();
    let kind = match budget.of_site {
        true => format!("{} · {}", kind(t, budget), t.budgets_of_site()),
        false => kind(t, budget).to_owned(),
    };
    let mut facts = vec![
        (t.budgets_amount(), components::grouped(&budget.gpu_hours)),
        (t.budgets_used(), components::grouped(&budget.used)),
        (t.budgets_reserved(), components::grouped(&budget.reserved)),
        (t.budgets_left(), components::grouped(&budget.left)),
        (t.budgets_period(), period(visit, budget)),
        (t.budgets_kind(), kind),
        (t.budgets_state(), state(t, budget, now).1),
    ];
    let forecast = Some(forecast(visit, budget)).filter(|days| !days.is_empty());
    facts.extend(forecast.map(|days| (t.budgets_forecast(), days)));
    BudgetPage {
        t,
        f: layout(console, visit, caller, Nav::Budgets),
        whose: whose(budget),
        form: one.may_change.then(|| BudgetForm {
            action: here.clone(),
            typed,
            levels: Vec::new(),
            is_new: false,
        }),
        facts,
        here,
    }
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match budgets::get_listed(&console.server, &caller, &id).await {
        Ok(one) => {
            let typed = TypedBudget::of(&one.budget);
            let page = page(&console, &visit, &caller, &one, typed);
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// One that the caller may change.
async fn own(console: &PagesContext, caller: &Caller, id: &str) -> Result<ListedBudget, Failure> {
    let one = budgets::get_listed(&console.server, caller, id).await?;
    match one.may_change {
        true => Ok(one),
        false => {
            let word = Permission::ProjectsWrite.word();
            Err(refusals::role_permission_missing(word).into())
        }
    }
}

async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedBudget>,
) -> Response {
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let seen = sent.generation.parse().ok();
    match budgets::change(&console.server, &caller, &id, sent.patch(), seen).await {
        Ok(changed) => responses::see_with(PATH, "budget-changed", &whose(&changed)),
        Err(Failure::Refusal(refusal)) => {
            let (form, refusal) = refused(&visit, &format!("{PATH}/{}", one.budget.id), refusal);
            let visit = visit.refusing(form);
            let page = page(&console, &visit, &caller, &one, sent);
            responses::page(&console, &visit, responses::status(&refusal), &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn ask_remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one.budget,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let frame = layout(&console, &visit, &caller, Nav::Budgets);
    let title = t.budgets_remove_title(whose(&one));
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.budgets_remove_lead());
    let told = [&one.used, &one.gpu_hours].map(components::grouped);
    let hours = t.budgets_hours_of(&told[0], &told[1]);
    page.items = vec![format!("{hours} · {}", period(&visit, &one))];
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/remove", one.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.budgets_remove().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Budgets, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match budgets::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "budget-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[cfg(test)]
mod tests {
    use rules::names::BudgetId;

    use super::*;

    #[test]
    fn large_amounts_have_commas_in_both_languages() {
        use axum::http::Extensions;

        let until = Timestamp::from_millis(1_800_000_000_000);
        for (language, told) in [
            ("en", "1,234.50 of 12,000.00 GPU-hours"),
            ("ko", "1,234.50"),
        ] {
            let mut headers = HeaderMap::new();
            let value = language.parse().expect("a value");
            headers.insert(axum::http::header::ACCEPT_LANGUAGE, value);
            let visit = RequestContext::of(&headers, &Extensions::new(), PATH.into());
            let (_, limit) = as_limit(&visit, GpuHours(123_450), GpuHours(1_200_000), until);
            assert!(
                limit.contains(told) && limit.contains("12,000.00"),
                "{limit}"
            );
        }
    }

    #[test]
    fn a_closed_banner_of_many_hides_no_others() {
        let one = |id: u128, percent: u64| BudgetWarning {
            id: BudgetId(uuid::Uuid::from_u128(id)),
            whose: "vision".to_owned(),
            percent,
        };
        let key = key_of_many(&[one(1, 80), one(2, 80)]);
        assert_eq!(key, key_of_many(&[one(2, 80), one(1, 80)]));
        assert_ne!(key, key_of_many(&[one(1, 80), one(3, 80)]));
        assert_ne!(key, key_of_many(&[one(1, 80), one(2, 95)]));
    }
}
