//! The part of the launch form that asks for a GPU: the handle of the share, sizes with a name, memory set
//! apart from the share, and partitions where devices are cut. Decides nothing; what is typed is checked
//! where every other launch is.

use std::collections::BTreeMap;

use api::gpus::{Gpu, Gpus};
use rules::devices::{MigProfile, WHOLE};
use rules::policy::SharePolicy;
use rules::resources::Demand;
use rules::units::{Bytes, GpuShare};

use super::super::{components, gpus};
use super::{LaunchForm, Slider};
use crate::doors::text::Text;

/// What the form shows of devices; it has no such part where no machine has one.
pub struct GpuPicker {
    /// None where every device is cut into partitions.
    pub share: Option<Slider>,
    /// The largest device, in GiB and multiprocessors, for the text while the user types.
    pub gib: String,
    pub sms: u32,
    /// What stands under the name while no share is typed.
    pub idle: String,
    /// What a typed share is of the largest device; empty where none can be read.
    pub now: String,
    pub sizes: Vec<NamedShare>,
    /// Memory of the fraction, as it was typed.
    pub memory: String,
    /// Empty where no device is cut.
    pub partitions: Vec<PartitionChoice>,
    pub simulated: bool,
}

/// A share with a name.
pub struct NamedShare {
    /// As the box takes it; `0` empties it.
    pub value: String,
    pub name: String,
    pub note: String,
    pub chosen: bool,
}

/// A profile that devices here are cut into; the empty value is none.
pub struct PartitionChoice {
    pub value: String,
    pub name: String,
    pub note: String,
    pub chosen: bool,
}

/// Sizes that are offered where the rules give them and the machine has them, in hundredths.
const SIZES: &[(u32, &str)] = &[
    (10, "0.1"),
    (25, "0.25"),
    (50, "0.5"),
    (100, "1"),
    (200, "2"),
    (400, "4"),
    (800, "8"),
];

/// The part of the form for these devices; none where there is none.
pub(super) fn card(t: Text, all: &Gpus, sent: &LaunchForm) -> Option<GpuPicker> {
    let largest = all.items.iter().max_by_key(|gpu| gpu.memory)?;
    let whole: Vec<&Gpu> = all
        .items
        .iter()
        .filter(|gpu| gpu.partitions.is_empty())
        .collect();
    let free = whole.iter().map(|gpu| gpu.share_free).max();
    let typed = GpuShare::parse(&sent.gpu)
        .ok()
        .filter(|share| *share > GpuShare::ZERO);
    Some(GpuPicker {
        share: free.map(|_| slider(t, &whole, sent)),
        sms: largest.sms,
        idle: free.map_or_else(String::new, |free| t.gpu_share_free(gpus::share(free))),
        now: typed.map_or_else(String::new, |share| worth(t, largest, share)),
        gib: gib(largest.memory),
        sizes: sizes(t, &all.policy, &whole, typed),
        memory: sent.gpu_memory.clone(),
        partitions: partitions(t, &all.items, sent.mig.trim()),
        simulated: all.simulated,
    })
}

/// Memory in GiB, as the page's script calculates with it.
pub fn gib(memory: Bytes) -> String {
    format!("{:.2}", memory.0 as f64 / f64::from(1 << 30))
}

/// `28 GiB, 46 of 132 SMs`: what a share is of one such device, or of several.
pub fn worth(t: Text, gpu: &Gpu, share: GpuShare) -> String {
    let devices = share.0.div_ceil(WHOLE.0).max(1);
    let memory = u128::from(gpu.memory.0) * u128::from(share.0) / 100;
    let tenths = (memory * 10) >> 30;
    let memory = match (tenths / 10, tenths % 10) {
        (gib, 0) => gib.to_string(),
        (gib, tenth) => format!("{gib}.{tenth}"),
    };
    let sms = u64::from(gpu.sms) * u64::from(share.0) / 100;
    t.gpu_share_is(memory, sms, u64::from(gpu.sms) * u64::from(devices))
}

/// How many devices the machine has that has most of them.
fn most(whole: &[&Gpu]) -> usize {
    let on = |gpu: &&Gpu| whole.iter().filter(|other| other.node == gpu.node).count();
    whole.iter().map(on).max().unwrap_or_default()
}

fn slider(t: Text, whole: &[&Gpu], sent: &LaunchForm) -> Slider {
    let value = sent.gpu.trim().parse::<f64>().unwrap_or(0.0);
    // One device is the usual case and gets the whole handle; more are typed, or picked below.
    let most = if value > 1.0 { most(whole) } else { 1 };
    Slider {
        name: "gpu",
        title: t.gpu_share(),
        note: String::new(),
        unit: "GPU",
        least: "0".into(),
        most: most.to_string(),
        step: if most > 1 {
            "0.1".into()
        } else {
            "0.01".into()
        },
        value: value.min(most as f64).to_string(),
        typed: sent.gpu.clone(),
    }
}

fn sizes(
    t: Text,
    policy: &SharePolicy,
    whole: &[&Gpu],
    typed: Option<GpuShare>,
) -> Vec<NamedShare> {
    let Some(largest) = whole.iter().max_by_key(|gpu| gpu.memory) else {
        return Vec::new();
    };
    let most = most(whole);
    let given = |share: GpuShare| {
        let demand = Demand {
            gpu: share,
            ..Demand::default()
        };
        share.0.div_ceil(WHOLE.0) as usize <= most
            && largest.least.is_some_and(|least| share >= least)
            && policy.check(&demand).is_ok()
    };
    let none = NamedShare {
        value: "0".into(),
        name: t.gpu_size_none().to_owned(),
        note: String::new(),
        chosen: typed.is_none(),
    };
    let named = SIZES.iter().map(|(hundredths, name)| {
        let share = GpuShare(*hundredths);
        let memory = u128::from(largest.memory.0) * u128::from(share.0) / 100;
        // Whole devices need no words: everybody sees how many there are.
        let note = match share < WHOLE {
            true => components::size(u64::try_from(memory).unwrap_or(u64::MAX)),
            false => String::new(),
        };
        NamedShare {
            value: share.to_string(),
            name: (*name).to_owned(),
            note,
            chosen: typed == Some(share),
        }
    });
    let offered = SIZES.iter().zip(named);
    let offered = offered.filter(|((hundredths, _), _)| given(GpuShare(*hundredths)));
    [none]
        .into_iter()
        .chain(offered.map(|(_, size)| size))
        .collect()
}

fn partitions(t: Text, all: &[Gpu], typed: &str) -> Vec<PartitionChoice> {
    let mut partitions: BTreeMap<MigProfile, (usize, usize)> = BTreeMap::new();
    for gpu in all {
        for part in &gpu.partitions {
            let (free, number) = partitions.entry(part.profile).or_default();
            *number += 1;
            *free += usize::from(!part.taken && !gpu.cordoned && gpu.answers);
        }
    }
    if partitions.is_empty() && typed.is_empty() {
        return Vec::new();
    }
    let none = PartitionChoice {
        value: String::new(),
        name: t.gpu_partition_none().to_owned(),
        note: String::new(),
        chosen: typed.is_empty(),
    };
    let mut list = vec![none];
    // What a duplicate asks for stays in the form, so that the refusal stands beside it.
    if !typed.is_empty()
        && !partitions
            .keys()
            .any(|profile| profile.to_string() == typed)
    {
        list.push(PartitionChoice {
            value: typed.to_owned(),
            name: typed.to_owned(),
            note: t.gpu_partition_free(0, 0),
            chosen: true,
        });
    }
    list.extend(
        partitions
            .into_iter()
            .map(|(profile, (free, number))| PartitionChoice {
                value: profile.to_string(),
                name: profile.to_string(),
                note: t.gpu_partition_free(free, number),
                chosen: profile.to_string() == typed,
            }),
    );
    list
}

#[cfg(test)]
mod tests {
    use api::gpus::Partition;
    use rules::devices::{Health, MigPart};
    use rules::names::NodeId;
    use rules::placement::explain::{Explanation, Verdict};
    use rules::resources::{Device, DeviceShare};
    use rules::units::{CpuShare, Timestamp};
    use server::actions::sessions::NodeOverview;

    use super::super::super::components::BlockKind;
    use super::super::There;
    use super::*;

    fn gpu(index: u32, partitioned: &[&str]) -> Gpu {
        let part = |profile: &&str| Partition {
            id: format!("MIG-{profile}"),
            profile: MigProfile::parse(profile).expect("a profile"),
            memory: Bytes::gib(10),
            sms: 16,
            taken: *profile == "1g.10gb",
        };
        Gpu {
            id: format!("GPU-{index}"),
            index,
            node: NodeId(uuid::Uuid::nil()),
            node_name: "box".into(),
            model: "NVIDIA H100 80GB".into(),
            memory: Bytes::gib(80),
            sms: 132,
            numa: None,
            link: None,
            health: Health::Well,
            driver: String::new(),
            hold: rules::devices::Hold::Nobody,
            self_test: rules::self_test::SelfTestStatus::None,
            self_tested_at: None,
            answers: true,
            simulated: true,
            cordoned: false,
            note: String::new(),
            changed_at: None,
            changed_by: None,
            share_used: GpuShare::ZERO,
            memory_used: Bytes::ZERO,
            share_free: GpuShare(100),
            memory_free: Bytes::gib(80),
            least: Some(GpuShare(1)),
            doing: None,
            profiles: Vec::new(),
            planned: None,
            partitions: partitioned.iter().map(part).collect(),
            slices: Vec::new(),
        }
    }

    fn shown(items: Vec<Gpu>, policy: SharePolicy, typed: &str) -> Option<GpuPicker> {
        let all = Gpus {
            items,
            others: Vec::new(),
            policy,
            context_overhead: Bytes::mib(512),
            simulated: true,
        };
        let sent = LaunchForm {
            gpu: typed.into(),
            ..LaunchForm::default()
        };
        card(Text::default(), &all, &sent)
    }

    #[test]
    fn a_share_is_told_in_memory_and_multiprocessors_before_any_script_runs() {
        for (typed, words) in [
            ("0.35", "28 GiB, 46 of 132 SMs"),
            ("2.5", "200 GiB, 330 of 396 SMs"),
            ("", ""),
            ("0", ""),
            ("NaN", ""),
        ] {
            let card = shown(vec![gpu(0, &[])], SharePolicy::default(), typed).expect("a card");
            assert_eq!(card.now, words, "{typed}");
        }
    }

    #[test]
    fn only_sizes_that_the_rules_give_and_the_machine_has_are_offered() {
        let names =
            |card: GpuPicker| -> Vec<String> { card.sizes.into_iter().map(|s| s.name).collect() };
        let two = || vec![gpu(0, &[]), gpu(1, &[])];
        let free = shown(two(), SharePolicy::default(), "").expect("a card");
        assert_eq!(names(free), ["None", "0.1", "0.25", "0.5", "1", "2"]);
        let halves = SharePolicy {
            least: GpuShare(50),
            step: GpuShare(50),
            each: Some(GpuShare(100)),
            ..SharePolicy::default()
        };
        let strict = shown(two(), halves, "").expect("a card");
        assert_eq!(names(strict), ["None", "0.5", "1"]);
    }

    #[test]
    fn partitions_are_offered_where_devices_are_partitioned_and_shares_where_they_are_not() {
        let partitioned = gpu(0, &["1g.10gb", "3g.40gb"]);
        let both = shown(
            vec![partitioned.clone(), gpu(1, &[])],
            SharePolicy::default(),
            "",
        )
        .expect("a card");
        let notes: Vec<(String, String)> = both
            .partitions
            .into_iter()
            .map(|p| (p.value, p.note))
            .collect();
        assert_eq!(
            notes,
            [
                (String::new(), String::new()),
                ("1g.10gb".into(), "0 of 1 free".into()),
                ("3g.40gb".into(), "1 of 1 free".into()),
            ]
        );
        assert!(both.share.is_some());
        let only = shown(vec![partitioned], SharePolicy::default(), "").expect("a card");
        assert!(only.share.is_none() && only.sizes.is_empty());
        assert!(shown(Vec::new(), SharePolicy::default(), "").is_none());
    }

    fn node(gpus: &[Gpu]) -> NodeOverview {
        let device = |gpu: &Gpu| Device {
            memory: gpu.memory,
            sms: gpu.sms,
            mig: gpu
                .partitions
                .iter()
                .map(|part| MigPart {
                    uuid: part.id.clone(),
                    profile: part.profile,
                    memory: part.memory,
                    sms: part.sms,
                })
                .collect(),
            ..Device::new(gpu.index, "H100")
        };
        NodeOverview {
            id: NodeId(uuid::Uuid::nil()),
            name: "box".into(),
            seen_at: Timestamp::default(),
            silent: false,
            schedulable: true,
            host_environment: true,
            problems: Vec::new(),
            cpu: CpuShare(1600),
            cpu_room: CpuShare(1600),
            cpu_used: CpuShare(0),
            cpu_busy: None,
            memory: Bytes::gib(64),
            memory_used: Bytes::ZERO,
            memory_busy: None,
            devices: gpus.iter().map(device).collect(),
            cordoned: Default::default(),
            slices: Vec::new(),
        }
    }

    fn answer(verdict: Verdict, devices: Vec<DeviceShare>) -> Explanation {
        Explanation {
            verdict,
            sentence: String::new(),
            eta: None,
            outlook: None,
            likely: None,
            replicas: None,
            node: Some("box".into()),
            devices,
            reason: None,
            queue_position: None,
            blockers: Vec::new(),
            checks: Vec::new(),
            alternatives: Vec::new(),
            rooms: Vec::new(),
            simulated: true,
        }
    }

    #[test]
    fn what_is_left_beside_a_share_is_what_its_row_says() {
        let gpus = [gpu(0, &[])];
        let there = There {
            policy: SharePolicy::default(),
            machines: &[node(&gpus)],
            devices: &gpus,
        };
        let part = DeviceShare {
            index: 0,
            share: GpuShare(25),
            memory: Bytes::gib(20),
            part: None,
            simulated: true,
        };
        let demand = Demand {
            gpu: GpuShare(25),
            ..Demand::default()
        };
        let answer = answer(Verdict::Now, vec![part]);
        let rows = there.rows(Text::default(), Some(&answer), &demand, Vec::new());
        let drawn: Vec<(BlockKind, u64)> = rows[0]
            .blocks
            .iter()
            .map(|block| (block.kind, block.weight))
            .collect();
        assert_eq!(drawn, [(BlockKind::Ghost, 25), (BlockKind::Free, 75)]);
        assert_eq!(rows[0].left, "0.75");
    }

    #[test]
    fn a_request_that_waits_for_a_partition_is_drawn_on_a_device_that_has_one() {
        let gpus = [gpu(0, &[]), gpu(1, &["1g.10gb", "3g.40gb"])];
        let there = There {
            policy: SharePolicy::default(),
            machines: &[node(&gpus)],
            devices: &gpus,
        };
        let demand = Demand {
            mig: MigProfile::parse("1g.10gb").ok(),
            ..Demand::default()
        };
        let answer = answer(Verdict::Wait, Vec::new());
        let rows = there.rows(Text::default(), Some(&answer), &demand, Vec::new());
        let needed: Vec<Vec<(String, u64)>> = rows
            .iter()
            .map(|row| {
                let needed = row.blocks.iter();
                needed
                    .filter(|block| block.kind == BlockKind::Needed)
                    .map(|block| (block.name.clone(), block.weight))
                    .collect()
            })
            .collect();
        let words = "would need 1g.10gb".to_owned();
        assert_eq!(needed, [vec![], vec![(words, 10 << 10)]]);
        assert!(rows[1].hit && !rows[0].hit);
    }

    #[test]
    fn a_request_that_waits_is_drawn_where_it_lacks_room_and_nowhere_else() {
        let full = Gpu {
            share_free: GpuShare::ZERO,
            ..gpu(0, &[])
        };
        let gpus = [full, gpu(1, &[])];
        let there = There {
            policy: SharePolicy::default(),
            machines: &[node(&gpus)],
            devices: &gpus,
        };
        let answer = answer(Verdict::Wait, Vec::new());
        for (hundredths, lacking) in [(100, 0), (200, 1)] {
            let demand = Demand {
                gpu: GpuShare(hundredths),
                ..Demand::default()
            };
            let rows = there.rows(Text::default(), Some(&answer), &demand, Vec::new());
            let lacks = rows.iter().filter(|row| row.hit).count();
            assert_eq!(lacks, lacking, "{hundredths}");
        }
    }
}
