//! When backups are made, which are kept, and what a failure leaves behind.

use rules::units::Timestamp;

use super::make_if_due;
use crate::Server;
use crate::appliance::backups::standing;
use base::observe::Clock;
use std::os::unix::fs::PermissionsExt as _;

struct ScheduleFixture {
    folder: tempfile::TempDir,
    server: Server,
    clock: Clock,
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn house(with_passphrase: bool) -> ScheduleFixture {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("passphrase");
    if with_passphrase {
        std::fs::write(&secret, "four random words here\n").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let layer = base::settings::SettingsLayer {
        data: Some(folder.path().join("data")),
        backup_dir: Some(folder.path().join("backups")),
        backup_every_hours: Some(24),
        backup_keep: Some(2),
        backup_passphrase_file: Some(secret),
        ..Default::default()
    };
    let settings = base::settings::Settings::read(layer, |_| None).unwrap();
    let clock = Clock::set_by_hand(at("2026-11-21T02:00:00Z"));
    let server = Server::start(settings, clock.clone()).unwrap();
    ScheduleFixture {
        folder,
        server,
        clock,
    }
}

impl ScheduleFixture {
    async fn days(&self) -> Vec<String> {
        make_if_due(&self.server).await;
        standing(&self.server)
            .files
            .iter()
            .map(|f| f.made_at.to_string()[..10].to_owned())
            .collect()
    }
}

#[tokio::test]
async fn they_come_when_due_and_the_oldest_go() {
    let house = house(true);
    assert_eq!(house.days().await, ["2026-11-21"]);
    house.clock.set(at("2026-11-22T01:59:00Z"));
    assert_eq!(house.days().await, ["2026-11-21"], "too early");
    house.clock.set(at("2026-11-22T02:00:00Z"));
    assert_eq!(house.days().await, ["2026-11-22", "2026-11-21"]);
    house.clock.set(at("2026-11-24T02:00:00Z"));
    assert_eq!(house.days().await, ["2026-11-24", "2026-11-22"]);
    // Set back two years: what lies there is from the future, so a new one is made, and kept.
    house.clock.set(at("2024-11-24T02:00:00Z"));
    assert_eq!(house.days().await, ["2026-11-24", "2024-11-24"]);
    let standing = standing(&house.server);
    assert_eq!(standing.due_at, Some(at("2024-11-25T02:00:00Z")));
    assert_eq!(standing.failure, None);
}

#[tokio::test]
async fn two_backups_of_one_second_are_two_files_and_no_failure() {
    let house = house(true);
    let mut names = Vec::new();
    for _ in 0..2 {
        let made = super::make(&house.server, "boss").await.unwrap();
        names.push(made.name);
    }
    assert_ne!(names[0], names[1]);
    let standing = standing(&house.server);
    assert_eq!(standing.failure, None);
    let files = standing.files.into_iter().map(|file| file.name);
    names.reverse();
    assert_eq!(files.collect::<Vec<_>>(), names, "newest first");
}

#[tokio::test]
async fn a_failure_is_remembered_found_and_tried_again_later() {
    let house = house(false);
    make_if_due(&house.server).await;
    let failure = standing(&house.server).failure.unwrap();
    assert_eq!(failure.code, "backup.passphrase-unreadable");
    assert!(
        failure.text.ends_with("does not exist."),
        "{}",
        failure.text
    );
    let fault = standing(&house.server).passphrase_fault.unwrap();
    assert_eq!(fault.code, failure.code, "the form says it before a try");
    let root = crate::access::local_root(&house.server);
    let found = crate::actions::system::findings_of(&house.server, &root)
        .await
        .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, "backup.failed");
    assert!(!found[0].text.contains("2026"), "{}", found[0].text);
    let secret = house.folder.path().join("passphrase");
    std::fs::write(&secret, "four random words here\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    make_if_due(&house.server).await;
    assert!(
        standing(&house.server).files.is_empty(),
        "tried again at once"
    );
    house.clock.set(at("2026-11-21T02:30:00Z"));
    make_if_due(&house.server).await;
    assert_eq!(standing(&house.server).files.len(), 1);
    assert_eq!(standing(&house.server).failure, None);
    assert_eq!(standing(&house.server).passphrase_fault, None);
    let found = crate::actions::system::findings_of(&house.server, &root)
        .await
        .unwrap();
    assert!(found.is_empty());
}

#[tokio::test]
async fn a_clock_that_was_set_back_two_years_is_a_finding_and_stops_nothing() {
    let house = house(true);
    let root = crate::access::local_root(&house.server);
    let add = async |name: &str| {
        let role = rules::users::Role::User;
        crate::actions::users::create(&house.server, &root, name, role, "correct horse battery")
            .await
    };
    add("before").await.unwrap();
    house.clock.set(at("2024-11-21T02:00:00Z"));
    add("after").await.unwrap();
    let codes = async || {
        let found = crate::actions::system::findings_of(&house.server, &root)
            .await
            .unwrap();
        found
            .into_iter()
            .map(|finding| finding.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(codes().await, ["clock.set-back"]);
    house.clock.set(at("2026-11-21T01:57:00Z"));
    assert!(codes().await.is_empty(), "a few minutes are no fault");
}

#[tokio::test]
async fn a_good_backup_ends_what_an_older_look_found() {
    use crate::actions::attention::{AttentionItem, attention};
    let house = house(true);
    let looks = std::sync::atomic::AtomicU32::new(0);
    house.server.bring_diagnostics(std::sync::Arc::new(move |_| {
        let state = match looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => "fail",
            _ => "ok",
        };
        let found = format!(
            r#"{{"items":[{{"id":"backups","state":"{state}","found":"It is old.","fix":""}}]}}"#
        );
        Ok(found.into_bytes())
    }));
    let root = crate::access::local_root(&house.server);
    let is_told = async || {
        let all = attention(&house.server, &root).await.unwrap();
        let mut items = all.items.iter();
        items.any(|item| matches!(item, AttentionItem::Check(check) if check.id == "backups"))
    };
    assert!(is_told().await);
    house.clock.set(at("2026-11-21T02:00:10Z"));
    super::make(&house.server, "boss").await.unwrap();
    assert!(!is_told().await, "the hour of a look is not waited for");
}
