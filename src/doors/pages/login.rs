//! `/login` and `/logout`.

use askama::Template;

use super::frame::Frame;
use super::parts::{self, Alert};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/login.html")]
pub struct LoginPage {
    pub t: Text,
    pub f: Frame,
    pub name: String,
    /// Where the person wanted to go.
    pub next: String,
    pub alert: Option<Alert>,
}
