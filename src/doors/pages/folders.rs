//! `/folders`: the folders of the user who looks, those that are shared with them or offered, a form for a new one, and the
//! question before one goes to the trash. All that administrators see is listed by the API and the command line. Decides
//! nothing.

use api::folders::{FolderView, NewFolderBody};
use api::storage::StorageView;
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::folder::{FolderKind, FolderState};
use rules::folder_rights::FolderRight;
use rules::storage::StorageLevel;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::folders::sharing;
use server::actions::{folders, storage, volumes};

use super::authentication::PageCaller;
use super::components;
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{self, Pager};
use super::{PagesContext, layout, responses, storage_use};
use crate::doors::text::Text;

const PATH: &str = "/folders";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folders.html")]
pub struct FoldersPage {
    pub t: Text,
    pub f: PageLayout,
    /// The folders of this page.
    pub folders: Vec<OwnFolderRow>,
    pub pager: Pager,
    pub trash: Vec<OwnFolderRow>,
    pub shared: Vec<SharedFolderRow>,
    pub invitations: Vec<FolderInvitationRow>,
    pub space: FolderSpace,
    /// As it was typed.
    pub name: String,
    /// Names of volumes that a new one may lie on; empty where there is only the box's own disk.
    pub volumes: Vec<String>,
    /// As it was chosen.
    pub volume: String,
}

/// What all folders take together, of what they may.
pub struct FolderSpace {
    pub text: String,
    pub percent: u8,
    pub tone: &'static str,
    pub note: &'static str,
    /// The biggest of them; empty where that says nothing.
    pub biggest: String,
}

pub struct OwnFolderRow {
    pub id: String,
    pub name: String,
    /// Below the name: what it is, where that is not plain.
    pub note: String,
    /// Where it lies; empty for the box's own disk.
    pub volume: String,
    pub size: String,
    pub entries: String,
    /// When it was counted, in words.
    pub counted: String,
    pub used: String,
    /// When its files are removed; empty for one that is ready.
    pub purged: String,
    /// It can be restored.
    pub is_back: bool,
}

/// A folder of another user that is shared with the one who looks.
pub struct SharedFolderRow {
    pub id: String,
    pub name: String,
    pub owner: String,
    /// What may be done with it, in words.
    pub right: &'static str,
    pub size: String,
    /// It can be opened: it is not in the trash.
    pub is_ready: bool,
    /// It can be moved to the trash.
    pub trashes: bool,
    /// It can be restored.
    pub is_back: bool,
}

/// A folder that another user offers.
pub struct FolderInvitationRow {
    pub id: String,
    pub name: String,
    pub owner: String,
    pub right: &'static str,
    /// Empty: until it is taken back.
    pub until: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/folders", get(show).post(create))
        .route("/folders/{id}/trash", get(ask).post(trash))
        .route("/folders/{id}/restore", post(restore))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewFolderForm {
    name: String,
    volume: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FoldersQuery {
    /// The page of own folders, from 1.
    page: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<FoldersQuery>,
) -> Response {
    let form = NewFolderForm::default();
    match read(&console, &visit, &caller, form, &asked.page).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    form: NewFolderForm,
    page: &str,
) -> Result<FoldersPage, Failure> {
    let now = console.server.clock().now();
    let own = folders::own(&console.server, caller).await?;
    let shared = folders::shared(&console.server, caller).await?;
    let offered = sharing::invitations(&console.server, caller).await?;
    let taken = storage::own(&console.server, caller).await?;
    let volumes = volumes::usable(&console.server, caller).await?;
    let (ready, trash): (Vec<_>, Vec<_>) = own
        .iter()
        .partition(|folder| folder.state == FolderState::Ready);
    let rows = |of: Vec<&FolderView>| -> Vec<OwnFolderRow> {
        of.into_iter().map(|one| row(visit, one, now)).collect()
    };
    let (ready, pager) = table::one_page(visit.text, PATH, page, ready);
    Ok(FoldersPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Folders),
        folders: rows(ready),
        pager,
        trash: rows(trash),
        shared: shared.iter().map(|one| shared_row(visit, one)).collect(),
        invitations: offered
            .into_iter()
            .map(|one| FolderInvitationRow {
                id: one.id.to_string(),
                name: one.name.to_string(),
                owner: one.owner.name.to_string(),
                right: right_words(visit.text, one.right),
                until: one
                    .ends_at
                    .map_or_else(String::new, |at| visit.clock.date(at)),
            })
            .collect(),
        space: space(visit.text, &taken, &own),
        volumes: volumes.into_iter().map(|one| one.name).collect(),
        name: form.name,
        volume: form.volume,
    })
}

fn shared_row(visit: &RequestContext, folder: &FolderView) -> SharedFolderRow {
    let manages = folder.right == Some(FolderRight::Rwd);
    SharedFolderRow {
        id: folder.id.to_string(),
        name: folder.name.to_string(),
        owner: folder.owner.name.to_string(),
        right: folder
            .right
            .map_or("", |right| right_words(visit.text, right)),
        size: folder.bytes.map_or_else(String::new, components::size),
        is_ready: folder.state == FolderState::Ready,
        trashes: manages && folder.state == FolderState::Ready,
        is_back: manages && folder.state == FolderState::Trashed,
    }
}

/// What a right gives.
pub(super) fn right_words(t: Text, right: FolderRight) -> &'static str {
    match right {
        FolderRight::Ro => t.folder_shares_ro(),
        FolderRight::Rw => t.folder_shares_rw(),
        FolderRight::Rwd => t.folder_shares_rwd(),
    }
}

fn space(t: Text, taken: &StorageView, own: &[FolderView]) -> FolderSpace {
    let used = components::size(taken.used.0);
    let limit = components::size(taken.limit.0);
    let (tone, note) = match (taken.level, taken.enforcement.is_enforced()) {
        (StorageLevel::Free, true) => ("a", t.folders_space_held()),
        (StorageLevel::Near, true) => ("w", t.folders_space_near()),
        (StorageLevel::Close, true) => ("b", t.folders_space_close()),
        (StorageLevel::Full, true) => ("b", t.folders_space_full()),
        (StorageLevel::Free, false) => ("a", t.folders_space_counted()),
        (_, false) => ("w", t.folders_space_counted()),
    };
    FolderSpace {
        text: t.folders_space_of(used, limit),
        percent: components::percent(taken.used.0 as f64, taken.limit.0 as f64),
        tone,
        note,
        biggest: storage_use::biggest(own),
    }
}

fn row(visit: &RequestContext, folder: &FolderView, now: Timestamp) -> OwnFolderRow {
    let t = visit.text;
    let ago = |at: Timestamp| visit.clock.ago(at, now);
    OwnFolderRow {
        id: folder.id.to_string(),
        name: folder.name.to_string(),
        note: match folder.kind {
            FolderKind::Home => t.folders_home().to_owned(),
            FolderKind::General => String::new(),
        },
        volume: folder.volume.clone().unwrap_or_default(),
        size: folder.bytes.map_or_else(String::new, components::size),
        entries: folder
            .entries
            .map_or_else(String::new, |count| count.to_string()),
        counted: folder
            .counted_at
            .map_or_else(|| t.folders_not_counted().to_owned(), ago),
        used: folder
            .used_at
            .map_or_else(|| t.common_never().to_owned(), ago),
        purged: match folder.state {
            FolderState::Purging => t.folders_purging().to_owned(),
            _ => folder
                .purge_at
                .map_or_else(String::new, |at| visit.clock.date(at)),
        },
        is_back: folder.state == FolderState::Trashed,
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Folders);
    responses::failure(console, visit, Some(frame), failure)
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<NewFolderForm>,
) -> Response {
    let asked = NewFolderBody {
        name: sent.name.trim().to_owned(),
        volume: Some(sent.volume.clone()),
    };
    let refusal = match folders::create(&console.server, &caller, asked, None).await {
        Ok(made) => return responses::see_with(PATH, "folder-added", made.value.name.as_str()),
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return failed(&console, &visit, &caller, &fault),
    };
    let refused = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("name");
    let visit = visit.refusing(refused);
    match read(&console, &visit, &caller, sent, "").await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /folders/{id}/trash`: what would become of it.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let folder = match folders::get(&console.server, &caller, &id).await {
        Ok(folder) => folder,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let title = t.folders_trash_title(folder.name.as_str());
    let frame = layout(&console, &visit, &caller, Nav::Folders);
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.folders_trash_lead());
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/trash", folder.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.folders_trash().to_owned(),
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Folders, page)
}

async fn trash(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match folders::trash(&console.server, &caller, &id).await {
        Ok(folder) => responses::see_with(PATH, "folder-trashed", folder.name.as_str()),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn restore(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match folders::restore(&console.server, &caller, &id).await {
        Ok(folder) => responses::see_with(PATH, "folder-restored", folder.name.as_str()),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
