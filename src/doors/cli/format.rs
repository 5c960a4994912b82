//! Formats shares, grants and loads of devices, and values of settings, for tables and sentences. Sends no request.

use api::gpus::GpuSlice;
use api::sessions::GrantView;
use rules::devices::Health;
use rules::messages::DeviceUse;
use rules::resources::Demand;
use rules::self_test::SelfTestStatus;
use rules::session::SessionKind;
use rules::units::{Bytes, GpuShare, Timestamp};
use serde_json::Value;

use super::output::{dash, span};

/// Seconds without work after which a slice is called idle, as on the pages.
const IDLE_AFTER: u64 = 300;

/// Said wherever a user reads of simulated devices.
pub(super) const SIMULATED: &str = "simulated: these devices do not exist, and sessions get none";

/// Whether the driver of a card has passed its test: `passed`, `FAILED`, `untested`, `-`.
pub(super) fn tested(report: SelfTestStatus) -> String {
    match report {
        SelfTestStatus::Passed => "passed".to_owned(),
        SelfTestStatus::Failed => "FAILED".to_owned(),
        SelfTestStatus::Untested => "untested".to_owned(),
        SelfTestStatus::None => "-".to_owned(),
    }
}

/// `unknown`, `well`, `worn`, `failing`.
pub(super) fn health(health: &Health) -> String {
    match health {
        Health::Unknown => "unknown".to_owned(),
        Health::Well => "well".to_owned(),
        Health::Worn { .. } => "worn".to_owned(),
        Health::Failing { .. } => "failing".to_owned(),
    }
}

/// A value of a setting as people type it; `-` where nothing is set.
pub(super) fn setting_value(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => dash(text),
        Some(other) => other.to_string(),
    }
}

/// `interactive`, `batch`.
pub(super) fn kind(kind: SessionKind) -> String {
    match kind {
        SessionKind::Interactive => "interactive".to_owned(),
        SessionKind::Batch => "batch".to_owned(),
    }
}

/// What a session asks for of devices: `0.35`, `1g.10gb`, `-`.
pub(super) fn asked(demand: &Demand) -> String {
    match (demand.mig, demand.gpu) {
        (Some(profile), _) => profile.to_string(),
        (None, GpuShare::ZERO) => "-".to_owned(),
        (None, share) => share.to_string(),
    }
}

/// `GPU 2: 0.35 = 28 GiB, 46 of 132 SMs`, several parted by semicolons; empty where none is given.
pub(super) fn grants(devices: &[GrantView]) -> String {
    let one = |part: &GrantView| {
        let mut words = format!("GPU {}: {}", part.index, part.share);
        if part.memory > Bytes::ZERO {
            words.push_str(&format!(" = {}", part.memory));
        }
        if part.sms_total > 0 {
            words.push_str(&format!(", {} of {} SMs", part.sms, part.sms_total));
        }
        if let Some(profile) = part.profile {
            words.push_str(&format!(", {profile}"));
        }
        if !part.confirmed {
            words.push_str(", not yet confirmed");
        }
        if part.simulated {
            words.push_str(" (simulated)");
        }
        words
    };
    devices.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// `84 %`, `idle 12m`, or nothing where unknown.
pub(super) fn load(slice: &GpuSlice, now: Timestamp) -> Option<String> {
    match (slice.idle_since, slice.load_percent) {
        (Some(since), _) if now.seconds_since(since) >= IDLE_AFTER => {
            Some(format!("idle {}", span(now.seconds_since(since))))
        }
        (_, Some(percent)) => Some(format!("{percent:.0} %")),
        (_, None) => None,
    }
}

/// How busy the device is by all processes, also those of no session: `54 %`, or `-` where unknown.
pub(super) fn busy(doing: Option<&DeviceUse>) -> String {
    match doing.and_then(|doing| doing.busy_percent) {
        Some(percent) => format!("{percent} %"),
        None => "-".to_owned(),
    }
}

/// `vit 0.35 84 %, others 0.2 idle 12m`.
pub(super) fn slices(slices: &[GpuSlice], now: Timestamp) -> String {
    let one = |slice: &GpuSlice| {
        let name = slice.name.as_deref().unwrap_or("others");
        let held = match slice.profile {
            Some(profile) => format!("{name} {profile}"),
            None => format!("{name} {}", slice.share),
        };
        match load(slice, now) {
            Some(load) => format!("{held} {load}"),
            None => held,
        }
    };
    if slices.is_empty() {
        "-".to_owned()
    } else {
        slices.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use rules::session::SessionState;

    use super::*;

    #[test]
    fn a_grant_is_told_as_share_memory_and_multiprocessors() {
        let part = GrantView {
            index: 2,
            uuid: String::new(),
            model: String::new(),
            share: GpuShare(35),
            units: "0.35".to_owned(),
            memory: Bytes(30_064_771_072),
            sms: 46,
            sms_total: 132,
            profile: None,
            confirmed: true,
            simulated: true,
        };
        assert_eq!(
            grants(&[part]),
            "GPU 2: 0.35 = 28 GiB, 46 of 132 SMs (simulated)"
        );
        assert_eq!(grants(&[]), "");
    }

    #[test]
    fn a_slice_is_told_with_its_load_or_since_when_it_is_idle() {
        let now = Timestamp::parse("2026-11-22T12:00:00Z").expect("a time");
        let slice = |name: &str, load: Option<f64>, idle: Option<&str>| GpuSlice {
            session: None,
            name: Some(name.to_owned()),
            owner: None,
            mine: true,
            state: SessionState::Running,
            paused: false,
            share: GpuShare(35),
            memory: Bytes::gib(1),
            sms: 46,
            profile: None,
            confirmed: true,
            load_percent: load,
            memory_in_use: None,
            idle_since: idle.map(|at| Timestamp::parse(at).expect("a time")),
        };
        let all = [
            slice("vit", Some(84.4), None),
            // Idle for a moment only: not shown as idle.
            slice("asr", Some(0.0), Some("2026-11-22T11:59:00Z")),
            slice("nb", Some(0.0), Some("2026-11-22T11:48:00Z")),
            slice("mig", None, None),
        ];
        assert_eq!(
            slices(&all, now),
            "vit 0.35 84 %, asr 0.35 0 %, nb 0.35 idle 12m, mig 0.35"
        );
        let doing = DeviceUse {
            device: 0,
            memory: None,
            busy_percent: Some(54),
            celsius: None,
            milliwatts: None,
        };
        assert_eq!(busy(Some(&doing)), "54 %");
        assert_eq!(busy(None), "-");
    }
}
