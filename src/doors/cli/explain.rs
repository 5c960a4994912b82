//! Why a session waits or where it would start, as users read it. Decides nothing: the server explains.

use api::gpus::Gpus;
use api::sessions::GrantView;
use rules::placement::Explanation;

use super::answer::Answer;
use super::client::HttpClient;
use super::error::CliError;
use super::format::{SIMULATED, grants};
use super::output::{OutputStyle, dash, span};

/// The devices of an explanation, for users with how many multiprocessors they are worth where the devices
/// can be asked.
pub(super) async fn in_full(
    client: &HttpClient,
    view: &OutputStyle,
    answer: &Explanation,
) -> Vec<GrantView> {
    let all = match view.for_humans() && !answer.devices.is_empty() {
        true => client.read::<Gpus>("/api/v1/gpus").await.ok(),
        false => None,
    };
    let gpus = all.map(|all| all.read.items).unwrap_or_default();
    let devices = answer.devices.iter();
    devices
        .map(|part| {
            let gpu = gpus.iter().find(|gpu| {
                gpu.index == part.index && answer.node.as_ref() == Some(&gpu.node_name)
            });
            let partitioned = part
                .part
                .and_then(|number| gpu?.partitions.get(number as usize));
            let total = gpu.map_or(0, |gpu| gpu.sms);
            GrantView {
                index: part.index,
                uuid: String::new(),
                model: String::new(),
                share: part.share,
                units: String::new(),
                memory: part.memory,
                sms: partitioned.map_or(total * part.share.0 / 100, |partitioned| partitioned.sms),
                sms_total: total,
                profile: partitioned.map(|partitioned| partitioned.profile),
                confirmed: true,
                simulated: part.simulated,
            }
        })
        .collect()
}

/// Prints an explanation: its sentence, then what it rests on.
pub(super) fn explained(
    view: &OutputStyle,
    answer: &Answer<Explanation>,
    devices: &[GrantView],
) -> Result<String, CliError> {
    view.said(&answer.body, &text(&answer.read, devices))
}

/// What a waiting session waits for first, and when it starts where that is told, in one line.
pub(super) fn waits_for(said: &Explanation) -> String {
    let first = said.blockers.first();
    let text = first.map_or(&said.sentence, |first| &first.text);
    let starts = match (&said.likely, &said.eta) {
        (Some(likely), _) => Some(format!("~{}", span(likely.seconds))),
        (None, Some(eta)) => Some(span(eta.p50_seconds)),
        (None, None) => None,
    };
    match starts {
        Some(starts) => format!("{text} Starts in {starts}."),
        None => text.clone(),
    }
}

/// An explanation in lines: its sentence, then what it rests on.
pub(super) fn text(said: &Explanation, devices: &[GrantView]) -> String {
    let mut lines = dash(&said.sentence);
    let given = grants(devices);
    if !given.is_empty() {
        lines.push_str(&format!("\n  {given}"));
    }
    if said.simulated && !given.is_empty() {
        lines.push_str(&format!("\n  {SIMULATED}"));
    }
    for blocker in &said.blockers {
        if said.blockers.len() > 1 || !lines.contains(&blocker.text) {
            lines.push_str(&format!("\n  - {} ({})", blocker.text, blocker.code));
        }
    }
    if let Some(minutes) = said.backfill_minutes() {
        lines.push_str(&format!("\n  --max-runtime {minutes}m starts it now"));
    }
    for check in &said.checks {
        let whose = match check.code.as_str() {
            "budget-project" => "project",
            "budget-user" => "user",
            _ => continue,
        };
        let (after, limit) = (&check.after, &check.limit);
        lines.push_str(&format!(
            "\n  budget of the {whose}: {after} of {limit} GPU-hours used or reserved"
        ));
    }
    if let Some(place) = said.queue_position {
        lines.push_str(&format!("\n  place in the queue: {place}"));
    }
    if let Some(replicas) = said.replicas.filter(|replicas| replicas.now == 0) {
        let all = replicas.now + replicas.wait;
        lines.push_str(&format!("\n  start now: {} of {all}", replicas.now));
    }
    // When, or why no time is known: the words of the console.
    match (&said.outlook, &said.eta) {
        (Some(outlook), Some(eta)) => {
            let when = span(eta.p50_seconds);
            lines.push_str(&format!("\n  in {when}: {}", outlook.text));
        }
        (Some(outlook), None) => lines.push_str(&format!("\n  {}", outlook.text)),
        // A server of before this release.
        (None, Some(eta)) => {
            let (when, basis) = (span(eta.p50_seconds), &eta.basis);
            lines.push_str(&format!("\n  expected in {when}: {basis}"));
        }
        (None, None) => {}
    }
    if let Some(likely) = &said.likely {
        let when = span(likely.seconds);
        let late = likely
            .late_seconds
            .map(|late| format!(", in most cases within {}", span(late)));
        let (late, basis) = (late.unwrap_or_default(), &likely.basis);
        lines.push_str(&format!("\n  likely in {when}{late}: {basis}"));
    }
    for other in &said.alternatives {
        lines.push_str(&format!("\n  instead: {}", other.text));
        if let Some(why) = &other.because {
            lines.push_str(&format!(" {}", why.text));
        }
    }
    lines
}
