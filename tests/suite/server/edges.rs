//! Every way to keep silent on a port has its end, and nobody who is at work is ended with them. Real
//! deadlines, all waited for at once.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::lan::House;

/// Longer than every deadline of the listener together; only a missing one reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let until = Instant::now() + PATIENCE;
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
    let until = Instant::now() + PATIENCE;
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

#[test]
fn a_request_names_one_host_on_every_port() {
    let house = House::start(&[], "off");
    let ask = |head: &str| {
        let stream = silent(
            house.console,
            format!("{head}Connection: close\r\n\r\n").as_bytes(),
        );
        ended(&stream, Instant::now() + PATIENCE).expect("an answer")
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
}
