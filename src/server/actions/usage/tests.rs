//! Usage through the action that doors call: what counts, how it is summed, and who sees whose.

use std::net::{IpAddr, Ipv4Addr};

use api::sessions::{LaunchRequest, Resources};
use rules::names::SessionId;
use rules::reasons;
use rules::resources::DeviceShare;
use rules::units::{Bytes, CpuShare, GpuShare};
use rules::users::Role;
use rules::workload::outcome::Outcome;

use super::super::{sessions, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::catalog::Lane;
use crate::catalog::samples::history::{HistoryRow, HistorySubject};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

async fn a_server() -> (Server, Caller, Caller, Caller) {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let mut both = Vec::new();
    for name in ["mina", "juno"] {
        users::create(&server, &boss.caller, name, Role::User, GOOD)
            .await
            .unwrap();
        both.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
    }
    let juno = both.remove(1);
    (server, boss.caller, both.remove(0), juno)
}

/// Runs a session with these hundredths of a core for so many seconds.
async fn run(server: &Server, caller: &Caller, cpu: u32, seconds: u64) -> SessionId {
    run_on(server, caller, cpu, Vec::new(), seconds).await
}

/// The same with these shares of devices.
async fn run_on(
    server: &Server,
    caller: &Caller,
    cpu: u32,
    devices: Vec<DeviceShare>,
    seconds: u64,
) -> SessionId {
    let asked = LaunchRequest {
        resources: Resources {
            cpu: Some(CpuShare(cpu)),
            ..Resources::default()
        },
        ..LaunchRequest::default()
    };
    let launched = sessions::launch(server, caller, asked, None).await.unwrap();
    let id = launched.sessions[0].id;
    let node = server.node();
    let change = move |ends: bool| {
        let devices = devices.clone();
        let done = server.catalog().write_now(Lane::Loops, "run", move |rows| {
            let now = rows.now;
            rows.change_session(id, None, "test", None, |session| {
                match ends {
                    false => session.place(node, devices, reasons::placement_kept("box"), now),
                    true => session.end(Outcome::Succeeded, Some(0), now),
                }
                true
            })
        });
        done.unwrap();
    };
    change(false);
    server
        .clock()
        .set(server.clock().now().plus_seconds(seconds));
    change(true);
    id
}

async fn asked(server: &Server, caller: &Caller, by: UsageGrouping) -> Usage {
    usage(server, caller, &UsageTime::default(), by)
        .await
        .unwrap()
}

#[tokio::test]
async fn each_sees_their_own_and_an_administrator_sees_all_and_sums_add_up() {
    let (server, boss, mina, juno) = a_server().await;
    run(&server, &mina, 100, 60).await;
    run(&server, &mina, 50, 60).await;
    run(&server, &juno, 100, 30).await;
    let all = asked(&server, &boss, UsageGrouping::User).await;
    let told: Vec<_> = all
        .items
        .iter()
        .map(|item| (item.user.as_str(), item.used.cpu_seconds, item.used.starts))
        .collect();
    assert_eq!(told, [("mina", 90.0, 2), ("juno", 30.0, 1)]);
    assert_eq!(all.total.cpu_seconds, 120.0);
    assert_eq!(all.total.session_seconds, 150.0);
    for by in UsageGrouping::ALL {
        let same = asked(&server, &boss, by).await;
        assert_eq!(same.total, all.total, "{by:?}");
        let sum: f64 = same.items.iter().map(|item| item.used.cpu_seconds).sum();
        assert_eq!(sum, 120.0, "{by:?}");
        let days: f64 = same.days.iter().map(|day| day.used.cpu_seconds).sum();
        assert_eq!(days, 120.0, "{by:?}");
    }
    let own = asked(&server, &juno, UsageGrouping::Member).await;
    assert_eq!(own.items.len(), 1);
    assert_eq!(
        (own.items[0].user.as_str(), own.total.cpu_seconds),
        ("juno", 30.0)
    );
    // A user who is gone keeps what they used.
    users::remove(&server, &boss, "juno", None).await.unwrap();
    assert_eq!(
        asked(&server, &boss, UsageGrouping::User).await.items,
        all.items
    );
}

/// Beside what a user held stands how much of it was busy, for those who see all of it and for no others.
#[tokio::test]
async fn how_much_of_the_gpu_time_was_busy_is_told_by_user() {
    let (server, boss, mina, juno) = a_server().await;
    let hour = server.clock().now().as_millis() / 3_600_000 * 3_600;
    let quarter = DeviceShare {
        index: 0,
        share: GpuShare(25),
        memory: Bytes(0),
        part: None,
        simulated: false,
    };
    for caller in [&mina, &juno] {
        run_on(&server, caller, 100, vec![quarter], 60).await;
    }
    let told = async |reader: &Caller, by: UsageGrouping| -> Vec<(String, Option<f64>)> {
        let time = UsageTime {
            from: Timestamp::from_millis(hour * 1_000).to_string(),
            ..UsageTime::default()
        };
        let used = usage(&server, reader, &time, by).await.unwrap();
        let items = used.items.into_iter();
        items.map(|item| (item.user, item.gpu_busy)).collect()
    };
    let of = |all: &[(String, Option<f64>)], name: &str| {
        let found = all.iter().find(|(user, _)| user == name);
        found.and_then(|(_, busy)| *busy)
    };
    let before = told(&boss, UsageGrouping::User).await;
    assert_eq!((before.len(), of(&before, "mina")), (2, None));

    // A quarter of the GPU for two hours: half busy in the first, idle in the second. What follows ends the second hour.
    for (second, busy) in [(0, 0.125), (3_600, 0.0), (7_200, 0.0)] {
        let row = HistoryRow {
            gpu: 0.25,
            gpu_busy: Some(busy),
            ..HistoryRow::default()
        };
        let rows = [
            (HistorySubject::Site, row),
            (HistorySubject::User(mina.subject.user), row),
        ];
        let at = Timestamp::from_millis((hour + second) * 1_000);
        let samples = server.catalog().samples();
        samples.record_history(at, &rows).unwrap();
    }
    server
        .clock()
        .set(Timestamp::from_millis((hour + 7_200) * 1_000));
    let all = told(&boss, UsageGrouping::User).await;
    assert_eq!(of(&all, "mina"), Some(0.25), "{all:?}");
    assert_eq!(of(&all, "juno"), None, "nothing was measured");
    let own = told(&mina, UsageGrouping::User).await;
    assert_eq!((own.len(), of(&own, "mina")), (1, Some(0.25)));
    // Sums of a project are of many users.
    let by_member = told(&boss, UsageGrouping::Member).await;
    assert_eq!(of(&by_member, "mina"), None);
}

#[tokio::test]
async fn a_time_is_a_month_or_lies_between_two_moments() {
    let (server, boss, mina, _) = a_server().await;
    run(&server, &mina, 100, 60).await;
    let month = |month: &str| UsageTime {
        month: month.to_owned(),
        ..UsageTime::default()
    };
    let between = |from: &str, until: &str| UsageTime {
        from: from.to_owned(),
        until: until.to_owned(),
        ..UsageTime::default()
    };
    let now = server.clock().now();
    let here = UsageMonth::of(now, "UTC");
    let by = UsageGrouping::User;
    for (time, expected) in [
        (month(&here.to_string()), 60.0),
        (month(&here.previous().to_string()), 0.0),
        (between(&now.to_string()[..10], ""), 60.0),
        (between("2020-01-01", "2020-02-01"), 0.0),
    ] {
        let used = usage(&server, &boss, &time, by).await.unwrap();
        assert_eq!(used.total.cpu_seconds, expected, "{time:?}");
    }
    for (time, expected) in [
        (month("2026"), "usage.month-invalid"),
        (month("2026-13"), "usage.month-invalid"),
        (month("+026-01"), "usage.month-invalid"),
        (month("9999-12"), "usage.month-invalid"),
        (between("yesterday", ""), "usage.time-invalid"),
        (between("2026-02-02", "2026-02-01"), "usage.time-invalid"),
        (between("2026-01-01", "2028-01-01"), "usage.too-long"),
    ] {
        assert_eq!(
            code(usage(&server, &boss, &time, by).await),
            expected,
            "{time:?}"
        );
    }
}

#[test]
fn months_follow_the_time_zone() {
    let at = Timestamp::parse("2026-11-30T16:00:00Z").unwrap();
    assert_eq!(UsageMonth::of(at, "UTC").to_string(), "2026-11");
    let seoul = UsageMonth::of(at, "Asia/Seoul");
    assert_eq!(seoul.to_string(), "2026-12");
    assert_eq!(
        seoul.begins("Asia/Seoul").to_string(),
        "2026-11-30T15:00:00.000Z"
    );
    assert_eq!(seoul.next().to_string(), "2027-01");
    assert_eq!(UsageMonth::parse("2027-01").unwrap().previous(), seoul);
}
