//! The commands on requests of strangers for accounts.

use api::sign_ups::SignUpRuleView;
use hyper::Method;
use serde_json::json;

use super::answer::Answer;
use super::args::SignUpCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print, values};

const PATH: &str = "/api/v1/sign-ups";
const RULES: &str = "/api/v1/sign-up-rules";

pub(super) async fn sign_up(
    client: &HttpClient,
    view: &OutputStyle,
    request: SignUpCommand,
) -> Result<u8, CliError> {
    match request {
        SignUpCommand::Ls => print(&view.list(&client.get(PATH).await?, columns::SIGN_UPS)?),
        SignUpCommand::Approve {
            request,
            name,
            expires,
        } => {
            let path = format!("{PATH}/{}/approve", encoded(&request));
            let end = expires.map(|text| values::ahead(&text, true, super::now()));
            let end = end.transpose()?.map(|end| end.to_string());
            let mut body = json!({"name": name});
            if let Some(end) = end {
                body["expires_at"] = json!(end);
            }
            client.call(Method::POST, &path, Extra::json(&body)).await?;
            print(&view.said(&json!({"id": request}), &format!("{request}  approved"))?);
        }
        SignUpCommand::Decline { requests } => {
            for request in requests {
                decide(client, view, &request, ("decline", "declined")).await?;
            }
        }
        SignUpCommand::Reopen { requests } => {
            for request in requests {
                decide(client, view, &request, ("reopen", "waits again")).await?;
            }
        }
        SignUpCommand::Rules => {
            print(&view.list(&client.get(RULES).await?, columns::SIGN_UP_RULES)?);
        }
        SignUpCommand::Allow {
            addresses,
            none,
            domain,
        } => {
            let addresses = (!none).then(|| addresses.join(","));
            let body = json!({"domain": domain, "addresses": addresses});
            let set = client.call(Method::PUT, RULES, Extra::json(&body)).await?;
            let set: Answer<SignUpRuleView> = Answer::of(set.json()?)?;
            let told = set.read.addresses.as_deref().unwrap_or("none");
            print(&view.said(&set.body, &format!("{}  {told}", set.read.domain))?);
        }
    }
    Ok(0)
}

async fn decide(
    client: &HttpClient,
    view: &OutputStyle,
    request: &str,
    (verb, told): (&str, &str),
) -> Result<(), CliError> {
    let path = format!("{PATH}/{}/{verb}", encoded(request));
    client.call(Method::POST, &path, Extra::default()).await?;
    print(&view.said(&json!({"id": request}), &format!("{request}  {told}"))?);
    Ok(())
}
