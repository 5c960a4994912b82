//! Live sessions as readers last read them: a row that was not written since need not be read and parsed
//! again, which is nearly every row of a long queue in every pass of the controller.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rules::names::SessionId;
use rules::session::Session;
use rules::world::SharedSessions;

/// Sessions kept at most. Higher: more memory while a long queue waits, about 1 KiB for each, which the snapshot of the
/// pages shares. Lower: passes over a longer queue read the rest of its rows each time.
const MAX_KEPT: usize = 16_384;
/// Bytes of command, variables and labels of one session that is kept. Higher: more memory. Lower: sessions with many
/// variables are read in every pass.
const MAX_KEPT_BYTES: usize = 4096;

/// Sessions in the order of the last list, each as of its generation. Every write of a row raises its generation, so a
/// row of the same generation is the same. Only committed rows may come in: what is rolled back
/// leaves a generation to be used again.
///
/// The list that was given last is kept itself where all of it may be kept. So a list that did not change costs one
/// visit a session, and one that grew at its end costs no copy unless somebody still looks at the former.
#[derive(Debug, Default)]
pub(super) struct LiveSessions(Mutex<SharedSessions>);

impl LiveSessions {
    /// The sessions of these ids and generations, in this order; `read` gives one that is not known
    /// as it is now, None where it is gone. Forgets all others. O(sessions).
    ///
    /// Errors: those of `read`; then nothing is known any more.
    pub(super) fn all<E>(
        &self,
        rows: impl Iterator<Item = Result<(SessionId, u64), E>>,
        mut read: impl FnMut(SessionId) -> Result<Option<Session>, E>,
    ) -> Result<SharedSessions, E> {
        let rows = rows.collect::<Result<Vec<_>, E>>()?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = known.iter().zip(&rows);
        let same = pairs
            .take_while(|(session, row)| (session.id, session.generation) == **row)
            .count();
        if same == rows.len() && same == known.len() {
            return Ok(known.clone());
        }
        let mut sessions = std::mem::take(&mut *known).into_vec();
        let moved = sessions.drain(same..).map(|session| (session.id, session));
        let mut moved: HashMap<SessionId, Session> = moved.collect();
        let mut all_kept = rows.len() <= MAX_KEPT;
        for (id, generation) in &rows[same..] {
            let known = moved.remove(id).filter(|s| s.generation == *generation);
            let Some(session) = known.map_or_else(|| read(*id), |s| Ok(Some(s)))? else {
                continue;
            };
            all_kept = all_kept && bytes(&session) <= MAX_KEPT_BYTES;
            sessions.push(session);
        }
        let sessions = SharedSessions::from(sessions);
        *known = match all_kept {
            true => sessions.clone(),
            false => {
                let small = sessions.iter().filter(|s| bytes(s) <= MAX_KEPT_BYTES);
                small.take(MAX_KEPT).cloned().collect()
            }
        };
        Ok(sessions)
    }
}

fn bytes(session: &Session) -> usize {
    let variables = session.spec.env.iter();
    let variables = variables.map(|(name, value)| name.len() + value.len());
    let command = session.spec.command.iter().map(String::len);
    command.chain(variables).sum::<usize>() + session.remarks.bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rules::names::{SessionName, UserId};
    use rules::resources::Demand;
    use rules::session::{SessionEnvironment, SessionKind, SessionSpec};
    use rules::units::Timestamp;

    use super::*;

    fn session(number: u128, generation: u64, bytes: usize) -> Session {
        let order = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["x".repeat(bytes)],
            env: BTreeMap::new(),
            demand: Demand::default(),
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let mut session = Session::launched(
            SessionId(uuid::Uuid::from_u128(number)),
            SessionName::parse("a").expect("a name"),
            UserId(uuid::Uuid::nil()),
            order,
            Timestamp::from_millis(0),
        );
        session.generation = generation;
        session
    }

    /// What is given for these rows, and which of them were read.
    fn look(live: &LiveSessions, rows: &[Session]) -> (Vec<Session>, Vec<u128>) {
        let mut read = Vec::new();
        let listed = rows.iter().map(|row| Ok::<_, ()>((row.id, row.generation)));
        let all = live.all(listed, |id| {
            read.push(id.0.as_u128());
            Ok(rows.iter().find(|row| row.id == id).cloned())
        });
        (all.expect("no row fails").into_vec(), read)
    }

    /// The list itself, of rows that are all known or can all be read.
    fn list(live: &LiveSessions, rows: &[Session]) -> SharedSessions {
        let listed = rows.iter().map(|row| Ok::<_, ()>((row.id, row.generation)));
        let read = |id| Ok(rows.iter().find(|row| row.id == id).cloned());
        live.all(listed, read).expect("no row fails")
    }

    #[test]
    fn a_list_that_did_not_change_is_shared_and_one_that_is_held_stays_as_it_is() {
        let live = LiveSessions::default();
        let mut rows: Vec<Session> = (0..3).map(|number| session(number, 1, 4)).collect();
        let first = list(&live, &rows);
        assert!(std::ptr::eq(first.as_ptr(), list(&live, &rows).as_ptr()));
        let before = rows.clone();
        rows[1] = session(1, 2, 8);
        rows.swap(0, 2);
        rows.push(session(3, 1, 4));
        assert_eq!(list(&live, &rows).into_vec(), rows);
        assert_eq!(first.into_vec(), before);
        rows.remove(1);
        assert_eq!(list(&live, &rows).into_vec(), rows);
        assert_eq!(list(&live, &[]).into_vec(), []);
    }

    #[test]
    fn a_row_is_read_again_once_it_was_written() {
        let live = LiveSessions::default();
        let mut rows = vec![
            session(1, 1, 4),
            session(2, 1, 4),
            session(3, 1, MAX_KEPT_BYTES + 1),
        ];
        assert_eq!(look(&live, &rows), (rows.clone(), vec![1, 2, 3]));
        assert_eq!(look(&live, &rows), (rows.clone(), vec![3]));
        rows[1] = session(2, 2, 8);
        assert_eq!(look(&live, &rows), (rows.clone(), vec![2, 3]));
        // One that left the list is forgotten.
        let gone = rows.remove(0);
        assert_eq!(look(&live, &rows), (rows.clone(), vec![3]));
        rows.insert(0, gone);
        assert_eq!(look(&live, &rows), (rows.clone(), vec![1, 3]));
    }

    #[test]
    fn a_longer_queue_is_given_whole() {
        let live = LiveSessions::default();
        let count = MAX_KEPT as u128 + 2;
        let rows: Vec<Session> = (0..count).map(|number| session(number, 1, 4)).collect();
        assert_eq!(look(&live, &rows).1.len(), rows.len());
        let (all, read) = look(&live, &rows);
        assert_eq!((all, read), (rows, vec![count - 2, count - 1]));
    }
}
