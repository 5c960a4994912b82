//! The command that would launch what the form says, as far as it can be read: a field that is wrong stands in it as it
//! was typed, and keeps none of the others out.

use rules::session::SessionKind;
use rules::units::Bytes;

use super::super::presenter::{self, LaunchWords};
use super::super::request_context::RequestContext;
use super::super::typed::point;
use super::{LaunchForm, memory, span};

/// The line, in one line.
pub(super) fn line(visit: &RequestContext, sent: &LaunchForm) -> String {
    let kind = match sent.kind.as_str() {
        "batch" => SessionKind::Batch,
        _ => SessionKind::Interactive,
    };
    let mut more: Vec<(&'static str, String)> = Vec::new();
    let mut put = |name: &'static str, value: String| {
        if !value.is_empty() {
            more.push((name, value));
        }
    };
    put(
        "--shm",
        size(&sent.shm, Bytes::parse(&point(sent.shm.trim())).ok()),
    );
    put("--disk", size(&sent.disk, memory(&sent.disk).ok()));
    let share = point(sent.gpu.trim()).into_owned();
    put("--gpu", if share == "0" { String::new() } else { share });
    put(
        "--gpu-mem",
        size(&sent.gpu_memory, memory(&sent.gpu_memory).ok()),
    );
    put("--mig", sent.mig.trim().to_owned());
    let replicas = sent.replicas.trim();
    put(
        "--replicas",
        if replicas == "1" {
            String::new()
        } else {
            replicas.to_owned()
        },
    );
    let containers = Some(sent.containers.trim()).filter(|typed| *typed != "1");
    put("--containers", containers.unwrap_or_default().to_owned());
    put("--priority", sent.priority.trim().to_owned());
    put("--max-runtime", spell(&sent.max_runtime));
    let start = sent.start_at.trim();
    // The zone is the browser's; the command line takes a moment of its own.
    let at = visit.clock.read(start).map(|at| at.to_string());
    put("--start-at", at.unwrap_or_else(|| start.to_owned()));
    for text in sent.texts.given() {
        put(text.flag, text.typed.to_owned());
    }
    put("--project", sent.project.trim().to_owned());
    put("--owner", sent.owner.trim().to_owned());
    for id in sent.after.split([',', ' ']).filter(|id| !id.is_empty()) {
        put("--after", id.to_owned());
    }
    for (name, text) in [
        ("--mount", &sent.mounts),
        ("-e", &sent.env),
        ("-l", &sent.labels),
    ] {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            put(name, line.to_owned());
        }
    }
    if kind == SessionKind::Batch && !sent.yields.is_empty() {
        more.push(("--yields", String::new()));
    }
    if !sent.without_start_up.is_empty() {
        more.push(("--without-startup", String::new()));
    }
    if !sent.without_home.is_empty() {
        more.push(("--no-home", String::new()));
    }
    if !sent.sudo.is_empty() {
        more.push(("--sudo", String::new()));
    }
    let command = match sent.command.trim() {
        typed if typed.is_empty() || kind == SessionKind::Interactive => Vec::new(),
        typed => ["sh", "-c", typed].map(str::to_owned).to_vec(),
    };
    presenter::command_line(&LaunchWords {
        kind,
        name: sent.name.trim(),
        image: if sent.image.is_empty() {
            "host"
        } else {
            &sent.image
        },
        cpu: &point(sent.cpu.trim()),
        memory: &size(&sent.memory, memory(&sent.memory).ok()),
        more: &more,
        command: &command,
    })
}

/// A size in its largest whole unit; as it was typed where it is none.
pub(super) fn size(typed: &str, read: Option<Bytes>) -> String {
    let Some(Bytes(bytes)) = read else {
        return typed.trim().to_owned();
    };
    for (unit, shift) in [("g", 30), ("m", 20), ("k", 10)] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}b")
}

/// A span in its largest whole unit; as it was typed where it is none.
fn spell(typed: &str) -> String {
    let Ok(Some(seconds)) = span(typed) else {
        return typed.trim().to_owned();
    };
    for (unit, length) in [("d", 86_400), ("h", 3600), ("m", 60)] {
        if seconds > 0 && seconds.is_multiple_of(length) {
            return format!("{}{unit}", seconds / length);
        }
    }
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sent: &LaunchForm) -> String {
        let visit = RequestContext::of(
            &axum::http::HeaderMap::new(),
            &axum::http::Extensions::new(),
            "/".into(),
        );
        line(&visit, sent)
    }

    #[test]
    fn every_field_of_the_form_stands_in_its_command() {
        let mut sent = LaunchForm {
            kind: "batch".into(),
            image: "host".into(),
            command: "echo a b".into(),
            cpu: "0,5".into(),
            memory: "30".into(),
            gpu: "0.35".into(),
            gpu_memory: "0.0625".into(),
            name: "train".into(),
            max_runtime: "14400s".into(),
            replicas: "3".into(),
            containers: "2".into(),
            shm: "2048m".into(),
            start_at: "2026-11-23T21:00".into(),
            after: "first".into(),
            mounts: "data:/data:ro\n home ".into(),
            env: "A=1 2\n\nB=3".into(),
            labels: "team=x".into(),
            ..LaunchForm::default()
        };
        let line = told(&sent);
        for part in [
            "fardel run -d --name train --cpu 0.5 --mem 30g",
            "--shm 2g",
            "--gpu 0.35",
            "--gpu-mem 64m",
            "--replicas 3",
            "--containers 2",
            "--max-runtime 4h",
            "--start-at 2026-11-23T21:00:00",
            "--after first",
            "--mount data:/data:ro --mount home",
            "-e 'A=1 2' -e B=3",
            "-l team=x",
            "host -- sh -c 'echo a b'",
        ] {
            assert!(line.contains(part), "{part} is missing in: {line}");
        }
        // One wrong field stands as it was typed, and the others stay.
        sent.memory = "banana".into();
        sent.max_runtime = "soon".into();
        let line = told(&sent);
        for part in [
            "--mem banana",
            "--max-runtime soon",
            "--gpu 0.35",
            "--replicas 3",
            "--shm 2g",
        ] {
            assert!(line.contains(part), "{part} is missing in: {line}");
        }
    }

    #[test]
    fn what_is_not_asked_for_is_not_in_the_command() {
        let sent = LaunchForm {
            image: "host".into(),
            cpu: "1".into(),
            memory: "1.5".into(),
            replicas: "1".into(),
            ..LaunchForm::default()
        };
        assert_eq!(told(&sent), "fardel run -d --cpu 1 --mem 1536m host");
    }
}
