//! Several guests on one wire: the same script in each, with its number and everybody's addresses. The
//! script asks the cluster to cut a node's cable, take its power, and give both back. Knows who runs and
//! who waits for whom; what a node says is printed and never understood, but for these requests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::machine::{Machine, Said};
use super::order::{Cable, Hardware, Order};
use super::root::Root;
use super::vm_cluster_network::{self, Network};
use super::{Folder, processes_in};
use crate::failure::Failure;
use crate::stage;

/// What every script begins with.
const PROLOGUE: &str = include_str!("vm-cluster.sh");

/// The cluster's own script, for a run without one.
const TRIAL: &str = include_str!("vm-cluster-trial.sh");

/// How long a node's thread listens before it looks whether there is something to say.
const LISTEN: Duration = Duration::from_millis(100);

/// What is to be run.
#[derive(Debug, PartialEq)]
pub(super) struct ClusterOptions {
    pub(super) nodes: u32,
    pub(super) memory_mib: u64,
    pub(super) limit: Option<Duration>,
    pub(super) shares: Vec<(String, PathBuf)>,
    /// None: the cluster's own trial of cuts.
    pub(super) script: Option<PathBuf>,
    pub(super) arguments: Vec<String>,
}

impl Default for ClusterOptions {
    /// Three nodes of half a GiB.
    fn default() -> Self {
        Self {
            nodes: 3,
            memory_mib: 512,
            limit: None,
            shares: Vec::new(),
            script: None,
            arguments: Vec::new(),
        }
    }
}

/// Why this machine can have no cluster, if so.
pub(super) fn missing() -> Option<String> {
    super::missing().or_else(vm_cluster_network::missing)
}

/// The cluster's own trial, as a stage of the gate.
pub(super) fn trial(root: &Root) -> Result<(), Failure> {
    match run(root, &ClusterOptions::default())? {
        0 => Ok(()),
        code => Err(Failure::new(format!("the trial ended with {code}"))),
    }
}

/// Boots the nodes, runs the script in each, and gives the first code that is not zero, in the order of
/// the nodes. Fails when a node ends without one, or when anything of the cluster is left.
pub(super) fn run(root: &Root, options: &ClusterOptions) -> Result<i32, Failure> {
    let script = match &options.script {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?,
        None => TRIAL.to_owned(),
    };
    let (begun, before) = (Instant::now(), stage::children_cpu_seconds());
    let folder = Folder::make("cluster", 1 << 30)?;
    let network = Network::make(options.nodes, folder.path())?;
    let code = {
        let mut cluster = VmCluster::new(root, options, &script, &network, &folder);
        for number in 1..=options.nodes {
            cluster.power_on(number)?;
        }
        cluster.attend()?
    };
    network.remove()?;
    let left = processes_in(folder.path());
    if !left.is_empty() {
        return Err(Failure::new(format!(
            "the cluster left processes: {left:?}"
        )));
    }
    folder.remove()?;
    println!(
        "cluster: {} nodes; {:.1} s and {:.1} CPU seconds in all; code {code}",
        options.nodes,
        begun.elapsed().as_secs_f64(),
        stage::children_cpu_seconds() - before,
    );
    Ok(code)
}

/// The cluster while it runs.
struct VmCluster<'a> {
    root: &'a Root,
    options: &'a ClusterOptions,
    script: &'a str,
    network: &'a Network,
    folder: &'a Folder,
    nodes: BTreeMap<u32, Node>,
    /// Who waits for the others, by the name of the meeting.
    meetings: BTreeMap<String, BTreeSet<u32>>,
    heard: Receiver<Heard>,
    tell: Sender<Heard>,
}

struct Node {
    /// None while its power is off or once its script has ended.
    power: Option<Power>,
    /// How often it was started.
    boots: u32,
    code: Option<i32>,
}

struct Power {
    words: Sender<Word>,
    thread: JoinHandle<Result<(), Failure>>,
}

/// What a node's thread is asked.
enum Word {
    Tell(String),
    Cut,
}

struct Heard {
    node: u32,
    boot: u32,
    what: What,
}

enum What {
    Said(Said),
    /// Its thread has ended; the thread's own result says how.
    Gone,
}

/// What a script asks of the cluster.
#[derive(Debug, PartialEq)]
enum Request {
    Cut(u32),
    Join(u32),
    PowerOff(u32),
    PowerOn(u32),
    Meet(String),
}

impl<'a> VmCluster<'a> {
    fn new(
        root: &'a Root,
        options: &'a ClusterOptions,
        script: &'a str,
        network: &'a Network,
        folder: &'a Folder,
    ) -> Self {
        let (tell, heard) = mpsc::channel();
        Self {
            root,
            options,
            script,
            network,
            folder,
            nodes: BTreeMap::new(),
            meetings: BTreeMap::new(),
            heard,
            tell,
        }
    }

    /// Starts a node, on the disk that it had before.
    fn power_on(&mut self, number: u32) -> Result<(), Failure> {
        let boots = self.nodes.get(&number).map_or(0, |node| node.boots) + 1;
        let script = [
            assignments(number, self.options.nodes, boots),
            PROLOGUE.to_owned(),
            self.script.to_owned(),
        ]
        .concat();
        let mut order = Order::new(self.root, &script);
        order.hardware = Hardware::Wired(Cable {
            network_of: self.network.process(),
            words: words(number),
        });
        order.disk = Some(self.folder.path().join(format!("disk-{number}")));
        order.memory_mib = self.options.memory_mib;
        order.limit = self.options.limit.unwrap_or(order.limit);
        order.shares.clone_from(&self.options.shares);
        order.arguments.clone_from(&self.options.arguments);
        let machine = Machine::boot(&order)?;
        let (words, asked) = mpsc::channel();
        let tell = self.tell.clone();
        let thread = std::thread::spawn(move || {
            let result = attend(machine, &asked, &|what| {
                // The receiver is gone once the cluster has failed.
                let _ = tell.send(Heard {
                    node: number,
                    boot: boots,
                    what,
                });
            });
            let _ = tell.send(Heard {
                node: number,
                boot: boots,
                what: What::Gone,
            });
            result
        });
        self.nodes.insert(
            number,
            Node {
                power: Some(Power { words, thread }),
                boots,
                code: None,
            },
        );
        Ok(())
    }

    /// Serves the nodes until each has ended or is without power.
    fn attend(&mut self) -> Result<i32, Failure> {
        while self.nodes.values().any(|node| node.power.is_some()) {
            let heard = self
                .heard
                .recv()
                .expect("we hold a sender ourselves, so there is always one");
            let number = heard.node;
            let Some(node) = self.nodes.get_mut(&number) else {
                continue;
            };
            // A node that lost its power may have spoken just before.
            if node.boots != heard.boot || node.power.is_none() {
                continue;
            }
            match heard.what {
                What::Said(Said::Booted(seconds)) => {
                    println!("node {number}: up after {seconds:.1} s of its own time");
                }
                What::Said(Said::Ended(code)) => node.code = Some(code),
                What::Said(Said::Line(line)) => match line.strip_prefix("\u{1}cluster ") {
                    Some(asked) => self.answer(number, asked)?,
                    None => println!("node {number}: {line}"),
                },
                What::Gone => {
                    if let Some(power) = node.power.take() {
                        ended(power)?;
                    }
                    self.open_meetings()?;
                }
            }
        }
        let codes: Vec<i32> = self.nodes.values().filter_map(|node| node.code).collect();
        Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
    }

    fn answer(&mut self, asker: u32, words: &str) -> Result<(), Failure> {
        let Some(request) = request(words, self.options.nodes) else {
            return self.tell(asker, "this is no request");
        };
        if !matches!(request, Request::Meet(_)) {
            println!("node {asker} asks: {words}");
        }
        match request {
            Request::Cut(node) => self.network.cut(node)?,
            Request::Join(node) => self.network.join(node)?,
            Request::PowerOff(node) if node == asker => {
                return self.tell(asker, "a node cannot take its own power");
            }
            Request::PowerOff(node) => {
                let power = self.nodes.get_mut(&node).and_then(|node| node.power.take());
                let Some(power) = power else {
                    return self.tell(asker, "it has no power");
                };
                // One that just ended needs no telling.
                let _ = power.words.send(Word::Cut);
                ended(power)?;
                for waiting in self.meetings.values_mut() {
                    waiting.remove(&node);
                }
                self.open_meetings()?;
            }
            Request::PowerOn(node) => {
                let runs = |node: &Node| node.power.is_some();
                if self.nodes.get(&node).is_some_and(runs) {
                    return self.tell(asker, "it has power already");
                }
                self.power_on(node)?;
            }
            Request::Meet(name) => {
                self.meetings.entry(name).or_default().insert(asker);
                return self.open_meetings();
            }
        }
        self.tell(asker, "done")
    }

    /// Lets those go on who waited for the last one.
    fn open_meetings(&mut self) -> Result<(), Failure> {
        let running: BTreeSet<u32> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.power.is_some() && node.code.is_none())
            .map(|(number, _)| *number)
            .collect();
        let full: Vec<String> = self
            .meetings
            .iter()
            .filter(|(_, waiting)| running.is_subset(waiting))
            .map(|(name, _)| name.clone())
            .collect();
        for name in full {
            for node in self.meetings.remove(&name).unwrap_or_default() {
                self.tell(node, "done")?;
            }
        }
        Ok(())
    }

    fn tell(&self, number: u32, line: &str) -> Result<(), Failure> {
        let power = self.nodes.get(&number).and_then(|node| node.power.as_ref());
        if let Some(power) = power {
            // One that just ended needs no answer.
            let _ = power.words.send(Word::Tell(line.to_owned()));
        }
        Ok(())
    }
}

impl Drop for VmCluster<'_> {
    /// A cluster that failed takes everybody's power, and waits until it is gone.
    fn drop(&mut self) {
        for (number, node) in &mut self.nodes {
            if let Some(Err(failure)) = node.power.take().map(ended) {
                println!("node {number}: {failure}");
            }
        }
    }
}

/// Waits for a node's thread and gives what it found.
fn ended(power: Power) -> Result<(), Failure> {
    drop(power.words);
    power
        .thread
        .join()
        .map_err(|_| Failure::new("a node's thread panicked"))?
}

/// Listens to one guest and passes on what it says, until it has shut down or loses its power.
fn attend(
    mut machine: Machine,
    asked: &Receiver<Word>,
    tell: &dyn Fn(What),
) -> Result<(), Failure> {
    loop {
        match asked.try_recv() {
            Ok(Word::Tell(line)) => machine.tell(&line)?,
            // The asking end is gone where the cluster itself has failed.
            Ok(Word::Cut) | Err(TryRecvError::Disconnected) => return machine.cut(),
            Err(TryRecvError::Empty) => {}
        }
        match machine.hear_within(LISTEN)? {
            Some(Said::Ended(code)) => {
                tell(What::Said(Said::Ended(code)));
                return machine.wait();
            }
            Some(said) => tell(What::Said(said)),
            None => {}
        }
    }
}

/// None when the words make no sense for a cluster of so many nodes.
fn request(words: &str, nodes: u32) -> Option<Request> {
    let words: Vec<&str> = words.split(' ').collect();
    let number = |text: &str| text.parse().ok().filter(|node| (1..=nodes).contains(node));
    match words.as_slice() {
        ["cut", node] => number(node).map(Request::Cut),
        ["join", node] => number(node).map(Request::Join),
        ["power-off", node] => number(node).map(Request::PowerOff),
        ["power-on", node] => number(node).map(Request::PowerOn),
        ["meet", name] => Some(Request::Meet((*name).to_owned())),
        _ => None,
    }
}

fn address(node: u32) -> String {
    format!("10.77.0.{node}")
}

/// What a script finds set.
fn assignments(node: u32, nodes: u32, boots: u32) -> String {
    let all: Vec<String> = (1..=nodes).map(address).collect();
    format!(
        "NODE={node} NODES={nodes} BOOT={boots} ADDRESS={} ADDRESSES='{}'\n",
        address(node),
        all.join(" ")
    )
}

/// What one node's kernel is told and another's is not: guests of one image would be one machine to
/// everybody who asks for its number or its card's.
fn words(node: u32) -> Vec<String> {
    vec![
        format!(
            "vec0:transport=tap,ifname={},depth=128,mac=02:fa:4d:e1:00:{node:02x}",
            vm_cluster_network::tap(node)
        ),
        format!("systemd.hostname=node-{node}"),
        format!("systemd.machine_id=fa4de10000000000000000000000{node:04x}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_nodes_that_there_are() {
        assert_eq!(request("cut 3", 3), Some(Request::Cut(3)));
        assert_eq!(request("power-on 1", 3), Some(Request::PowerOn(1)));
        assert_eq!(
            request("meet all-up", 3),
            Some(Request::Meet("all-up".to_owned()))
        );
        for words in ["cut 4", "cut 0", "cut", "cut 1 2", "burn 1", "meet", ""] {
            assert_eq!(request(words, 3), None, "{words}");
        }
    }

    #[test]
    fn a_script_finds_its_number_and_everybodys_address() {
        assert_eq!(
            assignments(2, 3, 1),
            "NODE=2 NODES=3 BOOT=1 ADDRESS=10.77.0.2 ADDRESSES='10.77.0.1 10.77.0.2 10.77.0.3'\n"
        );
    }

    #[test]
    fn no_two_nodes_have_the_same_card_or_number() {
        let words: BTreeSet<String> = (1..=3).flat_map(words).collect();
        assert_eq!(words.len(), 9);
        let id = words
            .iter()
            .find_map(|word| word.strip_prefix("systemd.machine_id="));
        assert_eq!(id.map(str::len), Some(32));
    }
}
