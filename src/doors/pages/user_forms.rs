//! Adding a user, setting a password, changing a role and removing an account: the forms and questions of `/users`
//! for administrators. What is refused stands at its field; passwords are never sent back.

use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use rules::permissions::{self, Permission};
use rules::users::{Role, User};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::users::{self, TokensAfterReset};

use super::authentication::PageCaller;
use super::components::{self, Choice, FormFieldError};
use super::dialog::{self, DialogForm};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::setup::MIN_PASSWORD;
use super::users::{PATH, failed, question, role_name};
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const CREATE: &str = "/users/new";

/// The form of a new account, or of an account's new password.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/user_form.html")]
pub struct UserFormPage {
    pub t: Text,
    pub f: PageLayout,
    pub title: String,
    pub lead: String,
    pub action: String,
    pub go: String,
    pub shortest: usize,
    /// The account whose password is set; None makes a new one.
    pub account: Option<String>,
    pub name: String,
    /// True where nothing was refused: then the first field has the focus, else the first fault.
    pub focus: bool,
    pub roles: Vec<Choice>,
    pub keeps_tokens: bool,
    /// Where Cancel leads: the page of the account, or the list.
    pub back: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route(CREATE, get(show_new).post(create))
        .route(
            "/users/{id}/password",
            get(show_password).post(set_password),
        )
        .route(
            "/users/{id}/profile",
            axum::routing::post(super::user::set_profile),
        )
        .route("/users/{id}/role", get(ask_role).post(set_role))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewUserForm {
    name: String,
    role: String,
    password: String,
    again: String,
}

/// Shows the form for a new account. Refused to callers who may not add users.
async fn show_new(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    // Asking for the list is what proves the right to see this form; the post proves its own.
    if let Err(failure) = users::list(&console.server, &caller).await {
        return failed(&console, &visit, &caller, &failure);
    }
    let page = new_page(&console, &visit, &caller, &NewUserForm::default());
    responses::page(&console, &visit, StatusCode::OK, &page)
}

fn new_page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    typed: &NewUserForm,
) -> UserFormPage {
    let t = visit.text;
    let role = Role::parse(&typed.role).unwrap_or(Role::User);
    UserFormPage {
        t,
        f: layout(console, visit, caller, Nav::Users),
        title: t.users_add().to_owned(),
        lead: t.users_add_lead().to_owned(),
        action: CREATE.to_owned(),
        go: t.users_add().to_owned(),
        shortest: console.server.settings().password_length as usize,
        account: None,
        name: typed.name.clone(),
        focus: visit.refused.is_none(),
        roles: [Role::User, Role::Administrator]
            .map(|one| Choice::new(one.word(), role_name(t, one), one.word() == role.word()))
            .into(),
        keeps_tokens: false,
        back: PATH.to_owned(),
    }
}

/// What can be said of the two passwords before anything is tried.
fn password_faults(t: Text, password: &str, again: &str) -> Vec<FormFieldError> {
    let mut faults = Vec::new();
    if password.chars().count() < MIN_PASSWORD {
        let short = t.setup_password_short().to_owned();
        faults.push(FormFieldError::new("password", short));
    }
    if password != again {
        faults.push(FormFieldError::new("again", t.setup_differ().to_owned()));
    }
    faults
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(typed): Form<NewUserForm>,
) -> Response {
    let t = visit.text;
    let mut faults = Vec::new();
    if typed.name.trim().is_empty() {
        faults.push(FormFieldError::new(
            "name",
            t.login_name_missing().to_owned(),
        ));
    }
    faults.extend(password_faults(t, &typed.password, &typed.again));
    let refused = |form: RefusedForm, status: StatusCode| {
        let visit = visit.refusing(form);
        let page = new_page(&console, &visit, &caller, &typed);
        responses::page(&console, &visit, status, &page)
    };
    // Who may not add users is told that, whatever was typed.
    if !faults.is_empty() && caller.subject.can(Permission::UsersWrite) {
        let form = RefusedForm::with_faults(CREATE, faults);
        return refused(form, StatusCode::UNPROCESSABLE_ENTITY);
    }
    let role = Role::parse(&typed.role).unwrap_or(Role::User);
    let password = typed.password.clone();
    match users::create(&console.server, &caller, &typed.name, role, password).await {
        Ok(user) => responses::see_with(PATH, "user-added", user.name.as_str()),
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::UsersWrite) => {
            let form = RefusedForm::new(t, CREATE, &refusal).otherwise_at("name");
            refused(form, responses::status(&refusal))
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn password_page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    user: &User,
    keeps_tokens: bool,
) -> UserFormPage {
    let t = visit.text;
    UserFormPage {
        t,
        f: layout(console, visit, caller, Nav::Users),
        title: t.users_password_title(user.name.as_str()),
        lead: t.users_password_lead().to_owned(),
        action: format!("{PATH}/{}/password", user.id),
        go: t.users_password_go().to_owned(),
        shortest: console.server.settings().password_length as usize,
        account: Some(user.name.to_string()),
        name: String::new(),
        focus: false,
        roles: Vec::new(),
        keeps_tokens,
        back: format!("{PATH}/{}", user.id),
    }
}

async fn show_password(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match users::get(&console.server, &caller, &id).await {
        Ok(user) if user.id == caller.subject.user => responses::see("/me"),
        Ok(user) => {
            let page = password_page(&console, &visit, &caller, &user, false);
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewPasswordForm {
    password: String,
    again: String,
    keep_tokens: String,
}

async fn set_password(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(typed): Form<NewPasswordForm>,
) -> Response {
    let t = visit.text;
    let user = match users::get(&console.server, &caller, &id).await {
        Ok(user) => user,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let keeps = !typed.keep_tokens.is_empty();
    let action = format!("{PATH}/{}/password", user.id);
    let refused = |form: RefusedForm, status: StatusCode| {
        let visit = visit.refusing(form);
        let page = password_page(&console, &visit, &caller, &user, keeps);
        responses::page(&console, &visit, status, &page)
    };
    let faults = password_faults(t, &typed.password, &typed.again);
    if !faults.is_empty() {
        let form = RefusedForm::with_faults(&action, faults);
        return refused(form, StatusCode::UNPROCESSABLE_ENTITY);
    }
    let tokens = match keeps {
        true => TokensAfterReset::Kept,
        false => TokensAfterReset::Revoked,
    };
    match users::set_password(&console.server, &caller, &id, typed.password, tokens).await {
        Ok(user) => responses::see_with(PATH, "user-password", user.name.as_str()),
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(t, &action, &refusal).otherwise_at("password");
            refused(form, responses::status(&refusal))
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The role that an account does not have.
fn other_role(user: &User) -> Role {
    match permissions::is_administrator(user.role) {
        true => Role::User,
        false => Role::Administrator,
    }
}

/// `GET /users/{id}/role`: what the other role would mean.
async fn ask_role(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let user = match users::get(&console.server, &caller, &id).await {
        Ok(user) => user,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let role = other_role(&user);
    let (title, lead, go) = match role {
        Role::Administrator => (
            t.users_promote_title(user.name.as_str()),
            t.users_promote_lead(),
            t.users_promote(),
        ),
        Role::User => (
            t.users_demote_title(user.name.as_str()),
            t.users_demote_lead(),
            t.users_demote(),
        ),
    };
    let mut page = question(&console, &visit, &caller, title, lead);
    page.back = format!("{PATH}/{}", user.id);
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/role", user.id),
        // What was asked about is what is done, also where the role changed in between.
        fields: vec![("role", role.word().to_owned())],
        icon: "users",
        go: go.to_owned(),
        ends: false,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Users, page)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RoleForm {
    role: String,
}

async fn set_role(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(typed): Form<RoleForm>,
) -> Response {
    // A form of this page names one of the two; anything else changes nothing.
    let Some(role) = Role::parse(&typed.role) else {
        return responses::see(PATH);
    };
    let notice = match permissions::is_administrator(role) {
        true => "user-promoted",
        false => "user-demoted",
    };
    match users::set_role(&console.server, &caller, &id, role, None).await {
        Ok(user) => responses::see_with(PATH, notice, user.name.as_str()),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
