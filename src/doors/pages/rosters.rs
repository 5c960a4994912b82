//! `/users/import`: a roster is sent as a file, shown row by row with what it would do, applied, and undone. The file
//! comes back with the plan, so that the server keeps no passwords.

use api::rosters::{RosterAction, RosterPlan, RosterRow, RosterSlip, RosterView};
use askama::Template;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Form, Multipart, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::TenantState;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::users::Suspension;
use server::actions::{rosters, tenancy};

use super::authentication::PageCaller;
use super::choice_field::{ChoiceField, MAX_LISTED};
use super::components::{self, Alert, Choice};
use super::dialog::{self, DialogForm};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::projects::role_name;
use super::request_context::RequestContext;
use super::users::{SuspensionForm, failed, question};
use super::{PagesContext, layout, responses};
use crate::doors::text::{Text, codes};

const PATH: &str = "/users/import";
/// Bytes of a form that brings a roster: two MiB of it, as text of a form.
const MAX_FORM_BYTES: usize = 3 << 20;
/// Rows of a plan that the page shows; those with faults come first. Higher: a page of a large roster is slow.
const MAX_SHOWN: usize = 200;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/roster.html")]
pub struct RosterPage {
    pub t: Text,
    pub f: PageLayout,
    pub project: ProjectField,
    pub plan: Option<ShownPlan>,
    pub applied: Option<ShownSlips>,
    pub past: Vec<PastRoster>,
}

/// How the form asks for the project of rows that name none.
pub enum ProjectField {
    /// There is one.
    Nothing,
    Listed(Vec<Choice>),
    /// There are too many to list.
    Typed(ChoiceField),
}

impl ProjectField {
    fn of(t: Text, open: Vec<Choice>, chosen: &str) -> Self {
        match open.len() {
            0..=1 => Self::Nothing,
            2..=MAX_LISTED => Self::Listed(open),
            _ => Self::Typed(ChoiceField::of(t, open, chosen)),
        }
    }
}

/// A plan as the page shows it.
pub struct ShownPlan {
    pub sum: String,
    /// Why it was refused, or how many rows have faults.
    pub alert: Option<Alert>,
    pub rows: Vec<ShownRow>,
    /// How many rows are not shown; empty for none.
    pub more: String,
    /// What is sent to apply it; None while a row has a fault or nothing would change.
    pub apply: Option<AppliedFields>,
}

pub struct AppliedFields {
    pub csv: String,
    pub project: String,
    pub digest: String,
    pub go: String,
}

pub struct ShownRow {
    pub line: u32,
    pub name: String,
    pub full_name: String,
    pub email: String,
    pub project: String,
    pub role: String,
    pub policy: String,
    pub until: String,
    pub tone: &'static str,
    pub action: &'static str,
    /// `email: Another account has this address.`
    pub faults: Vec<String>,
}

/// What new users are handed.
pub struct ShownSlips {
    pub title: String,
    pub slips: Vec<(String, String, String)>,
    /// Why there are no slips; empty where there are.
    pub none: String,
    /// Where users sign in.
    pub address: String,
}

/// A roster that was applied.
pub struct PastRoster {
    pub id: String,
    pub when: String,
    pub facts: String,
    /// When it was undone; empty: it can be.
    pub undone: String,
    /// How many accounts of it are suspended, in words; empty for none.
    pub suspended: String,
    /// Accounts that it made are active, and the reader may suspend users.
    pub may_suspend: bool,
    /// Accounts that it made are suspended, and the reader may admit them again.
    pub may_restore: bool,
}

pub(super) fn router() -> Router<PagesContext> {
    let large = || DefaultBodyLimit::max(MAX_FORM_BYTES);
    Router::new()
        .route("/users/import", get(show).post(plan).layer(large()))
        .route("/users/import/apply", post(apply).layer(large()))
        .route("/users/import/{id}", get(applied))
        .route("/users/import/{id}/undo", get(ask_undo).post(undo))
        .route(
            "/users/import/{id}/suspend",
            get(ask_suspension).post(suspend),
        )
        .route("/users/import/{id}/restore", post(restore))
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    answer(&console, &visit, &caller, StatusCode::OK, "", None, None).await
}

async fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
    project: &str,
    plan: Option<ShownPlan>,
    applied: Option<ShownSlips>,
) -> Response {
    let past = match rosters::list(&console.server, caller).await {
        Ok(past) => past,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let project = match asked_project(console, visit.text, caller, project).await {
        Ok(project) => project,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let page = RosterPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Users),
        project,
        plan,
        applied,
        past: past
            .iter()
            .map(|one| past_roster(visit, caller, one))
            .collect(),
    };
    responses::page(console, visit, status, &page)
}

/// The projects that the caller may fill, as the form asks for one.
async fn asked_project(
    console: &PagesContext,
    t: Text,
    caller: &Caller,
    chosen: &str,
) -> Result<ProjectField, Failure> {
    let known = tenancy::projects(&console.server, caller).await?;
    let open: Vec<Choice> = known
        .iter()
        .filter(|one| one.writable && one.state == TenantState::Active)
        .map(|one| {
            let path = format!("{}/{}", one.domain, one.name);
            let name = format!("{} / {}", one.domain, one.name);
            let is_chosen = path == chosen;
            Choice::new(path, name, is_chosen)
        })
        .collect();
    Ok(ProjectField::of(t, open, chosen))
}

fn past_roster(visit: &RequestContext, caller: &Caller, roster: &RosterView) -> PastRoster {
    let t = visit.text;
    let may_change = roster.undone_at.is_none() && caller.subject.can(Permission::UsersWrite);
    PastRoster {
        id: roster.id.to_string(),
        when: visit.clock.date(roster.applied_at),
        facts: t.rosters_facts(roster.actor.as_str(), did(t, roster)),
        undone: roster
            .undone_at
            .map_or_else(String::new, |at| t.rosters_undone(visit.clock.date(at))),
        suspended: match roster.suspended {
            0 => String::new(),
            n => t.rosters_suspended(u64::from(n)),
        },
        may_suspend: may_change && roster.active > 0,
        may_restore: may_change && roster.suspended > 0,
    }
}

/// What a roster did, without what it did not: `2 new accounts, 1 changed`.
fn did(t: Text, roster: &RosterView) -> String {
    let [creates, joins, changes] = [roster.creates, roster.joins, roster.changes].map(u64::from);
    let parts = [
        (creates, t.rosters_new_accounts(creates)),
        (joins, t.rosters_joined(joins)),
        (changes, t.rosters_changed(changes)),
    ];
    let told = parts.into_iter().filter(|(number, _)| *number > 0);
    let told: Vec<String> = told.map(|(_, words)| words).collect();
    match told.is_empty() {
        true => t.rosters_nothing().to_owned(),
        false => told.join(", "),
    }
}

/// `POST /users/import`: what the file would do. Changes nothing.
async fn plan(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    mut form: Multipart,
) -> Response {
    let (mut file, mut project) = (Vec::new(), String::new());
    loop {
        let field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(_) => return refused(&console, &visit, &caller, "", &cut()).await,
        };
        let name = field.name().unwrap_or_default().to_owned();
        match (name.as_str(), field.bytes().await) {
            ("roster", Ok(bytes)) => file = bytes.to_vec(),
            ("project", Ok(bytes)) => project = String::from_utf8_lossy(&bytes).trim().to_owned(),
            (_, Ok(_)) => {}
            (_, Err(_)) => return refused(&console, &visit, &caller, &project, &cut()).await,
        }
    }
    // Else each row that names no project would say the same.
    if !project.is_empty()
        && let Err(Failure::Refusal(refusal)) =
            tenancy::project(&console.server, &caller, &project).await
    {
        let form = RefusedForm::new(visit.text, PATH, &refusal).at("project");
        let visit = visit.refusing(form);
        let status = responses::status(&refusal);
        return answer(&console, &visit, &caller, status, &project, None, None).await;
    }
    planned(&console, &visit, &caller, &file, &project, None).await
}

fn cut() -> Refusal {
    refusals::roster_too_large(2, 5_000)
}

/// The plan of a file, below the refusal where there is one.
async fn planned(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    file: &[u8],
    project: &str,
    refusal: Option<Refusal>,
) -> Response {
    let chosen = Some(project).filter(|project| !project.is_empty());
    match rosters::plan(&console.server, caller, file, chosen).await {
        Ok(plan) => {
            let status = match (&refusal, plan.faulty) {
                (Some(refusal), _) => responses::status(refusal),
                (None, 0) => StatusCode::OK,
                (None, _) => StatusCode::UNPROCESSABLE_ENTITY,
            };
            let shown = shown_plan(visit, file, project, &plan, refusal.as_ref());
            answer(console, visit, caller, status, project, Some(shown), None).await
        }
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::ProjectsRead) => {
            refused(console, visit, caller, project, &refusal).await
        }
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

/// The form again, with what is wrong at the file.
async fn refused(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    project: &str,
    refusal: &Refusal,
) -> Response {
    let form = RefusedForm::new(visit.text, PATH, refusal).at("roster");
    let visit = visit.refusing(form);
    let status = responses::status(refusal);
    answer(console, &visit, caller, status, project, None, None).await
}

fn shown_plan(
    visit: &RequestContext,
    file: &[u8],
    project: &str,
    plan: &RosterPlan,
    refusal: Option<&Refusal>,
) -> ShownPlan {
    let t = visit.text;
    let sum = t.rosters_sum(
        u64::from(plan.creates),
        u64::from(plan.joins),
        u64::from(plan.changes),
        u64::from(plan.unchanged),
    );
    let alert = match (refusal, plan.faulty) {
        (Some(refusal), _) => {
            Some(Alert::bad(codes::refusal(t, refusal)).code(refusal.code.clone()))
        }
        (None, 0) => None,
        (None, faulty) => Some(Alert::bad(t.rosters_faulty(u64::from(faulty)))),
    };
    let mut rows: Vec<&RosterRow> = plan.rows.iter().collect();
    rows.sort_by_key(|row| row.action != RosterAction::Fault);
    let acts = plan.creates + plan.joins + plan.changes;
    ShownPlan {
        sum,
        alert,
        more: match rows.len().saturating_sub(MAX_SHOWN) {
            0 => String::new(),
            more => t.rosters_more(more as u64),
        },
        rows: rows
            .into_iter()
            .take(MAX_SHOWN)
            .map(|row| shown_row(visit, row))
            .collect(),
        apply: (plan.faulty == 0 && acts > 0).then(|| AppliedFields {
            csv: BASE64.encode(file),
            project: project.to_owned(),
            digest: plan.digest.clone(),
            go: t.rosters_apply(u64::from(acts)),
        }),
    }
}

fn shown_row(visit: &RequestContext, row: &RosterRow) -> ShownRow {
    let t = visit.text;
    let (tone, action) = match row.action {
        RosterAction::Create => ("ok", t.rosters_create()),
        RosterAction::Join => ("ok", t.rosters_join()),
        RosterAction::Change => ("warn", t.rosters_change()),
        RosterAction::Unchanged => ("", t.rosters_unchanged()),
        RosterAction::Fault => ("bad", t.rosters_fault()),
    };
    ShownRow {
        line: row.line,
        name: row.name.clone(),
        full_name: row.full_name.clone(),
        email: row.email.clone(),
        project: row.project.clone(),
        role: role_name(t, row.role).to_owned(),
        policy: row.policy.clone(),
        until: row
            .expires_at
            .map_or_else(String::new, |at| visit.clock.last_day(at)),
        tone,
        action,
        faults: row
            .faults
            .iter()
            .map(|fault| format!("{}: {}", fault.column, codes::refusal(t, &fault.refusal)))
            .collect(),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ApplyForm {
    csv: String,
    project: String,
    digest: String,
}

/// `POST /users/import/apply`: takes the file in as it was planned. Leads to the page that shows the passwords, so that a
/// reload takes nothing in again.
async fn apply(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<ApplyForm>,
) -> Response {
    let file = BASE64.decode(sent.csv.trim()).unwrap_or_default();
    let project = Some(sent.project.trim()).filter(|project| !project.is_empty());
    let applied = rosters::apply(&console.server, &caller, &file, project, &sent.digest).await;
    match applied {
        Ok(applied) => {
            let place = format!("{PATH}/{}", applied.id);
            let made = &console.made_slips;
            made.keep(caller.subject.user, applied.id, applied.slips);
            responses::see(&place)
        }
        Err(Failure::Refusal(refusal)) => {
            planned(
                &console,
                &visit,
                &caller,
                &file,
                &sent.project,
                Some(refusal),
            )
            .await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /users/import/{id}`: a roster that was applied, with the passwords while they can be shown.
async fn applied(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let past = match rosters::list(&console.server, &caller).await {
        Ok(past) => past,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let Some(roster) = past.iter().find(|one| one.id.to_string() == id) else {
        let refusal = refusals::roster_not_found();
        return failed(&console, &visit, &caller, &refusal.into());
    };
    let slips = console.made_slips.of(caller.subject.user, roster.id);
    let shown = shown_slips(&visit, roster, slips.unwrap_or_default());
    let status = StatusCode::OK;
    answer(&console, &visit, &caller, status, "", None, Some(shown)).await
}

fn shown_slips(visit: &RequestContext, roster: &RosterView, slips: Vec<RosterSlip>) -> ShownSlips {
    let t = visit.text;
    let scheme = if visit.secure { "https" } else { "http" };
    ShownSlips {
        title: t.rosters_done(did(t, roster)),
        none: match (roster.undone_at, roster.creates) {
            (Some(at), _) => t.rosters_undone(visit.clock.date(at)),
            (None, 0) => t.rosters_no_slips().to_owned(),
            (None, _) => t.rosters_slips_gone().to_owned(),
        },
        slips: slips
            .into_iter()
            .filter(|_| roster.undone_at.is_none())
            .map(|slip| (slip.name, slip.full_name, slip.password))
            .collect(),
        address: format!("{scheme}://{}", visit.authority),
    }
}

/// A question about a roster that was applied. `asks` gives its title, its sentence, and what is sent.
async fn ask(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asks: impl FnOnce(&PastRoster) -> (String, &'static str, Option<DialogForm>),
) -> Response {
    let past = match rosters::list(&console.server, caller).await {
        Ok(past) => past,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let Some(roster) = past.iter().find(|one| one.id.to_string() == id) else {
        let refusal = refusals::roster_not_found();
        return failed(console, visit, caller, &refusal.into());
    };
    let shown = past_roster(visit, caller, roster);
    let (title, lead, form) = asks(&shown);
    let mut page = question(console, visit, caller, title, lead);
    page.items = vec![shown.facts];
    page.form = form;
    page.back = PATH.to_owned();
    dialog::answer(console, visit, Nav::Users, page)
}

/// `GET /users/import/{id}/undo`: what undoing means, and the button.
async fn ask_undo(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    ask(&console, &visit, &caller, &id, |shown| {
        let form = DialogForm {
            action: format!("{PATH}/{id}/undo"),
            fields: Vec::new(),
            icon: "rotate-ccw",
            go: t.rosters_undo().to_owned(),
            ends: true,
            force: None,
        };
        let title = t.rosters_undo_title(shown.when.as_str());
        (title, t.rosters_undo_lead(), Some(form))
    })
    .await
}

/// `GET /users/import/{id}/suspend`: what ends for its users, and the buttons.
async fn ask_suspension(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    ask(&console, &visit, &caller, &id, |shown| {
        let form = shown.may_suspend.then(|| DialogForm {
            action: format!("{PATH}/{id}/suspend"),
            fields: Vec::new(),
            icon: "ban",
            go: t.users_suspend().to_owned(),
            ends: true,
            force: Some(t.rosters_suspend_stop().to_owned()),
        });
        let title = t.rosters_suspend_title(shown.when.as_str());
        (title, t.rosters_suspend_lead(), form)
    })
    .await
}

async fn suspend(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<SuspensionForm>,
) -> Response {
    match rosters::suspend(&console.server, &caller, &id, sent.asked()).await {
        Ok(done) => responses::see_with(PATH, "roster-suspended", &done.users.to_string()),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /users/import/{id}/restore`: its users may sign in again.
async fn restore(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match rosters::suspend(&console.server, &caller, &id, Suspension::Lifted).await {
        Ok(done) => responses::see_with(PATH, "roster-restored", &done.users.to_string()),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn undo(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match rosters::undo(&console.server, &caller, &id).await {
        Ok(roster) => {
            let gone = roster.creates.to_string();
            responses::see_with(PATH, "roster-undone", &gone)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[cfg(test)]
mod tests {
    use rules::units::Timestamp;

    use super::*;

    #[test]
    fn of_many_projects_one_is_typed() {
        let field = |count: usize| {
            let choice = |n: usize| Choice::new(n.to_string(), "a", false);
            let all = (0..count).map(choice).collect();
            ProjectField::of(Text::default(), all, "default/vision")
        };
        for count in [0, 1] {
            assert!(matches!(field(count), ProjectField::Nothing), "{count}");
        }
        for count in [2, MAX_LISTED] {
            let listed = matches!(field(count), ProjectField::Listed(all) if all.len() == count);
            assert!(listed, "{count}");
        }
        let ProjectField::Typed(many) = field(MAX_LISTED + 1) else {
            panic!("a list of more than {MAX_LISTED}");
        };
        let shown = many.control("project", "", "");
        assert!(shown.as_str().contains(" value=\"default/vision\""));
    }

    #[test]
    fn a_roster_is_told_without_what_it_did_not_do() {
        let t = Text::default();
        let roster = |creates, joins, changes| RosterView {
            id: uuid::Uuid::nil(),
            creates,
            joins,
            changes,
            actor: "boss".into(),
            applied_at: Timestamp::default(),
            undone_at: None,
            active: creates,
            suspended: 0,
        };
        for (of, told) in [
            (roster(2, 0, 1), "2 new accounts, 1 changed"),
            (roster(0, 3, 0), "3 joined a project"),
            (
                roster(1, 1, 1),
                "1 new account, 1 joined a project, 1 changed",
            ),
            (roster(0, 0, 0), "nothing changed"),
        ] {
            assert_eq!(did(t, &of), told);
        }
    }
}
