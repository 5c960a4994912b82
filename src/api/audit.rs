//! The audit log: what users did, signed checkpoints of it, and the lines of an export.

use std::collections::BTreeMap;

use rules::names::UserId;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditEntryView {
    /// Place in the log, from 1 without a gap.
    pub sequence: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// A user's name, or the part of the server that acted; empty for a failed sign-in by an unknown name.
    pub actor: String,
    #[schema(value_type = Option<String>, format = Uuid)]
    pub actor_id: Option<UserId>,
    /// By what the actor proved who they are: `browser`, `token`, `ssh-key`, `session` (from inside) or `socket`; `none` before
    /// sign-in, `server` for what the server did by itself.
    pub via: String,
    /// Id of the sign-in or the token.
    #[schema(value_type = Option<String>, format = Uuid)]
    pub credential: Option<Uuid>,
    /// Where the request came from.
    pub address: String,
    /// Stable, dotted, such as `session.stopping`.
    pub act: String,
    /// What sort of thing the object is, such as `sessions`.
    pub topic: String,
    /// Id of the thing.
    pub object: String,
    /// Name of the domain that the act is of.
    pub domain: Option<String>,
    /// Name of the project that the act is of.
    pub project: Option<String>,
    /// State before, in a word.
    pub before: String,
    /// State after, in a sentence; how many there were, where acts were counted together.
    pub after: String,
    /// Code of the refusal; empty where it was done.
    pub reason: String,
    /// Id of the request.
    pub request: String,
}

/// Some of the acts that a search finds, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditPage)]
pub struct AuditSearchPage {
    pub items: Vec<AuditEntryView>,
    /// Names of the sessions, users, projects and images among the objects, by their ids.
    pub names: BTreeMap<String, String>,
    /// Asks for older acts; null at the end.
    pub next_cursor: Option<String>,
    /// Acts that the search finds from here on; 10,000 stands for that many or more.
    pub estimated_total: u64,
}

/// What acts are searched for. Empty text asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AuditQuery {
    /// Who acted.
    pub user: String,
    /// An act such as `session.stopping`, or its beginning such as `session`.
    pub act: String,
    /// Id of a thing, or the name of a session or a user.
    pub object: String,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// 1 to 500.
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// Which part of the log an export is of; empty: all that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AuditExportQuery {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Name of the user whose acts are told; of all others only digests are. Empty: of all that the reader may see.
    pub user: String,
}

/// One signed checkpoint: the hash of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditCheckpoint)]
pub struct AuditCheckpointView {
    /// The row.
    pub sequence: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// SHA-256 of the log up to the row, in hexadecimal.
    pub hash: String,
    /// JSON, byte for byte what was signed.
    pub checkpoint: String,
    /// ECDSA over P-256 with SHA-256, DER in base64, by the machine's own authority.
    pub signature: String,
}

/// A place outside that the audit log is handed over to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditTarget)]
pub struct AuditTargetView {
    /// `file`, `syslog` or `http`.
    pub target: String,
    /// Path or address.
    pub place: String,
    /// The newest row that it has; 0 before the first.
    pub delivered: u64,
    /// When it took the last rows; null before the first.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub delivered_at: Option<Timestamp>,
    /// Rows that it does not have yet.
    pub waiting: u64,
    /// Rows that were removed before it had them.
    pub lost: u64,
    /// Why it takes no rows, in English; empty where it does.
    pub problem: String,
    /// Since when; null where it takes rows.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub problem_since: Option<Timestamp>,
}

/// The first line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditExportHead {
    /// The form of the lines.
    pub audit: u32,
    pub installation: Uuid,
    /// The first row.
    pub first: u64,
    /// The hash before it, in hexadecimal.
    pub previous: String,
}

/// A row of an export: its statement where the reader may see it, else its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditExportRow<'a> {
    pub sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    pub hash: String,
}

/// A checkpoint behind its row, or in front of the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditExportCheckpoint<'a> {
    pub checkpoint: &'a str,
    pub signature: String,
}
