//! Resource groups: nodes that serve sessions of their own, and who may use them. Says which group is whose and what is
//! refused; chooses no place, `placement` does.
//!
//! A node is in exactly one group. One that no other group has is in the founding group, `default`, and so is a session
//! that names none.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::names::{NodeId, ResourceGroupId, SessionId, TenantName, UserId};
use crate::policy::{PreemptionMode, Spreading};
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::{Session, SessionKind};
use crate::tenancy::{DomainId, ProjectId};

/// Characters of a title. Higher: the list of groups is wide. Lower: a place and a model do not fit.
pub const MAX_GROUP_TITLE: usize = 60;

impl ResourceGroupId {
    /// The group `default`, which every site is initialised with; migration 0050 has the same bytes.
    pub const DEFAULT: Self = Self(Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0004));
}

/// Whose sessions a group takes, where it does not take everybody's: those of any of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupAccess {
    pub domains: BTreeSet<DomainId>,
    pub projects: BTreeSet<ProjectId>,
    pub users: BTreeSet<UserId>,
}

impl GroupAccess {
    /// How many domains, projects and users it lists.
    pub fn count(&self) -> usize {
        self.domains.len() + self.projects.len() + self.users.len()
    }
}

/// Which kinds of sessions a group takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupKinds {
    pub interactive: bool,
    pub batch: bool,
}

impl GroupKinds {
    pub const ALL: Self = Self {
        interactive: true,
        batch: true,
    };

    /// Those of a list; None where it is empty.
    pub fn of(kinds: &[SessionKind]) -> Option<Self> {
        let own = Self {
            interactive: kinds.contains(&SessionKind::Interactive),
            batch: kinds.contains(&SessionKind::Batch),
        };
        (own.interactive || own.batch).then_some(own)
    }

    pub fn takes(self, kind: SessionKind) -> bool {
        match kind {
            SessionKind::Interactive => self.interactive,
            SessionKind::Batch => self.batch,
        }
    }

    /// As a list, the interactive kind first.
    pub fn list(self) -> Vec<SessionKind> {
        let all = [SessionKind::Interactive, SessionKind::Batch];
        all.into_iter().filter(|kind| self.takes(*kind)).collect()
    }
}

/// One group as its row has it; its nodes are in the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroup {
    pub id: ResourceGroupId,
    pub name: TenantName,
    /// What people read; empty: the name.
    pub title: String,
    /// None: everybody may use it.
    pub access: Option<GroupAccess>,
    pub kinds: GroupKinds,
    /// How sessions are spread over its devices and nodes; None: as the settings say.
    pub spreading: Option<Spreading>,
    /// Whether sessions that yield are stopped for those of higher priority.
    #[serde(default)]
    pub preemption: PreemptionMode,
    pub generation: u64,
}

impl ResourceGroup {
    /// Whether sessions of that user in that project may use it.
    pub fn admits(&self, domain: DomainId, project: ProjectId, user: UserId) -> bool {
        self.access.as_ref().is_none_or(|access| {
            access.domains.contains(&domain)
                || access.projects.contains(&project)
                || access.users.contains(&user)
        })
    }

    /// Whether it says nothing that a site without groups does not say.
    pub fn is_plain(&self) -> bool {
        self.access.is_none()
            && self.kinds == GroupKinds::ALL
            && self.spreading.is_none()
            && self.preemption == PreemptionMode::Off
    }
}

/// Which node and which live session is in which group. Empty where all are in the founding group and that group says
/// nothing of its own: then decisions are those of a site without groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupPlan {
    /// All groups, the founding one first, then by name.
    pub groups: Vec<ResourceGroup>,
    /// Nodes of other groups than the founding one.
    pub nodes: BTreeMap<NodeId, ResourceGroupId>,
    /// Live sessions of other groups than the founding one.
    pub sessions: BTreeMap<SessionId, ResourceGroupId>,
}

impl GroupPlan {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.nodes.is_empty() && self.sessions.is_empty()
    }

    /// Whether there is only the founding group: then pages and answers do not speak of groups.
    pub fn is_single(&self) -> bool {
        self.groups.len() <= 1
    }

    pub fn of_node(&self, node: NodeId) -> ResourceGroupId {
        let known = self.nodes.get(&node).copied();
        known.unwrap_or(ResourceGroupId::DEFAULT)
    }

    pub fn of_session(&self, session: SessionId) -> ResourceGroupId {
        let known = self.sessions.get(&session).copied();
        known.unwrap_or(ResourceGroupId::DEFAULT)
    }

    /// The group whose nodes bound what a session may ask for: that of the node which it is on, which may have gone to
    /// another group since, else its own.
    pub fn that_bounds(&self, session: &Session) -> ResourceGroupId {
        let on = session.node();
        match on.filter(|_| session.state().holds_resources()) {
            Some(node) => self.of_node(node),
            None => self.of_session(session.id),
        }
    }

    /// None for an unknown group, and for every one of a site without groups.
    pub fn group(&self, id: ResourceGroupId) -> Option<&ResourceGroup> {
        self.groups.iter().find(|group| group.id == id)
    }

    /// Whether the group of a session still takes sessions of its owner. The self-test of a device is in the group of that.
    pub fn admits(&self, session: &Session) -> bool {
        self.groups.is_empty()
            || session.device_affinity.is_some()
            || self
                .group(self.of_session(session.id))
                .is_none_or(|group| group.admits(session.domain, session.project, session.owner))
    }

    /// Whether sessions of a group are stopped for others of it.
    pub fn preemption(&self, group: ResourceGroupId) -> PreemptionMode {
        self.group(group)
            .map_or(PreemptionMode::Off, |group| group.preemption)
    }

    /// How sessions are spread on a node, where its group says so.
    pub fn spreading(&self, node: NodeId) -> Option<Spreading> {
        if self.groups.is_empty() {
            return None;
        }
        self.group(self.of_node(node))?.spreading
    }

    /// The group of a launch of that user in that project: the one that is named, or the first that they may use.
    ///
    /// Errors: `group.not-allowed` for an unknown group and for one that they may not use, in the same words;
    /// `group.kind` where it takes no such sessions.
    pub fn choose(
        &self,
        named: Option<&str>,
        (domain, project, user): (DomainId, ProjectId, UserId),
        kind: SessionKind,
    ) -> Result<ResourceGroupId, Refusal> {
        let mut open = self
            .groups
            .iter()
            .filter(|group| group.admits(domain, project, user));
        let Some(named) = named else {
            if self.groups.is_empty() {
                return Ok(ResourceGroupId::DEFAULT);
            }
            let all: Vec<&ResourceGroup> = open.collect();
            let taking = all.iter().find(|group| group.kinds.takes(kind));
            return match (taking, all.first()) {
                (Some(group), _) => Ok(group.id),
                (None, Some(group)) => Err(refusals::group_kind(&group.name).at("/kind")),
                (None, None) => Err(refusals::group_none().at("/project")),
            };
        };
        let is_meant =
            |group: &ResourceGroup| group.name.as_str() == named || group.id.to_string() == named;
        if self.groups.is_empty() && named == FOUNDING_NAME {
            return Ok(ResourceGroupId::DEFAULT);
        }
        match open.find(|group| is_meant(group)) {
            Some(group) if group.kinds.takes(kind) => Ok(group.id),
            Some(group) => Err(refusals::group_kind(&group.name).at("/kind")),
            None => {
                let shown: String = named
                    .chars()
                    .take(80)
                    .flat_map(char::escape_debug)
                    .collect();
                Err(refusals::group_not_allowed(&shown).at("/group"))
            }
        }
    }
}

/// The name that the founding group has at first.
pub const FOUNDING_NAME: &str = "default";

/// A title without blanks around it. Errors: `group.title-invalid` at that field.
pub fn group_title(typed: &str, at: &str) -> Result<String, Refusal> {
    let title = typed.trim();
    if title.chars().count() > MAX_GROUP_TITLE || title.chars().any(crate::session::hidden) {
        return Err(refusals::group_title_invalid(MAX_GROUP_TITLE).at(at));
    }
    Ok(title.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn group(number: u128, name: &str, access: Option<GroupAccess>) -> ResourceGroup {
        ResourceGroup {
            id: ResourceGroupId(id(number)),
            name: TenantName::parse(name).expect("a name"),
            title: String::new(),
            access,
            kinds: GroupKinds::ALL,
            spreading: None,
            preemption: PreemptionMode::Off,
            generation: 1,
        }
    }

    const WHOSE: (DomainId, ProjectId, UserId) =
        (DomainId::DEFAULT, ProjectId::DEFAULT, UserId(Uuid::nil()));

    fn plan(founding: Option<GroupAccess>, other: Option<GroupAccess>) -> GroupPlan {
        let mut groups = vec![group(9, "default", founding), group(10, "lab", other)];
        groups[0].id = ResourceGroupId::DEFAULT;
        GroupPlan {
            groups,
            ..GroupPlan::default()
        }
    }

    fn code(answer: Result<ResourceGroupId, Refusal>) -> String {
        answer.map_or_else(|refusal| refusal.code, |id| id.to_string())
    }

    #[test]
    fn a_launch_gets_the_founding_group_where_it_may_and_else_the_first_other() {
        let none = || Some(GroupAccess::default());
        let batch = SessionKind::Batch;
        let lab = ResourceGroupId(id(10));
        let chosen = |plan: GroupPlan| plan.choose(None, WHOSE, batch);
        assert_eq!(chosen(GroupPlan::default()), Ok(ResourceGroupId::DEFAULT));
        assert_eq!(chosen(plan(None, None)), Ok(ResourceGroupId::DEFAULT));
        assert_eq!(chosen(plan(none(), None)), Ok(lab));
        assert_eq!(code(chosen(plan(none(), none()))), "group.none");
    }

    #[test]
    fn a_group_that_one_may_not_use_is_refused_like_one_that_does_not_exist() {
        let plan = plan(None, Some(GroupAccess::default()));
        let asked = |name: &str| {
            let refusal = plan.choose(Some(name), WHOSE, SessionKind::Batch);
            let refusal = refusal.expect_err("refused");
            (refusal.code, refusal.text.replace(name, "NAME"))
        };
        assert_eq!(asked("lab"), asked("nowhere"));
    }

    #[test]
    fn any_of_the_listed_may_use_a_group() {
        let listed = |change: fn(&mut GroupAccess)| {
            let mut access = GroupAccess::default();
            change(&mut access);
            let plan = plan(None, Some(access));
            plan.choose(Some("lab"), WHOSE, SessionKind::Batch).is_ok()
        };
        assert!(!listed(|_| {}));
        assert!(listed(|access| {
            access.domains.insert(DomainId::DEFAULT);
        }));
        assert!(listed(|access| {
            access.projects.insert(ProjectId::DEFAULT);
        }));
        assert!(listed(|access| {
            access.users.insert(UserId(Uuid::nil()));
        }));
    }

    #[test]
    fn a_kind_that_a_group_does_not_take_is_refused_by_name() {
        let mut plan = plan(None, None);
        plan.groups[1].kinds.interactive = false;
        let asked = |kind| code(plan.choose(Some("lab"), WHOSE, kind));
        assert_eq!(asked(SessionKind::Interactive), "group.kind");
        assert_eq!(asked(SessionKind::Batch), id(10).to_string());
    }
}
