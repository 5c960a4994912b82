//! Apps that a launch names: they are started, or their ports opened, once their session runs. Pure; starts nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::app::{AppChoice, AppDefinition};
use crate::refusal::Refusal;
use crate::refusals;
use crate::units::quoted;

/// Apps that one launch names. Higher: a session begins with more programs than its user opens. Lower: one with many tools
/// has some opened by hand.
pub const MAX_LAUNCHED_APPS: usize = 8;

/// One app of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchedApp {
    pub choice: AppChoice,
    /// Where it listens, in the place of what describes it.
    pub port: Option<u16>,
}

/// The apps of a launch, each once. As text: `jupyter,board:6006,8501`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LaunchedApps(Vec<LaunchedApp>);

impl LaunchedApps {
    /// Reads names, names with a port, and ports, by commas; nothing for nothing.
    ///
    /// Errors: `app.launch-invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = || refusals::app_launch_invalid(quoted(text), MAX_LAUNCHED_APPS);
        let mut all: Vec<LaunchedApp> = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        for part in text.split(',') {
            let (name, port) = match part.trim().split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (part.trim(), None),
            };
            let choice = AppChoice::parse(name).map_err(|_| wrong())?;
            let port = match (port, &choice) {
                (None, _) => None,
                (Some(_), AppChoice::Port(_)) => return Err(wrong()),
                (Some(port), AppChoice::Named(_)) => match AppChoice::parse(port) {
                    Ok(AppChoice::Port(port)) => Some(port),
                    _ => return Err(wrong()),
                },
            };
            let app = LaunchedApp { choice, port };
            if all.len() >= MAX_LAUNCHED_APPS || all.iter().any(|one| one.choice == app.choice) {
                return Err(wrong());
            }
            all.push(app);
        }
        Ok(Self(all))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &LaunchedApp> {
        self.0.iter()
    }

    /// The apps that a session has with those of its launch: one with a port of its own listens there, and what nothing
    /// describes is a port by that name, whose program its user starts.
    pub fn joined(&self, mut known: Vec<AppDefinition>) -> Vec<AppDefinition> {
        for app in &self.0 {
            let Some(port) = app.port else {
                continue;
            };
            match known.iter_mut().find(|one| one.choice == app.choice) {
                Some(one) => one.port = port,
                None => known.push(AppDefinition {
                    choice: app.choice.clone(),
                    ..AppDefinition::of_port(port)
                }),
            }
        }
        known
    }
}

impl fmt::Display for LaunchedApps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.iter().map(|app| match app.port {
            Some(port) => format!("{}:{port}", app.choice),
            None => app.choice.to_string(),
        });
        f.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}

impl From<LaunchedApps> for String {
    fn from(apps: LaunchedApps) -> Self {
        apps.to_string()
    }
}

impl TryFrom<String> for LaunchedApps {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|refusal| refusal.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::built_in;

    #[test]
    fn apps_of_a_launch_are_read_as_they_are_written() {
        for (text, written) in [
            ("", ""),
            (" ", ""),
            ("jupyter", "jupyter"),
            (" jupyter , board:6006,8501 ", "jupyter,board:6006,8501"),
        ] {
            let read = LaunchedApps::parse(text).expect("apps");
            assert_eq!(read.to_string(), written);
            assert_eq!(LaunchedApps::parse(written), Ok(read));
        }
        let many: Vec<String> = (1..=MAX_LAUNCHED_APPS).map(|n| n.to_string()).collect();
        let many = many.join(",");
        assert!(LaunchedApps::parse(&many).is_ok());
        let beyond = format!("{many},9000");
        for text in [
            beyond.as_str(),
            ",",
            "Jupyter",
            "jupyter:0",
            "jupyter:99999",
            "8501:8502",
            "jupyter,jupyter:1",
            "jupyter:board",
        ] {
            let refusal = LaunchedApps::parse(text).expect_err(text);
            assert_eq!(refusal.code, crate::codes::APP_LAUNCH_INVALID, "{text}");
        }
    }

    #[test]
    fn an_app_with_a_port_of_its_own_listens_there() {
        let apps = LaunchedApps::parse("jupyter:9000,board:6006,8501").expect("apps");
        let all = apps.joined(built_in());
        let port = |name: &str| {
            let mut all = all.iter();
            let found = all.find(|app| app.choice.to_string() == name);
            found.map(|app| (app.port, app.command.is_empty()))
        };
        assert_eq!(port("jupyter"), Some((9000, false)));
        assert_eq!(port("board"), Some((6006, true)));
        assert_eq!(port("8501"), None);
    }
}
