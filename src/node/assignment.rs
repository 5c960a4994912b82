//! What this machine was told to have, kept on disk before anything is done about it. Refuses an
//! assignment older than the one it has. Never looks at a container.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rules::continuity::Memory;
use rules::messages::{Assignment, Want};
use rules::names::{BootId, ContainerName, NodeId};
use rules::reason::Reason;
use rules::reasons;
use rules::start_up::StartUp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The file's content: one JSON object, rewritten whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AssignmentFile {
    node: NodeId,
    /// The state whose assignment that is; None before the first, and from earlier versions.
    #[serde(default)]
    state: Option<Uuid>,
    assignment: Option<Assignment>,
    /// One entry for each container of the assignment.
    places: BTreeMap<ContainerName, IdBlock>,
}

/// What this machine gave a container when it first heard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdBlock {
    /// Which block of host user ids is its own.
    pub(crate) slot: u32,
    /// During which boot it was first heard of: a container of an earlier boot that is unknown
    /// any more was lost with that boot and is never started a second time.
    pub(crate) boot: BootId,
}

/// The machine's memory of its duty.
#[derive(Debug)]
pub(crate) struct AssignmentStore {
    path: PathBuf,
    boot: BootId,
    record: AssignmentFile,
    /// Why the newest assignment could not be written down; None once one was.
    trouble: Option<Reason>,
}

/// What became of an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// It is no newer than the one in force, or another machine's.
    Old,
    /// It is of another state than the one in force, and that was not accepted.
    Foreign,
}

/// What the machine's record in `data` remembers having obeyed, and which node it is; None where there is
/// no record. Looks only; a server may run.
pub(crate) fn memory(data: &Path) -> io::Result<Option<(NodeId, Memory)>> {
    match fs::read(file(data)) {
        Ok(bytes) => {
            let record: AssignmentFile =
                serde_json::from_slice(&bytes).map_err(io::Error::other)?;
            Ok(Some((record.node, record.memory())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn file(data: &Path) -> PathBuf {
    data.join("node.json")
}

impl AssignmentFile {
    fn memory(&self) -> Memory {
        Memory {
            state: self.state,
            generation: self.assignment.as_ref().map_or(0, |a| a.generation),
        }
    }
}

impl AssignmentStore {
    /// Reads the ledger, or begins one under a new node id.
    pub(crate) fn open(data: &Path, boot: BootId, fresh: NodeId) -> io::Result<Self> {
        let path = file(data);
        let record = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let record = AssignmentFile {
                    node: fresh,
                    state: None,
                    assignment: None,
                    places: BTreeMap::new(),
                };
                write(&path, &record)?;
                record
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            path,
            boot,
            record,
            trouble: None,
        })
    }

    pub(crate) fn node(&self) -> NodeId {
        self.record.node
    }

    /// The assignment in force; None before the first.
    pub(crate) fn assignment(&self) -> Option<&Assignment> {
        self.record.assignment.as_ref()
    }

    pub(crate) fn place(&self, name: ContainerName) -> Option<IdBlock> {
        self.record.places.get(&name).copied()
    }

    /// What this machine obeys.
    pub(crate) fn memory(&self) -> Memory {
        self.record.memory()
    }

    /// Why the newest assignment could not be written down; None where it was.
    pub(crate) fn trouble(&self) -> Option<&Reason> {
        self.trouble.as_ref()
    }

    /// Takes an assignment in: on disk first. What a container starts with comes with one list and stays with those that follow
    /// until its command ran, which `has_begun` tells: one that never ran may be begun once more. Costs one durable write of the
    /// whole list.
    ///
    /// Errors: of the disk; then nothing may be done about the assignment, and `trouble` says why.
    pub(crate) fn take(
        &mut self,
        assignment: &Assignment,
        has_begun: impl Fn(ContainerName) -> bool,
    ) -> io::Result<Taken> {
        let memory = self.record.memory();
        if assignment.node != self.record.node || assignment.generation <= memory.generation {
            return Ok(Taken::Old);
        }
        let other = |ours: Uuid| assignment.state.is_some_and(|theirs| theirs != ours);
        if memory.state.is_some_and(other) && !assignment.accepted {
            return Ok(Taken::Foreign);
        }
        let mut places: BTreeMap<ContainerName, IdBlock> = BTreeMap::new();
        for order in &assignment.containers {
            if let Some(place) = self.record.places.get(&order.name) {
                places.insert(order.name, *place);
            }
        }
        let mut taken: std::collections::BTreeSet<u32> = places.values().map(|p| p.slot).collect();
        // A block of ids is free only once its container left the assignment, and it leaves only
        // after the row ended, so no two live containers ever share one.
        let leaving: Vec<u32> = self
            .record
            .places
            .iter()
            .filter(|(name, _)| !places.contains_key(name))
            .map(|(_, place)| place.slot)
            .collect();
        taken.extend(leaving);
        let mut next = 0;
        for order in &assignment.containers {
            places.entry(order.name).or_insert_with(|| {
                while !taken.insert(next) {
                    next += 1;
                }
                IdBlock {
                    slot: next,
                    boot: self.boot,
                }
            });
        }
        let mut kept = assignment.clone();
        let before = self
            .record
            .assignment
            .iter()
            .flat_map(|one| &one.containers);
        let mut before: BTreeMap<ContainerName, &StartUp> = before
            .filter(|order| !order.start_up.is_empty())
            .map(|order| (order.name, &order.start_up))
            .collect();
        for order in &mut kept.containers {
            let is_wanted = matches!(order.want, Want::Run | Want::Pause);
            if is_wanted
                && order.start_up.is_empty()
                && let Some(start_up) = before.remove(&order.name)
                && !has_begun(order.name)
            {
                order.start_up = start_up.clone();
            }
        }
        let record = AssignmentFile {
            node: self.record.node,
            state: assignment.state.or(memory.state),
            assignment: Some(kept),
            places,
        };
        if let Err(error) = write(&self.path, &record) {
            self.trouble = Some(reasons::node_record_unwritable(self.path.display(), &error));
            return Err(error);
        }
        self.trouble = None;
        self.record = record;
        Ok(Taken::Yes)
    }
}

/// Room kept for a full disk: there what runs must still be stopped, and a stop is an assignment. Twice
/// a list of some hundred containers.
const RESERVE: u64 = 1 << 20;

/// Writes the record whole or not at all; on a full disk into the room that was kept for it.
fn write(path: &Path, record: &AssignmentFile) -> io::Result<()> {
    let draft = path.with_extension("json.new");
    let reserve = path.with_extension("json.reserve");
    let bytes = serde_json::to_vec(record).map_err(io::Error::other)?;
    let written = match draw(&draft, &bytes) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull && reserve.exists() => {
            fs::remove_file(&reserve)?;
            draw(&draft, &bytes)
        }
        other => other,
    };
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written?;
    fs::rename(&draft, path)?;
    // The record that was replaced gave its room back, so there is some even on a full disk.
    if let Err(error) = keep(&reserve) {
        tracing::debug!(%error, "no room is kept for the next assignment");
    }
    if let Some(folder) = path.parent() {
        fs::File::open(folder)?.sync_data()?;
    }
    Ok(())
}

fn draw(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(draft)?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Sets the room aside where it is not yet.
fn keep(reserve: &Path) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    if reserve.exists() {
        return Ok(());
    }
    let file = fs::File::create(reserve)?;
    for size in [RESERVE, RESERVE / 4, RESERVE / 64] {
        match fallocate(&file, FallocateFlags::empty(), 0, size) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::NOSPC) => {}
            Err(error) => {
                fs::remove_file(reserve)?;
                return Err(error.into());
            }
        }
    }
    fs::remove_file(reserve)?;
    Err(io::ErrorKind::StorageFull.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::messages::{ContainerOrder, RootFileSystem, Want};
    use rules::names::SessionId;
    use rules::resources::Demand;
    use rules::session::SessionKind;

    fn order(n: u128) -> ContainerOrder {
        ContainerOrder {
            name: ContainerName {
                session: SessionId(uuid::Uuid::from_u128(n)),
                incarnation: 1,
                index: 0,
            },
            hostname: "x".into(),
            kind: SessionKind::Batch,
            root: RootFileSystem::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand::default(),
            devices: Vec::new(),
            mounts: Vec::new(),
            networks: Vec::new(),
            egress: None,
            sudo: false,
            ulimits: rules::process_limits::ProcessLimits::USUAL,
            want: Want::Run,
            stop_grace_seconds: None,
            start_up: rules::start_up::StartUp::default(),
        }
    }

    #[test]
    fn an_older_assignment_is_refused_and_blocks_of_ids_are_never_shared() {
        let folder = tempfile::tempdir().unwrap();
        let node = NodeId(uuid::Uuid::from_u128(1));
        let boot = BootId(uuid::Uuid::from_u128(2));
        let mut ledger = AssignmentStore::open(folder.path(), boot, node).unwrap();
        let make = |generation, names: &[u128]| Assignment {
            partitions: Vec::new(),
            state: Some(uuid::Uuid::from_u128(5)),
            accepted: false,
            node,
            generation,
            containers: names.iter().map(|n| order(*n)).collect(),
        };
        assert_eq!(
            ledger.take(&make(5, &[1, 2]), |_| true).unwrap(),
            Taken::Yes
        );
        assert_eq!(ledger.take(&make(5, &[9]), |_| true).unwrap(), Taken::Old);
        assert_eq!(ledger.take(&make(4, &[9]), |_| true).unwrap(), Taken::Old);
        assert_eq!(
            ledger.take(&make(6, &[2, 3]), |_| true).unwrap(),
            Taken::Yes
        );
        let slot = |n| ledger.place(order(n).name).map(|p| p.slot);
        assert_eq!((slot(1), slot(2), slot(3)), (None, Some(1), Some(2)));
        let again =
            AssignmentStore::open(folder.path(), boot, NodeId(uuid::Uuid::from_u128(7))).unwrap();
        assert_eq!(
            (again.node(), again.assignment().map(|a| a.generation)),
            (node, Some(6))
        );
    }

    #[test]
    fn what_a_container_starts_with_stays_until_its_command_ran() {
        let folder = tempfile::tempdir().unwrap();
        let node = NodeId(uuid::Uuid::from_u128(1));
        let boot = BootId(uuid::Uuid::from_u128(2));
        let mut ledger = AssignmentStore::open(folder.path(), boot, node).unwrap();
        let list = |generation, contents: &[&str]| Assignment {
            partitions: Vec::new(),
            state: Some(uuid::Uuid::from_u128(5)),
            accepted: false,
            node,
            generation,
            containers: (1..)
                .zip(contents)
                .map(|(number, text)| {
                    let mut one = order(number);
                    if !text.is_empty() {
                        let text = (*text).to_owned();
                        one.start_up.variables = BTreeMap::from([("A".to_owned(), text)]);
                    }
                    one
                })
                .collect(),
        };
        let kept = |ledger: &AssignmentStore| -> Vec<String> {
            let orders = &ledger.assignment().unwrap().containers;
            let own = |one: &ContainerOrder| one.start_up.variables.get("A").cloned();
            orders
                .iter()
                .map(|one| own(one).unwrap_or_default())
                .collect()
        };
        ledger
            .take(&list(1, &["first", "second"]), |_| false)
            .unwrap();
        // A later list has nothing of it, and neither has begun yet.
        ledger.take(&list(2, &["", ""]), |_| false).unwrap();
        assert_eq!(kept(&ledger), ["first", "second"]);
        let mut ledger = AssignmentStore::open(folder.path(), boot, node).unwrap();
        let first = order(1).name;
        ledger
            .take(&list(3, &["", "third"]), |name| name == first)
            .unwrap();
        assert_eq!(kept(&ledger), ["", "third"]);
        let written = fs::read_to_string(file(folder.path())).unwrap();
        assert!(!written.contains("\"first\""), "{written}");
    }

    #[test]
    fn a_list_of_another_state_is_refused_until_root_accepts_it() {
        let folder = tempfile::tempdir().unwrap();
        let node = NodeId(uuid::Uuid::from_u128(1));
        let boot = BootId(uuid::Uuid::from_u128(2));
        let mut ledger = AssignmentStore::open(folder.path(), boot, node).unwrap();
        let (ours, theirs) = (uuid::Uuid::from_u128(5), uuid::Uuid::from_u128(6));
        let make = |state, generation| Assignment {
            partitions: Vec::new(),
            state: Some(state),
            accepted: false,
            node,
            generation,
            containers: vec![order(1)],
        };
        assert_eq!(ledger.take(&make(ours, 5), |_| true).unwrap(), Taken::Yes);
        assert_eq!(
            ledger.take(&make(theirs, 6), |_| true).unwrap(),
            Taken::Foreign
        );
        let remembered = memory(folder.path()).unwrap().unwrap();
        let obeyed = Memory {
            state: Some(ours),
            generation: 5,
        };
        assert_eq!(remembered, (node, obeyed));
        let accepted = Assignment {
            accepted: true,
            ..make(theirs, 6)
        };
        assert_eq!(ledger.take(&accepted, |_| true).unwrap(), Taken::Yes);
        assert_eq!(ledger.memory().state, Some(theirs));
        assert_eq!(
            ledger.take(&make(ours, 7), |_| true).unwrap(),
            Taken::Foreign
        );
    }

    #[test]
    fn a_record_that_cannot_be_written_is_named_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let node = NodeId(uuid::Uuid::from_u128(1));
        let boot = BootId(uuid::Uuid::from_u128(2));
        let mut ledger = AssignmentStore::open(folder.path(), boot, node).unwrap();
        let make = |generation| Assignment {
            partitions: Vec::new(),
            state: None,
            accepted: false,
            node,
            generation,
            containers: Vec::new(),
        };
        // A directory that is not empty can be replaced by no file, whatever the user.
        let path = file(folder.path());
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("in-the-way")).unwrap();
        assert!(ledger.take(&make(1), |_| true).is_err());
        let trouble = ledger.trouble().expect("it is named");
        assert_eq!(trouble.code, rules::codes::NODE_RECORD_UNWRITABLE);
        assert!(trouble.text.contains("node.json"), "{}", trouble.text);
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(ledger.take(&make(1), |_| true).unwrap(), Taken::Yes);
        assert!(ledger.trouble().is_none());
    }

    /// Proves too: `on_a_full_disk_everything_can_still_be_stopped`
    #[test]
    fn on_a_full_disk_the_next_assignment_is_still_taken_in() {
        use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
        let folder = tempfile::tempdir().unwrap();
        let small = folder.path().join("small");
        fs::create_dir(&small).unwrap();
        let size = c"size=2m";
        if let Err(error) = mount("tmpfs", &small, "tmpfs", MountFlags::empty(), Some(size)) {
            skips::skip(
                "on_a_full_disk_the_next_assignment_is_still_taken_in",
                &format!("no file system can be mounted: {error}"),
            );
            return;
        }
        let node = NodeId(uuid::Uuid::from_u128(1));
        let boot = BootId(uuid::Uuid::from_u128(2));
        let mut ledger = AssignmentStore::open(&small, boot, node).unwrap();
        let make = |generation, names: &[u128]| Assignment {
            partitions: Vec::new(),
            state: Some(uuid::Uuid::from_u128(5)),
            accepted: false,
            node,
            generation,
            containers: names.iter().map(|n| order(*n)).collect(),
        };
        assert_eq!(
            ledger.take(&make(1, &[1, 2, 3]), |_| true).unwrap(),
            Taken::Yes
        );
        let mut filler = fs::File::create(small.join("filler")).unwrap();
        let full = std::iter::repeat_with(|| filler.write_all(&[7; 4096]))
            .find_map(Result::err)
            .unwrap();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        // One after the other, each of which ends a container.
        for (generation, names) in [(2, &[1, 2][..]), (3, &[1]), (4, &[])] {
            let taken = ledger.take(&make(generation, names), |_| true).unwrap();
            assert_eq!(taken, Taken::Yes, "{generation}");
        }
        let again = AssignmentStore::open(&small, boot, node).unwrap();
        assert_eq!(again.assignment().map(|a| a.generation), Some(4));
        unmount(&small, UnmountFlags::DETACH).unwrap();
    }
}
