//! The commands on resource groups.

use api::resource_groups::ResourceGroupView;
use hyper::Method;
use serde_json::{Map, Value, json};

use super::args::{GroupCommand, GroupFlags};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/resource-groups";

pub(super) async fn group(
    client: &HttpClient,
    view: &OutputStyle,
    request: GroupCommand,
) -> Result<u8, CliError> {
    match request {
        GroupCommand::Ls => {
            print(&view.list(&client.get(PATH).await?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Get { group } => {
            let body = client.get(&path(&group)).await?;
            print(&view.one(&body, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Add { name, flags } => {
            let mut body = said(&flags);
            body.insert("name".to_owned(), name.into());
            let made = client
                .send::<ResourceGroupView>(PATH, &Value::Object(body))
                .await?;
            print(&view.said(&made.body, made.read.name.as_str())?);
        }
        GroupCommand::Edit { group, name, flags } => {
            let path = path(&group);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let mut patch = said(&flags);
            if let Some(name) = name {
                patch.insert("name".to_owned(), name.into());
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Nodes { group, nodes } => {
            let path = format!("{}/nodes", path(&group));
            let body = json!({ "nodes": nodes });
            let changed = client.call(Method::PUT, &path, Extra::json(&body)).await?;
            print(&view.one(&changed.json()?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Access {
            group,
            everybody,
            domain,
            project,
            user,
        } => {
            let path = format!("{}/access", path(&group));
            let body = json!({
                "everybody": everybody, "domains": domain, "projects": project, "users": user,
            });
            let changed = client.call(Method::PUT, &path, Extra::json(&body)).await?;
            print(&view.one(&changed.json()?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Rm { groups } => {
            for group in groups {
                client
                    .call(Method::DELETE, &path(&group), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": group}), &format!("{group}  removed"))?);
            }
        }
    }
    Ok(0)
}

fn path(group: &str) -> String {
    format!("{PATH}/{}", encoded(group))
}

/// The fields that the flags name.
fn said(flags: &GroupFlags) -> Map<String, Value> {
    let mut body = Map::new();
    if let Some(title) = &flags.title {
        body.insert("title".to_owned(), title.clone().into());
    }
    if !flags.kind.is_empty() {
        body.insert("kinds".to_owned(), flags.kind.clone().into());
    }
    match flags.spreading.as_deref() {
        None => {}
        Some("settings") => {
            body.insert("spreading".to_owned(), Value::Null);
        }
        Some(word) => {
            body.insert("spreading".to_owned(), word.into());
        }
    }
    if let Some(mode) = &flags.preemption {
        body.insert("preemption".to_owned(), mode.clone().into());
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_the_body_of_a_group() {
        let flags = GroupFlags {
            title: Some("Lab".to_owned()),
            kind: vec!["batch".to_owned()],
            spreading: Some("settings".to_owned()),
            preemption: Some("priority".to_owned()),
        };
        assert_eq!(
            Value::Object(said(&flags)),
            json!({"title": "Lab", "kinds": ["batch"], "spreading": null, "preemption": "priority"})
        );
        assert!(said(&GroupFlags::default()).is_empty(), "the rest stays");
    }
}
