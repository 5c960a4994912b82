//! The roles of a user on domains and the site as their page lists them. Changes nothing; `role_forms` does.

use api::tenancy::GrantView;
use rules::grants::GrantRole;
use server::Failure;
use server::access::Caller;
use server::actions::tenancy;

use super::PagesContext;
use super::choice_field::ChoiceField;
use super::components::Choice;
use super::projects::role_name;
use super::request_context::RequestContext;
use super::responses::encoded;
use super::users::PATH;

/// A role that a user holds.
pub struct RoleRow {
    pub role: &'static str,
    /// `site`, or the names of the domain and the project.
    pub scope: String,
    /// Empty: until it is taken away.
    pub until: String,
    /// Where taking it away is asked; empty for the last administrator's, and for a role of a project, which stands on
    /// the project's page.
    pub revoke: String,
    /// The page of the project; empty for every other role.
    pub project: String,
}

/// One row. `kept`: the user is the last administrator of the site, and that role is not offered to be taken away.
pub(super) fn row(visit: &RequestContext, user: &str, grant: &GrantView, kept: bool) -> RoleRow {
    let t = visit.text;
    let domain = grant.domain.as_deref().unwrap_or_default();
    let (scope, revoke, project) = match &grant.project {
        Some(project) => {
            let page = format!("/projects/{}", encoded(&format!("{domain}/{project}")));
            (format!("{domain} / {project}"), String::new(), page)
        }
        None => {
            let (role, of) = (grant.role.word(), encoded(domain));
            let stays = kept && domain.is_empty() && grant.role == GrantRole::Administrator;
            let ask = match stays {
                true => String::new(),
                false => format!("{PATH}/{user}/grants/revoke?role={role}&domain={of}"),
            };
            let scope = match domain {
                "" => t.users_roles_site().to_owned(),
                domain => domain.to_owned(),
            };
            (scope, ask, String::new())
        }
    };
    RoleRow {
        role: role_name(t, grant.role),
        scope,
        until: grant
            .expires_at
            .map_or_else(String::new, |at| visit.clock.last_day(at)),
        revoke,
        project,
    }
}

/// The scopes on which the caller may give roles: the site by the empty word, and domains by name.
pub(super) async fn scopes(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
) -> Result<ChoiceField, Failure> {
    let t = visit.text;
    let refused = visit.refused.as_ref();
    let chosen = refused.map_or("", |form| form.chosen("domain"));
    let mut all = Vec::new();
    if caller.subject.is_site_administrator() {
        all.push(Choice::new("", t.users_roles_site(), false));
    }
    for domain in tenancy::domains(&console.server, caller).await? {
        all.push(Choice::new(
            &domain.name,
            &domain.name,
            domain.name == chosen,
        ));
    }
    Ok(ChoiceField::of(t, all, chosen).asking("/choices/domains"))
}

/// The roles that can be given on a domain or the site; the chosen one stays where a form was refused.
pub(super) fn roles(visit: &RequestContext) -> Vec<Choice> {
    let refused = visit.refused.as_ref();
    let chosen = refused.map_or("", |form| form.chosen("role"));
    [GrantRole::Auditor, GrantRole::Administrator]
        .map(|role| {
            Choice::new(
                role.word(),
                role_name(visit.text, role),
                role.word() == chosen,
            )
        })
        .into()
}
