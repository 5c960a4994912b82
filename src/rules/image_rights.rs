//! Who sees an image, removes it and shares it. Pure; reads no catalog.

use crate::image::CatalogImage;
use crate::permissions::{Permission, Subject, may};
use crate::tenancy::Scope;

impl CatalogImage {
    /// Whether a list or a look may give it to `subject`. Administrators see private ones too, since they keep the disk.
    pub fn is_seen_by(&self, subject: &Subject) -> bool {
        let of_domain = |permission| may(subject, permission, &Scope::domain(self.domain)).is_ok();
        let keeps_disk = || of_domain(Permission::ImagesWrite);
        of_domain(Permission::ImagesRead) && (self.is_open_to(subject.user) || keeps_disk())
    }

    /// Whether `subject` may remove it, or take it from the others.
    pub fn is_kept_by(&self, subject: &Subject) -> bool {
        let write = Permission::ImagesWrite;
        may(subject, write, &Scope::domain(self.domain)).is_ok()
            || self.owner == Some(subject.user) && subject.token_allows(write).is_ok()
    }

    /// Whether `subject`, who keeps it, may change who sees it as it is now: its owner alone shares it.
    pub fn is_shared_by(&self, subject: &Subject) -> bool {
        let is_own = self.owner == Some(subject.user);
        is_own || self.owner.is_some() && self.shared
    }
}
