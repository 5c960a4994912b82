//! `/sessions/new`: the form, and the scheduler's answer beside it while somebody types.

use askama::Template;

use super::frame::{Frame, Nav};
use super::parts::{self, Alert, Check, Choice, Fault, Row};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/launch.html", blocks = ["preview"])]
pub struct LaunchPage {
    pub t: Text,
    pub f: Frame,
    pub alert: Option<Alert>,
    pub faults: Vec<Fault>,
    pub recent: Vec<Recent>,
    pub kinds: Vec<Choice>,
    pub images: Vec<Choice>,
    /// The words on the link to every image.
    pub all_images: String,
    pub presets: Vec<Preset>,
    pub sliders: Vec<Slider>,
    pub form: Typed,
    pub name_hint: String,
    pub preview: Preview,
}

/// The text fields exactly as they were typed, so that a refused form comes back whole.
#[derive(Clone, Debug, Default)]
pub struct Typed {
    pub command: String,
    pub name: String,
    pub longest: String,
    pub copies: String,
    pub shm: String,
    pub start_at: String,
    pub after: String,
    pub env: String,
    pub labels: String,
    /// Whether the folded part holds anything.
    pub advanced: bool,
}

pub struct Recent {
    pub href: String,
    pub name: String,
    pub facts: String,
}

/// A size with a name.
pub struct Preset {
    pub value: &'static str,
    pub name: &'static str,
    pub note: String,
    pub cpu: String,
    pub memory: String,
    pub chosen: bool,
}

/// A number with a handle; the number is what counts, the handle needs script.
pub struct Slider {
    pub name: &'static str,
    pub title: &'static str,
    pub note: String,
    pub unit: &'static str,
    pub least: String,
    pub most: String,
    pub step: String,
    /// Where the handle stands.
    pub value: String,
    /// What is in the box, right or wrong.
    pub typed: String,
}

/// The answer beside the form.
#[derive(Default)]
pub struct Preview {
    /// Class of the verdict: empty (starts now), `wait`, `never`.
    pub tone: &'static str,
    pub icon: &'static str,
    pub verdict: String,
    pub detail: String,
    pub rows: Vec<Row>,
    pub checks: Vec<Check>,
    pub what_if: Vec<String>,
    pub command_line: String,
    /// The words on the button.
    pub go: String,
    /// Launching would be refused.
    pub blocked: bool,
}
