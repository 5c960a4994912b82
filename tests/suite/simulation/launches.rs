//! Launches through the product's own action, with a server that dies at their commits: a client
//! that hears nothing asks again with the same key, as the page, the CLI and a careful script do.

use std::sync::{Arc, Mutex};

use api::sessions::LaunchRequest;
use rules::units::Timestamp;
use server::Failure;
use server::actions::IdempotencyKey;
use server::actions::sessions;
use server::simulation::{Fate, Simulation};

use super::random::Random;
use super::run::{at_once, caller};

/// Launches a client makes.
const LAUNCHES: u64 = 150;

#[test]
fn a_death_at_its_commit_neither_loses_nor_doubles_a_launch() {
    let start = Timestamp::from_millis(1_790_000_000_000);
    let mut server = Simulation::open(start).expect("a catalog in memory opens");
    let kim = caller(server.user("kim", start).expect("an empty catalog"), "kim");
    let random = Arc::new(Mutex::new(Random::new(7)));
    let asked = Arc::clone(&random);
    server.before_commits(move |_| {
        let mut random = asked.lock().expect("no holder of the lock panics");
        match random.between(0, 5) {
            0 => Fate::DieBefore,
            1 => Fate::DieAfter,
            _ => Fate::Live,
        }
    });
    let (mut wanted, mut deaths, mut replays) = (0, 0, 0);
    for number in 0..LAUNCHES {
        let replicas = 1 + (number % 3) as u32;
        let request = LaunchRequest {
            replicas,
            ..LaunchRequest::default()
        };
        let key = IdempotencyKey {
            key: format!("launch-{number}"),
            route: "POST /api/v1/sessions".into(),
            body_digest: [number as u8; 32],
        };
        let answer = loop {
            let launched =
                sessions::launch(server.server(), &kim, request.clone(), Some(key.clone()));
            match at_once(launched) {
                Ok(answer) => break answer,
                Err(Failure::Fault(_)) => {
                    deaths += 1;
                    server.crash();
                }
                Err(Failure::Refusal(refusal)) => panic!("launch {number}: {refusal}"),
            }
        };
        assert_eq!(answer.sessions.len(), replicas as usize);
        replays += u64::from(answer.replayed);
        wanted += u64::from(replicas);
        for session in answer.sessions {
            let row = server.session(session.id).expect("rows can be read");
            assert!(row.is_some(), "{} was acknowledged and is gone", session.id);
        }
    }
    let world = server.world().expect("rows can be read");
    assert_eq!(world.sessions.len() as u64, wanted, "lost or doubled");
    assert!(
        deaths > 20 && replays > 5,
        "{deaths} deaths, {replays} replays"
    );
}
