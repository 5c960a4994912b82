//! What a person may do with accounts: administrators with everybody's, everybody with their own.
//! The last administrator can be neither suspended, demoted nor removed.

use api::people::UserPreferences;
use api::secret::SecretText;
use rules::names::{UserId, UserName};
use rules::people::{Role, User};
use rules::permissions::{self, Permission, Subject};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{SessionState, plain, text};
use rules::tenancy::Scope;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{IdempotencyKey, Once, allowed, once, own_key};
use crate::access::password::{self, PasswordCheck};
use crate::access::{self, Caller, Via};
use crate::catalog::events::NewEvent;
use crate::catalog::people::ROOT;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

#[cfg(test)]
mod tests;
pub mod tokens;

/// One signed-in browser of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    pub id: Uuid,
    pub created_at: Timestamp,
    pub used_at: Timestamp,
    pub ends_at: Timestamp,
    /// Address it signed in from.
    pub source: String,
    /// The caller's own browser.
    pub current: bool,
}

/// How the first administrator is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetupLinks {
    /// The box is not set up yet: the links lead to the form that makes the administrator, once,
    /// within the hour. Otherwise they lead to the sign-in.
    pub open: bool,
    /// One for each address the box can be reached at; never empty.
    pub links: Vec<String>,
}

/// Draws a new setup code, which voids the one before it, and gives the links that carry it. Once the
/// box is set up, gives the links to sign in instead.
///
/// Errors: `setup.root-needed` for everybody but root on this machine while setup is open.
pub async fn setup_links(server: &Server, caller: &Caller) -> Result<SetupLinks, Failure> {
    allowed(caller, Permission::PeopleWrite)?;
    let open = access::setup_open(server);
    if open && caller.via != Via::LocalRoot {
        return Err(refusals::setup_root_needed().into());
    }
    let path = match access::setup_link(server) {
        Some(code) => format!("/setup?code={code}"),
        None if open => {
            return Err(refusals::setup_code_not_kept().into());
        }
        None => "/login".to_owned(),
    };
    let origins = server.settings().origins();
    let links = origins
        .iter()
        .map(|origin| format!("{origin}{path}"))
        .collect();
    Ok(SetupLinks { open, links })
}

/// All users with an account, by name. Root on the machine has none and is left out.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<User>, Failure> {
    allowed(caller, Permission::PeopleRead)?;
    let reach = permissions::reach(&caller.subject, Permission::PeopleRead);
    server.catalog().read_now("list people", |view| {
        let mut people = view.people(&reach)?;
        people.retain(|person| person.id != ROOT);
        Ok(people)
    })
}

/// One person, by id or name. Errors: `user.not-found`.
pub async fn get(server: &Server, caller: &Caller, who: &str) -> Result<User, Failure> {
    allowed(caller, Permission::PeopleRead)?;
    server.catalog().read_now("show a person", |view| {
        find(view, &caller.subject, Permission::PeopleRead, who)
    })
}

/// Makes an account.
///
/// Errors: `user.name-invalid`, `user.name-taken`, `password.…`. The first administrator made here
/// closes setup as well.
pub async fn create(
    server: &Server,
    caller: &Caller,
    name: &str,
    role: Role,
    password: impl Into<SecretText>,
) -> Result<User, Failure> {
    let made = create_once(server, caller, name, role, password, None).await?;
    Ok(made.value)
}

/// As `create`, and at most once for the same key.
///
/// Errors: as `create`; `idempotency.key-reused`.
pub async fn create_once(
    server: &Server,
    caller: &Caller,
    name: &str,
    role: Role,
    password: impl Into<SecretText>,
    key: Option<IdempotencyKey>,
) -> Result<Once<User>, Failure> {
    let password = password.into();
    allowed(caller, Permission::PeopleWrite)?;
    // Its body holds a password, whose plain digest is not to be kept.
    let key = own_key(caller, key.map(|key| key.blinded(server)))?;
    let name = UserName::parse(name.trim())?;
    password::check_new(&password, name.as_str(), "/password")?;
    // A name that is taken is said before the costly part.
    let taken = server.catalog().read_now("look for a name", |view| {
        Ok(view.person_named(name.as_str())?.is_some())
    })?;
    let hash = if taken {
        String::new()
    } else {
        server.hasher().hash(&password).await?
    };
    let person = access::new_person(name, role, server.clock().now());
    let actor = caller.name.clone();
    server
        .catalog()
        .write(Lane::People, "add a person", move |rows| {
            once(rows, key.as_ref(), || {
                rows.insert_person(&person, &hash)?;
                if permissions::is_administrator(role) {
                    rows.finish_setup()?;
                }
                note(rows, &actor, &person, "person.added", "", role.word())?;
                Ok(person)
            })
        })
        .await
}

/// What becomes of a user's tokens when an administrator sets their password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokensAfterReset {
    Revoked,
    Kept,
}

/// Sets a user's password, ends their sign-ins, revokes their tokens unless they are kept, and lifts a lock on
/// their name.
pub async fn set_password(
    server: &Server,
    caller: &Caller,
    who: &str,
    password: impl Into<SecretText>,
    tokens: TokensAfterReset,
) -> Result<User, Failure> {
    let password = password.into();
    allowed(caller, Permission::PeopleWrite)?;
    let person = server.catalog().read_now("show a person", |view| {
        find(view, &caller.subject, Permission::PeopleWrite, who)
    })?;
    password::check_new(&password, person.name.as_str(), "/password")?;
    let hash = server.hasher().hash(&password).await?;
    let who = person.id.to_string();
    let person = change(
        server,
        caller,
        who,
        "set a password",
        move |rows, person, actor| {
            rows.put_password(person.id, &hash)?;
            rows.forget_browsers(person.id, None)?;
            let after = match tokens {
                TokensAfterReset::Revoked => {
                    rows.forget_tokens(person.id)?;
                    "tokens revoked"
                }
                TokensAfterReset::Kept => "tokens kept",
            };
            note(rows, actor, person, "person.password-set", "", after)
        },
    )
    .await?;
    access::unlock(server, person.name.as_str());
    Ok(person)
}

/// Makes a user an administrator, or an ordinary user again.
///
/// Errors: `person.last-administrator`, `person.stale` where `if_match` is not their version.
pub async fn set_role(
    server: &Server,
    caller: &Caller,
    who: &str,
    role: Role,
    if_match: Option<u64>,
) -> Result<User, Failure> {
    allowed(caller, Permission::PeopleWrite)?;
    change(
        server,
        caller,
        who.to_owned(),
        "set a role",
        move |rows, person, actor| {
            fresh(person, if_match)?;
            if person.role == role {
                return Ok(());
            }
            if !permissions::is_administrator(role) {
                keep_an_administrator(rows, person)?;
            }
            let before = person.role;
            let changed = User {
                role,
                ..person.clone()
            };
            put(rows, &changed)?;
            note(
                rows,
                actor,
                person,
                "person.role-set",
                before.word(),
                role.word(),
            )
        },
    )
    .await
}

/// Suspends a user, or admits them again. Their sessions go on; their sign-ins end at once.
///
/// Errors: `person.self`, `person.last-administrator`, `person.stale`.
pub async fn suspend(
    server: &Server,
    caller: &Caller,
    who: &str,
    suspended: bool,
    if_match: Option<u64>,
) -> Result<User, Failure> {
    allowed(caller, Permission::PeopleWrite)?;
    let own = caller.subject.user;
    change(
        server,
        caller,
        who.to_owned(),
        "suspend a person",
        move |rows, person, actor| {
            fresh(person, if_match)?;
            if person.suspended == suspended {
                return Ok(());
            }
            if suspended {
                if person.id == own {
                    return Err(oneself("suspend").into());
                }
                keep_an_administrator(rows, person)?;
                rows.forget_browsers(person.id, None)?;
            }
            let changed = User {
                suspended,
                ..person.clone()
            };
            put(rows, &changed)?;
            let code = if suspended {
                rules::codes::PERSON_SUSPENDED
            } else {
                "person.admitted"
            };
            note(rows, actor, person, code, "", "")
        },
    )
    .await
}

/// Takes an account away. What it owned keeps its owner's name; the name is free again.
///
/// Errors: `person.has-sessions` while sessions of theirs live, `person.self`,
/// `person.last-administrator`, `person.stale`.
pub async fn remove(
    server: &Server,
    caller: &Caller,
    who: &str,
    if_match: Option<u64>,
) -> Result<User, Failure> {
    allowed(caller, Permission::PeopleWrite)?;
    let (own, actor, who) = (caller.subject.user, caller.name.clone(), who.to_owned());
    let subject = caller.subject.clone();
    server
        .catalog()
        .write(Lane::People, "remove a person", move |rows| {
            let person = find(rows, &subject, Permission::PeopleWrite, &who)?;
            fresh(&person, if_match)?;
            if person.id == own {
                return Err(oneself("remove").into());
            }
            keep_an_administrator(rows, &person)?;
            let live = rows
                .live_sessions()?
                .iter()
                .filter(|s| s.owner == person.id && s.state() != SessionState::Ended)
                .count();
            if live > 0 {
                return Err(refusals::person_has_sessions(&person.name, live).into());
            }
            rows.remove_person(person.id)?;
            note(
                rows,
                &actor,
                &person,
                "person.removed",
                person.role.word(),
                "",
            )?;
            Ok(person)
        })
        .await
}

/// The caller's own account.
pub async fn me(server: &Server, caller: &Caller) -> Result<User, Failure> {
    allowed(caller, Permission::Me)?;
    server
        .catalog()
        .read_now("show an account", |view| own(view, caller))
}

/// Sets the caller's language, theme and time zone.
pub async fn set_me(
    server: &Server,
    caller: &Caller,
    preferences: UserPreferences,
) -> Result<User, Failure> {
    allowed(caller, Permission::Me)?;
    check(&preferences)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::People, "set preferences", move |rows| {
            let person = own(rows, &caller)?;
            let changed = User {
                language: preferences.language.unwrap_or(person.language),
                theme: preferences.theme.unwrap_or(person.theme),
                time_zone: preferences.time_zone.unwrap_or(person.time_zone),
                ..person
            };
            put(rows, &changed)?;
            own(rows, &caller)
        })
        .await
}

/// Changes the caller's password and ends every other sign-in of theirs.
///
/// Errors: `password.wrong`, `password.…` for a bad new one, `sign-in.locked` after some wrong ones.
pub async fn change_password(
    server: &Server,
    caller: &Caller,
    old: impl Into<SecretText>,
    new: impl Into<SecretText>,
) -> Result<(), Failure> {
    let (old, new) = (old.into(), new.into());
    allowed(caller, Permission::Me)?;
    if caller.subject.user == ROOT {
        return Err(not_an_account().into());
    }
    let (person, stored) = server.catalog().read_now("show an account", |view| {
        let person = own(view, caller)?;
        let stored = view.password(person.id)?;
        Ok((person, stored))
    })?;
    if access::prove_again(server, caller, &old, stored).await? == PasswordCheck::Wrong {
        return Err(refusals::password_wrong().at("/old").into());
    }
    password::check_new(&new, person.name.as_str(), "/new")?;
    let hash = server.hasher().hash(&new).await?;
    let keep = match caller.via {
        Via::Browser { session } => Some(session.0),
        Via::Token { .. } | Via::LocalRoot => None,
    };
    server
        .catalog()
        .write(Lane::People, "change a password", move |rows| {
            rows.put_password(person.id, &hash)?;
            rows.forget_browsers(person.id, keep)?;
            note(
                rows,
                &person.name,
                &person,
                "person.password-changed",
                "",
                "",
            )
        })
        .await
}

/// The caller's signed-in browsers, newest first.
pub async fn sign_ins(server: &Server, caller: &Caller) -> Result<Vec<SignIn>, Failure> {
    allowed(caller, Permission::Me)?;
    let rows = server
        .catalog()
        .read_now("list sign-ins", |view| view.browsers(caller.subject.user))?;
    let current = |id: Uuid| match caller.via {
        Via::Browser { session } => session.0 == id,
        Via::Token { .. } | Via::LocalRoot => false,
    };
    let now = server.clock().now();
    Ok(rows
        .into_iter()
        .filter(|row| row.ends_at > now)
        .map(|row| SignIn {
            id: row.id,
            created_at: row.created_at,
            used_at: row.used_at,
            ends_at: row.ends_at,
            source: row.source,
            current: current(row.id),
        })
        .collect())
}

/// Ends one signed-in browser of the caller. Errors: `sign-in.not-found`.
pub async fn end_sign_in(server: &Server, caller: &Caller, id: Uuid) -> Result<(), Failure> {
    allowed(caller, Permission::Me)?;
    let person = caller.subject.user;
    let ended = server
        .catalog()
        .write(Lane::People, "end a sign-in", move |rows| {
            rows.forget_browser(id, person)
        })
        .await?;
    if ended {
        Ok(())
    } else {
        Err(refusals::sign_in_not_found().into())
    }
}

/// The user that is meant, where the subject has the permission for their domain.
fn find(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    permission: Permission,
    who: &str,
) -> Result<User, Failure> {
    let found = match who.parse::<UserId>() {
        Ok(id) => view.person(id)?,
        Err(_) => view.person_named(who)?,
    };
    found
        .filter(|person| person.id != ROOT)
        .filter(|person| {
            permissions::may(subject, permission, &Scope::domain(person.domain)).is_ok()
        })
        .ok_or_else(|| refusals::user_not_found().into())
}

fn own(view: &ReadTransaction<'_>, caller: &Caller) -> Result<User, Failure> {
    view.person(caller.subject.user)?
        .ok_or_else(|| refusals::person_gone().into())
}

/// Finds a person, checks who asks, runs `work`, and gives them as they are afterwards.
async fn change(
    server: &Server,
    caller: &Caller,
    who: String,
    what: &'static str,
    work: impl FnOnce(&Rows<'_>, &User, &UserName) -> Result<(), Failure> + Send + 'static,
) -> Result<User, Failure> {
    let (actor, subject) = (caller.name.clone(), caller.subject.clone());
    server
        .catalog()
        .write(Lane::People, what, move |rows| {
            let person = find(rows, &subject, Permission::PeopleWrite, &who)?;
            work(rows, &person, &actor)?;
            find(
                rows,
                &subject,
                Permission::PeopleWrite,
                &person.id.to_string(),
            )
        })
        .await
}

fn put(rows: &Rows<'_>, person: &User) -> Result<(), Failure> {
    if rows.put_person(person, person.generation)? {
        return Ok(());
    }
    Err(crate::ServerFault::new("change a person", "the row changed inside one transaction").into())
}

fn fresh(person: &User, if_match: Option<u64>) -> Result<(), Refusal> {
    if if_match.is_none_or(|generation| generation == person.generation) {
        return Ok(());
    }
    Err(refusals::person_stale(&person.name, person.generation))
}

fn keep_an_administrator(rows: &Rows<'_>, person: &User) -> Result<(), Failure> {
    let counts = permissions::is_administrator(person.role) && !person.suspended;
    if counts && rows.administrators()? <= 1 {
        return Err(refusals::person_last_administrator(&person.name).into());
    }
    Ok(())
}

fn oneself(verb: &str) -> Refusal {
    refusals::person_self(verb)
}

fn not_an_account() -> Refusal {
    refusals::person_root()
}

fn note(
    rows: &Rows<'_>,
    actor: &UserName,
    person: &User,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: actor.as_str(),
        topic: "people",
        object: &person.id.to_string(),
        scope: rules::tenancy::Scope::domain(person.domain),
        code,
        before,
        after,
    })
}

fn check(preferences: &UserPreferences) -> Result<(), Refusal> {
    if let Some(language) = preferences.language.as_deref()
        && !["", "en", "ko"].contains(&language)
    {
        return Err(refusals::language_unknown().at("/language"));
    }
    if let Some(theme) = preferences.theme.as_deref()
        && !["light", "dark", "system"].contains(&theme)
    {
        return Err(refusals::theme_unknown().at("/theme"));
    }
    if let Some(zone) = preferences
        .time_zone
        .as_deref()
        .filter(|zone| !zone.is_empty())
        && (zone.len() > 64 || jiff::tz::TimeZone::get(zone).is_err())
    {
        return Err(refusals::time_zone_unknown().at("/time_zone"));
    }
    Ok(())
}
