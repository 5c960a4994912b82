//! What a browser may load besides pages: style, scripts, icons and fonts, embedded and compressed at build.
//! Never reads the disk: one binary carries them all.

use std::borrow::Cow;
use std::io::Read as _;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "$OUT_DIR/web/"]
struct Files;

/// Names this build's files: `/a/<BUILD>/app.css`. Changes exactly when a file changes.
pub const BUILD: &str = env!("FARDEL_WEB_BUILD");

/// The address of an embedded file; the file is not looked for.
pub fn address(name: &str) -> String {
    format!("/a/{BUILD}/{name}")
}

/// `GET /a/{build}/{*name}`: the file, for a year. Brotli where the browser takes it, plain otherwise; 404
/// for an unknown name. The build in the address is not compared, so that a page that was open across an
/// upgrade still finds its parts.
pub async fn serve(Path((_build, name)): Path<(String, String)>, asked: HeaderMap) -> Response {
    let kind = match name.rsplit('.').next() {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=31536000, immutable"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if let Some(plain) = Files::get(&name) {
        return (headers, body(plain.data)).into_response();
    }
    let Some(packed) = Files::get(&format!("{name}.br")) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let takes_brotli = asked
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            coding
                .split(';')
                .next()
                .is_some_and(|name| name.trim() == "br")
        });
    if takes_brotli {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));
        return (headers, body(packed.data)).into_response();
    }
    let mut plain = Vec::new();
    // The bytes come from our own build script, so they decode.
    brotli::Decompressor::new(&packed.data[..], 1 << 14)
        .read_to_end(&mut plain)
        .expect("embedded files were compressed by the build script");
    (headers, plain).into_response()
}

fn body(data: Cow<'static, [u8]>) -> axum::body::Body {
    match data {
        Cow::Borrowed(bytes) => axum::body::Body::from(bytes::Bytes::from_static(bytes)),
        Cow::Owned(bytes) => axum::body::Body::from(bytes),
    }
}

/// Every embedded file, plain, by name; for the tests that look at what ships.
#[cfg(test)]
pub(super) fn all() -> Vec<(String, Vec<u8>)> {
    Files::iter()
        .map(|name| {
            let data = Files::get(&name).expect("listed").data;
            match name.strip_suffix(".br") {
                Some(plain_name) => {
                    let mut plain = Vec::new();
                    brotli::Decompressor::new(&data[..], 1 << 14)
                        .read_to_end(&mut plain)
                        .expect("ours");
                    (plain_name.to_owned(), plain)
                }
                None => (name.into_owned(), data.into_owned()),
            }
        })
        .collect()
}
