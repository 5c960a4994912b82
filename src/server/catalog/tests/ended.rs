//! Bounds of what ended sessions of one user keep, met at both edges, for every statement that writes rows.

use rules::session::Outcome;

use super::*;

/// What its counters say of a user, and what their rows are.
fn counted(catalog: &Catalog, owner: UserId) -> ((i64, i64), (i64, i64)) {
    let read = catalog.read_now("count", move |view| {
        let two = |sql: &str| {
            view.connection
                .query_row(sql, [owner.0.as_bytes()], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
        };
        Ok((
            two("select ended_rows, ended_bytes from user where id = ?1")?,
            two(
                "select count(*),
                        coalesce(sum(octet_length(command) + octet_length(env) + octet_length(labels)), 0)
                 from session
                 where owner = ?1 and state = 'ended'",
            )?,
        ))
    });
    read.unwrap()
}

fn end(catalog: &Catalog, id: SessionId, at: u64) {
    let written = catalog.write_now(Lane::Loops, "end it", move |rows| {
        let now = rows.now.plus_seconds(at);
        rows.change_session(id, None, "test", None, |session| {
            session.end(Outcome::Succeeded, Some(0), now);
            true
        })
    });
    assert_eq!(written.unwrap(), sessions::ConditionalWrite::Yes);
}

fn row(catalog: &Catalog, id: SessionId) -> Option<Session> {
    catalog.read_now("look", |view| view.session(id)).unwrap()
}

#[test]
fn counters_of_ended_sessions_follow_every_write() {
    let catalog = memory();
    let owner = owner(&catalog);
    let mut sessions = Vec::new();
    for name in ["a", "b", "c"] {
        let session = session(owner, name);
        insert(&catalog, &session).unwrap();
        sessions.push(session.id);
    }
    let agree = |rows| {
        let (kept, are) = counted(&catalog, owner);
        assert_eq!(kept, are);
        assert_eq!(are.0, rows);
    };
    agree(0);
    sessions.iter().for_each(|id| end(&catalog, *id, 1));
    agree(3);
    let id = sessions[0];
    let changed = catalog.write_now(Lane::Requests, "label, then begin again", move |rows| {
        rows.change_session(id, None, "test", None, |session| {
            let labels = &mut session.remarks.labels;
            labels.insert("long".into(), "x".repeat(200));
            true
        })?;
        rows.delete_session(sessions[1], "test")
    });
    changed.unwrap();
    agree(2);
    let changed = catalog.write_now(Lane::Requests, "begin again", move |rows| {
        rows.change_session(id, None, "test", None, |session| {
            session.begin_again(session.created_at);
            true
        })
    });
    changed.unwrap();
    agree(1);
}

#[test]
fn ended_sessions_of_a_user_keep_so_many_bytes_of_launch_documents() {
    let catalog = memory();
    let (mina, jae) = (owner(&catalog), owner(&catalog));
    let long = |owner, number: usize| {
        let mut long = session(owner, &format!("long-{number}"));
        // Commands lie as they are, in JSON: with the rest a little less than a mebibyte.
        long.spec.command = vec!["x".repeat((1 << 20) - 1_000)];
        insert(&catalog, &long).unwrap();
        long.id
    };
    let others = long(jae, 0);
    end(&catalog, others, 0);
    let hers: Vec<SessionId> = (0..65).map(|number| long(mina, number)).collect();
    for (at, id) in hers[..64].iter().enumerate() {
        end(&catalog, *id, at as u64);
    }
    let gone = |id: &SessionId| row(&catalog, *id).expect("no row goes").document_gone;
    assert!(!hers.iter().any(gone), "64 MiB are kept");
    end(&catalog, hers[64], 64);
    let lost: Vec<bool> = hers.iter().map(gone).collect();
    assert_eq!(lost.iter().position(|gone| !gone), Some(1), "{lost:?}");
    assert!(!gone(&others), "another's bytes are their own");
    let oldest = row(&catalog, hers[0]).unwrap();
    assert!(oldest.spec.command.is_empty() && oldest.spec.env.is_empty());
    assert_eq!(oldest.outcome(), Some(Outcome::Succeeded), "history stays");
    let (kept, are) = counted(&catalog, mina);
    assert_eq!(kept, are);
}

#[test]
fn the_oldest_of_fifty_thousand_ended_sessions_go_but_for_what_is_waited_for() {
    let catalog = memory();
    let owner = owner(&catalog);
    let needed = session(owner, "needed");
    insert(&catalog, &needed).unwrap();
    end(&catalog, needed.id, 0);
    let mut waiting = session(owner, "waiting");
    waiting.spec.depends_on = vec![needed.id];
    insert(&catalog, &waiting).unwrap();
    let columns = sessions::COLUMNS.join(", ");
    let values = columns
        .replacen("id, name", "randomblob(16), name || number", 1)
        .replace("ended_at", "ended_at + number");
    // One row less than are kept, with the one that is waited for.
    let sql = format!(
        "with recursive numbers(number) as (
             select 1 union all select number + 1 from numbers where number < 49999
         )
         insert into session ({columns})
         select {values}
         from session, numbers
         where session.id = ?1"
    );
    let written = catalog.write_now(Lane::Loops, "fill", move |rows| {
        Ok(rows.connection.execute(&sql, [needed.id.0.as_bytes()])?)
    });
    assert_eq!(written.unwrap(), 49_999);
    assert_eq!(counted(&catalog, owner).0.0, 50_000);
    let one_more = session(owner, "one-more");
    insert(&catalog, &one_more).unwrap();
    end(&catalog, one_more.id, 1_000);
    let (kept, are) = counted(&catalog, owner);
    assert_eq!((kept, are.0), (are, 50_001 - 200));
    assert!(
        row(&catalog, needed.id).is_some(),
        "a live session waits for it"
    );
    assert!(row(&catalog, one_more.id).is_some(), "it is the newest");
}
