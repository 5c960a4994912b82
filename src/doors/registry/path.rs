//! Paths of the registry protocol. A name has slashes of its own, so the words behind it are looked for from the end.

/// What a path below /v2 names: a repository first, where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegistryPath<'a> {
    Ping,
    Catalog,
    Tags(&'a str),
    /// With a tag or a digest.
    Manifest(&'a str, &'a str),
    Blob(&'a str, &'a str),
    Uploads(&'a str),
    Upload(&'a str, &'a str),
}

impl<'a> RegistryPath<'a> {
    /// None for a path that the protocol does not have.
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        let path = path.strip_prefix("/v2")?;
        let path = path.strip_prefix('/').unwrap_or(path);
        match path {
            "" => return Some(Self::Ping),
            "_catalog" => return Some(Self::Catalog),
            _ => {}
        }
        if let Some(name) = path.strip_suffix("/tags/list") {
            return Some(Self::Tags(name));
        }
        if let Some(name) = path.trim_end_matches('/').strip_suffix("/blobs/uploads") {
            return Some(Self::Uploads(name));
        }
        let last = |word: &str| {
            let (name, last) = path.rsplit_once(word)?;
            (!name.is_empty() && !last.is_empty() && !last.contains('/')).then_some((name, last))
        };
        if let Some((name, id)) = last("/blobs/uploads/") {
            return Some(Self::Upload(name, id));
        }
        if let Some((name, digest)) = last("/blobs/") {
            return Some(Self::Blob(name, digest));
        }
        last("/manifests/").map(|(name, tag)| Self::Manifest(name, tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_slashes() {
        for (path, expected) in [
            ("/v2", Some(RegistryPath::Ping)),
            ("/v2/", Some(RegistryPath::Ping)),
            ("/v2/_catalog", Some(RegistryPath::Catalog)),
            ("/v2/a/b/tags/list", Some(RegistryPath::Tags("a/b"))),
            (
                "/v2/a/b/manifests/1.2",
                Some(RegistryPath::Manifest("a/b", "1.2")),
            ),
            (
                "/v2/a/manifests/b/manifests/1",
                Some(RegistryPath::Manifest("a/manifests/b", "1")),
            ),
            (
                "/v2/a/blobs/sha256:0",
                Some(RegistryPath::Blob("a", "sha256:0")),
            ),
            ("/v2/a/blobs/uploads/", Some(RegistryPath::Uploads("a"))),
            ("/v2/a/blobs/uploads", Some(RegistryPath::Uploads("a"))),
            (
                "/v2/a/b/blobs/uploads/x",
                Some(RegistryPath::Upload("a/b", "x")),
            ),
            ("/v2/a", None),
            ("/v2/a/manifests/", None),
            ("/v2/manifests/1", None),
        ] {
            assert_eq!(RegistryPath::parse(path), expected, "{path}");
        }
    }
}
