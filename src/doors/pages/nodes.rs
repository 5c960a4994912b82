//! `/nodes/{name}`: one machine: what it has, what runs there, what its kernel says of pressure, disks, networks and heat,
//! and maintenance. For administrators; the overview shows users what they may see of it.

use api::nodes::{MachineDisk, MachineFacts, MachineHeat, MachineNetwork, MachinePressure};
use askama::Template;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusals;
use rules::session::SessionState;
use rules::units::GpuShare;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::sessions::{self, NodeOverview};
use server::actions::{nodes, resource_groups};

use super::authentication::PageCaller;
use super::components::{self, Alert, BarRow, FormFieldError};
use super::hues::Hues;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, live as stream, presenter, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/node.html", blocks = ["state", "room", "here", "kernel"])]
pub struct NodePage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    /// GPUs of it do not exist.
    pub simulated: bool,
    pub name: String,
    pub address: String,
    pub lead: String,
    pub tone: &'static str,
    pub state: String,
    pub closed: bool,
    pub message: String,
    pub faults: Vec<FormFieldError>,
    pub problems: Vec<String>,
    pub rows: Vec<BarRow>,
    /// What the kernel says of everything that runs, sessions or not.
    pub whole: Vec<(&'static str, String)>,
    pub here: Vec<NodeSessionRow>,
    pub more: usize,
    pub pressure: Vec<PressureRow>,
    pub disks: Vec<DiskRow>,
    pub networks: Vec<(String, String, String, String)>,
    pub heat: Vec<HeatRow>,
}

/// A session that holds room here.
pub struct NodeSessionRow {
    pub hue: u8,
    pub name: String,
    pub href: Option<String>,
    pub owner: String,
    /// The page of the owner; none for a reader who may not see it.
    pub owner_href: Option<String>,
    pub facts: String,
    pub state: &'static str,
}

pub struct PressureRow {
    pub of: &'static str,
    pub figures: Vec<String>,
    pub percent: u8,
    pub tone: &'static str,
}

pub struct DiskRow {
    pub place: String,
    pub device: String,
    pub left: String,
    pub percent: u8,
    pub tone: &'static str,
    pub holds_state: bool,
}

pub struct HeatRow {
    pub name: String,
    pub celsius: String,
    pub percent: u8,
    pub tone: &'static str,
}

/// Sessions that the page lists; the sessions page has the others.
const SHOWN: usize = 50;
/// Per cent of the last minute in which some work waited, from where on it is marked.
const PRESSED: f64 = 10.0;
/// Per cent of a disk in use from where on it is marked.
const NEARLY_FULL: u8 = 90;

/// What maintenance an administrator asks for.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct MaintenanceForm {
    /// `begin` or `end`.
    act: String,
    message: String,
}

/// `GET /nodes`: leads to the first node.
pub async fn first(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match sessions::overview(&console.server, &caller).await {
        Ok(seen) => match seen.machines.first() {
            Some(node) => responses::see(&format!("/nodes/{}", responses::encoded(&node.name))),
            None => failed(
                &console,
                &visit,
                &caller,
                &refusals::node_not_found().into(),
            ),
        },
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /nodes/{name}`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(name): Path<String>,
) -> Response {
    match read(&console, &visit, &caller, &name).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /nodes/{name}/live`
pub async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(name): Path<String>,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let name = name.clone();
        async move {
            let page = read(&console, &visit, &caller, &name).await.ok()?;
            Some(vec![
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("state", page.as_state().render().ok()?),
                ("room", page.as_room().render().ok()?),
                ("here", page.as_here().render().ok()?),
                ("kernel", page.as_kernel().render().ok()?),
            ])
        }
    })
}

/// `POST /nodes/{name}/maintenance`
pub async fn maintenance(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(name): Path<String>,
    Form(form): Form<MaintenanceForm>,
) -> Response {
    let begins = form.act == "begin";
    let server = &console.server;
    match nodes::set_maintenance(server, &caller, &name, begins, &form.message).await {
        Ok(()) => {
            let word = match begins {
                true => "maintenance",
                false => "maintenance-over",
            };
            let place = format!("/nodes/{}", responses::encoded(&name));
            responses::see_with(&place, word, &name)
        }
        Err(Failure::Refusal(refusal)) if refusal.pointer.as_deref() == Some("/message") => {
            match read(&console, &visit, &caller, &name).await {
                Ok(page) => {
                    let page = NodePage {
                        message: form.message,
                        faults: vec![FormFieldError {
                            field: "message".to_owned(),
                            message: codes::refusal(visit.text, &refusal),
                        }],
                        ..page
                    };
                    responses::page(&console, &visit, responses::status(&refusal), &page)
                }
                Err(failure) => failed(&console, &visit, &caller, &failure),
            }
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Node);
    responses::failure(console, visit, Some(frame), failure)
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    name: &str,
) -> Result<NodePage, Failure> {
    let t = visit.text;
    let (facts, alert) = match nodes::facts(&console.server, caller, name).await {
        Ok(facts) => (facts, None),
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::DIAGNOSTICS_UNAVAILABLE => {
            (
                None,
                Some(Alert::warning(codes::refusal(t, &refusal)).code(refusal.code)),
            )
        }
        Err(failure) => return Err(failure),
    };
    let seen = sessions::overview(&console.server, caller).await?;
    let closed = nodes::in_maintenance(&console.server, caller).await?;
    let message = closed.into_iter().find(|node| node.name == name);
    let node = seen
        .machines
        .iter()
        .find(|node| node.name == name)
        .ok_or_else(refusals::node_not_found)?;
    let facts = facts.map(|(_, facts)| facts).unwrap_or_default();
    let now = console.server.clock().now();
    let (tone, state) = match (node.silent, node.schedulable) {
        (true, _) => {
            let span = components::span(t, now.seconds_since(node.seen_at));
            ("bad", t.plan_silent(span))
        }
        (_, false) => ("warn", t.node_maintenance().to_owned()),
        _ => ("ok", t.plan_ready().to_owned()),
    };
    let address = format!("/nodes/{}", responses::encoded(name));
    let groups = resource_groups::of_nodes(&console.server, caller).await?;
    let f = PageLayout {
        sessions: seen.counts.scheduled
            + seen.counts.preparing
            + seen.counts.running
            + seen.counts.stopping
            + seen.counts.pending,
        waiting: seen.counts.pending,
        live: Some(format!("{address}/live")),
        ..layout(console, visit, caller, Nav::Node)
    };
    let hues = Hues::on(std::slice::from_ref(node));
    Ok(NodePage {
        t,
        whole: whole(t, node, &facts),
        alert,
        simulated: presenter::simulated(std::slice::from_ref(node)),
        name: name.to_owned(),
        lead: match groups.get(&node.id) {
            Some(group) => {
                let group = format!("{} {group}", t.launch_text_group());
                format!("{} · {group}", lead(t, node, &facts))
            }
            None => lead(t, node, &facts),
        },
        tone,
        state,
        closed: !node.schedulable,
        message: message.map(|node| node.message).unwrap_or_default(),
        faults: Vec::new(),
        problems: node
            .problems
            .iter()
            .map(|problem| codes::reason(t, problem))
            .collect(),
        rows: presenter::racks(t, &hues, node, None).into(),
        more: node.slices.len().saturating_sub(SHOWN),
        here: node
            .slices
            .iter()
            .take(SHOWN)
            .map(|slice| here(t, &f, &hues, slice))
            .collect(),
        pressure: facts.pressure.iter().map(|one| pressure(t, one)).collect(),
        disks: facts.disks.iter().map(|one| disk(t, one)).collect(),
        networks: facts.networks.iter().map(|one| network(t, one)).collect(),
        heat: facts.heat.iter().map(heat).collect(),
        address,
        f,
    })
}

fn lead(t: Text, node: &NodeOverview, facts: &MachineFacts) -> String {
    let mut parts = vec![t.overview_machine_line(node.cpu, components::size(node.memory.0))];
    if node.cpu_room != node.cpu {
        parts.push(t.node_cpu_room(presenter::share(node.cpu_room)));
    }
    if !node.devices.is_empty() {
        parts.push(t.node_gpus(node.devices.len()));
    }
    parts.extend([facts.processor.clone(), facts.kernel.clone()]);
    if facts.up_seconds > 0 {
        parts.push(t.node_up(components::span(t, facts.up_seconds)));
    }
    if let [one, ..] = facts.load[..] {
        parts.push(t.node_load(format_args!("{one:.2}")));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// Load and pressure of the machine: what runs beside the sessions counts too.
fn whole(t: Text, node: &NodeOverview, facts: &MachineFacts) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if !facts.load.is_empty() {
        let loads: Vec<String> = facts.load.iter().map(|load| format!("{load:.2}")).collect();
        let cores = t.common_cores(node.cpu);
        rows.push((
            t.node_machine_load(),
            t.node_load_of(loads.join(" · "), cores),
        ));
    }
    let cpu = facts.pressure.iter().find(|one| one.of == "cpu");
    if let Some(waited) = cpu.and_then(|one| one.some.get(1)) {
        let percent = format!("{waited:.1}%");
        rows.push((t.node_waited(), t.node_waited_of(percent)));
    }
    rows
}

fn here(t: Text, f: &PageLayout, hues: &Hues, slice: &sessions::HeldSlice) -> NodeSessionRow {
    let owner = slice.owner.as_ref().map(|owner| owner.name.to_string());
    let owner_href = owner
        .as_deref()
        .and_then(|name| super::users::href(f, name));
    let owner = owner.unwrap_or_else(|| t.plan_others().to_owned());
    let gpu: GpuShare = slice.devices.iter().map(|part| part.share).sum();
    let mut facts = vec![t.common_cores(slice.cpu), components::size(slice.memory.0)];
    if gpu > GpuShare::ZERO {
        facts.insert(0, presenter::gpu_amount(t, gpu));
    }
    if let Some(container) = &slice.container {
        facts.insert(0, container.clone());
    }
    NodeSessionRow {
        hue: match slice.owner {
            Some(_) => hues.get(&owner),
            None => 8,
        },
        name: slice
            .name
            .clone()
            .unwrap_or_else(|| t.plan_others().to_owned()),
        href: slice.id.map(|id| format!("/sessions/{id}")),
        facts: facts.join(" · "),
        state: word(t, slice),
        owner,
        owner_href,
    }
}

fn word(t: Text, slice: &sessions::HeldSlice) -> &'static str {
    match slice.state {
        SessionState::Pending => t.state_waiting(),
        SessionState::Scheduled | SessionState::Preparing => t.state_preparing(),
        SessionState::Running if slice.paused => t.state_paused(),
        SessionState::Running => t.state_running(),
        SessionState::Stopping => t.state_stopping(),
        SessionState::Ended => t.state_finished(),
    }
}

fn pressure(t: Text, one: &MachinePressure) -> PressureRow {
    let worst = one.some.get(1).copied().unwrap_or_default();
    PressureRow {
        of: match one.of.as_str() {
            "cpu" => t.plan_cpu(),
            "memory" => t.plan_memory(),
            _ => t.node_io(),
        },
        figures: one
            .some
            .iter()
            .map(|share| format!("{share:.1}%"))
            .collect(),
        percent: components::percent(worst, 100.0),
        tone: match worst >= PRESSED {
            true => "w",
            false => "a",
        },
    }
}

fn disk(t: Text, one: &MachineDisk) -> DiskRow {
    let used = one.bytes.saturating_sub(one.free);
    let percent = components::percent(used as f64, one.bytes as f64);
    DiskRow {
        place: one.place.clone(),
        device: format!("{} · {}", one.device, one.file_system),
        left: t.node_disk_free(components::size(one.free), components::size(one.bytes)),
        percent,
        tone: match percent >= NEARLY_FULL {
            true => "b",
            false => "a",
        },
        holds_state: one.holds_state,
    }
}

fn network(t: Text, one: &MachineNetwork) -> (String, String, String, String) {
    let speed = match one.megabits {
        Some(megabits) if megabits >= 1000 => format!("{} Gbit/s", megabits as f64 / 1000.0),
        Some(megabits) => format!("{megabits} Mbit/s"),
        None => String::new(),
    };
    let state = match one.state.as_str() {
        "up" => t.node_link_up(),
        "down" => t.node_link_down(),
        _ => "–",
    };
    let said = [state.to_owned(), speed];
    let said: Vec<String> = said.into_iter().filter(|part| !part.is_empty()).collect();
    (
        one.name.clone(),
        said.join(" · "),
        t.node_traffic(components::size(one.received), components::size(one.sent)),
        match one.errors {
            0 => String::new(),
            errors => t.node_errors(errors),
        },
    )
}

fn heat(one: &MachineHeat) -> HeatRow {
    let most = one.critical.filter(|most| *most > 0.0).unwrap_or(100.0);
    let percent = components::percent(one.celsius, most);
    HeatRow {
        name: one.name.clone(),
        celsius: match one.critical {
            Some(critical) => format!("{:.0} °C / {critical:.0} °C", one.celsius),
            None => format!("{:.0} °C", one.celsius),
        },
        percent,
        tone: match percent >= NEARLY_FULL {
            true => "b",
            false => "a",
        },
    }
}
