//! Budgets through the actions that doors call: who gives them, who sees them, what is none, and what a hard one refuses.

use std::net::{IpAddr, Ipv4Addr};

use api::sessions::{LaunchRequest, Resources};
use rules::codes;
use rules::grants::GrantRole;
use rules::policy::PreemptionMode;
use rules::reasons;
use rules::resource_group::ResourceGroup;
use rules::resources::{Capacity, Device, DeviceShare};
use rules::session::DesiredState;
use rules::units::{Bytes, CpuShare, GpuShare};
use rules::users::Role;
use rules::workload::outcome::Outcome;
use rules::world::NodeRecord;

use super::super::{sessions, tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::catalog::controller_pass::PassChanges;
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// Boss administers the site, mina is a user; `lab` is a project without her.
async fn site() -> (Server, Caller, Caller) {
    let server = Server::for_tests();
    server.put_test_node("one");
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let boss = boss.caller;
    tenancy::create_project(&server, &boss, None, "lab", "", None)
        .await
        .unwrap();
    users::create_once(&server, &boss, "mina", Role::User, GOOD, None, None)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    (server, boss, mina)
}

fn of_mina(gpu_hours: &str) -> NewBudgetBody {
    NewBudgetBody {
        user: Some("mina".to_owned()),
        gpu_hours: gpu_hours.to_owned(),
        month: Some("2999-01".to_owned()),
        hard: true,
        ..NewBudgetBody::default()
    }
}

#[tokio::test]
async fn administrators_give_budgets_and_users_see_their_own() {
    let (server, boss, mina) = site().await;
    let made = create(&server, &boss, of_mina("40.5"), None).await.unwrap();
    let made = made.value;
    assert_eq!(
        (made.gpu_hours.as_str(), made.left.as_str()),
        ("40.50", "40.50")
    );
    assert!(made.hard && made.user.as_deref() == Some("mina"));
    let lab = NewBudgetBody {
        user: None,
        project: Some("lab".to_owned()),
        ..of_mina("7")
    };
    create(&server, &boss, lab, None).await.unwrap();
    assert_eq!(list(&server, &boss).await.unwrap().len(), 2);
    assert_eq!(
        list(&server, &mina).await.unwrap(),
        std::slice::from_ref(&made)
    );
    assert_ne!(
        code(create(&server, &mina, of_mina("1"), None).await),
        "done"
    );

    let id = made.id.to_string();
    let patch = BudgetPatchBody {
        gpu_hours: Some("50".to_owned()),
        hard: None,
    };
    let stale = change(&server, &boss, &id, patch.clone(), Some(9)).await;
    assert_eq!(code(stale), codes::BUDGET_STALE);
    let changed = change(&server, &boss, &id, patch, Some(1)).await.unwrap();
    assert_eq!(
        (changed.gpu_hours.as_str(), changed.generation),
        ("50.00", 2)
    );
    assert_ne!(code(remove(&server, &mina, &id).await), "done");
    remove(&server, &boss, &id).await.unwrap();
    assert_eq!(
        code(get(&server, &boss, &id).await),
        codes::BUDGET_NOT_FOUND
    );
}

#[tokio::test]
async fn what_is_no_budget_is_refused_by_name() {
    let (server, boss, _) = site().await;
    let refused = async |asked: NewBudgetBody| code(create(&server, &boss, asked, None).await);
    for amount in ["", "-1", "0.005", "many"] {
        assert_eq!(refused(of_mina(amount)).await, codes::BUDGET_AMOUNT);
    }
    let both = NewBudgetBody {
        project: Some("lab".to_owned()),
        ..of_mina("1")
    };
    assert_eq!(refused(both).await, codes::BUDGET_SUBJECT);
    let over = NewBudgetBody {
        month: Some("1999-01".to_owned()),
        ..of_mina("1")
    };
    assert_eq!(refused(over).await, codes::BUDGET_PERIOD);
    let half = NewBudgetBody {
        month: None,
        from: Some("2999-01-01".to_owned()),
        ..of_mina("1")
    };
    assert_eq!(refused(half).await, codes::BUDGET_PERIOD);
}

/// Gives the server's node one GPU.
fn put_gpu(server: &Server) {
    let node = NodeRecord {
        id: server.node(),
        name: "one".to_owned(),
        boot: rules::names::BootId(uuid::Uuid::from_u128(1)),
        capacity: Capacity {
            cpu: CpuShare(400),
            memory: Bytes::gib(8),
            devices: vec![Device {
                memory: Bytes::gib(80),
                ..Device::new(0, "Test GPU".to_owned())
            }],
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: server.clock().now(),
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: Default::default(),
        problems: vec![],
    };
    server
        .catalog()
        .write_now(Lane::Loops, "a GPU", move |rows| rows.put_node(&node))
        .unwrap();
}

/// A request for one GPU with this time limit.
fn one_gpu(limit_seconds: Option<u64>) -> LaunchRequest {
    LaunchRequest {
        resources: Resources {
            gpu: Some(GpuShare(100)),
            ..Resources::default()
        },
        max_runtime_seconds: limit_seconds,
        ..LaunchRequest::default()
    }
}

/// Two GPU-hours of mina in the month of the test's clock.
async fn two_hours(server: &Server, boss: &Caller) -> BudgetView {
    let asked = NewBudgetBody {
        month: Some("2027-01".to_owned()),
        ..of_mina("2")
    };
    create(server, boss, asked, None).await.unwrap().value
}

#[tokio::test]
async fn a_hard_budget_refuses_what_does_not_fit_and_nothing_that_asks_for_less() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let budget = two_hours(&server, &boss).await;
    for (limit, expected) in [
        (None, codes::BUDGET_LIMIT_NEEDED),
        (Some(7_200), codes::BUDGET_TOO_LONG),
    ] {
        let preview = sessions::preview(&server, &mina, one_gpu(limit)).await;
        assert_eq!(code(preview), expected);
        let refused = sessions::launch(&server, &mina, one_gpu(limit), None).await;
        assert_eq!(code(refused), expected);
    }
    let preview = sessions::preview(&server, &mina, one_gpu(Some(3_600))).await;
    let checks = preview.unwrap().checks;
    let shown = checks.iter().find(|check| check.code == "budget-user");
    let shown = shown.expect("a check of the budget");
    assert_eq!(
        [&shown.before, &shown.after, &shown.limit],
        ["0.00", "1.04", "2.00"]
    );
    let launch = async |limit| sessions::launch(&server, &mina, one_gpu(Some(limit)), None).await;
    launch(3_600).await.unwrap();
    assert_eq!(code(launch(3_361).await), codes::BUDGET_TOO_LONG);
    let second = launch(3_360).await.unwrap().sessions[0].id.to_string();
    assert_eq!(code(launch(1).await), codes::BUDGET_SPENT);
    let told = get(&server, &mina, &budget.id.to_string()).await.unwrap();
    assert_eq!(
        [&told.used, &told.reserved, &told.left],
        ["0.00", "2.00", "0.00"]
    );
    let less = BudgetPatchBody {
        gpu_hours: Some("1.99".to_owned()),
        hard: None,
    };
    let refused = change(&server, &boss, &budget.id.to_string(), less, None).await;
    assert_eq!(code(refused), codes::BUDGET_BELOW_USE);
    let limited = async |seconds| {
        let limit = Some(seconds);
        code(sessions::set_time_limit(&server, &mina, &second, limit, None).await)
    };
    assert_eq!(limited(60).await, "done");
    assert_eq!(limited(3_361).await, codes::BUDGET_TOO_LONG);
    assert_eq!(limited(3_360).await, "done");
}

#[tokio::test]
async fn time_beyond_what_was_set_aside_is_charged_and_warned_of_once() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let budget = two_hours(&server, &boss).await;
    let launched = sessions::launch(&server, &mina, one_gpu(Some(5_400)), None).await;
    let id = launched.unwrap().sessions[0].id;
    let (node, catalog) = (server.node(), server.catalog());
    let started = catalog.write_now(Lane::Loops, "start", move |rows| {
        let now = rows.now;
        let device = DeviceShare {
            index: 0,
            share: GpuShare(100),
            memory: Bytes(0),
            part: None,
            simulated: false,
        };
        rows.change_session(id, None, "test", None, |session| {
            session.place(node, vec![device], reasons::placement_kept("box"), now);
            session.run_since(now);
            true
        })
    });
    started.unwrap();
    assert!(warnings(&server, &mina).is_empty());
    // It ran past its limit: nobody stopped it.
    server.clock().set(server.clock().now().plus_seconds(5_800));
    for _ in 0..2 {
        let counted = catalog.write_now(Lane::Loops, "count", |rows| rows.meter());
        counted.unwrap();
    }
    let told = get(&server, &mina, &budget.id.to_string()).await.unwrap();
    assert_eq!([&told.used, &told.left], ["1.62", "0.38"]);
    assert_eq!((told.warned_percent, told.generation), (80, 1));
    let warned = warnings(&server, &mina);
    assert_eq!(warned.len(), 1);
    assert_eq!((warned[0].whose.as_str(), warned[0].percent), ("mina", 80));
    let refused = sessions::launch(&server, &mina, one_gpu(Some(1_300)), None).await;
    assert_eq!(code(refused), codes::BUDGET_TOO_LONG);
}

/// What a budget says of its use: used, reserved and left.
async fn uses(server: &Server, boss: &Caller, budget: &BudgetView) -> [String; 3] {
    let told = get(server, boss, &budget.id.to_string()).await.unwrap();
    [told.used, told.reserved, told.left]
}

/// Launches one GPU for mina and runs it at once; gives its id.
async fn running(server: &Server, mina: &Caller, limit: u64) -> SessionId {
    let launched = sessions::launch(server, mina, one_gpu(Some(limit)), None).await;
    let id = launched.unwrap().sessions[0].id;
    carry_out(server, id, 100, false);
    id
}

fn meter(server: &Server) {
    let counted = server
        .catalog()
        .write_now(Lane::Loops, "count", |rows| rows.meter());
    counted.unwrap();
}

#[tokio::test]
async fn a_resize_reserves_only_what_is_still_to_run() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let budget = two_hours(&server, &boss).await;
    let id = running(&server, &mina, 3_600).await;
    server.clock().set(server.clock().now().plus_seconds(1_800));
    let wanted = api::sessions::Resize {
        cpu: Some(CpuShare(200)),
        ..api::sessions::Resize::default()
    };
    let resized = sessions::resize(&server, &mina, &id.to_string(), wanted, None).await;
    assert_eq!(code(resized), "done");
    assert_eq!(
        uses(&server, &boss, &budget).await,
        ["0.50", "0.54", "0.96"]
    );
}

/// A pass takes the GPUs of a batch session for others, and queues it again; gives it as it is then.
fn displaced(server: &Server, id: SessionId) -> Session {
    let now = server.clock().now();
    passed(server, id, |session| {
        session.restart = true;
        session.stop(DesiredState::Stop, reasons::session_reserved(), now);
    })
}

/// The session as it is once a pass wrote that change of it.
fn passed(server: &Server, id: SessionId, change: impl FnOnce(&mut Session)) -> Session {
    let catalog = server.catalog();
    let read = || catalog.read_now("read", move |view| view.session(id));
    let mut session = read().unwrap().expect("a session");
    change(&mut session);
    let writes = PassChanges {
        sessions: vec![session],
        nodes: Vec::new(),
        assignments: Vec::new(),
        happened: Vec::new(),
        reservations: Vec::new(),
    };
    assert!(catalog.record_turn_now(writes).unwrap());
    read().unwrap().expect("a session")
}

#[tokio::test]
async fn what_is_queued_again_asks_the_hard_budget_for_its_whole_run() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let budget = two_hours(&server, &boss).await;
    let short = running(&server, &mina, 600).await;
    assert!(displaced(&server, short).restart, "there is room");
    carry_out(&server, short, 0, true);
    let stops = sessions::stop(&server, &mina, &short.to_string(), false).await;
    stops.unwrap();
    assert_eq!(uses(&server, &boss, &budget).await[1], "0.00");
    let long = running(&server, &mina, 5_400).await;
    server.clock().set(server.clock().now().plus_seconds(3_600));
    let ends = displaced(&server, long);
    assert!(!ends.restart && ends.desired == DesiredState::Stop);
    let reason = ends.reason.expect("a reason");
    assert_eq!(reason.code, codes::SESSION_BUDGET_SPENT);
}

#[tokio::test]
async fn who_could_not_run_once_more_is_not_preempted_and_ends_for_no_other() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    two_hours(&server, &boss).await;
    let id = running(&server, &mina, 5_400).await;
    let yields = server
        .catalog()
        .write_now(Lane::Loops, "yield", move |rows| {
            for group in rows.resource_groups()? {
                rows.put_resource_group(&ResourceGroup {
                    preemption: PreemptionMode::Priority,
                    ..group
                })?;
            }
            rows.change_session(id, None, "test", None, |session| {
                session.precedence.yields = true;
                true
            })
        });
    yields.unwrap();
    let is_spared = || {
        let (now, uptime) = (server.clock().now(), server.clock().uptime());
        let sight = server
            .catalog()
            .read_now("look", move |view| view.sight(now, uptime));
        sight.unwrap().beyond_budgets.requeued.contains(&id)
    };
    assert!(!is_spared(), "it has used nothing yet");
    server.clock().set(server.clock().now().plus_seconds(3_600));
    assert!(is_spared(), "an hour is left, and it wants one and a half");
    // The budget was filled after the pass had looked: it waits again all the same.
    let now = server.clock().now();
    let victim = passed(&server, id, |session| assert!(session.preempt(now)));
    assert!(victim.restart && victim.is_preempted());
}

#[tokio::test]
async fn a_budget_of_a_later_month_refuses_only_what_may_run_into_it() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let asked = NewBudgetBody {
        month: Some("2027-02".to_owned()),
        ..of_mina("0")
    };
    let planned = create(&server, &boss, asked, None).await.unwrap().value;
    let launch = async |limit| sessions::launch(&server, &mina, one_gpu(limit), None).await;
    assert_eq!(code(launch(None).await), codes::BUDGET_LIMIT_NEEDED);
    let refused = launch(Some(20 * 86_400)).await;
    let text = match &refused {
        Err(Failure::Refusal(refusal)) => refusal.text.clone(),
        Ok(_) | Err(_) => String::new(),
    };
    assert!(text.contains(&planned.from.to_string()), "{text}");
    assert_eq!(code(refused), codes::BUDGET_TOO_LONG);
    let waits = launch(Some(3_600)).await.unwrap().sessions[0].id;
    let beyond = || {
        let (now, uptime) = (server.clock().now(), server.clock().uptime());
        let sight = server
            .catalog()
            .read_now("look", move |view| view.sight(now, uptime));
        sight.unwrap().beyond_budgets.waiting
    };
    assert_eq!(beyond(), []);
    // It still waits when that month has begun.
    server
        .clock()
        .set(server.clock().now().plus_seconds(20 * 86_400));
    assert_eq!(beyond(), [waits]);
    let id = waits.to_string();
    sessions::hold(&server, &mina, &id).await.unwrap();
    assert_eq!(beyond(), []);
    let released = sessions::release(&server, &mina, &id).await;
    assert_eq!(code(released), codes::BUDGET_SPENT);
}

#[tokio::test]
async fn a_start_that_takes_too_long_ends_where_the_budget_has_no_room_for_its_run() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    two_hours(&server, &boss).await;
    // All of the budget.
    let id = running(&server, &mina, 7_080).await;
    let prepares = server
        .catalog()
        .write_now(Lane::Loops, "prepare", move |rows| {
            let now = rows.now;
            rows.change_session(id, None, "test", None, |session| {
                let held = session.devices().to_vec();
                let node = session.node().expect("a node");
                session.place(node, held, reasons::placement_kept("box"), now);
                true
            })
        });
    prepares.unwrap();
    for (seconds, expected) in [(80, vec![]), (20, vec![id])] {
        server
            .clock()
            .set(server.clock().now().plus_seconds(seconds));
        let (now, uptime) = (server.clock().now(), server.clock().uptime());
        let sight = server
            .catalog()
            .read_now("look", move |view| view.sight(now, uptime));
        assert_eq!(sight.unwrap().beyond_budgets.starting, expected);
    }
}

#[tokio::test]
async fn a_refusal_tells_of_those_budgets_that_the_caller_sees() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    two_hours(&server, &boss).await;
    users::create_once(&server, &boss, "lee", Role::User, GOOD, None, None)
        .await
        .unwrap();
    let lee = sign_in(&server, "lee", GOOD, HERE).await.unwrap().caller;
    let launched = sessions::launch(&server, &mina, one_gpu(Some(60)), None).await;
    let id = launched.unwrap().sessions[0].id;
    for (caller, expected) in [
        (&mina, codes::BUDGET_TOO_LONG),
        (&lee, codes::BUDGET_OF_OTHERS),
    ] {
        let (seen, now) = (seen(caller), server.clock().now());
        let asked = server.catalog().read_now("ask", move |view| {
            let mut session = view.session(id)?.expect("a session");
            session.spec.max_runtime_seconds = Some(7_200);
            keep_session_within_budgets(view, &seen, &session, now)
        });
        assert_eq!(code(asked), expected);
    }
}

#[tokio::test]
async fn what_is_on_hold_or_starts_later_reserves_nothing() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let budget = two_hours(&server, &boss).await;
    let later = LaunchRequest {
        start_at: Some(Timestamp::parse("2027-03-01T00:00:00Z").unwrap()),
        ..one_gpu(Some(86_400))
    };
    sessions::launch(&server, &mina, later, None).await.unwrap();
    assert_eq!(uses(&server, &boss, &budget).await[1], "0.00");
    let launch = async || sessions::launch(&server, &mina, one_gpu(Some(5_400)), None).await;
    let held = launch().await.unwrap().sessions[0].id.to_string();
    sessions::hold(&server, &mina, &held).await.unwrap();
    assert_eq!(uses(&server, &boss, &budget).await[1], "0.00");
    launch().await.unwrap();
    let released = sessions::release(&server, &mina, &held).await;
    assert_eq!(code(released), codes::BUDGET_TOO_LONG);
}

#[tokio::test]
async fn a_clock_that_is_set_reserves_neither_more_nor_less() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let budget = two_hours(&server, &boss).await;
    running(&server, &mina, 3_600).await;
    server.clock().set(server.clock().now().plus_seconds(1_800));
    meter(&server);
    let before = uses(&server, &boss, &budget).await;
    assert_eq!(before[1], "0.54");
    for offset in [-86_400, 3_000] {
        let now = server.clock().now();
        let set = Timestamp::from_millis(now.as_millis() + offset * 1_000);
        let uptime = server.clock().uptime().millis;
        server
            .clock()
            .set_both(set, Timestamp::from_millis(uptime.cast_signed()));
        assert_eq!(uses(&server, &boss, &budget).await, before);
    }
}

#[tokio::test]
async fn what_was_used_while_the_clock_was_ahead_stays_in_the_budget() {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let budget = two_hours(&server, &boss).await;
    running(&server, &mina, 3_600).await;
    let clock = server.clock();
    clock.set(clock.now().plus_seconds(1_800));
    let right = clock.now();
    for wall in [right.plus_seconds(40 * 86_400), right] {
        let uptime = Timestamp::from_millis(clock.uptime().millis.cast_signed());
        clock.set_both(wall, uptime.plus_seconds(60));
        meter(&server);
    }
    assert_eq!(
        uses(&server, &boss, &budget).await,
        ["0.54", "0.50", "0.96"]
    );
}

#[tokio::test]
async fn administrators_of_a_domain_do_not_change_what_the_site_gave() {
    let (server, boss, _) = site().await;
    tenancy::create_domain(&server, &boss, "biology", "", None)
        .await
        .unwrap();
    tenancy::create_project(&server, &boss, Some("biology"), "cells", "", None)
        .await
        .unwrap();
    let domain = Some("biology");
    users::create_once(&server, &boss, "chief", Role::User, GOOD, domain, None)
        .await
        .unwrap();
    let role = GrantRole::Administrator;
    tenancy::grant(&server, &boss, "chief", role, domain, None)
        .await
        .unwrap();
    let chief = sign_in(&server, "chief", GOOD, HERE).await.unwrap().caller;
    let of_cells = NewBudgetBody {
        user: None,
        project: Some("biology/cells".to_owned()),
        ..of_mina("5")
    };
    let site = create(&server, &boss, of_cells.clone(), None)
        .await
        .unwrap();
    let own = create(&server, &chief, of_cells, None).await.unwrap();
    let (site, own) = (site.value, own.value);
    assert!(site.of_site && !own.of_site);
    let more = BudgetPatchBody {
        gpu_hours: Some("500".to_owned()),
        hard: None,
    };
    for refused in [
        code(change(&server, &chief, &site.id.to_string(), more.clone(), None).await),
        code(remove(&server, &chief, &site.id.to_string()).await),
        code(create(&server, &chief, of_mina("1"), None).await),
    ] {
        assert_ne!(refused, "done");
    }
    let changed = change(&server, &chief, &own.id.to_string(), more, None).await;
    assert_eq!(changed.unwrap().gpu_hours, "500.00");
    for one in listed(&server, &chief).await.unwrap() {
        assert_eq!(one.may_change, one.budget.id == own.id);
    }
    remove(&server, &boss, &own.id.to_string()).await.unwrap();
}

#[tokio::test]
async fn nobody_bounds_who_outranks_them_and_who_is_removed_keeps_no_budget() {
    let (server, boss, mina) = site().await;
    users::create_once(&server, &boss, "chief", Role::User, GOOD, None, None)
        .await
        .unwrap();
    let role = GrantRole::Administrator;
    tenancy::grant(&server, &boss, "chief", role, Some("default"), None)
        .await
        .unwrap();
    let chief = sign_in(&server, "chief", GOOD, HERE).await.unwrap().caller;
    let of_boss = NewBudgetBody {
        user: Some("boss".to_owned()),
        ..of_mina("0")
    };
    let refused = create(&server, &chief, of_boss, None).await;
    assert_eq!(code(refused), codes::USER_OUTRANKED);
    create(&server, &chief, of_mina("1"), None).await.unwrap();
    let id = mina.subject.user;
    let removed = server
        .catalog()
        .write_now(Lane::Requests, "remove", move |rows| rows.remove_user(id));
    removed.unwrap();
    assert_eq!(list(&server, &boss).await.unwrap(), []);
}

/// Numbers that look random, the same for each seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Gives a session its place and runs it from now on, or ends it.
fn carry_out(server: &Server, id: SessionId, share: u32, ends: bool) {
    let node = server.node();
    let done = server
        .catalog()
        .write_now(Lane::Loops, "carry out", move |rows| {
            let now = rows.now;
            let device = DeviceShare {
                index: 0,
                share: GpuShare(share),
                memory: Bytes(0),
                part: None,
                simulated: false,
            };
            rows.change_session(id, None, "test", None, |session| {
                match ends {
                    true => session.end(Outcome::Succeeded, Some(0), now),
                    false => {
                        session.place(node, vec![device], reasons::placement_kept("box"), now);
                        session.run_since(now);
                    }
                }
                true
            })
        });
    done.unwrap();
}

/// What goes wrong in a play.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// Sessions hold their share for an hour more.
    Overruns,
    /// What loses its GPUs is queued again without asking the budget.
    QueuesUnasked,
}

/// One session of the play.
struct Played {
    id: SessionId,
    share: u32,
    limit: u64,
    ends: Timestamp,
    stops: bool,
    again: bool,
}

impl Played {
    /// Runs it from now on; one run in two goes into its limit and is slow to stop.
    fn run(&mut self, server: &Server, dice: &mut Dice, fault: Fault) {
        carry_out(server, self.id, self.share, false);
        let longest = self.limit + rules::budget::BEYOND_RUN_SECONDS;
        let held = match dice.below(2) {
            0 => longest,
            _ => 1 + dice.below(longest),
        };
        let more = if fault == Fault::Overruns { 3_600 } else { 0 };
        self.ends = server.clock().now().plus_seconds(held + more);
        (self.stops, self.again) = (false, false);
    }

    /// Loses its GPUs to others: it stops within half a minute, and waits in the queue again.
    fn lose(&mut self, server: &Server, dice: &mut Dice, fault: Fault) {
        let id = self.id;
        self.again = match fault {
            Fault::QueuesUnasked => {
                let queued = server
                    .catalog()
                    .write_now(Lane::Loops, "queue again", move |rows| {
                        rows.change_session(id, None, "test", None, |session| {
                            session.restart = true;
                            true
                        })
                    });
                queued.unwrap();
                true
            }
            Fault::Nothing | Fault::Overruns => displaced(server, id).restart,
        };
        self.stops = true;
        let stopped = server.clock().now().plus_seconds(dice.below(30));
        self.ends = self.ends.min(stopped);
    }
}

/// Launches, runs, displaces and ends sessions at random; each holds its share for its limit and what is set aside beside it
/// at most. Gives whether more than the budget was used, and how many launches were admitted.
async fn played(seed: u64, fault: Fault) -> (bool, usize) {
    let (server, boss, mina) = site().await;
    put_gpu(&server);
    let budget = two_hours(&server, &boss).await;
    let id = budget.id.to_string();
    let mut dice = Dice(seed * 2_654_435_761 + 1);
    let mut live: Vec<Played> = Vec::new();
    let (mut exceeded, mut admitted) = (false, 0);
    for _ in 0..60 {
        let share = 1 + u32::try_from(dice.below(100)).unwrap();
        let limit = 60 + dice.below(3_600);
        let asked = LaunchRequest {
            resources: Resources {
                gpu: Some(GpuShare(share)),
                ..Resources::default()
            },
            ..one_gpu(Some(limit))
        };
        if let Ok(launched) = sessions::launch(&server, &mina, asked, None).await {
            let mut one = Played {
                id: launched.sessions[0].id,
                share,
                limit,
                ends: server.clock().now(),
                stops: false,
                again: false,
            };
            one.run(&server, &mut dice, fault);
            live.push(one);
            admitted += 1;
        }
        if let Some(one) = live.iter_mut().find(|one| !one.stops)
            && dice.below(3) == 0
        {
            one.lose(&server, &mut dice, fault);
        }
        let next = server.clock().now().plus_seconds(1 + dice.below(900));
        loop {
            live.sort_unstable_by_key(|one| (one.ends, one.id));
            let Some(first) = live.first_mut().filter(|one| one.ends <= next) else {
                break;
            };
            server.clock().set(first.ends);
            carry_out(&server, first.id, 0, true);
            match first.again {
                true => first.run(&server, &mut dice, fault),
                false => {
                    live.remove(0);
                }
            }
        }
        server.clock().set(next);
        if dice.below(3) == 0 {
            meter(&server);
        }
        let told = get(&server, &boss, &id).await.unwrap();
        let hours = |text: &str| GpuHours::parse(text).expect("GPU-hours");
        exceeded |= hours(&told.used) > hours(&told.gpu_hours);
    }
    (exceeded, admitted)
}

#[tokio::test]
async fn a_hard_budget_is_not_exceeded_by_launches_and_requeues_and_faults_are_seen() {
    let (mut overruns, mut unasked) = (0, 0);
    for seed in 1..=6 {
        let (exceeded, admitted) = played(seed, Fault::Nothing).await;
        assert!(!exceeded, "seed {seed}");
        assert!(admitted > 1, "seed {seed} admits {admitted}");
        overruns += usize::from(played(seed, Fault::Overruns).await.0);
        unasked += usize::from(played(seed, Fault::QueuesUnasked).await.0);
    }
    assert!(
        overruns >= 3,
        "the planted overrun shows in {overruns} seeds of 6"
    );
    assert!(
        unasked >= 2,
        "the planted requeue shows in {unasked} seeds of 6"
    );
}
