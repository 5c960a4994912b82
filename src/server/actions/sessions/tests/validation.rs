//! That launch, preview and change refuse a static fault in the words of `rules::workload::validate`, and that
//! nothing else refuses what it accepts but what had to be looked up.

use rules::session::SessionKind;
use rules::workload::validate::{RequestedLaunch, RequestedResize};

use super::*;

type Break = fn(&mut LaunchRequest);

/// Static faults, one of each field.
const FAULTS: [Break; 13] = [
    |r| r.replicas = 501,
    |r| r.name = Some("a b".into()),
    |r| r.labels = [(String::new(), String::new())].into(),
    |r| r.description = Some("a\nb".into()),
    |r| r.resources.gpu = Some(GpuShare::ZERO),
    |r| r.image = "A B".into(),
    |r| r.depends_on = vec!["a".into(); 65],
    |r| r.timeout_seconds = Some(1),
    |r| r.start_at = Some(Timestamp::from_millis(i64::MAX / 2)),
    |r| r.resources.cpu = Some(CpuShare(0)),
    |r| r.command = vec![String::new()],
    |r| r.env = [("a=b".to_owned(), String::new())].into(),
    |r| r.max_runtime_seconds = Some(0),
];

#[tokio::test]
async fn launch_and_preview_refuse_what_validate_refuses_in_its_words() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    for (first, fault) in FAULTS.iter().enumerate() {
        for (second, other) in FAULTS.iter().enumerate().skip(first) {
            let mut request = LaunchRequest::default();
            fault(&mut request);
            other(&mut request);
            let now = server.clock().now();
            let expected = RequestedLaunch::from(request.clone())
                .validate(now)
                .expect_err("two static faults");
            let launched = launch(&server, &kim, request.clone(), None).await;
            assert_eq!(refusal(launched), expected, "{first} {second}");
            let previewed = preview(&server, &kim, request).await;
            assert_eq!(refusal(previewed), expected, "{first} {second}");
        }
    }
    let world = server.catalog().read_now("look", |view| view.world());
    assert_eq!(world.unwrap().sessions.len(), 0);
}

/// What validate accepts is refused only for what has to be looked up: images, dependencies, machines, names
/// in use.
#[tokio::test]
async fn what_validate_accepts_is_refused_only_for_what_was_looked_up() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let mut outcomes = std::collections::BTreeMap::<String, u32>::new();
    // Every combination of these, each without a static fault.
    for n in 0..(3 * 3 * 3 * 2 * 2) {
        let pick = |of: usize, every: usize| (n / every) % of;
        let request = LaunchRequest {
            name: [None, Some("a".into()), Some("x".repeat(59))][pick(3, 1)].clone(),
            image: ["host", "lab/vision", "0188bc5f-3680-7777-b5f1-aa0707070707"][pick(3, 3)]
                .into(),
            depends_on: [vec![], vec!["none".into()], vec!["a".into()]][pick(3, 9)].clone(),
            replicas: [1, 500][pick(2, 27)],
            kind: [SessionKind::Interactive, SessionKind::Batch][pick(2, 54)],
            command: vec!["true".into()],
            resources: api::sessions::Resources {
                memory: Some(Bytes::gib(1 + 15 * (n as u64 % 2))),
                ..Default::default()
            },
            ..LaunchRequest::default()
        };
        let validated = RequestedLaunch::from(request.clone()).validate(server.clock().now());
        validated.expect("no static fault");
        let looked_up = match preview(&server, &kim, request).await {
            Ok(_) => "accepted".to_owned(),
            Err(Failure::Refusal(refusal)) => refusal.code,
            Err(Failure::Fault(fault)) => panic!("{}", base::observe::chain(&fault)),
        };
        *outcomes.entry(looked_up).or_default() += 1;
    }
    let codes: Vec<&str> = outcomes.keys().map(String::as_str).collect();
    assert_eq!(
        codes,
        [
            "accepted",
            "dependency.cycle",
            "dependency.not-found",
            "image.not-found",
            "memory.too-large"
        ],
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn a_resize_refuses_what_validate_refuses_in_its_words() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let session = one(&server, &kim, named("a")).await.unwrap();
    let row = server
        .catalog()
        .read_now("look", |view| view.session(session.id))
        .unwrap()
        .unwrap();
    for wanted in [
        bytes(Bytes(1)),
        cores(0),
        Resize {
            gpu_memory: Some(Bytes::gib(1)),
            ..Resize::default()
        },
    ] {
        let expected = RequestedResize::from(wanted)
            .validate(&row)
            .expect_err("a static fault");
        assert_eq!(
            refusal(resize(&server, &kim, "a", wanted, None).await),
            expected
        );
    }
}
