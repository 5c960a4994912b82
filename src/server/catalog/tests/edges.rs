//! Bounds of the catalog's own queues, connections and rows, each met at its edge.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::thread;

use super::*;

/// A row of its own, so that its commit is one.
fn remark(rows: &Rows<'_>) -> Result<(), Failure> {
    rows.note(events::NewEvent {
        actor: "test",
        topic: "sessions",
        object: "x",
        scope: rules::tenancy::Scope::SITE,
        code: "test",
        before: "",
        after: "",
    })
}

/// Keeps the writer busy until the sender is dropped; comes back once it is.
fn hold(catalog: &Catalog, until: Receiver<()>) {
    let (begun, begins) = channel();
    catalog.write_later(Lane::Requests, "hold", move |rows| {
        begun.send(()).expect("the test waits for it");
        let _ = until.recv();
        remark(rows)
    });
    begins.recv().expect("the writer takes it");
}

#[test]
fn so_many_requests_wait_for_the_disk_and_so_many_share_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let noted = || {
        let all = catalog.read_now("count", |view| view.event_range());
        all.unwrap().1
    };
    let (before, none) = (*catalog.revision().borrow(), noted());
    let (release, until) = channel();
    hold(&catalog, until);
    for (lane, most) in [(Lane::Requests, 4096), (Lane::Loops, 256)] {
        for _ in 0..most {
            catalog.write_later(lane, "remark", remark);
        }
        let refused = catalog.write_now(lane, "one more", remark);
        assert_eq!(code(refused), "server.busy", "{lane:?}");
    }
    drop(release);
    // The last of the loops comes last; no request that waited was lost.
    while noted() - none < 1 + 4096 + 256 {
        thread::sleep(std::time::Duration::from_millis(5));
    }
    // Rows are there a moment before their commit is told.
    drop(catalog.write_now(Lane::Requests, "nothing", |_| Ok(())));
    // The held one; 16 commits of 256 users and two loops each; the other 224 loops, two by two.
    assert_eq!(*catalog.revision().borrow() - before, 1 + 16 + 112);
}

#[test]
fn four_read_at_once_and_the_next_waits() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Passed by four together, so it would never be by three.
    let four = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                catalog
                    .read_now("read", |_| {
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        four.wait();
                        thread::sleep(std::time::Duration::from_millis(20));
                        inside.fetch_sub(1, Ordering::SeqCst);
                        Ok(())
                    })
                    .unwrap();
            });
        }
    });
    assert_eq!(most.into_inner(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lists_are_read_at_once_and_the_next_waits() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let two = Arc::new(Barrier::new(2));
    let reads: Vec<_> = (0..8)
        .map(|_| {
            let catalog = catalog.clone();
            let (inside, most, two) = (inside.clone(), most.clone(), two.clone());
            tokio::spawn(async move {
                let read = catalog.read("list", move |_| {
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    two.wait();
                    thread::sleep(std::time::Duration::from_millis(20));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                });
                read.await.unwrap();
            })
        })
        .collect();
    for read in reads {
        read.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[test]
fn an_answer_is_kept_for_a_day() {
    let catalog = memory();
    let key = request_key::RequestKey {
        principal: owner(&catalog),
        route: "POST /x".to_owned(),
        key: "k".to_owned(),
        digest: [0; 32],
    };
    let kept = key.clone();
    catalog
        .write_now(Lane::Requests, "remember", move |rows| {
            rows.remember_answer(&kept, "x")
        })
        .unwrap();
    let begun = catalog.clock().now();
    let known = |after: u64| {
        let now = begun.plus_seconds(after);
        let read = catalog.read_now("look", |view| view.answered(&key, now));
        read.unwrap().is_some()
    };
    assert!(known(86_399) && !known(86_400));
    let swept = |after: u64| {
        catalog.clock().set(begun.plus_seconds(after));
        let swept = catalog.write_now(Lane::Loops, "forget", |rows| rows.forget_answers());
        swept.unwrap()
    };
    assert_eq!((swept(86_399), swept(86_400)), (0, 1));
}

#[test]
fn what_was_rolled_back_is_no_live_session() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = on_disk(&directory);
    let written = session(owner(&catalog), "a");
    insert(&catalog, &written).unwrap();
    let live = || {
        let read = catalog.read_now("live sessions", |view| view.live_sessions());
        read.unwrap().into_vec()
    };
    assert_eq!(live(), std::slice::from_ref(&written));
    let change = |desired: DesiredState, fails: bool| {
        let result = catalog.write_now(Lane::Requests, "change", move |rows| {
            rows.edit_session(written.id, "mina", None, |row| {
                row.desired = desired;
                Ok(true)
            })?;
            // As an act does that looks at all rows before it refuses.
            let seen = rows.world()?.sessions[0].desired;
            assert_eq!(seen, desired);
            match fails {
                true => Err(Refusal::from_parts(
                    rules::refusal::RefusalKind::Invalid,
                    "test.refused".into(),
                    "It is refused.".into(),
                    String::new(),
                )
                .into()),
                false => Ok(()),
            }
        });
        assert_eq!(result.is_err(), fails);
    };
    change(DesiredState::Kill, true);
    assert_eq!(live()[0].desired, DesiredState::Run);
    change(DesiredState::Stop, false);
    let after = live();
    assert_eq!(
        (after[0].desired, after[0].generation),
        (DesiredState::Stop, 2)
    );
    let row = catalog.read_now("read", |view| view.session(after[0].id));
    assert_eq!(row.unwrap().as_ref(), after.first());
}
