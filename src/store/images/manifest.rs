//! Finds the images inside an archive: OCI layouts (also docker 25 and later, whose archives are
//! both) by `index.json`, older docker-archives by `manifest.json`. Checks the digests and sizes of
//! every document it reads; never reads a layer.
//!
//! Rules: OCI image specification 1.1, "Image Layout", "Image Index", "Image Manifest"; Docker image
//! specification 1.2, "Combined Image JSON + Filesystem Changeset Format".

use std::collections::{BTreeSet, HashMap};

use rules::refusals;
use serde::Deserialize;

use super::archive::ArchiveSource;
use super::config::own_architecture;
use super::digest::Sha256Digest;
use super::failure::{ImageError, shown};
use super::limits::ImportLimits;

/// Documents read for one archive; an index may point at indexes.
const DOCUMENTS: usize = 1024;
/// Indexes inside indexes.
const NESTING: usize = 4;

/// One image of an archive, its configuration read and its layers named.
#[derive(Debug)]
pub(super) struct ImagePlan {
    pub(super) id: Sha256Digest,
    pub(super) config: Vec<u8>,
    /// Names as the archive gives them: `name:tag`, `registry/name:tag`, or a bare tag.
    pub(super) references: BTreeSet<String>,
    /// Bottom first.
    pub(super) layers: Vec<LayerPlan>,
}

/// Where a layer lies and what was declared about it.
#[derive(Debug, Clone)]
pub(super) struct LayerPlan {
    pub(super) member: String,
    pub(super) blob: Option<Sha256Digest>,
    pub(super) size: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// An index has `manifests`, a manifest has `config` and `layers`; media types are not relied on.
#[derive(Deserialize)]
struct IndexOrManifest {
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    #[serde(default)]
    config: Option<String>,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// Lists the images of an archive, at least one, each once.
///
/// Refuses `image.no-manifest`, `image.missing-blob`, `image.digest-mismatch`,
/// `image.size-mismatch`, `image.architecture` (none of a many-machine image is ours).
pub(super) fn plans(
    source: &ArchiveSource,
    limits: &ImportLimits,
) -> Result<Vec<ImagePlan>, ImageError> {
    let docker = match source.document("manifest.json", limits)? {
        Some(bytes) => Some(parse::<Vec<DockerImage>>(&bytes, "manifest.json")?),
        None => None,
    };
    let plans = match (source.document("index.json", limits)?, docker) {
        (Some(bytes), docker) => {
            let mut plans = oci(source, &parse(&bytes, "index.json")?, limits)?;
            name_from_docker(&mut plans, docker.as_deref().unwrap_or_default());
            plans
        }
        (None, Some(images)) => docker_archive(source, &images, limits)?,
        (None, None) => return Err(no_manifest(source)?),
    };
    for plan in &plans {
        if plan.layers.len() > limits.layers {
            return Err(refusals::image_too_many_layers(plan.layers.len(), limits.layers).into());
        }
    }
    Ok(plans)
}

fn no_manifest(source: &ArchiveSource) -> Result<ImageError, ImageError> {
    Ok(if source.has("repositories")? {
        refusals::image_of_an_old_engine()
    } else if source.looks_like_a_root() {
        refusals::image_is_a_root()
    } else {
        refusals::image_no_manifest()
    }
    .into())
}

fn oci(
    source: &ArchiveSource,
    top: &IndexOrManifest,
    limits: &ImportLimits,
) -> Result<Vec<ImagePlan>, ImageError> {
    let mut walk = Walk {
        source,
        limits,
        plans: Vec::new(),
        foreign: BTreeSet::new(),
        documents: 0,
    };
    walk.index(top, &BTreeSet::new(), 0)?;
    let Walk { plans, foreign, .. } = walk;
    if !plans.is_empty() {
        return Ok(plans);
    }
    if foreign.is_empty() {
        return Err(refusals::image_index_empty().into());
    }
    let theirs = foreign.into_iter().collect::<Vec<_>>().join(", ");
    Err(refusals::image_architectures(&theirs, own_architecture()).into())
}

struct Walk<'a> {
    source: &'a ArchiveSource,
    limits: &'a ImportLimits,
    plans: Vec<ImagePlan>,
    /// Machines that were passed over, as text for the refusal.
    foreign: BTreeSet<String>,
    documents: usize,
}

impl Walk<'_> {
    fn index(
        &mut self,
        index: &IndexOrManifest,
        names: &BTreeSet<String>,
        depth: usize,
    ) -> Result<(), ImageError> {
        if depth > NESTING {
            return Err(bad("Indexes of the archive are nested too deeply.".into()));
        }
        for descriptor in index.manifests.iter().flatten() {
            if is_attestation(descriptor) {
                continue;
            }
            if let Some(platform) = &descriptor.platform {
                let given = !platform.architecture.is_empty();
                let ours = platform.architecture == own_architecture() && platform.os == "linux";
                if given && !ours {
                    self.foreign.insert(format!(
                        "{}/{}",
                        shown(platform.os.as_bytes()),
                        shown(platform.architecture.as_bytes())
                    ));
                    continue;
                }
            }
            let mut names = names.clone();
            names.extend(annotated_name(descriptor));
            self.document(descriptor, &names, depth)?;
        }
        Ok(())
    }

    fn document(
        &mut self,
        descriptor: &Descriptor,
        names: &BTreeSet<String>,
        depth: usize,
    ) -> Result<(), ImageError> {
        self.documents += 1;
        if self.documents > DOCUMENTS {
            return Err(bad(format!(
                "The archive lists more than {DOCUMENTS} manifests."
            )));
        }
        let bytes = blob(self.source, descriptor, "manifest", self.limits)?;
        let document: IndexOrManifest = parse(&bytes, &descriptor.digest)?;
        let (config, layers) = match (&document.config, &document.layers) {
            (Some(config), Some(layers)) => (config, layers),
            _ if document.manifests.is_some() => return self.index(&document, names, depth + 1),
            _ => {
                return Err(bad(format!(
                    "{} is neither an index nor a manifest.",
                    shown(descriptor.digest.as_bytes())
                )));
            }
        };
        let id = digest(&config.digest)?;
        if let Some(known) = self.plans.iter_mut().find(|plan| plan.id == id) {
            known.references.extend(names.iter().cloned());
            return Ok(());
        }
        if self.plans.len() >= self.limits.images {
            return Err(bad(format!(
                "The archive holds more than {} images.",
                self.limits.images
            )));
        }
        let config = blob(self.source, config, "configuration", self.limits)?;
        let mut planned = Vec::new();
        for layer in layers {
            if layer.media_type.contains("+encrypted") {
                return Err(refusals::image_encrypted().into());
            }
            let blob = digest(&layer.digest)?;
            planned.push(LayerPlan {
                member: member_of(&blob),
                blob: Some(blob),
                size: Some(layer.size),
            });
        }
        self.plans.push(ImagePlan {
            id,
            config,
            references: names.clone(),
            layers: planned,
        });
        Ok(())
    }
}

/// Build records that docker keeps beside an image; no image themselves.
fn is_attestation(descriptor: &Descriptor) -> bool {
    descriptor.annotations.as_ref().is_some_and(|a| {
        a.get("vnd.docker.reference.type")
            .is_some_and(|kind| kind == "attestation-manifest")
    })
}

/// The fullest name an index gives to an image: containerd's own annotation holds the whole
/// reference where the standard one holds the tag only.
fn annotated_name(descriptor: &Descriptor) -> Option<String> {
    let annotations = descriptor.annotations.as_ref()?;
    [
        "io.containerd.image.name",
        "org.opencontainers.image.ref.name",
    ]
    .iter()
    .find_map(|key| annotations.get(*key))
    .filter(|name| sane_name(name))
    .cloned()
}

fn sane_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 512 && name.bytes().all(|b| b.is_ascii_graphic())
}

fn docker_archive(
    source: &ArchiveSource,
    images: &[DockerImage],
    limits: &ImportLimits,
) -> Result<Vec<ImagePlan>, ImageError> {
    if images.len() > limits.images {
        return Err(bad(format!(
            "The archive holds more than {} images.",
            limits.images
        )));
    }
    let mut plans: Vec<ImagePlan> = Vec::new();
    for image in images {
        let name = image
            .config
            .as_deref()
            .ok_or_else(|| bad("manifest.json names no configuration.".into()))?;
        let config = source
            .document(name, limits)?
            .ok_or_else(|| missing(name, "configuration"))?;
        let id = Sha256Digest::of(&config);
        if let Some(declared) = digest_in_name(name)
            && declared != id
        {
            return Err(mismatch("configuration", &declared, &id));
        }
        let names = docker_names(image);
        if let Some(known) = plans.iter_mut().find(|plan| plan.id == id) {
            known.references.extend(names);
            continue;
        }
        let layers = image.layers.iter().flatten().map(|member| LayerPlan {
            member: member.clone(),
            blob: member
                .strip_prefix("blobs/sha256/")
                .and_then(Sha256Digest::from_hex),
            size: None,
        });
        plans.push(ImagePlan {
            id,
            config,
            references: names,
            layers: layers.collect(),
        });
    }
    if plans.is_empty() {
        return Err(bad("manifest.json lists no image.".into()));
    }
    Ok(plans)
}

fn docker_names(image: &DockerImage) -> BTreeSet<String> {
    let names = image.repo_tags.iter().flatten();
    names.filter(|name| sane_name(name)).cloned().collect()
}

/// An archive of docker 25 and later is both: its index says `docker.io/library/tiny:1` or just
/// `1`, `manifest.json` says `tiny:1` as the person did.
fn name_from_docker(plans: &mut [ImagePlan], images: &[DockerImage]) {
    for image in images {
        let Some(id) = image.config.as_deref().and_then(digest_in_name) else {
            continue;
        };
        let names = docker_names(image);
        for plan in plans
            .iter_mut()
            .filter(|plan| plan.id == id && !names.is_empty())
        {
            plan.references.clone_from(&names);
        }
    }
}

/// `<hex>.json` and `blobs/sha256/<hex>` carry the digest of the configuration in their names.
fn digest_in_name(name: &str) -> Option<Sha256Digest> {
    let last = name.rsplit('/').next()?;
    let last = last.strip_suffix(".json").unwrap_or(last);
    Sha256Digest::from_hex(last.strip_prefix("sha256:").unwrap_or(last))
}

fn member_of(blob: &Sha256Digest) -> String {
    format!("blobs/sha256/{}", blob.hex())
}

/// Reads a document by its descriptor and holds it to the declared size and digest.
fn blob(
    source: &ArchiveSource,
    descriptor: &Descriptor,
    what: &str,
    limits: &ImportLimits,
) -> Result<Vec<u8>, ImageError> {
    let declared = digest(&descriptor.digest)?;
    let bytes = source
        .document(&member_of(&declared), limits)?
        .ok_or_else(|| missing(&declared.to_string(), what))?;
    if bytes.len() as u64 != descriptor.size {
        return Err(wrong_size(what, descriptor.size, bytes.len() as u64));
    }
    let real = Sha256Digest::of(&bytes);
    if real != declared {
        return Err(mismatch(what, &declared, &real));
    }
    Ok(bytes)
}

fn digest(text: &str) -> Result<Sha256Digest, ImageError> {
    Sha256Digest::parse(text).ok_or_else(|| {
        bad(format!(
            "{} is not a sha256 digest.",
            shown(text.as_bytes())
        ))
    })
}

fn parse<T: for<'de> Deserialize<'de>>(bytes: &[u8], name: &str) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| {
        bad(format!(
            "{} cannot be read: {error}.",
            shown(name.as_bytes())
        ))
    })
}

fn bad(text: String) -> ImageError {
    refusals::image_bad_manifest(text).into()
}

pub(super) fn missing(name: &str, what: &str) -> ImageError {
    refusals::image_missing_blob(what, shown(name.as_bytes())).into()
}

pub(super) fn mismatch(what: &str, declared: &Sha256Digest, real: &Sha256Digest) -> ImageError {
    refusals::image_digest_mismatch(what, declared, real).into()
}

pub(super) fn wrong_size(what: &str, declared: u64, real: u64) -> ImageError {
    refusals::image_size_mismatch(what, declared, real).into()
}
