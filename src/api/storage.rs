//! What the folders of a user or a project take together, and what they may.

use rules::storage::{
    PoolUse, StorageEnforcement, StorageLevel, StorageUse, largest_pool, level, percent,
};
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

/// How the box's own disk holds folders to their limits, and the pool that they lie in where it has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Pool)]
pub struct PoolView {
    /// `pool`: new folders lie in it, and it is made with the first one; `counted` means that limits are not held.
    #[schema(value_type = StorageEnforcementShape)]
    pub enforcement: StorageEnforcement,
    /// Bytes that are set aside on the disk; null, as all that follows, where there is no pool yet.
    pub size: Option<u64>,
    /// Bytes of it that are taken, by its own tables too.
    pub used: Option<u64>,
    /// The limits of all who have folders in it, together: more than `size` where not all are used.
    pub promised: Option<u64>,
    /// The largest size that it can be given now.
    pub most: Option<u64>,
    /// Bytes of the disk below it.
    pub disk_total: Option<u64>,
    /// Bytes of that disk that are free.
    pub disk_free: Option<u64>,
}

impl PoolView {
    pub fn new(enforcement: StorageEnforcement, pool: Option<&PoolUse>) -> Self {
        Self {
            enforcement,
            size: pool.map(|pool| pool.size.0),
            used: pool.map(|pool| pool.used.0),
            promised: pool.map(|pool| pool.promised.0),
            most: pool.map(|pool| largest_pool(pool).0),
            disk_total: pool.map(|pool| pool.disk.total.0),
            disk_free: pool.map(|pool| pool.disk.free.0),
        }
    }
}

/// How large the pool is to be.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = PoolSize)]
#[serde(deny_unknown_fields)]
pub struct PoolSizeBody {
    /// At least its size now, at most `most`; whole MiB, rounded down.
    pub bytes: u64,
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
