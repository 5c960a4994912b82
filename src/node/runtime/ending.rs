//! Ends containers and finds out how they ended, also where their shim says nothing or is gone: by the
//! control group and by what the shim wrote down, asking no process inside. Everything here may take seconds
//! and runs beside the caller, once for each container and deed at a time.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::time::Timespec;

use super::cgroup::CgroupError;
use super::identity::{self, ProcessIdentity};
use super::launch::{self, LaunchFile, RunRecord};
use super::order::{RuntimeExit, RuntimeName, RuntimePhase};
use super::supervision::ASK_AGAIN;
use super::wire::{ShimReply, ShimRequest};
use super::{RuntimeFault, RuntimeState, claim, file, ring};

/// How often a container that provably never ran is begun again. More: one that kills its supervisor each
/// time keeps the machine busy. Fewer: a machine that loses supervisors by chance ends what it need not.
const BEGINNINGS: u32 = 5;

/// The pause before a container is begun again for the second time; each further one is twice as long.
/// Longer: a session that lost two supervisors by chance waits. Shorter: all beginnings are over before what
/// ends supervisors, such as full memory, has passed.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// How often in a pause the thread looks whether its container is to be ended.
const PAUSE_STEP: Duration = Duration::from_millis(50);

/// How long a shim that hung up may take to be dead. It has closed everything, so it is a moment.
const DYING: Duration = Duration::from_secs(1);

/// How long a shim whose container was ended over its head may take to write down the end itself.
const OWN_WORD: Duration = Duration::from_secs(1);

/// Looks for what a dead shim left. Each look kills what it finds; two in a row find nothing at the end.
const LOOKS: u32 = 500;

/// What became of a container whose shim does not answer for it any more.
enum Became {
    Over(RuntimePhase),
    /// Its command never ran, and nothing of it is left.
    Unbegun,
    /// Its shim lives.
    Lives,
    /// It cannot be read for the moment, and counts as living.
    Unseen,
}

impl RuntimeState {
    /// Does something about one container in a thread of its own; false where that is being done already,
    /// or no thread can be had.
    pub(super) fn beside(
        self: &Arc<Self>,
        name: &RuntimeName,
        what: &'static str,
        act: impl FnOnce(&Self, &RuntimeName) + Send + 'static,
    ) -> bool {
        let key = (name.clone(), what);
        if !self.errands().insert(key.clone()) {
            return false;
        }
        let shared = Arc::clone(self);
        let begun = std::thread::Builder::new()
            .name(what.to_owned())
            .spawn(move || {
                act(&shared, &key.0);
                shared.errands().remove(&key);
            });
        if let Err(error) = &begun {
            tracing::error!(container = %name, what, %error, "a thread cannot be started; tried again");
            self.errands().remove(&(name.clone(), what));
        }
        begun.is_ok()
    }

    /// Brings a stop or a kill to the shim of a container; where it does not answer in time, does what it
    /// was asked in its place.
    pub(super) fn deliver(&self, name: &RuntimeName, request: &ShimRequest) {
        let directory = self.directory(name);
        let answer = launch::ask(&directory, request);
        // One that is forgotten or over has no supervisor that could answer, and a silence is told once.
        let mut is_news = false;
        if let Some(entry) = self.entries().get_mut(name) {
            let silent = answer.is_err() && matches!(entry.standing, RuntimePhase::Running { .. });
            let was_silent = std::mem::replace(&mut entry.silent, silent);
            if was_silent != silent {
                ring(&self.bell);
            }
            is_news = !entry.is_over() && !(silent && was_silent);
        }
        match answer {
            Ok(ShimReply::Done) => return,
            Ok(ShimReply::Refused { why } | ShimReply::Busy { why }) => {
                tracing::warn!(container = %name, "its supervisor refuses: {why}");
            }
            Err(error) if is_news && RuntimeExit::read(&directory).is_err() => {
                tracing::warn!(container = %name, %error, "its supervisor does not answer, and is not waited for");
            }
            Err(error) => {
                tracing::debug!(container = %name, %error, "its supervisor does not answer");
            }
        }
        match request {
            ShimRequest::Kill => self.force(name),
            _ => self.signal_first(name),
        }
    }

    /// Gives a container's first process its stop signal, as its shim would.
    fn signal_first(&self, name: &RuntimeName) {
        let directory = self.directory(name);
        let (Ok(record), Ok(launch)) = (RunRecord::read(&directory), LaunchFile::read(&directory))
        else {
            return;
        };
        let Some(first) = record.first else { return };
        first.signal(launch.order.stop_signal);
        if launch.order.terminal.is_some() {
            first.signal(libc::SIGHUP);
        }
        if let Ok(group) = self.group(name)
            && group.frozen()
            && let Err(error) = group.thaw()
        {
            tracing::warn!(container = %name, %error, "a paused container does not go on");
        }
    }

    /// Ends a container whatever its shim does: its control group, then the shim unless it writes down
    /// the end. Leaves it as it is where processes do not die; the caller that wants its end tries again.
    pub(super) fn force(&self, name: &RuntimeName) {
        let over = || self.entries().get(name).is_none_or(|entry| entry.is_over());
        let directory = self.directory(name);
        if over() {
            return;
        }
        let record = RunRecord::read(&directory).ok();
        let first = record.as_ref().and_then(|record| record.first.as_ref());
        if record.is_none()
            && let Err(error) = claim::settle(&directory, Duration::ZERO)
        {
            tracing::debug!(container = %name, %error, "its claim cannot be withdrawn");
        }
        let Ok(group) = self.group(name) else { return };
        if let Err(error) = group.kill_all() {
            tracing::error!(container = %name, %error, "it does not end");
            return;
        }
        let until = Instant::now() + OWN_WORD;
        while first.is_some() && RuntimeExit::read(&directory).is_err() && Instant::now() < until {
            if over() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if RuntimeExit::read(&directory).is_err() {
            let started_at = first
                .and(record.as_ref())
                .and_then(|record| record.started_at);
            let forced = ended_without_shim(started_at);
            if let Err(error) = forced.write(&directory) {
                tracing::error!(container = %name, %error, "the end could not be written down");
                return;
            }
            tracing::warn!(container = %name, "ended without its supervisor, which does not answer");
            let shim = record.map(|record| record.shim);
            if let Some(shim) = shim.or_else(|| claim::holder(&directory).ok().flatten()) {
                shim.signal(libc::SIGKILL);
                if let Err(error) = self.clear_after(name, &shim) {
                    tracing::error!(container = %name, %error, "processes of it remain");
                }
            }
        }
        self.conclude(name);
    }

    /// Finds out how a container ended whose shim is gone, and has that be known.
    pub(super) fn conclude(&self, name: &RuntimeName) {
        let became = self.resolve(name);
        self.make_known(name, became);
    }

    /// As `conclude`, for a thread that no caller waits for: pauses before a container is begun again that was
    /// so before.
    pub(super) fn conclude_in_time(&self, name: &RuntimeName) {
        let became = self.resolve(name);
        if matches!(became, Became::Unbegun) {
            // Nothing of it is there any more: a server that comes meanwhile finds nothing to disturb.
            self.pause(name);
        }
        self.make_known(name, became);
    }

    /// Waits until a container may be begun again; not for one that is to be ended.
    fn pause(&self, name: &RuntimeName) {
        let tries = self.begun().get(name).copied().unwrap_or_default();
        let Some(doublings) = tries.checked_sub(2) else {
            return;
        };
        let until = Instant::now() + FIRST_PAUSE * 2_u32.saturating_pow(doublings);
        let unwanted = || {
            let entries = self.entries();
            let entry = entries.get(name);
            entry.is_none_or(|entry| entry.force_at.is_some())
        };
        while Instant::now() < until && !unwanted() {
            std::thread::sleep(PAUSE_STEP);
        }
    }

    fn make_known(&self, name: &RuntimeName, became: Became) {
        {
            let mut entries = self.entries();
            if let Some(entry) = entries.get_mut(name) {
                entry.closing = false;
                match became {
                    Became::Over(standing) => {
                        entry.standing = standing;
                        entry.shim = None;
                        entry.process = None;
                    }
                    Became::Lives => {
                        entry.shim = None;
                        entry.due = Some(Instant::now());
                    }
                    Became::Unseen => {
                        entry.shim = None;
                        entry.due = Some(Instant::now() + ASK_AGAIN);
                    }
                    Became::Unbegun => drop(entries.remove(name)),
                }
            }
        }
        self.spoken.notify_all();
        self.look_again();
    }

    fn resolve(&self, name: &RuntimeName) -> Became {
        self.look_for_end(name).unwrap_or_else(|error| {
            // No container is ended because this process lacks descriptors or memory for a moment.
            tracing::warn!(container = %name, %error, "state unknown; looked at again");
            Became::Unseen
        })
    }

    /// As `resolve`; an error where something could not be looked at.
    fn look_for_end(&self, name: &RuntimeName) -> io::Result<Became> {
        let directory = self.directory(name);
        let ended = || {
            let end = launch::if_written(RuntimeExit::read(&directory))?;
            Ok::<_, io::Error>(end.map(|end| Became::Over(RuntimePhase::Ended(end))))
        };
        if let Some(ended) = ended()? {
            return Ok(ended);
        }
        if !directory.try_exists()? {
            return Ok(Became::Over(self.declare_lost(name, "it left no record")));
        }
        let record = launch::if_written(RunRecord::read(&directory))?;
        let shim = match &record {
            Some(record) => Some(record.shim.clone()),
            None => claim::holder(&directory)?,
        };
        if let Some(shim) = shim {
            if !dies(&shim)? {
                return Ok(Became::Lives);
            }
            // Its last deed may have been to write it down.
            if let Some(ended) = ended()? {
                return Ok(ended);
            }
            if let Err(error) = self.clear_after(name, &shim) {
                tracing::error!(container = %name, %error, "processes of it remain");
            }
        }
        let never = match &record {
            Some(record) if record.first.is_some() => {
                let lost = self.declare_lost(name, "its supervisor is gone");
                return Ok(Became::Over(lost));
            }
            Some(_) => claim::unheld(&directory, DYING),
            None => claim::settle(&directory, DYING)
                .map(|beginning| beginning == claim::Beginning::Never),
        };
        if !never? {
            return Ok(Became::Lives);
        }
        Ok(self.begin_again(name).unwrap_or_else(|error| {
            tracing::error!(container = %name, error = %base::observe::chain(&error), "it cannot be begun again");
            Became::Over(self.declare_lost(name, "its supervisor is gone"))
        }))
    }

    /// Removes what is left of a container whose command never ran, so that it can be started as if it
    /// had never been tried; ends it where that was done too often.
    fn begin_again(&self, name: &RuntimeName) -> Result<Became, RuntimeFault> {
        let directory = self.directory(name);
        self.end_group(name);
        let tries = {
            let mut begun = self.begun();
            let tries = begun.entry(name.clone()).or_default();
            *tries += 1;
            *tries
        };
        if tries >= BEGINNINGS {
            let ended = RuntimeExit {
                reason: Some(format!(
                    "its supervisor died {tries} times before it could begin"
                )),
                ..ended_without_shim(None)
            };
            ended
                .write(&directory)
                .map_err(file("write the end in", &directory))?;
            return Ok(Became::Over(RuntimePhase::Ended(ended)));
        }
        self.clear_unbegun(name)?;
        tracing::info!(container = %name, "it never began, and is begun again");
        Ok(Became::Unbegun)
    }

    /// Ends what a dead shim left: what it had forked on the way into its container, wherever that stands,
    /// and the container.
    fn clear_after(&self, name: &RuntimeName, shim: &ProcessIdentity) -> Result<(), CgroupError> {
        let group = self.hierarchies()?.session(&self.instance_id, name);
        let mut quiet = 0;
        for _ in 0..LOOKS {
            let left = identity::left_by(shim);
            for process in &left {
                if let Err(error) = pidfd_send_signal(process, Signal::KILL) {
                    tracing::debug!(container = %name, %error, "it was gone already");
                }
            }
            group.kill_all()?;
            quiet = if left.is_empty() { quiet + 1 } else { 0 };
            if quiet == 2 {
                return group.remove();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(CgroupError::NotEmpty {
            path: group.path().into(),
        })
    }

    fn declare_lost(&self, name: &RuntimeName, why: &str) -> RuntimePhase {
        self.end_group(name);
        RuntimePhase::Lost {
            why: why.to_owned(),
        }
    }

    fn end_group(&self, name: &RuntimeName) {
        let ended = match self.group(name) {
            Ok(group) => group.kill_all().and_then(|()| group.remove()),
            Err(_) => Ok(()),
        };
        if let Err(error) = ended {
            tracing::error!(%name, "processes of a container without supervisor remain: {error}");
        }
    }
}

/// Whether a shim that hung up is dead, or is within a moment; an error where it could not be read.
fn dies(shim: &ProcessIdentity) -> io::Result<bool> {
    let Some(process) = shim.open()? else {
        return Ok(true);
    };
    let mut watched = [PollFd::new(&process, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: DYING.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    Ok(poll(&mut watched, Some(&patience)).is_ok_and(|count| count > 0))
}

fn ended_without_shim(started_at: Option<u64>) -> RuntimeExit {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let (code, signal) = match started_at {
        Some(_) => (128 + libc::SIGKILL, Some(libc::SIGKILL)),
        None => (125, None),
    };
    RuntimeExit {
        code,
        signal,
        oom_killed: false,
        peak_memory: None,
        reason: Some("its supervisor did not answer".to_owned()),
        started_at,
        ended_at: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
    }
}
