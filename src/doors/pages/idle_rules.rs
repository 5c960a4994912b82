//! `/idle-rules`: the rules that end idle sessions, the forms that write and change one, and what a rule would have done
//! over the samples of the last week.

use api::idle_rules::{
    IdleDryRunView, IdleRulePatchBody, IdleRuleView, IdleThresholdsBody, NewIdleRuleBody,
    SessionIdleView,
};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use rules::idleness::{IdleAction, IdleLevel, IdleMatch, MAX_EXTENSIONS, MAX_THRESHOLD};
use rules::object::Object;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::SessionKind;
use rules::units::{CpuShare, Timestamp};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::idle_rules;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::{RefusedForm, field_faults};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{
    DataTable, EmptyTable, ROWS_BY_FORM, RowAction, TableCell, TableColumn, TableLine, TableState,
};
use super::typed::point;
use super::{PagesContext, launch, layout, responses};
use crate::doors::text::{Text, codes};

const PATH: &str = "/idle-rules";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/idle_rules.html")]
pub struct IdleRulesPage {
    pub t: Text,
    pub f: PageLayout,
    /// Why there can be no other, above a form that only tries; empty while there is room.
    pub full: String,
    pub form: IdleRuleForm,
    pub tried: Option<TriedRule>,
    pub table: DataTable,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/idle_rule.html")]
pub struct IdleRulePage {
    pub t: Text,
    pub f: PageLayout,
    pub here: String,
    pub name: String,
    /// Whose sessions it judges.
    pub place: String,
    pub form: IdleRuleForm,
    pub tried: Option<TriedRule>,
}

/// The fields of a rule, as they are or as they were typed.
pub struct IdleRuleForm {
    /// Where it is sent, and where it is tried.
    pub action: String,
    pub try_at: String,
    pub may_change: bool,
    pub is_new: bool,
    pub typed: TypedRule,
    /// Empty where its place stays.
    pub levels: Vec<Choice>,
    pub kinds: Vec<Choice>,
    pub matches: Vec<Choice>,
    pub actions: Vec<Choice>,
}

/// What a rule would have done.
pub struct TriedRule {
    pub sentence: String,
    pub of: String,
    pub rows: Vec<TriedRow>,
}

/// One session that it would have ended.
pub struct TriedRow {
    pub href: String,
    pub name: String,
    pub owner: String,
    pub when: String,
    pub hours: String,
    pub busy_again: bool,
}

/// What a form sent.
#[derive(Deserialize, Clone)]
#[serde(default)]
pub struct TypedRule {
    pub name: String,
    pub level: String,
    pub subject: String,
    pub kind: String,
    pub exempt: String,
    pub gpu_percent: String,
    pub cpu: String,
    pub terminals: String,
    pub keys: String,
    pub of: String,
    pub window: String,
    pub grace: String,
    pub action: String,
    pub extend: String,
    pub times: String,
    /// Of the row that the form shows; empty for a new one.
    pub generation: String,
}

impl Default for TypedRule {
    /// What an empty form shows: a rule that most sites begin with.
    fn default() -> Self {
        Self {
            name: String::new(),
            level: IdleLevel::Site.word().to_owned(),
            subject: String::new(),
            kind: String::new(),
            exempt: String::new(),
            gpu_percent: "5".to_owned(),
            cpu: "0.1".to_owned(),
            terminals: String::new(),
            keys: "1".to_owned(),
            of: IdleMatch::All.word().to_owned(),
            window: "2h".to_owned(),
            grace: "10m".to_owned(),
            action: IdleAction::Stop.word().to_owned(),
            extend: "1h".to_owned(),
            times: "3".to_owned(),
            generation: String::new(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AskedRules {
    page: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/idle-rules", get(list).post(create))
        .route("/idle-rules/try", get(to_list).post(try_new))
        .route("/idle-rules/{id}", get(show).post(change))
        .route("/idle-rules/{id}/try", get(to_rule).post(try_one))
        .route("/idle-rules/{id}/remove", get(ask_remove).post(remove))
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

async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<AskedRules>,
) -> Response {
    let typed = TypedRule::default();
    match listed(&console, &visit, &caller, &asked.page, typed, None).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn listed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    page: &str,
    typed: TypedRule,
    tried: Option<TriedRule>,
) -> Result<IdleRulesPage, Failure> {
    let all = idle_rules::list(&console.server, caller).await?;
    let may_change = caller.subject.can(Permission::SystemWrite);
    // One more can be tried all the same.
    let full = idle_rules::no_room(all.len()).filter(|_| may_change);
    let may_add = may_change && full.is_none();
    let action = (PATH.to_owned(), format!("{PATH}/try"));
    Ok(IdleRulesPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Policies),
        full: full.map_or_else(String::new, |refusal| codes::refusal(visit.text, &refusal)),
        form: form(visit.text, action, may_add, true, typed),
        tried,
        table: table(visit, page, all, may_change),
    })
}

pub(super) fn form(
    t: Text,
    (action, try_at): (String, String),
    may_change: bool,
    is_new: bool,
    typed: TypedRule,
) -> IdleRuleForm {
    let levels = IdleLevel::ALL.map(|level| {
        Choice::new(
            level.word(),
            level_name(t, level),
            level.word() == typed.level,
        )
    });
    let kinds = [
        ("", t.idle_kind_any()),
        ("interactive", t.idle_kind_interactive()),
        ("batch", t.idle_kind_batch()),
    ];
    IdleRuleForm {
        action,
        try_at,
        may_change,
        is_new,
        levels: match is_new {
            true => levels.into(),
            false => Vec::new(),
        },
        kinds: kinds
            .map(|(word, name)| Choice::new(word, name, word == typed.kind))
            .into(),
        matches: IdleMatch::ALL
            .map(|of| {
                let name = match of {
                    IdleMatch::All => t.idle_match_all(),
                    IdleMatch::Any => t.idle_match_any(),
                };
                Choice::new(of.word(), name, of.word() == typed.of)
            })
            .into(),
        actions: IdleAction::ALL
            .map(|action| {
                let chosen = action.word() == typed.action;
                Choice::new(action.word(), action_name(t, action), chosen)
            })
            .into(),
        typed,
    }
}

fn level_name(t: Text, level: IdleLevel) -> &'static str {
    match level {
        IdleLevel::Site => t.idle_level_site(),
        IdleLevel::Domain => t.idle_level_domain(),
        IdleLevel::Project => t.idle_level_project(),
    }
}

fn action_name(t: Text, action: IdleAction) -> &'static str {
    match action {
        IdleAction::Notice => t.idle_action_notice(),
        IdleAction::Stop => t.idle_action_stop(),
        IdleAction::Pause => t.idle_action_pause(),
        IdleAction::Requeue => t.idle_action_requeue(),
    }
}

/// What a session's page says of one that was kept.
pub(super) fn kept_sentence(t: Text, idle: &SessionIdleView, time: &str) -> String {
    match idle.action {
        IdleAction::Notice => t.idle_kept_notice(time),
        IdleAction::Stop => t.idle_kept_stop(time),
        IdleAction::Pause => t.idle_kept_pause(time),
        IdleAction::Requeue => t.idle_kept_requeue(time),
    }
}

/// What a session's page says of a warning.
pub(super) fn ends_sentence(t: Text, idle: &SessionIdleView, time: &str) -> String {
    match idle.action {
        IdleAction::Notice => t.idle_ends_notice().to_owned(),
        IdleAction::Stop => t.idle_ends_stop(time),
        IdleAction::Pause => t.idle_ends_pause(time),
        IdleAction::Requeue => t.idle_ends_requeue(time),
    }
}

pub(super) fn table(
    visit: &RequestContext,
    page: &str,
    all: Vec<IdleRuleView>,
    may_change: bool,
) -> DataTable {
    let t = visit.text;
    let columns = [
        TableColumn::new("name", t.sessions_name()).class("first"),
        TableColumn::new("below", t.idle_below()).class("why"),
        TableColumn::new("action", t.idle_action()).class("nw"),
        TableColumn::new("place", t.idle_level()).class("below"),
        TableColumn::new("exempt", t.idle_exempt()).class("below"),
    ];
    let asked = [("page".to_owned(), page.to_owned())];
    let mut state = TableState::read(PATH, &[], &asked);
    state.rows = ROWS_BY_FORM;
    state.columns = columns.iter().map(|column| column.key).collect();
    let total = all.len() as u64;
    let rows = state
        .page_of(all)
        .into_iter()
        .map(|one| TableLine {
            id: format!("i-{}", one.id),
            mark: None,
            cells: columns
                .iter()
                .map(|column| cell(t, column.key, &one))
                .collect(),
            action: may_change.then(|| RowAction {
                href: format!("{PATH}/{}/remove", one.id),
                icon: "trash-2",
                label: t.idle_remove_of(one.name.as_str()),
                dialog: true,
            }),
        })
        .collect();
    let empty = EmptyTable::without_rows("clock", t.idle_none(), t.idle_none_lead());
    DataTable::new(t, &state, &columns, "name", rows, total, empty)
}

fn cell(t: Text, key: &str, one: &IdleRuleView) -> TableCell {
    match key {
        "name" => TableCell::Link {
            href: format!("{PATH}/{}", one.id),
            text: one.name.clone(),
            note: String::new(),
        },
        "below" => TableCell::Text {
            text: below(t, one),
            note: lasting(t, one),
        },
        "action" => TableCell::text(action_name(t, one.action)),
        "place" => {
            let (text, note) = place(t, one);
            TableCell::Text { text, note }
        }
        "exempt" => TableCell::text(one.exempt.clone()),
        _ => TableCell::Empty,
    }
}

/// Whose sessions it judges, and of which kind where it is not both.
fn place(t: Text, one: &IdleRuleView) -> (String, String) {
    let level = level_name(t, one.level);
    let whose = match one.subject.as_str() {
        "" => level.to_owned(),
        subject => format!("{level} {subject}"),
    };
    let kind = match one.kind {
        None => "",
        Some(SessionKind::Interactive) => t.idle_kind_interactive(),
        Some(SessionKind::Batch) => t.idle_kind_batch(),
    };
    (whose, kind.to_owned())
}

/// The same in one line.
fn placed(t: Text, one: &IdleRuleView) -> String {
    match place(t, one) {
        (whose, kind) if kind.is_empty() => whose,
        (whose, kind) => format!("{whose} · {kind}"),
    }
}

/// `for 2 h`
fn lasting(t: Text, one: &IdleRuleView) -> String {
    t.idle_for(components::exact_span(t, one.window_seconds))
}

/// `GPU below 5 %, cores below 0.1`, joined as the rule asks.
fn below(t: Text, one: &IdleRuleView) -> String {
    let IdleThresholdsBody {
        gpu_percent,
        cpu,
        terminals,
        keys,
    } = one.below;
    let all = [
        gpu_percent.map(|percent| t.idle_below_gpu(percent)),
        cpu.map(|cpu| t.idle_below_cpu(cpu)),
        terminals.map(|count| match count {
            1 => t.idle_below_no_terminals().to_owned(),
            _ => t.idle_below_terminals(count),
        }),
        keys.map(|count| match count {
            1 => t.idle_below_no_keys().to_owned(),
            _ => t.idle_below_keys(count),
        }),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    all.join(match one.of {
        IdleMatch::All => t.idle_and(),
        IdleMatch::Any => t.idle_or(),
    })
}

/// What was typed, as the action takes it, and everything that is wrong with it, each at its field of the form. What
/// cannot be read counts as left out.
fn understood(sent: &TypedRule) -> (NewIdleRuleBody, Vec<Refusal>) {
    let mut unread = Vec::new();
    let below = IdleThresholdsBody {
        gpu_percent: noted(&mut unread, "gpu_percent", threshold(&sent.gpu_percent)).flatten(),
        cpu: noted(&mut unread, "cpu", cores(&sent.cpu)).flatten(),
        terminals: noted(&mut unread, "terminals", threshold(&sent.terminals)).flatten(),
        keys: noted(&mut unread, "keys", threshold(&sent.keys)).flatten(),
    };
    let mut span = |typed: &str, field: &str| {
        let read = noted(&mut unread, field, launch::span(typed));
        read.flatten().unwrap_or_default()
    };
    let asked = NewIdleRuleBody {
        name: sent.name.trim().to_owned(),
        level: IdleLevel::parse(&sent.level).unwrap_or(IdleLevel::Site),
        subject: Some(sent.subject.trim().to_owned()),
        kind: kind(&sent.kind),
        exempt: sent.exempt.clone(),
        below,
        of: IdleMatch::parse(&sent.of).unwrap_or(IdleMatch::All),
        window_seconds: span(&sent.window, "window"),
        grace_seconds: span(&sent.grace, "grace"),
        action: IdleAction::parse(&sent.action).unwrap_or(IdleAction::Stop),
        extend_seconds: span(&sent.extend, "extend"),
        extend_times: noted(&mut unread, "times", times(&sent.times))
            .flatten()
            .unwrap_or_default(),
    };
    let mut faults = unread;
    let some_unread = !faults.is_empty();
    for fault in idle_rules::faults(&asked).into_iter().map(at_field) {
        // Of a field that cannot be read it is said once, and a threshold that cannot be read is one.
        let is_said = faults.iter().any(|known| known.pointer == fault.pointer);
        let is_of_unread = some_unread && fault.code == rules::codes::IDLE_RULE_EMPTY;
        if !is_said && !is_of_unread {
            faults.push(fault);
        }
    }
    (asked, faults)
}

/// What was read; what could not be is noted at its field.
fn noted<T>(unread: &mut Vec<Refusal>, field: &str, read: Result<T, Refusal>) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(refusal) => {
            unread.push(refusal.at(format!("/{field}")));
            None
        }
    }
}

/// A whole number; None for nothing. Errors: `otherwise`.
fn number(typed: &str, otherwise: Refusal) -> Result<Option<u32>, Refusal> {
    match typed.trim() {
        "" => Ok(None),
        typed => typed.parse().map(Some).map_err(|_| otherwise),
    }
}

fn threshold(typed: &str) -> Result<Option<u32>, Refusal> {
    number(typed, refusals::idle_rule_threshold(MAX_THRESHOLD))
}

fn times(typed: &str) -> Result<Option<u32>, Refusal> {
    number(typed, refusals::idle_rule_extensions(MAX_EXTENSIONS))
}

fn cores(typed: &str) -> Result<Option<CpuShare>, Refusal> {
    match typed.trim() {
        "" => Ok(None),
        typed => CpuShare::parse(&point(typed)).map(Some),
    }
}

fn kind(word: &str) -> Option<SessionKind> {
    match word {
        "interactive" => Some(SessionKind::Interactive),
        "batch" => Some(SessionKind::Batch),
        _ => None,
    }
}

/// A refusal at the field of the form that its pointer means. One of no field is at none, and stands over the form.
fn at_field(refusal: Refusal) -> Refusal {
    if refusal.code == rules::codes::IDLE_RULE_TOO_MANY {
        return refusal.at("/rules");
    }
    let field = match refusal.pointer.as_deref() {
        Some("/below") => "/gpu_percent",
        Some("/below/gpu_percent") => "/gpu_percent",
        Some("/below/cpu") => "/cpu",
        Some("/below/terminals") => "/terminals",
        Some("/below/keys") => "/keys",
        Some("/window_seconds") => "/window",
        Some("/grace_seconds") => "/grace",
        Some("/extend_seconds") => "/extend",
        Some("/extend_times") => "/times",
        _ => return refusal,
    };
    refusal.at(field)
}

/// The same with what is wrong with the name, before everything else.
fn named(sent: &TypedRule) -> (NewIdleRuleBody, Vec<Refusal>) {
    let (asked, faults) = understood(sent);
    let mut all = Vec::from_iter(idle_rules::name_fault(&asked.name));
    all.extend(faults);
    (asked, all)
}

/// The form at `action` with each of these at its field.
fn refused_form(t: Text, action: &str, refusals: Vec<Refusal>) -> RefusedForm {
    let refusals = refusals.into_iter().map(at_field);
    let faults = refusals.flat_map(|refusal| field_faults(t, &refusal));
    RefusedForm::with_faults(action, faults.collect()).otherwise_at("name")
}

/// The status of the first.
fn status(refusals: &[Refusal]) -> StatusCode {
    let first = refusals.first();
    first.map_or(StatusCode::UNPROCESSABLE_ENTITY, responses::status)
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<TypedRule>,
) -> Response {
    let may_write = caller.subject.can(Permission::SystemWrite);
    let (asked, faults) = named(&sent);
    if may_write && !faults.is_empty() {
        return refused_new(&console, &visit, &caller, faults, sent).await;
    }
    match idle_rules::create(&console.server, &caller, asked).await {
        Ok(made) => responses::see_with(PATH, "idle-rule-added", &made.name),
        Err(Failure::Refusal(refusal)) if may_write => {
            refused_new(&console, &visit, &caller, vec![refusal], sent).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The list again, with what was typed and what is wrong with it.
async fn refused_new(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    refusals: Vec<Refusal>,
    sent: TypedRule,
) -> Response {
    let status = status(&refusals);
    let visit = visit.refusing(refused_form(visit.text, PATH, refusals));
    match listed(console, &visit, caller, "", sent, None).await {
        Ok(page) => responses::page(console, &visit, status, &page),
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

/// `GET /idle-rules/try`: the answer of a try has no address of its own.
async fn to_list(PageCaller(_): PageCaller) -> Response {
    responses::see(PATH)
}

/// `GET /idle-rules/{id}/try`
async fn to_rule(PageCaller(_): PageCaller, Path(id): Path<String>) -> Response {
    responses::see(&format!("{PATH}/{}", responses::encoded(&id)))
}

/// `POST /idle-rules/try`: what the rule in the form would have done. Saves nothing.
async fn try_new(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<TypedRule>,
) -> Response {
    let may_read = caller.subject.can(Permission::SystemRead);
    let (asked, faults) = understood(&sent);
    if may_read && !faults.is_empty() {
        return refused_new(&console, &visit, &caller, faults, sent).await;
    }
    let run = match idle_rules::try_out(&console.server, &caller, asked).await {
        Ok(run) => tried(&visit, &run, console.server.clock().now()),
        Err(Failure::Refusal(refusal)) if may_read => {
            return refused_new(&console, &visit, &caller, vec![refusal], sent).await;
        }
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    match listed(&console, &visit, &caller, "", sent, Some(run)).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

pub(super) fn tried(visit: &RequestContext, run: &IdleDryRunView, now: Timestamp) -> TriedRule {
    let t = visit.text;
    let hours = |hours: f64| components::grouped(format_args!("{hours:.1}"));
    TriedRule {
        sentence: match (run.sessions, run.ended) {
            (0, _) => t.idle_tried_nobody().to_owned(),
            (_, 0) => t.idle_tried_none().to_owned(),
            (_, ended) => t.idle_tried(ended, hours(run.gpu_hours), run.busy_again),
        },
        of: match run.sessions {
            0 => t.idle_tried_nobody_why().to_owned(),
            sessions => t.idle_tried_of(sessions),
        },
        rows: run
            .examples
            .iter()
            .map(|one| TriedRow {
                href: format!("/sessions/{}", one.session),
                name: one.name.clone(),
                owner: one.owner.clone(),
                when: visit.clock.ago(one.at, now),
                hours: hours(one.gpu_hours),
                busy_again: one.busy_again,
            })
            .collect(),
    }
}

fn as_typed(one: &IdleRuleView) -> TypedRule {
    let count = |count: Option<u32>| count.map_or_else(String::new, |count| count.to_string());
    TypedRule {
        name: one.name.clone(),
        level: one.level.word().to_owned(),
        subject: one.subject.clone(),
        kind: match one.kind {
            None => String::new(),
            Some(SessionKind::Interactive) => "interactive".to_owned(),
            Some(SessionKind::Batch) => "batch".to_owned(),
        },
        exempt: one.exempt.clone(),
        gpu_percent: count(one.below.gpu_percent),
        cpu: one
            .below
            .cpu
            .map_or_else(String::new, |cpu| cpu.to_string()),
        terminals: count(one.below.terminals),
        keys: count(one.below.keys),
        of: one.of.word().to_owned(),
        window: launch::typed_span(one.window_seconds),
        grace: launch::typed_span(one.grace_seconds),
        action: one.action.word().to_owned(),
        extend: launch::typed_span(one.extend_seconds),
        times: one.extend_times.to_string(),
        generation: one.generation.to_string(),
    }
}

fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    one: &IdleRuleView,
    typed: TypedRule,
    tried: Option<TriedRule>,
) -> IdleRulePage {
    let here = format!("{PATH}/{}", one.id);
    let may_change = caller.subject.can(Permission::SystemWrite);
    let action = (here.clone(), format!("{here}/try"));
    IdleRulePage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Policies),
        form: form(visit.text, action, may_change, false, typed),
        name: one.name.clone(),
        place: placed(visit.text, one),
        here,
        tried,
    }
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match idle_rules::get(&console.server, &caller, &id).await {
        Ok(one) => {
            let typed = as_typed(&one);
            let page = page(&console, &visit, &caller, &one, typed, None);
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The page of one rule again, with what was typed and what is wrong with it.
fn refused_one(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    one: &IdleRuleView,
    refusals: Vec<Refusal>,
    sent: TypedRule,
) -> Response {
    let status = status(&refusals);
    let action = format!("{PATH}/{}", one.id);
    let visit = visit.refusing(refused_form(visit.text, &action, refusals));
    let page = page(console, &visit, caller, one, sent, None);
    responses::page(console, &visit, status, &page)
}

async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedRule>,
) -> Response {
    let one = match idle_rules::get(&console.server, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let may_write = caller.subject.can(Permission::SystemWrite);
    let (asked, faults) = named(&sent);
    if may_write && !faults.is_empty() {
        return refused_one(&console, &visit, &caller, &one, faults, sent);
    }
    let patch = IdleRulePatchBody {
        name: Some(asked.name),
        kind: Some(asked.kind),
        exempt: Some(asked.exempt),
        below: Some(Object(asked.below)),
        of: Some(asked.of),
        window_seconds: Some(asked.window_seconds),
        grace_seconds: Some(asked.grace_seconds),
        action: Some(asked.action),
        extend_seconds: Some(asked.extend_seconds),
        extend_times: Some(asked.extend_times),
    };
    let shown = sent.generation.parse().ok();
    match idle_rules::change(&console.server, &caller, &id, patch, shown).await {
        Ok(changed) => responses::see_with(PATH, "idle-rule-changed", &changed.name),
        Err(Failure::Refusal(refusal)) if may_write => {
            refused_one(&console, &visit, &caller, &one, vec![refusal], sent)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /idle-rules/{id}/try`: what the rule would have done as it stands in the form. Saves nothing.
async fn try_one(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedRule>,
) -> Response {
    let one = match idle_rules::get(&console.server, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (asked, faults) = understood(&sent);
    if !faults.is_empty() {
        return refused_one(&console, &visit, &caller, &one, faults, sent);
    }
    // Under its own name, so that it is tried in its own place.
    let of_the_rule = NewIdleRuleBody {
        name: one.name.clone(),
        level: one.level,
        subject: Some(one.subject.clone()),
        ..asked
    };
    match idle_rules::try_out(&console.server, &caller, of_the_rule).await {
        Ok(run) => {
            let run = tried(&visit, &run, console.server.clock().now());
            let page = page(&console, &visit, &caller, &one, sent, Some(run));
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(Failure::Refusal(refusal)) => {
            refused_one(&console, &visit, &caller, &one, vec![refusal], sent)
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
    let one = match idle_rules::get(&console.server, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let frame = layout(&console, &visit, &caller, Nav::Policies);
    let title = t.idle_remove_title(one.name.as_str());
    let lead = t.idle_remove_lead();
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, lead);
    page.items = vec![
        placed(t, &one),
        format!("{} {}", below(t, &one), lasting(t, &one)),
    ];
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/remove", one.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.idle_remove().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Policies, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match idle_rules::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "idle-rule-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that are marked.
    fn marked(change: impl Fn(&mut TypedRule)) -> Vec<String> {
        let mut typed = TypedRule {
            name: "idle-gpus".to_owned(),
            ..TypedRule::default()
        };
        change(&mut typed);
        let (_, faults) = named(&typed);
        faults.into_iter().filter_map(|one| one.pointer).collect()
    }

    #[test]
    fn a_form_with_several_faults_marks_each_field_once() {
        assert_eq!(marked(|_| {}), Vec::<String>::new());
        let fields = marked(|typed| {
            typed.name = "No Such Name!".to_owned();
            typed.level = "project".to_owned();
            typed.gpu_percent = "much".to_owned();
            typed.keys = "0".to_owned();
            typed.window = "5m".to_owned();
            typed.grace = "soon".to_owned();
            typed.times = "many".to_owned();
        });
        let wanted = [
            "/name",
            "/gpu_percent",
            "/grace",
            "/times",
            "/keys",
            "/window",
            "/subject",
        ];
        assert_eq!(fields, wanted);
    }

    #[test]
    fn a_threshold_that_cannot_be_read_is_no_rule_without_one() {
        let fields = marked(|typed| {
            typed.gpu_percent = "much".to_owned();
            typed.cpu = String::new();
            typed.keys = String::new();
        });
        assert_eq!(fields, ["/gpu_percent"]);
        let fields = marked(|typed| {
            typed.gpu_percent = String::new();
            typed.cpu = String::new();
            typed.keys = String::new();
        });
        assert_eq!(fields, ["/gpu_percent"], "a rule without a threshold");
    }
}
