//! What a user keeps about tables: which columns are shown, and views with a name. Both stay in cookies of the browser,
//! so that they work without script and cost the catalog nothing. Never decides what a table shows.

use axum::extract::{Form, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::post;
use axum::{Router, http};

use super::authentication::PageCaller;
use super::request_context::{RequestContext, taste, taste_of};
use super::responses::{self, encoded, own_place};
use super::table::{
    FilterBar, FilterExample, TableColumn, TableState, ViewLink, column_choices, column_cookie,
};
use super::{PagesContext, assets, decoded};

/// Tables whose choices are kept.
const TABLES: [&str; 13] = [
    "sessions",
    "queue",
    "users",
    "images",
    "events",
    "gpus",
    "projects",
    "policies",
    "presets",
    "fair",
    "audit",
    "reservations",
    "courses",
];
/// Columns that one choice names. More were never offered.
const MAX_COLUMNS: usize = 32;
/// Views that a browser keeps for one table. Higher: every request carries more bytes. Lower: fewer views.
const MAX_VIEWS: usize = 8;
/// Letters of a view's name.
const MAX_VIEW_NAME: usize = 40;
/// Bytes of all views of one table; browsers drop a cookie of more than 4 KiB.
const MAX_VIEW_BYTES: usize = 3 << 10;

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/tables/columns", post(columns))
        .route("/tables/views", post(views))
}

fn view_cookie(table: &str) -> String {
    format!("fardel_views_{table}")
}

/// The views that this browser keeps of a table: their names, and the queries they stand for.
fn kept(headers: &HeaderMap, visit: &RequestContext, table: &str) -> Vec<(String, String)> {
    let cookie = taste_of(headers, visit.secure, &view_cookie(table)).unwrap_or_default();
    cookie
        .split('&')
        .filter_map(|view| view.split_once('='))
        .map(|(name, query)| (decoded(name), decoded(query)))
        .filter(|(name, _)| !name.is_empty())
        .take(MAX_VIEWS)
        .collect()
}

/// The views of a table: those that it ships with, and those of this browser. `here` is the page as it stands.
pub(super) fn view_links(
    headers: &HeaderMap,
    visit: &RequestContext,
    table: &str,
    path: &str,
    here: &str,
    shipped: Vec<(String, String)>,
) -> Vec<ViewLink> {
    let link = |own: bool| {
        move |(name, query): (String, String)| {
            let href = match query.is_empty() {
                true => path.to_owned(),
                false => format!("{path}?{query}"),
            };
            ViewLink {
                current: href == here,
                name,
                href,
                own,
            }
        }
    };
    let own = kept(headers, visit, table).into_iter().map(link(true));
    shipped.into_iter().map(link(false)).chain(own).collect()
}

/// What the line above one table says.
pub(super) struct FilterWords<'a> {
    /// Of the table, in cookies and in ids.
    pub table: &'static str,
    pub path: &'static str,
    pub hint: &'a str,
    pub label: &'a str,
    /// The views that the table ships with: name and query.
    pub shipped: &'a [(&'a str, &'a str)],
    /// What can be typed, and what it finds.
    pub examples: &'a [(&'static str, &'a str)],
}

/// The line above a table, without choices beside the filter; the order is kept while the filter changes.
pub(super) fn filter_bar(
    visit: &RequestContext,
    headers: &HeaderMap,
    state: &TableState,
    columns: &[TableColumn],
    words: &FilterWords<'_>,
) -> FilterBar {
    let here = state.address();
    let owned = |(name, query): &(&str, &str)| ((*name).to_owned(), (*query).to_owned());
    let shipped = words.shipped.iter().map(owned).collect();
    FilterBar {
        t: visit.text,
        module: assets::address("table.js"),
        table: words.table,
        path: words.path,
        q: state.filter("q").to_owned(),
        hint: words.hint.to_owned(),
        label: words.label.to_owned(),
        pickers: Vec::new(),
        hidden: vec![("sort", state.sort.clone())],
        columns: column_choices(state, columns),
        views: view_links(headers, visit, words.table, words.path, &here, shipped),
        examples: words
            .examples
            .iter()
            .map(|(typed, finds)| FilterExample {
                typed,
                finds: (*finds).to_owned(),
            })
            .collect(),
        target: "list",
        here,
    }
}

fn value<'a>(said: &'a [(String, String)], wanted: &str) -> &'a str {
    let found = said.iter().find(|(name, _)| name == wanted);
    found.map_or("", |(_, value)| value)
}

fn table_of(said: &[(String, String)]) -> Option<&'static str> {
    let wanted = value(said, "table");
    TABLES.into_iter().find(|table| *table == wanted)
}

/// `POST /tables/columns`: shows these columns of a table in this browser from now on.
async fn columns(
    State(_): State<PagesContext>,
    visit: RequestContext,
    PageCaller(_): PageCaller,
    Form(said): Form<Vec<(String, String)>>,
) -> Response {
    let back = own_place(value(&said, "back"));
    let Some(table) = table_of(&said) else {
        return responses::see(back);
    };
    let is_key = |key: &&str| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let named = said.iter().filter(|(name, _)| name == "col");
    let keys: Vec<&str> = named
        .map(|(_, key)| key.as_str())
        .filter(is_key)
        .take(MAX_COLUMNS)
        .collect();
    let chosen = match (value(&said, "usual").is_empty(), keys.is_empty()) {
        (false, _) => String::new(),
        // None of them: an empty choice would mean the usual ones.
        (true, true) => "-".to_owned(),
        (true, false) => keys.join("."),
    };
    kept_in(&visit, &column_cookie(table), &chosen, back)
}

/// `POST /tables/views`: keeps the page that `back` names as a view, or drops one.
async fn views(
    State(_): State<PagesContext>,
    visit: RequestContext,
    PageCaller(_): PageCaller,
    headers: http::HeaderMap,
    Form(said): Form<Vec<(String, String)>>,
) -> Response {
    let back = own_place(value(&said, "back"));
    let Some(table) = table_of(&said) else {
        return responses::see(back);
    };
    let name: String = value(&said, "view")
        .trim()
        .chars()
        .take(MAX_VIEW_NAME)
        .collect();
    let dropped = value(&said, "drop");
    let mut all = kept(&headers, &visit, table);
    all.retain(|(known, _)| known != dropped && *known != name);
    if !name.is_empty() {
        if all.len() >= MAX_VIEWS {
            return responses::see_with(back, "views-full", &MAX_VIEWS.to_string());
        }
        let query = back.split_once('?').map_or("", |(_, query)| query);
        all.push((name.clone(), query.to_owned()));
    }
    let kept: Vec<String> = all
        .iter()
        .map(|(name, query)| format!("{}={}", encoded(name), encoded(query)))
        .collect();
    let kept = kept.join("&");
    if kept.len() > MAX_VIEW_BYTES {
        return responses::see_with(back, "views-full", &MAX_VIEWS.to_string());
    }
    let back = match name.is_empty() {
        true => back.to_owned(),
        false => {
            let mark = if back.contains('?') { '&' } else { '?' };
            format!("{back}{mark}notice=view-kept&of={}", encoded(&name))
        }
    };
    kept_in(&visit, &view_cookie(table), &kept, &back)
}

fn kept_in(visit: &RequestContext, cookie: &str, value: &str, back: &str) -> Response {
    let mut response = responses::see(back);
    if let Ok(value) = HeaderValue::try_from(taste(visit, cookie, value)) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_come_back_as_they_were_kept() {
        let (name, query) = ("내 것 & mine", "q=state%3Afailed&page=2");
        let cookie = format!("fardel_views_sessions={}={}", encoded(name), encoded(query));
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().expect("a value"));
        let visit = RequestContext::of(&HeaderMap::new(), &http::Extensions::new(), "/".into());
        let here = "/sessions?q=state%3Afailed&page=2";
        let shipped = vec![("All".to_owned(), String::new())];
        let links = view_links(&headers, &visit, "sessions", "/sessions", here, shipped);
        let told: Vec<_> = links
            .iter()
            .map(|link| {
                (
                    link.name.as_str(),
                    link.href.as_str(),
                    link.current,
                    link.own,
                )
            })
            .collect();
        assert_eq!(
            told,
            [("All", "/sessions", false, false), (name, here, true, true)]
        );
    }
}
