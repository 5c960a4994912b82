//! The part of a device's page that cuts it into hardware partitions: how many of each profile, and beside
//! them what that comes to and whom it ends. Decides nothing: the answer is the server's own.

use api::gpus::{Gpu, Partition, PartitionRequest, PlannedPartitions, Repartitioned};
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::devices::MigProfile;
use rules::partitioning;
use rules::refusal::Refusal;
use rules::refusals;
use server::Failure;
use server::access::Caller;
use server::actions::gpus;

use super::super::PagesContext;
use super::super::authentication::PageCaller;
use super::super::components::{self, Alert, BarRow, Block, BlockKind};
use super::super::request_context::RequestContext;
use super::super::responses;
use crate::doors::text::{Text, codes};

/// The form, and the answer beside it.
pub struct PartitionForm {
    pub profiles: Vec<Profile>,
    pub answer: PartitionPreview,
}

/// How many partitions of one size.
pub struct Profile {
    pub name: String,
    pub note: String,
    pub number: usize,
}

/// What a cut comes to.
#[derive(Default)]
pub struct PartitionPreview {
    /// Class of the verdict: empty (nothing has to end), `wait`, `never`, `idle`.
    pub tone: &'static str,
    pub icon: &'static str,
    pub verdict: String,
    pub detail: String,
    /// The device as it would be; none where it does not fit.
    pub row: Option<BarRow>,
    /// Sessions that would end.
    pub ends: Vec<String>,
    /// There is nothing to do.
    pub blocked: bool,
}

/// A cut that is not made yet.
pub struct Planned {
    pub words: String,
    /// What became of it so far.
    pub lead: String,
    /// What is typed on the machine instead, one line each; empty while nothing went wrong.
    pub commands: Vec<String>,
    /// What takes the plan back: the partitions that there are, by name and number.
    pub back: Vec<(String, usize)>,
}

/// The largest number of one profile that any device takes.
const MAX_PARTITION_FIELDS: usize = partitioning::MAX_PARTS;

/// `POST /gpus/{id}/partitions/preview`: what the typed numbers come to.
pub async fn preview(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<Vec<(String, String)>>,
) -> Response {
    match super::one(&console, &visit, &caller, &id, None, Some(&sent)).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page.as_partitions()),
        Err(failure) => super::failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /gpus/{id}/partitions`: cuts it; or, without script, shows what that would come to.
pub async fn act(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<Vec<(String, String)>>,
) -> Response {
    let check = sent
        .iter()
        .any(|(name, value)| name == "act" && value == "check");
    let done = match (understand(&sent), check) {
        (Ok(profiles), false) => {
            let request = PartitionRequest {
                profiles,
                ..PartitionRequest::default()
            };
            gpus::partition(&console.server, &caller, &id, request).await
        }
        (Ok(_), true) => {
            return match super::one(&console, &visit, &caller, &id, None, Some(&sent)).await {
                Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
                Err(failure) => super::failed(&console, &visit, &caller, &failure),
            };
        }
        (Err(refusal), _) => Err(refusal.into()),
    };
    match done {
        Ok(done) => {
            let word = match done.gpu.planned {
                Some(_) => "gpu-partitions-planned",
                None => "gpu-partitions",
            };
            let place = format!("/gpus/{}", done.gpu.id);
            responses::see_with(&place, word, &done.gpu.index.to_string())
        }
        Err(Failure::Refusal(refusal)) => {
            let status = responses::status(&refusal);
            let alert = Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
            match super::one(&console, &visit, &caller, &id, Some(alert), Some(&sent)).await {
                Ok(page) => responses::page(&console, &visit, status, &page),
                Err(_) => super::failed(&console, &visit, &caller, &refusal.into()),
            }
        }
        Err(fault) => super::failed(&console, &visit, &caller, &fault),
    }
}

/// The numbers of the form as a list of profiles; other fields are none.
fn understand(sent: &[(String, String)]) -> Result<Vec<MigProfile>, Refusal> {
    let mut all = Vec::new();
    for (name, value) in sent {
        let Ok(profile) = MigProfile::parse(name) else {
            continue;
        };
        let number = match value.trim() {
            "" => Some(0),
            typed => typed
                .parse::<usize>()
                .ok()
                .filter(|number| *number <= MAX_PARTITION_FIELDS),
        };
        let number = number.ok_or_else(|| {
            refusals::gpu_partitions_number(MAX_PARTITION_FIELDS, profile).at(format!("/{name}"))
        })?;
        all.extend(std::iter::repeat_n(profile, number));
    }
    Ok(all)
}

/// The form for one device; none where it cannot be cut.
pub(super) async fn form(
    console: &PagesContext,
    t: Text,
    caller: &Caller,
    gpu: &Gpu,
    sent: Option<&[(String, String)]>,
) -> Result<Option<PartitionForm>, Failure> {
    if gpu.profiles.is_empty() {
        return Ok(None);
    }
    let now: Vec<MigProfile> = gpu.partitions.iter().map(|part| part.profile).collect();
    let wanted = match (sent, &gpu.planned) {
        (Some(sent), _) => understand(sent),
        (None, Some(planned)) => Ok(planned.profiles.clone()),
        (None, None) => Ok(now.clone()),
    };
    let number = |profile: &MigProfile| match &wanted {
        Ok(wanted) => wanted.iter().filter(|other| *other == profile).count(),
        Err(_) => 0,
    };
    let profiles = gpu.profiles.iter().map(|profile| Profile {
        name: profile.to_string(),
        note: t.gpu_partitions_size(profile.gigabytes, profile.compute),
        number: number(profile),
    });
    let profiles = profiles.collect();
    let answer = match wanted {
        Ok(wanted) if partitioning::same(&wanted, &now) && gpu.planned.is_none() => {
            PartitionPreview {
                tone: "idle",
                icon: "info",
                verdict: match now.is_empty() {
                    true => t.gpu_partitions_whole_now().to_owned(),
                    false => t.gpu_partitions_so_now().to_owned(),
                },
                detail: t.gpu_partitions_change().to_owned(),
                blocked: true,
                ..PartitionPreview::default()
            }
        }
        Ok(profiles) => {
            let request = PartitionRequest {
                profiles,
                dry_run: true,
                ..PartitionRequest::default()
            };
            match gpus::partition(&console.server, caller, &gpu.id, request).await {
                Ok(partitioned) => told(t, gpu, partitioned),
                Err(Failure::Refusal(refusal)) => refused(t, &refusal),
                Err(fault) => return Err(fault),
            }
        }
        Err(refusal) => refused(t, &refusal),
    };
    Ok(Some(PartitionForm { profiles, answer }))
}

fn refused(t: Text, refusal: &Refusal) -> PartitionPreview {
    PartitionPreview {
        tone: "never",
        icon: "circle-x",
        verdict: t.gpu_partitions_never().to_owned(),
        detail: codes::refusal(t, refusal),
        blocked: true,
        ..PartitionPreview::default()
    }
}

fn told(t: Text, gpu: &Gpu, partitioned: Repartitioned) -> PartitionPreview {
    let (tone, icon, verdict) = match partitioned.ends.len() {
        0 => ("", "circle-check", t.gpu_partitions_free().to_owned()),
        n => ("wait", "hourglass", t.gpu_partitions_ends(n)),
    };
    PartitionPreview {
        tone,
        icon,
        verdict,
        detail: match (gpu.simulated, partitioned.ends.is_empty()) {
            (true, true) => t.gpu_partitions_at_once().to_owned(),
            (true, false) => t.gpu_partitions_when_empty().to_owned(),
            (false, _) => t.gpu_partitions_by_machine(&gpu.node_name),
        },
        row: Some(BarRow {
            name: format!("GPU {}", gpu.index),
            blocks: blocks(t, gpu, &partitioned),
            ..BarRow::default()
        }),
        ends: partitioned.ends,
        blocked: false,
    }
}

/// The partitions in their places, and what is left between and behind them.
fn blocks(t: Text, gpu: &Gpu, partitioned: &Repartitioned) -> Vec<Block> {
    let free = |name, weight: u8| Block::plain(BlockKind::Free, name, u64::from(weight));
    if partitioned.partitions.is_empty() {
        return vec![free(t.gpu_partitions_whole().to_owned(), 1)];
    }
    let mut all = Vec::new();
    let mut at = 0;
    for part in &partitioned.partitions {
        if part.start > at {
            all.push(free(t.gpu_partitions_rest().to_owned(), part.start - at));
        }
        at = part.start + part.slices;
        all.push(Block {
            kind: BlockKind::Session,
            name: part.profile.to_string(),
            note: format!(
                "{} · {}",
                components::size(part.memory.0),
                t.gpu_sms_of(part.sms, gpu.sms)
            ),
            // One colour a size, so that equal ones are seen as equal.
            hue: part.profile.compute.clamp(1, 7),
            partition: Some(part.profile.to_string()),
            ..free(String::new(), part.slices)
        });
    }
    if at < partitioning::MEMORY_SLICES {
        all.push(free(
            t.gpu_partitions_rest().to_owned(),
            partitioning::MEMORY_SLICES - at,
        ));
    }
    all
}

/// What the page says of a cut that is not made yet.
pub(super) fn planned(t: Text, gpu: &Gpu) -> Option<Planned> {
    let PlannedPartitions {
        profiles,
        trouble,
        commands,
        ..
    } = gpu.planned.as_ref()?;
    let words = match profiles[..] {
        [] => t.gpu_partitions_planned_whole().to_owned(),
        _ => t.gpu_partitions_planned(partitioning::counted(profiles).join(", ")),
    };
    let mut back: Vec<(String, usize)> = Vec::new();
    for Partition { profile, .. } in &gpu.partitions {
        match back
            .iter_mut()
            .find(|(name, _)| *name == profile.to_string())
        {
            Some((_, number)) => *number += 1,
            None => back.push((profile.to_string(), 1)),
        }
    }
    let (lead, commands) = match (trouble, gpu.simulated) {
        (Some(trouble), _) => {
            let why = codes::reason(t, trouble);
            let lead = format!("{why} {}", t.gpu_partitions_by_hand(&gpu.node_name));
            (lead, commands.clone())
        }
        (None, true) => (t.gpu_partitions_planned_lead().to_owned(), Vec::new()),
        (None, false) => (t.gpu_partitions_by_machine(&gpu.node_name), Vec::new()),
    };
    Some(Planned {
        words,
        lead,
        commands,
        back,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_profiles_and_everything_else_is_refused_or_none() {
        let sent = |value: &str| {
            [
                ("1g.10gb", value),
                ("3g.40gb", "1"),
                ("note", "x"),
                ("act", "partition"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let words = |value| understand(&sent(value)).map(|all| partitioning::listed(&all));
        assert_eq!(words("2").as_deref(), Ok("2 × 1g.10gb and 3g.40gb"));
        assert_eq!(words(" ").as_deref(), Ok("3g.40gb"));
        for wrong in ["-1", "8", "1.5", "NaN", "many"] {
            assert_eq!(words(wrong).expect_err(wrong).code, "gpu.partitions-number");
        }
    }
}
