//! What a client sent ahead on its channels and is not taken yet. The line of a connection carries all of its channels,
//! and what they need to go on: it must not stand still because one program does not read. Bounded by bytes of the
//! connection.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Bytes that wait for the programs of one connection. Higher: programs that do not read take more memory. Lower: a
/// connection waits sooner for the one that does not.
const MAX_AHEAD_BYTES: usize = 16 << 20;

/// What one connection may send ahead, on all of its channels.
#[derive(Clone)]
pub(super) struct AheadRoom(Arc<Semaphore>);

/// Puts what comes behind what waits.
pub(super) struct AheadSender<T> {
    queue: mpsc::UnboundedSender<(T, OwnedSemaphorePermit)>,
    room: AheadRoom,
}

/// Takes what waits, oldest first. What it has not taken gives its room back.
pub(super) struct AheadReceiver<T> {
    queue: mpsc::UnboundedReceiver<(T, OwnedSemaphorePermit)>,
}

impl AheadRoom {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_AHEAD_BYTES)))
    }
}

/// A queue of one channel.
pub(super) fn ahead<T>(room: &AheadRoom) -> (AheadSender<T>, AheadReceiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (
        AheadSender {
            queue: sender,
            room: room.clone(),
        },
        AheadReceiver { queue: receiver },
    )
}

impl<T> AheadSender<T> {
    /// Waits until there is room for so many bytes; each piece counts as a byte at least. Does nothing once the other end
    /// is gone.
    pub(super) async fn put(&self, piece: T, bytes: usize) {
        let bytes = u32::try_from(bytes.clamp(1, MAX_AHEAD_BYTES)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room.0).acquire_many_owned(bytes);
        let permit = tokio::select! {
            permit = room => permit,
            () = self.queue.closed() => return,
        };
        // It is never closed.
        if let Ok(permit) = permit {
            let _ = self.queue.send((piece, permit));
        }
    }
}

impl<T> AheadReceiver<T> {
    /// The next piece; None once the other end is gone and everything is taken.
    pub(super) async fn next(&mut self) -> Option<T> {
        let (piece, _room) = self.queue.recv().await?;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn so_many_bytes_wait_and_the_next_when_some_are_taken() {
        let room = AheadRoom::new();
        let (sender, mut receiver) = ahead(&room);
        sender.put(1, MAX_AHEAD_BYTES - 1).await;
        // Channels of one connection share what there is.
        let (other, mut of_other) = ahead(&room);
        other.put(2, 0).await;
        let soon = Duration::from_millis(50);
        assert!(timeout(soon, sender.put(3, 1)).await.is_err());
        assert_eq!(receiver.next().await, Some(1));
        timeout(soon, sender.put(4, MAX_AHEAD_BYTES - 1))
            .await
            .expect("there is room again");
        assert_eq!(receiver.next().await, Some(4));
        assert_eq!(of_other.next().await, Some(2));
    }

    #[tokio::test]
    async fn what_has_no_reader_waits_for_none_and_takes_no_room() {
        let room = AheadRoom::new();
        let (sender, receiver) = ahead(&room);
        sender.put((), MAX_AHEAD_BYTES).await;
        drop(receiver);
        for _ in 0..3 {
            sender.put((), MAX_AHEAD_BYTES).await;
        }
        assert_eq!(room.0.available_permits(), MAX_AHEAD_BYTES);
    }
}
