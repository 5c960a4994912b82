//! The commands on announcements.

use api::announcements::AnnouncementView;
use hyper::Method;
use serde_json::{Map, Value, json};

use super::args::AnnouncementCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print, values};

const PATH: &str = "/api/v1/announcements";

pub(super) async fn announcement(
    client: &HttpClient,
    view: &OutputStyle,
    request: AnnouncementCommand,
) -> Result<u8, CliError> {
    let now = super::now();
    let time = |text: &str, ends| values::ahead(text, ends, now).map(|at| json!(at));
    match request {
        AnnouncementCommand::Ls { current } => {
            let body = match current {
                true => client.get(&format!("{PATH}/current")).await?,
                false => client.get(PATH).await?,
            };
            print(&view.list(&body, columns::ANNOUNCEMENTS)?);
        }
        AnnouncementCommand::Get { announcement } => {
            let body = client.get(&path(&announcement)).await?;
            print(&view.one(&body, columns::ANNOUNCEMENTS)?);
        }
        AnnouncementCommand::Create {
            text,
            korean,
            level,
            domain,
            from,
            until,
            before_sign_in,
        } => {
            let body = json!({
                "text": text,
                "text_ko": korean,
                "level": level,
                "domain": domain,
                "from": from.as_deref().map(|text| time(text, false)).transpose()?,
                "until": until.as_deref().map(|text| time(text, true)).transpose()?,
                "before_sign_in": before_sign_in,
            });
            let made = client.send::<AnnouncementView>(PATH, &body).await?;
            print(&view.said(&made.body, &made.read.id.to_string())?);
        }
        AnnouncementCommand::Set {
            announcement,
            text,
            korean,
            level,
            from,
            until,
            before_sign_in,
        } => {
            let path = path(&announcement);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let mut patch = Map::new();
            for (name, value) in [("text", text), ("text_ko", korean), ("level", level)] {
                if let Some(value) = value {
                    patch.insert(name.to_owned(), value.into());
                }
            }
            if let Some(from) = from {
                patch.insert("from".to_owned(), time(&from, false)?);
            }
            if let Some(until) = until {
                let until = match until.as_str() {
                    "none" => Value::Null,
                    until => time(until, true)?,
                };
                patch.insert("until".to_owned(), until);
            }
            if let Some(word) = before_sign_in {
                patch.insert("before_sign_in".to_owned(), (word == "yes").into());
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::ANNOUNCEMENTS)?);
        }
        AnnouncementCommand::Rm { announcements } => {
            for id in announcements {
                client
                    .call(Method::DELETE, &path(&id), Extra::default())
                    .await?;
                print(&view.said(&json!({"id": id}), &format!("{id}  removed"))?);
            }
        }
    }
    Ok(0)
}

fn path(announcement: &str) -> String {
    format!("{PATH}/{}", encoded(announcement))
}
