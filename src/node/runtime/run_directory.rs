//! Whose the run directory is: one state's, as long as anything of that state runs there. A server holds it
//! by a lock on the directory itself, which no removed file sets free, and by a name in it, which says
//! whose containers these are while no server lives.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rules::names::NodeId;
use rules::refusal::Refusal;
use rules::refusals;
use serde::{Deserialize, Serialize};

/// The file that says whose the directory is.
const OWNER: &str = "owner.json";

/// How long a server waits for one that ends: a killed one may leave a process behind that it had just
/// forked, which holds the lock until it becomes another program.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// How often it looks meanwhile.
const LOOKS: u32 = 50;

/// The state that a run directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RunDirectoryOwner {
    node: NodeId,
    data: PathBuf,
    /// The server that wrote it.
    process: u32,
}

/// The run directory, held for one state as long as this lives.
#[derive(Debug)]
pub struct RunDirectory {
    directory: File,
}

impl RunDirectory {
    /// Takes `run`, which exists, for the state at `data` whose machine is `node`.
    ///
    /// Errors: `run.owned` where a server holds it, or where containers of another state are in it;
    /// `run.unwritable` where it cannot be taken.
    pub fn take(run: &Path, data: &Path, node: NodeId) -> Result<Self, Refusal> {
        let failed = |error: io::Error| refusals::run_unwritable(run.display(), &error);
        let directory = File::open(run).map_err(failed)?;
        let known: Option<RunDirectoryOwner> = fs::read(run.join(OWNER))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        let mut taken = directory.try_lock();
        for _ in 0..LOOKS {
            if !matches!(taken, Err(TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(LOCK_TIMEOUT / LOOKS);
            taken = directory.try_lock();
        }
        match taken {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = known.map_or_else(
                    || "Another server".to_owned(),
                    |owner| {
                        format!(
                            "Process {}, with the state in {},",
                            owner.process,
                            owner.data.display()
                        )
                    },
                );
                return Err(refusals::run_in_use(&holder, run.display()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let data = data.canonicalize().map_err(failed)?;
        if let Some(owner) = known.filter(|owner| owner.node != node || owner.data != data)
            && holds_containers(run)
        {
            return Err(refusals::run_of_another_state(
                run.display(),
                owner.data.display(),
            ));
        }
        let owner = RunDirectoryOwner {
            node,
            data,
            process: std::process::id(),
        };
        write(run, &owner).map_err(failed)?;
        Ok(Self { directory })
    }
}

impl Drop for RunDirectory {
    /// Lets go at once: a process that was forked meanwhile and has not yet become another program holds the
    /// same open file.
    fn drop(&mut self) {
        if let Err(error) = self.directory.unlock() {
            tracing::warn!(%error, "the lock on the run directory is let go only when it is closed");
        }
    }
}

fn holds_containers(run: &Path) -> bool {
    fs::read_dir(run.join("c")).is_ok_and(|mut entries| entries.next().is_some())
}

fn write(run: &Path, owner: &RunDirectoryOwner) -> io::Result<()> {
    let beside = run.join(format!("{OWNER}.new"));
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(&serde_json::to_vec(owner)?)?;
    fs::rename(beside, run.join(OWNER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u128) -> NodeId {
        NodeId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn a_run_directory_is_one_servers_whatever_file_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("run");
        fs::create_dir(&run).unwrap();
        let held = RunDirectory::take(&run, place.path(), node(1)).unwrap();
        fs::remove_file(run.join(OWNER)).unwrap();
        for number in [1, 2] {
            let refused = RunDirectory::take(&run, place.path(), node(number)).unwrap_err();
            assert_eq!(refused.code, "run.owned");
        }
        drop(held);
        RunDirectory::take(&run, place.path(), node(1)).unwrap();
    }

    #[test]
    fn containers_of_another_state_keep_their_run_directory() {
        let place = tempfile::tempdir().unwrap();
        let [run, data, other] = ["run", "data", "other"].map(|name| place.path().join(name));
        for path in [&run, &data, &other] {
            fs::create_dir(path).unwrap();
        }
        drop(RunDirectory::take(&run, &data, node(1)).unwrap());
        drop(RunDirectory::take(&run, &other, node(2)).unwrap());
        drop(RunDirectory::take(&run, &data, node(1)).unwrap());
        fs::create_dir_all(run.join("c/s-1.1")).unwrap();
        let refused = RunDirectory::take(&run, &other, node(2)).unwrap_err();
        assert_eq!(refused.code, "run.owned");
        let data = data.canonicalize().unwrap();
        assert!(
            refused.text.contains(&data.display().to_string()),
            "{}",
            refused.text
        );
        RunDirectory::take(&run, &data, node(1)).unwrap();
    }
}
