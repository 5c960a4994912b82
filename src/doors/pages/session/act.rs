//! The verbs of a session's page: each form, and what its refusal puts beside its field.

use api::sessions::{Resize, SessionView};
use axum::Form;
use axum::extract::{Path, State};
use axum::response::Response;
use rules::refusals;
use rules::session::SessionState;
use rules::units::{CpuShare, GpuShare};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::{idle_rules, sessions};

use super::super::authentication::PageCaller;
use super::super::components::Alert;
use super::super::form_faults::RefusedForm;
use super::super::request_context::RequestContext;
use super::super::sessions::failed;
use super::super::typed::point;
use super::super::{PagesContext, launch, responses};
use super::{SessionDetailPage, SessionQuery, read_one};
use crate::doors::text::codes;

/// What the small forms of a session's page send; each verb reads its own.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct SessionForm {
    back: String,
    force: String,
    name: String,
    cpu: String,
    memory: String,
    gpu: String,
    gpu_memory: String,
    typed: String,
    /// Why it is stopped, for its owner.
    why: String,
}

/// `POST /sessions/{id}/{verb}`: stop, keep, pause, resume, restart, rename, limits, remove.
pub async fn act(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, verb)): Path<(String, String)>,
    Form(said): Form<SessionForm>,
) -> Response {
    match done(&console, &caller, &id, &verb, &said).await {
        Ok((session, word)) => {
            let own = format!("/sessions/{}", session.id);
            let place = match (said.back.as_str(), word) {
                (_, "remove") => "/sessions",
                ("", _) => own.as_str(),
                (back, _) => responses::own_place(back),
            };
            responses::see_with(place, word, session.name.as_str())
        }
        Err(Failure::Refusal(refusal)) => {
            // The page again, with the form open and what was wrong at its field; a thing that is gone has no page.
            match read_one(
                &console,
                &visit,
                &caller,
                &id,
                None,
                &SessionQuery::default(),
            )
            .await
            {
                Ok(page) => {
                    let action = format!("/sessions/{}/{verb}", page.id);
                    let form = match verb.as_str() {
                        "rename" | "limits" | "remove" => Some(&action),
                        _ => None,
                    };
                    let status = responses::status(&refusal);
                    match form {
                        Some(action) => {
                            let form = RefusedForm::new(visit.text, action, &refusal)
                                .otherwise_at(if verb == "rename" { "name" } else { "" })
                                .with(said.typed());
                            responses::page(&console, &visit.refusing(form), status, &page)
                        }
                        None => {
                            let alert = Alert::bad(codes::refusal(visit.text, &refusal));
                            let page = SessionDetailPage {
                                refused: Some(alert.code(refusal.code.clone())),
                                ..page
                            };
                            responses::page(&console, &visit, status, &page)
                        }
                    }
                }
                Err(_) => failed(&console, &visit, &caller, &Failure::Refusal(refusal)),
            }
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `GET /sessions/{id}/{verb}`: where a form was sent is no page. One that is opened there, from the history or a shared
/// address, shows the session.
pub async fn back(Path((id, _)): Path<(String, String)>) -> Response {
    responses::see(&format!("/sessions/{}", responses::encoded(&id)))
}

impl SessionForm {
    /// The fields that a user types, as they came.
    fn typed(&self) -> [(&str, &str); 6] {
        [
            ("name", &self.name),
            ("cpu", &self.cpu),
            ("memory", &self.memory),
            ("gpu", &self.gpu),
            ("gpu_memory", &self.gpu_memory),
            ("typed", &self.typed),
        ]
    }
}

async fn done(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
    verb: &str,
    said: &SessionForm,
) -> Result<(SessionView, &'static str), Failure> {
    let server = &console.server;
    Ok(match verb {
        "stop" => {
            let before = sessions::get(server, caller, id).await?;
            let force = !said.force.is_empty();
            let session = sessions::stop_saying(server, caller, id, force, &said.why).await?;
            let word = match before.state {
                SessionState::Pending => "cancel",
                _ if force => "force",
                _ => "stop",
            };
            (session, word)
        }
        "keep" => {
            idle_rules::keep(server, caller, id).await?;
            (sessions::get(server, caller, id).await?, "keep")
        }
        "pause" => (sessions::pause(server, caller, id).await?, "pause"),
        "resume" => (sessions::resume(server, caller, id).await?, "resume"),
        "restart" => (sessions::restart(server, caller, id).await?, "restart"),
        "rename" => (
            sessions::rename(server, caller, id, &said.name, None).await?,
            "rename",
        ),
        "limits" => {
            let share = said.gpu.trim();
            let wanted = Resize {
                cpu: Some(
                    CpuShare::parse(&point(&said.cpu))
                        .map_err(|refusal| refusal.at("/resources/cpu"))?,
                ),
                memory: Some(
                    launch::memory(&said.memory)
                        .map_err(|refusal| refusal.at("/resources/memory"))?,
                ),
                gpu: (!share.is_empty())
                    .then(|| GpuShare::parse(&point(share)))
                    .transpose()
                    .map_err(|refusal| refusal.at("/resources/gpu"))?,
                gpu_memory: Some(said.gpu_memory.trim())
                    .filter(|typed| !typed.is_empty())
                    .map(launch::memory)
                    .transpose()
                    .map_err(|refusal| refusal.at("/resources/gpu_memory"))?,
            };
            (
                sessions::resize(server, caller, id, wanted, None).await?,
                "limits",
            )
        }
        "remove" => {
            let session = sessions::get(server, caller, id).await?;
            if said.typed.trim() != session.name.as_str() {
                return Err(refusals::confirm_session_name_differs().at("/typed").into());
            }
            (sessions::delete(server, caller, id).await?, "remove")
        }
        _ => {
            return Err(refusals::page_unknown().into());
        }
    })
}
