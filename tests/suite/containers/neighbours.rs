//! What a session takes, it takes from nobody: kernel objects that are counted, the supervisor's time,
//! media that were mounted when it began, and files that only the machine's root may read.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use node::runtime::{ExecOrder, RuntimeName};

use super::ground::{Ground, hear};

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a script and waits until it says `word`.
fn says(ground: &Ground, script: &str, word: &str) -> RuntimeName {
    let mut order = ground.shell(script);
    order.cpu_hundredths = 10;
    let name = ground.start(&order);
    ground.running(&name);
    let until = Instant::now() + TIMEOUT;
    while !ground.log(&name).contains(word) {
        assert!(Instant::now() < until, "it said {}", ground.log(&name));
        std::thread::sleep(Duration::from_millis(10));
    }
    name
}

#[test]
fn a_session_takes_no_inotify_instance_of_a_neighbour_or_of_the_machine() {
    const NAME: &str = "a_session_takes_no_inotify_instance_of_a_neighbour_or_of_the_machine";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    if !Path::new("/usr/bin/perl").exists() {
        return skips::skip(NAME, "needs perl on this machine");
    }
    // inotify_init1, until the kernel refuses.
    let script =
        "perl -e '$|=1; $n=0; $n++ while syscall(294, 0) >= 0; print \"all $n\\n\"; sleep 1000'";
    says(&ground, script, "all");
    // The machine's root, which this test is.
    // SAFETY: no memory is involved.
    let own = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
    assert!(own >= 0, "the machine's root has none left");
    let neighbour = ground.answer("perl -e 'print syscall(294, 0) >= 0 ? \"has\" : \"none\"'");
    assert_eq!(neighbour, "has", "a neighbour's");
}

#[test]
fn a_session_takes_no_message_queue_of_a_neighbour_or_of_the_machine() {
    const NAME: &str = "a_session_takes_no_message_queue_of_a_neighbour_or_of_the_machine";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    if !Path::new("/usr/bin/perl").exists() || !Path::new("/proc/sys/fs/mqueue").exists() {
        return skips::skip(
            NAME,
            "needs perl on this machine and message queues in its kernel",
        );
    }
    // mq_open, to be made and written.
    let script = "perl -e '$|=1; $n=0; $n++ while syscall(240, \"q$n\", 0102, 0600, 0) >= 0; print \"all-$n.\\n\"; sleep 1000'";
    let name = says(&ground, script, "all-");
    let taken: u32 = ground
        .log(&name)
        .split("all-")
        .nth(1)
        .and_then(|rest| rest.split('.').next()?.parse().ok())
        .expect("a number");
    assert!((1..=256).contains(&taken), "it took {taken}");
    let neighbour = ground.answer(
        "perl -e '$q = \"q\"; print syscall(240, $q, 0102, 0600, 0) >= 0 ? \"has\" : \"none\"'",
    );
    assert_eq!(neighbour, "has", "a neighbour's");
    let queue = std::ffi::CString::new(format!("/fardel-{}", std::process::id())).expect("plain");
    // SAFETY: the name is terminated; no attributes are given. Removed again at once.
    let own = unsafe {
        let none = std::ptr::null_mut::<libc::mq_attr>();
        let own = libc::mq_open(queue.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600, none);
        libc::mq_unlink(queue.as_ptr());
        own
    };
    assert!(own >= 0, "the machine's root has none left");
}

#[test]
fn a_session_has_its_own_number_of_terminals() {
    let Some(ground) = Ground::lay("a_session_has_its_own_number_of_terminals") else {
        return;
    };
    let said = ground.answer("grep ' /dev/pts ' /proc/mounts");
    assert!(said.contains("max=256"), "{said}");
}

/// Hundredths of a second of a processor that a process has used.
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    number(11) + number(12)
}

#[test]
fn a_session_that_asks_for_the_size_of_the_machine_costs_little_beside_its_share() {
    const NAME: &str =
        "a_session_that_asks_for_the_size_of_the_machine_costs_little_beside_its_share";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    if !Path::new("/usr/bin/perl").exists() {
        return skips::skip(NAME, "needs perl on this machine");
    }
    // sysinfo, as fast as it can.
    let script = "perl -e '$|=1; print \"asks\\n\"; $b = \"x\" x 512; syscall(99, $b) while 1'";
    let name = says(&ground, script, "asks");
    let shim = ground.shim_of(&name);
    let (before, begin) = (ticks(shim), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let used = (ticks(shim) - before) as f64 / 100.0 / begin.elapsed().as_secs_f64();
    // A third of a core without the pace, 0.03 with it on an idle machine.
    assert!(used < 0.1, "its supervisor used {used:.3} of a core");
}

/// A mount of the machine that goes with the test.
struct Medium(PathBuf);

impl Drop for Medium {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_medium_that_was_mounted_when_a_session_began_is_held_by_none_of_its_processes() {
    let Some(ground) = Ground::lay(
        "a_medium_that_was_mounted_when_a_session_began_is_held_by_none_of_its_processes",
    ) else {
        return;
    };
    let place = ground.directory.path().join("a medium");
    fs::create_dir(&place).expect("made");
    let (from, kind) = (Some("medium"), Some("tmpfs"));
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(from, &place, kind, flags, None::<&str>).expect("mounted");
    let medium = Medium(place);
    let name = ground.start(&ground.shell("sleep 1000"));
    let first = ground.running(&name);
    for pid in [ground.shim_of(&name), first] {
        let mounted = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("it lives");
        assert!(!mounted.contains("medium"), "{pid} holds it: {mounted}");
    }
    // Neither does whatever joins, and what the shim needs is still there.
    let mut stream = ground
        .runtime
        .exec(&name, &as_root("grep -c medium /proc/self/mountinfo; true"))
        .expect("accepted");
    assert_eq!(hear(&mut stream).0, "0\n");
    drop(medium);
    ground.runtime.kill(&name).expect("asked");
    assert_eq!(ground.ended(&name).code, 137);
}

fn as_root(script: &str) -> ExecOrder {
    ExecOrder {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        environment: vec![],
        directory: None,
        user: Some("0".to_owned()),
        terminal: None,
        guest: None,
        background: None,
    }
}

/// A file of the machine that goes with the test.
struct Secret(PathBuf);

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn what_only_the_machines_root_may_read_is_not_read_inside() {
    const NAME: &str = "what_only_the_machines_root_may_read_is_not_read_inside";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let path = PathBuf::from(format!("/usr/share/.fardel-test-{}", std::process::id()));
    if fs::write(&path, "a secret of the machine").is_err() {
        return skips::skip(NAME, "needs a writable /usr on this machine");
    }
    let secret = Secret(path);
    let mut order = ground.shell("sleep 1000");
    order.user = node::runtime::UserOrder::Usual;
    order.sudo = true;
    let name = ground.start(&order);
    ground.running(&name);
    let at = secret.0.display();
    let script = format!(
        "cat {at} 2>&1; cp {at} /tmp/copy 2>&1; chmod 644 {at} 2>&1; chown 0 {at} 2>&1; ln {at} /usr/link 2> /dev/null && cat /usr/link; stat -c %u {at}; ls /usr/bin/sh; true"
    );
    for mode in [0o600, 0o640] {
        fs::set_permissions(&secret.0, fs::Permissions::from_mode(mode)).expect("set");
        let mut stream = ground
            .runtime
            .exec(&name, &as_root(&script))
            .expect("accepted");
        let (said, _, _) = hear(&mut stream);
        assert!(!said.contains("a secret"), "{mode:o}: {said}");
        assert!(said.ends_with("65534\n/usr/bin/sh\n"), "{mode:o}: {said}");
        let (_, said) = ground.run(&ground.shell(&script));
        assert!(
            !said.contains("a secret"),
            "{mode:o}, from the start: {said}"
        );
    }
}
