//! The commands on apps of a session.

use std::time::{Duration, Instant};

use api::apps::{AppShareView, AppState, AppView, OpenedApp};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::args::{AppCommand, AppOfSession};
use super::client::{Extra, HttpClient, encoded};
use super::error::{CliError, FAILED, TIMEOUT};
use super::output::OutputStyle;
use super::{columns, print, values};

/// How often an app that starts is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long one is waited for. Longer than any app may take by its description.
const READY_TIMEOUT: Duration = Duration::from_secs(660);

pub(super) async fn app(
    client: &HttpClient,
    view: &OutputStyle,
    request: AppCommand,
) -> Result<u8, CliError> {
    match request {
        AppCommand::Ls { session } => {
            print(&view.list(&client.get(&path(&session)).await?, columns::APPS)?);
        }
        AppCommand::Get(of) => {
            let body = client.get(&path_of(&of)).await?;
            print(&view.one(&body, columns::APPS)?);
        }
        AppCommand::Open(of) => open(client, view, &of).await?,
        AppCommand::Shares(of) => {
            let path = format!("{}/shares", path_of(&of));
            print(&view.list(&client.get(&path).await?, columns::APP_SHARES)?);
        }
        AppCommand::Share { app, user, until } => {
            let mut body = Map::new();
            if let Some(user) = user {
                body.insert("user".to_owned(), user.into());
            }
            if let Some(until) = until {
                let until = values::ahead(&until, true, view.now)?;
                body.insert("until".to_owned(), json!(until));
            }
            let path = format!("{}/shares", path_of(&app));
            let body = Value::Object(body);
            let answer = client.call(Method::POST, &path, Extra::json(&body)).await?;
            let made = Answer::<AppShareView>::of(answer.json()?)?;
            print(&view.said(&made.body, &made.read.id.to_string())?);
        }
        AppCommand::Unshare { app, shares } => {
            for share in shares {
                let path = format!("{}/shares/{}", path_of(&app), encoded(&share));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                let said = format!("{share}  taken back");
                print(&view.said(&json!({"id": share}), &said)?);
            }
        }
    }
    Ok(0)
}

/// Opens an app, waits until it is ready, and prints where a browser enters it.
async fn open(client: &HttpClient, view: &OutputStyle, of: &AppOfSession) -> Result<(), CliError> {
    let path = path_of(of);
    let act = format!("{path}/open");
    let until = Instant::now() + READY_TIMEOUT;
    let opened = loop {
        let answer = client.call(Method::POST, &act, Extra::default()).await?;
        let opened = Answer::<OpenedApp>::of(answer.json()?)?;
        if opened.read.app.state != AppState::Starting {
            break opened;
        }
        wait(client, &path, until).await?;
    };
    let app = &opened.read.app;
    if let Some(problem) = &app.problem {
        for line in &app.lines {
            eprintln!("{line}");
        }
        let error = CliError::new(FAILED, &problem.code, problem.text.clone());
        return Err(error.hint(problem.hint.clone()));
    }
    let said = match &opened.read.entry {
        Some(entry) => entry.clone(),
        None => format!("{}  ready; open it from the page of its session", app.name),
    };
    print(&view.said(&opened.body, &said)?);
    Ok(())
}

/// Waits while an app starts.
async fn wait(client: &HttpClient, path: &str, until: Instant) -> Result<(), CliError> {
    loop {
        tokio::time::sleep(LOOK).await;
        let now = client.read::<AppView>(path).await?.read;
        if now.state != AppState::Starting {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(CliError::new(
                TIMEOUT,
                rules::codes::APP_TOO_SLOW,
                format!("{} still starts.", now.name),
            ));
        }
    }
}

fn path(session: &str) -> String {
    format!("/api/v1/sessions/{}/apps", encoded(session))
}

fn path_of(of: &AppOfSession) -> String {
    format!("{}/{}", path(&of.session), encoded(&of.app))
}
