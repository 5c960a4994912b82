//! Interpreters that stay in sessions between runs of code: starts them, passes orders on, keeps what a run shows until it
//! was read. What is known here is lost with the server, and the interpreters end with it. Asks no permission;
//! `actions::code_runs` does.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::link::streams::{ExecRequest, Streams, TermInput, TermOutput, TermStream};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rules::code_run::{
    BatchStep, CodeLanguage, ConsolePiece, ConsoleStream, MAX_COMPLETIONS, MAX_MEDIA_BYTES,
    MAX_ORDER_BYTES, MarkSearch, MarkedOutput, MarkedPart, RunConsole, TextPieces, shell_order,
};
use rules::names::{ContainerName, UserId};
use rules::refusal::Refusal;
use rules::refusals;
use serde::Deserialize;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// The program that Python runs: reads orders, tells what happens, one JSON object a line.
const PYTHON_RUNNER: &str = include_str!("code_runs/runner.py");
/// The program that R runs: reads orders, and speaks between what the code writes.
const R_RUNNER: &str = include_str!("code_runs/runner.R");
/// Where R finds it: a word of its command has 10,000 bytes at most.
const R_RUNNER_VARIABLE: &str = "FARDEL_RUNNER";
/// Starts R with its orders apart from the input that programs of the code read.
const R_SHELL: &str = "exec 9<&0 </dev/null; \
    test -n \"$LC_ALL$LC_CTYPE$LANG\" || export LANG=C.UTF-8; \
    exec R --slave --no-save --no-restore --no-init-file -e \"$0\"";
/// What R evaluates first.
const R_BEGIN: &str = "eval(parse(text=Sys.getenv(\"FARDEL_RUNNER\")))";
/// How long an answer waits for a run to end. Longer: a request is held, and output comes late. Shorter: more requests.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an answer gathers output once there is some. Longer: lines come late. Shorter: more requests.
const GATHER: Duration = Duration::from_millis(200);
/// How long an interpreter without a run stays. Longer: memory of sessions is held by what was forgotten. Shorter: what a
/// user computed is gone after a break.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);
/// How long an interpreter that was ended may take.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long one that is over is remembered, for its last output. Longer: memory. Shorter: a client that comes late misses it.
const KEPT: Duration = Duration::from_secs(60);
/// Interpreters of one user. More: a loop in a script fills the machine. Fewer: a class of sessions of one user is refused.
const MAX_OF_USER: usize = 32;
/// Interpreters of all users; each costs at most the output of a run.
const MAX_INTERPRETERS: usize = 512;
/// Bytes that all interpreters together have shown and no answer has taken yet. More: the server's memory is full. Fewer:
/// output of some is cut while others do not read theirs. One user holds at most half of it by whole runs.
const MAX_HELD_BYTES: usize = 256 << 20;
/// Bytes of one interpreter that are read in a window. More: code that writes without end keeps the server busy. Fewer: a
/// run that writes much takes longer.
const MAX_HEARD: usize = 512 << 10;
/// How long a window is. Longer: an interpreter whose user's right ended is killed later.
const HEARD_WINDOW: Duration = Duration::from_millis(100);
/// Longest line that the Python runner says.
const MAX_LINE_BYTES: usize = MAX_MEDIA_BYTES + (64 << 10);
/// Bytes of one message to a program, as the supervisor frames them.
const ORDER_PIECE: usize = 32 << 10;

/// Ready once an interpreter's user may use it no longer.
pub(crate) type Withdrawal = Pin<Box<dyn Future<Output = Refusal> + Send>>;

/// One interpreter: of a container's present start, for one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InterpreterKey {
    pub(crate) container: ContainerName,
    pub(crate) user: UserId,
    pub(crate) language: CodeLanguage,
}

type Interpreters = Arc<Mutex<BTreeMap<InterpreterKey, Arc<Interpreter>>>>;

/// The interpreters that this server keeps.
#[derive(Debug, Default)]
pub(crate) struct CodeRuns {
    all: Interpreters,
    /// Bytes that all of them hold, of `MAX_HELD_BYTES`.
    held: Arc<AtomicUsize>,
}

/// How far the present run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunPhase {
    /// None was begun, or it is over.
    Over,
    Running,
    /// It waits for a line.
    Asking {
        is_password: bool,
    },
}

/// How a run stands, as an answer tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunStanding {
    Continued,
    WaitingInput {
        is_password: bool,
    },
    /// This step of a batch went well, and another follows.
    StepFinished(BatchStep),
    Finished {
        exit_code: i32,
    },
}

/// What one answer takes of a run.
#[derive(Debug)]
pub(crate) struct RunAnswer {
    pub(crate) run_id: String,
    pub(crate) standing: RunStanding,
    pub(crate) console: Vec<ConsolePiece>,
    /// Something was shown that is too much for one run.
    pub(crate) is_cut: bool,
    /// The interpreter is over, and what it knew is lost.
    pub(crate) is_interpreter_over: bool,
}

#[derive(Debug)]
struct RunState {
    phase: RunPhase,
    run_id: String,
    console: RunConsole,
    exit_code: i32,
    /// The step of a batch that runs or is over.
    step: Option<BatchStep>,
    /// The steps that follow, with their commands.
    steps: VecDeque<(BatchStep, String)>,
    /// Missing until the Python runner told them.
    completions: Option<Vec<String>>,
    /// Bytes of a line of the Python runner that has no end yet.
    line_bytes: usize,
    /// What of this is counted in what all hold.
    counted: usize,
    is_over: bool,
    used_at: Instant,
}

/// What a run's output is read by.
enum OutputReader {
    Python {
        line: Vec<u8>,
        errors: TextPieces,
    },
    R {
        output: (MarkedOutput, TextPieces),
        errors: (MarkedOutput, TextPieces),
        code: Option<i32>,
        errors_done: bool,
    },
    Shell {
        output: (MarkSearch, TextPieces),
        errors: (MarkSearch, TextPieces),
        code: Option<i32>,
        errors_done: bool,
    },
}

/// An interpreter that runs.
pub(crate) struct Interpreter {
    language: CodeLanguage,
    input: mpsc::Sender<TermInput>,
    state: Mutex<RunState>,
    reader: Mutex<OutputReader>,
    changed: watch::Sender<()>,
    end: Notify,
    held: Arc<AtomicUsize>,
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let counted = state.unwrap_or_else(PoisonError::into_inner).counted;
        self.held.fetch_sub(counted, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interpreter({})", self.language.word())
    }
}

/// What a runner says.
#[derive(Debug, Deserialize)]
#[serde(tag = "t", rename_all = "lowercase")]
enum RunnerMessage {
    Ready,
    Stdout { d: String },
    Stderr { d: String },
    Media { k: String, d: String },
    Ask { p: bool },
    End { c: i32 },
    Complete { l: Vec<String> },
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The command that starts an interpreter. `program` is one of `CodeLanguage::programs`.
pub(crate) fn command(language: CodeLanguage, program: &str) -> ExecRequest {
    let argv = match (language, program) {
        (CodeLanguage::Python, _) => vec![program, "-c", PYTHON_RUNNER],
        (CodeLanguage::R, _) => vec!["sh", "-c", R_SHELL, R_BEGIN],
        (CodeLanguage::Shell, "bash") => vec![program, "--noprofile", "--norc"],
        (CodeLanguage::Shell, _) => vec![program],
    };
    let env = match language {
        CodeLanguage::R => vec![(R_RUNNER_VARIABLE.to_owned(), R_RUNNER.to_owned())],
        CodeLanguage::Python | CodeLanguage::Shell => Vec::new(),
    };
    ExecRequest {
        argv: argv.into_iter().map(str::to_owned).collect(),
        env,
        cwd: None,
        user: None,
        tty: None,
        guest: None,
        background: None,
    }
}

impl CodeRuns {
    /// The interpreter of that key, also one that is over and was lately.
    pub(crate) fn known(&self, key: &InterpreterKey) -> Option<Arc<Interpreter>> {
        locked(&self.all).get(key).cloned()
    }

    /// Starts an interpreter, or gives the one that runs.
    ///
    /// Errors: `code.interpreters-many`, those of `Streams::exec`.
    pub(crate) async fn begin(
        &self,
        streams: &dyn Streams,
        key: InterpreterKey,
        program: &str,
        withdrawn: Withdrawal,
    ) -> Result<Arc<Interpreter>, Refusal> {
        refuse_many(&locked(&self.all), &key)?;
        let request = command(key.language, program);
        let TermStream { input, output } = streams.exec(key.container, request).await?;
        let interpreter = Arc::new(Interpreter::new(
            key.language,
            input,
            Arc::clone(&self.held),
        ));
        {
            let mut all = locked(&self.all);
            // Another request may have been faster; what was begun here ends with its stream.
            if let Some(known) = all.get(&key).filter(|known| !known.is_over()) {
                return Ok(Arc::clone(known));
            }
            refuse_many(&all, &key)?;
            all.insert(key, Arc::clone(&interpreter));
        }
        // Owned by the interpreter: it ends with the program, the session, or its user's right.
        tokio::spawn(attend(
            Arc::clone(&self.all),
            key,
            Arc::clone(&interpreter),
            output,
            withdrawn,
        ));
        Ok(interpreter)
    }
}

/// Refuses one more than a user or the server has. Costs O(interpreters of all).
fn refuse_many(
    all: &BTreeMap<InterpreterKey, Arc<Interpreter>>,
    key: &InterpreterKey,
) -> Result<(), Refusal> {
    let live = all.iter().filter(|(_, known)| !known.is_over());
    let own = live.filter(|(known, _)| known.user == key.user).count();
    match own >= MAX_OF_USER || all.len() >= MAX_INTERPRETERS {
        true => Err(refusals::code_interpreters_many(MAX_OF_USER)),
        false => Ok(()),
    }
}

/// Keeps an interpreter from being heard faster than `MAX_HEARD` in each window; what it writes meanwhile waits in its pipe.
struct HearingPace {
    since: Instant,
    heard: usize,
}

impl HearingPace {
    async fn heard(&mut self, bytes: usize) {
        self.heard += bytes;
        let over = self.since + HEARD_WINDOW;
        if self.heard > MAX_HEARD {
            sleep_until(over).await;
        }
        if Instant::now() >= over {
            *self = Self::begin();
        }
    }

    fn begin() -> Self {
        Self {
            since: Instant::now(),
            heard: 0,
        }
    }
}

/// Reads what an interpreter says until it is over; later takes it out of the list.
async fn attend(
    all: Interpreters,
    key: InterpreterKey,
    interpreter: Arc<Interpreter>,
    mut output: mpsc::Receiver<TermOutput>,
    mut withdrawn: Withdrawal,
) {
    let mut pace = HearingPace::begin();
    let code = loop {
        let idle_until = locked(&interpreter.state).used_at + MAX_IDLE;
        tokio::select! {
            said = output.recv() => match said {
                Some(TermOutput::Stdout(bytes)) => {
                    if interpreter.hear(&bytes).is_err() {
                        break None;
                    }
                    pace.heard(bytes.len()).await;
                }
                Some(TermOutput::Stderr(bytes)) => {
                    if interpreter.hear_errors(&bytes).is_err() {
                        break None;
                    }
                    pace.heard(bytes.len()).await;
                }
                Some(TermOutput::Exit(code)) => break Some(code),
                Some(TermOutput::Gone(_)) | None => break None,
            },
            _ = &mut withdrawn => break None,
            () = interpreter.end.notified() => break None,
            () = sleep_until(idle_until) => {
                if interpreter.is_idle() {
                    break None;
                }
                // A run that goes on for long is no idleness.
                locked(&interpreter.state).used_at = Instant::now();
            }
        }
    };
    if code.is_none() {
        let killed = async {
            let _ = interpreter.input.send(TermInput::Signal(SIGKILL)).await;
            while let Some(said) = output.recv().await {
                if matches!(said, TermOutput::Exit(_) | TermOutput::Gone(_)) {
                    break;
                }
            }
        };
        let _ = timeout(END_TIMEOUT, killed).await;
    }
    // One that cannot be killed says no more.
    drop(output);
    interpreter.over(code.unwrap_or(KILLED));
    tokio::time::sleep(KEPT).await;
    let mut all = locked(&all);
    if all
        .get(&key)
        .is_some_and(|known| Arc::ptr_eq(known, &interpreter))
    {
        all.remove(&key);
    }
}

/// The exit code of a program that was ended by signal 9.
const KILLED: i32 = 137;
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

impl Interpreter {
    fn new(language: CodeLanguage, input: mpsc::Sender<TermInput>, held: Arc<AtomicUsize>) -> Self {
        let reader = match language {
            CodeLanguage::Python => OutputReader::Python {
                line: Vec::new(),
                errors: TextPieces::default(),
            },
            CodeLanguage::R => OutputReader::r(""),
            CodeLanguage::Shell => OutputReader::shell(""),
        };
        Self {
            language,
            input,
            state: Mutex::new(RunState {
                phase: RunPhase::Over,
                run_id: String::new(),
                console: RunConsole::default(),
                exit_code: 0,
                step: None,
                steps: VecDeque::new(),
                completions: None,
                line_bytes: 0,
                counted: 0,
                is_over: false,
                used_at: Instant::now(),
            }),
            reader: Mutex::new(reader),
            changed: watch::channel(()).0,
            end: Notify::new(),
            held,
        }
    }

    /// Counts what it holds in what all hold.
    fn count(&self, state: &mut RunState) {
        let now = state.console.waiting_bytes() + state.line_bytes;
        match now.checked_sub(state.counted) {
            Some(more) => self.held.fetch_add(more, Ordering::Relaxed),
            None => self.held.fetch_sub(state.counted - now, Ordering::Relaxed),
        };
        state.counted = now;
    }

    /// Whether all hold as much as they may.
    fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= MAX_HELD_BYTES
    }

    pub(crate) fn is_over(&self) -> bool {
        locked(&self.state).is_over
    }

    fn is_idle(&self) -> bool {
        locked(&self.state).phase == RunPhase::Over
    }

    /// Begins a run. The run of the same id that goes on is not begun again.
    ///
    /// Errors: `code.busy`, `code.too-large`, `code.interpreter-over`.
    pub(crate) async fn run(&self, run_id: &str, code: &str, mark: &str) -> Result<(), Refusal> {
        self.begin_run(run_id, code, mark, VecDeque::new()).await
    }

    /// Begins a run of several commands, each in a shell of its own; the next begins by `go_on`, after one that went well.
    ///
    /// Errors: as `run`.
    pub(crate) async fn run_batch(
        &self,
        run_id: &str,
        steps: Vec<(BatchStep, String)>,
        mark: &str,
    ) -> Result<(), Refusal> {
        self.begin_run(run_id, "", mark, steps.into()).await
    }

    async fn begin_run(
        &self,
        run_id: &str,
        code: &str,
        mark: &str,
        mut steps: VecDeque<(BatchStep, String)>,
    ) -> Result<(), Refusal> {
        let first = steps.pop_front();
        let step = first.as_ref().map(|(step, _)| *step);
        let order = match &first {
            None => self.order(code, mark)?,
            Some((_, command)) => self.order(&alone(command), mark)?,
        };
        // A step that is too large is refused before the first begins.
        for (_, command) in &steps {
            self.order(&alone(command), mark)?;
        }
        {
            // In the order in which output takes them.
            let mut reader = locked(&self.reader);
            let mut state = locked(&self.state);
            let is_open = state.phase != RunPhase::Over || !state.console.is_empty();
            if is_open && state.run_id == run_id {
                return Ok(());
            }
            if state.phase != RunPhase::Over {
                return Err(refusals::code_busy());
            }
            if state.is_over {
                return Err(refusals::code_interpreter_over());
            }
            state.phase = RunPhase::Running;
            state.run_id = run_id.to_owned();
            state.console = RunConsole::default();
            self.count(&mut state);
            state.exit_code = 0;
            state.step = step;
            state.steps = steps;
            state.used_at = Instant::now();
            match self.language {
                CodeLanguage::Python => {}
                CodeLanguage::R => *reader = OutputReader::r(mark),
                CodeLanguage::Shell => *reader = OutputReader::shell(mark),
            }
        }
        self.say(order).await
    }

    /// Begins the next step of a batch, where the one before went well and all that it showed was read.
    ///
    /// Errors: `code.run-unknown`, `code.too-large`, `code.interpreter-over`.
    pub(crate) async fn go_on(&self, run_id: &str, mark: &str) -> Result<(), Refusal> {
        let order = {
            let mut reader = locked(&self.reader);
            let mut state = locked(&self.state);
            known_run(&state, run_id)?;
            let is_read = state.phase == RunPhase::Over && state.console.is_empty();
            if !is_read || state.exit_code != 0 || state.is_over {
                return Ok(());
            }
            let Some((step, command)) = state.steps.pop_front() else {
                return Ok(());
            };
            let order = self.order(&alone(&command), mark)?;
            state.phase = RunPhase::Running;
            state.step = Some(step);
            state.used_at = Instant::now();
            *reader = OutputReader::shell(mark);
            order
        };
        self.say(order).await
    }

    /// What tells the interpreter to run this.
    fn order(&self, code: &str, mark: &str) -> Result<String, Refusal> {
        let order = match self.language {
            CodeLanguage::Python => runner_order("run", code),
            CodeLanguage::R => r_order("run", mark, code),
            CodeLanguage::Shell => shell_order(code, mark),
        };
        match order.len() > MAX_ORDER_BYTES {
            true => Err(refusals::code_too_large(rules::code_run::MAX_CODE_BYTES)),
            false => Ok(order),
        }
    }

    /// Gives the line that the run waits for.
    ///
    /// Errors: `code.not-waiting`, `code.run-unknown`, `code.too-large`.
    pub(crate) async fn answer_question(&self, run_id: &str, line: &str) -> Result<(), Refusal> {
        let order = match self.language {
            CodeLanguage::R => r_order("input", NO_MARK, line),
            CodeLanguage::Python | CodeLanguage::Shell => runner_order("input", line),
        };
        if order.len() > MAX_ORDER_BYTES {
            return Err(refusals::code_too_large(rules::code_run::MAX_CODE_BYTES));
        }
        {
            let mut state = locked(&self.state);
            known_run(&state, run_id)?;
            if !matches!(state.phase, RunPhase::Asking { .. }) {
                return Err(refusals::code_not_waiting());
            }
            state.phase = RunPhase::Running;
            state.used_at = Instant::now();
        }
        self.say(order).await
    }

    /// Sends the run the signal of Ctrl-C; nothing where none runs.
    ///
    /// Errors: `code.run-unknown`.
    pub(crate) async fn interrupt(&self, run_id: &str) -> Result<(), Refusal> {
        let has_asked = {
            let mut state = locked(&self.state);
            known_run(&state, run_id)?;
            if state.phase == RunPhase::Over {
                return Ok(());
            }
            // What it waited for comes no more.
            let before = std::mem::replace(&mut state.phase, RunPhase::Running);
            matches!(before, RunPhase::Asking { .. })
        };
        // One that is over has no ear; the answer tells.
        let _ = self.input.send(TermInput::Signal(SIGINT)).await;
        if has_asked && self.language == CodeLanguage::R {
            // R hears of the signal once it has a line.
            let _ = self.say(r_order("input", NO_MARK, "")).await;
        }
        Ok(())
    }

    /// What could stand at the end of this text. Only runners know; a shell offers nothing.
    ///
    /// Errors: `code.busy`, `code.too-large`, `code.interpreter-over`.
    pub(crate) async fn complete(&self, text: &str, mark: &str) -> Result<Vec<String>, Refusal> {
        let order = match self.language {
            CodeLanguage::Python => runner_order("complete", text),
            CodeLanguage::R => r_order("complete", mark, text),
            CodeLanguage::Shell => return Ok(Vec::new()),
        };
        if order.len() > MAX_ORDER_BYTES {
            return Err(refusals::code_too_large(rules::code_run::MAX_CODE_BYTES));
        }
        {
            let mut reader = locked(&self.reader);
            let mut state = locked(&self.state);
            let is_of_r = self.language == CodeLanguage::R;
            // What R says is known by the mark of one run: it completes nothing while it asks.
            let asks = matches!(state.phase, RunPhase::Asking { .. });
            if state.phase == RunPhase::Running || is_of_r && asks {
                return Err(refusals::code_busy());
            }
            state.completions = None;
            state.used_at = Instant::now();
            if is_of_r {
                *reader = OutputReader::r(mark);
            }
        }
        let mut changed = self.changed.subscribe();
        self.say(order).await?;
        let until = Instant::now() + ANSWER_TIMEOUT;
        loop {
            if let Some(found) = locked(&self.state).completions.take() {
                return Ok(found);
            }
            match timeout_at(until, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(Vec::new()),
            }
        }
    }

    /// Ends the interpreter, and waits a moment for it.
    pub(crate) async fn restart(&self) {
        let mut changed = self.changed.subscribe();
        self.end.notify_one();
        let over = async {
            while !locked(&self.state).is_over {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(ANSWER_TIMEOUT, over).await;
    }

    /// Waits until the run is over, asks, or has shown something for a moment; at most two seconds. Then takes what it has
    /// shown.
    ///
    /// Errors: `code.run-unknown`.
    pub(crate) async fn answer(&self, run_id: &str) -> Result<RunAnswer, Refusal> {
        let mut changed = self.changed.subscribe();
        let mut until = Instant::now() + ANSWER_TIMEOUT;
        let mut gathers = false;
        loop {
            {
                let state = locked(&self.state);
                known_run(&state, run_id)?;
                if state.phase != RunPhase::Running || state.console.fills_an_answer() {
                    break;
                }
                if !gathers && !state.console.is_empty() {
                    gathers = true;
                    until = until.min(Instant::now() + GATHER);
                }
            }
            match timeout_at(until, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => break,
            }
        }
        let mut state = locked(&self.state);
        known_run(&state, run_id)?;
        state.used_at = Instant::now();
        let console = state.console.take();
        self.count(&mut state);
        let standing = match state.phase {
            _ if !state.console.is_empty() => RunStanding::Continued,
            RunPhase::Running => RunStanding::Continued,
            RunPhase::Asking { is_password } => RunStanding::WaitingInput { is_password },
            RunPhase::Over => match state.step {
                Some(step) if state.exit_code == 0 && !state.steps.is_empty() => {
                    RunStanding::StepFinished(step)
                }
                _ => RunStanding::Finished {
                    exit_code: state.exit_code,
                },
            },
        };
        Ok(RunAnswer {
            run_id: state.run_id.clone(),
            standing,
            console,
            is_cut: state.console.is_cut(),
            is_interpreter_over: state.is_over,
        })
    }

    /// Sends an order in pieces that the supervisor takes; all of it, also when the client goes away meanwhile.
    async fn say(&self, order: String) -> Result<(), Refusal> {
        let (input, order) = (self.input.clone(), Bytes::from(order));
        let sending = tokio::spawn(async move {
            for at in (0..order.len()).step_by(ORDER_PIECE) {
                let piece = order.slice(at..order.len().min(at + ORDER_PIECE));
                if input.send(TermInput::Bytes(piece)).await.is_err() {
                    return false;
                }
            }
            true
        });
        match sending.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(refusals::code_interpreter_over()),
        }
    }

    /// Takes standard output. Err where a runner says what is no message: it cannot be understood further.
    fn hear(&self, bytes: &[u8]) -> Result<(), ()> {
        let mut reader = locked(&self.reader);
        match &mut *reader {
            OutputReader::Python { line, .. } => {
                for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                    line.extend_from_slice(part);
                    if line.len() > MAX_LINE_BYTES {
                        return Err(());
                    }
                    if line.last() == Some(&b'\n') {
                        // Taken, so that the room of a long one is given back.
                        let whole = std::mem::take(line);
                        self.take(serde_json::from_slice(&whole).map_err(drop)?);
                    }
                }
                let mut state = locked(&self.state);
                state.line_bytes = line.len();
                self.count(&mut state);
                if line.len() > ORDER_PIECE && self.is_full() {
                    return Err(());
                }
            }
            OutputReader::R {
                output,
                code,
                errors_done,
                ..
            } => {
                for part in output.0.push(bytes).ok_or(())? {
                    match part {
                        MarkedPart::Text(bytes) => {
                            let text = output.1.push(&bytes);
                            self.shown(ConsoleStream::Stdout, &text, None);
                        }
                        MarkedPart::Said(words) => match message_of_r(&words).ok_or(())? {
                            RunnerMessage::End { c } => *code = Some(c),
                            message => self.take(message),
                        },
                    }
                }
                let end = if *errors_done { *code } else { None };
                self.shown(ConsoleStream::Stdout, "", end);
                let mut state = locked(&self.state);
                state.line_bytes = output.0.kept_bytes();
                self.count(&mut state);
                if state.line_bytes > ORDER_PIECE && self.is_full() {
                    return Err(());
                }
            }
            OutputReader::Shell {
                output,
                code,
                errors_done,
                ..
            } => {
                let (shown, mark) = output.0.push(bytes);
                let text = output.1.push(&shown);
                *code = code.or(mark);
                let end = if *errors_done { *code } else { None };
                self.shown(ConsoleStream::Stdout, &text, end);
            }
        }
        drop(reader);
        self.changed.send_replace(());
        Ok(())
    }

    /// Takes standard error. Err as `hear`.
    fn hear_errors(&self, bytes: &[u8]) -> Result<(), ()> {
        let mut reader = locked(&self.reader);
        match &mut *reader {
            OutputReader::Python { errors, .. } => {
                let text = errors.push(bytes);
                self.shown(ConsoleStream::Stderr, &text, None);
            }
            OutputReader::R {
                errors,
                code,
                errors_done,
                ..
            } => {
                for part in errors.0.push(bytes).ok_or(())? {
                    match part {
                        MarkedPart::Text(bytes) => {
                            let text = errors.1.push(&bytes);
                            self.shown(ConsoleStream::Stderr, &text, None);
                        }
                        MarkedPart::Said(_) => *errors_done = true,
                    }
                }
                let end = if *errors_done { *code } else { None };
                self.shown(ConsoleStream::Stderr, "", end);
                // Here it says no more than that a run is over, so no long words are waited for.
                if errors.0.kept_bytes() > ORDER_PIECE {
                    return Err(());
                }
            }
            OutputReader::Shell {
                errors,
                code,
                errors_done,
                ..
            } => {
                let (shown, mark) = errors.0.push(bytes);
                let text = errors.1.push(&shown);
                *errors_done |= mark.is_some();
                let end = if *errors_done { *code } else { None };
                self.shown(ConsoleStream::Stderr, &text, end);
            }
        }
        drop(reader);
        self.changed.send_replace(());
        Ok(())
    }

    fn shown(&self, stream: ConsoleStream, text: &str, end: Option<i32>) {
        let mut state = locked(&self.state);
        // What a program of an earlier run says belongs to none.
        if state.phase == RunPhase::Over {
            return;
        }
        match self.is_full() {
            true if !text.is_empty() => state.console.cut(),
            _ => state.console.write(stream, text),
        }
        self.count(&mut state);
        if let Some(code) = end {
            state.phase = RunPhase::Over;
            state.exit_code = code;
            state.used_at = Instant::now();
        }
    }

    fn take(&self, message: RunnerMessage) {
        match message {
            RunnerMessage::Ready => {}
            RunnerMessage::Stdout { d } => self.shown(ConsoleStream::Stdout, &d, None),
            RunnerMessage::Stderr { d } => self.shown(ConsoleStream::Stderr, &d, None),
            RunnerMessage::End { c } => self.shown(ConsoleStream::Stdout, "", Some(c)),
            RunnerMessage::Media { k, d } => {
                let mut state = locked(&self.state);
                if state.phase != RunPhase::Over && STANDARD.decode(&d).is_ok() {
                    match self.is_full() {
                        true => state.console.cut(),
                        false => state.console.show(&k, d),
                    }
                    self.count(&mut state);
                }
            }
            RunnerMessage::Ask { p } => {
                let mut state = locked(&self.state);
                if state.phase == RunPhase::Running {
                    state.phase = RunPhase::Asking { is_password: p };
                }
            }
            RunnerMessage::Complete { mut l } => {
                l.truncate(MAX_COMPLETIONS);
                l.retain(|word| word.len() <= 4 * MAX_COMPLETIONS);
                // A hostile runner may have named very many.
                l.shrink_to_fit();
                locked(&self.state).completions = Some(l);
            }
        }
    }

    /// The program is over: so is its run.
    fn over(&self, code: i32) {
        {
            let mut reader = locked(&self.reader);
            match &mut *reader {
                OutputReader::Python { line, .. } => *line = Vec::new(),
                OutputReader::R { .. } => *reader = OutputReader::r(""),
                OutputReader::Shell { .. } => {}
            }
            let mut state = locked(&self.state);
            if state.phase != RunPhase::Over {
                state.phase = RunPhase::Over;
                state.exit_code = code;
            }
            state.is_over = true;
            state.line_bytes = 0;
            self.count(&mut state);
        }
        self.changed.send_replace(());
    }
}

impl OutputReader {
    fn r(mark: &str) -> Self {
        let of = |mark| (MarkedOutput::of(mark), TextPieces::default());
        Self::R {
            output: of(mark),
            errors: of(mark),
            code: None,
            errors_done: false,
        }
    }

    fn shell(mark: &str) -> Self {
        let of = |mark| (MarkSearch::of(mark), TextPieces::default());
        Self::Shell {
            output: of(mark),
            errors: of(mark),
            code: None,
            errors_done: false,
        }
    }
}

/// Refuses another run than the present one.
fn known_run(state: &RunState, run_id: &str) -> Result<(), Refusal> {
    match state.run_id == run_id {
        true => Ok(()),
        false => Err(refusals::code_run_unknown()),
    }
}

/// A command in a shell of its own, so that it leaves nothing behind in the interpreter.
fn alone(command: &str) -> String {
    format!("(\n{command}\n)")
}

/// What stands for the mark in an order to R that begins nothing.
const NO_MARK: &str = "-";

/// A line for the runner of R.
fn r_order(word: &str, mark: &str, text: &str) -> String {
    format!("{word} {mark} {}\n", STANDARD.encode(text))
}

/// What the runner of R says: a letter, and what belongs to it. None for what is no message.
fn message_of_r(words: &str) -> Option<RunnerMessage> {
    let kind = words.chars().next()?;
    let rest = &words[kind.len_utf8()..];
    match kind {
        'A' => Some(RunnerMessage::Ask { p: false }),
        'E' => rest.parse().ok().map(|c| RunnerMessage::End { c }),
        'M' => rest.split_once(';').map(|(k, d)| RunnerMessage::Media {
            k: k.to_owned(),
            d: d.to_owned(),
        }),
        'C' => {
            let found = rest.split('\n').filter(|word| !word.is_empty());
            Some(RunnerMessage::Complete {
                l: found.take(MAX_COMPLETIONS).map(str::to_owned).collect(),
            })
        }
        _ => None,
    }
}

/// A line for the Python runner.
fn runner_order(word: &str, text: &str) -> String {
    format!("{word} {}\n", STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreter(language: CodeLanguage) -> (Interpreter, mpsc::Receiver<TermInput>) {
        let (input, orders) = mpsc::channel(64);
        (Interpreter::new(language, input, Arc::default()), orders)
    }

    fn text(answer: &RunAnswer) -> String {
        let pieces = answer.console.iter();
        pieces.map(|piece| piece.text.as_str()).collect()
    }

    #[tokio::test]
    async fn a_run_is_answered_in_parts_and_asks() {
        let (python, mut orders) = interpreter(CodeLanguage::Python);
        python.run("r1", "input()", "").await.expect("begun");
        assert_eq!(
            orders.recv().await,
            Some(TermInput::Bytes("run aW5wdXQoKQ==\n".into()))
        );
        let busy = python.run("r2", "2", "").await.expect_err("one at a time");
        assert_eq!(busy.code, "code.busy");
        python.run("r1", "input()", "").await.expect("the same");
        let said = b"{\"t\":\"stdout\",\"d\":\"name? \"}\n{\"t\":\"ask\",\"p\":true}\n";
        // However the bytes are cut.
        python.hear(&said[..9]).expect("a part");
        python.hear(&said[9..]).expect("the rest");
        let answer = python.answer("r1").await.expect("known");
        assert_eq!(text(&answer), "name? ");
        let asks = RunStanding::WaitingInput { is_password: true };
        assert_eq!(answer.standing, asks);
        python.answer_question("r1", "kim").await.expect("asked");
        let again = python.answer_question("r1", "kim").await;
        assert_eq!(again.expect_err("not asked").code, "code.not-waiting");
        python.hear(b"{\"t\":\"end\",\"c\":0}\n").expect("over");
        let answer = python.answer("r1").await.expect("known");
        assert_eq!(answer.standing, RunStanding::Finished { exit_code: 0 });
        let other = python.answer("r0").await.expect_err("another");
        assert_eq!(other.code, "code.run-unknown");
    }

    #[tokio::test]
    async fn a_run_of_r_shows_asks_and_ends_by_both_marks() {
        let (r, mut orders) = interpreter(CodeLanguage::R);
        r.run("r1", "x", "m1").await.expect("begun");
        let begun = TermInput::Bytes("run m1 eA==\n".into());
        assert_eq!(orders.recv().await, Some(begun));
        // Both streams are cut as the pipes like.
        r.hear(b"[1] 1\n\x1em1Mimage/png;aG").expect("a part");
        r.hear(b"k=\x1ewho? \x1em1A\x1e").expect("the rest");
        let answer = r.answer("r1").await.expect("known");
        let asks = RunStanding::WaitingInput { is_password: false };
        assert_eq!(
            (text(&answer).as_str(), answer.standing),
            ("[1] 1\naGk=who? ", asks)
        );
        let busy = r.complete("me", "m2").await.expect_err("it asks");
        assert_eq!(busy.code, "code.busy");
        // Ctrl-C, and the line that it is noticed with.
        r.interrupt("r1").await.expect("known");
        assert_eq!(orders.recv().await, Some(TermInput::Signal(SIGINT)));
        let line = TermInput::Bytes("input - \n".into());
        assert_eq!(orders.recv().await, Some(line));
        r.hear(b"\x1em1E130\x1e").expect("heard");
        assert!(!r.is_idle());
        r.hear_errors(b"late\x1em1E\x1e").expect("heard");
        let answer = r.answer("r1").await.expect("known");
        let over = RunStanding::Finished { exit_code: 130 };
        assert_eq!((text(&answer).as_str(), answer.standing), ("late", over));
        // What is no message ends it.
        r.run("r2", "x", "m3").await.expect("begun");
        assert!(r.hear(b"\x1em3X\x1e").is_err());
        // So do words among errors that have no end.
        r.hear_errors(b"\x1em3").expect("a part");
        assert!(r.hear_errors(&[b'a'; 2 * ORDER_PIECE]).is_err());
    }

    #[tokio::test]
    async fn r_completes_what_it_knows() {
        let (r, mut orders) = interpreter(CodeLanguage::R);
        let told = async {
            assert!(orders.recv().await.is_some());
            r.hear(b"\x1em1Cmean\nmedian\x1e").expect("heard");
        };
        let (found, ()) = tokio::join!(r.complete("me", "m1"), told);
        assert_eq!(found.expect("told"), ["mean", "median"]);
    }

    #[test]
    fn the_runner_of_r_is_found_where_its_command_looks() {
        assert!(R_BEGIN.contains(R_RUNNER_VARIABLE));
        assert!(R_RUNNER.contains(R_RUNNER_VARIABLE));
        let request = command(CodeLanguage::R, "R");
        assert_eq!(request.argv[0], "sh");
        assert_eq!(request.env[0].1, R_RUNNER);
        // A variable has 128 KiB at most, and this one stands beside those of the session.
        assert!(R_RUNNER.len() < 16 << 10, "{}", R_RUNNER.len());
    }

    #[tokio::test]
    async fn a_shell_run_ends_by_both_marks() {
        let (shell, _orders) = interpreter(CodeLanguage::Shell);
        shell.run("r1", "echo hi", "m1").await.expect("begun");
        shell.hear(b"hi\n\x1em1:3\x1e").expect("heard");
        assert!(!shell.is_idle());
        shell.hear_errors(b"late\x1em1\x1e").expect("heard");
        let answer = shell.answer("r1").await.expect("known");
        assert_eq!(text(&answer), "hi\nlate");
        assert_eq!(answer.standing, RunStanding::Finished { exit_code: 3 });
        // What a program in the background says later belongs to no run.
        shell.hear(b"late").expect("heard");
        let answer = shell.answer("r1").await.expect("known");
        assert!(answer.console.is_empty());
    }

    #[tokio::test]
    async fn a_batch_goes_on_after_what_went_well() {
        let (shell, _orders) = interpreter(CodeLanguage::Shell);
        let steps = || {
            vec![
                (BatchStep::Build, "make".to_owned()),
                (BatchStep::Exec, "./a.out".to_owned()),
            ]
        };
        let ends = |mark: &str, code: i32| {
            shell
                .hear(format!("\u{1e}{mark}:{code}\u{1e}").as_bytes())
                .expect("heard");
            shell
                .hear_errors(format!("\u{1e}{mark}\u{1e}").as_bytes())
                .expect("heard");
        };
        shell.run_batch("r1", steps(), "m1").await.expect("begun");
        ends("m1", 0);
        let answer = shell.answer("r1").await.expect("known");
        assert_eq!(answer.standing, RunStanding::StepFinished(BatchStep::Build));
        shell.go_on("r1", "m2").await.expect("begun");
        ends("m2", 4);
        let answer = shell.answer("r1").await.expect("known");
        assert_eq!(answer.standing, RunStanding::Finished { exit_code: 4 });
        // A build that fails is the end.
        shell.run_batch("r2", steps(), "m3").await.expect("begun");
        ends("m3", 2);
        shell.go_on("r2", "m4").await.expect("nothing to do");
        let answer = shell.answer("r2").await.expect("known");
        assert_eq!(answer.standing, RunStanding::Finished { exit_code: 2 });
    }

    #[tokio::test]
    async fn too_much_is_cut_and_no_message_ends_the_interpreter() {
        let (python, _orders) = interpreter(CodeLanguage::Python);
        python.run("r1", "1", "").await.expect("begun");
        let line = format!("{{\"t\":\"stdout\",\"d\":\"{}\"}}\n", "x".repeat(16_384));
        for _ in 0..640 {
            python.hear(line.as_bytes()).expect("heard");
        }
        python.hear(b"{\"t\":\"end\",\"c\":0}\n").expect("over");
        let mut bytes = 0;
        loop {
            let answer = python.answer("r1").await.expect("known");
            assert!(answer.is_cut);
            bytes += text(&answer).len();
            if answer.standing != RunStanding::Continued {
                break;
            }
        }
        assert_eq!(bytes, rules::code_run::MAX_RUN_BYTES);
        assert!(python.hear(b"no message\n").is_err());
        let (python, _orders) = interpreter(CodeLanguage::Python);
        assert!(python.hear(&vec![b'x'; MAX_LINE_BYTES + 1]).is_err());
    }

    #[tokio::test]
    async fn what_all_interpreters_hold_has_a_bound_and_is_given_back() {
        let held = Arc::new(AtomicUsize::new(MAX_HELD_BYTES - 1));
        let (input, _orders) = mpsc::channel(64);
        let python = Interpreter::new(CodeLanguage::Python, input, Arc::clone(&held));
        python.run("r1", "1", "").await.expect("begun");
        python
            .hear(b"{\"t\":\"stdout\",\"d\":\"abc\"}\n")
            .expect("heard");
        python
            .hear(b"{\"t\":\"stdout\",\"d\":\"more\"}\n")
            .expect("heard");
        python.hear(b"{\"t\":\"end\",\"c\":0}\n").expect("over");
        assert!(python.hear(&vec![b'x'; ORDER_PIECE + 1]).is_err());
        python.over(KILLED);
        assert_eq!(held.load(Ordering::Relaxed), MAX_HELD_BYTES + 2);
        let answer = python.answer("r1").await.expect("known");
        assert_eq!((text(&answer).as_str(), answer.is_cut), ("abc", true));
        assert_eq!(answer.standing, RunStanding::Finished { exit_code: 0 });
        assert_eq!(held.load(Ordering::Relaxed), MAX_HELD_BYTES - 1);
    }

    #[tokio::test]
    async fn an_interpreter_is_heard_at_a_bounded_pace() {
        let begun = Instant::now();
        let mut pace = HearingPace::begin();
        for _ in 0..3 {
            pace.heard(MAX_HEARD + 1).await;
        }
        assert!(begun.elapsed() >= 3 * HEARD_WINDOW);
    }

    #[tokio::test]
    async fn a_later_step_that_is_too_large_is_refused_at_the_begin() {
        let (shell, _orders) = interpreter(CodeLanguage::Shell);
        let steps = vec![
            (BatchStep::Build, "make".to_owned()),
            (BatchStep::Exec, "'".repeat(MAX_ORDER_BYTES / 4)),
        ];
        let refused = shell.run_batch("r1", steps, "m1").await;
        assert_eq!(refused.expect_err("too large").code, "code.too-large");
        assert!(shell.is_idle());
    }

    #[tokio::test]
    async fn a_picture_comes_as_data() {
        let (python, _orders) = interpreter(CodeLanguage::Python);
        python.run("r1", "1", "").await.expect("begun");
        for said in [
            "{\"t\":\"media\",\"k\":\"image/png\",\"d\":\"iVBORw==\"}\n",
            "{\"t\":\"media\",\"k\":\"image/png\",\"d\":\"no base64\"}\n",
            "{\"t\":\"complete\",\"l\":[\"os.path\"]}\n",
            "{\"t\":\"end\",\"c\":0}\n",
        ] {
            python.hear(said.as_bytes()).expect("heard");
        }
        let answer = python.answer("r1").await.expect("known");
        assert_eq!(answer.console.len(), 1);
        assert_eq!(answer.console[0].media_type, "image/png");
        let found = locked(&python.state).completions.take();
        assert_eq!(found, Some(vec!["os.path".to_owned()]));
    }
}
