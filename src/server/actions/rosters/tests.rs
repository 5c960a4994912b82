//! Rosters through the actions that doors call: what a plan says of each row, what applying it makes, and what undoing
//! leaves.

use std::net::{IpAddr, Ipv4Addr};

use api::rosters::RosterAction;
use api::sessions::LaunchRequest;
use rules::session::SessionState;
use rules::users::Role;

use super::super::{sessions, tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// A server with the administrator boss, the user mina, and the project vision.
async fn a_server() -> (Server, Caller) {
    let server = Server::for_tests();
    server.put_test_node("one");
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let boss = boss.caller;
    users::create(&server, &boss, "mina", Role::User, GOOD)
        .await
        .unwrap();
    tenancy::create_project(&server, &boss, None, "vision", "", None)
        .await
        .unwrap();
    (server, boss)
}

async fn told(server: &Server, caller: &Caller, text: &str) -> Vec<(RosterAction, String)> {
    let plan = plan(server, caller, text.as_bytes(), None).await.unwrap();
    plan.rows
        .into_iter()
        .map(|row| {
            let faults = row.faults.iter();
            let codes = faults.map(|fault| format!("{} {}", fault.column, fault.refusal.code));
            (row.action, codes.collect::<Vec<_>>().join(", "))
        })
        .collect()
}

async fn applied(server: &Server, caller: &Caller, text: &str) -> AppliedRoster {
    let plan = plan(server, caller, text.as_bytes(), None).await.unwrap();
    apply(server, caller, text.as_bytes(), None, &plan.digest)
        .await
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// Accounts, memberships and roles, without the versions of rows.
fn dump(server: &Server) -> Vec<String> {
    let all = server.catalog().read_now("dump", |view| {
        let everything =
            rules::permissions::reach(&access::local_root(server).subject, Permission::SystemRead);
        let mut told = Vec::new();
        for user in view.users(&everything)? {
            let grants = view.grants_of(user.id)?;
            let user = User {
                generation: 0,
                grants,
                ..user
            };
            told.push(format!("{user:?}"));
        }
        Ok(told)
    });
    all.unwrap()
}

#[tokio::test]
async fn new_accounts_have_the_time_zone_of_who_imports_them() {
    let (server, boss) = a_server().await;
    let boss = Caller {
        time_zone: "Asia/Seoul".to_owned(),
        ..boss
    };
    applied(&server, &boss, "name\nhana\n").await;
    users::create(&server, &boss, "sora", Role::User, GOOD)
        .await
        .unwrap();
    let known = users::list(&server, &boss).await.unwrap();
    let zone = |name: &str| {
        let found = known.iter().find(|user| user.name.as_str() == name);
        found.map(|user| user.time_zone.as_str())
    };
    assert_eq!(zone("hana"), Some("Asia/Seoul"));
    assert_eq!(zone("sora"), Some("Asia/Seoul"));
    assert_eq!(zone("mina"), Some(""), "added before one was known");
}

#[tokio::test]
async fn a_plan_says_of_each_row_what_it_would_do_or_what_is_wrong() {
    use RosterAction::{Create, Fault, Join, Unchanged};
    let (server, boss) = a_server().await;
    let text = "name,full_name,email,password,project,role,expires_at\n\
        new,New One,NEW@lab.example,,vision,lead,2999-01-31\n\
        mina,,,,vision,,\n\
        mina2,,,,nowhere,,\n\
        Bad Name,,,,,,\n\
        x1,,no-address,,,,\n\
        x2,,,short,,,\n\
        x3,,,,,king,\n\
        x4,,,,,,tomorrow\n\
        x5,,,,,,2001-01-01\n\
        new,,,,,,\n\
        x6,,new@lab.example,,,,\n\
        boss,,,another-good-one-9,,,\n\
        ,,only.address@lab.example,,,,\n\
        ,Nobody,,,,,\n";
    let expected = [
        (Create, ""),
        (Join, ""),
        (Fault, "project project.not-found"),
        (Fault, "name user.name-invalid"),
        (Fault, "email user.email-invalid"),
        (Fault, "password password.too-short"),
        (Fault, "role grant.role-invalid"),
        (Fault, "expires_at roster.date"),
        (Fault, "expires_at grant.ends-in-past"),
        (Fault, "name roster.row-twice"),
        (Fault, "email roster.row-twice"),
        (Fault, "password roster.password-known"),
        (Create, ""),
        (Fault, "name roster.name-missing"),
    ]
    .map(|(action, codes)| (action, codes.to_owned()));
    assert_eq!(told(&server, &boss, text).await, expected);
    let refused = apply(&server, &boss, text.as_bytes(), None, "").await;
    assert_eq!(code(refused), "roster.faulty");
    assert_eq!(
        told(&server, &boss, "name\nmina\n").await,
        [(Unchanged, String::new())]
    );
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    let denied = plan(&server, &mina, b"name\nkim\n", None).await;
    assert_eq!(code(denied), "role.administrator-needed");
}

#[tokio::test]
async fn an_applied_roster_makes_accounts_that_choose_their_own_password_and_undo_leaves_nothing() {
    let (server, boss) = a_server().await;
    let before = dump(&server);
    let text = "name,full_name,email,project,role\n\
        kim,Kim,kim@lab.example,vision,lead\n\
        mina,Mina Han,mina@lab.example,vision,\n\
        lee,,,,\n";
    let made = applied(&server, &boss, text).await;
    assert_eq!((made.creates, made.joins, made.changes), (2, 1, 0));
    let plan_again = plan(&server, &boss, text.as_bytes(), None).await.unwrap();
    assert_eq!((plan_again.unchanged, plan_again.changes), (3, 0));

    let undone = undo(&server, &boss, &made.id.to_string()).await.unwrap();
    assert!(undone.undone_at.is_some());
    assert_eq!(dump(&server), before);
    let again = undo(&server, &boss, &made.id.to_string()).await;
    assert_eq!(code(again), "roster.undone");

    let made = applied(&server, &boss, text).await;
    let slip = &made.slips[0];
    assert_eq!((slip.name.as_str(), slip.password.len()), ("kim", 14));
    let by_address = sign_in(&server, "Kim@lab.example", slip.password.as_str(), HERE).await;
    let kim = by_address.unwrap().caller;
    assert!(kim.must_change_password);
    let begun = undo(&server, &boss, &made.id.to_string()).await;
    assert_eq!(code(begun), "roster.begun");
    users::change_password(&server, &kim, slip.password.as_str(), GOOD)
        .await
        .unwrap();
    let kim = sign_in(&server, "kim", GOOD, HERE).await.unwrap().caller;
    assert!(!kim.must_change_password);
    let request = LaunchRequest {
        project: Some("vision".to_owned()),
        ..LaunchRequest::default()
    };
    assert_eq!(
        code(sessions::launch(&server, &kim, request, None).await),
        "done"
    );
}

/// The users of a class that is over are suspended together, and those whom the roster found there are not.
#[tokio::test]
async fn the_users_that_a_roster_made_are_suspended_and_admitted_as_one() {
    let (server, boss) = a_server().await;
    let text = "name,project,role\n\
        kim,vision,\n\
        mina,vision,\n\
        lee,vision,\n\
        gone,vision,\n";
    let made = applied(&server, &boss, text).await;
    let id = made.id.to_string();
    users::remove(&server, &boss, "gone", None).await.unwrap();
    let slip = &made.slips[0];
    let kim = sign_in(&server, "kim", slip.password.as_str(), HERE).await;
    let kim = kim.unwrap().caller;
    users::change_password(&server, &kim, slip.password.as_str(), GOOD)
        .await
        .unwrap();
    let kim = sign_in(&server, "kim", GOOD, HERE).await.unwrap().caller;
    let request = LaunchRequest {
        project: Some("vision".to_owned()),
        ..LaunchRequest::default()
    };
    let waits = sessions::launch(&server, &kim, request, None).await;
    let waits = waits.unwrap().sessions[0].id;
    let set = async |by: &Caller, asked: Suspension| suspend(&server, by, &id, asked).await;
    let suspended = async || {
        let mut names = Vec::new();
        for user in users::list(&server, &boss).await.unwrap() {
            if user.suspended {
                names.push(user.name.to_string());
            }
        }
        names
    };

    let refused = set(&kim, Suspension::SessionsGoOn).await;
    assert_eq!(code(refused), "role.administrator-needed");
    let unknown = suspend(&server, &boss, "x", Suspension::SessionsGoOn).await;
    assert_eq!(code(unknown), "roster.not-found");
    assert!(suspended().await.is_empty());
    let told = async || {
        let all = list(&server, &boss).await.unwrap();
        (all[0].active, all[0].suspended)
    };
    assert_eq!(told().await, (2, 0), "one is gone, one was there before");

    let first = set(&boss, Suspension::SessionsGoOn).await.unwrap();
    assert_eq!(first.users, 2);
    assert_eq!(suspended().await, ["kim", "lee"]);
    assert_eq!(told().await, (0, 2));
    let live = || {
        let read = server
            .catalog()
            .read_now("look", move |view| view.session(waits));
        read.unwrap().unwrap().state() != SessionState::Ended
    };
    assert!(live());
    let again = set(&boss, Suspension::SessionsStop).await.unwrap();
    assert_eq!(again.users, 0, "they are suspended already");
    assert!(!live(), "what waits is cancelled");

    let back = set(&boss, Suspension::Lifted).await.unwrap();
    assert_eq!(back.users, 2);
    assert!(suspended().await.is_empty());
    users::suspend(&server, &boss, "lee", true, None)
        .await
        .unwrap();
    assert_eq!(told().await, (1, 1));
}

/// A class as a Korean spreadsheet writes it: a lead and 79 members, one of whom is there already.
fn class_of_eighty() -> Vec<String> {
    let head = "아이디,이름,이메일,프로젝트,역할,만료일".to_owned();
    let lead = "prof,김교수,prof@school.example,vision,책임자,".to_owned();
    let there = "mina,한미나,mina@school.example,vision,,".to_owned();
    let row = |n: u32| format!("s{n},학생 {n},s{n}@school.example,vision,,2999-02-28");
    let students = (1..=78).map(row);
    [head, lead, there].into_iter().chain(students).collect()
}

/// Undoing it leaves every row of the catalog as it was before, whatever its encoding; what is wrong in three rows is named
/// there, and nothing of it is taken in.
///
/// Proves too: `tests/browser/rosters.mjs`
#[tokio::test]
async fn eighty_rows_of_either_encoding_are_planned_applied_and_undone_to_the_last_row() {
    let utf_8 = |text: &str| text.as_bytes().to_vec();
    let cp949 = |text: &str| encoding_rs::EUC_KR.encode(text).0.into_owned();
    type Encoding<'e> = &'e dyn Fn(&str) -> Vec<u8>;
    let encodings: [Encoding<'_>; 2] = [&utf_8, &cp949];
    for encoded in encodings {
        let (server, boss) = a_server().await;
        let before = crate::catalog::tests::dump::rows(server.catalog());
        let good = class_of_eighty();
        assert_eq!(good.len(), 81);
        let mut bad = good.clone();
        bad[4] = "Student 2,학생 2,,vision,,".to_owned();
        bad[10] = good[3].clone();
        bad[80] = good[80].replace("2999-02-28", "someday");

        let bytes = encoded(&bad.join("\r\n"));
        let seen = plan(&server, &boss, &bytes, None).await.unwrap();
        assert_eq!((seen.rows.len(), seen.faulty), (80, 3));
        let faulty = seen.rows.iter().filter(|row| !row.faults.is_empty());
        let faulty: Vec<(u32, &str)> = faulty
            .map(|row| (row.line, row.faults[0].refusal.code.as_str()))
            .collect();
        let named = [
            (5, "user.name-invalid"),
            (11, "roster.row-twice"),
            (81, "roster.date"),
        ];
        assert_eq!(faulty, named);
        let refused = apply(&server, &boss, &bytes, None, &seen.digest).await;
        assert_eq!(code(refused), "roster.faulty");
        assert_eq!(crate::catalog::tests::dump::rows(server.catalog()), before);

        let bytes = encoded(&good.join("\r\n"));
        let seen = plan(&server, &boss, &bytes, None).await.unwrap();
        assert_eq!((seen.creates, seen.joins, seen.faulty), (79, 1, 0));
        let made = apply(&server, &boss, &bytes, None, &seen.digest)
            .await
            .unwrap();
        assert_eq!(made.slips.len(), 79);
        assert_eq!(made.slips[1].full_name, "학생 1");
        let between = crate::catalog::tests::dump::rows(server.catalog());
        assert_eq!(between["user"].len(), before["user"].len() + 79);
        assert!(between["membership"].len() >= before["membership"].len() + 80);
        undo(&server, &boss, &made.id.to_string()).await.unwrap();
        assert_eq!(crate::catalog::tests::dump::rows(server.catalog()), before);
    }
}

#[tokio::test]
async fn a_lead_brings_in_accounts_that_are_there_and_no_others() {
    let (server, boss) = a_server().await;
    let lead = rules::grants::GrantRole::Lead;
    tenancy::put_member(&server, &boss, "vision", "mina", lead, None)
        .await
        .unwrap();
    users::create(&server, &boss, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    let text = "name,project\njae,vision\nnew,vision\njae2,default\n";
    let rows = told(&server, &mina, text).await;
    assert_eq!(rows[0], (RosterAction::Join, String::new()));
    assert_eq!(rows[1].1, "name role.administrator-needed");
    assert!(rows[2].1.starts_with("project "), "{rows:?}");
    let own = applied(&server, &mina, "name,project\njae,vision\n").await;
    assert_eq!(own.joins, 1);
    let other = list(&server, &mina).await.unwrap();
    assert_eq!(
        (other.len(), list(&server, &boss).await.unwrap().len()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_plan_is_applied_as_it_was_seen_or_not_at_all() {
    let (server, boss) = a_server().await;
    let text = b"name,project\nmina,vision\nnew,vision\n";
    let seen = plan(&server, &boss, text, None).await.unwrap();
    let lead = rules::grants::GrantRole::Lead;
    tenancy::put_member(&server, &boss, "vision", "mina", lead, None)
        .await
        .unwrap();
    let stale = apply(&server, &boss, text, None, &seen.digest).await;
    assert_eq!(code(stale), "roster.stale");
    // The same rows, for a project of the same name elsewhere.
    tenancy::create_domain(&server, &boss, "abroad", "", None)
        .await
        .unwrap();
    tenancy::create_project(&server, &boss, Some("abroad"), "vision", "", None)
        .await
        .unwrap();
    let of = |project| plan(&server, &boss, b"name\nnew\n", Some(project));
    let here = of("default/vision").await.unwrap();
    let abroad = of("abroad/vision").await.unwrap();
    assert_eq!(here.rows[0].project, abroad.rows[0].project);
    assert_ne!(here.digest, abroad.digest);
}

/// Undoing a roster with policies leaves every row as it was, the policy that it made included.
#[tokio::test]
async fn a_roster_attaches_policies_and_makes_one_for_a_share_of_gpus() {
    let (server, boss) = a_server().await;
    let limits = api::policies::LimitsBody {
        sessions: Some(3),
        ..api::policies::LimitsBody::default()
    };
    let asked = api::policies::NewPolicyBody {
        name: "small".to_owned(),
        limits,
        egress: api::policies::EgressBody::default(),
        sudo: false,
        no_inner_door: false,
        no_home: false,
        require_limit: false,
    };
    policies::create(&server, &boss, asked).await.unwrap();
    let before = crate::catalog::tests::dump::rows(server.catalog());
    let text = "name,project,policy,gpu\n\
        mina,vision,small,\n\
        kim,vision,,0.5\n\
        lee,vision,,0.50\n\
        jae,vision,,\n";
    let seen = plan(&server, &boss, text.as_bytes(), None).await.unwrap();
    let named: Vec<&str> = seen.rows.iter().map(|row| row.policy.as_str()).collect();
    assert_eq!(named, ["small", "gpu-0.5", "gpu-0.5", ""]);
    let made = applied(&server, &boss, text).await;
    assert_eq!((made.creates, made.joins), (3, 1));
    let uses = |name: &'static str| {
        let (server, boss) = (&server, &boss);
        async move {
            let policy = policies::get(server, boss, name).await.unwrap();
            let uses = policy.uses.into_iter().map(|one| one.name);
            (policy.limits.gpu, uses.collect::<Vec<_>>())
        }
    };
    let half = Some(rules::units::GpuShare(50));
    let [kim, lee, mina] = ["kim", "lee", "mina"].map(str::to_owned);
    assert_eq!(uses("gpu-0.5").await, (half, vec![kim, lee]));
    assert_eq!(uses("small").await, (None, vec![mina]));
    let again = plan(&server, &boss, text.as_bytes(), None).await.unwrap();
    assert_eq!((again.unchanged, again.changes), (4, 0));
    undo(&server, &boss, &made.id.to_string()).await.unwrap();
    assert_eq!(crate::catalog::tests::dump::rows(server.catalog()), before);

    // Another policy in the place of the first is a change, and undone as one.
    applied(&server, &boss, "name,project,policy\nmina,vision,small\n").await;
    let other = applied(&server, &boss, "name,project,gpu\nmina,vision,1\n").await;
    assert_eq!(other.changes, 1);
    undo(&server, &boss, &other.id.to_string()).await.unwrap();
    assert_eq!(uses("small").await.1, ["mina"]);
    assert_eq!(
        code(policies::get(&server, &boss, "gpu-1").await),
        "policy.not-found"
    );
}

#[tokio::test]
async fn what_a_roster_says_of_policies_is_checked_as_attaching_them_is() {
    let (server, boss) = a_server().await;
    let asked = api::policies::NewPolicyBody {
        name: "gpu-2".to_owned(),
        limits: api::policies::LimitsBody::default(),
        egress: api::policies::EgressBody::default(),
        sudo: false,
        no_inner_door: false,
        no_home: false,
        require_limit: false,
    };
    policies::create(&server, &boss, asked).await.unwrap();
    let text = "name,policy,gpu\n\
        x1,nowhere,\n\
        x2,,lots\n\
        x3,gpu-2,1\n\
        x4,,2\n";
    let rows = told(&server, &boss, text).await;
    let codes: Vec<&str> = rows.iter().map(|(_, codes)| codes.as_str()).collect();
    assert_eq!(codes[0], "policy policy.not-found");
    assert!(codes[1].starts_with("gpu "), "{codes:?}");
    assert_eq!(codes[2], "gpu roster.policy-twice");
    assert_eq!(codes[3], "gpu policy.name-taken");
    // An administrator of the domain makes accounts, and attaches no policies.
    let all = rules::grants::GrantRole::Administrator;
    tenancy::grant(&server, &boss, "mina", all, Some("default"), None)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    let rows = told(&server, &mina, "name,project,gpu\nkim,vision,1\n").await;
    assert_eq!(rows[0].1, "gpu role.administrator-needed");
}

#[tokio::test]
async fn empty_cells_keep_what_a_member_has() {
    let (server, boss) = a_server().await;
    let lead = rules::grants::GrantRole::Lead;
    let end = server.clock().now().plus_seconds(9_000);
    tenancy::put_member(&server, &boss, "vision", "mina", lead, Some(end))
        .await
        .unwrap();
    let text = b"name,full_name,project\nmina,Mina Han,vision\n";
    let seen = plan(&server, &boss, text, None).await.unwrap();
    let row = &seen.rows[0];
    assert_eq!((row.action, row.role), (RosterAction::Change, lead));
    assert_eq!(row.expires_at, Some(end));
}

#[tokio::test]
async fn a_roster_makes_no_account_that_is_called_like_a_part_of_the_server() {
    let (server, boss) = a_server().await;
    let text = "name,email,project\nschedule,,vision\n,system@lab.example,vision\n";
    let reserved = (RosterAction::Fault, "name user.name-reserved".to_owned());
    assert_eq!(
        told(&server, &boss, text).await,
        [reserved.clone(), reserved]
    );
}

#[tokio::test]
async fn undoing_asks_for_the_rights_that_each_change_needs_now() {
    let (server, boss) = a_server().await;
    users::create(&server, &boss, "chief", Role::User, GOOD)
        .await
        .unwrap();
    let (lead, all) = (
        rules::grants::GrantRole::Lead,
        rules::grants::GrantRole::Administrator,
    );
    tenancy::grant(&server, &boss, "chief", all, Some("default"), None)
        .await
        .unwrap();
    let chief = sign_in(&server, "chief", GOOD, HERE).await.unwrap().caller;
    let made = applied(&server, &chief, "name,project\nkim,vision\n").await;
    let id = made.id.to_string();
    // Fewer rights than before: what was made stays.
    tenancy::revoke(&server, &boss, "chief", Some(all), Some("default"))
        .await
        .unwrap();
    tenancy::put_member(&server, &boss, "vision", "chief", lead, None)
        .await
        .unwrap();
    let chief = sign_in(&server, "chief", GOOD, HERE).await.unwrap().caller;
    assert_eq!(code(undo(&server, &chief, &id).await), "user.not-found");
    // A role given since: the account is no longer what the roster made.
    tenancy::grant(&server, &boss, "kim", all, None, None)
        .await
        .unwrap();
    assert_eq!(code(undo(&server, &boss, &id).await), "roster.begun");
}
