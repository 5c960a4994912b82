//! Makes this machine match its assignment: one thread that wakes on an assignment, on a container
//! that changed, and on a clock. Steps come from `rules::housekeeping`; this file only takes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use base::link::NodeEnd;
use base::observe::{Clock, chain};
use rules::housekeeping::{ReconcileStep, steps};
use rules::incident::StuckMount;
use rules::messages::{
    Assignment, ContainerOrder, ContainerStatus, MountSpec, NodeReport, ReportedState,
    RootFileSystem, STOP_GRACE_SECONDS, Want,
};
use rules::names::{BootId, ContainerName, FolderId, VolumeId};
use rules::reason::Reason;
use rules::reasons;
use rules::resources::{Capacity, Demand, Device, DeviceShare};
use rules::session::SessionKind;
use rules::start_up::{StartUp, StartUpFailure};
use rules::units::Timestamp;
use rules::volume::{MappedUser, VolumeState};
use rules::workload::container::MAIN;
use store::folders::{directory_on_volume, mounted_directory, open_mounted, scope_of, volume_of};
use store::images::digest::Sha256Digest;
use store::quota::{ScopeKeeper, ScopePlace};
use store::volumes::{VolumeShelf, VolumeSight, refusal_of};

use crate::again::{self, Again};
use crate::assignment::{AssignmentStore, Taken};
use crate::disk::DiskWatch;
use crate::egress::{EgressWatch, WantedEgress};
use crate::enforcer::Enforcer;
use crate::gpu::mig_configurator::MigConfigurator;
use crate::gpu::monitor::DeviceMonitor;
use crate::gpu::shares::{self, Shares};
use crate::gpu::simulated;
use crate::images::{ImageNeed, NodeImages};
use crate::measure::{MeasureSources, Measurements};
use crate::report;
use crate::runtime::{self, Runtime};
use crate::scopes::{self, NodeScopes};
use crate::starts::Starts;

/// A report goes up at least this often, so that the server knows the machine lives.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// For how long a volume that did not answer is not asked again. Longer: one that is back is refused for longer. Shorter: it
/// keeps others waiting more often.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a folder on a volume may take to be opened. Longer: others wait with it. Shorter: a slow server counts as gone.
const OPENING: Duration = Duration::from_secs(5);

/// While something runs, its use is measured and told this often. Shorter: an idle class of thirty
/// costs a core's hundredth. Longer: a curve on a page shows no spike.
const MEASURE: Duration = Duration::from_secs(2);

/// Shortest sleep for a start that is due again and finds no room among those under way.
const SOONEST: Duration = Duration::from_millis(100);

/// How often logs that are too old are looked for.
const SWEEP: Duration = Duration::from_secs(3600);

/// How often images are looked for that the server has no more and no container uses. Shorter: the server is
/// asked more often. Longer: a removed image takes disk for longer.
const SWEEP_IMAGES: Duration = Duration::from_secs(60);

/// The first host id of the first session's block, and the size of a block. Above every range that
/// distributions give to people (`/etc/subuid` starts at 100,000), below 2³¹.
pub(crate) const FIRST_ID: u32 = 1 << 30;
const IDS_EACH: u32 = 1 << 16;
/// Blocks that fit below 2³¹.
const MAX_BLOCKS: u32 = ((1 << 31) - FIRST_ID) / IDS_EACH;

/// Processes and threads one session may have. Higher: a fork bomb reaches the kernel's own limit.
/// Lower: a build with many threads per core fails.
const PROCESSES: u32 = 4096;

/// What wakes the machine's loop.
#[derive(Debug)]
pub(crate) enum Wake {
    Assigned(Arc<Assignment>),
    /// Some container changed.
    Changed,
    /// The server's end of the link is gone.
    Closed,
}

pub(crate) struct Reconciler {
    pub(crate) runtime: Arc<Runtime>,
    /// Holds folders to their limits.
    pub(crate) scopes: Arc<NodeScopes>,
    pub(crate) images: NodeImages,
    pub(crate) ledger: AssignmentStore,
    pub(crate) clock: Clock,
    pub(crate) name: String,
    pub(crate) boot: BootId,
    pub(crate) capacity: Capacity,
    pub(crate) host_environment: bool,
    pub(crate) problems: Vec<Reason>,
    pub(crate) refused: BTreeMap<ContainerName, Reason>,
    /// Those whose start failed for the moment.
    pub(crate) again: Again,
    /// Those whose image is on its way from the server.
    pub(crate) fetching: BTreeSet<ContainerName>,
    /// How many are started together.
    pub(crate) starts: Starts,
    pub(crate) stopping: BTreeMap<ContainerName, Timestamp>,
    pub(crate) limits: BTreeMap<ContainerName, Demand>,
    /// Folders that were to be taken out of containers, and whether they are.
    pub(crate) detached: BTreeMap<ContainerName, BTreeMap<FolderId, bool>>,
    /// Holds containers to shares of real devices.
    pub(crate) shares: Arc<Shares>,
    /// Knows the real devices; None where they are simulated.
    pub(crate) monitor: Option<Arc<DeviceMonitor>>,
    /// Has real devices cut as they were ordered.
    pub(crate) mig_configurator: MigConfigurator,
    /// The shares of devices that containers are held to: what reports confirm.
    pub(crate) grants: BTreeMap<ContainerName, Vec<DeviceShare>>,
    /// Containers whose shares cannot be brought in line with their order, and why.
    pub(crate) unheld: BTreeMap<ContainerName, Reason>,
    pub(crate) measured: Measurements,
    /// Looks after containers with real shares; None where no device of this machine can be shared.
    pub(crate) watch: Option<Enforcer>,
    /// Pauses the sessions that fill the disk.
    pub(crate) disk: DiskWatch,
    /// What carries connections of sessions to the outside.
    pub(crate) egress: EgressWatch,
    /// The data directory, where folders lie.
    pub(crate) data: std::path::PathBuf,
    /// The volumes that folders lie on besides.
    pub(crate) volumes: VolumeShelf,
    /// Where the runtime keeps logs, and for how many days after the last line.
    pub(crate) logs: std::path::PathBuf,
    pub(crate) keep_days: u32,
}

impl Reconciler {
    /// Runs until the server's end of the link is gone. Ends no container.
    /// `looked` rings its own bell, for the thread that looks at devices.
    pub(crate) fn run(mut self, wakes: &Receiver<Wake>, link: &NodeEnd, looked: &Sender<Wake>) {
        self.work(wakes, link, looked);
        self.scopes.close(&self.mounted_scopes(is_starting));
    }

    fn work(&mut self, wakes: &Receiver<Wake>, link: &NodeEnd, looked: &Sender<Wake>) {
        let mut said: Option<NodeReport> = None;
        let mut beat = Instant::now();
        let mut swept: Option<Instant> = None;
        let mut images_swept = Instant::now();
        self.measure();
        self.look_out(looked);
        loop {
            self.reconcile();
            self.partition(looked);
            let pace = if self.measured.usage.is_empty() {
                HEARTBEAT
            } else {
                MEASURE
            };
            let due = beat.elapsed() >= pace;
            if due {
                self.measure();
                self.look_out(looked);
                self.look_at_egress();
            }
            let report = self.report();
            if due || said.as_ref().is_none_or(|before| !same(before, &report)) {
                if due {
                    beat = Instant::now();
                }
                link.send(report.clone());
                said = Some(report);
            }
            if swept.is_none_or(|at| at.elapsed() >= SWEEP) {
                swept = Some(Instant::now());
                self.sweep_logs();
            }
            if images_swept.elapsed() >= SWEEP_IMAGES {
                images_swept = Instant::now();
                self.sweep_images();
                let used = self.mounted_scopes(|_| true);
                self.scopes.release_idle(&used, scopes::IDLE);
                self.scopes.tend_pool();
            }
            let pause = pace.saturating_sub(beat.elapsed());
            let now = Instant::now();
            let again = self
                .again
                .wait(now)
                .into_iter()
                .chain(self.starts.wait(now));
            let again = again.min().map_or(pause, |wait| wait.max(SOONEST));
            let mut next = match wakes.recv_timeout(pause.min(again)) {
                Ok(wake) => Some(wake),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(wake) = next {
                match wake {
                    Wake::Assigned(assignment) => self.take(&assignment),
                    Wake::Changed => {}
                    Wake::Closed => return,
                }
                next = wakes.try_recv().ok();
            }
        }
    }

    /// Has the devices looked at from now on, where a driver is loaded; it may be loaded late.
    fn look_out(&self, looked: &Sender<Wake>) {
        let Some(monitor) = &self.monitor else {
            return;
        };
        let (shares, bell) = (Arc::downgrade(&self.shares), looked.clone());
        let begun = monitor.begin(move |seen| {
            if let Some(shares) = shares.upgrade() {
                shares.know(seen.real.clone());
            }
            bell.send(Wake::Changed).is_ok()
        });
        if let Err(error) = begun {
            tracing::error!(%error, "the thread that polls the GPUs cannot be started");
        }
    }

    /// Has a device cut that is not as ordered, once no container holds it or is to hold it.
    fn partition(&self, looked: &Sender<Wake>) {
        let (Some(monitor), Some(assignment)) = (&self.monitor, self.ledger.assignment()) else {
            return;
        };
        if assignment.partitions.is_empty() && self.mig_configurator.partition_failures().is_empty()
        {
            return;
        }
        let ordered = assignment.containers.iter().map(|order| &order.devices);
        let held = ordered
            .chain(self.grants.values())
            .flatten()
            .map(|part| part.index)
            .collect();
        let bell = looked.clone();
        self.mig_configurator
            .look(&assignment.partitions, monitor, &held, move || {
                // It is not heard once the server's end is gone.
                let _ = bell.send(Wake::Changed);
            });
    }

    fn take(&mut self, assignment: &Assignment) {
        let sights = self.runtime.sights();
        // One whose supervisor dies before its command ran is begun once more, under the same name.
        let has_begun = |sight: &runtime::ContainerState| {
            !matches!(
                sight.standing,
                runtime::RuntimePhase::Preparing | runtime::RuntimePhase::Starting
            )
        };
        let has_begun = |name: ContainerName| {
            let mut begun = sights.iter().filter(|sight| has_begun(sight));
            runtime_name(name).is_some_and(|name| begun.any(|sight| sight.name == name))
        };
        match self.ledger.take(assignment, has_begun) {
            Ok(Taken::Yes) => {
                let kept =
                    |name: &ContainerName| assignment.containers.iter().any(|o| o.name == *name);
                self.refused.retain(|name, _| kept(name));
                self.again.retain(kept);
                let mut orders = assignment.containers.iter();
                // What a policy takes away ends at once, and not with the next measurement.
                if orders.any(|one| self.egress.is_other(one.name, one.egress.as_ref())) {
                    self.look_at_egress();
                }
            }
            Ok(Taken::Foreign) => {
                tracing::warn!(
                    generation = assignment.generation,
                    "an assignment of another state is not obeyed; root may say: fardel state accept"
                );
            }
            Ok(Taken::Old) => {
                tracing::debug!(
                    generation = assignment.generation,
                    "an assignment that is not newer"
                );
            }
            Err(error) => {
                tracing::error!(error = %chain(&error), "the assignment cannot be written down; nothing was done about it")
            }
        }
    }

    /// Takes every step that is due now.
    fn reconcile(&mut self) {
        let Some(assignment) = self.ledger.assignment().cloned() else {
            return;
        };
        let sights = self.sights();
        let preparing = sights
            .iter()
            .filter(|s| matches!(s.state, ReportedState::Preparing { .. }));
        self.starts.look(preparing.map(|s| s.name));
        self.fetching.clear();
        // One moment for all of them: a start that takes long makes no room for the next in this round.
        let now = Instant::now();
        for step in steps(&assignment, &sights) {
            match step {
                ReconcileStep::Start(order) if !self.again.is_due(order.name, now) => {}
                // Its network begins with the main one. Where that one is over, the server stops this one.
                ReconcileStep::Start(order) if !has_hub(&order, &sights) => {}
                ReconcileStep::Start(order) => match self.need(&order) {
                    ImageNeed::Ready if self.starts.begins(order.name, now) => self.start(&order),
                    ImageNeed::Ready => {}
                    ImageNeed::Fetching => {
                        self.fetching.insert(order.name);
                    }
                    ImageNeed::Failed(reason) => self.refuse(order.name, reason),
                },
                ReconcileStep::Adjust(order) => self.adjust(&order),
                ReconcileStep::Pause(name) => self.act("pause", name, |r, n| r.pause(n)),
                // What the machine holds stands still whatever its owner wants.
                ReconcileStep::Resume(name) if self.is_held(name) => {}
                ReconcileStep::Resume(name) => self.act("resume", name, |r, n| r.resume(n)),
                ReconcileStep::Stop(name) => {
                    let mut orders = assignment.containers.iter();
                    let order = orders.find(|order| order.name == name);
                    let grace = order.map_or(STOP_GRACE_SECONDS, ContainerOrder::stop_grace);
                    self.stop(name, &sights, Duration::from_secs(grace));
                }
                ReconcileStep::Kill(name) => self.act("kill", name, |r, n| r.kill(n)),
                ReconcileStep::Forget(name) => self.forget(name),
            }
        }
        let starts = |order: &&ContainerOrder| matches!(order.want, Want::Run | Want::Pause);
        let wanted = assignment.containers.iter().filter(starts);
        self.images.retain(&wanted.filter_map(image_of).collect());
        if let Some(watch) = &self.watch
            && let Err(error) = watch.wake()
        {
            tracing::error!(
                "the watchdog of real shares cannot be started, tried again with the next change: {error}"
            );
        }
    }

    fn is_held(&self, name: ContainerName) -> bool {
        runtime_name(name).is_some_and(|name| {
            self.watch.as_ref().is_some_and(|watch| watch.holds(&name)) || self.disk.holds(&name)
        })
    }

    fn start(&mut self, order: &ContainerOrder) {
        let mut passes = false;
        if order.egress.is_some()
            && let Err(error) = self.egress.ready()
        {
            tracing::error!(%error, "the relay does not serve; the session has no network until it does");
        }
        let made = self.container_order(order).and_then(|wanted| {
            self.runtime.start(&wanted).map_err(|fault| {
                self.shares.forget(order.name);
                passes = again::passes(&fault);
                refusal(&fault)
            })
        });
        match made {
            Ok(()) => {
                self.again.forget(order.name);
                self.limits.insert(order.name, order.demand);
                self.grants.insert(order.name, order.devices.clone());
            }
            Err(reason) if passes && self.again.failed(order.name, Instant::now()) => {
                self.starts.forget(order.name);
                tracing::warn!(container = %order.name, reason = reason.text, "cannot be started now; it is tried again");
            }
            Err(reason) => {
                self.starts.forget(order.name);
                self.refuse(order.name, reason);
            }
        }
    }

    /// Has the relay serve each running container that has a network, and takes what it counted.
    fn look_at_egress(&mut self) {
        let Some(assignment) = self.ledger.assignment() else {
            return;
        };
        let sights = self.runtime.sights();
        let runs = |name: &runtime::RuntimeName| {
            sights.iter().any(|sight| {
                sight.name == *name
                    && matches!(sight.standing, runtime::RuntimePhase::Running { .. })
            })
        };
        let wanted: Vec<WantedEgress> = assignment
            .containers
            .iter()
            .filter_map(|order| {
                let egress = order.egress.clone()?;
                let name = runtime_name(order.name)?;
                let runs = runs(&name);
                Some(WantedEgress {
                    container: order.name,
                    name,
                    egress,
                    runs,
                })
            })
            .collect();
        self.egress.look(&self.runtime, &wanted);
    }

    fn refuse(&mut self, name: ContainerName, reason: Reason) {
        tracing::warn!(container = %name, code = reason.code, reason = reason.text, "cannot be started");
        self.refused.insert(name, reason);
    }

    /// Whether the image of a container is here; one that can never be is judged when the container is made.
    fn need(&self, order: &ContainerOrder) -> ImageNeed {
        image_of(order).map_or(ImageNeed::Ready, |image| self.images.need(&image))
    }

    /// Has images removed that the server has no more. What a container that is not on the assignment started
    /// from is not known, so nothing is removed while there is one.
    fn sweep_images(&self) {
        let Some(assignment) = self.ledger.assignment() else {
            return;
        };
        let assigned = |name: &str| {
            let mut orders = assignment.containers.iter();
            orders.any(|order| order.name.to_string() == name)
        };
        if self
            .runtime
            .sights()
            .iter()
            .all(|sight| assigned(sight.name.as_str()))
        {
            let used = assignment.containers.iter().filter_map(image_of);
            self.images.sweep(&used.collect());
        }
    }

    /// The order in the runtime's words; a reason where it cannot be made on this machine.
    fn container_order(&self, order: &ContainerOrder) -> Result<runtime::ContainerSpec, Reason> {
        let slot = self.ledger.place(order.name).map_or(0, |p| p.slot);
        if slot >= MAX_BLOCKS {
            return Err(reasons::node_out_of_ids());
        }
        let name =
            runtime::RuntimeName::parse(&order.name.to_string()).map_err(reasons::node_name)?;
        let mounts: Vec<runtime::MountOrder> = order
            .mounts
            .iter()
            .filter(|mount| !mount.detached)
            .map(|mount| {
                let made = self.mount_order(mount);
                // What no launch asked for keeps no session from starting while a file server is away, nor once a lost
                // machine came back without its folders.
                let is_spared = mount.by_itself
                    && (volume_of(&self.data, mount.folder).is_some() || !self.has(mount.folder));
                made.or_else(|reason| match is_spared {
                    true => Ok(runtime::MountOrder {
                        at: mount.at.clone(),
                        by_itself: true,
                        away: true,
                        ..runtime::MountOrder::default()
                    }),
                    false => Err(reason),
                })
            })
            .collect::<Result<_, Reason>>()?;
        let hub = hub_of(order).and_then(runtime_name);
        let networks = order.networks.iter().map(|network| runtime::NetworkOrder {
            name: network.name.clone(),
            members: network.members,
            place: order.name.index,
            hub: hub.clone(),
        });
        let mut wanted = runtime::ContainerSpec {
            name,
            root: runtime::RootOrder {
                layers: Vec::new(),
                host_environment: false,
            },
            command: order.command.clone(),
            environment: Vec::new(),
            directory: None,
            user: runtime::UserOrder::Usual,
            hostname: order.hostname.clone(),
            terminal: (order.kind == SessionKind::Interactive).then_some(runtime::TerminalSize {
                columns: 120,
                rows: 32,
            }),
            cpu_hundredths: order.demand.cpu.0,
            memory_bytes: order.demand.memory.0,
            shm_bytes: order.demand.shm.0,
            disk_bytes: self.disk_bytes(&order.demand),
            pids: PROCESSES,
            ids: runtime::IdRange {
                base: FIRST_ID + slot * IDS_EACH,
                size: IDS_EACH,
                mapped: mapped_user(&order.mounts)?,
            },
            stop_signal: 15,
            mounts,
            networks: networks.collect(),
            egress: order.egress.clone(),
            sudo: order.sudo,
            ulimits: order.ulimits,
            devices: Vec::new(),
            files: Vec::new(),
            start_up: StartUp {
                variables: BTreeMap::new(),
                ..order.start_up.clone()
            },
        };
        match &order.root {
            RootFileSystem::Host => {
                if !self.host_environment {
                    return Err(reasons::node_without_host_environment());
                }
                wanted.root.host_environment = true;
            }
            RootFileSystem::Image { digest } => self.image(digest, &mut wanted)?,
        }
        if wanted.command.is_empty() {
            wanted.command = vec!["/bin/sh".into()];
            if order.root == RootFileSystem::Host {
                wanted.command = vec!["/bin/bash".into(), "-l".into()];
            }
        }
        // Later entries win: what a launch says stands above what its owner always has.
        let variables = order.start_up.variables.iter().chain(&order.env);
        wanted
            .environment
            .extend(variables.map(|(k, v)| (k.clone(), v.clone())));
        let real = simulated::real(&order.devices)?;
        if !real.is_empty() {
            let given = self.shares.grant(order.name, real)?;
            wanted.devices = given.devices;
            wanted.files = given.files;
        }
        Ok(wanted)
    }

    /// What a session is held to on the disk; None where it asks for no limit, and where this machine holds none.
    fn disk_bytes(&self, demand: &Demand) -> Option<u64> {
        let asked = demand.disk?;
        self.scopes.holds_sessions().then_some(asked.0)
    }

    /// Whether anything of a folder is on this machine: its directory, or the link to it. Costs one look.
    fn has(&self, folder: FolderId) -> bool {
        let inside = mounted_directory(&self.data, folder);
        inside
            .parent()
            .is_some_and(|place| place.symlink_metadata().is_ok())
    }

    /// A folder of this machine at its place; a reason where it is not here. Never makes one: an empty folder in the place
    /// of a lost one would look as if its files were gone.
    fn mount_order(&self, mount: &MountSpec) -> Result<runtime::MountOrder, Reason> {
        if let Some(volume) = volume_of(&self.data, mount.folder) {
            return self.mount_on_volume(mount, volume);
        }
        let entered = match scope_of(&self.data, mount.folder) {
            // It stays mounted for long after this, while the session begins.
            Some(scope) => self.scopes.enter(&scope, None).map(drop),
            None => Ok(()),
        };
        // A shim keeps the mount that a folder lies on by comparing paths: a link of the administrator's would hide it.
        let found =
            entered.and_then(|()| mounted_directory(&self.data, mount.folder).canonicalize());
        let opened = found.and_then(|from| {
            open_mounted(&from, &mount.subpath)?;
            Ok(from)
        });
        let from = opened.map_err(|error| {
            tracing::warn!(folder = %mount.folder, %error, "a folder cannot be opened");
            reasons::folder_missing(&mount.at)
        })?;
        Ok(runtime::MountOrder {
            from,
            subpath: mount.subpath.clone(),
            at: mount.at.clone(),
            read_only: mount.read_only,
            on_volume: false,
            by_itself: mount.by_itself,
            away: false,
            unmapped: false,
        })
    }

    /// The same of one on a volume. Costs ten seconds at most where the volume does not answer, and nothing where it did not
    /// half a minute ago.
    fn mount_on_volume(
        &self,
        mount: &MountSpec,
        volume: VolumeId,
    ) -> Result<runtime::MountOrder, Reason> {
        let gone = || reasons::volume_gone_at(&mount.at);
        let is_silent = |sight: VolumeSight| {
            let is_new = sight.at.elapsed().is_ok_and(|age| age < SILENCE);
            sight.state == VolumeState::Hung && is_new
        };
        if self.volumes.sight(volume).is_some_and(is_silent) {
            return Err(gone());
        }
        if self.volumes.look(volume).state.refuse_reading().is_err() {
            return Err(gone());
        }
        let (tell, told) = mpsc::channel();
        let (shelf, folder, subpath) = (self.volumes.clone(), mount.folder, mount.subpath.clone());
        // It may hang since it was looked at a moment ago: the machine goes on without this thread then.
        let begun = std::thread::Builder::new()
            .name("volume-open".to_owned())
            .spawn(move || {
                let found = directory_on_volume(&shelf, volume, folder);
                let opened = found.and_then(|from| {
                    let from = from.canonicalize()?;
                    open_mounted(&from, &subpath)?;
                    Ok(from)
                });
                let _ = tell.send(opened);
            });
        begun.map_err(|_| gone())?;
        let opened = told.recv_timeout(OPENING).map_err(|_| gone())?;
        let from = opened.map_err(|error| {
            tracing::warn!(folder = %mount.folder, %error, "a folder on a volume cannot be opened");
            match refusal_of(&error) {
                Some(_) => gone(),
                None => reasons::folder_missing(&mount.at),
            }
        })?;
        Ok(runtime::MountOrder {
            from,
            subpath: mount.subpath.clone(),
            at: mount.at.clone(),
            read_only: mount.read_only,
            on_volume: true,
            by_itself: mount.by_itself,
            away: false,
            unmapped: mount.mapped.is_some(),
        })
    }

    /// The scopes of folders that assigned containers mount whose state `is_meant`. Costs one look for each mount.
    fn mounted_scopes(&self, is_meant: impl Fn(&ReportedState) -> bool) -> BTreeSet<ScopePlace> {
        let Some(assignment) = self.ledger.assignment() else {
            return BTreeSet::new();
        };
        let sights = self.sights();
        let meant = |order: &&ContainerOrder| {
            let seen = sights.iter().find(|sight| sight.name == order.name);
            seen.is_none_or(|sight| is_meant(&sight.state))
        };
        let orders = assignment.containers.iter().filter(meant);
        let mounts = orders.flat_map(|order| &order.mounts);
        mounts
            .filter_map(|mount| scope_of(&self.data, mount.folder))
            .collect()
    }

    /// What an image says of itself: its layers, and what the order leaves open.
    fn image(&self, digest: &str, wanted: &mut runtime::ContainerSpec) -> Result<(), Reason> {
        let missing = || reasons::image_missing();
        let digest = Sha256Digest::parse(digest).ok_or_else(missing)?;
        let record = self.images.store().image(&digest).map_err(|_| missing())?;
        let mut layers = self.images.store().layers(&digest).map_err(|_| missing())?;
        // The store lists the top-most first, the runtime wants the lowest first.
        layers.reverse();
        wanted.root.layers = layers;
        let settings = record.settings;
        wanted.environment = settings
            .env
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        // A command given at launch takes the place of the image's own; its entry point stays in
        // front only of the image's own arguments, as a person who types a command expects.
        if wanted.command.is_empty() {
            wanted.command = settings
                .entrypoint
                .into_iter()
                .chain(settings.cmd)
                .collect();
        }
        if !settings.user.is_empty() {
            wanted.user = runtime::UserOrder::Named(settings.user);
        }
        if !settings.working_directory.is_empty() {
            wanted.directory = Some(settings.working_directory);
        }
        if let Some(number) = settings.stop_signal.as_deref().and_then(signal_number) {
            wanted.stop_signal = number;
        }
        Ok(())
    }

    fn adjust(&mut self, order: &ContainerOrder) {
        self.regrant(order);
        self.detach(order);
        if self.limits.get(&order.name) == Some(&order.demand) {
            return;
        }
        let Some(name) = runtime_name(order.name) else {
            return;
        };
        let changed = self
            .runtime
            .set_cpu(&name, order.demand.cpu.0)
            .and_then(|()| self.runtime.set_memory(&name, order.demand.memory.0));
        match changed {
            Ok(()) => {
                self.limits.insert(order.name, order.demand);
            }
            // It has just ended; the next look says so.
            Err(
                fault @ (runtime::RuntimeFault::NotRunning(_) | runtime::RuntimeFault::Unknown(_)),
            ) => {
                tracing::debug!(container = %order.name, error = %chain(&fault), "its limits matter no more")
            }
            Err(fault) => {
                tracing::warn!(container = %order.name, error = %chain(&fault), "its limits cannot be changed now")
            }
        }
    }

    /// Takes folders out of a running container that their owners want out of it.
    fn detach(&mut self, order: &ContainerOrder) {
        let Some(name) = runtime_name(order.name) else {
            return;
        };
        for mount in order.mounts.iter().filter(|mount| mount.detached) {
            let known = self.detached.entry(order.name).or_default();
            if known.get(&mount.folder) == Some(&true) {
                continue;
            }
            match self.runtime.detach(&name, &mount.folder.to_string()) {
                Ok(()) => {
                    known.insert(mount.folder, true);
                }
                // It has just ended, and its mounts with it.
                Err(runtime::RuntimeFault::NotRunning(_) | runtime::RuntimeFault::Unknown(_)) => {
                    known.remove(&mount.folder);
                }
                Err(fault) => {
                    // Once: it is tried again with every look. Reports say it until it is out.
                    if known.insert(mount.folder, false).is_none() {
                        tracing::warn!(container = %order.name, folder = %mount.folder, error = %chain(&fault), "a folder cannot be taken out of it now");
                    }
                }
            }
        }
    }

    /// Holds a running container to its new shares of devices. Nothing is confirmed before it is so. Of
    /// simulated devices nothing is held, so there is nothing to wait for.
    fn regrant(&mut self, order: &ContainerOrder) {
        if self.grants.get(&order.name) == Some(&order.devices) {
            return;
        }
        let held = simulated::real(&order.devices).and_then(|real| match real {
            [] => Ok(()),
            real => self.shares.regrant(order.name, real),
        });
        match held {
            Ok(()) => {
                self.grants.insert(order.name, order.devices.clone());
                self.unheld.remove(&order.name);
            }
            Err(reason) => {
                // Once: it is tried again with every look.
                if self.unheld.insert(order.name, reason.clone()).as_ref() != Some(&reason) {
                    tracing::warn!(container = %order.name, code = reason.code, "its share cannot be changed: {}", reason.text);
                }
            }
        }
    }

    fn stop(&mut self, name: ContainerName, sights: &[ContainerStatus], grace: Duration) {
        if !sights.iter().any(|s| s.name == name) {
            let reason = reasons::session_stopped_before_start();
            self.again.forget(name);
            self.refused.insert(name, reason);
            return;
        }
        self.stopping
            .entry(name)
            .or_insert_with(|| self.clock.now());
        self.act("stop", name, |r, n| r.stop(n, grace));
    }

    fn forget(&mut self, name: ContainerName) {
        self.stopping.remove(&name);
        self.limits.remove(&name);
        self.detached.remove(&name);
        self.grants.remove(&name);
        self.unheld.remove(&name);
        self.shares.forget(name);
        self.measured.forget(name);
        self.refused.remove(&name);
        if let Some((watch, name)) = self.watch.as_ref().zip(runtime_name(name)) {
            watch.forget(&name);
        }
        if let Some(name) = runtime_name(name) {
            self.disk.forget(&name);
        }
        self.act("forget", name, |r, n| match r.forget(n) {
            // Its supervisor has said the last word but not yet left, or its files are still being removed:
            // forgotten with a later look.
            Err(runtime::RuntimeFault::StillThere(_) | runtime::RuntimeFault::Clearing(_)) => {
                Ok(())
            }
            done => done,
        });
    }

    fn act(
        &self,
        what: &str,
        name: ContainerName,
        act: impl FnOnce(&Runtime, &runtime::RuntimeName) -> Result<(), runtime::RuntimeFault>,
    ) {
        let Some(inner) = runtime_name(name) else {
            return;
        };
        if let Err(fault) = act(&self.runtime, &inner) {
            tracing::warn!(container = %name, what, error = %chain(&fault), "tried again with the next change");
        }
    }

    /// Reads what running containers use, and forgets the figures of those that are gone.
    fn measure(&mut self) {
        self.measured.again(&MeasureSources {
            runtime: &self.runtime,
            shares: &self.shares,
            watch: self.watch.as_ref(),
            monitor: self.monitor.as_ref(),
            devices: &self.capacity.devices,
            grants: &self.grants,
            time: self.clock.now(),
        });
    }

    /// Removes logs whose last line is older than rows are kept, unless their container still exists.
    fn sweep_logs(&self) {
        let kept = Duration::from_secs(u64::from(self.keep_days) * 86_400);
        let known: std::collections::BTreeSet<String> = self
            .runtime
            .sights()
            .iter()
            .map(|sight| sight.name.to_string())
            .collect();
        let Ok(folders) = std::fs::read_dir(&self.logs) else {
            return;
        };
        for folder in folders.flatten() {
            let Some(name) = folder
                .file_name()
                .to_str()
                .and_then(|n| runtime::RuntimeName::parse(n).ok())
            else {
                continue;
            };
            let newest = std::fs::read_dir(folder.path())
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|file| file.metadata().ok()?.modified().ok())
                .chain(folder.metadata().ok().and_then(|m| m.modified().ok()))
                .max();
            let old = newest
                .and_then(|at| at.elapsed().ok())
                .is_some_and(|age| age > kept);
            if old
                && !known.contains(name.as_str())
                && let Err(fault) = self.runtime.forget_log(&name)
            {
                tracing::warn!(container = %name, error = %chain(&fault), "its old log cannot be removed");
            }
        }
    }

    fn sights(&self) -> Vec<ContainerStatus> {
        let places = |name| self.ledger.place(name);
        report::sights(
            &self.runtime.sights(),
            &self.measured.usage,
            &self.known(&places),
        )
    }

    fn known<'a>(
        &'a self,
        places: &'a dyn Fn(ContainerName) -> Option<crate::assignment::IdBlock>,
    ) -> report::ReportInputs<'a> {
        report::ReportInputs {
            boot: self.boot,
            assignment: self.ledger.assignment(),
            places,
            refused: &self.refused,
            fetching: &self.fetching,
            grants: &self.grants,
            stopping: &self.stopping,
        }
    }

    /// What this machine offers now.
    pub(crate) fn offered(&self) -> Capacity {
        let seen = self.monitor.as_ref().map(|monitor| monitor.seen().devices);
        self.with(seen.unwrap_or_default())
    }

    fn with(&self, mut devices: Vec<Device>) -> Capacity {
        // What is in force for those who hold slices now, before what there would be for others.
        for device in &mut devices {
            let watch = self.watch.as_ref().filter(|_| !device.is_partitioned());
            let number = shares::uuid(&device.uuid);
            let now = watch
                .zip(number)
                .and_then(|(watch, number)| watch.hold(&number));
            device.hold = now.unwrap_or(device.hold);
        }
        let mut capacity = self.capacity.clone();
        capacity.devices.extend(devices);
        report::tell_unheld(
            &mut capacity.devices,
            &self.unheld,
            self.ledger.assignment(),
        );
        capacity
    }

    fn start_up_failures(&self) -> Vec<StartUpFailure> {
        let failed = self.runtime.start_up_failures().into_iter();
        failed
            .filter_map(|(name, end)| {
                Some(StartUpFailure {
                    container: name.as_str().parse().ok()?,
                    exit_code: end.exit_code,
                    ends_session: end.ends_session,
                })
            })
            .collect()
    }

    /// Folders that containers were to lose and still have.
    fn stuck_mounts(&self) -> Vec<StuckMount> {
        let mut stuck = Vec::new();
        for (container, folders) in &self.detached {
            let kept = folders.iter().filter(|(_, is_out)| !**is_out);
            stuck.extend(kept.map(|(folder, _)| StuckMount {
                container: *container,
                folder: *folder,
            }));
        }
        stuck
    }

    fn report(&self) -> NodeReport {
        let places = |name| self.ledger.place(name);
        let seen = self.monitor.as_ref().map(|monitor| monitor.seen());
        let seen = seen.unwrap_or_default();
        NodeReport {
            node: self.ledger.node(),
            name: self.name.clone(),
            boot: self.boot,
            generation: self.ledger.memory().generation,
            state: self.ledger.memory().state,
            at: self.clock.now(),
            capacity: self.with(seen.devices),
            host_environment: self.host_environment,
            containers: report::complete(self.sights(), &self.known(&places)),
            problems: self
                .problems
                .iter()
                .chain(self.ledger.trouble())
                .chain(self.unheld.values())
                .cloned()
                .chain(report::silent(&self.runtime.silent()))
                .chain(seen.problems)
                .chain(self.watch.iter().flat_map(Enforcer::problems))
                .collect(),
            device_uses: seen
                .uses
                .into_iter()
                .chain(self.measured.made_up.iter().copied())
                .collect(),
            incidents: self
                .watch
                .iter()
                .flat_map(Enforcer::incidents)
                .filter_map(|incident| report::incident(&incident))
                .chain(self.disk.incidents())
                .collect(),
            partition_failures: self.mig_configurator.partition_failures(),
            egress: self.egress.reports(),
            start_up_failures: self.start_up_failures(),
            stuck_mounts: self.stuck_mounts(),
        }
    }
}

/// Whether its supervisor may still have to find the folders that it mounts.
fn is_starting(state: &ReportedState) -> bool {
    matches!(state, ReportedState::Preparing { .. })
}

/// The user of the site that a container is on volumes without id-mapped mounts; None where it mounts none.
fn mapped_user(mounts: &[MountSpec]) -> Result<Option<MappedUser>, Reason> {
    let mut all = mounts.iter().filter_map(|mount| mount.mapped);
    let first = all.next();
    match all.all(|other| Some(other) == first) {
        true => Ok(first),
        false => Err(reasons::volume_mapped_users()),
    }
}

/// The container in whose namespace the switch of its network is: the main one. None for that one, and without a network.
fn hub_of(order: &ContainerOrder) -> Option<ContainerName> {
    let joins = !order.networks.is_empty() && order.name.index != MAIN;
    joins.then_some(ContainerName {
        index: MAIN,
        ..order.name
    })
}

/// Whether the network that a container joins is there, by what is seen.
fn has_hub(order: &ContainerOrder, sights: &[ContainerStatus]) -> bool {
    hub_of(order).is_none_or(|hub| {
        let mut running = sights
            .iter()
            .filter(|one| matches!(one.state, ReportedState::Running { .. }));
        running.any(|one| one.name == hub)
    })
}

/// The image that a container starts from; None for the host environment and for what is no digest.
fn image_of(order: &ContainerOrder) -> Option<Sha256Digest> {
    match &order.root {
        RootFileSystem::Host => None,
        RootFileSystem::Image { digest } => Sha256Digest::parse(digest),
    }
}

/// The number of `SIGTERM`, `TERM` or `15`; None for what names no signal.
fn signal_number(text: &str) -> Option<i32> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let known = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("KILL", 9),
        ("USR1", 10),
        ("USR2", 12),
        ("TERM", 15),
        ("WINCH", 28),
        ("PWR", 30),
    ];
    let number = known
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, number)| *number);
    number.or_else(|| name.parse().ok().filter(|n| (1..=64).contains(n)))
}

/// Why a start was refused, in the words of a session's reason.
fn refusal(fault: &runtime::RuntimeFault) -> Reason {
    match fault {
        // The runtime's own list of findings has the codes and the sentences.
        runtime::RuntimeFault::CannotRun(finding) => Reason::from_parts(
            format!("node.{}", finding.code.replace('_', "-")),
            format!(
                "This machine cannot run containers. {}",
                finding.sentences()
            ),
        ),
        fault => reasons::session_not_started(chain(fault)),
    }
}

fn runtime_name(name: ContainerName) -> Option<runtime::RuntimeName> {
    runtime::RuntimeName::parse(&name.to_string()).ok()
}

/// True where nothing but the time and the use differs.
fn same(a: &NodeReport, b: &NodeReport) -> bool {
    let bare = |report: &NodeReport| {
        let mut report = report.clone();
        report.at = Timestamp::from_millis(0);
        report.device_uses = Vec::new();
        report.egress = Vec::new();
        for container in &mut report.containers {
            container.usage = None;
        }
        report
    };
    bare(a) == bare(b)
}
