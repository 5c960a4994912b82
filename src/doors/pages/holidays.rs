//! `/holidays`: days off of the site and of domains, each as a list that administrators change as text. Decides nothing.

use api::holidays::{HolidayCalendarView, HolidaysBody};
use askama::Template;
use axum::Router;
use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::holidays;

use super::authentication::PageCaller;
use super::components;
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/holidays";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/holidays.html")]
pub struct HolidaysPage {
    pub t: Text,
    pub f: PageLayout,
    pub calendars: Vec<HolidayCalendarCard>,
}

/// One calendar.
pub struct HolidayCalendarCard {
    /// Part of the ids of its elements.
    pub key: String,
    pub title: String,
    /// Where its form is sent.
    pub action: String,
    /// Empty for the whole site.
    pub domain: String,
    pub generation: String,
    /// How many days it has.
    pub count: u64,
    /// One day a line, for the form.
    pub list: String,
    /// The same for those who only look: day and name.
    pub days: Vec<(String, String)>,
    pub may_change: bool,
}

/// What a form sent.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SentHolidays {
    domain: String,
    list: String,
    generation: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new().route("/holidays", get(show).post(set))
}

/// Where the form of a calendar is sent: each has an address of its own, so that a fault stands in the right one.
fn action(domain: &str) -> String {
    match domain.is_empty() {
        true => PATH.to_owned(),
        false => format!("{PATH}?domain={domain}"),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
) -> Result<HolidaysPage, Failure> {
    let t = visit.text;
    let all = holidays::list(&console.server, caller).await?;
    Ok(HolidaysPage {
        t,
        f: layout(console, visit, caller, Nav::Reservations),
        calendars: all.into_iter().map(|one| card(t, one)).collect(),
    })
}

fn card(t: Text, calendar: HolidayCalendarView) -> HolidayCalendarCard {
    let domain = calendar.domain.unwrap_or_default();
    let days: Vec<(String, String)> = calendar
        .days
        .into_iter()
        .map(|one| (one.day, one.name))
        .collect();
    let line = |(day, name): &(String, String)| format!("{day} {name}").trim_end().to_owned();
    HolidayCalendarCard {
        key: match domain.is_empty() {
            true => "site".to_owned(),
            false => format!("of-{domain}"),
        },
        title: match domain.is_empty() {
            true => t.holidays_site().to_owned(),
            false => t.holidays_domain(domain.as_str()),
        },
        action: action(&domain),
        domain,
        generation: calendar.generation.to_string(),
        count: days.len() as u64,
        list: days.iter().map(line).collect::<Vec<String>>().join("\n"),
        days,
        may_change: calendar.may_change,
    }
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match read(&console, &visit, &caller).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /holidays`
async fn set(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<SentHolidays>,
) -> Response {
    let body = HolidaysBody {
        domain: Some(sent.domain.clone()),
        list: sent.list.clone(),
    };
    let seen = sent.generation.parse().ok();
    let refusal = match holidays::set(&console.server, &caller, body, seen).await {
        Ok(_) => return responses::see_with(PATH, "holidays", ""),
        Err(Failure::Refusal(refusal)) if refusal.code.starts_with("holiday.") => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let refused = RefusedForm::new(visit.text, &action(&sent.domain), &refusal);
    let refused = refused
        .otherwise_at("list")
        .with([("list", sent.list.as_str())]);
    let visit = visit.refusing(refused);
    match read(&console, &visit, &caller).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Reservations);
    responses::failure(console, visit, Some(frame), failure)
}
