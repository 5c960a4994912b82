//! `/`: the machine at a glance.

use askama::Template;

use super::frame::{Frame, Nav};
use super::parts::{self, Row};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/overview.html", blocks = ["kpis", "plan", "legend", "recent", "events", "waiting", "attention"])]
pub struct OverviewPage {
    pub t: Text,
    pub f: Frame,
    /// The line under the title: cores, memory, up since.
    pub machine: String,
    pub figures: Vec<Figure>,
    pub nodes: Vec<Node>,
    pub legend: Vec<Legend>,
    pub recent: Vec<Recent>,
    pub events: Vec<Event>,
    pub waiting: Vec<Waiting>,
    pub attention: Vec<Attention>,
}

/// One key figure with its bar.
pub struct Figure {
    pub name: &'static str,
    pub value: String,
    pub of: String,
    /// Class of the bar: empty (ink), `a`, `o`, `w`, `b`.
    pub tone: &'static str,
    pub percent: u8,
    pub note: String,
}

/// One machine on the floor plan.
pub struct Node {
    pub title: String,
    pub rows: Vec<Row>,
}

pub struct Legend {
    pub hue: u8,
    pub name: String,
    pub share: String,
}

pub struct Recent {
    pub hue: u8,
    pub href: String,
    pub name: String,
    pub facts: String,
    pub tone: &'static str,
    pub state: String,
}

pub struct Event {
    pub when: String,
    /// Class of the dot: empty (good), `a`, `i`, `w`.
    pub tone: &'static str,
    pub subject: String,
    pub what: String,
    pub who: String,
}

pub struct Waiting {
    pub hue: u8,
    pub href: String,
    pub name: String,
    pub since: String,
    pub why: String,
    pub hint: Option<String>,
}

pub struct Attention {
    pub icon: &'static str,
    pub tone: &'static str,
    pub title: String,
    pub text: String,
    pub href: Option<String>,
}
