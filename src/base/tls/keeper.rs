//! Keeps this machine's certificates: makes its authority once, its own certificate whenever names,
//! addresses or the calendar ask for one, and holds a site's certificate beside them. A change takes
//! effect at the next handshake; connections that stand are not touched.
//!
//! Each file holds a key and its certificates together, so that a crash never leaves one without the
//! other: `authority.pem`, `own.pem`, `site.pem`, `site-before.pem`, `request.pem`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rcgen::{KeyPair, SigningKey as _};
use rules::notice::Notice;
use rules::notices;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use super::facts::{self, CertificateDetails, Pair};
use super::names::{HostNames, is_name};
use super::{TlsError, fault, files, make, provider};
use crate::observe::Clock;

/// No honest clock shows an earlier time than this: 1 November 2026, when this was written. A machine
/// whose battery died would otherwise make certificates that have long expired.
const NO_EARLIER: i64 = 1_793_491_200_000;
/// Days before its end at which the machine's own certificate is renewed.
const RENEWED_BEFORE_DAYS: u64 = 60;
/// Days before its end from which a site's certificate is spoken of.
const WARNED_BEFORE_DAYS: u64 = 30;
const DAY: u64 = 86_400;
/// Most names in a request.
const MAX_CERTIFICATE_NAMES: usize = 50;

/// Which certificate people meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateKind {
    /// Signed by this machine's own authority.
    Own,
    /// Brought by an administrator.
    Site,
}

/// What is served now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedCertificate {
    pub kind: CertificateKind,
    pub certificate: CertificateDetails,
    /// The machine's own authority, whichever certificate is served.
    pub authority: CertificateDetails,
    /// What this machine is called and can be reached by.
    pub names: Vec<String>,
    /// A site's certificate that was replaced or put away is kept.
    pub previous: Option<CertificateDetails>,
    /// A request was made here and no certificate came for it yet: the names in it.
    pub requested: Option<Vec<String>>,
}

/// The machine's own authority, for clients that are to trust it. Public.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityDetails {
    pub fingerprint: String,
    pub subject: String,
    pub not_after: Timestamp,
    pub pem: String,
    #[serde(skip)]
    pub der: Vec<u8>,
    /// What is served was signed by it; false while a site's certificate is in use.
    pub in_use: bool,
}

/// All certificates of one folder. One for the whole process.
pub struct Keeper {
    folder: PathBuf,
    clock: Clock,
    served: Arc<CertificateResolver>,
    state: Mutex<KeeperState>,
}

struct KeeperState {
    names: HostNames,
    authority: StoredKey,
    own: StoredKey,
    site: Option<StoredKey>,
    /// `site.pem` is there and cannot be used; why.
    site_broken: Option<String>,
}

/// One file, read.
struct StoredKey {
    key_pem: String,
    chain_pem: String,
    pair: Pair,
    facts: CertificateDetails,
}

/// Hands the certificate of this moment to each handshake.
#[derive(Debug)]
struct CertificateResolver(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&served))
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper")
    }
}

impl Keeper {
    /// Opens the folder of certificates, and makes what is missing in it.
    ///
    /// Errors: `tls.key-owner`, `tls.key-exposed` for files that others may touch, and
    /// `tls.authority-damaged` where the authority cannot be read: making a new one would take away the
    /// trust of every computer around, so a person decides that.
    pub fn open(folder: &Path, clock: Clock, names: HostNames) -> Result<Self, TlsError> {
        files::folder(folder)?;
        let at = sober(clock.now());
        let path = folder.join("authority.pem");
        let authority = match files::read(&path)? {
            Some(text) => StoredKey::read(&text).map_err(|_| damaged(&path))?,
            None => {
                let made = make::authority(&names.host, at)?;
                files::write(&path, &made.text())?;
                StoredKey::of(made)?
            }
        };
        let kept_own = files::read(&folder.join("own.pem"))?
            .and_then(|text| StoredKey::read(&text).ok())
            .filter(|own| own.fits(&names, &authority, at));
        let own = match kept_own {
            Some(own) => own,
            None => make_own(folder, &authority, &names, at)?,
        };
        let (site, site_broken) = match files::read(&folder.join("site.pem"))? {
            None => (None, None),
            Some(text) => match StoredKey::read(&text) {
                Ok(site) => (Some(site), None),
                Err(refusal) => (None, Some(refusal.text)),
            },
        };
        let served = site.as_ref().unwrap_or(&own).certified()?;
        Ok(Self {
            folder: folder.to_owned(),
            clock,
            served: Arc::new(CertificateResolver(RwLock::new(Arc::new(served)))),
            state: Mutex::new(KeeperState {
                names,
                authority,
                own,
                site,
                site_broken,
            }),
        })
    }

    /// How the listeners shake hands: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(fault("choose the versions of TLS"))?
            .with_no_client_auth()
            .with_cert_resolver(self.served.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Renews the machine's own certificate where it has to be: other names or addresses, or its end
    /// is near. Gives true where it did. Costs nothing else.
    pub fn renew(&self, names: HostNames) -> Result<bool, TlsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = sober(self.clock.now());
        if state.own.fits(&names, &state.authority, at) {
            return Ok(false);
        }
        state.own = make_own(&self.folder, &state.authority, &names, at)?;
        state.names = names;
        self.serve(&state)?;
        Ok(true)
    }

    fn serve(&self, state: &KeeperState) -> Result<(), TlsError> {
        let certified = state.site.as_ref().unwrap_or(&state.own).certified()?;
        *self
            .served
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(certified);
        Ok(())
    }

    /// The machine's own authority.
    pub fn authority(&self) -> AuthorityDetails {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        AuthorityDetails {
            fingerprint: state.authority.facts.fingerprint.clone(),
            subject: state.authority.facts.subject.clone(),
            not_after: state.authority.facts.not_after,
            pem: state.authority.chain_pem.clone(),
            der: state.authority.first().to_vec(),
            in_use: state.site.is_none(),
        }
    }

    /// What is served, and what is kept beside it.
    pub fn shown(&self) -> Result<ServedCertificate, TlsError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = if state.site.is_some() {
            CertificateKind::Site
        } else {
            CertificateKind::Own
        };
        let previous = files::read(&self.folder.join("site-before.pem"))?
            .and_then(|text| StoredKey::read(&text).ok())
            .map(|kept| kept.facts);
        let requested =
            files::read(&self.folder.join("request.pem"))?.map(|text| requested_names(&text));
        Ok(ServedCertificate {
            kind,
            certificate: state.site.as_ref().unwrap_or(&state.own).facts.clone(),
            authority: state.authority.facts.clone(),
            names: state.names.all(),
            previous,
            requested,
        })
    }

    /// Makes a key that stays here and a request for it, in place of an earlier request; gives the
    /// request as PEM. `names` empty: what the machine is called, without loopback.
    ///
    /// Errors: `tls.name-invalid`, `tls.too-many-names`, `tls.organisation-invalid`.
    pub fn request(&self, names: &[String], organisation: &str) -> Result<String, TlsError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted: Vec<String> = Vec::new();
        for name in names.iter().map(|name| name.trim().to_ascii_lowercase()) {
            let bare = name.strip_prefix("*.").unwrap_or(&name);
            if !is_name(bare) && name.parse::<std::net::IpAddr>().is_err() {
                return Err(refusals::tls_name_invalid(format_args!("{name:?}"))
                    .at("/names")
                    .into());
            }
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
        if wanted.is_empty() {
            wanted = outward(&state.names);
        }
        if wanted.len() > MAX_CERTIFICATE_NAMES {
            return Err(refusals::tls_too_many_names(MAX_CERTIFICATE_NAMES)
                .at("/names")
                .into());
        }
        let organisation = organisation.trim();
        if organisation.chars().count() > 64 || organisation.chars().any(char::is_control) {
            return Err(refusals::tls_organisation_invalid()
                .at("/organisation")
                .into());
        }
        let made = make::request(&wanted, organisation)?;
        files::write(&self.folder.join("request.pem"), &made.text())?;
        Ok(made.chain_pem)
    }

    /// Serves an imported certificate from now on. Without a key the one of the last request is
    /// taken. `name`: what people call this machine, where it does not know that itself. What was served
    /// before, if it was a site's, is kept.
    ///
    /// Errors: the codes of `facts::check`; `tls.key-missing` without key and request. Nothing changes
    /// then.
    pub fn import(
        &self,
        certificate: &str,
        key: Option<&str>,
        name: Option<&str>,
    ) -> Result<CertificateDetails, TlsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Before any look for a key: without a certificate there is nothing that one could belong to.
        let chain = facts::chain(certificate)?;
        if chain.is_empty() {
            return Err(refusals::tls_certificate_unreadable()
                .at("/certificate")
                .into());
        }
        let request = self.folder.join("request.pem");
        let requested = files::read(&request)?;
        let given = key.filter(|text| !text.trim().is_empty());
        let key_pem = match (given, &requested) {
            (Some(text), _) => text.to_owned(),
            // People keep both in one file.
            (None, _) if certificate.contains("PRIVATE KEY-----") => certificate.to_owned(),
            (None, Some(text)) => text.clone(),
            (None, None) => {
                return Err(refusals::tls_key_missing().at("/key").into());
            }
        };
        let pair = Pair {
            key: facts::key(&key_pem)?,
            chain,
        };
        let mut wanted = outward(&state.names);
        if given.is_none() {
            wanted.extend(
                requested
                    .as_deref()
                    .map(requested_names)
                    .unwrap_or_default(),
            );
        }
        if let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) {
            wanted = vec![name.to_ascii_lowercase()];
        }
        facts::check(&pair, &wanted, self.clock.now())?;
        let site = StoredKey::from_pair(pair)?;
        let path = self.folder.join("site.pem");
        if state.site.is_some() {
            let before = files::read(&path)?.unwrap_or_default();
            files::write(&self.folder.join("site-before.pem"), &before)?;
        }
        files::write(&path, &site.text())?;
        if given.is_none() && requested.is_some() {
            files::remove(&request)?;
        }
        let facts = site.facts.clone();
        state.site = Some(site);
        state.site_broken = None;
        self.serve(&state)?;
        Ok(facts)
    }

    /// Serves the machine's own certificate again (`CertificateKind::Own`), or the site's certificate that was
    /// served before (`CertificateKind::Site`). What is put away can be taken back the same way.
    ///
    /// Errors: `tls.nothing-before`, `tls.certificate-expired`.
    pub fn reset(&self, to: CertificateKind) -> Result<CertificateDetails, TlsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (site, before) = (
            self.folder.join("site.pem"),
            self.folder.join("site-before.pem"),
        );
        match to {
            CertificateKind::Own => {
                files::rename(&site, &before)?;
                state.site = None;
                state.site_broken = None;
            }
            CertificateKind::Site => {
                let nothing = || refusals::tls_nothing_before();
                let text = files::read(&before)?.ok_or_else(nothing)?;
                let kept = StoredKey::read(&text)?;
                if kept.facts.not_after <= self.clock.now() {
                    return Err(
                        refusals::tls_certificate_expired_before(kept.facts.not_after).into(),
                    );
                }
                let now = files::read(&site)?;
                files::write(&site, &text)?;
                match now {
                    Some(now) => files::write(&before, &now)?,
                    None => files::remove(&before)?,
                }
                state.site = Some(kept);
                state.site_broken = None;
            }
        }
        self.serve(&state)?;
        Ok(state.site.as_ref().unwrap_or(&state.own).facts.clone())
    }

    /// The authority's signature of some bytes: ECDSA over P-256 with SHA-256, in DER. Any reader who has the
    /// authority's certificate can check it.
    pub fn sign(&self, what: &[u8]) -> Result<Vec<u8>, TlsError> {
        let failed = fault::<rcgen::Error>;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = KeyPair::from_pem(&state.authority.key_pem)
            .map_err(failed("read the authority's key"))?;
        key.sign(what)
            .map_err(failed("sign with the authority's key"))
    }

    /// What an administrator should mend; empty while all is well.
    pub fn worries(&self) -> Vec<Notice> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let mut worries = Vec::new();
        let own_since = state.own.facts.not_before;
        if now.as_millis() < NO_EARLIER || now < own_since {
            worries.push(notices::clock_behind(now, own_since));
        }
        if let Some(why) = &state.site_broken {
            worries.push(notices::certificate_damaged(why));
        }
        if let Some(site) = &state.site {
            let end = site.facts.not_after;
            let days = end.seconds_since(now) / DAY;
            if end <= now {
                worries.push(notices::certificate_expired(end));
            } else if days < WARNED_BEFORE_DAYS {
                worries.push(notices::certificate_ends_soon(days, end));
            }
            if !outward(&state.names)
                .iter()
                .any(|n| facts::covers(&site.facts.names, n))
            {
                let names = site.facts.names.join(", ");
                worries.push(notices::certificate_other_name(names, &state.names.host));
            }
        }
        worries
    }
}

fn make_own(
    folder: &Path,
    authority: &StoredKey,
    names: &HostNames,
    at: Timestamp,
) -> Result<StoredKey, TlsError> {
    let made = make::own(
        &authority.key_pem,
        authority.first(),
        &authority.chain_pem,
        names,
        at,
    )?;
    files::write(&folder.join("own.pem"), &made.text())?;
    StoredKey::of(made)
}

impl StoredKey {
    fn read(text: &str) -> Result<Self, Refusal> {
        let pair = Pair {
            key: facts::key(text)?,
            chain: facts::chain(text)?,
        };
        let Some(first) = pair.chain.first() else {
            return Err(refusals::tls_file_without_certificate());
        };
        let facts = facts::facts(first)?;
        facts::certified(&pair)?;
        let at = text
            .find("-----BEGIN CERTIFICATE-----")
            .unwrap_or(text.len());
        let (key_pem, chain_pem) = text.split_at(at);
        Ok(Self {
            key_pem: key_pem.to_owned(),
            chain_pem: chain_pem.to_owned(),
            pair,
            facts,
        })
    }

    fn of(made: make::KeyAndChain) -> Result<Self, TlsError> {
        Self::read(&made.text()).map_err(fault("read what was just made"))
    }

    /// Writes a pair in our own form; it may have come in another.
    fn from_pair(pair: Pair) -> Result<Self, TlsError> {
        let key = key_pem(&pair.key);
        let chain: String = pair.chain.iter().map(|c| pem("CERTIFICATE", c)).collect();
        Ok(Self::read(&format!("{key}{chain}"))?)
    }

    fn text(&self) -> String {
        format!("{}{}", self.key_pem, self.chain_pem)
    }

    fn first(&self) -> &CertificateDer<'static> {
        self.pair
            .chain
            .first()
            .expect("read refuses an empty chain")
    }

    fn certified(&self) -> Result<CertifiedKey, TlsError> {
        Ok(facts::certified(&self.pair)?)
    }

    /// Whether this is the machine's own certificate as it should be at `at`.
    fn fits(&self, names: &HostNames, authority: &StoredKey, at: Timestamp) -> bool {
        let mut has = self.facts.names.clone();
        let mut wanted = names.all();
        has.sort();
        wanted.sort();
        has == wanted
            && self.pair.chain.get(1) == Some(authority.first())
            && self.facts.not_before <= at
            && self.facts.not_after > at.plus_seconds(RENEWED_BEFORE_DAYS * DAY)
    }
}

fn key_pem(key: &rustls::pki_types::PrivateKeyDer<'_>) -> String {
    use rustls::pki_types::PrivateKeyDer;
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    pem(label, key.secret_der())
}

pub(super) fn pem(label: &str, bytes: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).expect("base64 is ASCII"))
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

/// Names that other machines may use.
fn outward(names: &HostNames) -> Vec<String> {
    let hosts = names
        .hosts
        .iter()
        .filter(|h| *h != "localhost" && !h.ends_with(".localhost"));
    // The machine's own name first: it becomes the common name of a request.
    let mut all = vec![names.host.clone()];
    all.extend(hosts.filter(|h| **h != names.host).cloned());
    all.extend(names.outward().map(|a| a.to_string()));
    all
}

/// The names in the request of a file; empty where it cannot be read.
fn requested_names(text: &str) -> Vec<String> {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::extensions::ParsedExtension;
    use x509_parser::prelude::FromDer as _;
    let Ok(request) =
        rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(text.as_bytes())
    else {
        return Vec::new();
    };
    let Ok((_, read)) = X509CertificationRequest::from_der(&request) else {
        return Vec::new();
    };
    let Some(extensions) = read.requested_extensions() else {
        return Vec::new();
    };
    extensions
        .filter_map(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => {
                Some(facts::general_names(&names.general_names))
            }
            _ => None,
        })
        .flatten()
        .collect()
}

fn damaged(path: &Path) -> Refusal {
    let shown = path.display();
    refusals::tls_authority_damaged(&shown)
}

/// The time that certificates are made by: never before `NO_EARLIER`.
fn sober(now: Timestamp) -> Timestamp {
    now.max(Timestamp::from_millis(NO_EARLIER))
}

#[cfg(test)]
mod tests;
