//! Images of the store that no row names: what an import left whose rows were never written, and what lost
//! its last name. Removes them; never touches a row.

use store::images::ImageStore;

use super::lazy_stores::image_failure;
use crate::Failure;
use crate::catalog::Catalog;

/// Removes images of the store that no row names. Costs a read of all rows of images and of the store's list.
pub(crate) fn forget_unnamed(catalog: &Catalog, images: &ImageStore) -> Result<(), Failure> {
    let named = catalog.read_now("list images", |view| view.image_digests())?;
    for record in images.list().map_err(image_failure)? {
        if !named.contains(&record.id.to_string()) {
            images.remove(&record.id).map_err(image_failure)?;
        }
    }
    Ok(())
}
