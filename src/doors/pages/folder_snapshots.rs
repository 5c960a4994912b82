//! `/folders/{id}/snapshots`: the snapshots of a folder, the button that makes one, and their schedule; and what lies in one, with
//! the forms that take it back. Downloads are the API's. Decides nothing.

use api::folder_snapshots::{
    FolderSnapshotRestoreBody, FolderSnapshotScheduleBody, FolderSnapshotView,
    NewFolderFromSnapshotBody,
};
use api::folders::{FolderEntryQuery, FolderEntryView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::codes::FOLDER_ENTRY_EXISTS;
use rules::folder_path::FolderEntryKind;
use rules::folder_rights::FolderRight;
use rules::folder_snapshot::{MAX_DAILY, MAX_HOURLY, MAX_WEEKLY, SnapshotOrigin, SnapshotState};
use rules::refusal::Refusal;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::folders::{self, snapshots};

use super::authentication::PageCaller;
use super::components;
use super::folder_files::{PathCrumb, failed, files_address};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

/// Entries of one page, as of a directory.
const ENTRIES: usize = 60;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_snapshots.html")]
pub struct FolderSnapshotsPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    pub folder: String,
    /// Where its files are.
    pub files: String,
    /// The user who looks may say which there are.
    pub manages: bool,
    /// One can be made where the folder lies.
    pub offered: bool,
    /// How far the one is that is being made; empty for none of the user who looks.
    pub work: String,
    pub operation: String,
    /// What all take of what they may; empty where nothing is held.
    pub usage: String,
    pub rows: Vec<FolderSnapshotRow>,
    /// As they are, or as they were typed.
    pub counts: [SnapshotCount; 3],
}

/// How many of one sort are kept.
pub struct SnapshotCount {
    pub name: &'static str,
    pub label: &'static str,
    pub value: String,
    pub most: u32,
}

pub struct FolderSnapshotRow {
    pub number: u32,
    pub made: String,
    pub origin: &'static str,
    pub size: String,
    /// Its files are all there.
    pub is_ready: bool,
    /// No file could change meanwhile.
    pub is_frozen: bool,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_snapshot.html")]
pub struct FolderSnapshotPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    pub number: u32,
    pub crumbs: Vec<PathCrumb>,
    /// The directory, as text.
    pub here: String,
    /// The user who looks may put files back.
    pub writes: bool,
    pub total: String,
    pub rows: Vec<SnapshotFileRow>,
    pub first: Option<String>,
    pub next: Option<String>,
    /// What stands where a file was to be put back; empty for nothing.
    pub taken: String,
    /// Names of projects that the user who looks leads.
    pub projects: Vec<String>,
    /// As they were typed.
    pub name: String,
    pub of: String,
}

pub struct SnapshotFileRow {
    pub name: String,
    pub path: String,
    /// Where a directory is listed; empty for all else.
    pub href: String,
    pub icon: &'static str,
    pub size: String,
    pub modified: String,
    /// Where its bytes are; empty where it is no file.
    pub download: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/folders/{id}/snapshots", get(show).post(create))
        .route("/folders/{id}/snapshots/schedule", post(set_schedule))
        .route("/folders/{id}/snapshots/remove", post(remove))
        .route("/folders/{id}/snapshots/{number}", get(show_one))
        .route("/folders/{id}/snapshots/{number}/clone", post(copy))
        .route("/folders/{id}/snapshots/{number}/restore", post(restore))
}

/// Which page of which directory.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SnapshotQuery {
    path: String,
    cursor: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SnapshotScheduleForm {
    hourly: String,
    daily: String,
    weekly: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SnapshotNumberForm {
    number: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SnapshotFormFields {
    /// A file or a directory of the snapshot.
    path: String,
    /// The directory that was shown.
    here: String,
    /// Not empty: what stands there goes into the trash.
    replace: String,
    name: String,
    /// Whose the new folder is to be; empty: the user's own.
    of: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match read(&console, &visit, &caller, &id, None).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    typed: Option<SnapshotScheduleForm>,
) -> Result<FolderSnapshotsPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let (folder, known) = snapshots::list(server, caller, id).await?;
    let id = folder.id.to_string();
    let right = folders::get(server, caller, &id).await?.right;
    let work = snapshots::under_way(server, caller, &id).await?;
    let typed = typed.unwrap_or_else(|| SnapshotScheduleForm {
        hourly: known.schedule.hourly.to_string(),
        daily: known.schedule.daily.to_string(),
        weekly: known.schedule.weekly.to_string(),
    });
    Ok(FolderSnapshotsPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        files: files_address(&id, ""),
        folder: folder.name.to_string(),
        manages: right == Some(FolderRight::Rwd),
        offered: known.offered,
        work: match &work {
            Some(work) => {
                let part = work.done.saturating_mul(100).checked_div(work.total);
                t.folder_snapshots_making(part.unwrap_or(0))
            }
            None => String::new(),
        },
        operation: work.map_or_else(String::new, |work| work.operation.to_string()),
        usage: match known.limit {
            Some(limit) => {
                t.folder_snapshots_usage(components::size(known.used), components::size(limit))
            }
            None => String::new(),
        },
        rows: known
            .items
            .into_iter()
            .map(|one| snapshot_row(visit, one))
            .collect(),
        counts: [
            SnapshotCount {
                name: "hourly",
                label: t.folder_snapshots_hourly(),
                value: typed.hourly,
                most: MAX_HOURLY,
            },
            SnapshotCount {
                name: "daily",
                label: t.folder_snapshots_daily(),
                value: typed.daily,
                most: MAX_DAILY,
            },
            SnapshotCount {
                name: "weekly",
                label: t.folder_snapshots_weekly(),
                value: typed.weekly,
                most: MAX_WEEKLY,
            },
        ],
        id,
    })
}

fn snapshot_row(visit: &RequestContext, one: FolderSnapshotView) -> FolderSnapshotRow {
    let t = visit.text;
    FolderSnapshotRow {
        number: one.number,
        made: visit.clock.date(one.created_at),
        origin: match one.origin {
            SnapshotOrigin::Hand => t.folder_snapshots_by_hand(),
            SnapshotOrigin::Hourly => t.folder_snapshots_hourly(),
            SnapshotOrigin::Daily => t.folder_snapshots_daily(),
            SnapshotOrigin::Weekly => t.folder_snapshots_weekly(),
        },
        size: one.bytes.map_or_else(String::new, components::size),
        is_ready: one.state == SnapshotState::Ready,
        is_frozen: one.frozen,
    }
}

/// The snapshots once more, with a form of theirs that was refused.
async fn refused(
    console: &PagesContext,
    visit: RequestContext,
    caller: &Caller,
    (id, form): (&str, RefusedForm),
    typed: Option<SnapshotScheduleForm>,
    refusal: &Refusal,
) -> Response {
    match read(console, &visit, caller, id, typed).await {
        Ok(page) => {
            let visit = visit.refusing(form);
            responses::page(console, &visit, responses::status(refusal), &page)
        }
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

/// `POST /folders/{id}/snapshots`
async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let place = snapshots_of(&id);
    match snapshots::create(&console.server, &caller, &id).await {
        Ok(_) => responses::see_with(&place, "snapshot-making", ""),
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(visit.text, &place, &refusal);
            let again = (id.as_str(), form);
            refused(&console, visit, &caller, again, None, &refusal).await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `POST /folders/{id}/snapshots/schedule`
async fn set_schedule(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<SnapshotScheduleForm>,
) -> Response {
    // What is no number is refused as one that is too large.
    let count = |typed: &str| match typed.trim() {
        "" => 0,
        typed => typed.parse().unwrap_or(u32::MAX),
    };
    let asked = FolderSnapshotScheduleBody {
        hourly: count(&sent.hourly),
        daily: count(&sent.daily),
        weekly: count(&sent.weekly),
    };
    let place = snapshots_of(&id);
    match snapshots::set_schedule(&console.server, &caller, &id, asked).await {
        Ok(_) => responses::see_with(&place, "snapshot-schedule", ""),
        Err(Failure::Refusal(refusal)) => {
            let action = format!("{place}/schedule");
            let form = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("hourly");
            let again = (id.as_str(), form);
            refused(&console, visit, &caller, again, Some(sent), &refusal).await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `POST /folders/{id}/snapshots/remove`
async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<SnapshotNumberForm>,
) -> Response {
    let number = sent.number.trim().parse().unwrap_or(0);
    match snapshots::remove(&console.server, &caller, &id, number).await {
        Ok(()) => responses::see_with(&snapshots_of(&id), "snapshot-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn show_one(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, number)): Path<(String, String)>,
    Query(asked): Query<SnapshotQuery>,
) -> Response {
    let number = number.parse().unwrap_or(0);
    match read_one(&console, &visit, &caller, (id.as_str(), number), asked).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read_one(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    (id, number): (&str, u32),
    asked: SnapshotQuery,
) -> Result<FolderSnapshotPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let is_later = !asked.cursor.is_empty();
    let wanted = FolderEntryQuery {
        path: asked.path,
        limit: Some(ENTRIES),
        cursor: Some(asked.cursor),
        ..FolderEntryQuery::default()
    };
    let found = snapshots::entries(server, caller, id, number, &wanted).await?;
    let id = found.folder.id.to_string();
    let right = folders::get(server, caller, &id).await?.right;
    let base = directory_of(&id, number, &found.path);
    let next = found.page.next_cursor.as_ref();
    Ok(FolderSnapshotPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        number,
        crumbs: crumbs(
            t,
            (id.as_str(), number),
            found.folder.name.as_str(),
            &found.path,
        ),
        writes: right >= Some(FolderRight::Rw),
        total: t.folder_files_total(found.page.estimated_total),
        rows: found
            .page
            .items
            .iter()
            .map(|entry| file_row(visit, (id.as_str(), number), entry))
            .collect(),
        next: next.map(|cursor| format!("{base}&cursor={cursor}")),
        first: is_later.then_some(base),
        taken: String::new(),
        projects: folders::led_projects(server, caller).await?,
        name: String::new(),
        of: String::new(),
        here: found.path,
        id,
    })
}

fn file_row(
    visit: &RequestContext,
    (id, number): (&str, u32),
    entry: &FolderEntryView,
) -> SnapshotFileRow {
    let is_file = entry.kind == FolderEntryKind::File;
    let (icon, href) = match entry.kind {
        FolderEntryKind::Directory => ("folder", directory_of(id, number, &entry.path)),
        FolderEntryKind::File => ("scroll-text", String::new()),
        FolderEntryKind::Link => ("link", String::new()),
        FolderEntryKind::Other => ("circle-help", String::new()),
    };
    SnapshotFileRow {
        name: entry.name.clone(),
        path: entry.path.clone(),
        href,
        icon,
        size: match is_file {
            true => components::size(entry.size),
            false => String::new(),
        },
        modified: visit.clock.date(entry.modified_at),
        download: match is_file {
            true => format!(
                "/api/v1/folders/{id}/snapshots/{number}/files?path={}",
                responses::encoded(&entry.path)
            ),
            false => String::new(),
        },
    }
}

/// The way from all folders to a directory of a snapshot.
fn crumbs(t: Text, (id, number): (&str, u32), folder: &str, path: &str) -> Vec<PathCrumb> {
    let mut all = vec![
        PathCrumb {
            name: t.folders_title().to_owned(),
            href: "/folders".to_owned(),
        },
        PathCrumb {
            name: folder.to_owned(),
            href: files_address(id, ""),
        },
        PathCrumb {
            name: t.folder_snapshots_title().to_owned(),
            href: snapshots_of(id),
        },
        PathCrumb {
            name: format!("#{number}"),
            href: directory_of(id, number, ""),
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
            href: directory_of(id, number, below),
        });
    }
    all
}

/// `POST /folders/{id}/snapshots/{number}/clone`
async fn copy(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, number)): Path<(String, String)>,
    Form(sent): Form<SnapshotFormFields>,
) -> Response {
    let number = number.parse().unwrap_or(0);
    let asked = NewFolderFromSnapshotBody {
        name: sent.name.trim().to_owned(),
        project: Some(sent.of.clone()),
        path: sent.here.clone(),
    };
    match snapshots::copy(&console.server, &caller, &id, number, asked, None).await {
        Ok(_) => responses::see_with("/folders", "folder-copying", sent.name.trim()),
        Err(Failure::Refusal(refusal)) => {
            let (at, verb) = ((id.as_str(), number), "clone");
            refused_one(&console, visit, &caller, at, verb, sent, &refusal).await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `POST /folders/{id}/snapshots/{number}/restore`
async fn restore(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, number)): Path<(String, String)>,
    Form(sent): Form<SnapshotFormFields>,
) -> Response {
    let number = number.parse().unwrap_or(0);
    let asked = FolderSnapshotRestoreBody {
        path: sent.path.clone(),
        to: None,
        replace: !sent.replace.is_empty(),
    };
    match snapshots::restore(&console.server, &caller, &id, number, asked).await {
        Ok(back) => {
            let place = directory_of(&id, number, &sent.here);
            responses::see_with(&place, "snapshot-restored", &back.name)
        }
        Err(Failure::Refusal(refusal)) => {
            let (at, verb) = ((id.as_str(), number), "restore");
            refused_one(&console, visit, &caller, at, verb, sent, &refusal).await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// The directory of a snapshot once more, with what was refused; where something stands in the place of a file, with the form
/// that replaces it.
async fn refused_one(
    console: &PagesContext,
    visit: RequestContext,
    caller: &Caller,
    (id, number): (&str, u32),
    verb: &str,
    sent: SnapshotFormFields,
    refusal: &Refusal,
) -> Response {
    let asked = SnapshotQuery {
        path: sent.here,
        cursor: String::new(),
    };
    match read_one(console, &visit, caller, (id, number), asked).await {
        Ok(page) => {
            let action = format!("{}/{number}/{verb}", snapshots_of(&page.id));
            let form = RefusedForm::new(visit.text, &action, refusal);
            let (form, taken) = match verb {
                "restore" if refusal.code == FOLDER_ENTRY_EXISTS => (form, sent.path),
                "restore" => (form, String::new()),
                _ => (form.otherwise_at("name"), String::new()),
            };
            let page = FolderSnapshotPage {
                taken,
                name: sent.name,
                of: sent.of,
                ..page
            };
            let visit = visit.refusing(form);
            responses::page(console, &visit, responses::status(refusal), &page)
        }
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

fn snapshots_of(id: &str) -> String {
    format!("/folders/{}/snapshots", responses::encoded(id))
}

fn directory_of(id: &str, number: u32, path: &str) -> String {
    let path = responses::encoded(path);
    format!("{}/{number}?path={path}", snapshots_of(id))
}
