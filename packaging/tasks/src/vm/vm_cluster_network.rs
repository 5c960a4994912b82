//! The wire of a cluster: a network of its own with one bridge, and one tap for each node. Nothing of this
//! machine's network is touched; the kernel takes all of it away with the last process inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::program::{self, Program};

const BRIDGE: &str = "cluster";

/// How long the network of ended guests may stay: the kernel clears it in its own time.
const CLEARING: Duration = Duration::from_secs(10);

/// A network with a bridge, as long as it is not removed or dropped.
pub(super) struct Network {
    /// Waits for the end of its input, which comes when we end, however that happens.
    holder: Child,
    /// What the kernel calls it.
    name: PathBuf,
}

/// Why no such network can be made here, if so.
pub(super) fn missing() -> Option<String> {
    if !Path::new("/dev/net/tun").exists() {
        return Some("this machine has no /dev/net/tun".to_owned());
    }
    ["ip", "unshare", "nsenter"]
        .into_iter()
        .find(|name| !program::installed(name))
        .map(|name| format!("{name} is not installed (Debian: iproute2 util-linux)"))
}

impl Network {
    /// Makes it with taps for nodes 1 to `nodes`, all on the bridge. Its holder stands in `folder`.
    pub(super) fn make(nodes: u32, folder: &Path) -> Result<Self, Failure> {
        let fault = |error: std::io::Error| Failure::new(format!("the cluster's network: {error}"));
        let own = fs::read_link("/proc/self/ns/net").map_err(fault)?;
        let mut holder = Program::named("unshare")
            .words("--net -- cat")
            .inside(folder)
            .into_command()
            .stdin(Stdio::piped())
            .spawn()
            .map_err(fault)?;
        let begun = Instant::now();
        let name = loop {
            match network_of(holder.id()) {
                Some(name) if name != own => break name,
                _ if begun.elapsed() > CLEARING => {
                    // The failure below is what counts.
                    let _ = holder.kill();
                    let _ = holder.wait();
                    return Err(Failure::new(
                        "no network of its own can be made for the cluster",
                    ));
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let network = Self { holder, name };
        network.ip(&format!("link add {BRIDGE} type bridge"))?;
        network.ip(&format!("link set {BRIDGE} up"))?;
        for node in 1..=nodes {
            network.ip(&format!("tuntap add {} mode tap", tap(node)))?;
            network.ip(&format!("link set {} up", tap(node)))?;
            network.join(node)?;
        }
        Ok(network)
    }

    /// A process inside.
    pub(super) fn process(&self) -> u32 {
        self.holder.id()
    }

    /// Takes a node's cable out of the bridge.
    pub(super) fn cut(&self, node: u32) -> Result<(), Failure> {
        self.ip(&format!("link set {} nomaster", tap(node)))
    }

    /// Puts it back.
    pub(super) fn join(&self, node: u32) -> Result<(), Failure> {
        self.ip(&format!("link set {} master {BRIDGE}", tap(node)))
    }

    /// Takes it away and checks that no process is left in it.
    pub(super) fn remove(mut self) -> Result<(), Failure> {
        self.end();
        let begun = Instant::now();
        loop {
            let left = processes_of(&self.name);
            if left.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > CLEARING {
                return Err(Failure::new(format!(
                    "processes are left in the cluster's network: {left:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ip(&self, words: &str) -> Result<(), Failure> {
        Program::named("nsenter")
            .argument(format!("--net=/proc/{}/ns/net", self.process()))
            .words("-- ip")
            .words(words)
            .output()
            .map(drop)
    }

    fn end(&mut self) {
        // Gone already is as good.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.end();
    }
}

/// The name of a node's tap.
pub(super) fn tap(node: u32) -> String {
    format!("node{node}")
}

fn network_of(process: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

fn processes_of(network: &Path) -> Vec<u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|process| network_of(*process).is_some_and(|other| other == network))
        .collect()
}
