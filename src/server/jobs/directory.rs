//! Looks now and then whether users of a directory are still in it, and suspends who is not: their sign-ins end, and what is
//! open in them closes. Whoever is there has the roles of their groups from then on. Needs a service account; without one,
//! only a sign-in tells.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::observe::chain;
use rules::directory::takes_name;
use rules::grants::GrantRole;
use rules::names::{TenantName, UserId};
use rules::permissions::is_administrator;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::{User, UserSource};

use crate::access::directory::{DirectoryFault, ask};
use crate::access::external_user::{ExternalRules, put_roles};
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(15 * 60);
/// Users of one look, each a question; who was looked at longest ago comes first. More: a look takes longer than the time
/// to the next one. Fewer: who vanished from a big site stays longer.
const MAX_LOOKED_AT: u32 = 5_000;
/// Of so many users who are gone at once one in ten is too many to believe: a wrong base or filter looks the same.
const BELIEVED: usize = 3;
/// Questions in a row without an answer that end a look. More: a look at a dead directory lasts longer. Fewer: one entry
/// that a directory cannot read keeps the others from being looked at.
const GIVEN_UP_AFTER: u32 = 3;
/// Users whose roles are written in one commit, so that the writer is not held for long.
const ROLES_AT_ONCE: usize = 200;

/// The roles that the groups of a user give, by the names of the projects.
type UserRoles = (UserId, BTreeMap<TenantName, GrantRole>);

/// Looks, until it is dropped.
pub(crate) async fn keep(server: Server) {
    loop {
        tokio::time::sleep(LOOK).await;
        if let Err(failure) = look(&server).await {
            tracing::error!(error = %chain(&failure), "users of the directory were not looked at");
        }
    }
}

/// One look; gives how many were suspended. A directory that does not answer suspends nobody; roles of those of whom it
/// answered before are renewed.
pub(crate) async fn look(server: &Server) -> Result<usize, Failure> {
    let settings = server.settings();
    let bind = settings.ldap_bind.as_deref().unwrap_or_default();
    if settings.ldap_url.is_none() || bind.trim().is_empty() || takes_name(bind) {
        return Ok(0);
    }
    let begun = server.clock().now();
    let users = server
        .catalog()
        .read_now("list users of the directory", |view| {
            view.external_users(UserSource::Directory, MAX_LOOKED_AT)
        })?;
    let full = users.len() == MAX_LOOKED_AT as usize;
    let rules = Arc::new(ExternalRules::of(server));
    let (mut gone, mut there, mut roles) = (Vec::new(), Vec::new(), Vec::new());
    let mut in_vain = 0;
    for (id, name, subject) in users {
        let answer = ask(server, (name, None)).await;
        in_vain = match &answer {
            Ok(_) | Err(DirectoryFault::TooManyGroups | DirectoryFault::TooLong) => 0,
            Err(_) => in_vain + 1,
        };
        match answer {
            Ok(Some(entry)) if entry.subject == subject => {
                there.push(id);
                roles.push((id, entry.roles(&rules)));
            }
            Ok(_) => gone.push(id),
            // They cannot sign in, and are there.
            Err(DirectoryFault::TooManyGroups | DirectoryFault::TooLong) => there.push(id),
            Err(fault) => {
                tracing::warn!(error = %chain(&fault), "the directory was asked in vain");
                if in_vain >= GIVEN_UP_AFTER {
                    break;
                }
            }
        }
    }
    renew_roles(server, &rules, &roles, begun).await?;
    if in_vain >= GIVEN_UP_AFTER {
        return Ok(0);
    }
    // Who could not be asked for is neither.
    let known = gone.len() + there.len();
    let all = known > 1 && gone.len() == known;
    if all || (gone.len() > BELIEVED && gone.len() * 10 > known) {
        tracing::warn!(
            gone = gone.len(),
            known,
            "the directory misses too many users at once: no user was suspended; check ldap_base and ldap_filter"
        );
        return Ok(0);
    }
    let mut suspended = 0;
    for id in gone {
        let done = server.catalog().write_of_server(
            Lane::Loops,
            "suspend who left the directory",
            move |rows| suspend(rows, id, begun),
        );
        suspended += usize::from(done.await?);
    }
    if full {
        // The others come first at the next look.
        server
            .catalog()
            .write_of_server(Lane::Loops, "note who is in the directory", move |rows| {
                there
                    .iter()
                    .try_for_each(|id| rows.touch_external_user(*id))
            })
            .await?;
    }
    Ok(suspended)
}

/// Gives and takes roles as the groups are now: a token of who left one may not use it for as long as it lasts. Whoever
/// signed in since the look was `begun` has newer ones.
async fn renew_roles(
    server: &Server,
    rules: &Arc<ExternalRules>,
    roles: &[UserRoles],
    begun: Timestamp,
) -> Result<(), Failure> {
    for part in roles.chunks(ROLES_AT_ONCE) {
        let (part, rules) = (part.to_vec(), Arc::clone(rules));
        server
            .catalog()
            .write_of_server(Lane::Loops, "renew roles of groups", move |rows| {
                for (id, wanted) in part {
                    let user = rows.user(id)?.filter(|user| !user.suspended);
                    if let Some(user) = user
                        && !rows.was_checked_since(id, begun)?
                    {
                        put_roles(rows, &user, &rules, wanted, "controller")?;
                    }
                }
                Ok(())
            })
            .await?;
    }
    Ok(())
}

/// Suspends a user and ends their sign-ins and the links that they made; false for one who is gone,
/// suspended, or the last administrator, and for one who signed in since the look was `begun`: they were there
/// after it asked.
fn suspend(rows: &Rows<'_>, id: UserId, begun: Timestamp) -> Result<bool, Failure> {
    let user = rows.user(id)?.filter(|user| !user.suspended);
    let Some(user) = user else {
        return Ok(false);
    };
    if rows.was_checked_since(id, begun)? {
        return Ok(false);
    }
    if is_administrator(user.role) && rows.administrators()? <= 1 {
        return Ok(false);
    }
    let changed = User {
        suspended: true,
        ..user.clone()
    };
    rows.put_user(&changed, user.generation)?;
    rows.forget_browsers(user.id, None)?;
    rows.forget_sign_in_links(user.id)?;
    rows.note(NewEvent {
        actor: "controller",
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::domain(user.domain),
        code: rules::codes::USER_SUSPENDED,
        before: "",
        after: "",
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests;
