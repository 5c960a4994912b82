//! The settings a running server goes by, and how it takes up new ones: a reading with any fault in it
//! changes nothing. Writes a settings file only where one key is changed.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use base::settings::edit::{self, PlannedChange};
use base::settings::{LoadedSettings, Settings};
use rules::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// What a server goes by now.
pub(crate) struct EffectiveSettings {
    held: RwLock<HeldSettings>,
    /// Held while a file is changed, so that no change is lost.
    editing: Mutex<()>,
}

/// One reading. Each request asks for its settings, so they are not copied for one.
struct HeldSettings {
    reading: Arc<LoadedSettings>,
    settings: Arc<Settings>,
}

impl HeldSettings {
    fn of(reading: LoadedSettings) -> Self {
        Self {
            settings: Arc::new(reading.settings.clone()),
            reading: Arc::new(reading),
        }
    }
}

/// What reading the settings again did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Keys whose new value is in force.
    pub changed: Vec<String>,
    /// Keys whose new value waits until the server starts again.
    pub needs_restart: Vec<String>,
}

impl EffectiveSettings {
    pub(crate) fn new(reading: LoadedSettings) -> Self {
        Self {
            held: RwLock::new(HeldSettings::of(reading)),
            editing: Mutex::default(),
        }
    }

    pub(crate) fn reading(&self) -> Arc<LoadedSettings> {
        Arc::clone(&self.held().reading)
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.held().settings)
    }

    fn held(&self) -> RwLockReadGuard<'_, HeldSettings> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets one key in the settings file to `value`, as the file writes it, or unsets it in all files; then reads all
    /// sources again.
    ///
    /// Errors: those of `SettingsSources::plan`; then nothing is written.
    pub(crate) fn change(
        &self,
        key: &str,
        value: Option<&str>,
    ) -> Result<(PlannedChange, Reloaded), Refusal> {
        let _editing = self.editing.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = self.reading().sources.clone();
        let (change, _) = sources.plan(edit::key_named(key)?, value)?;
        change.write()?;
        Ok((change, self.read_again()?))
    }

    /// What would be in force after `change`, which is checked as there and not made.
    ///
    /// Errors: as `change`.
    pub(crate) fn would_be(
        &self,
        key: &str,
        value: Option<&str>,
    ) -> Result<LoadedSettings, Refusal> {
        let reading = self.reading();
        let (_, planned) = reading.sources.plan(edit::key_named(key)?, value)?;
        Ok(reading.followed_by(&planned))
    }

    /// As `change`, for a key of the form of backups.
    ///
    /// Errors: those of `SettingsSources::plan_backups`; then nothing is written.
    pub(crate) fn change_backups(
        &self,
        key: &str,
        value: &str,
    ) -> Result<(PlannedChange, Reloaded), Refusal> {
        let _editing = self.editing.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = self.reading().sources.clone();
        let (change, _) = sources.plan_backups(edit::key_named(key)?, value)?;
        change.write()?;
        Ok((change, self.read_again()?))
    }

    /// Reads all sources again and goes by what they say.
    ///
    /// Errors: as at the start; then everything stays as it was.
    pub(crate) fn read_again(&self) -> Result<Reloaded, Refusal> {
        // Read outside the lock: a slow disk must not hold up readers of a setting.
        let newer = self.reading().sources.read()?;
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let now = held.reading.followed_by(&newer);
        let told = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect();
        let reloaded = Reloaded {
            changed: told(held.reading.changed(&now)),
            needs_restart: told(now.waiting()),
        };
        *held = HeldSettings::of(now);
        Ok(reloaded)
    }
}
