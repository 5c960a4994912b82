//! `/policies`: the named sets of limits, what each is attached to, and the forms that write, attach and detach them.

use api::policies::{
    EgressBody, LimitsBody, NewPolicyBody, PolicyPatchBody, PolicyPreviewView, PolicyUseBody,
    PolicyUseView, PolicyView,
};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use rules::commit::{MAX_OWN_IMAGES, MAX_POLICY_IMAGES};
use rules::object::Object;
use rules::permissions::Permission;
use rules::quota::{LimitKey, LimitKind, PolicyLevel, PolicyLimits};
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::MIN_DISK;
use rules::storage::{DEFAULT_FOLDER_BYTES, MIN_FOLDER_BYTES};
use rules::units::{Bytes, CpuShare, GpuShare};
use rules::workload::precedence::{MAX_PRIORITY, USUAL_PRIORITY};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::policies;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, ROWS_BY_FORM, TableCell, TableColumn,
    TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::typed::{exact, point};
use super::{PagesContext, launch, layout, responses};
use crate::doors::text::{Text, codes};

const PATH: &str = "/policies";
const FILTERS: [&str; 1] = ["q"];
/// Places that one row of the list names, and users whose limits the page of a policy looks at. Higher: a policy of a
/// thousand users fills the page.
const MAX_PLACES: usize = 8;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/policies.html", blocks = ["list"])]
pub struct PoliciesPage {
    pub t: Text,
    pub f: PageLayout,
    pub may_change: bool,
    /// Why there can be no other, in place of the form; empty while there is room.
    pub full: String,
    pub filter: FilterBar,
    pub table: DataTable,
    pub name: String,
    /// Where the new policy would be attached, as `user:mina`; empty where that is not known.
    pub subject: String,
    /// The same in words.
    pub subject_words: String,
}

impl ListPage for PoliciesPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/policy.html")]
pub struct PolicyPage {
    pub t: Text,
    pub f: PageLayout,
    pub may_change: bool,
    pub name: String,
    /// Its own address.
    pub here: String,
    /// The version whose limits the form holds.
    pub generation: u64,
    pub groups: Vec<LimitGroup>,
    /// Launches under it may ask for sudo.
    pub sudo: bool,
    /// Sessions under it have no inner door.
    pub no_inner_door: bool,
    /// Sessions under it have no home by themselves.
    pub no_home: bool,
    /// Launches under it name a time limit.
    pub require_limit: bool,
    pub uses: Vec<UseRow>,
    pub levels: Vec<Choice>,
    pub subject: String,
    /// Who would have more than the limits in the form allow, one line each; None where that was not asked.
    pub over: Option<Vec<String>>,
}

/// Limits of one kind.
pub struct LimitGroup {
    pub title: &'static str,
    pub lead: &'static str,
    pub fields: Vec<LimitField>,
}

/// One limit in the form.
pub struct LimitField {
    pub key: &'static str,
    pub label: &'static str,
    pub value: String,
    /// What holds where it stays empty, and how it is written.
    pub hint: String,
}

/// One place that the policy is attached to.
pub struct UseRow {
    pub level: &'static str,
    pub name: String,
    /// Where the question about detaching is.
    pub detach: String,
    /// Limits of it that change nothing for that user, each with the rule that holds.
    pub outdone: Vec<String>,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/policies", get(list).post(create))
        .route("/policies/{id}", get(show).post(change))
        .route("/policies/{id}/preview", get(preview_left).post(preview))
        .route("/policies/{id}/attach", post(attach))
        .route("/policies/{id}/detach", get(ask_detach).post(detach))
        .route("/policies/{id}/remove", get(ask_remove).post(remove))
}

/// Fields of what a policy says of networks.
const NETWORKS: &str = "networks";
const TARGETS: &str = "targets";

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Policies);
    responses::failure(console, visit, Some(frame), failure)
}

pub(super) fn level_name(t: Text, level: PolicyLevel) -> &'static str {
    match level {
        PolicyLevel::Site => t.policies_site(),
        PolicyLevel::Domain => t.projects_domain(),
        PolicyLevel::Project => t.sessions_project(),
        PolicyLevel::Member => t.policies_member(),
        PolicyLevel::User => t.projects_add_user(),
    }
}

pub(super) fn key_name(t: Text, key: LimitKey) -> &'static str {
    codes::limit_name(t, key)
}

/// An amount as people read it.
pub(super) fn amount(visit: &RequestContext, key: LimitKey, value: u64) -> String {
    amount_in(visit.text, key, value)
}

/// The same where there is no request.
pub(super) fn amount_in(t: Text, key: LimitKey, value: u64) -> String {
    match key {
        LimitKey::RuntimeSeconds => components::span(t, value),
        LimitKey::Memory
        | LimitKey::MemoryEach
        | LimitKey::DiskEach
        | LimitKey::WaitingBytes
        | LimitKey::FolderBytes => components::size(value),
        LimitKey::Gpu
        | LimitKey::GpuEach
        | LimitKey::Cpu
        | LimitKey::CpuEach
        | LimitKey::Waiting
        | LimitKey::Sessions
        | LimitKey::Priority
        | LimitKey::SignIns
        | LimitKey::Images => written(key, value),
    }
}

fn place(t: Text, used: &PolicyUseView) -> String {
    match used.level {
        PolicyLevel::Site => t.policies_site().to_owned(),
        level => format!("{} {}", level_name(t, level), used.name),
    }
}

/// `GET /policies`: the page, or the list alone for the page's own script.
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
    let none = NameForm::default();
    let page = listed(&console, &visit, &caller, &headers, &asked, &none).await;
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
    form: &NameForm,
) -> Result<PoliciesPage, Failure> {
    let t = visit.text;
    let mut known = policies::list(&console.server, caller).await?;
    let full = policies::no_room(known.len());
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.rows = ROWS_BY_FORM;
    state.choose_columns("policies", &columns, asked, headers, visit);
    for word in state.filter("q").to_lowercase().split_whitespace() {
        known.retain(|policy| found(policy, word));
    }
    if state.sort == "-name" {
        known.reverse();
    }
    let total = known.len() as u64;
    let rows = state
        .page_of(known)
        .iter()
        .map(|policy| TableLine {
            id: format!("p-{}", policy.name),
            mark: None,
            cells: state
                .columns
                .iter()
                .map(|key| cell(visit, key, policy))
                .collect(),
            action: None,
        })
        .collect();
    let empty = EmptyTable::no_match(t, t.policies_none(), PATH);
    let words = FilterWords {
        table: "policies",
        path: PATH,
        hint: t.policies_filter_hint(),
        label: t.policies_filter(),
        shipped: &[
            (t.policies_view_all(), ""),
            (t.policies_view_unused(), "q=used%3Ano"),
        ],
        examples: &[
            ("class", t.filter_help_name()),
            ("vision", t.policies_help_place()),
            ("used:no", t.policies_help_unused()),
        ],
    };
    Ok(PoliciesPage {
        t,
        f: layout(console, visit, caller, Nav::Policies),
        may_change: caller.subject.can(Permission::SystemWrite),
        full: full.map_or_else(String::new, |refusal| codes::refusal(t, &refusal)),
        filter: filter_bar(visit, headers, &state, &columns, &words),
        table: DataTable::new(t, &state, &columns, "name", rows, total, empty),
        name: form.name.clone(),
        subject: form.subject.clone(),
        subject_words: form.to().map_or_else(String::new, |(level, name)| {
            format!("{} {name}", level_name(t, level))
        }),
    })
}

/// Whether a word of the filter finds the policy: by its name, by where it is attached, by `used:`.
fn found(policy: &PolicyView, word: &str) -> bool {
    match word.split_once(':') {
        Some(("used", wanted)) => policy.uses.is_empty() == (wanted == "no"),
        Some(("name", name)) => policy.name.contains(name),
        _ => {
            let place = |used: &PolicyUseView| used.name.to_lowercase().contains(word);
            policy.name.contains(word) || policy.uses.iter().any(place)
        }
    }
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("limits", t.users_limits()).class("why"),
        TableColumn::new("uses", t.policies_uses()).class("below"),
    ]
}

fn cell(visit: &RequestContext, key: &str, policy: &PolicyView) -> TableCell {
    let t = visit.text;
    let told = |lines: Vec<String>, none: &str| match lines.is_empty() {
        true => TableCell::Text {
            text: String::new(),
            note: none.to_owned(),
        },
        false => TableCell::text(lines.join(" · ")),
    };
    match key {
        "name" => TableCell::Link {
            href: format!("{PATH}/{}", encoded(&policy.name)),
            text: policy.name.clone(),
            note: String::new(),
        },
        "limits" => {
            let limits = PolicyLimits::from(policy.limits);
            let said = LimitKey::ALL.into_iter().filter_map(|key| {
                let value = amount(visit, key, limits.get(key)?);
                Some(format!("{}: {value}", key_name(t, key)))
            });
            let mut said: Vec<String> = said.collect();
            // What a launch gets that names none, for who looks here for it.
            let is_of_site = policy.uses.iter().any(|one| one.level == PolicyLevel::Site);
            if is_of_site && limits.runtime_seconds.is_none() {
                let name = key_name(t, LimitKey::RuntimeSeconds);
                said.push(format!("{name}: {}", t.common_unlimited()));
            }
            let networks = &policy.egress.networks;
            if !networks.is_empty() {
                said.push(format!("{}: {}", t.policies_networks(), networks.join(" ")));
            }
            told(said, t.policies_no_limits())
        }
        "uses" => {
            let places: Vec<String> = policy
                .uses
                .iter()
                .take(MAX_PLACES)
                .map(|one| place(t, one))
                .collect();
            let more = policy.uses.len().saturating_sub(places.len()) as u64;
            match (told(places, t.policies_unused()), more) {
                (TableCell::Text { text, .. }, more) if more > 0 => TableCell::Text {
                    text,
                    note: t.policies_uses_more(more),
                },
                (cell, _) => cell,
            }
        }
        _ => TableCell::Empty,
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NameForm {
    name: String,
    /// Where it would be attached, as `user:mina`.
    subject: String,
}

impl NameForm {
    /// None where it names no level.
    fn to(&self) -> Option<(PolicyLevel, &str)> {
        let (level, name) = self.subject.split_once(':')?;
        Some((PolicyLevel::parse(level)?, name))
    }
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<NameForm>,
) -> Response {
    let asked = NewPolicyBody {
        name: sent.name.clone(),
        limits: LimitsBody::default(),
        egress: EgressBody::default(),
        sudo: false,
        no_inner_door: false,
        no_home: false,
        require_limit: false,
    };
    match policies::create(&console.server, &caller, asked).await {
        Ok(made) => {
            let place = format!("{PATH}/{}", encoded(&made.name));
            responses::see(&match sent.to() {
                Some((level, name)) => {
                    format!("{place}?level={}&subject={}", level.word(), encoded(name))
                }
                None => place,
            })
        }
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::SystemWrite) => {
            let form = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("name");
            let visit = visit.refusing(form);
            let status = responses::status(&refusal);
            match listed(&console, &visit, &caller, &headers, &[], &sent).await {
                Ok(page) => responses::page(&console, &visit, status, &page),
                Err(failure) => failed(&console, &visit, &caller, &failure),
            }
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(typed): Query<UseForm>,
    headers: HeaderMap,
) -> Response {
    // `/policies/new?subject=user:mina` begins a policy; without a subject it is the policy of that name.
    let mut begun = NameForm {
        name: String::new(),
        subject: typed.subject.clone(),
    };
    begun.name = begun
        .to()
        .map_or_else(String::new, |(_, whose)| format!("{whose}-limits"));
    if id == "new" && typed.level.is_empty() && begun.to().is_some() {
        return match listed(&console, &visit, &caller, &headers, &[], &begun).await {
            Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
            Err(failure) => failed(&console, &visit, &caller, &failure),
        };
    }
    match policies::get(&console.server, &caller, &id).await {
        Ok(policy) => {
            let page = page(&console, &visit, &caller, &policy, &typed).await;
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The limits of the policy that change nothing for the user it is attached to, as another one is lower; empty for other
/// levels, whose members differ. Costs what the limits of a user cost.
async fn outdone(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    policy: &PolicyView,
    used: &PolicyUseView,
) -> Vec<String> {
    let t = visit.text;
    if used.level != PolicyLevel::User {
        return Vec::new();
    }
    let holds = policies::effective(&console.server, caller, Some(used.name.as_str()), None).await;
    // Who is in no project has no limits yet.
    let holds = holds.unwrap_or_default();
    let limits = PolicyLimits::from(policy.limits);
    let stricter = LimitKey::ALL.into_iter().filter_map(|key| {
        let own = limits.get(key)?;
        let one = holds.iter().find(|one| one.key == key.word())?;
        // A higher one may leave less now, as others use it: that is no stricter rule.
        let other = !one.policy.is_empty() && one.policy != policy.name && one.limit < own;
        let value = amount(visit, key, one.limit);
        other.then(|| t.policies_outdone(key_name(t, key), value, one.policy.as_str()))
    });
    stricter.collect()
}

async fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    policy: &PolicyView,
    typed: &UseForm,
) -> PolicyPage {
    let t = visit.text;
    let here = format!("{PATH}/{}", encoded(&policy.name));
    let limits = PolicyLimits::from(policy.limits);
    let mut uses = Vec::new();
    for (at, one) in policy.uses.iter().enumerate() {
        uses.push(UseRow {
            level: level_name(t, one.level),
            name: one.name.clone(),
            detach: format!(
                "{here}/detach?level={}&subject={}",
                one.level.word(),
                encoded(&one.id.map_or_else(String::new, |id| id.to_string()))
            ),
            outdone: match at < MAX_PLACES {
                true => outdone(console, visit, caller, policy, one).await,
                false => Vec::new(),
            },
        });
    }
    let group = |kind: LimitKind, title, lead| LimitGroup {
        title,
        lead,
        fields: LimitKey::ALL
            .into_iter()
            .filter(|key| key.kind() == kind)
            .map(|key| LimitField {
                key: key.word(),
                label: key_name(t, key),
                value: limits
                    .get(key)
                    .map_or_else(String::new, |value| written(key, value)),
                hint: hint(t, key),
            })
            .collect(),
    };
    PolicyPage {
        t,
        f: layout(console, visit, caller, Nav::Policies),
        may_change: caller.subject.can(Permission::SystemWrite),
        name: policy.name.clone(),
        sudo: policy.sudo,
        no_inner_door: policy.no_inner_door,
        no_home: policy.no_home,
        require_limit: policy.require_limit,
        groups: vec![
            group(LimitKind::Held, t.policies_held(), t.policies_held_lead()),
            group(LimitKind::Each, t.policies_each(), t.policies_each_lead()),
            group(
                LimitKind::Queue,
                t.policies_queue(),
                t.policies_queue_lead(),
            ),
            group(
                LimitKind::Account,
                t.policies_account(),
                t.policies_account_lead(),
            ),
            LimitGroup {
                title: t.policies_network(),
                lead: t.policies_network_lead(),
                fields: vec![
                    LimitField {
                        key: NETWORKS,
                        label: t.policies_networks(),
                        value: policy.egress.networks.join(" "),
                        hint: t.policies_names_none("list none"),
                    },
                    LimitField {
                        key: TARGETS,
                        label: t.policies_targets(),
                        value: policy.egress.targets.join("\n"),
                        hint: t.policies_names_none("warehouse.plant:3306 db=10.1.2.3:5432"),
                    },
                ],
            },
        ],
        uses,
        levels: PolicyLevel::ALL
            .into_iter()
            .rev()
            .map(|level| {
                let chosen = level.word() == typed.level;
                Choice::new(level.word(), level_name(t, level), chosen)
            })
            .collect(),
        subject: typed.subject.clone(),
        generation: policy.generation,
        here,
        over: None,
    }
}

/// Who would have more, one line each.
fn over(t: Text, preview: &PolicyPreviewView) -> Vec<String> {
    let told = preview.items.iter().map(|one| {
        let place = match (one.level, one.name.as_str()) {
            (PolicyLevel::Site, _) | (_, "") => level_name(t, one.level).to_owned(),
            (level, name) => format!("{} {name}", level_name(t, level)),
        };
        let who = match (&one.user, one.level) {
            (Some(user), PolicyLevel::Site | PolicyLevel::User) => user.clone(),
            (Some(user), _) => format!("{place} · {user}"),
            (None, _) => place,
        };
        let key = LimitKey::ALL.into_iter().find(|key| key.word() == one.key);
        let name = key.map_or_else(|| one.key.as_str(), |key| key_name(t, key));
        let amount = |value: u64, text: &str| {
            key.map_or_else(|| text.to_owned(), |key| amount_in(t, key, value))
        };
        let (used, limit) = (
            amount(one.used, &one.used_text),
            amount(one.limit, &one.limit_text),
        );
        t.policies_over_one(who, name, used, limit)
    });
    let more = (preview.more > 0).then(|| t.policies_over_more(preview.more));
    told.chain(more).collect()
}

/// `POST /policies/{id}/preview`: the page with the limits as they were typed, and who would have more than they allow.
/// Nothing is saved.
async fn preview(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    let sent = SentPolicy { fields };
    let to = sent.to();
    let previewed = async {
        let patch = sent.patch()?;
        let told = policies::preview(&console.server, &caller, &id, patch.clone()).await?;
        let saved = policies::get(&console.server, &caller, &id).await?;
        Ok::<_, Failure>((typed_in(saved, patch, sent.seen()), told))
    };
    match previewed.await {
        Ok((policy, told)) => {
            let page = PolicyPage {
                over: Some(over(visit.text, &told)),
                ..page(&console, &visit, &caller, &policy, &to).await
            };
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(Failure::Refusal(refusal)) => {
            let form = sent.refused(visit.text, &id, &refusal);
            again(&console, &visit, &caller, &id, form, &refusal, &to).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /policies/{id}/preview`: what was previewed has no address of its own.
async fn preview_left(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match policies::get(&console.server, &caller, &id).await {
        Ok(policy) => responses::see(&format!("{PATH}/{}", encoded(&policy.name))),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The policy as the form has it, under the version that the form was filled from.
fn typed_in(saved: PolicyView, patch: PolicyPatchBody, seen: Option<u64>) -> PolicyView {
    PolicyView {
        limits: patch.limits.map_or(saved.limits, |Object(limits)| limits),
        egress: patch.egress.map_or(saved.egress, |Object(egress)| egress),
        sudo: patch.sudo.unwrap_or(saved.sudo),
        no_inner_door: patch.no_inner_door.unwrap_or(saved.no_inner_door),
        no_home: patch.no_home.unwrap_or(saved.no_home),
        require_limit: patch.require_limit.unwrap_or(saved.require_limit),
        generation: seen.unwrap_or(saved.generation),
        id: saved.id,
        name: saved.name,
        uses: saved.uses,
    }
}

/// A limit as its field takes it.
pub(super) fn written(key: LimitKey, value: u64) -> String {
    let hundredths = u32::try_from(value).unwrap_or(u32::MAX);
    match key {
        LimitKey::Gpu | LimitKey::GpuEach => GpuShare(hundredths).to_string(),
        LimitKey::Cpu | LimitKey::CpuEach => CpuShare(hundredths).to_string(),
        LimitKey::Memory
        | LimitKey::MemoryEach
        | LimitKey::DiskEach
        | LimitKey::WaitingBytes
        | LimitKey::FolderBytes => exact(value),
        LimitKey::RuntimeSeconds if value.is_multiple_of(3_600) => format!("{}h", value / 3_600),
        LimitKey::RuntimeSeconds => format!("{value}s"),
        LimitKey::Waiting
        | LimitKey::Sessions
        | LimitKey::Priority
        | LimitKey::SignIns
        | LimitKey::Images => value.to_string(),
    }
}

/// What a field says while it is empty: no limit and an example, or what holds where no policy says it.
fn hint(t: Text, key: LimitKey) -> String {
    match key {
        LimitKey::FolderBytes => t.policies_left_empty(DEFAULT_FOLDER_BYTES),
        LimitKey::Priority => t.policies_left_empty(USUAL_PRIORITY),
        LimitKey::Images => t.policies_left_empty(MAX_OWN_IMAGES),
        LimitKey::Waiting
        | LimitKey::WaitingBytes
        | LimitKey::Sessions
        | LimitKey::Gpu
        | LimitKey::Cpu
        | LimitKey::Memory
        | LimitKey::GpuEach
        | LimitKey::CpuEach
        | LimitKey::MemoryEach
        | LimitKey::DiskEach
        | LimitKey::RuntimeSeconds
        | LimitKey::SignIns => t.policies_example(example(key)),
    }
}

pub(super) fn example(key: LimitKey) -> &'static str {
    match key {
        LimitKey::Gpu | LimitKey::GpuEach => "1.5",
        LimitKey::Cpu | LimitKey::CpuEach => "8",
        LimitKey::Memory | LimitKey::MemoryEach => "32 GiB",
        LimitKey::WaitingBytes => "16 MiB",
        LimitKey::DiskEach => "20 GiB",
        LimitKey::FolderBytes => "50 GiB",
        LimitKey::RuntimeSeconds => "12h",
        LimitKey::Priority => "50",
        LimitKey::Images => "32",
        LimitKey::Waiting | LimitKey::Sessions | LimitKey::SignIns => "4",
    }
}

/// `1` of `1 GPU` and of `2 cores`: what names its own unit is no mistake. Sizes and times bring theirs.
fn without_unit(key: LimitKey, text: &str) -> &str {
    let units: &[&str] = match key {
        LimitKey::Gpu | LimitKey::GpuEach => &["gpu", "gpus"],
        LimitKey::Cpu | LimitKey::CpuEach => &["core", "cores", "cpu", "cpus"],
        LimitKey::Waiting | LimitKey::Sessions => &["session", "sessions"],
        LimitKey::Images => &["image", "images"],
        LimitKey::Memory
        | LimitKey::MemoryEach
        | LimitKey::DiskEach
        | LimitKey::WaitingBytes
        | LimitKey::FolderBytes
        | LimitKey::RuntimeSeconds
        | LimitKey::Priority
        | LimitKey::SignIns => &[],
    };
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    match units.iter().any(|one| unit.eq_ignore_ascii_case(one)) {
        true => number.trim_end(),
        false => text,
    }
}

/// What was typed into a field; None for nothing. Errors: `policy.limit-invalid`, `span.invalid`, at the field.
pub(super) fn read(key: LimitKey, text: &str) -> Result<Option<u64>, Refusal> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let text = &*point(without_unit(key, text));
    let value = match key {
        LimitKey::Gpu | LimitKey::GpuEach => GpuShare::parse(text).ok().map(|share| share.0.into()),
        LimitKey::Cpu | LimitKey::CpuEach => CpuShare::parse(text).ok().map(|share| share.0.into()),
        LimitKey::Memory | LimitKey::MemoryEach | LimitKey::WaitingBytes => {
            Bytes::parse(text).ok().map(|bytes| bytes.0)
        }
        LimitKey::DiskEach => Bytes::parse(text)
            .ok()
            .filter(|bytes| *bytes >= MIN_DISK)
            .map(|bytes| bytes.0),
        LimitKey::FolderBytes => Bytes::parse(text)
            .ok()
            .filter(|bytes| *bytes >= MIN_FOLDER_BYTES)
            .map(|bytes| bytes.0),
        LimitKey::RuntimeSeconds => {
            // Says which units there are, where one is missing.
            let span = launch::span(text);
            span.map_err(|refusal| refusal.at(format!("/{}", key.word())))?
        }
        LimitKey::Waiting | LimitKey::Sessions => text.parse().ok(),
        LimitKey::Priority => {
            let most = u64::from(MAX_PRIORITY);
            text.parse::<u64>().ok().filter(|one| *one <= most)
        }
        LimitKey::SignIns => text.parse::<u64>().ok().filter(|most| *most > 0),
        LimitKey::Images => text
            .parse::<u64>()
            .ok()
            .filter(|most| *most <= MAX_POLICY_IMAGES),
    };
    let refused = || refusals::policy_limit_invalid(example(key)).at(format!("/{}", key.word()));
    value.map(Some).ok_or_else(refused)
}

/// The page's one form, as it was sent: the limits, and where the policy is to be attached.
struct SentPolicy {
    fields: Vec<(String, String)>,
}

impl SentPolicy {
    fn named(&self, key: &str) -> &str {
        let mut all = self.fields.iter();
        all.find(|(name, _)| name == key)
            .map_or("", |(_, text)| text.as_str())
    }

    fn words(&self, key: &str) -> Vec<String> {
        let words = self.named(key).split([' ', ',', '\t', '\r', '\n']);
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }

    /// The version that the form was filled from; None where none was sent.
    fn seen(&self) -> Option<u64> {
        self.named("generation").parse().ok()
    }

    fn to(&self) -> UseForm {
        UseForm {
            level: self.named("level").to_owned(),
            subject: self.named("subject").to_owned(),
        }
    }

    /// Errors: `policy.limit-invalid` at the field.
    fn patch(&self) -> Result<PolicyPatchBody, Refusal> {
        let mut limits = PolicyLimits::NONE;
        for key in LimitKey::ALL {
            limits.set(key, read(key, self.named(key.word()))?);
        }
        Ok(PolicyPatchBody {
            name: None,
            limits: Some(Object(LimitsBody::from(limits))),
            egress: Some(Object(EgressBody {
                networks: self.words(NETWORKS),
                targets: self.words(TARGETS),
            })),
            // A browser sends a box only where it is ticked.
            sudo: Some(!self.named("sudo").is_empty()),
            no_inner_door: Some(!self.named("no_inner_door").is_empty()),
            no_home: Some(!self.named("no_home").is_empty()),
            require_limit: Some(!self.named("require_limit").is_empty()),
        })
    }

    /// The form with a refusal and with what was typed.
    fn refused(&self, t: Text, id: &str, refusal: &Refusal) -> RefusedForm {
        let limits = LimitKey::ALL.into_iter().map(LimitKey::word);
        let typed = limits.chain([NETWORKS, TARGETS]);
        let typed: Vec<(&str, &str)> = typed.map(|key| (key, self.named(key))).collect();
        RefusedForm::new(t, &format!("{PATH}/{}", encoded(id)), refusal).with(typed)
    }
}

/// Saves the limits. Where the policy would be attached to stays in its fields.
async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    let sent = SentPolicy { fields };
    let to = sent.to();
    let changed = async {
        let patch = sent.patch()?;
        policies::change(&console.server, &caller, &id, patch, sent.seen()).await
    };
    match changed.await {
        Ok(policy) => {
            let mut place = format!("{PATH}/{}", encoded(&policy.name));
            if !to.subject.is_empty() {
                let (level, subject) = (encoded(&to.level), encoded(&to.subject));
                place.push_str(&format!("?level={level}&subject={subject}"));
            }
            responses::see_with(&place, "policy-changed", &policy.name)
        }
        Err(Failure::Refusal(refusal)) => {
            let form = sent.refused(visit.text, &id, &refusal);
            again(&console, &visit, &caller, &id, form, &refusal, &to).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn again(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    form: RefusedForm,
    refusal: &Refusal,
    typed: &UseForm,
) -> Response {
    let visit = visit.refusing(form);
    match policies::get(&console.server, caller, id).await {
        Ok(policy) => {
            let page = page(console, &visit, caller, &policy, typed).await;
            responses::page(console, &visit, responses::status(refusal), &page)
        }
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct UseForm {
    level: String,
    subject: String,
}

impl UseForm {
    fn body(&self) -> PolicyUseBody {
        PolicyUseBody {
            level: PolicyLevel::parse(&self.level).unwrap_or(PolicyLevel::User),
            subject: Some(self.subject.clone()),
        }
    }
}

/// Saves the limits and attaches the policy: both or neither.
async fn attach(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    let sent = SentPolicy { fields };
    let to = sent.to();
    let attached = async {
        let (patch, seen) = (sent.patch()?, sent.seen());
        policies::change_and_attach(&console.server, &caller, &id, patch, seen, to.body()).await
    };
    match attached.await {
        Ok(policy) => {
            let place = format!("{PATH}/{}", encoded(&policy.name));
            responses::see_with(&place, "policy-attached", &policy.name)
        }
        Err(Failure::Refusal(refusal)) => {
            let form = sent.refused(visit.text, &id, &refusal);
            again(&console, &visit, &caller, &id, form, &refusal, &to).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn question(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    back: String,
    title: String,
    lead: &str,
) -> DialogPage {
    let frame = layout(console, visit, caller, Nav::Policies);
    DialogPage::titled(frame, back, title, lead)
}

async fn ask_detach(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<UseForm>,
) -> Response {
    let t = visit.text;
    let policy = match policies::get(&console.server, &caller, &id).await {
        Ok(policy) => policy,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let back = format!("{PATH}/{}", encoded(&policy.name));
    let title = t.policies_detach_title(policy.name.as_str());
    let lead = t.policies_detach_lead();
    let mut page = question(&console, &visit, &caller, back.clone(), title, lead);
    let meant = asked.subject.parse::<uuid::Uuid>().ok();
    let uses = policy.uses.iter();
    page.items = uses
        .filter(|one| one.level.word() == asked.level && one.id == meant)
        .map(|one| place(t, one))
        .collect();
    page.form = Some(DialogForm {
        action: format!("{back}/detach"),
        fields: vec![("level", asked.level), ("subject", asked.subject)],
        icon: "x",
        go: t.policies_detach().to_owned(),
        ends: false,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Policies, page)
}

async fn detach(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<UseForm>,
) -> Response {
    let level = PolicyLevel::parse(&sent.level);
    match policies::detach(&console.server, &caller, &id, level, Some(sent.subject)).await {
        Ok(policy) => {
            let place = format!("{PATH}/{}", encoded(&policy.name));
            responses::see_with(&place, "policy-detached", &policy.name)
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
    let policy = match policies::get(&console.server, &caller, &id).await {
        Ok(policy) => policy,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let back = format!("{PATH}/{}", encoded(&policy.name));
    let title = t.policies_remove_title(policy.name.as_str());
    let lead = t.policies_remove_lead();
    let mut page = question(&console, &visit, &caller, back.clone(), title, lead);
    page.form = Some(DialogForm {
        action: format!("{back}/remove"),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.policies_remove().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Policies, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match policies::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "policy-removed", &id),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_sent_again_is_the_same() {
        let gib = 1_u64 << 30;
        for bytes in [gib, gib + gib / 2, gib + gib / 4, 5 * gib + 1, 12_345, 1] {
            let shown = written(LimitKey::Memory, bytes);
            assert_eq!(read(LimitKey::Memory, &shown), Ok(Some(bytes)), "{shown}");
        }
        for seconds in [1, 3_600, 5_400] {
            let shown = written(LimitKey::RuntimeSeconds, seconds);
            let again = read(LimitKey::RuntimeSeconds, &shown);
            assert_eq!(again, Ok(Some(seconds)), "{shown}");
        }
    }

    #[test]
    fn an_amount_may_name_its_unit() {
        for (key, typed, value) in [
            (LimitKey::Gpu, "1 GPU", 100),
            (LimitKey::Gpu, "0,5GPUs", 50),
            (LimitKey::CpuEach, "2 cores", 200),
            (LimitKey::Sessions, "3 sessions", 3),
        ] {
            assert_eq!(read(key, typed), Ok(Some(value)), "{typed}");
        }
        for (key, typed) in [(LimitKey::Gpu, "1 core"), (LimitKey::Priority, "5 gpu")] {
            assert!(read(key, typed).is_err(), "{typed} was taken");
        }
    }

    #[test]
    fn a_time_limit_without_a_unit_is_refused() {
        let refusal = read(LimitKey::RuntimeSeconds, "12").expect_err("no unit");
        assert_eq!(refusal.code, "span.invalid");
        assert_eq!(refusal.pointer.as_deref(), Some("/runtime_seconds"));
    }
}
