//! Fetches an image from another registry into ours, over HTTP/1.1: its manifest, then each blob that this user does not
//! hold yet, going on where a connection broke. Speaks only to hosts that the settings allow, follows no redirect to another
//! host, and sends credentials only to the registry and to a token service that is allowed too. Unpacks nothing.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::settings::Settings;
use base::tls::client::{server_name, trusting};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, RANGE, USER_AGENT,
    WWW_AUTHENTICATE,
};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rules::provider::WebAddress;
use rules::refusals;
use rules::registry::{
    AllowedRegistry, ImageTag, RegistryChallenge, RemoteImage, allowed_registries, challenge,
};
use rustls::ClientConfig;
use serde::Deserialize;
use store::images::config::own_architecture;
use store::images::digest::Sha256Digest;
use store::registry::manifest::{
    INDEX_TYPES, MANIFEST_TYPES, MAX_MANIFEST_BYTES, ManifestOrIndex, NamedBlob, read, read_or_list,
};
use store::registry::{RegistryStore, UploadOwner};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use super::outcome::JobProgress;
use super::runner::RunningJob;
use crate::appliance::lazy_stores::upload_failure;
use crate::{Failure, ServerFault};

/// Longest time to open a connection. Longer: a dead host is noticed later. Shorter: one behind a slow line is given up.
const MAX_CONNECTING: Duration = Duration::from_secs(10);
/// Longest silence before an answer and within one.
const MAX_SILENCE: Duration = Duration::from_secs(60);
/// Redirects that are followed, all on the same host.
const MAX_REDIRECTS: usize = 3;
/// Connections that one blob may take. Higher: a line that breaks all the time is tried for long.
const MAX_TRIES: usize = 8;
/// Bytes that go to disk together, and are flushed.
const PIECE: usize = 4 << 20;
/// Bytes of an answer of a token service.
const MAX_TOKEN_BYTES: usize = 256 << 10;
/// Bytes of the files that settings name.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How often a pull looks whether it was called off.
const STOP_INTERVAL: Duration = Duration::from_millis(200);

/// What was fetched: the blob of this digest is the manifest, and those that it names are here.
pub(super) struct PulledManifest {
    pub(super) digest: Sha256Digest,
    pub(super) media_type: String,
}

/// Fetches an image for this user, who holds its blobs then. Ends within a second where the job is stopped.
///
/// Refuses `registry.not-allowed`, `registry.unreachable`, `registry.answer`, `registry.answer-invalid`,
/// `registry.manifest-invalid`, `registry.digest-mismatch`, `registry.credentials`, `disk.full`, `image.cancelled`.
pub(super) fn pull(
    job: &RunningJob<'_>,
    registry: &RegistryStore,
    settings: &Settings,
    owner: Uuid,
    image: &str,
) -> Result<PulledManifest, Failure> {
    let image = RemoteImage::parse(image)?;
    let mut client = RegistryClient::new(settings, &image)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ServerFault::new("begin to pull", error))?;
    let pulled = runtime.block_on(async {
        tokio::select! {
            biased;
            () = stopped(job) => Err(Failure::from(refusals::image_cancelled())),
            pulled = client.fetch(job, registry, owner, &image) => pulled,
        }
    });
    // A connection that was broken off may still be closing.
    runtime.shutdown_background();
    pulled
}

async fn stopped(job: &RunningJob<'_>) {
    while !job.is_stopped() {
        tokio::time::sleep(STOP_INTERVAL).await;
    }
}

/// One registry, as one pull speaks to it.
struct RegistryClient {
    host: String,
    address: WebAddress,
    allowed: Vec<AllowedRegistry>,
    tls: Arc<ClientConfig>,
    /// The text of /etc/hosts: no name service is asked.
    hosts: String,
    /// The value of `Authorization` by name and password, where the settings have them.
    basic: Option<String>,
    /// What is sent now.
    authorization: Option<String>,
    repository: String,
}

/// An answer, and what drives its connection.
struct OpenAnswer {
    response: Response<Incoming>,
    _driver: JoinSet<()>,
}

impl RegistryClient {
    fn new(settings: &Settings, image: &RemoteImage) -> Result<Self, Failure> {
        let setting = settings.registries.as_deref().unwrap_or_default();
        let allowed = allowed_registries(setting).unwrap_or_default();
        let found = allowed.iter().find(|one| one.host == image.host);
        let found = found.ok_or_else(refusals::registry_not_allowed)?;
        let pem = match &settings.registry_ca_file {
            Some(path) => Some(text_of(path, "registry_ca_file", false)?),
            None => None,
        };
        let tls = trusting(pem.as_deref(), pem.is_none())
            .map_err(|error| unusable("registry_ca_file", &error))?;
        let basic = match &settings.registry_credentials_file {
            Some(path) => {
                let text = text_of(path, "registry_credentials_file", true)?;
                basic_for(&text, &image.host)?
            }
            None => None,
        };
        Ok(Self {
            host: image.host.clone(),
            address: found.address.clone(),
            tls,
            hosts: std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
            basic,
            authorization: None,
            repository: image.repository.clone(),
            allowed,
        })
    }

    async fn fetch(
        &mut self,
        job: &RunningJob<'_>,
        registry: &RegistryStore,
        owner: Uuid,
        image: &RemoteImage,
    ) -> Result<PulledManifest, Failure> {
        let asked = match &image.tag {
            ImageTag::Digest(digest) => Sha256Digest::parse(digest),
            ImageTag::Tag(_) => None,
        };
        let (mut body, mut media_type) = self.manifest(image.tag.text()).await?;
        same_digest(asked.as_ref(), &body)?;
        let pushed = match read_or_list(&body, &media_type, own_architecture())? {
            ManifestOrIndex::Manifest(pushed) => pushed,
            ManifestOrIndex::Index { entries, .. } => {
                let ours = entries.into_iter().find(|entry| entry.is_ours);
                let ours = ours.ok_or_else(|| self.answer("its index has no image"))?;
                let digest = ours.manifest.digest;
                (body, media_type) = self.manifest(&digest.to_string()).await?;
                same_digest(Some(&digest), &body)?;
                read(&body, &media_type)?
            }
        };
        let digest = registry.put(owner, &body).map_err(upload_failure)?;
        let mut progress = PullProgress {
            job,
            done: 0,
            total: pushed.total_bytes(),
        };
        let who = UploadOwner {
            owner,
            repository: image.text(),
        };
        let mut seen = BTreeSet::new();
        for blob in &pushed.blobs {
            let is_new = seen.insert(&blob.digest);
            if is_new && !registry.is_held(owner, &blob.digest) {
                self.blob(registry, &who, blob, &mut progress).await?;
            } else {
                // Held longer, so that it stays until the rows name it.
                registry.hold(owner, &blob.digest).map_err(upload_failure)?;
                progress.add(blob.bytes);
            }
        }
        Ok(PulledManifest {
            digest,
            media_type: pushed.media_type,
        })
    }

    /// The bytes and the media type of a manifest or an index.
    async fn manifest(&mut self, reference: &str) -> Result<(Vec<u8>, String), Failure> {
        let path = format!("/v2/{}/manifests/{reference}", self.repository);
        let accept = [MANIFEST_TYPES, INDEX_TYPES].concat().join(", ");
        let answer = self.get(&path, &accept, 0).await?;
        let kind = answer.response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.to_owned();
        if answer.response.status() != StatusCode::OK {
            return Err(self.status(answer.response.status()));
        }
        let bytes = self.whole(answer, MAX_MANIFEST_BYTES).await?;
        Ok((bytes.to_vec(), kind))
    }

    /// Fetches one blob; goes on where a connection broke.
    async fn blob(
        &mut self,
        registry: &RegistryStore,
        who: &UploadOwner,
        blob: &NamedBlob,
        progress: &mut PullProgress<'_>,
    ) -> Result<(), Failure> {
        let now = progress.job.row.created_at;
        let id = registry.begin(who, now).map_err(upload_failure)?;
        let _given_up = PulledUpload { registry, who, id };
        self.pieces(registry, who, id, blob, progress).await?;
        registry
            .finish(id, who, &blob.digest)
            .map_err(upload_failure)?;
        Ok(())
    }

    async fn pieces(
        &mut self,
        registry: &RegistryStore,
        who: &UploadOwner,
        id: Uuid,
        blob: &NamedBlob,
        progress: &mut PullProgress<'_>,
    ) -> Result<(), Failure> {
        let path = format!("/v2/{}/blobs/{}", self.repository, blob.digest);
        let before = progress.done;
        let mut at = 0;
        for _ in 0..MAX_TRIES {
            let answer = self.get(&path, "*/*", at).await?;
            match (answer.response.status(), at) {
                (StatusCode::OK, 0) | (StatusCode::PARTIAL_CONTENT, 1..) => {}
                // It cannot go on in the middle: nothing is asked twice that came.
                (StatusCode::OK, _) => return Err(self.answer("it ignores ranges")),
                (status, _) => return Err(self.status(status)),
            }
            let mut body = answer.response.into_body();
            let mut buffer = Vec::with_capacity(PIECE);
            let is_whole = loop {
                let frame = match timeout(MAX_SILENCE, body.frame()).await {
                    Ok(Some(Ok(frame))) => frame,
                    Ok(None) => break true,
                    Ok(Some(Err(_))) | Err(_) => break false,
                };
                let Ok(bytes) = frame.into_data() else {
                    continue;
                };
                let come = at + buffer.len() as u64 + bytes.len() as u64;
                if come > blob.bytes {
                    return Err(self.answer("a blob is longer than its manifest says"));
                }
                buffer.extend_from_slice(&bytes);
                if buffer.len() >= PIECE {
                    at = registry
                        .append(id, who, Some(at), &buffer)
                        .map_err(upload_failure)?;
                    buffer.clear();
                    progress.set(before + at);
                }
            };
            if !buffer.is_empty() {
                at = registry
                    .append(id, who, Some(at), &buffer)
                    .map_err(upload_failure)?;
                progress.set(before + at);
            }
            if at == blob.bytes {
                return Ok(());
            }
            if is_whole {
                return Err(self.answer("a blob is shorter than its manifest says"));
            }
        }
        Err(self.unreachable("the connection breaks again and again"))
    }

    /// Asks for a path from byte `from` on, signed in where the registry wants it.
    async fn get(&mut self, path: &str, accept: &str, from: u64) -> Result<OpenAnswer, Failure> {
        let mut address = WebAddress {
            path: path.to_owned(),
            ..self.address.clone()
        };
        let mut has_signed_in = false;
        let mut redirects = 0;
        loop {
            let sent = self.authorization.clone();
            let answer = self.send(&address, accept, from, sent).await?;
            let status = answer.response.status();
            if status == StatusCode::UNAUTHORIZED && !has_signed_in {
                has_signed_in = true;
                let wanted = answer.response.headers().get_all(WWW_AUTHENTICATE);
                let wanted = wanted.iter().filter_map(|value| value.to_str().ok());
                let wanted = wanted.filter_map(challenge).next();
                drop(answer);
                self.sign_in(wanted).await?;
                continue;
            }
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(answer);
            }
            redirects += 1;
            if redirects > MAX_REDIRECTS {
                return Err(self.answer("it redirects again and again"));
            }
            let to = answer.response.headers().get(LOCATION);
            let to = to.and_then(|to| to.to_str().ok()).unwrap_or_default();
            let whole = match to.starts_with('/') && !to.starts_with("//") {
                true => format!("{}{to}", self.address.origin()),
                false => to.to_owned(),
            };
            address = WebAddress::parse(&whole)
                .filter(|to| to.origin() == self.address.origin())
                .ok_or_else(|| self.answer("it redirects to another host"))?;
        }
    }

    /// Signs in as the registry asks.
    async fn sign_in(&mut self, wanted: Option<RegistryChallenge>) -> Result<(), Failure> {
        let Some(wanted) = wanted else {
            return Err(self.status(StatusCode::UNAUTHORIZED));
        };
        match wanted {
            RegistryChallenge::Basic => {
                let basic = self.basic.clone();
                let basic = basic.ok_or_else(|| self.status(StatusCode::UNAUTHORIZED))?;
                self.authorization = Some(basic);
            }
            RegistryChallenge::Bearer { realm, service, .. } => {
                let token = self.token(&realm, &service).await?;
                self.authorization = Some(format!("Bearer {token}"));
            }
        }
        Ok(())
    }

    /// A token to pull from this repository and for nothing else.
    async fn token(&self, realm: &str, service: &str) -> Result<String, Failure> {
        let elsewhere = || self.answer("its token service is not allowed");
        let mut address = WebAddress::parse(realm).ok_or_else(elsewhere)?;
        let is_allowed = self
            .allowed
            .iter()
            .any(|one| one.address.origin() == address.origin());
        if !is_allowed || (self.address.encrypted && !address.encrypted) {
            return Err(elsewhere());
        }
        let mark = if address.path.contains('?') { '&' } else { '?' };
        let scope = format!("repository:{}:pull", self.repository);
        let query = format!(
            "{mark}service={}&scope={}",
            query_text(service),
            query_text(&scope)
        );
        address.path.push_str(&query);
        let basic = self.basic.clone();
        let answer = self.send(&address, "application/json", 0, basic).await?;
        if answer.response.status() != StatusCode::OK {
            return Err(self.status(answer.response.status()));
        }
        let bytes = self.whole(answer, MAX_TOKEN_BYTES).await?;
        let text: TokenText = serde_json::from_slice(&bytes)
            .map_err(|_| self.answer("its token service gives no token"))?;
        let token = text.token.or(text.access_token);
        let is_token =
            |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        token
            .filter(is_token)
            .ok_or_else(|| self.answer("its token service gives no token"))
    }

    async fn whole(&self, answer: OpenAnswer, most: usize) -> Result<Bytes, Failure> {
        let OpenAnswer { response, _driver } = answer;
        let body = Limited::new(response.into_body(), most);
        match timeout(MAX_SILENCE, body.collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(_)) => Err(self.answer("it is too long, or was broken off")),
            Err(_) => Err(self.unreachable("no answer in time")),
        }
    }

    /// One request on a connection of its own.
    async fn send(
        &self,
        address: &WebAddress,
        accept: &str,
        from: u64,
        authorization: Option<String>,
    ) -> Result<OpenAnswer, Failure> {
        let mut request = Request::builder()
            .uri(address.path.as_str())
            .header(HOST, address.authority())
            .header(USER_AGENT, concat!("fardel/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, accept);
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        if let Some(authorization) = authorization {
            let mut value = HeaderValue::from_str(&authorization)
                .map_err(|_| self.answer("its token cannot be sent"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|_| self.answer("its address cannot be asked"))?;
        let stream = self.connect(address).await?;
        if !address.encrypted {
            return self.speak(stream, request).await;
        }
        let name =
            server_name(&address.host).ok_or_else(|| self.unreachable("its name is none"))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        match timeout(MAX_CONNECTING, connector.connect(name, stream)).await {
            Ok(Ok(stream)) => self.speak(stream, request).await,
            Ok(Err(error)) => Err(self.unreachable(&error)),
            Err(_) => Err(self.unreachable("no answer in time")),
        }
    }

    /// Opens a connection to the first address that answers.
    async fn connect(&self, address: &WebAddress) -> Result<TcpStream, Failure> {
        let mut last = self.unreachable("its name is not in /etc/hosts");
        for found in base::addresses::of_host(&address.host, &self.hosts) {
            let connecting = TcpStream::connect((found, address.port));
            last = match timeout(MAX_CONNECTING, connecting).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => self.unreachable(&error),
                Err(_) => self.unreachable("no answer in time"),
            };
        }
        Err(last)
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Empty<Bytes>>,
    ) -> Result<OpenAnswer, Failure> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(&error))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // A broken connection shows in the answer that was cut off.
            let _ = connection.await;
        });
        match timeout(MAX_SILENCE, sender.send_request(request)).await {
            Ok(Ok(response)) => Ok(OpenAnswer {
                response,
                _driver: driver,
            }),
            Ok(Err(error)) => Err(self.unreachable(&error)),
            Err(_) => Err(self.unreachable("no answer in time")),
        }
    }

    fn unreachable(&self, why: impl Display) -> Failure {
        refusals::registry_unreachable(&self.host, why).into()
    }

    fn status(&self, status: StatusCode) -> Failure {
        refusals::registry_answer(&self.host, status.as_u16()).into()
    }

    fn answer(&self, why: &str) -> Failure {
        refusals::registry_answer_invalid(&self.host, why).into()
    }
}

/// An upload of a pull. What came of it goes with this, also where the pull is called off in the middle; once it has become
/// a blob, there is none.
struct PulledUpload<'a> {
    registry: &'a RegistryStore,
    who: &'a UploadOwner,
    id: Uuid,
}

impl Drop for PulledUpload<'_> {
    fn drop(&mut self) {
        match self.registry.cancel(self.id, self.who) {
            Err(error) if error.code() != Some(rules::codes::REGISTRY_UPLOAD_UNKNOWN) => {
                tracing::warn!(%error, "an upload of a pull stays until it is forgotten");
            }
            _ => {}
        }
    }
}

/// How far a pull is, in bytes.
struct PullProgress<'a> {
    job: &'a RunningJob<'a>,
    done: u64,
    total: u64,
}

impl PullProgress<'_> {
    fn add(&mut self, bytes: u64) {
        self.set(self.done.saturating_add(bytes));
    }

    fn set(&mut self, done: u64) {
        self.done = done;
        self.job.report(JobProgress {
            step: "downloading".to_owned(),
            done,
            total: self.total,
        });
    }
}

#[derive(Deserialize)]
struct TokenText {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

/// What `docker login` keeps, as far as it is read.
#[derive(Deserialize)]
struct CredentialsText {
    #[serde(default)]
    auths: std::collections::BTreeMap<String, CredentialText>,
}

#[derive(Deserialize)]
struct CredentialText {
    #[serde(default)]
    auth: Option<String>,
}

fn same_digest(wanted: Option<&Sha256Digest>, body: &[u8]) -> Result<(), Failure> {
    let real = Sha256Digest::of(body);
    match wanted {
        Some(wanted) if *wanted != real => {
            Err(refusals::registry_digest_mismatch(&real, wanted).into())
        }
        _ => Ok(()),
    }
}

/// The value of `Authorization` for a host; None where the file says nothing of it.
fn basic_for(text: &str, host: &str) -> Result<Option<String>, Failure> {
    let unusable = |why: &str| unusable("registry_credentials_file", &why);
    let known: CredentialsText =
        serde_json::from_str(text).map_err(|_| unusable("it is no JSON of docker login"))?;
    let found = known.auths.into_iter().find(|(name, _)| {
        let name = name
            .split_once("://")
            .map_or(name.as_str(), |(_, rest)| rest);
        name.split('/').next().unwrap_or_default() == host
    });
    let Some(auth) = found.and_then(|(_, one)| one.auth) else {
        return Ok(None);
    };
    let decoded = STANDARD
        .decode(&auth)
        .map_err(|_| unusable("an entry is no base64"))?;
    match decoded.contains(&b':') {
        true => Ok(Some(format!("Basic {}", STANDARD.encode(decoded)))),
        false => Err(unusable("an entry has no name and password")),
    }
}

/// The text of a file that a setting names; a secret one must be closed to others.
fn text_of(path: &Path, key: &'static str, is_secret: bool) -> Result<String, Failure> {
    let opened = std::fs::File::open(path).map_err(|error| unusable(key, &error))?;
    let mode = opened.metadata().map_err(|error| unusable(key, &error))?;
    if is_secret && mode.mode() & 0o077 != 0 {
        return Err(unusable(key, &"others may read it"));
    }
    let mut text = String::new();
    opened
        .take(MAX_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| unusable(key, &error))?;
    Ok(text)
}

/// The log has the reason; it may name a path, which the caller does not learn.
fn unusable(key: &'static str, why: &dyn Display) -> Failure {
    tracing::warn!(key, %why, "a file of the settings cannot be used");
    refusals::registry_credentials(key).into()
}

/// A value in a query.
fn query_text(text: &str) -> String {
    let mut written = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte) {
            true => written.push(char::from(byte)),
            false => written.push_str(&format!("%{byte:02X}")),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_those_of_their_host_alone() {
        let auth = STANDARD.encode("robot:secret");
        let text = serde_json::json!({
            "auths": {"https://registry.lab/v2/": {"auth": auth}, "other.lab": {}},
        })
        .to_string();
        let found = basic_for(&text, "registry.lab").unwrap();
        assert_eq!(found, Some(format!("Basic {auth}")));
        assert_eq!(basic_for(&text, "other.lab").unwrap(), None);
        assert_eq!(basic_for(&text, "evil.lab").unwrap(), None);
        assert!(basic_for("no json", "registry.lab").is_err());
    }

    #[test]
    fn what_a_pull_began_goes_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let limits = store::registry::RegistryLimits {
            reserve_bytes: 0,
            ..Default::default()
        };
        let registry = RegistryStore::open(folder.path(), limits).expect("a store");
        let who = UploadOwner {
            owner: Uuid::from_u128(1),
            repository: "registry.lab/tiny:1".into(),
        };
        let now = rules::units::Timestamp::from_millis(0);
        let begin = || registry.begin(&who, now).unwrap();
        let id = begin();
        registry.append(id, &who, Some(0), b"half").unwrap();
        let (registry, who) = (&registry, &who);
        drop(PulledUpload { registry, who, id });
        let left = std::fs::read_dir(folder.path().join("uploads")).unwrap();
        assert_eq!(left.count(), 0);
        let id = begin();
        let whole = PulledUpload { registry, who, id };
        registry.append(id, who, Some(0), b"whole").unwrap();
        let digest = Sha256Digest::of(b"whole");
        registry.finish(id, who, &digest).unwrap();
        drop(whole);
        assert!(registry.is_held(who.owner, &digest));
    }

    #[test]
    fn a_query_keeps_its_parts_apart() {
        assert_eq!(query_text("a b&c=d"), "a%20b%26c%3Dd");
        assert_eq!(
            query_text("repository:ml/vision:pull"),
            "repository:ml/vision:pull"
        );
    }
}
