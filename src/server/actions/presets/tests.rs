//! Presets through the actions that doors call: who keeps those of which scope, who sees which, and what a launch that
//! names one gets.

use std::net::{IpAddr, Ipv4Addr};

use api::sessions::{LaunchRequest, Resources};
use rules::grants::GrantRole;
use rules::session::SessionKind;
use rules::units::{Bytes, CpuShare, GpuShare};
use rules::users::Role;

use super::super::{sessions, tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// Boss administers the site, chief the domain `biology`; lead leads its project `cells`, abe is a member there, and mina
/// is a user of the first domain.
struct TwoDomains {
    server: Server,
    boss: Caller,
    chief: Caller,
    lead: Caller,
    abe: Caller,
    mina: Caller,
}

impl TwoDomains {
    async fn open() -> Self {
        let server = Server::for_tests();
        server.put_test_node("one");
        let setup = setup_link(&server).unwrap();
        let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
        let boss = boss.caller;
        tenancy::create_domain(&server, &boss, "biology", "", None)
            .await
            .unwrap();
        let project =
            tenancy::create_project(&server, &boss, Some("biology"), "cells", "", None).await;
        let cells = project.unwrap().value.id.to_string();
        let mut others = Vec::new();
        for (name, domain) in [
            ("chief", Some("biology")),
            ("lead", Some("biology")),
            ("abe", Some("biology")),
            ("mina", None),
        ] {
            users::create_once(&server, &boss, name, Role::User, GOOD, domain, None)
                .await
                .unwrap();
            match name {
                "chief" => {
                    let role = GrantRole::Administrator;
                    tenancy::grant(&server, &boss, name, role, domain, None)
                        .await
                        .unwrap();
                }
                "lead" | "abe" => {
                    let role = match name {
                        "lead" => GrantRole::Lead,
                        _ => GrantRole::Member,
                    };
                    tenancy::put_member(&server, &boss, &cells, name, role, None)
                        .await
                        .unwrap();
                }
                _ => {}
            }
            others.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
        }
        let [chief, lead, abe, mina] = others.try_into().expect("four callers");
        Self {
            server,
            boss,
            chief,
            lead,
            abe,
            mina,
        }
    }

    async fn made(&self, caller: &Caller, asked: NewPresetBody) -> PresetView {
        let made = create(&self.server, caller, asked, None).await;
        made.unwrap_or_else(|failure| panic!("{failure}")).value
    }

    async fn refused(&self, caller: &Caller, asked: NewPresetBody) -> String {
        code(create(&self.server, caller, asked, None).await).to_string()
    }

    async fn listed(&self, caller: &Caller, project: Option<&str>) -> Vec<String> {
        let all = list(&self.server, caller, project).await.unwrap();
        all.into_iter().map(|one| one.name.to_string()).collect()
    }
}

fn new(name: &str) -> NewPresetBody {
    NewPresetBody {
        name: name.to_owned(),
        resources: Resources {
            cpu: Some(CpuShare(100)),
            ..Resources::default()
        },
        ..NewPresetBody::default()
    }
}

fn of_cells(name: &str) -> NewPresetBody {
    NewPresetBody {
        project: Some("biology/cells".to_owned()),
        ..new(name)
    }
}

fn of_biology(name: &str) -> NewPresetBody {
    NewPresetBody {
        domain: Some("biology".to_owned()),
        ..new(name)
    }
}

#[tokio::test]
async fn a_preset_of_a_group_puts_launches_there_and_names_no_group_to_others() {
    let world = TwoDomains::open().await;
    let (server, boss, abe) = (&world.server, &world.boss, &world.abe);
    let lab = api::resource_groups::NewResourceGroupBody {
        name: "lab".to_owned(),
        ..Default::default()
    };
    super::super::resource_groups::create(server, boss, lab, None)
        .await
        .unwrap();
    let of_group = |name: &str, group: &str| NewPresetBody {
        group: Some(group.to_owned()),
        ..of_cells(name)
    };
    assert_eq!(
        world.refused(boss, of_group("none", "nowhere")).await,
        "group.not-found"
    );
    let made = world.made(boss, of_group("large", "lab")).await;
    assert_eq!(made.group.as_deref(), Some("lab"));
    world.made(boss, of_cells("any")).await;
    let launch = |group: Option<&str>| LaunchRequest {
        kind: SessionKind::Batch,
        project: Some("cells".to_owned()),
        preset: Some("large".to_owned()),
        group: group.map(str::to_owned),
        command: vec!["true".to_owned()],
        ..LaunchRequest::default()
    };
    let other = sessions::launch(server, abe, launch(Some("default")), None).await;
    assert_eq!(code(other), "preset.other-group");
    let nodes = api::resource_groups::GroupNodesBody {
        nodes: vec!["one".to_owned()],
    };
    super::super::resource_groups::set_nodes(server, boss, "lab", nodes, None)
        .await
        .unwrap();
    sessions::launch(server, abe, launch(None), None)
        .await
        .unwrap();
    let query = api::sessions::ListQuery {
        q: "group:lab".to_owned(),
        ..api::sessions::ListQuery::default()
    };
    let there = sessions::list(server, abe, &query).await.unwrap();
    assert_eq!(there.items.len(), 1);
    let none_admitted = api::resource_groups::GroupAccessBody::default();
    super::super::resource_groups::set_access(server, boss, "lab", none_admitted, None)
        .await
        .unwrap();
    assert_eq!(world.listed(abe, Some("cells")).await, ["any"]);
    assert_eq!(world.listed(boss, Some("biology/cells")).await.len(), 2);
    let patch = PresetPatchBody {
        group: Some(String::new()),
        ..PresetPatchBody::default()
    };
    let freed = change(server, boss, "large", patch, None).await.unwrap();
    assert_eq!(freed.group, None);
    assert_eq!(world.listed(abe, Some("cells")).await.len(), 2);
}

#[tokio::test]
async fn there_is_room_until_each_scope_of_a_caller_is_full() {
    let world = TwoDomains::open().await;
    let (boss, lead) = (&world.boss, &world.lead);
    let one = world.made(lead, of_cells("project")).await;
    let own = scopes(&world.server, lead).await.unwrap();
    let room = |count: usize, scopes: &WritableScopes| {
        let known = vec![one.clone(); count];
        no_room(&known, scopes).map(|refusal| refusal.code)
    };
    assert_eq!(room(MAX_PRESETS - 1, &own), None);
    let full = room(MAX_PRESETS, &own);
    assert_eq!(full.as_deref(), Some("preset.too-many"));
    let all = scopes(&world.server, boss).await.unwrap();
    assert_eq!(room(MAX_PRESETS, &all), None, "the site has room");
    assert_eq!(room(MAX_PRESETS, &WritableScopes::default()), None);
}

#[tokio::test]
async fn each_scope_is_written_by_those_who_lead_it_and_seen_by_those_who_launch_there() {
    let world = TwoDomains::open().await;
    let (boss, chief, lead) = (&world.boss, &world.chief, &world.lead);
    world.made(boss, new("site")).await;
    world.made(chief, of_biology("domain")).await;
    world.made(lead, of_cells("project")).await;
    assert!(world.listed(boss, None).await.len() == 3);
    for caller in [chief, lead, &world.abe] {
        let seen = world.listed(caller, None).await;
        assert_eq!(seen, ["site", "domain", "project"], "{}", caller.name);
        let there = world.listed(caller, Some("cells")).await;
        assert_eq!(there, ["project", "domain", "site"]);
    }
    assert_eq!(world.listed(&world.mina, None).await, ["site"]);
    let hidden = get(&world.server, &world.mina, "project").await;
    assert_eq!(code(hidden), "preset.not-found");
    for (caller, asked, expected) in [
        (chief, new("x"), "role.administrator-needed"),
        (lead, of_biology("x"), "role.administrator-needed"),
        (&world.abe, of_cells("x"), "role.administrator-needed"),
        (&world.mina, new("x"), "role.administrator-needed"),
        (lead, of_biology("x"), "role.administrator-needed"),
    ] {
        assert_eq!(
            world.refused(caller, asked).await,
            expected,
            "{}",
            caller.name
        );
    }
    for (caller, which, expected) in [
        (lead, "site", "role.administrator-needed"),
        (lead, "domain", "role.administrator-needed"),
        (chief, "site", "role.administrator-needed"),
        (&world.abe, "project", "role.administrator-needed"),
    ] {
        let patch = PresetPatchBody::default();
        let changed = change(&world.server, caller, which, patch, None).await;
        assert_eq!(code(changed), expected, "{} {which}", caller.name);
        let removed = remove(&world.server, caller, which).await;
        assert_eq!(code(removed), expected, "{} {which}", caller.name);
    }
    let own = scopes(&world.server, lead).await.unwrap();
    assert_eq!((own.site, own.domains.len()), (false, 0));
    assert_eq!(own.projects, ["biology/cells"]);
    let all = scopes(&world.server, boss).await.unwrap();
    assert!(all.site && all.domains == ["biology", "default"]);
    let abe = scopes(&world.server, &world.abe).await.unwrap();
    assert_eq!(abe, WritableScopes::default());
    remove(&world.server, chief, "project").await.unwrap();
    assert_eq!(world.listed(lead, None).await, ["site", "domain"]);
}

#[tokio::test]
async fn what_is_no_preset_is_refused_by_name() {
    let world = TwoDomains::open().await;
    let boss = &world.boss;
    world.made(boss, new("small")).await;
    world.made(boss, of_biology("small")).await;
    for (asked, expected) in [
        (new("Small Size"), "preset.name-invalid"),
        (new("small"), "preset.name-taken"),
        (of_biology("small"), "preset.name-taken"),
        (
            NewPresetBody {
                resources: Resources::default(),
                ..new("x")
            },
            "preset.empty",
        ),
        (
            NewPresetBody {
                title: Some("x".repeat(41)),
                ..new("x")
            },
            "preset.title-invalid",
        ),
        (
            NewPresetBody {
                position: 10_000,
                ..new("x")
            },
            "preset.position",
        ),
        (
            NewPresetBody {
                domain: Some("biology".to_owned()),
                ..of_cells("x")
            },
            "preset.scope-twice",
        ),
        (
            NewPresetBody {
                project: Some("nowhere".to_owned()),
                ..new("x")
            },
            "project.not-found",
        ),
        (
            NewPresetBody {
                max_runtime_seconds: Some(0),
                ..new("x")
            },
            "seconds.out-of-range",
        ),
    ] {
        assert_eq!(world.refused(boss, asked).await, expected);
    }
    // Of two with one name the id says which is meant.
    let both = get(&world.server, boss, "small").await;
    assert_eq!(code(both), "preset.ambiguous");
    for n in 1..MAX_PRESETS {
        world.made(boss, new(&format!("n{n}"))).await;
    }
    assert_eq!(world.refused(boss, new("more")).await, "preset.too-many");
    world.made(boss, of_biology("a-domain-has-its-own")).await;
    let there = world.listed(&world.abe, Some("cells")).await;
    assert_eq!(there.len(), MAX_PRESETS + 1, "the narrower small hides one");
}

#[tokio::test]
async fn a_change_is_written_once_and_a_scope_has_one_default() {
    let world = TwoDomains::open().await;
    let (server, boss) = (&world.server, &world.boss);
    let first = NewPresetBody {
        default: true,
        ..new("first")
    };
    let first = world.made(boss, first).await;
    let second = world.made(boss, new("second")).await;
    let elsewhere = NewPresetBody {
        default: true,
        ..of_biology("elsewhere")
    };
    world.made(boss, elsewhere).await;
    let patch = PresetPatchBody {
        title: Some(" Second ".to_owned()),
        max_runtime_seconds: Some(Some(3_600)),
        default: Some(true),
        ..PresetPatchBody::default()
    };
    let changed = change(server, boss, "second", patch.clone(), Some(1)).await;
    let changed = changed.unwrap();
    assert_eq!((&*changed.title, changed.generation), ("Second", 2));
    assert_eq!(
        changed.resources, second.resources,
        "what is left out stays"
    );
    let stale = change(server, boss, "second", patch.clone(), Some(1)).await;
    assert_eq!(code(stale), "preset.stale");
    let same = change(server, boss, "second", patch, Some(2))
        .await
        .unwrap();
    assert_eq!(same.generation, 2);
    let all = list(server, boss, None).await.unwrap();
    let defaults: Vec<&str> = all
        .iter()
        .filter(|one| one.default)
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(defaults, ["second", "elsewhere"]);
    let first = get(server, boss, &first.id.to_string()).await.unwrap();
    assert_eq!(first.generation, 2, "who read it before meets its change");
    remove(server, boss, "second").await.unwrap();
    let gone = get(server, boss, "second").await;
    assert_eq!(code(gone), "preset.not-found");
    let told = server
        .catalog()
        .read_now("look", |view| {
            view.events_after(&reach(&boss.subject, Permission::SystemRead), 0, 100)
        })
        .unwrap()
        .0;
    let told: Vec<String> = told
        .into_iter()
        .map(|event| event.code)
        .filter(|code| code.starts_with("preset."))
        .collect();
    let added = "preset.added";
    assert_eq!(
        told,
        [added, added, added, "preset.changed", "preset.removed"]
    );
}

#[tokio::test]
async fn a_launch_that_names_a_preset_has_its_amounts_and_its_name() {
    let world = TwoDomains::open().await;
    let (server, abe) = (&world.server, &world.abe);
    let amounts = |cpu: u32, mib: u64| Resources {
        cpu: Some(CpuShare(cpu)),
        memory: Some(Bytes::mib(mib)),
        ..Resources::default()
    };
    let small = NewPresetBody {
        resources: amounts(10, 64),
        max_runtime_seconds: Some(600),
        ..new("small")
    };
    world.made(&world.boss, small.clone()).await;
    let narrower = NewPresetBody {
        resources: amounts(20, 128),
        ..of_cells("small")
    };
    let asked = |preset: &str, resources: Resources| LaunchRequest {
        kind: SessionKind::Batch,
        command: vec!["true".to_owned()],
        project: Some("cells".to_owned()),
        preset: Some(preset.to_owned()),
        resources,
        ..LaunchRequest::default()
    };
    let launched = async |request: LaunchRequest| {
        let launched = sessions::launch(server, abe, request, None).await.unwrap();
        launched.sessions.into_iter().next().expect("a session")
    };
    let one = launched(asked("small", Resources::default())).await;
    assert_eq!(
        (one.resources.cpu, one.resources.memory),
        (CpuShare(10), Bytes::mib(64))
    );
    assert_eq!(one.max_runtime_seconds, Some(600));
    assert_eq!(one.labels["preset"], "small");
    // The project's own of that name is meant from now on; what is given explicitly wins.
    world.made(&world.lead, narrower).await;
    let given = Resources {
        memory: Some(Bytes::mib(32)),
        ..Resources::default()
    };
    let two = launched(asked(" small ", given)).await;
    assert_eq!(
        (two.resources.cpu, two.resources.memory),
        (CpuShare(20), Bytes::mib(32))
    );
    assert_eq!(two.max_runtime_seconds, None);
    // A time limit of the command takes the place of the preset's, and a label of one's own stays.
    let timed = LaunchRequest {
        project: None,
        timeout_seconds: Some(30),
        labels: [("preset".to_owned(), "mine".to_owned())].into(),
        ..asked("small", Resources::default())
    };
    let three = sessions::launch(server, &world.mina, timed, None)
        .await
        .unwrap();
    let three = &three.sessions[0];
    assert_eq!(
        (three.timeout_seconds, three.max_runtime_seconds),
        (Some(30), None)
    );
    assert_eq!(three.labels["preset"], "mine");
    for (preset, resources, expected) in [
        ("huge", Resources::default(), "preset.unknown"),
        (
            "small",
            Resources {
                gpu: Some(GpuShare(50)),
                ..Resources::default()
            },
            "gpu.none",
        ),
    ] {
        let request = asked(preset, resources);
        let refused = sessions::launch(server, abe, request.clone(), None).await;
        assert_eq!(code(refused), expected);
        let preview = sessions::preview(server, abe, request).await;
        assert_eq!(code(preview), expected, "the preview says the same");
    }
}
