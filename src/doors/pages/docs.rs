//! `/docs` and `/about`: the manual of this version and the licences of what it carries.

use askama::Template;

use super::frame::{Frame, Nav};
use super::parts;
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/docs.html")]
pub struct DocsPage {
    pub t: Text,
    pub f: Frame,
    pub title: String,
    pub q: String,
    pub chapters: Vec<Chapter>,
    /// The chapter as markup, made by our own renderer from our own text.
    pub body: String,
    /// Hits of a search; none shows the chapter.
    pub found: Option<Vec<Hit>>,
}

pub struct Chapter {
    pub href: String,
    pub title: String,
    pub here: bool,
}

pub struct Hit {
    pub href: String,
    pub title: String,
    pub text: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/about.html")]
pub struct AboutPage {
    pub t: Text,
    pub f: Frame,
    pub parts_used: Vec<Part>,
}

/// Something by others that the console carries.
pub struct Part {
    pub name: String,
    pub version: String,
    pub licence: String,
    pub text: String,
}
