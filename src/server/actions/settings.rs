//! Settings as an administrator changes them: validated with all other sources before the file is
//! written, taken up at once where a running server can, and undone by one act. Keys that could lock the
//! administrator out stay with the machine's own file.

use std::collections::BTreeMap;

use api::settings::{
    EarlierSetting, SettingChange, SettingView, SignInSourceTrial, SignInSourceTrials,
    WaitingSetting,
};
use base::settings::edit::{self, PlannedChange};
use base::settings::{EffectiveSetting, LoadedSettings, SettingSource, literal};
use rules::permissions::Permission;
use rules::refusals;
use rules::users::UserSource;

use super::allowed;
use super::four_eyes::{PendingAct, pass, waits};
use crate::access::{self, Caller, tokens};
use crate::appliance::settings::Reloaded;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server, ServerFault, hand_over};

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
    let changes = last_changes(server).await?;
    let all = reading.standings.iter();
    Ok(all.map(|setting| standing(setting, &changes)).collect())
}

/// Every setting as programs read it. Costs as `list`.
///
/// Errors: as `list`.
pub async fn views(server: &Server, caller: &Caller) -> Result<Vec<SettingView>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let reading = server.in_force().reading();
    let changes = last_changes(server).await?;
    let all = reading.standings.iter();
    Ok(all.map(|setting| view(setting, &changes)).collect())
}

/// One setting as programs read it. Costs as `list`.
///
/// Errors: `setting.unknown`; as `list`.
pub async fn get(server: &Server, caller: &Caller, key: &str) -> Result<SettingView, Failure> {
    let all = views(server, caller).await?;
    let known = edit::key_named(key)?;
    let mut all = all.into_iter();
    let found = all.find(|setting| setting.key == known.key);
    Ok(found.ok_or_else(|| refusals::setting_key_unknown(key))?)
}

type LastChanges = BTreeMap<&'static str, (String, String)>;

fn standing(setting: &EffectiveSetting, changes: &LastChanges) -> SettingStanding {
    let newest = match &setting.waiting {
        Some(waiting) => (&waiting.value, &waiting.source),
        None => (&setting.value, &setting.source),
    };
    let above = matches!(newest.1, SettingSource::Variable(_) | SettingSource::Flag);
    let written = match newest.1 {
        SettingSource::File(_) => newest
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
            SettingSource::BuiltIn => None,
            source => Some(source.to_string()),
        },
        may_change,
        undo,
    }
}

fn view(setting: &EffectiveSetting, changes: &LastChanges) -> SettingView {
    let SettingStanding {
        may_change, undo, ..
    } = standing(setting, changes);
    SettingView {
        key: setting.key.to_owned(),
        value: json(setting.value.as_ref()),
        default: json(setting.default.as_ref()),
        source: setting.source.to_string(),
        variable: setting.variable.to_owned(),
        needs_restart: setting.needs_restart,
        about: setting.about.to_owned(),
        waiting: setting.waiting.as_ref().map(|waiting| WaitingSetting {
            value: json(waiting.value.as_ref()),
            source: waiting.source.to_string(),
        }),
        may_change,
        undo: undo.map(|before| EarlierSetting {
            value: json(literal(&before).as_ref()),
        }),
    }
}

/// A value as programs read it.
fn json(value: Option<&impl serde::Serialize>) -> Option<serde_json::Value> {
    serde_json::to_value(value?).ok()
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

/// Whether a change is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingWrite {
    Real,
    /// It is checked in full, and nothing is written.
    Dry,
}

/// Sets a key to what was typed; empty text sets it back to its default.
///
/// Errors: `denied` without `system:write`; `setting.…` for a value that is none, at `/value`; `setting.file-only`,
/// `setting.set-elsewhere`, `setting.file-unwritable`; `network.bound` for one that says who proves users. After an error
/// nothing is changed.
pub async fn change(
    server: &Server,
    caller: &Caller,
    key: &str,
    typed: &str,
    mode: SettingWrite,
) -> Result<SettingChange, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let known = edit::key_named(key)?;
    let value = edit::written(known, typed)?;
    let act = PendingAct::SettingChange {
        key: known.key.to_owned(),
        value: typed.to_owned(),
    };
    put(server, caller, known.key, value, mode, &act).await
}

/// Gives a key the value that it had before its last change here.
///
/// Errors: as `change`; `setting.nothing-to-undo` where it was never changed here, or by hand since.
pub async fn undo(
    server: &Server,
    caller: &Caller,
    key: &str,
    mode: SettingWrite,
) -> Result<SettingChange, Failure> {
    let (key, before) = undoable(server, caller, key).await?;
    let act = PendingAct::SettingUndo {
        key: key.to_owned(),
        value: before.clone(),
    };
    put(server, caller, key, before, mode, &act).await
}

/// A key, and what the files said of it before its last change here; None for nothing.
async fn undoable(
    server: &Server,
    caller: &Caller,
    key: &str,
) -> Result<(&'static str, Option<String>), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let known = edit::key_named(key)?;
    let changes = last_changes(server).await?;
    let reading = server.in_force().reading();
    let mut standings = reading.standings.iter();
    let before = standings
        .find(|setting| setting.key == known.key)
        .and_then(|setting| standing(setting, &changes).undo)
        .ok_or_else(|| refusals::setting_nothing_to_undo(known.key))?;
    Ok((known.key, (!before.is_empty()).then_some(before)))
}

/// Whether a setting says who proves users: another directory or provider signs in as any of them.
fn admits_users(key: &str) -> bool {
    let families = ["ldap_", "oidc_", "saml_"];
    families.iter().any(|family| key.starts_with(family))
}

async fn put(
    server: &Server,
    caller: &Caller,
    key: &'static str,
    value: Option<String>,
    mode: SettingWrite,
    act: &PendingAct,
) -> Result<SettingChange, Failure> {
    let now = || server.in_force().reading().standings.clone();
    let before = newest(&now(), key);
    if mode == SettingWrite::Real {
        if admits_users(key) {
            let catalog = server.catalog();
            catalog.read_now("show networks of a token", |view| {
                tokens::refuse_bound(view, caller)
            })?;
        }
        let is_held = server
            .catalog()
            .read_now("look whether acts wait", |view| {
                waits(view, &caller.subject)
            })?;
        if is_held {
            // What waits is sound when it is asked for.
            planned(server, key, value.clone()).await?;
        }
        pass(server, caller, act).await?;
        let reloaded = written(server, caller, key, value).await?;
        return Ok(SettingChange {
            key: key.to_owned(),
            before,
            after: newest(&now(), key),
            needs_restart: reloaded.needs_restart.iter().any(|waiting| waiting == key),
            dry_run: false,
        });
    }
    let planned = planned(server, key, value).await?;
    let mut waiting = planned.waiting().into_iter();
    Ok(SettingChange {
        key: key.to_owned(),
        before,
        after: newest(&planned.standings, key),
        needs_restart: waiting.any(|waiting| waiting == key),
        dry_run: true,
    })
}

/// What the settings would be with that value; the files stay as they are.
async fn planned(
    server: &Server,
    key: &'static str,
    value: Option<String>,
) -> Result<LoadedSettings, Failure> {
    let again = server.clone();
    let planned =
        tokio::task::spawn_blocking(move || again.in_force().would_be(key, value.as_deref()));
    Ok(planned
        .await
        .map_err(|ended| ServerFault::new("check a setting", ended))??)
}

/// Asks the directory, the identity provider and the places that the audit log is handed over to, each for two seconds at
/// most: that one does not answer is what comes of it, and no refusal. Nothing is written here; empty where none is set.
pub async fn try_sign_in_sources(
    server: &Server,
    caller: &Caller,
) -> Result<SignInSourceTrials, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let (directory, provider, saml, targets) = tokio::join!(
        access::directory::tried(server, caller.name.as_str()),
        access::provider::tried(server),
        access::saml::tried(server),
        hand_over::tried(server),
    );
    let trial = |source: String, tried: Result<String, String>| SignInSourceTrial {
        source,
        works: tried.is_ok(),
        answer: tried.clone().unwrap_or_default(),
        problem: tried.err().unwrap_or_default(),
    };
    let sources = [
        (UserSource::Directory, directory),
        (UserSource::Provider, provider),
        (UserSource::Saml, saml),
    ];
    let sources = sources.into_iter().filter_map(|(source, tried)| {
        let tried = tried?.map(|()| String::new());
        Some(trial(source.word().to_owned(), tried))
    });
    let targets = targets
        .into_iter()
        .map(|(target, tried)| trial(format!("audit-{}", target.word()), tried));
    Ok(SignInSourceTrials {
        items: sources.chain(targets).collect(),
    })
}

/// What the sources say of a key: what waits for a restart, else what is in force.
fn newest(standings: &[EffectiveSetting], key: &str) -> Option<serde_json::Value> {
    let standing = standings.iter().find(|standing| standing.key == key)?;
    match &standing.waiting {
        Some(waiting) => json(waiting.value.as_ref()),
        None => json(standing.value.as_ref()),
    }
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
    access::second_factor::note_demand(server);
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
async fn last_changes(server: &Server) -> Result<LastChanges, Failure> {
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

    use super::SettingWrite::{Dry, Real};
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

        let denied = change(&server, &user, "backup_keep", "9", Real).await;
        assert!(denied.is_err() && text() == "# kept\nbackup_keep = 3\n");
        for mode in [Real, Dry] {
            let refused = change(&server, &boss, "backup_keep", "0", mode).await;
            let Err(Failure::Refusal(wrong)) = refused else {
                panic!("0 backups are no backups");
            };
            assert_eq!(wrong.pointer.as_deref(), Some("/value"));
        }
        let would = change(&server, &boss, "backup_keep", "9", Dry).await;
        let would = would.unwrap();
        assert_eq!(
            (would.before, would.after),
            (Some(3.into()), Some(9.into()))
        );
        assert!(would.dry_run && server.settings().backup_keep == 3);
        assert_eq!(text(), "# kept\nbackup_keep = 3\n");

        let done = change(&server, &boss, "backup_keep", "9", Real).await;
        let done = done.unwrap();
        assert_eq!((done.before, done.after), (Some(3.into()), Some(9.into())));
        assert!(!done.needs_restart && !done.dry_run);
        assert_eq!(server.settings().backup_keep, 9);
        let undoable = |all: Vec<SettingStanding>| {
            let found = all.into_iter().find(|s| s.key == "backup_keep");
            found.unwrap().undo
        };
        let all = list(&server, &boss).await.unwrap();
        assert_eq!(undoable(all), Some("3".to_owned()));
        let would = undo(&server, &boss, "backup_keep", Dry).await.unwrap();
        assert_eq!(
            (would.after, text()),
            (Some(3.into()), "# kept\nbackup_keep = 9\n".to_owned())
        );
        undo(&server, &boss, "backup_keep", Real).await.unwrap();
        assert_eq!(text(), "# kept\nbackup_keep = 3\n");

        for mode in [Dry, Real] {
            let later = change(&server, &boss, "gpu_units", "10", mode)
                .await
                .unwrap();
            assert!(
                later.needs_restart && later.after == Some(10.into()),
                "{mode:?}"
            );
        }
        std::fs::write(&path, "gpu_units = 20\n").unwrap();
        server.read_settings_again();
        let by_hand = undo(&server, &boss, "gpu_units", Real).await;
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

        change(&server, &boss, "backup_keep", "9", Real)
            .await
            .unwrap();
        undo(&server, &boss, "backup_keep", Real).await.unwrap();
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
