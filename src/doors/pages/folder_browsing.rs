//! `/folders/{id}/search`, `/usage` and `/edit`: what is called so below a directory, what directories take of the disk, and a text
//! that is changed. What was typed is never lost to a version that came between. Decides nothing.

use api::folder_browsing::{FolderSearchQuery, FolderUsageQuery, NewFolderTextBody, SearchStop};
use askama::Template;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use rules::codes::FOLDER_FILE_STALE;
use rules::refusal::Refusal;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::folders::browsing;

use super::authentication::PageCaller;
use super::components;
use super::folder_files::{
    ENTRIES, FolderFileRow, PathCrumb, below, crumbs, entry_address, failed, files_address,
    may_write, row,
};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

/// Bytes of a form with a text of 1 MiB, each of which may be written with three letters, and its other fields.
const MAX_TEXT_FORM: usize = 4 << 20;
/// Lines of each side of a conflict that are shown. Higher: a page that takes long to draw.
const MAX_CHANGED_LINES: usize = 200;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_search.html")]
pub struct FolderSearchPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    /// The user who looks may change the files of the folder.
    pub writes: bool,
    pub crumbs: Vec<PathCrumb>,
    /// The directory that is searched, as text, and where it is shown.
    pub here: String,
    pub back: String,
    pub words: String,
    pub rows: Vec<FolderFileRow>,
    /// How many names were looked at.
    pub looked: String,
    /// What ended the search, and that not all was looked at; empty for nothing.
    pub notes: Vec<String>,
    pub next: Option<String>,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_usage.html")]
pub struct FolderUsagePage {
    pub t: Text,
    pub f: PageLayout,
    pub crumbs: Vec<PathCrumb>,
    pub back: String,
    pub rows: Vec<SubfolderRow>,
    /// When it was counted.
    pub counted: String,
    /// That it is less than what is taken; empty where it is all.
    pub note: String,
    /// Counts now.
    pub fresh: String,
}

pub struct SubfolderRow {
    pub name: String,
    /// Where its own directories are counted; empty for what is no directory.
    pub href: String,
    pub icon: &'static str,
    pub size: String,
    pub entries: String,
    /// Of all that was counted.
    pub percent: u8,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_edit.html")]
pub struct FolderEditPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    pub crumbs: Vec<PathCrumb>,
    pub title: String,
    /// The file; of a new one, the directory that it goes into.
    pub path: String,
    pub is_new: bool,
    /// The name of a new one, as it was typed.
    pub name: String,
    pub text: String,
    /// The version that the text takes the place of; empty for a new one.
    pub tag: String,
    /// `crlf` where the lines of the file end so.
    pub ending: &'static str,
    pub conflict: Option<TextConflict>,
    pub back: String,
}

/// Where a version that came between differs from what was typed.
pub struct TextConflict {
    /// The number of the first line that differs.
    pub first: usize,
    /// Those of the file.
    pub theirs: String,
    /// Those that were typed.
    pub own: String,
    /// More lines differ than are shown.
    pub is_cut: bool,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/folders/{id}/search", get(search))
        .route("/folders/{id}/usage", get(usage))
        .route(
            "/folders/{id}/edit",
            get(edit)
                .post(save)
                .layer(DefaultBodyLimit::max(MAX_TEXT_FORM)),
        )
}

/// Which file is edited, or which directory a new one goes into.
#[derive(Deserialize, Default)]
#[serde(default)]
struct EditQuery {
    path: String,
    /// Not empty: a new file.
    new: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct EditForm {
    path: String,
    new: String,
    name: String,
    tag: String,
    ending: String,
    text: String,
}

async fn search(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<FolderSearchQuery>,
) -> Response {
    match read_search(&console, &visit, &caller, &id, asked).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read_search(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asked: FolderSearchQuery,
) -> Result<FolderSearchPage, Failure> {
    let t = visit.text;
    // How many there are on a page is ours.
    let asked = FolderSearchQuery {
        limit: Some(ENTRIES),
        ..asked
    };
    let (folder, found) = browsing::search(&console.server, caller, id, &asked).await?;
    let id = folder.id.to_string();
    let writes = may_write(console, caller, &id).await?;
    let mut notes = Vec::new();
    match found.stopped {
        Some(SearchStop::Names | SearchStop::Time) => {
            notes.push(t.folder_browsing_stopped().to_owned());
        }
        Some(SearchStop::Page) | None => {}
    }
    if !found.whole {
        notes.push(t.folder_browsing_left_out().to_owned());
    }
    let base = entry_address(&id, "search", &asked.path);
    let words = responses::encoded(&asked.q);
    let next = found.next_cursor.as_ref();
    Ok(FolderSearchPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        crumbs: crumbs(t, &id, folder.name.as_str(), &asked.path),
        writes,
        rows: found
            .items
            .iter()
            .map(|entry| FolderFileRow {
                name: entry.path.clone(),
                ..row(visit, &id, entry)
            })
            .collect(),
        looked: t.folder_browsing_looked(found.looked),
        notes,
        next: next.map(|cursor| format!("{base}&q={words}&cursor={cursor}")),
        back: files_address(&id, &asked.path),
        here: asked.path,
        words: asked.q,
        id,
    })
}

async fn usage(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<FolderUsageQuery>,
) -> Response {
    match read_usage(&console, &visit, &caller, &id, asked).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read_usage(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asked: FolderUsageQuery,
) -> Result<FolderUsagePage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let (folder, counted) = browsing::usage(&console.server, caller, id, &asked).await?;
    let id = folder.id.to_string();
    // A file system of elsewhere says of sizes what it pleases.
    let named = counted.items.iter().map(|one| one.bytes as f64);
    let all = named.sum::<f64>() + counted.others_bytes as f64 + counted.files_bytes as f64;
    let percent = |bytes: u64| components::percent(bytes as f64, all);
    let mut rows: Vec<SubfolderRow> = counted
        .items
        .into_iter()
        .map(|one| SubfolderRow {
            href: entry_address(&id, "usage", &one.path),
            icon: "folder",
            size: components::size(one.bytes),
            entries: one.entries.to_string(),
            percent: percent(one.bytes),
            name: one.name,
        })
        .collect();
    if counted.others > 0 {
        rows.push(SubfolderRow {
            name: t.folder_browsing_others(counted.others),
            href: String::new(),
            icon: "folder",
            size: components::size(counted.others_bytes),
            entries: String::new(),
            percent: percent(counted.others_bytes),
        });
    }
    rows.push(SubfolderRow {
        name: t.folder_browsing_here().to_owned(),
        href: String::new(),
        icon: "scroll-text",
        size: components::size(counted.files_bytes),
        entries: counted.files.to_string(),
        percent: percent(counted.files_bytes),
    });
    let base = entry_address(&id, "usage", &counted.path);
    Ok(FolderUsagePage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        crumbs: crumbs(t, &id, folder.name.as_str(), &counted.path),
        back: files_address(&id, &counted.path),
        rows,
        counted: t.folder_browsing_counted(visit.clock.ago(counted.counted_at, now)),
        note: match counted.whole {
            true => String::new(),
            false => t.folder_browsing_partly().to_owned(),
        },
        fresh: format!("{base}&fresh=true"),
    })
}

async fn edit(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<EditQuery>,
) -> Response {
    match read_edit(&console, &visit, &caller, &id, &asked).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read_edit(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asked: &EditQuery,
) -> Result<FolderEditPage, Failure> {
    let t = visit.text;
    let f = layout(console, visit, caller, Nav::Folders);
    if !asked.new.is_empty() {
        let found = server::actions::folders::files::show(&console.server, caller, id, &asked.path);
        let folder = found.await?.folder;
        let id = folder.id.to_string();
        return Ok(FolderEditPage {
            t,
            f,
            crumbs: crumbs(t, &id, folder.name.as_str(), &asked.path),
            title: t.folder_browsing_new().to_owned(),
            back: files_address(&id, &asked.path),
            path: asked.path.clone(),
            is_new: true,
            name: String::new(),
            text: String::new(),
            tag: String::new(),
            ending: "lf",
            conflict: None,
            id,
        });
    }
    let (folder, text) = browsing::text(&console.server, caller, id, &asked.path).await?;
    let id = folder.id.to_string();
    let (directory, name) = text.path.rsplit_once('/').unwrap_or(("", &text.path));
    Ok(FolderEditPage {
        t,
        f,
        crumbs: crumbs(t, &id, folder.name.as_str(), directory),
        title: name.to_owned(),
        back: entry_address(&id, "entry", &text.path),
        is_new: false,
        name: String::new(),
        ending: match ends_in_crlf(&text.text) {
            true => "crlf",
            false => "lf",
        },
        tag: text.etag.trim_matches('"').to_owned(),
        conflict: None,
        text: text.text,
        path: text.path,
        id,
    })
}

/// Whether each line of a text ends as on Windows. Browsers send each line so, whichever way it came.
fn ends_in_crlf(text: &str) -> bool {
    let lines = text.matches('\n').count();
    lines > 0 && text.matches("\r\n").count() == lines
}

async fn save(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<EditForm>,
) -> Response {
    let text = match sent.ending.as_str() {
        "crlf" => sent.text.clone(),
        _ => sent.text.replace("\r\n", "\n"),
    };
    let is_new = !sent.new.is_empty();
    let path = match is_new {
        true => below(&sent.path, sent.name.trim()),
        false => sent.path.clone(),
    };
    let asked = NewFolderTextBody {
        path,
        text: text.clone(),
    };
    let server = &console.server;
    let written = match is_new {
        true => browsing::create_text(server, &caller, &id, asked).await,
        // A form without a version overwrites nothing.
        false => browsing::write_text(server, &caller, &id, asked, Some(sent.tag.clone())).await,
    };
    let refusal = match written {
        Ok(written) => {
            let place = entry_address(&id, "entry", &written.path);
            let name = written.path.rsplit('/').next().unwrap_or_default();
            return responses::see_with(&place, "folder-saved", name);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return failed(&console, &visit, &caller, &fault),
    };
    typed_again(&console, &visit, &caller, &id, (sent, text), &refusal).await
}

/// The form once more with what was typed, and what stands in its way.
async fn typed_again(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    (sent, text): (EditForm, String),
    refusal: &Refusal,
) -> Response {
    let asked = EditQuery {
        path: sent.path,
        new: sent.new,
    };
    let refused = |field: &str| {
        let form = RefusedForm::new(visit.text, &format!("/folders/{id}/edit"), refusal);
        visit.refusing(form.at(field))
    };
    let is_stale = refusal.code == FOLDER_FILE_STALE;
    let (shown, found) = match read_edit(console, visit, caller, id, &asked).await {
        Ok(page) => {
            let conflict = is_stale.then(|| conflict(&page.text, &text));
            let shown = match (is_stale, asked.new.is_empty()) {
                (true, _) => visit.clone(),
                (false, true) => refused("text"),
                (false, false) => refused("name"),
            };
            let name = sent.name;
            let page = FolderEditPage {
                name,
                conflict,
                ..page
            };
            (shown, Ok(page))
        }
        // What is there now is no text any more, or nothing: what was typed is kept for a new file.
        Err(Failure::Refusal(_)) if asked.new.is_empty() => {
            let (directory, name) = asked.path.rsplit_once('/').unwrap_or(("", &asked.path));
            let other = EditQuery {
                path: directory.to_owned(),
                new: "1".to_owned(),
            };
            let page = read_edit(console, visit, caller, id, &other).await;
            let named = page.map(|page| FolderEditPage {
                name: name.to_owned(),
                ..page
            });
            (refused("name"), named)
        }
        Err(failure) => (visit.clone(), Err(failure)),
    };
    match found {
        Ok(page) => {
            let page = FolderEditPage { text, ..page };
            responses::page(console, &shown, responses::status(refusal), &page)
        }
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

/// The lines between the begin and the end that both texts have in common. Costs O(lines).
fn conflict(theirs: &str, own: &str) -> TextConflict {
    let (theirs, own): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), own.lines().collect());
    let pairs = theirs.iter().zip(&own);
    let begin = pairs.take_while(|(one, other)| one == other).count();
    let (theirs, own) = (&theirs[begin..], &own[begin..]);
    let pairs = theirs.iter().rev().zip(own.iter().rev());
    let end = pairs.take_while(|(one, other)| one == other).count();
    let (theirs, own) = (&theirs[..theirs.len() - end], &own[..own.len() - end]);
    let shown = |lines: &[&str]| lines[..lines.len().min(MAX_CHANGED_LINES)].join("\n");
    TextConflict {
        first: begin + 1,
        theirs: shown(theirs),
        own: shown(own),
        is_cut: theirs.len().max(own.len()) > MAX_CHANGED_LINES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_shows_the_lines_that_differ() {
        let found = conflict("a\nb\nc\nd\n", "a\nx\ny\nd\n");
        assert_eq!(found.first, 2);
        assert_eq!(
            (found.theirs.as_str(), found.own.as_str()),
            ("b\nc", "x\ny")
        );
        assert!(!found.is_cut);
        let found = conflict("a\na\n", "a\n");
        assert_eq!((found.theirs.as_str(), found.own.as_str()), ("a", ""));
        let long = "x\n".repeat(MAX_CHANGED_LINES + 1);
        assert!(conflict("", &long).is_cut);
    }

    #[test]
    fn the_ends_of_lines_are_those_of_the_file() {
        assert!(ends_in_crlf("a\r\nb\r\n"));
        for text in ["", "a", "a\nb\n", "a\r\nb\n"] {
            assert!(!ends_in_crlf(text), "{text:?}");
        }
    }
}
