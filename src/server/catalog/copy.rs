//! Copies of the catalog's file: made while a server writes, looked through, and put in another's place.
//! Never changes a row of the catalog it copies from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base::observe::Clock;
use rules::continuity::Claim;
use rules::findings::{InvariantFinding, findings};
use rules::names::{ContainerName, NodeId};
use rules::reasons;
use rules::refusals;
use rules::session::Outcome;
use rules::units::Timestamp;
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::{Catalog, CatalogPlace, Lane, files, migrate};
use crate::{Failure, ServerFault};

/// What a copy says of itself.
pub(crate) struct Copied {
    pub(crate) version: u32,
    pub(crate) installation_id: Uuid,
    pub(crate) size: u64,
}

/// What was found in a catalog that was opened for a look.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Inspection {
    /// Version of the schema it came with.
    pub catalog_version: u32,
    pub users: u64,
    pub sessions: u64,
    pub images: u64,
    pub events: u64,
    /// What SQLite finds broken in the file; empty for a sound one.
    pub damage: Vec<String>,
    /// Broken invariants of the rows; empty for a sound one.
    pub findings: Vec<InvariantFinding>,
}

impl Inspection {
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.findings.is_empty()
    }
}

/// What was seen of a catalog that may be in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogInspection {
    /// Version of its schema.
    pub version: u32,
    /// What SQLite finds broken in the file.
    pub damage: Vec<String>,
    /// Broken invariants of the rows. None where the file is damaged or of another version.
    pub findings: Option<Vec<InvariantFinding>>,
}

/// Looks at the catalog in `data` without changing anything; a server may run. None where there is
/// none. Costs reading the whole file.
pub(crate) fn look(data: &Path) -> Result<Option<CatalogInspection>, Failure> {
    let path = file(data);
    if !path.exists() {
        return Ok(None);
    }
    let place = CatalogPlace::Directory(data.to_owned());
    let connection = files::reader(&path)?;
    let version = connection
        .query_row("pragma user_version", [], |row| row.get(0))
        .map_err(|error| files::unreadable(&place, error))?;
    let damage = damage(&connection)?;
    let findings = if damage.is_empty() && version == newest_version() {
        let heard = super::node_cache::NodeCache::default();
        let seal = super::sealing::for_a_look(&connection, data)?;
        Some(findings(
            &super::ReadTransaction::new(&connection, &heard, &seal).world()?,
        ))
    } else {
        None
    };
    Ok(Some(CatalogInspection {
        version,
        damage,
        findings,
    }))
}

/// The catalog's file in a data directory.
pub(crate) fn file(data: &Path) -> PathBuf {
    data.join(files::FILE)
}

/// Newest schema that this program knows.
pub(crate) fn newest_version() -> u32 {
    u32::try_from(migrate::STEPS.len()).unwrap_or(u32::MAX)
}

/// Copies the catalog in `data` to the file `to`, which must not exist, as it is at one moment; a
/// server may write meanwhile, in this process or another. Sign-ins of browsers, sign-in
/// links and answers kept for keys stay behind: a reader of the backup must not find them. Costs reading and
/// writing the whole file once.
///
/// Errors: `state.missing`, `disk.full`, refusals for a file that is no catalog.
pub(crate) fn copy(data: &Path, to: &Path) -> Result<Copied, Failure> {
    let from = file(data);
    if !from.exists() {
        return Err(missing(data).into());
    }
    let place = CatalogPlace::Directory(data.to_owned());
    let source = files::reader(&from)?;
    files::make_file(to)?;
    let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => super::disk_full().into(),
        _ => files::unreadable(&place, error),
    };
    let mut target = Connection::open(to).map_err(failed)?;
    Backup::new(&source, &mut target)
        .and_then(|backup| backup.run_to_completion(i32::MAX, std::time::Duration::ZERO, None))
        .map_err(failed)?;
    target
        .execute_batch(
            "pragma journal_mode = delete;
             pragma secure_delete = on;
             delete from browser_session;
             delete from idempotency;",
        )
        .map_err(failed)?;
    // Used links would work again where the copy is restored. A catalog of an older program has none.
    let has_links: bool = target
        .query_row(
            "select exists (select 1 from sqlite_schema where type = 'table' and name = 'sign_in_link')",
            [],
            |row| row.get(0),
        )
        .map_err(failed)?;
    if has_links {
        target
            .execute_batch("delete from sign_in_link;")
            .map_err(failed)?;
    }
    let (table, id) = identity(&target).map_err(failed)?;
    let (version, installation_id) = target
        .query_row(
            &format!(
                "select user_version, (select {id} from {table} where id = 1)
                 from pragma_user_version"
            ),
            [],
            |row| Ok((row.get::<_, u32>(0)?, Uuid::from_bytes(row.get(1)?))),
        )
        .map_err(failed)?;
    target.close().map_err(|(_, error)| failed(error))?;
    let size = std::fs::metadata(to)
        .map_err(|error| ServerFault::new("measure a copy of the catalog", error))?
        .len();
    Ok(Copied {
        version,
        installation_id,
        size,
    })
}

/// Looks whether the key in `data` decrypts what is sealed in the file `copied` of a catalog. A catalog of
/// another version holds nothing that this program can look for.
///
/// Errors: `state.key-missing`, `state.key-foreign`, `state.key-unreadable`.
pub(crate) fn look_for_key(copied: &Path, version: u32, data: &Path) -> Result<(), Failure> {
    if version != newest_version() {
        return Ok(());
    }
    let place = CatalogPlace::Directory(data.to_owned());
    let connection = Connection::open(copied).map_err(|error| files::unreadable(&place, error))?;
    super::sealing::for_a_look(&connection, data).map(drop)
}

/// Opens the catalog in `data` as a server would, up the ladder included, looks through all of it,
/// and closes it. For copies only: it may change the schema.
///
/// Errors: as opening; damage and findings are answers, not errors.
pub(crate) fn inspect(data: &Path) -> Result<Inspection, Failure> {
    let version = version_of(&file(data))?;
    let catalog = Catalog::open(&CatalogPlace::Directory(data.to_owned()), Clock::system())?;
    let mut found = catalog.read_now("look through a copy", |view| {
        let damage = damage(view.connection)?;
        let count = |table: &str| {
            view.connection
                .query_row(&format!("select count(*) from {table}"), [], |row| {
                    row.get::<_, i64>(0)
                })
                .map(|n| u64::try_from(n).unwrap_or(0))
        };
        Ok(Inspection {
            catalog_version: version,
            users: count("user where removed_at is null and name <> 'root'")?,
            sessions: count("session")?,
            images: count("image")?,
            events: count("event")?,
            // Rows of a damaged file may not even be readable.
            findings: if damage.is_empty() {
                findings(&view.world()?)
            } else {
                Vec::new()
            },
            damage,
        })
    })?;
    drop(catalog);
    settle(data)?;
    found.damage.truncate(20);
    Ok(found)
}

/// Ends, as lost, every session that has a place and whose container is not among those that the machine
/// knows which takes this copy up: it ran elsewhere, and must not begin a second time. Those that may
/// start again by themselves do. Gives how many there were. What lies in the trash stays there for its whole time from now
/// on. For copies only.
///
/// Errors: as opening.
pub(crate) fn end_elsewhere(data: &Path, known: &BTreeSet<ContainerName>) -> Result<u64, Failure> {
    const WHAT: &str = "end what ran on another machine";
    let catalog = Catalog::open(&CatalogPlace::Directory(data.to_owned()), Clock::system())?;
    let world = catalog.read_now(WHAT, |view| view.world())?;
    let gone: Vec<_> = world
        .sessions
        .iter()
        .filter(|session| {
            let mut live = session.live_containers();
            live.any(|container| !known.contains(&session.container_name(container.index)))
        })
        .map(|session| session.id)
        .collect();
    let count = gone.len() as u64;
    catalog.write_now(Lane::Loops, WHAT, move |rows| {
        let now = rows.now;
        rows.stop_ledger()?;
        rows.keep_trash()?;
        for id in gone {
            rows.change_session(id, None, "restore", None, |session| {
                session.reason = Some(reasons::session_container_gone());
                session.end(Outcome::Lost, None, now);
                true
            })?;
        }
        Ok(())
    })?;
    drop(catalog);
    settle(data)?;
    Ok(count)
}

/// What SQLite finds broken: pages, indexes, references. Costs reading the whole file.
fn damage(connection: &Connection) -> Result<Vec<String>, Failure> {
    match look_for_damage(connection) {
        // Broken so badly that even looking fails.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
            Ok(vec![error.to_string()])
        }
        found => Ok(found?),
    }
}

fn look_for_damage(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("pragma quick_check(20)")?;
    let mut found: Vec<String> = statement
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    found.retain(|line| line != "ok");
    let mut statement = connection.prepare("pragma foreign_key_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let table: String = row.get(0)?;
        found.push(format!("a row of {table} refers to one that is not there"));
    }
    Ok(found)
}

/// What SQLite finds broken in one catalog file; empty for a sound one.
///
/// Errors: refusals for a file that is no catalog.
pub(crate) fn damage_of(path: &Path) -> Result<Vec<String>, Failure> {
    let place = CatalogPlace::Directory(path.parent().unwrap_or(path).to_owned());
    let connection = Connection::open(path).map_err(|error| files::unreadable(&place, error))?;
    damage(&connection)
}

/// The version of the schema in a catalog's file.
///
/// Errors: refusals for a file that is no catalog.
pub(crate) fn version_of(path: &Path) -> Result<u32, Failure> {
    let place = CatalogPlace::Directory(path.parent().unwrap_or(path).to_owned());
    let failed = |error| files::unreadable(&place, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection
        .query_row("pragma user_version", [], |row| row.get(0))
        .map_err(failed)
}

/// The table and the column that hold the id of the installation, in a catalog of any version.
fn identity(connection: &Connection) -> rusqlite::Result<(&'static str, &'static str)> {
    let renamed: bool = connection.query_row(
        "select exists (select 1 from sqlite_schema where type = 'table' and name = 'installation')",
        [],
        |row| row.get(0),
    )?;
    Ok(match renamed {
        true => ("installation", "installation_id"),
        false => ("box", "box_id"),
    })
}

/// The machine that the catalog in `data` was founded on.
pub(crate) fn node_of(data: &Path) -> Result<NodeId, Failure> {
    let place = CatalogPlace::Directory(data.to_owned());
    let failed = |error| files::unreadable(&place, error);
    let connection = Connection::open(file(data)).map_err(failed)?;
    let (table, _) = identity(&connection).map_err(failed)?;
    let query = format!("select node_id from {table} where id = 1");
    let id = connection
        .query_row(&query, [], |row| row.get(0))
        .map_err(failed)?;
    Ok(NodeId(Uuid::from_bytes(id)))
}

/// What the catalog in `data` claims of `node`, or of the machine it was founded on.
///
/// Errors: `state.missing`, refusals for a file that is no catalog.
pub(crate) fn claim(data: &Path, node: Option<NodeId>) -> Result<Claim, Failure> {
    let path = file(data);
    if !path.exists() {
        return Err(missing(data).into());
    }
    let place = CatalogPlace::Directory(data.to_owned());
    let failed = |error| files::unreadable(&place, error);
    let connection = files::reader(&path)?;
    let (table, id) = identity(&connection).map_err(failed)?;
    connection
        .query_row(
            &format!(
                "select {id},
                        coalesce((select generation from assignment
                                  where node = coalesce(?1, node_id)), 0),
                        coalesce((select generation from node where id = coalesce(?1, node_id)), 0)
                 from {table}
                 where id = 1"
            ),
            [node.map(|node| node.0.into_bytes())],
            |row| {
                let number = |at| -> rusqlite::Result<u64> {
                    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0))
                };
                Ok(Claim {
                    state: Uuid::from_bytes(row.get(0)?),
                    told: number(1)?,
                    confirmed: number(2)?,
                })
            },
        )
        .map_err(failed)
}

/// Copies of the catalog that were kept before its schema was raised, oldest first: version and file.
pub(crate) fn kept(data: &Path) -> Vec<(u32, PathBuf)> {
    let prefix = migrate::prefix();
    let mut kept: Vec<(u32, PathBuf)> = std::fs::read_dir(data)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry
                .file_name()
                .to_str()?
                .strip_prefix(&prefix)?
                .parse()
                .ok()?;
            Some((version, entry.path()))
        })
        .collect();
    kept.sort();
    kept
}

/// What one catalog records and another does not.
pub(crate) struct Since {
    /// Events by code, the most frequent first.
    pub(crate) codes: Vec<(String, u64)>,
    /// When the first of them was.
    pub(crate) first: Option<Timestamp>,
}

/// What `now` records that `then` does not. None where the two cannot be compared.
pub(crate) fn since(then: &Path, now: &Path) -> Option<Since> {
    let newest: i64 = Connection::open(then)
        .ok()?
        .query_row("select coalesce(max(sequence), 0) from event", [], |row| {
            row.get(0)
        })
        .ok()?;
    let connection = Connection::open(now).ok()?;
    let first: Option<i64> = connection
        .query_row(
            "select min(at) from event where sequence > ?1",
            [newest],
            |row| row.get(0),
        )
        .ok()?;
    let mut statement = connection
        .prepare(
            "select code, count(*) from event
             where sequence > ?1
             group by code
             order by count(*) desc, code",
        )
        .ok()?;
    let rows = statement
        .query_map([newest], |row| {
            Ok((
                row.get(0)?,
                u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
            ))
        })
        .ok()?;
    let codes = rows.collect::<rusqlite::Result<_>>().ok()?;
    Some(Since {
        codes,
        first: first.map(Timestamp::from_millis),
    })
}

/// Brings the log home and leaves the catalog in `data` as one file alone. No other process may have it open.
pub(crate) fn settle(data: &Path) -> Result<(), Failure> {
    let place = CatalogPlace::Directory(data.to_owned());
    let connection =
        Connection::open(file(data)).map_err(|error| files::unreadable(&place, error))?;
    connection
        .query_row("pragma journal_mode = delete", [], |_| Ok(()))
        .map_err(|error| files::unreadable(&place, error))?;
    Ok(())
}

/// Holds the state in `data` against servers and other restores while it lives.
///
/// Errors: `server.already-running` with the process' number.
pub(crate) fn hold(data: &Path) -> Result<impl Sized, Failure> {
    files::make_directory(data)?;
    Ok(files::lock(data)?)
}

fn missing(data: &Path) -> rules::refusal::Refusal {
    refusals::state_missing(data.display())
}

/// Makes the catalog in `data` one of another version, for tests.
#[cfg(test)]
pub(crate) fn pretend_version(data: &Path, version: u32) {
    let connection = Connection::open(file(data)).unwrap();
    connection
        .execute_batch(&format!("pragma user_version = {version}"))
        .unwrap();
}

/// Does what a newer program would do at its start: keeps a copy, then raises the schema by one.
#[cfg(test)]
pub(crate) fn pretend_upgrade(data: &Path) {
    let mut steps = migrate::STEPS.to_vec();
    steps.push("create table of_the_future (id integer primary key) strict;");
    let mut connection = Connection::open(file(data)).unwrap();
    migrate::climb_to(
        &mut connection,
        &CatalogPlace::Directory(data.to_owned()),
        &steps,
    )
    .unwrap();
}

/// Gives the catalog in `data` that many more users and events, for tests of size.
#[cfg(test)]
pub(crate) fn pretend_history(data: &Path, users: u32, events: u32) {
    let connection = Connection::open(file(data)).unwrap();
    connection
        .execute_batch(&format!(
            "begin;
             with recursive n(i) as (select 1 union all select i + 1 from n where i < {users})
             insert into user (id, name, language, theme, time_zone, suspended, password,
                                 created_at, generation)
             select randomblob(16), 'user-' || i, 'ko', 'system', 'Asia/Seoul', 0,
                    '$argon2id$v=19$m=19456,t=2,p=1$' || hex(randomblob(16)) || '$' || hex(randomblob(16)),
                    1800000000000 + i, 1
             from n;
             with recursive n(i) as (select 1 union all select i + 1 from n where i < {events})
             insert into event (at, actor, topic, object, owner, code, before, after)
             select 1800000000000 + i * 1000, 'user-' || (i % 10000), 'sessions',
                    lower(hex(randomblob(16))), null, 'session.running', 'preparing', 'running'
             from n;
             commit;"
        ))
        .unwrap();
}
