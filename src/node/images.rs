//! The images of this node: whether one is here, and the fetch from the server where it is not, one for each
//! digest and off the reconciler's thread. Images that the server has no more leave the node once no container
//! uses them. Where the node shares the server's own directory, all of that is done by the server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::link::images::ImageSource;
use base::observe::chain;
use rules::reason::Reason;
use rules::reasons;
use store::images::ImageStore;
use store::images::digest::Sha256Digest;
use store::images::failure::ImageError;
use store::images::limits::ImportLimits;

mod fetch;

/// Images fetched at the same time. Higher: unpacking starves running sessions of disk. Lower: a small image
/// waits behind a large one.
const MAX_CONCURRENT_FETCHES: usize = 2;
/// How long a fetch that failed refuses sessions from that image without another try. Longer: an image that
/// could be fetched now is refused. Shorter: many sessions of one image fetch it in vain one after the other.
const FAILURE_RETENTION: Duration = Duration::from_secs(10);

/// Where the images of a node lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageDirectory {
    /// In the directory of the server on the same machine: what it has is here.
    Shared(PathBuf),
    /// In a directory of the node's own.
    Own(PathBuf),
}

/// Whether a container's image is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImageNeed {
    Ready,
    /// It is on its way; the bell rings when that is over.
    Fetching,
    Failed(Reason),
}

/// The image store of a node, and what is under way in it.
pub(crate) struct NodeImages {
    store: Arc<ImageStore>,
    is_shared: bool,
    source: Arc<dyn ImageSource>,
    works: Arc<Mutex<ImageWorks>>,
    bell: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct ImageWorks {
    by_image: BTreeMap<Sha256Digest, ImageWork>,
    /// Images that were said to be ready since the last sweep began.
    given: BTreeSet<Sha256Digest>,
    is_sweeping: bool,
}

enum ImageWork {
    /// Set from here, the flag ends it.
    Fetching(Arc<AtomicBool>),
    Removing,
    Failed {
        reason: Reason,
        until: Instant,
    },
}

impl NodeImages {
    /// Opens the images; `bell` is rung from other threads whenever a fetch or a removal is over.
    pub(crate) fn open(
        directory: &ImageDirectory,
        source: Arc<dyn ImageSource>,
        bell: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, ImageError> {
        let limits = ImportLimits::default();
        let store = match directory {
            ImageDirectory::Shared(root) => ImageStore::open_shared(root, limits)?,
            ImageDirectory::Own(root) => ImageStore::open(root, limits)?,
        };
        Ok(Self {
            store: Arc::new(store),
            is_shared: matches!(directory, ImageDirectory::Shared(_)),
            source,
            works: Arc::default(),
            bell: Arc::new(bell),
        })
    }

    /// What is here.
    pub(crate) fn store(&self) -> &ImageStore {
        &self.store
    }

    /// Whether this image is here; begins to fetch it where it is not and nothing stands in the way. An image
    /// that was said to be ready stays until `sweep` is told that nothing uses it.
    ///
    /// Costs nothing in a shared directory, else a read of one small file.
    pub(crate) fn need(&self, image: &Sha256Digest) -> ImageNeed {
        if self.is_shared {
            return ImageNeed::Ready;
        }
        let mut works = locked(&self.works);
        match works.by_image.get(image) {
            Some(ImageWork::Fetching(_) | ImageWork::Removing) => return ImageNeed::Fetching,
            Some(ImageWork::Failed { reason, until }) if *until > Instant::now() => {
                return ImageNeed::Failed(reason.clone());
            }
            _ => {}
        }
        if self.store.image(image).is_ok() {
            works.by_image.remove(image);
            works.given.insert(image.clone());
            return ImageNeed::Ready;
        }
        let fetching = |work: &&ImageWork| matches!(work, ImageWork::Fetching(_));
        if works.by_image.values().filter(fetching).count() >= MAX_CONCURRENT_FETCHES {
            return ImageNeed::Fetching;
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        match self.begin_fetch(image.clone(), Arc::clone(&cancelled)) {
            Ok(()) => {
                let work = ImageWork::Fetching(cancelled);
                works.by_image.insert(image.clone(), work);
                ImageNeed::Fetching
            }
            Err(error) => ImageNeed::Failed(reasons::image_fetch_failed(&error)),
        }
    }

    /// Ends fetches of images that no container wants any more.
    pub(crate) fn retain(&self, wanted: &BTreeSet<Sha256Digest>) {
        for (image, work) in &locked(&self.works).by_image {
            if let (ImageWork::Fetching(cancelled), false) = (work, wanted.contains(image)) {
                cancelled.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Asks the server which of the images here it still has, and removes the others but `used`, all on a
    /// thread of its own. Does nothing in a shared directory or while an earlier sweep goes on.
    pub(crate) fn sweep(&self, used: &BTreeSet<Sha256Digest>) {
        if self.is_shared {
            return;
        }
        let mut works = locked(&self.works);
        if works.is_sweeping {
            return;
        }
        works.given.clear();
        let unused: Vec<Sha256Digest> = match self.store.list() {
            Ok(records) => records
                .into_iter()
                .map(|record| record.id)
                .filter(|id| !used.contains(id))
                .collect(),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the images of this node cannot be listed");
                return;
            }
        };
        if unused.is_empty() {
            return;
        }
        let (store, source) = (Arc::clone(&self.store), Arc::clone(&self.source));
        let (shared, bell) = (Arc::clone(&self.works), Arc::clone(&self.bell));
        let begun = std::thread::Builder::new()
            .name("image-sweep".to_owned())
            .spawn(move || {
                match fetch::removed_on_server(&source, &unused) {
                    Ok(gone) => remove(&store, &shared, gone),
                    Err(why) => tracing::debug!(why, "the server does not say which images it has"),
                }
                locked(&shared).is_sweeping = false;
                bell();
            });
        match begun {
            Ok(_) => works.is_sweeping = true,
            Err(error) => tracing::warn!(%error, "images cannot be swept now"),
        }
    }

    fn begin_fetch(
        &self,
        image: Sha256Digest,
        cancelled: Arc<AtomicBool>,
    ) -> Result<(), std::io::Error> {
        let (store, source) = (Arc::clone(&self.store), Arc::clone(&self.source));
        let (works, bell) = (Arc::clone(&self.works), Arc::clone(&self.bell));
        let thread = std::thread::Builder::new().name("image-fetch".to_owned());
        let begun = thread.spawn(move || {
            tracing::info!(image = image.short(), "fetching an image from the server");
            let fetched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                fetch::fetch(&store, source, &image, &cancelled)
            }))
            .unwrap_or_else(|_| Err(reasons::image_fetch_failed("it panicked")));
            let mut works = locked(&works);
            works.by_image.remove(&image);
            match fetched {
                Ok(()) => tracing::info!(image = image.short(), "the image is here"),
                Err(reason) if cancelled.load(Ordering::Relaxed) => {
                    tracing::info!(image = image.short(), reason = reason.text, "not fetched");
                }
                Err(reason) => {
                    tracing::warn!(image = image.short(), reason = reason.text, "not fetched");
                    let until = Instant::now() + FAILURE_RETENTION;
                    let failed = ImageWork::Failed { reason, until };
                    works.by_image.insert(image, failed);
                }
            }
            drop(works);
            bell();
        });
        begun.map(drop)
    }
}

impl Drop for NodeImages {
    fn drop(&mut self) {
        self.retain(&BTreeSet::new());
    }
}

/// Removes images, but those that were given to a container since the sweep began.
fn remove(store: &ImageStore, works: &Mutex<ImageWorks>, gone: Vec<Sha256Digest>) {
    for image in gone {
        {
            let mut works = locked(works);
            if works.given.contains(&image) || works.by_image.contains_key(&image) {
                continue;
            }
            works.by_image.insert(image.clone(), ImageWork::Removing);
        }
        match store.remove(&image) {
            Ok(removed) => tracing::info!(
                image = image.short(),
                bytes = removed.bytes,
                "removed an image that the server has no more"
            ),
            Err(error) => {
                tracing::warn!(image = image.short(), error = %chain(&error), "an image cannot be removed");
            }
        }
        locked(works).by_image.remove(&image);
    }
}

fn locked(works: &Mutex<ImageWorks>) -> MutexGuard<'_, ImageWorks> {
    // Changed by single inserts and removals only: a panic leaves it whole.
    works.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
