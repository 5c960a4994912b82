//! Webhooks that verify what they are told, are dead, refuse, redirect, and come back.

use std::sync::Arc;

use ring::hmac;
use rules::names::WebhookId;
use rules::tenancy::Scope;
use tokio::net::TcpListener;

use crate::Server;
use crate::access::local_root;
use crate::actions::webhooks;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::hand_over::tests::{Seen, web_receiver};
use crate::hand_over::webhooks::{DELIVERY, TOLD_HOURS, note, tell_next};
use crate::hand_over::{HandOverFault, Handed};

fn happened(server: &Server, code: &'static str, times: usize) {
    server
        .catalog()
        .write_now(Lane::Loops, "note", move |rows| {
            for _ in 0..times {
                rows.note_alone(NewEvent {
                    actor: "node",
                    topic: "sessions",
                    object: "x",
                    scope: Scope::SITE,
                    code,
                    before: "",
                    after: "",
                })?;
            }
            Ok(())
        })
        .unwrap();
}

/// A webhook for the ends of sessions; its id and what signs its requests.
async fn made(server: &Server, address: String) -> (WebhookId, String) {
    let asked = api::webhooks::NewWebhookBody {
        name: "pager".to_owned(),
        address,
        kinds: vec!["session.ended".to_owned()],
    };
    let root = local_root(server);
    let (made, secret) = webhooks::create(server, &root, asked).await.unwrap();
    (WebhookId(made.id), secret.reveal().to_owned())
}

fn lost(server: &Server, id: WebhookId) -> u64 {
    let read = server.catalog().read_now("look", |view| view.webhook(id));
    read.unwrap().unwrap().lost
}

/// Head and body of a request, whose signature is that of its secret, by a receiver's own reckoning.
fn verified(request: &str, secret: &str) -> (String, serde_json::Value) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim_start_matches(": ").to_owned()
    };
    let text = format!("{}.{body}", header("x-fardel-timestamp"));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = header("x-fardel-signature");
    let digits = signature.strip_prefix("v1=").unwrap();
    let tag: Vec<u8> = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    hmac::verify(&key, text.as_bytes(), &tag).expect("the signature is right");
    let changed = format!("{text} ");
    assert!(hmac::verify(&key, changed.as_bytes(), &tag).is_err());
    (head.to_owned(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn events_arrive_signed_and_in_order_past_a_dead_receiver() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::for_tests();
    happened(&server, "session.ended", 1);
    let (id, secret) = made(&server, format!("http://{address}/take")).await;
    let mut seen = 0;
    let all = tell_next(&server, id, &mut seen).await.unwrap();
    assert_eq!(all, Some(Handed::All), "what was before is not told");
    happened(&server, "session.running", 3);
    happened(&server, "session.ended", 2);
    drop(listener);
    let fault = tell_next(&server, id, &mut seen).await.unwrap_err();
    note(&server, id, &fault);
    let root = local_root(&server);
    let shown = webhooks::get(&server, &root, "pager").await.unwrap();
    assert!(!shown.problem.is_empty());
    let listener = TcpListener::bind(address).await.unwrap();
    let requests = Seen::default();
    let answers = vec!["500 No", "307 Elsewhere", "204 Taken"];
    tokio::spawn(web_receiver(listener, answers, Arc::clone(&requests)));
    for status in [500, 307] {
        let fault = tell_next(&server, id, &mut seen).await.unwrap_err();
        assert!(matches!(fault, HandOverFault::Status(wrong) if wrong == status));
    }
    let told = tell_next(&server, id, &mut seen).await.unwrap();
    assert_eq!(told, Some(Handed::All));
    let none = tell_next(&server, id, &mut seen).await.unwrap();
    assert_eq!(none, Some(Handed::All), "none comes twice");
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 3);
    let (head, body) = verified(&requests[2], &secret);
    assert!(head.starts_with("POST /take HTTP/1.1\r\n"), "{head}");
    let (first, _) = verified(&requests[0], &secret);
    let delivery = |head: &str| {
        let line = head.lines().find(|line| line.starts_with(DELIVERY));
        line.map(str::to_owned)
    };
    assert_eq!(delivery(&first), delivery(&head), "the same events again");
    assert_eq!(body["webhook"], "pager");
    let codes: Vec<&str> = body["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["session.ended"; 2]);
    let shown = webhooks::get(&server, &root, "pager").await.unwrap();
    assert_eq!((shown.problem.as_str(), shown.lost), ("", 0));
}

/// What a receiver was not told within three days it is never told, and that is counted.
#[tokio::test]
async fn what_is_too_old_is_counted_as_lost() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::for_tests();
    let (id, secret) = made(&server, format!("http://{address}/")).await;
    happened(&server, "session.ended", 3);
    let now = server.clock().now();
    let later = now.plus_seconds((TOLD_HOURS + 1) * 3_600);
    server.clock().set(later);
    happened(&server, "session.ended", 1);
    let requests = Seen::default();
    let answers = vec!["200 Fine"];
    tokio::spawn(web_receiver(listener, answers, Arc::clone(&requests)));
    tell_next(&server, id, &mut 0).await.unwrap();
    assert_eq!(lost(&server, id), 3);
    let requests = requests.lock().unwrap().clone();
    let (_, body) = verified(&requests[0], &secret);
    assert_eq!(body["events"].as_array().unwrap().len(), 1);
}

/// A trial is signed and says so; one that is switched off is told nothing, and switched on again of what comes then.
#[tokio::test]
async fn a_trial_is_signed_and_a_switch_leaves_out_what_was_between() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::for_tests();
    let (id, secret) = made(&server, format!("http://{address}/")).await;
    let requests = Seen::default();
    let answers = vec!["200 Fine", "200 Fine"];
    tokio::spawn(web_receiver(listener, answers, Arc::clone(&requests)));
    let root = local_root(&server);
    let trial = webhooks::test(&server, &root, "pager").await.unwrap();
    assert!(trial.works && trial.answer == "status 200", "{trial:?}");
    let switch = async |active| {
        let patch = api::webhooks::WebhookPatchBody {
            active: Some(active),
            ..Default::default()
        };
        let changed = webhooks::change(&server, &root, "pager", patch, None).await;
        changed.unwrap();
    };
    switch(false).await;
    happened(&server, "session.ended", 5);
    assert_eq!(tell_next(&server, id, &mut 0).await.unwrap(), None);
    switch(true).await;
    happened(&server, "session.ended", 1);
    tell_next(&server, id, &mut 0).await.unwrap();
    let requests = requests.lock().unwrap().clone();
    let (_, body) = verified(&requests[0], &secret);
    assert_eq!(body["test"], true);
    assert_eq!(body["events"].as_array().unwrap().len(), 0);
    let (_, body) = verified(&requests[1], &secret);
    assert_eq!(body["events"].as_array().unwrap().len(), 1);
    assert!(body.get("test").is_none());
}

/// Webhooks are believed by an authority of their own, and not by that of the audit log.
#[tokio::test]
async fn a_webhook_is_believed_by_the_authority_of_webhooks() {
    let server = Server::for_tests_with(base::settings::SettingsLayer {
        webhook_ca_file: Some("/nowhere/webhook-ca.pem".into()),
        audit_ca_file: Some("/nowhere/audit-ca.pem".into()),
        ..base::settings::SettingsLayer::default()
    });
    made(&server, "https://127.0.0.1:9/hook".to_owned()).await;
    let root = local_root(&server);
    let trial = webhooks::test(&server, &root, "pager").await.unwrap();
    assert!(!trial.works);
    let told = trial.problem;
    assert!(told.contains("/nowhere/webhook-ca.pem"), "{told}");
}
