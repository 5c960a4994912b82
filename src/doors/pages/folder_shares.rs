//! `/folders/{id}/sharing`: whom a folder is shared with, which sessions mount it, and a form for one share more; and what is
//! answered to a folder that is offered. Decides nothing.

use api::folders::{FolderDetachmentBody, NewFolderShareBody};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::folder_rights::FolderRight;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::folders::{self, sharing};

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::folders::right_words;
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/folders";
/// Days of a share that the form offers; 0: until it is taken back.
const DAYS: [u64; 5] = [0, 1, 7, 30, 180];
const DAY_SECONDS: u64 = 86_400;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_shares.html")]
pub struct FolderSharesPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    pub folder: String,
    pub owner: String,
    /// A share more may be made.
    pub shares_on: bool,
    pub shares: Vec<FolderShareRow>,
    pub sessions: Vec<FolderSessionRow>,
    /// It may be taken out of them.
    pub detaches: bool,
    pub rights: Vec<Choice>,
    pub lifetimes: Vec<Choice>,
    /// As they were typed.
    pub user: String,
    pub project: String,
}

pub struct FolderShareRow {
    pub id: String,
    pub with: String,
    pub right: &'static str,
    /// Empty: until it is taken back.
    pub until: String,
    pub is_accepted: bool,
}

pub struct FolderSessionRow {
    pub name: String,
    pub owner: String,
    pub access: &'static str,
    /// Its owner has no such right any more.
    pub is_over: bool,
    /// It was to lose the folder, and still has it.
    pub is_stuck: bool,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/folders/{id}/sharing", get(show))
        .route("/folders/{id}/share", post(share))
        .route("/folders/{id}/unshare", post(unshare))
        .route("/folders/{id}/detach", post(detach))
        .route("/folders/{id}/leave", post(leave))
        .route("/folder-invitations/{id}/accept", post(accept))
        .route("/folder-invitations/{id}/decline", post(decline))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FolderShareForm {
    user: String,
    project: String,
    right: String,
    days: String,
    share: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match read(&console, &visit, &caller, &id, FolderShareForm::default()).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Folders, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    typed: FolderShareForm,
) -> Result<FolderSharesPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let folder = folders::get(server, caller, id).await?;
    let shares = sharing::list(server, caller, id).await?;
    let sessions = sharing::sessions(server, caller, id).await?;
    let chosen = FolderRight::parse(&typed.right).unwrap_or(FolderRight::Ro);
    Ok(FolderSharesPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        id: folder.id.to_string(),
        folder: folder.name.to_string(),
        owner: folder.owner.name,
        shares_on: folder.right == Some(FolderRight::Rwd),
        detaches: folder.owned,
        shares: shares
            .into_iter()
            .map(|share| FolderShareRow {
                id: share.id.to_string(),
                with: match (share.user, share.project) {
                    (Some(user), _) => user,
                    (None, Some(project)) => t.folder_shares_of_project(project),
                    (None, None) => String::new(),
                },
                right: right_words(t, share.right),
                until: share
                    .ends_at
                    .map_or_else(String::new, |at| visit.clock.date(at)),
                is_accepted: share.accepted_at.is_some(),
            })
            .collect(),
        sessions: sessions
            .into_iter()
            .map(|session| FolderSessionRow {
                name: session.name.to_string(),
                owner: session.owner.name.to_string(),
                access: match session.access.is_read_only() {
                    true => t.folder_shares_ro(),
                    false => t.folder_shares_rw(),
                },
                is_over: !session.allowed,
                is_stuck: session.stuck,
            })
            .collect(),
        rights: FolderRight::ALL
            .iter()
            .map(|right| Choice::new(right.word(), right_words(t, *right), *right == chosen))
            .collect(),
        lifetimes: DAYS
            .iter()
            .map(|days| {
                let value = days.to_string();
                let words = match days {
                    0 => t.folder_shares_for_good().to_owned(),
                    days => t.folder_shares_days(*days),
                };
                let is_chosen = typed.days == value || *days == 0 && typed.days.is_empty();
                Choice::new(&value, &words, is_chosen)
            })
            .collect(),
        user: typed.user,
        project: typed.project,
    })
}

/// `POST /folders/{id}/share`
async fn share(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<FolderShareForm>,
) -> Response {
    let days = sent.days.parse::<u64>().unwrap_or(0);
    let days = DAYS
        .into_iter()
        .find(|offered| *offered == days && days > 0);
    let now = console.server.clock().now();
    let asked = NewFolderShareBody {
        user: Some(sent.user.clone()),
        project: Some(sent.project.clone()),
        right: FolderRight::parse(&sent.right),
        until: days.map(|days| now.plus_seconds(days * DAY_SECONDS)),
    };
    let refusal = match sharing::create(&console.server, &caller, &id, asked, None).await {
        Ok(made) => {
            // A user is asked first; the members of a project have it at once.
            let word = match made.value.accepted_at {
                Some(_) => "folder-shared",
                None => "folder-asked",
            };
            let with = made.value.user.or(made.value.project).unwrap_or_default();
            return responses::see_with(&sharing_of(&id), word, &with);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return super::failed(&console, &visit, &caller, Nav::Folders, &fault),
    };
    match read(&console, &visit, &caller, &id, sent).await {
        Ok(page) => {
            let action = format!("{PATH}/{}/share", page.id);
            let refused = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("user");
            let visit = visit.refusing(refused);
            responses::page(&console, &visit, responses::status(&refusal), &page)
        }
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Folders, &failure),
    }
}

/// `POST /folders/{id}/unshare`
async fn unshare(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<FolderShareForm>,
) -> Response {
    match sharing::remove(&console.server, &caller, &id, &sent.share).await {
        Ok(()) => responses::see(&sharing_of(&id)),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Folders, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FolderDetachForm {
    /// As OWNER/NAME.
    session: String,
}

/// `POST /folders/{id}/detach`
async fn detach(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<FolderDetachForm>,
) -> Response {
    let asked = FolderDetachmentBody {
        sessions: vec![sent.session.clone()],
    };
    match sharing::detach(&console.server, &caller, &id, asked).await {
        Ok(_) => responses::see_with(&sharing_of(&id), "folder-detached", &sent.session),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Folders, &failure),
    }
}

/// `POST /folders/{id}/leave`
async fn leave(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match sharing::leave(&console.server, &caller, &id).await {
        Ok(()) => responses::see(PATH),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Folders, &failure),
    }
}

/// `POST /folder-invitations/{id}/accept`
async fn accept(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match sharing::accept(&console.server, &caller, &id).await {
        Ok(folder) => responses::see_with(PATH, "folder-accepted", folder.name.as_str()),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Folders, &failure),
    }
}

/// `POST /folder-invitations/{id}/decline`
async fn decline(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match sharing::decline(&console.server, &caller, &id).await {
        Ok(()) => responses::see(PATH),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Folders, &failure),
    }
}

fn sharing_of(id: &str) -> String {
    format!("{PATH}/{}/sharing", responses::encoded(id))
}
