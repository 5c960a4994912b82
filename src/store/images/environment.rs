//! Bundles of environments: one tar file with a signed manifest, images as an OCI layout, a list of packages and licences.
//! Writes one from images of this store, and checks one whole before an import reads it. Decides neither who is trusted
//! nor which version may follow which.
//!
//! ```text
//! MANIFEST          JSON: name, version, images, and path, size and SHA-256 of each member below
//! MANIFEST.sig      Ed25519 over the bytes of MANIFEST: public key and signature in base64; absent: unsigned
//! oci-layout, index.json, sbom.json, licences.txt, blobs/sha256/…
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use base::signing::{SigningKey, TrustedKey, read_signature_line};
use rules::environment::{
    BLOBS, BundleImage, BundleManifest, EnvironmentMember, FORMAT, InstalledPackage, KIND,
    LICENCES, MAX_MANIFEST_BYTES, MAX_MEMBERS, MAX_TEXT_BYTES, RecommendedOptions, SBOM,
    check_format, debian_packages,
};
use rules::image::parse_reference;
use rules::refusals;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::Deserialize;
use serde_json::{Value, json};
use tar::{EntryType, Header};

use super::ImageStore;
use super::digest::{Hashing, Sha256Digest};
use super::failure::{Doing, ImageError, carry, from_read, shown};
use super::pack::END_OF_ARCHIVE;

const MANIFEST: &str = "MANIFEST";
const SIGNATURE: &str = "MANIFEST.sig";
/// Bytes of the member with the signature: two texts of at most 88 letters.
const MAX_SIGNATURE_BYTES: u64 = 512;
const BLOCK: u64 = 512;
/// Bytes read at once. Larger: more memory. Smaller: more calls.
const PIECE: usize = 256 << 10;
/// Bytes of the status file of dpkg that are read. Higher: more memory to pack. Lower: large images lose packages.
const MAX_STATUS_BYTES: u64 = 32 << 20;

/// A bundle that is to be checked.
pub struct BundleCheck<'a> {
    pub file: &'a File,
    pub trusted: &'a [TrustedKey],
    /// Whether one without a signature of a trusted key passes.
    pub accept_unsigned: bool,
    /// Set from another thread, it ends the work within a MiB with `image.cancelled`.
    pub cancelled: &'a AtomicBool,
}

/// A bundle whose every byte is what its manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedBundle {
    pub manifest: BundleManifest,
    /// Of the manifest's bytes.
    pub digest: Sha256Digest,
    /// The name of the trusted key that signed it; None: no trusted one did.
    pub signer: Option<String>,
    pub sbom: String,
    pub licences: String,
}

/// What a bundle says of itself, before the rest of it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleHead {
    pub manifest: BundleManifest,
    /// Of the manifest's bytes.
    pub digest: Sha256Digest,
    /// As in `CheckedBundle`.
    pub signer: Option<String>,
}

/// The bytes of a manifest, who signed them, and the member behind them.
type BundleBeginning<'e, R> = (Vec<u8>, Option<String>, Option<tar::Entry<'e, R>>);

/// The lenient head of a manifest: a later format is named as such, also where it has more fields.
#[derive(Deserialize)]
struct FormatHead {
    kind: String,
    format: u32,
}

impl BundleCheck<'_> {
    /// Reads the whole bundle once and keeps nothing of it. Memory: the manifest and two texts. `progress` hears how many
    /// bytes of how many were read.
    ///
    /// Errors: `environment.not-a-bundle`, `environment.unsigned`, `environment.signer-unknown`,
    /// `environment.signature-wrong`, `environment.cut`, `environment.member-extra`, `environment.member-changed`,
    /// `environment.member-doubled`, `environment.members`, `image.cancelled`, and those of the manifest.
    pub fn run(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckedBundle, ImageError> {
        let reading = || "read a bundle".to_owned();
        let total = self.file.metadata().doing(reading)?.len();
        let mut archive = self.archive()?;
        let mut members = archive.entries().map_err(no_bundle)?.raw(true);
        let (text, signer, mut next) = self.begin(&mut members)?;
        let manifest = read_manifest(&text)?;
        let listed: BTreeMap<&[u8], &EnvironmentMember> = manifest
            .members
            .iter()
            .map(|member| (member.path.as_bytes(), member))
            .collect();
        let mut seen = BTreeSet::new();
        let mut texts = BTreeMap::new();
        let mut read = text.len() as u64;
        while let Some(mut entry) = next {
            if seen.len() >= MAX_MEMBERS {
                return Err(refusals::environment_members(MAX_MEMBERS).into());
            }
            let name = name_of(&entry);
            let Some(member) = listed.get(name.as_slice()).copied() else {
                return Err(refusals::environment_member_extra(shown(&name)).into());
            };
            if !seen.insert(member.path.as_str()) {
                return Err(refusals::environment_member_doubled(&member.path).into());
            }
            let changed = || refusals::environment_member_changed(&member.path);
            let is_file = entry.header().entry_type() == EntryType::Regular;
            if !is_file || entry.size() != member.bytes {
                return Err(changed().into());
            }
            let is_text = [SBOM, LICENCES].contains(&member.path.as_str());
            let mut kept = Vec::new();
            let mut hashing = Hashing::new(&mut entry);
            let mut piece = vec![0; PIECE];
            loop {
                let count = match hashing.read(&mut piece) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(broken(error)),
                };
                read += count as u64;
                progress(read.min(total), total);
                if is_text {
                    kept.extend_from_slice(&piece[..count]);
                }
            }
            let (digest, bytes) = hashing.finish();
            if bytes < member.bytes {
                return Err(refusals::environment_cut().into());
            }
            if digest.hex() != member.sha256 {
                return Err(changed().into());
            }
            if is_text {
                let kept = String::from_utf8(kept).map_err(|_| changed())?;
                texts.insert(member.path.clone(), kept);
            }
            next = members.next().transpose().map_err(broken)?;
        }
        if seen.len() < listed.len() {
            return Err(refusals::environment_cut().into());
        }
        Ok(CheckedBundle {
            digest: Sha256Digest::of(&text),
            signer,
            sbom: texts.remove(SBOM).unwrap_or_default(),
            licences: texts.remove(LICENCES).unwrap_or_default(),
            manifest,
        })
    }

    /// Reads manifest and signature alone, so that what is refused for them is refused before anything waits.
    ///
    /// Errors: those of `run` for them.
    pub fn look(&self) -> Result<BundleHead, ImageError> {
        let mut archive = self.archive()?;
        let mut members = archive.entries().map_err(no_bundle)?.raw(true);
        let (text, signer, _) = self.begin(&mut members)?;
        Ok(BundleHead {
            manifest: read_manifest(&text)?,
            digest: Sha256Digest::of(&text),
            signer,
        })
    }

    fn archive(&self) -> Result<tar::Archive<BundleReader<'_>>, ImageError> {
        let mut from = self.file;
        from.seek(SeekFrom::Start(0))
            .doing(|| "read a bundle".to_owned())?;
        Ok(tar::Archive::new(BundleReader {
            from: BufReader::with_capacity(PIECE, from),
            cancelled: self.cancelled,
        }))
    }

    /// The bytes of the manifest, who signed them, and the member behind them.
    fn begin<'e, R: Read>(
        &self,
        members: &mut tar::Entries<'e, R>,
    ) -> Result<BundleBeginning<'e, R>, ImageError> {
        let first = members
            .next()
            .ok_or_else(refusals::environment_not_a_bundle)?;
        let mut first = first.map_err(no_bundle)?;
        if name_of(&first) != MANIFEST.as_bytes() {
            return Err(refusals::environment_not_a_bundle().into());
        }
        let text = whole(&mut first, MAX_MANIFEST_BYTES, MANIFEST)?;
        let mut next = members.next().transpose().map_err(broken)?;
        let second = next.as_ref().map(name_of);
        let is_signed = second.is_some_and(|name| name == SIGNATURE.as_bytes());
        let mut signer = None;
        if is_signed {
            if let Some(entry) = &mut next {
                let signature = whole(entry, MAX_SIGNATURE_BYTES, SIGNATURE)?;
                signer = self.signed_by(&text, &signature)?;
            }
            next = members.next().transpose().map_err(broken)?;
        } else if !self.accept_unsigned {
            return Err(refusals::environment_unsigned().into());
        }
        Ok((text, signer, next))
    }

    /// The trusted key that signed the manifest. A wrong signature is refused in any case.
    fn signed_by(&self, manifest: &[u8], signature: &[u8]) -> Result<Option<String>, ImageError> {
        let wrong = refusals::environment_signature_wrong;
        let (key, signature) = read_signature_line(signature).ok_or_else(wrong)?;
        if !key.has_signed(manifest, &signature) {
            return Err(wrong().into());
        }
        match self.trusted.iter().find(|trusted| trusted.key == key) {
            Some(trusted) => Ok(Some(trusted.name.clone())),
            None if self.accept_unsigned => Ok(None),
            None => Err(refusals::environment_signer_unknown(key.text()).into()),
        }
    }
}

fn read_manifest(text: &[u8]) -> Result<BundleManifest, ImageError> {
    let wrong = |error: serde_json::Error| refusals::environment_manifest(error.to_string());
    let head: FormatHead = serde_json::from_slice(text).map_err(wrong)?;
    check_format(&head.kind, head.format)?;
    let manifest: BundleManifest = serde_json::from_slice(text).map_err(wrong)?;
    manifest.check()?;
    Ok(manifest)
}

fn name_of<R: Read>(entry: &tar::Entry<'_, R>) -> Vec<u8> {
    entry.header().path_bytes().into_owned()
}

/// A small member, whole.
fn whole<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    most: u64,
    name: &str,
) -> Result<Vec<u8>, ImageError> {
    let bytes = entry.size();
    if bytes > most || entry.header().entry_type() != EntryType::Regular {
        return Err(refusals::environment_member_changed(name).into());
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text).map_err(broken)?;
    match text.len() as u64 == bytes {
        true => Ok(text),
        false => Err(refusals::environment_cut().into()),
    }
}

/// What could not be read at the beginning is no bundle.
fn no_bundle(error: io::Error) -> ImageError {
    match from_read(error, MANIFEST) {
        ImageError::Refused(refusal) if refusal.code == rules::codes::IMAGE_CANCELLED => {
            ImageError::Refused(refusal)
        }
        _ => refusals::environment_not_a_bundle().into(),
    }
}

/// What could not be read later was cut.
fn broken(error: io::Error) -> ImageError {
    match from_read(error, MANIFEST) {
        ImageError::Refused(refusal) if refusal.code == rules::codes::IMAGE_CANCELLED => {
            ImageError::Refused(refusal)
        }
        _ => refusals::environment_cut().into(),
    }
}

struct BundleReader<'a> {
    from: BufReader<&'a File>,
    cancelled: &'a AtomicBool,
}

impl Read for BundleReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(carry(super::layer_stream::cancelled()));
        }
        self.from.read(buffer)
    }
}

/// A bundle that is to be written.
pub struct BundlePlan<'a> {
    pub name: &'a str,
    pub version: &'a str,
    pub about: &'a str,
    pub images: &'a [PlannedImage],
    /// Packages of the images that Debian's own list does not name.
    pub others: &'a [InstalledPackage],
    pub licences: String,
    /// None: it is not signed.
    pub key: Option<&'a SigningKey>,
}

/// An image of this store that goes into a bundle.
pub struct PlannedImage {
    pub id: Sha256Digest,
    /// What it is called where the bundle is imported: `name:tag`.
    pub reference: String,
    pub recommended: RecommendedOptions,
}

/// Where the bytes of a member come from.
enum MemberSource {
    Bytes(Vec<u8>),
    Layer {
        image: Sha256Digest,
        key: Sha256Digest,
    },
}

struct PlannedMember {
    path: String,
    bytes: u64,
    sha256: String,
    source: MemberSource,
}

impl PlannedMember {
    fn of(path: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self {
            path: path.into(),
            bytes: bytes.len() as u64,
            sha256: Sha256Digest::of(&bytes).hex().to_owned(),
            source: MemberSource::Bytes(bytes),
        }
    }
}

impl ImageStore {
    /// The image of that digest, or of that name where no other has it, for a bundle. Costs a look at every record.
    ///
    /// Errors: `image.not-found`, `environment.image-doubled`, those of a reference.
    pub fn planned_image(
        &self,
        wanted: &str,
        recommended: &RecommendedOptions,
    ) -> Result<PlannedImage, ImageError> {
        let all = self.list()?;
        let digest = Sha256Digest::parse(wanted);
        let has_name = |names: &BTreeSet<String>, name: &str| {
            names.iter().any(|one| {
                let short = ["docker.io/library/", "docker.io/", "localhost/"]
                    .iter()
                    .find_map(|prefix| one.strip_prefix(prefix));
                short.unwrap_or(one) == name
            })
        };
        let found = match &digest {
            Some(digest) => all.into_iter().find(|record| record.id == *digest),
            None => {
                let name = parse_reference(wanted)?;
                let mut named = all
                    .into_iter()
                    .filter(|record| has_name(&record.references, &name));
                let first = named.next();
                // One may be of a user's session: the store does not know who may see an image, or whose a name is now.
                if named.next().is_some() {
                    return Err(refusals::environment_image_doubled(&name).into());
                }
                first
            }
        };
        let record = found.ok_or_else(refusals::image_not_found)?;
        let reference = match &digest {
            None => parse_reference(wanted)?,
            Some(_) => {
                let first = record.references.iter().next();
                parse_reference(first.map_or("image", String::as_str))?
            }
        };
        Ok(PlannedImage {
            id: record.id,
            reference,
            recommended: recommended.clone(),
        })
    }

    /// Writes a bundle of images of this store. The same images give the same bytes; layers are written as this store packs
    /// them, so an image has another digest in the bundle than here.
    ///
    /// Costs up to two reads of each layer. Errors: `image.not-found`, those of the manifest; an error of `out` is a fault.
    pub fn write_bundle(
        &self,
        plan: BundlePlan<'_>,
        out: &mut dyn Write,
    ) -> Result<BundleManifest, ImageError> {
        let mut blobs: BTreeMap<String, PlannedMember> = BTreeMap::new();
        let mut images = Vec::new();
        let mut index = Vec::new();
        let mut packages = Vec::new();
        for image in plan.images {
            let (config, descriptor) = self.plan_image(image, &mut blobs)?;
            index.push(descriptor);
            let mut listed = self.packages(&image.id)?;
            listed.extend(plan.others.iter().cloned());
            packages.push((image.reference.as_str(), config.clone(), listed));
            images.push(BundleImage {
                reference: image.reference.clone(),
                digest: config.to_string(),
                recommended: image.recommended.clone(),
            });
        }
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": index,
        });
        let mut all = vec![
            PlannedMember::of("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            PlannedMember::of("index.json", index.to_string().into_bytes()),
            PlannedMember::of(SBOM, sbom(plan.name, plan.version, &packages).into_bytes()),
            PlannedMember::of(LICENCES, plan.licences.into_bytes()),
        ];
        all.extend(blobs.into_values());
        let manifest = BundleManifest {
            kind: KIND.to_owned(),
            format: FORMAT,
            name: plan.name.to_owned(),
            version: plan.version.to_owned(),
            about: plan.about.to_owned(),
            images,
            members: all
                .iter()
                .map(|member| EnvironmentMember {
                    path: member.path.clone(),
                    bytes: member.bytes,
                    sha256: member.sha256.clone(),
                })
                .collect(),
        };
        manifest.check()?;
        let writing = || "write a bundle".to_owned();
        let text = serde_json::to_vec(&manifest).doing(writing)?;
        put(out, MANIFEST, &text)?;
        if let Some(key) = plan.key {
            put(out, SIGNATURE, key.signature_line(&text).as_bytes())?;
        }
        for member in &all {
            match &member.source {
                MemberSource::Bytes(bytes) => put(out, &member.path, bytes)?,
                MemberSource::Layer { image, key } => {
                    head(out, &member.path, member.bytes)?;
                    self.send_layer(image, key, 0, out)?;
                    fill(out, member.bytes)?;
                }
            }
        }
        out.write_all(&END_OF_ARCHIVE).doing(writing)?;
        out.flush().doing(writing)?;
        Ok(manifest)
    }

    /// Adds the blobs of an image; gives the digest of its configuration in the bundle, and its entry in the index.
    fn plan_image(
        &self,
        image: &PlannedImage,
        blobs: &mut BTreeMap<String, PlannedMember>,
    ) -> Result<(Sha256Digest, Value), ImageError> {
        let sent = self.transfer_manifest(&image.id)?;
        let mut layers = Vec::new();
        let mut diff_ids = Vec::new();
        for layer in &sent.record.layers {
            let packed = sent.layers.iter().find(|packed| packed.key == layer.key);
            let packed = packed.ok_or_else(|| super::not_found(&layer.key))?;
            diff_ids.push(json!(packed.digest));
            layers.push(json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": packed.digest,
                "size": packed.bytes,
            }));
            let path = format!("{BLOBS}{}", packed.digest.hex());
            blobs.entry(path.clone()).or_insert(PlannedMember {
                path,
                bytes: packed.bytes,
                sha256: packed.digest.hex().to_owned(),
                source: MemberSource::Layer {
                    image: image.id.clone(),
                    key: layer.key.clone(),
                },
            });
        }
        let reading = || "read the configuration of an image".to_owned();
        let mut config: Value = serde_json::from_str(&sent.record.config).doing(reading)?;
        config["rootfs"]["diff_ids"] = Value::Array(diff_ids);
        let mut keep = |bytes: Vec<u8>| {
            let digest = Sha256Digest::of(&bytes);
            let path = format!("{BLOBS}{}", digest.hex());
            let size = bytes.len();
            blobs
                .entry(path.clone())
                .or_insert_with(|| PlannedMember::of(path, bytes));
            (digest, size)
        };
        let (config, config_size) = keep(config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config,
                "size": config_size,
            },
            "layers": layers,
        });
        let (manifest, size) = keep(manifest.to_string().into_bytes());
        let descriptor = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": manifest,
            "size": size,
            "annotations": {"org.opencontainers.image.ref.name": image.reference},
        });
        Ok((config, descriptor))
    }

    /// Debian packages that the upmost layer with a status file says are installed; none where there is no such file.
    fn packages(&self, id: &Sha256Digest) -> Result<BTreeSet<InstalledPackage>, ImageError> {
        for layer in self.layers(id)? {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let root = rustix::fs::open(&layer, flags | OFlags::DIRECTORY, Mode::empty())
                .doing(|| "open a layer".to_owned())?;
            let status = rustix::fs::openat2(
                root.as_fd(),
                "var/lib/dpkg/status",
                flags | OFlags::NONBLOCK,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
            );
            // Behind a link, or removed by a later layer: the list says what could be read.
            let Ok(status) = status else {
                continue;
            };
            let mut text = Vec::new();
            File::from(status)
                .take(MAX_STATUS_BYTES)
                .read_to_end(&mut text)
                .doing(|| "read the packages of an image".to_owned())?;
            return Ok(debian_packages(&String::from_utf8_lossy(&text)));
        }
        Ok(BTreeSet::new())
    }
}

/// A bundle in a file that does not exist yet; on any error it is removed again.
///
/// Errors: `environment.file`, those of `write`.
pub fn into_new_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, ImageError>,
) -> Result<T, ImageError> {
    let unusable = |error: io::Error| refusals::environment_file(path.display(), error);
    let file = File::create_new(path).map_err(unusable)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = write(&mut out);
    let written = written.and_then(|done| {
        let kept = out.flush().and_then(|()| out.get_ref().sync_all());
        kept.map(|()| done).map_err(|error| unusable(error).into())
    });
    if written.is_err() {
        // Half a bundle is of no use; the reason matters more than what could not be removed.
        let _ = std::fs::remove_file(path);
    }
    written
}

/// The list of packages as SPDX 2.3; cut at what a bundle may hold.
fn sbom(
    name: &str,
    version: &str,
    images: &[(&str, Sha256Digest, BTreeSet<InstalledPackage>)],
) -> String {
    let mut listed = Vec::new();
    for (at, (reference, digest, packages)) in images.iter().enumerate() {
        listed.push(json!({
            "SPDXID": format!("SPDXRef-image-{at}"),
            "name": reference,
            "versionInfo": digest,
            "downloadLocation": "NOASSERTION",
        }));
        for (number, package) in packages.iter().enumerate() {
            listed.push(json!({
                "SPDXID": format!("SPDXRef-image-{at}-{number}"),
                "name": package.name,
                "versionInfo": package.version,
                "downloadLocation": "NOASSERTION",
            }));
        }
    }
    let written = |listed: &[Value]| {
        json!({
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": format!("{name}-{version}"),
            "documentNamespace": format!("urn:fardel:environment:{name}:{version}"),
            "packages": listed,
        })
        .to_string()
    };
    let text = written(&listed);
    if text.len() as u64 <= MAX_TEXT_BYTES {
        return text;
    }
    let fitting = listed.len() / (1 + text.len() / (MAX_TEXT_BYTES as usize));
    written(&listed[..fitting])
}

fn head(out: &mut dyn Write, name: &str, bytes: u64) -> Result<(), ImageError> {
    let writing = || "write a bundle".to_owned();
    let mut header = Header::new_gnu();
    header.set_path(name).doing(writing)?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    out.write_all(header.as_bytes()).doing(writing)
}

fn fill(out: &mut dyn Write, bytes: u64) -> Result<(), ImageError> {
    let over = bytes.next_multiple_of(BLOCK) - bytes;
    let zeros = [0; BLOCK as usize];
    out.write_all(&zeros[..usize::try_from(over).expect("less than a block")])
        .doing(|| "write a bundle".to_owned())
}

fn put(out: &mut dyn Write, name: &str, bytes: &[u8]) -> Result<(), ImageError> {
    head(out, name, bytes.len() as u64)?;
    out.write_all(bytes).doing(|| "write a bundle".to_owned())?;
    fill(out, bytes.len() as u64)
}

#[cfg(test)]
mod tests;
