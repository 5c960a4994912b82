//! Resource groups: nodes that serve sessions of their own, and who may use them. Says which group is whose and what is
//! refused; chooses no place, `placement` does.
//!
//! A node is in exactly one group. One that no other group has is in the founding group, `default`, and so is a session
//! that names none.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::calendar::{self, GroupCalendar, GroupWindow, ZoneOffsets};
use crate::fair_share::QueueOrder;
use crate::names::{NodeId, ResourceGroupId, SessionId, TenantName, UserId};
use crate::policy::{BackfillMode, PreemptionMode, Spreading};
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::{Session, SessionKind};
use crate::tenancy::{DomainId, ProjectId};
use crate::units::{CpuShare, Timestamp};

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

/// The largest factor, in hundredths. Higher: sessions that all work at once get a few hundredths of a core each. Lower: a
/// node of notebooks that mostly wait stands idle.
pub const MAX_CPU_OVERCOMMIT: u32 = 800;

/// How many times sessions together may hold the cores of a node, in whole hundredths. Weights of the kernel part the cores
/// among those that work; no session gets more cores than its node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuOvercommit(u32);

impl CpuOvercommit {
    /// Each core is given once.
    pub const NONE: Self = Self(100);

    /// Errors: `group.overcommit-range` at that field.
    pub fn new(hundredths: u32, at: &str) -> Result<Self, Refusal> {
        if !(Self::NONE.0..=MAX_CPU_OVERCOMMIT).contains(&hundredths) {
            return Err(refusals::group_overcommit_range(MAX_CPU_OVERCOMMIT / 100).at(at));
        }
        Ok(Self(hundredths))
    }

    /// The nearest one in range.
    pub fn clamped(hundredths: u32) -> Self {
        Self(hundredths.clamp(Self::NONE.0, MAX_CPU_OVERCOMMIT))
    }

    pub fn hundredths(self) -> u32 {
        self.0
    }

    /// What sessions together may hold of so many cores, rounded down to a hundredth.
    pub fn of(self, cores: CpuShare) -> CpuShare {
        let room = u64::from(cores.0) * u64::from(self.0) / u64::from(Self::NONE.0);
        CpuShare(u32::try_from(room).unwrap_or(u32::MAX))
    }
}

impl Default for CpuOvercommit {
    fn default() -> Self {
        Self::NONE
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
    /// In which order its queue is served; None: as the site's is.
    #[serde(default)]
    pub order: Option<QueueOrder>,
    /// Who may start before one that waits in it; None: as the site says.
    #[serde(default)]
    pub backfill: Option<BackfillMode>,
    /// How many times its sessions together may hold the cores of a node.
    #[serde(default)]
    pub cpu_overcommit: CpuOvercommit,
    /// When its queue goes by other rules, and takes other sessions.
    #[serde(default)]
    pub calendar: GroupCalendar,
    /// Whether sessions that yield are stopped for those of higher priority.
    #[serde(default)]
    pub preemption: PreemptionMode,
    pub generation: u64,
}

impl ResourceGroup {
    /// One for everybody that says nothing of its own.
    pub fn new(id: ResourceGroupId, name: TenantName) -> Self {
        Self {
            id,
            name,
            title: String::new(),
            access: None,
            kinds: GroupKinds::ALL,
            spreading: None,
            order: None,
            backfill: None,
            cpu_overcommit: CpuOvercommit::NONE,
            calendar: GroupCalendar::default(),
            preemption: PreemptionMode::Off,
            generation: 1,
        }
    }

    /// Whether sessions of that user in that project may use it.
    pub fn admits(&self, domain: DomainId, project: ProjectId, user: UserId) -> bool {
        self.access.as_ref().is_none_or(|access| {
            access.domains.contains(&domain)
                || access.projects.contains(&project)
                || access.users.contains(&user)
        })
    }

    /// Orders by which its queue is ever served, as far as it says so itself.
    pub fn orders(&self) -> impl Iterator<Item = QueueOrder> {
        let windows = self.calendar.windows.iter();
        let by_window = windows.filter_map(|window| window.order);
        self.order.into_iter().chain(by_window)
    }

    /// Whether it says nothing that a site without groups does not say.
    pub fn is_plain(&self) -> bool {
        self.access.is_none()
            && self.kinds == GroupKinds::ALL
            && self.spreading.is_none()
            && self.order.is_none()
            && self.backfill.is_none()
            && self.cpu_overcommit == CpuOvercommit::NONE
            && self.calendar.windows.is_empty()
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
    /// The zone of each group that has windows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub offsets: BTreeMap<ResourceGroupId, ZoneOffsets>,
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

    fn zone(&self, group: ResourceGroupId) -> &ZoneOffsets {
        self.offsets.get(&group).unwrap_or(&calendar::UTC)
    }

    /// The window of a group that holds at a moment; None between windows.
    pub fn window(&self, group: ResourceGroupId, now: Timestamp) -> Option<&GroupWindow> {
        calendar::at(&self.group(group)?.calendar, self.zone(group), now)
    }

    /// When another window of a group holds, or none any more; None where that is more than a week away.
    pub fn next_change(&self, group: ResourceGroupId, now: Timestamp) -> Option<Timestamp> {
        calendar::next_change(&self.group(group)?.calendar, self.zone(group), now)
    }

    /// Whether a window of its group keeps a session waiting. The self-test of a device waits for none.
    pub fn is_shut(&self, session: &Session, now: Timestamp) -> bool {
        if self.groups.is_empty() || session.device_affinity.is_some() {
            return false;
        }
        let group = self.group(self.of_session(session.id));
        group.is_some_and(|group| {
            !calendar::takes(&group.calendar, self.zone(group.id), session, now)
        })
    }

    /// When the windows of its group let a session start that they keep waiting; None where they do not within a week.
    /// Costs some looks at each window.
    pub fn opens(&self, session: &Session, now: Timestamp) -> Option<Timestamp> {
        let group = self.group(self.of_session(session.id))?;
        calendar::opens(&group.calendar, self.zone(group.id), session, now)
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

    /// How many times sessions together may hold the cores of a node.
    pub fn cpu_overcommit(&self, node: NodeId) -> CpuOvercommit {
        if self.groups.is_empty() {
            return CpuOvercommit::NONE;
        }
        let group = self.group(self.of_node(node));
        group.map_or(CpuOvercommit::NONE, |group| group.cpu_overcommit)
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
        let name = TenantName::parse(name).expect("a name");
        ResourceGroup {
            access,
            ..ResourceGroup::new(ResourceGroupId(id(number)), name)
        }
    }

    #[test]
    fn a_factor_is_between_one_and_eight_and_multiplies_cores() {
        for wrong in [0, 99, 801, u32::MAX] {
            let refused = CpuOvercommit::new(wrong, "/cpu_overcommit").expect_err("refused");
            assert_eq!(refused.code, "group.overcommit-range", "{wrong}");
        }
        for (factor, cores, room) in [
            (100, 800, 800),
            (150, 800, 1_200),
            (125, 3, 3),
            (800, 6_400, 51_200),
            (800, u32::MAX, u32::MAX),
        ] {
            let factor = CpuOvercommit::new(factor, "/cpu_overcommit").expect("in range");
            assert_eq!(factor.of(CpuShare(cores)), CpuShare(room), "{factor:?}");
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
