//! One check of `fardel doctor`: which there are, how each came out and what would mend it. Looks at nothing
//! itself; `node::doctor` and `server::offline_inspection` do.

use serde::Serialize;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    Ok,
    /// Sessions run, with less: the finding says what is lost.
    Warn,
    /// The server or its sessions cannot do their work.
    Fail,
}

/// The ids of all checks there are; each is named in Korean.
pub const IDS: [&str; 51] = [
    "accelerators",
    "address",
    "architecture",
    "backup-disk",
    "backups",
    "catalog",
    "catalog-log",
    "catalog-sound",
    "cgroup",
    "cgroup-write",
    "clock",
    "clock-and-state",
    "continuity",
    "controllers",
    "disk",
    "disk-faults",
    "file-watches",
    "findings",
    "gpu",
    "holder",
    "host-name",
    "id-mapped-mounts",
    "inodes",
    "kernel",
    "killed-for-memory",
    "limits",
    "machine",
    "memory-pressure",
    "namespace-count",
    "open-files",
    "overcommit",
    "overlay",
    "port",
    "port-apps",
    "port-http",
    "process-numbers",
    "randomness",
    "restart-wanted",
    "root",
    "run-directory",
    "schema",
    "seccomp",
    "session-ids",
    "settings-file",
    "state",
    "state-disk",
    "state-mount",
    "state-owner",
    "swap",
    "time-sync",
    "user-namespaces",
];

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorCheck {
    pub id: &'static str,
    pub state: CheckState,
    /// What is there, one sentence.
    pub found: String,
    /// What would mend it; empty where nothing needs to be.
    pub fix: String,
}

impl DoctorCheck {
    /// Nothing needs to be done.
    pub fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self::new(id, CheckState::Ok, found, "")
    }

    /// Sessions run with less until `fix` is done.
    pub fn warn(id: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, CheckState::Warn, found, fix)
    }

    /// Nothing works until `fix` is done.
    pub fn fail(id: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, CheckState::Fail, found, fix)
    }

    fn new(
        id: &'static str,
        state: CheckState,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        debug_assert!(IDS.contains(&id), "{id} does not stand among the ids");
        Self {
            id,
            state,
            found: found.into(),
            fix: fix.into(),
        }
    }
}
