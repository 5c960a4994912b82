//! `/folders`: the folders of the user who looks, those of their projects, those that are shared with them or offered, a form
//! for a new one, and the question before one goes to the trash. All that administrators see is listed by the API and the
//! command line. Decides nothing.

use api::folders::{FolderOwnerKind, FolderView, NewFolderBody};
use api::storage::StorageView;
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::folder::{FolderKind, FolderState, MountAccess};
use rules::folder_rights::FolderRight;
use rules::storage::StorageLevel;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::folders::copies::{self, FolderOperation};
use server::actions::folders::{sharing, transfers};
use server::actions::{folders, storage, volumes};

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::folder_owners::{FolderTransferRow, owner_words, transfer_row};
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
    /// Those of projects, and those that other users share.
    pub shared: Vec<SharedFolderRow>,
    pub invitations: Vec<FolderInvitationRow>,
    /// Folders that may be taken over.
    pub transfers: Vec<FolderTransferRow>,
    /// Owners of which folders are shown; empty where there is one.
    pub owners: Vec<Choice>,
    /// Folders of one owner are shown, who is another one.
    pub is_narrowed: bool,
    pub space: FolderSpace,
    /// Names of projects that may own a new one.
    pub projects: Vec<String>,
    /// As it was chosen.
    pub project: String,
    /// What members of that project may do, as it was chosen.
    pub members_write: bool,
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
    /// How far a copy or a transfer is; empty where there is none.
    pub work: String,
    /// What calls that off; empty where this user cannot.
    pub operation: String,
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
    /// A user shares it, and it can be left.
    pub is_left: bool,
    /// A project owns it.
    pub is_of_project: bool,
    /// How far a copy or a transfer is; empty where there is none.
    pub work: String,
    /// What calls that off; empty where this user cannot.
    pub operation: String,
    /// It can be opened: it is not in the trash.
    pub is_ready: bool,
    /// It can be moved to the trash.
    pub trashes: bool,
    /// It can be given to another owner.
    pub gives: bool,
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
        .route("/folders/{id}/purge", get(ask_purge).post(purge))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewFolderForm {
    name: String,
    volume: String,
    /// Empty: the user's own.
    project: String,
    members: String,
}

/// Which folders are shown.
#[derive(Deserialize, Default)]
#[serde(default)]
struct FolderFilter {
    /// The name of their owner; empty: all.
    owner: String,
    /// The page of own folders, from 1.
    page: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(filter): Query<FolderFilter>,
) -> Response {
    let form = NewFolderForm::default();
    match read(&console, &visit, &caller, form, filter).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    form: NewFolderForm,
    filter: FolderFilter,
) -> Result<FoldersPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let mut own = folders::own(&console.server, caller).await?;
    let mut shared = folders::shared(&console.server, caller).await?;
    let work = copies::under_way(&console.server, caller).await?;
    let given = transfers::list(&console.server, caller).await?;
    let projects = folders::led_projects(&console.server, caller).await?;
    let owners = owners(t, caller, &shared, &filter.owner);
    let is_shown = |one: &FolderView| filter.owner.is_empty() || one.owner.name == filter.owner;
    let biggest = storage_use::biggest(&own);
    own.retain(is_shown);
    shared.retain(is_shown);
    let offered = sharing::invitations(&console.server, caller).await?;
    let taken = storage::own(&console.server, caller).await?;
    let volumes = volumes::usable(&console.server, caller).await?;
    let (ready, trash): (Vec<_>, Vec<_>) =
        own.iter().partition(|folder| folder.trashed_at.is_none());
    let rows = |of: Vec<&FolderView>| -> Vec<OwnFolderRow> {
        of.into_iter()
            .map(|one| row(visit, one, &work, now))
            .collect()
    };
    let (ready, mut pager) = table::one_page(visit.text, PATH, &filter.page, ready);
    if !filter.owner.is_empty() {
        for href in [&mut pager.previous, &mut pager.next].into_iter().flatten() {
            let sign = if href.contains('?') { '&' } else { '?' };
            href.push_str(&format!(
                "{sign}owner={}",
                responses::encoded(&filter.owner)
            ));
        }
    }
    Ok(FoldersPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Folders),
        folders: rows(ready),
        pager,
        trash: rows(trash),
        shared: shared
            .iter()
            .map(|one| shared_row(visit, one, &work))
            .collect(),
        transfers: given.into_iter().map(|one| transfer_row(t, one)).collect(),
        is_narrowed: !filter.owner.is_empty() && filter.owner != caller.name.as_str(),
        owners,
        projects,
        project: form.project,
        members_write: form.members == MountAccess::Rw.word(),
        invitations: offered
            .into_iter()
            .map(|one| FolderInvitationRow {
                id: one.id.to_string(),
                name: one.name.to_string(),
                owner: owner_words(t, one.owner.kind, &one.owner.name),
                right: right_words(visit.text, one.right),
                until: one
                    .ends_at
                    .map_or_else(String::new, |at| visit.clock.date(at)),
            })
            .collect(),
        space: space(visit.text, &taken, biggest),
        volumes: volumes.into_iter().map(|one| one.name).collect(),
        name: form.name,
        volume: form.volume,
    })
}

/// The owners of which folders are listed, to choose one of; none where all are the user's own.
fn owners(t: Text, caller: &Caller, shared: &[FolderView], chosen: &str) -> Vec<Choice> {
    let mut names: Vec<&str> = shared.iter().map(|one| one.owner.name.as_str()).collect();
    if names.is_empty() && chosen.is_empty() {
        return Vec::new();
    }
    names.push(caller.name.as_str());
    names.sort_unstable();
    names.dedup();
    let offered = names.into_iter().map(|name| (name, name));
    Choice::of_filter(t.folder_owner_all(), offered, chosen)
}

/// How far work on a folder is, and what calls it off.
fn under_way(
    visit: &RequestContext,
    folder: &FolderView,
    work: &[FolderOperation],
) -> (String, String) {
    let t = visit.text;
    let own = work.iter().find(|one| one.folder == folder.id);
    let percent = own.map_or(0, |one| {
        let done = u128::from(one.done) * 100;
        u64::try_from(done / u128::from(one.total.max(1))).unwrap_or_default()
    });
    let words = match folder.state {
        FolderState::Copying => t.folder_owner_copying(percent),
        FolderState::Transferring => t.folder_owner_moving(percent),
        FolderState::Ready | FolderState::Trashed | FolderState::Purging => String::new(),
    };
    let operation = own.map_or_else(String::new, |one| one.operation.to_string());
    (words, operation)
}

fn shared_row(
    visit: &RequestContext,
    folder: &FolderView,
    work: &[FolderOperation],
) -> SharedFolderRow {
    let manages = folder.right == Some(FolderRight::Rwd);
    let is_of_project = folder.owner.kind == FolderOwnerKind::Project;
    let (work, operation) = under_way(visit, folder, work);
    SharedFolderRow {
        id: folder.id.to_string(),
        name: folder.name.to_string(),
        owner: folder.owner.name.clone(),
        is_left: !is_of_project,
        is_of_project,
        work,
        operation,
        right: folder
            .right
            .map_or("", |right| right_words(visit.text, right)),
        size: folder
            .bytes
            .map_or_else(|| "–".to_owned(), components::size),
        is_ready: folder.state == FolderState::Ready,
        trashes: manages && folder.state == FolderState::Ready,
        gives: folder.owned,
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

fn space(t: Text, taken: &StorageView, biggest: String) -> FolderSpace {
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
        biggest,
    }
}

fn row(
    visit: &RequestContext,
    folder: &FolderView,
    work: &[FolderOperation],
    now: Timestamp,
) -> OwnFolderRow {
    let t = visit.text;
    let (work, operation) = under_way(visit, folder, work);
    let ago = |at: Timestamp| visit.clock.ago(at, now);
    OwnFolderRow {
        id: folder.id.to_string(),
        name: folder.name.to_string(),
        note: match folder.kind {
            FolderKind::Home => t.folders_home().to_owned(),
            FolderKind::General => String::new(),
        },
        volume: folder.volume.clone().unwrap_or_default(),
        size: match (folder.bytes, folder.limit) {
            (None, _) => String::new(),
            (Some(bytes), None) => components::size(bytes),
            (Some(bytes), Some(limit)) => {
                format!("{} / {}", components::size(bytes), components::size(limit))
            }
        },
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
        work,
        operation,
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
        project: Some(sent.project.clone()),
        members: match sent.project.trim().is_empty() {
            true => None,
            false => MountAccess::parse(&sent.members),
        },
    };
    let refusal = match folders::create(&console.server, &caller, asked, None).await {
        Ok(made) => return responses::see_with(PATH, "folder-added", made.value.name.as_str()),
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return failed(&console, &visit, &caller, &fault),
    };
    let refused = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("name");
    let visit = visit.refusing(refused);
    match read(&console, &visit, &caller, sent, FolderFilter::default()).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// Title, explanation and button of a question about a folder.
type QuestionWords = (String, &'static str, &'static str);

/// Asks before an act on a folder that takes it away.
async fn question(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    (id, act): (&str, &str),
    words: impl FnOnce(Text, &str) -> QuestionWords,
) -> Response {
    let folder = match folders::get(&console.server, caller, id).await {
        Ok(folder) => folder,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let (title, lead, go) = words(visit.text, folder.name.as_str());
    let frame = layout(console, visit, caller, Nav::Folders);
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, lead);
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/{act}", folder.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: go.to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(console, visit, Nav::Folders, page)
}

/// `GET /folders/{id}/trash`: what would become of it.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    question(&console, &visit, &caller, (&id, "trash"), |t, name| {
        let title = t.folders_trash_title(name);
        (title, t.folders_trash_lead(), t.folders_trash())
    })
    .await
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

/// `GET /folders/{id}/purge`: what would become of one in the trash.
async fn ask_purge(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    question(&console, &visit, &caller, (&id, "purge"), |t, name| {
        let title = t.folders_purge_title(name);
        (title, t.folders_purge_lead(), t.folders_purge())
    })
    .await
}

async fn purge(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match folders::purge(&console.server, &caller, &id).await {
        Ok(folder) => responses::see_with(PATH, "folder-purged", folder.name.as_str()),
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
