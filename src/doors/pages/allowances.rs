//! `/allowances`: limits of a domain, a project or a user that are raised for a while, and the form that raises them; what users
//! ask for, and `/me/limits`, where they do.

use api::allowances::{
    AllowanceView, LimitRequestDeclineBody, LimitRequestView, NewAllowanceBody, NewLimitRequestBody,
};
use api::policies::LimitsBody;
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use rules::names::AllowanceId;
use rules::object::Object;
use rules::permissions::Permission;
use rules::quota::{LimitKey, PolicyLimits, TenantLevel};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::allowances::{self, requests};
use server::actions::{policies as limits_of_policies, storage, users};

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::policies::{self, amount, key_name, level_name};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, ROWS_BY_FORM, RowAction, TableCell,
    TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::user::{self, HeldLimit, LimitRow};
use super::{PagesContext, launch, layout, me, responses};
use crate::doors::text::{Text, codes};

const PATH: &str = "/allowances";
const ASKING: &str = "/me/limits";
const FILTERS: [&str; 1] = ["q"];
const LEVELS: [TenantLevel; 3] = [TenantLevel::User, TenantLevel::Project, TenantLevel::Domain];

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/allowances.html", blocks = ["list"])]
pub struct AllowancesPage {
    pub t: Text,
    pub f: PageLayout,
    pub may_change: bool,
    /// Why there can be no other, in place of the form; empty while there is room.
    pub full: String,
    pub levels: Vec<Choice>,
    pub keys: Vec<Choice>,
    pub subject: String,
    /// The page that the form was reached from; empty for this one.
    pub back: String,
    /// What the chosen limit is now and where that comes from; empty where that is not known.
    pub now: String,
    pub value: String,
    /// How the amount is written: for the chosen limit, or for all.
    pub value_help: String,
    pub time: String,
    pub reason: String,
    /// What users ask for.
    pub requests: Vec<AskedLimitRow>,
    pub filter: FilterBar,
    pub table: DataTable,
}

/// What one user asks for.
pub struct AskedLimitRow {
    pub user: String,
    pub suspended: bool,
    pub limits: String,
    /// For how long, why and since when.
    pub facts: String,
    /// Where the form is filled in for it, and where it is declined.
    pub raise: String,
    pub decline: String,
}

/// Where the reader asks for higher limits.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/limit_request.html")]
pub struct LimitRequestPage {
    pub t: Text,
    pub f: PageLayout,
    /// The limits that hold for them, each with the rule that it comes from; empty for who is in no project.
    pub limits: Vec<LimitRow>,
    pub keys: Vec<Choice>,
    /// What the chosen limit is now and where that comes from; empty where none is chosen.
    pub now: String,
    pub value: String,
    /// How the amount is written: for the chosen limit, or for all.
    pub value_help: String,
    pub days: String,
    pub reason: String,
    /// What they ask for already.
    pub waits: Option<OwnRequest>,
}

pub struct OwnRequest {
    pub limits: String,
    pub days: String,
    pub reason: String,
}

impl ListPage for AllowancesPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/allowances", get(show).post(create))
        .route("/allowances/{id}/end", get(ask_end).post(end))
        .route("/allowances/{id}/decline", get(ask_decline).post(decline))
        .route("/me/limits", get(ask_form).post(ask))
        .route("/me/limits/withdraw", post(withdraw))
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Policies);
    responses::failure(console, visit, Some(frame), failure)
}

/// What stands in the form where it was refused.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedAllowance {
    level: String,
    subject: String,
    /// The page that the form was reached from, and to which it leads once the limit is raised.
    back: String,
    key: String,
    value: String,
    time: String,
    reason: String,
}

impl TypedAllowance {
    /// What a link fills in: whose limit, and which; all of it where it answers a request.
    fn begun(asked: &[(String, String)]) -> Self {
        let value = |wanted: &str| {
            let found = asked.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        Self {
            level: value("level"),
            subject: value("subject"),
            back: value("back"),
            key: value("key"),
            value: value("value"),
            time: value("time"),
            reason: value("reason"),
        }
    }
}

/// `GET /allowances`: the page, or the list alone for the page's own script.
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
    let typed = TypedAllowance::begun(&asked);
    let page = read(&console, &visit, &caller, &headers, &asked, &typed).await;
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
    typed: &TypedAllowance,
) -> Result<AllowancesPage, Failure> {
    let t = visit.text;
    let may_change = caller.subject.can(Permission::SystemWrite);
    let asking = requests::list(&console.server, caller).await?;
    let now = console.server.clock().now();
    let mut items = allowances::list(&console.server, caller).await?;
    let full = allowances::no_room(items.len());
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.rows = ROWS_BY_FORM;
    state.choose_columns("allowances", &columns, asked, headers, visit);
    for word in state.filter("q").to_lowercase().split_whitespace() {
        items.retain(|item| found(item, word));
    }
    let total = items.len() as u64;
    let rows = state
        .page_of(items)
        .iter()
        .map(|item| TableLine {
            id: format!("a-{}", item.id),
            mark: None,
            cells: state
                .columns
                .iter()
                .map(|key| cell(visit, key, item))
                .collect(),
            action: may_change.then(|| RowAction {
                href: format!("{PATH}/{}/end", item.id),
                icon: "x",
                dialog: true,
                label: t.allowances_end_of(item.name.as_str()),
            }),
        })
        .collect();
    let filtered = state.filtered();
    let empty = EmptyTable {
        icon: "shield-check",
        title: match filtered {
            true => t.allowances_no_match().to_owned(),
            false => t.allowances_none().to_owned(),
        },
        lead: match filtered {
            true => t.sessions_no_match_lead().to_owned(),
            false => t.allowances_none_lead().to_owned(),
        },
        href: PATH.to_owned(),
        go: match filtered {
            true => t.sessions_clear().to_owned(),
            false => String::new(),
        },
    };
    let words = FilterWords {
        table: "allowances",
        path: PATH,
        hint: t.allowances_filter_hint(),
        label: t.allowances_filter(),
        shipped: &[
            (t.allowances_view_all(), ""),
            (t.fair_view_users(), "q=level%3Auser"),
            (t.projects_title(), "q=level%3Aproject"),
        ],
        examples: &[
            ("mina", t.filter_help_name()),
            ("level:user", t.fair_help_level()),
        ],
    };
    let level = TenantLevel::parse(&typed.level).unwrap_or(TenantLevel::User);
    let key = key_of(&typed.key);
    let of_user = match (level, typed.subject.trim()) {
        (TenantLevel::User, name) if may_change && !name.is_empty() => {
            // A name that no user has is said once the form is sent.
            users::profile(&console.server, caller, name).await.ok()
        }
        _ => None,
    };
    let held = of_user.as_ref().map(user::held);
    Ok(AllowancesPage {
        t,
        full: full.map_or_else(String::new, |refusal| codes::refusal(t, &refusal)),
        f: layout(console, visit, caller, Nav::Policies),
        may_change,
        levels: LEVELS
            .map(|one| Choice::new(one.word(), level_name(t, one.into()), one == level))
            .into(),
        keys: std::iter::once(Choice::new("", t.allowances_choose(), key.is_none()))
            .chain(LimitKey::ALL.map(|one| {
                let told = option(visit, held.as_deref(), one);
                Choice::new(one.word(), told, Some(one) == key)
            }))
            .collect(),
        subject: typed.subject.clone(),
        back: typed.back.clone(),
        now: match (&held, key) {
            (Some(held), Some(key)) => t.allowances_now(user::told_of(visit, held, key)),
            _ => String::new(),
        },
        value_help: value_help(t, held.as_deref(), key),
        value: typed.value.clone(),
        time: typed.time.clone(),
        reason: typed.reason.clone(),
        requests: asking
            .iter()
            .map(|one| request_row(visit, one, now))
            .collect(),
        filter: filter_bar(visit, headers, &state, &columns, &words),
        table: DataTable::new(t, &state, &columns, "", rows, total, empty),
    })
}

/// An amount that raises what holds, as the field takes it: the double, which a limit of 0 does not have.
fn more(key: LimitKey, holding: Option<&HeldLimit>) -> String {
    let double = holding.map_or(0, |one| one.most.saturating_mul(2));
    match (key, double) {
        (LimitKey::Priority, _) | (_, 0) => policies::example(key).to_owned(),
        _ => policies::written(key, double),
    }
}

/// How the amount is written: for the chosen limit with an example that raises it, or for all.
fn value_help(t: Text, held: Option<&[HeldLimit]>, key: Option<LimitKey>) -> String {
    let Some(key) = key else {
        return t.allowances_value_help().to_owned();
    };
    let holding = held.and_then(|held| held.iter().find(|one| one.key == key));
    t.allowances_value_of(unit(t, key), more(key, holding))
}

/// None where no limit is chosen.
fn key_of(word: &str) -> Option<LimitKey> {
    let mut keys = LimitKey::ALL.into_iter();
    keys.find(|key| key.word() == word)
}

/// A limit in the list of them, with what it is now where that is known.
fn option(visit: &RequestContext, held: Option<&[HeldLimit]>, key: LimitKey) -> String {
    let (t, name) = (visit.text, key_name(visit.text, key));
    let Some(held) = held else {
        return name.to_owned();
    };
    match held.iter().find(|one| one.key == key) {
        Some(one) => format!("{name}: {}", amount(visit, key, one.most)),
        None => format!("{name}: {}", t.common_unlimited()),
    }
}

/// In what the amount of a limit is written.
fn unit(t: Text, key: LimitKey) -> &'static str {
    match key {
        LimitKey::Gpu | LimitKey::GpuEach => t.allowances_unit_gpus(),
        LimitKey::Cpu | LimitKey::CpuEach => t.allowances_unit_cores(),
        LimitKey::Memory
        | LimitKey::MemoryEach
        | LimitKey::DiskEach
        | LimitKey::WaitingBytes
        | LimitKey::FolderBytes => t.allowances_unit_bytes(),
        LimitKey::RuntimeSeconds => t.allowances_unit_time(),
        LimitKey::Waiting
        | LimitKey::Sessions
        | LimitKey::Priority
        | LimitKey::SignIns
        | LimitKey::Images => t.allowances_unit_number(),
    }
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("limits", t.users_limits()).class("why"),
        TableColumn::new("until", t.allowances_until()).class("below"),
        TableColumn::new("reason", t.allowances_reason()).class("below"),
        TableColumn::new("actor", t.allowances_by()).class("below"),
    ]
}

fn found(item: &AllowanceView, word: &str) -> bool {
    match word.split_once(':') {
        Some(("level", level)) => item.level.word() == level,
        _ => [&item.name, &item.reason, &item.actor]
            .iter()
            .any(|text| text.to_lowercase().contains(word)),
    }
}

fn told(visit: &RequestContext, item: &AllowanceView) -> String {
    told_limits(visit, item.limits)
}

fn told_limits(visit: &RequestContext, limits: LimitsBody) -> String {
    let limits = PolicyLimits::from(limits);
    let said = LimitKey::ALL.into_iter().filter_map(|key| {
        let value = amount(visit, key, limits.get(key)?);
        Some(format!("{}: {value}", key_name(visit.text, key)))
    });
    said.collect::<Vec<_>>().join(" · ")
}

fn cell(visit: &RequestContext, key: &str, item: &AllowanceView) -> TableCell {
    let t = visit.text;
    match key {
        "name" => TableCell::Text {
            text: item.name.clone(),
            note: level_name(t, item.level.into()).to_owned(),
        },
        "limits" => TableCell::text(told(visit, item)),
        "until" => TableCell::text(visit.clock.date(item.until)),
        "reason" => TableCell::text(item.reason.clone()),
        "actor" => TableCell::text(item.actor.clone()),
        _ => TableCell::Empty,
    }
}

fn request_row(visit: &RequestContext, asked: &LimitRequestView, now: Timestamp) -> AskedLimitRow {
    let limits = PolicyLimits::from(asked.limits);
    // The form raises one limit at a time.
    let mut keys = LimitKey::ALL.into_iter();
    let first = keys.find_map(|key| Some((key, limits.get(key)?)));
    let filled = first.map_or_else(String::new, |(key, value)| {
        let value = encoded(&policies::written(key, value));
        format!("&key={}&value={value}", key.word())
    });
    let (user, reason) = (encoded(&asked.user), encoded(&asked.reason));
    let days = visit.text.allowances_for_days(u64::from(asked.days));
    AskedLimitRow {
        user: asked.user.clone(),
        suspended: asked.suspended,
        limits: told_limits(visit, asked.limits),
        facts: format!(
            "{days} · {} · {}",
            asked.reason,
            visit.clock.ago(asked.asked_at, now)
        ),
        raise: format!(
            "{PATH}?level=user&subject={user}{filled}&time={}d&reason={reason}",
            asked.days
        ),
        decline: format!("{PATH}/{user}/decline"),
    }
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<TypedAllowance>,
) -> Response {
    let made = match body(&console, &sent) {
        Ok(asked) => allowances::create(&console.server, &caller, asked).await,
        Err(refusal) => Err(refusal.into()),
    };
    match made {
        Ok(made) => {
            let back = match sent.back.as_str() {
                "" => PATH,
                place => responses::own_place(place),
            };
            responses::see_with(back, "allowance-added", &made.name)
        }
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::SystemWrite) => {
            let refusal = at_field(refusal);
            let form = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("subject");
            let visit = visit.refusing(form);
            match read(&console, &visit, &caller, &headers, &[], &sent).await {
                Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
                Err(failure) => failed(&console, &visit, &caller, &failure),
            }
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The refusal at the field that it is about: the form has one limit, and its fields have other names than a body.
fn at_field(refusal: Refusal) -> Refusal {
    let is_of_limits = refusal.pointer.as_deref();
    match is_of_limits.is_some_and(|place| place.starts_with("/limits")) {
        true if refusal.code == rules::codes::ALLOWANCE_NO_LIMIT => refusal.at("/key"),
        true => refusal.at("/value"),
        false => refusal,
    }
}

/// What was typed, as the action takes it. Errors: `allowance.empty`, `policy.limit-invalid`, `span.invalid`, `allowance.time-missing`, each at its field.
fn body(console: &PagesContext, sent: &TypedAllowance) -> Result<NewAllowanceBody, Refusal> {
    let limits = limit_of(&sent.key, &sent.value)?;
    let span = launch::span(&sent.time).map_err(|refusal| refusal.at("/time"))?;
    let span = span.ok_or_else(|| refusals::allowance_time_missing().at("/time"))?;
    Ok(NewAllowanceBody {
        level: TenantLevel::parse(&sent.level).unwrap_or(TenantLevel::User),
        subject: sent.subject.trim().to_owned(),
        limits: Object(LimitsBody::from(limits)),
        until: console.server.clock().now().plus_seconds(span),
        reason: sent.reason.clone(),
    })
}

/// One limit as it was chosen and typed. Errors: `allowance.empty`, `policy.limit-invalid`, each at its field.
fn limit_of(key: &str, typed: &str) -> Result<PolicyLimits, Refusal> {
    let key = key_of(key).ok_or_else(|| refusals::allowance_empty().at("/key"))?;
    let mut limits = PolicyLimits::NONE;
    let value = policies::read(key, typed).map_err(|refusal| {
        // A policy's field may stay empty, this one may not.
        let refusal = match refusal.code.as_str() {
            rules::codes::POLICY_LIMIT_INVALID => {
                refusals::allowance_value_invalid(policies::example(key))
            }
            _ => refusal,
        };
        refusal.at("/value")
    })?;
    limits.set(key, value);
    if value.is_none() {
        return Err(refusals::allowance_empty().at("/value"));
    }
    Ok(limits)
}

async fn ask_end(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let found = match id.parse::<AllowanceId>() {
        Ok(id) => allowances::get(&console.server, &caller, id).await,
        Err(refusal) => Err(refusal.into()),
    };
    let found = match found {
        Ok(found) => found,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let frame = layout(&console, &visit, &caller, Nav::Policies);
    let title = t.allowances_end_title(found.name.as_str());
    let lead = t.allowances_end_lead();
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, lead);
    page.items = vec![told(&visit, &found)];
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/end", found.id),
        fields: Vec::new(),
        icon: "x",
        go: t.allowances_end().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Policies, page)
}

async fn end(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let ended = match id.parse::<AllowanceId>() {
        Ok(id) => allowances::remove(&console.server, &caller, id).await,
        Err(refusal) => Err(refusal.into()),
    };
    match ended {
        Ok(()) => responses::see_with(PATH, "allowance-ended", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DeclineForm {
    why: String,
}

/// `GET /allowances/{id}/decline`: what the user is told.
async fn ask_decline(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let asking = match requests::list(&console.server, &caller).await {
        Ok(asking) => asking,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let Some(asked) = asking.iter().find(|one| one.user == id) else {
        let refusal = refusals::limit_request_not_found();
        return failed(&console, &visit, &caller, &refusal.into());
    };
    let frame = layout(&console, &visit, &caller, Nav::Policies);
    let title = t.allowances_decline_title(asked.user.as_str());
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, "");
    page.items = vec![told_limits(&visit, asked.limits)];
    page.why = t.allowances_reason();
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/decline", encoded(&asked.user)),
        fields: Vec::new(),
        icon: "x",
        go: t.allowances_decline().to_owned(),
        ends: false,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Policies, page)
}

async fn decline(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<DeclineForm>,
) -> Response {
    let asked = LimitRequestDeclineBody { reason: sent.why };
    match requests::decline(&console.server, &caller, &id, asked).await {
        Ok(()) => responses::see_with(PATH, "limit-declined", &id),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// What a user typed who asks.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedRequest {
    key: String,
    value: String,
    days: String,
    reason: String,
}

/// `GET /me/limits`: what the reader asks for, and the form that asks.
async fn ask_form(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(begun): Query<TypedRequest>,
) -> Response {
    asking(&console, &visit, &caller, StatusCode::OK, &begun).await
}

async fn asking(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
    typed: &TypedRequest,
) -> Response {
    let t = visit.text;
    let waits = match requests::own(&console.server, caller).await {
        Ok(own) => Some(own),
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::LIMIT_REQUEST_NOT_FOUND => {
            None
        }
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    // Who is in no project has none.
    let limits = limits_of_policies::effective(&console.server, caller, None, None).await;
    let folders = storage::own(&console.server, caller).await.ok();
    let held = limits
        .ok()
        .map(|limits| me::own_held(&limits, folders.as_ref()));
    let key = key_of(&typed.key);
    let page = LimitRequestPage {
        t,
        f: layout(console, visit, caller, Nav::Me),
        limits: held.as_deref().map_or_else(Vec::new, |held| {
            let listed = user::listed(visit, held).into_iter();
            listed.map(|(_, row)| row).collect()
        }),
        keys: std::iter::once(Choice::new("", t.allowances_choose(), key.is_none()))
            .chain(LimitKey::ALL.map(|one| {
                let told = option(visit, held.as_deref(), one);
                Choice::new(one.word(), told, Some(one) == key)
            }))
            .collect(),
        now: match (&held, key) {
            (Some(held), Some(key)) => t.allowances_now(user::told_of(visit, held, key)),
            _ => String::new(),
        },
        value_help: value_help(t, held.as_deref(), key),
        value: typed.value.clone(),
        days: typed.days.clone(),
        reason: typed.reason.clone(),
        waits: waits.map(|own| OwnRequest {
            limits: told_limits(visit, own.limits),
            days: own.days.to_string(),
            reason: own.reason,
        }),
    };
    responses::page(console, visit, status, &page)
}

async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<TypedRequest>,
) -> Response {
    let asked = match limit_of(&sent.key, &sent.value) {
        Ok(limits) => {
            let wanted = NewLimitRequestBody {
                limits: Object(LimitsBody::from(limits)),
                // What is no number is refused as no days are.
                days: sent.days.trim().parse().unwrap_or_default(),
                reason: sent.reason.clone(),
            };
            requests::ask(&console.server, &caller, wanted).await
        }
        Err(refusal) => Err(refusal.into()),
    };
    match asked {
        Ok(_) => responses::see_with(ASKING, "limit-asked", ""),
        Err(Failure::Refusal(refusal)) => {
            let refusal = at_field(refusal);
            let form = RefusedForm::new(visit.text, ASKING, &refusal).otherwise_at("key");
            let visit = visit.refusing(form);
            asking(
                &console,
                &visit,
                &caller,
                responses::status(&refusal),
                &sent,
            )
            .await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn withdraw(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match requests::withdraw(&console.server, &caller).await {
        Ok(()) => responses::see_with(ASKING, "limit-withdrawn", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
