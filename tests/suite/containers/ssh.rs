//! SSH into real sessions of three images: one with glibc, one with musl and a shell of its own, one without a shell. OpenSSH's
//! clients, unmodified, and what is left of them when the session ends.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use api::operations::OperationState;
use api::sessions::LaunchRequest;
use api::ssh::NewSshKeyBody;
use fardel::doors;
use rules::session::SessionState;
use rules::users::Role;
use serde_json::json;
use server::access::{self, Caller};
use server::actions::users::{self, ssh_keys};
use server::actions::{images, sessions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::commit::{over, stay};
use super::images::{layout_of, member, until};
use super::whole::Whole;
use crate::server::the_box::PASSWORD;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);
/// What is promised of a session that ended.
const SOON: Duration = Duration::from_secs(2);
/// Where the session with glibc gives back what is sent.
const PORT: u16 = 4000;

const ECHO: &str = r#"
use IO::Socket::INET; $| = 1; $SIG{CHLD} = 'IGNORE';
my $door = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 4000, Listen => 9, ReuseAddr => 1) or die "no port: $@";
while (1) {
    my $client = $door->accept or next;
    next if fork;
    print $client $_ while <$client>;
    exit 0;
}
"#;

/// A shell as small as an image may have it: gives back its input for `cat`, and else says its command and ends with 7.
const SHELL: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    char piece[4096];
    ssize_t got;
    if (count < 3 || strcmp(words[1], "-c")) return 2;
    if (!strcmp(words[2], "cat")) {
        while ((got = read(0, piece, sizeof piece)) > 0)
            if (write(1, piece, got) != got) return 1;
        return 0;
    }
    printf("%s\n", words[2]);
    return 7;
}
"#;

/// Why a client cannot be tried here; None where everything is there.
fn lacks() -> Option<&'static str> {
    let is_there = |path: &str| Path::new(path).exists();
    let clients = ["ssh", "ssh-keygen", "scp", "sftp", "rsync", "perl"];
    if !clients
        .iter()
        .all(|name| is_there(&format!("/usr/bin/{name}")))
    {
        return Some("needs openssh-client, rsync and perl on this machine");
    }
    let parts = [
        "/lib/ld-musl-x86_64.so.1",
        "/usr/lib/x86_64-linux-musl/crt1.o",
    ];
    (!parts.iter().all(|part| is_there(part))).then_some("needs the packages musl and musl-dev")
}

/// Compiles `SHELL` for musl; gives it and its loader.
fn musl_shell(folder: &Path) -> (Vec<u8>, Vec<u8>) {
    let loader = "/lib/ld-musl-x86_64.so.1";
    let parts = Path::new("/usr/lib/x86_64-linux-musl");
    let (source, made) = (folder.join("shell.c"), folder.join("shell"));
    fs::write(&source, SHELL).expect("written");
    fs::copy(loader, folder.join("libc.so")).expect("it is there");
    let done = std::process::Command::new("cc")
        .args(["-nostdinc", "-nostdlib", "-no-pie", "-fno-stack-protector"])
        .args(["-isystem", "/usr/include/x86_64-linux-musl"])
        .arg(format!("-Wl,--dynamic-linker={loader}"))
        .arg("-o")
        .arg(&made)
        .args([parts.join("crt1.o"), parts.join("crti.o"), source])
        .arg("-L")
        .arg(folder)
        .arg("-lc")
        .arg(parts.join("crtn.o"))
        .status();
    assert!(done.expect("a C compiler, which the build needs").success());
    let read = |path: &Path| fs::read(path).expect("it is there");
    (read(&made), read(Path::new(loader)))
}

/// What clients of mina's need to reach the server.
struct SshClients {
    folder: PathBuf,
    port: u16,
}

impl SshClients {
    fn command(&self, program: &str) -> Command {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(program);
        command
            .args(["-F", "/dev/null", "-i", &at("key")])
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for option in self.options() {
            command.args(["-o", &option]);
        }
        command
    }

    fn options(&self) -> [String; 6] {
        let known = self.folder.join("known_hosts");
        [
            format!("Port={}", self.port),
            format!("UserKnownHostsFile={}", known.display()),
            "StrictHostKeyChecking=yes".to_owned(),
            "BatchMode=yes".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
            "IdentityAgent=none".to_owned(),
        ]
    }

    async fn ssh(&self, words: &[&str]) -> (String, String, Option<i32>) {
        let said = done(self.command("ssh").args(words)).await;
        (text(&said.stdout), text(&said.stderr), said.status.code())
    }

    /// A client that has said a word and heard it again.
    async fn held(&self, words: &[&str]) -> (Child, ChildStdin, ChildStdout) {
        let mut client = self.command("ssh");
        let client = client.args(words).stdin(Stdio::piped());
        let mut client = client.spawn().expect("it runs");
        let mut to = client.stdin.take().expect("piped");
        let mut from = client.stdout.take().expect("piped");
        to.write_all(b"hello\n").await.expect("taken");
        let mut heard = [0; 6];
        let read = timeout(HANG, from.read_exact(&mut heard)).await;
        read.expect("in time").expect("it goes on");
        assert_eq!(&heard, b"hello\n", "{words:?}");
        (client, to, from)
    }
}

async fn done(command: &mut Command) -> Output {
    let output = timeout(HANG, command.output()).await.expect("it hangs");
    output.expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Imports an image of these files, which runs `/stay`.
async fn import(whole: &Whole, name: &str, files: &[(&str, Vec<u8>)]) {
    let mut layer = member("stay", &stay());
    for (path, bytes) in files {
        layer.extend(member(path, bytes));
    }
    layer.resize(layer.len() + 1024, 0);
    let at = whole.at(name);
    layout_of(&at, &layer, "/stay");
    let root = access::local_root(&whole.server);
    let from = images::ImportSource::Path(at);
    let begun = images::import(&whole.server, &root, from, Some(format!("{name}:1"))).await;
    let imported = over(&whole.server, &begun.expect("the import begins")).await;
    assert_eq!(imported.state, OperationState::Succeeded, "{imported:?}");
}

async fn start(whole: &Whole, mina: &Caller, name: &str, image: &str, command: &[&str]) {
    let request = json!({
        "name": name, "kind": "batch", "image": image, "command": command,
        "resources": {"cpu": 0.2, "memory": 64 << 20, "shm": 1 << 20},
    });
    let request: LaunchRequest = serde_json::from_value(request).expect("a request");
    let launched = sessions::launch(&whole.server, mina, request, None).await;
    launched.expect("it is launched");
    until("it runs", async || {
        let seen = sessions::get(&whole.server, mina, name).await;
        let seen = seen.expect("it is there");
        assert!(seen.ended_at.is_none(), "{name}: {:?}", seen.reason);
        (seen.state == SessionState::Running).then_some(())
    })
    .await;
}

/// A user with a key, and the door that takes it.
async fn serve(whole: &Whole) -> (Caller, SshClients, tokio::sync::watch::Sender<bool>) {
    let server = &whole.server;
    let root = access::local_root(server);
    let here: IpAddr = Ipv4Addr::LOCALHOST.into();
    let link = access::setup_link(server).expect("it is not set up");
    let code = link.rsplit(['=', '/']).next().expect("a code").to_owned();
    let set_up = access::set_up(server, &code, "ada", PASSWORD, here).await;
    set_up.expect("the code is right");
    let made = users::create(server, &root, "mina", Role::User, PASSWORD).await;
    made.expect("a new name");
    let mina = access::sign_in(server, "mina", PASSWORD, here).await;
    let mina = mina.expect("the password is right").caller;
    let folder = whole.at("clients");
    fs::create_dir(&folder).expect("made");
    let mut keygen = Command::new("ssh-keygen");
    let keygen = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    let made = done(keygen.arg(folder.join("key"))).await;
    assert!(made.status.success(), "{made:?}");
    let line = fs::read_to_string(folder.join("key.pub")).expect("made");
    let key = NewSshKeyBody {
        public_key: line,
        name: Some("laptop".to_owned()),
        expires_at: None,
    };
    ssh_keys::add(server, &mina, key).await.expect("a new key");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let key = access::ssh_host_key(server).await.expect("drawn");
    let known = format!("[127.0.0.1]:{port} {}\n", key.line());
    fs::write(folder.join("known_hosts"), known).expect("written");
    let (leave, leaving) = tokio::sync::watch::channel(false);
    let (streams, server) = (whole.streams.clone(), server.clone());
    tokio::spawn(doors::ssh::serve(listener, server, streams, key, leaving));
    (mina, SshClients { folder, port }, leave)
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_three_images_are_entered_and_left_over_ssh() {
    const NAME: &str = "sessions_of_three_images_are_entered_and_left_over_ssh";
    let Some(whole) = Whole::begin(NAME, true) else {
        return;
    };
    if let Some(lacks) = lacks() {
        skips::skip(NAME, lacks);
        return whole.end().await;
    }
    let (mina, clients, _leave) = serve(&whole).await;
    let (shell, loader) = musl_shell(&clients.folder);
    let musl = [("bin/sh", shell), ("lib/ld-musl-x86_64.so.1", loader)];
    import(&whole, "musl", &musl).await;
    import(&whole, "bare", &[]).await;
    start(&whole, &mina, "glibc", "host", &["perl", "-e", ECHO]).await;
    start(&whole, &mina, "musl", "musl:1", &[]).await;
    start(&whole, &mina, "bare", "bare:1", &[]).await;

    let (out, errors, code) = clients.ssh(&["glibc@127.0.0.1", "echo in; exit 7"]).await;
    assert_eq!((out.as_str(), code), ("in\n", Some(7)), "{errors}");
    let (out, errors, code) = clients.ssh(&["musl@127.0.0.1", "echo in"]).await;
    assert_eq!((out.as_str(), code), ("echo in\n", Some(7)), "{errors}");
    // What a user without a shell reads is one sentence that names what is missing.
    for words in [&["bare@127.0.0.1", "true"][..], &["-T", "bare@127.0.0.1"]] {
        let (out, errors, code) = clients.ssh(words).await;
        assert_eq!((out.as_str(), code), ("", Some(127)), "{errors}");
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines.len(), 1, "{errors}");
        assert!(lines[0].contains("/bin/sh"), "{errors}");
    }

    // Files need nothing of an image.
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    let source = clients.folder.join("sent");
    fs::write(&source, &sent).expect("written");
    for (session, at) in [("glibc", "/tmp/got"), ("musl", "/got"), ("bare", "/got")] {
        let there = format!("{session}@127.0.0.1:{at}");
        let back = clients.folder.join(format!("{session}-back"));
        let up = done(clients.command("scp").arg("-s").arg(&source).arg(&there)).await;
        assert!(up.status.success(), "{session}: {}", text(&up.stderr));
        let down = done(clients.command("scp").arg("-s").arg(&there).arg(&back)).await;
        assert!(down.status.success(), "{session}: {}", text(&down.stderr));
        assert!(fs::read(&back).expect("there") == sent, "{session}");
        let batch = clients.folder.join("batch");
        let lines = format!("rename {at} {at}-too\nls -l {at}-too\n");
        fs::write(&batch, lines).expect("written");
        let to = format!("{session}@127.0.0.1");
        let sftp = done(clients.command("sftp").arg("-b").arg(&batch).arg(to)).await;
        let (out, errors) = (text(&sftp.stdout), text(&sftp.stderr));
        assert!(
            sftp.status.success() && out.contains("3000000"),
            "{session}: {out}\n{errors}"
        );
    }
    let options = clients.options().map(|option| format!("-o {option}"));
    let key = clients.folder.join("key");
    let shell = format!(
        "ssh -F /dev/null -i {} {}",
        key.display(),
        options.join(" ")
    );
    let mut rsync = Command::new("rsync");
    let rsync = rsync
        .args(["-a", "-e", &shell])
        .arg(&source)
        .kill_on_drop(true);
    let copied = done(rsync.arg("glibc@127.0.0.1:/tmp/copied")).await;
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    let (out, errors, _) = clients
        .ssh(&["glibc@127.0.0.1", "wc -c </tmp/copied"])
        .await;
    assert_eq!(out.trim(), "3000000", "{errors}");

    // The end of a session is the end of what was open in it.
    let target = format!("localhost:{PORT}");
    let tunnel = ["-W", target.as_str(), "glibc@127.0.0.1"];
    let of_glibc = vec![vec!["glibc@127.0.0.1", "cat"], tunnel.to_vec()];
    let of_musl = vec![vec!["musl@127.0.0.1", "cat"]];
    for (session, ways) in [("glibc", of_glibc), ("musl", of_musl)] {
        let mut held = Vec::new();
        for words in ways {
            held.push(clients.held(&words).await);
        }
        let ended = sessions::stop(&whole.server, &mina, session, true).await;
        ended.expect("told to end");
        let closed = async {
            for (client, ..) in &mut held {
                client.wait().await.expect("ended");
            }
        };
        let closed = timeout(SOON, closed).await;
        closed.unwrap_or_else(|_| panic!("something of {session} goes on"));
    }
    let ended = sessions::stop(&whole.server, &mina, "bare", true).await;
    ended.expect("told to end");
    for session in ["glibc", "musl", "bare"] {
        until("it ends", async || {
            let seen = sessions::get(&whole.server, &mina, session).await;
            seen.expect("it is there").ended_at.is_some().then_some(())
        })
        .await;
    }
    whole.end().await;
}
