//! `/me`: password, tokens, preferences.

use askama::Template;

use super::frame::{Frame, Nav};
use super::parts::{self, Alert, Choice};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/me.html")]
pub struct MePage {
    pub t: Text,
    pub f: Frame,
    pub alert: Option<Alert>,
    pub who: String,
    pub user: String,
    pub shortest: usize,
    pub new_token: Option<String>,
    pub tokens: Vec<Token>,
    pub token_name: String,
    pub scopes: Vec<Choice>,
    pub lifetimes: Vec<Choice>,
    pub languages: Vec<Choice>,
    pub themes: Vec<Choice>,
    pub zones: Vec<Choice>,
    pub zone_note: String,
    pub keys: bool,
}

pub struct Token {
    pub id: String,
    pub name: String,
    pub hint: String,
    pub scopes: String,
    pub ends: String,
    pub used: String,
}
