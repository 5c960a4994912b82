//! How a page with a table answers: whole, or its list alone for the page's own script, with the address and the stream
//! of the filter as it now stands; and the same rows as a file. Decides nothing about the rows.

use askama::Template;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use server::{Failure, ServerFault};

use super::request_context::RequestContext;
use super::table::{TableCell, TableColumn, TableState};
use super::table_csv::csv;
use super::{PagesContext, responses};
use crate::doors::text::Text;

/// The list, and the stream that follows its filter from now on.
#[derive(Template)]
#[template(
    ext = "html",
    config = "web/askama.toml",
    source = r##"{{ list|safe }}{% if !live.is_empty() %}<hx-partial hx-target="#stream" hx-swap="outerHTML"><div hx-sse:connect="{{ live }}" hx-swap="none" id="stream" hidden></div></hx-partial>{% endif %}"##
)]
struct FollowedList<'a> {
    list: String,
    /// Empty where nothing follows it.
    live: &'a str,
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

/// A page whose list its own script asks for alone.
pub(super) trait ListPage: Template {
    /// The list as it stands in the page.
    fn list(&self) -> askama::Result<String>;
    /// The stream that follows the list from now on; None where nothing does.
    fn stream(&self) -> Option<&str>;
}

/// The page that was read, or its list alone for the page's own script. `failed` answers what could not be read.
pub(super) fn answer<P: ListPage>(
    console: &PagesContext,
    visit: &RequestContext,
    state: &TableState,
    page: Result<P, Failure>,
    failed: impl Fn(&Failure) -> Response,
) -> Response {
    let page = match page {
        Ok(page) if !visit.fragment => {
            return responses::page(console, visit, StatusCode::OK, &page);
        }
        Ok(page) => page,
        Err(failure) => return failed(&failure),
    };
    let list = match page.list() {
        Ok(list) => list,
        Err(error) => return failed(&ServerFault::new("render a list", error).into()),
    };
    let part = FollowedList {
        list,
        live: page.stream().unwrap_or_default(),
    };
    let mut response = responses::page(console, visit, StatusCode::OK, &part);
    if let Ok(address) = HeaderValue::try_from(state.address()) {
        response.headers_mut().insert("hx-replace-url", address);
    }
    response
}

/// Names the columns of a file that hold a time: what it is the time of, and that it is in UTC. Each time is given by the
/// key of its column.
pub(super) fn name_times(t: Text, columns: &mut [TableColumn], times: &[(&str, &str)]) {
    for column in columns {
        if let Some((_, what)) = times.iter().find(|(key, _)| *key == column.key) {
            column.name = t.table_in_utc(what);
        }
    }
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
    let shown: Vec<&TableColumn> = columns
        .iter()
        .filter(|column| state.columns.contains(&column.key))
        .collect();
    let heads: Vec<String> = shown.iter().map(|column| column.name.clone()).collect();
    let rows: Vec<Vec<TableCell>> = rows
        .iter()
        .map(|row| shown.iter().map(|column| cell(row, column.key)).collect())
        .collect();
    csv(visit, name, &heads, &rows)
}
