//! The commands on closed months, their statements and prices. `statement verify` works without a server.

use std::path::Path;

use api::statements::{ClosedMonthView, MonthCheckView, StatementView};
use base::tls::signature::SigningAuthority;
use hyper::Method;
use rules::refusals;
use serde_json::{Value, json};

use super::answer::Answer;
use super::args::{Format, MonthCommand, PriceCommand, StatementArguments};
use super::client::{Extra, HttpClient};
use super::error::{CliError, FAILED};
use super::output::OutputStyle;
use super::{columns, complain, print, print_bytes, statement_verify, values};

const MONTHS: &str = "/api/v1/months";
const PRICES: &str = "/api/v1/prices";
/// Bytes of a statement that are read. Higher: a file that is none takes more memory. Lower: that of a large site is
/// refused; it has a thousand bytes a line.
const MAX_STATEMENT_BYTES: u64 = 256 << 20;

pub(super) async fn statement(
    client: &HttpClient,
    view: &OutputStyle,
    request: &StatementArguments,
) -> Result<u8, CliError> {
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let query = values::query(&[
        ("month", said(&request.month)),
        ("domain", said(&request.domain)),
        ("project", said(&request.project)),
        ("user", said(&request.user)),
    ]);
    let path = format!("/api/v1/statements{query}");
    // Columns that were chosen are those of the table.
    if view.format == Format::Csv && view.columns.is_empty() {
        let file = Extra::default().header("Accept", "text/csv");
        let answer = client.call(Method::GET, &path, file).await?;
        print_bytes(&answer.body);
        return Ok(0);
    }
    let Answer { body, read } = client.read::<StatementView>(&path).await?;
    if matches!(view.format, Format::Json | Format::Yaml) {
        print(&view.said(&body, "")?);
        return Ok(0);
    }
    if view.for_humans() && read.items.is_empty() {
        complain(&format!("Nothing was used in {}.\n", read.month));
        return Ok(0);
    }
    print(&view.list(&json!({"items": body["items"]}), columns::STATEMENT)?);
    if view.for_humans() {
        let money = match read.currency.is_empty() {
            true => String::new(),
            false => format!(", {} {}", read.total.amount(), read.currency),
        };
        print(&format!(
            "Total of {}: {} GPU hours, {} core hours, {} GiB hours{money}\n",
            read.month,
            read.total.gpu_hours(),
            read.total.core_hours(),
            read.total.memory_gib_hours(),
        ));
    }
    Ok(0)
}

pub(super) async fn month(
    client: &HttpClient,
    view: &OutputStyle,
    request: MonthCommand,
) -> Result<u8, CliError> {
    match request {
        MonthCommand::Ls => {
            print(&view.list(&client.get(MONTHS).await?, columns::MONTHS)?);
        }
        MonthCommand::Close { month, time_zone } => {
            let body = json!({"month": month, "time_zone": time_zone});
            let closed = client.send::<ClosedMonthView>(MONTHS, &body).await?;
            let told = format!("{}  closed", closed.read.month);
            print(&view.said(&closed.body, &told)?);
        }
        MonthCommand::Verify => {
            let body = client.get(&format!("{MONTHS}/check")).await?;
            let broken = body["items"].as_array().is_some_and(|items| {
                let mut items = items.iter();
                items.any(|item| item["whole"] != Value::Bool(true))
            });
            print(&view.list::<MonthCheckView>(&body, columns::MONTH_CHECKS)?);
            return Ok(if broken { FAILED } else { 0 });
        }
    }
    Ok(0)
}

pub(super) async fn price(
    client: &HttpClient,
    view: &OutputStyle,
    request: PriceCommand,
) -> Result<u8, CliError> {
    match request {
        PriceCommand::Ls => {
            let body = client.get(PRICES).await?;
            print(&view.one(&body, columns::PRICES)?);
        }
        PriceCommand::Set {
            currency,
            gpu_hour,
            core_hour,
            gib_hour,
            off: _,
        } => {
            let said = |text: Option<String>| text.unwrap_or_default();
            let body = json!({
                "currency": said(currency),
                "gpu_hour": said(gpu_hour),
                "core_hour": said(core_hour),
                "gib_hour": said(gib_hour),
            });
            let now = client.call(Method::GET, PRICES, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let extra = Extra::json(&body).header("If-Match", tag);
            let set = client.call(Method::PUT, PRICES, extra).await?;
            print(&view.one(&set.json()?, columns::PRICES)?);
        }
    }
    Ok(0)
}

/// Checks a saved statement with nothing but its file and the certificate of the authority.
pub(super) fn verify(view: &OutputStyle, file: &Path, key: &Path) -> Result<u8, CliError> {
    let unreadable = |path: &Path, error: &std::io::Error| {
        CliError::from(refusals::audit_file_unreadable(path.display(), error))
    };
    let pem = std::fs::read_to_string(key).map_err(|error| unreadable(key, &error))?;
    let authority = SigningAuthority::read(&pem)?;
    let mut text = Vec::new();
    let opened = std::fs::File::open(file).map_err(|error| unreadable(file, &error))?;
    let mut bounded = std::io::Read::take(opened, MAX_STATEMENT_BYTES);
    std::io::Read::read_to_end(&mut bounded, &mut text)
        .map_err(|error| unreadable(file, &error))?;
    let found = statement_verify::verify(&text, &authority).map_err(|refusal| CliError {
        exit: FAILED,
        ..CliError::from(refusal)
    })?;
    let said = format!(
        "the statement of {} is whole: {} of {} lines, closed at {}",
        found.month, found.lines, found.lines_of_month, found.closed_at
    );
    let body = serde_json::to_value(&found)
        .map_err(|error| CliError::new(FAILED, "answer.unwritable", error.to_string()))?;
    print(&view.said(&body, &said)?);
    Ok(0)
}
