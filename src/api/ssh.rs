//! SSH: public keys of users, and by what the server itself is known. Holds no private key.

use rules::names::SshKeyId;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A public key that its user signs in with over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SshKey)]
pub struct SshKeyView {
    #[schema(value_type = String, format = Uuid)]
    pub id: SshKeyId,
    pub name: String,
    /// As SSH calls it, such as `ssh-ed25519`.
    pub kind: String,
    pub bits: u32,
    /// As `ssh-keygen -l` writes it.
    pub fingerprint: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Null: it does not expire.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// To the minute.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub used_at: Option<Timestamp>,
    /// Address it was last used from.
    pub used_from: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = NewSshKey)]
#[serde(deny_unknown_fields)]
pub struct NewSshKeyBody {
    /// The one line of a `.pub` file. Ed25519, ECDSA and RSA keys of 3,072 to 8,192 bits are taken, and hardware keys.
    pub public_key: String,
    /// Left out: what stands behind the key in its line.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

/// How sessions are reached by SSH. A client compares the fingerprint at its first connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SshServer)]
pub struct SshServerView {
    pub port: u16,
    /// Of the server's own key, as `ssh` asks about it.
    pub fingerprint: String,
    /// That key as a file of known hosts has it, without a name before it.
    pub host_key: String,
}
