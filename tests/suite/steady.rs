//! Memory of one server over a long time: after a burst it goes back, and steady work keeps none. It takes more
//! than an hour, so `cargo ci nightly` runs it. `FARDEL_STEADY_MINUTES` says how long the work goes on,
//! `FARDEL_PROGRAM` names another binary than the one that was built for the tests.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::Digest as _;

use crate::crash::installation::Installation;
use crate::crowd::{Account, PASSWORD, ask, end_all, free_address, memory_kib, user};

/// Longer than one act takes beside a burst; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);
const USERS: usize = 25;
const SIGN_INS: usize = 325;
const IMPORTS: usize = 20;
const SESSIONS: usize = 10_000;
/// Sessions that one user launches before the first of them is deleted.
const BATCH: usize = 50;
/// People who act at once.
const AT_ONCE: usize = 8;
/// How long a server has to give back what a burst took.
const QUIET: Duration = Duration::from_secs(240);
const MINUTES: u64 = 60;
const ACTS_PER_SECOND: u64 = 25;
/// What a burst may leave, in KiB (issue of the memory that was kept: 43 to 595 MiB after 64 sign-ins).
const MAX_LEFT_KIB: u64 = 30 << 10;
/// What the second half of the steady work may add, in KiB.
const MAX_GROWTH_KIB: u64 = 5 << 10;
const PAGES: [&str; 10] = [
    "/",
    "/sessions",
    "/queue",
    "/history",
    "/events",
    "/images",
    "/me",
    "/notices",
    "/sessions/new",
    "/usage",
];
const LISTS: [&str; 8] = [
    "/api/v1/sessions?limit=50",
    "/api/v1/queue",
    "/api/v1/overview",
    "/api/v1/me/notices",
    "/api/v1/events/search",
    "/api/v1/effective-limits",
    "/api/v1/presets",
    "/api/v1/usage",
];

/// Answers that nothing in the work explains, by act and status.
type Unexpected = Mutex<BTreeMap<String, usize>>;

fn session(name: &str) -> Value {
    json!({
        "name": name, "kind": "batch", "image": "host", "command": ["sleep", "100000"],
        "resources": {"cpu": 0.1, "memory": 64 << 20, "shm": 1 << 20},
    })
}

/// An archive with one layer of random bytes, so that no two of them share it.
fn archive(folder: &Path, number: usize) -> PathBuf {
    let tree = folder.join(format!("tree-{number}"));
    fs::create_dir_all(tree.join("root")).expect("made");
    let mut random = vec![0; 1 << 20];
    let mut source = fs::File::open("/dev/urandom").expect("the kernel's dice");
    source.read_exact(&mut random).expect("bytes");
    fs::write(tree.join("root/data"), random).expect("written");
    let packed = |from: &Path, to: &Path, names: &[&str]| {
        let mut tar = Command::new("tar");
        let status = tar.arg("-C").arg(from).arg("-cf").arg(to).args(names);
        assert!(status.status().expect("tar runs").success());
    };
    let hex = |bytes: &[u8]| -> String {
        let digest = sha2::Sha256::digest(bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    packed(&tree.join("root"), &tree.join("layer.tar"), &["data"]);
    let layer = hex(&fs::read(tree.join("layer.tar")).expect("a layer"));
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["/data"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
    });
    let config = config.to_string();
    let name = format!("{}.json", hex(config.as_bytes()));
    fs::write(tree.join(&name), config).expect("written");
    let reference = format!("burst-{number}:1");
    let manifest = json!([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]);
    fs::write(tree.join("manifest.json"), manifest.to_string()).expect("written");
    let archive = folder.join(format!("image-{number}.tar"));
    packed(&tree, &archive, &["manifest.json", &name, "layer.tar"]);
    archive
}

/// One request of a browser; its status and head.
fn browse(at: SocketAddr, head: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let length = body.len();
    let head = format!("{head}host: {at}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes())?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    let text = String::from_utf8_lossy(&all);
    let head = text.split("\r\n\r\n").next().unwrap_or_default().to_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.unwrap_or(0), head))
}

/// The cookie of a new sign-in by the form of the page.
pub(crate) fn cookie(at: SocketAddr, name: &str) -> String {
    let origin = format!("http://{at}");
    let head = format!(
        "POST /login HTTP/1.0\r\norigin: {origin}\r\nsec-fetch-site: same-origin\r\n\
         content-type: application/x-www-form-urlencoded\r\n"
    );
    let form = format!("name={name}&password={PASSWORD}");
    let (status, head) = browse(at, &head, &form).expect("an answer");
    let set = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("set-cookie").then_some(value)
    });
    let set = set.unwrap_or_else(|| panic!("no sign-in: {status} {head}"));
    set.split(';').next().unwrap_or_default().to_owned()
}

/// Does each number below `count` once, so many at a time.
fn together(count: usize, act: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    act(number);
                }
            });
        }
    });
}

/// Deletes a session that was killed, as soon as it has ended.
fn delete(of: &Account, id: &str) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let (status, answer) = of.ask("DELETE", &format!("/api/v1/sessions/{id}"), None);
        if (200..300).contains(&status) {
            return;
        }
        assert_eq!(status, 409, "{id}: {answer}");
        assert!(Instant::now() < end, "{id} does not end: {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sign-ins, imports, sessions.
fn burst(socket: &Path, users: &[Account]) {
    together(SIGN_INS, |number| {
        let body = json!({"name": format!("user-{}", number % USERS), "password": PASSWORD});
        let signed = ask(socket, None, "POST", "/api/v1/sign-in", Some(&body));
        let (status, answer) = signed.expect("an answer");
        assert!((200..300).contains(&status), "{status} {answer}");
    });
    let folder = tempfile::tempdir().expect("a directory");
    for number in 0..IMPORTS {
        let path = archive(folder.path(), number);
        let body = json!({"path": path, "reference": format!("burst-{number}:1")});
        let begun = ask(socket, None, "POST", "/api/v1/images/import", Some(&body));
        let (status, answer) = begun.expect("an answer");
        assert!((200..300).contains(&status), "{status} {answer}");
    }
    let end = Instant::now() + TIMEOUT * 5;
    loop {
        let listed = ask(socket, None, "GET", "/api/v1/images?limit=100", None);
        let images = listed.expect("an answer").1;
        if images["items"]
            .as_array()
            .is_some_and(|all| all.len() >= IMPORTS)
        {
            break;
        }
        assert!(Instant::now() < end, "the imports do not end: {images}");
        std::thread::sleep(Duration::from_millis(200));
    }
    together(SESSIONS / BATCH, |batch| {
        let of = &users[batch % users.len()];
        let mut ids = Vec::with_capacity(BATCH);
        for number in 0..BATCH {
            let body = session(&format!("burst-{batch}-{number}"));
            let (status, answer) = of.ask("POST", "/api/v1/sessions", Some(&body));
            assert!((200..300).contains(&status), "{status} {answer}");
            ids.push(answer["id"].as_str().expect("an id").to_owned());
        }
        for id in &ids {
            let (status, answer) = of.ask("POST", &format!("/api/v1/sessions/{id}/kill"), None);
            assert!((200..300).contains(&status), "{status} {answer}");
        }
        for id in &ids {
            delete(of, id);
        }
    });
}

/// What one user has at this moment.
struct Desk {
    account: Account,
    name: String,
    cookie: String,
    running: Mutex<VecDeque<String>>,
    killed: Mutex<VecDeque<String>>,
}

impl Desk {
    /// One act of the work; `number` says which.
    fn acts(&self, at: SocketAddr, number: usize, unexpected: &Unexpected) {
        let (turn, round) = (number % 25, number / 25);
        let oldest = |of: &Mutex<VecDeque<String>>, kept: usize| {
            let mut held = of.lock().expect("a lock");
            (held.len() > kept).then(|| held.pop_front()).flatten()
        };
        let asked = |method: &str, path: &str, body: Option<&Value>| {
            let answer = self.account.try_ask(method, path, body);
            answer.unwrap_or_else(|error| (0, json!(error.to_string())))
        };
        let (what, status) = match turn {
            0 | 12 => {
                let body = session(&format!("steady-{number}"));
                let (status, answer) = asked("POST", "/api/v1/sessions", Some(&body));
                if let Some(id) = answer["id"].as_str() {
                    let mut running = self.running.lock().expect("a lock");
                    running.push_back(id.to_owned());
                }
                ("launch".to_owned(), status)
            }
            1 | 13 => match oldest(&self.running, 3) {
                Some(id) => {
                    let path = format!("/api/v1/sessions/{id}/kill");
                    let (status, _) = asked("POST", &path, None);
                    self.killed.lock().expect("a lock").push_back(id);
                    ("kill".to_owned(), status)
                }
                None => return,
            },
            2 | 14 => match oldest(&self.killed, 5) {
                Some(id) => {
                    let (status, _) = asked("DELETE", &format!("/api/v1/sessions/{id}"), None);
                    ("delete".to_owned(), status)
                }
                None => return,
            },
            3..=5 => {
                let newest = self.running.lock().expect("a lock").back().cloned();
                let Some(id) = newest else { return };
                let part = ["", "/logs", "/metrics", "/why", "/events"][(round + turn) % 5];
                // Another turn may have deleted it meanwhile.
                let (status, _) = asked("GET", &format!("/api/v1/sessions/{id}{part}"), None);
                let status = if status == 404 { 200 } else { status };
                (format!("session{part}"), status)
            }
            6 if round % 4 == 0 => {
                let body = json!({"name": self.name, "password": PASSWORD});
                let (status, answer) = asked("POST", "/api/v1/sign-in", Some(&body));
                let token = answer["token"]["id"].as_str().unwrap_or_default();
                let (gone, _) = asked("DELETE", &format!("/api/v1/me/tokens/{token}"), None);
                let status = if (200..300).contains(&gone) {
                    status
                } else {
                    gone
                };
                ("sign-in".to_owned(), status)
            }
            7..=11 | 15..=18 => {
                let page = PAGES[(round + turn) % PAGES.len()];
                let head = format!("GET {page} HTTP/1.0\r\ncookie: {}\r\n", self.cookie);
                let status = browse(at, &head, "").map_or(0, |(status, _)| status);
                (page.to_owned(), status)
            }
            _ => {
                let list = LISTS[(round + turn) % LISTS.len()];
                (list.to_owned(), asked("GET", list, None).0)
            }
        };
        if !(200..300).contains(&status) {
            let mut all = unexpected.lock().expect("a lock");
            *all.entry(format!("{what} {status}")).or_default() += 1;
        }
    }
}

/// Promise (Isolation and access): The server gives back the memory of a burst of sign-ins, imports and 10,000 sessions, and
/// an hour of steady work adds at most 5 MiB in its second half.
#[test]
#[ignore = "takes more than an hour; `cargo ci nightly` runs it"]
fn memory_returns_after_a_burst_and_steady_work_keeps_none() {
    let Some(mut of) =
        Installation::found("memory_returns_after_a_burst_and_steady_work_keeps_none")
    else {
        return;
    };
    of.program = std::env::var_os("FARDEL_PROGRAM").map(PathBuf::from);
    let minutes = std::env::var("FARDEL_STEADY_MINUTES").ok();
    let minutes: u64 = minutes.map_or(MINUTES, |text| text.parse().expect("whole minutes"));
    let console = free_address();
    of.settings
        .push(("FARDEL_LISTEN", console.to_string().into()));
    of.start();
    let socket = of.socket();
    let pid = of.server_pid().expect("a server");
    let users: Vec<Account> = (0..USERS)
        .map(|number| user(&socket, &format!("user-{number}")))
        .collect();
    std::thread::sleep(Duration::from_secs(30));
    let before = memory_kib(pid);
    let begun = Instant::now();
    burst(&socket, &users);
    let (took, peak) = (begun.elapsed(), memory_kib(pid));
    std::thread::sleep(QUIET);
    let left = memory_kib(pid);
    println!(
        "burst of {} s: {before} KiB before, {peak} at its end, {left} after {} s",
        took.as_secs(),
        QUIET.as_secs()
    );
    assert!(
        before > 0 && left <= before + MAX_LEFT_KIB,
        "the burst left {left} KiB of {before}"
    );

    let desks: Vec<Desk> = (0..AT_ONCE)
        .map(|number| Desk {
            account: users[number].clone(),
            name: format!("user-{number}"),
            cookie: cookie(console, &format!("user-{number}")),
            running: Mutex::default(),
            killed: Mutex::default(),
        })
        .collect();
    let acts = minutes * 60 * ACTS_PER_SECOND;
    let unexpected = Unexpected::default();
    let middle = Mutex::new(0);
    let begun = Instant::now();
    together(usize::try_from(acts).expect("a number of acts"), |number| {
        let due = Duration::from_secs(1) * u32::try_from(number).expect("small");
        let due = due / u32::try_from(ACTS_PER_SECOND).expect("small");
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        if number as u64 == acts / 2 {
            *middle.lock().expect("a lock") = memory_kib(pid);
        }
        // Each desk acts through all turns.
        let desk = &desks[(number / 25) % desks.len()];
        desk.acts(console, number, &unexpected);
    });
    let (end, middle) = (memory_kib(pid), *middle.lock().expect("a lock"));
    let rate = acts as f64 / begun.elapsed().as_secs_f64();
    let unexpected = unexpected.into_inner().expect("a lock");
    println!(
        "{acts} acts, {rate:.1} a second: {middle} KiB in the middle, {end} at the end; unexpected: {unexpected:?}"
    );
    assert!(unexpected.is_empty(), "{unexpected:?}");
    assert!(end <= middle + MAX_GROWTH_KIB, "{middle} KiB, then {end}");
    assert_eq!(of.server_pid(), Some(pid));
    let said = of.said();
    assert!(!said.contains("panicked"), "the server panicked:\n{said}");
    end_all(&of);
}
