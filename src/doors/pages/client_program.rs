//! `/downloads/fardel`: the program that serves, which is also the client, as a file for a user's own computer, and its
//! digest. The file is that of this very process, also after an upgrade replaced it on the disk. Never gives another file.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rules::refusals;
use server::access::{Lease, lease};
use server::{Failure, ServerFault};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, Semaphore};

use super::authentication::PageCaller;
use super::layout::Nav;
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::download;

/// Files that are on their way at the same time. More: slow readers hold more open files. Fewer: a class that begins
/// together waits.
const MAX_AT_ONCE: usize = 32;

/// The kernel's own name of the file that this process runs.
const RUNNING: &str = "/proc/self/exe";

/// How long after its start a server makes the digest of its program. Longer: a reader waits for it. Shorter: it takes a core
/// while sessions and their networks are taken up again.
const DIGEST_AFTER: Duration = Duration::from_secs(1);

/// The program as it is given away.
pub(super) struct ClientProgram {
    places: Arc<Semaphore>,
    digest: OnceCell<String>,
}

impl Default for ClientProgram {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_AT_ONCE)),
            digest: OnceCell::new(),
        }
    }
}

impl ClientProgram {
    /// Makes the digest soon, so that no reader waits until the whole file is read. Not in a build for tests, whose file is ten
    /// times as large and whose servers live for seconds; there, and outside a runtime, the first reader has it made.
    pub(super) fn digest_soon(self: &Arc<Self>) {
        if cfg!(debug_assertions) {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let program = Arc::clone(self);
            runtime.spawn(async move {
                tokio::time::sleep(DIGEST_AFTER).await;
                program.digest().await;
            });
        }
    }

    /// The SHA-256 of the file in hexadecimal digits; empty where it cannot be read. The first call costs reading it.
    pub(super) async fn digest(&self) -> String {
        let read = || async {
            let read = tokio::task::spawn_blocking(digest_of_running).await;
            read.map_err(std::io::Error::other).flatten()
        };
        match self.digest.get_or_try_init(read).await {
            Ok(digest) => digest.clone(),
            Err(error) => {
                tracing::warn!(%error, "the digest of the program was not made");
                String::new()
            }
        }
    }
}

fn digest_of_running() -> std::io::Result<String> {
    let mut file = std::fs::File::open(RUNNING)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            count => digest.update(&piece[..count]),
        }
    }
    let digest: [u8; 32] = digest.finalize().into();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `GET /downloads/fardel`
pub(super) async fn download(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
) -> Response {
    let given = async {
        let place = Arc::clone(&console.program.places).try_acquire_owned();
        let place = place.map_err(|_| refusals::program_busy(MAX_AT_ONCE))?;
        let (file, size) = opened().await?;
        Ok::<_, Failure>((place, file, size))
    };
    let (place, file, size) = match given.await {
        Ok(given) => given,
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::Docs);
            return responses::failure(&console, &visit, Some(frame), &failure);
        }
    };
    let tag = format!("\"{}-{size:x}\"", env!("CARGO_PKG_VERSION"));
    let known = headers.get(header::IF_NONE_MATCH);
    let mut response = match known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => {
            let ends = lease(&console.server, &caller);
            // The place is free again when the body is gone.
            let held: Lease = Box::pin(async move {
                let why = ends.await;
                drop(place);
                why
            });
            download::file("fardel", "application/octet-stream", size, file, held)
        }
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    let cached = HeaderValue::from_static("private, no-cache");
    headers.insert(header::CACHE_CONTROL, cached);
    // To compress some megabytes for each reader costs more than it saves, and loses the length.
    let plain = HeaderValue::from_static("identity");
    headers.insert(header::CONTENT_ENCODING, plain);
    response
}

/// The running program, and its bytes.
async fn opened() -> Result<(std::fs::File, u64), ServerFault> {
    let opened = tokio::task::spawn_blocking(|| {
        let file = std::fs::File::open(RUNNING)?;
        let size = file.metadata()?.len();
        Ok::<_, std::io::Error>((file, size))
    });
    let opened = opened.await.map_err(std::io::Error::other);
    opened
        .flatten()
        .map_err(|error| ServerFault::new("read the program", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_digest_is_that_of_the_running_program() {
        let bytes = std::fs::read(RUNNING).expect("this program");
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        let told = ClientProgram::default().digest().await;
        let expected: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(told, expected);
        let (_, size) = opened().await.expect("open");
        assert_eq!(size, bytes.len() as u64);
    }
}
