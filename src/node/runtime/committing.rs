//! Reads what a session wrote for an image: holds its processes still meanwhile, and lets them go on in any case,
//! after a crash of the server too. Decides nothing about who may have it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::link::streams::LayerRequest;
use rules::commit::{LayerExclusions, LayerSurvey, MAX_LAYER_BYTES};
use rules::refusal::Refusal;
use rules::refusals;
use rustix::fs::{Mode, OFlags};
use store::images::failure::ImageError;
use store::images::upper::{SessionIds, UpperLayer};

use super::launch::LaunchFile;
use super::{Runtime, RuntimeFault, RuntimeName, RuntimePhase, RuntimeState, file};

/// How long the processes of a session may take to stand still. Longer: a session that waits for a disk stands longer.
/// Shorter: a busy session is refused.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(5);
/// Between two looks, while it is read, whether it still stands. Longer: one that ended is read for longer. Shorter: more
/// looks.
const STILL_LOOK: Duration = Duration::from_secs(1);
/// The file that says that a session stands still to be read, in the container's directory.
const MARK: &str = "read-for-image";

/// Containers that are being read, and whether each goes on standing still afterwards.
pub(super) type Readings = BTreeMap<RuntimeName, bool>;

/// Why a session's layer was not read.
#[derive(Debug, thiserror::Error)]
pub enum LayerFault {
    #[error("{0}")]
    Refused(Box<Refusal>),
    #[error(transparent)]
    Runtime(#[from] RuntimeFault),
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl From<Refusal> for LayerFault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Takes a session's layer as it is read.
pub(crate) trait LayerSink: Write {
    /// What the layer holds; comes before its bytes.
    fn found(&mut self, survey: LayerSurvey) -> io::Result<()>;

    /// Whether its reader still wants it. Its refusal ends the reading.
    fn proceed(&self) -> Result<(), Refusal>;
}

impl Runtime {
    /// Looks through what a running session wrote, and gives its bytes unless only a look was asked for. Its processes stand
    /// still while bytes are read, for as long as that takes.
    ///
    /// Errors: `commit.host-environment`, `commit.not-running`, `commit.busy`, `commit.still-moving`,
    /// `commit.session-went-on`, and those of `UpperLayer`.
    pub(crate) fn read_layer(
        &self,
        name: &RuntimeName,
        request: &LayerRequest,
        sink: &mut dyn LayerSink,
    ) -> Result<(), LayerFault> {
        if self.running(name).is_err() {
            return Err(refusals::commit_not_running().into());
        }
        let directory = self.shared.directory(name);
        let launch =
            LaunchFile::read(&directory).map_err(file("read the launch in", &directory))?;
        if launch.host.is_some() {
            return Err(refusals::commit_host_environment().into());
        }
        let exclusions = exclusions(&launch, request);
        let path = launch.own_directory.join("upper");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let upper = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|error| file("open", &path)(error.into()))?;
        let order = launch.order;
        let ids = SessionIds {
            base: order.ids.base,
            size: order.ids.size,
            mapped: order.ids.mapped.map(|mapped| (mapped.uid, mapped.gid)),
        };
        let held = match request.look_only {
            true => None,
            false => Some(LayerHold::take(&self.shared, name)?),
        };
        let survey = {
            let proceed = || sink.proceed();
            layer(upper.as_fd(), ids, &exclusions, request, &proceed).survey()?
        };
        sink.found(survey)
            .map_err(|_| refusals::commit_cancelled())?;
        let Some(held) = held else {
            return Ok(());
        };
        // Whether its reader is gone is told by each write.
        let looked_at = Cell::new(Instant::now());
        let proceed = || -> Result<(), Refusal> {
            if looked_at.get().elapsed() < STILL_LOOK {
                return Ok(());
            }
            looked_at.set(Instant::now());
            match held.stood_still() {
                true => Ok(()),
                false => Err(refusals::commit_session_went_on()),
            }
        };
        layer(upper.as_fd(), ids, &exclusions, request, &proceed).write(sink)?;
        if !held.stood_still() {
            return Err(refusals::commit_session_went_on().into());
        }
        Ok(())
    }
}

fn layer<'a>(
    directory: std::os::fd::BorrowedFd<'a>,
    ids: SessionIds,
    exclusions: &'a LayerExclusions,
    request: &LayerRequest,
    proceed: &'a dyn Fn() -> Result<(), Refusal>,
) -> UpperLayer<'a> {
    UpperLayer {
        directory,
        ids,
        exclusions,
        most_bytes: request.most_bytes.min(MAX_LAYER_BYTES),
        proceed,
    }
}

/// What is left out of a session's layer: what its owner names, where folders and files of the machine are shown, and its
/// home.
fn exclusions(launch: &LaunchFile, request: &LayerRequest) -> LayerExclusions {
    let order = &launch.order;
    // The order does not say where the home was mounted; a mount leaves no more than its place in the layer.
    let asked = order.mounts.iter().filter(|mount| !mount.by_itself);
    let mounts = asked.map(|mount| mount.at.clone());
    let files = order.files.iter().map(|file| file.at.clone());
    let devices = order.devices.iter().map(|device| device.at.clone());
    let home = order
        .environment
        .iter()
        .rev()
        .find(|(key, _)| key == "HOME");
    let home = home.map(|(_, home)| home.clone());
    let all = mounts.chain(files).chain(devices).chain(home);
    LayerExclusions::with(all.chain(request.exclude.iter().cloned()))
}

/// The processes of a session held still; dropping it lets them go on, unless they stood still before.
struct LayerHold {
    shared: Arc<RuntimeState>,
    name: RuntimeName,
}

impl LayerHold {
    fn take(shared: &Arc<RuntimeState>, name: &RuntimeName) -> Result<Self, LayerFault> {
        let group = shared.group(name)?;
        {
            let mut readings = shared.readings();
            if readings.contains_key(name) {
                return Err(refusals::commit_reading_other().into());
            }
            readings.insert(name.clone(), group.frozen());
        }
        // From here on it is let go in any case.
        let held = Self {
            shared: Arc::clone(shared),
            name: name.clone(),
        };
        let mark = held.mark();
        // Before it stands still: the next server lets it go on if this one ends.
        fs::write(&mark, b"").map_err(file("write", &mark))?;
        group.freeze().map_err(RuntimeFault::from)?;
        let until = Instant::now() + FREEZE_TIMEOUT;
        while !group.stands() {
            if Instant::now() >= until {
                return Err(refusals::commit_still_moving().into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(held)
    }

    /// Whether it stands still yet, and has not ended.
    fn stood_still(&self) -> bool {
        let group = self.shared.group(&self.name);
        let runs = self
            .shared
            .entries()
            .get(&self.name)
            .is_some_and(|entry| matches!(entry.standing, RuntimePhase::Running { .. }));
        runs && group.is_ok_and(|group| group.stands())
    }

    fn mark(&self) -> PathBuf {
        self.shared.directory(&self.name).join(MARK)
    }
}

impl Drop for LayerHold {
    fn drop(&mut self) {
        let mut readings = self.shared.readings();
        let stays = readings.remove(&self.name).unwrap_or(false);
        if !stays {
            self.shared.let_go_on(&self.name);
        }
        drop(readings);
        // Gone with the container where that is.
        let _ = fs::remove_file(self.mark());
    }
}

impl RuntimeState {
    pub(super) fn readings(&self) -> MutexGuard<'_, Readings> {
        // Changed in one step each.
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets containers go on that an earlier server held still to read them; the reconciler pauses those again that are to
    /// stand still.
    pub(super) fn end_readings(&self, name: &RuntimeName) {
        let mark = self.directory(name).join(MARK);
        if !mark.exists() {
            return;
        }
        self.let_go_on(name);
        let _ = fs::remove_file(&mark);
        tracing::info!(container = %name, "it goes on: an earlier server held it still to make an image");
    }

    fn let_go_on(&self, name: &RuntimeName) {
        if let Ok(group) = self.group(name)
            && group.exists()
            && let Err(error) = group.thaw()
        {
            tracing::error!(container = %name, %error, "a session that was read for an image does not go on");
        }
    }
}
