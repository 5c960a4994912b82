//! What users may do with the certificates of this machine: every caller may see whom to trust,
//! administrators see more and change it. Private keys go in and never come out.

use std::sync::Arc;

use api::certificates::{
    CertificateAuthority, CertificateOrigin, CertificateRequestInput, CertificateStatus,
    CertificateSummary, CertificateUpload,
};
use api::secret::SecretText;
use base::tls::facts::CertificateDetails;
use base::tls::keeper::{AuthorityDetails, CertificateKind, Keeper, ServedCertificate};
use rules::notices;
use rules::permissions::Permission;
use rules::refusals;

use super::allowed;
use super::diagnostic_check::DiagnosticCheck;
use crate::access::Caller;
use crate::appliance::lazy_stores::tls_failure;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server, ServerFault};

/// Whom to trust: the machine's own authority. Public, so that users can look before they believe.
///
/// Errors: `tls.off` where nothing is encrypted.
pub async fn trust(server: &Server) -> Result<CertificateAuthority, Failure> {
    at_work(server, |keeper| Ok(authority(keeper.authority()))).await
}

/// The machine's own authority, also where nothing is encrypted: it signs the audit log too. Public as `trust`.
pub async fn signing_authority(server: &Server) -> Result<CertificateAuthority, Failure> {
    with_keeper(server, |keeper| Ok(authority(keeper.authority()))).await
}

/// What is served now. Errors: `tls.off`.
pub async fn show(server: &Server, caller: &Caller) -> Result<CertificateStatus, Failure> {
    allowed(caller, Permission::SystemRead)?;
    at_work(server, |keeper| keeper.shown().map(status)).await
}

/// Makes a key that stays here and gives the request for its certificate, as PEM. An earlier request and
/// its key are void.
///
/// Errors: `tls.name-invalid`, `tls.too-many-names`, `tls.organisation-invalid`, `tls.off`.
pub async fn request(
    server: &Server,
    caller: &Caller,
    wanted: CertificateRequestInput,
) -> Result<String, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let pem = at_work(server, move |keeper| {
        keeper.request(&wanted.names, &wanted.organisation)
    })
    .await?;
    note(server, caller, "tls.requested", String::new()).await?;
    Ok(pem)
}

/// Serves a site's certificate from now on. Nothing changes where it is refused.
///
/// Errors: `tls.certificate-…`, `tls.key-…`, `tls.chain-order`, each with what would work; `tls.off`.
pub async fn import(
    server: &Server,
    caller: &Caller,
    brought: CertificateUpload,
) -> Result<CertificateStatus, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let shown = at_work(server, move |keeper| {
        let key = brought.key.as_ref().map(SecretText::reveal);
        keeper.import(&brought.certificate, key, brought.name.as_deref())?;
        keeper.shown().map(status)
    })
    .await?;
    note(
        server,
        caller,
        "tls.imported",
        shown.certificate.fingerprint.clone(),
    )
    .await?;
    Ok(shown)
}

/// Serves the machine's own certificate again, or the site's certificate from before.
///
/// Errors: `tls.nothing-before`, `tls.certificate-expired`, `tls.off`.
pub async fn reset(
    server: &Server,
    caller: &Caller,
    to: CertificateOrigin,
) -> Result<CertificateStatus, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let shown = at_work(server, move |keeper| {
        keeper.reset(match to {
            CertificateOrigin::Own => CertificateKind::Own,
            CertificateOrigin::Site => CertificateKind::Site,
        })?;
        keeper.shown().map(status)
    })
    .await?;
    note(
        server,
        caller,
        "tls.reset",
        shown.certificate.fingerprint.clone(),
    )
    .await?;
    Ok(shown)
}

/// What is served, as the API says it.
fn status(served: ServedCertificate) -> CertificateStatus {
    CertificateStatus {
        kind: match served.kind {
            CertificateKind::Own => CertificateOrigin::Own,
            CertificateKind::Site => CertificateOrigin::Site,
        },
        certificate: summary(served.certificate),
        authority: summary(served.authority),
        names: served.names,
        previous: served.previous.map(summary),
        requested: served.requested,
    }
}

fn summary(details: CertificateDetails) -> CertificateSummary {
    CertificateSummary {
        subject: details.subject,
        issuer: details.issuer,
        names: details.names,
        not_before: details.not_before,
        not_after: details.not_after,
        fingerprint: details.fingerprint,
        authority: details.authority,
    }
}

fn authority(details: AuthorityDetails) -> CertificateAuthority {
    CertificateAuthority {
        fingerprint: details.fingerprint,
        subject: details.subject,
        not_after: details.not_after,
        pem: details.pem,
        der: details.der,
        in_use: details.in_use,
    }
}

/// What an administrator should mend about certificates and the clock; empty while all is well and where
/// nothing is encrypted.
pub(crate) fn worries(server: &Server) -> Vec<DiagnosticCheck> {
    let settings = server.settings();
    if !settings.encrypted() {
        let open = !settings.listen.ip().is_loopback();
        let worry = open.then(|| DiagnosticCheck::of(notices::tls_not_encrypted(), false, true));
        return worry.into_iter().collect();
    }
    let worries = match server.certificates() {
        Ok(keeper) => keeper.worries(),
        Err(failure) => {
            let error = base::observe::chain(&failure);
            tracing::error!(%error, "the certificates cannot be read");
            return Vec::new();
        }
    };
    worries
        .into_iter()
        .map(|notice| DiagnosticCheck::of(notice, false, true))
        .collect()
}

/// Does something with the certificates where waiting for the disk holds no request up.
async fn at_work<T: Send + 'static>(
    server: &Server,
    act: impl FnOnce(&Keeper) -> Result<T, base::tls::TlsError> + Send + 'static,
) -> Result<T, Failure> {
    if !server.settings().encrypted() {
        return Err(refusals::tls_off().into());
    }
    with_keeper(server, act).await
}

async fn with_keeper<T: Send + 'static>(
    server: &Server,
    act: impl FnOnce(&Keeper) -> Result<T, base::tls::TlsError> + Send + 'static,
) -> Result<T, Failure> {
    let keeper: Arc<Keeper> = server.certificates()?;
    tokio::task::spawn_blocking(move || act(&keeper).map_err(tls_failure))
        .await
        .map_err(|error| ServerFault::new("look at certificates", error))?
}

async fn note(
    server: &Server,
    caller: &Caller,
    code: &'static str,
    after: String,
) -> Result<(), Failure> {
    let actor = caller.name.clone();
    server
        .catalog()
        .write(
            Lane::Requests,
            "note a change of certificates",
            move |rows| {
                rows.note(NewEvent {
                    actor: actor.as_str(),
                    topic: "system",
                    object: "tls",
                    scope: rules::tenancy::Scope::SITE,
                    code,
                    before: "",
                    after: &after,
                })
            },
        )
        .await
}
