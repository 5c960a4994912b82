//! Formats shares, grants and loads of devices for tables and sentences. Sends no request.

use rules::units::Timestamp;
use serde_json::Value;

use super::output::{size, span, text};

/// Seconds without work after which a slice is called idle, as on the pages.
const IDLE_AFTER: u64 = 300;

/// Said wherever a person reads of simulated devices.
pub(super) const SIMULATED: &str = "simulated: these devices do not exist, and sessions get none";

/// Whether the driver of a card has passed its test: `passed`, `FAILED`, `untested`, `-`.
pub(super) fn tested(gpu: &Value) -> String {
    match gpu["proof"].as_str().unwrap_or_default() {
        "passed" => "passed".to_owned(),
        "failed" => "FAILED".to_owned(),
        "untested" => "untested".to_owned(),
        _ => "-".to_owned(),
    }
}

/// What a session asks for of devices: `0.35`, `1g.10gb`, `-`.
pub(super) fn asked(session: &Value) -> String {
    if let Some(profile) = session["resources"]["mig"].as_str() {
        return profile.to_owned();
    }
    match text(session, "resources.gpu") {
        zero if zero == "0" => "-".to_owned(),
        share => share,
    }
}

/// `GPU 2: 0.35 = 28 GiB, 46 of 132 SMs`, several parted by semicolons; empty where none is given.
pub(super) fn grants(devices: &Value) -> String {
    let one = |part: &Value| {
        let mut words = format!("GPU {}: {}", text(part, "index"), text(part, "share"));
        if part["memory"].as_u64().unwrap_or_default() > 0 {
            words.push_str(&format!(" = {}", size(&part["memory"])));
        }
        if part["sms_total"].as_u64().unwrap_or_default() > 0 {
            words.push_str(&format!(
                ", {} of {} SMs",
                text(part, "sms"),
                text(part, "sms_total")
            ));
        }
        if let Some(profile) = part["profile"].as_str() {
            words.push_str(&format!(", {profile}"));
        }
        if part["confirmed"] == false {
            words.push_str(", not yet confirmed");
        }
        if part["simulated"] == true {
            words.push_str(" (simulated)");
        }
        words
    };
    let all: Vec<String> = devices.as_array().into_iter().flatten().map(one).collect();
    all.join("; ")
}

/// `84 %`, `idle 12m`, or nothing where unknown.
pub(super) fn load(slice: &Value, now: Timestamp) -> Option<String> {
    let since = slice["idle_since"].as_str();
    let idle = since.and_then(|since| Timestamp::parse(since).ok());
    match (idle, slice["load_percent"].as_f64()) {
        (Some(since), _) if now.seconds_since(since) >= IDLE_AFTER => {
            Some(format!("idle {}", span(now.seconds_since(since))))
        }
        (_, Some(percent)) => Some(format!("{percent:.0} %")),
        (_, None) => None,
    }
}

/// How busy the device is by all processes, also those of no session: `54 %`, or `-` where unknown.
pub(super) fn busy(gpu: &Value) -> String {
    match gpu["doing"]["busy_percent"].as_u64() {
        Some(percent) => format!("{percent} %"),
        None => "-".to_owned(),
    }
}

/// `vit 0.35 84 %, others 0.2 idle 12m`.
pub(super) fn slices(gpu: &Value, now: Timestamp) -> String {
    let all: Vec<String> = gpu["slices"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|slice| {
            let name = slice["name"].as_str().unwrap_or("others");
            let held = match slice["profile"].as_str() {
                Some(profile) => format!("{name} {profile}"),
                None => format!("{name} {}", text(slice, "share")),
            };
            match load(slice, now) {
                Some(load) => format!("{held} {load}"),
                None => held,
            }
        })
        .collect();
    if all.is_empty() {
        "-".to_owned()
    } else {
        all.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_grant_is_told_as_share_memory_and_multiprocessors() {
        let part = json!({"index": 2, "share": 0.35, "memory": 30_064_771_072_u64, "sms": 46,
            "sms_total": 132, "confirmed": true, "simulated": true});
        assert_eq!(
            grants(&json!([part])),
            "GPU 2: 0.35 = 28 GiB, 46 of 132 SMs (simulated)"
        );
        assert_eq!(grants(&json!([])), "");
    }

    #[test]
    fn a_slice_is_told_with_its_load_or_since_when_it_is_idle() {
        let now = Timestamp::parse("2026-11-22T12:00:00Z").expect("a time");
        let slice = |name: &str, load: Value, idle: Value| json!({"name": name, "share": 0.35, "load_percent": load, "idle_since": idle});
        let all = json!({"slices": [
            slice("vit", json!(84.4), Value::Null),
            // Idle for a moment only: not shown as idle.
            slice("asr", json!(0), json!("2026-11-22T11:59:00Z")),
            slice("nb", json!(0), json!("2026-11-22T11:48:00Z")),
            slice("mig", Value::Null, Value::Null),
        ]});
        assert_eq!(
            slices(&all, now),
            "vit 0.35 84 %, asr 0.35 0 %, nb 0.35 idle 12m, mig 0.35"
        );
        assert_eq!(busy(&json!({"doing": {"busy_percent": 54}})), "54 %");
        assert_eq!(busy(&json!({"doing": null})), "-");
    }
}
