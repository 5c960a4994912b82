//! `/api/docs`: every operation of the REST API as a page, made from the table the API itself is made from.
//! The table is handed in where the doors are joined; this page never asks the API.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::authentication::PageCaller;
use super::components;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

/// Operations of one noun.
#[derive(Clone, Debug)]
pub struct OperationGroup {
    pub name: String,
    pub operations: Vec<OperationEntry>,
}

impl OperationGroup {
    /// The noun as a heading.
    fn title(&self) -> String {
        if self.name == "gpus" {
            return "GPUs".to_owned();
        }
        let mut letters = self.name.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect()
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub struct OperationEntry {
    /// Its name in generated clients; also its anchor.
    pub name: &'static str,
    pub method: &'static str,
    pub path: &'static str,
    pub summary: &'static str,
    /// The scope a token needs; empty where none is.
    pub scope: String,
    /// Words of the query with what they mean.
    pub query: Vec<(&'static str, &'static str)>,
    /// Names of the schemas of body and answer; empty where there is none.
    pub body: &'static str,
    pub answer: String,
    pub statuses: String,
    /// The same from a shell.
    pub curl: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/reference.html")]
pub struct ReferencePage {
    pub t: Text,
    pub f: PageLayout,
    pub groups: Arc<Vec<OperationGroup>>,
}

/// `GET /api/docs`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let page = ReferencePage {
        t: visit.text,
        f: layout(&console, &visit, &caller, Nav::Api),
        groups: console.reference.clone(),
    };
    responses::page(&console, &visit, StatusCode::OK, &page)
}
