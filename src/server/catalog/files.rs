//! The files of the catalog: their names and modes, the lock that refuses a second server, a connection to one,
//! and what is said when one cannot be read or written. Knows no table.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rules::refusal::Refusal;
use rules::refusals;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{CatalogPlace, health};
use crate::{Failure, ServerFault};

pub(super) const FILE: &str = "catalog.sqlite";

const LOCK: &str = "catalog.lock";

/// The state is this process' alone as long as this lives.
pub(super) struct StateLock {
    file: File,
    /// The directory itself: the lock on it stays when the file is removed.
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

/// How long a starting server waits for the state of one that ends. A server that is killed may leave a
/// process behind which it had just forked, and which holds the lock until it becomes another program.
/// Longer: a second server, started by mistake, is refused later. Shorter: on a busy machine a
/// restart after a kill may find the state taken.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// How often it looks.
const LOOKS: u32 = 20;

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
    keep_plans(&connection)
        .map_err(|error| ServerFault::new(format!("set up {}", path.display()), error))?;
    Ok(connection)
}

/// Keeps statements, and the plan of each: SQLite would make a new plan whenever a value that it looked at while
/// planning is another one, such as the present time.
pub(super) fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(192);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Empties the page cache of a connection. One that cannot is left as it is: it is only larger.
pub(super) fn shrink(connection: &Connection) {
    if let Err(error) = connection.execute_batch("pragma shrink_memory") {
        tracing::debug!(%error, "a page cache stays as it is");
    }
}

pub(super) fn connect(path: &Path, access: OpenFlags) -> Result<Connection, Failure> {
    Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| ServerFault::new(format!("open {}", path.display()), error).into())
}

pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Refusal {
    refusals::state_unwritable(path.display(), error)
}

pub(super) fn unreadable(place: &CatalogPlace, error: rusqlite::Error) -> Failure {
    let path = match place {
        CatalogPlace::Memory => PathBuf::from("memory"),
        CatalogPlace::Directory(directory) => directory.join(FILE),
    };
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
            refusals::state_not_a_catalog(path.display(), &error).into()
        }
        Some(rusqlite::ErrorCode::SystemIoFailure) => health::disk(&error).into(),
        Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::CannotOpen) => {
            unwritable(&path, &std::io::Error::other(error)).into()
        }
        Some(rusqlite::ErrorCode::DiskFull) => refusals::disk_full_at_start(path.display()).into(),
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
            return Err(refusals::server_already_running(
                &process,
                directory.display(),
            ));
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
