//! The second factor of an account: codes of an app beside the password.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret::SecretText;

/// The second factor of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SecondFactor)]
pub struct SecondFactorView {
    pub enabled: bool,
    /// Null: there is none.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Recovery codes that were not used.
    pub recovery_codes: u64,
}

/// What proves the user once more.
#[derive(Deserialize, ToSchema)]
#[schema(as = SecondFactorCredentials)]
#[serde(deny_unknown_fields)]
pub struct SecondFactorCredentialsBody {
    #[schema(value_type = String, format = Password)]
    pub password: SecretText,
    /// Where there is a second factor: the code that the app shows, or a recovery code.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Password)]
    pub code: Option<SecretText>,
}

/// A second factor that waits for its first code. Nothing of it is kept until then.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = SecondFactorOffer)]
pub struct SecondFactorOffer {
    /// For the app, in base32: SHA-1, 6 digits, 30 seconds.
    pub key: String,
    /// The same as `otpauth://…`, which apps read from a QR code.
    pub address: String,
    /// To be sent back with the first code.
    pub ticket: String,
    #[schema(value_type = String, format = DateTime)]
    pub ends_at: Timestamp,
}

impl std::fmt::Debug for SecondFactorOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecondFactorOffer")
    }
}

/// The first code of a new second factor.
#[derive(Deserialize, ToSchema)]
#[schema(as = SecondFactorConfirmation)]
#[serde(deny_unknown_fields)]
pub struct SecondFactorConfirmBody {
    #[schema(value_type = String, format = Password)]
    pub ticket: SecretText,
    #[schema(value_type = String, format = Password)]
    pub code: SecretText,
}

/// Codes for who lost the second factor, each good once. They are in this answer only.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct RecoveryCodes {
    pub codes: Vec<String>,
}

impl std::fmt::Debug for RecoveryCodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecoveryCodes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_shows_neither_key_nor_codes() {
        let offer = SecondFactorOffer {
            key: "HUSH".into(),
            address: "otpauth://totp/HUSH".into(),
            ticket: "HUSH".into(),
            ends_at: Timestamp::from_millis(0),
        };
        let codes = RecoveryCodes {
            codes: vec!["HUSH".into()],
        };
        assert!(!format!("{offer:?} {codes:?}").contains("HUSH"));
    }
}
