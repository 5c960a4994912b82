//! What a self-test leaves whose server died: its row says so, and its sessions end. How one runs is shown in
//! `tests/suite/gpu/self_test.rs`.

use api::operations::OperationState;
use serde_json::json;

use super::*;
use crate::access::local_root;
use crate::actions::operations;
use crate::catalog::Lane;
use crate::catalog::jobs::OperationRow;

fn start(directory: &tempfile::TempDir) -> Server {
    let settings = base::settings::Settings {
        data: directory.path().to_path_buf(),
        ..(*Server::for_tests().settings()).clone()
    };
    Server::start(settings, base::observe::Clock::system()).unwrap()
}

#[tokio::test]
async fn a_self_test_of_a_server_that_died_ends_with_its_reason_and_its_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory);
    server.put_test_node("fardel-01");
    let root = local_root(&server);
    let input = json!({"device": "GPU-1", "image": "host"});
    let row = OperationRow::asked(server.clock().now(), GPU_TEST, root.subject.user, input);
    let id = row.id;
    server
        .catalog()
        .write_now(Lane::Requests, "leave a row", move |rows| {
            rows.insert_operation(&row, "root")?;
            rows.begin_operation(row.id)
        })
        .unwrap();
    for (name, labels) in [
        ("its-own", [(LABEL.to_owned(), id.to_string())].into()),
        ("another", [(LABEL.to_owned(), "another".to_owned())].into()),
    ] {
        let request = LaunchRequest {
            name: Some(name.to_owned()),
            image: "host".to_owned(),
            labels,
            ..LaunchRequest::default()
        };
        sessions::launch(&server, &root, request, None)
            .await
            .unwrap();
    }
    drop(server);

    let server = start(&directory);
    let begun = Instant::now();
    let ended = loop {
        let now = operations::get(&server, &root, id).await.unwrap();
        if !now.state.is_open() {
            break now;
        }
        assert!(begun.elapsed() < START_TIMEOUT, "{now:?}");
        tokio::time::sleep(LOOK).await;
    };
    assert_eq!(ended.state, OperationState::Failed);
    assert_eq!(ended.refusal.unwrap().code, "gpu.test-interrupted");
    let live = server
        .catalog()
        .read_now("look", |view| view.live_sessions())
        .unwrap();
    let names: Vec<String> = live.iter().map(|row| row.name.to_string()).collect();
    // One that waits is over as soon as it shall end.
    assert_eq!(names, ["another"]);
}
