//! A person who works while servers die: launches, stops, renames, pauses, asks again after every
//! broken connection, and writes down what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{self, Answer};
use super::random::Random;

/// Sessions without an end of their own that live together. More: the machine's cores are full and
/// nothing ends by itself.
const MAX_LONG: usize = 4;
/// Longest time without any answer: the servers are killed every few hundred milliseconds and come
/// back.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a session has to look like, from answers alone.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub name: String,
    /// Exit code of a command that ends by itself; None for one that has to be stopped.
    pub code: Option<i64>,
    /// A stop is on its way, answered or not.
    pub stopping: bool,
    pub stopped: bool,
    pub paused: bool,
    pub deleted: bool,
}

/// Everything that was acknowledged, and what was done to supervisors behind the server's back.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub sessions: BTreeMap<String, Known>,
    pub tokens: BTreeMap<String, bool>,
    /// Sessions whose supervisor was killed.
    pub bereft: BTreeSet<String>,
    pub acknowledged: usize,
    pub broken: usize,
}

pub(super) struct Client<'a> {
    pub socket: PathBuf,
    pub ledger: &'a Mutex<Ledger>,
    pub enough: &'a AtomicBool,
    pub random: Random,
    pub mark: String,
    pub count: usize,
}

pub(super) fn open(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True where a good answer to a stop acknowledges one. A session that was over is given back as it is: its
/// supervisor was killed after the client had chosen it.
pub(super) fn is_stop(answer: &Answer) -> bool {
    let session = answer.json();
    let stopped = session["desired"] != "run";
    assert!(stopped || session["state"] == "ended", "stop: {session}");
    stopped
}

impl Client<'_> {
    pub(super) fn work(mut self) {
        self.launch(false);
        self.launch(false);
        while !self.enough.load(Ordering::Relaxed) {
            match self.random.below(13) {
                0..=4 => self.launch(true),
                5..=6 => {
                    if self.live_long().len() < MAX_LONG {
                        self.launch(false);
                    }
                }
                7 => self.stop(),
                8 => self.rename(),
                9 => self.pause(),
                10 => self.token(),
                11 => self.revoke(),
                _ => self.delete(),
            }
            std::thread::sleep(self.random.millis(60));
        }
    }

    /// Asks until somebody answers. The same key each time, so that a repeated launch is one launch.
    fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.count += 1;
        let key = format!("{}-{}", self.mark, self.count);
        let until = Instant::now() + TIMEOUT;
        loop {
            match http::call(&self.socket, method, path, Some(&key), body) {
                Ok(answer) if answer.status < 500 => {
                    let mut ledger = open(self.ledger);
                    ledger.acknowledged += usize::from(answer.is_good());
                    return answer;
                }
                Ok(answer) => assert!(
                    Instant::now() < until,
                    "{method} {path}: {} {}",
                    answer.status,
                    answer.json()
                ),
                Err(error) => {
                    open(self.ledger).broken += 1;
                    assert!(Instant::now() < until, "{method} {path}: {error}");
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn launch(&mut self, ends: bool) {
        let number = self.count;
        let code = i64::try_from(self.random.below(100)).unwrap_or(0);
        let script = if ends {
            format!("sleep 0.{}; exit {code}", self.random.below(8))
        } else {
            "sleep 5000".to_owned()
        };
        let name = format!("s-{}-{number}", self.mark);
        let body = json!({
            "name": name, "kind": "batch", "image": "host",
            "command": ["sh", "-c", script, self.mark],
            "resources": {"cpu": 0.2, "memory": 64 << 20, "shm": 1 << 20},
        });
        let answer = self.ask("POST", "/api/v1/sessions", Some(&body));
        assert!(
            answer.is_good(),
            "a launch: {} {}",
            answer.status,
            answer.json()
        );
        let id = answer.json()["id"].as_str().expect("an id").to_owned();
        let known = Known {
            name,
            code: ends.then_some(code),
            stopping: false,
            stopped: false,
            paused: false,
            deleted: false,
        };
        open(self.ledger).sessions.insert(id, known);
    }

    /// Sessions that only a stop ends, as far as the client knows.
    fn live_long(&self) -> Vec<String> {
        let ledger = open(self.ledger);
        ledger
            .sessions
            .iter()
            .filter(|(id, s)| s.code.is_none() && !s.stopping && !ledger.bereft.contains(*id))
            .map(|(id, _)| id.clone())
            .collect()
    }

    fn note(&self, id: &str, change: impl FnOnce(&mut Known)) {
        if let Some(known) = open(self.ledger).sessions.get_mut(id) {
            change(known);
        }
    }

    fn stop(&mut self) {
        let long = self.live_long();
        let Some(id) = self.random.pick(&long).cloned() else {
            return;
        };
        self.note(&id, |known| known.stopping = true);
        let answer = self.ask("POST", &format!("/api/v1/sessions/{id}/stop"), None);
        // A refusal means that it is over already: by an earlier try whose answer was lost, or
        // because its supervisor was killed.
        if answer.is_good() {
            let stopped = is_stop(&answer);
            self.note(&id, |known| known.stopped = stopped);
        } else {
            assert_eq!(answer.status, 409, "stop: {}", answer.json());
        }
    }

    fn rename(&mut self) {
        let ids: Vec<String> = open(self.ledger)
            .sessions
            .iter()
            .filter(|(_, s)| !s.deleted)
            .map(|(id, _)| id.clone())
            .collect();
        let Some(id) = self.random.pick(&ids).cloned() else {
            return;
        };
        let name = format!("r-{}-{}", self.mark, self.count);
        let body = json!({"name": name});
        let answer = self.ask("PATCH", &format!("/api/v1/sessions/{id}"), Some(&body));
        assert!(
            answer.is_good(),
            "rename: {} {}",
            answer.status,
            answer.json()
        );
        self.note(&id, |known| known.name = name);
    }

    fn pause(&mut self) {
        let long = self.live_long();
        let Some(id) = self.random.pick(&long).cloned() else {
            return;
        };
        let paused = open(self.ledger).sessions[&id].paused;
        let word = if paused { "resume" } else { "pause" };
        let answer = self.ask("POST", &format!("/api/v1/sessions/{id}/{word}"), None);
        // Refused where it does not run yet, or no longer.
        if answer.is_good() {
            self.note(&id, |known| known.paused = !paused);
        }
    }

    fn token(&mut self) {
        let name = format!("t-{}", self.count);
        let body = json!({"name": name, "scopes": ["sessions:read"]});
        let answer = self.ask("POST", "/api/v1/me/tokens", Some(&body));
        if answer.is_good() {
            let id = answer.json()["token"]["id"]
                .as_str()
                .expect("an id")
                .to_owned();
            open(self.ledger).tokens.insert(id, true);
        }
    }

    fn revoke(&mut self) {
        let live: Vec<String> = open(self.ledger)
            .tokens
            .iter()
            .filter(|(_, live)| **live)
            .map(|(id, _)| id.clone())
            .collect();
        let Some(id) = self.random.pick(&live).cloned() else {
            return;
        };
        let answer = self.ask("DELETE", &format!("/api/v1/me/tokens/{id}"), None);
        // 404: the first try was carried out and its answer lost.
        assert!(
            answer.is_good() || answer.status == 404,
            "revoke: {}",
            answer.json()
        );
        open(self.ledger).tokens.insert(id, false);
    }

    fn delete(&mut self) {
        let short: Vec<String> = open(self.ledger)
            .sessions
            .iter()
            .filter(|(_, s)| s.code.is_some() && !s.deleted)
            .map(|(id, _)| id.clone())
            .collect();
        let Some(id) = self.random.pick(&short).cloned() else {
            return;
        };
        // Only what is over can be deleted; before that it is refused.
        let answer = self.ask("DELETE", &format!("/api/v1/sessions/{id}"), None);
        match answer.status {
            200..300 | 404 => self.note(&id, |known| known.deleted = true),
            _ => assert_eq!(answer.status, 409, "delete: {}", answer.json()),
        }
    }
}
