//! The proxy of apps beside nginx: the same small app, asked straight, through nginx, and in a session through the product,
//! by the same client. Requests a second by connections that never rest; what a request and a message of a WebSocket wait
//! longer, by a client that asks at a steady rate however long answers take.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use base::figures::{ms, quantile, ratio, round};
use serde_json::{Value, json};

use super::exchange::Exchange;
use super::guest::{self, GuestImage, SOCKET_KEY, without_samples};
use super::member::{BROWSER, Member};
use super::nginx::Nginx;
use super::subject::BenchServer;

/// Where apps have ports: 100 of them from here on.
const SETTINGS: &[(&str, &str)] = &[("FARDEL_LISTEN_APPS", "127.0.0.1:28443")];
/// The app's port inside.
const INNER: u16 = 8888;
/// Connections that never rest.
const CONNECTIONS: usize = 32;
/// Connections at a steady rate, and how often each asks. Together far below what any side bears.
const STEADY: usize = 4;
const EACH: Duration = Duration::from_millis(10);
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a message of a WebSocket.
const MESSAGE: usize = 32;

/// A way to the app.
struct Way {
    address: SocketAddr,
    /// Lines of each request's head.
    head: String,
}

/// What one way bears, and how long it takes.
#[derive(Default)]
struct WaySamples {
    a_second: Vec<f64>,
    request: Vec<f64>,
    echo: Vec<f64>,
}

impl WaySamples {
    fn figure(&self) -> Value {
        json!({
            "requests_a_second": quantile(&self.a_second, 0.5).map(round),
            "requests_a_second_samples": self.a_second.iter().copied().map(round).collect::<Vec<_>>(),
            "request": without_samples(&self.request),
            "websocket_echo": without_samples(&self.echo),
        })
    }
}

/// Each way in turns, `rounds` times.
pub(super) fn proxied(rounds: usize, window: Duration) -> io::Result<Value> {
    let (subject, _) = BenchServer::with("proxy", SETTINGS)?;
    let member = Member::first(&subject)?;
    GuestImage::make()?.import(&subject)?;
    let ours = entered(&subject, &member)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let straight = Way {
        address: listener.local_addr()?,
        head: String::new(),
    };
    // It ends with this program.
    std::thread::spawn(move || guest::serve(listener));
    let nginx = Nginx::before(straight.address)?;
    let beside = nginx.as_ref().map(|nginx| Way {
        address: nginx.listen,
        head: String::new(),
    });
    let mut straight_samples = WaySamples::default();
    let (mut own, mut peer) = (WaySamples::default(), WaySamples::default());
    for _ in 0..rounds {
        measured(&straight, window, &mut straight_samples)?;
        measured(&ours, window, &mut own)?;
        if let Some(beside) = &beside {
            measured(beside, window, &mut peer)?;
        }
    }
    let p50 = |samples: &[f64]| quantile(samples, 0.5);
    let more = |samples: &[f64], than: &[f64]| {
        let (one, other) = p50(samples).zip(p50(than))?;
        Some((one - other) * 1000.0).map(|us| round(us) / 1000.0)
    };
    Ok(json!({
        "what": format!("a page of 1 KiB over loopback: {CONNECTIONS} connections that never rest; then {STEADY} that each ask every {} ms, requests and messages of 32 bytes, timed from when they were due", EACH.as_millis()),
        "nginx_version": nginx.as_ref().map(|nginx| &nginx.version),
        "straight": straight_samples.figure(),
        "fardel": own.figure(),
        "nginx": beside.as_ref().map(|_| peer.figure()),
        "requests_ratio_to_nginx": ratio(p50(&own.a_second), p50(&peer.a_second)),
        "added_p50_ms": more(&own.request, &straight_samples.request),
        "added_p50_ms_by_nginx": more(&peer.request, &straight_samples.request),
        "echo_p50_ms_more_than_nginx": more(&own.echo, &peer.echo),
        "echo_added_p50_ms": more(&own.echo, &straight_samples.echo),
    }))
}

fn measured(way: &Way, window: Duration, samples: &mut WaySamples) -> io::Result<()> {
    samples.a_second.push(restless(way, window)?);
    samples.request.extend(steady(way, window, false)?);
    samples.echo.extend(steady(way, window, true)?);
    Ok(())
}

/// Starts the app in a session, opens it as a browser does, and gives the way of that browser's scripts.
fn entered(subject: &BenchServer, member: &Member) -> io::Result<Way> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let body = json!({
        "image": guest::IMAGE, "command": guest::command(&["serve", &INNER.to_string()]),
        "resources": {"cpu": cores, "memory": 256 << 20},
    });
    let id = member.launch(subject, &body)?;
    member.until(subject, &id, "running")?;
    let until = Instant::now() + START_TIMEOUT;
    let path = format!("/api/v1/sessions/{id}/apps/{INNER}/open");
    let opened = loop {
        let cookie = [BROWSER[0], BROWSER[1], ("cookie", member.cookie.as_str())];
        let answer = subject.tcp(&cookie)?.post(&path, &json!({}))?;
        if answer.is_good() && answer.json()["entry"].is_string() {
            break answer.json();
        }
        if Instant::now() > until {
            answer.good("open the app")?;
            return Err(io::Error::other("the app has no entry"));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let entry = opened["entry"].as_str().unwrap_or_default();
    let (port, path) = opened["app"]["address_port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .zip(entry.splitn(4, '/').nth(3))
        .ok_or_else(|| io::Error::other(format!("no way in: {opened}")))?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let tab = format!(
        "cookie: {}\r\nsec-fetch-site: same-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n",
        member.cookie
    );
    let answer = Exchange::plain(address)?
        .get(&format!("/{path}"), &tab)?
        .with_status(303, "enter the app")?;
    let set = answer.header("set-cookie").unwrap_or_default();
    let cookie = set.split(';').next().unwrap_or_default();
    Ok(Way {
        address,
        head: format!(
            "cookie: {cookie}\r\nsec-fetch-site: same-origin\r\nsec-fetch-mode: cors\r\n"
        ),
    })
}

/// Requests a second of connections that never rest.
fn restless(way: &Way, window: Duration) -> io::Result<f64> {
    let began = Instant::now();
    let until = began + window;
    let asked = together(CONNECTIONS, |_| {
        let mut exchange = Exchange::plain(way.address)?;
        let mut count = 0_u64;
        while Instant::now() < until {
            exchange
                .get("/", &way.head)?
                .with_status(200, "ask the app")?;
            count += 1;
        }
        Ok(count)
    })?;
    let took = began.elapsed().as_secs_f64();
    Ok(asked.iter().sum::<u64>() as f64 / took)
}

/// How long after they were due answers had come, at a steady rate: requests, or messages of WebSockets.
fn steady(way: &Way, window: Duration, is_socket: bool) -> io::Result<Vec<f64>> {
    let began = Instant::now() + Duration::from_millis(50);
    let samples = together(STEADY, |number| {
        let mut exchange = Exchange::plain(way.address)?;
        if is_socket {
            let origin = format!("origin: http://{}\r\n", exchange.host);
            let head = format!(
                "{}{origin}connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {SOCKET_KEY}\r\n",
                way.head
            );
            exchange
                .get("/", &head)?
                .with_status(101, "open a WebSocket")?;
        }
        let mut spans = Vec::new();
        // They do not ask in step.
        let mut due = began + EACH * number as u32 / STEADY as u32;
        while due < began + window {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            match is_socket {
                true => message(&mut exchange)?,
                false => {
                    exchange
                        .get("/", &way.head)?
                        .with_status(200, "ask the app")?;
                }
            }
            spans.push(ms(due.elapsed()));
            due += EACH;
        }
        Ok(spans)
    })?;
    Ok(samples.concat())
}

/// One message there and back.
fn message(exchange: &mut Exchange) -> io::Result<()> {
    let mut frame = [b'x'; 6 + MESSAGE];
    // A text of one frame; a mask of zeros leaves it as it is.
    frame[..6].copy_from_slice(&[0x81, 0x80 | MESSAGE as u8, 0, 0, 0, 0]);
    exchange.write(&frame)?;
    let mut back = [0; 2 + MESSAGE];
    exchange.read(&mut back)?;
    match back[..2] == [0x81, MESSAGE as u8] && back[2..] == frame[6..] {
        true => Ok(()),
        false => Err(io::Error::other("another message came back")),
    }
}

/// Runs as many clients at once; gives what each measured.
fn together<T: Send>(
    count: usize,
    client: impl Fn(usize) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        clients
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_asked_by_requests_and_by_messages() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Way {
            address: listener.local_addr().unwrap(),
            head: String::new(),
        };
        std::thread::spawn(move || guest::serve(listener));
        let mut samples = WaySamples::default();
        measured(&way, Duration::from_millis(100), &mut samples).unwrap();
        assert!(samples.a_second[0] > 0.0);
        assert!(!samples.request.is_empty() && !samples.echo.is_empty());
        assert!(
            together(2, |number| match number {
                0 => Ok(()),
                _ => Err(io::Error::other("planted")),
            })
            .is_err()
        );
    }
}
