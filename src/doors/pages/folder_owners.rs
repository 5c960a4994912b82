//! `/folders/{id}/owner`: a form for an own copy of a folder, one for another owner of it, what members of its project may do,
//! who makes copies, and what it may take by itself; and what is answered to a folder that its owner gives away. Decides nothing.

use api::folders::{
    FolderLimitBody, FolderOwnerKind, FolderPatchBody, FolderTransferView, NewFolderCopyBody,
    NewFolderTransferBody,
};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::folder::{FolderKind, FolderState, MountAccess};
use rules::names::OperationId;
use rules::refusal::Refusal;
use rules::units::Bytes;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::folders::{self, copies, limits, transfers};
use server::actions::operations;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/folders";
/// Who makes own copies, as the form says it.
const READERS: &str = "readers";
const OWNER: &str = "owner";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_owner.html")]
pub struct FolderOwnerPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    pub folder: String,
    pub owner: String,
    /// The user who looks may read its files, and they are all there.
    pub copies: bool,
    /// The user who looks may make an own copy of it.
    pub clones: bool,
    /// The user who looks may give it to another owner.
    pub owns: bool,
    /// Whom it is offered to; empty: to no other owner.
    pub offered: String,
    /// What members of its project may do; empty where a user owns it.
    pub members: Vec<Choice>,
    /// Who makes own copies of it; empty for all but its owner.
    pub cloning: Vec<Choice>,
    /// The user who looks may give it a limit of its own.
    pub limits: bool,
    /// That limit comes on top of that of its owner.
    pub adds: bool,
    /// It lies on a volume, where nothing but a count holds a limit.
    pub on_volume: bool,
    /// Names of projects that the user who looks leads.
    pub projects: Vec<String>,
    /// As they were typed or chosen; of the limit, as it is.
    pub limit: String,
    pub name: String,
    pub of: String,
    pub user: String,
    pub project: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/folders/{id}/owner", get(show))
        .route("/folders/{id}/clone", post(copy))
        .route("/folders/{id}/members", post(members))
        .route("/folders/{id}/limit", post(limit))
        .route("/folders/{id}/transfer", post(offer))
        .route("/folders/{id}/withdraw", post(withdraw))
        .route("/folder-transfers/{id}/accept", post(accept))
        .route("/folder-transfers/{id}/decline", post(decline))
        .route("/folder-work/{id}/cancel", post(cancel))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FolderOwnerForm {
    name: String,
    /// Whose the copy is to be; empty: the user's own.
    of: String,
    user: String,
    project: String,
    members: String,
    cloneable: String,
    /// None: not typed.
    limit: Option<String>,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match read(&console, &visit, &caller, &id, FolderOwnerForm::default()).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    typed: FolderOwnerForm,
) -> Result<FolderOwnerPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let folder = folders::get(server, caller, id).await?;
    let is_ready = folder.state == FolderState::Ready;
    let owns = folder.owned && folder.kind != FolderKind::Home && is_ready;
    let offered = match owns {
        true => transfers::offered(server, caller, id).await?,
        false => None,
    };
    let members = folder.members.filter(|_| owns);
    let adds = limits::adds(caller);
    let held = folder.limit.map(|bytes| Bytes(bytes).to_string());
    Ok(FolderOwnerPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        id: folder.id.to_string(),
        folder: folder.name.to_string(),
        owner: owner_words(t, folder.owner.kind, &folder.owner.name),
        copies: folder.right.is_some() && is_ready,
        clones: folder.right.is_some() && is_ready && (folder.owned || folder.cloneable),
        owns,
        offered: offered.map_or_else(String::new, |offer| {
            owner_words(t, offer.to.kind, &offer.to.name)
        }),
        members: members.map_or_else(Vec::new, |held| {
            [MountAccess::Ro, MountAccess::Rw]
                .map(|access| Choice::new(access.word(), access_words(t, access), access == held))
                .into()
        }),
        cloning: match owns {
            true => [
                (READERS, t.folder_owner_cloning_readers(), folder.cloneable),
                (OWNER, t.folder_owner_cloning_owner(), !folder.cloneable),
            ]
            .map(|(word, name, chosen)| Choice::new(word, name, chosen))
            .into(),
            false => Vec::new(),
        },
        limits: is_ready && (adds || folder.owned && folder.volume.is_none()),
        adds,
        on_volume: folder.volume.is_some(),
        projects: folders::led_projects(server, caller).await?,
        limit: typed.limit.or(held).unwrap_or_default(),
        name: typed.name,
        of: typed.of,
        user: typed.user,
        project: typed.project,
    })
}

/// A user by their name; a project as such.
pub(super) fn owner_words(t: Text, kind: FolderOwnerKind, name: &str) -> String {
    match kind {
        FolderOwnerKind::User => name.to_owned(),
        FolderOwnerKind::Project => t.folder_owner_of_project(name),
    }
}

pub(super) fn access_words(t: Text, access: MountAccess) -> &'static str {
    match access {
        MountAccess::Ro => t.folder_shares_ro(),
        MountAccess::Rw => t.folder_shares_rw(),
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

/// The page once more, with what was refused at its field.
async fn refused(
    console: &PagesContext,
    visit: RequestContext,
    caller: &Caller,
    (id, verb, field): (&str, &str, &'static str),
    sent: FolderOwnerForm,
    refusal: &Refusal,
) -> Response {
    match read(console, &visit, caller, id, sent).await {
        Ok(page) => {
            let action = format!("{PATH}/{}/{verb}", page.id);
            let refused = RefusedForm::new(visit.text, &action, refusal).otherwise_at(field);
            let visit = visit.refusing(refused);
            responses::page(console, &visit, responses::status(refusal), &page)
        }
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

/// `POST /folders/{id}/clone`
async fn copy(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<FolderOwnerForm>,
) -> Response {
    let asked = NewFolderCopyBody {
        name: sent.name.trim().to_owned(),
        project: Some(sent.of.clone()),
    };
    match copies::create(&console.server, &caller, &id, asked, None).await {
        Ok(_) => responses::see_with(PATH, "folder-copying", sent.name.trim()),
        Err(Failure::Refusal(refusal)) => {
            let at = (id.as_str(), "clone", "name");
            refused(&console, visit, &caller, at, sent, &refusal).await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `POST /folders/{id}/transfer`
async fn offer(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<FolderOwnerForm>,
) -> Response {
    let asked = NewFolderTransferBody {
        user: Some(sent.user.clone()),
        project: Some(sent.project.clone()),
    };
    match transfers::offer(&console.server, &caller, &id, asked).await {
        Ok(offer) => responses::see_with(&owner_of(&id), "folder-offered", &offer.to.name),
        Err(Failure::Refusal(refusal)) => {
            let at = (id.as_str(), "transfer", "user");
            refused(&console, visit, &caller, at, sent, &refusal).await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `POST /folders/{id}/withdraw`
async fn withdraw(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match transfers::withdraw(&console.server, &caller, &id).await {
        Ok(()) => responses::see(&owner_of(&id)),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /folders/{id}/members`
async fn members(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<FolderOwnerForm>,
) -> Response {
    let patch = FolderPatchBody {
        name: None,
        members: MountAccess::parse(&sent.members),
        cloneable: match sent.cloneable.as_str() {
            READERS => Some(true),
            OWNER => Some(false),
            _ => None,
        },
    };
    match folders::change(&console.server, &caller, &id, patch, None).await {
        Ok(_) => responses::see(&owner_of(&id)),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /folders/{id}/limit`
async fn limit(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<FolderOwnerForm>,
) -> Response {
    let typed = sent.limit.as_deref().map_or("", str::trim);
    let bytes = match typed {
        "" => Ok(None),
        typed => Bytes::parse(typed).map(Some),
    };
    let set = match bytes {
        Ok(bytes) => {
            let asked = FolderLimitBody {
                bytes: bytes.map(|bytes| bytes.0),
            };
            limits::set(&console.server, &caller, &id, asked).await
        }
        Err(refusal) => Err(refusal.at("/limit").into()),
    };
    match set {
        Ok(folder) if folder.state == FolderState::Ready => responses::see(&owner_of(&id)),
        Ok(_) => responses::see(PATH),
        Err(Failure::Refusal(refusal)) => {
            let refusal = refusal.at("/limit");
            let at = (id.as_str(), "limit", "limit");
            refused(&console, visit, &caller, at, sent, &refusal).await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `POST /folder-transfers/{id}/accept`
async fn accept(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match transfers::accept(&console.server, &caller, &id).await {
        Ok(operation) => responses::see_with(PATH, "folder-taking", &operation.file),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /folder-transfers/{id}/decline`
async fn decline(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match transfers::decline(&console.server, &caller, &id).await {
        Ok(()) => responses::see(PATH),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /folder-work/{id}/cancel`
async fn cancel(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let id = match id.parse::<OperationId>() {
        Ok(id) => id,
        Err(refusal) => return failed(&console, &visit, &caller, &refusal.into()),
    };
    match operations::cancel(&console.server, &caller, id).await {
        Ok(_) => responses::see(PATH),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// One folder that may be taken over, as a list shows it.
pub struct FolderTransferRow {
    pub id: String,
    pub name: String,
    pub owner: String,
    pub to: String,
    pub size: String,
}

pub(super) fn transfer_row(t: Text, offer: FolderTransferView) -> FolderTransferRow {
    FolderTransferRow {
        id: offer.folder.to_string(),
        name: offer.name.to_string(),
        owner: owner_words(t, offer.owner.kind, &offer.owner.name),
        to: owner_words(t, offer.to.kind, &offer.to.name),
        size: offer
            .bytes
            .map_or_else(String::new, super::components::size),
    }
}

fn owner_of(id: &str) -> String {
    format!("{PATH}/{}/owner", responses::encoded(id))
}
