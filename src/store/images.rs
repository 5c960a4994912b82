//! Image layers at rest: takes archives in, keeps each layer once in the form overlayfs mounts,
//! answers which directories make up an image, gives space back. Never mounts, never runs, never
//! knows who may see an image.
//!
//! On disk, below one directory that only root may enter:
//! ```text
//! layers/<key>/fs/          what overlayfs gets as a lower directory; owners as in the image
//! layers/<key>/contents     one entry per file: crc32, length, path, zero
//! layers/<key>/layer.json
//! layers/<key>/packed.json  digest of the layer as another store gets it, once one asked
//! records/<image id>.json   one per image; a layer no record names is garbage
//! staging/                  work under way; everything in it is garbage after a crash
//! ```
//! Layers are renamed into place whole and before the record that needs them, so at every moment a
//! record means a complete image. References are found by reading the records; nothing counts.

pub mod archive;
pub mod build;
mod commit;
pub mod config;
pub mod digest;
pub mod environment;
pub mod failure;
mod import;
mod layer_stream;
pub mod limits;
mod lower;
mod manifest;
mod members;
mod pack;
pub mod record;
pub mod transfer;
pub mod tree;
mod unpack;
pub mod upper;
mod verify;

#[cfg(test)]
mod producers_test;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rules::refusals;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags,
};
use rustix::io::Errno;

use self::digest::Sha256Digest;
use self::failure::{Doing, ImageError};
use self::limits::ImportLimits;
use self::record::{ImageRecord, LayerFile};

pub use self::commit::LayerCommit;
pub use self::import::{ArchiveImport, ImportStage, ImportStatus, ImportedImage};
pub use self::verify::Verification;

/// The image store of one machine. One per directory and process; all methods may be called from
/// several threads at once.
#[derive(Debug)]
pub struct ImageStore {
    root: PathBuf,
    layers: OwnedFd,
    records: OwnedFd,
    staging: OwnedFd,
    limits: ImportLimits,
    /// Layers an import under way relies on, with how many imports do. Memory only: after a crash
    /// no import is under way. Held while records or layers appear or disappear.
    pinned: Mutex<HashMap<Sha256Digest, usize>>,
    next_staging: AtomicU64,
}

/// How the bytes of the store divide among its images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUsage {
    /// Bytes of all layers, each once.
    pub total_bytes: u64,
    /// By image, in the order of `list`.
    pub images: Vec<ImageUsage>,
}

/// What one image takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageUsage {
    pub id: Sha256Digest,
    pub total_bytes: u64,
    /// Of these, bytes that other images use too; removing the image frees the rest.
    pub shared_bytes: u64,
}

/// What `remove` gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    pub layers: usize,
    pub bytes: u64,
}

impl ImageStore {
    /// Opens the store below `root` (made where missing) and clears what a crash left: work under
    /// way and layers that no image names. Costs a read of all records; after a crash during an
    /// import also the removal of what was unpacked (about 50,000 files a second).
    ///
    /// While another one is open on the same directory nothing is cleared, because its imports are
    /// under way, not left; the second may look, but only the first may import and remove.
    pub fn open(root: &Path, limits: ImportLimits) -> Result<Self, ImageError> {
        let store = Self::opened(root, limits)?;
        if !store.is_first()? {
            tracing::warn!(root = %root.display(), "the image store is open already; nothing is cleared");
            return Ok(store);
        }
        for leftover in names(&root.join("staging"))? {
            remove_tree(&root.join("staging").join(&leftover))?;
            tracing::info!(leftover, "removed what an unfinished import left");
        }
        store.sweep()?;
        Ok(store)
    }

    /// Opens a store that another object keeps, to read what it holds. Clears nothing and takes no lock; it
    /// may neither import nor receive nor remove.
    pub fn open_shared(root: &Path, limits: ImportLimits) -> Result<Self, ImageError> {
        Self::opened(root, limits)
    }

    fn opened(root: &Path, limits: ImportLimits) -> Result<Self, ImageError> {
        let place = |name: &str| -> Result<OwnedFd, ImageError> {
            let path = root.join(name);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .doing(|| format!("make {}", path.display()))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&path, flags, Mode::empty())
                .doing(|| format!("open {}", path.display()))
        };
        Ok(Self {
            layers: place("layers")?,
            records: place("records")?,
            staging: place("staging")?,
            root: root.to_owned(),
            limits,
            pinned: Mutex::default(),
            next_staging: AtomicU64::new(1),
        })
    }

    /// Takes the lock on the directory of work under way, held as long as this store is open.
    fn is_first(&self) -> Result<bool, ImageError> {
        match rustix::fs::flock(&self.staging, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error).doing(|| "lock the image store".into()),
        }
    }

    /// Every image, by id.
    ///
    /// A record that cannot be read is left out and logged; its layers are kept.
    pub fn list(&self) -> Result<Vec<ImageRecord>, ImageError> {
        self.read_records().map(|(records, _)| records)
    }

    /// One image. Refuses `image.not-found`.
    pub fn image(&self, id: &Sha256Digest) -> Result<ImageRecord, ImageError> {
        match self.read_record(&record_name(id)) {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(not_found(id)),
            Err(error) => Err(error),
        }
    }

    /// The directories that make up an image, top-most first, as overlayfs takes its lower ones.
    ///
    /// At least one; a layer that an image lists twice is given once (overlayfs refuses the same
    /// directory twice, and the upper one shows all there is to see), and layers below one that
    /// whites out the whole root are left out. Paths are absolute where the
    /// store's is. The caller that mounts them keeps the image from being removed meanwhile.
    pub fn layers(&self, id: &Sha256Digest) -> Result<Vec<PathBuf>, ImageError> {
        let record = self.image(id)?;
        let mut seen = BTreeSet::new();
        let mut paths = Vec::new();
        for layer in record.layers.iter().rev() {
            if seen.insert(&layer.key) {
                paths.push(self.layer_path(&layer.key).join("fs"));
            }
            if layer.hides_below {
                break;
            }
        }
        Ok(paths)
    }

    /// Forgets an image and removes the layers no other image names. Refuses `image.not-found`.
    ///
    /// The caller makes sure that nothing runs from it: layers under a mount would vanish from
    /// below. After a crash during this the image is gone and `open` removes the rest.
    pub fn remove(&self, id: &Sha256Digest) -> Result<Removed, ImageError> {
        let record = self.image(id)?;
        let pinned = self.lock();
        rustix::fs::unlinkat(&self.records, record_name(id), AtFlags::empty())
            .doing(|| format!("remove the record of {id}"))?;
        rustix::fs::fsync(&self.records).doing(|| "write the list of images".into())?;
        let trash = self.unused(&pinned, Some(&record))?;
        let aside = self.set_aside(&trash)?;
        drop(pinned);
        let bytes = record
            .layers
            .iter()
            .filter(|layer| trash.contains(&layer.key))
            .map(|layer| (&layer.key, layer.bytes))
            .collect::<HashMap<_, _>>()
            .into_values()
            .sum();
        if let Some(aside) = aside {
            remove_tree(&aside)?;
        }
        Ok(Removed {
            layers: trash.len(),
            bytes,
        })
    }

    /// How the bytes of the store divide; sums of file lengths, from the records alone.
    pub fn usage(&self) -> Result<StoreUsage, ImageError> {
        let records = self.list()?;
        let mut users: HashMap<&Sha256Digest, (u64, usize)> = HashMap::new();
        for record in &records {
            let own: BTreeSet<_> = record.layers.iter().map(|l| (&l.key, l.bytes)).collect();
            for (key, bytes) in own {
                users.entry(key).or_insert((bytes, 0)).1 += 1;
            }
        }
        let images = records.iter().map(|record| {
            let own: BTreeSet<_> = record.layers.iter().map(|l| &l.key).collect();
            let mut usage = ImageUsage {
                id: record.id.clone(),
                total_bytes: 0,
                shared_bytes: 0,
            };
            for key in own {
                let (bytes, count) = users[key];
                usage.total_bytes += bytes;
                if count > 1 {
                    usage.shared_bytes += bytes;
                }
            }
            usage
        });
        Ok(StoreUsage {
            images: images.collect(),
            total_bytes: users.values().map(|(bytes, _)| bytes).sum(),
        })
    }

    /// Whether this process can unpack images at all: keep owners, make whiteouts, mark opaque
    /// directories. Refuses `image.needs-root` naming the first thing that is missing.
    pub fn can_unpack(&self) -> Result<(), ImageError> {
        let (name, _) = self.new_staging("probe")?;
        let whiteout = format!("{name}-whiteout");
        let tried = self.try_out(&name, &whiteout);
        // Best effort: what stays is removed when the store is opened again.
        let _ = rustix::fs::unlinkat(&self.staging, &whiteout, AtFlags::empty());
        let _ = rustix::fs::unlinkat(&self.staging, &name, AtFlags::REMOVEDIR);
        tried
    }

    fn try_out(&self, name: &str, whiteout: &str) -> Result<(), ImageError> {
        let directory = lower::open_directory(self.staging.as_fd(), name.as_bytes())?;
        let mark = rustix::fs::fsetxattr(&directory, lower::OPAQUE, b"y", XattrFlags::empty());
        needs_root(mark, "mark directories for overlayfs (CAP_SYS_ADMIN)")?;
        let device = FileType::CharacterDevice;
        let made = rustix::fs::mknodat(&self.staging, whiteout, device, Mode::empty(), 0);
        needs_root(made, "make whiteouts (CAP_MKNOD)")?;
        let owned = rustix::fs::fchown(&directory, Some(Uid::from_raw(1)), Some(Gid::from_raw(1)));
        needs_root(owned, "give files their owners (CAP_CHOWN)")
    }

    fn layer_path(&self, key: &Sha256Digest) -> PathBuf {
        self.root.join("layers").join(key.hex())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Sha256Digest, usize>> {
        // The map is only ever changed by single inserts and removals: a panic leaves it whole.
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes layers that no image names and no import relies on.
    fn sweep(&self) -> Result<(), ImageError> {
        let pinned = self.lock();
        let trash = self.unused(&pinned, None)?;
        let aside = self.set_aside(&trash)?;
        drop(pinned);
        match aside {
            Some(aside) => {
                tracing::info!(layers = trash.len(), "removed layers that no image uses");
                remove_tree(&aside)
            }
            None => Ok(()),
        }
    }

    /// Layers on disk that nothing needs: all such, or only those of one removed image.
    fn unused(
        &self,
        pinned: &HashMap<Sha256Digest, usize>,
        only: Option<&ImageRecord>,
    ) -> Result<BTreeSet<Sha256Digest>, ImageError> {
        let (records, unreadable) = self.read_records()?;
        if unreadable > 0 {
            // Such a record may need any layer: better to keep too much.
            return Ok(BTreeSet::new());
        }
        let mut needed: BTreeSet<&Sha256Digest> = pinned.keys().collect();
        needed.extend(records.iter().flat_map(|r| r.layers.iter().map(|l| &l.key)));
        let mut unused = BTreeSet::new();
        for name in names(&self.root.join("layers"))? {
            let Some(key) = Sha256Digest::from_hex(&name) else {
                continue;
            };
            let candidate = only.is_none_or(|r| r.layers.iter().any(|l| l.key == key));
            if candidate && !needed.contains(&key) {
                unused.insert(key);
            }
        }
        Ok(unused)
    }

    /// Moves layers out of sight in one step each, so that half a removed layer is never found.
    fn set_aside(&self, keys: &BTreeSet<Sha256Digest>) -> Result<Option<PathBuf>, ImageError> {
        if keys.is_empty() {
            return Ok(None);
        }
        let (name, aside) = self.new_staging("removed")?;
        let into = lower::open_directory(self.staging.as_fd(), name.as_bytes())?;
        for key in keys {
            rustix::fs::renameat(&self.layers, key.hex(), &into, key.hex())
                .doing(|| format!("set layer {} aside", key.short()))?;
        }
        Ok(Some(aside))
    }

    fn new_staging(&self, what: &str) -> Result<(String, PathBuf), ImageError> {
        loop {
            let number = self.next_staging.fetch_add(1, Ordering::Relaxed);
            let name = format!("{what}-{number}");
            match rustix::fs::mkdirat(&self.staging, &name, Mode::from_raw_mode(0o700)) {
                // Of a store that is open beside this one.
                Err(Errno::EXIST) => {}
                made => {
                    made.doing(|| "make room for an import".into())?;
                    let path = self.root.join("staging").join(&name);
                    return Ok((name, path));
                }
            }
        }
    }

    /// All records that can be read, by id, and how many cannot.
    fn read_records(&self) -> Result<(Vec<ImageRecord>, usize), ImageError> {
        let mut records = Vec::new();
        let mut unreadable = 0;
        for name in names(&self.root.join("records"))? {
            match self.read_record(&name) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(error) => {
                    unreadable += 1;
                    tracing::warn!(name, %error, "an image record cannot be read");
                }
            }
        }
        records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok((records, unreadable))
    }

    fn read_record(&self, name: &str) -> Result<Option<ImageRecord>, ImageError> {
        let path = self.root.join("records").join(name);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.doing(|| format!("read {}", path.display()))?,
        };
        let record: ImageRecord =
            serde_json::from_slice(&bytes).doing(|| format!("understand {}", path.display()))?;
        Ok(Some(record))
    }

    /// Writes a record beside its place, then over it. The caller holds the lock.
    fn write_record(
        &self,
        record: &ImageRecord,
        scratch: BorrowedFd<'_>,
    ) -> Result<(), ImageError> {
        let name = record_name(&record.id);
        let what = || format!("write the record of {}", record.id);
        let mut bytes = serde_json::to_vec_pretty(record).doing(what)?;
        bytes.push(b'\n');
        write_file(scratch, &name, &bytes).doing(what)?;
        rustix::fs::renameat(scratch, &name, &self.records, &name).doing(what)?;
        rustix::fs::fsync(&self.records).doing(what)
    }

    fn read_layer_file(&self, key: &Sha256Digest) -> Result<Option<LayerFile>, ImageError> {
        let path = self.layer_path(key).join("layer.json");
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.doing(|| format!("read {}", path.display()))?,
        };
        let file =
            serde_json::from_slice(&bytes).doing(|| format!("understand {}", path.display()))?;
        Ok(Some(file))
    }
}

fn record_name(id: &Sha256Digest) -> String {
    format!("{}.json", id.hex())
}

fn not_found(id: &Sha256Digest) -> ImageError {
    refusals::image_not_stored(id.short()).into()
}

fn needs_root(tried: Result<(), Errno>, what: &str) -> Result<(), ImageError> {
    match tried {
        Ok(()) => Ok(()),
        Err(Errno::PERM | Errno::ACCESS) => Err(refusals::image_needs_root(what).into()),
        Err(Errno::OPNOTSUPP) => Err(refusals::image_disk_unsuitable(what).into()),
        Err(error) => Err(error).doing(|| "try out the image store".into()),
    }
}

/// Names in a directory, UTF-8 ones only: the store makes no others.
fn names(path: &Path) -> Result<Vec<String>, ImageError> {
    let what = || format!("list {}", path.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(path).doing(what)? {
        let entry = entry.doing(what)?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// Removes a tree of the store's own, with everything that an archive put into it.
fn remove_tree(path: &Path) -> Result<(), ImageError> {
    crate::trees::remove(path).doing(|| format!("remove {}", path.display()))
}

fn write_file(directory: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let mut file = File::from(rustix::fs::openat(directory, name, flags, mode)?);
    file.write_all(bytes)?;
    file.sync_all()
}

/// Moves a finished directory to its place; `false` when another import was there first.
fn rename_if_absent(
    from: BorrowedFd<'_>,
    name: &str,
    into: BorrowedFd<'_>,
    as_name: &str,
) -> Result<bool, ImageError> {
    match rustix::fs::renameat_with(from, name, into, as_name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error).doing(|| format!("put layer {as_name} in its place")),
    }
}
