//! What a user may do with courses: one who may change a project gives it a term, and starts, stops, extends and tells
//! all of its members at once, each act in one commit. Members see courses that are no drafts. What ends with the term,
//! the controller stops; nothing here waits for a clock.

use std::collections::{BTreeMap, BTreeSet};

use api::courses::{
    AttendanceView, CourseActView, CourseExtensionBody, CourseHandOutBody, CourseMemberView,
    CourseMessageBody, CoursePatchBody, CourseSlotBody, CourseStartBody, CourseStopBody,
    CourseView, MemberStanding, NewCourseBody, RefusedMemberView,
};
use api::folders::{FolderShareView, NewFolderShareBody};
use api::reservations::{NewReservationBody, ReservationView};
use api::sessions::{LaunchRequest, Owner};
use jiff::tz::TimeZone;
use rules::course::{
    Course, CourseState, MAX_EXTENSION_MINUTES, course_message, course_rules, course_title,
    pause_messages, term,
};
use rules::folder_rights::FolderRight;
use rules::grants::GrantRole;
use rules::names::{CourseId, ReservationId, ResourceGroupId, SessionId, TenantName, UserId};
use rules::permissions::{Permission, Subject, may, reach};
use rules::placement::{self, Decision, QueueCauses};
use rules::reason::Reason;
use rules::reasons;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{DesiredState, Outcome, Session, SessionState};
use rules::tenancy::TenantState;
use rules::timetable::slot_times;
use rules::units::Timestamp;
use rules::workload::validate::ImageChoice;
use rules::world::ClusterSnapshot;

use super::budgets;
use super::folders::sharing;
use super::notices::MAX_SHOWN;
use super::reservations::{self, Booking, booked};
use super::sessions::{LaunchForMembers, cause_word, extend_row, usual_disk};
use super::tenancy::find_project;
use super::{IdempotencyKey, Once, allowed, once, own_key, somewhere};
use crate::access::Caller;
use crate::catalog::courses::CourseRecord;
use crate::catalog::tenancy::MemberRow;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::snapshot::Snapshot;
use crate::{Failure, Server};

/// Courses of one project, archived ones included. Higher: lists of a site grow with each term. Lower: a project of many
/// years removes its first courses.
const MAX_COURSES: usize = 50;
/// Members for whom one request starts sessions, and sessions that it stops or extends: one commit each. Higher: who
/// clicks meanwhile waits for it. Lower: a large course takes several requests.
const MAX_MEMBERS_AT_ONCE: usize = 500;

/// Letters of the name of a course that the names of its reservations begin with. Higher: with day and time they are no names.
const MAX_SLOT_PREFIX: usize = 40;

/// Messages that a member is sent within a day by the courses of one project. Higher: they hide from the member what else
/// happened, of which a page shows the newest. Lower: a class of a day is not told each of its steps.
const MAX_MESSAGES_OF_DAY: u64 = 20;
const DAY_MILLIS: i64 = 86_400_000;

/// Visits of live sessions that starts and extensions of one act take: each looks at all of them where a policy of the
/// project or a hard budget holds. Higher: users who click meanwhile wait for seconds on a site with a long queue. Lower: a
/// class there takes more requests.
const MAX_VISITS: usize = 2_000_000;

/// Members for whom one act starts or extends sessions where so many are live.
fn at_once(live: usize) -> usize {
    (MAX_VISITS / live.max(1)).clamp(1, MAX_MEMBERS_AT_ONCE)
}

/// A course, and what the caller may do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCourse {
    pub course: CourseView,
    /// The caller changes it, and acts on its members.
    pub teaches: bool,
    /// The caller may launch in its project, and it is on.
    pub launches: bool,
}

/// The courses of the caller's projects; drafts only where they teach. Those that are not archived come first, the latest
/// term first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<CourseView>, Failure> {
    let all = listed(server, caller).await?.into_iter();
    Ok(all.map(|one| one.course).collect())
}

/// The same, each with what the caller may do.
pub async fn listed(server: &Server, caller: &Caller) -> Result<Vec<ListedCourse>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    let now = server.clock().now();
    server.catalog().read_now("list courses", |view| {
        let records = seen(view, caller)?.into_iter();
        Ok(records.map(|one| with_rights(caller, one, now)).collect())
    })
}

/// One of `list`, by id or name. Errors: `course.not-found`, `course.ambiguous`.
pub async fn get(server: &Server, caller: &Caller, which: &str) -> Result<CourseView, Failure> {
    Ok(get_listed(server, caller, which).await?.course)
}

/// One of `listed`. Errors: `course.not-found`, `course.ambiguous`.
pub async fn get_listed(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ListedCourse, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    let now = server.clock().now();
    server.catalog().read_now("show a course", |view| {
        Ok(with_rights(caller, find(view, caller, which)?, now))
    })
}

/// The course of a project that a launch form names, where it is on; None where there is none, or no such project.
pub async fn for_launch(
    server: &Server,
    caller: &Caller,
    project: &str,
) -> Result<Option<CourseView>, Failure> {
    let project = project.trim();
    if project.is_empty() {
        return Ok(None);
    }
    allowed(caller, Permission::ProjectsRead)?;
    server
        .catalog()
        .read_now("look for the course of a launch", |view| {
            let found = find_project(view, &caller.subject, Permission::ProjectsRead, project);
            let project = match found {
                Ok(project) => project,
                Err(Failure::Refusal(_)) => return Ok(None),
                Err(fault) => return Err(fault),
            };
            let record = view.course_of(project.id)?;
            Ok(record.filter(|one| one.course.state.is_on()).map(show))
        })
}

/// True for those who may make courses somewhere.
pub fn may_write(caller: &Caller) -> bool {
    somewhere(caller, Permission::ProjectsWrite).is_ok()
}

/// True for those who may make courses somewhere, or see one. False where that cannot be read: a menu is no reason to
/// refuse a page.
pub fn has_any(server: &Server, caller: &Caller) -> bool {
    if may_write(caller) {
        return true;
    }
    if allowed(caller, Permission::ProjectsRead).is_err() {
        return false;
    }
    let found = server.catalog().read_now("look for courses", |view| {
        Ok(!seen(view, caller)?.is_empty())
    });
    found.unwrap_or_default()
}

/// Makes a course of a project, as a draft.
///
/// Errors: `course.name-invalid`, `course.name-taken`, `course.of-project` where the project has one that is not archived,
/// `course.too-many`, `course.text-invalid`, those of the term; `image.reference-invalid`, `seconds.out-of-range`,
/// `time-zone.unknown`; `project.not-found`, `project.archived`, `role.permission-missing`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewCourseBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<CourseView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let key = own_key(caller, key)?;
    let name = name_of(&asked.name)?;
    let title = course_title(asked.title.as_deref().unwrap_or_default())?;
    let rules = course_rules(asked.rules.as_deref().unwrap_or_default())?;
    let image = image_of(asked.image.as_deref().unwrap_or_default())?;
    let preset = preset_of(asked.preset.as_deref().unwrap_or_default())?;
    let zone = zone_of(&caller.time_zone, asked.time_zone.as_deref())?;
    let (from, to) = term(&asked.from, &asked.to, &zone)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "make a course", move |rows| {
            once(rows, key.as_ref(), || {
                let subject = &caller.subject;
                let found = find_project(rows, subject, Permission::ProjectsWrite, &asked.project);
                let project = found.map_err(|failure| failure.at("/project"))?;
                if project.state == TenantState::Archived {
                    let refusal = refusals::project_archived(&project.name);
                    return Err(refusal.at("/project").into());
                }
                let course = Course {
                    id: CourseId::make(rows.now, base::observe::random()),
                    domain: project.domain,
                    project: project.id,
                    name,
                    title,
                    state: CourseState::Draft,
                    from,
                    to,
                    time_zone: name_of_zone(&zone),
                    image,
                    preset,
                    max_runtime_seconds: asked.max_runtime_seconds,
                    rules,
                    warned_at: None,
                    closed_at: None,
                    stopped_at: None,
                    generation: 1,
                };
                course.check(rows.now)?;
                if rows.count_courses(project.id)? >= MAX_COURSES {
                    return Err(refusals::course_too_many(MAX_COURSES).into());
                }
                refuse_taken(rows, &course)?;
                refuse_second(rows, &course)?;
                rows.insert_course(&course)?;
                let told = told(&course);
                rows.note_course(caller.name.as_str(), &course, "course.added", "", &told)?;
                again(rows, course.id)
            })
        })
        .await
}

/// Changes a course, and takes it to another state: `open` publishes a draft and opens a closed one again, `closed` ends
/// the term now, `archived` keeps it for the records.
///
/// Errors: as `create`; `course.not-found`, `course.ambiguous`, `course.stale`, `course.state`, `course.over`,
/// `course.stopping`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: CoursePatchBody,
    if_match: Option<u64>,
) -> Result<CourseView, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let name = patch.name.as_deref().map(name_of).transpose()?;
    let title = patch.title.as_deref().map(course_title).transpose()?;
    let rules = patch.rules.as_deref().map(course_rules).transpose()?;
    let image = patch.image.as_deref().map(image_of).transpose()?;
    let preset = patch.preset.as_deref().map(preset_of).transpose()?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "change a course", move |rows| {
            let before = find_to_teach(rows, &caller, &which)?.course;
            if if_match.is_some_and(|seen| seen != before.generation) {
                return Err(refusals::course_stale(&before.name, before.generation).into());
            }
            let mut after = Course {
                name: name.unwrap_or_else(|| before.name.clone()),
                title: title.unwrap_or_else(|| before.title.clone()),
                rules: rules.unwrap_or_else(|| before.rules.clone()),
                image: image.unwrap_or_else(|| before.image.clone()),
                preset: preset.unwrap_or_else(|| before.preset.clone()),
                max_runtime_seconds: patch
                    .max_runtime_seconds
                    .unwrap_or(before.max_runtime_seconds),
                ..before.clone()
            };
            let zone = zone_of(&before.time_zone, patch.time_zone.as_deref())?;
            if patch.from.is_some() || patch.to.is_some() {
                let from = patch.from.unwrap_or_else(|| before.from.to_string());
                let to = patch.to.unwrap_or_else(|| before.to.to_string());
                after.set_term(term(&from, &to, &zone)?, rows.now);
            }
            after.time_zone = name_of_zone(&zone);
            if let Some(state) = patch.state {
                after.ask_state(state, rows.now)?;
            }
            if after == before {
                return again(rows, before.id);
            }
            after.check(rows.now)?;
            refuse_taken(rows, &after)?;
            rows.put_course(&after)?;
            // A state that follows the term is no act of its own.
            let is_asked = patch.state.is_some() && after.state != before.state;
            let (code, was, is) = match is_asked {
                true => (
                    state_code(after.state),
                    before.state.word().to_owned(),
                    after.state.word().to_owned(),
                ),
                false => ("course.changed", told(&before), told(&after)),
            };
            rows.note_course(caller.name.as_str(), &after, code, &was, &is)?;
            again(rows, before.id)
        })
        .await
}

/// Removes a draft or an archived course; its sessions stay as they are.
///
/// Errors: `course.not-found`, `course.ambiguous`, `course.kept`, `role.permission-missing`.
pub async fn remove(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "remove a course", move |rows| {
            let course = find_to_teach(rows, &caller, &which)?.course;
            if !matches!(course.state, CourseState::Draft | CourseState::Archived) {
                let refusal = refusals::course_kept(&course.name, course.state.word());
                return Err(refusal.into());
            }
            rows.cancel_slots(course.id)?;
            rows.forget_course(course.id)?;
            let told = told(&course);
            rows.note_course(caller.name.as_str(), &course, "course.removed", &told, "")
        })
        .await
}

/// Books a weekly time of a course for its project: from the first such day that is left of the term, until the term ends.
/// What is left of it is cancelled when the course ends. For a lead what is beyond the quota of the project is a request.
///
/// Errors: `course.not-found`, `course.ambiguous`, `course.not-on` for one that ended, `course.slot-day`, `course.slot-time`,
/// `course.slot-outside`; those of `reservations::book`.
pub async fn book_slot(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: CourseSlotBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<ReservationView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let key = own_key(caller, key)?;
    let now = server.clock().now();
    let course = server.catalog().read_now("look at a course", |view| {
        Ok(find_to_teach(view, caller, which)?.course)
    })?;
    if matches!(course.state, CourseState::Closed | CourseState::Archived) {
        let refusal = refusals::course_not_on(&course.name, course.state.word());
        return Err(refusal.into());
    }
    let zone = zone_of(&course.time_zone, None)?;
    let term = (course.from, course.to);
    let slot = slot_times(&asked.day, &asked.from, &asked.to, term, &zone, now)?;
    let begins: String = slot.from.chars().rev().take(5).collect();
    let begins: String = begins.chars().rev().filter(|c| *c != ':').collect();
    // As long as a name may be.
    let of: String = course.name.as_str().chars().take(MAX_SLOT_PREFIX).collect();
    let day = asked.day.trim().to_lowercase();
    let body = NewReservationBody {
        name: format!("{of}-{day}-{begins}"),
        project: Some(course.project.to_string()),
        resources: asked.resources,
        from: slot.from,
        to: slot.to,
        repeats: Some(slot.repeats),
        time_zone: Some(course.time_zone.clone()),
        skip_holidays: asked.skip_holidays,
        ..NewReservationBody::default()
    };
    let booking = Booking::read(server, caller, body)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "book a time of a course", move |rows| {
            once(rows, key.as_ref(), || {
                let view = booked(rows, &caller, booking)?;
                rows.put_course_slot(course.id, ReservationId(view.id))?;
                Ok(view)
            })
        })
        .await
}

/// Hands a folder out: all members of the project of a course read it until the term ends, and mount it read-only. What a
/// project owns its members have already.
///
/// Errors: `course.not-found`, `course.ambiguous`, `course.not-on`; those of sharing a folder.
pub async fn hand_out(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: CourseHandOutBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<FolderShareView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let now = server.clock().now();
    let record = server.catalog().read_now("look at a course", |view| {
        let record = find_to_teach(view, caller, which)?;
        refuse_draft(&record.course)?;
        refuse_off(&record.course, now)?;
        Ok(record)
    })?;
    // A project of the same name in the domain of the caller, whose the folder is, is another one.
    if record.course.domain != caller.subject.domain {
        return Err(refusals::folder_share_unknown().at("/folder").into());
    }
    let share = NewFolderShareBody {
        user: None,
        project: Some(record.project_name),
        right: Some(FolderRight::Ro),
        until: Some(record.course.to),
    };
    sharing::create(server, caller, &asked.folder, share, key).await
}

/// The reservations of the timetable of a course, as long as they are remembered; for who sees the course.
///
/// Errors: `course.not-found`, `course.ambiguous`.
pub async fn timetable(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Vec<ReservationView>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("list times of a course", |view| {
        let course = find(view, caller, which)?.course;
        let slots = view.course_slots(course.id)?.into_iter();
        slots.map(|id| reservations::again(view, id)).collect()
    })
}

/// The members of a course but for its teachers, by name, each with how they stand. For its teachers.
///
/// O(members + live sessions), and a walk of the queue at most once a second for all readers.
///
/// Errors: `course.not-found`, `course.ambiguous`, `role.permission-missing`.
pub async fn members(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Vec<CourseMemberView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which, now) = (caller.clone(), which.to_owned(), server.clock().now());
    let snapshot = server.snapshot().await?;
    server
        .catalog()
        .read("list members of a course", move |view| {
            let record = find_for_sessions(view, &caller, Permission::SessionsRead, &which)?;
            let course = record.course;
            standings(view, &snapshot, &course, now)
        })
        .await
}

/// What each member but the teachers did in the term, by name; sessions that the server forgot are not counted. For its
/// teachers.
///
/// Errors: `course.not-found`, `course.ambiguous`, `role.permission-missing`.
pub async fn attendance(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Vec<AttendanceView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which, now) = (caller.clone(), which.to_owned(), server.clock().now());
    server
        .catalog()
        .read("list attendance", move |view| {
            let record = find_for_sessions(view, &caller, Permission::SessionsRead, &which)?;
            let course = record.course;
            let until = course.closed_at.unwrap_or(course.to).min(now);
            let members = students(view, &course)?.into_iter();
            members
                .map(|member| {
                    let span = (course.from, until.max(course.from));
                    let row = view.attendance_of(member.user, course.project, span)?;
                    Ok(AttendanceView {
                        user: owner_of(member),
                        sessions: row.sessions,
                        first: row.first,
                        last: row.last,
                        seconds: row.seconds,
                    })
                })
                .collect()
        })
        .await
}

/// Starts a session for each member who has none, all in one commit: it is the member's own, and the audit log names the
/// teacher. Where one commit does not take all, the next start goes on behind the last one. A member for whom it is
/// refused hinders no other. With `dry_run` it says how many would start and wait.
///
/// Errors: those of `find_to_teach`, `course.not-on`, `course.member-unknown`, `course.too-many-at-once`; those of a
/// launch that hold for every member.
pub async fn start(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: CourseStartBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<CourseActView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let key = own_key(caller, key)?;
    let now = server.clock().now();
    let (course, whom) = server.catalog().read_now("find a course", |view| {
        let record = find_for_sessions(view, caller, Permission::SessionsWrite, which)?;
        let course = record.course;
        refuse_off(&course, now)?;
        let whom = chosen(view, &course, asked.users.as_deref())?;
        Ok((course, in_turn(whom, record.started_to)))
    })?;
    let disk = usual_disk(server, caller).await?;
    let request = request_of(&course);
    let launch = LaunchForMembers::understand(server, caller, request, &course, disk)?;
    let most = at_once(server.catalog().live_lately());
    let (id, version) = (course.id, course.generation);
    // To decide who gets a place costs as much as a pass: it is done here, for users wait behind what the writer does.
    let snapshot = server.snapshot().await?;
    let ((value, placed), launch) = server
        .catalog()
        .read("look ahead at a start", move |_| {
            let ahead = outlook(&snapshot, &launch, &course, (&whom, most), now)?;
            Ok((ahead, launch))
        })
        .await?;
    if asked.dry_run {
        return Ok(Once {
            value,
            replayed: false,
        });
    }
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "start sessions of a course", move |rows| {
            once(rows, key.as_ref(), || {
                let record = find_to_teach(rows, &caller, &id.to_string())?;
                let course = record.course;
                refuse_off(&course, rows.now)?;
                if course.generation != version {
                    return Err(refusals::course_stale(&course.name, course.generation).into());
                }
                let whom = chosen(rows, &course, asked.users.as_deref())?;
                let whom = in_turn(whom, record.started_to);
                start_all(rows, &caller, &course, &launch, (&whom, most), &placed)
            })
        })
        .await
}

/// Stops the sessions of members in the course, all in one commit; those beyond 500 are counted in `left`.
///
/// Errors: those of `find_to_teach`, `course.draft`, `course.member-unknown`, `course.too-many-at-once`.
pub async fn stop(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: CourseStopBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<CourseActView>, Failure> {
    let by = caller.name.clone();
    let act = SessionsAct {
        what: "stop sessions of a course",
        code: "course.stopped",
        of_session: None,
        goes_on: true,
    };
    act_on_sessions(
        (server, caller),
        which,
        act,
        asked.users,
        key,
        |course, _| refuse_draft(course),
        move |rows, session| {
            let because = reasons::session_stopped_by(&by);
            let no_restart = std::mem::take(&mut session.restart);
            Ok(session.stop(DesiredState::Stop, because, rows.now) || no_restart)
        },
    )
    .await
}

/// Gives sessions of members that have a time limit so many minutes more, within what policies and budgets allow, all in
/// one commit.
///
/// Errors: those of `stop`; `course.not-on`, `course.minutes`; `course.too-many-at-once` also for more sessions than
/// `at_once` says.
pub async fn extend(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: CourseExtensionBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<CourseActView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    if !(1..=MAX_EXTENSION_MINUTES).contains(&asked.minutes) {
        let refusal = refusals::course_minutes(MAX_EXTENSION_MINUTES);
        return Err(refusal.at("/minutes").into());
    }
    let (seconds, seen) = (asked.minutes * 60, budgets::seen(caller));
    let act = SessionsAct {
        what: "extend sessions of a course",
        code: "course.extended",
        of_session: Some("session.resized"),
        goes_on: false,
    };
    act_on_sessions(
        (server, caller),
        which,
        act,
        asked.users,
        key,
        refuse_off,
        move |rows, session| extend_row(rows, &seen, session, seconds),
    )
    .await
}

/// Tells members something: they read it among their notices.
///
/// Errors: those of `stop`, also for more than 500 members; `course.message-empty`, `course.text-invalid`;
/// `course.message-too-soon` within a minute after the last one, `course.messages-many` where one of them was sent many
/// within a day.
pub async fn message(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: CourseMessageBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<CourseActView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let key = own_key(caller, key)?;
    let text = course_message(&asked.text)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "tell members of a course", move |rows| {
            once(rows, key.as_ref(), || {
                let record = find_to_teach(rows, &caller, &which)?;
                let course = record.course;
                refuse_draft(&course)?;
                pause_messages(record.told_at, rows.now)?;
                let whom = chosen(rows, &course, asked.users.as_deref())?;
                refuse_more(whom.len(), MAX_MEMBERS_AT_ONCE)?;
                let mut act = CourseActView::default();
                let day = Timestamp::from_millis(rows.now.as_millis() - DAY_MILLIS);
                for member in whom {
                    let looked = (day, MAX_SHOWN);
                    let sent = rows.messages_since(member.user, course.project, looked)?;
                    if sent >= MAX_MESSAGES_OF_DAY {
                        let limit = MAX_MESSAGES_OF_DAY;
                        let refusal = refusals::course_messages_many(&member.name, limit);
                        return Err(refusal.at("/text").into());
                    }
                    rows.tell_member(caller.name.as_str(), &course, member.user, &text)?;
                    act.done += 1;
                }
                rows.mark_told(course.id)?;
                let actor = caller.name.as_str();
                let told = act.done.to_string();
                rows.note_told(actor, &course, &told, &text)?;
                Ok(act)
            })
        })
        .await
}

/// What an act on sessions of members is called.
#[derive(Debug, Clone, Copy)]
struct SessionsAct {
    what: &'static str,
    /// Of the act as a whole.
    code: &'static str,
    /// Of each session; None: by its states.
    of_session: Option<&'static str>,
    /// Repeated, it goes on with the sessions that it left.
    goes_on: bool,
}

/// Changes the sessions of members in one commit, each as `edit` does it; one for which it is refused hinders no other.
async fn act_on_sessions(
    (server, caller): (&Server, &Caller),
    which: &str,
    act_named: SessionsAct,
    users: Option<Vec<String>>,
    key: Option<IdempotencyKey>,
    check: impl FnOnce(&Course, Timestamp) -> Result<(), Refusal> + Send + 'static,
    edit: impl Fn(&Rows<'_>, &mut Session) -> Result<bool, Failure> + Send + 'static,
) -> Result<Once<CourseActView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let key = own_key(caller, key)?;
    let most = at_once(server.catalog().live_lately());
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, act_named.what, move |rows| {
            once(rows, key.as_ref(), || {
                let record = find_for_sessions(rows, &caller, Permission::SessionsWrite, &which)?;
                let course = record.course;
                check(&course, rows.now)?;
                let whom = chosen(rows, &course, users.as_deref())?;
                let names: BTreeMap<UserId, String> = whom
                    .iter()
                    .map(|member| (member.user, member.name.to_string()))
                    .collect();
                let live = rows.live_of_project(course.project)?.into_iter();
                let live: Vec<(SessionId, &str)> = live
                    .filter_map(|(id, owner)| Some((id, names.get(&owner)?.as_str())))
                    .collect();
                if !act_named.goes_on {
                    refuse_more(live.len(), most)?;
                }
                let mut act = CourseActView::default();
                for (at, (id, user)) in live.into_iter().enumerate() {
                    if at >= MAX_MEMBERS_AT_ONCE {
                        act.left += 1;
                        continue;
                    }
                    let edited = change_one(rows, &caller, id, act_named.of_session, &edit);
                    match edited {
                        Ok(changed) => act.done += u64::from(changed),
                        Err(failure) => refuse_one(&mut act, user, failure)?,
                    }
                }
                let (actor, done) = (caller.name.as_str(), act.done.to_string());
                rows.note_course(actor, &course, act_named.code, "", &done)?;
                Ok(act)
            })
        })
        .await
}

/// Changes one session, and says whether anything changed.
fn change_one(
    rows: &Rows<'_>,
    caller: &Caller,
    id: SessionId,
    code: Option<&str>,
    edit: impl Fn(&Rows<'_>, &mut Session) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let mut changed = false;
    rows.edit_session(id, caller.name.as_str(), code, |session| {
        changed = edit(rows, session)?;
        Ok(changed)
    })?;
    Ok(changed)
}

/// Keeps a refusal of one member. Errors: faults.
fn refuse_one(act: &mut CourseActView, user: &str, failure: Failure) -> Result<(), Failure> {
    match failure {
        Failure::Refusal(refusal) => {
            act.refused.push(RefusedMemberView {
                user: user.to_owned(),
                why: Reason {
                    code: refusal.code,
                    text: refusal.text,
                    params: refusal.values,
                },
            });
            Ok(())
        }
        fault @ Failure::Fault(_) => Err(fault),
    }
}

/// Launches for each of them who has no live session; those beyond what one commit takes are left. Who is not among those
/// that were `placed` in a look ahead is said to wait.
fn start_all(
    rows: &Rows<'_>,
    caller: &Caller,
    course: &Course,
    launch: &LaunchForMembers,
    (whom, most): (&[MemberRow], usize),
    placed: &BTreeSet<UserId>,
) -> Result<CourseActView, Failure> {
    let project = rows.project(course.project)?;
    if let Some(project) = project.filter(|one| one.state == TenantState::Archived) {
        return Err(refusals::project_archived(&project.name).into());
    }
    let live = rows.live_of_project(course.project)?.into_iter();
    let busy: BTreeSet<UserId> = live.map(|(_, owner)| owner).collect();
    let (actor, seen) = (caller.name.as_str(), budgets::seen(caller));
    let plan = rows.nodes_by_group()?;
    let mut act = CourseActView::default();
    let mut started = BTreeSet::new();
    let mut last = None;
    for (at, member) in whom
        .iter()
        .filter(|one| !busy.contains(&one.user))
        .enumerate()
    {
        if at >= most {
            act.left += 1;
            continue;
        }
        last = Some(member.user);
        let launched = owner_subject(rows, member)
            .and_then(|owner| launch.launch(rows, &owner, &plan, (actor, &seen)));
        match launched {
            Ok(session) => started.extend(session.map(|_| member.user)),
            Err(failure) => refuse_one(&mut act, member.name.as_str(), failure)?,
        }
    }
    act.done = started.len() as u64;
    act.skipped = whom.iter().filter(|one| busy.contains(&one.user)).count() as u64;
    act.waiting = started.difference(placed).count() as u64;
    if let Some(last) = last.filter(|_| act.left > 0) {
        rows.mark_started(course.id, last)?;
    }
    let done = act.done.to_string();
    rows.note_course(actor, course, "course.started", "", &done)?;
    Ok(act)
}

/// A member as the owner of a session. Errors: `launch.owner-unknown` for one who is suspended or leaves.
fn owner_subject(rows: &Rows<'_>, member: &MemberRow) -> Result<Subject, Failure> {
    let user = rows.user(member.user)?;
    let active = user.filter(|user| {
        let holds = member.expires_at.is_none_or(|end| end > rows.now);
        holds && !user.suspended && user.departs_at.is_none()
    });
    let user = active.ok_or_else(|| refusals::launch_owner_unknown(&member.name))?;
    Ok(Subject {
        user: user.id,
        grants: user.grants_at(rows.now),
        domain: user.domain,
        scopes: None,
    })
}

/// The owners of those of these sessions to which the scheduler gives a place now.
fn placed_owners(
    world: &ClusterSnapshot,
    of: &BTreeMap<SessionId, UserId>,
    now: Timestamp,
) -> BTreeSet<UserId> {
    let decided = placement::decide(world, now).into_iter();
    let placed = decided.filter_map(|decision| match decision {
        Decision::Place { session, .. } => of.get(&session).copied(),
        Decision::End { .. } => None,
    });
    placed.collect()
}

/// What a start would do, by what the scheduler says of the sessions as they would be, and who would get a place at once;
/// limits of members are not looked at.
fn outlook(
    snapshot: &Snapshot,
    launch: &LaunchForMembers,
    course: &Course,
    (whom, most): (&[MemberRow], usize),
    now: Timestamp,
) -> Result<(CourseActView, BTreeSet<UserId>), Failure> {
    let mut world = snapshot.world.clone();
    let live = world.sessions.iter();
    let goes_on = |session: &&Session| session.desired == DesiredState::Run || session.restart;
    let live = live.filter(|session| session.project == course.project);
    let live = live.filter(goes_on);
    let busy: BTreeSet<UserId> = live.map(|session| session.owner).collect();
    let free: Vec<&MemberRow> = whom
        .iter()
        .filter(|member| !busy.contains(&member.user))
        .collect();
    let mut act = CourseActView {
        skipped: (whom.len() - free.len()) as u64,
        left: free.len().saturating_sub(most) as u64,
        ..CourseActView::default()
    };
    let mut drafted = BTreeMap::new();
    for member in free.into_iter().take(most) {
        let (row, group) = match launch.drafted(member.user, &world.groups, now) {
            Ok(drafted) => drafted,
            Err(failure) => {
                refuse_one(&mut act, member.name.as_str(), failure)?;
                continue;
            }
        };
        if group != ResourceGroupId::DEFAULT {
            world.groups.sessions.insert(row.id, group);
        }
        drafted.insert(row.id, member.user);
        world.sessions.push(row);
    }
    let placed = placed_owners(&world, &drafted, now);
    act.done = drafted.len() as u64;
    act.waiting = (drafted.len() - placed.len()) as u64;
    Ok((act, placed))
}

/// What each session of a course is launched with.
fn request_of(course: &Course) -> LaunchRequest {
    let mut request = LaunchRequest {
        preset: Some(course.preset.clone()).filter(|name| !name.is_empty()),
        ..LaunchRequest::default()
    };
    if !course.image.is_empty() {
        request.image.clone_from(&course.image);
    }
    request
}

fn standings(
    view: &ReadTransaction<'_>,
    snapshot: &Snapshot,
    course: &Course,
    now: Timestamp,
) -> Result<Vec<CourseMemberView>, Failure> {
    let members = students(view, course)?;
    let mut newest: BTreeMap<UserId, &Session> = BTreeMap::new();
    if course.state.is_on() || course.state == CourseState::Closed {
        for session in &snapshot.world.sessions {
            if session.project == course.project {
                // Oldest first: one that runs is not hidden by a newer one that waits.
                let hides = |before: &&Session| {
                    before.state() == SessionState::Running
                        && session.state() != SessionState::Running
                };
                let is_hidden = newest.get(&session.owner).is_some_and(hides);
                if !is_hidden {
                    newest.insert(session.owner, session);
                }
            }
        }
    }
    let idle: BTreeSet<SessionId> = match newest.is_empty() {
        true => BTreeSet::new(),
        false => view.idle_watches()?.into_iter().map(|one| one.0).collect(),
    };
    let is_waiting = |session: &&Session| session.state() == SessionState::Pending;
    let queued: Vec<&Session> = members
        .iter()
        .filter_map(|member| newest.get(&member.user).copied())
        .filter(is_waiting)
        .collect();
    let mut causes = QueueCauses::new(&snapshot.world, now);
    let why: BTreeMap<SessionId, &'static str> = queued
        .iter()
        .map(|session| (session.id, cause_word(&causes.of(session))))
        .collect();
    let mut all = Vec::with_capacity(members.len());
    for member in members {
        let live = newest.get(&member.user).copied();
        let last = match live {
            Some(_) => None,
            None => view.last_session_of(member.user, course.project, course.from)?,
        };
        let (state, since) = match (live, last) {
            (Some(session), _) => live_standing(session, idle.contains(&session.id)),
            (None, Some(last)) => (
                match last.outcome {
                    Outcome::Failed | Outcome::Refused | Outcome::Lost => MemberStanding::Failed,
                    Outcome::Succeeded | Outcome::Stopped => MemberStanding::Ended,
                },
                Some(last.ended_at),
            ),
            (None, None) => (MemberStanding::Away, None),
        };
        let id = live.map(|session| session.id).or(last.map(|last| last.id));
        all.push(CourseMemberView {
            user: owner_of(member),
            state,
            why: live
                .and_then(|session| why.get(&session.id))
                .map(|word| (*word).to_owned()),
            session: id.map(|id| id.to_string()),
            since,
            ends_at: live.and_then(Session::deadline).map(|(at, _)| at),
        });
    }
    Ok(all)
}

fn live_standing(session: &Session, is_idle: bool) -> (MemberStanding, Option<Timestamp>) {
    match session.state() {
        SessionState::Pending => (MemberStanding::Waiting, Some(session.queued_at)),
        SessionState::Running if is_idle => (MemberStanding::Idle, session.started_at()),
        SessionState::Running => (MemberStanding::Running, session.started_at()),
        SessionState::Scheduled | SessionState::Preparing => {
            (MemberStanding::Starting, session.scheduled_at())
        }
        SessionState::Stopping => (MemberStanding::Starting, session.stopping_at()),
        SessionState::Ended => (MemberStanding::Ended, session.ended_at()),
    }
}

/// The members who are no teachers, by name. Viewers launch nothing, and are none.
fn students(view: &ReadTransaction<'_>, course: &Course) -> Result<Vec<MemberRow>, Failure> {
    let mut members = view.members(course.project)?;
    members.retain(|member| matches!(member.role, GrantRole::Member));
    Ok(members)
}

/// The members that are meant: the named ones, teachers among them, else all who are no teachers.
///
/// Errors: `course.member-unknown`, `course.too-many-at-once`.
fn chosen(
    view: &ReadTransaction<'_>,
    course: &Course,
    named: Option<&[String]>,
) -> Result<Vec<MemberRow>, Failure> {
    let Some(named) = named else {
        return students(view, course);
    };
    refuse_more(named.len(), MAX_MEMBERS_AT_ONCE)?;
    let members = view.members(course.project)?.into_iter();
    let mut known: BTreeMap<String, MemberRow> = BTreeMap::new();
    for member in members.filter(|member| member.role.launches()) {
        known.insert(member.user.to_string(), member.clone());
        known.insert(member.name.to_string(), member);
    }
    let mut found: BTreeMap<UserId, MemberRow> = BTreeMap::new();
    for name in named {
        let member = known.get(name.trim()).cloned().ok_or_else(|| {
            let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
            refusals::course_member_unknown(shown).at("/users")
        })?;
        found.insert(member.user, member);
    }
    Ok(found.into_values().collect())
}

/// The members in the order in which a start takes them: from behind the one with whom the last start ended, so that those
/// for whom it is refused each time keep no one else from their turn.
fn in_turn(mut whom: Vec<MemberRow>, started_to: Option<UserId>) -> Vec<MemberRow> {
    let at = whom.iter().position(|one| Some(one.user) == started_to);
    if let Some(at) = at {
        whom.rotate_left(at + 1);
    }
    whom
}

/// Refuses more than one commit takes. Errors: `course.too-many-at-once`.
fn refuse_more(count: usize, most: usize) -> Result<(), Refusal> {
    match count > most {
        true => Err(refusals::course_too_many_at_once(most).at("/users")),
        false => Ok(()),
    }
}

fn owner_of(member: MemberRow) -> Owner {
    Owner {
        id: member.user,
        name: member.name,
    }
}

fn seen(view: &ReadTransaction<'_>, caller: &Caller) -> Result<Vec<CourseRecord>, Failure> {
    let own = reach(&caller.subject, Permission::ProjectsRead);
    let mut records = view.courses(&own)?;
    records.retain(|record| is_seen(caller, &record.course));
    Ok(records)
}

/// A draft is there for its teachers alone.
fn is_seen(caller: &Caller, course: &Course) -> bool {
    let own = reach(&caller.subject, Permission::ProjectsRead);
    own.covers(&course.scope()) && (course.state != CourseState::Draft || teaches(caller, course))
}

fn teaches(caller: &Caller, course: &Course) -> bool {
    may(&caller.subject, Permission::ProjectsWrite, &course.scope()).is_ok()
}

fn find(view: &ReadTransaction<'_>, caller: &Caller, which: &str) -> Result<CourseRecord, Failure> {
    if let Ok(id) = which.parse::<CourseId>() {
        let found = view.course(id)?.filter(|one| is_seen(caller, &one.course));
        return found.ok_or_else(|| refusals::course_not_found().into());
    }
    let mut found = seen(view, caller)?;
    found.retain(|one| one.course.name.as_str() == which);
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (None, _) => Err(refusals::course_not_found().into()),
        (Some(one), None) => Ok(one),
        (Some(one), Some(_)) => Err(refusals::course_ambiguous(&one.course.name).into()),
    }
}

/// A course that the caller teaches.
///
/// Errors: `course.not-found`, `course.ambiguous`; `role.permission-missing` for a member.
fn find_to_teach(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<CourseRecord, Failure> {
    let found = find(view, caller, which)?;
    let scope = found.course.scope();
    may(&caller.subject, Permission::ProjectsWrite, &scope)?;
    Ok(found)
}

/// The same, where the caller may also do that with sessions of its members: a token may change projects alone.
///
/// Errors: those of `find_to_teach`; `token.scope-missing`.
fn find_for_sessions(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    permission: Permission,
    which: &str,
) -> Result<CourseRecord, Failure> {
    let found = find_to_teach(view, caller, which)?;
    may(&caller.subject, permission, &found.course.scope())?;
    Ok(found)
}

fn refuse_off(course: &Course, now: Timestamp) -> Result<(), Refusal> {
    match course.state.is_on() && now < course.to {
        true => Ok(()),
        false => Err(refusals::course_not_on(&course.name, course.state.word())),
    }
}

/// A draft changes nothing for its members, who do not see it.
fn refuse_draft(course: &Course) -> Result<(), Refusal> {
    match course.state == CourseState::Draft {
        true => Err(refusals::course_draft(&course.name)),
        false => Ok(()),
    }
}

fn refuse_taken(rows: &Rows<'_>, course: &Course) -> Result<(), Failure> {
    match rows.course_name_taken(course)? {
        true => Err(refusals::course_name_taken(&course.name).at("/name").into()),
        false => Ok(()),
    }
}

/// A project has one course at a time: what a launch in it is bound by.
fn refuse_second(rows: &Rows<'_>, course: &Course) -> Result<(), Failure> {
    match rows.course_of(course.project)? {
        Some(other) => {
            let refusal = refusals::course_of_project(&other.course.name);
            Err(refusal.at("/project").into())
        }
        None => Ok(()),
    }
}

fn name_of(typed: &str) -> Result<TenantName, Refusal> {
    TenantName::parse(typed.trim()).map_err(|_| refusals::course_name_invalid().at("/name"))
}

/// An image as a launch names it; whether there is one, a launch says.
fn image_of(typed: &str) -> Result<String, Refusal> {
    let typed = typed.trim();
    if !typed.is_empty() {
        ImageChoice::parse(typed)?;
    }
    Ok(typed.to_owned())
}

/// The name of a preset, or nothing; whether there is one, a launch says.
fn preset_of(typed: &str) -> Result<String, Refusal> {
    let typed = typed.trim();
    if !typed.is_empty() {
        TenantName::parse(typed).map_err(|_| refusals::preset_name_invalid().at("/preset"))?;
    }
    Ok(typed.to_owned())
}

fn zone_of(usual: &str, named: Option<&str>) -> Result<TimeZone, Refusal> {
    match named.map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => {
            TimeZone::get(name).map_err(|_| refusals::time_zone_unknown().at("/time_zone"))
        }
        None => Ok(TimeZone::get(usual).unwrap_or(TimeZone::UTC)),
    }
}

fn name_of_zone(zone: &TimeZone) -> String {
    zone.iana_name().unwrap_or("UTC").to_owned()
}

fn state_code(state: CourseState) -> &'static str {
    match state {
        CourseState::Draft => "course.withdrawn",
        CourseState::Open | CourseState::Running => "course.opened",
        CourseState::Closed => "course.closed",
        CourseState::Archived => "course.archived",
    }
}

fn told(course: &Course) -> String {
    format!("{} {}..{}", course.name, course.from, course.to)
}

fn again(view: &ReadTransaction<'_>, id: CourseId) -> Result<CourseView, Failure> {
    let found = view.course(id)?;
    found
        .map(show)
        .ok_or_else(|| refusals::course_not_found().into())
}

fn with_rights(caller: &Caller, record: CourseRecord, now: Timestamp) -> ListedCourse {
    let course = &record.course;
    ListedCourse {
        teaches: teaches(caller, course),
        launches: course.state.is_on() && !course.refuses_launches(now),
        course: show(record),
    }
}

fn show(record: CourseRecord) -> CourseView {
    let course = record.course;
    CourseView {
        id: course.id.0,
        project: format!("{}/{}", record.domain_name, record.project_name),
        name: course.name,
        title: course.title,
        state: course.state,
        from: course.from,
        to: course.to,
        time_zone: course.time_zone,
        image: course.image,
        preset: course.preset,
        max_runtime_seconds: course.max_runtime_seconds,
        rules: course.rules,
        generation: course.generation,
    }
}

#[cfg(test)]
mod tests;
