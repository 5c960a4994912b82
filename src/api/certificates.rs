//! Certificates: what is served, whom to trust, and what an administrator asks for. Private keys come in
//! and never go out.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret::SecretText;

/// What a request for a certificate says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = CertificateRequest)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateRequestInput {
    /// Host names and addresses; left out: what the machine is called
    pub names: Vec<String>,
    /// Who runs the machine
    pub organisation: String,
}

/// A certificate to import.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = CertificateImport)]
#[serde(deny_unknown_fields)]
pub struct CertificateUpload {
    /// PEM: the machine's own certificate first, then who signed it
    pub certificate: String,
    /// PEM; left out where it belongs to the request that was made here
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Password)]
    pub key: Option<SecretText>,
    /// What users call this machine, where it does not know that itself
    #[serde(default)]
    pub name: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = CertificateReset)]
#[serde(deny_unknown_fields)]
pub struct ResetRequest {
    #[serde(default = "own")]
    pub to: CertificateOrigin,
}

fn own() -> CertificateOrigin {
    CertificateOrigin::Own
}

/// Whose certificate is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TlsKind)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateOrigin {
    /// Signed by this machine's own authority.
    Own,
    /// Brought by an administrator.
    Site,
}

/// What stands in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Certificate)]
pub struct CertificateSummary {
    /// Its common name, or its whole subject where it has none.
    pub subject: String,
    pub issuer: String,
    /// Host names and addresses it speaks for
    pub names: Vec<String>,
    #[schema(value_type = String)]
    pub not_before: Timestamp,
    #[schema(value_type = String)]
    pub not_after: Timestamp,
    /// SHA-256, as 9F:2C:…
    pub fingerprint: String,
    /// It may sign others
    pub authority: bool,
}

/// The machine's own authority, for clients that are to trust it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Authority)]
pub struct CertificateAuthority {
    /// SHA-256, as 9F:2C:…
    pub fingerprint: String,
    pub subject: String,
    #[schema(value_type = String)]
    pub not_after: Timestamp,
    pub pem: String,
    /// The same as a file for browsers.
    #[serde(skip)]
    pub der: Vec<u8>,
    /// It signed what is served now
    pub in_use: bool,
}

/// The certificate that is served, and what is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Tls)]
pub struct CertificateStatus {
    pub kind: CertificateOrigin,
    pub certificate: CertificateSummary,
    /// The machine's own authority, whichever certificate is served.
    pub authority: CertificateSummary,
    /// What this machine is called and can be reached by
    pub names: Vec<String>,
    /// A site's certificate that was replaced or put away is kept.
    pub previous: Option<CertificateSummary>,
    /// Names of a request whose certificate has not come
    pub requested: Option<Vec<String>>,
}
