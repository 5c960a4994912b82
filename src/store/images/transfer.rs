//! Gives an image of this store to another store, and takes one from another: a manifest first, then each
//! layer that is missing, as packed bytes with their digest. The configuration has the digest that names the
//! image; nothing is kept of a layer whose bytes have another digest than the manifest says. Knows no link:
//! bytes go into a `Write` and come out of a `Read`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rules::refusals;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::digest::{Hashing, Sha256Digest};
use super::failure::{Doing, ImageError, from_read};
use super::import::{Budget, chain_id, free_bytes};
use super::layer_stream::cancelled;
use super::lower::{self, Lower};
use super::manifest;
use super::members::{Members, Skip};
use super::pack::{PackSink, files_with_holes, pack};
use super::record::{ImageRecord, LayerFile, LayerRecord};
use super::unpack::{self, WhiteoutRule};
use super::{ImageStore, config, remove_tree, rename_if_absent, write_file};

/// Bytes of the manifest of one image: a configuration and a record of at most 127 layers. Larger: a server
/// makes its nodes hold so much. Smaller: images with long lists of variables cannot be sent.
pub const MAX_TRANSFER_MANIFEST_BYTES: usize = 16 << 20;
/// Headers that a packed layer has for each member the import allows: an extended one may stand before each.
const HEADERS_PER_MEMBER: u64 = 2;
/// Where the digest of a packed layer is kept, beside the layer.
const PACKED_FILE: &str = "packed.json";

/// What another store needs to know of an image before it asks for layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferManifest {
    /// The image as its first store records it.
    pub record: ImageRecord,
    /// Its layers as they are sent, each once.
    pub layers: Vec<PackedLayer>,
}

/// A layer as it is sent: the same bytes every time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedLayer {
    /// Name of the layer in the store.
    pub key: Sha256Digest,
    /// Digest and number of the packed bytes.
    pub digest: Sha256Digest,
    pub bytes: u64,
}

impl ImageStore {
    /// What another store needs to know of this image.
    ///
    /// Costs one read of every layer that is asked for the first time; then its digest stands beside it.
    /// Refuses `image.not-found`.
    pub fn transfer_manifest(&self, id: &Sha256Digest) -> Result<TransferManifest, ImageError> {
        let record = self.image(id)?;
        let keys: BTreeSet<Sha256Digest> = record.layers.iter().map(|l| l.key.clone()).collect();
        let layers = keys
            .iter()
            .map(|key| self.with_pin(key, || self.packed(key)));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(TransferManifest { record, layers })
    }

    /// Writes the packed bytes of a layer of this image to `to`, from byte `offset` on.
    ///
    /// The layer stays while it is read, also where its image is removed meanwhile. Costs a read of the files
    /// that come after `offset`. Refuses `image.not-found`; an error of `to` ends it as a fault.
    pub fn send_layer(
        &self,
        id: &Sha256Digest,
        key: &Sha256Digest,
        offset: u64,
        to: &mut dyn Write,
    ) -> Result<(), ImageError> {
        self.with_pin(key, || {
            let record = self.image(id)?;
            if !record.layers.iter().any(|layer| layer.key == *key) {
                return Err(super::not_found(key));
            }
            let mut sink = SendSink { skip: offset, to };
            self.pack_layer(key, &mut sink)
        })
    }

    /// Takes an image from another store: what `manifest` (JSON of a `TransferManifest`) says of `id`. `open`
    /// gives the packed bytes of a layer; it is asked once for each layer that is not kept yet.
    ///
    /// All of the image or, on any error, nothing. Memory and disk stay within the limits and the reserve, as
    /// with an import. `cancelled` ends it within a MiB. Refuses `image.digest-mismatch` where bytes are not
    /// the ones that were named, `image.disk-full`, `image.too-large`, `image.cancelled`, and what the import
    /// refuses of a configuration or a layer.
    pub fn receive(
        &self,
        id: &Sha256Digest,
        manifest: &[u8],
        open: &mut dyn FnMut(&PackedLayer) -> Box<dyn Read>,
        cancelled: &AtomicBool,
    ) -> Result<ImageRecord, ImageError> {
        let manifest = self.checked(id, manifest)?;
        self.can_unpack()?;
        let (name, path) = self.new_staging("receive")?;
        let staging = lower::open_directory(self.staging.as_fd(), name.as_bytes())?;
        let mut pins = Vec::new();
        let done = self.take_in(&manifest, &staging, open, cancelled, &mut pins);
        drop(staging);
        let tidied = self.unpin(&pins).and(remove_tree(&path));
        if let Err(error) = tidied {
            // What was received matters more; `open` tidies again.
            tracing::warn!(%error, "could not clean up after receiving an image");
        }
        done.map(|()| manifest.record)
    }

    /// A manifest that can be this image's, with what the digest covers read from the configuration.
    fn checked(&self, id: &Sha256Digest, bytes: &[u8]) -> Result<TransferManifest, ImageError> {
        let mut sent: TransferManifest = serde_json::from_slice(bytes)
            .map_err(|error| refusals::image_damaged("the manifest", &error))?;
        let of_config = Sha256Digest::of(sent.record.config.as_bytes());
        if of_config != *id {
            return Err(manifest::mismatch("configuration", id, &of_config));
        }
        let config = config::check(sent.record.config.as_bytes(), &self.limits)?;
        let (listed, recorded) = (config.diff_ids.len(), sent.record.layers.len());
        if listed != recorded || listed == 0 {
            return Err(refusals::image_layers_differ(listed, recorded).into());
        }
        for (at, layer) in sent.record.layers.iter().enumerate() {
            let diff_id = &config.diff_ids[at];
            if layer.diff_id != *diff_id {
                return Err(manifest::mismatch("layer", diff_id, &layer.diff_id));
            }
            let chain = chain_id(&config.diff_ids[..=at]);
            if layer.key != *diff_id && layer.key != chain {
                return Err(manifest::mismatch("layer", &chain, &layer.key));
            }
            if !sent.layers.iter().any(|packed| packed.key == layer.key) {
                return Err(super::not_found(&layer.key));
            }
        }
        sent.record.id = id.clone();
        sent.record.settings = config.settings;
        sent.record.architecture = config.architecture;
        sent.record.created = config.created;
        Ok(sent)
    }

    fn take_in(
        &self,
        manifest: &TransferManifest,
        staging: &OwnedFd,
        open: &mut dyn FnMut(&PackedLayer) -> Box<dyn Read>,
        cancelled: &AtomicBool,
        pins: &mut Vec<Sha256Digest>,
    ) -> Result<(), ImageError> {
        let mut missing: Vec<(&LayerRecord, &PackedLayer)> = Vec::new();
        for packed in &manifest.layers {
            let recorded = manifest.record.layers.iter().find(|l| l.key == packed.key);
            let Some(recorded) = recorded else {
                continue;
            };
            // First pin, then look: what is seen after the pin cannot go away.
            self.pin(&packed.key);
            pins.push(packed.key.clone());
            let kept = self.read_layer_file(&packed.key)?;
            if kept.is_none_or(|file| file.diff_id != recorded.diff_id) {
                missing.push((recorded, packed));
            }
        }
        let needed = missing
            .iter()
            .fold(0u64, |sum, (_, packed)| sum.saturating_add(packed.bytes));
        let free = free_bytes(self.staging.as_fd())?;
        if free < needed.saturating_add(self.limits.reserve_bytes) {
            return Err(refusals::image_disk_too_small(
                needed >> 20,
                free >> 20,
                self.limits.reserve_bytes >> 20,
            )
            .into());
        }
        let mut budget = Budget::new(&self.limits, self.staging.as_fd());
        for (recorded, packed) in &missing {
            self.take_layer(
                recorded,
                packed,
                staging,
                open(packed),
                cancelled,
                &mut budget,
            )?;
        }
        if cancelled.load(Ordering::Relaxed) {
            return Err(super::layer_stream::cancelled().into());
        }
        // One flush for everything is cheaper than one per file by two orders of magnitude.
        rustix::fs::syncfs(staging).doing(|| "write the layers to disk".into())?;
        let locked = self.lock();
        for (_, packed) in &missing {
            let name = packed.key.hex();
            rename_if_absent(staging.as_fd(), name, self.layers.as_fd(), name)?;
        }
        rustix::fs::fsync(&self.layers).doing(|| "write the list of layers".into())?;
        self.write_record(&manifest.record, staging.as_fd())?;
        drop(locked);
        Ok(())
    }

    fn take_layer(
        &self,
        recorded: &LayerRecord,
        packed: &PackedLayer,
        staging: &OwnedFd,
        from: Box<dyn Read>,
        cancelled: &AtomicBool,
        budget: &mut Budget<'_>,
    ) -> Result<(), ImageError> {
        let making = || format!("make room for layer {}", packed.key.short());
        let name = packed.key.hex();
        rustix::fs::mkdirat(staging, name, Mode::from_raw_mode(0o700)).doing(making)?;
        let directory = lower::open_directory(staging.as_fd(), name.as_bytes())?;
        rustix::fs::mkdirat(&directory, "fs", Mode::from_raw_mode(0o755)).doing(making)?;
        let root = lower::open_directory(directory.as_fd(), b"fs")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let contents = rustix::fs::openat(&directory, "contents", flags, mode).doing(making)?;
        let mut contents = BufWriter::new(File::from(contents));
        let what = format!("Layer {}", packed.key.short());
        let stream = ReceivedLayer {
            bytes: Hashing::new(from),
            length: packed.bytes,
            cancelled,
        };
        let most = self.limits.members.saturating_mul(HEADERS_PER_MEMBER);
        let mut members = Members::new(stream, what.clone(), most, &self.limits);
        let facts = unpack::unpack(
            &mut members,
            root.as_fd(),
            &mut contents,
            Lower::new(Vec::new()),
            WhiteoutRule::AsPacked,
            budget,
            &self.limits,
        )?;
        contents.flush().doing(making)?;
        let (digest, bytes) = members.into_inner().finish(&what)?;
        if bytes != packed.bytes {
            return Err(manifest::wrong_size("layer", packed.bytes, bytes));
        }
        if digest != packed.digest {
            return Err(manifest::mismatch("layer", &packed.digest, &digest));
        }
        let file = LayerFile {
            diff_id: recorded.diff_id.clone(),
            bytes: facts.bytes,
            entries: facts.entries,
            hides_below: recorded.hides_below,
            warnings: facts.warnings,
        };
        let json = serde_json::to_vec(&file).doing(making)?;
        write_file(directory.as_fd(), "layer.json", &json).doing(making)
    }

    /// The digest of a packed layer, from the file beside it or from the layer.
    fn packed(&self, key: &Sha256Digest) -> Result<PackedLayer, ImageError> {
        let path = self.layer_path(key);
        // One that a crash cut short is no JSON, and made once more.
        let known = fs::read(path.join(PACKED_FILE)).ok();
        let known = known.and_then(|bytes| serde_json::from_slice::<PackedLayer>(&bytes).ok());
        if let Some(known) = known.filter(|known| known.key == *key) {
            return Ok(known);
        }
        let mut sink = HashSink(Sha256::new(), 0);
        self.pack_layer(key, &mut sink)?;
        let packed = PackedLayer {
            key: key.clone(),
            digest: Sha256Digest::finished(sink.0),
            bytes: sink.1,
        };
        let json = serde_json::to_vec(&packed).doing(|| "note the digest of a layer".into())?;
        let directory = lower::open_directory(self.layers.as_fd(), key.hex().as_bytes())?;
        if let Err(error) = write_file(directory.as_fd(), PACKED_FILE, &json) {
            // It only costs another read the next time.
            tracing::warn!(%error, layer = key.short(), "the digest of a layer cannot be kept");
        }
        Ok(packed)
    }

    fn pack_layer(&self, key: &Sha256Digest, sink: &mut dyn PackSink) -> Result<(), ImageError> {
        let reading = || format!("open layer {}", key.short());
        let path = self.layer_path(key);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path.join("fs"), flags, Mode::empty()).doing(reading)?;
        let contents = File::open(path.join("contents")).doing(reading)?;
        let holes = files_with_holes(contents).doing(reading)?;
        pack(root.as_fd(), &holes, sink)
    }

    /// Does something with a layer that cannot be removed meanwhile.
    fn with_pin<T>(
        &self,
        key: &Sha256Digest,
        act: impl FnOnce() -> Result<T, ImageError>,
    ) -> Result<T, ImageError> {
        self.pin(key);
        let done = act();
        let unpinned = self.unpin(std::slice::from_ref(key));
        let done = done?;
        unpinned.map(|()| done)
    }
}

/// The bytes of a layer as they come in: hashed, counted, cut off where more come than were named.
struct ReceivedLayer<'a> {
    bytes: Hashing<Box<dyn Read>>,
    length: u64,
    cancelled: &'a AtomicBool,
}

impl ReceivedLayer<'_> {
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

impl Read for ReceivedLayer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(super::failure::carry(cancelled()));
        }
        let left = self.length - self.bytes.passed();
        let want = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        self.bytes.read(&mut buffer[..want])
    }
}

impl Skip for ReceivedLayer<'_> {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        match io::copy(&mut self.by_ref().take(count), &mut io::sink())? {
            passed if passed == count => Ok(()),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Keeps the digest and number of packed bytes.
struct HashSink(Sha256, u64);

impl Write for HashSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        self.1 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PackSink for HashSink {
    fn skips(&mut self, _bytes: u64) -> bool {
        false
    }
}

/// Passes packed bytes on after the first ones, which the other side has.
struct SendSink<'a> {
    skip: u64,
    to: &'a mut dyn Write,
}

impl Write for SendSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = bytes
            .len()
            .min(usize::try_from(self.skip).unwrap_or(usize::MAX));
        self.skip -= skipped as u64;
        self.to.write_all(&bytes[skipped..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl PackSink for SendSink<'_> {
    fn skips(&mut self, bytes: u64) -> bool {
        let skips = bytes <= self.skip;
        if skips {
            self.skip -= bytes;
        }
        skips
    }
}

#[cfg(test)]
mod tests;
