//! What is refused of a launch without a look at anything else, in which order, and that what is accepted is
//! never refused later for a static reason.

use std::collections::BTreeSet;

use super::*;
use crate::devices::MigProfile;
use crate::resources::{Capacity, Device};

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// A batch session of one command on the machine's own programs.
fn plain_batch() -> RequestedLaunch {
    RequestedLaunch {
        name: Some("train".into()),
        remarks: Remarks::default(),
        precedence: Precedence::default(),
        replicas: 1,
        kind: SessionKind::Batch,
        image: "host".into(),
        command: vec!["true".into()],
        env: BTreeMap::new(),
        demand: Demand::default(),
        typed_gpu: None,
        timeout_seconds: None,
        max_runtime_seconds: None,
        start_at: None,
        depends_on: Vec::new(),
        containers: 1,
    }
}

type Break = fn(&mut RequestedLaunch);

/// One fault each, in the order in which they are refused, with the code and the field that name it.
const FAULTS: [(&str, &str, Break); 24] = [
    ("replicas.out-of-range", "/replicas", |r| r.replicas = 0),
    ("session.name-invalid", "/name", |r| {
        r.name = Some("-".into())
    }),
    ("label.empty", "/labels", |r| {
        r.remarks.labels.insert(String::new(), String::new());
    }),
    ("remark.hidden-characters", "/description", |r| {
        r.remarks.description = Some("a\nb".into());
    }),
    ("priority.out-of-range", "/priority", |r| {
        r.precedence.priority = 101;
    }),
    ("yields.batch-only", "/yields", |r| {
        r.kind = SessionKind::Interactive;
        r.precedence.yields = true;
    }),
    ("gpu.zero", "/resources/gpu", |r| {
        r.typed_gpu = Some(GpuShare::ZERO);
    }),
    ("image.reference-invalid", "/image", |r| {
        r.image = "../x".into()
    }),
    ("dependency.too-many", "/depends_on", |r| {
        r.depends_on = vec!["a".into(); MAX_DEPENDENCIES + 1];
    }),
    ("timeout.batch-only", "/timeout_seconds", |r| {
        r.kind = SessionKind::Interactive;
        r.timeout_seconds = Some(1);
    }),
    ("start-at.too-far", "/start_at", |r| {
        r.start_at = Some(NOW.plus_seconds(MAX_RUN_SECONDS + 1));
    }),
    ("cpu.too-small", "/resources/cpu", |r| {
        r.demand.cpu = CpuShare(0)
    }),
    ("memory.too-small", "/resources/memory", |r| {
        r.demand.memory = Bytes(1);
    }),
    ("shm.too-large", "/resources/shm", |r| {
        r.demand.shm = Bytes(u64::MAX)
    }),
    ("disk.size", "/resources/disk", |r| {
        r.demand.disk = Some(Bytes::mib(1));
    }),
    ("containers.out-of-range", "/containers", |r| {
        r.containers = MAX_CONTAINERS + 1;
    }),
    ("command.too-long", "/command", |r| {
        r.command = vec!["a".into(); MAX_ARGUMENTS + 1];
    }),
    ("command.empty", "/command", |r| {
        r.command = vec![String::new()]
    }),
    ("command.missing", "/command", |r| {
        r.command = Vec::new();
        r.image = "host".into();
    }),
    ("command.nul", "/command", |r| r.command.push("a\0".into())),
    ("env.too-many", "/env", |r| {
        r.env = (0..=MAX_VARIABLES)
            .map(|n| (format!("v{n}"), "".into()))
            .collect();
    }),
    ("env.name-invalid", "/env", |r| {
        r.env = [("0".to_owned(), String::new())].into();
    }),
    ("seconds.out-of-range", "/timeout_seconds", |r| {
        r.timeout_seconds = Some(0);
    }),
    ("seconds.out-of-range", "/max_runtime_seconds", |r| {
        r.max_runtime_seconds = Some(0);
    }),
];

#[test]
fn each_static_fault_of_a_launch_has_a_code_and_a_field() {
    plain_batch().validate(NOW).expect("a plain launch");
    for (code, pointer, fault) in FAULTS {
        let mut request = plain_batch();
        fault(&mut request);
        let refusal = request.validate(NOW).expect_err(code);
        assert_eq!(
            (refusal.code.as_str(), refusal.pointer.as_deref()),
            (code, Some(pointer))
        );
    }
}

/// Two faults together are named in the order of the list, whichever two they are.
#[test]
fn of_two_faults_the_earlier_one_is_named() {
    let mut tried = 0;
    for (at, (code, pointer, fault)) in FAULTS.iter().enumerate() {
        for (later, other, second) in &FAULTS[at + 1..] {
            // A later fault of the same field takes the earlier one back, as the host environment does the image.
            if other == pointer || (*pointer == "/image" && *later == "command.missing") {
                continue;
            }
            tried += 1;
            let mut request = plain_batch();
            fault(&mut request);
            second(&mut request);
            let refusal = request.validate(NOW).expect_err(code);
            assert_eq!(refusal.code, *code, "beside {later}");
        }
    }
    assert!(tried > 150, "only {tried} pairs");
}

#[test]
fn several_containers_ask_for_all_they_need_together_and_for_no_share_in_pieces() {
    let asked = |containers: u32, gpu: u32, mig: Option<&str>| {
        let mut request = plain_batch();
        request.containers = containers;
        request.demand.gpu = GpuShare(gpu);
        request.demand.mig = mig.and_then(|text| MigProfile::parse(text).ok());
        let code = request.validate(NOW).map_err(|refusal| refusal.code);
        code.map(|launch| (launch.spec.demand.cpu, launch.spec.demand.gpu))
    };
    let one = Demand::default().cpu.0;
    assert_eq!(asked(1, 50, None), Ok((CpuShare(one), GpuShare(50))));
    assert_eq!(asked(3, 100, None), Ok((CpuShare(3 * one), GpuShare(300))));
    assert_eq!(asked(3, 30, None), Ok((CpuShare(3 * one), GpuShare(90))));
    assert_eq!(asked(4, 50, None), Ok((CpuShare(4 * one), GpuShare(200))));
    for gpu in [60, 150] {
        assert_eq!(
            asked(2, gpu, None),
            Err("containers.gpu".to_owned()),
            "{gpu}"
        );
    }
    let cut = asked(2, 0, Some("1g.10gb"));
    assert_eq!(cut, Err("containers.partition".to_owned()));
    assert_eq!(asked(0, 0, None), Err("containers.out-of-range".to_owned()));
}

/// A linear generator, enough to spread requests.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).expect("31 bits") % most.max(1)
    }

    fn one_in(&mut self, most: u32) -> bool {
        self.below(most) == 0
    }
}

/// A launch with up to two faults, and amounts around the bounds.
fn random_launch(numbers: &mut Numbers) -> RequestedLaunch {
    let mut request = plain_batch();
    if numbers.one_in(2) {
        request.kind = SessionKind::Interactive;
    }
    if numbers.one_in(3) {
        request.command = Vec::new();
    }
    request.replicas = 1 + numbers.below(MAX_REPLICAS);
    request.image = ["host", "lab/vision", "a:1"][numbers.below(3) as usize].into();
    // Close to the longest name, so that the number of a replica may be too much.
    let length = 55 + numbers.below(9) as usize;
    request.name = Some("x".repeat(length)).filter(|_| numbers.one_in(2));
    request.demand.cpu = CpuShare(numbers.below(1000));
    request.demand.memory = Bytes::mib(u64::from(numbers.below(64)));
    request.demand.shm = Bytes::mib(u64::from(numbers.below(20)));
    if numbers.one_in(2) {
        request.demand.gpu = GpuShare(numbers.below(250));
        request.typed_gpu = Some(request.demand.gpu);
    }
    if numbers.one_in(4) {
        request.demand.gpu_memory = Some(Bytes::mib(u64::from(numbers.below(2000))));
    }
    if numbers.one_in(6) {
        request.demand.mig = MigProfile::parse("1g.10gb").ok();
    }
    for _ in 0..numbers.below(3) {
        if numbers.one_in(2) {
            FAULTS[numbers.below(FAULTS.len() as u32) as usize].2(&mut request);
        }
    }
    request
}

/// A machine that could hold everything that is asked for here.
fn roomy() -> crate::world::ClusterSnapshot {
    let mut world = crate::world::ClusterSnapshot::default();
    let device = |index| Device {
        memory: Bytes::gib(80),
        ..Device::new(index, "H100")
    };
    let mut devices: Vec<Device> = (0..8).map(device).collect();
    devices[7].mig = vec![crate::devices::MigPart {
        uuid: "MIG-1".into(),
        profile: MigProfile::parse("1g.10gb").expect("a profile"),
        memory: Bytes::gib(10),
        sms: 16,
    }];
    world.nodes.push(crate::world::NodeRecord {
        id: crate::names::NodeId(uuid::Uuid::from_u128(1)),
        name: "a".into(),
        boot: crate::names::BootId(uuid::Uuid::from_u128(1)),
        capacity: Capacity {
            cpu: CpuShare(100_000),
            memory: Bytes::gib(1000),
            devices,
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: NOW,
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: Default::default(),
        problems: vec![],
    });
    world
}

#[test]
fn what_is_validated_is_never_refused_later_for_a_static_reason() {
    let world = roomy();
    let (mut accepted, mut refused) = (0, BTreeSet::new());
    for seed in 0..4000 {
        let mut numbers = Numbers(seed);
        let request = random_launch(&mut numbers);
        let launch = match request.clone().validate(NOW) {
            Ok(launch) => launch,
            Err(refusal) => {
                refused.insert(refusal.code);
                continue;
            }
        };
        accepted += 1;
        let fails = |what: &str| panic!("seed {seed}: {what} refuses {request:?}");
        if let Some(name) = &launch.name {
            for number in 1..=launch.replicas {
                if name.replica(number, launch.replicas).is_err() {
                    fails("the name of a replica");
                }
            }
        }
        let image = launch.image != ImageChoice::Host;
        let environment = match &launch.image {
            ImageChoice::Host => SessionEnvironment::Host,
            ImageChoice::Id { typed, .. } | ImageChoice::Reference { typed, .. } => {
                SessionEnvironment::Image {
                    id: ImageId(uuid::Uuid::from_u128(1)),
                    reference: typed.clone(),
                }
            }
        };
        let spec = match launch.spec.complete(environment, image, Vec::new()) {
            Ok(spec) => spec,
            Err(_) => fails("the found image"),
        };
        let group = crate::names::ResourceGroupId::DEFAULT;
        if crate::placement::possible(&world, group, &spec.demand, &spec.environment).is_err() {
            fails("a machine with room for all");
        }
    }
    assert!(accepted > 200, "only {accepted} accepted");
    assert!(refused.len() > 15, "only {refused:?} refused");
}

#[test]
fn a_batch_session_needs_a_command_or_an_image_that_has_one() {
    let mut request = plain_batch();
    request.command = Vec::new();
    request.image = "lab/vision".into();
    let launch = request.validate(NOW).expect("not known yet");
    let image = SessionEnvironment::Image {
        id: ImageId(uuid::Uuid::from_u128(1)),
        reference: "lab/vision:latest".into(),
    };
    let spec = launch.spec;
    let refusal = spec
        .clone()
        .complete(image.clone(), false, Vec::new())
        .expect_err("nothing would run");
    assert_eq!(refusal.code, "command.missing");
    spec.complete(image, true, Vec::new())
        .expect("it runs something");
}

#[test]
fn an_image_is_read_as_host_id_or_reference() {
    let id = ImageId(uuid::Uuid::from_u128(7));
    for (typed, choice) in [
        (" host ".to_owned(), ImageChoice::Host),
        (
            format!(" {id}"),
            ImageChoice::Id {
                id,
                typed: id.to_string(),
            },
        ),
        (
            "lab/vision".to_owned(),
            ImageChoice::Reference {
                reference: "lab/vision:latest".into(),
                typed: "lab/vision".into(),
            },
        ),
    ] {
        assert_eq!(ImageChoice::parse(&typed), Ok(choice), "{typed:?}");
    }
}
