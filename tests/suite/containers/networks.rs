//! What a session reaches outside: a real container, a real relay and listeners of this machine that the test lists by their
//! addresses. Nothing of the machine's own network may change by it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base::observe::Clock;
use node::images::ImageDirectory;
use node::relay::counted;
use node::runtime::{ExecOrder, Runtime, RuntimeName, RuntimePaths};
use node::{LocalNode, NodeOptions};
use rules::egress::{EgressOutcome, EgressTarget, NetworkMode, SessionEgress};
use rules::names::{FolderId, NodeId};
use uuid::Uuid;

use super::disk::end_fork_server;
use super::folder_limits::{self, assign};
use super::ground::{Ground, hear};
use super::images::NoImages;

/// Longer than it takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A relay of the product's own binary, ended with the test.
struct Relay {
    process: Child,
    run: PathBuf,
}

impl Relay {
    fn begin(ground: &Ground) -> Self {
        Self::below(ground.directory.path().join("run"))
    }

    fn below(run: PathBuf) -> Self {
        let process = Command::new(env!("CARGO_BIN_EXE_fardel"))
            .arg("relay")
            .arg(&run)
            .env_clear()
            .stdin(Stdio::null())
            .spawn()
            .expect("started");
        let relay = Self { process, run };
        let until = Instant::now() + TIMEOUT;
        while counted(&relay.run).is_err() {
            assert!(Instant::now() < until, "the relay does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        relay
    }

    /// How often the container did that with the port, as the relay counted.
    fn count(&self, name: &RuntimeName, port: u16, outcome: EgressOutcome) -> u64 {
        let all = counted(&self.run).expect("it answers");
        let one = all.iter().find(|one| one.name == name.as_str());
        let rows = one.into_iter().flat_map(|one| &one.rows);
        let meant = rows.filter(|row| row.port == port && row.outcome == outcome);
        meant.map(|row| row.count).sum()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server of this machine that says each line again; tells when a connection is over.
fn echo() -> (u16, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (over, ended) = channel();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let over = over.clone();
            std::thread::spawn(move || {
                answer(client);
                // The test may be over.
                let _ = over.send(());
            });
        }
    });
    (port, ended)
}

fn answer(client: TcpStream) {
    let mut lines = BufReader::new(client.try_clone().expect("a second handle"));
    let mut to = client;
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
        if to.write_all(line.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

fn egress(mode: NetworkMode, targets: &[String]) -> SessionEgress {
    let targets = targets.iter();
    SessionEgress {
        mode,
        targets: targets
            .map(|text| EgressTarget::parse(text).expect("a target"))
            .collect(),
        refused: Vec::new(),
    }
}

/// What `ip`, `nft` and the kernel's own files say of this machine's network, but for counters. A program that is missing is
/// a failure: what nothing was asked about would look unchanged.
fn host_network() -> String {
    let mut said = String::new();
    for file in ["route", "fib_trie", "if_inet6", "ipv6_route"] {
        said += &fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default();
    }
    for words in [
        &["ip", "-o", "link"][..],
        &["ip", "-o", "address"],
        &["ip", "rule"],
        &["nft", "list", "ruleset"],
    ] {
        let told = Command::new(words[0]).args(&words[1..]).output();
        let told = told.unwrap_or_else(|error| panic!("{words:?} does not run: {error}"));
        let (out, errors) = (
            String::from_utf8_lossy(&told.stdout),
            String::from_utf8_lossy(&told.stderr),
        );
        // A kernel without nftables has no rules of theirs.
        let answered = told.status.success() || errors.contains("not supported");
        assert!(answered, "{words:?}: {errors}");
        // How long an address from a server of addresses is yet valid counts down.
        for line in out
            .lines()
            .filter_map(|line| line.split("valid_lft").next())
        {
            said += line;
            said.push('\n');
        }
    }
    let mut count = 0;
    sysctls(Path::new("/proc/sys/net"), &mut said, &mut count);
    assert!(count > 100, "only {count} settings of the kernel were read");
    said
}

/// The settings of the kernel below a directory, each with its value; those that are only written have none.
fn sysctls(directory: &Path, said: &mut String, count: &mut usize) {
    let entries = fs::read_dir(directory).expect("settings of the kernel");
    let mut places: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    places.sort();
    for place in places {
        if place.is_dir() {
            sysctls(&place, said, count);
        } else if !place.ends_with("nf_conntrack_count") {
            let value = fs::read(&place).unwrap_or_default();
            *said += &format!("{} {}\n", place.display(), String::from_utf8_lossy(&value));
            *count += 1;
        }
    }
}

/// The machine's own network is what it was; says which lines are not.
fn assert_untouched(before: &str) {
    let now = host_network();
    let lines = |all: &str| all.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (old, new) = (lines(before), lines(&now));
    let changed: Vec<_> = old.symmetric_difference(&new).collect();
    assert!(
        now == before,
        "the machine's own network changed: {changed:?}"
    );
}

fn wait_for(ground: &Ground, name: &RuntimeName, words: &str) {
    let until = Instant::now() + TIMEOUT;
    while !ground.log(name).contains(words) {
        assert!(
            Instant::now() < until,
            "no {words:?} in:\n{}",
            ground.log(name)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_session_reaches_what_is_listed_and_nothing_else() {
    const NAME: &str = "a_session_reaches_what_is_listed_and_nothing_else";
    let Some(mut ground) = Ground::lay(NAME) else {
        return;
    };
    let before = host_network();
    let relay = Relay::begin(&ground);
    let (listed, ended) = echo();
    let (other, reached) = echo();
    let script = format!(
        "exec 3<>/dev/tcp/db/{listed} && echo hello >&3 && read -r line <&3 && echo \"got $line\"
         (exec 4<>/dev/tcp/ip-127-0-0-1/{listed}) && echo by-address
         for at in 127.0.0.1 127.80.0.1 db; do
             (exec 4<>/dev/tcp/$at/{other}) 2>/dev/null && echo \"reached $at\"
         done
         echo looked
         until [ -e /tmp/go ]; do sleep 0.05; done
         echo again >&3; read -r line <&3; echo \"got $line\"
         exec sleep 1000"
    );
    let mut order = ground.order(&["bash", "-c", &script]);
    let targets = [
        format!("db=127.0.0.1:{listed}"),
        format!("127.0.0.1:{listed}"),
    ];
    order.egress = Some(egress(NetworkMode::List, &targets));
    let name = ground.start(&order);
    ground.running(&name);
    wait_for(&ground, &name, "looked");
    let said = ground.log(&name);
    assert!(said.contains("got hello"), "{said}");
    assert!(said.contains("by-address"), "{said}");
    assert!(!said.contains("reached"), "{said}");
    assert_eq!(relay.count(&name, listed, EgressOutcome::Opened), 2);
    assert_eq!(relay.count(&name, other, EgressOutcome::Opened), 0);
    assert_eq!(
        ground.runtime.listening(&name).expect("looked"),
        Vec::<u16>::new(),
        "the relay's listeners are no ports of the session"
    );

    // The server dies, and another finds the session: its connection is the same.
    ground.crash();
    ground.reopen();
    ground.running(&name);
    let go = ExecOrder {
        command: vec!["touch".into(), "/tmp/go".into()],
        environment: vec![],
        directory: None,
        user: None,
        terminal: None,
        guest: None,
        background: None,
    };
    let (_, _, code) = hear(&mut ground.runtime.exec(&name, &go).expect("accepted"));
    assert_eq!(code, Some(0));
    wait_for(&ground, &name, "got again");
    assert_eq!(relay.count(&name, listed, EgressOutcome::Opened), 2);

    // The one by address is over already.
    ended.recv_timeout(TIMEOUT).expect("it ended");
    let killed = Instant::now();
    ground.runtime.kill(&name).expect("accepted");
    ended
        .recv_timeout(TIMEOUT)
        .expect("its connection is closed");
    assert!(
        killed.elapsed() < Duration::from_secs(2),
        "{:?}",
        killed.elapsed()
    );
    drop(relay);
    assert!(
        reached.try_recv().is_err(),
        "what is not listed was reached"
    );
    assert_untouched(&before);
}

#[test]
fn a_proxy_opens_what_its_policy_lists() {
    const NAME: &str = "a_proxy_opens_what_its_policy_lists";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let before = host_network();
    let relay = Relay::begin(&ground);
    let (listed, _listed) = echo();
    let (other, reached) = echo();
    let of_socks = |port: u16| {
        let [high, low] = port.to_be_bytes();
        format!("\\x{high:02x}\\x{low:02x}")
    };
    let (listed_port, other_port) = (of_socks(listed), of_socks(other));
    let script = format!(
        "echo \"proxy $HTTPS_PROXY\"
         ask() {{
             exec 3<>/dev/tcp/127.127.0.1/4281
             printf 'CONNECT %s HTTP/1.1\\r\\n\\r\\n' \"$1\" >&3
             read -r status <&3; echo \"$1 ${{status%$'\\r'}}\"
         }}
         ask 127.0.0.1:{other}
         ask localhost:{listed}
         ask 127.0.0.1:{listed}
         read -r rest <&3; echo hello >&3; read -r line <&3; echo \"got $line\"
         socks() {{
             exec 4<>/dev/tcp/127.127.0.1/4281
             printf \"\\\\x05\\\\x01\\\\x00\\\\x05\\\\x01\\\\x00\\\\x01\\\\x7f\\\\x00\\\\x00\\\\x01$1\" >&4
             head -c 12 <&4 | od -An -tu1 | tr -d '\\n'; echo
         }}
         socks '{other_port}'
         socks '{listed_port}'
         echo hello >&4; read -r line <&4; echo \"socks got $line\"
         exec sleep 1000"
    );
    let mut order = ground.order(&["bash", "-c", &script]);
    order.egress = Some(egress(NetworkMode::Proxy, &[format!("127.0.0.1:{listed}")]));
    let name = ground.start(&order);
    ground.running(&name);
    wait_for(&ground, &name, "socks got hello");
    let said = ground.log(&name);
    for line in [
        "5   0   5   2".to_owned(),
        "5   0   5   0".to_owned(),
        "proxy http://127.127.0.1:4281".to_owned(),
        format!("127.0.0.1:{other} HTTP/1.1 403 Forbidden"),
        format!("localhost:{listed} HTTP/1.1 403 Forbidden"),
        format!("127.0.0.1:{listed} HTTP/1.1 200 Connection established"),
    ] {
        assert!(said.contains(&line), "no {line:?} in:\n{said}");
    }
    assert_eq!(relay.count(&name, other, EgressOutcome::NotListed), 2);
    assert_eq!(relay.count(&name, listed, EgressOutcome::Opened), 2);
    assert_eq!(relay.count(&name, listed, EgressOutcome::NotListed), 1);
    ground.runtime.kill(&name).expect("accepted");
    drop(relay);
    assert!(
        reached.try_recv().is_err(),
        "what is not listed was reached"
    );
    assert_untouched(&before);
}

#[test]
fn a_session_without_a_network_has_nothing_to_reach() {
    const NAME: &str = "a_session_without_a_network_has_nothing_to_reach";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let before = host_network();
    let relay = Relay::begin(&ground);
    let (port, reached) = echo();
    let script = format!(
        "for at in 127.0.0.1 127.80.0.1 127.127.0.1; do
             for port in {port} 4281; do
                 (exec 3<>/dev/tcp/$at/$port) 2>/dev/null && echo \"reached $at\"
             done
         done
         env | grep -i proxy; echo looked; exec sleep 1000"
    );
    let name = ground.start(&ground.order(&["bash", "-c", &script]));
    ground.running(&name);
    wait_for(&ground, &name, "looked");
    let said = ground.log(&name);
    assert!(
        !said.contains("reached") && !said.to_lowercase().contains("proxy"),
        "{said}"
    );
    let served = counted(&relay.run).expect("it answers");
    assert!(served.iter().all(|one| one.name != name.as_str()));
    ground.runtime.kill(&name).expect("accepted");
    drop(relay);
    assert!(
        reached.try_recv().is_err(),
        "what is not listed was reached"
    );
    assert_untouched(&before);
}

/// A whole machine is told of a narrowed policy: the session goes on with what is left.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_takes_away_is_closed_while_the_session_runs() {
    const NAME: &str = "what_a_policy_takes_away_is_closed_while_the_session_runs";
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let places = RuntimePaths {
        data: at("data"),
        run: at("run"),
        shim_binary: env!("CARGO_BIN_EXE_fardel").into(),
    };
    let options = NodeOptions {
        id: NodeId(Uuid::from_u128(1)),
        places: places.clone(),
        images: ImageDirectory::Own(at("images")),
        host_environment: true,
        cpu: None,
        memory: None,
        devices: Vec::new(),
        driver_root: at("no-driver"),
        gpu_mode: node::gpu::arbiter::Mode::Hard,
        keep_days: 1,
    };
    let machine = LocalNode::open(options, Arc::new(NoImages), Clock::system()).expect("it opens");
    let mut findings = machine.findings().iter();
    if let Some(finding) = findings.find(|finding| finding.prevents_containers) {
        skips::skip(NAME, &finding.what);
        return;
    }
    fs::create_dir_all(at("run")).expect("made");
    let _relay = Relay::below(at("run"));
    let (kept, _kept) = echo();
    let (gone, closed) = echo();
    let script = format!(
        "exec 3<>/dev/tcp/db/{kept} 4<>/dev/tcp/old/{gone}
         echo one >&4; read -r line <&4 || exit 3
         read -r line <&4 && exit 4
         (exec 5<>/dev/tcp/old/{gone}; echo x >&5; read -r line <&5) 2>/dev/null && exit 5
         echo two >&3; read -r line <&3 || exit 6
         exit 77"
    );
    let mut order = folder_limits::session(1, FolderId(Uuid::nil()), "");
    order.mounts.clear();
    order.command = ["bash", "-c", &script].map(str::to_owned).to_vec();
    let targets = [
        format!("db=127.0.0.1:{kept}"),
        format!("old=127.0.0.1:{gone}"),
    ];
    let mut reaches = egress(NetworkMode::List, &targets);
    order.egress = Some(reaches.clone());
    let (mut link, theirs) = base::link::local();
    let runs = tokio::spawn(machine.run(theirs));
    link.send(assign(1, vec![order.clone()]));
    let end = Instant::now() + TIMEOUT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let report = tokio::time::timeout(left, link.report()).await;
        let report = report.expect("in time").expect("the machine is there");
        let mut rows = report.egress.iter().flat_map(|one| &one.rows);
        if rows.any(|row| row.port == gone && row.outcome == EgressOutcome::Opened) {
            break;
        }
    }
    reaches.refused = vec![reaches.targets[1].clone()];
    order.egress = Some(reaches);
    link.send(assign(2, vec![order.clone()]));
    tokio::task::block_in_place(|| closed.recv_timeout(Duration::from_secs(2)))
        .expect("its connection is closed");
    assert_eq!(folder_limits::ended(&mut link, order.name).await, Ok(77));
    link.send(assign(3, Vec::new()));
    let end = Instant::now() + TIMEOUT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let report = tokio::time::timeout(left, link.report()).await;
        let report = report.expect("in time").expect("the machine is there");
        if report.containers.is_empty() {
            break;
        }
    }
    drop(link);
    runs.await.expect("no panic").expect("it ran");
    let runtime = Runtime::open(places).expect("it opens");
    end_fork_server(runtime.instance_id());
    runtime.retire();
}
