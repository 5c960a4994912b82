//! Apps of a session: programs in it that are opened in a browser.

use rules::names::AppShareId;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far an app is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AppState {
    /// Nothing answers at its port.
    Stopped,
    Starting,
    /// It answers.
    Ready,
    Failed,
}

/// Why an app failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppProblem {
    pub code: String,
    pub text: String,
    pub hint: String,
}

/// One app of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = App)]
pub struct AppView {
    /// What it is opened by: its name, or the number of a port.
    pub name: String,
    /// What readers see.
    pub title: String,
    /// The same in Korean.
    pub title_ko: String,
    /// Where it listens in the session.
    pub port: u16,
    pub state: AppState,
    /// Opening it starts it; else its user starts it in the session.
    pub startable: bool,
    /// Why it failed; null for one that did not.
    pub problem: Option<AppProblem>,
    /// What it wrote last, since it was started from here.
    pub lines: Vec<String>,
    /// The port of this server that it is opened at; null until it was opened, and after its session has ended.
    pub address_port: Option<u16>,
    /// The host that it is opened at, where apps have names of their own; null where they have ports.
    pub address_name: Option<String>,
}

impl AppView {
    /// What a reader of that language sees.
    pub fn title_in(&self, korean: bool) -> &str {
        let own = match korean && !self.title_ko.is_empty() {
            true => &self.title_ko,
            false => &self.title,
        };
        match own.is_empty() {
            true => &self.name,
            false => own,
        }
    }
}

/// An app that was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenedApp {
    pub app: AppView,
    /// Where a browser enters it, once and for 30 seconds; null until it is ready, and for root on the machine, who signs in
    /// at the console.
    pub entry: Option<String>,
}

/// One share of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppShare)]
pub struct AppShareView {
    #[schema(value_type = String, format = Uuid)]
    pub id: AppShareId,
    /// The name of the user who opens it; null for every member of the session's project.
    pub user: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub ends_at: Timestamp,
}

/// Whom an app is shared with.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewAppShare)]
#[serde(deny_unknown_fields)]
pub struct NewAppShareBody {
    /// A member of the session's project; every member where it is left out.
    #[serde(default)]
    pub user: Option<String>,
    /// When it ends, at most 90 days from now; in 7 days where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// An app of another user's session, as a visitor sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAppView {
    pub name: String,
    pub title: String,
    pub title_ko: String,
    /// Whose session it runs in.
    pub owner: String,
    pub state: AppState,
}
