//! What a backup carries home, what is refused and by which code, and that nothing is ever half-applied.

use std::path::{Path, PathBuf};

use base::observe::Clock;

use std::os::unix::fs::PermissionsExt as _;

use rules::units::Timestamp;

use crate::access::{set_up, setup_link};
use crate::actions::folders;
use crate::backup::{BackupPaths, Passphrase, create, restore, verify};
use crate::{Failure, Server, catalog};

const GOOD: &str = "correct horse battery";
const HERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

struct BackupFixture {
    folder: tempfile::TempDir,
}

impl BackupFixture {
    fn places(&self) -> BackupPaths {
        self.places_of("one")
    }

    fn places_of(&self, name: &str) -> BackupPaths {
        let home = self.folder.path().join(name);
        std::fs::create_dir_all(home.join("etc")).unwrap();
        std::fs::create_dir_all(home.join("data")).unwrap();
        BackupPaths {
            data: home.join("data"),
            settings: home.join("etc/fardel.toml"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A box that was set up by mina, with settings and keys.
    async fn furnished() -> Self {
        let house = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let places = house.places();
        let server = serve(&places);
        let code = setup_link(&server).unwrap();
        set_up(&server, &code, "mina", GOOD, HERE).await.unwrap();
        drop(server);
        std::fs::write(&places.settings, "keep_days = 9\n").unwrap();
        std::fs::create_dir_all(places.data.join("tls")).unwrap();
        std::fs::write(
            places.data.join("tls/ca.key"),
            "-- the authority's own key --",
        )
        .unwrap();
        house
    }

    fn backup(&self) -> PathBuf {
        let to = self.path("one.backup");
        create(&self.places(), &passphrase(), &to, now()).unwrap();
        to
    }
}

fn now() -> Timestamp {
    Timestamp::parse("2026-11-21T16:00:00Z").unwrap()
}

fn passphrase() -> Passphrase {
    Passphrase::new("four random words here").unwrap()
}

fn serve(places: &BackupPaths) -> Server {
    let layer = base::settings::SettingsLayer {
        data: Some(places.data.clone()),
        ..Default::default()
    };
    let settings = base::settings::Settings::read(layer, |_| None).unwrap();
    Server::start(settings, Clock::system()).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Err(Failure::Refusal(refusal)) => {
            assert!(!refusal.hint.is_empty(), "{} says no way out", refusal.code);
            refusal.code
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// Every name below a directory.
fn listed(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Promise (Disk, backup and upgrade): A backup is one encrypted file. A truncated, modified, swapped, newer or
/// foreign file, or a wrong passphrase, is refused with its own code, and no part of the backup is applied.
#[tokio::test]
async fn a_restored_box_signs_in_and_has_its_keys_and_settings() {
    let house = BackupFixture::furnished().await;
    let places = house.places();
    let reached = r#"{"began_at":null,"done":{"time":"2026-11-20T09:00:00Z"},"test":null,"finished_at":null}"#;
    std::fs::write(places.data.join("installation.json"), reached).unwrap();
    // While a server runs, as every night.
    let server = serve(&places);
    let backup = house.backup();
    drop(server);
    let bytes = std::fs::read(&backup).unwrap();
    for secret in ["authority's own key", "keep_days", "mina", "SQLite format"] {
        let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
        assert!(!found, "{secret} can be read");
    }
    assert_eq!(
        std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let verified = verify(&backup, &passphrase(), house.folder.path()).unwrap();
    assert!(verified.catalog.is_sound(), "{verified:?}");
    assert_eq!(verified.catalog.users, 1);
    assert_eq!(
        verified.files,
        [
            "catalog.sqlite",
            "settings/fardel.toml",
            "tls/ca.key",
            "installation.json",
            "seal.key"
        ]
    );

    let fresh = house.places_of("two");
    let done = restore(&backup, &passphrase(), &fresh, false, now()).unwrap();
    assert_eq!((done.aside, done.settings_beside.len()), (None, 0));
    let keys = std::fs::read_to_string(fresh.data.join("tls/ca.key")).unwrap();
    assert_eq!(keys, "-- the authority's own key --");
    let installation = crate::appliance::installation::read(&fresh.data);
    assert_eq!(installation.done.len(), 1, "the wizard begins again");
    assert_eq!(
        std::fs::read_to_string(&fresh.settings).unwrap(),
        "keep_days = 9\n"
    );
    let server = serve(&fresh);
    assert!(!crate::access::setup_open(&server), "set-up is asked again");
    crate::access::sign_in(&server, "mina", GOOD, HERE)
        .await
        .unwrap();
    drop(server);
    assert!(
        listed(&fresh.data)
            .iter()
            .all(|name| !name.starts_with(".backup-work-"))
    );
    assert!(
        listed(&places.data)
            .iter()
            .all(|name| !name.starts_with(".backup-work-"))
    );
}

/// It may have been in use since the backup was made, and its files are in no backup.
#[tokio::test]
async fn a_folder_in_the_trash_of_a_backup_stays_there_for_its_whole_time() {
    let house = BackupFixture::furnished().await;
    let server = serve(&house.places());
    let mina = crate::access::sign_in(&server, "mina", GOOD, HERE).await;
    let mina = mina.unwrap().caller;
    let asked = api::folders::NewFolderBody {
        name: "data".to_owned(),
        ..Default::default()
    };
    folders::create(&server, &mina, asked, None).await.unwrap();
    let trashed = folders::trash(&server, &mina, "data").await.unwrap();
    let backup = house.backup();
    drop(server);
    let fresh = house.places_of("two");
    restore(&backup, &passphrase(), &fresh, false, now()).unwrap();
    let server = serve(&fresh);
    let found = folders::get(&server, &mina, &trashed.id.to_string()).await;
    let found = found.unwrap();
    assert!(found.trashed_at > trashed.trashed_at, "{found:?}");
    assert_eq!(found.state, trashed.state);
}

/// Proves too: `a_restored_box_signs_in_and_has_its_keys_and_settings`
#[tokio::test]
async fn every_way_a_backup_can_be_wrong_has_its_code_and_changes_nothing() {
    let house = BackupFixture::furnished().await;
    let backup = house.backup();
    let whole = std::fs::read(&backup).unwrap();
    let fresh = house.places_of("two");
    let refused = |bytes: &[u8], with: &Passphrase| {
        let file = house.path("other.backup");
        std::fs::write(&file, bytes).unwrap();
        let verified = code(verify(&file, with, house.folder.path()));
        assert_eq!(code(restore(&file, with, &fresh, false, now())), verified);
        assert_eq!(
            listed(&fresh.data),
            ["catalog.lock"],
            "{verified} left something"
        );
        assert!(!fresh.settings.exists(), "{verified} left settings");
        verified
    };
    let other = Passphrase::new("four other words there").unwrap();
    assert_eq!(refused(&whole, &other), "backup.wrong-passphrase");
    let header = whole
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'\n')
        .nth(1)
        .unwrap()
        .0
        + 1;
    for cut in [0, 5, 14, header - 3] {
        let code = refused(&whole[..cut], &passphrase());
        assert!(
            code == "backup.foreign" || code == "backup.cut",
            "cut at {cut}: {code}"
        );
    }
    for cut in [header, header + 1, header + 70_000, whole.len() - 1] {
        assert_eq!(
            refused(&whole[..cut], &passphrase()),
            "backup.cut",
            "cut at {cut}"
        );
    }
    for at in [header, header + 70_000, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert_eq!(
            refused(&bytes, &passphrase()),
            "backup.damaged",
            "changed at {at}"
        );
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert_eq!(refused(&longer, &passphrase()), "backup.damaged");
    // Two chunks in each other's place: every byte is genuine.
    let chunk = 64 * 1024 + 16;
    let mut swapped = whole.clone();
    let (first, second) = swapped[header..].split_at_mut(chunk);
    first.swap_with_slice(&mut second[..chunk]);
    assert_eq!(refused(&swapped, &passphrase()), "backup.damaged");
    // A header that was changed where no key depends on it.
    let text = String::from_utf8_lossy(&whole[..header]).replace("\"2026-", "\"2025-");
    let changed: Vec<u8> = text
        .bytes()
        .chain(whole[header..].iter().copied())
        .collect();
    assert_eq!(refused(&changed, &passphrase()), "backup.damaged");
    let mut newer = whole.clone();
    newer[14] = b'9';
    assert_eq!(refused(&newer, &passphrase()), "backup.newer");
    assert_eq!(
        refused(b"PK\x03\x04 not ours at all\n", &passphrase()),
        "backup.foreign"
    );
}

#[tokio::test]
async fn a_backup_with_a_newer_catalog_is_refused_by_name() {
    let house = BackupFixture::furnished().await;
    let places = house.places();
    catalog::copy::pretend_version(&places.data, 99);
    let backup = house.backup();
    let file = backup.clone();
    assert_eq!(
        code(verify(&file, &passphrase(), house.folder.path())),
        "backup.newer"
    );
}

#[tokio::test]
async fn a_restore_refuses_a_running_server_and_keeps_the_old_state_aside() {
    let house = BackupFixture::furnished().await;
    let places = house.places();
    let backup = house.backup();
    let server = serve(&places);
    let refused = restore(&backup, &passphrase(), &places, true, now());
    assert_eq!(code(refused), "server.already-running");
    drop(server);
    assert_eq!(
        code(restore(&backup, &passphrase(), &places, false, now())),
        "restore.state-exists"
    );
    // Later changes, which the restore takes back and keeps aside.
    let server = serve(&places);
    let root = crate::access::local_root(&server);
    crate::actions::users::create(&server, &root, "later", rules::users::Role::User, GOOD)
        .await
        .unwrap();
    drop(server);
    std::fs::write(&places.settings, "keep_days = 5\n").unwrap();
    let done = restore(&backup, &passphrase(), &places, true, now()).unwrap();
    let aside = done.aside.unwrap();
    assert_eq!(listed(&aside)[..1], ["catalog.sqlite"]);
    assert_eq!(
        std::fs::read_to_string(&places.settings).unwrap(),
        "keep_days = 9\n"
    );
    let names = |data: &Path| {
        let server = serve(&BackupPaths {
            data: data.to_owned(),
            settings: places.settings.clone(),
        });
        let reach = rules::permissions::reach(
            &crate::access::local_root(&server).subject,
            rules::permissions::Permission::UsersRead,
        );
        let users = server
            .catalog()
            .read_now("users", |view| view.users(&reach))
            .unwrap();
        users
            .into_iter()
            .map(|p| p.name.to_string())
            .collect::<Vec<_>>()
    };
    assert!(!names(&places.data).contains(&"later".to_owned()));
    assert!(
        names(&aside).contains(&"later".to_owned()),
        "the old state is lost"
    );
}

/// Launches a session with a secret in its environment; gives its id.
async fn secretive(places: &BackupPaths) -> rules::names::SessionId {
    let server = serve(places);
    let root = crate::access::local_root(&server);
    let node = machine(&server);
    let written = server
        .catalog()
        .write(catalog::Lane::Loops, "a machine", move |rows| {
            rows.put_node(&node)
        });
    written.await.unwrap();
    let request = api::sessions::LaunchRequest {
        kind: rules::session::SessionKind::Batch,
        command: vec!["true".into()],
        env: [("TOKEN".to_owned(), "secret".to_owned())].into(),
        ..Default::default()
    };
    let launched = crate::actions::sessions::launch(&server, &root, request, None);
    launched.await.unwrap().sessions[0].id
}

fn token_of(places: &BackupPaths, id: rules::names::SessionId) -> String {
    let server = serve(places);
    let read = server.catalog().read_now("read", |view| view.session(id));
    read.unwrap().expect("the session").spec.env["TOKEN"].clone()
}

#[tokio::test]
async fn a_backup_brings_the_key_of_what_is_sealed_in_it() {
    let house = BackupFixture::furnished().await;
    let places = house.places();
    let id = secretive(&places).await;
    let backup = house.backup();
    let fresh = house.places_of("two");
    restore(&backup, &passphrase(), &fresh, false, now()).unwrap();
    assert_eq!(token_of(&fresh, id), "secret");
    // Over a box with a key of its own: what is kept aside can be opened where it lies.
    let third = house.places_of("three");
    let own = secretive(&third).await;
    let done = restore(&backup, &passphrase(), &third, true, now()).unwrap();
    assert_eq!(token_of(&third, id), "secret");
    let aside = BackupPaths {
        data: done.aside.expect("the old state"),
        settings: third.settings.clone(),
    };
    assert_eq!(token_of(&aside, own), "secret");
    let keys = std::fs::read_to_string(third.data.join("seal.key")).unwrap();
    assert_eq!(keys.lines().count(), 2);
}

#[tokio::test]
async fn a_restore_replaces_a_key_file_that_cannot_be_read() {
    let house = BackupFixture::furnished().await;
    let places = house.places();
    let id = secretive(&places).await;
    let backup = house.backup();
    let key = places.data.join("seal.key");
    let own = std::fs::read_to_string(&key).unwrap();
    for (second, broken) in ["", &own[..40]].into_iter().enumerate() {
        std::fs::write(&key, broken).unwrap();
        let at = now().plus_seconds(second as u64);
        let done = restore(&backup, &passphrase(), &places, true, at).unwrap();
        assert_eq!(token_of(&places, id), "secret");
        let kept = done.aside.expect("the old state").join("seal.key");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), broken);
    }
    // Also where no catalog lies beside it.
    let fresh = house.places_of("two");
    std::fs::write(fresh.data.join("seal.key"), "").unwrap();
    restore(&backup, &passphrase(), &fresh, false, now()).unwrap();
    assert_eq!(token_of(&fresh, id), "secret");
}

#[tokio::test]
async fn a_restore_that_would_bring_too_many_keys_changes_nothing() {
    let house = BackupFixture::furnished().await;
    secretive(&house.places()).await;
    let backup = house.backup();
    let full = house.places_of("two");
    let id = secretive(&full).await;
    let key = full.data.join("seal.key");
    let own = std::fs::read_to_string(&key).unwrap();
    let others: String = (1..256).map(|n| format!("{n:064x}\n")).collect();
    std::fs::write(&key, others + &own).unwrap();
    std::fs::create_dir_all(full.data.join("tls")).unwrap();
    std::fs::write(full.data.join("tls/ca.key"), "its own").unwrap();
    std::fs::write(&full.settings, "keep_days = 4\n").unwrap();
    let before = listed(&full.data);
    let refused = restore(&backup, &passphrase(), &full, true, now());
    assert_eq!(code(refused), "restore.too-many-keys");
    assert_eq!(listed(&full.data), before);
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&full.data.join("tls/ca.key")), "its own");
    assert_eq!(read(&full.settings), "keep_days = 4\n");
    assert_eq!(token_of(&full, id), "secret");
}

#[tokio::test]
async fn no_backup_is_made_that_cannot_be_restored() {
    let house = BackupFixture::furnished().await;
    let places = house.places();
    secretive(&places).await;
    let key = places.data.join("seal.key");
    let own = std::fs::read(&key).unwrap();
    let to = house.path("two.backup");
    let make = || create(&places, &passphrase(), &to, now());
    std::fs::remove_file(&key).unwrap();
    assert_eq!(code(make()), "state.key-missing");
    std::fs::write(&key, "0f".repeat(32)).unwrap();
    assert_eq!(code(make()), "state.key-foreign");
    std::fs::write(&key, "").unwrap();
    assert_eq!(code(make()), "state.key-unreadable");
    assert!(!to.exists());
    std::fs::write(&key, own).unwrap();
    make().unwrap();
}

/// The machine that a server stands on.
fn machine(server: &Server) -> rules::world::NodeRecord {
    rules::world::NodeRecord {
        id: server.node(),
        name: "fardel-01".into(),
        boot: rules::names::BootId(uuid::Uuid::from_u128(1)),
        capacity: rules::resources::Capacity {
            cpu: rules::units::CpuShare(400),
            memory: rules::units::Bytes::gib(8),
            devices: vec![],
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: server.clock().now(),
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: std::collections::BTreeSet::new(),
        problems: vec![],
    }
}

/// One machine, and a session that runs on it; gives the session.
async fn running(server: &Server) -> rules::session::Session {
    use rules::reason::Reason;
    let node = machine(server);
    let here = node.id;
    let lane = catalog::Lane::Loops;
    server
        .catalog()
        .write_now(lane, "a machine", move |rows| rows.put_node(&node))
        .unwrap();
    let root = crate::access::local_root(server);
    let wanted = api::sessions::LaunchRequest {
        name: Some("keep".into()),
        ..Default::default()
    };
    let launched = crate::actions::sessions::launch(server, &root, wanted, None);
    let id = launched.await.unwrap().sessions.remove(0).id;
    server
        .catalog()
        .write_now(lane, "run", move |rows| {
            let now = rows.now;
            rows.change_session(id, None, "test", None, |session| {
                session.place(
                    here,
                    vec![],
                    Reason::from_parts("placement.room".into(), "Room.".into()),
                    now,
                );
                session.run_since(now);
                true
            })
        })
        .unwrap();
    session_of(server, id)
}

fn session_of(server: &Server, id: rules::names::SessionId) -> rules::session::Session {
    let found = server
        .catalog()
        .read_now("look", move |view| view.session(id));
    found.unwrap().expect("it is there")
}

#[tokio::test]
async fn what_ran_on_a_lost_machine_is_lost_and_what_still_runs_here_is_left_alone() {
    use rules::session::{Outcome, SessionState};
    let house = BackupFixture::furnished().await;
    let places = house.places();
    let server = serve(&places);
    let session = running(&server).await;
    let node = server.node();
    let backup = house.backup();
    drop(server);

    // The same machine, whose list has the container: it may live, and nobody ends it.
    let duty = format!(
        r#"{{"node":"{node}","assignment":null,"places":{{"{}":{{"slot":0,"boot":"{node}"}}}}}}"#,
        session.container()
    );
    std::fs::write(places.data.join("node.json"), duty).unwrap();
    let done = restore(&backup, &passphrase(), &places, true, now()).unwrap();
    assert_eq!(done.lost, 0);
    let server = serve(&places);
    assert_eq!(
        session_of(&server, session.id).state(),
        SessionState::Running
    );
    drop(server);

    // Another machine would start it a second time.
    let fresh = house.places_of("two");
    let done = restore(&backup, &passphrase(), &fresh, false, now()).unwrap();
    assert_eq!(done.lost, 1);
    let server = serve(&fresh);
    let lost = session_of(&server, session.id);
    assert_eq!(lost.state(), SessionState::Ended);
    assert_eq!(lost.outcome(), Some(Outcome::Lost));
    let world = server.catalog().read_now("look", |view| view.world());
    assert_eq!(rules::findings::findings(&world.unwrap()), []);
}

#[tokio::test]
async fn settings_that_say_something_else_stay_and_the_backups_lie_beside() {
    let house = BackupFixture::furnished().await;
    let backup = house.backup();
    let fresh = house.places_of("two");
    std::fs::write(&fresh.settings, "keep_days = 2\n").unwrap();
    let done = restore(&backup, &passphrase(), &fresh, false, now()).unwrap();
    assert_eq!(
        std::fs::read_to_string(&fresh.settings).unwrap(),
        "keep_days = 2\n"
    );
    assert_eq!(done.settings_beside.len(), 1);
    assert_eq!(
        std::fs::read_to_string(&done.settings_beside[0]).unwrap(),
        "keep_days = 9\n"
    );
}

#[tokio::test]
async fn a_backup_is_never_overwritten_and_needs_a_state_and_a_place() {
    let house = BackupFixture::furnished().await;
    let backup = house.backup();
    let places = house.places();
    let again = create(&places, &passphrase(), &backup, now());
    assert_eq!(code(again), "backup.exists");
    let nowhere = house.path("no/such/folder/x.backup");
    assert_eq!(
        code(create(&places, &passphrase(), &nowhere, now())),
        "backup.unwritable"
    );
    let empty = house.places_of("empty");
    let to = house.path("empty.backup");
    assert_eq!(
        code(create(&empty, &passphrase(), &to, now())),
        "state.missing"
    );
    assert!(!to.exists());
}

#[test]
fn a_passphrase_that_others_may_read_or_that_is_short_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passphrase");
    std::fs::write(&file, "four random words here\n").unwrap();
    let mode =
        |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    assert_eq!(
        Passphrase::read(&file).unwrap_err().code,
        "backup.passphrase-open"
    );
    mode(0o600);
    assert!(Passphrase::read(&file).is_ok());
    std::fs::write(&file, "short\n").unwrap();
    assert_eq!(
        Passphrase::read(&file).unwrap_err().code,
        "backup.passphrase-short"
    );
    let none = folder.path().join("none");
    assert_eq!(
        Passphrase::read(&none).unwrap_err().code,
        "backup.passphrase-unreadable"
    );
}

/// The size that the product promises two minutes for. Prints what each part took.
#[tokio::test]
#[ignore = "writes half a gigabyte; run by itself: cargo test -p server -- --ignored two_minutes"]
async fn ten_thousand_users_and_a_million_events_take_less_than_two_minutes() {
    let house = BackupFixture::furnished().await;
    let places = house.places();
    catalog::copy::pretend_history(&places.data, 10_000, 1_000_000);
    let took = |what: &str, began: std::time::Instant| {
        let seconds = began.elapsed().as_secs_f64();
        println!("{what}: {seconds:.1} s");
        assert!(seconds < 120.0);
    };
    let server = serve(&places);
    let began = std::time::Instant::now();
    let backup = house.backup();
    took("create beside a running server", began);
    drop(server);
    println!("{} bytes", std::fs::metadata(&backup).unwrap().len());
    let began = std::time::Instant::now();
    let verified = verify(&backup, &passphrase(), house.folder.path()).unwrap();
    took("verify", began);
    assert!(verified.catalog.is_sound());
    assert_eq!(verified.catalog.users, 10_001);
    assert!(verified.catalog.events >= 1_000_000);
    let fresh = house.places_of("two");
    let began = std::time::Instant::now();
    restore(&backup, &passphrase(), &fresh, false, now()).unwrap();
    took("restore", began);
    let server = serve(&fresh);
    crate::access::sign_in(&server, "mina", GOOD, HERE)
        .await
        .unwrap();
}

/// A file system of its own with few bytes; None (and said so) where this user may not mount.
struct BackupDisk(PathBuf);

impl BackupDisk {
    fn mount(test: &str, at: PathBuf, size: &str) -> Option<Self> {
        use rustix::mount::{MountFlags, mount};
        std::fs::create_dir_all(&at).unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        match mount(
            "tmpfs",
            &at,
            "tmpfs",
            MountFlags::empty(),
            Some(options.as_c_str()),
        ) {
            Ok(()) => Some(Self(at)),
            Err(error) => {
                skips::skip(test, &format!("no file system can be mounted: {error}"));
                None
            }
        }
    }
}

impl Drop for BackupDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Proves too: `a_restored_box_signs_in_and_has_its_keys_and_settings`
#[tokio::test]
async fn a_full_disk_refuses_the_backup_and_the_restore_and_leaves_nothing() {
    let test = "a_full_disk_refuses_the_backup_and_the_restore_and_leaves_nothing";
    let house = BackupFixture::furnished().await;
    let Some(small) = BackupDisk::mount(test, house.path("small"), "100k") else {
        return;
    };
    let places = house.places();
    let to = small.0.join("one.backup");
    assert_eq!(
        code(create(&places, &passphrase(), &to, now())),
        "disk.full"
    );
    assert!(listed(&small.0).is_empty(), "{:?}", listed(&small.0));
    let server = serve(&places);
    crate::access::sign_in(&server, "mina", GOOD, HERE)
        .await
        .unwrap();
    drop(server);

    let backup = house.backup();
    let fresh = BackupPaths {
        data: small.0.join("data"),
        settings: small.0.join("fardel.toml"),
    };
    assert_eq!(
        code(restore(&backup, &passphrase(), &fresh, false, now())),
        "disk.full"
    );
    assert_eq!(listed(&fresh.data), ["catalog.lock"]);
    assert!(!fresh.settings.exists());
}

#[tokio::test]
async fn backups_are_scheduled_without_an_editor_and_wrong_values_change_nothing() {
    use base::settings::{SettingsLayer, SettingsSources};
    use rules::users::Role;

    use crate::actions::backups::{BackupSchedule, make, schedule, standing, unschedule};
    use crate::actions::tests::caller_of;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fardel.toml");
    let layer = SettingsLayer {
        data: Some(folder.path().join("data")),
        run: Some(folder.path().join("run")),
        ..SettingsLayer::default()
    };
    let config = file.display().to_string();
    let sources = SettingsSources::new(layer, move |name| {
        (name == "FARDEL_CONFIG").then(|| config.clone())
    });
    let server = Server::start(sources.read().unwrap(), Clock::system()).unwrap();
    let (boss, user) = (
        caller_of(&server, "boss", Role::Administrator),
        caller_of(&server, "mina", Role::User),
    );
    let good = BackupSchedule {
        directory: folder.path().join("disk/backups").display().to_string(),
        every_hours: Some("12".into()),
        keep: "3".into(),
        passphrase: GOOD.into(),
    };
    let refused =
        async |caller, wanted: BackupSchedule| match schedule(&server, caller, wanted).await {
            Err(Failure::Refusal(refusal)) => refusal.pointer.unwrap_or_default(),
            other => panic!("{other:?}"),
        };
    assert_eq!(refused(&user, good.clone()).await, "", "not for users");
    let own = |directory: &str| BackupSchedule {
        directory: directory.into(),
        ..good.clone()
    };
    for wrong in [
        "",
        "backups",
        "/",
        "/etc/cron.d",
        "/usr/../etc",
        "/mnt/../etc",
    ] {
        assert_eq!(refused(&boss, own(wrong)).await, "/directory", "{wrong}");
    }
    std::os::unix::fs::symlink("/etc", folder.path().join("link")).unwrap();
    let link = folder.path().join("link").display().to_string();
    assert_eq!(
        refused(&boss, own(&link)).await,
        "/directory",
        "a link to it"
    );
    let with = |every: &str, keep: &str, passphrase: &str| BackupSchedule {
        every_hours: Some(every.into()),
        keep: keep.into(),
        passphrase: passphrase.into(),
        ..good.clone()
    };
    assert_eq!(
        refused(&boss, with("often", "3", GOOD)).await,
        "/every_hours"
    );
    assert_eq!(refused(&boss, with("12", "0", GOOD)).await, "/keep");
    assert_eq!(
        refused(&boss, with("12", "3", "short")).await,
        "/passphrase"
    );
    assert_eq!(refused(&boss, with("12", "3", "")).await, "/passphrase");
    assert!(!file.exists(), "nothing was written");

    schedule(&server, &boss, good.clone()).await.unwrap();
    let secret = folder.path().join("data/backup.passphrase");
    let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let made = make(&server, &boss).await.unwrap();
    let now = standing(&server, &boss).await.unwrap();
    assert_eq!(
        (now.every_hours, now.keep, now.has_passphrase),
        (12, 3, true)
    );
    assert_eq!(now.files, [made]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(GOOD), "no secret in the settings: {text}");
    // A passphrase that is set stays where none is typed.
    schedule(&server, &boss, with("6", "3", "")).await.unwrap();
    assert_eq!(standing(&server, &boss).await.unwrap().every_hours, 6);
    assert!(secret.exists());

    unschedule(&server, &boss).await.unwrap();
    let off = standing(&server, &boss).await.unwrap();
    assert_eq!((off.every_hours, off.due_at), (0, None));
    assert_eq!(off.files.len(), 1, "the backups stay");
    assert!(off.directory.is_some() && off.has_passphrase);
    let asked_for = BackupSchedule {
        every_hours: None,
        ..good
    };
    schedule(&server, &boss, asked_for).await.unwrap();
    assert_eq!(standing(&server, &boss).await.unwrap().due_at, None);
}
