//! `/queue/{id}`: changes the request of a session that waits, puts it on hold, releases it, cancels it. A session
//! that waits no longer has its own page for that.

use api::gpus::Gpus;
use api::sessions::{Resize, SessionView};
use askama::Template;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::Demand;
use rules::session::SessionState;
use rules::units::{CpuShare, GpuShare};
use rules::workload::precedence::{MAX_PRIORITY, USUAL_PRIORITY};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::gpus as devices;
use server::actions::sessions;

use super::authentication::PageCaller;
use super::components::{self, Alert, FormFieldError};
use super::launch::There;
use super::layout::{Nav, PageLayout};
use super::presenter::Preview;
use super::request_context::RequestContext;
use super::typed::point;
use super::{PagesContext, launch, layout, presenter, queue, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/waiting_request.html", blocks = ["preview"])]
pub struct WaitingRequestPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub faults: Vec<FormFieldError>,
    pub id: String,
    pub name: String,
    /// What it waits for, and when it starts.
    pub why: String,
    pub hint: Option<String>,
    /// A limit of the reader's own keeps it waiting: they may ask for a higher one.
    pub may_ask: bool,
    pub typed: RequestForm,
    /// The box for a share; none where no device is here or a partition is asked for.
    pub share: bool,
    pub held: bool,
    /// What the scheduler says of the request as it is typed.
    pub preview: Preview,
}

/// The form as a browser sends it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequestForm {
    pub cpu: String,
    pub memory: String,
    pub gpu: String,
    /// None leaves the limit as it is.
    pub max_runtime: Option<String>,
    /// None leaves it as it is; blank is the usual one.
    pub priority: Option<String>,
    /// Where hold and release lead back to; the queue where it is empty.
    pub back: String,
    /// Not empty: all that wait of its launch.
    pub all: String,
}

impl RequestForm {
    fn of(session: &SessionView) -> Self {
        let demand = &session.resources;
        Self {
            cpu: demand.cpu.to_string(),
            memory: launch::typed_memory(demand.memory),
            gpu: demand.gpu.to_string(),
            max_runtime: Some(session.max_runtime_seconds.map(limit).unwrap_or_default()),
            priority: Some(session.priority.to_string()),
            ..Self::default()
        }
    }

    /// The time limit that was typed, for the box.
    pub fn limit(&self) -> &str {
        self.max_runtime.as_deref().unwrap_or_default()
    }

    /// The priority that was typed, for the box.
    pub fn rank(&self) -> &str {
        self.priority.as_deref().unwrap_or_default()
    }
}

/// `GET /queue/{id}`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    page(&console, &visit, &caller, &id, None).await
}

/// `GET /queue/{id}/{verb}`: where a refused form was loaded again.
pub async fn again(PageCaller(_): PageCaller, Path((id, _)): Path<(String, String)>) -> Response {
    responses::see(&format!("/queue/{id}"))
}

/// `POST /queue/{id}/{verb}`: change, hold, release, cancel; and preview, which changes nothing.
pub async fn act(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, verb)): Path<(String, String)>,
    Form(sent): Form<RequestForm>,
) -> Response {
    if verb == "preview" {
        return answer(&console, &visit, &caller, &id, sent).await;
    }
    match done(&console, &caller, &id, &verb, &sent).await {
        Ok((session, word)) => {
            let place = match sent.back.as_str() {
                "" => "/queue",
                back => responses::own_place(back),
            };
            responses::see_with(place, word, session.name.as_str())
        }
        Err(Failure::Refusal(refusal)) => {
            page(&console, &visit, &caller, &id, Some((sent, refusal))).await
        }
        Err(fault) => {
            let frame = layout(&console, &visit, &caller, Nav::Queue);
            responses::failure(&console, &visit, Some(frame), &fault)
        }
    }
}

/// The answer to what is typed: alone for the page's own script, else the form with it.
async fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    sent: RequestForm,
) -> Response {
    match read(console, visit, caller, id, Some((&sent, None))).await {
        Ok(Some(page)) if visit.fragment => {
            responses::page(console, visit, StatusCode::OK, &page.as_preview())
        }
        Ok(Some(page)) => responses::page(console, visit, StatusCode::OK, &page),
        Ok(None) => responses::see(&format!("/sessions/{id}")),
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

/// Holds or releases a session, or all that wait of its launch; gives the one that was named.
async fn hold_all(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
    verb: &str,
) -> Result<SessionView, Failure> {
    let server = &console.server;
    let all = sessions::table::members(server, caller, id, true).await?;
    for session in all.iter().filter(|one| one.id.to_string() != id) {
        let id = session.id.to_string();
        let done = match verb {
            "hold" => sessions::hold(server, caller, &id).await,
            _ => sessions::release(server, caller, &id).await,
        };
        match done {
            // One that started meanwhile is left alone.
            Ok(_) | Err(Failure::Refusal(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    match verb {
        "hold" => sessions::hold(server, caller, id).await,
        _ => sessions::release(server, caller, id).await,
    }
}

async fn done(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
    verb: &str,
    sent: &RequestForm,
) -> Result<(SessionView, &'static str), Failure> {
    let server = &console.server;
    Ok(match verb {
        "hold" if !sent.all.is_empty() => (hold_all(console, caller, id, verb).await?, "hold"),
        "release" if !sent.all.is_empty() => {
            (hold_all(console, caller, id, verb).await?, "release")
        }
        "hold" => (sessions::hold(server, caller, id).await?, "hold"),
        "release" => (sessions::release(server, caller, id).await?, "release"),
        "cancel" => (
            queue::cancel::cancel_waiting(console, caller, id).await?,
            "cancel",
        ),
        "change" => (change(console, caller, id, sent).await?, "limits"),
        _ => return Err(refusals::page_unknown().into()),
    })
}

async fn change(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
    sent: &RequestForm,
) -> Result<SessionView, Failure> {
    let server = &console.server;
    let session = sessions::get(server, caller, id).await?;
    if session.state != SessionState::Pending {
        return Err(refusals::session_not_waiting(session.state.word()).into());
    }
    let UnderstoodRequest {
        wanted,
        limit,
        priority,
    } = understood(&session, sent)?;
    let mut changed = session;
    if let Some(seconds) = limit.filter(|seconds| *seconds != changed.max_runtime_seconds) {
        changed = sessions::set_time_limit(server, caller, id, seconds, None).await?;
    }
    if let Some(priority) = priority {
        changed = sessions::set_priority(server, caller, id, priority, None).await?;
    }
    let before = &changed.resources;
    let same = wanted.cpu == Some(before.cpu) && wanted.memory == Some(before.memory);
    if !same || wanted.gpu.is_some() {
        changed = sessions::resize(server, caller, id, wanted, Some(changed.generation)).await?;
    }
    Ok(changed)
}

/// A change of a session that waits; what is None stays.
struct UnderstoodRequest {
    wanted: Resize,
    limit: Option<Option<u64>>,
    /// Only where it is another.
    priority: Option<u32>,
}

/// What was typed, as a change of the session's request, of its time limit and of its priority.
fn understood(session: &SessionView, sent: &RequestForm) -> Result<UnderstoodRequest, Refusal> {
    let share = match sent.gpu.trim() {
        _ if session.resources.mig.is_some() => None,
        "" => Some(GpuShare::ZERO),
        typed => {
            Some(GpuShare::parse(&point(typed)).map_err(|refusal| refusal.at("/resources/gpu"))?)
        }
    };
    let wanted = Resize {
        cpu: Some(
            CpuShare::parse(&point(&sent.cpu)).map_err(|refusal| refusal.at("/resources/cpu"))?,
        ),
        memory: Some(
            launch::memory(&sent.memory).map_err(|refusal| refusal.at("/resources/memory"))?,
        ),
        gpu: share.filter(|share| *share != session.resources.gpu),
        gpu_memory: None,
    };
    let limit = match &sent.max_runtime {
        None => None,
        Some(typed) => {
            let read = launch::span(typed);
            Some(read.map_err(|refusal| refusal.at("/max_runtime_seconds"))?)
        }
    };
    let priority = match sent.priority.as_deref().map(str::trim) {
        None => None,
        Some("") => Some(USUAL_PRIORITY),
        Some(typed) => {
            let wrong = || refusals::priority_out_of_range(MAX_PRIORITY).at("/priority");
            Some(typed.parse().map_err(|_| wrong())?)
        }
    };
    Ok(UnderstoodRequest {
        wanted,
        limit,
        priority: priority.filter(|priority| *priority != session.priority),
    })
}

/// What the scheduler says of the request as it is typed, drawn as the launch page draws it.
async fn previewed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    session: &SessionView,
    typed: &RequestForm,
    devices: &Gpus,
) -> Result<Preview, Failure> {
    let t = visit.text;
    let seen = sessions::overview(&console.server, caller).await?;
    let there = There {
        policy: devices.policy,
        machines: &seen.machines,
        devices: &devices.items,
    };
    let told = match understood(session, typed) {
        Ok(UnderstoodRequest {
            wanted,
            limit,
            priority,
        }) => {
            let id = session.id.to_string();
            let demand = Demand {
                cpu: wanted.cpu.unwrap_or(session.resources.cpu),
                memory: wanted.memory.unwrap_or(session.resources.memory),
                gpu: wanted.gpu.unwrap_or(session.resources.gpu),
                ..session.resources
            };
            sessions::preview_change(&console.server, caller, &id, wanted, limit, priority)
                .await
                .map(|told| (told, demand))
        }
        Err(refusal) => Err(refusal.into()),
    };
    match told {
        Ok((told, demand)) => {
            let now = console.server.clock().now();
            Ok(there.pictured(visit, &told, &demand, 1, now))
        }
        Err(Failure::Refusal(refusal)) => Ok(there.refused(t, t.queue_not_saved(), &refusal)),
        Err(fault) => Err(fault),
    }
}

/// A time limit as users write it.
fn limit(seconds: u64) -> String {
    match (seconds % 3600, seconds % 60) {
        (0, _) => format!("{}h", seconds / 3600),
        (_, 0) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// The form, as it is or with what was wrong in it.
async fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    refused: Option<(RequestForm, Refusal)>,
) -> Response {
    let sent = refused
        .as_ref()
        .map(|(typed, refusal)| (typed, Some(refusal)));
    match read(console, visit, caller, id, sent).await {
        Ok(Some(page)) => {
            let status = refused.map_or(StatusCode::OK, |(_, refusal)| responses::status(&refusal));
            responses::page(console, visit, status, &page)
        }
        // It waits no longer: there is nothing to change here.
        Ok(None) => match refused {
            None => responses::see(&format!("/sessions/{id}")),
            Some((_, refusal)) => {
                let alert =
                    Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
                match queue::with_alert(console, visit, caller, alert).await {
                    Ok(page) => responses::page(console, visit, responses::status(&refusal), &page),
                    Err(failure) => failed(console, visit, caller, &failure),
                }
            }
        },
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Queue);
    responses::failure(console, visit, Some(frame), failure)
}

/// Whether a blocker is a limit that an allowance of the owner raises.
fn is_of_user(code: &str) -> bool {
    [rules::codes::LIMIT_USER, rules::codes::LIMIT_MEMBER].contains(&code)
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    sent: Option<(&RequestForm, Option<&Refusal>)>,
) -> Result<Option<WaitingRequestPage>, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let session = sessions::get(&console.server, caller, id).await?;
    if session.state != SessionState::Pending {
        return Ok(None);
    }
    let why = sessions::why(&console.server, caller, id).await?;
    let devices = devices::list(&console.server, caller).await?;
    let refused = sent.and_then(|(_, refusal)| refusal);
    let faults: Vec<FormFieldError> = refused
        .iter()
        .flat_map(|refusal| launch::faults(t, refusal))
        .collect();
    let typed = match sent {
        Some((typed, _)) => typed.clone(),
        None => RequestForm::of(&session),
    };
    let preview = previewed(console, visit, caller, &session, &typed, &devices).await?;
    let at_a_field = ["cpu", "memory", "gpu", "max_runtime", "priority"];
    let named = faults
        .iter()
        .any(|fault| at_a_field.contains(&fault.field.as_str()));
    let other = refused.filter(|_| !named);
    Ok(Some(WaitingRequestPage {
        t,
        f: layout(console, visit, caller, Nav::Queue),
        alert: other
            .map(|refusal| Alert::bad(codes::refusal(t, refusal)).code(refusal.code.clone())),
        faults,
        id: session.id.to_string(),
        name: session.name.to_string(),
        why: presenter::sentence(t, &visit.clock, &why),
        hint: presenter::outlook(t, &visit.clock, &why, now),
        may_ask: session.owner.id == caller.subject.user
            && why.blockers.iter().any(|one| is_of_user(&one.code)),
        typed,
        share: !devices.items.is_empty() && session.resources.mig.is_none(),
        held: session.held_by.is_some(),
        preview,
    }))
}

#[cfg(test)]
mod tests {
    use rules::units::Bytes;

    use super::*;

    #[test]
    fn what_stands_in_the_boxes_is_read_as_what_the_session_has() {
        for bytes in [
            Bytes::gib(16),
            Bytes::mib(1536),
            Bytes::mib(32),
            Bytes(20_000_001),
        ] {
            let typed = launch::typed_memory(bytes);
            assert_eq!(launch::memory(&typed), Ok(bytes), "{typed}");
        }
        assert_eq!(launch::typed_memory(Bytes::mib(256)), "0.25");
        for (seconds, typed) in [(7200, "2h"), (5400, "90m"), (90, "90s")] {
            assert_eq!(limit(seconds), typed);
            assert_eq!(launch::span(typed), Ok(Some(seconds)));
        }
    }
}
