//! `/audit`: the table of what users did, by user, act, object and time, as a file for a spreadsheet, and as an export that
//! can be verified without this server.

use std::collections::BTreeSet;

use api::audit::{
    AuditCheckpointView, AuditEntryView, AuditExportQuery, AuditQuery, AuditTargetView,
};
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use futures_util::stream;
use rules::units::Timestamp;
use server::Failure;
use server::access::{Caller, lease};
use server::actions::audit::{self, AuditExport, AuditPart, FoundAudit};
use server::actions::users;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, FilterPicker, TableCell, TableColumn,
    TableLine, TableState,
};
use super::table_answer::{ListPage, answer, file, name_times, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::{PagesContext, event_words, events, layout, responses};
use crate::doors::download;
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/audit.html", blocks = ["list"])]
pub struct AuditPage {
    pub t: Text,
    pub f: PageLayout,
    /// Where the export is that can be verified; empty for those who see their own acts alone.
    pub export: String,
    /// What the newest checkpoint says; empty where there is none to see.
    pub signed: String,
    /// The places that the log is handed over to; empty for those who do not see the system, and where none is set.
    pub targets: Vec<AuditTargetRow>,
    pub filter: FilterBar,
    pub table: DataTable,
}

/// One place that the log is handed over to.
pub struct AuditTargetRow {
    pub place: String,
    pub icon: &'static str,
    pub tone: &'static str,
    /// How far it is.
    pub state: String,
    /// How many rows it will never have; empty for none.
    pub lost: String,
    /// Why it takes no rows; empty where it does.
    pub problem: String,
}

impl ListPage for AuditPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

const PATH: &str = "/audit";
/// The parts of an address that choose acts. `before` begins at an older part of the log.
const FILTERS: [&str; 4] = ["q", "act", "since", "before"];
/// Beginnings of acts that a filter offers, in the order of the list.
const ACTS: [&str; 8] = [
    "sign-in", "session", "user", "project", "token", "key", "ssh-key", "request",
];

/// Acts whose rows tell how many of them there were.
const COUNTED: [&str; 2] = ["session.entered", "session.log-read"];

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/audit", get(show))
        .route("/audit.csv", get(table))
        .route("/audit/export", get(export))
}

type AskedActs = Query<Vec<(String, String)>>;

/// What the words of the filter ask for, or what cannot be read of them: `user:`, `act:`, `object:`, `since:`, `until:`; a word
/// alone is a user.
fn wanted(
    visit: &RequestContext,
    state: &TableState,
    now: Timestamp,
) -> Result<AuditQuery, String> {
    let mut wanted = AuditQuery {
        act: state.filter("act").to_owned(),
        ..AuditQuery::default()
    };
    let read = |typed: &str, ends: bool| {
        let at = events::moment(visit, typed, ends, now);
        at.ok_or_else(|| visit.text.events_time_unread(typed))
    };
    let since = state.filter("since");
    if !since.is_empty() {
        wanted.since = Some(read(since, false)?);
    }
    for word in state.filter("q").split_whitespace() {
        match word.split_once(':') {
            Some(("user", user)) => user.clone_into(&mut wanted.user),
            Some(("act", act)) => act.clone_into(&mut wanted.act),
            Some(("object", object)) => object.clone_into(&mut wanted.object),
            Some(("since", typed)) => wanted.since = Some(read(typed, false)?),
            Some(("until", typed)) => wanted.until = Some(read(typed, true)?),
            _ => word.clone_into(&mut wanted.user),
        }
    }
    Ok(wanted)
}

/// `1800000000000-17`: the place of an act in the order of the list.
fn place(text: &str) -> Option<(i64, u64)> {
    let (at, sequence) = text.split_once('-')?;
    Some((at.parse().ok()?, sequence.parse().ok()?))
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedActs,
) -> Response {
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = read(&console, &visit, &caller, &headers, &asked).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Audit);
    responses::failure(console, visit, Some(frame), failure)
}

/// `GET /audit.csv`: what the filter finds, with the columns that are shown, at most 10,000 acts.
async fn table(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedActs,
) -> Response {
    let t = visit.text;
    let mut columns = columns(t);
    name_times(t, &mut columns, &[("when", t.events_when())]);
    let mut state = TableState::read(PATH, &FILTERS, &asked);
    state.choose_columns("audit", &columns, &asked, &headers, &visit);
    let now = console.server.clock().now();
    // What cannot be read was said on the page.
    let wanted = wanted(&visit, &state, now).unwrap_or_default();
    match audit::table(&console.server, &caller, &wanted).await {
        Ok(found) => file(
            &visit,
            "audit",
            &state,
            &columns,
            &found.page.items,
            |act, key| match key {
                // A file is read by programs as well.
                "when" => TableCell::text(act.at.to_string()),
                "object" => {
                    let event = audit::as_event(act);
                    let names = &found.page.names;
                    TableCell::text(events::object(&event, names, str::to_owned).0)
                }
                key => cell(&visit, key, act, &found),
            },
        ),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /audit/export`: the times and the user of the filter, as lines that can be verified.
async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): AskedActs,
) -> Response {
    let state = TableState::read(PATH, &FILTERS, &asked);
    let now = console.server.clock().now();
    let wanted = wanted(&visit, &state, now).unwrap_or_default();
    let times = AuditExportQuery {
        since: wanted.since,
        until: wanted.until,
        user: wanted.user.clone(),
    };
    let begun = match audit::export(&console.server, &caller, &times).await {
        Ok(begun) => begun,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let lines = stream::unfold(Some(begun), |export| async move {
        let mut export: AuditExport = export?;
        match export.part().await {
            Ok(None) => None,
            Ok(Some(text)) => Some((Ok(text), Some(export))),
            Err(failure) => {
                let error = &failure as &dyn std::error::Error;
                tracing::error!(error, "an export of the audit log broke off");
                Some((Err(std::io::Error::other("it broke off")), None))
            }
        }
    });
    let lease = lease(&console.server, &caller);
    download::pieces("audit.jsonl", "application/jsonl", lines, lease)
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<AuditPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.choose_columns("audit", &columns, asked, headers, visit);
    let part = AuditPart {
        offset: state.offset(),
        before: place(state.filter("before")),
    };
    let (found, fault) = match wanted(visit, &state, now) {
        Ok(wanted) => (
            audit::page(&console.server, caller, &wanted, part).await?,
            None,
        ),
        Err(fault) => (FoundAudit::default(), Some(fault)),
    };
    let accounts = users::list(&console.server, caller).await;
    let known: BTreeSet<String> = accounts
        .unwrap_or_default()
        .into_iter()
        .map(|user| user.name.to_string())
        .collect();
    let rows = found.page.items.iter().map(|act| TableLine {
        id: format!("a-{}", act.sequence),
        mark: None,
        cells: state
            .columns
            .iter()
            .map(|key| match *key {
                "user" if known.contains(&act.actor) => TableCell::Link {
                    href: format!("/users/{}", responses::encoded(&act.actor)),
                    text: act.actor.clone(),
                    note: String::new(),
                },
                key => cell(visit, key, act, &found),
            })
            .collect(),
        action: None,
    });
    let empty = EmptyTable {
        icon: "notebook-pen",
        title: match fault {
            Some(_) => t.table_unread(),
            None => t.audit_none(),
        }
        .to_owned(),
        lead: match fault {
            Some(_) => t.table_unread_lead(),
            None => t.audit_none_lead(),
        }
        .to_owned(),
        href: PATH.to_owned(),
        go: match state.filtered() {
            true => t.events_clear().to_owned(),
            false => String::new(),
        },
    };
    let total = found.page.estimated_total;
    let mut table = DataTable::new(t, &state, &columns, "", rows.collect(), total, empty);
    if let Some((at, sequence)) = found.older {
        let older = state.with_filter("before", &format!("{at}-{sequence}"));
        table.other = Some((older.address(), t.audit_older().to_owned()));
    }
    if table.previous.is_none() && !state.filter("before").is_empty() {
        table.previous = Some(state.with_filter("before", "").address());
    }
    table.csv = (!table.rows.is_empty()).then(|| state.beside("/audit.csv"));
    table.fault = fault;
    let (export, signed) = match audit::sees_others(caller) {
        true => {
            let kept = audit::newest_checkpoint(&console.server, caller).await?;
            (state.beside("/audit/export"), signed(visit, kept.as_ref()))
        }
        false => (String::new(), String::new()),
    };
    Ok(AuditPage {
        t,
        f: layout(console, visit, caller, Nav::Audit),
        export,
        signed,
        targets: targets(console, visit, caller).await?,
        filter: filter(visit, headers, &state, &columns),
        table,
    })
}

/// The places that the log is handed over to, for those who see the system.
async fn targets(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
) -> Result<Vec<AuditTargetRow>, Failure> {
    let all = match audit::targets(&console.server, caller).await {
        Ok(all) => all,
        Err(Failure::Refusal(_)) => Vec::new(),
        Err(failure @ Failure::Fault(_)) => return Err(failure),
    };
    Ok(all
        .into_iter()
        .map(|target| target_row(visit, target))
        .collect())
}

fn target_row(visit: &RequestContext, target: AuditTargetView) -> AuditTargetRow {
    let t = visit.text;
    let shown = |at: Timestamp| format!("{} {}", visit.clock.day(at), visit.clock.second(at));
    // What is lost stays lost: the finding warns of it for a week.
    let (icon, tone) = match (target.problem.is_empty(), target.lost) {
        (false, _) => ("triangle-alert", "warn"),
        (true, 0) => ("circle-check", "ok"),
        (true, _) => ("info", "dim"),
    };
    AuditTargetRow {
        place: target.place,
        icon,
        tone,
        state: match target.delivered_at {
            Some(at) => t.audit_target_at(target.delivered, shown(at), target.waiting),
            None => t.audit_target_none(target.waiting),
        },
        lost: match target.lost {
            0 => String::new(),
            lost => t.audit_target_lost(lost),
        },
        problem: match target.problem_since {
            Some(since) => t.audit_target_problem(shown(since), codes::stored(t, &target.problem)),
            None => String::new(),
        },
    }
}

fn signed(visit: &RequestContext, newest: Option<&AuditCheckpointView>) -> String {
    match newest {
        Some(kept) => {
            let at = format!(
                "{} {}",
                visit.clock.day(kept.at),
                visit.clock.second(kept.at)
            );
            visit.text.audit_signed(kept.sequence, at)
        }
        None => visit.text.audit_unsigned().to_owned(),
    }
}

fn columns(t: Text) -> Vec<TableColumn> {
    let more = |key, name: &str| {
        TableColumn::new(key, name)
            .class("wide")
            .display(ColumnDisplay::Hidden)
    };
    vec![
        TableColumn::new("when", t.events_when())
            .class("at")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("user", t.events_user()).display(ColumnDisplay::Fixed),
        TableColumn::new("what", t.audit_act())
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("object", t.events_object()).class("why"),
        TableColumn::new("detail", t.events_detail()).class("below detail"),
        TableColumn::new("address", t.audit_address()).class("below"),
        more("via", t.audit_via()),
        more("domain", t.projects_domain()),
        more("project", t.sessions_project()),
        more("id", "ID"),
        more("request", t.audit_request()),
        more("number", t.events_number()),
    ]
}

fn filter(
    visit: &RequestContext,
    headers: &HeaderMap,
    state: &TableState,
    columns: &[TableColumn],
) -> FilterBar {
    let t = visit.text;
    let words = FilterWords {
        table: "audit",
        path: PATH,
        hint: t.audit_filter_hint(),
        label: t.audit_filter(),
        shipped: &[
            (t.audit_view_all(), ""),
            (t.audit_view_failed(), "act=sign-in.failed&since=30d"),
            (t.audit_view_refused(), "act=request&since=30d"),
        ],
        examples: &[
            ("user:mina", t.events_help_user()),
            ("act:session.entered", t.audit_help_act()),
            ("object:train-1", t.audit_help_object()),
            ("since:2h", t.events_help_since()),
            ("until:2026-01-31", t.events_help_until()),
        ],
    };
    FilterBar {
        pickers: vec![
            FilterPicker {
                name: "act",
                label: t.audit_act().to_owned(),
                choices: acts(t, state.filter("act")),
            },
            FilterPicker {
                name: "since",
                label: t.events_since().to_owned(),
                choices: events::times(t, state.filter("since")),
            },
        ],
        hidden: Vec::new(),
        ..filter_bar(visit, headers, state, columns, &words)
    }
}

fn acts(t: Text, chosen: &str) -> Vec<Choice> {
    let offered = ACTS.map(|act| (act, act_group(t, act)));
    Choice::of_filter(t.audit_every_act(), offered, chosen)
}

fn act_group(t: Text, act: &str) -> &'static str {
    match act {
        "sign-in" => t.audit_sign_ins(),
        "session" => t.nav_sessions(),
        "user" => t.events_users(),
        "project" => t.projects_title(),
        "token" => t.me_tokens(),
        "key" => t.access_keys_title(),
        "ssh-key" => t.ssh_keys_title(),
        _ => t.audit_refusals(),
    }
}

/// A field of an act.
fn cell(visit: &RequestContext, key: &str, act: &AuditEntryView, found: &FoundAudit) -> TableCell {
    let t = visit.text;
    match key {
        "when" => TableCell::text(when(visit, act)),
        "user" => TableCell::text(actor(t, act)),
        "what" => {
            let (tone, text) = what(t, act);
            TableCell::Dot {
                tone,
                text,
                note: act.act.clone(),
            }
        }
        "object" => match events::object(&audit::as_event(act), &found.page.names, events::short) {
            (text, _) if text.is_empty() => TableCell::Empty,
            (text, Some(href)) => TableCell::Link {
                href,
                text,
                note: String::new(),
            },
            (text, None) => TableCell::Code(text),
        },
        "detail" => TableCell::text(detail(visit, act)),
        "address" => TableCell::text(act.address.clone()),
        "via" => TableCell::text(via(t, &act.via)),
        "domain" => TableCell::text(act.domain.clone().unwrap_or_default()),
        "project" => TableCell::text(act.project.clone().unwrap_or_default()),
        "id" if act.object.is_empty() => TableCell::Empty,
        "id" => TableCell::Code(act.object.clone()),
        "request" if act.request.is_empty() => TableCell::Empty,
        "request" => TableCell::Code(act.request.clone()),
        "number" => TableCell::text(act.sequence.to_string()),
        _ => TableCell::Empty,
    }
}

/// When it was, by the reader's clock, to the second.
pub(super) fn when(visit: &RequestContext, act: &AuditEntryView) -> String {
    format!("{} {}", visit.clock.day(act.at), visit.clock.second(act.at))
}

fn actor(t: Text, act: &AuditEntryView) -> String {
    match act.actor.as_str() {
        "" => t.audit_nobody().to_owned(),
        _ => event_words::actor(t, &audit::as_event(act)),
    }
}

/// The tone and the words of an act. Tones are those of events: `w` for what was refused, `b` for what failed.
pub(super) fn what(t: Text, act: &AuditEntryView) -> (&'static str, String) {
    let own = match act.act.as_str() {
        "sign-in.succeeded" => Some(("", t.audit_signed_in())),
        "sign-in.failed" => Some(("b", t.audit_sign_in_failed())),
        rules::codes::SIGN_IN_ENDED => Some(("i", t.audit_signed_out())),
        "session.entered" => Some(("i", t.audit_entered())),
        "session.log-read" => Some(("i", t.audit_log_read())),
        "request.refused" => Some(("w", t.audit_refused())),
        "server.changed" => Some(("i", t.audit_changed())),
        "audit.exported" => Some(("i", t.audit_exported())),
        "audit.signed" => Some(("i", t.audit_signed_now())),
        "backup.passphrase-set" => Some(("i", t.audit_passphrase_set())),
        "user.second-factor-begun" => Some(("i", t.audit_factor_begun())),
        "state.accepted" => Some(("w", t.audit_state_accepted())),
        _ => None,
    };
    if let Some((tone, words)) = own {
        return (tone, words.to_owned());
    }
    let (tone, words) = events::words(t, &act.act);
    (tone, words.map_or_else(|| act.act.clone(), str::to_owned))
}

/// What changed, or why it was refused and how often.
pub(super) fn detail(visit: &RequestContext, act: &AuditEntryView) -> String {
    let t = visit.text;
    match (act.reason.as_str(), act.after.as_str()) {
        ("", times) if COUNTED.contains(&act.act.as_str()) && !times.is_empty() => {
            t.audit_more(times)
        }
        ("", count) if act.act == "audit.exported" && count.parse::<u64>().is_ok() => {
            t.audit_exported_acts(count)
        }
        // The one request that often changes rows without an act of its own.
        ("", "set preferences") => t.me_preferences().to_owned(),
        ("", _) => events::detail(visit, &audit::as_event(act)),
        (reason, "") => because(t, reason),
        (reason, times) => format!("{} · {}", because(t, reason), t.audit_more(times)),
    }
}

/// Why an act was refused: its code, or words where only the status of the answer is known.
fn because(t: Text, reason: &str) -> String {
    match reason.strip_prefix("http.") {
        Some(status) if status.starts_with('5') => t.audit_status_failed(status),
        Some(status) => t.audit_status_refused(status),
        None => reason.to_owned(),
    }
}

fn via(t: Text, word: &str) -> &'static str {
    match word {
        "browser" => t.audit_via_browser(),
        "token" => t.audit_via_token(),
        "ssh-key" => t.audit_via_ssh_key(),
        "session" => t.audit_via_session(),
        "socket" => t.audit_via_socket(),
        "server" => t.audit_via_server(),
        _ => t.audit_via_none(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Extensions;

    use super::*;

    fn asked(query: &[(&str, &str)]) -> Result<AuditQuery, String> {
        let visit = RequestContext::of(&HeaderMap::new(), &Extensions::new(), PATH.into());
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let pairs: Vec<(String, String)> = query.iter().map(own).collect();
        let state = TableState::read(PATH, &FILTERS, &pairs);
        wanted(&visit, &state, Timestamp::from_millis(100_000_000))
    }

    fn entry(act: &str) -> AuditEntryView {
        AuditEntryView {
            sequence: 1,
            at: Timestamp::default(),
            actor: "mina".into(),
            actor_id: None,
            via: "browser".into(),
            credential: None,
            address: String::new(),
            act: act.into(),
            topic: "users".into(),
            object: String::new(),
            domain: None,
            project: None,
            before: String::new(),
            after: String::new(),
            reason: String::new(),
            request: String::new(),
        }
    }

    #[test]
    fn words_of_the_filter_choose_user_act_object_and_time() {
        let read = asked(&[
            ("q", "mina object:train-1 until:1h"),
            ("act", "session"),
            ("since", "2h"),
        ])
        .expect("a query");
        assert_eq!((read.user.as_str(), read.act.as_str()), ("mina", "session"));
        assert_eq!(read.object, "train-1");
        // The minute in which it was.
        assert_eq!(read.since, Some(Timestamp::from_millis(92_760_000)));
        assert_eq!(read.until, Some(Timestamp::from_millis(96_419_999)));
        assert!(asked(&[("q", "since:yesterday")]).is_err());
        assert_eq!(place("1800000000000-17"), Some((1_800_000_000_000, 17)));
        for odd in ["", "-", "17", "a-b"] {
            assert_eq!(place(odd), None);
        }
    }

    #[test]
    fn a_place_that_takes_rows_again_is_no_warning_of_what_was_lost() {
        let visit = RequestContext::of(&HeaderMap::new(), &Extensions::new(), PATH.into());
        for (problem, lost, tone) in [("", 0, "ok"), ("", 2, "dim"), ("full", 2, "warn")] {
            let row = target_row(
                &visit,
                AuditTargetView {
                    target: "file".into(),
                    place: "/var/log/audit.jsonl".into(),
                    delivered: 9,
                    delivered_at: Some(Timestamp::default()),
                    waiting: 0,
                    lost,
                    problem: problem.into(),
                    problem_since: Some(Timestamp::default()).filter(|_| !problem.is_empty()),
                },
            );
            assert_eq!(row.tone, tone);
            assert_eq!(row.lost.is_empty(), lost == 0);
        }
    }

    #[test]
    fn a_status_without_a_code_is_told_in_words() {
        let visit = RequestContext::of(&HeaderMap::new(), &Extensions::new(), PATH.into());
        let told = |reason: &str, after: &str| {
            let act = AuditEntryView {
                reason: reason.into(),
                after: after.into(),
                ..entry("request.refused")
            };
            detail(&visit, &act)
        };
        assert_eq!(told("http.422", ""), "refused with status 422");
        assert_eq!(told("http.500", ""), "failed with status 500");
        assert_eq!(told("user.stale", ""), "user.stale");
        assert!(told("http.404", "3").starts_with("refused with status 404 · 3"));
    }

    #[test]
    fn what_was_refused_or_failed_has_no_dot_of_what_went_well() {
        let style = include_str!("../../../web/assets/css/console.css");
        for (act, tone) in [
            ("request.refused", "w"),
            ("sign-in.failed", "b"),
            ("state.accepted", "w"),
            ("session.log-read", "i"),
        ] {
            assert_eq!(what(Text::default(), &entry(act)).0, tone, "{act}");
            let rule = format!(".dot.{tone}{{background:");
            assert!(style.contains(&rule), "no colour for {tone}");
        }
    }
}
