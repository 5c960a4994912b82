//! An environment image as people and the scheduler see it. The bytes are `store`'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::image_limits::ImageLimits;
use crate::names::{ImageId, UserId};
use crate::refusal::Refusal;
use crate::refusals;
use crate::tenancy::Scope;
use crate::units::{Bytes, Timestamp};

/// One imported image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogImage {
    pub id: ImageId,
    /// What people call it: `name:tag`.
    pub reference: String,
    /// No answer names it while a site has one.
    #[serde(skip)]
    pub domain: crate::tenancy::DomainId,
    /// Digest of its configuration, `sha256:…`; names the bytes in the store.
    pub digest: String,
    pub size: Bytes,
    pub architecture: String,
    pub created_at: Timestamp,
    pub imported_at: Timestamp,
    pub labels: BTreeMap<String, String>,
    /// What the image runs by itself: entry point then default arguments.
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
    pub env: Vec<String>,
    pub user: String,
    pub working_directory: String,
    pub stop_signal: String,
    pub generation: u64,
    /// Who made it of a session; None for an imported one.
    #[serde(default)]
    pub owner: Option<UserId>,
    /// Whether users of the domain beside its owner see it.
    #[serde(default = "yes")]
    pub shared: bool,
    /// What each container of its sessions may ask for.
    #[serde(default)]
    pub limits: ImageLimits,
    /// An administrator gave them; else its labels say so.
    #[serde(default)]
    pub limits_set: bool,
}

/// An image of an earlier version belongs to all.
fn yes() -> bool {
    true
}

impl CatalogImage {
    /// Whose it is, for events: its owner's until it is shared.
    pub fn scope(&self) -> Scope {
        Scope {
            owner: self.owner.filter(|_| !self.shared),
            ..Scope::domain(self.domain)
        }
    }

    /// Whether sessions of this user may start from it, where they reach its domain. Administrators start nothing from what
    /// is another's alone.
    pub fn is_open_to(&self, user: UserId) -> bool {
        self.shared || self.owner == Some(user)
    }
}

/// Longest reference of an image, bytes.
pub const MAX_REFERENCE_LENGTH: usize = 255;
/// Images of a server that no session was made into. Higher: pages and clients read longer lists. Lower: old tags have to go
/// sooner.
pub const MAX_IMPORTED_IMAGES: u64 = 2_000;

/// Checks a reference such as `python-ml:1.2` or `lab/vision:latest`; adds `:latest` where no tag
/// is given. `host` is the machine's own environment and cannot be taken.
pub fn parse_reference(text: &str) -> Result<String, Refusal> {
    let wrong = || refusals::image_reference_invalid().at("/image");
    let text = text.trim();
    let (path, tag) = match text.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (text, "latest"),
    };
    let part = |p: &str| {
        !p.is_empty()
            && p.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-:".contains(c))
            && p.starts_with(|c: char| c.is_ascii_alphanumeric())
            && !p.contains("..")
    };
    let tag_ok = !tag.is_empty()
        && tag.len() <= 128
        && tag
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if text.len() > MAX_REFERENCE_LENGTH || !tag_ok || !path.split('/').all(part) {
        return Err(wrong());
    }
    if path == "host" {
        return Err(refusals::image_name_reserved().at("/image"));
    }
    Ok(format!("{path}:{tag}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_gets_its_tag() {
        assert_eq!(parse_reference("python-ml"), Ok("python-ml:latest".into()));
        assert_eq!(
            parse_reference("localhost:5000/a/b:1.2"),
            Ok("localhost:5000/a/b:1.2".into())
        );
        for bad in ["", "A:b", "../x", "a//b", "a:b c", "host", "a\0"] {
            assert!(parse_reference(bad).is_err(), "{bad:?} was taken");
        }
    }
}
