//! The pool through the actions that doors call: who sees it, who makes it larger, and what a refusal leaves.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use base::settings::SettingsLayer;
use rules::storage::{DiskRoom, StorageEnforcement};
use rules::users::Role;
use store::quota::{ScopeKeeper, ScopeLease, ScopePlace, ScopeUse};

use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::actions::users;
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// Has a pool of 100 GiB on a disk of which 300 GiB of 1000 are free, and room for it below 250 GiB.
#[derive(Debug, Default)]
struct OnePool(Mutex<Option<PoolUse>>);

impl OnePool {
    fn with_pool() -> Self {
        Self(Mutex::new(Some(PoolUse {
            size: Bytes::gib(100),
            used: Bytes::gib(30),
            promised: Bytes::gib(400),
            bound: Bytes::gib(1024),
            disk: DiskRoom {
                total: Bytes::gib(1000),
                free: Bytes::gib(300),
            },
        })))
    }
}

impl ScopeKeeper for OnePool {
    fn enforcement(&self) -> StorageEnforcement {
        StorageEnforcement::Pool
    }

    fn enter(&self, _: &ScopePlace, _: Option<Bytes>) -> io::Result<ScopeLease> {
        Ok(ScopeLease::default())
    }

    fn hold_to(&self, _: &ScopePlace, _: Bytes) -> io::Result<()> {
        Ok(())
    }

    fn measure(&self, _: &ScopePlace) -> io::Result<Option<ScopeUse>> {
        Ok(None)
    }

    fn remove_empty(&self, _: &ScopePlace) -> io::Result<()> {
        Ok(())
    }

    fn pool(&self) -> io::Result<Option<PoolUse>> {
        Ok(*self.0.lock().unwrap())
    }

    fn grow_pool(&self, size: Bytes) -> io::Result<()> {
        if size > Bytes::gib(250) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(pool) = &mut *self.0.lock().unwrap() {
            pool.size = size;
        }
        Ok(())
    }
}

struct PoolBox {
    _directory: tempfile::TempDir,
    server: Server,
    boss: Caller,
    mina: Caller,
}

async fn with(keeper: OnePool) -> PoolBox {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::for_tests_with(SettingsLayer {
        data: Some(directory.path().to_owned()),
        ..SettingsLayer::default()
    });
    server.bring_scopes(Arc::new(keeper));
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let boss = boss.caller;
    users::create_once(&server, &boss, "mina", Role::User, GOOD, None, None)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    PoolBox {
        _directory: directory,
        server,
        boss,
        mina,
    }
}

fn to(size: Bytes) -> PoolSizeBody {
    PoolSizeBody { bytes: size.0 }
}

#[tokio::test]
async fn administrators_see_the_pool_and_make_it_larger_within_the_disk() {
    let one = with(OnePool::with_pool()).await;
    let (server, boss) = (&one.server, &one.boss);
    assert_eq!(
        code(get(server, &one.mina).await),
        "role.administrator-needed"
    );
    let refused = grow(server, &one.mina, to(Bytes::gib(200))).await;
    assert_eq!(code(refused), "role.administrator-needed");
    let seen = get(server, boss).await.unwrap();
    assert_eq!(seen.enforcement, StorageEnforcement::Pool);
    assert_eq!(seen.size, Some(Bytes::gib(100).0));
    assert_eq!(seen.promised, Some(Bytes::gib(400).0));
    // A tenth of the disk stays free.
    assert_eq!(seen.most, Some(Bytes::gib(300).0));
    for (size, expected) in [
        (Bytes::ZERO, "pool.smaller"),
        (Bytes::gib(99), "pool.smaller"),
        (Bytes::gib(301), "pool.too-large"),
        (Bytes(u64::MAX), "pool.too-large"),
        // The disk lost its room since it was looked at.
        (Bytes::gib(260), "pool.too-large"),
    ] {
        let refused = grow(server, boss, to(size)).await;
        assert_eq!(code(refused), expected, "{size}");
        let now = get(server, boss).await.unwrap();
        assert_eq!(now, seen, "nothing is half-applied");
    }
    let same = grow(server, boss, to(Bytes::gib(100))).await.unwrap();
    assert_eq!(same, seen);
    let odd = Bytes(Bytes::gib(200).0 + 5);
    let grown = grow(server, boss, to(odd)).await.unwrap();
    assert_eq!(grown.size, Some(Bytes::gib(200).0));
    let told = server
        .catalog()
        .read_now("look", |view| view.events_of("pool", 9))
        .unwrap();
    let told: Vec<_> = told
        .iter()
        .map(|event| (event.code.as_str(), event.after.as_str()))
        .collect();
    assert_eq!(told, [("pool.grown", "200 GiB")], "of what was done alone");
}

#[tokio::test]
async fn a_machine_without_a_pool_says_so() {
    let one = with(OnePool::default()).await;
    let seen = get(&one.server, &one.boss).await.unwrap();
    assert_eq!((seen.size, seen.most), (None, None));
    let refused = grow(&one.server, &one.boss, to(Bytes::gib(200))).await;
    assert_eq!(code(refused), "pool.absent");
}
