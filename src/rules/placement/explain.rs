//! The one answer to "would it start?" and "why is it waiting?": preview, queue, session page, API
//! and CLI all render this object, and it is computed by the scheduler's own functions.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::blocker::PlacementBlocker;
use crate::blockers;
use crate::devices::WHOLE;
use crate::names::{NodeId, ResourceGroupId, SessionId, SessionName, UserId};
use crate::notices;
use crate::placement::cluster_state::ClusterState;
use crate::placement::feasibility::could;
use crate::placement::forecast::{self, LikelyStart, QueueForecast};
use crate::placement::node_state::NodeState;
pub use crate::placement::outlook::Eta;
use crate::placement::outlook::{self, Outlook};
use crate::placement::queue::QueueWalk;
use crate::placement::{choice, fit, order, preempt, reservations};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::resources::{Demand, DeviceShare};
use crate::session::{Session, SessionEnvironment, SessionKind, SessionSpec, SessionState};
use crate::tenancy::{DomainId, ProjectId};
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};
use crate::workload::precedence::Precedence;
use crate::world::ClusterSnapshot;

/// What a person is about to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestDraft {
    pub kind: SessionKind,
    pub environment: SessionEnvironment,
    pub demand: Demand,
    pub start_at: Option<Timestamp>,
    pub depends_on: Vec<SessionId>,
    pub precedence: Precedence,
    pub replicas: u32,
    /// Each replica's time limit.
    pub max_runtime_seconds: Option<u64>,
    /// Whose it would be; None asks nothing about what one person may hold.
    pub owner: Option<UserId>,
    /// Where it would run.
    pub domain: DomainId,
    pub project: ProjectId,
    pub group: ResourceGroupId,
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

/// When a waiting session likely starts, by what sessions took that ended. It promises nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LikelyOutlook {
    /// As often before as after.
    pub at: Timestamp,
    pub seconds: u64,
    /// By then it mostly has started; None where that is not known.
    pub late: Option<Timestamp>,
    pub late_seconds: Option<u64>,
    /// What it rests on, one English sentence.
    pub basis: String,
}

impl LikelyOutlook {
    /// Of a start that was guessed a while ago, in words of now.
    pub fn of(start: LikelyStart, now: Timestamp) -> Self {
        let at = start.at.max(now);
        let late = start.late.map(|late| late.max(at));
        Self {
            at,
            seconds: at.seconds_since(now),
            late,
            late_seconds: late.map(|late| late.seconds_since(now)),
            basis: notices::explain_likely().text,
        }
    }
}

/// How many of the replicas of one request start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStarts {
    pub now: u32,
    pub wait: u32,
}

/// One thing that was checked, with its number before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementCheck {
    /// `cpu`, `memory`, `gpu`, `gpu-memory`, `gpu-quota`; `budget-project` and `budget-user` in GPU-hours.
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
    /// Why no more of what is free is offered: an earlier session has it reserved. None where all of it is offered, or
    /// where a blocker says so already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<PlacementBlocker>,
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
    /// When it starts and why then, or why no time is known. None where it does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<Reason>,
    /// When it likely starts; None where it does not wait for room, or too little is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely: Option<LikelyOutlook>,
    /// Of a request for several replicas: how many start now. What else is said is about the first that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicaStarts>,
    /// Where it would go, or is.
    pub node: Option<String>,
    pub devices: Vec<DeviceShare>,
    /// The scheduler's reason for that place, or the reason it ended.
    pub reason: Option<Reason>,
    /// 1 is next; None when it does not wait for room: it is held, or waits for a time or another session.
    pub queue_position: Option<u32>,
    pub blockers: Vec<PlacementBlocker>,
    pub checks: Vec<PlacementCheck>,
    pub alternatives: Vec<Alternative>,
    pub rooms: Vec<NodeRoom>,
    /// Devices here do not exist: sessions get none, also where a share is listed.
    #[serde(default)]
    pub simulated: bool,
}

impl Explanation {
    /// Up to how many minutes the session may run to start now by backfill; None where no time limit would do.
    pub fn backfill_minutes(&self) -> Option<u64> {
        let mut blockers = self.blockers.iter();
        let found = blockers.find(|blocker| blocker.code == crate::codes::QUEUE_BACKFILL)?;
        found.params.get("minutes")?.parse().ok()
    }

    /// Takes over what is said of the start.
    fn foresee(&mut self, (said, eta): Outlook) {
        self.outlook = Some(said);
        self.eta = eta;
    }
}

/// Answers for something that is not yet asked for: whether all replicas start, where the first one goes, and what
/// the first one that waits is waiting for. Costs a forecast of the queue with all replicas in it.
pub fn explain_draft(world: &ClusterSnapshot, draft: &RequestDraft, now: Timestamp) -> Explanation {
    let replicas = drafted(world, draft, now);
    if world.groups.is_empty() {
        return explain_drafted(world, draft, &replicas, now);
    }
    // The plan says in which group a session is.
    let mut with = world.clone();
    let new = replicas.iter().map(|session| (session.id, draft.group));
    with.groups.sessions.extend(new);
    explain_drafted(&with, draft, &replicas, now)
}

fn explain_drafted(
    world: &ClusterSnapshot,
    draft: &RequestDraft,
    replicas: &[Session],
    now: Timestamp,
) -> Explanation {
    let group = draft.group;
    let in_queue = order::WaitingByGroup::new(world, now);
    let queue = in_queue.numbered(group, replicas, draft.owner.is_none());
    let mut line = QueueWalk::new(world, now);
    line.enter_in_turn(&in_queue, group);
    if let Err(refusal) = fit::possible(world, group, &draft.demand, &draft.environment) {
        let waiting = WaitingRequest::new(&replicas[0], None);
        return impossible(&line, &waiting, refusal);
    }
    let new = |session: &Session| session.id >= replicas[0].id;
    let (mut known, mut bare) = (None, BareGround::default());
    let (mut first, mut starts) = (None::<Explanation>, 0);
    for (at, place) in queue.places.iter().enumerate() {
        if new(place.session) {
            let waiting = WaitingRequest {
                number: (at < queue.numbered).then_some(at as u32 + 1),
                own_in_front: match draft.owner {
                    Some(_) if queue.users > 1 => place.round,
                    _ => 0,
                },
                ..WaitingRequest::new(place.session, draft.owner)
            };
            if look(&line, &waiting).is_none() {
                let known = known.get_or_insert_with(|| {
                    forecast::of_queue(&in_queue, world, (group, &queue), now)
                });
                let waits = explain(&line, &waiting, known, &mut bare, now);
                return some_start(first, waits, starts, draft.replicas);
            }
            if first.is_none() {
                let known = QueueForecast::default();
                first = Some(explain(&line, &waiting, &known, &mut bare, now));
            }
            starts += 1;
        }
        if starts == replicas.len() as u32 {
            break;
        }
        line.step_noted(place.session);
    }
    let first = first.unwrap_or_else(|| {
        let waiting = WaitingRequest::new(&replicas[0], draft.owner);
        explain(&line, &waiting, &QueueForecast::default(), &mut bare, now)
    });
    Explanation {
        replicas: (draft.replicas > 1).then_some(ReplicaStarts {
            now: starts,
            wait: 0,
        }),
        ..first
    }
}

/// The answer of the first replica that waits, with the place of the first that starts.
fn some_start(
    first: Option<Explanation>,
    waits: Explanation,
    starts: u32,
    all: u32,
) -> Explanation {
    let replicas = (all > 1).then_some(ReplicaStarts {
        now: starts,
        wait: all - starts,
    });
    let Some(first) = first else {
        return Explanation { replicas, ..waits };
    };
    let node = first.node.clone().unwrap_or_default();
    Explanation {
        sentence: notices::explain_some_start(starts, all, node).text,
        replicas,
        node: first.node,
        devices: first.devices,
        reason: first.reason,
        checks: first.checks,
        rooms: first.rooms,
        ..waits
    }
}

/// The sessions that a launch of the draft would make. Their ids are behind all others, in the order of their
/// numbers.
fn drafted(world: &ClusterSnapshot, draft: &RequestDraft, now: Timestamp) -> Vec<Session> {
    let nobody = UserId(uuid::Uuid::max());
    let all = draft.replicas.max(1);
    let number = |replica: u32| uuid::Uuid::from_u128(u128::MAX - u128::from(all - replica));
    let spec = SessionSpec {
        kind: draft.kind,
        environment: draft.environment.clone(),
        command: Vec::new(),
        env: BTreeMap::new(),
        demand: draft.demand,
        timeout_seconds: None,
        max_runtime_seconds: draft.max_runtime_seconds,
        start_at: draft.start_at,
        // What ended is no longer waited for.
        depends_on: draft
            .depends_on
            .iter()
            .copied()
            .filter(|id| world.session(*id).is_some())
            .collect(),
        containers: 1,
    };
    (0..all)
        .map(|replica| {
            let (id, owner) = (SessionId(number(replica)), draft.owner.unwrap_or(nobody));
            let session = Session::launched(id, SessionName::drafted(), owner, spec.clone(), now);
            Session {
                domain: draft.domain,
                project: draft.project,
                precedence: draft.precedence,
                ..session
            }
        })
        .collect()
}

/// Answers for a session that exists, in any phase. Costs a forecast where it waits.
pub fn explain_session(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> Explanation {
    let known = match session.state() {
        SessionState::Pending => forecast::forecast(world, now),
        _ => QueueForecast::default(),
    };
    let mut told = explain_queue(world, &known, &[session], now);
    told.pop().unwrap_or_else(|| settled(world, session, now))
}

/// Answers for sessions of the queue that `known` is of, at the moment that it is of, in their order, with one walk for
/// all of them. A session that does not wait is told where it is. The walk is that of the forecast: it sorts nothing, and
/// looks only at sessions for whom it searches.
pub fn explain_queue(
    world: &ClusterSnapshot,
    known: &QueueForecast,
    wanted: &[&Session],
    now: Timestamp,
) -> Vec<Explanation> {
    let waits = |s: &&&Session| s.state() == SessionState::Pending;
    let asked = wanted.iter().filter(waits);
    let asked: BTreeSet<usize> = asked
        .filter_map(|session| world.sessions.place(session.id))
        .collect();
    let told = match asked.is_empty() {
        true => BTreeMap::new(),
        false => explain_asked(world, known, &asked, now),
    };
    wanted
        .iter()
        .map(|session| match told.get(&session.id) {
            Some(explanation) => explanation.clone(),
            None => settled(world, session, now),
        })
        .collect()
}

/// The answers for sessions that wait, by their places in `world.sessions`.
fn explain_asked(
    world: &ClusterSnapshot,
    known: &QueueForecast,
    asked: &BTreeSet<usize>,
    now: Timestamp,
) -> BTreeMap<SessionId, Explanation> {
    let mut told = BTreeMap::new();
    let mut line = QueueWalk::new(world, now);
    for queue in &known.walked {
        line.enter(queue.group);
        let mut bare = BareGround::default();
        for (number, place) in (1..).zip(&queue.numbered) {
            if told.len() == asked.len() {
                return told;
            }
            let session = &world.sessions[place.at];
            if asked.contains(&place.at) {
                let waiting = WaitingRequest {
                    number: Some(number),
                    own_in_front: if queue.users > 1 { place.round } else { 0 },
                    ..WaitingRequest::new(session, Some(session.owner))
                };
                let answer = explain(&line, &waiting, known, &mut bare, now);
                told.insert(session.id, answer);
            }
            match place.again {
                Some(wait) => line.repeat(session, wait),
                None => {
                    line.step(session);
                }
            }
        }
        for at in queue.unnumbered.iter().filter(|at| asked.contains(*at)) {
            let session = &world.sessions[*at];
            let waiting = WaitingRequest::new(session, Some(session.owner));
            let answer = explain(&line, &waiting, known, &mut bare, now);
            told.insert(session.id, answer);
        }
    }
    told
}

/// What is free without what is kept for those who wait. Changes only where a session gets a place, so that answers for
/// sessions between two such places share it.
#[derive(Default)]
struct BareGround<'w> {
    /// How many had got a place, and what was free then.
    known: Option<(usize, ClusterState<'w>)>,
}

impl<'w> BareGround<'w> {
    fn of(&mut self, line: &QueueWalk<'w>) -> &ClusterState<'w> {
        let placed = line.placed.len();
        if self
            .known
            .as_ref()
            .is_some_and(|(known, _)| *known != placed)
        {
            self.known = None;
        }
        let make = || (placed, line.ground.bare());
        &self.known.get_or_insert_with(make).1
    }
}

/// For what a session waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitCause {
    /// It can never start: its verdict is `Verdict::Never`.
    Never,
    /// For a time, another session, a user or a group, as the first blocker of its explanation says.
    Held(PlacementBlocker),
    /// For nothing but room, in its turn; it may have it already.
    Room,
}

/// The cause of each session that waits, as `explain_queue` gives it, without a walk of the queue: what is free does not
/// matter. Costs about a look at each, and at the machines once for each size.
pub struct QueueCauses<'w> {
    world: &'w ClusterSnapshot,
    now: Timestamp,
    /// Whether some machine could hold a size, were it empty.
    possible: BTreeMap<(ResourceGroupId, Demand, bool), bool>,
}

impl<'w> QueueCauses<'w> {
    pub fn new(world: &'w ClusterSnapshot, now: Timestamp) -> Self {
        Self {
            world,
            now,
            possible: BTreeMap::new(),
        }
    }

    pub fn of(&mut self, session: &Session) -> WaitCause {
        let (world, environment) = (self.world, &session.spec.environment);
        let group = world.groups.of_session(session.id);
        let host = *environment == SessionEnvironment::Host;
        let demand = session.spec.demand;
        let possible = self.possible.entry((group, demand, host));
        let possible =
            possible.or_insert_with(|| fit::possible(world, group, &demand, environment).is_ok());
        if !*possible {
            return WaitCause::Never;
        }
        match order::gate(world, session, self.now) {
            order::QueueGate::Never(_) => WaitCause::Never,
            order::QueueGate::Held(hold) => WaitCause::Held(hold.blocker()),
            order::QueueGate::Open => WaitCause::Room,
        }
    }
}

struct WaitingRequest<'a> {
    session: &'a Session,
    /// None asks nothing about what one person may hold.
    owner: Option<UserId>,
    /// Its number in the queue.
    number: Option<u32>,
    /// Sessions of its owner in front of it, where others wait too: then turns matter.
    own_in_front: u32,
}

impl<'a> WaitingRequest<'a> {
    fn new(session: &'a Session, owner: Option<UserId>) -> Self {
        Self {
            session,
            owner,
            number: None,
            own_in_front: 0,
        }
    }

    fn demand(&self) -> &'a Demand {
        &self.session.spec.demand
    }

    fn environment(&self) -> &'a SessionEnvironment {
        &self.session.spec.environment
    }
}

/// The place it gets with the next pass; None where it waits, or can never start.
fn look(line: &QueueWalk<'_>, waiting: &WaitingRequest<'_>) -> Option<fit::FitPlace> {
    waiting.number?;
    let ground = &line.ground;
    if waiting.owner.is_some() && ground.is_bounded(waiting.session) {
        return None;
    }
    line.look(waiting.session)
}

/// That no machine could ever hold it.
fn impossible(line: &QueueWalk<'_>, waiting: &WaitingRequest<'_>, refusal: Refusal) -> Explanation {
    let ground = &line.ground;
    Explanation {
        verdict: Verdict::Never,
        sentence: refusal.to_string(),
        alternatives: nearest(ground, waiting),
        reason: Some(Reason::new(refusal.code, refusal.text)),
        ..unexplained(ground)
    }
}

/// That it waits, and how full machines are.
fn unexplained(ground: &ClusterState<'_>) -> Explanation {
    Explanation {
        verdict: Verdict::Wait,
        sentence: String::new(),
        eta: None,
        outlook: None,
        likely: None,
        replicas: None,
        node: None,
        devices: Vec::new(),
        reason: None,
        queue_position: None,
        blockers: Vec::new(),
        checks: Vec::new(),
        alternatives: Vec::new(),
        rooms: rooms(ground, None),
        simulated: simulated(ground),
    }
}

/// Answers for the session that is next in `line`: all in front of it have taken their room, as `decide` gives it
/// to them.
fn explain<'w>(
    line: &QueueWalk<'w>,
    waiting: &WaitingRequest<'_>,
    known: &QueueForecast,
    bare: &mut BareGround<'w>,
    now: Timestamp,
) -> Explanation {
    let ground = &line.ground;
    let world = ground.world();
    let mut answer = Explanation {
        queue_position: waiting.number,
        ..unexplained(ground)
    };
    let group = world.groups.of_session(waiting.session.id);
    if let Err(refusal) = fit::possible(world, group, waiting.demand(), waiting.environment()) {
        return impossible(line, waiting, refusal);
    }
    match order::gate(world, waiting.session, now) {
        order::QueueGate::Never(reason) => {
            answer.verdict = Verdict::Never;
            answer.sentence = reason.text.clone();
            answer.queue_position = None;
            answer.reason = Some(reason);
            return answer;
        }
        order::QueueGate::Held(hold) => {
            let blocker = hold.blocker();
            answer.sentence = blocker.text.clone();
            answer.foresee(outlook::gated(world, waiting.session, &blocker, now));
            answer.blockers.push(blocker);
            return answer;
        }
        order::QueueGate::Open => {}
    }
    let past = waiting.owner.and_then(|owner| {
        let demand = waiting.demand();
        match ground.past_quota(owner, demand) {
            true => Some(fit::quota(ground, demand, owner)),
            false => ground
                .past_limit(waiting.session, demand)
                .map(|hit| fit::limited(&hit)),
        }
    });
    if let Some(blocker) = past {
        answer.sentence = blocker.text.clone();
        answer.blockers.push(blocker);
        answer.alternatives = nearest(ground, waiting);
        let found = &answer.blockers;
        answer.foresee(outlook::waiting(world, known, waiting.session, found, now));
        return answer;
    }
    if let Some(place) = look(line, waiting) {
        let name = world
            .node(place.node)
            .map(|n| n.name.clone())
            .unwrap_or_default();
        answer.verdict = Verdict::Now;
        answer.sentence = notices::explain_starts_now(&name).text;
        answer.reason = Some(place.because.clone());
        answer.devices = place.devices.clone();
        answer.checks = checks(ground, &place, waiting);
        answer.rooms = rooms(ground, Some(place.node));
        answer.node = Some(name);
        return answer;
    }
    let bare = bare.of(line);
    let front = in_front(line, bare, waiting);
    if front.is_none() && preempt::is_under_way(world, bare, waiting.session) {
        answer.blockers.push(blockers::queue_preempting());
    }
    answer.blockers.extend(front);
    answer.blockers.extend(fit::blockers(
        bare,
        waiting.demand(),
        waiting.environment(),
        waiting.owner,
        now,
    ));
    if waiting.own_in_front > 0 {
        answer
            .blockers
            .push(blockers::queue_turn(waiting.own_in_front));
    }
    if let Some(seconds) = line.limit_to_start(waiting.session)
        && !(waiting.owner.is_some() && ground.is_bounded(waiting.session))
        && seconds >= 60
    {
        let minutes = seconds / 60;
        answer.blockers.push(blockers::queue_backfill(minutes));
    }
    if !line.is_full() {
        answer.alternatives = nearest(ground, waiting);
        let said = |b: &PlacementBlocker| b.code == crate::codes::QUEUE_KEPT;
        if answer.blockers.iter().any(said) {
            for other in &mut answer.alternatives {
                other.because = None;
            }
        }
    }
    let found = &answer.blockers;
    answer.foresee(outlook::waiting(world, known, waiting.session, found, now));
    answer.sentence = answer
        .blockers
        .first()
        .map(|b| b.text.clone())
        .unwrap_or_default();
    answer
}

/// The session in front that it waits behind: the first one that waits for something it wants too, or for
/// which what is free is kept. None where it only lacks room.
fn in_front(
    line: &QueueWalk<'_>,
    bare: &ClusterState<'_>,
    waiting: &WaitingRequest<'_>,
) -> Option<PlacementBlocker> {
    let (ground, demand) = (&line.ground, waiting.demand());
    let host = *waiting.environment() == SessionEnvironment::Host;
    let sizes = &ground.kept().sizes;
    let behind = |front: &Session| blockers::queue_behind(&front.name).until(front.id);
    if let Some(owner) = waiting.owner
        && ground.owes_quota(owner, demand)
    {
        let mut own = line.waiting.iter();
        let own = own.find(|s| s.owner == owner && s.spec.demand.wants_device());
        return own.map(|front| behind(front));
    }
    let could_be_on = |spot: &&NodeState<'_>| could(spot.node, demand, host);
    if waiting.owner.is_some() && ground.owes_limit(waiting.session) {
        let mut own = line.waiting.iter();
        let own = own.find(|front| ground.share_account(front, waiting.session));
        return own.map(|front| behind(front));
    }
    let competitor = sizes.iter().find(|size| {
        let mut spots = ground.inside().filter(could_be_on);
        spots.any(|spot| reservations::competes(spot, size, demand))
    });
    if let Some(size) = competitor {
        return Some(behind(size.first));
    }
    let free = bare.best(demand, waiting.environment());
    if line.is_full() && free.is_some() {
        return line.waiting.last().map(|front| behind(front));
    }
    let spot = &ground.spots[free?.spot];
    let size = sizes
        .iter()
        .find(|size| could(spot.node, &size.demand, size.host))?;
    let front = size.first;
    Some(blockers::queue_kept(&front.name).until(front.id))
}

/// Whether devices here are simulated: then every answer that speaks of them says so.
fn simulated(ground: &ClusterState<'_>) -> bool {
    let mut devices = ground.inside().flat_map(|spot| &spot.node.capacity.devices);
    devices.any(|d| d.simulated)
}

fn settled(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> Explanation {
    let node = session.node().and_then(|id| world.node(id));
    let sentence = match session.state() {
        SessionState::Ended => session
            .reason
            .as_ref()
            .map_or_else(|| notices::explain_ended().text, |r| r.text.clone()),
        SessionState::Running => node.map_or_else(
            || notices::explain_runs().text,
            |n| notices::explain_runs_on(&n.name).text,
        ),
        SessionState::Stopping => notices::explain_stopping().text,
        SessionState::Pending | SessionState::Scheduled | SessionState::Preparing => {
            notices::explain_starting().text
        }
    };
    let mut ground = ClusterState::new(world, now);
    if !world.groups.is_empty() {
        ground.enter(world.groups.of_session(session.id));
    }
    Explanation {
        verdict: Verdict::Settled,
        sentence,
        node: node.map(|n| n.name.clone()),
        devices: session.devices().to_vec(),
        reason: session.reason.clone(),
        rooms: rooms(&ground, session.node()),
        ..unexplained(&ground)
    }
}

fn rooms(ground: &ClusterState<'_>, chosen: Option<NodeId>) -> Vec<NodeRoom> {
    // Where it is, its node may have gone to another group since.
    let shown = |spot: &&NodeState<'_>| spot.inside || chosen == Some(spot.node.id);
    ground
        .spots
        .iter()
        .filter(shown)
        .map(|spot| NodeRoom {
            node: spot.node.id,
            name: spot.node.name.clone(),
            cpu: spot.cpu_room,
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
    let (held, demand) = (ground.used(at), waiting.demand());
    let capacity = &ground.spots[at].node.capacity;
    let cpu_room = ground.spots[at].cpu_room;
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
            cpu_room.to_string(),
            held.cpu + demand.cpu <= cpu_room,
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

/// The largest smaller request that would start now, if there is one.
fn nearest(ground: &ClusterState<'_>, waiting: &WaitingRequest<'_>) -> Vec<Alternative> {
    let wanted = waiting.demand();
    let quota = waiting.owner.and_then(|owner| {
        let each = ground.world().policy.each?;
        Some(each.saturating_sub(ground.owned(owner)))
    });
    let mut best: Option<(Demand, &NodeState<'_>)> = None;
    for spot in ground.inside() {
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
            let better = best.is_none_or(|(b, _)| {
                (smaller.gpu, smaller.cpu, smaller.memory) > (b.gpu, b.cpu, b.memory)
            });
            if better
                && ground.world().policy.check(&smaller).is_ok()
                && (waiting.owner.is_none()
                    || ground.past_limit(waiting.session, &smaller).is_none())
                && ground.best(&smaller, waiting.environment()).is_some()
            {
                best = Some((smaller, spot));
                break;
            }
        }
    }
    best.map(|(demand, spot)| Alternative {
        because: reserved(ground, spot, wanted, &demand),
        demand,
        verdict: Verdict::Now,
        text: match (demand.gpu, demand.cpu.cores(), demand.memory) {
            (gpu, cpu, memory) if gpu == wanted.gpu => notices::explain_smaller(cpu, memory),
            (gpu, cpu, memory) if gpu > WHOLE => notices::explain_smaller_gpus(gpu, cpu, memory),
            (gpu, cpu, memory) => notices::explain_smaller_share(gpu, cpu, memory),
        }
        .text,
    })
    .into_iter()
    .collect()
}

/// For whom the rest of what is free on a machine is reserved, where so much less is offered there than was wanted and
/// is free.
fn reserved(
    ground: &ClusterState<'_>,
    spot: &NodeState<'_>,
    wanted: &Demand,
    offered: &Demand,
) -> Option<PlacementBlocker> {
    let (cpu, memory) = spot.free();
    let devices = || 0..spot.devices.len();
    let share = devices().map(|at| choice::left(spot, at).0).max();
    let left_over = devices().map(|at| choice::left_over(spot, at).0).max();
    let is_less = offered.cpu < wanted.cpu.min(cpu)
        || offered.memory < wanted.memory.min(memory)
        || (offered.gpu < wanted.gpu && left_over < share);
    let mut sizes = ground.kept().sizes.iter();
    let front = sizes.find(|size| could(spot.node, &size.demand, size.host))?;
    is_less.then(|| blockers::queue_rest_kept(&front.first.name).until(front.first.id))
}

/// The same demand with the share as it is, then with smaller ones, largest first: so many whole devices as the machine
/// has empty ones, and the largest share that one device has free, in the administrator's steps.
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
    let free: Vec<GpuShare> = (0..spot.devices.len())
        .map(|at| choice::left_over(spot, at).0)
        .collect();
    let quota = quota.unwrap_or(GpuShare(u32::MAX));
    let step = ground.world().policy.step.0.max(1);
    let empty = free.iter().filter(|free| **free == WHOLE).count() as u32;
    let wholes = empty.min(quota.0 / WHOLE.0);
    let most = free.into_iter().max().unwrap_or_default();
    let most = most.min(demand.gpu).min(quota);
    let wholes = (2..=wholes).rev().map(|count| GpuShare(count * WHOLE.0));
    let smaller = wholes.chain([GpuShare(most.0 - most.0 % step)]);
    all.extend(
        smaller
            .filter(|share| *share > GpuShare::ZERO && *share < demand.gpu)
            .map(|share| Demand {
                gpu: share,
                gpu_memory: demand.gpu_memory.filter(|_| share < WHOLE),
                ..*demand
            }),
    );
    all
}
