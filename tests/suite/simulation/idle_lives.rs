//! Sessions that live under idle rules, minute by minute: warned twice, kept, ended, let off; and a dry run that says
//! what the server then does.

use std::collections::BTreeMap;

use api::idle_rules::{IdleRulePatchBody, IdleThresholdsBody, NewIdleRuleBody};
use api::users::{DepartingSessions, DepartureBody};
use rules::idleness::{IdleAction, IdleLevel, IdleMatch, judge};
use rules::messages::ContainerUsage;
use rules::names::{NodeId, SessionId, SessionName};
use rules::reason::Reason;
use rules::resources::Demand;
use rules::session::{
    DesiredState, Session, SessionChange, SessionEnvironment, SessionKind, SessionSpec, Transition,
};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use server::Failure;
use server::access::{Caller, local_root};
use server::actions::idle_rules::{change, create, keep, state, try_out};
use server::actions::notices::{self, NoticeKind, OwnNotice};
use server::actions::users::departure::depart;
use server::simulation::Simulation;
use server::simulation::fake_node::SimulatedMoment;

use super::run::caller;

const MINUTE: u64 = 60;

fn code<T>(result: Result<T, Failure>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(Failure::Refusal(refusal)) => refusal.code,
        Err(Failure::Fault(fault)) => panic!("a fault: {fault}"),
    }
}

fn cpu_rule(name: &str) -> NewIdleRuleBody {
    NewIdleRuleBody {
        name: name.to_owned(),
        level: IdleLevel::Site,
        subject: None,
        kind: None,
        exempt: String::new(),
        below: IdleThresholdsBody {
            cpu: Some(CpuShare(10)),
            ..IdleThresholdsBody::default()
        },
        of: IdleMatch::All,
        window_seconds: 60 * MINUTE,
        grace_seconds: 0,
        action: IdleAction::Stop,
        extend_seconds: 30 * MINUTE,
        extend_times: 1,
    }
}

/// A server with sessions whose minutes a test plays.
struct Played {
    simulation: Simulation,
    node: NodeId,
    now: Timestamp,
    cpu: BTreeMap<SessionId, u64>,
}

impl Played {
    fn new() -> Self {
        let now = Timestamp::from_millis(1_800_000_000_000);
        Self {
            simulation: Simulation::open(now).expect("memory can be written"),
            node: NodeId::make(now, [3; 10]),
            now,
            cpu: BTreeMap::new(),
        }
    }

    fn user(&self, name: &str) -> Caller {
        let id = self.simulation.user(name, self.now).expect("a user");
        caller(id, name)
    }

    /// A running session of `owner`, with half a device asked for.
    fn running(&self, owner: &Caller, name: &str) -> Session {
        let now = self.now;
        let spec = SessionSpec {
            kind: SessionKind::Interactive,
            environment: SessionEnvironment::Host,
            command: Vec::new(),
            env: BTreeMap::new(),
            demand: Demand {
                gpu: GpuShare(50),
                ..Demand::default()
            },
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let id = SessionId::make(now, base::observe::random());
        let name = SessionName::parse(name).expect("a name");
        let mut session = Session::launched(id, name, owner.subject.user, spec, now);
        let because = Reason::from_parts("placement.placed".into(), "It fits.".into());
        session.place(self.node, Vec::new(), because, now);
        for to in [
            Transition::Preparing,
            Transition::Running { started_at: now },
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
        let key = id.to_string();
        self.simulation.submit(&session, &key).expect("it is new");
        session
    }

    /// A minute in which these sessions spent so many seconds of a processor; then the server judges.
    fn minute(&mut self, spent: &[(&Session, u64)]) {
        self.now = self.now.plus_seconds(MINUTE);
        self.simulation.set_clock(SimulatedMoment::plain(self.now));
        let mut used = Vec::new();
        for (session, seconds) in spent {
            let sum = self.cpu.entry(session.id).or_default();
            *sum += seconds * 1_000_000;
            let usage = ContainerUsage {
                cpu_microseconds: *sum,
                memory: Bytes::mib(100),
                processes: 2,
                waited: None,
                devices: Vec::new(),
            };
            used.push((session.container(), usage));
        }
        self.simulation.sample(self.node, self.now, &used);
        let judged = self.simulation.judge_idle(self.now, &judge);
        judged.expect("rows can be written");
    }

    fn row(&self, session: &Session) -> Session {
        let row = self.simulation.session(session.id);
        row.expect("rows can be read").expect("it was submitted")
    }

    async fn warnings(&self, caller: &Caller, session: &Session) -> u32 {
        let id = session.id.to_string();
        let state = state(self.simulation.server(), caller, &id).await.unwrap();
        state.map_or(0, |state| state.warnings)
    }
}

#[tokio::test]
async fn a_session_that_is_left_is_warned_twice_kept_once_and_stopped() {
    let mut played = Played::new();
    let server = played.simulation.server().clone();
    let boss = local_root(&server);
    let mina = played.user("mina");
    let jae = played.user("jae");
    create(&server, &boss, cpu_rule("idle")).await.unwrap();
    let session = played.running(&mina, "notebook");
    let busy = played.running(&jae, "works");
    let id = session.id.to_string();
    let mut told = Vec::new();
    let mut before = 0;
    for minute in 0..200 {
        played.minute(&[(&session, 0), (&busy, 30)]);
        if played.row(&session).desired == DesiredState::Stop {
            told.push((minute, 9));
            break;
        }
        let now = played.warnings(&mina, &session).await;
        if now != before {
            told.push((minute, now));
            before = now;
        }
        if minute == 58 {
            assert_eq!(code(keep(&server, &jae, &id).await), "session.not-found");
            let kept = keep(&server, &mina, &id).await.unwrap();
            assert_eq!((kept.warnings, kept.kept, kept.keeps_left), (0, 1, 0));
            before = 0;
        }
        if minute == 80 {
            assert_eq!(
                code(keep(&server, &mina, &id).await),
                "session.keep-used-up"
            );
        }
    }
    // An hour, then half an hour more; a sample has its minute at the next one.
    assert_eq!(told, [(45, 1), (55, 2), (75, 1), (85, 2), (90, 9)]);
    let ended = played.row(&session);
    assert_eq!(
        ended.reason.map(|reason| reason.code).as_deref(),
        Some("session.idle")
    );
    assert_eq!(played.row(&busy).desired, DesiredState::Run);
    assert_eq!(
        code(keep(&server, &jae, &busy.id.to_string()).await),
        "session.not-warned"
    );
    let bell = notices::list(&server, &mina).await.unwrap();
    let warned =
        |notice: &&OwnNotice| matches!(notice.about, NoticeKind::IdleWarned(IdleAction::Stop, _));
    assert_eq!(bell.iter().filter(warned).count(), 4);
    assert_eq!(notices::list(&server, &jae).await.unwrap(), []);
}

#[tokio::test]
async fn what_was_kept_is_kept_again_after_the_next_warning_alone() {
    let mut played = Played::new();
    let server = played.simulation.server().clone();
    let boss = local_root(&server);
    let mina = played.user("mina");
    let rule = NewIdleRuleBody {
        extend_times: 2,
        ..cpu_rule("idle")
    };
    create(&server, &boss, rule).await.unwrap();
    let session = played.running(&mina, "notebook");
    let id = session.id.to_string();
    for _ in 0..57 {
        played.minute(&[(&session, 0)]);
    }
    assert_eq!(played.warnings(&mina, &session).await, 2);
    for code_then in ["done", "session.kept-already"] {
        assert_eq!(code(keep(&server, &mina, &id).await), code_then);
    }
    while played.warnings(&mina, &session).await == 0 {
        played.minute(&[(&session, 0)]);
        assert_eq!(played.row(&session).desired, DesiredState::Run);
    }
    for code_then in ["done", "session.keep-used-up"] {
        assert_eq!(code(keep(&server, &mina, &id).await), code_then);
    }
}

#[tokio::test]
async fn a_crash_neither_warns_twice_nor_forgets() {
    let mut played = Played::new();
    let server = played.simulation.server().clone();
    let boss = local_root(&server);
    let mina = played.user("mina");
    create(&server, &boss, cpu_rule("idle")).await.unwrap();
    let session = played.running(&mina, "notebook");
    for minute in 0..100 {
        played.minute(&[(&session, 0)]);
        if [20, 46, 57].contains(&minute) {
            // The server starts again: what it counted in memory is gone.
            played.simulation.crash();
        }
    }
    let bell = notices::list(&server, &mina).await.unwrap();
    let warnings: Vec<u64> = bell
        .iter()
        .filter_map(|notice| match notice.about {
            NoticeKind::IdleWarned(_, minutes) => Some(minutes),
            _ => None,
        })
        .collect();
    assert_eq!(warnings, [5, 15], "newest first, each once");
    assert_eq!(played.row(&session).desired, DesiredState::Stop);
}

#[tokio::test]
async fn a_changed_rule_and_an_exempt_label_let_a_session_off() {
    let mut played = Played::new();
    let server = played.simulation.server().clone();
    let boss = local_root(&server);
    let mina = played.user("mina");
    let exempting = NewIdleRuleBody {
        exempt: "keep".into(),
        ..cpu_rule("idle")
    };
    create(&server, &boss, exempting).await.unwrap();
    let session = played.running(&mina, "notebook");
    let let_off = played.running(&mina, "marked");
    let labelled = played.simulation.edit(let_off.id, |session| {
        session.remarks.labels.insert("keep".into(), "yes".into());
        true
    });
    assert!(labelled.unwrap());
    for _ in 0..57 {
        played.minute(&[(&session, 0), (&let_off, 0)]);
    }
    assert_eq!(played.warnings(&mina, &session).await, 2);
    assert_eq!(played.warnings(&mina, &let_off).await, 0);
    let patch = IdleRulePatchBody {
        grace_seconds: Some(60),
        ..IdleRulePatchBody::default()
    };
    change(&server, &boss, "idle", patch, None).await.unwrap();
    assert_eq!(
        played.warnings(&mina, &session).await,
        0,
        "what the old rule told"
    );
    played.minute(&[(&session, 0), (&let_off, 0)]);
    assert_eq!(played.warnings(&mina, &session).await, 1, "warned anew");
    for _ in 0..14 {
        played.minute(&[(&session, 0), (&let_off, 0)]);
        assert_eq!(played.row(&session).desired, DesiredState::Run);
    }
    played.minute(&[(&session, 0), (&let_off, 0)]);
    assert_eq!(played.row(&session).desired, DesiredState::Stop);
    assert_eq!(played.row(&let_off).desired, DesiredState::Run);
}

#[tokio::test]
async fn a_pause_is_no_idleness() {
    let mut played = Played::new();
    let server = played.simulation.server().clone();
    let boss = local_root(&server);
    let mina = played.user("mina");
    create(&server, &boss, cpu_rule("idle")).await.unwrap();
    let session = played.running(&mina, "notebook");
    let pause = |on: bool| {
        move |session: &mut Session| {
            session.paused = on;
            true
        }
    };
    for _ in 0..50 {
        played.minute(&[(&session, 0)]);
    }
    assert_eq!(played.warnings(&mina, &session).await, 1);
    assert!(played.simulation.edit(session.id, pause(true)).unwrap());
    assert_eq!(played.warnings(&mina, &session).await, 0);
    let id = session.id.to_string();
    assert_eq!(
        code(keep(&server, &mina, &id).await),
        "session.not-warned",
        "nothing ends what is paused"
    );
    for _ in 0..120 {
        played.minute(&[(&session, 0)]);
    }
    assert!(played.simulation.edit(session.id, pause(false)).unwrap());
    for _ in 0..45 {
        played.minute(&[(&session, 0)]);
        assert_eq!(played.warnings(&mina, &session).await, 0);
    }
    played.minute(&[(&session, 0)]);
    assert_eq!(played.warnings(&mina, &session).await, 1, "anew");
    assert_eq!(played.row(&session).desired, DesiredState::Run);
}

#[tokio::test]
async fn a_closer_rule_takes_a_session_over_in_earnest_and_in_a_dry_run() {
    let mut played = Played::new();
    let server = played.simulation.server().clone();
    let boss = local_root(&server);
    let mina = played.user("mina");
    create(&server, &boss, cpu_rule("idle")).await.unwrap();
    let session = played.running(&mina, "notebook");
    for _ in 0..50 {
        played.minute(&[(&session, 0)]);
    }
    assert_eq!(played.warnings(&mina, &session).await, 1);
    let lab = NewIdleRuleBody {
        level: IdleLevel::Project,
        subject: Some("default".into()),
        window_seconds: 3 * 60 * MINUTE,
        ..cpu_rule("lab")
    };
    create(&server, &boss, lab.clone()).await.unwrap();
    assert_eq!(played.warnings(&mina, &session).await, 0, "at once");
    for _ in 0..60 {
        played.minute(&[(&session, 0)]);
    }
    assert_eq!(played.warnings(&mina, &session).await, 0);
    assert_eq!(played.row(&session).desired, DesiredState::Run);
    for (rule, judged, ended) in [
        (cpu_rule("idle"), 0, 0),
        (lab.clone(), 1, 0),
        // As if the closer one were changed, and as if the site had another one besides.
        (
            NewIdleRuleBody {
                window_seconds: 60 * MINUTE,
                ..lab
            },
            1,
            1,
        ),
        (cpu_rule("second"), 0, 0),
    ] {
        let name = rule.name.clone();
        let run = try_out(&server, &boss, rule).await.unwrap();
        assert_eq!((run.sessions, run.ended), (judged, ended), "{name}");
    }
}

#[tokio::test]
async fn a_pausing_rule_pauses_and_a_telling_one_tells_once() {
    for (action, paused) in [(IdleAction::Pause, true), (IdleAction::Notice, false)] {
        let mut played = Played::new();
        let server = played.simulation.server().clone();
        let boss = local_root(&server);
        let mina = played.user("mina");
        let rule = NewIdleRuleBody {
            action,
            ..cpu_rule("idle")
        };
        create(&server, &boss, rule).await.unwrap();
        let session = played.running(&mina, "notebook");
        for _ in 0..120 {
            played.minute(&[(&session, 0)]);
        }
        let row = played.row(&session);
        assert_eq!((row.paused, row.desired), (paused, DesiredState::Run));
        let bell = notices::list(&server, &mina).await.unwrap();
        let found = |notice: &&OwnNotice| notice.about == NoticeKind::FoundIdle;
        assert_eq!(bell.iter().filter(found).count(), 1);
    }
}

#[tokio::test]
async fn a_rule_that_queues_again_stops_and_queues_again_but_not_who_leaves() {
    for leaves in [false, true] {
        let mut played = Played::new();
        let server = played.simulation.server().clone();
        let boss = local_root(&server);
        let mina = played.user("mina");
        let rule = NewIdleRuleBody {
            action: IdleAction::Requeue,
            ..cpu_rule("idle")
        };
        create(&server, &boss, rule).await.unwrap();
        let session = played.running(&mina, "notebook");
        if leaves {
            let until = played.now.plus_seconds(86_400);
            let asked = DepartureBody {
                sessions: DepartingSessions::Finish,
                until: Some(until),
            };
            depart(&server, &boss, "mina", asked).await.unwrap();
        }
        for _ in 0..120 {
            played.minute(&[(&session, 0)]);
        }
        let row = played.row(&session);
        assert_eq!(row.desired, DesiredState::Stop);
        assert_eq!(row.is_idle_requeued(), !leaves);
        assert_eq!(
            row.reason.map(|reason| reason.code),
            Some("session.idle".to_owned())
        );
    }
}

#[tokio::test]
async fn a_dry_run_and_the_server_end_the_same_sessions_at_the_same_minutes() {
    let mut played = Played::new();
    let server = played.simulation.server().clone();
    let boss = local_root(&server);
    let mina = played.user("mina");
    let sessions: Vec<Session> = (0..12)
        .map(|number| played.running(&mina, &format!("s{number}")))
        .collect();
    // A rule that tells leaves every session running, so that their samples go on.
    let rule = NewIdleRuleBody {
        action: IdleAction::Notice,
        ..cpu_rule("idle")
    };
    create(&server, &boss, rule.clone()).await.unwrap();
    let mut acted: BTreeMap<String, Timestamp> = BTreeMap::new();
    for minute in 0..240_u64 {
        // Each works for a minute now and then, the higher its number the more often.
        let spent: Vec<(&Session, u64)> = sessions
            .iter()
            .enumerate()
            .map(|(number, session)| {
                let every = 300 / (number as u64 + 1);
                (session, if minute % every == every - 1 { 30 } else { 0 })
            })
            .collect();
        played.minute(&spent);
        for session in &sessions {
            let state = state(&server, &mina, &session.id.to_string()).await;
            if state.unwrap().is_some_and(|state| state.ends_at.is_none()) {
                acted.entry(session.name.to_string()).or_insert(played.now);
            }
        }
    }
    let run = try_out(&server, &boss, rule).await.unwrap();
    let dry: BTreeMap<String, Timestamp> = run
        .examples
        .iter()
        .map(|end| (end.name.clone(), end.at))
        .collect();
    assert_eq!(dry, acted);
    assert!(dry.len() >= 3 && dry.len() < sessions.len(), "{dry:?}");
    assert_eq!((run.sessions, run.ended), (12, dry.len() as u64));
    assert!(run.busy_again > 0, "{run:?}");
    let freed: f64 = run.examples.iter().map(|end| end.gpu_hours).sum();
    assert!((freed - run.gpu_hours).abs() < 1e-9 && run.gpu_hours > 1.0);
    let longest = &run.examples[0];
    let held = played.now.seconds_since(longest.at) as f64 / 3_600.0;
    assert!(
        (longest.gpu_hours - held / 2.0).abs() < 0.02,
        "half a device"
    );
}
