//! Which sessions make way for one of higher priority that waits: of those that run in its resource group and yield, a least
//! set on one node whose end makes room for it. Same world in, same answer out; stops nothing itself.
//!
//! Only a strictly higher priority preempts, and who is preempted keeps its own, so sessions never preempt one another in
//! a circle. Room that is on its way already is counted as free: for it no second session is stopped.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster_state::{ClusterState, FoundPlace};
use super::fit;
use super::order::{self, QueueGate, WaitingByGroup};
use super::reservations::MAX_SIZES;
use crate::messages::PREEMPTION_GRACE_SECONDS;
use crate::names::{NodeId, ResourceGroupId, SessionId};
use crate::policy::PreemptionMode;
use crate::session::{DesiredState, Session, SessionEnvironment, SessionKind, SessionState};
use crate::units::Timestamp;
use crate::world::ClusterSnapshot;

/// Seconds that a session runs before it may be preempted. Higher: urgent sessions wait for longer. Lower: sessions that
/// load for minutes are stopped before they did any work.
pub const SETTLED_SECONDS: u64 = 600;

/// How often one session is preempted. Higher: a long one may lose its work for days. Lower: urgent sessions find none
/// that makes way after a busy day.
pub const MAX_PREEMPTIONS: u32 = 3;

/// Seconds after which the room of a session that is being stopped is not waited for any more: it hangs. Higher: one that
/// cannot be killed holds back urgent ones for longer. Lower: others are stopped for room that comes after all; more than
/// the longest grace.
const STUCK_SECONDS: u64 = 300;

/// One session that makes way for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preemption {
    /// Who is stopped.
    pub victim: SessionId,
    /// Its generation when that was decided.
    pub seen: u64,
    /// For whom.
    pub by: SessionId,
}

/// Sessions that may be preempted, by their node: those that lose least first.
type Yielding<'w> = BTreeMap<NodeId, Vec<&'w Session>>;

/// What sessions on one node lose together, the least first: the highest priority among them, how long they ran, and how
/// many they are.
type Loss = (u32, u64, usize);

/// Names those who make way; empty where no group preempts, where no session yields, or where all that wait find room
/// without. In each resource group one waiting session preempts at a time, the first that has to: the next one once that
/// has its place, so that none takes the room that was made for another. Is asked after places were given. Costs as a
/// scheduling pass where some session could be preempted, and for each size that waits a look at those that yield; else one
/// visit a session. `spared`: those that could not be queued again.
pub fn preempt(
    world: &ClusterSnapshot,
    spared: &BTreeSet<SessionId>,
    now: Timestamp,
) -> Vec<Preemption> {
    let yielding = yielding(world, spared, now);
    let all = yielding.values().flatten();
    let Some(lowest) = all.map(|one| one.precedence.priority).min() else {
        return Vec::new();
    };
    let is_above = |one: &Session| one.is_pending() && one.precedence.priority > lowest;
    if !world.sessions.iter().any(is_above) {
        return Vec::new();
    }
    let waiting = WaitingByGroup::new(world, now);
    let mut ground = ClusterState::new(world, now);
    let leaves = |one: &&Session| is_leaving(one, now) || ends_soon(one, now);
    for session in world.sessions.iter().filter(leaves) {
        ground.give_back(session);
    }
    let mut found = Vec::new();
    for group in waiting.groups().filter(|group| preempts(world, *group)) {
        ground.enter(group);
        for session in waiting.sorted(group) {
            let is_open = matches!(order::gate(world, session, now), QueueGate::Open);
            let is_wanted = session.desired == DesiredState::Run;
            let is_bound = session.device_affinity.is_some();
            if !is_wanted || !is_open || is_bound || ground.is_bounded(session) {
                continue;
            }
            // None makes way for it, nor for those behind it.
            if session.precedence.priority <= lowest {
                break;
            }
            // What it waits for is on its way.
            if let Some(place) = fit::place(&ground, session) {
                ground.take(&place.found, session);
                break;
            }
            if let Some((place, victims)) = make_room(&mut ground, session, &yielding, now) {
                ground.take(&place, session);
                found.extend(victims.into_iter().map(|victim| Preemption {
                    victim: victim.id,
                    seen: victim.generation,
                    by: session.id,
                }));
                break;
            }
            ground.keep(session);
            if ground.kept().sizes.len() >= MAX_SIZES {
                break;
            }
        }
    }
    found
}

/// When the next session may be preempted that runs too shortly yet; None where none will, or where none waits.
pub fn next_settled(world: &ClusterSnapshot, now: Timestamp) -> Option<Timestamp> {
    if !some_group_preempts(world) || !world.sessions.iter().any(Session::is_pending) {
        return None;
    }
    let running = world.sessions.iter().filter(|one| yields(world, one));
    let settled = running.filter_map(settled_at);
    settled.filter(|at| *at > now).min()
}

/// Whether sessions of lower priority are being stopped for one that waits, and their end makes room for it. `bare`: all
/// that is free now.
pub(super) fn is_under_way(
    world: &ClusterSnapshot,
    bare: &ClusterState<'_>,
    session: &Session,
) -> bool {
    let group = world.groups.of_session(session.id);
    if !preempts(world, group) {
        return false;
    }
    let mut free = bare.bare();
    let mut some = false;
    for other in world.sessions.iter().filter(|one| one.is_preempted()) {
        let is_below = other.precedence.priority < session.precedence.priority;
        if is_below && world.groups.of_session(other.id) == group {
            free.give_back(other);
            some = true;
        }
    }
    some && free
        .best(&session.spec.demand, &session.spec.environment)
        .is_some()
}

fn preempts(world: &ClusterSnapshot, group: ResourceGroupId) -> bool {
    world.groups.preemption(group) == PreemptionMode::Priority
}

fn some_group_preempts(world: &ClusterSnapshot) -> bool {
    let mut groups = world.groups.groups.iter();
    groups.any(|group| group.preemption == PreemptionMode::Priority)
}

/// Whether it may be preempted once it has run for long enough: its own launch said so.
fn yields(world: &ClusterSnapshot, session: &Session) -> bool {
    session.precedence.yields
        && session.spec.kind == SessionKind::Batch
        && session.preempted_count < MAX_PREEMPTIONS
        && session.desired == DesiredState::Run
        && session.device_affinity.is_none()
        && session.state() == SessionState::Running
        && preempts(world, world.groups.of_session(session.id))
}

/// Whether it is being stopped, and others may count on its room.
fn is_leaving(session: &Session, now: Timestamp) -> bool {
    let since = session.stopping_at();
    session.gives_up_place() && since.is_none_or(|at| now.seconds_since(at) < STUCK_SECONDS)
}

/// Whether its own time limit ends it no later than a preemption would: none is needed then, nor would its budget have room
/// for the grace.
fn ends_soon(session: &Session, now: Timestamp) -> bool {
    let by = now.plus_seconds(PREEMPTION_GRACE_SECONDS);
    let deadline = session
        .deadline()
        .filter(|_| session.state() == SessionState::Running);
    deadline.is_some_and(|(at, _)| at <= by)
}

fn settled_at(session: &Session) -> Option<Timestamp> {
    let started = session.started_at()?;
    Some(started.plus_seconds(SETTLED_SECONDS))
}

/// What a session is preempted by: the lowest priority first, then the one that ran for the shortest time.
fn loss(session: &Session, now: Timestamp) -> (u32, u64) {
    let ran = session.started_at().map_or(0, |at| now.millis_since(at));
    (session.precedence.priority, ran)
}

fn yielding<'w>(
    world: &'w ClusterSnapshot,
    spared: &BTreeSet<SessionId>,
    now: Timestamp,
) -> Yielding<'w> {
    let mut by_node = Yielding::new();
    if !some_group_preempts(world) {
        return by_node;
    }
    for session in world.sessions.iter().filter(|one| yields(world, one)) {
        let Some(node) = session.node() else {
            continue;
        };
        let is_spared = spared.contains(&session.id);
        let is_settled = settled_at(session).is_some_and(|at| at <= now);
        let on_one_node = session.live_containers().all(|one| one.node == node);
        let is_own = world.groups.of_node(node) == world.groups.of_session(session.id);
        if is_settled && on_one_node && is_own && !is_spared && !ends_soon(session, now) {
            by_node.entry(node).or_default().push(session);
        }
    }
    for here in by_node.values_mut() {
        here.sort_by_key(|session| (loss(session, now), session.id));
    }
    by_node
}

/// Takes the sessions out of the way that lose least of all that could make room for one on a node; the place that it
/// has then, and the victims. None, and the ground as it was, where no node has enough of them.
fn make_room<'w>(
    ground: &mut ClusterState<'w>,
    session: &Session,
    yielding: &Yielding<'w>,
    now: Timestamp,
) -> Option<(FoundPlace, Vec<&'w Session>)> {
    let demand = &session.spec.demand;
    let host = session.spec.environment == SessionEnvironment::Host;
    // An earlier one that wants no more, and whose priority is no lower, found none either.
    if ground.kept().is_vain(demand, host) {
        return None;
    }
    let mut best: Option<(Loss, usize, Vec<&'w Session>)> = None;
    for (node, here) in yielding {
        let below = |one: &&&Session| one.precedence.priority < session.precedence.priority;
        let here: Vec<&'w Session> = here.iter().filter(below).copied().collect();
        let Some(at) = ground.spot(*node) else {
            continue;
        };
        if here.is_empty() || !ground.could_hold(at, demand, host) {
            continue;
        }
        let Some(victims) = least_set(ground, at, session, &here) else {
            continue;
        };
        let losses = victims.iter().map(|one| loss(one, now));
        let highest = losses.clone().map(|(priority, _)| priority).max();
        let ran: u64 = losses.map(|(_, ran)| ran).sum();
        let cost = (highest.unwrap_or_default(), ran, victims.len());
        // Nodes come in the order of their ids: the first of equals stays.
        if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
            best = Some((cost, at, victims));
        }
    }
    let (_, at, victims) = best?;
    for victim in &victims {
        ground.give_back(victim);
    }
    let place = place_on(ground, at, session);
    if place.is_none() {
        for victim in &victims {
            ground.hold_again(victim);
        }
    }
    Some((place?, victims))
}

/// Of these, in their order, as many as are needed for room on that node, and none of them that is not. The ground is as
/// it was then.
fn least_set<'w>(
    ground: &mut ClusterState<'w>,
    at: usize,
    session: &Session,
    here: &[&'w Session],
) -> Option<Vec<&'w Session>> {
    let mut gone: Vec<&'w Session> = Vec::new();
    let mut is_enough = false;
    for one in here {
        ground.give_back(one);
        gone.push(*one);
        is_enough = place_on(ground, at, session).is_some();
        if is_enough {
            break;
        }
    }
    let mut least: Vec<&'w Session> = Vec::new();
    // Who loses most is left alone first.
    for one in gone.into_iter().rev() {
        ground.hold_again(one);
        if is_enough && place_on(ground, at, session).is_none() {
            ground.give_back(one);
            least.push(one);
        }
    }
    for one in &least {
        ground.hold_again(one);
    }
    least.reverse();
    is_enough.then_some(least)
}

/// The place that a session has on that node beside what is kept for those before it.
fn place_on(ground: &ClusterState<'_>, at: usize, session: &Session) -> Option<FoundPlace> {
    let demand = &session.spec.demand;
    let host = session.spec.environment == SessionEnvironment::Host;
    let place = ground.place_on(at, demand, host)?;
    let leaves_room = ground.kept().leaves_room(&ground.spots[at], demand);
    leaves_room.then_some(place)
}
