//! What recorded sessions would have waited under other rules of the queue: their arrivals, amounts and run times, played
//! through the scheduler on the machines of today. Changes nothing, and no session is told.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use api::queue_rehearsal::{QueueRehearsal, RehearsalFigures, RehearsedRules, RehearsedUser};
use rules::fair_share::{FairLeaf, QueueOrder};
use rules::permissions::{Permission, may};
use rules::placement;
use rules::policy::BackfillMode;
use rules::refusals;
use rules::tenancy::Scope;
use rules::trace::figures::{card_seconds, slowdowns, waits};
use rules::trace::play::{JobStart, PlayForecasts, PlayOptions, PlayedJob, play};
use rules::trace::{TraceJob, TraceUser, WorkloadTrace};
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use uuid::Uuid;

use super::fair_share::check_half_life;
use super::usage::{UsageTime, window};
use crate::access::Caller;
use crate::catalog::recorded::RecordedSession;
use crate::{Failure, Server, ServerFault};

/// Sessions that one rehearsal plays. Higher: an answer takes longer than a page waits for. Lower: a busy site tries less
/// than a week.
const MAX_REHEARSED: usize = 5_000;
/// Time that one set of rules may take. Higher: rules that never place anything hold a core for longer. Lower: a long queue
/// cannot be tried.
const REHEARSAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Rehearsals under way: one runs, the others wait. Higher: the last of them waits longer than a page does. Lower: two
/// administrators who compare rules are told to come back.
const MAX_REHEARSALS: usize = 4;
static TURNS: RehearsalTurns = RehearsalTurns::new();
/// How much nicer a rehearsal is than the threads that answer. Higher: on a busy machine it runs out of its time. Lower: it
/// takes time from sessions, and from all who wait for a page.
const NICER: i32 = 15;
/// What is under way, for a fault of ours.
const WORK: &str = "rehearse the queue";

/// Rules to be tried; what is left out is as it is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TriedRules {
    pub order: Option<QueueOrder>,
    pub backfill: Option<BackfillMode>,
    pub half_life_hours: Option<u32>,
}

/// Rehearsals wait for one another: each takes a whole core. They wait before they read, and on no thread.
struct RehearsalTurns {
    places: Semaphore,
    running: Semaphore,
}

impl RehearsalTurns {
    const fn new() -> Self {
        Self {
            places: Semaphore::const_new(MAX_REHEARSALS),
            running: Semaphore::const_new(1),
        }
    }

    /// Leave to run, once it is its turn, and its place among those under way.
    ///
    /// Errors: `rehearsal.too-many`.
    async fn turn(&'static self) -> Result<[SemaphorePermit<'static>; 2], Failure> {
        let place = self.places.try_acquire().map_err(|_| {
            let seconds = REHEARSAL_TIMEOUT.as_secs();
            refusals::rehearsal_too_many(MAX_REHEARSALS).retry_after(seconds)
        })?;
        let turn = self.running.acquire().await;
        let turn = turn.map_err(|closed| ServerFault::new(WORK, closed))?;
        Ok([place, turn])
    }
}

/// Plays the sessions that ended in a time under the present rules and under others.
///
/// Errors: `usage.month-invalid`, `usage.time-invalid`, `usage.too-long` and `fair-share.half-life-out-of-range` at their
/// fields; `rehearsal.too-long` where the queue of that time is too long to be played; `rehearsal.too-many`.
pub async fn rehearse(
    server: &Server,
    caller: &Caller,
    asked: &UsageTime,
    tried: TriedRules,
) -> Result<QueueRehearsal, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    check_half_life(tried.half_life_hours)?;
    let now = server.clock().now();
    let (from, until) = window(asked, &caller.time_zone, now)?;
    let turn = TURNS.turn().await?;
    let (world, half_life_hours, mut recorded, names) = server
        .catalog()
        .read("read what was recorded", move |view| {
            let mut world = view.world()?;
            let weights = view.fair_weights()?.into_iter();
            world.fair.weights = weights
                .map(|(of, weight)| (of.level, of.subject, weight))
                .collect();
            let names: BTreeMap<Uuid, String> = view.tenant_names()?.into_iter().collect();
            Ok((
                world,
                view.queue_rule()?.half_life_hours,
                view.recorded_sessions(from, until, MAX_REHEARSED + 1)?,
                names,
            ))
        })
        .await?;
    let complete = recorded.len() <= MAX_REHEARSED;
    recorded.truncate(MAX_REHEARSED);
    let (told, answer) = oneshot::channel();
    // A thread of its own: those of the runtime run before sessions, and cannot be nicer for a while.
    let begun = thread::Builder::new()
        .name("rehearsal".to_owned())
        .spawn(move || {
            let _one = turn;
            let _ = rustix::process::nice(NICER);
            let world = emptied(world);
            let stage = RehearsedTime::new(world, half_life_hours, &recorded, from, &names);
            // Who asked may be gone.
            let _ = told.send(stage.compared(tried));
        });
    begun.map_err(|error| ServerFault::new(WORK, error))?;
    let compared = answer
        .await
        .map_err(|ended| ServerFault::new(WORK, ended))?;
    let Some(rehearsed) = compared else {
        let seconds = REHEARSAL_TIMEOUT.as_secs();
        return Err(refusals::rehearsal_too_long(seconds).at("/from").into());
    };
    Ok(QueueRehearsal {
        from,
        until,
        complete,
        ..rehearsed
    })
}

/// The machines of today with nothing on them, and every one of them takes sessions.
fn emptied(mut world: ClusterSnapshot) -> ClusterSnapshot {
    for node in &mut world.nodes {
        node.schedulable = true;
        node.host_environment = true;
        node.cordoned.clear();
        node.problems.clear();
    }
    world.groups.sessions.clear();
    world.fair.past.clear();
    ClusterSnapshot {
        nodes: world.nodes,
        policy: world.policy,
        limits: world.limits,
        fair: world.fair,
        groups: world.groups,
        ..ClusterSnapshot::default()
    }
}

/// Recorded sessions as a trace, and the world that they are played in.
struct RehearsedTime<'n> {
    world: ClusterSnapshot,
    trace: WorkloadTrace,
    options: PlayOptions<'static>,
    /// As it went.
    recorded: Vec<PlayedJob>,
    /// Where the time that is asked for begins, in seconds of the trace: what ended in it may have begun long before.
    opens: u64,
    /// Names of domains, projects and users.
    names: &'n BTreeMap<Uuid, String>,
}

impl<'n> RehearsedTime<'n> {
    fn new(
        world: ClusterSnapshot,
        half_life_hours: u32,
        recorded: &[RecordedSession],
        from: Timestamp,
        names: &'n BTreeMap<Uuid, String>,
    ) -> Self {
        let mut rows: Vec<(Timestamp, &RecordedSession)> = recorded
            .iter()
            .map(|one| (one.waited_since(), one))
            .collect();
        rows.sort_by_key(|(queued, _)| *queued);
        let start = rows.first().map_or(from, |(queued, _)| *queued);
        let mut users: Vec<TraceUser> = Vec::new();
        let mut known: BTreeMap<FairLeaf, usize> = BTreeMap::new();
        let mut jobs = Vec::new();
        let mut went = Vec::new();
        for (queued, one) in rows {
            let user = *known.entry(one.leaf).or_insert_with(|| {
                users.push(TraceUser {
                    name: names.get(&one.leaf.user.0).cloned().unwrap_or_default(),
                    leaf: one.leaf,
                });
                users.len() - 1
            });
            jobs.push(TraceJob {
                submit: queued.seconds_since(start),
                user,
                demand: one.demand,
                group: one.group,
                limit: one.limit,
                run: one.ended_at.seconds_since(one.scheduled_at).max(1),
            });
            let at = one.scheduled_at.seconds_since(start);
            went.push(PlayedJob {
                start: Some(JobStart {
                    at,
                    node: None,
                    devices: Vec::new(),
                }),
                told: None,
            });
        }
        Self {
            world,
            trace: WorkloadTrace { users, jobs },
            options: PlayOptions {
                start,
                half_life_hours: u64::from(half_life_hours),
                forecasts: PlayForecasts::None,
            },
            recorded: went,
            opens: from.seconds_since(start),
            names,
        }
    }

    /// Both sets of rules and what they mean for each user; None where one of them took too long.
    fn compared(&self, tried: TriedRules) -> Option<QueueRehearsal> {
        let (order, backfill) = (self.world.policy.order, self.world.policy.backfill);
        let half_life = self.options.half_life_hours;
        let present = self.played(order, backfill, half_life)?;
        let others = (
            tried.order.unwrap_or(order),
            tried.backfill.unwrap_or(backfill),
            tried.half_life_hours.map_or(half_life, u64::from),
        );
        let other = match others == (order, backfill, half_life) {
            true => present.clone(),
            false => self.played(others.0, others.1, others.2)?,
        };
        Some(QueueRehearsal {
            from: self.options.start,
            until: self.options.start,
            sessions: self.trace.jobs.len() as u64,
            complete: true,
            recorded: self.figures(&self.recorded),
            present: RehearsedRules {
                order,
                backfill,
                half_life_hours: half_life,
                figures: self.figures(&present),
            },
            tried: RehearsedRules {
                order: others.0,
                backfill: others.1,
                half_life_hours: others.2,
                figures: self.figures(&other),
            },
            items: self.users(&present, &other),
        })
    }

    fn played(
        &self,
        order: QueueOrder,
        backfill: BackfillMode,
        half_life_hours: u64,
    ) -> Option<Vec<PlayedJob>> {
        let options = PlayOptions {
            half_life_hours,
            ..self.options
        };
        let mut world = self.world.clone();
        world.policy.order = order;
        world.policy.backfill = backfill;
        let began = Instant::now();
        let mut is_late = false;
        let mut scheduler = |world: &ClusterSnapshot, now: Timestamp| {
            is_late = is_late || began.elapsed() > REHEARSAL_TIMEOUT;
            match is_late {
                true => None,
                false => Some(placement::decide(world, now)),
            }
        };
        let all = play(world, &self.trace, options, &mut scheduler);
        (!is_late).then_some(all)
    }

    /// From the beginning of the time that is asked for to the last arrival, in seconds; from the first arrival where that
    /// is no time.
    fn span(&self) -> (u64, u64) {
        let last = self.trace.jobs.last().map_or(0, |job| job.submit);
        let first = Some(self.opens).filter(|opens| *opens < last);
        (first.unwrap_or(0), last)
    }

    fn figures(&self, played: &[PlayedJob]) -> RehearsalFigures {
        let waited = waits(&self.trace, played, |_| true);
        let slow = slowdowns(&self.trace, played, |_| true);
        let (first, last) = self.span();
        let held = card_seconds(&self.trace, played, (first, last), |_| true);
        let nodes = self.world.nodes.iter();
        let cards: u64 = nodes.map(|node| node.capacity.devices.len() as u64).sum();
        let started = played.iter().filter(|one| one.start.is_some()).count();
        RehearsalFigures {
            waited_p50_seconds: waited.p50,
            waited_p95_seconds: waited.p95,
            waited_max_seconds: waited.max,
            slowdown_mean: slow.mean as f64 / 100.0,
            slowdown_p95: slow.p95 as f64 / 100.0,
            busy: part(held, 100 * cards * (last - first)),
            not_started: (played.len() - started) as u64,
        }
    }

    fn users(&self, present: &[PlayedJob], tried: &[PlayedJob]) -> Vec<RehearsedUser> {
        let held = |played: &[PlayedJob], user: Option<usize>| {
            let wanted = |job: &TraceJob| user.is_none_or(|user| job.user == user);
            card_seconds(&self.trace, played, self.span(), wanted)
        };
        let (all_present, all_tried) = (held(present, None), held(tried, None));
        let name = |id: Uuid| self.names.get(&id).cloned().unwrap_or_default();
        let users = self.trace.users.iter().enumerate();
        let mut items: Vec<RehearsedUser> = users
            .map(|(number, user)| {
                let own = |job: &TraceJob| job.user == number;
                let before = waits(&self.trace, present, own).mean;
                let after = waits(&self.trace, tried, own).mean;
                let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
                RehearsedUser {
                    domain: name(user.leaf.domain.0),
                    project: name(user.leaf.project.0),
                    user: user.name.clone(),
                    sessions: self.trace.jobs.iter().filter(|job| own(job)).count() as u64,
                    present_share: part(held(present, Some(number)), all_present),
                    tried_share: part(held(tried, Some(number)), all_tried),
                    present_waited_seconds: before,
                    tried_waited_seconds: after,
                    change_seconds: signed(after) - signed(before),
                }
            })
            .collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.change_seconds));
        items
    }
}

/// A part of a whole; none of nothing.
fn part(some: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => some as f64 / whole as f64,
    }
}

#[cfg(test)]
mod tests;
