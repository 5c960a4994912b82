//! Sights of cards, one after the other, and what becomes of them.

use super::*;
use crate::gpu::probe::{LinkTold, PartTold};

const GIB: u64 = 1 << 30;

fn name(at: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-{at:012}")
}

fn listed(at: u32) -> KernelCard {
    KernelCard {
        pci: format!("0000:{:02x}:00.0", 0x41 + at),
        model: "NVIDIA H200".into(),
        uuid: name(at),
        minor: at,
    }
}

fn told(at: u32) -> CardTold {
    CardTold {
        uuid: Some(name(at)),
        model: Some("NVIDIA H200".into()),
        pci: Some(format!("00000000:{:02X}:00.0", 0x41 + at)),
        memory: Some(141 * GIB),
        cores: Some(16_896),
        ability: Some((9, 0)),
        ..CardTold::default()
    }
}

fn look(
    inventory: &mut Inventory,
    cards: &[KernelCard],
    told: Option<Vec<CardTold>>,
) -> Vec<String> {
    look_at(inventory, cards, told, Vec::new(), Instant::now())
}

fn look_at(
    inventory: &mut Inventory,
    cards: &[KernelCard],
    told: Option<Vec<CardTold>>,
    faults: Vec<FaultTold>,
    now: Instant,
) -> Vec<String> {
    let told = told.map(|cards| DriverReport {
        cards,
        faults,
        limits: false,
    });
    let sight = CardStatus {
        listed: cards,
        told: told.as_ref(),
        broken: None,
        numa: &|pci| (pci == "0000:42:00.0").then_some(1),
    };
    inventory.look(&sight, now);
    let devices = inventory.devices();
    devices
        .iter()
        .map(|device| device.health.word().to_owned())
        .collect()
}

#[test]
fn a_card_is_what_the_kernel_and_the_driver_say_of_it() {
    let mut inventory = Inventory::default();
    let cards = [listed(0), listed(1)];
    assert_eq!(
        look(&mut inventory, &cards, Some(vec![told(0), told(1)])),
        ["well", "well"]
    );
    let devices = inventory.devices();
    assert_eq!((devices[1].index, devices[1].memory), (1, Bytes::gib(141)));
    assert_eq!(
        (devices[1].sms, devices[1].numa, devices[0].numa),
        (132, Some(1), None)
    );
    assert_eq!(
        (devices[0].uuid.clone(), devices[0].simulated),
        (name(0), false)
    );
    let real = inventory.real();
    assert_eq!(
        (real[1].index, real[1].minor, real[1].uuid.clone()),
        (1, 1, name(1))
    );
    // The driver's order is not the bus's, and its names are those of the kernel.
    look(&mut inventory, &cards, Some(vec![told(1), told(0)]));
    assert_eq!(inventory.devices(), devices);
}

#[test]
fn a_card_that_goes_keeps_its_number_fails_meanwhile_and_may_come_back() {
    let mut inventory = Inventory::default();
    let all = [listed(0), listed(1)];
    look(&mut inventory, &all, Some(vec![told(0), told(1)]));
    let before = inventory.devices();
    let gone = look(&mut inventory, &all[1..], Some(vec![told(1)]));
    assert_eq!(gone, ["failing", "well"]);
    assert_eq!(inventory.devices()[1], before[1]);
    assert_eq!(inventory.real().len(), 2);
    assert_eq!(
        look(&mut inventory, &all, Some(vec![told(0), told(1)])),
        ["well", "well"]
    );
    assert_eq!(inventory.devices(), before);
    // Still listed by the kernel, and lost for the driver: by name, and without one.
    let lost = CardTold {
        error: Some("lost".into()),
        ..told(0)
    };
    assert_eq!(
        look(&mut inventory, &all, Some(vec![lost, told(1)])),
        ["failing", "well"]
    );
    let nameless = CardTold {
        error: Some("lost".into()),
        ..CardTold::default()
    };
    assert_eq!(
        look(&mut inventory, &all, Some(vec![nameless, told(1)])),
        ["failing", "well"]
    );
    assert_eq!(inventory.devices()[0].memory, before[0].memory);
    assert_eq!(
        look(&mut inventory, &all, Some(vec![told(0), told(1)])),
        ["well", "well"]
    );
    // A new card gets a number of its own, also where another was.
    let other = KernelCard {
        pci: listed(0).pci,
        ..listed(7)
    };
    look(&mut inventory, &[other, listed(1)], None);
    let names: Vec<String> = inventory
        .devices()
        .into_iter()
        .map(|device| device.uuid)
        .collect();
    assert_eq!(names, [name(0), name(1), name(7)]);
}

#[test]
fn what_nobody_answers_for_is_unknown_and_keeps_what_was_known() {
    let mut inventory = Inventory::default();
    let cards = [listed(0)];
    // Never told: no share can be counted of it.
    assert_eq!(look(&mut inventory, &cards, None), ["failing"]);
    look(&mut inventory, &cards, Some(vec![told(0)]));
    let known = inventory.devices().remove(0);
    assert_eq!(look(&mut inventory, &cards, None), ["unknown"]);
    assert_eq!(
        inventory.devices(),
        [Device {
            health: Health::Unknown,
            ..known
        }]
    );
    // The driver answers, and not for this one.
    assert_eq!(look(&mut inventory, &cards, Some(Vec::new())), ["unknown"]);
    let error = CardTold {
        error: Some("Unknown Error".into()),
        ..told(0)
    };
    assert_eq!(look(&mut inventory, &cards, Some(vec![error])), ["unknown"]);
    let text = serde_json::to_string(&inventory).expect("it is plain");
    let mut next: Inventory = serde_json::from_str(&text).expect("it was just written");
    assert_eq!(look(&mut next, &cards, None), ["unknown"]);
    // The driver cannot be used at all.
    let sight = CardStatus {
        listed: &cards,
        told: None,
        broken: Some("Half of the driver is missing."),
        numa: &|_| None,
    };
    inventory.look(&sight, Instant::now());
    let text = "Half of the driver is missing.".to_owned();
    assert_eq!(inventory.devices()[0].health, Health::Failing { text });
}

#[test]
fn a_card_without_a_name_is_known_by_its_place_until_it_has_one() {
    let mut inventory = Inventory::default();
    let nameless = KernelCard {
        uuid: String::new(),
        ..listed(0)
    };
    look(&mut inventory, std::slice::from_ref(&nameless), None);
    assert!(inventory.devices()[0].uuid.is_empty() && inventory.real().is_empty());
    look(&mut inventory, &[nameless], Some(vec![told(0)]));
    assert_eq!(inventory.devices().len(), 1);
    assert_eq!(inventory.real()[0].uuid, name(0));
    look(&mut inventory, &[listed(0)], Some(vec![told(0)]));
    assert_eq!(inventory.devices().len(), 1);
}

#[test]
fn wear_is_told_and_faults_of_programs_are_not() {
    let cards = [listed(0)];
    let now = Instant::now();
    let after = |change: fn(&mut CardTold)| {
        let mut inventory = Inventory::default();
        let mut card = told(0);
        change(&mut card);
        look(&mut inventory, &cards, Some(vec![card])).remove(0)
    };
    assert_eq!(
        after(|card| card.remapped_rows = Some([3, 0, 0, 0])),
        "well"
    );
    assert_eq!(
        after(|card| card.remapped_rows = Some([3, 1, 1, 0])),
        "worn"
    );
    assert_eq!(
        after(|card| card.remapped_rows = Some([3, 1, 0, 1])),
        "failing"
    );
    assert_eq!(after(|card| card.retirement_pending = Some(true)), "worn");
    assert_eq!(after(|card| card.uncorrected_errors = Some(2)), "worn");
    assert_eq!(
        after(|card| card.slowed_by = Some(0x40)),
        "well",
        "one look is none"
    );
    let fault = |number| FaultTold {
        uuid: name(0),
        number,
    };
    for (number, word) in [
        (13, "well"),
        (31, "well"),
        (43, "well"),
        (63, "worn"),
        (79, "failing"),
    ] {
        let mut inventory = Inventory::default();
        let seen = look_at(
            &mut inventory,
            &cards,
            Some(vec![told(0)]),
            vec![fault(number)],
            now,
        );
        assert_eq!(seen, [word], "Xid {number}");
        // It is told on after the driver has said it once; wear for a day, what is fatal until a reset.
        let later = now + TOLD_FOR + Duration::from_secs(1);
        let seen = look_at(
            &mut inventory,
            &cards,
            Some(vec![told(0)]),
            Vec::new(),
            later,
        );
        assert_eq!(
            seen,
            [if word == "worn" { "well" } else { word }],
            "Xid {number}"
        );
        look(&mut inventory, &[], Some(Vec::new()));
        assert_eq!(
            look(&mut inventory, &cards, Some(vec![told(0)])),
            ["well"],
            "it was reset"
        );
    }
}

#[test]
fn a_moment_of_heat_says_nothing_and_lasting_heat_is_told_until_it_is_over() {
    let mut inventory = Inventory::default();
    let hot = CardTold {
        slowed_by: Some(0x20),
        ..told(0)
    };
    let idle = CardTold {
        slowed_by: Some(0x1),
        ..told(0)
    };
    let mut words = Vec::new();
    for card in [
        &hot, &idle, &hot, &hot, &hot, &idle, &idle, &hot, &idle, &idle, &idle,
    ] {
        words.extend(look(&mut inventory, &[listed(0)], Some(vec![card.clone()])));
    }
    let worn: Vec<usize> = (0..words.len()).filter(|at| words[*at] == "worn").collect();
    assert_eq!(worn, [4, 5, 6, 7, 8]);
    assert_eq!(words.last().map(String::as_str), Some("well"));
}

#[test]
fn links_make_groups_and_a_switch_makes_one() {
    let to = |at: u32, switch| LinkTold {
        pci: Some(format!("00000000:{:02X}:00.0", 0x41 + at)),
        switch: Some(switch),
    };
    let cards: Vec<KernelCard> = (0..5).map(listed).collect();
    let groups = |links: &[&[LinkTold]]| {
        let mut inventory = Inventory::default();
        let told = (0..).zip(links).map(|(at, links)| CardTold {
            links: links.to_vec(),
            ..told(at)
        });
        look(&mut inventory, &cards, Some(told.collect()));
        inventory
            .devices()
            .iter()
            .map(|device| device.link)
            .collect::<Vec<_>>()
    };
    // 0–1, 2–3–4 in a chain.
    let pairs = groups(&[
        &[to(1, false)],
        &[to(0, false)],
        &[to(3, false)],
        &[to(2, false), to(4, false)],
        &[to(3, false)],
    ]);
    assert_eq!(pairs, [Some(0), Some(0), Some(2), Some(2), Some(2)]);
    // Switches are no cards; the last card has no link.
    let switch = to(90, true);
    let one = std::slice::from_ref(&switch);
    let switched = groups(&[one, one, one, one, &[]]);
    assert_eq!(switched, [Some(0), Some(0), Some(0), Some(0), None]);
    assert_eq!(groups(&[&[], &[], &[], &[], &[]]), [None; 5]);
}

#[test]
fn partitions_keep_their_order_and_what_is_partitioned_into_nothing_gives_nothing() {
    let part = |word: &str, outer| PartTold {
        uuid: Some(format!("MIG-{outer}")),
        model: Some(format!("NVIDIA H200 MIG {word}")),
        memory: Some(18 * GIB),
        multiprocessors: Some(16),
        instances: Some((outer, 0)),
    };
    let mut inventory = Inventory::default();
    let partition = |parts: Vec<PartTold>| {
        Some(vec![CardTold {
            parts: Some(parts),
            ..told(0)
        }])
    };
    let parts = vec![
        part("1g.18gb", 9),
        part("3g.71gb", 2),
        part("1c.3g.71gb", 5),
    ];
    assert_eq!(
        look(&mut inventory, &[listed(0)], partition(parts)),
        ["well"]
    );
    let device = inventory.devices().remove(0);
    let words: Vec<String> = device
        .mig
        .iter()
        .map(|part| part.profile.to_string())
        .collect();
    assert_eq!(words, ["3g.71gb", "1g.18gb"]);
    let real = inventory.real().remove(0);
    let parts: Vec<_> = real
        .parts
        .iter()
        .map(|part| (part.number, part.gpu_instance))
        .collect();
    assert_eq!(parts, [(0, 2), (1, 9)]);
    assert_eq!(real.parts[1].uuid, "MIG-9");
    assert_eq!(
        look(&mut inventory, &[listed(0)], partition(Vec::new())),
        ["failing"]
    );
    assert_eq!(
        look(&mut inventory, &[listed(0)], Some(vec![told(0)])),
        ["well"]
    );
    assert!(!inventory.devices()[0].is_partitioned());
}

#[test]
fn multiprocessors_are_counted_by_generation() {
    for (cores, ability, count) in [
        (16_896, (9, 0), Some(132)),
        (6_912, (8, 0), Some(108)),
        (18_176, (8, 9), Some(142)),
        (2_560, (7, 5), Some(40)),
        (5_120, (7, 0), Some(80)),
        (3_584, (6, 0), Some(56)),
        (1, (99, 0), None),
    ] {
        assert_eq!(multiprocessors((cores, ability)), count, "{ability:?}");
    }
    assert_eq!(place("00000000:C1:00.0"), "0000:c1:00.0");
    assert_eq!(place("00010000:C1:00.0"), "10000:c1:00.0");
    assert_eq!(place("nonsense"), "nonsense");
}
