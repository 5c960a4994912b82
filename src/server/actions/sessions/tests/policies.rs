//! Which policy bounds what a user has waiting: the site's for each user, a project's and a domain's for all of
//! their members together, the strictest of them.

use rules::names::UserId;
use rules::quota::{PolicyLevel, PolicyLimits};
use rules::tenancy::{DomainId, ProjectId};

use super::*;
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
