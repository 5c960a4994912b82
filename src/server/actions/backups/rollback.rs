//! The way back from an upgrade, with a schema of the future planted.

use std::path::Path;

use rules::units::Timestamp;

use crate::Failure;
use crate::Server;
use crate::catalog::copy::{pretend_upgrade, pretend_version};
use crate::upgrade::{rollback, standing};
use base::observe::Clock;

fn serve(data: &Path) -> Result<Server, Failure> {
    let layer = base::settings::SettingsLayer {
        data: Some(data.to_owned()),
        ..Default::default()
    };
    let settings = base::settings::Settings::read(layer, |_| None).unwrap();
    Server::start(settings, Clock::system())
}

fn code<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Err(Failure::Refusal(refusal)) => {
            assert!(!refusal.hint.is_empty());
            refusal.code
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn now() -> Timestamp {
    Timestamp::parse("2026-11-21T16:00:00Z").unwrap()
}

async fn add(server: &Server, name: &str) {
    let root = crate::access::local_root(server);
    let role = rules::users::Role::User;
    let good = "correct horse battery";
    crate::actions::users::create(server, &root, name, role, good)
        .await
        .unwrap();
}

fn names(server: &Server) -> Vec<String> {
    let reach = rules::permissions::reach(
        &crate::access::local_root(server).subject,
        rules::permissions::Permission::UsersRead,
    );
    let users = server
        .catalog()
        .read_now("users", |view| view.users(&reach))
        .unwrap();
    users
        .into_iter()
        .map(|user| user.name.to_string())
        .collect()
}

/// Proves too: `a_step_that_fails_leaves_everything_as_it_was`
#[tokio::test]
async fn an_older_program_goes_back_to_the_catalog_from_before_and_says_what_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let server = serve(data).unwrap();
    add(&server, "before").await;
    drop(server);
    // A newer program raised the schema, keeping a copy first, and then users worked on.
    pretend_upgrade(data);
    let known = crate::catalog::copy::newest_version();
    pretend_version(data, known);
    let server = serve(data).unwrap();
    add(&server, "after").await;
    drop(server);
    pretend_version(data, known + 1);

    assert_eq!(code(serve(data)), "state.newer");
    let done = rollback(data, now()).unwrap();
    assert_eq!(
        (done.from, done.to, done.would_rise_again),
        (known + 1, known, false)
    );
    assert_eq!(done.lost, Some(vec![("user.added".to_owned(), 1)]));
    assert!(done.lost_since.is_some());
    let server = serve(data).unwrap();
    assert!(names(&server).contains(&"before".to_owned()));
    assert!(!names(&server).contains(&"after".to_owned()));
    assert_eq!(code(rollback(data, now())), "server.already-running");
    drop(server);
    assert_eq!(
        crate::catalog::copy::version_of(&done.aside).unwrap(),
        known + 1,
        "the newer one is kept"
    );
    assert_eq!(code(rollback(data, now())), "upgrade.nothing-kept");
    let left = std::fs::read_dir(data).unwrap().flatten();
    assert!(
        !left
            .into_iter()
            .any(|e| e.path().is_dir() && e.file_name().to_string_lossy().starts_with("rollback-"))
    );
}

#[test]
fn a_damaged_copy_is_refused_and_the_newer_catalog_stays() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    drop(serve(data).unwrap());
    pretend_upgrade(data);
    let known = crate::catalog::copy::newest_version();
    let kept = data.join(format!("catalog.sqlite.version-{known}"));
    let mut bytes = std::fs::read(&kept).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4096].fill(0x5a);
    std::fs::write(&kept, bytes).unwrap();
    assert_eq!(code(rollback(data, now())), "backup.unsound");
    assert_eq!(
        crate::catalog::copy::version_of(&crate::catalog::copy::file(data)).unwrap(),
        known + 1
    );
}

#[test]
fn nothing_to_go_back_to_is_said() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(code(rollback(folder.path(), now())), "upgrade.nothing-kept");
    drop(serve(folder.path()).unwrap());
    assert_eq!(code(rollback(folder.path(), now())), "upgrade.nothing-kept");
    let standing = standing(folder.path()).unwrap();
    assert_eq!(standing.version, Some(standing.known));
}
