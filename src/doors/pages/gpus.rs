//! `/gpus` and `/gpus/{id}`: every device as a bar, whose slices are on it, and for administrators the
//! cordon, the drain and the cut. Where devices are simulated each of these pages says so.

pub mod cut;

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::devices::{Health, Hold, SharePolicy, Spreading, WHOLE};
use rules::names::SessionId;
use rules::resources::DeviceShare;
use rules::session::Phase;
use rules::units::{Bytes, GpuShare};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::gpus::{self, CordonRequest, DrainRequest, Gpu, GpuSlice, Gpus};

use super::frame::{Frame, Nav};
use super::parts::{self, Alert, Block, Kind, Markup, Row};
use super::visit::Visit;
use super::who::Who;
use super::{Console, answer, frame, live as stream};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/gpus.html", blocks = ["lead", "plan"])]
pub struct GpusPage {
    pub t: Text,
    pub f: Frame,
    /// `8 × NVIDIA H100 80GB · 7.01 of 8 given`.
    pub lead: String,
    pub simulated: bool,
    /// Widths are memory, not share.
    pub by_memory: bool,
    pub groups: Vec<Group>,
    pub rules: Vec<(String, String)>,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/gpu.html", blocks = ["state", "slices", "facts", "cut"])]
pub struct GpuPage {
    pub t: Text,
    pub f: Frame,
    pub alert: Option<Alert>,
    pub id: String,
    pub name: String,
    pub simulated: bool,
    /// Tone and words for whether its driver has passed the self-test; none for a simulated one.
    pub standing: Option<(&'static str, String)>,
    pub cordoned: bool,
    pub note: String,
    pub may_write: bool,
    pub row: Row,
    pub facts: Vec<(String, String)>,
    pub slices: Vec<Line>,
    /// What a drain would end.
    pub ends: Vec<String>,
    /// A cut that is wanted and not made yet.
    pub planned: Option<cut::Planned>,
    /// None where it cannot be cut, or not by the caller.
    pub cut: Option<cut::Cutting>,
}

/// Devices that hang together.
pub struct Group {
    pub title: String,
    pub rows: Vec<Device>,
}

/// One device of the floor plan.
pub struct Device {
    pub href: String,
    pub cut: bool,
    pub row: Row,
}

/// One slice in a device's list.
pub struct Line {
    pub hue: u8,
    pub href: Option<String>,
    pub name: String,
    pub owner: String,
    pub share: String,
    pub memory: String,
    pub sms: String,
    pub tone: &'static str,
    pub state: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Asked {
    by: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Said {
    note: String,
}

/// `GET /gpus`
pub async fn list(
    State(console): State<Console>,
    visit: Visit,
    Who(caller): Who,
    Query(asked): Query<Asked>,
) -> Response {
    match read(&console, &visit, &caller, asked.by == "memory").await {
        Ok(page) => answer::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /gpus/live`: the same as slices come and go.
pub async fn list_live(
    State(console): State<Console>,
    visit: Visit,
    Who(caller): Who,
    Query(asked): Query<Asked>,
) -> Response {
    let server = console.server.clone();
    let by_memory = asked.by == "memory";
    stream::stream(&server, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        async move {
            let page = read(&console, &visit, &caller, by_memory).await.ok()?;
            Some(vec![
                ("lead", page.as_lead().render().ok()?),
                ("plan", page.as_plan().render().ok()?),
            ])
        }
    })
}

/// `GET /gpus/{id}`
pub async fn show(
    State(console): State<Console>,
    visit: Visit,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Response {
    match one(&console, &visit, &caller, &id, None, None).await {
        Ok(page) => answer::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /gpus/{id}/live`
pub async fn show_live(
    State(console): State<Console>,
    visit: Visit,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Response {
    let server = console.server.clone();
    stream::stream(&server, move || {
        let (console, visit, caller, id) =
            (console.clone(), visit.clone(), caller.clone(), id.clone());
        async move {
            let page = one(&console, &visit, &caller, &id, None, None).await.ok()?;
            Some(vec![
                ("state", page.as_state().render().ok()?),
                ("slices", page.as_slices().render().ok()?),
                ("facts", page.as_facts().render().ok()?),
            ])
        }
    })
}

/// `POST /gpus/{id}/{verb}`: cordon, uncordon, drain; the end of a self-test.
pub async fn act(
    State(console): State<Console>,
    visit: Visit,
    Who(caller): Who,
    Path((id, verb)): Path<(String, String)>,
    Form(said): Form<Said>,
) -> Response {
    if verb == "cancel-test" {
        return super::proofs::cancel(&console, &visit, &caller, &id).await;
    }
    let note = Some(said.note.trim().to_owned()).filter(|note| !note.is_empty());
    let server = &console.server;
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
                .map(|drained| ("gpu-drain", drained.gpu))
        }
        _ => Err(rules::refusal::Refusal::not_found(
            "path.unknown",
            "There is nothing at this address.",
        )
        .into()),
    };
    match done {
        Ok((word, gpu)) => {
            answer::see_with(&format!("/gpus/{}", gpu.id), word, &gpu.index.to_string())
        }
        Err(Failure::Refusal(refusal)) => {
            let status = answer::status(&refusal);
            let alert = Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
            match one(&console, &visit, &caller, &id, Some(alert), None).await {
                Ok(page) => answer::page(&console, &visit, status, &page),
                Err(_) => failed(&console, &visit, &caller, &refusal.into()),
            }
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

pub(super) fn failed(
    console: &Console,
    visit: &Visit,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = frame(console, visit, caller, Nav::Gpus);
    answer::failure(console, visit, Some(frame), failure)
}

async fn read(
    console: &Console,
    visit: &Visit,
    caller: &Caller,
    by_memory: bool,
) -> Result<GpusPage, Failure> {
    let t = visit.text;
    let all = gpus::list(&console.server, caller).await?;
    let query = if by_memory { "?by=memory" } else { "" };
    Ok(GpusPage {
        t,
        f: Frame {
            live: Some(format!("/gpus/live{query}")),
            ..frame(console, visit, caller, Nav::Gpus)
        },
        lead: lead(t, &all.items),
        simulated: all.simulated,
        by_memory,
        groups: groups(
            t,
            &all.items,
            &Drawing {
                by_memory,
                ..Drawing::default()
            },
        ),
        rules: rules(t, &all),
    })
}

async fn one(
    console: &Console,
    visit: &Visit,
    caller: &Caller,
    id: &str,
    alert: Option<Alert>,
    sent: Option<&[(String, String)]>,
) -> Result<GpuPage, Failure> {
    let t = visit.text;
    let all = gpus::list(&console.server, caller).await?;
    let gpu = gpus::get(&console.server, caller, id).await?;
    let drawing = Drawing::default();
    let may_write = caller.subject.role == rules::people::Role::Administrator;
    let cutting = match may_write {
        true => cut::form(console, t, caller, &gpu, sent).await?,
        false => None,
    };
    Ok(GpuPage {
        t,
        f: Frame {
            live: Some(format!("/gpus/{}/live", gpu.id)),
            ..frame(console, visit, caller, Nav::Gpus)
        },
        alert,
        name: format!("GPU {}", gpu.index),
        simulated: gpu.simulated,
        standing: (!gpu.simulated).then(|| super::proofs::standing(t, &gpu)),
        cordoned: gpu.cordoned,
        note: gpu.note.clone(),
        may_write,
        planned: cut::planned(t, &gpu),
        cut: cutting,
        row: row(t, &gpu, &drawing),
        facts: facts(t, &gpu, all.context_overhead),
        slices: gpu
            .slices
            .iter()
            .map(|slice| line(t, &gpu, slice))
            .collect(),
        ends: gpu
            .slices
            .iter()
            .filter_map(|slice| slice.name.clone())
            .collect(),
        id: gpu.id,
    })
}

/// How devices are drawn.
#[derive(Clone, Copy, Default)]
pub struct Drawing<'a> {
    pub by_memory: bool,
    /// The session whose page this is.
    pub mine: Option<SessionId>,
    /// What is about to be launched, and on which machine.
    pub ghost: Option<(&'a str, &'a [DeviceShare])>,
    pub small: bool,
}

/// The devices, machine by machine and socket by socket.
pub fn groups(t: Text, all: &[Gpu], drawing: &Drawing<'_>) -> Vec<Group> {
    let several = all.iter().any(|gpu| gpu.node != all[0].node);
    let mut groups: Vec<Group> = Vec::new();
    for gpu in all {
        let title = title(t, gpu, several);
        let device = Device {
            href: format!("/gpus/{}", gpu.id),
            cut: !gpu.partitions.is_empty(),
            row: row(t, gpu, drawing),
        };
        match groups.last_mut().filter(|group| group.title == title) {
            Some(group) => group.rows.push(device),
            None => groups.push(Group {
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

/// One device as a bar: a block for each slice, for what is about to be launched, and for what is free.
pub fn row(t: Text, gpu: &Gpu, drawing: &Drawing<'_>) -> Row {
    let cut = !gpu.partitions.is_empty();
    // Partitions are walls in memory first; their engines are never quite the same part of the device.
    let weigh = |part: GpuShare, memory: Bytes| match drawing.by_memory || cut {
        true => memory.0 >> 20,
        false => u64::from(part.0),
    };
    let whole = weigh(WHOLE, gpu.memory);
    let mut blocks: Vec<Block> = gpu
        .slices
        .iter()
        .map(|slice| block(t, slice, drawing, weigh(slice.share, slice.memory).max(1)))
        .collect();
    let free = |name: String, weight| Block {
        kind: if gpu.cordoned { Kind::Held } else { Kind::Free },
        name,
        note: String::new(),
        hue: 0,
        busy: None,
        weight,
        href: None,
        label: String::new(),
    };
    let mut left = whole.saturating_sub(blocks.iter().map(|block| block.weight).sum());
    let ghost = drawing
        .ghost
        .filter(|(node, _)| *node == gpu.node_name)
        .and_then(|(_, parts)| parts.iter().find(|part| part.index == gpu.index));
    if let Some(part) = ghost {
        let weight = weigh(part.share, part.memory).min(left);
        left -= weight;
        blocks.push(Block {
            kind: Kind::Ghost,
            ..free(t.preview_your_share(share(part.share)), weight)
        });
    }
    if cut {
        for part in gpu.partitions.iter().filter(|part| !part.taken) {
            let parts = WHOLE.0 * part.sms / gpu.sms.max(1);
            let weight = weigh(GpuShare(parts), part.memory).min(left);
            left -= weight;
            blocks.push(free(part.profile.to_string(), weight));
        }
    }
    if left > 0 {
        let words = match (gpu.cordoned, drawing.by_memory, cut) {
            (true, ..) => t.gpu_cordoned().to_owned(),
            (false, _, true) => t.gpu_cut_rest().to_owned(),
            (false, true, false) => t.common_free(parts::size(left << 20)),
            (false, false, false) => {
                t.common_free(share(GpuShare(u32::try_from(left).unwrap_or_default())))
            }
        };
        blocks.push(free(words, left));
    }
    // What it does now, where it says so; else what is given of it.
    let busy = gpu.doing.and_then(|doing| doing.busy_percent);
    let used = gpu.doing.and_then(|doing| doing.memory);
    Row {
        name: format!("GPU {}", gpu.index),
        note: parts::size(gpu.memory.0),
        blocks,
        busy: busy.map_or_else(|| share(gpu.share_used), |percent| format!("{percent}%")),
        busy_word: match busy {
            Some(_) => t.gpu_busy_word().to_owned(),
            None => t.gpu_given_word().to_owned(),
        },
        trend: Markup::default(),
        figure: parts::size(used.unwrap_or(gpu.memory_used).0),
        figure_of: t.common_of(parts::size(gpu.memory.0)),
        figure_note: match warmth(t, gpu) {
            Some(warmth) if matches!(gpu.health, Health::Unknown | Health::Well) => warmth,
            _ => health(t, gpu),
        },
        left: if gpu.share_free == GpuShare::ZERO {
            "–".to_owned()
        } else {
            share(gpu.share_free)
        },
        closed: gpu.cordoned
            || gpu.planned.is_some()
            || !gpu.answers
            || matches!(gpu.health, Health::Failing { .. }),
        hit: ghost.is_some(),
    }
}

fn block(t: Text, slice: &GpuSlice, drawing: &Drawing<'_>, weight: u64) -> Block {
    let owner = slice.owner.as_ref().map(|owner| owner.name.as_str());
    let amount = match (&slice.profile, drawing.by_memory) {
        (Some(profile), _) => profile.to_string(),
        (None, true) => parts::size(slice.memory.0),
        (None, false) => share(slice.share),
    };
    let known = slice.session.filter(|_| !drawing.small);
    Block {
        kind: match () {
            () if slice.session.is_some() && slice.session == drawing.mine => Kind::Mine,
            () if slice.paused => Kind::Paused,
            () => Kind::Session,
        },
        name: slice
            .name
            .clone()
            .unwrap_or_else(|| t.plan_others().to_owned()),
        note: match owner {
            Some(owner) => format!("{amount} · {owner}"),
            None => amount,
        },
        hue: owner.map_or(8, parts::hue),
        busy: None,
        weight,
        href: known.map(|id| format!("/sessions/{id}")),
        label: String::new(),
    }
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
    } = all.policy;
    let mut rows = vec![
        (t.gpu_least().to_owned(), share(least)),
        (t.gpu_step().to_owned(), share(step)),
        (
            t.gpu_spreading().to_owned(),
            match spreading {
                Spreading::Pack => t.gpu_pack().to_owned(),
                Spreading::Spread => t.gpu_spread().to_owned(),
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
    rows.push((
        t.gpu_context().to_owned(),
        format!(
            "{} · {}",
            parts::size(all.context_overhead.0),
            t.gpu_not_measured()
        ),
    ));
    rows
}

fn facts(t: Text, gpu: &Gpu, context: Bytes) -> Vec<(String, String)> {
    let mut rows = vec![
        (t.gpu_model().to_owned(), gpu.model.clone()),
        (t.gpu_name().to_owned(), gpu.id.clone()),
        (t.gpu_machine().to_owned(), gpu.node_name.clone()),
        (t.gpu_memory().to_owned(), parts::size(gpu.memory.0)),
        (t.gpu_sms().to_owned(), gpu.sms.to_string()),
        (t.gpu_health().to_owned(), health(t, gpu)),
        (t.gpu_doing().to_owned(), doing(t, gpu)),
        (
            t.gpu_given().to_owned(),
            format!(
                "{} · {}",
                share(gpu.share_used),
                parts::size(gpu.memory_used.0)
            ),
        ),
        (
            t.gpu_free().to_owned(),
            format!(
                "{} · {}",
                share(gpu.share_free),
                parts::size(gpu.memory_free.0)
            ),
        ),
    ];
    if let Some(socket) = gpu.numa {
        rows.push((t.gpu_place().to_owned(), t.gpu_socket(socket)));
    }
    if let Some(least) = gpu.least {
        rows.push((
            t.gpu_least().to_owned(),
            t.gpu_least_why(share(least), parts::size(context.0)),
        ));
    }
    rows.push((t.gpu_limits().to_owned(), t.gpu_not_measured().to_owned()));
    if !gpu.simulated {
        let hold = match gpu.hold {
            Hold::Nobody => t.gpu_hold_nobody(),
            Hold::Hook => t.gpu_hold_hook(),
            Hold::HookAndKernel => t.gpu_hold_kernel(),
            Hold::HookAndDriver => t.gpu_hold_driver(),
            Hold::Hardware => t.gpu_hold_hardware(),
        };
        rows.push((t.gpu_hold().to_owned(), hold.to_owned()));
        rows.push((t.proof_driver().to_owned(), gpu.driver.clone()));
    }
    rows
}

/// How busy it is, how much of its memory is in use, and how warm it is, as far as it says so.
fn doing(t: Text, gpu: &Gpu) -> String {
    let Some(now) = gpu.doing else {
        return t.gpu_health_unknown().to_owned();
    };
    let busy = now.busy_percent.map(|percent| t.plan_percent_busy(percent));
    let memory = now.memory.map(|memory| t.gpu_in_use(parts::size(memory.0)));
    let words: Vec<String> = [busy, memory, warmth(t, gpu)]
        .into_iter()
        .flatten()
        .collect();
    match words.is_empty() {
        true => t.gpu_health_unknown().to_owned(),
        false => words.join(" · "),
    }
}

fn line(t: Text, gpu: &Gpu, slice: &GpuSlice) -> Line {
    let owner = slice.owner.as_ref().map(|owner| owner.name.as_str());
    let (tone, state) = match (slice.confirmed, slice.state) {
        (false, _) => ("warn", t.gpu_unconfirmed()),
        (true, Phase::Running) if slice.paused => ("", t.state_paused()),
        (true, Phase::Running) => ("ok", t.state_running()),
        (true, Phase::Stopping) => ("warn", t.state_stopping()),
        (true, _) => ("acc", t.state_preparing()),
    };
    Line {
        hue: owner.map_or(8, parts::hue),
        href: slice.session.map(|id| format!("/sessions/{id}")),
        name: slice
            .name
            .clone()
            .unwrap_or_else(|| t.plan_others().to_owned()),
        owner: owner.unwrap_or_default().to_owned(),
        share: match slice.profile {
            Some(profile) => profile.to_string(),
            None => share(slice.share),
        },
        memory: parts::size(slice.memory.0),
        sms: t.gpu_sms_of(slice.sms, gpu.sms),
        tone,
        state: state.to_owned(),
    }
}
