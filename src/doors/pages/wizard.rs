//! `/setup/time` to `/setup/report`: the rest of the installation, step by step, for administrators. Each step
//! can be left and taken up again. Never changes the machine's clock or disks; it says by which command that is done.

mod report;

use std::time::Duration;

use api::sessions::SessionView;
use api::users::UserPreferences;
use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use rules::permissions::Permission;
use rules::refusals;
use rules::session::SessionState;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::certificates;
use server::actions::installation::{self, SetupProgress, Step, TrialMeasurement};
use server::actions::sessions;
use server::actions::{images, system, users};

use super::authentication::PageCaller;
use super::choice_field::ChoiceField;
use super::components::{self, Choice};
use super::form_faults::RefusedForm;
use super::layout::PageLayout;
use super::request_context::{RequestContext, taste, zones};
use super::trust::AuthorityView;
use super::{PagesContext, guest, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/wizard.html")]
pub struct WizardPage {
    pub t: Text,
    pub f: PageLayout,
    pub stairs: Vec<Stair>,
    pub view: WizardView,
    pub zones: Vec<Choice>,
    /// Milliseconds since 1970 as this machine has it, to compare with the browser's.
    pub moment: i64,
    /// The word of the step in its address.
    pub step: &'static str,
    pub before: Option<&'static str>,
    pub go: &'static str,
    /// Going on is the main thing to do on this page.
    pub main: bool,
    /// The last page: nothing is left to do later.
    pub last: bool,
}

/// One step in the list at the top.
pub struct Stair {
    pub number: usize,
    pub name: &'static str,
    pub href: Option<&'static str>,
    pub done: bool,
    pub here: bool,
    pub class: &'static str,
}

/// What a step shows.
pub enum WizardView {
    Time {
        now: String,
        zone: String,
        warning: Option<String>,
    },
    Certificate {
        authority: Option<AuthorityView>,
    },
    Environment {
        environments: Vec<EnvironmentChoice>,
        ready: bool,
    },
    Test {
        environments: ChoiceField,
        result: Option<TrialOutcome>,
    },
    Report {
        facts: Vec<(&'static str, String)>,
        machines: Vec<(String, String)>,
        measured: Vec<(&'static str, String)>,
        checks: Vec<Looked>,
        /// GPUs by machine and model.
        devices: Vec<(String, String)>,
        next: Vec<NextTask>,
    },
}

/// Something to do after the installation.
pub struct NextTask {
    pub href: &'static str,
    pub icon: &'static str,
    pub name: &'static str,
    pub lead: String,
}

/// Something that sessions can start from.
pub struct EnvironmentChoice {
    pub name: String,
    pub note: String,
}

/// What the test came to.
pub struct TrialOutcome {
    pub class: &'static str,
    pub icon: &'static str,
    pub title: &'static str,
    pub text: String,
    pub facts: Vec<(&'static str, String)>,
    pub href: String,
}

/// One check of the report.
pub struct Looked {
    pub icon: &'static str,
    pub tone: &'static str,
    pub text: String,
}

/// What goes with a step that is done.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct StepForm {
    zone: Option<String>,
}

/// A page of the wizard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WizardStepPage {
    Of(Step),
    Report,
}

impl WizardStepPage {
    const ALL: [WizardStepPage; 5] = [
        WizardStepPage::Of(Step::Time),
        WizardStepPage::Of(Step::Certificate),
        WizardStepPage::Of(Step::Environment),
        WizardStepPage::Of(Step::Test),
        WizardStepPage::Report,
    ];

    fn of(word: &str) -> Option<WizardStepPage> {
        WizardStepPage::ALL
            .into_iter()
            .find(|page| page.word() == word)
    }

    fn word(self) -> &'static str {
        match self {
            WizardStepPage::Of(step) => step.word(),
            WizardStepPage::Report => "report",
        }
    }

    fn href(self) -> &'static str {
        match self {
            WizardStepPage::Of(Step::Time) => "/setup/time",
            WizardStepPage::Of(Step::Certificate) => "/setup/certificate",
            WizardStepPage::Of(Step::Environment) => "/setup/environment",
            WizardStepPage::Of(Step::Test) => "/setup/test",
            WizardStepPage::Report => "/setup/report",
        }
    }

    fn name(self, t: Text) -> &'static str {
        match self {
            WizardStepPage::Of(Step::Time) => t.wizard_time(),
            WizardStepPage::Of(Step::Certificate) => t.wizard_certificate(),
            WizardStepPage::Of(Step::Environment) => t.wizard_environment(),
            WizardStepPage::Of(Step::Test) => t.wizard_test(),
            WizardStepPage::Report => t.wizard_report(),
        }
    }

    fn place(self) -> usize {
        WizardStepPage::ALL
            .iter()
            .position(|page| *page == self)
            .unwrap_or(0)
    }
}

const TIME: WizardStepPage = WizardStepPage::Of(Step::Time);
const CERTIFICATE: WizardStepPage = WizardStepPage::Of(Step::Certificate);

/// How long a page waits for the test session to end before it says that it still runs.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the form of the test is sent.
const RUN: &str = "/setup/test/run";
/// Where the form of the time is sent.
const ZONE_FIELD: &str = "/setup/time";

/// `GET /setup/{step}`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(step): Path<String>,
) -> Response {
    let Some(page) = WizardStepPage::of(&step) else {
        return unknown(&console, &visit);
    };
    if page == WizardStepPage::Report {
        finish_complete(&console, &caller).await;
    }
    render(&console, &visit, &caller, page, StatusCode::OK).await
}

/// Ends an installation of which no step is open: who reads its report may go on by any link of it. Without its record
/// the wizard is only taken up again.
async fn finish_complete(console: &PagesContext, caller: &Caller) {
    let place = open_place(console, caller).await;
    if place != Some(WizardStepPage::Report.href()) || !caller.subject.can(Permission::SystemWrite)
    {
        return;
    }
    if let Err(failure) = installation::finish(&console.server, caller).await {
        tracing::warn!(error = %failure, "the end of the installation could not be saved");
    }
}

fn unknown(console: &PagesContext, visit: &RequestContext) -> Response {
    let refusal = refusals::page_unknown();
    responses::refused(console, visit, None, &refusal)
}

async fn render(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    page: WizardStepPage,
    status: StatusCode,
) -> Response {
    match read(console, visit, caller, page, None).await {
        Ok(page) => responses::page(console, visit, status, &page),
        Err(failure) => responses::failure(console, visit, None, &failure),
    }
}

/// `POST /setup/{step}`: done, and on to the next.
pub async fn submit(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(step): Path<String>,
    Form(typed): Form<StepForm>,
) -> Response {
    let Some(page) = WizardStepPage::of(&step) else {
        return unknown(&console, &visit);
    };
    let zone = typed.zone.as_deref().filter(|_| page == TIME);
    if let Some(zone) = zone
        && jiff::tz::TimeZone::get(zone).is_err()
    {
        let refusal = refusals::time_zone_unknown();
        let status = responses::status(&refusal);
        let visit = visit.refusing(RefusedForm::new(visit.text, ZONE_FIELD, &refusal).at("zone"));
        return match read(&console, &visit, &caller, page, None).await {
            Ok(page) => {
                let page = WizardPage {
                    zones: zones(zone),
                    ..page
                };
                responses::page(&console, &visit, status, &page)
            }
            Err(failure) => responses::failure(&console, &visit, None, &failure),
        };
    }
    let steps = steps(&console).await;
    let (done, next) = match page {
        WizardStepPage::Of(step) => {
            let later = &WizardStepPage::ALL[page.place() + 1..];
            let next = later.iter().find(|page| steps.contains(page));
            let next = next.unwrap_or(&WizardStepPage::Report).href();
            let mut done = installation::done(&console.server, &caller, step).await;
            // A step with nothing to do is done with the one before it.
            if done.is_ok() && page == TIME && !steps.contains(&CERTIFICATE) {
                done = installation::done(&console.server, &caller, Step::Certificate).await;
            }
            (done, next)
        }
        WizardStepPage::Report => (installation::finish(&console.server, &caller).await, "/"),
    };
    if let Err(failure) = done {
        return responses::failure(&console, &visit, None, &failure);
    }
    let mut response = responses::see(next);
    if let Some(zone) = zone {
        keep_zone(&console, &visit, &caller, zone, &mut response).await;
    }
    response
}

/// The chosen zone, for this browser and for the account.
async fn keep_zone(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    zone: &str,
    response: &mut Response,
) {
    if let Ok(cookie) = HeaderValue::try_from(taste(visit, "fardel_zone", zone)) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    let preferences = UserPreferences {
        time_zone: Some(zone.to_owned()),
        ..UserPreferences::default()
    };
    // This browser has its cookie already; the account only carries it to the next one.
    if let Err(failure) = users::set_me(&console.server, caller, preferences).await {
        tracing::warn!(error = %failure, "the time zone was not kept with the account");
    }
}

/// The steps with something to do: without a certificate of its own, a machine has none to trust.
async fn steps(console: &PagesContext) -> Vec<WizardStepPage> {
    let encrypted = certificates::trust(&console.server).await.is_ok();
    WizardStepPage::ALL
        .into_iter()
        .filter(|page| encrypted || *page != CERTIFICATE)
        .collect()
}

#[derive(Deserialize)]
pub struct Chosen {
    image: String,
}

/// `POST /setup/test/run`
pub async fn run(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(chosen): Form<Chosen>,
) -> Response {
    let launched = installation::test(&console.server, &caller, &chosen.image).await;
    let session = match launched {
        Ok(session) => session,
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(visit.text, RUN, &refusal).at("image");
            let status = responses::status(&refusal);
            let visit = visit.refusing(form);
            let page = WizardStepPage::Of(Step::Test);
            return match read(&console, &visit, &caller, page, Some(&chosen.image)).await {
                Ok(page) => responses::page(&console, &visit, status, &page),
                Err(failure) => responses::failure(&console, &visit, None, &failure),
            };
        }
        Err(fault) => return responses::failure(&console, &visit, None, &fault),
    };
    let id = session.id.to_string();
    let over = async {
        loop {
            match sessions::get(&console.server, &caller, &id).await {
                Ok(session) if session.state != SessionState::Ended => {}
                _ => return,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // Where no machine answers, the page shows that it waits.
    let _ = tokio::time::timeout(TRIAL_TIMEOUT, over).await;
    responses::see("/setup/test")
}

/// Where the wizard goes on; None where it was never begun, or is over, or is not theirs.
pub async fn open_place(console: &PagesContext, caller: &Caller) -> Option<&'static str> {
    let progress = installation::progress(&console.server, caller).await.ok()?;
    if progress.began_at.is_none() || progress.finished_at.is_some() {
        return None;
    }
    let steps = steps(console).await;
    let open = progress.steps.iter().filter(|(_, done)| done.is_none());
    let next = open
        .map(|(step, _)| WizardStepPage::Of(*step))
        .find(|page| steps.contains(page));
    Some(next.unwrap_or(WizardStepPage::Report).href())
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    page: WizardStepPage,
    image: Option<&str>,
) -> Result<WizardPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let now = server.clock().now();
    let progress = installation::progress(server, caller).await?;
    let view = match page {
        WizardStepPage::Of(Step::Time) => {
            let worries = system::warnings(server, caller).await?;
            let wrong = worries
                .iter()
                .find(|worry| worry.code.starts_with(rules::codes::family::CLOCK));
            WizardView::Time {
                now: format!("{}, {}", visit.clock.day(now), visit.clock.second(now)),
                zone: visit.clock.name().to_owned(),
                warning: wrong.map(|w| codes::notice(t, &w.code, &w.text, &w.hint)),
            }
        }
        WizardStepPage::Of(Step::Certificate) => WizardView::Certificate {
            authority: certificates::trust(server)
                .await
                .ok()
                .map(AuthorityView::from),
        },
        WizardStepPage::Of(Step::Environment) => {
            let (environments, ready) = environments(console, caller, t).await?;
            WizardView::Environment {
                environments,
                ready,
            }
        }
        WizardStepPage::Of(Step::Test) => {
            let sent = image.unwrap_or_default();
            let (environments, _) = environments(console, caller, t).await?;
            let choice = |(n, one): (usize, EnvironmentChoice)| {
                let chosen = one.name == sent || (n == 0 && sent.is_empty());
                Choice::new(one.name.clone(), one.name, chosen)
            };
            let choices = environments.into_iter().enumerate().map(choice).collect();
            WizardView::Test {
                environments: ChoiceField::of(t, choices, sent),
                result: progress.test.as_ref().map(|session| outcome(t, session)),
            }
        }
        WizardStepPage::Report => {
            let found = installation::report(server, caller).await?;
            let next = report::next_tasks(console, caller, t, &found).await?;
            report::report(t, visit, caller, found, next)
        }
    };
    let steps = steps(console).await;
    let last = page == WizardStepPage::Report;
    let untested = matches!(&view, WizardView::Test { result: None, .. });
    let earlier = &WizardStepPage::ALL[..page.place()];
    Ok(WizardPage {
        t,
        f: guest(console, visit),
        stairs: stairs(t, page, &progress, &steps),
        view,
        zones: zones(visit.clock.name()),
        moment: now.as_millis(),
        step: page.word(),
        before: earlier
            .iter()
            .rfind(|page| steps.contains(page))
            .map(|page| page.href()),
        go: match (last, untested) {
            (true, _) => t.wizard_finish(),
            (false, true) => t.wizard_skip(),
            (false, false) => t.wizard_next(),
        },
        main: !untested,
        last,
    })
}

pub fn stairs_of(t: Text, here: usize, done: usize) -> Vec<Stair> {
    let first = Stair {
        number: 1,
        name: t.wizard_administrator(),
        href: None,
        done: true,
        here: false,
        class: "done",
    };
    let rest = WizardStepPage::ALL
        .into_iter()
        .enumerate()
        .map(|(at, page)| Stair {
            number: at + 2,
            name: page.name(t),
            href: Some(page.href()),
            done: at < done,
            here: at == here,
            class: if at == here { "here" } else { "" },
        });
    std::iter::once(first).chain(rest).collect()
}

fn stairs(
    t: Text,
    here: WizardStepPage,
    progress: &SetupProgress,
    steps: &[WizardStepPage],
) -> Vec<Stair> {
    let mut stairs = stairs_of(t, here.place(), 0);
    for (stair, (_, done)) in stairs.iter_mut().skip(1).zip(&progress.steps) {
        stair.done = done.is_some();
    }
    if let Some(last) = stairs.last_mut() {
        last.done = progress.finished_at.is_some();
    }
    let shown = |stair: &Stair| {
        let of = |page: &WizardStepPage| Some(page.href()) == stair.href;
        stair.href.is_none() || steps.iter().any(of)
    };
    stairs.retain(shown);
    for (at, stair) in stairs.iter_mut().enumerate() {
        stair.number = at + 1;
    }
    stairs
}

/// What sessions can start from, and whether there is anything.
async fn environments(
    console: &PagesContext,
    caller: &Caller,
    t: Text,
) -> Result<(Vec<EnvironmentChoice>, bool), Failure> {
    let overview = sessions::overview(&console.server, caller).await?;
    let mut found = Vec::new();
    if overview
        .machines
        .iter()
        .any(|machine| machine.host_environment)
    {
        found.push(EnvironmentChoice {
            name: "host".to_owned(),
            note: t.wizard_environment_host().to_owned(),
        });
    }
    let mut known = images::list(&console.server, caller).await?;
    known.retain(|image| image.is_open_to(caller.subject.user));
    for image in known {
        found.push(EnvironmentChoice {
            name: image.reference,
            note: image.size.to_string(),
        });
    }
    let ready = !found.is_empty();
    Ok((found, ready))
}

fn outcome(t: Text, session: &SessionView) -> TrialOutcome {
    let href = format!("/sessions/{}", session.id);
    let reason = session
        .reason
        .as_ref()
        .map(|reason| codes::reason(t, reason));
    let reason = reason.unwrap_or_default();
    match installation::measured(session) {
        None => TrialOutcome {
            class: "wait",
            icon: "hourglass",
            title: t.wizard_test_waits(),
            text: reason,
            facts: Vec::new(),
            href,
        },
        Some(measured) if measured.passed => TrialOutcome {
            class: "ok",
            icon: "circle-check",
            title: t.wizard_test_passed(),
            text: reason,
            facts: facts(t, &measured),
            href,
        },
        Some(measured) => TrialOutcome {
            class: "never",
            icon: "circle-x",
            title: t.wizard_test_failed(),
            text: reason,
            facts: facts(t, &measured),
            href,
        },
    }
}

fn facts(t: Text, measured: &TrialMeasurement) -> Vec<(&'static str, String)> {
    let held = if measured.limit_held {
        t.wizard_yes()
    } else {
        t.wizard_no()
    };
    vec![
        (
            t.wizard_started_in(),
            components::took(t, measured.start_milliseconds),
        ),
        (
            t.wizard_counted_in(),
            components::took(t, measured.ran_milliseconds),
        ),
        (t.wizard_limit_held(), held.to_owned()),
        (
            t.wizard_exit_code(),
            measured
                .exit_code
                .map_or_else(|| "–".to_owned(), |code| code.to_string()),
        ),
    ]
}
