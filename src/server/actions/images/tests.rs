//! What users may do with images, with a real store on disk and archives made here.

use std::time::{Duration, Instant};

use api::operations::OperationState;
use api::operations::OperationView;
use api::sessions::LaunchRequest;
use bytes::Bytes;
use rules::users::Role;
use sha2::{Digest as _, Sha256};
use store::images::ArchiveImport;
use store::images::archive::Archive;

use super::uploads::{abort, append, create, head};
use super::*;
use crate::access::{local_root, new_user};
use crate::actions::operations;
use crate::actions::sessions::{launch, stop};
use crate::code;

struct Box1 {
    server: Server,
    root: Caller,
    _directory: tempfile::TempDir,
}

/// A server on disk; None (and said so) where this host cannot unpack images.
fn open(test: &str) -> Option<Box1> {
    let directory = tempfile::tempdir().unwrap();
    let settings = base::settings::Settings {
        data: directory.path().to_path_buf(),
        ..(*Server::for_tests().settings()).clone()
    };
    let server = Server::start(settings, base::observe::Clock::system()).unwrap();
    if let Err(refusal) = server.image_store().unwrap().can_unpack() {
        skips::skip(test, &refusal.to_string());
        return None;
    }
    let root = local_root(&server);
    Some(Box1 {
        server,
        root,
        _directory: directory,
    })
}

/// One member of a tar stream: a plain file of root.
fn member(name: &str, data: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", data.len()));
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len().div_ceil(512) * 512, 0);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// An image of one layer with one file, as `docker save` of old wrote it.
fn archive(tag: &str, content: &str) -> Vec<u8> {
    let mut layer = member("etc-motd", content.as_bytes());
    layer.extend([0; 1024]);
    let config = serde_json::json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sh"], "Env": ["A=b"], "Labels": {"team": "vision"}},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", hex(&layer))]},
    })
    .to_string();
    let name = format!("{}.json", hex(config.as_bytes()));
    let manifest =
        serde_json::json!([{"Config": name, "RepoTags": [tag], "Layers": ["l/layer.tar"]}]);
    let mut bytes = member("manifest.json", manifest.to_string().as_bytes());
    bytes.extend(member(&name, config.as_bytes()));
    bytes.extend(member("l/layer.tar", &layer));
    bytes.extend([0; 1024]);
    bytes
}

async fn uploaded(b: &Box1, caller: &Caller, bytes: Vec<u8>) -> UploadId {
    let upload = create(&b.server, caller, bytes.len() as u64, "x.tar", None)
        .await
        .unwrap();
    let sent = append(&b.server, caller, upload.id, 0, Bytes::from(bytes))
        .await
        .unwrap();
    assert_eq!(sent.offset, sent.size);
    upload.id
}

async fn over(b: &Box1, operation: OperationView) -> OperationView {
    let begun = Instant::now();
    loop {
        let now = operations::get(&b.server, &b.root, operation.id)
            .await
            .unwrap();
        if !now.state.is_open() {
            return now;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{now:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn imported(b: &Box1, bytes: Vec<u8>, reference: Option<&str>) -> OperationView {
    let upload = uploaded(b, &b.root, bytes).await;
    let source = ImportSource::Upload(upload);
    let begun = import(&b.server, &b.root, source, reference.map(str::to_owned))
        .await
        .unwrap();
    over(b, begun).await
}

/// How many images the store holds once the import thread has tidied up after itself.
async fn kept(b: &Box1, wanted: usize) -> usize {
    let begun = Instant::now();
    loop {
        let found = b.server.image_store().unwrap().list().unwrap().len();
        if found == wanted || begun.elapsed() > Duration::from_secs(10) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn names(b: &Box1) -> Vec<String> {
    let images = list(&b.server, &b.root).await.unwrap();
    images.into_iter().map(|image| image.reference).collect()
}

#[tokio::test]
async fn an_upload_becomes_an_image_that_sessions_start_from_and_that_stays_while_they_live() {
    let Some(b) =
        open("an_upload_becomes_an_image_that_sessions_start_from_and_that_stays_while_they_live")
    else {
        return;
    };
    let done = imported(&b, archive("docker.io/library/tiny:1", "hello"), None).await;
    assert_eq!(done.state, OperationState::Succeeded, "{done:?}");
    assert_eq!(names(&b).await, ["tiny:1"]);
    let image = get(&b.server, &b.root, "tiny:1").await.unwrap();
    assert_eq!(
        (image.command.as_slice(), image.env.as_slice()),
        (&["/bin/sh".to_owned()][..], &["A=b".to_owned()][..])
    );
    assert_eq!(image.labels["team"], "vision");
    assert_eq!(kept(&b, 1).await, 1);
    let request = LaunchRequest {
        name: Some("s".into()),
        image: "tiny:1".into(),
        ..LaunchRequest::default()
    };
    launch(&b.server, &b.root, request.clone(), None)
        .await
        .unwrap();
    assert_eq!(
        code(remove(&b.server, &b.root, "tiny:1").await),
        "image.in-use"
    );
    stop(&b.server, &b.root, "s", false).await.unwrap();
    remove(&b.server, &b.root, &image.id.to_string())
        .await
        .unwrap();
    assert_eq!(kept(&b, 0).await, 0);
    assert_eq!(
        code(get(&b.server, &b.root, "tiny:1").await),
        "image.not-found"
    );
    assert_eq!(
        code(launch(&b.server, &b.root, request, None).await),
        "image.not-found"
    );
    assert_eq!(
        code(crate::actions::sessions::restart(&b.server, &b.root, "s").await),
        "image.not-found"
    );
}

#[tokio::test]
async fn a_name_moves_to_the_newer_image_and_the_old_one_stays_while_it_is_used() {
    let Some(b) = open("a_name_moves_to_the_newer_image_and_the_old_one_stays_while_it_is_used")
    else {
        return;
    };
    imported(&b, archive("tiny:1", "one"), None).await;
    let again = imported(&b, archive("tiny:1", "one"), None).await;
    assert_eq!(again.result.unwrap()["images"][0]["known"], true);
    let request = LaunchRequest {
        name: Some("s".into()),
        image: "tiny:1".into(),
        ..LaunchRequest::default()
    };
    launch(&b.server, &b.root, request, None).await.unwrap();
    imported(&b, archive("tiny:1", "two"), None).await;
    let both = names(&b).await;
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both[1].starts_with("tiny:1-was-"), "{both:?}");
    stop(&b.server, &b.root, "s", false).await.unwrap();
    remove(&b.server, &b.root, &both[1]).await.unwrap();
    imported(&b, archive("tiny:1", "three"), None).await;
    assert_eq!(names(&b).await, ["tiny:1"]);
    assert_eq!(kept(&b, 1).await, 1);
    imported(&b, archive("tiny:1", "three"), Some("other:2")).await;
    assert_eq!(names(&b).await, ["other:2", "tiny:1"]);
    remove(&b.server, &b.root, "tiny:1").await.unwrap();
    assert_eq!(kept(&b, 1).await, 1);
}

#[tokio::test]
async fn a_second_name_of_an_image_is_as_old_as_its_own_import() {
    let Some(b) = open("a_second_name_of_an_image_is_as_old_as_its_own_import") else {
        return;
    };
    imported(&b, archive("tiny:1", "one"), None).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let begun = b.server.clock().now();
    imported(&b, archive("tiny:1", "one"), Some("other:2")).await;
    let first = get(&b.server, &b.root, "tiny:1").await.unwrap();
    let second = get(&b.server, &b.root, "other:2").await.unwrap();
    assert_eq!(first.digest, second.digest);
    assert!(first.imported_at < begun && begun <= second.imported_at);
}

/// What an import stored has no row until it ends; to remove another image meanwhile leaves it alone.
#[tokio::test]
async fn an_image_that_is_being_imported_stays_when_another_is_removed() {
    let Some(b) = open("an_image_that_is_being_imported_stays_when_another_is_removed") else {
        return;
    };
    imported(&b, archive("tiny:1", "one"), None).await;
    let stored = b.server.image_store().unwrap();
    let path = b._directory.path().join("two.tar");
    std::fs::write(&path, archive("tiny:2", "two")).unwrap();
    let arriving = ArchiveImport {
        archive: Archive::at(&path).unwrap(),
        name: None,
        now: b.server.clock().now(),
        cancelled: None,
    };
    stored.import(arriving, &mut |_| ()).unwrap();
    let row = OperationRow::asked(
        b.server.clock().now(),
        IMAGE_IMPORT,
        b.root.subject.user,
        serde_json::Value::Null,
    );
    let written = b.server.catalog();
    written
        .write_now(Lane::Requests, "leave a row", move |rows| {
            rows.insert_operation(&row, "root")
        })
        .unwrap();
    remove(&b.server, &b.root, "tiny:1").await.unwrap();
    assert_eq!(stored.list().unwrap().len(), 2);
}

#[tokio::test]
async fn the_same_key_begins_one_import_also_when_its_upload_is_gone() {
    let Some(b) = open("the_same_key_begins_one_import_also_when_its_upload_is_gone") else {
        return;
    };
    let upload = uploaded(&b, &b.root, archive("tiny:1", "hello")).await;
    let begin = async || {
        let key = IdempotencyKey {
            key: "k1".into(),
            route: "POST /api/v1/images/import".into(),
            body_digest: [1; 32],
        };
        let source = ImportSource::Upload(upload);
        import_once(&b.server, &b.root, source, None, Some(key)).await
    };
    let first = begin().await.unwrap();
    over(&b, first.value.clone()).await;
    let again = begin().await.unwrap();
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(first.value.id, again.value.id);
    assert_eq!(again.value.state, OperationState::Succeeded);
}

#[tokio::test]
async fn an_archive_that_lies_fails_with_its_reason_and_leaves_nothing() {
    let Some(b) = open("an_archive_that_lies_fails_with_its_reason_and_leaves_nothing") else {
        return;
    };
    let mut lying = archive("tiny:1", "hello");
    let at = lying.windows(5).position(|part| part == b"hello").unwrap();
    lying[at] = b'j';
    let failed = imported(&b, lying, None).await;
    assert_eq!(failed.state, OperationState::Failed);
    let refusal = failed.refusal.unwrap();
    assert!(refusal.code.starts_with("image."), "{refusal:?}");
    assert_eq!(names(&b).await, Vec::<String>::new());
    assert_eq!(kept(&b, 0).await, 0);
    assert_eq!(uploads::list(&b.server, &b.root).await.unwrap(), []);
}

#[tokio::test]
async fn an_import_that_a_crash_broke_off_is_begun_again_at_the_next_start() {
    let Some(b) = open("an_import_that_a_crash_broke_off_is_begun_again_at_the_next_start") else {
        return;
    };
    let upload = uploaded(&b, &b.root, archive("tiny:1", "hello")).await;
    let input = ImportInput {
        source: ImportOrigin::Upload {
            id: upload.0,
            owner: b.root.subject.user.to_string(),
        },
        reference: None,
        file: String::new(),
        bundle: None,
    };
    // What a server leaves that died right after it began: an open row, and nobody at work on it.
    let row = OperationRow {
        id: OperationId::make(b.server.clock().now(), base::observe::random()),
        kind: IMAGE_IMPORT.to_owned(),
        user: b.root.subject.user,
        state: OperationState::Running,
        input: serde_json::to_value(&input).unwrap(),
        cancel: false,
        result: None,
        refusal: None,
        created_at: b.server.clock().now(),
        ended_at: None,
        generation: 1,
    };
    let id = row.id;
    b.server
        .catalog()
        .write_now(Lane::Requests, "leave a row", move |rows| {
            rows.insert_operation(&row, "root")
        })
        .unwrap();
    let settings = (*b.server.settings()).clone();
    let (root, directory) = (b.root, b._directory);
    drop(b.server);
    let server = Server::start(settings, base::observe::Clock::system()).unwrap();
    let b = Box1 {
        server,
        root,
        _directory: directory,
    };
    let row = operations::get(&b.server, &b.root, id).await.unwrap();
    let done = over(&b, row).await;
    assert_eq!(done.state, OperationState::Succeeded, "{done:?}");
    assert_eq!(names(&b).await, ["tiny:1"]);
}

#[tokio::test]
async fn uploads_resume_and_are_their_owners_alone() {
    let Some(b) = open("uploads_resume_and_are_their_owners_alone") else {
        return;
    };
    let user = new_user(
        rules::names::UserName::parse("boss").unwrap(),
        Role::Administrator,
        b.server.clock().now(),
    );
    let other = Caller {
        subject: rules::permissions::Subject {
            domain: rules::tenancy::DomainId::DEFAULT,
            user: user.id,
            grants: Role::Administrator.grants(),
            scopes: None,
        },
        ..b.root.clone()
    };
    let upload = create(&b.server, &b.root, 10, "x.tar", None).await.unwrap();
    let first = append(
        &b.server,
        &b.root,
        upload.id,
        0,
        Bytes::from_static(b"12345"),
    )
    .await
    .unwrap();
    assert_eq!(first.offset, 5);
    assert_eq!(head(&b.server, &b.root, upload.id).await.unwrap().offset, 5);
    assert_eq!(
        code(head(&b.server, &other, upload.id).await),
        "upload.not-found"
    );
    let piece = Bytes::from_static(b"123456");
    assert_eq!(
        code(append(&b.server, &b.root, upload.id, 3, piece.clone()).await),
        "upload.wrong-offset"
    );
    assert_eq!(
        code(append(&b.server, &b.root, upload.id, 5, piece).await),
        "upload.too-large"
    );
    let source = ImportSource::Upload(upload.id);
    assert_eq!(
        code(import(&b.server, &b.root, source.clone(), None).await),
        "upload.incomplete"
    );
    assert_eq!(
        code(import(&b.server, &other, source, None).await),
        "upload.not-found"
    );
    abort(&b.server, &b.root, upload.id).await.unwrap();
    assert_eq!(
        code(head(&b.server, &b.root, upload.id).await),
        "upload.not-found"
    );
    assert_eq!(
        code(create(&b.server, &b.root, 0, "x", None).await),
        "upload.empty"
    );
    assert_eq!(
        code(create(&b.server, &b.root, u64::MAX, "x", None).await),
        "upload.too-large"
    );
    assert_eq!(
        code(create(&b.server, &b.root, 1, "\u{202e}x", None).await),
        "upload.hidden-characters"
    );
}

#[tokio::test]
async fn images_are_written_by_administrators_and_paths_named_by_root_only() {
    let Some(b) = open("images_are_written_by_administrators_and_paths_named_by_root_only") else {
        return;
    };
    let mut user = b.root.clone();
    user.subject.grants = Role::User.grants();
    let mut remote = b.root.clone();
    remote.via = Via::Token {
        id: rules::names::TokenId(uuid::Uuid::from_u128(1)),
    };
    let path = ImportSource::Path("/nowhere/at/all.tar".into());
    for result in [
        code(import(&b.server, &user, path.clone(), None).await),
        code(remove(&b.server, &user, "tiny:1").await),
        code(create(&b.server, &user, 1, "x", None).await),
    ] {
        assert_eq!(result, "role.administrator-needed");
    }
    assert!(list(&b.server, &user).await.is_ok());
    for (caller, path, wanted) in [
        (&remote, "/etc/passwd", "image.path-denied"),
        (&b.root, "/nowhere/at/all.tar", "image.archive-missing"),
        (&b.root, "relative.tar", "image.path-relative"),
    ] {
        let source = ImportSource::Path(path.into());
        assert_eq!(
            code(import(&b.server, caller, source, None).await),
            wanted,
            "{path}"
        );
    }
    let source = ImportSource::Path("/etc/hostname".into());
    assert_eq!(
        code(import(&b.server, &b.root, source, Some("../x".into())).await),
        "image.reference-invalid"
    );
}
