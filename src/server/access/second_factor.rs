//! The second factor: codes that an app on a phone makes, and recovery codes for who lost it. Each code is taken in
//! the commit of what it permits, so that none works twice: not in two browsers at once, and not after a crash.

use std::net::IpAddr;

use rules::names::UserId;
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::User;

use super::attempts::{Attempt, KnownBrowser};
use super::ticket::{self, Ticket, TicketPurpose};
use super::totp::{self, TypedCode};
use super::{Caller, NewSignIn, SignInFrom, admit, repeated, suspended};
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Seconds between password and code. Longer: an open form of somebody who left is good for longer. Shorter: who
/// looks for their phone begins again.
const STEP_SECONDS: u64 = 300;
/// Seconds between the password and the first code of a new second factor.
const SET_UP_SECONDS: u64 = 900;
/// Seconds that a user without a second factor goes on after the site demands one, or after the account was made.
const GRACE_SECONDS: u64 = 3 * 86_400;

/// A code that was right a moment ago. It proves something once it is taken in a commit.
pub(crate) enum ProvenCode {
    Time { confirmed_at: Timestamp, step: u64 },
    Recovery([u8; 32]),
}

impl ProvenCode {
    /// Takes the code. Errors: `second-factor.replayed` where another request took it first.
    pub(crate) fn take(&self, rows: &Rows<'_>, user: &User) -> Result<(), Failure> {
        let taken = match self {
            Self::Time { confirmed_at, step } => rows.use_step(user.id, *confirmed_at, *step)?,
            Self::Recovery(hash) => rows.use_recovery_code(user.id, hash)?,
        };
        if !taken {
            return Err(replayed().into());
        }
        if let Self::Recovery(_) = self {
            let left = rows.recovery_codes_left(user.id)?;
            note(rows, user, "user.recovery-code-used", &left.to_string())?;
        }
        Ok(())
    }
}

/// Looks at a code of a user who has a second factor. Takes nothing yet.
///
/// Codes of time that are wrong are counted by the user alone, wherever they come from: six digits are few. So who
/// knows a password can make its user wait; a right recovery code never waits, and a `browser` that proved the factor
/// before has a count of its own.
///
/// Errors: `second-factor.wrong`, `second-factor.replayed` for a code that was taken, `sign-in.locked` while codes of
/// the user have to wait; `second-factor.none`.
pub(crate) async fn prove_code(
    server: &Server,
    user: &User,
    typed: &str,
    source: Option<IpAddr>,
    browser: Option<[u8; 16]>,
) -> Result<ProvenCode, Failure> {
    let wrong = || refusals::second_factor_wrong().at("/code");
    let typed = TypedCode::parse(typed).ok_or_else(wrong)?;
    let attempt = Attempt::of_code(server, user.name.as_str(), user.id, source, browser);
    let code = match typed {
        TypedCode::Time(code) => code,
        TypedCode::Recovery(hash) => {
            let known = server
                .catalog()
                .read_now("look for a recovery code", |view| {
                    view.has_recovery_code(user.id, &hash)
                })?;
            if known {
                return Ok(ProvenCode::Recovery(hash));
            }
            attempt.begin().await?;
            return Err(wrong().into());
        }
    };
    let _slowed = attempt.begin().await?;
    // Read after the try was counted: tries at the same time each see the step that the first one took.
    let factor = server
        .catalog()
        .read_now("read a second factor", |view| view.second_factor(user.id))
        .inspect_err(|_| attempt.undone())?;
    let Some(factor) = factor else {
        attempt.undone();
        return Err(refusals::second_factor_none().into());
    };
    let step = totp::step_of(&factor.secret, code, server.clock().now()).ok_or_else(wrong)?;
    if step <= factor.used_step {
        return Err(replayed().into());
    }
    attempt.forgiven();
    Ok(ProvenCode::Time {
        confirmed_at: factor.confirmed_at,
        step,
    })
}

/// The ticket of a user whose password, kept as `stored`, was right just now, or who came by the sign-in link of this
/// hash: the ticket carries it, and the link is taken with the code.
pub(super) fn second_step(
    server: &Server,
    user: &User,
    stored: &str,
    link: Option<&[u8; 32]>,
) -> String {
    let ends = server.clock().now().plus_seconds(STEP_SECONDS);
    let (purpose, whose) = (TicketPurpose::SecondStep, (user.id, ends));
    let body = link.map(<[u8; 32]>::as_slice).unwrap_or_default();
    ticket::issue(server, purpose, whose, body, stored.as_bytes())
}

/// Ends a sign-in that asked for a code.
///
/// Errors: `second-factor.late` for a ticket that ended, or whose password changed; those of a code;
/// `user.suspended`, `sign-in.address-refused`, `sign-in.too-many`, `sign-in-link.spent`.
pub async fn finish_sign_in(
    server: &Server,
    ticket: &str,
    code: &str,
    from: impl Into<SignInFrom<'_>>,
) -> Result<NewSignIn, Failure> {
    let from = from.into();
    let ticket = Ticket::read(ticket);
    let found = server.catalog().read_now("find a user", |view| {
        let Some(ticket) = &ticket else {
            return Ok(None);
        };
        let stored = view.password(ticket.user)?;
        let factor = view.second_factor_since(ticket.user)?;
        let found = view.user(ticket.user)?.zip(stored);
        Ok(found.map(|(user, stored)| FirstStep {
            user,
            stored,
            factor,
        }))
    })?;
    // A caller who knows an id writes no failures into another's acts: only a ticket of ours says whose it is.
    let owner = ticket
        .as_ref()
        .zip(found.as_ref())
        .filter(|(ticket, first)| {
            let purpose = TicketPurpose::SecondStep;
            ticket.is_signed(server, purpose, first.stored.as_bytes())
        })
        .map(|(_, first)| first.user.clone());
    let signed_in = match ticket.zip(found) {
        Some((ticket, first)) => take_second_step(server, &ticket, first, code, from).await,
        None => Err(refusals::second_factor_late().into()),
    };
    signed_in.inspect_err(|failure| repeated::sign_in_failed(server, owner.as_ref(), failure))
}

/// Whom a ticket is of, and what is kept of their proofs.
struct FirstStep {
    user: User,
    stored: String,
    factor: Option<Timestamp>,
}

async fn take_second_step(
    server: &Server,
    ticket: &Ticket,
    first: FirstStep,
    code: &str,
    from: SignInFrom<'_>,
) -> Result<NewSignIn, Failure> {
    let late = refusals::second_factor_late;
    let FirstStep {
        user,
        stored,
        factor,
    } = first;
    if !ticket.holds(server, TicketPurpose::SecondStep, stored.as_bytes()) {
        return Err(late().into());
    }
    let link = match ticket.body.as_slice() {
        [] => None,
        body => Some(<[u8; 32]>::try_from(body).map_err(|_| late())?),
    };
    if user.is_shut_out(server.clock().now()) {
        return Err(suspended().into());
    }
    super::from_own_network(&user, from.source)?;
    if !user.second_factor {
        // An administrator took it away meanwhile.
        return Err(late().into());
    }
    let device = from.device;
    let device =
        device.and_then(|device| KnownBrowser::read(server, device, user.id, factor, &stored));
    let browser = device.and_then(|device| device.of_codes());
    let code = prove_code(server, &user, code, Some(from.source), browser).await?;
    admit(server, user, from, move |rows, user| {
        if !super::still_proves(rows, user, &stored)? {
            return Err(refusals::second_factor_late().into());
        }
        code.take(rows, user)?;
        if let Some(link) = &link {
            super::sign_in_link::take(rows, user, link)?;
        }
        super::record_sign_in(rows, user)
    })
    .await
}

/// Notes since when the setting demands a second factor; to be called when settings were read. A request notes it too,
/// so what cannot be noted now costs nothing.
pub(crate) fn note_demand(server: &Server) {
    let since = server
        .catalog()
        .read_now("look at the demand of a second factor", |view| {
            view.second_factor_required_since()
        });
    if let Ok(since) = since {
        note_change(server, since);
    }
}

/// Notes in the background what the setting says, where it differs from what the installation has noted. A time to
/// come was of a clock that was wrong.
fn note_change(server: &Server, since: Option<Timestamp>) {
    let required = server.settings().requires_second_factor();
    let now = server.clock().now();
    if required != since.is_some() || since.is_some_and(|since| since > now) {
        server.catalog().write_later(
            Lane::Loops,
            "note the demand of a second factor",
            move |rows| rows.require_second_factor(required),
        );
    }
}

/// When a user without a second factor has to set one up; None where nothing demands it. `since` is what the
/// installation has noted of the setting.
pub(super) fn due(server: &Server, user: &User, since: Option<Timestamp>) -> Option<Timestamp> {
    note_change(server, since);
    if !server.settings().requires_second_factor() || user.second_factor {
        return None;
    }
    let now = server.clock().now();
    // A clock that was ahead must not put the demand off for years.
    let begun = since.unwrap_or(now).min(now);
    let made = Some(user.created_at).filter(|made| *made <= now);
    Some(begun.max(made.unwrap_or(begun)).plus_seconds(GRACE_SECONDS))
}

/// A second factor that is offered to a user and not theirs yet.
pub(crate) struct OfferedFactor {
    /// As people type it into an app.
    pub(crate) key: String,
    /// As an app reads it from a picture.
    pub(crate) address: String,
    pub(crate) ticket: String,
    pub(crate) ends_at: Timestamp,
}

/// Draws a second factor for the caller, whose password was right just now. Nothing is written.
pub(crate) fn offer(server: &Server, caller: &Caller, bound: &[u8]) -> OfferedFactor {
    let secret: [u8; totp::SECRET_BYTES] = base::observe::random();
    let ends_at = server.clock().now().plus_seconds(SET_UP_SECONDS);
    let whose = (caller.subject.user, ends_at);
    let ticket = ticket::issue(server, TicketPurpose::SetUp, whose, &secret, bound);
    offered(server, caller, &secret, ticket, ends_at)
}

/// The offer again of a ticket that still holds, for a form that was refused.
pub(crate) fn offer_again(
    server: &Server,
    caller: &Caller,
    text: &str,
    bound: &[u8],
) -> Option<OfferedFactor> {
    let ticket = held(server, caller.subject.user, text, bound)?;
    let ends = ticket.ends_at;
    Some(offered(server, caller, &ticket.body, text.to_owned(), ends))
}

fn offered(
    server: &Server,
    caller: &Caller,
    secret: &[u8],
    ticket: String,
    ends_at: Timestamp,
) -> OfferedFactor {
    let origins = server.settings().origins();
    let place = origins.first().map_or("", String::as_str);
    let place = place.split_once("://").map_or(place, |(_, host)| host);
    let account = format!("{}@{place}", caller.name);
    OfferedFactor {
        key: totp::base32(secret),
        address: totp::address(secret, "fardel", &account),
        ticket,
        ends_at,
    }
}

fn held(server: &Server, user: UserId, text: &str, bound: &[u8]) -> Option<Ticket> {
    Ticket::read(text)
        .filter(|ticket| ticket.user == user && ticket.body.len() == totp::SECRET_BYTES)
        .filter(|ticket| ticket.holds(server, TicketPurpose::SetUp, bound))
}

/// The secret of an offered factor, and the step whose code its user typed.
///
/// Errors: `second-factor.late` for a ticket that does not hold, `second-factor.wrong`.
pub(crate) fn accepted(
    server: &Server,
    user: UserId,
    ticket: &str,
    code: &str,
    bound: &[u8],
) -> Result<(Vec<u8>, u64), Refusal> {
    let ticket = held(server, user, ticket, bound).ok_or_else(refusals::second_factor_late)?;
    let step = match TypedCode::parse(code) {
        Some(TypedCode::Time(code)) => totp::step_of(&ticket.body, code, server.clock().now()),
        Some(TypedCode::Recovery(_)) | None => None,
    };
    // There are no recovery codes yet, or those of the factor that is to go.
    let step = step.ok_or_else(|| refusals::second_factor_first_wrong().at("/code"))?;
    Ok((ticket.body, step))
}

/// What a ticket of a set-up is bound to: the password, and the second factor that is to be replaced.
pub(crate) fn bound_to(view: &ReadTransaction<'_>, user: UserId) -> Result<Vec<u8>, Failure> {
    let since = view.second_factor_since(user)?;
    let since = since.map_or(-1, Timestamp::as_millis).to_be_bytes();
    let stored = view.password(user)?.unwrap_or_default();
    Ok([since.as_slice(), stored.as_bytes()].concat())
}

fn replayed() -> Refusal {
    refusals::second_factor_replayed().at("/code")
}

fn note(rows: &Rows<'_>, user: &User, code: &str, after: &str) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: user.name.as_str(),
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::domain(user.domain),
        code,
        before: "",
        after,
    })
}
