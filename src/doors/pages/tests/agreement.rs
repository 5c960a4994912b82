//! Floor plan, preview, queue page, session page and "why is it waiting" over generated worlds: the same numbers, and no
//! two sentences that contradict each other. Each world is of the real server, with machines that are played. What the
//! rules say of one world is in `rules::placement`; here are the pictures and words that are made of it.

use api::gpus::Gpu;
use api::sessions::{LaunchRequest, Resources};
use axum::http::{Extensions, HeaderMap};
use rules::messages::{Assignment, ContainerOrder};
use rules::names::{BootId, NodeId, UserId};
use rules::permissions::Subject;
use rules::placement::explain::{Explanation, Verdict};
use rules::policy::SharePolicy;
use rules::resources::{Capacity, Demand, Device};
use rules::session::{SessionKind, SessionState};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::users::Role;
use server::access::{Caller, Via};
use server::actions::sessions::{self, NodeOverview};
use server::actions::{gpus as devices, session_detail};
use server::simulation::Simulation;
use server::simulation::fake_node::{ContainerPlan, FakeNode, SimulatedMoment};

use super::super::components::{BarRow, BlockKind};
use super::super::floor_plan::FULL;
use super::super::gpus;
use super::super::hues::Hues;
use super::super::presenter::{self, Preview};
use super::super::request_context::RequestContext;

/// Worlds that are looked at: so many servers, so many moments of each.
const SERVERS: u64 = 100;
const MOMENTS: u32 = 10;

/// Numbers that look like chance and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).expect("31 bits") % most.max(1)
    }
}

struct Stage {
    numbers: Numbers,
    server: Simulation,
    nodes: Vec<(FakeNode, Option<Assignment>)>,
    users: Vec<Caller>,
    now: Timestamp,
}

fn caller(user: UserId, name: &str) -> Caller {
    Caller {
        subject: Subject {
            domain: rules::tenancy::DomainId::DEFAULT,
            user,
            grants: Role::User.grants(),
            scopes: None,
        },
        name: rules::names::UserName::parse(name).expect("letters"),
        language: String::new(),
        theme: String::new(),
        time_zone: String::new(),
        via: Via::LocalRoot,
        must_change_password: false,
        second_factor_due: None,
        source: None,
        request: String::new(),
    }
}

impl Stage {
    fn open(seed: u64) -> Stage {
        let mut numbers = Numbers(seed);
        let now = Timestamp::from_millis(1_800_000_000_000);
        let server = Simulation::open(now).expect("a server in memory");
        server.set_policy(SharePolicy {
            each: (numbers.below(3) == 0).then(|| GpuShare(100 + numbers.below(200))),
            ..SharePolicy::default()
        });
        let users = ["kim", "lee", "jo"].map(|name| {
            let user = server
                .user(name, now)
                .expect("an empty catalog takes users");
            caller(user, name)
        });
        let nodes = (0..=numbers.below(2) as u8).map(|n| {
            let devices = numbers.below(5);
            let capacity = Capacity {
                cpu: CpuShare(100 * (1 + numbers.below(16))),
                memory: Bytes::gib(u64::from(1 + numbers.below(64))),
                devices: (0..devices)
                    .map(|index| Device {
                        memory: Bytes::gib(80),
                        sms: 132,
                        uuid: format!("{n}-{index}"),
                        simulated: true,
                        ..Device::new(index, "H100")
                    })
                    .collect(),
                others: Vec::new(),
            };
            let id = NodeId::make(now, [n; 10]);
            let boot = BootId::make(now, [n; 10]);
            (
                FakeNode::new(id, &format!("node-{n}"), boot, capacity),
                None,
            )
        });
        let nodes = nodes.collect();
        Stage {
            numbers,
            server,
            nodes,
            users: users.into(),
            now,
        }
    }

    /// A second passes: nodes work and report, and the server decides.
    fn tick(&mut self) {
        self.now = self.now.plus_seconds(1);
        let now = SimulatedMoment::plain(self.now);
        self.server.set_clock(now);
        let mut reports = Vec::new();
        for (node, inbox) in &mut self.nodes {
            node.advance(now);
            if let Some(assignment) = inbox.take() {
                node.take(assignment);
            }
            node.tend(now, &mut |_: &ContainerOrder| ContainerPlan::default());
            node.advance(now);
            reports.push(node.report(now));
        }
        let decide = &rules::placement::decide;
        let prepared = self.server.prepare(now, &reports, decide).expect("a pass");
        for assignment in self.server.commit(prepared, now).expect("a commit") {
            let mut nodes = self.nodes.iter_mut();
            if let Some((_, inbox)) = nodes.find(|(node, _)| node.id == assignment.node) {
                *inbox = Some(assignment);
            }
        }
    }

    fn request(&mut self) -> LaunchRequest {
        let numbers = &mut self.numbers;
        let gpu = match numbers.below(6) {
            0..3 => 0,
            3 => 100,
            _ => 5 + numbers.below(90),
        };
        let limit = (numbers.below(2) == 0).then(|| u64::from(30 + numbers.below(600)));
        LaunchRequest {
            kind: SessionKind::Batch,
            command: vec!["true".to_owned()],
            resources: Resources {
                cpu: Some(CpuShare(10 + numbers.below(600))),
                memory: Some(Bytes::mib(u64::from(64 + numbers.below(8_000)))),
                gpu: Some(GpuShare(gpu)).filter(|gpu| *gpu > GpuShare::ZERO),
                ..Resources::default()
            },
            max_runtime_seconds: limit,
            start_at: (numbers.below(12) == 0).then(|| self.now.plus_seconds(120)),
            ..LaunchRequest::default()
        }
    }
}

fn visit() -> RequestContext {
    RequestContext::of(&HeaderMap::new(), &Extensions::new(), "/".into())
}

/// A bar of the floor plan fills its machine exactly, with what is held and what is free; gives what is free.
fn filled(row: &BarRow, whole: u64, context: &str) -> u64 {
    let widths = row.widths();
    let side = widths.iter();
    let side: Vec<_> = side
        .filter(|(block, _)| block.kind != BlockKind::Needed)
        .collect();
    let drawn: u16 = side.iter().map(|(_, width)| width).sum();
    assert_eq!(drawn, FULL, "{context}, {}: {widths:?}", row.name);
    let weights: u64 = side.iter().map(|(block, _)| block.weight).sum();
    assert_eq!(weights, whole, "{context}, {}", row.name);
    let over = widths
        .iter()
        .filter(|(block, _)| block.kind == BlockKind::Needed);
    for (block, width) in over {
        assert!(
            block.weight <= whole && (1..=FULL).contains(width),
            "{context}"
        );
    }
    of_kind(row, BlockKind::Free) + of_kind(row, BlockKind::Held)
}

fn of_kind(row: &BarRow, kind: BlockKind) -> u64 {
    let all = row.blocks.iter().filter(|block| block.kind == kind);
    all.map(|block| block.weight).sum()
}

/// The floor plan has the numbers of the machines, and those that the scheduler's answers speak of.
fn plan_agrees(seen: &[NodeOverview], all: &[Gpu], told: Option<&Explanation>, context: &str) {
    let t = visit().text;
    for machine in seen {
        let [cpu, memory] = presenter::racks(t, &Hues::default(), machine, None);
        let free = (
            filled(&cpu, u64::from(machine.cpu_room.0), context),
            filled(&memory, machine.memory.0, context),
        );
        let room = told.map(|told| told.rooms.iter().find(|room| room.node == machine.id));
        let Some(room) = room else {
            continue;
        };
        let room = room.expect("every machine has its room");
        let left = room.cpu.saturating_sub(room.cpu_used);
        let left = (
            u64::from(left.0),
            room.memory.saturating_sub(room.memory_used).0,
        );
        assert_eq!(free, left, "{context}, {}", machine.name);
        for gpu in all.iter().filter(|gpu| gpu.node == machine.id) {
            let row = gpus::row(t, gpu, &gpus::Drawing::small());
            let free = filled(&row, 100, context);
            let device = room.devices.iter().find(|device| device.index == gpu.index);
            let told = device.expect("every device has its room").free;
            assert_eq!(free, u64::from(told.0), "{context}, {}", row.name);
            assert_eq!(free, u64::from(gpu.share_free.0), "{context}");
        }
    }
}

/// What the launch page shows of an answer is consistent in itself.
fn preview_agrees(
    preview: &Preview,
    told: &Explanation,
    seen: &[NodeOverview],
    demand: &Demand,
    context: &str,
) {
    let rows = preview.rows.iter();
    let kinds = |kind| rows.clone().map(move |row| of_kind(row, kind));
    let gets = kinds(BlockKind::Ghost).filter(|weight| *weight > 0).count();
    let needs = kinds(BlockKind::Needed)
        .filter(|weight| *weight > 0)
        .count();
    let wholes = seen
        .iter()
        .flat_map(|machine| [u64::from(machine.cpu.0), machine.memory.0]);
    let free: Vec<u64> = preview
        .rows
        .iter()
        .zip(wholes)
        .map(|(row, whole)| filled(row, whole, context))
        .collect();
    match told.verdict {
        Verdict::Now => {
            assert_eq!((preview.tone, gets, needs), ("", 2, 0), "{context}");
            let drawn: Vec<u64> = kinds(BlockKind::Ghost).filter(|w| *w > 0).collect();
            let wanted = [u64::from(demand.cpu.0), demand.memory.0];
            assert_eq!(drawn, wanted, "{context}");
            assert!(preview.outlook.is_none() && told.blockers.is_empty());
            assert!(!preview.blocked);
        }
        Verdict::Wait => {
            assert_eq!((preview.tone, gets), ("wait", 0), "{context}");
            // Drawn as needed is only what is not free.
            let wanted = [u64::from(demand.cpu.0), demand.memory.0];
            for ((row, free), wanted) in preview.rows.iter().zip(&free).zip(wanted.iter().cycle()) {
                let is_needed = of_kind(row, BlockKind::Needed) > 0;
                assert!(!is_needed || free < wanted, "{context}, {}", row.name);
            }
            assert!(preview.outlook.is_some() && !told.blockers.is_empty());
            assert!(!preview.blocked && !preview.verdict.is_empty());
        }
        Verdict::Never => assert!(preview.blocked && gets + needs == 0, "{context}"),
        Verdict::Settled => panic!("{context}: a request has no place"),
    }
}

/// The reasons that a session gives are true by the floor plan.
fn blockers_agree(told: &Explanation, demand: &Demand, seen: &[NodeOverview], context: &str) {
    for blocker in &told.blockers {
        let on = |machine: &&NodeOverview| {
            blocker.text.contains(&format!("{} ", machine.name))
                || blocker.text.contains(&format!("{};", machine.name))
        };
        let Some(machine) = seen.iter().find(on) else {
            continue;
        };
        let free = machine.cpu_room.saturating_sub(machine.cpu_used);
        let room = machine.memory.saturating_sub(machine.memory_used);
        match blocker.code.as_str() {
            rules::codes::CPU_SHORT => assert!(free < demand.cpu, "{context}: {blocker:?}"),
            rules::codes::MEMORY_SHORT => assert!(room < demand.memory, "{context}"),
            _ => {}
        }
    }
}

/// `fardel why` prints what the session's page says: the same reason first, every other reason, the same number, the
/// same start or why none is known, the same smaller requests.
fn command_agrees(
    told: &Explanation,
    said: &presenter::Wait,
    policy: SharePolicy,
    now: Timestamp,
    context: &str,
) {
    let visit = visit();
    let (t, clock) = (visit.text, &visit.clock);
    let printed = crate::doors::why_text(told);
    let lines: Vec<&str> = printed.lines().map(str::trim).collect();
    let context = format!("{context}: {printed}");
    let scheduled = told
        .blockers
        .iter()
        .any(|blocker| blocker.code == rules::codes::START_LATER);
    // A page tells a time in the reader's zone.
    if !scheduled {
        assert_eq!(lines[0], said.sentence, "{context}");
        for other in &told.blockers[1.min(told.blockers.len())..] {
            let shown = said.checks.iter().any(|check| check.name == other.text);
            let line = format!("- {} ({})", other.text, other.code);
            assert!(shown && lines.contains(&line.as_str()), "{context}");
        }
    }
    let number = told
        .queue_position
        .map(|number| format!("place in the queue: {number}"));
    let printed_number = lines
        .iter()
        .find(|line| line.starts_with("place in the queue"))
        .map(|line| (*line).to_owned());
    assert_eq!(printed_number, number, "{context}");
    let outlook = presenter::outlook(t, clock, told, now);
    match (&told.outlook, &told.eta) {
        (None, _) => assert!(outlook.is_none(), "{context}"),
        // Why no time is known is one sentence.
        (Some(reason), None) if told.likely.is_none() => {
            assert_eq!(outlook.as_deref(), Some(reason.text.as_str()), "{context}");
            assert!(lines.contains(&reason.text.as_str()), "{context}");
        }
        // A start that limits do not tell may be likely all the same.
        (Some(_), None) => assert!(outlook.is_some(), "{context}"),
        (Some(reason), Some(_)) => {
            let named = reason.params.get("session");
            let page = outlook.expect("a known start is told");
            assert!(!page.contains("No start time"), "{context}");
            let line = lines.iter().find(|line| line.contains(&reason.text));
            let line = line.expect("the start is printed");
            assert!(named.is_none_or(|name| page.contains(name) && line.contains(name)));
        }
    }
    let offered = presenter::alternatives(t, told, policy);
    let printed: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("instead: "))
        .collect();
    let figures = |words: &str| -> Vec<String> {
        let parts = words.split(|c: char| !(c.is_ascii_digit() || c == '.'));
        let parts = parts.map(|part| part.trim_matches('.').to_owned());
        parts.filter(|part| !part.is_empty()).collect()
    };
    assert_eq!(offered.len(), printed.len(), "{context}");
    for (page, command) in offered.iter().zip(printed) {
        // The command line names a share only where it is another one.
        let (page, command) = (figures(page), figures(command));
        assert!(page.ends_with(&command), "{context}: {offered:?}");
    }
}

/// Promise (Queue and scheduler): Floor plan, preview, queue, session page, "why is it waiting" and `fardel why` show the same numbers
/// of 1,000 worlds, no two of their sentences contradict, and what is drawn fills each machine exactly.
#[tokio::test]
async fn pages_agree_about_a_thousand_worlds() {
    let visit = visit();
    let (t, clock) = (visit.text, &visit.clock);
    let (mut starts, mut waits, mut refused, mut queued) = (0, 0, 0, 0);
    for seed in 0..SERVERS {
        let mut stage = Stage::open(seed);
        stage.tick();
        for moment in 0..MOMENTS {
            let context = format!("server {seed}, moment {moment}");
            let server = stage.server.server().clone();
            let root = server::access::local_root(&server);
            let request = stage.request();
            let user = stage.users[stage.numbers.below(3) as usize].clone();
            let seen = sessions::overview(&server, &root)
                .await
                .expect("an overview");
            let all = devices::list(&server, &root).await.expect("the devices");
            let demand = Demand {
                cpu: request.resources.cpu.unwrap_or_default(),
                memory: request.resources.memory.unwrap_or_default(),
                gpu: request.resources.gpu.unwrap_or_default(),
                ..Demand::default()
            };
            let queue = sessions::queue_page(&server, &root, 1)
                .await
                .expect("the queue");
            let mut numbers = Vec::new();
            for row in &queue.launches {
                let (session, told) = (&row.first.session, &row.first.why);
                let context = format!("{context}, {}: {told:?}", session.name);
                let id = session.id.to_string();
                let why = sessions::why(&server, &root, &id).await.expect("a session");
                let page = session_detail::read(&server, &root, &id).await;
                assert_eq!(&why, told, "why and queue: {context}");
                assert_eq!(page.expect("its page").why, why, "session page: {context}");
                let said = presenter::wait(t, clock, told, all.policy, stage.now);
                assert_eq!(said.sentence, presenter::sentence(t, clock, told));
                let number = told.queue_position;
                let word = number.map(|number| t.queue_position(number));
                assert!(word.is_none_or(|word| word == said.verdict), "{context}");
                blockers_agree(told, &demand_of(session), &seen.machines, &context);
                command_agrees(told, &said, all.policy, stage.now, &context);
                let planned = queue.plan.iter().find(|one| one.id == session.id);
                if let (Some(planned), Some(eta)) = (planned, &told.eta) {
                    assert_eq!(planned.from, eta.at, "plan and why: {context}");
                }
                numbers.extend(number);
                queued += 1;
            }
            assert!(numbers.is_sorted(), "{context}: {numbers:?}");
            let world = stage.server.world().expect("a world");
            let settled = world
                .sessions
                .iter()
                .find(|s| s.state() == SessionState::Running);
            let settled = settled.map(|s| rules::placement::explain_session(&world, s, stage.now));
            plan_agrees(&seen.machines, &all.items, settled.as_ref(), &context);
            let told = match sessions::preview(&server, &user, request.clone()).await {
                Ok(told) => told,
                Err(server::Failure::Refusal(refusal)) => {
                    // The launch says the same.
                    let launched = sessions::launch(&server, &user, request, None).await;
                    let Err(server::Failure::Refusal(same)) = launched else {
                        panic!("{context}: {refusal} and {launched:?}");
                    };
                    assert_eq!(same, refusal, "{context}");
                    refused += 1;
                    continue;
                }
                Err(fault) => panic!("{context}: {fault:?}"),
            };
            let preview = presenter::preview(
                &visit,
                &seen.machines,
                &told,
                &demand,
                all.policy,
                1,
                stage.now,
            );
            preview_agrees(&preview, &told, &seen.machines, &demand, &context);
            let launched = sessions::launch(&server, &user, request, None).await;
            let launched = launched.expect("what the preview let through");
            let id = launched.sessions[0].id;
            let why = sessions::why(&server, &user, &id.to_string()).await;
            let why = why.expect("it is there");
            assert_eq!(
                (why.verdict, why.queue_position, &why.blockers, &why.outlook),
                (
                    told.verdict,
                    told.queue_position,
                    &told.blockers,
                    &told.outlook
                ),
                "preview and why: {context}"
            );
            stage.tick();
            let row = stage.server.session(id).expect("a read").expect("its row");
            let placed = !row.is_pending();
            assert_eq!(placed, told.verdict == Verdict::Now, "{context}: {told:?}");
            match placed {
                true => starts += 1,
                false => waits += 1,
            }
            for _ in 0..stage.numbers.below(4) {
                stage.tick();
            }
        }
    }
    assert!(
        starts > 100 && waits > 100 && refused > 20 && queued > 300,
        "too tame: {starts} start, {waits} wait, {refused} refused, {queued} queued"
    );
}

/// The question before a restart says whether its place is kept, and the restart does what it says.
#[tokio::test]
async fn the_question_before_a_restart_says_what_becomes_of_the_place() {
    for maintenance in [false, true] {
        let mut stage = Stage::open(3);
        stage.tick();
        let server = stage.server.server().clone();
        let root = server::access::local_root(&server);
        let small = LaunchRequest {
            name: Some("nb".into()),
            resources: Resources {
                cpu: Some(CpuShare(10)),
                memory: Some(Bytes::mib(64)),
                ..Resources::default()
            },
            ..LaunchRequest::default()
        };
        let launched = sessions::launch(&server, &root, small, None).await;
        let session = launched.expect("there is room").sessions.remove(0);
        let id = session.id.to_string();
        for _ in 0..4 {
            stage.tick();
        }
        let running = sessions::get(&server, &root, &id)
            .await
            .expect("it is there");
        assert_eq!(running.state, SessionState::Running);
        let node = running.node.expect("a place");
        if maintenance {
            let set = server::actions::nodes::set_maintenance;
            for (node, _) in &stage.nodes {
                set(&server, &root, &node.name, true, "new disks")
                    .await
                    .expect("an administrator");
            }
        }
        let read = session_detail::read(&server, &root, &id)
            .await
            .expect("its page");
        let said = read.restart.map(|blocker| blocker.code);
        let expected = maintenance.then(|| rules::codes::NODE_MAINTENANCE.to_owned());
        assert_eq!(said, expected);
        sessions::restart(&server, &root, &id)
            .await
            .expect("a restart");
        for _ in 0..6 {
            stage.tick();
        }
        let again = sessions::get(&server, &root, &id)
            .await
            .expect("it is there");
        assert_eq!(again.incarnation, 2);
        let expected = match maintenance {
            true => (SessionState::Pending, None),
            false => (SessionState::Running, Some(node)),
        };
        assert_eq!((again.state, again.node), expected);
        // Where it was before its restart is no place that it is on now.
        let read = session_detail::read(&server, &root, &id).await;
        let (read, visit) = (read.expect("its page"), visit());
        let lines = presenter::timeline(visit.text, &visit.clock, &read.session, &read.events);
        let placed = lines.iter().map(|line| line.what.as_str());
        let placed: Vec<&str> = placed.filter(|words| words.starts_with("Placed")).collect();
        assert!(!placed.is_empty());
        assert_eq!(
            placed.iter().all(|words| *words == "Placed"),
            maintenance,
            "{placed:?}"
        );
    }
}

fn demand_of(session: &api::sessions::SessionView) -> Demand {
    Demand {
        cpu: session.resources.cpu,
        memory: session.resources.memory,
        ..Demand::default()
    }
}
