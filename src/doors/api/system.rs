//! The machine as a whole over REST, and the probes that monitors ask: alive, ready, figures, version.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rules::messages::DeviceUse;
use rules::refusals;
use serde_json::json;
use server::actions::system::{AuditTargetMetrics, OwnerMetrics, SliceMetrics, VolumeMetrics};
use server::actions::{backups, sessions, system};
use std::sync::atomic::AtomicU64;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::QueryParameters;
use super::responses::{self, ApiResult};
use crate::doors::download;
use crate::doors::problem::ProblemResponse;

pub(super) async fn overview(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let overview = sessions::overview(&api.server, &caller).await?;
    responses::whole(&headers, &overview)
}

/// What this server can do, for clients that must work with several versions.
pub(super) async fn capabilities(ApiCaller(_): ApiCaller, headers: HeaderMap) -> ApiResult {
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "api": "v1",
        "features": [
            "sessions", "dry-run", "idempotency-keys", "long-poll", "attach", "exec", "ports", "logs",
            "samples", "gpus", "gpu-shares", "images", "uploads.tus", "operations", "events", "tokens",
        ],
        "terminal": {"subprotocol": "v1.term", "channels": {"in": 0, "out": 1, "control": 2, "err": 3}},
        "tunnel": {"subprotocol": "v1.tcp"},
        "limits": {
            "body_bytes": super::MAX_JSON_BYTES,
            "replicas": rules::session::MAX_REPLICAS,
            "page": 500,
            "order_bytes": rules::session::MAX_SPEC_BYTES,
            "labels": rules::session::MAX_LABELS,
            "wait_seconds": 60,
        },
    });
    responses::whole(&headers, &body)
}

/// How the backups stand that the server makes by itself.
pub(super) async fn backups(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let standing = backups::standing(&api.server, &caller).await?;
    responses::whole(&headers, &standing)
}

/// Makes a backup now and answers when it was verified.
pub(super) async fn back_up(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
) -> ApiResult {
    let made = backups::make(&api.server, &caller).await?;
    responses::plain(StatusCode::CREATED, &made)
}

/// One backup as a file, to be carried away.
pub(super) async fn take_backup(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(name): Path<String>,
) -> ApiResult {
    let (found, open) = backups::take(&api.server, &caller, name).await?;
    Ok(download::file(
        &found.name,
        "application/octet-stream",
        found.size.0,
        open,
        server::access::lease(&api.server, &caller),
    ))
}

/// Every check of the machine, the unwell ones first.
pub(super) async fn diagnostics(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let checks = system::diagnose(&api.server, &caller).await?;
    responses::all(&headers, checks)
}

#[derive(serde::Deserialize)]
pub(super) struct BundleQuery {
    #[serde(default)]
    dry_run: bool,
}

/// A support bundle as a file, or with `dry_run` what it would hold.
pub(super) async fn support_bundle(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    QueryParameters(query): QueryParameters<BundleQuery>,
    headers: HeaderMap,
) -> ApiResult {
    if query.dry_run {
        let members = system::preview_bundle(&api.server, &caller).await?;
        return responses::all(&headers, members);
    }
    let bytes = system::support_bundle(&api.server, &caller).await?;
    Ok(download::bytes(
        "fardel-support.tar.gz",
        "application/gzip",
        bytes,
    ))
}

/// Broken invariants of the rows; an empty list for a sound box.
pub(super) async fn findings(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let findings = system::findings_of(&api.server, &caller).await?;
    responses::all(&headers, findings)
}

/// The process lives and its event loop turns.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the server can do its work: each check by itself. 503 when one that matters fails.
pub(super) async fn ready(State(api): State<ApiContext>) -> ApiResult {
    let checks = system::health(&api.server).await;
    let ready = checks.iter().all(|check| check.ok || check.minor);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    responses::plain(status, &json!({"ready": ready, "checks": checks}))
}

pub(super) async fn version() -> ApiResult {
    let body = json!({"name": "fardel", "version": env!("CARGO_PKG_VERSION"), "api": "v1"});
    responses::plain(StatusCode::OK, &body)
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfState {
    state: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfMachine {
    machine: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfGpu {
    gpu: String,
    machine: String,
    model: String,
    simulated: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfSlice {
    session: String,
    gpu: String,
    machine: String,
    simulated: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfTarget {
    target: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfOwner {
    owner: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfLevel {
    level: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfFolder {
    folder: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfVolume {
    volume: String,
}

type FloatGauge = Gauge<f64, AtomicU64>;

/// Figures as OpenMetrics text. Root on the local socket needs no token; loopback is no proof of
/// anything, since a proxy on this machine brings everybody by it.
pub(super) async fn metrics(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
) -> ApiResult {
    let figures = system::metrics(&api.server, &caller).await?;
    let mut registry = Registry::with_prefix("fardel");
    let sessions = Family::<OfState, Gauge>::default();
    for (phase, count) in &figures.sessions {
        let state = phase.word().to_owned();
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        sessions.get_or_create(&OfState { state }).set(count);
    }
    registry.register("sessions", "Live sessions by state", sessions);
    let mut family = |name: &str, help: &str, give: &dyn Fn(&system::MachineMetrics) -> f64| {
        let measures = Family::<OfMachine, FloatGauge>::default();
        for machine in &figures.machines {
            let label = OfMachine {
                machine: machine.name.clone(),
            };
            measures.get_or_create(&label).set(give(machine));
        }
        registry.register(name, help, measures);
    };
    family("machine_cores", "Cores for sessions", &|m| m.cpu.as_f64());
    family("machine_cores_used", "Cores given to sessions", &|m| {
        m.cpu_used.as_f64()
    });
    family("machine_memory_bytes", "Memory for sessions", &|m| {
        m.memory.0 as f64
    });
    family(
        "machine_memory_used_bytes",
        "Memory given to sessions",
        &|m| m.memory_used.0 as f64,
    );
    family("machine_answers", "1 while the machine answers", &|m| {
        f64::from(u8::from(!m.silent))
    });
    let mut devices = |name: &str, help: &str, give: &dyn Fn(&system::GpuMetrics) -> f64| {
        let measures = Family::<OfGpu, FloatGauge>::default();
        for machine in &figures.machines {
            for gpu in &machine.gpus {
                let label = OfGpu {
                    gpu: gpu.uuid.clone(),
                    machine: machine.name.clone(),
                    model: gpu.model.clone(),
                    simulated: gpu.simulated.to_string(),
                };
                measures.get_or_create(&label).set(give(gpu));
            }
        }
        registry.register(name, help, measures);
    };
    devices(
        "gpu_share_used",
        "Share of the device given to sessions",
        &|g| g.share_used.as_f64(),
    );
    devices("gpu_memory_bytes", "Memory of the device", &|g| {
        g.memory.0 as f64
    });
    devices(
        "gpu_memory_used_bytes",
        "Memory of the device given to sessions",
        &|g| g.memory_used.0 as f64,
    );
    devices("gpu_cordoned", "1 while the device is cordoned", &|g| {
        f64::from(u8::from(g.cordoned))
    });
    let mut told = |name: &str, help: &str, give: &dyn Fn(&DeviceUse) -> Option<f64>| {
        let measures = Family::<OfGpu, FloatGauge>::default();
        for machine in &figures.machines {
            for gpu in &machine.gpus {
                let Some(figure) = gpu.doing.as_ref().and_then(give) else {
                    continue;
                };
                let label = OfGpu {
                    gpu: gpu.uuid.clone(),
                    machine: machine.name.clone(),
                    model: gpu.model.clone(),
                    simulated: gpu.simulated.to_string(),
                };
                measures.get_or_create(&label).set(figure);
            }
        }
        registry.register(name, help, measures);
    };
    told(
        "gpu_busy",
        "Part of the time in which the device was busy; absent where unknown",
        &|doing| Some(f64::from(doing.busy_percent?) / 100.0),
    );
    told(
        "gpu_memory_in_use_bytes",
        "Memory of the device in use, by all processes; absent where unknown",
        &|doing| Some(doing.memory?.0 as f64),
    );
    let mut slices = |name: &str, help: &str, give: &dyn Fn(&SliceMetrics) -> Option<f64>| {
        let measures = Family::<OfSlice, FloatGauge>::default();
        for machine in &figures.machines {
            for (gpu, slice) in machine.gpus.iter().flat_map(|gpu| {
                let slices = gpu.slices.iter();
                slices.map(move |slice| (gpu, slice))
            }) {
                let Some(figure) = give(slice) else { continue };
                let label = OfSlice {
                    session: slice.session.to_string(),
                    gpu: gpu.uuid.clone(),
                    machine: machine.name.clone(),
                    simulated: gpu.simulated.to_string(),
                };
                measures.get_or_create(&label).set(figure);
            }
        }
        registry.register(name, help, measures);
    };
    slices(
        "session_gpu_share",
        "Share of the device that the session has",
        &|s| Some(s.share.as_f64()),
    );
    slices(
        "session_gpu_memory_bytes",
        "Memory of the device that the session may hold",
        &|s| Some(s.memory.0 as f64),
    );
    slices(
        "session_gpu_memory_in_use_bytes",
        "Memory of the device that the session holds; absent where unknown",
        &|s| Some(s.memory_in_use?.0 as f64),
    );
    slices(
        "session_gpu_load",
        "How much of its share the session uses, 1 for all of it; absent where unknown",
        &|s| s.load,
    );
    slices(
        "session_gpu_idle_seconds",
        "How long the device has had nothing to do for the session, 0 while it works",
        &|s| Some(s.idle_seconds? as f64),
    );
    let mut targets = |name: &str, help: &str, give: &dyn Fn(&AuditTargetMetrics) -> u64| {
        let measures = Family::<OfTarget, Gauge>::default();
        for figure in &figures.audit_targets {
            let target = figure.target.clone();
            let value = i64::try_from(give(figure)).unwrap_or(i64::MAX);
            measures.get_or_create(&OfTarget { target }).set(value);
        }
        registry.register(name, help, measures);
    };
    targets(
        "audit_target_takes",
        "1 while the place takes rows of the audit log",
        &|place| u64::from(place.takes),
    );
    targets(
        "audit_target_rows_waiting",
        "Rows of the audit log that the place does not have yet",
        &|place| place.waiting,
    );
    targets(
        "audit_target_rows_lost",
        "Rows of the audit log that were removed before the place had them",
        &|place| place.lost,
    );
    let mut folders = |name: &str, help: &str, give: &dyn Fn(&OwnerMetrics) -> u64| {
        let measures = Family::<OfOwner, Gauge>::default();
        for figure in &figures.folders {
            let owner = figure.owner.clone();
            let value = i64::try_from(give(figure)).unwrap_or(i64::MAX);
            measures.get_or_create(&OfOwner { owner }).set(value);
        }
        registry.register(name, help, measures);
    };
    folders(
        "folder_used_bytes",
        "What all folders of the user or the project take together",
        &|figure| figure.used.0,
    );
    folders(
        "folder_limit_bytes",
        "What they may take together",
        &|figure| figure.limit.0,
    );
    let biggest = Family::<OfFolder, Gauge>::default();
    for (folder, bytes) in &figures.biggest_folders {
        let folder = folder.to_string();
        let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
        biggest.get_or_create(&OfFolder { folder }).set(bytes);
    }
    registry.register(
        "folder_bytes",
        "What the biggest folders took when they were counted last",
        biggest,
    );
    let levels = Family::<OfLevel, Gauge>::default();
    for (level, count) in &figures.folder_levels {
        let level = level.word().to_owned();
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        levels.get_or_create(&OfLevel { level }).set(count);
    }
    registry.register(
        "folder_owners",
        "Users and projects with folders by how near their limit is",
        levels,
    );
    let mut volumes = |name: &str, help: &str, give: &dyn Fn(&VolumeMetrics) -> Option<u64>| {
        let measures = Family::<OfVolume, Gauge>::default();
        for figure in &figures.volumes {
            let Some(value) = give(figure) else { continue };
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            let volume = figure.name.clone();
            measures.get_or_create(&OfVolume { volume }).set(value);
        }
        registry.register(name, help, measures);
    };
    volumes(
        "volume_ready",
        "1 while folders on the volume can be used",
        &|volume| Some(u64::from(volume.is_ready)),
    );
    volumes(
        "volume_used_bytes",
        "Used of the volume; absent where unknown",
        &|volume| volume.used,
    );
    volumes(
        "volume_free_bytes",
        "What users may still write on the volume; absent where unknown",
        &|volume| volume.free,
    );
    volumes(
        "volume_bytes",
        "Size of the volume; absent where unknown",
        &|volume| volume.total,
    );
    let single = |value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge
    };
    registry.register(
        "images",
        "Images that were imported",
        single(figures.images),
    );
    registry.register(
        "operations_open",
        "Long work that is not over",
        single(figures.operations_open),
    );
    if let Some(free) = figures.disk_free {
        registry.register(
            "disk_free_bytes",
            "Free on the disk of the state",
            single(free.0),
        );
    }
    registry.register(
        "commits",
        "Commits since the box was founded",
        ConstCounter::new(figures.revision),
    );
    registry.register(
        "events",
        "Events written since the box was founded",
        ConstCounter::new(figures.events),
    );
    let mut text = String::new();
    if encode(&mut text, &registry).is_err() {
        return Err(ProblemResponse::from(refusals::server_metrics_unwritable()));
    }
    let kind = [(
        header::CONTENT_TYPE,
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    )];
    Ok((kind, text).into_response())
}
