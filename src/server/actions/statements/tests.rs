//! Closing months and reading statements through the actions that doors call, over ledgers whose sums are known.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use api::audit::AuditQuery;
use base::observe::Clock;
use base::settings::{Settings, SettingsLayer};
use rules::grants::GrantRole;
use rules::metering::UsageSum;
use rules::names::UserName;
use rules::statement::{MICROS, UNITS_OF_HOUR};
use rules::tenancy::ProjectId;
use rules::users::Role;

use super::super::{audit, tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::catalog::ledger::UsageOf;
use crate::catalog::tests::statements::{
    NO_LINE, NO_STATEMENT, OTHER_DIGEST, OTHER_ZONE, PLANTED_EDITS, add_use, bend,
};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// Of January 2027; its certificates lie in the folder.
async fn a_server(folder: &Path) -> (Server, Caller, Caller, Caller) {
    let layer = SettingsLayer {
        data: Some(folder.join("data")),
        run: Some(folder.join("run")),
        ..SettingsLayer::default()
    };
    let settings = Settings::read(layer, |_| None).unwrap();
    let clock = Clock::set_by_hand(Timestamp::parse("2027-01-15T08:00:00Z").unwrap());
    let server = Server::start(settings, clock).unwrap();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let boss = Caller {
        time_zone: "UTC".to_owned(),
        ..boss.caller
    };
    let mut both = Vec::new();
    for name in ["mina", "juno"] {
        users::create(&server, &boss, name, Role::User, GOOD)
            .await
            .unwrap();
        both.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
    }
    let juno = both.remove(1);
    (server, boss, both.remove(0), juno)
}

/// Closes a month by the zone of the caller.
async fn close(server: &Server, caller: &Caller, month: &str) -> Result<ClosedMonthView, Failure> {
    close_in(server, caller, month, "").await
}

async fn close_in(
    server: &Server,
    caller: &Caller,
    month: &str,
    zone: &str,
) -> Result<ClosedMonthView, Failure> {
    let asked = NewClosedMonthBody {
        month: month.to_owned(),
        time_zone: Some(zone.to_owned()),
    };
    super::close(server, caller, &asked).await
}

/// Counts so many GPU-hours of a user into the hour of a time.
fn use_at(server: &Server, caller: &Caller, at: &str, gpu_hours: u64) {
    use_in(server, caller, ProjectId::DEFAULT, at, gpu_hours);
}

/// The same in a project of the user's domain.
fn use_in(server: &Server, caller: &Caller, project: ProjectId, at: &str, gpu_hours: u64) {
    let hour = metering::hour_of(Timestamp::parse(at).unwrap());
    let of = UsageOf {
        domain: caller.subject.domain,
        project,
        owner: caller.subject.user,
    };
    let sum = UsageSum {
        session: 3_600_000,
        gpu: gpu_hours * UNITS_OF_HOUR,
        cpu: 7,
        memory: 11,
        starts: 1,
        waited: 3,
    };
    add_use(server.catalog(), hour, of, sum);
}

async fn of_month(server: &Server, caller: &Caller, month: &str) -> StatementView {
    let asked = StatementQuery {
        month: month.to_owned(),
        ..StatementQuery::default()
    };
    statement(server, caller, &asked).await.unwrap()
}

/// User, part and GPU-hours of each line.
fn told(view: &StatementView) -> Vec<(&str, &str, u64)> {
    let mut told: Vec<_> = view
        .items
        .iter()
        .map(|item| {
            let hours = item.used.gpu_units / UNITS_OF_HOUR;
            (item.user.as_str(), item.part.as_str(), hours)
        })
        .collect();
    told.sort_unstable();
    told
}

#[tokio::test]
async fn months_are_closed_in_their_order_once_and_what_is_found_late_goes_into_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, juno) = a_server(folder.path()).await;
    let closing = async |month: &str| code(close(&server, &boss, month).await);
    assert_eq!(closing("2026-12").await, "month.nothing-used");
    assert_eq!(
        code(statement(&server, &mina, &StatementQuery::default()).await),
        "month.none-closed"
    );
    use_at(&server, &mina, "2026-11-01T00:30:00Z", 2);
    use_at(&server, &mina, "2026-11-30T23:30:00Z", 3);
    use_at(&server, &juno, "2026-11-10T05:00:00Z", 5);
    use_at(&server, &juno, "2026-12-01T00:00:00Z", 7);
    for (month, expected) in [
        ("2026-10", "month.out-of-order"),
        ("2027-01", "month.not-over"),
        ("2027-02", "month.not-over"),
        ("2026", "usage.month-invalid"),
    ] {
        assert_eq!(closing(month).await, expected, "{month}");
    }
    assert_eq!(
        code(close(&server, &mina, "2026-11").await),
        "role.administrator-needed"
    );
    let first = close(&server, &boss, "2026-11").await.unwrap();
    assert_eq!(first.from.to_string(), "2026-11-01T00:00:00.000Z");
    assert_eq!(first.until.to_string(), "2026-12-01T00:00:00.000Z");
    let november = of_month(&server, &boss, "2026-11").await;
    assert_eq!(told(&november), [("juno", "use", 5), ("mina", "use", 5)]);
    assert_eq!(november.total.gpu_units, 10 * UNITS_OF_HOUR);
    assert_eq!(november.total.starts, 3);
    assert_eq!(november.total.core_units, 21);
    // Twice is once.
    let again = close(&server, &boss, "2026-11").await.unwrap();
    assert_eq!(again, first);
    let acts = AuditQuery {
        act: "month.closed".to_owned(),
        ..AuditQuery::default()
    };
    let acts = audit::list(&server, &boss, &acts).await.unwrap();
    assert_eq!(acts.items.len(), 1);

    // Found after the close: November stays, December tells it apart.
    use_at(&server, &mina, "2026-11-05T00:00:00Z", 11);
    assert_eq!(of_month(&server, &boss, "2026-11").await, november);
    close(&server, &boss, "2026-12").await.unwrap();
    let december = of_month(&server, &boss, "2026-12").await;
    assert_eq!(told(&december), [("juno", "use", 7), ("mina", "late", 11)]);
    assert_eq!(december.total.gpu_units, 18 * UNITS_OF_HOUR);
    let sums: Vec<_> = december
        .totals
        .iter()
        .map(|sum| (sum.part.as_str(), sum.used))
        .collect();
    assert_eq!(
        sums,
        [
            ("project", december.total),
            ("domain", december.total),
            ("site", december.total)
        ]
    );
    assert_eq!(of_month(&server, &boss, "2026-11").await, november);
    assert_eq!(closing("2027-01").await, "month.not-over");
    // It was told once.
    let later = Timestamp::parse("2027-02-01T00:00:00Z").unwrap();
    server.clock().set(later);
    close(&server, &boss, "2027-01").await.unwrap();
    let january = of_month(&server, &boss, "").await;
    assert_eq!(
        (january.month.as_str(), january.items.len()),
        ("2027-01", 0)
    );
    assert_eq!(january.total, StatementAmounts::default());
    let whole = check(&server, &boss).await.unwrap();
    let whole: Vec<_> = whole
        .iter()
        .map(|one| (one.month.as_str(), one.whole))
        .collect();
    assert_eq!(
        whole,
        [("2027-01", true), ("2026-12", true), ("2026-11", true)]
    );
}

#[tokio::test]
async fn the_first_close_settles_the_zone_and_is_refused_where_the_caller_names_none() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, _) = a_server(folder.path()).await;
    use_at(&server, &mina, "2026-10-31T15:30:00Z", 2);
    // As root on the machine is.
    let root = Caller {
        time_zone: String::new(),
        ..boss.clone()
    };
    let refused = async |month: &str, zone: &str| match close_in(&server, &root, month, zone).await
    {
        Err(Failure::Refusal(refusal)) => (refusal.code, refusal.pointer.unwrap_or_default()),
        other => panic!("not refused: {other:?}"),
    };
    let at_zone = |code: &str| (code.to_owned(), "/time_zone".to_owned());
    assert_eq!(refused("2026-11", "").await, at_zone("month.zone-needed"));
    assert_eq!(
        refused("2026-11", "Asia/Nowhere").await,
        at_zone("time-zone.unknown")
    );
    let november = close_in(&server, &root, "2026-11", "Asia/Seoul").await;
    let november = november.unwrap();
    assert_eq!(november.time_zone, "Asia/Seoul");
    assert_eq!(november.from.to_string(), "2026-10-31T15:00:00.000Z");
    assert_eq!(
        refused("2026-12", "UTC").await,
        at_zone("month.zone-settled")
    );
    let due = next(&server, &boss).await.unwrap().unwrap();
    assert_eq!(
        (due.time_zone.as_str(), due.is_first),
        ("Asia/Seoul", false)
    );
    let december = close_in(&server, &root, "2026-12", "Asia/Seoul").await;
    assert_eq!(december.unwrap().from, november.until);
}

#[tokio::test]
async fn the_first_close_is_of_any_month_that_is_over_and_earlier_use_stands_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, juno) = a_server(folder.path()).await;
    // A clock that stood at its beginning, and one that was years behind.
    use_at(&server, &mina, "1970-01-01T00:30:00Z", 2);
    use_at(&server, &juno, "2020-05-10T05:00:00Z", 5);
    use_at(&server, &mina, "2026-12-10T05:00:00Z", 7);
    let west = Caller {
        time_zone: "America/New_York".to_owned(),
        ..boss
    };
    let due = next(&server, &west).await.unwrap().unwrap();
    assert_eq!(due.month.to_string(), "1969-12");
    assert_eq!(due.newest.to_string(), "2026-12");
    assert!(due.is_first && due.is_over());
    assert_eq!(
        code(close(&server, &west, "2027-01").await),
        "month.not-over"
    );
    close(&server, &west, "2026-12").await.unwrap();
    let december = of_month(&server, &west, "").await;
    assert_eq!(
        told(&december),
        [("juno", "late", 5), ("mina", "late", 2), ("mina", "use", 7)]
    );
    assert_eq!(december.total.gpu_units, 14 * UNITS_OF_HOUR);
    assert_eq!(
        code(close(&server, &west, "2026-11").await),
        "month.out-of-order"
    );
    // What is found of those years from now on is late once, as ever.
    use_at(&server, &mina, "2020-05-10T05:00:00Z", 11);
    let later = Timestamp::parse("2027-02-01T12:00:00Z").unwrap();
    server.clock().set(later);
    close(&server, &west, "2027-01").await.unwrap();
    let january = of_month(&server, &west, "").await;
    assert_eq!(told(&january), [("mina", "late", 11)]);
    let checked = check(&server, &west).await.unwrap();
    assert!(checked.iter().all(|one| one.whole), "{checked:?}");
}

#[tokio::test]
async fn a_month_begins_where_the_last_one_ended_though_its_zone_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, _) = a_server(folder.path()).await;
    use_at(&server, &mina, "2026-11-30T20:00:00Z", 2);
    use_at(&server, &mina, "2026-12-31T14:00:00Z", 3);
    use_at(&server, &mina, "2026-12-31T15:00:00Z", 5);
    close(&server, &boss, "2026-11").await.unwrap();
    bend(server.catalog(), OTHER_ZONE);
    let december = close(&server, &boss, "2026-12").await.unwrap();
    assert_eq!(december.time_zone, "Asia/Seoul");
    assert_eq!(december.from.to_string(), "2026-12-01T00:00:00.000Z");
    assert_eq!(december.until.to_string(), "2026-12-31T15:00:00.000Z");
    let december = of_month(&server, &boss, "2026-12").await;
    assert_eq!(told(&december), [("mina", "use", 3)]);
}

#[tokio::test]
async fn an_edit_of_a_closed_month_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, juno) = a_server(folder.path()).await;
    use_at(&server, &mina, "2026-11-01T00:30:00Z", 2);
    use_at(&server, &juno, "2026-12-10T05:00:00Z", 5);
    for month in ["2026-11", "2026-12"] {
        close(&server, &boss, month).await.unwrap();
    }
    let found = async || {
        let all = check(&server, &boss).await.unwrap();
        let broken = all.into_iter().filter(|one| !one.whole);
        broken.map(|one| (one.month, one.code)).collect::<Vec<_>>()
    };
    assert!(found().await.is_empty());
    for (edit, undo, month, code) in PLANTED_EDITS {
        bend(server.catalog(), edit);
        assert_eq!(found().await, [(month.to_owned(), code.to_owned())]);
        bend(server.catalog(), undo);
        assert!(found().await.is_empty(), "{code} was undone");
    }
    let digests = of_month(&server, &boss, "2026-12").await.digests;
    bend(server.catalog(), OTHER_DIGEST);
    assert_eq!(
        found().await,
        [("2026-12".to_owned(), "statement.line-changed".to_owned())]
    );
    // It is what readers are told, who compute none.
    let told = of_month(&server, &boss, "2026-12").await.digests;
    assert_eq!(told[1], "0".repeat(64));
    assert_eq!((&told[0], &told[2..]), (&digests[0], &digests[2..]));
}

#[tokio::test]
async fn a_closed_month_that_is_no_statement_any_more_is_refused_and_the_check_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, _) = a_server(folder.path()).await;
    use_at(&server, &mina, "2026-11-01T00:30:00Z", 2);
    use_at(&server, &mina, "2026-12-01T00:30:00Z", 3);
    for month in ["2026-11", "2026-12"] {
        close(&server, &boss, month).await.unwrap();
    }
    let later = Timestamp::parse("2027-02-01T00:00:00Z").unwrap();
    server.clock().set(later);
    bend(server.catalog(), NO_STATEMENT);
    let newest = StatementQuery::default();
    for refused in [
        code(months(&server, &mina).await),
        code(statement(&server, &mina, &newest).await),
        code(next(&server, &boss).await),
        code(close(&server, &boss, "2027-01").await),
        code(close(&server, &boss, "2026-12").await),
    ] {
        assert_eq!(refused, "month.unreadable");
    }
    let november = of_month(&server, &mina, "2026-11").await;
    assert_eq!(told(&november), [("mina", "use", 2)]);
    let checked = check(&server, &boss).await.unwrap();
    let whole: Vec<_> = checked.iter().map(|one| one.whole).collect();
    assert_eq!(whole, [false, true]);
    bend(server.catalog(), NO_LINE);
    let november = StatementQuery {
        month: "2026-11".to_owned(),
        ..StatementQuery::default()
    };
    assert_eq!(
        code(statement(&server, &mina, &november).await),
        "month.unreadable"
    );
}

#[tokio::test]
async fn each_reads_what_they_may_see_and_totals_only_where_they_see_all() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, juno) = a_server(folder.path()).await;
    use_at(&server, &mina, "2026-12-01T00:30:00Z", 2);
    use_at(&server, &juno, "2026-12-10T05:00:00Z", 5);
    close(&server, &boss, "2026-12").await.unwrap();
    let own = of_month(&server, &mina, "").await;
    assert_eq!(told(&own), [("mina", "use", 2)]);
    assert!(own.totals.is_empty());
    let all = of_month(&server, &boss, "").await;
    assert_eq!((all.items.len(), all.totals.len()), (2, 3));
    assert_eq!(all.digests.len(), 5);
    assert_eq!(own.digests, all.digests);
    let asked = |domain: &str, project: &str, user: &str| StatementQuery {
        domain: domain.to_owned(),
        project: project.to_owned(),
        user: user.to_owned(),
        ..StatementQuery::default()
    };
    for (query, items, totals) in [
        (asked("default", "", ""), 2, 2),
        (asked("", "default", ""), 2, 1),
        (asked("", "default/default", ""), 2, 1),
        (asked("", "", "juno"), 1, 0),
        (asked("", "other", ""), 0, 0),
        (asked("other", "default", ""), 0, 0),
    ] {
        let found = statement(&server, &boss, &query).await.unwrap();
        assert_eq!(
            (found.items.len(), found.totals.len()),
            (items, totals),
            "{query:?}"
        );
    }
    // Lines keep the name of their close; who was renamed since finds their own by today's.
    let renamed = Caller {
        name: UserName::parse("mina.kim").unwrap(),
        ..mina.clone()
    };
    for (caller, name, items) in [
        (&renamed, "mina.kim", vec![("mina", "use", 2)]),
        (&renamed, "juno", vec![]),
        (&boss, "mina.kim", vec![]),
        (&boss, "mina", vec![("mina", "use", 2)]),
    ] {
        let found = statement(&server, caller, &asked("", "", name)).await;
        assert_eq!(told(&found.unwrap()), items, "{name}");
    }
    for refused in [
        code(check(&server, &mina).await),
        code(prices(&server, &mina).await),
        code(next(&server, &mina).await),
        code(set_prices(&server, &mina, &NewPricesBody::default(), None).await),
    ] {
        assert_eq!(refused, "role.administrator-needed");
    }
}

#[tokio::test]
async fn a_lead_reads_their_project_a_domain_its_own_and_neither_a_word_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, _) = a_server(folder.path()).await;
    tenancy::create_domain(&server, &boss, "biology", "", None)
        .await
        .unwrap();
    let mut projects = Vec::new();
    for (domain, name) in [(None, "vision"), (Some("biology"), "cells")] {
        let made = tenancy::create_project(&server, &boss, domain, name, "", None).await;
        projects.push(made.unwrap().value.id);
    }
    tenancy::put_member(&server, &boss, "vision", "juno", GrantRole::Lead, None)
        .await
        .unwrap();
    let biology = Some("biology");
    users::create_once(&server, &boss, "chief", Role::User, GOOD, biology, None)
        .await
        .unwrap();
    let administrator = GrantRole::Administrator;
    tenancy::grant(&server, &boss, "chief", administrator, biology, None)
        .await
        .unwrap();
    let juno = sign_in(&server, "juno", GOOD, HERE).await.unwrap().caller;
    let chief = sign_in(&server, "chief", GOOD, HERE).await.unwrap().caller;
    let at = "2026-12-10T05:00:00Z";
    use_at(&server, &mina, at, 2);
    use_in(&server, &mina, projects[0], at, 3);
    use_at(&server, &juno, at, 5);
    use_in(&server, &chief, projects[1], at, 7);
    close(&server, &boss, "2026-12").await.unwrap();
    for (caller, items, totals, hidden) in [
        (
            &mina,
            vec!["default/default mina 2", "default/vision mina 3"],
            vec![],
            "juno",
        ),
        (
            &juno,
            vec!["default/default juno 5", "default/vision mina 3"],
            vec!["default/vision  3"],
            "biology",
        ),
        (
            &chief,
            vec!["biology/cells chief 7"],
            vec!["biology/cells  7", "biology/  7"],
            "vision",
        ),
    ] {
        let view = of_month(&server, caller, "").await;
        let said = |items: &[StatementItem]| -> Vec<String> {
            let items = items.iter();
            items
                .map(|item| {
                    let hours = item.used.gpu_units / UNITS_OF_HOUR;
                    format!("{}/{} {} {hours}", item.domain, item.project, item.user)
                })
                .collect()
        };
        assert_eq!(said(&view.items), items, "{}", caller.name);
        assert_eq!(said(&view.totals), totals, "{}", caller.name);
        let text = serde_json::to_string(&view).unwrap();
        assert!(!text.contains(hidden), "{}: {text}", caller.name);
    }
}

#[tokio::test]
async fn amounts_are_those_of_the_prices_at_the_close() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss, mina, _) = a_server(folder.path()).await;
    let set = async |currency: &str, gpu: &str| {
        let asked = NewPricesBody {
            currency: currency.to_owned(),
            gpu_hour: gpu.to_owned(),
            ..NewPricesBody::default()
        };
        set_prices(&server, &boss, &asked, None).await
    };
    assert_eq!(code(set("krw", "1").await), "price.currency-invalid");
    assert_eq!(code(set("", "1500").await), "price.currency-needed");
    assert!(set("", "0").await.is_ok(), "as it is shown while off");
    assert_eq!(code(set("KRW", "1,5").await), "price.invalid");
    assert_eq!(code(set("KRW", "99999999").await), "price.invalid");
    use_at(&server, &mina, "2026-11-01T00:30:00Z", 2);
    close(&server, &boss, "2026-11").await.unwrap();
    set("KRW", "1500.5").await.unwrap();
    use_at(&server, &mina, "2026-12-01T00:30:00Z", 3);
    close(&server, &boss, "2026-12").await.unwrap();
    set("", "").await.unwrap();
    let off = prices(&server, &boss).await.unwrap();
    assert_eq!((off.currency.as_str(), off.generation), ("", 3));
    // What changes nothing is no version, and one that was seen before overwrites none.
    assert_eq!(set("", "").await.unwrap().generation, 3);
    let stale = set_prices(&server, &boss, &NewPricesBody::default(), Some(2)).await;
    assert_eq!(code(stale), "price.stale");
    let before = of_month(&server, &boss, "2026-11").await;
    assert_eq!(
        (before.currency.as_str(), before.total.amount_micros),
        ("", 0)
    );
    let priced = of_month(&server, &boss, "2026-12").await;
    assert_eq!(priced.currency, "KRW");
    assert_eq!(priced.total.amount_micros, 4_501 * MICROS + MICROS / 2);
    assert_eq!(priced.total.amount(), "4501.5");
    assert!(
        check(&server, &boss)
            .await
            .unwrap()
            .iter()
            .all(|one| one.whole)
    );
}
