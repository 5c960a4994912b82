//! `/docs`: the manual of this version, in chapters, with a search.

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
    pub groups: Vec<ChapterGroup>,
    /// Its sections, for the list beside it; empty where there are too few to need one.
    pub sections: Vec<SectionLink>,
    /// The chapter as markup, made by our own renderer from our own text.
    pub body: String,
    /// Hits of a search; none shows the chapter.
    pub found: Option<Vec<Hit>>,
}

/// The chapters for one kind of reader.
pub struct ChapterGroup {
    pub title: &'static str,
    pub chapters: Vec<Chapter>,
}

pub struct Chapter {
    pub href: String,
    pub title: String,
    pub here: bool,
}

/// One section of the chapter that is shown.
pub struct SectionLink {
    pub id: String,
    pub title: String,
}

/// Sections from which on a chapter gets a list of them. Fewer are seen at a glance.
const MIN_LISTED_SECTIONS: usize = 3;

pub struct Hit {
    pub href: String,
    pub title: String,
    pub text: String,
}

/// Which readers a chapter is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Use,
    Administer,
}

/// One chapter of the manual in both languages: its address, and its text.
struct ManualChapter {
    name: &'static str,
    part: Part,
    english: &'static str,
    korean: &'static str,
}

macro_rules! chapter {
    ($name:literal, $part:ident) => {
        ManualChapter {
            name: $name,
            part: Part::$part,
            english: include_str!(concat!("../../../web/docs/en/", $name, ".md")),
            korean: include_str!(concat!("../../../web/docs/ko/", $name, ".md")),
        }
    };
}

const MANUAL: [ManualChapter; 50] = [
    chapter!("tasks", Use),
    chapter!("first-steps", Use),
    chapter!("launching", Use),
    chapter!("start-up", Use),
    chapter!("gpus", Use),
    chapter!("gpu-usage", Use),
    chapter!("images", Use),
    chapter!("environments", Use),
    chapter!("apps", Use),
    chapter!("folders", Use),
    chapter!("folder-owners", Use),
    chapter!("folder-snapshots", Use),
    chapter!("files", Use),
    chapter!("ssh", Use),
    chapter!("cli", Use),
    chapter!("rest", Use),
    chapter!("sign-in", Use),
    chapter!("troubleshooting", Use),
    chapter!("box", Administer),
    chapter!("upkeep", Administer),
    chapter!("projects", Administer),
    chapter!("people", Administer),
    chapter!("directories", Administer),
    chapter!("providers", Administer),
    chapter!("saml", Administer),
    chapter!("sign-in-links", Administer),
    chapter!("limits", Administer),
    chapter!("networks", Administer),
    chapter!("storage", Administer),
    chapter!("volumes", Administer),
    chapter!("idle", Administer),
    chapter!("courses", Administer),
    chapter!("reservations", Administer),
    chapter!("reservation-requests", Administer),
    chapter!("resource-groups", Administer),
    chapter!("group-rules", Administer),
    chapter!("preemption", Administer),
    chapter!("usage", Administer),
    chapter!("rehearsal", Administer),
    chapter!("statements", Administer),
    chapter!("audit", Administer),
    chapter!("hand-over", Administer),
    chapter!("mail", Administer),
    chapter!("branding", Administer),
    chapter!("backups", Administer),
    chapter!("trust", Administer),
    chapter!("gpu-care", Administer),
    chapter!("gpu-test", Administer),
    chapter!("gpu-partitions", Administer),
    chapter!("gpu-limits", Administer),
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
    let (body, mut sections) = markup_with_sections(written.text(t.language));
    if sections.len() < MIN_LISTED_SECTIONS {
        sections.clear();
    }
    Some(DocsPage {
        t,
        title: written.title(t.language).to_owned(),
        q: String::new(),
        groups: contents(t, written.name),
        sections,
        body,
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
        groups: contents(t, ""),
        sections: Vec::new(),
        body: String::new(),
        found: Some(hits(t, q)),
        f,
    }
}

/// What a search finds, chapters whose title has all the words first; empty for no words.
pub fn hits(t: Text, q: &str) -> Vec<Hit> {
    let words: Vec<String> = q.split_whitespace().map(str::to_lowercase).collect();
    let Some(first) = words.first() else {
        return Vec::new();
    };
    let titled = |chapter: &&ManualChapter| {
        let title = chapter.title(t.language).to_lowercase();
        !words.iter().all(|word| title.contains(word))
    };
    let mut found: Vec<&ManualChapter> = MANUAL
        .iter()
        .filter(|chapter| {
            let text = chapter.text(t.language).to_lowercase();
            words.iter().all(|word| text.contains(word))
        })
        .collect();
    found.sort_by_key(titled);
    found
        .into_iter()
        .map(|chapter| {
            // The title is shown already.
            let text = chapter.text(t.language).lines().skip(1);
            let holds = |line: &&str| line.to_lowercase().contains(first);
            let line = text.clone().find(holds);
            let line = line
                .or_else(|| text.clone().find(|line| !line.is_empty()))
                .unwrap_or_default();
            Hit {
                href: chapter.address(),
                title: chapter.title(t.language).to_owned(),
                text: plain(line).chars().take(MAX_HIT_CHARACTERS).collect(),
            }
        })
        .collect()
}

/// Characters of the line that a search shows. More do not fit beside the title.
const MAX_HIT_CHARACTERS: usize = 120;

/// A line of Markdown as its reader sees it, without marks.
fn plain(line: &str) -> String {
    use pulldown_cmark::{Event, Parser};
    let line = line.trim_matches(['|', ' ']);
    let mut out = String::new();
    for event in Parser::new_ext(line, options()) {
        match event {
            Event::Text(text) | Event::Code(text) => out.push_str(&text),
            Event::SoftBreak | Event::HardBreak => out.push(' '),
            _ => {}
        }
    }
    out.replace('|', "·")
}

fn contents(t: Text, here: &str) -> Vec<ChapterGroup> {
    [
        (Part::Use, t.docs_use()),
        (Part::Administer, t.docs_administer()),
    ]
    .into_iter()
    .map(|(part, title)| ChapterGroup {
        title,
        chapters: MANUAL
            .iter()
            .filter(|chapter| chapter.part == part)
            .map(|chapter| Chapter {
                href: chapter.address(),
                title: chapter.title(t.language).to_owned(),
                here: chapter.name == here,
            })
            .collect(),
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

fn options() -> pulldown_cmark::Options {
    pulldown_cmark::Options::ENABLE_TABLES | pulldown_cmark::Options::ENABLE_HEADING_ATTRIBUTES
}

/// Our own Markdown as markup. Tables and code scroll by themselves on a narrow screen.
pub fn markup(text: &str) -> String {
    markup_with_sections(text).0
}

/// The same, with its second headings. A heading without an id of its own gets one by its number, so that every
/// section has an address.
fn markup_with_sections(text: &str) -> (String, Vec<SectionLink>) {
    use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd};
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, options()).collect();
    let mut sections: Vec<SectionLink> = Vec::new();
    let mut open = false;
    for event in &mut events {
        match event {
            Event::Start(Tag::Heading {
                level: HeadingLevel::H2,
                id,
                ..
            }) => {
                let number = sections.len() + 1;
                let name = id.get_or_insert_with(|| format!("s{number}").into());
                sections.push(SectionLink {
                    id: name.to_string(),
                    title: String::new(),
                });
                open = true;
            }
            Event::End(TagEnd::Heading(_)) => open = false,
            Event::Text(text) | Event::Code(text) if open => {
                if let Some(section) = sections.last_mut() {
                    section.title.push_str(text);
                }
            }
            _ => {}
        }
    }
    let mut out = String::new();
    pulldown_cmark::html::push_html(&mut out, events.into_iter());
    let out = out
        .replace("<table>", "<div class=\"scroll\" tabindex=\"0\"><table>")
        .replace("</table>", "</table></div>")
        .replace("<pre>", "<pre tabindex=\"0\">");
    (out, sections)
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
        Some(page) => {
            let body = at_this_server(page.body, &visit.authority, visit.secure);
            let page = DocsPage { body, ..page };
            responses::page(console, visit, StatusCode::OK, &page)
        }
        None => {
            let refusal = refusals::docs_unknown();
            responses::refused(console, visit, Some(f), &refusal)
        }
    }
}

/// Addresses of a server in the examples of the manual.
const EXAMPLE_SERVERS: [&str; 2] = ["https://fardel-01", "http://fardel-01:8080"];

/// The markup of a chapter whose examples name the server that the reader asked. An authority with other characters than
/// those of names, addresses and ports changes nothing: it stands in markup.
fn at_this_server(body: String, authority: &str, secure: bool) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    if authority.is_empty() || !authority.chars().all(plain) {
        return body;
    }
    let scheme = if secure { "https" } else { "http" };
    let here = format!("{scheme}://{authority}");
    EXAMPLE_SERVERS
        .iter()
        .fold(body, |body, example| body.replace(example, &here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_name_the_server_that_was_asked() {
        for language in [Language::English, Language::Korean] {
            let shown = |authority: &str| {
                let chapter = MANUAL.iter().find(|chapter| chapter.name == "cli");
                let body = markup(chapter.expect("it is there").text(language));
                at_this_server(body, authority, true)
            };
            let named = shown("box.lab.example:7860");
            assert!(named.contains("fardel login https://box.lab.example:7860\n"));
            assert!(!named.contains("fardel-01"));
            assert!(shown("<b>").contains("fardel login https://fardel-01\n"));
        }
    }

    /// Words of a chapter. More are over two screens at the width that text has here.
    const MAX_WORDS: usize = 850;

    fn links(body: &str) -> Vec<&str> {
        body.split("href=\"/docs/")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect()
    }

    #[test]
    fn every_link_within_the_manual_leads_to_a_section_that_is_there() {
        for language in [Language::English, Language::Korean] {
            let mut seen = 0;
            for chapter in &MANUAL {
                for link in links(&markup(chapter.text(language))) {
                    let (name, id) = link.split_once('#').unwrap_or((link, ""));
                    let target = MANUAL.iter().find(|other| other.name == name);
                    let target = target.unwrap_or_else(|| panic!("{}: {link}", chapter.name));
                    let (body, _) = markup_with_sections(target.text(language));
                    assert!(
                        id.is_empty() || body.contains(&format!("id=\"{id}\"")),
                        "{} ({language}): no section {link}",
                        chapter.name
                    );
                    seen += 1;
                }
            }
            assert!(seen > 20, "{seen} links");
        }
    }

    #[test]
    fn a_chapter_is_a_screen_or_two_and_has_the_same_sections_in_both_languages() {
        for chapter in &MANUAL {
            let words = chapter.english.split_whitespace().count();
            assert!(words <= MAX_WORDS, "{}: {words} words", chapter.name);
            let sections = |language| markup_with_sections(chapter.text(language)).1.len();
            assert_eq!(
                sections(Language::English),
                sections(Language::Korean),
                "{}",
                chapter.name
            );
        }
    }

    #[test]
    fn a_hit_shows_words_and_no_marks() {
        assert_eq!(
            plain("| **Cordon** | [continues](/gpus) | `x` |"),
            "Cordon · continues · x"
        );
        for hit in hits(Text::default(), "launch") {
            assert!(!hit.text.contains(['*', '`', '[', '{']), "{}", hit.text);
        }
    }
}
