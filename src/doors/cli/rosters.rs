//! The commands on rosters: files of users that are planned, applied and undone.

use std::path::Path;

use api::rosters::{AppliedRoster, RosterPlan, RosterSuspension};
use hyper::Method;
use serde_json::{Value, json};

use super::args::{RosterCommand, RosterFile};
use super::client::{Extra, HttpClient, encoded};
use super::error::{CliError, USAGE};
use super::output::OutputStyle;
use super::{answer, columns, complain, print};

pub(super) async fn roster(
    client: &HttpClient,
    view: &OutputStyle,
    request: RosterCommand,
) -> Result<u8, CliError> {
    match request {
        RosterCommand::Ls => {
            let body = client.get("/api/v1/rosters").await?;
            print(&view.list(&body, columns::ROSTERS)?);
        }
        RosterCommand::Plan(file) => {
            let (body, plan) = planned(client, &file).await?;
            shown(view, &body, &plan)?;
            return Ok(if plan.faulty > 0 { USAGE } else { 0 });
        }
        RosterCommand::Apply(file) => {
            let (body, plan) = planned(client, &file).await?;
            if plan.faulty > 0 {
                shown(view, &body, &plan)?;
                return Ok(USAGE);
            }
            let path = format!("{}digest={}", address(&file), plan.digest);
            let applied = client
                .call(Method::POST, &path, sent(&file.file)?)
                .await?
                .json()?;
            if view.for_humans() {
                complain(
                    "These passwords are shown this once; each user sets their own at the first sign-in.\n",
                );
            }
            let read: AppliedRoster = answer::read(&applied)?;
            match view.for_humans() && read.slips.is_empty() {
                true => print(&view.said(&applied, "No account was new.")?),
                false => print(&view.list(&applied["slips"], columns::SLIPS)?),
            }
        }
        RosterCommand::Undo { roster } => {
            let path = format!("/api/v1/rosters/{}/undo", encoded(&roster));
            let undone = client
                .call(Method::POST, &path, Extra::default())
                .await?
                .json()?;
            print(&view.said(&undone, &format!("{roster}  undone"))?);
        }
        RosterCommand::Suspend {
            roster,
            stop_sessions,
            undo,
        } => {
            let path = format!("/api/v1/rosters/{}/suspend", encoded(&roster));
            let body = json!({"suspended": !undo, "stop_sessions": stop_sessions});
            let done = client.post(&path, &body).await?;
            let RosterSuspension { users } = answer::read(&done)?;
            let state = if undo { "active" } else { "suspended" };
            print(&view.said(&done, &format!("{users} users  {state}"))?);
        }
    }
    Ok(0)
}

fn address(file: &RosterFile) -> String {
    match &file.project {
        Some(project) => format!("/api/v1/rosters?project={}&", encoded(project)),
        None => "/api/v1/rosters?".to_owned(),
    }
}

fn sent(file: &Path) -> Result<Extra, CliError> {
    let bytes = std::fs::read(file).map_err(|error| {
        let told = format!("{} cannot be read: {error}.", file.display());
        CliError::new(USAGE, "file.unreadable", told)
    })?;
    Ok(Extra {
        body: bytes.into(),
        content_type: Some("text/csv"),
        headers: Vec::new(),
    })
}

async fn planned(client: &HttpClient, file: &RosterFile) -> Result<(Value, RosterPlan), CliError> {
    let path = format!("{}dry_run=true", address(file));
    let body = client
        .call(Method::POST, &path, sent(&file.file)?)
        .await?
        .json()?;
    let plan = answer::read(&body)?;
    Ok((body, plan))
}

fn shown(view: &OutputStyle, body: &Value, plan: &RosterPlan) -> Result<(), CliError> {
    if !view.for_humans() {
        print(&view.said(body, &plan.digest)?);
        return Ok(());
    }
    print(&view.list(&body["rows"], columns::ROSTER_ROWS)?);
    let RosterPlan {
        creates,
        joins,
        changes,
        unchanged,
        faulty,
        ..
    } = plan;
    complain(&format!(
        "{creates} created, {joins} joined, {changes} changed, {unchanged} unchanged, {faulty} with faults\n"
    ));
    Ok(())
}
