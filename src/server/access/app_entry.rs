//! How a browser gets from the console into an app on an origin of its own. The console gives a ticket, which works once
//! and for seconds; the origin of the app trades it for a cookie that the box signed. The cookie names the sign-in that it
//! was made beside, and is worth as much as that one is. So no row and no memory is needed to know a browser again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::secret::SecretText;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rules::names::{SessionId, TokenId, UserId};
use rules::units::Timestamp;
use uuid::Uuid;

use super::{
    BrowserSessionId, Caller, Via, caller, from_own_network, is_aged, networks, secret, told,
};
use crate::catalog::users::IDLE_HOURS;
use crate::{Failure, Server};

/// How long a ticket works. Longer: one that was copied from a history is worth more. Shorter: a slow browser is refused.
const TICKET_SECONDS: u64 = 30;
/// Tickets that wait to be used. Higher: a flood of them takes memory.
const MAX_TICKETS: usize = 2_000;
/// The same of one user; with one more their oldest is of no use.
const MAX_TICKETS_OF_USER: usize = 20;
/// How long a cookie of an app works; one that is used is renewed. The sign-in behind it ends it sooner.
pub const APP_COOKIE_SECONDS: u64 = 12 * 3600;
/// The box's key signs tickets, cursors and devices too; these words begin like none of them does.
const WORDS: &[u8] = b"app entry: ";
/// Letters of the longest cookie that is read.
const MAX_COOKIE: usize = 200;

/// Leave to enter one app, as a ticket or a cookie proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppPass {
    pub user: UserId,
    pub via: Via,
    pub session: SessionId,
    /// The port of this machine that the app is opened at.
    pub port: u16,
    pub ends_at: Timestamp,
}

/// Tickets that were given and not used, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct AppTickets(Mutex<HashMap<[u8; 32], AppPass>>);

impl AppTickets {
    fn locked(&self) -> MutexGuard<'_, HashMap<[u8; 32], AppPass>> {
        // An entry is whole after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, hash: [u8; 32], pass: AppPass, now: Timestamp) {
        let mut tickets = self.locked();
        tickets.retain(|_, known| known.ends_at > now);
        let of_user = tickets.values().filter(|known| known.user == pass.user);
        let is_full = tickets.len() >= MAX_TICKETS;
        if is_full || of_user.count() >= MAX_TICKETS_OF_USER {
            let counted = |known: &AppPass| is_full || known.user == pass.user;
            let oldest = tickets
                .iter()
                .filter(|(_, known)| counted(known))
                .min_by_key(|(_, known)| known.ends_at)
                .map(|(hash, _)| *hash);
            if let Some(oldest) = oldest {
                tickets.remove(&oldest);
            }
        }
        tickets.insert(hash, pass);
    }

    fn take(&self, hash: &[u8; 32], now: Timestamp) -> Option<AppPass> {
        let pass = self.locked().remove(hash)?;
        (pass.ends_at > now).then_some(pass)
    }
}

/// A ticket of the caller's for the app at a port; None for root on the machine, whose leave cannot be proven again.
pub(crate) fn new_ticket(
    server: &Server,
    caller: &Caller,
    session: SessionId,
    port: u16,
) -> Option<SecretText> {
    if caller.via == Via::LocalRoot {
        return None;
    }
    let now = server.clock().now();
    let ticket = secret::draw("");
    let pass = AppPass {
        user: caller.subject.user,
        via: caller.via,
        session,
        port,
        ends_at: now.plus_seconds(TICKET_SECONDS),
    };
    server.app_tickets().put(secret::hash(&ticket), pass, now);
    Some(ticket)
}

/// What a ticket is good for, once. None for one that was used, is too old or was never given.
pub fn take_app_ticket(server: &Server, ticket: &str) -> Option<AppPass> {
    if ticket.len() != 43 {
        return None;
    }
    let hash = secret::hash(&SecretText::from(ticket));
    server.app_tickets().take(&hash, server.clock().now())
}

/// The value of a cookie that proves a pass for the next hours.
pub fn app_cookie(server: &Server, pass: &AppPass) -> Option<String> {
    let ends_at = server.clock().now().plus_seconds(APP_COOKIE_SECONDS);
    let (kind, proof) = match pass.via {
        Via::Browser { session } => (b'b', session.0),
        Via::Token { id } => (b't', id.0),
        Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => return None,
    };
    let mut bytes = vec![kind];
    bytes.extend(proof.as_bytes());
    bytes.extend(pass.user.0.as_bytes());
    bytes.extend(pass.session.0.as_bytes());
    bytes.extend(pass.port.to_be_bytes());
    bytes.extend(ends_at.as_millis().to_be_bytes());
    let signature = sign(server, &bytes);
    bytes.extend(signature);
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// What a cookie proves; None for one that the box did not sign, or that has ended.
pub fn read_app_cookie(server: &Server, cookie: &str) -> Option<AppPass> {
    if cookie.len() > MAX_COOKIE {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(cookie).ok()?;
    let (said, signature) = bytes.split_last_chunk::<32>()?;
    if !secret::same(signature, &sign(server, said)) {
        return None;
    }
    let (kind, rest) = said.split_first()?;
    let (proof, rest) = rest.split_first_chunk::<16>()?;
    let (user, rest) = rest.split_first_chunk::<16>()?;
    let (session, rest) = rest.split_first_chunk::<16>()?;
    let (port, ends_at) = rest.split_first_chunk::<2>()?;
    let proof = Uuid::from_bytes(*proof);
    let pass = AppPass {
        user: UserId(Uuid::from_bytes(*user)),
        via: match kind {
            b'b' => Via::Browser {
                session: BrowserSessionId(proof),
            },
            b't' => Via::Token { id: TokenId(proof) },
            _ => return None,
        },
        session: SessionId(Uuid::from_bytes(*session)),
        port: u16::from_be_bytes(*port),
        ends_at: Timestamp::from_millis(i64::from_be_bytes(ends_at.try_into().ok()?)),
    };
    (pass.ends_at > server.clock().now()).then_some(pass)
}

/// Who enters by a pass, as the sign-in or token behind it proves it now; None where that has ended.
///
/// Errors: `sign-in.address-refused`.
pub async fn by_app_pass(
    server: &Server,
    pass: &AppPass,
    source: IpAddr,
) -> Result<Option<Caller>, Failure> {
    let now = server.clock().now();
    let found = server
        .catalog()
        .read_now("find the sign-in of an app", |view| {
            let since = view.second_factor_required_since()?;
            Ok(match pass.via {
                Via::Browser { session } => {
                    view.browser_by_id(session.0)?.and_then(|(browser, user)| {
                        let rests = browser.used_at.plus_seconds(IDLE_HOURS * 3600) <= now;
                        let lives = browser.ends_at > now && !rests;
                        lives.then_some((user, None, since))
                    })
                }
                Via::Token { id } => view.token_by_id(id)?.and_then(|(token, user)| {
                    let lives = token.expires_at.is_none_or(|end| end > now);
                    let is_there = networks::admit(&token.networks, source);
                    (lives && is_there).then_some((user, Some(token.scopes), since))
                }),
                Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => None,
            })
        })?;
    let Some((user, scopes, since)) = found else {
        return Ok(None);
    };
    if user.is_shut_out(now) || user.id != pass.user {
        return Ok(None);
    }
    let must_change_password = match pass.via {
        Via::Browser { .. } => user.must_change_password || is_aged(server, &user),
        Via::Token { .. } | Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => {
            user.must_change_password
        }
    };
    let caller = Caller {
        must_change_password,
        ..caller(&user, scopes, pass.via, source, now)
    };
    let caller = told(caller.with_due(server, &user, since));
    from_own_network(&user, source)?;
    let must_set_up = caller.must_set_up_second_factor(now);
    Ok((!must_change_password && !must_set_up).then_some(caller))
}

fn sign(server: &Server, said: &[u8]) -> [u8; 32] {
    let key = server.catalog().founding().cursor_key;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let mut signature = [0; 32];
    signature.copy_from_slice(ring::hmac::sign(&key, &[WORDS, said].concat()).as_ref());
    signature
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::access::{set_up, setup_link};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    async fn boss(server: &Server) -> Caller {
        let setup = setup_link(server).unwrap();
        let signed_in = set_up(server, &setup, "boss", "correct horse battery", HERE).await;
        signed_in.unwrap().caller
    }

    fn session(number: u128) -> SessionId {
        SessionId(Uuid::from_u128(number))
    }

    #[tokio::test]
    async fn a_ticket_works_once_and_not_for_long() {
        let server = Server::for_tests();
        let caller = boss(&server).await;
        let ticket = new_ticket(&server, &caller, session(1), 8444).unwrap();
        let pass = take_app_ticket(&server, ticket.reveal()).unwrap();
        assert_eq!((pass.user, pass.port), (caller.subject.user, 8444));
        assert_eq!(take_app_ticket(&server, ticket.reveal()), None, "used");
        let late = new_ticket(&server, &caller, session(1), 8444).unwrap();
        let end = server.clock().now().plus_seconds(TICKET_SECONDS);
        server.clock().set(end);
        assert_eq!(take_app_ticket(&server, late.reveal()), None, "too old");
        assert_eq!(take_app_ticket(&server, "x"), None);
        let root = crate::access::local_root(&server);
        assert!(new_ticket(&server, &root, session(1), 8444).is_none());
    }

    #[tokio::test]
    async fn the_tickets_of_one_user_take_no_room_of_others() {
        let server = Server::for_tests();
        let caller = boss(&server).await;
        let made: Vec<SecretText> = (0..=MAX_TICKETS_OF_USER)
            .map(|number| {
                server.clock().set(server.clock().now().plus_seconds(1));
                let port = u16::try_from(number).unwrap();
                new_ticket(&server, &caller, session(1), port).unwrap()
            })
            .collect();
        assert_eq!(
            take_app_ticket(&server, made[0].reveal()),
            None,
            "the oldest gave way"
        );
        assert!(take_app_ticket(&server, made[1].reveal()).is_some());
        let pass = |number: u128| AppPass {
            user: UserId(Uuid::from_u128(number)),
            via: caller.via,
            session: session(1),
            port: 1,
            ends_at: server.clock().now().plus_seconds(TICKET_SECONDS),
        };
        for number in 0..u128::try_from(MAX_TICKETS).unwrap() {
            let mut hash = [0; 32];
            hash[..16].copy_from_slice(&number.to_be_bytes());
            server
                .app_tickets()
                .put(hash, pass(number), server.clock().now());
        }
        assert_eq!(server.app_tickets().locked().len(), MAX_TICKETS);
    }

    #[tokio::test]
    async fn a_cookie_that_was_touched_proves_nothing() {
        let server = Server::for_tests();
        let caller = boss(&server).await;
        let ticket = new_ticket(&server, &caller, session(1), 8444).unwrap();
        let pass = take_app_ticket(&server, ticket.reveal()).unwrap();
        let cookie = app_cookie(&server, &pass).unwrap();
        let read = read_app_cookie(&server, &cookie).unwrap();
        assert_eq!(
            (read.via, read.session, read.port),
            (pass.via, pass.session, 8444)
        );
        for place in 0..cookie.len() {
            let mut changed = cookie.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(read_app_cookie(&server, &changed), None, "{place}");
        }
        for cut in [0, 1, 42, 43, cookie.len() - 1] {
            assert_eq!(read_app_cookie(&server, &cookie[..cut]), None, "{cut}");
        }
        let entered = by_app_pass(&server, &read, HERE).await.unwrap();
        assert_eq!(entered.unwrap().name, caller.name);
        crate::access::sign_out(&server, &caller).await.unwrap();
        assert_eq!(by_app_pass(&server, &read, HERE).await.unwrap(), None);
        let end = server.clock().now().plus_seconds(APP_COOKIE_SECONDS);
        server.clock().set(end);
        assert_eq!(read_app_cookie(&server, &cookie), None, "too old");
    }
}
