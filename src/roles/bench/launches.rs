//! How long a launch takes, one after the other beside bare runc and many at once beside podman.
//!
//! Measured from outside: the client's clock just before the first byte of the request (for runc and
//! podman: just before the program is started) until the clock that the container's own first command
//! prints (`date +%s%N`, the same program from the same image everywhere). HTTP, the durable commit,
//! the decision, the overlay and the supervisor are inside that span. The other spans are kept too.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::bundle;
use super::figures::{milliseconds, ms, quantile, ratio, round};
use super::subject::{BenchServer, ScratchDirectory};
use super::tiny::{Tiny, installed, output};
use super::wire::Connection;

const IMAGE: &str = "bench-tiny:1";
/// Requests of one burst travel on this many connections.
const CONNECTIONS: usize = 8;
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(180);

/// Nanoseconds since 1970, as `date` prints them.
fn clock() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos())
}

/// Milliseconds from `began` to what a container printed.
fn span(began: u128, printed: &str) -> Option<f64> {
    let at: u128 = printed.trim().parse().ok()?;
    let nanoseconds = at.checked_sub(began)?;
    Some(Duration::from_nanos(u64::try_from(nanoseconds).ok()?).as_secs_f64() * 1000.0)
}

/// Imports the tiny image over the local socket.
pub(super) fn import(local: &mut Connection, archive: &Path) -> io::Result<Duration> {
    let began = Instant::now();
    let body = json!({"path": archive});
    let started = local
        .post("/api/v1/images/import", &body)?
        .good("import")?
        .json();
    let id = started["id"].as_str().unwrap_or_default().to_owned();
    loop {
        let now = local
            .get(&format!("/api/v1/operations/{id}"))?
            .good("operation")?
            .json();
        match now["state"].as_str() {
            Some("succeeded") => return Ok(began.elapsed()),
            Some("failed" | "cancelled") => {
                return Err(io::Error::other(format!("the import failed: {now}")));
            }
            _ if began.elapsed() > LAUNCH_TIMEOUT => {
                return Err(io::Error::other("the import does not end"));
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(super) fn sequential(count: usize) -> io::Result<Value> {
    let tiny = Tiny::make()?;
    let (subject, _) = BenchServer::fresh("launch")?;
    let mut local = subject.local()?;
    import(&mut local, &tiny.archive())?;
    let work = ScratchDirectory::new("runc")?;
    let runc = installed("runc")
        .then(|| Runc::prepare(&work, &tiny))
        .transpose()?;
    let (mut to_process, mut to_answer, mut to_end) = (Vec::new(), Vec::new(), Vec::new());
    let (mut runc_process, mut runc_whole) = (Vec::new(), Vec::new());
    // In turns, so that both meet the same load. The first of each only warms caches.
    for number in 0..=count {
        let ours = launch_one(&mut local)?;
        let theirs = runc.as_ref().map(|runc| runc.run(number)).transpose()?;
        if number == 0 {
            continue;
        }
        to_process.push(ours.process);
        to_answer.push(ours.answer);
        to_end.push(ours.end);
        if let Some((process, whole)) = theirs {
            runc_process.push(process);
            runc_whole.push(whole);
        }
    }
    let p50 = |samples: &[f64]| quantile(samples, 0.5);
    let tail = ratio(quantile(&to_process, 0.99), p50(&to_process));
    Ok(json!({
        "what": "one session after the other: batch, 1 core, 256 MiB, `date +%s%N` from a tiny image",
        "request_to_process": milliseconds(&to_process),
        "request_to_answer": milliseconds(&to_answer),
        "request_to_end_seen": milliseconds(&to_end),
        "runc": runc.as_ref().map(|runc| json!({
            "what": "`runc run` of the same files, namespaces, mounts and limits; no overlay, no id-mapped mount, no log, no API",
            "version": runc.version,
            "system_call_filter": runc.filtered,
            "start_to_process": milliseconds(&runc_process),
            "whole_run": milliseconds(&runc_whole),
        })),
        "p50_ratio_to_runc_process": ratio(p50(&to_process), p50(&runc_process)),
        "p50_ratio_to_runc_whole": ratio(p50(&to_process), p50(&runc_whole)),
        "p99_ratio_to_own_p50": tail,
    }))
}

struct Spans {
    process: f64,
    answer: f64,
    end: f64,
}

fn launch_one(local: &mut Connection) -> io::Result<Spans> {
    let body = json!({
        "kind": "batch", "image": IMAGE, "command": ["date", "+%s%N"],
        "resources": {"cpu": 1, "memory": 256 << 20},
    });
    let (at, began) = (clock(), Instant::now());
    let session = local
        .post("/api/v1/sessions", &body)?
        .good("launch")?
        .json();
    let answer = began.elapsed();
    let id = session["id"].as_str().unwrap_or_default().to_owned();
    let over = local
        .get(&format!("/api/v1/sessions/{id}?wait=ended&patience=60"))?
        .good("wait")?
        .json();
    let end = began.elapsed();
    let log = local
        .get(&format!("/api/v1/sessions/{id}/logs"))?
        .good("log")?;
    let printed = String::from_utf8_lossy(&log.body).into_owned();
    let process = span(at, &printed)
        .ok_or_else(|| io::Error::other(format!("no clock in {printed:?}; the session: {over}")))?;
    Ok(Spans {
        process,
        answer: ms(answer),
        end: ms(end),
    })
}

struct Runc<'a> {
    place: &'a ScratchDirectory,
    version: String,
    filtered: bool,
    group: String,
}

impl<'a> Runc<'a> {
    fn prepare(place: &'a ScratchDirectory, tiny: &Tiny) -> io::Result<Self> {
        let group = format!("/fardel-bench-{}", std::process::id());
        let filtered = bundle::write(
            &place.path().join("bundle"),
            &tiny.root(),
            &format!("{group}/one"),
            &["date", "+%s%N"],
        )?;
        let version = output(Command::new("runc").arg("--version"))?;
        Ok(Self {
            place,
            version: version.lines().next().unwrap_or_default().to_owned(),
            filtered,
            group,
        })
    }

    /// Milliseconds to the process, and of the whole run.
    fn run(&self, number: usize) -> io::Result<(f64, f64)> {
        let mut command = Command::new("runc");
        command
            .arg("--root")
            .arg(self.place.path().join("state"))
            .args(["run", "-b"])
            .arg(self.place.path().join("bundle"))
            .arg(format!("bench-{}-{number}", std::process::id()))
            .stdin(Stdio::null());
        let (at, began) = (clock(), Instant::now());
        let printed = output(&mut command)?;
        let whole = ms(began.elapsed());
        let process = span(at, &printed)
            .ok_or_else(|| io::Error::other(format!("runc printed {printed:?}")))?;
        Ok((process, whole))
    }
}

impl Drop for Runc<'_> {
    fn drop(&mut self) {
        // runc removes a container's own group and leaves the one above.
        let name = self.group.trim_start_matches('/');
        for hierarchy in fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten()
        {
            let _ = fs::remove_dir(hierarchy.path().join(name));
        }
        let _ = fs::remove_dir(Path::new("/sys/fs/cgroup").join(name));
    }
}

/// `count` sessions asked for together, all of them alive together.
pub(super) fn at_once(count: usize, beside_podman: bool) -> io::Result<Value> {
    let tiny = Tiny::make()?;
    let hundredths = (200 / count.max(1)).clamp(1, 100);
    let ours = ours_at_once(count, hundredths, &tiny)?;
    let podman = if beside_podman && installed("podman") {
        Some(podman_at_once(count, hundredths, &tiny)?)
    } else {
        None
    };
    let last = |samples: &[f64]| quantile(samples, 1.0);
    Ok(json!({
        "what": format!("{count} at once, each {} cores, 32 MiB: from the first request to the last process that runs", hundredths as f64 / 100.0),
        "all_running_ms": last(&ours).map(round),
        "per_second": last(&ours).map(|all| round(count as f64 / all * 1000.0)),
        "request_to_process": milliseconds(&ours),
        "podman": podman.as_ref().map(|spans| json!({
            "what": "`podman run -d --runtime runc --network none` of the same files and limits, all started together",
            "all_running_ms": last(spans).map(round),
            "start_to_process": milliseconds(spans),
        })),
        "times_faster_than_podman": podman.as_ref().and_then(|spans| ratio(last(spans), last(&ours))),
    }))
}

fn ours_at_once(count: usize, hundredths: usize, tiny: &Tiny) -> io::Result<Vec<f64>> {
    let (subject, _) = BenchServer::fresh("burst")?;
    let mut local = subject.local()?;
    import(&mut local, &tiny.archive())?;
    launch_one(&mut local)?;
    let body = json!({
        "kind": "batch", "image": IMAGE,
        "command": ["sh", "-c", "date +%s%N; exec sleep 600"],
        "resources": {"cpu": hundredths as f64 / 100.0, "memory": 32 << 20, "shm": 1 << 20},
    });
    let connections: Vec<Connection> = (0..CONNECTIONS)
        .map(|_| subject.local())
        .collect::<io::Result<_>>()?;
    let at = clock();
    let asked: Vec<io::Result<Vec<String>>> = std::thread::scope(|scope| {
        let body = &body;
        let asking: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(number, mut connection)| {
                scope.spawn(move || {
                    (number..count)
                        .step_by(CONNECTIONS)
                        .map(|_| {
                            let made = connection.post("/api/v1/sessions", body)?.good("launch")?;
                            Ok(made.json()["id"].as_str().unwrap_or_default().to_owned())
                        })
                        .collect()
                })
            })
            .collect();
        asking
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
            })
            .collect()
    });
    let mut spans = Vec::new();
    let until = Instant::now() + LAUNCH_TIMEOUT;
    for id in asked.into_iter().collect::<io::Result<Vec<_>>>()?.concat() {
        // Waits for the row first, so that asking for logs does not disturb what is measured.
        local.get(&format!("/api/v1/sessions/{id}?wait=running&patience=60"))?;
        loop {
            let log = local
                .get(&format!("/api/v1/sessions/{id}/logs"))?
                .good("log")?;
            if let Some(span) = span(at, &String::from_utf8_lossy(&log.body)) {
                spans.push(span);
                break;
            }
            if Instant::now() > until {
                return Err(io::Error::other(format!("session {id} does not run")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(spans)
}

fn podman_at_once(count: usize, hundredths: usize, tiny: &Tiny) -> io::Result<Vec<f64>> {
    let place = ScratchDirectory::new("podman")?;
    let out = place.path().join("out");
    fs::create_dir_all(&out)?;
    let podman = || {
        let mut command = Command::new("podman");
        command
            .arg("--root")
            .arg(place.path().join("root"))
            .arg("--runroot")
            .arg(place.path().join("run"))
            .args(["--cgroup-manager", "cgroupfs"]);
        command
    };
    let run = |number: usize| {
        let mut command = podman();
        command
            .args(["run", "-d", "--runtime", "runc", "--network", "none"])
            .args([
                "--ulimit",
                "nofile=4096:4096",
                "--ulimit",
                "nproc=4096:4096",
            ])
            .args([
                "--memory",
                "32m",
                "--cpus",
                &format!("{}", hundredths as f64 / 100.0),
            ])
            .arg("-v")
            .arg(format!("{}:/out", out.display()))
            .args(["bench:tiny", "sh", "-c"])
            .arg(format!("date +%s%N > /out/{number}; exec sleep 600"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    };
    output(podman().arg("import").arg(tiny.layer()).arg("bench:tiny"))?;
    output(&mut run(count))?;
    let at = clock();
    let started: Vec<_> = (0..count)
        .map(|number| run(number).spawn())
        .collect::<io::Result<_>>()?;
    let mut refused = None;
    for child in started {
        let done = child.wait_with_output()?;
        if !done.status.success() {
            refused = Some(String::from_utf8_lossy(&done.stderr).into_owned());
        }
    }
    let spans: Vec<f64> = (0..count)
        .filter_map(|number| span(at, &fs::read_to_string(out.join(number.to_string())).ok()?))
        .collect();
    output(podman().args(["rm", "-a", "-f", "-t", "0"]))?;
    let _ = output(podman().args(["rmi", "-a", "-f"]));
    // Podman keeps its overlay directory mounted below its root.
    let _ = nix::mount::umount2(
        &place.path().join("root/overlay"),
        nix::mount::MntFlags::MNT_DETACH,
    );
    match refused {
        Some(said) if spans.len() < count => Err(io::Error::other(format!("podman: {said}"))),
        _ => Ok(spans),
    }
}
