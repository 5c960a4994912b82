//! `/me/startup`: what the sessions of the user who looks start with. Three panels (dotfiles, a script, variables), each
//! with its form, and the question before one is removed. Never shows the value of a variable.

use api::secret::SecretText;
use api::start_up::{NewDotfileBody, NewStartupScriptBody, NewVariableBody};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::users::start_up;

use super::authentication::PageCaller;
use super::components;
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/me/startup";
const DOTFILES: &str = "/me/startup/dotfiles";
const SCRIPT: &str = "/me/startup/script";
const VARIABLES: &str = "/me/startup/variables";
const REMOVE: &str = "/me/startup/remove";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/start_up.html")]
pub struct StartUpPage {
    pub t: Text,
    pub f: PageLayout,
    pub files: Vec<KeptItemRow>,
    pub path: String,
    pub mode: String,
    pub content: String,
    /// Empty where none is kept.
    pub script: String,
    pub has_script: bool,
    pub ends_session: bool,
    pub variables: Vec<KeptItemRow>,
    pub name: String,
}

/// A file or a variable in its list.
pub struct KeptItemRow {
    pub name: String,
    /// Mode and size of a file; empty for a variable.
    pub note: String,
    pub changed: String,
    /// Where a file is opened; empty for a variable.
    pub edit: String,
    pub remove: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/me/startup", get(show))
        .route("/me/startup/dotfiles", post(put_dotfile))
        .route("/me/startup/script", post(put_script))
        .route("/me/startup/variables", post(put_variable))
        .route("/me/startup/remove", get(ask).post(remove))
}

/// What the forms hold, as it was typed.
#[derive(Default)]
struct TypedForms {
    file: Option<DotfileForm>,
    script: Option<ScriptForm>,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OpenedFile {
    path: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(opened): Query<OpenedFile>,
) -> Response {
    let mut typed = TypedForms::default();
    if !opened.path.is_empty() {
        typed.file = match start_up::dotfile(&console.server, &caller, &opened.path).await {
            Ok(file) => Some(DotfileForm {
                path: file.path,
                mode: file.mode,
                content: file.content,
            }),
            Err(failure) => return failed(&console, &visit, &caller, &failure),
        };
    }
    match read(&console, &visit, &caller, typed).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    typed: TypedForms,
) -> Result<StartUpPage, Failure> {
    let now = console.server.clock().now();
    let files = start_up::dotfiles(&console.server, caller).await?;
    let variables = start_up::variables(&console.server, caller).await?;
    let script = match start_up::script(&console.server, caller).await {
        Ok(script) => Some(script),
        Err(Failure::Refusal(refusal))
            if refusal.code == rules::codes::STARTUP_SCRIPT_NOT_FOUND =>
        {
            None
        }
        Err(failure) => return Err(failure),
    };
    let has_script = script.is_some();
    let kept = script.map(|kept| ScriptForm {
        script: kept.script,
        ends_session: if kept.ends_session { "1" } else { "" }.to_owned(),
    });
    let shown = typed.script.or(kept).unwrap_or_default();
    let file = typed.file.unwrap_or_default();
    Ok(StartUpPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Me),
        files: files
            .into_iter()
            .map(|file| KeptItemRow {
                note: format!("{} · {} B", file.mode, file.bytes),
                changed: visit.clock.ago(file.changed_at, now),
                edit: format!("{PATH}?path={}", responses::encoded(&file.path)),
                remove: removal("dotfile", &file.path),
                name: file.path,
            })
            .collect(),
        path: file.path,
        mode: match file.mode.is_empty() {
            true => "600".to_owned(),
            false => file.mode,
        },
        content: file.content,
        script: shown.script,
        has_script,
        ends_session: !shown.ends_session.is_empty(),
        variables: variables
            .into_iter()
            .map(|variable| variable_row(visit, variable.name, variable.changed_at, now))
            .collect(),
        name: typed.name,
    })
}

fn variable_row(
    visit: &RequestContext,
    name: String,
    changed_at: Timestamp,
    now: Timestamp,
) -> KeptItemRow {
    KeptItemRow {
        note: String::new(),
        changed: visit.clock.ago(changed_at, now),
        edit: String::new(),
        remove: removal("variable", &name),
        name,
    }
}

fn removal(kind: &str, name: &str) -> String {
    format!("{REMOVE}?kind={kind}&name={}", responses::encoded(name))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DotfileForm {
    path: String,
    mode: String,
    content: String,
}

async fn put_dotfile(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(form): Form<DotfileForm>,
) -> Response {
    let wanted = NewDotfileBody {
        path: form.path.clone(),
        mode: form.mode.clone(),
        content: unix_lines(&form.content),
    };
    let failure = match start_up::put_dotfile(&console.server, &caller, wanted).await {
        Ok(kept) => return responses::see_with(PATH, "start-up-kept", &kept.path),
        Err(failure) => failure,
    };
    let typed = TypedForms {
        file: Some(form),
        ..TypedForms::default()
    };
    refused(&console, visit, &caller, failure, (DOTFILES, "path"), typed).await
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ScriptForm {
    script: String,
    /// Something where the box is ticked.
    ends_session: String,
}

async fn put_script(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(form): Form<ScriptForm>,
) -> Response {
    let wanted = NewStartupScriptBody {
        script: unix_lines(&form.script),
        ends_session: !form.ends_session.is_empty(),
    };
    let failure = match start_up::put_script(&console.server, &caller, wanted).await {
        Ok(_) => return responses::see_with(PATH, "start-up-script", ""),
        Err(failure) => failure,
    };
    let typed = TypedForms {
        script: Some(form),
        ..TypedForms::default()
    };
    refused(&console, visit, &caller, failure, (SCRIPT, "script"), typed).await
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct VariableForm {
    name: String,
    value: Option<SecretText>,
}

async fn put_variable(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(form): Form<VariableForm>,
) -> Response {
    let wanted = NewVariableBody {
        name: form.name.clone(),
        value: form.value.unwrap_or_else(|| SecretText::new("")),
    };
    let failure = match start_up::put_variable(&console.server, &caller, wanted).await {
        Ok(kept) => return responses::see_with(PATH, "start-up-kept", &kept.name),
        Err(failure) => failure,
    };
    // The value is not sent back.
    let typed = TypedForms {
        name: form.name,
        ..TypedForms::default()
    };
    refused(
        &console,
        visit,
        &caller,
        failure,
        (VARIABLES, "name"),
        typed,
    )
    .await
}

/// Browsers end the lines of a form as no file of a session does.
fn unix_lines(typed: &str) -> String {
    typed.replace("\r\n", "\n")
}

async fn refused(
    console: &PagesContext,
    visit: RequestContext,
    caller: &Caller,
    failure: Failure,
    (action, field): (&str, &str),
    typed: TypedForms,
) -> Response {
    let refusal = match failure {
        Failure::Refusal(refusal) => refusal,
        fault => return failed(console, &visit, caller, &fault),
    };
    let told = RefusedForm::new(visit.text, action, &refusal).otherwise_at(field);
    let visit = visit.refusing(told);
    match read(console, &visit, caller, typed).await {
        Ok(page) => responses::page(console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Me);
    responses::failure(console, visit, Some(frame), failure)
}

/// What is to be removed: a file by its path, a variable by its name, or the script.
#[derive(Deserialize, Default)]
#[serde(default)]
struct RemovedItem {
    kind: String,
    name: String,
}

/// `GET /me/startup/remove`: asks first.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(item): Query<RemovedItem>,
) -> Response {
    let t = visit.text;
    match known(&console, &caller, &item).await {
        Ok(()) => {}
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    }
    let title = match item.kind.as_str() {
        "script" => t.start_up_remove_script().to_owned(),
        _ => t.start_up_remove_title(&item.name),
    };
    let frame = layout(&console, &visit, &caller, Nav::Me);
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.start_up_remove_lead());
    page.form = Some(DialogForm {
        action: REMOVE.to_owned(),
        fields: vec![("kind", item.kind), ("name", item.name)],
        icon: "trash-2",
        go: t.start_up_remove().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Me, page)
}

/// Errors: the refusal of what is not there.
async fn known(console: &PagesContext, caller: &Caller, item: &RemovedItem) -> Result<(), Failure> {
    match item.kind.as_str() {
        "script" => start_up::script(&console.server, caller).await.map(drop),
        "variable" => {
            let all = start_up::variables(&console.server, caller).await?;
            let missing = || Failure::from(refusals::variable_not_found());
            let mut same = all.iter().filter(|variable| variable.name == item.name);
            same.next().map(drop).ok_or_else(missing)
        }
        _ => {
            let file = start_up::dotfile(&console.server, caller, &item.name);
            file.await.map(drop)
        }
    }
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(item): Form<RemovedItem>,
) -> Response {
    let removed = match item.kind.as_str() {
        "script" => start_up::remove_script(&console.server, &caller).await,
        "variable" => start_up::remove_variable(&console.server, &caller, &item.name).await,
        _ => start_up::remove_dotfile(&console.server, &caller, &item.name).await,
    };
    match removed {
        Ok(()) => responses::see_with(PATH, "start-up-gone", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
