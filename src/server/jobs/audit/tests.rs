//! Retention of the audit log.

use rules::audit::AuditCheckpoint;
use rules::tenancy::Scope;

use super::*;
use crate::catalog::audit::{ActingUser, CheckpointRow, NewAct};

fn act(server: &Server) {
    let clock = server.clock();
    clock.set(clock.now().plus_seconds(86_400));
    server
        .catalog()
        .write_now(Lane::Requests, "an act", |rows| {
            rows.record(NewAct {
                actor: ActingUser::Unauthenticated,
                act: "test.act",
                topic: "system",
                object: "x",
                scope: Scope::SITE,
                before: "",
                after: "",
                reason: "",
            })
        })
        .unwrap();
}

/// A checkpoint of the newest row, as signed today.
fn mark(server: &Server) {
    let (sequence, hash) = server
        .catalog()
        .read_now("newest", |view| view.newest_act())
        .unwrap();
    let at = server.clock().now();
    let told = AuditCheckpoint::new(server.installation_id(), sequence, &hash, at);
    let row = CheckpointRow {
        sequence,
        at,
        hash,
        statement: told.statement(),
        signature: vec![1],
    };
    server
        .catalog()
        .write_now(Lane::Loops, "a checkpoint", move |rows| {
            rows.put_checkpoint(&row)
        })
        .unwrap();
}

fn kept(server: &Server) -> (u64, u64, Vec<u64>) {
    server
        .catalog()
        .read_now("what is kept", |view| {
            let checkpoints = view.checkpoints_between(0, 100)?;
            Ok((
                view.oldest_act()?.0,
                view.newest_act()?.0,
                checkpoints.iter().map(|kept| kept.sequence).collect(),
            ))
        })
        .unwrap()
}

/// Rows of the audit log are forgotten only in front of a signed checkpoint, and the rest hangs on it.
#[tokio::test]
async fn the_oldest_acts_are_forgotten_behind_a_checkpoint_only() {
    let server = Server::for_tests();
    for _ in 0..5 {
        act(&server);
    }
    let days = u64::from(server.settings().audit_keep_days);
    let later = |more: u64| server.clock().now().plus_seconds(more * 86_400);
    // However old: nothing was signed.
    forget(&server, later(9 * days)).await.unwrap();
    assert_eq!(kept(&server), (1, 5, vec![]));
    mark(&server);
    // The newest row stays, so that the chain goes on.
    forget(&server, later(9 * days)).await.unwrap();
    assert_eq!(kept(&server), (1, 5, vec![5]));
    let hash = server
        .catalog()
        .read_now("hash", |view| view.hash_before(6))
        .unwrap();
    for _ in 0..3 {
        act(&server);
    }
    mark(&server);
    act(&server);
    // Not old enough for either, then for the first, then for both.
    forget(&server, later(days - 5)).await.unwrap();
    assert_eq!(kept(&server), (1, 9, vec![5, 8]));
    forget(&server, later(days - 3)).await.unwrap();
    assert_eq!(kept(&server), (6, 9, vec![5, 8]));
    let first = server
        .catalog()
        .read_now("oldest", |view| view.oldest_act())
        .unwrap();
    assert_eq!(first, (6, hash), "it hangs on the checkpoint");
    forget(&server, later(9 * days)).await.unwrap();
    assert_eq!(kept(&server), (9, 9, vec![8]));
    act(&server);
    assert_eq!(kept(&server).1, 10);
}

#[test]
fn a_checkpoint_is_due_each_day_also_after_the_clock_was_set_back() {
    let at = |hours: u64| Timestamp::from_millis(1_800_000_000_000).plus_seconds(hours * 3600);
    assert!(is_due(None, at(0)));
    for (newest, now, due) in [
        (0, 0, false),
        (0, 23, false),
        (0, 24, true),
        (2, 1, false),
        (48, 1, true),
    ] {
        assert_eq!(is_due(Some(at(newest)), at(now)), due, "{newest} {now}");
    }
}
