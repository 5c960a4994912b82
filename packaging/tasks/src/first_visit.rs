//! What the binary weighs and what a first visit carries over the wire, held to `.ci/budgets.toml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::budgets::check_number;
use crate::failure::Failure;
use crate::start::Server;

/// The binary's size, and what a first visit carries over the wire.
pub(crate) fn check_bytes(binary: &Path) -> Result<(), Failure> {
    let size = fs::metadata(binary)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", binary.display())))?
        .len();
    check_number("binary_bytes", u128::from(size))?;
    check_visit(binary)
}

/// What a first visit carries over the wire, which is the same in every build.
pub(crate) fn check_visit(binary: &Path) -> Result<(), Failure> {
    let server = Server::start(binary)?;
    server.wait_for("/healthz", Instant::now())?;
    let visit = first_visit(&server)?;
    server.end()?;
    check_number("first_visit_bytes", visit)
}

/// Adds up the first page and everything it names, compressed as a browser would ask for it.
///
/// Follows up to three redirects. A font counts when a style sheet names it for Latin text or the
/// page preloads it: a browser fetches the Korean ones only where Korean letters stand, and
/// `tests/browser/visits.mjs` counts those.
fn first_visit(server: &Server) -> Result<u128, Failure> {
    let fault = |error: std::io::Error| Failure::new(format!("the first page: {error}"));
    let mut path = "/".to_owned();
    for _ in 0..3 {
        let answer = server.get(&path, "identity").map_err(fault)?;
        match answer.header("location") {
            Some(next) => path = next.to_owned(),
            None => break,
        }
    }
    let mut waiting = vec![path];
    let mut seen = BTreeSet::new();
    let mut sum = 0;
    while let Some(path) = waiting.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let packed = server.get(&path, "br, gzip").map_err(fault)?;
        if packed.status != 200 {
            return Err(Failure::new(format!(
                "{path}, named by the first page, is {}",
                packed.status
            )));
        }
        println!("{:>8} {path}", packed.body.len());
        sum += packed.body.len() as u128;
        let kind = packed.header("content-type").unwrap_or_default().to_owned();
        if kind.starts_with("text/html") || kind.starts_with("text/css") {
            let plain = server.get(&path, "identity").map_err(fault)?;
            let text = String::from_utf8_lossy(&plain.body).into_owned();
            waiting.extend(if kind.starts_with("text/css") {
                latin_fonts(&text, &path)
            } else {
                named(&text)
            });
        }
    }
    Ok(sum)
}

/// What a page makes a browser fetch: `src` of anything, `href` of `<link>` and of `<use>`.
fn named(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    for tag in html.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap_or_default();
        let fetches = tag.starts_with("link ") || tag.starts_with("use ");
        for mark in ["src=\"", "href=\""] {
            if mark == "href=\"" && !fetches {
                continue;
            }
            if let Some(value) = tag
                .split(mark)
                .nth(1)
                .and_then(|rest| rest.split('"').next())
            {
                let file = value.split('#').next().unwrap_or_default();
                if file.starts_with('/') {
                    found.push(file.to_owned());
                }
            }
        }
    }
    found
}

/// Fonts of the `@font-face` rules that cover Latin letters, beside the style sheet that names them.
fn latin_fonts(css: &str, sheet: &str) -> Vec<String> {
    let folder = sheet.rsplit_once('/').map_or("", |(folder, _)| folder);
    css.split("@font-face")
        .skip(1)
        .filter_map(|rule| rule.split('}').next())
        .filter(|rule| !rule.contains("unicode-range") || rule.to_lowercase().contains("u+20-"))
        .filter_map(|rule| rule.split("url(").nth(1)?.split(')').next())
        .map(|address| address.trim_matches(['"', '\'']).to_owned())
        .map(|address| {
            if address.starts_with('/') {
                address
            } else {
                format!("{folder}/{address}")
            }
        })
        .collect()
}
