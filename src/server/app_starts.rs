//! Apps on their way: runs the command of an app in its session and looks until it answers. What is known here is lost with
//! the server; the app is not, and its port tells whether it answers. Asks no permission; `actions::apps` does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::link::streams::{ExecRequest, Streams, TermInput, TermOutput, TermStream};
use rules::app::{AppChoice, AppDefinition};
use rules::names::ContainerName;
use rules::refusal::Refusal;
use rules::refusals;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

/// How often an app that starts is asked whether it answers. Longer: its page comes later. Shorter: more processor time
/// while it starts.
const LOOK: Duration = Duration::from_millis(100);
/// How long an app may take to answer one such question. Longer: one that hangs is noticed later.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read: its first line stands in there.
const MAX_HEAD: usize = 1 << 10;
/// Bytes of an app's last output that are remembered. More: memory for each app. Fewer: the reason of a failure is cut off.
const MAX_REMEMBERED: usize = 16 << 10;
/// Lines of it that are shown.
const MAX_LINES: usize = 40;
/// Letters of a line that are shown.
const MAX_LINE: usize = 400;
/// Starts that are remembered. More: memory. Fewer: a failure is forgotten before it was read.
const MAX_STARTS: usize = 1_000;

/// How far an app is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AppProgress {
    Starting,
    /// It answered. Whether it still does, its port tells.
    Ready,
    Failed(Refusal),
}

/// What starts an app, with its templates filled.
#[derive(Debug)]
pub(crate) struct AppCommands {
    /// Each has to end well before the next.
    pub(crate) before: Vec<ExecRequest>,
    pub(crate) own: ExecRequest,
}

/// One start of an app.
#[derive(Debug)]
pub(crate) struct AppStart {
    progress: Mutex<AppProgress>,
    output: Mutex<VecDeque<u8>>,
}

impl AppStart {
    fn new() -> Self {
        Self {
            progress: Mutex::new(AppProgress::Starting),
            output: Mutex::default(),
        }
    }

    pub(crate) fn progress(&self) -> AppProgress {
        locked(&self.progress).clone()
    }

    fn set(&self, progress: AppProgress) {
        *locked(&self.progress) = progress;
    }

    fn remember(&self, bytes: &[u8]) {
        let mut output = locked(&self.output);
        let bytes = &bytes[bytes.len().saturating_sub(MAX_REMEMBERED)..];
        let excess = (output.len() + bytes.len()).saturating_sub(MAX_REMEMBERED);
        output.drain(..excess);
        output.extend(bytes);
    }

    /// The last lines that it wrote, oldest first, without what moves a cursor.
    pub(crate) fn lines(&self) -> Vec<String> {
        let bytes: Vec<u8> = locked(&self.output).iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = &lines[lines.len().saturating_sub(MAX_LINES)..];
        last.iter().map(|line| readable(line)).collect()
    }
}

/// A line without control characters and without the sequences that colour it.
fn readable(line: &str) -> String {
    let mut shown = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            if letters.next() == Some('[') {
                // The sequence ends with its first letter.
                let _ = letters.find(|letter| ('@'..='~').contains(letter));
            }
        } else if !letter.is_control() {
            shown.push(letter);
        }
    }
    shown.chars().take(MAX_LINE).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type StartKey = (ContainerName, AppChoice);

/// The starts of apps that this server knows of.
#[derive(Debug, Default)]
pub(crate) struct AppStarts(Mutex<BTreeMap<StartKey, Arc<AppStart>>>);

impl AppStarts {
    pub(crate) fn known(&self, container: ContainerName, app: &AppChoice) -> Option<Arc<AppStart>> {
        locked(&self.0).get(&(container, app.clone())).cloned()
    }

    /// Starts an app, or gives the start that is under way.
    pub(crate) fn begin(
        &self,
        streams: Arc<dyn Streams>,
        container: ContainerName,
        app: &AppDefinition,
        commands: AppCommands,
    ) -> Arc<AppStart> {
        let mut starts = locked(&self.0);
        let key = (container, app.choice.clone());
        if let Some(known) = starts.get(&key)
            && known.progress() == AppProgress::Starting
        {
            return Arc::clone(known);
        }
        if starts.len() >= MAX_STARTS {
            starts.retain(|_, start| start.progress() == AppProgress::Starting);
        }
        let start = Arc::new(AppStart::new());
        starts.insert(key, Arc::clone(&start));
        // Owned by the program: it ends with the program, or with the session.
        tokio::spawn(run(
            streams,
            container,
            app.clone(),
            commands,
            Arc::clone(&start),
        ));
        start
    }
}

/// Runs an app until it ends; says meanwhile how far it is.
async fn run(
    streams: Arc<dyn Streams>,
    container: ContainerName,
    app: AppDefinition,
    commands: AppCommands,
    start: Arc<AppStart>,
) {
    let limit = Duration::from_secs(u64::from(app.ready_seconds));
    let until = Instant::now() + limit;
    let refused = |refusal: Refusal| {
        let error = refusal.text.trim_end_matches('.');
        AppProgress::Failed(refusals::app_start_refused(error))
    };
    for step in commands.before {
        let mut stream = match streams.exec(container, step).await {
            Ok(stream) => stream,
            Err(refusal) => return start.set(refused(refusal)),
        };
        // It may not wait for words from a user.
        let _ = stream.input.send(TermInput::CloseInput).await;
        match timeout_at(until, end(&mut stream, &start)).await {
            Ok(0) => {}
            Ok(code) => return start.set(AppProgress::Failed(refusals::app_ended(code))),
            Err(_) => {
                let slow = refusals::app_too_slow(app.ready_seconds);
                return start.set(AppProgress::Failed(slow));
            }
        }
    }
    let mut stream = match streams.exec(container, commands.own).await {
        Ok(stream) => stream,
        Err(refusal) => return start.set(refused(refusal)),
    };
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            code = end(&mut stream, &start) => {
                // Some programs go on without the process that began them.
                let progress = match answers(&*streams, container, &app).await {
                    true => AppProgress::Ready,
                    false => AppProgress::Failed(refusals::app_ended(code)),
                };
                return start.set(progress);
            }
            _ = look.tick() => {}
        }
        if answers(&*streams, container, &app).await {
            start.set(AppProgress::Ready);
            break;
        }
        if Instant::now() >= until {
            start.set(AppProgress::Failed(refusals::app_too_slow(
                app.ready_seconds,
            )));
            break;
        }
    }
    let code = end(&mut stream, &start).await;
    start.set(AppProgress::Failed(refusals::app_ended(code)));
}

/// Remembers what a program writes until it ends; gives its exit code, 0 where the stream broke off.
async fn end(stream: &mut TermStream, start: &AppStart) -> i32 {
    loop {
        match stream.output.recv().await {
            Some(TermOutput::Stdout(bytes) | TermOutput::Stderr(bytes)) => start.remember(&bytes),
            Some(TermOutput::Exit(code)) => return code,
            Some(TermOutput::Gone(_)) | None => return 0,
        }
    }
}

/// Whether an app answers a request with anything but a fault of its own.
pub(crate) async fn answers(
    streams: &dyn Streams,
    container: ContainerName,
    app: &AppDefinition,
) -> bool {
    let asked = status(streams, container, app.port, &app.health);
    let status = timeout(ANSWER_TIMEOUT, asked).await;
    matches!(status, Ok(Some(100..500)))
}

/// Whether anything listens on a port of a container.
pub(crate) async fn listens(streams: &dyn Streams, container: ContainerName, port: u16) -> bool {
    let dialled = timeout(ANSWER_TIMEOUT, streams.dial(container, port)).await;
    matches!(dialled, Ok(Ok(_)))
}

/// The status of the answer to one request; None where there is none.
async fn status(
    streams: &dyn Streams,
    container: ContainerName,
    port: u16,
    path: &str,
) -> Option<u16> {
    let mut stream = streams.dial(container, port).await.ok()?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    let mut head = Vec::with_capacity(MAX_HEAD);
    let mut piece = [0; MAX_HEAD];
    while head.len() < MAX_HEAD && !head.contains(&b'\n') {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(count) => head.extend_from_slice(&piece[..count]),
        }
    }
    status_of(&head)
}

/// The status in the first line of an answer.
fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.trim_end().split(' ');
    words
        .next()
        .filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_an_app_are_text() {
        let start = AppStart::new();
        start.remember(b"\x1b[32mready\x1b[0m\r\n\n\ttab \x07bell\n");
        assert_eq!(start.lines(), ["ready", "tab bell"]);
        for number in 0..10_000 {
            start.remember(format!("line {number}\n").as_bytes());
        }
        let lines = start.lines();
        assert_eq!(lines.len(), MAX_LINES);
        assert_eq!(lines.last().map(String::as_str), Some("line 9999"));
        assert!(locked(&start.output).len() <= MAX_REMEMBERED);
        start.remember(&vec![b'x'; 3 * MAX_REMEMBERED]);
        assert_eq!(start.lines(), ["x".repeat(MAX_LINE)]);
    }

    #[test]
    fn the_first_line_of_an_answer_says_its_status() {
        for (head, expected) in [
            ("HTTP/1.1 200 OK\r\nx: y", Some(200)),
            ("HTTP/1.0 404\r\n", Some(404)),
            ("HTTP/2 200\r\n", None),
            ("SSH-2.0-x\r\n", None),
            ("HTTP/1.1 x\r\n", None),
            ("", None),
        ] {
            assert_eq!(status_of(head.as_bytes()), expected, "{head:?}");
        }
    }
}
