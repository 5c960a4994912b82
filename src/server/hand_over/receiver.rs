//! Reaches a receiver of the audit log: what stands in files about it, and a stream to the first of its addresses that
//! answers, encrypted where it is to be. Asks no name service, and knows nothing of what is sent.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::secret::SecretText;
use base::settings::Settings;
use base::tls::client::{server_name, trusting};
use base::tls::names::HostNames;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::HandOverFault;

/// Bytes of the token file and of the file with the authority.
const MAX_FILE_BYTES: u64 = 128 << 10;

/// What stands in files, read again for each batch.
pub(super) struct ReceiverPlan {
    /// The text of /etc/hosts.
    pub(super) hosts: String,
    /// What this machine is called.
    pub(super) own_name: String,
    /// None where nothing is encrypted.
    tls: Option<Arc<ClientConfig>>,
    pub(super) token: Option<SecretText>,
}

/// A stream in both directions, encrypted or not.
pub(super) trait ReceiverStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ReceiverStream for S {}

/// Whether a receiver is spoken to by TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    Tls,
    None,
}

impl ReceiverPlan {
    /// Reads them; `token_file` where the receiver is told a token.
    pub(super) async fn read(
        settings: &Arc<Settings>,
        protection: Protection,
        token_file: Option<PathBuf>,
    ) -> Result<Self, HandOverFault> {
        let settings = Arc::clone(settings);
        let read = tokio::task::spawn_blocking(move || {
            let tls = match (protection, &settings.audit_ca_file) {
                (Protection::None, _) => None,
                (Protection::Tls, Some(path)) => {
                    let (pem, _) = text_of(path)?;
                    let trusted = trusting(Some(&pem), false);
                    Some(trusted.map_err(|error| unusable(path, &error))?)
                }
                (Protection::Tls, None) => {
                    let trusted = trusting(None, true);
                    Some(trusted.map_err(|error| HandOverFault::File(error.to_string()))?)
                }
            };
            let token = match &token_file {
                None => None,
                Some(path) => {
                    let (text, mode) = text_of(path)?;
                    if mode & 0o077 != 0 {
                        return Err(unusable(path, &"others than its owner may read it"));
                    }
                    Some(SecretText::from(text.lines().next().unwrap_or_default()))
                }
            };
            Ok::<_, HandOverFault>(Self {
                hosts: std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
                own_name: HostNames::of_this_machine().host,
                tls,
                token,
            })
        });
        read.await.unwrap_or(Err(HandOverFault::Late))
    }

    /// Opens a stream to the first address that answers.
    pub(super) async fn open(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Box<dyn ReceiverStream>, HandOverFault> {
        let mut last = HandOverFault::Unknown;
        for address in base::addresses::of_host(host, &self.hosts) {
            let stream = match TcpStream::connect((address, port)).await {
                Ok(stream) => stream,
                Err(error) => {
                    last = error.into();
                    continue;
                }
            };
            let Some(tls) = &self.tls else {
                return Ok(Box::new(stream));
            };
            let name = server_name(host).ok_or(HandOverFault::Unknown)?;
            let connector = TlsConnector::from(Arc::clone(tls));
            return Ok(Box::new(connector.connect(name, stream).await?));
        }
        Err(last)
    }
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> HandOverFault {
    HandOverFault::File(format!("{}: {why}", path.display()))
}

/// The text of a file and its mode.
fn text_of(path: &Path) -> Result<(String, u32), HandOverFault> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| unusable(path, &error))?;
    let mode = file.metadata().map_err(|error| unusable(path, &error))?;
    file.take(MAX_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| unusable(path, &error))?;
    Ok((text, mode.mode()))
}
