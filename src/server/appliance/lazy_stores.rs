//! The bytes beside the rows: the image store, the uploads, the registry, the folders and the certificates, opened once and shared,
//! because each keeps in memory what its files cannot say.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::observe::Clock;
use base::settings::Settings;
use base::tls::TlsError;
use base::tls::keeper::Keeper;
use base::tls::names::HostNames;
use rules::refusal::Refusal;
use rules::refusals;
use store::folders::FolderStore;
use store::folders::failure::FolderError;
use store::images::ImageStore;
use store::images::failure::ImageError;
use store::images::limits::ImportLimits;
use store::quota::{CountingKeeper, ScopeKeeper};
use store::registry::{RegistryLimits, RegistryStore};
use store::uploads::{UploadError, UploadLimits, UploadStore};
use store::volumes::refusal_of;
use uuid::Uuid;

use crate::{Failure, ServerFault};

/// The stores of one data directory, opened at the first use.
#[derive(Default)]
pub(crate) struct LazyStores {
    images: Mutex<Option<Arc<ImageStore>>>,
    uploads: Mutex<Option<Arc<UploadStore>>>,
    registry: Mutex<Option<Arc<RegistryStore>>>,
    folders: Mutex<Option<Arc<FolderStore>>>,
    scopes: OnceLock<Arc<dyn ScopeKeeper>>,
    certificates: Mutex<Option<Arc<Keeper>>>,
}

impl LazyStores {
    /// The image store. Opening clears what a crash left.
    pub(crate) fn images(&self, data: &Path) -> Result<Arc<ImageStore>, Failure> {
        let mut opened = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(images) = &*opened {
            return Ok(Arc::clone(images));
        }
        let images = ImageStore::open(&image_directory(data), ImportLimits::default())
            .map_err(image_failure)?;
        Ok(Arc::clone(opened.insert(Arc::new(images))))
    }

    pub(crate) fn uploads(&self, data: &Path) -> Result<Arc<UploadStore>, Failure> {
        let mut opened = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uploads) = &*opened {
            return Ok(Arc::clone(uploads));
        }
        let uploads = UploadStore::open(&data.join("uploads"), UploadLimits::default())
            .map_err(upload_failure)?;
        Ok(Arc::clone(opened.insert(Arc::new(uploads))))
    }

    /// The blobs of the registry. Opening makes the place for them.
    pub(crate) fn registry(&self, data: &Path) -> Result<Arc<RegistryStore>, Failure> {
        let mut opened = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(registry) = &*opened {
            return Ok(Arc::clone(registry));
        }
        let place = registry_directory(data);
        let registry =
            RegistryStore::open(&place, RegistryLimits::default()).map_err(upload_failure)?;
        Ok(Arc::clone(opened.insert(Arc::new(registry))))
    }

    /// The same where something was ever kept there.
    pub(crate) fn known_registry(
        &self,
        data: &Path,
    ) -> Result<Option<Arc<RegistryStore>>, Failure> {
        match registry_directory(data).exists() {
            true => self.registry(data).map(Some),
            false => Ok(None),
        }
    }

    /// Has folders held to limits from now on; counts from before they are opened.
    pub(crate) fn bring_scopes(&self, keeper: Arc<dyn ScopeKeeper>) {
        // A second one would be a second start of the same server, which does not happen.
        let _ = self.scopes.set(keeper);
    }

    /// Whether folders are held to limits by what was brought.
    pub(crate) fn has_scopes(&self) -> bool {
        self.scopes.get().is_some()
    }

    /// The directories of folders of a site. Opening makes the place for them.
    pub(crate) fn folders(&self, data: &Path, site: Uuid) -> Result<Arc<FolderStore>, Failure> {
        let mut opened = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folders) = &*opened {
            return Ok(Arc::clone(folders));
        }
        let keeper: Arc<dyn ScopeKeeper> = match self.scopes.get() {
            Some(keeper) => Arc::clone(keeper),
            None => Arc::new(CountingKeeper),
        };
        let folders = FolderStore::limited(data, keeper).map_err(folder_failure)?;
        folders.be_site(site);
        Ok(Arc::clone(opened.insert(Arc::new(folders))))
    }

    /// The certificates. Opening makes what is missing.
    pub(crate) fn certificates(
        &self,
        settings: &Settings,
        clock: &Clock,
    ) -> Result<Arc<Keeper>, Failure> {
        let mut opened = self
            .certificates
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = &*opened {
            return Ok(Arc::clone(keeper));
        }
        let names = HostNames::of_this_machine().with_apps(settings.apps_name.as_deref());
        let folder = settings.data.join("tls");
        let keeper = Keeper::open(&folder, clock.clone(), names).map_err(tls_failure)?;
        Ok(Arc::clone(opened.insert(Arc::new(keeper))))
    }
}

/// Where the images of a data directory lie.
pub(crate) fn image_directory(data: &Path) -> PathBuf {
    data.join("images")
}

/// Where the blobs of the registry lie.
fn registry_directory(data: &Path) -> PathBuf {
    data.join("registry")
}

pub(crate) fn tls_failure(error: TlsError) -> Failure {
    match error {
        TlsError::Refused(refusal) => Failure::Refusal(*refusal),
        fault @ TlsError::Fault { .. } => ServerFault::new("keep certificates", fault).into(),
    }
}

pub(crate) fn image_failure(error: ImageError) -> Failure {
    match error {
        ImageError::Refused(refusal) => Failure::Refusal(*refusal),
        fault @ ImageError::Fault(_) => ServerFault::new("keep images", fault).into(),
    }
}

pub(crate) fn upload_failure(error: UploadError) -> Failure {
    match error {
        UploadError::Refused(refusal) => Failure::Refusal(renamed(*refusal)),
        fault @ UploadError::Fault { .. } => ServerFault::new("keep an upload", fault).into(),
    }
}

pub(crate) fn folder_failure(error: io::Error) -> Failure {
    if let Some(refusal) = refusal_of(&error) {
        return refusal.into();
    }
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => refusals::disk_full().into(),
        io::ErrorKind::ReadOnlyFilesystem => refusals::disk_read_only().into(),
        _ => ServerFault::new("keep a folder", error).into(),
    }
}

pub(crate) fn folder_error(error: FolderError) -> Failure {
    match error {
        FolderError::Refused(refusal) => (*refusal).into(),
        FolderError::Fault { what, source } => ServerFault::new(what, source).into(),
    }
}

/// A full disk has one code everywhere.
fn renamed(refusal: Refusal) -> Refusal {
    match refusal.code.as_str() {
        rules::codes::UPLOAD_DISK_FULL | rules::codes::IMAGE_DISK_FULL => Refusal {
            code: rules::codes::DISK_FULL.to_owned(),
            ..refusal
        },
        _ => refusal,
    }
}
