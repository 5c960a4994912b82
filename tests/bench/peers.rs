//! Launches beside other runtimes: one after the other beside bare runc, many at once beside podman. What runs
//! and what is measured is the same on both sides; a peer that is not installed is left out.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use base::figures::{milliseconds, ms, quantile, ratio, round};
use fardel::doors::bench::launches::{
    at_once, burst, clock, hundredths, import, in_turns, span, usual,
};
use serde_json::{Value, json};

use super::bundle;
use super::subject::{BenchServer, ScratchDirectory};
use super::tiny::{Tiny, installed, output};

/// What a session with a limit of its own on the disk may write.
const DISK: u64 = 1 << 30;

/// Launches one after the other, in turns with `runc run`, so that both meet the same load; where `with_disk`, each turn also
/// launches a session with a limit of its own on the disk.
pub(super) fn beside_runc(count: usize, with_disk: bool) -> io::Result<Value> {
    let tiny = Tiny::make()?;
    let work = ScratchDirectory::new("runc")?;
    let runc = installed("runc")
        .then(|| Runc::prepare(&work, &tiny))
        .transpose()?;
    let (mut runc_process, mut runc_whole) = (Vec::new(), Vec::new());
    let (subject, _) = BenchServer::fresh("launch")?;
    let mut local = subject.local()?;
    import(&mut local, &tiny.archive())?;
    let mut requests = vec![usual()];
    if with_disk {
        let mut limited = usual();
        limited["resources"]["disk"] = json!(DISK);
        requests.push(limited);
    }
    let all = in_turns(&mut local, &requests, count, &mut |number| {
        let Some(runc) = &runc else {
            return Ok(());
        };
        let (process, whole) = runc.run(number)?;
        if number > 0 {
            runc_process.push(process);
            runc_whole.push(whole);
        }
        Ok(())
    })?;
    let ours = all.first();
    let ours = ours.ok_or_else(|| io::Error::other("nothing was launched"))?;
    let p50 = |samples: &[f64]| quantile(samples, 0.5);
    let mut figure = ours.figure();
    figure["runc"] = json!(runc.as_ref().map(|runc| json!({
        "what": "`runc run` of the same files, namespaces, mounts and limits; no overlay, no id-mapped mount, no log, no API",
        "version": runc.version,
        "system_call_filter": runc.filtered,
        "start_to_process": milliseconds(&runc_process),
        "whole_run": milliseconds(&runc_whole),
    })));
    figure["p50_ratio_to_runc_process"] = json!(ratio(p50(&ours.process), p50(&runc_process)));
    figure["p50_ratio_to_runc_whole"] = json!(ratio(p50(&ours.process), p50(&runc_whole)));
    if let Some(limited) = all.get(1) {
        let more = p50(&limited.process)
            .zip(p50(&ours.process))
            .map(|(limited, ours)| round(limited - ours));
        figure["with_disk"] = json!({
            "disk_bytes": DISK,
            "request_to_process": milliseconds(&limited.process),
            "p50_more_ms": more,
            "p50_ratio_to_runc_whole": ratio(p50(&limited.process), p50(&runc_whole)),
        });
    }
    Ok(figure)
}

/// `count` sessions asked for together, and as many containers of podman's.
pub(super) fn beside_podman(count: usize) -> io::Result<Value> {
    let tiny = Tiny::make()?;
    let ours = at_once(count, &tiny)?;
    let podman = installed("podman")
        .then(|| podman_at_once(count, hundredths(count), &tiny))
        .transpose()?;
    let last = |samples: &[f64]| quantile(samples, 1.0);
    let mut figure = burst(count, &ours);
    figure["podman"] = json!(podman.as_ref().map(|spans| json!({
        "what": "`podman run -d --runtime runc --network none` of the same files and limits, all started together",
        "all_running_ms": last(spans).map(round),
        "start_to_process": milliseconds(spans),
    })));
    figure["times_faster_than_podman"] = json!(
        podman
            .as_ref()
            .and_then(|spans| ratio(last(spans), last(&ours)))
    );
    Ok(figure)
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
