//! The streams of this process and how far each has come: what was launched into it last, and a marker
//! behind which all is known to be done. A stream has its mark at one of a few places that its number
//! gives, so that many streams cost a launch no more than one. Where all of those are taken the next
//! launch takes one whose work is done, and waits for one where there is none: more streams may have
//! less at work at the same time, but none is left uncounted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::lock::SpinLock;
use crate::region::SlotDevice;
use crate::threads::{self, Threads};
use crate::{Code, OK, kernel, real, recording};

/// Places for marks, in sets of so many.
const SETS: usize = 32;
const WAYS: usize = 8;
const WORDS: usize = SETS * WAYS / 64;
/// Nanoseconds of queued work after which a stream waits for its marker.
const QUEUE: u64 = 1_500_000;
/// Launches between two markers at most: one marker for each would cost more than it tells. A stream begins
/// with one and gets more as markers come soon, so that a first burst of long ones is short.
const BETWEEN: u32 = 32;
/// How often a thread that waits for a marker looks, and for how long: work may wait for something that
/// this very thread does afterwards.
const LOOK: u64 = 50_000;
const LOOKS: u32 = 10_000;

/// How the driver numbers the default streams: the one of a context, and that of each thread in it.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;
/// A stream that ended before its work did. No driver uses this number.
const ENDED: u64 = u64::MAX;
/// The driver's "not ready" of an event.
const NOT_DONE: Code = 600;
/// What the driver says of streams that record, and of those that must not be used because others do.
const RECORDING: core::ops::RangeInclusive<Code> = 900..=910;
/// An event without a time: cheaper, and no code asks for it.
const WITHOUT_TIME: u32 = 2;

/// A stream and the last marker in it. All zero: none. Launches are numbered by device, as `submitted`
/// counts them.
#[repr(C, align(64))]
pub struct Mark {
    stream: AtomicU64,
    /// Where the stream lives: markers of one context mean nothing in another.
    context: AtomicU64,
    /// Whose it is, where each thread has its own.
    thread: AtomicU64,
    event: AtomicU64,
    /// When the marker was put there; 0: there is none on its way.
    since: AtomicU64,
    /// The marker that was waited for in vain, by its `since`.
    in_vain: AtomicU64,
    /// The last launch before that marker.
    behind: AtomicU64,
    /// The stream's last launch of all.
    last: AtomicU64,
    /// The last that is known to be done.
    done: AtomicU64,
    /// The window in which a thread looked at the marker.
    window: AtomicU64,
    device: AtomicU32,
    launches: AtomicU32,
    /// How many launches there may be between two markers here, beyond one.
    more: AtomicU32,
    lock: SpinLock,
}

/// What a process launches, and where. All zero: nothing yet.
#[repr(C)]
pub struct Launches {
    pub threads: Threads,
    /// One bit for each place with a mark.
    taken: [AtomicU64; WORDS],
    /// The place that was found busy last.
    busy: AtomicU32,
    claiming: SpinLock,
    marks: [[Mark; WAYS]; SETS],
}

/// Where a launch goes: the thread's context, and its device by the place in the control page.
#[derive(Clone, Copy)]
pub struct LaunchPlace {
    pub context: u64,
    pub device: usize,
}

/// As the driver numbers a stream, whatever flavour the caller's name for it has.
pub fn number(stream: u64, per_thread: bool) -> u64 {
    match (stream, per_thread) {
        (0, false) => LEGACY,
        (0, true) => PER_THREAD,
        (stream, _) => stream,
    }
}

impl Launches {
    fn at(&self, place: usize) -> &Mark {
        &self.marks[place / WAYS % SETS][place % WAYS]
    }

    /// The mark of a stream, where it has one. Asks the driver nothing.
    pub fn find(&self, number: u64) -> Option<&Mark> {
        if number > PER_THREAD {
            return self.marks[set_of(number, 0, 0)]
                .iter()
                .find(|mark| mark.stream.load(SeqCst) == number);
        }
        let me = threads::me();
        let mark = self.at(self.threads.place(me)?);
        let is_it = mark.stream.load(SeqCst) == number
            && (number == LEGACY || mark.thread.load(SeqCst) == me);
        is_it.then_some(mark)
    }

    /// The mark of a stream of the calling thread's context, made where it has none. `own` says what is
    /// done meanwhile, should it have to wait for a place.
    pub fn of(&self, here: LaunchPlace, number: u64, own: &SlotDevice) -> Option<&Mark> {
        let thread = if number == PER_THREAD {
            threads::me()
        } else {
            0
        };
        let context = if number > PER_THREAD { 0 } else { here.context };
        let set = set_of(number, context, thread);
        let mut looks = 0;
        let way = loop {
            let way = self.claiming.hold(|| {
                self.known(set, number, here.context, thread).or_else(|| {
                    let way = self.vacant(set, looks >= LOOKS)?;
                    self.marks[set][way].begin(here, number, thread);
                    let place = set * WAYS + way;
                    self.taken[place / 64].fetch_or(1 << (place % 64), SeqCst);
                    Some(way)
                })
            });
            if looks > 0 && way.is_some() {
                own.watching.fetch_sub(1, SeqCst);
            }
            if let Some(way) = way {
                break way;
            }
            if looks == 0 {
                own.watching.fetch_add(1, SeqCst);
            }
            looks += 1;
            recording::undisturbed(|| {
                for mark in &self.marks[set] {
                    mark.look(false);
                }
            });
            kernel::sleep(LOOK);
        };
        if number <= PER_THREAD {
            self.threads.remember(threads::me(), set * WAYS + way);
        }
        let mark = &self.marks[set][way];
        mark.prepare();
        Some(mark)
    }

    fn known(&self, set: usize, number: u64, context: u64, thread: u64) -> Option<usize> {
        self.marks[set].iter().position(|mark| {
            mark.stream.load(SeqCst) == number
                && (number > PER_THREAD || mark.context.load(SeqCst) == context)
                && mark.thread.load(SeqCst) == thread
        })
    }

    /// A place of a set for another mark; `any` where no work may be waited for any longer.
    fn vacant(&self, set: usize, any: bool) -> Option<usize> {
        let marks = &self.marks[set];
        let free = marks.iter().position(|mark| mark.stream.load(SeqCst) == 0);
        if free.is_some() {
            return free;
        }
        let idle = marks.iter().position(Mark::clear_idle);
        let found = idle.or_else(|| {
            any.then(|| {
                marks[0].lock.hold(|| marks[0].clear());
                0
            })
        });
        if found.is_some() {
            // It may have been a default stream's, and the next one has the same number.
            self.threads.forget_all();
        }
        found
    }

    /// Every mark there is, from the one on that was found busy last.
    fn taken(&self) -> impl Iterator<Item = (usize, &Mark)> {
        let first = self.busy.load(SeqCst) as usize % (SETS * WAYS);
        let before = u64::MAX << (first % 64);
        // The word of that one comes twice: first from it on, at the end up to it.
        (0..=WORDS).flat_map(move |turn| {
            let at = (first / 64 + turn) % WORDS;
            let all = self.taken[at].load(SeqCst);
            let mut left = match turn {
                0 => all & before,
                WORDS => all & !before,
                _ => all,
            };
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then(|| (at * 64 + bit, self.at(at * 64 + bit)))
            })
        })
    }

    fn busy_on(&self, device: usize) -> impl Iterator<Item = (usize, &Mark)> {
        self.taken()
            .filter(move |(_, mark)| mark.is_busy() && mark.device.load(SeqCst) as usize == device)
    }

    /// Looks how far a device has come and says it in the page; true when all that was submitted is done.
    /// Stops at the first stream that is still at work, so it costs as much for many as for one.
    pub fn report(&self, device: usize, own: &SlotDevice, at_the_gate: bool) -> bool {
        if self.busy_on(device).next().is_some() {
            recording::undisturbed(|| {
                let still = self
                    .busy_on(device)
                    .find(|(_, mark)| !mark.look(at_the_gate));
                if let Some((place, _)) = still {
                    self.busy.store(place as u32, SeqCst);
                }
            });
        }
        self.tell(device, own)
    }

    /// Says in the page what is known: everything up to the first launch that is not done.
    pub fn tell(&self, device: usize, own: &SlotDevice) -> bool {
        // Read first: what is submitted from here on is not among what the marks say.
        let submitted = own.submitted.load(SeqCst);
        let done = self
            .busy_on(device)
            .map(|(_, mark)| mark.done.load(SeqCst))
            .min();
        own.finished.fetch_max(done.unwrap_or(submitted), SeqCst);
        done.is_none()
    }

    /// All that was launched up to `last` is done, in every stream of which `is_waited_for` holds; it gets
    /// the stream, the context and the thread.
    pub fn finish(&self, last: u64, is_waited_for: impl Fn(u64, u64, u64) -> bool) {
        for (_, mark) in self.taken() {
            let [stream, context, thread] =
                [&mark.stream, &mark.context, &mark.thread].map(|word| word.load(SeqCst));
            if stream != 0 && is_waited_for(stream, context, thread) {
                mark.done.fetch_max(last, SeqCst);
            }
        }
    }

    /// Lets go of a stream that is about to end. What it has not done yet is still waited for.
    pub fn forget(&self, number: u64) {
        if number <= PER_THREAD {
            return;
        }
        for mark in &self.marks[set_of(number, 0, 0)] {
            if mark.stream.load(SeqCst) == number {
                mark.lock.hold(|| mark.end(number));
            }
        }
    }

    /// Lets go of the streams of a context that is about to end; their markers end with it.
    pub fn forget_context(&self, context: u64) {
        self.threads.forget_all();
        for (_, mark) in self.taken() {
            if context != 0 && mark.context.load(SeqCst) == context {
                mark.lock.hold(|| {
                    mark.event.store(0, SeqCst);
                    mark.clear();
                });
            }
        }
    }

    /// Lets go of everything: in a forked child nothing of the parent's is there.
    pub fn forget_all(&self) {
        self.threads.forget_all();
        self.claiming.free();
        for (_, mark) in self.taken() {
            mark.lock.free();
            mark.event.store(0, SeqCst);
            mark.clear();
        }
        for word in &self.taken {
            word.store(0, SeqCst);
        }
    }
}

/// Does so in the context that a stream lives in, which may be another than the thread's: launches go where
/// the stream is.
pub fn in_context_of<T>(number: u64, work: impl FnOnce() -> T) -> T {
    let (mut own, mut theirs) = (0u64, 0u64);
    let is_elsewhere = number > PER_THREAD
        && real!(cuStreamGetCtx(number, &mut theirs): fn(u64, &mut u64)) == OK
        && real!(cuCtxGetCurrent(&mut own): fn(&mut u64)) == OK
        && theirs != own
        && theirs != 0;
    if !is_elsewhere || real!(cuCtxPushCurrent_v2(theirs): fn(u64)) != OK {
        return work();
    }
    let answer = work();
    real!(cuCtxPopCurrent_v2(&mut own): fn(&mut u64));
    answer
}

/// Streams have numbers that are no others'; default streams have the same in each context.
fn set_of(number: u64, context: u64, thread: u64) -> usize {
    let own = number ^ context.rotate_left(21) ^ thread.rotate_left(42);
    (own.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize % SETS
}

impl Mark {
    /// The place of its device in the control page.
    pub fn device(&self) -> usize {
        self.device.load(SeqCst) as usize
    }

    pub fn context(&self) -> u64 {
        self.context.load(SeqCst)
    }

    fn is_busy(&self) -> bool {
        self.last.load(SeqCst) > self.done.load(SeqCst)
    }

    /// Counts a launch; true when a thread has to look at the marker before it.
    pub fn is_due(&self, window: u64) -> bool {
        // Two threads may count as one: that only moves the next marker, and costs less.
        let count = self.launches.load(Relaxed) + 1;
        self.launches.store(count, Relaxed);
        count > self.most() || self.window.load(SeqCst) != window
    }

    fn most(&self) -> u32 {
        1 + self.more.load(SeqCst).min(BETWEEN - 1)
    }

    /// Makes the event where there is none yet. It belongs to the thread's context, so only the thread that launches
    /// there makes it.
    pub fn prepare(&self) {
        if self.event.load(SeqCst) != 0 {
            return;
        }
        self.lock.hold(|| {
            let mut event = 0;
            if self.event.load(SeqCst) == 0
                && real!(cuEventCreate(&mut event, WITHOUT_TIME): fn(&mut u64, u32)) == OK
            {
                self.event.store(event, SeqCst);
            }
        });
    }

    /// Numbers a launch. The mark says that it is at work before the page counts the launch, so that
    /// no thread takes it for done in between.
    pub fn launch(&self, own: &SlotDevice) {
        let expected = own.submitted.load(SeqCst) + 1;
        self.last.fetch_max(expected, SeqCst);
        let number = own.submitted.fetch_add(1, SeqCst) + 1;
        if number != expected {
            self.last.fetch_max(number, SeqCst);
        }
    }

    /// Waits while the stream has more queued than it should: until the last marker is reached, once there
    /// are enough launches behind it. Puts the next marker behind what was launched so far.
    pub fn bound(&self, own: &SlotDevice, window: u64) {
        self.lock.hold(|| {
            let most = self.most();
            let is_full = self.launches.load(SeqCst) > most;
            if !is_full && self.window.load(SeqCst) == window {
                // Another thread looked meanwhile.
                return;
            }
            self.window.store(window, SeqCst);
            let since = self.since.load(SeqCst);
            recording::undisturbed(|| {
                let mut looks = 0;
                while !self.is_reached() {
                    let in_vain = self.in_vain.load(SeqCst) == since || looks >= LOOKS;
                    if !is_full || in_vain {
                        if in_vain {
                            self.in_vain.store(since, SeqCst);
                            self.launches.store(0, SeqCst);
                        }
                        break;
                    }
                    if looks == 0 {
                        own.watching.fetch_add(1, SeqCst);
                    }
                    looks += 1;
                    kernel::sleep(LOOK);
                }
                if looks > 0 {
                    own.watching.fetch_sub(1, SeqCst);
                }
                if self.since.load(SeqCst) != 0 {
                    return;
                }
                let now = kernel::now();
                if since != 0 {
                    self.adapt(most, now.saturating_sub(since), looks > 0);
                }
                self.launches.store(0, SeqCst);
                if self.is_busy() {
                    self.put(self.stream.load(SeqCst), now);
                }
            });
        });
    }

    /// Fewer launches between markers where one had to be waited for, more where they come soon. How long
    /// one took that was there already says how long no thread looked.
    fn adapt(&self, most: u32, took: u64, waited: bool) {
        let next = if took > QUEUE && waited {
            most.div_ceil(2)
        } else if took < QUEUE / 4 {
            (most * 2).min(BETWEEN)
        } else {
            most
        };
        self.more.store(next - 1, SeqCst);
    }

    /// Whether no marker is on its way any more. Not waited for in the driver: it would hold its locks
    /// meanwhile.
    fn is_reached(&self) -> bool {
        if self.since.load(SeqCst) == 0 {
            return true;
        }
        let event = self.event.load(SeqCst);
        if real!(cuEventQuery(event): fn(u64)) == NOT_DONE {
            return false;
        }
        self.since.store(0, SeqCst);
        self.done.fetch_max(self.behind.load(SeqCst), SeqCst);
        true
    }

    /// Puts a marker behind all that was launched, by way of that stream.
    fn put(&self, stream: u64, now: u64) {
        let event = self.event.load(SeqCst);
        if event == 0 {
            return;
        }
        let behind = self.last.load(SeqCst);
        let code = real!(cuEventRecord(event, stream): fn(u64, u64));
        if code == OK {
            self.behind.store(behind, SeqCst);
            self.since.store(now, SeqCst);
            self.launches.store(0, SeqCst);
        } else if !RECORDING.contains(&code) {
            // The stream or its context is gone, or the device is lost: no call will ever say more.
            self.done.fetch_max(behind, SeqCst);
        }
    }

    /// Looks, or puts a marker where there is none; true when nothing of it is at work any more. Leaves a
    /// stream alone that another thread is at, or that must not be touched now.
    fn look(&self, at_the_gate: bool) -> bool {
        self.lock.try_hold(|| {
            if !self.is_busy() || !self.is_reached() || !self.is_busy() {
                return;
            }
            let stream = self.stream.load(SeqCst);
            let others = stream == PER_THREAD && self.thread.load(SeqCst) != threads::me();
            let by = match (stream, others) {
                (0 | ENDED, _) => return,
                // Only its own thread can name that stream. The context's waits for it, and makes others
                // wait for itself, which does no harm where everything has to come to an end anyway.
                (_, true) if at_the_gate => LEGACY,
                (_, true) => return,
                (stream, false) => stream,
            };
            if recording::runs(by) {
                self.put(by, kernel::now());
                // On an idle stream it is there at once.
                self.is_reached();
            }
        });
        !self.is_busy()
    }

    /// Whose the place is from now on. The number of the stream comes last: by it others find the mark.
    fn begin(&self, here: LaunchPlace, number: u64, thread: u64) {
        if self.context.load(SeqCst) != here.context {
            let event = self.event.swap(0, SeqCst);
            if event != 0 {
                real!(cuEventDestroy_v2(event): fn(u64));
            }
        }
        self.context.store(here.context, SeqCst);
        self.device.store(here.device as u32, SeqCst);
        self.thread.store(thread, SeqCst);
        // Of the last one there: a thread may have said so late.
        self.last.store(0, SeqCst);
        self.done.store(0, SeqCst);
        self.stream.store(number, SeqCst);
    }

    /// The stream is about to end. The driver does its work to the end all the same.
    fn end(&self, number: u64) {
        recording::undisturbed(|| {
            if self.is_busy() && recording::runs(number) {
                self.put(number, kernel::now());
            }
        });
        if self.is_busy() && self.since.load(SeqCst) != 0 {
            // What the marker does not tell is lost.
            self.last.store(self.behind.load(SeqCst), SeqCst);
            self.stream.store(ENDED, SeqCst);
        } else {
            self.clear();
        }
    }

    /// Clears it unless a thread is at it; says whether.
    fn clear_idle(&self) -> bool {
        let mut cleared = false;
        if self.is_busy() {
            return cleared;
        }
        self.lock.try_hold(|| {
            cleared = !self.is_busy();
            if cleared {
                self.clear();
            }
        });
        cleared
    }

    /// All but the event and its context, which the next stream may use.
    fn clear(&self) {
        for word in [
            &self.stream,
            &self.since,
            &self.in_vain,
            &self.behind,
            &self.last,
            &self.done,
            &self.window,
        ] {
            word.store(0, SeqCst);
        }
        self.launches.store(0, SeqCst);
        self.more.store(0, SeqCst);
    }
}
