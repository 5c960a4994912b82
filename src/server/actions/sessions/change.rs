//! Changing a session that exists. Each function changes the desired state or the spec in one row, under the
//! generation that the caller saw where they name one, and gives the session as it is afterwards.

use std::collections::BTreeMap;

use api::sessions::{Resize, SessionView};
use rules::names::SessionName;
use rules::permissions::{Permission, Reach, Subject};
use rules::placement::{self, Explanation, GrowthAnswer};
use rules::reasons;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{self, DesiredState, SessionEnvironment, SessionState};
use rules::units::Timestamp;
use rules::users::User;
use rules::workload::remarks::check_labels;
use rules::workload::validate::{RequestedResize, check_run_seconds};

use super::discreet;
use super::find::find;
use super::launch::{
    hold_disk, keep_as_launched, keep_within_image, keep_within_limits, lower_priority,
    put_priority, refuse_document_gone, refuse_own_full_queue, refuse_undeclared, renew_egress,
    usual_disk,
};
use super::view::NameCache;
use crate::access::Caller;
use crate::actions::budgets::{keep_session_within_budgets, seen};
use crate::actions::folders::{enforcement_for, refuse_gone};
use crate::catalog::policies::PolicySubjects;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Ends a session: TERM and ten seconds of grace, or at once with `force`. One that is over is given
/// back as it is.
pub async fn stop(
    server: &Server,
    caller: &Caller,
    id: &str,
    force: bool,
) -> Result<SessionView, Failure> {
    stop_saying(server, caller, id, force, "").await
}

/// Characters of why a session is stopped. Higher: the notice of its owner is long. Lower: two sentences do not fit.
const MAX_STOP_REASON: usize = 200;

/// The same with why, for its owner: it stands in the reason of the end. Empty says nothing.
///
/// Errors: `session.stop-reason`.
pub async fn stop_saying(
    server: &Server,
    caller: &Caller,
    id: &str,
    force: bool,
    why: &str,
) -> Result<SessionView, Failure> {
    let by = caller.name.clone();
    let why = why.trim().trim_end_matches('.').to_owned();
    if why.chars().count() > MAX_STOP_REASON || why.chars().any(session::hidden) {
        return Err(refusals::session_stop_reason(MAX_STOP_REASON)
            .at("/why")
            .into());
    }
    change(
        server,
        caller,
        id,
        None,
        None,
        "stop a session",
        move |rows, session| {
            let desired = if force {
                DesiredState::Kill
            } else {
                DesiredState::Stop
            };
            let because = match why.is_empty() {
                true => reasons::session_stopped_by(&by),
                false => reasons::session_stopped_saying(&by, &why),
            };
            let no_restart = std::mem::take(&mut session.restart);
            Ok(session.stop(desired, because, rows.now) || no_restart)
        },
    )
    .await
}

/// Starts an ended session once more, or ends a live one and starts it again; under the same id, the
/// next incarnation, with the order it has now. One without a disk, as older versions launched it, gets what a launch gets.
///
/// Errors: `session.name-taken` where its name went to another meanwhile, `image.not-found` where its
/// image is gone, `session.document-gone`, `course.term-over`; `folder.in-trash`, `folder.not-found` where a folder that it
/// mounts is not ready.
pub async fn restart(server: &Server, caller: &Caller, id: &str) -> Result<SessionView, Failure> {
    let (by, seen) = (caller.name.clone(), seen(caller));
    let has_mounts = server
        .catalog()
        .read_now("look what a session mounts", |view| {
            let found = find(view, caller, Permission::SessionsWrite, id)?;
            Ok(!found.mounts.is_empty())
        })?;
    let enforcement = enforcement_for(server, has_mounts).await?;
    let disk = usual_disk(server, caller).await?;
    change(
        server,
        caller,
        id,
        None,
        None,
        "restart a session",
        move |rows, session| {
            refuse_document_gone(session)?;
            let owner = rows.user(session.owner)?;
            let Some(owner) = owner.filter(|owner| owner.departs_at.is_none()) else {
                return Err(refusals::session_owner_left().into());
            };
            refuse_over_course(rows, &owner, session)?;
            if let SessionEnvironment::Image { id, reference } = &session.spec.environment
                && rows.image(*id)?.is_none()
            {
                return Err(refusals::image_removed(reference).into());
            }
            refuse_gone(rows, session, enforcement)?;
            match session.state() {
                SessionState::Ended => {
                    let subjects = subjects_of(session);
                    refuse_undeclared(rows, &subjects, &session.spec, None)?;
                    keep_as_launched(rows, &subjects, &mut session.spec)?;
                    hold_disk(&mut session.spec, disk);
                    lower_priority(rows, &subjects, &mut session.precedence)?;
                    renew_egress(rows, &subjects, session)?;
                    refuse_own_full_queue(rows, &subjects, 1, &session.spec)?;
                    start_within_budget(rows, &seen, session)?;
                    session.begin_again(rows.now);
                    Ok(true)
                }
                // It has not started yet, so it starts once as it is.
                SessionState::Pending => Ok(false),
                SessionState::Scheduled
                | SessionState::Preparing
                | SessionState::Running
                | SessionState::Stopping => {
                    keep_as_launched(rows, &subjects_of(session), &mut session.spec)?;
                    hold_disk(&mut session.spec, disk);
                    start_within_budget(rows, &seen, session)?;
                    let before = std::mem::replace(&mut session.restart, true);
                    let because = reasons::session_restarting(&by);
                    // Who restarts what an idle rule was about to end keeps its place.
                    if !before && session.is_idle_requeued() {
                        session.reason = Some(because.clone());
                    }
                    Ok(session.stop(DesiredState::Stop, because, rows.now) || !before)
                }
            }
        },
    )
    .await
}

/// Gives a session another name.
///
/// Errors: `session.name-taken`, `session.name-invalid`, `session.stale`.
pub async fn rename(
    server: &Server,
    caller: &Caller,
    id: &str,
    name: &str,
    if_match: Option<u64>,
) -> Result<SessionView, Failure> {
    let name = SessionName::parse(name.trim())?;
    let code = Some("session.renamed");
    change(
        server,
        caller,
        id,
        if_match,
        code,
        "rename a session",
        move |_, session| {
            if session.name == name {
                return Ok(false);
            }
            session.name = name;
            Ok(true)
        },
    )
    .await
}

/// Replaces all labels of a session.
///
/// Errors: `label.*`, `session.stale`, `session.document-gone`.
pub async fn set_labels(
    server: &Server,
    caller: &Caller,
    id: &str,
    labels: BTreeMap<String, String>,
    if_match: Option<u64>,
) -> Result<SessionView, Failure> {
    check_labels(&labels)?;
    let code = Some("session.labelled");
    change(
        server,
        caller,
        id,
        if_match,
        code,
        "label a session",
        move |_, session| {
            refuse_document_gone(session)?;
            if session.remarks.labels == labels {
                return Ok(false);
            }
            session.remarks.labels = labels;
            Ok(true)
        },
    )
    .await
}

/// Changes how much a session may use, while it runs or before. What is None stays.
///
/// A share of a device that shrinks stays kept for the session until its machine has confirmed the smaller
/// one; one that grows is kept at once.
///
/// Errors: `resize.no-room` with what its machine could still give; `resize.other-devices` for what would
/// need a restart; `resize.kept` for what those who wait could get, as backfill keeps it; `limit.held`, `gpu.over-quota`
/// beyond what sessions may hold together; what no machine could ever hold;
/// `session.not-running` while it is on its way to run or to end; `session.ended`.
pub async fn resize(
    server: &Server,
    caller: &Caller,
    id: &str,
    wanted: Resize,
    if_match: Option<u64>,
) -> Result<SessionView, Failure> {
    let (code, seen) = (Some("session.resized"), seen(caller));
    change(
        server,
        caller,
        id,
        if_match,
        code,
        "resize a session",
        move |rows, session| resize_row(rows, &seen, session, wanted),
    )
    .await
}

fn resize_row(
    rows: &Rows<'_>,
    seen: &Reach,
    session: &mut session::Session,
    wanted: Resize,
) -> Result<bool, Failure> {
    if session.state() == SessionState::Ended {
        return Err(ended().into());
    }
    // What can never be right is refused in every state of the session.
    let demand = RequestedResize::from(wanted).validate(session)?;
    // Between its place and its first process, and while it stops, its machine may hold it
    // to the old limits for a while; what it gave back would be given away too early.
    let settled = matches!(
        session.state(),
        SessionState::Pending | SessionState::Running
    );
    if !settled || session.desired != DesiredState::Run {
        return Err(refusals::session_not_resizable(session.state().word()).into());
    }
    if demand == session.spec.demand {
        return Ok(false);
    }
    let world = rows.world()?;
    let group = world.groups.that_bounds(session);
    placement::possible(&world, group, &demand, &session.spec.environment)?;
    let mut wanted = session::SessionSpec {
        demand,
        ..session.spec.clone()
    };
    let before = Some(&session.spec);
    keep_within_limits(rows, &subjects_of(session), &mut wanted, before)?;
    if let SessionEnvironment::Image { id, .. } = &wanted.environment
        && let Some(image) = rows.image(*id)?
    {
        keep_within_image(rows, &image, &wanted)?;
    }
    keep_to_budget(rows, seen, session, (&session.spec, &wanted), rows.now)?;
    if session.state().holds_resources()
        && let Some(node) = session.node().and_then(|id| world.node(id))
    {
        let room = placement::room_for(&world, session, node.id, rows.now);
        let (cpu, memory) = room.unwrap_or_default();
        // Less than it has may stand beside a reservation that begins soon.
        let had = &session.spec.demand;
        let (cpu, memory) = (cpu.max(had.cpu), memory.max(had.memory));
        if demand.cpu > cpu || demand.memory > memory {
            return Err(
                refusals::resize_no_room(&node.name, cpu.cores(), memory, cpu)
                    .at("/resources")
                    .into(),
            );
        }
        placement::within_limits(&world, session, &demand)?;
        let devices = placement::regrant(&world, session, &demand)?;
        let mut parts = devices.iter().zip(session.devices());
        let grows = demand.cpu > had.cpu
            || demand.memory > had.memory
            || parts.any(|(new, old)| new.share > old.share || new.memory > old.memory);
        if grows {
            let mut grown = session.clone();
            grown.spec.demand = demand;
            grown.regrant(devices.clone());
            let given = placement::growth(&world, session, &grown, rows.now);
            // Its time limit ends what it took from the first one in the queue: that limit stays, as for a start.
            session.backfilled |= keep_for_queue(&node.name, given, rows.now)?;
        }
        session.regrant(devices);
    }
    session.spec.demand = demand;
    Ok(true)
}

/// Refuses a growth that takes what is kept for those who wait. True where it is let through because the session is over
/// in time.
fn keep_for_queue(node: &str, given: GrowthAnswer, now: Timestamp) -> Result<bool, Refusal> {
    let refusal = match given {
        GrowthAnswer::Open => return Ok(false),
        GrowthAnswer::InTime => return Ok(true),
        GrowthAnswer::Owed => refusals::resize_kept_limit(),
        GrowthAnswer::Kept {
            cpu,
            memory,
            device,
            latest,
        } => {
            // Rounded up: it starts by then.
            let minutes = latest.map(|at| at.seconds_since(now).div_ceil(60).max(1));
            match (device, minutes) {
                (None, None) => refusals::resize_kept(node, cpu.cores(), memory, cpu),
                (None, Some(minutes)) => {
                    refusals::resize_kept_until(node, minutes, cpu.cores(), memory, cpu)
                }
                (Some(device), None) => refusals::resize_kept_device(device, node),
                (Some(device), Some(minutes)) => {
                    refusals::resize_kept_device_until(device, node, minutes)
                }
            }
        }
    };
    let of_device = matches!(
        given,
        GrowthAnswer::Kept {
            device: Some(_),
            ..
        }
    );
    Err(refusal.at(if of_device {
        "/resources/gpu"
    } else {
        "/resources"
    }))
}

/// Sets or removes how long a waiting session may run once it started.
///
/// Errors: `seconds.out-of-range`; `limit.needed`; `session.not-waiting`; `session.stale`.
pub async fn set_time_limit(
    server: &Server,
    caller: &Caller,
    id: &str,
    seconds: Option<u64>,
    if_match: Option<u64>,
) -> Result<SessionView, Failure> {
    check_run_seconds(seconds).map_err(|refusal| refusal.at("/max_runtime_seconds"))?;
    let (code, seen) = (Some("session.resized"), seen(caller));
    change(
        server,
        caller,
        id,
        if_match,
        code,
        "limit a session",
        move |rows, session| {
            if session.state() != SessionState::Pending {
                return Err(refusals::session_limit_settled(session.state().word()).into());
            }
            let before = session.spec.clone();
            session.spec.max_runtime_seconds = seconds;
            refuse_undeclared(rows, &subjects_of(session), &session.spec, None)?;
            keep_as_launched(rows, &subjects_of(session), &mut session.spec)?;
            keep_to_budget(rows, &seen, session, (&before, &session.spec), rows.now)?;
            Ok(before.max_runtime_seconds != session.spec.max_runtime_seconds)
        },
    )
    .await
}

/// Sets how urgent a waiting session is. It keeps the time since which it waits.
///
/// Errors: `priority.out-of-range`; `limit.each`, `priority.not-allowed` beyond what policies allow its owner;
/// `session.not-waiting`; `session.stale`.
pub async fn set_priority(
    server: &Server,
    caller: &Caller,
    id: &str,
    priority: u32,
    if_match: Option<u64>,
) -> Result<SessionView, Failure> {
    let code = Some("session.priority-set");
    change(
        server,
        caller,
        id,
        if_match,
        code,
        "set a priority",
        move |rows, session| {
            if session.state() != SessionState::Pending {
                return Err(refusals::session_priority_settled(session.state().word()).into());
            }
            let before = session.precedence;
            put_priority(rows, &subjects_of(session), session, priority)?;
            Ok(session.precedence != before)
        },
    )
    .await
}

/// What the scheduler would say of a waiting session if its request, its time limit and its priority were these. What is
/// None stays. Changes nothing.
///
/// Errors: those of `resize`, `set_time_limit` and `set_priority`.
pub async fn preview_change(
    server: &Server,
    caller: &Caller,
    id: &str,
    wanted: Resize,
    limit: Option<Option<u64>>,
    priority: Option<u32>,
) -> Result<Explanation, Failure> {
    if let Some(seconds) = limit {
        check_run_seconds(seconds).map_err(|refusal| refusal.at("/max_runtime_seconds"))?;
    }
    let (caller, id, now) = (caller.clone(), id.to_owned(), server.clock().now());
    server
        .catalog()
        .read("preview a change", move |view| {
            let mut row = find(view, &caller, Permission::SessionsWrite, &id)?;
            if row.state() != SessionState::Pending {
                return Err(refusals::session_not_waiting(row.state().word()).into());
            }
            let demand = RequestedResize::from(wanted).validate(&row)?;
            let mut world = view.world()?;
            let group = world.groups.of_session(row.id);
            placement::possible(&world, group, &demand, &row.spec.environment)?;
            let before = row.spec.clone();
            row.spec.demand = demand;
            if let Some(seconds) = limit {
                row.spec.max_runtime_seconds = seconds;
                refuse_undeclared(view, &subjects_of(&row), &row.spec, None)?;
            }
            let subjects = subjects_of(&row);
            match limit {
                Some(_) => keep_as_launched(view, &subjects, &mut row.spec)?,
                None => keep_within_limits(view, &subjects, &mut row.spec, Some(&before))?,
            }
            keep_to_budget(view, &seen(&caller), &row, (&before, &row.spec), now)?;
            if let Some(priority) = priority {
                put_priority(view, &subjects_of(&row), &mut row, priority)?;
            }
            if let Some(waiting) = world.sessions.iter_mut().find(|s| s.id == row.id) {
                *waiting = row.clone();
            }
            let told = placement::explain_session(&world, &row, now);
            Ok(discreet(told, &world, &caller))
        })
        .await
}

/// Puts a waiting session on hold: it keeps all it asked for, takes no number in the queue, reserves nothing of budgets and
/// does not start.
///
/// Errors: `session.not-waiting`.
pub async fn hold(server: &Server, caller: &Caller, id: &str) -> Result<SessionView, Failure> {
    let by = caller.name.clone();
    let code = Some(rules::codes::SESSION_HELD);
    change(
        server,
        caller,
        id,
        None,
        code,
        "hold a session",
        move |rows, session| {
            if session.state() != SessionState::Pending {
                return Err(refusals::session_not_waiting(session.state().word()).into());
            }
            Ok(session.hold(by, rows.now))
        },
    )
    .await
}

/// Queues a session that is on hold, behind all who wait now. One that is not held stays as it is.
///
/// Errors: `budget.spent`, `budget.limit-needed`, `budget.too-long`: on hold it reserved nothing.
pub async fn release(server: &Server, caller: &Caller, id: &str) -> Result<SessionView, Failure> {
    let (code, seen) = (Some("session.released"), seen(caller));
    change(
        server,
        caller,
        id,
        None,
        code,
        "release a session",
        move |rows, session| {
            if session.held_by.is_some() {
                keep_session_within_budgets(rows, &seen, session, rows.now)?;
            }
            Ok(session.release(rows.now))
        },
    )
    .await
}

/// Freezes a running session: it keeps its memory and its place, and uses no processor.
pub async fn pause(server: &Server, caller: &Caller, id: &str) -> Result<SessionView, Failure> {
    set_paused(server, caller, id, true).await
}

/// Lets a frozen session go on.
pub async fn resume(server: &Server, caller: &Caller, id: &str) -> Result<SessionView, Failure> {
    set_paused(server, caller, id, false).await
}

async fn set_paused(
    server: &Server,
    caller: &Caller,
    id: &str,
    paused: bool,
) -> Result<SessionView, Failure> {
    let (code, what) = if paused {
        ("session.paused", "pause a session")
    } else {
        ("session.resumed", "resume a session")
    };
    change(
        server,
        caller,
        id,
        None,
        Some(code),
        what,
        move |_, session| {
            if session.state() != SessionState::Running || session.desired != DesiredState::Run {
                return Err(refusals::session_not_running(session.state().word()).into());
            }
            let before = std::mem::replace(&mut session.paused, paused);
            Ok(before != paused)
        },
    )
    .await
}

/// Forgets an ended session; its history stays in the journal.
///
/// Errors: `session.live`, `session.depended-on`.
pub async fn delete(server: &Server, caller: &Caller, id: &str) -> Result<SessionView, Failure> {
    let (caller, id) = (caller.clone(), id.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "delete a session", move |rows| {
            let row = find(rows, &caller, Permission::SessionsWrite, &id)?;
            if row.state() != SessionState::Ended {
                return Err(refusals::session_live(&row.name).into());
            }
            let waits = rows
                .live_sessions()?
                .into_vec()
                .into_iter()
                .find(|live| live.spec.depends_on.contains(&row.id));
            if let Some(waits) = waits {
                return Err(refusals::session_depended_on(&waits.name).into());
            }
            let shown = NameCache::new(rows)?.show(&row)?;
            rows.delete_session(row.id, caller.name.as_str())?;
            Ok(shown)
        })
        .await
}

/// Refuses a change that asks for more GPUs or a longer run than the hard budgets of its project and its owner have left.
/// What asks for less of both is never refused.
fn keep_to_budget(
    view: &ReadTransaction<'_>,
    seen: &Reach,
    session: &session::Session,
    (before, after): (&session::SessionSpec, &session::SessionSpec),
    now: Timestamp,
) -> Result<(), Failure> {
    let seconds = |spec: &session::SessionSpec| spec.limit().map_or(u64::MAX, |(limit, _)| limit);
    let (old, new) = (&before.demand, &after.demand);
    if new.gpu <= old.gpu && new.mig == old.mig && seconds(after) <= seconds(before) {
        return Ok(());
    }
    let changed = session::Session {
        spec: after.clone(),
        ..session.clone()
    };
    keep_session_within_budgets(view, seen, &changed, now)
}

/// The same for one that starts once more: its whole run is asked for, and the stop of the present one.
fn start_within_budget(
    rows: &Rows<'_>,
    seen: &Reach,
    session: &session::Session,
) -> Result<(), Failure> {
    // What it has held up to now is used.
    rows.ledger_time()?;
    let again = session::Session {
        restart: true,
        ..session.clone()
    };
    keep_session_within_budgets(rows, seen, &again, rows.now)
}

/// Gives a session with a time limit so many seconds more, also while it runs.
///
/// Errors: `course.without-limit`; `course.backfilled` for one that got its place, or more there, because it would end in
/// time; `limit.each`, those of budgets.
pub(crate) fn extend_row(
    rows: &Rows<'_>,
    seen: &Reach,
    session: &mut session::Session,
    seconds: u64,
) -> Result<bool, Failure> {
    let Some(limit) = session.spec.max_runtime_seconds else {
        return Err(refusals::course_without_limit().into());
    };
    if session.backfilled && session.state().holds_resources() {
        return Err(refusals::course_backfilled().into());
    }
    let before = session.spec.clone();
    let longer = limit.saturating_add(seconds).min(session::MAX_RUN_SECONDS);
    session.spec.max_runtime_seconds = Some(longer);
    keep_as_launched(rows, &subjects_of(session), &mut session.spec)?;
    // What runs keeps the disk that it began with.
    session.spec.demand.disk = before.demand.disk;
    keep_to_budget(rows, seen, session, (&before, &session.spec), rows.now)?;
    Ok(session.spec.max_runtime_seconds != before.max_runtime_seconds)
}

/// Refuses to start a session again whose owner launches nothing in its project, since the course there is over.
fn refuse_over_course(
    rows: &Rows<'_>,
    owner: &User,
    session: &session::Session,
) -> Result<(), Failure> {
    let subject = Subject {
        user: owner.id,
        grants: owner.grants_at(rows.now),
        domain: owner.domain,
        scopes: None,
    };
    let place = (session.domain, session.project);
    rows.course_for_launch(&subject, place, rows.now)?;
    Ok(())
}

/// The levels whose policies bound a session.
fn subjects_of(session: &session::Session) -> PolicySubjects {
    PolicySubjects {
        domain: session.domain,
        project: session.project,
        user: session.owner,
    }
}

fn ended() -> Refusal {
    refusals::session_ended()
}

/// Finds a session, checks the caller and the generation they saw, and writes what `edit` made of it.
async fn change(
    server: &Server,
    caller: &Caller,
    id: &str,
    if_match: Option<u64>,
    code: Option<&'static str>,
    what: &'static str,
    edit: impl FnOnce(&Rows<'_>, &mut session::Session) -> Result<bool, Failure> + Send + 'static,
) -> Result<SessionView, Failure> {
    let (caller, id) = (caller.clone(), id.to_owned());
    server
        .catalog()
        .write(Lane::Requests, what, move |rows| {
            let seen = find(rows, &caller, Permission::SessionsWrite, &id)?;
            if if_match.is_some_and(|generation| generation != seen.generation) {
                return Err(refusals::session_stale(&seen.name, seen.generation).into());
            }
            let row = rows.edit_session(seen.id, caller.name.as_str(), code, |session| {
                edit(rows, session)
            })?;
            NameCache::new(rows)?.show(&row)
        })
        .await
}
