//! The catalog's promises: durable, all or nothing, conditional, one server at a time.

mod app_ports;
pub(crate) mod audit;
mod connections;
mod containers;
pub(crate) mod dump;
mod edges;
mod ended;
mod holders;
mod ledger;
mod reached;
mod run_history;
pub(crate) mod statements;

use std::collections::BTreeMap;

use base::observe::{Clock, random};
use rules::names::{NodeId, SessionId, SessionName, UserId};
use rules::policy::BackfillMode;
use rules::reason::Reason;
use rules::resources::Demand;
use rules::session::{
    DesiredState, Session, SessionEnvironment, SessionKind, SessionSpec, SessionState,
};
use rules::units::Timestamp;

use super::sessions::ConditionalWrite;
use super::*;

mod sealed;

fn clock() -> Clock {
    Clock::set_by_hand(Timestamp::from_millis(1_800_000_000_000))
}

fn memory() -> Catalog {
    Catalog::open(&CatalogPlace::Memory, clock()).unwrap()
}

fn on_disk(directory: &tempfile::TempDir) -> Catalog {
    Catalog::open(
        &CatalogPlace::Directory(directory.path().to_path_buf()),
        clock(),
    )
    .unwrap()
}

fn owner(catalog: &Catalog) -> UserId {
    let owner = UserId::make(catalog.clock().now(), random());
    catalog
        .write_now(Lane::Requests, "make an owner", move |rows| {
            rows.connection.execute(
                "insert into user (id, name, language, theme, time_zone, suspended,
                                     password, created_at, generation)
                 values (?1, ?2, '', '', '', 0, '', 0, 1)",
                (owner.0.as_bytes(), owner.to_string()),
            )?;
            Ok(())
        })
        .unwrap();
    owner
}

/// The reach of an administrator.
fn everything() -> rules::permissions::Reach {
    let subject = rules::permissions::Subject {
        user: users::ROOT,
        grants: rules::users::Role::Administrator.grants(),
        domain: rules::tenancy::DomainId::DEFAULT,
        scopes: None,
    };
    rules::permissions::reach(&subject, rules::permissions::Permission::SystemRead)
}

fn session(owner: UserId, name: &str) -> Session {
    let now = clock().now();
    let spec = SessionSpec {
        kind: SessionKind::Batch,
        environment: SessionEnvironment::Host,
        command: vec!["true".into()],
        env: BTreeMap::from([("A".into(), "b".into())]),
        demand: Demand::default(),
        timeout_seconds: Some(60),
        max_runtime_seconds: None,
        start_at: None,
        depends_on: vec![],
        containers: 1,
    };
    let name = SessionName::parse(name).unwrap();
    let mut made = Session::launched(SessionId::make(now, random()), name, owner, spec, now);
    made.remarks.labels = BTreeMap::from([("team".into(), "vision".into())]);
    made.remarks.description = Some("a first try".into());
    made
}

fn insert(catalog: &Catalog, session: &Session) -> Result<(), Failure> {
    let session = session.clone();
    catalog.write_now(Lane::Requests, "insert", move |rows| {
        rows.insert_session(&session, "mina")
    })
}

fn code(result: Result<impl Sized, Failure>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(Failure::Refusal(refusal)) => refusal.code,
        Err(Failure::Fault(fault)) => format!("fault: {}", base::observe::chain(&fault)),
    }
}

#[test]
fn a_session_survives_its_row() {
    let catalog = memory();
    let written = session(owner(&catalog), "a");
    insert(&catalog, &written).unwrap();
    let read = catalog
        .read_now("read", |view| view.session(written.id))
        .unwrap();
    assert_eq!(read, Some(written));
}

#[test]
fn an_answer_survives_a_new_start_on_the_same_files() {
    let directory = tempfile::tempdir().unwrap();
    let written = {
        let catalog = on_disk(&directory);
        let written = session(owner(&catalog), "a");
        insert(&catalog, &written).unwrap();
        written
    };
    let catalog = on_disk(&directory);
    let world = catalog.read_now("world", |view| view.world()).unwrap();
    assert_eq!(*world.sessions, [written]);
    assert_eq!(*catalog.revision().borrow(), world.revision);
}

#[test]
fn a_refused_request_undoes_only_its_own_writes() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let owner = owner(&catalog);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let results: Vec<String> = runtime.block_on(async {
        let tasks: Vec<_> = (0..100)
            .map(|n| {
                let catalog = catalog.clone();
                let session = session(owner, &format!("s{n}"));
                tokio::spawn(async move {
                    code(
                        catalog
                            .write(Lane::Requests, "insert", move |rows| {
                                rows.insert_session(&session, "mina")?;
                                if n % 10 == 0 {
                                    return Err(Refusal::from_parts(
                                        rules::refusal::RefusalKind::Invalid,
                                        "test.no".into(),
                                        "No.".into(),
                                        String::new(),
                                    )
                                    .into());
                                }
                                Ok(())
                            })
                            .await,
                    )
                })
            })
            .collect();
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await.unwrap());
        }
        results
    });
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result, if n % 10 == 0 { "test.no" } else { "done" }, "{n}");
    }
    let world = catalog.read_now("world", |view| view.world()).unwrap();
    assert_eq!(world.sessions.len(), 90);
    let events = catalog
        .read_now("events", |view| view.events_after(&everything(), 0, 1000))
        .unwrap()
        .0;
    assert_eq!(events.len(), 90, "refused requests left events behind");
    // Group commit: a hundred requests that wait together are not a hundred commits.
    assert!(world.revision < 95, "{} commits", world.revision);
}

#[test]
fn single_rows_are_read_while_every_turn_for_long_reads_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (release, hold) = std::sync::mpsc::channel::<()>();
        let hold = std::sync::Arc::new(std::sync::Mutex::new(hold));
        let slow: Vec<_> = (0..8)
            .map(|_| {
                let (catalog, hold) = (catalog.clone(), std::sync::Arc::clone(&hold));
                tokio::spawn(async move {
                    catalog
                        .read("hold a reader", move |_| {
                            // Ends when the sender is dropped.
                            let _ = hold.lock().unwrap().recv();
                            Ok(())
                        })
                        .await
                })
            })
            .collect();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let quick = tokio::task::spawn_blocking(move || {
            catalog.read_now("a single row", |view| view.revision())
        });
        let answered = tokio::time::timeout(std::time::Duration::from_secs(10), quick).await;
        drop(release);
        assert!(answered.is_ok(), "it waited behind long reads");
        for task in slow {
            task.await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_panic_ends_the_request_and_not_the_writer() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let result = catalog.write_now(Lane::Requests, "break", |_| -> Result<(), Failure> {
        panic!("planted")
    });
    assert!(code(result).contains("panicked"));
    insert(&catalog, &session(owner(&catalog), "a")).unwrap();
}

#[test]
fn a_write_from_an_old_sight_is_left_out() {
    let catalog = memory();
    let row = session(owner(&catalog), "a");
    insert(&catalog, &row).unwrap();
    let place = |seen| {
        catalog
            .write_now(Lane::Loops, "place", move |rows| {
                let now = rows.now;
                rows.change_session(row.id, Some(seen), "test", None, |session| {
                    let because = Reason::from_parts("placement.room".into(), "Room.".into());
                    session.place(NodeId(row.id.0), vec![], because, now);
                    true
                })
            })
            .unwrap()
    };
    assert_eq!(place(7), ConditionalWrite::No);
    assert_eq!(place(1), ConditionalWrite::Yes);
    assert_eq!(place(1), ConditionalWrite::No);
    let read = catalog
        .read_now("read", |view| view.session(row.id))
        .unwrap()
        .unwrap();
    assert_eq!(
        (read.state(), read.generation),
        (SessionState::Scheduled, 2)
    );
}

#[test]
fn two_live_sessions_of_one_owner_never_share_a_name() {
    let catalog = memory();
    let (one, two) = (owner(&catalog), owner(&catalog));
    let first = session(one, "a");
    insert(&catalog, &first).unwrap();
    assert_eq!(
        code(insert(&catalog, &session(one, "a"))),
        "session.name-taken"
    );
    insert(&catalog, &session(two, "a")).unwrap();
    catalog
        .write_now(Lane::Requests, "stop", move |rows| {
            let now = rows.now;
            rows.change_session(first.id, None, "mina", None, |session| {
                let because = Reason::from_parts("session.stopped".into(), "Stopped.".into());
                session.stop(DesiredState::Stop, because, now)
            })
        })
        .unwrap();
    insert(&catalog, &session(one, "a")).unwrap();
}

#[test]
fn nothing_changed_means_no_new_revision() {
    let catalog = memory();
    let before = *catalog.revision().borrow();
    catalog
        .write_now(Lane::Loops, "nothing", |_| Ok(()))
        .unwrap();
    assert_eq!(*catalog.revision().borrow(), before);
    insert(&catalog, &session(owner(&catalog), "a")).unwrap();
    assert!(*catalog.revision().borrow() > before);
}

/// Proves too: `what_was_answered_survives_kill_9`
#[test]
fn a_death_at_the_commit_keeps_all_or_nothing() {
    let catalog = memory();
    let owner = owner(&catalog);
    catalog.before_commits(|_| AtCommit::DieBefore);
    assert!(code(insert(&catalog, &session(owner, "lost"))).starts_with("fault"));
    catalog.before_commits(|_| AtCommit::DieAfter);
    assert!(code(insert(&catalog, &session(owner, "kept"))).starts_with("fault"));
    catalog.before_commits(|_| AtCommit::Commit);
    let world = catalog.read_now("world", |view| view.world()).unwrap();
    let names: Vec<String> = world.sessions.iter().map(|s| s.name.to_string()).collect();
    assert_eq!(names, ["kept"]);
}

/// Proves too: `on_a_full_disk_everything_can_still_be_stopped`
#[test]
fn a_full_disk_refuses_by_name_and_recovers() {
    let catalog = memory();
    let owner = owner(&catalog);
    catalog.limit_growth(Some(0));
    let mut large = session(owner, "large");
    large.spec.env = BTreeMap::from([("A".into(), "x".repeat(200_000))]);
    assert_eq!(code(insert(&catalog, &large)), "disk.full");
    catalog.limit_growth(None);
    insert(&catalog, &large).unwrap();
}

/// A small file system of its own, gone with the value.
struct CatalogDisk(tempfile::TempDir);

impl CatalogDisk {
    fn mount(size: &std::ffi::CStr) -> Result<Self, rustix::io::Errno> {
        let directory = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", directory.path(), "tmpfs", flags, Some(size))?;
        Ok(Self(directory))
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.path().join("filler")).unwrap();
        for piece in [1 << 20, 4096] {
            while file.write_all(&vec![1; piece]).is_ok() {}
        }
    }
}

impl Drop for CatalogDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Promise (Disk, backup and upgrade): On a full disk new work is refused with its own code, and everything
/// that runs can still be stopped.
#[test]
fn on_a_full_disk_everything_can_still_be_stopped() {
    let disk = match CatalogDisk::mount(c"size=40m") {
        Ok(disk) => disk,
        Err(error) => {
            let reason = format!("a file system cannot be mounted here: {error}");
            return skips::skip("on_a_full_disk_everything_can_still_be_stopped", &reason);
        }
    };
    let place = CatalogPlace::Directory(disk.0.path().join("state"));
    let catalog = Catalog::open(&place, clock()).unwrap();
    let owner = owner(&catalog);
    let sessions: Vec<Session> = (0..400).map(|n| session(owner, &format!("s{n}"))).collect();
    for session in &sessions {
        insert(&catalog, session).unwrap();
    }
    disk.fill();
    for session in &sessions {
        let id = session.id;
        catalog
            .write_now(Lane::Requests, "stop", move |rows| {
                let now = rows.now;
                rows.change_session(id, None, "mina", None, |session| {
                    let because = Reason::from_parts("session.stopped".into(), "Stopped.".into());
                    session.stop(DesiredState::Stop, because, now)
                })
            })
            .unwrap();
    }
    // New work goes on until the reserve is used up, and is then refused by name.
    let refused = (0..100_000).find_map(|n| {
        let mut large = session(owner, &format!("l{n}"));
        large.spec.command = vec!["x".repeat(100_000)];
        let result = code(insert(&catalog, &large));
        (result != "done").then_some(result)
    });
    assert_eq!(refused.as_deref(), Some("disk.full"));
    std::fs::remove_file(disk.0.path().join("filler")).unwrap();
    insert(&catalog, &session(owner, "again")).unwrap();
    let world = catalog.read_now("world", |view| view.world()).unwrap();
    assert!(
        world
            .sessions
            .iter()
            .all(|s| !s.name.as_str().starts_with('s'))
    );
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_with_the_way_out() {
    let place = CatalogPlace::Directory("/proc/fardel".into());
    match Catalog::open(&place, clock()) {
        Err(Failure::Refusal(refusal)) => {
            assert_eq!(refusal.code, "state.unwritable");
            assert!(refusal.hint.contains("FARDEL_DATA"), "{refusal}");
        }
        other => panic!("it was opened: {}", code(other.map(|_| ()))),
    }
}

/// Set for the process that `what_was_answered_survives_kill_9` kills; names its state.
const DOOMED: &str = "FARDEL_TEST_DOOMED_STATE";

/// Writes sessions without end, two threads at once, and says the id of each one that was answered.
/// Does nothing but in the process that is to be killed.
#[test]
fn doomed_writer() {
    use std::io::Write as _;
    let Some(directory) = std::env::var_os(DOOMED) else {
        return;
    };
    let catalog = Catalog::open(&CatalogPlace::Directory(directory.into()), clock()).unwrap();
    let owner = owner(&catalog);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let catalog = &catalog;
            scope.spawn(move || {
                for n in 0.. {
                    let written = session(owner, &format!("t{thread}-{n}"));
                    insert(catalog, &written).unwrap();
                    let line = format!("answered {}\n", written.id);
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

/// Promise (Sessions survive failures): An acknowledged write is on disk: `kill -9` loses none of them. A death
/// during a commit keeps all of that commit or nothing.
#[test]
fn what_was_answered_survives_kill_9() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    let directory = tempfile::tempdir().unwrap();
    let mut answered = Vec::new();
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "catalog::tests::doomed_writer", "--nocapture"])
            .env(DOOMED, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let before = answered.len();
        while answered.len() < before + 20 + round * 7 {
            let line = said.next().expect("it was not killed yet").unwrap();
            answered.extend(line.strip_prefix("answered ").map(str::to_owned));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had still said before it died counts too.
        for line in said.map_while(Result::ok) {
            answered.extend(line.strip_prefix("answered ").map(str::to_owned));
        }
    }
    let catalog = on_disk(&directory);
    let world = catalog.read_now("world", |view| view.world()).unwrap();
    let kept: std::collections::BTreeSet<String> =
        world.sessions.iter().map(|s| s.id.to_string()).collect();
    // The last line of a process may be cut; only whole ids count.
    for id in answered.iter().filter(|id| id.len() == 36) {
        assert!(kept.contains(id), "{id} was answered and is gone");
    }
    assert_eq!(rules::findings::findings(&world), vec![]);
}

#[test]
fn a_second_server_on_the_same_state_is_refused_by_process_number() {
    let directory = tempfile::tempdir().unwrap();
    let _first = on_disk(&directory);
    let second = Catalog::open(
        &CatalogPlace::Directory(directory.path().to_path_buf()),
        clock(),
    );
    match second {
        Err(Failure::Refusal(refusal)) => {
            assert_eq!(refusal.code, "server.already-running");
            let pid = std::process::id().to_string();
            assert!(refusal.text.contains(&pid), "{refusal}");
        }
        other => panic!("it was let in: {}", code(other.map(|_| ()))),
    }
}

#[test]
fn state_that_is_about_to_be_free_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let first = on_disk(&directory);
    let ends = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(first);
    });
    let second = Catalog::open(
        &CatalogPlace::Directory(directory.path().to_path_buf()),
        clock(),
    );
    assert!(second.is_ok(), "{}", code(second.map(|_| ())));
    ends.join().unwrap();
}

#[test]
fn state_of_a_newer_version_and_foreign_files_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    drop(on_disk(&directory));
    let file = directory.path().join("catalog.sqlite");
    let place = CatalogPlace::Directory(directory.path().to_path_buf());
    let set = |sql: &str| {
        rusqlite::Connection::open(&file)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    };
    set("pragma user_version = 99");
    assert_eq!(code(Catalog::open(&place, clock())), "state.newer");
    set("pragma user_version = 1; pragma application_id = 5");
    assert_eq!(code(Catalog::open(&place, clock())), "state.foreign");
    std::fs::write(
        &file,
        "this is a letter to a friend, not a database at all".repeat(99),
    )
    .unwrap();
    assert_eq!(code(Catalog::open(&place, clock())), "state.damaged");
}

#[test]
fn damaged_pages_are_named_by_those_who_meet_them_and_by_those_who_look() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let owner = owner(&catalog);
    for n in 0..40 {
        insert(&catalog, &session(owner, &format!("mark-of-damage-{n}"))).unwrap();
    }
    drop(catalog);
    let path = directory.path().join("catalog.sqlite");
    let mut bytes = std::fs::read(&path).unwrap();
    let mut hit = 0;
    for page in bytes.chunks_mut(4096).skip(1) {
        if page.windows(14).any(|part| part == b"mark-of-damage") {
            page.fill(0x5a);
            hit += 1;
        }
    }
    assert!(hit > 0, "no page holds a session");
    std::fs::write(&path, bytes).unwrap();
    let catalog = on_disk(&directory);
    assert!(catalog.health().troubles().is_empty());
    let read = catalog.read_now("world", |view| view.world());
    assert_eq!(code(read), "state.damaged");
    let named = || -> Vec<String> {
        let troubles = catalog.health().troubles();
        troubles.into_iter().map(|trouble| trouble.code).collect()
    };
    assert_eq!(named(), ["state.damaged"]);
    let in_the_way = catalog.health().standing_in_the_way().unwrap();
    assert!(
        in_the_way.hint.contains("fardel backup restore"),
        "{in_the_way}"
    );
    drop(catalog);
    // Nobody meets them: whoever looks through the pages names them too.
    let catalog = on_disk(&directory);
    catalog.look_for_damage(directory.path());
    assert!(catalog.health().standing_in_the_way().is_some());
}

/// Set for the process of `a_disk_that_fails_is_named_until_it_works_again`; names its state.
const FAILING: &str = "FARDEL_TEST_FAILING_STATE";

/// Meets a file that may not grow, which the catalog sees as a disk that fails. Does nothing but in the
/// process that is made for it: the limit counts for all of a process.
#[test]
fn writer_on_a_failing_disk() {
    let Some(directory) = std::env::var_os(FAILING) else {
        return;
    };
    let catalog = Catalog::open(&CatalogPlace::Directory(directory.into()), clock()).unwrap();
    let owner = owner(&catalog);
    let grow = |bytes: Option<u64>| {
        let limit = rustix::process::Rlimit {
            current: bytes,
            maximum: None,
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    };
    let trouble = || {
        let troubles = catalog.health().troubles();
        troubles.first().map(|trouble| trouble.code.clone())
    };
    grow(Some(4096));
    let refused = insert(&catalog, &session(owner, "first"));
    let code = code(refused);
    let during = trouble();
    grow(None);
    insert(&catalog, &session(owner, "second")).unwrap();
    println!("met {code} {during:?} {:?}", trouble());
}

#[test]
fn a_disk_that_fails_is_named_until_it_works_again() {
    let directory = tempfile::tempdir().unwrap();
    // What grows too far is killed, unless it was told to go on.
    let out = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "catalog::tests::writer_on_a_failing_disk",
            "--nocapture",
        ])
        .env(FAILING, directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let wanted = "met state.disk Some(\"state.disk\") None";
    assert!(
        said.contains(wanted),
        "{said}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[tokio::test]
async fn a_writer_that_panics_is_heard_of_and_keeps_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let owner = owner(&catalog);
    let panics = super::writer::request("panic", None, |_| Ok(()), |_| panic!("on purpose"));
    catalog.enter(Lane::Requests, panics).unwrap();
    let patience = std::time::Duration::from_secs(60);
    let ended = tokio::time::timeout(patience, catalog.writer_ended());
    ended.await.expect("the end of the writer is told");
    let refused = tokio::task::spawn_blocking(move || {
        let late = session(owner, "late");
        code(insert(&catalog, &late))
    });
    let refused = tokio::time::timeout(patience, refused).await;
    let told = refused.expect("nobody waits for ever").unwrap();
    assert!(told.starts_with("fault"), "{told}");
}

#[test]
fn kept_copies_are_closed_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    drop(on_disk(&directory));
    copy::pretend_upgrade(directory.path());
    let [(version, path)] = &copy::kept(directory.path())[..] else {
        panic!("one copy");
    };
    let mode = || std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    // One that an earlier version kept open is closed with the next start.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    copy::pretend_version(directory.path(), *version);
    let _ = Catalog::open(&CatalogPlace::Directory(directory.path().into()), clock());
    assert_eq!(mode(), 0o600);
}

#[test]
fn what_is_changed_by_hand_is_changed_back() {
    use crate::catalog::nodes::{DesiredPartitions, DeviceRow, partition_specs};
    use rules::devices::MigProfile;
    use rules::partitioning;
    let catalog = memory();
    let now = catalog.clock().now();
    let profiles = vec![MigProfile::parse("3g.40gb").unwrap()];
    let mut device = rules::resources::Device {
        uuid: "GPU-0".into(),
        ..rules::resources::Device::new(0, "NVIDIA H100 80GB")
    };
    let machine = |device: &rules::resources::Device| rules::world::NodeRecord {
        id: NodeId(uuid::Uuid::nil()),
        name: "box".into(),
        boot: rules::names::BootId(uuid::Uuid::nil()),
        capacity: rules::resources::Capacity {
            devices: vec![device.clone()],
            ..Default::default()
        },
        host_environment: true,
        seen_at: now,
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: Default::default(),
        problems: Vec::new(),
    };
    let heard = |node: rules::world::NodeRecord| {
        catalog
            .write_now(Lane::Loops, "a report", move |rows| rows.put_node(&node))
            .unwrap();
        let look =
            |view: &ReadTransaction<'_>| Ok((view.nodes()?[0].cordoned.len(), view.devices()?));
        catalog.read_now("look", look).unwrap()
    };
    heard(machine(&device));
    let row = DeviceRow {
        uuid: "GPU-0".into(),
        cordoned: false,
        note: "for the class".into(),
        changed_at: now,
        changed_by: "mina".into(),
        partitions: Some(DesiredPartitions {
            profiles: profiles.clone(),
            before: Vec::new(),
            at: now,
        }),
    };
    catalog
        .write_now(Lane::Requests, "plan", move |rows| rows.put_device(&row))
        .unwrap();
    let (closed, rows) = heard(machine(&device));
    assert!(
        closed == 1 && rows[0].partitions.is_some(),
        "it is partitioned already"
    );
    let orders = || {
        let look =
            |view: &ReadTransaction<'_>| Ok(partition_specs(&view.devices()?, &view.nodes()?));
        let orders = catalog.read_now("orders", look).unwrap();
        orders.values().flatten().count()
    };
    assert_eq!(orders(), 1);
    device.mig = partitioning::parts(&device, &profiles);
    let (closed, rows) = heard(machine(&device));
    assert_eq!((closed, rows[0].note.as_str()), (0, "for the class"));
    // Made whole by hand, or by a restart: it takes nothing new, and its machine still has the order.
    device.mig.clear();
    assert_eq!((heard(machine(&device)).0, orders()), (1, 1));
}

#[test]
fn files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("state");
    let catalog = Catalog::open(&CatalogPlace::Directory(directory.clone()), clock()).unwrap();
    insert(&catalog, &session(owner(&catalog), "a")).unwrap();
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// The schema as SQLite holds it, one statement a paragraph, each behind what it needs, and then the rows.
fn dump(connection: &rusqlite::Connection) -> String {
    let texts = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let statements = texts(
        "select sql from sqlite_schema
         where sql is not null and name not like 'sqlite_%'
         order by type = 'trigger', tbl_name, type desc, name",
    );
    let tables = texts(
        "select name from sqlite_schema
         where type = 'table' and name not like 'sqlite_%' order by name",
    );
    let rows = tables.iter().flat_map(|table| {
        let columns = texts(&format!("select name from pragma_table_info('{table}')"));
        let values = columns
            .iter()
            .map(|name| format!("quote({name})"))
            .collect::<Vec<_>>();
        let (columns, values) = (columns.join(", "), values.join(" || ', ' || "));
        texts(&format!("select {values} from {table} order by 1"))
            .into_iter()
            .map(move |values| format!("INSERT INTO {table} ({columns}) VALUES ({values})"))
    });
    // A row may stand before the one that it names.
    std::iter::once("PRAGMA defer_foreign_keys = on".to_owned())
        .chain(statements)
        .chain(rows)
        .map(|sql| format!("{sql};\n\n"))
        .collect()
}

#[test]
fn the_ladder_ends_at_the_committed_schema() {
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    migrate::climb_to(&mut connection, &CatalogPlace::Memory, migrate::STEPS).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/catalog/schema.sql");
    let found = dump(&connection);
    if std::env::var_os("FARDEL_REFRESH").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(
        found, golden,
        "refresh with FARDEL_REFRESH=1 cargo test -p server the_ladder"
    );
    // What a new catalog is made of, as this build has it.
    let mut founded = rusqlite::Connection::open_in_memory().unwrap();
    founded.pragma_update(None, "foreign_keys", true).unwrap();
    migrate::climb(&mut founded, &CatalogPlace::Memory).unwrap();
    assert_eq!(
        dump(&founded),
        golden,
        "build again: it has the schema before this one"
    );
    let version: u32 = founded
        .query_row("pragma user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(usize::try_from(version).unwrap(), migrate::STEPS.len());
}

#[test]
fn a_step_up_copies_the_file_first_and_keeps_the_rows() {
    let directory = tempfile::tempdir().unwrap();
    let written = {
        let catalog = on_disk(&directory);
        let written = session(owner(&catalog), "a");
        insert(&catalog, &written).unwrap();
        written
    };
    let place = CatalogPlace::Directory(directory.path().to_path_buf());
    let mut connection =
        rusqlite::Connection::open(directory.path().join("catalog.sqlite")).unwrap();
    let mut steps = migrate::STEPS.to_vec();
    steps.push("alter table node add column further text;");
    migrate::climb_to(&mut connection, &place, &steps).unwrap();
    let copy = directory
        .path()
        .join(format!("catalog.sqlite.version-{}", migrate::STEPS.len()));
    for file in [copy, directory.path().join("catalog.sqlite")] {
        let connection = rusqlite::Connection::open(&file).unwrap();
        let whole: String = connection
            .query_row("pragma integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(whole, "ok");
        let heard = super::node_cache::NodeCache::default();
        let seal = sealing::for_a_look(&connection, directory.path()).unwrap();
        let view = ReadTransaction::new(&connection, &heard, &seal);
        assert_eq!(view.session(written.id).unwrap(), Some(written.clone()));
    }
}

/// Promise (Disk, backup and upgrade): An upgrade is applied completely or not at all. The downgrade says what
/// is lost.
#[test]
fn a_step_that_fails_leaves_everything_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let written = {
        let catalog = on_disk(&directory);
        let written = session(owner(&catalog), "a");
        insert(&catalog, &written).unwrap();
        written
    };
    let place = CatalogPlace::Directory(directory.path().to_path_buf());
    let mut steps = migrate::STEPS.to_vec();
    steps.push(
        "create table half_done (id integer primary key) strict; update session set name = 'b';",
    );
    steps.push("insert into no_such_table values (1);");
    {
        let mut connection =
            rusqlite::Connection::open(directory.path().join("catalog.sqlite")).unwrap();
        let failed = migrate::climb_to(&mut connection, &place, &steps).unwrap_err();
        let told = base::observe::chain(&failed);
        assert!(
            told.contains(&format!("catalog migration {}", steps.len())),
            "{told}"
        );
    }
    // The program that knows none of these steps starts as if nothing had been.
    let catalog = on_disk(&directory);
    let kept = catalog
        .read_now("look", |view| {
            let half: i64 = view.connection.query_row(
                "select count(*) from sqlite_schema where name = 'half_done'",
                [],
                |row| row.get(0),
            )?;
            assert_eq!(half, 0);
            view.session(written.id)
        })
        .unwrap();
    assert_eq!(kept, Some(written));
}

#[test]
fn a_directory_that_is_somebody_elses_or_open_to_all_is_refused_and_nothing_is_made_in_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let test =
        "a_directory_that_is_somebody_elses_or_open_to_all_is_refused_and_nothing_is_made_in_it";
    let refused = |directory: &tempfile::TempDir| {
        let place = CatalogPlace::Directory(directory.path().to_path_buf());
        let Err(Failure::Refusal(refusal)) = Catalog::open(&place, clock()) else {
            panic!("it was opened");
        };
        assert!(!refusal.hint.is_empty());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        refusal.code
    };
    let directory = tempfile::tempdir().unwrap();
    let mode = |mode| {
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap()
    };
    mode(0o777);
    assert_eq!(refused(&directory), "state.exposed");
    mode(0o1777);
    assert_eq!(refused(&directory), "state.exposed");
    mode(0o755);
    drop(on_disk(&directory));

    let directory = tempfile::tempdir().unwrap();
    if let Err(error) = std::os::unix::fs::chown(directory.path(), Some(12_345), None) {
        skips::skip(test, &format!("a directory cannot be given away: {error}"));
        return;
    }
    assert_eq!(refused(&directory), "state.foreign-owner");
}

#[test]
fn disks_of_other_machines_are_known_by_their_numbers() {
    for (magic, name) in [
        (0x6969, "NFS"),
        (0xfe53_4d42, "a Windows share"),
        (0x00c3_6400, "CephFS"),
    ] {
        assert_eq!(super::open::on_network(magic), Some(name));
    }
    // A 32-bit number that a signed word extended.
    assert_eq!(
        super::open::on_network(0xffff_ffff_ff53_4d42),
        Some("a Windows share")
    );
    for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
        assert_eq!(super::open::on_network(local), None, "{local:x}");
    }
}

#[test]
fn answers_kept_for_keys_are_bounded_in_number_and_bytes() {
    let catalog = memory();
    let (mina, jae) = (owner(&catalog), owner(&catalog));
    let key = |principal, number: usize| request_key::RequestKey {
        principal,
        route: "POST /x".to_owned(),
        key: format!("k{number}"),
        digest: [0; 32],
    };
    let remember = |principal, number: usize, bytes: usize| {
        let key = key(principal, number);
        catalog.write_now(Lane::Requests, "remember", move |rows| {
            rows.remember_answer(&key, &"x".repeat(bytes))
        })
    };
    let known = |principal, number: usize| {
        let key = key(principal, number);
        let now = catalog.clock().now();
        let read = catalog.read_now("look", |view| view.answered(&key, now));
        read.unwrap().is_some()
    };
    let later = || catalog.clock().set(catalog.clock().now().plus_seconds(1));
    remember(jae, 0, 10).unwrap();
    for number in 0..1_010 {
        later();
        remember(mina, number, 10).unwrap();
    }
    assert!(!known(mina, 9) && known(mina, 10) && known(mina, 1_009));
    for number in 2_000..2_010 {
        later();
        remember(mina, number, idempotency::MAX_ANSWER_BYTES).unwrap();
    }
    // Two of the largest are all that is kept.
    assert!(!known(mina, 1_009) && !known(mina, 2_007) && known(mina, 2_008));
    assert!(known(jae, 0), "somebody else's went");
    let most = idempotency::MAX_ANSWER_BYTES + 1;
    assert_eq!(
        code(remember(mina, 3_000, most)),
        "idempotency.answer-too-large"
    );
}

#[test]
fn the_rule_of_the_queue_is_as_it_was_before_an_order_came() {
    let directory = tempfile::tempdir().unwrap();
    let place = CatalogPlace::Directory(directory.path().to_path_buf());
    let path = directory.path().join("catalog.sqlite");
    {
        let mut connection = rusqlite::Connection::open(&path).unwrap();
        let adds = |step: &&str| step.contains("create table queue_rule_next");
        let before = migrate::STEPS.iter().position(adds).unwrap();
        migrate::climb_to(&mut connection, &place, &migrate::STEPS[..before]).unwrap();
        connection
            .execute_batch(
                "update queue_rule
                 set ordering = 'lifo', backfill = 'timed', half_life_hours = 24, generation = 7;",
            )
            .unwrap();
    }
    let mut connection = rusqlite::Connection::open(&path).unwrap();
    migrate::climb(&mut connection, &place).unwrap();
    let heard = super::node_cache::NodeCache::default();
    let seal = sealing::for_a_look(&connection, directory.path()).unwrap();
    let view = ReadTransaction::new(&connection, &heard, &seal);
    let rule = view.queue_rule().unwrap();
    assert_eq!(
        (rule.order.word(), rule.backfill),
        ("lifo", BackfillMode::Timed)
    );
    assert_eq!((rule.half_life_hours, rule.generation), (24, 7));
}

#[test]
fn a_new_site_has_timed_backfill_and_one_that_ran_before_keeps_the_strict_one() {
    let mode = |catalog: &Catalog| {
        let rule = catalog.read_now("look", |view| view.queue_rule());
        rule.unwrap().backfill
    };
    assert_eq!(mode(&memory()), BackfillMode::Timed);
    let directory = tempfile::tempdir().unwrap();
    let place = CatalogPlace::Directory(directory.path().to_path_buf());
    {
        let file = directory.path().join("catalog.sqlite");
        let mut connection = rusqlite::Connection::open(file).unwrap();
        let adds = |step: &&str| step.contains("add column backfill");
        let before = migrate::STEPS.iter().position(adds).unwrap();
        migrate::climb_to(&mut connection, &place, &migrate::STEPS[..before]).unwrap();
        connection
            .execute_batch(
                "insert into installation (id, installation_id, node_id, cursor_key, created_at, revision)
                 values (1, randomblob(16), randomblob(16), randomblob(32), 0, 0);",
            )
            .unwrap();
    }
    for _ in 0..2 {
        assert_eq!(mode(&on_disk(&directory)), BackfillMode::Strict);
    }
}

/// A site that ran before it had groups has all nodes and sessions in the founding one, and its decisions stay.
#[test]
fn nodes_and_sessions_of_before_are_in_the_founding_group() {
    let directory = tempfile::tempdir().unwrap();
    let place = CatalogPlace::Directory(directory.path().to_path_buf());
    let path = directory.path().join("catalog.sqlite");
    let step = "create table resource_group (";
    let before = migrate::STEPS.iter().position(|sql| sql.contains(step));
    let before = before.expect("the step that brings groups");
    {
        let mut connection = rusqlite::Connection::open(&path).unwrap();
        migrate::climb_to(&mut connection, &place, &migrate::STEPS[..before]).unwrap();
        connection
            .execute(
                "insert into node (id, name, boot, capacity, host_environment, seen_at, generation,
                                   schedulable, problems)
                 values (x'00000000000070008000000000000099', 'old', x'00', '{}', 0, 0, 0, 1, '[]')",
                [],
            )
            .unwrap();
    }
    let mut connection = rusqlite::Connection::open(&path).unwrap();
    migrate::climb(&mut connection, &place).unwrap();
    let heard = super::node_cache::NodeCache::default();
    let seal = sealing::for_a_look(&connection, directory.path()).unwrap();
    let view = ReadTransaction::new(&connection, &heard, &seal);
    let groups = view.resource_groups().unwrap();
    assert_eq!(groups.len(), 1);
    assert!(groups[0].is_plain());
    assert!(view.group_plan().unwrap().is_empty());
    assert!(view.nodes_by_group().unwrap().nodes.is_empty());
}

/// Sessions that ended cost no pass anything, however many a group had.
#[test]
fn the_groups_of_live_sessions_are_read_from_an_index_alone() {
    let catalog = memory();
    for query in [resource_groups::LIVE, resource_groups::LIVE_IN_GROUP] {
        let plan = catalog.read_now("plan", |view| {
            let sql = format!("explain query plan {query}");
            let mut plan = view.connection.prepare(&sql)?;
            let mut rows = plan.raw_query();
            let mut said: Vec<String> = Vec::new();
            while let Some(row) = rows.next()? {
                said.push(row.get("detail")?);
            }
            Ok(said.join("; "))
        });
        let plan = plan.unwrap();
        let index = "COVERING INDEX session_live_by_group";
        assert!(plan.contains(index), "{plan}");
    }
}
