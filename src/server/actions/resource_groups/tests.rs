//! Resource groups through the actions that doors call: who keeps them, who sees which, and which group a launch gets.

use std::net::{IpAddr, Ipv4Addr};

use api::reservations::{NewReservationBody, ReservedResources};
use api::sessions::{LaunchRequest, ListQuery};
use rules::grants::GrantRole;
use rules::names::BootId;
use rules::placement::{Decision, Verdict};
use rules::resources::Capacity;
use rules::units::Bytes;
use rules::users::Role;
use rules::world::NodeRecord;

use super::super::notices::{self, NoticeKind};
use super::super::{nodes, reservations, sessions, tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// Boss administers the site; abe and mina are users of the first domain, abe in the project `vision` too. Two nodes.
struct GroupedSite {
    server: Server,
    boss: Caller,
    abe: Caller,
    mina: Caller,
}

impl GroupedSite {
    async fn open() -> Self {
        let server = Server::for_tests();
        server.put_test_node("one");
        let node = NodeRecord {
            id: NodeId(uuid::Uuid::from_u128(2)),
            name: "two".to_owned(),
            boot: BootId(uuid::Uuid::from_u128(2)),
            capacity: Capacity {
                cpu: CpuShare(200),
                memory: Bytes::gib(4),
                devices: Vec::new(),
                others: Vec::new(),
            },
            host_environment: true,
            seen_at: server.clock().now(),
            generation: 0,
            schedulable: true,
            note: String::new(),
            cordoned: BTreeSet::new(),
            problems: Vec::new(),
        };
        server
            .catalog()
            .write_now(Lane::Loops, "a node", move |rows| rows.put_node(&node))
            .unwrap();
        let setup = setup_link(&server).unwrap();
        let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
        let boss = boss.caller;
        let project = tenancy::create_project(&server, &boss, None, "vision", "", None).await;
        let vision = project.unwrap().value.id.to_string();
        let mut others = Vec::new();
        for name in ["abe", "mina"] {
            users::create_once(&server, &boss, name, Role::User, GOOD, None, None)
                .await
                .unwrap();
            if name == "abe" {
                let role = GrantRole::Member;
                tenancy::put_member(&server, &boss, &vision, name, role, None)
                    .await
                    .unwrap();
            }
            others.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
        }
        let [abe, mina] = others.try_into().expect("two callers");
        Self {
            server,
            boss,
            abe,
            mina,
        }
    }

    async fn made(&self, name: &str) -> ResourceGroupView {
        let asked = NewResourceGroupBody {
            name: name.to_owned(),
            ..NewResourceGroupBody::default()
        };
        let made = create(&self.server, &self.boss, asked, None).await;
        made.unwrap_or_else(|failure| panic!("{failure}")).value
    }

    async fn nodes(&self, group: &str, nodes: &[&str]) -> Result<ResourceGroupView, Failure> {
        let nodes = nodes.iter().map(|name| (*name).to_owned()).collect();
        set_nodes(
            &self.server,
            &self.boss,
            group,
            GroupNodesBody { nodes },
            None,
        )
        .await
    }

    /// `lab` has the node `two`, and is for the project `vision`.
    async fn with_lab(&self) {
        self.made("lab").await;
        self.nodes("lab", &["two"]).await.unwrap();
        let access = GroupAccessBody {
            projects: vec!["vision".to_owned()],
            ..GroupAccessBody::default()
        };
        let set = set_access(&self.server, &self.boss, "lab", access, None).await;
        let access = set.unwrap().access.expect("a list");
        assert_eq!(access.projects, ["default/vision"]);
    }

    async fn listed(&self, caller: &Caller) -> Vec<String> {
        let all = list(&self.server, caller).await.unwrap();
        all.into_iter().map(|one| one.name.to_string()).collect()
    }
}

fn asked(project: &str, group: Option<&str>) -> LaunchRequest {
    LaunchRequest {
        project: Some(project.to_owned()),
        group: group.map(str::to_owned),
        kind: SessionKind::Batch,
        command: vec!["true".to_owned()],
        ..LaunchRequest::default()
    }
}

#[tokio::test]
async fn a_site_begins_with_one_group_that_has_every_node_and_is_named_nowhere() {
    let site = GroupedSite::open().await;
    let groups = list(&site.server, &site.boss).await.unwrap();
    let [founding] = &groups[..] else {
        panic!("{groups:?}");
    };
    assert!(founding.founding && founding.everybody);
    assert_eq!(
        founding.nodes,
        Some(vec!["one".to_owned(), "two".to_owned()])
    );
    let launched = sessions::launch(&site.server, &site.mina, asked("default", None), None).await;
    assert_eq!(launched.unwrap().sessions[0].group, None);
    let nodes = of_nodes(&site.server, &site.boss).await.unwrap();
    assert!(nodes.is_empty(), "{nodes:?}");
    let world = site
        .server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    assert!(world.groups.is_empty(), "decisions are as before");
}

#[tokio::test]
async fn a_group_has_preemption_once_an_administrator_turned_it_on() {
    let site = GroupedSite::open().await;
    let patch = || ResourceGroupPatchBody {
        preemption: Some(PreemptionMode::Priority),
        ..ResourceGroupPatchBody::default()
    };
    let before = get(&site.server, &site.boss, "default").await.unwrap();
    assert_eq!(before.preemption, PreemptionMode::Off);
    let denied = change(&site.server, &site.mina, "default", patch(), None).await;
    assert_eq!(code(denied), "role.administrator-needed");
    let changed = change(&site.server, &site.boss, "default", patch(), None).await;
    assert_eq!(changed.unwrap().preemption, PreemptionMode::Priority);
    let world = site
        .server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    let mode = world.groups.preemption(ResourceGroupId::DEFAULT);
    assert_eq!(mode, PreemptionMode::Priority);
}

#[tokio::test]
async fn a_group_is_seen_and_used_by_those_whom_it_lists_alone() {
    let site = GroupedSite::open().await;
    site.with_lab().await;
    assert_eq!(site.listed(&site.boss).await, ["default", "lab"]);
    assert_eq!(site.listed(&site.abe).await, ["default", "lab"]);
    assert_eq!(site.listed(&site.mina).await, ["default"]);
    let hidden = get(&site.server, &site.mina, "lab").await;
    assert_eq!(code(hidden), "group.not-found");
    let seen = get(&site.server, &site.abe, "lab").await.unwrap();
    assert_eq!((seen.access, seen.nodes), (None, None));
    let server = &site.server;
    let launched = sessions::launch(server, &site.abe, asked("vision", Some("lab")), None).await;
    let session = launched.unwrap().sessions.remove(0);
    assert_eq!(
        session.group.map(|name| name.to_string()).as_deref(),
        Some("lab")
    );
    for (caller, project, group) in [
        (&site.mina, "default", "lab"),
        (&site.abe, "default", "lab"),
        (&site.abe, "vision", "nowhere"),
    ] {
        let request = asked(project, Some(group));
        let refused = sessions::launch(server, caller, request.clone(), None).await;
        assert_eq!(code(refused), "group.not-allowed", "{}", caller.name);
        let preview = sessions::preview(server, caller, request).await;
        assert_eq!(code(preview), "group.not-allowed");
    }
    // The founding group is the first that they may use.
    let usual = sessions::launch(server, &site.abe, asked("vision", None), None).await;
    let group = usual.unwrap().sessions.remove(0).group;
    assert_eq!(
        group.map(|name| name.to_string()).as_deref(),
        Some("default")
    );
}

#[tokio::test]
async fn a_launch_and_its_preview_look_at_the_nodes_of_the_group_alone() {
    let site = GroupedSite::open().await;
    site.with_lab().await;
    let server = &site.server;
    let preview = sessions::preview(server, &site.abe, asked("vision", Some("lab"))).await;
    let preview = preview.unwrap();
    assert_eq!(preview.verdict, Verdict::Now);
    assert_eq!(preview.node.as_deref(), Some("two"));
    let names: Vec<&str> = preview
        .rooms
        .iter()
        .map(|room| room.name.as_str())
        .collect();
    assert_eq!(names, ["two"]);
    // The first group's node has four cores, that of the lab two.
    let mut large = asked("vision", Some("lab"));
    large.resources.cpu = Some(CpuShare(300));
    let refused = sessions::launch(server, &site.abe, large.clone(), None).await;
    assert_eq!(code(refused), "cpu.too-large");
    large.group = None;
    assert_eq!(
        code(sessions::launch(server, &site.abe, large, None).await),
        "done"
    );
}

#[tokio::test]
async fn what_waits_follows_its_group_and_gets_a_place_on_a_node_of_it() {
    let site = GroupedSite::open().await;
    site.with_lab().await;
    let server = &site.server;
    for (project, group) in [("vision", "lab"), ("default", "default")] {
        let launched = sessions::launch(server, &site.abe, asked(project, Some(group)), None).await;
        assert_eq!(code(launched), "done");
    }
    let placed = || {
        let world = server.catalog().read_now("look", |view| view.world());
        let world = world.unwrap();
        let decisions = rules::placement::decide(&world, server.clock().now());
        let places = decisions.into_iter().filter_map(|decision| match decision {
            Decision::Place { session, node, .. } => Some((session, node)),
            Decision::End { .. } => None,
        });
        let places: Vec<_> = places.collect();
        for (session, node) in &places {
            let plan = &world.groups;
            assert_eq!(plan.of_session(*session), plan.of_node(*node));
        }
        places.len()
    };
    assert_eq!(placed(), 2);
    // The lab has no node any more: its session waits, though there is room elsewhere.
    site.nodes("lab", &[]).await.unwrap();
    assert_eq!(placed(), 1);
}

#[tokio::test]
async fn a_group_is_removed_once_nothing_is_in_it_and_the_first_never() {
    let site = GroupedSite::open().await;
    site.with_lab().await;
    let (server, boss) = (&site.server, &site.boss);
    assert_eq!(
        code(remove(server, boss, "default").await),
        "group.founding"
    );
    assert_eq!(code(remove(server, boss, "lab").await), "group.in-use");
    let launched = sessions::launch(server, &site.abe, asked("vision", Some("lab")), None).await;
    let id = launched.unwrap().sessions[0].id.to_string();
    site.nodes("lab", &[]).await.unwrap();
    let founding = get(server, boss, "default").await.unwrap();
    assert_eq!(founding.nodes.map(|nodes| nodes.len()), Some(2));
    assert_eq!(code(remove(server, boss, "lab").await), "group.in-use");
    sessions::stop(server, boss, &id, false).await.unwrap();
    assert_eq!(code(remove(server, boss, "lab").await), "done");
    assert_eq!(site.listed(boss).await, ["default"]);
    let shown = sessions::get(server, boss, &id).await.unwrap();
    assert_eq!(shown.group, None, "history stays");
}

#[tokio::test]
async fn what_is_no_group_is_refused_by_name_and_others_may_change_nothing() {
    let site = GroupedSite::open().await;
    site.with_lab().await;
    let (server, boss) = (&site.server, &site.boss);
    let new = |name: &str| NewResourceGroupBody {
        name: name.to_owned(),
        ..NewResourceGroupBody::default()
    };
    for (asked, expected) in [
        (new("lab"), "group.name-taken"),
        (new("No Name"), "group.name-invalid"),
        (
            NewResourceGroupBody {
                title: Some("x".repeat(61)),
                ..new("other")
            },
            "group.title-invalid",
        ),
        (
            NewResourceGroupBody {
                kinds: Some(Vec::new()),
                ..new("other")
            },
            "group.kinds-empty",
        ),
    ] {
        assert_eq!(code(create(server, boss, asked, None).await), expected);
    }
    assert_eq!(
        code(create(server, &site.abe, new("mine"), None).await),
        "role.administrator-needed"
    );
    assert_eq!(
        code(site.nodes("lab", &["three"]).await),
        "group.node-unknown"
    );
    let strange = GroupAccessBody {
        users: vec!["stranger".to_owned()],
        ..GroupAccessBody::default()
    };
    let refused = set_access(server, boss, "lab", strange, None).await;
    assert_eq!(code(refused), "group.subject-unknown");
    let patch = ResourceGroupPatchBody {
        kinds: Some(vec![SessionKind::Interactive]),
        spreading: Some(Some(Spreading::Spread)),
        ..ResourceGroupPatchBody::default()
    };
    let stale = change(server, boss, "lab", patch.clone(), Some(1)).await;
    assert_eq!(code(stale), "group.stale");
    let changed = change(server, boss, "lab", patch, None).await.unwrap();
    assert_eq!(changed.kinds, [SessionKind::Interactive]);
    let refused = sessions::launch(server, &site.abe, asked("vision", Some("lab")), None).await;
    assert_eq!(code(refused), "group.kind");
}

#[tokio::test]
async fn a_node_that_got_a_session_is_the_last_in_turn_also_once_that_is_over() {
    let site = GroupedSite::open().await;
    let (server, boss) = (&site.server, &site.boss);
    let turns = || {
        let world = server.catalog().read_now("look", |view| view.world());
        world.unwrap().turns
    };
    let patch = ResourceGroupPatchBody {
        spreading: Some(Some(Spreading::RoundRobin)),
        ..ResourceGroupPatchBody::default()
    };
    let changed = change(server, boss, "default", patch, None).await.unwrap();
    assert_eq!(changed.spreading, Some(Spreading::RoundRobin));
    assert!(turns().is_empty());
    let two = NodeId(uuid::Uuid::from_u128(2));
    let nodes = [two, server.node(), two];
    for node in nodes {
        server
            .catalog()
            .write_now(Lane::Loops, "a turn", move |rows| rows.put_turn(node))
            .unwrap();
    }
    let last = *turns().iter().max_by_key(|(_, turn)| **turn).unwrap().0;
    assert_eq!(last, nodes[2]);
    assert_eq!(turns().values().copied().max(), Some(3));
    let patch = ResourceGroupPatchBody {
        spreading: Some(None),
        ..ResourceGroupPatchBody::default()
    };
    change(server, boss, "default", patch, None).await.unwrap();
    assert!(turns().is_empty(), "no nodes take turns");
}

#[tokio::test]
async fn a_list_of_sessions_is_narrowed_to_a_group() {
    let site = GroupedSite::open().await;
    site.with_lab().await;
    let (server, abe) = (&site.server, &site.abe);
    for group in ["lab", "default"] {
        let launched = sessions::launch(server, abe, asked("vision", Some(group)), None).await;
        launched.unwrap();
    }
    let found = async |q: &str| {
        let query = ListQuery {
            q: q.to_owned(),
            ..ListQuery::default()
        };
        let page = sessions::list(server, abe, &query).await.unwrap();
        let groups = page.items.into_iter().filter_map(|one| one.group);
        groups.map(|name| name.to_string()).collect::<Vec<String>>()
    };
    assert_eq!(found("").await.len(), 2);
    assert_eq!(found("group:lab").await, ["lab"]);
    assert_eq!(found("group:default").await, ["default"]);
    assert_eq!(found("group:lab group:default").await.len(), 2);
    assert!(found("group:nowhere").await.is_empty());
}

#[tokio::test]
async fn what_another_administrator_said_meanwhile_is_not_written_over() {
    let site = GroupedSite::open().await;
    let (server, boss) = (&site.server, &site.boss);
    let seen = site.made("lab").await.generation;
    let with = |nodes: &[&str]| GroupNodesBody {
        nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
    };
    let everybody = || GroupAccessBody {
        everybody: true,
        ..GroupAccessBody::default()
    };
    let first = set_nodes(server, boss, "lab", with(&["two"]), Some(seen)).await;
    let first = first.unwrap();
    assert_ne!(first.generation, seen);
    let late = set_nodes(server, boss, "lab", with(&[]), Some(seen)).await;
    assert_eq!(code(late), "group.stale");
    let late = set_access(server, boss, "lab", everybody(), Some(seen)).await;
    assert_eq!(code(late), "group.stale");
    let now = get(server, boss, "lab").await.unwrap();
    assert_eq!(now, first, "nothing of the late ones is there");
    let listed = GroupAccessBody {
        users: vec!["abe".to_owned()],
        ..GroupAccessBody::default()
    };
    let set = set_access(server, boss, "lab", listed, Some(first.generation)).await;
    let seen = set.unwrap().generation;
    let late = set_nodes(server, boss, "lab", with(&[]), Some(first.generation)).await;
    assert_eq!(code(late), "group.stale", "the access has the same version");
    let again = set_access(server, boss, "lab", everybody(), Some(seen)).await;
    assert!(again.unwrap().everybody);
}

#[tokio::test]
async fn a_site_takes_so_many_groups_and_a_group_so_many_who_may_use_it() {
    let site = GroupedSite::open().await;
    for number in 1..MAX_GROUPS {
        site.made(&format!("group-{number}")).await;
    }
    let asked = NewResourceGroupBody {
        name: "more".to_owned(),
        ..NewResourceGroupBody::default()
    };
    let refused = create(&site.server, &site.boss, asked, None).await;
    assert_eq!(code(refused), "group.too-many");
    // The same one many times is one.
    let access = GroupAccessBody {
        users: vec!["abe".to_owned(); MAX_GROUP_ACCESS + 1],
        ..GroupAccessBody::default()
    };
    let set = set_access(&site.server, &site.boss, "group-1", access, None).await;
    assert_eq!(
        set.unwrap().access.map(|access| access.users.len()),
        Some(1)
    );
}

#[tokio::test]
async fn a_group_has_an_order_and_a_backfill_of_its_own_or_those_of_the_site() {
    let site = GroupedSite::open().await;
    let (server, boss) = (&site.server, &site.boss);
    let world = || {
        server
            .catalog()
            .read_now("look", |view| view.world())
            .unwrap()
    };
    let own = ResourceGroupPatchBody {
        order: Some(Some(QueueOrder::Fair)),
        backfill: Some(Some(BackfillMode::Strict)),
        ..ResourceGroupPatchBody::default()
    };
    let refused = change(server, &site.abe, "default", own.clone(), None).await;
    assert_eq!(code(refused), "role.administrator-needed");
    let changed = change(server, boss, "default", own, None).await.unwrap();
    assert_eq!(
        (changed.order, changed.backfill),
        (Some(QueueOrder::Fair), Some(BackfillMode::Strict))
    );
    let group = ResourceGroupId::DEFAULT;
    let (now, policy) = (world(), world().policy);
    let at = server.clock().now();
    assert_eq!(
        (now.order(group, at), now.backfill(group, at)),
        (QueueOrder::Fair, BackfillMode::Strict)
    );
    assert_eq!(
        (policy.order, policy.backfill),
        (QueueOrder::Turns, BackfillMode::Timed),
        "the rule of the site stays"
    );
    for wrong in [0, 99, 801] {
        let wrong = ResourceGroupPatchBody {
            cpu_overcommit: Some(CpuShare(wrong)),
            ..ResourceGroupPatchBody::default()
        };
        let refused = change(server, boss, "default", wrong, None).await;
        assert_eq!(code(refused), "group.overcommit-range");
    }
    let twice = ResourceGroupPatchBody {
        cpu_overcommit: Some(CpuShare(200)),
        ..ResourceGroupPatchBody::default()
    };
    let changed = change(server, boss, "default", twice, None).await.unwrap();
    assert_eq!(changed.cpu_overcommit, CpuShare(200));
    let listed = nodes::list(server, boss).await.unwrap();
    let cores: Vec<_> = listed
        .iter()
        .map(|node| (node.cpu, node.cpu_room))
        .collect();
    assert_eq!(cores[1], (CpuShare(200), CpuShare(400)));
    let none = ResourceGroupPatchBody {
        order: Some(None),
        backfill: Some(None),
        cpu_overcommit: Some(CpuShare(100)),
        ..ResourceGroupPatchBody::default()
    };
    let changed = change(server, boss, "default", none, None).await.unwrap();
    assert_eq!((changed.order, changed.backfill), (None, None));
    assert!(world().groups.is_empty(), "decisions are as before");
}

#[tokio::test]
async fn windows_of_a_group_are_set_as_a_whole_and_a_launch_waits_for_them() {
    let site = GroupedSite::open().await;
    let (server, boss) = (&site.server, &site.boss);
    let windows = |lines: &[&str]| GroupWindowsBody {
        windows: lines
            .iter()
            .map(|line| GroupWindowView::of(&GroupWindow::parse(line).unwrap()))
            .collect(),
        time_zone: Some("Asia/Seoul".to_owned()),
    };
    let night = windows(&["daily 18:00-08:00 kinds=batch order=fair"]);
    let refused = set_windows(server, &site.abe, "default", night.clone()).await;
    assert_eq!(code(refused), "role.administrator-needed");
    let unknown = GroupWindowsBody {
        time_zone: Some("Mars/Olympus".to_owned()),
        ..night.clone()
    };
    let refused = set_windows(server, boss, "default", unknown).await;
    assert_eq!(code(refused), "time-zone.unknown");
    let twice = windows(&["daily 18:00-08:00", "mon 07:00-09:00"]);
    let refused = set_windows(server, boss, "default", twice).await;
    assert_eq!(code(refused), "group.window-overlap");
    let mut wrong = night.clone();
    wrong.windows[0].from = "25:00".to_owned();
    let refused = set_windows(server, boss, "default", wrong).await;
    assert_eq!(code(refused), "group.window-invalid");

    let set = set_windows(server, boss, "default", night.clone())
        .await
        .unwrap();
    assert_eq!(
        (set.windows, set.time_zone),
        (night.windows, "Asia/Seoul".to_owned())
    );
    let closed = windows(&["daily 00:00-24:00 kinds=none"]);
    set_windows(server, boss, "default", closed).await.unwrap();
    let launched = sessions::launch(server, &site.mina, asked("default", None), None).await;
    let id = launched.unwrap().sessions[0].id;
    let world = server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    let at = server.clock().now();
    assert_eq!(rules::placement::decide(&world, at), []);
    let waits = world.session(id).unwrap();
    let told = rules::placement::explain_session(&world, waits, at);
    assert_eq!(told.blockers[0].code, rules::codes::WINDOW_NEVER);

    let none = GroupWindowsBody::default();
    let set = set_windows(server, boss, "default", none).await.unwrap();
    assert_eq!((set.windows.len(), set.time_zone.as_str()), (0, "UTC"));
    let world = server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    assert!(world.groups.is_empty(), "decisions are as before");
    assert_eq!(rules::placement::decide(&world, at).len(), 1);
}

#[tokio::test]
async fn who_only_reads_a_project_learns_of_no_group_that_lists_it() {
    let site = GroupedSite::open().await;
    site.with_lab().await;
    let (server, boss) = (&site.server, &site.boss);
    tenancy::put_member(server, boss, "vision", "mina", GrantRole::Viewer, None)
        .await
        .unwrap();
    let mina = sign_in(server, "mina", GOOD, HERE).await.unwrap().caller;
    assert_eq!(site.listed(&mina).await, ["default"]);
    let two = NodeId(uuid::Uuid::from_u128(2));
    let groups = of_nodes(server, &mina).await.unwrap();
    assert!(!groups.contains_key(&two), "{groups:?}");
    assert_eq!(code(get(server, &mina, "lab").await), "group.not-found");
}

/// A user who waits in one group learns nothing of the nodes of a group that they may not use.
#[tokio::test]
async fn maintenance_of_a_node_is_told_to_those_who_may_use_its_group() {
    let site = GroupedSite::open().await;
    site.with_lab().await;
    let server = &site.server;
    for caller in [&site.abe, &site.mina] {
        let waiting = asked("default", Some("default"));
        let launched = sessions::launch(server, caller, waiting, None).await;
        assert_eq!(code(launched), "done");
    }
    let shut = nodes::set_maintenance(server, &site.boss, "two", true, "New disks.").await;
    assert_eq!(code(shut), "done");
    for (caller, told) in [(&site.abe, 1), (&site.mina, 0)] {
        let mut all = notices::list(server, caller).await.unwrap();
        all.retain(|notice| matches!(notice.about, NoticeKind::Maintenance(_)));
        assert_eq!(all.len(), told, "{}", caller.name);
        assert_eq!(notices::unread(server, caller), told as u64);
    }
}

#[tokio::test]
async fn nodes_for_which_reservations_are_booked_stay_in_the_first_group() {
    let site = GroupedSite::open().await;
    let (server, boss) = (&site.server, &site.boss);
    site.made("lab").await;
    let day = |days: u64| server.clock().now().plus_seconds(days * 86_400).to_string();
    // The nodes have four cores and two.
    let booked = NewReservationBody {
        name: "lecture".to_owned(),
        project: Some("vision".to_owned()),
        resources: ReservedResources {
            cpu: CpuShare(500),
            ..ReservedResources::default()
        },
        from: day(2),
        to: day(3),
        ..NewReservationBody::default()
    };
    let booked = reservations::book(server, boss, booked, None).await;
    assert_eq!(code(booked), "done");
    assert_eq!(
        code(site.nodes("lab", &["two"]).await),
        "group.node-reserved"
    );
    let founding = get(server, boss, "default").await.unwrap();
    assert_eq!(founding.nodes.map(|nodes| nodes.len()), Some(2));
    reservations::cancel(server, boss, "lecture").await.unwrap();
    assert_eq!(code(site.nodes("lab", &["two"]).await), "done");
}

#[tokio::test]
async fn a_node_that_moves_changes_the_version_of_both_groups() {
    let site = GroupedSite::open().await;
    site.made("lab").await;
    let (server, boss) = (&site.server, &site.boss);
    let before = get(server, boss, "default").await.unwrap().generation;
    site.nodes("lab", &["two"]).await.unwrap();
    let after = get(server, boss, "default").await.unwrap().generation;
    assert!(after > before, "its list of nodes is another");
}
