//! From rows to what the API says of them: what a session's answer needs beside its row, its shares of devices, and
//! its events. `api` says which field of a row stands where. Decides nothing.

use std::collections::BTreeMap;

use api::events::EventView;
use api::sessions::{GrantView, SessionSurroundings, SessionView};
use rules::names::{SessionId, TenantName, UserId, UserName};
use rules::policy::SharePolicy;
use rules::resource_group::{GroupPlan, ResourceGroup};
use rules::resources::{Device, DeviceShare};
use rules::session::Session;
use rules::tenancy::ProjectId;
use rules::world::NodeRecord;

use crate::Failure;
use crate::catalog::ReadTransaction;
use crate::catalog::events::EventRow;

/// `part`, of a device of which that much is known.
pub(in crate::actions) fn grant(
    part: &DeviceShare,
    device: Option<&Device>,
    confirmed: bool,
    policy: SharePolicy,
) -> GrantView {
    let partitioned = part
        .part
        .and_then(|number| device?.mig.get(number as usize));
    GrantView {
        index: part.index,
        uuid: device.map(|d| d.uuid.clone()).unwrap_or_default(),
        model: device.map(|d| d.model.clone()).unwrap_or_default(),
        share: part.share,
        units: policy.in_units(part.share),
        memory: part.memory,
        sms: match (partitioned, device) {
            (Some(partitioned), _) => partitioned.sms,
            (None, Some(device)) => device.sms_of(part.share),
            (None, None) => 0,
        },
        sms_total: device.map_or(0, |d| d.sms),
        profile: partitioned.map(|partitioned| partitioned.profile),
        confirmed,
        simulated: part.simulated,
    }
}

/// The name of a session's resource group; None while there is only one.
pub(super) fn group_name(plan: &GroupPlan, session: SessionId) -> Option<TenantName> {
    if plan.is_single() {
        return None;
    }
    let group = plan.group(plan.of_session(session))?;
    Some(group.name.clone())
}

/// A row of `owner` in `project`, in that resource group where there are several, on one of these nodes.
pub(super) fn session(
    row: &Session,
    owner: UserName,
    (project, group): (TenantName, Option<TenantName>),
    nodes: &[NodeRecord],
    policy: SharePolicy,
) -> SessionView {
    let node = row.node().and_then(|id| nodes.iter().find(|n| n.id == id));
    let card = |index: u32| {
        let mut devices = node.into_iter().flat_map(|n| &n.capacity.devices);
        devices.find(|device| device.index == index)
    };
    let all = || row.containers().iter();
    let confirmed = all().all(|one| one.pending_devices.is_empty());
    let wants = row.spec.demand.wants_device();
    let around = SessionSurroundings {
        owner,
        project,
        group,
        node: row
            .node()
            .map(|id| node.map_or_else(|| id.to_string(), |node| node.name.clone())),
        devices: all()
            .flat_map(|one| &one.devices)
            .map(|part| grant(part, card(part.index), confirmed, policy))
            .collect(),
        simulated: row.devices().iter().any(|part| part.simulated)
            || (wants && row.devices().is_empty() && nodes.iter().any(has_simulated)),
    };
    SessionView::of(row, around)
}

fn has_simulated(node: &NodeRecord) -> bool {
    node.capacity.devices.iter().any(|device| device.simulated)
}

/// Names of users, projects and nodes, each looked up once a list.
pub(in crate::actions) struct NameCache<'v, 'c> {
    view: &'v ReadTransaction<'c>,
    /// Read for the first session that has a place or wants a device: a plain one needs none.
    nodes: Option<Vec<NodeRecord>>,
    users: BTreeMap<UserId, UserName>,
    projects: BTreeMap<ProjectId, TenantName>,
    /// Empty while there is only the founding one.
    groups: Vec<ResourceGroup>,
}

impl<'v, 'c> NameCache<'v, 'c> {
    pub(in crate::actions) fn new(view: &'v ReadTransaction<'c>) -> Result<Self, Failure> {
        Ok(Self::of_groups(view, view.resource_groups()?))
    }

    /// The same where all groups were read already.
    pub(super) fn of_groups(view: &'v ReadTransaction<'c>, groups: Vec<ResourceGroup>) -> Self {
        Self {
            view,
            nodes: None,
            users: BTreeMap::new(),
            projects: BTreeMap::new(),
            groups: match groups.len() {
                0 | 1 => Vec::new(),
                _ => groups,
            },
        }
    }

    fn group_of(&self, session: SessionId) -> Result<Option<TenantName>, Failure> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        let id = self.view.group_of_session(session)?;
        let mut groups = self.groups.iter();
        Ok(groups
            .find(|group| group.id == id)
            .map(|group| group.name.clone()))
    }

    pub(in crate::actions) fn show(&mut self, row: &Session) -> Result<SessionView, Failure> {
        let owner = match self.users.get(&row.owner) {
            Some(name) => name.clone(),
            None => {
                let name = self.view.user_name(row.owner)?.ok_or_else(|| {
                    crate::ServerFault::new("show a session", "its owner was never known")
                })?;
                self.users.insert(row.owner, name.clone());
                name
            }
        };
        let project = match self.projects.get(&row.project) {
            Some(name) => name.clone(),
            None => {
                let project = self.view.project(row.project)?.ok_or_else(|| {
                    crate::ServerFault::new("show a session", "its project was never known")
                })?;
                self.projects.insert(row.project, project.name.clone());
                project.name
            }
        };
        let policy = self.view.policy();
        if self.nodes.is_none() && (row.node().is_some() || row.spec.demand.wants_device()) {
            self.nodes = Some(self.view.nodes()?);
        }
        let group = self.group_of(row.id)?;
        let nodes = self.nodes.as_deref().unwrap_or_default();
        Ok(session(row, owner, (project, group), nodes, policy))
    }
}

pub(in crate::actions) fn event(row: EventRow) -> EventView {
    EventView {
        sequence: row.sequence,
        at: row.at,
        actor: row.actor,
        topic: row.topic,
        object: row.object,
        code: row.code,
        before: row.before,
        after: row.after,
    }
}
