//! `/`: the machine at a glance.

use api::gpus::Gpu;
use api::sessions::{ListQuery, WaitingView};
use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusal::RefusalKind;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use server::access::Caller;
use server::actions::diagnostic_check::DiagnosticCheck;
use server::actions::gpus as devices;
use server::actions::sessions::{self, NodeOverview, Overview};
use server::actions::system;
use server::{Failure, Server};

use super::authentication::PageCaller;
use super::components::{self, BarRow};
use super::gpus::{By, FloorPlanQuery};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, gpus, layout, live as stream, presenter, responses, wizard};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/overview.html", blocks = ["kpis", "plan", "key", "legend", "recent", "events", "waiting", "attention"])]
pub struct OverviewPage {
    pub t: Text,
    pub f: PageLayout,
    /// The line under the title: cores, memory, up since.
    pub machine: String,
    pub figures: Vec<Figure>,
    /// Devices, in front of what every machine has.
    pub gpus: Vec<gpus::DeviceGroup>,
    /// None where no machine has a device.
    pub plan: Option<gpus::FloorPlan>,
    /// Devices here do not exist.
    pub simulated: bool,
    pub nodes: Vec<NodeRow>,
    pub legend: Vec<Legend>,
    pub recent: Vec<RecentSession>,
    pub events: Vec<OverviewEvent>,
    pub waiting: Vec<WaitingRow>,
    pub attention: Vec<Attention>,
}

/// One key figure with its bar.
pub struct Figure {
    pub name: &'static str,
    pub value: String,
    pub of: String,
    /// Class of the bar: empty (ink), `a`, `o`, `w`, `b`.
    pub tone: &'static str,
    pub percent: u8,
    pub note: String,
}

/// One machine on the floor plan.
pub struct NodeRow {
    pub title: String,
    pub rows: Vec<BarRow>,
}

pub struct Legend {
    pub hue: u8,
    pub name: String,
    pub share: String,
}

pub struct RecentSession {
    pub hue: u8,
    pub href: String,
    pub name: String,
    pub facts: String,
    pub tone: &'static str,
    pub state: String,
}

pub struct OverviewEvent {
    pub when: String,
    /// Class of the dot: empty (good), `a`, `i`, `w`.
    pub tone: &'static str,
    pub subject: String,
    pub what: String,
    pub who: String,
}

pub struct WaitingRow {
    pub hue: u8,
    pub href: String,
    pub name: String,
    pub since: String,
    pub why: String,
    pub hint: Option<String>,
}

pub struct Attention {
    pub icon: &'static str,
    pub tone: &'static str,
    pub title: String,
    pub text: String,
    pub href: Option<String>,
}

/// Sessions and events shown; the lists have the rest.
const SHOWN: usize = 5;

/// `GET /`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<FloorPlanQuery>,
) -> Response {
    match read(&console, &visit, &caller, By::asked(&asked.by)).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::Overview);
            responses::failure(&console, &visit, Some(frame), &failure)
        }
    }
}

/// `GET /live`: the same page's parts as they change.
pub async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<FloorPlanQuery>,
) -> Response {
    let by = By::asked(&asked.by);
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        async move {
            let page = read(&console, &visit, &caller, by).await.ok()?;
            Some(vec![
                ("counts", page.f.counts()),
                ("kpis", page.as_kpis().render().ok()?),
                ("plan", page.as_plan().render().ok()?),
                ("key", page.as_key().render().ok()?),
                ("legend", page.as_legend().render().ok()?),
                ("recent", page.as_recent().render().ok()?),
                ("events", page.as_events().render().ok()?),
                ("waiting", page.as_waiting().render().ok()?),
                ("attention", page.as_attention().render().ok()?),
            ])
        }
    })
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    by: By,
) -> Result<OverviewPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let seen = sessions::overview(&console.server, caller).await?;
    let newest = ListQuery {
        limit: Some(SHOWN as u32),
        ..ListQuery::default()
    };
    let list = sessions::list_uncounted(&console.server, caller, &newest).await?;
    let devices = devices::list(&console.server, caller).await?;
    let queue = sessions::queue(&console.server, caller).await?;
    // Users without permission to see the machine get no warnings about it.
    let warnings = system::warnings(&console.server, caller)
        .await
        .unwrap_or_default();
    let live =
        seen.counts.scheduled + seen.counts.preparing + seen.counts.running + seen.counts.stopping;
    let trends = trends(&console.server, caller, &seen, now).await?;
    let mut legend: Vec<(String, u32)> = Vec::new();
    // Hundredths of devices where there are any, else of cores.
    let cores = seen
        .machines
        .iter()
        .flat_map(|machine| &machine.slices)
        .filter(|_| devices.items.is_empty())
        .map(|slice| (&slice.owner, slice.cpu.0));
    let shares = devices
        .items
        .iter()
        .flat_map(|gpu| &gpu.slices)
        .map(|slice| (&slice.owner, slice.share.0));
    for (owner, hundredths) in shares.chain(cores) {
        let name = owner
            .as_ref()
            .map_or(t.plan_others(), |owner| owner.name.as_str());
        match legend.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += hundredths,
            None => legend.push((name.to_owned(), hundredths)),
        }
    }
    let names: std::collections::BTreeMap<String, String> = list
        .items
        .iter()
        .chain(queue.iter().map(|waiting| &waiting.session))
        .map(|session| (session.id.to_string(), session.name.to_string()))
        .chain(
            seen.machines
                .iter()
                .flat_map(|machine| &machine.slices)
                .filter_map(|slice| Some((slice.id?.to_string(), slice.name.clone()?))),
        )
        .collect();
    Ok(OverviewPage {
        t,
        f: PageLayout {
            sessions: live + seen.counts.pending,
            waiting: seen.counts.pending,
            live: Some(format!("/live{}", by.query())),
            ..layout(console, visit, caller, Nav::Overview)
        },
        machine: if devices.items.is_empty() {
            machine_line(t, &seen)
        } else {
            format!(
                "{} · {}",
                gpus::lead(t, &devices.items),
                machine_line(t, &seen)
            )
        },
        figures: figures(t, &seen, live, &devices.items, now),
        gpus: gpus::groups(
            t,
            &devices.items,
            &gpus::Drawing {
                by,
                ..gpus::Drawing::at(now)
            },
        ),
        plan: (!devices.items.is_empty())
            .then(|| gpus::FloorPlan::new(t, by, "/", &devices.items, now)),
        simulated: devices.simulated,
        nodes: seen
            .machines
            .iter()
            .map(|machine| NodeRow {
                title: t.plan_node(
                    &machine.name,
                    if machine.silent {
                        t.plan_silent(components::span(t, now.seconds_since(machine.seen_at)))
                    } else {
                        t.plan_ready().to_owned()
                    },
                ),
                rows: with_trends(t, machine, &trends),
            })
            .collect(),
        legend: legend
            .into_iter()
            .map(|(name, sum)| Legend {
                hue: if name == t.plan_others() {
                    8
                } else {
                    components::hue(&name)
                },
                share: presenter::share(CpuShare(sum)),
                name,
            })
            .collect(),
        recent: list
            .items
            .iter()
            .map(|session| {
                let (tone, state) = presenter::state(t, session);
                RecentSession {
                    hue: components::hue(session.owner.name.as_str()),
                    href: format!("/sessions/{}", session.id),
                    name: session.name.to_string(),
                    facts: format!(
                        "{} · {}",
                        session.image,
                        presenter::asked(t, &session.resources, devices.policy)
                    ),
                    tone,
                    state: state.to_owned(),
                }
            })
            .collect(),
        events: seen
            .recent
            .iter()
            .filter_map(|event| {
                let subject = names.get(&event.object)?;
                let (tone, what) = presenter::happening(t, &event.code)?;
                Some(OverviewEvent {
                    when: visit.clock.minute(event.at),
                    tone,
                    subject: subject.clone(),
                    what: what.to_owned(),
                    who: event.actor.clone(),
                })
            })
            .take(SHOWN)
            .collect(),
        waiting: queue
            .iter()
            .take(SHOWN)
            .map(
                |WaitingView {
                     session,
                     why: answer,
                 }| WaitingRow {
                    hue: components::hue(session.owner.name.as_str()),
                    href: format!("/sessions/{}", session.id),
                    name: session.name.to_string(),
                    since: components::span(t, now.seconds_since(session.created_at)),
                    why: presenter::sentence(t, &visit.clock, answer),
                    hint: answer
                        .eta
                        .as_ref()
                        .map(|_| presenter::eta(t, &visit.clock, answer, now)),
                },
            )
            .collect(),
        attention: open_installation(t, wizard::open_place(console, caller).await)
            .into_iter()
            .chain(attention(t, &seen, &warnings))
            .collect(),
    })
}

/// Sessions whose measurements are added up for the small charts. More would make a look cost more than the
/// picture is worth; then the rows have none.
const MEASURED: usize = 32;
/// Points of a small chart, and the milliseconds each stands for.
const POINTS: usize = 36;
const POINT: i64 = 5_000;

/// Cores and bytes in use on each machine over the last three minutes, as far as the caller may know.
pub(super) type Trends = std::collections::BTreeMap<rules::names::NodeId, Vec<(f64, f64)>>;

pub(super) async fn trends(
    server: &Server,
    caller: &Caller,
    seen: &Overview,
    now: Timestamp,
) -> Result<Trends, Failure> {
    let mut all = Trends::new();
    let known = |machine: &NodeOverview| {
        machine
            .slices
            .iter()
            .filter_map(|slice| slice.id)
            .collect::<Vec<_>>()
    };
    if seen
        .machines
        .iter()
        .map(|machine| known(machine).len())
        .sum::<usize>()
        > MEASURED
    {
        return Ok(all);
    }
    let begin = now.as_millis() - POINT * POINTS as i64;
    for machine in &seen.machines {
        let mut sums = vec![(0.0, 0.0); POINTS];
        let mut any = false;
        for session in known(machine) {
            let since = Some(Timestamp::from_millis(begin));
            let samples = match sessions::samples(server, caller, &session.to_string(), since).await
            {
                // It was removed since it was listed.
                Err(Failure::Refusal(refusal)) if refusal.kind == RefusalKind::NotFound => continue,
                read => read?,
            };
            // Several samples of one session may fall on one point; the last one stands.
            let mut last: Vec<Option<(f64, f64)>> = vec![None; POINTS];
            for sample in samples {
                let point = usize::try_from((sample.at.as_millis() - begin) / POINT).unwrap_or(0);
                last[point.min(POINTS - 1)] = Some((sample.cpu, sample.memory.0 as f64));
                any = true;
            }
            let mut before = (0.0, 0.0);
            for (sum, point) in sums.iter_mut().zip(last) {
                before = point.unwrap_or(before);
                sum.0 += before.0;
                sum.1 += before.1;
            }
        }
        if any {
            all.insert(machine.id, sums);
        }
    }
    Ok(all)
}

fn with_trends(t: Text, machine: &NodeOverview, trends: &Trends) -> Vec<BarRow> {
    let [mut cpu, mut memory] = presenter::racks(t, machine, None);
    if let Some(points) = trends.get(&machine.id) {
        let percent = |part: f64, whole: f64| f64::from(components::percent(part, whole));
        let of_cpu: Vec<f64> = points
            .iter()
            .map(|(cores, _)| percent(*cores, machine.cpu.as_f64()))
            .collect();
        let of_memory: Vec<f64> = points
            .iter()
            .map(|(_, bytes)| percent(*bytes, machine.memory.0 as f64))
            .collect();
        let label =
            |what, values: &[f64]| t.plan_trend(what, values.last().copied().unwrap_or_default());
        cpu.trend = components::trend(&of_cpu, "ci", &label(t.plan_cpu(), &of_cpu));
        memory.trend = components::trend(&of_memory, "ca", &label(t.plan_memory(), &of_memory));
    }
    vec![cpu, memory]
}

fn machine_line(t: Text, seen: &Overview) -> String {
    let cpu: CpuShare = seen.machines.iter().map(|machine| machine.cpu).sum();
    let memory: Bytes = seen.machines.iter().map(|machine| machine.memory).sum();
    t.overview_machine_line(cpu, components::size(memory.0))
}

fn figures(t: Text, seen: &Overview, live: u64, devices: &[Gpu], now: Timestamp) -> Vec<Figure> {
    let cpu: CpuShare = seen.machines.iter().map(|machine| machine.cpu).sum();
    let cpu_used: CpuShare = seen.machines.iter().map(|machine| machine.cpu_used).sum();
    let cpu_busy: f64 = seen
        .machines
        .iter()
        .filter_map(|machine| machine.cpu_busy)
        .sum();
    let memory: Bytes = seen.machines.iter().map(|machine| machine.memory).sum();
    let memory_used: Bytes = seen
        .machines
        .iter()
        .map(|machine| machine.memory_used)
        .sum();
    let memory_busy: Bytes = seen
        .machines
        .iter()
        .filter_map(|machine| machine.memory_busy)
        .sum();
    let largest = seen
        .machines
        .iter()
        .map(|machine| machine.memory.saturating_sub(machine.memory_used))
        .max()
        .unwrap_or_default();
    let busy = components::percent(cpu_busy, cpu.as_f64());
    let figure = |name, value: String, of: String, tone, percent, note: String| Figure {
        name,
        value,
        of,
        tone,
        percent,
        note,
    };
    let mut all = vec![
        figure(
            t.overview_cpu_given(),
            presenter::share(cpu_used),
            t.common_of_cores(cpu),
            "",
            components::percent(cpu_used.as_f64(), cpu.as_f64()),
            t.overview_cpu_note(live),
        ),
        figure(
            t.overview_cpu_busy(),
            format!("{busy}%"),
            t.common_of_cores(cpu),
            "a",
            busy,
            t.overview_busy_note(presenter::share(cpu.saturating_sub(cpu_used))),
        ),
        figure(
            t.overview_memory_given(),
            components::part_of(memory_used.0, memory.0),
            t.common_of(components::size(memory.0)),
            "",
            components::percent(memory_used.0 as f64, memory.0 as f64),
            t.overview_memory_note(components::size(largest.0)),
        ),
        figure(
            t.overview_memory_used(),
            components::part_of(memory_busy.0, memory.0),
            t.common_of(components::size(memory.0)),
            "a",
            components::percent(memory_busy.0 as f64, memory.0 as f64),
            t.overview_memory_used_note(components::percent(
                memory_busy.0 as f64,
                memory_used.0 as f64,
            )),
        ),
        figure(
            t.overview_running(),
            seen.counts.running.to_string(),
            t.overview_of_live(live),
            "o",
            components::percent(seen.counts.running as f64, live as f64),
            t.overview_running_own(seen.own.running),
        ),
        figure(
            t.overview_waiting(),
            seen.counts.pending.to_string(),
            t.overview_sessions_word(seen.counts.pending),
            "w",
            components::percent(
                seen.counts.pending as f64,
                (seen.counts.pending + live) as f64,
            ),
            t.overview_ended_note(seen.counts.ended, seen.counts.failed),
        ),
    ];
    if !devices.is_empty() {
        // Where there are devices they matter most; what is busy of the rest has its rows below.
        all.remove(3);
        all.remove(1);
        let given: GpuShare = devices.iter().map(|gpu| gpu.share_used).sum();
        let largest = devices.iter().map(|gpu| gpu.share_free).max();
        let memory: Bytes = devices.iter().map(|gpu| gpu.memory).sum();
        let used: Bytes = devices.iter().map(|gpu| gpu.memory_used).sum();
        let block = devices.iter().map(|gpu| gpu.memory_free).max();
        all.insert(
            0,
            figure(
                t.gpu_figure(),
                gpus::share(given),
                t.common_of(devices.len()),
                "a",
                components::percent(given.as_f64(), devices.len() as f64),
                t.gpu_figure_free(gpus::share(largest.unwrap_or_default())),
            ),
        );
        all.insert(
            1,
            figure(
                t.gpu_figure_memory(),
                components::part_of(used.0, memory.0),
                t.common_of(components::size(memory.0)),
                "a",
                components::percent(used.0 as f64, memory.0 as f64),
                t.gpu_figure_memory_note(components::size(block.unwrap_or_default().0)),
            ),
        );
        let busy: Vec<f64> = devices
            .iter()
            .filter_map(|gpu| Some(f64::from(gpu.doing?.busy_percent?)))
            .collect();
        if !busy.is_empty() {
            // In the place of how many run, which the menu tells as well.
            all.remove(4);
            let percent = components::percent(busy.iter().sum(), busy.len() as f64 * 100.0);
            let note = match gpus::idle_share(devices, now) {
                GpuShare::ZERO => t.gpu_figure_none_idle().to_owned(),
                idle => t.gpu_figure_idle(gpus::share(idle)),
            };
            let of = t.gpu_figure_busy_of(busy.len() as u64);
            let value = format!("{percent}%");
            all.insert(
                1,
                figure(t.gpu_figure_busy(), value, of, "a", percent, note),
            );
        }
    }
    all
}

/// The way back into an installation that was left.
fn open_installation(t: Text, place: Option<&str>) -> Option<Attention> {
    place.map(|href| Attention {
        icon: "list-ordered",
        tone: "dim",
        title: t.wizard_title().to_owned(),
        text: t.wizard_open().to_owned(),
        href: Some(href.to_owned()),
    })
}

fn attention(t: Text, seen: &Overview, warnings: &[DiagnosticCheck]) -> Vec<Attention> {
    let mut all: Vec<Attention> = warnings
        .iter()
        .map(|warning| {
            let noun = warning.code.split('.').next().unwrap_or_default();
            let (title, href) = match noun {
                "certificate" | "tls" => (t.tls_title(), Some("/system/tls".to_owned())),
                "clock" => (t.attention_clock(), None),
                "state" | "node" => (t.attention_state(), None),
                _ => (t.attention_disk(), None),
            };
            Attention {
                icon: "triangle-alert",
                tone: "warn",
                title: title.to_owned(),
                text: codes::notice(t, &warning.code, &warning.text, &warning.hint),
                href,
            }
        })
        .collect();
    for machine in &seen.machines {
        all.extend(machine.problems.iter().map(|problem| Attention {
            icon: "triangle-alert",
            tone: "warn",
            title: machine.name.clone(),
            text: codes::reason(t, problem),
            href: None,
        }));
    }
    all.extend(seen.findings.iter().map(|finding| Attention {
        icon: "circle-x",
        tone: "bad",
        title: finding.code.to_string(),
        text: codes::notice(t, &finding.code, &finding.text, ""),
        href: None,
    }));
    all.truncate(SHOWN);
    all
}
