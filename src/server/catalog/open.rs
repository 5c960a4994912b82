//! Opens the files of the catalog, or founds them: directory and file modes, the lock that refuses a
//! second server, and the few settings of SQLite that durability rests on.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::observe::{Clock, random};
use rules::names::NodeId;
use rules::refusal::Refusal;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::reserve::Reserve;
use super::{CatalogPlace, migrate, people, sealing};
use crate::{Failure, ServerFault};

pub(super) const FILE: &str = "catalog.sqlite";
const LOCK: &str = "catalog.lock";

/// Drawn once when the box was founded; never changes.
#[derive(Clone)]
pub(crate) struct Founding {
    pub(crate) box_id: Uuid,
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

/// The state is this process' alone as long as this lives.
pub(super) struct StateLock {
    file: File,
    /// The directory itself: the lock on it stays when somebody removes the file.
    directory: File,
}

impl Drop for StateLock {
    /// Lets go at once. Closing the file would not do: a process that was forked meanwhile and has not yet
    /// become another program holds the same open file, and with it the lock.
    fn drop(&mut self) {
        for held in [&self.file, &self.directory] {
            if let Err(error) = held.unlock() {
                tracing::warn!(%error, "the lock on the state is released only when the file is closed");
            }
        }
    }
}

/// Bytes of the log that stay on disk once SQLite brought it home; as many as the reserve holds for it. Higher:
/// one large commit takes disk for good. Lower: a full disk has less room for stops.
const LOG_KEPT: u64 = super::reserve::LOG;

/// How long somebody who wants the state waits for one that ends. A server that is killed may leave a
/// process behind which it had just forked, and which holds the lock until it becomes another program.
/// Longer: whoever starts a second server by mistake waits for the answer. Shorter: on a busy machine a
/// restart after a kill may find the state taken.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// How often it looks.
const LOOKS: u32 = 20;

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

/// A connection that cannot write.
pub(super) fn reader(path: &Path) -> Result<Connection, Failure> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection
        .execute_batch(
            "pragma busy_timeout = 5000;
             pragma query_only = on;
             pragma temp_store = memory;
             pragma cache_size = -2000;
             pragma trusted_schema = off;",
        )
        .map_err(|error| {
            let directory = path.parent().unwrap_or(path).to_owned();
            unreadable(&CatalogPlace::Directory(directory), error)
        })?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, Failure> {
    Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| ServerFault::new(format!("open {}", path.display()), error).into())
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
    connection.set_prepared_statement_cache_capacity(128);
    Ok(())
}

/// Draws the identity of a new box; does nothing on an old one.
fn found(connection: &Connection, clock: &Clock) -> rusqlite::Result<()> {
    let now = clock.now();
    connection.execute(
        "insert into box (id, box_id, node_id, cursor_key, founded_at, revision)
             values (1, ?1, ?2, ?3, ?4, 0)
             on conflict (id) do nothing",
        (
            NodeId::make(now, random()).0.as_bytes(),
            NodeId::make(now, random()).0.as_bytes(),
            random::<32>(),
            now.as_millis(),
        ),
    )?;
    // Root on the box owns what it starts over the local socket, before and after setup.
    connection.execute(
        "insert into person (id, name, role, language, theme, time_zone, suspended, password,
                             created_at, generation)
         values (?1, 'root', 'administrator', '', '', '', 0, ?2, ?3, 1)
         on conflict (id) do nothing",
        (
            people::ROOT.0.as_bytes(),
            people::NO_PASSWORD,
            now.as_millis(),
        ),
    )?;
    Ok(())
}

fn read(connection: &Connection) -> rusqlite::Result<(Founding, u64)> {
    connection.query_row(
        "select box_id, node_id, cursor_key, revision
         from box
         where id = 1",
        [],
        |row| {
            Ok((
                Founding {
                    box_id: Uuid::from_bytes(row.get(0)?),
                    node: NodeId(Uuid::from_bytes(row.get(1)?)),
                    cursor_key: row.get(2)?,
                },
                u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
            ))
        },
    )
}

pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Refusal {
    Refusal::unavailable(
        "state.unwritable",
        format!("{} cannot be written: {error}.", path.display()),
    )
    .hint(
        "Make that directory writable for this user, or set FARDEL_DATA (or --data) to one that is.",
    )
}

pub(super) fn unreadable(place: &CatalogPlace, error: rusqlite::Error) -> Failure {
    let path = match place {
        CatalogPlace::Memory => PathBuf::from("memory"),
        CatalogPlace::Directory(directory) => directory.join(FILE),
    };
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
            Refusal::unavailable(
                "state.damaged",
                format!("{} is not a readable catalog: {error}.", path.display()),
            )
            .hint(
                "Restore the newest backup: fardel backup restore FILE --replace. A file that is only put in \
                 its place leads no machine before root says so: fardel state accept.",
            )
            .into()
        }
        Some(rusqlite::ErrorCode::SystemIoFailure) => super::health::disk(&error).into(),
        Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::CannotOpen) => {
            unwritable(&path, &std::io::Error::other(error)).into()
        }
        Some(rusqlite::ErrorCode::DiskFull) => Refusal::unavailable(
            "disk.full",
            format!("{} cannot be written: the disk is full.", path.display()),
        )
        .hint("Free space on that disk, or set FARDEL_DATA (or --data) to another one.")
        .into(),
        _ => ServerFault::new(format!("open {}", path.display()), error).into(),
    }
}

pub(super) fn make_directory(directory: &Path) -> Result<(), Refusal> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| unwritable(directory, &error))
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
        return Err(Refusal::conflict(
            "state.foreign-owner",
            format!(
                "{shown} belongs to user {}, not to {own}, who runs this.",
                found.uid()
            ),
        )
        .hint(format!(
            "Start it as that user, or give the directory away: chown -R {own} {shown}."
        )));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o002 != 0 || (mode & 0o020 != 0 && found.gid() != group) {
        return Err(Refusal::conflict(
            "state.exposed",
            format!("Others may write to {shown} (mode {mode:04o})."),
        )
        .hint(format!("chmod 0750 {shown}")));
    }
    match rustix::fs::statfs(directory) {
        Ok(disk) => on_network(disk.f_type as u64).map_or(Ok(()), |kind| {
            Err(Refusal::conflict(
                "state.network-disk",
                format!("{shown} lies on {kind}, where locks and the catalog's log do not hold."),
            )
            .hint("Set data (or FARDEL_DATA) to a directory on a disk of this machine: ext4, XFS or btrfs."))
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

/// Makes the file before SQLite does, so that it is never readable by others, not even at first.
/// The WAL and its index take the file's mode over.
///
/// Never call this on a catalog that SQLite has open: closing any descriptor of a file drops all of
/// the process' locks on it.
pub(super) fn make_file(path: &Path) -> Result<File, Refusal> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .read(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| unwritable(path, &error))?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
        .map_err(|error| unwritable(path, &error))?;
    Ok(file)
}

pub(super) fn lock(directory: &Path) -> Result<StateLock, Refusal> {
    let path = directory.join(LOCK);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| unwritable(&path, &error))?;
    let held = File::open(directory).map_err(|error| unwritable(directory, &error))?;
    let both = || file.try_lock().and_then(|()| held.try_lock());
    let mut taken = both();
    for _ in 0..LOOKS {
        if !matches!(taken, Err(TryLockError::WouldBlock)) {
            break;
        }
        std::thread::sleep(BUSY_TIMEOUT / LOOKS);
        taken = both();
    }
    match taken {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Who holds it is only a courtesy; the lock itself decides.
            let _ = file.read_to_string(&mut holder);
            let process = match holder.trim() {
                "" => "Another process".to_owned(),
                pid => format!("Process {pid}"),
            };
            return Err(Refusal::conflict(
                "server.already-running",
                format!("{process} already serves the state in {}.", directory.display()),
            )
            .hint("Stop it first, or set FARDEL_DATA (or --data), FARDEL_RUN and FARDEL_LISTEN to run a second box beside it."));
        }
        Err(TryLockError::Error(error)) => return Err(unwritable(&path, &error)),
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(|error| unwritable(&path, &error))?;
    Ok(StateLock {
        file,
        directory: held,
    })
}
