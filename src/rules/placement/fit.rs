//! Where a demand fits, and why not, in words.

use crate::blocker::PlacementBlocker;
use crate::blockers;
use crate::codes;
use crate::devices::{CONTEXT_OVERHEAD, WHOLE};
use crate::names::{NodeId, ResourceGroupId, UserId};
use crate::placement::backfill::TimedBackfill;
use crate::placement::bounds::LimitHit;
use crate::placement::choice;
use crate::placement::cluster_state::{ClusterState, FoundPlace};
use crate::placement::feasibility::{closed, holds_when_empty, slice_memory};
use crate::placement::node_state::NodeState;
use crate::quota::{LimitKey, PolicyLevel};
use crate::reason::Reason;
use crate::reasons;
use crate::refusal::Refusal;
use crate::refusals;
use crate::resources::{Demand, Device, DeviceShare};
use crate::session::{Session, SessionEnvironment};
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};
use crate::world::{ClusterSnapshot, NodeRecord};

pub(super) struct FitPlace {
    pub(super) node: NodeId,
    pub(super) devices: Vec<DeviceShare>,
    pub(super) because: Reason,
    pub(super) found: FoundPlace,
}

/// The best place of a session that is free, or one on the device that it is bound to, with why it is that one;
/// None where none has room.
pub(super) fn place(ground: &ClusterState<'_>, session: &Session) -> Option<FitPlace> {
    let demand = &session.spec.demand;
    let place = ground
        .place(session)
        .map(|found| told(ground, demand, found))?;
    let Some(device) = session.device_affinity.as_ref() else {
        return Some(place);
    };
    let node = &ground.spots[place.found.spot].node.name;
    Some(FitPlace {
        because: reasons::placement_only_device(node, device),
        ..place
    })
}

/// The place of a member among what is reserved for it alone; None where it has none.
pub(super) fn reserved(ground: &ClusterState<'_>, session: &Session) -> Option<FitPlace> {
    let found = ground.reserved_place(session, true)?;
    Some(told(ground, &session.spec.demand, found))
}

/// The place of a session that may start before the first one that waits, by time limits; None where it has none.
pub(super) fn backfilled(
    ground: &ClusterState<'_>,
    backfill: &TimedBackfill<'_>,
    session: &Session,
) -> Option<FitPlace> {
    let found = backfill.place(session)?;
    let place = told(ground, &session.spec.demand, found);
    let node = &ground.spots[place.found.spot].node.name;
    Some(FitPlace {
        because: reasons::placement_backfill(node, backfill.latest()),
        ..place
    })
}

fn told(ground: &ClusterState<'_>, demand: &Demand, found: FoundPlace) -> FitPlace {
    let spot = &ground.spots[found.spot];
    FitPlace {
        node: spot.node.id,
        because: reason(ground.world(), spot, &found.devices, demand),
        devices: found.devices.clone(),
        found,
    }
}

fn reason(
    world: &ClusterSnapshot,
    spot: &NodeState<'_>,
    devices: &[DeviceShare],
    demand: &Demand,
) -> Reason {
    let (cpu, memory) = spot.left();
    let node = spot.node;
    let card = |part: &DeviceShare| node.capacity.devices.iter().find(|d| d.index == part.index);
    if let [part] = devices
        && let Some(profile) = demand.mig
    {
        return reasons::placement_partition(&node.name, part.index, profile);
    }
    if let [part] = devices
        && part.share < WHOLE
    {
        return match world.spreading(node.id) {
            crate::policy::Spreading::Pack => {
                reasons::placement_fullest_device(&node.name, part.index, part.share)
            }
            crate::policy::Spreading::Spread => {
                reasons::placement_emptiest_device(&node.name, part.index, part.share)
            }
            crate::policy::Spreading::RoundRobin => {
                reasons::placement_next_node(&node.name, part.index, part.share)
            }
        };
    }
    if let [part] = devices {
        return reasons::placement_whole_device(&node.name, part.index);
    }
    if devices.len() > 1 {
        let linked = devices
            .windows(2)
            .all(|pair| card(&pair[0]).and_then(|d| d.link) == card(&pair[1]).and_then(|d| d.link))
            && card(&devices[0]).is_some_and(|d| d.link.is_some());
        let list: Vec<String> = devices.iter().map(|d| d.index.to_string()).collect();
        return match linked {
            true => reasons::placement_linked_devices(&node.name, list.join(", ")),
            false => reasons::placement_several_devices(&node.name, list.join(", ")),
        };
    }
    reasons::placement_room(
        &node.name,
        cpu,
        spot.cpu_room.cores(),
        memory,
        node.capacity.memory,
        demand.cpu,
        demand.memory,
    )
}

/// The same for a session that wants that environment.
fn usable(
    node: &NodeRecord,
    environment: &SessionEnvironment,
    now: Timestamp,
) -> Option<PlacementBlocker> {
    let off = *environment == SessionEnvironment::Host && !node.host_environment;
    closed(node, now).or_else(|| off.then(|| blockers::node_host_environment_off(&node.name)))
}

/// Everything that keeps the demand from every node, of each node the scarcest first; empty where it fits somewhere.
pub(super) fn blockers(
    ground: &ClusterState<'_>,
    demand: &Demand,
    environment: &SessionEnvironment,
    owner: Option<UserId>,
    now: Timestamp,
) -> Vec<PlacementBlocker> {
    if ground.inside().next().is_none() {
        return vec![blockers::node_none()];
    }
    if let Some(owner) = owner
        && ground.past_quota(owner, demand)
    {
        return vec![quota(ground, demand, owner)];
    }
    if ground.best(demand, environment).is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, spot) in ground.spots.iter().enumerate() {
        if !spot.inside {
            continue;
        }
        if let Some(blocker) = usable(spot.node, environment, now) {
            found.push(blocker);
            continue;
        }
        let name = &spot.node.name;
        if let Some(until) = ground.reserved_until(at, demand) {
            found.push(blockers::reservation_room(name, until));
            continue;
        }
        let (cpu, memory) = spot.free();
        // With how many thousandths of what it needs are free.
        let mut short: Vec<(u64, PlacementBlocker)> = Vec::new();
        if choice::choose(ground.world(), spot, demand).is_none() {
            short.push((
                device_thousandths(spot, demand),
                device_blocker(spot, demand),
            ));
        }
        if cpu < demand.cpu {
            let part = thousandths(cpu.0.into(), demand.cpu.0.into());
            let (cores, need) = (demand.cpu.cores(), demand.cpu);
            short.push((part, blockers::cpu_short(cores, name, cpu, need)));
        }
        if memory < demand.memory {
            let part = thousandths(memory.0, demand.memory.0);
            let blocker = blockers::memory_short(demand.memory, name, memory);
            short.push((part, blocker));
        }
        // The scarcest first.
        short.sort_by_key(|(part, _)| *part);
        found.extend(short.into_iter().map(|(_, blocker)| blocker));
    }
    found
}

fn thousandths(free: u64, need: u64) -> u64 {
    free.saturating_mul(1000) / need.max(1)
}

/// How much of the devices that a demand wants is free on a machine that does not have them, in thousandths.
fn device_thousandths(spot: &NodeState<'_>, demand: &Demand) -> u64 {
    if demand.mig.is_some() {
        return 0;
    }
    let free = (0..spot.devices.len()).map(|at| choice::left(spot, at).0);
    let usable: u64 = match demand.gpu >= WHOLE {
        true => free
            .filter(|share| *share == WHOLE)
            .map(|one| u64::from(one.0))
            .sum(),
        false => free.max().map_or(0, |one| u64::from(one.0)),
    };
    // It may lack memory, or one more device beside: something is short all the same.
    thousandths(usable, demand.gpu.0.into()).min(999)
}

/// A user holds as much of devices as one user may.
pub(super) fn quota(ground: &ClusterState<'_>, demand: &Demand, owner: UserId) -> PlacementBlocker {
    let each = ground.world().policy.each.unwrap_or_default();
    let (held, need) = (ground.owned(owner), ground.asked(demand));
    blockers::gpu_quota(need, held, each)
}

/// Those who are bounded together hold as much as their policy allows.
pub(super) fn limited(hit: &LimitHit<'_>) -> PlacementBlocker {
    let told = |amount| hit.key.told(amount);
    let (need, used, limit) = (told(hit.need), told(hit.used), told(hit.limit));
    let (whose, policy) = (&hit.policy.whose, &hit.policy.name);
    let count = hit.key == LimitKey::Sessions;
    match (hit.policy.level, count) {
        (PolicyLevel::Domain, true) => blockers::limit_domain_sessions(whose, used, limit, policy),
        (PolicyLevel::Domain, false) => blockers::limit_domain(need, whose, used, limit, policy),
        (PolicyLevel::Project, true) => {
            blockers::limit_project_sessions(whose, used, limit, policy)
        }
        (PolicyLevel::Project, false) => blockers::limit_project(need, whose, used, limit, policy),
        (PolicyLevel::Member, true) => blockers::limit_member_sessions(used, limit, whose, policy),
        (PolicyLevel::Member, false) => blockers::limit_member(need, used, limit, whose, policy),
        (PolicyLevel::Site | PolicyLevel::User, true) => {
            blockers::limit_user_sessions(used, limit, policy)
        }
        (PolicyLevel::Site | PolicyLevel::User, false) => {
            blockers::limit_user(need, used, limit, policy)
        }
    }
}

/// The same for one that runs and is to hold this instead.
pub(super) fn within_limits(
    world: &ClusterSnapshot,
    session: &Session,
    demand: &Demand,
) -> Result<(), Refusal> {
    // Sums do not depend on how old reports are.
    let mut ground = ClusterState::new(world, Timestamp::default());
    if let Some(own) = world.session(session.id) {
        ground.give_back(own);
    }
    if demand.gpu > session.spec.demand.gpu && ground.past_quota(session.owner, demand) {
        let each = world.policy.each.unwrap_or_default();
        let held = ground.owned(session.owner);
        return Err(refusals::gpu_over_quota_together(each, held).at("/resources/gpu"));
    }
    match ground.past_grown_limit(session, demand, false) {
        Some(hit) => {
            let (limit, used) = (hit.key.told(hit.limit), hit.key.told(hit.used));
            let word = hit.key.word();
            Err(refusals::limit_held(&hit.policy.name, limit, word, used).at("/resources"))
        }
        None => Ok(()),
    }
}

/// See `placement::room_for`.
pub(super) fn room_for(
    world: &ClusterSnapshot,
    session: &Session,
    node: NodeId,
    now: Timestamp,
) -> Option<(CpuShare, Bytes)> {
    let mut ground = ClusterState::new(world, now);
    if let Some(own) = world.session(session.id) {
        ground.give_back(own);
    }
    let spot = ground.spot(node)?;
    Some(ground.free_for(session, spot))
}

/// Why the devices of a machine do not do.
fn device_blocker(spot: &NodeState<'_>, demand: &Demand) -> PlacementBlocker {
    let name = &spot.node.name;
    let devices = &spot.node.capacity.devices;
    if let Some(profile) = demand.mig {
        return blockers::gpu_no_partition(profile, name, 0);
    }
    let free: Vec<(GpuShare, Bytes)> = (0..devices.len())
        .map(|at| choice::left(spot, at))
        .collect();
    let largest = free.iter().map(|f| f.0).max().unwrap_or_default();
    let total: GpuShare = free.iter().map(|f| f.0).sum();
    let need = demand.gpu;
    let is_enough_in_all = total >= need;
    if need >= WHOLE {
        let whole = free.iter().filter(|f| f.0 == WHOLE).count();
        return match (need.0 / 100, is_enough_in_all) {
            (1, true) => blockers::gpu_fragmented_whole(name, whole, need),
            (1, false) => blockers::gpu_short_whole(name, whole, need),
            (wanted, true) => blockers::gpu_fragmented_wholes(wanted, name, whole, need),
            (wanted, false) => blockers::gpu_short_wholes(wanted, name, whole, need),
        };
    }
    if largest >= need {
        let room = free
            .iter()
            .filter(|f| f.0 >= need)
            .map(|f| f.1)
            .max()
            .unwrap_or_default();
        let memory = devices
            .iter()
            .filter_map(|d| slice_memory(d, demand, need))
            .min()
            .unwrap_or_default();
        return blockers::gpu_memory_short(memory, name, room);
    }
    match is_enough_in_all {
        true => blockers::gpu_fragmented(need, name, largest),
        false => blockers::gpu_short(need, name, largest),
    }
}

/// See `placement::regrant`.
pub(super) fn regrant(
    world: &ClusterSnapshot,
    session: &Session,
    demand: &Demand,
) -> Result<Vec<DeviceShare>, Refusal> {
    let old = &session.spec.demand;
    if (demand.gpu, demand.gpu_memory, demand.mig) == (old.gpu, old.gpu_memory, old.mig) {
        return Ok(session.devices().to_vec());
    }
    let other = || refusals::resize_other_devices().at("/resources/gpu");
    let (whole, part) = (demand.gpu.0 / WHOLE.0, GpuShare(demand.gpu.0 % WHOLE.0));
    let (old_whole, old_part) = (old.gpu.0 / WHOLE.0, GpuShare(old.gpu.0 % WHOLE.0));
    // 0.5 → 1 takes all of the card that it is on already.
    let (target, fraction) = match (old_part > GpuShare::ZERO, part > GpuShare::ZERO) {
        (true, true) if whole == old_whole => (part, true),
        (true, false) if whole == old_whole + 1 => (WHOLE, false),
        (false, true) if whole + 1 == old_whole => (part, true),
        _ => return Err(other()),
    };
    let mut devices = session.devices().to_vec();
    let node = session
        .node()
        .and_then(|id| world.node(id))
        .ok_or_else(other)?;
    let Some(mine) = devices.iter_mut().max_by_key(|d| {
        // The fraction where there is one, else the last whole device.
        (d.share < WHOLE, d.index)
    }) else {
        return Err(other());
    };
    let Some(device) = node.capacity.devices.iter().find(|d| d.index == mine.index) else {
        return Err(other());
    };
    let memory = if fraction {
        slice_memory(device, demand, target).ok_or_else(|| {
            refusals::gpu_resized_slice_too_small(CONTEXT_OVERHEAD).at("/resources/gpu")
        })?
    } else {
        device.memory
    };
    let mut others = crate::resources::DeviceAllocation::default();
    let neighbours = world.sessions.iter().filter(|s| s.id != session.id);
    for held in neighbours.flat_map(|s| s.held_on(node.id)) {
        if held.index == mine.index {
            others.add(&held);
        }
    }
    let (share_left, memory_left) = (
        WHOLE.saturating_sub(others.share),
        device.memory.saturating_sub(others.memory),
    );
    if target > share_left || memory > memory_left {
        return Err(refusals::resize_no_room_on_device(
            mine.index,
            &node.name,
            share_left,
            memory_left,
        )
        .at("/resources/gpu"));
    }
    mine.share = target;
    mine.memory = memory;
    Ok(devices)
}

/// Refuses what no machine could hold even when empty, naming the largest request that one could.
pub(super) fn possible(
    world: &ClusterSnapshot,
    group: ResourceGroupId,
    demand: &Demand,
    environment: &SessionEnvironment,
) -> Result<(), Refusal> {
    let inside = |node: &&NodeRecord| world.groups.of_node(node.id) == group;
    let nodes: Vec<&NodeRecord> = world.nodes.iter().filter(inside).collect();
    if nodes.is_empty() {
        // Nothing is known yet; the session waits and says so.
        return Ok(());
    }
    if *environment == SessionEnvironment::Host && !nodes.iter().any(|n| n.host_environment) {
        return Err(refusals::environment_host_off().at("/image"));
    }
    // A machine that cannot run containers at all will not learn it while a session waits.
    let refusing = |n: &&NodeRecord| {
        n.problems
            .iter()
            .find(|p| p.code.starts_with(codes::family::NODE_REFUSES))
            .cloned()
    };
    if let Some(Some(problem)) = nodes.iter().map(refusing).reduce(|a, b| a.and(b)) {
        // Under the code of what it lacks.
        return Err(Refusal {
            code: problem.code,
            ..refusals::node_refuses(problem.text)
        });
    }
    world.policy.check(demand)?;
    if let Some(each) = world.policy.each
        && choice::asked(world, demand) > each
    {
        return Err(refusals::gpu_partition_over_quota(each).at("/resources/mig"));
    }
    let fits = |n: &&NodeRecord| {
        n.capacity.cpu >= demand.cpu
            && n.capacity.memory >= demand.memory
            && holds_when_empty(n, demand)
    };
    if nodes.iter().any(fits) {
        return Ok(());
    }
    let most_cpu = nodes
        .iter()
        .map(|n| n.capacity.cpu)
        .max()
        .unwrap_or_default();
    let most_memory = nodes
        .iter()
        .map(|n| n.capacity.memory)
        .max()
        .unwrap_or_default();
    Err(if demand.cpu > most_cpu {
        refusals::cpu_too_large(demand.cpu.cores(), most_cpu, demand.cpu).at("/resources/cpu")
    } else if demand.memory > most_memory {
        refusals::memory_too_large(demand.memory, most_memory).at("/resources/memory")
    } else if let Some(refusal) = never_on_devices(&nodes, demand) {
        refusal
    } else {
        refusals::resources_too_large().at("/resources")
    })
}

/// What about devices no machine could ever do, and what would work; None where some machine could.
fn never_on_devices(nodes: &[&NodeRecord], demand: &Demand) -> Option<Refusal> {
    if nodes.iter().any(|n| holds_when_empty(n, demand)) {
        return None;
    }
    let all: Vec<&Device> = nodes.iter().flat_map(|n| &n.capacity.devices).collect();
    if all.is_empty() {
        return Some(refusals::gpu_none().at("/resources/gpu"));
    }
    if let Some(profile) = demand.mig {
        let mut there: Vec<String> = all
            .iter()
            .flat_map(|d| &d.mig)
            .map(|part| part.profile.to_string())
            .collect();
        there.sort();
        there.dedup();
        let refusal = match there[..] {
            [] => refusals::gpu_nothing_partitioned(profile),
            _ => refusals::gpu_no_such_partition(profile, there.join(" or "), there.join(", ")),
        };
        return Some(refusal.at("/resources/mig"));
    }
    let most = nodes
        .iter()
        .map(|n| {
            n.capacity
                .devices
                .iter()
                .filter(|d| !d.is_partitioned())
                .count()
        })
        .max()
        .unwrap_or_default();
    if (demand.gpu.0 as usize).div_ceil(100) > most {
        let refusal = match most {
            0 => refusals::gpu_all_partitioned(demand.gpu),
            most => refusals::gpu_too_large(demand.gpu, most),
        };
        return Some(refusal.at("/resources/gpu"));
    }
    let largest = all
        .iter()
        .filter(|d| !d.is_partitioned())
        .map(|d| d.memory)
        .max()
        .unwrap_or_default();
    if let Some(memory) = demand.gpu_memory
        && memory > largest
    {
        return Some(refusals::gpu_memory_too_large(memory, largest).at("/resources/gpu_memory"));
    }
    let least = all
        .iter()
        .filter(|d| !d.is_partitioned())
        .filter_map(|d| d.least_share())
        .min();
    let refusal = match least {
        Some(works) => refusals::gpu_slice_too_small_here(demand.gpu, CONTEXT_OVERHEAD, works),
        None => refusals::gpu_slice_too_small_everywhere(demand.gpu, CONTEXT_OVERHEAD),
    };
    Some(refusal.at("/resources/gpu"))
}
