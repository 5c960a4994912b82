//! `/sessions`: the table of sessions, its stream, and the same rows as a file.

use std::collections::{BTreeMap, BTreeSet};

use api::sessions::SessionView;
use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use rules::names::SessionId;
use rules::permissions::{Permission as Right, Reach, own, reach};
use rules::policy::SharePolicy;
use rules::session::SessionState;
use rules::units::{Bytes, GpuShare, Timestamp};
use server::Failure;
use server::access::Caller;
use server::actions::gpus as devices;
use server::actions::sessions;
use server::actions::sessions::table::{
    self as session_table, ReplicaAmounts, ReplicaEnds, TableItem, TablePage, TableQuery,
};

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{
    self, ColumnDisplay, DataTable, EmptyTable, FilterBar, FilterExample, FilterPicker, RowAction,
    RowMark, TableCell, TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer, file, name_times, shorter};
use super::table_choices::view_links;
use super::{PagesContext, layout, live as stream, presenter, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/sessions.html", blocks = ["count", "list"])]
pub struct SessionsPage {
    pub t: Text,
    pub f: PageLayout,
    /// GPUs here do not exist.
    pub simulated: bool,
    pub count: String,
    pub filter: FilterBar,
    pub table: DataTable,
}

impl ListPage for SessionsPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        self.f.live.as_deref()
    }
}

/// Where the list is.
const PATH: &str = "/sessions";
/// The parts of an address that choose rows.
const FILTERS: [&str; 4] = ["q", "state", "scope", "group"];

type Asked = Query<Vec<(String, String)>>;

/// `GET /sessions`: the page, or the list alone for the page's own script.
pub async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Asked,
) -> Response {
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = read_list(&console, &visit, &caller, &headers, &asked).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

/// `GET /sessions/live`
pub async fn list_live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Asked,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let (headers, asked) = (headers.clone(), asked.clone());
        async move {
            let page = read_list(&console, &visit, &caller, &headers, &asked)
                .await
                .ok()?;
            Some(vec![
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("count", page.as_count().render().ok()?),
                ("list", page.as_list().render().ok()?),
            ])
        }
    })
}

/// `GET /sessions.csv`: what the filter lets through, with the columns that are shown, at most 10,000 rows.
pub async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Asked,
) -> Response {
    let t = visit.text;
    let mut state = TableState::read(PATH, &FILTERS, &asked);
    let mut columns = columns(t, true);
    // A file is read later: it says when, not how long ago.
    let times = [("age", t.users_created()), ("ended", t.sessions_ended_at())];
    name_times(t, &mut columns, &times);
    state.choose_columns("sessions", &columns, &asked, &headers, &visit);
    let rows = match session_table::export(&console.server, &caller, &query(&state)).await {
        Ok(rows) => rows,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let now = console.server.clock().now();
    let policy = SharePolicy::default();
    file(
        &visit,
        "sessions",
        &state,
        &columns,
        &rows,
        |session, key| match key {
            "age" => TableCell::text(session.created_at.to_string()),
            "ended" => {
                let at = session.ended_at;
                TableCell::text(at.map_or_else(String::new, |at| at.to_string()))
            }
            "name" => TableCell::text(session.name.as_str()),
            "command" => TableCell::text(session.command.join(" ")),
            "labels" => TableCell::text(labels(session)),
            key => cell(&visit, key, session, policy, None, None, now),
        },
    )
}

pub(super) fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Sessions);
    responses::failure(console, visit, Some(frame), failure)
}

/// The filters of the page as one query of the list's language.
fn query(state: &TableState) -> TableQuery {
    let standing = match state.filter("state") {
        "active" => "state:live",
        "ended" => "state:ended",
        "failed" => "state:ended outcome:failed outcome:lost outcome:refused",
        "waiting" => "state:waiting",
        "running" => "state:running",
        _ => "",
    };
    TableQuery {
        q: format!("{} {standing}", state.filter("q"))
            .trim()
            .to_owned(),
        sort: state.sort.clone(),
        scope: state.filter("scope").to_owned(),
        grouped: state.filter("group") != "off",
        offset: state.offset(),
        limit: table::ROWS,
    }
}

fn columns(t: Text, has_devices: bool) -> Vec<TableColumn> {
    let usual = match has_devices {
        true => ColumnDisplay::Shown,
        false => ColumnDisplay::Hidden,
    };
    vec![
        TableColumn::new("name", t.sessions_name())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("state", t.sessions_state()).class("why"),
        TableColumn::new("image", t.sessions_image()).class("wide"),
        TableColumn::new("gpu", t.gpu_share())
            .sorted_by("-gpu")
            .class("wide nw")
            .display(usual),
        TableColumn::new("cpu", t.sessions_cpu())
            .sorted_by("-cpu")
            .class("u"),
        TableColumn::new("memory", t.sessions_memory())
            .sorted_by("-memory")
            .class("u"),
        TableColumn::new("node", t.sessions_where())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("kind", t.sessions_kind())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("command", t.launch_command())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("project", t.sessions_project())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("labels", t.sessions_labels())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("exit", t.ended_exit())
            .class("num wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("ended", t.sessions_ended_at())
            .sorted_by("-ended_at")
            .class("num wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("ran", t.sessions_ran()).class("num wide"),
        TableColumn::new("age", t.sessions_age())
            .sorted_by("-created_at")
            .class("num"),
    ]
}

/// What one session uses now: cores and bytes.
type Use = (f64, Bytes);

async fn read_list(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<SessionsPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let seen = sessions::overview(&console.server, caller).await?;
    let policy = devices::policy(&console.server, caller).await?;
    let mut state = TableState::read(PATH, &FILTERS, asked);
    let has_devices = seen.machines.iter().any(|node| !node.devices.is_empty());
    let columns = columns(t, has_devices);
    state.choose_columns("sessions", &columns, asked, headers, visit);
    let (found, fault) = match session_table::table(&console.server, caller, &query(&state)).await {
        Ok(found) => (found, None),
        // A query that cannot be read stays where it was typed, and the list says why it is empty.
        Err(Failure::Refusal(refusal)) => {
            let none = TablePage {
                items: Vec::new(),
                rows: 0,
                sessions: 0,
            };
            (none, Some(codes::refusal(t, &refusal)))
        }
        Err(fault) => return Err(fault),
    };
    let uses: BTreeMap<SessionId, Use> = seen
        .machines
        .iter()
        .flat_map(|machine| &machine.slices)
        .filter_map(|slice| Some((slice.id?, (slice.cpu_busy?, slice.memory_busy?))))
        .collect();
    let writable = reach(&caller.subject, Right::SessionsWrite);
    let rows = found
        .items
        .iter()
        .map(|item| {
            let used = uses.get(&item.session.id);
            line(visit, &state, item, &writable, policy, used, now)
        })
        .collect();
    let refused = fault.is_some();
    let mut table = DataTable::new(
        t,
        &state,
        &columns,
        "",
        rows,
        found.rows,
        empty(t, &state, refused),
    );
    if !table.rows.is_empty() && found.sessions > found.rows {
        table.range = t.sessions_range(&table.range, found.sessions);
    }
    table.fault = fault;
    table.csv = (!table.rows.is_empty()).then(|| state.beside("/sessions.csv"));
    table.other = grouping(t, &state, &found);
    let counts = seen.counts;
    let live = counts.scheduled + counts.preparing + counts.running + counts.stopping;
    Ok(SessionsPage {
        t,
        f: PageLayout {
            sessions: live + counts.pending,
            waiting: counts.pending,
            live: Some(state.beside("/sessions/live")),
            ..layout(console, visit, caller, Nav::Sessions)
        },
        simulated: presenter::simulated(&seen.machines),
        count: t.sessions_count(counts.running, counts.pending, counts.ended),
        filter: filter(visit, headers, caller, &state, &columns),
        table,
    })
}

/// The way to the same list with each replica, or back to one row for each launch.
fn grouping(t: Text, state: &TableState, found: &TablePage) -> Option<(String, String)> {
    let other = |value: &str| {
        let mut other = state.clone();
        other.page = 1;
        for (name, now) in &mut other.filters {
            if *name == "group" {
                value.clone_into(now);
            }
        }
        other.address()
    };
    let grouped = found.items.iter().any(|item| item.replicas > 1);
    match (grouped, state.filter("group")) {
        (true, _) => Some((other("off"), t.sessions_ungroup().to_owned())),
        (false, "off") => Some((other(""), t.sessions_group().to_owned())),
        (false, _) => None,
    }
}

fn empty(t: Text, state: &TableState, refused: bool) -> EmptyTable {
    let chosen = state
        .filters
        .iter()
        .any(|(name, value)| *name != "group" && !value.is_empty());
    match (refused, chosen) {
        (true, _) => EmptyTable {
            icon: "search",
            title: t.table_unread().to_owned(),
            lead: t.table_unread_lead().to_owned(),
            href: PATH.to_owned(),
            go: t.sessions_clear().to_owned(),
        },
        (false, true) => {
            let title = match state.filter("q") {
                "" => t.sessions_no_match_plain().to_owned(),
                typed => t.sessions_no_match(typed),
            };
            EmptyTable::no_match(t, title, PATH)
        }
        (false, false) => EmptyTable {
            icon: "square-terminal",
            title: t.sessions_none().to_owned(),
            lead: t.sessions_none_lead().to_owned(),
            href: "/sessions/new".to_owned(),
            go: t.launch_go_page().to_owned(),
        },
    }
}

fn filter(
    visit: &RequestContext,
    headers: &HeaderMap,
    caller: &Caller,
    state: &TableState,
    columns: &[TableColumn],
) -> FilterBar {
    let t = visit.text;
    let choice = |name: &str, value: &str, words: &str| {
        Choice::new(value, words, state.filter(name) == value)
    };
    let mut pickers = vec![FilterPicker {
        name: "state",
        label: t.sessions_state().to_owned(),
        choices: vec![
            choice("state", "", t.sessions_any()),
            choice("state", "active", t.sessions_active()),
            choice("state", "running", t.state_running()),
            choice("state", "waiting", t.state_waiting()),
            choice("state", "ended", t.sessions_ended()),
            choice("state", "failed", t.state_failed()),
        ],
    }];
    let subject = &caller.subject;
    let everyone = reach(subject, Right::SessionsRead) != own(subject);
    if everyone {
        pickers.push(FilterPicker {
            name: "scope",
            label: t.sessions_scope().to_owned(),
            choices: vec![
                choice("scope", "", t.sessions_everyone()),
                choice("scope", "mine", t.sessions_mine()),
            ],
        });
    }
    let here = state.address();
    let mut shipped = vec![
        (t.sessions_view_all(), ""),
        (t.sessions_view_failed(), "state=failed"),
        (t.sessions_view_waiting(), "state=waiting"),
    ];
    if everyone {
        shipped.insert(1, (t.sessions_view_mine(), "state=active&scope=mine"));
    }
    let shipped = shipped
        .into_iter()
        .map(|(name, query)| (name.to_owned(), query.to_owned()))
        .collect();
    FilterBar {
        t,
        module: super::assets::address("table.js"),
        table: "sessions",
        path: PATH,
        q: state.filter("q").to_owned(),
        hint: t.sessions_filter_hint().to_owned(),
        label: t.sessions_filter().to_owned(),
        pickers,
        hidden: vec![
            ("group", state.filter("group").to_owned()),
            ("sort", state.sort.clone()),
        ],
        columns: table::column_choices(state, columns),
        views: view_links(headers, visit, "sessions", PATH, &here, shipped),
        examples: examples(t),
        target: "list",
        here,
    }
}

fn examples(t: Text) -> Vec<FilterExample> {
    [
        ("train", t.filter_help_word()),
        ("name:train", t.filter_help_name()),
        ("state:running", t.filter_help_state()),
        ("outcome:failed", t.filter_help_outcome()),
        ("owner:mina", t.filter_help_owner()),
        ("project:vision", t.filter_help_project()),
        ("group:lab", t.filter_help_group()),
        ("image:pytorch", t.filter_help_image()),
        ("kind:batch", t.filter_help_kind()),
        ("label:team=vision", t.filter_help_label()),
        ("state:running state:waiting", t.filter_help_both()),
    ]
    .into_iter()
    .map(|(typed, finds)| FilterExample {
        typed,
        finds: finds.to_owned(),
    })
    .collect()
}

fn line(
    visit: &RequestContext,
    state: &TableState,
    item: &TableItem,
    writable: &Reach,
    policy: SharePolicy,
    used: Option<&Use>,
    now: Timestamp,
) -> TableLine {
    let t = visit.text;
    let session = &item.session;
    let ends = session.state < SessionState::Stopping && writable.covers(&session.scope());
    let several = item.replicas > 1;
    let name = match several {
        true => replicas_name(session.name.as_str(), item.replicas),
        false => session.name.to_string(),
    };
    let value = match several {
        true => format!("all:{}", session.id),
        false => session.id.to_string(),
    };
    TableLine {
        // A launch has up to three rows: what runs, what waits, what ended.
        id: format!("s-{}", session.id),
        mark: ends.then(|| RowMark {
            value,
            label: t.sessions_mark(&name),
            count: item.replicas.max(1),
        }),
        cells: state
            .columns
            .iter()
            .map(|key| match several {
                true => shared_cell(visit, key, &name, item, now),
                false => {
                    let why = item
                        .why
                        .as_ref()
                        .map(|why| presenter::sentence(t, &visit.clock, why));
                    cell(visit, key, session, policy, used, why, now)
                }
            })
            .collect(),
        action: Some(match several {
            true => RowAction {
                href: launch_address(session.id),
                icon: "chevron-right",
                label: t.sessions_open_replicas(&name),
                dialog: false,
            },
            false => RowAction {
                href: format!("/sessions/{}/menu", session.id),
                icon: "ellipsis",
                label: t.sessions_verbs_of(&name),
                dialog: true,
            },
        }),
    }
}

/// `train ×500` for the replicas of `train-1`.
pub(super) fn replicas_name(first: &str, replicas: u64) -> String {
    let base = first.trim_end_matches(|c: char| c.is_ascii_digit());
    format!("{} ×{replicas}", base.trim_end_matches('-'))
}

/// Where all replicas of the launch of a session are listed.
fn launch_address(first: SessionId) -> String {
    format!("{PATH}?q=replicas%3A{first}")
}

/// A field of a row that stands for several replicas: only what is true of all of them.
fn shared_cell(
    visit: &RequestContext,
    key: &str,
    name: &str,
    item: &TableItem,
    now: Timestamp,
) -> TableCell {
    let t = visit.text;
    let session = &item.session;
    match key {
        "name" => TableCell::Link {
            href: launch_address(session.id),
            text: name.to_owned(),
            note: session.owner.name.to_string(),
        },
        "state" if session.state == SessionState::Ended => shared_end(t, &item.ends),
        "state" => {
            let (tone, text) = match session.state {
                SessionState::Pending => ("warn", t.state_waiting()),
                _ => ("ok", t.sessions_active()),
            };
            let why = item.why.as_ref();
            TableCell::Pill {
                tone,
                text: text.to_owned(),
                note: why.map_or_else(String::new, |why| presenter::sentence(t, &visit.clock, why)),
            }
        }
        "image" | "kind" | "command" | "project" | "labels" | "age" => {
            cell(visit, key, session, SharePolicy::default(), None, None, now)
        }
        "cpu" | "memory" | "gpu" => {
            let amounts = item.amounts.as_ref();
            amounts.map_or(TableCell::Empty, |all| shared_amount(t, key, session, all))
        }
        _ => TableCell::Empty,
    }
}

/// What replicas have together; where each has the same, that too.
fn shared_amount(t: Text, key: &str, first: &SessionView, all: &ReplicaAmounts) -> TableCell {
    let each = first.resources;
    let (sum, one) = match key {
        "cpu" => (t.common_cores(all.cpu), t.common_cores(each.cpu)),
        "memory" => (
            components::size(all.memory.0),
            components::size(each.memory.0),
        ),
        _ => match (each.mig, all.gpu) {
            (Some(profile), _) if all.are_equal => {
                return TableCell::text(t.sessions_amount_each(profile));
            }
            (_, GpuShare::ZERO) => return TableCell::Empty,
            (_, sum) => (
                presenter::gpu_amount(t, sum),
                presenter::gpu_amount(t, each.gpu),
            ),
        },
    };
    TableCell::Text {
        text: sum,
        note: match all.are_equal {
            true => t.sessions_amount_each(one),
            false => String::new(),
        },
    }
}

/// How replicas ended: the word that is true of all, or how many ended how.
fn shared_end(t: Text, ends: &[ReplicaEnds]) -> TableCell {
    let mut words: Vec<(&str, &str, u64)> = Vec::new();
    for one in ends {
        let (tone, word) = presenter::end_state(t, Some(one.outcome), one.ran);
        match words.iter_mut().find(|(_, known, _)| *known == word) {
            Some((_, _, count)) => *count += one.count,
            None => words.push((tone, word, one.count)),
        }
    }
    let counted = words
        .iter()
        .map(|(_, word, count)| t.sessions_ended_n(*count, word));
    let note = counted.collect::<Vec<_>>().join(" · ");
    match words[..] {
        [(tone, word, _)] => TableCell::Pill {
            tone,
            text: word.to_owned(),
            note: String::new(),
        },
        _ => TableCell::Pill {
            tone: match words.iter().any(|(tone, ..)| *tone == "bad") {
                true => "bad",
                false => "",
            },
            text: t.sessions_ended().to_owned(),
            note,
        },
    }
}

/// A field of one session's row. `why` says why it waits.
fn cell(
    visit: &RequestContext,
    key: &str,
    session: &SessionView,
    policy: SharePolicy,
    used: Option<&Use>,
    why: Option<String>,
    now: Timestamp,
) -> TableCell {
    let t = visit.text;
    let given = session.resources;
    let used = used.filter(|_| session.state == SessionState::Running);
    match key {
        "name" => TableCell::Link {
            href: format!("/sessions/{}", session.id),
            text: session.name.to_string(),
            note: session.owner.name.to_string(),
        },
        "state" => {
            let (tone, text) = presenter::state(t, session);
            TableCell::Pill {
                tone,
                text: text.to_owned(),
                note: why.unwrap_or_else(|| reason(t, session)),
            }
        }
        "image" => TableCell::text(session.image.clone()),
        "gpu" => match (given.mig, given.gpu) {
            (None, GpuShare::ZERO) => TableCell::Empty,
            (profile, share) => TableCell::Text {
                text: profile.map_or_else(
                    || presenter::gpu_amount(t, share),
                    |profile| profile.to_string(),
                ),
                note: held(t, session, policy),
            },
        },
        "cpu" => match used {
            Some((cores, _)) => TableCell::Bar {
                text: format!(
                    "{} / {}",
                    components::cores(*cores, given.cpu),
                    t.common_cores(given.cpu)
                ),
                percent: components::percent(*cores, given.cpu.as_f64()),
                accent: true,
            },
            None => TableCell::text(t.common_cores(given.cpu)),
        },
        "memory" => {
            let all = components::size(given.memory.0);
            match used {
                Some((_, memory)) => TableCell::Bar {
                    text: format!("{} / {all}", components::size(memory.0)),
                    percent: components::percent(memory.0 as f64, given.memory.0 as f64),
                    accent: false,
                },
                None => TableCell::text(all),
            }
        }
        "project" => TableCell::text(session.project.name.as_str()),
        "node" => TableCell::text(session.node.clone().unwrap_or_default()),
        "kind" => TableCell::text(match session.kind {
            rules::session::SessionKind::Interactive => t.launch_interactive(),
            rules::session::SessionKind::Batch => t.launch_batch(),
        }),
        "command" => match session.command.is_empty() {
            true => TableCell::Empty,
            false => TableCell::Code(shortened(&session.command.join(" "))),
        },
        "labels" => TableCell::text(shortened(&labels(session))),
        "exit" => TableCell::text(
            session
                .exit_code
                .map_or_else(String::new, |c| c.to_string()),
        ),
        "ended" => {
            let at = session.ended_at;
            TableCell::text(at.map_or_else(String::new, |at| visit.clock.near(at, now)))
        }
        "ran" => match session.started_at {
            Some(started) => {
                let until = session.ended_at.unwrap_or(now);
                TableCell::text(components::span(t, until.seconds_since(started)))
            }
            None => TableCell::Empty,
        },
        "age" => TableCell::text(components::span(t, now.seconds_since(session.created_at))),
        _ => TableCell::Empty,
    }
}

fn labels(session: &SessionView) -> String {
    let labels = session.labels.iter();
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    labels.join(" ")
}

/// Letters of a command or of labels that a row shows; all of them stand on the session's page.
const MAX_SHOWN: usize = 60;

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What the server said of a session that prepares or ended otherwise than well.
fn reason(t: Text, session: &SessionView) -> String {
    match (&session.reason, session.state) {
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
    }
}

/// Which devices a session has and how much memory of them, and the share in the administrator's units where
/// one device counts as several: `GPU 0 · 28 GiB`.
pub(super) fn held(t: Text, session: &SessionView, policy: SharePolicy) -> String {
    let mut words = Vec::new();
    if policy.units > 1 && session.resources.gpu > GpuShare::ZERO {
        words.push(t.gpu_units_of(policy.in_units(session.resources.gpu)));
    }
    if !session.devices.is_empty() && session.state.holds_resources() {
        // Containers of one session may share a device.
        let numbers: BTreeSet<u32> = session.devices.iter().map(|d| d.index).collect();
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let memory: Bytes = session.devices.iter().map(|d| d.memory).sum();
        words.push(t.gpu_devices(numbers.join(", ")));
        words.push(components::size(memory.0));
    }
    words.join(" · ")
}

#[cfg(test)]
mod tests {
    use axum::http::Extensions;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_age_of_what_ended_is_no_run_time_and_a_use_has_its_unit() {
        let visit = RequestContext::of(&HeaderMap::new(), &Extensions::new(), "/".into());
        let session = |more: serde_json::Value| -> SessionView {
            let mut all = json!({
                "id": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f", "name": "a",
                "owner": {"id": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e40", "name": "kim"},
                "state": "running", "desired": "run", "kind": "batch", "image": "host", "command": [],
                "env": {}, "labels": {}, "depends_on": [], "paused": false, "incarnation": 1,
                "resources": {"cpu": 0.1, "memory": 67_108_864, "shm": 1}, "devices": [],
                "created_at": "2026-11-22T09:00:00Z", "started_at": "2026-11-22T10:00:00Z",
                "generation": 1,
            });
            let (all_of, more) = (all.as_object_mut(), more.as_object().cloned());
            all_of.expect("an object").extend(more.unwrap_or_default());
            serde_json::from_value(all).expect("a session")
        };
        let now = Timestamp::parse("2026-11-22T12:00:00Z").expect("a time");
        let told = |session: &SessionView, key, used: Option<&Use>| {
            cell(
                &visit,
                key,
                session,
                SharePolicy::default(),
                used,
                None,
                now,
            )
            .plain()
        };
        let ended = session(json!({
            "state": "ended", "ended_at": "2026-11-22T10:00:01Z", "outcome": "failed",
        }));
        let words = ["age", "ran"].map(|key| told(&ended, key, None));
        assert_eq!(words, ["3 h 0 min", "1 s"]);
        let used = (0.04, Bytes::mib(12));
        let words = ["cpu", "memory"].map(|key| told(&session(json!({})), key, Some(&used)));
        assert_eq!(words, ["0.04 / 0.1 cores", "12 MiB / 64 MiB"]);
        assert_eq!(told(&session(json!({})), "cpu", None), "0.1 cores");
    }

    #[test]
    fn the_column_of_gpus_is_there_because_of_the_machines_and_not_of_the_rows() {
        let shown = |has_devices| {
            let columns = columns(Text::default(), has_devices);
            let mut state = TableState::read(PATH, &FILTERS, &[]);
            let visit = RequestContext::of(&HeaderMap::new(), &Extensions::new(), "/".into());
            state.choose_columns("sessions", &columns, &[], &HeaderMap::new(), &visit);
            state.columns.contains(&"gpu")
        };
        assert_eq!([shown(true), shown(false)], [true, false]);
    }
}
