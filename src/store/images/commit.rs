//! Puts one layer on top of an image of this store: takes the archive of a session's own layer, unpacks it as an import
//! does, and records the new image. All of it or nothing. Knows no session and no link: bytes come out of a `Read`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use super::config;
use super::digest::{Hashing, Sha256Digest};
use super::failure::{Doing, ImageError, from_read};
use super::import::{Budget, ImportedImage, chain_id, free_bytes};
use super::lower::{self, Lower};
use super::members::{Members, Skip};
use super::record::{ImageRecord, LayerFile, LayerRecord};
use super::unpack::{self, WhiteoutRule};
use super::{ImageStore, record_name, remove_tree, rename_if_absent, write_file};

/// A layer that becomes an image.
pub struct LayerCommit<'a> {
    /// The image below it.
    pub base: &'a Sha256Digest,
    /// An uncompressed archive in the form of OCI layers.
    pub layer: Box<dyn Read + 'a>,
    /// Bytes of its files, so that a disk without room is told before the first is read.
    pub bytes: u64,
    /// What the image is called.
    pub reference: &'a str,
    /// Goes into the configuration and the record.
    pub now: Timestamp,
    /// A label of the new image beside those of the one below.
    pub label: (&'a str, &'a str),
    /// Set from another thread, it ends the work within a MiB with `commit.cancelled`.
    pub cancelled: &'a AtomicBool,
}

impl ImageStore {
    /// Makes an image of another one and a layer above it. Settings, and so the variables, are those of the image below.
    ///
    /// All of the image or, on any error, nothing. Memory and disk stay within the limits and the reserve, as with an
    /// import. Costs one pass over the layer. Refuses `image.not-found`, `image.too-many-layers`, `image.disk-full`,
    /// `image.too-large`, `commit.cancelled`, and what the import refuses of a layer.
    pub fn commit(&self, request: LayerCommit<'_>) -> Result<ImportedImage, ImageError> {
        let base = self.image(request.base)?;
        let most = self.limits.layers;
        if base.layers.len() >= most {
            return Err(refusals::image_too_many_layers(base.layers.len() + 1, most).into());
        }
        self.can_unpack()?;
        let (free, reserve) = (free_bytes(self.staging.as_fd())?, self.limits.reserve_bytes);
        if free < request.bytes.saturating_add(reserve) {
            let needed = request.bytes >> 20;
            return Err(refusals::image_disk_too_small(needed, free >> 20, reserve >> 20).into());
        }
        let (name, path) = self.new_staging("commit")?;
        let staging = lower::open_directory(self.staging.as_fd(), name.as_bytes())?;
        let mut pins = Vec::new();
        for layer in &base.layers {
            self.pin(&layer.key);
            pins.push(layer.key.clone());
        }
        // Once more: before its layers were held, it may have been removed with them.
        let is_there = self.image(request.base);
        let done = is_there.and_then(|_| self.put_on_top(&base, request, &staging, &mut pins));
        drop(staging);
        let tidied = self.unpin(&pins).and(remove_tree(&path));
        if let Err(error) = tidied {
            // What was made matters more; `open` tidies again.
            tracing::warn!(%error, "could not clean up after a commit");
        }
        done
    }

    fn put_on_top(
        &self,
        base: &ImageRecord,
        request: LayerCommit<'_>,
        staging: &OwnedFd,
        pins: &mut Vec<Sha256Digest>,
    ) -> Result<ImportedImage, ImageError> {
        let cancelled = request.cancelled;
        let making = || "make room for a new layer".to_owned();
        rustix::fs::mkdirat(staging, "layer", Mode::from_raw_mode(0o700)).doing(making)?;
        let directory = lower::open_directory(staging.as_fd(), b"layer")?;
        rustix::fs::mkdirat(&directory, "fs", Mode::from_raw_mode(0o755)).doing(making)?;
        let root = lower::open_directory(directory.as_fd(), b"fs")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let contents = rustix::fs::openat(&directory, "contents", flags, mode).doing(making)?;
        let mut contents = BufWriter::new(File::from(contents));
        let below = self.opened_layers(base)?;
        let lower = Lower::new(below.iter().map(AsFd::as_fd).collect());
        let what = "The session's layer";
        let stream = CommittedLayer {
            bytes: Hashing::new(request.layer),
            cancelled,
        };
        let limits = &self.limits;
        let mut budget = Budget::new(limits, self.staging.as_fd());
        let mut members = Members::new(stream, what.to_owned(), limits.members, limits);
        let facts = unpack::unpack(
            &mut members,
            root.as_fd(),
            &mut contents,
            lower,
            WhiteoutRule::OverLower,
            &mut budget,
            limits,
        )?;
        contents.flush().doing(making)?;
        let (diff_id, packed_bytes) = members.into_inner().finish(what)?;
        let file = LayerFile {
            diff_id: diff_id.clone(),
            bytes: facts.bytes,
            entries: facts.entries,
            hides_below: facts.hides_below,
            warnings: facts.warnings.clone(),
        };
        let json = serde_json::to_vec(&file).doing(making)?;
        write_file(directory.as_fd(), "layer.json", &json).doing(making)?;
        let mut diff_ids: Vec<Sha256Digest> =
            base.layers.iter().map(|l| l.diff_id.clone()).collect();
        diff_ids.push(diff_id.clone());
        let key = match facts.bound {
            true => chain_id(&diff_ids),
            false => diff_id.clone(),
        };
        let config = configuration(base, &diff_id, request.now, request.label)?;
        let checked = config::check(config.as_bytes(), limits)?;
        let mut layers = base.layers.clone();
        layers.push(LayerRecord {
            diff_id,
            blob: None,
            key: key.clone(),
            bytes: facts.bytes,
            entries: facts.entries,
            hides_below: facts.hides_below,
            packed_bytes,
        });
        let mut warnings: BTreeSet<String> = base.warnings.clone();
        warnings.extend(facts.warnings);
        let record = ImageRecord {
            id: Sha256Digest::of(config.as_bytes()),
            references: BTreeSet::from([request.reference.to_owned()]),
            architecture: checked.architecture,
            created: checked.created,
            settings: checked.settings,
            total_bytes: layers.iter().map(|layer| layer.bytes).sum(),
            layers,
            imported_at: request.now,
            warnings,
            config,
        };
        if cancelled.load(Ordering::Relaxed) {
            return Err(refusals::commit_cancelled().into());
        }
        // One flush for everything is cheaper than one per file by two orders of magnitude.
        rustix::fs::syncfs(staging).doing(|| "write the layer to disk".into())?;
        self.pin(&key);
        pins.push(key.clone());
        let locked = self.lock();
        let is_new = rename_if_absent(staging.as_fd(), "layer", self.layers.as_fd(), key.hex())?;
        rustix::fs::fsync(&self.layers).doing(|| "write the list of layers".into())?;
        let known = self.read_record(&record_name(&record.id))?.is_some();
        self.write_record(&record, staging.as_fd())?;
        drop(locked);
        Ok(ImportedImage {
            new_bytes: if is_new { facts.bytes } else { 0 },
            record,
            known,
        })
    }

    /// The layers that an image shows, top-most first, as `Lower` takes them.
    fn opened_layers(&self, image: &ImageRecord) -> Result<Vec<OwnedFd>, ImageError> {
        let mut below = Vec::new();
        for layer in image.layers.iter().rev() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let path = self.layer_path(&layer.key).join("fs");
            let opened = rustix::fs::open(path, flags, Mode::empty())
                .doing(|| format!("open layer {}", layer.key.short()))?;
            below.push(opened);
            if layer.hides_below {
                break;
            }
        }
        Ok(below)
    }
}

/// The configuration of the image below, with one layer and one line of history more.
///
/// Rule: OCI image specification 1.1, "Image Configuration".
fn configuration(
    base: &ImageRecord,
    diff_id: &Sha256Digest,
    now: Timestamp,
    (label, value): (&str, &str),
) -> Result<String, ImageError> {
    let understanding = || format!("understand the configuration of {}", base.id);
    let mut config: Value = serde_json::from_str(&base.config).doing(understanding)?;
    let created = now.to_string();
    let not_whole = || ImageError::fault(understanding(), io::Error::other("it is no object"));
    let all = config.as_object_mut().ok_or_else(not_whole)?;
    all.insert("created".to_owned(), json!(created));
    let layers = all
        .get_mut("rootfs")
        .and_then(|root| root.get_mut("diff_ids"));
    let layers = layers.and_then(Value::as_array_mut).ok_or_else(not_whole)?;
    layers.push(json!(diff_id.to_string()));
    let history = all.entry("history").or_insert_with(|| json!([]));
    if !history.is_array() {
        *history = json!([]);
    }
    if let Some(history) = history.as_array_mut() {
        history.push(json!({"created": created, "created_by": "fardel session commit"}));
    }
    let run = all.entry("config").or_insert_with(|| json!({}));
    if !run.is_object() {
        *run = json!({});
    }
    let labels = run.as_object_mut().ok_or_else(not_whole)?;
    let labels = labels.entry("Labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels
        .as_object_mut()
        .ok_or_else(not_whole)?
        .insert(label.to_owned(), json!(value));
    serde_json::to_string(&config).doing(understanding)
}

/// The bytes of a layer as they come in: hashed and counted.
struct CommittedLayer<'a> {
    bytes: Hashing<Box<dyn Read + 'a>>,
    cancelled: &'a AtomicBool,
}

impl CommittedLayer<'_> {
    fn finish(mut self, what: &str) -> Result<(Sha256Digest, u64), ImageError> {
        let mut scratch = vec![0; 64 << 10];
        loop {
            match self.read(&mut scratch) {
                Ok(0) => return Ok(self.bytes.finish()),
                Ok(_) => {}
                Err(error) => return Err(from_read(error, what)),
            }
        }
    }
}

impl Read for CommittedLayer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(super::failure::carry(refusals::commit_cancelled()));
        }
        self.bytes.read(buffer)
    }
}

impl Skip for CommittedLayer<'_> {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        match io::copy(&mut self.by_ref().take(count), &mut io::sink())? {
            passed if passed == count => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests;
