//! `/sessions/{id}/apps`: the apps of a session, and one of them on its way. A page of an app that starts looks again by
//! itself, and leads on when it is ready; nothing here needs script. Decides nothing.

use api::apps::{AppState, AppView, NewAppShareBody};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use rules::app::AppChoice;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::apps::{self, AppWay, shares};
use server::actions::sessions;

use super::authentication::PageCaller;
use super::components;
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::{Language, Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/apps.html")]
pub struct AppsPage {
    pub t: Text,
    pub f: PageLayout,
    pub session: SessionLink,
    pub apps: Vec<AppRow>,
    pub is_running: bool,
    /// As it was typed.
    pub port: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/app.html")]
pub struct AppPage {
    pub t: Text,
    pub f: PageLayout,
    pub session: SessionLink,
    pub app: AppRow,
    /// The path that it shows first; empty: its own.
    pub to: String,
    /// It is ready, and this page leads on to it.
    pub leads_on: bool,
    /// Why it failed; empty for one that did not.
    pub problem: String,
    pub lines: String,
    pub shares: Vec<AppShareRow>,
    /// The user to share it with, as typed.
    pub user: String,
}

/// An app of another user's session, as a visitor sees it.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/shared_app.html")]
pub struct SharedAppPage {
    pub t: Text,
    pub f: PageLayout,
    pub title: String,
    pub owner: String,
    pub leads_on: bool,
}

pub struct AppShareRow {
    pub id: String,
    /// A user, or the words for all members of the project.
    pub with: String,
    pub until: String,
}

/// The session that apps belong to.
pub struct SessionLink {
    pub id: String,
    pub name: String,
}

pub struct AppRow {
    pub name: String,
    pub title: String,
    pub port: u16,
    pub state: AppState,
    pub tone: &'static str,
    pub words: &'static str,
    pub startable: bool,
    /// The port of this server that it was opened at; empty before.
    pub address_port: String,
    /// Its host, where apps have names; empty where they have ports.
    pub address_name: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/sessions/{id}/apps", get(list).post(open_port))
        .route("/sessions/{id}/apps/{app}", get(show).post(open))
        .route("/sessions/{id}/apps/{app}/share", post(share))
        .route("/sessions/{id}/apps/{app}/unshare", post(unshare))
        .route("/apps/{port}", get(at_port))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AppQuery {
    to: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AppPortForm {
    port: String,
}

async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match read(&console, &visit, &caller, &id, String::new()).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Sessions, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    port: String,
) -> Result<AppsPage, Failure> {
    let session = sessions::get(&console.server, caller, id).await?;
    let known = apps::list(&console.server, &*console.streams, caller, id).await?;
    Ok(AppsPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Sessions),
        session: SessionLink {
            id: session.id.to_string(),
            name: session.name.to_string(),
        },
        apps: known.iter().map(|app| row(visit.text, app)).collect(),
        is_running: session.state == rules::session::SessionState::Running,
        port,
    })
}

fn row(t: Text, app: &AppView) -> AppRow {
    let (tone, words) = match app.state {
        AppState::Stopped => ("", t.apps_stopped()),
        AppState::Starting => ("warn", t.apps_starting()),
        AppState::Ready => ("ok", t.apps_ready()),
        AppState::Failed => ("bad", t.apps_failed()),
    };
    AppRow {
        name: app.name.clone(),
        title: app.title_in(t.language == Language::Korean).to_owned(),
        port: app.port,
        state: app.state,
        tone,
        words,
        startable: app.startable,
        address_port: app
            .address_port
            .map_or_else(String::new, |port| port.to_string()),
        address_name: app.address_name.clone().unwrap_or_default(),
    }
}

/// `POST /sessions/{id}/apps`: opens what listens on a port that was typed.
async fn open_port(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<AppPortForm>,
) -> Response {
    let typed = sent.port.trim();
    let opened = match AppChoice::parse(typed) {
        Ok(AppChoice::Port(_)) => {
            apps::open(&console.server, &console.streams, &caller, &id, typed).await
        }
        Ok(AppChoice::Named(_)) | Err(_) => Err(rules::refusals::port_invalid().into()),
    };
    let refusal = match opened {
        Ok(app) => return responses::see(&page_of(&id, &app.name, "")),
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return super::failed(&console, &visit, &caller, Nav::Sessions, &fault),
    };
    match read(&console, &visit, &caller, &id, sent.port).await {
        Ok(page) => {
            let action = format!("/sessions/{}/apps", page.session.id);
            let refused = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("port");
            let visit = visit.refusing(refused);
            responses::page(&console, &visit, responses::status(&refusal), &page)
        }
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Sessions, &failure),
    }
}

/// `GET /sessions/{id}/apps/{app}`: how far an app is. Starts nothing; leads on to one that is ready and was opened.
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, app)): Path<(String, String)>,
    Query(look): Query<AppQuery>,
) -> Response {
    let to = Some(look.to.as_str()).filter(|to| !to.is_empty());
    let read = read_app(&console, &visit, &caller, (&id, &app), to, String::new()).await;
    let (page, way) = match read {
        Ok(read) => read,
        Err(failure) => return super::failed(&console, &visit, &caller, Nav::Sessions, &failure),
    };
    let state = page.app.state;
    let mut response = responses::page(&console, &visit, StatusCode::OK, &page);
    let refresh = match (state, way) {
        (AppState::Starting, _) => Some("1".to_owned()),
        // A form may not lead to another origin, so a page does.
        (_, Some(way)) => Some(format!("0; url={}", address(&visit, &way))),
        (_, None) => None,
    };
    look_again(&mut response, refresh);
    response
}

/// Has a browser ask for another page after a while.
fn look_again(response: &mut Response, refresh: Option<String>) {
    if let Some(Ok(refresh)) = refresh.map(HeaderValue::try_from) {
        response.headers_mut().insert(header::REFRESH, refresh);
    }
}

/// The page of an app, and where a browser enters it.
async fn read_app(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    (id, app): (&str, &str),
    to: Option<&str>,
    user: String,
) -> Result<(AppPage, Option<AppWay>), Failure> {
    let t = visit.text;
    let server = &console.server;
    let session = sessions::get(server, caller, id).await?;
    let (app, way) = apps::entry(server, &*console.streams, caller, id, app, to).await?;
    let known = shares::list(server, caller, id, &app.name).await?;
    let page = AppPage {
        t,
        f: layout(console, visit, caller, Nav::Sessions),
        session: SessionLink {
            id: session.id.to_string(),
            name: session.name.to_string(),
        },
        app: row(t, &app),
        to: to.unwrap_or_default().to_owned(),
        leads_on: way.is_some(),
        problem: app.problem.as_ref().map_or_else(String::new, |problem| {
            let said = codes::stored(t, &problem.text);
            // In Korean one text says what would help, too.
            match said == problem.text {
                true => format!("{said} {}", problem.hint),
                false => said,
            }
        }),
        lines: app.lines.join("\n"),
        shares: known
            .into_iter()
            .map(|share| AppShareRow {
                id: share.id.to_string(),
                with: share
                    .user
                    .unwrap_or_else(|| t.apps_share_project().to_owned()),
                until: visit.clock.date(share.ends_at),
            })
            .collect(),
        user,
    };
    Ok((page, way))
}

/// `POST /sessions/{id}/apps/{app}`: starts and opens it.
async fn open(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, app)): Path<(String, String)>,
    Form(look): Form<AppQuery>,
) -> Response {
    match apps::open(&console.server, &console.streams, &caller, &id, &app).await {
        Ok(opened) => responses::see(&page_of(&id, &opened.name, &look.to)),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Sessions, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ShareForm {
    user: String,
    share: String,
}

/// `POST /sessions/{id}/apps/{app}/share`
async fn share(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, app)): Path<(String, String)>,
    Form(sent): Form<ShareForm>,
) -> Response {
    let asked = NewAppShareBody {
        user: Some(sent.user.clone()),
        until: None,
    };
    let refusal = match shares::create(&console.server, &caller, &id, &app, asked).await {
        Ok(_) => return responses::see(&page_of(&id, &app, "")),
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return super::failed(&console, &visit, &caller, Nav::Sessions, &fault),
    };
    let read = read_app(&console, &visit, &caller, (&id, &app), None, sent.user).await;
    match read {
        Ok((page, _)) => {
            let action = format!("/sessions/{}/apps/{}/share", page.session.id, page.app.name);
            let refused = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("user");
            let visit = visit.refusing(refused);
            responses::page(&console, &visit, responses::status(&refusal), &page)
        }
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Sessions, &failure),
    }
}

/// `POST /sessions/{id}/apps/{app}/unshare`
async fn unshare(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, app)): Path<(String, String)>,
    Form(sent): Form<ShareForm>,
) -> Response {
    match shares::remove(&console.server, &caller, &id, &app, &sent.share).await {
        Ok(()) => responses::see(&page_of(&id, &app, "")),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Sessions, &failure),
    }
}

/// `GET /apps/{port}?to=`: where the origin of an app sends browsers that it does not know, and the page of its visitors.
async fn at_port(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(port): Path<String>,
    Query(look): Query<AppQuery>,
) -> Response {
    let Some(port) = port.parse::<u16>().ok().filter(|port| *port > 0) else {
        let refusal = rules::refusals::port_invalid();
        return super::failed(&console, &visit, &caller, Nav::Sessions, &refusal.into());
    };
    match apps::at_port(&console.server, &caller, port).await {
        Ok(Some((session, app))) => {
            responses::see(&page_of(&session.to_string(), &app.to_string(), &look.to))
        }
        Ok(None) => shared(&console, &visit, &caller, port, &look.to).await,
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Sessions, &failure),
    }
}

/// The page of an app for its visitors.
async fn shared(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    port: u16,
    to: &str,
) -> Response {
    let to = Some(to).filter(|to| !to.is_empty());
    let streams = &*console.streams;
    let (app, way) = match shares::visit(&console.server, streams, caller, port, to).await {
        Ok(found) => found,
        Err(failure) => return super::failed(console, visit, caller, Nav::Sessions, &failure),
    };
    let title = match visit.text.language == Language::Korean && !app.title_ko.is_empty() {
        true => &app.title_ko,
        false => &app.title,
    };
    let page = SharedAppPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Sessions),
        title: if title.is_empty() { &app.name } else { title }.clone(),
        owner: app.owner.clone(),
        leads_on: way.is_some(),
    };
    let mut response = responses::page(console, visit, StatusCode::OK, &page);
    let refresh = match way {
        Some(way) => format!("0; url={}", address(visit, &way)),
        None => "5".to_owned(),
    };
    look_again(&mut response, Some(refresh));
    response
}

fn page_of(session: &str, app: &str, to: &str) -> String {
    let (session, app) = (responses::encoded(session), responses::encoded(app));
    match to.is_empty() {
        true => format!("/sessions/{session}/apps/{app}"),
        false => format!(
            "/sessions/{session}/apps/{app}?to={}",
            responses::encoded(to)
        ),
    }
}

/// The way into an app from the host that the browser calls.
fn address(visit: &RequestContext, way: &AppWay) -> String {
    let scheme = if visit.secure { "https" } else { "http" };
    match visit.authority.parse::<Authority>() {
        Ok(called) => way.address(scheme, called.host(), called.port_u16()),
        Err(_) => way.address(scheme, "localhost", None),
    }
}
