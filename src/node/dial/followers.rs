//! Reads logs piece by piece, for all who read or follow one on a few threads: who waits for more holds
//! none. Never decides who may read.

use std::sync::Arc;
use std::time::Duration;

use base::link::streams::{LogChunk, LogStream};
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use crate::runtime::LogPiece;

/// Threads that read logs at once. Higher: threads that wait for one disk. Lower: a slow disk under one
/// log holds up all others.
const READERS: usize = 3;
/// Most bytes of one piece of a log.
pub(super) const PIECE: usize = 64 << 10;
/// Pieces that wait for one reader. Higher: who does not read holds so much memory.
const QUEUE: usize = 4;
/// How soon a log that had nothing new is looked at again, and how late at most: twice as long each time.
const SOON: Duration = Duration::from_millis(50);
/// See `SOON`. Longer: a line is seen late. Shorter: idle followers cost more.
const LATE: Duration = Duration::from_millis(200);

/// What one look at a log found.
pub(super) struct LogRead {
    /// None where it cannot be read.
    pub(super) piece: Option<LogPiece>,
    /// Nothing will be added to it.
    pub(super) over: bool,
}

/// Everybody who reads a log.
#[derive(Clone)]
pub(crate) struct LogReaders {
    readers: Arc<Semaphore>,
}

impl Default for LogReaders {
    fn default() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(READERS)),
        }
    }
}

impl LogReaders {
    /// Gives the log from `since` on, to its end or with `follow` until nothing will be added, and the
    /// work that fills it, for the caller to spawn: it ends with the log, or when no client listens any more.
    ///
    /// `look` may block; it is asked on at most `READERS` threads for all logs together.
    pub(super) fn follow(
        &self,
        since: u64,
        follow: bool,
        look: impl Fn(u64) -> LogRead + Send + Sync + 'static,
    ) -> (LogStream, impl Future<Output = ()> + Send + 'static) {
        let (send, output) = mpsc::channel(QUEUE);
        let readers = Arc::clone(&self.readers);
        let reading = read(readers, since, follow, Arc::new(look), send);
        (LogStream { output }, reading)
    }
}

async fn read(
    readers: Arc<Semaphore>,
    mut from: u64,
    follow: bool,
    look: Arc<impl Fn(u64) -> LogRead + Send + Sync + 'static>,
    to: mpsc::Sender<LogChunk>,
) {
    let mut wait = SOON;
    loop {
        let Ok(permit) = readers.acquire().await else {
            return;
        };
        let asked = Arc::clone(&look);
        let found = tokio::task::spawn_blocking(move || asked(from)).await;
        drop(permit);
        let Ok(LogRead {
            piece: Some(piece),
            over,
        }) = found
        else {
            return;
        };
        if !piece.bytes.is_empty() {
            wait = SOON;
            from = piece.next();
            let chunk = LogChunk {
                offset: piece.from,
                bytes: Bytes::from(piece.bytes),
            };
            if to.send(chunk).await.is_err() {
                return;
            }
            continue;
        }
        if !follow || over {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(LATE),
            () = to.closed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[tokio::test]
    async fn four_hundred_followers_read_on_a_few_threads_and_all_hear_the_end() {
        let followers = LogReaders::default();
        let (reading, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ended = Arc::new(AtomicBool::new(false));
        let mut streams = Vec::new();
        for _ in 0..400 {
            let (reading, most, ended) = (reading.clone(), most.clone(), ended.clone());
            let (stream, reading_it) = followers.follow(0, true, move |from| {
                let now = reading.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                let over = ended.load(Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(100));
                let written: &[u8] = if over { b"first, last" } else { b"first" };
                let at = usize::try_from(from).expect("short").min(written.len());
                reading.fetch_sub(1, Ordering::SeqCst);
                LogRead {
                    piece: Some(LogPiece {
                        from,
                        bytes: written[at..].to_vec(),
                    }),
                    over,
                }
            });
            tokio::spawn(reading_it);
            streams.push(stream);
        }
        for stream in &mut streams {
            let chunk = stream.output.recv().await.expect("a first piece");
            assert_eq!((chunk.offset, chunk.bytes.as_ref()), (0, &b"first"[..]));
        }
        ended.store(true, Ordering::SeqCst);
        for stream in &mut streams {
            let chunk = stream.output.recv().await.expect("a last piece");
            assert_eq!((chunk.offset, chunk.bytes.as_ref()), (5, &b", last"[..]));
            assert_eq!(stream.output.recv().await, None);
        }
        assert!(most.load(Ordering::SeqCst) <= READERS);
    }

    #[tokio::test]
    async fn whoever_does_not_follow_gets_what_there_is() {
        let look = |from| LogRead {
            piece: Some(LogPiece {
                from,
                bytes: b"all"[usize::try_from(from).expect("short")..].to_vec(),
            }),
            over: false,
        };
        let (mut stream, reading) = LogReaders::default().follow(1, false, look);
        tokio::spawn(reading);
        assert_eq!(stream.output.recv().await.expect("a piece").bytes, "ll");
        assert_eq!(stream.output.recv().await, None);
    }
}
