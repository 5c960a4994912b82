//! Giving a user a role on a domain or the site, and taking one away after a question.

use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use rules::grants::GrantRole;
use rules::permissions::Permission;
use rules::refusals;
use serde::Deserialize;
use server::Failure;
use server::actions::{rosters, tenancy, users};

use super::authentication::PageCaller;
use super::dialog::{self, DialogForm};
use super::layout::Nav;
use super::projects::role_name;
use super::request_context::RequestContext;
use super::responses::encoded;
use super::user::refused;
use super::users::{PATH, failed, question};
use super::{PagesContext, responses};

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/users/{id}/grants", post(give))
        .route("/users/{id}/grants/revoke", get(ask).post(revoke))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RoleForm {
    role: String,
    domain: String,
    /// A date, to its last instant; empty: for good.
    until: String,
}

impl RoleForm {
    fn domain(&self) -> Option<&str> {
        Some(self.domain.trim()).filter(|name| !name.is_empty())
    }
}

/// `POST /users/{id}/grants`
async fn give(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<RoleForm>,
) -> Response {
    let server = &console.server;
    let given = async {
        let role = GrantRole::parse(&sent.role)
            .ok_or_else(|| refusals::grant_role_of_domain().at("/role"))?;
        let until = match sent.until.trim() {
            "" => None,
            text => Some(
                rosters::last_instant(text, &caller.time_zone, server.clock().now())
                    .map_err(|refusal| refusal.at("/until"))?,
            ),
        };
        tenancy::grant(server, &caller, &id, role, sent.domain(), until).await?;
        users::get(server, &caller, &id).await
    };
    match given.await {
        Ok(user) => {
            let place = format!("{PATH}/{}", encoded(user.name.as_str()));
            responses::see_with(&place, "role-given", user.name.as_str())
        }
        Err(Failure::Refusal(refusal)) => {
            let typed = [
                ("role", sent.role.as_str()),
                ("domain", &sent.domain),
                ("until", &sent.until),
            ];
            let action = format!("{PATH}/{id}/grants");
            refused(
                &console,
                &visit,
                &caller,
                &id,
                (&action, "role"),
                &typed,
                refusal,
            )
            .await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `GET /users/{id}/grants/revoke?role=&domain=`: what taking it away means, and the button.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<RoleForm>,
) -> Response {
    let t = visit.text;
    let user = match users::get(&console.server, &caller, &id).await {
        Ok(user) => user,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let role = GrantRole::parse(&asked.role).unwrap_or(GrantRole::Auditor);
    let title = t.users_roles_revoke_title(role_name(t, role), user.name.as_str());
    let mut page = question(
        &console,
        &visit,
        &caller,
        title,
        t.users_roles_revoke_lead(),
    );
    page.form = caller
        .subject
        .can(Permission::UsersWrite)
        .then(|| DialogForm {
            action: format!("{PATH}/{}/grants/revoke", user.id),
            fields: vec![
                ("role", role.word().to_owned()),
                ("domain", asked.domain.clone()),
            ],
            icon: "x",
            go: t.users_roles_revoke().to_owned(),
            ends: true,
            force: None,
        });
    page.back = format!("{PATH}/{}", encoded(user.name.as_str()));
    dialog::answer(&console, &visit, Nav::Users, page)
}

async fn revoke(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<RoleForm>,
) -> Response {
    let server = &console.server;
    let taken = async {
        let role = GrantRole::parse(&sent.role);
        tenancy::revoke(server, &caller, &id, role, sent.domain()).await?;
        users::get(server, &caller, &id).await
    };
    match taken.await {
        Ok(user) => {
            let place = format!("{PATH}/{}", encoded(user.name.as_str()));
            responses::see_with(&place, "role-taken", user.name.as_str())
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
