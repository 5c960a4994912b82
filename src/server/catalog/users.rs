//! Rows of users and of the ways they prove themselves: passwords, sign-ins of browsers, tokens,
//! the one-time setup code. Keeps hashes only; what they mean is `access`'s.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rules::names::{EmailAddress, TokenId, UserId, UserName};
use rules::permissions::{Permission, Reach};
use rules::refusals;
use rules::session::DesiredState;
use rules::tenancy::{DomainId, ProjectId};
use rules::units::Timestamp;
use rules::users::{Role, User, UserSource};
use rusqlite::{OptionalExtension as _, Row};
use uuid::Uuid;

use super::reach::{USER as USER_TABLE, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Root on this machine, as the owner of what it starts over the local socket. Has no password and
/// cannot be changed.
pub(crate) const ROOT: UserId = UserId(Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0000));

/// A password field that no password matches.
pub(crate) const NO_PASSWORD: &str = "!";

/// Hours without a request after which a browser has to sign in again.
pub(crate) const IDLE_HOURS: u64 = 12;
/// Browsers that one user is signed in with; with one more the oldest sign-in ends. Higher: a script that
/// signs in without end fills the catalog. Lower: a user with many machines is signed out on the first.
const MAX_BROWSERS: u32 = 100;
/// Networks that are kept of the sign-ins of a user. Higher: each sign-in reads more. Lower: who travels is told of places that
/// they know.
const MAX_PLACES: usize = 32;
/// The code of the event that a user signed in from a network that they never came from; the word of the index `event_told`.
pub(crate) const SIGNED_IN_ELSEWHERE: &str = "user.signed-in-elsewhere";

/// What becomes of a sign-in of a user who has as many as one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FullSignIns {
    EndOldest,
    Refuse,
}

/// One signed-in browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrowserRow {
    pub(crate) id: Uuid,
    pub(crate) user: UserId,
    pub(crate) created_at: Timestamp,
    pub(crate) used_at: Timestamp,
    /// Ends then in any case.
    pub(crate) ends_at: Timestamp,
    /// Address it signed in from.
    pub(crate) source: String,
    /// What the browser called itself; empty for none.
    pub(crate) agent: String,
}

/// One API token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenRow {
    pub(crate) id: TokenId,
    pub(crate) user: UserId,
    pub(crate) name: String,
    pub(crate) scopes: Vec<Permission>,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) used_at: Option<Timestamp>,
    pub(crate) used_from: Option<String>,
    /// Where it may be used from; empty: from everywhere.
    pub(crate) networks: Vec<String>,
}

/// The one-time code that makes the first administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetupRow {
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) hash: Option<[u8; 32]>,
    pub(crate) expires_at: Option<Timestamp>,
}

const USER: &str =
    "id, name, full_name, email, must_change, password_set_at, domain, language, theme, time_zone, suspended, networks, departs_at, expires_at, signed_in_at, created_at, generation,
     exists (
         select 1
         from role_grant
         where role_grant.user = user.id and role_grant.domain = x'' and role = 'administrator'
     ) as administrator,
     exists (select 1 from second_factor where second_factor.user = user.id) as second_factor,
     (select way from external_user where external_user.user = user.id) as source";

fn user_row(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User {
        id: UserId(value::id(row, "id")?),
        name: value::word(row, "name", |text| UserName::parse(text).ok())?,
        full_name: row.get("full_name")?,
        email: value::word_or_none(row, "email", |text| EmailAddress::parse(text).ok())?,
        must_change_password: row.get("must_change")?,
        second_factor: row.get("second_factor")?,
        source: value::word_or_none(row, "source", UserSource::parse)?.unwrap_or_default(),
        password_set_at: value::time_or_none(row, "password_set_at")?,
        domain: DomainId(value::id(row, "domain")?),
        role: match row.get("administrator")? {
            true => Role::Administrator,
            false => Role::User,
        },
        grants: Vec::new(),
        language: row.get("language")?,
        theme: row.get("theme")?,
        time_zone: row.get("time_zone")?,
        suspended: row.get("suspended")?,
        networks: value::json(row, "networks")?,
        departs_at: value::time_or_none(row, "departs_at")?,
        expires_at: value::time_or_none(row, "expires_at")?,
        signed_in_at: value::time_or_none(row, "signed_in_at")?,
        created_at: value::time(row, "created_at")?,
        generation: value::unsigned(row, "generation")?,
    })
}

fn browser_row(row: &Row<'_>) -> rusqlite::Result<BrowserRow> {
    Ok(BrowserRow {
        id: value::id(row, "id")?,
        user: UserId(value::id(row, "user")?),
        created_at: value::time(row, "created_at")?,
        used_at: value::time(row, "used_at")?,
        ends_at: value::time(row, "ends_at")?,
        source: row.get("source")?,
        agent: row.get("agent")?,
    })
}

fn ended_row(row: &Row<'_>) -> rusqlite::Result<Uuid> {
    value::id(row, "id")
}

fn token_row(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    // A scope that this version does not know gives nothing; it must never give everything.
    let words: Vec<String> = value::json(row, "scopes")?;
    Ok(TokenRow {
        id: TokenId(value::id(row, "id")?),
        user: UserId(value::id(row, "user")?),
        name: row.get("name")?,
        scopes: words
            .iter()
            .filter_map(|word| Permission::parse(word))
            .collect(),
        created_at: value::time(row, "created_at")?,
        expires_at: value::time_or_none(row, "expires_at")?,
        used_at: value::time_or_none(row, "used_at")?,
        used_from: row.get("used_from")?,
        networks: value::json(row, "networks")?,
    })
}

impl ReadTransaction<'_> {
    /// One user who was not removed.
    pub(crate) fn user(&self, id: UserId) -> Result<Option<User>, Failure> {
        let found = self
            .connection
            .prepare_cached(&format!(
                "select {USER} from user where id = ?1 and removed_at is null"
            ))?
            .query_row([id.0.as_bytes()], user_row)
            .optional()?;
        self.with_grants(found)
    }

    pub(crate) fn user_named(&self, name: &str) -> Result<Option<User>, Failure> {
        let found = self
            .connection
            .prepare_cached(&format!(
                "select {USER} from user where name = ?1 and removed_at is null"
            ))?
            .query_row([name], user_row)
            .optional()?;
        self.with_grants(found)
    }

    pub(crate) fn user_by_email(&self, email: &EmailAddress) -> Result<Option<User>, Failure> {
        let found = self
            .connection
            .prepare_cached(&format!(
                "select {USER} from user where email = ?1 and removed_at is null"
            ))?
            .query_row([email.as_str()], user_row)
            .optional()?;
        self.with_grants(found)
    }

    fn with_grants(&self, found: Option<User>) -> Result<Option<User>, Failure> {
        let Some(mut user) = found else {
            return Ok(None);
        };
        user.grants = self.grants_of(user.id)?;
        Ok(Some(user))
    }

    /// Everybody who was not removed, by name; without their grants.
    pub(crate) fn users(&self, reach: &Reach) -> Result<Vec<User>, Failure> {
        let (reached, value) = condition(reach, USER_TABLE, "?1");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {USER} from user where removed_at is null and {reached} order by name"
        ))?;
        let rows = statement.query_map([value], user_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Ids of all accounts that have or had a name; one that was removed leaves its name to others.
    pub(crate) fn accounts_named(&self, name: &str) -> Result<Vec<UserId>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select id from user where name = ?1")?;
        let rows = statement.query_map([name], |row| Ok(UserId(value::id(row, "id")?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The name of everybody there ever was, for lists that show owners.
    pub(crate) fn user_name(&self, id: UserId) -> Result<Option<UserName>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select name from user where id = ?1")?
            .query_row([id.0.as_bytes()], |row| {
                value::word(row, "name", |text| UserName::parse(text).ok())
            })
            .optional()?)
    }

    /// The domain and the project that a user's new sessions belong to where they name none: the first active one
    /// in which they may launch. None for a user who may in none.
    pub(crate) fn home_project(
        &self,
        id: UserId,
        now: Timestamp,
    ) -> Result<Option<(DomainId, ProjectId)>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select project.domain, project.id
                 from membership
                 join project on project.id = membership.project
                 where membership.user = ?1 and membership.role in ('member', 'lead')
                 and project.state = 'active'
                 and (membership.expires_at is null or membership.expires_at > ?2)
                 order by membership.project
                 limit 1",
            )?
            .query_row((id.0.as_bytes(), now.as_millis()), |row| {
                Ok((
                    DomainId(value::id(row, "domain")?),
                    ProjectId(value::id(row, "id")?),
                ))
            })
            .optional()?)
    }

    /// The stored password of a user.
    pub(crate) fn password(&self, id: UserId) -> Result<Option<String>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select password from user where id = ?1 and removed_at is null")?
            .query_row([id.0.as_bytes()], |row| row.get(0))
            .optional()?)
    }

    /// Hashes of passwords that a user had before, newest first.
    pub(crate) fn past_passwords(&self, id: UserId) -> Result<Vec<String>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select password from password_past where user = ?1 order by at desc",
        )?;
        let rows = statement.query_map([id.0.as_bytes()], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// When a session of each user last got a place; absent where none ever did.
    pub(crate) fn served(&self) -> Result<BTreeMap<UserId, Timestamp>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select id, served_at from user where served_at is not null")?;
        let rows = statement.query_map([], |row| {
            Ok((
                UserId(value::id(row, "id")?),
                value::time(row, "served_at")?,
            ))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How many administrators of the site can sign in, not counting those whose role will end.
    pub(crate) fn administrators(&self) -> Result<u32, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*)
                 from user
                 where suspended = 0 and removed_at is null and id <> ?1
                 and exists (
                     select 1
                     from role_grant
                     where role_grant.user = user.id and role_grant.domain = x''
                     and role = 'administrator' and expires_at is null
                 )",
            )?
            .query_row([ROOT.0.as_bytes()], |row| row.get(0))?)
    }

    /// The sign-in with this hash, and whose it is.
    pub(crate) fn browser(&self, hash: &[u8; 32]) -> Result<Option<(BrowserRow, User)>, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select id, user, created_at, used_at, ends_at, source, agent
                 from browser_session
                 where hash = ?1",
            )?
            .query_row([hash], browser_row)
            .optional()?;
        let Some(browser) = found else {
            return Ok(None);
        };
        Ok(self.user(browser.user)?.map(|user| (browser, user)))
    }

    /// The sign-in with this id, and whose it is.
    pub(crate) fn browser_by_id(&self, id: Uuid) -> Result<Option<(BrowserRow, User)>, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select id, user, created_at, used_at, ends_at, source, agent
                 from browser_session
                 where id = ?1",
            )?
            .query_row([id.as_bytes()], browser_row)
            .optional()?;
        let Some(browser) = found else {
            return Ok(None);
        };
        Ok(self.user(browser.user)?.map(|user| (browser, user)))
    }

    /// The token with this id, and whose it is.
    pub(crate) fn token_by_id(&self, id: TokenId) -> Result<Option<(TokenRow, User)>, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select id, user, name, scopes, created_at, expires_at, used_at, used_from,
                        networks
                 from token
                 where id = ?1",
            )?
            .query_row([id.0.as_bytes()], token_row)
            .optional()?;
        let Some(token) = found else {
            return Ok(None);
        };
        Ok(self.user(token.user)?.map(|user| (token, user)))
    }

    /// Sign-ins of one user, newest first.
    pub(crate) fn browsers(&self, user: UserId) -> Result<Vec<BrowserRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, user, created_at, used_at, ends_at, source, agent
             from browser_session
             where user = ?1
             order by created_at desc, id desc",
        )?;
        let rows = statement.query_map([user.0.as_bytes()], browser_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The token with this hash, and whose it is.
    pub(crate) fn token(&self, hash: &[u8; 32]) -> Result<Option<(TokenRow, User)>, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select id, user, name, scopes, created_at, expires_at, used_at, used_from,
                        networks
                 from token
                 where hash = ?1",
            )?
            .query_row([hash], token_row)
            .optional()?;
        let Some(token) = found else {
            return Ok(None);
        };
        Ok(self.user(token.user)?.map(|user| (token, user)))
    }

    /// Tokens of one user, newest first.
    pub(crate) fn tokens(&self, user: UserId) -> Result<Vec<TokenRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, user, name, scopes, created_at, expires_at, used_at, used_from,
                    networks
             from token
             where user = ?1
             order by created_at desc, id desc",
        )?;
        let rows = statement.query_map([user.0.as_bytes()], token_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(crate) fn setup(&self) -> Result<SetupRow, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select set_up_at, setup_hash, setup_expires_at from installation where id = 1",
            )?
            .query_row([], |row| {
                Ok(SetupRow {
                    done_at: value::time_or_none(row, "set_up_at")?,
                    hash: row.get("setup_hash")?,
                    expires_at: value::time_or_none(row, "setup_expires_at")?,
                })
            })?)
    }
}

impl ReadTransaction<'_> {
    /// Whether the account of a guest ended that is not suspended. An index look-up.
    pub(crate) fn has_ended_account(&self, now: Timestamp) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select exists (
                     select 1
                     from user
                     where expires_at <= ?1 and suspended = 0 and removed_at is null
                     and not exists (
                         select 1
                         from role_grant
                         where role_grant.user = user.id and role_grant.domain = x''
                         and role = 'administrator'
                     )
                 ) as is_there",
            )?
            .query_row([now.as_millis()], |row| row.get("is_there"))?)
    }

    /// Whether a user who leaves has no live session. Costs one visit of each user who leaves.
    pub(crate) fn has_departed(&self) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select exists (
                     select 1
                     from user
                     where departs_at is not null and removed_at is null
                     and not exists (
                         select 1
                         from session
                         where owner = user.id and state <> 'ended'
                     )
                 )",
            )?
            .query_row([], |row| row.get(0))?)
    }
}

impl Rows<'_> {
    /// Writes a new user with their grants.
    ///
    /// Errors: `user.name-taken`, `user.name-reserved`.
    pub(crate) fn insert_user(&self, user: &User, password: &str) -> Result<(), Failure> {
        user.name.for_new_user()?;
        if self.user_named(user.name.as_str())?.is_some() {
            return Err(refusals::user_name_taken(&user.name).at("/name").into());
        }
        self.connection
            .prepare_cached(
                "insert into user
                     (id, name, language, theme, time_zone, suspended, password, created_at,
                      generation, domain, full_name, email, must_change, expires_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            )?
            .execute((
                user.id.0.as_bytes(),
                user.name.as_str(),
                &user.language,
                &user.theme,
                &user.time_zone,
                user.suspended,
                password,
                user.created_at.as_millis(),
                value::signed(user.generation),
                user.domain.0.as_bytes(),
                &user.full_name,
                user.email.as_ref().map(EmailAddress::as_str),
                user.must_change_password,
                user.expires_at.map(Timestamp::as_millis),
            ))?;
        for held in &user.grants {
            self.put_grant(user.id, held)?;
        }
        Ok(())
    }

    /// Makes a user a member of the project `default`.
    pub(super) fn join_default(&self, id: UserId) -> Result<(), Failure> {
        self.put_grant(id, &rules::users::DEFAULT_MEMBER)
    }

    /// Writes what changed about a user but their grants, where the row is still of generation `seen`; raises it.
    /// False where it is not, or where the user is gone.
    pub(crate) fn put_user(&self, user: &User, seen: u64) -> Result<bool, Failure> {
        let written = self
            .connection
            .prepare_cached(
                "update user
                 set language = ?2, theme = ?3, time_zone = ?4, suspended = ?5,
                     full_name = ?7, email = ?8, departs_at = ?9, networks = ?10, expires_at = ?11,
                     generation = generation + 1
                 where id = ?1 and generation = ?6 and removed_at is null",
            )?
            .execute((
                user.id.0.as_bytes(),
                &user.language,
                &user.theme,
                &user.time_zone,
                user.suspended,
                value::signed(seen),
                &user.full_name,
                user.email.as_ref().map(EmailAddress::as_str),
                user.departs_at.map(Timestamp::as_millis),
                value::text(&user.networks),
                user.expires_at.map(Timestamp::as_millis),
            ))?;
        Ok(written == 1)
    }

    /// Notes that a session of a user got a place: it is the others' turn.
    pub(crate) fn put_served(&self, id: UserId, at: Timestamp) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update user set served_at = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), at.as_millis()))?;
        Ok(())
    }

    /// Sets a password, and keeps so many hashes of those before it. Sign-in links of the user, and those that they made,
    /// are of no use any more.
    pub(crate) fn put_password(
        &self,
        id: UserId,
        password: &str,
        kept: u32,
    ) -> Result<(), Failure> {
        let key = (id.0.as_bytes(), self.now.as_millis());
        self.connection
            .prepare_cached(
                "insert or replace into password_past (user, at, password)
                 select id, ?2, password from user where id = ?1",
            )?
            .execute(key)?;
        self.connection
            .prepare_cached(
                "delete from password_past
                 where user = ?1
                 and at not in (
                     select at
                     from password_past
                     where user = ?1
                     order by at desc
                     limit ?2
                 )",
            )?
            .execute((id.0.as_bytes(), kept))?;
        self.connection
            .prepare_cached(
                "update user
                 set password = ?3, password_set_at = ?2, generation = generation + 1
                 where id = ?1",
            )?
            .execute((key.0, key.1, password))?;
        self.forget_sign_in_links(id)
    }

    /// The user has to choose a password before anything else.
    pub(crate) fn demand_password(&self, id: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update user set must_change = 1 where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Keeps the password that `old` is a hash of under another hash; false where it was changed meanwhile.
    pub(crate) fn renew_password(&self, id: UserId, old: &str, new: &str) -> Result<bool, Failure> {
        let kept = self
            .connection
            .prepare_cached("update user set password = ?3 where id = ?1 and password = ?2")?
            .execute((id.0.as_bytes(), old, new))?;
        Ok(kept == 1)
    }

    /// The user chose their password themselves.
    pub(crate) fn own_password(&self, id: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update user set must_change = 0 where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// The user typed the password of the new account themselves.
    pub(crate) fn date_password(&self, id: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update user set password_set_at = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }

    /// Ends what proves that a user is who they are, and what they offered others: sign-ins, tokens, SSH keys,
    /// invitations, links.
    pub(crate) fn forget_proofs(&self, id: UserId) -> Result<(), Failure> {
        self.forget_browsers(id, None)?;
        self.forget_tokens(id, None)?;
        self.forget_ssh_keys(id)?;
        self.forget_sign_in_links(id)?;
        self.forget_invitations_of(id)
    }

    /// Suspends accounts of guests that ended, and stops their sessions; gives how many. What is written stays: a clock that is
    /// set back admits none of them. Administrators of the site stay. Costs a visit of each live session.
    pub(crate) fn end_accounts(&self, now: Timestamp) -> Result<usize, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {USER}
             from user
             where expires_at <= ?1 and suspended = 0 and removed_at is null and administrator = 0
             limit 100"
        ))?;
        let ended = statement.query_map([now.as_millis()], user_row)?;
        let ended: Vec<User> = ended.collect::<Result<_, _>>()?;
        if ended.is_empty() {
            return Ok(0);
        }
        let live = self.live_sessions()?.into_vec();
        for user in &ended {
            self.forget_browsers(user.id, None)?;
            self.forget_sign_in_links(user.id)?;
            let suspended = User {
                suspended: true,
                ..user.clone()
            };
            self.put_user(&suspended, user.generation)?;
            for session in live.iter().filter(|session| session.owner == user.id) {
                self.edit_session(session.id, "controller", None, |session| {
                    let restarts = std::mem::take(&mut session.restart);
                    let because = rules::reasons::session_account_ended();
                    let stops = session.stop(DesiredState::Stop, because, now);
                    Ok(stops || restarts)
                })?;
            }
            self.note(super::events::NewEvent {
                actor: "controller",
                topic: "users",
                object: &user.id.to_string(),
                scope: rules::tenancy::Scope::domain(user.domain),
                code: "user.account-ended",
                before: "",
                after: &user
                    .expires_at
                    .map_or_else(String::new, |end| end.to_string()),
            })?;
        }
        Ok(ended.len())
    }

    /// Takes out the users who leave and of whom no session lives; gives how many.
    pub(crate) fn finish_departures(&self) -> Result<usize, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {USER}
             from user
             where departs_at is not null and removed_at is null
             and not exists (
                 select 1
                 from session
                 where owner = user.id and state <> 'ended'
             )
             limit 100"
        ))?;
        let gone = statement.query_map([], user_row)?;
        let gone: Vec<User> = gone.collect::<Result<_, _>>()?;
        for user in &gone {
            self.remove_user(user.id)?;
            self.note(super::events::NewEvent {
                actor: "controller",
                topic: "users",
                object: &user.id.to_string(),
                scope: rules::tenancy::Scope::domain(user.domain),
                code: "user.removed",
                before: user.role.word(),
                after: "",
            })?;
        }
        Ok(gone.len())
    }

    /// Takes a user out: the name is free again, every proof of theirs is gone, and what they
    /// owned keeps its owner's name.
    pub(crate) fn remove_user(&self, id: UserId) -> Result<(), Failure> {
        self.forget_proofs(id)?;
        self.forget_second_factor(id)?;
        self.connection
            .prepare_cached("delete from password_past where user = ?1")?
            .execute([id.0.as_bytes()])?;
        self.forget_grants(id)?;
        self.forget_reservations_of(id)?;
        self.forget_policy_use(rules::quota::PolicyLevel::User, Some(id.0))?;
        self.forget_allowances_of(id.0)?;
        self.forget_budgets_of(id)?;
        self.forget_mail_of(id)?;
        self.trash_folders_of(id)?;
        self.forget_folder_shares_of(id)?;
        self.forget_start_up(id)?;
        self.connection
            .prepare_cached(
                "update user
                 set removed_at = ?2, password = ?3, departs_at = null, sign_in_places = '[]',
                     limit_request = null, generation = generation + 1
                 where id = ?1 and removed_at is null",
            )?
            .execute((id.0.as_bytes(), self.now.as_millis(), NO_PASSWORD))?;
        Ok(())
    }

    /// Keeps that a user signs in now; it makes no version of the account.
    pub(crate) fn signs_in(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update user set signed_in_at = ?2 where id = ?1")?
            .execute((user.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }

    /// Keeps that a user signs in from a network. False for one that they never came from, or so long ago that it is forgotten,
    /// while another one is known of them. Costs a row.
    pub(crate) fn signs_in_from(&self, user: UserId, network: &str) -> Result<bool, Failure> {
        let mut places: Vec<String> = self
            .connection
            .prepare_cached("select sign_in_places from user where id = ?1")?
            .query_row([user.0.as_bytes()], |row| {
                value::json(row, "sign_in_places")
            })?;
        let known = places.iter().position(|place| place == network);
        if known == Some(0) {
            return Ok(true);
        }
        let is_first = places.is_empty();
        if let Some(at) = known {
            places.remove(at);
        }
        places.insert(0, network.to_owned());
        places.truncate(MAX_PLACES);
        self.connection
            .prepare_cached("update user set sign_in_places = ?2 where id = ?1")?
            .execute((user.0.as_bytes(), value::text(&places)))?;
        Ok(is_first || known.is_some())
    }

    /// Keeps a sign-in, and ends the oldest of its user where they are too many; gives those that ended.
    pub(crate) fn insert_browser(
        &self,
        browser: &BrowserRow,
        hash: &[u8; 32],
    ) -> Result<Vec<Uuid>, Failure> {
        self.connection
            .prepare_cached(
                "insert into browser_session
                     (id, hash, user, created_at, used_at, ends_at, source, agent)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute((
                browser.id.as_bytes(),
                hash,
                browser.user.0.as_bytes(),
                browser.created_at.as_millis(),
                browser.used_at.as_millis(),
                browser.ends_at.as_millis(),
                &browser.source,
                &browser.agent,
            ))?;
        let mut statement = self.connection.prepare_cached(
            "delete from browser_session
             where id in (
                 select id
                 from browser_session
                 where user = ?1
                 order by id = ?2 desc, created_at desc, id
                 limit -1 offset ?3
             )
             returning id",
        )?;
        let (user, own) = (browser.user.0.as_bytes(), browser.id.as_bytes());
        let ended = statement.query_map((user, own, MAX_BROWSERS), ended_row)?;
        Ok(ended.collect::<Result<_, _>>()?)
    }

    /// Makes room for one more sign-in of a user who has `most` or more: ends the oldest ones and gives them, or refuses.
    /// Sign-ins that ended by rest do not count.
    ///
    /// Errors: `sign-in.too-many`.
    pub(crate) fn make_room_for_browser(
        &self,
        user: UserId,
        most: u32,
        full: FullSignIns,
    ) -> Result<Vec<Uuid>, Failure> {
        let now = self.now.as_millis();
        let unused_since = now - (IDLE_HOURS * 3_600_000) as i64;
        let key = (user.0.as_bytes(), now, unused_since);
        let open: u32 = self
            .connection
            .prepare_cached(
                "select count(*)
                 from browser_session
                 where user = ?1 and ends_at > ?2 and used_at > ?3",
            )?
            .query_row(key, |row| row.get(0))?;
        match full {
            _ if open < most => Ok(Vec::new()),
            FullSignIns::Refuse => Err(refusals::sign_in_too_many(most).into()),
            FullSignIns::EndOldest => {
                let mut statement = self.connection.prepare_cached(
                    "delete from browser_session
                     where id in (
                         select id
                         from browser_session
                         where user = ?1 and ends_at > ?2 and used_at > ?3
                         order by created_at, id
                         limit ?4
                     )
                     returning id",
                )?;
                let ended = (key.0, key.1, key.2, open + 1 - most);
                let ended = statement.query_map(ended, ended_row)?;
                Ok(ended.collect::<Result<_, _>>()?)
            }
        }
    }

    pub(crate) fn touch_browser(&self, id: Uuid) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update browser_session set used_at = ?2 where id = ?1")?
            .execute((id.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }

    /// Ends one sign-in of a user, and gives the address that it came from; None where there was none.
    pub(crate) fn forget_browser(&self, id: Uuid, user: UserId) -> Result<Option<String>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "delete from browser_session where id = ?1 and user = ?2 returning source",
            )?
            .query_row((id.as_bytes(), user.0.as_bytes()), |row| row.get(0))
            .optional()?)
    }

    /// Ends every sign-in of a user but one.
    pub(crate) fn forget_browsers(&self, user: UserId, but: Option<Uuid>) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "delete from browser_session
                 where user = ?1 and (?2 is null or id <> ?2)",
            )?
            .execute((user.0.as_bytes(), but.map(Uuid::into_bytes)))?;
        Ok(())
    }

    /// Drops sign-ins that ended; gives how many rows went.
    pub(crate) fn forget_old_sign_ins(&self) -> Result<usize, Failure> {
        let now = self.now.as_millis();
        let unused_since = now - (IDLE_HOURS * 3_600_000) as i64;
        let browsers = self
            .connection
            .prepare_cached("delete from browser_session where ends_at <= ?1 or used_at <= ?2")?
            .execute((now, unused_since))?;
        Ok(browsers)
    }

    pub(crate) fn insert_token(&self, token: &TokenRow, hash: &[u8; 32]) -> Result<(), Failure> {
        let words: Vec<&str> = token.scopes.iter().map(|verb| verb.word()).collect();
        self.connection
            .prepare_cached(
                "insert into token (id, user, name, hash, scopes, created_at, expires_at, networks)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute((
                token.id.0.as_bytes(),
                token.user.0.as_bytes(),
                &token.name,
                hash,
                value::text(&words),
                token.created_at.as_millis(),
                token.expires_at.map(Timestamp::as_millis),
                value::text(&token.networks),
            ))?;
        Ok(())
    }

    pub(crate) fn touch_token(&self, id: TokenId, from: IpAddr) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update token set used_at = ?2, used_from = ?3 where id = ?1")?
            .execute((id.0.as_bytes(), self.now.as_millis(), from.to_string()))?;
        Ok(())
    }

    /// Revokes one token of a user; false where there was none.
    pub(crate) fn forget_token(&self, id: TokenId, user: UserId) -> Result<bool, Failure> {
        let gone = self
            .connection
            .prepare_cached("delete from token where id = ?1 and user = ?2")?
            .execute((id.0.as_bytes(), user.0.as_bytes()))?;
        Ok(gone == 1)
    }

    /// Revokes every token of a user but one.
    pub(crate) fn forget_tokens(&self, user: UserId, but: Option<TokenId>) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from token where user = ?1 and (?2 is null or id <> ?2)")?
            .execute((user.0.as_bytes(), but.map(|id| id.0.into_bytes())))?;
        Ok(())
    }

    /// Puts a new setup code in force; the one before it is void.
    pub(crate) fn put_setup_code(&self, hash: &[u8; 32], ends: Timestamp) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update installation
                 set setup_hash = ?1, setup_expires_at = ?2
                 where id = 1 and set_up_at is null",
            )?
            .execute((hash, ends.as_millis()))?;
        Ok(())
    }

    /// Closes setup for ever; a second call keeps the first time.
    pub(crate) fn finish_setup(&self) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update installation
                 set set_up_at = ?1, setup_hash = null, setup_expires_at = null
                 where id = 1 and set_up_at is null",
            )?
            .execute([self.now.as_millis()])?;
        Ok(())
    }
}
