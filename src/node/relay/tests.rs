//! The relay's judgement of this machine's own addresses, and its lock. Opens no namespace.

use std::net::{IpAddr, TcpListener};

use rules::egress::{EgressOutcome, EgressTarget, NetworkMode};

use super::*;

fn egress(targets: &[&str]) -> SessionEgress {
    SessionEgress {
        mode: NetworkMode::List,
        targets: targets
            .iter()
            .map(|text| EgressTarget::parse(text).expect(text))
            .collect(),
        refused: Vec::new(),
    }
}

#[test]
fn the_machine_knows_its_own_addresses() {
    for text in ["127.0.0.1", "127.9.9.9", "64:ff9b::127.0.0.1"] {
        let address: IpAddr = text.parse().expect(text);
        assert!(carry::is_own(address), "{text}");
    }
    // For documentation: no machine has it.
    assert!(!carry::is_own("192.0.2.7".parse().expect("an address")));
}

/// A name of the machine's own hosts file is a name server that answers with an address of the box.
#[tokio::test]
async fn a_name_that_leads_to_this_machine_opens_only_what_is_listed_by_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let address = format!("127.0.0.1:{port}");
    let listed = egress(&[&address]);
    let opened = carry::open(&listed, &listed.targets[0], "127.0.0.1").await;
    assert!(opened.is_ok(), "{opened:?}");
    // `localhost` is no name that a policy may list; the name stands for any that answers so.
    let lying = egress(&[&format!("index.example:{port}")]);
    let refused = carry::open(&lying, &lying.targets[0], "localhost").await;
    assert_eq!(refused.err(), Some(EgressOutcome::AddressRefused));
    let pinned = egress(&[&format!("db=127.0.0.1:{port}")]);
    let opened = carry::open(&pinned, &pinned.targets[0], "db").await;
    assert!(opened.is_ok(), "{opened:?}");
}

#[test]
fn an_installation_has_one_relay() {
    let folder = tempfile::tempdir().expect("a directory");
    let held = lock(folder.path()).expect("free");
    assert!(lock(folder.path()).is_err(), "a second one has it");
    drop(held);
    assert!(lock(folder.path()).is_ok());
    assert!(!Relay::answers(folder.path()));
}
