//! A session as people and programs see it: the body of the API and of `-o json`.

use std::collections::BTreeMap;

use rules::devices::MigProfile;
use rules::names::{SessionId, SessionName, UserId, UserName};
use rules::policy::SharePolicy;
use rules::reason::Reason;
use rules::resources::{Demand, Device, DeviceShare};
use rules::session::{self, DesiredState, Outcome, SessionKind, SessionState};
use rules::units::{Bytes, GpuShare, Timestamp};
use rules::world::NodeRecord;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::catalog::ReadTransaction;
use crate::catalog::events::EventRow;

/// Whose a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub id: UserId,
    pub name: UserName,
}

/// A share of one device as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantView {
    pub index: u32,
    /// The device's own name; empty where its machine no longer reports it.
    pub uuid: String,
    pub model: String,
    pub share: GpuShare,
    /// The same in the administrator's units.
    pub units: String,
    pub memory: Bytes,
    /// Multiprocessors whose time the share is worth, of so many; 0 where unknown.
    pub sms: u32,
    pub sms_total: u32,
    /// The partition, where one was given.
    pub profile: Option<MigProfile>,
    /// Its machine has confirmed that it holds the session to this.
    pub confirmed: bool,
    /// The device does not exist, and the session has none.
    pub simulated: bool,
}

impl GrantView {
    /// `part`, of a device of which that much is known.
    pub(in crate::actions) fn of(
        part: &DeviceShare,
        device: Option<&Device>,
        confirmed: bool,
        policy: SharePolicy,
    ) -> Self {
        let cut = part
            .part
            .and_then(|number| device?.mig.get(number as usize));
        Self {
            index: part.index,
            uuid: device.map(|d| d.uuid.clone()).unwrap_or_default(),
            model: device.map(|d| d.model.clone()).unwrap_or_default(),
            share: part.share,
            units: policy.in_units(part.share),
            memory: part.memory,
            sms: match (cut, device) {
                (Some(cut), _) => cut.sms,
                (None, Some(device)) => device.sms_of(part.share),
                (None, None) => 0,
            },
            sms_total: device.map_or(0, |d| d.sms),
            profile: cut.map(|cut| cut.profile),
            confirmed,
            simulated: part.simulated,
        }
    }
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    pub id: SessionId,
    pub name: SessionName,
    pub owner: Owner,
    pub state: SessionState,
    pub wish: DesiredState,
    pub kind: SessionKind,
    /// `host`, or the reference of an image.
    pub image: String,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub resources: Demand,
    pub timeout_seconds: Option<u64>,
    pub longest_run_seconds: Option<u64>,
    pub start_at: Option<Timestamp>,
    pub depends_on: Vec<SessionId>,
    /// False where it ended and its command, variables and labels are no longer kept.
    #[serde(default = "kept")]
    pub document_kept: bool,
    pub paused: bool,
    /// Which start this is; 1 is the first.
    pub incarnation: u32,
    /// The name of the machine it is, or was, on.
    pub node: Option<String>,
    pub devices: Vec<GrantView>,
    /// Devices here do not exist: the session gets no device, even with a share.
    #[serde(default)]
    pub simulated: bool,
    pub created_at: Timestamp,
    pub scheduled_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    pub exit_code: Option<i32>,
    pub reason: Option<Reason>,
    /// Version of the row; the entity tag of the API.
    pub generation: u64,
}

/// What answers kept before there was such a field say.
fn kept() -> bool {
    true
}

impl SessionView {
    /// Whether its machine paused it, because it fills the disk.
    pub fn stands_still(&self) -> bool {
        let code = self.reason.as_ref().map(|reason| reason.code.as_str());
        self.state == SessionState::Running
            && matches!(
                code,
                Some(rules::codes::DISK_PAUSED | rules::codes::DISK_FILES_PAUSED)
            )
    }

    /// As `owner` sees a row on one of these machines.
    pub(super) fn of(
        row: &session::Session,
        owner: UserName,
        nodes: &[NodeRecord],
        policy: SharePolicy,
    ) -> Self {
        let node = row.node().and_then(|id| nodes.iter().find(|n| n.id == id));
        let card = |index: u32| {
            let mut devices = node.into_iter().flat_map(|n| &n.capacity.devices);
            devices.find(|device| device.index == index)
        };
        let confirmed = row.pending_devices().is_empty();
        let wants = row.spec.demand.wants_device();
        Self {
            id: row.id,
            name: row.name.clone(),
            owner: Owner {
                id: row.owner,
                name: owner,
            },
            state: row.state(),
            wish: row.desired,
            kind: row.spec.kind,
            image: row.spec.environment.word().to_owned(),
            command: row.spec.command.clone(),
            env: row.spec.env.clone(),
            labels: row.labels.clone(),
            resources: row.spec.demand,
            timeout_seconds: row.spec.timeout_seconds,
            longest_run_seconds: row.spec.max_runtime_seconds,
            start_at: row.spec.start_at,
            depends_on: row.spec.depends_on.clone(),
            document_kept: !row.document_gone,
            paused: row.paused,
            incarnation: row.incarnation,
            node: row
                .node()
                .map(|id| node.map_or_else(|| id.to_string(), |node| node.name.clone())),
            devices: row
                .devices()
                .iter()
                .map(|part| GrantView::of(part, card(part.index), confirmed, policy))
                .collect(),
            simulated: row.devices().iter().any(|part| part.simulated)
                || (wants && row.devices().is_empty() && nodes.iter().any(has_simulated)),
            created_at: row.created_at,
            scheduled_at: row.scheduled_at(),
            started_at: row.started_at(),
            ended_at: row.ended_at(),
            outcome: row.outcome(),
            exit_code: row.exit_code(),
            reason: row.reason.clone(),
            generation: row.generation,
        }
    }
}

fn has_simulated(node: &NodeRecord) -> bool {
    node.capacity.devices.iter().any(|device| device.simulated)
}

/// Names of people and machines, each looked up once a list.
pub(super) struct NameCache<'v, 'c> {
    view: &'v ReadTransaction<'c>,
    nodes: Vec<NodeRecord>,
    people: BTreeMap<UserId, UserName>,
}

impl<'v, 'c> NameCache<'v, 'c> {
    pub(super) fn new(view: &'v ReadTransaction<'c>) -> Result<Self, Failure> {
        Ok(Self {
            view,
            nodes: view.nodes()?,
            people: BTreeMap::new(),
        })
    }

    pub(super) fn show(&mut self, row: &session::Session) -> Result<SessionView, Failure> {
        let owner = match self.people.get(&row.owner) {
            Some(name) => name.clone(),
            None => {
                let name = self.view.person_name(row.owner)?.ok_or_else(|| {
                    crate::ServerFault::new("show a session", "its owner was never known")
                })?;
                self.people.insert(row.owner, name.clone());
                name
            }
        };
        Ok(SessionView::of(row, owner, &self.nodes, self.view.policy()))
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    pub sequence: u64,
    pub at: Timestamp,
    /// A person's name, or the part of the server that did it.
    pub actor: String,
    /// `sessions`, `images`, `people`, `nodes`, `operations`.
    pub topic: String,
    /// Id of the thing.
    pub object: String,
    /// Stable, dotted, such as `session.running`.
    pub code: String,
    /// State before, in a word; empty where there was none.
    pub before: String,
    /// State after, or the reason for it in a sentence.
    pub after: String,
}

impl EventView {
    pub(in crate::actions) fn of(row: EventRow) -> Self {
        Self {
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
}
