//! Which limit holds for a user: limits stand in named policies, policies are attached to levels, and the strictest
//! wins. Pure; counts nothing and refuses nothing.
//!
//! A level bounds a sum: a domain and a project that of all their members together, a user their own. The site has
//! no sum of its own: its policy bounds each user by itself, wherever no policy of theirs is stricter.

use serde::{Deserialize, Serialize};

/// What a policy is attached to, the widest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyLevel {
    Site,
    Domain,
    Project,
    User,
}

impl PolicyLevel {
    pub const ALL: [Self; 4] = [Self::Site, Self::Domain, Self::Project, Self::User];
}

/// What a policy limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKey {
    /// Sessions that wait for a place.
    Waiting,
    /// Bytes of the commands and variables of sessions that wait for a place.
    WaitingBytes,
}

impl LimitKey {
    pub const ALL: [Self; 2] = [Self::Waiting, Self::WaitingBytes];

    /// Its name in a policy.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::WaitingBytes => "waiting_bytes",
        }
    }
}

/// The limits of one policy. None: it says nothing of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_bytes: Option<u64>,
}

impl PolicyLimits {
    pub fn get(&self, key: LimitKey) -> Option<u64> {
        match key {
            LimitKey::Waiting => self.waiting,
            LimitKey::WaitingBytes => self.waiting_bytes,
        }
    }

    /// These limits, and those of `usual` where nothing is said.
    pub fn or(self, usual: Self) -> Self {
        Self {
            waiting: self.waiting.or(usual.waiting),
            waiting_bytes: self.waiting_bytes.or(usual.waiting_bytes),
        }
    }
}

/// A policy at the level that it is attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedPolicy {
    pub level: PolicyLevel,
    /// What the administrator calls it.
    pub name: String,
    pub limits: PolicyLimits,
}

/// What is in use, by limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitUsage {
    pub waiting: u64,
    pub waiting_bytes: u64,
}

impl LimitUsage {
    pub fn get(&self, key: LimitKey) -> u64 {
        match key {
            LimitKey::Waiting => self.waiting,
            LimitKey::WaitingBytes => self.waiting_bytes,
        }
    }
}

/// What is in use at each level that has a sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageByLevel {
    pub domain: LimitUsage,
    pub project: LimitUsage,
    pub user: LimitUsage,
}

impl UsageByLevel {
    /// The sum that a policy of that level bounds.
    pub fn bounded_by(&self, level: PolicyLevel) -> &LimitUsage {
        match level {
            PolicyLevel::Domain => &self.domain,
            PolicyLevel::Project => &self.project,
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
}

/// Gives for each key the limit that leaves the least, in the order of the keys; a key of which no policy says
/// anything is unlimited and left out.
///
/// Of limits that leave the same, the lowest wins, then that of the widest level, then the first name; the order
/// of `attached` is no matter. Costs one visit of each policy and key.
pub fn effective(attached: &[AttachedPolicy], usage: &UsageByLevel) -> Vec<EffectiveLimit> {
    let strictest = |key: LimitKey| {
        attached
            .iter()
            .filter_map(|policy| {
                let value = policy.limits.get(key)?;
                let used = usage.bounded_by(policy.level).get(key);
                Some((value.saturating_sub(used), value, used, policy))
            })
            .min_by_key(|(left, value, _, policy)| (*left, *value, policy.level, &policy.name))
            .map(|(left, value, used, policy)| EffectiveLimit {
                key,
                value,
                used,
                left,
                level: policy.level,
                policy: policy.name.clone(),
            })
    };
    LimitKey::ALL.into_iter().filter_map(strictest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            }
        }

        fn policy(&mut self) -> AttachedPolicy {
            AttachedPolicy {
                level: PolicyLevel::ALL[self.below(4) as usize],
                name: format!("p{}", self.below(4)),
                limits: PolicyLimits {
                    waiting: self.limit(),
                    waiting_bytes: self.limit(),
                },
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
                    PolicyLevel::Domain => usage.domain,
                };
                let most = policy.limits.get(key);
                more > 0 && most.is_some_and(|most| sum.get(key) + more > most)
            })
        };
        (0..100).find(|more| refuses(more + 1))
    }

    #[test]
    fn the_strictest_limit_holds_in_whichever_order_and_one_more_never_loosens_it() {
        let mut limited = 0;
        for seed in 0..5000 {
            let mut numbers = Numbers(seed);
            let usage = UsageByLevel {
                domain: numbers.usage(),
                project: numbers.usage(),
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
    fn a_policy_says_nothing_of_what_it_does_not_name() {
        let usual = PolicyLimits {
            waiting: Some(5),
            waiting_bytes: Some(6),
        };
        let own = PolicyLimits {
            waiting: Some(3),
            waiting_bytes: None,
        };
        assert_eq!(
            own.or(usual),
            PolicyLimits {
                waiting: Some(3),
                waiting_bytes: Some(6)
            }
        );
        assert_eq!(effective(&[], &UsageByLevel::default()), []);
    }
}
