//! Apps that are open while the server dies: 40 sessions of two users, each with a little WebSocket server of its own and a client that
//! talks to it, as a notebook does with its kernel. No session may end, and each client reaches the same program again by
//! the address that it had, without a page of the console between.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use crate::crash::installation::Installation;
use crate::crowd::{Account, free_address, user};

/// Longer than 40 sessions take on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How many are open.
const SESSIONS: usize = 40;
/// Where each listens inside its session.
const PORT: u16 = 8000;

/// A server that names itself by a number it drew at its start, and says each message again behind that number.
const KERNEL: &str = r#"
use IO::Socket::INET; use Digest::SHA qw(sha1_base64); $| = 1; $SIG{CHLD} = 'IGNORE';
my $kernel = 1 + int(rand(1e9));
my $door = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 8000, Listen => 64, ReuseAddr => 1) or die "no port: $@";
while (1) {
    my $client = $door->accept or next;
    next if fork;
    my %head; <$client>;
    while (my $line = <$client>) {
        $line =~ s/\r?\n$//;
        last if $line eq '';
        my ($name, $value) = split /: */, $line, 2;
        $head{lc $name} = $value;
    }
    unless (defined $head{'sec-websocket-key'}) {
        print $client "HTTP/1.1 200 OK\r\nContent-Length: " . length($kernel) . "\r\nConnection: close\r\n\r\n$kernel";
        exit 0;
    }
    my $accept = sha1_base64($head{'sec-websocket-key'} . '258EAFA5-E914-47DA-95CA-C5AB0DC85B11') . '=';
    print $client "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: $accept\r\n\r\n";
    while (read($client, my $two, 2) == 2) {
        my ($kind, $length) = unpack 'CC', $two;
        $length &= 127;
        read($client, my $mask, 4);
        my $said = '';
        read($client, $said, $length) if $length;
        exit 0 if ($kind & 15) == 8;
        my $text = "$kernel " . ($said ^ substr($mask x 32, 0, $length));
        print $client pack('CC', 0x81, length $text) . $text;
    }
    exit 0;
}
"#;

/// One open app: its user and session, its address and the socket to its program.
struct Notebook<'a> {
    account: &'a Account,
    session: String,
    port: u16,
    line: WebSocket<TcpStream>,
    /// As the program named itself.
    kernel: String,
}

/// Opens a socket to the app at an address of this machine, as a program of its user does.
fn dial(account: &Account, port: u16) -> tungstenite::Result<WebSocket<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut request = format!("ws://127.0.0.1:{port}/kernel").into_client_request()?;
    let bearer = format!("Bearer {}", account.token());
    let headers = request.headers_mut();
    headers.insert("authorization", bearer.parse().expect("a header"));
    match tungstenite::client(request, stream) {
        Ok((line, _)) => Ok(line),
        Err(tungstenite::HandshakeError::Failure(error)) => Err(error),
        Err(tungstenite::HandshakeError::Interrupted(_)) => Err(tungstenite::Error::AlreadyClosed),
    }
}

/// Says a word and gives who answered with it.
fn answered(line: &mut WebSocket<TcpStream>, word: &str) -> tungstenite::Result<String> {
    line.send(Message::text(word))?;
    loop {
        match line.read()? {
            Message::Text(said) => {
                let said = said.to_string();
                let (kernel, again) = said.split_once(' ').unwrap_or_default();
                assert_eq!(again, word, "{said}");
                return Ok(kernel.to_owned());
            }
            Message::Close(_) => return Err(tungstenite::Error::ConnectionClosed),
            _ => {}
        }
    }
}

/// Tries until a new socket has an answer.
fn comes_back(account: &Account, port: u16, word: &str) -> (WebSocket<TcpStream>, String) {
    let until = Instant::now() + TIMEOUT;
    loop {
        let tried = dial(account, port).and_then(|mut line| {
            let kernel = answered(&mut line, word)?;
            Ok((line, kernel))
        });
        match tried {
            Ok(back) => return back,
            Err(error) => assert!(Instant::now() < until, "port {port}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn open(account: &Account, session: String) -> Notebook<'_> {
    let path = format!("/api/v1/sessions/{session}/apps/{PORT}/open");
    let until = Instant::now() + TIMEOUT;
    let opened: Value = loop {
        // Until the program listens it is refused.
        let (status, said) = account.ask("POST", &path, Some(&json!({})));
        if status == 200 && said["app"]["state"] == "ready" {
            break said;
        }
        assert!(Instant::now() < until, "{status} {said}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let port = opened["app"]["address_port"].as_u64();
    let port = port.and_then(|port| u16::try_from(port).ok());
    let port = port.unwrap_or_else(|| panic!("no address: {opened}"));
    let (line, kernel) = comes_back(account, port, "first");
    Notebook {
        account,
        session,
        port,
        line,
        kernel,
    }
}

/// Proves too: `a_new_server_learns_the_code_of_a_container_that_lived_on`
#[test]
fn forty_open_apps_live_through_the_end_of_the_server() {
    let name = "forty_open_apps_live_through_the_end_of_the_server";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    let has_modules = std::process::Command::new("/usr/bin/perl")
        .args(["-MIO::Socket::INET", "-MDigest::SHA", "-e", "1"])
        .status()
        .is_ok_and(|status| status.success());
    if !has_modules {
        return skips::skip(name, "needs perl with Digest::SHA on this machine");
    }
    let first = free_address().port().min(65_000);
    let apps = PathBuf::from(format!("127.0.0.1:{first}"));
    installation.settings.push(("FARDEL_LISTEN_APPS", apps));
    installation.start();
    // One user has a quarter of the ports at most.
    let accounts = ["mina", "jae"].map(|name| user(&installation.socket(), name));
    let launched: Vec<(&Account, String)> = (0..SESSIONS)
        .map(|number| {
            let account = &accounts[number % accounts.len()];
            let body = json!({
                "name": format!("notebook-{number}"), "kind": "batch", "image": "host", "command": ["perl", "-e", KERNEL],
                "resources": {"cpu": 0.04, "memory": 32 << 20, "shm": 1 << 20},
            });
            let (status, made) = account.ask("POST", "/api/v1/sessions", Some(&body));
            assert!((200..300).contains(&status), "{number}: {status} {made}");
            (account, made["id"].as_str().expect("an id").to_owned())
        })
        .collect();
    let mut open: Vec<Notebook<'_>> = launched
        .into_iter()
        .map(|(account, id)| open(account, id))
        .collect();
    let shims = installation.shims();
    assert_eq!(shims.len(), SESSIONS);

    installation.kill();
    for app in &mut open {
        let lost = answered(&mut app.line, "lost");
        assert!(
            lost.is_err(),
            "the server is gone, and a socket of it answers"
        );
    }
    let started = Instant::now();
    installation.start();
    let serves = started.elapsed();
    for app in &mut open {
        let (line, kernel) = comes_back(app.account, app.port, "again");
        assert_eq!(kernel, app.kernel, "it is another program");
        app.line = line;
    }
    println!(
        "{SESSIONS} open apps: the next server serves after {serves:?}, all answer again after {:?}",
        started.elapsed()
    );
    assert_eq!(installation.shims(), shims);
    for app in &mut open {
        let path = format!("/api/v1/sessions/{}", app.session);
        let (_, shown) = app.account.ask("GET", &path, None);
        assert_eq!(shown["state"], "running", "{shown}");
        assert_eq!(answered(&mut app.line, "on").expect("open"), app.kernel);
    }
}
