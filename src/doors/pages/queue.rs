//! `/queue`: what waits, in order, and why.

use api::sessions::SessionView;
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rules::placement::explain::Explanation;
use rules::policy::SharePolicy;
use rules::session::SessionState;
use rules::units::Timestamp;
use server::Failure;
use server::access::Caller;
use server::actions::gpus as devices;
use server::actions::sessions;

use super::authentication::PageCaller;
use super::components::{self, Alert, BarRow};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, gpus, layout, live as stream, presenter, responses};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/queue.html", blocks = ["queue", "room", "ends"])]
pub struct QueuePage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub waiting: Vec<QueueRow>,
    pub room: Vec<BarRow>,
    pub ends: Vec<EndingRow>,
}

pub struct QueueRow {
    pub id: String,
    pub position: String,
    pub hue: u8,
    pub href: String,
    pub name: String,
    pub state: String,
    pub since: String,
    pub why: String,
    pub facts: String,
    pub hint: Option<String>,
    pub may_cancel: bool,
}

pub struct EndingRow {
    pub href: String,
    pub name: String,
    pub when: String,
    /// How much of its time has passed.
    pub percent: u8,
}

/// Sessions shown of those that end soon.
const ENDS: usize = 8;

/// `GET /queue`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match read(&console, &visit, &caller).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::Queue);
            responses::failure(&console, &visit, Some(frame), &failure)
        }
    }
}

/// `GET /queue/live`
pub async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        async move {
            let page = read(&console, &visit, &caller).await.ok()?;
            Some(vec![
                ("counts", page.f.counts()),
                ("queue", page.as_queue().render().ok()?),
                ("room", page.as_room().render().ok()?),
                ("ends", page.as_ends().render().ok()?),
            ])
        }
    })
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
) -> Result<QueuePage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let queue = sessions::queue(&console.server, caller).await?;
    let seen = sessions::overview(&console.server, caller).await?;
    let running = sessions::running(&console.server, caller).await?;
    let mut ends: Vec<(Timestamp, &SessionView)> = running
        .iter()
        .filter_map(|session| Some((end(session)?, session)))
        .collect();
    ends.sort_by_key(|(at, session)| (*at, session.id));
    let counts = seen.counts;
    let several = seen.machines.len() > 1;
    let devices = devices::list(&console.server, caller).await?;
    let small = gpus::Drawing::small();
    Ok(QueuePage {
        t,
        f: PageLayout {
            sessions: counts.scheduled
                + counts.preparing
                + counts.running
                + counts.stopping
                + counts.pending,
            waiting: counts.pending,
            live: Some("/queue/live".to_owned()),
            ..layout(console, visit, caller, Nav::Queue)
        },
        alert: None,
        waiting: queue
            .iter()
            .map(|one| waiting(t, visit, &one.session, &one.why, devices.policy, now))
            .collect(),
        room: devices
            .items
            .iter()
            .map(|gpu| gpus::row(t, gpu, &small))
            .chain(seen.machines.iter().flat_map(|machine| {
                presenter::small_racks(t, machine, None).map(|row| BarRow {
                    name: if several {
                        format!("{} {}", machine.name, row.name)
                    } else {
                        row.name.clone()
                    },
                    ..row
                })
            }))
            .collect(),
        ends: ends
            .into_iter()
            .take(ENDS)
            .map(|(at, session)| {
                let began = session.started_at.unwrap_or(session.created_at);
                EndingRow {
                    href: format!("/sessions/{}", session.id),
                    name: session.name.to_string(),
                    when: visit.clock.near(at, now),
                    percent: components::percent(
                        now.seconds_since(began) as f64,
                        at.seconds_since(began) as f64,
                    ),
                }
            })
            .collect(),
    })
}

/// When it must be over by the limits its owner set; none without a limit.
fn end(session: &SessionView) -> Option<Timestamp> {
    let started = session
        .started_at
        .filter(|_| session.state == SessionState::Running)?;
    let seconds = [session.timeout_seconds, session.max_runtime_seconds]
        .into_iter()
        .flatten()
        .min()?;
    Some(started.plus_seconds(seconds))
}

fn waiting(
    t: Text,
    visit: &RequestContext,
    session: &SessionView,
    answer: &Explanation,
    policy: SharePolicy,
    now: Timestamp,
) -> QueueRow {
    let code = answer
        .blockers
        .first()
        .map_or("", |blocker| blocker.code.as_str());
    QueueRow {
        id: session.id.to_string(),
        position: answer
            .queue_position
            .map_or_else(|| "–".to_owned(), |position| position.to_string()),
        hue: components::hue(session.owner.name.as_str()),
        href: format!("/sessions/{}", session.id),
        name: session.name.to_string(),
        state: match (code, answer.queue_position) {
            (rules::codes::START_LATER, _) => t.queue_scheduled(),
            (rules::codes::DEPENDENCY_WAITING, _) => t.queue_depends(),
            (_, Some(1)) => t.queue_next(),
            _ => t.state_waiting(),
        }
        .to_owned(),
        since: components::span(t, now.seconds_since(session.created_at)),
        why: presenter::sentence(t, &visit.clock, answer),
        facts: t.queue_asks(
            session.owner.name.as_str(),
            presenter::asked(t, &session.resources, policy),
        ),
        hint: answer
            .eta
            .as_ref()
            .map(|_| presenter::eta(t, &visit.clock, answer, now))
            .or_else(|| {
                presenter::alternatives(t, answer, policy)
                    .into_iter()
                    .next()
            }),
        may_cancel: true,
    }
}
