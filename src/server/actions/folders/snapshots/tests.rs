//! Snapshots through the actions that doors call: who may, what a schedule begins, and what is not there is not found. No disk
//! has to share blocks for that; what one does then, the tests of the store and of the routes show.

use rules::folder_snapshot::SnapshotOrigin;

use super::super::tests::TwoDomains;
use super::*;
use crate::actions::operations;
use crate::code;

async fn snapshots_begun(two: &TwoDomains) -> usize {
    let all = operations::list(&two.server, &two.abe).await.unwrap();
    let begun = all.iter().filter(|one| one.kind == FOLDER_SNAPSHOT);
    begun.count()
}

async fn schedule(two: &TwoDomains, folder: FolderId, user: UserId) {
    let daily = SnapshotSchedule {
        daily: 2,
        ..SnapshotSchedule::default()
    };
    two.server
        .catalog()
        .write(Lane::Requests, "set a schedule", move |rows| {
            rows.put_snapshot_schedule(folder, user, daily)
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_schedule_that_is_due_begins_one_snapshot_and_rests_for_its_hour() {
    let two = TwoDomains::open().await;
    let id = two.made(&two.abe, "data").await.id;
    begin_due(&two.server).await.unwrap();
    assert_eq!(snapshots_begun(&two).await, 0, "none is set");
    schedule(&two, id, two.abe.subject.user).await;
    for _ in 0..2 {
        begin_due(&two.server).await.unwrap();
        assert_eq!(snapshots_begun(&two).await, 1);
    }
    let set = two
        .server
        .catalog()
        .read_now("look at a schedule", |view| view.snapshot_schedule(id))
        .unwrap();
    assert!(set.is_some_and(|set| set.tried_at.is_some()));
}

#[tokio::test]
async fn many_schedules_that_are_due_leave_room_for_other_work() {
    let two = TwoDomains::open().await;
    for number in 0..=MAX_SCHEDULED {
        let id = two.made(&two.abe, &format!("data-{number}")).await.id;
        schedule(&two, id, two.abe.subject.user).await;
    }
    begin_due(&two.server).await.unwrap();
    assert_eq!(snapshots_begun(&two).await, MAX_SCHEDULED);
}

#[tokio::test]
async fn a_schedule_of_a_user_without_the_right_begins_nothing() {
    let two = TwoDomains::open().await;
    let id = two.made(&two.abe, "data").await.id;
    schedule(&two, id, two.eve.subject.user).await;
    begin_due(&two.server).await.unwrap();
    let all = two
        .server
        .catalog()
        .read_now("look at snapshots", |view| view.folder_snapshots(id))
        .unwrap();
    assert!(all.is_empty());
}

#[tokio::test]
async fn who_may_not_share_a_folder_makes_and_removes_no_snapshot() {
    let two = TwoDomains::open().await;
    let id = two.made(&two.abe, "data").await.id.to_string();
    let server = &two.server;
    let asked = FolderSnapshotScheduleBody {
        daily: 1,
        ..FolderSnapshotScheduleBody::default()
    };
    for (caller, expected) in [
        (&two.eve, "folder.not-found"),
        (&two.mina, "folder.not-found"),
        (&two.chief, "folder.files-own"),
        (&two.boss, "folder.files-own"),
    ] {
        assert_eq!(code(list(server, caller, &id).await), expected);
        assert_eq!(code(create(server, caller, &id).await), expected);
        assert_eq!(code(remove(server, caller, &id, 1).await), expected);
        let set = set_schedule(server, caller, &id, asked).await;
        assert_eq!(code(set), expected);
        let looked = entries(server, caller, &id, 1, &FolderEntryQuery::default()).await;
        assert_eq!(code(looked), expected);
        let back = FolderSnapshotRestoreBody::default();
        assert_eq!(code(restore(server, caller, &id, 1, back).await), expected);
        let copied = NewFolderFromSnapshotBody {
            name: "copy".to_owned(),
            ..NewFolderFromSnapshotBody::default()
        };
        let copied = copy(server, caller, &id, 1, copied, None).await;
        assert_eq!(code(copied), expected);
    }
}

#[tokio::test]
async fn a_snapshot_that_is_not_whole_or_goes_is_not_found() {
    let two = TwoDomains::open().await;
    let id = two.made(&two.abe, "data").await.id;
    let (server, which) = (&two.server, id.to_string());
    let numbers = server
        .catalog()
        .write(Lane::Requests, "begin two snapshots", move |rows| {
            let first = rows.begin_snapshot(id, SnapshotOrigin::Hand, "abe")?;
            let second = rows.begin_snapshot(id, SnapshotOrigin::Daily, "abe")?;
            rows.end_snapshot(&FolderSnapshot {
                bytes: Some(7),
                entries: Some(1),
                ..rows.folder_snapshot(id, second)?.expect("its row")
            })?;
            Ok((first, second))
        })
        .await
        .unwrap();
    assert_eq!(numbers, (1, 2));
    let query = FolderEntryQuery::default();
    let missing = entries(server, &two.abe, &which, 1, &query).await;
    assert_eq!(code(missing), "folder.snapshot-not-found", "on its way");
    let gone = entries(server, &two.abe, &which, 2, &query).await;
    assert_eq!(code(gone), "folder.entry-not-found", "its files are gone");
    let (_, known) = list(server, &two.abe, &which).await.unwrap();
    assert_eq!((known.items.len(), known.used), (2, 7));
    remove(server, &two.abe, &which, 2).await.unwrap();
    let missing = entries(server, &two.abe, &which, 2, &query).await;
    assert_eq!(code(missing), "folder.snapshot-not-found");
    let (_, known) = list(server, &two.abe, &which).await.unwrap();
    assert_eq!(known.items.len(), 1);
}
