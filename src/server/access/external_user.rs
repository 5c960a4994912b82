//! Users whom somebody outside proves: a directory, or a provider of OpenID Connect. The first proof makes the account, each
//! later one brings name, address and roles up to date, in one commit. Asks nobody; whoever did hands the entry over.

use std::collections::BTreeMap;

use rules::directory::{GroupRule, group_rules, roles_of_groups};
use rules::grants::{Grant, GrantRole, GrantScope, HeldGrant};
use rules::names::{EmailAddress, TenantName, UserName};
use rules::refusals;
use rules::users::{Role, User, UserSource, full_name};

use super::{new_user, suspended};
use crate::catalog::external_users::EntryOwner;
use crate::catalog::users::NO_PASSWORD;
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server};

/// What a directory or a provider says of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExternalEntry {
    pub(super) source: UserSource,
    /// By what name the entry was found; empty where nobody typed one.
    pub(super) asked: String,
    /// Stays when names change; the distinguished name where a directory has no such identifier.
    pub(crate) subject: String,
    pub(super) name: String,
    pub(super) email: String,
    pub(super) full_name: String,
    pub(super) groups: Vec<String>,
}

/// What the settings say of users who come this way.
pub(crate) struct ExternalRules {
    /// Name of the domain that they join.
    domain: String,
    /// The table of groups; None: they begin as members of the project `default`.
    groups: Option<Vec<GroupRule>>,
}

impl ExternalRules {
    pub(crate) fn of(server: &Server) -> Self {
        let settings = server.settings();
        let table = settings.ldap_groups.as_deref();
        Self {
            domain: settings.ldap_domain.trim().to_owned(),
            groups: table.map(|table| group_rules(table).unwrap_or_default()),
        }
    }

    fn table(&self) -> &[GroupRule] {
        self.groups.as_deref().unwrap_or_default()
    }
}

impl ExternalEntry {
    /// The roles that the groups of the entry give.
    pub(crate) fn roles(&self, rules: &ExternalRules) -> BTreeMap<TenantName, GrantRole> {
        roles_of_groups(&self.groups, rules.table())
    }
}

/// The user of an entry, founded or brought up to date. `known` is the account that the typed name is of here.
///
/// Errors: `sign-in.wrong` where that account is of another entry by now; `directory.user-removed` where an administrator
/// removed the account of the entry; `directory.entry-unusable`; `user.suspended`.
pub(super) async fn take_up(
    server: &Server,
    entry: ExternalEntry,
    rules: ExternalRules,
    known: Option<&User>,
) -> Result<User, Failure> {
    let now = server.clock().now();
    let known = known.map(|user| user.id);
    server
        .catalog()
        .write(Lane::Requests, "admit a user from outside", move |rows| {
            // The first account is the administrator's.
            if rows.setup()?.done_at.is_none() {
                return Err(refusals::sign_in_wrong().into());
            }
            let found = match rows.owner_of_entry(entry.source, &entry.subject)? {
                Some(EntryOwner::Removed) => {
                    return Err(refusals::directory_user_removed().into());
                }
                Some(EntryOwner::User(user)) => Some(*user),
                None => None,
            };
            if let Some(known) = known
                && found.as_ref().is_none_or(|user| user.id != known)
            {
                // The name is of another entry by now.
                return Err(refusals::sign_in_wrong().into());
            }
            let (user, mut noted) = match found {
                Some(user) if user.is_shut_out(rows.now) => return Err(suspended().into()),
                Some(user) => renew(rows, user, &entry)?,
                None => {
                    let name = UserName::of_new_user(&entry.name)
                        .map_err(|_| refusals::directory_entry_unusable("its name is none here"))?;
                    let fresh = new_user(name, Role::User, now);
                    (found_user(rows, fresh, &rules, &entry)?, true)
                }
            };
            rows.put_external_user(user.id, entry.source, (&entry.subject, &entry.asked))?;
            let wanted = entry.roles(&rules);
            noted |= put_roles(rows, &user, &rules, wanted, user.name.as_str())?;
            if !noted {
                // Nothing changed; the sign-in has its row.
                rows.mute_acts();
            }
            let user = rows.user(user.id)?;
            user.ok_or_else(|| refusals::sign_in_wrong().into())
        })
        .await
}

fn found_user(
    rows: &Rows<'_>,
    fresh: User,
    rules: &ExternalRules,
    entry: &ExternalEntry,
) -> Result<User, Failure> {
    let unusable = |why: &str| refusals::directory_entry_unusable(why);
    if rows.user_named(fresh.name.as_str())?.is_some() {
        return Err(unusable("an account of this site has its name").into());
    }
    let domain = rows.domain_named(&rules.domain)?;
    let domain = domain.ok_or_else(|| unusable("the domain of the setting is not there"))?;
    let mut grants = Vec::new();
    if rules.groups.is_none() {
        let first = TenantName::first_project();
        let first = rows.project_called(domain.id, first.as_str())?;
        grants.extend(first.map(|project| held(GrantRole::Member, GrantScope::Project(project))));
    }
    let user = User {
        full_name: full_name(&entry.full_name).unwrap_or_default(),
        email: free_email(rows, &fresh, &entry.email)?,
        domain: domain.id,
        grants,
        ..fresh
    };
    rows.insert_user(&user, NO_PASSWORD)?;
    rows.note_user(
        user.name.as_str(),
        &user,
        "user.added",
        "",
        user.role.word(),
    )?;
    Ok(user)
}

/// Name and address as the entry has them now; and whether that changed anything.
fn renew(rows: &Rows<'_>, user: User, entry: &ExternalEntry) -> Result<(User, bool), Failure> {
    let changed = User {
        full_name: full_name(&entry.full_name).unwrap_or_default(),
        email: free_email(rows, &user, &entry.email)?,
        ..user.clone()
    };
    if changed == user {
        return Ok((user, false));
    }
    let called = |user: &User| {
        let email = user.email.as_ref().map_or("", EmailAddress::as_str);
        format!("{} {email}", user.full_name).trim().to_owned()
    };
    rows.put_user(&changed, user.generation)?;
    rows.note_user(
        user.name.as_str(),
        &user,
        "user.changed",
        &called(&user),
        &called(&changed),
    )?;
    Ok((changed, true))
}

/// The address of an entry, where it is one and nobody else has it.
fn free_email(rows: &Rows<'_>, user: &User, email: &str) -> Result<Option<EmailAddress>, Failure> {
    let Ok(email) = EmailAddress::parse(email.trim()) else {
        return Ok(None);
    };
    let taken = rows.user_by_email(&email)?;
    let free = taken.is_none_or(|other| other.id == user.id);
    Ok(free.then_some(email))
}

/// Gives the roles of the groups and takes those away that no group gives any more, in the projects of the table alone:
/// what somebody gave by hand in another project stays. True where that changed anything.
pub(crate) fn put_roles(
    rows: &Rows<'_>,
    user: &User,
    rules: &ExternalRules,
    mut wanted: BTreeMap<TenantName, GrantRole>,
    actor: &str,
) -> Result<bool, Failure> {
    let mut noted = false;
    // An administrator may have moved them: a project of the same name elsewhere is another one.
    let domain = rows.domain_named(&rules.domain)?;
    if domain.is_none_or(|domain| domain.id != user.domain) {
        return Ok(noted);
    }
    let named = rules.table().iter().map(|rule| &rule.project);
    let mut projects: Vec<&TenantName> = named.collect();
    projects.sort();
    projects.dedup();
    for name in projects {
        let Some(id) = rows.project_called(user.domain, name.as_str())? else {
            continue;
        };
        let Some(project) = rows.project(id)? else {
            continue;
        };
        let scope = GrantScope::Project(id);
        let own = user.grants.iter().find(|held| held.grant.scope == scope);
        let before = own.map(|held| held.grant.role);
        match (before, wanted.remove(name)) {
            // One that somebody gave for a time does not end while the group gives it.
            (before, Some(role)) if own != Some(&held(role, scope)) => {
                rows.put_grant(user.id, &held(role, scope))?;
                let told = format!("{} {}", user.name, role.word());
                let before = before.map_or("", GrantRole::word);
                let code = "project.member-set";
                rows.note_project(actor, &project, code, before, &told)?;
                noted = true;
            }
            (Some(role), None) => {
                rows.forget_grant(user.id, &Grant { role, scope })?;
                let (code, name) = ("project.member-removed", user.name.as_str());
                rows.note_project(actor, &project, code, role.word(), name)?;
                noted = true;
            }
            _ => {}
        }
    }
    Ok(noted)
}

fn held(role: GrantRole, scope: GrantScope) -> HeldGrant {
    HeldGrant {
        grant: Grant { role, scope },
        expires_at: None,
    }
}
