//! A body on its way to disk, in pieces of one size, for as long as its sender may go on. Writes nothing, and decides nothing
//! about who may send.

use axum::body::{Body, BodyDataStream};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use rules::refusal::Refusal;
use server::access::Lease;

/// The pieces of a body, in their order.
pub struct BodyPieces {
    data: BodyDataStream,
    lease: Lease,
    /// Has less than one piece.
    waiting: BytesMut,
    /// Bytes of a piece. The last one has fewer, others a little more where that is how they came.
    size: usize,
    end: Option<BodyEnd>,
    has_given: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyEnd {
    Whole,
    Broken,
}

impl BodyPieces {
    /// Reads nothing yet.
    pub fn of(body: Body, lease: Lease, size: usize) -> Self {
        Self {
            data: body.into_data_stream(),
            lease,
            waiting: BytesMut::new(),
            size,
            end: None,
            has_given: false,
        }
    }

    /// The next piece; None behind the last. There is one at least, which is empty where nothing came. What came before a body
    /// broke off is given too. Errors: why its sender may not go on.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Refusal> {
        while self.end.is_none() {
            let frame = tokio::select! {
                biased;
                refusal = &mut self.lease => return Err(refusal),
                frame = self.data.next() => frame,
            };
            match frame {
                Some(Ok(bytes)) => {
                    self.waiting.extend_from_slice(&bytes);
                    if self.waiting.len() >= self.size {
                        return Ok(Some(self.give()));
                    }
                }
                Some(Err(_)) => self.end = Some(BodyEnd::Broken),
                None => self.end = Some(BodyEnd::Whole),
            }
        }
        match self.waiting.is_empty() && self.has_given {
            true => Ok(None),
            false => Ok(Some(self.give())),
        }
    }

    /// Whether the body broke off, once all pieces were given.
    pub fn is_broken(&self) -> bool {
        self.end == Some(BodyEnd::Broken)
    }

    fn give(&mut self) -> Bytes {
        self.has_given = true;
        self.waiting.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::stream;
    use rules::refusals;

    use super::*;

    fn endless() -> Lease {
        Box::pin(std::future::pending())
    }

    async fn all(frames: Vec<io::Result<&'static [u8]>>) -> (Vec<Vec<u8>>, bool) {
        let body = Body::from_stream(stream::iter(frames));
        let mut pieces = BodyPieces::of(body, endless(), 4);
        let mut given = Vec::new();
        while let Some(piece) = pieces.piece().await.expect("the lease holds") {
            given.push(piece.to_vec());
        }
        (given, pieces.is_broken())
    }

    #[tokio::test]
    async fn a_body_comes_in_pieces_and_one_that_breaks_off_gives_what_came() {
        let whole = all(vec![Ok(&b"ab"[..]), Ok(&b"cde"[..]), Ok(&b"f"[..])]).await;
        assert_eq!(whole, (vec![b"abcde".to_vec(), b"f".to_vec()], false));
        let even = all(vec![Ok(&b"abcd"[..])]).await;
        assert_eq!(even, (vec![b"abcd".to_vec()], false));
        assert_eq!(all(Vec::new()).await, (vec![Vec::new()], false));
        let cut = Err(io::ErrorKind::ConnectionReset.into());
        let broken = all(vec![Ok(&b"ab"[..]), cut]).await;
        assert_eq!(broken, (vec![b"ab".to_vec()], true));
    }

    #[tokio::test]
    async fn a_body_ends_with_its_lease() {
        let over: Lease = Box::pin(std::future::ready(refusals::upload_cut_off()));
        let mut pieces = BodyPieces::of(Body::from("abcd"), over, 4);
        assert_eq!(pieces.piece().await, Err(refusals::upload_cut_off()));
    }
}
