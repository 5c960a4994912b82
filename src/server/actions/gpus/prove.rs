//! The self-test of a card as its administrator asks for it: may it begin, is it under way, what did it find.
//! `jobs::gpu_self_test` runs it.

use api::gpus::{Gpu, SelfTestReport, TestRequest};
use api::operations::OperationView;
use rules::devices::Health;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::self_test;
use rules::units::GpuShare;
use serde_json::json;

use crate::access::Caller;
use crate::actions::allowed;
use crate::actions::images;
use crate::actions::operations::show;
use crate::actions::system::refuse_unwell;
use crate::catalog::Lane;
use crate::catalog::job_kinds::GPU_TEST;
use crate::catalog::jobs::OperationRow;
use crate::{Failure, Server, ServerFault};

/// Begins the self-test of a card and gives its operation, whose end names the report.
///
/// Errors: `gpu.test-simulated`, `gpu.test-partitioned`, `gpu.test-silent`, `gpu.test-no-room` with how much is
/// missing, `gpu.test-no-environment` where its machine offers none and none was named, `image.not-found`,
/// `gpu.test-running` while another one runs, `gpu.test-unable` where this server has no way into sessions.
pub async fn test(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: TestRequest,
) -> Result<OperationView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    refuse_unwell(server)?;
    if server.streams().is_none() {
        return Err(refusals::gpu_test_unable().into());
    }
    let gpu = super::get(server, caller, id).await?;
    if server
        .catalog()
        .read("look for tests under way", |view| view.open_operations())
        .await?
        .iter()
        .any(|row| row.kind == GPU_TEST)
    {
        // A caller that left between row and wake left it waiting.
        server.jobs().wake(GPU_TEST)?;
        return Err(already().into());
    }
    testable(server, &gpu)?;
    let image = environment(server, caller, &gpu, request).await?;
    let input = json!({"device": gpu.id, "image": image});
    let now = server.clock().now();
    let row = OperationRow::asked(now, GPU_TEST, caller.subject.user, input);
    let (actor, written) = (caller.name.clone(), row.clone());
    server.jobs().expect(&row, caller);
    let begun = server
        .catalog()
        .write(Lane::Requests, "begin a self-test", move |rows| {
            if rows
                .open_operations()?
                .iter()
                .any(|other| other.kind == GPU_TEST)
            {
                return Err(already().into());
            }
            rows.insert_operation(&written, actor.as_str())
        })
        .await;
    if let Err(failure) = begun {
        server.jobs().forget(row.id);
        return Err(failure);
    }
    let shown = show(server, row);
    server.jobs().wake(GPU_TEST)?;
    Ok(shown)
}

/// The test of a card that is under way; None where there is none.
///
/// Errors: `gpu.not-found`.
pub async fn running(
    server: &Server,
    caller: &Caller,
    id: &str,
) -> Result<Option<OperationView>, Failure> {
    let gpu = super::get(server, caller, id).await?;
    let open = server
        .catalog()
        .read("look for a test under way", move |view| {
            view.open_operations()
        })
        .await?;
    let its = open
        .into_iter()
        .find(|row| row.kind == GPU_TEST && row.input["device"] == gpu.id.as_str());
    Ok(its.map(|row| show(server, row)))
}

/// The newest report of a card, made with any driver.
///
/// Errors: `gpu.not-found`, `gpu.not-tested`.
pub async fn report(server: &Server, caller: &Caller, id: &str) -> Result<SelfTestReport, Failure> {
    let gpu = super::get(server, caller, id).await?;
    let device = gpu.id.clone();
    let row = server
        .catalog()
        .read("show a report", move |view| view.newest_self_test(&device))
        .await?;
    let Some(row) = row else {
        return Err(match gpu.simulated {
            true => refusals::gpu_simulated_not_tested(),
            false => refusals::gpu_not_tested(gpu.index),
        }
        .into());
    };
    let authority = server.certificates()?.authority();
    Ok(SelfTestReport {
        id: row.id,
        result: serde_json::from_str(&row.statement)
            .map_err(|error| ServerFault::new("read a report", error))?,
        statement: row.statement,
        signature: base64(&row.signature),
        authority: authority.pem,
        fingerprint: authority.fingerprint,
    })
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// What the sessions of a test of this card could start from: `host` where its machine offers its own
/// programs, then the images that are here; empty where there is nothing.
pub async fn environments(
    server: &Server,
    caller: &Caller,
    gpu: &Gpu,
) -> Result<Vec<String>, Failure> {
    let node = gpu.node;
    let nodes = server
        .catalog()
        .read("look at a card's machine", |view| view.nodes())
        .await?;
    let host = nodes
        .iter()
        .any(|row| row.id == node && row.host_environment);
    let images = images::list(server, caller).await?;
    Ok(host
        .then(|| "host".to_owned())
        .into_iter()
        .chain(images.into_iter().map(|image| image.reference))
        .collect())
}

/// Why no test of this card can start from anything that is here.
pub fn no_environment(gpu: &Gpu) -> Refusal {
    let (node, index) = (&gpu.node_name, gpu.index);
    refusals::gpu_test_no_environment(node, index).at("/image")
}

/// What a test starts from, as it was asked for.
async fn environment(
    server: &Server,
    caller: &Caller,
    gpu: &Gpu,
    request: TestRequest,
) -> Result<String, Failure> {
    let typed = request.image.as_deref().map_or("", str::trim);
    let host = environments(server, caller, gpu)
        .await?
        .first()
        .is_some_and(|first| first == "host");
    match typed {
        "" | "host" if host => Ok("host".to_owned()),
        "" | "host" => Err(no_environment(gpu).into()),
        typed => {
            let found = images::get(server, caller, typed).await;
            Ok(found.map_err(|failure| failure.at("/image"))?.reference)
        }
    }
}

/// The shares that the two sessions get; a refusal where the card cannot be tested now.
pub(crate) fn testable(server: &Server, gpu: &Gpu) -> Result<(GpuShare, GpuShare), Refusal> {
    if gpu.simulated {
        return Err(refusals::gpu_test_simulated());
    }
    if !gpu.partitions.is_empty() {
        return Err(refusals::gpu_test_partitioned());
    }
    if !gpu.answers || matches!(gpu.health, Health::Failing { .. }) {
        return Err(refusals::gpu_test_silent());
    }
    let device = rules::resources::Device {
        memory: gpu.memory,
        ..rules::resources::Device::new(gpu.index, gpu.model.clone())
    };
    let policy = server.settings().share_policy();
    let Some((larger, smaller)) = self_test::shares(&device, &policy) else {
        return Err(refusals::gpu_test_too_small(gpu.memory));
    };
    let wanted = GpuShare(larger.0 + smaller.0);
    let left = rules::devices::WHOLE.saturating_sub(gpu.share_used);
    if wanted > left {
        return Err(refusals::gpu_test_no_room(wanted, left));
    }
    Ok((larger, smaller))
}

fn already() -> Refusal {
    refusals::gpu_test_running()
}
