//! What forecasts are told of ended sessions: parts of limits by user, and who came a day or a week before.

use rules::run_history::RunGuess;
use rules::tenancy::DomainId;

use super::*;

/// Writes a session that came, ran and ended so many seconds ago.
fn ran(catalog: &Catalog, owner: UserId, name: &str, (came, started, ended): (i64, i64, i64)) {
    let made = session(owner, name);
    insert(catalog, &made).unwrap();
    let now = clock().now().as_millis();
    let ago = move |seconds: i64| now - seconds * 1_000;
    let written = catalog.write_now(Lane::Loops, "end it", move |rows| {
        Ok(rows.connection.execute(
            "update session
             set state = 'ended', outcome = 'succeeded', created_at = ?2, scheduled_at = ?3,
                 started_at = ?3, ended_at = ?4
             where id = ?1",
            (made.id.0.as_bytes(), ago(came), ago(started), ago(ended)),
        )?)
    });
    assert_eq!(written.unwrap(), 1);
}

#[test]
fn runs_of_those_who_wait_and_who_came_a_day_before_are_read() {
    const DAY: i64 = 86_400;
    let catalog = memory();
    let owner = owner(&catalog);
    let now = clock().now();
    let read = || {
        catalog
            .read_now("read", move |view| view.run_history(now))
            .unwrap()
    };
    // A minute is the limit, and each ran for a quarter of it.
    for number in 0..6 {
        let begun = DAY - 600 - number;
        ran(
            &catalog,
            owner,
            &format!("old-{number}"),
            (begun, begun, begun - 15),
        );
    }
    let domain = DomainId::DEFAULT;
    assert!(!read().knows(domain), "nothing of hers lives");
    insert(&catalog, &session(owner, "waits")).unwrap();
    let known = read();
    let elsewhere = DomainId(uuid::Uuid::from_u128(77));
    assert!(known.knows(domain) && !known.knows(elsewhere));
    assert_eq!(known.expected((domain, owner), 60, 0, RunGuess::Mean), 15);
    let coming = known.arrivals_after(now);
    assert_eq!(coming.len(), 6);
    assert!(
        coming
            .iter()
            .all(|one| one.owner == owner && one.limit == 60)
    );
    assert_eq!(coming[0].at.seconds_since(now), 600);
    // A busy day a week before is taken instead.
    for number in 0..20 {
        let begun = 7 * DAY - 1_200 - number;
        ran(
            &catalog,
            owner,
            &format!("week-{number}"),
            (begun, begun, begun - 15),
        );
    }
    let known = read();
    assert_eq!(known.arrivals_after(now).len(), 20);
    assert_eq!(known.arrivals_after(now)[0].at.seconds_since(now), 1_200);
}
