//! Preemption through passes: who is stopped and with which grace, and who gets the place.

use rules::messages::PREEMPTION_GRACE_SECONDS;
use rules::names::{ResourceGroupId, TenantName};
use rules::policy::PreemptionMode;
use rules::resource_group::{GroupPlan, ResourceGroup};
use rules::workload::precedence::Precedence;

use super::*;

/// The only resource group, with preemption.
fn plan() -> GroupPlan {
    let name = TenantName::parse("default").unwrap();
    let founding = ResourceGroup {
        preemption: PreemptionMode::Priority,
        ..ResourceGroup::new(ResourceGroupId::DEFAULT, name)
    };
    GroupPlan {
        groups: vec![founding],
        ..GroupPlan::default()
    }
}

/// One that wants all of the machine's processors.
fn wide(number: u128, priority: u32) -> Session {
    let mut session = session(number, SessionEnvironment::Host);
    session.spec.demand.cpu = CpuShare(400);
    session.precedence = Precedence {
        priority,
        yields: true,
    };
    session
}

fn status(session: &Session, state: ReportedState) -> ContainerStatus {
    ContainerStatus {
        name: session.container(),
        state,
        usage: None,
        devices: vec![],
        ran: None,
    }
}

fn pass_at(
    controller: &mut Controller,
    mut sight: PassSnapshot,
    heard: &NodeReport,
    second: i64,
) -> ControllerPass {
    sight.world.groups = plan();
    let steady = Duration::from_secs(u64::try_from(second).unwrap());
    controller.run_pass(sight, &[heard], at(second), steady, &placement::decide)
}

#[test]
fn who_yields_makes_way_with_a_long_grace_and_is_queued_again() {
    let (mut low, urgent) = (wide(1, 0), wide(2, 50));
    run(&mut low);
    let since = at(2);
    let runs = ReportedState::Running {
        since,
        paused: false,
    };
    let heard = report(0, vec![status(&low, runs)]);
    let mut controller = Controller::default();
    let sight = sight_of(vec![low.clone(), urgent.clone()], &[]);
    let early = pass_at(&mut controller, sight, &heard, 300);
    let of = |pass: &ControllerPass, id| pass.world.session(id).cloned().expect("it lives");
    assert_eq!(of(&early, low.id).desired, DesiredState::Run);
    let due = controller.until_due(&early).expect("ten minutes are due");
    assert!(due <= Duration::from_secs(302), "{due:?}");
    let late = pass_at(&mut controller, written(&early, &[]), &heard, 603);
    let stopped = of(&late, low.id);
    assert!(stopped.is_preempted() && stopped.restart);
    assert_eq!(stopped.preempted_count, 1);
    assert!(
        of(&late, urgent.id).is_pending(),
        "its place is not free yet"
    );
    let writes = late.writes().expect("it is stopped");
    let told = writes.happened.iter().find(|one| one.session == low.id);
    assert_eq!(
        told.expect("an event").code,
        rules::codes::SESSION_PREEMPTED
    );
    let [order] = &late.assigned[&NODE].containers[..] else {
        panic!("{:?}", late.assigned);
    };
    assert_eq!(order.want, Want::Stop);
    assert_eq!(order.stop_grace_seconds, Some(PREEMPTION_GRACE_SECONDS));
    let ended = ReportedState::Ended(ExitRecord {
        exit_code: 143,
        started_at: Some(since),
        ended_at: at(610),
        out_of_memory: false,
        peak_memory: None,
    });
    let heard = report(0, vec![status(&low, ended)]);
    let after = pass_at(&mut controller, written(&late, &[]), &heard, 611);
    let again = of(&after, low.id);
    assert!(again.is_pending(), "{again:?}");
    assert_eq!((again.incarnation, again.preempted_count), (2, 1));
    assert_eq!(of(&after, urgent.id).state(), SessionState::Scheduled);
}
