//! Files that a browser or a script keeps, in one piece or as they are read. Decides nothing about who may
//! have them.

use std::io::SeekFrom;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use server::access::Lease;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

/// Bytes on the way at a time.
const PIECE: usize = 64 * 1024;

/// Something made for this answer. `name` has no quotation mark in it.
pub fn bytes(name: &str, kind: &'static str, bytes: Vec<u8>) -> Response {
    answer(name, kind, None, Body::from(bytes))
}

/// An open file from its beginning, `size` bytes of it; a file that breaks off breaks the connection, so
/// that half of it is not taken for all. It breaks off too where `lease` ends.
pub fn file(
    name: &str,
    kind: &'static str,
    size: u64,
    file: std::fs::File,
    lease: Lease,
) -> Response {
    let reading = tokio::fs::File::from_std(file).take(size);
    let begun = (reading, size, lease);
    let pieces = stream::unfold(begun, |(mut reading, left, mut lease)| async move {
        if left == 0 {
            return None;
        }
        let mut piece = vec![0; PIECE];
        let read = tokio::select! {
            biased;
            _ = &mut lease => Err(std::io::ErrorKind::PermissionDenied.into()),
            read = reading.read(&mut piece) => match read {
                Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
                other => other,
            },
        };
        match read {
            Ok(count) => {
                piece.truncate(count);
                Some((
                    Ok(Bytes::from(piece)),
                    (reading, left - count as u64, lease),
                ))
            }
            Err(error) => Some((Err::<Bytes, std::io::Error>(error), (reading, 0, lease))),
        }
    });
    // What compresses an answer asks once more behind its end.
    answer(name, kind, Some(size), Body::from_stream(pieces.fuse()))
}

/// Text as it comes; it breaks off, and with it the connection, at the first error and where `lease` ends.
pub fn pieces(
    name: &str,
    kind: &'static str,
    pieces: impl Stream<Item = std::io::Result<String>> + Send + 'static,
    lease: Lease,
) -> Response {
    answer(name, kind, None, leased(pieces, lease))
}

/// A body of pieces as they come. It breaks off, and with it the connection, at the first error and where `lease` ends.
pub fn leased<T>(
    pieces: impl Stream<Item = std::io::Result<T>> + Send + 'static,
    lease: Lease,
) -> Body
where
    T: Send + 'static,
    Bytes: From<T>,
{
    let begun = (Box::pin(pieces), Some(lease));
    let checked = stream::unfold(begun, |(mut pieces, lease)| async move {
        let mut lease = lease?;
        let piece = tokio::select! {
            biased;
            _ = &mut lease => Some(Err(std::io::ErrorKind::PermissionDenied.into())),
            piece = pieces.next() => piece,
        }?;
        let lease = piece.is_ok().then_some(lease);
        Some((piece.map(Bytes::from), (pieces, lease)))
    });
    // What compresses an answer asks once more behind its end.
    Body::from_stream(checked.fuse())
}

/// A part of an open file, `length` bytes from byte `from` on. It breaks off where the file or `lease` ends too early.
pub fn part(file: std::fs::File, from: u64, length: u64, lease: Lease) -> Body {
    let begun = (tokio::fs::File::from_std(file), Some(from), length);
    let pieces = stream::unfold(begun, |(mut file, seek, left)| async move {
        if left == 0 {
            return None;
        }
        match next_piece(&mut file, seek, left).await {
            Ok(piece) => {
                let left = left - piece.len() as u64;
                Some((Ok(piece), (file, None, left)))
            }
            Err(error) => Some((Err::<Vec<u8>, std::io::Error>(error), (file, None, 0))),
        }
    });
    leased(pieces, lease)
}

async fn next_piece(
    file: &mut tokio::fs::File,
    seek: Option<u64>,
    left: u64,
) -> std::io::Result<Vec<u8>> {
    if let Some(from) = seek {
        file.seek(SeekFrom::Start(from)).await?;
    }
    let most = left.min(PIECE as u64);
    let mut piece = vec![0; usize::try_from(most).unwrap_or(PIECE)];
    match file.read(&mut piece).await? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        count => {
            piece.truncate(count);
            Ok(piece)
        }
    }
}

/// Begin and length of a range of so many bytes, as the header `Range` asks; None where all is to be answered. `Some(None)`:
/// nothing of it is there.
pub fn parsed_range(asked: &str, size: u64) -> Option<Option<(u64, u64)>> {
    let (begin, end) = asked
        .trim()
        .strip_prefix("bytes=")?
        .trim()
        .split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number beyond all files is behind the end of this one.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    if begin.is_empty() {
        let length = number(end)?.min(size);
        return Some((length > 0).then(|| (size - length, length)));
    }
    let begin = number(begin)?;
    let last = match end {
        "" => u64::MAX,
        end => number(end)?,
    };
    if last < begin {
        return None;
    }
    Some((begin < size).then(|| (begin, last.min(size - 1) - begin + 1)))
}

/// What tells a browser to keep a file under a name with any letters in it, and never to show it.
pub fn kept_as(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || " -_.()+,".contains(c);
    let ascii: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    if ascii == name {
        return format!("attachment; filename=\"{name}\"");
    }
    let mut exact = String::new();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            true => exact.push(char::from(byte)),
            false => exact.push_str(&format!("%{byte:02X}")),
        }
    }
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{exact}")
}

fn answer(name: &str, kind: &'static str, size: Option<u64>, body: Body) -> Response {
    let mut response = (
        [
            (header::CONTENT_TYPE, kind.to_owned()),
            (
                header::CONTENT_DISPOSITION,
                format!("attachment; filename=\"{name}\""),
            ),
            (header::CACHE_CONTROL, "no-store".to_owned()),
        ],
        body,
    )
        .into_response();
    if let Some(size) = size {
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, size.into());
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    fn for_ever() -> Lease {
        Box::pin(std::future::pending())
    }

    #[tokio::test]
    async fn a_file_breaks_off_where_its_reader_may_go_on_no_longer() {
        let open = tempfile::tempfile().expect("a file");
        open.set_len(200_000).expect("written");
        let over = rules::refusal::Refusal::from_parts(
            rules::refusal::RefusalKind::Unauthenticated,
            "token.revoked".into(),
            "It was revoked.".into(),
            String::new(),
        );
        let cut = file("a.backup", "application/octet-stream", 200_000, open, {
            Box::pin(std::future::ready(over))
        });
        let body = axum::body::to_bytes(cut.into_body(), usize::MAX).await;
        assert!(body.is_err(), "it went on");
    }

    #[tokio::test]
    async fn a_file_comes_whole_and_a_shorter_one_than_told_breaks_off() {
        let mut open = tempfile::tempfile().expect("a file");
        let content: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        open.write_all(&content).expect("written");
        open.rewind().expect("from its beginning");
        let again = open.try_clone().expect("a second handle");
        let whole = file(
            "a.backup",
            "application/octet-stream",
            200_000,
            open,
            for_ever(),
        );
        assert_eq!(whole.headers()[header::CONTENT_LENGTH], "200000");
        let body = axum::body::to_bytes(whole.into_body(), usize::MAX).await;
        assert!(body.expect("whole") == content);
        (&again).rewind().expect("from its beginning");
        let cut = file(
            "a.backup",
            "application/octet-stream",
            200_001,
            again,
            for_ever(),
        );
        let body = axum::body::to_bytes(cut.into_body(), usize::MAX).await;
        assert!(body.is_err(), "half a file looked like all of it");
    }

    #[test]
    fn a_file_is_kept_under_a_name_with_any_letters() {
        assert_eq!(kept_as("a b.csv"), "attachment; filename=\"a b.csv\"");
        assert_eq!(
            kept_as("x\"; y\r\n.txt"),
            "attachment; filename=\"x__ y__.txt\"; filename*=UTF-8''x%22%3B%20y%0D%0A.txt"
        );
        assert!(kept_as("\u{ac00}").ends_with("filename*=UTF-8''%EA%B0%80"));
    }

    #[tokio::test]
    async fn a_file_may_be_asked_for_behind_its_end() {
        let open = tempfile::tempfile().expect("a file");
        open.set_len(10).expect("written");
        let kind = "application/octet-stream";
        let answer = file("a.backup", kind, 10, open, for_ever());
        let mut pieces = answer.into_body().into_data_stream();
        assert_eq!(
            pieces.next().await.expect("a piece").expect("read").len(),
            10
        );
        // As compression does.
        assert!(pieces.next().await.is_none());
        assert!(pieces.next().await.is_none());
    }

    #[test]
    fn a_range_is_read_as_http_has_it() {
        for (asked, size, expected) in [
            ("bytes=0-9", 100, Some(Some((0, 10)))),
            ("bytes=90-", 100, Some(Some((90, 10)))),
            ("bytes=90-200", 100, Some(Some((90, 10)))),
            ("bytes=-10", 100, Some(Some((90, 10)))),
            ("bytes=-200", 100, Some(Some((0, 100)))),
            ("bytes=99-99", 100, Some(Some((99, 1)))),
            ("bytes=100-", 100, Some(None)),
            ("bytes=-0", 100, Some(None)),
            ("bytes=0-", 0, Some(None)),
            ("bytes=99999999999999999999-", 100, Some(None)),
            ("bytes=9-1", 100, None),
            ("bytes=0-1,5-6", 100, None),
            ("bytes=a-b", 100, None),
            ("lines=0-1", 100, None),
        ] {
            assert_eq!(parsed_range(asked, size), expected, "{asked} of {size}");
        }
    }
}
