//! Ports of apps: one that an app has left rests as its owner's, for browsers may hold what the app left there.

use rules::app::AppChoice;
use rules::app_port::AppPort;

use super::*;

fn at(owner: UserId, session: SessionId, port: u16, opened_at: i64, used_at: i64) -> AppPort {
    AppPort {
        port,
        owner,
        app: AppChoice::Port(8888),
        session: Some(session),
        inner_port: 8888,
        opened_at: Timestamp::from_millis(opened_at),
        used_at: Timestamp::from_millis(used_at),
        passed_at: None,
    }
}

#[test]
fn a_port_that_an_app_has_left_is_not_free_at_once() {
    let catalog = memory();
    let owner = owner(&catalog);
    let made = session(owner, "a");
    insert(&catalog, &made).unwrap();
    let led = |port: AppPort| {
        let written = catalog.write_now(Lane::Requests, "lead", move |rows| {
            rows.put_app_port(&port)?;
            rows.app_ports()
        });
        let ports = written.unwrap().into_iter();
        let all: Vec<_> = ports.map(|port| (port.port, port.session)).collect();
        all
    };
    let here = Some(made.id);
    assert_eq!(led(at(owner, made.id, 1, 0, 0)), [(1, here)]);
    // Another program had it, so no visitor ever came.
    assert_eq!(led(at(owner, made.id, 2, 0, 0)), [(2, here)]);
    assert_eq!(led(at(owner, made.id, 2, 0, 5)), [(2, here)]);
    let both = [(2, None), (3, here)];
    assert_eq!(led(at(owner, made.id, 3, 6, 6)), both);
    let passed = AppPort {
        passed_at: Some(Timestamp::from_millis(7)),
        ..at(owner, made.id, 3, 7, 7)
    };
    assert_eq!(led(passed), both);
    let three = [(2, None), (3, None), (4, here)];
    assert_eq!(led(at(owner, made.id, 4, 8, 8)), three);
}

#[test]
fn a_port_that_another_app_has_is_not_touched_by_the_one_before() {
    let catalog = memory();
    let owner = owner(&catalog);
    let made = session(owner, "a");
    insert(&catalog, &made).unwrap();
    let before = AppPort {
        app: AppChoice::Port(9),
        ..at(owner, made.id, 1, 0, 0)
    };
    let now = at(owner, made.id, 1, 0, 0);
    let used = |port: AppPort| {
        let written = catalog.write_now(Lane::Requests, "touch", move |rows| {
            rows.touch_app_port(&port)?;
            rows.app_port(1)
        });
        written.unwrap().expect("there").used_at.as_millis()
    };
    let put = now.clone();
    catalog
        .write_now(Lane::Requests, "lead", move |rows| rows.put_app_port(&put))
        .unwrap();
    assert_eq!(used(before), 0);
    assert_eq!(used(now), catalog.clock().now().as_millis());
}
