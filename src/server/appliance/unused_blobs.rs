//! Blobs of the registry that no image needs: what an image left that was removed or lost its name, and pushes that were
//! never ended. Removes them; never touches a row.

use std::time::Duration;

use store::registry::RegistryStore;

use super::lazy_stores::upload_failure;
use crate::Failure;
use crate::catalog::Catalog;
use crate::catalog::job_kinds::IMAGE_IMPORT;

/// How often they are looked for. Shorter: rows are read for nothing. Longer: what was given up takes the disk.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);

/// Removes blobs that no row names and no push needs; none while an import is open, which may need what its user held
/// longer ago than a push may rest. Costs a read of all rows of blobs and of the store's list.
pub(crate) fn forget_unused_blobs(
    catalog: &Catalog,
    registry: &RegistryStore,
) -> Result<(), Failure> {
    let named = catalog.read_now("list blobs", |view| {
        let open = view.open_operations()?;
        match open.iter().any(|row| row.kind == IMAGE_IMPORT) {
            true => Ok(None),
            false => view.needed_blobs().map(Some),
        }
    })?;
    let Some(named) = named else {
        return Ok(());
    };
    let swept = registry
        .sweep(&named, catalog.clock().now())
        .map_err(upload_failure)?;
    if swept.blobs > 0 {
        let (blobs, bytes) = (swept.blobs, swept.bytes);
        tracing::info!(blobs, bytes, "removed blobs that no image needs");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::operations::OperationState;
    use store::registry::RegistryLimits;
    use uuid::Uuid;

    use super::*;
    use crate::Server;
    use crate::catalog::Lane;
    use crate::catalog::jobs::OperationRow;
    use crate::catalog::users::ROOT;

    #[test]
    fn blobs_stay_while_an_import_is_open() {
        let server = Server::for_tests();
        let folder = tempfile::tempdir().unwrap();
        let limits = RegistryLimits {
            reserve_bytes: 0,
            ..RegistryLimits::default()
        };
        let registry = RegistryStore::open(folder.path(), limits).unwrap();
        let digest = registry.put(Uuid::from_u128(1), b"layer").unwrap();
        // As it is a day later.
        for held in std::fs::read_dir(folder.path().join("held")).unwrap() {
            std::fs::remove_file(held.unwrap().path()).unwrap();
        }
        let now = server.clock().now();
        let row = OperationRow::asked(now, IMAGE_IMPORT, ROOT, serde_json::json!({}));
        let id = row.id;
        server
            .catalog()
            .write_now(Lane::Loops, "an import", move |rows| {
                rows.insert_operation(&row, "root")
            })
            .unwrap();
        forget_unused_blobs(server.catalog(), &registry).unwrap();
        assert!(registry.blob(&digest).unwrap().is_some());
        server
            .catalog()
            .write_now(Lane::Loops, "its end", move |rows| {
                rows.end_operation(id, OperationState::Failed, None, None)
            })
            .unwrap();
        forget_unused_blobs(server.catalog(), &registry).unwrap();
        assert!(registry.blob(&digest).unwrap().is_none());
    }
}
