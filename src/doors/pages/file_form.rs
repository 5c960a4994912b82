//! A form with files as it comes: of what its sender sends, memory holds a few pieces, also where that is no form. Never
//! decides what the fields are for.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::multipart::{Field, Multipart, MultipartRejection};
use axum::extract::{FromRequest, Request};
use futures_util::{Stream, StreamExt as _};
use rules::refusal::Refusal;
use rules::refusals;

/// Bytes after which the reader of a form gets time to hand on what it has.
const AHEAD: u64 = 1 << 20;
/// Bytes of a form that were read and not handed on: heads of its files, and what may become one. Higher: more memory for
/// each form. Lower: a form of many small files is refused.
const MAX_FORM_AHEAD: u64 = 8 << 20;

/// A form that is being read.
pub(super) struct FileForm {
    form: Multipart,
    handed: Arc<AtomicU64>,
}

/// One field of a form, of which nothing was read yet.
pub(super) struct FileField<'a> {
    field: Field<'a>,
    handed: &'a AtomicU64,
}

/// The bytes of a form, which break off where too many of them wait.
struct FormBytes {
    body: BodyDataStream,
    came: u64,
    handed: Arc<AtomicU64>,
    /// At how many waiting bytes the reader gets time again.
    next_rest: u64,
}

impl<S: Send + Sync> FromRequest<S> for FileForm {
    type Rejection = MultipartRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let handed = Arc::<AtomicU64>::default();
        let bounded = Arc::clone(&handed);
        let request = request.map(|body| {
            Body::from_stream(FormBytes {
                body: body.into_data_stream(),
                came: 0,
                handed: bounded,
                next_rest: AHEAD,
            })
        });
        let form = Multipart::from_request(request, state).await?;
        Ok(Self { form, handed })
    }
}

impl FileForm {
    /// The next field; None behind the last one.
    ///
    /// Errors: `upload.cut`.
    pub(super) async fn next_field(&mut self) -> Result<Option<FileField<'_>>, Refusal> {
        let handed: &AtomicU64 = &self.handed;
        let field = self.form.next_field().await.map_err(|_| cut())?;
        Ok(field.map(|field| FileField { field, handed }))
    }
}

impl FileField<'_> {
    pub(super) fn name(&self) -> &str {
        self.field.name().unwrap_or_default()
    }

    /// What the file is called by its sender; empty where none was chosen.
    pub(super) fn file_name(&self) -> &str {
        self.field.file_name().unwrap_or_default()
    }

    /// More of its bytes; None behind the last ones.
    ///
    /// Errors: `upload.cut`.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Refusal> {
        let bytes = self.field.chunk().await.map_err(|_| cut())?;
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.handed.fetch_add(length, Ordering::Relaxed);
        Ok(bytes)
    }

    /// All of it as text; None where that is longer than `most` bytes.
    ///
    /// Errors: `upload.cut`.
    pub(super) async fn text(mut self, most: usize) -> Result<Option<String>, Refusal> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if all.len() + bytes.len() > most {
                return Ok(None);
            }
            all.extend_from_slice(&bytes);
        }
        Ok(String::from_utf8(all).ok())
    }
}

impl Stream for FormBytes {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BoxError>>> {
        let form = self.get_mut();
        let ahead = form
            .came
            .saturating_sub(form.handed.load(Ordering::Relaxed));
        if ahead > MAX_FORM_AHEAD {
            return Poll::Ready(Some(Err("too much of a form waits".into())));
        }
        // The reader reads for as long as there is something, before it hands anything on.
        if ahead < AHEAD {
            form.next_rest = AHEAD;
        }
        if ahead >= form.next_rest {
            form.next_rest = ahead + AHEAD;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        match form.body.poll_next_unpin(context) {
            Poll::Ready(Some(Ok(bytes))) => {
                form.came += bytes.len() as u64;
                Poll::Ready(Some(Ok(bytes)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn cut() -> Refusal {
    refusals::upload_cut()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::extract::DefaultBodyLimit;
    use futures_util::stream;

    use super::*;

    /// A form that begins with `begin` and goes on as `piece` for ever, and how much of it was read.
    async fn endless(begin: &'static str, piece: &'static [u8]) -> (FileForm, Arc<AtomicU64>) {
        let read = Arc::<AtomicU64>::default();
        let count = Arc::clone(&read);
        let begin = stream::iter([Bytes::from_static(begin.as_bytes())]);
        let rest = stream::repeat_with(move || {
            count.fetch_add(piece.len() as u64, Ordering::Relaxed);
            Bytes::from_static(piece)
        });
        let body = Body::from_stream(begin.chain(rest).map(Ok::<Bytes, Infallible>));
        let mut request = Request::builder()
            .header("content-type", "multipart/form-data; boundary=b")
            .body(body)
            .expect("a request");
        DefaultBodyLimit::disable().apply(&mut request);
        let form = FileForm::from_request(request, &()).await;
        (form.expect("a form"), read)
    }

    #[tokio::test]
    async fn a_form_without_end_takes_little_memory() {
        const PIECE: &[u8] = &[b'x'; 65_536];
        let bound = MAX_FORM_AHEAD + 2 * PIECE.len() as u64;
        let (mut form, read) = endless("--b\r\nx: ", PIECE).await;
        assert!(form.next_field().await.is_err(), "a head without end");
        assert!(read.load(Ordering::Relaxed) <= bound);
        let head = "--b\r\ncontent-disposition: form-data; name=\"path\"\r\n\r\n";
        let (mut form, read) = endless(head, PIECE).await;
        let field = form.next_field().await.expect("a form").expect("a field");
        assert_eq!(field.name(), "path");
        assert_eq!(field.text(4000).await.expect("read"), None);
        assert!(read.load(Ordering::Relaxed) <= bound);
        // What is handed on comes for as long as it likes.
        let (mut form, read) = endless(head, PIECE).await;
        let mut field = form.next_field().await.expect("a form").expect("a field");
        let mut taken = 0;
        while taken < 4 * MAX_FORM_AHEAD {
            taken += field.chunk().await.expect("read").expect("more").len() as u64;
        }
        assert!(read.load(Ordering::Relaxed) - taken <= bound);
    }
}
