//! Devices from the command line: who has which share, and which take nothing new. Prints what the API
//! says; where devices are simulated every output says so.

use api::gpus::{Drained, Gpu, Gpus, Others, Repartitioned, SelfTestReport};
use api::operations::OperationView;
use rules::devices::Hold;
use rules::self_test::TestVerdict;
use rules::units::Timestamp;
use serde_json::json;

use super::answer::Answer;
use super::args::GpuCommand;
use super::client::{HttpClient, encoded};
use super::error::CliError;
use super::format::{SIMULATED, asked, busy, grants, health, load, tested};
use super::output::{OutputStyle, dash};
use super::{columns, complain, images, print, sessions, values};

pub(super) async fn gpu(
    client: &HttpClient,
    view: &OutputStyle,
    request: GpuCommand,
) -> Result<u8, CliError> {
    match request {
        GpuCommand::Ls => {
            let Answer { body, read } = client.read::<Gpus>("/api/v1/gpus").await?;
            if view.for_humans() && read.items.is_empty() {
                complain("No node here has a GPU.\n");
                return Ok(0);
            }
            print(&view.list(&body, columns::GPUS)?);
            remark(view, &read.others, read.simulated);
        }
        GpuCommand::Show { gpu } => {
            let gpu = client.read::<Gpu>(&path(&gpu)).await?;
            print(&view.said(&gpu.body, &shown(&gpu.read, view.now))?);
        }
        GpuCommand::Cordon { gpu, note } => {
            let body = client
                .send(&format!("{}/cordon", path(&gpu)), &json!({"note": note}))
                .await?;
            said(view, &body, "takes no new sessions; running ones go on")?;
        }
        GpuCommand::Uncordon { gpu } => {
            let body = client
                .send(&format!("{}/uncordon", path(&gpu)), &json!({}))
                .await?;
            said(view, &body, "takes new slices again")?;
        }
        GpuCommand::Drain { gpu, yes, note } => {
            let body = json!({"dry_run": !yes, "note": note});
            let done = client
                .send::<Drained>(&format!("{}/drain", path(&gpu)), &body)
                .await?;
            print(&view.said(&done.body, &drained(&done.read))?);
        }
        GpuCommand::Partition {
            gpu,
            profiles,
            whole: _,
            yes,
            note,
        } => {
            let body = json!({"profiles": profiles, "dry_run": !yes, "note": note});
            let done = client
                .send::<Repartitioned>(&format!("{}/partitions", path(&gpu)), &body)
                .await?;
            print(&view.said(&done.body, &partition(&done.read))?);
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
            let operation = client
                .send::<OperationView>(&format!("{}/test", path(&gpu)), &body)
                .await?;
            if no_wait {
                let line = format!("{}  is being tested", operation.read.id);
                print(&view.said(&operation.body, &line)?);
                return Ok(0);
            }
            let progress = images::ProgressLine::new(view, "testing", false);
            images::watched(client, &progress, operation).await?;
            return report(client, view, &gpu).await;
        }
        GpuCommand::Report { gpu } => return report(client, view, &gpu).await,
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
            let resources = values::resources(None, None, None, None, &devices)?;
            let body = json!({"resources": resources});
            let changed = sessions::patched(client, &session.session, &body, None).await?;
            let session = &changed.read;
            let line = match grants(&session.devices) {
                waiting if waiting.is_empty() => {
                    format!("{}  asks for {}", session.name, asked(&session.resources))
                }
                given => format!("{}  {given}", session.name),
            };
            print(&view.said(&changed.body, &line)?);
            remark(view, &[], session.simulated);
        }
    }
    Ok(0)
}

/// Prints the newest report; 1 where something did not hold.
async fn report(client: &HttpClient, view: &OutputStyle, gpu: &str) -> Result<u8, CliError> {
    let report = client
        .read::<SelfTestReport>(&format!("{}/self-test-report", path(gpu)))
        .await?;
    print(&view.said(&report.body, &proved(&report.read))?);
    Ok(u8::from(!report.read.result.passed))
}

/// A report for users: who was tested with what, every finding, the signature.
fn proved(report: &SelfTestReport) -> String {
    let result = &report.result;
    let verdict = match result.passed {
        true => "passed",
        false => "FAILED",
    };
    let mut lines = format!(
        "{verdict}  {}  {}\n  driver {}, fardel {}, {} to {}",
        dash(&result.model),
        dash(&result.device),
        dash(&result.driver),
        dash(&result.fardel),
        result.began_at,
        result.ended_at,
    );
    for finding in &result.findings {
        let held = finding.verdict == TestVerdict::Held;
        let word = if held { "held  " } else { "FAILED" };
        let name = match finding.subject.as_str() {
            "" => finding.code.clone(),
            subject => format!("{} {subject}", finding.code),
        };
        lines.push_str(&format!(
            "\n  {word}  {name:<28} {}",
            dash(&finding.measured)
        ));
        if !held {
            lines.push_str(&format!(" (wanted: {})", dash(&finding.wanted)));
        }
    }
    lines.push_str(&format!(
        "\n  signed by {}\n  {}",
        report.fingerprint, report.signature
    ));
    lines
}

fn path(gpu: &str) -> String {
    format!("/api/v1/gpus/{}", encoded(gpu))
}

/// Says on standard error which accelerators are not given, and that nothing exists where nothing does.
fn remark(view: &OutputStyle, others: &[Others], simulated: bool) {
    if !view.for_humans() {
        return;
    }
    for other in others {
        complain(&format!(
            "{} x {} on {}: discovery tested, never run on hardware; sessions cannot have them yet\n",
            other.number, other.family, other.node_name,
        ));
    }
    if simulated {
        complain(&format!("{SIMULATED}\n"));
    }
}

fn said(view: &OutputStyle, gpu: &Answer<Gpu>, what: &str) -> Result<(), CliError> {
    let line = format!("GPU {} ({}) {what}", gpu.read.index, gpu.read.id);
    print(&view.said(&gpu.body, &line)?);
    remark(view, &[], gpu.read.simulated);
    Ok(())
}

fn shown(gpu: &Gpu, now: Timestamp) -> String {
    let mut lines = format!("GPU {}  {}  {}", gpu.index, dash(&gpu.model), gpu.id);
    if gpu.simulated {
        lines.push_str(&format!("\n  {SIMULATED}"));
    }
    let mut say = |name: &str, value: String| {
        lines.push_str(&format!("\n  {name:<9} {value}"));
    };
    say("machine", dash(&gpu.node_name));
    say(
        "memory",
        format!("{} free of {}", gpu.memory_free, gpu.memory),
    );
    say(
        "shares",
        format!("{} given, {} free", gpu.share_used, gpu.share_free),
    );
    say("SMs", gpu.sms.to_string());
    if let Some(doing) = &gpu.doing {
        let used = match doing.memory {
            Some(memory) => format!(", {memory} in use"),
            None => String::new(),
        };
        say("busy", format!("{}{used}", busy(Some(doing))));
    }
    say("health", health(&gpu.health));
    if !gpu.simulated {
        say("driver", dash(&gpu.driver));
        say("held by", held_by(gpu.hold).to_owned());
        let when = match gpu.self_tested_at {
            Some(at) => format!("{}, {at}", tested(gpu.self_test)),
            None => format!(
                "{}: `fardel gpu test` proves that slices hold",
                tested(gpu.self_test)
            ),
        };
        say("tested", when);
    }
    if gpu.cordoned {
        say("cordoned", dash(&gpu.note));
    }
    for part in &gpu.partitions {
        let state = if part.taken { "taken" } else { "free" };
        let (profile, memory, sms) = (part.profile, part.memory, part.sms);
        let all = gpu.sms;
        say(
            "partition",
            format!("{profile} = {memory}, {sms} of {all} SMs  {state}"),
        );
    }
    if let Some(planned) = &gpu.planned {
        let profiles: Vec<String> = planned.profiles.iter().map(ToString::to_string).collect();
        say(
            "planned",
            match profiles.is_empty() {
                true => "whole again, once nothing runs on it".to_owned(),
                false => format!("{}, once nothing runs on it", profiles.join(" ")),
            },
        );
        if let Some(trouble) = &planned.trouble {
            say("", trouble.text.clone());
            say("", "if it goes on like this, type as root:".to_owned());
            for command in &planned.commands {
                say("", format!("  {command}"));
            }
        }
    }
    for slice in &gpu.slices {
        let mut more = String::new();
        if !slice.confirmed {
            more.push_str("  not yet confirmed");
        }
        if let Some(load) = load(slice, now) {
            more.push_str(&format!("  {load}"));
        }
        if let Some(memory) = slice.memory_in_use {
            more.push_str(&format!("  {memory} in use"));
        }
        say(
            "slice",
            format!(
                "{} = {}, {} of {} SMs  {}  {}{more}",
                slice
                    .profile
                    .map_or_else(|| slice.share.to_string(), |profile| profile.to_string()),
                slice.memory,
                slice.sms,
                gpu.sms,
                slice.name.as_deref().unwrap_or("others"),
                slice.state.word(),
            ),
        );
    }
    lines
}

/// What enforces the sessions' limits of memory, as users read it.
fn held_by(hold: Hold) -> &'static str {
    match hold {
        Hold::Nobody => "nobody",
        Hold::Hook => "hook",
        Hold::HookAndKernel => "hook + kernel",
        Hold::HookAndDriver => "hook + driver",
        Hold::Hardware => "hardware",
    }
}

/// What a cut comes to, whom it ends, and what is left to do by hand.
fn partition(partitioned: &Repartitioned) -> String {
    let (gpu, would) = (&partitioned.gpu, partitioned.dry_run);
    let index = gpu.index;
    let becomes = if partitioned.partitions.is_empty() {
        "whole"
    } else {
        "partitioned into"
    };
    let mut lines = match would {
        true => format!("GPU {index} would be {becomes}"),
        false => format!("GPU {index} is to be {becomes}"),
    };
    for part in &partitioned.partitions {
        let (profile, sms) = (part.profile.to_string(), part.sms);
        lines.push_str(&format!("\n  {profile:<9} {}, {sms} SMs", part.memory));
    }
    let ends = partitioned.ends.join(", ");
    match (ends.is_empty(), would) {
        (true, _) => lines.push_str("\n  nothing has to end"),
        (false, true) => lines.push_str(&format!("\n  would end: {ends}")),
        (false, false) => lines.push_str(&format!("\n  told to end: {ends}")),
    }
    let again = partitioned.requeued.join(", ");
    if !again.is_empty() {
        lines.push_str(&format!("\n  waiting for another device: {again}"));
    }
    if would {
        lines.push_str("\n  --yes does it");
    } else if gpu.planned.is_none() {
        lines.push_str("\n  done");
    } else {
        lines.push_str(
            "\n  it is partitioned once nothing runs on it, and takes no new sessions until then",
        );
    }
    if gpu.simulated {
        lines.push_str(&format!("\n  {SIMULATED}"));
    }
    lines
}

fn drained(drained: &Drained) -> String {
    let index = drained.gpu.index;
    let mut lines = match (drained.ends.join(", "), drained.dry_run) {
        (none, true) if none.is_empty() => format!("No session runs on GPU {index}."),
        (none, false) if none.is_empty() => {
            format!("GPU {index} takes no new sessions; none ran on it.")
        }
        (ends, true) => format!("A drain of GPU {index} would end: {ends}"),
        (ends, false) => format!("GPU {index} takes no new sessions; told to end: {ends}"),
    };
    let again = drained.requeued.join(", ");
    if !again.is_empty() {
        lines.push_str(&format!("\n  waiting for another device: {again}"));
    }
    if drained.dry_run {
        lines.push_str("\n  --yes does it");
    }
    if drained.gpu.simulated {
        lines.push_str(&format!("\n  {SIMULATED}"));
    }
    lines
}
