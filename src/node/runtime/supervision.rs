//! Listens to every shim of this machine and keeps the deadlines of what they owe: one thread that waits
//! for words, for deaths and for the clock. It never waits for a shim and ends nothing itself; whatever
//! takes longer is done beside it, once for each container at a time (`ending`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, TryLockError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::launch::{self, RunRecord};
use super::order::{RuntimeName, RuntimePhase};
use super::wire::{self, FrameKind};
use super::{ContainerEntry, RuntimeState, claim, ring, silence};

/// How long a launch may wait for the first word of its shim. It comes within milliseconds. Longer: a
/// stopped fork server holds up everybody's launches by that. Shorter: on a busy machine a fork server is given up
/// that was only slow; nothing is lost by it but time.
pub(super) const FIRST_WORD: Duration = Duration::from_secs(5);

/// How long a shim may take to make its container. Longer: one that was stopped meanwhile keeps its
/// resources for that long. Shorter: a slow disk that lays out libraries for twenty at once is cut off.
pub(super) const BIRTH: Duration = Duration::from_secs(120);

/// How long a shim may stay after it said its last word. It gives slow clients two seconds, and its group
/// ten to go away.
const LEAVING: Duration = Duration::from_secs(15);

/// How often a container that is to be ended is killed again while processes of it remain.
const AGAIN: Duration = Duration::from_secs(10);

/// How long the thread sleeps at most: by then it has seen that the runtime has no holder any more.
const MAX_SLEEP: Duration = Duration::from_secs(5);

/// How often a living shim is asked again to which no connection is open.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What a container is due for.
enum Due {
    /// To be ended without its shim.
    Force,
    /// Its shim said the last word and does not leave.
    Leave,
    /// Its shim has not reported since the launch, which the fork server of this number was asked for.
    Word(u64),
    /// Its shim is to be asked again.
    Ask,
}

impl ContainerEntry {
    /// One whose end is known.
    pub(super) fn over(standing: RuntimePhase) -> Self {
        Self {
            closing: false,
            ..Self::waiting(standing)
        }
    }

    /// One whose shim has to say something yet.
    pub(super) fn waiting(standing: RuntimePhase) -> Self {
        Self {
            standing,
            shim: None,
            received: Vec::new(),
            process: None,
            fork_server: 0,
            heard: false,
            silent: false,
            due: None,
            born_by: None,
            force_at: None,
            closing: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(
            self.standing,
            RuntimePhase::Ended(_) | RuntimePhase::Lost { .. }
        )
    }

    /// True while its state is unknown: neither its shim has said it, nor the thread that finds out without it.
    pub(super) fn is_owed_a_word(&self) -> bool {
        (self.closing || !self.heard) && !self.is_over()
    }

    /// Ends it without its shim unless it is over by `when`; an earlier time stays.
    pub(super) fn force_by(&mut self, when: Instant) {
        self.force_at = Some(self.force_at.map_or(when, |earlier| earlier.min(when)));
    }

    fn next_due(&self) -> Option<Instant> {
        if self.closing || (self.is_over() && self.shim.is_none()) {
            return None;
        }
        self.force_at.into_iter().chain(self.due).min()
    }

    /// True while its command cannot run yet.
    fn is_in_birth(&self) -> bool {
        matches!(
            self.standing,
            RuntimePhase::Preparing | RuntimePhase::Starting
        )
    }

    /// True for one in a birth whose time is up; true again later where it does not help.
    fn takes_too_long(&mut self) -> bool {
        let now = Instant::now();
        let by = self.born_by.get_or_insert(now + BIRTH);
        let up = *by <= now;
        if up {
            *by = now + AGAIN;
        }
        up
    }

    /// What is due now; it is due again later where it does not help.
    fn take_due(&mut self, now: Instant) -> Option<Due> {
        if self.next_due()? > now {
            return None;
        }
        if self.force_at.is_some_and(|when| when <= now) {
            self.force_at = Some(now + AGAIN);
            return Some(if self.is_over() {
                Due::Leave
            } else {
                Due::Force
            });
        }
        self.due = None;
        if self.is_over() {
            return None;
        }
        if self.shim.is_none() {
            self.due = Some(now + ASK_AGAIN);
            return Some(Due::Ask);
        }
        match self.standing {
            RuntimePhase::Preparing | RuntimePhase::Starting
                if !self.heard && self.fork_server > 0 =>
            {
                self.due = Some(now + FIRST_WORD);
                Some(Due::Word(self.fork_server))
            }
            RuntimePhase::Preparing | RuntimePhase::Starting => Some(Due::Force),
            _ => None,
        }
    }

    /// Takes what the shim said; false when it hung up or is not the shim of `name`.
    fn listen(&mut self, name: &RuntimeName) -> bool {
        let Some(shim) = self.shim.clone() else {
            return true;
        };
        let mut buffer = [0u8; 4096];
        loop {
            match std::io::Read::read(&mut &*shim, &mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
            if !self.take_events(name) {
                return false;
            }
        }
        true
    }

    fn take_events(&mut self, name: &RuntimeName) -> bool {
        loop {
            match wire::take(&mut self.received) {
                Ok(Some(frame)) if frame.kind == FrameKind::Event => {
                    let Ok(event) = serde_json::from_slice::<wire::ShimEvent>(&frame.payload)
                    else {
                        return false;
                    };
                    if event.name.as_ref().is_some_and(|said| said != name) {
                        tracing::error!(container = %name, said = ?event.name, "a foreign supervisor answers on its socket");
                        return false;
                    }
                    self.hear(event.standing);
                }
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn hear(&mut self, standing: RuntimePhase) {
        let now = Instant::now();
        if !self.heard && matches!(standing, RuntimePhase::Preparing | RuntimePhase::Starting) {
            self.due = Some(*self.born_by.get_or_insert(now + BIRTH));
        }
        self.heard = true;
        self.silent = false;
        self.standing = standing;
        match self.standing {
            RuntimePhase::Preparing | RuntimePhase::Starting => {}
            RuntimePhase::Running { .. } => self.due = None,
            RuntimePhase::Ended(_) | RuntimePhase::Lost { .. } => {
                self.due = None;
                self.force_at = Some(now + LEAVING);
            }
        }
    }
}

/// Listens to all shims until the runtime is dropped.
pub(super) fn watch(shared: &Weak<RuntimeState>, bell: &OwnedFd) {
    loop {
        let Some(runtime) = shared.upgrade() else {
            return;
        };
        attend(&runtime);
        let mut next: Option<Instant> = None;
        let mut names = Vec::new();
        let mut sockets = Vec::new();
        let mut processes = Vec::new();
        for (name, entry) in runtime.entries().iter() {
            next = next.into_iter().chain(entry.next_due()).min();
            if let Some(shim) = &entry.shim {
                names.push(name.clone());
                sockets.push(Arc::clone(shim));
            }
        }
        for (name, entry) in runtime.entries().iter() {
            if let Some(process) = &entry.process {
                names.push(name.clone());
                processes.push(Arc::clone(process));
            }
        }
        // Not held while waiting: the last owner must be able to go.
        drop(runtime);
        let mut watched = vec![PollFd::new(bell, PollFlags::IN)];
        let plain = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        watched.extend(sockets.iter().map(|socket| plain(socket.as_fd())));
        watched.extend(processes.iter().map(|process| plain(process.as_fd())));
        let left = next.map_or(MAX_SLEEP, |when| {
            let left = when.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            left.min(MAX_SLEEP)
        });
        let patience = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        if poll(&mut watched, Some(&patience)).is_err() {
            continue;
        }
        let Some(runtime) = shared.upgrade() else {
            return;
        };
        silence(bell);
        let mut spoken: Vec<&RuntimeName> = watched[1..]
            .iter()
            .zip(&names)
            .filter(|(poll, _)| !poll.revents().is_empty())
            .map(|(_, name)| name)
            .collect();
        spoken.sort();
        spoken.dedup();
        for name in spoken {
            hear(&runtime, name);
        }
    }
}

/// Hears a shim that said something, hung up or died; where it is gone, a thread finds out how its
/// container ended.
fn hear(runtime: &Arc<RuntimeState>, name: &RuntimeName) {
    let gone = {
        let mut entries = runtime.entries();
        let Some(entry) = entries.get_mut(name) else {
            return;
        };
        let mut gone = entry.shim.is_some() && !entry.listen(name);
        if entry.heard && entry.process.is_none() && !gone {
            // By its process alone one sees the death of a shim whose own children hold its sockets.
            // Without a record it is looked for again with its next word.
            if let Ok(record) = RunRecord::read(&runtime.directory(name)) {
                match record.shim.open() {
                    Ok(Some(process)) => entry.process = Some(Arc::new(process)),
                    Ok(None) => gone = true,
                    Err(error) => {
                        tracing::debug!(container = %name, %error, "looked for again with its next word");
                    }
                }
            }
        }
        gone |= entry.process.as_ref().is_some_and(|process| {
            let mut watched = [PollFd::new(process, PollFlags::IN)];
            poll(&mut watched, Some(&Timespec::default())).is_ok_and(|count| count > 0)
        });
        if gone {
            entry.shim = None;
            entry.process = None;
        }
        gone && !entry.is_over()
    };
    runtime.spoken.notify_all();
    if gone {
        find_out(runtime, name);
    }
    ring(&runtime.bell);
}

/// Has a thread find out how a container ended.
fn find_out(runtime: &Arc<RuntimeState>, name: &RuntimeName) {
    if let Some(entry) = runtime.entries().get_mut(name) {
        entry.shim = None;
        entry.closing = true;
    }
    if !runtime.beside(name, "resolve", RuntimeState::conclude_in_time)
        && let Some(entry) = runtime.entries().get_mut(name)
    {
        // The thread at it may have looked before this happened.
        entry.closing = false;
        entry.due = Some(Instant::now() + ASK_AGAIN);
    }
}

/// Does what is due.
fn attend(runtime: &Arc<RuntimeState>) {
    let now = Instant::now();
    let due: Vec<(RuntimeName, Due)> = runtime
        .entries()
        .iter_mut()
        .filter_map(|(name, entry)| Some((name.clone(), entry.take_due(now)?)))
        .collect();
    for (name, due) in due {
        match due {
            Due::Force => {
                runtime.beside(&name, "force", RuntimeState::force);
            }
            Due::Leave => {
                if let Ok(record) = RunRecord::read(&runtime.directory(&name)) {
                    record.shim.signal(libc::SIGKILL);
                }
            }
            Due::Word(number) => no_word(runtime, &name, number),
            Due::Ask => ask_again(runtime, &name),
        }
    }
}

/// A launch whose shim has not reported: the fork server is given up where no shim began it.
fn no_word(runtime: &Arc<RuntimeState>, name: &RuntimeName, number: u64) {
    let directory = runtime.directory(name);
    match living_holder(&directory) {
        Ok(None) => {}
        Ok(Some(shim)) => {
            if let Some(entry) = runtime.entries().get_mut(name) {
                entry.fork_server = 0;
                entry.process = Some(Arc::new(shim));
                entry.due = Some(Instant::now() + BIRTH);
            }
            return;
        }
        // Looked at again: it was made due before.
        Err(error) => {
            return tracing::debug!(container = %name, %error, "state unknown; looked at again");
        }
    }
    match runtime.fork_server.try_lock() {
        Ok(mut fork_server) => fork_server.give_up(number),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().give_up(number),
        // A start is under way, perhaps with a new fork server: looked at again, soon.
        Err(TryLockError::WouldBlock) => {
            if let Some(entry) = runtime.entries().get_mut(name) {
                entry.due = Some(Instant::now() + ASK_AGAIN);
            }
            return;
        }
    }
    tracing::warn!(container = %name, "its launch is not begun; another process begins it");
    find_out(runtime, name);
}

/// The living shim that took the claim of a container; None where none lives, or none is known.
fn living_holder(directory: &Path) -> io::Result<Option<OwnedFd>> {
    claim::holder(directory)?.map_or(Ok(None), |shim| shim.open())
}

/// Asks a living shim to which no connection is open.
fn ask_again(runtime: &Arc<RuntimeState>, name: &RuntimeName) {
    let directory = runtime.directory(name);
    let record = match RunRecord::read(&directory) {
        Ok(record) => record,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return ask_unrecorded(runtime, name, &directory);
        }
        Err(error) => return tracing::debug!(container = %name, %error, "asked again later"),
    };
    let asked = launch::subscribe(&directory, &record);
    {
        let mut entries = runtime.entries();
        let Some(entry) = entries.get_mut(name) else {
            return;
        };
        if entry.is_over() || entry.closing {
            return;
        }
        let opened = record.shim.open();
        // One that cannot be read for a moment counts as living.
        let lives = !matches!(opened, Ok(None));
        entry.process = opened.ok().flatten().map(Arc::new);
        match asked {
            Ok(shim) if lives => {
                entry.received.clear();
                entry.shim = Some(Arc::new(shim));
                // A birth goes on, and so does its time; but it is heard first. Once its record names a
                // first process, its command may run whatever is known here.
                let now = Instant::now();
                let by = *entry.born_by.get_or_insert(now + BIRTH);
                let in_birth = entry.is_in_birth() && record.first.is_none();
                entry.due = in_birth.then(|| by.max(now + FIRST_WORD));
                return;
            }
            Err(error) if lives => {
                tracing::debug!(container = %name, %error, "asked again later");
                if record.first.is_some() || !entry.takes_too_long() {
                    return;
                }
                drop(entries);
                runtime.beside(name, "force", RuntimeState::force);
                return;
            }
            _ => {}
        }
    }
    // It is dead.
    find_out(runtime, name);
}

/// Asks for a shim that has no record: one that lives is waited for, as long as a birth may take. Where none
/// is known a thread finds out once more, as it could not be done before.
fn ask_unrecorded(runtime: &Arc<RuntimeState>, name: &RuntimeName, directory: &Path) {
    let holder = match living_holder(directory) {
        Ok(holder) => holder,
        Err(error) => return tracing::debug!(container = %name, %error, "asked again later"),
    };
    let known = holder.is_some();
    {
        let mut entries = runtime.entries();
        let Some(entry) = entries.get_mut(name) else {
            return;
        };
        if entry.is_over() || entry.closing {
            return;
        }
        entry.process = holder.map(Arc::new);
        if known && !entry.takes_too_long() {
            return;
        }
    }
    if known {
        runtime.beside(name, "force", RuntimeState::force);
    } else {
        find_out(runtime, name);
    }
}
