//! Idle sessions in the simulation: a server that dies at commits and is away for a while, clocks that are set, owners
//! who work and who keep their sessions. Nobody may be ended who was not warned twice; planted faults show that this
//! is seen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use api::idle_rules::{IdleThresholdsBody, NewIdleRuleBody};
use rules::idleness::{
    IdleAction, IdleLevel, IdleMatch, IdleRule, IdleStep, IdleTold, SessionQuiet, judge,
};
use rules::messages::ContainerUsage;
use rules::names::{NodeId, SessionId, SessionName, UserId};
use rules::reason::Reason;
use rules::resources::Demand;
use rules::session::{
    DesiredState, Session, SessionChange, SessionEnvironment, SessionKind, SessionSpec, Transition,
};
use rules::units::{Bytes, CpuShare, Timestamp};
use server::actions::idle_rules as actions;
use server::simulation::fake_node::SimulatedMoment;
use server::simulation::{Fate, Simulation};

use super::random::Random;
use super::run::{at_once, caller};

const MINUTE: u64 = 60_000;
const SESSIONS: usize = 4;
const MINUTES: u64 = 400;
const WINDOW: u64 = 3_600;
const EXTEND: u64 = 1_800;

type Judging = fn(&IdleRule, &IdleTold, SessionQuiet) -> IdleStep;

/// Both warnings are given together.
fn hasty(rule: &IdleRule, told: &IdleTold, quiet: SessionQuiet) -> IdleStep {
    match told.warnings {
        [Some(_), None] => IdleStep::Warn(1),
        _ => judge(rule, told, quiet),
    }
}

/// Who kept a session is not listened to.
fn deaf(rule: &IdleRule, told: &IdleTold, quiet: SessionQuiet) -> IdleStep {
    let unkept = IdleTold { kept: 0, ..*told };
    judge(rule, &unkept, quiet)
}

/// Time that was not measured counts.
fn credulous(rule: &IdleRule, told: &IdleTold, quiet: SessionQuiet) -> IdleStep {
    let longer = SessionQuiet {
        millis: quiet.millis + 10 * MINUTE,
        ..quiet
    };
    judge(rule, told, longer)
}

/// What the test knows of one session, on a clock that nobody sets.
#[derive(Default)]
struct Known {
    cpu: u64,
    rested: u64,
    /// When it was first seen with one and with two warnings, since it last worked or was kept.
    warned: [Option<u64>; 2],
    kept: Option<u64>,
}

struct House {
    simulation: Simulation,
    node: NodeId,
    owner: UserId,
    ids: Vec<SessionId>,
    known: BTreeMap<SessionId, Known>,
    steady: u64,
    ahead: i64,
}

const START: i64 = 1_800_000_000_000;

impl House {
    fn new() -> Self {
        let start = Timestamp::from_millis(START);
        let simulation = Simulation::open(start).expect("memory can be written");
        let owner = simulation.user("kim", start).expect("a user");
        let mut house = Self {
            node: NodeId::make(start, [3; 10]),
            simulation,
            owner,
            ids: Vec::new(),
            known: BTreeMap::new(),
            steady: 0,
            ahead: 0,
        };
        let root = server::access::local_root(house.simulation.server());
        let rule = NewIdleRuleBody {
            name: "idle".into(),
            level: IdleLevel::Site,
            subject: None,
            kind: None,
            exempt: String::new(),
            below: IdleThresholdsBody {
                cpu: Some(CpuShare(10)),
                ..IdleThresholdsBody::default()
            },
            of: IdleMatch::All,
            window_seconds: WINDOW,
            grace_seconds: 300,
            action: IdleAction::Stop,
            extend_seconds: EXTEND,
            extend_times: 2,
        };
        let made = at_once(actions::create(house.simulation.server(), &root, rule));
        made.expect("a rule");
        for number in 0..SESSIONS {
            house.launch(number);
        }
        house
    }

    fn launch(&mut self, number: usize) {
        let start = Timestamp::from_millis(START);
        let id = SessionId::make(start, [number as u8 + 1; 10]);
        let mut session = Session::launched(
            id,
            SessionName::parse(&format!("s{number}")).expect("a name"),
            self.owner,
            SessionSpec {
                kind: SessionKind::Interactive,
                environment: SessionEnvironment::Host,
                command: Vec::new(),
                env: BTreeMap::new(),
                demand: Demand::default(),
                timeout_seconds: None,
                max_runtime_seconds: None,
                start_at: None,
                depends_on: Vec::new(),
                containers: 1,
            },
            start,
        );
        let because = Reason::from_parts("placement.placed".into(), "It fits.".into());
        session.place(self.node, Vec::new(), because, start);
        for to in [
            Transition::Preparing,
            Transition::Running { started_at: start },
        ] {
            let change = SessionChange {
                session: id,
                container: 0,
                seen: session.generation,
                to,
                reason: None,
            };
            assert!(session.apply(&change), "a legal move");
        }
        let key = format!("key-{number}");
        self.simulation.submit(&session, &key).expect("it is new");
        self.ids.push(id);
        self.known.insert(id, Known::default());
    }

    fn moment(&self) -> SimulatedMoment {
        SimulatedMoment {
            wall: Timestamp::from_millis(START + self.steady as i64 + self.ahead),
            steady: Timestamp::from_millis(START + self.steady as i64),
        }
    }

    fn row(&self, id: SessionId) -> Session {
        let row = self.simulation.session(id).expect("rows can be read");
        row.expect("it was submitted")
    }

    fn sample(&self) {
        let usage = |id: SessionId| ContainerUsage {
            cpu_microseconds: self.known[&id].cpu,
            memory: Bytes::mib(100),
            processes: 2,
            waited: None,
            devices: Vec::new(),
        };
        let all = self.ids.iter().map(|id| self.row(*id));
        let running = all.filter(|row| row.desired == DesiredState::Run);
        let used: Vec<_> = running
            .map(|row| (row.container(), usage(row.id)))
            .collect();
        self.simulation.sample(self.node, self.moment().wall, &used);
    }

    /// What was told and done by now. Err: somebody was ended who should not have been.
    fn check(&mut self) -> Result<u64, String> {
        let root = server::access::local_root(self.simulation.server());
        let mut ended = 0;
        for id in self.ids.clone() {
            let row = self.row(id);
            let state = at_once(actions::state(
                self.simulation.server(),
                &root,
                &id.to_string(),
            ));
            let warnings = state
                .expect("rows can be read")
                .map_or(0, |state| state.warnings);
            let steady = self.steady;
            let known = self.known.get_mut(&id).expect("it is known");
            if row.desired == DesiredState::Run {
                for (number, since) in known.warned.iter_mut().enumerate() {
                    match warnings as usize > number {
                        true => *since = since.or(Some(steady)),
                        false => *since = None,
                    }
                }
                continue;
            }
            ended += 1;
            let minutes = |since: Option<u64>| since.map(|since| (steady - since) / MINUTE);
            let [first, second] = known.warned.map(minutes);
            if first.is_none_or(|first| first < 15) || second.is_none_or(|second| second < 5) {
                return Err(format!(
                    "ended {first:?} and {second:?} minutes after warnings"
                ));
            }
            if first
                .zip(second)
                .is_some_and(|(first, second)| first - second < 10)
            {
                return Err("warned twice within ten minutes".to_owned());
            }
            if known.rested < WINDOW * 1000 {
                return Err(format!(
                    "ended after {} minutes of rest",
                    known.rested / MINUTE
                ));
            }
            if minutes(known.kept).is_some_and(|kept| kept < EXTEND / 60) {
                return Err("ended soon after it was kept".to_owned());
            }
            // It is over; the others go on.
            self.ids.retain(|other| *other != id);
        }
        Ok(ended)
    }
}

/// Plays one seed. Gives how many sessions were ended and how many warnings were kept, or what was wrong.
fn play(seed: u64, judging: Judging) -> Result<(u64, u64), String> {
    let mut random = Random::new(seed);
    let mut house = House::new();
    let mut fates = random.split();
    let deadly = Arc::new(Mutex::new(false));
    let now_deadly = Arc::clone(&deadly);
    house.simulation.before_commits(move |what| {
        let deadly = *now_deadly.lock().expect("no panic") && what.contains("idle session");
        match (deadly, fates.between(0, 9)) {
            (true, 0) => Fate::DieBefore,
            (true, 1) => Fate::DieAfter,
            _ => Fate::Live,
        }
    });
    let owner = caller(house.owner, "kim");
    let (mut ended, mut kept) = (0, 0);
    let mut away = 0_u64;
    for _ in 0..MINUTES {
        house.steady += MINUTE;
        if random.chance(1) {
            house.ahead += random.between(0, 40_000_000) as i64 - 20_000_000;
        }
        if random.chance(1) {
            away = random.between(1, 25);
        }
        let moment = house.moment();
        house.simulation.set_clock(moment);
        for id in house.ids.clone() {
            let works = random.chance(1);
            let known = house.known.get_mut(&id).expect("it is known");
            known.rested += MINUTE;
            if works {
                known.cpu += 30_000_000;
                known.rested = 0;
            }
        }
        if away > 0 {
            away -= 1;
            if away == 0 {
                house.simulation.crash();
            }
            continue;
        }
        house.sample();
        *deadly.lock().expect("no panic") = true;
        let judged = house.simulation.judge_idle(moment.wall, &judging);
        *deadly.lock().expect("no panic") = false;
        if judged.is_err() {
            house.simulation.crash();
        }
        ended += house.check()?;
        for id in house.ids.clone() {
            let warned = house.known[&id].warned[0].is_some();
            if warned && random.chance(5) {
                let kept_now = at_once(actions::keep(
                    house.simulation.server(),
                    &owner,
                    &id.to_string(),
                ));
                if kept_now.is_ok() {
                    kept += 1;
                    let known = house.known.get_mut(&id).expect("it is known");
                    known.kept = Some(house.steady);
                    known.warned = [None, None];
                }
            }
        }
    }
    Ok((ended, kept))
}

#[test]
fn nobody_is_ended_as_idle_without_two_warnings_whatever_happens_to_the_server() {
    let (mut ended, mut kept) = (0, 0);
    for seed in 0..20 {
        match play(seed, judge) {
            Ok((more, keeps)) => {
                ended += more;
                kept += keeps;
            }
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    assert!(ended > 15 && kept > 5, "{ended} ended, {kept} kept");
}

#[test]
fn planted_faults_of_idle_rules_are_found() {
    let faults: [(&str, Judging); 3] = [("hasty", hasty), ("deaf", deaf), ("credulous", credulous)];
    for (name, fault) in faults {
        let found = (0..40).any(|seed| play(seed, fault).is_err());
        assert!(found, "{name} was not found");
    }
}
