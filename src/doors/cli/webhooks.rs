//! The commands on webhooks.

use api::webhooks::{MadeWebhook, WebhookTrial};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::args::WebhookCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/webhooks";

pub(super) async fn webhook(
    client: &HttpClient,
    view: &OutputStyle,
    request: WebhookCommand,
) -> Result<u8, CliError> {
    match request {
        WebhookCommand::Ls => {
            let body = client.get(PATH).await?;
            print(&view.list(&body, columns::WEBHOOKS)?);
        }
        WebhookCommand::Get { webhook } => {
            let body = client.get(&path(&webhook)).await?;
            print(&view.one(&body, columns::WEBHOOKS)?);
        }
        WebhookCommand::Create {
            name,
            address,
            kinds,
        } => {
            let body = json!({"name": name, "address": address, "kinds": kinds});
            let made = client.send::<MadeWebhook>(PATH, &body).await?;
            let said = format!("{name}  secret {}", made.read.secret);
            print(&view.said(&made.body, &said)?);
        }
        WebhookCommand::Set {
            webhook,
            address,
            kinds,
            active,
        } => {
            let path = path(&webhook);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let mut patch = Map::new();
            if let Some(address) = address {
                patch.insert("address".to_owned(), address.into());
            }
            if !kinds.is_empty() {
                patch.insert("kinds".to_owned(), kinds.into());
            }
            if let Some(word) = active {
                patch.insert("active".to_owned(), (word == "yes").into());
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::WEBHOOKS)?);
        }
        WebhookCommand::Rm { webhooks } => {
            for name in webhooks {
                client
                    .call(Method::DELETE, &path(&name), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": name}), &format!("{name}  removed"))?);
            }
        }
        WebhookCommand::Test { webhook } => {
            let path = format!("{}/test", path(&webhook));
            let answer = client.send::<WebhookTrial>(&path, &json!({})).await?;
            let said = match answer.read.works {
                true => format!("{webhook}  works: {}", answer.read.answer),
                false => format!("{webhook}  {}", answer.read.problem),
            };
            print(&view.said(&answer.body, &said)?);
            return Ok(u8::from(!answer.read.works));
        }
    }
    Ok(0)
}

fn path(webhook: &str) -> String {
    format!("{PATH}/{}", encoded(webhook))
}
