//! The real binary as a client of the box: what it prints, what it returns, what it says about
//! mistakes. The server answers over a socket, the machine is a fake.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::the_box::{As, PASSWORD, TheBox};

struct Said {
    code: i32,
    out: String,
    err: String,
}

/// `fardel` with the words of `line` (single quotes keep blanks together), away from any settings
/// and sign-in of whoever runs the tests.
fn command(folder: &Path, line: &str, more: &[(&str, &str)]) -> Command {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_fardel"));
    command
        .args(words)
        .env_clear()
        .env("FARDEL_RUN", folder)
        .env("FARDEL_CONFIG", "/nonexistent")
        .env("XDG_CONFIG_HOME", folder)
        .env("HOME", folder)
        .env("LANG", "C")
        .envs(more.iter().copied())
        .stdin(Stdio::null());
    if more.iter().any(|(name, _)| *name == "ELSEWHERE") {
        command.env_remove("FARDEL_RUN");
    }
    command
}

/// Runs it to its end.
fn fardel(folder: &Path, line: &str, more: &[(&str, &str)]) -> Said {
    let output = command(folder, line, more)
        .output()
        .expect("the binary of this build starts");
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs on a thread of its own, so that the server of the test goes on.
async fn say(the_box: &TheBox, line: &str) -> Said {
    say_with(the_box, line, &[]).await
}

async fn say_with(the_box: &TheBox, line: &str, more: &[(&str, &str)]) -> Said {
    let folder = the_box.folder.path().to_owned();
    let line = line.to_owned();
    let more: Vec<(String, String)> = more
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect();
    tokio::task::spawn_blocking(move || {
        let more: Vec<(&str, &str)> = more.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        fardel(&folder, &line, &more)
    })
    .await
    .expect("the thread ends")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_prints_what_the_session_wrote_and_returns_its_code() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    let run = say(&the_box, "run --name seven host -- exit 7").await;
    assert_eq!(
        (run.code, run.out.as_str(), run.err.as_str()),
        (7, super::fake_machine::LOG, "")
    );
    let detached = say(&the_box, "run -d -q --name later host -- sleep").await;
    assert_eq!((detached.code, detached.out.as_str()), (0, "later\n"));
    let logs = say(&the_box, "logs seven").await;
    assert_eq!(
        (logs.code, logs.out.as_str()),
        (0, super::fake_machine::LOG)
    );
    let waited = say(&the_box, "run -d --wait=ended --name zero host -- exit 0").await;
    assert_eq!((waited.code, waited.out.as_str()), (0, "zero  ended 0\n"));
    let exec = say(&the_box, "exec later exit 9").await;
    assert_eq!(
        (exec.code, exec.out.as_str(), exec.err.as_str()),
        (9, "out\n", "err\n")
    );
    let request = the_box
        .streams
        .execs
        .lock()
        .expect("no test panics with it")
        .pop();
    assert_eq!(
        request.map(|r| r.argv),
        Some(vec!["exit".to_owned(), "9".to_owned()])
    );
}

/// What a run in the foreground said until a signal ended it, the line before the signal first, and its code.
struct SignalledRun {
    before: String,
    after: String,
    code: Option<i32>,
}

/// Runs the line in the foreground and sends it the signal once `ready` gives what was said until then.
async fn signalled(
    the_box: &TheBox,
    line: &str,
    signal: Signal,
    ready: impl FnOnce(&mut BufReader<ChildStderr>) -> String + Send + 'static,
) -> SignalledRun {
    let folder = the_box.folder.path().to_owned();
    let line = line.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut run = command(&folder, &line, &[]);
        run.stdout(Stdio::null()).stderr(Stdio::piped());
        // What this test was started to ignore, the run would ignore too.
        let by_default = || -> std::io::Result<()> {
            for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
                // SAFETY: it sets no handler of ours.
                unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
            }
            Ok(())
        };
        // SAFETY: it calls signal(2) alone, which may be called between fork and exec.
        unsafe { run.pre_exec(by_default) };
        let mut child = run.spawn().expect("the binary of this build starts");
        let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
        let before = ready(&mut said);
        let pid = Pid::from_raw(child.id().cast_signed());
        kill(pid, signal).expect("it is ours");
        let mut after = String::new();
        said.read_to_string(&mut after).expect("it writes text");
        let code = child.wait().expect("it ends").code();
        SignalledRun {
            before,
            after,
            code,
        }
    })
    .await
    .expect("the thread ends")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_says_why_and_a_signal_takes_it_out_of_the_queue() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    for (name, signal, code) in [
        ("one", Signal::SIGINT, 130),
        ("two", Signal::SIGTERM, 143),
        ("three", Signal::SIGHUP, 129),
    ] {
        let line = format!("run --start-at +1h --name {name} host -- sleep");
        let run = signalled(&the_box, &line, signal, |said| {
            let mut line = String::new();
            said.read_line(&mut line).expect("it writes text");
            line
        })
        .await;
        let waits = format!("{name} waits in the queue: ");
        assert!(run.before.starts_with(&waits), "{}", run.before);
        let gone = format!("{name} waited; it is out of the queue now");
        assert!(run.after.contains(&gone), "{}", run.after);
        assert_eq!(run.code, Some(code), "{name}");
        assert_eq!(say(&the_box, "ps -q").await.out, "", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_a_signal_ends_leaves_a_session_that_started() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    let folder = the_box.folder.path().to_owned();
    let run = signalled(
        &the_box,
        "run --name stays host -- sleep",
        Signal::SIGTERM,
        move |_| {
            let begun = Instant::now();
            while !fardel(&folder, "ps -q --query state:running", &[])
                .out
                .contains("stays")
            {
                assert!(begun.elapsed() < Duration::from_secs(30), "it starts");
            }
            String::new()
        },
    )
    .await;
    assert_eq!(run.code, Some(143));
    let goes_on = "stays goes on; fardel attach stays comes back, fardel stop stays ends it";
    assert!(run.after.contains(goes_on), "{}", run.after);
    assert_eq!(say(&the_box, "ps -q").await.out, "stays\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_format_says_the_same() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    say(
        &the_box,
        "run -d --wait --name one -l team=vision --cpu 0.5 --mem 256m host -- sleep",
    )
    .await;
    let table = say(&the_box, "ps --columns name,state,image,cpu,memory,owner")
        .await
        .out;
    assert_eq!(
        table,
        "NAME  STATE    IMAGE  CPU  MEMORY   OWNER\none   running  host   0.5  256 MiB  root\n"
    );
    let json: Value = serde_json::from_str(&say(&the_box, "ps -o json").await.out).expect("JSON");
    let api = the_box
        .get(&As::Root, "/api/v1/sessions?q=state:live")
        .await
        .json();
    assert_eq!(json, api, "-o json is not the API's body");
    let one: Value =
        serde_json::from_str(&say(&the_box, "session get one -o json").await.out).expect("JSON");
    assert_eq!(
        (one["state"].as_str(), &one["exit_code"]),
        (Some("running"), &Value::Null)
    );
    assert_eq!(one["resources"]["memory"], 268_435_456);
    let yaml: Value =
        serde_yaml_ng::from_str(&say(&the_box, "session get one -o yaml").await.out).expect("YAML");
    assert_eq!(yaml, one);
    assert_eq!(say(&the_box, "ps -o name").await.out, "one\n");
    assert_eq!(
        say(&the_box, "ps -o csv --columns name,labels").await.out,
        "name,labels\none,team=vision\n"
    );
    assert_eq!(say(&the_box, "ps -o jsonl").await.out.lines().count(), 1);
    let explained = say(&the_box, "--explain session stop one").await;
    assert!(
        explained.err.contains("curl -X POST --unix-socket"),
        "{}",
        explained.err
    );
    assert!(
        explained.err.contains("/api/v1/sessions/one/stop"),
        "{}",
        explained.err
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_have_their_exit_codes_and_say_what_would_work() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    say(&the_box, "run -d --wait --name taken host -- sleep").await;
    let mut wrong = Vec::new();
    for (line, code, words) in [
        ("session get nobody", 3, "session.not-found"),
        ("run --name taken host -- true", 5, "session.name-taken"),
        ("run no-such:1 -- true", 3, "image.not-found"),
        ("run --mem 0 host -- true", 2, "memory.too-small"),
        ("run --mem 12q host -- true", 2, "256m"),
        (
            "run --mem 1000000000000 host -- true",
            6,
            "memory.too-large",
        ),
        ("run --cpu 64 host -- true", 6, "cpu.too-large"),
        ("run --cpu 0.001 host -- true", 2, "at most two decimals"),
        (
            "run --replicas 10000 -d host -- true",
            2,
            "replicas.out-of-range",
        ),
        ("run --name ../x host -- true", 2, "session.name-invalid"),
        ("run -l '=x' host -- true", 2, "team=vision"),
        ("run --after nobody host -- true", 3, "dependency.not-found"),
        ("run host", 2, "-it"),
        (
            "session rename taken x --if-match 999999",
            5,
            "session.stale",
        ),
        ("session set taken", 2, "--cpu 2"),
        ("session rm taken", 5, "session.live"),
        ("session get nobody taken", 2, "unexpected argument"),
        ("frobnicate", 2, "unrecognized subcommand"),
        ("ps --columns colour", 2, "Columns here"),
        ("image import /no/such/file.tar", 2, "docker save"),
        ("image get nobody", 3, "image.not-found"),
        ("job get nobody", 3, "operation.not-found"),
        ("user get nobody", 3, "user.not-found"),
        ("token create t --scope everything --expires 1y", 2, "90s"),
        ("--server http://127.0.0.1:1 ps", 8, "connection refused"),
        ("--server http://no.such.name ps", 8, "/etc/hosts"),
        ("--server https://no.such.name ps", 8, "/etc/hosts"),
        ("--server ftp://box ps", 2, "is not the address"),
        ("--run /nonexistent ps", 8, "fardel serve"),
        ("session stop nobody taken", 9, "session.not-found"),
        (
            "run --wait=ended --wait-timeout 0s -d --name slow host -- sleep",
            7,
            "wait.timeout",
        ),
        ("config validate /no/such.toml", 2, "setting.file-missing"),
        ("man no-such-page", 3, "fardel-run"),
    ] {
        let said = say(&the_box, line).await;
        if said.code != code || !said.err.contains(words) {
            wrong.push(format!("{line}: {} {}", said.code, said.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let json = say(&the_box, "session get nobody -o json").await;
    let problem: Value =
        serde_json::from_str(&json.err).expect("a problem document on standard error");
    assert_eq!(
        (problem["code"].as_str(), json.out.as_str()),
        (Some("session.not-found"), "")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_is_remembered_and_forgotten() {
    let the_box = TheBox::open().await;
    let (address, _) = the_box.serve().await;
    let secret = the_box.folder.path().join("password");
    std::fs::write(&secret, format!("{PASSWORD}\n")).expect("written");
    // Without FARDEL_RUN: somebody on another machine.
    let elsewhere = [("ELSEWHERE", "1")];
    let login = format!(
        "login http://{address} --name mina --password-file {}",
        secret.display()
    );
    let signed_in = say_with(&the_box, &login, &elsewhere).await;
    assert_eq!(signed_in.code, 0, "{}", signed_in.err);
    assert_eq!(
        say_with(&the_box, "me get -o name", &elsewhere).await.out,
        "mina\n"
    );
    let made = say_with(
        &the_box,
        "token create robot --scope sessions:read -q",
        &elsewhere,
    )
    .await;
    assert!(made.out.starts_with("fardel_"), "{}", made.err);
    let as_robot = [("ELSEWHERE", "1"), ("FARDEL_TOKEN", made.out.trim())];
    assert_eq!(say_with(&the_box, "ps", &as_robot).await.code, 0);
    assert_eq!(
        say_with(&the_box, "run -d host -- x", &as_robot).await.code,
        4
    );
    assert_eq!(
        say_with(&the_box, "token rm robot", &elsewhere).await.code,
        0
    );
    assert_eq!(say_with(&the_box, "ps", &as_robot).await.code, 4);
    let file = the_box.folder.path().join("fardel/login.json");
    assert!(file.exists());
    assert_eq!(say_with(&the_box, "logout", &elsewhere).await.code, 0);
    assert!(!file.exists());
    let wrong = format!("login http://{address} --name mina --password-file /dev/null");
    assert_eq!(say_with(&the_box, &wrong, &elsewhere).await.code, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_on_standard_input_leaves_the_first_code_of_a_second_factor_there() {
    let the_box = TheBox::open().await;
    let (address, _) = the_box.serve().await;
    let secret = the_box.folder.path().join("password");
    std::fs::write(&secret, format!("{PASSWORD}\n")).expect("written");
    let login = format!(
        "login http://{address} --name mina --password-file {}",
        secret.display()
    );
    let signed_in = say_with(&the_box, &login, &[("ELSEWHERE", "1")]).await;
    assert_eq!(signed_in.code, 0, "{}", signed_in.err);
    let folder = the_box.folder.path().to_owned();
    let (key, answer) = tokio::task::spawn_blocking(move || {
        let line = "me second-factor on --password-stdin";
        let mut on = command(&folder, line, &[("ELSEWHERE", "1")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary of this build starts");
        let mut input = on.stdin.take().expect("a pipe");
        let mut told = BufReader::new(on.stderr.take().expect("a pipe"));
        writeln!(input, "{PASSWORD}").expect("written");
        // The key comes while the input is open: whoever reads it then knows the code.
        let mut key = String::new();
        while !key.contains("otpauth://") && told.read_line(&mut key).expect("text") > 0 {}
        writeln!(input, "no code").expect("written");
        drop(input);
        let mut answer = String::new();
        told.read_to_string(&mut answer).expect("text");
        on.wait().expect("it ends");
        (key, answer)
    })
    .await
    .expect("the thread ends");
    assert!(key.contains("otpauth://totp/"), "{key}");
    assert!(answer.contains("second-factor.wrong"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_changed_by_words() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    for (line, out) in [
        ("run -d --wait --name a host -- sleep", "a  running\n"),
        ("session pause a", "a  running, paused\n"),
        ("session resume a", "a  running\n"),
        ("session rename a b", "b  running\n"),
        ("session set b -l x=1 --cpu 2", "b  running\n"),
        (
            "session get b --columns labels,cpu",
            "labels  x=1\ncpu     2\n",
        ),
        ("session set b -l x=", "b  running\n"),
        ("why b", "It runs on box.\n"),
        ("queue ls", ""),
        ("session duplicate b --name c -q", "c\n"),
        ("rm --force c", "c  removed\n"),
        ("session rm --force b", "b  removed\n"),
        ("ps -a -o name", ""),
        ("top", "box  cpu 0 of 4  memory 0 B of 8 GiB\n"),
    ] {
        let said = say(&the_box, line).await;
        assert_eq!(
            (said.code, said.out.as_str()),
            (0, out),
            "{line}: {}",
            said.err
        );
    }
    let dry = say(&the_box, "run --dry-run --cpu 4 host -- true").await;
    assert_eq!(dry.code, 0);
    assert!(dry.out.contains("box"), "{}", dry.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_nodes_settings_and_history_are_read_and_changed_by_words() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    say(&the_box, "run -d --wait=ended --name seven host -- exit 7").await;
    let file = say(
        &the_box,
        "event ls --object seven --since 1h --columns code,object,who -o csv",
    )
    .await;
    assert!(file.out.starts_with("code,object,who\n"), "{}", file.err);
    assert!(
        file.out.contains("session.accepted,seven,root\n"),
        "{}",
        file.out
    );
    let one = say(&the_box, "events ls seven ended -n 1 -o json").await;
    let one: Value = serde_json::from_str(&one.out).expect("JSON");
    assert_eq!(one["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["items"][0]["code"], "session.ended");
    let all = say(&the_box, "event ls -n 1000 -o jsonl").await.out;
    let api = the_box
        .get(&As::Root, "/api/v1/events/search?limit=500")
        .await
        .json();
    let api = api["items"].as_array().map(Vec::len);
    assert_eq!(Some(all.lines().count()), api);

    for (line, out) in [
        ("event ls --user nobody", ""),
        ("node ls --columns name,state", "NAME  STATE\nbox   ready\n"),
        (
            "node maintenance on -m 'new fans'",
            "box  maintenance  new fans\n",
        ),
        ("node maintenance off box", "box  ready\n"),
        (
            "config set backup_keep 9 --dry-run",
            "backup_keep  7 → 9  (would be in force; nothing was written)\n",
        ),
        ("settings set backup_keep 9", "backup_keep  7 → 9\n"),
        (
            "config get backup_keep --columns value,undo",
            "value  9\nundo   default\n",
        ),
        ("config undo backup_keep", "backup_keep  9 → 7\n"),
        (
            "config set gpu_units 10",
            "gpu_units  1 → 10  (after a restart of the server)\n",
        ),
        ("config unset gpu_units", "gpu_units  10 → 1\n"),
        ("notices --read -o name", "seven\n"),
        ("notices --columns new -o csv", "new\n-\n"),
    ] {
        let said = say(&the_box, line).await;
        assert_eq!(
            (said.code, said.out.as_str()),
            (0, out),
            "{line}: {}",
            said.err
        );
    }
    for (line, code) in [
        ("event ls --since yesterday", 2),
        ("event ls -n 0", 2),
        ("config set backup_keep 0", 2),
        ("config unset listen", 5),
        ("config get nothing", 2),
        ("node get nobody", 3),
        ("history --of user:nobody", 3),
    ] {
        let said = say(&the_box, line).await;
        assert_eq!(said.code, code, "{line}: {}{}", said.out, said.err);
    }
    let node = say(&the_box, "node get").await;
    assert!(node.out.starts_with("box  ready\n"), "{}", node.err);
    let history = say(&the_box, "history --range hour -o csv").await;
    assert!(history.out.starts_with("time,"), "{}", history.err);
    let settings = say(&the_box, "settings ls --columns key,value -o csv").await;
    assert!(
        settings.out.contains("\nbackup_keep,7\n"),
        "{}",
        settings.err
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_everybodys_sessions_and_a_second_one_has_nothing_to_do() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    for (line, out) in [
        ("run -d --wait --name a host -- sleep", "a  running\n"),
        (
            "run -d --start-at +1h --name b host -- sleep",
            "b  pending\n",
        ),
    ] {
        let said = say(&the_box, line).await;
        assert_eq!(
            (said.code, said.out.as_str()),
            (0, out),
            "{line}: {}",
            said.err
        );
    }
    let order = serde_json::json!({"name": "minas", "command": ["sleep"], "kind": "batch"});
    the_box.launch(&the_box.mina, order).await;
    let said = say(&the_box, "drain").await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "3 sessions ended; none is left\n"),
        "{}",
        said.err
    );
    assert_eq!(say(&the_box, "ps --everybody -o name").await.out, "");
    assert_eq!(
        say(&the_box, "drain").await.out,
        "0 sessions ended; none is left\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_setup_link_of_a_box_that_is_set_up_leads_to_the_sign_in() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    let said = say(&the_box, "setup-link").await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "https://127.0.0.1:7860/login\n"),
        "{}",
        said.err
    );
    assert!(said.err.contains("already set up"), "{}", said.err);
    assert_eq!(say(&the_box, "setup-link -q").await.err, "");
}

#[test]
fn a_broken_settings_file_hides_neither_the_manual_nor_a_good_example() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("fardel.toml");
    std::fs::write(&file, "lisen = 1\n").expect("written");
    let broken = file.display().to_string();
    let with = [("FARDEL_CONFIG", broken.as_str())];
    assert_eq!(fardel(folder.path(), "config validate", &with).code, 2);
    let example = fardel(folder.path(), "config sample", &with);
    assert_eq!(example.code, 0, "{}", example.err);
    std::fs::write(&file, example.out).expect("written");
    let good = fardel(folder.path(), "config validate", &with);
    assert_eq!(good.code, 0, "{}", good.err);
    std::fs::write(&file, "lisen = 1\n").expect("written");
    assert_eq!(fardel(folder.path(), "man fardel.toml", &with).code, 0);
}

#[test]
fn pages_and_completion_come_from_the_binary_itself() {
    let nowhere = Path::new("/nonexistent");
    let page = fardel(nowhere, "man run", &[]);
    assert_eq!(page.code, 0);
    assert!(page.out.contains(".TH") && page.out.contains("replicas"));
    for shell in ["bash", "zsh", "fish"] {
        let script = fardel(nowhere, &format!("completion {shell}"), &[]);
        assert!(
            script.code == 0 && script.out.contains("session"),
            "{shell}"
        );
    }
    let korean = fardel(nowhere, "--help", &[("LANG", "ko_KR.UTF-8")]);
    assert!(korean.out.contains("세션"), "{}", korean.out);
    assert_eq!(
        fardel(nowhere, "--version", &[]).out,
        format!("fardel {}\n", env!("CARGO_PKG_VERSION"))
    );
}
