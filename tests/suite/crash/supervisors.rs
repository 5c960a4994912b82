//! Everybody who keeps sessions alive, killed or stopped at random moments, each step of a birth among
//! them: supervisors, the process that forks them, the holder, the server. A session is lost only where
//! its supervisor was killed after its command had begun, every session can be ended, and no restart ends
//! a container. `FARDEL_EVENTS` says how often (20 without it).

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{Ledger, open};
use super::installation::Installation;
use super::random::Random;
use super::{TIMEOUT, kill_server, live_through, number_from, session_of, wait_until};

/// How long somebody stays stopped at most, in milliseconds. Longer than a new server waits for all.
const STOPPED: usize = 3000;

fn signal(pid: i32, number: i32) {
    // SAFETY: seen a moment ago to be a process of this installation.
    unsafe { libc::kill(pid, number) };
}

/// The parent and the kernel's session of a living process.
fn family(pid: i32) -> Option<(i32, i32)> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = line.rsplit_once(") ")?.1.split(' ').skip(1);
    Some((fields.next()?.parse().ok()?, fields.nth(1)?.parse().ok()?))
}

/// True for a process that runs no more of its program: stopped, or dead.
fn has_stopped(pid: i32) -> bool {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = line.rsplit_once(") ").map_or("X", |(_, fields)| fields);
    state.starts_with(['T', 'Z', 'X'])
}

/// Every process that was forked to supervise: shims, also those without a record yet, and the one that
/// forks them.
struct Forked {
    shims: Vec<i32>,
    nurseries: Vec<i32>,
}

fn forked(installation: &Installation, mark: &str) -> Forked {
    let server = installation.server_pid().map_or(0, u32::cast_signed);
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&words).contains(mark)
            && let Some(family) = family(pid)
        {
            all.insert(pid, family);
        }
    }
    let mut found = Forked {
        shims: Vec::new(),
        nurseries: Vec::new(),
    };
    for (pid, (parent, session)) in &all {
        // A starter is its server's child for some milliseconds, and waited for. What a shim forks on the
        // way into its container is no supervisor.
        if *parent == server || all.contains_key(parent) {
            continue;
        }
        if session == pid {
            found.shims.push(*pid);
        } else if family(*session).is_none() {
            found.nurseries.push(*pid);
        }
    }
    found
}

/// What records say of shims: the container, and whether its command may have begun.
fn recorded(installation: &Installation) -> BTreeMap<i32, (String, bool)> {
    let entries = fs::read_dir(installation.run().join("c"));
    let read = |entry: fs::DirEntry| {
        let text = fs::read(entry.path().join("run.json")).ok()?;
        let record: Value = serde_json::from_slice(&text).ok()?;
        let pid = i32::try_from(record["shim"]["pid"].as_i64()?).ok()?;
        let name = entry.file_name().into_string().ok()?;
        Some((pid, (name, !record["first"].is_null())))
    };
    let all = entries.into_iter().flatten().flatten();
    all.filter_map(read).collect()
}

struct Trouble {
    /// Stands in the words of every forked process.
    mark: String,
    stopped: Vec<(i32, Instant)>,
    holder: Option<Child>,
    tally: BTreeMap<&'static str, usize>,
}

impl Trouble {
    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// Lets those go on whose time has come.
    fn let_go(&mut self) {
        let now = Instant::now();
        self.stopped.retain(|(pid, until)| {
            let due = *until <= now;
            if due {
                signal(*pid, libc::SIGCONT);
            }
            !due
        });
    }

    fn stop(&mut self, pid: i32, random: &mut Random) {
        signal(pid, libc::SIGSTOP);
        self.stopped
            .push((pid, Instant::now() + random.millis(STOPPED)));
    }

    fn make(
        &mut self,
        installation: &mut Installation,
        random: &mut Random,
        ledger: &Mutex<Ledger>,
    ) {
        if self.mark.is_empty() {
            self.mark = format!("/{}/shims", installation.instance_id());
        }
        self.let_go();
        match random.below(10) {
            0 => {
                self.count("server killed");
                kill_server(installation, random);
            }
            1 => {
                self.count("server stopped");
                let pid = installation.server_pid().map_or(0, u32::cast_signed);
                signal(pid, libc::SIGSTOP);
                std::thread::sleep(random.millis(800));
                signal(pid, libc::SIGCONT);
            }
            2 | 3 => self.kill_some_shim(installation, random, ledger),
            4 => {
                if let Some(pid) = random
                    .pick(&forked(installation, &self.mark).shims)
                    .copied()
                {
                    self.count("supervisor stopped");
                    self.stop(pid, random);
                }
            }
            5 => self.stop_all_and_restart(installation, random),
            6 => {
                for pid in forked(installation, &self.mark).nurseries {
                    self.count("fork server killed");
                    signal(pid, libc::SIGKILL);
                }
            }
            7 => {
                for pid in forked(installation, &self.mark).nurseries {
                    self.count("fork server stopped");
                    self.stop(pid, random);
                }
            }
            8 => self.meet_a_birth(installation, random, ledger),
            _ => self.trouble_the_holder(installation, random),
        }
    }

    fn kill_some_shim(
        &mut self,
        installation: &Installation,
        random: &mut Random,
        ledger: &Mutex<Ledger>,
    ) {
        if let Some(pid) = random
            .pick(&forked(installation, &self.mark).shims)
            .copied()
        {
            self.count("supervisor killed");
            self.kill_shim(installation, pid, ledger);
        }
    }

    /// Kills a shim; only where its record has a first process may its session be lost by that.
    fn kill_shim(&mut self, installation: &Installation, pid: i32, ledger: &Mutex<Ledger>) {
        // Held while the record is read: nobody is told of its end before it is written down here.
        let mut ledger = open(ledger);
        signal(pid, libc::SIGSTOP);
        // Until then it may be writing its record.
        let _ = wait_until(TIMEOUT, || has_stopped(pid));
        match recorded(installation).get(&pid) {
            Some((container, true)) => drop(ledger.bereft.insert(session_of(container))),
            _ => self.count("of those, before the command began"),
        }
        signal(pid, libc::SIGKILL);
    }

    /// A new server meets stopped supervisors, and ends none of their containers.
    fn stop_all_and_restart(&mut self, installation: &mut Installation, random: &mut Random) {
        self.count("all supervisors stopped over a restart");
        for pid in forked(installation, &self.mark).shims {
            self.stop(pid, random);
        }
        kill_server(installation, random);
    }

    /// Waits for a shim that has no first process yet, and kills or stops it.
    fn meet_a_birth(
        &mut self,
        installation: &Installation,
        random: &mut Random,
        ledger: &Mutex<Ledger>,
    ) {
        let until = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < until {
            let recorded = recorded(installation);
            let born = |pid: &i32| recorded.get(pid).is_some_and(|(_, first)| *first);
            let unborn: Vec<i32> = forked(installation, &self.mark).shims;
            let unborn: Vec<i32> = unborn.into_iter().filter(|pid| !born(pid)).collect();
            if let Some(pid) = random.pick(&unborn).copied() {
                std::thread::sleep(random.millis(25));
                if random.below(3) == 0 {
                    self.count("supervisor stopped in a birth");
                    self.stop(pid, random);
                } else {
                    self.count("supervisor killed in a birth");
                    self.kill_shim(installation, pid, ledger);
                }
                return;
            }
        }
    }

    fn trouble_the_holder(&mut self, installation: &Installation, random: &mut Random) {
        self.count("holder killed or stopped");
        if let Some(mut holder) = self.holder.take() {
            holder.kill().expect("it can be killed");
            holder.wait().expect("it ends");
            return;
        }
        let data = installation.data();
        let holder = installation
            .command(&["hold", data.to_str().expect("plain")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        if random.below(2) == 0 {
            signal(holder.id().cast_signed(), libc::SIGSTOP);
        }
        self.holder = Some(holder);
    }

    /// Everybody goes on, but for those who are dead.
    fn end(&mut self) {
        for (pid, _) in self.stopped.drain(..) {
            signal(pid, libc::SIGCONT);
        }
        if let Some(mut holder) = self.holder.take() {
            holder.kill().expect("it can be killed");
            holder.wait().expect("it ends");
        }
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn who_keeps_sessions_alive_is_killed_and_stopped_and_none_is_lost_that_never_began() {
    let name = "who_keeps_sessions_alive_is_killed_and_stopped_and_none_is_lost_that_never_began";
    let events = number_from("FARDEL_EVENTS").unwrap_or(20);
    let mut trouble = Trouble {
        mark: String::new(),
        stopped: Vec::new(),
        holder: None,
        tally: BTreeMap::new(),
    };
    let mut left = events;
    let ran = live_through(name, events, |installation, random, ledger| {
        left -= 1;
        trouble.make(installation, random, ledger);
        if left == 0 {
            trouble.end();
        }
    });
    if ran {
        println!("{:#?}", trouble.tally);
    }
}
