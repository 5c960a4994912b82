//! SSH keys as their users, their computers and thieves of them meet them, with a clock set by hand.

use api::ssh::NewSshKeyBody;
use rules::names::SshKeyId;
use rules::permissions::Permission;
use rules::users::Role;

use crate::access::ssh_key::tests::some_key;
use crate::access::tests::*;
use crate::access::*;
use crate::actions::users::ssh_keys::{add, list, remove, ssh_server};
use crate::actions::{sessions, users};
use crate::{Server, code};

fn wanted(number: u8) -> NewSshKeyBody {
    NewSshKeyBody {
        public_key: some_key(number),
        ..NewSshKeyBody::default()
    }
}

/// A key as it is sent.
fn blob(number: u8) -> Vec<u8> {
    ssh_key::SshPublicKey::parse(&some_key(number))
        .expect("good")
        .blob
}

async fn with_jae() -> (Server, Caller, Caller) {
    let (server, mina) = with_mina().await;
    users::create(&server, &mina.caller, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap();
    (server, mina.caller, jae.caller)
}

#[tokio::test]
async fn a_user_has_twenty_ssh_keys_and_each_names_one_user() {
    let (server, mina, jae) = with_jae().await;
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(add(&server, &jae, wanted(number)).await.unwrap().id);
    }
    assert_eq!(
        code(add(&server, &jae, wanted(20)).await),
        "ssh-key.too-many"
    );
    assert_eq!(code(add(&server, &mina, wanted(7)).await), "ssh-key.taken");
    let keys = list(&server, &jae).await.unwrap();
    assert_eq!((keys.len(), keys[0].name.as_str()), (20, "mina@laptop"));
    assert!(list(&server, &mina).await.unwrap().is_empty());
    // Those of others are not there.
    let id = ids[19];
    assert_eq!(code(remove(&server, &mina, id).await), "ssh-key.not-found");
    assert_eq!(code(remove(&server, &jae, id).await), "done");
    assert_eq!(code(remove(&server, &jae, id).await), "ssh-key.not-found");
    assert_eq!(code(add(&server, &mina, wanted(19)).await), "done");
    let long = NewSshKeyBody {
        name: Some("x".repeat(65)),
        ..wanted(30)
    };
    assert_eq!(
        code(add(&server, &mina, long).await),
        "ssh-key.name-invalid"
    );
    let root = local_root(&server);
    assert_ne!(code(add(&server, &root, wanted(31)).await), "done");
}

#[tokio::test]
async fn an_ssh_key_enters_sessions_and_nothing_else() {
    let (server, mina, _) = with_jae().await;
    add(&server, &mina, wanted(1)).await.unwrap();
    let caller = by_ssh_key(&server, &blob(1), HERE).await.unwrap().unwrap();
    assert_eq!(caller.name.as_str(), "mina");
    let scopes = vec![Permission::SessionsRead, Permission::SessionsEnter];
    assert_eq!(caller.subject.scopes, Some(scopes));
    // An administrator's key makes no user and no other key.
    let made = users::create(&server, &caller, "kim", Role::User, GOOD).await;
    assert_eq!(code(made), "token.scope-missing");
    assert_eq!(
        code(add(&server, &caller, wanted(2)).await),
        "token.scope-missing"
    );
    for name in [
        "nothing",
        "mina+nothing",
        "ghost+nothing",
        "nothing.sub1",
        "ghost+nothing.sub1",
    ] {
        let entered = sessions::enter_by_name(&server, &caller, name).await;
        assert_eq!(code(entered), "session.not-found", "{name}");
    }
    assert!(by_ssh_key(&server, &blob(2), HERE).await.unwrap().is_none());
    assert!(is_ssh_key_known(&server, &blob(1)).await.unwrap());
    assert!(!is_ssh_key_known(&server, &blob(2)).await.unwrap());
}

#[tokio::test]
async fn a_token_that_enters_no_session_adds_no_ssh_key() {
    let (server, _, jae) = with_jae().await;
    let needed = [
        Permission::Me,
        Permission::SessionsRead,
        Permission::SessionsEnter,
    ];
    for missing in [Some(needed[1]), Some(needed[2]), None] {
        let scopes: Vec<String> = needed
            .iter()
            .filter(|one| Some(**one) != missing)
            .map(|one| one.word().to_owned())
            .collect();
        let made = users::tokens::create(&server, &jae, "narrow", &scopes, None, &[]).await;
        let (_, secret) = made.unwrap();
        let caller = by_token(&server, secret.reveal(), HERE).await.unwrap();
        let added = add(&server, &caller.unwrap(), wanted(1)).await;
        let expected = match missing {
            Some(_) => "token.scope-missing",
            None => "done",
        };
        assert_eq!(code(added), expected, "{scopes:?}");
    }
}

#[tokio::test]
async fn an_ssh_key_ends_in_time_with_its_user_and_when_it_is_removed() {
    let (server, mina, jae) = with_jae().await;
    let end = server.clock().now().plus_seconds(3600);
    let dated = NewSshKeyBody {
        expires_at: Some(end),
        ..wanted(1)
    };
    let key = add(&server, &jae, dated).await.unwrap();
    let caller = by_ssh_key(&server, &blob(1), HERE).await.unwrap().unwrap();
    let ask = async || code(prove_ssh_key_again(&server, &caller).await);
    assert_eq!(ask().await, "done");
    users::suspend(&server, &mina, "jae", true, None)
        .await
        .unwrap();
    assert_eq!(ask().await, "user.suspended");
    users::suspend(&server, &mina, "jae", false, None)
        .await
        .unwrap();
    assert_eq!(ask().await, "done");
    later(&server, 3600);
    assert_eq!(ask().await, "ssh-key.expired");
    assert_eq!(
        code(by_ssh_key(&server, &blob(1), HERE).await),
        "ssh-key.expired"
    );
    let past = NewSshKeyBody {
        expires_at: Some(end),
        ..wanted(2)
    };
    assert_eq!(code(add(&server, &jae, past).await), "expires-at.past");
    remove(&server, &jae, key.id).await.unwrap();
    assert_eq!(ask().await, "ssh-key.revoked");
    let gone = lease(&server, &caller).await;
    assert_eq!(gone.code, "ssh-key.revoked");
}

#[tokio::test]
async fn a_server_without_ssh_says_so() {
    let (server, _, _) = with_jae().await;
    assert_eq!(code(ssh_server(&server).await), "ssh.off");
    let layer = base::settings::SettingsLayer {
        listen_ssh: Some("192.0.2.1:7822".into()),
        ..Default::default()
    };
    let server = Server::for_tests_with(layer);
    assert_eq!(
        code(ssh_server(&server).await),
        "ssh.off",
        "no key was drawn"
    );
    let key = ssh_host_key(&server).await.unwrap();
    let shown = ssh_server(&server).await.unwrap();
    assert_eq!((shown.port, shown.host_key), (7822, key.line()));
    assert_eq!(shown.fingerprint, key.fingerprint());
    let none = "x".parse::<SshKeyId>();
    assert!(none.is_err());
}

#[tokio::test]
async fn a_key_goes_with_the_other_proofs_of_its_user_and_is_free_again() {
    let (server, mina, jae) = with_jae().await;
    add(&server, &jae, wanted(1)).await.unwrap();
    add(&server, &jae, wanted(2)).await.unwrap();
    let after = users::TokensAfterReset::Kept;
    users::set_password(&server, &mina, "jae", "a long walk by the river 8", after)
        .await
        .unwrap();
    assert!(is_ssh_key_known(&server, &blob(1)).await.unwrap());
    let after = users::TokensAfterReset::Revoked;
    users::set_password(&server, &mina, "jae", "another walk by the sea 9", after)
        .await
        .unwrap();
    assert!(!is_ssh_key_known(&server, &blob(1)).await.unwrap());
    assert_eq!(code(add(&server, &mina, wanted(1)).await), "done");
}
