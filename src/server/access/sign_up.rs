//! Strangers who ask for an account of a domain that lets them. The answer never tells which names and addresses there are:
//! a request for one that is taken is kept as every other, and who decides on it sees that.

use std::net::IpAddr;

use api::secret::SecretText;
use rules::names::{EmailAddress, SignUpId, UserName};
use rules::refusals;
use rules::sign_up::{SignUpRule, note};
use rules::tenancy::{Domain, Scope};
use rules::users::full_name;

use super::attempts::{self, Attempt};
use super::password::{self, PasswordRules};
use crate::catalog::events::NewEvent;
use crate::catalog::sign_ups::SignUpRow;
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server};

/// Requests of one domain, waiting and declined; the oldest declined one makes room. Higher: an administrator reads more
/// invented ones. Lower: a class that asks on one day is turned away.
const MAX_REQUESTS: usize = 200;
/// Requests that wait from one address, or from one network of IPv6. Higher: one machine fills the list. Lower: a class behind
/// one address is turned away.
const MAX_OF_ADDRESS: usize = 20;

/// What a stranger typed.
pub struct NewSignUp {
    /// Name of the domain; empty where only one is open.
    pub domain: String,
    pub name: String,
    pub full_name: String,
    pub email: String,
    pub password: SecretText,
    /// What they say about themselves.
    pub note: String,
}

/// Names and titles of the domains that let strangers ask, by name; empty where none does.
pub fn open_for_sign_up(server: &Server) -> Result<Vec<(String, String)>, Failure> {
    server.catalog().read_now("look who may sign up", |view| {
        let open = view.open_domains()?.into_iter();
        Ok(open
            .map(|(domain, _)| (domain.name.to_string(), domain.title))
            .collect())
    })
}

/// Keeps a request until an administrator of the domain decides on it. Of an address that waits already nothing changes, and
/// nothing is told.
///
/// Errors: `sign-up.closed` for a domain that lets no stranger ask, as for one that is not there; `sign-up.address`,
/// `sign-up.note-invalid`, `sign-up.full`, `sign-in.locked` for too many from one network; names, addresses and passwords as
/// for every user.
pub async fn ask_for_account(
    server: &Server,
    new: NewSignUp,
    source: IpAddr,
) -> Result<(), Failure> {
    let name = UserName::of_new_user(new.name.trim())?;
    let (full_name, note) = (full_name(&new.full_name)?, note(&new.note)?);
    let email = EmailAddress::parse(new.email.trim()).map_err(|refusal| refusal.at("/email"))?;
    let asked = new.domain.trim().to_owned();
    let (_, rule) = server
        .catalog()
        .read_now("look who may sign up", |view| meant(view, &asked))?;
    if !rule.admits(&email) {
        return Err(refusals::sign_up_address(rule.told()).at("/email").into());
    }
    password::check_new(
        PasswordRules::of(server),
        &new.password,
        name.as_str(),
        "/password",
    )?;
    // Counts as a try each time, so that one network fills no list and buys no checks of passwords.
    let _held_back = Attempt::of_sign_up(server, source).begin().await?;
    let hash = server.hasher().hash(&new.password).await?;
    server
        .catalog()
        .write(Lane::Requests, "ask for an account", move |rows| {
            rows.forget_old_sign_ups()?;
            // It may have been closed since.
            let (domain, _) = meant(rows, &asked)?;
            let (waiting, declined): (Vec<SignUpRow>, Vec<SignUpRow>) = rows
                .sign_ups(domain.id)?
                .into_iter()
                .partition(|one| one.declined_at.is_none());
            let is_own = |one: &&SignUpRow| is_from(&one.source, source);
            let own = waiting.iter().filter(is_own).count();
            // Before the address is looked at: a full list must not tell which addresses are in it.
            if waiting.len() >= MAX_REQUESTS || own >= MAX_OF_ADDRESS {
                return Err(refusals::sign_up_full().retry_after(3_600).into());
            }
            if waiting.iter().any(|one| one.email == email) {
                return Ok(());
            }
            if let Some(oldest) = declined.first()
                && waiting.len() + declined.len() >= MAX_REQUESTS
            {
                rows.forget_sign_up(oldest.id)?;
            }
            let row = SignUpRow {
                id: SignUpId::make(rows.now, base::observe::random()),
                domain: domain.id,
                name,
                full_name,
                email,
                password: hash,
                note,
                source: source.to_string(),
                asked_at: rows.now,
                declined_at: None,
                declined_by: None,
            };
            rows.insert_sign_up(&row)?;
            rows.note(NewEvent {
                // The name is what a stranger typed: a user may have it, who did nothing.
                actor: "access",
                topic: "users",
                object: &row.id.to_string(),
                scope: Scope::domain(domain.id),
                code: "user.asked",
                before: "",
                after: &format!("{} <{}>", row.name, row.email),
            })
        })
        .await
}

/// Whether a kept address is of the same network.
fn is_from(kept: &str, source: IpAddr) -> bool {
    let kept = kept.parse::<IpAddr>();
    kept.is_ok_and(|kept| attempts::network(kept) == attempts::network(source))
}

/// The open domain that is meant. Errors: `sign-up.closed`.
fn meant(view: &ReadTransaction<'_>, asked: &str) -> Result<(Domain, SignUpRule), Failure> {
    let mut open = view.open_domains()?;
    let found = match (asked.is_empty(), open.len()) {
        (true, 1) => open.pop(),
        _ => open
            .into_iter()
            .find(|(domain, _)| domain.name.as_str() == asked),
    };
    found.ok_or_else(|| refusals::sign_up_closed().at("/domain").into())
}
