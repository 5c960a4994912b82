//! Allowances through the actions that doors call: who makes them, what they raise, and that they end.

use std::net::{IpAddr, Ipv4Addr};

use rules::object::Object;
use rules::quota::{LimitKey, PolicyLevel, TenantLevel};
use rules::storage::DEFAULT_FOLDER_BYTES;
use rules::units::{Bytes, GpuShare, Timestamp};
use rules::users::Role;

use super::super::notices::{self, NoticeKind};
use super::super::{policies, sessions, users};
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

fn gpus(gpu: u32) -> LimitsBody {
    LimitsBody {
        gpu: Some(GpuShare(gpu)),
        ..LimitsBody::default()
    }
}

fn asked(server: &Server, level: TenantLevel, subject: &str, seconds: u64) -> NewAllowanceBody {
    NewAllowanceBody {
        level,
        subject: subject.to_owned(),
        limits: Object(gpus(400)),
        until: server.clock().now().plus_seconds(seconds),
        reason: " paper deadline ".to_owned(),
    }
}

/// Raises what mina may have waiting, which is limited without any policy of hers.
fn more_waiting(server: &Server, seconds: u64) -> NewAllowanceBody {
    let limits = LimitsBody {
        waiting: Some(2_000),
        ..LimitsBody::default()
    };
    NewAllowanceBody {
        limits: Object(limits),
        ..asked(server, TenantLevel::User, "mina", seconds)
    }
}

/// The limit of GPUs that holds for mina, and until when it is raised.
async fn limit(server: &Server, mina: &Caller) -> (u64, PolicyLevel, Option<Timestamp>) {
    let held = policies::effective(server, mina, None, None).await.unwrap();
    let word = LimitKey::Gpu.word();
    let gpu = held.into_iter().find(|one| one.key == word).unwrap();
    (gpu.limit, gpu.level, gpu.until)
}

#[tokio::test]
async fn an_allowance_raises_a_limit_until_its_end_and_then_the_policy_holds_again() {
    let (server, boss, mina) = a_server().await;
    let new = api::policies::NewPolicyBody {
        name: "small".to_owned(),
        limits: gpus(100),
        egress: Default::default(),
        sudo: false,
        no_inner_door: false,
        no_home: false,
        require_limit: false,
    };
    policies::create(&server, &boss, new).await.unwrap();
    let all = PolicyUseBody {
        level: PolicyLevel::Member,
        subject: Some("default".to_owned()),
    };
    policies::attach(&server, &boss, "small", all)
        .await
        .unwrap();
    assert_eq!(
        limit(&server, &mina).await,
        (100, PolicyLevel::Member, None)
    );

    let of = asked(&server, TenantLevel::User, "mina", 3_600);
    let until = of.until;
    let made = create(&server, &boss, of).await.unwrap();
    assert_eq!(
        (made.name.as_str(), made.reason.as_str()),
        ("mina", "paper deadline")
    );
    let raised = (400, PolicyLevel::Member, Some(until));
    assert_eq!(limit(&server, &mina).await, raised);
    // The user is told, the one who raised it is not.
    assert_eq!(notices::unread(&server, &mina), 1);
    let told = notices::list(&server, &mina).await.unwrap();
    let NoticeKind::LimitRaised(_, end, why) = &told[0].about else {
        panic!("{told:?}");
    };
    assert_eq!((*end, why.as_str()), (until, "paper deadline"));
    let views = notices::views(&server, &mina).await.unwrap();
    let message = views[0].message.as_deref().unwrap_or_default();
    assert!(message.ends_with(": paper deadline"), "{message}");
    assert_eq!(notices::unread(&server, &boss), 0);
    let world = server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    assert_eq!(world.allowances.len(), 1);
    // One of the project raises nothing that bounds each member by themselves: it has nothing to raise.
    let project = asked(&server, TenantLevel::Project, "default", 60);
    let project = create(&server, &boss, project).await;
    assert_eq!(code(project), "allowance.no-limit");
    assert_eq!(limit(&server, &mina).await, raised);

    let before = Timestamp::from_millis(until.as_millis() - 1);
    server.catalog().end_allowances(before).await.unwrap();
    let left = list(&server, &boss).await.unwrap();
    assert_eq!(left.len(), 1, "it has not ended: {left:?}");
    assert_eq!(left[0].id, made.id);
    server.catalog().end_allowances(until).await.unwrap();
    assert_eq!(list(&server, &boss).await.unwrap(), []);
    assert_eq!(
        limit(&server, &mina).await,
        (100, PolicyLevel::Member, None)
    );
}

#[tokio::test]
async fn an_allowance_raises_the_usual_priority_where_no_policy_names_one() {
    let (server, boss, mina) = a_server().await;
    let launched = async |priority| {
        let request = api::sessions::LaunchRequest {
            priority: Some(priority),
            ..api::sessions::LaunchRequest::default()
        };
        code(sessions::launch(&server, &mina, request, None).await)
    };
    assert_eq!(launched(50).await, "priority.not-allowed");
    let limits = LimitsBody {
        priority: Some(50),
        ..LimitsBody::default()
    };
    let of = NewAllowanceBody {
        limits: Object(limits),
        ..asked(&server, TenantLevel::User, "mina", 3_600)
    };
    create(&server, &boss, of).await.unwrap();
    assert_eq!(launched(50).await, "done");
    assert_eq!(launched(51).await, "limit.each");
}

#[tokio::test]
async fn an_allowance_raises_the_usual_limit_of_folders_where_no_policy_names_one() {
    let (server, boss, mina) = a_server().await;
    let now = server.clock().now();
    let held = || {
        let (user, domain) = (mina.subject.user, mina.subject.domain);
        let limit = server.catalog().read_now("look up a limit", |view| {
            super::super::storage::whole_limit(view, user, domain, now)
        });
        limit.unwrap()
    };
    assert_eq!(held(), DEFAULT_FOLDER_BYTES);
    let more = Bytes(DEFAULT_FOLDER_BYTES.0 * 2);
    let limits = LimitsBody {
        folder_bytes: Some(more),
        ..LimitsBody::default()
    };
    let of = NewAllowanceBody {
        limits: Object(limits),
        ..asked(&server, TenantLevel::User, "mina", 3_600)
    };
    create(&server, &boss, of).await.unwrap();
    assert_eq!(held(), more);
}

#[tokio::test]
async fn what_no_policy_limits_is_not_raised() {
    let (server, boss, mina) = a_server().await;
    let more = |level, subject: &str, limits| NewAllowanceBody {
        limits: Object(limits),
        ..asked(&server, level, subject, 60)
    };
    let folders = LimitsBody {
        folder_bytes: Some(Bytes(DEFAULT_FOLDER_BYTES.0 * 2)),
        ..LimitsBody::default()
    };
    // Both or neither: what is limited is not raised beside what is not.
    let both = LimitsBody {
        gpu: Some(GpuShare(400)),
        ..folders
    };
    for (level, subject, limits) in [
        (TenantLevel::User, "mina", gpus(400)),
        (TenantLevel::User, "mina", both),
        (TenantLevel::Project, "default", gpus(400)),
        (TenantLevel::Domain, "default", folders),
    ] {
        let refused = create(&server, &boss, more(level, subject, limits)).await;
        let Err(Failure::Refusal(refused)) = refused else {
            panic!("{subject}: {refused:?}");
        };
        assert_eq!(refused.code, "allowance.no-limit");
        let key = if limits.gpu.is_some() {
            "gpu"
        } else {
            "folder_bytes"
        };
        let place = format!("/limits/{key}");
        assert_eq!(refused.pointer.as_deref(), Some(place.as_str()));
    }
    assert_eq!(list(&server, &boss).await.unwrap(), []);
    // The folders of a project have a limit of their own, and so have the images of a user.
    let project = more(TenantLevel::Project, "default", folders);
    create(&server, &boss, project).await.unwrap();
    let images = LimitsBody {
        images: Some(64),
        ..LimitsBody::default()
    };
    let images = more(TenantLevel::User, "mina", images);
    create(&server, &boss, images).await.unwrap();
    // What is built in stands among the limits that hold, with its end.
    let held = policies::effective(&server, &mina, None, None)
        .await
        .unwrap();
    let of = |key: LimitKey| held.iter().find(|one| one.key == key.word()).unwrap();
    let folders = of(LimitKey::FolderBytes);
    assert_eq!(
        (folders.limit, folders.until),
        (DEFAULT_FOLDER_BYTES.0, None)
    );
    let images = of(LimitKey::Images);
    assert_eq!((images.limit, images.usual), (64, Some(32)));
    assert!(images.until.is_some());
}

#[tokio::test]
async fn an_allowance_ends_early_or_with_its_user_and_is_an_administrators() {
    let (server, boss, mina) = a_server().await;
    let of = |seconds| more_waiting(&server, seconds);
    let id = create(&server, &boss, of(60)).await.unwrap().id;
    let id = AllowanceId(id);
    assert_eq!(get(&server, &boss, id).await.unwrap().name, "mina");
    remove(&server, &boss, id).await.unwrap();
    assert_eq!(
        code(remove(&server, &boss, id).await),
        "allowance.not-found"
    );
    assert_eq!(code(get(&server, &boss, id).await), "allowance.not-found");

    assert_eq!(
        code(list(&server, &mina).await),
        "role.administrator-needed"
    );
    assert_eq!(
        code(get(&server, &mina, id).await),
        "role.administrator-needed"
    );
    assert_eq!(
        code(create(&server, &mina, of(60)).await),
        "role.administrator-needed"
    );
    assert_eq!(
        code(remove(&server, &mina, id).await),
        "role.administrator-needed"
    );

    create(&server, &boss, of(60)).await.unwrap();
    users::remove(&server, &boss, "mina", None).await.unwrap();
    assert_eq!(list(&server, &boss).await.unwrap(), []);
}

#[tokio::test]
async fn what_is_no_allowance_is_refused_by_name() {
    let (server, boss, _) = a_server().await;
    let of = |seconds| more_waiting(&server, seconds);
    for (wrong, expected) in [
        (of(0), "allowance.end"),
        (of(MAX_ALLOWED_DAYS * 86_400 + 60), "allowance.end"),
        (
            NewAllowanceBody {
                limits: Object(LimitsBody::default()),
                ..of(60)
            },
            "allowance.empty",
        ),
        // As many as hold without any policy.
        (
            NewAllowanceBody {
                limits: Object(LimitsBody {
                    waiting: USUAL_LIMITS.waiting,
                    ..LimitsBody::default()
                }),
                ..of(60)
            },
            "allowance.not-above",
        ),
        (
            NewAllowanceBody {
                reason: "x".repeat(MAX_REASON + 1),
                ..of(60)
            },
            "allowance.reason-too-long",
        ),
        (
            NewAllowanceBody {
                subject: "nobody".to_owned(),
                ..of(60)
            },
            "user.not-found",
        ),
    ] {
        assert_eq!(code(create(&server, &boss, wrong).await), expected);
    }
    for _ in 0..MAX_ALLOWANCES {
        create(&server, &boss, of(60)).await.unwrap();
    }
    assert_eq!(
        code(create(&server, &boss, of(60)).await),
        "allowance.too-many"
    );
}

/// A user asks for more; an administrator answers by an allowance, which ends the request, or declines it, which the user reads.
#[tokio::test]
async fn a_user_asks_for_more_and_is_answered() {
    use api::allowances::{LimitRequestDeclineBody, NewLimitRequestBody};
    let (server, boss, mina) = a_server().await;
    let waiting = |most: u64| NewLimitRequestBody {
        limits: Object(LimitsBody {
            waiting: Some(most),
            ..LimitsBody::default()
        }),
        days: 7,
        reason: " paper deadline ".to_owned(),
    };
    let ask = async |asked: NewLimitRequestBody| requests::ask(&server, &mina, asked).await;
    let asks = async || requests::list(&server, &boss).await.unwrap();
    for (wrong, expected) in [
        (
            NewLimitRequestBody {
                days: 0,
                ..waiting(2_000)
            },
            "limit-request.days",
        ),
        (
            NewLimitRequestBody {
                days: 366,
                ..waiting(2_000)
            },
            "limit-request.days",
        ),
        (
            NewLimitRequestBody {
                reason: " ".to_owned(),
                ..waiting(2_000)
            },
            "limit-request.reason",
        ),
        (
            NewLimitRequestBody {
                reason: "x".repeat(201),
                ..waiting(2_000)
            },
            "allowance.reason-too-long",
        ),
        (
            NewLimitRequestBody {
                limits: Object(LimitsBody::default()),
                ..waiting(2_000)
            },
            "allowance.empty",
        ),
        (waiting(1), "allowance.not-above"),
        (
            NewLimitRequestBody {
                limits: Object(gpus(400)),
                ..waiting(2_000)
            },
            "allowance.no-limit",
        ),
    ] {
        assert_eq!(code(ask(wrong).await), expected);
    }
    assert_eq!(
        code(requests::own(&server, &mina).await),
        "limit-request.not-found"
    );
    assert_eq!(
        code(requests::list(&server, &mina).await),
        "role.administrator-needed"
    );

    let request = ask(waiting(2_000)).await.unwrap();
    assert_eq!(
        (request.user.as_str(), request.reason.as_str()),
        ("mina", "paper deadline")
    );
    assert_eq!(asks().await, std::slice::from_ref(&request));
    assert_eq!(requests::own(&server, &mina).await.unwrap(), request);
    let told = notices::list(&server, &boss).await.unwrap();
    assert_eq!(told[0].about, NoticeKind::LimitsAsked(1));
    assert_eq!(notices::unread(&server, &boss), 1);
    assert_eq!(notices::unread(&server, &mina), 0);
    // A second one takes its place, and is taken back.
    ask(waiting(3_000)).await.unwrap();
    let all = asks().await;
    assert_eq!((all.len(), all[0].limits.waiting), (1, Some(3_000)));
    requests::withdraw(&server, &mina).await.unwrap();
    assert_eq!(asks().await, []);
    assert_eq!(
        code(requests::withdraw(&server, &mina).await),
        "limit-request.not-found"
    );

    ask(waiting(2_000)).await.unwrap();
    let why = LimitRequestDeclineBody {
        reason: "The queue is full.".to_owned(),
    };
    let refused = requests::decline(&server, &mina, "mina", why.clone()).await;
    assert_eq!(code(refused), "role.administrator-needed");
    requests::decline(&server, &boss, "mina", why)
        .await
        .unwrap();
    assert_eq!(asks().await, []);
    let told = notices::list(&server, &mina).await.unwrap();
    let declined = NoticeKind::LimitDeclined("The queue is full.".to_owned());
    assert_eq!(told[0].about, declined);
    assert_eq!(notices::unread(&server, &mina), 1);

    ask(waiting(2_000)).await.unwrap();
    create(&server, &boss, more_waiting(&server, 3_600))
        .await
        .unwrap();
    assert_eq!(asks().await, [], "the allowance is the answer");
    assert_eq!(notices::unread(&server, &boss), 0);
    // Of two limits the one that was raised is answered; the other one waits on.
    let both = NewLimitRequestBody {
        limits: Object(LimitsBody {
            waiting: Some(4_000),
            waiting_bytes: Some(1 << 40),
            ..LimitsBody::default()
        }),
        ..waiting(4_000)
    };
    ask(both).await.unwrap();
    create(&server, &boss, more_waiting(&server, 3_600))
        .await
        .unwrap();
    let left: Vec<LimitsBody> = asks().await.into_iter().map(|one| one.limits).collect();
    let bytes = LimitsBody {
        waiting_bytes: Some(1 << 40),
        ..LimitsBody::default()
    };
    assert_eq!(left, [bytes]);
    // Of a suspended user the request stays in the list, marked, and is no news; it can be answered as before.
    let told = async || {
        let told = notices::list(&server, &boss).await.unwrap();
        let waits = |one: &notices::OwnNotice| matches!(one.about, NoticeKind::LimitsAsked(_));
        told.iter().any(waits)
    };
    ask(waiting(4_000)).await.unwrap();
    assert!(told().await && !asks().await[0].suspended);
    let suspend = async |suspended| {
        let changed = users::suspend(&server, &boss, "mina", suspended, None).await;
        changed.unwrap();
    };
    suspend(true).await;
    assert!(!told().await && asks().await[0].suspended);
    assert_eq!(notices::unread(&server, &boss), 0);
    suspend(false).await;
    assert!(told().await && !asks().await[0].suspended);
    suspend(true).await;
    let no = LimitRequestDeclineBody::default();
    let declined = requests::decline(&server, &boss, "mina", no).await;
    declined.unwrap();
    assert_eq!(asks().await, []);
    suspend(false).await;
    // Who is removed asks for nothing.
    ask(waiting(4_000)).await.unwrap();
    users::remove(&server, &boss, "mina", None).await.unwrap();
    assert_eq!(asks().await, []);
}
