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
    }
    Ok(0)
}
