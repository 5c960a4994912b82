//! Root in a session: only where it was launched with sudo, and with every bound of the session.

use std::process::Command;

use node::runtime::{ExecOrder, RuntimeFault, UserOrder};

use super::ground::{Ground, hear};

fn order(user: &str, script: &str) -> ExecOrder {
    ExecOrder {
        command: vec!["sh".into(), "-c".into(), script.to_owned()],
        environment: vec![],
        directory: None,
        user: Some(user.to_owned()),
        terminal: None,
        guest: None,
        background: None,
    }
}

#[test]
fn a_command_is_root_inside_only_where_the_session_has_sudo() {
    const NAME: &str = "a_command_is_root_inside_only_where_the_session_has_sudo";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let mut without = ground.shell("sleep 1000");
    without.user = UserOrder::Usual;
    let name = ground.start(&without);
    ground.running(&name);
    for root in ["root", "0", "0:0", "root:1000"] {
        let refused = ground.runtime.exec(&name, &order(root, "id -u"));
        assert!(matches!(refused, Err(RuntimeFault::Refused(_))), "{root}");
    }
    let own = ground.runtime.exec(&name, &order("work", "id -u"));
    let (said, _, code) = hear(&mut own.expect("accepted"));
    assert_eq!((said.trim(), code), ("1000", Some(0)));

    let mut with = ground.shell("sleep 1000");
    with.user = UserOrder::Usual;
    with.sudo = true;
    let name = ground.start(&with);
    ground.running(&name);
    let usual = ExecOrder {
        user: None,
        ..order("", "id -u")
    };
    let (said, _, _) = hear(&mut ground.runtime.exec(&name, &usual).expect("accepted"));
    assert_eq!(said.trim(), "1000", "nothing is root that does not ask");
    let (said, _, code) = hear(
        &mut ground
            .runtime
            .exec(
                &name,
                &order("root", "id -u; touch /tmp/a && chown 1 /tmp/a && echo gave"),
            )
            .expect("accepted"),
    );
    assert_eq!((said.as_str(), code), ("0\ngave\n", Some(0)));
}

/// Its own command and one beside it have what its launch raised; another session has what is usual.
#[test]
fn processes_have_the_limits_that_their_launch_raised() {
    let Some(ground) = Ground::lay("processes_have_the_limits_that_their_launch_raised") else {
        return;
    };
    let limits = "ulimit -l; ulimit -s";
    let mut raised = ground.shell(&format!("{limits}; sleep 1000"));
    raised.user = UserOrder::Usual;
    raised.ulimits = rules::process_limits::ProcessLimits::NGC;
    let name = ground.start(&raised);
    ground.running(&name);
    let said = hear(
        &mut ground
            .runtime
            .exec(&name, &order("work", limits))
            .expect("accepted"),
    )
    .0;
    // A process that may not raise its own limit gives what it has.
    let has = Command::new("sh")
        .args(["-c", "ulimit -H -l unlimited 2>/dev/null; ulimit -H -l"])
        .output()
        .expect("a shell");
    let locked = String::from_utf8_lossy(&has.stdout);
    assert_eq!(said, format!("{locked}65536\n"));

    let mut usual = ground.shell("sleep 1000");
    usual.user = UserOrder::Usual;
    let name = ground.start(&usual);
    ground.running(&name);
    let said = hear(
        &mut ground
            .runtime
            .exec(&name, &order("work", limits))
            .expect("accepted"),
    )
    .0;
    assert!(!said.ends_with("\n65536\n"), "{said}");
}

/// Every line is a way out that would print a word.
#[test]
fn root_by_sudo_has_every_bound_of_its_session() {
    let Some(ground) = Ground::lay("root_by_sudo_has_every_bound_of_its_session") else {
        return;
    };
    let mut with = ground.shell("sleep 1000");
    with.user = UserOrder::Usual;
    with.sudo = true;
    let name = ground.start(&with);
    ground.running(&name);
    let hostile = "exec 2>/dev/null
        mkdir -p /tmp/at
        mount -t tmpfs none /tmp/at && echo mounted
        mount -o remount,rw /sys && echo remounted
        unshare -m true && echo unshared
        mknod /tmp/disk b 8 0 && echo made
        mknod /tmp/memory c 1 1 && cat /tmp/memory | head -c 1 && echo read
        ulimit -H -n 100000000 && echo raised
        ulimit -H -c 1 && echo dumped
        hostname taken && echo named
        ip link set lo down && echo unplugged
        (echo 0 > /proc/sys/kernel/panic) && echo set
        test -n \"$(ls /sys/fs/cgroup)\" && (echo max > /sys/fs/cgroup/memory.max) && echo unlimited
        grep -c . /proc/self/uid_map
        grep NoNewPrivs /proc/self/status
        grep Seccomp: /proc/self/status
        grep CapBnd /proc/self/status";
    let mut stream = ground
        .runtime
        .exec(&name, &order("root", hostile))
        .expect("accepted");
    let (said, _, _) = hear(&mut stream);
    // Ten capabilities, all of them over the session's own ids.
    let bounded = "1\nNoNewPrivs:\t1\nSeccomp:\t2\nCapBnd:\t00000000000405fb\n";
    assert_eq!(said, bounded);
}
