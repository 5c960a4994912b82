//! What happened, as people search it: by kind, object, user and time, page by page. A user finds what the event stream
//! tells them; an administrator finds everything. Changes nothing.

use std::collections::BTreeMap;

use api::events::{EventSearchPage, EventSearchQuery, EventView};
use rules::names::{ImageId, SessionId, UserId};
use rules::permissions::{Permission, Reach, heard};
use rules::refusals;
use rules::session::{TextField, plain, text};
use rules::tenancy::ProjectId;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};

use super::query::{self, MAX_QUERY_LENGTH};
use super::sessions::view::event as event_view;
use super::{allowed, cursor};
use crate::access::Caller;
use crate::catalog::ReadTransaction;
use crate::catalog::journal::{EventFilter, FoundEvents, JournalPart};
use crate::{Failure, Server};

/// Events on one page, and in one download.
pub const PAGE: u32 = 50;
const MAX_EXPORTED: u32 = 10_000;
/// Events that one page looks through; the next page goes on from there. Higher: a filter that finds nothing holds a
/// reader of the catalog for longer. Lower: rare events need more clicks.
const SPAN: u64 = 10_000;
const EXPORTED_SPAN: u64 = 200_000;
/// Events of sessions that `latest_of_sessions` gives. Higher: each change costs more names on every open overview.
/// Lower: an overview shows too few where some are no news, or of deleted sessions.
const LATEST: u32 = 40;
/// Events on the largest page of a program.
const MAX_PAGE_EVENTS: u32 = 500;
/// Free words of one search. Higher: each event costs more. Lower: a long search is cut.
const MAX_WORDS: usize = 8;
/// Sessions that a free word finds by name.
const MAX_NAMED: u32 = 200;

/// Which events are wanted. Empty text asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalQuery {
    /// A topic such as `sessions`, or a code or its beginning such as `session.ended`.
    pub kind: String,
    /// Id of a thing, or the name of a session.
    pub object: String,
    /// Who did it, or whose account it is about.
    pub user: String,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Free words: each stands in the code, the object, the name of its session, the user, or the state before or after.
    pub words: Vec<String>,
    /// Older than this one.
    pub before: Option<u64>,
    /// Found events before the page.
    pub offset: u64,
}

/// Some events, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPage {
    pub items: Vec<EventView>,
    /// Names of the sessions, users, projects and images among the objects, by their ids.
    pub names: BTreeMap<String, String>,
    /// How many the search finds in the part of the journal that it looked through, counted up to 10,000.
    pub count: u64,
    /// Where that part ends and older events are to be asked for; None at the beginning of the journal.
    pub before: Option<u64>,
}

/// A page of the events that the caller may hear. Costs at most a visit to 10,000 events.
///
/// Errors: `denied` without `sessions:read`; those of the catalog.
pub async fn page(
    server: &Server,
    caller: &Caller,
    query: JournalQuery,
) -> Result<EventPage, Failure> {
    found(server, caller, query, PAGE, SPAN).await
}

/// The newest events of sessions that the caller may hear, at most 40. Costs a visit to what happened since the last call
/// with the same reach, and one read for each session's name.
///
/// Errors: as `page`.
pub async fn latest_of_sessions(server: &Server, caller: &Caller) -> Result<EventPage, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (heard, own) = (heard(&caller.subject), server.clone());
    server
        .catalog()
        .read("read the newest events of sessions", move |view| {
            let snapshots = own.snapshots();
            let rows = snapshots.recent_events(view, heard, Some("sessions"), LATEST)?;
            let items: Vec<EventView> = rows.into_iter().map(event_view).collect();
            Ok(EventPage {
                names: names(view, &items)?,
                count: items.len() as u64,
                items,
                before: None,
            })
        })
        .await
}

/// A page of the events that a program searches for, with a cursor to older ones. Costs as `page`.
///
/// Errors: `limit.out-of-range`, `cursor.invalid`, `query.…` for a text that is too long or cannot be shown; as `page`.
pub async fn search(
    server: &Server,
    caller: &Caller,
    wanted: &EventSearchQuery,
) -> Result<EventSearchPage, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let mut query = asked(wanted)?;
    let limit = wanted.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE_EVENTS).contains(&limit) {
        let refusal = refusals::limit_out_of_range(MAX_PAGE_EVENTS);
        return Err(refusal.at("/limit").into());
    }
    let bound = bound(caller, wanted);
    let signing = server.catalog().founding().cursor_key;
    query.before = match wanted.cursor.as_deref() {
        None | Some("") => None,
        Some(text) => Some(cursor::read(&signing, &bound, text)?),
    };
    let found = found(server, caller, query, limit, SPAN).await?;
    let more = found.count > found.items.len() as u64;
    let before = match found.items.last().filter(|_| more) {
        Some(last) => Some(last.sequence),
        None => found.before,
    };
    Ok(EventSearchPage {
        items: found.items,
        names: found.names,
        next_cursor: before.map(|before| cursor::write(&signing, &bound, &before)),
        estimated_total: found.count,
    })
}

/// The same for a download, as `export`; the cursor and the limit are not asked for.
///
/// Errors: as `search`.
pub async fn search_all(
    server: &Server,
    caller: &Caller,
    wanted: &EventSearchQuery,
) -> Result<EventPage, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    export(server, caller, asked(wanted)?).await
}

/// A search of a program, checked.
fn asked(wanted: &EventSearchQuery) -> Result<JournalQuery, Failure> {
    for (pointer, value) in [
        ("/kind", &wanted.kind),
        ("/object", &wanted.object),
        ("/user", &wanted.user),
        ("/q", &wanted.q),
    ] {
        text(TextField::Query, pointer, value, MAX_QUERY_LENGTH)?;
        plain(TextField::Query, pointer, value)?;
    }
    let words = query::split(&wanted.q)?;
    if words.len() > MAX_WORDS {
        return Err(refusals::query_too_many_words(MAX_WORDS).at("/q").into());
    }
    Ok(JournalQuery {
        kind: wanted.kind.clone(),
        object: wanted.object.clone(),
        user: wanted.user.clone(),
        since: wanted.since,
        until: wanted.until,
        words,
        before: None,
        offset: 0,
    })
}

/// What a cursor belongs to: the caller and the search.
fn bound(caller: &Caller, wanted: &EventSearchQuery) -> String {
    let EventSearchQuery {
        kind,
        object,
        user,
        since,
        until,
        q,
        limit: _,
        cursor: _,
    } = wanted;
    let parts = (caller.subject.user, kind, object, user, since, until, q);
    format!("events|{parts:?}")
}

/// The same for a download: at most 10,000 events, from the newest 200,000.
///
/// Errors: as `page`.
pub async fn export(
    server: &Server,
    caller: &Caller,
    query: JournalQuery,
) -> Result<EventPage, Failure> {
    found(server, caller, query, MAX_EXPORTED, EXPORTED_SPAN).await
}

async fn found(
    server: &Server,
    caller: &Caller,
    query: JournalQuery,
    most: u32,
    span: u64,
) -> Result<EventPage, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (subject, own) = (caller.subject.clone(), server.clone());
    server
        .catalog()
        .read("search the journal", move |view| {
            let heard = heard(&subject);
            let part = JournalPart {
                before: query.before,
                span,
                offset: query.offset,
                limit: most,
            };
            let search = || searched(view, &heard, &query, &part);
            // Longer ones, of programs and downloads, would take too much memory.
            let found = match most <= PAGE {
                true => {
                    let asked = format!("{heard:?} {query:?} {part:?}");
                    own.snapshots().journal_page(view, asked, search)?
                }
                false => search()?,
            };
            let items: Vec<EventView> = found.events.into_iter().map(event_view).collect();
            Ok(EventPage {
                names: names(view, &items)?,
                items,
                count: found.count,
                before: found.before,
            })
        })
        .await
}

/// A part of the journal as a reader hears it. Costs a visit of the names of all sessions for each word, and of each event
/// of the part.
fn searched(
    view: &ReadTransaction<'_>,
    heard: &Reach,
    query: &JournalQuery,
    part: &JournalPart,
) -> Result<FoundEvents, Failure> {
    let objects = match query.object.trim() {
        "" => None,
        object => {
            let called = view.sessions_called(heard, object)?;
            let ids = called.iter().map(|session| session.id.to_string());
            Some(ids.chain([object.to_owned()]).collect())
        }
    };
    let mut words = Vec::new();
    for word in query.words.iter().take(MAX_WORDS) {
        let word = word.to_lowercase();
        let named = view.sessions_named(heard, &word, MAX_NAMED)?;
        let ids = named.iter().map(ToString::to_string).collect();
        words.push((word, ids));
    }
    let user = query.user.trim().to_owned();
    let accounts = match user.as_str() {
        "" => Vec::new(),
        user => view.accounts_named(user)?,
    };
    let filter = EventFilter {
        kind: query.kind.trim().to_owned(),
        objects,
        user,
        accounts,
        since: query.since,
        until: query.until,
        words,
    };
    view.search_events(heard, &filter, part)
}

pub(super) fn names(
    view: &ReadTransaction<'_>,
    events: &[EventView],
) -> Result<BTreeMap<String, String>, Failure> {
    let mut names = BTreeMap::new();
    for event in events {
        if names.contains_key(&event.object) {
            continue;
        }
        let name = match event.topic.as_str() {
            "sessions" => match event.object.parse::<SessionId>() {
                Ok(id) => view.session_name(id)?,
                Err(_) => None,
            },
            "users" => match event.object.parse::<UserId>() {
                Ok(id) => view.user_name(id)?.map(|name| name.to_string()),
                Err(_) => None,
            },
            "projects" => match uuid::Uuid::try_parse(&event.object) {
                Ok(id) => view
                    .project(ProjectId(id))?
                    .map(|project| project.name.to_string()),
                Err(_) => None,
            },
            "images" => match event.object.parse::<ImageId>() {
                Ok(id) => view.image(id)?.map(|image| image.reference),
                Err(_) => None,
            },
            _ => None,
        };
        if let Some(name) = name.or_else(|| own_name(event)) {
            names.insert(event.object.clone(), name);
        }
    }
    Ok(names)
}

/// What an event itself calls an object whose row has gone: a removed image, and an account of a roster that was undone.
fn own_name(event: &EventView) -> Option<String> {
    let name = match event.code.as_str() {
        "image.removed" | "user.removed" => &event.before,
        "image.imported" | "image.committed" => &event.after,
        _ => return None,
    };
    Some(name.clone()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use rules::tenancy::Scope;
    use rules::users::Role;

    use super::*;
    use crate::actions::tests::caller_of;
    use crate::catalog::Lane;
    use crate::catalog::events::NewEvent;

    fn of(user: &str) -> JournalQuery {
        JournalQuery {
            user: user.to_owned(),
            ..JournalQuery::default()
        }
    }

    #[tokio::test]
    async fn events_of_others_push_out_none_of_the_latest_of_own_sessions() {
        let server = Server::for_tests();
        let mina = caller_of(&server, "mina", Role::User);
        let nick = caller_of(&server, "nick", Role::User);
        let (about, other) = (mina.subject.user, nick.subject.user);
        let note = |topic: &'static str, owner, code: &'static str, times: usize| {
            server
                .catalog()
                .write_now(Lane::Requests, "events", move |rows| {
                    for _ in 0..times {
                        rows.note(NewEvent {
                            actor: "boss",
                            topic,
                            object: "x",
                            scope: Scope::user(owner),
                            code,
                            before: "",
                            after: "",
                        })?;
                    }
                    Ok(())
                })
                .unwrap();
        };
        note("sessions", about, "session.running", 5);
        let number = async |caller: &Caller| {
            let found = latest_of_sessions(&server, caller).await.unwrap();
            found.items.len()
        };
        assert_eq!(number(&mina).await, 5);
        note("sessions", other, "session.running", 60);
        note("users", about, "user.role", 60);
        assert_eq!(number(&mina).await, 5, "kept from before");
        assert_eq!(number(&nick).await, LATEST as usize);
        note("sessions", other, "session.ended", 2000);
        assert_eq!(number(&mina).await, 5, "looked for again");
    }

    #[tokio::test]
    async fn a_user_is_found_by_what_they_did_and_by_what_was_done_to_their_account() {
        let server = Server::for_tests();
        let boss = caller_of(&server, "boss", Role::Administrator);
        let mina = caller_of(&server, "mina", Role::User);
        let nick = caller_of(&server, "nick", Role::User);
        let (about, other) = (mina.subject.user, nick.subject.user);
        server
            .catalog()
            .write_now(Lane::Requests, "events", move |rows| {
                let note = |actor, object: &str, scope, code| {
                    rows.note(NewEvent {
                        actor,
                        topic: "users",
                        object,
                        scope,
                        code,
                        before: "",
                        after: "",
                    })
                };
                note("boss", &about.to_string(), Scope::SITE, "test.account")?;
                note("boss", "a token", Scope::user(about), "test.token")?;
                note("boss", &other.to_string(), Scope::SITE, "test.other")?;
                note("mina", "a thing", Scope::SITE, "test.did")
            })
            .unwrap();

        let found = page(&server, &boss, of("mina")).await.unwrap();
        let codes: Vec<&str> = found
            .items
            .iter()
            .map(|event| event.code.as_str())
            .collect();
        assert_eq!(codes, ["test.did", "test.token", "test.account"]);
        let name = found.names.get(&about.to_string()).map(String::as_str);
        assert_eq!(name, Some("mina"));

        let others = page(&server, &nick, of("mina")).await.unwrap();
        assert!(others.items.is_empty(), "others hear nothing of it");
        let nobody = page(&server, &boss, of("nobody")).await.unwrap();
        assert!(nobody.items.is_empty());
    }

    #[tokio::test]
    async fn images_and_accounts_that_have_gone_are_called_by_their_names() {
        let server = Server::for_tests();
        let boss = caller_of(&server, "boss", Role::Administrator);
        let [image, user] = [1, 2].map(|n| uuid::Uuid::from_u128(n).to_string());
        let of = [
            ("users", user.clone(), "user.added", "", "member"),
            ("users", user.clone(), "user.removed", "sora", ""),
            ("images", image.clone(), "image.imported", "", "pytorch:2.9"),
            ("images", image.clone(), "image.removed", "pytorch:2.9", ""),
        ];
        server
            .catalog()
            .write_now(Lane::Requests, "events", move |rows| {
                for (topic, object, code, before, after) in &of {
                    rows.note(NewEvent {
                        actor: "boss",
                        topic,
                        object,
                        scope: Scope::SITE,
                        code,
                        before,
                        after,
                    })?;
                }
                Ok(())
            })
            .unwrap();
        let found = page(&server, &boss, JournalQuery::default()).await.unwrap();
        assert_eq!(
            found.names.get(&image).map(String::as_str),
            Some("pytorch:2.9")
        );
        assert_eq!(found.names.get(&user).map(String::as_str), Some("sora"));
    }

    #[tokio::test]
    async fn pages_go_on_where_a_part_of_the_journal_ends_and_leave_nothing_out() {
        let server = Server::for_tests();
        let boss = caller_of(&server, "boss", Role::Administrator);
        let all = SPAN + 500;
        server
            .catalog()
            .write_now(Lane::Requests, "events", move |rows| {
                for number in 0..all {
                    let code = match number % 1_000 {
                        7 => "test.rare",
                        _ => "test.many",
                    };
                    rows.note(NewEvent {
                        actor: "boss",
                        topic: "system",
                        object: "a thing",
                        scope: Scope::SITE,
                        code,
                        before: "",
                        after: "",
                    })?;
                }
                Ok(())
            })
            .unwrap();
        for (limit, pages) in [(3, 4), (500, 2)] {
            let mut wanted = EventSearchQuery {
                kind: "test.rare".to_owned(),
                limit: Some(limit),
                ..EventSearchQuery::default()
            };
            let (mut seen, mut asked) = (Vec::new(), 0);
            loop {
                let page = search(&server, &boss, &wanted).await.unwrap();
                seen.extend(page.items.iter().map(|event| event.sequence));
                asked += 1;
                wanted.cursor = page.next_cursor;
                if wanted.cursor.is_none() {
                    break;
                }
            }
            assert_eq!((seen.len(), asked), (11, pages), "{limit} a page");
            assert!(seen.is_sorted_by(|newer, older| newer == &(older + 1_000)));
        }
    }
}
