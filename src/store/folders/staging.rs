//! Files of a folder on their way: declared, appended at an offset, put in their place by one rename when they are whole. What
//! came is kept over a restart. Never decides who may upload, and never speaks HTTP.
//!
//! On disk, in `staging` of the folder: `<id>.json` (what was declared), `<id>.part` (what has come; its length is the
//! offset), and `<id>.mark` while a piece comes that is to have a checksum (where it begins: no byte behind counts yet). All
//! lie where sessions cannot reach, on the file system of the folder's files.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use flate2::Crc;
use rules::folder_path::FolderPath;
use rules::names::{FolderId, UserId};
use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::{AtFlags, CWD, FileType, RenameFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::beneath::{give, sync};
use super::failure::{FolderError, failed, fault};
use super::found::{FoundFolder, refuse_full_pool};
use super::versions::{TextVersion, WrittenText, check_version};
use super::{FolderStore, files, listing, make};
use crate::quota::pool::PoolPlace;
use crate::trees;

/// Bytes of one file that is uploaded.
pub const MAX_FILE_BYTES: u64 = 1 << 40;
/// Bytes and names that stay free on the disk; on a small one a quarter of it, where that is less. Higher: a small disk takes
/// no uploads. Lower: sessions are paused before an upload is refused, and the catalog meets a full disk.
const RESERVE: u64 = 1 << 30;
const RESERVE_NAMES: u64 = 40_000;
/// Bytes between two writes that are waited for. Higher: more is sent again after a loss of power. Lower: the disk waits for
/// itself.
const SYNC_BYTES: u64 = 64 << 20;
/// Seconds without a byte after which what came of a file is forgotten.
const IDLE_SECONDS: u64 = 24 * 3600;
/// The same of a file of unknown length, which comes in one form: its sender cannot go on with it.
const FORM_IDLE_SECONDS: u64 = 3600;
/// How the place of a copy is called that is being made beside the uploads.
pub(super) const COPY_ENDING: &str = ".copy";
/// Finished uploads that are still told of, for senders to whom the last answer was lost. Higher: more memory. Lower: a file
/// is sent twice.
const MAX_FINISHED: usize = 1000;

/// What is said of a file before its bytes come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredFile {
    /// Where it is to be, as text.
    pub path: String,
    /// Exact number of bytes to come; None: as many as come.
    pub bytes: Option<u64>,
    /// It takes the place of a file that is there by then.
    pub overwrite: bool,
    /// It takes the place of that version alone; None: of any, as `overwrite` says.
    #[serde(default)]
    pub version: Option<TextVersion>,
    /// When its contents were changed last, where that is to be kept.
    pub modified_at: Option<Timestamp>,
    /// Who sends it; None for one that was begun by an older version.
    #[serde(default)]
    pub by: Option<UserId>,
}

/// A file on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    pub id: Uuid,
    pub declared: DeclaredFile,
    /// Bytes that came, and stay over a loss of power; the next append begins here.
    pub offset: u64,
    pub begun_at: Timestamp,
    /// When it is forgotten unless a byte comes.
    pub expires_at: Timestamp,
}

/// The checksum that a piece has to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PieceChecksum {
    Sha256([u8; 32]),
    Crc32(u32),
}

enum RunningChecksum {
    Sha256(Sha256),
    Crc32(Crc),
}

#[derive(Serialize, Deserialize)]
struct StagedNote {
    declared: DeclaredFile,
    begun_at: Timestamp,
}

/// The uploads that were finished last, oldest first.
#[derive(Debug, Default)]
pub(super) struct FinishedUploads(Mutex<VecDeque<(FolderId, StagedFile)>>);

impl FinishedUploads {
    fn keep(&self, id: FolderId, staged: StagedFile) {
        let mut all = self.all();
        if all.len() >= MAX_FINISHED {
            all.pop_front();
        }
        all.push_back((id, staged));
    }

    fn find(&self, id: FolderId, upload: Uuid) -> Option<StagedFile> {
        let all = self.all();
        let mut latest = all.iter().rev();
        let found = latest.find(|(of, staged)| (*of, staged.id) == (id, upload));
        found.map(|(_, staged)| staged.clone())
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<(FolderId, StagedFile)>> {
        // Changed in one step each.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Uploads that one request has for itself.
#[derive(Debug, Clone, Default)]
pub(super) struct BusyUploads(Arc<Mutex<BTreeSet<Uuid>>>);

impl BusyUploads {
    /// Errors: `upload.busy` where another request has it.
    fn enter(&self, id: Uuid) -> Result<UploadPermit, FolderError> {
        match self.all().insert(id) {
            true => Ok(UploadPermit {
                busy: self.clone(),
                id,
            }),
            false => Err(refusals::upload_busy().into()),
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        // Changed in one step each.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One upload for one request; free again once dropped.
#[derive(Debug)]
struct UploadPermit {
    busy: BusyUploads,
    id: Uuid,
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        self.busy.all().remove(&self.id);
    }
}

/// Takes one piece of a file as it comes. Dropped before `finish` it leaves what came, of which the next append is told; of a
/// piece that is to have a checksum, nothing.
pub struct StagingWriter {
    _permit: UploadPermit,
    part: File,
    begin: u64,
    at: u64,
    synced: u64,
    bytes: Option<u64>,
    found: FoundFolder,
    /// On the disk of the machine, or on the volume of the folder.
    disk: PathBuf,
    mark: PathBuf,
    checksum: Option<(PieceChecksum, RunningChecksum)>,
}

impl StagingWriter {
    /// Errors: `upload.too-large` for more bytes than declared, `quota.exceeded`, `disk.full`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FolderError> {
        let more = bytes.len() as u64;
        let limit = self.bytes.unwrap_or(MAX_FILE_BYTES);
        if more > limit.saturating_sub(self.at) {
            return Err(refusals::upload_longer_than_declared(limit).into());
        }
        if let Err(refused) = self.found.refuse_beyond_limit(more) {
            self.write_what_fits(bytes);
            return Err(refused);
        }
        refuse_full_disk(&self.disk, more)?;
        let doing = "write an uploaded file";
        let written = self.part.write_all_at(bytes, self.at);
        written.map_err(|error| self.full(doing, error))?;
        match &mut self.checksum {
            Some((_, RunningChecksum::Sha256(running))) => running.update(bytes),
            Some((_, RunningChecksum::Crc32(running))) => running.update(bytes),
            None => {}
        }
        self.at += more;
        self.found.note_written(more);
        if self.at - self.synced >= SYNC_BYTES {
            let synced = self.part.sync_data();
            synced.map_err(|error| self.full(doing, error))?;
            self.synced = self.at;
        }
        Ok(())
    }

    /// Takes the begin of what the owner's folders may not take whole: an upload stops where a session's write does. Its next
    /// piece begins behind it.
    fn write_what_fits(&mut self, bytes: &[u8]) {
        let room = self.found.room().ok().flatten().unwrap_or(0);
        let fits = usize::try_from(room).unwrap_or(0).min(bytes.len());
        // Sessions write meanwhile: what of it found no place does not count either.
        if fits > 0 && self.part.write_all_at(&bytes[..fits], self.at).is_ok() {
            self.at += fits as u64;
        }
    }

    /// Keeps what came over a loss of power and gives how far the file is. A piece without the checksum that came with it,
    /// or of which not all came that was to have one, is taken back.
    ///
    /// Errors: `upload.checksum-mismatch`.
    pub fn finish(mut self, is_whole: bool) -> Result<u64, FolderError> {
        let doing = "keep an uploaded file";
        let is_marked = self.checksum.is_some();
        let is_right = match self.checksum.take() {
            None => true,
            Some(_) if !is_whole => false,
            Some((PieceChecksum::Sha256(told), RunningChecksum::Sha256(running))) => {
                let found: [u8; 32] = running.finalize().into();
                told == found
            }
            Some((PieceChecksum::Crc32(told), RunningChecksum::Crc32(running))) => {
                told == running.sum()
            }
            Some(_) => false,
        };
        if !is_right {
            self.part.set_len(self.begin).map_err(fault(doing))?;
        }
        let synced = self.part.sync_data();
        synced.map_err(|error| self.full(doing, error))?;
        if is_marked {
            unmark(&self.found.staging(), &self.mark).map_err(fault(doing))?;
        }
        match (is_right, is_whole) {
            (true, _) => Ok(self.at),
            (false, false) => Ok(self.begin),
            (false, true) => Err(refusals::upload_checksum().into()),
        }
    }

    fn full(&self, doing: &'static str, error: io::Error) -> FolderError {
        self.found.told(fault(doing)(error))
    }
}

impl Drop for StagingWriter {
    fn drop(&mut self) {
        // It is still here where the piece was not finished: nothing says that its bytes are right. What stays of it is taken
        // back by the next append.
        if self.checksum.is_some() && self.part.set_len(self.begin).is_ok() {
            let _ = fs::remove_file(&self.mark);
        }
    }
}

impl FolderStore {
    /// Begins a file of a folder.
    ///
    /// Errors: `folder.new-name-invalid`, `upload.too-large`, `quota.exceeded`, `disk.full`.
    pub fn stage(
        &self,
        id: FolderId,
        path: &FolderPath,
        declared: DeclaredFile,
        now: Timestamp,
    ) -> Result<StagedFile, FolderError> {
        path.check_new()?;
        if let Some(version) = &declared.version {
            check_version(&self.place_of(id)?.top()?, path, version)?;
        }
        let bytes = declared.bytes.unwrap_or(0);
        if bytes > MAX_FILE_BYTES {
            return Err(refusals::upload_too_large(bytes, MAX_FILE_BYTES).into());
        }
        let doing = "begin an uploaded file";
        let found = self.place_of(id)?;
        let full = |error| found.told(fault(doing)(error));
        let place = found.staging();
        make(&place).map_err(full)?;
        found.refuse_beyond_limit(bytes.max(1))?;
        refuse_full_disk(found.disk(&self.folders), bytes)?;
        let upload = Uuid::now_v7();
        let note = StagedNote {
            declared,
            begun_at: now,
        };
        let text = serde_json::to_vec(&note).map_err(|error| fault(doing)(error.into()))?;
        // The note comes last: a part without one is what a crash left, and is removed.
        let begun = place.join(format!("{upload}.new"));
        let written = new_file(&place.join(part_name(upload))).and_then(|_| {
            let mut file = new_file(&begun)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&begun, place.join(note_name(upload)))?;
            File::open(&place)?.sync_all()
        });
        if let Err(error) = written {
            // What does not go now goes a day later.
            let _ = forget(&place, upload);
            return Err(full(error));
        }
        under_way(&found, upload)
    }

    /// How far a file is; one that was finished a while ago, too.
    ///
    /// Errors: `upload.not-found`.
    pub fn staged(&self, id: FolderId, upload: Uuid) -> Result<StagedFile, FolderError> {
        match under_way(&self.place_of(id)?, upload) {
            Err(error) if error.code().is_some() => self.finished.find(id, upload).ok_or(error),
            found => found,
        }
    }

    /// The files of a folder that are on their way, oldest first.
    pub fn all_staged(&self, id: FolderId) -> Result<Vec<StagedFile>, FolderError> {
        let found = self.place_of(id)?;
        let all = uploads(&found.staging(), ".json");
        let mut staged = Vec::new();
        for upload in all.map_err(fault("list uploaded files"))? {
            match under_way(&found, upload) {
                Ok(one) => staged.push(one),
                // It was finished since it was listed.
                Err(error) if error.code().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        staged.sort_by_key(|one| (one.begun_at, one.id));
        Ok(staged)
    }

    /// Who sends each file of a folder that is on its way. Costs one short file each.
    pub fn senders_of_staged(&self, id: FolderId) -> Result<Vec<Option<UserId>>, FolderError> {
        let doing = "list uploaded files";
        let place = self.place_of(id)?.staging();
        let mut senders = Vec::new();
        for upload in uploads(&place, ".json").map_err(fault(doing))? {
            let note = read_note(&place.join(note_name(upload))).map_err(fault(doing))?;
            senders.extend(note.map(|note| note.declared.by));
        }
        Ok(senders)
    }

    /// Begins to take a piece of a file at `offset`.
    ///
    /// Errors: `upload.not-found`, `upload.busy`, `upload.wrong-offset`.
    pub fn append(
        &self,
        id: FolderId,
        upload: Uuid,
        offset: u64,
        checksum: Option<PieceChecksum>,
    ) -> Result<StagingWriter, FolderError> {
        let doing = "write an uploaded file";
        let found = self.place_of(id)?;
        under_way(&found, upload)?;
        let permit = self.busy.enter(upload)?;
        // Another request may have written or finished it meanwhile.
        let staged = under_way(&found, upload)?;
        if staged.offset != offset {
            return Err(refusals::upload_wrong_offset(staged.offset, offset).into());
        }
        let place = found.staging();
        let part = OpenOptions::new()
            .write(true)
            .open(place.join(part_name(upload)));
        let part = part.map_err(fault(doing))?;
        let mark = place.join(mark_name(upload));
        if read_mark(&mark).map_err(fault(doing))?.is_some() {
            // The server ended in the middle of a piece that was to have a checksum.
            let taken_back = part.set_len(offset).and_then(|()| part.sync_data());
            let unmarked = taken_back.and_then(|()| unmark(&place, &mark));
            unmarked.map_err(fault(doing))?;
        }
        if checksum.is_some() {
            let marked = File::create(&mark).and_then(|mut file| {
                file.write_all(format!("{offset}\n").as_bytes())?;
                file.sync_all()?;
                File::open(&place)?.sync_all()
            });
            marked.map_err(|error| found.told(fault(doing)(error)))?;
        }
        let running = |checksum: PieceChecksum| {
            let running = match checksum {
                PieceChecksum::Sha256(_) => RunningChecksum::Sha256(Sha256::new()),
                PieceChecksum::Crc32(_) => RunningChecksum::Crc32(Crc::new()),
            };
            (checksum, running)
        };
        let disk = found.disk(&self.folders).to_owned();
        Ok(StagingWriter {
            _permit: permit,
            part,
            begin: offset,
            at: offset,
            synced: offset,
            bytes: staged.declared.bytes,
            found,
            disk,
            mark,
            checksum: checksum.map(running),
        })
    }

    /// Puts a file that is whole in its place, with the directories above it, and forgets the upload. Does nothing and gives
    /// false where bytes are still to come.
    ///
    /// Errors: `upload.not-found`, `upload.busy`; `folder.entry-exists`, `folder.file-stale`, `folder.entry-link`,
    /// `quota.exceeded`, `disk.full`: then the upload stays, to be finished once more.
    pub fn place(&self, id: FolderId, upload: Uuid) -> Result<bool, FolderError> {
        Ok(self.place_told(id, upload)?.is_some())
    }

    /// As `place`; gives what the file system tells of the file in its place, None where bytes are still to come.
    ///
    /// Errors: as `place`.
    pub fn place_told(
        &self,
        id: FolderId,
        upload: Uuid,
    ) -> Result<Option<WrittenText>, FolderError> {
        let doing = "put an uploaded file in its place";
        let _permit = self.busy.enter(upload)?;
        let found = self.place_of(id)?;
        let full = |error| found.told(error);
        let staged = under_way(&found, upload)?;
        let declared = &staged.declared;
        if declared.bytes.is_some_and(|bytes| bytes != staged.offset) {
            return Ok(None);
        }
        let path = FolderPath::parse(&declared.path)?;
        // Of two that mean one version, the second is refused; of two new ones by the rename itself.
        let _turn = match &declared.version {
            Some(TextVersion::Known(_) | TextVersion::Any) => Some(self.texts.enter(id, &path)?),
            Some(TextVersion::New) | None => None,
        };
        let place = found.staging();
        let part = place.join(part_name(upload));
        let top = found.top()?;
        let file = OpenOptions::new().write(true).open(&part);
        let file = file.map_err(fault(doing))?;
        let put = |parent: BorrowedFd<'_>| -> Result<(), FolderError> {
            give(parent, file.as_fd(), false, top.owner()).map_err(fault(doing))?;
            if declared.overwrite
                && let Ok(old) = rustix::fs::statat(parent, path.name(), AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(old.st_mode) == FileType::RegularFile
            {
                // A program stays one, and what its owner alone reads stays so.
                let mode = Permissions::from_mode(old.st_mode & 0o777);
                file.set_permissions(mode).map_err(fault(doing))?;
            }
            if let Some(at) = declared.modified_at {
                let millis = u64::try_from(at.as_millis()).unwrap_or(0);
                // A file system may not know such a time.
                let _ = file.set_modified(UNIX_EPOCH + Duration::from_millis(millis));
            }
            file.sync_all().map_err(fault(doing))?;
            if let Some(version) = &declared.version {
                // Right before: sessions write meanwhile.
                check_version(&top, &path, version)?;
            }
            let flags = match declared.overwrite {
                true => RenameFlags::empty(),
                false => RenameFlags::NOREPLACE,
            };
            rustix::fs::renameat_with(CWD, &part, parent, path.name(), flags)
                .map_err(failed(doing, &path))?;
            sync(parent).map_err(fault(doing))
        };
        top.put_into(&path.parent(), &full, put)?;
        forget(&place, upload).map_err(fault(doing))?;
        let stat = rustix::fs::fstat(&file).map_err(|error| fault(doing)(error.into()))?;
        self.finished.keep(id, staged);
        Ok(Some(WrittenText {
            tag: files::tag_of(&stat),
            modified_at: listing::changed_at(&stat),
        }))
    }

    /// Forgets a file on its way.
    ///
    /// Errors: `upload.not-found`, `upload.busy`.
    pub fn unstage(&self, id: FolderId, upload: Uuid) -> Result<(), FolderError> {
        let found = self.place_of(id)?;
        under_way(&found, upload)?;
        let _permit = self.busy.enter(upload)?;
        forget(&found.staging(), upload).map_err(fault("forget an uploaded file"))
    }

    /// Forgets files of a folder that had no byte for too long, and what a crash left.
    pub fn expire_staged(&self, id: FolderId, now: Timestamp) -> Result<(), FolderError> {
        let doing = "forget uploaded files";
        let found = self.place_of(id)?;
        let place = found.staging();
        let is_over = |upload| match under_way(&found, upload) {
            Ok(staged) => Ok(staged.expires_at <= now),
            // What is left of one that was finished right before a loss of power.
            Err(error) if error.code().is_some() => Ok(true),
            Err(error) => Err(error),
        };
        for upload in uploads(&place, ".json").map_err(fault(doing))? {
            // One that is to stay is not kept from its sender meanwhile.
            if !is_over(upload)? {
                continue;
            }
            let Ok(_permit) = self.busy.enter(upload) else {
                continue;
            };
            if is_over(upload)? {
                forget(&place, upload).map_err(fault(doing))?;
            }
        }
        let is_old = |seen: &fs::Metadata| now.seconds_since(changed_at(seen)) >= IDLE_SECONDS;
        clear_copies(&place, is_old).map_err(fault(doing))?;
        for ending in [".part", ".new", ".mark"] {
            for upload in uploads(&place, ending).map_err(fault(doing))? {
                let age = fs::metadata(place.join(format!("{upload}{ending}")))
                    .map(|found| now.seconds_since(changed_at(&found)));
                let is_alone = read_note(&place.join(note_name(upload)))
                    .map_err(fault(doing))?
                    .is_none();
                // One that is just being begun has no note yet.
                if is_alone && age.is_ok_and(|age| age >= IDLE_SECONDS) {
                    forget(&place, upload).map_err(fault(doing))?;
                }
            }
        }
        Ok(())
    }
}

/// How far a file is that was not finished yet.
///
/// Errors: `upload.not-found`.
fn under_way(found: &FoundFolder, upload: Uuid) -> Result<StagedFile, FolderError> {
    let doing = "look at an uploaded file";
    let place = found.staging();
    let note = read_note(&place.join(note_name(upload))).map_err(fault(doing))?;
    let note = note.ok_or_else(refusals::upload_not_found)?;
    let part = match File::open(place.join(part_name(upload))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refusals::upload_not_found().into());
        }
        part => part.map_err(fault(doing))?,
    };
    let seen = part.metadata().map_err(fault(doing))?;
    // What is told of it stays: bytes that a piece on its way brings from here on are not told of.
    part.sync_data().map_err(fault(doing))?;
    let marked = read_mark(&place.join(mark_name(upload))).map_err(fault(doing))?;
    let left = part.metadata().map_err(fault(doing))?.len();
    let last = changed_at(&seen).max(note.begun_at);
    let idle = match note.declared.bytes {
        Some(_) => IDLE_SECONDS,
        None => FORM_IDLE_SECONDS,
    };
    Ok(StagedFile {
        id: upload,
        offset: seen.len().min(left).min(marked.unwrap_or(u64::MAX)),
        declared: note.declared,
        begun_at: note.begun_at,
        expires_at: last.plus_seconds(idle),
    })
}

fn note_name(upload: Uuid) -> String {
    format!("{upload}.json")
}

fn part_name(upload: Uuid) -> String {
    format!("{upload}.part")
}

fn mark_name(upload: Uuid) -> String {
    format!("{upload}.mark")
}

/// Where the piece begins that is to have a checksum; None where there is none, or no byte of it came.
fn read_mark(path: &Path) -> io::Result<Option<u64>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // One that is not whole was written before any byte of its piece.
        read => Ok(read?.strip_suffix('\n').and_then(|at| at.parse().ok())),
    }
}

/// Lets the bytes behind a mark count, also over a loss of power.
fn unmark(place: &Path, mark: &Path) -> io::Result<()> {
    fs::remove_file(mark)?;
    File::open(place)?.sync_all()
}

/// Refuses what would leave less of the disk free than stays so, or more than a pool has.
///
/// Errors: `disk.full`, `pool.full`.
pub(super) fn refuse_full_disk(place: &Path, bytes: u64) -> Result<(), FolderError> {
    if PoolPlace::is_root(place) {
        return refuse_full_pool(place, bytes);
    }
    let stat = rustix::fs::statvfs(place);
    let stat = stat.map_err(|error| fault("look at the free disk")(error.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let all = stat.f_blocks.saturating_mul(stat.f_frsize);
    // Some file systems have no fixed number of names and say 0 of 0.
    let has_names = stat.f_files == 0 || stat.f_favail >= RESERVE_NAMES.min(stat.f_files / 4);
    match free < bytes.saturating_add(RESERVE.min(all / 4)) || !has_names {
        true => Err(refusals::disk_full().into()),
        false => Ok(()),
    }
}

/// The ids of files on their way that have a file with this ending; none where nothing was ever uploaded.
fn uploads(place: &Path, ending: &str) -> io::Result<Vec<Uuid>> {
    let all = match fs::read_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        all => all?,
    };
    let mut ids = Vec::new();
    for entry in all {
        let name = entry?.file_name();
        let name = name.to_str().and_then(|name| name.strip_suffix(ending));
        ids.extend(name.and_then(|name| Uuid::parse_str(name).ok()));
    }
    Ok(ids)
}

fn read_note(path: &Path) -> io::Result<Option<StagedNote>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Written whole by rename; one that cannot be understood is useless.
        read => Ok(serde_json::from_slice(&read?).ok()),
    }
}

/// Removes what copies left that a loss of power ended.
fn clear_copies(place: &Path, is_old: impl Fn(&fs::Metadata) -> bool) -> io::Result<()> {
    let all = match fs::read_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        all => all?,
    };
    for entry in all {
        let entry = entry?;
        let name = entry.file_name();
        let is_copy = name.as_encoded_bytes().ends_with(COPY_ENDING.as_bytes());
        if is_copy && entry.metadata().is_ok_and(|seen| is_old(&seen)) {
            trees::remove(&entry.path())?;
        }
    }
    Ok(())
}

fn forget(place: &Path, upload: Uuid) -> io::Result<()> {
    // The note goes first: without it the rest is garbage in any case.
    for name in [
        note_name(upload),
        part_name(upload),
        format!("{upload}.new"),
        mark_name(upload),
    ] {
        match fs::remove_file(place.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// When a file of ours was written to last. The time of its contents is its sender's, once all came.
fn changed_at(found: &fs::Metadata) -> Timestamp {
    let millis = found.ctime_nsec() / 1_000_000;
    Timestamp::from_millis(found.ctime().saturating_mul(1000).saturating_add(millis))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::folders::mounted_directory;

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));
    const NOW: Timestamp = Timestamp::from_millis(4_000_000_000_000);

    fn opened() -> (tempfile::TempDir, FolderStore, PathBuf) {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        (data, store, place)
    }

    fn declared(path: &str, bytes: u64) -> DeclaredFile {
        DeclaredFile {
            path: path.to_owned(),
            bytes: Some(bytes),
            overwrite: false,
            version: None,
            modified_at: None,
            by: None,
        }
    }

    fn begun(store: &FolderStore, path: &str, bytes: u64) -> Uuid {
        let parsed = FolderPath::parse(path).expect("a path");
        let staged = store.stage(ID, &parsed, declared(path, bytes), NOW);
        staged.expect("begun").id
    }

    fn sent(
        store: &FolderStore,
        upload: Uuid,
        offset: u64,
        bytes: &[u8],
        checksum: Option<PieceChecksum>,
    ) -> Result<u64, FolderError> {
        let mut writer = store.append(ID, upload, offset, checksum)?;
        writer.write(bytes)?;
        writer.finish(true)
    }

    fn code<T>(done: Result<T, FolderError>) -> String {
        match done {
            Ok(_) => "done".to_owned(),
            Err(error) => error.code().unwrap_or("fault").to_owned(),
        }
    }

    #[test]
    fn a_file_that_broke_off_goes_on_where_it_stopped() {
        let (data, store, place) = opened();
        let upload = begun(&store, "a/b/file", 11);
        let mut writer = store.append(ID, upload, 0, None).expect("begun");
        let second = code(store.append(ID, upload, 0, None));
        assert_eq!(second, "upload.busy", "one sender at a time");
        writer.write(b"hello").expect("written");
        // The connection broke: nothing is said.
        drop(writer);
        drop(store);
        let store = FolderStore::open(data.path()).expect("a store");
        assert_eq!(store.staged(ID, upload).expect("there").offset, 5);
        assert_eq!(
            code(sent(&store, upload, 0, b"x", None)),
            "upload.wrong-offset"
        );
        assert!(!store.place(ID, upload).expect("not whole"));
        let all = store.all_staged(ID).expect("a list");
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].id, all[0].offset), (upload, 5));
        assert!(!place.join("a").exists());
        assert_eq!(sent(&store, upload, 5, b" world", None).expect("sent"), 11);
        assert!(store.place(ID, upload).expect("in its place"));
        let file = place.join("a/b/file");
        assert_eq!(fs::read_to_string(&file).expect("there"), "hello world");
        let mode = file.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        let told = store.staged(ID, upload).expect("still told of");
        assert_eq!(told.offset, 11);
        assert_eq!(store.senders_of_staged(ID).expect("counted").len(), 0);
        assert_eq!(code(store.unstage(ID, upload)), "upload.not-found");
    }

    #[test]
    fn more_or_fewer_bytes_than_declared_are_no_file() {
        let (_data, store, place) = opened();
        let upload = begun(&store, "file", 3);
        assert_eq!(
            code(sent(&store, upload, 0, b"four", None)),
            "upload.too-large"
        );
        assert_eq!(sent(&store, upload, 0, b"ab", None).expect("sent"), 2);
        assert!(!store.place(ID, upload).expect("not whole"));
        assert!(!place.join("file").exists());
        let large = declared("file", MAX_FILE_BYTES + 1);
        let path = FolderPath::parse("file").expect("a path");
        assert_eq!(code(store.stage(ID, &path, large, NOW)), "upload.too-large");
        store.unstage(ID, upload).expect("forgotten");
        assert_eq!(code(store.staged(ID, upload)), "upload.not-found");
    }

    #[test]
    fn a_piece_with_another_checksum_is_taken_back() {
        let (data, store, _place) = opened();
        let upload = begun(&store, "file", 6);
        sent(&store, upload, 0, b"abc", None).expect("sent");
        let wrong = Some(PieceChecksum::Crc32(1));
        let refused = sent(&store, upload, 3, b"def", wrong);
        assert_eq!(code(refused), "upload.checksum-mismatch");
        assert_eq!(store.staged(ID, upload).expect("there").offset, 3);
        let mut broken = store
            .append(ID, upload, 3, Some(PieceChecksum::Crc32(1)))
            .expect("begun");
        broken.write(b"de").expect("written");
        let told = store.staged(ID, upload).expect("there").offset;
        assert_eq!(told, 3, "not before its checksum is right");
        // The connection broke.
        drop(broken);
        assert_eq!(store.staged(ID, upload).expect("there").offset, 3);
        let mut broken = store
            .append(ID, upload, 3, Some(PieceChecksum::Crc32(1)))
            .expect("begun");
        broken.write(b"de").expect("written");
        // The server ended: nothing was taken back.
        std::mem::forget(broken);
        drop(store);
        let store = FolderStore::open(data.path()).expect("a store");
        assert_eq!(store.staged(ID, upload).expect("there").offset, 3);
        let right = PieceChecksum::Sha256(Sha256::digest(b"def").into());
        assert_eq!(
            sent(&store, upload, 3, b"def", Some(right)).expect("sent"),
            6
        );
        assert!(store.place(ID, upload).expect("in its place"));
    }

    #[test]
    fn nothing_is_written_over_unless_its_sender_says_so() {
        let (_data, store, place) = opened();
        fs::write(place.join("file"), "old").expect("written");
        let upload = begun(&store, "file", 3);
        sent(&store, upload, 0, b"new", None).expect("sent");
        assert_eq!(code(store.place(ID, upload)), "folder.entry-exists");
        assert_eq!(
            fs::read_to_string(place.join("file")).expect("there"),
            "old"
        );
        let private = Permissions::from_mode(0o700);
        fs::set_permissions(place.join("file"), private).expect("set");
        let path = FolderPath::parse("file").expect("a path");
        let over = DeclaredFile {
            overwrite: true,
            modified_at: Some(Timestamp::from_millis(1_000_000_000_000)),
            ..declared("file", 3)
        };
        let upload = store.stage(ID, &path, over, NOW).expect("begun").id;
        sent(&store, upload, 0, b"new", None).expect("sent");
        assert!(store.place(ID, upload).expect("in its place"));
        assert_eq!(
            fs::read_to_string(place.join("file")).expect("there"),
            "new"
        );
        let found = place.join("file").metadata().expect("there");
        assert_eq!(found.mtime(), 1_000_000_000);
        assert_eq!(found.permissions().mode() & 0o777, 0o700);
        symlink("/tmp", place.join("out")).expect("a link");
        let upload = begun(&store, "out/file", 1);
        sent(&store, upload, 0, b"x", None).expect("sent");
        assert_eq!(code(store.place(ID, upload)), "folder.entry-link");
    }

    #[test]
    fn a_file_takes_the_place_of_the_version_that_its_sender_means() {
        let (_data, store, place) = opened();
        let path = FolderPath::parse("file").expect("a path");
        let meant = |version: TextVersion| DeclaredFile {
            bytes: None,
            overwrite: version != TextVersion::New,
            version: Some(version),
            ..declared("file", 0)
        };
        let put = |version: TextVersion, text: &str| {
            let upload = store.stage(ID, &path, meant(version), NOW)?.id;
            sent(&store, upload, 0, text.as_bytes(), None)?;
            store.place_told(ID, upload)
        };
        assert_eq!(code(put(TextVersion::Any, "x")), "folder.entry-not-found");
        let made = put(TextVersion::New, "one").expect("made").expect("placed");
        assert_eq!(code(put(TextVersion::New, "x")), "folder.entry-exists");
        assert_eq!(store.file(ID, &path).expect("there").tag, made.tag);
        let known = TextVersion::Known(made.tag);
        // A session writes between its declaration and its last byte.
        let late = store.stage(ID, &path, meant(known.clone()), NOW);
        let late = late.expect("begun").id;
        sent(&store, late, 0, b"late", None).expect("sent");
        fs::write(place.join("file"), "of a session").expect("written");
        assert_eq!(code(store.place(ID, late)), "folder.file-stale");
        assert_eq!(code(put(known, "x")), "folder.file-stale");
        let read = || fs::read_to_string(place.join("file")).expect("there");
        assert_eq!(read(), "of a session");
        let written = put(TextVersion::Any, "two").expect("put").expect("placed");
        assert_eq!(store.file(ID, &path).expect("there").tag, written.tag);
        assert_eq!(read(), "two");
    }

    #[test]
    fn a_file_that_is_refused_leaves_no_directory_that_was_made_for_it() {
        let (_data, store, place) = opened();
        let deep = "kept/gone/deep/file";
        fs::create_dir_all(place.join("kept/gone/deep")).expect("made");
        fs::write(place.join(deep), "old").expect("written");
        let path = FolderPath::parse(deep).expect("a path");
        let over = DeclaredFile {
            overwrite: true,
            version: Some(TextVersion::Any),
            ..declared(deep, 3)
        };
        let upload = store.stage(ID, &path, over, NOW).expect("begun").id;
        sent(&store, upload, 0, b"new", None).expect("sent");
        // A session removes it meanwhile.
        fs::remove_dir_all(place.join("kept/gone")).expect("removed");
        assert_eq!(code(store.place(ID, upload)), "folder.entry-not-found");
        assert!(place.join("kept").is_dir() && !place.join("kept/gone").exists());
        let upload = begun(&store, deep, 3);
        sent(&store, upload, 0, b"new", None).expect("sent");
        assert!(store.place(ID, upload).expect("in its place"));
        assert_eq!(fs::read_to_string(place.join(deep)).expect("there"), "new");
    }

    #[test]
    fn of_two_that_make_one_directory_the_refused_takes_nothing_from_the_other() {
        let (_data, store, place) = opened();
        let top = store.place_of(ID).expect("there").top().expect("open");
        let path = FolderPath::parse("a/b").expect("a path");
        let refused = || -> Result<(), FolderError> { Err(refusals::upload_busy().into()) };
        let same = |error| error;
        let mut asked = 0;
        let put = top.put_into(&path, &same, |_| {
            asked += 1;
            if asked > 1 {
                return Ok(());
            }
            // The other had made it, and takes it back.
            fs::remove_dir_all(place.join("a")).expect("removed");
            refused()
        });
        assert_eq!((code(put).as_str(), asked), ("done", 2));
        assert!(place.join("a/b").is_dir());
        fs::remove_dir_all(place.join("a")).expect("removed");
        let put = top.put_into(&path, &same, |_| {
            let upload = begun(&store, "a/b/file", 3);
            sent(&store, upload, 0, b"new", None).expect("sent");
            assert!(store.place(ID, upload).expect("in its place"));
            refused()
        });
        assert_eq!(code(put), "upload.busy");
        assert!(place.join("a/b/file").is_file());
        // Where one of them is removed, those above it still go.
        fs::remove_dir_all(place.join("a")).expect("removed");
        let mut asked = 0;
        let put = top.put_into(&path, &same, |_| {
            asked += 1;
            fs::remove_dir(place.join("a/b")).expect("removed");
            refused()
        });
        assert_eq!(code(put), "upload.busy");
        assert!(asked > 1 && !place.join("a").exists());
    }

    #[test]
    fn a_disk_without_room_takes_no_file() {
        let (_data, store, place) = opened();
        assert_eq!(code(refuse_full_disk(&place, u64::MAX)), "disk.full");
        // Said by the kernel in the middle of a file, or of one more name.
        for errno in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT] {
            let path = FolderPath::parse("file").expect("a path");
            let said: FolderError = failed("write", &path)(errno);
            assert_eq!(said.code(), Some("disk.full"));
        }
        assert_eq!(store.senders_of_staged(ID).expect("counted").len(), 0);
    }

    #[test]
    fn an_upload_that_stays_is_its_senders_while_others_are_looked_through() {
        let (_data, store, place) = opened();
        fs::write(place.join("file"), "old").expect("written");
        let path = FolderPath::parse("file").expect("a path");
        let far = DeclaredFile {
            modified_at: Some(Timestamp::from_millis(32_000_000_000_000)),
            ..declared("file", 3)
        };
        let upload = store.stage(ID, &path, far, NOW).expect("begun").id;
        sent(&store, upload, 0, b"new", None).expect("sent");
        assert_eq!(code(store.place(ID, upload)), "folder.entry-exists");
        let staged = store.staged(ID, upload).expect("it stays");
        let day = NOW.plus_seconds(IDLE_SECONDS);
        assert_eq!(staged.expires_at, day, "not a day behind its own time");
        let writer = store.append(ID, upload, 3, None).expect("begun");
        store.expire_staged(ID, day).expect("looked");
        assert_eq!(store.senders_of_staged(ID).expect("counted").len(), 1);
        drop(writer);
        store.expire_staged(ID, day).expect("looked");
        assert_eq!(store.senders_of_staged(ID).expect("counted").len(), 0);
        let form = DeclaredFile {
            bytes: None,
            ..declared("other", 0)
        };
        let path = FolderPath::parse("other").expect("a path");
        let staged = store.stage(ID, &path, form, NOW).expect("begun");
        assert_eq!(staged.expires_at, NOW.plus_seconds(FORM_IDLE_SECONDS));
    }

    #[test]
    fn a_file_that_no_sender_goes_on_with_is_forgotten_after_a_day() {
        let (_data, store, place) = opened();
        let upload = begun(&store, "file", 3);
        sent(&store, upload, 0, b"ab", None).expect("sent");
        let expires = store.staged(ID, upload).expect("there").expires_at;
        let before = Timestamp::from_millis(expires.as_millis() - 1);
        store.expire_staged(ID, before).expect("looked");
        assert_eq!(store.senders_of_staged(ID).expect("counted").len(), 1);
        store.expire_staged(ID, expires).expect("looked");
        assert_eq!(store.senders_of_staged(ID).expect("counted").len(), 0);
        let staging = place.with_file_name("staging");
        assert_eq!(fs::read_dir(staging).expect("a directory").count(), 0);
    }
}
