//! `/projects`: the projects that the caller may see, making one, and the page of one with its members. What is
//! refused stands at its field.

use api::tenancy::{MemberView, ProjectPatchBody, ProjectView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use rules::grants::GrantRole;
use rules::permissions::Permission;
use rules::tenancy::TenantState;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::{reservations, tenancy, users};

use super::authentication::PageCaller;
use super::choice_field::{ChoiceField, MAX_LISTED};
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, RowAction, TableCell, TableColumn, TableLine,
    TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::typed::point;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/projects";
const CREATE: &str = "/projects/new";
const FILTERS: [&str; 1] = ["q"];

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/projects.html", blocks = ["list"])]
pub struct ProjectsPage {
    pub t: Text,
    pub f: PageLayout,
    pub count: String,
    pub may_create: bool,
    pub filter: FilterBar,
    pub table: DataTable,
}

impl ListPage for ProjectsPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

/// The form of a new project.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/project_form.html")]
pub struct ProjectFormPage {
    pub t: Text,
    pub f: PageLayout,
    pub action: &'static str,
    pub name: String,
    pub title: String,
    /// Empty where the site has one domain.
    pub domains: ChoiceField,
    pub focus: bool,
}

/// One project and its members.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/project.html")]
pub struct ProjectPage {
    pub t: Text,
    pub f: PageLayout,
    pub heading: String,
    /// Its name and domain, below the title.
    pub lead: String,
    pub archived: bool,
    pub writable: bool,
    pub count: String,
    /// Where the form that adds a member goes.
    pub add: String,
    pub rename: String,
    pub state: String,
    pub title: String,
    pub user: String,
    pub roles: Vec<Choice>,
    /// Names of users who are no members.
    pub offered: Vec<String>,
    /// What its leads reserve without a request, and what is left of it.
    pub quota: String,
    /// The form that sets it; None for those who only read it.
    pub quota_form: Option<QuotaForm>,
    pub table: DataTable,
}

/// The field of the reservation quota.
pub struct QuotaForm {
    pub action: String,
    pub gpu_hours: String,
}

type Asked = Query<Vec<(String, String)>>;

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/projects", get(list))
        .route("/projects/new", get(show_new).post(create))
        .route("/projects/{id}", get(show).post(rename))
        .route("/projects/{id}/members", post(add))
        .route("/projects/{id}/state", get(ask_state).post(set_state))
        .route("/projects/{id}/quota", post(set_quota))
        .route(
            "/projects/{id}/members/{user}",
            get(ask_remove).post(remove),
        )
}

pub(super) fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Projects);
    responses::failure(console, visit, Some(frame), failure)
}

pub(super) fn role_name(t: Text, role: GrantRole) -> &'static str {
    match role {
        GrantRole::Member => t.projects_role_member(),
        GrantRole::Viewer => t.projects_role_viewer(),
        GrantRole::Lead => t.projects_role_lead(),
        GrantRole::Auditor => t.projects_role_auditor(),
        GrantRole::Administrator => t.me_role_administrator(),
    }
}

pub(super) fn heading(project: &ProjectView) -> &str {
    match project.title.is_empty() {
        true => &project.name,
        false => &project.title,
    }
}

pub(super) fn address(project: &ProjectView) -> String {
    format!("{PATH}/{}", project.id)
}

/// `GET /projects`.
async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Asked,
) -> Response {
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = read(&console, &visit, &caller, &headers, &asked).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<ProjectsPage, Failure> {
    let t = visit.text;
    let mut known = tenancy::projects(&console.server, caller).await?;
    let count = t.projects_count(known.len() as u64);
    let several = tenancy::domains(&console.server, caller).await?.len() > 1;
    let columns = columns(t, several);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.choose_columns("projects", &columns, asked, headers, visit);
    for word in state.filter("q").to_lowercase().split_whitespace() {
        known.retain(|project| found(project, word));
    }
    if state.sort == "-name" {
        known.reverse();
    }
    let total = known.len() as u64;
    let rows = state
        .page_of(known)
        .iter()
        .map(|project| TableLine {
            id: format!("p-{}", project.id),
            mark: None,
            cells: state
                .columns
                .iter()
                .map(|key| cell(t, key, project))
                .collect(),
            action: None,
        })
        .collect();
    let empty = match state.filtered() {
        true => EmptyTable::no_match(t, t.projects_no_match(), PATH),
        false => EmptyTable {
            icon: "users",
            title: t.projects_none().to_owned(),
            lead: t.projects_none_lead().to_owned(),
            href: "/docs".to_owned(),
            go: t.nav_docs().to_owned(),
        },
    };
    let words = FilterWords {
        table: "projects",
        path: PATH,
        hint: t.projects_filter_hint(),
        label: t.projects_filter(),
        shipped: &[
            (t.projects_view_all(), ""),
            (t.projects_view_active(), "q=state%3Aactive"),
            (t.projects_archived(), "q=state%3Aarchived"),
        ],
        examples: &[
            ("vision", t.filter_help_name()),
            ("state:archived", t.projects_help_state()),
        ],
    };
    Ok(ProjectsPage {
        t,
        f: layout(console, visit, caller, Nav::Projects),
        count,
        may_create: caller.subject.can(Permission::ProjectsWrite),
        filter: filter_bar(visit, headers, &state, &columns, &words),
        table: DataTable::new(t, &state, &columns, "name", rows, total, empty),
    })
}

/// Whether a word of the filter finds the project: by name, title or domain, or by `state:`.
fn found(project: &ProjectView, word: &str) -> bool {
    match word.split_once(':') {
        Some(("state", wanted)) => {
            (project.state == TenantState::Archived) == (wanted == "archived")
        }
        Some(("name", name)) => project.name.contains(name),
        _ => [
            &project.name,
            &project.title.to_lowercase(),
            &project.domain,
        ]
        .iter()
        .any(|text| text.contains(word)),
    }
}

fn columns(t: Text, several: bool) -> Vec<TableColumn> {
    let mut columns = vec![
        TableColumn::new("name", t.sessions_name())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("state", t.sessions_state()).class("why"),
        TableColumn::new("role", t.projects_own_role()),
        TableColumn::new("members", t.projects_members()).class("num wide"),
        TableColumn::new("sessions", t.projects_live()).class("num wide"),
    ];
    if several {
        columns.insert(1, TableColumn::new("domain", t.projects_domain()));
    }
    columns
}

fn cell(t: Text, key: &str, project: &ProjectView) -> TableCell {
    match key {
        "name" => TableCell::Link {
            href: address(project),
            text: heading(project).to_owned(),
            note: match project.title.is_empty() {
                true => String::new(),
                false => project.name.clone(),
            },
        },
        "state" => {
            let (tone, text) = match project.state {
                TenantState::Active => ("ok", t.users_active()),
                TenantState::Archived => ("warn", t.projects_archived()),
            };
            TableCell::Pill {
                tone,
                text: text.to_owned(),
                note: String::new(),
            }
        }
        "role" => TableCell::text(project.role.map_or("", |role| role_name(t, role))),
        "domain" => TableCell::text(project.domain.clone()),
        "members" => TableCell::text(project.members.to_string()),
        "sessions" => TableCell::text(project.live_sessions.to_string()),
        _ => TableCell::Empty,
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewProjectForm {
    name: String,
    title: String,
    domain: String,
}

async fn new_page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    typed: &NewProjectForm,
) -> Result<ProjectFormPage, Failure> {
    let domains = tenancy::domains(&console.server, caller).await?;
    let several = domains.len() > 1;
    let choices = domains.iter().filter(|_| several).map(|one| {
        let chosen = match typed.domain.is_empty() {
            true => one.id == caller.subject.domain,
            false => one.name == typed.domain,
        };
        Choice::new(&one.name, &one.name, chosen)
    });
    Ok(ProjectFormPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Projects),
        action: CREATE,
        name: typed.name.clone(),
        title: typed.title.clone(),
        domains: ChoiceField::of(visit.text, choices.collect(), &typed.domain)
            .asking("/choices/domains"),
        focus: visit.refused.is_none(),
    })
}

/// `GET /projects/new`.
async fn show_new(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match new_page(&console, &visit, &caller, &NewProjectForm::default()).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(typed): Form<NewProjectForm>,
) -> Response {
    let domain = Some(typed.domain.trim());
    let server = &console.server;
    let made = tenancy::create_project(
        server,
        &caller,
        domain,
        typed.name.trim(),
        &typed.title,
        None,
    );
    match made.await {
        Ok(made) => responses::see_with(&address(&made.value), "project-added", &made.value.name),
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::ProjectsWrite) => {
            let form = RefusedForm::new(visit.text, CREATE, &refusal).otherwise_at("name");
            let visit = visit.refusing(form);
            match new_page(&console, &visit, &caller, &typed).await {
                Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
                Err(failure) => failed(&console, &visit, &caller, &failure),
            }
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// What was typed into the form that adds a member, the title and the quota, where a form of the page was refused.
#[derive(Default)]
struct TypedHere {
    user: String,
    role: String,
    title: Option<String>,
    quota: Option<String>,
}

async fn project_page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asked: &[(String, String)],
    typed: &TypedHere,
) -> Result<ProjectPage, Failure> {
    let t = visit.text;
    let project = tenancy::project(&console.server, caller, id).await?;
    let members = tenancy::members(&console.server, caller, id).await?;
    let several = tenancy::domains(&console.server, caller).await?.len() > 1;
    let reserved = reservations::listed_quota(&console.server, caller, id).await?;
    let here = address(&project);
    let offered = match project.writable && caller.subject.can(Permission::UsersRead) {
        true => offered(console, caller, &members).await?,
        false => Vec::new(),
    };
    let columns = member_columns(t);
    let mut state = TableState::read(here.clone(), &[], asked);
    state.columns = columns.iter().map(|column| column.key).collect();
    let total = members.len() as u64;
    let rows = state
        .page_of(members)
        .iter()
        .map(|member| TableLine {
            id: format!("m-{}", member.user.id),
            mark: None,
            cells: columns
                .iter()
                .map(|column| member_cell(visit, column.key, member))
                .collect(),
            action: project.writable.then(|| RowAction {
                href: format!("{here}/members/{}", member.user.id),
                icon: "trash-2",
                label: t.projects_remove_of(member.user.name.as_str()),
                dialog: true,
            }),
        })
        .collect();
    let empty = EmptyTable {
        icon: "users",
        title: t.projects_no_members().to_owned(),
        lead: t.projects_no_members_lead().to_owned(),
        href: PATH.to_owned(),
        go: t.projects_title().to_owned(),
    };
    let role = GrantRole::parse(&typed.role).unwrap_or(GrantRole::Member);
    Ok(ProjectPage {
        t,
        f: layout(console, visit, caller, Nav::Projects),
        heading: heading(&project).to_owned(),
        lead: match several {
            true => format!("{}/{}", project.domain, project.name),
            false => project.name.clone(),
        },
        archived: project.state == TenantState::Archived,
        writable: project.writable,
        count: t.projects_sums(total, project.live_sessions),
        add: format!("{here}/members"),
        state: format!("{here}/state"),
        quota: t.projects_quota_now(
            components::grouped(&reserved.quota.gpu_hours),
            components::grouped(&reserved.quota.used),
            components::grouped(&reserved.quota.left),
        ),
        quota_form: reserved.may_set.then(|| QuotaForm {
            action: format!("{here}/quota"),
            gpu_hours: typed
                .quota
                .clone()
                .unwrap_or_else(|| reserved.quota.gpu_hours.clone()),
        }),
        rename: here,
        title: typed.title.clone().unwrap_or_else(|| project.title.clone()),
        user: typed.user.clone(),
        roles: [GrantRole::Member, GrantRole::Viewer, GrantRole::Lead]
            .map(|one| Choice::new(one.word(), role_name(t, one), one == role))
            .into(),
        offered,
        table: DataTable::new(t, &state, &columns, "name", rows, total, empty),
    })
}

/// Users whom the caller may list and who are no members yet, by name.
async fn offered(
    console: &PagesContext,
    caller: &Caller,
    members: &[MemberView],
) -> Result<Vec<String>, Failure> {
    let known = users::list(&console.server, caller).await?;
    let here: std::collections::BTreeSet<_> = members.iter().map(|m| m.user.id).collect();
    let others = known.iter().filter(|user| !here.contains(&user.id));
    let names = others.map(|user| user.name.to_string());
    Ok(names.take(MAX_LISTED).collect())
}

fn member_columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("role", t.users_role()).class("below"),
        TableColumn::new("expires", t.projects_until()).class("below"),
    ]
}

fn member_cell(visit: &RequestContext, key: &str, member: &MemberView) -> TableCell {
    match key {
        "name" => TableCell::Link {
            href: format!("/sessions?q=owner%3A{}", encoded(member.user.name.as_str())),
            text: member.user.name.to_string(),
            note: String::new(),
        },
        "role" => TableCell::text(role_name(visit.text, member.role)),
        "expires" => TableCell::text(match member.expires_at {
            Some(end) => visit.clock.last_day(end),
            None => String::new(),
        }),
        _ => TableCell::Empty,
    }
}

/// `GET /projects/{id}`.
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Asked,
) -> Response {
    let typed = TypedHere::default();
    match project_page(&console, &visit, &caller, &id, &asked, &typed).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The page again, with what was refused at its field.
async fn again(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    form: RefusedForm,
    status: StatusCode,
    typed: TypedHere,
) -> Response {
    let visit = visit.refusing(form);
    match project_page(console, &visit, caller, id, &[], &typed).await {
        Ok(page) => responses::page(console, &visit, status, &page),
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TitleForm {
    title: String,
}

async fn rename(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TitleForm>,
) -> Response {
    let patch = ProjectPatchBody {
        title: Some(sent.title.clone()),
        state: None,
    };
    match tenancy::change_project(&console.server, &caller, &id, patch, None).await {
        Ok(project) => {
            responses::see_with(&address(&project), "project-changed", heading(&project))
        }
        Err(Failure::Refusal(refusal)) => {
            let action = format!("{PATH}/{id}");
            let form = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("title");
            let typed = TypedHere {
                title: Some(sent.title),
                ..TypedHere::default()
            };
            let status = responses::status(&refusal);
            again(&console, &visit, &caller, &id, form, status, typed).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MemberForm {
    user: String,
    role: String,
}

async fn add(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<MemberForm>,
) -> Response {
    let role = GrantRole::parse(&sent.role).unwrap_or(GrantRole::Member);
    let set = tenancy::put_member(&console.server, &caller, &id, &sent.user, role, None).await;
    match set {
        Ok(member) => {
            let back = format!("{PATH}/{id}");
            responses::see_with(&back, "member-added", member.user.name.as_str())
        }
        Err(Failure::Refusal(refusal)) => {
            let action = format!("{PATH}/{id}/members");
            let form = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("user");
            let typed = TypedHere {
                user: sent.user,
                role: sent.role,
                ..TypedHere::default()
            };
            let status = responses::status(&refusal);
            again(&console, &visit, &caller, &id, form, status, typed).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedQuota {
    gpu_hours: String,
}

async fn set_quota(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedQuota>,
) -> Response {
    let hours = point(sent.gpu_hours.trim()).into_owned();
    match reservations::set_quota(&console.server, &caller, &id, &hours).await {
        Ok(quota) => responses::see_with(&format!("{PATH}/{id}"), "quota-set", &quota.gpu_hours),
        Err(Failure::Refusal(refusal)) => {
            let action = format!("{PATH}/{id}/quota");
            let form = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("gpu_hours");
            let status = responses::status(&refusal);
            let typed = TypedHere {
                quota: Some(sent.gpu_hours),
                ..TypedHere::default()
            };
            again(&console, &visit, &caller, &id, form, status, typed).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

pub(super) fn question(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    back: &str,
    title: String,
    lead: &str,
) -> DialogPage {
    let frame = layout(console, visit, caller, Nav::Projects);
    DialogPage::titled(frame, back.to_owned(), title, lead)
}

/// `GET /projects/{id}/members/{user}`: what ends for that member.
async fn ask_remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, user)): Path<(String, String)>,
) -> Response {
    let t = visit.text;
    let project = match tenancy::project(&console.server, &caller, &id).await {
        Ok(project) => project,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let members = match tenancy::members(&console.server, &caller, &id).await {
        Ok(members) => members,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let member = members.iter().find(|one| one.user.id.to_string() == user);
    let name = member.map_or(user.as_str(), |one| one.user.name.as_str());
    let title = t.projects_remove_title(name, heading(&project));
    let back = address(&project);
    let lead = t.projects_remove_lead();
    let mut page = question(&console, &visit, &caller, &back, title, lead);
    page.form = Some(DialogForm {
        action: format!("{back}/members/{}", encoded(&user)),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.projects_remove().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Projects, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, user)): Path<(String, String)>,
) -> Response {
    match tenancy::remove_member(&console.server, &caller, &id, &user).await {
        Ok(()) => responses::see_with(&format!("{PATH}/{id}"), "member-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /projects/{id}/state`: what archiving or restoring means.
async fn ask_state(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let project = match tenancy::project(&console.server, &caller, &id).await {
        Ok(project) => project,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (title, lead, go, to) = match project.state {
        TenantState::Active => (
            t.projects_archive_title(heading(&project)),
            t.projects_archive_lead(),
            t.projects_archive(),
            TenantState::Archived,
        ),
        TenantState::Archived => (
            t.projects_restore_title(heading(&project)),
            t.projects_restore_lead(),
            t.projects_restore(),
            TenantState::Active,
        ),
    };
    let back = address(&project);
    let mut page = question(&console, &visit, &caller, &back, title, lead);
    page.form = Some(DialogForm {
        action: format!("{back}/state"),
        // What was asked about is what is done, also where the state changed in between.
        fields: vec![("state", to.word().to_owned())],
        icon: "package",
        go: go.to_owned(),
        ends: false,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Projects, page)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StateForm {
    state: String,
}

async fn set_state(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<StateForm>,
) -> Response {
    let patch = ProjectPatchBody {
        title: None,
        state: TenantState::parse(&sent.state),
    };
    let notice = match patch.state {
        Some(TenantState::Archived) => "project-archived",
        Some(TenantState::Active) | None => "project-restored",
    };
    match tenancy::change_project(&console.server, &caller, &id, patch, None).await {
        Ok(project) => responses::see_with(&address(&project), notice, heading(&project)),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
