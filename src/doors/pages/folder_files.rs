//! `/folders/{id}/files` and what belongs to it: the files of a folder of the user who looks, page by page, one of them with
//! its begin, and the forms that make, move, remove and upload some. Downloads are the API's. Decides nothing.

use api::folder_browsing::FolderCopyBody;
use api::folders::{
    FolderEntryQuery, FolderEntryView, FolderMoveBody, FolderOwnerKind, FolderRemovalBody,
    NewFolderDirectoryBody, RemovedEntriesBody, RemovedEntryView,
};
use askama::Template;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use bytes::BytesMut;
use rules::codes::FOLDER_SORT_TOO_MANY;
use rules::folder::FolderKind;
use rules::folder_path::{FolderEntryKind, MAX_FOLDER_PATH, MAX_FOLDER_TEXT};
use rules::folder_rights::{FolderRight, FolderVerb};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::{Caller, Lease};
use server::actions::folders;
use server::actions::folders::browsing;
use server::actions::folders::files::{self, FilePreview};
use server::actions::folders::notebook::{CellKind, CellOutput, NotebookCell};
use server::actions::folders::uploads::{self, FolderPiece, NewFolderFile};

use super::authentication::PageCaller;
use super::components;
use super::dialog::{self, DialogForm, DialogPage};
use super::file_form::{FileField, FileForm};
use super::folder_owners::owner_words;
use super::folders::right_words;
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{self, Pager};
use super::{PagesContext, launch, layout, responses};
use crate::doors::text::{Text, codes};

/// Bytes of files that the form sends at once, for browsers without script. Larger ones go in pieces.
const MAX_FORM_FILES: usize = 64 << 30;
/// Bytes handed on at once.
const PIECE: usize = 1 << 20;
/// Entries of one page. Higher: the page grows past three thousand pixels. Lower: more clicks through a big directory.
pub(super) const ENTRIES: usize = 60;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_files.html")]
pub struct FolderFilesPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    pub folder: String,
    /// Whose it is and what the one who looks may do; empty for an own one.
    pub whose: String,
    /// They see its shares.
    pub manages: bool,
    /// They give it away, too.
    pub gives: bool,
    /// The user who looks may change its files.
    pub writes: bool,
    /// The launch form with the folder in it; None where no session of theirs mounts it.
    pub launch: Option<String>,
    pub crumbs: Vec<PathCrumb>,
    /// The directory, as text.
    pub here: String,
    pub words: String,
    /// What the directory is sorted by, as its address says it.
    pub sort: String,
    pub by_name: SortLink,
    pub by_size: SortLink,
    pub by_time: SortLink,
    pub total: String,
    /// What the folder takes of the disk, and since when that is known.
    pub usage: String,
    /// That not all of the directory was looked at; empty where it was.
    pub cut: String,
    pub rows: Vec<FolderFileRow>,
    pub first: Option<String>,
    pub next: Option<String>,
    pub zip: String,
    pub tar: String,
    /// Where its directories are counted.
    pub subfolders: String,
    /// As it was typed.
    pub directory: String,
    /// When what was removed right before was removed, in milliseconds; None where there is no way back.
    pub undo: Option<i64>,
}

/// The head of a column that the directory may be sorted by.
pub struct SortLink {
    pub href: String,
    /// As `aria-sort` has it.
    pub order: &'static str,
}

/// One directory on the way to what a page shows.
pub struct PathCrumb {
    pub name: String,
    pub href: String,
}

pub struct FolderFileRow {
    pub name: String,
    /// From the top of the folder.
    pub path: String,
    /// Where it is shown.
    pub href: String,
    pub icon: &'static str,
    pub kind: String,
    pub size: String,
    pub modified: String,
    /// Where it is named and moved.
    pub details: String,
    pub removal: String,
    /// Where its bytes are; empty where it is no file.
    pub download: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_entry.html")]
pub struct FolderEntryPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    /// The user who looks may change the files of the folder.
    pub writes: bool,
    pub crumbs: Vec<PathCrumb>,
    pub name: String,
    pub path: String,
    pub facts: Vec<(String, String)>,
    pub download: String,
    pub zip: String,
    pub removal: String,
    /// Where it is edited; empty where it is not.
    pub edit: String,
    pub text: Option<String>,
    /// The numbers of the lines of the text, one a line.
    pub numbers: String,
    pub table: Option<Vec<Vec<String>>>,
    pub cells: Option<Vec<NotebookRow>>,
    /// The address of an image that is shown; empty for none.
    pub image: String,
    /// What is to be said of the contents: that there are more, or that they are not shown. Empty for nothing.
    pub note: String,
    /// The new path, as it was typed.
    pub to: String,
}

/// One cell of a notebook.
pub struct NotebookRow {
    pub is_code: bool,
    pub source: String,
    pub outputs: Vec<NotebookOutput>,
}

/// What a cell gave: a text, an image, or, where both are empty, something that is not shown.
#[derive(Default)]
pub struct NotebookOutput {
    pub text: String,
    pub image: String,
    pub is_hidden: bool,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_removed.html")]
pub struct FolderRemovedPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    /// The user who looks may change the files of the folder.
    pub writes: bool,
    pub crumbs: Vec<PathCrumb>,
    pub rows: Vec<RemovedFileRow>,
    pub pager: Pager,
}

/// Which page of a trash is shown.
#[derive(Deserialize, Default)]
#[serde(default)]
struct RemovedFilter {
    /// From 1.
    page: String,
}

pub struct RemovedFileRow {
    pub id: String,
    pub path: String,
    pub icon: &'static str,
    pub kind: String,
    pub size: String,
    pub removed: String,
    /// When it is removed for good.
    pub purged: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/folders/{id}/files", get(show))
        .route("/folders/{id}/entry", get(show_entry).post(move_entry))
        .route("/folders/{id}/copy", post(copy_entry))
        .route("/folders/{id}/mkdir", post(make_directory))
        .route("/folders/{id}/remove", get(ask).post(remove))
        .route("/folders/{id}/removed", get(show_removed))
        .route("/folders/{id}/removed/restore", post(restore_removed))
        .route(
            "/folders/{id}/removed/empty",
            get(ask_empty).post(empty_trash),
        )
        .route(
            "/folders/{id}/upload",
            post(upload).layer(DefaultBodyLimit::max(MAX_FORM_FILES)),
        )
}

/// Which file or directory.
#[derive(Deserialize, Default)]
#[serde(default)]
struct EntryForm {
    path: String,
}

/// What was done right before a directory is shown.
#[derive(Deserialize, Default)]
#[serde(default)]
struct DirectoryWord {
    /// When files were removed, in milliseconds.
    undo: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct EntryRemovalForm {
    path: String,
    /// Not empty: not into the trash.
    force: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RemovedEntryForm {
    item: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct EntryMoveForm {
    path: String,
    to: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewDirectoryForm {
    path: String,
    name: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<FolderEntryQuery>,
    Query(word): Query<DirectoryWord>,
) -> Response {
    match read(&console, &visit, &caller, &id, asked).await {
        Ok(page) => {
            let undo = word.undo.parse().ok().filter(|_| page.writes);
            let page = FolderFilesPage { undo, ..page };
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asked: FolderEntryQuery,
) -> Result<FolderFilesPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    // How many there are on a page is ours.
    let mut asked = FolderEntryQuery {
        limit: Some(ENTRIES),
        ..asked
    };
    let mut cut = String::new();
    let found = files::list(&console.server, caller, id, &asked).await;
    let found = match found {
        // What is too large for an order is listed by name, and says so.
        Err(Failure::Refusal(refusal)) if refusal.code == FOLDER_SORT_TOO_MANY => {
            cut = codes::refusal(t, &refusal);
            asked.sort = String::new();
            asked.cursor = None;
            files::list(&console.server, caller, id, &asked).await?
        }
        found => found?,
    };
    let id = found.folder.id.to_string();
    let known = folders::get(&console.server, caller, &id).await?;
    let writes = known.right >= Some(FolderRight::Rw);
    let own = known.owner.kind == FolderOwnerKind::User && known.owner.name == caller.name.as_str();
    let base = files_address(&id, &found.path);
    let words = match asked.q.as_str() {
        "" => String::new(),
        words => format!("&q={}", responses::encoded(words)),
    };
    let unsorted = format!("{base}{words}");
    let words = match asked.sort.as_str() {
        "" => words,
        sort => format!("{words}&sort={}", responses::encoded(sort)),
    };
    if !found.whole {
        t.folder_files_cut().clone_into(&mut cut);
    }
    let next = found.page.next_cursor.as_ref();
    let is_later = asked.cursor.as_ref().is_some_and(|at| !at.is_empty());
    Ok(FolderFilesPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        folder: found.folder.name.to_string(),
        crumbs: crumbs(t, &id, found.folder.name.as_str(), &found.path),
        whose: match (own, known.right) {
            (false, Some(right)) => t.folder_files_whose(
                owner_words(t, known.owner.kind, &known.owner.name),
                right_words(t, right),
            ),
            _ => String::new(),
        },
        manages: known.right == Some(FolderRight::Rwd) && known.kind != FolderKind::Home,
        gives: known.owned,
        writes,
        launch: launch::mount_of(caller, &known)
            .map(|mount| format!("/sessions/new?mounts={}", responses::encoded(&mount))),
        total: t.folder_files_total(found.page.estimated_total),
        usage: match found.folder.counted {
            Some(counted) => t.folder_files_usage(
                components::size(counted.bytes),
                counted.entries,
                visit.clock.ago(counted.at, now),
            ),
            None => String::new(),
        },
        cut,
        rows: found
            .page
            .items
            .iter()
            .map(|entry| row(visit, &id, entry))
            .collect(),
        first: is_later.then(|| format!("{base}{words}")),
        next: next.map(|cursor| format!("{base}{words}&cursor={cursor}")),
        by_name: sort_link(&unsorted, &asked.sort, "name"),
        by_size: sort_link(&unsorted, &asked.sort, "size"),
        by_time: sort_link(&unsorted, &asked.sort, "modified_at"),
        sort: asked.sort,
        subfolders: entry_address(&id, "usage", &found.path),
        zip: archive_address(&id, &found.path, "zip"),
        tar: archive_address(&id, &found.path, "tar"),
        here: found.path,
        words: asked.q,
        directory: String::new(),
        undo: None,
        id,
    })
}

/// The head of a column: a second press turns the order round. Sizes and times begin with the largest and the latest.
fn sort_link(base: &str, now: &str, key: &str) -> SortLink {
    let (is_down, current) = match now.strip_prefix('-') {
        Some(current) => (true, current),
        None => (false, if now.is_empty() { "name" } else { now }),
    };
    let goes_down = match current == key {
        true => !is_down,
        false => key != "name",
    };
    let mark = if goes_down { "-" } else { "" };
    SortLink {
        href: format!("{base}&sort={mark}{key}"),
        order: match (current == key, is_down) {
            (false, _) => "none",
            (true, false) => "ascending",
            (true, true) => "descending",
        },
    }
}

pub(super) fn row(visit: &RequestContext, id: &str, entry: &FolderEntryView) -> FolderFileRow {
    let t = visit.text;
    let details = entry_address(id, "entry", &entry.path);
    let (icon, href) = match entry.kind {
        FolderEntryKind::Directory => ("folder", files_address(id, &entry.path)),
        FolderEntryKind::File => ("scroll-text", details.clone()),
        FolderEntryKind::Link => ("link", details.clone()),
        FolderEntryKind::Other => ("circle-help", details.clone()),
    };
    let is_file = entry.kind == FolderEntryKind::File;
    FolderFileRow {
        name: entry.name.clone(),
        path: entry.path.clone(),
        href,
        icon,
        kind: kind(t, entry.kind).to_owned(),
        size: match is_file {
            true => components::size(entry.size),
            false => String::new(),
        },
        modified: visit.clock.date(entry.modified_at),
        details,
        removal: entry_address(id, "remove", &entry.path),
        download: match is_file {
            true => download_address(id, &entry.path),
            false => String::new(),
        },
    }
}

fn kind(t: Text, kind: FolderEntryKind) -> &'static str {
    match kind {
        FolderEntryKind::Directory => t.folder_files_directory(),
        FolderEntryKind::File => t.folder_files_file(),
        FolderEntryKind::Link => t.folder_files_link(),
        FolderEntryKind::Other => t.folder_files_other(),
    }
}

/// The way from all folders to a directory.
pub(super) fn crumbs(t: Text, id: &str, folder: &str, path: &str) -> Vec<PathCrumb> {
    let mut all = vec![
        PathCrumb {
            name: t.folders_title().to_owned(),
            href: "/folders".to_owned(),
        },
        PathCrumb {
            name: folder.to_owned(),
            href: files_address(id, ""),
        },
    ];
    let ends = path
        .match_indices('/')
        .map(|(at, _)| at)
        .chain([path.len()]);
    for end in ends.filter(|end| *end > 0) {
        let below = &path[..end];
        all.push(PathCrumb {
            name: below.rsplit('/').next().unwrap_or_default().to_owned(),
            href: files_address(id, below),
        });
    }
    all
}

pub(super) fn files_address(id: &str, path: &str) -> String {
    entry_address(id, "files", path)
}

pub(super) fn entry_address(id: &str, what: &str, path: &str) -> String {
    format!("/folders/{id}/{what}?path={}", responses::encoded(path))
}

fn download_address(id: &str, path: &str) -> String {
    format!(
        "/api/v1/folders/{id}/files?path={}",
        responses::encoded(path)
    )
}

fn archive_address(id: &str, path: &str, format: &str) -> String {
    let path = responses::encoded(path);
    format!("/api/v1/folders/{id}/archive?path={path}&format={format}")
}

pub(super) fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Folders);
    responses::failure(console, visit, Some(frame), failure)
}

/// The directory once more, with a form of it that was refused.
async fn again(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    (id, path): (&str, String),
    (form, typed): (RefusedForm, String),
    refusal: &Refusal,
) -> Response {
    let asked = FolderEntryQuery {
        path,
        ..FolderEntryQuery::default()
    };
    let visit = visit.refusing(form);
    match read(console, &visit, caller, id, asked).await {
        Ok(page) => {
            let page = FolderFilesPage {
                directory: typed,
                ..page
            };
            responses::page(console, &visit, responses::status(refusal), &page)
        }
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

async fn make_directory(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<NewDirectoryForm>,
) -> Response {
    let name = sent.name.trim();
    let asked = NewFolderDirectoryBody {
        path: below(&sent.path, name),
    };
    let refusal = match files::make_directory(&console.server, &caller, &id, asked).await {
        Ok(made) => {
            let place = files_address(&id, &sent.path);
            return responses::see_with(&place, "folder-directory", &made.name);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return failed(&console, &visit, &caller, &fault),
    };
    let form = RefusedForm::new(visit.text, &format!("/folders/{id}/mkdir"), &refusal);
    let shown = (form.at("name"), sent.name.clone());
    again(&console, &visit, &caller, (&id, sent.path), shown, &refusal).await
}

/// A path of what has a name, as it is typed, in a directory. A name is no path: its slashes are refused.
pub(super) fn below(directory: &str, name: &str) -> String {
    let name = name.replace('%', "%25").replace('/', "%2F");
    match directory {
        // What has no name is no path, either.
        directory if name.is_empty() => format!("{directory}//"),
        "" => name,
        directory => format!("{directory}/{name}"),
    }
}

async fn show_entry(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<EntryForm>,
) -> Response {
    match read_entry(&console, &visit, &caller, &id, &asked.path).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// Whether the caller may change the files of a folder.
pub(super) async fn may_write(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
) -> Result<bool, Failure> {
    let known = folders::get(&console.server, caller, id).await?;
    Ok(known.right >= Some(FolderRight::Rw))
}

async fn read_entry(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    path: &str,
) -> Result<FolderEntryPage, Failure> {
    let t = visit.text;
    let found = files::show(&console.server, caller, id, path).await?;
    let id = found.folder.id.to_string();
    let writes = may_write(console, caller, &id).await?;
    let entry = found.entry;
    let is_file = entry.kind == FolderEntryKind::File;
    let mut facts = vec![(
        t.folder_files_kind().to_owned(),
        kind(t, entry.kind).to_owned(),
    )];
    if is_file {
        facts.push((t.folders_size().to_owned(), components::size(entry.size)));
    }
    facts.push((
        t.folder_files_modified().to_owned(),
        visit.clock.date(entry.modified_at),
    ));
    let mut page = FolderEntryPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        crumbs: crumbs(t, &id, found.folder.name.as_str(), &found.parent),
        download: match is_file {
            true => download_address(&id, &entry.path),
            false => String::new(),
        },
        zip: match entry.kind {
            FolderEntryKind::Directory => archive_address(&id, &entry.path, "zip"),
            _ => String::new(),
        },
        edit: match found.preview {
            FilePreview::Text { .. } | FilePreview::Table { .. } | FilePreview::Notebook { .. }
                if writes && entry.size <= MAX_FOLDER_TEXT =>
            {
                entry_address(&id, "edit", &entry.path)
            }
            _ => String::new(),
        },
        writes,
        removal: entry_address(&id, "remove", &entry.path),
        text: None,
        numbers: String::new(),
        table: None,
        cells: None,
        image: String::new(),
        note: String::new(),
        to: entry.path.clone(),
        name: entry.name,
        path: entry.path,
        facts,
        id,
    };
    let cut = |is_cut: bool| match is_cut {
        true => t.folder_files_preview_cut().to_owned(),
        false => String::new(),
    };
    match found.preview {
        FilePreview::Text { text, is_cut } => {
            let numbers = (1..=text.lines().count()).map(|number| format!("{number}\n"));
            page.numbers = numbers.collect();
            page.text = Some(text);
            page.note = cut(is_cut);
        }
        FilePreview::Table { rows, is_cut } => {
            page.table = Some(rows);
            page.note = cut(is_cut);
        }
        FilePreview::Notebook { cells, is_cut } => {
            page.cells = Some(cells.into_iter().map(notebook_row).collect());
            page.note = cut(is_cut);
        }
        FilePreview::Image => page.image = page.download.clone(),
        FilePreview::Nothing if is_file => {
            t.folder_files_preview_none().clone_into(&mut page.note);
        }
        FilePreview::Nothing if entry.kind == FolderEntryKind::Link => {
            t.folder_files_link_note().clone_into(&mut page.note);
        }
        FilePreview::Nothing => {}
    }
    Ok(page)
}

fn notebook_row(cell: NotebookCell) -> NotebookRow {
    let output = |output| match output {
        CellOutput::Text(text) => NotebookOutput {
            text,
            ..NotebookOutput::default()
        },
        CellOutput::Image(image) => NotebookOutput {
            image,
            ..NotebookOutput::default()
        },
        CellOutput::Hidden => NotebookOutput {
            is_hidden: true,
            ..NotebookOutput::default()
        },
    };
    NotebookRow {
        is_code: cell.kind == CellKind::Code,
        source: cell.source,
        outputs: cell.outputs.into_iter().map(output).collect(),
    }
}

async fn move_entry(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<EntryMoveForm>,
) -> Response {
    let asked = FolderMoveBody {
        from: sent.path.clone(),
        to: sent.to.trim().to_owned(),
    };
    let moved = files::move_entry(&console.server, &caller, &id, asked).await;
    placed(&console, &visit, &caller, &id, sent, "folder-moved", moved).await
}

async fn copy_entry(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<EntryMoveForm>,
) -> Response {
    let asked = FolderCopyBody {
        from: sent.path.clone(),
        to: sent.to.trim().to_owned(),
    };
    let copied = browsing::copy(&console.server, &caller, &id, asked).await;
    placed(
        &console,
        &visit,
        &caller,
        &id,
        sent,
        "folder-copied",
        copied,
    )
    .await
}

/// The directory to which an entry was moved or copied, with that notice; its page once more where that was refused.
async fn placed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    sent: EntryMoveForm,
    notice: &str,
    done: Result<FolderEntryView, Failure>,
) -> Response {
    match done {
        Ok(entry) => {
            let directory = entry.path.rsplit_once('/').map_or("", |(above, _)| above);
            responses::see_with(&files_address(id, directory), notice, &entry.name)
        }
        Err(Failure::Refusal(refusal)) => {
            moved_again(console, visit, caller, id, sent, &refusal).await
        }
        Err(fault) => failed(console, visit, caller, &fault),
    }
}

/// The page of an entry once more, with a new place that was refused.
async fn moved_again(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    sent: EntryMoveForm,
    refusal: &Refusal,
) -> Response {
    let form = RefusedForm::new(visit.text, &format!("/folders/{id}/entry"), refusal);
    let visit = visit.refusing(form.at("to"));
    match read_entry(console, &visit, caller, id, &sent.path).await {
        Ok(page) => {
            let page = FolderEntryPage {
                to: sent.to,
                ..page
            };
            responses::page(console, &visit, responses::status(refusal), &page)
        }
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

/// `GET /folders/{id}/remove`: what would become of it.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<EntryForm>,
) -> Response {
    let t = visit.text;
    let found = match files::show(&console.server, &caller, &id, &asked.path).await {
        Ok(found) => found,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let id = found.folder.id.to_string();
    let back = files_address(&id, &found.parent);
    let title = t.folder_files_remove_title(&found.entry.name);
    let frame = layout(&console, &visit, &caller, Nav::Folders);
    let mut page = DialogPage::titled(frame, back, title, t.folder_files_remove_lead());
    page.form = Some(DialogForm {
        action: format!("/folders/{id}/remove"),
        fields: vec![("path", found.entry.path)],
        icon: "trash-2",
        go: t.folder_files_remove().to_owned(),
        ends: true,
        force: Some(t.folder_files_remove_for_good().to_owned()),
    });
    dialog::answer(&console, &visit, Nav::Folders, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<EntryRemovalForm>,
) -> Response {
    let path = sent.path;
    let for_good = !sent.force.is_empty();
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let asked = FolderRemovalBody {
        paths: vec![path.clone()],
        for_good,
    };
    match files::remove(&console.server, &caller, &id, asked).await {
        Ok(at) => {
            let place = files_address(&id, directory);
            removed(&place, &[name.to_owned()], for_good, at)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The directory that files were removed from, with the way back where there is one.
pub(super) fn removed(place: &str, names: &[String], for_good: bool, at: Timestamp) -> Response {
    let undo = match for_good {
        true => String::new(),
        false => format!("&undo={}", at.as_millis()),
    };
    let place = format!("{place}{undo}");
    match (names, for_good) {
        ([name], true) => responses::see_with(&place, "folder-gone", name),
        ([name], false) => responses::see_with(&place, "folder-removed", name),
        (several, true) => responses::see_with(&place, "folder-gone-n", &several.len().to_string()),
        (several, false) => {
            responses::see_with(&place, "folder-removed-n", &several.len().to_string())
        }
    }
}

async fn show_removed(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(filter): Query<RemovedFilter>,
) -> Response {
    match read_removed(&console, &visit, &caller, &id, &filter).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read_removed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    filter: &RemovedFilter,
) -> Result<FolderRemovedPage, Failure> {
    let t = visit.text;
    let (folder, removed) = files::removed(&console.server, caller, id).await?;
    let id = folder.id.to_string();
    let (removed, mut pager) = table::one_page(t, "", &filter.page, removed);
    for href in [&mut pager.previous, &mut pager.next].into_iter().flatten() {
        href.insert_str(0, &format!("/folders/{id}/removed"));
    }
    let writes = may_write(console, caller, &id).await?;
    let row = |one: RemovedEntryView| RemovedFileRow {
        id: one.id.to_string(),
        icon: match one.kind {
            FolderEntryKind::Directory => "folder",
            FolderEntryKind::File => "scroll-text",
            FolderEntryKind::Link => "link",
            FolderEntryKind::Other => "circle-help",
        },
        kind: kind(t, one.kind).to_owned(),
        size: match one.kind {
            FolderEntryKind::File => components::size(one.size),
            _ => String::new(),
        },
        removed: visit.clock.date(one.removed_at),
        purged: visit.clock.date(one.purge_at),
        path: one.path,
    };
    Ok(FolderRemovedPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        crumbs: crumbs(t, &id, folder.name.as_str(), ""),
        writes,
        rows: removed.into_iter().map(row).collect(),
        pager,
        id,
    })
}

async fn restore_removed(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<RemovedEntryForm>,
) -> Response {
    // What is no id names nothing.
    let Ok(item) = sent.item.parse() else {
        let refusal = refusals::folder_removed_not_found().into();
        return failed(&console, &visit, &caller, &refusal);
    };
    let asked = RemovedEntriesBody { items: vec![item] };
    match files::restore_removed(&console.server, &caller, &id, asked).await {
        Ok(()) => responses::see(&format!("/folders/{id}/removed?notice=folder-back")),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /folders/{id}/removed/empty`: what would become of it.
async fn ask_empty(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let (folder, removed) = match files::removed(&console.server, &caller, &id).await {
        Ok(found) => found,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let place = format!("/folders/{}/removed", folder.id);
    let title = t.folder_files_empty_title(folder.name.as_str());
    let frame = layout(&console, &visit, &caller, Nav::Folders);
    let lead = t.folder_files_empty_lead();
    let mut page = DialogPage::titled(frame, place.clone(), title, lead);
    let named = removed.iter().take(dialog::MAX_NAMED);
    page.items = named.map(|one| one.path.clone()).collect();
    page.form = Some(DialogForm {
        action: format!("{place}/empty"),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.folder_files_empty().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Folders, page)
}

async fn empty_trash(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match files::empty_trash(&console.server, &caller, &id).await {
        Ok(()) => responses::see(&format!("/folders/{id}/removed?notice=folder-emptied")),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /folders/{id}/upload` without script: the files in one request.
async fn upload(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    mut form: FileForm,
) -> Response {
    let mut directory = String::new();
    let taken = take(&console, &caller, &id, &mut form, &mut directory).await;
    let refusal = match taken {
        Ok(count) => {
            let place = files_address(&id, &directory);
            return responses::see_with(&place, "folder-uploaded", &count.to_string());
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return failed(&console, &visit, &caller, &fault),
    };
    let form = RefusedForm::new(visit.text, &format!("/folders/{id}/upload"), &refusal);
    let shown = (form.at("files"), String::new());
    again(&console, &visit, &caller, (&id, directory), shown, &refusal).await
}

/// Takes the files of a form one after the other, piece by piece; memory holds one piece.
async fn take(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
    form: &mut FileForm,
    directory: &mut String,
) -> Result<u64, Failure> {
    let server = &console.server;
    let folder = folders::get(server, caller, id).await?.id;
    let mut lease = files::lease(server, caller, folder, FolderVerb::Write);
    let (mut count, mut overwrite) = (0, false);
    while let Some(mut field) = form.next_field().await? {
        match field.name() {
            // Each byte of a path may be written with three letters.
            "path" => {
                let text = field.text(3 * MAX_FOLDER_PATH).await?;
                let wrong = || refusals::folder_path_invalid(MAX_FOLDER_PATH);
                *directory = text.ok_or_else(wrong)?;
            }
            "overwrite" => overwrite = true,
            // A field in which no file was chosen has none.
            "files" if !field.file_name().is_empty() => {
                let asked = NewFolderFile {
                    directory: directory.clone(),
                    name: field.file_name().to_owned(),
                    overwrite,
                    ..NewFolderFile::default()
                };
                let made = uploads::create(server, caller, id, asked).await?;
                let piece = uploads::append(server, caller, id, made.id, 0, None).await?;
                if let Err(failure) = receive(piece, field, &mut lease).await {
                    // Half a file, or one without a place, is of no use to a form that is sent again.
                    let _ = uploads::abort(server, caller, id, made.id).await;
                    return Err(failure);
                }
                count += 1;
            }
            _ => while field.chunk().await?.is_some() {},
        }
    }
    match count {
        0 => Err(refusals::folder_no_file_chosen().into()),
        count => Ok(count),
    }
}

async fn receive(
    mut piece: FolderPiece,
    mut field: FileField<'_>,
    lease: &mut Lease,
) -> Result<(), Failure> {
    let mut buffer = BytesMut::new();
    loop {
        let bytes = tokio::select! {
            biased;
            refusal = &mut *lease => return Err(refusal.into()),
            bytes = field.chunk() => bytes?,
        };
        let Some(bytes) = bytes else { break };
        buffer.extend_from_slice(&bytes);
        if buffer.len() >= PIECE {
            piece.write(buffer.split().freeze()).await?;
        }
    }
    if !buffer.is_empty() {
        piece.write(buffer.freeze()).await?;
    }
    piece.finish(true).await?;
    Ok(())
}
