//! `/events`: what happened, searched by kind, object, user and time, page by page, and as a file for a spreadsheet. The
//! newest page follows the server.

use api::events::EventView;
use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::journal::{self, EventPage, JournalQuery};

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, live as stream, presenter, responses};
use crate::doors::download;
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/events.html", blocks = ["rows"])]
pub struct EventsPage {
    pub t: Text,
    pub f: PageLayout,
    pub kinds: Vec<Choice>,
    pub object: String,
    pub user: String,
    pub since: String,
    pub until: String,
    pub is_filtered: bool,
    pub rows: Vec<EventTableRow>,
    /// The same events as a file.
    pub export: String,
    /// Address of older events; None at the beginning.
    pub older: Option<String>,
    /// Address of the newest; None where they are shown.
    pub newest: Option<String>,
}

/// One event.
pub struct EventTableRow {
    pub when: String,
    /// Class of the dot: empty (good), `a`, `i`, `w`.
    pub tone: &'static str,
    pub what: String,
    pub code: String,
    pub object: String,
    pub href: Option<String>,
    pub who: String,
    /// State before and after, or the reason.
    pub detail: String,
}

/// The filter as the address has it.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct EventsQuery {
    kind: String,
    object: String,
    user: String,
    since: String,
    until: String,
    before: String,
}

/// Topics that a filter offers, in the order of the list.
const TOPICS: [&str; 7] = [
    "sessions",
    "images",
    "gpus",
    "nodes",
    "users",
    "operations",
    "system",
];
/// Characters of a state or reason that a row shows; the file has all of them.
const DETAIL: usize = 160;

impl EventsQuery {
    fn read(&self, visit: &RequestContext) -> JournalQuery {
        JournalQuery {
            kind: self.kind.clone(),
            object: self.object.clone(),
            user: self.user.clone(),
            since: visit.clock.read(&self.since),
            until: visit.clock.read(&self.until),
            before: self.before.parse().ok(),
        }
    }

    /// The filter as an address after `place`, from `before` on.
    fn address(&self, place: &str, before: Option<u64>) -> String {
        let before = before.map(|number| number.to_string()).unwrap_or_default();
        let words = [
            ("kind", &self.kind),
            ("object", &self.object),
            ("user", &self.user),
            ("since", &self.since),
            ("until", &self.until),
            ("before", &before),
        ];
        let pairs: Vec<String> = words
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={}", responses::encoded(value)))
            .collect();
        match pairs.is_empty() {
            true => place.to_owned(),
            false => format!("{place}?{}", pairs.join("&")),
        }
    }
}

/// `GET /events`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<EventsQuery>,
) -> Response {
    match read(&console, &visit, &caller, &asked).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /events/live`: the newest events as they come.
pub async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<EventsQuery>,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let asked = asked.clone();
        async move {
            let page = read(&console, &visit, &caller, &asked).await.ok()?;
            Some(vec![
                ("counts", page.f.counts()),
                ("rows", page.as_rows().render().ok()?),
            ])
        }
    })
}

/// `GET /events.csv`: what the filter finds, at most 10,000 events.
pub async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<EventsQuery>,
) -> Response {
    let wanted = JournalQuery {
        before: None,
        ..asked.read(&visit)
    };
    match journal::export(&console.server, &caller, wanted).await {
        Ok(found) => {
            let text = csv(&found);
            download::bytes("events.csv", "text/csv; charset=utf-8", text.into_bytes())
        }
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
    asked: &EventsQuery,
) -> Result<EventsPage, Failure> {
    let t = visit.text;
    let found = journal::page(&console.server, caller, asked.read(visit)).await?;
    let is_newest = asked.before.is_empty();
    Ok(EventsPage {
        t,
        f: PageLayout {
            live: is_newest.then(|| asked.address("/events/live", None)),
            ..layout(console, visit, caller, Nav::Events)
        },
        kinds: kinds(t, &asked.kind),
        object: asked.object.clone(),
        user: asked.user.clone(),
        since: asked.since.clone(),
        until: asked.until.clone(),
        is_filtered: !asked.address("", None).is_empty(),
        export: asked.address("/events.csv", None),
        older: found
            .before
            .map(|before| asked.address("/events", Some(before))),
        newest: (!is_newest).then(|| asked.address("/events", None)),
        rows: rows(visit, &found),
    })
}

fn kinds(t: Text, chosen: &str) -> Vec<Choice> {
    let mut kinds = vec![Choice::new("", t.events_all(), chosen.is_empty())];
    kinds.extend(TOPICS.map(|topic| Choice::new(topic, topic_word(t, topic), chosen == topic)));
    if !chosen.is_empty() && !TOPICS.contains(&chosen) {
        kinds.push(Choice::new(chosen, chosen, true));
    }
    kinds
}

fn topic_word(t: Text, topic: &str) -> &'static str {
    match topic {
        "sessions" => t.nav_sessions(),
        "images" => t.nav_images(),
        "gpus" => t.nav_gpus(),
        "nodes" => t.events_nodes(),
        "users" => t.events_users(),
        "operations" => t.events_operations(),
        _ => t.nav_system(),
    }
}

fn rows(visit: &RequestContext, found: &EventPage) -> Vec<EventTableRow> {
    let rows = found.items.iter().map(|event| {
        let (tone, what) = words(visit.text, &event.code);
        let (object, href) = object(event, found);
        EventTableRow {
            when: format!(
                "{} {}",
                visit.clock.day(event.at),
                visit.clock.second(event.at)
            ),
            tone,
            what: what.map_or_else(|| event.code.clone(), str::to_owned),
            code: event.code.clone(),
            object,
            href,
            who: event.actor.clone(),
            detail: detail(visit.text, event),
        }
    });
    rows.collect()
}

/// The name of what an event is about, and where it is shown.
fn object(event: &EventView, found: &EventPage) -> (String, Option<String>) {
    let id = &event.object;
    match event.topic.as_str() {
        "sessions" => match found.names.get(id) {
            Some(name) => (name.clone(), Some(format!("/sessions/{id}"))),
            None => (short(id), None),
        },
        "gpus" => (short(id), Some(format!("/gpus/{}", responses::encoded(id)))),
        "nodes" => (
            id.clone(),
            Some(format!("/nodes/{}", responses::encoded(id))),
        ),
        "images" => (short(id), Some("/images".to_owned())),
        "system" if event.code == "settings.changed" => {
            (id.clone(), Some(format!("/system/settings#{id}")))
        }
        _ => (short(id), None),
    }
}

/// The beginning of a long id.
fn short(id: &str) -> String {
    match id.char_indices().nth(24) {
        Some((at, _)) => format!("{}…", &id[..at]),
        None => id.to_owned(),
    }
}

fn detail(t: Text, event: &EventView) -> String {
    let told = |words: &str| presenter::told(t, words);
    let all = match (event.before.as_str(), event.after.as_str()) {
        ("", after) => told(after),
        (before, "") => told(before),
        (before, after) => format!("{} → {}", told(before), told(after)),
    };
    match all.char_indices().nth(DETAIL) {
        Some((at, _)) => format!("{}…", &all[..at]),
        None => all,
    }
}

/// The tone and the words of a code; None where no catalogue has it.
fn words(t: Text, code: &str) -> (&'static str, Option<&'static str>) {
    if let Some((tone, what)) = presenter::happening(t, code) {
        return (tone, Some(what));
    }
    let what = match code {
        "session.scheduled" => t.events_placed(),
        "session.preparing" => t.timeline_prepared(),
        "session.deleted" => t.events_deleted(),
        "session.labelled" => t.events_labelled(),
        "image.imported" => t.events_image_imported(),
        "image.removed" => t.events_image_removed(),
        "gpu.cordoned" => t.events_gpu_cordoned(),
        "gpu.uncordoned" => t.events_gpu_uncordoned(),
        "gpu.partitioned" => t.events_gpu_partitioned(),
        "gpu.tested" => t.events_gpu_tested(),
        "node.maintenance-began" => t.events_maintenance_began(),
        "node.maintenance-ended" => t.events_maintenance_ended(),
        "user.added" => t.events_user_added(),
        "user.removed" => t.events_user_removed(),
        rules::codes::USER_SUSPENDED => t.events_user_suspended(),
        "user.admitted" => t.events_user_admitted(),
        "user.role-set" => t.events_user_role(),
        "user.password-set" | "user.password-changed" => t.events_user_password(),
        "token.made" => t.events_token_made(),
        rules::codes::TOKEN_REVOKED => t.events_token_revoked(),
        rules::codes::SETUP_DONE | "installation.finished" => t.events_set_up(),
        "settings.changed" => t.events_setting(),
        "settings.read-again" => t.events_settings_reloaded(),
        "backup.made" => t.events_backup(),
        "backup.taken" => t.events_backup_taken(),
        "support.bundle-made" => t.events_bundle(),
        "tls.imported" | "tls.reset" | "tls.requested" => t.events_certificate(),
        _ => return ("i", None),
    };
    ("i", Some(what))
}

/// All columns for a spreadsheet, with what it would run as a formula made text.
fn csv(found: &EventPage) -> String {
    let mut out = String::from("\u{feff}sequence,at,topic,code,object,name,actor,before,after\r\n");
    for event in &found.items {
        let name = found.names.get(&event.object).map_or("", String::as_str);
        let cells = [
            event.sequence.to_string(),
            event.at.to_string(),
            event.topic.clone(),
            event.code.clone(),
            event.object.clone(),
            name.to_owned(),
            event.actor.clone(),
            event.before.clone(),
            event.after.clone(),
        ];
        let line: Vec<String> = cells.iter().map(|text| cell(text)).collect();
        out.push_str(&line.join(","));
        out.push_str("\r\n");
    }
    out
}

fn cell(text: &str) -> String {
    let guard = match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => "'",
        false => "",
    };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use rules::units::Timestamp;

    use super::*;

    #[test]
    fn a_cell_is_never_a_formula_and_never_breaks_its_line() {
        for (text, expected) in [
            ("plain", "\"plain\""),
            ("=cmd()", "\"'=cmd()\""),
            ("@x", "\"'@x\""),
            ("a \"b\", c\nd", "\"a \"\"b\"\", c\nd\""),
        ] {
            assert_eq!(cell(text), expected);
        }
        let event = EventView {
            sequence: 7,
            at: Timestamp::from_millis(0),
            actor: "mina".into(),
            topic: "sessions".into(),
            object: "x".into(),
            code: "session.running".into(),
            before: "preparing".into(),
            after: "-1".into(),
        };
        let page = EventPage {
            items: vec![event],
            ..EventPage::default()
        };
        let text = csv(&page);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.ends_with("\"preparing\",\"'-1\"\r\n"), "{text}");
    }

    #[test]
    fn the_filter_stands_in_the_address_and_older_pages_keep_it() {
        let asked = EventsQuery {
            kind: "sessions".into(),
            user: "mina kim".into(),
            before: "9".into(),
            ..EventsQuery::default()
        };
        assert_eq!(
            asked.address("/events", Some(5)),
            "/events?kind=sessions&user=mina%20kim&before=5"
        );
        assert_eq!(EventsQuery::default().address("/events", None), "/events");
    }

    #[test]
    fn an_unknown_code_is_shown_as_it_is_and_long_words_are_cut() {
        let t = Text::default();
        assert_eq!(words(t, "whale.ate"), ("i", None));
        assert_eq!(short(&"x".repeat(30)).chars().count(), 25);
        assert!(words(t, "settings.changed").1.is_some());
    }
}
