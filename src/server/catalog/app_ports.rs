//! Rows of the ports that apps are opened at. Decides nothing; which one an app gets, `rules::app_port` says.

use rules::app::AppChoice;
use rules::app_port::{AppPort, AppPortCookie};
use rules::names::{SessionId, UserId};
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

const COLUMNS: &str = "port, owner, app, session, inner_port, opened_at, used_at, passed_at";

fn port_row(row: &Row<'_>) -> rusqlite::Result<AppPort> {
    Ok(AppPort {
        port: row.get("port")?,
        owner: UserId(value::id(row, "owner")?),
        app: value::word(row, "app", |text| AppChoice::parse(text).ok())?,
        session: value::id_or_none(row, "session")?.map(SessionId),
        inner_port: row.get("inner_port")?,
        opened_at: value::time(row, "opened_at")?,
        used_at: value::time(row, "used_at")?,
        passed_at: value::time_or_none(row, "passed_at")?,
    })
}

impl ReadTransaction<'_> {
    /// All ports that apps have or had, by number: some hundred at most.
    pub(crate) fn app_ports(&self) -> Result<Vec<AppPort>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached(&format!("select {COLUMNS} from app_port order by port"))?;
        let rows = statement.query_map([], port_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Who has a port. Costs one look by key.
    pub(crate) fn app_port(&self, port: u16) -> Result<Option<AppPort>, Failure> {
        let found = self
            .connection
            .prepare_cached(&format!("select {COLUMNS} from app_port where port = ?1"))?
            .query_row([port], port_row)
            .optional()?;
        Ok(found)
    }

    /// The cookies that apps at ports set: some dozens for each port at most.
    pub(crate) fn app_cookies(&self) -> Result<Vec<AppPortCookie>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select app_cookie.port, name, passed_at
             from app_cookie
             join app_port on app_port.port = app_cookie.port
             order by app_cookie.port, name",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(AppPortCookie {
                port: row.get("port")?,
                name: row.get("name")?,
                passed_at: value::time_or_none(row, "passed_at")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The ports that lead into a session. Costs one range of an index.
    pub(crate) fn app_ports_of(&self, session: SessionId) -> Result<Vec<AppPort>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS} from app_port where session = ?1 order by port"
        ))?;
        let rows = statement.query_map([session.0.as_bytes()], port_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Lets a port lead to an app, in place of where it led, and of the port that led there. That one rests as its owner's,
    /// for browsers may hold what the app left there, unless no visitor came and no other app had it.
    pub(crate) fn put_app_port(&self, port: &AppPort) -> Result<(), Failure> {
        let session = port.session.map(|id| *id.0.as_bytes());
        let app = port.app.to_string();
        self.connection
            .prepare_cached(
                "delete from app_port
                 where session = ?1 and app = ?2 and port <> ?3
                 and opened_at = used_at and passed_at is null",
            )?
            .execute((session, &app, port.port))?;
        self.connection
            .prepare_cached(
                "update app_port set session = null
                 where session = ?1 and app = ?2 and port <> ?3",
            )?
            .execute((session, &app, port.port))?;
        self.connection
            .prepare_cached(
                "delete from app_cookie
                 where port = ?1
                 and exists (
                     select 1 from app_port where port = ?1 and (owner <> ?2 or app <> ?3)
                 )",
            )?
            .execute((port.port, port.owner.0.as_bytes(), &app))?;
        self.connection
            .prepare_cached(
                "insert into app_port
                     (port, owner, app, session, inner_port, opened_at, used_at, passed_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 on conflict (port) do update
                 set owner = excluded.owner,
                     app = excluded.app,
                     session = excluded.session,
                     inner_port = excluded.inner_port,
                     opened_at = excluded.opened_at,
                     used_at = excluded.used_at,
                     passed_at = excluded.passed_at",
            )?
            .execute((
                port.port,
                port.owner.0.as_bytes(),
                &app,
                session,
                port.inner_port,
                port.opened_at.as_millis(),
                port.used_at.as_millis(),
                port.passed_at.map(|at| at.as_millis()),
            ))?;
        Ok(())
    }

    /// Keeps cookies that the app at a port sets; none where nothing has the port any more.
    pub(crate) fn add_app_cookies(&self, port: u16, names: &[String]) -> Result<(), Failure> {
        let mut statement = self.connection.prepare_cached(
            "insert or ignore into app_cookie (port, name)
             select port, ?2 from app_port where port = ?1",
        )?;
        for name in names {
            statement.execute((port, name))?;
        }
        Ok(())
    }

    /// Keeps when a port was used last, unless another app has it meanwhile.
    pub(crate) fn touch_app_port(&self, at: &AppPort) -> Result<(), Failure> {
        let app = at.app.to_string();
        self.connection
            .prepare_cached(
                "update app_port set used_at = ?4
                 where port = ?1 and owner = ?2 and app = ?3",
            )?
            .execute((at.port, at.owner.0.as_bytes(), &app, self.now.as_millis()))?;
        Ok(())
    }
}
