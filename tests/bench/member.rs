//! A user of the server that is measured, with a token: what folders, apps and keys need that root on the machine has none of.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::subject::{BenchServer, PASSWORD, cookie_of};
use super::wire::Connection;

/// What the wire names itself; the origin of a browser has to be that very host.
pub(super) const BROWSER: [(&str, &str); 2] = [
    ("origin", "http://127.0.0.1"),
    ("sec-fetch-site", "same-origin"),
];
/// Longer than a million files take to go; only a fault reaches it.
const PURGE_TIMEOUT: Duration = Duration::from_secs(600);
const SESSION_TIMEOUT: Duration = Duration::from_secs(900);

pub(super) struct Member {
    /// Of the sign-in, as a browser sends it.
    pub(super) cookie: String,
    pub(super) token: String,
}

impl Member {
    /// The first administrator, who sets the server up.
    pub(super) fn first(subject: &BenchServer) -> io::Result<Self> {
        Self::signed_in(subject, subject.cookie()?)
    }

    /// One more user; the server was set up before.
    pub(super) fn another(subject: &BenchServer, name: &str) -> io::Result<Self> {
        let user = json!({"name": name, "password": PASSWORD});
        subject
            .local()?
            .post("/api/v1/users", &user)?
            .good("make a user")?;
        let form = format!("name={name}&password={PASSWORD}");
        let answer = subject.tcp(&BROWSER)?.form("/login", &form)?;
        let cookie = cookie_of(&answer)
            .ok_or_else(|| io::Error::other(format!("no sign-in: {}", answer.head)))?;
        Self::signed_in(subject, cookie)
    }

    fn signed_in(subject: &BenchServer, cookie: String) -> io::Result<Self> {
        let scopes = [
            "sessions:read",
            "sessions:write",
            "sessions:enter",
            "images:read",
            "me",
        ];
        let asked = json!({"name": "bench", "scopes": scopes});
        let made = subject
            .tcp(&[BROWSER[0], BROWSER[1], ("cookie", &cookie)])?
            .post("/api/v1/me/tokens", &asked)?
            .good("make a token")?
            .json();
        let token = made["secret"].as_str();
        let token = token.ok_or_else(|| io::Error::other("no token in the answer"))?;
        Ok(Self {
            cookie,
            token: token.to_owned(),
        })
    }

    /// A line of a request's head.
    pub(super) fn authorization(&self) -> String {
        format!("authorization: Bearer {}\r\n", self.token)
    }

    /// A connection of theirs over the local socket.
    pub(super) fn local(&self, subject: &BenchServer) -> io::Result<Connection> {
        let bearer = format!("Bearer {}", self.token);
        Connection::open(&subject.address(), &[("authorization", &bearer)])
    }

    /// Makes a folder; gives its id.
    pub(super) fn folder(&self, subject: &BenchServer, name: &str) -> io::Result<String> {
        let made = self
            .local(subject)?
            .post("/api/v1/folders", &json!({"name": name}))?
            .good("make a folder")?
            .json();
        let id = made["id"].as_str();
        let id = id.ok_or_else(|| io::Error::other("no id of a folder in the answer"))?;
        Ok(id.to_owned())
    }

    /// Launches a session; gives its id.
    pub(super) fn launch(&self, subject: &BenchServer, body: &Value) -> io::Result<String> {
        let made = self
            .local(subject)?
            .post("/api/v1/sessions", body)?
            .good("launch")?
            .json();
        let id = made["id"].as_str();
        let id = id.ok_or_else(|| io::Error::other("no id of a session in the answer"))?;
        Ok(id.to_owned())
    }

    /// Waits until the session is in that state, `running` or `ended`.
    pub(super) fn until(&self, subject: &BenchServer, id: &str, state: &str) -> io::Result<()> {
        let mut local = self.local(subject)?;
        let until = Instant::now() + SESSION_TIMEOUT;
        loop {
            // Shorter than the client waits for an answer.
            let path = format!("/api/v1/sessions/{id}?wait={state}&patience=30");
            let row = local.get(&path)?.good("wait")?.json();
            match row["state"].as_str() {
                Some(now) if now == state => return Ok(()),
                Some("ended") => {
                    let said = self.said(subject, id)?;
                    return Err(io::Error::other(format!("it ended: {row}\n{said}")));
                }
                _ if Instant::now() > until => {
                    return Err(io::Error::other(format!("it is not {state}: {row}")));
                }
                _ => {}
            }
        }
    }

    /// What a session printed.
    pub(super) fn said(&self, subject: &BenchServer, id: &str) -> io::Result<String> {
        let mut local = self.local(subject)?;
        let log = local.get(&format!("/api/v1/sessions/{id}/logs"))?;
        Ok(String::from_utf8_lossy(&log.good("log")?.body).into_owned())
    }

    /// Removes a file or directory of a folder for good; gives how long the answer took.
    pub(super) fn remove(
        &self,
        subject: &BenchServer,
        folder: &str,
        path: &str,
    ) -> io::Result<Duration> {
        let mut local = self.local(subject)?;
        let asked = json!({"paths": [path], "for_good": true});
        let began = Instant::now();
        local
            .post(&format!("/api/v1/folders/{folder}/remove"), &asked)?
            .good("remove")?;
        Ok(began.elapsed())
    }
}

/// Waits until the room of all that was removed from a folder for good is given back; gives how long that took.
pub(super) fn purged(subject: &BenchServer, folder: &str) -> io::Result<Duration> {
    let trash = directory(subject, folder).join("trash");
    let began = Instant::now();
    loop {
        // A file system that is used no longer is mounted no longer.
        let left = std::fs::read_dir(&trash)
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"gone-"));
        if !left {
            return Ok(began.elapsed());
        }
        if began.elapsed() > PURGE_TIMEOUT {
            return Err(io::Error::other("what was removed does not go"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The directory of a folder, as its server sees the disk: it may lie on a file system that is mounted for its owner.
fn directory(subject: &BenchServer, folder: &str) -> PathBuf {
    let shard = &folder[folder.len().saturating_sub(2)..];
    let seen = format!("/proc/{}/root", subject.pid());
    let data = subject.data();
    let data = data.strip_prefix("/").unwrap_or(&data);
    PathBuf::from(seen)
        .join(data)
        .join("folders")
        .join(shard)
        .join(folder)
}
