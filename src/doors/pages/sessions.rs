//! `/sessions` and `/sessions/{id}`: the list, one session, its terminal, logs and metrics.

use askama::Template;

use super::frame::{Attribute, Frame, Nav};
use super::parts::{self, Alert, Check, Choice, Fact, Markup, Row};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/sessions.html", blocks = ["count", "list"])]
pub struct SessionsPage {
    pub t: Text,
    pub f: Frame,
    pub alert: Option<Alert>,
    pub count: String,
    pub q: String,
    pub states: Vec<Choice>,
    /// Whether the caller may look beyond their own.
    pub has_scope: bool,
    pub scopes: Vec<Choice>,
    pub filtered: bool,
    pub rows: Vec<Line>,
    pub older: Option<String>,
}

/// One session in the list.
pub struct Line {
    pub id: String,
    pub href: String,
    pub name: String,
    pub owner: String,
    pub tone: &'static str,
    pub state: String,
    pub reason: String,
    pub image: String,
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
pub enum Tab {
    Terminal,
    Logs,
    Metrics,
}

impl Tab {
    fn current(self, tab: Tab) -> Attribute {
        Attribute(if self == tab {
            " aria-current=\"page\""
        } else {
            ""
        })
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/session.html", blocks = ["state", "verbs", "strips", "console", "where_it_runs", "timeline"])]
pub struct SessionPage {
    pub t: Text,
    pub f: Frame,
    pub alert: Option<Alert>,
    pub id: String,
    pub name: String,
    pub owner: String,
    pub tone: &'static str,
    pub state: String,
    pub can: Verbs,
    pub facts: Vec<Fact>,
    pub strips: Vec<Strip>,
    pub tab: Tab,
    /// Whether a terminal can be opened now.
    pub attachable: bool,
    pub waiting: Option<Wait>,
    pub steps: Vec<Step>,
    pub ended: Option<End>,
    pub log_query: String,
    pub log_note: String,
    pub log_text: String,
    pub charts: Vec<Chart>,
    pub place: Option<String>,
    pub neighbours: Vec<Row>,
    pub limits: Vec<(String, String)>,
    pub limit_cpu: String,
    pub limit_memory: String,
    pub timeline: Vec<Step>,
    pub why: Vec<Check>,
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

/// What a waiting session waits for.
pub struct Wait {
    pub verdict: String,
    pub sentence: String,
    pub checks: Vec<Check>,
    pub hints: Vec<String>,
}

/// One line of a timeline.
pub struct Step {
    pub when: String,
    pub tone: &'static str,
    pub what: String,
    pub took: String,
}

/// How a session ended.
pub struct End {
    pub tone: &'static str,
    pub icon: &'static str,
    pub verdict: String,
    pub reason: String,
    pub facts: Vec<(String, String)>,
    pub last_lines: String,
}

/// One large chart of the metrics tab.
pub struct Chart {
    pub name: String,
    pub note: String,
    pub y: Vec<String>,
    pub x: Vec<String>,
    pub drawing: Markup,
}
