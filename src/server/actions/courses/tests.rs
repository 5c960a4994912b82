//! Courses through the actions that doors call: who teaches and who sees which, what one act does to all members, and what
//! the end of a term does, once.

use std::net::{IpAddr, Ipv4Addr};

use api::presets::NewPresetBody;
use api::reservations::ReservedResources;
use api::resource_groups::{GroupAccessBody, GroupNodesBody, NewResourceGroupBody};
use api::sessions::Resources;
use rules::codes;
use rules::grants::{Grant, GrantScope, HeldGrant};
use rules::names::{BootId, NodeId, UserName};
use rules::reservation::ReservationState;
use rules::resources::Capacity;
use rules::tenancy::ProjectId;
use rules::units::{Bytes, CpuShare};
use rules::users::Role;
use rules::world::NodeRecord;

use super::super::notices::{self, NoticeKind};
use super::super::{folders, journal, presets, resource_groups, sessions, tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// Boss administers the site; tea leads the project `vision`, abe and bea are members there, mina is not.
struct School {
    server: Server,
    boss: Caller,
    tea: Caller,
    abe: Caller,
    mina: Caller,
    project: ProjectId,
}

impl School {
    async fn open() -> Self {
        Self::on(Server::for_tests()).await
    }

    async fn on(server: Server) -> Self {
        server.put_test_node("one");
        let setup = setup_link(&server).unwrap();
        let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
        let boss = boss.caller;
        let made = tenancy::create_project(&server, &boss, None, "vision", "", None).await;
        let project = made.unwrap().value.id;
        let mut others = Vec::new();
        for (name, role) in [
            ("tea", Some(GrantRole::Lead)),
            ("abe", Some(GrantRole::Member)),
            ("bea", Some(GrantRole::Member)),
            ("mina", None),
        ] {
            users::create_once(&server, &boss, name, Role::User, GOOD, None, None)
                .await
                .unwrap();
            if let Some(role) = role {
                let project = project.to_string();
                tenancy::put_member(&server, &boss, &project, name, role, None)
                    .await
                    .unwrap();
            }
            others.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
        }
        let [tea, abe, _, mina] = others.try_into().expect("four callers");
        Self {
            server,
            boss,
            tea,
            abe,
            mina,
            project,
        }
    }

    /// A term of a week from now on.
    fn week(&self) -> NewCourseBody {
        let now = self.server.clock().now();
        NewCourseBody {
            name: "deep".to_owned(),
            project: "vision".to_owned(),
            from: now.to_string(),
            to: now.plus_seconds(7 * 86_400).to_string(),
            max_runtime_seconds: Some(7_200),
            ..NewCourseBody::default()
        }
    }

    /// The same, made and opened.
    async fn running(&self) -> CourseView {
        let made = create(&self.server, &self.tea, self.week(), None).await;
        let id = made.unwrap().value.id.to_string();
        self.state(&id, CourseState::Open).await.unwrap()
    }

    async fn state(&self, id: &str, state: CourseState) -> Result<CourseView, Failure> {
        let patch = CoursePatchBody {
            state: Some(state),
            ..CoursePatchBody::default()
        };
        change(&self.server, &self.tea, id, patch, None).await
    }

    /// Adds so many members called `s000` and so on.
    fn enrol(&self, count: usize) {
        let (now, project) = (self.server.clock().now(), self.project);
        self.server
            .catalog()
            .write_now(Lane::Requests, "students", move |rows| {
                for number in 0..count {
                    let name = UserName::parse(&format!("s{number:03}")).unwrap();
                    let user = crate::access::new_user(name, Role::User, now);
                    rows.insert_user(&user, "!")?;
                    let held = HeldGrant {
                        grant: Grant {
                            role: GrantRole::Member,
                            scope: GrantScope::Project(project),
                        },
                        expires_at: None,
                    };
                    rows.put_grant(user.id, &held)?;
                }
                Ok(())
            })
            .unwrap();
    }

    /// A group for these users alone, whose only node has twice the cores of the first node.
    async fn group_of_large_node(&self, group: &str, users: &[&str]) {
        let id = uuid::Uuid::from_u128(0x1a26e);
        let node = NodeRecord {
            id: NodeId(id),
            name: "large".to_owned(),
            boot: BootId(id),
            capacity: Capacity {
                cpu: CpuShare(800),
                memory: Bytes::gib(8),
                devices: Vec::new(),
                others: Vec::new(),
            },
            host_environment: true,
            seen_at: self.server.clock().now(),
            generation: 0,
            schedulable: true,
            note: String::new(),
            cordoned: BTreeSet::new(),
            problems: Vec::new(),
        };
        self.server
            .catalog()
            .write_now(Lane::Loops, "a node", move |rows| rows.put_node(&node))
            .unwrap();
        let asked = NewResourceGroupBody {
            name: group.to_owned(),
            ..NewResourceGroupBody::default()
        };
        resource_groups::create(&self.server, &self.boss, asked, None)
            .await
            .unwrap();
        let nodes = GroupNodesBody {
            nodes: vec!["large".to_owned()],
        };
        resource_groups::set_nodes(&self.server, &self.boss, group, nodes, None)
            .await
            .unwrap();
        let access = GroupAccessBody {
            users: users.iter().map(|name| (*name).to_owned()).collect(),
            ..GroupAccessBody::default()
        };
        resource_groups::set_access(&self.server, &self.boss, group, access, None)
            .await
            .unwrap();
    }

    async fn started(&self, users: Option<&[&str]>) -> Result<CourseActView, Failure> {
        let body = CourseStartBody {
            users: users.map(|users| users.iter().map(|one| (*one).to_owned()).collect()),
            dry_run: false,
        };
        let done = start(&self.server, &self.tea, "deep", body, None).await;
        done.map(|done| done.value)
    }

    async fn launch(&self, caller: &Caller) -> Result<sessions::Launched, Failure> {
        let request = LaunchRequest {
            project: Some("vision".to_owned()),
            resources: Resources {
                cpu: Some(CpuShare(10)),
                ..Resources::default()
            },
            ..LaunchRequest::default()
        };
        sessions::launch(&self.server, caller, request, None).await
    }

    /// What the clock does until nothing is due, at that moment.
    async fn tick(&self, at: Timestamp) {
        self.server.clock().set(at);
        for _ in 0..10 {
            self.server.catalog().step_courses(at).await.unwrap();
        }
    }

    /// Events of that code in the journal.
    async fn events(&self, code: &str) -> usize {
        let wanted = api::events::EventSearchQuery {
            kind: code.to_owned(),
            ..Default::default()
        };
        let found = journal::search_all(&self.server, &self.boss, &wanted).await;
        found.unwrap().items.len()
    }

    fn live(&self) -> usize {
        let project = self.project;
        let read = self
            .server
            .catalog()
            .read_now("list live", |view| view.live_of_project(project));
        read.unwrap().len()
    }
}

#[tokio::test]
async fn a_draft_is_there_for_its_teachers_alone() {
    let school = School::open().await;
    let server = &school.server;
    let made = create(server, &school.tea, school.week(), None)
        .await
        .unwrap();
    let id = made.value.id.to_string();
    assert_eq!(made.value.state, CourseState::Draft);
    assert_eq!(made.value.project, "default/vision");
    for hidden in [&school.abe, &school.mina] {
        assert!(list(server, hidden).await.unwrap().is_empty());
        assert_eq!(
            code(get(server, hidden, &id).await),
            codes::COURSE_NOT_FOUND
        );
        assert_eq!(
            code(get(server, hidden, "deep").await),
            codes::COURSE_NOT_FOUND
        );
    }
    school.state(&id, CourseState::Open).await.unwrap();
    assert_eq!(list(server, &school.abe).await.unwrap().len(), 1);
    assert_eq!(list(server, &school.boss).await.unwrap().len(), 1);
    let other = code(get(server, &school.mina, &id).await);
    assert_eq!(
        other,
        codes::COURSE_NOT_FOUND,
        "of a project that she is not in"
    );
    let listed = get_listed(server, &school.abe, "deep").await.unwrap();
    assert!(!listed.teaches && listed.launches);
}

#[tokio::test]
async fn a_draft_does_nothing_to_its_members() {
    let school = School::open().await;
    let (server, tea) = (&school.server, &school.tea);
    create(server, tea, school.week(), None).await.unwrap();
    school.launch(&school.abe).await.unwrap();
    let body = CourseMessageBody {
        text: "Save your work.".to_owned(),
        users: None,
    };
    let refused = [
        code(message(server, tea, "deep", body, None).await),
        code(stop(server, tea, "deep", CourseStopBody::default(), None).await),
    ];
    assert_eq!(refused, [codes::COURSE_DRAFT, codes::COURSE_DRAFT]);
    assert_eq!(school.live(), 1, "it runs on");
    let told = notices::list(server, &school.abe).await.unwrap();
    assert!(told.is_empty());
}

#[tokio::test]
async fn members_neither_change_a_course_nor_see_each_other() {
    let school = School::open().await;
    let server = &school.server;
    let id = school.running().await.id.to_string();
    let abe = &school.abe;
    let refused = [
        code(create(server, abe, school.week(), None).await),
        code(change(server, abe, &id, CoursePatchBody::default(), None).await),
        code(remove(server, abe, &id).await),
        code(members(server, abe, &id).await),
        code(attendance(server, abe, &id).await),
        code(start(server, abe, &id, CourseStartBody::default(), None).await),
        code(stop(server, abe, &id, CourseStopBody::default(), None).await),
    ];
    for code in refused {
        assert!(code.starts_with("role."), "{code}");
    }
    let hidden = code(members(server, &school.mina, &id).await);
    let none = code(members(server, &school.mina, "no-such-course").await);
    assert_eq!(hidden, none, "who teaches nothing learns of no course");
}

#[tokio::test]
async fn a_token_for_projects_alone_neither_sees_nor_changes_sessions_of_members() {
    let school = School::open().await;
    school.running().await;
    school.started(None).await.unwrap();
    let mut tea = school.tea.clone();
    tea.subject.scopes = Some(vec![Permission::ProjectsRead, Permission::ProjectsWrite]);
    let (server, tea) = (&school.server, &tea);
    let longer = CourseExtensionBody {
        minutes: 30,
        users: None,
    };
    let refused = [
        code(members(server, tea, "deep").await),
        code(attendance(server, tea, "deep").await),
        code(start(server, tea, "deep", CourseStartBody::default(), None).await),
        code(stop(server, tea, "deep", CourseStopBody::default(), None).await),
        code(extend(server, tea, "deep", longer, None).await),
    ];
    for code in refused {
        assert_eq!(code, "token.scope-missing");
    }
    assert_eq!(school.live(), 2, "none was stopped");
}

#[tokio::test]
async fn what_is_no_course_is_refused_by_name() {
    let school = School::open().await;
    let refused =
        async |asked: NewCourseBody| code(create(&school.server, &school.tea, asked, None).await);
    let week = || school.week();
    let named = |name: &str| NewCourseBody {
        name: name.to_owned(),
        ..week()
    };
    assert_eq!(refused(named("A course")).await, codes::COURSE_NAME_INVALID);
    let backwards = NewCourseBody {
        to: week().from,
        ..week()
    };
    assert_eq!(refused(backwards).await, codes::COURSE_END_FIRST);
    let long = NewCourseBody {
        rules: Some("x".repeat(rules::course::MAX_COURSE_RULES + 1)),
        ..week()
    };
    assert_eq!(refused(long).await, codes::COURSE_TEXT_INVALID);
    let elsewhere = NewCourseBody {
        project: "default".to_owned(),
        ..week()
    };
    assert_ne!(refused(elsewhere).await, "done", "tea leads vision alone");
    assert_eq!(refused(week()).await, "done");
    assert_eq!(refused(week()).await, codes::COURSE_NAME_TAKEN);
    assert_eq!(refused(named("second")).await, codes::COURSE_OF_PROJECT);
    let school_id = list(&school.server, &school.tea).await.unwrap()[0].id;
    let id = school_id.to_string();
    school.state(&id, CourseState::Archived).await.unwrap();
    assert_eq!(
        refused(named("second")).await,
        "done",
        "the project is free"
    );
    let again = code(school.state(&id, CourseState::Open).await);
    assert_eq!(again, codes::COURSE_STATE, "an archived one is not opened");
}

#[tokio::test]
async fn a_mass_start_gives_each_member_a_session_of_their_own_in_one_commit() {
    let school = School::open().await;
    school.enrol(100);
    school.running().await;
    let before = *school.server.catalog().revision().borrow();
    let act = school.started(None).await.unwrap();
    let after = *school.server.catalog().revision().borrow();
    assert_eq!(after, before + 1, "one commit");
    assert_eq!((act.done, act.skipped, act.left), (102, 0, 0));
    assert!(act.refused.is_empty());
    assert!(act.waiting > 0 && act.waiting < 102, "{}", act.waiting);
    let board = members(&school.server, &school.tea, "deep").await.unwrap();
    assert_eq!(board.len(), 102, "the teacher is none of them");
    assert!(board.iter().all(|one| one.state == MemberStanding::Waiting));
    assert!(board.iter().all(|one| one.why.is_some()));
    let own = sessions::list(&school.server, &school.abe, &Default::default()).await;
    let own = own.unwrap().items;
    assert_eq!(own.len(), 1, "abe sees his own alone");
    assert_eq!(own[0].owner.name.as_str(), "abe");
    assert_eq!(
        own[0].max_runtime_seconds,
        Some(7_200),
        "the course's limit"
    );
    assert!(own[0].name.as_str().starts_with("deep-"));
    let again = school.started(None).await.unwrap();
    assert_eq!((again.done, again.skipped), (0, 102), "they run already");
}

#[tokio::test]
async fn a_mass_start_that_is_refused_for_one_starts_the_others() {
    let school = School::open().await;
    school.enrol(3);
    school.running().await;
    school.launch(&school.abe).await.unwrap();
    users::suspend(&school.server, &school.boss, "s001", true, None)
        .await
        .unwrap();
    let act = school.started(None).await.unwrap();
    assert_eq!((act.done, act.skipped), (3, 1));
    let refused: Vec<(&str, &str)> = act
        .refused
        .iter()
        .map(|one| (one.user.as_str(), one.why.code.as_str()))
        .collect();
    assert_eq!(refused, [("s001", codes::LAUNCH_OWNER_UNKNOWN)]);
    let marked = school.started(Some(&["s000", "nobody"])).await;
    assert_eq!(code(marked), codes::COURSE_MEMBER_UNKNOWN);
}

/// The teacher may not use the group in which its members could be, and one of the members may not either.
#[tokio::test]
async fn each_member_starts_in_the_first_group_of_theirs_that_could_hold_it() {
    let school = School::open().await;
    school.enrol(1);
    school.group_of_large_node("lab", &["abe", "bea"]).await;
    let preset = NewPresetBody {
        name: "large".to_owned(),
        resources: Resources {
            cpu: Some(CpuShare(600)),
            ..Resources::default()
        },
        ..NewPresetBody::default()
    };
    presets::create(&school.server, &school.boss, preset, None)
        .await
        .unwrap();
    let id = school.running().await.id.to_string();
    let patch = CoursePatchBody {
        preset: Some("large".to_owned()),
        ..CoursePatchBody::default()
    };
    change(&school.server, &school.tea, &id, patch, None)
        .await
        .unwrap();
    let dry = CourseStartBody {
        dry_run: true,
        ..CourseStartBody::default()
    };
    let told = start(&school.server, &school.tea, "deep", dry, None).await;
    let acts = [told.unwrap().value, school.started(None).await.unwrap()];
    for act in acts {
        let refused = act.refused.iter();
        let refused: Vec<(&str, &str)> = refused
            .map(|one| (one.user.as_str(), one.why.code.as_str()))
            .collect();
        assert_eq!(
            (act.done, refused),
            (2, vec![("s000", codes::CPU_TOO_LARGE)])
        );
    }
    let own = sessions::list(&school.server, &school.abe, &Default::default()).await;
    let own = own.unwrap().items;
    let group = own[0].group.as_ref().map(TenantName::as_str);
    assert_eq!(group, Some("lab"));
    // Where no group could hold it, it is refused as a whole.
    let patch = CoursePatchBody {
        preset: Some("larger".to_owned()),
        ..CoursePatchBody::default()
    };
    let preset = NewPresetBody {
        name: "larger".to_owned(),
        resources: Resources {
            cpu: Some(CpuShare(900)),
            ..Resources::default()
        },
        ..NewPresetBody::default()
    };
    presets::create(&school.server, &school.boss, preset, None)
        .await
        .unwrap();
    change(&school.server, &school.tea, &id, patch, None)
        .await
        .unwrap();
    assert_eq!(code(school.started(None).await), codes::CPU_TOO_LARGE);
}

#[tokio::test]
async fn a_teacher_does_not_learn_how_many_sessions_a_student_has_elsewhere() {
    let school = School::open().await;
    school.running().await;
    for _ in 0..2 {
        let elsewhere = LaunchRequest {
            project: Some("default".to_owned()),
            replicas: 500,
            resources: Resources {
                cpu: Some(CpuShare(10)),
                ..Resources::default()
            },
            ..LaunchRequest::default()
        };
        sessions::launch(&school.server, &school.abe, elsewhere, None)
            .await
            .unwrap();
    }
    let act = school.started(Some(&["abe"])).await.unwrap();
    let why = &act.refused[0].why;
    assert_eq!(why.code, codes::COURSE_MEMBER_QUEUE_FULL);
    assert!(!format!("{why:?}").contains("1000"), "{why:?}");
}

#[tokio::test]
async fn the_same_key_starts_once_and_a_dry_run_starts_nothing() {
    let school = School::open().await;
    school.running().await;
    let dry = CourseStartBody {
        dry_run: true,
        ..CourseStartBody::default()
    };
    let told = start(&school.server, &school.tea, "deep", dry, None).await;
    assert_eq!(told.unwrap().value.done, 2);
    assert_eq!(school.live(), 0);
    let key = || {
        Some(IdempotencyKey {
            key: "k".to_owned(),
            route: "POST /api/v1/courses/deep/start".to_owned(),
            body_digest: [0; 32],
        })
    };
    let body = CourseStartBody::default;
    let first = start(&school.server, &school.tea, "deep", body(), key()).await;
    let second = start(&school.server, &school.tea, "deep", body(), key()).await;
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(!first.replayed && second.replayed);
    assert_eq!(first.value, second.value);
    assert_eq!(school.live(), 2);
}

#[tokio::test]
async fn a_course_of_500_takes_them_all_and_leaves_the_rest() {
    let school = School::open().await;
    school.enrol(500);
    school.running().await;
    let act = school.started(None).await.unwrap();
    assert_eq!((act.done, act.left), (500, 2));
    let act = school.started(None).await.unwrap();
    assert_eq!((act.done, act.skipped, act.left), (2, 500, 0));
    let body = CourseStopBody::default;
    let stopped = stop(&school.server, &school.tea, "deep", body(), None).await;
    let stopped = stopped.unwrap().value;
    assert_eq!((stopped.done, stopped.left), (500, 2));
    assert_eq!(school.live(), 2);
}

#[tokio::test]
async fn those_who_are_refused_keep_no_one_from_their_turn() {
    let school = School::open().await;
    school.enrol(500);
    school.running().await;
    for refused in ["s000", "s001"] {
        users::suspend(&school.server, &school.boss, refused, true, None)
            .await
            .unwrap();
    }
    let order = || {
        let catalog = school.server.catalog();
        let read = catalog.read_now("the next turn", |view| {
            let record = find(view, &school.tea, "deep")?;
            let whom = students(view, &record.course)?;
            Ok(in_turn(whom, record.started_to))
        });
        let whom = read.unwrap().into_iter();
        whom.map(|one| one.name.to_string())
    };
    let first: Vec<String> = order().take(3).collect();
    assert_eq!(first, ["abe", "bea", "s000"], "by name");
    let act = school.started(None).await.unwrap();
    assert_eq!((act.done, act.refused.len(), act.left), (498, 2, 2));
    let next: Vec<String> = order().take(3).collect();
    assert_eq!(next, ["s498", "s499", "abe"], "the two who were left");
    let act = school.started(None).await.unwrap();
    assert_eq!((act.done, act.refused.len(), act.left), (2, 2, 0));
}

#[test]
fn the_longer_the_queue_the_fewer_members_one_act_takes() {
    assert_eq!(at_once(0), 500);
    assert_eq!(at_once(4_000), 500);
    assert_eq!(at_once(50_000), 40);
    assert_eq!(at_once(usize::MAX), 1);
}

#[tokio::test]
async fn sessions_with_a_limit_run_longer() {
    let school = School::open().await;
    school.running().await;
    school.started(Some(&["abe"])).await.unwrap();
    let body = CourseExtensionBody {
        minutes: 30,
        users: None,
    };
    let act = extend(&school.server, &school.tea, "deep", body.clone(), None).await;
    let act = act.unwrap().value;
    assert_eq!((act.done, act.refused.len()), (1, 0));
    let own = sessions::list(&school.server, &school.abe, &Default::default()).await;
    assert_eq!(own.unwrap().items[0].max_runtime_seconds, Some(9_000));
    let none = CourseExtensionBody {
        minutes: 0,
        ..body.clone()
    };
    let refused = extend(&school.server, &school.tea, "deep", none, None).await;
    assert_eq!(code(refused), codes::COURSE_MINUTES);
    let patch = CoursePatchBody {
        max_runtime_seconds: Some(None),
        ..CoursePatchBody::default()
    };
    change(&school.server, &school.tea, "deep", patch, None)
        .await
        .unwrap();
    school.started(Some(&["bea"])).await.unwrap();
    let act = extend(&school.server, &school.tea, "deep", body, None).await;
    let act = act.unwrap().value;
    assert_eq!((act.done, act.refused.len()), (1, 1));
    assert_eq!(act.refused[0].why.code, codes::COURSE_WITHOUT_LIMIT);
}

#[tokio::test]
async fn a_message_is_a_notice_of_each_member() {
    let school = School::open().await;
    school.running().await;
    let body = CourseMessageBody {
        text: "Save your work.".to_owned(),
        users: None,
    };
    let act = message(&school.server, &school.tea, "deep", body, None).await;
    assert_eq!(act.unwrap().value.done, 2);
    let told = notices::list(&school.server, &school.abe).await.unwrap();
    assert_eq!(
        told[0].about,
        NoticeKind::CourseMessage("Save your work.".to_owned())
    );
    assert_eq!(told[0].name.as_deref(), Some("deep"));
    assert!(told[0].unread);
    let other = notices::list(&school.server, &school.mina).await.unwrap();
    assert!(other.is_empty());
}

#[tokio::test]
async fn a_student_is_sent_so_many_messages_a_day() {
    let school = School::open().await;
    school.running().await;
    let (server, tea) = (&school.server, &school.tea);
    let told = async |users: Option<Vec<String>>| {
        let text = "Save your work.".to_owned();
        let body = CourseMessageBody { text, users };
        // One a minute.
        let clock = server.clock();
        clock.set(clock.now().plus_seconds(60));
        code(message(server, tea, "deep", body, None).await)
    };
    let abe = || Some(vec!["abe".to_owned()]);
    for _ in 0..MAX_MESSAGES_OF_DAY {
        assert_eq!(told(abe()).await, "done");
    }
    assert_eq!(told(None).await, codes::COURSE_MESSAGES_MANY);
    assert_eq!(told(Some(vec!["bea".to_owned()])).await, "done");
    let clock = server.clock();
    clock.set(clock.now().plus_seconds(86_400));
    assert_eq!(told(None).await, "done");
}

#[tokio::test]
async fn a_viewer_of_the_project_does_not_read_what_members_are_told() {
    let school = School::open().await;
    let (server, project) = (&school.server, school.project.to_string());
    tenancy::put_member(
        server,
        &school.boss,
        &project,
        "mina",
        GrantRole::Viewer,
        None,
    )
    .await
    .unwrap();
    let mina = sign_in(server, "mina", GOOD, HERE).await.unwrap().caller;
    school.running().await;
    let body = CourseMessageBody {
        text: "Save your work.".to_owned(),
        users: None,
    };
    message(server, &school.tea, "deep", body, None)
        .await
        .unwrap();
    let heard = async |caller: &Caller| {
        let wanted = api::events::EventSearchQuery {
            kind: "course".to_owned(),
            ..Default::default()
        };
        let found = journal::search_all(server, caller, &wanted).await.unwrap();
        let events = found.items.into_iter();
        let events = events.map(|one| format!("{} {} {}", one.code, one.before, one.after));
        events.collect::<Vec<String>>()
    };
    let seen = heard(&mina).await;
    assert!(seen.contains(&"course.told  2".to_owned()), "{seen:?}");
    assert!(!format!("{seen:?}").contains("Save"), "{seen:?}");
    let own = heard(&school.abe).await;
    assert!(
        own.contains(&"course.message  Save your work.".to_owned()),
        "{own:?}"
    );
}

#[tokio::test]
async fn one_message_a_minute_is_sent_in_a_course() {
    let school = School::open().await;
    school.running().await;
    let sent = async |text: &str| {
        let body = CourseMessageBody {
            text: text.to_owned(),
            users: Some(vec!["abe".to_owned()]),
        };
        code(message(&school.server, &school.tea, "deep", body, None).await)
    };
    let told = async || {
        let all = notices::list(&school.server, &school.abe).await.unwrap();
        all.len()
    };
    assert_eq!(sent("One.").await, "done");
    assert_eq!(sent("Two.").await, codes::COURSE_MESSAGE_TOO_SOON);
    assert_eq!(told().await, 1, "nothing of the second one");
    let before = get(&school.server, &school.tea, "deep").await.unwrap();
    let now = school.server.clock().now();
    school.server.clock().set(now.plus_seconds(60));
    assert_eq!(sent("Three.").await, "done");
    assert_eq!(told().await, 2);
    let after = get(&school.server, &school.tea, "deep").await.unwrap();
    assert_eq!(
        after.generation, before.generation,
        "no change of the course"
    );
}

#[tokio::test]
async fn the_end_of_a_term_comes_once_and_can_be_taken_back() {
    let school = School::open().await;
    let course = school.running().await;
    school.launch(&school.tea).await.unwrap();
    school.started(None).await.unwrap();
    assert_eq!(school.live(), 3);
    school.tick(course.to).await;
    assert_eq!(school.events("course.closed").await, 1);
    assert_eq!(school.events("course.sessions-stopped").await, 1);
    assert_eq!(school.live(), 1, "the teacher's goes on");
    assert_eq!(
        code(school.launch(&school.abe).await),
        codes::COURSE_TERM_OVER
    );
    assert_eq!(code(school.launch(&school.tea).await), "done");
    assert_eq!(code(school.started(None).await), codes::COURSE_NOT_ON);
    let ended = sessions::list(&school.server, &school.abe, &Default::default()).await;
    let ended = ended.unwrap().items.remove(0);
    let why = ended.reason.map(|reason| reason.code);
    assert_eq!(why.as_deref(), Some(codes::SESSION_COURSE_OVER));
    let id = ended.id.to_string();
    let again = sessions::restart(&school.server, &school.abe, &id).await;
    assert_eq!(code(again), codes::COURSE_TERM_OVER);

    let now = school.server.clock().now();
    let patch = CoursePatchBody {
        state: Some(CourseState::Open),
        to: Some(now.plus_seconds(86_400).to_string()),
        ..CoursePatchBody::default()
    };
    let opened = change(&school.server, &school.tea, "deep", patch, None).await;
    assert_eq!(opened.unwrap().state, CourseState::Running);
    assert_eq!(code(school.launch(&school.abe).await), "done");

    school.tick(now.plus_seconds(2 * 86_400)).await;
    school.tick(now.plus_seconds(30 * 86_400)).await;
    let kept = get(&school.server, &school.tea, "deep").await.unwrap();
    assert_eq!(kept.state, CourseState::Archived);
    assert_eq!(school.events("course.archived").await, 1);
    assert_eq!(school.events("course.closed").await, 2, "once for each end");
    assert_eq!(
        code(school.launch(&school.abe).await),
        "done",
        "it binds nobody"
    );
}

#[tokio::test]
async fn the_end_of_a_large_course_stops_some_sessions_at_a_time() {
    let school = School::open().await;
    school.enrol(250);
    let course = school.running().await;
    school.started(None).await.unwrap();
    school.server.clock().set(course.to);
    let mut left = Vec::new();
    for _ in 0..3 {
        let stepped = school.server.catalog().step_courses(course.to).await;
        stepped.unwrap();
        left.push(school.live());
    }
    assert_eq!(left, [252, 52, 0], "closed, then 200 in one commit");
}

#[tokio::test]
async fn an_open_course_begins_by_itself() {
    let school = School::open().await;
    let now = school.server.clock().now();
    let later = NewCourseBody {
        from: now.plus_seconds(3_600).to_string(),
        ..school.week()
    };
    let made = create(&school.server, &school.tea, later, None)
        .await
        .unwrap();
    let id = made.value.id.to_string();
    let opened = school.state(&id, CourseState::Open).await.unwrap();
    assert_eq!(opened.state, CourseState::Open);
    school.tick(now.plus_seconds(3_599)).await;
    assert_eq!(school.events("course.began").await, 0);
    school.tick(now.plus_seconds(3_600)).await;
    school.tick(now.plus_seconds(3_700)).await;
    assert_eq!(school.events("course.began").await, 1);
}

#[tokio::test]
async fn a_course_whose_begin_is_moved_ahead_waits_for_it() {
    let school = School::open().await;
    let course = school.running().await;
    assert_eq!(course.state, CourseState::Running);
    let begin = school.server.clock().now().plus_seconds(3_600);
    let patch = CoursePatchBody {
        from: Some(begin.to_string()),
        ..CoursePatchBody::default()
    };
    let moved = change(&school.server, &school.tea, "deep", patch, None).await;
    assert_eq!(moved.unwrap().state, CourseState::Open);
    assert_eq!(school.events("course.changed").await, 1);
    school.tick(begin).await;
    let begun = get(&school.server, &school.tea, "deep").await.unwrap();
    assert_eq!(begun.state, CourseState::Running);
}

#[tokio::test]
async fn attendance_names_who_never_came() {
    let school = School::open().await;
    school.running().await;
    let rows = attendance(&school.server, &school.tea, "deep")
        .await
        .unwrap();
    let told: Vec<(&str, u64)> = rows
        .iter()
        .map(|row| (row.user.name.as_str(), row.sessions))
        .collect();
    assert_eq!(told, [("abe", 0), ("bea", 0)]);
}

/// The times of a course are booked for its project, each week that is left of the term; those to come are given back when the
/// course ends.
#[tokio::test]
async fn a_timetable_is_booked_for_the_term_and_cancelled_with_it() {
    let school = School::open().await;
    let course = school.running().await;
    let (server, id) = (&school.server, course.id.to_string());
    let later = server.clock().now().plus_seconds(2 * 86_400).as_millis();
    let later = jiff::Timestamp::from_millisecond(later).unwrap();
    let weekday = later.to_zoned(TimeZone::UTC).weekday();
    let day = usize::try_from(weekday.to_monday_zero_offset()).unwrap();
    let slot = |from: &str, to: &str| CourseSlotBody {
        day: rules::timetable::SLOT_DAYS[day].to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        resources: ReservedResources {
            cpu: CpuShare(100),
            ..ReservedResources::default()
        },
        skip_holidays: false,
    };
    for stranger in [&school.abe, &school.mina] {
        let refused = book_slot(server, stranger, &id, slot("09:00", "10:00"), None).await;
        assert_ne!(code(refused), "done", "{}", stranger.name);
    }
    let booked = book_slot(server, &school.boss, &id, slot("09:00", "10:00"), None).await;
    let booked = booked.unwrap().value;
    assert_eq!(
        (booked.state, booked.times.len(), booked.name.as_str()),
        (
            ReservationState::Booked,
            1,
            format!("deep-{}-0900", rules::timetable::SLOT_DAYS[day]).as_str()
        )
    );
    // Beyond the quota of the project a lead asks.
    let asked = book_slot(server, &school.tea, &id, slot("11:00", "12:00"), None).await;
    assert_eq!(asked.unwrap().value.state, ReservationState::Asked);
    let wrong = CourseSlotBody {
        day: "someday".to_owned(),
        ..slot("09:00", "10:00")
    };
    let refused = book_slot(server, &school.tea, &id, wrong, None).await;
    assert_eq!(code(refused), "course.slot-day");
    let seen = timetable(server, &school.abe, &id).await.unwrap();
    assert_eq!(seen.len(), 2);

    school.state(&id, CourseState::Closed).await.unwrap();
    let now = server.clock().now();
    server.catalog().step_courses(now).await.unwrap();
    let left = timetable(server, &school.abe, &id).await.unwrap();
    let states: Vec<ReservationState> = left.iter().map(|one| one.state).collect();
    assert_eq!(states, [ReservationState::Cancelled; 2]);
    let refused = book_slot(server, &school.tea, &id, slot("13:00", "14:00"), None).await;
    assert_eq!(code(refused), "course.not-on");
}

#[tokio::test]
async fn a_folder_that_is_handed_out_is_read_by_members_until_the_term_ends() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::for_tests_with(base::settings::SettingsLayer {
        data: Some(directory.path().to_owned()),
        ..base::settings::SettingsLayer::default()
    });
    let school = School::on(server).await;
    let (server, tea) = (&school.server, &school.tea);
    let new = api::folders::NewFolderBody {
        name: "lesson".to_owned(),
        ..api::folders::NewFolderBody::default()
    };
    folders::create(server, tea, new, None).await.unwrap();
    let lesson = || CourseHandOutBody {
        folder: "lesson".to_owned(),
    };
    let made = create(server, tea, school.week(), None).await;
    let id = made.unwrap().value.id.to_string();
    let draft = hand_out(server, tea, &id, lesson(), None).await;
    assert_eq!(code(draft), "course.draft");
    let course = school.state(&id, CourseState::Open).await.unwrap();
    let shared = hand_out(server, tea, &id, lesson(), None).await;
    assert_eq!(shared.unwrap().value.ends_at, Some(course.to));
    let seen = folders::list(server, &school.abe).await.unwrap();
    let seen: Vec<&str> = seen.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(seen, ["lesson"]);
    assert!(
        folders::list(server, &school.mina)
            .await
            .unwrap()
            .is_empty()
    );
    let refused = hand_out(server, &school.abe, &id, lesson(), None).await;
    assert_ne!(code(refused), "done");
}
