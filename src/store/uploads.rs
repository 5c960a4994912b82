//! Resumable uploads at rest: a declared size, bytes appended at an offset, a digest at the end.
//! A part survives a restart and is picked up where it ended. Never speaks HTTP, never decides who
//! may upload; it does keep owners apart, because an upload's id must not be enough to write to it.
//!
//! On disk, below one directory: `<id>.json` (what was declared) and `<id>.part` (what has come; its
//! length is the offset). Nothing else says how far an upload is.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::images::digest::Sha256Digest;

/// Bytes between two writes that are waited for. Higher: more is sent again after a loss of power. Lower: the disk waits for
/// itself.
pub(crate) const SYNC_BYTES: u64 = 64 << 20;

/// Bounds of uploads.
#[derive(Debug, Clone)]
pub struct UploadLimits {
    /// Largest declared size.
    pub bytes: u64,
    /// Uploads under way together, of all owners.
    pub count: usize,
    /// Free bytes that always stay on the disk of the state.
    pub reserve_bytes: u64,
    /// Seconds without a byte after which a part is forgotten.
    pub idle_seconds: u64,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self {
            bytes: 512 << 30,
            count: 256,
            reserve_bytes: 1 << 30,
            idle_seconds: 24 * 3600,
        }
    }
}

/// What is declared when an upload begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Who may go on with it; any text, compared as it is.
    pub owner: String,
    /// The file's name as the person knows it; only ever shown, never used as a path.
    pub file_name: String,
    /// Exact number of bytes to come.
    pub bytes: u64,
    /// Digest the whole must have, when the sender knows it beforehand.
    pub digest: Option<Sha256Digest>,
}

/// One upload under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadStatus {
    pub id: Uuid,
    pub declared: Declared,
    /// Bytes that have come; the next append begins here.
    pub offset: u64,
    pub begun_at: Timestamp,
    /// When it is forgotten unless a byte comes.
    pub expires_at: Timestamp,
}

/// A complete upload whose size and digest were checked.
#[derive(Debug)]
pub struct CompleteUpload {
    pub declared: Declared,
    pub digest: Sha256Digest,
    /// The bytes, from the start. They stay in the store until `remove`.
    pub file: File,
}

/// Why an upload operation did not happen.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The caller's: codes begin with `upload.`.
    #[error("{0}")]
    Refused(Box<Refusal>),
    #[error("{what}")]
    Fault {
        what: String,
        #[source]
        source: io::Error,
    },
}

impl From<Refusal> for UploadError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl UploadError {
    /// The stable code of a refusal; `None` for a fault.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.code),
            Self::Fault { .. } => None,
        }
    }
}

/// All uploads under way on this machine. One per directory and process; methods may be called from
/// several threads, two appends to one upload at once are refused.
#[derive(Debug)]
pub struct UploadStore {
    root: PathBuf,
    limits: UploadLimits,
    /// What is known beyond the disk. Memory only: after a restart the digest is made from the file.
    running: Mutex<HashMap<Uuid, Arc<Mutex<RunningUpload>>>>,
    /// Held while an upload begins, so that the count and the free disk are judged one by one.
    beginning: Mutex<()>,
}

#[derive(Debug, Default)]
struct RunningUpload {
    /// Hash of the first `hashed` bytes.
    hash: Sha256,
    hashed: u64,
    /// Bytes that came since the disk was waited for.
    unsynced: u64,
    gone: bool,
}

#[derive(Serialize, Deserialize)]
struct UploadNote {
    declared: Declared,
    begun_at: Timestamp,
}

impl UploadStore {
    /// Opens the uploads below `root` (made where missing); parts of earlier runs are there again.
    pub fn open(root: &Path, limits: UploadLimits) -> Result<Self, UploadError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root)
            .map_err(fault("make the directory of uploads"))?;
        Ok(Self {
            root: root.to_owned(),
            limits,
            running: Mutex::default(),
            beginning: Mutex::default(),
        })
    }

    /// Begins an upload. Refuses `upload.too-large`, `upload.empty`, `upload.too-many`,
    /// `upload.disk-full` (the whole declared size must fit beside what others declared).
    pub fn create(&self, declared: Declared, now: Timestamp) -> Result<UploadStatus, UploadError> {
        if declared.bytes == 0 {
            return Err(refusals::upload_empty().into());
        }
        if declared.bytes > self.limits.bytes {
            return Err(refusals::upload_too_large(declared.bytes, self.limits.bytes).into());
        }
        if declared.file_name.len() > 255 || declared.owner.len() > 255 {
            return Err(refusals::upload_name_too_long().into());
        }
        let _one_by_one = self
            .beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let under_way = self.list()?;
        if under_way.len() >= self.limits.count {
            return Err(refusals::upload_too_many(under_way.len())
                .retry_after(60)
                .into());
        }
        let to_come = |status: &UploadStatus| status.declared.bytes - status.offset;
        let promised: u64 = under_way.iter().map(to_come).sum();
        let free = self.free_bytes()?;
        let needed = promised.saturating_add(declared.bytes);
        if free < needed.saturating_add(self.limits.reserve_bytes) {
            return Err(refusals::upload_disk_too_small(
                free >> 20,
                self.limits.reserve_bytes >> 20,
                promised >> 20,
            )
            .into());
        }
        let id = Uuid::now_v7();
        let note = UploadNote {
            declared,
            begun_at: now,
        };
        let part = new_file(&self.part(id)).map_err(fault("begin an upload"))?;
        part.sync_all().map_err(fault("begin an upload"))?;
        // The note comes last: a part without a note is what a crash left, and is removed.
        let json = serde_json::to_vec(&note).map_err(|e| fault("begin an upload")(e.into()))?;
        let begun = self.root.join(format!("{id}.new"));
        let written = new_file(&begun).and_then(|mut file| {
            file.write_all(&json)?;
            file.sync_all()?;
            fs::rename(&begun, self.note(id))?;
            File::open(&self.root)?.sync_all()
        });
        written.map_err(fault("begin an upload"))?;
        self.status_of(id, note)
    }

    /// How far an upload is. What is told stays over a loss of power. Refuses `upload.not-found`, also when it is another
    /// user's.
    pub fn status(&self, id: Uuid, owner: &str) -> Result<UploadStatus, UploadError> {
        let status = self.standing(id, owner)?;
        // Told first, kept then: bytes that an append brings meanwhile are not told of.
        let kept = File::open(self.part(id)).and_then(|part| part.sync_data());
        match kept {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_found()),
            kept => {
                kept.map_err(fault("read an upload"))?;
                Ok(status)
            }
        }
    }

    /// The same, of which the last bytes may be lost with the power.
    fn standing(&self, id: Uuid, owner: &str) -> Result<UploadStatus, UploadError> {
        let note = self
            .read_note(id)?
            .filter(|note| note.declared.owner == owner);
        let note = note.ok_or_else(not_found)?;
        self.status_of(id, note)
    }

    /// All uploads under way, oldest first; unreadable ones are left out and removed by `expire`.
    pub fn list(&self) -> Result<Vec<UploadStatus>, UploadError> {
        let mut all = Vec::new();
        for id in self.ids("json")? {
            if let Some(note) = self.read_note(id)? {
                all.push(self.status_of(id, note)?);
            }
        }
        all.sort_by_key(|status| (status.begun_at, status.id));
        Ok(all)
    }

    /// Appends bytes at `offset` until `from` ends; gives how far the upload now is. The disk is waited for every 64 MiB, at
    /// the end of the upload and where it breaks off; for what came in between, `status` waits.
    ///
    /// What has come is kept and on disk also when `from` fails midway: the answer is then
    /// `upload.interrupted` and the next append begins at the offset `status` tells. Refuses
    /// `upload.wrong-offset`, `upload.busy`, `upload.too-large` (more bytes than declared: what fits
    /// is kept), `upload.disk-full`, `upload.not-found`.
    pub fn append(
        &self,
        id: Uuid,
        owner: &str,
        offset: u64,
        from: &mut dyn Read,
    ) -> Result<UploadStatus, UploadError> {
        let status = self.standing(id, owner)?;
        let running = self.running(id);
        let mut running = running.try_lock().map_err(|_| busy())?;
        if running.gone {
            return Err(not_found());
        }
        let mut part = OpenOptions::new()
            .append(true)
            .open(self.part(id))
            .map_err(fault("write to an upload"))?;
        // Read again under the lock: the status above may be older than another append.
        let mut at = part.metadata().map_err(fault("write to an upload"))?.len();
        if at != offset {
            return Err(refusals::upload_wrong_offset(at, offset).into());
        }
        let mut buf = vec![0u8; 256 << 10];
        let mut looked = 0u64;
        let ended = loop {
            let n = match from.read(&mut buf) {
                Ok(0) => break Ok(()),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    break Err(refusals::upload_interrupted(&error).into());
                }
            };
            if n as u64 > status.declared.bytes - at {
                break Err(refusals::upload_longer_than_declared(status.declared.bytes).into());
            }
            if looked == 0 {
                let free = self.free_bytes()?;
                if free < self.limits.reserve_bytes.saturating_add(n as u64) {
                    break Err(disk_full());
                }
            }
            looked = (looked + n as u64) % (64 << 20);
            if let Err(error) = part.write_all(&buf[..n]) {
                // Some of it may have been written; the length of the file stays the truth.
                break Err(match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => disk_full(),
                    _ => fault("write to an upload")(error),
                });
            }
            if running.hashed == at {
                running.hash.update(&buf[..n]);
                running.hashed += n as u64;
            }
            at += n as u64;
            running.unsynced += n as u64;
        };
        let is_whole = at == status.declared.bytes;
        if is_whole || ended.is_err() || running.unsynced >= SYNC_BYTES {
            part.sync_data().map_err(fault("write to an upload"))?;
            running.unsynced = 0;
        }
        drop(running);
        ended?;
        self.standing(id, owner)
    }

    /// Opens a complete upload: checks its size and digest. The upload stays, so that a caller that uses
    /// the bytes can begin again after a crash; `remove` it when they are used.
    ///
    /// Costs a read of the whole file when parts came before the last restart. Refuses
    /// `upload.incomplete`, `upload.busy`, `upload.not-found`, and `upload.digest-mismatch`, which
    /// also forgets the upload: its bytes are wrong and no further byte can right them.
    pub fn complete(
        &self,
        id: Uuid,
        owner: &str,
        expected: Option<&Sha256Digest>,
    ) -> Result<CompleteUpload, UploadError> {
        let status = self.status(id, owner)?;
        let running = self.running(id);
        let mut running = running.try_lock().map_err(|_| busy())?;
        if running.gone {
            return Err(not_found());
        }
        let file = File::open(self.part(id)).map_err(fault("open an upload"))?;
        let length = file.metadata().map_err(fault("open an upload"))?.len();
        if length != status.declared.bytes {
            return Err(refusals::upload_incomplete(length, status.declared.bytes).into());
        }
        if running.hashed != length {
            running.hash = hash_of(&file).map_err(fault("read an upload"))?;
            running.hashed = length;
        }
        let digest = Sha256Digest::finished(running.hash.clone());
        let expected = [status.declared.digest.as_ref(), expected];
        if let Some(declared) = expected.into_iter().flatten().find(|d| **d != digest) {
            running.gone = true;
            self.forget(id).map_err(fault("forget an upload"))?;
            return Err(refusals::upload_digest_mismatch(declared, &digest).into());
        }
        Ok(CompleteUpload {
            declared: status.declared,
            digest,
            file,
        })
    }

    /// Forgets an upload, complete or not; files opened by `complete` stay readable. Refuses
    /// `upload.not-found` and `upload.busy`.
    pub fn remove(&self, id: Uuid, owner: &str) -> Result<(), UploadError> {
        self.status(id, owner)?;
        let running = self.running(id);
        let mut running = running.try_lock().map_err(|_| busy())?;
        running.gone = true;
        self.forget(id).map_err(fault("forget an upload"))
    }

    /// Forgets uploads that had no byte for too long and what crashes left; gives how many.
    pub fn expire(&self, now: Timestamp) -> Result<usize, UploadError> {
        let mut expired = 0;
        for status in self.list()? {
            let running = self.running(status.id);
            let Ok(mut running) = running.try_lock() else {
                continue;
            };
            if status.expires_at <= now {
                running.gone = true;
                self.forget(status.id).map_err(fault("forget an upload"))?;
                expired += 1;
            }
        }
        // Only a beginning makes a part or a new note before the note: with this lock held, one
        // without a note is what a crash left.
        let _one_by_one = self
            .beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for id in self.ids("part")?.into_iter().chain(self.ids("new")?) {
            if self.read_note(id)?.is_none() {
                self.forget(id).map_err(fault("forget an upload"))?;
            }
        }
        Ok(expired)
    }

    fn running(&self, id: Uuid) -> Arc<Mutex<RunningUpload>> {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(id).or_default())
    }

    fn forget(&self, id: Uuid) -> io::Result<()> {
        // The note goes first: without it the rest is garbage in any case.
        for path in [
            self.note(id),
            self.part(id),
            self.root.join(format!("{id}.new")),
        ] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&id);
        Ok(())
    }

    fn part(&self, id: Uuid) -> PathBuf {
        self.root.join(format!("{id}.part"))
    }

    fn note(&self, id: Uuid) -> PathBuf {
        self.root.join(format!("{id}.json"))
    }

    fn ids(&self, ending: &str) -> Result<Vec<Uuid>, UploadError> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(fault("list uploads"))? {
            let name = entry.map_err(fault("list uploads"))?.file_name();
            let name = name
                .to_str()
                .and_then(|name| name.strip_suffix(ending)?.strip_suffix('.'));
            ids.extend(name.and_then(|name| Uuid::parse_str(name).ok()));
        }
        Ok(ids)
    }

    fn read_note(&self, id: Uuid) -> Result<Option<UploadNote>, UploadError> {
        match fs::read(self.note(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault("read an upload")(error)),
            // Written whole by rename; one that cannot be understood is useless.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        }
    }

    fn status_of(&self, id: Uuid, note: UploadNote) -> Result<UploadStatus, UploadError> {
        let meta = match fs::metadata(self.part(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_found()),
            other => other.map_err(fault("read an upload"))?,
        };
        // The clock of the file system may disagree with the caller's: the later start counts.
        let touched = meta.modified().map_or(note.begun_at, timestamp);
        let last = touched.max(note.begun_at);
        Ok(UploadStatus {
            id,
            offset: meta.len().min(note.declared.bytes),
            declared: note.declared,
            begun_at: note.begun_at,
            expires_at: last.plus_seconds(self.limits.idle_seconds),
        })
    }

    fn free_bytes(&self) -> Result<u64, UploadError> {
        let stat = rustix::fs::statvfs(&self.root)
            .map_err(|error| fault("look at the free disk")(error.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn hash_of(file: &File) -> io::Result<Sha256> {
    let mut file = file;
    let mut hash = Sha256::new();
    let mut buf = vec![0u8; 256 << 10];
    loop {
        match file.read(&mut buf)? {
            0 => break,
            n => hash.update(&buf[..n]),
        }
    }
    file.rewind()?;
    Ok(hash)
}

fn fault(what: &'static str) -> impl Fn(io::Error) -> UploadError {
    move |source| UploadError::Fault {
        what: what.to_owned(),
        source,
    }
}

fn busy() -> UploadError {
    refusals::upload_busy().into()
}

fn not_found() -> UploadError {
    refusals::upload_not_found().into()
}

fn disk_full() -> UploadError {
    refusals::upload_disk_full().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    struct UploadFixture {
        directory: tempfile::TempDir,
        store: UploadStore,
    }

    fn limits() -> UploadLimits {
        UploadLimits {
            bytes: 1000,
            count: 3,
            reserve_bytes: 0,
            idle_seconds: 60,
        }
    }

    fn bench() -> UploadFixture {
        let directory = tempfile::tempdir().unwrap();
        let store = UploadStore::open(directory.path(), limits()).unwrap();
        UploadFixture { directory, store }
    }

    fn declared(bytes: u64, digest: Option<Sha256Digest>) -> Declared {
        Declared {
            owner: "kim".into(),
            file_name: "../../etc/passwd".into(),
            bytes,
            digest,
        }
    }

    /// Gives some bytes, then fails as a cut connection does.
    struct CutReader<'a>(&'a [u8]);

    impl Read for CutReader<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let n = self.0.read(buf)?;
            Ok(n)
        }
    }

    #[test]
    fn an_upload_cut_midway_goes_on_also_after_a_restart() {
        let mut bench = bench();
        let whole = Sha256Digest::of(b"hello world");
        let id = bench
            .store
            .create(declared(11, Some(whole.clone())), NOW)
            .unwrap()
            .id;
        let cut = bench
            .store
            .append(id, "kim", 0, &mut CutReader(b"hello"))
            .unwrap_err();
        assert_eq!(cut.code(), Some("upload.interrupted"));
        assert_eq!(
            bench.store.status(id, "kim").unwrap().offset,
            5,
            "what came is kept"
        );

        bench.store = UploadStore::open(bench.directory.path(), limits()).unwrap();
        let status = bench.store.status(id, "kim").unwrap();
        assert_eq!(
            (status.offset, status.declared.file_name.as_str()),
            (5, "../../etc/passwd")
        );
        let again = bench
            .store
            .append(id, "kim", 0, &mut &b"hello"[..])
            .unwrap_err();
        assert_eq!(again.code(), Some("upload.wrong-offset"));
        let early = bench.store.complete(id, "kim", None).unwrap_err();
        assert_eq!(early.code(), Some("upload.incomplete"));
        assert_eq!(
            bench
                .store
                .append(id, "kim", 5, &mut &b" world"[..])
                .unwrap()
                .offset,
            11
        );

        let mut complete = bench.store.complete(id, "kim", Some(&whole)).unwrap();
        let mut text = String::new();
        complete.file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), complete.digest), ("hello world", whole));
        bench.store.remove(id, "kim").unwrap();
        assert_eq!(fs::read_dir(bench.directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_upload_waits_for_the_disk_where_it_is_told_of() {
        let bench = bench();
        let id = bench.store.create(declared(10, None), NOW).unwrap().id;
        let waits = || bench.store.running(id).lock().unwrap().unsynced;
        let append = |offset, from: &mut dyn Read| bench.store.append(id, "kim", offset, from);
        append(0, &mut &b"abc"[..]).unwrap();
        assert_eq!(waits(), 3, "more may come");
        append(3, &mut CutReader(b"de")).unwrap_err();
        assert_eq!(waits(), 0, "its sender asks how far it came");
        append(5, &mut &b"fgh"[..]).unwrap();
        assert_eq!(waits(), 3);
        assert_eq!(bench.store.status(id, "kim").unwrap().offset, 8);
        append(8, &mut &b"ij"[..]).unwrap();
        assert_eq!(waits(), 0, "it is whole");
    }

    #[test]
    fn the_digest_is_the_same_whether_hashed_on_the_way_or_at_the_end() {
        let bench = bench();
        let id = bench.store.create(declared(300, None), NOW).unwrap().id;
        for at in 0..3u64 {
            bench
                .store
                .append(id, "kim", at * 100, &mut &[7u8; 100][..])
                .unwrap();
        }
        let on_the_way = bench.store.complete(id, "kim", None).unwrap().digest;
        let again = UploadStore::open(bench.directory.path(), limits()).unwrap();
        assert_eq!(again.complete(id, "kim", None).unwrap().digest, on_the_way);
        assert_eq!(on_the_way, Sha256Digest::of(&[7u8; 300]));
    }

    #[test]
    fn wrong_bytes_are_refused_and_forgotten() {
        let bench = bench();
        let id = bench
            .store
            .create(declared(3, Some(Sha256Digest::of(b"abc"))), NOW)
            .unwrap()
            .id;
        bench.store.append(id, "kim", 0, &mut &b"abd"[..]).unwrap();
        let wrong = bench.store.complete(id, "kim", None).unwrap_err();
        assert_eq!(wrong.code(), Some("upload.digest-mismatch"));
        assert_eq!(
            bench.store.status(id, "kim").unwrap_err().code(),
            Some("upload.not-found")
        );
        assert_eq!(fs::read_dir(bench.directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn more_than_declared_or_allowed_is_refused() {
        let bench = bench();
        let code = |result: Result<UploadStatus, UploadError>| {
            result.unwrap_err().code().map(str::to_owned)
        };
        assert_eq!(
            code(bench.store.create(declared(1001, None), NOW)).unwrap(),
            "upload.too-large"
        );
        assert_eq!(
            code(bench.store.create(declared(0, None), NOW)).unwrap(),
            "upload.empty"
        );
        let id = bench.store.create(declared(4, None), NOW).unwrap().id;
        assert_eq!(
            code(bench.store.append(id, "kim", 0, &mut &b"12345"[..])).unwrap(),
            "upload.too-large"
        );
        assert_eq!(
            code(bench.store.append(id, "kim", u64::MAX, &mut &b"1"[..])).unwrap(),
            "upload.wrong-offset"
        );
        assert_eq!(
            bench
                .store
                .append(id, "kim", 0, &mut &b"1234"[..])
                .unwrap()
                .offset,
            4
        );
        for _ in 0..2 {
            bench.store.create(declared(1, None), NOW).unwrap();
        }
        assert_eq!(
            code(bench.store.create(declared(1, None), NOW)).unwrap(),
            "upload.too-many"
        );

        let tight = UploadLimits {
            reserve_bytes: u64::MAX / 2,
            ..limits()
        };
        let other = tempfile::tempdir().unwrap();
        let store = UploadStore::open(other.path(), tight).unwrap();
        assert_eq!(
            code(store.create(declared(1, None), NOW)).unwrap(),
            "upload.disk-full"
        );
    }

    #[test]
    fn somebody_elses_upload_does_not_exist() {
        let bench = bench();
        let id = bench.store.create(declared(3, None), NOW).unwrap().id;
        assert_eq!(
            bench.store.status(id, "lee").unwrap_err().code(),
            Some("upload.not-found")
        );
        let append = bench
            .store
            .append(id, "lee", 0, &mut &b"x"[..])
            .unwrap_err();
        assert_eq!(append.code(), Some("upload.not-found"));
        assert_eq!(
            bench.store.complete(id, "lee", None).unwrap_err().code(),
            Some("upload.not-found")
        );
        assert_eq!(
            bench.store.remove(id, "lee").unwrap_err().code(),
            Some("upload.not-found")
        );
        assert_eq!(bench.store.status(id, "kim").unwrap().offset, 0);
    }

    #[test]
    fn two_writers_at_once_are_kept_apart() {
        let bench = bench();
        let id = bench.store.create(declared(3, None), NOW).unwrap().id;
        let running = bench.store.running(id);
        let _other_request = running.lock().unwrap();
        let second = bench
            .store
            .append(id, "kim", 0, &mut &b"x"[..])
            .unwrap_err();
        assert_eq!(second.code(), Some("upload.busy"));
    }

    #[test]
    fn idle_parts_and_leftovers_of_a_crash_expire() {
        let bench = bench();
        let idle = bench.store.create(declared(3, None), NOW).unwrap();
        assert_eq!(idle.expires_at, NOW.plus_seconds(60));
        let leftover = Uuid::now_v7();
        fs::write(bench.store.part(leftover), "x").unwrap();
        fs::write(bench.directory.path().join(format!("{leftover}.new")), "{").unwrap();
        fs::write(bench.directory.path().join("not ours"), "stays").unwrap();
        assert_eq!(bench.store.expire(NOW.plus_seconds(59)).unwrap(), 0);
        assert_eq!(fs::read_dir(bench.directory.path()).unwrap().count(), 3);
        assert_eq!(bench.store.expire(NOW.plus_seconds(60)).unwrap(), 1);
        assert_eq!(fs::read_dir(bench.directory.path()).unwrap().count(), 1);
    }
}
