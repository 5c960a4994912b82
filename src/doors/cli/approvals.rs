//! The commands on acts that wait for a second administrator.

use api::approvals::FourEyesBody;
use hyper::Method;
use serde_json::json;

use super::answer::Answer;
use super::args::ApprovalCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/approvals";
const FOUR_EYES: &str = "/api/v1/four-eyes";

pub(super) async fn approval(
    client: &HttpClient,
    view: &OutputStyle,
    request: ApprovalCommand,
) -> Result<u8, CliError> {
    match request {
        ApprovalCommand::Ls => print(&view.list(&client.get(PATH).await?, columns::APPROVALS)?),
        ApprovalCommand::Status => {
            let known = client.get(FOUR_EYES).await?;
            let known: Answer<FourEyesBody> = Answer::of(known)?;
            print(&view.said(&known.body, told(known.read))?);
        }
        ApprovalCommand::Release { approvals } => {
            for approval in approvals {
                decide(client, view, &approval, ("release", "approved and done")).await?;
            }
        }
        ApprovalCommand::Decline { approvals } => {
            for approval in approvals {
                decide(client, view, &approval, ("decline", "declined")).await?;
            }
        }
        ApprovalCommand::On => set(client, view, true).await?,
        ApprovalCommand::Off => set(client, view, false).await?,
    }
    Ok(0)
}

async fn decide(
    client: &HttpClient,
    view: &OutputStyle,
    approval: &str,
    (verb, told): (&str, &str),
) -> Result<(), CliError> {
    let path = format!("{PATH}/{}/{verb}", encoded(approval));
    client.call(Method::POST, &path, Extra::default()).await?;
    print(&view.said(&json!({"id": approval}), &format!("{approval}  {told}"))?);
    Ok(())
}

async fn set(client: &HttpClient, view: &OutputStyle, on: bool) -> Result<(), CliError> {
    let body = Extra::json(&json!({"on": on}));
    let set = client.call(Method::PUT, FOUR_EYES, body).await?;
    let set: Answer<FourEyesBody> = Answer::of(set.json()?)?;
    print(&view.said(&set.body, told(set.read))?);
    Ok(())
}

fn told(set: FourEyesBody) -> &'static str {
    match set.on {
        true => {
            "Acts on policies, roles and settings wait until a second administrator approves them."
        }
        false => "Acts of administrators are done at once.",
    }
}
