//! Devices that do not exist, for demonstrations on machines without any: made from text such as
//! `H100:8`, reported like real ones, each marked as simulated. Never touches hardware, and never gives a
//! session anything: what is marked as simulated has no device node. What such a share is said to do is
//! made up from its session's id and the time that it has run, so that pages have something to show.

use rules::devices::{MigPart, MigProfile};
use rules::names::ContainerName;
use rules::reason::Reason;
use rules::reasons;
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::{Device, DeviceShare};
use rules::units::Bytes;

/// Devices of one machine at most; the largest machines have 16.
const MAX_SIMULATED: usize = 16;

/// What is known of a model: its name, how it is called in short, memory, multiprocessors, whether its
/// devices are linked to each other.
struct SimulatedModel {
    word: &'static str,
    name: &'static str,
    memory: Bytes,
    sms: u32,
    linked: bool,
}

const MODELS: &[SimulatedModel] = &[
    model("B200", "NVIDIA B200", 180, 148, true),
    model("H200", "NVIDIA H200", 141, 132, true),
    model("H100", "NVIDIA H100 80GB", 80, 132, true),
    model("A100", "NVIDIA A100 80GB", 80, 108, true),
    model("A100-40", "NVIDIA A100 40GB", 40, 108, true),
    model("V100", "NVIDIA V100 32GB", 32, 80, true),
    model("L40S", "NVIDIA L40S", 48, 142, false),
    model("L4", "NVIDIA L4", 24, 58, false),
    model("T4", "NVIDIA T4", 16, 40, false),
    model("RTX4090", "NVIDIA GeForce RTX 4090", 24, 128, false),
    model("RTX5090", "NVIDIA GeForce RTX 5090", 32, 170, false),
];

const fn model(
    word: &'static str,
    name: &'static str,
    gib: u64,
    sms: u32,
    linked: bool,
) -> SimulatedModel {
    SimulatedModel {
        word,
        name,
        memory: Bytes::gib(gib),
        sms,
        linked,
    }
}

/// Reads `MODEL[:NUMBER][/PROFILE…]`, several parted by commas: `H100:8`, or `H100:7,H100:1/3g.40gb/1g.10gb`
/// for one that is cut into partitions. The first half hangs on socket 0, the rest on socket 1.
///
/// Errors: `gpu.simulation-invalid` with what would work.
pub fn devices(text: &str) -> Result<Vec<Device>, Refusal> {
    let mut wanted: Vec<(&SimulatedModel, Vec<MigProfile>)> = Vec::new();
    for item in text.split(',').map(str::trim) {
        let (item, parts) = match item.split_once('/') {
            Some((item, parts)) => (item, parts.split('/').collect()),
            None => (item, Vec::new()),
        };
        let (word, number) = item.split_once(':').unwrap_or((item, "1"));
        let model = MODELS
            .iter()
            .find(|model| model.word.eq_ignore_ascii_case(word.trim()))
            .ok_or_else(|| unknown(word))?;
        let number = number
            .trim()
            .parse::<usize>()
            .ok()
            .filter(|number| (1..=MAX_SIMULATED).contains(number))
            .ok_or_else(|| {
                wrong(format!(
                    "{:?} is not a number of devices from 1 to {MAX_SIMULATED}.",
                    number
                ))
            })?;
        let parts = parts
            .into_iter()
            .map(MigProfile::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let compute: u32 = parts.iter().map(|profile| u32::from(profile.compute)).sum();
        let memory: u64 = parts
            .iter()
            .map(|profile| u64::from(profile.gigabytes))
            .sum();
        if compute > 7 || Bytes::gib(memory) > model.memory {
            return Err(wrong(format!(
                "{} cannot be partitioned into {compute} compute slices and {memory} GB.",
                model.name
            )));
        }
        wanted.extend((0..number).map(|_| (model, parts.clone())));
    }
    if wanted.len() > MAX_SIMULATED {
        return Err(wrong(format!(
            "{} devices are more than one machine has; {MAX_SIMULATED} is the most.",
            wanted.len()
        )));
    }
    let half = wanted.len().div_ceil(2);
    Ok((0_u32..)
        .zip(wanted)
        .map(|(index, (model, parts))| Device {
            memory: model.memory,
            uuid: format!("SIMULATED-{}-{index}", model.word),
            sms: model.sms,
            numa: Some(u32::from(index as usize >= half)),
            link: model.linked.then_some(0),
            simulated: true,
            mig: (0..)
                .zip(parts)
                .map(|(number, profile)| part(model, index, number, profile))
                .collect(),
            ..Device::new(index, model.name)
        })
        .collect())
}

fn part(model: &SimulatedModel, index: u32, number: u32, profile: MigProfile) -> MigPart {
    let sms = match profile.compute {
        7 => model.sms,
        compute => model.sms / 8 * u32::from(compute),
    };
    MigPart {
        uuid: format!("SIMULATED-MIG-{}-{index}-{number}", model.word),
        profile,
        memory: Bytes::gib(u64::from(profile.gigabytes)),
        sms,
    }
}

/// The shares that a container is really held to: all of them, or none where every one is of a simulated
/// device, which gives nothing.
///
/// Errors: `gpu.simulated-beside-real`, since one session cannot be both.
pub(crate) fn real(devices: &[DeviceShare]) -> Result<&[DeviceShare], Reason> {
    let simulated = devices.iter().filter(|device| device.simulated).count();
    match simulated {
        0 => Ok(devices),
        all if all == devices.len() => Ok(&[]),
        _ => Err(reasons::gpu_simulated_beside_real()),
    }
}

/// Milliseconds after which a made-up session that is to be idle has nothing more to do.
const WARMED_UP: u64 = 45_000;

/// What a share is said to do after so many milliseconds: per cent of the share, 0 to 100, and memory. The
/// same for the same session and moment. Every fourth session is idle after its first 45 seconds.
pub(crate) fn doing(name: ContainerName, share: &DeviceShare, ran: u64) -> (u32, Bytes) {
    let bytes = name.session.0.as_bytes();
    // The last bytes of an id are drawn; the first ones are the time.
    let drawn = bytes[8..].iter().fold(share.index, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    let middle = 35 + drawn % 50;
    let swing = f64::from(middle.min(100 - middle)) * 0.6;
    let turn = |seconds: u32| ran as f64 / 1000.0 / f64::from(seconds) * std::f64::consts::TAU;
    let wave = 0.7 * turn(90 + drawn / 50 % 120).sin() + 0.3 * turn(11 + drawn % 7).sin();
    let is_idle = bytes[15] % 4 == 3 && ran > WARMED_UP;
    let percent = match is_idle {
        true => 0,
        false => (f64::from(middle) + swing * wave).round() as u32,
    };
    let filled = 30 + drawn / 7 % 60;
    // Loaded in the first half minute.
    let loaded = ran.min(30_000);
    let memory = share.memory.0 / 100 * u64::from(filled) / 30_000 * loaded;
    (percent.min(100), Bytes(memory))
}

fn wrong(text: String) -> Refusal {
    refusals::gpu_simulation_invalid(text)
}

fn unknown(word: &str) -> Refusal {
    let shown: String = word.chars().take(40).flat_map(char::escape_debug).collect();
    let words: Vec<&str> = MODELS.iter().map(|model| model.word).collect();
    refusals::gpu_simulation_model_unknown(&shown, words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::units::GpuShare;

    #[test]
    fn eight_cards_are_reported_and_every_one_says_that_it_is_simulated() {
        let devices = devices("H100:8").expect("a good text");
        assert_eq!(devices.len(), 8);
        assert!(devices.iter().all(|d| d.simulated
            && d.uuid.starts_with("SIMULATED-")
            && d.memory == Bytes::gib(80)
            && d.sms == 132
            && d.link == Some(0)));
        let sockets: Vec<_> = devices.iter().filter_map(|d| d.numa).collect();
        assert_eq!(sockets, [0, 0, 0, 0, 1, 1, 1, 1]);
        let names: std::collections::BTreeSet<_> = devices.iter().map(|d| &d.uuid).collect();
        assert_eq!(names.len(), 8, "two devices have one name");
    }

    #[test]
    fn one_of_them_may_be_partitioned() {
        let devices = devices("H100:1, h100:1/3g.40gb/1g.10gb").expect("a good text");
        assert!(!devices[0].is_partitioned());
        let parts: Vec<String> = devices[1]
            .mig
            .iter()
            .map(|p| p.profile.to_string())
            .collect();
        assert_eq!(parts, ["3g.40gb", "1g.10gb"]);
    }

    #[test]
    fn what_is_no_device_is_refused_with_what_would_work() {
        for text in [
            "",
            "H100:0",
            "H100:17",
            "H100:-1",
            "H100:x",
            "H101",
            "H100:9,H100:9",
            "H100/4g.40gb/4g.40gb",
            "T4/7g.80gb",
            "H100/nothing",
        ] {
            let refusal = devices(text).expect_err(text);
            assert!(!refusal.hint.is_empty(), "{text}: {refusal}");
        }
        let number = devices("2").expect_err("a number is no model");
        assert!(number.hint.contains("H100:2"), "{number}");
    }

    #[test]
    fn what_is_made_up_stays_within_its_share_and_some_of_it_is_idle() {
        let share = DeviceShare {
            index: 1,
            share: GpuShare(35),
            memory: Bytes::gib(28),
            part: None,
            simulated: true,
        };
        let (mut idle, mut busy) = (0, 0);
        for number in 0..100_u128 {
            let name = ContainerName {
                session: rules::names::SessionId(uuid::Uuid::from_u128(number * 7_919)),
                incarnation: 1,
                index: 0,
            };
            for ran in (0..600_000).step_by(1_000) {
                let (percent, memory) = doing(name, &share, ran);
                assert!(percent <= 100 && memory <= share.memory, "{number} {ran}");
                assert_eq!(doing(name, &share, ran), (percent, memory));
            }
            match doing(name, &share, 600_000) {
                (0, _) => idle += 1,
                _ => busy += 1,
            }
        }
        assert!(idle > 10 && busy > 50, "{idle} {busy}");
    }

    #[test]
    fn what_is_simulated_gives_nothing_and_stands_beside_no_real_device() {
        let share = |simulated| DeviceShare {
            index: 0,
            share: GpuShare(35),
            memory: Bytes::gib(28),
            part: None,
            simulated,
        };
        assert_eq!(real(&[]), Ok(&[][..]));
        assert_eq!(real(&[share(true), share(true)]), Ok(&[][..]));
        assert_eq!(real(&[share(false)]), Ok(&[share(false)][..]));
        let refused = real(&[share(true), share(false)]).expect_err("both");
        assert_eq!(refused.code, "gpu.simulated-beside-real");
    }
}
