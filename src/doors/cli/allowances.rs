//! The commands on allowances: limits that are raised for a while.

use api::allowances::AllowanceView;
use hyper::Method;
use serde_json::{Map, json};

use super::args::AllowanceCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, fair_share, policies, print, values};

const PATH: &str = "/api/v1/allowances";
const REQUESTS: &str = "/api/v1/limit-requests";
const OWN: &str = "/api/v1/me/limit-request";

pub(super) async fn allowance(
    client: &HttpClient,
    view: &OutputStyle,
    request: AllowanceCommand,
) -> Result<u8, CliError> {
    match request {
        AllowanceCommand::Ls => {
            let body = client.get(PATH).await?;
            print(&view.list(&body, columns::ALLOWANCES)?);
        }
        AllowanceCommand::Create {
            of,
            limits,
            time,
            reason,
        } => {
            let (level, subject) = fair_share::of(&of);
            let until = super::now().plus_seconds(values::seconds(&time)?);
            let body = json!({
                "level": level,
                "subject": subject,
                "limits": policies::said(&limits, Map::new())?,
                "until": until.to_string(),
                "reason": reason,
            });
            let made = client.send::<AllowanceView>(PATH, &body).await?;
            let told = format!(
                "{}  {} until {}",
                made.read.id, made.read.name, made.read.until
            );
            print(&view.said(&made.body, &told)?);
        }
        AllowanceCommand::Rm { allowances } => {
            for id in allowances {
                let path = format!("{PATH}/{}", encoded(&id));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                print(&view.said(&json!({"id": id}), &format!("{id}  ended"))?);
            }
        }
        AllowanceCommand::Ask {
            limits,
            days,
            reason,
        } => {
            let body = json!({
                "limits": policies::said(&limits, Map::new())?,
                "days": days,
                "reason": reason,
            });
            let asked = client.call(Method::PUT, OWN, Extra::json(&body)).await?;
            let asked = asked.json()?;
            print(&view.said(&asked, "asked")?);
        }
        AllowanceCommand::Asked => {
            let own = client.get(OWN).await?;
            print(&view.list(&json!({"items": [own]}), columns::LIMIT_REQUESTS)?);
        }
        AllowanceCommand::Withdraw => {
            client.call(Method::DELETE, OWN, Extra::default()).await?;
            print(&view.said(&json!({}), "taken back")?);
        }
        AllowanceCommand::Requests => {
            let body = client.get(REQUESTS).await?;
            print(&view.list(&body, columns::LIMIT_REQUESTS)?);
        }
        AllowanceCommand::Decline { user, reason } => {
            let path = format!("{REQUESTS}/{}/decline", encoded(&user));
            let body = Extra::json(&json!({"reason": reason}));
            client.call(Method::POST, &path, body).await?;
            print(&view.said(&json!({"user": user}), &format!("{user}  declined"))?);
        }
    }
    Ok(0)
}
