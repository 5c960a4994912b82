//! Code that runs in real sessions by interpreters that stay.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::code_runs::{CodeBatch, CodeMode, CodeRun, CodeRunRequest, CodeRunStatus};
use api::sessions::{LaunchRequest, SessionView};
use base::link::streams::Streams;
use rules::code_run::{CodeLanguage, ConsoleStream, MAX_RUN_BYTES};
use rules::names::ContainerName;
use rules::session::{SessionKind, SessionState};
use rules::users::Role;
use server::access::{self, Caller};
use server::actions::{code_runs, sessions, users};
use server::{Failure, Server};

use super::images::until;
use super::whole::Whole;
use crate::server::the_box::PASSWORD;

/// Longer than the two seconds that are promised, on a loaded machine.
const SOON: Duration = Duration::from_secs(10);

struct Place {
    server: Server,
    streams: Arc<dyn Streams>,
    session: SessionView,
}

fn request(mode: CodeMode, code: &str) -> CodeRunRequest {
    CodeRunRequest {
        mode,
        code: code.to_owned(),
        ..CodeRunRequest::default()
    }
}

impl Place {
    async fn step(&self, caller: &Caller, request: CodeRunRequest) -> Result<CodeRun, Failure> {
        let id = self.session.id.to_string();
        code_runs::execute(&self.server, &*self.streams, caller, &id, request).await
    }

    /// Goes on with a run until it is over or asks; gives everything that it showed.
    async fn through(&self, caller: &Caller, request: CodeRunRequest) -> CodeRun {
        let language = request.language;
        let mut all = self.step(caller, request).await.expect("begun");
        while all.status == CodeRunStatus::Continued {
            let next = CodeRunRequest {
                mode: CodeMode::Continue,
                language,
                run_id: all.run_id.clone(),
                ..CodeRunRequest::default()
            };
            let more = self.step(caller, next).await.expect("it goes on");
            all.console.extend(more.console.iter().cloned());
            all = CodeRun {
                console: all.console,
                ..more
            };
        }
        all
    }

    async fn python(&self, caller: &Caller, code: &str) -> CodeRun {
        self.through(caller, request(CodeMode::Query, code)).await
    }

    async fn shell(&self, caller: &Caller, code: &str) -> CodeRun {
        let request = CodeRunRequest {
            language: CodeLanguage::Shell,
            ..request(CodeMode::Query, code)
        };
        self.through(caller, request).await
    }
}

/// A place with a session that runs, and the caller who started it.
async fn place_of(whole: &Whole) -> (Place, Caller) {
    let (server, streams) = (whole.server.clone(), Arc::clone(&whole.streams));
    let root = access::local_root(&server);
    let launched = LaunchRequest {
        name: Some("work".to_owned()),
        kind: SessionKind::Batch,
        image: "host".to_owned(),
        command: vec!["sleep".to_owned(), "1000".to_owned()],
        ..LaunchRequest::default()
    };
    let launched = sessions::launch(&server, &root, launched, None).await;
    let id = launched.expect("launched").sessions.remove(0).id;
    let session = until("it runs", async || {
        let seen = sessions::get(&server, &root, &id.to_string()).await;
        let seen = seen.expect("it is there");
        assert!(seen.ended_at.is_none(), "{:?}", seen.reason);
        (seen.state == SessionState::Running).then_some(seen)
    })
    .await;
    let place = Place {
        server,
        streams,
        session,
    };
    (place, root)
}

/// The main container of a place's session.
fn container_of(place: &Place) -> ContainerName {
    ContainerName {
        session: place.session.id,
        incarnation: 1,
        index: 0,
    }
}

fn shown(run: &CodeRun, stream: ConsoleStream) -> String {
    let pieces = run.console.iter().filter(|piece| piece.stream == stream);
    pieces.map(|piece| piece.text.as_str()).collect()
}

fn code_of(refused: Result<CodeRun, Failure>) -> String {
    match refused {
        Err(Failure::Refusal(refusal)) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// Promise (Isolation and access): Code runs in an interpreter that stays between runs; its output is bounded, it can be asked,
/// interrupted and ended, and it ends within seconds with its user's right.
#[tokio::test(flavor = "multi_thread")]
async fn code_runs_in_an_interpreter_that_stays_as_long_as_its_user_may() {
    const NAME: &str = "code_runs_in_an_interpreter_that_stays_as_long_as_its_user_may";
    let Some(whole) = Whole::begin(NAME, true) else {
        return;
    };
    let (place, root) = place_of(&whole).await;
    stays_in_a_shell(&place, &root).await;
    let container = container_of(&place);
    let wanted = vec!["python3".to_owned()];
    let found = place.streams.programs(container, wanted).await;
    if found.expect("looked").is_empty() {
        skips::skip(NAME, "needs python3 on this machine");
    } else {
        stays_in_python(&place, &root).await;
        shows_what_ipython_offers(&place, &root).await;
        ends_with_the_right(&place, &root, container).await;
    }

    let id = place.session.id.to_string();
    sessions::stop(&place.server, &root, &id, true)
        .await
        .expect("stopped");
    let ended = place.step(&root, request(CodeMode::Query, "1")).await;
    assert_eq!(code_of(ended), "code.session-not-running");
    whole.end().await;
}

/// Proves too: `code_runs_in_an_interpreter_that_stays_as_long_as_its_user_may`
#[tokio::test(flavor = "multi_thread")]
async fn r_stays_between_runs_shows_pictures_asks_and_is_interrupted() {
    const NAME: &str = "r_stays_between_runs_shows_pictures_asks_and_is_interrupted";
    if !std::path::Path::new("/usr/bin/R").exists() {
        return skips::skip(NAME, "needs R on this machine");
    }
    let Some(whole) = Whole::begin(NAME, true) else {
        return;
    };
    let (place, root) = place_of(&whole).await;
    let of_r = |mode, code: &str| CodeRunRequest {
        language: CodeLanguage::R,
        ..request(mode, code)
    };
    let r = async |code: &str| place.through(&root, of_r(CodeMode::Query, code)).await;
    let run = r("x <- 41; invisible(x)").await;
    assert_eq!((run.console.len(), run.exit_code), (0, Some(0)), "{run:?}");
    let run = r("x + 1; cat('가\\n')").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "[1] 42\n가\n");
    let run = r("f <- function() stop('deep'); f()").await;
    assert_eq!(shown(&run, ConsoleStream::Stderr), "Error in f() : deep\n");
    assert_eq!(run.exit_code, Some(1));
    let run = r("system('echo below; echo wrong >&2; cat')").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "below\n");
    assert_eq!(shown(&run, ConsoleStream::Stderr), "wrong\n");

    let asks = r("name <- readline('who? ')").await;
    assert_eq!(asks.status, CodeRunStatus::WaitingInput);
    let answer = CodeRunRequest {
        run_id: asks.run_id.clone(),
        ..of_r(CodeMode::Input, "mina")
    };
    assert_eq!(place.through(&root, answer).await.exit_code, Some(0));
    let run = r("name").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "[1] \"mina\"\n");

    for waits in ["repeat {}", "readline('never? ')"] {
        let begun = place.step(&root, of_r(CodeMode::Query, waits)).await;
        let stop = CodeRunRequest {
            run_id: begun.expect("begun").run_id,
            ..of_r(CodeMode::Interrupt, "")
        };
        let run = place.through(&root, stop).await;
        assert_eq!(run.exit_code, Some(130), "{waits}");
    }
    let run = r("x").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "[1] 41\n", "it stayed");

    let run = r("plot(1:3)").await;
    let media = run.console.first().expect("a picture");
    assert_eq!(media.media_type.as_deref(), Some("image/png"), "{run:?}");
    let words = place
        .step(&root, of_r(CodeMode::Complete, "y <- medi"))
        .await;
    let offered = words.expect("told").completions;
    assert!(offered.iter().any(|word| word == "median"), "{offered:?}");
    let run = r("quit(status = 5)").await;
    assert!(run.interpreter_ended && run.exit_code == Some(5), "{run:?}");
    let run = r("exists('x')").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "[1] FALSE\n");
    let id = place.session.id.to_string();
    let stopped = sessions::stop(&place.server, &root, &id, true).await;
    stopped.expect("stopped");
    whole.end().await;
}

async fn stays_in_a_shell(place: &Place, root: &Caller) {
    let run = place.shell(root, "x=41; cd /tmp; echo 'it'\"s\"").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "its\n");
    assert_eq!(run.exit_code, Some(0));
    let run = place.shell(root, "echo $((x + 1)); pwd; (exit 3)").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "42\n/tmp\n");
    assert_eq!(run.exit_code, Some(3));
    let run = place.shell(root, "if").await;
    assert!(shown(&run, ConsoleStream::Stderr).contains("yntax"));
    let run = place.shell(root, "echo $x").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "41\n");
    let batch = CodeRunRequest {
        mode: CodeMode::Batch,
        language: CodeLanguage::Shell,
        batch: Some(CodeBatch {
            clean: None,
            build: Some("x=1; echo made > /tmp/made".to_owned()),
            exec: Some("cat /tmp/made; exit 6".to_owned()),
        }),
        ..CodeRunRequest::default()
    };
    let built = place.through(root, batch).await;
    assert_eq!(built.status, CodeRunStatus::BuildFinished);
    let go_on = CodeRunRequest {
        language: CodeLanguage::Shell,
        run_id: built.run_id.clone(),
        ..request(CodeMode::Continue, "")
    };
    let run = place.through(root, go_on).await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "made\n");
    assert_eq!(run.exit_code, Some(6));
    let run = place.shell(root, "echo $x").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "41\n", "left alone");
    // One that ends the interpreter is told, and the next begins without what it knew.
    let run = place.shell(root, "exit 5").await;
    assert_eq!(run.exit_code, Some(5));
    let run = place.shell(root, "echo \"none:$x\"").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "none:\n");
}

/// Writes a small package of that name below the user's own packages, with what is asked of the real one.
const IPYTHON: &str = r#"
import os, site
files = {
    "traitlets/config.py": """
class Config:
    def __init__(self):
        self.HistoryManager = type("Part", (), {})()
""",
    "IPython/core/displaypub.py": """
class DisplayPublisher:
    def __init__(self, shell=None):
        pass
""",
    "IPython/core/interactiveshell.py": """
class Formatter:
    def format(self, value):
        if value == "picture":
            return {"image/png": "cGljdHVyZQ==", "text/plain": "a picture"}, {}
        return {"text/plain": repr(value)}, {}

class InteractiveShell:
    display_formatter = Formatter()
    Completer = Formatter()

    @classmethod
    def instance(cls, config, user_ns):
        user_ns["shell"] = cls()
        return user_ns["shell"]

    def transform_cell(self, code):
        return code.replace("%answer", "6 * 7")

    def complete(self, text, line, cursor):
        return line, [line + "swer"]
""",
}
for name, text in files.items():
    path = os.path.join(site.getusersitepackages(), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
"#;

async fn shows_what_ipython_offers(place: &Place, root: &Caller) {
    let run = place.python(root, IPYTHON).await;
    assert_eq!(run.exit_code, Some(0), "{run:?}");
    let restart = || place.step(root, request(CodeMode::Restart, ""));
    restart().await.expect("ended");
    let run = place.python(root, "%answer").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "42\n");
    let run = place.python(root, "'picture'").await;
    assert_eq!(shown(&run, ConsoleStream::Media), "cGljdHVyZQ==");
    let run = place
        .python(root, "shell.display_pub.publish({'text/plain': 'words'})")
        .await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "words\n");
    let offered = place.step(root, request(CodeMode::Complete, "%an")).await;
    assert_eq!(offered.expect("told").completions, ["%answer"]);
    let gone = "import shutil, site; shutil.rmtree(site.getusersitepackages())";
    assert_eq!(place.python(root, gone).await.exit_code, Some(0));
    restart().await.expect("ended");
}

async fn stays_in_python(place: &Place, root: &Caller) {
    let run = place.python(root, "x = 41").await;
    assert_eq!(
        (run.status, run.exit_code),
        (CodeRunStatus::Finished, Some(0))
    );
    let run = place.python(root, "x + 1").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "42\n");
    let run = place.python(root, "1 / 0").await;
    assert!(shown(&run, ConsoleStream::Stderr).contains("ZeroDivisionError"));
    assert_eq!(run.exit_code, Some(1));

    let asks = place.python(root, "name = input('who? ')").await;
    assert_eq!(asks.status, CodeRunStatus::WaitingInput);
    assert_eq!(shown(&asks, ConsoleStream::Stdout), "who? ");
    let busy = place.step(root, request(CodeMode::Query, "2")).await;
    assert_eq!(code_of(busy), "code.busy");
    let answer = CodeRunRequest {
        run_id: asks.run_id.clone(),
        ..request(CodeMode::Input, "mina")
    };
    assert_eq!(place.through(root, answer).await.exit_code, Some(0));
    let run = place.python(root, "name").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "'mina'\n");

    let begun = place
        .step(root, request(CodeMode::Query, "while True: pass"))
        .await
        .expect("begun");
    assert_eq!(begun.status, CodeRunStatus::Continued);
    let stop = CodeRunRequest {
        run_id: begun.run_id.clone(),
        ..request(CodeMode::Interrupt, "")
    };
    let run = place.through(root, stop).await;
    assert!(shown(&run, ConsoleStream::Stderr).contains("KeyboardInterrupt"));
    assert_eq!(run.exit_code, Some(130));
    let run = place.python(root, "x").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout), "41\n", "it stayed");

    let run = place.python(root, "print('a' * 10_000_000)").await;
    assert_eq!(shown(&run, ConsoleStream::Stdout).len(), MAX_RUN_BYTES);
    assert!(run.notice.is_some_and(|notice| notice.contains("4 MiB")));
    let run = place
        .python(root, "import os; os.system('echo below; echo wrong >&2')")
        .await;
    assert!(shown(&run, ConsoleStream::Stdout).starts_with("below\n"));
    assert_eq!(shown(&run, ConsoleStream::Stderr), "wrong\n");

    let picture = "class P:\n def _repr_png_(self): return b'\\x89PNG'\nP()";
    let run = place.python(root, picture).await;
    let media = run.console.first().expect("a picture");
    assert_eq!(media.media_type.as_deref(), Some("image/png"));
    assert_eq!(media.text, "iVBORw==");
    let page = "show_media('text/html', '<script>x</script>')";
    let run = place.python(root, page).await;
    assert_eq!(run.console[0].stream, ConsoleStream::Media, "data, no page");

    let words = place
        .step(root, request(CodeMode::Complete, "os.pat"))
        .await
        .expect("asked");
    let offered = &words.completions;
    assert!(offered.iter().any(|word| word == "os.path"), "{offered:?}");
    place
        .step(root, request(CodeMode::Restart, ""))
        .await
        .expect("restarted");
    let run = place.python(root, "x").await;
    assert!(shown(&run, ConsoleStream::Stderr).contains("NameError"));
    place
        .step(root, request(CodeMode::Restart, ""))
        .await
        .expect("restarted");
}

async fn ends_with_the_right(place: &Place, root: &Caller, container: ContainerName) {
    // The second one, since the last administrator is not suspended.
    for name in ["jisoo", "mina"] {
        let made = users::create(&place.server, root, name, Role::Administrator, PASSWORD).await;
        made.expect("made");
    }
    let here: IpAddr = Ipv4Addr::LOCALHOST.into();
    let signed_in = access::sign_in(&place.server, "mina", PASSWORD, here).await;
    let mina = signed_in.expect("the password is right").caller;
    let begun = place
        .step(&mina, request(CodeMode::Query, "while True: pass"))
        .await
        .expect("begun");
    assert_eq!(begun.status, CodeRunStatus::Continued);
    // The interpreter of another user has another run.
    let other = CodeRunRequest {
        run_id: begun.run_id.clone(),
        ..request(CodeMode::Continue, "")
    };
    assert_eq!(code_of(place.step(root, other).await), "code.run-unknown");
    let runs = async || {
        let all = place.streams.processes(container).await.expect("looked");
        all.iter().any(|process| process.name.starts_with("python"))
    };
    assert!(runs().await);
    let suspended = users::suspend(&place.server, root, "mina", true, None).await;
    suspended.expect("suspended");
    let since = Instant::now();
    while runs().await {
        assert!(since.elapsed() < SOON, "it goes on without a right");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
