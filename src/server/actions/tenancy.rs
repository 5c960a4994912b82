//! What a user may do with domains, projects, members and roles. Nobody gives a role wider than their own.

use api::sessions::Owner;
use api::tenancy::{DomainView, GrantView, MemberView, ProjectPatchBody, ProjectView};
use rules::grants::{Grant, GrantRole, GrantScope, HeldGrant};
use rules::names::{TenantName, UserId};
use rules::permissions::{self, Permission, Subject, may};
use rules::refusals;
use rules::session::hidden;
use rules::tenancy::{Domain, DomainId, Project, ProjectId, Scope, TenantState};
use rules::units::Timestamp;
use rules::users::User;

use super::accounts::{find as find_user, keep_an_administrator};
use super::four_eyes::{MeantUser, PendingAct, hold, kept};
use super::{IdempotencyKey, Once, allowed, once, own_key, somewhere};
use crate::access::Caller;
use crate::access::tokens::refuse_bound;
use crate::catalog::events::NewEvent;
use crate::catalog::tenancy::ProjectRow;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

#[cfg(test)]
mod tests;

/// Characters of a title.
const MAX_TITLE_LENGTH: usize = 100;

/// The domains that the caller reaches, by name: all for administrators and auditors of the site, else their own and
/// those they have a role on.
pub async fn domains(server: &Server, caller: &Caller) -> Result<Vec<DomainView>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("list domains", |view| {
        let mut shown = Vec::new();
        for domain in view.domains()? {
            if caller.subject.reaches(domain.id) {
                shown.push(show_domain(view, &caller.subject, domain)?);
            }
        }
        Ok(shown)
    })
}

/// One domain, by id or name. Errors: `domain.not-found`.
pub async fn domain(server: &Server, caller: &Caller, which: &str) -> Result<DomainView, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("show a domain", |view| {
        let domain = find_domain(view, &caller.subject, which)?;
        show_domain(view, &caller.subject, domain)
    })
}

/// Makes a domain with a project called `default`.
///
/// Errors: `tenant.name-invalid`, `tenant.title-invalid`, `domain.name-taken`.
pub async fn create_domain(
    server: &Server,
    caller: &Caller,
    name: &str,
    title: &str,
    key: Option<IdempotencyKey>,
) -> Result<Once<DomainView>, Failure> {
    may(&caller.subject, Permission::ProjectsWrite, &Scope::SITE)?;
    let key = own_key(caller, key)?;
    let (name, title) = (TenantName::parse(name)?, title_of(title)?);
    let (subject, actor) = (caller.subject.clone(), caller.name.to_string());
    server
        .catalog()
        .write(Lane::Requests, "make a domain", move |rows| {
            once(rows, key.as_ref(), || {
                let domain = Domain {
                    id: DomainId::make(rows.now, base::observe::random()),
                    name,
                    title,
                    generation: 1,
                };
                rows.insert_domain(&domain)?;
                rows.insert_project(&Project {
                    id: ProjectId::make(rows.now, base::observe::random()),
                    domain: domain.id,
                    name: TenantName::first_project(),
                    title: String::new(),
                    state: TenantState::Active,
                    generation: 1,
                })?;
                note(
                    rows,
                    &actor,
                    &domain.id.to_string(),
                    Scope::domain(domain.id),
                    "domain.added",
                    "",
                    domain.name.as_str(),
                )?;
                show_domain(rows, &subject, domain)
            })
        })
        .await
}

/// Changes a domain's title. Errors: `domain.not-found`, `domain.stale`, `tenant.title-invalid`.
pub async fn change_domain(
    server: &Server,
    caller: &Caller,
    which: &str,
    title: &str,
    if_match: Option<u64>,
) -> Result<DomainView, Failure> {
    let (title, which) = (title_of(title)?, which.to_owned());
    let (subject, actor) = (caller.subject.clone(), caller.name.to_string());
    server
        .catalog()
        .write(Lane::Requests, "change a domain", move |rows| {
            let domain = find_domain(rows, &subject, &which)?;
            may(
                &subject,
                Permission::ProjectsWrite,
                &Scope::domain(domain.id),
            )?;
            if if_match.is_some_and(|seen| seen != domain.generation) {
                return Err(refusals::domain_stale(&domain.name, domain.generation).into());
            }
            if title == domain.title {
                return show_domain(rows, &subject, domain);
            }
            rows.put_domain(&Domain {
                title: title.clone(),
                ..domain.clone()
            })?;
            note(
                rows,
                &actor,
                &domain.id.to_string(),
                Scope::domain(domain.id),
                "domain.changed",
                &domain.title,
                &title,
            )?;
            let again = find_domain(rows, &subject, &domain.id.to_string())?;
            show_domain(rows, &subject, again)
        })
        .await
}

/// The projects that the caller may see, by domain and name.
pub async fn projects(server: &Server, caller: &Caller) -> Result<Vec<ProjectView>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    let reach = permissions::reach(&caller.subject, Permission::ProjectsRead);
    let subject = caller.subject.clone();
    server
        .catalog()
        .read("list projects", move |view| {
            let rows = view.projects(&reach)?;
            Ok(rows.into_iter().map(|row| show(&subject, row)).collect())
        })
        .await
}

/// One project, by id, name or `DOMAIN/NAME`. Errors: `project.not-found`, `project.ambiguous`.
pub async fn project(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ProjectView, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("show a project", |view| {
        let project = find_project(view, &caller.subject, Permission::ProjectsRead, which)?;
        show_project(view, &caller.subject, &project)
    })
}

/// Makes a project in a domain: the named one, or the caller's own.
///
/// Errors: `domain.not-found`, `tenant.name-invalid`, `tenant.title-invalid`, `project.name-taken`.
pub async fn create_project(
    server: &Server,
    caller: &Caller,
    domain: Option<&str>,
    name: &str,
    title: &str,
    key: Option<IdempotencyKey>,
) -> Result<Once<ProjectView>, Failure> {
    let key = own_key(caller, key)?;
    let (name, title) = (TenantName::parse(name)?, title_of(title)?);
    let domain = domain.map(str::to_owned);
    let (subject, actor) = (caller.subject.clone(), caller.name.to_string());
    server
        .catalog()
        .write(Lane::Requests, "make a project", move |rows| {
            once(rows, key.as_ref(), || {
                let domain = match domain.as_deref().filter(|name| !name.is_empty()) {
                    Some(name) => {
                        find_domain(rows, &subject, name)
                            .map_err(|failure| failure.at("/domain"))?
                            .id
                    }
                    None => subject.domain,
                };
                may(&subject, Permission::ProjectsWrite, &Scope::domain(domain))?;
                let project = Project {
                    id: ProjectId::make(rows.now, base::observe::random()),
                    domain,
                    name,
                    title,
                    state: TenantState::Active,
                    generation: 1,
                };
                rows.insert_project(&project)?;
                rows.note_project(&actor, &project, "project.added", "", project.name.as_str())?;
                show_project(rows, &subject, &project)
            })
        })
        .await
}

/// Changes a project's title, archives it or restores it.
///
/// Errors: `project.not-found`, `project.stale`, `tenant.title-invalid`, `project.has-sessions` where sessions wait
/// that an archived project would never start.
pub async fn change_project(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: ProjectPatchBody,
    if_match: Option<u64>,
) -> Result<ProjectView, Failure> {
    let title = patch.title.as_deref().map(title_of).transpose()?;
    let which = which.to_owned();
    let (subject, actor) = (caller.subject.clone(), caller.name.to_string());
    server
        .catalog()
        .write(Lane::Requests, "change a project", move |rows| {
            let project = find_project(rows, &subject, Permission::ProjectsWrite, &which)?;
            if if_match.is_some_and(|seen| seen != project.generation) {
                return Err(refusals::project_stale(&project.name, project.generation).into());
            }
            let state = patch.state.unwrap_or(project.state);
            let (_, waiting) = rows.live_in_project(project.id, None)?;
            if state == TenantState::Archived && project.state != state && waiting > 0 {
                return Err(refusals::project_has_sessions(waiting, &project.name).into());
            }
            let changed = Project {
                title: title.unwrap_or_else(|| project.title.clone()),
                state,
                ..project.clone()
            };
            if changed == project {
                return show_project(rows, &subject, &project);
            }
            rows.put_project(&changed)?;
            let (code, before, after) = match changed.state == project.state {
                true => (
                    "project.changed",
                    project.title.as_str(),
                    changed.title.as_str(),
                ),
                false => (
                    "project.state-set",
                    project.state.word(),
                    changed.state.word(),
                ),
            };
            rows.note_project(&actor, &project, code, before, after)?;
            if changed.state == TenantState::Archived && project.state != changed.state {
                cancel_of_project(rows, &actor, project.id)?;
            }
            let again = find_project(
                rows,
                &subject,
                Permission::ProjectsRead,
                &project.id.to_string(),
            )?;
            show_project(rows, &subject, &again)
        })
        .await
}

/// Cancels the reservations of a project that starts nothing any more.
fn cancel_of_project(rows: &Rows<'_>, actor: &str, project: ProjectId) -> Result<(), Failure> {
    for one in rows.reservations_of_project(project)? {
        rows.cancel_reservation(one.id)?;
        rows.note(NewEvent {
            actor,
            topic: "system",
            object: one.name.as_str(),
            scope: one.scope(),
            code: "reservation.cancelled",
            before: &one.amount.told(),
            after: "",
        })?;
    }
    Ok(())
}

/// Members of a project, by name.
pub async fn members(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Vec<MemberView>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("list members", |view| {
        let project = find_project(view, &caller.subject, Permission::ProjectsRead, which)?;
        let rows = view.members(project.id)?;
        Ok(rows
            .into_iter()
            .map(|row| MemberView {
                user: Owner {
                    id: row.user,
                    name: row.name,
                },
                role: row.role,
                expires_at: row.expires_at,
            })
            .collect())
    })
}

/// Makes a user a member of a project, or gives a member another role or end.
///
/// Errors: `project.not-found`, `user.not-found`, `member.other-domain`, `grant.role-invalid`, `grant.ends-in-past`.
pub async fn put_member(
    server: &Server,
    caller: &Caller,
    which: &str,
    user: &str,
    role: GrantRole,
    expires_at: Option<Timestamp>,
) -> Result<MemberView, Failure> {
    let (which, user) = (which.to_owned(), user.trim().to_owned());
    let (subject, actor) = (caller.subject.clone(), caller.name.to_string());
    server
        .catalog()
        .write(Lane::Requests, "set a member", move |rows| {
            let project = find_project(rows, &subject, Permission::ProjectsWrite, &which)?;
            if !role.is_of_project() {
                return Err(refusals::grant_role_of_project().at("/role").into());
            }
            ends_later(rows, expires_at)?;
            let user = account(rows, &user)?
                .filter(|user| user.domain == project.domain || subject.reaches(user.domain))
                .ok_or_else(|| refusals::user_not_found().at("/user"))?;
            if user.domain != project.domain {
                return Err(refusals::member_of_another_domain(&user.name)
                    .at("/user")
                    .into());
            }
            let grant = of_project(role, project.id);
            let held = HeldGrant { grant, expires_at };
            if !user.grants.contains(&held) {
                let before = role_in(&user, project.id).map_or("", GrantRole::word);
                rows.put_grant(user.id, &held)?;
                let told = format!("{} {}", user.name, role.word());
                rows.note_project(&actor, &project, "project.member-set", before, &told)?;
            }
            Ok(MemberView {
                user: Owner {
                    id: user.id,
                    name: user.name,
                },
                role,
                expires_at,
            })
        })
        .await
}

/// Takes a user out of a project.
///
/// Errors: `project.not-found`, `member.not-found`, `member.has-sessions` while sessions of theirs live in it.
pub async fn remove_member(
    server: &Server,
    caller: &Caller,
    which: &str,
    user: &str,
) -> Result<(), Failure> {
    let (which, user) = (which.to_owned(), user.trim().to_owned());
    let (subject, actor) = (caller.subject.clone(), caller.name.to_string());
    server
        .catalog()
        .write(Lane::Requests, "remove a member", move |rows| {
            let project = find_project(rows, &subject, Permission::ProjectsWrite, &which)?;
            let found = account(rows, &user)?.filter(|one| role_in(one, project.id).is_some());
            let Some(member) = found else {
                let shown: String = user.chars().take(80).flat_map(char::escape_debug).collect();
                return Err(refusals::member_not_found(&shown).into());
            };
            let (live, _) = rows.live_in_project(project.id, Some(member.id))?;
            if live > 0 {
                return Err(refusals::member_has_sessions(&member.name, live).into());
            }
            if let Some(role) = role_in(&member, project.id) {
                rows.forget_grant(member.id, &of_project(role, project.id))?;
                let told = member.name.as_str();
                rows.note_project(
                    &actor,
                    &project,
                    "project.member-removed",
                    role.word(),
                    told,
                )?;
            }
            Ok(())
        })
        .await
}

/// The roles of a user that hold now, the widest first.
pub async fn grants(
    server: &Server,
    caller: &Caller,
    who: &str,
) -> Result<Vec<GrantView>, Failure> {
    somewhere(caller, Permission::UsersRead)?;
    let now = server.clock().now();
    server.catalog().read_now("list roles", |view| {
        let user = find_user(view, &caller.subject, Permission::UsersRead, who)?;
        shown_grants(view, &user, now)
    })
}

/// Gives a user a role on a domain or on the whole site.
///
/// Errors: `user.not-found`, `domain.not-found`, `grant.role-invalid`, `grant.ends-in-past`,
/// `role.administrator-needed` for a scope of which the caller is no administrator; `network.bound`.
pub async fn grant(
    server: &Server,
    caller: &Caller,
    who: &str,
    role: GrantRole,
    domain: Option<&str>,
    expires_at: Option<Timestamp>,
) -> Result<Vec<GrantView>, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    if role.is_of_project() {
        return Err(refusals::grant_role_of_domain().at("/role").into());
    }
    let (meant, domain) = (
        MeantUser::of(server, caller, who)?,
        domain.map(str::to_owned),
    );
    let who = meant.which();
    let act = PendingAct::RoleGrant {
        who: meant,
        role,
        domain: domain.clone(),
        expires_at,
    };
    let (subject, actor) = (caller.subject.clone(), caller.name.to_string());
    let (by, held) = (caller.clone(), act.clone());
    let given = server
        .catalog()
        .write(Lane::Requests, "give a role", move |rows| {
            ends_later(rows, expires_at)?;
            let (user, grant) = grant_of(rows, &subject, &who, role, domain.as_deref())?;
            refuse_bound(rows, &by)?;
            if grant == Grant::SITE_ADMINISTRATOR && expires_at.is_some() {
                keep_an_administrator(rows, &user)?;
            }
            rows.put_grant(user.id, &HeldGrant { grant, expires_at })?;
            note_grant(
                rows,
                &actor,
                &user,
                "user.role-granted",
                &grant,
                domain.as_deref(),
            )?;
            hold(rows, &by, &held)?;
            shown_grants(rows, &with_grants(rows, user)?, rows.now)
        })
        .await;
    kept(server, caller, given, &act).await
}

/// Takes a role on a domain or on the whole site away; streams that stand on it end within two seconds.
///
/// Errors: as `grant`; `grant.not-found`; `user.last-administrator`.
pub async fn revoke(
    server: &Server,
    caller: &Caller,
    who: &str,
    role: Option<GrantRole>,
    domain: Option<&str>,
) -> Result<Vec<GrantView>, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let (meant, domain) = (
        MeantUser::of(server, caller, who)?,
        domain.map(str::to_owned),
    );
    let who = meant.which();
    let act = PendingAct::RoleRevoke {
        who: meant,
        role,
        domain: domain.clone(),
    };
    let Some(role) = role.filter(|role| !role.is_of_project()) else {
        return Err(refusals::grant_role_of_domain().at("/role").into());
    };
    let (subject, actor) = (caller.subject.clone(), caller.name.to_string());
    let (by, held) = (caller.clone(), act.clone());
    let taken = server
        .catalog()
        .write(Lane::Requests, "take a role away", move |rows| {
            let (user, grant) = grant_of(rows, &subject, &who, role, domain.as_deref())?;
            if grant == Grant::SITE_ADMINISTRATOR {
                keep_an_administrator(rows, &user)?;
            }
            if !rows.forget_grant(user.id, &grant)? {
                return Err(refusals::grant_not_found(&user.name).into());
            }
            note_grant(
                rows,
                &actor,
                &user,
                "user.role-revoked",
                &grant,
                domain.as_deref(),
            )?;
            hold(rows, &by, &held)?;
            shown_grants(rows, &with_grants(rows, user)?, rows.now)
        })
        .await;
    kept(server, caller, taken, &act).await
}

/// The project in which a launch of the caller's runs: the named one, or their first.
///
/// Errors: `project.none`, `project.not-found`, `project.archived`, `project.role-missing`, all at `/project`.
pub(super) fn project_for_launch(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    asked: Option<&str>,
    now: Timestamp,
) -> Result<(DomainId, ProjectId), Failure> {
    let Some(asked) = asked.map(str::trim).filter(|text| !text.is_empty()) else {
        return view
            .home_project(subject.user, now)?
            .ok_or_else(|| refusals::project_none().into());
    };
    let found = find_project(view, subject, Permission::ProjectsRead, asked);
    let project = found.map_err(|failure| failure.at("/project"))?;
    let launches =
        |grant: &Grant| grant.scope == GrantScope::Project(project.id) && grant.role.launches();
    if !subject.grants.iter().any(launches) {
        return Err(refusals::project_role_missing(&project.name)
            .at("/project")
            .into());
    }
    if project.state == TenantState::Archived {
        return Err(refusals::project_archived(&project.name)
            .at("/project")
            .into());
    }
    Ok((project.domain, project.id))
}

/// The domain in which a new account is at home, and what it begins with: the membership of its project `default`.
pub(super) fn home_of_account(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    domain: Option<&str>,
) -> Result<(DomainId, Option<HeldGrant>), Failure> {
    let domain = match domain.map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => {
            find_domain(view, subject, name)
                .map_err(|failure| failure.at("/domain"))?
                .id
        }
        None => subject.domain,
    };
    may(subject, Permission::UsersWrite, &Scope::domain(domain))?;
    let first = view.project_called(domain, TenantName::first_project().as_str())?;
    let member = first.map(|project| HeldGrant {
        grant: of_project(GrantRole::Member, project),
        expires_at: None,
    });
    Ok((domain, member))
}

fn of_project(role: GrantRole, project: ProjectId) -> Grant {
    Grant {
        role,
        scope: GrantScope::Project(project),
    }
}

fn role_in(user: &User, project: ProjectId) -> Option<GrantRole> {
    let here = |held: &&HeldGrant| held.grant.scope == GrantScope::Project(project);
    user.grants.iter().find(here).map(|held| held.grant.role)
}

fn with_grants(view: &ReadTransaction<'_>, user: User) -> Result<User, Failure> {
    Ok(User {
        grants: view.grants_of(user.id)?,
        ..user
    })
}

/// The user and the grant that are meant, where the subject is administrator of its scope.
fn grant_of(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    who: &str,
    role: GrantRole,
    domain: Option<&str>,
) -> Result<(User, Grant), Failure> {
    let scope = match domain.map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => {
            let found = find_domain(view, subject, name);
            GrantScope::Domain(found.map_err(|failure| failure.at("/domain"))?.id)
        }
        None => GrantScope::Site,
    };
    let of = match scope {
        GrantScope::Domain(domain) => Scope::domain(domain),
        GrantScope::Site | GrantScope::Project(_) => Scope::SITE,
    };
    may(subject, Permission::UsersWrite, &of)?;
    let user = find_user(view, subject, Permission::UsersWrite, who)?;
    Ok((user, Grant { role, scope }))
}

fn shown_grants(
    view: &ReadTransaction<'_>,
    user: &User,
    now: Timestamp,
) -> Result<Vec<GrantView>, Failure> {
    let mut shown = Vec::new();
    for held in user.grants.iter().filter(|held| held.holds_at(now)) {
        let named = |id| -> Result<Option<String>, Failure> {
            Ok(view.domain(id)?.map(|domain| domain.name.to_string()))
        };
        let (scope, domain, project) = match held.grant.scope {
            GrantScope::Site => ("site", None, None),
            GrantScope::Domain(id) => ("domain", named(id)?, None),
            GrantScope::Project(id) => match view.project(id)? {
                Some(project) => (
                    "project",
                    named(project.domain)?,
                    Some(project.name.to_string()),
                ),
                None => continue,
            },
        };
        shown.push(GrantView {
            role: held.grant.role,
            scope: scope.to_owned(),
            domain,
            project,
            expires_at: held.expires_at,
        });
    }
    Ok(shown)
}

fn account(view: &ReadTransaction<'_>, who: &str) -> Result<Option<User>, Failure> {
    let found = match who.parse::<UserId>() {
        Ok(id) => view.user(id)?,
        Err(_) => view.user_named(who)?,
    };
    Ok(found.filter(|user| user.id != crate::catalog::users::ROOT))
}

pub(super) fn find_domain(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    which: &str,
) -> Result<Domain, Failure> {
    let found = match uuid::Uuid::try_parse(which) {
        Ok(id) => view.domain(DomainId(id))?,
        Err(_) => view.domain_named(which)?,
    };
    found
        .filter(|domain| subject.reaches(domain.id))
        .ok_or_else(|| refusals::domain_not_found().into())
}

/// The project that is meant, where the subject has the permission on it.
pub(super) fn find_project(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    permission: Permission,
    which: &str,
) -> Result<Project, Failure> {
    // A token without the permission learns of no project.
    may(
        subject,
        Permission::ProjectsRead,
        &Scope::user(subject.user),
    )?;
    let reach = permissions::reach(subject, Permission::ProjectsRead);
    let found = match uuid::Uuid::try_parse(which) {
        Ok(id) => view.project(ProjectId(id))?.into_iter().collect(),
        Err(_) => match which.split_once('/') {
            Some((domain, name)) => match view.domain_named(domain)? {
                Some(domain) => view.projects_named(&reach, name, Some(domain.id))?,
                None => Vec::new(),
            },
            None => {
                // A name alone means the own domain's, where it has one.
                let own = view.projects_named(&reach, which, Some(subject.domain))?;
                match own.is_empty() {
                    true => view.projects_named(&reach, which, None)?,
                    false => own,
                }
            }
        },
    };
    let mut found = found.into_iter().filter(|one| reach.covers(&one.scope()));
    let Some(project) = found.next() else {
        return Err(refusals::project_not_found().into());
    };
    if found.next().is_some() {
        return Err(refusals::project_ambiguous(&project.name).into());
    }
    may(subject, permission, &project.scope())?;
    Ok(project)
}

fn show_domain(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    domain: Domain,
) -> Result<DomainView, Failure> {
    // How many users a domain has is for those who may list them.
    let counted = may(subject, Permission::UsersRead, &Scope::domain(domain.id)).is_ok();
    Ok(DomainView {
        users: match counted {
            true => view.users_of_domain(domain.id)?,
            false => 0,
        },
        id: domain.id,
        name: domain.name.to_string(),
        title: domain.title,
        generation: domain.generation,
    })
}

fn show(subject: &Subject, row: ProjectRow) -> ProjectView {
    let here = |grant: &&Grant| grant.scope == GrantScope::Project(row.project.id);
    ProjectView {
        id: row.project.id,
        domain: row.domain_name.to_string(),
        name: row.project.name.to_string(),
        title: row.project.title.clone(),
        state: row.project.state,
        members: row.members,
        live_sessions: row.live_sessions,
        role: subject.grants.iter().find(here).map(|grant| grant.role),
        writable: may(subject, Permission::ProjectsWrite, &row.project.scope()).is_ok(),
        generation: row.project.generation,
    }
}

fn show_project(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    project: &Project,
) -> Result<ProjectView, Failure> {
    let domain = view.domain(project.domain)?;
    let (live_sessions, _) = view.live_in_project(project.id, None)?;
    let row = ProjectRow {
        domain_name: match domain {
            Some(domain) => domain.name,
            None => project.name.clone(),
        },
        members: view.members(project.id)?.len() as u64,
        live_sessions,
        project: project.clone(),
    };
    Ok(show(subject, row))
}

fn title_of(typed: &str) -> Result<String, Failure> {
    let typed = typed.trim();
    let good = typed.chars().count() <= MAX_TITLE_LENGTH && !typed.chars().any(hidden);
    match good {
        true => Ok(typed.to_owned()),
        false => Err(refusals::tenant_title_invalid().at("/title").into()),
    }
}

pub(super) fn ends_later(rows: &Rows<'_>, expires_at: Option<Timestamp>) -> Result<(), Failure> {
    match expires_at.is_some_and(|end| end <= rows.now) {
        true => Err(refusals::grant_ends_in_past().at("/expires_at").into()),
        false => Ok(()),
    }
}

fn note_grant(
    rows: &Rows<'_>,
    actor: &str,
    user: &User,
    code: &str,
    grant: &Grant,
    domain: Option<&str>,
) -> Result<(), Failure> {
    let after = format!("{} {}", grant.role.word(), domain.unwrap_or("site"));
    rows.note(NewEvent {
        actor,
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::domain(user.domain),
        code,
        before: "",
        after: &after,
    })
}

fn note(
    rows: &Rows<'_>,
    actor: &str,
    object: &str,
    scope: Scope,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor,
        topic: "projects",
        object,
        scope,
        code,
        before,
        after,
    })
}
