//! Blobs of the registry that no image needs: what an image left that was removed or lost its name, and pushes that were
//! never ended. Removes them; never touches a row.

use store::registry::RegistryStore;

use super::lazy_stores::upload_failure;
use crate::Failure;
use crate::catalog::Catalog;

/// Removes blobs that no row names and no push needs. Costs a read of all rows of blobs and of the store's list.
pub(crate) fn forget_unused_blobs(
    catalog: &Catalog,
    registry: &RegistryStore,
) -> Result<(), Failure> {
    let named = catalog.read_now("list blobs", |view| view.needed_blobs())?;
    let swept = registry
        .sweep(&named, catalog.clock().now())
        .map_err(upload_failure)?;
    if swept.blobs > 0 {
        let (blobs, bytes) = (swept.blobs, swept.bytes);
        tracing::info!(blobs, bytes, "removed blobs that no image needs");
    }
    Ok(())
}
