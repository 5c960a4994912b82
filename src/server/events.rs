//! What changed, as streams hear it: the journal of event rows, resumed by sequence, and the bare
//! revision for those who only want to know that something did. Derived; stores nothing.

use rules::permissions::{Permission, Reach, Subject, heard, may};
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::catalog::events::EventRow;
use crate::{Failure, Server};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeEvent {
    /// Place in the journal; streams resume after it.
    pub sequence: u64,
    pub at: Timestamp,
    /// `sessions`, `images`, `users`, `nodes`, `operations`.
    pub topic: String,
    /// Id of the thing.
    pub object: String,
    /// Stable, dotted, such as `session.running`.
    pub code: String,
    /// A user's name, or the part of the server that did it.
    pub actor: String,
    /// State before, in a word; empty where there was none.
    pub before: String,
    /// State after, or the reason for it in a sentence.
    pub after: String,
}

/// What a stream says next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Change(ChangeEvent),
    /// The position asked for is no longer in the journal, or never was: read everything again. The
    /// stream goes on after this sequence.
    Reset(u64),
}

/// Changes read at once. Higher: more memory a stream. Lower: more reads while catching up.
const MAX_BATCH: u32 = 200;

/// One reader's place in the journal.
pub struct Subscription {
    server: Server,
    reach: Reach,
    revision: watch::Receiver<u64>,
    after: u64,
    reset: bool,
    waiting: std::collections::VecDeque<ChangeEvent>,
}

/// Opens the journal for a reader: after `since`, or from now on.
///
/// Users hear of their own sessions and operations, and of images and machines; administrators of
/// everything. Errors: what `sessions:read` refuses.
pub async fn subscribe(
    server: &Server,
    subject: &Subject,
    since: Option<u64>,
) -> Result<Subscription, Failure> {
    may(
        subject,
        Permission::SessionsRead,
        &subject.scope_of(Permission::SessionsRead),
    )?;
    // The receiver comes first: what is written from here on wakes it.
    let mut revision = server.catalog().revision();
    revision.mark_changed();
    let (first, newest) = server
        .catalog()
        .read_now("open the journal", |view| view.event_range())?;
    let after = since.unwrap_or(newest);
    let reset = after > newest || after + 1 < first;
    Ok(Subscription {
        server: server.clone(),
        reach: heard(subject),
        revision,
        after: if reset { newest } else { after },
        reset,
        waiting: std::collections::VecDeque::new(),
    })
}

/// Tells the revision of the newest commit that changed anything. Wakes for everything, also for
/// what the reader may not see.
pub fn revision(server: &Server) -> watch::Receiver<u64> {
    server.catalog().revision()
}

/// Wakes when measurements changed that stand in no row: what sessions use, what devices do.
pub fn measured(server: &Server) -> watch::Receiver<u64> {
    server.catalog().measured()
}

impl Subscription {
    /// Waits for what comes next; None once the server is gone. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<Option<Next>, Failure> {
        if std::mem::take(&mut self.reset) {
            return Ok(Some(Next::Reset(self.after)));
        }
        loop {
            if let Some(change) = self.waiting.pop_front() {
                return Ok(Some(Next::Change(change)));
            }
            if self.revision.changed().await.is_err() {
                return Ok(None);
            }
            let (after, reach) = (self.after, self.reach.clone());
            let (rows, looked) = self.server.catalog().read_now("read the journal", |view| {
                view.events_after(&reach, after, MAX_BATCH)
            })?;
            if rows.len() == MAX_BATCH as usize {
                // More is there already; no commit will say so again.
                self.revision.mark_changed();
            }
            self.after = looked;
            self.waiting.extend(rows.into_iter().map(change));
        }
    }
}

fn change(row: EventRow) -> ChangeEvent {
    ChangeEvent {
        sequence: row.sequence,
        at: row.at,
        topic: row.topic,
        object: row.object,
        code: row.code,
        actor: row.actor,
        before: row.before,
        after: row.after,
    }
}

#[cfg(test)]
mod tests {
    use rules::names::UserId;
    use rules::users::Role;

    use super::*;
    use crate::catalog::Lane;
    use crate::catalog::events::NewEvent;

    fn subject(user: UserId, role: Role) -> Subject {
        Subject {
            user,
            grants: role.grants(),
            domain: rules::tenancy::DomainId::DEFAULT,
            scopes: None,
        }
    }

    fn note(server: &Server, topic: &'static str, owner: Option<UserId>, code: &'static str) {
        server
            .catalog()
            .write_now(Lane::Requests, "note", move |rows| {
                rows.note(NewEvent {
                    actor: "test",
                    topic,
                    object: "x",
                    scope: owner.map_or(rules::tenancy::Scope::SITE, rules::tenancy::Scope::user),
                    code,
                    before: "",
                    after: "",
                })
            })
            .unwrap();
    }

    async fn code(stream: &mut Subscription) -> String {
        match stream.next().await.unwrap() {
            Some(Next::Change(change)) => change.code,
            Some(Next::Reset(_)) => "reset".to_owned(),
            None => "closed".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_stream_resumes_without_loss_and_shows_only_what_may_be_seen() {
        let server = Server::for_tests();
        let (mina, jae) = (
            UserId(uuid::Uuid::from_u128(1)),
            UserId(uuid::Uuid::from_u128(2)),
        );
        let user = subject(mina, Role::User);
        note(&server, "sessions", Some(mina), "one");
        let mut from_now = subscribe(&server, &user, None).await.unwrap();
        note(&server, "sessions", Some(jae), "other");
        note(&server, "users", None, "secret");
        note(&server, "images", None, "two");
        note(&server, "sessions", Some(mina), "three");
        let mut from_start = subscribe(&server, &user, Some(0)).await.unwrap();
        for wanted in ["one", "two", "three"] {
            assert_eq!(code(&mut from_start).await, wanted);
        }
        for wanted in ["two", "three"] {
            assert_eq!(code(&mut from_now).await, wanted);
        }
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), from_now.next());
        assert!(waits.await.is_err(), "nothing happened, yet something came");
        let boss = subject(jae, Role::Administrator);
        let mut all = subscribe(&server, &boss, Some(1)).await.unwrap();
        for wanted in ["other", "secret", "two", "three"] {
            assert_eq!(code(&mut all).await, wanted);
        }
    }

    #[tokio::test]
    async fn more_than_one_read_holds_comes_whole_and_in_order() {
        let server = Server::for_tests();
        let boss = subject(UserId(uuid::Uuid::from_u128(1)), Role::Administrator);
        for _ in 0..450 {
            note(&server, "sessions", None, "n");
        }
        let mut stream = subscribe(&server, &boss, Some(0)).await.unwrap();
        for wanted in 1..=450 {
            match stream.next().await.unwrap() {
                Some(Next::Change(change)) => assert_eq!(change.sequence, wanted),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_position_out_of_the_journal_is_answered_by_a_reset() {
        let server = Server::for_tests();
        let boss = subject(UserId(uuid::Uuid::from_u128(1)), Role::Administrator);
        note(&server, "sessions", None, "one");
        let mut future = subscribe(&server, &boss, Some(99)).await.unwrap();
        assert_eq!(future.next().await.unwrap(), Some(Next::Reset(1)));
        note(&server, "sessions", None, "two");
        assert_eq!(code(&mut future).await, "two");
    }
}
