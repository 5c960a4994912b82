//! Budgets through the actions that doors call: who gives them, who sees them, and what is none.

use std::net::{IpAddr, Ipv4Addr};

use rules::codes;
use rules::users::Role;

use super::super::{tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
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
    assert_eq!(list(&server, &mina).await.unwrap(), [made.clone()]);
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
