//! A session that is restarted keeps its place over generated worlds, and no waiting session gets any of it.

use super::agreement::{NOW, generated, pass};
use super::*;
use crate::codes;
use crate::session::SessionContainer;

/// Ends a session that is to start again: what it had, and what it would wait for.
fn ended(
    world: &mut ClusterSnapshot,
    id: SessionId,
) -> (
    Vec<SessionContainer>,
    Option<crate::blocker::PlacementBlocker>,
) {
    let told = {
        let session = world.session(id).unwrap();
        restart_blocker(world, session, session.containers(), NOW)
    };
    let row = world.sessions.iter_mut().find(|s| s.id == id).unwrap();
    let had = row.containers().to_vec();
    row.restart = true;
    assert!(row.stop(DesiredState::Stop, reasons::session_restarted(), NOW));
    row.end(Outcome::Stopped, None, NOW);
    assert_eq!((row.state(), row.incarnation), (SessionState::Pending, 2));
    let session = world.session(id).unwrap();
    let blocker = restart_blocker(world, session, &had, NOW);
    assert_eq!(told, blocker, "said beforehand: {had:?}");
    (had, blocker)
}

/// Promise (Queue and scheduler): A restarted session keeps its node, processor time, memory and devices, and no
/// waiting session gets them, unless its node or a device takes no new sessions or it got its place by timed backfill.
#[test]
fn a_restart_keeps_the_assignment_and_no_waiting_session_gets_it() {
    let mut numbers = Numbers(0x5eed_0917);
    let (mut kept, mut given_up, mut contested) = (0, 0, 0);
    for round in 0..1_000 {
        let mut world = generated(&mut numbers);
        while !pass(&mut world, NOW).is_empty() {}
        let running = world.sessions.iter();
        let running = running.filter(|s| s.state() == SessionState::Running);
        let ids: Vec<SessionId> = running.map(|s| s.id).collect();
        if ids.is_empty() {
            continue;
        }
        let id = ids[numbers.below(ids.len() as u32) as usize];
        let node = world.session(id).unwrap().node().unwrap();
        if numbers.below(4) == 0 {
            let node = world.nodes.iter_mut().find(|n| n.id == node).unwrap();
            node.schedulable = false;
        }
        if numbers.below(6) == 0 {
            let part = world.session(id).unwrap().devices().first().copied();
            let node = world.nodes.iter_mut().find(|n| n.id == node).unwrap();
            let mut devices = node.capacity.devices.iter();
            let its = devices.find(|d| part.is_some_and(|part| part.index == d.index));
            node.cordoned.extend(its.map(|device| device.uuid.clone()));
        }
        let used = world.used();
        let (had, blocker) = ended(&mut world, id);
        let open = world.node(node).unwrap().schedulable;
        let Some(blocker) = blocker else {
            assert!(open, "round {round}");
            let row = world.sessions.iter_mut().find(|s| s.id == id).unwrap();
            row.place_again(&had, reasons::placement_kept("a"), NOW);
            assert_eq!(world.used(), used, "round {round}");
            let others = pass(&mut world, NOW);
            assert_eq!(others, Vec::new(), "round {round}: nothing was given up");
            let row = world.session(id).unwrap();
            let place = |c: &SessionContainer| (c.index, c.node, c.devices.clone());
            let now: Vec<_> = row.containers().iter().map(place).collect();
            assert_eq!(now, had.iter().map(place).collect::<Vec<_>>());
            kept += 1;
            let waits = world.sessions.iter();
            contested += u32::from(waits.filter(|s| s.is_pending()).count() > 0);
            continue;
        };
        let closed = [codes::NODE_CORDONED, codes::GPU_CLOSED];
        assert!(closed.contains(&blocker.code.as_str()), "{blocker:?}");
        pass(&mut world, NOW);
        given_up += 1;
    }
    assert!(
        kept > 300 && given_up > 50 && contested > 100,
        "too tame: {kept} keep their place, {given_up} do not, {contested} while others wait"
    );
}

#[test]
fn what_a_restart_would_wait_for_is_named() {
    let mut world = world("node a 8 64g 2 | kim 1 1g 0.5 | lee 1 1g 2");
    world.nodes[0].seen_at = NOW;
    pass(&mut world, NOW);
    let told = |world: &ClusterSnapshot| {
        let kim = &world.sessions[0];
        restart_blocker(world, kim, kim.containers(), NOW).map(|blocker| blocker.code)
    };
    assert_eq!(told(&world), None);
    world.nodes[0].cordoned.insert("test-0-0".into());
    assert_eq!(told(&world).as_deref(), Some(codes::GPU_CLOSED));
    // Its own self-test is not kept off by a cordon.
    world.sessions[0].device_affinity = Some("test-0-0".into());
    assert_eq!(told(&world), None);
    world.nodes[0].cordoned.clear();
    world.nodes[0].capacity.cpu = CpuShare(50);
    assert_eq!(told(&world).as_deref(), Some(codes::CPU_SHORT));
    world.nodes[0].capacity.cpu = CpuShare(800);
    world.nodes[0].capacity.devices[0].mig = halved();
    assert_eq!(told(&world).as_deref(), Some(codes::GPU_CLOSED));
    world.nodes[0].host_environment = false;
    let off = Some(codes::ENVIRONMENT_HOST_OFF);
    assert_eq!(told(&world).as_deref(), off);
    world.nodes[0].note = "new disks".into();
    world.nodes[0].schedulable = false;
    assert_eq!(told(&world).as_deref(), Some(codes::NODE_MAINTENANCE));
    world.nodes[0].seen_at = Timestamp::from_millis(0);
    let silent = restart_blocker(
        &world,
        &world.sessions[0],
        world.sessions[0].containers(),
        NOW.plus_seconds(60),
    );
    assert_eq!(silent.unwrap().code, codes::NODE_SILENT);
}
