//! Sessions and their containers: several each, and those of a catalog from before there were containers.

use rules::messages::{ContainerOrder, MountSpec, NetworkSpec};
use rules::resources::DeviceShare;
use rules::session::Outcome;
use rules::units::{Bytes, GpuShare};
use rules::workload::container::{ContainerProgress, SessionContainer};
use rules::workload::state::{Lifecycle, PlacedSession};

use super::*;

fn read(catalog: &Catalog, id: SessionId) -> Session {
    let found = catalog.read_now("look", |view| view.session(id));
    found.unwrap().expect("the session")
}

fn share(index: u32) -> DeviceShare {
    DeviceShare {
        index,
        share: GpuShare(25),
        memory: Bytes::gib(1),
        part: None,
        simulated: false,
    }
}

#[test]
fn a_session_of_twenty_containers_on_five_nodes_is_read_as_it_was_written() {
    let catalog = memory();
    let mut large = session(owner(&catalog), "large");
    let at = large.created_at;
    let containers = (0..20).map(|index| {
        let node = NodeId(uuid::Uuid::from_u128(u128::from(index % 5)));
        SessionContainer::scheduled(index, node, vec![share(index)])
    });
    large.lifecycle = Lifecycle::Placed(PlacedSession {
        scheduled_at: at,
        stopping_at: None,
        containers: containers.collect(),
    });
    insert(&catalog, &large).unwrap();
    assert_eq!(read(&catalog, large.id), large);
    let change = |edit: fn(&mut Session, Timestamp)| {
        let changed = catalog.write_now(Lane::Loops, "change", move |rows| {
            let now = rows.now;
            rows.change_session(large.id, None, "test", None, |session| {
                edit(session, now);
                true
            })
        });
        assert_eq!(changed.unwrap(), ConditionalWrite::Yes);
        let names = read(&catalog, large.id);
        let names = names.containers().iter();
        names
            .map(|c| (c.role(), c.state.word()))
            .collect::<Vec<_>>()
    };
    let seen = change(|session, _| {
        if let Lifecycle::Placed(placed) = &mut session.lifecycle {
            placed.containers[7].state = ContainerProgress::Preparing;
            placed.containers[7].pending_devices = vec![share(3)];
            placed.containers.truncate(19);
        }
    });
    assert_eq!(seen.len(), 19);
    assert_eq!(seen[0], ("main1".to_owned(), "scheduled"));
    assert_eq!(seen[7], ("sub7".to_owned(), "preparing"));
    let row = read(&catalog, large.id);
    assert_eq!(row.state(), SessionState::Preparing);
    assert_eq!(row.containers()[7].pending_devices, [share(3)]);
    let used = catalog.read_now("look", |view| Ok(view.world()?.used()));
    assert_eq!(used.unwrap().len(), 5, "each node has its part");
    let seen = change(|session, now| session.end(Outcome::Stopped, None, now));
    assert!(seen.len() == 19 && seen.iter().all(|(_, state)| *state == "ended"));
    assert!(change(Session::begin_again).is_empty());
}

#[test]
fn a_row_that_contradicts_itself_is_a_fault_and_never_a_guess() {
    let catalog = memory();
    let placed = session(owner(&catalog), "a");
    insert(&catalog, &placed).unwrap();
    for (wrong, right) in [
        ("state = 'running'", "state = 'pending'"),
        ("state = 'stopping'", "state = 'pending'"),
    ] {
        let set = |text: &'static str| {
            let sql = format!("update session set {text}");
            let done = catalog.write_now(Lane::Loops, "break it", move |rows| {
                Ok(rows.connection.execute(&sql, [])?)
            });
            assert_eq!(done.unwrap(), 1);
        };
        set(wrong);
        let found = catalog.read_now("look", |view| view.session(placed.id));
        assert!(matches!(found, Err(Failure::Fault(_))), "{wrong}");
        set(right);
        assert_eq!(read(&catalog, placed.id), placed);
    }
}

/// The last step before containers had rows of their own.
const BEFORE: usize = 9;

#[test]
fn sessions_of_the_version_before_keep_their_containers() {
    let directory = tempfile::tempdir().unwrap();
    let place = CatalogPlace::Directory(directory.path().to_path_buf());
    let file = directory.path().join("catalog.sqlite");
    let mut connection = rusqlite::Connection::open(&file).unwrap();
    migrate::climb_to(&mut connection, &place, &migrate::STEPS[..BEFORE]).unwrap();
    let devices = serde_json::to_string(&[share(1)]).unwrap();
    let older = serde_json::to_string(&[share(2)]).unwrap();
    connection
        .execute_batch(&format!(
            "insert into person (id, name, role, language, theme, time_zone, suspended, password,
                                 created_at, generation)
             values (x'00000000000000000000000000000001', 'kim', 'user', '', '', '', 0, '', 0, 1);
             insert into session (id, name, owner, labels, kind, image_reference, command, env, cpu, memory,
                                  shm, gpu, depends_on, phase, wish, paused, restart, incarnation,
                                  generation, node, devices, unconfirmed, created_at, queued_at,
                                  scheduled_at, started_at, stopping_at, ended_at, outcome, exit_code,
                                  longest_run_seconds, only_on)
             select unhex(format('%032d', column1)), 's' || column1, unhex(format('%032d', 1)), '{{}}',
                    'batch', 'host', '[\"true\"]', '{{}}', 100, 1024, 0, 25, '[]', column2, column3, 0, 0,
                    column1, 4, unhex(column4), column5, column6, 10, 20,
                    column7, column8, column9, column10, column11, column12, 600, 'GPU-1'
             from (values
                 (1, 'pending', 'run', null, '[]', '[]', null, null, null, null, null, null),
                 (2, 'scheduled', 'run', '{node}', '{devices}', '[]', 30, null, null, null, null, null),
                 (3, 'preparing', 'run', '{node}', '{devices}', '[]', 30, null, null, null, null, null),
                 (4, 'running', 'run', '{node}', '{devices}', '{older}', 30, 40, null, null, null, null),
                 (5, 'stopping', 'kill', '{node}', '{devices}', '[]', 30, 40, 50, null, null, null),
                 (6, 'stopping', 'stop', '{node}', '{devices}', '[]', 30, null, 50, null, null, null),
                 (7, 'ended', 'stop', '{node}', '{devices}', '[]', 30, 40, 50, 60, 'stopped', 143),
                 (8, 'ended', 'run', null, '[]', '[]', null, null, null, 60, 'refused', null)
             )",
            node = "0000000000000000000000000000000a",
        ))
        .unwrap();
    drop(connection);
    let catalog = on_disk(&directory);
    let node = NodeId(uuid::Uuid::from_u128(10));
    let row = |number: u128| read(&catalog, SessionId(uuid::Uuid::from_u128(number)));
    let stands = |number: u128| {
        let row = row(number);
        assert_eq!(row.spec.max_runtime_seconds, Some(600));
        assert_eq!(row.device_affinity.as_deref(), Some("GPU-1"));
        assert_eq!((u128::from(row.incarnation), row.generation), (number, 4));
        let on = row.node().map(|found| found == node);
        let times = [
            row.scheduled_at(),
            row.started_at(),
            row.stopping_at(),
            row.ended_at(),
        ];
        let times = times.map(|at| at.map_or(0, Timestamp::as_millis));
        (row.state().word(), on, row.devices().to_vec(), times)
    };
    let shares = || vec![share(1)];
    assert_eq!(stands(1), ("pending", None, vec![], [0; 4]));
    assert_eq!(
        stands(2),
        ("scheduled", Some(true), shares(), [30, 0, 0, 0])
    );
    assert_eq!(
        stands(3),
        ("preparing", Some(true), shares(), [30, 0, 0, 0])
    );
    assert_eq!(stands(4), ("running", Some(true), shares(), [30, 40, 0, 0]));
    assert_eq!(
        stands(5),
        ("stopping", Some(true), shares(), [30, 40, 50, 0])
    );
    assert_eq!(
        stands(6),
        ("stopping", Some(true), shares(), [30, 0, 50, 0])
    );
    assert_eq!(stands(7), ("ended", Some(true), shares(), [30, 40, 50, 60]));
    assert_eq!(stands(8), ("ended", None, vec![], [0, 0, 0, 60]));
    assert_eq!(row(4).pending_devices(), [share(2)]);
    assert_eq!(row(4).container().to_string(), format!("{:032}-4", 4));
    assert_eq!(row(5).desired, DesiredState::Kill);
    assert_eq!(
        (row(7).outcome(), row(7).exit_code()),
        (Some(Outcome::Stopped), Some(143))
    );
    assert_eq!(row(8).outcome(), Some(Outcome::Refused));
    let ended_with = |number: u128| row(number).containers()[0].ended_with();
    assert_eq!(ended_with(7), Some((Outcome::Stopped, Some(143))));
    assert_eq!(ended_with(4), None);
}

#[test]
fn an_order_of_the_version_before_has_no_mounts_and_no_networks() {
    let before = r#"{"name":"0188bc5f36807777b5f1aa0707070707-3","hostname":"a","kind":"batch",
        "root":{"from":"host"},"command":["true"],"env":{},"demand":DEMAND,"devices":[],"want":"run"}"#;
    let demand = serde_json::to_string(&Demand::default()).expect("it can be written");
    let text = before.replace("DEMAND", &demand);
    let mut order: ContainerOrder = serde_json::from_str(&text).expect("it is read");
    assert!(order.mounts.is_empty() && order.networks.is_empty());
    assert_eq!(order.name.index, 0);
    let text = serde_json::to_string(&order).expect("it can be written");
    assert!(
        !text.contains("mounts") && !text.contains("networks"),
        "{text}"
    );
    order.mounts.push(MountSpec {
        folder: rules::names::FolderId(uuid::Uuid::from_u128(9)),
        subpath: "train".into(),
        at: "/data".into(),
        read_only: true,
        by_itself: false,
        mapped: None,
        detached: false,
    });
    order.networks.push(NetworkSpec {
        name: "mesh".into(),
        members: 2,
    });
    let text = serde_json::to_string(&order).expect("it can be written");
    assert_eq!(
        serde_json::from_str::<ContainerOrder>(&text).ok(),
        Some(order)
    );
}
