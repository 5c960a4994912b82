//! `/images`, `/images/{id}` and importing.

use askama::Template;

use axum::Router;
use server::Failure;
use server::access::Caller;

use super::Console;
use super::frame::{Frame, Nav};
use super::parts::{self, Alert, Choice, Fact};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/images.html", blocks = ["images", "jobs"])]
pub struct ImagesPage {
    pub t: Text,
    pub f: Frame,
    pub alert: Option<Alert>,
    pub summary: String,
    pub may_import: bool,
    pub images: Vec<Image>,
    pub import_name: String,
    pub jobs: Vec<Job>,
}

pub struct Image {
    pub id: String,
    /// As a form or an address names it.
    pub value: String,
    pub href: String,
    pub name: String,
    pub digest: String,
    pub what: String,
    pub note: String,
    pub size: String,
    pub own_size: String,
    pub used_by: String,
    pub age: String,
}

pub struct Job {
    pub id: String,
    pub name: String,
    pub state: String,
    pub tone: &'static str,
    pub percent: u8,
    pub step: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/image.html")]
pub struct ImagePage {
    pub t: Text,
    pub f: Frame,
    pub alert: Option<Alert>,
    pub id: String,
    pub value: String,
    pub name: String,
    pub what: String,
    pub may_remove: bool,
    /// What deleting would do, in words.
    pub impact: String,
    pub facts: Vec<Fact>,
    pub starts: Vec<(String, String)>,
    pub layers: Vec<Layer>,
    pub used_by: Vec<User>,
    pub labels: Vec<(String, String)>,
}

pub struct Layer {
    pub digest: String,
    pub size: String,
    pub shared: String,
}

pub struct User {
    pub href: String,
    pub name: String,
    pub tone: &'static str,
    pub state: String,
}

pub(super) fn router() -> Router<Console> {
    Router::new()
}

/// Environments to launch from, the machine's own first.
pub(super) async fn choices(
    _console: &Console,
    _caller: &Caller,
    t: Text,
    chosen: &str,
) -> Result<Vec<Choice>, Failure> {
    Ok(vec![Choice {
        note: t.launch_host_note().to_owned(),
        foot: t.launch_host_foot().to_owned(),
        icon: "server",
        ..Choice::new("host", "host", chosen == "host" || chosen.is_empty())
    }])
}
