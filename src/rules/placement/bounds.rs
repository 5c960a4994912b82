//! What policies bound of sessions that have a place: sums of a user, a member, a project, a domain. Counts while places are given
//! away; a session beyond a limit waits for its own, and holds back no other.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::names::UserId;
use crate::quota::{
    LimitKey, LimitKind, LimitUsage, PolicyLevel, PolicyLimits, ScopedPolicy, TenantLevel,
};
use crate::session::Session;
use crate::world::ClusterSnapshot;

/// Whose sums are bounded together: those of a level's subject, for members also of one user; the site's policy bounds
/// each user by themselves.
pub(super) type Account = (PolicyLevel, Uuid, Option<UserId>);

/// Limits that bound some sessions, and others with them.
pub(super) struct SharedLimits {
    /// Users whose devices together are bounded.
    pub(super) owners: BTreeSet<UserId>,
    pub(super) accounts: BTreeSet<Account>,
}

/// Sums of those that a policy bounds; nothing is counted where none does.
#[derive(Clone, Default)]
pub(super) struct Bounds<'w> {
    site: Option<&'w ScopedPolicy>,
    scoped: BTreeMap<(PolicyLevel, Uuid), &'w ScopedPolicy>,
    /// What is raised for a while, by whom it is for.
    raised: BTreeMap<(TenantLevel, Uuid), Vec<&'w PolicyLimits>>,
    held: BTreeMap<Account, LimitUsage>,
    /// What those wait for who stand in front.
    owed: BTreeMap<Account, LimitUsage>,
}

/// A limit that a session is beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitHit<'w> {
    pub(super) policy: &'w ScopedPolicy,
    pub(super) key: LimitKey,
    pub(super) limit: u64,
    /// Of the sum, without the session.
    pub(super) used: u64,
    /// What the session needs of it.
    pub(super) need: u64,
}

impl<'w> Bounds<'w> {
    pub(super) fn new(world: &'w ClusterSnapshot) -> Self {
        let mut bounds = Self::default();
        let bounding = |policy: &&ScopedPolicy| policy.limits.says(LimitKind::Held);
        for policy in world.limits.iter().filter(bounding) {
            match policy.subject {
                Some(subject) => {
                    bounds.scoped.insert((policy.level, subject), policy);
                }
                None => bounds.site = Some(policy),
            }
        }
        for allowance in &world.allowances {
            let of = (allowance.level, allowance.subject);
            let raised = bounds.raised.entry(of).or_default();
            raised.push(&allowance.limits);
        }
        bounds
    }

    pub(super) fn is_empty(&self) -> bool {
        self.site.is_none() && self.scoped.is_empty()
    }

    /// No session stands in front any more.
    pub(super) fn forget_owed(&mut self) {
        self.owed.clear();
    }

    /// The same without sessions in front.
    pub(super) fn bare(&self) -> Self {
        Self {
            owed: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// The accounts of a session that are bounded, each with its policies.
    fn of(&self, session: &Session) -> Vec<(Account, &'w ScopedPolicy)> {
        if self.is_empty() {
            return Vec::new();
        }
        let user = (PolicyLevel::User, session.owner.0, None);
        let mut all: Vec<(Account, &'w ScopedPolicy)> =
            self.site.map(|site| (user, site)).into_iter().collect();
        for account in [
            (PolicyLevel::Domain, session.domain.0, None),
            (PolicyLevel::Project, session.project.0, None),
            (PolicyLevel::Member, session.project.0, Some(session.owner)),
            user,
        ] {
            let (level, subject, _) = account;
            let policy = self.scoped.get(&(level, subject));
            all.extend(policy.map(|policy| (account, *policy)));
        }
        all
    }

    fn accounts(&self, session: &Session) -> Vec<Account> {
        let mut accounts: Vec<Account> = self.of(session).into_iter().map(|(one, _)| one).collect();
        accounts.sort_unstable();
        accounts.dedup();
        accounts
    }

    pub(super) fn hold(&mut self, session: &Session, amount: LimitUsage) {
        for account in self.accounts(session) {
            let sum = self.held.entry(account).or_default();
            *sum = sum.plus(amount);
        }
    }

    pub(super) fn free(&mut self, session: &Session, amount: LimitUsage) {
        for account in self.accounts(session) {
            let sum = self.held.entry(account).or_default();
            *sum = sum.minus(amount);
        }
    }

    /// Notes that a session waits in front.
    pub(super) fn owe(&mut self, session: &Session, amount: LimitUsage) {
        for account in self.accounts(session) {
            let sum = self.owed.entry(account).or_default();
            *sum = sum.plus(amount);
        }
    }

    /// The first limit that the session is beyond: of the widest level, in the order of the keys. `owed`: once those in
    /// front have started.
    pub(super) fn hit(
        &self,
        session: &Session,
        need: LimitUsage,
        owed: bool,
    ) -> Option<LimitHit<'w>> {
        self.of(session).into_iter().find_map(|(account, policy)| {
            let sum = |sums: &BTreeMap<Account, LimitUsage>| {
                sums.get(&account).copied().unwrap_or_default()
            };
            let mut used = sum(&self.held);
            if owed {
                used = used.plus(sum(&self.owed));
            }
            LimitKey::ALL
                .into_iter()
                .filter(|key| key.kind() == LimitKind::Held && need.get(*key) > 0)
                .find_map(|key| {
                    let limit = policy.limits.get(key)?;
                    let limit = self.raised(session, policy.level, key).max(limit);
                    let (used, need) = (used.get(key), need.get(key));
                    (used.saturating_add(need) > limit).then_some(LimitHit {
                        policy,
                        key,
                        limit,
                        used,
                        need,
                    })
                })
        })
    }

    /// What allowances raise a limit of that level to, for the session; 0 where none does.
    fn raised(&self, session: &Session, level: PolicyLevel, key: LimitKey) -> u64 {
        if self.raised.is_empty() {
            return 0;
        }
        let level = TenantLevel::that_raises(level);
        let subject = match level {
            TenantLevel::Domain => session.domain.0,
            TenantLevel::Project => session.project.0,
            TenantLevel::User => session.owner.0,
        };
        let limits = self.raised.get(&(level, subject)).into_iter().flatten();
        limits
            .filter_map(|limits| limits.get(key))
            .max()
            .unwrap_or(0)
    }

    /// The accounts of these sessions that are bounded.
    pub(super) fn accounts_of<'s>(
        &self,
        sessions: impl Iterator<Item = &'s Session>,
    ) -> BTreeSet<Account> {
        match self.is_empty() {
            true => BTreeSet::new(),
            false => sessions.flat_map(|one| self.accounts(one)).collect(),
        }
    }

    /// Whether a session counts in one of these accounts.
    pub(super) fn counts_in(&self, session: &Session, accounts: &BTreeSet<Account>) -> bool {
        !accounts.is_empty()
            && self
                .accounts(session)
                .iter()
                .any(|own| accounts.contains(own))
    }

    /// Whether both are bounded by one policy, so that one starting can hold the other back.
    pub(super) fn share_account(&self, one: &Session, other: &Session) -> bool {
        let others = self.accounts(other);
        self.accounts(one).iter().any(|own| others.contains(own))
    }
}
