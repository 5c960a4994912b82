//! `/sessions` and `/sessions/{id}`: the list, one session, its terminal, logs and metrics.

use api::gpus::Gpu;
use api::sessions::{ListQuery, Resize, SessionView, UsageSample};
use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use rules::devices::WHOLE;
use rules::names::ContainerName;
use rules::permissions::{Permission as Right, may, reach};
use rules::policy::SharePolicy;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{SessionKind, SessionState};
use rules::tenancy::Scope;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::gpus as devices;
use server::actions::session_detail;
use server::actions::sessions::{self, NodeOverview};

use super::authentication::PageCaller;
use super::components::{self, Alert, BarRow, CheckRow, Choice, IconFact, Markup};
use super::layout::{Attribute, Nav, PageLayout};
use super::presenter::{SessionEnd, TimelineStep, Wait};
use super::request_context::RequestContext;
use super::{PagesContext, gpus, launch, layout, live as stream, presenter, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/sessions.html", blocks = ["count", "list"])]
pub struct SessionsPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub count: String,
    pub q: String,
    pub states: Vec<Choice>,
    /// Whether the caller may look beyond their own.
    pub has_scope: bool,
    pub scopes: Vec<Choice>,
    pub filtered: bool,
    /// Whether any row can be marked for stopping.
    pub markable: bool,
    /// Whether any row asks for a part of a device.
    pub devices: bool,
    pub rows: Vec<SessionRow>,
    pub older: Option<String>,
}

/// One session in the list.
pub struct SessionRow {
    pub id: String,
    pub href: String,
    pub name: String,
    pub owner: String,
    pub tone: &'static str,
    pub state: String,
    pub reason: String,
    pub image: String,
    /// Its share of devices or its partition; empty where it asks for none.
    pub gpu: String,
    /// Which devices, and how much memory of them; empty before it has any.
    pub gpu_note: String,
    pub cpu: String,
    pub cpu_percent: u8,
    pub memory: String,
    pub memory_percent: u8,
    pub place: String,
    pub age: String,
    pub may_stop: bool,
    /// Whether there is something to measure.
    pub alive: bool,
}

/// Which part of a session's console is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTab {
    Terminal,
    Logs,
    Metrics,
}

impl SessionTab {
    fn current(self, tab: SessionTab) -> Attribute {
        Attribute(if self == tab {
            " aria-current=\"page\""
        } else {
            ""
        })
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/session.html", blocks = ["state", "verbs", "strips", "meta", "tabs", "console", "where_it_runs", "timeline", "notice"])]
pub struct SessionDetailPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub id: String,
    /// Where its terminal answers.
    pub terminal: String,
    pub name: String,
    pub owner: String,
    pub tone: &'static str,
    pub state: String,
    pub can: Verbs,
    /// Whether it can be launched once more.
    pub kept: bool,
    pub facts: Vec<IconFact>,
    pub strips: Vec<Strip>,
    pub tab: SessionTab,
    /// Whether a terminal can be opened now.
    pub attachable: bool,
    /// The terminal is the session's own shell, which outlives the page.
    pub own_shell: bool,
    pub waiting: Option<Wait>,
    pub steps: Vec<TimelineStep>,
    pub ended: Option<SessionEnd>,
    pub log_query: String,
    pub log_note: String,
    pub log_text: String,
    pub charts: Vec<Chart>,
    pub neighbours: Vec<BarRow>,
    pub limits: Vec<(String, String)>,
    pub limit_cpu: String,
    pub limit_memory: String,
    /// The share as a form takes it back; none where the session has no fraction.
    pub limit_gpu: Option<Fraction>,
    /// Whole devices and partitions are given at the start only.
    pub limit_fixed: bool,
    pub timeline: Vec<TimelineStep>,
    pub why: Vec<CheckRow>,
    pub settings: Vec<(String, String)>,
}

/// The verbs that fit the state and the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs {
    pub pause: bool,
    pub resume: bool,
    pub restart: bool,
    pub limits: bool,
    pub rename: bool,
    pub stop: bool,
    pub cancel: bool,
    pub remove: bool,
}

/// A live figure with its last minutes.
pub struct Strip {
    pub name: &'static str,
    pub value: String,
    pub of: String,
    pub chart: Markup,
}

/// A share of devices that can grow and shrink, and what it is worked out from while the user types.
pub struct Fraction {
    pub typed: String,
    /// Memory of the fraction where it was set apart from the share; empty: the same part.
    pub memory: String,
    /// One such device, in GiB and multiprocessors; empty before the session has one.
    pub gib: String,
    pub sms: u32,
    pub now: String,
}

/// One large chart of the metrics tab.
pub struct Chart {
    pub name: String,
    pub note: String,
    pub y: Vec<String>,
    pub x: Vec<String>,
    pub drawing: Markup,
}

/// Rows of one page of the list.
const ROWS: u32 = 50;
/// Bytes of a log that a page shows; the rest is a download away. While lines arrive the page gets all of it
/// every two seconds.
const LOG_SHOWN: usize = 64 << 10;
/// Logs whose ends are remembered. Forgetting costs one longer look.
const LOGS_REMEMBERED: usize = 1000;
/// Lines of a log under the summary of an ended session.
const LAST_LINES: usize = 12;
/// Samples drawn in a strip: two minutes at one every two seconds.
const STRIP: usize = 60;

#[derive(Clone, Debug, Deserialize, Default)]
#[serde(default)]
pub struct SessionListQuery {
    q: String,
    state: String,
    scope: String,
    cursor: String,
}

impl SessionListQuery {
    /// The filters as one query of the list's language.
    fn query(&self) -> String {
        let state = match self.state.as_str() {
            "active" => "state:live",
            "ended" => "state:ended",
            "waiting" => "state:waiting",
            "running" => "state:running",
            _ => "",
        };
        format!("{} {state}", self.q).trim().to_owned()
    }

    /// The same filters as part of an address, without the place in the list.
    fn address(&self) -> String {
        [
            ("q", &self.q),
            ("state", &self.state),
            ("scope", &self.scope),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", responses::encoded(value)))
        .collect::<Vec<_>>()
        .join("&")
    }
}

/// `GET /sessions`: the page, or the list alone for the page's own script.
pub async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<SessionListQuery>,
) -> Response {
    let page = match read_list(&console, &visit, &caller, &asked).await {
        Ok(page) => page,
        Err(Failure::Refusal(refusal)) => {
            // A query that cannot be read leaves the words where they were typed, and says why.
            let alert = Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
            match read_list(&console, &visit, &caller, &SessionListQuery::default()).await {
                Ok(page) => SessionsPage {
                    alert: Some(alert),
                    q: asked.q.clone(),
                    ..page
                },
                Err(failure) => return failed(&console, &visit, &caller, &failure),
            }
        }
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    if !visit.fragment {
        return responses::page(&console, &visit, StatusCode::OK, &page);
    }
    let mut response = responses::page(&console, &visit, StatusCode::OK, &page.as_list());
    let query = asked.address();
    let address = if query.is_empty() {
        "/sessions".to_owned()
    } else {
        format!("/sessions?{query}")
    };
    if let Ok(address) = HeaderValue::try_from(address) {
        response.headers_mut().insert("hx-replace-url", address);
    }
    response
}

/// `GET /sessions/live`
pub async fn list_live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<SessionListQuery>,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller, asked) = (
            console.clone(),
            visit.clone(),
            caller.clone(),
            asked.clone(),
        );
        async move {
            let page = read_list(&console, &visit, &caller, &asked).await.ok()?;
            Some(vec![
                ("counts", page.f.counts()),
                ("count", page.as_count().render().ok()?),
                ("list", page.as_list().render().ok()?),
            ])
        }
    })
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Sessions);
    responses::failure(console, visit, Some(frame), failure)
}

async fn read_list(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    asked: &SessionListQuery,
) -> Result<SessionsPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let wanted = ListQuery {
        q: asked.query(),
        sort: None,
        limit: Some(ROWS),
        cursor: (!asked.cursor.is_empty()).then(|| asked.cursor.clone()),
        scope: (!asked.scope.is_empty()).then(|| asked.scope.clone()),
    };
    let page = sessions::list_uncounted(&console.server, caller, &wanted).await?;
    let seen = sessions::overview(&console.server, caller).await?;
    let policy = devices::policy(&console.server, caller).await?;
    let counts = seen.counts;
    let live = counts.scheduled + counts.preparing + counts.running + counts.stopping;
    let query = asked.address();
    let join = if query.is_empty() { "" } else { "&" };
    let busy = |session: &SessionView| {
        seen.machines
            .iter()
            .flat_map(|machine| &machine.slices)
            .find(|slice| slice.id == Some(session.id))
            .and_then(|slice| Some((slice.cpu_busy?, slice.memory_busy?)))
    };
    let state = |value: &str, name: &str| Choice::new(value, name, asked.state == value);
    let scope = |value: &str, name: &str| Choice::new(value, name, asked.scope == value);
    Ok(SessionsPage {
        t,
        f: PageLayout {
            sessions: live + counts.pending,
            waiting: counts.pending,
            live: Some(if query.is_empty() && asked.cursor.is_empty() {
                "/sessions/live".to_owned()
            } else {
                format!(
                    "/sessions/live?{query}{join}cursor={}",
                    responses::encoded(&asked.cursor)
                )
            }),
            ..layout(console, visit, caller, Nav::Sessions)
        },
        alert: None,
        count: t.sessions_count(counts.running, counts.pending, counts.ended),
        q: asked.q.clone(),
        states: vec![
            state("", t.sessions_any()),
            state("active", t.sessions_active()),
            state("running", t.state_running()),
            state("waiting", t.state_waiting()),
            state("ended", t.sessions_ended()),
        ],
        has_scope: reach(&caller.subject, Right::SessionsRead).is_everything(),
        scopes: vec![
            scope("", t.sessions_everyone()),
            scope("mine", t.sessions_mine()),
        ],
        filtered: !query.is_empty(),
        markable: page
            .items
            .iter()
            .any(|session| session.state < SessionState::Stopping),
        devices: page
            .items
            .iter()
            .any(|session| session.resources.wants_device()),
        rows: page
            .items
            .iter()
            .map(|session| line(t, session, policy, busy(session), now))
            .collect(),
        older: page.next_cursor.map(|cursor| {
            format!(
                "/sessions?{query}{join}cursor={}",
                responses::encoded(&cursor)
            )
        }),
    })
}

fn line(
    t: Text,
    session: &SessionView,
    policy: SharePolicy,
    busy: Option<(f64, Bytes)>,
    now: Timestamp,
) -> SessionRow {
    let (tone, state) = presenter::state(t, session);
    let given = session.resources;
    let reason = match (&session.reason, session.state) {
        (Some(reason), SessionState::Pending | SessionState::Ended)
            if reason.code != rules::codes::SESSION_SUCCEEDED =>
        {
            codes::reason(t, reason)
        }
        (Some(reason), SessionState::Preparing)
            if reason.code == rules::codes::SESSION_FETCHING_IMAGE =>
        {
            codes::reason(t, reason)
        }
        _ => String::new(),
    };
    SessionRow {
        id: session.id.to_string(),
        href: format!("/sessions/{}", session.id),
        name: session.name.to_string(),
        owner: session.owner.name.to_string(),
        tone,
        state: state.to_owned(),
        reason,
        image: session.image.clone(),
        gpu: match (given.mig, given.gpu) {
            (Some(profile), _) => profile.to_string(),
            (None, GpuShare::ZERO) => String::new(),
            (None, share) => share.to_string(),
        },
        gpu_note: held(t, session, policy),
        cpu: match busy {
            Some((cores, _)) => format!("{cores:.1} / {}", given.cpu),
            None => given.cpu.to_string(),
        },
        cpu_percent: busy.map_or(0, |(cores, _)| {
            components::percent(cores, given.cpu.as_f64())
        }),
        memory: match busy {
            Some((_, memory)) => format!(
                "{} / {}",
                components::size(memory.0),
                components::size(given.memory.0)
            ),
            None => components::size(given.memory.0),
        },
        memory_percent: busy.map_or(0, |(_, memory)| {
            components::percent(memory.0 as f64, given.memory.0 as f64)
        }),
        place: session.node.clone().unwrap_or_default(),
        age: components::span(
            t,
            session
                .ended_at
                .unwrap_or(now)
                .seconds_since(session.started_at.unwrap_or(session.created_at)),
        ),
        may_stop: session.state < SessionState::Stopping,
        alive: session.state == SessionState::Running && busy.is_some(),
    }
}

/// Which devices a session has and how much memory of them, and the share in the administrator's units where
/// one device counts as several: `GPU 0 · 28 GiB`.
fn held(t: Text, session: &SessionView, policy: SharePolicy) -> String {
    let mut words = Vec::new();
    if policy.units > 1 && session.resources.gpu > GpuShare::ZERO {
        words.push(t.gpu_units_of(policy.in_units(session.resources.gpu)));
    }
    if !session.devices.is_empty() && session.state.holds_resources() {
        let numbers: Vec<String> = session
            .devices
            .iter()
            .map(|d| d.index.to_string())
            .collect();
        let memory: Bytes = session.devices.iter().map(|d| d.memory).sum();
        words.push(t.gpu_devices(numbers.join(", ")));
        words.push(components::size(memory.0));
    }
    words.join(" · ")
}

#[derive(Clone, Debug, Deserialize, Default)]
#[serde(default)]
pub struct SessionQuery {
    q: String,
    tab: String,
}

/// `GET /sessions/{id}`: the part that says most about it now.
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    tab(&console, &visit, &caller, &id, None, "").await
}

/// `GET /sessions/{id}/terminal`
pub async fn terminal(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    tab(
        &console,
        &visit,
        &caller,
        &id,
        Some(SessionTab::Terminal),
        "",
    )
    .await
}

/// `GET /sessions/{id}/logs`
pub async fn logs(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(look): Query<SessionQuery>,
) -> Response {
    tab(
        &console,
        &visit,
        &caller,
        &id,
        Some(SessionTab::Logs),
        &look.q,
    )
    .await
}

/// `GET /sessions/{id}/metrics`
pub async fn metrics(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    tab(
        &console,
        &visit,
        &caller,
        &id,
        Some(SessionTab::Metrics),
        "",
    )
    .await
}

async fn tab(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    tab: Option<SessionTab>,
    q: &str,
) -> Response {
    match read_one(console, visit, caller, id, tab, q).await {
        Ok(page) => responses::page(console, visit, StatusCode::OK, &page),
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

/// `GET /sessions/{id}/live?tab=`
pub async fn show_live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(look): Query<SessionQuery>,
) -> Response {
    let tab = SessionTab::from_word(&look.tab);
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller, id, look) = (
            console.clone(),
            visit.clone(),
            caller.clone(),
            id.clone(),
            look.clone(),
        );
        async move {
            let page = read_one(&console, &visit, &caller, &id, tab, &look.q)
                .await
                .ok()?;
            let fragments = vec![
                ("state", page.as_state().render().ok()?),
                ("verbs", page.as_verbs().render().ok()?),
                ("meta", page.as_meta().render().ok()?),
                ("tabs", page.as_tabs().render().ok()?),
                ("counts", page.f.counts()),
                ("strips", page.as_strips().render().ok()?),
                ("console", page.as_console().render().ok()?),
                ("where", page.as_where_it_runs().render().ok()?),
                ("timeline", page.as_timeline().render().ok()?),
                ("notice", page.as_notice().render().ok()?),
            ];
            Some(stream::LiveParts {
                fragments,
                clocked: page.tab == SessionTab::Logs && page.ended.is_none(),
            })
        }
    })
}

impl SessionTab {
    fn word(self) -> &'static str {
        match self {
            SessionTab::Terminal => "terminal",
            SessionTab::Logs => "logs",
            SessionTab::Metrics => "metrics",
        }
    }

    fn from_word(word: &str) -> Option<SessionTab> {
        [SessionTab::Terminal, SessionTab::Logs, SessionTab::Metrics]
            .into_iter()
            .find(|tab| tab.word() == word)
    }

    /// What a page shows that asked for no part: a batch session is watched by its output, every
    /// other one is worked in, and before and after there is the summary.
    fn first(kind: SessionKind, phase: SessionState) -> SessionTab {
        match (kind, phase) {
            (SessionKind::Batch, SessionState::Running | SessionState::Stopping) => {
                SessionTab::Logs
            }
            _ => SessionTab::Terminal,
        }
    }
}

async fn read_one(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    tab: Option<SessionTab>,
    q: &str,
) -> Result<SessionDetailPage, Failure> {
    let t = visit.text;
    let clock = &visit.clock;
    let server = &console.server;
    let now = server.clock().now();
    let read = session_detail::read(server, caller, id).await?;
    let (session, why, events) = (read.session, read.why, read.events);
    let (seen, devices) = (read.overview, read.gpus);
    let asked = tab.map_or("", SessionTab::word);
    let tab = tab.unwrap_or(SessionTab::first(session.kind, session.state));
    let id = session.id.to_string();
    let samples = sessions::samples(server, caller, &id, None).await?;
    let container = ContainerName {
        session: session.id,
        incarnation: session.incarnation,
        index: 0,
    };
    let running = session.state == SessionState::Running;
    let log = match (tab, session.state) {
        (_, SessionState::Pending | SessionState::Scheduled) => String::new(),
        (SessionTab::Logs, _) | (SessionTab::Terminal, SessionState::Ended) => {
            read_log(console, container).await
        }
        _ => String::new(),
    };
    let (tone, state) = presenter::state(t, &session);
    let given = session.resources;
    let alive = running && !samples.is_empty();
    let ended = session.state == SessionState::Ended;
    let peak = samples.iter().map(|sample| sample.memory).max();
    let scope = Scope::user(session.owner.id);
    let may_write = may(&caller.subject, Right::SessionsWrite, &scope).is_ok();
    let may_enter = may(&caller.subject, Right::SessionsEnter, &scope).is_ok();
    let shown_log = filtered(&log, q);
    let counts = seen.counts;
    let drawing = gpus::Drawing {
        mine: Some(session.id),
        ..gpus::Drawing::at(now)
    };
    let own = devices.items.iter().filter(|gpu| {
        session.state.holds_resources() && session.devices.iter().any(|part| part.uuid == gpu.id)
    });
    let neighbours: Vec<BarRow> = own
        .map(|gpu| gpus::row(t, gpu, &drawing))
        .chain(machines(t, &seen.machines, &session))
        .collect();
    let simulated = session.simulated && session.resources.wants_device();
    Ok(SessionDetailPage {
        t,
        f: PageLayout {
            sessions: counts.scheduled
                + counts.preparing
                + counts.running
                + counts.stopping
                + counts.pending,
            waiting: counts.pending,
            // A search in the log is a still picture; everything else moves.
            live: q
                .is_empty()
                .then(|| format!("/sessions/{id}/live?tab={asked}")),
            ..layout(console, visit, caller, Nav::Sessions)
        },
        alert: watched(t, &session).or_else(|| {
            simulated.then(|| {
                Alert::warning(match session.state {
                    SessionState::Pending => t.gpu_session_alert_waits(),
                    _ => t.gpu_session_alert(),
                })
            })
        }),
        terminal: match session.kind {
            SessionKind::Interactive => format!("/api/v1/sessions/{id}/attach"),
            SessionKind::Batch => format!("/api/v1/sessions/{id}/exec"),
        },
        name: session.name.to_string(),
        owner: session.owner.name.to_string(),
        tone,
        state: state.to_owned(),
        can: verbs(&session, may_write),
        facts: facts(t, &session, devices.policy, now),
        strips: if alive {
            strips(t, &session, &samples)
        } else {
            Vec::new()
        },
        tab,
        attachable: running && !session.paused && may_enter,
        own_shell: session.kind == SessionKind::Interactive,
        waiting: (session.state == SessionState::Pending)
            .then(|| presenter::wait(t, clock, &why, devices.policy, now)),
        steps: if matches!(
            session.state,
            SessionState::Scheduled | SessionState::Preparing
        ) {
            presenter::timeline(t, clock, &session, &events)
        } else {
            Vec::new()
        },
        ended: ended.then(|| presenter::end(t, &session, peak, last_lines(&log))),
        log_query: q.to_owned(),
        log_note: t.logs_lines(shown_log.lines().count() as u64),
        log_text: shown_log,
        charts: if tab == SessionTab::Metrics {
            charts(t, visit, &session, &samples)
        } else {
            Vec::new()
        },
        neighbours,
        limits: limits(t, &session, devices.policy),
        limit_cpu: given.cpu.to_string(),
        limit_memory: typed_size(given.memory),
        limit_gpu: fraction(t, &session, &devices.items),
        limit_fixed: given.wants_device() && !has_fraction(&session),
        timeline: presenter::timeline(t, clock, &session, &events),
        why: session
            .reason
            .as_ref()
            .filter(|reason| reason.code.starts_with(rules::codes::family::PLACEMENT))
            .map(|reason| CheckRow::new(true, codes::reason(t, reason), ""))
            .into_iter()
            .collect(),
        kept: session.document_kept,
        settings: settings(t, &session),
        id,
    })
}

/// Whether it has a part of one device beside, or instead of, whole ones.
fn has_fraction(session: &SessionView) -> bool {
    session.resources.mig.is_none() && !session.resources.gpu.0.is_multiple_of(WHOLE.0)
}

fn fraction(t: Text, session: &SessionView, all: &[Gpu]) -> Option<Fraction> {
    if !has_fraction(session) {
        return None;
    }
    let given = session.resources;
    let on = |gpu: &&Gpu| session.devices.iter().any(|part| part.uuid == gpu.id);
    let gpu = all.iter().find(on);
    Some(Fraction {
        typed: given.gpu.to_string(),
        memory: given.gpu_memory.map_or_else(String::new, typed_size),
        gib: gpu.map_or_else(String::new, |gpu| launch::gib(gpu.memory)),
        sms: gpu.map_or(0, |gpu| gpu.sms),
        now: gpu.map_or_else(String::new, |gpu| launch::worth(t, gpu, given.gpu)),
    })
}

/// Cores and memory of the machine that a session is on; nothing before it has one.
fn machines<'a>(
    t: Text,
    all: &'a [NodeOverview],
    session: &'a SessionView,
) -> impl Iterator<Item = BarRow> + 'a {
    all.iter()
        .filter(|machine| {
            session.state.holds_resources()
                && session.node.as_deref() == Some(machine.name.as_str())
        })
        .flat_map(move |machine| presenter::racks(t, machine, Some(session.id)))
}

/// The end of what the main process wrote; empty where nothing can be read.
///
/// The first look at a log reads what is kept of it (some megabytes); later ones begin near its end.
async fn read_log(console: &PagesContext, container: ContainerName) -> String {
    let known = {
        let ends = console
            .log_ends
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        ends.get(&container).copied().unwrap_or_default()
    };
    let since = known.saturating_sub(LOG_SHOWN as u64);
    let Ok(mut log) = console.streams.logs(container, since, false).await else {
        return String::new();
    };
    let mut kept: Vec<u8> = Vec::new();
    let mut end = known;
    let mut whole = since == 0;
    while let Some(chunk) = log.output.recv().await {
        end = chunk.offset + chunk.bytes.len() as u64;
        kept.extend_from_slice(&chunk.bytes);
        if kept.len() > 2 * LOG_SHOWN {
            kept.drain(..kept.len() - LOG_SHOWN);
            whole = false;
        }
    }
    if kept.len() > LOG_SHOWN {
        kept.drain(..kept.len() - LOG_SHOWN);
        whole = false;
    }
    if !whole && let Some(line) = kept.iter().position(|byte| *byte == b'\n') {
        kept.drain(..=line);
    }
    let mut ends = console
        .log_ends
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if ends.len() >= LOGS_REMEMBERED {
        ends.clear();
    }
    ends.insert(container, end);
    drop(ends);
    plain(&String::from_utf8_lossy(&kept))
}

/// Terminal output as text: colours and cursor moves left out, a line that was written over kept as it ended.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.peek() {
                Some('[') => {
                    chars.next();
                    for c in chars.by_ref() {
                        if ('@'..='~').contains(&c) {
                            break;
                        }
                    }
                }
                Some(']') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {
                    chars.next();
                }
            },
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.truncate(out.rfind('\n').map_or(0, |at| at + 1)),
            '\u{8}' => {
                if !out.ends_with('\n') {
                    out.pop();
                }
            }
            c if c.is_control() && c != '\n' && c != '\t' => {}
            c => out.push(c),
        }
    }
    out
}

fn filtered(log: &str, q: &str) -> String {
    if q.is_empty() {
        return log.to_owned();
    }
    let wanted = q.to_lowercase();
    log.lines()
        .filter(|line| line.to_lowercase().contains(&wanted))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// A size as a form takes it back exactly: `24g`, `1536m`, or bytes.
fn typed_size(size: Bytes) -> String {
    match size.0 {
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 30) => format!("{}g", bytes >> 30),
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        bytes => bytes.to_string(),
    }
}

/// What its machine has against a session that runs.
fn watched(t: Text, session: &SessionView) -> Option<Alert> {
    let reason = session.reason.as_ref()?;
    let title = match reason.code.as_str() {
        rules::codes::GPU_OVER_LIMIT_WARNED | rules::codes::GPU_OVER_LIMIT_FROZEN => {
            t.gpu_over_alert()
        }
        rules::codes::DISK_PAUSED | rules::codes::DISK_FILES_PAUSED => t.disk_alert(),
        _ => return None,
    };
    let runs = session.state == SessionState::Running;
    runs.then(|| {
        Alert::bad(title)
            .detail(codes::reason(t, reason))
            .code(reason.code.clone())
    })
}

fn verbs(session: &SessionView, may_write: bool) -> Verbs {
    if !may_write {
        return Verbs::default();
    }
    let (state, live) = (session.state, session.state != SessionState::Ended);
    Verbs {
        pause: state == SessionState::Running && !session.paused,
        resume: state == SessionState::Running && session.paused,
        restart: matches!(state, SessionState::Running | SessionState::Ended)
            && session.document_kept,
        limits: matches!(state, SessionState::Pending | SessionState::Running),
        rename: true,
        stop: live && state != SessionState::Pending,
        cancel: state == SessionState::Pending,
        remove: !live,
    }
}

fn facts(t: Text, session: &SessionView, policy: SharePolicy, now: Timestamp) -> Vec<IconFact> {
    let given = session.resources;
    let mut all = vec![
        IconFact {
            icon: match session.kind {
                SessionKind::Interactive => "notebook-pen",
                SessionKind::Batch => "play",
            },
            text: presenter::kind(t, session).to_owned(),
        },
        IconFact {
            icon: "package",
            text: session.image.clone(),
        },
    ];
    if let Some(start) = session.started_at {
        let seconds = session.ended_at.unwrap_or(now).seconds_since(start);
        // Minutes, so that a running clock is no reason to draw the page again every second.
        all.push(IconFact {
            icon: "clock",
            text: components::span(
                t,
                if session.ended_at.is_some() {
                    seconds
                } else {
                    seconds.max(60)
                },
            ),
        });
    }
    if let Some(seconds) = session.waited_seconds {
        all.push(IconFact {
            icon: "hourglass",
            text: t.session_waited(components::span(t, seconds)),
        });
    }
    if let Some(share) = presenter::devices(t, &given, policy) {
        all.push(IconFact {
            icon: "microchip",
            text: match held(t, session, SharePolicy::default()) {
                none if none.is_empty() => share,
                held => format!("{share} · {held}"),
            },
        });
    }
    all.push(IconFact {
        icon: "cpu",
        text: t.where_given(given.cpu, components::size(given.memory.0)),
    });
    if let Some(node) = &session.node {
        all.push(IconFact {
            icon: "server",
            text: node.clone(),
        });
    }
    for (name, value) in session.labels.iter().take(4) {
        all.push(IconFact {
            icon: "link",
            text: format!("{name}={value}"),
        });
    }
    all
}

fn strips(t: Text, session: &SessionView, samples: &[UsageSample]) -> Vec<Strip> {
    let last = &samples[samples.len().saturating_sub(STRIP)..];
    let given = session.resources;
    let (cores, limit) = (given.cpu.as_f64(), given.memory.0 as f64);
    let now = samples.last();
    let cpu = format!("{:.1}", now.map_or(0.0, |sample| sample.cpu));
    let memory = components::size(now.map_or(0, |sample| sample.memory.0));
    let values = |of: fn(&UsageSample) -> f64| last.iter().map(of).collect::<Vec<f64>>();
    let mut all = device_strips(t, session, last);
    all.extend([
        Strip {
            name: t.strip_cpu(),
            chart: components::strip(
                &values(|sample| sample.cpu),
                cores * 1.06,
                "ci",
                Some(cores),
                &t.strip_chart(t.strip_cpu(), &cpu, given.cpu),
            ),
            value: cpu,
            of: t.common_of_cores(given.cpu),
        },
        Strip {
            name: t.strip_memory(),
            chart: components::strip(
                &values(|sample| sample.memory.0 as f64),
                limit * 1.06,
                "ca",
                Some(limit),
                &t.strip_chart(t.strip_memory(), &memory, components::size(given.memory.0)),
            ),
            value: memory,
            of: t.common_of(components::size(given.memory.0)),
        },
    ]);
    all
}

/// What it does with its shares of devices: load within them, memory against the limit. Empty where it has
/// none, or it is unknown.
fn device_strips(t: Text, session: &SessionView, last: &[UsageSample]) -> Vec<Strip> {
    let use_of = |sample: &UsageSample| sample.gpu;
    let Some(now) = last.last().and_then(use_of) else {
        return Vec::new();
    };
    let marked = |of: String| match now.simulated {
        true => format!("{of} · {}", t.strip_made_up()),
        false => of,
    };
    let mut all = Vec::new();
    let loads: Vec<f64> = last
        .iter()
        .filter_map(|sample| use_of(sample)?.load_percent)
        .collect();
    if let Some(load) = now.load_percent {
        let value = format!("{load:.0}%");
        let share = gpus::share(session.devices.iter().map(|part| part.share).sum());
        // A session that gets unused time of others has more than all of its share.
        let most = loads.iter().copied().fold(100.0, f64::max);
        all.push(Strip {
            name: t.strip_gpu(),
            chart: components::strip(
                &loads,
                most * 1.06,
                "ca",
                (most > 100.0).then_some(100.0),
                &t.strip_chart(t.strip_gpu(), &value, "100%"),
            ),
            value,
            of: marked(t.strip_gpu_of(share)),
        });
    }
    let granted: Bytes = session.devices.iter().map(|part| part.memory).sum();
    if let Some(memory) = now.memory {
        let used: Vec<f64> = last
            .iter()
            .filter_map(|sample| Some(use_of(sample)?.memory?.0 as f64))
            .collect();
        let (value, limit) = (
            components::part_of(memory.0, granted.0),
            components::size(granted.0),
        );
        all.push(Strip {
            name: t.strip_gpu_memory(),
            chart: components::strip(
                &used,
                granted.0 as f64 * 1.06,
                "ca",
                Some(granted.0 as f64),
                &t.strip_chart(t.strip_gpu_memory(), &value, &limit),
            ),
            value,
            of: marked(t.common_of(limit)),
        });
    }
    all
}

fn charts(
    t: Text,
    visit: &RequestContext,
    session: &SessionView,
    samples: &[UsageSample],
) -> Vec<Chart> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    let given = session.resources;
    let cpu: Vec<f64> = samples.iter().map(|sample| sample.cpu).collect();
    let memory: Vec<f64> = samples
        .iter()
        .map(|sample| sample.memory.0 as f64)
        .collect();
    let middle = Timestamp::from_millis(i64::midpoint(first.at.as_millis(), last.at.as_millis()));
    let end = if session.state == SessionState::Ended {
        visit.clock.second(last.at)
    } else {
        t.metrics_now().to_owned()
    };
    let x = vec![
        visit.clock.second(first.at),
        visit.clock.second(middle),
        end,
    ];
    let top_cpu = given.cpu.as_f64();
    let top_memory = given.memory.0 as f64;
    let peak_cpu = t.metrics_peak(format!("{:.2}", cpu.iter().copied().fold(0.0, f64::max)));
    let peak_memory = t.metrics_peak(components::size(
        memory.iter().copied().fold(0.0, f64::max) as u64
    ));
    let mut all = device_charts(t, session, samples, &x);
    all.extend([
        Chart {
            name: t.metrics_cpu().to_owned(),
            drawing: components::chart(
                &cpu,
                top_cpu,
                "ci",
                None,
                &format!("{}, {peak_cpu}", t.metrics_cpu()),
            ),
            note: with_waiting(t, peak_cpu, last.cpu_waiting_percent),
            y: vec![
                given.cpu.to_string(),
                format!("{:.2}", top_cpu / 2.0),
                "0".to_owned(),
            ],
            x: x.clone(),
        },
        Chart {
            name: t.metrics_memory().to_owned(),
            drawing: components::chart(
                &memory,
                top_memory,
                "ca",
                None,
                &format!("{}, {peak_memory}", t.metrics_memory()),
            ),
            note: with_waiting(t, peak_memory, last.memory_waiting_percent),
            y: vec![
                components::size(given.memory.0),
                components::size(given.memory.0 / 2),
                "0".to_owned(),
            ],
            x,
        },
    ]);
    all
}

/// The large drawings of what it does with its shares of devices; empty where unknown.
fn device_charts(
    t: Text,
    session: &SessionView,
    samples: &[UsageSample],
    x: &[String],
) -> Vec<Chart> {
    let uses = || samples.iter().filter_map(|sample| sample.gpu);
    let made_up = uses().any(|gpu| gpu.simulated);
    let chart = |name: &str, values: &[f64], most: f64, limit, peak: String, y: Vec<String>| {
        let note = t.metrics_peak(peak);
        Chart {
            name: name.to_owned(),
            drawing: components::chart(values, most, "ca", limit, &format!("{name}, {note}")),
            note: match made_up {
                true => t.metrics_made_up(note),
                false => note,
            },
            y,
            x: x.to_vec(),
        }
    };
    let highest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let mut all = Vec::new();
    let loads: Vec<f64> = uses().filter_map(|gpu| gpu.load_percent).collect();
    if !loads.is_empty() {
        let peak = highest(&loads);
        let most = peak.max(100.0);
        let y = [most, most / 2.0, 0.0].map(|percent| format!("{percent:.0}%"));
        let limit = (peak > 100.0).then_some(100.0);
        let peak = format!("{peak:.0}%");
        all.push(chart(t.metrics_gpu(), &loads, most, limit, peak, y.into()));
    }
    let used: Vec<f64> = uses()
        .filter_map(|gpu| Some(gpu.memory?.0 as f64))
        .collect();
    let granted: Bytes = session.devices.iter().map(|part| part.memory).sum();
    if !used.is_empty() {
        let y = vec![
            components::size(granted.0),
            components::size(granted.0 / 2),
            "0".to_owned(),
        ];
        let peak = components::size(highest(&used) as u64);
        let most = granted.0 as f64;
        all.push(chart(t.metrics_gpu_memory(), &used, most, None, peak, y));
    }
    all
}

/// The peak, and how much of the time something waits, where the kernel measures it.
fn with_waiting(t: Text, peak: String, percent: Option<f64>) -> String {
    match percent {
        Some(percent) => t.metrics_waiting(peak, format!("{percent:.0}")),
        None => peak,
    }
}

fn limits(t: Text, session: &SessionView, policy: SharePolicy) -> Vec<(String, String)> {
    let given = session.resources;
    let grants = session.devices.iter().map(|part| {
        let mut words = t.gpu_grant(
            part.index,
            match part.profile {
                Some(profile) => profile.to_string(),
                None => gpus::share(part.share),
            },
            components::size(part.memory.0),
            t.gpu_sms_of(part.sms, part.sms_total),
        );
        for (tell, word) in [
            (part.simulated, t.gpu_simulated()),
            (!part.confirmed, t.gpu_pending()),
        ] {
            if tell {
                words.push_str(&format!(" · {word}"));
            }
        }
        (t.gpu_share().to_owned(), words)
    });
    let mut all: Vec<(String, String)> = grants.collect();
    if all.is_empty()
        && let Some(asked) = presenter::devices(t, &given, policy)
    {
        all.push((t.gpu_share().to_owned(), asked));
    }
    all.extend([
        (
            t.where_cpu_memory().to_owned(),
            t.where_given(given.cpu, components::size(given.memory.0)),
        ),
        (t.where_shm().to_owned(), components::size(given.shm.0)),
        (t.where_network().to_owned(), t.where_loopback().to_owned()),
    ]);
    if let Some(seconds) = session.max_runtime_seconds.or(session.timeout_seconds) {
        all.push((
            t.where_max_runtime().to_owned(),
            components::span(t, seconds),
        ));
    }
    if session.state != SessionState::Ended {
        all.push((
            t.where_cli().to_owned(),
            format!("fardel exec -it {} sh", session.name),
        ));
    }
    all
}

fn settings(t: Text, session: &SessionView) -> Vec<(String, String)> {
    let mut all = Vec::new();
    if !session.document_kept {
        all.push((
            t.settings_command().to_owned(),
            t.settings_gone().to_owned(),
        ));
    }
    if !session.command.is_empty() {
        let line: Vec<String> = session
            .command
            .iter()
            .map(|word| presenter::quoted(word))
            .collect();
        all.push((t.settings_command().to_owned(), line.join(" ")));
    }
    all.extend(
        session
            .env
            .iter()
            .map(|(name, value)| (t.settings_env(name), value.clone())),
    );
    all.extend(
        session
            .labels
            .iter()
            .map(|(name, value)| (t.settings_label(name), value.clone())),
    );
    all.extend(
        session
            .depends_on
            .iter()
            .map(|id| (t.settings_after().to_owned(), id.to_string())),
    );
    all
}

/// What the small forms of a session's page send; each verb reads its own.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct SessionForm {
    back: String,
    force: String,
    name: String,
    cpu: String,
    memory: String,
    gpu: String,
    gpu_memory: String,
    typed: String,
}

/// `POST /sessions/stop`: stops every marked session that the caller may stop. Each is a change of its
/// own: one that cannot be stopped keeps none of the others.
pub async fn stop_marked(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(said): Form<Vec<(String, String)>>,
) -> Response {
    let marked = said.iter().filter(|(name, _)| name == "id");
    let back = said.iter().find(|(name, _)| name == "back");
    let place = back.map_or("/sessions", |(_, place)| responses::own_place(place));
    let mut stopped = 0;
    let mut refused: Option<Refusal> = None;
    for (_, id) in marked.take(ROWS as usize) {
        match sessions::stop(&console.server, &caller, id, false).await {
            Ok(_) => stopped += 1,
            Err(Failure::Refusal(refusal)) => refused = Some(refusal),
            Err(fault) => return failed(&console, &visit, &caller, &fault),
        }
    }
    match (stopped, refused) {
        (0, Some(refusal)) => failed(&console, &visit, &caller, &Failure::Refusal(refusal)),
        (0, None) => responses::see(place),
        (_, Some(_)) => responses::see_with(place, "stop-some", &stopped.to_string()),
        (_, None) => responses::see_with(place, "stop-n", &stopped.to_string()),
    }
}

/// `POST /sessions/{id}/{verb}`: stop, pause, resume, restart, rename, limits, remove.
pub async fn act(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, verb)): Path<(String, String)>,
    Form(said): Form<SessionForm>,
) -> Response {
    match done(&console, &caller, &id, &verb, &said).await {
        Ok((session, word)) => {
            let own = format!("/sessions/{}", session.id);
            let place = match (said.back.as_str(), word) {
                (_, "remove") => "/sessions",
                ("", _) => own.as_str(),
                (back, _) => responses::own_place(back),
            };
            responses::see_with(place, word, session.name.as_str())
        }
        Err(Failure::Refusal(refusal)) => {
            // The page again, with what was wrong on top; a thing that is gone has no page.
            match read_one(&console, &visit, &caller, &id, None, "").await {
                Ok(page) => {
                    let alert =
                        Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
                    let page = SessionDetailPage {
                        alert: Some(alert),
                        ..page
                    };
                    responses::page(&console, &visit, responses::status(&refusal), &page)
                }
                Err(_) => failed(&console, &visit, &caller, &Failure::Refusal(refusal)),
            }
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

async fn done(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
    verb: &str,
    said: &SessionForm,
) -> Result<(SessionView, &'static str), Failure> {
    let server = &console.server;
    Ok(match verb {
        "stop" => {
            let before = sessions::get(server, caller, id).await?;
            let force = !said.force.is_empty();
            let session = sessions::stop(server, caller, id, force).await?;
            let word = match before.state {
                SessionState::Pending => "cancel",
                _ if force => "force",
                _ => "stop",
            };
            (session, word)
        }
        "pause" => (sessions::pause(server, caller, id).await?, "pause"),
        "resume" => (sessions::resume(server, caller, id).await?, "resume"),
        "restart" => (sessions::restart(server, caller, id).await?, "restart"),
        "rename" => (
            sessions::rename(server, caller, id, &said.name, None).await?,
            "rename",
        ),
        "limits" => {
            let share = said.gpu.trim();
            let wanted = Resize {
                cpu: Some(CpuShare::parse(&said.cpu)?),
                memory: Some(Bytes::parse(&said.memory)?),
                gpu: (!share.is_empty())
                    .then(|| GpuShare::parse(share))
                    .transpose()
                    .map_err(|refusal| refusal.at("/resources/gpu"))?,
                gpu_memory: Some(said.gpu_memory.trim())
                    .filter(|typed| !typed.is_empty())
                    .map(Bytes::parse)
                    .transpose()
                    .map_err(|refusal| refusal.at("/resources/gpu_memory"))?,
            };
            (
                sessions::resize(server, caller, id, wanted, None).await?,
                "limits",
            )
        }
        "remove" => {
            let session = sessions::get(server, caller, id).await?;
            if said.typed.trim() != session.name.as_str() {
                return Err(refusals::confirm_session_name_differs().at("/typed").into());
            }
            (sessions::delete(server, caller, id).await?, "remove")
        }
        _ => {
            return Err(refusals::page_unknown().into());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_output_becomes_text() {
        for (raw, text) in [
            ("\u{1b}[32mok\u{1b}[0m\r\n", "ok\n"),
            ("10%\r20%\r100%\n", "100%\n"),
            ("\u{1b}]0;title\u{7}$ ls\r\n", "$ ls\n"),
            ("ab\u{8}c\n", "ac\n"),
            ("a\0b\tc", "ab\tc"),
        ] {
            assert_eq!(plain(raw), text, "{raw:?}");
        }
    }

    #[test]
    fn sizes_go_into_forms_and_come_back() {
        for size in [Bytes::gib(24), Bytes::mib(1536), Bytes(12_345)] {
            assert_eq!(Bytes::parse(&typed_size(size)).ok(), Some(size));
        }
    }
}
