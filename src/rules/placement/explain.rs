//! The one answer to "would it start?" and "why is it waiting?": preview, queue, session page, API
//! and CLI all render this object, and it is computed by the scheduler's own functions.

use serde::{Deserialize, Serialize};

use crate::devices::WHOLE;
use crate::names::{NodeId, SessionId, UserId};
use crate::placement::cluster_state::{ClusterState, FoundPlace};
use crate::placement::feasibility::could;
use crate::placement::node_state::NodeState;
use crate::placement::queue::QueueWalk;
use crate::placement::{PlacementBlocker, choice, fit, order, reservations};
use crate::reason::Reason;
use crate::resources::{Demand, DeviceShare};
use crate::session::{Session, SessionEnvironment, SessionState};
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};
use crate::world::ClusterSnapshot;

/// What a person is about to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestDraft {
    pub environment: SessionEnvironment,
    pub demand: Demand,
    pub start_at: Option<Timestamp>,
    pub depends_on: Vec<SessionId>,
    pub replicas: u32,
    /// Whose it would be; None asks nothing about what one person may hold.
    pub owner: Option<UserId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It starts with the next pass.
    Now,
    /// It waits; blockers say for what.
    Wait,
    /// No machine could ever hold it, or what it depends on failed.
    Never,
    /// It is past waiting: it has a place, runs, or is over.
    Settled,
}

/// When a waiting session would start. `None` everywhere means unknown, and pages say so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eta {
    pub p50_seconds: u64,
    pub p90_seconds: u64,
    /// What the estimate rests on, one English sentence.
    pub basis: String,
}

/// One thing that was checked, with its number before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementCheck {
    /// `cpu`, `memory`, `gpu`, `gpu-memory`, `gpu-quota`.
    pub code: String,
    /// The index of the device it is about; None where it is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    pub before: String,
    pub after: String,
    pub limit: String,
    pub ok: bool,
}

/// A nearby request with another answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternative {
    pub demand: Demand,
    pub verdict: Verdict,
    /// One English sentence.
    pub text: String,
}

/// How full one machine is, and would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRoom {
    pub node: NodeId,
    pub name: String,
    pub cpu: CpuShare,
    pub cpu_used: CpuShare,
    pub memory: Bytes,
    pub memory_used: Bytes,
    /// What is free of each device, in the order of their indexes.
    #[serde(default)]
    pub devices: Vec<DeviceRoom>,
    /// The session would go here.
    pub chosen: bool,
}

/// How full one device is when it would be its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRoom {
    pub index: u32,
    /// 0 where it takes nothing new.
    pub free: GpuShare,
    pub free_memory: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub verdict: Verdict,
    /// One English sentence that says it all; doors translate by `reason` and `blockers`.
    pub sentence: String,
    pub eta: Option<Eta>,
    /// Where it would go, or is.
    pub node: Option<String>,
    pub devices: Vec<DeviceShare>,
    /// The scheduler's reason for that place, or the reason it ended.
    pub reason: Option<Reason>,
    /// 1 is next; None when it does not wait.
    pub queue_position: Option<u32>,
    pub blockers: Vec<PlacementBlocker>,
    pub checks: Vec<PlacementCheck>,
    pub alternatives: Vec<Alternative>,
    pub rooms: Vec<NodeRoom>,
    /// Devices here do not exist: sessions get none, also where a share is listed.
    #[serde(default)]
    pub simulated: bool,
}

/// Answers for something that is not yet asked for. Same cost as one scheduling pass.
pub fn explain_draft(world: &ClusterSnapshot, draft: &RequestDraft, now: Timestamp) -> Explanation {
    let stand_in = WaitingRequest {
        environment: &draft.environment,
        demand: &draft.demand,
        session: None,
        owner: draft.owner,
        before: match draft.owner {
            Some(owner) => order::before_new(world, owner, now),
            None => order::waiting(world, now).len() as u32,
        },
        held: draft_gate(world, draft, now),
    };
    explain(world, &stand_in, now)
}

/// Answers for a session that exists, in any phase.
pub fn explain_session(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> Explanation {
    if session.state() != SessionState::Pending {
        return settled(world, session, now);
    }
    let before = order::waiting(world, now)
        .iter()
        .take_while(|other| other.id != session.id)
        .count() as u32;
    let held = match order::gate(world, session, now) {
        order::QueueGate::Open => Ok(None),
        order::QueueGate::Held(blocker) => Ok(Some(blocker)),
        order::QueueGate::Never(reason) => Err(reason),
    };
    explain(
        world,
        &WaitingRequest {
            environment: &session.spec.environment,
            demand: &session.spec.demand,
            session: Some(session),
            owner: Some(session.owner),
            before,
            held,
        },
        now,
    )
}

struct WaitingRequest<'a> {
    environment: &'a SessionEnvironment,
    demand: &'a Demand,
    /// None where nothing was launched yet.
    session: Option<&'a Session>,
    owner: Option<UserId>,
    /// How many wait in front of it.
    before: u32,
    /// What holds it besides room; Err: it can never start.
    held: Result<Option<PlacementBlocker>, Reason>,
}

fn draft_gate(
    world: &ClusterSnapshot,
    draft: &RequestDraft,
    now: Timestamp,
) -> Result<Option<PlacementBlocker>, Reason> {
    if let Some(other) = draft.depends_on.iter().find_map(|id| world.session(*id)) {
        return Ok(Some(PlacementBlocker {
            code: "dependency.waiting".into(),
            text: format!("It starts after {} has ended well.", other.name),
            params: [("session".to_owned(), other.name.to_string())].into(),
            ends_with: Some(other.id),
        }));
    }
    match draft.start_at {
        Some(start) if start > now => Ok(Some(PlacementBlocker {
            code: "start.later".into(),
            text: format!("It is set to start at {start}."),
            params: [("at".to_owned(), start.to_string())].into(),
            ends_with: None,
        })),
        _ => Ok(None),
    }
}

fn explain(world: &ClusterSnapshot, waiting: &WaitingRequest<'_>, now: Timestamp) -> Explanation {
    // Everybody in front of it takes their room first, as `decide` would give it to them.
    let mut line = QueueWalk::new(world, now);
    for session in order::waiting(world, now)
        .into_iter()
        .take(waiting.before as usize)
    {
        line.step(session);
    }
    let ground = &line.ground;
    let mut answer = Explanation {
        verdict: Verdict::Wait,
        sentence: String::new(),
        eta: None,
        node: None,
        devices: Vec::new(),
        reason: None,
        queue_position: Some(waiting.before + 1),
        blockers: Vec::new(),
        checks: Vec::new(),
        alternatives: Vec::new(),
        rooms: rooms(ground, None),
        simulated: simulated(world),
    };
    if let Err(refusal) = fit::possible(world, waiting.demand, waiting.environment) {
        answer.verdict = Verdict::Never;
        answer.sentence = refusal.to_string();
        answer.queue_position = None;
        answer.reason = Some(Reason::new(refusal.code, refusal.text));
        answer.alternatives = nearest(ground, waiting);
        return answer;
    }
    match &waiting.held {
        Err(reason) => {
            answer.verdict = Verdict::Never;
            answer.sentence = reason.text.clone();
            answer.queue_position = None;
            answer.reason = Some(reason.clone());
            return answer;
        }
        Ok(Some(blocker)) => {
            answer.sentence = blocker.text.clone();
            answer.blockers.push(blocker.clone());
            return answer;
        }
        Ok(None) => {}
    }
    if let Some(owner) = waiting.owner
        && ground.past_quota(owner, waiting.demand)
    {
        let blocker = fit::quota(ground, waiting.demand, owner);
        answer.sentence = blocker.text.clone();
        answer.blockers.push(blocker);
        answer.alternatives = nearest(ground, waiting);
        return answer;
    }
    let owes = waiting
        .owner
        .is_some_and(|owner| ground.owes_quota(owner, waiting.demand));
    let place = match waiting.session {
        _ if owes || line.is_full() => None,
        Some(session) => fit::place(ground, session),
        None => fit::best(ground, waiting.demand, waiting.environment),
    };
    if let Some(place) = &place {
        let name = world
            .node(place.node)
            .map(|n| n.name.clone())
            .unwrap_or_default();
        answer.verdict = Verdict::Now;
        answer.sentence = format!("It starts now on {name}.");
        answer.queue_position = Some(waiting.before + 1);
        answer.reason = Some(place.because.clone());
        answer.devices = place.devices.clone();
        answer.checks = checks(ground, place, waiting);
        answer.rooms = rooms(ground, Some(place.node));
        answer.node = Some(name);
        return answer;
    }
    let bare = ground.bare();
    answer.blockers.extend(in_front(&line, &bare, waiting));
    answer.blockers.extend(fit::blockers(
        &bare,
        waiting.demand,
        waiting.environment,
        waiting.owner,
        now,
    ));
    answer.blockers.extend(turn(world, waiting, now));
    if !line.is_full() {
        answer.alternatives = nearest(ground, waiting);
    }
    answer.eta = eta(&line, bare, waiting, now);
    answer.sentence = answer
        .blockers
        .first()
        .map(|b| b.text.clone())
        .unwrap_or_default();
    answer
}

/// That it waits for its owner's next turn, where others wait too; None for everybody's first.
fn turn(
    world: &ClusterSnapshot,
    waiting: &WaitingRequest<'_>,
    now: Timestamp,
) -> Option<PlacementBlocker> {
    let count = order::own_in_front(world, waiting.session?, now);
    (count > 0).then(|| PlacementBlocker {
        code: "queue.turn".into(),
        text: format!(
            "The queue takes turns by user, and {count} of its owner's sessions come before it."
        ),
        params: [("count".to_owned(), count.to_string())].into(),
        ends_with: None,
    })
}

/// The session in front that it waits behind: the first one that waits for something it wants too, or for
/// which what is free is kept. None where it only lacks room.
fn in_front(
    line: &QueueWalk<'_>,
    bare: &ClusterState<'_>,
    waiting: &WaitingRequest<'_>,
) -> Option<PlacementBlocker> {
    let (ground, demand) = (&line.ground, waiting.demand);
    let host = *waiting.environment == SessionEnvironment::Host;
    let sizes = &ground.kept().sizes;
    let behind = |front: &Session| PlacementBlocker {
        code: "queue.behind".into(),
        text: format!("{} is in front of it and waits for room.", front.name),
        params: [("session".to_owned(), front.name.to_string())].into(),
        ends_with: Some(front.id),
    };
    if let Some(owner) = waiting.owner
        && ground.owes_quota(owner, demand)
    {
        let mut own = line.waiting.iter();
        let own = own.find(|s| s.owner == owner && s.spec.demand.wants_device());
        return own.map(|front| behind(front));
    }
    let could_be_on = |spot: &&NodeState<'_>| could(spot.node, demand, host);
    let competitor = sizes.iter().find(|size| {
        let mut spots = ground.spots.iter().filter(could_be_on);
        spots.any(|spot| reservations::competes(spot, size, demand))
    });
    if let Some(size) = competitor {
        return Some(behind(size.first));
    }
    let free = bare.best(demand, waiting.environment);
    if line.is_full() && free.is_some() {
        return line.waiting.last().map(|front| behind(front));
    }
    let spot = &ground.spots[free?.spot];
    let size = sizes
        .iter()
        .find(|size| could(spot.node, &size.demand, size.host))?;
    let front = size.first;
    Some(PlacementBlocker {
        code: "queue.kept".into(),
        text: format!(
            "What is free is kept for {}, which is in front of it.",
            front.name
        ),
        params: [("session".to_owned(), front.name.to_string())].into(),
        ends_with: Some(front.id),
    })
}

/// Whether devices here are simulated: then every answer that speaks of them says so.
fn simulated(world: &ClusterSnapshot) -> bool {
    let mut devices = world.nodes.iter().flat_map(|n| &n.capacity.devices);
    devices.any(|d| d.simulated)
}

fn settled(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> Explanation {
    let node = session.node().and_then(|id| world.node(id));
    let sentence = match session.state() {
        SessionState::Ended => session
            .reason
            .as_ref()
            .map_or_else(|| "It is over.".to_owned(), |r| r.text.clone()),
        SessionState::Running => node.map_or_else(
            || "It runs.".to_owned(),
            |n| format!("It runs on {}.", n.name),
        ),
        SessionState::Stopping => "It was told to end.".to_owned(),
        SessionState::Pending | SessionState::Scheduled | SessionState::Preparing => {
            "It is being started.".to_owned()
        }
    };
    Explanation {
        verdict: Verdict::Settled,
        sentence,
        eta: None,
        node: node.map(|n| n.name.clone()),
        devices: session.devices().to_vec(),
        reason: session.reason.clone(),
        queue_position: None,
        blockers: Vec::new(),
        checks: Vec::new(),
        alternatives: Vec::new(),
        rooms: rooms(&ClusterState::new(world, now), session.node()),
        simulated: simulated(world),
    }
}

fn rooms(ground: &ClusterState<'_>, chosen: Option<NodeId>) -> Vec<NodeRoom> {
    ground
        .spots
        .iter()
        .map(|spot| NodeRoom {
            node: spot.node.id,
            name: spot.node.name.clone(),
            cpu: spot.node.capacity.cpu,
            cpu_used: spot.cpu,
            memory: spot.node.capacity.memory,
            memory_used: spot.memory,
            devices: (0..spot.devices.len())
                .map(|at| {
                    let (free, free_memory) = choice::left(spot, at);
                    DeviceRoom {
                        index: spot.node.capacity.devices[at].index,
                        free,
                        free_memory,
                    }
                })
                .collect(),
            chosen: chosen == Some(spot.node.id),
        })
        .collect()
}

fn checks(
    ground: &ClusterState<'_>,
    place: &fit::FitPlace,
    waiting: &WaitingRequest<'_>,
) -> Vec<PlacementCheck> {
    let Some(at) = ground.spot(place.node) else {
        return Vec::new();
    };
    let (held, demand) = (ground.used(at), waiting.demand);
    let capacity = &ground.spots[at].node.capacity;
    let check =
        |code: &str, device, before: String, after: String, limit: String, ok| PlacementCheck {
            code: code.into(),
            device,
            before,
            after,
            limit,
            ok,
        };
    let mut all = vec![
        check(
            "cpu",
            None,
            held.cpu.to_string(),
            (held.cpu + demand.cpu).to_string(),
            capacity.cpu.to_string(),
            held.cpu + demand.cpu <= capacity.cpu,
        ),
        check(
            "memory",
            None,
            held.memory.to_string(),
            (held.memory + demand.memory).to_string(),
            capacity.memory.to_string(),
            held.memory + demand.memory <= capacity.memory,
        ),
    ];
    for part in place.devices.iter().filter(|d| d.part.is_none()) {
        let Some(device) = capacity.devices.iter().find(|d| d.index == part.index) else {
            continue;
        };
        let before = held.devices.get(&part.index).cloned().unwrap_or_default();
        let after = before.share + part.share;
        all.push(check(
            "gpu",
            Some(part.index),
            before.share.to_string(),
            after.to_string(),
            WHOLE.to_string(),
            after <= WHOLE,
        ));
        if demand.gpu_memory.is_some() {
            let after = before.memory + part.memory;
            all.push(check(
                "gpu-memory",
                Some(part.index),
                before.memory.to_string(),
                after.to_string(),
                device.memory.to_string(),
                after <= device.memory,
            ));
        }
    }
    if let (Some(owner), Some(each)) = (waiting.owner, ground.world().policy.each)
        && demand.wants_device()
    {
        let (held, asked) = (ground.owned(owner), ground.asked(demand));
        all.push(check(
            "gpu-quota",
            None,
            held.to_string(),
            (held + asked).to_string(),
            each.to_string(),
            held + asked <= each,
        ));
    }
    all
}

/// Searches for a place that one estimate may cost, times machines. More: a page that asks while a user
/// types answers later. Fewer: a long queue has no estimate.
const MAX_SEARCHES: usize = 20_000;

/// When enough sessions will have reached the limits their owners set that everybody in front of this one
/// has a place, and then this one: at the latest, for some end sooner. None where a session in the way has
/// no limit. None too where counting it out would take too long.
fn eta<'w>(
    line: &QueueWalk<'w>,
    mut ground: ClusterState<'w>,
    waiting: &WaitingRequest<'_>,
    now: Timestamp,
) -> Option<Eta> {
    let world = ground.world();
    let running = world
        .sessions
        .iter()
        .filter(|s| s.state() == SessionState::Running && s.node().is_some())
        .filter_map(|s| Some((s.deadline()?.0, ExpectedEnd::Runs(s))));
    let started = line.placed.iter().filter_map(|(session, found)| {
        let end = now.plus_seconds(session.spec.limit()?.0);
        Some((end, ExpectedEnd::Given(session, found.clone())))
    });
    let mut ends: Vec<(Timestamp, ExpectedEnd<'_>)> = running.chain(started).collect();
    let mut queue = line.waiting.clone();
    let mut searches = MAX_SEARCHES / ground.spots.len().max(1);
    loop {
        let next = (0..ends.len()).min_by_key(|at| (ends[*at].0, ends[*at].1.session().id))?;
        let (at, end) = ends.swap_remove(next);
        match &end {
            ExpectedEnd::Runs(session) => ground.give_back(session),
            ExpectedEnd::Given(session, found) => {
                ground.free(found, &session.spec.demand, session.owner);
            }
        }
        ground = ground.bare();
        let mut left = Vec::new();
        for session in queue {
            searches = searches.checked_sub(1)?;
            let demand = &session.spec.demand;
            match ground.place(session) {
                Some(found) => {
                    ground.take(&found, demand, session.owner);
                    if let Some((seconds, _)) = session.spec.limit() {
                        ends.push((at.plus_seconds(seconds), ExpectedEnd::Given(session, found)));
                    }
                }
                None => {
                    ground.keep(session);
                    left.push(session);
                }
            }
        }
        queue = left;
        searches = searches.checked_sub(1)?;
        if ground.best(waiting.demand, waiting.environment).is_some() {
            let seconds = at.seconds_since(now);
            return Some(Eta {
                p50_seconds: seconds,
                p90_seconds: seconds,
                basis: format!("{} ends at its own limit by then.", end.session().name),
            });
        }
    }
}

/// A session that is going to reach its limit.
enum ExpectedEnd<'w> {
    Runs(&'w Session),
    /// It does not run yet: this is the place it will have had.
    Given(&'w Session, FoundPlace),
}

impl<'w> ExpectedEnd<'w> {
    fn session(&self) -> &'w Session {
        match self {
            Self::Runs(session) | Self::Given(session, _) => session,
        }
    }
}

/// The largest smaller request that would start now, if there is one.
fn nearest(ground: &ClusterState<'_>, waiting: &WaitingRequest<'_>) -> Vec<Alternative> {
    let wanted = waiting.demand;
    let quota = waiting.owner.and_then(|owner| {
        let each = ground.world().policy.each?;
        Some(each.saturating_sub(ground.owned(owner)))
    });
    let mut best: Option<Demand> = None;
    for spot in &ground.spots {
        let (cpu, memory) = ground.kept().left(spot);
        let smaller = Demand {
            cpu: wanted.cpu.min(cpu),
            memory: wanted.memory.min(memory),
            shm: wanted.shm.min(wanted.memory.min(memory)),
            ..*wanted
        };
        for smaller in smaller_shares(ground, spot, &smaller, quota) {
            if smaller == *wanted || smaller.check().is_err() {
                continue;
            }
            let better = best.is_none_or(|b| {
                (smaller.gpu, smaller.cpu, smaller.memory) > (b.gpu, b.cpu, b.memory)
            });
            if better
                && ground.world().policy.check(&smaller).is_ok()
                && ground.best(&smaller, waiting.environment).is_some()
            {
                best = Some(smaller);
                break;
            }
        }
    }
    best.map(|demand| Alternative {
        demand,
        verdict: Verdict::Now,
        text: if demand.gpu == wanted.gpu {
            format!(
                "{} and {} would start now.",
                demand.cpu.cores(),
                demand.memory
            )
        } else {
            format!(
                "{} of a device, {} and {} would start now.",
                demand.gpu,
                demand.cpu.cores(),
                demand.memory
            )
        },
    })
    .into_iter()
    .collect()
}

/// The same demand with the share as it is, and with the largest share that one device of the machine has
/// free, in the administrator's steps.
fn smaller_shares(
    ground: &ClusterState<'_>,
    spot: &NodeState<'_>,
    demand: &Demand,
    quota: Option<GpuShare>,
) -> Vec<Demand> {
    let mut all = vec![*demand];
    if demand.gpu == GpuShare::ZERO {
        return all;
    }
    let free = (0..spot.devices.len())
        .map(|at| choice::left_over(spot, at).0)
        .max()
        .unwrap_or_default();
    let most = free
        .min(demand.gpu)
        .min(quota.unwrap_or(GpuShare(u32::MAX)));
    let step = ground.world().policy.step.0.max(1);
    let share = GpuShare(most.0 - most.0 % step);
    if share > GpuShare::ZERO && share < demand.gpu {
        all.push(Demand {
            gpu: share,
            gpu_memory: demand.gpu_memory.filter(|_| share < WHOLE),
            ..*demand
        });
    }
    all
}
