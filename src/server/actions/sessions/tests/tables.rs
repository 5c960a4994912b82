//! The table of sessions: its order, replicas in one row, counts, pages, and who sees what.

use super::*;
use crate::actions::sessions::table::{ReplicaEnds, TablePage, TableQuery, export, members, table};

async fn page(server: &Server, caller: &Caller, query: TableQuery) -> TablePage {
    let wanted = TableQuery {
        limit: query.limit.max(1),
        ..query
    };
    table(server, caller, &wanted).await.unwrap()
}

fn grouped(limit: u32) -> TableQuery {
    TableQuery {
        grouped: true,
        limit,
        ..TableQuery::default()
    }
}

fn rows(page: &TablePage) -> Vec<(&str, u64)> {
    let items = page.items.iter();
    items
        .map(|item| (item.session.name.as_str(), item.replicas))
        .collect()
}

/// One that runs, one that ended, three replicas and one more that wait.
async fn crowd(server: &Server, caller: &Caller) -> Vec<SessionView> {
    let runs = one(server, caller, named("alpha")).await.unwrap();
    carry_out(server, runs.id, None);
    let over = one(server, caller, named("omega")).await.unwrap();
    carry_out(server, over.id, Some(0));
    one(server, caller, named("beta")).await.unwrap();
    let several = LaunchRequest {
        replicas: 3,
        ..named("train")
    };
    launch(server, caller, several, None)
        .await
        .unwrap()
        .sessions
}

#[tokio::test]
async fn what_runs_comes_first_and_replicas_are_one_row() {
    let server = server();
    let mina = user(&server, "mina", Role::Administrator);
    let train = crowd(&server, &mina).await;
    let all = page(&server, &mina, grouped(50)).await;
    assert_eq!(
        rows(&all),
        [("alpha", 1), ("train-1", 3), ("beta", 1), ("omega", 1)]
    );
    assert_eq!((all.rows, all.sessions), (4, 6));
    assert!(all.items[1].why.is_some(), "what waits says why");
    let amounts = all.items[1].amounts.expect("they have amounts");
    assert_eq!(
        (amounts.cpu, amounts.memory, amounts.are_equal),
        (CpuShare(300), Bytes::gib(3), true)
    );
    assert_eq!(all.items[0].amounts, None, "one has its own");
    let second = TableQuery {
        offset: 2,
        ..grouped(2)
    };
    let second = page(&server, &mina, second).await;
    assert_eq!(rows(&second), [("beta", 1), ("omega", 1)]);
    // One of them starts: it leaves the row of those that wait.
    carry_out(&server, train[0].id, None);
    let other = train[2].id.to_string();
    resize(&server, &mina, &other, cores(50), None)
        .await
        .unwrap();
    let all = page(&server, &mina, grouped(50)).await;
    assert_eq!((all.rows, all.sessions), (5, 6));
    let several = all.items.iter().find(|item| item.replicas == 2);
    let amounts = several.and_then(|item| item.amounts);
    let amounts = amounts.expect("two still wait");
    assert_eq!((amounts.cpu, amounts.are_equal), (CpuShare(150), false));
    assert!(rows(&all).contains(&("train-1", 1)) && rows(&all).contains(&("train-2", 2)));
    let waiting = members(&server, &mina, &train[1].id.to_string(), true).await;
    assert_eq!(waiting.unwrap().len(), 2);
    // Asked for by their launch, each is a row.
    let launch = TableQuery {
        q: format!("replicas:{}", train[0].id),
        ..grouped(50)
    };
    assert_eq!(page(&server, &mina, launch).await.items.len(), 3);
}

#[tokio::test]
async fn launches_of_one_millisecond_are_rows_of_their_own() {
    let server = server();
    let mina = user(&server, "mina", Role::Administrator);
    // The clock of a test stands still.
    let moment = server.clock().now();
    let mut made = Vec::new();
    for name in ["train-7", "train-8"] {
        made.push(one(&server, &mina, named(name)).await.unwrap());
    }
    let sweep = LaunchRequest {
        replicas: 2,
        ..named("sweep")
    };
    let sweep = launch(&server, &mina, sweep, None).await.unwrap().sessions;
    let mut each = made.iter().chain(&sweep);
    assert!(each.all(|one| one.created_at == moment));
    let all = page(&server, &mina, grouped(50)).await;
    let mut shown = rows(&all);
    shown.sort_unstable();
    assert_eq!(shown, [("sweep-1", 2), ("train-7", 1), ("train-8", 1)]);
    assert_eq!((all.rows, all.sessions), (3, 4));
    for (first, members) in [(&made[0], 1), (&sweep[0], 2)] {
        let query = TableQuery {
            q: format!("replicas:{}", first.id),
            ..grouped(50)
        };
        let found = page(&server, &mina, query).await;
        assert_eq!(found.sessions, members, "{}", first.name);
    }
    let waiting = queue_page(&server, &mina, 1).await.unwrap().launches;
    let mut replicas: Vec<usize> = waiting.iter().map(|one| one.replicas).collect();
    replicas.sort_unstable();
    assert_eq!(replicas, [1, 1, 2]);
}

#[tokio::test]
async fn a_row_of_ended_replicas_tells_how_they_ended() {
    let server = server();
    let mina = user(&server, "mina", Role::Administrator);
    let train = crowd(&server, &mina).await;
    let ends = async |q: &str| {
        let query = TableQuery {
            q: q.to_owned(),
            ..grouped(50)
        };
        let all = page(&server, &mina, query).await;
        let found = all.items.into_iter().find(|item| {
            item.session.name.as_str().starts_with("train")
                && item.session.state == SessionState::Ended
        });
        let ends = found.map(|item| item.ends).unwrap_or_default();
        let told = |one: &ReplicaEnds| (one.outcome, one.ran, one.count);
        ends.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(ends("").await, [], "they wait");
    carry_out(&server, train[0].id, Some(0));
    assert_eq!(ends("").await, [], "one alone is a row of its own");
    for session in &train[1..] {
        stop(&server, &mina, &session.id.to_string(), false)
            .await
            .unwrap();
    }
    let all = [(Outcome::Stopped, false, 2), (Outcome::Succeeded, true, 1)];
    assert_eq!(ends("").await, all);
    assert_eq!(
        ends("outcome:stopped").await,
        all[..1],
        "as the filter says"
    );
}

#[tokio::test]
async fn the_table_sorts_by_what_its_columns_say() {
    let server = server();
    let mina = user(&server, "mina", Role::Administrator);
    crowd(&server, &mina).await;
    for (sort, first) in [
        ("name", "alpha"),
        ("-name", "train-3"),
        ("-ended_at", "omega"),
    ] {
        let wanted = TableQuery {
            sort: sort.into(),
            ..grouped(1)
        };
        let found = page(&server, &mina, wanted).await;
        assert_eq!(rows(&found), [(first, 1)], "{sort}");
        assert_eq!((found.rows, found.sessions), (6, 6), "{sort}");
    }
    let wrong = TableQuery {
        sort: "colour".into(),
        ..grouped(1)
    };
    assert_eq!(code(table(&server, &mina, &wrong).await), "sort.unknown");
}

#[tokio::test]
async fn a_user_sees_own_rows_and_no_replicas_of_others() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let train = crowd(&server, &mina).await;
    let theirs = page(&server, &jae, grouped(50)).await;
    assert_eq!(
        (theirs.rows, theirs.sessions, theirs.items.len()),
        (0, 0, 0)
    );
    let launch = TableQuery {
        q: format!("replicas:{}", train[0].id),
        ..grouped(50)
    };
    assert!(page(&server, &jae, launch.clone()).await.items.is_empty());
    assert!(export(&server, &jae, &launch).await.unwrap().is_empty());
    assert_eq!(export(&server, &mina, &launch).await.unwrap().len(), 3);
    let id = train[0].id.to_string();
    assert!(members(&server, &jae, &id, true).await.is_err());
    let failed = TableQuery {
        q: "outcome:succeeded".into(),
        ..grouped(50)
    };
    assert_eq!(rows(&page(&server, &mina, failed).await), [("omega", 1)]);
}

#[tokio::test]
async fn a_word_is_found_as_it_is_written_in_any_letter_case() {
    let server = server();
    let mina = user(&server, "mina", Role::Administrator);
    for (name, command) in [
        ("percent", "echo 100%done"),
        ("line", "echo under_LINE"),
        ("slash", r"echo back\slash"),
        ("plain", "echo 100 done underxline backslash"),
    ] {
        let request = LaunchRequest {
            command: vec!["sh".into(), "-c".into(), command.into()],
            ..named(name)
        };
        one(&server, &mina, request).await.unwrap();
    }
    // A backslash stands twice in the command's JSON, as it does in the word that finds it.
    for (word, found) in [
        ("0%D", "percent"),
        ("R_line", "line"),
        (r"k\\s", "slash"),
        ("UNDERX", "plain"),
    ] {
        let wanted = TableQuery {
            q: word.into(),
            ..grouped(50)
        };
        let all = page(&server, &mina, wanted).await;
        assert_eq!(rows(&all), [(found, 1)], "{word}");
    }
}

#[tokio::test]
async fn each_row_of_a_page_says_why_it_waits_however_long_the_queue_is() {
    let server = server();
    let mina = user(&server, "mina", Role::Administrator);
    let many = LaunchRequest {
        replicas: 300,
        ..named("sweep")
    };
    launch(&server, &mina, many, None).await.unwrap();
    let wanted = TableQuery {
        limit: 40,
        ..TableQuery::default()
    };
    let all = page(&server, &mina, wanted).await;
    assert_eq!(all.items.len(), 40);
    assert!(all.items.iter().all(|item| item.why.is_some()));
}

#[tokio::test]
async fn live_sessions_are_counted_by_whose_they_are() {
    let server = Server::for_tests();
    server.put_test_node("one");
    let root = crate::access::local_root(&server);
    for name in ["a", "b"] {
        one(&server, &root, named(name)).await.unwrap();
    }
    let snapshot = server.snapshot().await.unwrap();
    let [(scope, counts)] = snapshot.counts() else {
        panic!("{:?}", snapshot.counts());
    };
    assert_eq!(*scope, snapshot.world.sessions[0].scope());
    assert_eq!((counts.live(), counts.pending), (2, 2));
}

#[tokio::test]
async fn a_session_that_comes_changes_the_mark_and_a_node_that_is_heard_of_does_not() {
    let server = server();
    let empty = server.snapshot().await.unwrap().sessions_mark();
    server.catalog().heard(
        rules::names::NodeId(uuid::Uuid::nil()),
        Timestamp::from_millis(1),
    );
    let heard = server.snapshot().await.unwrap();
    assert_eq!(heard.sessions_mark(), empty);
    let root = crate::access::local_root(&server);
    let launched = launch(&server, &root, LaunchRequest::default(), None).await;
    launched.unwrap();
    let waits = server.snapshot().await.unwrap().sessions_mark();
    assert_ne!(waits, empty);
}
