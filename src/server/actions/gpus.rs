//! What a user may know of devices and do with them: the list with everybody's slices, one device, and
//! for administrators the cordon, the drain and the cut into hardware partitions. Other users' slices carry no names for users who may not
//! see everybody's work. Never hands a share out; the scheduler does.

use std::collections::BTreeMap;

use api::gpus::{
    CordonRequest, DrainRequest, Drained, Gpu, GpuSlice, Gpus, Others, Partition, PartitionRequest,
    PlacedPartition, PlannedPartitions, Repartitioned,
};
use api::sessions::Owner;
use rules::devices::{CONTEXT_OVERHEAD, Health, MigProfile};
use rules::names::{ContainerName, SessionId, UserId, UserName};
use rules::partitioning;
use rules::permissions::{Permission, reach};
use rules::policy::SharePolicy;
use rules::reason::Reason;
use rules::reasons;
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::{Device, DeviceShare};
use rules::self_test::SelfTestStatus;
use rules::session::{DesiredState, Session, SessionKind, plain, text};
use rules::units::{Bytes, GpuShare, Timestamp};
use rules::world::{ClusterSnapshot, NodeRecord};

use super::allowed;
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::nodes::{DesiredPartitions, DeviceRow, profiles_of};
use crate::catalog::samples::Rate;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::snapshot::{DeviceFacts, Snapshot, names_of_owners};
use crate::{Failure, Server};

pub mod prove;

/// What sessions do with their shares, as it was heard last.
type SliceRates = BTreeMap<ContainerName, Rate>;

const MAX_NOTE_LENGTH: usize = 256;

/// Every device, machine by machine in the order of their indexes.
pub async fn list(server: &Server, caller: &Caller) -> Result<Gpus, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let snapshot = server.snapshot().await?;
    Ok(of(server, &snapshot, caller, server.clock().now()))
}

/// Every device in a snapshot.
pub(super) fn of(server: &Server, snapshot: &Snapshot, caller: &Caller, now: Timestamp) -> Gpus {
    let rates = server.catalog().samples().rates();
    let world = &snapshot.world;
    let known = (&snapshot.devices, &snapshot.names);
    let items = shown(known, world, caller, now, &rates);
    Gpus {
        simulated: items.iter().any(|gpu| gpu.simulated),
        items,
        others: others(world),
        policy: world.policy,
        context_overhead: CONTEXT_OVERHEAD,
    }
}

fn others(world: &ClusterSnapshot) -> Vec<Others> {
    let of = |node: &NodeRecord| {
        let (id, name) = (node.id, node.name.clone());
        let others = node.capacity.others.clone().into_iter();
        others.map(move |other| Others {
            node: id,
            node_name: name.clone(),
            family: other.family,
            number: other.number,
        })
    };
    world.nodes.iter().flat_map(of).collect()
}

/// The administrator's rules for shares. Reads no row.
pub async fn policy(server: &Server, caller: &Caller) -> Result<SharePolicy, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    Ok(server.catalog().policy())
}

/// One device, by its own name, a prefix of it that only one has, or its index where one machine has it.
///
/// Errors: `gpu.not-found`, `gpu.ambiguous`.
pub async fn get(server: &Server, caller: &Caller, id: &str) -> Result<Gpu, Failure> {
    let all = list(server, caller).await?;
    Ok(find(all.items, id)?)
}

/// Lets a device take nothing new; what runs on it goes on. Saying it again changes the note.
pub async fn cordon(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: CordonRequest,
) -> Result<Gpu, Failure> {
    set_cordon(server, caller, id, true, request.note).await
}

/// Lets a device take new slices again.
pub async fn uncordon(server: &Server, caller: &Caller, id: &str) -> Result<Gpu, Failure> {
    set_cordon(server, caller, id, false, None).await
}

async fn set_cordon(
    server: &Server,
    caller: &Caller,
    id: &str,
    cordoned: bool,
    note: Option<String>,
) -> Result<Gpu, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let note = checked(note)?.unwrap_or_default();
    let (caller, id) = (caller.clone(), id.to_owned());
    let rates = server.catalog().samples().rates();
    server
        .catalog()
        .write(Lane::Requests, "cordon a device", move |rows| {
            let gpu = find(all(rows, &rows.world()?, &caller, rows.now, &rates)?, &id)?;
            if gpu.cordoned != cordoned || gpu.note != note {
                mark(rows, &caller, &gpu, cordoned, note)?;
            }
            Ok(find(
                all(rows, &rows.world()?, &caller, rows.now, &rates)?,
                &gpu.id,
            )?)
        })
        .await
}

/// Cordons a device and ends every session that has a part of it; batch sessions wait for another one and
/// start again. With `dry_run` it only says which.
pub async fn drain(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: DrainRequest,
) -> Result<Drained, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let note = checked(request.note)?;
    let (caller, id, dry_run) = (caller.clone(), id.to_owned(), request.dry_run);
    let rates = server.catalog().samples().rates();
    server
        .catalog()
        .write(Lane::Requests, "drain a device", move |rows| {
            let world = rows.world()?;
            let gpu = find(all(rows, &world, &caller, rows.now, &rates)?, &id)?;
            let (mut ends, mut requeued) = (Vec::new(), Vec::new());
            let note = note.unwrap_or_else(|| gpu.note.clone());
            // What the owners are told: also what was said when the device was cordoned.
            let because = match note.as_str() {
                "" => reasons::session_device_drained(&caller.name, gpu.index),
                note => reasons::session_device_drained_because(&caller.name, gpu.index, note),
            };
            if !dry_run && (!gpu.cordoned || gpu.note != note) {
                mark(rows, &caller, &gpu, true, note)?;
            }
            for session in on(&world, &gpu) {
                let again = session.spec.kind == SessionKind::Batch
                    && session.desired == DesiredState::Run
                    && rows.may_begin_again(session)?;
                ends.push(session.name.to_string());
                if again {
                    requeued.push(session.name.to_string());
                }
                if dry_run {
                    continue;
                }
                end(rows, &caller, session.id, &because, again)?;
            }
            let gpu = find(
                all(rows, &rows.world()?, &caller, rows.now, &rates)?,
                &gpu.id,
            )?;
            Ok(Drained {
                gpu,
                ends,
                requeued,
                dry_run,
            })
        })
        .await
}

/// Cuts a device into hardware partitions, or makes it whole again, and ends every session that has a part
/// of it: a device is cut only when nothing runs on it. As soon as that is so a simulated device is cut, and
/// a real one is by its machine, then and after every restart; it takes nothing new until its machine reports
/// it cut so. With `dry_run` it only says what that would come to.
///
/// Errors: `gpu.cannot-partition`, `gpu.no-such-profile`, `gpu.partitions-too-large`, `gpu.partitions-already`.
pub async fn partition(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: PartitionRequest,
) -> Result<Repartitioned, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let note = checked(request.note)?;
    let (caller, id, dry_run) = (caller.clone(), id.to_owned(), request.dry_run);
    let rates = server.catalog().samples().rates();
    let wanted = request.profiles;
    server
        .catalog()
        .write(Lane::Requests, "partition a device", move |rows| {
            let world = rows.world()?;
            let gpu = find(all(rows, &world, &caller, rows.now, &rates)?, &id)?;
            let device = world
                .node(gpu.node)
                .and_then(|node| node.capacity.devices.iter().find(|d| d.uuid == gpu.id))
                .ok_or_else(|| {
                    crate::ServerFault::new("partition a device", "it left between two reads")
                })?;
            let plan = partitioning::plan(device, &wanted, on(&world, &gpu))?;
            let as_it_is = partitioning::same(&profiles_of(device), &wanted);
            if as_it_is && gpu.planned.is_none() {
                return Err(match wanted[..] {
                    [] => refusals::gpu_whole_already(gpu.index),
                    _ => refusals::gpu_partitions_already(
                        gpu.index,
                        partitioning::listed(&wanted),
                        partitioning::counted(&wanted).join(", "),
                    ),
                }
                .into());
            }
            // A plan that is taken back ends no session.
            let ends = if as_it_is { Vec::new() } else { plan.ends };
            let because = match note.as_deref().unwrap_or_default() {
                "" => reasons::session_device_partitioned(&caller.name, gpu.index),
                note => reasons::session_device_partitioned_because(&caller.name, note, gpu.index),
            };
            let mut told = (Vec::new(), Vec::new());
            for session in world.sessions.iter().filter(|s| ends.contains(&s.id)) {
                let again = plan.requeued.contains(&session.id) && rows.may_begin_again(session)?;
                told.0.push(session.name.to_string());
                if again {
                    told.1.push(session.name.to_string());
                }
                if !dry_run {
                    end(rows, &caller, session.id, &because, again)?;
                }
            }
            if !dry_run {
                plan_partitions(rows, &caller, &gpu, device, &wanted, note)?;
            }
            let gpu = find(
                all(rows, &rows.world()?, &caller, rows.now, &rates)?,
                &gpu.id,
            )?;
            Ok(Repartitioned {
                gpu,
                partitions: plan
                    .parts
                    .into_iter()
                    .zip(plan.places)
                    .map(|(part, (start, slices))| PlacedPartition {
                        profile: part.profile,
                        memory: part.memory,
                        sms: part.sms,
                        start,
                        slices,
                    })
                    .collect(),
                ends: told.0,
                requeued: told.1,
                dry_run,
            })
        })
        .await
}

fn by_hand(device: &Device, wanted: &[MigProfile]) -> Vec<String> {
    match device.simulated {
        true => Vec::new(),
        false => partitioning::commands(device, wanted),
    }
}

fn plan_partitions(
    rows: &Rows<'_>,
    caller: &Caller,
    gpu: &Gpu,
    device: &Device,
    wanted: &[MigProfile],
    note: Option<String>,
) -> Result<(), Failure> {
    let before = profiles_of(device);
    rows.put_device(&DeviceRow {
        uuid: gpu.id.clone(),
        cordoned: gpu.cordoned,
        note: note.unwrap_or_else(|| gpu.note.clone()),
        changed_at: rows.now,
        changed_by: caller.name.to_string(),
        partitions: Some(DesiredPartitions {
            profiles: wanted.to_vec(),
            before: before.clone(),
            at: rows.now,
        }),
    })?;
    let words = |profiles: &[MigProfile]| match profiles {
        [] => "whole".to_owned(),
        partitioned => partitioning::listed(partitioned),
    };
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "gpus",
        object: &gpu.id,
        scope: rules::tenancy::Scope::SITE,
        code: "gpu.partitioned",
        before: &words(&before),
        after: &words(wanted),
    })
}

/// Ends one session because of its device; `again` starts it again elsewhere.
fn end(
    rows: &Rows<'_>,
    caller: &Caller,
    session: SessionId,
    because: &Reason,
    again: bool,
) -> Result<(), Failure> {
    rows.change_session(
        session,
        None,
        caller.name.as_str(),
        Some(&because.code),
        |row| {
            let stopped = row.stop(DesiredState::Stop, because.clone(), rows.now);
            row.restart = row.restart || (again && stopped);
            stopped
        },
    )?;
    Ok(())
}

fn checked(note: Option<String>) -> Result<Option<String>, Refusal> {
    let note = note.map(|note| note.trim().to_owned());
    if let Some(note) = &note {
        text(
            rules::session::TextField::Note,
            "/note",
            note,
            MAX_NOTE_LENGTH,
        )?;
        plain(rules::session::TextField::Note, "/note", note)?;
    }
    Ok(note)
}

fn mark(
    rows: &Rows<'_>,
    caller: &Caller,
    gpu: &Gpu,
    cordoned: bool,
    note: String,
) -> Result<(), Failure> {
    let word = |cordoned: bool| if cordoned { "cordoned" } else { "open" };
    let after = match (word(cordoned), note.as_str()) {
        (word, "") => word.to_owned(),
        (word, note) => format!("{word}: {note}"),
    };
    rows.put_device(&DeviceRow {
        uuid: gpu.id.clone(),
        cordoned,
        note,
        changed_at: rows.now,
        changed_by: caller.name.to_string(),
        partitions: rows
            .devices()?
            .into_iter()
            .find(|said| said.uuid == gpu.id)
            .and_then(|said| said.partitions),
    })?;
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "gpus",
        object: &gpu.id,
        scope: rules::tenancy::Scope::SITE,
        code: if cordoned {
            "gpu.cordoned"
        } else {
            "gpu.uncordoned"
        },
        before: word(gpu.cordoned),
        after: &after,
    })
}

fn find(mut all: Vec<Gpu>, id: &str) -> Result<Gpu, Refusal> {
    let id = id.trim();
    let by_index = |gpu: &Gpu| id.parse() == Ok(gpu.index);
    let named = |gpu: &Gpu| format!("{}/{}", gpu.node_name, gpu.index) == id;
    let exact: Vec<usize> = (0..all.len())
        .filter(|at| all[*at].id == id || named(&all[*at]) || by_index(&all[*at]))
        .collect();
    let found = if exact.is_empty() && !id.is_empty() {
        (0..all.len())
            .filter(|at| all[*at].id.starts_with(id))
            .collect()
    } else {
        exact
    };
    let shown: String = id.chars().take(80).flat_map(char::escape_debug).collect();
    match found[..] {
        [at] => Ok(all.swap_remove(at)),
        [] => Err(match all.first() {
            Some(gpu) => refusals::gpu_not_found(&shown, &gpu.id, gpu.index),
            None => refusals::gpu_not_found_anywhere(&shown),
        }),
        _ => Err(refusals::gpu_ambiguous(
            found.len(),
            &shown,
            &all[found[0]].id,
        )),
    }
}

fn all(
    view: &ReadTransaction<'_>,
    world: &ClusterSnapshot,
    caller: &Caller,
    now: Timestamp,
    rates: &SliceRates,
) -> Result<Vec<Gpu>, Failure> {
    let facts = DeviceFacts::read(view, world)?;
    let names = names_of_owners(view, world)?;
    Ok(shown((&facts, &names), world, caller, now, rates))
}

/// Sessions that have a part of a device.
fn on<'w>(world: &'w ClusterSnapshot, gpu: &Gpu) -> impl Iterator<Item = &'w Session> {
    let (node, index) = (gpu.node, gpu.index);
    world.sessions.iter().filter(move |session| {
        let held = session.held_on(node);
        held.iter().any(|part| part.index == index)
    })
}

/// Every device as `caller` may see it. Costs devices × sessions comparisons.
fn shown(
    (facts, names): (&DeviceFacts, &BTreeMap<UserId, UserName>),
    world: &ClusterSnapshot,
    caller: &Caller,
    now: Timestamp,
    rates: &SliceRates,
) -> Vec<Gpu> {
    let reach = reach(&caller.subject, Permission::SessionsRead);
    let mut gpus = Vec::new();
    for node in &world.nodes {
        let uses = facts.uses.get(&node.id).map_or(&[][..], Vec::as_slice);
        let partition_failures = facts
            .partition_failures
            .get(&node.id)
            .map_or(&[][..], Vec::as_slice);
        for device in &node.capacity.devices {
            let mark = facts.marks.iter().find(|mark| mark.uuid == device.uuid);
            let mut gpu = bare(node, device, mark, now);
            gpu.doing = uses
                .iter()
                .find(|doing| doing.device == device.index)
                .filter(|_| gpu.answers)
                .copied();
            if let Some(planned) = &mut gpu.planned {
                let mut failures = partition_failures.iter();
                planned.trouble = failures
                    .find(|failure| failure.device == device.uuid)
                    .map(|failure| failure.reason.clone());
            }
            if !device.simulated {
                let report = facts.self_tests.get(&device.uuid).copied();
                gpu.self_tested_at = report.map(|(_, at)| at);
                gpu.self_test = match report {
                    None => SelfTestStatus::Untested,
                    Some((true, _)) => SelfTestStatus::Passed,
                    Some((false, _)) => SelfTestStatus::Failed,
                };
            }
            let live = world.sessions.holding();
            let here = live.flat_map(|s| s.live_on(node.id).map(move |container| (s, container)));
            for (session, container) in here {
                let held = container.holds();
                for part in held.iter().filter(|d| d.index == device.index) {
                    let mine = session.owner == caller.subject.user;
                    let shown = mine || reach.covers(&session.scope());
                    let name = names.get(&session.owner).filter(|_| shown);
                    let owner = name.map(|name| Owner {
                        id: session.owner,
                        name: name.clone(),
                    });
                    hold(&mut gpu, device, part);
                    let doing = rates
                        .get(&session.container_name(container.index))
                        .and_then(|rate| {
                            let mut devices = rate.devices.iter();
                            devices.find(|d| (d.device, d.part) == (part.index, part.part))
                        })
                        .filter(|_| gpu.answers);
                    gpu.slices.push(GpuSlice {
                        session: shown.then_some(session.id),
                        name: shown.then(|| session.name.to_string()),
                        owner,
                        mine,
                        state: session.state(),
                        paused: session.paused,
                        share: part.share,
                        memory: part.memory,
                        sms: part
                            .part
                            .and_then(|number| device.mig.get(number as usize))
                            .map_or_else(
                                || device.sms_of(part.share),
                                |partitioned| partitioned.sms,
                            ),
                        profile: part
                            .part
                            .and_then(|number| device.mig.get(number as usize))
                            .map(|partitioned| partitioned.profile),
                        confirmed: container.pending_devices.is_empty(),
                        load_percent: doing.and_then(|doing| doing.load).map(tenths),
                        memory_in_use: doing.and_then(|doing| doing.memory),
                        idle_since: doing.and_then(|doing| doing.idle_since),
                    });
                }
            }
            let closed = node.cordoned.contains(&device.uuid)
                || matches!(gpu.health, Health::Failing { .. });
            if !closed && !device.is_partitioned() {
                gpu.share_free = rules::devices::WHOLE.saturating_sub(gpu.share_used);
                gpu.memory_free = device.memory_left(gpu.memory_used);
            }
            gpus.push(gpu);
        }
    }
    gpus
}

/// One decimal: what is measured is no more exact.
fn tenths(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}

fn hold(gpu: &mut Gpu, device: &Device, part: &DeviceShare) {
    gpu.memory_used = gpu.memory_used + part.memory;
    gpu.share_used = gpu.share_used + part.share;
    let taken = part.part.and_then(|number| device.mig.get(number as usize));
    if let Some(taken) = taken
        && let Some(partitioned) = gpu
            .partitions
            .iter_mut()
            .find(|partitioned| partitioned.id == taken.uuid)
    {
        partitioned.taken = true;
    }
}

fn bare(node: &NodeRecord, device: &Device, mark: Option<&DeviceRow>, now: Timestamp) -> Gpu {
    Gpu {
        id: device.uuid.clone(),
        index: device.index,
        node: node.id,
        node_name: node.name.clone(),
        model: device.model.clone(),
        memory: device.memory,
        sms: device.sms,
        numa: device.numa,
        link: device.link,
        health: device.health.clone(),
        driver: device.driver.clone(),
        hold: device.hold,
        self_test: SelfTestStatus::None,
        self_tested_at: None,
        answers: !node.is_silent(now),
        simulated: device.simulated,
        cordoned: mark.is_some_and(|mark| mark.cordoned),
        note: mark.map(|mark| mark.note.clone()).unwrap_or_default(),
        changed_at: mark.map(|mark| mark.changed_at),
        changed_by: mark.map(|mark| mark.changed_by.clone()),
        share_used: GpuShare::ZERO,
        memory_used: Bytes::ZERO,
        share_free: GpuShare::ZERO,
        memory_free: Bytes::ZERO,
        least: device.least_share(),
        doing: None,
        partitions: device
            .mig
            .iter()
            .map(|partitioned| Partition {
                id: partitioned.uuid.clone(),
                profile: partitioned.profile,
                memory: partitioned.memory,
                sms: partitioned.sms,
                taken: false,
            })
            .collect(),
        profiles: partitioning::profiles(device),
        planned: mark
            .and_then(|mark| mark.partitions.as_ref())
            .filter(|wanted| !partitioning::same(&wanted.profiles, &profiles_of(device)))
            .map(|wanted| PlannedPartitions {
                profiles: wanted.profiles.clone(),
                since: wanted.at,
                trouble: None,
                commands: by_hand(device, &wanted.profiles),
            }),
        slices: Vec::new(),
    }
}
