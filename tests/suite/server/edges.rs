//! Every way to keep silent on a port, or to read nothing from it, has its end, and no connection at work is
//! ended with them. Real deadlines, all waited for at once.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::lan::House;

/// Longer than every deadline of the listener together; only a missing one reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Whoever says this and then nothing more.
fn silent(port: u16, said: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("listening");
    stream.write_all(said).expect("taken");
    stream
}

/// What the server said until it closed; None when it did not in time.
fn ended(mut stream: &TcpStream, until: Instant) -> Option<String> {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = until.checked_duration_since(Instant::now())?;
        stream
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .expect("a timeout");
        match stream.read(&mut piece) {
            Ok(0) => return Some(String::from_utf8_lossy(&all).into_owned()),
            Ok(count) => all.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return Some(String::from_utf8_lossy(&all).into_owned());
            }
            Err(_) => return None,
        }
    }
}

/// A browser's connection that is encrypted, and then only this is said.
fn encrypted(house: &House, said: &[u8]) -> Child {
    let mut child = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect"])
        .arg(format!("127.0.0.1:{}", house.console))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl");
    let input = child.stdin.as_mut().expect("piped");
    input.write_all(said).expect("taken");
    child
}

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty frame of settings.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[test]
fn every_silence_on_a_plain_port_has_its_end_and_a_stream_of_somebody_signed_in_has_none() {
    let house = House::start(&[], "off");
    let token = house.token();
    let port = house.console;
    let following = silent(
        port,
        format!(
            "GET /api/v1/events HTTP/1.1\r\nHost: box\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        .as_bytes(),
    );
    let form = "POST /login HTTP/1.1\r\nHost: box\r\nOrigin: http://box\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 20\r\n\r\n";
    let dripping = silent(port, form.as_bytes());
    let drip = dripping.try_clone().expect("a second handle");
    std::thread::spawn(move || {
        // A letter every two seconds would take forty.
        while (&drip).write_all(b"n").is_ok() {
            std::thread::sleep(Duration::from_secs(2));
        }
    });
    let silences = [
        ("nothing", silent(port, b""), ""),
        ("half a first line", silent(port, b"GET / HT"), ""),
        (
            "half a head",
            silent(port, b"GET /login HTTP/1.1\r\nHost: box\r\n"),
            "",
        ),
        ("half a preface of HTTP/2", silent(port, &HTTP2[..12]), ""),
        ("HTTP/2 and nothing more", silent(port, HTTP2), ""),
        (
            "HTTP/2 without a stream",
            silent(port, &[HTTP2, SETTINGS].concat()),
            "",
        ),
        (
            "a connection after its answer",
            silent(port, b"GET /healthz HTTP/1.1\r\nHost: box\r\n\r\n"),
            "HTTP/1.1 200",
        ),
        (
            "a body that does not come",
            silent(port, form.as_bytes()),
            "HTTP/1.1 408",
        ),
        ("a body that drips", dripping, "HTTP/1.1 408"),
    ];
    let until = Instant::now() + TIMEOUT;
    for (silence, stream, said) in &silences {
        let heard = ended(stream, until);
        let heard = heard.unwrap_or_else(|| panic!("{silence}: never ended"));
        assert!(heard.contains(said), "{silence}: {heard}");
    }
    following.set_nonblocking(true).expect("a flag");
    let mut heard = vec![0; 1 << 16];
    let count = (&following).read(&mut heard).expect("an answer");
    assert!(heard[..count].starts_with(b"HTTP/1.1 200"));
    let more = loop {
        match (&following).read(&mut heard) {
            Ok(count) if count > 0 => {}
            other => break other,
        }
    };
    assert_eq!(
        more.expect_err("it goes on").kind(),
        std::io::ErrorKind::WouldBlock
    );
}

#[test]
fn every_silence_before_and_after_a_handshake_has_its_end() {
    let test = "every_silence_before_and_after_a_handshake_has_its_end";
    if !Command::new("openssl")
        .arg("version")
        .output()
        .is_ok_and(|done| done.status.success())
    {
        skips::skip(test, "openssl is not here");
        return;
    }
    let house = House::open();
    let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
    let silences = [
        ("nothing", silent(house.console, b"")),
        ("half a hello", silent(house.console, &hello)),
        ("nothing to the way", silent(house.way, b"")),
        ("nothing to the apps", silent(house.apps, b"")),
    ];
    let mut sessions = [
        ("nothing after the handshake", encrypted(&house, b"")),
        ("half a preface", encrypted(&house, &HTTP2[..12])),
        ("half a head", encrypted(&house, b"GET / HTTP/1.1\r\n")),
    ];
    let until = Instant::now() + TIMEOUT;
    for (silence, stream) in &silences {
        assert!(ended(stream, until).is_some(), "{silence}: never ended");
    }
    for (silence, child) in &mut sessions {
        while child.try_wait().expect("looked").is_none() {
            if Instant::now() > until {
                let _ = child.kill();
                panic!("{silence}: never ended");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Whether the server holds its end of this connection as one that lives.
fn held(stream: &TcpStream) -> bool {
    /// `TCP_ESTABLISHED` of the kernel.
    const ESTABLISHED: &str = "01";
    let of = |address: std::io::Result<std::net::SocketAddr>| {
        format!(":{:04X}", address.expect("connected").port())
    };
    let (ours, theirs) = (of(stream.local_addr()), of(stream.peer_addr()));
    let table = fs::read_to_string("/proc/net/tcp").expect("a table");
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3
            && words[1].ends_with(&theirs)
            && words[2].ends_with(&ours)
            && words[3] == ESTABLISHED
    })
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a short frame");
    let mut all = length.to_be_bytes()[1..].to_vec();
    all.extend([kind, flags]);
    all.extend(stream.to_be_bytes());
    all.extend(body);
    all
}

/// A request for `path` on a stream, over HTTP/2.
fn asking(stream: u32, path: &str, token: &str) -> Vec<u8> {
    const HEADERS: u8 = 1;
    const WHOLE: u8 = 0x5;
    let literal = |text: &str| {
        let length = u8::try_from(text.len()).expect("a short word");
        assert!(length < 127, "one byte of length");
        [&[length], text.as_bytes()].concat()
    };
    // GET, http, then :path, :authority and authorization by their numbers in the static table.
    let block = [
        vec![0x82, 0x86, 0x04],
        literal(path),
        vec![0x01],
        literal("box"),
        vec![0x0f, 0x08],
        literal(&format!("Bearer {token}")),
    ];
    frame(HEADERS, WHOLE, stream, &block.concat())
}

/// What happened on one connection of HTTP/2 whose client answers every ping, until the given streams were
/// reset; then it goes on until `last` brings data. Gives the streams that were reset.
fn resets(mut stream: &TcpStream, wanted: usize, last: u32, until: Instant) -> Vec<u32> {
    const DATA: u8 = 0;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const ACKNOWLEDGED: u8 = 1;
    let mut reset = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "only {reset:?} were reset");
        stream.set_read_timeout(Some(left)).expect("a timeout");
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("the connection lives");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut body = vec![0; usize::try_from(length).expect("short")];
        stream.read_exact(&mut body).expect("the connection lives");
        let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let (kind, flags) = (head[3], head[4]);
        match kind {
            PING | SETTINGS if flags & ACKNOWLEDGED == 0 => {
                let body: &[u8] = if kind == PING { &body } else { &[] };
                let answer = frame(kind, ACKNOWLEDGED, 0, body);
                stream.write_all(&answer).expect("taken");
            }
            RESET => reset.push(of),
            DATA if of == last && reset.len() >= wanted => return reset,
            _ => {}
        }
    }
}

#[test]
fn an_answer_that_is_not_read_has_its_end_over_both_protocols() {
    const WINDOW_OF_A_STREAM: u16 = 4;
    const WINDOW_UPDATE: u8 = 8;
    let house = House::start(&[], "off");
    let token = house.token();
    let port = house.console;
    // More than both ends of a connection hold.
    let many = format!(
        "GET /api/v1/openapi.json HTTP/1.1\r\nHost: box\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    .repeat(150);
    let unread = silent(port, many.as_bytes());
    let slowly = silent(port, many.as_bytes());
    let shut = |window: u32| {
        let mut setting = WINDOW_OF_A_STREAM.to_be_bytes().to_vec();
        setting.extend(window.to_be_bytes());
        let said = [
            HTTP2.to_vec(),
            frame(SETTINGS[3], 0, 0, &setting),
            asking(1, "/api/v1/openapi.json", &token),
            asking(3, "/api/v1/events", &token),
            frame(WINDOW_UPDATE, 0, 3, &(1u32 << 16).to_be_bytes()),
            asking(5, "/api/v1/openapi.json", &token),
        ];
        silent(port, &said.concat())
    };
    // No room at all, and room for some of it.
    let windows = [shut(0), shut(1000)];
    let until = Instant::now() + TIMEOUT;
    let reader = std::thread::spawn(move || {
        // Pauses, and goes on in time.
        let mut piece = vec![0; 256 << 10];
        while Instant::now() < until {
            std::thread::sleep(Duration::from_secs(1));
            (&slowly).read_exact(&mut piece).expect("it goes on");
            if !held(&unread) {
                break;
            }
        }
        assert!(!held(&unread), "a socket of which nothing is taken");
        assert!(held(&slowly), "one that is read now and then");
    });
    // Side by side: a connection that is not looked at answers no ping.
    std::thread::scope(|scope| {
        for stream in &windows {
            scope.spawn(move || {
                let mut reset = resets(stream, 2, 3, until);
                reset.sort_unstable();
                assert_eq!(reset, [1, 5]);
            });
        }
    });
    reader.join().expect("both ends as they should");
}

#[test]
fn a_request_names_one_host_on_every_port() {
    let house = House::start(&[], "off");
    let ask = |head: &str| {
        let stream = silent(
            house.console,
            format!("{head}Connection: close\r\n\r\n").as_bytes(),
        );
        ended(&stream, Instant::now() + TIMEOUT).expect("an answer")
    };
    for (head, code) in [
        ("GET /healthz HTTP/1.1\r\n", "host.missing"),
        (
            "GET /healthz HTTP/1.1\r\nHost: box\r\nHost: evil\r\n",
            "host.twice",
        ),
        (
            "GET /healthz HTTP/1.1\r\nHost: box\r\nHost: box\r\n",
            "host.twice",
        ),
        ("GET /healthz HTTP/1.1\r\nHost: a@box\r\n", "host.malformed"),
        (
            "GET http://evil/healthz HTTP/1.1\r\nHost: box\r\n",
            "host.differs",
        ),
    ] {
        let said = ask(head);
        assert!(
            said.starts_with("HTTP/1.1 400") && said.contains(code),
            "{head}: {said}"
        );
    }
    for head in [
        "GET /healthz HTTP/1.0\r\n",
        "GET /healthz HTTP/1.1\r\nHost: box\r\n",
    ] {
        assert!(ask(head).contains(" 200 OK"), "{head}");
    }
    // A proxy in front may see other lines than the HTTP library.
    for head in [
        "GET /healthz HTTP/1.1\nHost: box\r\n",
        "GET /healthz HTTP/1.1\r\nHost: box\nX: y\r\n",
        "GET /healthz HTTP/1.1\r\nHost: box\r\n\r\nGET /readyz HTTP/1.1\r\nHost: box\n",
    ] {
        let said = ask(head);
        assert!(said.contains("HTTP/1.1 400"), "{head}: {said}");
    }
}
