//! Finding an account that a caller may read or change, and keeping the last administrator. Writes nothing.

use rules::grants::Grant;
use rules::names::UserId;
use rules::permissions::{self, Permission, Subject};
use rules::refusals;
use rules::tenancy::Scope;
use rules::users::User;

use crate::Failure;
use crate::catalog::ReadTransaction;
use crate::catalog::users::ROOT;

/// The user that is meant, where the subject has the permission for their domain.
pub(super) fn find(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    permission: Permission,
    who: &str,
) -> Result<User, Failure> {
    let found = match who.parse::<UserId>() {
        Ok(id) => view.user(id)?,
        Err(_) => view.user_named(who)?,
    };
    let user = found
        .filter(|user| user.id != ROOT)
        .filter(|user| permissions::may(subject, permission, &Scope::domain(user.domain)).is_ok())
        .ok_or_else(refusals::user_not_found)?;
    let grants: Vec<Grant> = user.grants.iter().map(|held| held.grant).collect();
    let is_self = user.id == subject.user;
    if permission == Permission::UsersWrite && !is_self && !subject.outranks(&grants) {
        return Err(refusals::user_outranked(&user.name).into());
    }
    Ok(user)
}

/// Errors: `user.last-administrator` where no other administrator of the site could sign in without this one.
pub(super) fn keep_an_administrator(
    rows: &ReadTransaction<'_>,
    user: &User,
) -> Result<(), Failure> {
    let counts = permissions::is_administrator(user.role) && !user.suspended;
    if counts && rows.administrators()? <= 1 {
        return Err(refusals::user_last_administrator(&user.name).into());
    }
    Ok(())
}
