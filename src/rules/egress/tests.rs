//! Targets, the match of hosts, and addresses that are refused. Opens nothing.

use super::*;

fn egress(mode: NetworkMode, targets: &[&str]) -> SessionEgress {
    SessionEgress {
        mode,
        targets: targets
            .iter()
            .map(|text| EgressTarget::parse(text).expect(text))
            .collect(),
        refused: Vec::new(),
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect(text)
}

#[test]
fn targets_are_written_as_they_are_read() {
    for text in [
        "warehouse.plant:3306",
        "*.example.com:443",
        "10.1.2.3:5432",
        "10.1.0.0/16:443",
        "[2001:db8::1]:80",
        "[2001:db8::]/32:80",
        "db=10.1.2.3:5432",
        "db=[fd00::1]:5432",
    ] {
        let target = EgressTarget::parse(text).expect(text);
        assert_eq!(target.to_string(), text);
        let kept = kept_text(&target);
        assert_eq!(EgressTarget::try_from(kept), Ok(target));
    }
}

fn kept_text(target: &EgressTarget) -> String {
    String::from(target.clone())
}

#[test]
fn what_is_no_target_is_refused_by_its_code() {
    for text in [
        "",
        "warehouse.plant",
        "warehouse.plant:0",
        "warehouse.plant:65536",
        "warehouse.plant:x",
        "warehouse.plant:+80",
        ":80",
        "-a.plant:80",
        "a..plant:80",
        "a b:80",
        "a\nb:80",
        "*:80",
        "*.*.plant:80",
        "10.1.2:80",
        "0x7f.1:80",
        "2130706433:80",
        "10.0.0.0/0:80",
        "10.0.0.0/33:80",
        "2001:db8::1:80",
        "localhost:80",
        "db=other.plant:80",
        "=10.1.2.3:80",
    ] {
        let refusal = EgressTarget::parse(text).expect_err(text);
        assert_eq!(refusal.code, "egress.target-invalid", "{text:?}");
    }
}

#[test]
fn a_host_is_listed_by_name_pattern_address_or_network_and_by_its_port() {
    let policy = egress(
        NetworkMode::Proxy,
        &[
            "index.example:443",
            "*.models.example:443",
            "10.1.0.0/16:8080",
            "db=10.9.9.9:5432",
        ],
    );
    for (host, port) in [
        ("index.example", 443),
        ("INDEX.example.", 443),
        ("a.models.example", 443),
        ("a.b.models.example", 443),
        ("10.1.255.1", 8080),
        ("::ffff:10.1.2.3", 8080),
        ("[::ffff:10.1.2.3]", 8080),
        ("db", 5432),
    ] {
        assert!(policy.listed(host, port).is_some(), "{host}:{port}");
    }
    for (host, port) in [
        ("index.example", 80),
        ("evilindex.example", 443),
        ("index.example.evil", 443),
        ("models.example", 443),
        (".models.example", 443),
        ("evilmodels.example", 443),
        ("10.2.0.1", 8080),
        ("10.1.0.1", 443),
        ("10.9.9.9", 5432),
        ("167837953", 8080),
        ("", 443),
    ] {
        assert!(policy.listed(host, port).is_none(), "{host}:{port}");
    }
}

#[test]
fn addresses_are_what_they_are_in_every_spelling() {
    use AddressKind::{LinkLocal, Loopback, Never, Private, Public};
    for (text, kind) in [
        ("9.9.9.9", Public),
        ("2620:fe::fe", Public),
        ("10.0.0.1", Private),
        ("172.31.255.255", Private),
        ("172.32.0.1", Public),
        ("192.168.1.1", Private),
        ("100.64.0.1", Private),
        ("100.100.100.200", Private),
        ("fd00:ec2::254", Private),
        ("fec0::1", Private),
        ("2001:db8::1", Private),
        ("127.0.0.1", Loopback),
        ("127.255.255.254", Loopback),
        ("::1", Loopback),
        ("::ffff:127.0.0.1", Loopback),
        ("::127.0.0.1", Loopback),
        ("64:ff9b::127.0.0.1", Loopback),
        ("64:ff9b::10.0.0.1", Private),
        ("64:ff9b:1::1", Private),
        ("2002:7f00:1::1", Loopback),
        ("2002:a00:1::1", Private),
        ("2001:0:1::1", Private),
        ("169.254.169.254", LinkLocal),
        ("::ffff:169.254.169.254", LinkLocal),
        ("fe80::1", LinkLocal),
        ("168.63.129.16", LinkLocal),
        ("64:ff9b::168.63.129.16", LinkLocal),
        ("0.0.0.0", Never),
        ("0.1.2.3", Never),
        ("::", Never),
        ("::ffff:0.0.0.0", Never),
        ("224.0.0.1", Never),
        ("255.255.255.255", Never),
        ("240.0.0.1", Never),
        ("ff02::1", Never),
        ("4000::1", Never),
    ] {
        assert_eq!(kind_of(address(text)), kind, "{text}");
    }
}

#[test]
fn an_address_that_is_translated_leads_to_another() {
    for text in ["64:ff9b::9.9.9.9", "::ffff:9.9.9.9", "2002:909:909::1"] {
        assert_eq!(
            translated(address(text)),
            Some(Ipv4Addr::new(9, 9, 9, 9)),
            "{text}"
        );
    }
    for text in ["9.9.9.9", "::", "::1", "2620:fe::fe", "64:ff9b:1::909:909"] {
        assert_eq!(translated(address(text)), None, "{text}");
    }
}

/// A name server that answers with an address of the box, of the site or of a cloud opens none of them.
#[test]
fn a_listed_name_opens_no_address_that_is_not_listed() {
    let policy = egress(
        NetworkMode::List,
        &[
            "index.example:443",
            "10.1.0.0/16:443",
            "10.2.2.2:443",
            "127.0.0.1:9000",
            "warehouse.plant:9000",
        ],
    );
    let index = &policy.targets[0];
    assert!(policy.admits(index, address("9.9.9.9"), false));
    assert!(
        policy.admits(index, address("10.1.2.3"), false),
        "its network is listed"
    );
    assert!(policy.admits(index, address("::ffff:10.1.2.3"), false));
    assert!(
        policy.admits(index, address("10.2.2.2"), true),
        "its own entry lists it"
    );
    for (text, is_own) in [
        ("10.9.2.3", false),
        ("127.0.0.1", false),
        ("::1", false),
        ("::ffff:127.0.0.1", false),
        ("169.254.169.254", false),
        ("fd00:ec2::254", false),
        ("0.0.0.0", false),
        ("224.0.0.1", false),
        // Of this machine, of every kind; a network that holds one does not list it.
        ("9.9.9.9", true),
        ("10.1.2.3", true),
    ] {
        assert!(!policy.admits(index, address(text), is_own), "{text}");
    }
    // Listed for its port alone.
    assert!(policy.admits(&policy.targets[4], address("127.0.0.1"), true));
    let pinned = egress(NetworkMode::List, &["db=10.7.7.7:5432"]);
    assert!(pinned.admits(&pinned.targets[0], address("10.7.7.7"), false));
    assert!(!pinned.admits(&pinned.targets[0], address("9.9.9.9"), false));
}

#[test]
fn a_list_gives_each_name_an_address_and_a_proxy_its_variables() {
    let list = egress(
        NetworkMode::List,
        &[
            "warehouse.plant:3306",
            "db=10.1.2.3:5432",
            "warehouse.plant:443",
            "127.0.0.1:9000",
            "10.1.0.0/16:80",
            "*.example:443",
        ],
    );
    let points: Vec<String> = list
        .points()
        .iter()
        .map(|point| format!("{} {}", point.at, point.name))
        .collect();
    assert_eq!(
        points,
        [
            "127.80.0.1:3306 warehouse.plant",
            "127.80.0.2:5432 db",
            "127.80.0.1:443 warehouse.plant",
            "127.80.0.3:9000 ip-127-0-0-1",
        ]
    );
    assert_eq!(
        list.hosts(),
        "127.80.0.1\twarehouse.plant\n127.80.0.2\tdb\n127.80.0.3\tip-127-0-0-1\n"
    );
    assert!(list.variables().is_empty());
    let proxy = egress(NetworkMode::Proxy, &["*.example:443"]);
    assert_eq!((proxy.points(), proxy.hosts()), (vec![], String::new()));
    let variables = proxy.variables();
    let value = |name: &str| {
        let mut all = variables.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(value("HTTPS_PROXY"), Some("http://127.127.0.1:4281"));
    assert_eq!(value("http_proxy"), Some("http://127.127.0.1:4281"));
    assert_eq!(value("NO_PROXY"), Some("localhost,127.0.0.0/8,::1"));
}

#[test]
fn a_launch_gets_what_its_policy_allows_and_nothing_without_one() {
    let policy = EgressPolicy::read(
        &["list".to_owned(), "none".to_owned()],
        &["db=10.1.2.3:5432".to_owned()],
    );
    let policy = policy.expect("valid").expect("it says something");
    let usual = chosen(Some(&policy), None)
        .expect("allowed")
        .expect("a network");
    assert_eq!((usual.mode, usual.targets.len()), (NetworkMode::List, 1));
    assert_eq!(chosen(Some(&policy), Some(NetworkMode::None)), Ok(None));
    assert_eq!(chosen(None, None), Ok(None));
    assert_eq!(chosen(None, Some(NetworkMode::None)), Ok(None));
    for (policy, asked) in [
        (Some(&policy), NetworkMode::Proxy),
        (None, NetworkMode::List),
    ] {
        let refusal = chosen(policy, Some(asked)).expect_err("not allowed");
        assert_eq!(refusal.code, "egress.not-allowed");
    }
    assert_eq!(EgressPolicy::read(&[], &[]), Ok(None));
    let many: Vec<String> = (1..=65).map(|port| format!("a.example:{port}")).collect();
    let list = ["list".to_owned()];
    let code = |read: Result<Option<EgressPolicy>, Refusal>| read.expect_err("refused").code;
    assert_eq!(code(EgressPolicy::read(&list, &many)), "egress.too-many");
    assert_eq!(
        code(EgressPolicy::read(&["open".to_owned()], &[])),
        "egress.network-unknown"
    );
    assert_eq!(
        code(EgressPolicy::read(&[], &many[..1])),
        "egress.network-unknown"
    );
}

#[test]
fn a_narrowed_policy_refuses_what_it_lists_no_more_and_moves_nothing() {
    let session = egress(
        NetworkMode::List,
        &[
            "a.plant:1",
            "db=10.1.2.3:5432",
            "10.1.0.0/16:80",
            "b.plant:80",
        ],
    );
    let policy = |networks: &[NetworkMode], targets: &[&str]| EgressPolicy {
        networks: networks.to_vec(),
        targets: egress(NetworkMode::List, targets).targets,
    };
    let now = policy(
        &[NetworkMode::List],
        &["db=10.1.2.3:5432", "b.plant:80", "new:1"],
    );
    let narrowed = session.under(Some(&now));
    assert_eq!(
        narrowed.points(),
        session.points(),
        "names stay where they are"
    );
    let left: Vec<String> = narrowed.open_targets().map(ToString::to_string).collect();
    assert_eq!(left, ["db=10.1.2.3:5432", "b.plant:80"]);
    assert!(!narrowed.opens(&session.targets[0]) && narrowed.opens(&session.targets[1]));
    // The network that admitted its address is gone.
    let private = address("10.1.9.9");
    assert!(session.admits(&session.targets[3], private, false));
    assert!(!narrowed.admits(&narrowed.targets[3], private, false));
    // The policy comes back, or takes the network away.
    let before = policy(&[NetworkMode::List], &["a.plant:1", "db=10.1.2.3:5432"]);
    assert_eq!(narrowed.under(Some(&before)).open_targets().count(), 2);
    for gone in [None, Some(&policy(&[NetworkMode::Proxy], &["a.plant:1"]))] {
        assert_eq!(session.under(gone).open_targets().count(), 0);
    }
    let proxy = egress(NetworkMode::Proxy, &["*.plant:443"]);
    assert!(proxy.listed("x.plant", 443).is_some());
    let other = policy(&[NetworkMode::Proxy], &["*.lab:443"]);
    let narrowed = proxy.under(Some(&other));
    assert!(narrowed.listed("x.plant", 443).is_none());
    assert!(narrowed.listed("x.lab", 443).is_some());
    assert!(proxy.under(None).listed("x.plant", 443).is_none());
    assert_eq!(
        session.under(Some(&policy(
            &[NetworkMode::List],
            &[
                "a.plant:1",
                "db=10.1.2.3:5432",
                "10.1.0.0/16:80",
                "b.plant:80"
            ]
        ))),
        session
    );
}
