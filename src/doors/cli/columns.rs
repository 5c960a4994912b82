//! The columns of each noun's table, in their order, with the rank by which they are dropped.
//! Reads only what the API answers.

use serde_json::Value;

use super::format;
use super::output::{Column, OutputStyle, age, size, span, text};
use rules::units::Timestamp;

/// `running`, `running, paused`, `ended 7`, `ended, stopped`.
pub(super) fn state(row: &Value) -> String {
    let state = text(row, "state");
    // By its owner, or by its machine because it fills the disk.
    let by_machine = matches!(
        row["reason"]["code"].as_str(),
        Some(rules::codes::DISK_PAUSED | rules::codes::DISK_FILES_PAUSED)
    );
    if row["paused"] == true || (by_machine && state == "running") {
        return format!("{state}, paused");
    }
    match (&row["exit_code"], row["outcome"].as_str()) {
        (Value::Number(code), _) => format!("{state} {code}"),
        (_, Some(outcome)) => format!("{state}, {outcome}"),
        _ => state,
    }
}

fn ran(row: &Value, view: &OutputStyle) -> String {
    let point = |key: &str| row[key].as_str().and_then(|t| Timestamp::parse(t).ok());
    match (point("started_at"), point("ended_at")) {
        (Some(from), Some(to)) => span(to.seconds_since(from)),
        (Some(from), None) => span(view.now.seconds_since(from)),
        _ => "-".to_owned(),
    }
}

fn labels(row: &Value) -> String {
    let pairs: Vec<String> = row["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        "-".to_owned()
    } else {
        pairs.join(",")
    }
}

/// `before → after`, as far as there is one of them.
pub(super) fn what(row: &Value) -> String {
    match (
        row["before"].as_str().unwrap_or_default(),
        row["after"].as_str().unwrap_or_default(),
    ) {
        ("", "") => "-".to_owned(),
        ("", after) => after.to_owned(),
        (before, "") => before.to_owned(),
        (before, after) => format!("{before} → {after}"),
    }
}

fn words(row: &Value, key: &str) -> String {
    let words: Vec<&str> = row[key]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(" ")
    }
}

pub(super) const SESSIONS: &[Column] = &[
    Column {
        title: "NAME",
        rank: 0,
        give: |r, _| text(r, "name"),
    },
    Column {
        title: "STATE",
        rank: 1,
        give: |r, _| state(r),
    },
    Column {
        title: "IMAGE",
        rank: 3,
        give: |r, _| text(r, "image"),
    },
    Column {
        title: "CPU",
        rank: 4,
        give: |r, _| text(r, "resources.cpu"),
    },
    Column {
        title: "MEMORY",
        rank: 4,
        give: |r, _| size(&r["resources"]["memory"]),
    },
    Column {
        title: "GPU",
        rank: 6,
        give: |r, _| format::asked(r),
    },
    Column {
        title: "AGE",
        rank: 2,
        give: |r, v| age(&r["created_at"], v.now),
    },
    Column {
        title: "RAN",
        rank: 5,
        give: ran,
    },
    Column {
        title: "OWNER",
        rank: 5,
        give: |r, _| text(r, "owner.name"),
    },
    Column {
        title: "ID",
        rank: 9,
        give: |r, _| text(r, "id"),
    },
    Column {
        title: "KIND",
        rank: 9,
        give: |r, _| text(r, "kind"),
    },
    Column {
        title: "NODE",
        rank: 9,
        give: |r, _| text(r, "node"),
    },
    Column {
        title: "LABELS",
        rank: 9,
        give: |r, _| labels(r),
    },
    Column {
        title: "COMMAND",
        rank: 9,
        give: |r, _| words(r, "command"),
    },
    Column {
        title: "REASON",
        rank: 7,
        give: |r, _| text(r, "reason.text"),
    },
];

pub(super) const SESSION: &[Column] = &[
    Column {
        title: "NAME",
        rank: 0,
        give: |r, _| text(r, "name"),
    },
    Column {
        title: "ID",
        rank: 0,
        give: |r, _| text(r, "id"),
    },
    Column {
        title: "STATE",
        rank: 0,
        give: |r, _| state(r),
    },
    Column {
        title: "REASON",
        rank: 0,
        give: |r, _| text(r, "reason.text"),
    },
    Column {
        title: "OWNER",
        rank: 0,
        give: |r, _| text(r, "owner.name"),
    },
    Column {
        title: "KIND",
        rank: 0,
        give: |r, _| text(r, "kind"),
    },
    Column {
        title: "IMAGE",
        rank: 0,
        give: |r, _| text(r, "image"),
    },
    Column {
        title: "COMMAND",
        rank: 0,
        give: |r, _| match r["document_kept"].as_bool() {
            Some(false) => "no longer kept".to_owned(),
            _ => words(r, "command"),
        },
    },
    Column {
        title: "CPU",
        rank: 0,
        give: |r, _| text(r, "resources.cpu"),
    },
    Column {
        title: "MEMORY",
        rank: 0,
        give: |r, _| size(&r["resources"]["memory"]),
    },
    Column {
        title: "SHM",
        rank: 0,
        give: |r, _| size(&r["resources"]["shm"]),
    },
    Column {
        title: "GPU",
        rank: 0,
        give: |r, _| format::asked(r),
    },
    Column {
        title: "DEVICES",
        rank: 0,
        give: |r, _| match format::grants(&r["devices"]) {
            none if none.is_empty() => "-".to_owned(),
            given => given,
        },
    },
    Column {
        title: "NODE",
        rank: 0,
        give: |r, _| text(r, "node"),
    },
    Column {
        title: "LABELS",
        rank: 0,
        give: |r, _| labels(r),
    },
    Column {
        title: "CREATED",
        rank: 0,
        give: |r, _| text(r, "created_at"),
    },
    Column {
        title: "START AT",
        rank: 0,
        give: |r, _| text(r, "start_at"),
    },
    Column {
        title: "STARTED",
        rank: 0,
        give: |r, _| text(r, "started_at"),
    },
    Column {
        title: "ENDED",
        rank: 0,
        give: |r, _| text(r, "ended_at"),
    },
    Column {
        title: "RAN",
        rank: 0,
        give: ran,
    },
    Column {
        title: "OUTCOME",
        rank: 0,
        give: |r, _| text(r, "outcome"),
    },
    Column {
        title: "EXIT CODE",
        rank: 0,
        give: |r, _| text(r, "exit_code"),
    },
    Column {
        title: "START",
        rank: 0,
        give: |r, _| text(r, "incarnation"),
    },
    Column {
        title: "GENERATION",
        rank: 0,
        give: |r, _| text(r, "generation"),
    },
];

pub(super) const GPUS: &[Column] = &[
    Column {
        title: "GPU",
        rank: 0,
        give: |r, _| text(r, "index"),
    },
    Column {
        title: "MODEL",
        rank: 1,
        give: |r, _| {
            let model = text(r, "model");
            if r["simulated"] == true {
                format!("{model} (simulated)")
            } else {
                model
            }
        },
    },
    Column {
        title: "FREE",
        rank: 1,
        give: |r, _| {
            let parts = r["partitions"].as_array().map_or(&[][..], Vec::as_slice);
            if r["cordoned"] == true {
                "cordoned".to_owned()
            } else if !r["planned"].is_null() {
                "to be cut".to_owned()
            } else if !parts.is_empty() {
                let free = parts.iter().filter(|part| part["taken"] == false).count();
                format!("{free} of {} parts", parts.len())
            } else {
                text(r, "share_free")
            }
        },
    },
    Column {
        title: "GIVEN",
        rank: 3,
        give: |r, _| text(r, "share_used"),
    },
    Column {
        title: "BUSY",
        rank: 3,
        give: |r, _| format::busy(r),
    },
    Column {
        title: "MEMORY FREE",
        rank: 4,
        give: |r, _| size(&r["memory_free"]),
    },
    Column {
        title: "HEALTH",
        rank: 5,
        give: |r, _| text(r, "health.state"),
    },
    Column {
        title: "TESTED",
        rank: 5,
        give: |r, _| format::tested(r),
    },
    Column {
        title: "SLICES",
        rank: 2,
        give: |r, v| format::slices(r, v.now),
    },
    Column {
        title: "NODE",
        rank: 6,
        give: |r, _| text(r, "node_name"),
    },
    Column {
        title: "NAME",
        rank: 9,
        give: |r, _| text(r, "id"),
    },
    Column {
        title: "SOCKET",
        rank: 9,
        give: |r, _| text(r, "numa"),
    },
];

pub(super) const QUEUE: &[Column] = &[
    Column {
        title: "PLACE",
        rank: 0,
        give: |r, _| text(r, "why.queue_position"),
    },
    Column {
        title: "NAME",
        rank: 0,
        give: |r, _| text(r, "session.name"),
    },
    Column {
        title: "OWNER",
        rank: 4,
        give: |r, _| text(r, "session.owner.name"),
    },
    Column {
        title: "CPU",
        rank: 3,
        give: |r, _| text(r, "session.resources.cpu"),
    },
    Column {
        title: "MEMORY",
        rank: 3,
        give: |r, _| size(&r["session"]["resources"]["memory"]),
    },
    Column {
        title: "WAITS",
        rank: 2,
        give: |r, v| age(&r["session"]["created_at"], v.now),
    },
    Column {
        title: "STARTS IN",
        rank: 5,
        give: |r, _| {
            r["why"]["eta"]["p50_seconds"]
                .as_u64()
                .map_or("unknown".to_owned(), span)
        },
    },
    Column {
        title: "WHY",
        rank: 1,
        give: |r, _| text(r, "why.sentence"),
    },
];

pub(super) const EVENTS: &[Column] = &[
    Column {
        title: "AT",
        rank: 0,
        give: |r, _| text(r, "at"),
    },
    Column {
        title: "CODE",
        rank: 1,
        give: |r, _| text(r, "code"),
    },
    Column {
        title: "WHO",
        rank: 2,
        give: |r, _| text(r, "actor"),
    },
    Column {
        title: "WHAT",
        rank: 0,
        give: |r, _| what(r),
    },
    Column {
        title: "NUMBER",
        rank: 9,
        give: |r, _| text(r, "sequence"),
    },
    Column {
        title: "OBJECT",
        rank: 9,
        give: |r, _| text(r, "object"),
    },
];

pub(super) const IMAGES: &[Column] = &[
    Column {
        title: "REFERENCE",
        rank: 0,
        give: |r, _| text(r, "reference"),
    },
    Column {
        title: "SIZE",
        rank: 2,
        give: |r, _| size(&r["size"]),
    },
    Column {
        title: "IMPORTED",
        rank: 3,
        give: |r, v| match age(&r["imported_at"], v.now) {
            none if none == "-" => none,
            ago => format!("{ago} ago"),
        },
    },
    Column {
        title: "ARCHITECTURE",
        rank: 4,
        give: |r, _| text(r, "architecture"),
    },
    Column {
        title: "ID",
        rank: 5,
        give: |r, _| text(r, "id"),
    },
    Column {
        title: "DIGEST",
        rank: 9,
        give: |r, _| text(r, "digest"),
    },
    Column {
        title: "ENTRY POINT",
        rank: 9,
        give: |r, _| words(r, "entrypoint"),
    },
    Column {
        title: "COMMAND",
        rank: 9,
        give: |r, _| words(r, "command"),
    },
    Column {
        title: "USER",
        rank: 9,
        give: |r, _| text(r, "user"),
    },
    Column {
        title: "DIRECTORY",
        rank: 9,
        give: |r, _| text(r, "working_directory"),
    },
    Column {
        title: "LABELS",
        rank: 9,
        give: |r, _| labels(r),
    },
];

pub(super) const JOBS: &[Column] = &[
    Column {
        title: "ID",
        rank: 0,
        give: |r, _| text(r, "id"),
    },
    Column {
        title: "KIND",
        rank: 2,
        give: |r, _| text(r, "kind"),
    },
    Column {
        title: "STATE",
        rank: 0,
        give: |r, _| text(r, "state"),
    },
    Column {
        title: "STEP",
        rank: 3,
        give: |r, _| text(r, "step"),
    },
    Column {
        title: "DONE",
        rank: 1,
        give: |r, _| match (r["done"].as_u64(), r["total"].as_u64()) {
            (Some(done), Some(total)) if total > 0 => {
                format!("{} %", done.saturating_mul(100) / total)
            }
            _ => "-".to_owned(),
        },
    },
    Column {
        title: "AGE",
        rank: 2,
        give: |r, v| age(&r["created_at"], v.now),
    },
    Column {
        title: "TROUBLE",
        rank: 4,
        give: |r, _| text(r, "refusal.text"),
    },
];

pub(super) const USERS: &[Column] = &[
    Column {
        title: "NAME",
        rank: 0,
        give: |r, _| text(r, "name"),
    },
    Column {
        title: "ROLE",
        rank: 1,
        give: |r, _| text(r, "role"),
    },
    Column {
        title: "STATE",
        rank: 2,
        give: |r, _| {
            if r["suspended"] == true {
                "suspended".to_owned()
            } else {
                "active".to_owned()
            }
        },
    },
    Column {
        title: "SINCE",
        rank: 3,
        give: |r, v| age(&r["created_at"], v.now),
    },
    Column {
        title: "LANGUAGE",
        rank: 9,
        give: |r, _| text(r, "language"),
    },
    Column {
        title: "TIME ZONE",
        rank: 9,
        give: |r, _| text(r, "time_zone"),
    },
    Column {
        title: "ID",
        rank: 9,
        give: |r, _| text(r, "id"),
    },
];

pub(super) const TOKENS: &[Column] = &[
    Column {
        title: "NAME",
        rank: 0,
        give: |r, _| text(r, "name"),
    },
    Column {
        title: "ID",
        rank: 0,
        give: |r, _| text(r, "id"),
    },
    Column {
        title: "SCOPES",
        rank: 3,
        give: |r, _| match words(r, "scopes") {
            none if none == "-" => "everything".to_owned(),
            scopes => scopes,
        },
    },
    Column {
        title: "EXPIRES",
        rank: 1,
        give: |r, _| text(r, "expires_at"),
    },
    Column {
        title: "LAST USED",
        rank: 2,
        give: |r, _| text(r, "used_at"),
    },
];

pub(super) const SAMPLES: &[Column] = &[
    Column {
        title: "AT",
        rank: 0,
        give: |r, _| text(r, "at"),
    },
    Column {
        title: "CPU %",
        rank: 0,
        give: |r, _| percent(&r["cpu_percent_of_limit"]),
    },
    Column {
        title: "CPU WAIT %",
        rank: 1,
        give: |r, _| percent(&r["cpu_waiting_percent"]),
    },
    Column {
        title: "MEMORY",
        rank: 0,
        give: |r, _| size(&r["memory"]),
    },
    Column {
        title: "MEMORY WAIT %",
        rank: 1,
        give: |r, _| percent(&r["memory_waiting_percent"]),
    },
    Column {
        title: "GPU %",
        rank: 2,
        give: |r, _| made_up(r, percent(&r["gpu"]["load_percent"])),
    },
    Column {
        title: "GPU MEMORY",
        rank: 2,
        give: |r, _| made_up(r, size(&r["gpu"]["memory"])),
    },
];

/// Marks a figure of a device that does not exist.
fn made_up(sample: &Value, figure: String) -> String {
    match sample["gpu"]["simulated"] == true {
        true => format!("{figure} (simulated)"),
        false => figure,
    }
}

fn percent(number: &Value) -> String {
    number
        .as_f64()
        .map_or("-".to_owned(), |percent| format!("{percent:.1}"))
}
