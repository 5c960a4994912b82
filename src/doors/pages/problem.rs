//! The pages of a refusal or a fault: what it was, who can help, and the id to quote.

use askama::Template;

use super::components;
use super::layout::{Nav, PageLayout};
use crate::doors::text::Text;

/// Inside the console's frame, for users who are signed in.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/problem.html")]
pub struct ProblemPage {
    pub t: Text,
    pub f: PageLayout,
    pub status: u16,
    pub icon: &'static str,
    pub title: String,
    pub detail: String,
    pub hint: Option<String>,
    pub code: String,
    pub request: Option<String>,
    /// The list that it was asked from.
    pub back: Option<String>,
}

/// The same without a menu, for everybody else.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/problem_bare.html")]
pub struct BareProblemPage {
    pub t: Text,
    pub f: PageLayout,
    pub status: u16,
    pub icon: &'static str,
    pub title: String,
    pub detail: String,
    pub hint: Option<String>,
    pub code: String,
    pub request: Option<String>,
}
