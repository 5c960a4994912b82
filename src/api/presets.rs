//! Presets: amounts with a name that launches may ask for.

use rules::names::TenantName;
use rules::object::Object;
use rules::preset::{Preset, PresetAmounts};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::sessions::Resources;

/// One preset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Preset)]
pub struct PresetView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// Name of the domain whose launches may name it; null: those of the whole site.
    pub domain: Option<String>,
    /// Name of the project whose launches alone may name it.
    pub project: Option<String>,
    /// Unique in its project, its domain or among those of the site. Of two with one name the narrower is meant.
    #[schema(value_type = String)]
    pub name: TenantName,
    /// What people read; empty: the name.
    pub title: String,
    /// For readers in Korean; empty: they read `title`.
    pub title_ko: String,
    /// What it says nothing of is null.
    pub resources: Resources,
    pub max_runtime_seconds: Option<u64>,
    /// Name of the resource group that launches with it go to; null: any.
    #[serde(default)]
    pub group: Option<String>,
    /// Lower ones come first.
    pub position: u32,
    /// The launch form begins with it.
    pub default: bool,
    /// Version, and ETag.
    pub generation: u64,
}

impl PresetView {
    /// `domain` and `project` are the names of its scope, `group` that of its resource group.
    pub fn new(
        preset: Preset,
        domain: Option<String>,
        project: Option<String>,
        group: Option<String>,
    ) -> Self {
        Self {
            id: preset.id.0,
            domain,
            project,
            name: preset.name,
            title: preset.title,
            title_ko: preset.title_ko,
            resources: Resources::from(preset.amounts),
            max_runtime_seconds: preset.amounts.max_runtime_seconds,
            group,
            position: preset.position,
            default: preset.is_default,
            generation: preset.generation,
        }
    }
}

/// At least one amount is given. What is left out: of the whole site, at position 0, no default.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewPreset)]
#[serde(deny_unknown_fields)]
pub struct NewPresetBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    #[serde(default)]
    pub title: Option<String>,
    /// The same for readers in Korean.
    #[serde(default)]
    pub title_ko: Option<String>,
    #[serde(default, deserialize_with = "rules::object::read")]
    pub resources: Resources,
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_runtime_seconds: Option<u64>,
    /// Name or id of the domain whose launches may name it.
    #[serde(default)]
    pub domain: Option<String>,
    /// Id, name or `DOMAIN/NAME` of the project whose launches alone may name it.
    #[serde(default)]
    pub project: Option<String>,
    /// Name or id of the resource group that launches with it go to.
    #[serde(default)]
    pub group: Option<String>,
    #[serde(default)]
    #[schema(maximum = 9_999)]
    pub position: u32,
    /// Takes the mark from the one that had it in the same scope.
    #[serde(default)]
    pub default: bool,
}

/// A merge patch: what is left out stays; `resources` are replaced as a whole.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = PresetPatch)]
#[serde(deny_unknown_fields)]
pub struct PresetPatchBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: Option<String>,
    pub title: Option<String>,
    pub title_ko: Option<String>,
    #[schema(value_type = Option<Resources>)]
    pub resources: Option<Object<Resources>>,
    /// A null takes the limit out.
    #[serde(default, deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub max_runtime_seconds: Option<Option<u64>>,
    /// Name or id of a resource group; empty: any.
    pub group: Option<String>,
    #[schema(maximum = 9_999)]
    pub position: Option<u32>,
    pub default: Option<bool>,
}

impl PresetView {
    /// What people read, in Korean or in English.
    pub fn heading(&self, korean: bool) -> &str {
        let title = match korean && !self.title_ko.is_empty() {
            true => &self.title_ko,
            false => &self.title,
        };
        match title.is_empty() {
            true => self.name.as_str(),
            false => title,
        }
    }
}

impl From<PresetAmounts> for Resources {
    fn from(amounts: PresetAmounts) -> Self {
        Self {
            cpu: amounts.cpu,
            memory: amounts.memory,
            shm: amounts.shm,
            disk: amounts.disk,
            gpu: amounts.gpu,
            gpu_memory: amounts.gpu_memory,
            mig: amounts.mig,
        }
    }
}

impl Resources {
    /// The same amounts with a time limit.
    pub fn amounts(self, max_runtime_seconds: Option<u64>) -> PresetAmounts {
        PresetAmounts {
            cpu: self.cpu,
            memory: self.memory,
            shm: self.shm,
            disk: self.disk,
            gpu: self.gpu,
            gpu_memory: self.gpu_memory,
            mig: self.mig,
            max_runtime_seconds,
        }
    }
}
