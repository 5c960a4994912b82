//! What `fardel run` says while its session waits in the queue, and what a signal does to it then. Never decides what a
//! session waits for: the server explains.

use std::future::pending;
use std::time::Duration;

use api::sessions::SessionView;
use rules::placement::{Explanation, Verdict};
use rules::session::SessionState;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind};

use super::client::HttpClient;
use super::error::{CliError, UNREACHABLE};
use super::explain::waits_for;
use super::output::OutputStyle;
use super::terminal::listen;
use super::{complain, values};

/// A session that waits for less than this is not spoken of.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// Between two looks at what it waits for, so at most one line is said in that time. Shorter: each waiting run has the
/// server explain the queue more often.
const NEXT_LOOK: Duration = Duration::from_secs(60);
/// A server that does not answer holds a signal no longer than this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A program that a signal ended has this exit code and the number of the signal.
const SIGNALLED: u8 = 128;

/// The signals that end a program in the foreground. One that this process was started to ignore, as by `nohup`,
/// stays ignored.
pub(super) struct EndSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hang_up: Option<Signal>,
}

impl EndSignals {
    pub(super) fn listen() -> Result<Self, CliError> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let wanted = |kind: SignalKind| match ignores(&status, kind.as_raw_value()) {
            true => Ok(None),
            false => listen(kind).map(Some),
        };
        Ok(Self {
            interrupt: wanted(SignalKind::interrupt())?,
            terminate: wanted(SignalKind::terminate())?,
            hang_up: wanted(SignalKind::hangup())?,
        })
    }

    /// The next one that comes.
    pub(super) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            () = came(&mut self.interrupt) => SignalKind::interrupt(),
            () = came(&mut self.terminate) => SignalKind::terminate(),
            () = came(&mut self.hang_up) => SignalKind::hangup(),
        }
    }
}

async fn came(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => pending().await,
    }
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn ignores(status: &str, number: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(number - 1).unwrap_or(u32::MAX);
    mask.and_then(|mask| mask.checked_shr(bit))
        .is_some_and(|mask| mask & 1 == 1)
}

/// The exit code of a run that a signal ended.
pub(super) fn exit_code(signal: SignalKind) -> u8 {
    SIGNALLED.saturating_add(u8::try_from(signal.as_raw_value()).unwrap_or(0))
}

/// What was said of a waiting session.
#[derive(Default)]
struct ToldReason {
    text: String,
}

impl ToldReason {
    /// The line to say where it waits for something else than was said last.
    fn news(&mut self, name: &str, why: &Explanation) -> Option<String> {
        if !matches!(why.verdict, Verdict::Wait | Verdict::Never) {
            return None;
        }
        let first = why.blockers.first();
        let text = first.map_or(&why.sentence, |first| &first.text);
        if *text == self.text {
            return None;
        }
        text.clone_into(&mut self.text);
        Some(format!("{name} waits in the queue: {}\n", waits_for(why)))
    }
}

/// Says what a session waits for and when it starts, and says it again where that changes. Ends once it waits no longer,
/// and says nothing of that. Costs two reads a minute.
pub(super) async fn tell(client: &HttpClient, view: &OutputStyle, id: &str) {
    if view.quiet {
        return;
    }
    let mut told = ToldReason::default();
    tokio::time::sleep(FIRST_LOOK).await;
    loop {
        match looked(client, id).await {
            Ok(Some((session, why))) => {
                if let Some(line) = told.news(session.name.as_str(), &why) {
                    complain(&line);
                }
            }
            // The run itself waits for a server that is away.
            Err(trouble) if trouble.exit == UNREACHABLE => {}
            Ok(None) | Err(_) => return,
        }
        tokio::time::sleep(NEXT_LOOK).await;
    }
}

async fn looked(
    client: &HttpClient,
    id: &str,
) -> Result<Option<(SessionView, Explanation)>, CliError> {
    let path = values::path(id);
    let session = client.read::<SessionView>(&path).await?.read;
    if session.state != SessionState::Pending {
        return Ok(None);
    }
    let why = client.read::<Explanation>(&format!("{path}/why")).await?;
    Ok(Some((session, why.read)))
}

/// Takes a session that never started out of the queue and says so; false where it waits no longer, waits again after a
/// start, or where the server is away.
pub(super) async fn left(client: &HttpClient, name: &str, id: &str) -> Result<bool, CliError> {
    match tokio::time::timeout(ANSWER_TIMEOUT, taken_out(client, name, id)).await {
        Ok(Err(trouble)) if trouble.exit == UNREACHABLE => Ok(false),
        Ok(done) => done,
        Err(_) => Ok(false),
    }
}

async fn taken_out(client: &HttpClient, name: &str, id: &str) -> Result<bool, CliError> {
    let path = values::path(id);
    let session = client.read::<SessionView>(&path).await?.read;
    if session.state != SessionState::Pending || session.incarnation > 1 {
        return Ok(false);
    }
    let stopped = client
        .send::<SessionView>(&format!("{path}/stop"), &json!({}))
        .await?;
    complain(&match stopped.read.state {
        SessionState::Ended => format!("\n{name} waited; it is out of the queue now\n"),
        // It started between the look and the word.
        _ => format!("\n{name} has just started; it stops now\n"),
    });
    Ok(true)
}

/// Says how to come back to a session that goes on, and how to end it.
pub(super) fn goes_on(name: &str) {
    complain(&format!(
        "\n{name} goes on; fardel attach {name} comes back, fardel stop {name} ends it\n"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(text: &str) -> Explanation {
        let why = json!({
            "verdict": "wait", "sentence": text, "eta": null, "node": null, "devices": [], "reason": null,
            "queue_position": 1, "blockers": [], "checks": [], "alternatives": [], "rooms": [],
        });
        serde_json::from_value(why).expect("an explanation")
    }

    #[test]
    fn a_reason_is_said_once_until_it_changes() {
        let mut told = ToldReason::default();
        let line = told.news("fit", &waits("All GPUs are taken."));
        assert_eq!(
            line.as_deref(),
            Some("fit waits in the queue: All GPUs are taken.\n")
        );
        assert_eq!(told.news("fit", &waits("All GPUs are taken.")), None);
        assert!(told.news("fit", &waits("It is on hold.")).is_some());
        let mut starts = waits("It starts now.");
        starts.verdict = Verdict::Now;
        assert_eq!(told.news("fit", &starts), None);
    }

    #[test]
    fn a_signal_that_was_ignored_at_the_start_stays_so() {
        // Signals 1 and 13, as after `nohup`.
        let status = "Name:\tfardel\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(ignores(status, 1));
        assert!(!ignores(status, 2));
        assert!(!ignores(status, 15));
        assert!(!ignores("", 1));
    }

    #[test]
    fn a_run_that_a_signal_ended_says_which() {
        assert_eq!(exit_code(SignalKind::interrupt()), 130);
        assert_eq!(exit_code(SignalKind::terminate()), 143);
        assert_eq!(exit_code(SignalKind::hangup()), 129);
    }
}
