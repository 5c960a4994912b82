//! Turns what the rules say (sessions, rooms, explanations) into the pieces pages show: pills, racks, previews,
//! timelines, endings. Pure: same answer for the same input, nothing is asked for.

use std::collections::BTreeSet;

use api::events::EventView;
use api::gpus::Gpu;
use api::sessions::SessionView;
use rules::blocker::PlacementBlocker;
use rules::course::CourseState;
use rules::devices::WHOLE;
use rules::names::SessionId;
use rules::placement::explain::{Explanation, Verdict};
use rules::policy::SharePolicy;
use rules::reservation::ReservationState;
use rules::resources::Demand;
use rules::self_test::SelfTestStatus;
use rules::session::{Outcome, SessionKind, SessionState};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use server::actions::sessions::{NodeOverview, wait_word};

use super::components::{self, BarRow, Block, BlockKind, CheckRow, Fill, Markup};
use super::hues::Hues;
use super::joined_blocks::{self, OwnedBlock};
use super::request_context::{LocalClock, RequestContext};
use crate::doors::text::{Language, Text, codes};

/// The answer beside the form.
#[derive(Default)]
pub struct Preview {
    /// Class of the verdict: empty (starts now), `wait`, `never`.
    pub tone: &'static str,
    pub icon: &'static str,
    pub verdict: String,
    pub detail: String,
    /// `0.35 = 28 GiB, 46 of 132 SMs`, one for each device it would have.
    pub grants: Vec<String>,
    /// Devices here do not exist.
    pub simulated: bool,
    pub rows: Vec<BarRow>,
    pub checks: Vec<CheckRow>,
    /// When the first that waits starts, or why no time is known.
    pub outlook: Option<String>,
    pub what_if: Vec<String>,
    pub command_line: String,
    /// The words on the button.
    pub go: String,
    /// Launching would be refused; `detail` says why.
    pub blocked: bool,
}

/// What a waiting session waits for.
pub struct Wait {
    pub verdict: String,
    pub sentence: String,
    pub checks: Vec<CheckRow>,
    pub hints: Vec<String>,
}

/// One line of a timeline.
pub struct TimelineStep {
    pub when: String,
    pub tone: &'static str,
    pub what: String,
    pub took: String,
}

/// How a session ended.
pub struct SessionEnd {
    pub tone: &'static str,
    pub icon: &'static str,
    pub verdict: String,
    pub reason: String,
    pub facts: Vec<(String, String)>,
    pub last_lines: String,
}

/// How its state looks: class of the pill, and the word.
pub fn state(t: Text, session: &SessionView) -> (&'static str, &'static str) {
    match session.state {
        SessionState::Pending => ("warn", t.state_waiting()),
        SessionState::Scheduled | SessionState::Preparing => ("acc", t.state_preparing()),
        SessionState::Running if session.paused => ("", t.state_paused()),
        SessionState::Running if session.stands_still() => ("warn", t.state_paused()),
        SessionState::Running => ("ok", t.state_running()),
        SessionState::Stopping => ("warn", t.state_stopping()),
        SessionState::Ended => end_state(t, session.outcome, session.started_at.is_some()),
    }
}

/// How an end looks: class of the pill, and the word.
pub fn end_state(t: Text, outcome: Option<Outcome>, ran: bool) -> (&'static str, &'static str) {
    match outcome {
        Some(Outcome::Succeeded) => ("", t.state_finished()),
        Some(Outcome::Stopped) if !ran => ("", t.state_cancelled()),
        Some(Outcome::Stopped) => ("", t.state_stopped()),
        Some(Outcome::Failed | Outcome::Refused) => ("bad", t.state_failed()),
        Some(Outcome::Lost) | None => ("bad", t.state_lost()),
    }
}

/// Which of the two racks of a machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RackKind {
    Cpu,
    Memory,
}

/// CPU and memory of one machine: a block per session, then what is free. `mine` is the session whose page
/// this is.
pub fn racks(t: Text, hues: &Hues, machine: &NodeOverview, mine: Option<SessionId>) -> [BarRow; 2] {
    [RackKind::Cpu, RackKind::Memory].map(|of| rack(t, hues, machine, of, mine, None, false))
}

/// Whether GPUs of these machines do not exist: pages that speak of them say so once.
pub fn simulated(machines: &[NodeOverview]) -> bool {
    let mut devices = machines.iter().flat_map(|machine| &machine.devices);
    devices.any(|device| device.simulated)
}

/// What a launch would have of a machine.
#[derive(Clone, Copy)]
pub enum GhostSlice<'a> {
    /// It starts there.
    Gets(&'a Demand),
    /// It waits, and would need so much there.
    Needs(&'a Demand),
}

/// Whether all of a request waits, so that its slice is drawn as what it would need.
pub fn needs_room(answer: &Explanation) -> bool {
    let none = answer.replicas.is_none_or(|replicas| replicas.now == 0);
    answer.verdict == Verdict::Wait && none
}

/// The machine on which a request that waits is drawn: of those that could hold it when empty the one with the most
/// free memory.
pub fn needed_on<'a>(machines: &'a [NodeOverview], demand: &Demand) -> Option<&'a NodeOverview> {
    let could = machines
        .iter()
        .filter(|machine| could_hold(machine, demand));
    could.max_by_key(|machine| machine.memory.saturating_sub(machine.memory_used))
}

/// Whether a machine could hold a request when it is empty, by the sizes that its floor plan shows.
pub fn could_hold(machine: &NodeOverview, demand: &Demand) -> bool {
    let whole = machine.devices.iter().filter(|d| !d.is_partitioned());
    let mut parts = machine.devices.iter().flat_map(|d| &d.mig);
    machine.cpu >= demand.cpu
        && machine.memory >= demand.memory
        && whole.count() >= (demand.gpu.0 as usize).div_ceil(100)
        && demand
            .mig
            .is_none_or(|profile| parts.any(|part| part.profile == profile))
}

/// How a machine stands, in a word or two: `ready`, in maintenance, not heard from.
pub fn standing_of(t: Text, machine: &NodeOverview, now: Timestamp) -> String {
    match (machine.silent, machine.schedulable) {
        (true, _) => t.plan_silent(components::span(t, now.seconds_since(machine.seen_at))),
        (false, false) => t.node_maintenance().to_owned(),
        (false, true) => t.plan_ready().to_owned(),
    }
}

/// The same, small and without links; `ghost` is drawn as what is about to be launched.
pub fn small_racks(
    t: Text,
    hues: &Hues,
    machine: &NodeOverview,
    ghost: Option<GhostSlice<'_>>,
) -> [BarRow; 2] {
    [RackKind::Cpu, RackKind::Memory].map(|of| rack(t, hues, machine, of, None, ghost, true))
}

fn rack(
    t: Text,
    hues: &Hues,
    machine: &NodeOverview,
    of: RackKind,
    mine: Option<SessionId>,
    ghost: Option<GhostSlice<'_>>,
    small: bool,
) -> BarRow {
    let (whole, used) = match of {
        RackKind::Cpu => (u64::from(machine.cpu_room.0), u64::from(machine.cpu_used.0)),
        RackKind::Memory => (machine.memory.0, machine.memory_used.0),
    };
    let amount = |value: u64| match of {
        RackKind::Cpu => share(CpuShare(u32::try_from(value).unwrap_or(u32::MAX))),
        RackKind::Memory => components::size(value),
    };
    // Cores are busy, memory is used.
    let told = |percent: u8| match of {
        RackKind::Cpu => t.plan_percent_busy(percent),
        RackKind::Memory => t.plan_percent_used(percent),
    };
    let blocks: Vec<OwnedBlock> = machine
        .slices
        .iter()
        .map(|slice| {
            let (held, in_use) = match of {
                RackKind::Cpu => (
                    u64::from(slice.cpu.0),
                    slice.cpu_busy.map(|cores| cores * 100.0),
                ),
                RackKind::Memory => (
                    slice.memory.0,
                    slice.memory_busy.map(|bytes| bytes.0 as f64),
                ),
            };
            let busy = in_use.map(|in_use| components::percent(in_use, held as f64));
            let owner = slice.owner.as_ref().map(|owner| owner.name.as_str());
            let known = slice.id.filter(|_| !small);
            let block = Block {
                kind: match () {
                    () if slice.id.is_some() && slice.id == mine => BlockKind::Mine,
                    () if slice.paused => BlockKind::Paused,
                    () => BlockKind::Session,
                },
                name: slice
                    .name
                    .clone()
                    .unwrap_or_else(|| t.plan_others().to_owned()),
                note: match owner {
                    Some(owner) => format!("{} · {owner}", amount(held)),
                    None => amount(held),
                },
                hue: owner.map_or(8, |owner| hues.get(owner)),
                busy: if small { None } else { busy },
                fill: Fill::Foot,
                weight: held,
                href: known.map(|id| format!("/sessions/{id}")),
                label: match busy {
                    Some(busy) if !small => told(busy),
                    _ => String::new(),
                },
                partition: None,
            };
            OwnedBlock {
                block,
                owner: owner.unwrap_or_default().to_owned(),
                alone: false,
            }
        })
        .collect();
    let mut blocks = joined_blocks::join(t, whole, blocks, amount, told);
    let mut left = whole.saturating_sub(used);
    let wanted = |demand: &Demand| match of {
        RackKind::Cpu => u64::from(demand.cpu.0),
        RackKind::Memory => demand.memory.0,
    };
    if let Some(GhostSlice::Gets(demand)) = ghost {
        let wanted = wanted(demand);
        let fits = wanted.min(left);
        left -= fits;
        blocks.push(Block::plain(
            BlockKind::Ghost,
            t.preview_your_share(amount(wanted)),
            fits,
        ));
    }
    if left > 0 {
        blocks.push(Block::plain(
            BlockKind::Free,
            t.common_free(amount(left)),
            left,
        ));
    }
    let busy = match of {
        RackKind::Cpu => machine
            .cpu_busy
            .map(|cores| (cores * 100.0, format!("{cores:.1}"))),
        RackKind::Memory => machine
            .memory_busy
            .map(|bytes| (bytes.0 as f64, components::size(bytes.0))),
    };
    // What works is a part of the cores that there are, however often each is given.
    let there = match of {
        RackKind::Cpu => u64::from(machine.cpu.0),
        RackKind::Memory => machine.memory.0,
    };
    let mut row = BarRow {
        name: match of {
            RackKind::Cpu => t.plan_cpu().to_owned(),
            RackKind::Memory => t.plan_memory().to_owned(),
        },
        note: amount_whole(t, of, whole),
        blocks,
        busy: busy.as_ref().map_or_else(
            || "–".to_owned(),
            |(busy, _)| format!("{}%", components::percent(*busy, there as f64)),
        ),
        busy_word: match of {
            RackKind::Cpu => t.plan_busy().to_owned(),
            RackKind::Memory => t.plan_in_use().to_owned(),
        },
        trend: Markup::default(),
        figure: busy.map_or_else(|| "–".to_owned(), |(_, words)| words),
        figure_of: match of {
            RackKind::Cpu => t.common_of_cores(machine.cpu),
            RackKind::Memory => t.common_of(components::size(whole)),
        },
        figure_note: t.common_free(amount(left)),
        left: amount(left),
        closed: machine.silent || !machine.schedulable,
        hit: matches!(ghost, Some(GhostSlice::Gets(_))),
    };
    if let Some(GhostSlice::Needs(demand)) = ghost {
        let wanted = wanted(demand);
        // Where there is room, it waits for something else.
        if wanted > left {
            row.need(t.preview_would_need(amount(wanted)), wanted, whole);
        }
    }
    row
}

fn amount_whole(t: Text, of: RackKind, whole: u64) -> String {
    match of {
        RackKind::Cpu => t.common_cores(CpuShare(u32::try_from(whole).unwrap_or(u32::MAX))),
        RackKind::Memory => components::size(whole),
    }
}

/// CPU with two decimals, as racks write it: `6.00`, `0.50`.
pub fn share(cpu: CpuShare) -> String {
    format!("{}.{:02}", cpu.0 / 100, cpu.0 % 100)
}

/// The scheduler's answer as the launch page shows it. `demand` draws the ghost.
pub fn preview(
    visit: &RequestContext,
    machines: &[NodeOverview],
    answer: &Explanation,
    demand: &Demand,
    policy: SharePolicy,
    replicas: u64,
    now: Timestamp,
) -> Preview {
    let (t, clock) = (visit.text, &visit.clock);
    let waits = answer.verdict == Verdict::Wait;
    let go = match (replicas > 1, answer.replicas.map(|replicas| replicas.now)) {
        (false, _) if waits => t.launch_go_queue().to_owned(),
        (true, Some(0)) if waits => t.launch_go_queue_replicas(replicas),
        (true, _) => t.launch_go_replicas(replicas),
        (false, _) => t.launch_go().to_owned(),
    };
    let some = answer.replicas.filter(|some| some.now > 0 && some.wait > 0);
    let hues = Hues::on(machines);
    let needed = needed_on(machines, demand)
        .filter(|_| needs_room(answer))
        .map(|machine| machine.id);
    let (tone, icon, verdict) = match (answer.verdict, some) {
        (Verdict::Now, _) => ("", "circle-check", starts_now(t, machines, answer)),
        (Verdict::Never, _) => ("never", "circle-x", t.preview_never().to_owned()),
        (_, Some(some)) => (
            "wait",
            "hourglass",
            t.preview_some_start(u64::from(some.now), u64::from(some.wait)),
        ),
        (Verdict::Wait | Verdict::Settled, None) => {
            ("wait", "hourglass", t.preview_waits().to_owned())
        }
    };
    Preview {
        tone,
        icon,
        verdict,
        detail: match answer.verdict {
            Verdict::Now => match &answer.reason {
                Some(reason) if reason.code == rules::codes::PLACEMENT_BACKFILL => {
                    codes::reason(t, reason)
                }
                _ => t.preview_starts_now_detail().to_owned(),
            },
            _ if some.is_some() => t.preview_first_waits(sentence(t, clock, answer)),
            _ => sentence(t, clock, answer),
        },
        outlook: outlook(t, clock, answer, now),
        rows: machines
            .iter()
            .flat_map(|machine| {
                let chosen = answer
                    .rooms
                    .iter()
                    .any(|room| room.chosen && room.node == machine.id);
                let ghost = match (chosen, needed) {
                    (true, _) => Some(GhostSlice::Gets(demand)),
                    (false, Some(id)) if id == machine.id => Some(GhostSlice::Needs(demand)),
                    _ => None,
                };
                small_racks(t, &hues, machine, ghost)
            })
            .collect(),
        checks: checks(t, clock, answer),
        what_if: alternatives(t, answer, policy),
        command_line: String::new(),
        grants: Vec::new(),
        simulated: answer.simulated,
        go,
        blocked: answer.verdict == Verdict::Never,
    }
}

/// On which devices, or where there are none on which machine, it starts now.
fn starts_now(t: Text, machines: &[NodeOverview], answer: &Explanation) -> String {
    let node = answer.node.as_deref().unwrap_or_default();
    let numbers: Vec<String> = answer.devices.iter().map(|d| d.index.to_string()).collect();
    match (&numbers[..], machines.len() > 1) {
        ([], _) => t.preview_starts_now(node),
        (_, false) => t.preview_starts_now_gpu(numbers.join(", ")),
        (_, true) => t.preview_starts_now_gpu_of(numbers.join(", "), node),
    }
}

/// Why it waits or cannot run, in one sentence of the reader's language.
pub fn sentence(t: Text, clock: &LocalClock, answer: &Explanation) -> String {
    match (&answer.blockers[..], &answer.reason) {
        ([first, ..], _) => blocker(t, clock, first),
        ([], Some(reason)) => {
            let told = codes::reason(t, reason);
            // English: the whole sentence also says what would work.
            if told == reason.text {
                answer.sentence.clone()
            } else {
                told
            }
        }
        ([], None) => answer.sentence.clone(),
    }
}

/// The state of a course as users read it.
pub fn course_word(t: Text, state: CourseState) -> &'static str {
    match state {
        CourseState::Draft => t.courses_state_draft(),
        CourseState::Open => t.courses_state_open(),
        CourseState::Running => t.courses_state_running(),
        CourseState::Closed => t.courses_state_closed(),
        CourseState::Archived => t.courses_state_archived(),
    }
}

/// The state of a reservation as users read it.
pub fn reservation_word(t: Text, state: ReservationState) -> &'static str {
    match state {
        ReservationState::Asked => t.reservations_state_asked(),
        ReservationState::Booked => t.reservations_state_booked(),
        ReservationState::Warned => t.reservations_state_warned(),
        ReservationState::Active => t.reservations_state_active(),
        ReservationState::Over => t.reservations_state_over(),
        ReservationState::Cancelled => t.reservations_state_cancelled(),
        ReservationState::Released => t.reservations_state_released(),
        ReservationState::Refused => t.reservations_state_refused(),
        ReservationState::Expired => t.reservations_state_expired(),
    }
}

/// One thing in the way; a point in time is told in the reader's zone.
pub fn blocker(t: Text, clock: &LocalClock, blocker: &PlacementBlocker) -> String {
    let value = |name: &str| blocker.params.get(name).map_or("", String::as_str);
    let moment = |name: &str| Timestamp::parse(value(name)).ok();
    let told = match blocker.code.as_str() {
        rules::codes::START_LATER => moment("at").map(|at| t.queue_start_later(clock.date(at))),
        rules::codes::WINDOW_CLOSED => moment("at").map(|at| t.queue_window_opens(clock.date(at))),
        rules::codes::RESERVATION_ROOM => {
            moment("until").map(|until| t.reservations_room(value("node"), clock.date(until)))
        }
        _ => None,
    };
    told.unwrap_or_else(|| codes::blocker(t, blocker))
}

/// What was checked, with numbers; for a waiting one, what is in the way.
pub fn checks(t: Text, clock: &LocalClock, answer: &Explanation) -> Vec<CheckRow> {
    let node = answer.node.as_deref().unwrap_or_default();
    let mut all: Vec<CheckRow> = answer
        .checks
        .iter()
        .map(|check| {
            let name = match check.code.as_str() {
                "cpu" => t.preview_check_cpu(node),
                "memory" => t.preview_check_memory(node),
                "gpu" => t.gpu_check(check.device.unwrap_or_default()),
                "gpu-memory" => t.gpu_check_memory(check.device.unwrap_or_default()),
                "gpu-quota" => t.gpu_check_quota().to_owned(),
                "budget-project" => t.budgets_check_project().to_owned(),
                "budget-user" => t.budgets_check_user().to_owned(),
                _ => t.preview_check_image().to_owned(),
            };
            CheckRow::new(
                check.ok,
                name,
                t.preview_before_after(&check.before, &check.after, &check.limit),
            )
        })
        .collect();
    // The first blocker is the sentence above; the others follow here.
    all.extend(answer.blockers.iter().skip(1).map(|other| CheckRow {
        icon: "hourglass",
        tone: "warn",
        name: blocker(t, clock, other),
        value: String::new(),
    }));
    all
}

/// Nearby requests that would start now, and why no more of what is free would.
pub fn alternatives(t: Text, answer: &Explanation, policy: SharePolicy) -> Vec<String> {
    answer
        .alternatives
        .iter()
        .map(|other| {
            let less = t.preview_what_if_less(asked(t, &other.demand, policy));
            match &other.because {
                Some(why) => format!("{less} {}", codes::blocker(t, why)),
                None => less,
            }
        })
        .collect()
}

/// What a click sends to have a waiting session start now.
pub struct SmallerRequest {
    pub words: String,
    pub cpu: String,
    pub memory: String,
    pub gpu: String,
    /// The time limit, as it is typed; none where it stays.
    pub limit: Option<String>,
}

impl SmallerRequest {
    fn of(words: String, demand: &Demand, limit: Option<String>) -> Self {
        Self {
            words,
            cpu: demand.cpu.to_string(),
            memory: format!("{}b", demand.memory.0),
            gpu: demand.gpu.to_string(),
            limit,
        }
    }
}

/// The smaller requests of a session that would start now: with less, and with the time limit that backfill asks for. Less is
/// offered only to a session of one container.
pub fn smaller(
    t: Text,
    answer: &Explanation,
    session: &SessionView,
    policy: SharePolicy,
) -> Vec<SmallerRequest> {
    let less = answer.alternatives.first().map(|other| &other.demand);
    let less = less
        .filter(|_| session.containers == 1)
        .map(|demand| SmallerRequest::of(asked(t, demand, policy), demand, None));
    let shorter = answer.backfill_minutes().map(|minutes| {
        let words = t.queue_time_limit_of(components::exact_span(t, minutes * 60));
        SmallerRequest::of(words, &session.resources, Some(format!("{minutes}m")))
    });
    less.into_iter().chain(shorter).collect()
}

/// What a request asks for, devices first: `0.35 GPU, 4 cores, 16 GiB`.
pub fn asked(t: Text, demand: &Demand, policy: SharePolicy) -> String {
    let rest = t.where_given(demand.cpu, components::size(demand.memory.0));
    match devices(t, demand, policy) {
        Some(devices) => format!("{devices}, {rest}"),
        None => rest,
    }
}

/// What a request asks for of devices; none where it asks for none. The administrator's units stand beside
/// the share that users type, never instead of it.
pub fn devices(t: Text, demand: &Demand, policy: SharePolicy) -> Option<String> {
    match (demand.mig, demand.gpu) {
        (Some(profile), _) => Some(format!("MIG {profile}")),
        (None, GpuShare::ZERO) => None,
        (None, share) if policy.units > 1 => {
            Some(t.gpu_wanted_in(gpu_amount(t, share), policy.in_units(share)))
        }
        (None, share) => Some(gpu_amount(t, share)),
    }
}

/// `0.5 GPU`, `1 GPU`, `2.5 GPUs`: a part of one, or how many.
pub fn gpu_amount(t: Text, share: GpuShare) -> String {
    match share < WHOLE {
        true => t.gpu_wanted(share),
        false => t.gpu_wanted_whole(share),
    }
}

/// When it likely starts and what time limits alone tell, or, where no likely start is known, when it starts by time limits or
/// why no time is known; none where it does not wait.
pub fn outlook(
    t: Text,
    clock: &LocalClock,
    answer: &Explanation,
    now: Timestamp,
) -> Option<String> {
    let Some(likely) = likely(t, clock, answer, now) else {
        return outlook_by_limits(t, clock, answer, now);
    };
    // In words of its own: what time limits tell assumes that no session comes before it, so it may be earlier.
    Some(match &answer.eta {
        Some(eta) => {
            let by_limits = t.queue_limits_alone(clock.near(eta.at, now));
            format!("{likely} {by_limits}")
        }
        None => likely,
    })
}

/// When it likely starts, and what that rests on.
fn likely(t: Text, clock: &LocalClock, answer: &Explanation, now: Timestamp) -> Option<String> {
    let likely = answer.likely.as_ref()?;
    let when = clock.near(likely.at, now);
    Some(match likely.late {
        Some(late) => t.queue_likely(when, clock.near(late, now)),
        None => t.queue_likely_open(when),
    })
}

fn outlook_by_limits(
    t: Text,
    clock: &LocalClock,
    answer: &Explanation,
    now: Timestamp,
) -> Option<String> {
    let said = answer.outlook.as_ref()?;
    let when = answer.eta.as_ref().map(|eta| clock.near(eta.at, now));
    let session = said.params.get("session");
    let changes = said.params.get("at");
    let changes = changes.filter(|_| said.code == rules::codes::START_WINDOW_CHANGES);
    if let Some(Ok(at)) = changes.map(|at| Timestamp::parse(at)) {
        return Some(t.queue_window_changes(clock.near(at, now)));
    }
    Some(match (said.code.as_str(), when, session) {
        (rules::codes::START_EXPECTED, Some(when), Some(session)) => {
            t.queue_starts_by(when, session)
        }
        (rules::codes::START_EXPECTED_OTHER, Some(when), _) => t.queue_starts_by_others(when),
        (rules::codes::START_EXPECTED_AGAIN, Some(when), Some(session)) => {
            t.queue_starts_by_again(when, session)
        }
        (rules::codes::START_EXPECTED_AGAIN_OTHER, Some(when), _) => {
            t.queue_starts_by_again_others(when)
        }
        // The time itself is what it waits for, and stands there.
        (rules::codes::START_SCHEDULED, Some(_), _) => t.queue_starts_at().to_owned(),
        _ => codes::reason(t, said),
    })
}

/// How a waiting session stands in the queue, in a word or two.
pub fn queue_word(t: Text, answer: &Explanation) -> &'static str {
    match (wait_word(answer), answer.queue_position) {
        ("scheduled", _) => t.queue_scheduled(),
        ("depends", _) => t.queue_depends(),
        ("held", _) => t.queue_held(),
        ("never", _) => t.preview_never(),
        (_, Some(1)) => t.queue_next(),
        _ => t.queue_waiting(),
    }
}

/// What a waiting session's console area says.
pub fn wait(
    t: Text,
    clock: &LocalClock,
    answer: &Explanation,
    policy: SharePolicy,
    now: Timestamp,
) -> Wait {
    let mut hints: Vec<String> = outlook(t, clock, answer, now).into_iter().collect();
    hints.extend(alternatives(t, answer, policy));
    Wait {
        verdict: match answer.queue_position {
            Some(position) => t.queue_position(position),
            None => queue_word(t, answer).to_owned(),
        },
        sentence: sentence(t, clock, answer),
        checks: checks(t, clock, answer),
        hints,
    }
}

/// How a happening in a session's life looks and what it is called; none for what is no news to users.
pub fn happening(t: Text, code: &str) -> Option<(&'static str, &'static str)> {
    Some(match code {
        "session.accepted" => ("a", t.timeline_accepted()),
        "session.running" => ("", t.timeline_running()),
        "session.stopping" => ("w", t.timeline_stopping()),
        rules::codes::SESSION_PREEMPTED => ("w", t.timeline_preempted()),
        rules::codes::SESSION_ENDED => ("i", t.timeline_ended()),
        "session.paused" => ("i", t.timeline_paused()),
        "session.resumed" => ("", t.timeline_resumed()),
        rules::codes::SESSION_HELD => ("w", t.timeline_held()),
        rules::codes::SESSION_FOLDER_RIGHT_ENDED => ("w", t.events_folder_right_ended()),
        "session.folder-detached" => ("w", t.events_folder_detached()),
        rules::codes::SESSION_FOLDER_STUCK => ("w", t.events_folder_stuck()),
        rules::codes::SESSION_FOLDER_LEFT_OUT => ("w", t.events_folder_left_out()),
        "session.released" => ("", t.timeline_released()),
        "session.renamed" => ("i", t.timeline_renamed()),
        "session.resized" => ("i", t.timeline_limits()),
        "session.priority-set" => ("i", t.timeline_priority()),
        "session.share-confirmed" => ("i", t.gpu_confirmed()),
        rules::codes::SESSION_START_UP_FAILED => ("w", t.events_start_up_failed()),
        "session.gpu-warned" => ("w", t.gpu_over_warned()),
        "session.reservation-warned" => ("w", t.reservations_timeline_warned()),
        "session.course-warned" => ("w", t.courses_timeline_warned()),
        "session.idle-warned" => ("w", t.idle_timeline_warned()),
        "session.idle-kept" => ("a", t.idle_timeline_kept()),
        rules::codes::SESSION_IDLE => ("w", t.idle_timeline_idle()),
        "session.gpu-frozen" => ("w", t.gpu_over_frozen()),
        "session.gpu-stopped" => ("w", t.gpu_over_stopped()),
        "session.gpu-cleared" => ("", t.gpu_over_cleared()),
        "session.disk-paused" => ("w", t.disk_paused()),
        "session.disk-resumed" => ("", t.disk_resumed()),
        rules::codes::SESSION_RESTARTED | rules::codes::SESSION_RESTARTING => {
            ("a", t.timeline_restarted())
        }
        "session.document-forgotten" => ("i", t.settings_gone()),
        _ => return None,
    })
}

/// The tone of an end, by the reason that its event keeps: `b` where it failed or was lost.
pub fn end_tone(reason: &str) -> &'static str {
    match codes::stored_code(reason) {
        rules::codes::SESSION_SUCCEEDED
        | rules::codes::SESSION_STOPPED
        | rules::codes::SESSION_STOPPED_BEFORE_START
        | rules::codes::SESSION_MAX_RUNTIME
        | rules::codes::SESSION_TEST_OVER
        | rules::codes::SESSION_BUDGET_SPENT
        | rules::codes::SESSION_BUDGET_START
        | rules::codes::SESSION_DEVICE_PARTITIONED
        | rules::codes::SESSION_DEVICE_DRAINED
        | rules::codes::SESSION_PREEMPTED
        | rules::codes::SESSION_RESTARTED
        | rules::codes::SESSION_RESTARTING => "i",
        _ => "b",
    }
}

/// How an event looks and what it is called, an end by how it went; none for what is no news to users.
pub fn told_event(t: Text, event: &EventView) -> Option<(&'static str, &'static str)> {
    let (tone, what) = happening(t, &event.code)?;
    match event.code.as_str() {
        rules::codes::SESSION_ENDED => Some((end_tone(&event.after), what)),
        _ => Some((tone, what)),
    }
}

/// What an event says of before or after, in the reader's language: a state, or the sentence that was written then.
pub fn told(t: Text, words: &str) -> String {
    match state_told(t, words) {
        Some(state) => state,
        None if t.language == Language::English => words.to_owned(),
        None => codes::stored(t, words),
    }
}

/// A state of a session as pages call it; None for other words.
pub fn state_told(t: Text, words: &str) -> Option<String> {
    // A launch with sudo says so behind its state.
    if let Some(state) = words.strip_suffix(", sudo") {
        return state_told(t, state).map(|state| format!("{state}, sudo"));
    }
    let state = match SessionState::parse(words)? {
        SessionState::Pending => t.state_waiting(),
        SessionState::Scheduled | SessionState::Preparing => t.state_preparing(),
        SessionState::Running => t.state_running(),
        SessionState::Stopping => t.state_stopping(),
        SessionState::Ended => t.timeline_ended(),
    };
    Some(state.to_owned())
}

/// One line of a timeline before its words are joined to how long it took.
struct DatedStep<'a> {
    at: Timestamp,
    code: &'a str,
    tone: &'static str,
    what: String,
}

/// The steps of one life, oldest first, each with how long it took until the next. How long it ran is by the same two
/// times as `end` tells it.
pub fn timeline(
    t: Text,
    clock: &LocalClock,
    session: &SessionView,
    events: &[EventView],
) -> Vec<TimelineStep> {
    let node = session.node.as_deref().unwrap_or_default();
    // What was said in this life of it.
    let mut told_before = BTreeSet::new();
    let mut told: Vec<DatedStep<'_>> = events
        .iter()
        // Its connections have a table of their own.
        .filter(|event| !event.code.starts_with("session.connect"))
        // A container of several that came further is no step of the session.
        .filter(|event| {
            if begins(&event.code) {
                told_before.clear();
            }
            told_before.insert(event.after.as_str()) || event.code != "session.changed"
        })
        .map(|event| {
            let (tone, what) = match event.code.as_str() {
                // One that was placed before and waits again is nowhere.
                "session.scheduled" if node.is_empty() => {
                    ("a", t.timeline_placed_once().to_owned())
                }
                "session.scheduled" => ("a", t.timeline_placed(node)),
                "session.preparing" => ("a", t.timeline_prepared().to_owned()),
                _ => told_event(t, event).map_or_else(
                    || ("i", told(t, &event.after)),
                    |(tone, what)| (tone, what.to_owned()),
                ),
            };
            DatedStep {
                at: event.at,
                code: &event.code,
                tone,
                what,
            }
        })
        .collect();
    let ran = session.started_at.zip(session.ended_at);
    let end = told
        .iter()
        .rposition(|one| one.code == rules::codes::SESSION_ENDED);
    if let (Some((start, _)), Some(end)) = (ran, end) {
        let mut life = told[..end].iter().rev().take_while(|one| !begins(one.code));
        let seen = life.any(|one| one.code == RUNNING);
        // A command that is over before its node reports is never seen to run.
        if !seen && let Some(before) = told[..end].last() {
            let running = DatedStep {
                at: start.max(before.at),
                code: RUNNING,
                tone: "",
                what: t.timeline_running().to_owned(),
            };
            told.insert(end, running);
        }
    }
    let last_run = told.iter().rposition(|one| one.code == RUNNING);
    (0..told.len())
        .map(|place| {
            let (step, next) = (&told[place], told.get(place + 1));
            let took = match (next, ran) {
                (Some(next), Some((start, end)))
                    if last_run == Some(place) && next.code == rules::codes::SESSION_ENDED =>
                {
                    Some(end.millis_since(start))
                }
                (Some(next), _) => Some(next.at.millis_since(step.at)),
                (None, _) => None,
            };
            TimelineStep {
                when: clock.second(step.at),
                tone: step.tone,
                what: step.what.clone(),
                took: took.map_or_else(String::new, |took| components::took(t, took)),
            }
        })
        .collect()
}

/// The event of a session that was seen to run.
const RUNNING: &str = "session.running";

/// Whether a life begins with an event: a launch, or one start more.
fn begins(code: &str) -> bool {
    matches!(
        code,
        "session.accepted"
            | rules::codes::SESSION_RESTARTED
            | rules::codes::SESSION_RESTARTING
            | rules::codes::SESSION_PREEMPTED
    )
}

/// How it ended: verdict, reason, figures. `last_lines` is the end of its log.
pub fn end(
    t: Text,
    session: &SessionView,
    peak_memory: Option<Bytes>,
    last_lines: String,
) -> SessionEnd {
    let reason = session.reason.as_ref();
    let out_of_memory =
        reason.is_some_and(|reason| reason.code == rules::codes::SESSION_OUT_OF_MEMORY);
    let (tone, icon, verdict) = match session.outcome {
        Some(Outcome::Succeeded) => ("", "circle-check", t.ended_finished().to_owned()),
        Some(Outcome::Stopped) if session.started_at.is_none() => {
            ("idle", "circle-stop", t.state_cancelled().to_owned())
        }
        Some(Outcome::Stopped) => ("idle", "circle-stop", t.ended_stopped().to_owned()),
        Some(Outcome::Failed) if out_of_memory => {
            ("never", "circle-x", t.ended_killed_memory().to_owned())
        }
        Some(Outcome::Failed) => (
            "never",
            "circle-x",
            session
                .exit_code
                .map_or_else(|| t.state_failed().to_owned(), |code| t.ended_failed(code)),
        ),
        Some(Outcome::Refused) => ("never", "circle-x", t.ended_could_not_start().to_owned()),
        Some(Outcome::Lost) | None => ("never", "circle-x", t.state_lost().to_owned()),
    };
    let mut facts = Vec::new();
    // Where it failed by itself, the heading has the code; what was stopped has that of the signal that was sent to it.
    let signalled = session.exit_code.is_some_and(|code| code > 128);
    let told = match session.outcome {
        Some(Outcome::Failed) => !out_of_memory,
        Some(Outcome::Stopped) => signalled,
        _ => false,
    };
    if let Some(code) = session.exit_code.filter(|_| !told) {
        facts.push((t.ended_exit().to_owned(), code.to_string()));
    }
    if let (Some(start), Some(end)) = (session.started_at, session.ended_at) {
        facts.push((
            t.ended_ran().to_owned(),
            components::took(t, end.millis_since(start)),
        ));
    }
    if let Some(peak) = peak_memory {
        facts.push((t.ended_peak_memory().to_owned(), components::size(peak.0)));
    }
    SessionEnd {
        tone,
        icon,
        verdict,
        reason: match reason {
            Some(_) if out_of_memory => {
                t.ended_killed_memory_lead(components::size(session.resources.memory.0))
            }
            Some(reason) if reason.code == rules::codes::SESSION_EXIT_CODE => {
                exit_lead(t, session.exit_code).to_owned()
            }
            Some(reason) => codes::reason(t, reason),
            None => String::new(),
        },
        facts,
        last_lines,
    }
}

/// What a shell means by an exit code of its own; empty for each other code.
fn exit_lead(t: Text, code: Option<i32>) -> &'static str {
    match code {
        Some(126) => t.ended_not_executable(),
        Some(127) => t.ended_no_command(),
        _ => "",
    }
}

/// `Interactive` or `Batch job`.
pub fn kind(t: Text, session: &SessionView) -> &'static str {
    match session.kind {
        SessionKind::Interactive => t.session_interactive(),
        SessionKind::Batch => t.session_batch(),
    }
}

/// The command that would launch this from a shell.
pub fn command_line(session: &LaunchWords<'_>) -> String {
    let mut line = String::from("fardel run");
    line.push_str(" -d");
    if session.kind == SessionKind::Interactive && !session.command.is_empty() {
        line.push_str(" --kind interactive");
    }
    let mut option = |name: &str, value: &str| {
        if !value.is_empty() {
            line.push_str(&format!(" {name} {}", quoted(value)));
        }
    };
    option("--name", session.name);
    option("--cpu", session.cpu);
    option("--mem", session.memory);
    for (name, value) in session.more {
        match value.as_str() {
            "" => line.push_str(&format!(" {name}")),
            value => line.push_str(&format!(" {name} {}", quoted(value))),
        }
    }
    line.push_str(&format!(" {}", quoted(session.image)));
    if !session.command.is_empty() {
        line.push_str(" --");
        for word in session.command {
            line.push_str(&format!(" {}", quoted(word)));
        }
    }
    line
}

/// What goes into a command line, as it was typed.
pub struct LaunchWords<'a> {
    pub kind: SessionKind,
    pub name: &'a str,
    pub image: &'a str,
    pub cpu: &'a str,
    /// With its unit, such as `8g`.
    pub memory: &'a str,
    /// Options and their values; a flag has none.
    pub more: &'a [(&'static str, String)],
    pub command: &'a [String],
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Tone and words for whether a card's driver has passed.
pub fn standing(t: Text, gpu: &Gpu) -> (&'static str, String) {
    match gpu.self_test {
        SelfTestStatus::None => ("no", t.self_test_none().to_owned()),
        SelfTestStatus::Untested => ("warn", t.self_test_untested().to_owned()),
        SelfTestStatus::Passed => ("ok", t.self_test_passed().to_owned()),
        SelfTestStatus::Failed => ("bad", t.self_test_failed().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use server::actions::sessions::HeldSlice;

    use super::*;

    #[test]
    fn gpus_are_counted_as_one_says_it() {
        let told = |hundredths| gpu_amount(Text::default(), GpuShare(hundredths));
        for (hundredths, words) in [
            (35, "0.35 GPU"),
            (50, "0.5 GPU"),
            (100, "1 GPU"),
            (250, "2.5 GPUs"),
            (400, "4 GPUs"),
        ] {
            assert_eq!(told(hundredths), words);
        }
        let policy = SharePolicy {
            units: 4,
            ..SharePolicy::default()
        };
        let demand = Demand {
            gpu: GpuShare(200),
            ..Demand::default()
        };
        let told = devices(Text::default(), &demand, policy);
        assert_eq!(told.as_deref(), Some("2 GPUs (8 units)"));
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("a-b_c:1.2"), "a-b_c:1.2");
        assert_eq!(quoted("echo hi; exit 7"), "'echo hi; exit 7'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_job_that_ran_has_a_row_for_it_and_both_places_tell_the_same_time() {
        let visit = RequestContext::of(
            &axum::http::HeaderMap::new(),
            &axum::http::Extensions::new(),
            "/".into(),
        );
        let t = visit.text;
        let session: SessionView = serde_json::from_value(serde_json::json!({
            "id": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f", "name": "a",
            "owner": {"id": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e40", "name": "kim"},
            "state": "ended", "desired": "run", "kind": "batch", "image": "host", "command": [],
            "env": {}, "labels": {}, "depends_on": [], "paused": false, "incarnation": 1,
            "resources": {"cpu": 0.1, "memory": 67_108_864, "shm": 1}, "devices": [],
            "created_at": "2026-11-22T10:00:00Z", "started_at": "2026-11-22T10:00:00.100Z",
            "ended_at": "2026-11-22T10:00:00.120Z", "outcome": "succeeded", "generation": 1,
        }))
        .expect("a session");
        let began = session.created_at;
        let event = |(code, millis): &(&str, i64)| EventView {
            sequence: 0,
            at: Timestamp::from_millis(began.as_millis() + millis),
            actor: "node".into(),
            topic: "sessions".into(),
            object: String::new(),
            code: (*code).into(),
            before: String::new(),
            after: String::new(),
        };
        let ended = rules::codes::SESSION_ENDED;
        let unseen = [
            ("session.accepted", 0),
            ("session.preparing", 50),
            (ended, 130),
        ];
        let seen = [
            ("session.accepted", 0),
            ("session.preparing", 50),
            (RUNNING, 122),
            (ended, 130),
        ];
        let ran = components::took(t, 20);
        for events in [&unseen[..], &seen[..]] {
            let events: Vec<EventView> = events.iter().map(event).collect();
            let steps = timeline(t, &visit.clock, &session, &events);
            assert_eq!(steps.len(), 4);
            assert_eq!(steps[2].what, t.timeline_running());
            assert_eq!(steps[2].took, ran);
        }
        // What several containers tell alike stands once.
        let alike = [
            ("session.accepted", 0),
            ("session.changed", 10),
            ("session.preparing", 50),
            ("session.changed", 60),
        ];
        let mut alike: Vec<EventView> = alike.iter().map(event).collect();
        for at in [1, 3] {
            alike[at].after = "Its place was found.".into();
        }
        assert_eq!(timeline(t, &visit.clock, &session, &alike).len(), 3);
        let facts = end(t, &session, None, String::new()).facts;
        assert!(
            facts.contains(&(t.ended_ran().to_owned(), ran)),
            "{facts:?}"
        );
    }

    #[test]
    fn an_end_has_the_colour_of_how_it_went() {
        for (reason, tone) in [
            ("Its command ended with 0.", "i"),
            ("It was stopped by mina.", "i"),
            ("It was stopped.", "i"),
            ("It reached its time limit.", "i"),
            ("It reached its maximum runtime.", "i"),
            ("Its command ended with 3.", "b"),
            ("It was killed at its memory limit of 64 MiB.", "b"),
            ("Its time limit was reached.", "b"),
            ("Its container is gone and left no exit record.", "b"),
            ("Its container could not be made: no room.", "b"),
        ] {
            assert_eq!(end_tone(reason), tone, "{reason}");
            let event = EventView {
                sequence: 1,
                at: Timestamp::default(),
                actor: "node".into(),
                topic: "sessions".into(),
                object: String::new(),
                code: rules::codes::SESSION_ENDED.into(),
                before: "running".into(),
                after: reason.into(),
            };
            let told = told_event(Text::default(), &event);
            assert_eq!(told.map(|(tone, _)| tone), Some(tone), "{reason}");
        }
    }

    #[test]
    fn what_others_hold_is_drawn_without_their_names() {
        let machine = NodeOverview {
            id: rules::names::NodeId(uuid::Uuid::nil()),
            name: "box".into(),
            seen_at: Timestamp::default(),
            silent: false,
            schedulable: true,
            host_environment: true,
            problems: Vec::new(),
            cpu: CpuShare(1600),
            cpu_room: CpuShare(1600),
            cpu_used: CpuShare(600),
            cpu_busy: None,
            memory: Bytes::gib(64),
            memory_used: Bytes::gib(16),
            memory_busy: None,
            devices: Vec::new(),
            cordoned: Default::default(),
            slices: vec![HeldSlice {
                id: None,
                name: None,
                owner: None,
                container: None,
                mine: false,
                state: SessionState::Running,
                paused: false,
                cpu: CpuShare(600),
                memory: Bytes::gib(16),
                devices: Vec::new(),
                cpu_busy: None,
                memory_busy: None,
                until: None,
            }],
        };
        let closed = NodeOverview {
            schedulable: false,
            ..machine.clone()
        };
        let words = [&machine, &closed]
            .map(|machine| standing_of(Text::default(), machine, Timestamp::default()));
        assert_eq!(words, ["ready", "In maintenance"]);
        let [cpu, memory] = racks(Text::default(), &Hues::default(), &machine, None);
        assert_eq!(
            cpu.blocks.iter().map(|b| b.weight).collect::<Vec<_>>(),
            [600, 1000]
        );
        assert!(cpu.blocks[0].href.is_none() && cpu.blocks[0].name == "others");
        assert_eq!(memory.left, "48 GiB");
        let wanted = Demand {
            cpu: CpuShare(200),
            ..Demand::default()
        };
        let needs = Some(GhostSlice::Needs(&wanted));
        let [roomy, _] = small_racks(Text::default(), &Hues::default(), &machine, needs);
        let is_drawn = roomy.blocks.iter().any(|b| b.kind == BlockKind::Needed);
        assert!(!is_drawn && !roomy.hit, "there is room for it");
        let [ghost, _] = small_racks(
            Text::default(),
            &Hues::default(),
            &machine,
            Some(GhostSlice::Gets(&wanted)),
        );
        let kinds: Vec<BlockKind> = ghost.blocks.iter().map(|b| b.kind).collect();
        assert_eq!(
            kinds,
            [BlockKind::Session, BlockKind::Ghost, BlockKind::Free]
        );
    }
}
