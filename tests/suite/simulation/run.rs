//! One run: a seed decides everything that people, machines, links, disks and clocks do to a server,
//! and after every second of it the promises are checked. First trouble, then quiet, then the end:
//! what is still wrong once nobody disturbs any more is wrong for good.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use api::sessions::Resize;
use futures_util::FutureExt as _;
use rules::devices::WHOLE;
use rules::findings::findings;
use rules::messages::{Assignment, NodeReport};
use rules::names::{ContainerName, NodeId, SessionId, SessionName, UserId, UserName};
use rules::permissions::Subject;
use rules::placement::{self, Decision};
use rules::resources::{Capacity, Demand, Used};
use rules::session::{
    DesiredState, Outcome, Session, SessionEnvironment, SessionKind, SessionSpec, SessionState,
};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::users::Role;
use rules::world::ClusterSnapshot;
use server::Failure;
use server::access::{Caller, Via};
use server::actions::sessions as actions;
use server::simulation::fake_node::{Life, SimulatedMoment};
use server::simulation::{Fate, Simulation};

use super::faults::{self, Fault};
use super::nodes::Machine;
use super::random::Random;

mod ledger;
mod older;
mod turns;

/// Who launches.
const USERS: [&str; 3] = ["kim", "lee", "jo"];
/// Seconds of trouble.
const TROUBLE: u64 = 120;
/// Seconds after the last trouble in which everything must come to rest. The slowest honest way: a
/// silent link's last message (40), a slow start (20), a stop with its grace and a slow kill (16).
const REST: u64 = 90;
/// Seconds for stopping all that runs.
const END: u64 = 60;
/// Seconds that anything may take to move on once nobody disturbs.
const TIMEOUT: u64 = 45;
/// Seconds that a decision may be left by the turns of a server that is well.
const SECONDS_LEFT: u64 = 3;

/// Seconds that a message may be on its way, and the next one wait for its turn.
const SLOWEST: u64 = 50;
/// Sessions of one machine of which every choice is tried; more would take long.
const MAX_TRIED: usize = 10;

/// What a run came to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    pub sessions: u64,
    pub crashes: u64,
    pub reboots: u64,
    pub restarts: u64,
    pub lost_messages: u64,
    pub full_disks: u64,
    pub older_catalogs: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.crashes += other.crashes;
        self.reboots += other.reboots;
        self.restarts += other.restarts;
        self.lost_messages += other.lost_messages;
        self.full_disks += other.full_disks;
        self.older_catalogs += other.older_catalogs;
    }
}

/// A promise that was not kept, and what led to it.
#[derive(Debug)]
pub(super) struct Broken {
    pub seed: u64,
    pub second: u64,
    pub promise: String,
    trace: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        writeln!(
            f,
            "seed {} broke a promise at second {}: {}",
            self.seed, self.second, self.promise
        )?;
        write!(
            f,
            "replay: FARDEL_SEED={} cargo test --test suite simulation::seeds -- --nocapture",
            self.seed
        )
    }
}

enum Mail {
    Down(usize, Assignment),
    /// With the second in which it was written.
    Up(u64, NodeReport),
}

/// A launch that was sent and not yet answered.
struct Asked {
    session: Session,
    key: String,
}

/// What a person does to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Stop {
        force: bool,
    },
    Restart,
    Pause,
    Resume,
    Resize(CpuShare, Bytes),
    /// Another share of its device.
    Regrant(GpuShare),
}

/// An ordinary user, proven.
pub(super) fn caller(user: UserId, name: &str) -> Caller {
    Caller {
        subject: Subject {
            domain: rules::tenancy::DomainId::DEFAULT,
            user,
            grants: Role::User.grants(),
            scopes: None,
        },
        name: UserName::parse(name).expect("letters"),
        language: String::new(),
        theme: String::new(),
        time_zone: String::new(),
        via: Via::LocalRoot,
        must_change_password: false,
        second_factor_due: None,
        source: None,
        request: String::new(),
    }
}

/// In a rehearsal nothing waits for another thread.
pub(super) fn at_once<T>(action: impl Future<Output = T>) -> T {
    action
        .now_or_never()
        .expect("a rehearsal runs on one thread")
}

struct Run {
    random: Random,
    fault: Option<Fault>,
    server: Simulation,
    /// The first of them wants most.
    users: Vec<Caller>,
    /// Says who wants something, and which catalog is served; the other generators know nothing of it.
    who: Random,
    older: older::Older,
    firsts: turns::Firsts,
    held: ledger::HeldUse,
    machines: Vec<Machine>,
    /// By the second of delivery.
    mail: BTreeMap<(Timestamp, u64), Mail>,
    posted: u64,
    start: Timestamp,
    /// Seconds since the start.
    second: u64,
    /// Milliseconds that the clocks on the wall are ahead of the start plus the seconds.
    ahead: i64,
    trouble: bool,
    server_back_at: u64,
    disk_free_at: u64,
    fate: Arc<Mutex<FateDice>>,
    unanswered: VecDeque<Asked>,
    /// Sessions whose launch was acknowledged, with the number of the request.
    acknowledged: BTreeMap<SessionId, u64>,
    requests: u64,
    /// Since which second a session has been in its phase, and a container lived unwanted.
    in_phase: BTreeMap<SessionId, (SessionState, u32, u64)>,
    unwanted: BTreeMap<ContainerName, u64>,
    /// Since which second a change of a grant has not been confirmed.
    pending: BTreeMap<SessionId, u64>,
    dead: BTreeMap<SessionId, u64>,
    /// Since which second a decision is left.
    untaken: BTreeMap<SessionId, u64>,
    quiet_since: u64,
    ran: BTreeMap<ContainerName, Ran>,
    /// Who waited for nothing but room a second ago, and where every placed one was.
    waited: BTreeSet<SessionId>,
    placed: BTreeSet<ContainerName>,
    /// What every placed one was to have a second ago.
    wanted: BTreeMap<ContainerName, Demand>,
    /// Machines on which some grant was not confirmed a second ago.
    unsettled: BTreeSet<NodeId>,
    /// The last second in which the server died, and in which it last heard of each machine.
    crashed_at: u64,
    heard: BTreeMap<NodeId, u64>,
    /// Machines whose last report to the present server was written in an earlier second.
    late: BTreeSet<NodeId>,
    /// Generations that were put on a link before, for `Fault::SaidOnlyOnce`.
    said: BTreeSet<(NodeId, u64)>,
    tally: Tally,
    trace: VecDeque<String>,
    read: Option<(u64, Rc<ClusterSnapshot>)>,
}

/// When a container started to run, by its machine, and when its row first said so.
struct Ran {
    from: Option<u64>,
    known: u64,
}

/// Decides over commits; shared with the catalog.
struct FateDice {
    random: Random,
    chance: u64,
    died: bool,
}

/// One session with a device in so many holds more than it was granted, unless a scenario says otherwise.
const THIEVES: u8 = 3;

/// Plays one seed.
pub(super) fn play(seed: u64, fault: Option<Fault>) -> Result<Tally, Box<Broken>> {
    play_among(THIEVES, seed, fault)
}

/// The same where one session with a device in `thieves` holds more than it was granted.
pub(super) fn play_among(
    thieves: u8,
    seed: u64,
    fault: Option<Fault>,
) -> Result<Tally, Box<Broken>> {
    let mut run = Run::new(seed, fault, thieves);
    match run.through() {
        Ok(()) => Ok(run.tally),
        Err(promise) => Err(Box::new(Broken {
            seed,
            second: run.second,
            promise,
            trace: run.trace.into(),
        })),
    }
}

type Kept = Result<(), String>;

impl Run {
    fn new(seed: u64, fault: Option<Fault>, thieves: u8) -> Self {
        let mut random = Random::new(seed);
        let start = Timestamp::from_millis(1_790_000_000_000);
        let server = Simulation::open(start).expect("a catalog in memory opens");
        let users = USERS.map(|name| {
            let user = server.user(name, start);
            caller(user.expect("an empty catalog takes users"), name)
        });
        let mut who = Random::new(!seed);
        let fate = Arc::new(Mutex::new(FateDice {
            random: random.split(),
            chance: 0,
            died: false,
        }));
        let asked = Arc::clone(&fate);
        server.before_commits(move |_| {
            let mut fate = asked.lock().expect("no thread panics while it draws");
            let chance = fate.chance;
            if !fate.random.chance(chance) {
                return Fate::Live;
            }
            fate.died = true;
            if fate.random.chance(50) {
                Fate::DieBefore
            } else {
                Fate::DieAfter
            }
        });
        let nodes = random.between(1, 3);
        let machines = (0..nodes)
            .map(|number| Machine::new(number, start, &mut random, thieves))
            .collect();
        Self {
            random,
            fault,
            server,
            users: users.into(),
            older: older::Older::drawn(&mut who),
            who,
            firsts: turns::Firsts::default(),
            held: ledger::HeldUse::default(),
            machines,
            mail: BTreeMap::new(),
            posted: 0,
            start,
            second: 0,
            ahead: 0,
            trouble: true,
            server_back_at: 0,
            disk_free_at: 0,
            fate,
            unanswered: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            requests: 0,
            in_phase: BTreeMap::new(),
            unwanted: BTreeMap::new(),
            pending: BTreeMap::new(),
            dead: BTreeMap::new(),
            untaken: BTreeMap::new(),
            quiet_since: 0,
            ran: BTreeMap::new(),
            waited: BTreeSet::new(),
            placed: BTreeSet::new(),
            wanted: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            crashed_at: 0,
            heard: BTreeMap::new(),
            late: BTreeSet::new(),
            said: BTreeSet::new(),
            tally: Tally::default(),
            trace: VecDeque::new(),
            read: None,
        }
    }

    fn through(&mut self) -> Kept {
        for _ in 0..TROUBLE {
            self.pass_a_second()?;
        }
        self.calm_down();
        for _ in 0..REST {
            self.pass_a_second()?;
        }
        for id in self.live_ids()? {
            self.act(id, Deed::Stop { force: false });
        }
        for _ in 0..END {
            self.pass_a_second()?;
        }
        self.nothing_is_left()
    }

    fn calm_down(&mut self) {
        self.trouble = false;
        self.quiet_since = self.second;
        self.fate.lock().expect("random").chance = 0;
        self.server.fill_disk(false);
        // From now on there is room: what waited for it has its two seconds from here.
        self.disk_free_at = self.disk_free_at.min(self.second);
        let now = self.now();
        for machine in &mut self.machines {
            machine.agent_back_at = machine.agent_back_at.min(now.steady);
            machine.link_back_at = machine.link_back_at.min(now.steady);
        }
        self.say("quiet".into());
    }

    fn now(&self) -> SimulatedMoment {
        let steady = self.start.plus_seconds(self.second);
        SimulatedMoment {
            wall: Timestamp::from_millis(steady.as_millis() + self.ahead),
            steady,
        }
    }

    fn say(&mut self, line: String) {
        if self.trace.len() == 80 {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>4}  {line}", self.second));
    }

    fn pass_a_second(&mut self) -> Kept {
        self.second += 1;
        if self.trouble {
            self.disturb();
            self.swap_catalogs()?;
        }
        let now = self.now();
        self.server.set_clock(self.clocks(now));
        self.machines_live(now);
        if self.second >= self.server_back_at {
            if !self.older.is_served() {
                self.users(now);
                self.meter();
            }
            self.serve(now)?;
        }
        if self.older.is_served() {
            // No promise covers the rows of an older catalog.
            return self.older_ends_nothing();
        }
        self.check(now)
    }

    /// Bad luck that comes from outside.
    fn disturb(&mut self) {
        let now = self.now();
        self.fate.lock().expect("random").chance = if self.random.chance(30) { 8 } else { 0 };
        if self.random.chance(2) {
            let jump = *self.random.pick(&[-3_600_000, -20_000, 20_000, 3_600_000]);
            self.ahead += jump;
            self.say(format!("the clock jumps by {jump} ms"));
        }
        if self.random.chance(2) {
            let seconds = self.random.between(1, 15);
            self.disk_free_at = self.second + seconds;
            self.server.fill_disk(true);
            self.tally.full_disks += 1;
            self.say(format!("the disk is full for {seconds} s"));
        }
        if self.second == self.disk_free_at {
            self.server.fill_disk(false);
            self.say("the disk has room again".into());
        }
        if self.random.chance(2) {
            self.crash("killed");
        }
        for at in 0..self.machines.len() {
            let name = self.machines[at].fake_node.name.clone();
            if self.random.chance(2) {
                let seconds = self.random.between(2, 60);
                self.machines[at].link_back_at = now.steady.plus_seconds(seconds);
                self.say(format!("{name} is silent for {seconds} s"));
            }
            if self.random.chance(2) {
                let seconds = self.random.between(1, 10);
                self.machines[at].kill_agent(now, seconds, self.fault);
                self.say(format!("the agent of {name} dies for {seconds} s"));
            }
            if self.random.chance(1) {
                let seconds = self.random.between(1, 20);
                self.machines[at].reboot(now, seconds);
                self.tally.reboots += 1;
                self.say(format!("{name} reboots for {seconds} s"));
            }
            if self.random.chance(3)
                && let Some(container) = self.machines[at].kill_supervisor()
            {
                self.say(format!("the supervisor of {container} is killed"));
            }
        }
    }

    fn crash(&mut self, why: &str) {
        self.server.crash();
        self.server_back_at = self.second + self.random.between(0, 6);
        self.crashed_at = self.second;
        self.late.clear();
        self.tally.crashes += 1;
        self.say(format!("the server dies ({why})"));
    }

    /// True once for each death at a commit; the crash itself is done here.
    fn died(&mut self, why: &str) -> bool {
        let died = std::mem::take(&mut self.fate.lock().expect("random").died);
        if died {
            self.crash(why);
        }
        died
    }

    fn machines_live(&mut self, now: SimulatedMoment) {
        for at in 0..self.machines.len() {
            self.machines[at].fake_node.advance(now);
        }
        let due: Vec<(Timestamp, u64)> = self
            .mail
            .range(..=(now.steady, u64::MAX))
            .filter(|(_, mail)| matches!(mail, Mail::Down(..)))
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            if let Some(Mail::Down(at, assignment)) = self.mail.remove(&key)
                && self.machines[at].linked(now)
            {
                self.machines[at].take(assignment, self.fault);
            }
        }
        for at in 0..self.machines.len() {
            if !self.machines[at].agent_lives(now) {
                continue;
            }
            self.machines[at].tend(now, self.fault);
            // Some starts and stops take no time at all.
            self.machines[at].fake_node.advance(now);
            if let Some(report) = self.machines[at].report(now, self.fault)
                && self.machines[at].linked(now)
            {
                let second = self.second;
                self.post(now, |()| Mail::Up(second, report.clone()));
            }
        }
    }

    /// Puts a message on the way: lost, doubled and late at random.
    fn post(&mut self, now: SimulatedMoment, mail: impl Fn(()) -> Mail) {
        let copies = if !self.trouble {
            1
        } else if self.random.chance(10) {
            self.tally.lost_messages += 1;
            0
        } else if self.random.chance(10) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let delay = if !self.trouble {
                0
            } else if self.random.chance(5) {
                self.random.between(5, 40)
            } else if self.random.chance(30) {
                self.random.between(1, 3)
            } else {
                0
            };
            self.posted += 1;
            self.mail
                .insert((now.steady.plus_seconds(delay), self.posted), mail(()));
        }
    }

    /// What people do: launch, stop, restart, pause; and ask again where no answer came.
    fn users(&mut self, now: SimulatedMoment) {
        if let Some(asked) = self.unanswered.pop_front() {
            self.submit(asked);
        }
        if !self.trouble || self.second < self.server_back_at {
            return;
        }
        if self.random.chance(40) {
            self.requests += 1;
            let session = self.draft(now);
            let key = format!("request-{}", self.requests);
            self.submit(Asked { session, key });
        }
        self.somebody_resizes();
        if self.second < self.server_back_at
            || !self.random.chance(25)
            || self.acknowledged.is_empty()
        {
            return;
        }
        let known: Vec<SessionId> = self.acknowledged.keys().copied().collect();
        // Mostly the newest: the old ones are over.
        let from = known.len().saturating_sub(12);
        let id = *self.random.pick(&known[from..]);
        let deed = match self.random.between(0, 99) {
            0..=44 => Deed::Stop { force: false },
            45..=59 => Deed::Stop { force: true },
            60..=74 => Deed::Restart,
            75..=82 => Deed::Pause,
            83..=89 => Deed::Resume,
            _ => Deed::Resize(
                CpuShare(self.random.between(1, 250) as u32),
                Bytes::mib(self.random.between(64, 4000)),
            ),
        };
        if deed == Deed::Restart {
            self.tally.restarts += 1;
            if self.fault == Some(Fault::IncarnationReused) {
                self.restart_under_the_old_number(id);
                return;
            }
        }
        self.act(id, deed);
    }

    /// Now and then a running slice of a device gets another size.
    fn somebody_resizes(&mut self) {
        if self.second < self.server_back_at || !self.random.chance(25) {
            return;
        }
        let Ok(world) = self.world() else {
            return;
        };
        let sliced: Vec<SessionId> = world
            .sessions
            .iter()
            .filter(|s| s.state() == SessionState::Running && s.devices().len() == 1)
            .map(|s| s.id)
            .collect();
        if sliced.is_empty() {
            return;
        }
        let id = *self.random.pick(&sliced);
        let share = GpuShare(self.random.between(1, 99) as u32);
        self.act(id, Deed::Regrant(share));
    }

    /// One of the product's own actions, by the session's owner.
    fn act(&mut self, id: SessionId, deed: Deed) {
        if self.fault == Some(Fault::GrowsIntoWhatIsFree) && matches!(deed, Deed::Resize(..)) {
            self.grow_into_what_is_free(id);
            return;
        }
        let row = self.server.session(id).ok().flatten();
        let owns = |caller: &&Caller| row.as_ref().is_some_and(|s| s.owner == caller.subject.user);
        let caller = self.users.iter().find(owns).unwrap_or(&self.users[0]);
        let server = self.server.server();
        let name = id.to_string();
        let result = match deed {
            Deed::Stop { force } => at_once(actions::stop(server, caller, &name, force)),
            Deed::Restart => at_once(actions::restart(server, caller, &name)),
            Deed::Pause => at_once(actions::pause(server, caller, &name)),
            Deed::Resume => at_once(actions::resume(server, caller, &name)),
            Deed::Regrant(gpu) => at_once(actions::resize(
                server,
                caller,
                &name,
                Resize {
                    gpu: Some(gpu),
                    ..Resize::default()
                },
                None,
            )),
            Deed::Resize(cpu, memory) => at_once(actions::resize(
                server,
                caller,
                &name,
                Resize {
                    cpu: Some(cpu),
                    memory: Some(memory),
                    ..Resize::default()
                },
                None,
            )),
        };
        self.died("at the commit of an action");
        match result {
            Ok(_) => self.say(format!("{deed:?} of {id}")),
            Err(Failure::Refusal(refusal)) => {
                self.say(format!("{deed:?} of {id} is refused: {}", refusal.code));
            }
            Err(Failure::Fault(_)) => self.say(format!("{deed:?} of {id} gets no answer")),
        }
    }

    /// A resize that looks at what is free alone, and takes all of it.
    fn grow_into_what_is_free(&mut self, id: SessionId) {
        let now = self.now().wall;
        let Ok(world) = self.world() else {
            return;
        };
        let room = world.session(id).and_then(|session| {
            let runs = session.state() == SessionState::Running;
            let node = session.node().filter(|_| runs)?;
            placement::room_for(&world, session, node, now)
        });
        let Some((cpu, memory)) = room else {
            return;
        };
        let result = self.server.edit(id, move |session| {
            let demand = &mut session.spec.demand;
            let runs = session.desired == DesiredState::Run;
            let grows = cpu >= demand.cpu && memory >= demand.memory;
            if runs && grows {
                demand.cpu = cpu;
                demand.memory = memory;
            }
            runs && grows
        });
        self.died("at the commit of a resize");
        self.say(format!("{id} grows into what is free: {result:?}"));
    }

    fn restart_under_the_old_number(&mut self, id: SessionId) {
        let now = self.now().wall;
        let result = self.server.edit(id, move |session| {
            let over = session.state() == SessionState::Ended;
            if over {
                session.begin_again(now);
                session.incarnation -= 1;
            }
            over
        });
        self.died("at the commit of a restart");
        self.say(format!("{id} is restarted wrongly: {result:?}"));
    }

    fn submit(&mut self, mut asked: Asked) {
        if self.fault == Some(Fault::ReplayDoubled) {
            asked.key = format!("{}-{}", asked.key, self.random.roll());
        }
        let result = self.server.submit(&asked.session, &asked.key);
        let died = self.died("at the commit of a launch");
        match result {
            Ok(id) => {
                self.tally.sessions += 1;
                let number = request_of(&asked.session);
                self.acknowledged.insert(id, number);
                let name = asked.session.name;
                self.say(format!("{name} is accepted as {id}"));
            }
            Err(Failure::Fault(_)) if died => {
                // No answer: ask again, with a new draft under the old key, as a form does.
                let now = self.now();
                asked.session.id = SessionId::make(now.wall, self.random.bytes());
                asked.session.name = self.name();
                self.unanswered.push_back(asked);
            }
            Err(failure) => self.say(format!("a launch is refused: {failure}")),
        }
    }

    fn name(&mut self) -> SessionName {
        SessionName::parse(&format!("s{:x}", self.random.roll())).expect("letters and digits")
    }

    /// Who wants the next session: mostly the same.
    fn wanting(&mut self) -> UserId {
        let others = self.users.len() as u64 - 1;
        let at = if self.who.chance(70) {
            0
        } else {
            self.who.between(1, others)
        };
        self.users[at as usize].subject.user
    }

    fn draft(&mut self, now: SimulatedMoment) -> Session {
        let kind = if self.random.chance(60) {
            SessionKind::Batch
        } else {
            SessionKind::Interactive
        };
        let devices = self
            .machines
            .iter()
            .map(|m| m.fake_node.capacity.devices.len())
            .max()
            .unwrap_or(0);
        let gpu = if devices > 0 && self.random.chance(50) {
            match self.random.between(0, 9) {
                0 => 100,
                1 if devices > 1 => 200,
                _ => self.random.between(1, 100) as u32,
            }
        } else {
            0
        };
        let depends_on = if self.random.chance(10) && !self.acknowledged.is_empty() {
            let known: Vec<SessionId> = self.acknowledged.keys().copied().collect();
            vec![*self.random.pick(&known[known.len().saturating_sub(5)..])]
        } else {
            Vec::new()
        };
        let order = SessionSpec {
            kind,
            environment: SessionEnvironment::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(self.random.between(1, 200) as u32),
                memory: Bytes::mib(self.random.between(64, 3000)),
                shm: Bytes::ZERO,
                gpu: GpuShare(gpu),
                ..Demand::default()
            },
            timeout_seconds: self.random.chance(15).then(|| self.random.between(5, 60)),
            max_runtime_seconds: self.random.chance(15).then(|| self.random.between(5, 60)),
            start_at: self
                .random
                .chance(5)
                .then(|| now.wall.plus_seconds(self.random.between(1, 30))),
            depends_on,
            containers: 1,
        };
        let id = SessionId::make(now.wall, self.random.bytes());
        let mut session = Session::launched(id, self.name(), self.wanting(), order, now.wall);
        session
            .remarks
            .labels
            .insert("request".to_owned(), self.requests.to_string());
        session
    }

    /// The server's second: reports that arrived, one turn each or all in one, then one for the
    /// clock.
    fn serve(&mut self, now: SimulatedMoment) -> Kept {
        let due: Vec<(Timestamp, u64)> = self
            .mail
            .range(..=(now.steady, u64::MAX))
            .filter(|(_, mail)| matches!(mail, Mail::Up(..)))
            .map(|(key, _)| *key)
            .collect();
        let mut reports = Vec::new();
        for key in due {
            if let Some(Mail::Up(written, report)) = self.mail.remove(&key) {
                let report = faults::read(self.fault, report);
                reports.push((written, report));
            }
        }
        if self.fault == Some(Fault::SilenceReadAsAbsence) {
            let world = self
                .server
                .world()
                .map_err(|failure| format!("the world cannot be read: {failure}"))?;
            let invented = faults::invented(&world, now.wall);
            reports.extend(invented.into_iter().map(|report| (self.second, report)));
        }
        if reports.len() > 1 && self.random.chance(50) {
            for report in reports {
                self.turn(now, &[report])?;
            }
        } else {
            self.turn(now, &reports)?;
        }
        Ok(())
    }

    /// One turn over reports, each with the second in which it was written.
    fn turn(&mut self, now: SimulatedMoment, reports: &[(u64, NodeReport)]) -> Kept {
        if self.second < self.server_back_at {
            // It died within this second; what arrived is lost.
            return Ok(());
        }
        for (written, report) in reports {
            self.heard.insert(report.node, self.second);
            if *written < self.second {
                self.late.insert(report.node);
            } else {
                self.late.remove(&report.node);
            }
        }
        let reports: Vec<NodeReport> = reports.iter().map(|(_, report)| report.clone()).collect();
        let fault = self.fault;
        let decide = move |world: &ClusterSnapshot, now| faults::decide(fault, world, now);
        let mut by = now;
        if fault == Some(Fault::LimitsByTheWall) {
            by.steady = by.wall;
        }
        self.server.accept(self.quarantine_is_ignored());
        let prepared = self
            .server
            .prepare(by, &reports, &decide)
            .map_err(|failure| format!("a turn cannot be prepared: {failure}"))?;
        if fault == Some(Fault::SentBeforeCommit) {
            let early = prepared.assignments();
            self.send(now, early);
        }
        let result = self.server.commit(prepared, now);
        let died = self.died("at the commit of a turn");
        match result {
            Ok(assignments) => {
                if self.trouble && self.random.chance(1) {
                    self.crash("between a commit and its effect");
                } else {
                    self.send(now, assignments);
                }
                Ok(())
            }
            Err(_) if died => Ok(()),
            // The disk is full: the next turn tries again.
            Err(Failure::Refusal(refusal)) if self.second < self.disk_free_at => {
                self.say(format!("a turn is not written: {}", refusal.code));
                Ok(())
            }
            Err(failure) => Err(format!("a turn cannot be written: {failure}")),
        }
    }

    fn send(&mut self, now: SimulatedMoment, assignments: Vec<Assignment>) {
        for assignment in assignments {
            let first = self.said.insert((assignment.node, assignment.generation));
            if self.fault == Some(Fault::SaidOnlyOnce) && !first {
                continue;
            }
            let at = self
                .machines
                .iter()
                .position(|m| m.fake_node.id == assignment.node);
            if let Some(at) = at {
                self.post(now, |()| Mail::Down(at, assignment.clone()));
            }
        }
    }

    /// The world as the rows have it, read anew only where they changed. Times at which nodes were
    /// heard of may be old.
    fn world(&mut self) -> Result<Rc<ClusterSnapshot>, String> {
        let revision = self.server.revision();
        if let Some((at, world)) = &self.read
            && *at == revision
        {
            return Ok(Rc::clone(world));
        }
        let world = self
            .server
            .world()
            .map_err(|failure| format!("the world cannot be read: {failure}"))?;
        let world = Rc::new(world);
        self.read = Some((revision, Rc::clone(&world)));
        Ok(world)
    }

    fn live_ids(&mut self) -> Result<Vec<SessionId>, String> {
        Ok(self.world()?.sessions.iter().map(|s| s.id).collect())
    }

    /// Every promise, on the whole truth: rows and machines.
    fn check(&mut self, now: SimulatedMoment) -> Kept {
        let world = self.world()?;
        if let Some(finding) = findings(&world).first() {
            return Err(format!("{}: {}", finding.code, finding.text));
        }
        self.starts_are_single()?;
        self.capacities_hold()?;
        self.living_have_rows(&world)?;
        self.requests_are_single(&world)?;
        self.quarantines_have_a_cause()?;
        self.limits_are_kept(&world)?;
        self.turns_are_taken(&world, now)?;
        self.growth_delays_none(&world, now)?;
        self.passing_delays_nobody(&world, now)?;
        self.answers_are_kept(&world)?;
        self.use_is_exact(&world, now)?;
        if self.second.is_multiple_of(20) {
            self.acknowledged_exist()?;
        }
        self.things_move(&world, now)
    }

    /// What a machine's watchdog answered stands in the session's row, each once, and holds.
    fn answers_are_kept(&self, world: &ClusterSnapshot) -> Kept {
        for machine in &self.machines {
            if let Some(name) = machine.let_go() {
                return Err(format!("{name} was frozen for what it holds, and goes on"));
            }
        }
        for session in &world.sessions {
            let mut seen = BTreeSet::new();
            for incident in &session.incidents {
                let given = self
                    .machines
                    .iter()
                    .any(|machine| machine.answered.contains_key(&incident.id));
                if !given || !seen.insert(incident.id) {
                    return Err(format!(
                        "{} has an answer that nobody gave, or twice: {incident:?}",
                        session.name
                    ));
                }
            }
            let quiet = !self.trouble && self.second - self.quiet_since > TIMEOUT;
            let told = self
                .machines
                .iter()
                .filter(|machine| Some(machine.fake_node.id) == session.node())
                .flat_map(|machine| machine.told(session.container()));
            for incident in told {
                let old = self.now().wall.seconds_since(incident.at) > TIMEOUT;
                if quiet && old && !seen.contains(&incident.id) {
                    return Err(format!(
                        "{} was answered to, and its row never says so: {incident:?}",
                        session.name
                    ));
                }
            }
        }
        Ok(())
    }

    fn starts_are_single(&self) -> Kept {
        let mut all: BTreeMap<ContainerName, u32> = BTreeMap::new();
        for machine in &self.machines {
            for (name, starts) in &machine.starts {
                *all.entry(*name).or_default() += starts;
            }
        }
        match all.iter().find(|(_, starts)| **starts > 1) {
            Some((name, starts)) => Err(format!("{name} was started {starts} times")),
            None => Ok(()),
        }
    }

    fn capacities_hold(&self) -> Kept {
        for machine in &self.machines {
            let node = &machine.fake_node;
            let mut used = Used::default();
            for container in node.containers.iter().filter(|c| c.lives()) {
                used.add(&container.order.demand, &container.held);
            }
            if used.cpu > node.capacity.cpu {
                return Err(format!("{} runs {} cores", node.name, used.cpu));
            }
            if used.memory > node.capacity.memory {
                return Err(format!("{} runs {} of memory", node.name, used.memory));
            }
            for device in &node.capacity.devices {
                let Some(held) = used.devices.get(&device.index) else {
                    continue;
                };
                if held.share > WHOLE || held.memory > device.memory {
                    return Err(format!(
                        "device {} of {} runs {} of itself and {}",
                        device.index, node.name, held.share, held.memory
                    ));
                }
            }
        }
        Ok(())
    }

    /// At most one container of a session lives anywhere, and while it does, its row holds its
    /// place.
    fn living_have_rows(&self, world: &ClusterSnapshot) -> Kept {
        let mut living = BTreeSet::new();
        for machine in &self.machines {
            for container in machine.fake_node.containers.iter().filter(|c| c.lives()) {
                let name = container.order.name;
                if !living.insert(name.session) {
                    return Err(format!("two containers of {} live", name.session));
                }
                let held = world.session(name.session).is_some_and(|s| {
                    s.container() == name
                        && s.state().holds_resources()
                        && s.node() == Some(machine.fake_node.id)
                });
                if !held {
                    let row =
                        self.server.session(name.session).ok().flatten().map(|s| {
                            format!("{} of incarnation {}", s.state().word(), s.incarnation)
                        });
                    return Err(format!(
                        "{name} lives on {}, and its row is {}",
                        machine.fake_node.name,
                        row.unwrap_or_else(|| "not there".into())
                    ));
                }
            }
        }
        Ok(())
    }

    fn requests_are_single(&self, world: &ClusterSnapshot) -> Kept {
        let mut seen: BTreeMap<u64, SessionId> = BTreeMap::new();
        let known = self.acknowledged.iter().map(|(id, number)| (*id, *number));
        let live = world.sessions.iter().map(|s| (s.id, request_of(s)));
        for (id, number) in known.chain(live) {
            if let Some(other) = seen.insert(number, id)
                && other != id
            {
                return Err(format!("request {number} made two sessions: {other}, {id}"));
            }
        }
        Ok(())
    }

    fn acknowledged_exist(&self) -> Kept {
        for id in self.acknowledged.keys() {
            let row = self
                .server
                .session(*id)
                .map_err(|failure| format!("a row cannot be read: {failure}"))?;
            if row.is_none() {
                return Err(format!("{id} was acknowledged and is gone"));
            }
        }
        Ok(())
    }

    /// Whether a session that holds resources got them since the last look. One that was restarted in its place had them
    /// then, and takes nothing from another.
    fn took_a_place(&self, session: &Session) -> bool {
        let before = ContainerName {
            incarnation: session.incarnation.saturating_sub(1),
            ..session.container()
        };
        let reason = session.reason.as_ref();
        let kept = reason.is_some_and(|reason| reason.code == rules::codes::PLACEMENT_KEPT)
            && self.placed.contains(&before);
        !self.placed.contains(&session.container()) && !kept
    }

    /// What got a place took nothing that one of its owner's in front of it could get there, whichever of those
    /// that hold the machine end: all choices of them are tried.
    fn passing_delays_nobody(&mut self, world: &ClusterSnapshot, now: SimulatedMoment) -> Kept {
        let holds = |s: &&Session| s.state().holds_resources();
        let settled = |s: &&Session| s.pending_devices().is_empty();
        let unsettled: BTreeSet<NodeId> = world
            .sessions
            .iter()
            .filter(|s| !settled(s))
            .filter_map(|s| s.node())
            .collect();
        for passing in world
            .sessions
            .iter()
            .filter(holds)
            .filter(|s| self.took_a_place(s))
        {
            let Some(node) = passing.node().and_then(|id| world.node(id)) else {
                continue;
            };
            // A change of a grant counts once it is confirmed, which may be between two turns of a second.
            if unsettled.contains(&node.id) || self.unsettled.contains(&node.id) {
                continue;
            }
            let there: Vec<&Session> = world
                .sessions
                .iter()
                .filter(holds)
                .filter(|s| s.node() == passing.node() && !self.took_a_place(s))
                .take(MAX_TRIED)
                .collect();
            let in_front = |s: &&Session| {
                self.waited.contains(&s.id)
                    && waits_for_room(world, s, now.wall)
                    && s.owner == passing.owner
                    && (s.queued_at, s.id) < (passing.queued_at, passing.id)
            };
            for front in world.sessions.iter().filter(in_front) {
                for choice in 0..1_u32 << there.len() {
                    let stay = there.iter().enumerate();
                    let stay = stay
                        .filter(|(at, _)| choice >> at & 1 == 1)
                        .map(|(_, s)| *s);
                    let mut used = Used::default();
                    for s in stay {
                        used.add(&s.spec.demand, &s.holds());
                    }
                    let without = has_room(&node.capacity, &used, &front.spec.demand);
                    used.add(&passing.spec.demand, &passing.holds());
                    if without && !has_room(&node.capacity, &used, &front.spec.demand) {
                        return Err(format!(
                            "{} passes {} and takes what it could get on {}",
                            passing.name, front.name, node.name
                        ));
                    }
                }
            }
        }
        self.placed = world
            .sessions
            .iter()
            .filter(holds)
            .map(Session::container)
            .collect();
        self.waited = world
            .sessions
            .iter()
            .filter(|s| waits_for_room(world, s, now.wall))
            .map(|s| s.id)
            .collect();
        self.unsettled = unsettled;
        Ok(())
    }

    /// What grew took nothing that one without a device who waits could get beside it, whichever of the others that hold the
    /// machine end: all choices of them are tried.
    fn growth_delays_none(&mut self, world: &ClusterSnapshot, now: SimulatedMoment) -> Kept {
        let before = std::mem::take(&mut self.wanted);
        let holds = |s: &&Session| s.state().holds_resources();
        for grown in world.sessions.iter().filter(holds) {
            let Some(had) = before.get(&grown.container()) else {
                continue;
            };
            let demand = &grown.spec.demand;
            if demand.cpu <= had.cpu && demand.memory <= had.memory {
                continue;
            }
            let Some(node) = grown.node().and_then(|id| world.node(id)) else {
                continue;
            };
            let others: Vec<&Session> = world
                .sessions
                .iter()
                .filter(holds)
                .filter(|s| s.node() == grown.node() && s.id != grown.id)
                .filter(|s| !self.took_a_place(s))
                .take(MAX_TRIED)
                .collect();
            // Who has room on some machine already is about to start there.
            let has_place = |s: &Session| {
                world.nodes.iter().any(|other| {
                    let mut used = Used::default();
                    let there = world.sessions.iter().filter(holds);
                    for one in there.filter(|one| one.node() == Some(other.id)) {
                        let its = match one.id == grown.id {
                            true => had,
                            false => &one.spec.demand,
                        };
                        used.add(its, &one.holds());
                    }
                    has_room(&other.capacity, &used, &s.spec.demand)
                })
            };
            let waits = |s: &&Session| {
                self.waited.contains(&s.id)
                    && s.desired == DesiredState::Run
                    && waits_for_room(world, s, now.wall)
                    && !waits_for_own_starts(world, s, now.wall)
                    && !s.spec.demand.wants_device()
                    && !has_place(s)
            };
            for front in world.sessions.iter().filter(waits) {
                for choice in 0..1_u32 << others.len() {
                    let stay = others.iter().enumerate();
                    let stay = stay
                        .filter(|(at, _)| choice >> at & 1 == 1)
                        .map(|(_, s)| *s);
                    let mut used = Used::default();
                    for s in stay {
                        used.add(&s.spec.demand, &s.holds());
                    }
                    let mut without = used.clone();
                    without.add(had, &grown.holds());
                    used.add(demand, &grown.holds());
                    let wanted = &front.spec.demand;
                    if has_room(&node.capacity, &without, wanted)
                        && !has_room(&node.capacity, &used, wanted)
                    {
                        return Err(format!(
                            "{} grows and takes what {} could get on {}",
                            grown.name, front.name, node.name
                        ));
                    }
                }
            }
        }
        let placed = world.sessions.iter().filter(holds);
        self.wanted = placed.map(|s| (s.container(), s.spec.demand)).collect();
        Ok(())
    }

    /// The server leaves a machine unled only after a late report: one that was written before the server
    /// started may name an older assignment than the machine has confirmed since.
    fn quarantines_have_a_cause(&self) -> Kept {
        let quarantined = self.server.quarantined();
        match quarantined.difference(&self.late).next() {
            Some(node) => Err(format!(
                "{node} is in quarantine, though the last report of it is new"
            )),
            None => Ok(()),
        }
    }

    /// A limit of its owner ends a session neither before it ran that long nor much later, however
    /// clocks were set, and however often the server died. A server that was started anew has to hear
    /// from the machine first, and what it hears may have been on the way for long.
    fn limits_are_kept(&mut self, world: &ClusterSnapshot) -> Kept {
        for session in &world.sessions {
            let name = session.container();
            if session.state() == SessionState::Running && !self.ran.contains_key(&name) {
                let ran = Ran {
                    from: self.started(name),
                    known: self.second,
                };
                self.ran.insert(name, ran);
            }
            let Some(Ran {
                from: Some(from),
                known,
            }) = self.ran.get(&name)
            else {
                continue;
            };
            let heard = session.node().and_then(|node| self.heard.get(&node));
            let slack = if self.crashed_at < *known {
                // It looked as much younger as the first word of it was on its way.
                Some(2 + known.saturating_sub(*from))
            } else {
                heard
                    .is_some_and(|heard| *heard > self.crashed_at)
                    .then_some(SLOWEST)
            };
            let limits = [
                session.spec.max_runtime_seconds,
                match session.spec.kind {
                    SessionKind::Batch => session.spec.timeout_seconds,
                    SessionKind::Interactive => None,
                },
            ];
            let Some(limit) = limits.into_iter().flatten().min() else {
                continue;
            };
            let ran = self.second - from;
            let code = session.reason.as_ref().map_or("", |r| r.code.as_str());
            let ended = session.state() == SessionState::Stopping
                && matches!(code, "session.timeout" | "session.max-runtime");
            // Times are told in whole seconds.
            if ended && self.second == self.in_phase_since(session) && ran + 1 < limit {
                return Err(format!(
                    "{} met its limit of {limit} s after {ran} s",
                    session.name
                ));
            }
            // A server in quarantine ends nothing; `quarantines_have_a_cause` says when it may be.
            let able = self.second >= self.server_back_at + 2
                && self.second >= self.disk_free_at + 2
                && self.server.quarantined().is_empty();
            let over = slack.is_some_and(|slack| ran > limit + slack);
            // Whose container is over has met no limit: its machine has yet to say so.
            let lives = self.started(name).is_some();
            if able && lives && session.state() == SessionState::Running && over {
                return Err(format!(
                    "{} runs for {ran} s, past its limit of {limit} s (known since {known}, {:?}, {:?})",
                    session.name,
                    session.desired,
                    session.node()
                ));
            }
        }
        Ok(())
    }

    /// The second in which a container's first process started; None where no machine knows.
    fn started(&self, name: ContainerName) -> Option<u64> {
        self.machines
            .iter()
            .flat_map(|m| &m.fake_node.containers)
            .filter(|c| c.order.name == name)
            .find_map(|c| match &c.life {
                Life::Running { since, .. } => Some(*since),
                Life::Stopping { started, .. } => *started,
                Life::Preparing { .. } | Life::Over(_) => None,
            })
            .map(|at| at.steady.seconds_since(self.start))
    }

    /// Since which second the session has been in its phase.
    fn in_phase_since(&self, session: &Session) -> u64 {
        match self.in_phase.get(&session.id) {
            Some((phase, incarnation, since))
                if (*phase, *incarnation) == (session.state(), session.incarnation) =>
            {
                *since
            }
            _ => self.second,
        }
    }

    /// Once it is quiet, nothing stays where it cannot stay.
    fn things_move(&mut self, world: &ClusterSnapshot, now: SimulatedMoment) -> Kept {
        let second = self.second;
        let mut in_phase = BTreeMap::new();
        for s in &world.sessions {
            in_phase.insert(s.id, (s.state(), s.incarnation, self.in_phase_since(s)));
        }
        self.in_phase = in_phase;
        let mut dead = BTreeMap::new();
        for s in world
            .sessions
            .iter()
            .filter(|s| s.state() == SessionState::Running)
        {
            let lives = self.machines.iter().any(|m| {
                m.fake_node
                    .containers
                    .iter()
                    .any(|c| c.order.name == s.container() && c.lives())
            });
            if !lives {
                dead.insert(s.id, self.dead.get(&s.id).copied().unwrap_or(second));
            }
        }
        self.dead = dead;
        let mut unwanted = BTreeMap::new();
        for machine in &self.machines {
            for container in &machine.fake_node.containers {
                let name = container.order.name;
                let wanted = world
                    .session(name.session)
                    .is_some_and(|s| s.container() == name && s.state().holds_resources());
                if !wanted {
                    let since = self.unwanted.get(&name).copied().unwrap_or(second);
                    unwanted.insert(name, since);
                }
            }
        }
        self.unwanted = unwanted;
        let running =
            |s: &&Session| s.state() == SessionState::Running && !s.pending_devices().is_empty();
        self.pending = world
            .sessions
            .iter()
            .filter(running)
            .map(|s| (s.id, self.pending.get(&s.id).copied().unwrap_or(second)))
            .collect();
        if self.trouble {
            return Ok(());
        }
        let stuck = |since: u64| second - since.max(self.quiet_since) > TIMEOUT;
        for s in &world.sessions {
            let (phase, _, since) = self.in_phase[&s.id];
            let moves = matches!(
                phase,
                SessionState::Scheduled | SessionState::Preparing | SessionState::Stopping
            );
            if moves && stuck(since) {
                return Err(format!("{} stays {}", s.name, phase.word()));
            }
        }
        if let Some((id, _)) = self.dead.iter().find(|(_, since)| stuck(**since)) {
            return Err(format!("{id} is running, and its container is dead"));
        }
        if let Some((id, _)) = self.pending.iter().find(|(_, since)| stuck(**since)) {
            return Err(format!("the changed grant of {id} is never confirmed"));
        }
        if let Some((name, _)) = self.unwanted.iter().find(|(_, since)| stuck(**since)) {
            return Err(format!("{name} is unwanted, and still there"));
        }
        if second - self.quiet_since > TIMEOUT {
            self.decisions_are_taken(world, now)?;
        }
        Ok(())
    }

    /// What got a place changes whose turn it is, and so who is next: a second turn may find one more.
    fn decisions_are_taken(&mut self, world: &ClusterSnapshot, now: SimulatedMoment) -> Kept {
        let mut left = BTreeMap::new();
        for decision in placement::decide(world, now.wall) {
            let id = match &decision {
                Decision::Place { session, .. } | Decision::End { session, .. } => *session,
            };
            let session = world.session(id);
            let place = matches!(decision, Decision::Place { .. });
            if place && session.is_some_and(|s| waits_for_own_starts(world, s, now.wall)) {
                continue;
            }
            let since = self.untaken.get(&id).copied().unwrap_or(self.second);
            if self.second - since >= SECONDS_LEFT {
                return Err(format!("no turn takes the decision {decision:?}"));
            }
            left.insert(id, since);
        }
        self.untaken = left;
        Ok(())
    }

    fn nothing_is_left(&mut self) -> Kept {
        let world = self.world()?;
        if let Some(s) = world.sessions.first() {
            return Err(format!("{} is {} at the end", s.name, s.state().word()));
        }
        for machine in &self.machines {
            if let Some(container) = machine.fake_node.containers.first() {
                return Err(format!("{} is left at the end", container.order.name));
            }
        }
        self.acknowledged_exist()
    }
}

/// Whether its owner has as many sessions starting as one owner may: one for every two processors of each machine that
/// takes sessions, and at least one, those of the last half second counted.
fn waits_for_own_starts(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> bool {
    let starting = world.sessions.iter().filter(|s| {
        s.owner == session.owner
            && matches!(s.state(), SessionState::Scheduled | SessionState::Preparing)
            && s.scheduled_at()
                .is_some_and(|at| at <= now && now.millis_since(at) < 500)
    });
    let nodes = world.nodes.iter();
    let take = nodes.filter(|n| n.schedulable && !n.is_silent(now));
    let most = take.map(|n| (n.capacity.cpu.0 as usize / 200).max(1));
    starting.count() >= most.sum()
}

/// Whether nothing but room keeps a session from its start.
fn waits_for_room(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> bool {
    let order = &session.spec;
    session.state() == SessionState::Pending
        && order.start_at.is_none_or(|at| at <= now)
        && order
            .depends_on
            .iter()
            .all(|id| world.ended.get(id) == Some(&Some(Outcome::Succeeded)))
}

/// Whether a machine that is used so has room for a demand; counted without the scheduler's own rules.
fn has_room(capacity: &Capacity, used: &Used, demand: &Demand) -> bool {
    let left = |at: u32| {
        let held = used.devices.get(&at).map_or(0, |held| held.share.0);
        WHOLE.0.saturating_sub(held)
    };
    let devices = capacity.devices.iter().map(|d| left(d.index));
    let fits = match demand.gpu.0 {
        0 => true,
        share if share < WHOLE.0 => devices.into_iter().any(|left| left >= share),
        share => devices.filter(|left| *left == WHOLE.0).count() >= (share / WHOLE.0) as usize,
    };
    fits && used.cpu + demand.cpu <= capacity.cpu && used.memory + demand.memory <= capacity.memory
}

fn request_of(session: &Session) -> u64 {
    session
        .remarks
        .labels
        .get("request")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}
