//! The settings a running server goes by, and how it takes up new ones: a reading with any fault in it
//! changes nothing. Never writes a settings file.

use std::sync::{Arc, PoisonError, RwLock};

use base::settings::{LoadedSettings, Settings};
use rules::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// What a server goes by now.
pub(crate) struct EffectiveSettings(RwLock<Arc<LoadedSettings>>);

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
        Self(RwLock::new(Arc::new(reading)))
    }

    pub(crate) fn reading(&self) -> Arc<LoadedSettings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::new(self.reading().settings.clone())
    }

    /// Reads all sources again and goes by what they say.
    ///
    /// Errors: as at the start; then everything stays as it was.
    pub(crate) fn read_again(&self) -> Result<Reloaded, Refusal> {
        // Read outside the lock: a slow disk must not hold up readers of a setting.
        let newer = self.reading().sources.read()?;
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let now = held.followed_by(&newer);
        let told = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect();
        let reloaded = Reloaded {
            changed: told(held.changed(&now)),
            needs_restart: told(now.waiting()),
        };
        *held = Arc::new(now);
        Ok(reloaded)
    }
}
