//! `/setup/time` to `/setup/report`: the rest of the installation, step by step, for administrators. Each step
//! can be left and taken up again. Never changes the machine's clock or disks; it says by which command that is done.

use std::time::Duration;

use api::sessions::SessionView;
use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusals;
use rules::session::SessionState;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::certificates;
use server::actions::installation::{self, Report, SetupProgress, Step, TrialMeasurement};
use server::actions::sessions;
use server::actions::{images, system};

use super::authentication::PageCaller;
use super::components::{self, Alert, Choice};
use super::layout::PageLayout;
use super::request_context::{RequestContext, zones};
use super::trust::AuthorityView;
use super::{PagesContext, guest, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/wizard.html")]
pub struct WizardPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub stairs: Vec<Stair>,
    pub view: WizardView,
    pub zones: Vec<Choice>,
    /// Milliseconds since 1970 as this machine has it, to compare with the browser's.
    pub moment: i64,
    /// The word of the step in its address.
    pub step: &'static str,
    pub before: Option<&'static str>,
    pub go: &'static str,
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
        environments: Vec<EnvironmentChoice>,
        result: Option<TrialOutcome>,
    },
    Report {
        facts: Vec<(&'static str, String)>,
        machines: Vec<(String, String)>,
        measured: Vec<(&'static str, String)>,
        checks: Vec<Looked>,
    },
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

/// How long a page waits for the test session to end before it says that it still runs.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(20);

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
    render(&console, &visit, &caller, page, StatusCode::OK, None).await
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
    alert: Option<Alert>,
) -> Response {
    match read(console, visit, caller, page, alert).await {
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
) -> Response {
    let Some(page) = WizardStepPage::of(&step) else {
        return unknown(&console, &visit);
    };
    let (done, next) = match page {
        WizardStepPage::Of(step) => {
            let next = WizardStepPage::ALL[page.place() + 1].href();
            (
                installation::done(&console.server, &caller, step).await,
                next,
            )
        }
        WizardStepPage::Report => (installation::finish(&console.server, &caller).await, "/"),
    };
    match done {
        Ok(()) => responses::see(next),
        Err(failure) => responses::failure(&console, &visit, None, &failure),
    }
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
            let alert = Alert::bad(codes::refusal(visit.text, &refusal));
            let status = responses::status(&refusal);
            let page = WizardStepPage::Of(Step::Test);
            return render(&console, &visit, &caller, page, status, Some(alert)).await;
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
    Some(
        progress
            .next()
            .map_or(WizardStepPage::Report, WizardStepPage::Of)
            .href(),
    )
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    page: WizardStepPage,
    alert: Option<Alert>,
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
                warning: wrong.map(|w| codes::field(t, &w.code, &format!("{} {}", w.text, w.hint))),
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
        WizardStepPage::Of(Step::Test) => WizardView::Test {
            environments: environments(console, caller, t).await?.0,
            result: progress.test.as_ref().map(|session| outcome(t, session)),
        },
        WizardStepPage::Report => report(
            t,
            visit,
            caller,
            installation::report(server, caller).await?,
        ),
    };
    let place = page.place();
    let last = page == WizardStepPage::Report;
    Ok(WizardPage {
        t,
        f: guest(console, visit),
        alert,
        stairs: stairs(t, page, &progress),
        view,
        zones: zones(visit.clock.name()),
        moment: now.as_millis(),
        step: page.word(),
        before: (place > 0).then(|| WizardStepPage::ALL[place - 1].href()),
        go: if last {
            t.wizard_finish()
        } else {
            t.wizard_next()
        },
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

fn stairs(t: Text, here: WizardStepPage, progress: &SetupProgress) -> Vec<Stair> {
    let mut stairs = stairs_of(t, here.place(), 0);
    for (stair, (_, done)) in stairs.iter_mut().skip(1).zip(&progress.steps) {
        stair.done = done.is_some();
    }
    if let Some(last) = stairs.last_mut() {
        last.done = progress.finished_at.is_some();
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
    for image in images::list(&console.server, caller).await? {
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

fn report(t: Text, visit: &RequestContext, caller: &Caller, report: Report) -> WizardView {
    let when = |at: Timestamp| format!("{} {}", visit.clock.day(at), visit.clock.second(at));
    let fingerprint = report.fingerprint.unwrap_or_else(|| "–".to_owned());
    WizardView::Report {
        facts: vec![
            (
                t.wizard_report_at(),
                format!("{} ({})", when(report.at), visit.clock.name()),
            ),
            (t.wizard_report_by(), caller.name.to_string()),
            (
                t.wizard_report_version(),
                format!("fardel {}", report.version),
            ),
            (t.wizard_report_box(), report.installation_id.to_string()),
            (t.wizard_report_addresses(), report.origins.join(", ")),
            (t.trust_fingerprint(), fingerprint),
            (t.nav_images(), report.images.to_string()),
        ],
        machines: report
            .machines
            .iter()
            .map(|machine| {
                let room =
                    t.wizard_report_room(machine.cpu, machine.memory, machine.devices.len() as u64);
                (machine.name.clone(), room)
            })
            .collect(),
        measured: report
            .measured
            .as_ref()
            .map(|m| facts(t, m))
            .unwrap_or_default(),
        checks: report
            .checks
            .iter()
            .map(|check| Looked {
                icon: if check.ok {
                    "circle-check"
                } else {
                    "triangle-alert"
                },
                tone: if check.ok { "ok" } else { "warn" },
                text: format!("{} {}", check.text, check.hint),
            })
            .collect(),
    }
}
