//! Webhooks: addresses of other programs that are told of events.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Webhook)]
pub struct WebhookView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    pub name: String,
    /// Where requests go; without its path for those who may not change it.
    pub address: String,
    /// Topics such as `sessions`, and codes or their beginnings such as `session.ended`.
    pub kinds: Vec<String>,
    /// It is told of events.
    pub active: bool,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it took events last.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub delivered_at: Option<Timestamp>,
    /// Events that it was not told of within three days.
    pub lost: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lost_at: Option<Timestamp>,
    /// Why it takes none, in English; empty where it does.
    pub problem: String,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub problem_since: Option<Timestamp>,
    /// Version, and ETag.
    pub generation: u64,
}

/// A new webhook with what signs its requests, this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeWebhook {
    pub webhook: WebhookView,
    pub secret: String,
}

/// It is told of what happens from now on.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewWebhook)]
#[serde(deny_unknown_fields)]
pub struct NewWebhookBody {
    pub name: String,
    /// https://HOST/PATH; http:// for a program on this machine alone.
    pub address: String,
    /// At least one topic, such as `sessions`, or code or beginning of one, such as `session.ended`.
    pub kinds: Vec<String>,
}

/// A merge patch: what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = WebhookPatch)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookPatchBody {
    pub address: Option<String>,
    pub kinds: Option<Vec<String>>,
    /// Switched on again, it is told of what happens from then on.
    pub active: Option<bool>,
}

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookTrial {
    pub works: bool,
    /// What came back; empty where it does not work.
    pub answer: String,
    /// What is wrong, in English; empty where it works.
    pub problem: String,
}
