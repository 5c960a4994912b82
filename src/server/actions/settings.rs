//! Settings as an administrator changes them in the console: validated with all other sources before the file is
//! written, taken up at once where a running server can, and undone by one act. Keys that could lock the
//! administrator out stay with the machine's own file.

use std::collections::BTreeMap;

use base::settings::edit::{self, PlannedChange};
use rules::permissions::Permission;
use rules::refusals;

use super::allowed;
use crate::access::Caller;
use crate::appliance::settings::Reloaded;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server, ServerFault};

/// The code of a change in the journal; its object is the key, and both values stand as a file writes them. A default
/// stands in round brackets, which no value of a file begins with: the journal shows what was in force, and an undo
/// still knows that the file said nothing.
const CHANGED: &str = "settings.changed";
/// Changes of one key that are looked through for the newest.
const LOOKED: u32 = 20;

/// One setting, with what may be done about it. Values stand as people type them; None where nothing is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingStanding {
    pub key: &'static str,
    pub variable: &'static str,
    pub needs_restart: bool,
    pub value: Option<String>,
    pub default: Option<String>,
    /// What a source says by now and a restart takes up; None where nothing waits.
    pub waiting: Option<Option<String>>,
    /// The file or the variable; None for a default.
    pub source: Option<String>,
    /// The console may change it: no variable or flag stands above the files, and it is none that only the file may set.
    pub may_change: bool,
    /// What the files said before the last change here, as they write it, empty for nothing; None where it was never
    /// changed here, or by hand since.
    pub undo: Option<String>,
}

/// Every setting. Costs a look-up in the journal for each key.
///
/// Errors: `denied` without `system:read`; those of the catalog.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<SettingStanding>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let reading = server.in_force().reading();
    let standings = reading.standings.clone();
    let changes = last_changes(server).await?;
    Ok(standings
        .into_iter()
        .map(|setting| {
            use base::settings::SettingSource::{Flag, Variable};
            let newest = match &setting.waiting {
                Some(waiting) => (&waiting.value, &waiting.source),
                None => (&setting.value, &setting.source),
            };
            let above = matches!(newest.1, Variable(_) | Flag);
            let written = match newest.1 {
                base::settings::SettingSource::File(_) => newest
                    .0
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                _ => String::new(),
            };
            let may_change = edit::is_editable(setting.key) && !above;
            let undo = changes
                .get(setting.key)
                .filter(|(_, after)| may_change && *after == written)
                .map(|(before, _)| before.clone());
            SettingStanding {
                key: setting.key,
                variable: setting.variable,
                needs_restart: setting.needs_restart,
                value: typed(setting.value.as_ref()),
                default: typed(setting.default.as_ref()),
                waiting: setting
                    .waiting
                    .as_ref()
                    .map(|new| typed(new.value.as_ref())),
                source: match &setting.source {
                    base::settings::SettingSource::BuiltIn => None,
                    source => Some(source.to_string()),
                },
                may_change,
                undo,
            }
        })
        .collect())
}

/// The settings file that is in use, which the console writes and which need not exist yet.
///
/// Errors: `denied` without `system:read`.
pub fn file(server: &Server, caller: &Caller) -> Result<String, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let file = server.in_force().reading().sources.file();
    Ok(file.display().to_string())
}

/// A value without the quotation marks of a settings file.
fn typed(value: Option<&impl serde::Serialize>) -> Option<String> {
    match serde_json::to_value(value?) {
        Ok(serde_json::Value::String(text)) => Some(text),
        Ok(other) => Some(other.to_string()),
        Err(_) => None,
    }
}

/// Sets a key to what was typed; empty text sets it back to its default.
///
/// Errors: `denied` without `system:write`; `setting.…` for a value that is none, at `/value`; `setting.file-only`,
/// `setting.set-elsewhere`, `setting.file-unwritable`. After an error nothing is changed.
pub async fn change(
    server: &Server,
    caller: &Caller,
    key: &str,
    typed: &str,
) -> Result<Reloaded, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let known = edit::key_named(key)?;
    let value = edit::written(known, typed)?;
    written(server, caller, known.key, value).await
}

/// Gives a key the value that it had before its last change here.
///
/// Errors: as `change`; `setting.nothing-to-undo` where it was never changed here, or by hand since.
pub async fn undo(server: &Server, caller: &Caller, key: &str) -> Result<Reloaded, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let known = edit::key_named(key)?;
    let all = list(server, caller).await?;
    let before = all
        .into_iter()
        .find(|standing| standing.key == known.key)
        .and_then(|standing| standing.undo)
        .ok_or_else(|| refusals::setting_nothing_to_undo(known.key))?;
    let value = (!before.is_empty()).then_some(before);
    written(server, caller, known.key, value).await
}

async fn written(
    server: &Server,
    caller: &Caller,
    key: &'static str,
    value: Option<String>,
) -> Result<Reloaded, Failure> {
    let again = server.clone();
    let (change, reloaded) =
        tokio::task::spawn_blocking(move || again.in_force().change(key, value.as_deref()))
            .await
            .map_err(|ended| ServerFault::new("change a setting", ended))??;
    if change.before != change.after {
        note(server, caller, key, &change).await?;
    }
    Ok(reloaded)
}

/// Notes a changed setting in the journal.
pub(super) async fn note(
    server: &Server,
    caller: &Caller,
    key: &'static str,
    change: &PlannedChange,
) -> Result<(), Failure> {
    let actor = caller.name.to_string();
    let [before, after] = {
        let standings = &server.in_force().reading().standings;
        let standing = standings.iter().find(|standing| standing.key == key);
        let default = standing.and_then(|standing| standing.default.as_ref());
        let default = default.map(ToString::to_string).unwrap_or_default();
        [&change.before, &change.after].map(|said| noted(said, &default))
    };
    server
        .catalog()
        .write(Lane::Requests, "note a changed setting", move |rows| {
            rows.note(NewEvent {
                actor: &actor,
                topic: "system",
                object: key,
                scope: rules::tenancy::Scope::SITE,
                code: CHANGED,
                before: &before,
                after: &after,
            })
        })
        .await
}

/// What a file says, as the journal has it.
fn noted(said: &str, default: &str) -> String {
    match said {
        "" => format!("({default})"),
        said => said.to_owned(),
    }
}

/// What the file said, from the journal.
fn said(noted: String) -> String {
    if noted.starts_with('(') {
        String::new()
    } else {
        noted
    }
}

/// The last change of each key: the values before and after it, as the file had them.
async fn last_changes(
    server: &Server,
) -> Result<BTreeMap<&'static str, (String, String)>, Failure> {
    server
        .catalog()
        .read("look for changed settings", |view| {
            let mut changes = BTreeMap::new();
            for key in base::settings::KEYS {
                let events = view.events_of(key.key, LOOKED)?;
                if let Some(last) = events.into_iter().rev().find(|event| event.code == CHANGED) {
                    changes.insert(key.key, (said(last.before), said(last.after)));
                }
            }
            Ok(changes)
        })
        .await
}

#[cfg(test)]
mod tests {
    use base::observe::Clock;
    use base::settings::{SettingsLayer, SettingsSources};
    use rules::users::Role;

    use super::*;
    use crate::actions::tests::caller_of;

    #[tokio::test]
    async fn a_setting_is_changed_undone_and_noted_and_only_by_administrators() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fardel.toml");
        std::fs::write(&path, "# kept\nbackup_keep = 3\n").unwrap();
        let config = path.display().to_string();
        let sources = SettingsSources::new(SettingsLayer::default(), move |name| match name {
            "FARDEL_CONFIG" => Some(config.clone()),
            _ => None,
        });
        let server = Server::in_memory(sources.read().unwrap(), Clock::system()).unwrap();
        let text = || std::fs::read_to_string(&path).unwrap();
        let (boss, user) = (
            caller_of(&server, "boss", Role::Administrator),
            caller_of(&server, "mina", Role::User),
        );

        let denied = change(&server, &user, "backup_keep", "9").await;
        assert!(denied.is_err() && text() == "# kept\nbackup_keep = 3\n");
        let Err(Failure::Refusal(wrong)) = change(&server, &boss, "backup_keep", "0").await else {
            panic!("0 backups are no backups");
        };
        assert_eq!(wrong.pointer.as_deref(), Some("/value"));

        let done = change(&server, &boss, "backup_keep", "9").await.unwrap();
        assert_eq!(done.changed, ["backup_keep"]);
        assert_eq!(server.settings().backup_keep, 9);
        let undoable = |all: Vec<SettingStanding>| {
            let found = all.into_iter().find(|s| s.key == "backup_keep");
            found.unwrap().undo
        };
        let all = list(&server, &boss).await.unwrap();
        assert_eq!(undoable(all), Some("3".to_owned()));
        undo(&server, &boss, "backup_keep").await.unwrap();
        assert_eq!(text(), "# kept\nbackup_keep = 3\n");

        let later = change(&server, &boss, "gpu_units", "10").await.unwrap();
        assert_eq!(later.needs_restart, ["gpu_units"]);
        std::fs::write(&path, "gpu_units = 20\n").unwrap();
        server.read_settings_again();
        let by_hand = undo(&server, &boss, "gpu_units").await;
        assert!(by_hand.is_err(), "a change by hand is not undone");
        let events = server
            .catalog()
            .read_now("count", |view| view.events_of("backup_keep", 9))
            .unwrap();
        let told: Vec<(&str, &str)> = events
            .iter()
            .map(|event| (event.before.as_str(), event.after.as_str()))
            .collect();
        assert_eq!(told, [("3", "9"), ("9", "3")]);
    }

    #[tokio::test]
    async fn a_change_from_a_default_and_back_notes_both_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fardel.toml");
        std::fs::write(&path, "# kept\n").unwrap();
        let config = path.display().to_string();
        let sources = SettingsSources::new(SettingsLayer::default(), move |name| match name {
            "FARDEL_CONFIG" => Some(config.clone()),
            _ => None,
        });
        let server = Server::in_memory(sources.read().unwrap(), Clock::system()).unwrap();
        let boss = caller_of(&server, "boss", Role::Administrator);
        let all = list(&server, &boss).await.unwrap();
        let keep = all.into_iter().find(|s| s.key == "backup_keep").unwrap();
        let default = format!("({})", keep.default.unwrap());

        change(&server, &boss, "backup_keep", "9").await.unwrap();
        undo(&server, &boss, "backup_keep").await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "# kept\n", "the file says nothing again");
        let events = server
            .catalog()
            .read_now("count", |view| view.events_of("backup_keep", 9))
            .unwrap();
        let told: Vec<(&str, &str)> = events
            .iter()
            .map(|event| (event.before.as_str(), event.after.as_str()))
            .collect();
        assert_eq!(told, [(default.as_str(), "9"), ("9", default.as_str())]);
    }
}
