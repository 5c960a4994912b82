//! `/gpus` and `/gpus/{id}`: every device as a bar, whose slices are on it, and for administrators the
//! cordon, the drain and the cut. Where devices are simulated each of these pages says so.

pub mod partitions;
pub(super) mod table;

use api::gpus::{CordonRequest, DrainRequest, Gpu, GpuSlice, Gpus};
use api::history::HistoryRange;
use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use rules::devices::{Health, Hold, WHOLE};
use rules::names::SessionId;
use rules::policy::{SharePolicy, Spreading};
use rules::refusals;
use rules::resources::DeviceShare;
use rules::session::SessionState;
use rules::units::{Bytes, GpuShare, Timestamp};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::gpus;
use server::actions::history::{self, RecentUse};
use server::actions::sessions;

use super::authentication::PageCaller;
use super::components::{self, Alert, BarRow, Block, BlockKind, Fill, Markup};
use super::form_faults::RefusedForm;
use super::gpus_failure::failed;
use super::history::{HistoryParts, HistoryView};
use super::hues::{self, Hues};
use super::joined_blocks::{self, OwnedBlock};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::table::TableState;
use super::table_answer::{ListPage, answer, shorter};
use super::{PagesContext, layout, live as stream, presenter, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/gpus.html", blocks = ["lead", "list", "plan", "key"])]
pub struct GpusPage {
    pub t: Text,
    pub f: PageLayout,
    /// `8 × NVIDIA H100 80GB · 7.01 of 8 given`.
    pub lead: String,
    pub simulated: bool,
    pub plan: FloorPlan,
    pub groups: Vec<DeviceGroup>,
    /// Where there are more devices than a floor plan shows: the table of them, in its place.
    pub list: Option<table::GpuList>,
    /// Where there is no device: what machines say of their drivers.
    pub troubles: Vec<String>,
    /// Accelerators of other families: name, and how many on which machine.
    pub others: Vec<(String, String)>,
    pub rules: Vec<(String, String)>,
}

impl ListPage for GpusPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        self.f.live.as_deref()
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/gpu.html", blocks = ["state", "slices", "facts", "partitions"])]
pub struct GpuPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub id: String,
    pub name: String,
    /// Its name with the node's, as dialogs say it.
    pub full_name: String,
    pub simulated: bool,
    /// Tone and words for whether its driver has passed the self-test; none for a simulated one.
    pub standing: Option<(&'static str, String)>,
    pub cordoned: bool,
    pub note: String,
    pub may_write: bool,
    pub row: BarRow,
    pub facts: Vec<(String, String)>,
    pub slices: Vec<SliceRow>,
    /// Its day, and links to other ranges.
    pub view: HistoryView,
    pub ranges: Vec<(String, &'static str, bool)>,
    /// What a drain would end.
    pub ends: Vec<String>,
    /// A cut that is wanted and not made yet.
    pub planned: Option<partitions::Planned>,
    /// None where it cannot be cut, or not by the caller.
    pub partitions: Option<partitions::PartitionForm>,
}

/// What the blocks of a floor plan show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Width is the share, a line at the foot is the load within it.
    #[default]
    Share,
    /// Width is the share, what is filled is the load within it.
    Load,
    /// Width is the memory, what is filled is what is in use of it.
    Memory,
}

impl By {
    const ALL: [Self; 3] = [Self::Share, Self::Load, Self::Memory];

    /// What an address asks for; the share for what is none of these.
    pub fn asked(word: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|by| by.word() == word)
            .unwrap_or_default()
    }

    fn word(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Load => "load",
            Self::Memory => "memory",
        }
    }

    /// Behind an address; empty for what is shown unasked.
    pub fn query(self) -> String {
        match self {
            Self::Share => String::new(),
            by => format!("?by={}", by.word()),
        }
    }
}

/// The head and foot of a floor plan: what it shows, what else it can show, and what its signs mean.
pub struct FloorPlan {
    pub by: By,
    pub lead: &'static str,
    /// Address, name, whether this is it.
    pub modes: Vec<(String, &'static str, bool)>,
    /// Some slice is not in use.
    pub idle: bool,
}

impl FloorPlan {
    /// The plan of the page at that address.
    pub fn new(t: Text, by: By, page: &str, all: &[Gpu], now: Timestamp) -> Self {
        let name = |by| match by {
            By::Share => t.gpu_by_share(),
            By::Load => t.gpu_by_load(),
            By::Memory => t.gpu_by_memory(),
        };
        Self {
            by,
            lead: match by {
                By::Share => t.gpu_plan_share(),
                By::Load => t.gpu_plan_load(),
                By::Memory => t.gpu_plan_memory(),
            },
            modes: By::ALL
                .into_iter()
                .map(|mode| (format!("{page}{}", mode.query()), name(mode), mode == by))
                .collect(),
            idle: all
                .iter()
                .flat_map(|gpu| &gpu.slices)
                .any(|slice| idle(slice, now).is_some()),
        }
    }
}

/// Seconds without work after which a slice is shown as idle. Shorter: a user who reads a result is shown as idle.
/// Longer: an unused share is seen late.
const IDLE_AFTER: u64 = 300;

/// Seconds since which a slice that runs is not in use; None before that is worth a word.
fn idle(slice: &GpuSlice, now: Timestamp) -> Option<u64> {
    let seconds = now.seconds_since(slice.idle_since?);
    (seconds >= IDLE_AFTER && !slice.paused).then_some(seconds)
}

/// What is given to sessions that have not used it for a while.
pub fn idle_share(all: &[Gpu], now: Timestamp) -> GpuShare {
    all.iter()
        .flat_map(|gpu| &gpu.slices)
        .filter(|slice| idle(slice, now).is_some())
        .map(|slice| slice.share)
        .sum()
}

/// Devices that hang together.
pub struct DeviceGroup {
    pub title: String,
    pub rows: Vec<DeviceCard>,
}

/// One device of the floor plan.
pub struct DeviceCard {
    pub href: String,
    pub partitioned: bool,
    /// Why it takes no new sessions; empty where it does, or nothing was said.
    pub closed_why: String,
    pub row: BarRow,
}

/// One slice in a device's list.
pub struct SliceRow {
    pub hue: u8,
    pub href: Option<String>,
    pub name: String,
    pub owner: String,
    /// The page of the user whose it is, for administrators.
    pub owner_href: Option<String>,
    /// The question before it is stopped; none where the reader may not stop it.
    pub stop: Option<String>,
    pub share: String,
    pub memory: String,
    pub sms: String,
    /// What it does at this moment; empty where unknown.
    pub doing: String,
    pub tone: &'static str,
    pub state: String,
}

/// What a floor plan is asked to show.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct FloorPlanQuery {
    pub by: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct GpuForm {
    note: String,
}

/// `GET /gpus`: the page, or the list alone for the page's own script.
pub async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedGpus,
) -> Response {
    let place = TableState::read(table::PATH, &table::FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = read(&console, &visit, &caller, &headers, &asked).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

type AskedGpus = Query<Vec<(String, String)>>;

/// `GET /gpus/live`: the same as slices come and go.
pub async fn list_live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedGpus,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let (headers, asked) = (headers.clone(), asked.clone());
        async move {
            let counts = stream::menu_counts(&console, &caller).await;
            let page = read(&console, &visit, &caller, &headers, &asked)
                .await
                .ok()?;
            let mut fragments = vec![("lead", page.as_lead().render().ok()?)];
            fragments.extend(counts.map(|counts| ("counts", counts)));
            match page.list {
                Some(_) => fragments.push(("list", page.as_list().render().ok()?)),
                None => fragments.extend([
                    ("plan", page.as_plan().render().ok()?),
                    ("key", page.as_key().render().ok()?),
                ]),
            }
            Some(fragments)
        }
    })
}

/// `GET /gpus/{id}`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match whole(&console, &visit, &caller, &id).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The page with the history of the day, which does not change while it is open.
async fn whole(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
) -> Result<GpuPage, Failure> {
    let mut page = one(console, visit, caller, id, None, None).await?;
    let (of, range) = (format!("gpu:{}", page.id), HistoryRange::Day);
    let day = history::history(&console.server, caller, &of, range).await?;
    page.view = super::history::view(visit.text, &visit.clock, &day, HistoryParts::All);
    page.ranges = super::history::ranges(visit.text, &of, range);
    Ok(page)
}

/// `GET /gpus/{id}/live`
pub async fn show_live(
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
            let page = one(&console, &visit, &caller, &id, None, None).await.ok()?;
            let mut fragments = vec![
                ("state", page.as_state().render().ok()?),
                ("slices", page.as_slices().render().ok()?),
                ("facts", page.as_facts().render().ok()?),
            ];
            fragments.extend(counts.map(|counts| ("counts", counts)));
            Some(fragments)
        }
    })
}

/// `POST /gpus/{id}/{verb}`: cordon, uncordon, drain; the end of a self-test.
pub async fn act(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, verb)): Path<(String, String)>,
    Form(said): Form<GpuForm>,
) -> Response {
    if verb == "cancel-test" {
        return super::self_tests::cancel(&console, &visit, &caller, &id).await;
    }
    let note = Some(said.note.trim().to_owned()).filter(|note| !note.is_empty());
    let server = &console.server;
    let mut ends = [0, 0];
    let done = match verb.as_str() {
        "cordon" => gpus::cordon(server, &caller, &id, CordonRequest { note })
            .await
            .map(|gpu| ("gpu-cordon", gpu)),
        "uncordon" => gpus::uncordon(server, &caller, &id)
            .await
            .map(|gpu| ("gpu-uncordon", gpu)),
        "drain" => {
            let request = DrainRequest {
                note,
                dry_run: false,
            };
            gpus::drain(server, &caller, &id, request)
                .await
                .map(|drained| {
                    ends = [drained.ends.len(), drained.requeued.len()];
                    ("gpu-drain", drained.gpu)
                })
        }
        _ => Err(refusals::page_unknown().into()),
    };
    match done {
        Ok((word, gpu)) => {
            let of = match word {
                "gpu-drain" => format!("{} {} {}", gpu.index, ends[0], ends[1]),
                _ => gpu.index.to_string(),
            };
            responses::see_with(&format!("/gpus/{}", gpu.id), word, &of)
        }
        Err(Failure::Refusal(refusal)) => {
            let status = responses::status(&refusal);
            let at_note = refusal.pointer.as_deref() == Some("/note");
            let alert = Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
            let alert = (!at_note).then_some(alert);
            // The form opens again with what was typed, and the fault at its field.
            let visit = match at_note {
                true => {
                    let action = format!("/gpus/{id}/{verb}");
                    let typed = [("note", said.note.as_str())];
                    visit.refusing(RefusedForm::new(visit.text, &action, &refusal).with(typed))
                }
                false => visit.clone(),
            };
            match one(&console, &visit, &caller, &id, alert, None).await {
                Ok(page) => responses::page(&console, &visit, status, &page),
                Err(_) => failed(&console, &visit, &caller, &refusal.into()),
            }
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// What a drain did and what remains, from the index of the GPU, the sessions that end, and those of them that start
/// again: `0 3 1`.
pub(super) fn drained(t: Text, of: &str) -> String {
    let mut numbers = of.split(' ').map(|number| number.parse().unwrap_or(0_u64));
    let mut next = || numbers.next().unwrap_or_default();
    let (index, ends, again) = (next(), next(), next());
    let mut said = match ends {
        0 => t.notice_gpu_drain_none(index),
        ends => t.notice_gpu_drain(index, ends),
    };
    if again > 0 {
        said = format!("{said} {}", t.notice_gpu_drain_again(again));
    }
    format!("{said} {}", t.notice_gpu_drain_after())
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<GpusPage, Failure> {
    let by = asked.iter().find(|(name, _)| name == "by");
    let by = By::asked(by.map_or("", |(_, by)| by));
    let t = visit.text;
    let now = console.server.clock().now();
    let all = gpus::list(&console.server, caller).await?;
    let recent = history::recent(&console.server, caller).await?;
    let troubles = match all.items.is_empty() {
        true => troubles(t, &sessions::overview(&console.server, caller).await?),
        false => Vec::new(),
    };
    let long = all.items.len() > table::MAX_CARDS || table::asked_for(asked);
    let list = long.then(|| table::read(visit, headers, asked, &all.items));
    let shown = match long {
        true => &[][..],
        false => &all.items,
    };
    let hues = Hues::on_gpus(&all.items);
    Ok(GpusPage {
        t,
        f: PageLayout {
            live: Some(match &list {
                Some(list) => list.live.clone(),
                None => format!("/gpus/live{}", by.query()),
            }),
            ..layout(console, visit, caller, Nav::Gpus)
        },
        lead: lead(t, &all.items),
        simulated: all.simulated,
        plan: FloorPlan::new(t, by, "/gpus", &all.items, now),
        troubles,
        list,
        groups: groups(
            t,
            shown,
            &Drawing {
                by,
                recent: Some(&recent),
                hues: Some(&hues),
                ..Drawing::at(now)
            },
        ),
        others: all
            .others
            .iter()
            .map(|other| {
                let where_to = t.gpu_others_of(other.number, &other.node_name);
                (other.family.clone(), where_to)
            })
            .collect(),
        rules: match all.items.is_empty() {
            true => Vec::new(),
            false => rules(t, &all),
        },
    })
}

/// What machines say of devices that sessions cannot have: the driver that is missing, silent or half installed.
fn troubles(t: Text, seen: &sessions::Overview) -> Vec<String> {
    let problems = seen.machines.iter().flat_map(|machine| &machine.problems);
    problems
        .filter(|problem| problem.code.starts_with("gpu."))
        .map(|problem| codes::reason(t, problem))
        .collect()
}

async fn one(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    alert: Option<Alert>,
    sent: Option<&[(String, String)]>,
) -> Result<GpuPage, Failure> {
    let t = visit.text;
    let all = gpus::list(&console.server, caller).await?;
    let gpu = gpus::get(&console.server, caller, id).await?;
    let now = console.server.clock().now();
    let hues = Hues::on_gpus(std::slice::from_ref(&gpu));
    let drawing = Drawing {
        hues: Some(&hues),
        ..Drawing::at(now)
    };
    let may_write = caller
        .subject
        .can(rules::permissions::Permission::SystemWrite);
    let partitioning = match may_write {
        true => partitions::form(console, t, caller, &gpu, sent).await?,
        false => None,
    };
    let f = PageLayout {
        live: Some(format!("/gpus/{}/live", gpu.id)),
        ..layout(console, visit, caller, Nav::Gpus)
    };
    let mut slices = lines(t, &gpu, &drawing);
    for slice in &mut slices {
        slice.owner_href = super::users::href(&f, &slice.owner);
    }
    Ok(GpuPage {
        t,
        f,
        alert,
        name: format!("GPU {}", gpu.index),
        full_name: t.attention_gpu(gpu.index, &gpu.node_name),
        simulated: gpu.simulated,
        standing: (!gpu.simulated).then(|| presenter::standing(t, &gpu)),
        cordoned: gpu.cordoned,
        note: gpu.note.clone(),
        may_write,
        planned: partitions::planned(t, &gpu),
        partitions: partitioning,
        row: row(t, &gpu, &drawing),
        facts: facts(t, &gpu, all.context_overhead),
        slices,
        view: HistoryView::default(),
        ranges: Vec::new(),
        ends: gpu
            .slices
            .iter()
            .filter_map(|slice| slice.name.clone())
            .collect(),
        id: gpu.id,
    })
}

/// How devices are drawn.
#[derive(Clone, Copy)]
pub struct Drawing<'a> {
    pub by: By,
    pub now: Timestamp,
    /// The session whose page this is.
    pub mine: Option<SessionId>,
    /// What is about to be launched, and on which machine.
    pub ghost: Option<(&'a str, &'a [DeviceShare])>,
    pub small: bool,
    /// What its small chart shows; none draws none.
    pub recent: Option<&'a RecentUse>,
    /// Colours of the users of the page.
    pub hues: Option<&'a Hues>,
}

impl Drawing<'_> {
    fn hue(&self, owner: &str) -> u8 {
        self.hues
            .map_or_else(|| hues::hue(owner), |hues| hues.get(owner))
    }

    /// By share, large, with nothing about to be launched.
    pub fn at(now: Timestamp) -> Self {
        Self {
            by: By::Share,
            now,
            mine: None,
            ghost: None,
            small: false,
            recent: None,
            hues: None,
        }
    }

    /// Small, as a preview: who has what, and not what they do with it.
    pub fn small() -> Self {
        Self {
            small: true,
            ..Self::at(Timestamp::default())
        }
    }
}

/// The devices, machine by machine and socket by socket.
pub fn groups(t: Text, all: &[Gpu], drawing: &Drawing<'_>) -> Vec<DeviceGroup> {
    let several = all.iter().any(|gpu| gpu.node != all[0].node);
    let mut groups: Vec<DeviceGroup> = Vec::new();
    for gpu in all {
        let title = title(t, gpu, several);
        let device = DeviceCard {
            href: format!("/gpus/{}", gpu.id),
            partitioned: !gpu.partitions.is_empty(),
            closed_why: match gpu.cordoned && !gpu.note.is_empty() {
                true => t.gpu_cordoned_why(&gpu.note),
                false => String::new(),
            },
            row: row(t, gpu, drawing),
        };
        match groups.last_mut().filter(|group| group.title == title) {
            Some(group) => group.rows.push(device),
            None => groups.push(DeviceGroup {
                title,
                rows: vec![device],
            }),
        }
    }
    groups
}

fn title(t: Text, gpu: &Gpu, several: bool) -> String {
    let mut words = Vec::new();
    if several {
        words.push(gpu.node_name.clone());
    }
    if let Some(socket) = gpu.numa {
        words.push(t.gpu_socket(socket));
    }
    if gpu.link.is_some() {
        words.push("NVLink".to_owned());
    }
    if words.is_empty() {
        words.push(gpu.node_name.clone());
    }
    words.join(" · ")
}

/// `0.35` with both decimals, as bars write shares.
pub fn share(share: GpuShare) -> String {
    format!("{}.{:02}", share.0 / 100, share.0 % 100)
}

/// Of a partitioned device how many partitions nobody holds, and how many there are; None of a device that is shared.
fn free_partitions(gpu: &Gpu) -> Option<(usize, usize)> {
    let free = gpu.partitions.iter().filter(|part| !part.taken).count();
    (!gpu.partitions.is_empty()).then_some((free, gpu.partitions.len()))
}

/// What is free of a device, in words: a share, or partitions.
fn free_words(t: Text, gpu: &Gpu) -> String {
    match free_partitions(gpu) {
        Some((free, all)) => t.gpu_partition_free(free, all),
        None => t.common_free(share(gpu.share_free)),
    }
}

/// One device as a bar: a block for each slice, for what is about to be launched, and for what is free.
pub fn row(t: Text, gpu: &Gpu, drawing: &Drawing<'_>) -> BarRow {
    let partitioned = !gpu.partitions.is_empty();
    // Partitions are walls in memory first; their engines are never quite the same part of the device.
    let by_memory = drawing.by == By::Memory;
    let weigh = |part: GpuShare, memory: Bytes| match by_memory || partitioned {
        true => memory.0 >> 20,
        false => u64::from(part.0),
    };
    let whole = weigh(WHOLE, gpu.memory);
    let slices = gpu.slices.iter().map(|slice| OwnedBlock {
        block: block(t, slice, drawing, weigh(slice.share, slice.memory).max(1)),
        owner: slice
            .owner
            .as_ref()
            .map_or_else(String::new, |owner| owner.name.to_string()),
        alone: slice.profile.is_some(),
    });
    let amount = |weight: u64| match by_memory || partitioned {
        true => components::size(weight << 20),
        false => share(GpuShare(u32::try_from(weight).unwrap_or_default())),
    };
    let mut blocks = joined_blocks::join(t, whole, slices.collect(), amount, |busy| {
        t.plan_percent_busy(busy)
    });
    let kind = match gpu.cordoned {
        true => BlockKind::Held,
        false => BlockKind::Free,
    };
    let free = |name: String, weight| Block::plain(kind, name, weight);
    let mut left = whole.saturating_sub(blocks.iter().map(|block| block.weight).sum());
    let ghost = drawing
        .ghost
        .filter(|(node, _)| *node == gpu.node_name)
        .and_then(|(_, parts)| parts.iter().find(|part| part.index == gpu.index));
    if let Some(part) = ghost {
        let weight = weigh(part.share, part.memory).min(left);
        left -= weight;
        blocks.push(Block {
            kind: BlockKind::Ghost,
            ..free(t.preview_your_share(share(part.share)), weight)
        });
    }
    if partitioned {
        for part in gpu.partitions.iter().filter(|part| !part.taken) {
            let parts = WHOLE.0 * part.sms / gpu.sms.max(1);
            let weight = weigh(GpuShare(parts), part.memory).min(left);
            left -= weight;
            let profile = part.profile.to_string();
            blocks.push(Block {
                partition: Some(profile.clone()),
                ..free(profile, weight)
            });
        }
    }
    // What is free beside what is about to be launched; partitions are free or taken as they are.
    let free_share = match (ghost, by_memory || partitioned) {
        (Some(_), false) => GpuShare(u32::try_from(left).unwrap_or_default()).min(gpu.share_free),
        _ => gpu.share_free,
    };
    if left > 0 {
        let words = match (gpu.cordoned, by_memory, partitioned) {
            (true, ..) => t.gpu_cordoned().to_owned(),
            (false, _, true) => t.gpu_partitions_rest().to_owned(),
            (false, true, false) => t.common_free(components::size(left << 20)),
            (false, false, false) => {
                t.common_free(share(GpuShare(u32::try_from(left).unwrap_or_default())))
            }
        };
        blocks.push(free(words, left));
    }
    // What it does now, where it says so; else what is given of it.
    let busy = gpu.doing.and_then(|doing| doing.busy_percent);
    let used = gpu.doing.and_then(|doing| doing.memory);
    BarRow {
        name: format!("GPU {}", gpu.index),
        note: components::size(gpu.memory.0),
        blocks,
        busy: busy.map_or_else(|| share(gpu.share_used), |percent| format!("{percent}%")),
        busy_word: match busy {
            Some(_) => t.gpu_busy_word().to_owned(),
            None => t.gpu_given_word().to_owned(),
        },
        trend: drawing
            .recent
            .map_or_else(Markup::default, |recent| trend(t, gpu, recent)),
        figure: components::size(used.unwrap_or(gpu.memory_used).0),
        figure_of: t.common_of(components::size(gpu.memory.0)),
        figure_note: match warmth(t, gpu) {
            Some(warmth) if matches!(gpu.health, Health::Unknown | Health::Well) => warmth,
            // The page says once that devices are simulated.
            _ if gpu.simulated => free_words(t, gpu),
            _ => health(t, gpu),
        },
        left: match (free_partitions(gpu), free_share) {
            (Some((free, all)), _) => format!("{free}/{all}"),
            (None, free_share) => share(free_share),
        },
        closed: gpu.cordoned
            || gpu.planned.is_some()
            || !gpu.answers
            || matches!(gpu.health, Health::Failing { .. }),
        hit: ghost.is_some(),
    }
}

/// How busy it was over the last minutes; an empty box while nothing is known.
fn trend(t: Text, gpu: &Gpu, recent: &RecentUse) -> Markup {
    let busy = recent.gpus.get(&gpu.id).map_or(&[][..], Vec::as_slice);
    let percent: Vec<f64> = busy.iter().map(|busy| busy * 100.0).collect();
    let now = components::percent(busy.last().copied().unwrap_or_default(), 1.0);
    components::trend(
        &percent,
        "ca",
        &t.plan_trend(format!("GPU {}", gpu.index), now),
    )
}

fn block(t: Text, slice: &GpuSlice, drawing: &Drawing<'_>, weight: u64) -> Block {
    let owner = slice.owner.as_ref().map(|owner| owner.name.as_str());
    let granted = match (&slice.profile, drawing.by) {
        (Some(profile), By::Share | By::Load) => profile.to_string(),
        (_, By::Memory) => components::size(slice.memory.0),
        (None, By::Share | By::Load) => share(slice.share),
    };
    let load = slice.load_percent.map(|percent| percent.round() as u64);
    let used = slice.memory_in_use;
    let idle = idle(slice, drawing.now).filter(|_| !drawing.small);
    // The state first: a narrow block shows only the beginning.
    let note = match (drawing.by, slice.paused, idle) {
        _ if drawing.small => owned(granted, owner),
        (By::Memory, ..) => match used {
            Some(used) => t.gpu_memory_of(components::part_of(used.0, slice.memory.0), granted),
            None => granted,
        },
        (_, true, _) => format!("{} · {granted}", t.state_paused()),
        (_, _, Some(seconds)) => {
            let idle = t.gpu_idle_for(components::span(t, seconds));
            format!("{idle} · {granted}")
        }
        (By::Load, ..) => match load {
            Some(percent) => t.gpu_load_of(percent, granted),
            None => granted,
        },
        (By::Share, ..) => owned(granted, owner),
    };
    // Of a block whose note says something else, the title still says whose it is.
    let unsaid = owner.filter(|owner| !note.ends_with(owner));
    let doing = doing_of(t, slice, drawing.now);
    let told = [unsaid, Some(doing.as_str())].into_iter().flatten();
    let told: Vec<&str> = told.filter(|words| !words.is_empty()).collect();
    let known = slice.session.filter(|_| !drawing.small);
    let busy = match drawing.by {
        By::Memory => used.map(|used| components::percent(used.0 as f64, slice.memory.0 as f64)),
        By::Share | By::Load => load.map(|percent| u8::try_from(percent).unwrap_or(u8::MAX)),
    };
    Block {
        kind: match () {
            () if slice.session.is_some() && slice.session == drawing.mine => BlockKind::Mine,
            () if slice.paused => BlockKind::Paused,
            () if idle.is_some() => BlockKind::Idle,
            () => BlockKind::Session,
        },
        name: slice
            .name
            .clone()
            .unwrap_or_else(|| t.plan_others().to_owned()),
        note,
        hue: owner.map_or(8, |owner| drawing.hue(owner)),
        busy: busy.filter(|_| !drawing.small),
        fill: match drawing.by {
            By::Share => Fill::Foot,
            By::Load => Fill::Heat,
            By::Memory => Fill::Whole,
        },
        weight,
        href: known.map(|id| format!("/sessions/{id}")),
        label: match drawing.small {
            true => String::new(),
            false => told.join(" · "),
        },
        partition: slice.profile.map(|profile| profile.to_string()),
    }
}

fn owned(granted: String, owner: Option<&str>) -> String {
    match owner {
        Some(owner) => format!("{granted} · {owner}"),
        None => granted,
    }
}

/// `84% busy · 21.4 of 28 GiB in use`, or since when it is idle; empty where unknown.
fn doing_of(t: Text, slice: &GpuSlice, now: Timestamp) -> String {
    let busy = match (idle(slice, now), slice.load_percent) {
        (Some(seconds), _) => Some(t.gpu_idle_for(components::span(t, seconds))),
        (None, Some(load)) => Some(t.plan_percent_busy(load.round() as u64)),
        (None, None) => None,
    };
    let memory = slice.memory_in_use.map(|used| {
        let (used, all) = (components::part_of(used.0, slice.memory.0), slice.memory.0);
        t.gpu_in_use(t.gpu_memory_of(used, components::size(all)))
    });
    let words: Vec<String> = [busy, memory].into_iter().flatten().collect();
    words.join(" · ")
}

/// `58 °C · 402 W`; none where it does not say.
fn warmth(t: Text, gpu: &Gpu) -> Option<String> {
    let doing = gpu.doing?;
    let heat = doing.celsius.map(|celsius| t.gpu_heat(celsius));
    let power = doing
        .milliwatts
        .map(|milliwatts| t.gpu_power(milliwatts.saturating_add(500) / 1000));
    let words: Vec<String> = [heat, power].into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(" · "))
}

fn health(t: Text, gpu: &Gpu) -> String {
    if gpu.simulated {
        return t.gpu_simulated().to_owned();
    }
    match &gpu.health {
        Health::Unknown => t.gpu_health_unknown().to_owned(),
        Health::Well => t.gpu_health_well().to_owned(),
        Health::Worn { text } | Health::Failing { text } => text.clone(),
    }
}

/// `8 × NVIDIA H100 80GB`, every model once, and how much of all is given.
pub fn lead(t: Text, all: &[Gpu]) -> String {
    let mut models: Vec<(&str, u64)> = Vec::new();
    for gpu in all {
        match models.iter_mut().find(|(name, _)| *name == gpu.model) {
            Some((_, number)) => *number += 1,
            None => models.push((&gpu.model, 1)),
        }
    }
    let mut words: Vec<String> = models
        .into_iter()
        .map(|(name, number)| format!("{number} × {name}"))
        .collect();
    let given: GpuShare = all.iter().map(|gpu| gpu.share_used).sum();
    if !all.is_empty() {
        words.push(t.gpu_given_of(share(given), all.len() as u64));
    }
    words.join(" · ")
}

fn rules(t: Text, all: &Gpus) -> Vec<(String, String)> {
    let SharePolicy {
        units,
        least,
        step,
        spreading,
        each,
        order: _,
        backfill: _,
    } = all.policy;
    let mut rows = vec![
        (t.gpu_least().to_owned(), share(least)),
        (t.gpu_step().to_owned(), share(step)),
        (
            t.gpu_spreading().to_owned(),
            match spreading {
                Spreading::Pack => t.gpu_pack().to_owned(),
                Spreading::Spread => t.gpu_spread().to_owned(),
                Spreading::RoundRobin => t.gpu_roundrobin().to_owned(),
            },
        ),
        (
            t.gpu_each().to_owned(),
            each.map_or_else(|| t.gpu_no_limit().to_owned(), share),
        ),
    ];
    if units > 1 {
        rows.push((t.gpu_units().to_owned(), units.to_string()));
    }
    let size = components::size(all.context_overhead.0);
    rows.push((
        t.gpu_context().to_owned(),
        match all.items.iter().any(is_measured) {
            true => format!("{size} · {}", t.gpu_context_measured()),
            false => size,
        },
    ));
    rows
}

/// Whether what limits do was measured on such a card: figures of another one say nothing of it.
fn is_measured(gpu: &Gpu) -> bool {
    gpu.model.contains("H200")
}

fn facts(t: Text, gpu: &Gpu, context: Bytes) -> Vec<(String, String)> {
    let mut rows = vec![
        (t.gpu_model().to_owned(), gpu.model.clone()),
        (t.gpu_name().to_owned(), gpu.id.clone()),
        (t.gpu_machine().to_owned(), gpu.node_name.clone()),
        (t.gpu_memory().to_owned(), components::size(gpu.memory.0)),
        (t.gpu_sms().to_owned(), gpu.sms.to_string()),
        (t.gpu_doing().to_owned(), doing(t, gpu)),
        (
            t.gpu_given().to_owned(),
            format!(
                "{} · {}",
                share(gpu.share_used),
                components::size(gpu.memory_used.0)
            ),
        ),
        (
            t.gpu_free().to_owned(),
            match free_partitions(gpu) {
                Some((free, all)) => t.gpu_partition_free(free, all),
                None => format!(
                    "{} · {}",
                    share(gpu.share_free),
                    components::size(gpu.memory_free.0)
                ),
            },
        ),
    ];
    if let Some(socket) = gpu.numa {
        rows.push((t.gpu_place().to_owned(), t.gpu_socket(socket)));
    }
    if let Some(least) = gpu.least {
        rows.push((
            t.gpu_least().to_owned(),
            t.gpu_least_why(share(least), components::size(context.0)),
        ));
    }
    if is_measured(gpu) {
        let measured = t.gpu_limits_measured();
        rows.push((t.gpu_limits().to_owned(), measured.to_owned()));
    }
    if !gpu.simulated {
        rows.push((t.gpu_health().to_owned(), health(t, gpu)));
        let hold = match gpu.hold {
            Hold::Nobody => t.gpu_hold_nobody(),
            Hold::Hook => t.gpu_hold_hook(),
            Hold::HookAndKernel => t.gpu_hold_kernel(),
            Hold::HookAndDriver => t.gpu_hold_driver(),
            Hold::Hardware => t.gpu_hold_hardware(),
        };
        rows.push((t.gpu_hold().to_owned(), hold.to_owned()));
        rows.push((t.self_test_driver().to_owned(), gpu.driver.clone()));
    }
    rows
}

/// How busy it is, how much of its memory is in use, and how warm it is, as far as it says so.
fn doing(t: Text, gpu: &Gpu) -> String {
    let Some(now) = gpu.doing else {
        return t.gpu_health_unknown().to_owned();
    };
    let busy = now.busy_percent.map(|percent| t.plan_percent_busy(percent));
    let memory = now
        .memory
        .map(|memory| t.gpu_in_use(components::size(memory.0)));
    let words: Vec<String> = [busy, memory, warmth(t, gpu)]
        .into_iter()
        .flatten()
        .collect();
    match words.is_empty() {
        true => t.gpu_health_unknown().to_owned(),
        false => words.join(" · "),
    }
}

/// A row for each slice that the reader may know, and one for those of others together.
fn lines(t: Text, gpu: &Gpu, drawing: &Drawing<'_>) -> Vec<SliceRow> {
    let (known, others): (Vec<&GpuSlice>, Vec<&GpuSlice>) =
        gpu.slices.iter().partition(|slice| slice.session.is_some());
    let mut rows: Vec<SliceRow> = known
        .into_iter()
        .map(|slice| line(t, gpu, slice, drawing))
        .collect();
    match others[..] {
        [] => {}
        [only] => rows.push(line(t, gpu, only, drawing)),
        _ => {
            let given: GpuShare = others.iter().map(|slice| slice.share).sum();
            let memory: Bytes = others.iter().map(|slice| slice.memory).sum();
            let sms = others.iter().map(|slice| slice.sms).sum::<u32>();
            rows.push(SliceRow {
                hue: 8,
                href: None,
                name: t.plan_others().to_owned(),
                owner: String::new(),
                owner_href: None,
                stop: None,
                share: share(given),
                memory: components::size(memory.0),
                sms: t.gpu_sms_of(sms, gpu.sms),
                doing: String::new(),
                tone: "",
                state: t.gpu_others_n(others.len() as u64),
            });
        }
    }
    rows
}

fn line(t: Text, gpu: &Gpu, slice: &GpuSlice, drawing: &Drawing<'_>) -> SliceRow {
    let now = drawing.now;
    let owner = slice.owner.as_ref().map(|owner| owner.name.as_str());
    let (tone, state) = match (slice.confirmed, slice.state) {
        (false, _) => ("warn", t.gpu_pending()),
        (true, SessionState::Running) if slice.paused => ("", t.state_paused()),
        (true, SessionState::Running) if idle(slice, now).is_some() => ("warn", t.gpu_idle()),
        (true, SessionState::Running) => ("ok", t.state_running()),
        (true, SessionState::Stopping) => ("warn", t.state_stopping()),
        (true, _) => ("acc", t.state_preparing()),
    };
    SliceRow {
        hue: owner.map_or(8, |owner| drawing.hue(owner)),
        href: slice.session.map(|id| format!("/sessions/{id}")),
        name: slice
            .name
            .clone()
            .unwrap_or_else(|| t.plan_others().to_owned()),
        owner: owner.unwrap_or_default().to_owned(),
        owner_href: None,
        stop: slice
            .session
            .filter(|_| slice.state < SessionState::Stopping)
            .map(|id| {
                let back = format!("/gpus/{}", encoded(&gpu.id));
                format!("/sessions/stop?id={id}&back={}", encoded(&back))
            }),
        share: match slice.profile {
            Some(profile) => profile.to_string(),
            None => share(slice.share),
        },
        memory: components::size(slice.memory.0),
        sms: t.gpu_sms_of(slice.sms, gpu.sms),
        doing: doing_of(t, slice, now),
        tone,
        state: state.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use api::sessions::Owner;
    use rules::names::{UserId, UserName};
    use rules::session::SessionState;

    use super::*;

    #[test]
    fn a_drain_says_what_ends_what_starts_again_and_what_remains() {
        let t = Text::default();
        for (of, told) in [
            (
                "1 0 0",
                "GPU 1 takes no new sessions. None ran on it. It stays cordoned until you uncordon it.",
            ),
            (
                "0 1 0",
                "GPU 0 takes no new sessions. 1 session was asked to end. It stays cordoned until you uncordon it.",
            ),
            (
                "0 3 2",
                "GPU 0 takes no new sessions. 3 sessions were asked to end. Of these, 2 batch jobs wait for another GPU. It stays cordoned until you uncordon it.",
            ),
        ] {
            assert_eq!(drained(t, of), told);
        }
    }

    #[test]
    fn a_block_says_whose_it_is_whatever_the_plan_shows() {
        let slice = GpuSlice {
            session: None,
            name: Some("vit".into()),
            owner: Some(Owner {
                id: UserId(uuid::Uuid::nil()),
                name: UserName::parse("mina").expect("a name"),
            }),
            mine: false,
            state: SessionState::Running,
            paused: false,
            share: GpuShare(5),
            memory: Bytes::gib(4),
            sms: 6,
            profile: None,
            confirmed: true,
            load_percent: Some(84.0),
            memory_in_use: None,
            idle_since: None,
        };
        for by in By::ALL {
            let drawing = Drawing {
                by,
                ..Drawing::at(Timestamp::default())
            };
            let block = block(Text::default(), &slice, &drawing, 5);
            let words = format!("{}, {}", block.note, block.label);
            assert_eq!(words.matches("mina").count(), 1, "{}: {words}", by.word());
            assert!(words.contains("84% busy"), "{words}");
        }
    }
}
