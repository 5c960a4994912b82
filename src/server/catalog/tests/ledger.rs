//! The usage ledger: amounts times the time they were held, exact over crashes, resizes, reboots and set clocks.

use rules::metering::UsageSum;
use rules::names::NodeId;
use rules::reasons;
use rules::resources::DeviceShare;
use rules::units::{Bytes, CpuShare, GpuShare};
use rules::workload::outcome::Outcome;

use super::*;
use crate::catalog::budgets;
use crate::catalog::ledger::{LedgerTotals, UsageWindow};

pub(super) const NODE: NodeId = NodeId(uuid::Uuid::from_u128(9));
const MINUTE: u64 = 60_000;

fn half() -> Vec<DeviceShare> {
    vec![DeviceShare {
        index: 0,
        share: GpuShare(50),
        memory: Bytes(0),
        part: None,
        simulated: true,
    }]
}

fn change(catalog: &Catalog, id: SessionId, change: impl FnOnce(&mut Session) + Send + 'static) {
    let written = catalog.write_now(Lane::Loops, "change", move |rows| {
        rows.change_session(id, None, "test", None, |session| {
            change(session);
            true
        })
    });
    assert_eq!(written.unwrap(), ConditionalWrite::Yes);
}

pub(super) fn place(catalog: &Catalog, id: SessionId) {
    let now = catalog.clock().now();
    change(catalog, id, move |session| {
        session.place(NODE, half(), reasons::placement_kept("box"), now);
    });
}

pub(super) fn end(catalog: &Catalog, id: SessionId) {
    let now = catalog.clock().now();
    change(catalog, id, move |session| {
        session.end(Outcome::Succeeded, Some(0), now);
    });
}

fn placed(catalog: &Catalog) -> SessionId {
    let mut made = session(owner(catalog), "a");
    made.spec.demand.cpu = CpuShare(200);
    made.spec.demand.memory = Bytes(3 << 20);
    insert(catalog, &made).unwrap();
    place(catalog, made.id);
    made.id
}

fn totals(catalog: &Catalog) -> LedgerTotals {
    let uptime = catalog.clock().uptime();
    catalog
        .read_now("sum", move |view| view.ledger_totals(uptime))
        .unwrap()
}

fn meter(catalog: &Catalog) {
    catalog
        .write_now(Lane::Loops, "meter", |rows| rows.meter().map(drop))
        .unwrap();
}

fn pass(catalog: &Catalog, millis: u64) {
    let clock = catalog.clock();
    clock.set(Timestamp::from_millis(
        clock.now().as_millis() + millis as i64,
    ));
}

fn held(session: u64, gpu: u64) -> UsageSum {
    UsageSum {
        session,
        gpu,
        cpu: 200 * session,
        memory: 3 * session,
        starts: 1,
        waited: 0,
    }
}

/// What the rows of `usage` say, by hour.
fn hours(catalog: &Catalog) -> Vec<(i64, UsageSum)> {
    let window = UsageWindow {
        from: i64::MIN,
        until: i64::MAX,
    };
    let reach = everything();
    catalog
        .read_now("by hour", move |view| view.usage_by_hour(&reach, window))
        .unwrap()
}

#[test]
fn what_waits_uses_nothing_and_what_has_a_place_uses_its_amounts() {
    let catalog = memory();
    insert(&catalog, &session(owner(&catalog), "waits")).unwrap();
    pass(&catalog, MINUTE);
    assert_eq!(totals(&catalog), LedgerTotals::default());
    let id = placed(&catalog);
    pass(&catalog, MINUTE);
    let expected = UsageSum {
        waited: MINUTE,
        ..held(MINUTE, 50 * MINUTE)
    };
    assert_eq!(totals(&catalog).used, expected);
    end(&catalog, id);
    pass(&catalog, MINUTE);
    meter(&catalog);
    assert_eq!(totals(&catalog).used, expected);
    assert_eq!(hours(&catalog), [(500_000, expected)]);
}

#[test]
fn the_sum_of_a_budget_reads_an_index_alone() {
    let catalog = memory();
    for column in ["project", "owner"] {
        let sql = format!("explain query plan {}", budgets::gpu_sum(column));
        let plan = catalog.read_now("plan", move |view| {
            let id = [0_u8; 16];
            let values = (0, 1, id.as_slice(), None::<i64>);
            Ok(view
                .connection
                .query_row(&sql, values, |row| row.get::<_, String>("detail"))?)
        });
        let plan = plan.unwrap();
        assert!(plan.contains("COVERING INDEX usage_"), "{plan}");
    }
}

#[test]
fn a_smaller_share_counts_once_its_node_has_confirmed_it() {
    let catalog = memory();
    let id = placed(&catalog);
    pass(&catalog, MINUTE);
    change(&catalog, id, |session| {
        let mut smaller = half();
        smaller[0].share = GpuShare(20);
        session.regrant(smaller);
    });
    pass(&catalog, MINUTE);
    assert_eq!(totals(&catalog).used, held(2 * MINUTE, 100 * MINUTE));
    change(&catalog, id, |session| session.confirm_container(0));
    pass(&catalog, MINUTE);
    end(&catalog, id);
    let totals = totals(&catalog);
    assert_eq!(totals.used, held(3 * MINUTE, 120 * MINUTE));
    let starts = UsageSum {
        starts: 0,
        ..totals.used
    };
    assert_eq!(totals.allocated, starts);
}

#[test]
fn a_set_clock_changes_no_sum_and_no_hour_that_is_over() {
    let catalog = memory();
    let id = placed(&catalog);
    let clock = catalog.clock().clone();
    let began = clock.now();
    pass(&catalog, 30 * MINUTE);
    meter(&catalog);
    for years in [-2_i64, 2, 0] {
        let wall = Timestamp::from_millis(began.as_millis() + years * 365 * 86_400_000);
        let up = i64::try_from(clock.uptime().millis + MINUTE).unwrap();
        clock.set_both(wall, Timestamp::from_millis(up));
        meter(&catalog);
    }
    end(&catalog, id);
    let used = totals(&catalog).used;
    assert_eq!(used, held(33 * MINUTE, 50 * 33 * MINUTE));
    let hours = hours(&catalog);
    assert_eq!(
        hours.iter().map(|(_, sum)| sum.session).sum::<u64>(),
        33 * MINUTE
    );
    let ahead = 500_000 + 2 * 365 * 24;
    assert!(
        hours
            .iter()
            .all(|(hour, _)| (500_000..=ahead).contains(hour)),
        "{hours:?}"
    );
}

#[test]
fn a_server_that_was_away_counts_on_and_a_machine_that_was_off_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let (id, later) = {
        let catalog = on_disk(&directory);
        let id = placed(&catalog);
        pass(&catalog, MINUTE);
        meter(&catalog);
        (id, catalog.clock().now().plus_seconds(7_200))
    };
    // The server was down for two hours, the machine was not.
    let catalog = on_disk(&directory);
    catalog.clock().set(later);
    assert_eq!(totals(&catalog).used.session, MINUTE + 7_200_000);
    meter(&catalog);
    // The machine loses power; what passed since the last count is not known, and not counted.
    pass(&catalog, MINUTE);
    catalog.clock().reboot();
    pass(&catalog, 10 * MINUTE);
    end(&catalog, id);
    assert_eq!(totals(&catalog).used.session, MINUTE + 7_200_000);
    let hours = hours(&catalog);
    assert_eq!(hours.len(), 3, "{hours:?}");
}

#[test]
fn the_meter_takes_up_what_an_older_version_placed_and_lets_go_of_what_is_over() {
    let catalog = memory();
    let id = placed(&catalog);
    catalog
        .write_now(Lane::Loops, "an older version", |rows| {
            rows.connection.execute_batch("delete from allocation")?;
            Ok(())
        })
        .unwrap();
    pass(&catalog, MINUTE);
    assert_eq!(totals(&catalog).used.session, 0);
    meter(&catalog);
    pass(&catalog, MINUTE);
    meter(&catalog);
    assert_eq!(totals(&catalog).used.session, MINUTE);
    catalog
        .write_now(Lane::Loops, "a repair", move |rows| {
            rows.connection
                .execute("delete from session where id = ?1", [id.0.as_bytes()])?;
            Ok(())
        })
        .unwrap();
    meter(&catalog);
    pass(&catalog, MINUTE);
    meter(&catalog);
    assert_eq!(totals(&catalog).used.session, MINUTE);
}
