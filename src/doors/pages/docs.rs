//! `/docs` and `/about`: the manual of this version and the licences of what it carries.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusals;
use serde::Deserialize;

use super::authentication::PageCaller;
use super::components;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::{Language, Text};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/docs.html")]
pub struct DocsPage {
    pub t: Text,
    pub f: PageLayout,
    pub title: String,
    pub q: String,
    pub chapters: Vec<Chapter>,
    /// The chapter as markup, made by our own renderer from our own text.
    pub body: String,
    /// Hits of a search; none shows the chapter.
    pub found: Option<Vec<Hit>>,
}

pub struct Chapter {
    pub href: String,
    pub title: String,
    pub here: bool,
}

pub struct Hit {
    pub href: String,
    pub title: String,
    pub text: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/about.html")]
pub struct AboutPage {
    pub t: Text,
    pub f: PageLayout,
    pub parts_used: Vec<ThirdPartyNotice>,
}

/// Something by others that the console carries.
pub struct ThirdPartyNotice {
    pub name: String,
    pub version: String,
    pub licence: String,
    pub text: String,
}

/// One chapter of the manual in both languages: its address, and its text.
struct ManualChapter {
    name: &'static str,
    english: &'static str,
    korean: &'static str,
}

macro_rules! chapter {
    ($name:literal) => {
        ManualChapter {
            name: $name,
            english: include_str!(concat!("../../../web/docs/en/", $name, ".md")),
            korean: include_str!(concat!("../../../web/docs/ko/", $name, ".md")),
        }
    };
}

const MANUAL: [ManualChapter; 10] = [
    chapter!("first-steps"),
    chapter!("launching"),
    chapter!("gpus"),
    chapter!("images"),
    chapter!("cli"),
    chapter!("rest"),
    chapter!("trust"),
    chapter!("box"),
    chapter!("upkeep"),
    chapter!("troubleshooting"),
];

impl ManualChapter {
    fn text(&self, language: Language) -> &'static str {
        match language {
            Language::English => self.english,
            Language::Korean => self.korean,
        }
    }

    /// The first line, which is the title.
    fn title(&self, language: Language) -> &'static str {
        self.text(language)
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("# ")
    }

    fn address(&self) -> String {
        format!("/docs/{}", self.name)
    }
}

/// The chapter of that name, or the first for an empty one; none for an unknown name.
pub fn chapter(f: PageLayout, name: &str) -> Option<DocsPage> {
    let t = f.text;
    let written = MANUAL
        .iter()
        .find(|chapter| chapter.name == name || name.is_empty())?;
    Some(DocsPage {
        t,
        title: written.title(t.language).to_owned(),
        q: String::new(),
        chapters: contents(t, written.name),
        body: markup(written.text(t.language)),
        found: None,
        f,
    })
}

/// Every chapter that holds all the words, with the first line that holds the first of them.
pub fn search(f: PageLayout, q: &str) -> DocsPage {
    let t = f.text;
    DocsPage {
        t,
        title: t.nav_docs().to_owned(),
        q: q.to_owned(),
        chapters: contents(t, ""),
        body: String::new(),
        found: Some(hits(t, q)),
        f,
    }
}

/// What a search finds; empty for no words.
pub fn hits(t: Text, q: &str) -> Vec<Hit> {
    let words: Vec<String> = q.split_whitespace().map(str::to_lowercase).collect();
    let Some(first) = words.first() else {
        return Vec::new();
    };
    MANUAL
        .iter()
        .filter(|chapter| {
            let text = chapter.text(t.language).to_lowercase();
            words.iter().all(|word| text.contains(word))
        })
        .map(|chapter| Hit {
            href: chapter.address(),
            title: chapter.title(t.language).to_owned(),
            text: chapter
                .text(t.language)
                .lines()
                .find(|line| line.to_lowercase().contains(first))
                .unwrap_or_default()
                .trim_matches(['#', '|', ' ', '-', '`'])
                .chars()
                .take(120)
                .collect(),
        })
        .collect()
}

fn contents(t: Text, here: &str) -> Vec<Chapter> {
    MANUAL
        .iter()
        .map(|chapter| Chapter {
            href: chapter.address(),
            title: chapter.title(t.language).to_owned(),
            here: chapter.name == here,
        })
        .collect()
}

/// The parts of a chapter below its second headings, each with its heading; what stands before the first of
/// them is left out. Empty for an unknown chapter.
pub fn sections(name: &str, language: Language) -> Vec<(String, String)> {
    let chapter = MANUAL.iter().find(|chapter| chapter.name == name);
    let text = chapter.map_or("", |chapter| chapter.text(language));
    text.split("\n## ")
        .skip(1)
        .map(|part| {
            let (title, body) = part.split_once('\n').unwrap_or((part, ""));
            (title.trim().to_owned(), body.to_owned())
        })
        .collect()
}

/// Our own Markdown as markup. Tables and code scroll by themselves on a narrow screen.
pub fn markup(text: &str) -> String {
    let parser = pulldown_cmark::Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES);
    let mut out = String::new();
    pulldown_cmark::html::push_html(&mut out, parser);
    out.replace("<table>", "<div class=\"scroll\" tabindex=\"0\"><table>")
        .replace("</table>", "</table></div>")
        .replace("<pre>", "<pre tabindex=\"0\">")
}

/// The licences page: our own sentence, and the texts of everything carried along.
pub fn about(f: PageLayout) -> AboutPage {
    let part = |name: &str, version: &str, licence: &str, text: &str| ThirdPartyNotice {
        name: name.into(),
        version: version.into(),
        licence: licence.into(),
        text: text.into(),
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
        f,
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ManualQuery {
    q: String,
}

/// `GET /docs`: the first chapter, or what a search finds.
pub async fn first(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<ManualQuery>,
) -> Response {
    let f = layout(&console, &visit, &caller, Nav::Docs);
    if asked.q.trim().is_empty() {
        return shown(&console, &visit, f, "");
    }
    responses::page(&console, &visit, StatusCode::OK, &search(f, asked.q.trim()))
}

/// `GET /docs/{name}`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(name): Path<String>,
) -> Response {
    let f = layout(&console, &visit, &caller, Nav::Docs);
    shown(&console, &visit, f, &name)
}

fn shown(console: &PagesContext, visit: &RequestContext, f: PageLayout, name: &str) -> Response {
    match chapter(f.clone(), name) {
        Some(page) => responses::page(console, visit, StatusCode::OK, &page),
        None => {
            let refusal = refusals::docs_unknown();
            responses::refused(console, visit, Some(f), &refusal)
        }
    }
}

/// `GET /about`
pub async fn carried(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let f = layout(&console, &visit, &caller, Nav::Nowhere);
    responses::page(&console, &visit, StatusCode::OK, &about(f))
}
