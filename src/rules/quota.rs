//! Which limit holds for a user: limits stand in named policies, policies are attached to levels, and the strictest
//! wins. Pure; counts nothing and refuses nothing.
//!
//! A level bounds a sum: a domain and a project that of all their members together, a user their own. A member is each
//! member of a project by themselves, with what they have in that project. The site has no sum of its own: its policy
//! bounds each user by themselves, wherever no policy of theirs is stricter.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};

/// What a policy is attached to, the widest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyLevel {
    Site,
    Domain,
    Project,
    /// Each member of a project.
    Member,
    User,
}

impl PolicyLevel {
    pub const ALL: [Self; 5] = [
        Self::Site,
        Self::Domain,
        Self::Project,
        Self::Member,
        Self::User,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Domain => "domain",
            Self::Project => "project",
            Self::Member => "member",
            Self::User => "user",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.word() == word)
    }
}

/// Whose weight or allowance it is, the widest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TenantLevel {
    Domain,
    Project,
    User,
}

impl TenantLevel {
    pub const ALL: [Self; 3] = [Self::Domain, Self::Project, Self::User];

    /// As rows and addresses write it.
    pub fn word(self) -> &'static str {
        PolicyLevel::from(self).word()
    }

    /// The level of a word; None for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.word() == word)
    }
}

impl From<TenantLevel> for PolicyLevel {
    fn from(level: TenantLevel) -> Self {
        match level {
            TenantLevel::Domain => Self::Domain,
            TenantLevel::Project => Self::Project,
            TenantLevel::User => Self::User,
        }
    }
}

impl TenantLevel {
    /// Whose allowance raises what a policy of that level bounds: a user's raises all that bounds each user by
    /// themselves.
    pub fn that_raises(level: PolicyLevel) -> Self {
        match level {
            PolicyLevel::Domain => Self::Domain,
            PolicyLevel::Project => Self::Project,
            PolicyLevel::Site | PolicyLevel::Member | PolicyLevel::User => Self::User,
        }
    }
}

/// What a policy limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKey {
    /// Sessions that wait for a place.
    Waiting,
    /// Bytes of the commands and variables of sessions that wait for a place.
    WaitingBytes,
    /// Sessions that have a place.
    Sessions,
    /// Hundredths of devices that they hold.
    Gpu,
    /// Hundredths of cores.
    Cpu,
    /// Bytes of memory.
    Memory,
    /// Hundredths of devices of one session.
    GpuEach,
    /// Hundredths of cores of one session.
    CpuEach,
    /// Bytes of memory of one session.
    MemoryEach,
    /// Bytes that one session writes outside its folders.
    DiskEach,
    /// Seconds that one session runs.
    RuntimeSeconds,
    /// The priority of one session.
    Priority,
    /// Browsers that each user is signed in with.
    SignIns,
    /// Bytes of all folders of each user.
    FolderBytes,
    /// Images that each user keeps of sessions.
    Images,
}

/// What a limit bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// The sum of what waits: a launch beyond it is refused.
    Queue,
    /// The sum of what has a place: what is beyond it waits.
    Held,
    /// One session: a larger one is refused.
    Each,
    /// The account of each user by themselves, at whichever level it stands.
    Account,
}

impl LimitKey {
    pub const ALL: [Self; 15] = [
        Self::Waiting,
        Self::WaitingBytes,
        Self::Sessions,
        Self::Gpu,
        Self::Cpu,
        Self::Memory,
        Self::GpuEach,
        Self::CpuEach,
        Self::MemoryEach,
        Self::DiskEach,
        Self::RuntimeSeconds,
        Self::Priority,
        Self::SignIns,
        Self::FolderBytes,
        Self::Images,
    ];

    /// Its name in a policy.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::WaitingBytes => "waiting_bytes",
            Self::Sessions => "sessions",
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::GpuEach => "gpu_each",
            Self::CpuEach => "cpu_each",
            Self::MemoryEach => "memory_each",
            Self::DiskEach => "disk_each",
            Self::RuntimeSeconds => "runtime_seconds",
            Self::Priority => "priority",
            Self::SignIns => "sign_ins",
            Self::FolderBytes => "folder_bytes",
            Self::Images => "images",
        }
    }

    pub fn kind(self) -> LimitKind {
        match self {
            Self::Waiting | Self::WaitingBytes => LimitKind::Queue,
            Self::Sessions | Self::Gpu | Self::Cpu | Self::Memory => LimitKind::Held,
            Self::GpuEach
            | Self::CpuEach
            | Self::MemoryEach
            | Self::DiskEach
            | Self::RuntimeSeconds
            | Self::Priority => LimitKind::Each,
            Self::SignIns | Self::FolderBytes | Self::Images => LimitKind::Account,
        }
    }

    /// An amount of it with its unit, as limits and blockers say it: `1.5 GPU`, `2 GPUs`, `16 GiB`, `3`.
    pub fn told(self, amount: u64) -> String {
        let hundredths = || u32::try_from(amount).unwrap_or(u32::MAX);
        match self {
            Self::Gpu | Self::GpuEach if amount >= 200 => {
                format!("{} GPUs", GpuShare(hundredths()))
            }
            Self::Gpu | Self::GpuEach => format!("{} GPU", GpuShare(hundredths())),
            Self::Cpu | Self::CpuEach => format!("{} CPU", CpuShare(hundredths())),
            Self::Memory
            | Self::MemoryEach
            | Self::DiskEach
            | Self::WaitingBytes
            | Self::FolderBytes => Bytes(amount).to_string(),
            Self::RuntimeSeconds if amount > 0 && amount.is_multiple_of(3_600) => {
                format!("{} h", amount / 3_600)
            }
            Self::RuntimeSeconds => format!("{amount} s"),
            Self::Waiting | Self::Sessions | Self::Priority | Self::SignIns | Self::Images => {
                amount.to_string()
            }
        }
    }
}

/// The limits of one policy, in the units of their keys. None: it says nothing of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_each: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_each: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_each: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_each: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_ins: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<u64>,
}

impl PolicyLimits {
    /// Says nothing.
    pub const NONE: Self = Self {
        waiting: None,
        waiting_bytes: None,
        sessions: None,
        gpu: None,
        cpu: None,
        memory: None,
        gpu_each: None,
        cpu_each: None,
        memory_each: None,
        disk_each: None,
        runtime_seconds: None,
        priority: None,
        sign_ins: None,
        folder_bytes: None,
        images: None,
    };

    pub fn get(&self, key: LimitKey) -> Option<u64> {
        match key {
            LimitKey::Waiting => self.waiting,
            LimitKey::WaitingBytes => self.waiting_bytes,
            LimitKey::Sessions => self.sessions,
            LimitKey::Gpu => self.gpu,
            LimitKey::Cpu => self.cpu,
            LimitKey::Memory => self.memory,
            LimitKey::GpuEach => self.gpu_each,
            LimitKey::CpuEach => self.cpu_each,
            LimitKey::MemoryEach => self.memory_each,
            LimitKey::DiskEach => self.disk_each,
            LimitKey::RuntimeSeconds => self.runtime_seconds,
            LimitKey::Priority => self.priority,
            LimitKey::SignIns => self.sign_ins,
            LimitKey::FolderBytes => self.folder_bytes,
            LimitKey::Images => self.images,
        }
    }

    pub fn set(&mut self, key: LimitKey, value: Option<u64>) {
        let place = match key {
            LimitKey::Waiting => &mut self.waiting,
            LimitKey::WaitingBytes => &mut self.waiting_bytes,
            LimitKey::Sessions => &mut self.sessions,
            LimitKey::Gpu => &mut self.gpu,
            LimitKey::Cpu => &mut self.cpu,
            LimitKey::Memory => &mut self.memory,
            LimitKey::GpuEach => &mut self.gpu_each,
            LimitKey::CpuEach => &mut self.cpu_each,
            LimitKey::MemoryEach => &mut self.memory_each,
            LimitKey::DiskEach => &mut self.disk_each,
            LimitKey::RuntimeSeconds => &mut self.runtime_seconds,
            LimitKey::Priority => &mut self.priority,
            LimitKey::SignIns => &mut self.sign_ins,
            LimitKey::FolderBytes => &mut self.folder_bytes,
            LimitKey::Images => &mut self.images,
        };
        *place = value;
    }

    /// These limits, and those of `usual` where nothing is said.
    pub fn or(self, usual: Self) -> Self {
        let mut both = self;
        for key in LimitKey::ALL {
            both.set(key, self.get(key).or(usual.get(key)));
        }
        both
    }

    /// `sessions 3, gpu 1.5 GPU`: what it says, in the order of the keys; empty where it says nothing.
    pub fn told(&self) -> String {
        let said = LimitKey::ALL.into_iter().filter_map(|key| {
            let value = self.get(key)?;
            Some(format!("{} {}", key.word(), key.told(value)))
        });
        said.collect::<Vec<_>>().join(", ")
    }

    /// True where it says something of limits of that kind.
    pub fn says(&self, kind: LimitKind) -> bool {
        let mut keys = LimitKey::ALL.into_iter();
        keys.any(|key| key.kind() == kind && self.get(key).is_some())
    }
}

/// A policy at the level that it is attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedPolicy {
    pub level: PolicyLevel,
    /// What the administrator calls it.
    pub name: String,
    /// Raised by what `raised` names.
    pub limits: PolicyLimits,
    /// Limits that an allowance raised.
    pub raised: Vec<RaisedLimit>,
}

/// A limit of a policy that an allowance raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaisedLimit {
    pub key: LimitKey,
    pub until: Timestamp,
    /// What the policy says itself.
    pub usual: u64,
}

impl AttachedPolicy {
    /// Raises the limits that the allowance names and the policy has, where it is of those whom the policy bounds.
    /// Lowers none.
    pub fn raise(&mut self, by: &Allowance) {
        if by.level != TenantLevel::that_raises(self.level) {
            return;
        }
        for key in LimitKey::ALL {
            let (Some(limit), Some(more)) = (self.limits.get(key), by.limits.get(key)) else {
                continue;
            };
            if more > limit {
                let usual = self.usual(key).unwrap_or(limit);
                self.limits.set(key, Some(more));
                self.raised.retain(|one| one.key != key);
                self.raised.push(RaisedLimit {
                    key,
                    until: by.until,
                    usual,
                });
            }
        }
    }

    /// What the policy says itself, without allowances.
    fn usual(&self, key: LimitKey) -> Option<u64> {
        let raised = self.raised.iter().find(|one| one.key == key);
        raised.map(|one| one.usual).or(self.limits.get(key))
    }
}

/// Limits of a domain, a project or a user that are raised for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    pub level: TenantLevel,
    /// Id of the domain, project or user.
    pub subject: Uuid,
    pub limits: PolicyLimits,
    pub until: Timestamp,
}

/// What is in use, by limit; limits of one session and of an account have no sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitUsage {
    pub waiting: u64,
    pub waiting_bytes: u64,
    pub sessions: u64,
    pub gpu: u64,
    pub cpu: u64,
    pub memory: u64,
}

impl LimitUsage {
    pub fn get(&self, key: LimitKey) -> u64 {
        match key {
            LimitKey::Waiting => self.waiting,
            LimitKey::WaitingBytes => self.waiting_bytes,
            LimitKey::Sessions => self.sessions,
            LimitKey::Gpu => self.gpu,
            LimitKey::Cpu => self.cpu,
            LimitKey::Memory => self.memory,
            LimitKey::GpuEach
            | LimitKey::CpuEach
            | LimitKey::MemoryEach
            | LimitKey::DiskEach
            | LimitKey::RuntimeSeconds
            | LimitKey::Priority
            | LimitKey::SignIns
            | LimitKey::FolderBytes
            | LimitKey::Images => 0,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// This without the other.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            waiting: each(self.waiting, other.waiting),
            waiting_bytes: each(self.waiting_bytes, other.waiting_bytes),
            sessions: each(self.sessions, other.sessions),
            gpu: each(self.gpu, other.gpu),
            cpu: each(self.cpu, other.cpu),
            memory: each(self.memory, other.memory),
        }
    }
}

/// A policy that bounds sums of what has a place, for the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopedPolicy {
    pub level: PolicyLevel,
    /// Id of the domain, project or user, for members that of their project; None for the site.
    pub subject: Option<Uuid>,
    /// What users call the domain or project; empty for a user and the site.
    pub whose: String,
    /// What the administrator calls the policy.
    pub name: String,
    pub limits: PolicyLimits,
}

/// What is in use at each level that has a sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageByLevel {
    pub domain: LimitUsage,
    pub project: LimitUsage,
    /// Of the user in the project.
    pub member: LimitUsage,
    pub user: LimitUsage,
}

impl UsageByLevel {
    /// The sum that a policy of that level bounds.
    pub fn bounded_by(&self, level: PolicyLevel) -> &LimitUsage {
        match level {
            PolicyLevel::Domain => &self.domain,
            PolicyLevel::Project => &self.project,
            PolicyLevel::Member => &self.member,
            PolicyLevel::Site | PolicyLevel::User => &self.user,
        }
    }
}

/// The limit that holds, and the rule that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveLimit {
    pub key: LimitKey,
    pub value: u64,
    /// Of the sum that the rule bounds.
    pub used: u64,
    /// 0 where more is in use than may be.
    pub left: u64,
    pub level: PolicyLevel,
    /// Name of the policy.
    pub policy: String,
    /// When the allowance ends that raised it; None for what the policy says itself.
    pub until: Option<Timestamp>,
    /// What holds without allowances, where one raised it.
    pub usual: Option<u64>,
}

/// Sums of which more is in use than the limits say, each with what is in use and what may be, in the order of the keys.
/// Limits of one session and of an account bound no sum here.
pub fn beyond(limits: &PolicyLimits, usage: &LimitUsage) -> Vec<(LimitKey, u64, u64)> {
    let sums = LimitKey::ALL
        .into_iter()
        .filter(|key| matches!(key.kind(), LimitKind::Queue | LimitKind::Held));
    let over = sums.filter_map(|key| {
        let (limit, used) = (limits.get(key)?, usage.get(key));
        (used > limit).then_some((key, used, limit))
    });
    over.collect()
}

/// Gives for each key the limit that leaves the least, in the order of the keys; a key of which no policy says
/// anything is unlimited and left out.
///
/// Of limits that leave the same, the lowest wins, then that of the widest level, then the first name; the order
/// of `attached` is no matter. Costs one visit of each policy and key.
pub fn effective(attached: &[AttachedPolicy], usage: &UsageByLevel) -> Vec<EffectiveLimit> {
    let usual = |key: LimitKey| {
        let said = attached.iter().filter_map(|policy| {
            let used = usage.bounded_by(policy.level).get(key);
            let value = policy.usual(key)?;
            Some((value.saturating_sub(used), value))
        });
        said.min().map(|(_, value)| value)
    };
    let strictest = |key: LimitKey| {
        attached
            .iter()
            .filter_map(|policy| {
                let value = policy.limits.get(key)?;
                let used = usage.bounded_by(policy.level).get(key);
                Some((value.saturating_sub(used), value, used, policy))
            })
            .min_by_key(|(left, value, _, policy)| (*left, *value, policy.level, &policy.name))
            .map(|(left, value, used, policy)| {
                let raised = policy.raised.iter().find(|one| one.key == key);
                EffectiveLimit {
                    key,
                    value,
                    used,
                    left,
                    level: policy.level,
                    policy: policy.name.clone(),
                    until: raised.map(|one| one.until),
                    usual: raised.and_then(|_| usual(key)),
                }
            })
    };
    LimitKey::ALL.into_iter().filter_map(strictest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_their_units_as_one_says_them() {
        for (key, amount, told) in [
            (LimitKey::Gpu, 35, "0.35 GPU"),
            (LimitKey::Gpu, 100, "1 GPU"),
            (LimitKey::GpuEach, 150, "1.5 GPU"),
            (LimitKey::Gpu, 200, "2 GPUs"),
            (LimitKey::Cpu, 200, "2 CPU"),
            (LimitKey::Sessions, 2, "2"),
            (LimitKey::RuntimeSeconds, 7_200, "2 h"),
        ] {
            assert_eq!(key.told(amount), told);
        }
    }

    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, most: u32) -> u32 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(self.0 >> 33).expect("31 bits") % most.max(1)
        }

        fn limit(&mut self) -> Option<u64> {
            (self.below(3) > 0).then(|| u64::from(self.below(8)))
        }

        fn usage(&mut self) -> LimitUsage {
            LimitUsage {
                waiting: u64::from(self.below(6)),
                waiting_bytes: u64::from(self.below(6)),
                sessions: u64::from(self.below(6)),
                gpu: u64::from(self.below(6)),
                cpu: u64::from(self.below(6)),
                memory: u64::from(self.below(6)),
            }
        }

        fn policy(&mut self) -> AttachedPolicy {
            AttachedPolicy {
                level: PolicyLevel::ALL[self.below(5) as usize],
                name: format!("p{}", self.below(4)),
                limits: {
                    let mut limits = PolicyLimits::default();
                    for key in LimitKey::ALL {
                        limits.set(key, self.limit());
                    }
                    limits
                },
                raised: Vec::new(),
            }
        }
    }

    /// What any policy would leave, tried one amount after the other: more is asked for until one refuses.
    fn left_by_trying(
        attached: &[AttachedPolicy],
        usage: &UsageByLevel,
        key: LimitKey,
    ) -> Option<u64> {
        let refuses = |more: u64| {
            attached.iter().any(|policy| {
                let sum = match policy.level {
                    PolicyLevel::Site | PolicyLevel::User => usage.user,
                    PolicyLevel::Project => usage.project,
                    PolicyLevel::Member => usage.member,
                    PolicyLevel::Domain => usage.domain,
                };
                let most = policy.limits.get(key);
                more > 0 && most.is_some_and(|most| sum.get(key) + more > most)
            })
        };
        (0..100).find(|more| refuses(more + 1))
    }

    #[test]
    fn what_is_beyond_a_limit_is_told_and_what_reaches_it_is_not() {
        let usage = LimitUsage {
            sessions: 3,
            gpu: 250,
            waiting: 1,
            ..LimitUsage::default()
        };
        let limits = PolicyLimits {
            sessions: Some(3),
            gpu: Some(200),
            waiting: Some(0),
            cpu: Some(100),
            gpu_each: Some(1),
            ..PolicyLimits::NONE
        };
        let over = [(LimitKey::Waiting, 1, 0), (LimitKey::Gpu, 250, 200)];
        assert_eq!(beyond(&limits, &usage), over);
        assert!(beyond(&PolicyLimits::NONE, &usage).is_empty());
    }

    #[test]
    fn the_strictest_limit_holds_in_whichever_order_and_one_more_never_loosens_it() {
        let mut limited = 0;
        for seed in 0..5000 {
            let mut numbers = Numbers(seed);
            let usage = UsageByLevel {
                domain: numbers.usage(),
                project: numbers.usage(),
                member: numbers.usage(),
                user: numbers.usage(),
            };
            let number = numbers.below(6);
            let mut attached: Vec<AttachedPolicy> = (0..number).map(|_| numbers.policy()).collect();
            let found = effective(&attached, &usage);
            for key in LimitKey::ALL {
                let limit = found.iter().find(|limit| limit.key == key);
                let left = limit.map(|limit| limit.left);
                assert_eq!(
                    left,
                    left_by_trying(&attached, &usage, key),
                    "seed {seed}: {key:?} of {attached:?} with {usage:?}"
                );
                let Some(limit) = limit else { continue };
                limited += 1;
                // The rule that is named is one of them, and says that very value.
                let rule = attached.iter().any(|policy| {
                    policy.level == limit.level
                        && policy.name == limit.policy
                        && policy.limits.get(key) == Some(limit.value)
                });
                assert!(rule, "seed {seed}: no policy says {limit:?}");
                assert_eq!(limit.used, usage.bounded_by(limit.level).get(key));
            }
            attached.reverse();
            assert_eq!(effective(&attached, &usage), found, "seed {seed} reversed");
            attached.push(numbers.policy());
            let more = effective(&attached, &usage);
            for before in &found {
                let after = more.iter().find(|after| after.key == before.key);
                let after = after.expect("a limit stays");
                assert!(
                    after.left <= before.left,
                    "seed {seed}: {before:?}, {after:?}"
                );
            }
        }
        assert!(limited > 5000, "only {limited} limits");
    }

    #[test]
    fn an_allowance_raises_what_bounds_its_subject_and_lowers_nothing() {
        let until = Timestamp::from_millis(5_000);
        let limits = |gpu, sessions| PolicyLimits {
            gpu,
            sessions,
            ..PolicyLimits::NONE
        };
        let mut raised = 0;
        for level in PolicyLevel::ALL {
            for of in TenantLevel::ALL {
                let mut policy = AttachedPolicy {
                    level,
                    name: "usual".into(),
                    limits: limits(Some(100), Some(3)),
                    raised: Vec::new(),
                };
                policy.raise(&Allowance {
                    level: of,
                    subject: Uuid::nil(),
                    limits: PolicyLimits {
                        cpu: Some(9),
                        ..limits(Some(400), Some(2))
                    },
                    until,
                });
                let is_own = of == TenantLevel::that_raises(level);
                let expected = if is_own { 400 } else { 100 };
                // Fewer sessions than the policy has, and cores of which it says nothing, change nothing.
                assert_eq!(policy.limits, limits(Some(expected), Some(3)), "{level:?}");
                let found = effective(&[policy], &UsageByLevel::default());
                let limit = |key| found.iter().find(|one| one.key == key).unwrap();
                let ends = |key| (limit(key).until, limit(key).usual);
                let raised_gpu = is_own.then_some(until);
                assert_eq!(
                    ends(LimitKey::Gpu),
                    (raised_gpu, raised_gpu.map(|_| 100)),
                    "what it falls back to"
                );
                assert_eq!(ends(LimitKey::Sessions), (None, None));
                raised += usize::from(is_own);
            }
        }
        assert_eq!(raised, PolicyLevel::ALL.len());
    }

    #[test]
    fn a_policy_says_nothing_of_what_it_does_not_name() {
        let of = |waiting, waiting_bytes| PolicyLimits {
            waiting,
            waiting_bytes,
            ..PolicyLimits::default()
        };
        let usual = of(Some(5), Some(6));
        assert_eq!(of(Some(3), None).or(usual), of(Some(3), Some(6)));
        let mut all = PolicyLimits::default();
        for key in LimitKey::ALL {
            let mut one = PolicyLimits::NONE;
            one.set(key, Some(7));
            for kind in [
                LimitKind::Queue,
                LimitKind::Held,
                LimitKind::Each,
                LimitKind::Account,
            ] {
                assert_eq!(one.says(kind), key.kind() == kind, "{key:?}");
            }
            all.set(key, Some(7));
            assert_eq!(all.get(key), Some(7));
        }
        assert_eq!(effective(&[], &UsageByLevel::default()), []);
    }
}
