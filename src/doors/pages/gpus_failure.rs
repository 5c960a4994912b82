//! What the pages on GPUs and on their self-tests answer when something failed.

use axum::response::Response;
use server::Failure;
use server::access::Caller;

use super::layout::Nav;
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};

pub(super) fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Gpus);
    responses::failure(console, visit, Some(frame), failure)
}
