//! `/queue`: what waits, in order, and why.

use askama::Template;

use super::frame::{Frame, Nav};
use super::parts::{self, Alert, Row};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/queue.html", blocks = ["queue", "room", "ends"])]
pub struct QueuePage {
    pub t: Text,
    pub f: Frame,
    pub alert: Option<Alert>,
    pub waiting: Vec<Waiting>,
    pub room: Vec<Row>,
    pub ends: Vec<Ending>,
}

pub struct Waiting {
    pub id: String,
    pub position: String,
    pub hue: u8,
    pub href: String,
    pub name: String,
    pub state: String,
    pub since: String,
    pub why: String,
    pub facts: String,
    pub hint: Option<String>,
    pub may_cancel: bool,
}

pub struct Ending {
    pub href: String,
    pub name: String,
    pub when: String,
    /// How much of its time has passed.
    pub percent: u8,
}
