//! How a client of Backend.AI signs a request: an access key and a signature in `Authorization`, over method, address,
//! date, host, media type and version. Bodies are not signed. Proves nothing itself: `server::access` does.

use axum::extract::OriginalUri;
use axum::http::HeaderMap;
use axum::http::header;
use axum::http::request::Parts;
use rules::units::Timestamp;
use server::access::SignedRequest;

const SCHEME: &str = "BackendAI";
const METHOD: &str = "HMAC-SHA256";
/// Of a request that names no media type.
const UNNAMED: &str = "application/octet-stream";
/// SHA-256 of nothing, which stands where a body's would.
const EMPTY_DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Hexadecimal digits of a signature.
const DIGITS: usize = 64;

/// Whether a request says that it is signed so.
pub(crate) fn is_signed(headers: &HeaderMap) -> bool {
    credentials(headers).is_some()
}

/// `signMethod=HMAC-SHA256, credential=KEY:SIGNATURE`
fn credentials(headers: &HeaderMap) -> Option<&str> {
    let (scheme, rest) = text(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(rest)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// What was signed, and by which key; None where a part is missing or cannot be read.
pub(crate) fn read(parts: &Parts) -> Option<SignedRequest> {
    let headers = &parts.headers;
    let (mut method, mut credential) = ("", "");
    for part in credentials(headers)?.split(',') {
        match part.trim().split_once('=')? {
            ("signMethod", value) => method = value,
            ("credential", value) => credential = value,
            _ => {}
        }
    }
    if !method.eq_ignore_ascii_case(METHOD) {
        return None;
    }
    let (key, signature) = credential.split_once(':')?;
    // As it stood on the wire, in front of what a router took away.
    let whole = parts.extensions.get::<OriginalUri>();
    let uri = whole.map_or(&parts.uri, |OriginalUri(uri)| uri);
    let path = uri.path_and_query()?.as_str();
    let host = text(headers, "host").or_else(|| Some(uri.authority()?.as_str()))?;
    let date = text(headers, "date").or_else(|| text(headers, "x-backendai-date"))?;
    let media = text(headers, "content-type").unwrap_or(UNNAMED);
    let media = media.split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    let version = text(headers, "x-backendai-version")?;
    Some(SignedRequest {
        key: key.to_owned(),
        at: Timestamp::parse(date).ok()?,
        day: date.get(..10)?.replace('-', ""),
        host: host.to_owned(),
        text: [
            parts.method.as_str(),
            path,
            date,
            &format!("host:{host}"),
            &format!("content-type:{media}"),
            &format!("x-backendai-version:{version}"),
            EMPTY_DIGEST,
        ]
        .join("\n"),
        signature: bytes_of(signature)?,
    })
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    if hex.len() != DIGITS || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..DIGITS)
        .step_by(2)
        .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use api::secret::SecretText;
    use axum::http::Request;

    use super::*;

    const DATE: &str = "2026-08-23T01:02:03.456789+00:00";

    fn parts(method: &str, path: &str, media: Option<&str>, signature: &str) -> Parts {
        let given = format!("BackendAI signMethod=HMAC-SHA256, credential=AKIAEXAMPLE:{signature}");
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1:8091")
            .header("date", DATE)
            .header("x-backendai-version", "v9.20250722")
            .header("authorization", given);
        if let Some(media) = media {
            request = request.header("content-type", media);
        }
        request.body(()).expect("a request").into_parts().0
    }

    /// Recorded of the real client, and re-derived independently.
    const RECORDED: [(&str, &str, Option<&str>, &str); 3] = [
        (
            "GET",
            "/folders?group=x",
            Some("text/plain"),
            "030d272f6c5744012341ec3cb87ce610ccd92fd086a13726186d88042c14f2e6",
        ),
        (
            "POST",
            "/session",
            Some("application/json"),
            "35e8563021d7b598f93edc3b789ac2fd678f77f5b7ceecb9c2c82419c4e05d4d",
        ),
        (
            "GET",
            "/stream/session/s1/execute",
            None,
            "01549e40e3192fee64a7bc07728ceb92cc022e3bd0affe5266567f10c710f943",
        ),
    ];

    #[test]
    fn what_the_real_client_signed_is_right_and_a_byte_elsewhere_is_not() {
        let secret = SecretText::new("SECRETEXAMPLE");
        for (method, path, media, signature) in RECORDED {
            let right = parts(method, path, media, signature);
            let signed = read(&right).expect("a signature");
            assert_eq!(signed.key, "AKIAEXAMPLE");
            assert!(signed.is_by(&secret), "{method} {path}");
            let other = |change: fn(&mut Parts)| {
                let mut other = parts(method, path, media, signature);
                change(&mut other);
                read(&other).is_some_and(|signed| signed.is_by(&secret))
            };
            assert!(other(|_| {}));
            assert!(!other(|parts| parts.method = axum::http::Method::PUT));
            assert!(!other(|parts| {
                parts.uri = "/folders?group=y".parse().expect("an address");
            }));
            for (name, value) in [
                ("host", "127.0.0.1:8092"),
                ("date", "2026-08-23T01:02:03.456788+00:00"),
                ("content-type", "image/png"),
                ("x-backendai-version", "v9.20250723"),
            ] {
                let mut changed = parts(method, path, media, signature);
                let value = axum::http::HeaderValue::from_static(value);
                changed.headers.insert(name, value);
                let signed = read(&changed).expect("a signature");
                assert!(!signed.is_by(&secret), "{name}");
            }
        }
        let (method, path, _, signature) = RECORDED[0];
        let parameters = parts(method, path, Some("Text/Plain; charset=utf-8"), signature);
        assert!(read(&parameters).is_some_and(|signed| signed.is_by(&secret)));
    }

    #[test]
    fn what_is_no_signature_is_read_as_none() {
        let (method, path, media, signature) = RECORDED[0];
        for given in [
            "",
            "BackendAI",
            "BackendAI x",
            "BackendAI signMethod=HMAC-SHA1, credential=A:00",
            "BackendAI signMethod=HMAC-SHA256, credential=A",
            "BackendAI signMethod=HMAC-SHA256, credential=A:00",
            &format!("Bearer signMethod=HMAC-SHA256, credential=A:{signature}"),
            &format!("BackendAI credential=A:{signature}"),
            &format!(
                "BackendAI signMethod=HMAC-SHA256, credential=A:{}",
                "é".repeat(32)
            ),
        ] {
            let mut parts = parts(method, path, media, signature);
            let value = axum::http::HeaderValue::from_bytes(given.as_bytes()).expect("a header");
            parts.headers.insert("authorization", value);
            assert!(read(&parts).is_none(), "{given}");
        }
        for name in ["date", "host", "x-backendai-version"] {
            let mut parts = parts(method, path, media, signature);
            parts.headers.remove(name);
            assert!(read(&parts).is_none(), "{name}");
        }
    }
}
