//! Blobs of the registry at rest: compressed layers, configurations and manifests byte for byte, each once, so that an image
//! is pulled with the digests that it was pushed with. Takes uploads of unknown length. Never knows who may have a blob and
//! never speaks HTTP; it does keep owners apart, because a digest must not be enough to get at another user's layer.
//!
//! On disk, below one directory that only root may enter:
//! ```text
//! blobs/<digest>              the bytes; renamed into place once their digest was checked
//! held/<owner>-<digest>       empty: this owner pushed the blob lately, and no row may name it yet
//! uploads/<id>.json, .part    whose upload it is; what has come, its length is the offset
//! layouts/<id>/               an OCI layout of links to blobs, for one import
//! ```
//! A blob that no row names and no owner holds is garbage; `sweep` removes it.

pub mod manifest;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rules::refusals;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::images::digest::Sha256Digest;
use crate::uploads::{SYNC_BYTES, UploadError};

/// Bounds of the registry.
#[derive(Debug, Clone)]
pub struct RegistryLimits {
    /// Largest blob. Higher: one layer may fill the disk down to the reserve. Lower: large model layers are refused.
    pub blob_bytes: u64,
    /// Uploads of one owner at once. Clients push some six layers together.
    pub uploads_of_owner: usize,
    /// Uploads of all owners at once.
    pub uploads: usize,
    /// Seconds without a byte after which an upload is forgotten, and for which a blob stays that no image names.
    pub idle_seconds: u64,
    /// Free bytes that always stay on the disk of the state.
    pub reserve_bytes: u64,
}

impl Default for RegistryLimits {
    fn default() -> Self {
        Self {
            blob_bytes: 128 << 30,
            uploads_of_owner: 32,
            uploads: 256,
            idle_seconds: 24 * 3600,
            reserve_bytes: 1 << 30,
        }
    }
}

/// Who sends an upload, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadOwner {
    pub owner: Uuid,
    pub repository: String,
}

/// A kept blob, open from its beginning.
#[derive(Debug)]
pub struct StoredBlob {
    pub file: File,
    pub bytes: u64,
}

/// What `sweep` gave back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub blobs: usize,
    pub bytes: u64,
}

/// The registry's bytes of one machine. One per directory and process; methods may be called from several threads, two
/// appends to one upload at once are refused.
#[derive(Debug)]
pub struct RegistryStore {
    root: PathBuf,
    limits: RegistryLimits,
    /// What is known beyond the disk. Memory only: after a restart the digest is made from the file.
    running: Mutex<HashMap<Uuid, Arc<Mutex<RegistryUpload>>>>,
    /// Held while blobs come, are held, linked or go, and while an upload begins.
    order: Mutex<()>,
}

#[derive(Debug, Default)]
struct RegistryUpload {
    /// Hash of the first `hashed` bytes.
    hash: Sha256,
    hashed: u64,
    /// Bytes that came since the disk was waited for.
    unsynced: u64,
    is_gone: bool,
}

impl RegistryStore {
    /// Opens the registry below `root` (made where missing); layouts of earlier runs go, uploads are there again.
    pub fn open(root: &Path, limits: RegistryLimits) -> Result<Self, UploadError> {
        for place in ["blobs", "held", "uploads", "layouts"] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(root.join(place))
                .map_err(fault("make the directories of the registry"))?;
        }
        for name in names(&root.join("layouts"))? {
            fs::remove_dir_all(root.join("layouts").join(name))
                .map_err(fault("remove a layout of an earlier run"))?;
        }
        Ok(Self {
            root: root.to_owned(),
            limits,
            running: Mutex::default(),
            order: Mutex::default(),
        })
    }

    /// Begins an upload. Refuses `registry.uploads-full`, `disk.full`.
    pub fn begin(&self, who: &UploadOwner, now: Timestamp) -> Result<Uuid, UploadError> {
        self.expire(now)?;
        let _one_by_one = self.ordered();
        let under_way = self.upload_ids()?;
        let mut own = 0;
        for id in &under_way {
            own += usize::from(self.note(*id)?.is_some_and(|note| note.owner == who.owner));
        }
        if own >= self.limits.uploads_of_owner || under_way.len() >= self.limits.uploads {
            let count = match own >= self.limits.uploads_of_owner {
                true => own,
                false => under_way.len(),
            };
            return Err(refusals::registry_uploads_full(count)
                .retry_after(60)
                .into());
        }
        self.look_for_room(0)?;
        let id = Uuid::now_v7();
        let json = serde_json::to_vec(who).map_err(|error| fault(BEGIN)(error.into()))?;
        new_file(&self.part(id)).map_err(fault(BEGIN))?;
        // The note comes last: a part without one is what a crash left.
        write_whole(&self.root.join("uploads"), &format!("{id}.json"), &json)
            .map_err(fault(BEGIN))?;
        Ok(id)
    }

    /// How many bytes of an upload have come. What is told stays over a loss of power. Refuses `registry.upload-unknown`, also
    /// for another owner's.
    pub fn offset(&self, id: Uuid, who: &UploadOwner) -> Result<u64, UploadError> {
        let told = self.standing(id, who)?;
        // Told first, kept then: bytes that come meanwhile are not told of.
        match File::open(self.part(id)).and_then(|part| part.sync_data()) {
            Ok(()) => Ok(told),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(refusals::registry_upload_unknown().into())
            }
            Err(error) => Err(fault("look at an upload")(error)),
        }
    }

    /// The same, of which the last bytes may be lost with the power.
    fn standing(&self, id: Uuid, who: &UploadOwner) -> Result<u64, UploadError> {
        match self.note(id)? {
            Some(note) if note == *who => {}
            _ => return Err(refusals::registry_upload_unknown().into()),
        }
        match fs::metadata(self.part(id)) {
            Ok(meta) => Ok(meta.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(refusals::registry_upload_unknown().into())
            }
            Err(error) => Err(fault("look at an upload")(error)),
        }
    }

    /// Appends a piece at `offset`, or at the end where there is none; gives how far the upload then is. The disk is waited for
    /// every 64 MiB; for what came in between, `offset` and `finish` wait.
    ///
    /// Refuses `registry.upload-range`, `registry.blob-too-large`, `upload.busy`, `disk.full`, `registry.upload-unknown`.
    pub fn append(
        &self,
        id: Uuid,
        who: &UploadOwner,
        offset: Option<u64>,
        piece: &[u8],
    ) -> Result<u64, UploadError> {
        self.standing(id, who)?;
        let running = self.running(id);
        let mut running = running.try_lock().map_err(|_| refusals::upload_busy())?;
        if running.is_gone {
            return Err(refusals::registry_upload_unknown().into());
        }
        let mut part = OpenOptions::new()
            .append(true)
            .open(self.part(id))
            .map_err(fault(WRITE))?;
        let at = part.metadata().map_err(fault(WRITE))?.len();
        if offset.is_some_and(|offset| offset != at) {
            return Err(refusals::registry_upload_range(at).into());
        }
        let bytes = piece.len() as u64;
        if at.saturating_add(bytes) > self.limits.blob_bytes {
            return Err(refusals::registry_blob_too_large(self.limits.blob_bytes >> 20).into());
        }
        self.look_for_room(bytes)?;
        part.write_all(piece).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                UploadError::from(refusals::upload_disk_full())
            }
            _ => fault(WRITE)(error),
        })?;
        if running.hashed == at {
            running.hash.update(piece);
            running.hashed += bytes;
        }
        running.unsynced += bytes;
        if running.unsynced >= SYNC_BYTES {
            part.sync_data().map_err(fault(WRITE))?;
            running.unsynced = 0;
        }
        Ok(at + bytes)
    }

    /// Ends an upload: its bytes become the blob of this digest, which the owner holds from then on. Gives its length.
    ///
    /// Costs a read of the whole file when parts came before the last restart. Refuses `registry.digest-mismatch`, which
    /// also forgets the upload; `upload.busy`, `registry.upload-unknown`.
    pub fn finish(
        &self,
        id: Uuid,
        who: &UploadOwner,
        declared: &Sha256Digest,
    ) -> Result<u64, UploadError> {
        self.standing(id, who)?;
        let running = self.running(id);
        let mut running = running.try_lock().map_err(|_| refusals::upload_busy())?;
        if running.is_gone {
            return Err(refusals::registry_upload_unknown().into());
        }
        let part = File::open(self.part(id)).map_err(fault(END))?;
        let length = part.metadata().map_err(fault(END))?.len();
        if running.hashed != length {
            running.hash = hash_of(&self.part(id)).map_err(fault(END))?;
            running.hashed = length;
        }
        let real = Sha256Digest::finished(running.hash.clone());
        running.is_gone = true;
        if real != *declared {
            self.forget(id).map_err(fault(END))?;
            return Err(refusals::registry_digest_mismatch(&real, declared).into());
        }
        part.sync_data().map_err(fault(END))?;
        let _one_by_one = self.ordered();
        self.mark(who.owner, &real).map_err(fault(END))?;
        fs::rename(self.part(id), self.blob_path(&real)).map_err(fault(END))?;
        flush(&self.root.join("blobs")).map_err(fault(END))?;
        self.forget(id).map_err(fault(END))?;
        Ok(length)
    }

    /// Calls an upload off. Refuses `registry.upload-unknown`, `upload.busy`.
    pub fn cancel(&self, id: Uuid, who: &UploadOwner) -> Result<(), UploadError> {
        self.standing(id, who)?;
        let running = self.running(id);
        let mut running = running.try_lock().map_err(|_| refusals::upload_busy())?;
        running.is_gone = true;
        self.forget(id).map_err(fault("forget an upload"))
    }

    /// Keeps a small document, such as a manifest, held by this owner; gives its digest.
    pub fn put(&self, owner: Uuid, bytes: &[u8]) -> Result<Sha256Digest, UploadError> {
        let digest = Sha256Digest::of(bytes);
        let _one_by_one = self.ordered();
        self.look_for_room(bytes.len() as u64)?;
        self.mark(owner, &digest)
            .map_err(fault("keep a manifest"))?;
        write_whole(&self.root.join("blobs"), digest.hex(), bytes)
            .map_err(fault("keep a manifest"))?;
        Ok(digest)
    }

    /// A blob of any owner; None where it is not kept.
    pub fn blob(&self, digest: &Sha256Digest) -> Result<Option<StoredBlob>, UploadError> {
        let file = match File::open(self.blob_path(digest)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault("open a blob")(error)),
        };
        let bytes = file.metadata().map_err(fault("open a blob"))?.len();
        Ok(Some(StoredBlob { file, bytes }))
    }

    /// Whether this owner pushed the blob lately, and it is here.
    pub fn is_held(&self, owner: Uuid, digest: &Sha256Digest) -> bool {
        self.held_path(owner, digest).exists() && self.blob_path(digest).exists()
    }

    /// Has this owner hold a blob for as long as an upload may rest; false where it is not here. The caller says that they
    /// may.
    pub fn hold(&self, owner: Uuid, digest: &Sha256Digest) -> Result<bool, UploadError> {
        let _one_by_one = self.ordered();
        if !self.blob_path(digest).exists() {
            return Ok(false);
        }
        self.mark(owner, digest).map_err(fault("hold a blob"))?;
        Ok(true)
    }

    /// An OCI layout of links to these blobs, whose only image is this manifest; None where one of them is not here. It
    /// stays until `drop_layout`, and its bytes with it.
    pub fn layout(
        &self,
        id: Uuid,
        manifest: &Sha256Digest,
        manifest_bytes: u64,
        blobs: &[Sha256Digest],
    ) -> Result<Option<PathBuf>, UploadError> {
        self.drop_layout(id)?;
        let place = self.root.join("layouts").join(id.to_string());
        let inside = place.join("blobs/sha256");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&inside)
            .map_err(fault(LAYOUT))?;
        let _one_by_one = self.ordered();
        let named: BTreeSet<&Sha256Digest> = blobs.iter().chain([manifest]).collect();
        for digest in named {
            match fs::hard_link(self.blob_path(digest), inside.join(digest.hex())) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(fault(LAYOUT)(error)),
            }
        }
        let index = serde_json::json!({
            "schemaVersion": 2,
            "manifests": [{ "digest": manifest.to_string(), "size": manifest_bytes }],
        });
        fs::write(place.join("index.json"), index.to_string()).map_err(fault(LAYOUT))?;
        Ok(Some(place))
    }

    /// Removes a layout, where there is one.
    pub fn drop_layout(&self, id: Uuid) -> Result<(), UploadError> {
        let place = self.root.join("layouts").join(id.to_string());
        match fs::remove_dir_all(place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fault(LAYOUT)(error)),
            _ => Ok(()),
        }
    }

    /// Removes blobs that are not in `named` and that no owner holds any more, and uploads that rested too long. Costs a
    /// read of the list of blobs.
    ///
    /// The caller reads `named` from rows before this; what it names later is held.
    pub fn sweep(&self, named: &BTreeSet<String>, now: Timestamp) -> Result<Swept, UploadError> {
        self.expire(now)?;
        let _one_by_one = self.ordered();
        let mut held = BTreeSet::new();
        for name in names(&self.root.join("held"))? {
            let path = self.root.join("held").join(&name);
            let touched = fs::metadata(&path).and_then(|meta| meta.modified());
            let is_fresh = touched.is_ok_and(|at| !self.is_over(at, now));
            match (is_fresh, name.rsplit_once('-')) {
                (true, Some((_, hex))) => {
                    held.insert(hex.to_owned());
                }
                _ => fs::remove_file(&path).map_err(fault(SWEEP))?,
            }
        }
        let mut swept = Swept::default();
        for name in names(&self.root.join("blobs"))? {
            if held.contains(&name) || named.contains(&format!("sha256:{name}")) {
                continue;
            }
            let path = self.root.join("blobs").join(&name);
            let bytes = fs::metadata(&path).map_err(fault(SWEEP))?.len();
            fs::remove_file(&path).map_err(fault(SWEEP))?;
            swept.blobs += 1;
            swept.bytes += bytes;
        }
        Ok(swept)
    }

    /// Forgets uploads that rested too long and what crashes left of beginnings.
    fn expire(&self, now: Timestamp) -> Result<(), UploadError> {
        let _one_by_one = self.ordered();
        for id in self.upload_ids()? {
            let touched = fs::metadata(self.part(id)).and_then(|meta| meta.modified());
            let is_over = touched.map_or(true, |at| self.is_over(at, now));
            let is_known = self.note(id)?.is_some();
            if is_known && !is_over {
                continue;
            }
            let running = self.running(id);
            let Ok(mut running) = running.try_lock() else {
                continue;
            };
            running.is_gone = true;
            self.forget(id).map_err(fault("forget an upload"))?;
        }
        Ok(())
    }

    fn is_over(&self, touched: SystemTime, now: Timestamp) -> bool {
        let since = touched.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        at.plus_seconds(self.limits.idle_seconds) <= now
    }

    /// Notes that an owner holds a blob. The caller has the order.
    fn mark(&self, owner: Uuid, digest: &Sha256Digest) -> io::Result<()> {
        let path = self.held_path(owner, digest);
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?
            .set_modified(SystemTime::now())
    }

    fn ordered(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self, id: Uuid) -> Arc<Mutex<RegistryUpload>> {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(id).or_default())
    }

    fn forget(&self, id: Uuid) -> io::Result<()> {
        // The note goes first: without it the rest is garbage in any case.
        for ending in ["json", "part", "new"] {
            let path = self.root.join("uploads").join(format!("{id}.{ending}"));
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&id);
        Ok(())
    }

    fn note(&self, id: Uuid) -> Result<Option<UploadOwner>, UploadError> {
        match fs::read(self.root.join("uploads").join(format!("{id}.json"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault("look at an upload")(error)),
            // Written whole by rename; one that cannot be understood is useless.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        }
    }

    fn upload_ids(&self) -> Result<BTreeSet<Uuid>, UploadError> {
        let all = names(&self.root.join("uploads"))?;
        let id = |name: &String| Uuid::parse_str(name.split_once('.')?.0).ok();
        Ok(all.iter().filter_map(id).collect())
    }

    fn part(&self, id: Uuid) -> PathBuf {
        self.root.join("uploads").join(format!("{id}.part"))
    }

    fn blob_path(&self, digest: &Sha256Digest) -> PathBuf {
        self.root.join("blobs").join(digest.hex())
    }

    fn held_path(&self, owner: Uuid, digest: &Sha256Digest) -> PathBuf {
        let name = format!("{}-{}", owner.simple(), digest.hex());
        self.root.join("held").join(name)
    }

    fn look_for_room(&self, bytes: u64) -> Result<(), UploadError> {
        let stat = rustix::fs::statvfs(&self.root)
            .map_err(|error| fault("look at the free disk")(error.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        match free < self.limits.reserve_bytes.saturating_add(bytes) {
            true => Err(refusals::upload_disk_full().into()),
            false => Ok(()),
        }
    }
}

const BEGIN: &str = "begin an upload to the registry";
const WRITE: &str = "write to an upload of the registry";
const END: &str = "keep a blob";
const LAYOUT: &str = "make a layout of blobs";
const SWEEP: &str = "remove blobs that no image needs";

/// Names in a directory, UTF-8 ones only: the store makes no others.
fn names(path: &Path) -> Result<Vec<String>, UploadError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(fault("list what the registry keeps"))? {
        let entry = entry.map_err(fault("list what the registry keeps"))?;
        names.extend(entry.file_name().into_string().ok());
    }
    Ok(names)
}

/// Writes a file beside its place, then renames it; on disk when it answers.
fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let begun = folder.join(format!("{}.new", Uuid::now_v7()));
    let mut file = new_file(&begun)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&begun, folder.join(name))?;
    flush(folder)
}

fn flush(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn hash_of(path: &Path) -> io::Result<Sha256> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash),
            count => hash.update(&buffer[..count]),
        }
    }
}

fn fault(what: &'static str) -> impl Fn(io::Error) -> UploadError {
    move |source| UploadError::Fault {
        what: what.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(limits: RegistryLimits) -> (tempfile::TempDir, RegistryStore) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = RegistryStore::open(folder.path(), limits).expect("a store");
        (folder, store)
    }

    fn small() -> RegistryLimits {
        RegistryLimits {
            blob_bytes: 100,
            uploads_of_owner: 2,
            reserve_bytes: 0,
            ..RegistryLimits::default()
        }
    }

    fn owner(number: u128) -> UploadOwner {
        UploadOwner {
            owner: Uuid::from_u128(number),
            repository: "lab/tiny".into(),
        }
    }

    fn now() -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
    }

    fn code<T: std::fmt::Debug>(result: Result<T, UploadError>) -> String {
        result.unwrap_err().code().unwrap_or("fault").to_owned()
    }

    #[test]
    fn an_upload_goes_on_after_a_restart_and_becomes_a_blob() {
        let (folder, store) = store(small());
        let kim = owner(1);
        let id = store.begin(&kim, now()).unwrap();
        assert_eq!(store.append(id, &kim, Some(0), b"hello ").unwrap(), 6);
        drop(store);
        let store = RegistryStore::open(folder.path(), small()).unwrap();
        assert_eq!(store.offset(id, &kim).unwrap(), 6);
        assert_eq!(
            code(store.append(id, &kim, Some(3), b"x")),
            "registry.upload-range"
        );
        assert_eq!(store.append(id, &kim, Some(6), b"world").unwrap(), 11);
        let digest = Sha256Digest::of(b"hello world");
        assert_eq!(store.finish(id, &kim, &digest).unwrap(), 11);
        assert!(store.is_held(kim.owner, &digest));
        assert!(!store.is_held(owner(2).owner, &digest));
        assert_eq!(store.blob(&digest).unwrap().unwrap().bytes, 11);
        assert_eq!(code(store.offset(id, &kim)), "registry.upload-unknown");
    }

    #[test]
    fn wrong_bytes_other_owners_and_too_much_are_refused() {
        let (_folder, store) = store(small());
        let (kim, lee) = (owner(1), owner(2));
        let id = store.begin(&kim, now()).unwrap();
        assert_eq!(code(store.offset(id, &lee)), "registry.upload-unknown");
        let elsewhere = UploadOwner {
            repository: "lab/other".into(),
            ..kim.clone()
        };
        assert_eq!(
            code(store.append(id, &elsewhere, None, b"x")),
            "registry.upload-unknown"
        );
        assert_eq!(
            code(store.append(id, &kim, None, &[0; 101])),
            "registry.blob-too-large"
        );
        store.append(id, &kim, None, b"bytes").unwrap();
        let other = Sha256Digest::of(b"others");
        assert_eq!(
            code(store.finish(id, &kim, &other)),
            "registry.digest-mismatch"
        );
        assert!(store.blob(&other).unwrap().is_none());
        assert_eq!(code(store.offset(id, &kim)), "registry.upload-unknown");
        store.begin(&kim, now()).unwrap();
        store.begin(&kim, now()).unwrap();
        assert_eq!(code(store.begin(&kim, now())), "registry.uploads-full");
        store.begin(&lee, now()).unwrap();
    }

    #[test]
    fn a_blob_stays_while_it_is_named_or_held() {
        let (_folder, store) = store(small());
        let kim = owner(1);
        let (one, two) = (
            store.put(kim.owner, b"one").unwrap(),
            store.put(kim.owner, b"two").unwrap(),
        );
        let named = BTreeSet::from([one.to_string()]);
        assert_eq!(store.sweep(&named, now()).unwrap(), Swept::default());
        let later = now().plus_seconds(25 * 3600);
        let swept = store.sweep(&named, later).unwrap();
        assert_eq!((swept.blobs, swept.bytes), (1, 3));
        assert!(store.blob(&one).unwrap().is_some());
        assert!(store.blob(&two).unwrap().is_none());
        assert!(!store.hold(kim.owner, &two).unwrap());
        assert!(store.hold(kim.owner, &one).unwrap());
    }

    #[test]
    fn a_layout_keeps_its_bytes() {
        let (_folder, store) = store(small());
        let kim = owner(1);
        let layer = store.put(kim.owner, b"layer").unwrap();
        let manifest = store.put(kim.owner, b"{}").unwrap();
        let id = Uuid::from_u128(9);
        let made = store
            .layout(id, &manifest, 2, std::slice::from_ref(&layer))
            .unwrap();
        let place = made.expect("all are here");
        store
            .sweep(&BTreeSet::new(), now().plus_seconds(25 * 3600))
            .unwrap();
        let inside = place.join("blobs/sha256").join(layer.hex());
        assert_eq!(fs::read(inside).unwrap(), b"layer");
        let unknown = Sha256Digest::of(b"never pushed");
        assert!(
            store
                .layout(id, &manifest, 2, &[unknown])
                .unwrap()
                .is_none()
        );
        store.drop_layout(id).unwrap();
        assert!(!place.exists());
    }
}
