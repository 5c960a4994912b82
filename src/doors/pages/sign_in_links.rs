//! Sign-in links in the console: `/users/{id}/sign-in-link` makes one and shows it once, `/login/link` is where it leads.
//! Looking at an address ends no link: the button does.

use api::secret::SecretText;
use api::users::SignInLinkView;
use askama::Template;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use rules::refusal::Refusal;
use rules::users::User;
use serde::Deserialize;
use server::access::{self, Caller, SignInFrom, SignInStep};
use server::actions::users::sign_in_link;
use server::{Failure, Server};
use uuid::Uuid;

use super::authentication::{self, PageCaller, PagePeer};
use super::components::{self, Alert, Choice, Markup};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::login::LoginCodePage;
use super::request_context::RequestContext;
use super::responses::encoded;
use super::users::{PATH as USERS, failed};
use super::{PagesContext, guest, layout, responses};
use crate::doors::origin;
use crate::doors::peer::Encrypted;
use crate::doors::text::{Text, codes};

/// Where a link leads.
const DOOR: &str = "/login/link";
/// Minutes that the form offers: from ten minutes to a week.
const OFFERED_MINUTES: [u32; 5] = [10, 60, 24 * 60, 3 * 24 * 60, 7 * 24 * 60];
/// What it offers first.
const USUAL_MINUTES: u32 = 24 * 60;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/sign_in_link.html")]
pub struct SignInLinkPage {
    pub t: Text,
    pub f: PageLayout,
    pub name: String,
    /// Address of the user's page.
    pub back: String,
    /// A link that is shown this once.
    pub made: Option<ShownLink>,
    /// Who made the link that can be used now, and until when; empty for none.
    pub open: String,
    pub lifetimes: Vec<Choice>,
}

/// A link with its picture.
pub struct ShownLink {
    pub link: String,
    /// The link as a picture, as SVG.
    pub picture: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/login_link.html")]
pub struct LoginLinkPage {
    pub t: Text,
    pub f: PageLayout,
    pub code: String,
    /// None: the link is of no use.
    pub linked: Option<LinkedAccount>,
    pub alert: Option<Alert>,
}

/// Whom a link signs in.
pub struct LinkedAccount {
    pub name: String,
    pub until: Markup,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/users/{id}/sign-in-link", get(show).post(make))
        .route("/users/{id}/sign-in-link/revoke", post(revoke))
        .route("/login/link", get(offer).post(enter))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MadeLinkQuery {
    made: String,
}

/// `GET /users/{id}/sign-in-link`
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<MadeLinkQuery>,
) -> Response {
    let made = asked.made.parse::<Uuid>().ok();
    let code = made.and_then(|made| console.made_secrets.take(caller.subject.user, made));
    match read(&console, &visit, &caller, &id, code, USUAL_MINUTES).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    code: Option<SecretText>,
    minutes: u32,
) -> Result<SignInLinkPage, Failure> {
    let t = visit.text;
    let user = sign_in_link::linkable(&console.server, caller, id).await?;
    let open = open_link(&console.server, caller, id).await?;
    Ok(SignInLinkPage {
        t,
        f: layout(console, visit, caller, Nav::Users),
        back: format!("{USERS}/{}", user.id),
        made: code.map(|code| shown_link(visit, &code)),
        open: open.map_or_else(String::new, |link| {
            t.sign_in_link_open_told(link.actor, visit.clock.date(link.expires_at))
        }),
        lifetimes: OFFERED_MINUTES
            .map(|one| Choice::new(one.to_string(), lasting(t, one), one == minutes))
            .into(),
        name: user.name.to_string(),
    })
}

/// The link of a user that can be used now.
async fn open_link(
    server: &Server,
    caller: &Caller,
    id: &str,
) -> Result<Option<SignInLinkView>, Failure> {
    match sign_in_link::show(server, caller, id).await {
        Ok(link) => Ok(Some(link)),
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::SIGN_IN_LINK_NOT_FOUND => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Whether a link can be made for an account, as far as its page tells.
pub(super) fn may_have_one(caller: &Caller, user: &User) -> bool {
    user.id != caller.subject.user && user.source.is_local() && !user.suspended
}

/// Where a link for an account is made.
pub(super) fn address(user: &User) -> String {
    format!("{USERS}/{}/sign-in-link", user.id)
}

/// `24 h`, `3 d`
fn lasting(t: Text, minutes: u32) -> String {
    let (minutes, day) = (u64::from(minutes), 24 * 60);
    match minutes > day {
        true => t.common_days(minutes / day),
        false => components::exact_span(t, minutes * 60),
    }
}

fn shown_link(visit: &RequestContext, code: &SecretText) -> ShownLink {
    let scheme = if visit.secure { "https" } else { "http" };
    let link = format!(
        "{scheme}://{}{DOOR}?code={}",
        visit.authority,
        code.reveal()
    );
    let picture = super::qr::picture(&link);
    ShownLink { link, picture }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LifetimeForm {
    minutes: String,
}

/// `POST /users/{id}/sign-in-link`
async fn make(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(form): Form<LifetimeForm>,
) -> Response {
    // What is no number of minutes is refused as too few.
    let minutes = match form.minutes.as_str() {
        "" => None,
        text => Some(text.parse().unwrap_or(0)),
    };
    let refusal = match sign_in_link::make(&console.server, &caller, &id, minutes).await {
        Ok(made) => {
            // Of this page alone: it is known by no other name.
            let shown = Uuid::now_v7();
            let code = SecretText::new(made.code);
            console.made_secrets.keep(caller.subject.user, shown, code);
            let id = encoded(&id);
            return responses::see(&format!("{USERS}/{id}/sign-in-link?made={shown}"));
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return failed(&console, &visit, &caller, &fault),
    };
    let refusal = match refusal.pointer.as_deref() {
        Some("/valid_minutes") => refusal.at("/minutes"),
        _ => return failed(&console, &visit, &caller, &refusal.into()),
    };
    let action = format!("{USERS}/{id}/sign-in-link");
    let visit = visit.refusing(RefusedForm::new(visit.text, &action, &refusal));
    match read(&console, &visit, &caller, &id, None, USUAL_MINUTES).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /users/{id}/sign-in-link/revoke`
async fn revoke(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match sign_in_link::revoke(&console.server, &caller, &id).await {
        Ok(user) => {
            let place = format!("{USERS}/{}", encoded(user.name.as_str()));
            responses::see_with(&place, "link-revoked", user.name.as_str())
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LinkCode {
    code: String,
}

/// `GET /login/link?code=`: whom the link signs in, and the button.
async fn offer(
    State(console): State<PagesContext>,
    visit: RequestContext,
    Query(asked): Query<LinkCode>,
) -> Response {
    door(&console, &visit, asked.code, None)
}

/// `POST /login/link`
async fn enter(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    Form(sent): Form<LinkCode>,
) -> Response {
    let encrypted = encrypted.map(|Extension(encrypted)| encrypted);
    let from = SignInFrom {
        device: origin::device(&headers, encrypted),
        agent: origin::agent(&headers),
        ..peer.address().into()
    };
    match access::begin_by_link(&console.server, &sent.code, from).await {
        Ok(SignInStep::Done(signed_in)) => {
            authentication::with_sign_in(&console, &visit, responses::see("/"), &signed_in)
        }
        Ok(SignInStep::CodeNeeded(ticket)) => {
            let page = LoginCodePage {
                t: visit.text,
                f: guest(&console, &visit),
                ticket,
                next: String::new(),
                alert: None,
                refused: false,
            };
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(Failure::Refusal(refusal)) => door(&console, &visit, sent.code, Some(&refusal)),
        Err(fault) => responses::failure(&console, &visit, None, &fault),
    }
}

/// The page of a link, with why it was refused; without its button where it is of no use any more.
fn door(
    console: &PagesContext,
    visit: &RequestContext,
    code: String,
    refused: Option<&Refusal>,
) -> Response {
    let (linked, gone) = match access::linked_user(&console.server, &code) {
        Ok(linked) => (Some(linked), None),
        Err(Failure::Refusal(refusal)) => (None, Some(refusal)),
        Err(fault) => return responses::failure(console, visit, None, &fault),
    };
    let why = refused.or(gone.as_ref());
    let page = LoginLinkPage {
        t: visit.text,
        f: guest(console, visit),
        code,
        linked: linked.map(|linked| LinkedAccount {
            name: linked.name,
            until: visit.clock.element(linked.expires_at),
        }),
        alert: why.map(|refusal| Alert::warning(codes::refusal(visit.text, refusal))),
    };
    let status = why.map_or(StatusCode::OK, responses::status);
    responses::page(console, visit, status, &page)
}
