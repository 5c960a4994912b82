//! The rows of a table as a file of comma-separated values, for spreadsheets. Decides nothing about the rows.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::request_context::RequestContext;
use super::table::TableCell;
use crate::doors::csv::{KIND, line};

/// A download of these rows as comma-separated values (RFC 4180, UTF-8 with a byte-order mark so that spreadsheets
/// read Korean), named `name.csv`.
pub(super) fn csv(
    visit: &RequestContext,
    name: &str,
    heads: &[String],
    rows: &[Vec<TableCell>],
) -> Response {
    let mut body = String::from("\u{feff}");
    line(&mut body, heads.iter().map(String::as_str));
    for row in rows {
        let fields: Vec<String> = row.iter().map(TableCell::plain).collect();
        line(&mut body, fields.iter().map(String::as_str));
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(KIND));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::CONTENT_LANGUAGE,
        HeaderValue::from_static(visit.text.language.code()),
    );
    if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{name}.csv\"")) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    (StatusCode::OK, headers, body).into_response()
}
