//! One fetch of an image over the link: its manifest, then the layers that the store lacks. A stream that
//! breaks off is opened again at the byte that was reached, until the server has sent nothing for long. Blocks
//! its thread; knows neither containers nor assignments.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::link::images::{ImageBytes, ImageSource};
use base::observe::chain;
use bytes::Bytes;
use rules::reason::Reason;
use rules::reasons;
use rules::refusal::{Refusal, RefusalKind};
use store::images::ImageStore;
use store::images::digest::Sha256Digest;
use store::images::failure::ImageError;
use store::images::transfer::MAX_TRANSFER_MANIFEST_BYTES;
use tokio::runtime::Runtime;

/// How long a fetch goes on though the server sends nothing. Longer: a session waits for a server that will not
/// come back. Shorter: a server that is upgraded ends the sessions that wait.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a manifest may take: the server reads every layer once for the first node that asks.
const MANIFEST_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long a stream may bring nothing before it counts as broken, and an answer may take that needs no work.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The first pause before a stream is opened again; each further one in vain is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest of these pauses. Longer: a fetch sleeps though the server is back. Shorter: many nodes ask a
/// server that starts.
const LAST_PAUSE: Duration = Duration::from_secs(15);
/// How often a fetch that waits looks whether it is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Fetches an image and puts it into the store. Costs its bytes once; nothing is kept of a fetch that fails.
///
/// Errors: `image.missing` where the server does not have it, `image.fetch-failed` with the cause.
pub(super) fn fetch(
    store: &ImageStore,
    source: Arc<dyn ImageSource>,
    image: &Sha256Digest,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), Reason> {
    let link = Rc::new(FetchLink {
        runtime: runtime().map_err(|error| reasons::image_fetch_failed(&error))?,
        source,
        cancelled: Arc::clone(cancelled),
        last_answer: Cell::new(Instant::now()),
        pause: Cell::new(FIRST_PAUSE),
        failure: RefCell::default(),
    });
    let manifest = link.manifest(image)?;
    let mut open = |layer: &store::images::transfer::PackedLayer| -> Box<dyn Read> {
        Box::new(LayerReader {
            link: Rc::clone(&link),
            image: image.to_string(),
            layer: layer.key.to_string(),
            at: 0,
            length: layer.bytes,
            stream: None,
            chunk: Bytes::new(),
        })
    };
    let received = store.receive(image, &manifest, &mut open, cancelled);
    received.map(drop).map_err(|error| {
        // Why bytes stopped coming says more than that they are not all there.
        let failure = link.failure.borrow_mut().take();
        failure.unwrap_or_else(|| match error {
            ImageError::Refused(refusal) => reasons::image_fetch_failed(&refusal.text),
            fault @ ImageError::Fault(_) => reasons::image_fetch_failed(chain(&fault)),
        })
    })
}

/// Those of these images that the server does not have. Errors: why it does not say.
pub(super) fn removed_on_server(
    source: &Arc<dyn ImageSource>,
    images: &[Sha256Digest],
) -> Result<Vec<Sha256Digest>, String> {
    let runtime = runtime().map_err(|error| error.to_string())?;
    let asked = images.iter().map(ToString::to_string).collect();
    let answer =
        runtime.block_on(async { tokio::time::timeout(STALL_TIMEOUT, source.kept(asked)).await });
    let kept = answer
        .map_err(|late| late.to_string())?
        .map_err(|refusal| refusal.text)?;
    let is_gone = |image: &&Sha256Digest| !kept.contains(&image.to_string());
    Ok(images.iter().filter(is_gone).cloned().collect())
}

/// What a thread waits with; nothing else runs on it.
fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
}

/// The server as one fetch sees it.
struct FetchLink {
    runtime: Runtime,
    source: Arc<dyn ImageSource>,
    cancelled: Arc<AtomicBool>,
    /// When it sent something last.
    last_answer: Cell<Instant>,
    pause: Cell<Duration>,
    /// Why the fetch is over, where a reader found out.
    failure: RefCell<Option<Reason>>,
}

impl FetchLink {
    fn manifest(&self, image: &Sha256Digest) -> Result<Bytes, Reason> {
        loop {
            let asked = self.source.manifest(image.to_string());
            let bytes = match self.wait(asked, MANIFEST_TIMEOUT) {
                Some(Ok(bytes)) => bytes,
                Some(Err(refusal)) => {
                    self.try_again(Some(refusal))?;
                    continue;
                }
                None => {
                    self.try_again(None)?;
                    continue;
                }
            };
            self.bytes_came();
            if bytes.len() > MAX_TRANSFER_MANIFEST_BYTES {
                return Err(reasons::image_fetch_failed(format!(
                    "its manifest has {} bytes, more than {MAX_TRANSFER_MANIFEST_BYTES}.",
                    bytes.len()
                )));
            }
            return Ok(bytes);
        }
    }

    fn bytes_came(&self) {
        self.last_answer.set(Instant::now());
        self.pause.set(FIRST_PAUSE);
    }

    /// Waits before another try; an error where there is to be none.
    fn try_again(&self, refusal: Option<Refusal>) -> Result<(), Reason> {
        if let Some(refusal) = refusal {
            match refusal.kind {
                RefusalKind::Unavailable => {}
                RefusalKind::NotFound => return Err(reasons::image_missing()),
                _ => return Err(reasons::image_fetch_failed(&refusal.text)),
            }
        }
        if self.last_answer.get().elapsed() >= SILENCE_TIMEOUT {
            return Err(reasons::image_fetch_no_answer(
                SILENCE_TIMEOUT.as_secs() / 60,
            ));
        }
        let pause = self.pause.get();
        self.pause.set((pause * 2).min(LAST_PAUSE));
        self.wait(std::future::pending::<()>(), pause);
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(reasons::image_fetch_failed("no session wants it any more.")),
            false => Ok(()),
        }
    }

    /// Waits for an answer; None where none comes in time or the fetch is cancelled.
    fn wait<T>(&self, answer: impl Future<Output = T>, limit: Duration) -> Option<T> {
        let end = Instant::now() + limit;
        self.runtime.block_on(async {
            let mut answer = std::pin::pin!(answer);
            loop {
                let left = end.saturating_duration_since(Instant::now());
                if let Ok(given) = tokio::time::timeout(left.min(LOOK_INTERVAL), &mut answer).await
                {
                    return Some(given);
                }
                if left.is_zero() || self.cancelled.load(Ordering::Relaxed) {
                    return None;
                }
            }
        })
    }
}

/// The packed bytes of one layer, over as many streams as it takes.
struct LayerReader {
    link: Rc<FetchLink>,
    image: String,
    layer: String,
    at: u64,
    length: u64,
    stream: Option<ImageBytes>,
    chunk: Bytes,
}

impl LayerReader {
    /// The next chunk; an error where the fetch is over.
    fn next(&mut self) -> Result<Bytes, Reason> {
        loop {
            if let Some(stream) = &mut self.stream {
                match self
                    .link
                    .wait(stream.chunks.recv(), STALL_TIMEOUT)
                    .flatten()
                {
                    Some(chunk) if !chunk.is_empty() => {
                        self.link.bytes_came();
                        return Ok(chunk);
                    }
                    Some(_) => continue,
                    None => self.stream = None,
                }
                self.link.try_again(None)?;
            }
            let (image, layer) = (self.image.clone(), self.layer.clone());
            let opened = self.link.source.layer(image, layer, self.at);
            match self.link.wait(opened, STALL_TIMEOUT) {
                Some(Ok(stream)) => self.stream = Some(stream),
                Some(Err(refusal)) => self.link.try_again(Some(refusal))?,
                None => self.link.try_again(None)?,
            }
        }
    }
}

impl Read for LayerReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.length || buffer.is_empty() {
            return Ok(0);
        }
        if self.chunk.is_empty() {
            self.chunk = self.next().map_err(|reason| {
                let error = io::Error::other(reason.text.clone());
                self.link.failure.replace(Some(reason));
                error
            })?;
        }
        let count = self.chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.chunk.split_to(count));
        self.at += count as u64;
        Ok(count)
    }
}
