//! Gives the containers of one card their turns: a thread that asks the arbiter, opens and closes gates in
//! control pages, wakes who waits there, and reads from account pages who wants and whose work is done.
//! Sleeps for good while nobody has to take turns. Believes of a container's page nothing that would cost
//! another: whoever garbles theirs has no turns, and whoever claims turns and does not use them pays for
//! them.
//!
//! Every signal is a level that is looked at again, never an edge that could be missed: gates are set anew
//! at each step, sleepers wake by themselves after 20 ms, and without a heartbeat for two seconds they go
//! on as if there were no gate.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rules::names::ContainerName;

use super::arbiter::{Arbiter, Mode, Nanos, SliceCommand, WINDOW};
use super::inject::{Pages, ProcessTraffic};
use super::region::{MODE_OFF, MODE_WINDOW};

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000 * MICROSECOND;

/// How often the page of whoever has the turn is read. Shorter: more of a core for each card. Longer: the
/// end of work is seen later, and is charged as work.
const LOOK: Nanos = 200 * MICROSECOND;
/// The same after a turn, while its work is not done: what is seen late is lost for everybody.
const DRAINING: Nanos = 50 * MICROSECOND;
/// How often the others' are, while there is work. Longer: a first launch waits longer.
const WANTS: Nanos = MILLISECOND;
/// How often everybody's are while nobody did anything for `QUIET`. Longer: a first launch after a pause
/// waits longer. Shorter: an idle card costs more than the 0.01 of a core that it does now (one under load
/// 0.07 to 0.09; measured without optimisation on a busy machine, 2026-11-21).
const WANTS_IN_QUIET: Nanos = 8 * MILLISECOND;
const QUIET: Nanos = 100 * MILLISECOND;
/// Each process of a container makes its page this much dearer to read, so it is read less often.
const LOOK_PER_SLOT: Nanos = 10 * MICROSECOND;

/// Idleness after which a turn goes to the next.
const YIELDED_AFTER: Nanos = 200 * MICROSECOND;
/// The same before the first launch of a turn: whoever was woken may have to wait for a processor.
const FIRST_SLICE_TIMEOUT: Nanos = MILLISECOND;
/// A container that did not use its time slice is not offered one for this long, twice as long each time, up to `MAX_SHY`:
/// a container that is frozen or whose process was killed at the gate would keep the device idle again and
/// again. Longer at most: whoever is thawed waits longer.
const SHY: Nanos = MILLISECOND;
const MAX_SHY: Nanos = 64 * MILLISECOND;
/// Whoever launched so shortly ago wants more, though it does not wait yet.
const WANTS_STILL: Nanos = 2 * MILLISECOND;
/// Work whose end nobody inside looks for counts as done after so much silence: no more is charged for it
/// than a window.
const UNWATCHED: Nanos = WINDOW;
/// The same where somebody looks: longer than any kernel that is not broken, or its process was killed.
const GONE: Nanos = 2_000 * MILLISECOND;
/// How often pages say that somebody gives turns.
const BEAT: Nanos = 50 * MILLISECOND;

/// A container's place at one device.
#[derive(Clone)]
pub struct Seat {
    pub pages: Arc<Pages>,
    /// The device's place in its page.
    pub at: usize,
    pub share_milli: u32,
}

/// What the device did for a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceTime {
    pub time: Nanos,
    /// When it last did something for it, or when the container was let in.
    pub last: Nanos,
}

/// Who takes turns at one device. The thread ends with it.
pub struct TimeSlicer {
    shared: Arc<SlicerState>,
    thread: Option<JoinHandle<()>>,
}

struct SlicerState {
    table: Mutex<Table>,
    over: AtomicBool,
}

impl TimeSlicer {
    pub fn new(mode: Mode) -> Self {
        Self {
            shared: Arc::new(SlicerState {
                table: Mutex::new(Table::new(mode, now())),
                over: AtomicBool::new(false),
            }),
            thread: None,
        }
    }

    /// Lets a container in, or changes its share. The first who has to take turns starts the thread.
    pub fn take(&mut self, name: ContainerName, seat: Seat) -> io::Result<()> {
        let gated = {
            let mut table = self.shared.lock();
            table.take(now(), name, seat);
            table.is_gated()
        };
        match &self.thread {
            Some(thread) => thread.thread().unpark(),
            None if gated => {
                let shared = Arc::clone(&self.shared);
                let made = thread::Builder::new()
                    .name("time slicer".to_owned())
                    .spawn(move || shared.run());
                match made {
                    Ok(thread) => self.thread = Some(thread),
                    Err(error) => {
                        self.shared.lock().leave(now(), name);
                        return Err(error);
                    }
                }
            }
            None => {}
        }
        Ok(())
    }

    /// How long the device has worked for a container since it was let in; None for one that takes no turns,
    /// of which nobody knows.
    pub fn worked(&self, name: ContainerName) -> Option<DeviceTime> {
        self.shared.lock().worked(name)
    }

    /// Lets a container go. Fine for one that is not there.
    pub fn leave(&self, name: ContainerName) {
        self.shared.lock().leave(now(), name);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for TimeSlicer {
    /// Gates stay as they are: without a heartbeat they open within two seconds, and the next server may
    /// be there before.
    fn drop(&mut self) {
        self.shared.over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl SlicerState {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while !self.over.load(SeqCst) {
            let next = self.lock().step(now());
            match next {
                Some(pause) => thread::park_timeout(Duration::from_nanos(pause)),
                None => thread::park(),
            }
        }
    }
}

/// One container's work as the thread follows it.
struct SlicedWork {
    seat: Seat,
    /// Its processes, by their slots, and how many slots had to be read for that.
    processes: Vec<Followed>,
    slots: usize,
    looked: Nanos,
    /// When it last launched or finished something.
    moved: Nanos,
    launched: Nanos,
    /// Until when it is not asked after turns that it did not use, and for how long the last time.
    shy_until: Nanos,
    shy_for: Nanos,
    /// Since when it has the turn, and whether anything came through.
    turn: Option<OpenSlice>,
    worked: DeviceTime,
}

/// One process: by itself, since what one of them watches says nothing about another's work.
#[derive(Clone, Copy)]
struct Followed {
    says: ProcessTraffic,
    /// When it last launched or finished something.
    moved: Nanos,
    /// Work that counts as done though nobody saw it.
    written_off: u64,
}

impl Followed {
    /// What it says now, after what it said before.
    fn on(self, says: ProcessTraffic, now: Nanos) -> Self {
        let stood = (self.says.launched, self.says.unfinished) == (says.launched, says.unfinished);
        let moved = if stood { self.moved } else { now };
        let patience = if says.watching > 0 || says.waiting > 0 {
            GONE
        } else {
            UNWATCHED
        };
        let written_off = if now.saturating_sub(moved) >= patience {
            says.unfinished
        } else {
            self.written_off.min(says.unfinished)
        };
        Self {
            says,
            moved,
            written_off,
        }
    }

    fn in_flight(&self) -> u64 {
        self.says.unfinished - self.written_off
    }
}

#[derive(Clone, Copy)]
struct OpenSlice {
    opened: Nanos,
    used: bool,
    /// The device worked so long for it.
    busy: Nanos,
    closed: bool,
}

impl SlicedWork {
    fn is_gated(&self, alone_and_elastic: bool) -> bool {
        self.seat.share_milli < 1000 && !alone_and_elastic
    }

    fn in_flight(&self) -> bool {
        self.processes.iter().any(|process| process.in_flight() > 0)
    }

    fn is_at_the_gate(&self) -> bool {
        self.processes
            .iter()
            .any(|process| process.says.waiting > 0)
    }

    fn wants(&self, now: Nanos) -> bool {
        let waits = self.is_at_the_gate() && now >= self.shy_until;
        waits || self.launched != 0 && now - self.launched < WANTS_STILL
    }

    /// Reads the page and counts the time since the last look.
    fn look(&mut self, now: Nanos) {
        let was_busy = self.in_flight();
        // Garbled or cut off from inside: as if nobody were there.
        let traffic = self.seat.pages.traffic(self.seat.at).unwrap_or_default();
        let before = std::mem::take(&mut self.processes);
        let (mut launched, mut moved) = (false, before.len() != traffic.processes.len());
        for says in traffic.processes {
            let found = before.binary_search_by_key(&says.slot, |process| process.says.slot);
            let then = found.map_or_else(
                |_| Followed {
                    says: ProcessTraffic {
                        slot: says.slot,
                        ..ProcessTraffic::default()
                    },
                    moved: now,
                    written_off: 0,
                },
                |at| before[at],
            );
            launched |= says.launched != then.says.launched;
            let process = then.on(says, now);
            moved |= process.moved == now;
            self.processes.push(process);
        }
        self.slots = traffic.slots;
        if launched {
            self.launched = now;
        }
        if moved {
            self.moved = now;
        }
        let is_busy = self.in_flight();
        if let Some(turn) = &mut self.turn {
            turn.used |= launched;
            if was_busy || launched || is_busy {
                let busy = now.saturating_sub(self.looked.max(turn.opened));
                turn.busy += busy;
                self.worked.time += busy;
                self.worked.last = now;
            }
        }
        self.looked = now;
    }
}

/// Everybody at one device, and the arbiter between them.
struct Table {
    mode: Mode,
    arbiter: Arbiter<ContainerName>,
    places: BTreeMap<ContainerName, SlicedWork>,
    beat: Nanos,
}

impl Table {
    fn new(mode: Mode, now: Nanos) -> Self {
        Self {
            mode,
            arbiter: Arbiter::new(mode, now),
            places: BTreeMap::new(),
            beat: 0,
        }
    }

    fn take(&mut self, now: Nanos, name: ContainerName, seat: Seat) {
        self.arbiter.set(now, name, seat.share_milli);
        match self.places.get_mut(&name) {
            Some(place) => place.seat = seat,
            None => {
                let place = SlicedWork {
                    seat,
                    processes: Vec::new(),
                    slots: 0,
                    looked: 0,
                    moved: now,
                    launched: 0,
                    shy_until: 0,
                    shy_for: 0,
                    turn: None,
                    worked: DeviceTime { time: 0, last: now },
                };
                self.places.insert(name, place);
            }
        }
        self.set_modes(now);
    }

    fn worked(&self, name: ContainerName) -> Option<DeviceTime> {
        let spare = self.mode == Mode::Elastic && self.places.len() == 1;
        let place = self.places.get(&name)?;
        place.is_gated(spare).then_some(place.worked)
    }

    fn leave(&mut self, now: Nanos, name: ContainerName) {
        self.arbiter.remove(now, name);
        if let Some(place) = self.places.remove(&name) {
            open(&place.seat, 0);
        }
        self.set_modes(now);
    }

    /// A whole card is its holder's alone, and nobody takes turns there; nor does whoever is alone where
    /// unused time is given away.
    fn set_modes(&mut self, now: Nanos) {
        let spare = self.mode == Mode::Elastic && self.places.len() == 1;
        for (name, place) in &mut self.places {
            let gated = place.is_gated(spare);
            let control = place.seat.pages.control();
            let device = &control.device[place.seat.at];
            let before = device.mode.load(SeqCst);
            let mode = if gated { MODE_WINDOW } else { MODE_OFF };
            if gated {
                control.heartbeat.store(now, SeqCst);
            }
            if before != mode {
                control.set_mode(place.seat.at, mode);
            }
            if !gated {
                if place.turn.take().is_some() {
                    // Whatever it used, it used of its own.
                    self.arbiter.drained(now, *name, 0);
                }
                self.arbiter.wants(now, *name, false);
                open(&place.seat, 0);
            }
        }
    }

    fn is_gated(&self) -> bool {
        let spare = self.mode == Mode::Elastic && self.places.len() == 1;
        self.places.values().any(|place| place.is_gated(spare))
    }

    /// Looks, decides, opens and closes; says after how many nanoseconds to come again, None: when
    /// something was told.
    fn step(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.is_gated() {
            return None;
        }
        let spare = self.mode == Mode::Elastic && self.places.len() == 1;
        let lively = self
            .places
            .values()
            .any(|place| place.turn.is_some() || now.saturating_sub(place.moved) < QUIET);
        let beats = now.saturating_sub(self.beat) >= BEAT;
        if beats {
            self.beat = now;
        }
        let mut next = now + if lively { WANTS } else { WANTS_IN_QUIET };
        for (name, place) in &mut self.places {
            if !place.is_gated(spare) {
                continue;
            }
            if beats {
                place.seat.pages.control().heartbeat.store(now, SeqCst);
            }
            let pace = match (place.turn, lively) {
                (Some(turn), _) if turn.closed => DRAINING,
                (Some(_), _) => LOOK,
                (None, true) => WANTS,
                (None, false) => WANTS_IN_QUIET,
            };
            let due = place.looked + pace.max(LOOK_PER_SLOT * place.slots as u64);
            if due <= now {
                place.look(now);
                self.arbiter.wants(now, *name, place.wants(now));
                next = next.min(now + pace);
            } else {
                next = next.min(due);
            }
            let Some(turn) = place.turn else { continue };
            let idle = if turn.used {
                now.saturating_sub(place.moved) >= YIELDED_AFTER
            } else {
                now.saturating_sub(turn.opened) >= FIRST_SLICE_TIMEOUT
            };
            if !turn.closed && !place.in_flight() && !place.is_at_the_gate() && idle
                || !turn.closed && !turn.used && idle
            {
                self.arbiter.yielded(now, *name);
            }
        }
        self.obey(now, &mut next);
        for place in self.places.values() {
            if place.is_gated(spare) {
                let is_open = place.turn.is_some_and(|turn| !turn.closed);
                if is_open {
                    // Again: whoever came in between, or was missed.
                    if place.is_at_the_gate() {
                        wake(&place.seat);
                    }
                } else {
                    gate(&place.seat).store(0, SeqCst);
                }
            }
        }
        Some(next.saturating_sub(now).max(20 * MICROSECOND))
    }

    /// Does what the arbiter says until it says to wait.
    fn obey(&mut self, now: Nanos, next: &mut Nanos) {
        // Each round opens or closes one gate, or ends one turn.
        for _ in 0..4 {
            self.settle(now);
            match self.arbiter.next(now) {
                SliceCommand::Open { tenant, until } => {
                    let Some(place) = self.places.get_mut(&tenant) else {
                        continue;
                    };
                    place.turn = Some(OpenSlice {
                        opened: now,
                        used: false,
                        busy: 0,
                        closed: false,
                    });
                    open(&place.seat, until);
                    *next = (*next).min(now + LOOK).min(until);
                }
                SliceCommand::Close { tenant } => {
                    let Some(place) = self.places.get_mut(&tenant) else {
                        continue;
                    };
                    gate(&place.seat).store(0, SeqCst);
                    place.look(now);
                    match &mut place.turn {
                        Some(turn) => turn.closed = true,
                        None => self.arbiter.drained(now, tenant, 0),
                    }
                    *next = (*next).min(now + DRAINING);
                }
                SliceCommand::Wait { until } => {
                    if let Some(until) = until {
                        *next = (*next).min(until);
                    }
                    return;
                }
            }
        }
    }

    /// Ends the turns that are closed and whose work is done, and charges for them.
    fn settle(&mut self, now: Nanos) {
        for (name, place) in &mut self.places {
            let Some(turn) = place.turn else { continue };
            if !turn.closed || place.in_flight() {
                continue;
            }
            place.turn = None;
            let busy = if turn.used {
                place.shy_for = 0;
                turn.busy
            } else {
                place.shy_for = (place.shy_for * 2).clamp(SHY, MAX_SHY);
                place.shy_until = now + place.shy_for;
                // A turn that was claimed and not used kept the others away as well.
                now.saturating_sub(turn.opened).min(WINDOW)
            };
            self.arbiter.drained(now, *name, busy);
            self.arbiter.wants(now, *name, place.wants(now));
        }
    }
}

fn gate(seat: &Seat) -> &AtomicU32 {
    &seat.pages.control().device[seat.at].gate_open
}

/// Opens a container's gate, and wakes whoever sleeps there.
fn open(seat: &Seat, until: Nanos) {
    let device = &seat.pages.control().device[seat.at];
    device.window_end.store(until, SeqCst);
    device.gate_open.store(1, SeqCst);
    wake(seat);
}

fn wake(seat: &Seat) {
    // Not private: the sleepers are other processes, which map the same file.
    // SAFETY: the word lives through the call, and the kernel only uses its address.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            gate(seat).as_ptr(),
            libc::FUTEX_WAKE,
            i32::MAX,
        );
    }
}

/// Nanoseconds of the clock that containers read too.
pub fn now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests;
