//! Turns in virtual time: real pages, the real arbiter between them, and tenants that behave as hooks do, or
//! as nobody should. The device is an ideal one that works off what it was given in order.

use std::collections::VecDeque;
use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;

use rules::names::SessionId;

use super::super::inject::InjectedSlice;
use super::super::region::{AccountPage, DeviceTerms, MAGIC, Slot, SlotDevice, VERSION};
use super::*;

/// One step of virtual time.
const TICK: Nanos = 20 * MICROSECOND;
const SECOND: Nanos = 1_000 * MILLISECOND;
/// Work that a hook lets wait on the device.
const QUEUED: Nanos = 1_500 * MICROSECOND;
/// Virtual time begins somewhere: 0 means "never" here and there.
const BEGIN: Nanos = 100 * SECOND;

/// How somebody behaves.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Always wants more.
    Saturating,
    /// One piece of work each so many nanoseconds.
    Every(Nanos),
    /// Says that it waits, and never launches.
    Idler,
    /// Launched once, and its process was killed before anybody saw the end.
    Killed,
    /// Launches once and never asks whether that is done.
    Once,
    /// Its page is rubbish.
    Garbled,
}

struct Guest {
    name: ContainerName,
    folder: tempfile::TempDir,
    page: fs::File,
    pages: Arc<Pages>,
    manner: Manner,
    kernel: Nanos,
    submitted: u64,
    /// Really done, and as its page says.
    done: u64,
    told: u64,
    waiting: u32,
    /// When it wants to launch next.
    due: Nanos,
    /// The longest time from wanting to launching, and the device's time for it.
    waited: Nanos,
    used: Nanos,
}

struct SlicingFixture {
    table: Table,
    guests: Vec<Guest>,
    /// What the device has to do, in order: whose, and how long yet.
    queue: VecDeque<(usize, Nanos)>,
    now: Nanos,
    next: Option<Nanos>,
    steps: u64,
}

impl SlicingFixture {
    fn new(mode: Mode) -> Self {
        Self {
            table: Table::new(mode, BEGIN),
            guests: Vec::new(),
            queue: VecDeque::new(),
            now: BEGIN,
            next: Some(BEGIN),
            steps: 0,
        }
    }

    fn enter(&mut self, share_milli: u32, manner: Manner, kernel: Nanos) {
        let number = self.guests.len();
        let name = ContainerName {
            session: SessionId(uuid::Uuid::from_u128(number as u128 + 1)),
            incarnation: 1,
            index: 0,
        };
        let folder = tempfile::tempdir().expect("a directory");
        let slice = InjectedSlice {
            card: 0,
            terms: DeviceTerms {
                uuid: [7; 16],
                mem_limit: 1 << 30,
                mem_overhead: 0,
                share_milli,
                mode: MODE_OFF,
            },
        };
        let pages = Arc::new(Pages::make(folder.path(), &[slice]).expect("pages"));
        let page = fs::OpenOptions::new()
            .write(true)
            .open(folder.path().join("account"))
            .expect("it was made");
        let guest = Guest {
            name,
            folder,
            page,
            pages: Arc::clone(&pages),
            manner,
            kernel,
            submitted: 0,
            done: 0,
            told: 0,
            waiting: 0,
            due: BEGIN,
            waited: 0,
            used: 0,
        };
        guest.write(offset_of!(AccountPage, high), &1_u32.to_le_bytes());
        let owner = offset_of!(AccountPage, slot) + offset_of!(Slot, owner);
        guest.write(owner, &77_u64.to_le_bytes());
        if manner == Manner::Garbled {
            guest.write(0, &[0xa5; 70_000]);
        }
        let seat = Seat {
            pages,
            at: 0,
            share_milli,
        };
        self.table.take(self.now, name, seat);
        self.guests.push(guest);
        self.next = Some(self.now);
    }

    /// Lets so much time pass.
    fn run(&mut self, time: Nanos) {
        let until = self.now + time;
        while self.now < until {
            let (now, queue) = (self.now, &mut self.queue);
            for (at, guest) in self.guests.iter_mut().enumerate() {
                guest.act(now, at, queue);
            }
            if self.next.is_some_and(|next| next <= now) {
                self.next = self.table.step(now).map(|pause| now + pause);
                self.steps += 1;
                let open = self.guests.iter().filter(|guest| guest.is_open()).count();
                assert!(open <= 1, "two gates are open");
            }
            let mut left = TICK;
            while left > 0
                && let Some((whose, rest)) = self.queue.front_mut()
            {
                let worked = left.min(*rest);
                *rest -= worked;
                left -= worked;
                self.guests[*whose].used += worked;
                if *rest == 0 {
                    self.guests[*whose].done += 1;
                    self.queue.pop_front();
                }
            }
            self.now += TICK;
        }
    }

    /// Parts of the time that the device worked for each during so much more of it, in hundredths.
    fn shares(&mut self, time: Nanos) -> Vec<f64> {
        let before: Vec<Nanos> = self.guests.iter().map(|guest| guest.used).collect();
        self.run(time);
        self.guests
            .iter()
            .zip(before)
            .map(|(guest, before)| (guest.used - before) as f64 * 100.0 / time as f64)
            .collect()
    }
}

impl Guest {
    fn is_open(&self) -> bool {
        let device = &self.pages.control().device[0];
        device.mode.load(SeqCst) == MODE_WINDOW && device.gate_open.load(SeqCst) != 0
    }

    fn may_pass(&self) -> bool {
        let device = &self.pages.control().device[0];
        device.mode.load(SeqCst) == MODE_OFF || device.gate_open.load(SeqCst) != 0
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.page.write_all_at(bytes, at as u64).expect("written");
    }

    fn say(&self, field: usize, bytes: &[u8]) {
        let place = offset_of!(AccountPage, slot) + offset_of!(Slot, device) + field;
        self.write(place, bytes);
    }

    fn launch(&mut self, at: usize, queue: &mut VecDeque<(usize, Nanos)>) {
        queue.push_back((at, self.kernel));
        self.submitted += 1;
        self.say(
            offset_of!(SlotDevice, submitted),
            &self.submitted.to_le_bytes(),
        );
    }

    fn tell(&mut self, waiting: u32) {
        if self.waiting != waiting {
            self.waiting = waiting;
            self.say(offset_of!(SlotDevice, waiting), &waiting.to_le_bytes());
        }
        // Whoever waits looks; whoever launches looks at every sixteenth.
        let seen = if waiting > 0 {
            self.done
        } else {
            self.done - self.done % 16
        };
        if seen > self.told {
            self.told = seen;
            self.say(offset_of!(SlotDevice, finished), &seen.to_le_bytes());
        }
    }

    fn act(&mut self, now: Nanos, at: usize, queue: &mut VecDeque<(usize, Nanos)>) {
        match self.manner {
            Manner::Saturating => {
                while self.may_pass() && (self.submitted - self.done) * self.kernel < QUEUED {
                    self.launch(at, queue);
                }
                self.tell(u32::from(!self.may_pass()));
            }
            Manner::Every(period) => {
                if self.due <= now && self.may_pass() {
                    self.waited = self.waited.max(now - self.due);
                    self.launch(at, queue);
                    self.due = now + period;
                }
                self.tell(u32::from(self.due <= now));
            }
            Manner::Idler => self.tell(1),
            Manner::Killed | Manner::Once => {
                if self.submitted == 0 {
                    let dead = self.manner == Manner::Killed;
                    self.say(
                        offset_of!(SlotDevice, waiting),
                        &u32::from(!self.may_pass() || dead).to_le_bytes(),
                    );
                    if self.may_pass() {
                        self.launch(at, queue);
                    }
                }
            }
            Manner::Garbled => {}
        }
    }
}

const KERNEL: Nanos = 200 * MICROSECOND;

/// Everybody within so many points of what is right.
fn near(got: &[f64], right: &[f64], points: f64) {
    let far = got
        .iter()
        .zip(right)
        .any(|(got, right)| (got - right).abs() > points);
    assert!(!far, "{got:?}, not {right:?}");
}

#[test]
fn whoever_always_wants_more_gets_their_share_through_real_pages() {
    for (shares, right) in [
        (&[300, 700][..], &[30.0, 70.0][..]),
        (&[350, 300, 200, 150], &[35.0, 30.0, 20.0, 15.0]),
        (&[250], &[25.0]),
    ] {
        let mut world = SlicingFixture::new(Mode::Hard);
        for share in shares {
            world.enter(*share, Manner::Saturating, KERNEL);
        }
        world.run(SECOND);
        let got = world.shares(3 * SECOND);
        println!("{shares:?}: {got:?}, {} steps", world.steps);
        near(&got, right, 1.0);
    }
    // Long work beside short.
    let mut world = SlicingFixture::new(Mode::Hard);
    world.enter(250, Manner::Saturating, 20 * MILLISECOND);
    world.enter(750, Manner::Saturating, 100 * MICROSECOND);
    world.run(SECOND);
    let got = world.shares(4 * SECOND);
    near(&got, &[25.0, 75.0], 2.0);
}

#[test]
fn unused_time_is_idle_or_given_away_as_told() {
    for (mode, right) in [(Mode::Hard, [20.0, 30.0]), (Mode::Elastic, [40.0, 60.0])] {
        let mut world = SlicingFixture::new(mode);
        world.enter(200, Manner::Saturating, KERNEL);
        world.enter(300, Manner::Saturating, KERNEL);
        world.run(SECOND);
        let got = world.shares(3 * SECOND);
        near(&got, &right, 2.0);
    }
}

#[test]
fn whoever_is_alone_where_time_is_given_away_takes_no_turns_and_costs_no_thread() {
    let mut world = SlicingFixture::new(Mode::Elastic);
    world.enter(200, Manner::Saturating, KERNEL);
    world.run(SECOND);
    assert!(world.guests[0].used > SECOND * 99 / 100);
    assert_eq!((world.next, world.steps), (None, 1));
    // A neighbour comes and goes.
    world.enter(800, Manner::Saturating, KERNEL);
    world.run(SECOND);
    let got = world.shares(2 * SECOND);
    near(&got, &[20.0, 80.0], 2.0);
    let other = world.guests.pop().expect("the neighbour");
    world.queue.clear();
    world.guests[0].done = world.guests[0].submitted;
    world.table.leave(world.now, other.name);
    let got = world.shares(SECOND);
    near(&got, &[100.0], 1.0);
    drop(other.folder);
}

#[test]
fn a_share_that_changes_holds_from_there_on() {
    let mut world = SlicingFixture::new(Mode::Hard);
    world.enter(300, Manner::Saturating, KERNEL);
    world.enter(300, Manner::Saturating, KERNEL);
    world.run(SECOND);
    let (name, pages) = (world.guests[0].name, Arc::clone(&world.guests[0].pages));
    let seat = Seat {
        pages,
        at: 0,
        share_milli: 600,
    };
    world.table.take(world.now, name, seat);
    world.run(300 * MILLISECOND);
    let got = world.shares(2 * SECOND);
    near(&got, &[60.0, 30.0], 2.0);
}

#[test]
fn a_request_after_a_pause_begins_soon_beside_somebody_who_always_wants_more() {
    let mut world = SlicingFixture::new(Mode::Hard);
    world.enter(700, Manner::Saturating, KERNEL);
    world.enter(300, Manner::Every(40 * MILLISECOND), 4 * MILLISECOND);
    world.run(2 * SECOND);
    // A window, what was queued in it, and the looks in between.
    let waited = world.guests[1].waited;
    assert!(waited < 12 * MILLISECOND, "{waited}");
    let got = world.shares(2 * SECOND);
    assert!(got[0] > 60.0 && got[1] > 7.5, "{got:?}");
}

#[test]
fn whoever_claims_turns_and_does_not_use_them_takes_none_of_their_neighbours_share() {
    let mut world = SlicingFixture::new(Mode::Hard);
    world.enter(300, Manner::Idler, KERNEL);
    world.enter(700, Manner::Saturating, KERNEL);
    world.run(SECOND);
    let got = world.shares(2 * SECOND);
    assert!(got[1] > 67.0, "{got:?}");
    // Nor of what is given away, but for a moment now and then.
    let mut world = SlicingFixture::new(Mode::Elastic);
    world.enter(300, Manner::Idler, KERNEL);
    world.enter(700, Manner::Saturating, KERNEL);
    world.run(SECOND);
    let got = world.shares(2 * SECOND);
    assert!(got[1] > 95.0, "{got:?}");
}

#[test]
fn a_garbled_page_and_a_cut_one_cost_their_owner_only() {
    let mut world = SlicingFixture::new(Mode::Hard);
    world.enter(400, Manner::Garbled, KERNEL);
    world.enter(600, Manner::Saturating, KERNEL);
    world.run(SECOND);
    let got = world.shares(SECOND);
    near(&got, &[0.0, 60.0], 1.5);
    world.guests[0].page.set_len(17).expect("cut");
    let got = world.shares(SECOND);
    near(&got, &[0.0, 60.0], 1.5);
    // Numbers as large as they can be, in every slot.
    let guest = &world.guests[0];
    guest.page.set_len(0).expect("cut");
    guest.write(0, &vec![0xff; size_of::<AccountPage>()]);
    guest.write(0, &MAGIC.to_le_bytes());
    guest.write(8, &VERSION.to_le_bytes());
    let got = world.shares(2 * SECOND);
    assert!(got[1] > 57.0, "{got:?}");
}

#[test]
fn work_that_nobody_saw_the_end_of_keeps_the_others_away_for_a_moment_only() {
    for manner in [Manner::Killed, Manner::Once] {
        let mut world = SlicingFixture::new(Mode::Hard);
        world.enter(500, manner, KERNEL);
        world.enter(500, Manner::Saturating, KERNEL);
        world.run(4 * SECOND);
        let got = world.shares(2 * SECOND);
        assert!(got[1] > 48.0, "{got:?}");
        assert_eq!(world.guests[0].submitted, 1);
    }
}

#[test]
fn a_process_that_never_looks_takes_nothing_from_another_of_its_container() {
    let mut world = SlicingFixture::new(Mode::Hard);
    world.enter(300, Manner::Saturating, KERNEL);
    world.enter(600, Manner::Saturating, KERNEL);
    // A second process of the first: an empty kernel ten times a second, of which only the next launch tells.
    let beside = offset_of!(AccountPage, slot) + size_of::<Slot>();
    let device = beside + offset_of!(Slot, device);
    let guest = &world.guests[0];
    guest.write(offset_of!(AccountPage, high), &2_u32.to_le_bytes());
    guest.write(beside + offset_of!(Slot, owner), &78_u64.to_le_bytes());
    let mut before = Vec::new();
    for launched in 1..=30_u64 {
        let guest = &world.guests[0];
        guest.write(
            device + offset_of!(SlotDevice, submitted),
            &launched.to_le_bytes(),
        );
        guest.write(
            device + offset_of!(SlotDevice, finished),
            &(launched - 1).to_le_bytes(),
        );
        if launched == 10 {
            before = world.guests.iter().map(|guest| guest.used).collect();
        }
        world.run(100 * MILLISECOND);
    }
    let time = (21 * 100 * MILLISECOND) as f64;
    let got: Vec<f64> = world
        .guests
        .iter()
        .zip(before)
        .map(|(guest, before)| (guest.used - before) as f64 * 100.0 / time)
        .collect();
    // Each of its launches is charged as a window of 4 ms at the most.
    near(&got, &[28.0, 60.0], 2.5);
}

#[test]
fn whoever_leaves_amid_their_turn_leaves_the_turn() {
    let mut world = SlicingFixture::new(Mode::Hard);
    world.enter(300, Manner::Saturating, KERNEL);
    world.enter(600, Manner::Saturating, KERNEL);
    world.run(SECOND);
    while !world.guests[0].is_open() {
        world.run(TICK);
    }
    let gone = world.guests[0].name;
    world.guests[0].manner = Manner::Garbled;
    world.table.leave(world.now, gone);
    assert!(
        world.guests[0].is_open(),
        "nobody is left behind a closed gate"
    );
    // Its gate is its own from now on; the other has its share.
    world.guests[0].pages.control().set_mode(0, MODE_OFF);
    world.run(100 * MILLISECOND);
    let got = world.shares(SECOND);
    near(&got, &[0.0, 60.0], 1.5);
}

#[test]
fn the_thread_gives_turns_and_ends_with_its_owner() {
    let mut world = SlicingFixture::new(Mode::Hard);
    world.enter(500, Manner::Idler, KERNEL);
    let guest = world.guests.pop().expect("it entered");
    guest.say(offset_of!(SlotDevice, waiting), &1_u32.to_le_bytes());
    let mut turns = TimeSlicer::new(Mode::Hard);
    let seat = Seat {
        pages: Arc::clone(&guest.pages),
        at: 0,
        share_milli: 500,
    };
    turns.take(guest.name, seat).expect("a thread");
    let device = &guest.pages.control().device[0];
    let begun = std::time::Instant::now();
    device.gate_open.store(0, SeqCst);
    while device.gate_open.load(SeqCst) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "no turn came");
        thread::sleep(Duration::from_micros(100));
    }
    drop(turns);
    let beat = guest.pages.control().heartbeat.load(SeqCst);
    assert!(beat != 0 && beat <= now());
}
