//! Events as they are listed, found and streamed. Never says who may read one; the actions do.

use std::collections::BTreeMap;

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// Place in the journal.
    pub sequence: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// A user's name, or the part of the server that did it.
    pub actor: String,
    /// `sessions`, `images`, `users`, `nodes`, `operations`.
    pub topic: String,
    /// Id of the thing.
    pub object: String,
    /// Stable, dotted, such as `session.running`.
    pub code: String,
    /// State before, in a word; empty where there was none.
    pub before: String,
    /// State after, or the reason for it in a sentence.
    pub after: String,
}

/// Some of the events that a search finds, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventSearch)]
pub struct EventSearchPage {
    pub items: Vec<EventView>,
    /// Names of the sessions, users, projects and images among the objects, by their ids.
    pub names: BTreeMap<String, String>,
    /// Asks for older events; null at the beginning of the journal. A page may be empty and have one: it looks through a part
    /// of the journal only.
    pub next_cursor: Option<String>,
    /// Events that the search finds in the part of the journal that this page looked through, those of newer pages left out;
    /// 10,000 stands for that many or more.
    pub estimated_total: u64,
}

/// What events are searched for. Empty text asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EventSearchQuery {
    /// A topic such as `sessions`, or a code or its beginning such as `session.ended`.
    pub kind: String,
    /// Id of a thing, or the name of a session.
    pub object: String,
    /// Who did it, or whose account it is about.
    pub user: String,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Free words: each stands in the code, the object, the name of its session, the user, or the state before or after.
    pub q: String,
    /// 1 to 500.
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}
