//! Plays a trace through the scheduler: after each arrival and each end it decides as the controller has it decide, and
//! what got a place runs for its own time. Time is virtual, so a day takes as long as its decisions.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{TraceJob, WorkloadTrace};
use crate::fair_share::{self, FairLeaf, QueueOrder};
use crate::metering::{self, Allocated, UsageSum};
use crate::names::{NodeId, ResourceGroupId, SessionId, SessionName};
use crate::placement::{Decision, forecast, likely_starts};
use crate::resources::DeviceShare;
use crate::run_history::{ExpectedArrival, RunHistory};
use crate::session::{Session, SessionEnvironment, SessionKind, SessionSpec};
use crate::units::Timestamp;
use crate::workload::precedence::USUAL_PRIORITY;
use crate::world::{ClusterSnapshot, whole_cluster};

/// Seconds between two forecasts, and at most between two sums of the past. Higher: few forecasts are judged. Lower: a day
/// takes longer.
const TICK_INTERVAL: u64 = 1_800;

/// What became of one job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlayedJob {
    /// None where it found no place to the end.
    pub start: Option<JobStart>,
    /// The first forecast that named its start.
    pub told: Option<ToldStart>,
}

/// The place of a job. Times are seconds since the trace begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStart {
    pub at: u64,
    /// None where another scheduler placed it.
    pub node: Option<NodeId>,
    pub devices: Vec<DeviceShare>,
}

/// A start as a forecast named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldStart {
    /// When the forecast was made.
    pub asked: u64,
    pub at: u64,
    /// By when it mostly comes; the same where nothing but time limits was asked.
    pub late: u64,
}

/// What is played beside the decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayOptions<'t> {
    /// When the trace begins.
    pub start: Timestamp,
    /// After so many hours use counts half, where the queue goes by fair share.
    pub half_life_hours: u64,
    pub forecasts: PlayForecasts<'t>,
}

/// Which forecasts are made beside the decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayForecasts<'t> {
    None,
    /// By time limits. They cost as much as the decisions.
    Declared,
    /// By what runs took, with this as the day before. They cost ten times as much.
    Likely(&'t WorkloadTrace),
}

/// What decides at one moment: the scheduler, or the scheduler with a watch beside it. None ends the play.
pub type TraceScheduler<'s> =
    &'s mut dyn FnMut(&ClusterSnapshot, Timestamp) -> Option<Vec<Decision>>;

/// Plays all jobs on the machines of `world`, under its rules, and gives what became of each in their order. `world` has no
/// sessions, and no use of the past but what the trace brings. A job that no machine can ever hold gets no start.
/// Costs one or two decisions for each arrival and each end.
pub fn play(
    world: ClusterSnapshot,
    trace: &WorkloadTrace,
    options: PlayOptions<'_>,
    scheduler: TraceScheduler<'_>,
) -> Vec<PlayedJob> {
    let mut stage = TraceStage {
        world,
        trace,
        options,
        played: vec![PlayedJob::default(); trace.jobs.len()],
        ends: BTreeSet::new(),
        used: BTreeMap::new(),
        counted: 0,
        history: RunHistory::default(),
    };
    stage.remember_day_before();
    let mut next = 0;
    let mut tick = TICK_INTERVAL;
    loop {
        let arrival = trace.jobs.get(next).map(|job| job.submit);
        let end = stage.ends.first().map(|(at, _)| *at);
        let Some(event) = arrival.into_iter().chain(end).min() else {
            return stage.played;
        };
        if stage.world.sessions.is_empty() {
            tick = (event / TICK_INTERVAL + 1) * TICK_INTERVAL;
        }
        let at = event.min(tick);
        stage.count_use(at);
        stage.end_all(at);
        while let Some(job) = trace.jobs.get(next).filter(|job| job.submit <= at) {
            stage.arrive(next, job);
            next += 1;
        }
        if at == tick {
            stage.sum_past(at);
        }
        if !stage.decide(at, scheduler) {
            return stage.played;
        }
        if at == tick {
            tick += TICK_INTERVAL;
            stage.foretell(at);
        }
    }
}

/// The world between two moments.
struct TraceStage<'t> {
    world: ClusterSnapshot,
    trace: &'t WorkloadTrace,
    options: PlayOptions<'t>,
    played: Vec<PlayedJob>,
    /// Ends to come: when, and of which job.
    ends: BTreeSet<(u64, usize)>,
    /// Use by user and hour, where the queue goes by fair share.
    used: BTreeMap<(FairLeaf, i64), UsageSum>,
    /// Up to when use was counted.
    counted: u64,
    /// What ended runs teach.
    history: RunHistory,
}

impl TraceStage<'_> {
    fn time(&self, at: u64) -> Timestamp {
        self.options.start.plus_seconds(at)
    }

    fn is_fair(&self) -> bool {
        self.world.policy.order == QueueOrder::Fair
    }

    /// Counts what was held since the last event.
    fn count_use(&mut self, at: u64) {
        let millis = (at - self.counted) * 1_000;
        self.counted = at;
        if !self.is_fair() || millis == 0 {
            return;
        }
        let parts = metering::by_hour(self.time(at), millis, i64::MIN);
        for session in &self.world.sessions {
            let Some(amounts) = Allocated::of(session) else {
                continue;
            };
            let leaf = leaf(session);
            for (hour, part) in &parts {
                let sum = self.used.entry((leaf, *hour)).or_default();
                *sum = sum.plus(UsageSum::held(amounts, *part));
            }
        }
    }

    /// Sums up the past of fair share, as the server does once an hour.
    fn sum_past(&mut self, at: u64) {
        if !self.is_fair() {
            return;
        }
        let whole = whole_cluster(&self.world.nodes);
        let used = self
            .used
            .iter()
            .map(|((leaf, hour), sum)| (*leaf, *hour, *sum));
        let hour = metering::hour_of(self.time(at));
        self.world.fair.past =
            fair_share::standing(whole, used, hour, self.options.half_life_hours);
    }

    /// Takes away the jobs that are over by then.
    fn end_all(&mut self, at: u64) {
        let mut over = BTreeSet::new();
        while let Some((end, number)) = self.ends.first().copied()
            && end <= at
        {
            self.ends.pop_first();
            let job = &self.trace.jobs[number];
            if let Some(limit) = job.limit {
                let leaf = self.trace.users[job.user].leaf;
                let whose = (leaf.domain, leaf.user);
                self.history.note(whose, limit, job.held());
            }
            over.insert(id(number));
        }
        if !over.is_empty() {
            self.world
                .sessions
                .retain(|session| !over.contains(&session.id));
            self.world
                .groups
                .sessions
                .retain(|id, _| !over.contains(id));
        }
    }

    fn arrive(&mut self, number: usize, job: &TraceJob) {
        let leaf = self.trace.users[job.user].leaf;
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: Vec::new(),
            env: BTreeMap::new(),
            demand: job.demand,
            timeout_seconds: None,
            max_runtime_seconds: job.limit,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let at = self.time(job.submit);
        let name = SessionName::drafted();
        let mut session = Session::launched(id(number), name, leaf.user, spec, at);
        session.domain = leaf.domain;
        session.project = leaf.project;
        if job.group != ResourceGroupId::DEFAULT {
            self.world.groups.sessions.insert(session.id, job.group);
        }
        self.world.sessions.push(session);
    }

    /// Decides until nothing more moves, as the controller does after each of its commits. False where the play ends here.
    fn decide(&mut self, at: u64, scheduler: TraceScheduler<'_>) -> bool {
        let now = self.time(at);
        for node in &mut self.world.nodes {
            node.seen_at = now;
        }
        loop {
            let Some(decisions) = scheduler(&self.world, now) else {
                return false;
            };
            if decisions.is_empty() {
                return true;
            }
            for decision in decisions {
                match decision {
                    Decision::Place {
                        session,
                        node,
                        devices,
                        because,
                        ..
                    } => {
                        let mut rows = self.world.sessions.iter_mut();
                        let Some(row) = rows.find(|row| row.id == session) else {
                            continue;
                        };
                        let start = JobStart {
                            at,
                            node: Some(node),
                            devices: devices.clone(),
                        };
                        row.place(node, devices, because, now);
                        row.run_since(now);
                        let owner = row.owner;
                        self.world.served.insert(owner, now);
                        self.world.note_turn(node);
                        let number = number(session);
                        self.ends
                            .insert((at + self.trace.jobs[number].held(), number));
                        self.played[number].start = Some(start);
                    }
                    Decision::End { session, .. } => {
                        self.world.sessions.retain(|row| row.id != session);
                    }
                }
            }
        }
    }

    /// Notes the starts that a forecast names now, for each job the first one that does.
    fn foretell(&mut self, at: u64) {
        let now = self.time(at);
        let starts: Vec<(SessionId, Timestamp, Timestamp)> = match self.options.forecasts {
            PlayForecasts::None => return,
            PlayForecasts::Declared => {
                let known = forecast(&self.world, now).starts.into_iter();
                known.map(|(id, start)| (id, start.at, start.at)).collect()
            }
            PlayForecasts::Likely(_) => {
                let likely = likely_starts(&self.world, &self.history, now).into_iter();
                likely
                    .filter_map(|(id, start)| Some((id, start.at, start.late?)))
                    .collect()
            }
        };
        for (session, start, late) in starts {
            let seconds = |at: Timestamp| at.seconds_since(self.options.start);
            let told = &mut self.played[number(session)].told;
            told.get_or_insert(ToldStart {
                asked: at,
                at: seconds(start),
                late: seconds(late),
            });
        }
    }

    /// Takes the runs of the day before as known, and its arrivals as expected again.
    fn remember_day_before(&mut self) {
        let PlayForecasts::Likely(before) = self.options.forecasts else {
            return;
        };
        let mut arrivals = Vec::new();
        for job in &before.jobs {
            let leaf = before.users[job.user].leaf;
            if let Some(limit) = job.limit {
                let whose = (leaf.domain, leaf.user);
                self.history.note(whose, limit, job.held());
            }
            arrivals.push(ExpectedArrival {
                at: self.time(job.submit),
                owner: leaf.user,
                domain: leaf.domain,
                project: leaf.project,
                group: job.group,
                demand: job.demand,
                environment: SessionEnvironment::Host,
                priority: USUAL_PRIORITY,
                limit: job.limit.unwrap_or(job.run),
            });
        }
        self.history.expect(arrivals);
    }
}

fn leaf(session: &Session) -> FairLeaf {
    FairLeaf {
        domain: session.domain,
        project: session.project,
        user: session.owner,
    }
}

/// Ids in the order of the jobs: who arrives together waits in that order.
fn id(number: usize) -> SessionId {
    SessionId(Uuid::from_u128(1 + number as u128))
}

fn number(session: SessionId) -> usize {
    usize::try_from(session.0.as_u128().saturating_sub(1)).unwrap_or(usize::MAX)
}
