//! What the folders of a user or a project take together, and what they may.

use rules::storage::{StorageEnforcement, StorageLevel, StorageUse, level, percent};
use rules::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::folders::FolderOwnerView;
use crate::values::{StorageEnforcementShape, StorageLevelShape};

/// What all folders of one owner take, those in the trash included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Storage)]
pub struct StorageView {
    pub owner: FolderOwnerView,
    /// Bytes.
    #[schema(value_type = u64)]
    pub used: Bytes,
    /// Bytes; `folder_bytes` of a policy, else 50 GiB.
    #[schema(value_type = u64)]
    pub limit: Bytes,
    /// Of the limit; more than 100 where it was lowered below what is used.
    pub percent: u64,
    /// `near` from 80 % on, `close` from 95 % on, `full` where nothing more can be written.
    #[schema(value_type = StorageLevelShape)]
    pub level: StorageLevel,
    /// How the limit is held on this machine: `counted` means that it is not.
    #[schema(value_type = StorageEnforcementShape)]
    pub enforcement: StorageEnforcement,
    /// When it was so; null where nothing was counted yet.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
}

impl StorageView {
    /// `counted`: what is known of the folders one by one, where nothing is known of them together.
    pub fn new(
        owner: FolderOwnerView,
        enforcement: StorageEnforcement,
        taken: Option<StorageUse>,
        (counted, limit): (Bytes, Bytes),
    ) -> Self {
        let used = taken.map_or(counted, |taken| taken.used);
        Self {
            owner,
            used,
            limit,
            percent: percent(used, limit),
            level: level(used, limit),
            enforcement,
            at: taken.map(|taken| taken.at),
        }
    }
}
