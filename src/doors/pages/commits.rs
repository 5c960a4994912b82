//! `/sessions/{id}/commit`: an image of a session. First a look at what it would hold and what looks like secrets, then the
//! work itself, whose page looks again by itself until it is over. Needs no script. Decides nothing.

use api::commits::{CommitPreview, CommitRequest};
use api::operations::{OperationState, OperationView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use rules::commit::SecretKind;
use rules::names::OperationId;
use rules::refusal::Refusal;
use rules::refusals;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::{operations, sessions};

use super::authentication::PageCaller;
use super::components;
use super::form_faults::RefusedForm;
use super::layout::{Attribute, Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/commit.html")]
pub struct CommitPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    pub session: String,
    /// As it was typed.
    pub reference: String,
    /// Paths that are left out, one a line, but those that have a tick of their own.
    pub exclude: String,
    pub accept: bool,
    /// What it would hold, once it was looked at.
    pub look: Option<CommitLook>,
    /// The work, once it was asked for.
    pub job: Option<CommitJob>,
}

/// What an image of the session would hold.
pub struct CommitLook {
    /// What it is called, and what it is put on.
    pub reference: String,
    pub sentence: String,
    pub secrets: Vec<SecretRow>,
    /// How many more there are; empty for none.
    pub more: String,
}

pub struct SecretRow {
    pub path: String,
    pub kind: &'static str,
    pub ticked: bool,
}

impl SecretRow {
    fn checked(&self) -> Attribute {
        Attribute(if self.ticked { " checked" } else { "" })
    }
}

/// The work on an image.
pub struct CommitJob {
    pub id: String,
    pub name: String,
    pub tone: &'static str,
    pub state: &'static str,
    pub percent: u8,
    /// How far it is, or why it failed.
    pub step: String,
    pub cancelable: bool,
    /// The page of the image; empty before it is there.
    pub image: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/sessions/{id}/commit", get(show).post(submit))
        .route("/sessions/{id}/commit/cancel", post(cancel))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CommitQuery {
    operation: String,
}

/// What the form sends. A field may come several times, so it is read name by name.
#[derive(Default)]
struct CommitForm {
    reference: String,
    /// Ticked paths and lines of the field.
    ticked: Vec<String>,
    lines: String,
    accept: bool,
    /// Else it is only looked at.
    make: bool,
}

impl CommitForm {
    fn read(sent: Vec<(String, String)>) -> Self {
        let mut form = Self::default();
        for (name, value) in sent {
            match name.as_str() {
                "reference" => form.reference = value,
                "leave" => form.ticked.push(value),
                "exclude" => form.lines = value,
                "accept" => form.accept = true,
                "make" => form.make = true,
                _ => {}
            }
        }
        form
    }

    fn request(&self) -> CommitRequest {
        let lines = self.lines.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty()).map(str::to_owned);
        CommitRequest {
            reference: self.reference.clone(),
            exclude: self.ticked.iter().cloned().chain(lines).collect(),
            accept_secrets: self.accept,
        }
    }
}

/// `GET /sessions/{id}/commit`: the form, or how far the work is.
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<CommitQuery>,
) -> Response {
    let read = read(&console, &visit, &caller, &id, &CommitForm::default()).await;
    let mut page = match read {
        Ok(page) => page,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    if asked.operation.is_empty() {
        return responses::page(&console, &visit, StatusCode::OK, &page);
    }
    let operation = match operation(&console, &caller, &asked.operation).await {
        Ok(operation) => operation,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    page.job = Some(job(visit.text, &operation));
    let mut response = responses::page(&console, &visit, StatusCode::OK, &page);
    if operation.state.is_open() {
        let again = HeaderValue::from_static("2");
        response.headers_mut().insert(header::REFRESH, again);
    }
    response
}

async fn operation(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
) -> Result<OperationView, Failure> {
    let id: OperationId = id
        .parse()
        .map_err(|_| refusals::operation_not_found_by_id())?;
    operations::get(&console.server, caller, id).await
}

/// `POST /sessions/{id}/commit`: looks what an image would hold, or begins to make it.
async fn submit(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<Vec<(String, String)>>,
) -> Response {
    let form = CommitForm::read(sent);
    let server = &console.server;
    let done = if form.make {
        let begun = sessions::commit(server, &caller, &id, form.request(), None).await;
        match begun {
            Ok(begun) => {
                let place = format!("/sessions/{id}/commit?operation={}", begun.value.id);
                return responses::see(&place);
            }
            Err(failure) => Err(failure),
        }
    } else {
        // Ticked paths are looked at too: they are in the list that is shown again.
        let request = CommitRequest {
            exclude: CommitForm {
                ticked: Vec::new(),
                lines: form.lines.clone(),
                ..CommitForm::default()
            }
            .request()
            .exclude,
            ..form.request()
        };
        sessions::preview_commit(server, &caller, &id, request).await
    };
    let page = read(&console, &visit, &caller, &id, &form).await;
    match (page, done) {
        (Ok(page), Ok(preview)) => {
            let look = Some(look(visit.text, &preview, &form.ticked));
            let page = CommitPage { look, ..page };
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        (Ok(page), Err(Failure::Refusal(refusal))) => {
            let refused = refused(&visit, &page.id, &refusal);
            let visit = visit.refusing(refused);
            responses::page(&console, &visit, responses::status(&refusal), &page)
        }
        (Err(failure), _) | (_, Err(failure)) => failed(&console, &visit, &caller, &failure),
    }
}

fn refused(visit: &RequestContext, id: &str, refusal: &Refusal) -> RefusedForm {
    let action = format!("/sessions/{id}/commit");
    RefusedForm::new(visit.text, &action, refusal).otherwise_at("reference")
}

/// `POST /sessions/{id}/commit/cancel`: calls the work off.
async fn cancel(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(asked): Form<CommitQuery>,
) -> Response {
    let found = operation(&console, &caller, &asked.operation).await;
    let cancelled = match found {
        Ok(found) => operations::cancel(&console.server, &caller, found.id).await,
        Err(failure) => Err(failure),
    };
    match cancelled {
        Ok(operation) => {
            let place = format!("/sessions/{id}/commit?operation={}", operation.id);
            responses::see(&place)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    form: &CommitForm,
) -> Result<CommitPage, Failure> {
    let session = sessions::get(&console.server, caller, id).await?;
    Ok(CommitPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Sessions),
        id: session.id.to_string(),
        session: session.name.to_string(),
        reference: form.reference.clone(),
        exclude: form.lines.clone(),
        accept: form.accept,
        look: None,
        job: None,
    })
}

fn look(t: Text, preview: &CommitPreview, ticked: &[String]) -> CommitLook {
    let row = |secret: &api::commits::CommitSecret| SecretRow {
        path: secret.path.clone(),
        kind: kind(t, secret.kind),
        ticked: ticked.contains(&secret.path),
    };
    CommitLook {
        reference: preview.reference.clone(),
        sentence: t.commit_holds(
            components::size(preview.bytes),
            preview.entries,
            &preview.base,
        ),
        secrets: preview.secrets.iter().map(row).collect(),
        more: match preview.more_secrets {
            0 => String::new(),
            more => t.commit_more(more),
        },
    }
}

fn kind(t: Text, kind: SecretKind) -> &'static str {
    match kind {
        SecretKind::PrivateKey => t.commit_private_key(),
        SecretKind::SshKey => t.commit_ssh_key(),
        SecretKind::Token => t.commit_token(),
        SecretKind::CloudCredentials => t.commit_cloud_credentials(),
        SecretKind::Password => t.commit_password(),
        SecretKind::EnvironmentFile => t.commit_environment_file(),
        SecretKind::ShellHistory => t.commit_shell_history(),
    }
}

fn job(t: Text, operation: &OperationView) -> CommitJob {
    let percent = components::percent(operation.done as f64, operation.total as f64);
    let (state, tone, percent) = match operation.state {
        OperationState::Pending => (t.jobs_waiting(), "d", 0),
        OperationState::Running => (t.commit_running(), "a", percent),
        OperationState::Succeeded => (t.jobs_done(), "o", 100),
        OperationState::Failed => (t.jobs_failed(), "b", 100),
        OperationState::Cancelled => (t.jobs_cancelled(), "d", 100),
    };
    let step = match &operation.refusal {
        Some(refusal) => codes::refusal(t, refusal),
        None if operation.total > 0 => t.commit_read(
            components::size(operation.done),
            components::size(operation.total),
        ),
        None => String::new(),
    };
    let image = operation.result.as_ref();
    let image = image.and_then(|result| result["images"][0]["id"].as_str());
    CommitJob {
        id: operation.id.to_string(),
        name: operation.file.clone(),
        tone,
        state,
        percent,
        step,
        cancelable: operation.cancelable,
        image: image.map_or_else(String::new, |id| format!("/images/{id}")),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Sessions);
    responses::failure(console, visit, Some(frame), failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticked_paths_and_lines_are_left_out_together() {
        let sent = [
            ("reference", "tools:1"),
            ("leave", "/opt/.env"),
            ("exclude", " /srv/a \n\n/srv/b\r\n"),
            ("leave", "/opt/key"),
            ("make", "1"),
        ];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let form = CommitForm::read(sent.map(owned).into());
        let request = form.request();
        assert_eq!(
            request.exclude,
            ["/opt/.env", "/opt/key", "/srv/a", "/srv/b"]
        );
        assert!(form.make && !request.accept_secrets);
    }
}
