//! Notices by mail: what a user chose, how the mail server stands, and a trial of it.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::notices::NoticeTopic;

/// What a user gets by mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MailChoices)]
pub struct MailChoicesView {
    /// The address of the account; null: it has none, and gets no mail.
    pub address: Option<String>,
    /// The site has a mail server.
    pub enabled: bool,
    /// Kinds of notices that are mailed.
    pub kinds: Vec<NoticeTopic>,
    /// The user chose nothing: these are the kinds that need an answer.
    pub by_default: bool,
}

/// What a user wants to get by mail.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = MailChoicesRequest)]
#[serde(deny_unknown_fields)]
pub struct MailChoicesBody {
    /// Kinds of notices; an empty list: no mail; null: those that need an answer.
    pub kinds: Option<Vec<NoticeTopic>>,
}

/// How mail of this site stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MailStatus)]
pub struct MailStatusView {
    /// Host and port of the mail server; null: none is set.
    pub server: Option<String>,
    /// Address that mail comes from.
    pub from: Option<String>,
    /// Notices that wait.
    pub waiting: u64,
    /// Notices that the mail server refused for good, and that can be sent again; at most 1,000, for 72 hours.
    pub failed: u64,
    /// Why it refused the newest of them, in English; empty where there is none.
    pub failure: String,
    /// Notices that were given up since the server was set.
    pub lost: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lost_at: Option<Timestamp>,
    /// When the mail server last took one.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub sent_at: Option<Timestamp>,
    /// Why it takes none, in English; empty where it does.
    pub problem: String,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub problem_since: Option<Timestamp>,
}

/// Whom a trial goes to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = MailTest)]
#[serde(deny_unknown_fields)]
pub struct MailTestBody {
    pub address: String,
}

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MailTrial {
    /// The mail server took the mail.
    pub works: bool,
    /// What it answered, in its own words; empty where it did not take it.
    pub answer: String,
    /// What is wrong, in English; empty where it works.
    pub problem: String,
}
