//! Partitions a device into hardware partitions: which profiles its maker gives it, whether a wish fits, what it
//! comes to, and whom it ends. Pure; cuts nothing. The geometry is the maker's published one (eight slices of
//! memory and seven of compute, or four of both; fixed places for each size) and is not yet run on hardware.

use std::collections::BTreeMap;

use crate::devices::{MigPart, MigProfile};
use crate::names::SessionId;
use crate::refusal::Refusal;
use crate::refusals;
use crate::resources::Device;
use crate::session::{DesiredState, Session, SessionKind};
use crate::units::Bytes;

/// Parts of a device's memory in which places are told. A card of four slices counts two for each.
pub const MEMORY_SLICES: u8 = 8;
/// Partitions of one device at most.
pub const MAX_PARTS: usize = 7;

/// One size in the maker's table: slices of compute, eighths of the memory, where it may begin, and whether
/// there is one with the media engines. A card has one set of those.
struct ProfileSize {
    compute: u8,
    memory: u8,
    starts: &'static [u8],
    media: bool,
}

const fn size(compute: u8, memory: u8, starts: &'static [u8], media: bool) -> ProfileSize {
    ProfileSize {
        compute,
        memory,
        starts,
        media,
    }
}

/// Cards that are cut alike.
struct CardFamily {
    /// Words of their models; cards of the same memory that cannot be cut are many.
    models: &'static [&'static str],
    /// Slices of compute that can be given, and what one of them is of the card's multiprocessors.
    compute: u8,
    one_of: u32,
    /// Smallest first, as people read them.
    sizes: &'static [ProfileSize],
    /// Names that the maker gives to one, two, four and eight eighths of memory, by what the card has in all.
    names: &'static [(u64, [u16; 4])],
}

const KINDS: [CardFamily; 2] = [
    CardFamily {
        models: &[
            "A100", "H100", "H200", "H20", "H800", "GH200", "B200", "GB200", "B300", "GB300",
        ],
        compute: 7,
        one_of: 8,
        sizes: &[
            size(1, 1, &[0, 1, 2, 3, 4, 5, 6], true),
            size(1, 2, &[0, 2, 4, 6], false),
            size(2, 2, &[0, 2, 4], false),
            size(3, 4, &[0, 4], false),
            size(4, 4, &[0], false),
            size(7, 8, &[0], false),
        ],
        names: &[
            (40, [5, 10, 20, 40]),
            (80, [10, 20, 40, 80]),
            (94, [12, 24, 47, 94]),
            (96, [12, 24, 48, 96]),
            (141, [18, 35, 71, 141]),
            (180, [23, 45, 90, 180]),
            (269, [34, 67, 135, 269]),
        ],
    },
    CardFamily {
        models: &["A30"],
        compute: 4,
        one_of: 4,
        sizes: &[
            size(1, 2, &[0, 2, 4, 6], true),
            size(2, 4, &[0, 4], true),
            size(4, 8, &[0], false),
        ],
        names: &[(24, [0, 6, 12, 24])],
    },
];

/// What a cut comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionPlan {
    /// The partitions, in the order of their places; empty where the device is to be whole again.
    pub parts: Vec<MigPart>,
    /// Where each begins, in slices of memory, and how many it takes.
    pub places: Vec<(u8, u8)>,
    /// Sessions that have any of the device: a device is cut only when nothing runs on it.
    pub ends: Vec<SessionId>,
    /// Of these, those that wait for another device afterwards.
    pub requeued: Vec<SessionId>,
}

/// The profiles that a device can be cut into, smallest first; empty where it cannot be cut, or where its
/// maker's table is not known here.
pub fn profiles(device: &Device) -> Vec<MigProfile> {
    let known = known(device).into_iter();
    known.map(|(profile, _)| profile).collect()
}

/// The same with the size that each of them is.
fn known(device: &Device) -> Vec<(MigProfile, &'static ProfileSize)> {
    let Some((kind, names)) = kind(device) else {
        return Vec::new();
    };
    let named = |size: &'static ProfileSize, media: bool| {
        let profile = MigProfile {
            compute: size.compute,
            gigabytes: names[usize::from(size.memory.ilog2() as u8)],
            media,
        };
        (profile, size)
    };
    let mut all = Vec::new();
    for size in kind.sizes {
        all.push(named(size, false));
        all.extend(size.media.then(|| named(size, true)));
    }
    all
}

/// How cards of its kind are cut, and the names of this one's sizes.
fn kind(device: &Device) -> Option<(&'static CardFamily, &'static [u16; 4])> {
    let words = || device.model.split(|c: char| !c.is_ascii_alphanumeric());
    let kind = KINDS
        .iter()
        .find(|kind| words().any(|word| kind.models.contains(&word)))?;
    // A card's own figure is some hundred MiB beside its name.
    let gib = device.memory.0 as f64 / f64::from(1 << 30);
    let near = |whole: u64| (gib - whole as f64).abs() <= whole as f64 * 0.05;
    kind.names
        .iter()
        .filter(|(whole, _)| near(*whole))
        .min_by_key(|(whole, _)| ((gib - *whole as f64).abs() * 1000.0) as u64)
        .map(|(_, names)| (kind, names))
}

/// What partitioning a device so would come to, and whom it would end; no profile makes it whole again.
///
/// Errors: `gpu.cannot-partition`, `gpu.no-such-profile`, `gpu.partitions-too-large`, each with what would work.
/// `sessions` are those that have a part of the device.
pub fn plan<'a>(
    device: &Device,
    wanted: &[MigProfile],
    sessions: impl IntoIterator<Item = &'a Session>,
) -> Result<PartitionPlan, Refusal> {
    let sizes = known(device);
    let known = profiles(device);
    if known.is_empty() {
        return Err(refusals::gpu_cannot_partition(&device.model));
    }
    if let Some(strange) = wanted.iter().find(|profile| !known.contains(profile)) {
        return Err(refusals::gpu_no_such_profile(
            &device.model,
            strange,
            listed(&known),
            counted(&known).join(", "),
        )
        .at("/profiles"));
    }
    let Some(placed) = places(wanted, &sizes) else {
        let mut fewer = wanted.to_vec();
        while !fewer.is_empty() && places(&fewer, &sizes).is_none() {
            fewer.pop();
        }
        return Err(refusals::gpu_partitions_too_large(
            listed(wanted),
            listed(&fewer),
            counted(wanted).join(", "),
            counted(&fewer).join(", "),
        )
        .at("/profiles"));
    };
    let mut ends = Vec::new();
    let mut requeued = Vec::new();
    for session in sessions {
        ends.push(session.id);
        if session.spec.kind == SessionKind::Batch && session.desired == DesiredState::Run {
            requeued.push(session.id);
        }
    }
    let profiles: Vec<MigProfile> = placed.iter().map(|(profile, _)| *profile).collect();
    Ok(PartitionPlan {
        parts: parts(device, &profiles),
        places: placed.into_iter().map(|(_, place)| place).collect(),
        ends,
        requeued,
    })
}

/// The partitions of a device that is cut so, with names made from its own.
pub fn parts(device: &Device, profiles: &[MigProfile]) -> Vec<MigPart> {
    // What is simulated may be called anything; most cards are of the first kind.
    let kind = kind(device).map_or(&KINDS[0], |(kind, _)| kind);
    (0..)
        .zip(profiles)
        .map(|(number, profile): (u32, _)| MigPart {
            uuid: format!("{}-MIG-{number}", device.uuid),
            profile: *profile,
            memory: Bytes::gib(u64::from(profile.gigabytes)),
            sms: match profile.compute {
                all if all == kind.compute => device.sms,
                compute => device.sms / kind.one_of * u32::from(compute),
            },
        })
        .collect()
}

/// Whether both are the same partitions, in any order.
pub fn same(a: &[MigProfile], b: &[MigProfile]) -> bool {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    a.sort_unstable();
    b.sort_unstable();
    a == b
}

/// What an administrator types on the machine to cut a device so, in this order, where the machine cannot do
/// it by itself.
pub fn commands(device: &Device, wanted: &[MigProfile]) -> Vec<String> {
    let at = format!("-i {}", device.uuid);
    let mut all = Vec::new();
    if device.is_partitioned() {
        all.push(format!("nvidia-smi mig {at} -dci"));
        all.push(format!("nvidia-smi mig {at} -dgi"));
    } else if !wanted.is_empty() {
        all.push(format!("nvidia-smi {at} -mig 1"));
    }
    if wanted.is_empty() {
        all.push(format!("nvidia-smi {at} -mig 0"));
    } else {
        let names: Vec<String> = wanted.iter().map(MigProfile::to_string).collect();
        all.push(format!("nvidia-smi mig {at} -cgi {} -C", names.join(",")));
    }
    all
}

/// `3g.40gb, 2g.20gb and 1g.10gb`, for English sentences.
pub fn listed(profiles: &[MigProfile]) -> String {
    let words = counted(profiles);
    match words.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Each profile once, with its number where there are several: `3 × 1g.10gb`.
pub fn counted(profiles: &[MigProfile]) -> Vec<String> {
    let mut counted: BTreeMap<MigProfile, usize> = BTreeMap::new();
    for profile in profiles {
        *counted.entry(*profile).or_default() += 1;
    }
    counted
        .into_iter()
        .map(|(profile, number)| match number {
            1 => profile.to_string(),
            n => format!("{n} × {profile}"),
        })
        .collect()
}

type Placed = Vec<(MigProfile, (u8, u8))>;

/// A place for each, none over another; None where there is none. At most seven are placed, each at one of
/// at most seven places, largest first, so the search is short.
fn places(wanted: &[MigProfile], known: &[(MigProfile, &'static ProfileSize)]) -> Option<Placed> {
    let with_media = wanted.iter().filter(|profile| profile.media).count();
    if wanted.len() > MAX_PARTS || with_media > 1 {
        return None;
    }
    let mut order: Vec<(&ProfileSize, MigProfile)> = wanted
        .iter()
        .filter_map(|profile| {
            let (_, size) = known.iter().find(|(known, _)| known == profile)?;
            Some((*size, *profile))
        })
        .collect();
    order.sort_by_key(|(size, profile)| (std::cmp::Reverse((size.memory, size.compute)), *profile));
    let mut placed = Vec::new();
    let compute: u32 = order.iter().map(|(size, _)| u32::from(size.compute)).sum();
    if compute > 7 || !place(&order, 0, &mut placed) {
        return None;
    }
    placed.sort_by_key(|(_, (start, _))| *start);
    Some(placed)
}

fn place(order: &[(&ProfileSize, MigProfile)], taken: u16, placed: &mut Placed) -> bool {
    let Some(((size, profile), rest)) = order.split_first() else {
        return true;
    };
    for start in size.starts {
        let bits = ((1_u16 << size.memory) - 1) << start;
        if taken & bits == 0 {
            placed.push((*profile, (*start, size.memory)));
            if place(rest, taken | bits, placed) {
                return true;
            }
            placed.pop();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(model: &str, gib: u64) -> Device {
        Device {
            memory: Bytes::gib(gib),
            sms: 132,
            uuid: "GPU-1".into(),
            ..Device::new(3, model)
        }
    }

    fn request(text: &str) -> Vec<MigProfile> {
        text.split_whitespace()
            .map(|word| MigProfile::parse(word).expect("a profile"))
            .collect()
    }

    fn check(text: &str) -> Result<String, Refusal> {
        placed(&card("NVIDIA H100 80GB", 80), text)
    }

    fn placed(card: &Device, text: &str) -> Result<String, Refusal> {
        let plan = plan(card, &request(text), [])?;
        let words: Vec<String> = plan
            .parts
            .iter()
            .zip(&plan.places)
            .map(|(part, (start, slices))| format!("{}@{start}+{slices}", part.profile))
            .collect();
        Ok(words.join(" "))
    }

    #[test]
    fn every_model_has_its_makers_own_names() {
        for (model, gib, names) in [
            (
                "NVIDIA A100-SXM4-40GB",
                40,
                "1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb and 7g.40gb",
            ),
            (
                "NVIDIA H100 80GB HBM3",
                80,
                "1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb and 7g.80gb",
            ),
            (
                "NVIDIA H200",
                141,
                "1g.18gb, 1g.18gb+me, 1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb and 7g.141gb",
            ),
            (
                "NVIDIA B200",
                180,
                "1g.23gb, 1g.23gb+me, 1g.45gb, 2g.45gb, 3g.90gb, 4g.90gb and 7g.180gb",
            ),
            (
                "NVIDIA B300 SXM6 AC",
                269,
                "1g.34gb, 1g.34gb+me, 1g.67gb, 2g.67gb, 3g.135gb, 4g.135gb and 7g.269gb",
            ),
            (
                "NVIDIA A30",
                24,
                "1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me and 4g.24gb",
            ),
            ("NVIDIA L4", 24, "nothing"),
            ("NVIDIA RTX 5880", 80, "nothing"),
            ("NVIDIA H100", 11, "nothing"),
        ] {
            assert_eq!(listed(&profiles(&card(model, gib))), names, "{model}");
        }
        let own_figure = Device {
            memory: Bytes::mib(143_771),
            ..card("NVIDIA H200", 0)
        };
        assert_eq!(
            profiles(&own_figure).len(),
            7,
            "a card's own figure is not its name"
        );
    }

    #[test]
    fn partitions_get_the_makers_places_and_never_overlap() {
        for (wanted, placed) in [
            ("", ""),
            ("7g.80gb", "7g.80gb@0+8"),
            (
                "1g.10gb 2g.20gb 3g.40gb",
                "3g.40gb@0+4 2g.20gb@4+2 1g.10gb@6+1",
            ),
            ("3g.40gb 3g.40gb", "3g.40gb@0+4 3g.40gb@4+4"),
            ("3g.40gb 4g.40gb", "4g.40gb@0+4 3g.40gb@4+4"),
            (
                "1g.20gb 1g.20gb 1g.20gb 1g.20gb",
                "1g.20gb@0+2 1g.20gb@2+2 1g.20gb@4+2 1g.20gb@6+2",
            ),
        ] {
            assert_eq!(check(wanted).as_deref(), Ok(placed), "{wanted}");
        }
        let media = check("1g.10gb+me 3g.40gb").expect("one with media fits");
        assert_eq!(media, "3g.40gb@0+4 1g.10gb+me@4+1");
        let a30 = Device {
            sms: 56,
            ..card("NVIDIA A30", 24)
        };
        for (wanted, there) in [
            ("4g.24gb", "4g.24gb@0+8"),
            (
                "2g.12gb 1g.6gb+me 1g.6gb",
                "2g.12gb@0+4 1g.6gb@4+2 1g.6gb+me@6+2",
            ),
            (
                "1g.6gb 1g.6gb 1g.6gb 1g.6gb",
                "1g.6gb@0+2 1g.6gb@2+2 1g.6gb@4+2 1g.6gb@6+2",
            ),
        ] {
            assert_eq!(placed(&a30, wanted).as_deref(), Ok(there), "{wanted}");
        }
        // The media engines are one set; one partition of any size has them.
        for wanted in ["1g.6gb+me 2g.12gb+me", "2g.12gb 2g.12gb 1g.6gb"] {
            let refused = placed(&a30, wanted).expect_err(wanted);
            assert_eq!(refused.code, "gpu.partitions-too-large", "{wanted}");
        }
        let quarter = &parts(&a30, &request("1g.6gb"))[0];
        assert_eq!((quarter.memory, quarter.sms), (Bytes::gib(6), 14));
        let seven = check(&"1g.10gb ".repeat(7)).expect("seven fit");
        assert_eq!(seven.split(' ').count(), 7);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        for (wanted, code, works) in [
            (
                "4g.40gb 4g.40gb",
                "gpu.partitions-too-large",
                "Use 4g.40gb.",
            ),
            (
                "3g.40gb 3g.40gb 1g.10gb",
                "gpu.partitions-too-large",
                "Use 2 × 3g.40gb.",
            ),
            ("1g.18gb", "gpu.no-such-profile", "and 7g.80gb."),
            ("2g.20gb+me", "gpu.no-such-profile", "1g.10gb+me"),
            (
                "1g.10gb+me 1g.10gb+me",
                "gpu.partitions-too-large",
                "Use 1g.10gb+me.",
            ),
        ] {
            let refusal = check(wanted).expect_err(wanted);
            assert_eq!(refusal.code, code, "{wanted}");
            assert!(refusal.hint.contains(works), "{wanted}: {}", refusal.hint);
        }
        let eight = check(&"1g.10gb ".repeat(8)).expect_err("eight");
        assert_eq!(eight.hint, "Use 7 × 1g.10gb.");
        let none = plan(&card("NVIDIA T4", 16), &request("1g.5gb"), []).expect_err("no such card");
        assert_eq!(none.code, "gpu.cannot-partition");
    }

    /// What is taken adds up to no more than the card has.
    #[test]
    fn no_partitioning_is_larger_than_the_card() {
        for device in [card("NVIDIA H100 80GB", 80), card("NVIDIA A30", 24)] {
            whatever_is_taken_fits(&device);
        }
    }

    fn whatever_is_taken_fits(device: &Device) {
        let known = profiles(device);
        for mut seed in 0..40_000_u32 {
            let mut wanted = Vec::new();
            while seed > 0 {
                let digit = seed as usize % (known.len() + 1);
                wanted.extend(known.get(digit));
                seed /= known.len() as u32 + 1;
            }
            if let Ok(plan) = plan(device, &wanted, []) {
                let memory: u64 = plan.parts.iter().map(|part| part.memory.0).sum();
                let sms: u32 = plan.parts.iter().map(|part| part.sms).sum();
                let mut taken = 0_u16;
                for (start, slices) in &plan.places {
                    let bits = ((1_u16 << slices) - 1) << start;
                    assert_eq!(taken & bits, 0, "{wanted:?} overlap");
                    taken |= bits;
                }
                assert!(memory <= device.memory.0 && sms <= device.sms, "{wanted:?}");
                assert_eq!(plan.parts.len(), wanted.len(), "{wanted:?} lost one");
            }
        }
    }

    #[test]
    fn the_administrators_commands_undo_the_old_partitions_first() {
        let mut device = card("NVIDIA H100 80GB", 80);
        assert_eq!(
            commands(&device, &request("3g.40gb 1g.10gb")),
            [
                "nvidia-smi -i GPU-1 -mig 1",
                "nvidia-smi mig -i GPU-1 -cgi 3g.40gb,1g.10gb -C"
            ]
        );
        device.mig = parts(&device, &request("7g.80gb"));
        assert_eq!(
            commands(&device, &[]),
            [
                "nvidia-smi mig -i GPU-1 -dci",
                "nvidia-smi mig -i GPU-1 -dgi",
                "nvidia-smi -i GPU-1 -mig 0"
            ]
        );
    }
}
