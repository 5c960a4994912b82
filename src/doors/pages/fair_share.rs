//! `/fair-share`: in which order the queue is served, its backfill, weights, and where domains, projects and users stand.

use api::fair_share::{FairShareItem, FairSharePatchBody, FairShareView, FairWeightBody};
use api::queue_rehearsal::{QueueRehearsal, RehearsalFigures, RehearsedRules, RehearsedUser};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use rules::fair_share::QueueOrder;
use rules::permissions::Permission;
use rules::policy::BackfillMode;
use rules::quota::TenantLevel;
use rules::refusal::Refusal;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::fair_share;
use server::actions::rehearsal::{self, TriedRules};
use server::actions::usage::UsageTime;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::policies::level_name;
use super::request_context::RequestContext;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, ROWS_BY_FORM, TableCell, TableColumn,
    TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/fair-share";
const WEIGHTS: &str = "/fair-share/weights";
/// Milliseconds back to the sessions that rules are tried on: thirty days.
const TRIED_MILLIS: i64 = 30 * 86_400_000;
/// Users whom the rules harm most, and as many whom they help most.
const TRIED_USERS: usize = 10;
const FILTERS: [&str; 1] = ["q"];
const LEVELS: [TenantLevel; 3] = [TenantLevel::User, TenantLevel::Project, TenantLevel::Domain];

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/fair_share.html", blocks = ["list"])]
pub struct FairSharePage {
    pub t: Text,
    pub f: PageLayout,
    pub may_change: bool,
    /// The order that holds, in words.
    pub order: &'static str,
    pub orders: Vec<Choice>,
    pub backfills: Vec<Choice>,
    pub half_life: String,
    pub is_fair: bool,
    pub levels: Vec<Choice>,
    pub subject: String,
    pub weight: String,
    pub tried: Option<TriedQueue>,
    pub filter: FilterBar,
    pub table: DataTable,
}

/// What the rules in the form would have done.
pub struct TriedQueue {
    pub lead: String,
    /// Which sessions the figures leave out.
    pub more: String,
    pub lines: Vec<TriedLine>,
    pub users: Vec<TriedUser>,
}

/// One set of rules, or what was recorded.
pub struct TriedLine {
    pub name: String,
    pub waited: String,
    pub waited_p95: String,
    pub slowdown: String,
    pub busy: String,
}

/// Whom they help or harm.
pub struct TriedUser {
    pub name: String,
    pub place: String,
    pub before: String,
    pub after: String,
    pub change: String,
}

impl ListPage for FairSharePage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/fair-share", get(show).post(change))
        .route("/fair-share/weights", post(weigh))
        .route("/fair-share/try", get(to_list).post(try_rules))
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::FairShare);
    responses::failure(console, visit, Some(frame), failure)
}

/// What stands in the forms where they were refused.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct TypedFairShare {
    order: String,
    backfill: String,
    half_life_hours: String,
    level: String,
    subject: String,
    weight: String,
}

/// What the page shows: what holds, what was typed, and what came of a trial.
pub(super) struct ShownFairShare<'a> {
    pub(super) view: FairShareView,
    pub(super) may_change: bool,
    pub(super) asked: &'a [(String, String)],
    pub(super) typed: &'a TypedFairShare,
    pub(super) tried: Option<TriedQueue>,
}

/// `GET /fair-share`: the page, or the list alone for the page's own script.
async fn show(
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
    let page = read(
        &console,
        &visit,
        &caller,
        &headers,
        &asked,
        &TypedFairShare::default(),
        None,
    )
    .await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
    typed: &TypedFairShare,
    tried: Option<TriedQueue>,
) -> Result<FairSharePage, Failure> {
    let shown = ShownFairShare {
        view: fair_share::show(&console.server, caller).await?,
        may_change: caller.subject.can(Permission::SystemWrite),
        asked,
        typed,
        tried,
    };
    let f = layout(console, visit, caller, Nav::FairShare);
    Ok(page(visit, f, headers, shown))
}

/// The page of what was read. O(accounts).
pub(super) fn page(
    visit: &RequestContext,
    f: PageLayout,
    headers: &HeaderMap,
    shown: ShownFairShare<'_>,
) -> FairSharePage {
    let t = visit.text;
    let ShownFairShare {
        view,
        may_change,
        asked,
        typed,
        tried,
    } = shown;
    let FairShareView {
        order,
        backfill,
        half_life_hours,
        mut items,
        ..
    } = view;
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.rows = ROWS_BY_FORM;
    state.choose_columns("fair", &columns, asked, headers, visit);
    for word in state.filter("q").to_lowercase().split_whitespace() {
        items.retain(|item| found(item, word));
    }
    let total = items.len() as u64;
    let several = items.iter().any(|item| item.domain != items[0].domain);
    let rows = state
        .page_of(items)
        .iter()
        .enumerate()
        .map(|(at, item)| TableLine {
            id: format!("f-{at}"),
            mark: None,
            cells: state
                .columns
                .iter()
                .map(|key| cell(t, key, item, several))
                .collect(),
            action: None,
        })
        .collect();
    let filtered = state.filtered();
    let empty = EmptyTable {
        icon: "users",
        title: match filtered {
            true => t.fair_no_match().to_owned(),
            false => t.fair_none().to_owned(),
        },
        lead: match filtered {
            true => t.sessions_no_match_lead().to_owned(),
            false => t.fair_none_lead().to_owned(),
        },
        href: PATH.to_owned(),
        go: match filtered {
            true => t.sessions_clear().to_owned(),
            false => String::new(),
        },
    };
    let words = FilterWords {
        table: "fair",
        path: PATH,
        hint: t.fair_filter_hint(),
        label: t.fair_filter(),
        shipped: &[
            (t.fair_view_all(), ""),
            (t.fair_view_users(), "q=level%3Auser"),
            (t.projects_title(), "q=level%3Aproject"),
        ],
        examples: &[
            ("mina", t.filter_help_name()),
            ("level:user", t.fair_help_level()),
        ],
    };
    let chosen = QueueOrder::parse(&typed.order).unwrap_or(order);
    let mode = BackfillMode::parse(&typed.backfill).unwrap_or(backfill);
    let level = TenantLevel::parse(&typed.level).unwrap_or(TenantLevel::User);
    FairSharePage {
        t,
        f,
        may_change,
        order: order_name(t, order),
        orders: QueueOrder::ALL
            .map(|one| Choice::new(one.word(), order_name(t, one), one == chosen))
            .into(),
        backfills: BackfillMode::ALL
            .map(|one| Choice::new(one.word(), backfill_name(t, one), one == mode))
            .into(),
        half_life: match typed.half_life_hours.is_empty() {
            true => half_life_hours.to_string(),
            false => typed.half_life_hours.clone(),
        },
        is_fair: order.goes_by_share(),
        levels: LEVELS
            .map(|one| Choice::new(one.word(), level_name(t, one.into()), one == level))
            .into(),
        subject: typed.subject.clone(),
        weight: typed.weight.clone(),
        tried,
        filter: filter_bar(visit, headers, &state, &columns, &words),
        table: DataTable::new(t, &state, &columns, "", rows, total, empty),
    }
}

pub(super) fn order_name(t: Text, order: QueueOrder) -> &'static str {
    match order {
        QueueOrder::Turns => t.fair_order_turns(),
        QueueOrder::Fifo => t.fair_order_fifo(),
        QueueOrder::Lifo => t.fair_order_lifo(),
        QueueOrder::Drf => t.fair_order_drf(),
        QueueOrder::Fair => t.fair_order_fair(),
    }
}

pub(super) fn backfill_name(t: Text, backfill: BackfillMode) -> &'static str {
    match backfill {
        BackfillMode::Strict => t.fair_backfill_strict(),
        BackfillMode::Timed => t.fair_backfill_timed(),
    }
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("level", t.fair_level()).class("below"),
        TableColumn::new("weight", t.fair_weight()).class("num"),
        TableColumn::new("share", t.fair_share()).class("u below"),
        TableColumn::new("past", t.fair_past()).class("u below"),
        TableColumn::new("value", t.fair_value()).class("num"),
    ]
}

/// The last part of an account's name.
fn own_name(item: &FairShareItem) -> &str {
    match item.level {
        TenantLevel::User => &item.user,
        TenantLevel::Project => &item.project,
        TenantLevel::Domain => &item.domain,
    }
}

fn found(item: &FairShareItem, word: &str) -> bool {
    match word.split_once(':') {
        Some(("level", level)) => item.level.word() == level,
        _ => [&item.domain, &item.project, &item.user]
            .iter()
            .any(|name| name.contains(word)),
    }
}

fn cell(t: Text, key: &str, item: &FairShareItem, several: bool) -> TableCell {
    let bar = |part: f64| TableCell::Bar {
        text: format!("{:.1}%", part * 100.0),
        percent: (part * 100.0).round().clamp(0.0, 100.0) as u8,
        accent: false,
    };
    match key {
        "name" => TableCell::Text {
            text: own_name(item).to_owned(),
            note: match (item.level, several) {
                (TenantLevel::User, true) => format!("{}/{}", item.domain, item.project),
                (TenantLevel::User, false) => item.project.clone(),
                (TenantLevel::Project, true) => item.domain.clone(),
                _ => String::new(),
            },
        },
        "level" => TableCell::text(level_name(t, item.level.into())),
        "weight" => TableCell::text(item.weight.to_string()),
        "share" => bar(item.share),
        "past" => bar(item.past),
        "value" => TableCell::text(format!("{:.4}", item.value)),
        _ => TableCell::Empty,
    }
}

async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<TypedFairShare>,
) -> Response {
    let patch = FairSharePatchBody {
        order: QueueOrder::parse(&sent.order),
        backfill: BackfillMode::parse(&sent.backfill),
        half_life_hours: Some(sent.half_life_hours.trim().parse().unwrap_or(0)),
    };
    match fair_share::change(&console.server, &caller, patch, None).await {
        Ok(_) => responses::see_with(PATH, "fair-changed", ""),
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("half_life_hours");
            refused(
                &console,
                visit.refusing(form),
                &caller,
                &headers,
                &sent,
                &refusal,
            )
            .await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /fair-share/try`: the answer of a try has no address of its own.
async fn to_list(PageCaller(_): PageCaller) -> Response {
    responses::see(PATH)
}

/// `POST /fair-share/try`: what the sessions of the last month would have waited under the rules in the form. Saves
/// nothing.
async fn try_rules(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<TypedFairShare>,
) -> Response {
    let now = console.server.clock().now().as_millis();
    let time = UsageTime {
        from: Timestamp::from_millis(now - TRIED_MILLIS).to_string(),
        ..UsageTime::default()
    };
    let rules = TriedRules {
        order: QueueOrder::parse(&sent.order),
        backfill: BackfillMode::parse(&sent.backfill),
        half_life_hours: match sent.half_life_hours.trim() {
            "" => None,
            typed => Some(typed.parse().unwrap_or(0)),
        },
    };
    let run = match rehearsal::rehearse(&console.server, &caller, &time, rules).await {
        Ok(run) => tried(visit.text, &run),
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(visit.text, PATH, &refusal);
            // The form has no field for the time.
            let form = match refusal.pointer.as_deref() {
                Some("/half_life_hours") => form,
                _ => form.at("order"),
            };
            let visit = visit.refusing(form);
            return refused(&console, visit, &caller, &headers, &sent, &refusal).await;
        }
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    match read(&console, &visit, &caller, &headers, &[], &sent, Some(run)).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

pub(super) fn tried(t: Text, run: &QueueRehearsal) -> TriedQueue {
    if run.sessions == 0 {
        return TriedQueue {
            lead: t.fair_tried_none().to_owned(),
            more: String::new(),
            lines: Vec::new(),
            users: Vec::new(),
        };
    }
    let line = |name: String, figures: &RehearsalFigures| TriedLine {
        name,
        waited: components::span(t, figures.waited_p50_seconds),
        waited_p95: components::span(t, figures.waited_p95_seconds),
        slowdown: format!("{:.1}", figures.slowdown_mean),
        busy: format!("{:.1}%", figures.busy * 100.0),
    };
    let words = |rules: &RehearsedRules| {
        let order = order_name(t, rules.order);
        let backfill = backfill_name(t, rules.backfill);
        match rules.order {
            QueueOrder::Fair => {
                let half_life = components::span(t, rules.half_life_hours * 3_600);
                format!("{order} · {backfill} · {half_life}")
            }
            QueueOrder::Turns | QueueOrder::Fifo | QueueOrder::Lifo | QueueOrder::Drf => {
                format!("{order} · {backfill}")
            }
        }
    };
    let (present, others) = (&run.present, &run.tried);
    let more = match run.complete {
        true => "",
        false => t.fair_tried_more(),
    };
    let left = match others.figures.not_started {
        0 => String::new(),
        some => t.fair_tried_left(some),
    };
    // The harmed ones come first, the helped ones last.
    let helped = run.items.len().saturating_sub(TRIED_USERS).max(TRIED_USERS);
    let ends = run.items.iter().enumerate();
    let ends = ends.filter(|(at, _)| *at < TRIED_USERS || *at >= helped);
    TriedQueue {
        lead: t.fair_tried_of(run.sessions),
        more: format!("{more} {left}").trim().to_owned(),
        lines: vec![
            line(t.fair_tried_recorded().to_owned(), &run.recorded),
            line(words(present), &present.figures),
            line(words(others), &others.figures),
        ],
        users: ends.map(|(_, item)| tried_user(t, item)).collect(),
    }
}

fn tried_user(t: Text, item: &RehearsedUser) -> TriedUser {
    let span = |seconds: u64| components::span(t, seconds);
    TriedUser {
        name: item.user.clone(),
        place: format!("{}/{}", item.domain, item.project),
        before: span(item.present_waited_seconds),
        after: span(item.tried_waited_seconds),
        change: match item.change_seconds {
            0 => "–".to_owned(),
            more @ 1.. => format!("+{}", span(more.unsigned_abs())),
            less => format!("−{}", span(less.unsigned_abs())),
        },
    }
}

async fn weigh(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<TypedFairShare>,
) -> Response {
    let asked = FairWeightBody {
        level: TenantLevel::parse(&sent.level).unwrap_or(TenantLevel::User),
        subject: sent.subject.trim().to_owned(),
        weight: sent.weight.trim().parse().unwrap_or(0),
    };
    match fair_share::weigh(&console.server, &caller, asked).await {
        Ok(_) => {
            let told = format!("{} · {}", sent.subject.trim(), sent.weight.trim());
            responses::see_with(PATH, "fair-weighed", &told)
        }
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(visit.text, WEIGHTS, &refusal).otherwise_at("subject");
            refused(
                &console,
                visit.refusing(form),
                &caller,
                &headers,
                &sent,
                &refusal,
            )
            .await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn refused(
    console: &PagesContext,
    visit: RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    sent: &TypedFairShare,
    refusal: &Refusal,
) -> Response {
    if !caller.subject.can(Permission::SystemWrite) {
        return failed(console, &visit, caller, &refusal.clone().into());
    }
    match read(console, &visit, caller, headers, &[], sent, None).await {
        Ok(page) => responses::page(console, &visit, responses::status(refusal), &page),
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}
