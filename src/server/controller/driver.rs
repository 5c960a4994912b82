//! The controller's loop: wakes on a commit, on a report and on a clock, runs one pass, writes it,
//! then puts the assignment on the link. Holds nothing that a restart would miss.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::observe::{Clock, chain};
use rules::messages::NodeReport;
use rules::names::NodeId;
use rules::placement;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::Failure;
use crate::catalog::Catalog;
use crate::catalog::controller_pass::PassSnapshot;
use crate::controller::idleness::{self, IdleJudge};
use crate::controller::start_up::CarriedStartUps;
use crate::controller::{Controller, ControllerPass, apply_report, retention};
use crate::decisions::{DecidedTurn, DecisionLog};
use crate::links::Links;

/// Longest wait between two passes. Shorter: an idle box wakes for nothing. Longer: what no signal
/// announces (a node that fell silent, a clock that was set) is noticed later.
const CLOCK: Duration = Duration::from_secs(5);
/// Shortest wait for a limit or a start time that is due.
const SOONEST: Duration = Duration::from_millis(20);
/// How often old rows are looked for.
const RETENTION: Duration = Duration::from_secs(3600);
/// How often what sessions hold is counted into the sums of use. Longer: a machine that loses power loses more of it.
/// Shorter: more commits on an idle machine.
const METER: Duration = Duration::from_secs(300);
/// Passes that read and decide in this time follow each other at once; after longer ones the loop
/// rests as long, so that it never has more than half of a core while rows pour in. Waiting for the
/// disk does not count.
const SHORT: Duration = Duration::from_millis(1);

/// Runs until the task is dropped or the catalog is closed. An error ends a pass, never the loop;
/// the next pass sees the same rows and tries again.
pub(crate) async fn run(catalog: Catalog, mut links: Links, clock: Clock, keep_days: u32) {
    let zero = Instant::now();
    let mut revision = catalog.revision();
    let mut controller = Controller::default();
    let log = DecisionLog::open(catalog.directory());
    // Of each node the newest report that no pass has taken in, and the newest that one has.
    let mut heard: BTreeMap<NodeId, Arc<NodeReport>> = BTreeMap::new();
    let mut absorbed: BTreeMap<NodeId, Arc<NodeReport>> = BTreeMap::new();
    let mut linked = true;
    let mut tidied: Option<Instant> = None;
    let mut metered: Option<Instant> = None;
    let mut judged: Option<Instant> = None;
    let mut idle = IdleJudge::default();
    let mut carried = CarriedStartUps::default();
    loop {
        revision.borrow_and_update();
        // A machine that is not led says nothing new, and root may have accepted meanwhile.
        if controller.quarantine().is_some() && heard.is_empty() {
            heard.clone_from(&absorbed);
        }
        let was_heard = !heard.is_empty();
        let reports: Vec<_> = heard.values().cloned().collect();
        let now = clock.now();
        if let Err(failure) = catalog.end_allowances(now).await {
            tracing::error!(error = %chain(&failure), "allowances were not ended");
        }
        if let Err(failure) = catalog.end_break_glass(now).await {
            tracing::error!(error = %chain(&failure), "looks into what is another user's were not ended");
        }
        if let Err(failure) = catalog.expire_requests(now).await {
            tracing::error!(error = %chain(&failure), "late requests were not ended");
        }
        if let Err(failure) = catalog.step_courses(now).await {
            tracing::error!(error = %chain(&failure), "courses took no step");
        }
        let mut busy = Duration::ZERO;
        let at = (now, zero);
        let pass = take_pass(&catalog, &mut controller, &log, &reports, at, &mut busy);
        let wait = match pass.await {
            Ok(pass) => {
                absorbed.append(&mut heard);
                let quarantine = controller.quarantine();
                // The machine says by its own memory that it obeys this catalog.
                if quarantine.is_none()
                    && was_heard
                    && pass.is_accepted
                    && pass.accepting.is_empty()
                {
                    catalog.forget_acceptance();
                }
                catalog.health().quarantine(quarantine);
                for assignment in controller.due_assignments(&pass, zero.elapsed()) {
                    // A node that was not heard of yet may not be led by this catalog.
                    if absorbed.contains_key(&assignment.node) {
                        let starting = carried.starting(&pass, &assignment);
                        let filled = carried.fill(&catalog, starting, assignment).await;
                        links.send(filled);
                    }
                }
                controller
                    .until_due(&pass)
                    .map_or(CLOCK, |due| due.clamp(SOONEST, CLOCK))
            }
            Err(failure) => {
                tracing::error!(error = %chain(&failure), "a pass of the controller failed");
                CLOCK
            }
        };
        if let Err(failure) = catalog.end_accounts(clock.now()).await {
            tracing::error!(error = %chain(&failure), "accounts that ended were not suspended");
        }
        if let Err(failure) = catalog.end_grants(clock.now()).await {
            tracing::error!(error = %chain(&failure), "roles that ended were not dropped");
        }
        if let Err(failure) = catalog.finish_departures().await {
            tracing::error!(error = %chain(&failure), "users who left were not removed");
        }
        if metered.is_none_or(|at| at.elapsed() >= METER) {
            metered = Some(Instant::now());
            let counted = async {
                catalog.meter(clock.now()).await?;
                catalog.refresh_standing().await
            };
            if let Err(failure) = counted.await {
                tracing::error!(error = %chain(&failure), "what sessions hold was not counted");
            }
        }
        let is_due = judged.is_none_or(|at| at.elapsed() >= idleness::INTERVAL);
        if is_due && controller.quarantine().is_none() {
            judged = Some(Instant::now());
            if let Err(failure) = idle.round(&catalog, now).await {
                tracing::error!(error = %chain(&failure), "idle sessions were not looked for");
            }
        }
        if tidied.is_none_or(|at| at.elapsed() >= RETENTION) {
            tidied = Some(Instant::now());
            if let Err(failure) = retention::retention(&catalog, now, keep_days).await {
                tracing::error!(error = %chain(&failure), "old rows were not removed");
            }
        }
        if busy > SHORT {
            tokio::time::sleep(busy).await;
        }
        let bell = tokio::time::sleep(wait);
        tokio::pin!(bell);
        loop {
            tokio::select! {
                changed = revision.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    break;
                }
                report = links.report(), if linked => {
                    let Some(report) = report else {
                        linked = false;
                        continue;
                    };
                    let at = clock.now();
                    catalog.heard(report.node, at);
                    catalog.heard_devices(&report);
                    catalog.health().heard(&report.problems);
                    catalog.record_usage(&report, at);
                    catalog.record_connections(&report);
                    let known = !heard.contains_key(&report.node)
                        && absorbed
                            .get(&report.node)
                            .is_some_and(|before| apply_report::same(before, &report));
                    if !known {
                        heard.insert(report.node, report);
                        break;
                    }
                }
                () = &mut bell => break,
            }
        }
    }
}

/// Reads, runs a pass, writes. Taken again at once where a user was quicker, a few times.
/// `busy` grows by the time for reading and deciding. What a written pass decided goes into the log.
async fn take_pass(
    catalog: &Catalog,
    controller: &mut Controller,
    log: &DecisionLog,
    heard: &[Arc<NodeReport>],
    at: (Timestamp, Instant),
    busy: &mut Duration,
) -> Result<ControllerPass, Failure> {
    for _ in 0..TRIES {
        let began = Instant::now();
        let sight = catalog.sight().await?;
        let (pass, decided) = run_logged(controller, sight, heard, at, log.is_kept());
        *busy += began.elapsed();
        let written = match pass.writes() {
            Some(writes) => catalog.record_turn(writes).await?,
            None => true,
        };
        if written {
            for turn in decided {
                log.tell(turn);
            }
            return Ok(pass);
        }
    }
    Err(crate::ServerFault::new(
        "a pass of the controller",
        format!("its rows were written by others {TRIES} times in a row"),
    )
    .into())
}

/// Runs a pass, and gives with it each turn of it that decided something, where a log is kept.
fn run_logged(
    controller: &mut Controller,
    sight: PassSnapshot,
    heard: &[Arc<NodeReport>],
    (now, zero): (Timestamp, Instant),
    is_kept: bool,
) -> (ControllerPass, Vec<DecidedTurn>) {
    let decided = RefCell::new(Vec::new());
    let decide = |world: &ClusterSnapshot, now: Timestamp| {
        let decisions = placement::decide(world, now);
        if is_kept && !decisions.is_empty() {
            decided.borrow_mut().push(DecidedTurn {
                world: world.clone(),
                now,
                decisions: decisions.clone(),
            });
        }
        decisions
    };
    let pass = controller.run_pass(sight, heard, now, zero.elapsed(), &decide);
    (pass, decided.into_inner())
}

/// Times a pass is taken again where its rows moved on. More: a flood of edits keeps the loop busy.
/// Fewer: it is left to the next wake-up, which the same flood brings at once.
const TRIES: usize = 4;
