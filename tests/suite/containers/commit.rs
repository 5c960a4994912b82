//! An image of a session: what a running session wrote becomes a layer, secrets are named before it does, and the next
//! session starts from it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use api::commits::CommitRequest;
use api::operations::{OperationState, OperationView};
use api::sessions::{LaunchRequest, SessionView};
use rules::names::ContainerName;
use rules::session::{SessionKind, SessionState};
use serde_json::Value;
use server::actions::{images, operations, sessions};
use server::{Server, access};

use super::ground::Ground;
use super::images::{executable, layout_of, member, until};
use super::whole::Whole;

/// A program that waits for signals, for ever.
pub(super) fn stay() -> Vec<u8> {
    // pause(), then again.
    executable(&[0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7])
}

/// What a session's root is on this machine, and the first of its ids.
pub(super) struct Inside {
    pub(super) root: PathBuf,
    base: u32,
}

fn inside(run: &Path, session: &SessionView) -> Option<Inside> {
    let name = ContainerName {
        session: session.id,
        incarnation: 1,
        index: 0,
    };
    let at = run.join("c").join(name.to_string());
    let read = |file: &str| -> Option<Value> {
        serde_json::from_slice(&fs::read(at.join(file)).ok()?).ok()
    };
    let pid = read("run.json")?["first"]["pid"].as_i64()?;
    let base = read("launch.json")?["order"]["ids"]["base"].as_u64()?;
    Some(Inside {
        root: format!("/proc/{pid}/root").into(),
        base: u32::try_from(base).expect("an id"),
    })
}

pub(super) async fn running(
    server: &Server,
    run: &Path,
    name: &str,
    image: &str,
) -> (SessionView, Inside) {
    let root = access::local_root(server);
    let request = LaunchRequest {
        name: Some(name.to_owned()),
        kind: SessionKind::Batch,
        image: image.to_owned(),
        ..LaunchRequest::default()
    };
    let launched = sessions::launch(server, &root, request, None).await;
    let launched = launched.expect("it is launched").sessions.remove(0);
    let seen = until("it runs", async || {
        let seen = sessions::get(server, &root, &launched.id.to_string()).await;
        let seen = seen.expect("it is there");
        assert!(seen.ended_at.is_none(), "{:?}", seen.reason);
        (seen.state == SessionState::Running).then_some(seen)
    })
    .await;
    let inside = inside(run, &seen).expect("it has a first process");
    (seen, inside)
}

pub(super) async fn over(server: &Server, begun: &OperationView) -> OperationView {
    let root = access::local_root(server);
    until("the work is over", async || {
        let seen = operations::get(server, &root, begun.id).await;
        let seen = seen.expect("it is there");
        (!seen.state.is_open()).then_some(seen)
    })
    .await
}

/// Promise (Images): An image of a session holds what the session wrote and removed, but no home, nothing that is
/// temporary and no file that looks like it holds a secret and was not accepted.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_wrote_is_in_the_image_that_is_made_of_it() {
    const NAME: &str = "what_a_session_wrote_is_in_the_image_that_is_made_of_it";
    let Some(whole) = Whole::begin(NAME, false) else {
        return;
    };
    let (server, places) = (whole.server.clone(), whole.places.clone());
    let at = |name: &str| whole.at(name);
    let root = access::local_root(&server);

    let mut layer = member("stay", &stay());
    layer.extend(member("old", b"of the base"));
    layer.resize(layer.len() + 1024, 0);
    layout_of(&at("layout"), &layer, "/stay");
    let from = images::ImportSource::Path(at("layout"));
    let begun = images::import(&server, &root, from, Some("base:1".into())).await;
    let imported = over(&server, &begun.expect("the import begins")).await;
    assert_eq!(imported.state, OperationState::Succeeded, "{imported:?}");

    let (first, place) = running(&server, &places.run, "first", "base:1").await;
    let write = |path: &str, text: &str| {
        let path = place.root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(&path, text).expect("written");
        chown(&path, Some(place.base + 7), Some(place.base + 8)).expect("given to the session");
    };
    write("opt/new", "kept");
    write("opt/.env", "PASSWORD=1");
    write("home/mina/note", "private");
    write("tmp/draft", "gone tomorrow");
    fs::remove_file(place.root.join("old")).expect("removed");

    let request = CommitRequest {
        reference: "tools:1".to_owned(),
        ..CommitRequest::default()
    };
    let id = first.id.to_string();
    let seen = sessions::preview_commit(&server, &root, &id, request.clone()).await;
    let seen = seen.expect("it is looked through");
    let named: Vec<&str> = seen.secrets.iter().map(|s| s.path.as_str()).collect();
    assert_eq!(named, ["/opt/.env"]);
    assert_eq!((seen.removed, seen.base.as_str()), (1, "base:1"));

    let begun = sessions::commit(&server, &root, &id, request.clone(), None).await;
    let refused = over(&server, &begun.expect("it begins").value).await;
    assert_eq!(refused.state, OperationState::Failed);
    let refusal = refused.refusal.expect("a reason");
    assert_eq!(refusal.code, "commit.secrets-found");
    assert!(refusal.text.contains("/opt/.env"), "{}", refusal.text);
    let known = images::list(&server, &root).await.expect("listed");
    assert_eq!(known.len(), 1, "nothing is kept: {known:?}");

    let request = CommitRequest {
        exclude: vec!["/opt/.env".to_owned()],
        ..request
    };
    let begun = sessions::commit(&server, &root, &id, request, None).await;
    let made = over(&server, &begun.expect("it begins").value).await;
    assert_eq!(made.state, OperationState::Succeeded, "{made:?}");
    let image = images::get(&server, &root, &seen.reference)
        .await
        .expect("it is there");
    assert_eq!(
        (image.owner, image.shared),
        (Some(root.subject.user), false)
    );
    assert_eq!(image.entrypoint, ["/stay"]);

    let (_, again) = running(&server, &places.run, "again", &seen.reference).await;
    let new = again.root.join("opt/new");
    assert_eq!(fs::read_to_string(&new).expect("it is there"), "kept");
    let owner = fs::metadata(&new).expect("it is there");
    assert_eq!((owner.uid() - again.base, owner.gid() - again.base), (7, 8));
    for gone in ["old", "opt/.env", "home/mina", "tmp/draft"] {
        assert!(!again.root.join(gone).exists(), "{gone}");
    }
    // The first one goes on: it was held still only while it was read.
    assert_eq!(
        fs::read_to_string(place.root.join("opt/new")).expect("it runs"),
        "kept"
    );

    for name in ["first", "again"] {
        sessions::stop(&server, &root, name, true)
            .await
            .expect("told to end");
        until("it ends", async || {
            let seen = sessions::get(&server, &root, name)
                .await
                .expect("it is there");
            seen.ended_at.is_some().then_some(())
        })
        .await;
    }
    let refused = sessions::preview_commit(
        &server,
        &root,
        &id,
        CommitRequest {
            reference: "tools:2".to_owned(),
            ..CommitRequest::default()
        },
    )
    .await;
    match refused {
        Err(server::Failure::Refusal(refusal)) => assert_eq!(refusal.code, "commit.not-running"),
        other => panic!("not refused: {other:?}"),
    }

    whole.end().await;
}

/// The next server lets a session go on that an earlier one held still to read it, when that one died meanwhile.
#[test]
fn a_session_that_was_read_when_its_server_died_goes_on() {
    const NAME: &str = "a_session_that_was_read_when_its_server_died_goes_on";
    let Some(mut ground) = Ground::lay(NAME) else {
        return;
    };
    let name = ground.start(&ground.shell("sleep 1000"));
    ground.running(&name);
    ground.runtime.pause(&name).expect("it stands still");
    let at = ground.directory.path().join("run/c").join(name.as_str());
    fs::write(at.join("read-for-image"), b"").expect("marked");
    ground.crash();
    ground.reopen();
    ground.running(&name);
    assert!(!ground.runtime.stands_still(&name));
    assert!(!at.join("read-for-image").exists());
    // Without the mark it stands still for another reason, and goes on standing.
    ground.runtime.pause(&name).expect("it stands still");
    ground.crash();
    ground.reopen();
    assert!(ground.runtime.stands_still(&name));
    ground.runtime.resume(&name).expect("it goes on");
}
