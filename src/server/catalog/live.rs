//! Live sessions as readers last read them: a row that was not written since need not be read and parsed
//! again, which is nearly every row of a long queue in every pass of the controller.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rules::names::SessionId;
use rules::session::Session;

/// Sessions kept at most. Higher: more memory while a long queue waits, about 1 KiB for each. Lower: passes over a
/// longer queue read the rest of its rows each time.
const MAX_KEPT: usize = 4096;
/// Bytes of command, variables and labels of one session that is kept. Higher: more memory. Lower: sessions with many
/// variables are read in every pass.
const MAX_KEPT_BYTES: usize = 4096;

/// Sessions by id, each as of its generation. Every write of a row raises its generation, so a row
/// of the same generation is the same. Only committed rows may come in: what is rolled back
/// leaves a generation to be used again.
#[derive(Debug, Default)]
pub(super) struct LiveSessions(Mutex<HashMap<SessionId, Session>>);

impl LiveSessions {
    /// The sessions of these ids and generations, in this order; `read` gives one that is not known
    /// as it is now, None where it is gone. Forgets all others. O(sessions).
    ///
    /// Errors: those of `read`.
    pub(super) fn all<E>(
        &self,
        rows: impl Iterator<Item = Result<(SessionId, u64), E>>,
        mut read: impl FnMut(SessionId) -> Result<Option<Session>, E>,
    ) -> Result<Vec<Session>, E> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *known);
        let mut sessions = Vec::with_capacity(before.len());
        for row in rows {
            let (id, generation) = row?;
            let same = before.remove(&id).filter(|s| s.generation == generation);
            let Some(session) = same.map_or_else(|| read(id), |s| Ok(Some(s)))? else {
                continue;
            };
            if known.len() < MAX_KEPT && bytes(&session) <= MAX_KEPT_BYTES {
                known.insert(id, session.clone());
            }
            sessions.push(session);
        }
        Ok(sessions)
    }
}

fn bytes(session: &Session) -> usize {
    let variables = session.spec.env.iter();
    let variables = variables.map(|(name, value)| name.len() + value.len());
    let labels = session.labels.iter();
    let labels = labels.map(|(name, value)| name.len() + value.len());
    let command = session.spec.command.iter().map(String::len);
    command.chain(variables).chain(labels).sum()
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
        (all.expect("no row fails"), read)
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
