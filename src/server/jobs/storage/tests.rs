//! What a look makes of folders: rows of what they take, and limits that a keeper is told.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use api::folders::NewFolderBody;
use api::policies::{LimitsBody, PolicyPatchBody};
use base::settings::SettingsLayer;
use rules::folder::FolderState;
use rules::grants::GrantRole;
use rules::object::Object;
use rules::storage::{DEFAULT_FOLDER_BYTES, StorageEnforcement, StorageLevel};
use rules::users::Role;
use store::quota::{ScopeKeeper, ScopeLease, ScopeUse};

use super::*;
use crate::access::{Caller, set_up, setup_link, sign_in};
use crate::actions::notices::{self, NoticeKind};
use crate::actions::{folders, policies, storage, system, tenancy, users};

/// Says of each scope what it was told to say, and remembers the limits.
#[derive(Debug, Default)]
struct ToldKeeper {
    used: AtomicU64,
    limits: Mutex<Vec<Bytes>>,
}

impl ScopeKeeper for ToldKeeper {
    fn enforcement(&self) -> StorageEnforcement {
        StorageEnforcement::Image
    }

    fn enter(&self, scope: &ScopePlace, limit: Option<Bytes>) -> io::Result<ScopeLease> {
        if let Some(limit) = limit {
            scope.make()?;
            scope.keep_limit(limit)?;
        }
        Ok(ScopeLease::default())
    }

    fn hold_to(&self, scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
        self.limits.lock().unwrap().push(limit);
        scope.keep_limit(limit)
    }

    fn measure(&self, scope: &ScopePlace) -> io::Result<Option<ScopeUse>> {
        Ok(Some(ScopeUse {
            used: Bytes(self.used.load(Ordering::Relaxed)),
            limit: scope.limit()?.unwrap_or_default(),
            files: 1,
            max_files: 10,
            at: 7,
        }))
    }

    fn remove_empty(&self, scope: &ScopePlace) -> io::Result<()> {
        store::trees::remove(scope.directory())
    }
}

async fn opened(keeper: Option<Arc<ToldKeeper>>) -> (tempfile::TempDir, Server, Caller) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::for_tests_with(SettingsLayer {
        data: Some(directory.path().to_owned()),
        ..SettingsLayer::default()
    });
    if let Some(keeper) = keeper {
        server.bring_scopes(keeper);
    }
    let setup = setup_link(&server).unwrap();
    let here = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST);
    let boss = set_up(&server, &setup, "boss", "correct horse battery", here).await;
    let boss = boss.unwrap().caller;
    let asked = NewFolderBody {
        name: "data".to_owned(),
        ..NewFolderBody::default()
    };
    folders::create(&server, &boss, asked, None).await.unwrap();
    (directory, server, boss)
}

async fn limit(server: &Server, boss: &Caller, bytes: Bytes) {
    let limits = LimitsBody {
        folder_bytes: Some(bytes),
        ..LimitsBody::default()
    };
    let patch = PolicyPatchBody {
        name: None,
        limits: Some(Object(limits)),
        egress: None,
        sudo: None,
        no_inner_door: None,
        no_home: None,
        require_limit: None,
    };
    let changed = policies::change(server, boss, "default", patch, None).await;
    changed.unwrap();
}

#[tokio::test]
async fn folders_are_held_to_the_policy_and_their_owner_sees_how_near_it_is() {
    let keeper = Arc::new(ToldKeeper::default());
    let (directory, server, boss) = opened(Some(Arc::clone(&keeper))).await;
    let scope = ScopePlace::of(directory.path(), boss.subject.user);
    assert_eq!(scope.limit().unwrap(), Some(DEFAULT_FOLDER_BYTES));
    let shown = storage::own(&server, &boss).await.unwrap();
    assert_eq!(shown.limit, DEFAULT_FOLDER_BYTES);
    limit(&server, &boss, Bytes::gib(1)).await;
    for (used, level) in [
        (0, StorageLevel::Free),
        (Bytes::mib(820).0, StorageLevel::Near),
        (Bytes::mib(980).0, StorageLevel::Close),
        (Bytes::gib(1).0, StorageLevel::Full),
        (Bytes::mib(1).0, StorageLevel::Free),
    ] {
        keeper.used.store(used, Ordering::Relaxed);
        look(&server, true).await.unwrap();
        let listed = storage::list(&server, &boss).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].used, listed[0].level), (Bytes(used), level));
        assert_eq!(listed[0].limit, Bytes::gib(1));
        assert_eq!(listed[0].enforcement, StorageEnforcement::Image);
        let figures = system::metrics(&server, &boss).await.unwrap();
        let of_owner = figures.folders.first().expect("one owner");
        assert_eq!(of_owner.owner, boss.subject.user.to_string());
        // A row is written where something changed that is told.
        assert_eq!(
            (of_owner.used, of_owner.limit),
            (Bytes(used), Bytes::gib(1))
        );
        let notices = notices::list(&server, &boss).await.unwrap();
        let mut about = notices.iter().map(|notice| &notice.about);
        let is_told = about.any(|about| matches!(about, NoticeKind::StorageWarned(_)));
        assert_eq!(is_told, level != StorageLevel::Free, "{level:?}");
    }
    assert_eq!(scope.limit().unwrap(), Some(Bytes::gib(1)));
    let told = keeper.limits.lock().unwrap().clone();
    assert!(told.iter().all(|one| *one == Bytes::gib(1)), "{told:?}");
}

#[tokio::test]
async fn a_crossing_of_a_threshold_is_told_once() {
    let keeper = Arc::new(ToldKeeper::default());
    let (_directory, server, boss) = opened(Some(Arc::clone(&keeper))).await;
    limit(&server, &boss, Bytes::gib(1)).await;
    let user = boss.subject.user;
    for (percent, events) in [
        (82, 1),
        (78, 1),
        (83, 1),
        (96, 2),
        (94, 2),
        (97, 2),
        (70, 2),
        (81, 3),
    ] {
        let used = Bytes::gib(1).0 / 100 * percent + 1;
        keeper.used.store(used, Ordering::Relaxed);
        look(&server, true).await.unwrap();
        let told = server.catalog().read_now("look for warnings", |view| {
            view.events_of(&user.to_string(), 50)
        });
        let told = told.unwrap().into_iter();
        let told = told.filter(|event| event.code == "storage.warned");
        assert_eq!(told.count(), events, "{percent}");
    }
}

#[tokio::test]
async fn the_leads_of_a_project_hear_of_its_limit() {
    let keeper = Arc::new(ToldKeeper::default());
    let (_directory, server, boss) = opened(Some(Arc::clone(&keeper))).await;
    limit(&server, &boss, Bytes::gib(1)).await;
    let made = tenancy::create_project(&server, &boss, None, "vision", "", None).await;
    made.unwrap();
    let good = "correct horse battery";
    let mut callers = Vec::new();
    for (name, role) in [("mina", GrantRole::Lead), ("jae", GrantRole::Member)] {
        users::create_once(&server, &boss, name, Role::User, good, None, None)
            .await
            .unwrap();
        tenancy::put_member(&server, &boss, "vision", name, role, None)
            .await
            .unwrap();
        let here = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST);
        let signed_in = sign_in(&server, name, good, here).await;
        callers.push(signed_in.unwrap().caller);
    }
    let [lead, member] = callers.try_into().expect("two callers");
    let asked = NewFolderBody {
        name: "corpus".to_owned(),
        project: Some("vision".to_owned()),
        ..NewFolderBody::default()
    };
    folders::create(&server, &lead, asked, None).await.unwrap();
    keeper.used.store(Bytes::mib(980).0, Ordering::Relaxed);
    look(&server, true).await.unwrap();
    let warned = async |caller: &Caller| {
        let all = notices::list(&server, caller).await.unwrap().into_iter();
        let all = all.filter(|one| matches!(one.about, NoticeKind::StorageWarned(_)));
        all.map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(warned(&lead).await, [Some("vision".to_owned())]);
    assert_eq!(notices::unread(&server, &lead), 1);
    assert!(warned(&member).await.is_empty(), "it is no limit of theirs");
    let told = server.catalog().read_now("look for leads", |view| {
        view.leads_warned_of_storage(Timestamp::default())
    });
    let told: Vec<_> = told.unwrap().into_iter().map(|(user, ..)| user).collect();
    assert_eq!(told, [lead.subject.user], "mail goes to them, too");
}

#[tokio::test]
async fn near_a_limit_the_oldest_of_the_trash_gives_way() {
    let keeper = Arc::new(ToldKeeper::default());
    let (directory, server, boss) = opened(Some(Arc::clone(&keeper))).await;
    limit(&server, &boss, Bytes::gib(1)).await;
    let id = folders::get(&server, &boss, "data").await.unwrap().id;
    let store = server.folders().unwrap();
    let place = store::folders::mounted_directory(directory.path(), id);
    let now = server.clock().now();
    for (name, age) in [("older", 7200), ("old", 3600), ("new", 0)] {
        std::fs::write(place.join(name), vec![1; 4 << 20]).unwrap();
        let path = rules::folder_path::FolderPath::parse(name).unwrap();
        let at = Timestamp::from_millis(now.as_millis() - age * 1000);
        store.remove_entry(id, &path, at).unwrap();
    }
    let left = || -> Vec<String> {
        let left = store.removed(id).unwrap().into_iter();
        left.map(|one| one.path).collect()
    };
    keeper.used.store(Bytes::mib(900).0, Ordering::Relaxed);
    look(&server, true).await.unwrap();
    assert_eq!(left().len(), 3, "below nine tenths all of it stays");
    let asked = NewFolderBody {
        name: "other".to_owned(),
        ..NewFolderBody::default()
    };
    folders::create(&server, &boss, asked, None).await.unwrap();
    let other = folders::get(&server, &boss, "other").await.unwrap().id;
    let put = async |state: FolderState| {
        let written = server
            .catalog()
            .write(Lane::Requests, "move a folder", move |rows| {
                let mut folder = rows.folder(other)?.expect("a row").folder;
                folder.state = state;
                rows.put_folder(&folder)
            });
        written.await.unwrap();
    };
    put(FolderState::Transferring).await;
    keeper.used.store(Bytes::gib(1).0, Ordering::Relaxed);
    look(&server, true).await.unwrap();
    assert_eq!(
        left().len(),
        3,
        "its owner is not held to a limit while a folder moves"
    );
    put(FolderState::Ready).await;
    let nine_tenths = Bytes::gib(1).0 / 10 * 9;
    keeper
        .used
        .store(nine_tenths + (1 << 20), Ordering::Relaxed);
    look(&server, true).await.unwrap();
    assert_eq!(left(), ["new", "old"], "as much as is needed");
    keeper.used.store(Bytes::gib(1).0, Ordering::Relaxed);
    look(&server, true).await.unwrap();
    assert_eq!(left(), ["new"], "what was just removed can be restored");
    let told = server
        .catalog()
        .read_now("look for events", |view| view.events_of("data", 50));
    let told = told.unwrap().into_iter();
    let told = told.filter(|event| event.code == "folder.trash-gave-way");
    assert_eq!(told.count(), 2);
}

#[tokio::test]
async fn a_look_writes_nothing_where_there_is_nothing_new() {
    let keeper = Arc::new(ToldKeeper::default());
    let (_directory, server, _boss) = opened(Some(Arc::clone(&keeper))).await;
    look(&server, true).await.unwrap();
    let version = server.catalog().state_version().0;
    keeper.used.store(1 << 20, Ordering::Relaxed);
    look(&server, true).await.unwrap();
    assert_eq!(server.catalog().state_version().0, version);
    keeper.used.store(64 << 20, Ordering::Relaxed);
    look(&server, true).await.unwrap();
    assert_ne!(server.catalog().state_version().0, version);
}

#[tokio::test]
async fn without_a_keeper_what_was_counted_stands_against_the_limit() {
    let (directory, server, boss) = opened(None).await;
    let found = folders::get(&server, &boss, "data").await.unwrap();
    let place = store::folders::mounted_directory(directory.path(), found.id);
    std::fs::write(place.join("a"), vec![1; 40 << 20]).unwrap();
    limit(&server, &boss, Bytes::mib(32)).await;
    let mut mounted = std::collections::BTreeSet::new();
    super::super::folders::look(&server, &mut mounted)
        .await
        .unwrap();
    look(&server, true).await.unwrap();
    let shown = storage::own(&server, &boss).await.unwrap();
    assert_eq!(shown.enforcement, StorageEnforcement::Counted);
    assert_eq!(
        (shown.level, shown.limit),
        (StorageLevel::Full, Bytes::mib(32))
    );
    assert!(shown.percent >= 120, "{shown:?}");
}
