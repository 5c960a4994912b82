//! `/`: the machine at a glance.

use std::sync::Arc;

use api::gpus::Gpu;
use api::history::HistoryRange;
use api::sessions::{ListQuery, WaitingView};
use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::permissions::{Permission, own, reach};
use rules::refusal::RefusalKind;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use server::Failure;
use server::access::Caller;
use server::actions::attention;
use server::actions::gpus as devices;
use server::actions::history::{self, RecentUse};
use server::actions::journal;
use server::actions::sessions::{self, NodeOverview, Overview};

use super::attention as words;
use super::authentication::PageCaller;
use super::components::{self, BarRow};
use super::gpus::{By, FloorPlanQuery};
use super::history::HistoryView;
use super::hues::Hues;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{
    PagesContext, event_words, gpus, layout, live as stream, presenter, responses, wizard,
};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/overview.html", blocks = ["kpis", "plan", "key", "legend", "rows", "recent", "events", "waiting", "attention"])]
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
    /// The sessions on the plan, and how many there are.
    pub rows: Vec<FloorPlanRow>,
    pub rows_total: u64,
    /// Given and in use over the day.
    pub view: Arc<HistoryView>,
    pub ranges: Vec<(String, &'static str, bool)>,
    pub recent: Vec<RecentSession>,
    /// How many sessions ended today, and how.
    pub ended: String,
    pub events: Vec<OverviewEvent>,
    pub waiting: Vec<WaitingRow>,
    /// Said where none waits: of whose sessions.
    pub waiting_none: &'static str,
    /// `5 of 202 sessions`; empty where all are shown.
    pub waiting_shown: String,
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

/// One session on the floor plan.
pub struct FloorPlanRow {
    pub hue: u8,
    pub href: String,
    pub name: String,
    pub facts: String,
}

pub struct Legend {
    pub hue: u8,
    pub name: String,
    /// Empty for an owner without a share of what is counted.
    pub share: String,
    /// Where owners stand that have no place here; None for one owner.
    pub href: Option<&'static str>,
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
    match whole(&console, &visit, &caller, By::asked(&asked.by)).await {
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
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("kpis", page.as_kpis().render().ok()?),
                ("plan", page.as_plan().render().ok()?),
                ("key", page.as_key().render().ok()?),
                ("legend", page.as_legend().render().ok()?),
                ("rows", page.as_rows().render().ok()?),
                ("recent", page.as_recent().render().ok()?),
                ("events", page.as_events().render().ok()?),
                ("waiting", page.as_waiting().render().ok()?),
                ("attention", page.as_attention().render().ok()?),
            ])
        }
    })
}

/// The page with the history of the day, which does not change while it is open.
async fn whole(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    by: By,
) -> Result<OverviewPage, Failure> {
    let mut page = read(console, visit, caller, by).await?;
    let range = HistoryRange::Day;
    let day = history::history(&console.server, caller, "site", range).await?;
    page.view = console.kept_day.first(visit.text, &visit.clock, &day);
    page.ranges = super::history::ranges(visit.text, "site", range);
    Ok(page)
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
    let queue = sessions::queue_page(&console.server, caller, 1).await?;
    // Who may not see the machine gets no warnings about it.
    let unwell = all_attention(console, caller).await?;
    let live =
        seen.counts.scheduled + seen.counts.preparing + seen.counts.running + seen.counts.stopping;
    let recent = history::recent(&console.server, caller).await?;
    let mut owners: Vec<(Option<String>, u32)> = Vec::new();
    // Hundredths of devices where there are any, else of cores. Who holds cores alone is on the plan as well.
    let cores = seen
        .machines
        .iter()
        .flat_map(|machine| &machine.slices)
        .map(|slice| match devices.items.is_empty() {
            true => (&slice.owner, slice.cpu.0),
            false => (&slice.owner, 0),
        });
    let shares = devices
        .items
        .iter()
        .flat_map(|gpu| &gpu.slices)
        .map(|slice| (&slice.owner, slice.share.0));
    let mut places = std::collections::BTreeMap::new();
    for (owner, hundredths) in shares.chain(cores) {
        let name = owner.as_ref().map(|owner| owner.name.to_string());
        let place = *places.entry(name.clone()).or_insert(owners.len());
        match owners.get_mut(place) {
            Some((_, sum)) => *sum += hundredths,
            None => owners.push((name, hundredths)),
        }
    }
    let newest_owners = list.items.iter().map(|session| session.owner.name.as_str());
    let waiting_owners = queue.launches.iter().map(|launch| &launch.first.session);
    let waiting_owners = waiting_owners.map(|session| session.owner.name.as_str());
    let hues = Hues::with(
        &seen.machines,
        newest_owners.chain(waiting_owners.take(SHOWN)),
    );
    let (rows, rows_total) = listed(t, &hues, &seen);
    let subject = &caller.subject;
    let only_own = reach(subject, Permission::SessionsRead).or_own(subject) == own(subject);
    let latest = journal::latest_of_sessions(&console.server, caller).await?;
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
        figures: figures(t, &seen, live, only_own, &devices.items, now),
        gpus: gpus::groups(
            t,
            &devices.items,
            &gpus::Drawing {
                by,
                recent: Some(&recent),
                hues: Some(&hues),
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
                title: t.plan_node(&machine.name, presenter::standing_of(t, machine, now)),
                rows: with_trends(
                    t,
                    &hues,
                    machine,
                    (seen.machines.len() == 1).then_some(&recent),
                ),
            })
            .collect(),
        legend: legend(t, &hues, owners),
        rows,
        rows_total,
        view: Arc::default(),
        ranges: Vec::new(),
        recent: list
            .items
            .iter()
            .map(|session| {
                let (tone, state) = presenter::state(t, session);
                RecentSession {
                    hue: hues.get(session.owner.name.as_str()),
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
        events: latest
            .items
            .iter()
            .filter_map(|event| {
                let subject = latest.names.get(&event.object)?;
                let (tone, what) = presenter::told_event(t, event)?;
                Some(OverviewEvent {
                    when: visit.clock.minute(event.at),
                    tone,
                    subject: subject.clone(),
                    what: what.to_owned(),
                    who: event_words::actor(t, event),
                })
            })
            .take(SHOWN)
            .collect(),
        waiting_none: match only_own {
            true => t.waiting_none_own(),
            false => t.waiting_none(),
        },
        waiting_shown: shown_of(t, &queue),
        waiting: queue
            .launches
            .iter()
            .take(SHOWN)
            .map(|launch| &launch.first)
            .map(
                |WaitingView {
                     session,
                     why: answer,
                 }| WaitingRow {
                    hue: hues.get(session.owner.name.as_str()),
                    href: format!("/sessions/{}", session.id),
                    name: session.name.to_string(),
                    since: components::span(t, now.seconds_since(session.created_at)),
                    why: presenter::sentence(t, &visit.clock, answer),
                    hint: presenter::outlook(t, &visit.clock, answer, now),
                },
            )
            .collect(),
        ended: t.overview_ended_note(seen.counts.ended, seen.counts.failed),
        attention: open_installation(t, wizard::open_place(console, caller).await)
            .into_iter()
            .chain(unwell_rows(t, &unwell))
            .collect(),
    })
}

/// How many of those that wait the card shows; empty where it shows all.
fn shown_of(t: Text, queue: &sessions::QueueView) -> String {
    let launches = queue.launches.iter().take(SHOWN);
    let shown: usize = launches.map(|launch| launch.replicas).sum();
    match shown < queue.sessions {
        true => t.queue_count_of(shown as u64, queue.sessions as u64),
        false => String::new(),
    }
}

/// CPU and memory of one machine, with what was in use over the last minutes. That is known of the whole site, so
/// only where there is one machine.
fn with_trends(
    t: Text,
    hues: &Hues,
    machine: &NodeOverview,
    recent: Option<&RecentUse>,
) -> Vec<BarRow> {
    let [mut cpu, mut memory] = presenter::racks(t, hues, machine, None);
    let trend = |what, values: &[f64], whole: f64, hue| {
        let parts = values.iter().map(|value| value / whole.max(1.0) * 100.0);
        let parts: Vec<f64> = parts.collect();
        let now = components::percent(values.last().copied().unwrap_or_default(), whole);
        components::trend(&parts, hue, &t.plan_trend(what, now))
    };
    if let Some(recent) = recent {
        let cores = machine.cpu.as_f64();
        cpu.trend = trend(t.plan_cpu(), &recent.cpu, cores, "ci");
        memory.trend = trend(
            t.plan_memory(),
            &recent.memory,
            machine.memory.0 as f64,
            "ca",
        );
    }
    vec![cpu, memory]
}

/// Owners in the legend; the others are summed. Higher: colours repeat. There are seven.
const LEGEND: usize = 7;

/// What each owner holds, most first, and what the others hold together.
fn legend(t: Text, hues: &Hues, mut owners: Vec<(Option<String>, u32)>) -> Vec<Legend> {
    owners.sort_by(|(a_name, a), (b_name, b)| b.cmp(a).then_with(|| a_name.cmp(b_name)));
    let others = owners.split_off(owners.len().min(LEGEND));
    let mut all: Vec<Legend> = owners
        .into_iter()
        .map(|(name, sum)| Legend {
            hue: name.as_deref().map_or(8, |name| hues.get(name)),
            share: match sum {
                0 => String::new(),
                sum => presenter::share(CpuShare(sum)),
            },
            href: None,
            name: name.unwrap_or_else(|| t.plan_others().to_owned()),
        })
        .collect();
    if !others.is_empty() {
        all.push(Legend {
            hue: 8,
            share: presenter::share(CpuShare(others.iter().map(|(_, sum)| sum).sum())),
            href: Some("/sessions"),
            name: t.plan_legend_others(others.len() as u64),
        });
    }
    all
}

/// Sessions in the list beneath the plan; the list of sessions has the rest. Higher: the page grows.
const LISTED: usize = 40;

/// Everything on the plan that the reader may open, the largest first: blocks too narrow to be hit stand here.
fn listed(t: Text, hues: &Hues, seen: &Overview) -> (Vec<FloorPlanRow>, u64) {
    let mut all: Vec<_> = seen
        .machines
        .iter()
        .flat_map(|machine| &machine.slices)
        .filter(|slice| slice.id.is_some())
        .collect();
    all.sort_by_key(|slice| {
        let gpu: GpuShare = slice.devices.iter().map(|part| part.share).sum();
        std::cmp::Reverse((gpu, slice.cpu, slice.memory))
    });
    let total = all.len() as u64;
    let rows = all.into_iter().take(LISTED).map(|slice| {
        let owner = slice.owner.as_ref().map_or("", |owner| owner.name.as_str());
        let gpu: GpuShare = slice.devices.iter().map(|part| part.share).sum();
        let mut facts = vec![
            t.common_cores(slice.cpu),
            components::size(slice.memory.0),
            owner.to_owned(),
        ];
        if gpu > GpuShare::ZERO {
            facts.insert(0, presenter::gpu_amount(t, gpu));
        }
        FloorPlanRow {
            hue: hues.get(owner),
            href: slice
                .id
                .map_or_else(String::new, |id| format!("/sessions/{id}")),
            name: slice.name.clone().unwrap_or_default(),
            facts: facts.join(" · "),
        }
    });
    (rows.collect(), total)
}

fn machine_line(t: Text, seen: &Overview) -> String {
    let cpu: CpuShare = seen.machines.iter().map(|machine| machine.cpu).sum();
    let memory: Bytes = seen.machines.iter().map(|machine| machine.memory).sum();
    t.overview_machine_line(cpu, components::size(memory.0))
}

/// `only_own`: the reader sees no sessions but their own, so the counts are of these.
fn figures(
    t: Text,
    seen: &Overview,
    live: u64,
    only_own: bool,
    devices: &[Gpu],
    now: Timestamp,
) -> Vec<Figure> {
    let of_own = |own: u64| match only_own {
        true => t.overview_own_alone().to_owned(),
        false => t.overview_running_own(own),
    };
    let cpu: CpuShare = seen.machines.iter().map(|machine| machine.cpu).sum();
    let cpu_room: CpuShare = seen.machines.iter().map(|machine| machine.cpu_room).sum();
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
            t.common_of_cores(cpu_room),
            "",
            components::percent(cpu_used.as_f64(), cpu_room.as_f64()),
            t.overview_cpu_note(seen.holding),
        ),
        figure(
            t.overview_cpu_busy(),
            format!("{busy}%"),
            t.common_of_cores(cpu),
            "a",
            busy,
            t.overview_busy_note(presenter::share(cpu_room.saturating_sub(cpu_used))),
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
            of_own(seen.own.running),
        ),
        figure(
            t.overview_waiting(),
            t.overview_sessions_n(seen.counts.pending),
            String::new(),
            "w",
            components::percent(
                seen.counts.pending as f64,
                (seen.counts.pending + live) as f64,
            ),
            of_own(seen.own.waiting),
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
                GpuShare::ZERO if given == GpuShare::ZERO => t.gpu_figure_none_given().to_owned(),
                GpuShare::ZERO => t.gpu_figure_none_idle().to_owned(),
                idle => t.gpu_figure_idle(presenter::gpu_amount(t, idle)),
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

/// What needs attention; nothing for callers who may not know.
async fn all_attention(
    console: &PagesContext,
    caller: &Caller,
) -> Result<Arc<attention::AttentionList>, Failure> {
    match attention::attention(&console.server, caller).await {
        Err(Failure::Refusal(refusal)) if refusal.kind == RefusalKind::Denied => Ok(Arc::default()),
        read => read,
    }
}

/// The first of what needs attention, and how many there are beyond them.
fn unwell_rows(t: Text, all: &attention::AttentionList) -> Vec<Attention> {
    let rows = words::rows(t, all).into_iter().map(|row| Attention {
        icon: row.icon,
        tone: row.tone,
        title: row.title,
        text: row.text,
        href: row.href,
    });
    let mut rows: Vec<Attention> = rows.collect();
    let beyond = rows.len().saturating_sub(SHOWN);
    rows.truncate(SHOWN);
    if beyond > 0 {
        rows.push(Attention {
            icon: "ellipsis",
            tone: "dim",
            title: t.attention_more(beyond),
            text: String::new(),
            href: Some("/system/checks".to_owned()),
        });
    }
    rows
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_names_seven_and_sums_the_others() {
        let owners = |count: u32| {
            let one = |number| (Some(format!("user{number:02}")), 100 + number);
            (0..count).map(one).collect::<Vec<_>>()
        };
        let told = |owners| {
            let legend = legend(Text::default(), &Hues::default(), owners);
            let words = legend
                .iter()
                .map(|one| format!("{} {}", one.name, one.share));
            (words.collect::<Vec<_>>(), legend.last().map(|one| one.hue))
        };
        let (words, _) = told(owners(7));
        assert_eq!(words.len(), 7);
        assert_eq!(words[0], "user06 1.06", "most first");
        let (words, hue) = told(owners(44));
        assert_eq!(words.len(), 8);
        // 37 users who hold 1.00 to 1.36.
        assert_eq!(words[7], "and 37 more owners 43.66");
        assert_eq!(hue, Some(8), "in the colour of nobody");
        // Whom the reader may not know is one owner without a name.
        let (words, hue) = told(vec![(None, 50)]);
        assert_eq!((words, hue), (vec!["others 0.50".to_owned()], Some(8)));
    }
}
