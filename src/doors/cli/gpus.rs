//! Devices from the command line: who has which share, and which take nothing new. Prints what the API
//! says; where devices are simulated every output says so.

use rules::units::Timestamp;
use serde_json::{Value, json};

use super::args::GpuCommand;
use super::client::{HttpClient, encoded};
use super::error::CliError;
use super::format::{SIMULATED, asked, busy, grants, load, tested};
use super::output::{OutputStyle, size, text};
use super::{columns, complain, images, print, sessions, values};

pub(super) async fn gpu(
    client: &HttpClient,
    view: &OutputStyle,
    request: GpuCommand,
) -> Result<u8, CliError> {
    match request {
        GpuCommand::Ls => {
            let body = client.get("/api/v1/gpus").await?;
            if view.for_people() && body["items"].as_array().is_some_and(Vec::is_empty) {
                complain("No machine here has a GPU.\n");
                return Ok(0);
            }
            print(&view.list(&body, columns::GPUS)?);
            remark(view, &body);
        }
        GpuCommand::Show { gpu } => {
            let body = client.get(&path(&gpu)).await?;
            print(&view.said(&body, &shown(&body, view.now))?);
        }
        GpuCommand::Cordon { gpu, note } => {
            let body = client
                .post(&format!("{}/cordon", path(&gpu)), &json!({"note": note}))
                .await?;
            said(view, &body, "takes no new sessions; running ones go on")?;
        }
        GpuCommand::Uncordon { gpu } => {
            let body = client
                .post(&format!("{}/uncordon", path(&gpu)), &json!({}))
                .await?;
            said(view, &body, "takes new slices again")?;
        }
        GpuCommand::Drain { gpu, yes, note } => {
            let body = json!({"dry_run": !yes, "note": note});
            let body = client.post(&format!("{}/drain", path(&gpu)), &body).await?;
            print(&view.said(&body, &drained(&body))?);
        }
        GpuCommand::Cut {
            gpu,
            profiles,
            whole: _,
            yes,
            note,
        } => {
            let body = json!({"profiles": profiles, "dry_run": !yes, "note": note});
            let body = client.post(&format!("{}/cut", path(&gpu)), &body).await?;
            print(&view.said(&body, &cut(&body))?);
        }
        GpuCommand::Test {
            gpu,
            image,
            no_wait,
        } => {
            let body = match image {
                Some(image) => json!({"image": image}),
                None => json!({}),
            };
            let operation = client.post(&format!("{}/test", path(&gpu)), &body).await?;
            if no_wait {
                let line = format!("{}  is being tested", text(&operation, "id"));
                print(&view.said(&operation, &line)?);
                return Ok(0);
            }
            let progress = images::ProgressLine::new(view, "testing", false);
            images::watched(client, &progress, operation).await?;
            return proof(client, view, &gpu).await;
        }
        GpuCommand::Proof { gpu } => return proof(client, view, &gpu).await,
        GpuCommand::Resize {
            session,
            share,
            gpu_mem,
        } => {
            let devices = values::GpuArguments {
                share: Some(&share),
                memory: gpu_mem.as_deref(),
                mig: None,
            };
            let resources = values::resources(None, None, None, &devices)?;
            let body = json!({"resources": resources});
            let changed = sessions::patched(client, &session.session, &body, None).await?;
            let line = match grants(&changed["devices"]) {
                waiting if waiting.is_empty() => {
                    format!("{}  asks for {}", text(&changed, "name"), asked(&changed))
                }
                given => format!("{}  {given}", text(&changed, "name")),
            };
            print(&view.said(&changed, &line)?);
            remark(view, &changed);
        }
    }
    Ok(0)
}

/// Prints the newest proof; 1 where something did not hold.
async fn proof(client: &HttpClient, view: &OutputStyle, gpu: &str) -> Result<u8, CliError> {
    let body = client.get(&format!("{}/proof", path(gpu))).await?;
    print(&view.said(&body, &proved(&body))?);
    Ok(u8::from(body["result"]["passed"] != true))
}

/// A proof for people: who was tested with what, every finding, the signature.
fn proved(body: &Value) -> String {
    let result = &body["result"];
    let verdict = match result["passed"] == true {
        true => "passed",
        false => "FAILED",
    };
    let mut lines = format!(
        "{verdict}  {}  {}\n  driver {}, fardel {}, {} to {}",
        text(result, "model"),
        text(result, "device"),
        text(result, "driver"),
        text(result, "fardel"),
        text(result, "began_at"),
        text(result, "ended_at"),
    );
    for finding in result["findings"].as_array().into_iter().flatten() {
        let held = match finding["verdict"] == "held" {
            true => "held  ",
            false => "FAILED",
        };
        let name = match finding["subject"].as_str().unwrap_or_default() {
            "" => text(finding, "code"),
            subject => format!("{} {subject}", text(finding, "code")),
        };
        lines.push_str(&format!(
            "\n  {held}  {name:<28} {}",
            text(finding, "measured")
        ));
        if finding["verdict"] != "held" {
            lines.push_str(&format!(" (wanted: {})", text(finding, "wanted")));
        }
    }
    lines.push_str(&format!(
        "\n  signed by {}\n  {}",
        text(body, "fingerprint"),
        text(body, "signature")
    ));
    lines
}

fn path(gpu: &str) -> String {
    format!("/api/v1/gpus/{}", encoded(gpu))
}

/// Says on standard error which accelerators are not given, and that nothing exists where nothing does.
fn remark(view: &OutputStyle, body: &Value) {
    for other in body["others"].as_array().into_iter().flatten() {
        if view.for_people() {
            complain(&format!(
                "{} x {} on {}: discovery tested, never run on hardware; sessions cannot have them yet\n",
                text(other, "number"),
                text(other, "family"),
                text(other, "node_name"),
            ));
        }
    }
    if view.for_people() && body["simulated"] == true {
        complain(&format!("{SIMULATED}\n"));
    }
}

fn said(view: &OutputStyle, gpu: &Value, what: &str) -> Result<(), CliError> {
    let line = format!("GPU {} ({}) {what}", text(gpu, "index"), text(gpu, "id"));
    print(&view.said(gpu, &line)?);
    remark(view, gpu);
    Ok(())
}

fn shown(gpu: &Value, now: Timestamp) -> String {
    let mut lines = format!(
        "GPU {}  {}  {}",
        text(gpu, "index"),
        text(gpu, "model"),
        text(gpu, "id")
    );
    if gpu["simulated"] == true {
        lines.push_str(&format!("\n  {SIMULATED}"));
    }
    let mut say = |name: &str, value: String| {
        lines.push_str(&format!("\n  {name:<9} {value}"));
    };
    say("machine", text(gpu, "node_name"));
    say(
        "memory",
        format!(
            "{} free of {}",
            size(&gpu["memory_free"]),
            size(&gpu["memory"])
        ),
    );
    say(
        "shares",
        format!(
            "{} given, {} free",
            text(gpu, "share_used"),
            text(gpu, "share_free")
        ),
    );
    say("SMs", text(gpu, "sms"));
    if !gpu["doing"].is_null() {
        let memory = &gpu["doing"]["memory"];
        let used = match memory.is_u64() {
            true => format!(", {} in use", size(memory)),
            false => String::new(),
        };
        say("busy", format!("{}{used}", busy(gpu)));
    }
    say("health", text(gpu, "health.state"));
    if gpu["simulated"] != true {
        say("driver", text(gpu, "driver"));
        say(
            "held by",
            gpu["hold"]
                .as_str()
                .unwrap_or("nobody")
                .replace("-and-", " + "),
        );
        let when = match gpu["proved_at"].as_str() {
            Some(at) => format!("{}, {at}", tested(gpu)),
            None => format!("{}: `fardel gpu test` proves that slices hold", tested(gpu)),
        };
        say("tested", when);
    }
    if gpu["cordoned"] == true {
        say("cordoned", text(gpu, "note"));
    }
    for part in gpu["partitions"].as_array().into_iter().flatten() {
        let state = if part["taken"] == true {
            "taken"
        } else {
            "free"
        };
        say(
            "partition",
            format!(
                "{} = {}, {} of {} SMs  {state}",
                text(part, "profile"),
                size(&part["memory"]),
                text(part, "sms"),
                text(gpu, "sms")
            ),
        );
    }
    if !gpu["planned"].is_null() {
        let planned = words(&gpu["planned"]["profiles"]);
        say(
            "planned",
            match planned.is_empty() {
                true => "whole again, once nothing runs on it".to_owned(),
                false => format!("{}, once nothing runs on it", planned.join(" ")),
            },
        );
        if let Some(trouble) = gpu["planned"]["trouble"]["text"].as_str() {
            say("", trouble.to_owned());
            say("", "if it goes on like this, type as root:".to_owned());
            for command in words(&gpu["planned"]["commands"]) {
                say("", format!("  {command}"));
            }
        }
    }
    for slice in gpu["slices"].as_array().into_iter().flatten() {
        let mut more = String::new();
        if slice["confirmed"] == false {
            more.push_str("  not yet confirmed");
        }
        if let Some(load) = load(slice, now) {
            more.push_str(&format!("  {load}"));
        }
        if slice["memory_in_use"].is_u64() {
            more.push_str(&format!("  {} in use", size(&slice["memory_in_use"])));
        }
        say(
            "slice",
            format!(
                "{} = {}, {} of {} SMs  {}  {}{more}",
                slice["profile"]
                    .as_str()
                    .map_or_else(|| text(slice, "share"), str::to_owned),
                size(&slice["memory"]),
                text(slice, "sms"),
                text(gpu, "sms"),
                slice["name"].as_str().unwrap_or("others"),
                text(slice, "state"),
            ),
        );
    }
    lines
}

fn words(list: &Value) -> Vec<&str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

/// What a cut comes to, whom it ends, and what is left to do by hand.
fn cut(body: &Value) -> String {
    let gpu = &body["gpu"];
    let would = body["dry_run"] == true;
    let index = text(gpu, "index");
    let parts: Vec<String> = body["partitions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| {
            let (profile, sms) = (text(part, "profile"), text(part, "sms"));
            format!("  {profile:<9} {}, {sms} SMs", size(&part["memory"]))
        })
        .collect();
    let becomes = if parts.is_empty() {
        "whole"
    } else {
        "cut into"
    };
    let mut lines = match would {
        true => format!("GPU {index} would be {becomes}"),
        false => format!("GPU {index} is to be {becomes}"),
    };
    for part in parts {
        lines.push_str(&format!("\n{part}"));
    }
    let ends = words(&body["ends"]).join(", ");
    match (ends.is_empty(), would) {
        (true, _) => lines.push_str("\n  nothing has to end"),
        (false, true) => lines.push_str(&format!("\n  would end: {ends}")),
        (false, false) => lines.push_str(&format!("\n  told to end: {ends}")),
    }
    let again = words(&body["requeued"]).join(", ");
    if !again.is_empty() {
        lines.push_str(&format!("\n  waiting for another device: {again}"));
    }
    if would {
        lines.push_str("\n  --yes does it");
    } else if gpu["planned"].is_null() {
        lines.push_str("\n  done");
    } else {
        lines.push_str(
            "\n  it is partitioned once nothing runs on it, and takes no new sessions until then",
        );
    }
    if gpu["simulated"] == true {
        lines.push_str(&format!("\n  {SIMULATED}"));
    }
    lines
}

fn drained(body: &Value) -> String {
    let names = |key: &str| words(&body[key]).join(", ");
    let index = text(&body["gpu"], "index");
    let mut lines = match (names("ends"), body["dry_run"] == true) {
        (none, true) if none.is_empty() => format!("Nothing runs on GPU {index}."),
        (none, false) if none.is_empty() => {
            format!("GPU {index} takes no new sessions; none ran on it.")
        }
        (ends, true) => format!("A drain of GPU {index} would end: {ends}"),
        (ends, false) => format!("GPU {index} takes no new sessions; told to end: {ends}"),
    };
    let again = names("requeued");
    if !again.is_empty() {
        lines.push_str(&format!("\n  waiting for another device: {again}"));
    }
    if body["dry_run"] == true {
        lines.push_str("\n  --yes does it");
    }
    if body["gpu"]["simulated"] == true {
        lines.push_str(&format!("\n  {SIMULATED}"));
    }
    lines
}
