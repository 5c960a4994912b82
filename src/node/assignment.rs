//! What this machine was told to have, kept on disk before anything is done about it. Refuses an
//! assignment older than the one it has. Never looks at a container.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rules::messages::Assignment;
use rules::names::{BootId, ContainerName, NodeId};
use serde::{Deserialize, Serialize};

/// The file's content: one JSON object, rewritten whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    node: NodeId,
    assignment: Option<Assignment>,
    /// One entry for each container of the assignment.
    places: BTreeMap<ContainerName, Place>,
}

/// What this machine gave a container when it first heard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Which block of host user ids is its own.
    pub(crate) slot: u32,
    /// During which boot it was first heard of: a container of an earlier boot that nobody knows
    /// any more was lost with that boot and is never started a second time.
    pub(crate) boot: BootId,
}

/// The machine's memory of its duty.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    boot: BootId,
    record: Record,
}

impl Ledger {
    /// Reads the ledger, or begins one under a new node id.
    pub(crate) fn open(data: &Path, boot: BootId, fresh: NodeId) -> io::Result<Self> {
        let path = data.join("node.json");
        let record = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let record = Record {
                    node: fresh,
                    assignment: None,
                    places: BTreeMap::new(),
                };
                write(&path, &record)?;
                record
            }
            Err(error) => return Err(error),
        };
        Ok(Self { path, boot, record })
    }

    pub(crate) fn node(&self) -> NodeId {
        self.record.node
    }

    /// The assignment in force; None before the first.
    pub(crate) fn assignment(&self) -> Option<&Assignment> {
        self.record.assignment.as_ref()
    }

    pub(crate) fn place(&self, name: ContainerName) -> Option<Place> {
        self.record.places.get(&name).copied()
    }

    /// Takes an assignment in: on disk first. Returns false for one that is not newer, or is meant
    /// for another machine. Costs one durable write of the whole list.
    pub(crate) fn take(&mut self, assignment: &Assignment) -> io::Result<bool> {
        let newest = self.record.assignment.as_ref().map_or(0, |a| a.generation);
        if assignment.node != self.record.node || assignment.generation <= newest {
            return Ok(false);
        }
        let mut places: BTreeMap<ContainerName, Place> = BTreeMap::new();
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
                Place {
                    slot: next,
                    boot: self.boot,
                }
            });
        }
        let record = Record {
            node: self.record.node,
            assignment: Some(assignment.clone()),
            places,
        };
        write(&self.path, &record)?;
        self.record = record;
        Ok(true)
    }
}

/// Room kept for a full disk: there what runs must still be stopped, and a stop is an assignment. Twice
/// a list of some hundred containers.
const RESERVE: u64 = 1 << 20;

/// Writes the record whole or not at all; on a full disk into the room that was kept for it.
fn write(path: &Path, record: &Record) -> io::Result<()> {
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
            },
            hostname: "x".into(),
            kind: SessionKind::Batch,
            root: RootFileSystem::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand::default(),
            devices: Vec::new(),
            want: Want::Run,
        }
    }

    #[test]
    fn an_older_assignment_is_refused_and_blocks_of_ids_are_never_shared() {
        let folder = tempfile::tempdir().unwrap();
        let node = NodeId(uuid::Uuid::from_u128(1));
        let boot = BootId(uuid::Uuid::from_u128(2));
        let mut ledger = Ledger::open(folder.path(), boot, node).unwrap();
        let make = |generation, names: &[u128]| Assignment {
            cuts: Vec::new(),
            node,
            generation,
            containers: names.iter().map(|n| order(*n)).collect(),
        };
        assert!(ledger.take(&make(5, &[1, 2])).unwrap());
        assert!(!ledger.take(&make(5, &[9])).unwrap());
        assert!(!ledger.take(&make(4, &[9])).unwrap());
        assert!(ledger.take(&make(6, &[2, 3])).unwrap());
        let slot = |n| ledger.place(order(n).name).map(|p| p.slot);
        assert_eq!((slot(1), slot(2), slot(3)), (None, Some(1), Some(2)));
        let again = Ledger::open(folder.path(), boot, NodeId(uuid::Uuid::from_u128(7))).unwrap();
        assert_eq!(
            (again.node(), again.assignment().map(|a| a.generation)),
            (node, Some(6))
        );
    }

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
        let mut ledger = Ledger::open(&small, boot, node).unwrap();
        let make = |generation, names: &[u128]| Assignment {
            cuts: Vec::new(),
            node,
            generation,
            containers: names.iter().map(|n| order(*n)).collect(),
        };
        assert!(ledger.take(&make(1, &[1, 2, 3])).unwrap());
        let mut filler = fs::File::create(small.join("filler")).unwrap();
        let full = std::iter::repeat_with(|| filler.write_all(&[7; 4096]))
            .find_map(Result::err)
            .unwrap();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        // One after the other, each of which ends a container.
        for (generation, names) in [(2, &[1, 2][..]), (3, &[1]), (4, &[])] {
            assert!(
                ledger.take(&make(generation, names)).unwrap(),
                "{generation}"
            );
        }
        let again = Ledger::open(&small, boot, node).unwrap();
        assert_eq!(again.assignment().map(|a| a.generation), Some(4));
        unmount(&small, UnmountFlags::DETACH).unwrap();
    }
}
