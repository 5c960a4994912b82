//! How a page with a table answers: whole, or its list alone for the page's own script, with the address and the stream
//! of the filter as it now stands; and the same rows as a file. Decides nothing about the rows.

use askama::Template;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use super::request_context::RequestContext;
use super::table::{TableCell, TableColumn, TableState};
use super::table_csv::csv;
use super::{PagesContext, responses};

/// The list, and the stream that follows its filter from now on.
#[derive(Template)]
#[template(
    ext = "html",
    config = "web/askama.toml",
    source = r##"{{ list|safe }}<hx-partial hx-target="#stream" hx-swap="outerHTML"><div hx-sse:connect="{{ live }}" hx-swap="none" id="stream" hidden></div></hx-partial>"##
)]
struct FollowedList {
    list: String,
    live: String,
}

/// Where a form without script that sent empty filters is led to: the shorter way to say the same.
pub(super) fn shorter(
    visit: &RequestContext,
    state: &TableState,
    asked: &[(String, String)],
) -> Option<Response> {
    let long = !visit.fragment && state.has_empty_filters(asked);
    long.then(|| responses::see(&state.address()))
}

/// The list of a table alone, which was rendered as `list` and which `live` follows.
pub(super) fn list_alone(
    console: &PagesContext,
    visit: &RequestContext,
    state: &TableState,
    list: String,
    live: String,
) -> Response {
    let part = FollowedList { list, live };
    let mut response = responses::page(console, visit, StatusCode::OK, &part);
    if let Ok(address) = HeaderValue::try_from(state.address()) {
        response.headers_mut().insert("hx-replace-url", address);
    }
    response
}

/// The rows as a file named `name.csv`, with the columns that are shown. `cell` gives a field as a file tells it.
pub(super) fn file<T>(
    visit: &RequestContext,
    name: &str,
    state: &TableState,
    columns: &[TableColumn],
    rows: &[T],
    cell: impl Fn(&T, &'static str) -> TableCell,
) -> Response {
    let shown = columns
        .iter()
        .filter(|column| state.columns.contains(&column.key));
    let heads: Vec<String> = shown.map(|column| column.name.clone()).collect();
    let rows: Vec<Vec<TableCell>> = rows
        .iter()
        .map(|row| state.columns.iter().map(|key| cell(row, key)).collect())
        .collect();
    csv(visit, name, &heads, &rows)
}
