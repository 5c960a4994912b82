//! `/groups`: resource groups, and the forms that make one, change it, and say which nodes it has and who may use it.
//! Decides nothing.

use api::resource_groups::{
    GroupAccessBody, GroupAccessView, GroupNodesBody, GroupWindowView, GroupWindowsBody,
    NewResourceGroupBody, ResourceGroupPatchBody, ResourceGroupView,
};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use rules::calendar::GroupWindow;
use rules::fair_share::QueueOrder;
use rules::permissions::Permission;
use rules::policy::{BackfillMode, PreemptionMode, Spreading};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::SessionKind;
use rules::units::CpuShare;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::resource_groups;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::fair_share::{backfill_name, order_name};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, TableCell, TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/groups";
const FILTERS: [&str; 0] = [];

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/resource_groups.html", blocks = ["list"])]
pub struct ResourceGroupsPage {
    pub t: Text,
    pub f: PageLayout,
    /// None for those who only look.
    pub form: Option<ResourceGroupForm>,
    pub table: DataTable,
}

impl ListPage for ResourceGroupsPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/resource_group.html")]
pub struct ResourceGroupPage {
    pub t: Text,
    pub f: PageLayout,
    pub name: String,
    pub here: String,
    /// It stays.
    pub founding: bool,
    pub form: ResourceGroupForm,
    pub nodes: TypedGroupNodes,
    pub access: TypedGroupAccess,
    pub windows: TypedGroupWindows,
}

/// The fields of a group, as they are or as they were typed.
pub struct ResourceGroupForm {
    /// Where it is sent.
    pub action: String,
    pub typed: TypedResourceGroup,
    pub spreadings: Vec<Choice>,
    pub orders: Vec<Choice>,
    pub backfills: Vec<Choice>,
    pub preemptions: Vec<Choice>,
    pub is_new: bool,
}

/// What a form sent.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct TypedResourceGroup {
    pub name: String,
    pub title: String,
    pub interactive: String,
    pub batch: String,
    /// `pack`, `spread`, `roundrobin`, or nothing: as the settings say.
    pub spreading: String,
    /// The word of an order, or nothing: as the site's queue.
    pub order: String,
    /// The word of a mode, or nothing: as the site says.
    pub backfill: String,
    pub cpu_overcommit: String,
    /// `off` or `priority`; nothing: `off`.
    pub preemption: String,
    /// Of the row that the form shows; empty for a new one.
    pub generation: String,
}

/// Names of nodes, parted by blanks, commas or lines.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct TypedGroupNodes {
    pub nodes: String,
    /// Of the row that the form shows.
    pub generation: String,
}

/// Names, parted by blanks, commas or lines.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct TypedGroupAccess {
    pub everybody: String,
    pub domains: String,
    pub projects: String,
    pub users: String,
    /// Of the row that the form shows.
    pub generation: String,
}

/// Windows, one a line, and the zone of their times.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct TypedGroupWindows {
    pub windows: String,
    pub time_zone: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/groups", get(list).post(create))
        .route("/groups/{id}", get(show).post(change))
        .route("/groups/{id}/nodes", post(set_nodes))
        .route("/groups/{id}/access", post(set_access))
        .route("/groups/{id}/windows", post(set_windows))
        .route("/groups/{id}/remove", get(ask_remove).post(remove))
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Groups);
    responses::failure(console, visit, Some(frame), failure)
}

/// `GET /groups`: the page, or the list alone for the page's own script.
async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = listed(&console, &visit, &caller, &asked, None).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

async fn listed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    asked: &[(String, String)],
    refused: Option<TypedResourceGroup>,
) -> Result<ResourceGroupsPage, Failure> {
    let t = visit.text;
    let known = resource_groups::list(&console.server, caller).await?;
    let may_write = resource_groups::may_write(caller);
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.choose_columns("groups", &columns, asked, &HeaderMap::new(), visit);
    let total = known.len() as u64;
    let page = state.page_of(known);
    let line = |group: &ResourceGroupView| TableLine {
        id: format!("s-{}", group.id),
        mark: None,
        cells: state
            .columns
            .iter()
            .map(|key| cell(t, key, group, may_write))
            .collect(),
        action: None,
    };
    let rows = page.iter().map(line).collect();
    let empty = EmptyTable::without_rows("server", t.groups_none(), t.groups_none_lead());
    Ok(ResourceGroupsPage {
        t,
        f: layout(console, visit, caller, Nav::Groups),
        form: may_write.then(|| {
            let usual = TypedResourceGroup {
                interactive: "1".to_owned(),
                batch: "1".to_owned(),
                cpu_overcommit: "1".to_owned(),
                ..TypedResourceGroup::default()
            };
            form(t, PATH.to_owned(), refused.unwrap_or(usual), true)
        }),
        table: DataTable::new(t, &state, &columns, "name", rows, total, empty),
    })
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("nodes", t.groups_nodes()).class("why"),
        TableColumn::new("access", t.groups_access()).class("below"),
        TableColumn::new("kinds", t.groups_kinds()).class("below"),
        TableColumn::new("order", t.fair_order()).class("below"),
        TableColumn::new("windows", t.groups_windows()).class("below"),
        TableColumn::new("preemption", t.groups_preemption()).class("below"),
    ]
}

fn cell(t: Text, key: &str, group: &ResourceGroupView, may_write: bool) -> TableCell {
    match key {
        "name" => {
            let text = group.heading().to_owned();
            let note = match text == group.name.as_str() {
                true => String::new(),
                false => group.name.to_string(),
            };
            match may_write {
                true => TableCell::Link {
                    href: format!("{PATH}/{}", group.id),
                    text,
                    note,
                },
                false => TableCell::Text { text, note },
            }
        }
        "nodes" => {
            let nodes = group.nodes.as_ref();
            TableCell::text(nodes.map_or(String::new(), |nodes| nodes.join(", ")))
        }
        "access" => TableCell::text(access(t, group)),
        "kinds" => {
            let kinds = group.kinds.iter().map(|kind| match kind {
                SessionKind::Interactive => t.launch_interactive(),
                SessionKind::Batch => t.launch_batch(),
            });
            TableCell::text(kinds.collect::<Vec<_>>().join(", "))
        }
        "order" => TableCell::Text {
            text: match group.order {
                Some(order) => order_name(t, order).to_owned(),
                None => t.groups_by_site().to_owned(),
            },
            note: match group.backfill {
                Some(mode) => format!("{}: {}", t.fair_backfill(), backfill_name(t, mode)),
                None => String::new(),
            },
        },
        "windows" if group.windows.is_empty() => TableCell::Empty,
        "windows" => TableCell::Text {
            text: t.groups_windows_count(group.windows.len() as u64),
            note: group.time_zone.clone(),
        },
        "preemption" => TableCell::text(preemption(t, group.preemption)),
        _ => TableCell::Empty,
    }
}

fn access(t: Text, group: &ResourceGroupView) -> String {
    match &group.access {
        _ if group.everybody => t.groups_everybody().to_owned(),
        None => t.groups_listed().to_owned(),
        Some(access) => {
            let lists = [&access.domains, &access.projects, &access.users];
            let names: Vec<&str> = lists.into_iter().flatten().map(String::as_str).collect();
            match names.is_empty() {
                true => t.groups_listed_none().to_owned(),
                false => names.join(", "),
            }
        }
    }
}

fn form(t: Text, action: String, typed: TypedResourceGroup, is_new: bool) -> ResourceGroupForm {
    let words = [
        ("", t.groups_by_settings()),
        ("pack", t.gpu_pack()),
        ("spread", t.gpu_spread()),
        ("roundrobin", t.gpu_roundrobin()),
    ];
    let site = |typed: &str| Choice::new("", t.groups_by_site(), typed.is_empty());
    let orders = QueueOrder::ALL
        .map(|one| Choice::new(one.word(), order_name(t, one), typed.order == one.word()));
    let modes = BackfillMode::ALL.map(|one| {
        Choice::new(
            one.word(),
            backfill_name(t, one),
            typed.backfill == one.word(),
        )
    });
    let chosen = PreemptionMode::parse(&typed.preemption).unwrap_or_default();
    ResourceGroupForm {
        action,
        preemptions: PreemptionMode::ALL
            .into_iter()
            .map(|mode| Choice::new(mode.word(), preemption(t, mode), mode == chosen))
            .collect(),
        spreadings: words
            .into_iter()
            .map(|(value, name)| Choice::new(value, name, typed.spreading == value))
            .collect(),
        orders: [site(&typed.order)].into_iter().chain(orders).collect(),
        backfills: [site(&typed.backfill)].into_iter().chain(modes).collect(),
        typed,
        is_new,
    }
}

fn preemption(t: Text, mode: PreemptionMode) -> &'static str {
    match mode {
        PreemptionMode::Off => t.groups_preemption_off(),
        PreemptionMode::Priority => t.groups_preemption_priority(),
    }
}

impl TypedResourceGroup {
    fn of(group: &ResourceGroupView) -> Self {
        let tick = |kind: SessionKind| match group.kinds.contains(&kind) {
            true => "1".to_owned(),
            false => String::new(),
        };
        Self {
            name: group.name.to_string(),
            title: group.title.clone(),
            interactive: tick(SessionKind::Interactive),
            batch: tick(SessionKind::Batch),
            spreading: group
                .spreading
                .map_or_else(String::new, |how| how.word().to_owned()),
            order: group
                .order
                .map_or_else(String::new, |order| order.word().to_owned()),
            backfill: group
                .backfill
                .map_or_else(String::new, |mode| mode.word().to_owned()),
            cpu_overcommit: group.cpu_overcommit.to_string(),
            preemption: group.preemption.word().to_owned(),
            generation: group.generation.to_string(),
        }
    }

    fn kinds(&self) -> Vec<SessionKind> {
        let kinds = [
            (SessionKind::Interactive, &self.interactive),
            (SessionKind::Batch, &self.batch),
        ];
        kinds
            .into_iter()
            .filter_map(|(kind, tick)| (!tick.is_empty()).then_some(kind))
            .collect()
    }

    fn body(&self) -> NewResourceGroupBody {
        NewResourceGroupBody {
            name: self.name.clone(),
            title: Some(self.title.clone()),
            kinds: Some(self.kinds()),
            spreading: Spreading::parse(&self.spreading),
            order: QueueOrder::parse(&self.order),
            backfill: BackfillMode::parse(&self.backfill),
            cpu_overcommit: self.factor(),
            preemption: PreemptionMode::parse(&self.preemption),
        }
    }

    fn patch(&self) -> ResourceGroupPatchBody {
        ResourceGroupPatchBody {
            name: Some(self.name.clone()),
            title: Some(self.title.clone()),
            kinds: Some(self.kinds()),
            spreading: Some(Spreading::parse(&self.spreading)),
            order: Some(QueueOrder::parse(&self.order)),
            backfill: Some(BackfillMode::parse(&self.backfill)),
            cpu_overcommit: self.factor(),
            preemption: PreemptionMode::parse(&self.preemption),
        }
    }

    /// None where nothing was typed. What is no number is refused as one that is too small.
    fn factor(&self) -> Option<CpuShare> {
        let typed = self.cpu_overcommit.trim();
        (!typed.is_empty()).then(|| CpuShare::parse(typed).unwrap_or_default())
    }
}

/// Names as they were typed.
fn names(typed: &str) -> Vec<String> {
    let parts = typed.split(|c: char| c == ',' || c.is_whitespace());
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

impl TypedGroupNodes {
    fn of(group: &ResourceGroupView) -> Self {
        let nodes = group.nodes.as_ref();
        Self {
            nodes: nodes.map_or(String::new(), |nodes| nodes.join("\n")),
            generation: group.generation.to_string(),
        }
    }
}

impl TypedGroupAccess {
    fn of(group: &ResourceGroupView) -> Self {
        let listed = group.access.clone().unwrap_or_default();
        let GroupAccessView {
            domains,
            projects,
            users,
        } = listed;
        Self {
            everybody: match group.everybody {
                true => "1".to_owned(),
                false => String::new(),
            },
            domains: domains.join("\n"),
            projects: projects.join("\n"),
            users: users.join("\n"),
            generation: group.generation.to_string(),
        }
    }

    fn body(&self) -> GroupAccessBody {
        GroupAccessBody {
            everybody: !self.everybody.is_empty(),
            domains: names(&self.domains),
            projects: names(&self.projects),
            users: names(&self.users),
        }
    }
}

impl TypedGroupWindows {
    /// As they are; the zone is the reader's where there is none yet.
    fn of(group: &ResourceGroupView, caller: &Caller) -> Self {
        // What the server keeps can be read.
        let windows = group.windows.iter().filter_map(|one| one.window().ok());
        let lines: Vec<String> = windows.map(|window| window.to_string()).collect();
        Self {
            time_zone: match lines.is_empty() {
                true => caller.time_zone.clone(),
                false => group.time_zone.clone(),
            },
            windows: lines.join("\n"),
        }
    }

    /// Errors: `group.window-invalid` at its field.
    fn body(&self) -> Result<GroupWindowsBody, Refusal> {
        let lines = self.windows.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty());
        let windows =
            lines.map(|line| GroupWindow::parse(line).map(|one| GroupWindowView::of(&one)));
        Ok(GroupWindowsBody {
            windows: windows
                .collect::<Result<_, _>>()
                .map_err(|refusal: Refusal| refusal.at("/windows"))?,
            time_zone: Some(self.time_zone.trim().to_owned()),
        })
    }
}

/// The field of the form that a place in the request is about: the kinds are two ticks here.
fn refused(visit: &RequestContext, action: &str, refusal: Refusal) -> (RefusedForm, Refusal) {
    let refusal = match refusal.pointer.as_deref() {
        Some("/kinds") => refusal.at("/interactive"),
        _ => refusal,
    };
    let first = match action.rsplit('/').next() {
        Some("nodes") => "nodes",
        Some("access") => "users",
        Some("windows") => "windows",
        _ => "name",
    };
    let form = RefusedForm::new(visit.text, action, &refusal).otherwise_at(first);
    (form, refusal)
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<TypedResourceGroup>,
) -> Response {
    let made = resource_groups::create(&console.server, &caller, sent.body(), None).await;
    let refusal = match made {
        Ok(made) => {
            let place = format!("{PATH}/{}", made.value.id);
            return responses::see_with(&place, "group-added", made.value.name.as_str());
        }
        Err(Failure::Refusal(refusal)) if resource_groups::may_write(&caller) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (form, refusal) = refused(&visit, PATH, refusal);
    let visit = visit.refusing(form);
    match listed(&console, &visit, &caller, &[], Some(sent)).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// One that the caller may change.
async fn own(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
) -> Result<ResourceGroupView, Failure> {
    let one = resource_groups::get(&console.server, caller, id).await?;
    match resource_groups::may_write(caller) {
        true => Ok(one),
        false => {
            let word = Permission::SystemWrite.word();
            Err(refusals::role_administrator_needed(word).into())
        }
    }
}

fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    one: &ResourceGroupView,
) -> ResourceGroupPage {
    let t = visit.text;
    let here = format!("{PATH}/{}", one.id);
    ResourceGroupPage {
        t,
        f: layout(console, visit, caller, Nav::Groups),
        name: one.name.to_string(),
        founding: one.founding,
        form: form(t, here.clone(), TypedResourceGroup::of(one), false),
        nodes: TypedGroupNodes::of(one),
        access: TypedGroupAccess::of(one),
        windows: TypedGroupWindows::of(one, caller),
        here,
    }
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match own(&console, &caller, &id).await {
        Ok(one) => {
            let page = page(&console, &visit, &caller, &one);
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// What a form of the page of a group came to: the page of the group, or the same page with what was typed and why it
/// was refused.
fn answered(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    one: &ResourceGroupView,
    (part, changed): (&str, Result<ResourceGroupView, Failure>),
    typed: impl FnOnce(&mut ResourceGroupPage),
) -> Response {
    let here = format!("{PATH}/{}", one.id);
    let refusal = match changed {
        Ok(changed) => {
            return responses::see_with(&here, "group-changed", changed.name.as_str());
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let (form, refusal) = refused(visit, &format!("{here}{part}"), refusal);
    let visit = visit.refusing(form);
    let mut page = page(console, &visit, caller, one);
    typed(&mut page);
    responses::page(console, &visit, responses::status(&refusal), &page)
}

async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedResourceGroup>,
) -> Response {
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let shown = sent.generation.parse().ok();
    let changed = resource_groups::change(&console.server, &caller, &id, sent.patch(), shown);
    let changed = ("", changed.await);
    answered(&console, &visit, &caller, &one, changed, |page| {
        page.form = form(page.t, page.here.clone(), sent, false);
    })
}

async fn set_nodes(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedGroupNodes>,
) -> Response {
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let wanted = GroupNodesBody {
        nodes: names(&sent.nodes),
    };
    let shown = sent.generation.parse().ok();
    let changed = resource_groups::set_nodes(&console.server, &caller, &id, wanted, shown);
    let changed = ("/nodes", changed.await);
    answered(&console, &visit, &caller, &one, changed, |page| {
        page.nodes = sent;
    })
}

async fn set_access(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedGroupAccess>,
) -> Response {
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (body, shown) = (sent.body(), sent.generation.parse().ok());
    let changed = resource_groups::set_access(&console.server, &caller, &id, body, shown);
    let changed = ("/access", changed.await);
    answered(&console, &visit, &caller, &one, changed, |page| {
        page.access = sent;
    })
}

async fn set_windows(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedGroupWindows>,
) -> Response {
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let changed = match sent.body() {
        Ok(wanted) => resource_groups::set_windows(&console.server, &caller, &id, wanted).await,
        Err(refusal) => Err(refusal.into()),
    };
    let changed = ("/windows", changed);
    answered(&console, &visit, &caller, &one, changed, |page| {
        page.windows = sent;
    })
}

async fn ask_remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let frame = layout(&console, &visit, &caller, Nav::Groups);
    let title = t.groups_remove_title(one.name.as_str());
    let back = format!("{PATH}/{}", one.id);
    let mut page = DialogPage::titled(frame, back, title, t.groups_remove_lead());
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/remove", one.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.groups_remove().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Groups, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match resource_groups::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "group-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
