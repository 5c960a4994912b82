//! Who held a device in a time, of those whom a reach allows.

use rules::resources::DeviceShare;
use rules::session::Outcome;
use rules::units::{Bytes, GpuShare};
use rules::workload::container::SessionContainer;
use rules::workload::state::{Lifecycle, PlacedSession};

use super::*;
use crate::catalog::holders::{DeviceHolder, HeldDevice};

const NODE: NodeId = NodeId(uuid::Uuid::from_u128(9));
const HOUR: i64 = 3_600_000;

fn ago(hours: i64) -> Timestamp {
    Timestamp::from_millis(clock().now().as_millis() - hours * HOUR)
}

/// Writes a session whose two containers have a quarter of the device each.
fn placed(catalog: &Catalog, owner: UserId, name: &str, device: u32, hours: i64) -> SessionId {
    let mut made = session(owner, name);
    let containers = (0..2).map(|index| {
        let share = DeviceShare {
            index: device,
            share: GpuShare(25),
            memory: Bytes::gib(1),
            part: None,
            simulated: false,
        };
        SessionContainer::scheduled(index, NODE, vec![share])
    });
    made.lifecycle = Lifecycle::Placed(PlacedSession {
        scheduled_at: ago(hours),
        stopping_at: None,
        containers: containers.collect(),
    });
    insert(catalog, &made).unwrap();
    made.id
}

fn end(catalog: &Catalog, id: SessionId, hours: i64) {
    let written = catalog.write_now(Lane::Loops, "end it", move |rows| {
        rows.change_session(id, None, "test", None, |session| {
            session.end(Outcome::Succeeded, Some(0), ago(hours));
            true
        })
    });
    assert_eq!(written.unwrap(), ConditionalWrite::Yes);
}

#[test]
fn holders_of_a_device_are_those_of_the_time_the_node_and_the_reach() {
    let catalog = memory();
    let (mina, jae) = (owner(&catalog), owner(&catalog));
    let lives = placed(&catalog, mina, "lives", 0, 5);
    let ended = placed(&catalog, jae, "ended", 0, 9);
    end(&catalog, ended, 7);
    placed(&catalog, jae, "beside", 1, 5);
    let seen = |reach: &rules::permissions::Reach, node: NodeId, time: (i64, i64)| {
        let (reach, device) = (reach.clone(), HeldDevice { node, index: 0 });
        let read = catalog.read_now("look", move |view| {
            view.holders(&reach, device, (ago(time.0), ago(time.1)))
        });
        let names = |all: Vec<DeviceHolder>| -> Vec<(String, f64)> {
            let named = all.into_iter().map(|one| (one.name, one.share));
            let mut named: Vec<(String, f64)> = named.collect();
            named.sort_by(|a, b| a.0.cmp(&b.0));
            named
        };
        names(read.unwrap())
    };
    let all = everything();
    let both = [("ended".to_owned(), 0.5), ("lives".to_owned(), 0.5)];
    assert_eq!(seen(&all, NODE, (8, 0)), both);
    assert_eq!(seen(&all, NODE, (6, 0)), both[1..], "it had ended");
    assert_eq!(seen(&all, NODE, (8, 6)), both[..1], "it had not begun");
    assert!(seen(&all, NodeId(uuid::Uuid::from_u128(8)), (8, 0)).is_empty());
    let own = rules::permissions::own(&rules::permissions::Subject {
        user: mina,
        grants: Vec::new(),
        domain: rules::tenancy::DomainId::DEFAULT,
        scopes: None,
    });
    assert_eq!(seen(&own, NODE, (9, 0)), both[1..], "another's is not seen");
    end(&catalog, lives, 0);
    assert_eq!(seen(&all, NODE, (8, 0)), both, "its row stays");
}
