//! A large house as a world: 2,000 machines of 8 cards, and 10,000 sessions that wait for shares of them in
//! thirty sizes. What the bench and the simulation measure the scheduler on; nothing of it exists.

use rules::fair_share::{FairLeaf, QueueOrder};
use rules::names::{BootId, NodeId, SessionId, SessionName, UserId};
use rules::policy::BackfillMode;
use rules::quota::TenantLevel;
use rules::reason::Reason;
use rules::resources::{Capacity, Demand, Device, DeviceShare};
use rules::session::{Session, SessionEnvironment, SessionKind, SessionSpec};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::world::{ClusterSnapshot, NodeRecord};

pub(super) const NODES: u64 = 2000;
pub(super) const WAITING: u64 = 10_000;
/// When all of it is.
pub(super) const AT: Timestamp = Timestamp::from_millis(1_790_000_000_000);
/// Everything is free, and everybody waits.
pub(super) fn large() -> ClusterSnapshot {
    let at = AT;
    let nodes = (0..NODES).map(|n| NodeRecord {
        id: NodeId(uuid::Uuid::from_u128(u128::from(n))),
        name: format!("node-{n}"),
        boot: BootId(uuid::Uuid::nil()),
        capacity: Capacity {
            cpu: CpuShare(12_800),
            memory: Bytes::gib(1024),
            devices: (0..8)
                .map(|index| Device {
                    memory: Bytes::gib(80),
                    sms: 132,
                    uuid: format!("{n}-{index}"),
                    numa: Some(index / 4),
                    link: Some(0),
                    ..Device::new(index, "H100")
                })
                .collect(),
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: at,
        generation: 1,
        schedulable: true,
        note: String::new(),
        cordoned: std::collections::BTreeSet::new(),
        problems: Vec::new(),
    });
    let sizes = [35, 10, 100, 25, 200, 50, 150, 5, 400, 12];
    let sessions = (0..WAITING).map(|n| {
        let order = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["true".into()],
            env: std::collections::BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(100 + 100 * (n % 3) as u32),
                memory: Bytes::gib(4 + n % 5),
                gpu: GpuShare(sizes[(n % 10) as usize]),
                ..Demand::default()
            },
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let id = SessionId(uuid::Uuid::from_u128(u128::from(n) | 1 << 64));
        let owner = UserId(uuid::Uuid::from_u128(u128::from(n % 50)));
        let name = SessionName::parse(&format!("s{n}")).expect("letters");
        Session::launched(id, name, owner, order, at)
    });
    ClusterSnapshot {
        nodes: nodes.collect(),
        sessions: sessions.collect(),
        ..ClusterSnapshot::default()
    }
}

/// Users of the cluster that is ordered by fair share.
pub(super) const USERS: u64 = 2000;

/// The same world ordered by fair share: sessions of 2,000 users in 200 projects of 4 domains, each with use of the
/// past, every third user, project and domain with a weight of its own.
pub(super) fn by_fair_share(mut world: ClusterSnapshot) -> ClusterSnapshot {
    let id = |kind: u64, n: u64| uuid::Uuid::from_u128(u128::from(n) | u128::from(kind) << 80);
    let leaf = |n: u64| FairLeaf {
        domain: DomainId(id(1, n % 4)),
        project: ProjectId(id(2, n % 200)),
        user: UserId(id(3, n)),
    };
    world.policy.order = QueueOrder::Fair;
    for (n, session) in world.sessions.iter_mut().enumerate() {
        let leaf = leaf(n as u64 % USERS);
        session.owner = leaf.user;
        session.project = leaf.project;
        session.domain = leaf.domain;
    }
    world.fair.past = (0..USERS)
        .map(|n| (leaf(n), 1_000 + n * 7_919 % 1_000_003))
        .collect();
    world.fair.weights = (0..USERS)
        .step_by(3)
        .map(|n| (TenantLevel::User, id(3, n), 2))
        .chain(
            (0..200)
                .step_by(3)
                .map(|n| (TenantLevel::Project, id(2, n), 3)),
        )
        .chain([(TenantLevel::Domain, id(1, 0), 2)])
        .collect();
    world
}

/// The same world by fair share with timed backfill: every machine runs a session of six cards for up to four days, the
/// first in the queue waits for a whole machine, and all others have time limits, of which every third ends in time.
pub(super) fn by_time(world: ClusterSnapshot) -> ClusterSnapshot {
    let mut world = by_fair_share(world);
    world.policy.backfill = BackfillMode::Timed;
    for (n, session) in world.sessions.iter_mut().enumerate() {
        session.spec.max_runtime_seconds = Some(match n % 3 {
            0 => 1_800,
            _ => 7 * 86_400,
        });
    }
    let like = world.sessions[0].clone();
    for (n, node) in world.nodes.iter().enumerate() {
        let mut holder = like.clone();
        holder.id = SessionId(uuid::Uuid::from_u128(n as u128 | 1 << 66));
        holder.name = SessionName::parse(&format!("h{n}")).expect("letters");
        holder.spec.demand.gpu = GpuShare(600);
        holder.spec.max_runtime_seconds = Some(7_200 + 172 * (n as u64 * 7_919 % NODES));
        let devices = node.capacity.devices.iter().take(6);
        let devices = devices.map(|device| DeviceShare {
            index: device.index,
            share: GpuShare(100),
            memory: device.memory,
            part: None,
            simulated: false,
        });
        let because = Reason::from_parts("bench".into(), "Placed by the bench.".into());
        holder.place(node.id, devices.collect(), because, AT);
        holder.run_since(AT);
        world.sessions.push(holder);
    }
    // By fair share the order is not that of the list: the first in it wants a whole machine.
    let first = rules::placement::queue(&world, AT)
        .first()
        .map(|session| session.id);
    if let Some(first) = world
        .sessions
        .iter_mut()
        .find(|session| Some(session.id) == first)
    {
        first.spec.demand.gpu = GpuShare(800);
    }
    world
}

/// One session holds every card, all but the last wait for shares of them in ninety sizes, and the last wants
/// none: it may pass them all.
pub(super) fn overrun() -> ClusterSnapshot {
    let mut world = large();
    let request = |n: usize, session: &mut Session| {
        let share = session.spec.demand.gpu.0;
        session.spec.demand.cpu = CpuShare(share / 2 + 1 + (n / 30 % 3) as u32);
    };
    for (n, session) in world.sessions.iter_mut().enumerate() {
        request(n, session);
    }
    if let Some(last) = world.sessions.last_mut() {
        last.spec.demand.gpu = GpuShare::ZERO;
    }
    let like = world.sessions[0].clone();
    for (n, node) in world.nodes.iter().enumerate() {
        let mut holder = like.clone();
        holder.id = SessionId(uuid::Uuid::from_u128(n as u128 | 1 << 66));
        holder.name = SessionName::parse(&format!("h{n}")).expect("letters");
        holder.spec.demand.gpu = GpuShare(800);
        let devices = node.capacity.devices.iter().map(|device| DeviceShare {
            index: device.index,
            share: GpuShare(100),
            memory: device.memory,
            part: None,
            simulated: false,
        });
        let because = Reason::from_parts("bench".into(), "Placed by the bench.".into());
        holder.place(node.id, devices.collect(), because, AT);
        world.sessions.push(holder);
    }
    world
}
