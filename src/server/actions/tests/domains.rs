//! Two domains in one catalog: what a list hides is not found by its name or id either.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use api::sessions::{LaunchRequest, Resources};
use base::observe::random;
use rules::image::CatalogImage;
use rules::image_limits::ImageLimits;
use rules::names::{ImageId, UserId};
use rules::tenancy::DomainId;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::users::Role;

use super::super::sessions::launch;
use super::super::{images, users};
use crate::access::{Caller, set_up, setup_link, sign_in};
use crate::catalog::{Lane, Rows};
use crate::code;
use crate::{Failure, Server};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";
const ABROAD: DomainId = DomainId(uuid::Uuid::from_u128(7));

/// A server with an administrator, a user of the domain `default` and one of another domain.
async fn with_two_domains() -> (Server, Caller, Caller, Caller) {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    for name in ["mina", "abe"] {
        users::create(&server, &boss.caller, name, Role::User, GOOD)
            .await
            .unwrap();
    }
    server
        .catalog()
        .write_now(Lane::Requests, "make another domain", |rows| {
            rows.move_to_new_domain("abe", ABROAD)
        })
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap();
    let abe = sign_in(&server, "abe", GOOD, HERE).await.unwrap();
    (server, boss.caller, mina.caller, abe.caller)
}

fn image(server: &Server, reference: &str, domain: DomainId) -> ImageId {
    image_of(server, reference, domain, None)
}

/// An image, private to its owner where it has one.
fn image_of(server: &Server, reference: &str, domain: DomainId, owner: Option<UserId>) -> ImageId {
    let image = image_row(server.clock().now(), reference, domain, owner);
    let id = image.id;
    let insert = move |rows: &Rows<'_>| rows.insert_image(&image);
    let catalog = server.catalog();
    catalog
        .write_now(Lane::Requests, "insert an image", insert)
        .unwrap();
    id
}

/// An image without bytes in any store.
pub(super) fn image_row(
    now: Timestamp,
    reference: &str,
    domain: DomainId,
    owner: Option<UserId>,
) -> CatalogImage {
    CatalogImage {
        id: ImageId::make(now, random()),
        reference: reference.into(),
        domain,
        digest: format!("sha256:{reference}"),
        size: Bytes::mib(1),
        architecture: "amd64".into(),
        created_at: now,
        imported_at: now,
        limits: ImageLimits::default(),
        limits_set: false,
        labels: BTreeMap::new(),
        entrypoint: vec!["run".into()],
        command: Vec::new(),
        env: Vec::new(),
        user: String::new(),
        working_directory: String::new(),
        stop_signal: String::new(),
        generation: 1,
        owner,
        shared: owner.is_none(),
    }
}

#[tokio::test]
async fn an_image_of_another_domain_is_not_listed_found_or_launched() {
    let (server, boss, mina, abe) = with_two_domains().await;
    let home = image(&server, "home:1", DomainId::DEFAULT);
    let foreign = image(&server, "foreign:1", ABROAD);
    for (caller, own, hidden, hidden_id) in [
        (&mina, "home:1", "foreign:1", foreign),
        (&abe, "foreign:1", "home:1", home),
    ] {
        let listed = images::list(&server, caller).await.unwrap();
        let listed: Vec<&str> = listed.iter().map(|i| i.reference.as_str()).collect();
        assert_eq!(listed, [own]);
        let found = images::get(&server, caller, own).await.unwrap();
        assert_eq!(found.reference, own);
        for which in [hidden.to_owned(), hidden_id.to_string()] {
            let got = images::get(&server, caller, &which).await;
            assert_eq!(code(got), "image.not-found");
            let request = LaunchRequest {
                image: which,
                ..LaunchRequest::default()
            };
            let launched = launch(&server, caller, request, None).await;
            assert_eq!(code(launched), "image.not-found");
        }
    }
    for which in ["home:1", "foreign:1"] {
        let found = images::get(&server, &boss, which).await.unwrap();
        assert_eq!(
            found.reference, which,
            "an administrator reaches all domains"
        );
    }
}

/// Its limits are an administrator's to give; a launch that names no amount gets the least of them, and one beyond them is
/// refused at its field.
#[tokio::test]
async fn limits_of_an_image_hold_for_launches() {
    let (server, boss, mina, abe) = with_two_domains().await;
    let owner = mina.subject.user;
    image_of(&server, "mina/tools:1", DomainId::DEFAULT, Some(owner));
    let limits = ImageLimits {
        min_cpu: Some(CpuShare(200)),
        max_memory: Some(Bytes::gib(2)),
        max_gpu: Some(GpuShare::ZERO),
        shm: Some(Bytes::gib(4)),
        ..ImageLimits::default()
    };
    for caller in [&mina, &abe] {
        let refused = images::set_limits(&server, caller, "mina/tools:1", Some(limits)).await;
        assert_eq!(code(refused), "role.administrator-needed");
    }
    let refused = images::set_limits(&server, &boss, "none:1", Some(limits)).await;
    assert_eq!(code(refused), "image.not-found");
    let crossed = ImageLimits {
        max_cpu: Some(CpuShare(100)),
        ..limits
    };
    let refused = images::set_limits(&server, &boss, "mina/tools:1", Some(crossed)).await;
    assert_eq!(code(refused), "image.limits-crossed");
    let set = images::set_limits(&server, &boss, "mina/tools:1", Some(limits)).await;
    let set = set.unwrap();
    assert_eq!(
        (set.limits, set.limits_set, set.generation),
        (limits, true, 2)
    );

    let asked = |cpu: Option<u32>, memory: Option<u64>, gpu: Option<u32>| LaunchRequest {
        image: "mina/tools:1".into(),
        resources: Resources {
            cpu: cpu.map(CpuShare),
            memory: memory.map(Bytes::gib),
            gpu: gpu.map(GpuShare),
            ..Resources::default()
        },
        ..LaunchRequest::default()
    };
    for (request, wanted, field) in [
        (
            asked(Some(100), None, None),
            "image.minimum",
            "/resources/cpu",
        ),
        (
            asked(None, Some(3), None),
            "image.maximum",
            "/resources/memory",
        ),
        (
            asked(None, None, Some(50)),
            "image.maximum",
            "/resources/gpu",
        ),
    ] {
        let refused = launch(&server, &mina, request, None).await.unwrap_err();
        let Failure::Refusal(refusal) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(refusal.code, wanted);
        assert_eq!(refusal.pointer.as_deref(), Some(field));
    }
    let launched = launch(&server, &mina, asked(None, None, None), None).await;
    let launched = launched.unwrap().sessions.remove(0).resources;
    assert_eq!(
        (launched.cpu, launched.memory),
        (CpuShare(200), Bytes::gib(1))
    );
    // No more shared memory than memory.
    assert_eq!(launched.shm, Bytes::gib(1));

    let reset = images::set_limits(&server, &boss, "mina/tools:1", None).await;
    let reset = reset.unwrap();
    assert_eq!(
        (reset.limits, reset.limits_set),
        (ImageLimits::default(), false)
    );
    launch(&server, &mina, asked(Some(100), Some(3), None), None)
        .await
        .unwrap();
}

/// Another user of the same domain learns nothing of it, and no administrator starts from it.
#[tokio::test]
async fn an_image_of_a_session_is_its_owners_until_it_is_shared() {
    let (server, boss, mina, _) = with_two_domains().await;
    users::create(&server, &boss, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap().caller;
    let owner = mina.subject.user;
    let id = image_of(&server, "mina/tools:1", DomainId::DEFAULT, Some(owner));
    let common = image(&server, "common:1", DomainId::DEFAULT);
    let start = |which: &str| LaunchRequest {
        image: which.to_owned(),
        ..LaunchRequest::default()
    };
    let seen = async |caller: &Caller| {
        let listed = images::list(&server, caller).await.unwrap();
        listed.iter().any(|image| image.id == id)
    };
    assert!(seen(&mina).await && seen(&boss).await && !seen(&jae).await);
    for which in ["mina/tools:1".to_owned(), id.to_string()] {
        let got = images::get(&server, &jae, &which).await;
        assert_eq!(code(got), "image.not-found");
        let launched = launch(&server, &jae, start(&which), None).await;
        assert_eq!(code(launched), "image.not-found");
        let launched = launch(&server, &boss, start(&which), None).await;
        assert_eq!(code(launched), "image.not-found");
        launch(&server, &mina, start(&which), None).await.unwrap();
    }
    // Told in the same words of what is there and of what is not.
    for which in ["mina/tools:1", "mina/none:1"] {
        let refused = images::share(&server, &jae, which, true).await;
        assert_eq!(code(refused), "role.administrator-needed");
        let refused = images::remove(&server, &jae, which).await;
        assert_eq!(code(refused), "role.administrator-needed");
    }
    let refused = images::share(&server, &boss, &common.to_string(), false).await;
    assert_eq!(code(refused), "image.not-of-session");
    let refused = images::share(&server, &boss, "mina/tools:1", true).await;
    assert_eq!(code(refused), "image.owner-only");
    let shared = images::share(&server, &mina, "mina/tools:1", true)
        .await
        .unwrap();
    assert!(shared.shared && shared.generation == 2);
    assert!(seen(&jae).await);
    launch(&server, &jae, start("mina/tools:1"), None)
        .await
        .unwrap();
    images::share(&server, &mina, "mina/tools:1", false)
        .await
        .unwrap();
    assert!(!seen(&jae).await);
}

#[tokio::test]
async fn an_administrator_finds_the_users_of_all_domains() {
    let (server, boss, mina, _) = with_two_domains().await;
    for name in ["mina", "abe"] {
        let found = users::get(&server, &boss, name).await.unwrap();
        assert_eq!(found.name.as_str(), name);
        let refused = users::get(&server, &mina, name).await;
        assert_eq!(code(refused), "role.administrator-needed");
    }
}
