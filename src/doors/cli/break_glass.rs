//! The commands on looks into what is another user's.

use api::break_glass::BreakGlassView;
use hyper::Method;
use serde_json::json;

use super::answer::Answer;
use super::args::{BreakGlassCommand, BreakGlassReason};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/break-glass";

pub(super) async fn break_glass(
    client: &HttpClient,
    view: &OutputStyle,
    request: BreakGlassCommand,
) -> Result<u8, CliError> {
    match request {
        BreakGlassCommand::Ls => print(&view.list(&client.get(PATH).await?, columns::BREAK_GLASS)?),
        BreakGlassCommand::Session { session, why } => {
            let path = format!("/api/v1/sessions/{}/break-glass", encoded(&session));
            open(client, view, &path, &why).await?;
        }
        BreakGlassCommand::Folder { folder, why } => {
            let path = format!("/api/v1/folders/{}/break-glass", encoded(&folder));
            open(client, view, &path, &why).await?;
        }
        BreakGlassCommand::End { looks } => {
            for look in looks {
                let path = format!("{PATH}/{}", encoded(&look));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                print(&view.said(&json!({"id": look}), &format!("{look}  ended"))?);
            }
        }
    }
    Ok(0)
}

async fn open(
    client: &HttpClient,
    view: &OutputStyle,
    path: &str,
    why: &BreakGlassReason,
) -> Result<(), CliError> {
    let body = json!({"reason": why.reason, "minutes": why.minutes});
    let opened = client.call(Method::POST, path, Extra::json(&body)).await?;
    let opened: Answer<BreakGlassView> = Answer::of(opened.json()?)?;
    let told = format!("{}  open until {}", opened.read.name, opened.read.ends_at);
    print(&view.said(&opened.body, &told)?);
    Ok(())
}
