//! Who names webhooks, and what is refused.

mod delivery;

use rules::users::Role;

use super::*;
use crate::actions::tests::caller_of;
use crate::code;

fn asked(name: &str) -> NewWebhookBody {
    NewWebhookBody {
        name: name.to_owned(),
        address: "https://hooks.lab.example/secret-path?token=x".to_owned(),
        kinds: vec!["sessions".to_owned()],
    }
}

#[tokio::test]
async fn a_site_has_so_many_webhooks_and_each_its_own_name() {
    let server = Server::for_tests();
    let boss = caller_of(&server, "boss", Role::Administrator);
    let mina = caller_of(&server, "mina", Role::User);
    let denied = create(&server, &mina, asked("pager")).await;
    assert_eq!(code(denied), "role.administrator-needed");
    let (first, secret) = create(&server, &boss, asked("pager")).await.unwrap();
    assert!(secret.reveal().starts_with(PREFIX));
    let again = create(&server, &boss, asked("pager")).await;
    assert_eq!(code(again), "webhook.name-taken");
    for number in 1..MAX_WEBHOOKS {
        create(&server, &boss, asked(&format!("h{number}")))
            .await
            .unwrap();
    }
    let beyond = create(&server, &boss, asked("beyond")).await;
    assert_eq!(code(beyond), "webhook.too-many");
    let bad = NewWebhookBody {
        address: "http://hooks.lab.example/".to_owned(),
        ..asked("plain")
    };
    assert_eq!(code(create(&server, &boss, bad).await), "webhook.address");
    let bad = asked("A b\r\n");
    assert_eq!(
        code(create(&server, &boss, bad).await),
        "webhook.name-invalid"
    );
    let patch = || WebhookPatchBody {
        kinds: Some(vec!["users".to_owned()]),
        ..WebhookPatchBody::default()
    };
    let changed = change(&server, &boss, "pager", patch(), Some(1))
        .await
        .unwrap();
    assert_eq!((changed.generation, changed.kinds.len()), (2, 1));
    let stale = change(&server, &boss, "pager", patch(), Some(1)).await;
    assert_eq!(code(stale), "webhook.stale");
    remove(&server, &boss, &first.id.to_string()).await.unwrap();
    let gone = get(&server, &boss, "pager").await;
    assert_eq!(code(gone), "webhook.not-found");
}

/// The path of an address may hold a secret of the receiver's: no event has it, and no reader who may not change it.
#[tokio::test]
async fn the_path_of_an_address_is_for_those_who_may_change_it() {
    let server = Server::for_tests();
    let boss = caller_of(&server, "boss", Role::Administrator);
    create(&server, &boss, asked("pager")).await.unwrap();
    let mut reader = boss.clone();
    reader.subject.scopes = Some(vec![Permission::SystemRead]);
    let shown = get(&server, &reader, "pager").await.unwrap();
    assert_eq!(shown.address, "https://hooks.lab.example");
    let shown = get(&server, &boss, "pager").await.unwrap();
    assert!(shown.address.ends_with("token=x"));
    let events = server
        .catalog()
        .read_now("look", |view| view.events_of("pager", 9))
        .unwrap();
    assert_eq!(events.len(), 1);
    assert!(!events[0].after.contains("secret-path"), "{events:?}");
}
