//! `/docs/errors/{code}`: what each refusal means and what would work. Every answer of the API that refuses links its own
//! page, so there is one for each code of the catalogue.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusals;
use rules::translations::{TRANSLATIONS, Translation};

use super::authentication::PageCaller;
use super::components;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::{Language, Text};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/error_code.html")]
pub struct ErrorCodePage {
    pub t: Text,
    pub f: PageLayout,
    pub code: &'static str,
    /// What may be said under the code, each with what would work.
    pub sentences: Vec<(String, String)>,
}

/// `GET /docs/errors/{code}`: the code with `-` for `.`, as addresses of problems have it.
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(code): Path<String>,
) -> Response {
    let f = layout(&console, &visit, &caller, Nav::Docs);
    match page(f.clone(), &code) {
        Some(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        None => responses::refused(&console, &visit, Some(f), &refusals::docs_unknown()),
    }
}

/// The page of a code as addresses write it; None for one that no refusal has.
pub fn page(f: PageLayout, address: &str) -> Option<ErrorCodePage> {
    let t = f.text;
    let is_meant =
        |entry: &&Translation| entry.code.replace('.', "-") == address && !entry.en.is_empty();
    let mut entries = TRANSLATIONS.iter().filter(is_meant).peekable();
    let code = entries.peek()?.code;
    let mut sentences: Vec<(String, String)> = Vec::new();
    for entry in entries {
        let said = match t.language {
            Language::English => (plain(entry.en), plain(entry.hint)),
            Language::Korean => (plain(entry.ko), String::new()),
        };
        // The same sentence once, with what would work where one place says that.
        match sentences.iter_mut().find(|(known, _)| *known == said.0) {
            Some(known) if known.1.is_empty() => *known = said,
            Some(known) if said.1.is_empty() || *known == said => {}
            _ => sentences.push(said),
        }
    }
    Some(ErrorCodePage {
        t,
        f,
        code,
        sentences,
    })
}

/// A sentence with `…` for its values.
fn plain(sentence: &str) -> String {
    let mut out = String::new();
    let mut rest = sentence;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((inside, behind)) = after.split_once('}') else {
            break;
        };
        out.push('…');
        // With the particle that follows a vowel, as it would follow the sign when it is read.
        if let Some((_, particles)) = inside.split_once(':')
            && let Some((_, after_vowel)) = particles.split_once('/')
        {
            out.push_str(after_vowel);
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_sentence_are_left_open() {
        assert_eq!(plain("{need} of {all}."), "… of ….");
        assert_eq!(plain("{node:은/는} 바쁩니다"), "…는 바쁩니다");
        assert_eq!(plain("nothing"), "nothing");
    }
}
