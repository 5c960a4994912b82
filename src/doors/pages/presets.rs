//! `/presets`: the amounts with a name that launches may ask for, and the forms that make and change one. Decides
//! nothing.

use std::cmp::Reverse;

use api::presets::{NewPresetBody, PresetPatchBody, PresetView};
use api::sessions::Resources;
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use rules::devices::MigProfile;
use rules::object::Object;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::{CpuShare, GpuShare};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::presets::{self, WritableScopes};

use super::authentication::PageCaller;
use super::choice_field::ChoiceField;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, ROWS_BY_FORM, RowAction, TableCell,
    TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::typed::point;
use super::{PagesContext, launch, layout, presenter, responses};
use crate::doors::text::{Language, Text, codes};

const PATH: &str = "/presets";
const FILTERS: [&str; 1] = ["q"];

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/presets.html", blocks = ["list"])]
pub struct PresetsPage {
    pub t: Text,
    pub f: PageLayout,
    /// None for those who only look.
    pub form: Option<PresetForm>,
    /// Why there can be no other, in place of the form; empty while there is room.
    pub full: String,
    /// Above the list: there is nothing to list yet, or the form was refused.
    pub is_form_first: bool,
    pub filter: FilterBar,
    pub table: DataTable,
}

impl ListPage for PresetsPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/preset.html")]
pub struct PresetPage {
    pub t: Text,
    pub f: PageLayout,
    pub name: String,
    pub scope: String,
    pub here: String,
    pub form: PresetForm,
}

/// The fields of a preset, as they are or as they were typed.
pub struct PresetForm {
    /// Where it is sent.
    pub action: String,
    pub typed: TypedPreset,
    /// Empty where the scope stays.
    pub scopes: ChoiceField,
    pub is_new: bool,
}

/// What a form sent.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct TypedPreset {
    pub name: String,
    pub title: String,
    pub title_ko: String,
    /// `site`, `domain:NAME` or `project:DOMAIN/NAME`.
    pub scope: String,
    pub cpu: String,
    pub memory: String,
    pub shm: String,
    pub disk: String,
    pub gpu: String,
    pub gpu_memory: String,
    pub mig: String,
    pub max_runtime_seconds: String,
    /// Name of a resource group; empty: any.
    pub group: String,
    pub position: String,
    pub default: String,
    /// Of the row that the form shows; empty for a new one.
    pub generation: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/presets", get(list).post(create))
        .route("/presets/{id}", get(show).post(change))
        .route("/presets/{id}/remove", get(ask_remove).post(remove))
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Presets);
    responses::failure(console, visit, Some(frame), failure)
}

fn title(t: Text, preset: &PresetView) -> String {
    preset.heading(t.language == Language::Korean).to_owned()
}

fn scope_name(t: Text, preset: &PresetView) -> String {
    match (&preset.domain, &preset.project) {
        (Some(domain), Some(project)) => t.presets_of_project(format!("{domain}/{project}")),
        (Some(domain), None) => t.presets_of_domain(domain.as_str()),
        (None, _) => t.presets_of_site().to_owned(),
    }
}

fn scope_word(preset: &PresetView) -> &'static str {
    match (&preset.domain, &preset.project) {
        (_, Some(_)) => "project",
        (Some(_), None) => "domain",
        (None, None) => "site",
    }
}

/// `2 CPU · 16 GiB · 0.5 GPU`, only what is said.
fn amounts(t: Text, of: &Resources) -> String {
    let mut all = Vec::new();
    all.extend(of.cpu.map(|cpu| t.presets_cores(cpu)));
    all.extend(of.memory.map(|memory| components::size(memory.0)));
    all.extend(of.gpu.map(|share| presenter::gpu_amount(t, share)));
    let memory = of.gpu_memory.map(|memory| components::size(memory.0));
    all.extend(memory.map(|memory| t.presets_gpu_memory_of(memory)));
    all.extend(of.mig.map(|profile| profile.to_string()));
    let shm = of.shm.map(|shm| components::size(shm.0));
    all.extend(shm.map(|shm| t.presets_shm_of(shm)));
    let disk = of.disk.map(|disk| components::size(disk.0));
    all.extend(disk.map(|disk| t.presets_disk_of(disk)));
    all.join(" · ")
}

/// `GET /presets`: the page, or the list alone for the page's own script.
async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = listed(&console, &visit, &caller, &headers, &asked, None).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

async fn listed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
    refused: Option<TypedPreset>,
) -> Result<PresetsPage, Failure> {
    let t = visit.text;
    let mut known = presets::list(&console.server, caller, None).await?;
    let scopes = presets::scopes(&console.server, caller).await?;
    let none = known.is_empty();
    // What was typed and refused is shown again.
    let full = presets::no_room(&known, &scopes).filter(|_| refused.is_none());
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.rows = ROWS_BY_FORM;
    state.choose_columns("presets", &columns, asked, headers, visit);
    for word in state.filter("q").to_lowercase().split_whitespace() {
        known.retain(|preset| found(preset, word));
    }
    let by_title = |preset: &PresetView| (title(t, preset).to_lowercase(), preset.name.to_string());
    match state.sort.as_str() {
        "name" => known.sort_by_cached_key(by_title),
        "-name" => known.sort_by_cached_key(|preset| Reverse(by_title(preset))),
        "-position" => known.reverse(),
        _ => {}
    }
    let total = known.len() as u64;
    let page = state.page_of(known);
    let rows = page
        .iter()
        .map(|preset| row(visit, caller, &state, &scopes, preset));
    let rows = rows.collect();
    let empty = match none {
        true => EmptyTable::without_rows("boxes", t.presets_none(), t.presets_none_lead()),
        false => EmptyTable::no_match(t, t.presets_no_match(), PATH),
    };
    let words = FilterWords {
        table: "presets",
        path: PATH,
        hint: t.presets_filter_hint(),
        label: t.presets_filter(),
        shipped: &[
            (t.presets_view_all(), ""),
            (t.presets_view_site(), "q=scope%3Asite"),
        ],
        examples: &[
            ("half", t.presets_help_word()),
            ("name:half", t.filter_help_name()),
            ("scope:project", t.presets_help_scope()),
            ("vision", t.presets_help_place()),
        ],
    };
    Ok(PresetsPage {
        t,
        f: layout(console, visit, caller, Nav::Presets),
        is_form_first: none || refused.is_some(),
        full: full.map_or_else(String::new, |refusal| codes::refusal(t, &refusal)),
        form: presets::may_write(caller).then(|| new_form(t, &scopes, refused.unwrap_or_default())),
        filter: filter_bar(visit, headers, &state, &columns, &words),
        table: DataTable::new(t, &state, &columns, "position", rows, total, empty),
    })
}

fn row(
    visit: &RequestContext,
    caller: &Caller,
    state: &TableState,
    scopes: &WritableScopes,
    preset: &PresetView,
) -> TableLine {
    let t = visit.text;
    let may_change = presets::may_change(caller, preset, scopes);
    TableLine {
        id: format!("s-{}", preset.id),
        mark: None,
        cells: state
            .columns
            .iter()
            .map(|key| cell(t, key, preset, may_change))
            .collect(),
        action: may_change.then(|| RowAction {
            href: format!("{PATH}/{}/remove", preset.id),
            icon: "trash-2",
            label: t.presets_remove_of(preset.name.as_str()),
            dialog: true,
        }),
    }
}

/// Whether a word of the filter finds the preset: by name, either title, domain, project, or `scope:`.
fn found(preset: &PresetView, word: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(word);
    match word.split_once(':') {
        Some(("scope", wanted)) => scope_word(preset) == wanted,
        Some(("name", name)) => preset.name.as_str().contains(name),
        _ => {
            let places = [&preset.domain, &preset.project];
            has(preset.name.as_str())
                || has(&preset.title)
                || has(&preset.title_ko)
                || places.into_iter().flatten().any(|place| has(place))
        }
    }
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("amounts", t.presets_amounts()).class("why"),
        TableColumn::new("limit", t.launch_max_runtime()).class("below"),
        TableColumn::new("scope", t.presets_scope()).class("below"),
        TableColumn::new("position", t.presets_position())
            .sorted_by("position")
            .class("below"),
    ]
}

fn cell(t: Text, key: &str, preset: &PresetView, may_change: bool) -> TableCell {
    match key {
        "name" => {
            let text = title(t, preset);
            let mut notes = Vec::new();
            if text != preset.name.as_str() {
                notes.push(preset.name.to_string());
            }
            if let Some(group) = &preset.group {
                notes.push(t.presets_of_group(group.as_str()));
            }
            if preset.default {
                notes.push(t.presets_is_default().to_owned());
            }
            let note = notes.join(" · ");
            match may_change {
                true => TableCell::Link {
                    href: format!("{PATH}/{}", preset.id),
                    text,
                    note,
                },
                false => TableCell::Text { text, note },
            }
        }
        "amounts" => match amounts(t, &preset.resources) {
            none if none.is_empty() => TableCell::Text {
                text: String::new(),
                note: t.presets_only_limit().to_owned(),
            },
            amounts => TableCell::text(amounts),
        },
        "limit" => match preset.max_runtime_seconds {
            Some(seconds) => TableCell::text(components::span(t, seconds)),
            None => TableCell::Text {
                text: String::new(),
                note: t.launch_max_runtime_hint().to_owned(),
            },
        },
        "scope" => TableCell::text(scope_name(t, preset)),
        "position" => TableCell::text(preset.position.to_string()),
        _ => TableCell::Empty,
    }
}

fn new_form(t: Text, scopes: &WritableScopes, typed: TypedPreset) -> PresetForm {
    let mut choices = Vec::new();
    let mut put = |value: String, name: String| {
        let is_chosen = value == typed.scope;
        choices.push(Choice::new(&value, &name, is_chosen));
    };
    if scopes.site {
        put("site".to_owned(), t.presets_of_site().to_owned());
    }
    for domain in &scopes.domains {
        put(
            format!("domain:{domain}"),
            t.presets_of_domain(domain.as_str()),
        );
    }
    for project in &scopes.projects {
        put(
            format!("project:{project}"),
            t.presets_of_project(project.as_str()),
        );
    }
    PresetForm {
        action: PATH.to_owned(),
        scopes: ChoiceField::of(t, choices, &typed.scope),
        typed,
        is_new: true,
    }
}

impl PresetForm {
    /// Whether the folded part holds anything.
    fn folded_open(&self) -> bool {
        let TypedPreset {
            shm,
            disk,
            gpu_memory,
            mig,
            group,
            position,
            ..
        } = &self.typed;
        let folded = [shm, disk, gpu_memory, mig, group];
        folded.iter().any(|field| !field.is_empty()) || !matches!(position.as_str(), "" | "0")
    }
}

impl TypedPreset {
    fn of(preset: &PresetView) -> Self {
        let of = &preset.resources;
        Self {
            name: preset.name.to_string(),
            title: preset.title.clone(),
            title_ko: preset.title_ko.clone(),
            scope: String::new(),
            cpu: of.cpu.map_or_else(String::new, |cpu| cpu.to_string()),
            memory: of.memory.map_or_else(String::new, launch::typed_memory),
            shm: of.shm.map_or_else(String::new, launch::typed_memory),
            disk: of.disk.map_or_else(String::new, launch::typed_memory),
            gpu: of.gpu.map_or_else(String::new, |gpu| gpu.to_string()),
            gpu_memory: of.gpu_memory.map_or_else(String::new, launch::typed_memory),
            mig: of.mig.map_or_else(String::new, |mig| mig.to_string()),
            max_runtime_seconds: preset
                .max_runtime_seconds
                .map_or_else(String::new, launch::typed_span),
            group: preset.group.clone().unwrap_or_default(),
            position: preset.position.to_string(),
            default: match preset.default {
                true => "1".to_owned(),
                false => String::new(),
            },
            generation: preset.generation.to_string(),
        }
    }

    /// The amounts. Errors: what cannot be read, at its field.
    fn resources(&self) -> Result<Resources, Refusal> {
        fn read<T>(
            typed: &str,
            field: &str,
            reading: impl Fn(&str) -> Result<T, Refusal>,
        ) -> Result<Option<T>, Refusal> {
            match typed.trim() {
                "" => Ok(None),
                typed => reading(&point(typed))
                    .map(Some)
                    .map_err(|refusal| refusal.at(format!("/resources/{field}"))),
            }
        }
        Ok(Resources {
            cpu: read(&self.cpu, "cpu", CpuShare::parse)?,
            memory: read(&self.memory, "memory", launch::memory)?,
            shm: read(&self.shm, "shm", launch::memory)?,
            disk: read(&self.disk, "disk", launch::memory)?,
            gpu: read(&self.gpu, "gpu", GpuShare::parse)?,
            gpu_memory: read(&self.gpu_memory, "gpu_memory", launch::memory)?,
            mig: read(&self.mig, "mig", MigProfile::parse)?,
        })
    }

    fn limit(&self) -> Result<Option<u64>, Refusal> {
        launch::span(&self.max_runtime_seconds)
            .map_err(|refusal| refusal.at("/max_runtime_seconds"))
    }

    fn number(&self) -> Result<u32, Refusal> {
        match self.position.trim() {
            "" => Ok(0),
            typed => typed.parse().map_err(|_| {
                refusals::preset_position(rules::preset::MAX_PRESET_POSITION).at("/position")
            }),
        }
    }

    /// The domain or the project of the scope; neither for the site.
    ///
    /// Errors: `preset.scope-invalid` for anything else, so that no slip makes one of the whole site.
    fn place(&self) -> Result<(Option<String>, Option<String>), Refusal> {
        let scope = self.scope.trim();
        let (kind, name) = scope.split_once(':').unwrap_or((scope, ""));
        let name = name.trim();
        match (kind.trim(), name.is_empty()) {
            ("site", true) => Ok((None, None)),
            ("domain", false) => Ok((Some(name.to_owned()), None)),
            ("project", false) => Ok((None, Some(name.to_owned()))),
            _ => Err(refusals::preset_scope_invalid().at("/scope")),
        }
    }

    fn body(&self) -> Result<NewPresetBody, Refusal> {
        let (domain, project) = self.place()?;
        Ok(NewPresetBody {
            name: self.name.clone(),
            title: Some(self.title.clone()),
            title_ko: Some(self.title_ko.clone()),
            resources: self.resources()?,
            max_runtime_seconds: self.limit()?,
            domain,
            project,
            group: Some(self.group.clone()),
            position: self.number()?,
            default: !self.default.is_empty(),
        })
    }

    fn patch(&self) -> Result<PresetPatchBody, Refusal> {
        Ok(PresetPatchBody {
            name: Some(self.name.clone()),
            title: Some(self.title.clone()),
            title_ko: Some(self.title_ko.clone()),
            resources: Some(Object(self.resources()?)),
            max_runtime_seconds: Some(self.limit()?),
            group: Some(self.group.clone()),
            position: Some(self.number()?),
            default: Some(!self.default.is_empty()),
        })
    }
}

/// The field of the form that a place in the request is about: the scope is one field here.
fn refused(visit: &RequestContext, action: &str, refusal: Refusal) -> (RefusedForm, Refusal) {
    let scope = matches!(refusal.pointer.as_deref(), Some("/domain" | "/project"));
    let empty = refusal.pointer.as_deref() == Some("/resources");
    let refusal = match (scope, empty) {
        (true, _) => refusal.at("/scope"),
        (_, true) => refusal.at("/cpu"),
        _ => refusal,
    };
    let form = RefusedForm::new(visit.text, action, &refusal).otherwise_at("name");
    (form, refusal)
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<TypedPreset>,
) -> Response {
    let made = async { presets::create(&console.server, &caller, sent.body()?, None).await };
    let refusal = match made.await {
        Ok(made) => return responses::see_with(PATH, "preset-added", made.value.name.as_str()),
        Err(Failure::Refusal(refusal)) if presets::may_write(&caller) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (form, refusal) = refused(&visit, PATH, refusal);
    let visit = visit.refusing(form);
    match listed(&console, &visit, &caller, &headers, &[], Some(sent)).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// One that the caller may change.
async fn own(console: &PagesContext, caller: &Caller, id: &str) -> Result<PresetView, Failure> {
    let one = presets::get(&console.server, caller, id).await?;
    let scopes = presets::scopes(&console.server, caller).await?;
    match presets::may_change(caller, &one, &scopes) {
        true => Ok(one),
        false => {
            let word = Permission::ProjectsWrite.word();
            Err(refusals::role_permission_missing(word).into())
        }
    }
}

fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    one: &PresetView,
    typed: TypedPreset,
) -> PresetPage {
    let t = visit.text;
    let here = format!("{PATH}/{}", one.id);
    PresetPage {
        t,
        f: layout(console, visit, caller, Nav::Presets),
        name: one.name.to_string(),
        scope: scope_name(t, one),
        form: PresetForm {
            action: here.clone(),
            typed,
            scopes: ChoiceField::default(),
            is_new: false,
        },
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
            let page = page(&console, &visit, &caller, &one, TypedPreset::of(&one));
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedPreset>,
) -> Response {
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let changed = async {
        let patch = sent.patch()?;
        let shown = sent.generation.parse().ok();
        presets::change(&console.server, &caller, &id, patch, shown).await
    };
    match changed.await {
        Ok(changed) => responses::see_with(PATH, "preset-changed", changed.name.as_str()),
        Err(Failure::Refusal(refusal)) => {
            let (form, refusal) = refused(&visit, &format!("{PATH}/{}", one.id), refusal);
            let visit = visit.refusing(form);
            let page = page(&console, &visit, &caller, &one, sent);
            responses::page(&console, &visit, responses::status(&refusal), &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
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
    let frame = layout(&console, &visit, &caller, Nav::Presets);
    let title = t.presets_remove_title(one.name.as_str());
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.presets_remove_lead());
    let mut facts = Vec::new();
    facts.extend(Some(amounts(t, &one.resources)).filter(|amounts| !amounts.is_empty()));
    let limit = one.max_runtime_seconds;
    facts.extend(limit.map(|seconds| components::span(t, seconds)));
    facts.push(scope_name(t, &one));
    page.items = vec![facts.join(" · ")];
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/remove", one.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.presets_remove().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Presets, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match presets::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "preset-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
