//! Readers: a few connections that cannot write, each read in one transaction, so that a whole world
//! is of one moment.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rusqlite::Connection;

use super::files;
use super::live::LiveSessions;
use super::node_cache::NodeCache;
use super::sealing::Seal;
use crate::{Failure, ServerFault};

/// Connections kept at once. Higher: more memory for page caches. Lower: a slow list holds others up.
pub(super) const MAX_READERS: usize = 4;

/// The rows as of one moment. Reads live with their nouns, in `catalog/sessions.rs` and so on.
pub(crate) struct ReadTransaction<'c> {
    pub(super) connection: &'c Connection,
    pub(super) heard: &'c NodeCache,
    pub(super) seal: &'c Seal,
    /// None where rows may be seen that are not committed.
    pub(super) live: Option<&'c LiveSessions>,
}

impl<'c> ReadTransaction<'c> {
    pub(super) fn new(connection: &'c Connection, heard: &'c NodeCache, seal: &'c Seal) -> Self {
        Self {
            connection,
            heard,
            seal,
            live: None,
        }
    }
}

pub(super) enum Pool {
    Files {
        path: PathBuf,
        idle: Mutex<Idle>,
        back: Condvar,
        live: LiveSessions,
    },
    Shared(Arc<Mutex<Connection>>),
}

#[derive(Default)]
pub(super) struct Idle {
    /// The one that was given back last is lent next, so that those at the beginning rest.
    connections: Vec<Connection>,
    open: usize,
    /// Fewest that lay here since memory was last given back: so many were not lent.
    unused: usize,
}

impl Pool {
    pub(super) fn files(path: PathBuf) -> Self {
        Self::Files {
            path,
            idle: Mutex::new(Idle::default()),
            back: Condvar::new(),
            live: LiveSessions::default(),
        }
    }

    pub(super) fn shared(connection: Arc<Mutex<Connection>>) -> Self {
        Self::Shared(connection)
    }

    /// Closes the connections that were not lent since the last call, but for one, and empties the page caches of the others
    /// that lie here: what is read next comes from the page cache of the kernel. Rows in memory stay.
    pub(super) fn give_back(&self) {
        let Self::Files { idle, back, .. } = self else {
            return;
        };
        let mut pool = idle.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = pool.unused.min(pool.connections.len().saturating_sub(1));
        let closed: Vec<Connection> = pool.connections.drain(..spare).collect();
        pool.open -= closed.len();
        pool.unused = pool.connections.len();
        for connection in &pool.connections {
            files::shrink(connection);
        }
        drop(pool);
        back.notify_all();
    }

    pub(super) fn with<T>(
        &self,
        what: &'static str,
        heard: &NodeCache,
        seal: &Seal,
        work: impl FnOnce(&ReadTransaction<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let named = |failure| match failure {
            Failure::Fault(fault) => Failure::Fault(ServerFault::new(what, fault)),
            refusal @ Failure::Refusal(_) => refusal,
        };
        match self {
            Self::Shared(connection) => {
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                work(&ReadTransaction::new(&connection, heard, seal)).map_err(named)
            }
            Self::Files {
                path,
                idle,
                back,
                live,
            } => {
                let lent = Lent {
                    connection: Some(take(path, idle, back).map_err(named)?),
                    idle,
                    back,
                };
                let connection = lent.connection.as_ref().expect("taken on the line above");
                let begun = connection
                    .prepare_cached("begin")
                    .and_then(|mut statement| statement.execute([]));
                begun.map_err(Failure::from).map_err(named)?;
                let result = work(&ReadTransaction {
                    live: Some(live),
                    ..ReadTransaction::new(connection, heard, seal)
                });
                let ended = connection
                    .prepare_cached("commit")
                    .and_then(|mut statement| statement.execute([]));
                let value = result.map_err(named)?;
                ended.map_err(Failure::from).map_err(named)?;
                Ok(value)
            }
        }
    }
}

fn take(path: &Path, idle: &Mutex<Idle>, back: &Condvar) -> Result<Connection, Failure> {
    let mut pool = idle.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(connection) = pool.connections.pop() {
            pool.unused = pool.unused.min(pool.connections.len());
            return Ok(connection);
        }
        if pool.open < MAX_READERS {
            pool.open += 1;
            drop(pool);
            return files::reader(path).inspect_err(|_| {
                idle.lock().unwrap_or_else(PoisonError::into_inner).open -= 1;
            });
        }
        pool = back.wait(pool).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Gives the connection back, also when the work panicked.
struct Lent<'a> {
    connection: Option<Connection>,
    idle: &'a Mutex<Idle>,
    back: &'a Condvar,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let usable = connection.is_autocommit() || connection.execute_batch("rollback").is_ok();
        let mut pool = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if usable {
            pool.connections.push(connection);
        } else {
            pool.open -= 1;
        }
        drop(pool);
        self.back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(pool: &Pool) -> (usize, usize) {
        let Pool::Files { idle, .. } = pool else {
            panic!("it has files");
        };
        let idle = idle.lock().unwrap();
        (idle.connections.len(), idle.open)
    }

    fn lend(pool: &Pool, count: usize) {
        let Pool::Files {
            path, idle, back, ..
        } = pool
        else {
            panic!("it has files");
        };
        let lent: Vec<Lent<'_>> = (0..count)
            .map(|_| Lent {
                connection: Some(take(path, idle, back).unwrap()),
                idle,
                back,
            })
            .collect();
        drop(lent);
    }

    #[test]
    fn connections_that_were_not_lent_are_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.sqlite");
        let rows = Connection::open(&path).unwrap();
        rows.execute_batch("create table words (word)").unwrap();
        let pool = Pool::files(path);
        lend(&pool, 3);
        pool.give_back();
        assert_eq!(open(&pool), (3, 3), "all three were lent");
        lend(&pool, 2);
        pool.give_back();
        assert_eq!(open(&pool), (2, 2));
        for _ in 0..3 {
            pool.give_back();
            assert_eq!(open(&pool), (1, 1), "one stays");
        }
        lend(&pool, MAX_READERS);
        assert_eq!(open(&pool), (MAX_READERS, MAX_READERS));
    }
}
