//! `/setup`: the one-time code makes the first administrator.

use askama::Template;

use super::frame::Frame;
use super::parts::{self, Alert};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/setup.html")]
pub struct SetupPage {
    pub t: Text,
    pub f: Frame,
    pub code: String,
    pub name: String,
    /// The fewest characters a password may have.
    pub shortest: usize,
    /// No form, only the alert: set up already, or the code is too old.
    pub closed: bool,
    pub alert: Option<Alert>,
}
