//! Which policy bounds what a user has waiting: the site's for each user, a project's and a domain's for all of
//! their members together, the strictest of them.

use std::io;

use api::policies::PolicyPatchBody;
use rules::names::UserId;
use rules::quota::{LimitKey, PolicyLevel, PolicyLimits};
use rules::storage::StorageEnforcement;
use rules::tenancy::{DomainId, ProjectId};
use store::quota::{ScopeKeeper, ScopeLease, ScopePlace, ScopeUse};

use super::*;
use crate::access::local_root;
use crate::actions::policies;
use crate::catalog::policies::PolicySubjects;

/// Attaches a policy with these limits, in the place of what the level had.
fn attach(server: &Server, level: &'static str, subject: Vec<u8>, limits: &'static str) {
    server
        .catalog()
        .write_now(Lane::Requests, "attach a policy", move |rows| {
            rows.attach_policy(level, &subject, limits)
        })
        .unwrap();
}

fn replicas(replicas: u32) -> LaunchRequest {
    LaunchRequest {
        replicas,
        ..LaunchRequest::default()
    }
}

async fn limit_of(server: &Server, caller: &Caller, number: u32) -> Option<String> {
    match launch(server, caller, replicas(number), None).await {
        Ok(_) => None,
        Err(Failure::Refusal(refusal)) => {
            assert_eq!(refusal.kind, RefusalKind::TooOften);
            Some(refusal.code)
        }
        Err(Failure::Fault(fault)) => panic!("{}", base::observe::chain(&fault)),
    }
}

#[test]
fn the_first_policy_has_the_limits_that_the_constants_give() {
    let server = server();
    let subjects = PolicySubjects {
        domain: DomainId::DEFAULT,
        project: ProjectId::DEFAULT,
        user: UserId(uuid::Uuid::nil()),
    };
    let attached = server
        .catalog()
        .read_now("look", |view| view.policies_of(&subjects))
        .unwrap();
    assert_eq!(attached.len(), 1);
    assert_eq!(
        (attached[0].level, attached[0].name.as_str()),
        (PolicyLevel::Site, "default")
    );
    assert_eq!(
        attached[0].limits,
        PolicyLimits {
            waiting: Some(u64::from(launch::MAX_WAITING)),
            waiting_bytes: Some(launch::MAX_WAITING_BYTES),
            ..PolicyLimits::NONE
        }
    );
}

#[tokio::test]
async fn the_sites_policy_bounds_each_user_and_the_constants_what_it_does_not_name() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let lee = user(&server, "lee", Role::User);
    attach(&server, "site", Vec::new(), r#"{"waiting":3}"#);
    for user in [&kim, &lee] {
        assert_eq!(limit_of(&server, user, 3).await, None);
        let full = Some("queue.own-full".to_owned());
        assert_eq!(limit_of(&server, user, 1).await, full);
    }
    attach(&server, "site", Vec::new(), r#"{"waiting_bytes":1}"#);
    let large = LaunchRequest {
        command: vec!["true".into()],
        ..LaunchRequest::default()
    };
    let refused = refusal(launch(&server, &kim, large, None).await);
    assert_eq!(refused.code, "queue.own-too-large");
    attach(&server, "site", Vec::new(), "{}");
    let most = launch::MAX_WAITING - 3;
    for number in [500, most - 500] {
        assert_eq!(limit_of(&server, &kim, number).await, None);
    }
    assert!(limit_of(&server, &kim, 1).await.is_some());
}

#[tokio::test]
async fn bytes_are_those_of_each_session_and_not_of_the_largest_for_all() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let of = |letters: usize| LaunchRequest {
        command: vec!["x".repeat(letters)],
        ..LaunchRequest::default()
    };
    attach(&server, "site", Vec::new(), r#"{"waiting_bytes":4000}"#);
    // Three of the largest would be too much, one large and three small ones are not.
    for letters in [1_600, 1, 1, 1] {
        launch(&server, &kim, of(letters), None).await.unwrap();
    }
    let refused = refusal(launch(&server, &kim, of(2_400), None).await);
    assert_eq!(refused.code, "queue.own-too-large");
}

#[tokio::test]
async fn the_strictest_of_user_project_and_domain_holds() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let lee = user(&server, "lee", Role::User);
    let own = kim.subject.user.0.as_bytes().to_vec();
    attach(&server, "user", own, r#"{"waiting":2}"#);
    let project = ProjectId::DEFAULT.0.as_bytes().to_vec();
    attach(&server, "project", project, r#"{"waiting":5}"#);
    assert_eq!(
        limit_of(&server, &kim, 3).await.as_deref(),
        Some("queue.own-full")
    );
    assert_eq!(limit_of(&server, &kim, 2).await, None);
    // Of the five of the project three are left, for whom it may be.
    assert_eq!(
        limit_of(&server, &lee, 4).await.as_deref(),
        Some("limit.reached")
    );
    assert_eq!(limit_of(&server, &lee, 3).await, None);
    let domain = DomainId::DEFAULT.0.as_bytes().to_vec();
    attach(&server, "domain", domain, r#"{"waiting":4}"#);
    // More than it allows wait already: nothing ends, and nothing more comes.
    let refused = refusal(launch(&server, &lee, replicas(1), None).await);
    assert_eq!(refused.code, "limit.reached");
    assert_eq!(refused.values["used"], "5");
    assert_eq!(refused.values["limit"], "4");
}

#[tokio::test]
async fn each_member_of_a_project_has_the_limit_by_themselves_and_there_alone() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let lee = user(&server, "lee", Role::User);
    let project = ProjectId::DEFAULT.0.as_bytes().to_vec();
    attach(&server, "member", project, r#"{"waiting":2}"#);
    for user in [&kim, &lee] {
        assert_eq!(limit_of(&server, user, 2).await, None);
        let full = Some("limit.reached".to_owned());
        assert_eq!(limit_of(&server, user, 1).await, full);
    }
    let subjects = PolicySubjects {
        domain: DomainId::DEFAULT,
        project: ProjectId::DEFAULT,
        user: kim.subject.user,
    };
    let (elsewhere, here) = server
        .catalog()
        .read_now("look", |view| {
            let other = ProjectId(uuid::Uuid::from_u128(9));
            let elsewhere = view.waiting_of_member(subjects.user, other)?;
            Ok((elsewhere, launch::effective_limits(view, &subjects)?))
        })
        .unwrap();
    assert_eq!(elsewhere.waiting, 0, "what waits in another project");
    let waiting = here.iter().find(|one| one.key == LimitKey::Waiting);
    let waiting = waiting.expect("a limit of what waits");
    assert_eq!(
        (waiting.level, waiting.value, waiting.used, waiting.left),
        (PolicyLevel::Member, 2, 2, 0)
    );
}

#[tokio::test]
async fn a_priority_above_the_usual_one_needs_a_policy() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let asks = |priority| LaunchRequest {
        priority,
        ..LaunchRequest::default()
    };
    let refused = refusal(launch(&server, &kim, asks(Some(11)), None).await);
    assert_eq!(refused.code, "priority.not-allowed");
    assert_eq!(refused.pointer.as_deref(), Some("/priority"));
    let refused = refusal(preview(&server, &kim, asks(Some(11))).await);
    assert_eq!(refused.code, "priority.not-allowed");
    for (asked, given) in [(None, 10), (Some(10), 10), (Some(0), 0)] {
        let session = one(&server, &kim, asks(asked)).await.unwrap();
        assert_eq!(session.priority, given);
        assert!(!session.yields);
    }
    let own = kim.subject.user.0.as_bytes().to_vec();
    attach(&server, "user", own, r#"{"priority":50}"#);
    let session = one(&server, &kim, asks(Some(50))).await.unwrap();
    assert_eq!(session.priority, 50);
    let refused = refusal(launch(&server, &kim, asks(Some(51)), None).await);
    assert_eq!(refused.code, "limit.each");
    // The strictest policy holds, and a launch that names none gets what it leaves.
    let project = ProjectId::DEFAULT.0.as_bytes().to_vec();
    attach(&server, "project", project, r#"{"priority":5}"#);
    let session = one(&server, &kim, asks(None)).await.unwrap();
    assert_eq!(session.priority, 5);
    // Who asks for the usual one by its number is not given another without a word.
    for asked in [6, 10] {
        let refused = refusal(launch(&server, &kim, asks(Some(asked)), None).await);
        assert_eq!(refused.code, "limit.each", "{asked}");
        assert_eq!(refused.pointer.as_deref(), Some("/priority"));
        assert!(refused.text.contains("allows a session 5 at most"));
        let refused = refusal(preview(&server, &kim, asks(Some(asked))).await);
        assert_eq!(refused.code, "limit.each", "{asked}");
    }
    let session = one(&server, &kim, asks(Some(5))).await.unwrap();
    assert_eq!(session.priority, 5);
}

/// A waiting session is set before and behind others of its owner, as far as its policies allow, and keeps its wait.
#[tokio::test]
async fn the_priority_of_a_session_that_waits_is_changed_within_its_policies() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let mut request = named("runs");
    request.resources.cpu = Some(CpuShare(300));
    let runs = one(&server, &kim, request.clone()).await.unwrap();
    carry_out(&server, runs.id, None);
    for name in ["first", "second"] {
        server.clock().set(server.clock().now().plus_seconds(1));
        request.name = Some(name.to_owned());
        one(&server, &kim, request.clone()).await.unwrap();
    }
    let first = async || {
        let waiting = queue(&server, &kim, None).await.unwrap().items;
        waiting[0].session.name.to_string()
    };
    assert_eq!(first().await, "first");
    let before = get(&server, &kim, "first").await.unwrap();
    let changed = set_priority(&server, &kim, "first", 5, Some(before.generation));
    let changed = changed.await.unwrap();
    assert_eq!(changed.priority, 5);
    assert_eq!(first().await, "second");
    let stale = set_priority(&server, &kim, "first", 10, Some(before.generation)).await;
    assert_eq!(refusal(stale).code, "session.stale");
    let same = set_priority(&server, &kim, "first", 5, None).await.unwrap();
    assert_eq!(same.generation, changed.generation, "nothing was written");
    for (asked, code) in [
        (11, "priority.not-allowed"),
        (101, "priority.out-of-range"),
        (u32::MAX, "priority.out-of-range"),
    ] {
        let set = refusal(set_priority(&server, &kim, "first", asked, None).await);
        assert_eq!(
            (set.code.as_str(), set.pointer.as_deref()),
            (code, Some("/priority"))
        );
        let asks = Resize::default();
        let told = preview_change(&server, &kim, "first", asks, None, Some(asked)).await;
        assert_eq!(refusal(told).code, code);
    }
    let settled = refusal(set_priority(&server, &kim, "runs", 5, None).await);
    assert_eq!(settled.code, "session.not-waiting");
    // The journal has both values.
    let told = events(&server, &kim, "first").await.unwrap();
    let told = told
        .iter()
        .find(|event| event.code == "session.priority-set");
    let told = told.expect("an event");
    assert_eq!((told.before.as_str(), told.after.as_str()), ("10", "5"));
    // What it waited so far it keeps.
    set_priority(&server, &kim, "first", 10, None)
        .await
        .unwrap();
    assert_eq!(first().await, "first");
}

#[tokio::test]
async fn a_session_beyond_what_one_may_be_is_refused_and_a_sum_makes_it_wait() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let asks = |cpu: u32| LaunchRequest {
        resources: api::sessions::Resources {
            cpu: Some(CpuShare(cpu)),
            ..Default::default()
        },
        ..LaunchRequest::default()
    };
    let own = kim.subject.user.0.as_bytes().to_vec();
    let limits = r#"{"cpu_each":150,"disk_each":1073741824,"runtime_seconds":3600}"#;
    attach(&server, "user", own, limits);
    let refused = refusal(launch(&server, &kim, asks(200), None).await);
    assert_eq!(refused.code, "limit.each");
    assert_eq!(refused.pointer.as_deref(), Some("/resources/cpu"));
    let long = LaunchRequest {
        max_runtime_seconds: Some(3_601),
        ..asks(100)
    };
    let refused = refusal(launch(&server, &kim, long, None).await);
    assert_eq!(refused.pointer.as_deref(), Some("/max_runtime_seconds"));
    let mut large = asks(100);
    large.resources.disk = Some(rules::units::Bytes::gib(2));
    let refused = refusal(launch(&server, &kim, large, None).await);
    assert_eq!(refused.pointer.as_deref(), Some("/resources/disk"));
    // A session that names no limit has that of the policy.
    let session = one(&server, &kim, asks(100)).await.unwrap();
    assert_eq!(session.max_runtime_seconds, Some(3_600));
    assert_eq!(session.resources.disk, Some(rules::units::Bytes::gib(1)));
    let id = session.id.to_string();
    let more = set_time_limit(&server, &kim, &id, Some(3_601), None).await;
    assert_eq!(refusal(more).code, "limit.each");
    let none = set_time_limit(&server, &kim, &id, None, None).await;
    assert_eq!(none.unwrap().max_runtime_seconds, Some(3_600));

    let project = ProjectId::DEFAULT.0.as_bytes().to_vec();
    attach(&server, "project", project, r#"{"cpu":250}"#);
    let refused = refusal(launch(&server, &kim, asks(300), None).await);
    assert_eq!(refused.code, "limit.each");
    carry_out(&server, session.id, None);
    let lee = user(&server, "lee", Role::User);
    let told = preview(&server, &lee, asks(200)).await.unwrap();
    assert_eq!(told.verdict, Verdict::Wait);
    assert_eq!(told.blockers[0].code, "limit.project");
    let told = preview(&server, &lee, asks(150)).await.unwrap();
    assert_eq!(told.verdict, Verdict::Now, "{told:?}");
    // One that runs grows to what is left, and no further.
    let id = session.id.to_string();
    attach(
        &server,
        "user",
        kim.subject.user.0.as_bytes().to_vec(),
        "{}",
    );
    let refused = refusal(resize(&server, &kim, &id, cores(300), None).await);
    assert_eq!(refused.code, "limit.each");
    carry_out(
        &server,
        one(&server, &lee, asks(100)).await.unwrap().id,
        None,
    );
    let refused = refusal(resize(&server, &kim, &id, cores(200), None).await);
    assert_eq!(refused.code, "limit.held");
    assert!(resize(&server, &kim, &id, cores(150), None).await.is_ok());
    // What is beyond a limit that was lowered meanwhile shrinks, and grows no more.
    let project = ProjectId::DEFAULT.0.as_bytes().to_vec();
    attach(&server, "project", project, r#"{"cpu":100}"#);
    let refused = refusal(resize(&server, &kim, &id, cores(160), None).await);
    assert_eq!(refused.code, "limit.each");
    assert!(resize(&server, &kim, &id, cores(140), None).await.is_ok());
}

#[tokio::test]
async fn a_policy_that_asks_for_a_time_limit_refuses_a_session_without_one() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let free = launch(&server, &kim, LaunchRequest::default(), None).await;
    let free = free.unwrap().sessions[0].id.to_string();
    let patch = PolicyPatchBody {
        require_limit: Some(true),
        ..PolicyPatchBody::default()
    };
    let boss = local_root(&server);
    let changed = policies::change(&server, &boss, "default", patch, None).await;
    assert!(changed.unwrap().require_limit);

    let none = LaunchRequest::default();
    for refused in [
        refusal(preview(&server, &kim, none.clone()).await),
        refusal(launch(&server, &kim, none, None).await),
        // What waits already waits on, until it is changed.
        refusal(set_time_limit(&server, &kim, &free, None, None).await),
    ] {
        assert_eq!(refused.code, "limit.needed");
        assert_eq!(refused.pointer.as_deref(), Some("/max_runtime_seconds"));
    }
    let limited = LaunchRequest {
        max_runtime_seconds: Some(3_600),
        ..LaunchRequest::default()
    };
    let limited = launch(&server, &kim, limited, None).await.unwrap();
    let limited = limited.sessions[0].id.to_string();
    let shorter = set_time_limit(&server, &kim, &limited, Some(60), None).await;
    assert_eq!(shorter.unwrap().max_runtime_seconds, Some(60));
    let removed = refusal(set_time_limit(&server, &kim, &limited, None, None).await);
    assert_eq!(removed.code, "limit.needed");
}

/// Holds each limit, or those of folders alone, and keeps nothing.
#[derive(Debug)]
struct HeldDisks {
    of_sessions: bool,
}

impl ScopeKeeper for HeldDisks {
    fn enforcement(&self) -> StorageEnforcement {
        match self.of_sessions {
            true => StorageEnforcement::Image,
            false => StorageEnforcement::Native,
        }
    }

    fn holds_sessions(&self) -> bool {
        self.of_sessions
    }

    fn enter(&self, _: &ScopePlace, _: Option<Bytes>) -> io::Result<ScopeLease> {
        Ok(ScopeLease::default())
    }

    fn hold_to(&self, _: &ScopePlace, _: Bytes) -> io::Result<()> {
        Ok(())
    }

    fn measure(&self, _: &ScopePlace) -> io::Result<Option<ScopeUse>> {
        Ok(None)
    }

    fn remove_empty(&self, _: &ScopePlace) -> io::Result<()> {
        Ok(())
    }
}

/// A server with a usual disk of 3 GiB.
fn with_disks(data: &std::path::Path, of_sessions: bool) -> Server {
    let settings = base::settings::Settings {
        data: data.to_path_buf(),
        session_disk: "3g".to_owned(),
        ..(*Server::for_tests().settings()).clone()
    };
    let server = Server::start(settings, base::observe::Clock::system()).unwrap();
    server.put_test_node("fardel-01");
    server.bring_scopes(std::sync::Arc::new(HeldDisks { of_sessions }));
    server
}

/// The disk may hold folders by its own quota while nothing is there to make the disk of a session with.
#[tokio::test]
async fn no_disk_is_promised_where_folders_alone_are_held() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_disks(folder.path(), false);
    let kim = user(&server, "kim", Role::User);
    assert!(!holds_disks(&server, &kim).await.unwrap());
    assert_eq!(usual_disk(&server, &kim).await.unwrap(), None);
    let session = one(&server, &kim, named("none")).await.unwrap();
    assert_eq!(session.resources.disk, None);
    let mut typed = named("typed");
    typed.resources.disk = Some(Bytes::gib(5));
    let refused = refusal(launch(&server, &kim, typed, None).await);
    assert_eq!(refused.code, "disk.not-held");
}

#[tokio::test]
async fn a_session_that_names_no_disk_has_the_usual_one_where_limits_are_held() {
    let bare = server();
    let lee = user(&bare, "lee", Role::User);
    let none = one(&bare, &lee, named("none")).await.unwrap();
    assert_eq!(none.resources.disk, None, "nothing holds a limit there");
    let folder = tempfile::tempdir().unwrap();
    let server = with_disks(folder.path(), true);
    let kim = user(&server, "kim", Role::User);
    assert!(holds_disks(&server, &kim).await.unwrap());
    let disk_of = |session: SessionView| {
        let row = server
            .catalog()
            .read_now("row", |view| view.session(session.id))
            .unwrap();
        row.unwrap().spec.demand.disk
    };
    let usual = one(&server, &kim, named("usual")).await.unwrap();
    assert_eq!(disk_of(usual), Some(Bytes::gib(3)));
    // One of an older version has none before it starts again; then it is held as a new one is.
    let old = one(&server, &kim, named("old")).await.unwrap();
    let id = old.id;
    server
        .catalog()
        .write_now(Lane::Requests, "take its disk away", move |rows| {
            rows.change_session(id, None, "test", None, |session| {
                session.spec.demand.disk = None;
                true
            })?;
            Ok(())
        })
        .unwrap();
    carry_out(&server, id, Some(0));
    let again = restart(&server, &kim, "old").await.unwrap();
    assert_eq!(disk_of(again), Some(Bytes::gib(3)));
    let two = LaunchRequest {
        containers: 2,
        ..named("two")
    };
    let two = one(&server, &kim, two).await.unwrap();
    assert_eq!(disk_of(two), Some(Bytes::gib(6)), "each of them has it");
    let mut typed = named("typed");
    typed.resources.disk = Some(Bytes::gib(5));
    let typed = one(&server, &kim, typed).await.unwrap();
    assert_eq!(disk_of(typed), Some(Bytes::gib(5)));
    let own = kim.subject.user.0.as_bytes().to_vec();
    let late = one(&server, &kim, named("late")).await.unwrap();
    let id = late.id.to_string();
    attach(&server, "user", own, r#"{"disk_each":1073741824}"#);
    let shorter = set_time_limit(&server, &kim, &id, Some(3600), None).await;
    assert_eq!(
        disk_of(shorter.unwrap()),
        Some(Bytes::gib(1)),
        "it starts with less"
    );
    let limited = one(&server, &kim, named("limited")).await.unwrap();
    assert_eq!(disk_of(limited), Some(Bytes::gib(1)));
}
