//! How long one pass of the scheduler takes in a large house: 2,000 machines of 8 devices, 10,000 that
//! wait. The rules alone; writing the rows is measured elsewhere.

use std::time::Instant;

use rules::names::{BootId, NodeId, SessionId, SessionName, UserId};
use rules::placement;
use rules::resources::{Capacity, Demand, Device};
use rules::session::{Environment, Order, Session, SessionKind};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::world::{Node, World};

const NODES: u64 = 2000;
const WAITING: u64 = 10_000;

fn large() -> World {
    let at = Timestamp::from_millis(1_790_000_000_000);
    let nodes = (0..NODES).map(|n| Node {
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
        },
        host_environment: true,
        seen_at: at,
        generation: 1,
        schedulable: true,
        cordoned: std::collections::BTreeSet::new(),
        problems: Vec::new(),
    });
    let sizes = [35, 10, 100, 25, 200, 50, 150, 5, 400, 12];
    let sessions = (0..WAITING).map(|n| {
        let order = Order {
            kind: SessionKind::Batch,
            environment: Environment::Host,
            command: vec!["true".into()],
            env: std::collections::BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(100 + 100 * (n % 3) as u32),
                memory: Bytes::gib(4 + n % 5),
                gpu: GpuShare(sizes[(n % 10) as usize]),
                ..Demand::default()
            },
            timeout_seconds: None,
            longest_run_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
        };
        let id = SessionId(uuid::Uuid::from_u128(u128::from(n) | 1 << 64));
        let owner = UserId(uuid::Uuid::from_u128(u128::from(n % 50)));
        let name = SessionName::parse(&format!("s{n}")).expect("letters");
        Session::launched(id, name, owner, order, at)
    });
    World {
        nodes: nodes.collect(),
        sessions: sessions.collect(),
        ..World::default()
    }
}

#[test]
fn a_pass_over_ten_thousand_waiting_on_two_thousand_machines() {
    let world = large();
    let now = Timestamp::from_millis(1_790_000_000_000);
    let began = Instant::now();
    let decisions = placement::decide(&world, now);
    let pass = began.elapsed();
    let each = pass.as_secs_f64() * 1e6 / decisions.len().max(1) as f64;
    let began = Instant::now();
    let why = placement::explain_session(&world, &world.sessions[9999], now);
    let last = began.elapsed();
    println!(
        "{} of {WAITING} placed on {NODES} machines in {:.1} ms, {each:.1} us each; the last in the \
         queue is explained in {:.1} ms",
        decisions.len(),
        pass.as_secs_f64() * 1e3,
        last.as_secs_f64() * 1e3
    );
    assert!(decisions.len() > 5000, "{why:?}");
    // One decision; a debug build on a busy machine is ten times slower than what is served.
    assert!(each < 50_000.0, "{each} us each");
}
