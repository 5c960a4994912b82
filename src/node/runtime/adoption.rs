//! Finds the containers of an earlier server. A written end is final; a start that was never begun is
//! forgotten; a shim that lives is asked, and its container goes on whether it answers now, later or never;
//! only a container whose shim is dead is lost. Never reports a container as running on a guess: while its
//! shim says nothing, the record and the living process it names speak for it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use super::identity;
use super::launch::{self, LaunchFile, NotSubscribed, RunRecord};
use super::order::{RuntimeExit, RuntimeName, RuntimePhase};
use super::supervision::BIRTH;
use super::wire::PROTOCOL;
use super::{ContainerEntry, RuntimeFault, RuntimeState, claim, file, names_below};

/// How long a new server waits for all shims together before it begins its work. Longer: shims that are
/// stopped hold up the machine. Shorter: on a busy machine sights are told that are a moment old.
const ADOPTION: Duration = Duration::from_secs(2);

/// Containers without a shim that are cleared away together at the start.
const CLEARED_TOGETHER: usize = 8;

/// Where a container's directory stands for a moment on its way to its own name.
const ASIDE: &str = "moved-";

/// What was found of a container.
enum FoundContainer {
    Known(ContainerEntry),
    /// Its shim is gone without a written end.
    Bereft,
    Never,
}

/// A container whose state is unknown, for want of memory or descriptors: it counts as living and is looked
/// at again at once.
fn unseen(name: &RuntimeName, error: &io::Error) -> FoundContainer {
    tracing::warn!(container = %name, %error, "state unknown; looked at again");
    let mut entry = ContainerEntry::waiting(RuntimePhase::Preparing);
    entry.due = Some(Instant::now());
    FoundContainer::Known(entry)
}

impl RuntimeState {
    /// Takes up what an earlier server left. Takes as long as the slowest shim, two seconds at most; a caller that
    /// has not spoken by then is told as silent until it does.
    pub(super) fn adopt(self: &Arc<Self>) -> Result<(), RuntimeFault> {
        self.bring_home()?;
        self.end_old_nurseries();
        let mut names = names_below(&self.places.run.join("c"))?;
        names.extend(names_below(&self.places.data.join("containers"))?);
        names.sort();
        names.dedup();
        let mut bereft = Vec::new();
        for name in names {
            if self.entries().contains_key(&name) {
                continue;
            }
            self.end_readings(&name);
            match self.find(&name)? {
                FoundContainer::Known(entry) => drop(self.entries().insert(name, entry)),
                FoundContainer::Never => {}
                FoundContainer::Bereft => {
                    let mut entry = ContainerEntry::waiting(RuntimePhase::Preparing);
                    entry.closing = true;
                    self.entries().insert(name.clone(), entry);
                    bereft.push(name);
                }
            }
        }
        self.look_again();
        let bereft = Mutex::new(bereft);
        let next = || bereft.lock().unwrap_or_else(PoisonError::into_inner).pop();
        std::thread::scope(|scope| {
            for _ in 0..CLEARED_TOGETHER {
                if bereft.lock().is_ok_and(|left| left.is_empty()) {
                    break;
                }
                scope.spawn(|| {
                    while let Some(name) = next() {
                        self.conclude(&name);
                    }
                });
            }
        });
        let silent = |entries: &mut std::collections::BTreeMap<RuntimeName, ContainerEntry>| {
            entries.values().any(ContainerEntry::is_owed_a_word)
        };
        let (mut entries, _) = self
            .spoken
            .wait_timeout_while(self.entries(), ADOPTION, silent)
            .unwrap_or_else(PoisonError::into_inner);
        for (name, entry) in entries
            .iter_mut()
            .filter(|(_, entry)| entry.is_owed_a_word())
        {
            entry.silent = true;
            tracing::warn!(container = %name, "its supervisor lives and says nothing");
        }
        Ok(())
    }

    /// Ends what an earlier server forked shims with, which ends by itself unless it is stopped. A shim leads
    /// its own session; what stands among the shims with a dead leader supervises nothing.
    fn end_old_nurseries(&self) {
        let Ok(hierarchies) = self.hierarchies() else {
            return;
        };
        for pid in hierarchies.shims(&self.instance_id).processes() {
            if let Some(process) = identity::leaderless(pid)
                && let Err(error) = pidfd_send_signal(&process, Signal::KILL)
            {
                tracing::debug!(pid, %error, "it had ended already");
            }
        }
    }

    fn find(&self, name: &RuntimeName) -> Result<FoundContainer, RuntimeFault> {
        let directory = self.directory(name);
        if let Ok(record) = RuntimeExit::read(&directory) {
            return Ok(FoundContainer::Known(ContainerEntry::over(
                RuntimePhase::Ended(record),
            )));
        }
        // Without its directory it is one of an earlier boot, whatever became of it.
        if !directory.is_dir() {
            return Ok(FoundContainer::Bereft);
        }
        let record = match launch::if_written(RunRecord::read(&directory)) {
            Ok(Some(record)) => record,
            Ok(None) => return self.find_unrecorded(name),
            Err(error) => return Ok(unseen(name, &error)),
        };
        if record.protocol > PROTOCOL || record.protocol + 1 < PROTOCOL {
            tracing::error!(container = %name, spoken = record.protocol, "its supervisor speaks another protocol");
            return Ok(FoundContainer::Bereft);
        }
        let process = match record.shim.open() {
            Ok(Some(process)) => process,
            Ok(None) => return Ok(FoundContainer::Bereft),
            Err(error) => return Ok(unseen(name, &error)),
        };
        let mut entry = ContainerEntry::waiting(self.recorded(name, &record));
        entry.process = Some(Arc::new(process));
        // In a birth: it has as long as any other, also where it is asked again before.
        entry.born_by = record.first.is_none().then(|| Instant::now() + BIRTH);
        entry.due = entry.born_by;
        match launch::subscribe(&directory, &record) {
            Ok(shim) => entry.shim = Some(Arc::new(shim)),
            Err(NotSubscribed::Stranger) => return Ok(FoundContainer::Bereft),
            Err(error @ (NotSubscribed::Silent(_) | NotSubscribed::Crowded)) => {
                tracing::warn!(container = %name, %error, "its supervisor cannot be asked; asked again");
                entry.due = Some(Instant::now());
            }
        }
        Ok(FoundContainer::Known(entry))
    }

    fn find_unrecorded(&self, name: &RuntimeName) -> Result<FoundContainer, RuntimeFault> {
        let directory = self.directory(name);
        match claim::settle(&directory, Duration::ZERO).map_err(file("claim", &directory))? {
            claim::Beginning::Never => {
                self.clear_unbegun(name)?;
                Ok(FoundContainer::Never)
            }
            claim::Beginning::Recorded | claim::Beginning::Stuck => {
                let process = match claim::holder(&directory) {
                    Ok(Some(shim)) => match shim.open() {
                        Ok(Some(process)) => Some(Arc::new(process)),
                        Ok(None) => return Ok(FoundContainer::Bereft),
                        Err(error) => return Ok(unseen(name, &error)),
                    },
                    Ok(None) => None,
                    Err(error) => return Ok(unseen(name, &error)),
                };
                let mut entry = ContainerEntry::waiting(RuntimePhase::Preparing);
                entry.born_by = Some(Instant::now() + BIRTH);
                entry.due = Some(Instant::now());
                entry.process = process;
                Ok(FoundContainer::Known(entry))
            }
        }
    }

    /// What a shim's record says, as far as the process that it names lives.
    fn recorded(&self, name: &RuntimeName, record: &RunRecord) -> RuntimePhase {
        match (&record.first, record.started_at) {
            (Some(first), Some(since)) if matches!(first.open(), Ok(Some(_))) => {
                RuntimePhase::Running {
                    since,
                    pid: first.pid,
                    paused: self.group(name).is_ok_and(|group| group.frozen()),
                }
            }
            _ => RuntimePhase::Starting,
        }
    }

    /// Gives every container's directory its own name back: it was moved, and a shim's last word would
    /// go to the one that stands in its place.
    fn bring_home(&self) -> Result<(), RuntimeFault> {
        let (below, run) = (self.places.run.join("c"), &self.places.run);
        let mut away: Vec<PathBuf> = fs::read_dir(run)
            .map_err(file("list", run))?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(ASIDE))
            .map(|entry| entry.path())
            .collect();
        for name in names_below(&below)? {
            let at = below.join(name.as_str());
            if LaunchFile::read(&at).is_ok_and(|launch| launch.order.name != name) {
                let aside = run.join(format!("{ASIDE}{name}"));
                fs::rename(&at, &aside).map_err(file("move", &at))?;
                away.push(aside);
            }
        }
        for aside in away {
            let home = LaunchFile::read(&aside).map(|launch| self.directory(&launch.order.name));
            match home {
                Ok(home) if !home.exists() => {
                    fs::rename(&aside, &home).map_err(file("move", &aside))?;
                    tracing::warn!(directory = %home.display(), "it stood under another container's name");
                }
                _ => {
                    tracing::error!(directory = %aside.display(), "it belongs to no container that is known here")
                }
            }
        }
        Ok(())
    }
}
