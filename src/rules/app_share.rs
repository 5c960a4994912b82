//! Who opens an app of a session that they may not enter: a member of the session's project with whom it is shared, or every
//! member. A visitor reaches that one app, and nothing else of the session.

use crate::app::AppChoice;
use crate::grants::{Grant, GrantScope};
use crate::names::{AppShareId, SessionId, UserId};
use crate::permissions::Subject;
use crate::refusal::Refusal;
use crate::refusals;
use crate::tenancy::ProjectId;
use crate::units::Timestamp;

/// Days that an app is shared at most. Higher: a visitor is forgotten. Lower: a demonstration of a term is shared again and
/// again.
pub const MAX_SHARE_DAYS: u64 = 90;
/// Days where none are said.
pub const USUAL_SHARE_DAYS: u64 = 7;
/// Seconds of a day.
const DAY: u64 = 86_400;

/// One share of one app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppShare {
    pub id: AppShareId,
    pub session: SessionId,
    pub app: AppChoice,
    /// None: every member of the session's project.
    pub user: Option<UserId>,
    pub created_at: Timestamp,
    pub ends_at: Timestamp,
}

impl AppShare {
    /// Whether a subject opens the app by it. Who left the project does no more.
    pub fn opens_for(&self, subject: &Subject, project: ProjectId, now: Timestamp) -> bool {
        let is_meant = self.user.is_none_or(|user| user == subject.user);
        is_meant && now < self.ends_at && is_member(&subject.grants, project)
    }
}

/// Whether grants make a member of a project: one who works in it, not one who only looks.
pub fn is_member(grants: &[Grant], project: ProjectId) -> bool {
    let of_project = |grant: &Grant| grant.scope == GrantScope::Project(project);
    grants
        .iter()
        .any(|grant| grant.role.launches() && of_project(grant))
}

/// When a new share ends. Errors: `app.share-end`.
pub fn share_end(asked: Option<Timestamp>, now: Timestamp) -> Result<Timestamp, Refusal> {
    let end = asked.unwrap_or(now.plus_seconds(USUAL_SHARE_DAYS * DAY));
    match end > now && end <= now.plus_seconds(MAX_SHARE_DAYS * DAY) {
        true => Ok(end),
        false => Err(refusals::app_share_end(MAX_SHARE_DAYS).at("/until")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::GrantRole;
    use crate::tenancy::DomainId;
    use uuid::Uuid;

    fn at(days: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).plus_seconds(days * DAY)
    }

    #[test]
    fn a_share_opens_for_members_alone_and_for_its_time() {
        let project = ProjectId(Uuid::from_u128(1));
        let subject = |user: u128, role: GrantRole, of: u128| Subject {
            user: UserId(Uuid::from_u128(user)),
            grants: vec![Grant {
                role,
                scope: GrantScope::Project(ProjectId(Uuid::from_u128(of))),
            }],
            domain: DomainId::DEFAULT,
            scopes: None,
        };
        let share = |user: Option<u128>| AppShare {
            id: AppShareId(Uuid::from_u128(1)),
            session: SessionId(Uuid::from_u128(1)),
            app: AppChoice::Port(8000),
            user: user.map(|user| UserId(Uuid::from_u128(user))),
            created_at: at(0),
            ends_at: at(7),
        };
        for (of, user, role, member_of, day, opens) in [
            (Some(5), 5, GrantRole::Member, 1, 6, true),
            (Some(5), 5, GrantRole::Member, 1, 7, false),
            (Some(5), 6, GrantRole::Member, 1, 6, false),
            (Some(5), 5, GrantRole::Member, 2, 6, false),
            (Some(5), 5, GrantRole::Viewer, 1, 6, false),
            (None, 6, GrantRole::Lead, 1, 6, true),
            (None, 6, GrantRole::Member, 2, 6, false),
        ] {
            let found = share(of).opens_for(&subject(user, role, member_of), project, at(day));
            assert_eq!(found, opens, "{of:?} {user} {role:?} {member_of} {day}");
        }
    }

    #[test]
    fn a_share_ends_within_a_time() {
        let end = |asked| share_end(asked, at(0)).map_err(|refusal| refusal.code);
        assert_eq!(end(None), Ok(at(USUAL_SHARE_DAYS)));
        assert_eq!(end(Some(at(MAX_SHARE_DAYS))), Ok(at(MAX_SHARE_DAYS)));
        for wrong in [at(0), at(MAX_SHARE_DAYS).plus_seconds(1)] {
            assert_eq!(end(Some(wrong)), Err("app.share-end".into()));
        }
    }
}
