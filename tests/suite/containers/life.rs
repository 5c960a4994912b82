//! From start to end: output, exit codes, stopping, and the server's death in between.

use std::time::Duration;

use node::runtime::RuntimePhase;

use super::ground::Ground;

#[test]
fn a_command_runs_says_something_and_ends_with_its_own_code() {
    let Some(ground) = Ground::lay("a_command_runs_says_something_and_ends_with_its_own_code")
    else {
        return;
    };
    let (record, text) = ground.run(&ground.shell("echo hi; exit 7"));
    assert_eq!((record.code, text.as_str()), (7, "hi\n"));
    assert!(record.ended_at >= record.started_at.expect("it started"));
}

/// Promise (Sessions survive failures): A command's exit code is reported unchanged.
#[test]
fn every_way_of_ending_has_its_true_code() {
    let Some(ground) = Ground::lay("every_way_of_ending_has_its_true_code") else {
        return;
    };
    for (script, code, signal) in [
        ("exit 0", 0, None),
        ("exit 42", 42, None),
        ("exec /no/such/program", 127, None),
        ("kill -KILL $$", 137, Some(9)),
        ("kill -SEGV $$", 139, Some(11)),
        ("kill -TERM $$", 143, Some(15)),
    ] {
        let (record, _) = ground.run(&ground.shell(script));
        assert_eq!((record.code, record.signal), (code, signal), "{script}");
    }
    let (record, text) = ground.run(&ground.order(&["no-such-program"]));
    assert_eq!(record.code, 127);
    assert!(text.contains("no such program"), "{text}");
}

#[test]
fn stop_asks_first_and_forces_after_the_grace() {
    let Some(ground) = Ground::lay("stop_asks_first_and_forces_after_the_grace") else {
        return;
    };
    let polite = ground.start(
        &ground.shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"),
    );
    let stubborn =
        ground.start(&ground.shell("trap '' TERM; echo up; while :; do sleep 0.05; done"));
    for name in [&polite, &stubborn] {
        ground.running(name);
        while !ground.log(name).contains("up") {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    ground
        .runtime
        .stop(&polite, Duration::from_secs(30))
        .expect("asked");
    ground
        .runtime
        .stop(&stubborn, Duration::from_millis(300))
        .expect("asked");
    assert_eq!(ground.ended(&polite).code, 3);
    assert_eq!(ground.ended(&stubborn).code, 137);
}

/// Promise (Sessions survive failures): Containers keep running without their server. The next server adopts
/// them, twenty within a second.
#[test]
fn a_new_server_learns_the_code_of_a_container_that_lived_on() {
    let Some(mut ground) = Ground::lay("a_new_server_learns_the_code_of_a_container_that_lived_on")
    else {
        return;
    };
    let early = ground.start(&ground.shell("sleep 0.3; exit 44"));
    let late = ground.start(&ground.shell("sleep 2; exit 33"));
    ground.running(&early);
    let pid = ground.running(&late);
    ground.crash();
    std::thread::sleep(Duration::from_millis(800));
    ground.reopen();
    assert!(
        matches!(ground.standing(&late), RuntimePhase::Running { pid: now, .. } if now == pid),
        "adopted as it was"
    );
    assert_eq!(ground.ended(&early).code, 44, "ended while no server lived");
    assert_eq!(ground.ended(&late).code, 33, "ended under the new server");
}

#[test]
fn a_signal_that_ends_nothing_changes_no_standing() {
    let Some(ground) = Ground::lay("a_signal_that_ends_nothing_changes_no_standing") else {
        return;
    };
    let name = ground
        .start(&ground.shell("trap 'echo heard' TERM; echo up; while :; do sleep 0.05; done"));
    let pid = ground.running(&name);
    let hears = |word: &str| {
        while !ground.log(&name).contains(word) {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    hears("up");
    ground
        .runtime
        .stop(&name, Duration::from_secs(600))
        .expect("asked");
    hears("heard");
    assert!(
        matches!(ground.standing(&name), RuntimePhase::Running { pid: now, .. } if now == pid),
        "{:?}",
        ground.standing(&name)
    );
    ground.runtime.kill(&name).expect("forced");
    assert_eq!(ground.ended(&name).code, 137);
}
