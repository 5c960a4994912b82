//! The words spoken on a shim's socket: length-prefixed, bounded frames, and the requests and
//! events inside them. Pure encoding; sockets belong to `launch` and `shim`.
//!
//! A frame is a four-byte little-endian length, one byte of kind, and the payload. A connection
//! begins with one `ShimRequest`; the shim answers `ShimReply` and, for streams, continues with bytes.

use serde::{Deserialize, Serialize};

use super::order::{ExecOrder, RuntimeName, RuntimePhase, TerminalSize};

/// Spoken by this build; a server also understands one version earlier.
pub const PROTOCOL: u32 = 1;

/// The largest payload of one frame. Larger: one client makes a shim hold megabytes. Smaller:
/// a screenful of output takes several turns of the loop.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;

/// Bytes of a frame before its payload.
pub const HEAD: usize = 5;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// JSON `ShimRequest`, first on every connection.
    Request = 1,
    /// JSON `ShimReply`.
    Reply = 2,
    /// JSON `RuntimePhase`, to subscribers.
    Event = 3,
    /// Bytes of standard output, or of the terminal.
    Output = 4,
    /// Bytes of standard error of a program without a terminal.
    Errors = 5,
    /// Bytes for standard input or the terminal.
    Input = 6,
    /// Standard input ends here; empty.
    InputEnd = 7,
    /// Columns and rows, two little-endian 16-bit numbers.
    Resize = 8,
    /// The program ended: a little-endian 32-bit exit code. Last frame.
    Exit = 9,
    /// A little-endian 32-bit signal number for the program of this stream.
    Signal = 10,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        use FrameKind::{
            Errors, Event, Exit, Input, InputEnd, Output, Reply, Request, Resize, Signal,
        };
        [
            Request, Reply, Event, Output, Errors, Input, InputEnd, Resize, Exit, Signal,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimFrame {
    pub kind: FrameKind,
    pub payload: Vec<u8>,
}

/// Bytes that are no frames; the connection cannot be trusted further.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    #[error("a frame announces {0} bytes, more than {MAX_PAYLOAD_BYTES}")]
    TooLong(usize),
    #[error("a frame of unknown kind {0}")]
    UnknownKind(u8),
}

/// What a connection wants of the shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimRequest {
    /// Every change of standing from now on, the present one first.
    Subscribe,
    /// The container's own terminal or output: recent output first, then live, both ways.
    Attach {
        size: Option<TerminalSize>,
    },
    /// One more program inside.
    Exec(ExecOrder),
    /// The stop signal now, KILL after the grace.
    Stop {
        grace_milliseconds: u64,
    },
    Kill,
}

/// The shim's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimReply {
    Done,
    Refused {
        why: String,
    },
    /// It has as many streams as it serves; another time it would do.
    Busy {
        why: String,
    },
}

/// An event for subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimEvent {
    pub standing: RuntimePhase,
    /// Whom the shim supervises, by its own memory; absent from shims of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<RuntimeName>,
}

/// What stands before a payload of so many bytes, `MAX_PAYLOAD_BYTES` at most.
pub fn head(kind: FrameKind, length: usize) -> [u8; HEAD] {
    let announced = u32::try_from(length + 1).expect("a frame is shorter than its bound");
    let [a, b, c, d] = announced.to_le_bytes();
    [a, b, c, d, kind as u8]
}

/// Appends one frame to `into`. Payloads beyond the bound are split, in order.
pub fn put(into: &mut Vec<u8>, kind: FrameKind, payload: &[u8]) {
    let mut rest = payload;
    loop {
        let (now, later) = rest.split_at(rest.len().min(MAX_PAYLOAD_BYTES));
        into.extend_from_slice(&head(kind, now.len()));
        into.extend_from_slice(now);
        if later.is_empty() {
            return;
        }
        rest = later;
    }
}

/// Appends a frame with a JSON payload.
pub fn put_json<T: Serialize>(into: &mut Vec<u8>, kind: FrameKind, value: &T) {
    let text = serde_json::to_vec(value).expect("our own types always have a JSON form");
    put(into, kind, &text);
}

/// Kind and payload of the first whole frame, which is `HEAD` bytes longer; nothing when it is not complete yet.
pub fn first(bytes: &[u8]) -> Result<Option<(FrameKind, &[u8])>, WireError> {
    let Some(announced) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*announced) as usize;
    if length == 0 || length > MAX_PAYLOAD_BYTES + 1 {
        return Err(WireError::TooLong(length));
    }
    let Some(frame) = bytes.get(4..4 + length) else {
        return Ok(None);
    };
    let kind = FrameKind::from_byte(frame[0]).ok_or(WireError::UnknownKind(frame[0]))?;
    Ok(Some((kind, &frame[1..])))
}

/// Takes the first whole frame off the front of `from`; nothing when it is not complete yet.
pub fn take(from: &mut Vec<u8>) -> Result<Option<ShimFrame>, WireError> {
    let Some((kind, payload)) = first(from)? else {
        return Ok(None);
    };
    let payload = payload.to_vec();
    from.drain(..HEAD + payload.len());
    Ok(Some(ShimFrame { kind, payload }))
}

/// The payload of a resize frame.
pub fn size_bytes(size: TerminalSize) -> [u8; 4] {
    let [a, b] = size.columns.to_le_bytes();
    let [c, d] = size.rows.to_le_bytes();
    [a, b, c, d]
}

/// The size in a resize frame; nothing when it is malformed.
pub fn size_of(payload: &[u8]) -> Option<TerminalSize> {
    let [a, b, c, d] = *payload.first_chunk::<4>()?;
    Some(TerminalSize {
        columns: u16::from_le_bytes([a, b]),
        rows: u16::from_le_bytes([c, d]),
    })
}

/// The number in an exit or signal frame; nothing when it is malformed.
pub fn number_of(payload: &[u8]) -> Option<i32> {
    payload
        .first_chunk::<4>()
        .map(|bytes| i32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut_of_the_stream() {
        let mut sent = Vec::new();
        put(&mut sent, FrameKind::Output, b"hello");
        put_json(&mut sent, FrameKind::Request, &ShimRequest::Subscribe);
        put(&mut sent, FrameKind::InputEnd, b"");
        let mut pending = Vec::new();
        let mut got = Vec::new();
        for byte in sent {
            pending.push(byte);
            while let Some(frame) = take(&mut pending).expect("well formed") {
                got.push(frame);
            }
        }
        assert_eq!(got.len(), 3);
        assert_eq!(
            got[0],
            ShimFrame {
                kind: FrameKind::Output,
                payload: b"hello".to_vec()
            }
        );
        assert_eq!(
            serde_json::from_slice::<ShimRequest>(&got[1].payload).expect("json"),
            ShimRequest::Subscribe
        );
        assert!(pending.is_empty());
    }

    #[test]
    fn a_huge_or_foreign_frame_is_refused_before_it_is_read() {
        assert_eq!(
            take(&mut vec![255, 255, 255, 127, 4]),
            Err(WireError::TooLong(0x7fff_ffff))
        );
        assert_eq!(take(&mut vec![0, 0, 0, 0, 4]), Err(WireError::TooLong(0)));
        assert_eq!(
            take(&mut vec![1, 0, 0, 0, 99]),
            Err(WireError::UnknownKind(99))
        );
    }

    #[test]
    fn long_output_is_split_into_bounded_frames() {
        let long = vec![7u8; MAX_PAYLOAD_BYTES * 2 + 3];
        let mut sent = Vec::new();
        put(&mut sent, FrameKind::Output, &long);
        let mut whole = Vec::new();
        while let Some(frame) = take(&mut sent).expect("well formed") {
            assert!(frame.payload.len() <= MAX_PAYLOAD_BYTES);
            whole.extend(frame.payload);
        }
        assert_eq!(whole, long);
    }
}
