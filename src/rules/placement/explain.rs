//! The one answer to "would it start?" and "why is it waiting?": preview, queue, session page, API
//! and CLI all render this object, and it is computed by the scheduler's own functions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::{NodeId, SessionId};
use crate::placement::{Blocker, fit, free, order};
use crate::resources::{Demand, DeviceShare, Used};
use crate::session::{Environment, Phase, Reason, Session};
use crate::units::{Bytes, CpuShare, Timestamp};
use crate::world::World;

/// What a person is about to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub environment: Environment,
    pub demand: Demand,
    pub start_at: Option<Timestamp>,
    pub depends_on: Vec<SessionId>,
    pub copies: u32,
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
pub struct Check {
    /// `cpu`, `memory`, `environment`.
    pub code: String,
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
pub struct Room {
    pub node: NodeId,
    pub name: String,
    pub cpu: CpuShare,
    pub cpu_used: CpuShare,
    pub memory: Bytes,
    pub memory_used: Bytes,
    /// The session would go here.
    pub chosen: bool,
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
    pub blockers: Vec<Blocker>,
    pub checks: Vec<Check>,
    pub alternatives: Vec<Alternative>,
    pub rooms: Vec<Room>,
}

/// Answers for something that is not yet asked for. Same cost as one scheduling pass.
pub fn explain_draft(world: &World, draft: &Draft, now: Timestamp) -> Explanation {
    let stand_in = Waiting {
        environment: &draft.environment,
        demand: &draft.demand,
        before: order::waiting(world).len() as u32,
        held: draft_gate(world, draft, now),
    };
    explain(world, &stand_in, now)
}

/// Answers for a session that exists, in whatever phase.
pub fn explain_session(world: &World, session: &Session, now: Timestamp) -> Explanation {
    if session.phase != Phase::Pending {
        return settled(world, session);
    }
    let before = order::waiting(world)
        .iter()
        .take_while(|other| other.id != session.id)
        .count() as u32;
    let held = match order::gate(world, session, now) {
        order::Gate::Open => Ok(None),
        order::Gate::Held(blocker) => Ok(Some(blocker)),
        order::Gate::Never(reason) => Err(reason),
    };
    explain(
        world,
        &Waiting {
            environment: &session.order.environment,
            demand: &session.order.demand,
            before,
            held,
        },
        now,
    )
}

struct Waiting<'a> {
    environment: &'a Environment,
    demand: &'a Demand,
    /// How many wait in front of it.
    before: u32,
    /// What holds it besides room; Err: it can never start.
    held: Result<Option<Blocker>, Reason>,
}

fn draft_gate(world: &World, draft: &Draft, now: Timestamp) -> Result<Option<Blocker>, Reason> {
    if let Some(other) = draft.depends_on.iter().find_map(|id| world.session(*id)) {
        return Ok(Some(Blocker {
            code: "dependency.waiting".into(),
            text: format!("It starts after {} has ended well.", other.name),
            params: [("session".to_owned(), other.name.to_string())].into(),
            ends_with: Some(other.id),
        }));
    }
    match draft.start_at {
        Some(start) if start > now => Ok(Some(Blocker {
            code: "start.later".into(),
            text: format!("It is set to start at {start}."),
            params: [("at".to_owned(), start.to_string())].into(),
            ends_with: None,
        })),
        _ => Ok(None),
    }
}

fn explain(world: &World, waiting: &Waiting<'_>, now: Timestamp) -> Explanation {
    // Everybody in front of it takes their room first, as `decide` would give it to them.
    let mut used = world.used();
    let mut stuck_in_front = None;
    for session in order::waiting(world)
        .into_iter()
        .take(waiting.before as usize)
    {
        if session.wish != crate::session::Wish::Run
            || !matches!(order::gate(world, session, now), order::Gate::Open)
        {
            continue;
        }
        match fit::best(
            world,
            &used,
            &session.order.demand,
            &session.order.environment,
            now,
        ) {
            Some(place) => used
                .entry(place.node)
                .or_default()
                .add(&session.order.demand, &place.devices),
            None => {
                stuck_in_front = Some(session);
                break;
            }
        }
    }
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
        rooms: rooms(world, &used, None),
    };
    if let Err(refusal) = fit::possible(world, waiting.demand, waiting.environment) {
        answer.verdict = Verdict::Never;
        answer.sentence = refusal.to_string();
        answer.queue_position = None;
        answer.reason = Some(Reason::new(refusal.code, refusal.text));
        answer.alternatives = nearest(world, &used, waiting, now);
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
    if let Some(front) = stuck_in_front {
        answer.blockers.push(Blocker {
            code: "queue.behind".into(),
            text: format!("{} is in front of it and waits for room.", front.name),
            params: [("session".to_owned(), front.name.to_string())].into(),
            ends_with: Some(front.id),
        });
    }
    let place = fit::best(world, &used, waiting.demand, waiting.environment, now);
    if let (Some(place), true) = (&place, answer.blockers.is_empty()) {
        let name = world
            .node(place.node)
            .map(|n| n.name.clone())
            .unwrap_or_default();
        answer.verdict = Verdict::Now;
        answer.sentence = format!("It starts now on {name}.");
        answer.queue_position = Some(waiting.before + 1);
        answer.reason = Some(place.because.clone());
        answer.devices = place.devices.clone();
        answer.checks = checks(world, &used, place.node, waiting.demand);
        answer.rooms = rooms(world, &used, Some(place.node));
        answer.node = Some(name);
        return answer;
    }
    answer.blockers.extend(fit::blockers(
        world,
        &used,
        waiting.demand,
        waiting.environment,
        now,
    ));
    answer.eta = eta(world, waiting, used.clone(), now);
    answer.sentence = answer
        .blockers
        .first()
        .map(|b| b.text.clone())
        .unwrap_or_default();
    answer.alternatives = nearest(world, &used, waiting, now);
    answer
}

fn settled(world: &World, session: &Session) -> Explanation {
    let node = session.node.and_then(|id| world.node(id));
    let sentence = match session.phase {
        Phase::Ended => session
            .reason
            .as_ref()
            .map_or_else(|| "It is over.".to_owned(), |r| r.text.clone()),
        Phase::Running => node.map_or_else(
            || "It runs.".to_owned(),
            |n| format!("It runs on {}.", n.name),
        ),
        Phase::Stopping => "It was told to end.".to_owned(),
        Phase::Pending | Phase::Scheduled | Phase::Preparing => "It is being started.".to_owned(),
    };
    Explanation {
        verdict: Verdict::Settled,
        sentence,
        eta: None,
        node: node.map(|n| n.name.clone()),
        devices: session.devices.clone(),
        reason: session.reason.clone(),
        queue_position: None,
        blockers: Vec::new(),
        checks: Vec::new(),
        alternatives: Vec::new(),
        rooms: rooms(world, &world.used(), session.node),
    }
}

fn rooms(world: &World, used: &BTreeMap<NodeId, Used>, chosen: Option<NodeId>) -> Vec<Room> {
    world
        .nodes
        .iter()
        .map(|node| {
            let held = used.get(&node.id).cloned().unwrap_or_default();
            Room {
                node: node.id,
                name: node.name.clone(),
                cpu: node.capacity.cpu,
                cpu_used: held.cpu,
                memory: node.capacity.memory,
                memory_used: held.memory,
                chosen: chosen == Some(node.id),
            }
        })
        .collect()
}

fn checks(
    world: &World,
    used: &BTreeMap<NodeId, Used>,
    node: NodeId,
    demand: &Demand,
) -> Vec<Check> {
    let Some(node) = world.node(node) else {
        return Vec::new();
    };
    let held = used.get(&node.id).cloned().unwrap_or_default();
    vec![
        Check {
            code: "cpu".into(),
            before: held.cpu.to_string(),
            after: (held.cpu + demand.cpu).to_string(),
            limit: node.capacity.cpu.to_string(),
            ok: held.cpu + demand.cpu <= node.capacity.cpu,
        },
        Check {
            code: "memory".into(),
            before: held.memory.to_string(),
            after: (held.memory + demand.memory).to_string(),
            limit: node.capacity.memory.to_string(),
            ok: held.memory + demand.memory <= node.capacity.memory,
        },
    ]
}

/// When enough running sessions reach the limits their owners set, the latest of those ends is when
/// this one fits. None where somebody in the way has no limit: then nobody knows.
fn eta(
    world: &World,
    waiting: &Waiting<'_>,
    mut used: BTreeMap<NodeId, Used>,
    now: Timestamp,
) -> Option<Eta> {
    let mut ends: Vec<(Timestamp, &Session)> = world
        .sessions
        .iter()
        .filter(|s| s.phase == Phase::Running)
        .filter_map(|s| s.deadline().map(|(at, _)| (at, s)))
        .collect();
    ends.sort_by_key(|(at, s)| (*at, s.id));
    for (at, session) in ends {
        let held = used.entry(session.node?).or_default();
        held.cpu = held.cpu.saturating_sub(session.order.demand.cpu);
        held.memory = held.memory.saturating_sub(session.order.demand.memory);
        for part in &session.devices {
            let device = held.devices.entry(part.index).or_default();
            *device = device.saturating_sub(part.share);
        }
        if fit::best(world, &used, waiting.demand, waiting.environment, now).is_some() {
            let seconds = at.seconds_since(now);
            return Some(Eta {
                p50_seconds: seconds,
                p90_seconds: seconds,
                basis: format!("{} ends at its own limit by then.", session.name),
            });
        }
    }
    None
}

/// The largest smaller request that would start now, if there is one.
fn nearest(
    world: &World,
    used: &BTreeMap<NodeId, Used>,
    waiting: &Waiting<'_>,
    now: Timestamp,
) -> Vec<Alternative> {
    let mut best: Option<Demand> = None;
    for node in world
        .nodes
        .iter()
        .filter(|n| !n.is_silent(now) && n.schedulable)
    {
        let (cpu, memory) = free(node, &used.get(&node.id).cloned().unwrap_or_default());
        let smaller = Demand {
            cpu: waiting.demand.cpu.min(cpu),
            memory: waiting.demand.memory.min(memory),
            shm: waiting.demand.shm.min(waiting.demand.memory.min(memory)),
            gpu: waiting.demand.gpu,
        };
        if smaller == *waiting.demand || smaller.check().is_err() {
            continue;
        }
        if fit::best(world, used, &smaller, waiting.environment, now).is_some()
            && best.is_none_or(|b| (smaller.cpu, smaller.memory) > (b.cpu, b.memory))
        {
            best = Some(smaller);
        }
    }
    best.map(|demand| Alternative {
        demand,
        verdict: Verdict::Now,
        text: format!(
            "{} cores and {} would start now.",
            demand.cpu, demand.memory
        ),
    })
    .into_iter()
    .collect()
}
