//! A preset: amounts with a name that a launch may ask for instead of each amount. Says what is refused, which of
//! several is meant, and how its amounts join what was asked for. Never looks anything up.

use serde::{Deserialize, Serialize};

use crate::devices::MigProfile;
use crate::names::{PresetId, ResourceGroupId, TenantName};
use crate::refusal::Refusal;
use crate::refusals;
use crate::resources::Demand;
use crate::session::hidden;
use crate::tenancy::{DomainId, ProjectId, Scope};
use crate::units::{Bytes, CpuShare, GpuShare};
use crate::workload::validate::check_run_seconds;

/// Characters of a title. Higher: a chip of the launch form fills a line. Lower: two words in English do not fit.
pub const MAX_PRESET_TITLE: usize = 40;
/// Highest number by which presets are sorted. Higher: the column is wide. Lower: numbers in steps of ten run out.
pub const MAX_PRESET_POSITION: u32 = 9_999;

/// Whose launches may name it. The order is the order of precedence: of two with one name the narrower is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PresetScope {
    Project {
        domain: DomainId,
        project: ProjectId,
    },
    Domain(DomainId),
    Site,
}

impl PresetScope {
    /// The domain and the project as rows have them; neither for the site.
    pub fn parts(self) -> (Option<DomainId>, Option<ProjectId>) {
        match self {
            Self::Site => (None, None),
            Self::Domain(domain) => (Some(domain), None),
            Self::Project { domain, project } => (Some(domain), Some(project)),
        }
    }

    /// The scope on which a subject needs the permission to write it.
    pub fn scope(self) -> Scope {
        let (domain, project) = self.parts();
        Scope {
            domain,
            project,
            owner: None,
        }
    }
}

/// Amounts, each only where something is said of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PresetAmounts {
    pub cpu: Option<CpuShare>,
    pub memory: Option<Bytes>,
    pub shm: Option<Bytes>,
    pub disk: Option<Bytes>,
    pub gpu: Option<GpuShare>,
    pub gpu_memory: Option<Bytes>,
    pub mig: Option<MigProfile>,
    pub max_runtime_seconds: Option<u64>,
}

impl PresetAmounts {
    /// What a session of these amounts asks for, with the defaults where nothing is said.
    pub fn demand(&self) -> Demand {
        let usual = Demand::default();
        let memory = self.memory.unwrap_or(usual.memory);
        Demand {
            cpu: self.cpu.unwrap_or(usual.cpu),
            memory,
            shm: self.shm.unwrap_or(usual.shm.min(Bytes(memory.0 / 2))),
            disk: self.disk,
            gpu: self.gpu.unwrap_or(usual.gpu),
            gpu_memory: self.gpu_memory,
            mig: self.mig,
        }
    }

    /// Refuses amounts that no machine could give, and a preset that says nothing.
    ///
    /// Errors: `preset.empty`, `preset.amount-too-large`; those of a launch, each at its field.
    pub fn check(&self) -> Result<(), Refusal> {
        if *self == Self::default() {
            return Err(refusals::preset_empty().at("/resources"));
        }
        if self.gpu == Some(GpuShare::ZERO) {
            return Err(refusals::gpu_zero().at("/resources/gpu"));
        }
        self.demand().check()?;
        // Numbers of the API have a sign. The disk has a bound of its own, and the shared memory that of the memory.
        let most = i64::MAX.unsigned_abs();
        for (size, field) in [(self.memory, "memory"), (self.gpu_memory, "gpu_memory")] {
            if size.is_some_and(|size| size > Bytes(most)) {
                let refusal = refusals::preset_amount_too_large(most);
                return Err(refusal.at(format!("/resources/{field}")));
            }
        }
        check_run_seconds(self.max_runtime_seconds)
            .map_err(|refusal| refusal.at("/max_runtime_seconds"))
    }

    /// These amounts where `asked` says nothing; what was asked for wins.
    ///
    /// Where a share or a partition was asked for, the devices of the preset are left out, and so is
    /// its memory of the fraction. A share of 0 asks for none. The preset's shared memory never exceeds the memory that
    /// was asked for.
    #[must_use]
    pub fn under(&self, asked: &Self) -> Self {
        let memory = asked.memory.or(self.memory);
        let fits = |shm: Bytes| memory.map_or(shm, |memory| shm.min(memory));
        let devices = match asked.gpu.is_some() || asked.mig.is_some() {
            true => *asked,
            false => *self,
        };
        Self {
            cpu: asked.cpu.or(self.cpu),
            memory,
            shm: asked.shm.or_else(|| self.shm.map(fits)),
            disk: asked.disk.or(self.disk),
            gpu: devices.gpu.filter(|share| *share > GpuShare::ZERO),
            gpu_memory: asked.gpu_memory.or(devices.gpu_memory),
            mig: devices.mig,
            max_runtime_seconds: asked.max_runtime_seconds.or(self.max_runtime_seconds),
        }
    }

    /// `cpu=4 memory=16 GiB gpu=0.5 max_runtime=14400s`, only what is said; for events.
    pub fn told(&self) -> String {
        let mut all = Vec::new();
        let mut put = |name: &str, value: Option<String>| {
            all.extend(value.map(|value| format!("{name}={value}")));
        };
        put("cpu", self.cpu.map(|cpu| cpu.to_string()));
        put("memory", self.memory.map(|memory| memory.to_string()));
        put("shm", self.shm.map(|shm| shm.to_string()));
        put("disk", self.disk.map(|disk| disk.to_string()));
        put("gpu", self.gpu.map(|gpu| gpu.to_string()));
        put("gpu_memory", self.gpu_memory.map(|size| size.to_string()));
        put("mig", self.mig.map(|profile| profile.to_string()));
        let seconds = self.max_runtime_seconds;
        put("max_runtime", seconds.map(|seconds| format!("{seconds}s")));
        all.join(" ")
    }
}

/// One preset as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    pub id: PresetId,
    pub scope: PresetScope,
    /// No other preset of the scope has it.
    pub name: TenantName,
    /// What people read; empty: the name.
    pub title: String,
    /// For readers in Korean; empty: they read `title`.
    pub title_ko: String,
    pub amounts: PresetAmounts,
    /// The resource group that launches with it go to; None: any.
    pub group: Option<ResourceGroupId>,
    /// Lower ones come first.
    pub position: u32,
    /// The launch form begins with it. At most one of a scope.
    pub is_default: bool,
    pub generation: u64,
}

impl Preset {
    /// Refuses a number beyond `MAX_PRESET_POSITION`, and bad amounts.
    ///
    /// Errors: `preset.position`; as `PresetAmounts::check`.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.position > MAX_PRESET_POSITION {
            return Err(refusals::preset_position(MAX_PRESET_POSITION).at("/position"));
        }
        self.amounts.check()
    }
}

/// A title as it is kept: without blanks around it.
///
/// Errors: `preset.title-invalid` at `pointer`.
pub fn preset_title(typed: &str, pointer: &str) -> Result<String, Refusal> {
    let title = typed.trim();
    match title.chars().count() > MAX_PRESET_TITLE || title.chars().any(hidden) {
        true => Err(refusals::preset_title_invalid(MAX_PRESET_TITLE).at(pointer)),
        false => Ok(title.to_owned()),
    }
}

/// The presets that a launch may name, in the order in which they are shown: those of the project first, then those of
/// its domain, then the site's, each by position and name. Of several with one name only the narrowest is left.
///
/// `all`: what holds in the project, in any order. O(n log n).
pub fn in_order(mut all: Vec<Preset>) -> Vec<Preset> {
    all.sort_by(|a, b| {
        let key = |one: &Preset| (one.scope, one.position);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|one| seen.insert(one.name.clone()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Timestamp;

    fn amounts(cpu: u32, gib: u64) -> PresetAmounts {
        PresetAmounts {
            cpu: Some(CpuShare(cpu * 100)),
            memory: Some(Bytes::gib(gib)),
            ..PresetAmounts::default()
        }
    }

    fn preset(scope: PresetScope, name: &str, position: u32) -> Preset {
        Preset {
            id: PresetId::make(Timestamp::from_millis(1), [0; 10]),
            scope,
            name: TenantName::parse(name).expect("a name"),
            title: String::new(),
            title_ko: String::new(),
            amounts: amounts(1, 1),
            group: None,
            position,
            is_default: false,
            generation: 1,
        }
    }

    #[test]
    fn amounts_that_are_asked_for_win_over_those_of_the_preset() {
        let preset = PresetAmounts {
            shm: Some(Bytes::gib(8)),
            gpu: Some(GpuShare(50)),
            gpu_memory: Some(Bytes::gib(10)),
            max_runtime_seconds: Some(3_600),
            ..amounts(4, 16)
        };
        assert_eq!(preset.under(&PresetAmounts::default()), preset);
        let asked = PresetAmounts {
            cpu: Some(CpuShare(50)),
            memory: Some(Bytes::gib(2)),
            max_runtime_seconds: Some(60),
            ..PresetAmounts::default()
        };
        let both = preset.under(&asked);
        assert_eq!(both.cpu, asked.cpu);
        assert_eq!(both.memory, asked.memory);
        assert_eq!(both.max_runtime_seconds, Some(60));
        assert_eq!(
            both.gpu, preset.gpu,
            "what is not asked for is the preset's"
        );
        assert_eq!(both.shm, Some(Bytes::gib(2)), "it fits into the memory");
        assert!(both.demand().check().is_ok());
    }

    #[test]
    fn devices_that_are_asked_for_replace_those_of_the_preset() {
        let preset = PresetAmounts {
            gpu: Some(GpuShare(50)),
            gpu_memory: Some(Bytes::gib(10)),
            ..amounts(4, 16)
        };
        let asks = |gpu: Option<GpuShare>, mig: Option<&str>| {
            let mig = mig.map(|profile| MigProfile::parse(profile).expect("a profile"));
            preset.under(&PresetAmounts {
                gpu,
                mig,
                ..PresetAmounts::default()
            })
        };
        let whole = asks(Some(GpuShare(100)), None);
        assert_eq!((whole.gpu, whole.gpu_memory), (Some(GpuShare(100)), None));
        let part = asks(None, Some("1g.10gb"));
        assert!(part.mig.is_some());
        assert_eq!((part.gpu, part.gpu_memory), (None, None));
        let none = asks(Some(GpuShare::ZERO), None);
        assert_eq!((none.gpu, none.gpu_memory, none.mig), (None, None, None));
        for both in [whole, part, none] {
            assert!(both.demand().check().is_ok(), "{both:?}");
        }
    }

    #[test]
    fn what_no_machine_could_give_is_no_preset() {
        let code = |amounts: PresetAmounts| amounts.check().expect_err("refused").code;
        let wrong = [
            (PresetAmounts::default(), "preset.empty"),
            (
                PresetAmounts {
                    gpu: Some(GpuShare::ZERO),
                    ..amounts(1, 1)
                },
                "gpu.zero",
            ),
            (
                PresetAmounts {
                    shm: Some(Bytes::gib(2)),
                    ..amounts(1, 1)
                },
                "shm.too-large",
            ),
            (
                PresetAmounts {
                    memory: Some(Bytes(1 << 63)),
                    ..amounts(1, 1)
                },
                "preset.amount-too-large",
            ),
            (
                PresetAmounts {
                    gpu: Some(GpuShare(50)),
                    gpu_memory: Some(Bytes(1 << 63)),
                    ..amounts(1, 1)
                },
                "preset.amount-too-large",
            ),
            (
                PresetAmounts {
                    disk: Some(Bytes(1 << 63)),
                    ..amounts(1, 1)
                },
                "disk.size",
            ),
        ];
        for (amounts, expected) in wrong {
            assert_eq!(code(amounts), expected);
        }
        assert!(amounts(1, 1).check().is_ok());
        let most = PresetAmounts {
            memory: Some(Bytes(i64::MAX.unsigned_abs())),
            ..amounts(1, 1)
        };
        assert!(most.check().is_ok());
        let mut far = preset(PresetScope::Site, "a", MAX_PRESET_POSITION);
        assert!(far.check().is_ok());
        far.position += 1;
        assert_eq!(far.check().expect_err("refused").code, "preset.position");
        assert!(preset_title(&"가".repeat(MAX_PRESET_TITLE), "/title").is_ok());
        for wrong in ["x".repeat(MAX_PRESET_TITLE + 1), "a\u{202e}b".to_owned()] {
            assert!(preset_title(&wrong, "/title").is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_narrowest_of_one_name_is_meant() {
        let domain = DomainId::DEFAULT;
        let project = PresetScope::Project {
            domain,
            project: ProjectId::DEFAULT,
        };
        let of_domain = PresetScope::Domain(domain);
        let order = in_order(vec![
            preset(PresetScope::Site, "small", 0),
            preset(PresetScope::Site, "huge", 0),
            preset(of_domain, "small", 1),
            preset(of_domain, "big", 1),
            preset(of_domain, "tiny", 0),
            preset(project, "big", 9),
        ]);
        let order: Vec<(PresetScope, &str)> = order
            .iter()
            .map(|one| (one.scope, one.name.as_str()))
            .collect();
        assert_eq!(
            order,
            [
                (project, "big"),
                (of_domain, "tiny"),
                (of_domain, "small"),
                (PresetScope::Site, "huge"),
            ]
        );
    }
}
