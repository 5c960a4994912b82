//! What a client sent ahead on one channel and is not taken yet. The line of a connection carries all of its channels, and
//! what they need to go on: it must not stand still because one program does not read. Bounded by bytes.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

/// Bytes that wait for one program. Higher: programs that do not read take more memory. Lower: more than a client has on
/// its way over its sockets does not fit, and then a program that waits for its own output to be taken, the word that it
/// was taken, and the input before that word wait for each other.
const MAX_AHEAD_BYTES: usize = 8 << 20;

/// Puts what comes behind what waits.
pub(super) struct AheadSender<T> {
    queue: mpsc::UnboundedSender<(T, u32)>,
    room: Arc<Semaphore>,
}

/// Takes what waits, oldest first.
pub(super) struct AheadReceiver<T> {
    queue: mpsc::UnboundedReceiver<(T, u32)>,
    room: Arc<Semaphore>,
}

pub(super) fn ahead<T>() -> (AheadSender<T>, AheadReceiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(MAX_AHEAD_BYTES));
    (
        AheadSender {
            queue: sender,
            room: Arc::clone(&room),
        },
        AheadReceiver {
            queue: receiver,
            room,
        },
    )
}

impl<T> AheadSender<T> {
    /// Waits until there is room for so many bytes; each piece counts as a byte at least. Does nothing once the other end
    /// is gone.
    pub(super) async fn put(&self, piece: T, bytes: usize) {
        let bytes = u32::try_from(bytes.clamp(1, MAX_AHEAD_BYTES)).unwrap_or(u32::MAX);
        let Ok(permit) = self.room.acquire_many(bytes).await else {
            return;
        };
        permit.forget();
        let _ = self.queue.send((piece, bytes));
    }
}

impl<T> AheadReceiver<T> {
    /// The next piece; None once the other end is gone and everything is taken.
    pub(super) async fn next(&mut self) -> Option<T> {
        let (piece, bytes) = self.queue.recv().await?;
        self.room.add_permits(bytes as usize);
        Some(piece)
    }
}

impl<T> Drop for AheadReceiver<T> {
    fn drop(&mut self) {
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn so_many_bytes_wait_and_the_next_when_some_are_taken() {
        let (sender, mut receiver) = ahead();
        sender.put(1, MAX_AHEAD_BYTES - 1).await;
        sender.put(2, 0).await;
        let soon = Duration::from_millis(50);
        assert!(timeout(soon, sender.put(3, 1)).await.is_err());
        assert_eq!(receiver.next().await, Some(1));
        timeout(soon, sender.put(4, MAX_AHEAD_BYTES - 1))
            .await
            .expect("there is room again");
        assert_eq!(receiver.next().await, Some(2));
        assert_eq!(receiver.next().await, Some(4));
    }

    #[tokio::test]
    async fn what_has_no_reader_waits_for_none() {
        let (sender, receiver) = ahead();
        drop(receiver);
        for _ in 0..3 {
            sender.put((), MAX_AHEAD_BYTES).await;
        }
    }
}
