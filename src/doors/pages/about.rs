//! `/about`: what this program is, and everything by others that is inside it, with version and licence.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::authentication::PageCaller;
use super::components;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/about.html")]
pub struct AboutPage {
    pub t: Text,
    pub f: PageLayout,
    pub parts_used: Vec<ThirdPartyNotice>,
    pub packages: Vec<LinkedPackage>,
}

/// Something by others that the console carries, with the text of its licence.
pub struct ThirdPartyNotice {
    pub name: &'static str,
    pub version: &'static str,
    pub licence: &'static str,
    pub text: &'static str,
}

/// A library that is linked into the program.
#[derive(Debug, PartialEq, Eq)]
pub struct LinkedPackage {
    pub name: &'static str,
    /// `–` for what the machine that builds brings along.
    pub version: &'static str,
    /// An SPDX expression.
    pub licence: &'static str,
}

/// Every linked library: name, version, licence, with tabs between. Written and checked by the gate's task `packages`.
const PACKAGES: &str = include_str!("../../../assets/packages.tsv");

fn packages() -> Vec<LinkedPackage> {
    PACKAGES
        .lines()
        .filter_map(|line| {
            let mut words = line.split('\t');
            Some(LinkedPackage {
                name: words.next()?,
                version: words.next()?,
                licence: words.next()?,
            })
        })
        .collect()
}

/// The whole page.
pub fn about(f: PageLayout) -> AboutPage {
    let part = |name, version, licence, text| ThirdPartyNotice {
        name,
        version,
        licence,
        text,
    };
    AboutPage {
        t: f.text,
        parts_used: vec![
            part(
                "htmx",
                "4.0.1",
                "0BSD",
                include_str!("../../../web/vendor/licences/htmx.txt"),
            ),
            part(
                "xterm.js",
                "6.0.0",
                "MIT",
                include_str!("../../../web/vendor/licences/xterm.txt"),
            ),
            part(
                "Lucide",
                "1.62.0",
                "ISC",
                include_str!("../../../web/vendor/licences/lucide.txt"),
            ),
            part(
                "Fardel UI (Pretendard)",
                "1.3.9",
                "OFL-1.1",
                include_str!("../../../web/vendor/licences/pretendard.txt"),
            ),
            part(
                "Fardel Mono (JetBrains Mono)",
                "2.304",
                "OFL-1.1",
                include_str!("../../../web/vendor/licences/jetbrains-mono.txt"),
            ),
        ],
        packages: packages(),
        f,
    }
}

/// `GET /about`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let f = layout(&console, &visit, &caller, Nav::Nowhere);
    responses::page(&console, &visit, StatusCode::OK, &about(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_library_is_locked_and_has_a_licence() {
        let lock = include_str!("../../../Cargo.lock");
        let listed = packages();
        assert!(listed.len() > 200, "only {}", listed.len());
        for package in listed {
            assert!(!package.licence.is_empty(), "{package:?}");
            // Of the machine that builds, not of the lock.
            if package.version == "–" {
                continue;
            }
            let entry = format!(
                "name = \"{}\"\nversion = \"{}\"",
                package.name, package.version
            );
            assert!(lock.contains(&entry), "{package:?} is not in Cargo.lock");
        }
    }
}
