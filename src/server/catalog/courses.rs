//! Rows of courses, and the steps that the clock takes with them. Decides nothing: `rules::course` says what is due and
//! whom a course binds.

use rules::course::{Course, CourseState, CourseStep};
use rules::names::{CourseId, ReservationId, SessionId, TenantName, UserId};
use rules::permissions::{Permission, Reach, Subject, may};
use rules::reasons;
use rules::refusals;
use rules::session::{DesiredState, Outcome};
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Params, Row};

use super::Catalog;
use super::audit::{ActingUser, NewAct};
use super::events::NewEvent;
use super::reach::{ReachedTable, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::{Lane, Rows};
use crate::Failure;

/// The code of the event that the term of a session's course ends soon; a word of the index `event_told`.
pub(crate) const WARNED: &str = "session.course-warned";
/// The code of the event that a teacher tells a member something; a word of the index `event_told`.
pub(crate) const MESSAGE: &str = "course.message";

/// The actor of steps that the clock takes.
const ACTOR: &str = "courses";
/// Sessions that the end of a term stops in one commit. Higher: users who click meanwhile wait. Lower: the last of a large
/// course runs some seconds longer.
const STOPPED_AT_ONCE: usize = 200;
/// Courses that take a step in one pass, each in a commit of its own; the last of these starts the pass that takes the next
/// ones.
const STEPPED_AT_ONCE: usize = 20;
/// After which a step that failed is tried again. Higher: sessions run on after the end of a term. Lower: courses that fail
/// take the turns of others.
const TRIED_AGAIN_SECONDS: u64 = 60;

/// One course, and the names of its project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CourseRecord {
    pub(crate) course: Course,
    /// When its members were last told something.
    pub(crate) told_at: Option<Timestamp>,
    /// With whom the last mass start ended that left some.
    pub(crate) started_to: Option<UserId>,
    pub(crate) domain_name: String,
    pub(crate) project_name: String,
}

/// The newest session of a member in a course that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastSessionRow {
    pub(crate) id: SessionId,
    pub(crate) outcome: Outcome,
    pub(crate) ended_at: Timestamp,
}

/// What a member did in a term.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AttendanceRow {
    /// Sessions that ran in it.
    pub(crate) sessions: u64,
    pub(crate) first: Option<Timestamp>,
    pub(crate) last: Option<Timestamp>,
    /// In which one of them ran, added up.
    pub(crate) seconds: u64,
}

/// The members of a project reach its courses by their grants.
const COURSE: ReachedTable = ReachedTable {
    owner: "null",
    has_domain: true,
    project: Some("project"),
};

/// Sessions in the project ?1 whose owners are no leads of it at ?2, and that are not told to stop.
macro_rules! of_students {
    () => {
        "from session
         where project = ?1
         and state <> 'ended'
         and (desired = 'run' or restart = 1)
         and not exists (
             select 1
             from membership
             where membership.user = session.owner
             and membership.project = ?1
             and membership.role = 'lead'
             and (membership.expires_at is null or membership.expires_at > ?2))"
    };
}

/// Sessions of members that the end of a term stops: those of leads stay.
const STOPPED: &str = concat!(
    "select id ",
    of_students!(),
    " order by created_at, id
     limit ?3"
);
/// Those whose owners are told before: the ones that have a place, which are as many as the machines hold. Of those that
/// wait there may be tens of thousands.
const TOLD: &str = concat!(
    "select id, owner ",
    of_students!(),
    " and state <> 'pending'
     order by created_at, id"
);

fn course_row(row: &Row<'_>) -> rusqlite::Result<CourseRecord> {
    Ok(CourseRecord {
        course: Course {
            id: CourseId(value::id(row, "id")?),
            domain: DomainId(value::id(row, "domain")?),
            project: ProjectId(value::id(row, "project")?),
            name: value::word(row, "name", |text| TenantName::parse(text).ok())?,
            title: row.get("title")?,
            state: value::word(row, "state", CourseState::parse)?,
            from: value::time(row, "from_at")?,
            to: value::time(row, "to_at")?,
            time_zone: row.get("time_zone")?,
            image: row.get("image")?,
            preset: row.get("preset")?,
            max_runtime_seconds: value::unsigned_or_none(row, "max_runtime_seconds")?,
            rules: row.get("rules")?,
            warned_at: value::time_or_none(row, "warned_at")?,
            closed_at: value::time_or_none(row, "closed_at")?,
            stopped_at: value::time_or_none(row, "stopped_at")?,
            generation: value::unsigned(row, "generation")?,
        },
        told_at: value::time_or_none(row, "told_at")?,
        started_to: value::id_or_none(row, "started_to")?.map(UserId),
        domain_name: row.get("domain_name")?,
        project_name: row.get("project_name")?,
    })
}

impl ReadTransaction<'_> {
    /// The reservations of the timetable of a course, in the order of their making.
    pub(crate) fn course_slots(&self, course: CourseId) -> Result<Vec<ReservationId>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select reservation from course_slot where course = ?1 order by reservation",
        )?;
        let rows = statement.query_map([course.0.as_bytes()], |row| {
            value::id(row, "reservation").map(ReservationId)
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn courses_where(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<CourseRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select course.*, domain.name as domain_name, project.name as project_name
             from (select * from course where {condition}) as course
             join domain on domain.id = course.domain
             join project on project.id = course.project
             order by course.state = 'archived', course.from_at desc, course.id"
        ))?;
        let rows = statement.query_map(values, course_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The courses of the projects in reach, drafts included: those that are not archived first, each by their begin, the
    /// latest first. O(courses).
    pub(crate) fn courses(&self, reach: &Reach) -> Result<Vec<CourseRecord>, Failure> {
        let (reached, value) = condition(reach, COURSE, "?1");
        self.courses_where(&reached, [value])
    }

    pub(crate) fn course(&self, id: CourseId) -> Result<Option<CourseRecord>, Failure> {
        let found = self.courses_where("id = ?1", [id.0.as_bytes()])?;
        Ok(found.into_iter().next())
    }

    /// The course of a project that is not archived. Costs one step of an index.
    pub(crate) fn course_of(&self, project: ProjectId) -> Result<Option<CourseRecord>, Failure> {
        let found = self.courses_where(
            "project = ?1 and state <> 'archived'",
            [project.0.as_bytes()],
        )?;
        Ok(found.into_iter().next())
    }

    /// How many courses a project has, archived ones included.
    pub(crate) fn count_courses(&self, project: ProjectId) -> Result<usize, Failure> {
        let count = self
            .connection
            .prepare_cached("select count(*) as n from course where project = ?1")?
            .query_row([project.0.as_bytes()], |row| value::unsigned(row, "n"))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Whether another course of the project has the name.
    pub(crate) fn course_name_taken(&self, course: &Course) -> Result<bool, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select 1
                 from course
                 where project = ?1 and name = ?2 and id <> ?3",
            )?
            .query_row(
                (
                    course.project.0.as_bytes(),
                    course.name.as_str(),
                    course.id.0.as_bytes(),
                ),
                |_| Ok(()),
            )
            .optional()?;
        Ok(found.is_some())
    }

    /// The course that binds a launch of the owner's in the project: one that is on. None for those who may change the
    /// project. Costs one step of an index.
    ///
    /// Errors: `course.term-over` where its term is over.
    pub(crate) fn course_for_launch(
        &self,
        owner: &Subject,
        (domain, project): (DomainId, ProjectId),
        now: Timestamp,
    ) -> Result<Option<Course>, Failure> {
        let Some(record) = self.course_of(project)? else {
            return Ok(None);
        };
        let course = record.course;
        // What the owner may is asked for, and not what their token may.
        let whole = Subject {
            scopes: None,
            ..owner.clone()
        };
        let scope = Scope {
            project: Some(project),
            ..Scope::domain(domain)
        };
        if may(&whole, Permission::ProjectsWrite, &scope).is_ok() {
            return Ok(None);
        }
        if course.refuses_launches(now) {
            return Err(refusals::course_term_over(course.heading())
                .at("/project")
                .into());
        }
        Ok(Some(course).filter(|course| course.state.is_on()))
    }

    /// Sessions of a project that are neither over nor told to stop, each with its owner, oldest first. Costs a visit of
    /// each live session.
    pub(crate) fn live_of_project(
        &self,
        project: ProjectId,
    ) -> Result<Vec<(SessionId, UserId)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, owner
             from session
             where project = ?1
             and state <> 'ended'
             and (desired = 'run' or restart = 1)
             order by created_at, id",
        )?;
        let rows = statement.query_map([project.0.as_bytes()], |row| {
            Ok((
                SessionId(value::id(row, "id")?),
                UserId(value::id(row, "owner")?),
            ))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The newest session of a member in the project since then, where it is over. Costs a visit of each newer session of
    /// theirs in other projects.
    pub(crate) fn last_session_of(
        &self,
        user: UserId,
        project: ProjectId,
        since: Timestamp,
    ) -> Result<Option<LastSessionRow>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select id, outcome, ended_at
                 from session
                 where owner = ?1
                 and project = ?2
                 and created_at >= ?3
                 and state = 'ended'
                 order by created_at desc
                 limit 1",
            )?
            .query_row(
                (user.0.as_bytes(), project.0.as_bytes(), since.as_millis()),
                |row| {
                    Ok(LastSessionRow {
                        id: SessionId(value::id(row, "id")?),
                        outcome: value::word(row, "outcome", Outcome::parse)?,
                        ended_at: value::time(row, "ended_at")?,
                    })
                },
            )
            .optional()?)
    }

    /// What a member did in the project from a moment to another, by the sessions that are still known and ran between them:
    /// what one did before counts for nothing. Costs a visit of each known session of theirs.
    pub(crate) fn attendance_of(
        &self,
        user: UserId,
        project: ProjectId,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<AttendanceRow, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*) as sessions, min(max(started_at, ?3)) as first_at,
                        max(max(started_at, ?3)) as last_at,
                        coalesce(
                            sum(max(0, min(coalesce(ended_at, ?4), ?4) - max(started_at, ?3))) / 1000,
                            0) as seconds
                 from session
                 where owner = ?1
                 and project = ?2
                 and started_at < ?4
                 and coalesce(ended_at, ?4) > ?3",
            )?
            .query_row(
                (
                    user.0.as_bytes(),
                    project.0.as_bytes(),
                    from.as_millis(),
                    to.as_millis(),
                ),
                |row| {
                    Ok(AttendanceRow {
                        sessions: value::unsigned(row, "sessions")?,
                        first: value::time_or_none(row, "first_at")?,
                        last: value::time_or_none(row, "last_at")?,
                        seconds: value::unsigned(row, "seconds")?,
                    })
                },
            )?)
    }

    /// Courses with a step that is due, the longest due first, so many at once.
    fn due_courses(&self, now: Timestamp) -> Result<Vec<CourseRecord>, Failure> {
        let mut found = self.courses_where("due_at <= ?1", [now.as_millis()])?;
        found.sort_by_key(|record| (record.course.due_at(), record.course.id));
        found.truncate(STEPPED_AT_ONCE);
        Ok(found)
    }
}

impl Catalog {
    /// Takes one step of each course that is due, each in its commit, which starts the pass that takes the next. One that
    /// fails is logged and put off; the others take theirs. Costs one step of an index where none is due.
    ///
    /// Errors: where it cannot even be put off.
    pub(crate) async fn step_courses(&self, now: Timestamp) -> Result<(), Failure> {
        let due = self.read_now("look for courses", |view| view.due_courses(now))?;
        // Many courses end at the same hour.
        let mut left = STOPPED_AT_ONCE;
        for record in due {
            let (id, most) = (record.course.id, left);
            let step = self
                .write(
                    Lane::Loops,
                    "take a step of a course",
                    move |rows| match rows.course(id)? {
                        Some(record) => rows.step_course(record.course, most),
                        None => Ok(0),
                    },
                )
                .await;
            match step {
                Ok(stopped) => left = left.saturating_sub(stopped),
                Err(failure) => {
                    let error = base::observe::chain(&failure);
                    tracing::error!(%error, course = %record.course.name, "a course took no step");
                    self.write(Lane::Loops, "put off a step of a course", move |rows| {
                        rows.put_off_course(id)
                    })
                    .await?;
                }
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Rows<'_> {
    pub(crate) fn insert_course(&self, course: &Course) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into course
                     (id, project, domain, name, title, state, from_at, to_at, time_zone, image, preset, rules,
                      max_runtime_seconds, due_at, generation)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )?
            .execute((
                course.id.0.as_bytes(),
                course.project.0.as_bytes(),
                course.domain.0.as_bytes(),
                course.name.as_str(),
                &course.title,
                course.state.word(),
                course.from.as_millis(),
                course.to.as_millis(),
                &course.time_zone,
                &course.image,
                &course.preset,
                &course.rules,
                course.max_runtime_seconds.map(value::signed),
                course.due_at().map(Timestamp::as_millis),
                value::signed(course.generation),
            ))?;
        Ok(())
    }

    /// Writes all but its project; raises the generation.
    pub(crate) fn put_course(&self, course: &Course) -> Result<(), Failure> {
        let time = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        self.connection
            .prepare_cached(
                "update course
                 set name = ?2, title = ?3, state = ?4, from_at = ?5, to_at = ?6, time_zone = ?7, image = ?8,
                     preset = ?9, rules = ?10, max_runtime_seconds = ?11, warned_at = ?12, closed_at = ?13,
                     stopped_at = ?14, due_at = ?15, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                course.id.0.as_bytes(),
                course.name.as_str(),
                &course.title,
                course.state.word(),
                course.from.as_millis(),
                course.to.as_millis(),
                &course.time_zone,
                &course.image,
                &course.preset,
                &course.rules,
                course.max_runtime_seconds.map(value::signed),
                time(course.warned_at),
                time(course.closed_at),
                time(course.stopped_at),
                time(course.due_at()),
            ))?;
        Ok(())
    }

    /// Takes its step later.
    fn put_off_course(&self, id: CourseId) -> Result<(), Failure> {
        let due = self.now.plus_seconds(TRIED_AGAIN_SECONDS);
        self.connection
            .prepare_cached("update course set due_at = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), due.as_millis()))?;
        Ok(())
    }

    /// Notes that its members are told something now; no change of the course.
    pub(crate) fn mark_told(&self, id: CourseId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update course set told_at = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }

    /// Notes with whom a mass start ended that left some; no change of the course.
    pub(crate) fn mark_started(&self, id: CourseId, to: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update course set started_to = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), to.0.as_bytes()))?;
        Ok(())
    }

    pub(crate) fn forget_course(&self, id: CourseId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from course where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// The event of an act on a course.
    pub(crate) fn note_course(
        &self,
        actor: &str,
        course: &Course,
        code: &str,
        before: &str,
        after: &str,
    ) -> Result<(), Failure> {
        self.note(NewEvent {
            actor,
            topic: "system",
            object: course.name.as_str(),
            scope: course.scope(),
            code,
            before,
            after,
        })
    }

    /// The event that members are told something, and its row of the audit log. What they are told stands in that row alone,
    /// for viewers of the project hear its events and read none of its audit log.
    pub(crate) fn note_told(
        &self,
        actor: &str,
        course: &Course,
        told: &str,
        text: &str,
    ) -> Result<(), Failure> {
        let (code, topic, object) = ("course.told", "system", course.name.as_str());
        self.record(NewAct {
            actor: ActingUser::Named(actor),
            act: code,
            topic,
            object,
            scope: course.scope(),
            before: told,
            after: text,
            reason: "",
        })?;
        self.note_alone(NewEvent {
            actor,
            topic,
            object,
            scope: course.scope(),
            code,
            before: "",
            after: told,
        })
    }

    /// Tells one member something of a teacher's: an event of the member's own.
    pub(crate) fn tell_member(
        &self,
        actor: &str,
        course: &Course,
        member: UserId,
        text: &str,
    ) -> Result<(), Failure> {
        self.note_alone(NewEvent {
            actor,
            topic: "system",
            object: course.name.as_str(),
            scope: Scope::user(member),
            code: MESSAGE,
            before: "",
            after: text,
        })
    }

    /// Takes the step that is due, in the commit that says so: after a crash the row tells that it was taken, or that
    /// nothing of it was. Stops at most so many sessions, and says how many it stopped.
    fn step_course(&self, mut course: Course, most: usize) -> Result<usize, Failure> {
        let (now, was) = (self.now, course.state);
        let Some(step) = course.step(now) else {
            return Ok(0);
        };
        let (mut stopped, mut told) = (0, String::new());
        let code = match step {
            CourseStep::Begin => {
                course.state = CourseState::Running;
                "course.began"
            }
            CourseStep::Warn => {
                course.warned_at = Some(now);
                self.warn_members(&course)?;
                "course.warned"
            }
            CourseStep::Close => {
                course.close(now);
                "course.closed"
            }
            CourseStep::StopSessions => {
                self.cancel_slots(course.id)?;
                stopped = self.stop_members(&course, most)?;
                if stopped < most {
                    course.stopped_at = Some(now);
                }
                told = stopped.to_string();
                "course.sessions-stopped"
            }
            CourseStep::Archive => {
                course.state = CourseState::Archived;
                "course.archived"
            }
        };
        self.put_course(&course)?;
        let (before, after) = match told.is_empty() {
            true => (was.word(), course.state.word()),
            false => ("", told.as_str()),
        };
        self.note_course(ACTOR, &course, code, before, after)?;
        Ok(stopped)
    }

    /// A reservation is of the timetable of a course.
    pub(crate) fn put_course_slot(
        &self,
        course: CourseId,
        reservation: ReservationId,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into course_slot (course, reservation)
                 values (?1, ?2)
                 on conflict (course, reservation) do nothing",
            )?
            .execute((course.0.as_bytes(), reservation.0.as_bytes()))?;
        Ok(())
    }

    /// Gives back what the timetable of a course keeps, now and later.
    pub(crate) fn cancel_slots(&self, course: CourseId) -> Result<(), Failure> {
        for reservation in self.course_slots(course)? {
            self.cancel_reservation(reservation)?;
        }
        Ok(())
    }

    fn warn_members(&self, course: &Course) -> Result<(), Failure> {
        let ends = course.to.to_string();
        let of = (course.project.0.as_bytes(), self.now.as_millis());
        let mut statement = self.connection.prepare_cached(TOLD)?;
        let rows = statement.query_map(of, |row| {
            Ok((
                SessionId(value::id(row, "id")?),
                UserId(value::id(row, "owner")?),
            ))
        })?;
        let due: Vec<(SessionId, UserId)> = rows.collect::<Result<_, _>>()?;
        for (id, owner) in due {
            self.note_alone(NewEvent {
                actor: ACTOR,
                topic: "sessions",
                object: &id.to_string(),
                scope: Scope {
                    owner: Some(owner),
                    ..course.scope()
                },
                code: WARNED,
                before: "",
                after: &ends,
            })?;
        }
        Ok(())
    }

    /// Stops the next sessions of members, and says how many.
    fn stop_members(&self, course: &Course, most: usize) -> Result<usize, Failure> {
        let now = self.now;
        let due = self.member_sessions(course, most)?;
        for id in &due {
            let because = reasons::session_course_over(course.heading());
            self.change_session(*id, None, ACTOR, None, |session| {
                let no_restart = std::mem::take(&mut session.restart);
                session.stop(DesiredState::Stop, because, now) || no_restart
            })?;
        }
        Ok(due.len())
    }

    fn member_sessions(&self, course: &Course, most: usize) -> Result<Vec<SessionId>, Failure> {
        let of = (
            course.project.0.as_bytes(),
            self.now.as_millis(),
            i64::try_from(most).unwrap_or(i64::MAX),
        );
        let mut statement = self.connection.prepare_cached(STOPPED)?;
        let rows = statement.query_map(of, |row| Ok(SessionId(value::id(row, "id")?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use rules::tenancy::{Project, TenantState};
    use uuid::Uuid;

    use super::*;
    use crate::Server;

    fn course(now: Timestamp) -> Course {
        Course {
            id: CourseId(Uuid::from_u128(1)),
            domain: DomainId::DEFAULT,
            project: ProjectId::DEFAULT,
            name: TenantName::parse("vision").unwrap(),
            title: String::new(),
            state: CourseState::Running,
            from: now,
            to: now.plus_seconds(60),
            time_zone: "UTC".to_owned(),
            image: String::new(),
            preset: String::new(),
            max_runtime_seconds: None,
            rules: String::new(),
            warned_at: None,
            closed_at: None,
            stopped_at: None,
            generation: 1,
        }
    }

    fn row(server: &Server, number: u128) -> Course {
        let read = server.catalog().read_now("read a course", |view| {
            view.course(CourseId(Uuid::from_u128(number)))
        });
        read.unwrap().unwrap().course
    }

    #[tokio::test]
    async fn a_step_that_dies_before_its_commit_is_taken_once_more_and_then_no_more() {
        let server = Server::for_tests();
        let (catalog, now) = (server.catalog(), server.clock().now());
        let written = course(now);
        catalog
            .write_now(Lane::Requests, "a course", move |rows| {
                rows.insert_course(&written)
            })
            .unwrap();
        let dies = catalog.write_now(Lane::Loops, "a step", |rows| {
            let record = rows.due_courses(rows.now)?.remove(0);
            rows.step_course(record.course, STOPPED_AT_ONCE)?;
            Err::<(), Failure>(refusals::course_over().into())
        });
        assert!(dies.is_err());
        assert_eq!(row(&server, 1).warned_at, None, "nothing of it is there");
        catalog.step_courses(now).await.unwrap();
        let warned = row(&server, 1);
        assert_eq!(warned.warned_at, Some(now));
        catalog.step_courses(now).await.unwrap();
        assert_eq!(row(&server, 1), warned, "it is taken once");
        server.clock().set(now.plus_seconds(60));
        catalog.step_courses(now.plus_seconds(60)).await.unwrap();
        assert_eq!(row(&server, 1).state, CourseState::Closed);
    }

    #[test]
    fn attendance_is_what_ran_within_the_term() {
        let server = Server::for_tests();
        let catalog = server.catalog();
        let owner = UserId(Uuid::from_u128(7));
        catalog
            .write_now(Lane::Requests, "sessions", move |rows| {
                rows.connection.execute(
                    "insert into user (id, name, language, theme, time_zone, suspended, password, created_at,
                                       generation)
                     values (?1, 'abe', '', '', '', 0, '', 0, 1)",
                    [owner.0.as_bytes()],
                )?;
                // One that ended before, one that ran into the term, two of the term, one after it, one that never ran.
                rows.connection.execute(
                    "insert into session (id, name, owner, labels, kind, image_reference, command, env, cpu, memory,
                                          shm, gpu, depends_on, state, desired, paused, restart, incarnation,
                                          generation, created_at, queued_at, started_at, ended_at, outcome)
                     select unhex(format('%032d', column1)), 's' || column1, ?1, '{}', 'batch', 'host', '[]', '{}',
                            0, 0, 0, 0, '[]', iif(column4 is null, 'running', 'ended'), 'run', 0, 0, 1,
                            1, column2, column2, column3, column4, iif(column4 is null, null, 'succeeded')
                     from (values
                         (1, 10000, 20000, 90000),
                         (2, 10000, 50000, 130000),
                         (3, 140000, 150000, 160000),
                         (4, 150000, 190000, null),
                         (5, 150000, 210000, null),
                         (6, 90000, null, 120000)
                     )",
                    [owner.0.as_bytes()],
                )?;
                Ok(())
            })
            .unwrap();
        let at = Timestamp::from_millis;
        let read = catalog.read_now("attendance", |view| {
            view.attendance_of(owner, ProjectId::DEFAULT, (at(100_000), at(200_000)))
        });
        let wanted = AttendanceRow {
            sessions: 3,
            first: Some(at(100_000)),
            last: Some(at(190_000)),
            seconds: 50,
        };
        assert_eq!(read.unwrap(), wanted);
    }

    #[tokio::test]
    async fn a_course_that_takes_no_step_leaves_the_others_their_turn() {
        let server = Server::for_tests();
        let (catalog, now) = (server.catalog(), server.clock().now());
        let broken = course(now);
        let other = Course {
            id: CourseId(Uuid::from_u128(2)),
            project: ProjectId(Uuid::from_u128(2)),
            ..course(now)
        };
        let project = Project {
            id: other.project,
            domain: other.domain,
            name: TenantName::parse("vision").unwrap(),
            title: String::new(),
            state: TenantState::Active,
            generation: 1,
        };
        catalog
            .write_now(Lane::Requests, "two courses", move |rows| {
                rows.insert_project(&project)?;
                rows.insert_course(&broken)?;
                rows.insert_course(&other)?;
                rows.connection.execute_batch(
                    "create trigger broken before update of state on course
                     when new.id = x'00000000000000000000000000000001'
                     begin
                         select raise(abort, 'broken');
                     end",
                )?;
                Ok(())
            })
            .unwrap();
        let due = |at: Timestamp| -> Vec<u128> {
            let read = catalog.read_now("courses that are due", |view| view.due_courses(at));
            let ids = read.unwrap().into_iter();
            ids.map(|record| record.course.id.0.as_u128()).collect()
        };
        assert_eq!(due(now), [1, 2], "the broken one is first");
        catalog.step_courses(now).await.unwrap();
        assert_eq!(row(&server, 1).warned_at, None);
        assert_eq!(row(&server, 2).warned_at, Some(now), "the other took its");
        assert!(due(now).is_empty(), "it takes no turn at once");
        let later = now.plus_seconds(TRIED_AGAIN_SECONDS);
        assert!(due(later).contains(&1), "it is tried again");
    }
}
