//! `/sessions/new`: the form, and the scheduler's answer beside it while the user types.

mod card;
mod command_line;
mod folder_chips;
mod sizes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::gpus::Gpu;
use api::mounts::NewMountBody;
use api::sessions::{LaunchRequest, ListQuery, Resources};
use api::tenancy::ProjectView;
use askama::Template;
use axum::extract::{Form, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::devices::{MigProfile, WHOLE};
use rules::folder::RequestedMount;
use rules::grants::GrantRole;
use rules::placement::Explanation;
use rules::policy::SharePolicy;
use rules::quota::LimitKey;
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::Demand;
use rules::session::SessionKind;
use rules::tenancy::TenantState;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp, quoted};
use rules::workload::precedence::MAX_PRIORITY;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::courses;
use server::actions::gpus as devices;
use server::actions::images as environments;
use server::actions::policies;
use server::actions::resource_groups;
use server::actions::sessions::{self, NodeOverview};
use server::actions::tenancy;

use super::authentication::PageCaller;
use super::choice_field::{ChoiceField, MAX_LISTED};
use super::components::{self, Alert, BarRow, CheckRow, Choice, FormFieldError};
use super::form_faults::RefusedForm;
use super::hues::Hues;
use super::layout::{Nav, PageLayout};
use super::presenter::{self, Preview};
use super::request_context::RequestContext;
use super::typed::point;
use super::{PagesContext, gpus, images, layout, live as stream, responses};
use crate::doors::launch_texts::{LaunchTexts, TextBox};
use crate::doors::text::{Text, codes};

pub use card::{GpuPicker, NamedShare, PartitionChoice, gib, worth};
pub use folder_chips::{FolderChip, mount_of};
use sizes::PickedSize;
pub use sizes::{NamedSize, SizePicker};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/launch.html", blocks = ["preview", "sizes"])]
pub struct LaunchPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub recent: Vec<RecentLaunch>,
    pub kinds: Vec<Choice>,
    pub images: Vec<Choice>,
    /// Those that are folded away.
    pub more_images: Vec<Choice>,
    /// The words on the link to every image.
    pub all_images: String,
    /// Images that only their list has.
    pub other_images: usize,
    pub sizes: SizePicker,
    pub sliders: Vec<Slider>,
    /// The part about GPUs; none where there is no device.
    pub card: Option<GpuPicker>,
    pub form: LaunchFields,
    /// The boxes of the texts that go into the request as they are.
    pub texts: Vec<TextBox>,
    /// Resource groups to choose from; empty where the reader may use one.
    pub groups: Vec<String>,
    /// Mounts that a click puts into the form.
    pub mounts: Vec<FolderChip>,
    /// The projects to choose from; empty where there is one.
    pub projects: ChoiceField,
    /// Whether the reader may launch for members of a project.
    pub for_members: bool,
    pub name_hint: String,
    /// What holds where the field of the time limit stays empty, in the field and below it.
    pub runtime: UsualRuntime,
    pub preview: Preview,
    /// What is wrong with the fields as they are typed now.
    pub typed_faults: Vec<FormFieldError>,
    /// That the form asks for more than the session it came from had, and why; or that there is no such preset, and what a
    /// course says.
    pub changed: Option<String>,
}

/// The text fields exactly as they were typed, so that a refused form comes back whole.
#[derive(Clone, Debug, Default)]
pub struct LaunchFields {
    pub command: String,
    pub name: String,
    pub owner: String,
    pub max_runtime: String,
    pub replicas: String,
    pub containers: String,
    pub priority: String,
    /// Something where the box is ticked.
    pub yields: String,
    /// The same of the start-up.
    pub without_start_up: String,
    /// The same of the home.
    pub without_home: String,
    /// Sessions of this server have a home by themselves.
    pub has_homes: bool,
    /// The same of sudo.
    pub sudo: String,
    /// A policy of the site allows sudo.
    pub offers_sudo: bool,
    pub shm: String,
    pub disk: String,
    /// What it is held to where nothing is typed and no policy says any; empty: to nothing.
    pub usual_disk: String,
    pub start_at: String,
    pub after: String,
    /// A folder and its place on each line.
    pub mounts: String,
    pub env: String,
    pub labels: String,
    /// Whether the folded part holds anything.
    pub advanced: bool,
    /// What is asked of GPUs, for where the card has no field of it.
    pub gpu: String,
    pub gpu_memory: String,
    pub mig: String,
}

/// The time limit of a session that names none.
pub struct UsualRuntime {
    pub hint: String,
    /// Which policy says so; empty where none limits it.
    pub told: String,
}

pub struct RecentLaunch {
    pub href: String,
    pub name: String,
    pub facts: String,
}

/// A number with a handle; the number is what counts, the handle needs script.
pub struct Slider {
    pub name: &'static str,
    pub title: &'static str,
    pub note: String,
    pub unit: &'static str,
    pub least: String,
    pub most: String,
    pub step: String,
    /// Where the handle stands.
    pub value: String,
    /// What is in the box, right or wrong.
    pub typed: String,
}

/// Environments that the form shows; the others are folded away. Higher: the resources are far below. Lower: a usual
/// image needs a click more.
const FIRST_IMAGES: usize = 8;

/// Takes out what the form folds away: nothing, or at least two; of many no more than a page lists. The list of images
/// has the others, and leads back here with one of them.
fn folded(all: &mut Vec<Choice>) -> Vec<Choice> {
    all.truncate(MAX_LISTED);
    match all.len() > FIRST_IMAGES + 1 {
        true => all.split_off(FIRST_IMAGES),
        false => Vec::new(),
    }
}

/// Earlier launches offered as a start.
const RECENT: u32 = 6;

/// The form as a browser sends it; every field is text until it is understood.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LaunchForm {
    kind: String,
    image: String,
    command: String,
    preset: String,
    /// The same where it was picked from a list.
    size: String,
    /// The preset that was picked before, which the form keeps.
    picked: String,
    /// A size of the share that was picked without script.
    share: String,
    cpu: String,
    memory: String,
    gpu: String,
    gpu_memory: String,
    mig: String,
    name: String,
    // The aliases: a page of the version before may still be open.
    #[serde(alias = "longest")]
    max_runtime: String,
    #[serde(alias = "copies")]
    replicas: String,
    containers: String,
    priority: String,
    yields: String,
    without_start_up: String,
    without_home: String,
    sudo: String,
    shm: String,
    disk: String,
    start_at: String,
    after: String,
    mounts: String,
    env: String,
    labels: String,
    #[serde(flatten)]
    texts: LaunchTexts,
    project: String,
    owner: String,
    act: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct LaunchQuery {
    /// A session whose settings to begin with.
    from: String,
    /// Any field of the form: a link that opens it filled.
    #[serde(flatten)]
    form: LaunchForm,
}

impl LaunchPage {
    fn has_share(&self) -> bool {
        self.card.as_ref().is_some_and(|card| card.share.is_some())
    }

    fn has_partitions(&self) -> bool {
        let card = self.card.as_ref();
        card.is_some_and(|card| !card.partitions.is_empty())
    }

    /// Whether the form carries the field and shows none: this machine has no such device.
    fn hides(&self, field: &str) -> bool {
        match field {
            "gpu" | "gpu_memory" => !self.has_share(),
            "mig" => !self.has_partitions(),
            _ => false,
        }
    }
}

impl LaunchForm {
    /// The size that was picked last; empty where none was.
    fn picked(&self) -> &str {
        match self.size.is_empty() {
            true => &self.picked,
            false => &self.size,
        }
    }

    /// The form as a link or a preset fills it; what is left out is as on a new form.
    fn filled(self) -> Self {
        let or = |value: String, other: &str| {
            if value.is_empty() {
                other.to_owned()
            } else {
                value
            }
        };
        let kind = if self.command.trim().is_empty() {
            "interactive"
        } else {
            "batch"
        };
        LaunchForm {
            kind: or(self.kind, kind),
            image: or(self.image, "host"),
            cpu: or(self.cpu, "1"),
            memory: or(self.memory, "1"),
            replicas: or(self.replicas, "1"),
            act: String::new(),
            ..self
        }
    }
}

/// `GET /sessions/new`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<LaunchQuery>,
) -> Response {
    let sent = if asked.from.is_empty() {
        begun(&console, &visit, &caller, asked.form).await
    } else {
        duplicated(&console, &visit, &caller, &asked.from).await
    };
    let opened = match sent {
        Ok((sent, changed)) => page(&console, &visit, &caller, sent, None)
            .await
            .map(|page| LaunchPage { changed, ..page }),
        Err(failure) => Err(failure),
    };
    match opened {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::Launch);
            responses::failure(&console, &visit, Some(frame), &failure)
        }
    }
}

/// A new form: with the size that a link names, or the default of the project where it asks for no amount. Beside it,
/// that there is no such size, and the rules of the course of a project that it names.
async fn begun(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    mut form: LaunchForm,
) -> Result<(LaunchForm, Option<String>), Failure> {
    let named = std::mem::take(&mut form.preset);
    let t = visit.text;
    let mut unknown = None;
    match named.is_empty() {
        true => sizes::begin(console, caller, t, &mut form).await?,
        false => {
            let picked = sizes::apply(console, caller, t, &[], &mut form, &named).await?;
            if picked == PickedSize::Unknown {
                sizes::begin(console, caller, t, &mut form).await?;
                unknown = Some(t.launch_preset_unknown(shown(&named)));
            }
        }
    }
    needed_by_image(console, caller, &mut form).await;
    let course = courses::for_launch(&console.server, caller, &form.project).await?;
    let course = course.map(|course| {
        let said = t.launch_course(course.heading());
        match course.rules.is_empty() {
            true => said,
            false => format!("{said} {}", course.rules),
        }
    });
    let told: Vec<String> = unknown.into_iter().chain(course).collect();
    let told = (!told.is_empty()).then(|| told.join(" "));
    Ok((form.filled(), told))
}

/// Fills in what the image of a link needs, where the form says no amount. An image that is not there says so below the form.
async fn needed_by_image(console: &PagesContext, caller: &Caller, form: &mut LaunchForm) {
    if form.image.is_empty() || form.image == "host" {
        return;
    }
    let Ok(image) = environments::get(&console.server, caller, &form.image).await else {
        return;
    };
    let (limits, usual) = (image.limits, Demand::default());
    if form.cpu.is_empty() {
        form.cpu = limits.usual_cpu(usual.cpu).to_string();
    }
    if form.memory.is_empty() {
        form.memory = typed_memory(limits.usual_memory(usual.memory));
    }
    let wants_device = !form.gpu.is_empty() || !form.mig.is_empty();
    if let Some(least) = limits.min_gpu.filter(|_| !wants_device) {
        form.gpu = least.to_string();
    }
}

/// The name of a preset that there is not, as it was sent: short, and with nothing hidden.
fn shown(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_debug).collect()
}

/// The form of a session that is launched once more, and what it asks for more of: one that was killed at its memory
/// limit would be killed again.
async fn duplicated(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    from: &str,
) -> Result<(LaunchForm, Option<String>), Failure> {
    let mut request = sessions::duplicate(&console.server, caller, from).await?;
    let session = sessions::get(&console.server, caller, from).await?;
    let killed = session
        .reason
        .is_some_and(|reason| reason.code == rules::codes::SESSION_OUT_OF_MEMORY);
    let limit = session.resources.memory;
    let seen = sessions::overview(&console.server, caller).await?;
    let more = seen.machines.iter().map(|machine| machine.memory).max();
    let more = more.and_then(|most| more_memory(limit, most));
    let changed = match more.filter(|_| killed) {
        Some(more) => {
            request.resources.memory = Some(more);
            let (limit, more) = (components::size(limit.0), components::size(more.0));
            Some(visit.text.launch_more_memory(session.name, limit, more))
        }
        None => None,
    };
    Ok((again(&request), changed))
}

/// Twice the memory, or all that the largest node has; none where that is no more.
fn more_memory(limit: Bytes, most: Bytes) -> Option<Bytes> {
    // Whole GiB, as the form's box shows them.
    let most = if most >= Bytes::gib(1) {
        Bytes(most.0 >> 30 << 30)
    } else {
        most
    };
    let more = Bytes(limit.0.saturating_mul(2)).min(most);
    (more > limit).then_some(more)
}

/// `POST /sessions/new/sizes`: the sizes alone, those of another project.
pub async fn resize(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<LaunchForm>,
) -> Response {
    match page(&console, &visit, &caller, sent, None).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page.as_sizes()),
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::Launch);
            responses::failure(&console, &visit, Some(frame), &failure)
        }
    }
}

/// `POST /sessions/new/preview`: the scheduler's answer alone.
pub async fn preview(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<LaunchForm>,
) -> Response {
    match page(&console, &visit, &caller, sent, None).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page.as_preview()),
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::Launch);
            responses::failure(&console, &visit, Some(frame), &failure)
        }
    }
}

/// What the page was answered for.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct LaunchLiveQuery {
    mark: String,
}

/// `GET /sessions/new/live`: has the page ask for its preview again whenever the queue or the room changes.
pub async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(seen): Query<LaunchLiveQuery>,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    let known = Arc::new((seen.mark, AtomicBool::new(true)));
    stream::stream(&shared, &request, &reader, move || {
        let (console, caller, known) = (console.clone(), caller.clone(), Arc::clone(&known));
        async move {
            let mark = sessions::queue_mark(&console.server, &caller).await.ok()?;
            let mark = format!("{mark:x}");
            // As long as nothing has changed the page's own answer stands.
            let same = known.0 == mark && known.1.load(Ordering::Relaxed);
            known.1.store(same, Ordering::Relaxed);
            let ask = match same {
                true => "",
                // A new id makes a new element, and that one asks once.
                false => {
                    " hx-post=\"/sessions/new/preview\" hx-include=\"#launch\" hx-target=\"#preview\" \
                     hx-swap=\"innerMorph\" hx-trigger=\"load\" hx-sync=\"#launch:replace\""
                }
            };
            let id = if same { "q" } else { mark.as_str() };
            Some(vec![
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("queue-mark", format!("<span id=\"q-{id}\"{ask}></span>")),
            ])
        }
    })
}

/// `POST /sessions/new`: launches; or, without script, applies a size or shows the answer.
pub async fn submit(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(mut sent): Form<LaunchForm>,
) -> Response {
    // A chip sends `preset`, a list `size`. Without script one of a list may be picked and not yet filled in: then the
    // form comes back with its amounts, and nothing is launched that nobody saw.
    let chip = std::mem::take(&mut sent.preset);
    let listed = std::mem::take(&mut sent.size);
    let picked = if chip.is_empty() { &listed } else { &chip };
    if !picked.is_empty() {
        let machines = sessions::overview(&console.server, &caller)
            .await
            .map(|seen| seen.machines)
            .unwrap_or_default();
        let t = visit.text;
        match sizes::apply(&console, &caller, t, &machines, &mut sent, picked).await {
            Ok(PickedSize::Held) if chip.is_empty() && sent.act == "launch" => {}
            Ok(PickedSize::Held | PickedSize::Filled) => {
                return form(&console, &visit, &caller, sent, StatusCode::OK, None).await;
            }
            Ok(PickedSize::Unknown) => {
                let refusal = refusals::preset_unknown(shown(picked));
                let status = responses::status(&refusal);
                return refused(&console, &visit, &caller, sent, status, refusal).await;
            }
            Err(failure) => {
                let frame = layout(&console, &visit, &caller, Nav::Launch);
                return responses::failure(&console, &visit, Some(frame), &failure);
            }
        }
    }
    if !sent.share.is_empty() {
        sent.gpu = match std::mem::take(&mut sent.share) {
            none if none == "0" => String::new(),
            share => share,
        };
        return form(&console, &visit, &caller, sent, StatusCode::OK, None).await;
    }
    if matches!(sent.act.as_str(), "check" | "size") {
        return form(&console, &visit, &caller, sent, StatusCode::OK, None).await;
    }
    let launched = async {
        let mut request = understand(&visit, &sent)?;
        // As the API does for a launch that names its preset, where there is room for a label more.
        if let Some(preset) = sizes::held(&console, &caller, visit.text, &sent).await?
            && request.labels.len() < rules::session::MAX_LABELS
        {
            let label = request.labels.entry("preset".to_owned());
            label.or_insert(preset);
        }
        sessions::launch(&console.server, &caller, request, None).await
    };
    match launched.await {
        Ok(launched) => match &launched.sessions[..] {
            [one] => responses::see_with(
                &format!("/sessions/{}", one.id),
                "launched",
                one.name.as_str(),
            ),
            many => responses::see_with("/sessions", "launched-n", &many.len().to_string()),
        },
        Err(Failure::Refusal(refusal)) => {
            let status = responses::status(&refusal);
            refused(&console, &visit, &caller, sent, status, refusal).await
        }
        Err(fault) => {
            let frame = layout(&console, &visit, &caller, Nav::Launch);
            responses::failure(&console, &visit, Some(frame), &fault)
        }
    }
}

async fn form(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    sent: LaunchForm,
    status: StatusCode,
    refusal: Option<Refusal>,
) -> Response {
    match page(console, visit, caller, sent, refusal).await {
        Ok(page) => responses::page(console, visit, status, &page),
        Err(failure) => {
            let frame = layout(console, visit, caller, Nav::Launch);
            responses::failure(console, visit, Some(frame), &failure)
        }
    }
}

/// The form again with each fault at its field.
async fn refused(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    sent: LaunchForm,
    status: StatusCode,
    refusal: Refusal,
) -> Response {
    let faults = faults(visit.text, &refusal);
    match page(console, visit, caller, sent, Some(refusal)).await {
        Ok(page) => {
            // On top stands only what names no field that is there.
            let hidden = faults.iter().any(|fault| page.hides(&fault.field));
            let page = LaunchPage {
                alert: page.alert.clone().filter(|_| faults.is_empty() || hidden),
                ..page
            };
            let form = RefusedForm::with_faults("/sessions/new", faults);
            responses::page(console, &visit.refusing(form), status, &page)
        }
        Err(failure) => {
            let frame = layout(console, visit, caller, Nav::Launch);
            responses::failure(console, visit, Some(frame), &failure)
        }
    }
}

/// What was typed as a request; the first thing that cannot be understood as a refusal with its field.
fn understand(visit: &RequestContext, sent: &LaunchForm) -> Result<LaunchRequest, Refusal> {
    let kind = if sent.kind == "batch" {
        SessionKind::Batch
    } else {
        SessionKind::Interactive
    };
    let max_runtime =
        span(&sent.max_runtime).map_err(|refusal| refusal.at("/max_runtime_seconds"))?;
    let disk = match sent.disk.trim() {
        "" => None,
        typed => Some(memory(typed).map_err(|refusal| refusal.at("/resources/disk"))?),
    };
    let memory = memory(&sent.memory).map_err(|refusal| refusal.at("/resources/memory"))?;
    let shm = match sent.shm.trim() {
        "" => None,
        typed => {
            let size = Bytes::parse(&point(typed));
            Some(size.map_err(|refusal| refusal.at("/resources/shm"))?)
        }
    };
    let replicas = match sent.replicas.trim() {
        "" => 1,
        typed => typed
            .parse()
            .map_err(|_| refusals::replicas_invalid().at("/replicas"))?,
    };
    let containers = match sent.containers.trim() {
        "" => 1,
        typed => typed
            .parse()
            .map_err(|_| refusals::containers_invalid().at("/containers"))?,
    };
    let priority = match sent.priority.trim() {
        "" => None,
        typed => Some(
            typed
                .parse()
                .map_err(|_| refusals::priority_out_of_range(MAX_PRIORITY).at("/priority"))?,
        ),
    };
    let start_at = match sent.start_at.trim() {
        "" => None,
        typed => Some(
            visit
                .clock
                .read(typed)
                .ok_or_else(|| refusals::time_not_a_time().at("/start_at"))?,
        ),
    };
    let command = match sent.command.trim() {
        typed if typed.is_empty() || kind == SessionKind::Interactive => Vec::new(),
        // The session's shell reads the line, so that pipes and variables mean what users expect.
        typed => vec!["/bin/sh".to_owned(), "-c".to_owned(), typed.to_owned()],
    };
    Ok(LaunchRequest {
        name: Some(sent.name.trim().to_owned()).filter(|name| !name.is_empty()),
        kind,
        image: Some(sent.image.trim())
            .filter(|image| !image.is_empty())
            .unwrap_or("host")
            .to_owned(),
        command,
        env: lines(&sent.env, refusals::env_line_invalid, "/env")?,
        mounts: mounts(&sent.mounts)?,
        labels: lines(&sent.labels, refusals::label_line_invalid, "/labels")?,
        resources: Resources {
            cpu: Some(
                CpuShare::parse(&point(&sent.cpu))
                    .map_err(|refusal| refusal.at("/resources/cpu"))?,
            ),
            memory: Some(memory),
            shm,
            disk,
            gpu: share(&sent.gpu)?,
            gpu_memory: gpu_memory(&sent.gpu_memory)?,
            mig: partition(&sent.mig)?,
        },
        containers,
        replicas,
        priority,
        // The box is not there for the other kind.
        yields: kind == SessionKind::Batch && !sent.yields.is_empty(),
        without_start_up: !sent.without_start_up.is_empty(),
        without_home: !sent.without_home.is_empty(),
        sudo: !sent.sudo.is_empty(),
        timeout_seconds: None,
        max_runtime_seconds: max_runtime,
        start_at,
        depends_on: sent
            .after
            .split([',', ' '])
            .map(str::trim)
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .collect(),
        project: Some(sent.project.trim().to_owned()).filter(|name| !name.is_empty()),
        owner: Some(sent.owner.trim().to_owned()).filter(|name| !name.is_empty()),
        preset: None,
        device_affinity: None,
        ..sent.texts.request()
    })
}

/// The most memory that a box takes: 1 PiB. Higher: a number of bytes without its unit counts as so many GiB. Lower:
/// no machine has as much.
const PEBIBYTE: Bytes = Bytes::gib(1 << 20);

/// Memory from a box labelled GiB: a bare number counts in GiB, anything else brings its unit.
///
/// Errors: `size.invalid` for what is no amount, or one above 1 PiB.
pub(super) fn memory(typed: &str) -> Result<Bytes, Refusal> {
    let number = point(typed.trim());
    let read = if number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        Bytes::parse(&format!("{number}g"))
    } else {
        Bytes::parse(&number)
    };
    let read = read.ok().filter(|size| *size <= PEBIBYTE);
    read.ok_or_else(|| refusals::memory_gib_invalid(quoted(typed)))
}

/// The same the other way round and exactly: `0.25`, and with a unit where hundredths cannot say it.
pub(super) fn typed_memory(memory: Bytes) -> String {
    let hundredths = (memory.0 as f64 / f64::from(1 << 30) * 100.0).round() / 100.0;
    if (hundredths * f64::from(1 << 30)) as u64 == memory.0 {
        hundredths.to_string()
    } else if memory.0.is_multiple_of(1 << 20) {
        format!("{}m", memory.0 >> 20)
    } else {
        format!("{}b", memory.0)
    }
}

/// A share as it was typed; an empty box and the handle at its left end ask for none.
fn share(typed: &str) -> Result<Option<GpuShare>, Refusal> {
    let typed = typed.trim();
    if typed.is_empty() {
        return Ok(None);
    }
    let share = GpuShare::parse(&point(typed)).map_err(|refusal| refusal.at("/resources/gpu"))?;
    Ok(Some(share).filter(|share| *share > GpuShare::ZERO))
}

/// Memory of the fraction; an empty box follows the share.
fn gpu_memory(typed: &str) -> Result<Option<Bytes>, Refusal> {
    if typed.trim().is_empty() {
        return Ok(None);
    }
    let read = memory(typed).map_err(|refusal| refusal.at("/resources/gpu_memory"))?;
    Ok(Some(read))
}

fn partition(typed: &str) -> Result<Option<MigProfile>, Refusal> {
    match typed.trim() {
        "" => Ok(None),
        typed => MigProfile::parse(typed).map(Some),
    }
}

/// `30m`, `4h`, `2d`, `90s`, or nothing. A number without its unit is refused: "12" beside "12h" is no twelve seconds.
pub(super) fn span(typed: &str) -> Result<Option<u64>, Refusal> {
    let typed = typed.trim().to_lowercase();
    if typed.is_empty() {
        return Ok(None);
    }
    let wrong = || refusals::span_invalid();
    let digits = typed
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(typed.len());
    let number: u64 = typed[..digits].parse().map_err(|_| wrong())?;
    let seconds = match typed[digits..].trim() {
        "" if number > 0 => return Err(refusals::span_unit_missing(number)),
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(Some).ok_or_else(wrong)
}

/// The same the other way round: `4h`, `30m`, `90s`.
pub(super) fn typed_span(seconds: u64) -> String {
    match (seconds % 3600, seconds % 60) {
        (0, _) => format!("{}h", seconds / 3600),
        (_, 0) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// A size in its largest whole unit: `64m`.
pub(super) fn typed_size(size: Bytes) -> String {
    command_line::size("", Some(size))
}

/// One `name=value` a line; empty lines are skipped.
fn lines(
    typed: &str,
    wrong: fn() -> Refusal,
    pointer: &str,
) -> Result<BTreeMap<String, String>, Refusal> {
    typed
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .filter(|line| !line.trim().is_empty())
        .map(|line| match line.split_once('=') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.to_owned())),
            None => Err(wrong().at(pointer)),
        })
        .collect()
}

/// Folders to mount, one on a line.
///
/// Errors: `mount.syntax`.
fn mounts(typed: &str) -> Result<Vec<NewMountBody>, Refusal> {
    typed
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| RequestedMount::parse(line).map(NewMountBody::from))
        .collect::<Result<_, _>>()
        .map_err(|refusal: Refusal| refusal.at("/mounts"))
}

/// A request as the form would have sent it.
fn again(request: &LaunchRequest) -> LaunchForm {
    let listed = |map: &BTreeMap<String, String>| {
        map.iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    LaunchForm {
        kind: match request.kind {
            SessionKind::Interactive => "interactive".into(),
            SessionKind::Batch => "batch".into(),
        },
        image: request.image.clone(),
        command: match &request.command[..] {
            [shell, flag, line] if (shell == "sh" || shell.ends_with("/sh")) && flag == "-c" => {
                line.clone()
            }
            words => words
                .iter()
                .map(|word| presenter::quoted(word))
                .collect::<Vec<_>>()
                .join(" "),
        },
        cpu: request.resources.cpu.unwrap_or_default().to_string(),
        memory: typed_memory(request.resources.memory.unwrap_or_default()),
        gpu: request
            .resources
            .gpu
            .map(|share| share.to_string())
            .unwrap_or_default(),
        gpu_memory: request
            .resources
            .gpu_memory
            .map(typed_memory)
            .unwrap_or_default(),
        mig: request
            .resources
            .mig
            .map(|profile| profile.to_string())
            .unwrap_or_default(),
        name: request.name.clone().unwrap_or_default(),
        project: request.project.clone().unwrap_or_default(),
        max_runtime: request
            .max_runtime_seconds
            .or(request.timeout_seconds)
            .map(typed_span)
            .unwrap_or_default(),
        replicas: request.replicas.to_string(),
        containers: match request.containers {
            1 => String::new(),
            several => several.to_string(),
        },
        priority: request
            .priority
            .map(|priority| priority.to_string())
            .unwrap_or_default(),
        yields: match request.yields {
            true => "1".to_owned(),
            false => String::new(),
        },
        without_start_up: match request.without_start_up {
            true => "1".to_owned(),
            false => String::new(),
        },
        without_home: match request.without_home {
            true => "1".to_owned(),
            false => String::new(),
        },
        sudo: match request.sudo {
            true => "1".to_owned(),
            false => String::new(),
        },
        // What is given without being asked for stays unasked.
        shm: request
            .resources
            .shm
            .filter(|shm| *shm != Demand::default().shm)
            .map(typed_size)
            .unwrap_or_default(),
        disk: request.resources.disk.map(typed_memory).unwrap_or_default(),
        mounts: request
            .mounts
            .iter()
            .map(NewMountBody::to_string)
            .collect::<Vec<_>>()
            .join("\n"),
        env: listed(&request.env),
        labels: listed(&request.labels),
        texts: LaunchTexts::of(request),
        picked: request.labels.get("preset").cloned().unwrap_or_default(),
        ..LaunchForm::default()
    }
}

/// The projects to choose from; none where there is one.
async fn projects(
    console: &PagesContext,
    t: Text,
    caller: &Caller,
    sent: &LaunchForm,
) -> Result<ChoiceField, Failure> {
    let choices = open_projects(console, caller, &sent.project).await?;
    Ok(ChoiceField::of(t, choices, &sent.project).asking("/choices/projects"))
}

/// The projects in which the caller may launch, where there are several; the chosen one is marked, also an archived one.
/// One whose name another one has too is named with its domain.
pub(super) async fn open_projects(
    console: &PagesContext,
    caller: &Caller,
    chosen: &str,
) -> Result<Vec<Choice>, Failure> {
    let may = caller.subject.grants.iter().filter(|g| g.role.launches());
    if may.count() < 2 {
        return Ok(Vec::new());
    }
    let known = tenancy::projects(&console.server, caller).await?;
    let open: Vec<&ProjectView> = known
        .iter()
        .filter(|one| one.role.is_some_and(GrantRole::launches))
        .filter(|one| one.state == TenantState::Active || one.name == chosen)
        .collect();
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for one in &open {
        *names.entry(one.name.as_str()).or_default() += 1;
    }
    let choice = |one: &&ProjectView| {
        let path = format!("{}/{}", one.domain, one.name);
        let is_chosen = one.name == chosen || path == chosen;
        let (value, name) = match names.get(one.name.as_str()) {
            Some(1) => (one.name.clone(), one.name.clone()),
            _ => (path.clone(), path),
        };
        let title = match one.title.is_empty() {
            true => name,
            false => one.title.clone(),
        };
        Choice::new(value, title, is_chosen)
    };
    Ok(open.iter().map(choice).collect())
}

/// The time limit that a launch of the caller gets which names none: no limit, or the one of a policy.
async fn usual_runtime(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    project: &str,
) -> UsualRuntime {
    let t = visit.text;
    let project = Some(project.trim()).filter(|name| !name.is_empty());
    // A project that is not there is said by the preview.
    let limits = policies::effective(&console.server, caller, None, project).await;
    let limits = limits.unwrap_or_default();
    let key = LimitKey::RuntimeSeconds.word();
    match limits.iter().find(|one| one.key == key) {
        Some(one) => {
            let span = components::exact_span(t, one.limit);
            UsualRuntime {
                hint: typed_span(one.limit),
                told: t.launch_max_runtime_usual(span, one.policy.as_str()),
            }
        }
        None => UsualRuntime {
            hint: t.launch_max_runtime_hint().to_owned(),
            told: String::new(),
        },
    }
}

async fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    sent: LaunchForm,
    refusal: Option<Refusal>,
) -> Result<LaunchPage, Failure> {
    let t = visit.text;
    // Before everything else: what changes meanwhile is asked for again.
    let mark = sessions::queue_mark(&console.server, caller).await?;
    let seen = sessions::overview(&console.server, caller).await?;
    let devices = devices::list(&console.server, caller).await?;
    let understood = understand(visit, &sent);
    let typed_faults = understood
        .as_ref()
        .err()
        .map_or_else(Vec::new, |refusal| faults(t, refusal));
    let there = There {
        policy: devices.policy,
        machines: &seen.machines,
        devices: &devices.items,
    };
    let preview = answered(console, visit, caller, &there, &understood, &sent).await?;
    let sizes = sizes::picker(console, caller, t, &seen.machines, &sent).await?;
    let newest = ListQuery {
        limit: Some(RECENT),
        scope: Some("mine".into()),
        ..ListQuery::default()
    };
    let recent = sessions::list_uncounted(&console.server, caller, &newest).await?;
    let mut choices = images::choices(console, caller, t, &sent.image).await?;
    let of_images = choices.len();
    let all_images = t.launch_all_images(of_images as u64);
    let more_images = folded(&mut choices);
    let other_images = of_images - choices.len() - more_images.len();
    let counts = seen.counts;
    let folded = [
        &sent.priority,
        &sent.containers,
        &sent.yields,
        &sent.without_start_up,
        &sent.without_home,
        &sent.sudo,
        &sent.shm,
        &sent.disk,
        &sent.start_at,
        &sent.after,
        &sent.mounts,
        &sent.env,
        &sent.labels,
    ];
    let advanced = folded.into_iter().any(|field| !field.trim().is_empty())
        || sent.texts.given().next().is_some();
    let kind = |value: &str, name: &str, note: &str, icon| Choice {
        note: note.to_owned(),
        icon,
        ..Choice::new(
            value,
            name,
            sent.kind == value || (value == "interactive" && sent.kind != "batch"),
        )
    };
    let groups = resource_groups::for_launch(&console.server, caller).await?;
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let mut texts = sent.texts.boxes(t);
    // What was typed or comes from another session is shown in any case.
    let has_networks = sessions::has_networks(&console.server, caller)?;
    let offers_sudo = sessions::offers_sudo(&console.server, caller)?;
    let usual_disk = sessions::usual_disk(&console.server, caller).await?;
    let offers = |name: &str| match name {
        "group" => !groups.is_empty(),
        "network" => has_networks,
        _ => true,
    };
    texts.retain(|one| offers(one.name) || !one.typed.is_empty());
    Ok(LaunchPage {
        t,
        projects: projects(console, t, caller, &sent).await?,
        for_members: caller
            .subject
            .grants
            .iter()
            .any(|grant| matches!(grant.role, GrantRole::Lead | GrantRole::Administrator)),
        f: PageLayout {
            sessions: counts.scheduled
                + counts.preparing
                + counts.running
                + counts.stopping
                + counts.pending,
            waiting: counts.pending,
            live: Some(format!("/sessions/new/live?mark={mark:x}")),
            ..layout(console, visit, caller, Nav::Launch)
        },
        alert: refusal
            .as_ref()
            .map(|refusal| Alert::bad(codes::refusal(t, refusal)).code(refusal.code.clone())),
        recent: recent
            .items
            .iter()
            .filter(|session| session.document_kept)
            .map(|session| RecentLaunch {
                href: format!("/sessions/new?from={}", session.id),
                name: session.name.to_string(),
                facts: format!(
                    "{} · {}",
                    session.image,
                    presenter::asked(t, &session.resources, devices.policy)
                ),
            })
            .collect(),
        kinds: vec![
            kind(
                "interactive",
                t.launch_interactive(),
                t.launch_interactive_note(),
                "square-terminal",
            ),
            kind("batch", t.launch_batch(), t.launch_batch_note(), "play"),
        ],
        all_images,
        other_images,
        images: choices,
        more_images,
        sizes,
        card: card::card(t, &devices, &sent),
        sliders: sliders(t, &seen.machines, &sent),
        name_hint: t.launch_name_hint().to_owned(),
        runtime: usual_runtime(console, visit, caller, &sent.project).await,
        texts,
        groups,
        mounts: folder_chips::offered(console, caller).await?,
        form: LaunchFields {
            advanced,
            command: sent.command,
            name: sent.name,
            owner: sent.owner,
            max_runtime: sent.max_runtime,
            replicas: sent.replicas,
            containers: sent.containers,
            priority: sent.priority,
            yields: sent.yields,
            without_start_up: sent.without_start_up,
            without_home: sent.without_home,
            has_homes: console.server.gives_homes(),
            offers_sudo: offers_sudo || !sent.sudo.is_empty(),
            sudo: sent.sudo,
            shm: sent.shm,
            disk: sent.disk,
            usual_disk: usual_disk.map(|disk| disk.to_string()).unwrap_or_default(),
            start_at: sent.start_at,
            after: sent.after,
            mounts: sent.mounts,
            env: sent.env,
            labels: sent.labels,
            gpu: sent.gpu,
            gpu_memory: sent.gpu_memory,
            mig: sent.mig,
        },
        preview,
        typed_faults,
        changed: None,
    })
}

/// What the box has, as the caller may see it.
pub(super) struct There<'a> {
    pub(super) policy: SharePolicy,
    pub(super) machines: &'a [NodeOverview],
    pub(super) devices: &'a [Gpu],
}

/// A device that a request that waits is drawn on: its name, in words what it would need, how much of how much.
type NeededDevice<'a> = (&'a str, String, u64, u64);

impl There<'_> {
    /// Devices first, then cores and memory; small, with what is about to be launched.
    fn rows(
        &self,
        t: Text,
        answer: Option<&Explanation>,
        demand: &Demand,
        other: Vec<BarRow>,
    ) -> Vec<BarRow> {
        let ghost = answer.and_then(|answer| Some((answer.node.as_deref()?, &answer.devices[..])));
        let hues = Hues::on(self.machines);
        let drawing = gpus::Drawing {
            ghost,
            hues: Some(&hues),
            ..gpus::Drawing::small()
        };
        let needed = match answer.filter(|answer| presenter::needs_room(answer)) {
            Some(_) => self.needed(t, demand),
            None => Vec::new(),
        };
        let devices = self.devices.iter().map(|gpu| {
            let mut row = gpus::row(t, gpu, &drawing);
            if let Some((_, words, weight, whole)) = needed.iter().find(|(id, ..)| *id == gpu.id) {
                row.need(words.clone(), *weight, *whole);
            }
            row
        });
        devices.chain(other).collect()
    }

    /// The devices that a request that waits would need and that have no room for it, on the machine where it is drawn:
    /// those that are free first by the time limits of what holds them, then those with the most free room; or the first
    /// one that has a partition of the profile. Empty where it wants no device.
    fn needed(&self, t: Text, demand: &Demand) -> Vec<NeededDevice<'_>> {
        let Some(machine) = presenter::needed_on(self.machines, demand) else {
            return Vec::new();
        };
        if let Some(profile) = demand.mig {
            let here = self.devices.iter().filter(|gpu| gpu.node == machine.id);
            let part = here.into_iter().find_map(|gpu| {
                let part = gpu.partitions.iter().find(|part| part.profile == profile)?;
                // As bars of partitioned devices are drawn: by memory.
                let words = t.preview_would_need(profile);
                Some((
                    gpu.id.as_str(),
                    words,
                    part.memory.0 >> 20,
                    gpu.memory.0 >> 20,
                ))
            });
            return part.into_iter().collect();
        }
        let mut shares = vec![WHOLE; (demand.gpu.0 / WHOLE.0) as usize];
        shares.extend(Some(GpuShare(demand.gpu.0 % WHOLE.0)).filter(|rest| *rest > GpuShare::ZERO));
        let here = |gpu: &&Gpu| gpu.node == machine.id && gpu.partitions.is_empty();
        let mut devices: Vec<&Gpu> = self.devices.iter().filter(here).collect();
        // None: something on it has no end that the reader knows.
        let free_at = |gpu: &Gpu| -> Option<Timestamp> {
            let held = machine.slices.iter().filter(|slice| {
                let mut parts = slice.devices.iter();
                parts.any(|part| part.index == gpu.index)
            });
            let ends: Option<Vec<Timestamp>> = held.map(|slice| slice.until).collect();
            ends.and_then(|ends| ends.into_iter().max())
        };
        let wanted = shares.first().copied().unwrap_or(WHOLE);
        devices.sort_by_key(|gpu| {
            let end = free_at(gpu);
            let room = std::cmp::Reverse(gpu.share_free);
            (gpu.share_free < wanted, end.is_none(), end, room, gpu.index)
        });
        let lacking = devices.into_iter().zip(shares);
        lacking
            .filter(|(gpu, share)| gpu.share_free < *share)
            .map(|(gpu, share)| {
                let words = t.preview_would_need(gpus::share(share));
                (
                    gpu.id.as_str(),
                    words,
                    u64::from(share.0),
                    u64::from(WHOLE.0),
                )
            })
            .collect()
    }

    /// What the scheduler says of a request, with everything drawn that it would have or need.
    pub(super) fn pictured(
        &self,
        visit: &RequestContext,
        answer: &Explanation,
        demand: &Demand,
        replicas: u64,
        now: Timestamp,
    ) -> Preview {
        let t = visit.text;
        let preview = presenter::preview(
            visit,
            self.machines,
            answer,
            demand,
            self.policy,
            replicas,
            now,
        );
        Preview {
            rows: self.rows(t, Some(answer), demand, preview.rows),
            grants: self.grants(t, answer),
            simulated: answer.simulated,
            ..preview
        }
    }

    /// That a request cannot be asked for, and the room as it is.
    pub(super) fn refused(&self, t: Text, verdict: &str, refusal: &Refusal) -> Preview {
        let machines = self.machines.iter();
        let hues = Hues::on(self.machines);
        let racks = machines.flat_map(|machine| presenter::small_racks(t, &hues, machine, None));
        Preview {
            tone: "never",
            icon: "circle-x",
            verdict: verdict.to_owned(),
            detail: codes::refusal(t, refusal),
            rows: self.rows(t, None, &Demand::default(), racks.collect()),
            simulated: self.devices.iter().any(|gpu| gpu.simulated),
            go: t.launch_go().to_owned(),
            blocked: true,
            ..Preview::default()
        }
    }

    fn grants(&self, t: Text, answer: &Explanation) -> Vec<String> {
        let here = |gpu: &&Gpu| answer.node.as_deref() == Some(gpu.node_name.as_str());
        answer
            .devices
            .iter()
            .filter_map(|part| {
                let gpu = self
                    .devices
                    .iter()
                    .filter(here)
                    .find(|gpu| gpu.index == part.index)?;
                let sms = gpu.sms * part.share.0.min(100) / 100;
                Some(t.gpu_grant(
                    part.index,
                    gpus::share(part.share),
                    components::size(part.memory.0),
                    t.gpu_sms_of(sms, gpu.sms),
                ))
            })
            .collect()
    }
}

/// The scheduler's answer to what is typed, or why it cannot be asked yet.
async fn answered(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    there: &There<'_>,
    understood: &Result<LaunchRequest, Refusal>,
    sent: &LaunchForm,
) -> Result<Preview, Failure> {
    let t = visit.text;
    let told = match understood {
        Ok(request) => {
            sessions::preview(&console.server, caller, with_command(request.clone())).await
        }
        Err(refusal) => Err(refusal.clone().into()),
    };
    let preview = match (told, understood) {
        (Ok(explained), Ok(request)) => {
            let demand = Demand {
                cpu: request.resources.cpu.unwrap_or_default(),
                memory: request.resources.memory.unwrap_or_default(),
                gpu: request.resources.gpu.unwrap_or_default(),
                mig: request.resources.mig,
                ..Demand::default()
            };
            let demand = demand.times(request.containers);
            let now = console.server.clock().now();
            let replicas = u64::from(request.replicas);
            let preview = there.pictured(visit, &explained, &demand, replicas, now);
            match lacks_command(request) && !preview.blocked {
                true => incomplete(t, preview),
                false => preview,
            }
        }
        (Err(Failure::Refusal(refusal)), _) => there.refused(t, t.preview_incomplete(), &refusal),
        (Err(fault), _) => return Err(fault),
        (Ok(_), Err(refusal)) => return Err(refusal.clone().into()),
    };
    Ok(Preview {
        command_line: command_line::line(visit, sent),
        ..preview
    })
}

/// The preview of a job without a command: that is missing first; what the scheduler says is a line below it.
fn incomplete(t: Text, preview: Preview) -> Preview {
    let answer = CheckRow {
        icon: "hourglass",
        // It is no news yet, neither a good one nor a bad one.
        tone: "dim",
        name: t.preview_with_command(match preview.tone {
            "" => preview.verdict,
            _ => format!("{} · {}", preview.verdict, preview.detail),
        }),
        value: String::new(),
    };
    Preview {
        tone: "idle",
        icon: "pencil",
        verdict: t.preview_incomplete().to_owned(),
        detail: t.launch_command_missing().to_owned(),
        checks: [answer].into_iter().chain(preview.checks).collect(),
        blocked: true,
        ..preview
    }
}

/// A batch job that nothing was typed for yet.
fn lacks_command(request: &LaunchRequest) -> bool {
    request.kind == SessionKind::Batch && request.command.is_empty()
}

/// The request with some command: whether there is room does not hang on what runs, and nobody typed anything wrong yet.
fn with_command(request: LaunchRequest) -> LaunchRequest {
    match lacks_command(&request) {
        true => LaunchRequest {
            command: vec!["true".to_owned()],
            ..request
        },
        false => request,
    }
}

/// The messages of a refusal beside the fields they are about.
pub(super) fn faults(t: Text, refusal: &Refusal) -> Vec<FormFieldError> {
    let mut all: Vec<FormFieldError> = refusal
        .fields
        .iter()
        .map(|field| FormFieldError {
            field: field_of(&field.pointer),
            message: codes::field(t, &field.code, &field.text),
        })
        .collect();
    if let Some(pointer) = &refusal.pointer {
        all.push(FormFieldError {
            field: field_of(pointer),
            message: codes::refusal(t, refusal),
        });
    }
    all
}

/// The form's name for a place in the request.
fn field_of(pointer: &str) -> String {
    match pointer.rsplit('/').next().unwrap_or_default() {
        "max_runtime_seconds" | "timeout_seconds" => "max_runtime",
        "depends_on" => "after",
        "folder" | "subpath" | "at" => "mounts",
        field => field,
    }
    .to_owned()
}

fn sliders(t: Text, machines: &[NodeOverview], sent: &LaunchForm) -> Vec<Slider> {
    let cpu_most = machines
        .iter()
        .map(|machine| machine.cpu)
        .max()
        .unwrap_or(CpuShare(100));
    let memory_most = machines
        .iter()
        .map(|machine| machine.memory)
        .max()
        .unwrap_or(Bytes::gib(1));
    // What one session may have there, and what all may have together: more where processor time is overcommitted.
    let (cpu_most_left, cpu_left) = machines
        .iter()
        .map(|machine| {
            let left = machine.cpu_room.saturating_sub(machine.cpu_used);
            (left.min(machine.cpu), left)
        })
        .max()
        .unwrap_or_default();
    let cpu_note = match cpu_most_left < cpu_left {
        true => t.launch_cpu_free_most(presenter::share(cpu_left), presenter::share(cpu_most_left)),
        false => t.launch_cpu_free(presenter::share(cpu_left)),
    };
    let memory_left = machines
        .iter()
        .map(|machine| machine.memory.saturating_sub(machine.memory_used))
        .max()
        .unwrap_or_default();
    let number = |typed: &str| typed.trim().parse::<f64>().unwrap_or(1.0);
    let gib = memory_most.0 as f64 / f64::from(1 << 30);
    vec![
        Slider {
            name: "cpu",
            title: t.sessions_cpu(),
            note: cpu_note,
            unit: t.launch_cores_unit(),
            least: "0.1".into(),
            most: cpu_most.to_string(),
            step: "0.1".into(),
            value: number(&sent.cpu).min(cpu_most.as_f64()).to_string(),
            typed: sent.cpu.clone(),
        },
        Slider {
            name: "memory",
            title: t.sessions_memory(),
            note: t.launch_memory_free(components::size(memory_left.0)),
            unit: "GiB",
            least: "0.1".into(),
            most: format!("{:.1}", (gib * 10.0).floor() / 10.0),
            step: "0.1".into(),
            value: number(&sent.memory).min(gib).to_string(),
            typed: sent.memory.clone(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_images_fifty_are_in_the_form() {
        let images = |n: usize| -> Vec<Choice> {
            let names = (0..n).map(|n| n.to_string());
            names.map(|name| Choice::new(&name, &name, false)).collect()
        };
        for (n, shown, more) in [
            (1, 1, 0),
            (8, 8, 0),
            (9, 9, 0),
            (10, 8, 2),
            (50, 8, 42),
            (1_000, 8, 42),
        ] {
            let mut all = images(n);
            let folded = folded(&mut all);
            assert_eq!((all.len(), folded.len()), (shown, more), "of {n}");
        }
    }

    #[test]
    fn spans_are_read_as_users_write_them() {
        for (typed, seconds) in [
            ("", None),
            ("0", Some(0)),
            ("90s", Some(90)),
            ("30m", Some(1800)),
            ("4 h", Some(14_400)),
            ("2d", Some(172_800)),
        ] {
            assert_eq!(span(typed), Ok(seconds), "{typed}");
        }
        for typed in ["soon", "-1", "3y", "99999999999999999999d"] {
            assert!(span(typed).is_err(), "{typed} was taken");
        }
        let asked = span("12").expect_err("no unit").to_string();
        assert!(asked.contains("12s") && asked.contains("12h"), "{asked}");
    }

    #[test]
    fn a_bare_number_of_memory_counts_in_gib() {
        assert_eq!(memory("1.5"), Ok(Bytes::mib(1536)));
        assert_eq!(memory("512m"), Ok(Bytes::mib(512)));
        assert_eq!(memory("1024t"), Ok(Bytes::gib(1 << 20)));
        for typed in ["", "much", "268435456", "1025t"] {
            let refusal = memory(typed).expect_err(typed);
            assert!(refusal.to_string().contains("a number of GiB"), "{refusal}");
        }
    }

    #[test]
    fn what_was_killed_for_memory_asks_for_more_where_there_is_more() {
        let node = Bytes(Bytes::gib(22).0 + Bytes::mib(400).0);
        for (limit, more) in [
            (Bytes::mib(64), Some(Bytes::mib(128))),
            (Bytes::gib(8), Some(Bytes::gib(16))),
            (Bytes::gib(16), Some(Bytes::gib(22))),
            (Bytes::gib(22), None),
        ] {
            assert_eq!(more_memory(limit, node), more, "{limit}");
        }
    }

    #[test]
    fn a_batch_job_without_a_command_is_told_what_is_missing_before_whether_it_waits() {
        let waits = Preview {
            tone: "wait",
            icon: "hourglass",
            verdict: "Waits in the queue".into(),
            detail: "0.10 of 4 cores are free.".into(),
            ..Preview::default()
        };
        let told = incomplete(Text::default(), waits);
        assert_eq!(told.verdict, "Not ready to launch");
        assert!(told.detail.starts_with("Enter a command") && told.blocked);
        let below = &told.checks[0];
        assert_eq!(
            (below.name.as_str(), below.tone),
            (
                "With a command: Waits in the queue · 0.10 of 4 cores are free.",
                "dim"
            )
        );
    }

    #[test]
    fn a_batch_job_without_a_command_is_asked_about_with_one() {
        let batch = LaunchRequest {
            kind: SessionKind::Batch,
            ..LaunchRequest::default()
        };
        assert_eq!(with_command(batch.clone()).command, ["true"]);
        let typed = LaunchRequest {
            command: vec!["sleep".into()],
            ..batch
        };
        assert_eq!(with_command(typed.clone()), typed);
        assert_eq!(
            with_command(LaunchRequest::default()),
            LaunchRequest::default()
        );
    }

    #[test]
    fn a_duplicate_comes_back_as_it_was_asked_for() {
        let visit = RequestContext::of(
            &axum::http::HeaderMap::new(),
            &axum::http::Extensions::new(),
            "/".into(),
        );
        let sent = LaunchForm {
            kind: "batch".into(),
            image: "host".into(),
            command: "echo $HOME | wc -c".into(),
            cpu: "0.5".into(),
            memory: "1.5".into(),
            replicas: "3".into(),
            mounts: "home\ndata:/train:/data:ro".into(),
            env: "A=1\nB=x=y".into(),
            max_runtime: "3600s".into(),
            texts: LaunchTexts::of(&LaunchRequest {
                reservation: Some("lecture".into()),
                ..LaunchRequest::default()
            }),
            ..LaunchForm::default()
        };
        let request = understand(&visit, &sent).expect("a good form");
        assert_eq!(understand(&visit, &again(&request)).ok(), Some(request));
    }
}
