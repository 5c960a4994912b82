//! What recorded sessions would have waited under other rules of the queue. Decides nothing.

use rules::fair_share::QueueOrder;
use rules::policy::BackfillMode;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::values::{BackfillModeShape, QueueOrderShape};

/// The sessions of a time, as they went, and as they go under the present rules and under those that are tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueRehearsal {
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// The end, which is left out.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// Sessions that ended in that time, with a place, and are played.
    pub sessions: u64,
    /// False where more ended in that time than one rehearsal plays: the earliest are played.
    pub complete: bool,
    /// As it went.
    pub recorded: RehearsalFigures,
    /// Played under the rules that hold now: what the others are compared with.
    pub present: RehearsedRules,
    pub tried: RehearsedRules,
    /// Users in their projects, those first who wait longer than under the present rules.
    pub items: Vec<RehearsedUser>,
}

/// Rules of the queue, and what came of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RehearsedRules {
    #[schema(value_type = QueueOrderShape)]
    pub order: QueueOrder,
    #[schema(value_type = BackfillModeShape)]
    pub backfill: BackfillMode,
    /// After so many hours use counts half, where the order is fair.
    pub half_life_hours: u64,
    pub figures: RehearsalFigures,
}

/// Waits, slowdown and use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RehearsalFigures {
    /// Seconds that sessions waited: half of them less, 95 of a hundred less, and the most.
    pub waited_p50_seconds: u64,
    pub waited_p95_seconds: u64,
    pub waited_max_seconds: u64,
    /// Wait and run as a multiple of the run, a run of less than a minute counted as one.
    pub slowdown_mean: f64,
    pub slowdown_p95: f64,
    /// The part of all GPUs that was held until the last session arrived, 0 to 1.
    pub busy: f64,
    /// Sessions that no machine of today has room for, or that a limit of today keeps out.
    pub not_started: u64,
}

/// Whom the rules help or harm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RehearsedUser {
    pub domain: String,
    pub project: String,
    pub user: String,
    pub sessions: u64,
    /// Its part of all GPU time until the last session arrived, 0 to 1, under the present rules and under those tried.
    pub present_share: f64,
    pub tried_share: f64,
    /// Seconds that its sessions waited on average.
    pub present_waited_seconds: u64,
    pub tried_waited_seconds: u64,
    /// Seconds more than under the present rules, or less.
    pub change_seconds: i64,
}
