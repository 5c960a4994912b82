//! `/gpus/{id}/test`: the self-test of a card: how far it is, what the newest one found, its signature. Prints
//! as one sheet. What is measured and wanted are figures, the same in every language.

use api::gpus::{SelfTestReport, TestRequest};
use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusals;
use rules::self_test::{TestFinding, TestVerdict};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::gpus;
use server::actions::gpus::prove;

use super::authentication::PageCaller;
use super::choice_field::ChoiceField;
use super::components::{self, Alert, Choice};
use super::form_faults::RefusedForm;
use super::gpus_failure::failed;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, live as stream, presenter, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/gpu_test.html", blocks = ["state", "found"])]
pub struct SelfTestPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub id: String,
    pub name: String,
    pub standing: (&'static str, String),
    /// Why it cannot be tested; none where it can.
    pub never: Option<String>,
    /// The images that a test can start from; empty where the machine offers its own programs.
    pub images: ChoiceField,
    pub may_write: bool,
    pub running: Option<TestProgress>,
    pub found: Option<TestOutcome>,
}

/// A test under way.
pub struct TestProgress {
    pub step: String,
    pub figure: String,
    pub percent: u64,
    pub may_cancel: bool,
}

/// What the newest test found.
pub struct TestOutcome {
    pub passed: bool,
    pub verdict: String,
    pub facts: Vec<(String, String)>,
    pub lines: Vec<TestRow>,
    pub fingerprint: String,
    pub signature: String,
}

pub struct TestRow {
    pub held: bool,
    pub name: String,
    pub subject: String,
    pub measured: String,
    pub wanted: String,
}

/// `GET /gpus/{id}/test`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match page(&console, &visit, &caller, &id, None).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /gpus/{id}/test/live`
pub async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller, id) =
            (console.clone(), visit.clone(), caller.clone(), id.clone());
        async move {
            let counts = stream::menu_counts(&console, &caller).await;
            let page = page(&console, &visit, &caller, &id, None).await.ok()?;
            let mut fragments = vec![
                ("state", page.as_state().render().ok()?),
                ("found", page.as_found().render().ok()?),
            ];
            fragments.extend(counts.map(|counts| ("counts", counts)));
            // How far it is stands in no row.
            let clocked = true;
            Some(stream::LiveParts { fragments, clocked })
        }
    })
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct TestForm {
    /// Empty: the machine's own programs.
    image: String,
}

/// `POST /gpus/{id}/test`
pub async fn begin(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(said): Form<TestForm>,
) -> Response {
    let image = Some(said.image.clone()).filter(|image| !image.is_empty());
    let done = prove::test(&console.server, &caller, &id, TestRequest { image }).await;
    match done {
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::IMAGE_NOT_FOUND => {
            let action = format!("/gpus/{id}/test");
            let form = RefusedForm::new(visit.text, &action, &refusal);
            let visit = visit.refusing(form.with([("image", said.image.as_str())]));
            match page(&console, &visit, &caller, &id, None).await {
                Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
                Err(failure) => failed(&console, &visit, &caller, &failure),
            }
        }
        done => told(&console, &visit, &caller, &id, done.map(|_| ())).await,
    }
}

/// `POST /gpus/{id}/cancel-test`
pub async fn cancel(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
) -> Response {
    let done = call_off(console, caller, id).await;
    told(console, visit, caller, id, done).await
}

/// The page again, with why it was not done where it was not.
async fn told(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    done: Result<(), Failure>,
) -> Response {
    match done {
        Ok(()) => responses::see(&format!("/gpus/{id}/test")),
        Err(Failure::Refusal(refusal)) => {
            let status = responses::status(&refusal);
            let alert = Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
            match page(console, visit, caller, id, Some(alert)).await {
                Ok(page) => responses::page(console, visit, status, &page),
                Err(_) => failed(console, visit, caller, &refusal.into()),
            }
        }
        Err(fault) => failed(console, visit, caller, &fault),
    }
}

async fn call_off(console: &PagesContext, caller: &Caller, id: &str) -> Result<(), Failure> {
    let running = prove::running(&console.server, caller, id).await?;
    let Some(running) = running else {
        return Err(refusals::operation_over().into());
    };
    server::actions::operations::cancel(&console.server, caller, running.id)
        .await
        .map(|_| ())
}

async fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    alert: Option<Alert>,
) -> Result<SelfTestPage, Failure> {
    let t = visit.text;
    let gpu = gpus::get(&console.server, caller, id).await?;
    let report = match prove::report(&console.server, caller, &gpu.id).await {
        Ok(report) => Some(report),
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::GPU_NOT_TESTED => None,
        Err(other) => return Err(other),
    };
    let running = prove::running(&console.server, caller, &gpu.id).await?;
    let may_write = caller
        .subject
        .can(rules::permissions::Permission::SystemWrite);
    let mut images = prove::environments(&console.server, caller, &gpu).await?;
    let never = if gpu.simulated {
        Some(t.self_test_never_simulated().to_owned())
    } else if images.is_empty() {
        Some(codes::refusal(t, &prove::no_environment(&gpu)))
    } else {
        None
    };
    if images.first().is_some_and(|first| first == "host") {
        images.clear();
    }
    let refused = visit.refused.as_ref();
    let sent = refused.map_or("", |form| form.chosen("image"));
    let choice = |(n, name): (usize, String)| {
        let chosen = name == sent || (n == 0 && sent.is_empty());
        Choice::new(name.clone(), name, chosen)
    };
    let choices = images.into_iter().enumerate().map(choice).collect();
    Ok(SelfTestPage {
        t,
        f: PageLayout {
            live: Some(format!("/gpus/{}/test/live", gpu.id)),
            ..layout(console, visit, caller, Nav::Gpus)
        },
        alert,
        name: format!("GPU {}", gpu.index),
        standing: presenter::standing(t, &gpu),
        never,
        images: ChoiceField::of(t, choices, sent),
        may_write,
        running: running.map(|operation| TestProgress {
            percent: (operation.done * 100)
                .checked_div(operation.total)
                .unwrap_or_default()
                .min(100),
            figure: t.common_of_two(operation.done, operation.total),
            step: operation.step,
            may_cancel: may_write && operation.cancelable,
        }),
        found: report.map(|report| found(t, &report)),
        id: gpu.id,
    })
}

fn found(t: Text, report: &SelfTestReport) -> TestOutcome {
    let result = &report.result;
    let verdict = match result.failed() {
        0 => t.self_test_all_held(result.findings.len() as u64),
        failed => t.self_test_some_failed(failed as u64, result.findings.len() as u64),
    };
    let facts = vec![
        (t.gpu_model().to_owned(), result.model.clone()),
        (t.gpu_name().to_owned(), result.device.clone()),
        (t.gpu_machine().to_owned(), result.machine.clone()),
        (t.gpu_memory().to_owned(), components::size(result.memory.0)),
        (t.self_test_driver().to_owned(), result.driver.clone()),
        ("fardel".to_owned(), result.fardel.clone()),
        (t.self_test_at().to_owned(), result.ended_at.to_string()),
        (t.self_test_by().to_owned(), result.by.clone()),
    ];
    TestOutcome {
        passed: result.passed,
        verdict,
        facts,
        lines: result
            .findings
            .iter()
            .map(|finding| line(t, finding))
            .collect(),
        fingerprint: report.fingerprint.clone(),
        signature: report.signature.clone(),
    }
}

fn line(t: Text, finding: &TestFinding) -> TestRow {
    let name = match finding.code.as_str() {
        "memory" => t.self_test_memory(),
        "way" => t.self_test_way(),
        "control" => t.self_test_control(),
        "cards" => t.self_test_cards(),
        "launch" => t.self_test_launch(),
        "share" => t.self_test_share(),
        "neighbour" => t.self_test_neighbour(),
        "trespass" => t.self_test_trespass(),
        // Of a later version: its own word is better than nothing.
        other => other,
    };
    TestRow {
        held: finding.verdict == TestVerdict::Held,
        name: name.to_owned(),
        subject: finding.subject.clone(),
        measured: finding.measured.clone(),
        wanted: finding.wanted.clone(),
    }
}
