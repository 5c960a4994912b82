//! Rows of connections: what is said again takes the place of what was said before, and of many hosts the first stay.

use rules::egress::{EgressEnd, EgressOutcome, EgressReport, EgressRow};

use super::*;

fn row(host: &str, outcome: EgressOutcome, count: u64) -> EgressRow {
    EgressRow {
        host: host.to_owned(),
        port: 443,
        outcome,
        count,
        sent: count * 10,
        received: 0,
        last_at: Timestamp::from_millis(1_000),
    }
}

#[test]
fn so_many_hosts_of_a_session_are_written() {
    let catalog = memory();
    let owner = owner(&catalog);
    let made = session(owner, "a");
    insert(&catalog, &made).unwrap();
    let (id, container) = (made.id, made.container());
    let told = |rows: Vec<EgressRow>| {
        let report = EgressReport {
            container,
            rows,
            ends: Vec::new(),
        };
        let written = catalog.write_now(Lane::Requests, "tell", move |rows| {
            rows.put_connections(&report)?;
            rows.connections_of(id)
        });
        written.unwrap()
    };
    let kept = told(vec![
        row("db", EgressOutcome::Opened, 2),
        row("evil.example", EgressOutcome::NotListed, 1),
    ]);
    assert_eq!(kept.len(), 2);
    // A relay that was restarted counts from zero.
    let kept = told(vec![row("db", EgressOutcome::Opened, 1)]);
    let db = kept.iter().find(|one| one.row.host == "db").unwrap();
    assert_eq!((db.row.count, db.row.sent), (2, 20));
    let kept = told(vec![row("db", EgressOutcome::Opened, 5)]);
    assert!(kept.iter().any(|one| one.row.count == 5));
    for part in 0..10 {
        let hosts = (0..10).map(|number| format!("h{part}-{number}.example"));
        let rows = hosts.map(|host| row(&host, EgressOutcome::NotListed, 1));
        told(rows.collect());
    }
    let kept = told(vec![row("db", EgressOutcome::Opened, 6)]);
    assert_eq!(
        kept.len(),
        33,
        "refused tries leave room for what is opened"
    );
    assert!(
        kept.iter().any(|one| one.row.count == 6),
        "a known row goes on"
    );
    for part in 0..5 {
        let hosts = (0..10).map(|number| format!("o{part}-{number}.example"));
        let rows = hosts.map(|host| row(&host, EgressOutcome::Opened, 1));
        told(rows.collect());
    }
    let kept = told(Vec::new());
    assert_eq!(kept.len(), 64);
    // Its next start has room of its own.
    let mut next = container;
    next.incarnation += 1;
    let report = EgressReport {
        container: next,
        rows: vec![row("db", EgressOutcome::Opened, 1)],
        ends: Vec::new(),
    };
    let written = catalog.write_now(Lane::Requests, "tell", move |rows| {
        rows.put_connections(&report)?;
        rows.connections_of(id)
    });
    let kept = written.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].incarnation, next.incarnation);
    // A session that is gone has none.
    let other = EgressReport {
        container: session(owner, "b").container(),
        rows: vec![row("db", EgressOutcome::Opened, 1)],
        ends: vec![end("db", 1)],
    };
    let written = catalog.write_now(Lane::Requests, "tell", move |rows| {
        rows.put_connections(&other)
    });
    assert!(written.is_ok());
}

fn end(host: &str, number: u64) -> EgressEnd {
    EgressEnd {
        number,
        host: host.to_owned(),
        port: 443,
        sent: number,
        received: 0,
        began_at: Timestamp::from_millis(1_000),
        ended_at: Timestamp::from_millis(3_500),
    }
}

#[test]
fn each_connection_that_ended_is_one_event_up_to_a_thousand_of_a_session() {
    let catalog = memory();
    let made = session(owner(&catalog), "a");
    insert(&catalog, &made).unwrap();
    let (id, container) = (made.id, made.container());
    let told = |incarnation: u32, ends: Vec<EgressEnd>| -> Vec<String> {
        let mut container = container;
        container.incarnation += incarnation;
        let report = EgressReport {
            container,
            rows: vec![row("db", EgressOutcome::Opened, 1)],
            ends,
        };
        let written = catalog.write_now(Lane::Requests, "tell", move |rows| {
            rows.put_connections(&report)?;
            let mut statement = rows.connection.prepare(
                "select after from event
                 where object = ?1 and code = 'session.connection-ended'
                 order by sequence",
            )?;
            let all = statement.query_map([id.to_string()], |row| row.get::<_, String>(0))?;
            Ok(all.collect::<Result<Vec<String>, _>>()?)
        });
        written.unwrap()
    };
    let first = "db:443 sent=7 received=0 seconds=2";
    assert_eq!(told(0, vec![end("db", 7)]), [first]);
    // Said again, beside one more; a host without a row has none.
    let said = told(0, vec![end("db", 7), end("gone", 8), end("db", 9)]);
    assert_eq!(said, [first, "db:443 sent=9 received=0 seconds=2"]);
    // The next start goes on, and the end of an old one that comes late is not told twice.
    assert_eq!(told(1, vec![end("db", 9), end("db", 10)]).len(), 3);
    for part in 1..40 {
        let all = (0..32).map(|number| end("db", part * 100 + number));
        told(1, all.collect());
    }
    assert_eq!(told(1, vec![end("db", 9_999)]).len(), 1_000);
    // A later start takes the room of their rows: what was told of them counts still.
    let mut next = container;
    next.incarnation += 2;
    let hosts = (0..64).map(|number| row(&format!("h{number}"), EgressOutcome::Opened, 1));
    let report = EgressReport {
        container: next,
        rows: hosts.collect(),
        ends: vec![end("h1", 10_000)],
    };
    let written = catalog.write_now(Lane::Requests, "tell", move |rows| {
        rows.put_connections(&report)
    });
    written.unwrap();
    assert_eq!(told(2, vec![end("h2", 10_001)]).len(), 1_000);
}

#[test]
fn a_network_survives_the_row_of_its_session() {
    let catalog = memory();
    let mut made = session(owner(&catalog), "a");
    made.egress = Some(rules::egress::SessionEgress {
        mode: rules::egress::NetworkMode::List,
        targets: vec![rules::egress::EgressTarget::parse("db=10.1.2.3:5432").unwrap()],
        refused: Vec::new(),
    });
    insert(&catalog, &made).unwrap();
    let id = made.id;
    let read = catalog.read_now("look", move |view| view.session(id));
    assert_eq!(read.unwrap().unwrap().egress, made.egress);
}
