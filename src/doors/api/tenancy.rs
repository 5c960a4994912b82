//! Domains, projects, members and roles over REST.

use api::tenancy::{
    DomainPatchBody, GrantBody, MemberBody, NewDomainBody, NewProjectBody, ProjectPatchBody,
};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use rules::grants::GrantRole;
use serde::Deserialize;
use server::actions::tenancy;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list_domains(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, tenancy::domains(&api.server, &caller).await?)
}

pub(super) async fn create_domain(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewDomainBody>,
) -> ApiResult {
    let NewDomainBody { name, title } = sent.value;
    let made = tenancy::create_domain(&api.server, &caller, &name, &title, sent.key).await?;
    let location = format!("/api/v1/domains/{}", made.value.id);
    let response = responses::made(&made.value, &location)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get_domain(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let domain = tenancy::domain(&api.server, &caller, &id).await?;
    responses::one(&headers, &domain, domain.generation)
}

pub(super) async fn change_domain(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<DomainPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let title = &sent.value.title;
    let domain = tenancy::change_domain(&api.server, &caller, &id, title, seen).await?;
    responses::changed(&domain, domain.generation)
}

pub(super) async fn list_projects(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, tenancy::projects(&api.server, &caller).await?)
}

pub(super) async fn create_project(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewProjectBody>,
) -> ApiResult {
    let NewProjectBody {
        domain,
        name,
        title,
    } = sent.value;
    let domain = domain.as_deref();
    let made =
        tenancy::create_project(&api.server, &caller, domain, &name, &title, sent.key).await?;
    let location = format!("/api/v1/projects/{}", made.value.id);
    let response = responses::made(&made.value, &location)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get_project(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let project = tenancy::project(&api.server, &caller, &id).await?;
    responses::one(&headers, &project, project.generation)
}

pub(super) async fn change_project(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<ProjectPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let project = tenancy::change_project(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&project, project.generation)
}

pub(super) async fn list_members(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, tenancy::members(&api.server, &caller, &id).await?)
}

pub(super) async fn put_member(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, user)): Path<(String, String)>,
    headers: HeaderMap,
    sent: JsonBody<MemberBody>,
) -> ApiResult {
    let MemberBody { role, expires_at } = sent.value;
    let member = tenancy::put_member(&api.server, &caller, &id, &user, role, expires_at).await?;
    responses::whole(&headers, &member)
}

pub(super) async fn remove_member(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, user)): Path<(String, String)>,
) -> ApiResult {
    tenancy::remove_member(&api.server, &caller, &id, &user).await?;
    responses::nothing()
}

pub(super) async fn list_grants(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, tenancy::grants(&api.server, &caller, &id).await?)
}

pub(super) async fn put_grant(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<GrantBody>,
) -> ApiResult {
    let GrantBody {
        role,
        domain,
        expires_at,
    } = sent.value;
    let domain = domain.as_deref();
    let held = tenancy::grant(&api.server, &caller, &id, role, domain, expires_at).await?;
    responses::all(&headers, held)
}

/// Which role of a user ends.
#[derive(Deserialize)]
pub(super) struct RevokedRole {
    role: Option<String>,
    domain: Option<String>,
}

pub(super) async fn revoke_grant(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    Query(which): Query<RevokedRole>,
    headers: HeaderMap,
) -> ApiResult {
    let role = which.role.as_deref().and_then(GrantRole::parse);
    let domain = which.domain.as_deref();
    let held = tenancy::revoke(&api.server, &caller, &id, role, domain).await?;
    responses::all(&headers, held)
}
