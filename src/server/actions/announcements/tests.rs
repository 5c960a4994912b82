//! Announcements through the actions that doors call: who writes them, who reads which, and when they are over.

use std::net::{IpAddr, Ipv4Addr};

use rules::grants::GrantRole;
use rules::users::Role;

use super::super::{tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";
const HOUR: u64 = 3_600;

/// A site with two domains. Boss administers the site and mina is a user of the first domain; chief administers
/// `biology`, auditor audits it, and abe is its user.
struct TwoDomains {
    server: Server,
    boss: Caller,
    mina: Caller,
    chief: Caller,
    auditor: Caller,
    abe: Caller,
}

impl TwoDomains {
    async fn open() -> Self {
        let server = Server::for_tests();
        let setup = setup_link(&server).unwrap();
        let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
        let boss = boss.caller;
        tenancy::create_domain(&server, &boss, "biology", "", None)
            .await
            .unwrap();
        let mut others = Vec::new();
        for (name, domain, role) in [
            ("mina", None, None),
            ("chief", Some("biology"), Some(GrantRole::Administrator)),
            ("auditor", Some("biology"), Some(GrantRole::Auditor)),
            ("abe", Some("biology"), None),
        ] {
            users::create_once(&server, &boss, name, Role::User, GOOD, domain, None)
                .await
                .unwrap();
            if let Some(role) = role {
                tenancy::grant(&server, &boss, name, role, domain, None)
                    .await
                    .unwrap();
            }
            others.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
        }
        let [mina, chief, auditor, abe] = others.try_into().expect("four callers");
        Self {
            server,
            boss,
            mina,
            chief,
            auditor,
            abe,
        }
    }

    fn after(&self, hours: u64) -> Timestamp {
        self.server.clock().now().plus_seconds(hours * HOUR)
    }

    fn pass(&self, hours: u64) {
        self.server.clock().set(self.after(hours));
    }

    async fn made(&self, caller: &Caller, asked: NewAnnouncementBody) -> AnnouncementView {
        // Each begins later than the one before.
        let clock = self.server.clock();
        clock.set(Timestamp::from_millis(clock.now().as_millis() + 1));
        let made = create(&self.server, caller, asked, None).await;
        made.unwrap_or_else(|failure| panic!("{failure}")).value
    }

    async fn refused(&self, caller: &Caller, asked: NewAnnouncementBody) -> String {
        code(create(&self.server, caller, asked, None).await).to_string()
    }

    /// What boss, mina, chief and abe read, and who did not sign in.
    async fn read(&self) -> [Vec<String>; 5] {
        let mut read = Vec::new();
        for caller in [&self.boss, &self.mina, &self.chief, &self.abe] {
            let all = current(&self.server, caller).await.unwrap();
            assert_eq!(all, around(&self.server, Some(caller)));
            read.push(all.into_iter().map(|one| one.text).collect());
        }
        let strangers = around(&self.server, None);
        read.push(strangers.into_iter().map(|one| one.text).collect());
        read.try_into().expect("five readers")
    }

    async fn listed(&self, caller: &Caller) -> Vec<String> {
        let all = list(&self.server, caller).await.unwrap();
        all.into_iter().map(|one| one.text).collect()
    }
}

fn new(text: &str) -> NewAnnouncementBody {
    serde_json::from_value(serde_json::json!({"text": text})).unwrap()
}

fn of_biology(text: &str) -> NewAnnouncementBody {
    NewAnnouncementBody {
        domain: Some("biology".to_owned()),
        ..new(text)
    }
}

#[tokio::test]
async fn there_is_room_until_each_place_of_a_caller_is_full() {
    let world = TwoDomains::open().await;
    let holds = NewAnnouncementBody {
        until: Some(world.after(2)),
        ..of_biology("cells")
    };
    let one = world.made(&world.chief, holds).await;
    let room = |count: usize, places: &[&str], now: Timestamp| {
        let known = vec![one.clone(); count];
        let places: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
        no_room(&known, &places, now).map(|refusal| refusal.code)
    };
    let now = world.after(0);
    assert_eq!(room(MAX_ANNOUNCEMENTS - 1, &["biology"], now), None);
    let full = room(MAX_ANNOUNCEMENTS, &["biology"], now);
    assert_eq!(full.as_deref(), Some("announcement.too-many"));
    let other = room(MAX_ANNOUNCEMENTS, &["", "biology"], now);
    assert_eq!(other, None, "the site has room");
    let later = room(MAX_ANNOUNCEMENTS, &["biology"], world.after(3));
    assert_eq!(later, None, "they are over");
}

#[tokio::test]
async fn each_reader_sees_what_is_meant_for_them_while_it_holds() {
    let world = TwoDomains::open().await;
    assert_eq!(world.read().await, [const { Vec::<String>::new() }; 5]);
    world.made(&world.boss, new("all")).await;
    let at_the_door = NewAnnouncementBody {
        before_sign_in: true,
        level: AnnouncementLevel::Warning,
        until: Some(world.after(2)),
        ..new("door")
    };
    world.made(&world.boss, at_the_door).await;
    world.made(&world.chief, of_biology("cells")).await;
    let later = NewAnnouncementBody {
        from: Some(world.after(1)),
        ..new("later")
    };
    world.made(&world.boss, later).await;
    assert_eq!(
        world.read().await,
        [
            vec!["door", "all"],
            vec!["door", "all"],
            vec!["door", "cells", "all"],
            vec!["door", "cells", "all"],
            vec!["door"],
        ]
    );
    world.pass(1);
    assert_eq!(world.read().await[1], ["door", "later", "all"]);
    world.pass(1);
    let read = world.read().await;
    assert_eq!(
        (&read[1], &read[4]),
        (&vec!["later".into(), "all".into()], &vec![])
    );
    // Those who manage them see also what is over.
    assert_eq!(
        world.listed(&world.boss).await,
        ["later", "cells", "door", "all"]
    );
}

#[tokio::test]
async fn only_administrators_write_and_those_of_a_domain_their_own() {
    let world = TwoDomains::open().await;
    let site = world.made(&world.boss, new("all")).await;
    let physics = NewAnnouncementBody {
        domain: Some("default".to_owned()),
        ..new("physics")
    };
    let physics = world.made(&world.boss, physics).await;
    let cells = world.made(&world.boss, of_biology("cells")).await;
    assert_eq!(cells.domain.as_deref(), Some("biology"));
    const DENIED: &str = "role.administrator-needed";
    for caller in [&world.mina, &world.abe, &world.auditor] {
        assert_eq!(world.refused(caller, new("x")).await, DENIED);
        assert_eq!(world.refused(caller, of_biology("x")).await, DENIED);
        let id = cells.id.to_string();
        assert_eq!(code(remove(&world.server, caller, &id).await), DENIED);
    }
    for caller in [&world.mina, &world.abe] {
        assert_eq!(code(list(&world.server, caller).await), DENIED);
    }
    assert_eq!(world.listed(&world.auditor).await, ["cells"]);
    assert_eq!(world.listed(&world.chief).await, ["cells"]);
    assert_eq!(world.refused(&world.chief, new("x")).await, DENIED);
    let elsewhere = NewAnnouncementBody {
        domain: Some("default".to_owned()),
        ..new("x")
    };
    assert_eq!(
        world.refused(&world.chief, elsewhere).await,
        "domain.not-found"
    );
    // What another domain reads is not theirs to know; what everybody reads is.
    for (id, expected) in [(physics.id, "announcement.not-found"), (site.id, DENIED)] {
        let id = id.to_string();
        let patch = AnnouncementPatchBody::default();
        let changed = change(&world.server, &world.chief, &id, patch, None).await;
        assert_eq!(code(changed), expected);
        assert_eq!(
            code(remove(&world.server, &world.chief, &id).await),
            expected
        );
        let got = get(&world.server, &world.chief, &id).await;
        assert_eq!(code(got), "announcement.not-found");
    }
    let id = cells.id.to_string();
    remove(&world.server, &world.chief, &id).await.unwrap();
    assert_eq!(
        code(remove(&world.server, &world.chief, &id).await),
        "announcement.not-found"
    );
    assert_eq!(
        code(remove(&world.server, &world.boss, "x").await),
        "announcement.not-found"
    );
    assert!(!may_write(&world.auditor) && may_list(&world.auditor) && !may_list(&world.abe));
    // A token needs the scope of what it writes.
    let mut narrow = world.boss.clone();
    narrow.subject.scopes = Some(vec![Permission::UsersWrite, Permission::UsersRead]);
    assert_eq!(
        world.refused(&narrow, of_biology("x")).await,
        "token.scope-missing"
    );
    assert_eq!(
        code(list(&world.server, &narrow).await),
        "token.scope-missing"
    );
}

#[tokio::test]
async fn what_cannot_be_announced_is_refused_by_name() {
    let world = TwoDomains::open().await;
    let boss = &world.boss;
    let later = |hours| Some(world.after(hours));
    for (asked, expected) in [
        (new("  "), "announcement.text-missing"),
        (new("a\nb"), "announcement.hidden-characters"),
        (new(&"x".repeat(501)), "announcement.text-too-long"),
        (
            NewAnnouncementBody {
                text_ko: Some("가".repeat(501)),
                ..new("x")
            },
            "announcement.text-too-long",
        ),
        (
            NewAnnouncementBody {
                before_sign_in: true,
                ..of_biology("x")
            },
            "announcement.before-sign-in",
        ),
        (
            NewAnnouncementBody {
                until: later(0),
                ..new("x")
            },
            "announcement.end",
        ),
        (
            NewAnnouncementBody {
                from: later(2),
                until: later(1),
                ..new("x")
            },
            "announcement.end",
        ),
        (
            NewAnnouncementBody {
                from: later(24 * 367),
                ..new("x")
            },
            "announcement.start",
        ),
        (
            NewAnnouncementBody {
                domain: Some("nowhere".to_owned()),
                ..new("x")
            },
            "domain.not-found",
        ),
    ] {
        assert_eq!(world.refused(boss, asked).await, expected);
    }
    assert!(world.listed(boss).await.is_empty());
    // Its letters are counted, not its bytes.
    world.made(boss, new(&"가".repeat(500))).await;
    for n in 1..MAX_ANNOUNCEMENTS {
        let asked = NewAnnouncementBody {
            until: later(1),
            ..new(&format!("{n}"))
        };
        world.made(boss, asked).await;
    }
    assert_eq!(
        world.refused(boss, new("one more")).await,
        "announcement.too-many"
    );
    world
        .made(&world.chief, of_biology("a domain has its own"))
        .await;
    // What is over makes room, and at most as many of it are kept.
    for _ in 0..2 {
        world.pass(2);
        for n in 1..MAX_ANNOUNCEMENTS {
            let asked = NewAnnouncementBody {
                until: Some(world.after(1)),
                ..new(&format!("{n}"))
            };
            world.made(boss, asked).await;
        }
    }
    let over = MAX_OVER + MAX_ANNOUNCEMENTS;
    let kept = world.listed(boss).await.len();
    assert!((over..=over + 1).contains(&kept), "{kept} are kept");
}

#[tokio::test]
async fn a_change_shows_at_once_and_a_stale_one_is_refused() {
    let world = TwoDomains::open().await;
    let asked = NewAnnouncementBody {
        until: Some(world.after(1)),
        ..new("soon")
    };
    let made = world.made(&world.boss, asked).await;
    let id = made.id.to_string();
    let patch = AnnouncementPatchBody {
        text: Some(" now ".to_owned()),
        text_ko: Some("지금".to_owned()),
        level: Some(AnnouncementLevel::Warning),
        until: Some(None),
        ..AnnouncementPatchBody::default()
    };
    let (server, boss) = (&world.server, &world.boss);
    let changed = change(server, boss, &id, patch.clone(), Some(1))
        .await
        .unwrap();
    assert_eq!((changed.generation, changed.until), (2, None));
    assert_eq!((&*changed.text, &*changed.text_ko), ("now", "지금"));
    assert_eq!(world.read().await[1], ["now"]);
    assert_eq!(get(server, boss, &id).await.unwrap(), changed);
    let stale = change(server, boss, &id, patch.clone(), Some(1)).await;
    assert_eq!(code(stale), "announcement.stale");
    // Nothing new: the version stays.
    let same = change(server, boss, &id, patch, Some(2)).await.unwrap();
    assert_eq!(same.generation, 2);
    world.pass(5);
    let past = AnnouncementPatchBody {
        until: Some(Some(Timestamp::from_millis(made.from.as_millis() + 1))),
        ..AnnouncementPatchBody::default()
    };
    let past = change(server, boss, &id, past, None).await;
    assert_eq!(code(past), "announcement.end");
    // A text can be mended whose beginning lies far back.
    world.pass(24 * 400);
    let mended = AnnouncementPatchBody {
        text: Some("mended".to_owned()),
        ..AnnouncementPatchBody::default()
    };
    change(server, boss, &id, mended, None).await.unwrap();
    assert_eq!(world.read().await[3], ["mended"]);
    remove(server, boss, &id).await.unwrap();
    assert!(world.read().await[0].is_empty());
    let codes = server
        .catalog()
        .read_now("look", |view| {
            view.events_after(&reach(&boss.subject, Permission::SystemRead), 0, 100)
        })
        .unwrap()
        .0;
    let mut told = codes.into_iter().map(|event| event.code);
    let told: Vec<String> = told
        .by_ref()
        .filter(|code| code.starts_with("announcement."))
        .collect();
    assert_eq!(
        told,
        [
            "announcement.added",
            "announcement.changed",
            "announcement.changed",
            "announcement.removed"
        ]
    );
}

#[tokio::test]
async fn what_was_over_a_month_ago_is_gone() {
    let world = TwoDomains::open().await;
    let asked = NewAnnouncementBody {
        until: Some(world.after(1)),
        ..new("over")
    };
    world.made(&world.boss, asked).await;
    world.made(&world.boss, new("stays")).await;
    for (days, left) in [(29, 2), (2, 1)] {
        world.pass(24 * days);
        let before = Timestamp::from_millis(0);
        world.server.catalog().forget(before, 10).await.unwrap();
        let rows = world
            .server
            .catalog()
            .read_now("look", |view| view.announcements());
        assert_eq!(rows.unwrap().len(), left, "after {days} days");
    }
}
