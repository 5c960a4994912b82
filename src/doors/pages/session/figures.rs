//! What a session uses: live figures with their last minutes.

use api::sessions::{SessionView, UsageSample};
use rules::units::Bytes;

use super::super::components::{self, Markup};
use super::super::gpus;
use crate::doors::text::Text;

/// Samples drawn in a strip: two minutes at one every two seconds.
const STRIP: usize = 60;

/// A live figure with its last minutes.
pub struct Strip {
    pub name: &'static str,
    pub value: String,
    pub of: String,
    pub chart: Markup,
}

pub(super) fn strips(t: Text, session: &SessionView, samples: &[UsageSample]) -> Vec<Strip> {
    let last = &samples[samples.len().saturating_sub(STRIP)..];
    let given = session.resources;
    let (cores, limit) = (given.cpu.as_f64(), given.memory.0 as f64);
    let now = samples.last();
    // Before the first measurement the place is kept, so that what stands below does not move.
    let unknown = || "–".to_owned();
    let cpu = now.map_or_else(unknown, |sample| components::cores(sample.cpu, given.cpu));
    let memory = now.map_or_else(unknown, |sample| components::size(sample.memory.0));
    let values = |of: fn(&UsageSample) -> f64| last.iter().map(of).collect::<Vec<f64>>();
    let mut all = device_strips(t, session, last);
    all.extend([
        Strip {
            name: t.strip_cpu(),
            chart: components::strip(
                &values(|sample| sample.cpu),
                cores * 1.06,
                "ci",
                Some(cores),
                &t.strip_chart(t.strip_cpu(), &cpu, given.cpu),
            ),
            value: cpu,
            of: t.common_of_cores(given.cpu),
        },
        Strip {
            name: t.strip_memory(),
            chart: components::strip(
                &values(|sample| sample.memory.0 as f64),
                limit * 1.06,
                "ca",
                Some(limit),
                &t.strip_chart(t.strip_memory(), &memory, components::size(given.memory.0)),
            ),
            value: memory,
            of: t.common_of(components::size(given.memory.0)),
        },
    ]);
    all
}

/// Samples after which a figure of a device that none of them has is not waited for any more. Higher: two of four places stay
/// empty where a device is not measured. Lower: what stands below moves when the first figure comes late.
const AWAITED: usize = 5;

/// What it does with its shares of devices: load within them, memory against the limit. Their places are kept until they
/// are known first; empty where it has none, or they stay unknown.
fn device_strips(t: Text, session: &SessionView, last: &[UsageSample]) -> Vec<Strip> {
    let use_of = |sample: &UsageSample| sample.gpu;
    let Some(now) = last.last().and_then(use_of) else {
        // A partition is not measured by itself.
        let shares = session.devices.iter().any(|part| part.profile.is_none());
        return match shares && last.len() < AWAITED {
            true => places(t, session),
            false => Vec::new(),
        };
    };
    let marked = |of: String| match now.simulated {
        true => format!("{of} · {}", t.strip_made_up()),
        false => of,
    };
    let mut all = Vec::new();
    let loads: Vec<f64> = last
        .iter()
        .filter_map(|sample| use_of(sample)?.load_percent)
        .collect();
    if let Some(load) = now.load_percent {
        let value = format!("{load:.0}%");
        let share = gpus::share(session.devices.iter().map(|part| part.share).sum());
        // A session that gets unused time of others has more than all of its share.
        let most = loads.iter().copied().fold(100.0, f64::max);
        all.push(Strip {
            name: t.strip_gpu(),
            chart: components::strip(
                &loads,
                most * 1.06,
                "ca",
                (most > 100.0).then_some(100.0),
                &t.strip_chart(t.strip_gpu(), &value, "100%"),
            ),
            value,
            of: marked(t.strip_gpu_of(share)),
        });
    }
    let granted: Bytes = session.devices.iter().map(|part| part.memory).sum();
    if let Some(memory) = now.memory {
        let used: Vec<f64> = last
            .iter()
            .filter_map(|sample| Some(use_of(sample)?.memory?.0 as f64))
            .collect();
        let (value, limit) = (
            components::part_of(memory.0, granted.0),
            components::size(granted.0),
        );
        all.push(Strip {
            name: t.strip_gpu_memory(),
            chart: components::strip(
                &used,
                granted.0 as f64 * 1.06,
                "ca",
                Some(granted.0 as f64),
                &t.strip_chart(t.strip_gpu_memory(), &value, &limit),
            ),
            value,
            of: marked(t.common_of(limit)),
        });
    }
    all
}

/// The places of both figures, before the first is known.
fn places(t: Text, session: &SessionView) -> Vec<Strip> {
    let share = gpus::share(session.devices.iter().map(|part| part.share).sum());
    let granted: Bytes = session.devices.iter().map(|part| part.memory).sum();
    let place = |name, of: String, limit: &str| Strip {
        name,
        value: "–".to_owned(),
        of,
        chart: components::strip(&[], 1.0, "ca", None, &t.strip_chart(name, "–", limit)),
    };
    let limit = components::size(granted.0);
    vec![
        place(t.strip_gpu(), t.strip_gpu_of(share), "100%"),
        place(t.strip_gpu_memory(), t.common_of(&limit), &limit),
    ]
}
