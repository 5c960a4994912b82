//! `/sessions/{id}`: one session, its terminal, its log and its metrics. Never changes a session; `session/act.rs` does.

pub mod act;
mod connections;
mod facts;
mod figures;
mod log;
mod processes;

use api::idle_rules::SessionIdleView;
use api::sessions::SessionView;
use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::egress::NetworkMode;
use rules::names::ContainerName;
use rules::permissions::{Permission as Right, may};
use rules::session::{SessionKind, SessionState};
use rules::units::Timestamp;
use rules::workload::container::{MAIN, index_of, role};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::break_glass::{self, SessionEntry};
use server::actions::session_detail;
use server::actions::sessions::{self, NodeOverview};
use server::actions::users::ssh_keys;

use super::authentication::PageCaller;
use super::awaited::{AwaitedSessions, awaited};
use super::components::{self, Alert, BarRow, CheckRow, IconFact};
use super::history::HistoryView;
use super::hues::Hues;
use super::layout::{Attribute, Nav, PageLayout};
use super::presenter::{SessionEnd, SmallerRequest, TimelineStep, Wait};
use super::request_context::RequestContext;
use super::session_charts::{self, MetricsSpan};
use super::sessions::failed;
use super::{
    PagesContext, gpus, idle_rules, launch, layout, live as stream, presenter, responses, users,
};
use crate::doors::text::{Text, codes};
use facts::{
    facts, fraction, has_fraction, limits, no_processes, no_terminal, remote, settings, verbs,
    watched,
};
use figures::strips;
use log::{filtered, last_lines, log_address, read_log};

pub use connections::ConnectionLine;
pub use facts::{Fraction, Verbs};
pub use figures::Strip;
pub use processes::ProcessRow;

/// Which part of a session's console is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTab {
    Terminal,
    Logs,
    Processes,
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
#[template(config = "web/askama.toml", path = "pages/session.html", blocks = ["state", "verbs", "strips", "meta", "tabs", "console", "where_it_runs", "connections", "timeline", "notice", "restart_place", "remote", "why_here"])]
pub struct SessionDetailPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    /// It was warned of being idle: what happens when, and how often it may still be kept; 0 for who may not.
    pub idle: Option<IdleNote>,
    /// Why a verb that has no form was refused.
    pub refused: Option<Alert>,
    pub id: String,
    /// Where its terminal answers.
    pub terminal: String,
    pub name: String,
    /// What its launch said that it is for; empty for nothing. In full it stands in the settings.
    pub description: String,
    pub owner: String,
    /// It is the reader's.
    pub is_own: bool,
    /// The owner's page for administrators, else the owner's sessions.
    pub owner_href: String,
    pub tone: &'static str,
    pub state: String,
    pub can: Verbs,
    /// Whether a restart keeps its place, or why not.
    pub restart_place: String,
    /// Whether it can be launched once more.
    pub kept: bool,
    pub facts: Vec<IconFact>,
    pub strips: Vec<Strip>,
    pub tab: SessionTab,
    /// Whether a terminal can be opened now.
    pub attachable: bool,
    /// Why there is no terminal, and no list of processes, in two sentences each.
    pub no_terminal: (&'static str, &'static str),
    pub no_processes: (&'static str, &'static str),
    /// Its reader may enter it with a reason.
    pub by_reason: bool,
    /// The terminal is the session's own shell, which outlives the page.
    pub own_shell: bool,
    /// Where the same is of each of its containers, its name, and whether it is the one that is shown; empty for one.
    pub containers: Vec<(String, String, bool)>,
    /// What an address of the chosen one ends with; empty for the main one.
    pub within: String,
    pub waiting: Option<Wait>,
    /// What must end before it can start.
    pub awaited: Option<AwaitedSessions>,
    /// A smaller request that would start now, for who may change it.
    pub instead: Vec<SmallerRequest>,
    pub steps: Vec<TimelineStep>,
    pub ended: Option<SessionEnd>,
    pub log_query: String,
    pub log_note: String,
    pub log_text: String,
    /// Whether its long lines are wrapped, and the address of the same with the other answer.
    pub log_wraps: bool,
    pub log_other: String,
    /// The charts of the metrics, and links to other spans of them.
    pub view: HistoryView,
    pub spans: Vec<(String, &'static str, bool)>,
    pub processes: Vec<ProcessRow>,
    /// Whether it has a network, and what it connects to by it.
    pub is_connected: bool,
    pub connections: Vec<ConnectionLine>,
    pub neighbours: Vec<BarRow>,
    pub limits: Vec<(String, String)>,
    /// It has a slice of a real GPU now, which its programs see.
    pub sees_slice: bool,
    pub limit_cpu: String,
    pub limit_memory: String,
    /// The share as a form takes it back; none where the session has no fraction.
    pub limit_gpu: Option<Fraction>,
    /// Whole devices and partitions are given at the start only.
    pub limit_fixed: bool,
    pub timeline: Vec<TimelineStep>,
    pub why: Vec<CheckRow>,
    pub settings: Vec<(String, String)>,
    /// What it starts after: the id, and what it is called where the reader may see it.
    pub after: Vec<(String, Option<String>)>,
    /// Commands that open it from another computer, with their numbers.
    pub remote: Vec<(usize, String)>,
    /// One of them is of SSH, and the reader has no key for it yet.
    pub lacks_ssh_key: bool,
    /// The SHA-256 of the program that a user downloads; empty where it is not known.
    pub program: String,
}

/// The section of the manual on what programs see of a GPU.
const WHAT_PROGRAMS_SEE: &str = "/docs/gpus#sees";

/// What the page says of a session that is idle.
pub struct IdleNote {
    pub sentence: String,
    pub rule: String,
    pub keeps_left: u32,
}

#[derive(Clone, Debug, Deserialize, Default)]
#[serde(default)]
pub struct SessionQuery {
    q: String,
    tab: String,
    /// Of metrics: `15m`, `1h` or `all`.
    range: String,
    /// Of a log: `off` leaves its long lines whole.
    wrap: String,
    /// Of terminal, log and processes: `main1`, `sub1` and so on; the main one where it names none of the session.
    container: String,
}

impl SessionQuery {
    fn wraps(&self) -> bool {
        self.wrap != "off"
    }
}

/// `GET /sessions/{id}`: the part that says most about it now.
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let look = SessionQuery::default();
    tab(&console, &visit, &caller, &id, None, &look).await
}

/// `GET /sessions/{id}/terminal`
pub async fn terminal(
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
        Some(SessionTab::Terminal),
        &look,
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
        &look,
    )
    .await
}

/// `GET /sessions/{id}/processes`
pub async fn processes(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(look): Query<SessionQuery>,
) -> Response {
    let part = Some(SessionTab::Processes);
    tab(&console, &visit, &caller, &id, part, &look).await
}

/// `GET /sessions/{id}/metrics`
pub async fn metrics(
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
        Some(SessionTab::Metrics),
        &look,
    )
    .await
}

async fn tab(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    tab: Option<SessionTab>,
    look: &SessionQuery,
) -> Response {
    match read_one(console, visit, caller, id, tab, look).await {
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
            let page = read_one(&console, &visit, &caller, &id, tab, &look)
                .await
                .ok()?;
            let fragments = vec![
                ("state", page.as_state().render().ok()?),
                ("verbs", page.as_verbs().render().ok()?),
                ("meta", page.as_meta().render().ok()?),
                ("tabs", page.as_tabs().render().ok()?),
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("strips", page.as_strips().render().ok()?),
                ("console", page.as_console().render().ok()?),
                ("where", page.as_where_it_runs().render().ok()?),
                ("connections", page.as_connections().render().ok()?),
                ("timeline", page.as_timeline().render().ok()?),
                ("notice", page.as_notice().render().ok()?),
                ("restart-place", page.as_restart_place().render().ok()?),
                ("remote", page.as_remote().render().ok()?),
                ("why", page.as_why_here().render().ok()?),
            ];
            Some(stream::LiveParts {
                fragments,
                clocked: matches!(page.tab, SessionTab::Logs | SessionTab::Processes)
                    && page.ended.is_none(),
            })
        }
    })
}

impl SessionTab {
    fn word(self) -> &'static str {
        match self {
            SessionTab::Terminal => "terminal",
            SessionTab::Logs => "logs",
            SessionTab::Processes => "processes",
            SessionTab::Metrics => "metrics",
        }
    }

    fn from_word(word: &str) -> Option<SessionTab> {
        [
            SessionTab::Terminal,
            SessionTab::Logs,
            SessionTab::Processes,
            SessionTab::Metrics,
        ]
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
    look: &SessionQuery,
) -> Result<SessionDetailPage, Failure> {
    let t = visit.text;
    let (q, span) = (look.q.as_str(), MetricsSpan::asked(&look.range));
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
        index: index_of(&look.container)
            .filter(|index| *index < session.containers)
            .unwrap_or(MAIN),
    };
    let within = match container.index {
        MAIN => String::new(),
        index => format!("?container={}", role(index)),
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
    let ended = session.state == SessionState::Ended;
    let peak = samples.iter().map(|sample| sample.memory).max();
    let scope = session.scope();
    let may_write = may(&caller.subject, Right::SessionsWrite, &scope).is_ok();
    let entry = break_glass::entry(server, caller, session.id).await?;
    let may_enter = entry == SessionEntry::Open;
    let attachable = running && !session.paused && may_enter;
    let program = match attachable {
        true => console.program.digest().await,
        false => String::new(),
    };
    let shown_log = filtered(&log, q);
    let counts = seen.counts;
    let hues = Hues::on(&seen.machines);
    let drawing = gpus::Drawing {
        mine: Some(session.id),
        hues: Some(&hues),
        ..gpus::Drawing::at(now)
    };
    let own = devices.items.iter().filter(|gpu| {
        session.state.holds_resources() && session.devices.iter().any(|part| part.uuid == gpu.id)
    });
    let neighbours: Vec<BarRow> = own
        .map(|gpu| gpus::row(t, gpu, &drawing))
        .chain(machines(t, &hues, &seen.machines, &session))
        .collect();
    let simulated = session.simulated && session.resources.wants_device();
    let ssh = console.server.settings().listen_ssh;
    let lacks_ssh_key = match attachable && ssh.is_some() {
        true => ssh_keys::list(server, caller).await?.is_empty(),
        false => false,
    };
    let disk_is_held = match given.disk {
        Some(_) => sessions::holds_disks(server, caller).await?,
        None => false,
    };
    let frame = layout(console, visit, caller, Nav::Sessions);
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
            live: q.is_empty().then(|| {
                let wrap = if look.wraps() { "" } else { "&wrap=off" };
                let of = within.replace('?', "&");
                format!(
                    "/sessions/{id}/live?tab={asked}&range={}{wrap}{of}",
                    span.word()
                )
            }),
            // That it was submitted is no news of one that is over; the address may be an old one.
            notice: match ended && visit.path.contains("notice=launched") {
                true => None,
                false => frame.notice.clone(),
            },
            ..frame.clone()
        },
        alert: watched(t, &session).or_else(|| {
            // What never started has no share.
            let had = session.state != SessionState::Ended || session.started_at.is_some();
            (simulated && had).then(|| {
                Alert::warning(match session.state {
                    SessionState::Pending => t.gpu_session_alert_waits(),
                    SessionState::Ended => t.gpu_session_alert_ended(),
                    _ => t.gpu_session_alert(),
                })
                .detail(t.gpu_session_alert_real())
                .link(WHAT_PROGRAMS_SEE, t.gpu_sees())
            })
        }),
        idle: read
            .idle
            .map(|idle| idle_note(visit, &idle, may_write, now)),
        refused: None,
        terminal: match session.kind {
            SessionKind::Interactive => format!("/api/v1/sessions/{id}/attach{within}"),
            SessionKind::Batch => format!("/api/v1/sessions/{id}/exec{within}"),
        },
        containers: match (session.containers, tab) {
            (1, _) | (_, SessionTab::Metrics) => Vec::new(),
            (all, _) => (MAIN..all)
                .map(|index| {
                    let name = role(index);
                    let at = format!("/sessions/{id}/{}?container={name}", tab.word());
                    (at, name, index == container.index)
                })
                .collect(),
        },
        name: session.name.to_string(),
        description: session.description.clone().unwrap_or_default(),
        owner: session.owner.name.to_string(),
        is_own: session.owner.id == caller.subject.user,
        owner_href: users::href(&frame, session.owner.name.as_str())
            .unwrap_or_else(|| format!("/sessions?q=owner:{}", session.owner.name)),
        tone,
        state: state.to_owned(),
        can: verbs(&session, may_write),
        restart_place: match &read.restart {
            None => t.restart_place().to_owned(),
            Some(blocker) => t.restart_queue(presenter::blocker(t, clock, blocker)),
        },
        facts: facts(t, &session, devices.policy, &events, now),
        strips: if running {
            strips(t, &session, &samples)
        } else {
            Vec::new()
        },
        tab,
        attachable,
        no_terminal: no_terminal(t, &session, may_enter),
        no_processes: no_processes(t, &session, may_enter),
        by_reason: running && entry == SessionEntry::BreakGlass,
        own_shell: session.kind == SessionKind::Interactive,
        waiting: (session.state == SessionState::Pending)
            .then(|| presenter::wait(t, clock, &why, devices.policy, now)),
        awaited: match session.state {
            SessionState::Pending => {
                let (machines, owner) = (&seen.machines, Some(session.owner.name.as_str()));
                awaited(t, clock, machines, &why, &session.resources, owner, now)
            }
            _ => None,
        },
        instead: match session.state == SessionState::Pending && may_write {
            true => presenter::smaller(t, &why, &session, devices.policy),
            false => Vec::new(),
        },
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
        log_wraps: look.wraps(),
        log_other: log_address((id.as_str(), look.container.as_str()), q, !look.wraps()),
        within,
        view: match tab {
            SessionTab::Metrics => session_charts::view(t, clock, &session, &samples, span),
            _ => HistoryView::default(),
        },
        spans: session_charts::spans(t, &id, span),
        processes: match tab {
            SessionTab::Processes if running && may_enter => {
                processes::rows(t, console, container).await
            }
            _ => Vec::new(),
        },
        is_connected: session.network != NetworkMode::None,
        connections: connections::lines(t, (clock, now), &read.connections),
        neighbours,
        limits: limits(t, &session, devices.policy, disk_is_held),
        sees_slice: running && !session.simulated && !session.devices.is_empty(),
        limit_cpu: given.cpu.to_string(),
        limit_memory: launch::typed_memory(given.memory),
        limit_gpu: fraction(t, &session, &devices.items),
        limit_fixed: given.wants_device() && !has_fraction(&session),
        timeline: presenter::timeline(t, clock, &session, &events),
        why: session
            .reason
            .as_ref()
            // Why it had its place is no news of one that has none.
            .filter(|reason| reason.code.starts_with(rules::codes::family::PLACEMENT) && !ended)
            .map(|reason| {
                let when = session.scheduled_at.map(|at| clock.date(at));
                CheckRow::new(true, codes::reason(t, reason), when.unwrap_or_default())
            })
            .into_iter()
            .collect(),
        kept: session.document_kept,
        settings: settings(t, &session, &read.folder_owners),
        after: read
            .after
            .into_iter()
            .map(|(id, name)| (id.to_string(), name))
            .collect(),
        remote: match attachable {
            true => {
                let own = session.owner.id == caller.subject.user;
                remote(visit, &session, own, ssh.map(|address| address.port()))
            }
            false => Vec::new(),
        },
        lacks_ssh_key,
        program,
        id,
    })
}

fn idle_note(
    visit: &RequestContext,
    idle: &SessionIdleView,
    may_write: bool,
    now: Timestamp,
) -> IdleNote {
    let t = visit.text;
    // One that was put off by a gap is due from now on.
    let time = idle.ends_at.map(|at| visit.clock.near(at.max(now), now));
    let sentence = match (&time, idle.warnings) {
        (Some(time), 0) => idle_rules::kept_sentence(t, idle, time),
        (Some(time), _) => idle_rules::ends_sentence(t, idle, time),
        (None, _) => t.idle_timeline_idle().to_owned(),
    };
    IdleNote {
        sentence,
        rule: match idle.warnings {
            0 => String::new(),
            _ => t.idle_by_rule(idle.rule.as_str()),
        },
        keeps_left: match may_write && idle.warnings > 0 && time.is_some() {
            true => idle.keeps_left,
            false => 0,
        },
    }
}

/// Cores and memory of the machine that a session is on; nothing before it has one.
fn machines<'a>(
    t: Text,
    hues: &'a Hues,
    all: &'a [NodeOverview],
    session: &'a SessionView,
) -> impl Iterator<Item = BarRow> + 'a {
    all.iter()
        .filter(|machine| {
            session.state.holds_resources()
                && session.node.as_deref() == Some(machine.name.as_str())
        })
        .flat_map(move |machine| presenter::racks(t, hues, machine, Some(session.id)))
}
