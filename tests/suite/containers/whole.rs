//! A server in memory with a node of its own: sessions from their launch to their end, in one process. It has no doors, and no
//! device is given.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use base::link::streams::Streams;
use base::observe::Clock;
use base::settings::Settings;
use node::images::ImageDirectory;
use node::runtime::{Runtime, RuntimePaths};
use node::{LocalNode, NodeOptions};
use server::Server;
use server::links::Links;
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinHandle};

use super::images::NoImages;

/// Runs from [`Whole::begin`] to [`Whole::end`].
pub(super) struct Whole {
    folder: TempDir,
    pub(super) server: Server,
    pub(super) places: RuntimePaths,
    pub(super) streams: Arc<dyn Streams>,
    controller: AbortHandle,
    runs: JoinHandle<()>,
}

impl Whole {
    /// None where this machine runs no container, which it says of the test of that name.
    pub(super) fn begin(name: &'static str, host_environment: bool) -> Option<Self> {
        Self::laid(name, host_environment, "node")
    }

    /// The same with one directory for server and node, as on a box: sessions mount folders, which are held to their limits.
    pub(super) fn with_folders(name: &'static str) -> Option<Self> {
        Self::laid(name, true, "server")
    }

    fn laid(name: &'static str, host_environment: bool, data_of_node: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| folder.path().join(name);
        let data = at("server").display().to_string();
        let settings = Settings::read(Default::default(), |name| match name {
            "FARDEL_DATA" => Some(data.clone()),
            "FARDEL_RUN" => Some(format!("{data}/run")),
            "FARDEL_CONFIG" => Some("/nonexistent".into()),
            _ => None,
        })
        .expect("valid settings");
        fs::create_dir_all(settings.data.join("run")).expect("a directory");
        let server = Server::in_memory(settings, Clock::system()).expect("a server in memory");
        let places = RuntimePaths {
            data: at(data_of_node),
            run: at("run"),
            shim_binary: env!("CARGO_BIN_EXE_fardel").into(),
        };
        let options = NodeOptions {
            id: server.node(),
            places: places.clone(),
            images: ImageDirectory::Shared(server.image_directory()),
            host_environment,
            cpu: None,
            memory: None,
            devices: Vec::new(),
            driver_root: at("no-driver"),
            gpu_mode: node::gpu::arbiter::Mode::Hard,
            keep_days: 1,
        };
        let machine =
            LocalNode::open(options, Arc::new(NoImages), Clock::system()).expect("it opens");
        if let Ok(size) = std::env::var("FARDEL_FOLDER_POOL") {
            machine.set_pool(rules::storage::pool_setting(&size).expect("a size"));
        }
        let mut findings = machine.findings().iter();
        if let Some(finding) = findings.find(|finding| finding.prevents_containers) {
            skips::skip(name, &finding.what);
            return None;
        }
        if places.data == server.settings().data {
            server.bring_scopes(machine.scopes());
        }
        let streams = machine.streams();
        server.bring_streams(Arc::clone(&streams));
        let (server_end, node_end) = base::link::local();
        let links = Links::to(server.node(), server_end);
        let controller = tokio::spawn(server::conduct(&server, links)).abort_handle();
        let runs = tokio::spawn(async { machine.run(node_end).await.expect("it ran") });
        Some(Self {
            folder,
            server,
            places,
            streams,
            controller,
            runs,
        })
    }

    /// A place for files of the test, beside those of server and node.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends node and fork server; leaves nothing.
    pub(super) async fn end(self) {
        self.controller.abort();
        self.runs.await.expect("no panic");
        let runtime = Runtime::open(self.places).expect("it opens");
        super::disk::end_fork_server(runtime.instance_id());
        runtime.retire();
    }
}
