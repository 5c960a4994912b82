//! Encryption of what crosses the network: the box's own certificate authority and certificate, a site's
//! own certificate beside them, and the client's side of trust. Keeps keys in files of one folder; never
//! looks a name up, never speaks HTTP, and never says who may change a certificate.

pub mod client;
pub mod facts;
mod files;
pub mod keeper;
mod make;
pub mod names;
pub mod pinned;
pub mod signature;

use std::sync::Arc;

use rules::refusal::Refusal;
use rustls::crypto::CryptoProvider;

/// Why nothing came of work on certificates.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The caller's: what was given is not usable, or a file needs repair.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
    /// Ours: the disk or the cryptography failed.
    #[error("{what} failed")]
    Fault {
        what: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl From<Refusal> for TlsError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Names the work that failed, for `map_err`.
fn fault<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    what: &'static str,
) -> impl FnOnce(E) -> TlsError {
    move |source| TlsError::Fault {
        what,
        source: source.into(),
    }
}

/// The one cryptography of the product.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
