//! Images of the store that no row names: what an import left whose rows were never written, and what lost
//! its last name. Removes them; never touches a row.

use rules::names::OperationId;
use store::images::ImageStore;
use store::images::record::ImageRecord;

use super::lazy_stores::image_failure;
use crate::Failure;
use crate::catalog::Catalog;
use crate::catalog::job_kinds::{IMAGE_IMPORT, SESSION_COMMIT};

/// Removes images of the store that no row names, unless one is being made of a session: it has no row yet. The store is
/// listed first, so what begins meanwhile is not in the list. Costs a read of all rows of images and of the store's list.
pub(crate) fn forget_unnamed(catalog: &Catalog, images: &ImageStore) -> Result<(), Failure> {
    forget_unless(catalog, images, &[SESSION_COMMIT], None)
}

/// As `forget_unnamed`, but removes nothing while an import is open either: what it stored has no row yet, and it calls
/// `forget_unnamed` when it ends.
pub(crate) fn forget_unnamed_between_imports(
    catalog: &Catalog,
    images: &ImageStore,
) -> Result<(), Failure> {
    forget_unless(catalog, images, &[IMAGE_IMPORT, SESSION_COMMIT], None)
}

/// As `forget_unnamed_between_imports`, for this commit that ends: its own row, open yet, keeps nothing.
pub(crate) fn forget_unnamed_of_commit(
    catalog: &Catalog,
    images: &ImageStore,
    ends: OperationId,
) -> Result<(), Failure> {
    forget_unless(catalog, images, &[IMAGE_IMPORT, SESSION_COMMIT], Some(ends))
}

/// Removes them unless work of one of these kinds is open, other than what ends.
fn forget_unless(
    catalog: &Catalog,
    images: &ImageStore,
    kinds: &[&str],
    ends: Option<OperationId>,
) -> Result<(), Failure> {
    let stored = images.list().map_err(image_failure)?;
    let named = catalog.read_now("list images and what makes some", |view| {
        let open = view.open_operations()?;
        let mut others = open.iter().filter(|row| Some(row.id) != ends);
        match others.any(|row| kinds.contains(&row.kind.as_str())) {
            true => Ok(None),
            false => view.image_digests().map(Some),
        }
    })?;
    named.map_or(Ok(()), |named| remove_all_but(images, stored, &named))
}

fn remove_all_but(
    images: &ImageStore,
    stored: Vec<ImageRecord>,
    named: &[String],
) -> Result<(), Failure> {
    for record in stored {
        if !named.contains(&record.id.to_string()) {
            images.remove(&record.id).map_err(image_failure)?;
        }
    }
    Ok(())
}
