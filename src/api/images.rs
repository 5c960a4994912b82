//! Uploads and the import of an archive. An image itself is `rules::image::CatalogImage`.

use std::path::PathBuf;

use rules::image_limits::ImageLimits;
use rules::names::UploadId;
use rules::process_limits::ProcessLimits;
use rules::refusal::Refusal;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One upload under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Upload)]
pub struct UploadView {
    #[schema(value_type = String, format = Uuid)]
    pub id: UploadId,
    /// The file's name as the user knows it.
    pub name: String,
    /// Bytes there will be.
    pub size: u64,
    /// Bytes that have come.
    pub offset: u64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it is forgotten unless a byte comes.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

/// Where an archive comes from: one of `upload` and, for root on the machine, `path`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ImportRequest)]
#[serde(deny_unknown_fields)]
pub struct ImportBody {
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub upload: Option<UploadId>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub path: Option<PathBuf>,
    /// What to call it, `name:tag`; otherwise as the archive says.
    #[serde(default)]
    pub reference: Option<String>,
}

/// An image of another registry, to be pulled.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ImagePull)]
#[serde(deny_unknown_fields)]
pub struct ImagePullBody {
    /// `HOST/NAME:TAG` or `HOST/NAME@sha256:…`.
    pub image: String,
    /// What to call it, `name:tag`; otherwise its name there without the host.
    #[serde(default)]
    pub reference: Option<String>,
}

/// Limits of an image in the place of those of its labels; what is left out or null has no bound.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewImageLimits)]
#[serde(default, deny_unknown_fields)]
pub struct NewImageLimitsBody {
    /// Its labels say its limits again; all else is left out then.
    pub of_labels: bool,
    /// Cores.
    #[schema(value_type = Option<f64>)]
    pub min_cpu: Option<CpuShare>,
    #[schema(value_type = Option<f64>)]
    pub max_cpu: Option<CpuShare>,
    /// Bytes.
    #[schema(value_type = Option<u64>)]
    pub min_memory: Option<Bytes>,
    #[schema(value_type = Option<u64>)]
    pub max_memory: Option<Bytes>,
    /// Devices.
    #[schema(value_type = Option<f64>)]
    pub min_gpu: Option<GpuShare>,
    /// 0: it takes none.
    #[schema(value_type = Option<f64>)]
    pub max_gpu: Option<GpuShare>,
    /// Bytes of /dev/shm where a launch names none.
    #[schema(value_type = Option<u64>)]
    pub shm: Option<Bytes>,
    /// What processes may have more than is usual where a launch says nothing of it, such as `memlock=unlimited,stack=64m`.
    #[schema(
        pattern = "^(|default|memlock=unlimited(,stack=[1-9][0-9]{0,2}m)?|stack=[1-9][0-9]{0,2}m)$"
    )]
    pub ulimits: String,
}

impl NewImageLimitsBody {
    /// What it gives; None: what the labels say.
    ///
    /// Errors: `ulimits.invalid`.
    pub fn limits(&self) -> Result<Option<ImageLimits>, Refusal> {
        let Self {
            of_labels,
            min_cpu,
            max_cpu,
            min_memory,
            max_memory,
            min_gpu,
            max_gpu,
            shm,
            ref ulimits,
        } = *self;
        let ulimits = ProcessLimits::parse(ulimits).map_err(|refusal| refusal.at("/ulimits"))?;
        Ok((!of_labels).then_some(ImageLimits {
            min_cpu,
            max_cpu,
            min_memory,
            max_memory,
            min_gpu,
            max_gpu,
            shm,
            ulimits,
        }))
    }
}
