//! The support bundle of a real box in which secrets of every kind were planted: none of them is in
//! it, whether it is made by command, by API or from a page's preview.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer: the suite hangs when the server does. Shorter: a loaded machine fails for nothing.
const TIMEOUT: Duration = Duration::from_secs(30);
const PASSWORD: &str = "correct-horse-planted-77";

struct Box {
    folder: tempfile::TempDir,
    address: SocketAddr,
    server: Child,
}

impl Drop for Box {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Box {
    fn open() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|taken| taken.local_addr())
            .expect("a free port");
        let server = command(folder.path(), address, &["serve"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let end = Instant::now() + TIMEOUT;
        let socket = folder.path().join("run/fardel.sock");
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < end, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self {
            folder,
            address,
            server,
        }
    }

    fn run(&self, words: &[&str]) -> Output {
        command(self.folder.path(), self.address, words)
            .output()
            .expect("the binary starts")
    }

    fn text(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }
}

fn command(folder: &Path, address: SocketAddr, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fardel"));
    command
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("XDG_CONFIG_HOME", folder)
        .env("FARDEL_CONFIG", folder.join("fardel.toml"))
        .env("FARDEL_DATA", folder.join("data"))
        .env("FARDEL_RUN", folder.join("run"))
        .env("FARDEL_POOL_SIZE", "none")
        .env("FARDEL_SESSION_DISK", "none")
        .env("FARDEL_LISTEN", address.to_string())
        // What is looked at has no home but where a test says so.
        .env("FARDEL_HOMES", "false")
        .stdin(Stdio::null());
    command
}

/// Everything the archive holds, names and contents, as one text.
fn unpacked(bytes: &[u8]) -> String {
    assert!(bytes.starts_with(&[0x1f, 0x8b]), "not gzip");
    let mut child = Command::new("tar")
        .args(["-xzO", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("tar is on every Debian");
    let mut input = child.stdin.take().expect("piped");
    let sent = bytes.to_vec();
    let feeder = std::thread::spawn(move || std::io::Write::write_all(&mut input, &sent));
    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut text)
        .expect("text");
    feeder.join().expect("fed").expect("taken");
    assert!(child.wait().expect("it ends").success());
    text
}

impl Box {
    /// Makes somebody and gives their token.
    fn user(&self, name: &str) -> String {
        let secret = self.folder.path().join("password");
        std::fs::write(&secret, PASSWORD).expect("written");
        let file = secret.display().to_string();
        self.text(&["user", "add", name, "--password-file", &file]);
        let sign_in = serde_json::json!({"name": name, "password": PASSWORD}).to_string();
        let token: serde_json::Value =
            serde_json::from_str(&self.text(&["api", "POST", "/sign-in", &sign_in])).expect("JSON");
        token["secret"].as_str().expect("a secret").to_owned()
    }
}

#[test]
fn a_reason_that_names_a_user_stays_out_of_a_support_bundle() {
    let the_box = Box::open();
    let own = the_box.folder.path().join("token");
    std::fs::write(&own, the_box.user("hyejin.planted")).expect("written");
    let own = own.display().to_string();
    let launched = the_box.run(&[
        "--token-file",
        &own,
        "run",
        "-d",
        "--name",
        "planted-own",
        "--start-at",
        "+1h",
        "host",
        "--",
        "true",
    ]);
    let said = String::from_utf8_lossy(&launched.stderr);
    if said.contains("code node.refuses.") {
        skips::skip(
            "a_reason_that_names_a_user_stays_out_of_a_support_bundle",
            said.lines().nth(1).unwrap_or_default().trim(),
        );
        return;
    }
    assert!(launched.status.success(), "{said}");
    the_box.text(&["--token-file", &own, "session", "kill", "planted-own"]);
    let seen = the_box.text(&["session", "get", "planted-own", "-o", "json"]);
    assert!(
        seen.contains("hyejin.planted"),
        "the reason names nobody: {seen}"
    );
    let bundle = the_box.text(&["support", "bundle", "--preview"]);
    assert!(!bundle.contains("hyejin.planted"), "{bundle}");
    // Why it ended is there, by its code.
    assert!(bundle.contains("session.stopped"), "{bundle}");
}

#[test]
fn nothing_secret_or_personal_is_in_a_support_bundle() {
    let the_box = Box::open();
    let printed = the_box.text(&["setup-link"]);
    let code = printed
        .split("code=")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .expect("a setup link")
        .to_owned();
    let token = the_box.user("hyejin.planted");
    // Whether it can run or not (an ordinary user's cannot): its row holds all of this.
    the_box.run(&[
        "run",
        "-d",
        "--name",
        "planted-session",
        "-e",
        "WANDB_API_KEY=planted-variable-9f8e7d",
        "host",
        "--",
        "sh",
        "-c",
        "echo planted-command",
    ]);
    // Secrets that a careless program left where the bundle looks.
    let log = the_box.folder.path().join("data/logs/planted");
    std::fs::create_dir_all(&log).expect("made");
    std::fs::write(
        log.join("shim.log"),
        format!("refused Authorization: Bearer {token}\n-----BEGIN PRIVATE KEY-----\nplantedkeyline\n-----END PRIVATE KEY-----\nhyejin.planted stopped it\nkept line\n"),
    )
    .expect("written");

    let archive = the_box.folder.path().join("bundle.tar.gz");
    the_box.text(&["support", "bundle", &archive.display().to_string()]);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = archive.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others may read it");
    let of_file = unpacked(&std::fs::read(&archive).expect("readable"));
    let output = the_box.run(&["api", "POST", "/support-bundles"]);
    let of_api = unpacked(&output.stdout);
    let preview = the_box.text(&["support", "bundle", "--preview"]);

    for (door, text) in [("file", &of_file), ("api", &of_api), ("preview", &preview)] {
        for planted in [
            PASSWORD,
            &code,
            &token,
            token.trim_start_matches("fardel_"),
            "planted-variable-9f8e7d",
            "planted-command",
            "hyejin.planted",
            "plantedkeyline",
            "$argon2",
        ] {
            assert!(
                !text.contains(planted),
                "{door}: {planted} is in the bundle"
            );
        }
        // What helps is there.
        for wanted in [
            "kept line",
            // A line for each value: the page shows it as it is.
            "\"id\": \"kernel\"",
            "\"key\": \"keep_days\"",
            "MemTotal",
            "support bundle",
        ] {
            assert!(text.contains(wanted), "{door}: {wanted} is missing");
        }
    }
}

#[test]
fn a_bundle_is_made_while_the_server_is_down_and_never_over_a_half_one() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let file = folder.path().join("bundle.tar.gz");
    let output = command(folder.path(), address, &["support", "bundle"])
        .arg(&file)
        .output()
        .expect("the binary starts");
    assert!(output.status.success(), "{output:?}");
    let text = unpacked(&std::fs::read(&file).expect("readable"));
    assert!(
        text.contains("server."),
        "it says that no server answers: {text}"
    );
    let nowhere = folder.path().join("no/such/folder.tar.gz");
    let refused = command(folder.path(), address, &["support", "bundle"])
        .arg(&nowhere)
        .output()
        .expect("the binary starts");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("support.not-written"), "{said}");
}
