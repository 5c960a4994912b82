//! First answers of acts that keep none inside their own commit: the same Idempotency-Key again gets the
//! first answer again and does nothing. What acts and answers in one commit (`once`) needs none of this.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use base::acts::Acts;
use rules::refusals;
use serde::{Deserialize, Serialize};

use super::{IdempotencyKey, own_key};
use crate::access::Caller;
use crate::catalog::Lane;
use crate::catalog::origin;
use crate::catalog::request_key::RequestKey;
use crate::{Failure, Server, ServerFault};

/// An answer as it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// None where it is kept nowhere: it held a secret, or was too large.
    pub body: Option<String>,
}

/// Keys whose first request is being answered: two at once must not act twice. Holds at most one for each
/// request under way.
pub(crate) struct UnderWay {
    marks: Mutex<BTreeSet<String>>,
    acts: Acts,
    /// Blinds digests of bodies that hold a password; drawn at each start and kept nowhere.
    blind: [u8; 32],
}

impl Default for UnderWay {
    fn default() -> Self {
        Self {
            marks: Mutex::default(),
            acts: Acts::default(),
            blind: base::observe::random(),
        }
    }
}

impl IdempotencyKey {
    /// The same key for a body that holds a password, whose plain digest must not be kept: who reads the
    /// catalog could try passwords against it. After a restart the key is refused and not repeated.
    pub fn blinded(mut self, server: &Server) -> Self {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &server.under_way().blind);
        let blinded = ring::hmac::sign(&key, &self.body_digest);
        self.body_digest.copy_from_slice(blinded.as_ref());
        self
    }
}

/// Leave to act under a key. Dropped without `keep`, it leaves the key free.
pub struct KeyPermit {
    server: Server,
    key: RequestKey,
    mark: String,
}

impl Drop for KeyPermit {
    fn drop(&mut self) {
        let under_way = &self.server.under_way().marks;
        let mut marks = under_way.lock().unwrap_or_else(PoisonError::into_inner);
        marks.remove(&self.mark);
    }
}

/// What a key means.
pub enum KeyUse {
    /// It was not used: act.
    Act(KeyPermit),
    /// It was answered before.
    Again(RecordedAnswer),
}

/// Runs what `caller` does under a key to its end, also when the request is gone: an act whose answer was not
/// kept is done again under the same key.
pub async fn complete<T: Send + 'static>(
    server: &Server,
    caller: &Caller,
    act: impl Future<Output = T> + Send + 'static,
) -> T {
    let user = caller.subject.user;
    server
        .under_way()
        .acts
        .complete(user, origin::carried(act))
        .await
}

/// Waits until every act under a key, and every change of files, has ended.
pub async fn ended(server: &Server) {
    server.under_way().acts.ended().await;
    server.folder_turns().ended().await;
}

/// Looks a key up, and takes it where it is free.
///
/// Errors: `idempotency.key-invalid`; `idempotency.key-reused` with another body; `idempotency.under-way`
/// while the first request is being answered.
pub fn first(server: &Server, caller: &Caller, key: IdempotencyKey) -> Result<KeyUse, Failure> {
    let Some(key) = own_key(caller, Some(key))? else {
        return Err(ServerFault::new("look a key up", "it was given").into());
    };
    let mark = format!("{} {} {}", key.principal, key.route, key.key);
    let taken = {
        let under_way = &server.under_way().marks;
        let mut marks = under_way.lock().unwrap_or_else(PoisonError::into_inner);
        marks.insert(mark.clone())
    };
    if !taken {
        return Err(refusals::idempotency_under_way().retry_after(1).into());
    }
    // From here on the turn gives the key back, whatever happens.
    let turn = KeyPermit {
        server: server.clone(),
        key,
        mark,
    };
    let now = server.clock().now();
    let known = server
        .catalog()
        .read_now("look for the first answer", |view| {
            view.answered(&turn.key, now)
        })?;
    match known {
        None => Ok(KeyUse::Act(turn)),
        Some(text) => {
            let answer = serde_json::from_str(&text)
                .map_err(|error| ServerFault::new("read the first answer", error))?;
            Ok(KeyUse::Again(answer))
        }
    }
}

impl KeyPermit {
    /// Keeps the answer, so that the key gives it again for a day.
    pub async fn keep(self, mut answer: RecordedAnswer) -> Result<(), Failure> {
        let written = |answer: &RecordedAnswer| {
            serde_json::to_string(answer)
                .map_err(|error| ServerFault::new("keep the first answer", error))
        };
        let mut text = written(&answer)?;
        if text.len() > crate::catalog::idempotency::MAX_ANSWER_BYTES {
            answer.body = None;
            text = written(&answer)?;
        }
        let key = self.key.clone();
        self.server
            .catalog()
            .write(Lane::Requests, "keep a first answer", move |rows| {
                // The act has its row.
                rows.mute_acts();
                rows.remember_answer(&key, &text)
            })
            .await
    }
}
