//! What was given and used over time, from the command line: a table, the API's body, or the console's file.

use hyper::Method;
use serde_json::{Value, json};

use super::args::{Format, HistoryArguments};
use super::client::{Extra, HttpClient};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, print, print_bytes, values};

pub(super) async fn history(
    client: &HttpClient,
    view: &OutputStyle,
    request: &HistoryArguments,
) -> Result<u8, CliError> {
    let query = values::query(&[("of", request.of.clone()), ("range", request.range.clone())]);
    let path = format!("/api/v1/history{query}");
    // Columns that were chosen are those of the table.
    if view.format == Format::Csv && view.columns.is_empty() && !request.holders {
        let file = Extra::default().header("Accept", "text/csv");
        let answer = client.call(Method::GET, &path, file).await?;
        print_bytes(&answer.body);
        return Ok(0);
    }
    let body = client.get(&path).await?;
    let whole = matches!(view.format, Format::Json | Format::Yaml);
    if whole {
        print(&view.said(&body, "")?);
        return Ok(0);
    }
    if request.holders {
        return holders(client, view, &body, &request.of).await;
    }
    let points = json!({"items": body["points"]});
    let none = body["points"].as_array().is_none_or(Vec::is_empty);
    if view.for_humans() && none {
        complain("Nothing was measured in that time.\n");
        return Ok(0);
    }
    print(&view.list(&points, columns::HISTORY)?);
    if view.for_humans() && body["simulated"] == true {
        complain(&format!("{}\n", super::format::SIMULATED));
    }
    Ok(0)
}

/// Who held a device. Says so where there are further ones.
async fn holders(
    client: &HttpClient,
    view: &OutputStyle,
    body: &Value,
    of: &str,
) -> Result<u8, CliError> {
    let holders = json!({"items": body["holders"]});
    let none = body["holders"].as_array().is_none_or(Vec::is_empty);
    if view.for_humans() && none {
        complain(match of.starts_with("gpu:") {
            true if sees_all(client).await => "No session held it in that time.\n",
            true => {
                "No session that you may see held it in that time. Administrators are shown all sessions.\n"
            }
            false => "Only a GPU has holders. Name one: --of gpu:0\n",
        });
        return Ok(0);
    }
    print(&view.list(&holders, columns::HOLDERS)?);
    if view.for_humans() && body["more_holders"] == true {
        complain("There are further ones, with fewer GPU-hours.\n");
    }
    Ok(0)
}

/// Whether the caller is shown all sessions: an administrator, or root on the machine, who has no account.
async fn sees_all(client: &HttpClient) -> bool {
    match client.get("/api/v1/me").await {
        Ok(me) => me["role"] == "administrator",
        Err(refused) => refused.code == rules::codes::USER_GONE,
    }
}
