//! Forgets what is kept for a while only: rows of sessions long over, their events, and answers that
//! no caller will ask for again. Never touches a live row, nor an ended one that a live one waits for.

use rules::units::Timestamp;

use crate::Failure;
use crate::catalog::Catalog;

/// Rows in one commit. Higher: users' requests wait behind it. Lower: a big clean-up takes longer.
const MAX_BATCH: u32 = 200;

/// Removes everything older than `keep_days`, a commit at a time.
pub(crate) async fn retention(
    catalog: &Catalog,
    now: Timestamp,
    keep_days: u32,
) -> Result<(), Failure> {
    let kept = i64::from(keep_days) * 86_400_000;
    let before = Timestamp::from_millis(now.as_millis().saturating_sub(kept));
    while catalog.forget(before, MAX_BATCH).await? >= MAX_BATCH as usize {}
    Ok(())
}
