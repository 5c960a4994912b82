//! The commands on budgets.

use api::budgets::BudgetView;
use hyper::Method;
use serde_json::{Map, Value, json};

use super::args::{BudgetCommand, BudgetPeriod};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/budgets";

pub(super) async fn budget(
    client: &HttpClient,
    view: &OutputStyle,
    request: BudgetCommand,
) -> Result<u8, CliError> {
    match request {
        BudgetCommand::Ls => {
            print(&view.list(&client.get(PATH).await?, columns::BUDGETS)?);
        }
        BudgetCommand::Get { budget } => {
            let body = client.get(&path(&budget)).await?;
            print(&view.one(&body, columns::BUDGETS)?);
        }
        BudgetCommand::Create {
            gpu_hours,
            project,
            user,
            period,
            hard,
        } => {
            let BudgetPeriod { month, from, until } = period;
            let mut body = Map::new();
            body.insert("gpu_hours".to_owned(), gpu_hours.into());
            body.insert("hard".to_owned(), hard.into());
            for (key, text) in [
                ("project", project),
                ("user", user),
                ("month", month),
                ("from", from),
                ("until", until),
            ] {
                if let Some(text) = text {
                    body.insert(key.to_owned(), text.into());
                }
            }
            let made = client
                .send::<BudgetView>(PATH, &Value::Object(body))
                .await?;
            print(&view.said(&made.body, &made.read.id.to_string())?);
        }
        BudgetCommand::Set {
            budget,
            gpu_hours,
            hard,
        } => {
            let path = path(&budget);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let mut patch = Map::new();
            if let Some(amount) = gpu_hours {
                patch.insert("gpu_hours".to_owned(), amount.into());
            }
            if let Some(word) = hard {
                patch.insert("hard".to_owned(), (word == "yes").into());
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::BUDGETS)?);
        }
        BudgetCommand::Rm { budgets } => {
            for budget in budgets {
                client
                    .call(Method::DELETE, &path(&budget), Extra::default())
                    .await?;
                print(&view.said(&json!({"id": budget}), &format!("{budget}  removed"))?);
            }
        }
    }
    Ok(0)
}

fn path(budget: &str) -> String {
    format!("{PATH}/{}", encoded(budget))
}
