//! What was given and used over time. Totals of the site and of devices are for every user; another user's
//! history is for those who may see the sessions of all.

use std::collections::BTreeMap;

use api::history::{History, HistoryHolder, HistoryPoint, HistoryRange};
use rules::permissions::{Permission, reach};
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::{Bytes, Timestamp};

use super::{allowed, usage};
use crate::access::Caller;
use crate::catalog::holders::{DeviceHolder, HeldDevice};
use crate::catalog::samples::history::{HistoryRow, HistorySubject, SiteMeans};
use crate::catalog::users::ROOT;
use crate::{Failure, Server, ServerFault};

/// Seconds of the small charts.
const RECENT: i64 = 600;

/// What small charts show: of the last ten minutes, oldest first, one for each ten seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecentUse {
    /// Cores and bytes in use on the whole site.
    pub cpu: Vec<f64>,
    pub memory: Vec<f64>,
    /// How busy each device was, 0 to 1, by its own name.
    pub gpus: BTreeMap<String, Vec<f64>>,
}

/// The history of `site`, of `me`, of `gpu:NAME` or of `user:NAME`.
///
/// Errors: `history.unknown-subject`, `gpu.not-found`, `gpu.ambiguous`; `user.not-found` also for a user whose
/// sessions the caller may not see.
pub async fn history(
    server: &Server,
    caller: &Caller,
    of: &str,
    range: HistoryRange,
) -> Result<History, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let world = server.snapshot().await?;
    let devices = || {
        world
            .world
            .nodes
            .iter()
            .flat_map(|node| &node.capacity.devices)
    };
    let mut held = None;
    let (subject, of, device) = match of.split_once(':') {
        None if matches!(of, "" | "site") => (HistorySubject::Site, "site".to_owned(), None),
        None if of == "me" => user(server, caller, caller.name.as_str())?,
        Some(("user", name)) => user(server, caller, name)?,
        Some(("gpu", id)) => {
            let gpu = super::gpus::get(server, caller, id).await?;
            let of = format!("gpu:{}", gpu.id);
            held = Some(HeldDevice {
                node: gpu.node,
                index: gpu.index,
            });
            (HistorySubject::Device(gpu.id.clone()), of, Some(gpu.id))
        }
        _ => return Err(refusals::history_subject_unknown().at("/of").into()),
    };
    let now = server.clock().now();
    let (seconds, every) = range.seconds();
    let (from, until) = time_of(range, now, &caller.time_zone);
    let points = match (&subject, range.weeks_back()) {
        (HistorySubject::Site, None) => {
            let rows = of_site(server, now, i64::from(seconds), i64::from(every)).await?;
            rows.iter().copied().map(point).collect()
        }
        _ => {
            let catalog = server.catalog().clone();
            let rows = tokio::task::spawn_blocking(move || {
                let samples = catalog.samples();
                let every = i64::from(every);
                match range.weeks_back() {
                    None => samples.history(&subject, now, i64::from(seconds), every),
                    Some(_) => {
                        let second = |at: Timestamp| at.as_millis() / 1000;
                        let age = second(now) - second(from);
                        let time = (second(from), second(until));
                        samples.history_between(&subject, time, age, every)
                    }
                }
            });
            let rows = rows
                .await
                .map_err(|ended| ServerFault::new("read the history", ended))??;
            rows.into_iter().map(point).collect()
        }
    };
    let (holders, more_holders) = match held {
        Some(device) => holders(server, caller, device, (from, until)).await?,
        None => (Vec::new(), false),
    };
    let meant = || devices().filter(|one| device.as_ref().is_none_or(|id| *id == one.uuid));
    let nodes = || world.world.nodes.iter().filter(|_| device.is_none());
    let memory: Bytes = nodes().map(|node| node.capacity.memory).sum();
    let gpu_memory: Bytes = meant().map(|device| device.memory).sum();
    Ok(History {
        of,
        range,
        every,
        from,
        until,
        cpu: nodes().map(|node| node.capacity.cpu.as_f64()).sum(),
        memory: memory.0,
        gpus: u32::try_from(meant().count()).unwrap_or(u32::MAX),
        gpu_memory: gpu_memory.0,
        simulated: meant().any(|device| device.simulated),
        points,
        holders,
        more_holders,
    })
}

/// Means of the site over each `every` seconds of the last `seconds`. Read once for all who ask within ten seconds.
async fn of_site(
    server: &Server,
    now: Timestamp,
    seconds: i64,
    every: i64,
) -> Result<SiteMeans, Failure> {
    let kept = server.catalog().samples().kept_of_site(now, seconds, every);
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let catalog = server.catalog().clone();
    let read =
        tokio::task::spawn_blocking(move || catalog.samples().history_of_site(now, seconds, every));
    read.await
        .map_err(|ended| ServerFault::new("read the history", ended))?
}

/// From when until when a range is: what ends at the present, or a week by a time zone, which ends at the present at last.
fn time_of(range: HistoryRange, now: Timestamp, zone: &str) -> (Timestamp, Timestamp) {
    match range.weeks_back() {
        None => {
            let (seconds, _) = range.seconds();
            let from = now.as_millis().saturating_sub(i64::from(seconds) * 1000);
            (Timestamp::from_millis(from), now)
        }
        Some(back) => {
            let from = usage::week_begins(now, zone, back);
            let ends = usage::week_begins(now, zone, back - 1);
            (from, ends.min(now))
        }
    }
}

/// The sessions that held a device, as far as the caller may see them, and whether there are further ones.
async fn holders(
    server: &Server,
    caller: &Caller,
    device: HeldDevice,
    time: (Timestamp, Timestamp),
) -> Result<(Vec<HistoryHolder>, bool), Failure> {
    let reach = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    let found = server
        .catalog()
        .read("list who held a device", move |view| {
            view.holders(&reach, device, time)
        })
        .await?;
    let mut all: Vec<HistoryHolder> = found.into_iter().map(|one| holder(one, time)).collect();
    all.sort_by(|a, b| b.gpu_hours.total_cmp(&a.gpu_hours));
    let more = all.len() > MAX_HOLDERS;
    all.truncate(MAX_HOLDERS);
    Ok((all, more))
}

fn holder(held: DeviceHolder, (from, until): (Timestamp, Timestamp)) -> HistoryHolder {
    let ends = held.until.unwrap_or(until).min(until);
    let millis = ends.as_millis() - held.from.max(from).as_millis();
    HistoryHolder {
        gpu_hours: held.share * millis.max(0) as f64 / 3_600_000.0,
        session: held.session,
        name: held.name,
        user: held.user,
        from: held.from,
        until: held.until,
    }
}

/// Sessions that one answer names as holders of a device. Higher: the page grows. Lower: small shares are not told.
const MAX_HOLDERS: usize = 50;

type Found = (HistorySubject, String, Option<String>);

fn user(server: &Server, caller: &Caller, name: &str) -> Result<Found, Failure> {
    let name = name.to_owned();
    let found = server
        .catalog()
        .read_now("find a user", |view| view.user_named(&name))?;
    let reach = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    let found = found
        .filter(|user| user.id != ROOT || user.id == caller.subject.user)
        .filter(|user| reach.covers(&usage::at_home(user)) || user.id == caller.subject.user)
        .ok_or_else(refusals::user_not_found)?;
    let of = format!("user:{}", found.name);
    Ok((HistorySubject::User(found.id), of, None))
}

fn point((at, row): (i64, HistoryRow)) -> HistoryPoint {
    HistoryPoint {
        at: Timestamp::from_millis(at * 1000),
        cpu_allocated: row.cpu,
        cpu_busy: row.cpu_busy,
        memory_allocated: row.memory,
        memory_used: row.memory_busy,
        gpu_allocated: row.gpu,
        gpu_busy: row.gpu_busy,
        gpu_memory_allocated: row.gpu_memory,
        gpu_memory_used: row.gpu_memory_busy,
        celsius: row.celsius,
        watts: row.watts,
        seconds: row.covered as u32,
    }
}

/// What the small charts of a floor plan show. Read once for all who ask within ten seconds.
pub async fn recent(server: &Server, caller: &Caller) -> Result<RecentUse, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (catalog, now) = (server.catalog().clone(), server.clock().now());
    let read = match catalog.samples().kept_recent() {
        Some(kept) => kept,
        None => {
            let read = move || catalog.samples().recent_history(now, RECENT);
            tokio::task::spawn_blocking(read)
                .await
                .map_err(|ended| ServerFault::new("read the history", ended))??
        }
    };
    let mut recent = RecentUse::default();
    for (subject, rows) in read.iter() {
        match subject {
            HistorySubject::Site => {
                recent.cpu = rows.iter().map(|(_, row)| row.cpu_busy).collect();
                recent.memory = rows.iter().map(|(_, row)| row.memory_busy).collect();
            }
            HistorySubject::Device(uuid) => {
                let busy: Option<Vec<f64>> = rows.iter().map(|(_, row)| row.gpu_busy).collect();
                recent.gpus.extend(busy.map(|busy| (uuid.clone(), busy)));
            }
            HistorySubject::User(_) => {}
        }
    }
    Ok(recent)
}

/// Users whose history the caller may choose from a list: themselves first, then those with live sessions, by name.
/// At most `MAX_CHOICES`; others are reached by their address.
pub async fn users(server: &Server, caller: &Caller) -> Result<Vec<String>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let snapshot = server.snapshot().await?;
    let own = caller.name.to_string();
    let reach = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    let mut others: Vec<String> = snapshot
        .names
        .iter()
        .filter(|(id, _)| reach.covers(&Scope::user(**id)))
        .map(|(_, name)| name.to_string())
        .filter(|name| *name != own)
        .collect();
    others.sort();
    others.insert(0, own);
    others.truncate(MAX_CHOICES);
    Ok(others)
}

/// Users in the list of histories. Higher: the page of a large site grows. Lower: more are typed.
const MAX_CHOICES: usize = 100;
