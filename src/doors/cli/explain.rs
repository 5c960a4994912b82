//! Why a session waits or where it would start, as people read it. Decides nothing: the server explains.

use serde_json::{Value, json};

use super::client::HttpClient;
use super::error::CliError;
use super::format::{SIMULATED, grants};
use super::output::{OutputStyle, span, text};

/// An explanation whose devices also say how many multiprocessors they are worth, for people. For programs,
/// and where the devices cannot be asked, it stays as it came.
pub(super) async fn in_full(client: &HttpClient, view: &OutputStyle, mut answer: Value) -> Value {
    let given = answer["devices"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    if !given || !view.for_people() {
        return answer;
    }
    let Ok(all) = client.get("/api/v1/gpus").await else {
        return answer;
    };
    let node = answer["node"].clone();
    for part in answer["devices"].as_array_mut().into_iter().flatten() {
        let mut gpus = all["items"].as_array().into_iter().flatten();
        let Some(gpu) = gpus.find(|g| g["index"] == part["index"] && g["node_name"] == node) else {
            continue;
        };
        let cut = part["part"]
            .as_u64()
            .and_then(|n| gpu["partitions"].get(n as usize));
        let total = gpu["sms"].as_u64().unwrap_or_default();
        let hundredths = (part["share"].as_f64().unwrap_or_default() * 100.0).round() as u64;
        part["sms"] = match cut {
            Some(cut) => cut["sms"].clone(),
            None => json!(total * hundredths / 100),
        };
        part["sms_total"] = json!(total);
        if let Some(cut) = cut {
            part["profile"] = cut["profile"].clone();
        }
    }
    answer
}

/// Prints an explanation: its sentence, then what it rests on.
pub(super) fn explained(view: &OutputStyle, answer: &Value) -> Result<String, CliError> {
    let mut lines = text(answer, "sentence");
    let given = grants(&answer["devices"]);
    if !given.is_empty() {
        lines.push_str(&format!("\n  {given}"));
    }
    if answer["simulated"] == true && !given.is_empty() {
        lines.push_str(&format!("\n  {}", SIMULATED));
    }
    let several = answer["blockers"].as_array().is_some_and(|b| b.len() > 1);
    for blocker in answer["blockers"].as_array().into_iter().flatten() {
        let sentence = text(blocker, "text");
        if several || !lines.contains(&sentence) {
            lines.push_str(&format!("\n  - {sentence} ({})", text(blocker, "code")));
        }
    }
    if let Some(place) = answer["queue_position"].as_u64() {
        lines.push_str(&format!("\n  place in the queue: {place}"));
    }
    if let Some(seconds) = answer["eta"]["p50_seconds"].as_u64() {
        lines.push_str(&format!(
            "\n  expected in {}: {}",
            span(seconds),
            text(answer, "eta.basis")
        ));
    }
    for other in answer["alternatives"].as_array().into_iter().flatten() {
        lines.push_str(&format!("\n  instead: {}", text(other, "text")));
    }
    view.said(answer, &lines)
}
