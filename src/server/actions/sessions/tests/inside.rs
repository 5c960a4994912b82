//! A session as a caller: what it may of itself, that there is no other session for it, and when it is let in no more.

use api::policies::{EgressBody, LimitsBody, NewPolicyBody, PolicyPatchBody, PolicyUseBody};
use rules::quota::PolicyLevel;

use super::*;
use crate::access::{by_inner_door, inner_doors};
use crate::actions::{idle_rules, inner_door, policies, users};

fn container(session: SessionId, incarnation: u32, index: u32) -> ContainerName {
    ContainerName {
        session,
        incarnation,
        index,
    }
}

#[tokio::test]
async fn a_session_is_its_owner_for_itself_alone() {
    let server = server();
    let boss = user(&server, "boss", Role::Administrator);
    let lead = user(&server, "lead", Role::Administrator);
    let own = one(&server, &lead, named("own")).await.unwrap();
    let other = one(&server, &lead, named("other")).await.unwrap();
    let foreign = one(&server, &boss, named("foreign")).await.unwrap();
    for session in [&own, &other, &foreign] {
        carry_out(&server, session.id, None);
    }
    let place = container(own.id, 1, 0);
    let inside = by_inner_door(&server, place).await.unwrap();
    assert_eq!(inside.via, Via::Session { id: own.id });
    // No role of its owner's comes along.
    assert!(inside.subject.grants.is_empty());
    let told = inner_door::look(&server, &inside, place).await.unwrap();
    assert_eq!(
        (told.session.id, told.container.as_str()),
        (own.id, "main1")
    );
    for session in [&other, &foreign] {
        for text in [session.name.as_str(), &session.id.to_string()] {
            let beside = container(session.id, 1, 0);
            for result in [
                code(get(&server, &inside, text).await),
                code(stop(&server, &inside, text, true).await),
                code(samples(&server, &inside, text, None).await),
                code(idle_rules::keep(&server, &inside, text).await),
                code(inner_door::look(&server, &inside, beside).await),
            ] {
                assert_eq!(result, "session.not-found", "{text}");
            }
        }
    }
    assert_eq!(
        code(enter(&server, &inside, "own").await),
        "token.scope-missing"
    );
    let kept = idle_rules::keep(&server, &inside, "own").await;
    assert_eq!(code(kept), "session.not-warned");
    let samples = inner_door::recent_samples(&server, &inside, place).await;
    assert!(samples.unwrap().is_empty());
    let stopping = stop(&server, &inside, "own", false).await.unwrap();
    assert_eq!(stopping.state, SessionState::Stopping);
}

#[tokio::test]
async fn only_a_container_that_lives_is_let_in_while_its_owner_may_and_no_policy_closes() {
    let server = server();
    let boss = user(&server, "boss", Role::Administrator);
    let mina = user(&server, "mina", Role::User);
    let own = one(&server, &mina, named("own")).await.unwrap();
    let place = container(own.id, 1, 0);
    let refused = async |place| code(by_inner_door(&server, place).await);
    assert_eq!(refused(place).await, "container.not-running", "it waits");
    assert!(inner_doors(&server).unwrap().is_empty());
    carry_out(&server, own.id, None);
    assert!(by_inner_door(&server, place).await.is_ok());
    let open: Vec<ContainerName> = inner_doors(&server).unwrap().into_iter().collect();
    assert_eq!(open, [place]);
    for absent in [container(own.id, 2, 0), container(own.id, 1, 1)] {
        assert_eq!(refused(absent).await, "container.not-running", "{absent}");
    }

    let closing = NewPolicyBody {
        name: "closed".to_owned(),
        limits: LimitsBody::default(),
        egress: EgressBody::default(),
        sudo: false,
        no_inner_door: true,
        no_home: false,
        require_limit: false,
    };
    let made = policies::create(&server, &boss, closing).await.unwrap();
    assert!(made.no_inner_door);
    assert!(
        by_inner_door(&server, place).await.is_ok(),
        "attached to nothing"
    );
    let of_mina = PolicyUseBody {
        level: PolicyLevel::User,
        subject: Some("mina".to_owned()),
    };
    let attached = policies::attach(&server, &boss, "closed", of_mina).await;
    attached.unwrap();
    assert_eq!(refused(place).await, "inner-door.closed");
    assert!(inner_doors(&server).unwrap().is_empty());
    let opening = PolicyPatchBody {
        no_inner_door: Some(false),
        ..PolicyPatchBody::default()
    };
    let opened = policies::change(&server, &boss, "closed", opening, None).await;
    assert!(!opened.unwrap().no_inner_door);
    assert!(by_inner_door(&server, place).await.is_ok());

    let suspended = users::suspend(&server, &boss, "mina", true, None).await;
    suspended.unwrap();
    assert_eq!(refused(place).await, "user.suspended");
}
