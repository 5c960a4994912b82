//! The promises of idleness, by tables and by random sessions with restarts, gaps, missing measures and clocks that
//! jump. Each random test names its seed.

use super::*;

const MINUTE: u64 = 60_000;

fn rule() -> IdleRule {
    IdleRule {
        below: IdleThresholds {
            gpu_percent: Some(5),
            cpu: Some(CpuShare(10)),
            ..IdleThresholds::default()
        },
        of: IdleMatch::All,
        window_seconds: 3_600,
        grace_seconds: 600,
        action: IdleAction::Stop,
        extend_seconds: 1_800,
        extend_times: 2,
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis as i64)
}

fn steady(millis: u64) -> Option<SteadyMoment> {
    Some(SteadyMoment {
        boot: uuid::Uuid::from_u128(1),
        millis,
    })
}

/// A sample after so many minutes, with so much processor and device time spent so far.
fn sample(minute: u64, cpu_seconds: u64, busy_seconds: u64) -> IdleSample {
    IdleSample {
        at: at(minute * MINUTE),
        incarnation: 1,
        steady: steady(minute * MINUTE),
        cpu_microseconds: cpu_seconds * 1_000_000,
        worked: Some(BusyTime {
            busy_microseconds: busy_seconds * 1_000_000,
            granted_microseconds: minute * 30_000_000,
        }),
        terminals: Some(1),
        keys: Some(0),
    }
}

fn quiet_after(rule: &IdleRule, samples: &[IdleSample]) -> u64 {
    let mut progress = IdleProgress::default();
    for sample in samples {
        progress.take(rule, sample);
    }
    progress.quiet() / MINUTE
}

#[test]
fn a_minute_is_quiet_by_the_measures_that_the_rule_names() {
    let no_grace = IdleRule {
        grace_seconds: 0,
        ..rule()
    };
    let [first, second] = [sample(0, 0, 0), sample(1, 5, 1)];
    let seen = |rule: &IdleRule, change: &dyn Fn(&mut IdleSample)| {
        let mut after = second;
        change(&mut after);
        super::seen(&rule.below, rule.of, (&first, &after), Some(MINUTE))
    };
    let any = IdleRule {
        of: IdleMatch::Any,
        ..no_grace
    };
    let with = |below| IdleRule { below, ..no_grace };
    let presence = with(IdleThresholds {
        terminals: Some(1),
        keys: Some(1),
        ..IdleThresholds::default()
    });
    type Change<'c> = &'c dyn Fn(&mut IdleSample);
    let all: [(&str, &IdleRule, Change<'_>, Seen); 10] = [
        ("below both", &no_grace, &|_| {}, Seen::Quiet),
        (
            "cores at the threshold",
            &no_grace,
            &|s| s.cpu_microseconds = 6_000_000,
            Seen::Busy,
        ),
        (
            "device works",
            &no_grace,
            &|s| s.worked = sample(1, 0, 2).worked,
            Seen::Busy,
        ),
        (
            "device unknown",
            &no_grace,
            &|s| s.worked = None,
            Seen::Unmeasured,
        ),
        (
            "one works, the other unknown",
            &no_grace,
            &|s| {
                s.worked = None;
                s.cpu_microseconds = 60_000_000;
            },
            Seen::Busy,
        ),
        (
            "any: device works, cores do not",
            &any,
            &|s| s.worked = sample(1, 0, 20).worked,
            Seen::Quiet,
        ),
        (
            "any: one works, the other unknown",
            &any,
            &|s| {
                s.worked = None;
                s.cpu_microseconds = 60_000_000;
            },
            Seen::Unmeasured,
        ),
        ("a terminal is open", &presence, &|_| {}, Seen::Busy),
        (
            "no terminal, keys unknown",
            &presence,
            &|s| {
                s.terminals = Some(0);
                s.keys = None;
            },
            Seen::Unmeasured,
        ),
        (
            "nobody is there",
            &presence,
            &|s| s.terminals = Some(0),
            Seen::Quiet,
        ),
    ];
    for (name, rule, change, wanted) in all {
        assert_eq!(seen(rule, change), wanted, "{name}");
    }
    assert_eq!(
        quiet_after(&rule(), &[first, second]),
        0,
        "within the grace"
    );
    assert_eq!(quiet_after(&no_grace, &[first, second]), 1);
}

#[test]
fn work_over_a_gap_is_seen_and_rest_over_a_gap_is_not() {
    let rule = IdleRule {
        grace_seconds: 0,
        ..rule()
    };
    let mut samples: Vec<_> = (0..=10).map(|minute| sample(minute, 0, 0)).collect();
    samples.push(sample(20, 0, 0));
    assert_eq!(quiet_after(&rule, &samples), 10, "the gap adds nothing");
    samples.pop();
    // Seven seconds in one of ten minutes are more than a tenth of a core.
    samples.push(sample(20, 7, 0));
    assert_eq!(quiet_after(&rule, &samples), 0);
    samples.pop();
    samples.push(sample(26, 0, 0));
    assert_eq!(quiet_after(&rule, &samples), 0, "too long unmeasured");
}

/// Lives through samples as the server does: judges after each, and does what comes out. Gives each step with the
/// number of its sample; `keep` says whether somebody keeps it after that sample.
fn live(
    rule: &IdleRule,
    samples: &[IdleSample],
    keep: impl Fn(usize) -> bool,
) -> Vec<(usize, IdleStep)> {
    let (mut progress, mut told) = (IdleProgress::default(), IdleTold::default());
    let mut steps = Vec::new();
    for (number, sample) in samples.iter().enumerate() {
        progress.take(rule, sample);
        let quiet = SessionQuiet::of([&progress].into_iter()).expect("one container");
        let step = judge(rule, &told, quiet);
        match step {
            IdleStep::Wait => {}
            IdleStep::Forget => told = IdleTold::default(),
            IdleStep::Warn(which) => {
                told.warnings[which] = Some(IdleWarning {
                    at: sample.at,
                    quiet: quiet.millis,
                });
            }
            IdleStep::Act => told.acted = true,
        }
        if step != IdleStep::Wait {
            steps.push((number, step));
        }
        if keep(number) {
            told = told.keep(rule, 0).expect("it was warned");
        }
    }
    steps
}

#[test]
fn it_is_warned_twice_kept_once_and_ended() {
    let samples: Vec<_> = (0..200).map(|minute| sample(minute, 0, 0)).collect();
    let left = live(&rule(), &samples, |_| false);
    // Ten minutes of grace, then an hour.
    let wanted = [
        (55, IdleStep::Warn(0)),
        (65, IdleStep::Warn(1)),
        (70, IdleStep::Act),
    ];
    assert_eq!(left, wanted);
    let kept = live(&rule(), &samples, |number| number == 66);
    let again = [
        (85, IdleStep::Warn(0)),
        (95, IdleStep::Warn(1)),
        (100, IdleStep::Act),
    ];
    assert_eq!(kept[..2], wanted[..2]);
    assert_eq!(kept[2..], again, "half an hour later, warned twice again");
}

#[test]
fn a_keep_puts_off_what_was_due_by_all_that_the_rule_allows() {
    let rule = rule();
    let nothing = IdleTold::default();
    assert_eq!(nothing.keep(&rule, 0), None, "nobody warned it");
    let minutes = |told: &IdleTold| told.put_off / MINUTE;
    let warned = |quiet: u64| {
        let warning = IdleWarning {
            at: at(quiet * MINUTE),
            quiet: quiet * MINUTE,
        };
        IdleTold {
            warnings: [Some(warning), None],
            ..nothing
        }
    };
    // Due after an hour; warned late, after a quarter more.
    for (quiet, due) in [(45, 60), (90, 105)] {
        let kept = warned(quiet).keep(&rule, 0).expect("it was warned");
        assert_eq!((minutes(&kept), kept.kept), (due + 30, 1));
        assert_eq!(kept.warnings, [None, None]);
        let late = warned(quiet).keep(&rule, 3 * MINUTE).expect("warned");
        assert_eq!(minutes(&late), due + 33);
        let absurd = warned(quiet).keep(&rule, u64::MAX).expect("warned");
        assert_eq!(minutes(&absurd), due + 60, "a clock that was set");
    }
    let acted = IdleTold {
        acted: true,
        ..warned(45)
    };
    assert_eq!(acted.keep(&rule, 0), None);
}

#[test]
fn work_takes_the_warnings_back() {
    let mut samples: Vec<_> = (0..=66).map(|minute| sample(minute, 0, 0)).collect();
    samples.extend((67..200).map(|minute| sample(minute, 30, 0)));
    let steps = live(&rule(), &samples, |_| false);
    let wanted = [
        (55, IdleStep::Warn(0)),
        (65, IdleStep::Warn(1)),
        (67, IdleStep::Forget),
        (112, IdleStep::Warn(0)),
        (122, IdleStep::Warn(1)),
        (127, IdleStep::Act),
    ];
    assert_eq!(steps, wanted);
}

#[test]
fn rules_that_cannot_be_are_refused_by_name() {
    let code = |change: &dyn Fn(&mut IdleRule)| {
        let mut one = rule();
        change(&mut one);
        one.check()
            .err()
            .map_or_else(String::new, |refusal| refusal.code)
    };
    type Change<'c> = &'c dyn Fn(&mut IdleRule);
    let all: [(Change<'_>, &str); 15] = [
        (&|_| {}, ""),
        (&|r| r.below = IdleThresholds::default(), "idle-rule.empty"),
        (&|r| r.below.gpu_percent = Some(0), "idle-rule.threshold"),
        (&|r| r.below.gpu_percent = Some(101), "idle-rule.threshold"),
        (&|r| r.below.cpu = Some(CpuShare(0)), "idle-rule.threshold"),
        (&|r| r.below.keys = Some(0), "idle-rule.threshold"),
        (&|r| r.below.keys = Some(10_001), "idle-rule.threshold"),
        (&|r| r.below.terminals = Some(10_000), ""),
        (&|r| r.window_seconds = 1_199, "idle-rule.window"),
        (&|r| r.window_seconds = 259_201, "idle-rule.window"),
        (&|r| r.grace_seconds = 86_401, "idle-rule.grace"),
        (&|r| r.extend_seconds = 1_199, "idle-rule.extend"),
        (&|r| r.extend_times = 21, "idle-rule.extend"),
        (&|r| (r.extend_seconds, r.extend_times) = (0, 0), ""),
        (
            &|r| (r.extend_seconds, r.extend_times) = (86_401, 0),
            "idle-rule.extend",
        ),
    ];
    for (change, wanted) in all {
        assert_eq!(code(change), wanted);
    }
}

#[test]
fn every_fault_of_a_rule_stands_at_its_field() {
    let faults = IdleRule {
        below: IdleThresholds {
            gpu_percent: Some(101),
            keys: Some(0),
            ..IdleThresholds::default()
        },
        window_seconds: 60,
        grace_seconds: 86_401,
        ..rule()
    }
    .faults();
    let fields: Vec<Option<&str>> = faults.iter().map(|one| one.pointer.as_deref()).collect();
    let wanted = [
        "/below/gpu_percent",
        "/below/keys",
        "/window_seconds",
        "/grace_seconds",
    ];
    assert_eq!(fields, wanted.map(Some));
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// A session's minutes as they were, and its samples as a server took them.
struct Life {
    samples: Vec<IdleSample>,
    /// Of each sample: milliseconds since the session last worked, and since the server started to sample it.
    rested: Vec<u64>,
    /// Of each sample: time since the start of the session, which no clock changes.
    steady: Vec<u64>,
}

/// `faults`: restarts, gaps, missing measures and clocks that are set; without them every minute has its sample.
fn life(dice: &mut Dice, faults: bool) -> Life {
    let mut all = Life {
        samples: Vec::new(),
        rested: Vec::new(),
        steady: Vec::new(),
    };
    let (mut wall, mut steady, mut cpu, mut busy, mut granted) = (0_i64, 0, 0, 0, 0);
    let mut rested = 0;
    let mut known = true;
    let mut away = 0;
    for _ in 0..dice.roll(2_000) {
        steady += MINUTE;
        wall += MINUTE as i64;
        granted += 30_000_000;
        rested += MINUTE;
        if dice.roll(150) == 0 {
            cpu += 10_000_000 + dice.roll(50_000_000);
            busy += dice.roll(30_000_000);
            rested = 0;
        }
        if faults {
            match dice.roll(120) {
                0 => wall += dice.roll(200_000_000) as i64 - 100_000_000,
                1 => wall += dice.roll(240_000) as i64 - 120_000,
                2 => away = dice.roll(40),
                3 => known = false,
                _ => {}
            }
            if away > 0 {
                away -= 1;
                continue;
            }
        }
        let lost = faults && dice.roll(60) == 0;
        all.samples.push(IdleSample {
            at: Timestamp::from_millis(1_800_000_000_000 + wall),
            incarnation: 1,
            steady: match known {
                true => super::tests::steady(steady),
                false => None,
            },
            cpu_microseconds: cpu,
            worked: (!lost).then_some(BusyTime {
                busy_microseconds: busy,
                granted_microseconds: granted,
            }),
            terminals: None,
            keys: None,
        });
        all.rested.push(rested);
        all.steady.push(steady);
        known = true;
    }
    all
}

#[test]
fn nobody_is_ended_before_both_warnings_and_a_whole_window_whatever_clocks_and_restarts_do() {
    let (mut acts, mut warnings) = (0, 0);
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let life = life(&mut dice, seed % 4 > 0);
        let rule = IdleRule {
            window_seconds: 1_200 + dice.roll(10_000),
            grace_seconds: dice.roll(3_600),
            ..rule()
        };
        let steps = live(&rule, &life.samples, |_| false);
        let mut given: Vec<(usize, usize)> = Vec::new();
        for (number, step) in steps {
            match step {
                IdleStep::Wait => {}
                IdleStep::Forget => given.clear(),
                IdleStep::Warn(which) => {
                    warnings += 1;
                    assert_eq!(which, given.len(), "seed {seed}");
                    given.push((which, number));
                }
                IdleStep::Act => {
                    acts += 1;
                    let [(0, first), (1, second)] = given[..] else {
                        panic!("seed {seed}: it acts after {given:?}");
                    };
                    let apart = |a: usize, b: usize| life.steady[b] - life.steady[a];
                    assert!(apart(first, second) >= 600_000, "seed {seed}");
                    assert!(apart(second, number) >= 300_000, "seed {seed}");
                    let rested = life.rested[number];
                    assert!(
                        rested >= rule.window_seconds * 1000,
                        "seed {seed}: {rested}"
                    );
                    assert!(
                        life.steady[number] >= (rule.window_seconds + rule.grace_seconds) * 1000,
                        "seed {seed}: within the grace"
                    );
                }
            }
        }
    }
    assert!(
        acts > 200 && warnings > 500,
        "{acts} acts, {warnings} warnings"
    );
}

#[test]
fn faults_only_ever_put_an_end_off() {
    let mut later = 0;
    for seed in 0..300 {
        let clean: Vec<_> = (0..600).map(|minute| sample(minute, 0, 0)).collect();
        let end = |samples: &[IdleSample]| {
            let steps = live(&rule(), samples, |_| false);
            steps
                .iter()
                .find(|(_, step)| *step == IdleStep::Act)
                .map(|(number, _)| *number)
        };
        let before = end(&clean).expect("an hour of rest");
        let mut dice = Dice(seed);
        let mut harmed = clean;
        for _ in 0..=dice.roll(4) {
            let number = dice.roll(120) as usize;
            match dice.roll(4) {
                0 => harmed[number].steady = None,
                1 => harmed[number].worked = None,
                // Lost: the next one spans two minutes.
                2 => harmed[number] = harmed[number.saturating_sub(1)],
                _ => {
                    let jump = dice.roll(20_000_000) as i64 - 10_000_000;
                    for sample in &mut harmed[number..] {
                        sample.at = Timestamp::from_millis(sample.at.as_millis() + jump);
                    }
                }
            }
        }
        let after = end(&harmed).unwrap_or(usize::MAX);
        assert!(after >= before, "seed {seed}: {after} before {before}");
        later += usize::from(after > before);
    }
    assert!(later > 100, "{later}");
}

#[test]
fn a_dry_run_ends_whom_the_server_ends_on_the_same_samples() {
    let mut ended = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let mut life = life(&mut dice, seed % 2 > 0);
        // Rows are read in the order of the time of day.
        life.samples.sort_by_key(|sample| sample.at);
        let rule = IdleRule {
            window_seconds: 1_200 + dice.roll(7_200),
            grace_seconds: dice.roll(1_200),
            ..rule()
        };
        let steps = live(&rule, &life.samples, |_| false);
        let act = steps.iter().find(|(_, step)| *step == IdleStep::Act);
        let lived = act.map(|(number, _)| life.samples[*number].at);
        let dry = dry_run(&rule, &[life.samples.clone()]);
        assert_eq!(dry.first().map(|end| end.at), lived, "seed {seed}");
        assert!(dry.len() <= 1, "one start, one end");
        ended += dry.len();
    }
    assert!(ended > 100, "{ended}");
}

#[test]
fn a_dry_run_says_who_worked_again_and_what_was_freed() {
    let mut samples: Vec<_> = (0..=100).map(|minute| sample(minute, 0, 0)).collect();
    samples.extend((101..=150).map(|minute| sample(minute, 30, 0)));
    let end = DryEnd {
        at: at(70 * MINUTE),
        until: at(150 * MINUTE),
        busy_again: true,
    };
    assert_eq!(dry_run(&rule(), &[samples.clone()]), [end]);
    // Another start of it is judged from zero, and rests for too short a time.
    let again = (151..=200).map(|minute| IdleSample {
        incarnation: 2,
        ..sample(minute, 0, 0)
    });
    let with_second: Vec<_> = samples.iter().copied().chain(again).collect();
    assert_eq!(dry_run(&rule(), &[with_second]), [end]);
    // One of two containers works all the time.
    let works = (0..=150)
        .map(|minute| sample(minute, minute * 60, 0))
        .collect();
    assert!(dry_run(&rule(), &[samples, works]).is_empty());
}

#[test]
fn a_dry_run_knows_which_containers_are_over_and_which_are_silent() {
    let left: Vec<_> = (0..=150).map(|minute| sample(minute, 0, 0)).collect();
    let ends = |other: Vec<IdleSample>| -> Vec<Timestamp> {
        let ends = dry_run(&rule(), &[left.clone(), other]);
        ends.iter().map(|end| end.at).collect()
    };
    let works = |minutes: std::ops::RangeInclusive<u64>| -> Vec<IdleSample> {
        minutes
            .map(|minute| sample(minute, minute * 60, 0))
            .collect()
    };
    // It worked for twenty minutes and ended: the one that is left decides.
    assert_eq!(ends(works(0..=20)), [at(70 * MINUTE)]);
    // It is silent for most of an hour, and then works on.
    let silent: Vec<_> = works(0..=20).into_iter().chain(works(75..=150)).collect();
    assert!(ends(silent).is_empty());
    // It begins late, so that the session has not been quiet for an hour at the seventieth minute.
    let late: Vec<_> = (30..=150).map(|minute| sample(minute, 0, 0)).collect();
    assert_eq!(ends(late), [at(100 * MINUTE)]);
}

fn session(domain: u128, project: u128) -> Session {
    let now = at(0);
    let spec = crate::session::SessionSpec {
        kind: SessionKind::Batch,
        environment: crate::session::SessionEnvironment::Host,
        command: Vec::new(),
        env: BTreeMap::new(),
        demand: crate::resources::Demand::default(),
        timeout_seconds: None,
        max_runtime_seconds: None,
        start_at: None,
        depends_on: Vec::new(),
        containers: 1,
    };
    let name = crate::names::SessionName::parse("one").expect("a name");
    let id = crate::names::SessionId::make(now, [1; 10]);
    let owner = crate::names::UserId::make(now, [2; 10]);
    let mut session = Session::launched(id, name, owner, spec, now);
    session.domain = crate::tenancy::DomainId(uuid::Uuid::from_u128(domain));
    session.project = crate::tenancy::ProjectId(uuid::Uuid::from_u128(project));
    session
}

#[test]
fn the_closest_rule_judges_and_what_it_lets_off_no_wider_rule_ends() {
    let of = |number: u128, level: IdleLevel, subject: Option<u128>| ScopedIdleRule {
        id: IdleRuleId(uuid::Uuid::from_u128(number)),
        level,
        subject: subject.map(uuid::Uuid::from_u128),
        kind: None,
        exempt: String::new(),
        rule: rule(),
        generation: 1,
    };
    let site = of(4, IdleLevel::Site, None);
    let batch = ScopedIdleRule {
        kind: Some(SessionKind::Batch),
        ..of(5, IdleLevel::Site, None)
    };
    let younger = of(6, IdleLevel::Site, None);
    let interactive = ScopedIdleRule {
        kind: Some(SessionKind::Interactive),
        ..of(1, IdleLevel::Project, Some(20))
    };
    let domain = of(2, IdleLevel::Domain, Some(10));
    let other = of(3, IdleLevel::Project, Some(21));
    let project = ScopedIdleRule {
        exempt: "keep=yes".to_owned(),
        ..of(7, IdleLevel::Project, Some(20))
    };
    let mut one = session(10, 20);
    let id = |rules: &[&ScopedIdleRule], session: &Session| {
        let rules: Vec<_> = rules.iter().map(|rule| (*rule).clone()).collect();
        closest(&rules, session).map(|rule| rule.id.0.as_u128())
    };
    assert_eq!(id(&[&interactive, &other], &one), None);
    assert_eq!(id(&[&younger, &site], &one), Some(4), "the oldest");
    assert_eq!(id(&[&batch, &site], &one), Some(5), "the one for its kind");
    assert_eq!(id(&[&batch, &domain], &one), Some(2));
    assert_eq!(id(&[&batch, &domain, &project], &one), Some(7));
    one.remarks.labels.insert("keep".into(), "no".into());
    assert_eq!(id(&[&domain, &project], &one), Some(7));
    one.remarks.labels.insert("keep".into(), "yes".into());
    assert_eq!(id(&[&domain, &project], &one), None);
    assert_eq!(id(&[&domain], &one), Some(2));
}
