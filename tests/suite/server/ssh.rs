//! SSH as its users meet it: OpenSSH's own `ssh`, `scp`, `sftp` and rsync, unmodified, through the door into sessions. What
//! a session runs is run here by a process of this machine, so that no container is needed; the guest that serves files is
//! the one of the product.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base::link::streams::{
    BoxFuture, ByteStream, ExecGuest, ExecRequest, LogStream, Streams, TermInput, TermOutput,
    TermStream, WindowSize,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fardel::doors;
use rules::names::ContainerName;
use serde_json::json;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::the_box::{As, TheBox};
use crate::programs::install;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);
/// What is promised of a right that ended.
const SOON: Duration = Duration::from_secs(2);
/// Connections without a proven key that the door keeps.
const MAX_STRANGERS: usize = 64;

/// Runs what a session would run as a process of this machine, in a directory of its own.
struct HereStreams {
    folder: PathBuf,
    files: PathBuf,
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    shown: mpsc::Sender<TermOutput>,
    piece: fn(Bytes) -> TermOutput,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let bytes = Bytes::copy_from_slice(&buffer[..count]);
        if shown.send(piece(bytes)).await.is_err() {
            return;
        }
    }
}

impl Streams for HereStreams {
    fn attach(&self, _: ContainerName, _: Option<WindowSize>) -> BoxFuture<TermStream> {
        unreachable!("SSH starts programs of its own")
    }

    fn exec(&self, _: ContainerName, request: ExecRequest) -> BoxFuture<TermStream> {
        let program = match request.guest {
            Some(ExecGuest::Files) => vec![self.files.display().to_string()],
            None => request.argv,
        };
        let mut child = Command::new(&program[0])
            .args(&program[1..])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.folder)
            .envs(request.env)
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("it is there");
        let (input, mut typed) = mpsc::channel(64);
        let (shown, output) = mpsc::channel(2);
        let closed = shown.clone();
        tokio::spawn(async move {
            let own = child.id().and_then(|id| i32::try_from(id).ok());
            let mut to = child.stdin.take();
            let said = child.stdout.take().expect("piped");
            let errors = child.stderr.take().expect("piped");
            let fed = async {
                while let Some(piece) = typed.recv().await {
                    match piece {
                        TermInput::Bytes(bytes) => {
                            if let Some(to) = &mut to {
                                let _ = to.write_all(&bytes).await;
                            }
                        }
                        TermInput::CloseInput => to = None,
                        TermInput::Signal(number) => {
                            let group = nix::unistd::Pid::from_raw(own.expect("it lives"));
                            let signal = nix::sys::signal::Signal::try_from(number);
                            let _ = nix::sys::signal::killpg(group, signal.expect("known"));
                        }
                        TermInput::Resize(_) => {}
                    }
                }
                std::future::pending::<()>().await;
            };
            let shown = async {
                tokio::join!(
                    pass(said, shown.clone(), TermOutput::Stdout),
                    pass(errors, shown.clone(), TermOutput::Stderr),
                );
                let status = child.wait().await.expect("our own child");
                let code = status.code().or_else(|| Some(128 + status.signal()?));
                let _ = shown.send(TermOutput::Exit(code.unwrap_or(1))).await;
            };
            tokio::select! {
                () = fed => {}
                () = shown => {}
                () = closed.closed() => {}
            }
        });
        Box::pin(async move { Ok(TermStream { input, output }) })
    }

    fn logs(&self, _: ContainerName, _: u64, _: bool) -> BoxFuture<LogStream> {
        unreachable!("SSH reads no log")
    }

    fn dial(&self, _: ContainerName, port: u16) -> BoxFuture<ByteStream> {
        Box::pin(async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await;
            let stream = stream.map_err(|e| rules::refusals::port_not_answering(port, e))?;
            Ok(Box::new(stream) as ByteStream)
        })
    }
}

/// A box with a session of mina's that is called `train`, served over SSH, and a key of hers.
struct SshRig {
    the_box: TheBox,
    port: u16,
    folder: tempfile::TempDir,
    key: String,
    _leave: watch::Sender<bool>,
}

/// Whether this machine has the program; says so for the test where it has not.
fn has(test: &str, program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).exists())
    });
    if !found {
        skips::skip(test, &format!("needs `{program}`, which is not installed"));
    }
    found
}

impl SshRig {
    /// None where OpenSSH's client is not there.
    async fn open(test: &str) -> Option<Self> {
        if !has(test, "ssh") || !has(test, "ssh-keygen") {
            return None;
        }
        let the_box = TheBox::with(&[("FARDEL_LISTEN_SSH", "127.0.0.1:7822")], Vec::new()).await;
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(folder.path().join("session")).expect("made");
        let files = folder.path().join("files");
        install(&files, node::runtime::files::FILES);
        let streams = HereStreams {
            folder: folder.path().join("session"),
            files,
        };
        let mut rig = Self::around(the_box, Arc::new(streams), folder).await;
        rig.key = rig.make_key("laptop", &["-t", "ed25519"]).await;
        let added = rig.add_key(&rig.the_box.mina, "laptop").await;
        assert_eq!(added.short(), "201");
        rig.launch(&rig.the_box.mina, "train").await;
        Some(rig)
    }

    async fn around(the_box: TheBox, streams: Arc<dyn Streams>, folder: tempfile::TempDir) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let key = server::access::ssh_host_key(&the_box.server).await;
        let key = key.expect("drawn");
        let known = format!("[127.0.0.1]:{port} {}\n", key.line());
        std::fs::write(folder.path().join("known_hosts"), known).expect("written");
        let (leave, leaving) = watch::channel(false);
        let server = the_box.server.clone();
        tokio::spawn(doors::ssh::serve(listener, server, streams, key, leaving));
        Self {
            the_box,
            port,
            folder,
            key: String::new(),
            _leave: leave,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What stands in the session under that name.
    fn inside(&self, name: &str) -> PathBuf {
        self.folder.path().join("session").join(name)
    }

    async fn make_key(&self, name: &str, kind: &[&str]) -> String {
        let path = self.path(name);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-N", "", "-C", name, "-f"])
            .arg(&path)
            .args(kind)
            .output();
        let made = timeout(HANG, made)
            .await
            .expect("in time")
            .expect("it runs");
        assert!(made.status.success(), "{made:?}");
        path.display().to_string()
    }

    async fn add_key(&self, who: &As, name: &str) -> super::the_box::Answer {
        let line = std::fs::read_to_string(self.path(&format!("{name}.pub"))).expect("made");
        let body = json!({"public_key": line});
        self.the_box.post(who, "/api/v1/me/ssh-keys", body).await
    }

    async fn launch(&self, who: &As, name: &str) {
        let session = self.the_box.launch(who, json!({"name": name})).await;
        let id = session["id"].as_str().expect("an id");
        self.the_box.until(who, id, "running").await;
    }

    /// A client of OpenSSH with this rig's own configuration; `-p` of `scp` and `sftp` is another letter.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(["-F", "/dev/null", "-i", &self.key])
            .args(self.options())
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn options(&self) -> Vec<String> {
        [
            format!("Port={}", self.port),
            format!("UserKnownHostsFile={}", self.path("known_hosts").display()),
            "StrictHostKeyChecking=yes".to_owned(),
            "BatchMode=yes".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
            "IdentityAgent=none".to_owned(),
        ]
        .into_iter()
        .flat_map(|option| ["-o".to_owned(), option])
        .collect()
    }

    /// Runs `ssh` with these words.
    async fn ssh(&self, words: &[&str]) -> Output {
        ended(self.client("ssh").args(words)).await
    }
}

/// A server of this machine that gives back each byte as it comes; its port.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(stream);
                // A client that goes is no failure.
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

/// A port of this machine that was free a moment ago, for a client that listens.
async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("bound").port()
}

/// Connects to what a client listens at, as soon as it does.
async fn reached(port: u16) -> TcpStream {
    let connected = async {
        loop {
            match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(HANG, connected).await.expect("it never listens")
}

/// Reads exactly so many bytes.
async fn heard(from: &mut (impl AsyncRead + Unpin), count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let read = timeout(HANG, from.read_exact(&mut bytes)).await;
    read.expect("in time").expect("it goes on");
    bytes
}

async fn ended(command: &mut Command) -> Output {
    let output = timeout(HANG, command.output()).await.expect("it hangs");
    output.expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that no compression and no terminal leaves alone by chance.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_over_ssh_runs_in_the_session_and_ends_with_its_code() {
    const NAME: &str = "a_command_over_ssh_runs_in_the_session_and_ends_with_its_code";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    let said = rig
        .ssh(&["train@127.0.0.1", "echo out; echo err >&2; exit 7"])
        .await;
    assert_eq!(
        (text(&said.stdout), text(&said.stderr), said.status.code()),
        ("out\n".to_owned(), "err\n".to_owned(), Some(7))
    );
    // Language comes along, and nothing that changes what runs.
    let told = rig
        .ssh(&[
            "-o",
            "SetEnv=LC_FARDEL=yes LD_PRELOAD=/nowhere.so",
            "train@127.0.0.1",
            "echo \"$LC_FARDEL $LD_PRELOAD.\"",
        ])
        .await;
    assert_eq!(text(&told.stdout), "yes .\n");
    // More than every window and queue on the way, in and out at once.
    let sent = noise(24 << 20);
    let mut cat = rig.client("ssh");
    let cat = cat.args(["train@127.0.0.1", "cat"]).stdin(Stdio::piped());
    let mut cat = cat.spawn().expect("it runs");
    let mut to = cat.stdin.take().expect("piped");
    let feed = sent.clone();
    let fed = tokio::spawn(async move {
        to.write_all(&feed).await.expect("taken");
    });
    let back = timeout(HANG, cat.wait_with_output()).await;
    let back = back.expect("the two directions wait for each other");
    fed.await.expect("fed");
    assert!(back.expect("ended").stdout == sent, "a byte was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_ssh_is_left_the_cipher_that_costs_least_and_keeps_its_own_list() {
    const NAME: &str = "a_client_of_ssh_is_left_the_cipher_that_costs_least_and_keeps_its_own_list";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    #[cfg(target_arch = "x86_64")]
    let computed = std::arch::is_x86_feature_detected!("aes");
    #[cfg(not(target_arch = "x86_64"))]
    let computed = false;
    let chacha = "chacha20-poly1305@openssh.com";
    let by_itself = match computed {
        true => "aes256-gcm@openssh.com",
        false => chacha,
    };
    // Enough for new keys on the way, twice.
    let command = ["-v", "-o", "RekeyLimit=1M", "train@127.0.0.1", "cat"];
    let sent = noise(3 << 20);
    for (offered, taken) in [
        ("", by_itself),
        (chacha, chacha),
        ("aes128-ctr", "aes128-ctr"),
        ("-aes*-gcm@openssh.com", chacha),
    ] {
        let mut client = rig.client("ssh");
        if !offered.is_empty() {
            client.args(["-o", &format!("Ciphers={offered}")]);
        }
        let cat = client.args(command).stdin(Stdio::piped());
        let mut cat = cat.spawn().expect("it runs");
        let mut to = cat.stdin.take().expect("piped");
        let feed = sent.clone();
        let fed = tokio::spawn(async move {
            to.write_all(&feed).await.expect("taken");
        });
        let back = timeout(HANG, cat.wait_with_output()).await;
        let back = back.expect("in time").expect("ended");
        fed.await.expect("fed");
        assert!(back.stdout == sent, "a byte was lost by {taken}");
        let told = text(&back.stderr);
        let line = format!("kex: server->client cipher: {taken}");
        assert!(told.contains(&line), "{offered:?} {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_no_user_has_opens_nothing_over_ssh() {
    const NAME: &str = "a_key_that_no_user_has_opens_nothing_over_ssh";
    let Some(mut rig) = SshRig::open(NAME).await else {
        return;
    };
    let own = rig.key.clone();
    rig.key = rig.make_key("stranger", &["-t", "ed25519"]).await;
    let refused = rig.ssh(&["train@127.0.0.1", "true"]).await;
    let said = text(&refused.stderr);
    // Nothing else is offered in the place of a key.
    assert!(said.contains("Permission denied (publickey)"), "{said}");
    assert_eq!(refused.status.code(), Some(255));
    for (name, kind) in [
        ("ecdsa", &["-t", "ecdsa", "-b", "384"][..]),
        ("rsa", &["-t", "rsa", "-b", "3072"]),
    ] {
        rig.key = rig.make_key(name, kind).await;
        assert_eq!(rig.add_key(&rig.the_box.mina, name).await.short(), "201");
        let said = rig.ssh(&["train@127.0.0.1", "echo in"]).await;
        assert_eq!(text(&said.stdout), "in\n", "{name}: {}", text(&said.stderr));
    }
    rig.make_key("short", &["-t", "rsa", "-b", "2048"]).await;
    let short = rig.add_key(&rig.the_box.mina, "short").await;
    assert_eq!(short.short(), "422 ssh-key.rsa-short");
    // One that costs more to check than it proves. Making it would take minutes: its parts are only as long as they say.
    let mut blob = Vec::new();
    let modulus = [&[0_u8][..], &[0xff; 16_384 / 8]].concat();
    for part in [&b"ssh-rsa"[..], &[1, 0, 1], &modulus] {
        blob.extend((part.len() as u32).to_be_bytes());
        blob.extend(part);
    }
    let line = format!("ssh-rsa {} long\n", STANDARD.encode(blob));
    std::fs::write(rig.path("long.pub"), line).expect("written");
    let long = rig.add_key(&rig.the_box.mina, "long").await;
    assert_eq!(long.short(), "422 ssh-key.rsa-long");
    // One key, one user.
    let taken = rig.add_key(&rig.the_box.jae, "laptop").await;
    assert_eq!(taken.short(), "409 ssh-key.taken");
    rig.key = own;
    assert!(rig.ssh(&["train@127.0.0.1", "true"]).await.status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_cannot_be_entered_over_ssh_says_so_in_one_sentence() {
    const NAME: &str = "a_session_that_cannot_be_entered_over_ssh_says_so_in_one_sentence";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    rig.launch(&rig.the_box.jae, "secret").await;
    let ask = async |name: &str| {
        let said = rig.ssh(&[&format!("{name}@127.0.0.1"), "true"]).await;
        assert_eq!(said.status.code(), Some(1), "{name}");
        text(&said.stderr)
    };
    let unknown = ask("nothing").await;
    assert!(unknown.starts_with("fardel: "), "{unknown}");
    assert_eq!(unknown.lines().count(), 1, "{unknown}");
    // What is hidden is not there.
    for name in [
        "secret",
        "jae+secret",
        "jae+nothing",
        "ghost+secret",
        "+",
        "../x",
    ] {
        assert_eq!(ask(name).await, unknown, "{name}");
    }
    // What the client sends meanwhile holds up nothing.
    let mut loud = rig.client("ssh");
    let loud = loud.args(["nothing@127.0.0.1", "cat"]);
    let mut loud = loud.stdin(Stdio::piped()).spawn().expect("it runs");
    let mut to = loud.stdin.take().expect("piped");
    tokio::spawn(async move {
        // It may break off: nothing reads it.
        let _ = to.write_all(&noise(8 << 20)).await;
    });
    let said = timeout(HANG, loud.wait_with_output()).await;
    let said = said.expect("it hangs").expect("ended");
    assert_eq!(said.status.code(), Some(1), "{}", text(&said.stderr));
    let own = rig.ssh(&["mina+train@127.0.0.1", "true"]).await;
    assert!(own.status.success(), "{}", text(&own.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_over_ssh_leads_into_the_session_and_nowhere_else() {
    const NAME: &str = "a_tunnel_over_ssh_leads_into_the_session_and_nowhere_else";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    let echo = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = echo.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said).await;
            let _ = stream.write_all(&said).await;
        }
    });
    for host in ["localhost", "127.0.0.1", "train"] {
        let target = format!("{host}:{port}");
        let mut through = rig.client("ssh");
        let through = through.args(["-W", &target, "train@127.0.0.1"]);
        let mut through = through.stdin(Stdio::piped()).spawn().expect("it runs");
        let mut to = through.stdin.take().expect("piped");
        to.write_all(b"hello").await.expect("taken");
        drop(to);
        let back = timeout(HANG, through.wait_with_output()).await;
        let back = back.expect("in time").expect("ended");
        assert_eq!(
            text(&back.stdout),
            "hello",
            "{host}: {}",
            text(&back.stderr)
        );
    }
    for target in [
        "192.0.2.1:80",
        "0.0.0.0:80",
        "other:80",
        "169.254.169.254:80",
    ] {
        let refused = rig.ssh(&["-W", target, "train@127.0.0.1"]).await;
        let said = text(&refused.stderr);
        assert!(said.contains("prohibited"), "{target}: {said}");
    }
    // Ways back to the client's side are no way in.
    let back = [
        "-N",
        "-o",
        "ExitOnForwardFailure=yes",
        "-R",
        "0:localhost:80",
        "train@127.0.0.1",
    ];
    let refused = rig.ssh(&back).await;
    assert_eq!(
        refused.status.code(),
        Some(255),
        "{}",
        text(&refused.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_whole_over_scp_and_sftp_without_a_program_of_the_image() {
    const NAME: &str = "files_go_whole_over_scp_and_sftp_without_a_program_of_the_image";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    if !has(NAME, "scp") || !has(NAME, "sftp") {
        return;
    }
    let sent = noise(5 << 20);
    std::fs::write(rig.path("sent"), &sent).expect("written");
    let source = rig.path("sent").display().to_string();
    let put = rig.path("back").display().to_string();
    // The subsystem, which is what scp uses since OpenSSH 9; older ones know it by this letter.
    let up = ended(
        rig.client("scp")
            .args(["-s", &source, "train@127.0.0.1:got"]),
    )
    .await;
    assert!(up.status.success(), "{}", text(&up.stderr));
    assert!(std::fs::read(rig.inside("got")).expect("there") == sent);
    let down = ended(
        rig.client("scp")
            .args(["-s", "train@127.0.0.1:~/got", &put]),
    )
    .await;
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(std::fs::read(rig.path("back")).expect("there") == sent);
    let batch = rig.path("batch");
    let lines = format!(
        "mkdir folder\nput {source} folder/one\nchmod 600 folder/one\nrename folder/one folder/two\n\
         ln -s two folder/link\nln folder/two folder/hard\ncp folder/two folder/copy\nls -l folder\ndf\n\
         -get nothing\nrm folder/hard\npwd\n"
    );
    std::fs::write(&batch, lines).expect("written");
    let mut sftp = rig.client("sftp");
    let sftp = ended(sftp.arg("-b").arg(&batch).arg("train@127.0.0.1")).await;
    let (said, errors) = (text(&sftp.stdout), text(&sftp.stderr));
    assert!(sftp.status.success(), "{said}\n{errors}");
    assert!(said.contains("-rw-------"), "{said}");
    assert!(
        said.contains("two") && !said.contains("folder/one ->"),
        "{said}"
    );
    assert!(errors.contains("nothing"), "{errors}");
    assert!(std::fs::read(rig.inside("folder/two")).expect("there") == sent);
    assert!(std::fs::read(rig.inside("folder/copy")).expect("there") == sent);
    assert!(!rig.inside("folder/hard").exists() && !rig.inside("folder/one").exists());
    let link = std::fs::read_link(rig.inside("folder/link")).expect("a link");
    assert_eq!(link, Path::new("two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rsync_goes_through_ssh_unmodified() {
    const NAME: &str = "rsync_goes_through_ssh_unmodified";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    if !has(NAME, "rsync") {
        return;
    }
    let tree = rig.path("tree");
    std::fs::create_dir_all(tree.join("below")).expect("made");
    for number in 0..40 {
        let name = format!("below/{number}");
        std::fs::write(tree.join(name), noise(number * 1000)).expect("written");
    }
    let shell = format!(
        "ssh -F /dev/null -i {} {}",
        rig.key,
        rig.options().join(" ")
    );
    let from = format!("{}/", tree.display());
    let mut rsync = Command::new("rsync");
    let rsync = rsync.args(["-a", "-e", &shell, &from, "train@127.0.0.1:copy/"]);
    let said = ended(rsync.kill_on_drop(true)).await;
    assert!(said.status.success(), "{}", text(&said.stderr));
    for number in 0..40 {
        let got = std::fs::read(rig.inside(&format!("copy/below/{number}"))).expect("there");
        assert!(got == noise(number * 1000), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_key_ends_its_connections_over_ssh() {
    const NAME: &str = "a_removed_key_ends_its_connections_over_ssh";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    let mut open = rig.client("ssh");
    let open = open.args(["train@127.0.0.1", "echo in; cat"]);
    let mut open = open.stdin(Stdio::piped()).spawn().expect("it runs");
    let mut from = open.stdout.take().expect("piped");
    // Held open: with its end the program would end by itself.
    let held = open.stdin.take();
    let mut first = [0; 3];
    let heard = timeout(HANG, from.read_exact(&mut first)).await;
    heard.expect("in time").expect("it runs");
    let mina = &rig.the_box.mina;
    let keys = rig.the_box.get(mina, "/api/v1/me/ssh-keys").await.json();
    let id = keys["items"][0]["id"].as_str().expect("an id");
    let path = format!("/api/v1/me/ssh-keys/{id}");
    let gone = rig.the_box.with_body(mina, "DELETE", &path, "").await;
    assert_eq!(gone.status, 204);
    let ended = timeout(SOON, open.wait()).await;
    ended.expect("it goes on without a key").expect("ended");
    drop(held);
    let again = rig.ssh(&["train@127.0.0.1", "true"]).await;
    assert_eq!(again.status.code(), Some(255));
}

/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_over_ssh_ends_with_the_right_to_it() {
    const NAME: &str = "what_is_open_over_ssh_ends_with_the_right_to_it";
    for (way, after) in [
        ("the end of a key", 255),
        ("suspension", 255),
        // What is left to her she opens again.
        ("change of role", 0),
    ] {
        let Some(rig) = SshRig::open(NAME).await else {
            return;
        };
        let the_box = &rig.the_box;
        if way == "change of role" {
            the_box.set_role("mina", "administrator").await;
        }
        let port = echo().await;
        let target = format!("localhost:{port}");
        let mut open = Vec::new();
        let command = vec!["train@127.0.0.1", "cat"];
        let tunnel = vec!["-W", target.as_str(), "train@127.0.0.1"];
        for words in [command, tunnel] {
            let mut client = rig.client("ssh");
            let client = client.args(words).stdin(Stdio::piped());
            let mut client = client.spawn().expect("it runs");
            let mut to = client.stdin.take().expect("piped");
            let mut from = client.stdout.take().expect("piped");
            to.write_all(b"hello").await.expect("taken");
            assert_eq!(heard(&mut from, 5).await, b"hello", "{way}");
            // Held open: with its end both would end by themselves.
            open.push((client, to, from));
        }
        match way {
            "suspension" => {
                let body = json!({"suspended": true});
                let path = "/api/v1/users/mina/suspend";
                let done = the_box.post(&As::Root, path, body).await;
                assert!(done.status.is_success(), "{}", done.short());
            }
            "change of role" => the_box.set_role("mina", "user").await,
            _ => {
                let keys = the_box.get(&the_box.mina, "/api/v1/me/ssh-keys").await;
                let keys = keys.json();
                let id = keys["items"][0]["id"].as_str().expect("an id");
                let path = format!("/api/v1/me/ssh-keys/{id}");
                let gone = the_box.with_body(&the_box.mina, "DELETE", &path, "").await;
                assert_eq!(gone.status, 204);
            }
        }
        let closed = async {
            for (client, ..) in &mut open {
                client.wait().await.expect("ended");
            }
        };
        let closed = timeout(SOON, closed).await;
        closed.unwrap_or_else(|_| panic!("it goes on after {way}"));
        let again = rig.ssh(&["train@127.0.0.1", "true"]).await;
        assert_eq!(again.status.code(), Some(after), "{way}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_a_client_leads_into_the_session_and_nowhere_else() {
    const NAME: &str = "a_port_of_a_client_leads_into_the_session_and_nowhere_else";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    let port = echo().await;
    let (inside, outside, socks) = (free_port().await, free_port().await, free_port().await);
    let mut forwards = rig.client("ssh");
    let forwards = forwards
        .args(["-N", "-o", "ExitOnForwardFailure=yes"])
        .args(["-L", &format!("127.0.0.1:{inside}:localhost:{port}")])
        .args(["-L", &format!("127.0.0.1:{outside}:192.0.2.1:{port}")])
        .args(["-D", &format!("127.0.0.1:{socks}"), "train@127.0.0.1"]);
    let mut forwards = forwards.spawn().expect("it runs");
    let mut tunnel = reached(inside).await;
    tunnel.write_all(b"by -L").await.expect("taken");
    assert_eq!(heard(&mut tunnel, 5).await, b"by -L");
    let mut refused = reached(outside).await;
    let mut said = Vec::new();
    let closed = timeout(HANG, refused.read_to_end(&mut said)).await;
    // Some kernels call it a reset.
    let _ = closed.expect("it stays open");
    assert!(said.is_empty(), "{said:?}");

    // What an editor does that opens ports of its server as it needs them.
    for (host, leads) in [("localhost", true), ("train", true), ("192.0.2.1", false)] {
        let mut client = reached(socks).await;
        client.write_all(&[5, 1, 0]).await.expect("taken");
        assert_eq!(heard(&mut client, 2).await, [5, 0], "{host}");
        let mut asks = vec![5, 1, 0, 3, host.len() as u8];
        asks.extend(host.as_bytes());
        asks.extend(port.to_be_bytes());
        client.write_all(&asks).await.expect("taken");
        if leads {
            assert_eq!(heard(&mut client, 10).await[..2], [5, 0], "{host}");
            client.write_all(b"by -D").await.expect("taken");
            assert_eq!(heard(&mut client, 5).await, b"by -D", "{host}");
            continue;
        }
        // The client may have closed it already.
        let _ = client.write_all(b"by -D").await;
        let mut said = Vec::new();
        let closed = timeout(HANG, client.read_to_end(&mut said)).await;
        let _ = closed.expect("it stays open");
        assert!(!text(&said).contains("by -D"), "{host}: it leads out");
    }
    forwards.kill().await.expect("it ran until now");
}

/// What VS Code's Remote-SSH sends to a shell of the session once it is ready, by the steps that its log tells: it looks for its
/// server, has it sent from the laptop where there is none, starts it in the background, and says where it listens.
const BOOTSTRAP: &str = r#"
folder="$HOME/.vscode-server"
bin="$folder/bin/4949701c"
log="$folder/.4949701c.log"
pid="$folder/.4949701c.pid"
echo "0e21d0e5a3e0: running"
mkdir -p "$bin"
if [ -s "$pid" ] && kill -0 "$(cat "$pid")"; then
    echo "Found running server"
else
    if [ ! -x "$bin/bin/code-server" ]; then
        echo "destFolder==$bin=="
        echo "0e21d0e5a3e0:trigger_server_download_end"
        while [ ! -e "$bin/done" ]; do sleep 0.1; done
        tar -xzf "$bin/vscode-server.tar.gz" -C "$bin"
    fi
    "$bin/bin/code-server" --start-server --host=127.0.0.1 --port=0 > "$log" 2>&1 < /dev/null &
    echo $! > "$pid"
fi
port=
while [ -z "$port" ]; do
    sleep 0.1
    port=$(sed -n 's/^Extension host agent listening on //p' "$log")
done
echo "0e21d0e5a3e0: start"
echo "listeningOn==$port=="
echo "SSH_AUTH_SOCK==${SSH_AUTH_SOCK:-}=="
echo "0e21d0e5a3e0: end"
"#;
/// Stands for the server of the editor, which nothing here may fetch: listens, says where, changes the protocol as that does,
/// and gives back what comes. Ends by itself after two minutes.
const EDITOR_SERVER: &str = r#"#!/usr/bin/perl
use IO::Socket::INET;
$| = 1;
$SIG{CHLD} = "IGNORE";
alarm 120;
my $at = IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 8) or die "$!";
print "Extension host agent listening on ", $at->sockport, "\n";
while (my $client = $at->accept) {
    next if fork;
    alarm 120;
    my ($head, $piece) = ("", "");
    $head .= $piece while $head !~ /\r\n\r\n$/ and sysread $client, $piece, 1;
    syswrite $client, "HTTP/1.1 101 Switching Protocols\r\n\r\n";
    syswrite $client, $piece while sysread $client, $piece, 4096;
    exit;
}
"#;
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";

/// One window of an editor: one client of SSH whose shell takes the script, and through which all connections go.
struct EditorWindow {
    client: Child,
    said: Lines<BufReader<ChildStdout>>,
    socks: u16,
    /// The editor keeps it open.
    _to: ChildStdin,
}

impl EditorWindow {
    async fn open(rig: &SshRig, shell: &str) -> Self {
        let socks = free_port().await;
        let mut client = rig.client("ssh");
        let client = client
            .args(["-v", "-T", "-o", "ConnectTimeout=15"])
            .args(["-D", &format!("127.0.0.1:{socks}"), "train@127.0.0.1"])
            .arg(shell)
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        let mut client = client.spawn().expect("it runs");
        let mut to = client.stdin.take().expect("piped");
        let said = client.stdout.take().expect("piped");
        let mut said = BufReader::new(said).lines();
        let asks = b"echo 'ready: 0e21d0e5a3e0'; uname -s\n";
        to.write_all(asks).await.expect("taken");
        assert_eq!(
            lines_until(&mut said, "Linux").await,
            ["ready: 0e21d0e5a3e0"]
        );
        to.write_all(BOOTSTRAP.as_bytes()).await.expect("taken");
        Self {
            client,
            said,
            socks,
            _to: to,
        }
    }

    /// Opens a connection to the editor's server, as its window opens several.
    async fn connect(&self, port: u16) -> TcpStream {
        let mut stream = reached(self.socks).await;
        stream.write_all(&[5, 1, 0]).await.expect("taken");
        assert_eq!(heard(&mut stream, 2).await, [5, 0]);
        let mut asks = vec![5, 1, 0, 1, 127, 0, 0, 1];
        asks.extend(port.to_be_bytes());
        stream.write_all(&asks).await.expect("taken");
        assert_eq!(heard(&mut stream, 10).await[..2], [5, 0]);
        let asks = "GET /?reconnection=false&skipWebSocketFrames=true HTTP/1.1\r\n\
                    Host: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(asks.as_bytes()).await.expect("taken");
        assert_eq!(heard(&mut stream, SWITCHED.len()).await, SWITCHED);
        stream
    }
}

/// Reads lines until one that ends so; gives those before it.
async fn lines_until(from: &mut Lines<BufReader<ChildStdout>>, end: &str) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let line = timeout(HANG, from.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("it never says {end}: {all:?}"));
        match line.expect("whole lines") {
            Some(line) if line.ends_with(end) => return all,
            Some(line) => all.push(line),
            None => panic!("it ends before it says {end}: {all:?}"),
        }
    }
}

/// What a script said as `KEY==VALUE==`.
fn told<'l>(lines: &'l [String], key: &str) -> &'l str {
    let mut values = lines.iter().filter_map(|line| {
        let value = line.strip_prefix(key)?.strip_prefix("==")?;
        value.strip_suffix("==")
    });
    let found = values.next();
    found.unwrap_or_else(|| panic!("no {key} in {lines:?}"))
}

async fn echoes(stream: &mut TcpStream, words: &str) {
    stream.write_all(words.as_bytes()).await.expect("taken");
    assert_eq!(heard(stream, words.len()).await, words.as_bytes());
}

/// The handshake of an editor that works over SSH, with OpenSSH's client, which that editor uses, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_editor_starts_its_server_over_ssh_and_finds_it_again() {
    const NAME: &str = "an_editor_starts_its_server_over_ssh_and_finds_it_again";
    if !has(NAME, "perl") {
        return;
    }
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    std::fs::create_dir(rig.path("bin")).expect("made");
    install(&rig.path("bin/code-server"), EDITOR_SERVER.as_bytes());
    std::fs::write(rig.path("done"), "").expect("written");
    let mut tar = Command::new("tar");
    let tar = tar.arg("-czf").arg(rig.path("server.tar.gz")).arg("-C");
    let packed = ended(tar.arg(rig.folder.path()).arg("bin/code-server")).await;
    assert!(packed.status.success(), "{}", text(&packed.stderr));

    let mut first = EditorWindow::open(&rig, "bash").await;
    let before = lines_until(&mut first.said, ":trigger_server_download_end").await;
    let folder = told(&before, "destFolder");
    for (file, name) in [("server.tar.gz", "vscode-server.tar.gz"), ("done", "done")] {
        let to = format!("train@127.0.0.1:{folder}/{name}");
        let sent = ended(rig.client("scp").arg(rig.path(file)).arg(to)).await;
        assert!(sent.status.success(), "{}", text(&sent.stderr));
    }
    let started = lines_until(&mut first.said, ": end").await;
    assert_eq!(told(&started, "SSH_AUTH_SOCK"), "");
    let port: u16 = told(&started, "listeningOn").parse().expect("a port");
    let mut management = first.connect(port).await;
    let mut extensions = first.connect(port).await;
    echoes(&mut management, "of the window").await;
    echoes(&mut extensions, "of its extensions").await;
    echoes(&mut management, "and of the window").await;

    // The window is closed, and its server waits for the next one.
    first.client.kill().await.expect("it ran until now");
    let mut next = EditorWindow::open(&rig, "sh").await;
    let found = lines_until(&mut next.said, ": end").await;
    assert!(
        found.iter().any(|line| line == "Found running server"),
        "{found:?}"
    );
    assert_eq!(told(&found, "listeningOn"), port.to_string());
    echoes(&mut next.connect(port).await, "of the next window").await;

    let pid = std::fs::read_to_string(rig.inside(".vscode-server/.4949701c.pid"));
    let pid = pid.expect("there").trim().parse().expect("a number");
    let server = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGKILL).expect("it ran until now");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_of_a_user_is_not_lent_to_a_session() {
    const NAME: &str = "the_agent_of_a_user_is_not_lent_to_a_session";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    let place = rig.path("agent");
    let agent = tokio::net::UnixListener::bind(&place).expect("a socket");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = agent.accept().await {
            tokio::spawn(async move {
                // It has no key and does nothing.
                while let Ok(length @ ..=65_536) = client.read_u32().await {
                    let mut asked = vec![0; length as usize];
                    let read = client.read_exact(&mut asked).await;
                    if read.is_err() || client.write_all(&[0, 0, 0, 1, 5]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let of_agent = format!("IdentityAgent={}", place.display());
    let mut client = Command::new("ssh");
    let client = client
        .args([
            "-F",
            "/dev/null",
            "-v",
            "-A",
            "-o",
            &of_agent,
            "-i",
            &rig.key,
        ])
        .args(rig.options())
        .env("SSH_AUTH_SOCK", &place)
        .kill_on_drop(true)
        .stdin(Stdio::null());
    let words = "echo \"agent ${SSH_AUTH_SOCK:-none}\"";
    let said = ended(client.args(["train@127.0.0.1", words])).await;
    let errors = text(&said.stderr);
    assert!(
        errors.contains("Requesting authentication agent forwarding"),
        "the client does not ask: {errors}"
    );
    assert_eq!(text(&said.stdout), "agent none\n", "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_input_reaches_a_program_over_ssh() {
    const NAME: &str = "the_end_of_input_reaches_a_program_over_ssh";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    let counted = rig.ssh(&["train@127.0.0.1", "wc -c; exit 3"]).await;
    let said = text(&counted.stdout);
    assert_eq!((said.trim(), counted.status.code()), ("0", Some(3)));
    // A program that reads nothing keeps no client: what was sent ahead waits, and the end comes through.
    let mut deaf = rig.client("ssh");
    let deaf = deaf.args(["train@127.0.0.1", "exec <&-; sleep 1; echo over"]);
    let mut deaf = deaf.stdin(Stdio::piped()).spawn().expect("it runs");
    let mut to = deaf.stdin.take().expect("piped");
    tokio::spawn(async move {
        // It may break off: no client reads.
        let _ = to.write_all(&noise(4 << 20)).await;
    });
    let said = timeout(HANG, deaf.wait_with_output()).await;
    let said = said.expect("it hangs").expect("ended");
    assert_eq!(text(&said.stdout), "over\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_strangers_shut_no_user_out_of_ssh() {
    const NAME: &str = "a_thousand_strangers_shut_no_user_out_of_ssh";
    let Some(rig) = SshRig::open(NAME).await else {
        return;
    };
    let mut silent = Vec::new();
    for number in 0..1000 {
        let stream = TcpStream::connect(("127.0.0.1", rig.port)).await;
        let mut stream = stream.expect("accepted");
        // Some say what is no SSH, or half of a greeting.
        match number % 3 {
            0 => stream.write_all(&noise(4096)).await.ok(),
            1 => stream.write_all(b"SSH-2.0-x").await.ok(),
            _ => None,
        };
        silent.push(stream);
        if silent.len() > 200 {
            silent.remove(0);
        }
    }
    let said = rig.ssh(&["train@127.0.0.1", "echo in"]).await;
    assert_eq!(text(&said.stdout), "in\n", "{}", text(&said.stderr));
    // Of those that say nothing more, only so many are kept.
    let mut open = 0;
    for mut stream in silent {
        let mut said = Vec::new();
        let rest = timeout(Duration::from_millis(20), stream.read_to_end(&mut said));
        open += usize::from(rest.await.is_err());
    }
    assert!((1..=MAX_STRANGERS).contains(&open), "{open} are open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_over_ssh_has_its_size_and_its_name() {
    const NAME: &str = "a_terminal_over_ssh_has_its_size_and_its_name";
    if !has(NAME, "ssh") || !has(NAME, "ssh-keygen") {
        return;
    }
    let the_box = TheBox::with(&[("FARDEL_LISTEN_SSH", "127.0.0.1:7822")], Vec::new()).await;
    let folder = tempfile::tempdir().expect("a directory");
    let streams = the_box.streams.clone();
    let mut rig = SshRig::around(the_box, Arc::new(streams.clone()), folder).await;
    rig.key = rig.make_key("laptop", &["-t", "ed25519"]).await;
    let added = rig.add_key(&rig.the_box.mina, "laptop").await;
    assert_eq!(added.short(), "201");
    rig.launch(&rig.the_box.mina, "train").await;
    let mut shell = rig.client("ssh");
    let shell = shell
        .env("TERM", "xterm-kitty")
        .args(["-tt", "train@127.0.0.1"]);
    let mut shell = shell.stdin(Stdio::piped()).spawn().expect("it runs");
    let mut to = shell.stdin.take().expect("piped");
    to.write_all(b"typed\n").await.expect("taken");
    drop(to);
    let said = timeout(HANG, shell.wait_with_output()).await;
    let said = said.expect("in time").expect("ended");
    assert!(text(&said.stdout).contains("typed"), "{said:?}");
    let execs = streams
        .execs
        .lock()
        .expect("no test panics with it")
        .clone();
    let asked = execs.last().expect("one was started");
    assert!(asked.tty.is_some() && asked.guest.is_none());
    let term = ("TERM".to_owned(), "xterm-kitty".to_owned());
    assert!(asked.env.contains(&term), "{:?}", asked.env);
    let reached = rig.the_box.get(&As::Nobody, "/api/v1/ssh").await.json();
    assert_eq!(reached["port"], 7822);
    let known = std::fs::read_to_string(rig.path("known_hosts")).expect("written");
    let line = reached["host_key"].as_str().expect("a line");
    assert!(known.contains(line), "{known}");
    // Who looks at the page beside the console reads the same fingerprint that a client computes.
    let mut keygen = Command::new("ssh-keygen");
    let print = ended(keygen.arg("-lf").arg(rig.path("known_hosts"))).await;
    let print = text(&print.stdout);
    let print = print.split(' ').find(|word| word.starts_with("SHA256:"));
    let print = print.expect("a fingerprint");
    assert_eq!(reached["fingerprint"], print);
    let page = rig.the_box.get(&As::Nobody, "/trust").await;
    // A slash may be written by its number.
    let page = text(&page.bytes)
        .replace("&#x2f;", "/")
        .replace("&#47;", "/");
    assert!(page.contains(&format!("<code>{print}</code>")), "{page}");
}
