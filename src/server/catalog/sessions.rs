//! Session rows. Every write names the generation it was decided from and raises it; a row that
//! changed meanwhile is left alone. What a move means is `rules::session`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use rules::app_launch::LaunchedApps;
use rules::devices::MigProfile;
use rules::names::{ImageId, SessionId, SessionName, UserId, UserName};
use rules::policy::SharePolicy;
use rules::process_limits::ProcessLimits;
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::Demand;
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::workload::container::SessionContainer;
use rules::workload::outcome::Outcome;
use rules::workload::precedence::Precedence;
use rules::workload::remarks::Remarks;
use rules::workload::session::Session;
use rules::workload::spec::{SessionEnvironment, SessionKind, SessionSpec};
use rules::workload::state::{
    DesiredState, EndedSession, LastPlace, Lifecycle, PlacedSession, SessionState,
};
use rules::world::{ClusterSnapshot, SharedSessions};
use rusqlite::{OptionalExtension as _, Row};

use super::containers;
use super::events::NewEvent;
use super::reader::ReadTransaction;
use super::sealing::{Seal, SealedRow};
use super::value;
use super::writer::Rows;
use crate::Failure;

/// What a row keeps, in this order: as `from_row` reads it, and `columns` writes it. The statements are made from
/// this list, so a column stands in these three places of this file and nowhere else.
pub(super) const COLUMNS: [&str; 54] = [
    "id",
    "name",
    "owner",
    "labels",
    "description",
    "kind",
    "image",
    "image_reference",
    "command",
    "env",
    "cpu",
    "memory",
    "shm",
    "gpu",
    "gpu_memory",
    "mig",
    "disk",
    "timeout_seconds",
    "max_runtime_seconds",
    "start_at",
    "depends_on",
    "state",
    "scheduled_at",
    "started_at",
    "stopping_at",
    "ended_at",
    "outcome",
    "exit_code",
    "desired",
    "paused",
    "restart",
    "incarnation",
    "generation",
    "device_affinity",
    "document_gone",
    "created_at",
    "queued_at",
    "reason",
    "incidents",
    "domain",
    "project",
    "held_by",
    "queued_before",
    "backfilled",
    "priority",
    "yields",
    "preempted_count",
    "mounts",
    "egress",
    "start_up",
    "sudo",
    "ulimits",
    "apps",
    "containers",
];

/// Writes a new row.
static INSERT: LazyLock<String> = LazyLock::new(|| {
    let values: Vec<String> = (1..=COLUMNS.len()).map(|at| format!("?{at}")).collect();
    format!(
        "insert into session ({})
         values ({})",
        COLUMNS.join(", "),
        values.join(", ")
    )
});

/// Writes a row again where it still is of the generation behind the columns. The sealed environment stays where none
/// is given.
static UPDATE: LazyLock<String> = LazyLock::new(|| {
    let columns = COLUMNS.iter().zip(1..).skip(1);
    let set: Vec<String> = columns
        .map(|(name, at)| match *name {
            "env" => format!("env = coalesce(?{at}, env)"),
            name => format!("{name} = ?{at}"),
        })
        .collect();
    format!(
        "update session
         set {}
         where id = ?1 and generation = ?{}",
        set.join(", "),
        COLUMNS.len() + 1
    )
});

static READ: LazyLock<String> =
    LazyLock::new(|| format!("{}, {}", COLUMNS.join(", "), containers::COLUMN));

/// `COLUMNS`, and the containers as JSON: one statement reads a session whole, in lists too.
pub(super) fn columns_read() -> &'static str {
    &READ
}

/// Reads the columns by place, in the order of `COLUMNS`: by name, each would cost a search through
/// all names, and whole worlds are read all day.
pub(super) fn from_row(row: &Row<'_>, seal: &Seal) -> rusqlite::Result<Session> {
    let mut column = 0;
    let mut next = || {
        column += 1;
        column - 1
    };
    let id = SessionId(value::id(row, next())?);
    let name = value::word(row, next(), |text| SessionName::parse(text).ok())?;
    let owner = UserId(value::id(row, next())?);
    let remarks = Remarks {
        labels: value::json(row, next())?,
        description: row.get(next())?,
    };
    let mut spec = SessionSpec {
        kind: value::word(row, next(), |text| match text {
            "interactive" => Some(SessionKind::Interactive),
            "batch" => Some(SessionKind::Batch),
            _ => None,
        })?,
        environment: {
            let id = value::id_or_none(row, next())?;
            let reference = row.get(next())?;
            match id {
                None => SessionEnvironment::Host,
                Some(id) => SessionEnvironment::Image {
                    id: ImageId(id),
                    reference,
                },
            }
        },
        command: value::json(row, next())?,
        env: {
            let at = next();
            let id: [u8; 16] = row.get(0)?;
            seal.json(&SealedRow::Session(&id), at, row.get_ref(at)?.as_str()?)?
        },
        demand: Demand {
            cpu: CpuShare(row.get(next())?),
            memory: Bytes(value::unsigned(row, next())?),
            shm: Bytes(value::unsigned(row, next())?),
            gpu: GpuShare(row.get(next())?),
            gpu_memory: value::unsigned_or_none(row, next())?.map(Bytes),
            mig: {
                let at = next();
                row.get::<_, Option<String>>(at)?
                    .map(|_| value::word(row, at, |text| MigProfile::parse(text).ok()))
                    .transpose()?
            },
            disk: value::unsigned_or_none(row, next())?.map(Bytes),
        },
        timeout_seconds: value::unsigned_or_none(row, next())?,
        max_runtime_seconds: value::unsigned_or_none(row, next())?,
        start_at: value::time_or_none(row, next())?,
        depends_on: value::json(row, next())?,
        containers: 1,
    };
    // It came last, and is a part of what stands first.
    spec.containers = row.get(COLUMNS.len() - 1)?;
    Ok(Session {
        id,
        name,
        owner,
        remarks,
        spec,
        lifecycle: {
            let at = next();
            let stands = LifecycleColumns {
                state: value::word(row, at, SessionState::parse)?,
                scheduled_at: value::time_or_none(row, next())?,
                stopping_at: {
                    // When its main container started: kept here to sort by.
                    next();
                    value::time_or_none(row, next())?
                },
                ended_at: value::time_or_none(row, next())?,
                outcome: {
                    let at = next();
                    row.get::<_, Option<String>>(at)?
                        .map(|_| value::word(row, at, Outcome::parse))
                        .transpose()?
                },
                exit_code: row.get(next())?,
                containers: containers::read(row, COLUMNS.len())?,
            };
            value::word(row, at, |_| stands.read())?
        },
        desired: value::word(row, next(), DesiredState::parse)?,
        paused: row.get(next())?,
        restart: row.get(next())?,
        incarnation: row.get(next())?,
        generation: value::unsigned(row, next())?,
        device_affinity: row.get(next())?,
        document_gone: row.get(next())?,
        created_at: value::time(row, next())?,
        queued_at: value::time(row, next())?,
        reason: value::json_or_none(row, next())?,
        incidents: value::json(row, next())?,
        domain: DomainId(value::id(row, next())?),
        project: ProjectId(value::id(row, next())?),
        held_by: {
            let at = next();
            row.get::<_, Option<String>>(at)?
                .map(|_| value::word(row, at, |text| UserName::parse(text).ok()))
                .transpose()?
        },
        queued_before: value::unsigned(row, next())?,
        backfilled: row.get(next())?,
        precedence: Precedence {
            priority: row.get(next())?,
            yields: row.get(next())?,
        },
        preempted_count: row.get(next())?,
        mounts: value::json(row, next())?,
        egress: value::json_or_none(row, next())?,
        start_up: value::json(row, next())?,
        sudo: row.get(next())?,
        ulimits: value::word(row, next(), |text| ProcessLimits::parse(text).ok())?,
        apps: value::word(row, next(), |text| LaunchedApps::parse(text).ok())?,
    })
}

/// What the columns of a row, and those of its containers, say of where its session stands.
struct LifecycleColumns {
    state: SessionState,
    scheduled_at: Option<Timestamp>,
    stopping_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    outcome: Option<Outcome>,
    exit_code: Option<i32>,
    containers: Vec<SessionContainer>,
}

impl LifecycleColumns {
    /// None where they contradict one another.
    fn read(self) -> Option<Lifecycle> {
        let lifecycle = match self.state {
            SessionState::Pending => Lifecycle::Pending,
            SessionState::Scheduled
            | SessionState::Preparing
            | SessionState::Running
            | SessionState::Stopping => Lifecycle::Placed(PlacedSession {
                scheduled_at: self.scheduled_at?,
                stopping_at: self.stopping_at,
                containers: self.containers,
            }),
            SessionState::Ended => Lifecycle::Ended(EndedSession {
                outcome: self.outcome?,
                exit_code: self.exit_code,
                ended_at: self.ended_at?,
                stopping_at: self.stopping_at,
                last: self.scheduled_at.map(|scheduled_at| LastPlace {
                    scheduled_at,
                    containers: self.containers,
                }),
            }),
        };
        let placed =
            !matches!(lifecycle, Lifecycle::Placed(_)) || !lifecycle.containers().is_empty();
        (placed && lifecycle.state() == self.state).then_some(lifecycle)
    }
}

/// Whose a session is, of a row with these columns.
pub(super) fn scope(row: &Row<'_>) -> rusqlite::Result<Scope> {
    Ok(Scope {
        domain: Some(DomainId(value::id(row, "domain")?)),
        project: Some(ProjectId(value::id(row, "project")?)),
        owner: Some(UserId(value::id(row, "owner")?)),
    })
}

pub(super) fn kind_word(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Interactive => "interactive",
        SessionKind::Batch => "batch",
    }
}

impl ReadTransaction<'_> {
    /// One session by its id; None where there is none.
    pub(crate) fn session(&self, id: SessionId) -> Result<Option<Session>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {} from session where id = ?1",
                columns_read()
            ))?
            .query_row([id.0.as_bytes()], |row| from_row(row, self.seal))
            .optional()?)
    }

    /// Live sessions, oldest first. Of rows that are unchanged since this process
    /// read them, only the generation is read.
    pub(crate) fn live_sessions(&self) -> Result<SharedSessions, Failure> {
        if let Some(live) = self.live {
            let mut statement = self.connection.prepare_cached(
                "select id, generation
                 from session
                 where state <> 'ended'
                 order by created_at, id",
            )?;
            let rows = statement.query_map([], |row| {
                Ok((SessionId(value::id(row, 0)?), value::unsigned(row, 1)?))
            })?;
            return live.all(rows.map(|row| row.map_err(Failure::from)), |id| {
                self.session(id)
            });
        }
        let mut statement = self.connection.prepare_cached(&format!(
            "select {}
             from session
             where state <> 'ended'
             order by created_at, id",
            columns_read()
        ))?;
        let rows = statement.query_map([], |row| from_row(row, self.seal))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The launch of each live session that was launched together with others, by the id of its first one.
    pub(crate) fn launches(&self) -> Result<BTreeMap<SessionId, SessionId>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, launch
             from session
             where state <> 'ended'
                 and launch is not null",
        )?;
        let rows = statement.query_map([], |row| {
            Ok((SessionId(value::id(row, 0)?), SessionId(value::id(row, 1)?)))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Everything a decision may look at, as of one moment. Costs one visit a live session; 2,000
    /// of them take some milliseconds.
    pub(crate) fn world(&self) -> Result<ClusterSnapshot, Failure> {
        let sessions = self.live_sessions()?;
        let mut ended = BTreeMap::new();
        let needed: BTreeSet<SessionId> = sessions
            .iter()
            .flat_map(|s| s.spec.depends_on.iter().copied())
            .collect();
        let live: BTreeSet<SessionId> = match needed.is_empty() {
            true => BTreeSet::new(),
            false => sessions.iter().map(|s| s.id).collect(),
        };
        let mut outcome = self
            .connection
            .prepare_cached("select outcome from session where id = ?1 and state = 'ended'")?;
        for id in needed.difference(&live) {
            let found = outcome
                .query_row([id.0.as_bytes()], |row| {
                    value::word(row, "outcome", Outcome::parse)
                })
                .optional()?;
            if let Some(found) = found {
                ended.insert(*id, Some(found));
            }
        }
        let (rule, groups) = (self.queue_rule()?, self.group_plan()?);
        let mut world = ClusterSnapshot {
            revision: self.revision()?,
            sessions,
            ended,
            nodes: self.nodes()?,
            policy: SharePolicy {
                order: rule.order,
                backfill: rule.backfill,
                ..self.policy()
            },
            fair: self.fair_shares(rule, &groups)?,
            limits: self.scoped_policies()?,
            allowances: self.allowances_now()?,
            reservations: self.near_reservations()?,
            served: self.served()?,
            groups,
            ..ClusterSnapshot::default()
        };
        if world.takes_turns() {
            world.turns = self.node_turns()?;
        }
        Ok(world)
    }

    /// The revision of the newest commit that this view sees.
    pub(crate) fn revision(&self) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached("select revision from installation where id = 1")?
            .query_row([], |row| value::unsigned(row, "revision"))?)
    }
}

/// Whether a conditional write found the row as it was when it was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionalWrite {
    Yes,
    /// The row changed meanwhile, is gone, or the move is not legal: nothing was written.
    No,
}

impl Rows<'_> {
    /// Writes a new session and its first event.
    ///
    /// Errors: `session.name-taken` where a live session of this owner has the name.
    pub(crate) fn insert_session(&self, session: &Session, actor: &str) -> Result<(), Failure> {
        let written = self
            .connection
            .prepare_cached(&INSERT)?
            .execute(rusqlite::params_from_iter(columns(
                session,
                Some(self.seal),
            )));
        known_or_taken(written, &session.name)?;
        self.store_containers(session.id, &[], session.containers())?;
        self.book(None, session)?;
        self.note_session(session, actor, "session.accepted", None)
    }

    /// Keeps that these sessions were launched together; of one there is nothing to keep.
    pub(crate) fn join_launch(&self, all: &[Session]) -> Result<(), Failure> {
        let [first, _, ..] = all else {
            return Ok(());
        };
        let mut statement = self
            .connection
            .prepare_cached("update session set launch = ?1 where id = ?2")?;
        for session in all {
            statement.execute((first.id.0.as_bytes(), session.id.0.as_bytes()))?;
        }
        Ok(())
    }

    /// Takes one session through `change` and writes it, where it still is of generation `seen`
    /// (None: whatever it is). `change` says whether it changed anything.
    ///
    /// Errors: `session.name-taken`, where the change makes a name live that is taken.
    pub(crate) fn change_session(
        &self,
        id: SessionId,
        seen: Option<u64>,
        actor: &str,
        code: Option<&str>,
        change: impl FnOnce(&mut Session) -> bool,
    ) -> Result<ConditionalWrite, Failure> {
        let Some(before) = self.session(id)? else {
            return Ok(ConditionalWrite::No);
        };
        if seen.is_some_and(|seen| seen != before.generation) {
            return Ok(ConditionalWrite::No);
        }
        let mut after = before.clone();
        if !change(&mut after) {
            return Ok(ConditionalWrite::No);
        }
        if after.restart && !before.restart {
            self.hold_restart(&mut after)?;
        }
        after.generation = before.generation + 1;
        if self.store_session(&after, &before)? == ConditionalWrite::No {
            return Ok(ConditionalWrite::No);
        }
        if let Some(at) = after
            .scheduled_at()
            .filter(|at| before.scheduled_at() != Some(*at))
        {
            self.put_served(after.owner, at)?;
            if let Some(node) = after.node() {
                self.put_turn(node)?;
            }
        }
        self.book(Some(&before), &after)?;
        if after.state() == SessionState::Ended && before.state() != SessionState::Ended {
            self.bound_ended(after.owner)?;
        }
        let code = code.map_or_else(|| event_code(&before, &after), str::to_owned);
        self.note_session(&after, actor, &code, Some(&before))?;
        Ok(ConditionalWrite::Yes)
    }

    /// Takes one session through `edit` and gives it as it is afterwards. `edit` says whether it
    /// changed anything, or refuses.
    ///
    /// Errors: `session.not-found`, `edit`'s own, `session.name-taken`.
    pub(crate) fn edit_session(
        &self,
        id: SessionId,
        actor: &str,
        code: Option<&str>,
        edit: impl FnOnce(&mut Session) -> Result<bool, Failure>,
    ) -> Result<Session, Failure> {
        let gone = || refusals::session_not_found();
        let mut refused = None;
        self.change_session(id, None, actor, code, |session| match edit(session) {
            Ok(changed) => changed,
            Err(failure) => {
                refused = Some(failure);
                false
            }
        })?;
        if let Some(failure) = refused {
            return Err(failure);
        }
        Ok(self.session(id)?.ok_or_else(gone)?)
    }

    /// Removes an ended session; its events stay. A live one is left alone.
    pub(crate) fn delete_session(
        &self,
        id: SessionId,
        actor: &str,
    ) -> Result<ConditionalWrite, Failure> {
        let gone = self
            .connection
            .prepare_cached(
                "delete from session
                 where id = ?1 and state = 'ended'
                 returning domain, project, owner",
            )?
            .query_row([id.0.as_bytes()], scope)
            .optional()?;
        let Some(scope) = gone else {
            return Ok(ConditionalWrite::No);
        };
        self.note(NewEvent {
            actor,
            topic: "sessions",
            object: &id.to_string(),
            scope,
            code: "session.deleted",
            before: SessionState::Ended.word(),
            after: "",
        })?;
        Ok(ConditionalWrite::Yes)
    }

    /// Leaves the environment as it is sealed where it is the same as `before`.
    fn store_session(
        &self,
        session: &Session,
        before: &Session,
    ) -> Result<ConditionalWrite, Failure> {
        let same = session.spec.env == before.spec.env;
        let mut values = columns(session, (!same).then_some(self.seal));
        values.push(Box::new(value::signed(before.generation)));
        let written = self
            .connection
            .prepare_cached(&UPDATE)?
            .execute(rusqlite::params_from_iter(values));
        if known_or_taken(written, &session.name)? == 0 {
            return Ok(ConditionalWrite::No);
        }
        self.store_containers(session.id, before.containers(), session.containers())?;
        Ok(ConditionalWrite::Yes)
    }

    fn note_session(
        &self,
        session: &Session,
        actor: &str,
        code: &str,
        before: Option<&Session>,
    ) -> Result<(), Failure> {
        let (before, after) = change_told(before, session);
        self.note(NewEvent {
            actor,
            topic: "sessions",
            object: &session.id.to_string(),
            scope: session.scope(),
            code,
            before: &before,
            after: &after,
        })
    }
}

/// What the journal says a change was: of a name, a request or a priority both values, else the states and the reason for the new
/// one; nothing where neither changed.
fn change_told(before: Option<&Session>, after: &Session) -> (String, String) {
    if let Some(before) = before {
        if before.name != after.name {
            return (before.name.to_string(), after.name.to_string());
        }
        if before.spec.demand != after.spec.demand {
            return (before.spec.demand.figures(), after.spec.demand.figures());
        }
        let [was, is] = [before, after].map(|one| one.precedence.priority);
        if was != is && before.state() == after.state() {
            return (was.to_string(), is.to_string());
        }
    }
    let state = before.map_or("", |before| before.state().word());
    // A reason that stood there before is told already. An end tells it again: by its reason it is known how it went.
    let ends = after.state() == SessionState::Ended;
    let is_told = |before: &Session| {
        !ends && before.state() != after.state() && before.reason == after.reason
    };
    let reason = after
        .reason
        .as_ref()
        .filter(|_| !before.is_some_and(is_told));
    match (reason, after.state().word()) {
        (Some(reason), _) => (state.to_owned(), reason.text.clone()),
        (None, same) if same == state => Default::default(),
        // A launch with sudo says so, in the audit log too.
        (None, now) if before.is_none() && after.sudo => (state.to_owned(), format!("{now}, sudo")),
        (None, now) => (state.to_owned(), now.to_owned()),
    }
}

/// A live session of the same owner has this name.
pub(crate) fn name_taken(name: &SessionName) -> Refusal {
    refusals::session_name_taken(name).at("/name")
}

/// The event that a change of state is, by its words.
fn event_code(before: &Session, after: &Session) -> String {
    if before.state() == after.state() {
        return "session.changed".to_owned();
    }
    match (before.state(), after.state()) {
        (_, SessionState::Pending) => rules::codes::SESSION_RESTARTED.to_owned(),
        (_, phase) => format!("session.{}", phase.word()),
    }
}

fn known_or_taken(written: rusqlite::Result<usize>, name: &SessionName) -> Result<usize, Failure> {
    written.map_err(|error| match &error {
        rusqlite::Error::SqliteFailure(cause, Some(text))
            if cause.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE
                && text.contains("session.name") =>
        {
            name_taken(name).into()
        }
        _ => Failure::from(error),
    })
}

type SqlValue = Box<dyn rusqlite::ToSql>;

/// The values of a row, in the order of `COLUMNS`; without a seal, null for the environment.
fn columns(session: &Session, seal: Option<&Seal>) -> Vec<SqlValue> {
    let spec = &session.spec;
    let image = match &spec.environment {
        SessionEnvironment::Host => None,
        SessionEnvironment::Image { id, .. } => Some(*id.0.as_bytes()),
    };
    let time = |at: Option<rules::units::Timestamp>| at.map(rules::units::Timestamp::as_millis);
    vec![
        Box::new(*session.id.0.as_bytes()),
        Box::new(session.name.to_string()),
        Box::new(*session.owner.0.as_bytes()),
        Box::new(value::text(&session.remarks.labels)),
        Box::new(session.remarks.description.clone()),
        Box::new(kind_word(spec.kind)),
        Box::new(image),
        Box::new(spec.environment.word().to_owned()),
        Box::new(value::text(&spec.command)),
        Box::new(seal.map(|seal| seal.environment(session))),
        Box::new(spec.demand.cpu.0),
        Box::new(value::signed(spec.demand.memory.0)),
        Box::new(value::signed(spec.demand.shm.0)),
        Box::new(spec.demand.gpu.0),
        Box::new(spec.demand.gpu_memory.map(|bytes| value::signed(bytes.0))),
        Box::new(spec.demand.mig.map(|profile| profile.to_string())),
        Box::new(spec.demand.disk.map(|bytes| value::signed(bytes.0))),
        Box::new(spec.timeout_seconds.map(value::signed)),
        Box::new(spec.max_runtime_seconds.map(value::signed)),
        Box::new(time(spec.start_at)),
        Box::new(value::text(&spec.depends_on)),
        Box::new(session.state().word()),
        Box::new(time(session.scheduled_at())),
        Box::new(time(session.started_at())),
        Box::new(time(session.stopping_at())),
        Box::new(time(session.ended_at())),
        Box::new(session.outcome().map(Outcome::word)),
        Box::new(session.exit_code()),
        Box::new(session.desired.word()),
        Box::new(session.paused),
        Box::new(session.restart),
        Box::new(session.incarnation),
        Box::new(value::signed(session.generation)),
        Box::new(session.device_affinity.clone()),
        Box::new(session.document_gone),
        Box::new(session.created_at.as_millis()),
        Box::new(session.queued_at.as_millis()),
        Box::new(session.reason.as_ref().map(value::text)),
        Box::new(value::text(&session.incidents)),
        Box::new(*session.domain.0.as_bytes()),
        Box::new(*session.project.0.as_bytes()),
        Box::new(session.held_by.as_ref().map(ToString::to_string)),
        Box::new(value::signed(session.queued_before)),
        Box::new(session.backfilled),
        Box::new(session.precedence.priority),
        Box::new(session.precedence.yields),
        Box::new(session.preempted_count),
        Box::new(value::text(&session.mounts)),
        Box::new(session.egress.as_ref().map(value::text)),
        Box::new(value::text(&session.start_up)),
        Box::new(session.sudo),
        Box::new(session.ulimits.to_string()),
        Box::new(session.apps.to_string()),
        Box::new(spec.containers),
    ]
}
