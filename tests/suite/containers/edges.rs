//! Clients of a supervisor at the edge of what it keeps for them: who does not read, who subscribes too
//! often, who types what no program reads. The container itself waits for none of them.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use node::runtime::wire::{FrameKind, ShimRequest, put_json};
use node::runtime::{RuntimeName, TerminalSize};

use super::ground::Ground;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a supervisor that asks for this and then reads nothing.
fn client(ground: &Ground, name: &RuntimeName, request: &ShimRequest) -> UnixStream {
    let place = ground.directory.path().join("run/c").join(name.as_str());
    let mut stream = UnixStream::connect(place.join("shim.sock")).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let mut words = Vec::new();
    put_json(&mut words, FrameKind::Request, request);
    stream.write_all(&words).expect("taken");
    stream
}

/// How many bytes come until the supervisor ends the connection; None where it goes on.
fn until_let_go(mut stream: UnixStream) -> Option<usize> {
    let (mut all, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Some(all),
            Ok(count) => all += count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Some(all),
            Err(_) => return None,
        }
    }
}

fn wait_until(true_now: impl Fn() -> bool) -> bool {
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        if true_now() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn a_supervisor_lets_a_reader_go_that_does_not_read() {
    let Some(ground) = Ground::lay("a_supervisor_lets_a_reader_go_that_does_not_read") else {
        return;
    };
    // Four million letters, once a reader is there.
    let script = "while [ ! -e /tmp/go ]; do sleep 0.05; done; \
                  head -c 4000000 /dev/zero | tr '\\0' x; touch /tmp/said; exec sleep 1000";
    let name = ground.start(&ground.shell(script));
    let first = ground.running(&name);
    let deaf = client(&ground, &name, &ShimRequest::Attach { size: None });
    // The supervisor answers before anything is said.
    let mut answer = [0; 4];
    (&deaf).read_exact(&mut answer).expect("an answer");
    let inside = std::path::PathBuf::from(format!("/proc/{first}/root/tmp"));
    fs::write(inside.join("go"), "").expect("made");
    assert!(
        wait_until(|| inside.join("said").exists()),
        "the program waits for a reader"
    );
    let came = until_let_go(deaf).expect("it is kept though it does not read");
    assert!(came < 3_000_000, "{came} bytes were kept for it");
    ground.runtime.kill(&name).expect("asked");
    assert_eq!(ground.ended(&name).code, 137);
}

#[test]
fn a_slow_reader_of_a_terminal_is_kept_and_told_what_it_missed() {
    let Some(ground) = Ground::lay("a_slow_reader_of_a_terminal_is_kept_and_told_what_it_missed")
    else {
        return;
    };
    let script = "while [ ! -e /tmp/go ]; do sleep 0.05; done; \
                  head -c 4000000 /dev/zero | tr '\\0' x; echo the-end; touch /tmp/said; exec sleep 1000";
    let mut order = ground.shell(script);
    order.terminal = Some(TerminalSize {
        columns: 80,
        rows: 24,
    });
    let name = ground.start(&order);
    let first = ground.running(&name);
    let mut slow = client(&ground, &name, &ShimRequest::Attach { size: None });
    let mut answer = [0; 4];
    slow.read_exact(&mut answer).expect("an answer");
    let inside = std::path::PathBuf::from(format!("/proc/{first}/root/tmp"));
    fs::write(inside.join("go"), "").expect("made");
    assert!(
        wait_until(|| inside.join("said").exists()),
        "the program waits for a reader"
    );
    let (mut heard, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let holds = |heard: &[u8], words: &[u8]| heard.windows(words.len()).any(|each| each == words);
    while !holds(&heard, b"the-end") {
        let count = slow.read(&mut buffer).expect("it comes to its end");
        assert!(count > 0, "it is let go after {} bytes", heard.len());
        heard.extend_from_slice(&buffer[..count]);
    }
    assert!(
        heard.len() < 1_000_000,
        "{} bytes were kept for it",
        heard.len()
    );
    assert!(holds(&heard, b"\x1b]7300;"), "it is not told");
    ground.runtime.kill(&name).expect("asked");
    assert_eq!(ground.ended(&name).code, 137);
}

#[test]
fn a_supervisor_tells_four_of_its_changes_and_lets_the_oldest_go() {
    let Some(ground) = Ground::lay("a_supervisor_tells_four_of_its_changes_and_lets_the_oldest_go")
    else {
        return;
    };
    let name = ground.start(&ground.shell("exec sleep 1000"));
    ground.running(&name);
    let subscribe = || client(&ground, &name, &ShimRequest::Subscribe);
    let oldest = subscribe();
    let later: Vec<UnixStream> = (0..4).map(|_| subscribe()).collect();
    assert!(until_let_go(oldest).is_some(), "a fifth is told too");
    let mut newest = later.last().expect("four");
    let mut head = [0; 4];
    newest.read_exact(&mut head).expect("the newest is told");
    // The server comes back when it was let go itself.
    ground.runtime.kill(&name).expect("asked");
    assert_eq!(ground.ended(&name).code, 137);
}
