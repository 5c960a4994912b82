//! The commands on domains, projects, their members, and the roles of users.

use api::tenancy::{DomainView, ProjectView};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::args::{DomainCommand, ProjectCommand, RoleCommand};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print, values};

pub(super) async fn domain(
    client: &HttpClient,
    view: &OutputStyle,
    request: DomainCommand,
) -> Result<u8, CliError> {
    match request {
        DomainCommand::Ls => {
            let body = client.get("/api/v1/domains").await?;
            print(&view.list(&body, columns::DOMAINS)?);
        }
        DomainCommand::Get { domain } => {
            let path = format!("/api/v1/domains/{}", encoded(&domain));
            print(&view.one(&client.get(&path).await?, columns::DOMAINS)?);
        }
        DomainCommand::Create { name, title } => {
            let body = json!({"name": name, "title": title.unwrap_or_default()});
            let made = client.send::<DomainView>("/api/v1/domains", &body).await?;
            print(&view.said(&made.body, &made.read.name)?);
        }
        DomainCommand::Set { domain, title } => {
            let path = format!("/api/v1/domains/{}", encoded(&domain));
            let changed = patch(client, &path, &json!({"title": title}), "*".to_owned()).await?;
            print(&view.said(&changed, &format!("{domain}  {title}"))?);
        }
    }
    Ok(0)
}

pub(super) async fn project(
    client: &HttpClient,
    view: &OutputStyle,
    request: ProjectCommand,
) -> Result<u8, CliError> {
    match request {
        ProjectCommand::Ls => {
            let body = client.get("/api/v1/projects").await?;
            print(&view.list(&body, columns::PROJECTS)?);
        }
        ProjectCommand::Get { project } => {
            let body = client.get(&project_path(&project)).await?;
            print(&view.one(&body, columns::PROJECTS)?);
        }
        ProjectCommand::Create {
            name,
            title,
            domain,
        } => {
            let mut body = json!({"name": name, "title": title.unwrap_or_default()});
            if let Some(domain) = domain {
                body["domain"] = domain.into();
            }
            let made = client
                .send::<ProjectView>("/api/v1/projects", &body)
                .await?;
            let told = format!("{}/{}", made.read.domain, made.read.name);
            print(&view.said(&made.body, &told)?);
        }
        ProjectCommand::Set { project, title } => {
            let changed = change(client, &project, &json!({"title": title})).await?;
            print(&view.said(&changed, &format!("{project}  {title}"))?);
        }
        ProjectCommand::Archive { project, undo } => {
            let state = if undo { "active" } else { "archived" };
            let changed = change(client, &project, &json!({"state": state})).await?;
            print(&view.said(&changed, &format!("{project}  {state}"))?);
        }
        ProjectCommand::Members { project } => {
            let path = format!("{}/members", project_path(&project));
            let body = client.get(&path).await?;
            print(&view.list(&body, columns::MEMBERS)?);
        }
        ProjectCommand::Add {
            project,
            users,
            role,
            expires,
        } => {
            for user in users {
                let path = format!("{}/members/{}", project_path(&project), encoded(&user));
                let body = with_end(json!({"role": role}), expires.as_deref())?;
                let set = client.call(Method::PUT, &path, Extra::json(&body)).await?;
                let set = set.json()?;
                print(&view.said(&set, &format!("{user}  {role}"))?);
            }
        }
        ProjectCommand::Quota { project, gpu_hours } => {
            let path = format!("{}/reservation-quota", project_path(&project));
            let body = match gpu_hours {
                Some(hours) => {
                    let body = json!({"gpu_hours": hours});
                    let set = client.call(Method::PUT, &path, Extra::json(&body)).await?;
                    set.json()?
                }
                None => client.get(&path).await?,
            };
            print(&view.one(&body, columns::RESERVATION_QUOTA)?);
        }
        ProjectCommand::Rm { project, users } => {
            for user in users {
                let path = format!("{}/members/{}", project_path(&project), encoded(&user));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                print(&view.said(&json!({"name": user}), &format!("{user}  removed"))?);
            }
        }
    }
    Ok(0)
}

pub(super) async fn role(
    client: &HttpClient,
    view: &OutputStyle,
    request: RoleCommand,
) -> Result<u8, CliError> {
    match request {
        RoleCommand::Ls { user } => {
            let body = client.get(&grants_path(&user)).await?;
            print(&view.list(&body, columns::GRANTS)?);
        }
        RoleCommand::Grant {
            user,
            role,
            domain,
            expires,
        } => {
            let mut body = Map::new();
            body.insert("role".into(), role.clone().into());
            if let Some(domain) = &domain {
                body.insert("domain".into(), domain.clone().into());
            }
            let body = with_end(Value::Object(body), expires.as_deref())?;
            let path = grants_path(&user);
            let held = client.call(Method::PUT, &path, Extra::json(&body)).await?;
            let place = domain.as_deref().unwrap_or("site");
            print(&view.said(&held.json()?, &format!("{user}  {role}  {place}"))?);
        }
        RoleCommand::Revoke { user, role, domain } => {
            let mut path = format!("{}?role={}", grants_path(&user), encoded(&role));
            if let Some(domain) = &domain {
                path.push_str(&format!("&domain={}", encoded(domain)));
            }
            let held = client.call(Method::DELETE, &path, Extra::default()).await?;
            print(&view.said(&held.json()?, &format!("{user}  {role}  revoked"))?);
        }
    }
    Ok(0)
}

/// Names a project in a path: `DOMAIN/NAME` stays one part.
fn project_path(project: &str) -> String {
    format!("/api/v1/projects/{}", encoded(project))
}

fn grants_path(user: &str) -> String {
    format!("/api/v1/users/{}/grants", encoded(user))
}

fn with_end(mut body: Value, expires: Option<&str>) -> Result<Value, CliError> {
    if let Some(expires) = expires {
        let end = super::now().plus_seconds(values::seconds(expires)?);
        body["expires_at"] = end.to_string().into();
    }
    Ok(body)
}

/// Changes the version that is there now.
async fn change(client: &HttpClient, project: &str, body: &Value) -> Result<Value, CliError> {
    let path = project_path(project);
    let now = client.call(Method::GET, &path, Extra::default()).await?;
    let tag = now.header("etag").unwrap_or("*").to_owned();
    patch(client, &path, body, tag).await
}

async fn patch(
    client: &HttpClient,
    path: &str,
    body: &Value,
    tag: String,
) -> Result<Value, CliError> {
    let mut extra = Extra::json(body).header("If-Match", tag);
    extra.content_type = Some("application/merge-patch+json");
    client.call(Method::PATCH, path, extra).await?.json()
}
