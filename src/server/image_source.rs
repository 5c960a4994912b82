//! Gives the images of this server's store to nodes that lack them, over the link. Sends only what a node
//! asks for by digest, a few layers at a time; decides nothing about who runs where.

use std::io::{self, Write};
use std::sync::Arc;

use base::link::images::{ImageBytes, ImageSource};
use base::link::streams::BoxFuture;
use base::observe::chain;
use bytes::Bytes;
use rules::refusal::Refusal;
use rules::refusals;
use store::images::ImageStore;
use store::images::digest::Sha256Digest;
use store::images::failure::ImageError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::Server;

/// Manifests and layers in work at the same time, each on a thread of its own. Higher: nodes that fetch
/// together starve the disk. Lower: a node waits though the network has room.
const MAX_CONCURRENT_SENDS: usize = 8;
/// Bytes sent at once. Larger: more memory for each layer on its way. Smaller: more wake-ups.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks of one layer that wait for the node. Higher: more memory. Lower: disk and network take turns.
const MAX_WAITING_CHUNKS: usize = 4;

/// The images of a server as its nodes get them.
pub struct StoredImages {
    server: Server,
    sends: Arc<Semaphore>,
}

impl StoredImages {
    /// The images of this server's store. Opens nothing yet.
    pub fn of(server: &Server) -> Self {
        Self {
            server: server.clone(),
            sends: Arc::new(Semaphore::new(MAX_CONCURRENT_SENDS)),
        }
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = Arc::clone(&self.sends).try_acquire_owned();
        permit.map_err(|_| refusals::image_sends_busy(MAX_CONCURRENT_SENDS))
    }
}

impl ImageSource for StoredImages {
    fn manifest(&self, image: String) -> BoxFuture<Bytes> {
        let (permit, server) = (self.permit(), self.server.clone());
        Box::pin(async move {
            let permit = permit?;
            on_thread(move || {
                let _permit = permit;
                let id = digest(&image)?;
                let manifest = store(&server)?.transfer_manifest(&id).map_err(refused)?;
                let bytes = serde_json::to_vec(&manifest).map_err(|error| failed(&error))?;
                Ok(Bytes::from(bytes))
            })
            .await
        })
    }

    fn layer(&self, image: String, layer: String, offset: u64) -> BoxFuture<ImageBytes> {
        let (permit, server) = (self.permit(), self.server.clone());
        Box::pin(async move {
            let permit = permit?;
            let (id, key) = (digest(&image)?, digest(&layer)?);
            let (send, chunks) = mpsc::channel(MAX_WAITING_CHUNKS);
            begin(move || {
                let _permit = permit;
                let mut chunks = ChunkWriter {
                    waiting: Vec::with_capacity(CHUNK_BYTES),
                    send,
                };
                let sent = store(&server).and_then(|images| {
                    images
                        .send_layer(&id, &key, offset, &mut chunks)
                        .map_err(refused)
                });
                let sent = sent.and_then(|()| chunks.flush().map_err(|error| failed(&error)));
                if let Err(refusal) = sent {
                    // The node sees that bytes are missing and asks again.
                    tracing::info!(
                        layer = key.short(),
                        code = refusal.code,
                        "a layer was not sent to its end"
                    );
                }
            })?;
            Ok(ImageBytes { chunks })
        })
    }

    fn kept(&self, images: Vec<String>) -> BoxFuture<Vec<String>> {
        let server = self.server.clone();
        Box::pin(on_thread(move || {
            let store = store(&server)?;
            let mut kept = Vec::new();
            for image in images {
                match digest(&image).map(|id| store.image(&id)) {
                    Ok(Err(error)) if error.code() == Some(rules::codes::IMAGE_NOT_FOUND) => {}
                    Ok(Err(error)) => return Err(refused(error)),
                    Ok(Ok(_)) => kept.push(image),
                    Err(_) => {}
                }
            }
            Ok(kept)
        }))
    }
}

/// Collects written bytes into chunks; waits while the node has enough of them.
struct ChunkWriter {
    waiting: Vec<u8>,
    send: mpsc::Sender<Bytes>,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.waiting, Vec::with_capacity(CHUNK_BYTES));
        let sent = self.send.blocking_send(Bytes::from(chunk));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn begin(work: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
    let begun = std::thread::Builder::new()
        .name("image-send".to_owned())
        .spawn(work);
    begun.map(drop).map_err(|error| failed(&error))
}

async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let (tell, told) = oneshot::channel();
    begin(move || {
        // The caller may have given up.
        let _ = tell.send(work());
    })?;
    told.await.map_err(|error| failed(&error))?
}

fn digest(text: &str) -> Result<Sha256Digest, Refusal> {
    Sha256Digest::parse(text).ok_or_else(|| refusals::image_not_stored(text))
}

fn store(server: &Server) -> Result<Arc<ImageStore>, Refusal> {
    server.image_store().map_err(|failure| match failure {
        crate::Failure::Refusal(refusal) => refusal,
        fault => failed(&fault),
    })
}

fn refused(error: ImageError) -> Refusal {
    match error {
        ImageError::Refused(refusal) => *refusal,
        fault => failed(&fault),
    }
}

/// A fault of the server: the log has all of it, the node learns that this try was in vain.
fn failed(fault: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::warn!(error = %chain(fault), "an image cannot be sent to a node");
    refusals::image_send_failed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_sends_so_many_images_and_layers_at_once() {
        let source = StoredImages::of(&Server::for_tests());
        let image = Sha256Digest::of(b"no image").to_string();
        let mut asked: Vec<_> = (1..MAX_CONCURRENT_SENDS)
            .map(|_| source.manifest(image.clone()))
            .collect();
        let _layer = source.layer(image.clone(), image.clone(), 0);
        let refused = source.manifest(image.clone()).await.unwrap_err();
        assert_eq!(refused.code, "image.sends-busy");
        // One that is over, or that is given up, makes room for the next.
        drop(asked.pop());
        let again = source.manifest(image.clone()).await;
        assert_ne!(again.unwrap_err().code, "image.sends-busy");
    }
}
