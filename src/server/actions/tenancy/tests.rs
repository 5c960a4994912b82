//! Domains, projects and roles through the actions that doors call: who sees what, who changes what, and what
//! stays when a role goes.

use std::net::{IpAddr, Ipv4Addr};

use api::sessions::{LaunchRequest, ListQuery};
use rules::users::Role;

use super::super::{policies, sessions, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

async fn signed_in(server: &Server, name: &str) -> Caller {
    sign_in(server, name, GOOD, HERE).await.unwrap().caller
}

/// A server with the administrator boss, mina and jae in the domain `default`, and abe and eva in `abroad`.
async fn two_domains() -> (Server, Caller) {
    let server = Server::for_tests();
    server.put_test_node("one");
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let boss = boss.caller;
    create_domain(&server, &boss, "abroad", "Abroad", None)
        .await
        .unwrap();
    for (name, domain) in [
        ("mina", None),
        ("jae", None),
        ("abe", Some("abroad")),
        ("eva", Some("abroad")),
    ] {
        users::create_once(&server, &boss, name, Role::User, GOOD, domain, None)
            .await
            .unwrap();
    }
    (server, boss)
}

async fn launch(server: &Server, caller: &Caller, name: &str, project: Option<&str>) -> String {
    let request = LaunchRequest {
        name: Some(name.to_owned()),
        project: project.map(str::to_owned),
        ..LaunchRequest::default()
    };
    code(sessions::launch(server, caller, request, None).await)
}

async fn seen(server: &Server, caller: &Caller) -> Vec<String> {
    let page = sessions::list(server, caller, &ListQuery::default())
        .await
        .unwrap();
    let mut names: Vec<String> = page.items.iter().map(|s| s.name.to_string()).collect();
    names.sort();
    names
}

async fn stop(server: &Server, caller: &Caller, name: &str) -> String {
    code(sessions::stop(server, caller, name, false).await)
}

async fn give(server: &Server, by: &Caller, who: &str, role: GrantRole, domain: &str) -> String {
    let domain = Some(domain).filter(|name| !name.is_empty());
    code(grant(server, by, who, role, domain, None).await)
}

#[tokio::test]
async fn roles_on_a_project_show_end_and_choose_as_they_say() {
    let (server, boss) = two_domains().await;
    create_project(&server, &boss, None, "vision", "Vision Lab", None)
        .await
        .unwrap();
    for (who, role) in [("mina", GrantRole::Member), ("jae", GrantRole::Viewer)] {
        put_member(&server, &boss, "vision", who, role, None)
            .await
            .unwrap();
    }
    let (mina, jae) = (
        signed_in(&server, "mina").await,
        signed_in(&server, "jae").await,
    );
    assert_eq!(
        launch(&server, &mina, "in-vision", Some("vision")).await,
        "done"
    );
    assert_eq!(launch(&server, &mina, "at-home", None).await, "done");
    assert_eq!(launch(&server, &jae, "own", None).await, "done");
    // A viewer sees the project's sessions and launches none in it.
    assert_eq!(
        launch(&server, &jae, "no", Some("vision")).await,
        "project.role-missing"
    );
    assert_eq!(seen(&server, &jae).await, ["in-vision", "own"]);
    assert_eq!(
        stop(&server, &jae, "in-vision").await,
        "role.permission-missing"
    );
    assert_eq!(stop(&server, &jae, "at-home").await, "session.not-found");
    assert_eq!(
        code(put_member(&server, &jae, "vision", "jae", GrantRole::Lead, None).await),
        "role.permission-missing"
    );
    // A lead ends them and chooses members.
    put_member(&server, &boss, "vision", "jae", GrantRole::Lead, None)
        .await
        .unwrap();
    let jae = signed_in(&server, "jae").await;
    assert_eq!(
        code(remove_member(&server, &jae, "vision", "mina").await),
        "member.has-sessions"
    );
    assert_eq!(stop(&server, &jae, "in-vision").await, "done");
    assert_eq!(stop(&server, &jae, "at-home").await, "session.not-found");
    assert_eq!(
        code(remove_member(&server, &jae, "vision", "mina").await),
        "done"
    );
    assert_eq!(
        code(remove_member(&server, &jae, "vision", "mina").await),
        "member.not-found"
    );
    let mina = signed_in(&server, "mina").await;
    assert_eq!(
        launch(&server, &mina, "again", Some("vision")).await,
        "project.not-found"
    );
    assert_eq!(
        code(project(&server, &mina, "vision").await),
        "project.not-found"
    );
    assert_eq!(
        code(put_member(&server, &jae, "vision", "abe", GrantRole::Member, None).await),
        "user.not-found",
        "a user of another domain does not exist for a lead"
    );
    assert_eq!(
        code(put_member(&server, &boss, "vision", "abe", GrantRole::Member, None).await),
        "member.other-domain"
    );
    assert_eq!(
        code(put_member(&server, &boss, "vision", "mina", GrantRole::Auditor, None).await),
        "grant.role-invalid"
    );
}

#[tokio::test]
async fn an_administrator_of_a_domain_changes_it_and_nothing_else() {
    let (server, boss) = two_domains().await;
    assert_eq!(
        give(&server, &boss, "abe", GrantRole::Administrator, "abroad").await,
        "done"
    );
    let (abe, eva, mina) = (
        signed_in(&server, "abe").await,
        signed_in(&server, "eva").await,
        signed_in(&server, "mina").await,
    );
    assert_eq!(launch(&server, &eva, "evas", None).await, "done");
    assert_eq!(launch(&server, &mina, "minas", None).await, "done");
    assert_eq!(seen(&server, &abe).await, ["evas"]);
    let names = |known: Vec<User>| -> Vec<String> {
        known.iter().map(|user| user.name.to_string()).collect()
    };
    assert_eq!(
        names(users::list(&server, &abe).await.unwrap()),
        ["abe", "eva"]
    );
    assert_eq!(
        code(users::get(&server, &abe, "mina").await),
        "user.not-found"
    );
    assert_eq!(
        code(users::suspend(&server, &abe, "eva", true, None).await),
        "done"
    );
    assert_eq!(
        code(users::suspend(&server, &abe, "mina", true, None).await),
        "user.not-found"
    );
    let made = users::create_once(&server, &abe, "ian", Role::User, GOOD, None, None).await;
    assert_eq!(code(made), "done");
    let ian = users::get(&server, &abe, "ian").await.unwrap();
    assert_eq!(ian.domain, abe.subject.domain, "at home where its maker is");
    // Nothing beyond the domain, whichever way it is asked for.
    for refused in [
        code(users::create(&server, &abe, "chief", Role::Administrator, GOOD).await),
        code(users::set_role(&server, &abe, "eva", Role::Administrator, None).await),
        give(&server, &abe, "eva", GrantRole::Administrator, "").await,
        give(&server, &abe, "abe", GrantRole::Auditor, "").await,
        code(create_domain(&server, &abe, "third", "", None).await),
    ] {
        assert_eq!(refused, "role.administrator-needed");
    }
    assert_eq!(
        give(&server, &abe, "eva", GrantRole::Auditor, "default").await,
        "domain.not-found"
    );
    let abroad = users::create_once(&server, &abe, "x", Role::User, GOOD, Some("default"), None);
    assert_eq!(code(abroad.await), "domain.not-found");
    assert_eq!(
        give(&server, &abe, "eva", GrantRole::Auditor, "abroad").await,
        "done"
    );
    assert_eq!(
        code(create_project(&server, &abe, None, "biology", "", None).await),
        "done"
    );
    assert_eq!(
        code(create_project(&server, &abe, Some("default"), "biology", "", None).await),
        "domain.not-found"
    );
    let known = projects(&server, &abe).await.unwrap();
    let known: Vec<String> = known
        .iter()
        .map(|p| format!("{}/{}", p.domain, p.name))
        .collect();
    assert_eq!(known, ["abroad/biology", "abroad/default"]);
    let domains: Vec<String> = domains(&server, &mina)
        .await
        .unwrap()
        .into_iter()
        .map(|domain| domain.name)
        .collect();
    assert_eq!(
        domains,
        ["default"],
        "another domain does not exist for a user"
    );
}

#[tokio::test]
async fn nobody_of_a_domain_changes_the_account_of_a_wider_role() {
    let (server, boss) = two_domains().await;
    assert_eq!(
        give(&server, &boss, "mina", GrantRole::Administrator, "default").await,
        "done"
    );
    let mina = signed_in(&server, "mina").await;
    let reset = users::set_password(&server, &mina, "boss", GOOD, users::TokensAfterReset::Kept);
    assert_eq!(code(reset.await), "user.outranked");
    assert_eq!(
        code(users::suspend(&server, &mina, "boss", true, None).await),
        "user.outranked"
    );
    assert_eq!(
        code(users::remove(&server, &mina, "boss", None).await),
        "user.outranked"
    );
    assert_eq!(
        code(users::suspend(&server, &mina, "jae", true, None).await),
        "done"
    );
}

#[tokio::test]
async fn an_auditor_sees_everything_and_changes_nothing() {
    let (server, boss) = two_domains().await;
    assert_eq!(
        give(&server, &boss, "jae", GrantRole::Auditor, "").await,
        "done"
    );
    let (jae, eva) = (
        signed_in(&server, "jae").await,
        signed_in(&server, "eva").await,
    );
    assert_eq!(launch(&server, &eva, "evas", None).await, "done");
    assert_eq!(seen(&server, &jae).await, ["evas"]);
    assert_eq!(users::list(&server, &jae).await.unwrap().len(), 5);
    assert_eq!(stop(&server, &jae, "evas").await, "role.permission-missing");
    assert_eq!(
        code(users::suspend(&server, &jae, "eva", true, None).await),
        "role.administrator-needed"
    );
    assert_eq!(
        code(super::super::settings::list(&server, &jae).await),
        "done"
    );
}

#[tokio::test]
async fn a_role_with_an_end_ends_for_good() {
    let (server, boss) = two_domains().await;
    let now = server.clock().now();
    let past = grant(&server, &boss, "mina", GrantRole::Auditor, None, Some(now));
    assert_eq!(code(past.await), "grant.ends-in-past");
    let soon = Some(now.plus_seconds(60));
    let held = grant(&server, &boss, "mina", GrantRole::Auditor, None, soon)
        .await
        .unwrap();
    assert_eq!((held.len(), held[0].expires_at), (2, soon));
    let user = users::get(&server, &boss, "mina").await.unwrap();
    let auditor = Grant {
        role: GrantRole::Auditor,
        scope: GrantScope::Site,
    };
    assert!(user.grants_at(now.plus_seconds(59)).contains(&auditor));
    assert!(!user.grants_at(now.plus_seconds(60)).contains(&auditor));
    assert_eq!(user.next_grant_end(now), soon);
    // A pass drops what ended, and a clock that was ahead and is set back brings it back to none.
    let pass = async |at| {
        server.clock().set(at);
        server.catalog().end_grants(at).await.unwrap();
        let user = users::get(&server, &boss, "mina").await.unwrap();
        user.grants_at(now).contains(&auditor)
    };
    assert!(pass(now.plus_seconds(59)).await);
    assert!(!pass(now.plus_seconds(60)).await);
    assert!(!pass(now).await);
}

#[tokio::test]
async fn a_role_taken_away_is_gone_at_once_and_the_last_administrator_stays() {
    let (server, boss) = two_domains().await;
    assert_eq!(
        give(&server, &boss, "mina", GrantRole::Administrator, "").await,
        "done"
    );
    assert_eq!(
        users::get(&server, &boss, "mina").await.unwrap().role,
        Role::Administrator
    );
    let soon = Some(server.clock().now().plus_seconds(60));
    let taken = revoke(&server, &boss, "mina", Some(GrantRole::Administrator), None).await;
    assert_eq!(code(taken), "done");
    assert_eq!(
        users::get(&server, &boss, "mina").await.unwrap().role,
        Role::User
    );
    let again = revoke(&server, &boss, "mina", Some(GrantRole::Administrator), None).await;
    assert_eq!(code(again), "grant.not-found");
    let last = revoke(&server, &boss, "boss", Some(GrantRole::Administrator), None).await;
    assert_eq!(code(last), "user.last-administrator");
    let ends = grant(&server, &boss, "boss", GrantRole::Administrator, None, soon).await;
    assert_eq!(code(ends), "user.last-administrator");
}

#[tokio::test]
async fn an_archived_project_starts_nothing_and_can_be_restored() {
    let (server, boss) = two_domains().await;
    let made = create_project(&server, &boss, None, "term", "", None)
        .await
        .unwrap();
    let seen_version = Some(made.value.generation);
    put_member(&server, &boss, "term", "mina", GrantRole::Member, None)
        .await
        .unwrap();
    let mina = signed_in(&server, "mina").await;
    let state = |state| ProjectPatchBody {
        state: Some(state),
        title: None,
    };
    let archived = state(TenantState::Archived);
    assert_eq!(launch(&server, &mina, "waits", Some("term")).await, "done");
    let refused = change_project(&server, &boss, "term", archived.clone(), seen_version).await;
    assert_eq!(code(refused), "project.has-sessions");
    assert_eq!(stop(&server, &mina, "waits").await, "done");
    let done = change_project(&server, &boss, "term", archived.clone(), seen_version).await;
    assert_eq!(done.unwrap().state, TenantState::Archived);
    let stale = change_project(&server, &boss, "term", archived, seen_version).await;
    assert_eq!(code(stale), "project.stale");
    assert_eq!(
        launch(&server, &mina, "late", Some("term")).await,
        "project.archived"
    );
    let back = change_project(&server, &boss, "term", state(TenantState::Active), None).await;
    assert_eq!(back.unwrap().state, TenantState::Active);
    assert_eq!(launch(&server, &mina, "late", Some("term")).await, "done");
}

#[tokio::test]
async fn a_user_of_no_project_is_told_so() {
    let (server, boss) = two_domains().await;
    assert_eq!(
        code(remove_member(&server, &boss, "default", "mina").await),
        "done"
    );
    let mina = signed_in(&server, "mina").await;
    assert_eq!(launch(&server, &mina, "lost", None).await, "project.none");
}

#[tokio::test]
async fn bad_names_titles_and_projects_are_refused_where_they_stand() {
    let (server, boss) = two_domains().await;
    for (name, title, expected) in [
        ("", "", "tenant.name-invalid"),
        ("Vision", "", "tenant.name-invalid"),
        ("a/b", "", "tenant.name-invalid"),
        ("ok", "turned \u{202e}", "tenant.title-invalid"),
        ("ok", &"x".repeat(101), "tenant.title-invalid"),
        ("default", "", "project.name-taken"),
    ] {
        let made = create_project(&server, &boss, None, name, title, None).await;
        assert_eq!(code(made), expected, "{name:?} {title:?}");
    }
    let taken = create_domain(&server, &boss, "abroad", "", None).await;
    assert_eq!(code(taken), "domain.name-taken");
    // A name means the own domain's project first, and another domain's by its full name.
    let own = project(&server, &boss, "default").await.unwrap();
    assert_eq!(own.domain, "default");
    let other = project(&server, &boss, "abroad/default").await.unwrap();
    assert_eq!(other.domain, "abroad");
    for which in ["nowhere/default", "abroad/none", "none"] {
        assert_eq!(
            code(project(&server, &boss, which).await),
            "project.not-found"
        );
    }
}

#[tokio::test]
async fn a_lead_launches_for_members_with_their_rights_and_limits_and_nobody_else_does() {
    let (server, boss) = two_domains().await;
    create_project(&server, &boss, None, "vision", "Vision Lab", None)
        .await
        .unwrap();
    for (who, role) in [("mina", GrantRole::Member), ("jae", GrantRole::Lead)] {
        put_member(&server, &boss, "vision", who, role, None)
            .await
            .unwrap();
    }
    let (jae, mina) = (
        signed_in(&server, "jae").await,
        signed_in(&server, "mina").await,
    );
    let request = |name: &str, owner: &str, project: Option<&str>| LaunchRequest {
        name: Some(name.to_owned()),
        owner: Some(owner.to_owned()),
        project: project.map(str::to_owned),
        ..LaunchRequest::default()
    };
    let launch = async |caller: &Caller, request: LaunchRequest| {
        let launched = sessions::launch(&server, caller, request, None).await;
        launched.map(|mut launched| launched.sessions.remove(0))
    };
    let made = launch(&jae, request("lesson", "mina", Some("vision"))).await;
    let made = made.unwrap();
    assert_eq!(
        (made.owner.name.as_str(), made.project.name.as_str()),
        ("mina", "vision")
    );
    assert_eq!(seen(&server, &mina).await, ["lesson"]);
    let events = server
        .catalog()
        .read_now("look", |view| view.events_of(&made.id.to_string(), 1));
    assert_eq!(events.unwrap()[0].actor, "jae");
    let preview = sessions::preview(&server, &jae, request("p", "mina", Some("vision"))).await;
    preview.unwrap();

    // The limits are the member's: another has none left, and the lead's own do not count.
    policies::create(
        &server,
        &boss,
        api::policies::NewPolicyBody {
            name: "one".to_owned(),
            limits: api::policies::LimitsBody {
                waiting: Some(1),
                ..Default::default()
            },
            egress: Default::default(),
            sudo: false,
            no_inner_door: false,
            no_home: false,
            require_limit: false,
        },
    )
    .await
    .unwrap();
    let of = api::policies::PolicyUseBody {
        level: rules::quota::PolicyLevel::User,
        subject: Some("mina".to_owned()),
    };
    policies::attach(&server, &boss, "one", of).await.unwrap();
    let full = launch(&jae, request("second", "mina", Some("vision"))).await;
    assert_eq!(code(full), "queue.own-full");
    launch(&jae, request("own", "jae", Some("vision")))
        .await
        .unwrap();

    for (caller, owner, project, expected) in [
        (&mina, "jae", Some("vision"), "launch.owner-denied"),
        (&mina, "nobody", Some("vision"), "launch.owner-denied"),
        (&jae, "nobody", Some("vision"), "launch.owner-unknown"),
        // Their own first project is `default`, and there they are a member.
        (&jae, "mina", None, "launch.owner-denied"),
        (&jae, "abe", Some("vision"), "launch.owner-unknown"),
        (&jae, "abe", Some("abroad/default"), "project.not-found"),
        (&boss, "abe", Some("vision"), "launch.owner-unknown"),
    ] {
        let refused = launch(caller, request("x", owner, project)).await;
        assert_eq!(code(refused), expected, "{owner} in {project:?}");
    }
    // What mina has elsewhere is not there for the lead, by its name or its id.
    policies::detach(
        &server,
        &boss,
        "one",
        Some(rules::quota::PolicyLevel::User),
        Some("mina".to_owned()),
    )
    .await
    .unwrap();
    let elsewhere = LaunchRequest {
        name: Some("elsewhere".to_owned()),
        ..LaunchRequest::default()
    };
    let elsewhere = launch(&mina, elsewhere).await.unwrap();
    for (after, expected) in [
        ("elsewhere".to_owned(), "dependency.not-found"),
        (elsewhere.id.to_string(), "dependency.not-found"),
        ("own".to_owned(), "dependency.not-found"),
        ("lesson".to_owned(), "done"),
    ] {
        let request = LaunchRequest {
            depends_on: vec![after.clone()],
            ..request("after", "mina", Some("vision"))
        };
        assert_eq!(code(launch(&jae, request).await), expected, "{after}");
    }
    // An administrator means the first project of the user.
    let abroad = launch(&boss, request("abroad", "abe", None)).await.unwrap();
    assert_eq!(abroad.owner.name.as_str(), "abe");
    users::suspend(&server, &boss, "mina", true, None)
        .await
        .unwrap();
    let gone = launch(&jae, request("y", "mina", Some("vision"))).await;
    assert_eq!(code(gone), "launch.owner-unknown");
}
