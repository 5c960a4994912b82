//! Session rows. Every write names the generation it was decided from and raises it; a row that
//! changed meanwhile is left alone. What a move means is `rules::session`'s.

use std::collections::BTreeMap;

use rules::devices::MigProfile;
use rules::names::{ImageId, NodeId, SessionId, SessionName, UserId};
use rules::refusal::Refusal;
use rules::resources::Demand;
use rules::session::{
    DesiredState, Outcome, Session, SessionEnvironment, SessionKind, SessionSpec, SessionState,
};
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::{Bytes, CpuShare, GpuShare};
use rules::world::ClusterSnapshot;
use rusqlite::{OptionalExtension as _, Row};

use super::events::NewEvent;
use super::reader::ReadTransaction;
use super::sealing::{Seal, SealedRow};
use super::value;
use super::writer::Rows;
use crate::Failure;

pub(super) const COLUMNS: &str = "id, name, owner, labels, kind, image, image_reference, command, env, \
    cpu, memory, shm, gpu, timeout_seconds, longest_run_seconds, start_at, depends_on, \
    phase, wish, paused, restart, incarnation, generation, node, devices, \
    created_at, queued_at, scheduled_at, started_at, stopping_at, ended_at, \
    outcome, exit_code, reason, gpu_memory, mig, unconfirmed, incidents, only_on, document_gone, \
    domain, project";

/// Reads the columns by place, in the order of `COLUMNS`: by name, each would cost a search through
/// all names, and whole worlds are read all day.
pub(super) fn from_row(row: &Row<'_>, seal: &Seal) -> rusqlite::Result<Session> {
    let mut column = 0;
    let mut next = || {
        column += 1;
        column - 1
    };
    let mut session = Session {
        id: SessionId(value::id(row, next())?),
        name: value::word(row, next(), |text| SessionName::parse(text).ok())?,
        owner: UserId(value::id(row, next())?),
        domain: DomainId::DEFAULT,
        project: ProjectId::DEFAULT,
        labels: value::json(row, next())?,
        order: SessionSpec {
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
                gpu_memory: None,
                mig: None,
            },
            timeout_seconds: value::unsigned_or_none(row, next())?,
            longest_run_seconds: value::unsigned_or_none(row, next())?,
            start_at: value::time_or_none(row, next())?,
            depends_on: value::json(row, next())?,
        },
        phase: value::word(row, next(), SessionState::parse)?,
        wish: value::word(row, next(), DesiredState::parse)?,
        paused: row.get(next())?,
        restart: row.get(next())?,
        incarnation: row.get(next())?,
        generation: value::unsigned(row, next())?,
        node: value::id_or_none(row, next())?.map(NodeId),
        devices: value::json(row, next())?,
        unconfirmed: Vec::new(),
        incidents: Vec::new(),
        only_on: None,
        document_gone: false,
        created_at: value::time(row, next())?,
        queued_at: value::time(row, next())?,
        scheduled_at: value::time_or_none(row, next())?,
        started_at: value::time_or_none(row, next())?,
        stopping_at: value::time_or_none(row, next())?,
        ended_at: value::time_or_none(row, next())?,
        outcome: {
            let at = next();
            row.get::<_, Option<String>>(at)?
                .map(|_| value::word(row, at, Outcome::parse))
                .transpose()?
        },
        exit_code: row.get(next())?,
        reason: value::json_or_none(row, next())?,
    };
    // Columns of a later step of the schema stand last.
    session.order.demand.gpu_memory = value::unsigned_or_none(row, next())?.map(Bytes);
    session.order.demand.mig = {
        let at = next();
        row.get::<_, Option<String>>(at)?
            .map(|_| value::word(row, at, |text| MigProfile::parse(text).ok()))
            .transpose()?
    };
    session.unconfirmed = value::json(row, next())?;
    session.incidents = value::json(row, next())?;
    session.only_on = row.get(next())?;
    session.document_gone = row.get(next())?;
    session.domain = DomainId(value::id(row, next())?);
    session.project = ProjectId(value::id(row, next())?);
    Ok(session)
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
            .prepare_cached(&format!("select {COLUMNS} from session where id = ?1"))?
            .query_row([id.0.as_bytes()], |row| from_row(row, self.seal))
            .optional()?)
    }

    /// Live sessions, oldest first. Of rows that are unchanged since this process
    /// read them, only the generation is read.
    pub(crate) fn live_sessions(&self) -> Result<Vec<Session>, Failure> {
        if let Some(live) = self.live {
            let mut statement = self.connection.prepare_cached(
                "select id, generation
                 from session
                 where phase <> 'ended'
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
            "select {COLUMNS}
             from session
             where phase <> 'ended'
             order by created_at, id"
        ))?;
        let rows = statement.query_map([], |row| from_row(row, self.seal))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Everything a decision may look at, as of one moment. Costs one visit a live session; 2,000
    /// of them take some milliseconds.
    pub(crate) fn world(&self) -> Result<ClusterSnapshot, Failure> {
        let sessions = self.live_sessions()?;
        let mut ended = BTreeMap::new();
        let live: std::collections::BTreeSet<SessionId> = sessions.iter().map(|s| s.id).collect();
        let mut outcome = self
            .connection
            .prepare_cached("select outcome from session where id = ?1 and phase = 'ended'")?;
        for id in sessions.iter().flat_map(|s| &s.order.depends_on) {
            if live.contains(id) || ended.contains_key(id) {
                continue;
            }
            let found = outcome
                .query_row([id.0.as_bytes()], |row| {
                    value::word(row, "outcome", Outcome::parse)
                })
                .optional()?;
            if let Some(found) = found {
                ended.insert(*id, Some(found));
            }
        }
        Ok(ClusterSnapshot {
            revision: self.revision()?,
            sessions,
            ended,
            nodes: self.nodes()?,
            policy: self.policy(),
            served: self.served()?,
        })
    }

    /// How many sessions of a person wait for a place. Costs one step of an index each.
    pub(crate) fn waiting_of(&self, owner: UserId) -> Result<u32, Failure> {
        Ok(self
            .connection
            .prepare_cached("select count(*) from session where owner = ?1 and phase = 'pending'")?
            .query_row([owner.0.as_bytes()], |row| row.get(0))?)
    }

    /// Bytes of commands and variables of the sessions of a person that wait for a place. Costs one visit of
    /// each, without reading them.
    pub(crate) fn waiting_bytes_of(&self, owner: UserId) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select coalesce(sum(octet_length(command) + octet_length(env)), 0) as bytes
                 from session
                 where owner = ?1 and phase = 'pending'",
            )?
            .query_row([owner.0.as_bytes()], |row| value::unsigned(row, "bytes"))?)
    }

    /// The revision of the newest commit that this view sees.
    pub(crate) fn revision(&self) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached("select revision from box where id = 1")?
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
            .prepare_cached(&format!(
                "insert into session ({COLUMNS})
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
                         ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32,
                         ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41, ?42)"
            ))?
            .execute(rusqlite::params_from_iter(columns(
                session,
                Some(self.seal),
            )));
        known_or_taken(written, &session.name)?;
        self.note_session(session, actor, "session.accepted", "")
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
        after.generation = before.generation + 1;
        if self.store_session(&after, &before)? == ConditionalWrite::No {
            return Ok(ConditionalWrite::No);
        }
        if let Some(at) = after
            .scheduled_at
            .filter(|at| before.scheduled_at != Some(*at))
        {
            self.put_served(after.owner, at)?;
        }
        if after.phase == SessionState::Ended && before.phase != SessionState::Ended {
            self.bound_ended(after.owner)?;
        }
        let code = code.map_or_else(|| event_code(&before, &after), str::to_owned);
        self.note_session(&after, actor, &code, before.phase.word())?;
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
        let gone = || Refusal::not_found("session.not-found", "There is no such session.");
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
                 where id = ?1 and phase = 'ended'
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
        let same = session.order.env == before.order.env;
        let mut values = columns(session, (!same).then_some(self.seal));
        values.push(Box::new(value::signed(before.generation)));
        let written = self
            .connection
            .prepare_cached(
                "update session
                 set name = ?2, owner = ?3, labels = ?4, kind = ?5, image = ?6,
                     image_reference = ?7, command = ?8, env = coalesce(?9, env),
                     cpu = ?10, memory = ?11, shm = ?12, gpu = ?13, timeout_seconds = ?14, longest_run_seconds = ?15,
                     start_at = ?16, depends_on = ?17, phase = ?18, wish = ?19, paused = ?20,
                     restart = ?21, incarnation = ?22, generation = ?23, node = ?24, devices = ?25,
                     created_at = ?26, queued_at = ?27, scheduled_at = ?28, started_at = ?29,
                     stopping_at = ?30, ended_at = ?31, outcome = ?32, exit_code = ?33, reason = ?34,
                     gpu_memory = ?35, mig = ?36, unconfirmed = ?37, incidents = ?38,
                     only_on = ?39, document_gone = ?40, domain = ?41, project = ?42
                 where id = ?1 and generation = ?43",
            )?
            .execute(rusqlite::params_from_iter(values));
        Ok(match known_or_taken(written, &session.name)? {
            0 => ConditionalWrite::No,
            _ => ConditionalWrite::Yes,
        })
    }

    fn note_session(
        &self,
        session: &Session,
        actor: &str,
        code: &str,
        before: &str,
    ) -> Result<(), Failure> {
        self.note(NewEvent {
            actor,
            topic: "sessions",
            object: &session.id.to_string(),
            scope: session.scope(),
            code,
            before,
            after: session
                .reason
                .as_ref()
                .map_or(session.phase.word(), |reason| reason.text.as_str()),
        })
    }
}

/// A live session of the same owner has this name.
pub(crate) fn name_taken(name: &SessionName) -> Refusal {
    Refusal::conflict(
        "session.name-taken",
        format!("There is already a session called {name} that is not over."),
    )
    .with("name", name)
    .at("/name")
    .hint("Choose another name, or leave it out to get one.")
}

/// The event that a change of phase or wish is, by its words.
fn event_code(before: &Session, after: &Session) -> String {
    if before.phase == after.phase {
        return "session.changed".to_owned();
    }
    match (before.phase, after.phase) {
        (_, SessionState::Pending) => "session.restarted".to_owned(),
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
    let order = &session.order;
    let image = match &order.environment {
        SessionEnvironment::Host => None,
        SessionEnvironment::Image { id, .. } => Some(*id.0.as_bytes()),
    };
    let time = |at: Option<rules::units::Timestamp>| at.map(rules::units::Timestamp::as_millis);
    vec![
        Box::new(*session.id.0.as_bytes()),
        Box::new(session.name.to_string()),
        Box::new(*session.owner.0.as_bytes()),
        Box::new(value::text(&session.labels)),
        Box::new(kind_word(order.kind)),
        Box::new(image),
        Box::new(order.environment.word().to_owned()),
        Box::new(value::text(&order.command)),
        Box::new(seal.map(|seal| seal.environment(session))),
        Box::new(order.demand.cpu.0),
        Box::new(value::signed(order.demand.memory.0)),
        Box::new(value::signed(order.demand.shm.0)),
        Box::new(order.demand.gpu.0),
        Box::new(order.timeout_seconds.map(value::signed)),
        Box::new(order.longest_run_seconds.map(value::signed)),
        Box::new(time(order.start_at)),
        Box::new(value::text(&order.depends_on)),
        Box::new(session.phase.word()),
        Box::new(session.wish.word()),
        Box::new(session.paused),
        Box::new(session.restart),
        Box::new(session.incarnation),
        Box::new(value::signed(session.generation)),
        Box::new(session.node.map(|id| *id.0.as_bytes())),
        Box::new(value::text(&session.devices)),
        Box::new(session.created_at.as_millis()),
        Box::new(session.queued_at.as_millis()),
        Box::new(time(session.scheduled_at)),
        Box::new(time(session.started_at)),
        Box::new(time(session.stopping_at)),
        Box::new(time(session.ended_at)),
        Box::new(session.outcome.map(Outcome::word)),
        Box::new(session.exit_code),
        Box::new(session.reason.as_ref().map(value::text)),
        Box::new(order.demand.gpu_memory.map(|bytes| value::signed(bytes.0))),
        Box::new(order.demand.mig.map(|profile| profile.to_string())),
        Box::new(value::text(&session.unconfirmed)),
        Box::new(value::text(&session.incidents)),
        Box::new(session.only_on.clone()),
        Box::new(session.document_gone),
        Box::new(*session.domain.0.as_bytes()),
        Box::new(*session.project.0.as_bytes()),
    ]
}
