//! What is free, machine by machine and device by device, while places are given away one after the
//! other; and the best place for a demand, found without looking at every machine every time.
//!
//! Equal demands share one heap of machines. A change of a machine is noted in a list; a heap takes in
//! what was noted since it was last asked, so that a place costs the logarithm of the machines and not
//! their number.
//!
//! What is kept for an earlier session is given to no other. Within one walk of the queue room only becomes
//! less, so a session that finds none need not be looked for again.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::bounds::{Bounds, LimitHit, SharedLimits};
use super::choice;
use super::feasibility::{closed, could, could_use};
use super::node_index::NodeIndex;
use super::node_state::{CoAllocation, NodeState};
use super::reservations::Reservations;
use super::reserved::{ReservedRoom, Standing};
use crate::devices::{MigProfile, WHOLE};
use crate::names::{NodeId, ResourceGroupId, UserId};
use crate::policy::Spreading;
use crate::quota::LimitUsage;
use crate::resources::DeviceAllocation;
use crate::resources::{Demand, DeviceShare, Used};
use crate::session::{Session, SessionEnvironment};
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};
use crate::world::{ClusterSnapshot, NodeRecord};

/// Heaps kept. More: memory, for queues in which every request differs. Fewer: a queue of more sizes than
/// this looks at every machine for each of them.
const MAX_HEAPS: usize = 64;

/// Where a demand would go.
#[derive(Clone)]
pub(super) struct FoundPlace {
    pub(super) spot: usize,
    pub(super) devices: Vec<DeviceShare>,
}

/// How good a place is; the least is taken.
pub(super) type Score = (u64, u64, NodeId);

/// The best on top: its score, the machine, and the version of the machine that it was counted for.
type Heap = BinaryHeap<Reverse<(Score, usize, u32)>>;

struct Search {
    heap: Heap,
    /// How much of the list of changes is taken in.
    noted: usize,
}

pub(super) struct ClusterState<'w> {
    world: &'w ClusterSnapshot,
    pub(super) spots: Vec<NodeState<'w>>,
    at: NodeIndex,
    /// Hundredths of devices that each person holds.
    owned: BTreeMap<UserId, u32>,
    bounds: Bounds<'w>,
    kept: Reservations<'w>,
    /// What is kept for members of reservations.
    reserved: ReservedRoom<'w>,
    /// What found no place among that.
    vain: RefCell<BTreeSet<(Demand, bool, Standing)>>,
    /// What of that is kept for an earlier session.
    waited_for: BTreeSet<(Demand, bool, Standing)>,
    /// Some machine has a device whose slices no earlier session waits for.
    some_unshut: bool,
    /// What partitions of a size count.
    partitions: RefCell<BTreeMap<MigProfile, GpuShare>>,
    changes: Vec<usize>,
    /// The turn of the node that got a session last.
    turn: u64,
    searches: RefCell<BTreeMap<(Demand, bool), Search>>,
}

impl<'w> ClusterState<'w> {
    /// The world as it stands. Costs one visit a session that holds room, and a device.
    pub(super) fn new(world: &'w ClusterSnapshot, now: Timestamp) -> Self {
        let spots: Vec<NodeState<'w>> = world
            .nodes
            .iter()
            .map(|node| NodeState {
                node,
                cpu_room: world.cpu_room(node),
                cpu: CpuShare::ZERO,
                memory: Bytes::ZERO,
                devices: vec![DeviceAllocation::default(); node.capacity.devices.len()],
                shut: vec![false; node.capacity.devices.len()],
                reserved: vec![false; node.capacity.devices.len()],
                kept_back: (CpuShare::ZERO, Bytes::ZERO),
                shut_parts: Vec::new(),
                beside: Vec::new(),
                most: Cell::default(),
                inside: true,
                takes_new: closed(node, now).is_none(),
                open: closed(node, now).is_none(),
                version: 0,
                turn: world.turns.get(&node.id).copied().unwrap_or_default(),
            })
            .collect();
        let at = NodeIndex::new(spots.iter().map(|spot| spot.node.id));
        let mut ground = Self {
            world,
            spots,
            at,
            owned: BTreeMap::new(),
            bounds: Bounds::new(world),
            kept: Reservations::default(),
            reserved: ReservedRoom::new(world, now),
            vain: RefCell::default(),
            waited_for: BTreeSet::new(),
            some_unshut: true,
            partitions: RefCell::default(),
            changes: Vec::new(),
            turn: world.last_turn(),
            searches: RefCell::default(),
        };
        ground.reserved.shut(&mut ground.spots);
        for session in world.sessions.holding() {
            for (number, container) in session.live_containers().enumerate() {
                let Some(at) = ground.spot(container.node) else {
                    continue;
                };
                let held = container.holds();
                let demand = session.spec.of_each();
                ground.hold(at, &held, session, &demand, number == 0);
            }
        }
        // Not asked yet.
        ground.changes.clear();
        ground
    }

    pub(super) fn world(&self) -> &'w ClusterSnapshot {
        self.world
    }

    pub(super) fn spot(&self, node: NodeId) -> Option<usize> {
        self.at.get(node)
    }

    /// Goes on with the queue of that resource group: its machines alone give places, and nothing is kept for sessions of
    /// others. What one user, project or domain holds is counted on. Costs one visit a device.
    pub(super) fn enter(&mut self, group: ResourceGroupId) {
        let groups = &self.world.groups;
        for spot in &mut self.spots {
            spot.inside = groups.of_node(spot.node.id) == group;
            spot.open = spot.inside && spot.takes_new;
            spot.shut.fill(false);
            spot.shut_parts.clear();
            spot.most.set([None; 2]);
        }
        self.bounds.forget_owed();
        self.kept = Reservations::default();
        self.vain.get_mut().clear();
        self.waited_for.clear();
        self.some_unshut = true;
        self.changes.clear();
        self.searches.get_mut().clear();
    }

    /// Machines of the resource group whose queue is looked at.
    pub(super) fn inside(&self) -> impl Iterator<Item = &NodeState<'w>> {
        self.spots.iter().filter(|spot| spot.inside)
    }

    /// Whether a session has a container on one of them.
    pub(super) fn is_inside(&self, session: &Session) -> bool {
        let mut live = session.live_containers();
        live.any(|container| {
            let at = self.spot(container.node);
            at.is_some_and(|at| self.spots[at].inside)
        })
    }

    /// The same without reservations.
    pub(super) fn bare(&self) -> Self {
        let mut spots = self.spots.clone();
        for spot in &mut spots {
            spot.shut.fill(false);
            spot.shut_parts.clear();
            spot.most.set([None; 2]);
        }
        Self {
            world: self.world,
            spots,
            at: self.at.clone(),
            owned: self.owned.clone(),
            bounds: self.bounds.bare(),
            kept: Reservations::default(),
            reserved: self.reserved.clone(),
            vain: RefCell::default(),
            waited_for: BTreeSet::new(),
            some_unshut: true,
            partitions: RefCell::default(),
            changes: Vec::new(),
            turn: self.turn,
            searches: RefCell::default(),
        }
    }

    /// The place of a session among what is reserved for it, or stands open to it until then. Before the queue go members
    /// while their reservation lasts, with no more processor time and memory than it has; all else passes nobody.
    /// `is_full`: it is not known who waits in front, so nobody else has a place here. None where nothing is reserved, or
    /// where that is not free. Costs one visit a device of the machines on which something is.
    pub(super) fn reserved_place(&self, session: &Session, is_full: bool) -> Option<FoundPlace> {
        if session.device_affinity.is_some() {
            return None;
        }
        let standing = self.reserved.standing(session);
        if standing.is_empty() {
            return None;
        }
        let (demand, order) = (&session.spec.demand, &session.spec);
        let host = order.environment == SessionEnvironment::Host;
        let spots = self.reserved.spots(&standing);
        let key = (*demand, host, standing);
        // Room becomes only less until somebody gives some back.
        if self.vain.borrow().contains(&key) {
            return None;
        }
        let place = spots.into_iter().find_map(|at| {
            let spot = self.reserved.opened(&self.spots[at], session);
            let (cpu, memory) = spot.free();
            let open = spot.open && (!host || spot.node.host_environment);
            let room = cpu >= demand.cpu && memory >= demand.memory;
            let passes = || {
                self.reserved.covers(&spot, session)
                    || (!is_full && self.kept.leaves_room(&spot, demand))
            };
            if !open || !room || !passes() {
                return None;
            }
            let devices = choice::choose(self.world, &spot, demand)?;
            Some(FoundPlace { spot: at, devices })
        });
        if place.is_none() {
            self.vain.borrow_mut().insert(key);
        }
        place
    }

    /// Whether a session may have that reserved device.
    pub(super) fn is_let_in(&self, session: &Session, spot: usize, device: usize) -> bool {
        !self.reserved.opened(&self.spots[spot], session).reserved[device]
    }

    /// Processor time and memory of a machine that this session may have: what is kept for others is not free.
    pub(super) fn free_for(&self, session: &Session, spot: usize) -> (CpuShare, Bytes) {
        self.reserved.opened(&self.spots[spot], session).free()
    }

    /// Processor time and memory that a session which runs there may hold in all, so that those who wait keep theirs; no
    /// less than it has. Costs sorting the sizes that wait.
    pub(super) fn unkept_for(&self, session: &Session, at: usize) -> (CpuShare, Bytes) {
        let spot = self.reserved.opened(&self.spots[at], session);
        let had = &session.spec.demand;
        let (cpu, memory) = match self.kept.is_empty() {
            true => spot.left(),
            false => self.kept.left_beside(&spot, had),
        };
        let most = had.cpu.max(spot.node.capacity.cpu);
        ((had.cpu + cpu).min(most), had.memory + memory)
    }

    /// The first device of which a session that runs there would have more than those who wait leave it; None where there
    /// is none. Costs a look at each size that waits.
    pub(super) fn kept_device(&self, session: &Session, grown: &Session, at: usize) -> Option<u32> {
        let spot = &self.spots[at];
        let had = session.devices();
        let kept = |part: &&DeviceShare| {
            let old = had.iter().find(|old| old.index == part.index);
            let Some((old, device)) = old.zip(place_of(spot.node, part.index)) else {
                return true;
            };
            let grows = part.share > old.share || part.memory > old.memory;
            grows && spot.shut[device] && self.kept.waits_beside(spot, device, old)
        };
        grown.devices().iter().find(kept).map(|part| part.index)
    }

    /// Whether a session may hold that where it runs, once what it has is given back: the same devices, with other shares
    /// of them. What does not grow is not looked at.
    pub(super) fn has_room_to_grow(&self, session: &Session, grown: &Session, at: usize) -> bool {
        let spot = self.reserved.opened(&self.spots[at], grown);
        let (had, demand) = (&session.spec.demand, &grown.spec.demand);
        let (cpu, memory) = spot.free();
        let fits = |part: &DeviceShare| {
            let mut old = session.devices().iter();
            let is_old = old.any(|old| {
                old.index == part.index && old.share >= part.share && old.memory >= part.memory
            });
            let Some(number) = place_of(spot.node, part.index) else {
                return false;
            };
            let (device, held) = (&spot.node.capacity.devices[number], &spot.devices[number]);
            let has_share = part.share <= WHOLE.saturating_sub(held.share);
            let has_memory = part.memory <= device.memory.saturating_sub(held.memory);
            is_old || (has_share && (has_memory || device.memory == Bytes::ZERO))
        };
        demand.cpu <= cpu.max(had.cpu)
            && demand.memory <= memory.max(had.memory)
            && grown.devices().iter().all(fits)
    }

    /// Whether a member of a reservation may hold that there before the queue, once what it has is given back.
    pub(super) fn is_before_queue(&self, grown: &Session, at: usize) -> bool {
        let spot = self.reserved.opened(&self.spots[at], grown);
        let is_let_in = |part: &DeviceShare| {
            let device = place_of(spot.node, part.index);
            device.is_some_and(|device| !spot.shut[device])
        };
        grown.devices().iter().all(is_let_in) && self.reserved.covers(&spot, grown)
    }

    /// Until when reservations keep from strangers what would do on that machine; None where it would not do without
    /// them either.
    pub(super) fn reserved_until(&self, spot: usize, demand: &Demand) -> Option<Timestamp> {
        let spot = &self.spots[spot];
        let until = self.reserved.until(spot.node.id)?;
        let mut free = spot.clone();
        free.kept_back = (CpuShare::ZERO, Bytes::ZERO);
        free.reserved.fill(false);
        let (cpu, memory) = free.free();
        let is_enough = cpu >= demand.cpu && memory >= demand.memory;
        (is_enough && choice::choose(self.world, &free, demand).is_some()).then_some(until)
    }

    /// Whether the session may have something that a reservation keeps: as a member, or because it is over before.
    pub(super) fn is_let_in_somewhere(&self, session: &Session) -> bool {
        !self.reserved.standing(session).is_empty()
    }

    /// Whether a machine takes sessions and could hold a demand if it were empty.
    pub(super) fn could_hold(&self, at: usize, demand: &Demand, host: bool) -> bool {
        let spot = &self.spots[at];
        spot.open && could(spot.node, demand, host)
    }

    /// Whether a demand has a place on a machine now.
    pub(super) fn fits(&self, at: usize, demand: &Demand, host: bool) -> bool {
        self.entry(at, demand, host).is_some()
    }

    /// The place of a demand on that machine, which takes sessions; None where it has none there.
    pub(super) fn place_on(&self, at: usize, demand: &Demand, host: bool) -> Option<FoundPlace> {
        let spot = &self.spots[at];
        let (cpu, memory) = spot.free();
        let host_is_off = host && !spot.node.host_environment;
        if host_is_off || cpu < demand.cpu || memory < demand.memory {
            return None;
        }
        let devices = choice::choose(self.world, spot, demand)?;
        Some(FoundPlace { spot: at, devices })
    }

    /// Gives no more places on that machine.
    pub(super) fn close(&mut self, at: usize) {
        self.spots[at].open = false;
    }

    /// Gives places on that machine again, which was closed.
    pub(super) fn open(&mut self, at: usize) {
        self.spots[at].open = true;
    }

    /// Whether a session that finds no place waits for an end: some machine that takes sessions could hold it. False
    /// where an earlier one that wants no more was asked about.
    pub(super) fn is_awaited(&self, session: &Session) -> bool {
        let demand = &session.spec.demand;
        let host = session.spec.environment == SessionEnvironment::Host;
        let mut spots = 0..self.spots.len();
        !self.kept.is_vain(demand, host) && spots.any(|at| self.could_hold(at, demand, host))
    }

    pub(super) fn kept(&self) -> &Reservations<'w> {
        &self.kept
    }

    /// Keeps for a waiting session all that it could get. Costs one visit a device for each new size.
    pub(super) fn keep(&mut self, session: &'w Session) {
        let demand = &session.spec.demand;
        let host = session.spec.environment == SessionEnvironment::Host;
        let asked = self.asked(demand);
        // What no open node could hold is not waited for by others of its project.
        let soon = |spot: &NodeState<'_>| spot.open && could(spot.node, demand, host);
        if !self.bounds.is_empty() && self.spots.iter().any(soon) {
            let need = self.need(demand);
            self.bounds.owe(session, need);
        }
        let is_new = self.kept.add(session, asked);
        if !demand.wants_device() {
            return;
        }
        let standing = self.reserved.standing(session);
        let own = self.reserved.spots(&standing);
        let waits_for_own =
            !standing.is_empty() && self.waited_for.insert((*demand, host, standing));
        if !is_new && !waits_for_own {
            return;
        }
        let mut unshut = false;
        for (number, spot) in self.spots.iter_mut().enumerate() {
            if !spot.inside {
                continue;
            }
            if could(spot.node, demand, host) {
                let opened = own
                    .contains(&number)
                    .then(|| self.reserved.opened(spot, session));
                match demand.mig {
                    Some(profile) if is_new => spot.shut_parts.push(profile),
                    Some(_) => {}
                    None => {
                        for at in 0..spot.shut.len() {
                            // What is reserved for others it does not wait for.
                            let mine = opened.as_ref().is_some_and(|own| !own.reserved[at]);
                            let waits = mine || !spot.reserved[at];
                            spot.shut[at] = spot.shut[at] || (waits && could_use(spot, at, demand));
                        }
                    }
                }
            }
            let devices = &spot.node.capacity.devices;
            unshut = unshut
                || (0..devices.len()).any(|at| {
                    !spot.shut[at] && !spot.reserved[at] && !devices[at].is_partitioned()
                });
        }
        self.some_unshut = unshut;
    }

    /// Whether one more of a size that waits is only counted by `keep`: no policy bounds sums, and nothing is reserved.
    pub(super) fn keeps_by_count(&self) -> bool {
        self.bounds.is_empty() && self.reserved.is_empty()
    }

    /// As `keep` for one more of a size that waits, where that is only counted. Never looks at the session.
    pub(super) fn keep_again(&mut self, owner: UserId, size: usize) {
        let asked = self.asked(&self.kept.sizes[size].demand);
        self.kept.add_again(owner, size, asked);
    }

    /// Gives a place away.
    pub(super) fn take(&mut self, found: &FoundPlace, session: &Session) {
        let (at, demand) = (found.spot, &session.spec.demand);
        self.turn += 1;
        self.spots[at].turn = self.turn;
        self.hold(at, &found.devices, session, demand, true);
    }

    /// `demand`: of what is held here, all of the session or one container. `first`: of its containers on whichever node.
    fn hold(
        &mut self,
        at: usize,
        devices: &[DeviceShare],
        session: &Session,
        demand: &Demand,
        first: bool,
    ) {
        let spot = &mut self.spots[at];
        spot.cpu = spot.cpu + demand.cpu;
        spot.memory = spot.memory + demand.memory;
        for part in devices {
            if let Some(at) = place_of(spot.node, part.index) {
                spot.devices[at].add(part);
            }
        }
        self.reserved.hold(spot, session, demand, devices);
        spot.version += 1;
        self.changes.push(at);
        let shares: u32 = devices.iter().map(|d| d.share.0).sum();
        if !devices.is_empty() {
            spot.beside.push(beside(shares, demand));
        }
        if shares > 0 {
            let owned = self.owned.entry(session.owner).or_default();
            *owned = owned.saturating_add(shares);
        }
        if !self.bounds.is_empty() {
            self.bounds.hold(session, amount(demand, shares, first));
        }
    }

    /// Takes a session's places back, as its end will.
    pub(super) fn give_back(&mut self, session: &Session) {
        for (number, container) in session.live_containers().enumerate() {
            if let Some(spot) = self.spot(container.node) {
                let devices = container.holds().into_owned();
                let found = FoundPlace { spot, devices };
                self.let_go(&found, session, &session.spec.of_each(), number == 0);
            }
        }
    }

    /// Gives a session its places again that were taken back.
    pub(super) fn hold_again(&mut self, session: &Session) {
        for (number, container) in session.live_containers().enumerate() {
            if let Some(spot) = self.spot(container.node) {
                let demand = session.spec.of_each();
                self.hold(spot, &container.holds(), session, &demand, number == 0);
            }
        }
    }

    /// Takes a place back that was given away.
    pub(super) fn free(&mut self, found: &FoundPlace, session: &Session) {
        self.let_go(found, session, &session.spec.demand, true);
    }

    fn let_go(&mut self, found: &FoundPlace, session: &Session, demand: &Demand, first: bool) {
        let shares = self.release(found, session, demand);
        if let Some(owned) = self.owned.get_mut(&session.owner) {
            *owned = owned.saturating_sub(shares);
        }
        if !self.bounds.is_empty() {
            let amount = amount(demand, shares, first);
            self.bounds.free(session, amount);
        }
    }

    /// Takes the room of a session or of one container on one machine back, and counts its owner's as before; the
    /// hundredths of devices that it had there.
    pub(super) fn release(
        &mut self,
        found: &FoundPlace,
        session: &Session,
        demand: &Demand,
    ) -> u32 {
        let spot = &mut self.spots[found.spot];
        spot.cpu = spot.cpu.saturating_sub(demand.cpu);
        spot.memory = spot.memory.saturating_sub(demand.memory);
        let mut shares = 0;
        for part in &found.devices {
            if let Some(at) = place_of(spot.node, part.index) {
                spot.devices[at].give_back(part);
            }
            shares += part.share.0;
        }
        let mine = beside(shares, demand);
        if !found.devices.is_empty()
            && let Some(at) = spot.beside.iter().position(|one| *one == mine)
        {
            spot.beside.swap_remove(at);
        }
        self.reserved.let_go(spot, session, demand, &found.devices);
        self.vain.get_mut().clear();
        spot.version += 1;
        self.changes.push(found.spot);
        shares
    }

    /// What a session with that demand would add to sums that policies bound.
    fn need(&self, demand: &Demand) -> LimitUsage {
        let gpu = if demand.wants_device() {
            self.asked(demand).0
        } else {
            0
        };
        amount(demand, gpu, true)
    }

    /// The limit of a policy that the session would be beyond with that demand; None where it may start.
    pub(super) fn past_limit(&self, session: &Session, demand: &Demand) -> Option<LimitHit<'w>> {
        if self.bounds.is_empty() {
            return None;
        }
        self.bounds.hit(session, self.need(demand), false)
    }

    /// The same of what is more than the session has now, which must not be counted here. `owed`: once those in front have
    /// started.
    pub(super) fn past_grown_limit(
        &self,
        session: &Session,
        demand: &Demand,
        owed: bool,
    ) -> Option<LimitHit<'w>> {
        if self.bounds.is_empty() {
            return None;
        }
        let (need, before) = (self.need(demand), self.need(&session.spec.demand));
        let grown = |now: u64, before: u64| if now > before { now } else { 0 };
        let need = LimitUsage {
            gpu: grown(need.gpu, before.gpu),
            cpu: grown(need.cpu, before.cpu),
            memory: grown(need.memory, before.memory),
            ..LimitUsage::default()
        };
        self.bounds.hit(session, need, owed)
    }

    /// The same once those in front have started.
    pub(super) fn owes_limit(&self, session: &Session) -> bool {
        !self.bounds.is_empty()
            && self
                .bounds
                .hit(session, self.need(&session.spec.demand), true)
                .is_some()
    }

    /// The limits that bound these sessions, in whichever resource group they are.
    pub(super) fn limits_of<'s>(
        &self,
        sessions: impl Iterator<Item = &'s Session> + Clone,
    ) -> SharedLimits {
        let has_quota = self.world.policy.each.is_some();
        let wants = |session: &&Session| has_quota && session.spec.demand.wants_device();
        SharedLimits {
            owners: sessions.clone().filter(wants).map(|s| s.owner).collect(),
            accounts: self.bounds.accounts_of(sessions),
        }
    }

    /// Whether the end of a session, wherever it is, frees something of these limits.
    pub(super) fn counts_in(&self, session: &Session, limits: &SharedLimits) -> bool {
        session.spec.demand.wants_device() && limits.owners.contains(&session.owner)
            || self.bounds.counts_in(session, &limits.accounts)
    }

    /// Whether one of them starting can keep the other beyond a limit.
    pub(super) fn share_account(&self, one: &Session, other: &Session) -> bool {
        self.bounds.share_account(one, other)
    }

    /// Whether a session is beyond what its owner, project or domain may hold, or will be once those in front have
    /// started: it waits for its own alone.
    pub(super) fn is_bounded(&self, session: &Session) -> bool {
        let (owner, demand) = (session.owner, &session.spec.demand);
        self.past_quota(owner, demand)
            || self.owes_quota(owner, demand)
            || self.past_limit(session, demand).is_some()
            || self.owes_limit(session)
    }

    /// What that person holds of devices now.
    pub(super) fn owned(&self, owner: UserId) -> GpuShare {
        GpuShare(self.owned.get(&owner).copied().unwrap_or_default())
    }

    /// How much of devices a demand counts for what one person may hold.
    pub(super) fn asked(&self, demand: &Demand) -> GpuShare {
        let Some(profile) = demand.mig else {
            return demand.gpu;
        };
        let mut known = self.partitions.borrow_mut();
        *known
            .entry(profile)
            .or_insert_with(|| choice::asked(self.world, demand))
    }

    /// Whether that much more would be past what one person may hold.
    pub(super) fn past_quota(&self, owner: UserId, demand: &Demand) -> bool {
        self.past_quota_beside(owner, demand, GpuShare::ZERO)
    }

    /// Whether that much more would be past it once their own who wait in front have started.
    pub(super) fn owes_quota(&self, owner: UserId, demand: &Demand) -> bool {
        let owed = self.kept.owed.get(&owner).copied().unwrap_or_default();
        self.past_quota_beside(owner, demand, GpuShare(owed))
    }

    fn past_quota_beside(&self, owner: UserId, demand: &Demand, owed: GpuShare) -> bool {
        let Some(each) = self.world.policy.each else {
            return false;
        };
        demand.wants_device() && self.owned(owner) + owed + self.asked(demand) > each
    }

    /// The best place there is that is not kept for an earlier session; None where there is none.
    pub(super) fn best(
        &self,
        demand: &Demand,
        environment: &SessionEnvironment,
    ) -> Option<FoundPlace> {
        let host = *environment == SessionEnvironment::Host;
        let shut = demand.gpu > GpuShare::ZERO && !self.some_unshut;
        if shut || self.kept.is_vain(demand, host) {
            return None;
        }
        let mut searches = self.searches.borrow_mut();
        let key = (*demand, host);
        if !searches.contains_key(&key) && searches.len() >= MAX_HEAPS {
            return self.scan(demand, host);
        }
        let search = searches.entry(key).or_insert_with(|| Search {
            heap: (0..self.spots.len())
                .filter_map(|at| self.entry(at, demand, host))
                .collect(),
            noted: self.changes.len(),
        });
        let mut noted: Vec<usize> = self.changes[search.noted..].to_vec();
        noted.sort_unstable();
        noted.dedup();
        for at in noted {
            search.heap.extend(self.entry(at, demand, host));
        }
        search.noted = self.changes.len();
        while let Some(Reverse((_, at, version))) = search.heap.peek() {
            let spot = &self.spots[*at];
            // What is kept becomes more only, so what it refuses once it refuses to the end.
            if *version == spot.version
                && self.kept.leaves_room(spot, demand)
                && let Some(devices) = choice::choose(self.world, spot, demand)
            {
                return Some(FoundPlace { spot: *at, devices });
            }
            search.heap.pop();
        }
        None
    }

    /// The place of a session: on the device that it is bound to, or the best there is.
    pub(super) fn place(&self, session: &Session) -> Option<FoundPlace> {
        let order = &session.spec;
        let Some(device) = &session.device_affinity else {
            let best = || self.best(&order.demand, &order.environment);
            let reserved = || self.reserved_place(session, false);
            // A guest who starts slowly may meet the begin: they take what is reserved last.
            return match self.reserved.has_member(session) {
                true => reserved().or_else(best),
                false => best().or_else(reserved),
            };
        };
        let host = order.environment == SessionEnvironment::Host;
        self.spots.iter().enumerate().find_map(|(at, spot)| {
            let (cpu, memory) = spot.free();
            let open = spot.open && (!host || spot.node.host_environment);
            let room = cpu >= order.demand.cpu
                && memory >= order.demand.memory
                && self.kept.leaves_room(spot, &order.demand);
            let part = choice::on(spot, device, &order.demand).filter(|_| open && room)?;
            Some(FoundPlace {
                spot: at,
                devices: vec![part],
            })
        })
    }

    fn scan(&self, demand: &Demand, host: bool) -> Option<FoundPlace> {
        (0..self.spots.len())
            .filter_map(|at| self.entry(at, demand, host))
            .filter(|Reverse((_, at, _))| self.kept.leaves_room(&self.spots[*at], demand))
            .max()
            .and_then(|Reverse((_, at, _))| {
                let devices = choice::choose(self.world, &self.spots[at], demand)?;
                Some(FoundPlace { spot: at, devices })
            })
    }

    fn entry(
        &self,
        at: usize,
        demand: &Demand,
        host: bool,
    ) -> Option<Reverse<(Score, usize, u32)>> {
        let spot = &self.spots[at];
        let refused = !spot.open || (host && !spot.node.host_environment);
        let (cpu, memory) = spot.free();
        if refused || cpu < demand.cpu || memory < demand.memory {
            return None;
        }
        let score = self.score(at, demand)?;
        Some(Reverse((score, at, spot.version)))
    }

    /// How good the place of a demand on that machine is, which has room; None where its devices are not free.
    pub(super) fn score(&self, at: usize, demand: &Demand) -> Option<Score> {
        let spot = &self.spots[at];
        let rank = if demand.wants_device() {
            choice::rank(self.world, spot, demand)?
        } else {
            // Work without a device leaves machines that have some to those who need them.
            spot.node.capacity.devices.len() as u64
        };
        let (_, memory) = spot.free();
        let left = memory.saturating_sub(demand.memory).0;
        let score = match self.world.spreading(spot.node.id) {
            Spreading::Pack => (rank, left, spot.node.id),
            Spreading::Spread => (rank, u64::MAX - left, spot.node.id),
            Spreading::RoundRobin => (rank, spot.turn, spot.node.id),
        };
        Some(score)
    }

    /// Everything given on one machine, as its pictures show it.
    pub(super) fn used(&self, at: usize) -> Used {
        let spot = &self.spots[at];
        Used {
            cpu: spot.cpu,
            memory: spot.memory,
            devices: spot
                .node
                .capacity
                .devices
                .iter()
                .zip(&spot.devices)
                .filter(|(_, held)| !held.is_empty())
                .map(|(device, held)| (device.index, held.clone()))
                .collect(),
        }
    }
}

fn amount(demand: &Demand, shares: u32, first: bool) -> LimitUsage {
    LimitUsage {
        sessions: u64::from(first),
        gpu: u64::from(shares),
        cpu: u64::from(demand.cpu.0),
        memory: demand.memory.0,
        ..LimitUsage::default()
    }
}

fn beside(shares: u32, demand: &Demand) -> CoAllocation {
    CoAllocation {
        share: u64::from(shares),
        cpu: u64::from(demand.cpu.0),
        memory: demand.memory.0,
    }
}

/// Where a device stands in the list of its machine.
pub(super) fn place_of(node: &NodeRecord, index: u32) -> Option<usize> {
    let devices = &node.capacity.devices;
    match devices.get(index as usize) {
        Some(device) if device.index == index => Some(index as usize),
        _ => devices.iter().position(|d| d.index == index),
    }
}
