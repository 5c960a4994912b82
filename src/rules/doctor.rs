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
pub const IDS: [&str; 58] = [
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
    "fences",
    "file-watches",
    "findings",
    "folder-limits",
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
    "port-ssh",
    "process-numbers",
    "randomness",
    "relay",
    "restart-wanted",
    "root",
    "run-directory",
    "schema",
    "seccomp",
    "session-ids",
    "settings-file",
    "shims",
    "state",
    "state-disk",
    "state-mount",
    "state-owner",
    "swap",
    "time-namespaces",
    "time-sync",
    "user-namespaces",
    "volumes",
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
    /// A check whose sentences were made elsewhere: the runtime's findings, a refusal. What is said here is
    /// written into the catalogue (`messages.toml`) and made by `checks`.
    pub fn from_parts(id: &'static str, state: CheckState, found: String, fix: String) -> Self {
        debug_assert!(IDS.contains(&id), "{id} does not stand among the ids");
        Self {
            id,
            state,
            found,
            fix,
        }
    }

    /// Nothing needs to be done.
    pub(crate) fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self::from_parts(id, CheckState::Ok, found.into(), String::new())
    }

    /// Sessions run with less until `fix` is done.
    pub(crate) fn warn(id: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::from_parts(id, CheckState::Warn, found.into(), fix.into())
    }

    /// Nothing works until `fix` is done.
    pub(crate) fn fail(id: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::from_parts(id, CheckState::Fail, found.into(), fix.into())
    }
}
