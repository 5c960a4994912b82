//! Policies through the actions that doors call: who writes them, where they hold, and which rule is named.

use std::net::{IpAddr, Ipv4Addr};

use api::sessions::LaunchRequest;
use rules::object::Object;
use rules::units::GpuShare;
use rules::users::Role;

use super::super::users;
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

async fn a_server() -> (Server, Caller, Caller) {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    users::create(&server, &boss.caller, "mina", Role::User, GOOD)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap();
    (server, boss.caller, mina.caller)
}

fn new(name: &str, limits: LimitsBody) -> NewPolicyBody {
    NewPolicyBody {
        name: name.to_owned(),
        limits,
        egress: Default::default(),
        sudo: false,
        no_inner_door: false,
        no_home: false,
        require_limit: false,
    }
}

fn to(level: PolicyLevel, subject: &str) -> PolicyUseBody {
    PolicyUseBody {
        level,
        subject: Some(subject.to_owned()),
    }
}

#[tokio::test]
async fn a_policy_is_written_attached_and_taken_away_again() {
    let (server, boss, mina) = a_server().await;
    let limits = LimitsBody {
        sessions: Some(3),
        gpu: Some(GpuShare(150)),
        ..LimitsBody::default()
    };
    let made = create(&server, &boss, new("students", limits))
        .await
        .unwrap();
    assert_eq!((made.uses.len(), made.limits), (0, limits));
    assert_eq!(
        code(create(&server, &boss, new("students", limits)).await),
        "policy.name-taken"
    );
    for name in ["", "Bad Name", &"x".repeat(64)] {
        assert_eq!(
            code(create(&server, &boss, new(name, limits)).await),
            "policy.name-invalid"
        );
    }
    let endless = LimitsBody {
        runtime_seconds: Some(0),
        ..LimitsBody::default()
    };
    assert_eq!(
        code(create(&server, &boss, new("endless", endless)).await),
        "seconds.out-of-range"
    );
    let nowhere = LimitsBody {
        sign_ins: Some(0),
        ..LimitsBody::default()
    };
    assert_eq!(
        code(create(&server, &boss, new("nowhere", nowhere)).await),
        "policy.limit-invalid"
    );
    for (level, subject, expected) in [
        (PolicyLevel::Site, "mina", "policy.subject-unwanted"),
        (PolicyLevel::User, "nobody", "user.not-found"),
        (PolicyLevel::Project, "nowhere", "project.not-found"),
        (PolicyLevel::Domain, "", "domain.not-found"),
    ] {
        let refused = attach(&server, &boss, "students", to(level, subject)).await;
        assert_eq!(code(refused), expected);
    }
    attach(&server, &boss, "students", to(PolicyLevel::User, "mina"))
        .await
        .unwrap();
    let held = effective(&server, &mina, None, None).await.unwrap();
    let of = |key: &str| held.iter().find(|limit| limit.key == key).cloned();
    let gpu = of("gpu").unwrap();
    assert_eq!(
        (gpu.limit, &*gpu.policy, &*gpu.limit_text),
        (150, "students", "1.5 GPU")
    );
    // The site's own policy says something of what waits, and nothing of what this one does.
    assert_eq!(of("waiting").unwrap().policy, "default");
    assert_eq!(of("memory"), None);
    assert_eq!(
        code(effective(&server, &mina, Some("boss"), None).await),
        "role.administrator-needed"
    );
    let seen = effective(&server, &boss, Some("mina"), Some("default")).await;
    assert_eq!(seen.unwrap(), held);

    // A stricter one of the project wins, and one that is looser changes nothing.
    for (name, sessions, expected) in [("strict", 1, "strict"), ("loose", 9, "students")] {
        let limits = LimitsBody {
            sessions: Some(sessions),
            ..LimitsBody::default()
        };
        create(&server, &boss, new(name, limits)).await.unwrap();
        attach(
            &server,
            &boss,
            name,
            to(PolicyLevel::Project, "default/default"),
        )
        .await
        .unwrap();
        let held = effective(&server, &mina, None, None).await.unwrap();
        let sessions = held.iter().find(|limit| limit.key == "sessions").unwrap();
        assert_eq!(sessions.policy, expected);
    }
    // The second took the place of the first.
    let strict = get(&server, &boss, "strict").await.unwrap();
    assert!(strict.uses.is_empty());
    assert_eq!(code(remove(&server, &boss, "loose").await), "policy.in-use");
    let user = Some(PolicyLevel::User);
    let wrong = detach(&server, &boss, "strict", user, Some("mina".to_owned())).await;
    assert_eq!(code(wrong), "policy.not-attached");
    let left = detach(&server, &boss, "students", user, Some("mina".to_owned())).await;
    assert!(left.unwrap().uses.is_empty());
    remove(&server, &boss, "strict").await.unwrap();
    assert_eq!(
        code(get(&server, &boss, "strict").await),
        "policy.not-found"
    );
    for number in 0..MAX_POLICIES - 3 {
        let name = format!("p{number}");
        create(&server, &boss, new(&name, limits)).await.unwrap();
    }
    let more = create(&server, &boss, new("more", limits)).await;
    assert_eq!(code(more), "policy.too-many");
}

#[test]
fn limits_are_kept_under_the_names_of_their_keys() {
    let mut limits = PolicyLimits::NONE;
    for key in rules::quota::LimitKey::ALL {
        limits.set(key, Some(7));
        let text = serde_json::to_string(&limits).unwrap();
        assert!(text.contains(&format!("\"{}\":7", key.word())), "{text}");
        assert_eq!(serde_json::from_str::<PolicyLimits>(&text).unwrap(), limits);
    }
}

#[tokio::test]
async fn a_change_names_its_version_and_a_user_changes_none() {
    let (server, boss, mina) = a_server().await;
    let limits = LimitsBody {
        waiting: Some(7),
        ..LimitsBody::default()
    };
    let patch = || PolicyPatchBody {
        name: None,
        limits: Some(Object(limits)),
        egress: None,
        sudo: None,
        no_inner_door: None,
        no_home: None,
        require_limit: None,
    };
    let stale = change(&server, &boss, "default", patch(), Some(9)).await;
    assert_eq!(code(stale), "policy.stale");
    let changed = change(&server, &boss, "default", patch(), Some(1)).await;
    assert_eq!(changed.unwrap().generation, 2);
    let held = effective(&server, &mina, None, None).await.unwrap();
    assert_eq!((held[0].limit, held[0].used), (7, 0));
    // What it no longer says falls back to what is built in.
    assert_eq!(held[1].limit, 16 << 20);
    let denied = "role.administrator-needed";
    assert_eq!(code(list(&server, &mina).await), denied);
    assert_eq!(
        code(create(&server, &mina, new("own", limits)).await),
        denied
    );
    assert_eq!(
        code(change(&server, &mina, "default", patch(), None).await),
        denied
    );
    assert_eq!(code(remove(&server, &mina, "default").await), denied);
    let own = to(PolicyLevel::User, "mina");
    assert_eq!(code(attach(&server, &mina, "default", own).await), denied);
}

#[tokio::test]
async fn a_policy_says_which_networks_a_launch_may_choose() {
    use api::sessions::LaunchRequest;
    use rules::egress::NetworkMode;

    use super::super::sessions;

    let (server, boss, mina) = a_server().await;
    server.put_test_node("fardel-01");
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
    let body = |networks: &[&str], targets: &[&str]| NewPolicyBody {
        egress: EgressBody {
            networks: words(networks),
            targets: words(targets),
        },
        ..new("plant", LimitsBody::default())
    };
    let launch = async |network: Option<&str>| {
        let request = LaunchRequest {
            network: network.map(str::to_owned),
            ..LaunchRequest::default()
        };
        let launched = sessions::launch(&server, &mina, request, None).await;
        launched.map(|mut launched| launched.sessions.remove(0))
    };
    assert_eq!(launch(None).await.unwrap().network, NetworkMode::None);
    assert_eq!(code(launch(Some("list")).await), "egress.not-allowed");
    assert_eq!(code(launch(Some("open")).await), "egress.network-unknown");
    for (networks, targets, refused) in [
        (&["open"][..], &[][..], "egress.network-unknown"),
        (&["list"][..], &["x"][..], "egress.target-invalid"),
    ] {
        let made = create(&server, &boss, body(networks, targets)).await;
        assert_eq!(code(made), refused);
    }
    let target = "db=10.1.2.3:5432";
    let made = create(&server, &boss, body(&["list", "none"], &[target])).await;
    assert_eq!(made.unwrap().egress.targets, [target]);
    let own = to(PolicyLevel::User, "mina");
    attach(&server, &boss, "plant", own).await.unwrap();
    let usual = launch(None).await.unwrap();
    assert_eq!(usual.network, NetworkMode::List);
    assert_eq!(usual.targets, [target]);
    assert_eq!(
        launch(Some("none")).await.unwrap().network,
        NetworkMode::None
    );
    assert_eq!(code(launch(Some("proxy")).await), "egress.not-allowed");
    let live = || {
        let id = usual.id;
        let read = server
            .catalog()
            .read_now("look", move |view| view.session(id));
        read.unwrap().unwrap()
    };
    // A session that is there loses what it lists no more, and gets nothing.
    let narrow = |targets: &[&str]| PolicyPatchBody {
        egress: Some(Object(EgressBody {
            networks: words(&["list", "none"]),
            targets: words(targets),
        })),
        ..PolicyPatchBody::default()
    };
    let other = narrow(&["other.plant:1"]);
    change(&server, &boss, "plant", other, None).await.unwrap();
    let narrowed = live();
    assert_eq!(
        narrowed.egress.as_ref().map(|one| one.refused.len()),
        Some(1)
    );
    assert!(narrowed.generation > 1, "its node is told");
    let seen = sessions::get(&server, &mina, &usual.id.to_string()).await;
    assert!(seen.unwrap().targets.is_empty());
    let again = narrow(&[target]);
    change(&server, &boss, "plant", again, None).await.unwrap();
    assert_eq!(live().egress.map(|one| one.refused.len()), Some(0));
    let own = Some("mina".to_owned());
    detach(&server, &boss, "plant", Some(PolicyLevel::User), own)
        .await
        .unwrap();
    assert_eq!(live().egress.map(|one| one.refused.len()), Some(1));
    let own = to(PolicyLevel::User, "mina");
    attach(&server, &boss, "plant", own).await.unwrap();
    assert_eq!(live().egress.map(|one| one.refused.len()), Some(0));
    // What it no longer says holds for what is launched from now on, and what is there reaches nothing.
    let patch = PolicyPatchBody {
        egress: Some(Object(EgressBody::default())),
        ..PolicyPatchBody::default()
    };
    change(&server, &boss, "plant", patch, None).await.unwrap();
    assert_eq!(launch(None).await.unwrap().network, NetworkMode::None);
    let kept = sessions::get(&server, &mina, &usual.id.to_string()).await;
    let kept = kept.unwrap();
    assert_eq!(kept.network, NetworkMode::List);
    assert!(kept.targets.is_empty());
    let shown = sessions::connections(&server, &mina, &usual.id.to_string()).await;
    assert!(shown.unwrap().is_empty());
}

#[tokio::test]
async fn a_launch_gets_sudo_where_a_policy_allows_it_and_nowhere_else() {
    use api::sessions::LaunchRequest;

    use super::super::sessions;

    let (server, boss, mina) = a_server().await;
    server.put_test_node("fardel-01");
    let launch = async |sudo: bool| {
        let request = LaunchRequest {
            sudo,
            ..LaunchRequest::default()
        };
        let launched = sessions::launch(&server, &mina, request, None).await;
        launched.map(|mut launched| launched.sessions.remove(0))
    };
    assert!(!launch(false).await.unwrap().sudo);
    assert_eq!(code(launch(true).await), "sudo.not-allowed");
    let allowing = NewPolicyBody {
        sudo: true,
        ..new("workshop", LimitsBody::default())
    };
    assert!(create(&server, &boss, allowing).await.unwrap().sudo);
    // Attached to nothing it allows nothing.
    assert_eq!(code(launch(true).await), "sudo.not-allowed");
    let own = to(PolicyLevel::User, "mina");
    attach(&server, &boss, "workshop", own).await.unwrap();
    let granted = launch(true).await.unwrap();
    assert!(granted.sudo);
    let told = sessions::events(&server, &mina, &granted.id.to_string()).await;
    assert_eq!(told.unwrap()[0].after, "pending, sudo");
    assert!(!launch(false).await.unwrap().sudo, "none that did not ask");
    let patch = PolicyPatchBody {
        sudo: Some(false),
        ..PolicyPatchBody::default()
    };
    change(&server, &boss, "workshop", patch, None)
        .await
        .unwrap();
    assert_eq!(code(launch(true).await), "sudo.not-allowed");
}

#[tokio::test]
async fn a_policy_is_changed_and_attached_both_or_neither() {
    let (server, boss, _) = a_server().await;
    let made = create(&server, &boss, new("students", LimitsBody::default()))
        .await
        .unwrap();
    let patch = |sessions| PolicyPatchBody {
        limits: Some(Object(LimitsBody {
            sessions: Some(sessions),
            ..LimitsBody::default()
        })),
        ..PolicyPatchBody::default()
    };
    let seen = Some(made.generation);
    let act = |sessions, seen, subject: &'static str| {
        let (server, boss) = (server.clone(), boss.clone());
        let to = to(PolicyLevel::User, subject);
        async move { change_and_attach(&server, &boss, "students", patch(sessions), seen, to).await }
    };
    assert_eq!(code(act(3, seen, "no-one").await), "user.not-found");
    let kept = get(&server, &boss, "students").await.unwrap();
    assert_eq!((kept.limits.sessions, kept.uses.len()), (None, 0));
    let held = act(3, seen, "mina").await.unwrap();
    assert_eq!((held.limits.sessions, held.uses.len()), (Some(3), 1));
    // What another has changed meanwhile is not written over.
    assert_eq!(code(act(4, seen, "boss").await), "policy.stale");
    let kept = get(&server, &boss, "students").await.unwrap();
    assert_eq!((kept.limits.sessions, kept.uses.len()), (Some(3), 1));
}

#[tokio::test]
async fn a_preview_names_who_would_have_more_and_changes_nothing() {
    let (server, boss, mina) = a_server().await;
    for _ in 0..2 {
        let launched = sessions::launch(&server, &mina, LaunchRequest::default(), None).await;
        launched.unwrap();
    }
    let waiting = |most: u64| PolicyPatchBody {
        limits: Some(Object(LimitsBody {
            waiting: Some(most),
            ..LimitsBody::default()
        })),
        ..PolicyPatchBody::default()
    };
    let before = get(&server, &boss, "default").await.unwrap();
    let over = preview(&server, &boss, "default", waiting(1))
        .await
        .unwrap();
    let told = |over: &PolicyPreviewView| -> Vec<(String, Option<String>, u64, u64)> {
        let items = over.items.iter();
        items
            .map(|one| (one.key.clone(), one.user.clone(), one.used, one.limit))
            .collect()
    };
    let of_mina = ("waiting".to_owned(), Some("mina".to_owned()), 2, 1);
    assert_eq!((told(&over), over.more), (vec![of_mina], 0));
    let none = preview(&server, &boss, "default", waiting(2)).await;
    assert_eq!(none.unwrap(), PolicyPreviewView::default());
    assert_eq!(get(&server, &boss, "default").await.unwrap(), before);

    // Of a project the sum of its members; of a policy that is attached to nothing, none.
    let limits = LimitsBody::default();
    create(&server, &boss, new("lab", limits)).await.unwrap();
    let none = preview(&server, &boss, "lab", waiting(1)).await.unwrap();
    assert!(none.items.is_empty());
    let project = to(PolicyLevel::Project, "default/default");
    attach(&server, &boss, "lab", project).await.unwrap();
    let over = preview(&server, &boss, "lab", waiting(1)).await.unwrap();
    assert_eq!(told(&over), [("waiting".to_owned(), None, 2, 1)]);
    assert_eq!(over.items[0].name, "default/default");

    let refused = preview(&server, &mina, "lab", waiting(1)).await;
    assert_eq!(code(refused), "role.administrator-needed");
    let refused = preview(&server, &boss, "none", waiting(1)).await;
    assert_eq!(code(refused), "policy.not-found");
}
