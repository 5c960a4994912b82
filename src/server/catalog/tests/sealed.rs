//! What stands sealed in the files of the catalog, who can open it, and what a lost key does.

use std::path::{Path, PathBuf};

use rules::messages::{Assignment, ContainerOrder, RootFileSystem, Want};
use rules::start_up::{Dotfile, StartUp, StartUpChoice, StartUpScript};
use rusqlite::Connection;

use super::*;

/// Stands nowhere by chance.
const SECRET: &str = "hunter2-Vogelbeere-9f41";

fn with_secret(owner: UserId, name: &str) -> Session {
    let mut made = session(owner, name);
    made.spec.env = BTreeMap::from([("TOKEN".into(), SECRET.into())]);
    made
}

fn key_of(principal: UserId) -> request_key::RequestKey {
    request_key::RequestKey {
        principal,
        route: "POST /api/v1/sessions".into(),
        key: "k-of-a-launch".into(),
        digest: [7; 32],
    }
}

fn told(node: NodeId, of: &Session) -> Assignment {
    Assignment {
        node,
        generation: 1,
        containers: vec![ContainerOrder {
            name: of.container(),
            hostname: of.name.to_string(),
            kind: of.spec.kind,
            root: RootFileSystem::Host,
            command: of.spec.command.clone(),
            env: of.spec.env.clone(),
            demand: of.spec.demand,
            devices: vec![],
            mounts: Vec::new(),
            networks: Vec::new(),
            egress: None,
            sudo: false,
            ulimits: rules::process_limits::ProcessLimits::USUAL,
            want: Want::Run,
            stop_grace_seconds: None,
            start_up: rules::start_up::StartUp::default(),
        }],
        partitions: vec![],
        state: None,
        accepted: false,
    }
}

/// Writes a session, what its machine is told, and the answer to its launch.
fn launch(catalog: &Catalog) -> (Session, Assignment) {
    let made = with_secret(owner(catalog), "a");
    insert(catalog, &made).unwrap();
    let assignment = told(catalog.founding().node, &made);
    let (key, answer) = (key_of(made.owner), format!("{{\"env\":\"{SECRET}\"}}"));
    let writes = controller_pass::PassChanges {
        sessions: vec![],
        nodes: vec![rules::world::NodeRecord {
            id: assignment.node,
            name: "fardel-01".into(),
            boot: rules::names::BootId(uuid::Uuid::from_u128(1)),
            capacity: rules::resources::Capacity {
                cpu: rules::units::CpuShare(400),
                memory: rules::units::Bytes::gib(8),
                devices: vec![],
                others: vec![],
            },
            host_environment: true,
            seen_at: catalog.clock().now(),
            generation: 0,
            schedulable: true,
            note: String::new(),
            cordoned: Default::default(),
            problems: vec![],
        }],
        assignments: vec![assignment.clone()],
        happened: vec![],
        reservations: vec![],
    };
    assert!(catalog.record_turn_now(writes).unwrap());
    catalog
        .write_now(Lane::Requests, "remember", move |rows| {
            rows.remember_answer(&key, &answer)
        })
        .unwrap();
    (made, assignment)
}

/// Files below `directory` in which `text` can be read.
fn holding(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

fn refused(directory: &tempfile::TempDir) -> String {
    let place = CatalogPlace::Directory(directory.path().to_path_buf());
    code(Catalog::open(&place, clock()))
}

#[test]
fn no_value_of_a_variable_can_be_read_in_the_files_of_the_catalog() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let (made, assignment) = launch(&catalog);
    // A row that was written over, with its environment and without.
    let moved = made.id;
    for desired in [DesiredState::Stop, DesiredState::Kill] {
        catalog
            .write_now(Lane::Requests, "stop", move |rows| {
                rows.change_session(moved, None, "mina", None, |row| {
                    row.desired = desired;
                    row.spec.env.insert("DESIRED".into(), desired.word().into());
                    true
                })
            })
            .unwrap();
    }
    // A row's own words can be read, so that the search is one.
    assert!(!holding(directory.path(), "k-of-a-launch").is_empty());
    assert_eq!(holding(directory.path(), SECRET), [] as [PathBuf; 0]);
    let kept = directory.path().join("copy.sqlite");
    copy::copy(directory.path(), &kept).unwrap();
    drop(catalog);
    assert_eq!(holding(directory.path(), SECRET), [] as [PathBuf; 0]);
    // With the key all of it can be read.
    let catalog = on_disk(&directory);
    let (key, now) = (key_of(made.owner), clock().now());
    catalog
        .read_now("read", |view| {
            let read = view.session(made.id)?.unwrap();
            assert_eq!(read.spec.env["TOKEN"], SECRET);
            assert_eq!(read.spec.env["DESIRED"], "kill");
            let read = view.assignment(assignment.node)?.unwrap();
            assert_eq!(read.containers, assignment.containers);
            assert!(view.answered(&key, now)?.unwrap().contains(SECRET));
            let other = request_key::RequestKey {
                digest: [8; 32],
                ..key
            };
            assert_eq!(code(view.answered(&other, now)), "idempotency.key-reused");
            Ok(())
        })
        .unwrap();
}

/// The values are sealed, and bound to their user and name.
#[test]
fn nothing_that_sessions_start_with_can_be_read_in_the_files_of_the_catalog() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let user = owner(&catalog);
    let file = Dotfile {
        path: ".netrc-of-a-user".into(),
        mode: 0o600,
        content: SECRET.into(),
    };
    let script = StartUpScript {
        text: format!("echo {SECRET}"),
        ends_session: false,
    };
    let all = StartUp {
        files: vec![file.clone()],
        script: Some(script.clone()),
        variables: [("TOKEN".to_owned(), SECRET.to_owned())].into(),
    };
    catalog
        .write_now(Lane::Requests, "keep", move |rows| {
            rows.put_dotfile(user, &file)?;
            rows.put_startup_script(user, &script)?;
            rows.put_variable(user, "TOKEN", SECRET)?;
            rows.put_variable(user, "OTHER", "another")
        })
        .unwrap();
    drop(catalog);
    assert!(!holding(directory.path(), ".netrc-of-a-user").is_empty());
    assert_eq!(holding(directory.path(), SECRET), [] as [PathBuf; 0]);
    let catalog = on_disk(&directory);
    catalog
        .write_now(Lane::Requests, "remove", move |rows| {
            rows.forget_variable(user, "OTHER").map(drop)
        })
        .unwrap();
    let read = catalog.read_now("read", |view| view.start_up(user, StartUpChoice::Variables));
    assert_eq!(read.unwrap(), all);
    // A value in the row of another name is none.
    catalog
        .write_now(Lane::Requests, "swap", |rows| {
            rows.connection
                .execute("update variable set name = 'STOLEN'", [])?;
            Ok(())
        })
        .unwrap();
    let read = catalog.read_now("read", |view| view.start_up(user, StartUpChoice::Variables));
    assert!(code(read).starts_with("fault"));
}

#[test]
fn what_an_earlier_version_wrote_is_sealed_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let (made, assignment) = launch(&catalog);
    let many: Vec<Session> = (0..1_100)
        .map(|n| with_secret(made.owner, &format!("s{n}")))
        .collect();
    let inserted = many.clone();
    catalog
        .write_now(Lane::Requests, "insert", move |rows| {
            for session in &inserted {
                rows.insert_session(session, "mina")?;
            }
            Ok(())
        })
        .unwrap();
    drop(catalog);
    std::fs::remove_file(directory.path().join(sealing::KEY_FILE)).unwrap();
    let plain = serde_json::to_string(&assignment.containers).unwrap();
    let connection = Connection::open(directory.path().join("catalog.sqlite")).unwrap();
    connection
        .execute(
            "update session set env = ?1",
            [format!("{{\"TOKEN\":\"{SECRET}\"}}")],
        )
        .unwrap();
    connection
        .execute("update assignment set containers = ?1", [plain])
        .unwrap();
    connection
        .execute(
            "update idempotency set answer = ?1, digest = ?2",
            (format!("{{\"env\":\"{SECRET}\"}}"), [7u8; 32]),
        )
        .unwrap();
    // Pages that hold nothing any more hold what they held.
    connection
        .execute_batch(
            "delete from session where name like 's1_';
             update installation set seal_key = null, sealed_at = null;
             pragma wal_checkpoint(truncate);",
        )
        .unwrap();
    drop(connection);
    assert!(!holding(directory.path(), SECRET).is_empty());

    let catalog = on_disk(&directory);
    assert_eq!(holding(directory.path(), SECRET), [] as [PathBuf; 0]);
    let (key, now) = (key_of(made.owner), clock().now());
    catalog
        .read_now("read", |view| {
            for session in many.iter().chain([&made]) {
                let read = view.session(session.id)?;
                let gone =
                    session.name.as_str().len() == 3 && session.name.as_str().starts_with("s1");
                assert_eq!(read.as_ref(), (!gone).then_some(session));
            }
            let read = view.assignment(assignment.node)?.unwrap();
            assert_eq!(read.containers, assignment.containers);
            assert!(view.answered(&key, now)?.unwrap().contains(SECRET));
            Ok(())
        })
        .unwrap();
}

/// A catalog on disk whose rows are to be sealed again, and a connection that never waits.
fn to_be_sealed(directory: &tempfile::TempDir) -> (Connection, sealing::Seal) {
    drop(launch(&on_disk(directory)));
    let connection = Connection::open(directory.path().join("catalog.sqlite")).unwrap();
    connection
        .execute_batch(
            "pragma busy_timeout = 0;
             pragma journal_mode = wal;
             update installation set sealed_at = null;",
        )
        .unwrap();
    let seal = sealing::for_a_look(&connection, directory.path()).unwrap();
    (connection, seal)
}

#[test]
fn the_copy_that_rewriting_makes_is_no_burden_to_memory() {
    use std::sync::Mutex;

    use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
    let directory = tempfile::tempdir().unwrap();
    let (mut connection, seal) = to_be_sealed(&directory);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let told = steps.clone();
    let hook = move |context: AuthContext<'_>| {
        let step = match context.action {
            AuthAction::Pragma {
                pragma_name: "temp_store",
                pragma_value,
            } => pragma_value.unwrap_or_default().to_owned(),
            AuthAction::Attach { filename: "" } => "copy".to_owned(),
            _ => return Authorization::Allow,
        };
        told.lock().unwrap().push(step);
        Authorization::Allow
    };
    connection.authorizer(Some(hook)).unwrap();
    sealing::seal_old_rows(&mut connection, &seal, &clock()).unwrap();
    assert_eq!(*steps.lock().unwrap(), ["file", "copy", "memory"]);
}

#[test]
fn rewriting_that_a_reader_held_up_is_done_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let (mut connection, seal) = to_be_sealed(&directory);
    let reader = Connection::open(directory.path().join("catalog.sqlite")).unwrap();
    let one = |connection: &Connection, query: &str| -> Option<i64> {
        connection.query_row(query, [], |row| row.get(0)).unwrap()
    };
    const SEALED: &str = "select sealed_at from installation";
    reader.execute_batch("begin").unwrap();
    one(&reader, "select count(*) from session");
    sealing::seal_old_rows(&mut connection, &seal, &clock()).unwrap();
    assert_eq!(one(&connection, SEALED), None);
    reader.execute_batch("commit").unwrap();
    sealing::seal_old_rows(&mut connection, &seal, &clock()).unwrap();
    assert_eq!(one(&connection, SEALED), Some(clock().now().as_millis()));
}

#[test]
fn a_sealed_value_in_the_row_of_another_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let (made, _) = launch(&catalog);
    let other = with_secret(made.owner, "b");
    insert(&catalog, &other).unwrap();
    let (from, to) = (made.id, other.id);
    catalog
        .write_now(Lane::Requests, "swap", move |rows| {
            rows.connection.execute(
                "update session set env = (select env from session where id = ?1) where id = ?2",
                (from.0.as_bytes(), to.0.as_bytes()),
            )?;
            Ok(())
        })
        .unwrap();
    let read = |id| code(catalog.read_now("read", |view| view.session(id)));
    assert_eq!(
        (read(from), read(to)),
        ("done".into(), "state.damaged".into())
    );
}

#[test]
fn a_key_that_is_gone_or_another_boxs_is_refused_and_never_drawn_again() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let (made, _) = launch(&catalog);
    drop(catalog);
    let path = directory.path().join(sealing::KEY_FILE);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let own = std::fs::read_to_string(&path).unwrap();

    std::fs::remove_file(&path).unwrap();
    assert_eq!(refused(&directory), "state.key-missing");
    assert_eq!(code(copy::look(directory.path())), "state.key-missing");
    assert!(!path.exists(), "another was drawn");
    let foreign = format!("{}\n", "0f".repeat(32));
    std::fs::write(&path, &foreign).unwrap();
    assert_eq!(refused(&directory), "state.key-foreign");
    for broken in ["", "no key\n", &own[..40], &foreign.repeat(300)] {
        std::fs::write(&path, broken).unwrap();
        assert_eq!(refused(&directory), "state.key-unreadable");
    }
    // Beside others it is found.
    std::fs::write(&path, format!("{foreign}{own}")).unwrap();
    let catalog = on_disk(&directory);
    let read = catalog.read_now("read", |view| view.session(made.id));
    assert_eq!(read.unwrap(), Some(made));
}

#[test]
fn a_catalog_without_sealed_values_starts_with_a_key_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(sealing::KEY_FILE);
    let catalog = on_disk(&directory);
    let mut made = session(owner(&catalog), "a");
    made.spec.env.clear();
    insert(&catalog, &made).unwrap();
    drop(catalog);
    std::fs::remove_file(&path).unwrap();
    let catalog = on_disk(&directory);
    launch(&catalog);
    drop(catalog);
    assert!(path.exists());
    assert_eq!(refused(&directory), "done");
}

#[test]
fn a_key_that_goes_while_the_server_runs_is_named_until_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let path = directory.path().join(sealing::KEY_FILE);
    let own = std::fs::read(&path).unwrap();
    let named = || {
        catalog.look_for_key(directory.path());
        catalog
            .health()
            .standing_in_the_way()
            .map(|trouble| trouble.code)
    };
    assert_eq!(named(), None);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(named().as_deref(), Some("state.key-missing"));
    std::fs::write(&path, "nothing").unwrap();
    assert_eq!(named().as_deref(), Some("state.key-unreadable"));
    std::fs::write(&path, own).unwrap();
    assert_eq!(named(), None);
}

#[test]
fn a_copy_for_a_backup_holds_no_answers() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    launch(&catalog);
    let folder = tempfile::tempdir().unwrap();
    copy::copy(directory.path(), &folder.path().join("copy.sqlite")).unwrap();
    // Neither as rows nor in pages that hold none any more.
    assert_eq!(holding(folder.path(), "k-of-a-launch"), [] as [PathBuf; 0]);
    assert!(!holding(directory.path(), "k-of-a-launch").is_empty());
}

#[test]
fn a_copy_for_a_backup_holds_no_sign_in_links() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    catalog
        .write_now(Lane::Requests, "make a link", |rows| {
            let link = sign_in_links::SignInLinkRecord {
                user: users::ROOT,
                maker: users::ROOT,
                actor: "root".into(),
                created_at: rows.now,
                expires_at: rows.now.plus_seconds(600),
            };
            rows.put_sign_in_link(&link, &[7; 32])
        })
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("copy.sqlite");
    copy::copy(directory.path(), &kept).unwrap();
    let links = |file: &Path| -> u32 {
        let found = Connection::open(file).unwrap();
        found
            .query_row("select count(*) from sign_in_link", [], |row| row.get(0))
            .unwrap()
    };
    assert_eq!(links(&copy::file(directory.path())), 1);
    assert_eq!(links(&kept), 0);
}
