//! `/events`: the table of what happened, by kind, object, user, time and words, and as a file for a spreadsheet. The
//! list follows the server.

use std::collections::{BTreeMap, BTreeSet};

use api::events::EventView;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use rules::units::Timestamp;
use server::Failure;
use server::access::Caller;
use server::actions::journal::{self, EventPage, JournalQuery};
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
use super::{PagesContext, event_words, layout, live as stream, presenter, responses};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/events.html", blocks = ["list"])]
pub struct EventsPage {
    pub t: Text,
    pub f: PageLayout,
    pub filter: FilterBar,
    pub table: DataTable,
}

impl ListPage for EventsPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        self.f.live.as_deref()
    }
}

/// Where the list is.
const PATH: &str = "/events";
/// The parts of an address that choose events. `before` begins at an older part of the journal.
const FILTERS: [&str; 4] = ["q", "kind", "since", "before"];
/// Filters that had boxes of their own; the words of the filter say the same.
const FORMER: [&str; 3] = ["object", "user", "until"];
/// Times that the filter offers.
const SINCE: [&str; 4] = ["1h", "1d", "7d", "30d"];
/// Topics that a filter offers, in the order of the list.
const TOPICS: [&str; 8] = [
    "sessions",
    "images",
    "gpus",
    "nodes",
    "users",
    "projects",
    "operations",
    "system",
];
/// Milliseconds that a time ago is rounded to.
const MINUTE: i64 = 60_000;
/// Characters of a state or reason that a row shows; the file has all of them.
const DETAIL: usize = 160;

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/events", get(show))
        .route("/events/live", get(live))
        .route("/events.csv", get(export))
}

type AskedEvents = Query<Vec<(String, String)>>;

/// What the words of the filter ask for, or what cannot be read of them.
///
/// `kind:`, `object:`, `user:`, `since:` and `until:` look there; other words stand anywhere in an event.
fn wanted(
    visit: &RequestContext,
    state: &TableState,
    now: Timestamp,
) -> Result<JournalQuery, String> {
    let mut wanted = JournalQuery {
        kind: state.filter("kind").to_owned(),
        before: state.filter("before").parse().ok(),
        offset: state.offset(),
        ..JournalQuery::default()
    };
    let read = |typed: &str, ends: bool| {
        moment(visit, typed, ends, now).ok_or_else(|| visit.text.events_time_unread(typed))
    };
    let since = state.filter("since");
    if !since.is_empty() {
        wanted.since = Some(read(since, false)?);
    }
    for word in state.filter("q").split_whitespace() {
        match word.split_once(':') {
            Some(("kind", kind)) => kind.clone_into(&mut wanted.kind),
            Some(("object", object)) => object.clone_into(&mut wanted.object),
            Some(("user", user)) => user.clone_into(&mut wanted.user),
            Some(("since", typed)) => wanted.since = Some(read(typed, false)?),
            Some(("until", typed)) => wanted.until = Some(read(typed, true)?),
            _ => wanted.words.push(word.to_owned()),
        }
    }
    Ok(wanted)
}

/// A time as users write it: `30m`, `2h` or `7d` ago, a day, or a day with a time. A day alone as an end is its end. A time
/// ago moves once a minute and no more often: an equal search within one is the same, which the server keeps.
pub(super) fn moment(
    visit: &RequestContext,
    typed: &str,
    ends: bool,
    now: Timestamp,
) -> Option<Timestamp> {
    let seconds = |unit| match unit {
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        _ => None,
    };
    if let Some(last) = typed.chars().last()
        && let Some(unit) = seconds(last)
    {
        let number: u32 = typed[..typed.len() - 1].parse().ok()?;
        let back = i64::from(number) * unit * 1000;
        let at = now.as_millis() - back;
        let minute = at - at.rem_euclid(MINUTE);
        return Some(Timestamp::from_millis(match ends {
            true => minute + MINUTE - 1,
            false => minute,
        }));
    }
    let at = visit.clock.read(typed)?;
    match ends && !typed.contains('T') {
        true => Some(Timestamp::from_millis(
            at.plus_seconds(86_400).as_millis() - 1,
        )),
        false => Some(at),
    }
}

/// Where an address with the filters of former releases leads: the same as words.
fn former(asked: &[(String, String)]) -> Option<String> {
    let said = |wanted: &str| {
        let found = asked.iter().find(|(name, _)| name == wanted);
        found.map_or("", |(_, value)| value.trim())
    };
    let old: Vec<String> = FORMER
        .iter()
        .filter(|name| !said(name).is_empty())
        .map(|name| format!("{name}:{}", said(name)))
        .collect();
    if old.is_empty() {
        return None;
    }
    let state = TableState::read(PATH, &FILTERS, asked);
    let q = format!("{} {}", state.filter("q"), old.join(" "));
    Some(state.with_filter("q", q.trim()).address())
}

/// `GET /events`: the page, or the list alone for the page's own script.
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedEvents,
) -> Response {
    if let Some(place) = former(&asked) {
        return responses::see(&place);
    }
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = read(&console, &visit, &caller, &headers, &asked).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

/// `GET /events/live`: the events of the filter as they come.
async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedEvents,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let (headers, asked) = (headers.clone(), asked.clone());
        async move {
            let page = read(&console, &visit, &caller, &headers, &asked)
                .await
                .ok()?;
            Some(vec![
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("list", page.as_list().render().ok()?),
            ])
        }
    })
}

/// `GET /events.csv`: what the filter finds, with the columns that are shown, at most 10,000 events.
async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedEvents,
) -> Response {
    let t = visit.text;
    let mut columns = columns(t);
    name_times(t, &mut columns, &[("when", t.events_when())]);
    let mut state = TableState::read(PATH, &FILTERS, &asked);
    state.choose_columns("events", &columns, &asked, &headers, &visit);
    let now = console.server.clock().now();
    let wanted = JournalQuery {
        before: None,
        offset: 0,
        // What cannot be read was said on the page.
        ..wanted(&visit, &state, now).unwrap_or_default()
    };
    match journal::export(&console.server, &caller, wanted).await {
        Ok(found) => file(
            &visit,
            "events",
            &state,
            &columns,
            &found.items,
            |event, key| match key {
                // A file is read by programs as well.
                "when" => TableCell::text(event.at.to_string()),
                "object" => TableCell::Code(object(event, &found.names, str::to_owned).0),
                "detail" => TableCell::text(event_words::detail(t, &visit.clock, event)),
                key => cell(&visit, key, event, &found),
            },
        ),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Events);
    responses::failure(console, visit, Some(frame), failure)
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<EventsPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.choose_columns("events", &columns, asked, headers, visit);
    let (found, fault) = match wanted(visit, &state, now) {
        Ok(wanted) => (journal::page(&console.server, caller, wanted).await?, None),
        Err(fault) => (EventPage::default(), Some(fault)),
    };
    // Accounts that the reader may look at; what the server did itself has no page.
    let accounts = users::list(&console.server, caller).await;
    let accounts: BTreeMap<String, String> = accounts
        .unwrap_or_default()
        .into_iter()
        .map(|user| (user.id.to_string(), user.name.to_string()))
        .collect();
    let names: BTreeSet<&str> = accounts.values().map(String::as_str).collect();
    let page_of = |name: &str| TableCell::Link {
        href: format!("/users/{}", responses::encoded(name)),
        text: name.to_owned(),
        note: String::new(),
    };
    let rows = found.items.iter().map(|event| TableLine {
        id: format!("e-{}", event.sequence),
        mark: None,
        cells: state
            .columns
            .iter()
            .map(|key| match (*key, accounts.get(&event.object)) {
                ("user", _) if names.contains(event.actor.as_str()) => page_of(&event.actor),
                ("object", Some(name)) if event.topic == "users" => page_of(name),
                (key, _) => cell(visit, key, event, &found),
            })
            .collect(),
        action: None,
    });
    let empty = EmptyTable {
        icon: "history",
        title: match fault {
            Some(_) => t.table_unread(),
            None => t.events_none(),
        }
        .to_owned(),
        lead: match (&fault, found.before) {
            (Some(_), _) => t.table_unread_lead(),
            (None, Some(_)) => t.events_none_here(),
            (None, None) => t.events_none_lead(),
        }
        .to_owned(),
        href: PATH.to_owned(),
        go: match state.filtered() {
            true => t.events_clear().to_owned(),
            false => String::new(),
        },
    };
    let mut table = DataTable::new(t, &state, &columns, "", rows.collect(), found.count, empty);
    if found.before.is_some() && !table.rows.is_empty() {
        table.range = t.events_range_here(&table.range);
    }
    if let Some(before) = found.before {
        let older = state.with_filter("before", &before.to_string());
        table.other = Some((older.address(), t.events_older_part().to_owned()));
    }
    if table.previous.is_none() && !state.filter("before").is_empty() {
        table.previous = Some(state.with_filter("before", "").address());
    }
    table.csv = (!table.rows.is_empty()).then(|| state.beside("/events.csv"));
    table.fault = fault;
    Ok(EventsPage {
        t,
        f: PageLayout {
            live: Some(state.beside("/events/live")),
            ..layout(console, visit, caller, Nav::Events)
        },
        filter: filter(visit, headers, &state, &columns),
        table,
    })
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
        TableColumn::new("what", t.events_what())
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("object", t.events_object()).class("why"),
        TableColumn::new("user", t.events_user()).class("below"),
        TableColumn::new("detail", t.events_detail()).class("below detail"),
        more("kind", t.events_kind()),
        more("id", "ID"),
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
        table: "events",
        path: PATH,
        hint: t.events_filter_hint(),
        label: t.events_filter(),
        shipped: &[
            (t.events_view_all(), ""),
            (t.events_view_sessions(), "kind=sessions&since=1d"),
            (t.events_view_changes(), "kind=system&since=30d"),
        ],
        examples: &[
            ("oom", t.events_help_word()),
            ("kind:session.ended", t.events_help_kind()),
            ("object:train-1", t.events_help_object()),
            ("user:mina", t.events_help_user()),
            ("since:2h", t.events_help_since()),
            ("until:2026-01-31", t.events_help_until()),
        ],
    };
    FilterBar {
        pickers: vec![
            FilterPicker {
                name: "kind",
                label: t.events_kind().to_owned(),
                choices: kinds(t, state.filter("kind")),
            },
            FilterPicker {
                name: "since",
                label: t.events_since().to_owned(),
                choices: times(t, state.filter("since")),
            },
        ],
        hidden: Vec::new(),
        ..filter_bar(visit, headers, state, columns, &words)
    }
}

fn kinds(t: Text, chosen: &str) -> Vec<Choice> {
    let offered = TOPICS.map(|topic| (topic, topic_word(t, topic)));
    Choice::of_filter(t.events_every_kind(), offered, chosen)
}

pub(super) fn times(t: Text, chosen: &str) -> Vec<Choice> {
    let words = [
        t.events_hour(),
        t.events_day(),
        t.events_week(),
        t.events_month(),
    ];
    Choice::of_filter(t.events_any_time(), SINCE.into_iter().zip(words), chosen)
}

fn topic_word(t: Text, topic: &str) -> &'static str {
    match topic {
        "sessions" => t.nav_sessions(),
        "images" => t.nav_images(),
        "gpus" => t.nav_gpus(),
        "nodes" => t.events_nodes(),
        "users" => t.events_users(),
        "projects" => t.projects_title(),
        "operations" => t.events_operations(),
        _ => t.nav_system(),
    }
}

/// A field of an event.
fn cell(visit: &RequestContext, key: &str, event: &EventView, found: &EventPage) -> TableCell {
    match key {
        "when" => TableCell::text(format!(
            "{} {}",
            visit.clock.day(event.at),
            visit.clock.second(event.at)
        )),
        "what" => {
            let (tone, what) = words(visit.text, &event.code);
            TableCell::Dot {
                tone,
                text: what.map_or_else(|| event.code.clone(), str::to_owned),
                note: event.code.clone(),
            }
        }
        "object" => match object(event, &found.names, short) {
            (text, Some(href)) => TableCell::Link {
                href,
                text,
                note: String::new(),
            },
            (text, None) => TableCell::Code(text),
        },
        "user" => TableCell::text(event_words::actor(visit.text, event)),
        "detail" => TableCell::text(detail(visit, event)),
        "kind" => TableCell::text(topic_word(visit.text, &event.topic)),
        "id" => TableCell::Code(event.object.clone()),
        "number" => TableCell::text(event.sequence.to_string()),
        _ => TableCell::Empty,
    }
}

/// The name of what an event is about, and where it is shown. `cut` says how an id without a name is told: a row shows the
/// beginning of a long one, a file has all of it.
pub(super) fn object(
    event: &EventView,
    names: &BTreeMap<String, String>,
    cut: fn(&str) -> String,
) -> (String, Option<String>) {
    let id = &event.object;
    match event.topic.as_str() {
        "sessions" => match names.get(id) {
            Some(name) => (name.clone(), Some(format!("/sessions/{id}"))),
            None => (cut(id), None),
        },
        "gpus" => (cut(id), Some(format!("/gpus/{}", responses::encoded(id)))),
        "nodes" => (
            id.clone(),
            Some(format!("/nodes/{}", responses::encoded(id))),
        ),
        "images" => {
            let name = names.get(id).cloned();
            let place = match event.code.as_str() {
                "image.removed" => "/images".to_owned(),
                code if code.starts_with("environment.") => {
                    return (id.clone(), Some("/environments".to_owned()));
                }
                _ => format!("/images/{}", responses::encoded(id)),
            };
            (name.unwrap_or_else(|| cut(id)), Some(place))
        }
        // An account that the reader may look at is a link, which the caller of this makes.
        "users"
            if matches!(
                event.code.as_str(),
                "user.asked"
                    | "user.request-declined"
                    | "user.request-reopened"
                    | "user.sign-up-set"
            ) =>
        {
            (cut(id), Some("/sign-ups".to_owned()))
        }
        "users" => match names.get(id) {
            Some(name) => (name.clone(), None),
            None => (cut(id), None),
        },
        "projects" if event.code.starts_with("project.") || event.code == "storage.warned" => {
            let name = names.get(id).cloned();
            (
                name.unwrap_or_else(|| cut(id)),
                Some(format!("/projects/{id}")),
            )
        }
        "system" if event.code.starts_with("policy.") => {
            (id.clone(), Some(format!("/policies/{id}")))
        }
        "system" if event.code.starts_with("budget.") => (cut(id), Some("/budgets".to_owned())),
        "system" if event.code.starts_with("reservation.") => {
            (id.clone(), Some("/reservations".to_owned()))
        }
        "system" if event.code.starts_with("course.") => (id.clone(), Some("/courses".to_owned())),
        "system" if event.code.starts_with("folder.") => (id.clone(), Some("/folders".to_owned())),
        "system" if event.code.starts_with("preset.") => (id.clone(), Some("/presets".to_owned())),
        "system" if event.code == "audit.rows-lost" => {
            (id.clone(), Some("/audit#targets".to_owned()))
        }
        "system" if event.code.starts_with("group.") => (id.clone(), Some("/groups".to_owned())),
        "system" if event.code == "month.closed" => {
            (id.clone(), Some(format!("/statements?month={id}")))
        }
        "system" if event.code == "prices.changed" => (id.clone(), Some("/statements".to_owned())),
        "system" if event.code.starts_with("allowance.") => {
            (id.clone(), Some("/allowances".to_owned()))
        }
        "system" if event.code.starts_with("idle-rule.") => {
            (id.clone(), Some("/idle-rules".to_owned()))
        }
        "system" if event.code.starts_with("announcement.") => {
            (id.clone(), Some("/announcements".to_owned()))
        }
        "system" if event.code == "holiday.changed" => (id.clone(), Some("/holidays".to_owned())),
        "system" if event.code == "branding.changed" => {
            (id.clone(), Some("/system/branding".to_owned()))
        }
        "system" if event.code.starts_with("volume.") => (id.clone(), Some("/storage".to_owned())),
        "system" if event.code == "pool.grown" => (id.clone(), Some("/storage".to_owned())),
        "system" if event.code.starts_with("webhook.") => {
            (id.clone(), Some("/system/webhooks".to_owned()))
        }
        "system" if event.code == "settings.changed" => {
            (id.clone(), Some(format!("/system/settings#{id}")))
        }
        _ => (cut(id), None),
    }
}

/// The beginning of a long id.
pub(super) fn short(id: &str) -> String {
    match id.char_indices().nth(24) {
        Some((at, _)) => format!("{}…", &id[..at]),
        None => id.to_owned(),
    }
}

pub(super) fn detail(visit: &RequestContext, event: &EventView) -> String {
    let all = event_words::detail(visit.text, &visit.clock, event);
    match all.char_indices().nth(DETAIL) {
        Some((at, _)) => format!("{}…", &all[..at]),
        None => all,
    }
}

/// The tone and the words of a code; None where no catalogue has it.
pub(super) fn words(t: Text, code: &str) -> (&'static str, Option<&'static str>) {
    if let Some((tone, what)) = presenter::happening(t, code) {
        return (tone, Some(what));
    }
    if code == "audit.rows-lost" {
        return ("w", Some(t.events_rows_lost()));
    }
    if matches!(code, "session.break-glass" | "folder.break-glass") {
        return ("w", Some(t.events_break_glass()));
    }
    let what = match code {
        "session.scheduled" => t.events_placed(),
        "session.preparing" => t.timeline_prepared(),
        "session.changed" => t.events_changed(),
        "session.pending" => t.events_waits_again(),
        "session.deleted" => t.events_deleted(),
        "session.labelled" => t.events_labelled(),
        "approval.asked" => t.events_approval_asked(),
        "approval.released" => t.events_approval_released(),
        "approval.declined" => t.events_approval_declined(),
        "approval.four-eyes-set" => t.events_four_eyes_set(),
        "session.break-glass-ended" | "folder.break-glass-ended" => t.events_break_glass_ended(),
        "image.imported" => t.events_image_imported(),
        "image.removed" => t.events_image_removed(),
        "environment.imported" => t.events_image_imported(),
        "environment.removed" => t.events_image_removed(),
        "image.committed" => t.events_image_committed(),
        "image.shared" => t.events_image_shared(),
        "image.unshared" => t.events_image_unshared(),
        "image.limited" => t.events_image_limited(),
        "gpu.cordoned" => t.events_gpu_cordoned(),
        "gpu.uncordoned" => t.events_gpu_uncordoned(),
        "gpu.partitioned" => t.events_gpu_partitioned(),
        "gpu.tested" => t.events_gpu_tested(),
        rules::codes::SESSION_DEVICE_DRAINED => t.events_device_drained(),
        "node.maintenance-began" => t.events_maintenance_began(),
        "node.maintenance-ended" => t.events_maintenance_ended(),
        "user.added" => t.events_user_added(),
        "user.removed" => t.events_user_removed(),
        "user.changed" => t.events_user_changed(),
        rules::codes::USER_SUSPENDED => t.events_user_suspended(),
        "user.admitted" => t.events_user_admitted(),
        "user.role-set" | "user.role-granted" | "user.role-revoked" => t.events_user_role(),
        "domain.added" => t.events_domain_added(),
        "domain.changed" => t.events_domain_changed(),
        "project.added" => t.events_project_added(),
        "project.changed" => t.events_project_changed(),
        "project.state-set" => t.events_project_state(),
        "project.member-set" => t.events_member_set(),
        "project.invited" => t.events_invited(),
        "project.invitation-revoked" => t.events_invitation_revoked(),
        "user.joined" => t.events_user_joined(),
        "user.end-set" => t.events_user_end_set(),
        "user.account-ended" => t.events_account_ended(),
        "user.asked" => t.events_user_asked(),
        "user.request-declined" => t.events_request_declined(),
        "user.request-reopened" => t.events_request_reopened(),
        "user.sign-up-set" => t.events_sign_up_set(),
        "user.sign-in-link-made" => t.events_link_made(),
        "user.sign-in-link-revoked" => t.events_link_revoked(),
        "user.sign-in-link-used" => t.events_link_used(),
        "user.departed" => t.events_user_departed(),
        "user.signed-in-elsewhere" => t.events_signed_in_elsewhere(),
        "user.limit-asked" => t.events_limit_asked(),
        "user.limit-withdrawn" => t.events_limit_withdrawn(),
        "user.limit-declined" => t.events_limit_declined(),
        "budget.added" => t.events_budget_added(),
        "budget.changed" => t.events_budget_changed(),
        "budget.warned" => t.events_budget_warned(),
        "storage.warned" => t.events_storage_warned(),
        "budget.removed" => t.events_budget_removed(),
        "project.quota-set" => t.events_project_quota(),
        "reservation.booked" => t.events_reservation_booked(),
        "reservation.asked" => t.events_reservation_asked(),
        "reservation.approved" => t.events_reservation_approved(),
        "reservation.refused" => t.events_reservation_refused(),
        "reservation.expired" => t.events_reservation_expired(),
        "reservation.withdrawn" => t.events_reservation_withdrawn(),
        "reservation.changed" => t.events_reservation_changed(),
        "reservation.handed-over" => t.events_reservation_handed_over(),
        "reservation.cancelled" => t.events_reservation_cancelled(),
        "reservation.moved" => t.events_reservation_moved(),
        "reservation.short" => t.events_reservation_short(),
        "month.closed" => t.events_month_closed(),
        "prices.changed" => t.events_prices_changed(),
        "course.added" => t.events_course_added(),
        "course.changed" => t.events_course_changed(),
        "course.opened" => t.events_course_opened(),
        "course.withdrawn" => t.events_course_withdrawn(),
        "course.began" => t.events_course_began(),
        "course.warned" => t.events_course_warned(),
        "course.closed" => t.events_course_closed(),
        "course.sessions-stopped" => t.events_course_sessions(),
        "course.archived" => t.events_course_archived(),
        "course.removed" => t.events_course_removed(),
        "course.started" => t.events_course_started(),
        "course.stopped" => t.events_course_stopped(),
        "course.extended" => t.events_course_extended(),
        "course.told" => t.events_course_told(),
        "course.message" => t.events_course_message(),
        "group.added" => t.events_group_added(),
        "group.changed" => t.events_group_changed(),
        "group.removed" => t.events_group_removed(),
        "group.nodes" => t.events_group_nodes(),
        "group.access" => t.events_group_access(),
        "group.windows" => t.events_group_windows(),
        "app.not-begun" => t.events_app_not_begun(),
        "app.share-added" => t.events_app_share_added(),
        "app.share-removed" => t.events_app_share_removed(),
        "folder.added" => t.events_folder_added(),
        "folder.files-changed" => t.events_folder_files_changed(),
        "folder.renamed" => t.events_folder_renamed(),
        "folder.trashed" => t.events_folder_trashed(),
        "folder.restored" => t.events_folder_restored(),
        "folder.purged" => t.events_folder_purged(),
        "folder.purge-asked" => t.events_folder_purge_asked(),
        "folder.trash-gave-way" => t.events_folder_trash_gave_way(),
        "folder.limit-set" => t.events_folder_limit_set(),
        "folder.shared" => t.events_folder_shared(),
        "folder.unshared" => t.events_folder_unshared(),
        "folder.share-accepted" => t.events_folder_share_accepted(),
        "folder.share-declined" => t.events_folder_share_declined(),
        "folder.share-ended" => t.events_folder_share_ended(),
        "folder.snapshot-made" => t.events_folder_snapshot_made(),
        "folder.snapshot-removed" => t.events_folder_snapshot_removed(),
        "folder.snapshot-restored" => t.events_folder_snapshot_restored(),
        "folder.snapshot-schedule-set" => t.events_folder_snapshot_schedule_set(),
        "folder.cloned" => t.events_folder_cloned(),
        "folder.members-set" => t.events_folder_members_set(),
        "folder.cloning-set" => t.events_folder_cloning_set(),
        "folder.offered" => t.events_folder_offered(),
        "folder.offer-withdrawn" => t.events_folder_offer_withdrawn(),
        "folder.transfer-accepted" => t.events_folder_transfer_accepted(),
        "folder.transfer-declined" => t.events_folder_transfer_declined(),
        "folder.transferred" => t.events_folder_transferred(),
        "folder.left" => t.events_folder_left(),
        "preset.added" => t.events_preset_added(),
        "preset.changed" => t.events_preset_changed(),
        "preset.removed" => t.events_preset_removed(),
        "idle-rule.added" => t.events_idle_rule_added(),
        "idle-rule.changed" => t.events_idle_rule_changed(),
        "idle-rule.removed" => t.events_idle_rule_removed(),
        "announcement.added" => t.events_announcement_added(),
        "announcement.changed" => t.events_announcement_changed(),
        "announcement.removed" => t.events_announcement_removed(),
        "mail.tested" => t.events_mail_tested(),
        "mail.retried" => t.events_mail_retried(),
        "branding.changed" => t.events_branding_changed(),
        "holiday.changed" => t.events_holiday_changed(),
        "volume.added" => t.events_volume_added(),
        "volume.changed" => t.events_volume_changed(),
        "volume.removed" => t.events_volume_removed(),
        "volume.state" => t.events_volume_state(),
        "pool.grown" => t.events_pool_grown(),
        "webhook.added" => t.events_webhook_added(),
        "webhook.changed" => t.events_webhook_changed(),
        "webhook.removed" => t.events_webhook_removed(),
        "webhook.tested" => t.events_webhook_tested(),
        "user.mail-chosen" => t.events_mail_chosen(),
        "queue.order-changed" => t.events_queue_order(),
        "queue.weight-changed" => t.events_queue_weight(),
        "allowance.added" => t.events_allowance_added(),
        "allowance.removed" => t.events_allowance_removed(),
        "allowance.ended" => t.events_allowance_ended(),
        "session.connected" => t.events_connected(),
        "session.connection-refused" => t.events_connection_refused(),
        "session.connection-ended" => t.events_connection_ended(),
        "policy.added" => t.events_policy_added(),
        "policy.changed" => t.events_policy_changed(),
        "policy.removed" => t.events_policy_removed(),
        "policy.attached" => t.events_policy_attached(),
        "policy.detached" => t.events_policy_detached(),
        "project.member-removed" => t.events_member_removed(),
        "user.password-set" | "user.password-changed" => t.events_user_password(),
        "user.networks-set" => t.events_networks(),
        "user.sign-in-ended" => t.events_sign_in_ended(),
        "user.second-factor-set" => t.events_factor_set(),
        "user.second-factor-off" => t.events_factor_off(),
        "user.second-factor-reset" => t.events_factor_reset(),
        "user.recovery-codes-made" => t.events_recovery_codes(),
        "user.recovery-code-used" => t.events_recovery_code_used(),
        "token.made" => t.events_token_made(),
        "key.made" => t.events_key_made(),
        "key.revoked" => t.events_key_revoked(),
        "ssh-key.added" => t.events_ssh_key_added(),
        "ssh-key.removed" => t.events_ssh_key_removed(),
        "dotfile.changed" => t.events_dotfile_changed(),
        "dotfile.removed" => t.events_dotfile_removed(),
        "startup-script.changed" => t.events_startup_script_changed(),
        "startup-script.removed" => t.events_startup_script_removed(),
        "variable.changed" => t.events_variable_changed(),
        "variable.removed" => t.events_variable_removed(),
        rules::codes::TOKEN_REVOKED => t.events_token_revoked(),
        rules::codes::SIGN_IN_LOCKED => t.events_locked(),
        "operation.accepted" => t.events_operation_accepted(),
        "operation.succeeded" => t.events_operation_succeeded(),
        "operation.failed" => t.events_operation_failed(),
        "operation.cancelled" => t.events_operation_cancelled(),
        rules::codes::SETUP_DONE | "installation.finished" => t.events_set_up(),
        "settings.changed" => t.events_setting(),
        "settings.read-again" => t.events_settings_reloaded(),
        "backup.made" => t.events_backup(),
        "backup.taken" => t.events_backup_taken(),
        rules::codes::BACKUP_FAILED => t.events_backup_failed(),
        "support.bundle-made" => t.events_bundle(),
        "tls.imported" | "tls.reset" | "tls.requested" => t.events_certificate(),
        _ => return ("i", None),
    };
    ("i", Some(what))
}

#[cfg(test)]
mod tests {
    use axum::http::Extensions;

    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        query.iter().map(own).collect()
    }

    fn asked(query: &[(&str, &str)]) -> Result<JournalQuery, String> {
        asked_at(query, 100_000_000)
    }

    fn asked_at(query: &[(&str, &str)], now: i64) -> Result<JournalQuery, String> {
        let visit = RequestContext::of(&HeaderMap::new(), &Extensions::new(), PATH.into());
        let state = TableState::read(PATH, &FILTERS, &pairs(query));
        wanted(&visit, &state, Timestamp::from_millis(now))
    }

    #[test]
    fn a_time_ago_is_the_same_within_a_minute_and_hides_no_event() {
        let q = [("q", "since:2h until:5m")];
        let first = asked_at(&q, 100_020_000).expect("a query");
        let again = asked_at(&q, 100_079_999).expect("a query");
        // The key of a kept page.
        assert_eq!(format!("{first:?}"), format!("{again:?}"));
        let later = asked_at(&q, 100_080_000).expect("a query");
        assert_ne!(format!("{first:?}"), format!("{later:?}"));
        let since = again.since.expect("a time").as_millis();
        assert!(since <= 100_079_999 - 7_200_000, "it begins no later");
        let until = again.until.expect("a time").as_millis();
        assert!(until >= 100_079_999 - 300_000, "and ends no sooner");
    }

    #[test]
    fn words_of_the_filter_look_in_one_property_or_anywhere() {
        let read = asked(&[
            ("q", "oom user:mina object:train-1 pytorch:2.9"),
            ("kind", "sessions"),
            ("since", "1h"),
            ("page", "2"),
        ])
        .expect("a query");
        assert_eq!(
            (read.kind.as_str(), read.user.as_str()),
            ("sessions", "mina")
        );
        assert_eq!((read.object.as_str(), read.offset), ("train-1", 50));
        assert_eq!(read.words, ["oom", "pytorch:2.9"]);
        assert_eq!(read.since, Some(Timestamp::from_millis(96_360_000)));
        let day = asked(&[("q", "since:2026-01-31 until:2026-01-31")]).expect("a query");
        let (since, until) = (day.since.expect("a time"), day.until.expect("a time"));
        assert_eq!(until.as_millis() - since.as_millis(), 86_399_999);
        for odd in ["since:yesterday", "until:", "since:-3h", "since:é"] {
            assert!(asked(&[("q", odd)]).is_err(), "{odd}");
        }
    }

    #[test]
    fn addresses_of_former_releases_become_words() {
        let old = pairs(&[
            ("kind", "sessions"),
            ("object", "first"),
            ("user", ""),
            ("since", "2026-01-01T00:00"),
        ]);
        assert_eq!(
            former(&old).as_deref(),
            Some("/events?q=object%3Afirst&kind=sessions&since=2026-01-01T00%3A00")
        );
        assert_eq!(former(&pairs(&[("kind", "sessions")])), None);
    }

    #[test]
    fn images_and_accounts_without_a_page_are_called_by_their_names() {
        let of = |topic: &str, code: &str| EventView {
            sequence: 1,
            at: Timestamp::default(),
            actor: "boss".into(),
            topic: topic.into(),
            object: "019a0c2e-7d1a".into(),
            code: code.into(),
            before: String::new(),
            after: String::new(),
        };
        let found = EventPage {
            names: [("019a0c2e-7d1a".to_owned(), "called".to_owned())].into(),
            ..EventPage::default()
        };
        for (event, place) in [
            (
                of("images", "image.imported"),
                Some("/images/019a0c2e-7d1a"),
            ),
            (of("images", "image.removed"), Some("/images")),
            (of("users", "user.removed"), None),
        ] {
            let (name, href) = object(&event, &found.names, short);
            assert_eq!((name.as_str(), href.as_deref()), ("called", place));
            let unknown = object(&event, &BTreeMap::new(), short).0;
            assert_eq!(unknown, event.object);
            let long = EventView {
                object: "x".repeat(36),
                ..event
            };
            let whole = object(&long, &BTreeMap::new(), str::to_owned).0;
            assert_eq!(whole, long.object, "a file has all of it");
        }
    }

    #[test]
    fn an_unknown_code_is_shown_as_it_is_and_long_words_are_cut() {
        let t = Text::default();
        assert_eq!(words(t, "whale.ate"), ("i", None));
        assert_eq!(short(&"x".repeat(30)).chars().count(), 25);
        assert!(words(t, "settings.changed").1.is_some());
        let lost = words(t, "audit.rows-lost");
        assert_eq!(lost, ("w", Some(t.events_rows_lost())));
    }
}
