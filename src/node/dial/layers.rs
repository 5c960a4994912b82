//! Carries a container's own layer to its reader: chunk by chunk, and never for longer than the reader takes some. Ends
//! the reading where the reader is gone. Reads no file itself.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::link::streams::{LayerOutput, LayerRequest, SessionLayerStream};
use base::observe::chain;
use bytes::Bytes;
use rules::commit::LayerSurvey;
use rules::refusal::Refusal;
use rules::refusals;
use store::images::failure::ImageError;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::runtime::{LayerFault, LayerSink, Runtime, RuntimeName};

/// Layers that a node reads at once, each on a thread. More: they starve the disk. Fewer: there is none.
pub(super) const MAX_READ_LAYERS: usize = 2;
/// Bytes sent at once. Larger: more memory for each layer. Smaller: more wake-ups.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait for the reader. Higher: more memory. Lower: disk and reader take turns.
const MAX_WAITING_CHUNKS: usize = 4;
/// How long a reader may take nothing. Longer: a session stands still for a reader that hangs. Shorter: a busy disk ends
/// a commit.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries meanwhile.
const TRY_AGAIN: Duration = Duration::from_millis(2);

/// Begins to read a container's layer on a thread of its own.
pub(super) fn read(
    runtime: Arc<Runtime>,
    name: RuntimeName,
    request: LayerRequest,
    turn: OwnedSemaphorePermit,
) -> Result<SessionLayerStream, Refusal> {
    let (send, output) = mpsc::channel(MAX_WAITING_CHUNKS);
    let (ended, over) = oneshot::channel();
    let begun = std::thread::Builder::new()
        .name("layer-read".to_owned())
        .spawn(move || {
            // Dropped last: the processes go on by then.
            let _ended = ended;
            let _turn = turn;
            let mut chunks = LayerChunks {
                waiting: Vec::with_capacity(CHUNK_BYTES),
                send,
                stalled: false,
            };
            let read = runtime.read_layer(&name, &request, &mut chunks);
            let read = read.map_err(|fault| told(&name, &fault));
            let last = match read.and_then(|()| chunks.flush().map_err(|_| chunks.why())) {
                Ok(()) => LayerOutput::End,
                // What the write said is only that it failed.
                Err(_) if chunks.stalled => LayerOutput::Refused(chunks.why()),
                Err(refusal) => LayerOutput::Refused(refusal),
            };
            // The reader may have gone.
            let _ = chunks.put(last);
        });
    match begun {
        Ok(_) => Ok(SessionLayerStream { output, over }),
        Err(error) => Err(refusals::container_unreachable(error)),
    }
}

/// A refusal as it is; of a fault the log has all.
fn told(name: &RuntimeName, fault: &LayerFault) -> Refusal {
    match fault {
        LayerFault::Refused(refusal) => (**refusal).clone(),
        LayerFault::Image(ImageError::Refused(refusal)) => (**refusal).clone(),
        fault => {
            tracing::warn!(container = %name, error = %chain(fault), "what a session wrote was not read to its end");
            refusals::commit_reading_failed()
        }
    }
}

/// Collects bytes into chunks; waits while the reader has enough of them.
struct LayerChunks {
    waiting: Vec<u8>,
    send: mpsc::Sender<LayerOutput>,
    /// The reader took nothing for too long.
    stalled: bool,
}

impl LayerChunks {
    /// Puts something on the stream. Errors: the reader is gone, or takes nothing.
    fn put(&mut self, output: LayerOutput) -> io::Result<()> {
        let until = Instant::now() + STALL_TIMEOUT;
        let mut output = output;
        loop {
            output = match self.send.try_send(output) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(TrySendError::Full(_)) if self.stalled || Instant::now() >= until => {
                    self.stalled = true;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(TrySendError::Full(output)) => output,
            };
            std::thread::sleep(TRY_AGAIN);
        }
    }

    /// Why nothing more is put.
    fn why(&self) -> Refusal {
        match self.stalled {
            true => refusals::commit_stalled(STALL_TIMEOUT.as_secs()),
            false => refusals::commit_cancelled(),
        }
    }
}

impl Write for LayerChunks {
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
        self.put(LayerOutput::Bytes(Bytes::from(chunk)))
    }
}

impl LayerSink for LayerChunks {
    fn found(&mut self, survey: LayerSurvey) -> io::Result<()> {
        self.put(LayerOutput::Found(survey))
    }

    fn proceed(&self) -> Result<(), Refusal> {
        match self.send.is_closed() {
            true => Err(refusals::commit_cancelled()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(places: usize) -> (LayerChunks, mpsc::Receiver<LayerOutput>) {
        let (send, output) = mpsc::channel(places);
        let chunks = LayerChunks {
            waiting: Vec::new(),
            send,
            stalled: false,
        };
        (chunks, output)
    }

    #[test]
    fn bytes_come_in_pieces_and_in_order() {
        let (mut chunks, mut output) = chunks(4);
        let bytes: Vec<u8> = (0..CHUNK_BYTES + 3).map(|n| (n % 251) as u8).collect();
        chunks.write_all(&bytes).expect("there is room");
        chunks.flush().expect("there is room");
        drop(chunks);
        let mut all = Vec::new();
        while let Some(LayerOutput::Bytes(piece)) = output.blocking_recv() {
            assert!(piece.len() <= CHUNK_BYTES);
            all.extend_from_slice(&piece);
        }
        assert_eq!(all, bytes);
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_reading() {
        let (mut chunks, output) = chunks(1);
        assert_eq!(chunks.proceed(), Ok(()));
        drop(output);
        assert_eq!(chunks.proceed().unwrap_err().code, "commit.cancelled");
        let gone = chunks.found(LayerSurvey::default()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }
}
