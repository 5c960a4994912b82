//! Idle rules through the actions that doors call: who writes and tries them, and what is refused. Sessions that live
//! under rules are in the suite's simulation.

use rules::grants::{Grant, GrantRole, GrantScope};
use rules::idleness::IdleMatch;
use rules::session::SessionKind;
use rules::units::CpuShare;
use rules::users::Role;

use super::*;
use crate::actions::tests::caller_of;
use crate::code;

const MINUTE: u64 = 60;

fn cpu_rule(name: &str) -> NewIdleRuleBody {
    NewIdleRuleBody {
        name: name.to_owned(),
        level: IdleLevel::Site,
        subject: None,
        kind: None,
        exempt: String::new(),
        below: IdleThresholdsBody {
            cpu: Some(CpuShare(10)),
            ..IdleThresholdsBody::default()
        },
        of: IdleMatch::All,
        window_seconds: 60 * MINUTE,
        grace_seconds: 0,
        action: IdleAction::Stop,
        extend_seconds: 30 * MINUTE,
        extend_times: 1,
    }
}

#[tokio::test]
async fn a_rule_is_written_tried_changed_and_removed_by_administrators() {
    let server = Server::for_tests();
    let boss = caller_of(&server, "boss", Role::Administrator);
    let mut auditor = caller_of(&server, "auditor", Role::User);
    auditor.subject.grants = vec![Grant {
        role: GrantRole::Auditor,
        scope: GrantScope::Site,
    }];
    let mina = caller_of(&server, "mina", Role::User);
    let made = create(&server, &boss, cpu_rule("idle")).await.unwrap();
    assert_eq!((made.generation, made.subject.as_str()), (1, ""));
    let project = NewIdleRuleBody {
        level: IdleLevel::Project,
        subject: Some("default".into()),
        ..cpu_rule("lab")
    };
    let lab = create(&server, &boss, project.clone()).await.unwrap();
    assert_eq!(lab.subject, "default/default");
    let names = |all: Vec<IdleRuleView>| all.into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(
        names(list(&server, &auditor).await.unwrap()),
        ["idle", "lab"]
    );
    for caller in [&mina, &auditor] {
        assert_eq!(
            code(create(&server, caller, cpu_rule("x")).await),
            "role.administrator-needed"
        );
        let change = change(&server, caller, "idle", IdleRulePatchBody::default(), None).await;
        assert_eq!(code(change), "role.administrator-needed");
        assert_eq!(
            code(remove(&server, caller, "idle").await),
            "role.administrator-needed"
        );
    }
    assert_eq!(
        code(list(&server, &mina).await),
        "role.administrator-needed"
    );
    assert_eq!(
        code(try_out(&server, &mina, cpu_rule("")).await),
        "role.administrator-needed"
    );
    assert!(try_out(&server, &auditor, cpu_rule("")).await.is_ok());
    let patch = IdleRulePatchBody {
        window_seconds: Some(7_200),
        kind: Some(Some(SessionKind::Batch)),
        ..IdleRulePatchBody::default()
    };
    let changed = change(&server, &boss, "idle", patch.clone(), Some(1))
        .await
        .unwrap();
    assert_eq!((changed.generation, changed.window_seconds), (2, 7_200));
    assert_eq!(
        code(change(&server, &boss, "idle", patch, Some(1)).await),
        "idle-rule.stale"
    );
    remove(&server, &boss, &made.id.to_string()).await.unwrap();
    assert_eq!(
        code(get(&server, &boss, "idle").await),
        "idle-rule.not-found"
    );
}

#[tokio::test]
async fn what_is_no_idle_rule_is_refused_by_name() {
    let server = Server::for_tests();
    let boss = caller_of(&server, "boss", Role::Administrator);
    create(&server, &boss, cpu_rule("idle")).await.unwrap();
    let refused = async |change: &dyn Fn(&mut NewIdleRuleBody)| {
        let mut body = cpu_rule("other");
        change(&mut body);
        code(create(&server, &boss, body).await)
    };
    assert_eq!(
        refused(&|r| r.name = "idle".into()).await,
        "idle-rule.name-taken"
    );
    assert_eq!(
        refused(&|r| r.name = "No name".into()).await,
        "idle-rule.name-invalid"
    );
    assert_eq!(refused(&|r| r.below.cpu = None).await, "idle-rule.empty");
    assert_eq!(
        refused(&|r| r.window_seconds = 60).await,
        "idle-rule.window"
    );
    assert_eq!(
        refused(&|r| r.exempt = "=x".into()).await,
        "idle-rule.exempt"
    );
    assert_eq!(
        refused(&|r| r.exempt = "x".repeat(257)).await,
        "idle-rule.exempt"
    );
    assert_eq!(
        refused(&|r| r.subject = Some("x".into())).await,
        "idle-rule.subject-unwanted"
    );
    for level in [IdleLevel::Domain, IdleLevel::Project] {
        assert_eq!(
            refused(&move |r| r.level = level).await,
            "idle-rule.subject-missing"
        );
    }
    let domain = |r: &mut NewIdleRuleBody| {
        r.level = IdleLevel::Domain;
        r.subject = Some("nowhere".into());
    };
    assert_eq!(refused(&domain).await, "domain.not-found");
    for number in 1..MAX_IDLE_RULES {
        create(&server, &boss, cpu_rule(&format!("rule{number}")))
            .await
            .unwrap();
    }
    assert_eq!(refused(&|_| {}).await, "idle-rule.too-many");
}
