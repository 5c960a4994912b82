//! A crowd of strangers at the door of a real server: people at work go on, a new visitor comes in, and
//! the server's memory does not grow with the crowd or stay after it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::lan::House;

/// Longer than any answer takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

fn connect(house: &House) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", house.console)).expect("listening");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

/// Sends this and gives the whole answer.
fn ask(house: &House, request: &str) -> String {
    let mut stream = connect(house);
    stream.write_all(request.as_bytes()).expect("taken");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("an answer");
    String::from_utf8_lossy(&said).into_owned()
}

fn get(house: &House, path: &str, more: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: box\r\nConnection: close\r\n{more}\r\n");
    ask(house, &head)
}

/// Megabytes of memory that the server has for itself.
fn memory(house: &House) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", house.child.id())).expect("alive");
    let line = status.lines().find(|line| line.starts_with("RssAnon"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|text| text.parse::<u64>().ok())
        .expect("a number")
        / 1024
}

fn open_files(house: &House) -> usize {
    fs::read_dir(format!("/proc/{}/fd", house.child.id()))
        .expect("alive")
        .count()
}

#[test]
fn two_thousand_silent_strangers_shut_nobody_out() {
    let house = House::start(&[], "off");
    let bearer = format!("Authorization: Bearer {}\r\n", house.token());
    let files = open_files(&house);
    let mut following = connect(&house);
    let head = format!("GET /api/v1/events HTTP/1.1\r\nHost: box\r\n{bearer}\r\n");
    following.write_all(head.as_bytes()).expect("taken");
    let mut first = [0; 15];
    following.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let crowd: Vec<TcpStream> = (0..2100).map(|_| connect(&house)).collect();
    let visitor = get(&house, "/login", "");
    assert!(visitor.starts_with("HTTP/1.1 200"), "{visitor}");
    let mine = get(&house, "/api/v1/me", &bearer);
    assert!(mine.starts_with("HTTP/1.1 200"), "{mine}");
    // Those that had to go are closed by tasks of their own.
    let until = Instant::now() + TIMEOUT;
    loop {
        let held = open_files(&house).saturating_sub(files);
        if held < 600 {
            break;
        }
        assert!(Instant::now() < until, "the crowd holds {held} places");
        std::thread::sleep(Duration::from_millis(100));
    }
    following.set_nonblocking(true).expect("a flag");
    let mut heard = vec![0; 1 << 16];
    let more = loop {
        match following.read(&mut heard) {
            Ok(count) if count > 0 => {}
            other => break other,
        }
    };
    assert_eq!(
        more.expect_err("it goes on").kind(),
        std::io::ErrorKind::WouldBlock
    );
    drop(crowd);
}

#[test]
fn the_bodies_of_three_hundred_strangers_take_little_memory() {
    let house = House::start(&[], "off");
    let token = house.token();
    // What the first sign-in needed is counted before.
    let before = memory(&house);
    let form = "POST /login HTTP/1.1\r\nHost: box\r\nOrigin: http://box\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let body = vec![b'a'; 900 << 10];
    let mut crowd = Vec::new();
    for number in 0..300 {
        let mut stream = connect(&house);
        stream
            .set_write_timeout(Some(Duration::from_millis(500)))
            .expect("a timeout");
        let length = match number % 2 {
            0 => "Content-Length: 1000000\r\n\r\n".to_owned(),
            // Its length is not said before it has come.
            _ => format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", 1_000_000),
        };
        let _ = stream.write_all(format!("{form}{length}").as_bytes());
        let _ = stream.write_all(&body);
        crowd.push(stream);
    }
    let grown = memory(&house).saturating_sub(before);
    assert!(grown < 64, "three hundred bodies hold {grown} MiB");
    let asked = ask(
        &house,
        &format!("{form}Connection: close\r\nContent-Length: 70000\r\n\r\n"),
    );
    assert!(asked.starts_with("HTTP/1.1 413"), "{asked}");
    assert!(asked.contains("body.too-large-unproven"), "{asked}");
    // Somebody at work has room of their own.
    let long = format!("{{\"name\": \"{}\"}}", "a".repeat(700 << 10));
    let launch = ask(
        &house,
        &format!(
            "POST /api/v1/sessions HTTP/1.1\r\nHost: box\r\nAuthorization: Bearer {token}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{long}",
            long.len()
        ),
    );
    assert!(launch.starts_with("HTTP/1.1 422"), "{launch}");
    drop(crowd);
}

#[test]
fn what_a_burst_of_sign_ins_needed_is_given_back() {
    let house = House::start(&[], "off");
    // The first one brings what stays: threads, caches, pages of the catalog.
    house.token();
    let before = memory(&house);
    let sign_in = format!(
        "{{\"name\": \"mina\", \"password\": \"{}\"}}",
        super::the_box::PASSWORD
    );
    let request = format!(
        "POST /api/v1/sign-in HTTP/1.1\r\nHost: box\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{sign_in}",
        sign_in.len()
    );
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| ask(&house, &request));
        }
    });
    let until = Instant::now() + TIMEOUT;
    loop {
        let grown = memory(&house).saturating_sub(before);
        if grown <= 30 {
            return;
        }
        assert!(Instant::now() < until, "{grown} MiB stay after the burst");
        std::thread::sleep(Duration::from_millis(500));
    }
}
