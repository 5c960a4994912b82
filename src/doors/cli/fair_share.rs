//! The commands on the order of the queue, its backfill and fair share.

use hyper::Method;
use serde_json::{Map, Value, json};

use super::args::{FairShareCommand, TenantPlace};
use super::client::{Extra, HttpClient};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print, values};

const PATH: &str = "/api/v1/fair-share";

pub(super) async fn fair_share(
    client: &HttpClient,
    view: &OutputStyle,
    request: FairShareCommand,
) -> Result<u8, CliError> {
    match request {
        FairShareCommand::Ls => {
            let body = client.get(PATH).await?;
            if view.for_humans() {
                let order = body["order"].as_str().unwrap_or_default();
                let backfill = body["backfill"].as_str().unwrap_or_default();
                let hours = &body["half_life_hours"];
                print(&format!(
                    "Order of the queue: {order}, backfill: {backfill}, half-life {hours} h\n"
                ));
            }
            print(&view.list(&body, columns::FAIR_SHARE)?);
        }
        FairShareCommand::Order {
            order,
            backfill,
            half_life,
        } => {
            let now = client.call(Method::GET, PATH, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let mut patch = Map::new();
            if let Some(order) = order {
                patch.insert("order".to_owned(), Value::from(order));
            }
            if let Some(mode) = backfill {
                patch.insert("backfill".to_owned(), Value::from(mode));
            }
            if let Some(time) = half_life {
                let hours = values::seconds(&time)? / 3_600;
                patch.insert("half_life_hours".to_owned(), Value::from(hours));
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, PATH, extra).await?.json()?;
            let order = changed["order"].as_str().unwrap_or_default().to_owned();
            let backfill = changed["backfill"].as_str().unwrap_or_default();
            let hours = &changed["half_life_hours"];
            let told = format!("{order}  backfill {backfill}  half-life {hours} h");
            print(&view.said(&changed, &told)?);
        }
        FairShareCommand::Weight { weight, place } => {
            let (level, subject) = of(&place);
            let body = json!({"level": level, "subject": subject, "weight": weight});
            let path = format!("{PATH}/weights");
            let set = client.call(Method::PUT, &path, Extra::json(&body)).await?;
            print(&view.said(&set.json()?, &format!("{level} {subject}  weight {weight}"))?);
        }
    }
    Ok(0)
}

pub(super) fn of(place: &TenantPlace) -> (&'static str, &str) {
    match (&place.domain, &place.project, &place.user) {
        (Some(domain), _, _) => ("domain", domain),
        (_, Some(project), _) => ("project", project),
        (_, _, user) => ("user", user.as_deref().unwrap_or_default()),
    }
}
