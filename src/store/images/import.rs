//! Takes an archive in: plan, check, unpack what is new into staging, put it in place, record it.
//! Every layer of the archive is read and hashed, also one that is already kept, so that naming a
//! digest is never enough to get at another user's layer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

use super::archive::{Archive, ArchiveSource, Compression};
use super::config::{self, CheckedConfig};
use super::digest::Sha256Digest;
use super::failure::{Doing, ImageError, disk_full};
use super::layer_stream::{LayerStream, Passed, cancelled};
use super::limits::ImportLimits;
use super::lower::{self, Lower};
use super::manifest::{self, ImagePlan, LayerPlan};
use super::members::Members;
use super::record::{ImageRecord, LayerFile, LayerRecord};
use super::unpack::{self, SpaceGuard, WhiteoutRule};
use super::{ImageStore, remove_tree, rename_if_absent, write_file};

/// One import.
#[derive(Debug)]
pub struct ArchiveImport<'a> {
    pub archive: Archive,
    /// Completes names that are only a tag (`12` becomes `NAME:12`) and names a nameless image
    /// `NAME:latest`; mostly the file's own name without its ending.
    pub name: Option<&'a str>,
    /// Goes into the record.
    pub now: Timestamp,
    /// Set from another thread, it ends the import within a MiB with `image.cancelled`.
    pub cancelled: Option<&'a AtomicBool>,
}

/// An image an archive held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedImage {
    pub record: ImageRecord,
    /// Bytes this import added to the store for it; 0 when all layers were there.
    pub new_bytes: u64,
    /// The image itself was there before.
    pub known: bool,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportStatus {
    pub stage: ImportStage,
    /// Layer under way, from 1; of all images of the archive together.
    pub layer: usize,
    pub layers: usize,
    /// Bytes of the archive read and to be read.
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// What an import does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportStage {
    /// Finding the images in the archive.
    Reading,
    /// Unpacking a layer.
    Unpacking,
    /// Checking a layer that is already kept.
    Checking,
    /// Waiting for the disk, then putting all in place.
    Saving,
}

/// A layer that is ready, here or already in its place.
struct Ready {
    record: LayerRecord,
    warnings: BTreeSet<String>,
    fs: OwnedFd,
    /// Name below the import's staging directory; `None` when it was kept before.
    staged: Option<String>,
}

impl ImageStore {
    /// Imports every image of an archive: all of them, or on any refusal or fault none.
    ///
    /// Gives at least one image, in the archive's order. `progress` hears of every stage and about
    /// every MiB. Memory stays below some tens of MiB (zstd's window, names of directories)
    /// for every archive; disk use stays within the limits and the reserve. Rule: issue
    /// shows 4 and escape cases E18, E19.
    ///
    /// Refusals begin with `image.`; the kinds are `Invalid` (the archive), `TooLarge` (a limit),
    /// `Unavailable` (disk, privileges), `Conflict` (cancelled).
    pub fn import(
        &self,
        request: ArchiveImport<'_>,
        progress: &mut dyn FnMut(ImportStatus),
    ) -> Result<Vec<ImportedImage>, ImageError> {
        let (name, path) = self.new_staging("import")?;
        let staging = lower::open_directory(self.staging.as_fd(), name.as_bytes())?;
        let mut import = ImportRun {
            store: self,
            staging,
            path,
            cancelled: request.cancelled,
            pins: Vec::new(),
            ready: Vec::new(),
            by_key: HashMap::new(),
            read: HashSet::new(),
            budget: Budget::new(&self.limits, self.staging.as_fd()),
            seen: ImportStatus {
                stage: ImportStage::Reading,
                layer: 0,
                layers: 0,
                done_bytes: 0,
                total_bytes: 0,
            },
        };
        progress(import.seen);
        let done = import.run(request.archive, request.name, request.now, progress);
        let pins = std::mem::take(&mut import.pins);
        let path = import.path.clone();
        drop(import);
        let unpinned = self.unpin(&pins);
        let removed = remove_tree(&path);
        match done {
            Ok(images) => {
                unpinned.and(removed)?;
                Ok(images)
            }
            Err(error) => {
                // The reason of the failed import matters more than what could not be tidied;
                // `open` tidies again.
                for untidy in [unpinned, removed].into_iter().filter_map(Result::err) {
                    tracing::warn!(error = %untidy, "could not clean up after a failed import");
                }
                Err(error)
            }
        }
    }

    pub(super) fn pin(&self, key: &Sha256Digest) {
        *self.lock().entry(key.clone()).or_insert(0) += 1;
    }

    /// Lets layers go; those that no image came to need are removed.
    pub(super) fn unpin(&self, keys: &[Sha256Digest]) -> Result<(), ImageError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut pinned = self.lock();
        for key in keys {
            if let Some(count) = pinned.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    pinned.remove(key);
                }
            }
        }
        drop(pinned);
        self.sweep()
    }
}

struct ImportRun<'a> {
    store: &'a ImageStore,
    staging: OwnedFd,
    path: PathBuf,
    cancelled: Option<&'a AtomicBool>,
    /// Keys held against removal until the records are written.
    pins: Vec<Sha256Digest>,
    ready: Vec<Ready>,
    by_key: HashMap<Sha256Digest, usize>,
    /// Members already read for a layer: an archive may list one layer many times.
    read: HashSet<(String, Sha256Digest)>,
    budget: Budget<'a>,
    seen: ImportStatus,
}

impl ImportRun<'_> {
    fn run(
        &mut self,
        archive: Archive,
        name: Option<&str>,
        now: Timestamp,
        progress: &mut dyn FnMut(ImportStatus),
    ) -> Result<Vec<ImportedImage>, ImageError> {
        let limits = &self.store.limits;
        let source = self.open(archive)?;
        let plans = manifest::plans(&source, limits)?;
        let mut checked = Vec::new();
        for plan in &plans {
            let config = config::check(&plan.config, limits)?;
            if config.diff_ids.len() != plan.layers.len() {
                return Err(refusals::image_layers_differ(
                    config.diff_ids.len(),
                    plan.layers.len(),
                )
                .into());
            }
            if plan.layers.is_empty() {
                return Err(refusals::image_empty().into());
            }
            checked.push(config);
        }
        // After the archive has been judged: what is wrong with it is told to everybody.
        self.store.can_unpack()?;
        self.check_room(&source, &plans, &checked)?;
        let mut stacks = Vec::new();
        for (plan, config) in plans.iter().zip(&checked) {
            stacks.push(self.layers_of(&source, plan, config, progress)?);
        }
        self.seen.stage = ImportStage::Saving;
        progress(self.seen);
        if self
            .cancelled
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
        {
            return Err(cancelled().into());
        }
        // One flush for everything is cheaper than one per file by two orders of magnitude.
        rustix::fs::syncfs(&self.staging).doing(|| "write the layers to disk".into())?;
        self.commit(plans, checked, &stacks, name, now)
    }

    fn open(&self, archive: Archive) -> Result<ArchiveSource, ImageError> {
        let scratch = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::openat(
                &self.staging,
                "archive.tar",
                flags,
                Mode::from_raw_mode(0o600),
            );
            file.map(File::from)
                .doing(|| "unpack the compressed archive".into())
        };
        let room = |bytes: u64| {
            if self
                .cancelled
                .is_some_and(|flag| flag.load(Ordering::Relaxed))
            {
                return Err(cancelled().into());
            }
            let free = free_bytes(self.staging.as_fd())?;
            match free < self.store.limits.reserve_bytes.saturating_add(bytes) {
                true => Err(disk_full().into()),
                false => Ok(()),
            }
        };
        ArchiveSource::open(archive, scratch, &room, &self.store.limits)
    }

    /// Refuses before a byte is written when the disk cannot hold what will be new. The size of a
    /// plain layer is known; a compressed one is taken at three times its size, near the usual.
    fn check_room(
        &mut self,
        source: &ArchiveSource,
        plans: &[ImagePlan],
        checked: &[CheckedConfig],
    ) -> Result<(), ImageError> {
        let mut counted = BTreeSet::new();
        let mut needed = 0u64;
        for (plan, config) in plans.iter().zip(checked) {
            for (at, (layer, diff_id)) in plan.layers.iter().zip(&config.diff_ids).enumerate() {
                let section = source
                    .stream(&layer.member)?
                    .ok_or_else(|| manifest::missing(&layer.member, "layer"))?;
                self.seen.layers += 1;
                self.seen.total_bytes += section.size();
                let kept = [diff_id.clone(), chain_id(&config.diff_ids[..=at])]
                    .iter()
                    .any(|key| self.store.layer_path(key).exists());
                if kept || !counted.insert(diff_id.clone()) {
                    continue;
                }
                let mut first = [0u8; 6];
                let n = section.peek(&mut first)?;
                let times = match Compression::of(&first[..n]) {
                    Compression::None => 1,
                    _ => 3,
                };
                needed = needed.saturating_add(section.size().saturating_mul(times));
            }
        }
        let free = free_bytes(self.staging.as_fd())?;
        if free < needed.saturating_add(self.store.limits.reserve_bytes) {
            return Err(refusals::image_disk_too_small(
                needed >> 20,
                free >> 20,
                self.store.limits.reserve_bytes >> 20,
            )
            .into());
        }
        Ok(())
    }

    /// Makes every layer of an image ready; gives their places in `ready`, bottom first.
    fn layers_of(
        &mut self,
        source: &ArchiveSource,
        plan: &ImagePlan,
        config: &CheckedConfig,
        progress: &mut dyn FnMut(ImportStatus),
    ) -> Result<Vec<usize>, ImageError> {
        let mut stack = Vec::new();
        for (at, layer) in plan.layers.iter().enumerate() {
            let diff_id = &config.diff_ids[at];
            let chain = chain_id(&config.diff_ids[..=at]);
            let section = source
                .stream(&layer.member)?
                .ok_or_else(|| manifest::missing(&layer.member, "layer"))?;
            let size = section.size();
            if let Some(declared) = layer.size
                && declared != size
            {
                return Err(manifest::wrong_size("layer", declared, size));
            }
            self.seen.layer += 1;
            let known = self.find(diff_id, &chain)?;
            let reading = (layer.member.clone(), diff_id.clone());
            if let (Some(place), true) = (known, self.read.contains(&reading)) {
                self.seen.done_bytes += size;
                stack.push(place);
                continue;
            }
            self.seen.stage = match known {
                Some(_) => ImportStage::Checking,
                None => ImportStage::Unpacking,
            };
            progress(self.seen);
            let what = format!(
                "Layer {} of {} ({})",
                at + 1,
                plan.layers.len(),
                diff_id.short()
            );
            let before = self.seen;
            let report = Box::new(|done| {
                let done_bytes = before.done_bytes + done;
                progress(ImportStatus {
                    done_bytes,
                    ..before
                });
            });
            let stream = LayerStream::open(
                what.clone(),
                section,
                &self.store.limits,
                self.cancelled,
                report,
            )?;
            let place = match known {
                Some(place) => {
                    let passed = stream.finish()?;
                    check(&passed, layer, diff_id)?;
                    let record = &mut self.ready[place].record;
                    record.packed_bytes = passed.packed_bytes;
                    record.blob = Some(passed.blob);
                    place
                }
                None => self.unpack(stream, what, layer, diff_id, &chain, &stack)?,
            };
            self.read.insert(reading);
            self.seen.done_bytes += size;
            stack.push(place);
        }
        Ok(stack)
    }

    /// A layer that is ready in this import or kept from an earlier one, held against removal.
    fn find(
        &mut self,
        diff_id: &Sha256Digest,
        chain: &Sha256Digest,
    ) -> Result<Option<usize>, ImageError> {
        for key in [diff_id, chain] {
            if let Some(place) = self.by_key.get(key) {
                return Ok(Some(*place));
            }
            // First pin, then look: what is seen after the pin cannot go away.
            self.store.pin(key);
            self.pins.push(key.clone());
            let Some(file) = self.store.read_layer_file(key)? else {
                continue;
            };
            if file.diff_id != *diff_id {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fs = rustix::fs::open(self.store.layer_path(key).join("fs"), flags, Mode::empty())
                .doing(|| format!("open layer {}", key.short()))?;
            let record = LayerRecord {
                diff_id: diff_id.clone(),
                blob: None,
                key: key.clone(),
                bytes: file.bytes,
                entries: file.entries,
                hides_below: file.hides_below,
                packed_bytes: 0,
            };
            self.ready.push(Ready {
                record,
                warnings: file.warnings,
                fs,
                staged: None,
            });
            self.by_key.insert(key.clone(), self.ready.len() - 1);
            return Ok(Some(self.ready.len() - 1));
        }
        Ok(None)
    }

    fn unpack(
        &mut self,
        stream: LayerStream<'_>,
        what: String,
        layer: &LayerPlan,
        diff_id: &Sha256Digest,
        chain: &Sha256Digest,
        below: &[usize],
    ) -> Result<usize, ImageError> {
        let limits = &self.store.limits;
        let staged = format!("layer-{}", self.ready.len());
        let making = || format!("make room for layer {}", diff_id.short());
        rustix::fs::mkdirat(&self.staging, &staged, Mode::from_raw_mode(0o700)).doing(making)?;
        let directory = lower::open_directory(self.staging.as_fd(), staged.as_bytes())?;
        rustix::fs::mkdirat(&directory, "fs", Mode::from_raw_mode(0o755)).doing(making)?;
        let fs = lower::open_directory(directory.as_fd(), b"fs")?;
        // mkdir obeys the umask; the root of a layer must not.
        rustix::fs::fchmod(&fs, Mode::from_raw_mode(0o755)).doing(making)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let contents =
            rustix::fs::openat(&directory, "contents", flags, Mode::from_raw_mode(0o600))
                .doing(making)?;
        let mut contents = BufWriter::new(File::from(contents));
        let mut lower = Vec::new();
        for place in below.iter().rev() {
            let ready = &self.ready[*place];
            lower.push(ready.fs.as_fd());
            if ready.record.hides_below {
                break;
            }
        }
        let lower = Lower::new(lower);
        let mut members = Members::new(stream, what, limits.members, limits);
        let facts = unpack::unpack(
            &mut members,
            fs.as_fd(),
            &mut contents,
            lower,
            WhiteoutRule::OverLower,
            &mut self.budget,
            limits,
        )?;
        contents.flush().doing(making)?;
        let passed = members.into_inner().finish()?;
        check(&passed, layer, diff_id)?;
        let file = LayerFile {
            diff_id: diff_id.clone(),
            bytes: facts.bytes,
            entries: facts.entries,
            hides_below: facts.hides_below,
            warnings: facts.warnings,
        };
        let json = serde_json::to_vec(&file).doing(making)?;
        write_file(directory.as_fd(), "layer.json", &json).doing(making)?;
        let key = if facts.bound { chain } else { diff_id };
        self.ready.push(Ready {
            record: LayerRecord {
                diff_id: diff_id.clone(),
                blob: Some(passed.blob),
                key: key.clone(),
                bytes: facts.bytes,
                entries: facts.entries,
                hides_below: facts.hides_below,
                packed_bytes: passed.packed_bytes,
            },
            warnings: file.warnings,
            fs,
            staged: Some(staged),
        });
        self.by_key.insert(key.clone(), self.ready.len() - 1);
        Ok(self.ready.len() - 1)
    }

    /// Puts layers in place, then writes the records. Under the lock, so that no removal comes
    /// between; a crash during this leaves layers without a record, which `open` removes.
    fn commit(
        &mut self,
        plans: Vec<ImagePlan>,
        checked: Vec<CheckedConfig>,
        stacks: &[Vec<usize>],
        name: Option<&str>,
        now: Timestamp,
    ) -> Result<Vec<ImportedImage>, ImageError> {
        let locked = self.store.lock();
        let mut new = vec![false; self.ready.len()];
        for (place, ready) in self.ready.iter().enumerate() {
            if let Some(staged) = &ready.staged {
                let layers = self.store.layers.as_fd();
                new[place] =
                    rename_if_absent(self.staging.as_fd(), staged, layers, ready.record.key.hex())?;
            }
        }
        rustix::fs::fsync(&self.store.layers).doing(|| "write the list of layers".into())?;
        let mut images = Vec::new();
        for ((plan, config), stack) in plans.into_iter().zip(checked).zip(stacks) {
            let mut record = self.record(plan, config, stack, name, now)?;
            let known = self
                .store
                .read_record(&super::record_name(&record.id))
                .unwrap_or_default();
            if let Some(known) = &known {
                record.references.extend(known.references.iter().cloned());
                record.imported_at = known.imported_at;
            }
            self.store.write_record(&record, self.staging.as_fd())?;
            let mut new_bytes = 0;
            for place in stack {
                if std::mem::take(&mut new[*place]) {
                    new_bytes += self.ready[*place].record.bytes;
                }
            }
            images.push(ImportedImage {
                record,
                new_bytes,
                known: known.is_some(),
            });
        }
        drop(locked);
        Ok(images)
    }

    fn record(
        &self,
        plan: ImagePlan,
        config: CheckedConfig,
        stack: &[usize],
        name: Option<&str>,
        now: Timestamp,
    ) -> Result<ImageRecord, ImageError> {
        let mut layers = Vec::new();
        let mut warnings = BTreeSet::new();
        for (place, planned) in stack.iter().zip(&plan.layers) {
            let ready = &self.ready[*place];
            warnings.extend(ready.warnings.iter().cloned());
            let mut layer = ready.record.clone();
            layer.blob = layer.blob.or_else(|| planned.blob.clone());
            layers.push(layer);
        }
        let config_text =
            String::from_utf8(plan.config).map_err(|_| refusals::image_config_not_utf8())?;
        Ok(ImageRecord {
            id: plan.id,
            references: complete(&plan.references, name),
            architecture: config.architecture,
            created: config.created,
            settings: config.settings,
            total_bytes: layers.iter().map(|layer| layer.bytes).sum(),
            layers,
            imported_at: now,
            warnings,
            config: config_text,
        })
    }
}

/// Holds what passed to what was declared.
fn check(passed: &Passed, layer: &LayerPlan, diff_id: &Sha256Digest) -> Result<(), ImageError> {
    if let Some(declared) = &layer.blob
        && *declared != passed.blob
    {
        return Err(manifest::mismatch("layer", declared, &passed.blob));
    }
    if passed.diff_id != *diff_id {
        return Err(manifest::mismatch(
            "uncompressed layer",
            diff_id,
            &passed.diff_id,
        ));
    }
    Ok(())
}

/// Names as people use them: a bare tag gets the name of the archive, an unnamed image its name.
fn complete(references: &BTreeSet<String>, name: Option<&str>) -> BTreeSet<String> {
    let completed =
        references
            .iter()
            .map(|reference| match (name, reference.contains([':', '/'])) {
                (Some(name), false) => format!("{name}:{reference}"),
                _ => reference.clone(),
            });
    let mut completed: BTreeSet<String> = completed.collect();
    if completed.is_empty() {
        completed.extend(name.map(|name| format!("{name}:latest")));
    }
    completed
}

/// Identity of a stack of layers. Rule: OCI image specification 1.1, "Layer ChainID".
pub(super) fn chain_id(diff_ids: &[Sha256Digest]) -> Sha256Digest {
    let mut chain: Option<Sha256Digest> = None;
    for diff_id in diff_ids {
        chain = Some(match chain {
            None => diff_id.clone(),
            Some(below) => Sha256Digest::finished(Sha256::new_with_prefix(
                format!("{below} {diff_id}").as_bytes(),
            )),
        });
    }
    chain.expect("an image has at least one layer, checked before")
}

pub(super) fn free_bytes(disk: BorrowedFd<'_>) -> Result<u64, ImageError> {
    let stat = rustix::fs::fstatvfs(disk).doing(|| "look at the free disk".into())?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What an import may still write.
pub(super) struct Budget<'a> {
    limit: u64,
    reserve: u64,
    taken: u64,
    unchecked_bytes: u64,
    unchecked_files: u32,
    disk: BorrowedFd<'a>,
}

/// Bytes and files between two looks at the disk. Higher: the reserve may be overrun by so much.
/// Lower: a call more for every few files.
const CHECK_INTERVAL_BYTES: u64 = 16 << 20;
const CHECK_INTERVAL_FILES: u32 = 1024;

impl<'a> Budget<'a> {
    pub(super) fn new(limits: &ImportLimits, disk: BorrowedFd<'a>) -> Self {
        Self {
            limit: limits.unpacked_bytes,
            reserve: limits.reserve_bytes,
            taken: 0,
            unchecked_bytes: 0,
            unchecked_files: 0,
            disk,
        }
    }
}

impl SpaceGuard for Budget<'_> {
    fn take(&mut self, bytes: u64) -> Result<(), ImageError> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken > self.limit {
            return Err(refusals::image_too_large(self.limit >> 20).into());
        }
        self.unchecked_bytes = self.unchecked_bytes.saturating_add(bytes);
        self.unchecked_files += 1;
        if self.unchecked_bytes < CHECK_INTERVAL_BYTES
            && self.unchecked_files < CHECK_INTERVAL_FILES
        {
            return Ok(());
        }
        let stat = rustix::fs::fstatvfs(self.disk).doing(|| "look at the free disk".into())?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        // Some file systems have no fixed number of files and say 0 of 0.
        let files_gone = stat.f_files > 0 && stat.f_favail < 4096;
        if free < self.reserve.saturating_add(bytes) || files_gone {
            return Err(disk_full().into());
        }
        self.unchecked_bytes = 0;
        self.unchecked_files = 0;
        Ok(())
    }
}
