//! What was used over a time, from the command line: a table, the API's body, or the console's file.

use hyper::Method;
use serde_json::json;

use super::args::{Format, UsageArguments};
use super::client::{Extra, HttpClient};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, print, print_bytes, values};

pub(super) async fn usage(
    client: &HttpClient,
    view: &OutputStyle,
    request: &UsageArguments,
) -> Result<u8, CliError> {
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let query = values::query(&[
        ("month", said(&request.month)),
        ("from", said(&request.from)),
        ("until", said(&request.until)),
        ("by", request.by.clone()),
    ]);
    let path = format!("/api/v1/usage{query}");
    // Columns that were chosen are those of the table.
    if view.format == Format::Csv && view.columns.is_empty() {
        let file = Extra::default().header("Accept", "text/csv");
        let answer = client.call(Method::GET, &path, file).await?;
        print_bytes(&answer.body);
        return Ok(0);
    }
    let body = client.get(&path).await?;
    if matches!(view.format, Format::Json | Format::Yaml) {
        print(&view.said(&body, "")?);
        return Ok(0);
    }
    if view.for_humans() && body["items"].as_array().is_none_or(Vec::is_empty) {
        complain("Nothing was used in that time.\n");
        return Ok(0);
    }
    print(&view.list(&json!({"items": body["items"]}), columns::USAGE)?);
    Ok(0)
}
