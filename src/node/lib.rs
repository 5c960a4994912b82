//! Room 4, this machine: makes containers what an assignment says they should be, and reports what
//! is. Never sees the catalog, a person or an HTTP request; speaks to the server only in the two
//! messages of `rules::messages`, and lets doors in by `base::link::streams`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use base::link::NodeEnd;
use base::link::images::ImageSource;
use base::link::streams::Streams;
use base::observe::Clock;
use rules::continuity::Memory;
use rules::names::{BootId, NodeId};
use rules::reason::Reason;
use rules::resources::{Capacity, Device};
use rules::storage::PoolSetting;
use rules::units::{Bytes, CpuShare};
use store::images::failure::ImageError;
use store::quota::ScopeKeeper;
use store::volumes::VolumeShelf;

mod again;
mod assignment;
mod dial;
pub mod disk;
pub mod doctor;
mod egress;
pub mod enforcer;
pub mod gpu;
pub mod host_network;
pub mod images;
mod inventory;
pub mod machine;
mod measure;
mod network;
pub mod program;
mod reconciler;
mod record;
pub mod relay;
mod report;
pub mod runtime;
mod scopes;
mod starts;

/// The host ids that sessions run under; no other user may have one of them.
pub fn session_ids() -> std::ops::Range<u64> {
    u64::from(reconciler::FIRST_ID)..1 << 31
}

use again::Again;
use assignment::AssignmentStore;
use disk::DiskWatch;
use egress::EgressWatch;
use enforcer::Enforcer;
use gpu::mig_configurator::MigConfigurator;
use gpu::monitor::{DeviceMonitor, MonitorConfig};
use gpu::shares::Shares;
use images::{ImageDirectory, NodeImages};
use measure::Measurements;
use reconciler::{Reconciler, Wake};
use runtime::{Runtime, RuntimeFault, RuntimePaths};
use scopes::NodeScopes;
use starts::Starts;

/// What a machine is opened with.
#[derive(Debug)]
pub struct NodeOptions {
    pub id: NodeId,
    pub places: RuntimePaths,
    /// Where images lie that its containers start from.
    pub images: ImageDirectory,
    pub host_environment: bool,
    /// The administrator's bounds; None: all there is, less a reserve of memory.
    pub cpu: Option<CpuShare>,
    pub memory: Option<Bytes>,
    /// Devices that it says it has; see `gpu::simulated`.
    pub devices: Vec<Device>,
    /// Where the vendor's driver is found; `/` unless a machine keeps it in a tree of its own.
    pub driver_root: PathBuf,
    /// What becomes of a device's time that its owner does not use.
    pub gpu_mode: gpu::arbiter::Mode,
    /// Days that logs of ended containers are kept.
    pub keep_days: u32,
}

/// Why the machine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NodeFault {
    #[error("the runtime cannot be opened")]
    Runtime(#[from] RuntimeFault),
    #[error("what this machine was told cannot be read from {path}")]
    Ledger { path: PathBuf, source: io::Error },
    #[error("the kernel does not say which boot this is")]
    Boot(#[source] io::Error),
    #[error("the images of this machine cannot be opened")]
    Images(#[from] ImageError),
    #[error("a thread of the machine cannot be started")]
    Thread(#[source] io::Error),
}

/// What the machine's record in `data` remembers having obeyed, and which node it is; None where there is
/// no record. Looks only; a server may run.
pub fn memory(data: &std::path::Path) -> io::Result<Option<(NodeId, Memory)>> {
    assignment::memory(data)
}

/// This machine, opened; containers of an earlier server are adopted.
pub struct LocalNode {
    runtime: Arc<Runtime>,
    reconciler: Reconciler,
}

impl LocalNode {
    /// Opens the machine and adopts what an earlier server left running. Ends nothing, starts
    /// nothing. Costs a few milliseconds and one connection for each running container. Images that it does
    /// not have come from `source`.
    pub fn open(
        options: NodeOptions,
        source: Arc<dyn ImageSource>,
        clock: Clock,
    ) -> Result<Self, NodeFault> {
        let boot = boot().map_err(NodeFault::Boot)?;
        let data = options.places.data.clone();
        let shares = gpu::shares::SharePaths {
            driver: options.driver_root.clone(),
            // Not below `run`: programs cannot be loaded from there on every machine.
            hooks: data.join("gpu"),
            pages: options.places.run.join("gpu"),
        };
        let record = options.places.run.join("watchdog.json");
        let paused = options.places.run.join("disk.json");
        let (run, binary) = (
            options.places.run.clone(),
            options.places.shim_binary.clone(),
        );
        let egress = EgressWatch::of(run, binary);
        let runtime = Arc::new(Runtime::open(options.places)?);
        let living = runtime.adopt()?;
        let living = living
            .iter()
            .filter_map(|sight| sight.name.as_str().parse().ok())
            .collect();
        let shares = Arc::new(Shares::open(shares, options.gpu_mode, boot, &living));
        let ledger =
            AssignmentStore::open(&data, boot, options.id).map_err(|source| NodeFault::Ledger {
                path: data.join("node.json"),
                source,
            })?;
        let problems = runtime
            .findings()
            .iter()
            .map(|finding| {
                let family = if finding.prevents_containers {
                    rules::codes::family::NODE_REFUSES
                } else {
                    rules::codes::family::NODE_LACKS
                };
                // The runtime's own list of findings has the codes and the sentences.
                Reason::from_parts(
                    format!("{family}{}", finding.code.replace('_', "-")),
                    finding.sentences(),
                )
            })
            .collect();
        // Where devices are simulated, no thread looks for real ones.
        let monitor = options.devices.is_empty().then(|| {
            let ground = MonitorConfig::new(&options.driver_root, &data.join("gpu"), boot);
            DeviceMonitor::open(MonitorConfig {
                groups: runtime.groups().map(PathBuf::from),
                ..ground
            })
        });
        if let Some(monitor) = &monitor {
            shares.know(monitor.seen().real);
        }
        let watch = monitor.as_ref().map(|monitor| {
            let rung = Arc::clone(&runtime);
            Enforcer::new(
                Arc::clone(monitor) as _,
                Arc::clone(monitor) as _,
                Arc::clone(&shares) as _,
                Arc::clone(&runtime),
                clock.clone(),
                &record,
                move || rung.ring(),
            )
        });
        let rung = Arc::downgrade(&runtime);
        let images = NodeImages::open(&options.images, source, move || {
            if let Some(runtime) = rung.upgrade() {
                runtime.ring();
            }
        })?;
        let rung = Arc::clone(&runtime);
        let disk = DiskWatch::begin(Arc::clone(&runtime), clock.clone(), &paused, move || {
            rung.ring();
        })
        .map_err(NodeFault::Thread)?;
        let scopes = Arc::new(NodeScopes::of(data.clone(), clock.clone()));
        runtime.bring_pool(Arc::clone(&scopes));
        let reconciler = Reconciler {
            runtime: Arc::clone(&runtime),
            scopes,
            images,
            ledger,
            clock,
            name: inventory::machine_name(),
            boot,
            capacity: inventory::capacity(
                options.cpu,
                options.memory,
                options.devices,
                gpu::accelerators::others(&options.driver_root).0,
            ),
            host_environment: options.host_environment,
            problems,
            refused: BTreeMap::new(),
            again: Again::default(),
            fetching: BTreeSet::new(),
            starts: Starts::on(std::thread::available_parallelism().map_or(1, NonZero::get)),
            stopping: BTreeMap::new(),
            limits: BTreeMap::new(),
            detached: BTreeMap::new(),
            // What an earlier server gave is still held.
            grants: shares.held(),
            unheld: shares.problems().clone(),
            shares,
            monitor,
            mig_configurator: MigConfigurator::default(),
            measured: Measurements::default(),
            watch,
            disk,
            egress,
            logs: data.join("logs"),
            volumes: VolumeShelf::of(&data),
            data,
            keep_days: options.keep_days,
        };
        Ok(Self {
            runtime,
            reconciler,
        })
    }

    /// What it offers, its devices as they were seen last.
    pub fn capacity(&self) -> Capacity {
        self.reconciler.offered()
    }

    /// What this machine lacks; see `runtime::findings`.
    pub fn findings(&self) -> &[runtime::findings::HostFinding] {
        self.runtime.findings()
    }

    /// How large the pool for folders is at first, and whether there may be one; without a word there is none.
    pub fn set_pool(&self, setting: PoolSetting) {
        self.reconciler.scopes.set_pool(setting);
    }

    /// What holds folders of this machine to their limits.
    pub fn scopes(&self) -> Arc<dyn ScopeKeeper> {
        Arc::clone(&self.reconciler.scopes) as _
    }

    /// The way into its containers.
    pub fn streams(&self) -> Arc<dyn Streams> {
        Arc::new(dial::Dial {
            runtime: Arc::clone(&self.runtime),
            followers: dial::followers::LogReaders::default(),
            openings: Default::default(),
            layer_reads: Default::default(),
        })
    }

    /// Does what the link says until its other end is gone. Ends no container then: the next server
    /// finds them running. Starts two threads, which end with it.
    pub async fn run(self, link: NodeEnd) -> Result<(), NodeFault> {
        let (wake, wakes) = channel();
        let Self {
            runtime,
            reconciler,
        } = self;
        let link = Arc::new(link);
        watch_containers(Arc::downgrade(&runtime), wake.clone()).map_err(NodeFault::Thread)?;
        drop(runtime);
        let mut assigned = link.assigned();
        let looked = wake.clone();
        let reports = Arc::clone(&link);
        let worker = std::thread::Builder::new()
            .name("reconciler".to_owned())
            .spawn(move || reconciler.run(&wakes, &reports, &looked))
            .map_err(NodeFault::Thread)?;
        while let Some(assignment) = assigned.next().await {
            if wake.send(Wake::Assigned(assignment)).is_err() {
                break;
            }
        }
        let _ = wake.send(Wake::Closed);
        // The thread answers to `Closed` within one step.
        let _ = tokio::task::spawn_blocking(move || worker.join()).await;
        Ok(())
    }
}

/// Rings the machine's loop whenever a container changes; ends with the runtime.
fn watch_containers(runtime: std::sync::Weak<Runtime>, wake: Sender<Wake>) -> io::Result<()> {
    /// How soon the thread notices that the machine was closed.
    const REPORT_TIMEOUT: Duration = Duration::from_secs(30);
    std::thread::Builder::new()
        .name("changes".to_owned())
        .spawn(move || {
            while let Some(runtime) = runtime.upgrade() {
                if runtime.wait_for_change(REPORT_TIMEOUT) && wake.send(Wake::Changed).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}

/// This start of the operating system.
fn boot() -> io::Result<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    text.trim().parse().map_err(io::Error::other)
}
