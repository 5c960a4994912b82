//! Opens the catalog, or founds it: whether its directory may hold it, its schema, and the few settings of SQLite
//! that durability rests on.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base::observe::{Clock, random};
use rules::names::NodeId;
use rules::refusal::Refusal;
use rules::refusals;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::files::{
    FILE, StateLock, connect, lock, make_directory, make_file, unreadable, unwritable,
};
use super::reserve::Reserve;
use super::{CatalogPlace, migrate, sealing, users};
use crate::{Failure, ServerFault};

/// Drawn once when the box was founded; never changes.
#[derive(Clone)]
pub(crate) struct Founding {
    pub(crate) installation_id: Uuid,
    /// The machine this server stands on, as a node.
    pub(crate) node: NodeId,
    /// Signs the cursors of lists.
    pub(crate) cursor_key: [u8; 32],
}

pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) readers: Readers,
    pub(super) revision: u64,
    pub(super) founding: Founding,
    pub(super) seal: sealing::Seal,
    pub(super) lock: Option<StateLock>,
    pub(super) reserve: Option<Reserve>,
}

pub(super) enum Readers {
    Path(PathBuf),
    Shared,
}

/// Bytes of the log that stay on disk once SQLite brought it home; as many as the reserve holds for it. Higher:
/// one large commit takes disk for good. Lower: a full disk has less room for stops.
const LOG_KEPT: u64 = super::reserve::LOG;

pub(super) fn open(place: &CatalogPlace, clock: &Clock) -> Result<Opened, Failure> {
    let (mut writer, readers, lock, reserve) = match place {
        CatalogPlace::Memory => (
            Connection::open_in_memory()
                .map_err(|error| ServerFault::new("open a catalog in memory", error))?,
            Readers::Shared,
            None,
            None,
        ),
        CatalogPlace::Directory(directory) => {
            make_directory(directory)?;
            ground(directory)?;
            let lock = lock(directory)?;
            close_kept(directory);
            let path = directory.join(FILE);
            let reserve = Reserve::new(make_file(&path)?);
            (
                connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?,
                Readers::Path(path),
                Some(lock),
                Some(reserve),
            )
        }
    };
    settle(&writer, place).map_err(|error| unreadable(place, error))?;
    migrate::climb(&mut writer, place)?;
    found(&writer, clock).map_err(|error| unreadable(place, error))?;
    let seal = sealing::take(&writer, place)?;
    sealing::seal_old_rows(&mut writer, &seal, clock).map_err(|error| unreadable(place, error))?;
    if let (Some(reserve), Readers::Path(path)) = (&reserve, &readers) {
        reserve.take_log(path);
        reserve.keep();
    }
    let (founding, revision) = read(&writer).map_err(|error| unreadable(place, error))?;
    Ok(Opened {
        writer,
        readers,
        revision,
        founding,
        seal,
        lock,
        reserve,
    })
}

/// Takes everybody else's right to read away from copies that earlier versions kept.
fn close_kept(directory: &Path) {
    for (_, path) in super::copy::kept(directory) {
        let closed = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
        if let Err(error) = closed {
            tracing::warn!(%error, path = %path.display(), "other users may read a kept copy of the catalog");
        }
    }
}

fn settle(connection: &Connection, place: &CatalogPlace) -> rusqlite::Result<()> {
    // The timeout comes first: switching to WAL itself may have to wait.
    connection.execute_batch("pragma busy_timeout = 5000;")?;
    if matches!(place, CatalogPlace::Directory(_)) {
        connection.query_row("pragma journal_mode = wal", [], |_| Ok(()))?;
    }
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT as i64)?;
    connection.execute_batch(
        "pragma synchronous = full;
         pragma foreign_keys = on;
         pragma trusted_schema = off;
         pragma cell_size_check = on;
         pragma temp_store = memory;
         pragma cache_size = -8000;",
    )?;
    super::files::keep_plans(connection)?;
    Ok(())
}

/// Draws the identity of a new box; does nothing on an old one.
fn found(connection: &Connection, clock: &Clock) -> rusqlite::Result<()> {
    let now = clock.now();
    let founded = connection.execute(
        "insert into installation (id, installation_id, node_id, cursor_key, created_at, revision)
             values (1, ?1, ?2, ?3, ?4, 0)
             on conflict (id) do nothing",
        (
            NodeId::make(now, random()).0.as_bytes(),
            NodeId::make(now, random()).0.as_bytes(),
            random::<32>(),
            now.as_millis(),
        ),
    )?;
    if founded > 0 {
        // Older sites keep strict backfill until an administrator changes it.
        connection.execute("update queue_rule set backfill = 'timed' where id = 1", [])?;
    }
    // Root on the box owns what it starts over the local socket, before and after setup.
    connection.execute(
        "insert into user (id, name, language, theme, time_zone, suspended, password,
                             created_at, generation)
         values (?1, 'root', '', '', '', 0, ?2, ?3, 1)
         on conflict (id) do nothing",
        (
            users::ROOT.0.as_bytes(),
            users::NO_PASSWORD,
            now.as_millis(),
        ),
    )?;
    connection.execute(
        "insert into role_grant (user, role, domain)
         values (?1, 'administrator', x'')
         on conflict do nothing",
        [users::ROOT.0.as_bytes()],
    )?;
    connection.execute(
        "insert into membership (user, project, role)
         values (?1, ?2, 'member')
         on conflict do nothing",
        (
            users::ROOT.0.as_bytes(),
            rules::tenancy::ProjectId::DEFAULT.0.as_bytes(),
        ),
    )?;
    Ok(())
}

fn read(connection: &Connection) -> rusqlite::Result<(Founding, u64)> {
    connection.query_row(
        "select installation_id, node_id, cursor_key, revision
         from installation
         where id = 1",
        [],
        |row| {
            Ok((
                Founding {
                    installation_id: Uuid::from_bytes(row.get(0)?),
                    node: NodeId(Uuid::from_bytes(row.get(1)?)),
                    cursor_key: row.get(2)?,
                },
                u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
            ))
        },
    )
}

/// Whether a directory may hold the state: ours, closed to others' writing, on a disk of this machine.
fn ground(directory: &Path) -> Result<(), Refusal> {
    let shown = directory.display();
    let found = std::fs::metadata(directory).map_err(|error| unwritable(directory, &error))?;
    let (own, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if found.uid() != own {
        return Err(refusals::state_foreign_owner(&shown, found.uid(), own));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o002 != 0 || (mode & 0o020 != 0 && found.gid() != group) {
        return Err(refusals::state_exposed(&shown, format_args!("{mode:04o}")));
    }
    match rustix::fs::statfs(directory) {
        Ok(disk) => on_network(disk.f_type as u64).map_or(Ok(()), |kind| {
            Err(refusals::state_network_disk(&shown, kind))
        }),
        Err(error) => Err(unwritable(directory, &error.into())),
    }
}

/// The name of a file system that lies on another machine; None for all others.
pub(super) fn on_network(magic: u64) -> Option<&'static str> {
    // statfs gives a signed word; the numbers have 32 bits.
    match magic & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Some("a Windows share"),
        0x00c3_6400 => Some("CephFS"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        _ => None,
    }
}
