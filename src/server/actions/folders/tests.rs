//! Folders through the actions that doors call: who makes, sees, trashes and restores which, and what a launch that mounts
//! some does to them.

use std::net::{IpAddr, Ipv4Addr};

use api::mounts::NewMountBody;
use api::sessions::LaunchRequest;
use base::settings::SettingsLayer;
use rules::grants::GrantRole;
use rules::users::Role;
use store::folders::mounted_directory;

use super::super::{sessions, tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// Boss administers the site, chief the domain `biology`, where abe and eve are users; mina is a user of the first domain.
pub(super) struct TwoDomains {
    pub(super) directory: tempfile::TempDir,
    pub(super) server: Server,
    pub(super) boss: Caller,
    pub(super) chief: Caller,
    pub(super) abe: Caller,
    pub(super) eve: Caller,
    pub(super) mina: Caller,
}

impl TwoDomains {
    pub(super) async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::for_tests_with(SettingsLayer {
            data: Some(directory.path().to_owned()),
            ..SettingsLayer::default()
        });
        server.put_test_node("one");
        let setup = setup_link(&server).unwrap();
        let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
        let boss = boss.caller;
        tenancy::create_domain(&server, &boss, "biology", "", None)
            .await
            .unwrap();
        let mut others = Vec::new();
        for (name, domain) in [
            ("chief", Some("biology")),
            ("abe", Some("biology")),
            ("eve", Some("biology")),
            ("mina", None),
        ] {
            users::create_once(&server, &boss, name, Role::User, GOOD, domain, None)
                .await
                .unwrap();
            if name == "chief" {
                let role = GrantRole::Administrator;
                tenancy::grant(&server, &boss, name, role, domain, None)
                    .await
                    .unwrap();
            }
            others.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
        }
        let [chief, abe, eve, mina] = others.try_into().expect("four callers");
        Self {
            directory,
            server,
            boss,
            chief,
            abe,
            eve,
            mina,
        }
    }

    pub(super) async fn made(&self, caller: &Caller, name: &str) -> FolderView {
        let made = create(&self.server, caller, new(name), None).await;
        made.unwrap_or_else(|failure| panic!("{failure}")).value
    }

    async fn listed(&self, caller: &Caller) -> Vec<String> {
        let all = list(&self.server, caller).await.unwrap();
        all.into_iter().map(|one| one.name.to_string()).collect()
    }

    fn has_directory(&self, id: FolderId) -> bool {
        mounted_directory(self.directory.path(), id).is_dir()
    }
}

fn new(name: &str) -> NewFolderBody {
    NewFolderBody {
        name: name.to_owned(),
        ..NewFolderBody::default()
    }
}

fn mounting(name: &str, mounts: &[&str]) -> LaunchRequest {
    let read = |text: &&str| NewMountBody::from(RequestedMount::parse(text).expect("a mount"));
    LaunchRequest {
        name: Some(name.to_owned()),
        mounts: mounts.iter().map(read).collect(),
        ..LaunchRequest::default()
    }
}

#[tokio::test]
async fn a_folder_has_a_directory_and_a_name_of_its_owners_own() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    assert!(two.has_directory(data.id));
    let again = create(&two.server, &two.abe, new("data"), None).await;
    assert_eq!(code(again), "folder.name-taken");
    two.made(&two.eve, "data").await;
    for (name, expected) in [
        ("", "folder.name-invalid"),
        ("a/b", "folder.name-invalid"),
        (" a", "folder.name-invalid"),
        ("a ", "folder.name-invalid"),
        ("home", "folder.home"),
    ] {
        let refused = create(&two.server, &two.abe, new(name), None).await;
        assert_eq!(code(refused), expected, "{name:?}");
    }
    let store = two.server.folders().unwrap();
    let directories = store.all().unwrap().len();
    assert_eq!(directories, 2, "what was refused leaves no directory");
}

#[tokio::test]
async fn an_owner_has_so_many_folders() {
    let two = TwoDomains::open().await;
    let rows: Vec<Folder> = (0..MAX_FOLDERS)
        .map(|number| {
            let name = FolderName::parse(&format!("f{number}")).unwrap();
            drafted(&two.server, &two.abe.subject, name, FolderKind::General)
        })
        .collect();
    two.server
        .catalog()
        .write_now(Lane::Requests, "folders", move |view| {
            rows.iter()
                .try_for_each(|folder| view.insert_folder(folder))
        })
        .unwrap();
    let refused = create(&two.server, &two.abe, new("more"), None).await;
    assert_eq!(code(refused), "folder.too-many");
}

/// The files of a folder are its owner's alone; who may not see its owner's sessions does not learn that it exists.
///
/// Proves too: `every_act_asks_for_its_capability_first`
#[tokio::test]
async fn strangers_learn_of_no_folder_and_administrators_of_the_domain_manage_it() {
    let two = TwoDomains::open().await;
    let id = two.made(&two.abe, "data").await.id.to_string();
    for stranger in [&two.eve, &two.mina] {
        assert_eq!(two.listed(stranger).await, Vec::<String>::new());
        let server = &two.server;
        let patch = FolderPatchBody {
            name: Some("mine".to_owned()),
            ..FolderPatchBody::default()
        };
        for answer in [
            code(get(server, stranger, &id).await),
            code(trash(server, stranger, &id).await),
            code(restore(server, stranger, &id).await),
            code(change(server, stranger, &id, patch, None).await),
        ] {
            assert_eq!(answer, "folder.not-found", "{}", stranger.name);
        }
        let launched = sessions::launch(server, stranger, mounting("x", &[&id]), None).await;
        assert_eq!(code(launched), "folder.unknown");
    }
    for manager in [&two.chief, &two.boss] {
        assert_eq!(two.listed(manager).await, ["data"]);
        let launched = sessions::launch(&two.server, manager, mounting("x", &[&id]), None).await;
        assert_eq!(
            code(launched),
            "folder.unknown",
            "files are the owner's alone"
        );
        trash(&two.server, manager, &id).await.unwrap();
        restore(&two.server, manager, &id).await.unwrap();
    }
}

/// Promise (Disk, backup and upgrade): A folder in the trash comes back with its files within 30 days, without an
/// administrator.
#[tokio::test]
async fn a_folder_comes_back_from_the_trash_with_its_files() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let file = mounted_directory(two.directory.path(), data.id).join("file");
    std::fs::write(&file, "text").unwrap();
    let trashed = trash(&two.server, &two.abe, "data").await.unwrap();
    assert_eq!(trashed.state, FolderState::Trashed);
    assert!(trashed.purge_at > trashed.trashed_at);
    assert!(file.is_file(), "nothing is removed yet");
    let again = trash(&two.server, &two.abe, "data").await;
    assert_eq!(code(again), "folder.in-trash");
    let other = two.made(&two.abe, "data").await;
    let restored = restore(&two.server, &two.abe, &data.id.to_string()).await;
    assert_eq!(code(restored), "folder.name-taken");
    let patch = FolderPatchBody {
        name: Some("newer".to_owned()),
        ..FolderPatchBody::default()
    };
    let renamed = change(&two.server, &two.abe, &other.id.to_string(), patch, None).await;
    assert_eq!(renamed.unwrap().name.as_str(), "newer");
    let restored = restore(&two.server, &two.abe, "data").await.unwrap();
    assert_eq!((restored.id, restored.state), (data.id, FolderState::Ready));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "text");
    let again = restore(&two.server, &two.abe, "data").await;
    assert_eq!(code(again), "folder.not-trashed");
}

#[tokio::test]
async fn the_first_launch_that_mounts_home_makes_it_and_the_next_one_finds_it() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let asked = mounting("one", &["home", "data:/data:ro"]);
    let first = sessions::launch(&two.server, &two.abe, asked, None).await;
    let first = first.unwrap().sessions.remove(0);
    let shown: Vec<(&str, bool)> = first
        .mounts
        .iter()
        .map(|mount| (mount.at.as_str(), mount.access.is_read_only()))
        .collect();
    assert_eq!(shown, [("/data", true), ("/home/work", false)]);
    let home = first.mounts[1].folder;
    assert!(two.has_directory(home));
    let second = sessions::launch(&two.server, &two.abe, mounting("two", &["home"]), None).await;
    assert_eq!(second.unwrap().sessions[0].mounts[0].folder, home);
    let theirs = sessions::launch(&two.server, &two.eve, mounting("one", &["home"]), None).await;
    assert_ne!(theirs.unwrap().sessions[0].mounts[0].folder, home);
    let mounted = trash(&two.server, &two.abe, "data").await;
    assert_eq!(code(mounted), "folder.mounted");
    let refused = sessions::launch(&two.server, &two.mina, mounting("-", &["home"]), None).await;
    assert_eq!(code(refused), "session.name-invalid");
    assert_eq!(two.server.folders().unwrap().all().unwrap().len(), 3);
}

#[tokio::test]
async fn what_cannot_be_mounted_is_refused_at_its_field() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    for (mounts, expected, field) in [
        (vec!["none"], "folder.unknown", "/mounts/0/folder"),
        (vec!["data", "data:/etc"], "mount.target", "/mounts/1/at"),
        (vec!["data:/..:/x"], "mount.subpath", "/mounts/0/subpath"),
        (vec!["data:/x", "data:/x"], "mount.target-twice", "/mounts"),
    ] {
        let launched = sessions::launch(&two.server, &two.abe, mounting("x", &mounts), None).await;
        let Err(Failure::Refusal(refusal)) = launched else {
            panic!("{mounts:?} was launched");
        };
        assert_eq!(refusal.code, expected);
        assert_eq!(refusal.pointer.as_deref(), Some(field));
    }
    let others = LaunchRequest {
        owner: Some("abe".to_owned()),
        ..mounting("x", &["home"])
    };
    let launched = sessions::launch(&two.server, &two.boss, others, None).await;
    assert_eq!(code(launched), "mount.others");
}

#[tokio::test]
async fn a_duplicate_asks_for_the_folders_of_the_caller_alone() {
    let two = TwoDomains::open().await;
    let asked = mounting("one", &["home", "home:/again:ro"]);
    let launched = sessions::launch(&two.server, &two.abe, asked, None).await;
    let id = launched.unwrap().sessions[0].id.to_string();
    let own = sessions::duplicate(&two.server, &two.abe, &id).await;
    assert_eq!(own.unwrap().mounts.len(), 2);
    let others = sessions::duplicate(&two.server, &two.chief, &id).await;
    let others = others.unwrap();
    assert!(others.mounts.is_empty(), "{:?}", others.mounts);
}

#[tokio::test]
async fn a_token_that_reads_no_sessions_mounts_no_folder() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let mut token = two.abe.clone();
    let others = Permission::ALL.into_iter();
    let others = others.filter(|one| *one != Permission::SessionsRead);
    token.subject.scopes = Some(others.collect());
    let without = sessions::launch(&two.server, &token, mounting("w", &[]), None).await;
    assert!(without.is_ok(), "{without:?}");
    let launched = sessions::launch(&two.server, &token, mounting("x", &["data"]), None).await;
    assert_eq!(code(launched), "token.scope-missing");
}

#[tokio::test]
async fn folders_of_a_user_who_leaves_go_to_the_trash() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let asked = api::users::DepartureBody::default();
    let left = users::departure::depart(&two.server, &two.boss, "abe", asked).await;
    left.unwrap();
    let found = get(&two.server, &two.boss, &data.id.to_string()).await;
    assert_eq!(found.unwrap().state, FolderState::Trashed);
}
