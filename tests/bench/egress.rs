//! What a session takes over a connection that its policy lists, through the relay, beside the same program connected straight:
//! bytes a second of one stream, and how long a byte there and one back take. In turns, timed at the listed server. All
//! connections of a session together are held to 1 Gbit/s, so a stream says how near it comes to that, never what the relay
//! could carry.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use base::figures::{ms, quantile, ratio, round};
use serde_json::{Value, json};

use super::exchange::noise;
use super::guest::{self, GuestImage, without_samples};
use super::member::Member;
use super::mounted::allow_target;
use super::subject::BenchServer;

const POLICY: &str = "bench-egress";
/// What the policy calls the listed server.
const PEER: &str = "peer";
/// Bytes of one write.
const PIECE: usize = 256 << 10;
const ROUND_TRIPS: usize = 2000;
/// Bytes a second that the relay lets pass for one session.
const HELD_TO: u32 = 125_000_000;
/// Longer than a session takes to connect; only a fault reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What one way bears, and how long it takes.
#[derive(Default)]
struct StreamSamples {
    a_second: Vec<f64>,
    round_trip: Vec<f64>,
}

impl StreamSamples {
    fn figure(&self) -> Value {
        json!({
            "bytes_a_second": quantile(&self.a_second, 0.5).map(round),
            "bytes_a_second_samples": self.a_second.iter().copied().map(round).collect::<Vec<_>>(),
            "round_trip": without_samples(&self.round_trip),
        })
    }
}

/// Each way in turns, `rounds` times, with streams of so many bytes.
pub(super) fn egress(size: u64, rounds: usize) -> io::Result<Value> {
    let listed = TcpListener::bind("127.0.0.1:0")?;
    let straight = TcpListener::bind("127.0.0.1:0")?;
    let (port, address) = (listed.local_addr()?.port(), straight.local_addr()?);
    let (subject, _) = BenchServer::fresh("egress")?;
    let member = Member::first(&subject)?;
    GuestImage::make()?.import(&subject)?;
    let target = format!("{PEER}=127.0.0.1:{port}");
    allow_target(&mut subject.local()?, POLICY, &target)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let body = json!({
        "image": guest::IMAGE, "command": guest::command(&["take", PEER, &port.to_string()]), "network": "list",
        "resources": {"cpu": cores, "memory": 256 << 20},
    });
    let id = member.launch(&subject, &body)?;
    member.until(&subject, &id, "running")?;
    // It ends with this program.
    std::thread::spawn(move || guest::take_from(address));
    let (mut through, mut beside) = (accepted(&listed)?, accepted(&straight)?);
    let (mut own, mut other) = (StreamSamples::default(), StreamSamples::default());
    for _ in 0..rounds {
        measured(&mut beside, size, &mut other)?;
        measured(&mut through, size, &mut own)?;
    }
    let p50 = |samples: &[f64]| quantile(samples, 0.5);
    let added = p50(&own.round_trip).zip(p50(&other.round_trip));
    Ok(json!({
        "what": format!("one stream into a session over a listed connection, which is held to {HELD_TO} bytes a second, and the same straight, which is not, in turns; then {ROUND_TRIPS} times one byte there and one back"),
        "bytes": size,
        "relay": own.figure(),
        "straight": other.figure(),
        "ratio_to_held": ratio(p50(&own.a_second), Some(f64::from(HELD_TO))),
        "ratio_to_straight": ratio(p50(&own.a_second), p50(&other.a_second)),
        "added_p50_ms": added.map(|(one, other)| round((one - other) * 1000.0) / 1000.0),
    }))
}

/// The next connection.
///
/// Errors: none came in time.
fn accepted(listener: &TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let until = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error),
        }
    }
}

fn measured(stream: &mut TcpStream, size: u64, samples: &mut StreamSamples) -> io::Result<()> {
    let content = noise(PIECE);
    let took = sent(stream, size, &content)?.as_secs_f64();
    samples.a_second.push(size as f64 / took);
    for _ in 0..ROUND_TRIPS {
        samples.round_trip.push(ms(sent(stream, 1, &content)?));
    }
    Ok(())
}

/// Sends so many bytes; gives how long it took until the other side had all of them.
fn sent(stream: &mut TcpStream, bytes: u64, content: &[u8]) -> io::Result<Duration> {
    let piece = |left: u64| left.min(content.len() as u64) as usize;
    let first = piece(bytes);
    let began = Instant::now();
    stream.write_all(&[&bytes.to_le_bytes()[..], &content[..first]].concat())?;
    let mut left = bytes - first as u64;
    while left > 0 {
        let now = piece(left);
        stream.write_all(&content[..now])?;
        left -= now as u64;
    }
    stream.read_exact(&mut [0])?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_timed_until_all_of_it_was_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let taker = std::thread::spawn(move || guest::take_from(address));
        let mut stream = accepted(&listener).unwrap();
        let mut samples = StreamSamples::default();
        measured(&mut stream, 3 * PIECE as u64 + 5, &mut samples).unwrap();
        assert_eq!(
            (samples.a_second.len(), samples.round_trip.len()),
            (1, ROUND_TRIPS)
        );
        drop(stream);
        taker.join().unwrap().unwrap();
        // One that goes before it has all is no figure.
        let leaver = std::thread::spawn(move || TcpStream::connect(address).map(drop));
        let mut stream = accepted(&listener).unwrap();
        leaver.join().unwrap().unwrap();
        assert!(measured(&mut stream, 64 << 20, &mut samples).is_err());
    }
}
