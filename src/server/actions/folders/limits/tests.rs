//! Limits of single folders through the actions that doors call, where limits are held and where they are counted alone.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::folders::{FolderRemovalBody, NewFolderDirectoryBody};
use api::mounts::NewMountBody;
use api::sessions::LaunchRequest;
use rules::folder::{FolderUse, MountAccess, RequestedMount};
use store::folders::{mounted_directory, scope_of};
use store::quota::{ScopeKeeper, ScopeLease, ScopePlace, ScopeUse};

use super::super::tests::TwoDomains;
use super::super::uploads::{self, NewFolderFile};
use super::super::{files, get, list};
use super::*;
use crate::actions::sessions as launches;
use crate::actions::storage::{count_again, own};
use crate::code;

/// Longer than files stand still before they move, many times.
const MOVE_TIMEOUT: Duration = Duration::from_secs(30);

fn at_most(bytes: Bytes) -> FolderLimitBody {
    FolderLimitBody {
        bytes: Some(bytes.0),
    }
}

fn mounting(name: &str) -> LaunchRequest {
    let asked = RequestedMount::parse("data:/data").expect("a mount");
    LaunchRequest {
        name: Some(name.to_owned()),
        mounts: vec![NewMountBody::from(asked)],
        ..LaunchRequest::default()
    }
}

fn directory(path: &str) -> NewFolderDirectoryBody {
    NewFolderDirectoryBody {
        path: path.to_owned(),
    }
}

/// Lets folders lie in scopes, and says of each what its files take.
#[derive(Debug)]
struct PlainScopes;

impl ScopeKeeper for PlainScopes {
    fn enforcement(&self) -> StorageEnforcement {
        StorageEnforcement::Image
    }

    fn enter(&self, scope: &ScopePlace, limit: Option<Bytes>) -> io::Result<ScopeLease> {
        if let Some(limit) = limit.filter(|_| !scope.files().is_dir()) {
            scope.make()?;
            scope.keep_limit(limit)?;
        }
        match scope.files().is_dir() {
            true => Ok(ScopeLease::default()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn hold_to(&self, scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
        scope.keep_limit(limit)
    }

    fn measure(&self, scope: &ScopePlace) -> io::Result<Option<ScopeUse>> {
        let Some(limit) = scope.limit()? else {
            return Ok(None);
        };
        let size = store::trees::measure(&scope.files(), 1000)?;
        Ok(Some(ScopeUse {
            used: Bytes(size.bytes),
            limit,
            files: size.entries,
            max_files: 0,
            at: 5,
        }))
    }

    fn remove_empty(&self, _: &ScopePlace) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_limit_of_a_folder_is_a_part_of_its_owners_or_on_top_of_it() {
    let two = TwoDomains::open().await;
    let server = &two.server;
    let id = two.made(&two.abe, "data").await.id;
    let which = id.to_string();
    let rest = async || own(server, &two.abe).await.unwrap().limit;
    let ten = set(server, &two.abe, "data", at_most(Bytes::gib(10))).await;
    let ten = ten.unwrap();
    assert_eq!(ten.limit, Some(Bytes::gib(10).0));
    assert!(!ten.limit_on_top);
    assert_eq!(rest().await, Bytes::gib(40));
    for (bytes, expected) in [
        (Bytes::gib(50), "folder.limit-beyond"),
        (Bytes::mib(1), "folder.limit-size"),
        (Bytes::gib(16 * 1024), "folder.limit-size"),
    ] {
        let refused = set(server, &two.abe, "data", at_most(bytes)).await;
        assert_eq!(code(refused), expected, "{bytes}");
    }
    for (other, expected) in [
        (&two.eve, "folder.not-found"),
        (&two.mina, "folder.not-found"),
        (&two.chief, "folder.owner-only"),
    ] {
        let refused = set(server, other, &which, at_most(Bytes::gib(5))).await;
        assert_eq!(code(refused), expected);
    }
    let given = set(server, &two.boss, &which, at_most(Bytes::gib(100))).await;
    assert!(given.unwrap().limit_on_top);
    assert_eq!(rest().await, Bytes::gib(50));
    let counted = FolderUse {
        bytes: Bytes::gib(60).0,
        entries: 1,
        at: server.clock().now(),
    };
    server
        .catalog()
        .write(Lane::Requests, "count a folder", move |rows| {
            rows.note_folder_size(id, counted)
        })
        .await
        .unwrap();
    let below = set(server, &two.abe, "data", at_most(Bytes::gib(20))).await;
    assert_eq!(code(below), "folder.limit-below-use");
    let none = set(server, &two.abe, "data", FolderLimitBody::default()).await;
    assert_eq!(code(none), "quota.exceeded");
    let shown = get(server, &two.abe, "data").await.unwrap();
    assert_eq!(shown.limit, Some(Bytes::gib(100).0), "nothing was changed");
    let all = list(server, &two.eve).await.unwrap();
    assert!(all.is_empty());
}

#[tokio::test]
async fn where_limits_are_counted_no_more_is_written_above_one_and_sessions_only_read() {
    let two = TwoDomains::open().await;
    let (server, abe) = (&two.server, &two.abe);
    let id = two.made(abe, "data").await.id;
    let limit = Bytes::mib(32);
    set(server, abe, "data", at_most(limit)).await.unwrap();
    let made = files::make_directory(server, abe, "data", directory("a")).await;
    assert!(made.is_ok(), "{made:?}");
    let launched = launches::launch(server, abe, mounting("before"), None).await;
    let mount = launched.unwrap().sessions[0].mounts[0].clone();
    assert_eq!((mount.access, mount.over_limit), (MountAccess::Rw, false));
    // As a session does, which nothing holds back.
    let place = mounted_directory(two.directory.path(), id);
    std::fs::write(place.join("big"), vec![1; 40 << 20]).unwrap();
    count_again(server, id).await.unwrap();
    let refused = files::make_directory(server, abe, "data", directory("b")).await;
    assert_eq!(code(refused), "quota.exceeded");
    let file = || NewFolderFile {
        directory: String::new(),
        name: "file".to_owned(),
        bytes: Some(1),
        overwrite: false,
        modified_at: None,
        version: None,
    };
    let refused = uploads::create(server, abe, "data", file()).await;
    assert_eq!(code(refused), "quota.exceeded");
    let launched = launches::launch(server, abe, mounting("after"), None).await;
    let mount = launched.unwrap().sessions[0].mounts[0].clone();
    assert_eq!((mount.access, mount.over_limit), (MountAccess::Ro, true));
    let gone = FolderRemovalBody {
        paths: vec!["big".to_owned()],
        for_good: true,
    };
    files::remove(server, abe, "data", gone).await.unwrap();
    let until = Instant::now() + MOVE_TIMEOUT;
    while uploads::create(server, abe, "data", file()).await.is_err() {
        assert!(Instant::now() < until, "it is counted again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn where_limits_are_held_a_folder_moves_to_its_own_one_and_back() {
    let two = TwoDomains::open().await;
    let (server, abe) = (&two.server, &two.abe);
    server.bring_scopes(Arc::new(PlainScopes));
    let id = two.made(abe, "data").await.id;
    let place = mounted_directory(two.directory.path(), id);
    std::fs::write(place.join("file"), "text").unwrap();
    let launched = launches::launch(server, abe, mounting("one"), None).await;
    assert!(launched.is_ok(), "{launched:?}");
    let refused = set(server, abe, "data", at_most(Bytes::gib(1))).await;
    assert_eq!(code(refused), "folder.mounted");
    launches::stop(server, abe, "one", true).await.unwrap();
    for (asked, scope) in [
        (at_most(Bytes::gib(1)), ScopeOwner::Folder(id)),
        (FolderLimitBody::default(), abe.subject.user.into()),
    ] {
        let begun = set(server, abe, "data", asked.clone()).await.unwrap();
        assert_eq!(begun.state, FolderState::Transferring);
        let until = Instant::now() + MOVE_TIMEOUT;
        loop {
            let now = get(server, abe, "data").await.unwrap();
            if now.state == FolderState::Ready {
                assert_eq!(now.limit, asked.bytes);
                break;
            }
            assert!(Instant::now() < until, "{now:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let held = ScopePlace::of(two.directory.path(), scope);
        assert_eq!(scope_of(two.directory.path(), id), Some(held.clone()));
        let kept = held.limit().unwrap().expect("it is held to one");
        assert_eq!(kept.0, asked.bytes.unwrap_or(Bytes::gib(50).0));
        let text = std::fs::read_to_string(place.join("file"));
        assert_eq!(text.unwrap(), "text");
    }
    set(server, abe, "data", at_most(Bytes::gib(2)))
        .await
        .unwrap();
    let other = set(server, abe, "data", at_most(Bytes::gib(1))).await;
    assert_eq!(code(other), "folder.transferring");
}
