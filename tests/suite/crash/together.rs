//! Sessions of several containers on a real server: they find one another by name, no other session finds them, they
//! live through the end of the server together, and the end of one is the end of all.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use super::installation::Installation;
use super::{TIMEOUT, http, session_of, wait_until};

/// Listens at its own name, tells each client its name, and hears that of every container of the session.
const TOGETHER: &str = r#"
use IO::Socket::INET; $| = 1;
my $own = $ENV{FARDEL_CLUSTER_HOST};
my @all = split /,/, $ENV{BACKENDAI_CLUSTER_HOSTS};
my $door = IO::Socket::INET->new(LocalAddr => $own, LocalPort => 4000, Listen => 9) or die "no port: $@";
print "rank $ENV{FARDEL_CLUSTER_RANK} of $ENV{BACKENDAI_CLUSTER_SIZE} at " . $door->sockhost . "\n";
unless (fork) {
    for my $other (@all) {
        my $peer;
        until ($peer = IO::Socket::INET->new(PeerAddr => $other, PeerPort => 4000, Timeout => 2)) { sleep 1 }
        print "heard " . <$peer>;
    }
    exit 0;
}
while (1) { my $client = $door->accept or next; print $client "$own\n"; close $client }
"#;

/// Tries what the others have.
const STRANGER: &str = r#"
use IO::Socket::INET; $| = 1;
for my $at (qw(10.88.0.1 10.88.0.2 main1 sub1)) {
    print "reached $at\n" if IO::Socket::INET->new(PeerAddr => $at, PeerPort => 4000, Timeout => 2);
}
print "looked\n";
sleep 5000;
"#;

/// Starts one process in each container by `ssh`, as launchers of distributed training do, from the names that a session's
/// variables list.
const LAUNCHER: &str = r#"
rank=0
for host in $(echo "${BACKENDAI_CLUSTER_HOSTS:?}" | tr , ' '); do
    printf '%s' "$1" | ssh -o BatchMode=yes -o ConnectTimeout=5 "$host" env RANK=$rank \
        WORLD_SIZE="${BACKENDAI_CLUSTER_SIZE:?}" MASTER_ADDR=main1 MASTER_PORT=29500 perl - &
    rank=$((rank + 1))
done
wait
"#;

/// One process of them: all meet at the first one's address, and each prints what came of it.
const RANK: &str = r#"
use IO::Socket::INET; $| = 1;
my ($rank, $size, $at, $port) = @ENV{qw(RANK WORLD_SIZE MASTER_ADDR MASTER_PORT)};
my $own = $ENV{BACKENDAI_CLUSTER_HOST};
if ($rank == 0) {
    my $door = IO::Socket::INET->new(LocalAddr => $at, LocalPort => $port, Listen => 9, ReuseAddr => 1) or die "no port: $@";
    my ($sum, @others) = (0);
    while (@others < $size - 1) {
        my $other = $door->accept or next;
        $sum += <$other>;
        push @others, $other;
    }
    print {$_} "$sum\n" for @others;
    print "rank 0 of $size in $own: $sum\n";
} else {
    my $main;
    until ($main = IO::Socket::INET->new(PeerAddr => $at, PeerPort => $port, Timeout => 2)) { sleep 1 }
    print $main 10 * $rank . "\n";
    chomp(my $sum = <$main>);
    print "rank $rank of $size in $own: $sum\n";
}
"#;

/// Open MPI's launcher by its own name: the usual one leads through links that no session sees.
const MPIRUN: &str = "/usr/bin/orterun";

/// What each rank says, from the variables that its launcher gives it.
const MPI_RANK: &str =
    r#"echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in $BACKENDAI_CLUSTER_HOST""#;

/// Promise (Isolation and access): The containers of one session find one another by name over a private network, which
/// leaves nothing on the machine. No other session reaches it, and the end of one that fails is the end of all.
#[test]
fn containers_of_a_session_find_one_another_and_nothing_else_finds_them() {
    let name = "containers_of_a_session_find_one_another_and_nothing_else_finds_them";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    if !std::path::Path::new("/usr/bin/perl").exists() {
        return skips::skip(name, "needs perl on this machine");
    }
    let interfaces = interfaces_of_the_machine();
    installation.start();
    let pair = launch(&installation, "pair", TOGETHER, 2);
    let alone = launch(&installation, "alone", STRANGER, 1);
    waits_for(&installation, &alone, None, "looked");
    for (container, rank) in [
        ("main1", "rank 0 of 2 at 10.88.0.1"),
        ("sub1", "rank 1 of 2 at 10.88.0.2"),
    ] {
        for words in [rank, "heard main1", "heard sub1"] {
            waits_for(&installation, &pair, Some(container), words);
        }
    }
    let said = log(&installation, &alone, None);
    assert!(!said.contains("reached"), "{said}");
    assert_eq!(interfaces_of_the_machine(), interfaces);
    let shown = show(&installation, &pair);
    assert_eq!(
        (&shown["state"], &shown["containers"]),
        (&json!("running"), &json!(2))
    );

    // Another of the same shape has the same addresses and names, and hears itself alone.
    let other = launch(&installation, "other", TOGETHER, 2);
    waits_for(&installation, &other, Some("sub1"), "heard sub1");
    assert_eq!(
        log(&installation, &pair, Some("main1"))
            .matches("heard")
            .count(),
        2
    );

    speak_over_ssh(&installation);
    run_ranks(&installation);

    let unknown = installation
        .get(&format!("/api/v1/sessions/{pair}/logs?container=sub2"))
        .expect("an answer");
    assert_eq!(
        (unknown.status, &unknown.json()["code"]),
        (404, &json!("container.not-found"))
    );

    // The server dies; both containers of each session are the same processes to the next one.
    let before = installation.shims();
    assert_eq!(
        before
            .iter()
            .filter(|(one, _)| session_of(one) == pair)
            .count(),
        2
    );
    installation.kill();
    installation.start();
    assert_eq!(installation.shims(), before);
    assert_eq!(show(&installation, &pair)["state"], "running");
    assert!(installation.term().success());
    installation.start();
    assert_eq!(installation.shims(), before);

    // One that fails takes the session with it, and the session says which one it was.
    let ended = installation
        .command(&[
            "exec",
            "--container",
            "sub1",
            "pair",
            "sh",
            "-c",
            "kill -9 -1",
        ])
        .status();
    ended.expect("it can be started");
    wait_until(TIMEOUT, || show(&installation, &pair)["state"] == "ended")
        .unwrap_or_else(|()| panic!("{}", show(&installation, &pair)));
    let over = show(&installation, &pair);
    assert_eq!(
        (&over["outcome"], &over["reason"]["code"]),
        (&json!("failed"), &json!("session.container-ended")),
        "{over}"
    );
    assert!(
        over["reason"]["text"]
            .as_str()
            .is_some_and(|text| text.contains("sub1")),
        "{over}"
    );
    // The end of the main one is the end of the session, too.
    let ended = installation
        .command(&["exec", "other", "sh", "-c", "kill -9 -1"])
        .status();
    ended.expect("it can be started");
    wait_until(TIMEOUT, || show(&installation, &other)["state"] == "ended")
        .unwrap_or_else(|()| panic!("{}", show(&installation, &other)));
    wait_until(TIMEOUT, || installation.shims().len() == 1)
        .unwrap_or_else(|()| panic!("{:?}", installation.shims()));
}

fn launch(installation: &Installation, name: &str, script: &str, containers: u32) -> String {
    let body = json!({
        "name": name, "kind": "batch", "image": "host", "command": ["perl", "-e", script],
        "containers": containers,
        "resources": {"cpu": 0.05, "memory": 64 << 20, "shm": 1 << 20},
    });
    let socket = installation.socket();
    let answer = http::call(&socket, "POST", "/api/v1/sessions", None, Some(&body));
    let answer = answer.expect("an answer");
    assert!(answer.is_good(), "{}", answer.json());
    answer.json()["id"].as_str().expect("an id").to_owned()
}

fn show(installation: &Installation, id: &str) -> Value {
    let answer = installation.get(&format!("/api/v1/sessions/{id}"));
    answer.expect("an answer").json()
}

fn log(installation: &Installation, id: &str, container: Option<&str>) -> String {
    let within = container.map_or_else(String::new, |name| format!("?container={name}"));
    let answer = installation.get(&format!("/api/v1/sessions/{id}/logs{within}"));
    String::from_utf8_lossy(&answer.expect("an answer").body).into_owned()
}

fn waits_for(installation: &Installation, id: &str, container: Option<&str>, words: &str) {
    wait_until(TIMEOUT, || log(installation, id, container).contains(words)).unwrap_or_else(|()| {
        panic!(
            "no {words:?} in {:?}; {}",
            log(installation, id, container),
            show(installation, id)
        )
    });
}

/// Each container of the session `pair` runs a program in each by its name, and the stranger in none, where this machine
/// has a client to try it with.
fn speak_over_ssh(installation: &Installation) {
    if !std::path::Path::new("/usr/bin/ssh").exists() {
        return;
    }
    let said = |container: &str, session: &str, to: &str| {
        let asked = installation
            .command(&[
                "exec",
                "--container",
                container,
                session,
                "ssh",
                "-o",
                "BatchMode=yes",
                "-o",
                "ConnectTimeout=5",
                to,
                "cat",
                "/etc/hostname",
            ])
            .output()
            .expect("it can be started");
        String::from_utf8_lossy(&asked.stdout).trim().to_owned()
    };
    for (from, to) in [("main1", "sub1"), ("sub1", "main1"), ("main1", "main1")] {
        wait_until(TIMEOUT, || said(from, "pair", to) == to)
            .unwrap_or_else(|()| panic!("{from} does not reach {to}"));
    }
    for to in ["10.88.0.1", "10.88.0.2", "sub1"] {
        assert_eq!(said("main1", "alone", to), "", "{to}");
    }
}

/// A launcher in the first container of the session `pair` runs one program in both, which meet by name, where this machine
/// has the client that it starts them with.
fn run_ranks(installation: &Installation) {
    if !std::path::Path::new("/usr/bin/ssh").exists() {
        return;
    }
    let ran = installation
        .command(&["exec", "--container", "main1", "pair"])
        .args(["sh", "-c", LAUNCHER, "sh", RANK])
        .stdin(Stdio::null())
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&ran.stdout);
    let lines: BTreeSet<&str> = said.lines().collect();
    let expected = BTreeSet::from(["rank 0 of 2 in main1: 10", "rank 1 of 2 in sub1: 10"]);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(lines, expected, "{errors}");
}

/// Debian's Open MPI, unmodified, in the first container of a session starts one rank in each, over the ssh that the session
/// has between them.
#[test]
#[ignore = "a launcher of others that may wait for ever; `cargo ci nightly` runs it"]
fn mpirun_starts_a_rank_in_each_container() {
    let name = "mpirun_starts_a_rank_in_each_container";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    for program in [MPIRUN, "/usr/bin/ssh", "/usr/bin/perl"] {
        if !std::path::Path::new(program).exists() {
            return skips::skip(name, &format!("needs {program} on this machine"));
        }
    }
    installation.start();
    let ranks = launch(&installation, "ranks", "sleep 5000;", 2);
    wait_until(TIMEOUT, || {
        show(&installation, &ranks)["state"] == "running"
    })
    .unwrap_or_else(|()| panic!("{}", show(&installation, &ranks)));
    let expected =
        BTreeSet::from(["rank 0 of 2 in main1", "rank 1 of 2 in sub1"].map(str::to_owned));
    let mut last = String::new();
    wait_until(TIMEOUT, || {
        let ran = installation
            .command(&["exec", "--container", "main1", "ranks"])
            // It waits for ever for a daemon that it started and that does not answer.
            .args(["timeout", "-k", "2", "20"])
            .args(["env", "PMIX_MCA_gds=hash", MPIRUN, "--allow-run-as-root"])
            .args(["--mca", "oob_tcp_if_include", "10.88.0.0/24"])
            .args([
                "--mca",
                "plm_rsh_args",
                "-o BatchMode=yes -o ConnectTimeout=5",
            ])
            .args(["--bind-to", "none", "--host", "main1,sub1", "-np", "2"])
            .args(["sh", "-c", MPI_RANK])
            .stdin(Stdio::null())
            .output()
            .expect("it can be started");
        let said = String::from_utf8_lossy(&ran.stdout);
        let lines: BTreeSet<String> = said.lines().map(|line| line.trim().to_owned()).collect();
        last = format!("{said}{}", String::from_utf8_lossy(&ran.stderr));
        lines == expected
    })
    .unwrap_or_else(|()| panic!("{last}"));
}

/// As many containers as a session may have, each of which hears every other by its name.
#[test]
#[ignore = "four hundred connections of eighty processes; `cargo ci nightly` runs it"]
fn twenty_containers_of_a_session_find_one_another() {
    let name = "twenty_containers_of_a_session_find_one_another";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    if !std::path::Path::new("/usr/bin/perl").exists() {
        return skips::skip(name, "needs perl on this machine");
    }
    let interfaces = interfaces_of_the_machine();
    installation.start();
    let all = launch(&installation, "all", TOGETHER, 20);
    let names: Vec<String> = std::iter::once("main1".to_owned())
        .chain((1..20).map(|number| format!("sub{number}")))
        .collect();
    for own in &names {
        for other in &names {
            let words = format!("heard {other}\n");
            waits_for(&installation, &all, Some(own), &words);
        }
    }
    assert_eq!(show(&installation, &all)["containers"], json!(20));
    assert_eq!(interfaces_of_the_machine(), interfaces);
}

/// The names of all interfaces outside of sessions.
fn interfaces_of_the_machine() -> BTreeSet<String> {
    let listed = fs::read_to_string("/proc/net/dev").expect("interfaces are listed");
    let names = listed.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}
