//! Names of the registry protocol (OCI distribution 1.1): repositories, tags and digests, places of other registries, and
//! what they ask of a client. Never connects, never reads a manifest.

use crate::image::parse_reference;
use crate::provider::WebAddress;
use crate::refusal::Refusal;
use crate::refusals;

/// Letters of the name of a repository, as the protocol bounds it.
const LETTERS_OF_REPOSITORY: usize = 255;
/// Letters of a challenge that is read. Longer ones say nothing that is needed.
const LETTERS_OF_CHALLENGE: usize = 4096;

/// Which image of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageTag {
    Tag(String),
    /// `sha256:` and 64 hexadecimal digits.
    Digest(String),
}

impl ImageTag {
    /// Reads what stands behind `/manifests/`. Refuses `registry.name-invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if is_digest(text) {
            return Ok(Self::Digest(text.to_owned()));
        }
        match is_tag(text) {
            true => Ok(Self::Tag(text.to_owned())),
            false => Err(refusals::registry_name_invalid()),
        }
    }

    /// As it stands in a path.
    pub fn text(&self) -> &str {
        match self {
            Self::Tag(text) | Self::Digest(text) => text,
        }
    }
}

/// Whether a text is a digest that is understood here.
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

fn is_tag(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// Checks the name of a repository, the part of an image's reference before the tag. Refuses `registry.name-invalid`.
pub fn check_repository(name: &str) -> Result<(), Refusal> {
    let is_name = name.len() <= LETTERS_OF_REPOSITORY
        && !name.contains(':')
        && parse_reference(&format!("{name}:latest")).is_ok();
    match is_name {
        true => Ok(()),
        false => Err(refusals::registry_name_invalid()),
    }
}

/// Repository and tag of a reference of the catalog, which always has a tag.
pub fn repository_of(reference: &str) -> (&str, &str) {
    reference.rsplit_once(':').unwrap_or((reference, "latest"))
}

/// A registry that images may be pulled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedRegistry {
    /// As people write it before a name: `registry.lab.example` or `10.0.0.5:5000`.
    pub host: String,
    /// Where it answers; unencrypted only where the setting says `http://`.
    pub address: WebAddress,
}

/// Reads the setting `registries`: hosts with or without a port, between commas; `http://` before one that has no TLS. None
/// where one of them is no host.
pub fn allowed_registries(setting: &str) -> Option<Vec<AllowedRegistry>> {
    let one = |text: &str| {
        let whole = match text.contains("://") {
            true => text.to_owned(),
            false => format!("https://{text}"),
        };
        let address = WebAddress::parse(&whole).filter(|address| address.path == "/")?;
        let (_, host) = whole.split_once("://")?;
        let host = host.trim_end_matches('/').to_ascii_lowercase();
        Some(AllowedRegistry { host, address })
    };
    setting
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(one)
        .collect()
}

/// An image of another registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteImage {
    pub host: String,
    pub repository: String,
    pub tag: ImageTag,
}

impl RemoteImage {
    /// Reads `HOST/NAME:TAG` or `HOST/NAME@sha256:…`; `latest` where there is neither. Refuses `registry.image-invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = || refusals::registry_image_invalid().at("/image");
        let text = text.trim();
        let (host, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (repository, tag) = match rest.split_once('@') {
            Some((name, digest)) => (name, digest),
            None => rest.rsplit_once(':').unwrap_or((rest, "latest")),
        };
        let has_host = WebAddress::parse(&format!("https://{host}"))
            .is_some_and(|address| address.path == "/");
        if !has_host || text.len() > 512 {
            return Err(wrong());
        }
        check_repository(repository).map_err(|_| wrong())?;
        Ok(Self {
            host: host.to_ascii_lowercase(),
            repository: repository.to_owned(),
            tag: ImageTag::parse(tag).map_err(|_| wrong())?,
        })
    }

    /// As people write it.
    pub fn text(&self) -> String {
        let (host, repository) = (&self.host, &self.repository);
        match &self.tag {
            ImageTag::Tag(tag) => format!("{host}/{repository}:{tag}"),
            ImageTag::Digest(digest) => format!("{host}/{repository}@{digest}"),
        }
    }

    /// What it is called here where no name was given: its name without the host, and a tag.
    pub fn own_reference(&self) -> String {
        match &self.tag {
            ImageTag::Tag(tag) => format!("{}:{tag}", self.repository),
            ImageTag::Digest(digest) => {
                let hex = digest.trim_start_matches("sha256:");
                format!("{}:{}", self.repository, hex.get(..12).unwrap_or("latest"))
            }
        }
    }
}

/// What a registry asks of a client that is not signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryChallenge {
    Basic,
    /// A token from this address.
    Bearer {
        realm: String,
        service: String,
        scope: String,
    },
}

/// Reads the header `WWW-Authenticate`; None for a scheme that is not known here. Rule: the token authentication of the
/// distribution project, RFC 6750 section 3.
pub fn challenge(header: &str) -> Option<RegistryChallenge> {
    if header.len() > LETTERS_OF_CHALLENGE {
        return None;
    }
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(RegistryChallenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let value = |name: &str| {
        let at = parameter_at(rest, name)?;
        let text = rest.get(at..)?;
        Some(match text.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or_default().to_owned(),
            None => text.split(',').next().unwrap_or_default().trim().to_owned(),
        })
    };
    Some(RegistryChallenge::Bearer {
        realm: value("realm")?,
        service: value("service").unwrap_or_default(),
        scope: value("scope").unwrap_or_default(),
    })
}

/// Where the value of a parameter begins; quoted commas do not end one.
fn parameter_at(text: &str, name: &str) -> Option<usize> {
    let mut is_quoted = false;
    let mut begin = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => begin = at + 1,
            '=' if !is_quoted && text[begin..at].trim().eq_ignore_ascii_case(name) => {
                return Some(at + 1);
            }
            _ => {}
        }
    }
    None
}

/// The begin of a `Content-Range: begin-end` of the protocol; None where it is malformed.
pub fn range_begin(header: &str) -> Option<u64> {
    let text = header.trim();
    let text = text.strip_prefix("bytes ").unwrap_or(text);
    let (begin, end) = text.split('/').next()?.split_once('-')?;
    let (begin, end): (u64, u64) = (begin.parse().ok()?, end.parse().ok()?);
    (begin <= end && end < u64::MAX).then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_elsewhere_has_a_host_a_name_and_a_tag_or_digest() {
        let image = RemoteImage::parse("registry.lab:5000/ml/vision:1.2").unwrap();
        assert_eq!(image.host, "registry.lab:5000");
        assert_eq!(image.repository, "ml/vision");
        assert_eq!(image.tag, ImageTag::Tag("1.2".into()));
        assert_eq!(image.own_reference(), "ml/vision:1.2");
        assert_eq!(image.text(), "registry.lab:5000/ml/vision:1.2");
        let latest = RemoteImage::parse("registry.lab/tiny").unwrap();
        assert_eq!(latest.tag, ImageTag::Tag("latest".into()));
        let digest = format!("sha256:{}", "a".repeat(64));
        let by_digest = RemoteImage::parse(&format!("registry.lab/tiny@{digest}")).unwrap();
        assert_eq!(by_digest.tag, ImageTag::Digest(digest));
        assert_eq!(by_digest.own_reference(), "tiny:aaaaaaaaaaaa");
        for bad in [
            "",
            "tiny",
            "registry.lab/",
            "registry.lab/Tiny",
            "registry.lab/../x",
            "registry.lab/tiny:a b",
            "registry.lab/tiny@sha256:abc",
            "user@registry.lab/tiny",
            "http://registry.lab/tiny",
        ] {
            assert!(RemoteImage::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_registry_without_tls_is_named_so() {
        let all = allowed_registries("registry.lab, http://10.0.0.5:5000").unwrap();
        assert_eq!(all[0].host, "registry.lab");
        assert!(all[0].address.encrypted);
        assert_eq!(all[1].host, "10.0.0.5:5000");
        assert!(!all[1].address.encrypted);
        assert_eq!(allowed_registries(""), Some(Vec::new()));
        for bad in ["ftp://x", "registry.lab/ml", "a b"] {
            assert_eq!(allowed_registries(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_challenge_is_read_with_its_quoted_commas() {
        assert_eq!(
            challenge("Basic realm=\"x\""),
            Some(RegistryChallenge::Basic)
        );
        let read = challenge(
            "Bearer realm=\"https://auth.lab/token\",service=\"registry\",scope=\"repository:a:pull,push\"",
        );
        assert_eq!(
            read,
            Some(RegistryChallenge::Bearer {
                realm: "https://auth.lab/token".into(),
                service: "registry".into(),
                scope: "repository:a:pull,push".into(),
            })
        );
        assert_eq!(challenge("Bearer service=\"x\""), None);
        assert_eq!(challenge("Negotiate"), None);
    }

    #[test]
    fn ranges_do_not_overflow() {
        assert_eq!(range_begin("0-99"), Some(0));
        assert_eq!(range_begin("bytes 100-199/*"), Some(100));
        for bad in [
            "",
            "5-4",
            "0-18446744073709551615",
            "0-99999999999999999999",
            "-1",
        ] {
            assert_eq!(range_begin(bad), None, "{bad}");
        }
    }

    #[test]
    fn repositories_are_the_names_of_the_catalog() {
        for good in ["tiny", "ml/vision", "a/b/c"] {
            assert!(check_repository(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "host", "a:5000/b", "../a", "a//b"] {
            assert!(check_repository(bad).is_err(), "{bad}");
        }
        assert_eq!(repository_of("ml/vision:1"), ("ml/vision", "1"));
    }
}
