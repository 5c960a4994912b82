//! Images of the store that no row names: what an import left whose rows were never written, and what lost
//! its last name. Removes them; never touches a row.

use store::images::ImageStore;
use store::images::record::ImageRecord;

use super::lazy_stores::image_failure;
use crate::Failure;
use crate::catalog::Catalog;
use crate::catalog::job_kinds::IMAGE_IMPORT;

/// Removes images of the store that no row names. Costs a read of all rows of images and of the store's list.
pub(crate) fn forget_unnamed(catalog: &Catalog, images: &ImageStore) -> Result<(), Failure> {
    let named = catalog.read_now("list images", |view| view.image_digests())?;
    remove_all_but(images, images.list().map_err(image_failure)?, &named)
}

/// As `forget_unnamed`, but removes nothing while an import is open: what it stored has no row yet, and it calls
/// `forget_unnamed` when it ends. The store is listed first, so an import that begins meanwhile is not in the list.
pub(crate) fn forget_unnamed_between_imports(
    catalog: &Catalog,
    images: &ImageStore,
) -> Result<(), Failure> {
    let stored = images.list().map_err(image_failure)?;
    let named = catalog.read_now("list images and imports", |view| {
        let importing = view.open_operations()?;
        match importing.iter().any(|row| row.kind == IMAGE_IMPORT) {
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
