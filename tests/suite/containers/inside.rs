//! What a process inside is and sees, for the first process and for every later exec alike: filter,
//! ids, capabilities, limits, devices, network; and that nothing of the machine leaks in.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

use node::runtime::wire::{FrameKind, size_bytes};
use node::runtime::{ExecOrder, GuestProgram, RuntimeName, TerminalSize};

use super::ground::{Ground, hear};
use crate::programs::install;

const SIZE: TerminalSize = TerminalSize {
    columns: 132,
    rows: 50,
};

fn exec(command: &[&str], terminal: bool) -> ExecOrder {
    ExecOrder {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        environment: vec![],
        directory: None,
        user: None,
        terminal: terminal.then_some(SIZE),
        guest: None,
        background: None,
    }
}

fn idle(ground: &Ground) -> RuntimeName {
    let name = ground.start(&ground.shell("sleep 1000"));
    ground.running(&name);
    name
}

/// Fields of `/proc/self/status` and friends as one process inside reports them.
const REPORT: &str = "cat /proc/self/status; echo IdMap: $(cat /proc/self/uid_map); echo Files: $(ulimit -n) $(ulimit -Hn); \
    echo Score: $(cat /proc/self/oom_score_adj); echo Groups: $(cat /proc/self/cgroup | sort | tr '\\n' ' '); \
    echo Spaces: $(for n in user mnt pid net ipc uts cgroup time; do readlink /proc/self/ns/$n; done | tr '\\n' ' '); \
    echo Open: $(ls /proc/self/fd | tr '\\n' ' ')";

fn report(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| {
            (
                name.to_owned(),
                value.split_whitespace().collect::<Vec<_>>().join(" "),
            )
        })
        .collect()
}

#[test]
fn every_process_inside_is_held_alike() {
    let Some(ground) = Ground::lay("every_process_inside_is_held_alike") else {
        return;
    };
    let order = ground.shell(&format!("{REPORT}; echo ready; sleep 1000"));
    let name = ground.start(&order);
    ground.running(&name);
    while !ground.log(&name).contains("ready") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let first = report(&ground.log(&name));
    let base = order.ids.base.to_string();
    assert_eq!(first["Seccomp"], "2");
    assert_eq!(first["NoNewPrivs"], "1");
    assert_eq!(
        first["IdMap"],
        format!("0 {base} 65536"),
        "never the machine's own ids"
    );
    assert_eq!(first["CapInh"], "0000000000000000");
    assert_eq!(first["CapAmb"], "0000000000000000");
    let kept = u64::from_str_radix(&first["CapBnd"], 16).expect("a set");
    assert!(
        kept.count_ones() <= 10 && kept & (1 << 21) == 0,
        "no CAP_SYS_ADMIN in {kept:x}"
    );
    assert_eq!(first["Score"], "200");

    // {plain, terminal} × 8 at once.
    let streams: Vec<_> = (0..8)
        .map(|number| {
            ground
                .runtime
                .exec(&name, &exec(&["sh", "-c", REPORT], number % 2 == 1))
                .expect("accepted")
        })
        .collect();
    for mut stream in streams {
        let (text, errors, code) = hear(&mut stream);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{text}");
        let later = report(&text);
        for field in [
            "Seccomp",
            "NoNewPrivs",
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "IdMap",
            "Files",
            "Score",
            "Groups",
            "Spaces",
            "Uid",
            "Gid",
        ] {
            assert_eq!(later.get(field), first.get(field), "{field}");
        }
        assert_eq!(
            later["Open"], first["Open"],
            "no descriptor of the shim is inherited"
        );
    }
}

#[test]
fn exec_gives_output_errors_code_input_and_user() {
    let Some(ground) = Ground::lay("exec_gives_output_errors_code_input_and_user") else {
        return;
    };
    let name = idle(&ground);
    let run = |order: &ExecOrder| hear(&mut ground.runtime.exec(&name, order).expect("accepted"));
    assert_eq!(
        run(&exec(
            &["sh", "-c", "echo out; echo err >&2; exit 9"],
            false
        )),
        ("out\n".into(), "err\n".into(), Some(9))
    );
    assert_eq!(run(&exec(&["sh", "-c", "kill -9 $$"], false)).2, Some(137));
    let (_, errors, code) = run(&exec(&["no-such-program"], false));
    assert_eq!(code, Some(127));
    assert!(errors.contains("no such program"), "{errors}");
    let mut order = exec(
        &["sh", "-c", "id -un; id -u; pwd; echo $HOME $GREETING"],
        false,
    );
    order.user = Some("work".into());
    order.directory = Some("/tmp".into());
    order.environment = vec![("GREETING".into(), "hello".into())];
    assert_eq!(run(&order).0, "work\n1000\n/tmp\n/home/work hello\n");
    order.user = Some("stranger".into());
    let refused = ground
        .runtime
        .exec(&name, &order)
        .expect_err("no such user")
        .to_string();
    assert!(refused.contains("no user \"stranger\""), "{refused}");

    let mut stream = ground
        .runtime
        .exec(&name, &exec(&["sh", "-c", "wc -c; exit 3"], false))
        .expect("accepted");
    for _ in 0..32 {
        stream
            .send(FrameKind::Input, &[b'x'; 32 * 1024])
            .expect("taken");
    }
    stream.send(FrameKind::InputEnd, b"").expect("taken");
    assert_eq!(
        hear(&mut stream),
        ("1048576\n".into(), String::new(), Some(3)),
        "a megabyte in, none lost"
    );

    let mut stream = ground
        .runtime
        .exec(
            &name,
            &exec(
                &["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' y"],
                false,
            ),
        )
        .expect("accepted");
    assert_eq!(
        hear(&mut stream).0.len(),
        3_000_000,
        "three megabytes out, none lost"
    );
}

/// One packet of SFTP: its kind, then these bytes.
fn packet(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u32::try_from(body.len() + 1).expect("short").to_be_bytes();
    [&length[..], &[kind], &body].concat()
}

/// A string of SFTP, with its length before it.
fn string(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("short").to_be_bytes();
    [&length[..], text].concat()
}

#[test]
fn the_guest_serves_files_inside_as_the_user_it_is_told_to_be() {
    let Some(ground) = Ground::lay("the_guest_serves_files_inside_as_the_user_it_is_told_to_be")
    else {
        return;
    };
    let name = idle(&ground);
    let order = ExecOrder {
        directory: Some("/tmp".to_owned()),
        user: Some("1234".to_owned()),
        guest: Some(GuestProgram::Files),
        ..exec(&["sftp-server"], false)
    };
    let mut stream = ground.runtime.exec(&name, &order).expect("accepted");
    let (one, two, three) = ([0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 0, 3]);
    let (none, first) = ([0; 4], string(&[0; 4]));
    // Write, make, empty.
    let new = [0, 0, 0, 0x1a];
    for sent in [
        packet(1, &[&three]),
        packet(3, &[&one, &string(b"made"), &new, &none]),
        packet(6, &[&two, &first, &[0; 8], &string(b"hello\n")]),
        packet(4, &[&three, &first]),
        // The program itself is no file that anything inside can change.
        packet(3, &[&one, &string(b"/proc/self/exe"), &[0, 0, 0, 2], &none]),
        packet(13, &[&two, &string(b"/etc/hostname")]),
    ] {
        stream.send(FrameKind::Input, &sent).expect("taken");
    }
    stream.send(FrameKind::InputEnd, b"").expect("taken");
    let (said, errors, code) = hear(&mut stream);
    assert_eq!((errors.as_str(), code), ("", Some(0)));
    assert!(said.contains("posix-rename@openssh.com"), "{said}");
    // One handle was given: what may not be written was not opened.
    assert_eq!(
        said.matches("denied").count() + said.matches("busy").count(),
        2,
        "{said}"
    );
    let look = ["sh", "-c", "stat -c %u /tmp/made; cat /tmp/made"];
    let mut stream = ground
        .runtime
        .exec(&name, &exec(&look, false))
        .expect("accepted");
    assert_eq!(hear(&mut stream).0, "1234\nhello\n");
}

#[test]
fn what_is_no_packet_ends_the_guest_that_serves_files() {
    let Some(ground) = Ground::lay("what_is_no_packet_ends_the_guest_that_serves_files") else {
        return;
    };
    let name = idle(&ground);
    for wrong in [&[0, 0, 0, 0][..], &[0xff; 64], b"GET / HTTP/1.1\r\n"] {
        let order = ExecOrder {
            guest: Some(GuestProgram::Files),
            ..exec(&["sftp-server"], false)
        };
        let mut stream = ground.runtime.exec(&name, &order).expect("accepted");
        stream.send(FrameKind::Input, wrong).expect("taken");
        let (_, errors, code) = hear(&mut stream);
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains("a packet"), "{errors}");
    }
}

/// Promise (Sessions survive failures): A terminal keeps its scrollback across a page reload and a new server.
#[test]
fn a_terminal_keeps_its_scrollback_across_a_new_server_and_takes_input_and_size() {
    let Some(mut ground) =
        Ground::lay("a_terminal_keeps_its_scrollback_across_a_new_server_and_takes_input_and_size")
    else {
        return;
    };
    let mut order = ground.order(&["sh"]);
    order.terminal = Some(SIZE);
    let name = ground.start(&order);
    ground.running(&name);
    let mut stream = ground.runtime.attach(&name, None).expect("attached");
    stream
        .send(FrameKind::Input, b"stty size; echo first-$((40+2))\n")
        .expect("typed");
    read_until(&mut stream, "first-42");
    drop(stream);
    ground.crash();
    ground.reopen();
    let mut stream = ground.runtime.attach(&name, None).expect("attached again");
    let seen = read_until(&mut stream, "first-42");
    assert!(
        seen.contains("50 132"),
        "the size it was started with: {seen}"
    );
    stream
        .send(
            FrameKind::Resize,
            &size_bytes(TerminalSize {
                columns: 80,
                rows: 24,
            }),
        )
        .expect("resized");
    stream
        .send(
            FrameKind::Input,
            b"stty size; test -t 0 && echo is-a-$((1))-terminal; exit 5\n",
        )
        .expect("typed");
    let (text, _, code) = hear(&mut stream);
    assert!(
        text.contains("24 80") && text.contains("is-a-1-terminal"),
        "{text}"
    );
    assert_eq!(code, Some(5));
    assert_eq!(ground.ended(&name).code, 5);
}

fn read_until(stream: &mut node::runtime::ContainerStream, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let frame = stream.next().expect("whole").expect("still open");
        text.push_str(&String::from_utf8_lossy(&frame.payload));
    }
    text
}

#[test]
fn stop_ends_an_interactive_shell() {
    let Some(ground) = Ground::lay("stop_ends_an_interactive_shell") else {
        return;
    };
    let mut order = ground.order(&["bash", "-i"]);
    order.terminal = Some(SIZE);
    let name = ground.start(&order);
    ground.running(&name);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let begin = std::time::Instant::now();
    ground
        .runtime
        .stop(&name, std::time::Duration::from_secs(30))
        .expect("asked");
    ground.ended(&name);
    assert!(
        begin.elapsed().as_secs() < 20,
        "it went by itself, not by force"
    );
}

#[test]
fn what_is_refused_stays_refused_for_root_inside() {
    let Some(ground) = Ground::lay("what_is_refused_stays_refused_for_root_inside") else {
        return;
    };
    for script in [
        "mount -t tmpfs none /tmp",
        "unshare -U true",
        "mknod /tmp/disk b 8 0 && head -c1 /tmp/disk",
        "hostname other",
        "date -s '2020-01-01'",
        "echo 1 > /proc/sys/kernel/sysrq",
        "echo b > /proc/sysrq-trigger",
        "test -n \"$(head -c1 /proc/kcore | tr '\\0' x)\"",
        "echo -1000 > /proc/self/oom_score_adj",
        "ulimit -Hn 10000000",
        "find / -xdev -path /sys/fs/cgroup -name '*.limit_in_bytes' | grep .",
        "ls -d /sys/fs/cgroup/*/fardel",
        "cat /etc/shadow",
        "test -e /var/lib/dpkg/status",
    ] {
        let (record, text) = ground.run(&ground.shell(script));
        assert_ne!(record.code, 0, "{script} worked: {text}");
    }
}

/// Promise (Isolation and access): A session learns nothing about the node from inside. The host environment
/// contains no secret.
#[test]
fn nothing_of_the_machine_is_told_inside() {
    let Some(ground) = Ground::lay("nothing_of_the_machine_is_told_inside") else {
        return;
    };
    let directory = ground
        .directory
        .path()
        .to_str()
        .expect("a plain path")
        .to_owned();
    let told = ground.answer("cat /proc/1/cmdline /proc/1/environ /proc/self/mountinfo /proc/1/mountinfo | tr '\\0' ' '; readlink /proc/1/exe; env");
    assert!(!told.contains(&directory), "a path of the machine: {told}");
    assert!(
        !told.contains("fardel shim") && !told.contains("CARGO"),
        "{told}"
    );
    assert!(
        told.contains("init sh -c"),
        "the first process is ours: {told}"
    );
    // A file that tells of the machine has no bytes, a directory no entries.
    let told = ground.answer(
        "cat /proc/cmdline /proc/sys/kernel/random/boot_id /proc/diskstats /proc/partitions \
         /proc/swaps /proc/mdstat 2> /dev/null; cat /proc/pressure/* 2> /dev/null; \
         ls -A /sys/block /sys/class/block /sys/dev/block 2> /dev/null | grep -v :$ | grep .; \
         find /sys/devices -path '*/block/*' 2> /dev/null; true",
    );
    assert_eq!(told, "", "of the machine");
}

/// Promise (Isolation and access): A container can open only the devices that it was granted.
#[test]
fn only_granted_devices_open() {
    let Some(ground) = Ground::lay("only_granted_devices_open") else {
        return;
    };
    let said = ground.answer("for d in null zero full random urandom; do test -c /dev/$d && head -c1 /dev/$d > /dev/null && echo $d; done; ls /dev | sort | tr '\\n' ' '");
    assert!(
        said.starts_with("null\nzero\nfull\nrandom\nurandom\n"),
        "{said}"
    );
    for device in ["vda", "sda", "kmsg", "mem", "fuse", "kvm"] {
        assert!(!said.contains(device), "{device} is there: {said}");
    }
}

#[test]
fn a_granted_device_is_there_and_opens() {
    let Some(ground) = Ground::lay("a_granted_device_is_there_and_opens") else {
        return;
    };
    // 1:10 is nobody's: whoever may open it is told that there is no such device, whoever may not, so.
    let device = |at: &str, major, minor| node::gpu::DeviceOrder {
        at: at.into(),
        major,
        minor,
    };
    let script = "(: < /dev/granted) 2>&1; head -c1 /dev/deep/er/zero | od -An -tx1; stat -c %a /dev/granted";
    let mut order = ground.shell(script);
    order.devices = vec![
        device("/dev/granted", 1, 10),
        device("/dev/deep/er/zero", 1, 5),
    ];
    let name = ground.start(&order);
    ground.ended(&name);
    let said = ground.log(&name);
    assert!(said.contains("No such device"), "{said}");
    assert!(!said.contains("not permitted"), "{said}");
    assert!(said.contains(" 00\n666"), "{said}");
}

#[test]
fn files_of_the_host_stand_inside_and_allow_no_more_than_told() {
    let Some(ground) = Ground::lay("files_of_the_host_stand_inside_and_allow_no_more_than_told")
    else {
        return;
    };
    let here = tempfile::tempdir().expect("a directory");
    let place = |name: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = here.path().join(name);
        install(&path, b"#!/bin/sh\necho it runs\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        path
    };
    let shown = |from: &std::path::Path, at: &str, for_what| node::gpu::FileOrder {
        from: from.into(),
        at: at.into(),
        for_what,
    };
    use node::gpu::FileUse::{Read, Run, Write};
    let (library, text, page) = (place("a", 0o755), place("b", 0o755), place("c", 0o666));
    let mut order = ground.shell(
        "/lib/ours/deep/library; /etc/ours/text; echo wiped > /lib/ours/deep/library; \
         echo wiped > /etc/ours/text; echo counted > /var/ours/page; /var/ours/page; true",
    );
    order.files = vec![
        // /lib is a link in this root, and most of these directories are not there.
        shown(&library, "/lib/ours/deep/library", Run),
        shown(&text, "/etc/ours/text", Read),
        shown(&page, "/var/ours/page", Write),
    ];
    let name = ground.start(&order);
    ground.ended(&name);
    let said = ground.log(&name);
    assert_eq!(said.matches("it runs").count(), 1, "{said}");
    assert_eq!(said.matches("ermission denied").count(), 2, "{said}");
    assert_eq!(said.matches("ead-only file system").count(), 2, "{said}");
    let read = |path: &std::path::Path| fs::read_to_string(path).expect("it");
    assert_eq!(read(&page), "counted\n");
    assert!(read(&library).contains("it runs") && read(&text).contains("it runs"));
    // A place where the image has a directory is no place for a file.
    let mut order = ground.shell("true");
    order.files = vec![shown(&text, "/usr", Read)];
    let name = ground.start(&order);
    let record = ground.ended(&name);
    assert!(format!("{record:?}").contains("/usr"), "{record:?}");
}

/// Proves too: `only_granted_devices_open`
#[test]
fn the_device_fence_holds_for_a_device_that_found_its_way_in() {
    const NAME: &str = "the_device_fence_holds_for_a_device_that_found_its_way_in";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    // As if a node had been placed inside: the host enters the group and tries to open it.
    let name = idle(&ground);
    let group = fs::read_dir("/sys/fs/cgroup/devices/fardel")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("sessions").join(name.as_str()))
        .find(|path| path.is_dir());
    let Some(group) = group else {
        return skips::skip(
            NAME,
            "needs the devices controller of cgroup v1; version 2 is held by the fence of devices.rs",
        );
    };
    let script = format!(
        "echo $$ > {}/cgroup.procs; (: < /dev/null) && echo null; (: < /dev/kmsg) && echo kmsg; (: < /dev/mem) && echo mem; (: < /dev/vda) && echo disk",
        group.display()
    );
    let said = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "null\n");
}

#[test]
fn a_session_has_only_loopback_and_is_dialled_from_outside() {
    let Some(ground) = Ground::lay("a_session_has_only_loopback_and_is_dialled_from_outside")
    else {
        return;
    };
    let order = ground.shell("ls /sys/class/net | tr '\\n' ' '; exec python3 -c \"
import socket
s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', 8888)); s.listen(); print('listening', flush=True)
c,_=s.accept(); c.sendall(c.recv(100).upper()); c.close()
\"");
    let name = ground.start(&order);
    ground.running(&name);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !ground.log(&name).contains("listening") && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let said = ground.log(&name);
    if said.contains("not found") {
        return skips::skip(
            "a_session_has_only_loopback_and_is_dialled_from_outside",
            "needs python3 on this machine",
        );
    }
    assert!(said.starts_with("lo "), "{said}");
    let mut connection = ground.runtime.dial(&name, 8888).expect("dialled");
    connection.write_all(b"hello").expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("answered");
    assert_eq!(answer, "HELLO");
    assert!(
        std::net::TcpStream::connect("127.0.0.1:8888").is_err(),
        "nothing listens on the machine itself"
    );
}

/// A session sees of a mounted folder what its launch named, and nothing above it: links that other sessions left there
/// are not followed.
///
/// Proves too: `nothing_of_the_machine_is_told_inside`
#[test]
fn a_mount_below_a_folder_follows_no_link() {
    let Some(ground) = Ground::lay("a_mount_below_a_folder_follows_no_link") else {
        return;
    };
    let folder = ground.directory.path().join("folder");
    fs::create_dir_all(folder.join("inner")).expect("made");
    fs::write(folder.join("inner/file"), "here").expect("written");
    std::os::unix::fs::symlink("/", folder.join("out")).expect("a link");
    let order = |subpath: &str| {
        let mut order = ground.shell("cat /data/file; touch /data/new 2> /dev/null || echo kept");
        order.mounts = vec![node::runtime::MountOrder {
            from: folder.clone(),
            subpath: subpath.to_owned(),
            at: "/data".into(),
            read_only: true,
            ..node::runtime::MountOrder::default()
        }];
        order
    };
    let (record, said) = ground.run(&order("inner"));
    assert_eq!((record.code, said.as_str()), (0, "herekept\n"));
    let name = ground.start(&order("out"));
    let record = ground.ended(&name);
    assert_eq!((record.code, record.started_at), (125, None));
}

/// A link would lead the folder over a directory of the system, such as the one that holds a session to its share of a GPU.
#[test]
fn no_folder_is_mounted_through_a_link_of_the_image() {
    let Some(ground) = Ground::lay("no_folder_is_mounted_through_a_link_of_the_image") else {
        return;
    };
    let layer = ground.directory.path().join("layer");
    fs::create_dir_all(layer.join("plain")).expect("made");
    std::os::unix::fs::symlink("/etc", layer.join("link")).expect("a link");
    std::os::unix::fs::symlink("/nowhere", layer.join("plain/dangling")).expect("a link");
    let folder = ground.directory.path().join("folder");
    fs::create_dir(&folder).expect("made");
    let order = |at: &str| {
        let mut order = ground.shell(&format!("ls -d {at}"));
        order.root.layers = vec![layer.clone()];
        order.mounts = vec![node::runtime::MountOrder {
            from: folder.clone(),
            subpath: String::new(),
            at: at.to_owned(),
            read_only: false,
            ..node::runtime::MountOrder::default()
        }];
        order
    };
    for at in ["/link", "/link/ssl", "/plain/dangling"] {
        let name = ground.start(&order(at));
        let record = ground.ended(&name);
        assert_eq!((record.code, record.started_at), (125, None), "{at}");
    }
    for at in ["/plain", "/plain/new/one"] {
        let (record, said) = ground.run(&order(at));
        assert_eq!((record.code, said), (0, format!("{at}\n")));
    }
}

#[test]
fn two_sessions_share_a_layer_that_neither_can_change() {
    let Some(ground) = Ground::lay("two_sessions_share_a_layer_that_neither_can_change") else {
        return;
    };
    let layer = ground.directory.path().join("layer");
    fs::create_dir_all(layer.join("opt/model")).expect("made");
    fs::write(layer.join("opt/model/weights"), "original").expect("written");
    let shared = ground.directory.path().join("folder");
    fs::create_dir(&shared).expect("made");
    let order = |script: &str| {
        let mut order = ground.shell(script);
        order.root.layers = vec![layer.clone()];
        order.mounts = vec![node::runtime::MountOrder {
            from: shared.clone(),
            subpath: String::new(),
            at: "/data".into(),
            read_only: false,
            ..node::runtime::MountOrder::default()
        }];
        order
    };
    let first = order(
        "stat -c %u /opt/model/weights; echo changed > /opt/model/weights; chown 1000 /opt/model; echo mine > /data/first; cat /opt/model/weights; rm -r /opt/model; rm -r /usr/bin 2> /dev/null; test -e /usr/bin/sh",
    );
    let second = order("cat /opt/model/weights; ls /usr/bin/sh; cat /data/first; sleep 1000");
    assert!(
        first.ids.base + first.ids.size <= second.ids.base,
        "the ranges are disjoint"
    );
    let (record, said) = ground.run(&first);
    assert_eq!((record.code, said.as_str()), (0, "0\nchanged\n"));
    let name = ground.start(&second);
    let pid = ground.running(&name);
    while !ground.log(&name).contains("mine") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(ground.log(&name), "original/usr/bin/sh\nmine\n");
    assert_eq!(
        fs::metadata(format!("/proc/{pid}")).expect("it runs").uid(),
        second.ids.base,
        "root inside is its own number outside"
    );
    assert_eq!(
        fs::read_to_string(layer.join("opt/model/weights")).expect("readable"),
        "original"
    );
    assert_eq!(
        fs::metadata(layer.join("opt/model")).expect("there").uid(),
        0
    );
    assert_eq!(
        fs::metadata(shared.join("first")).expect("there").uid(),
        0,
        "what root writes into a folder belongs to its owner outside"
    );
}

/// Proves too: `nothing_of_the_machine_is_told_inside`
#[test]
fn the_host_environment_has_a_home_and_no_secret() {
    let Some(ground) = Ground::lay("the_host_environment_has_a_home_and_no_secret") else {
        return;
    };
    let mut order = ground.shell("id -un; pwd; echo $HOME; echo kept > ~/note; cat ~/note; touch /usr/bin/x 2>&1 | grep -c denied; ls -A /root /var/lib /home 2>/dev/null | xargs");
    order.user = node::runtime::UserOrder::Usual;
    let (record, said) = ground.run(&order);
    assert_eq!(record.code, 0, "{said}");
    assert_eq!(
        said.trim(),
        "work\n/home/work\n/home/work\nkept\n1\n/home: work /var/lib:"
    );
}

#[test]
fn our_own_programs_cannot_be_written_from_inside() {
    let Some(ground) = Ground::lay("our_own_programs_cannot_be_written_from_inside") else {
        return;
    };
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_fardel"));
    let before = fs::metadata(binary).expect("our binary");
    // As the first process's program, as the entry point, and through an exec from outside.
    let name = idle(&ground);
    let script = "printf '#!/proc/self/exe\\n' > /tmp/loop; chmod 755 /tmp/loop; /tmp/loop; \
        for exe in /proc/1/exe /proc/self/exe; do (: >> $exe) 2>/dev/null && echo wrote $exe; done; readlink /proc/1/exe";
    let (text, _, _) = hear(
        &mut ground
            .runtime
            .exec(&name, &exec(&["sh", "-c", script], false))
            .expect("accepted"),
    );
    assert!(!text.contains("wrote /proc/1/exe"), "{text}");
    assert!(!text.contains("fardel"), "{text}");
    let mut entry = ground.order(&["/proc/self/exe"]);
    entry.command.push("--version".into());
    let (_, said) = ground.run(&entry);
    assert!(
        !said.contains(env!("CARGO_PKG_VERSION")),
        "our binary ran inside: {said}"
    );
    // A program that joins later: as the command itself, and as what interprets a script.
    for command in ["/proc/self/exe", "/tmp/loop", "/proc/thread-self/exe"] {
        let mut stream = ground
            .runtime
            .exec(&name, &exec(&[command, "--version"], false))
            .expect("accepted");
        let (text, errors, _) = hear(&mut stream);
        let said = format!("{text}{errors}");
        assert!(
            !said.contains(env!("CARGO_PKG_VERSION")) && !said.contains("usage"),
            "our binary ran inside as {command}: {said}"
        );
        let path = binary.to_str().expect("a plain path");
        assert!(!said.contains(path), "where it lies is told: {said}");
    }
    let after = fs::metadata(binary).expect("our binary");
    assert_eq!((before.len(), before.mtime()), (after.len(), after.mtime()));
}
