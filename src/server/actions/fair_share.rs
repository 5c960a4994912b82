//! The order of the queue, weights, and where everybody stands by fair share.

use rules::quota::TenantLevel;
use std::collections::BTreeMap;

use api::fair_share::{FairShareItem, FairSharePatchBody, FairShareView, FairWeightBody};
use api::policies::PolicyUseBody;
use rules::fair_share::MAX_WEIGHT;
use rules::names::UserId;
use rules::permissions::{Permission, may};
use rules::placement::{self, FairAccount};
use rules::refusal::{FieldError, Refusal};
use rules::refusals;
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::Timestamp;
use uuid::Uuid;

use super::policies::{place, subject};
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::fair_share::{QueueRule, WeightOf};
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Hours of a half-life at most: a year.
const MAX_HALF_LIFE: u32 = 8_760;

/// The order that holds, and every domain, project and user that fair share knows.
pub async fn show(server: &Server, caller: &Caller) -> Result<FairShareView, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    let now = server.clock().now();
    server
        .catalog()
        .read("show fair share", move |view| told(view, now))
        .await
}

/// Sets the order of the queue, its backfill, or the half-life of fair share. It holds from the next pass on.
///
/// Errors: `fair-share.half-life-out-of-range`, `fair-share.stale`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    patch: FairSharePatchBody,
    if_match: Option<u64>,
) -> Result<FairShareView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    check_half_life(patch.half_life_hours)?;
    let actor = caller.name.clone();
    server
        .catalog()
        .write(
            Lane::Requests,
            "change the order of the queue",
            move |rows| {
                let rule = rows.queue_rule()?;
                if if_match.is_some_and(|seen| seen != rule.generation) {
                    return Err(refusals::fair_share_stale(rule.generation).into());
                }
                let wanted = QueueRule {
                    order: patch.order.unwrap_or(rule.order),
                    backfill: patch.backfill.unwrap_or(rule.backfill),
                    half_life_hours: patch.half_life_hours.unwrap_or(rule.half_life_hours),
                    ..rule
                };
                if wanted != rule {
                    rows.put_queue_rule(wanted)?;
                    let after = rows.queue_rule()?;
                    note(
                        rows,
                        actor.as_str(),
                        "queue.order-changed",
                        &said(rule),
                        &said(after),
                    )?;
                }
                told(rows, rows.now)
            },
        )
        .await
}

/// Errors: `fair-share.half-life-out-of-range`.
pub(super) fn check_half_life(hours: Option<u32>) -> Result<(), Refusal> {
    match hours.is_none_or(|hours| (1..=MAX_HALF_LIFE).contains(&hours)) {
        true => Ok(()),
        false => {
            let refusal = refusals::fair_share_half_life_out_of_range(MAX_HALF_LIFE);
            Err(refusal.at("/half_life_hours"))
        }
    }
}

/// Sets the weight of a domain, a project or a user.
///
/// Errors: `fair-share.weight-out-of-range`, `domain.not-found`, `project.not-found`,
/// `user.not-found`; where both the weight and the name are wrong, the first with the other at its field.
pub async fn weigh(
    server: &Server,
    caller: &Caller,
    asked: FairWeightBody,
) -> Result<FairShareView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let wrong_weight = (!(1..=MAX_WEIGHT).contains(&asked.weight))
        .then(|| refusals::fair_share_weight_out_of_range(MAX_WEIGHT).at("/weight"));
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "set a weight", move |rows| {
            let of = PolicyUseBody {
                level: asked.level.into(),
                subject: Some(asked.subject),
            };
            let (id, whose) = match (subject(rows, &caller, &of), wrong_weight) {
                (Ok(found), None) => found,
                (Ok(_), Some(weight)) => return Err(weight.into()),
                (Err(Failure::Refusal(name)), Some(weight)) => {
                    return Err(both(weight, &name).into());
                }
                (Err(failure), _) => return Err(failure),
            };
            let of = WeightOf {
                level: asked.level,
                subject: id.unwrap_or_default(),
            };
            let known = rows.fair_weights()?;
            let before = known.iter().find(|(known, _)| *known == of);
            let before = before.map_or(1, |(_, weight)| *weight);
            if before != asked.weight {
                rows.put_fair_weight(of, asked.weight)?;
                let whose = place(of.level.into(), &whose);
                let (before, after) = (
                    format!("{whose}: {before}"),
                    format!("{whose}: {}", asked.weight),
                );
                note(
                    rows,
                    caller.name.as_str(),
                    "queue.weight-changed",
                    &before,
                    &after,
                )?;
            }
            told(rows, rows.now)
        })
        .await
}

/// A refusal of the weight that also says at its field what is wrong with the name.
fn both(mut weight: Refusal, name: &Refusal) -> Refusal {
    weight.fields.push(FieldError {
        pointer: "/subject".to_owned(),
        code: name.code.clone(),
        text: name.text.clone(),
    });
    weight
}

fn said(rule: QueueRule) -> String {
    let (order, backfill) = (rule.order.word(), rule.backfill.word());
    format!("{order}, {backfill} backfill, {} h", rule.half_life_hours)
}

fn note(
    rows: &Rows<'_>,
    actor: &str,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor,
        topic: "system",
        object: "queue",
        scope: Scope::SITE,
        code,
        before,
        after,
    })
}

fn told(view: &ReadTransaction<'_>, now: Timestamp) -> Result<FairShareView, Failure> {
    let rule = view.queue_rule()?;
    let mut world = view.world()?;
    // Shown also while another order holds: what would be.
    world.fair.weights = view
        .fair_weights()?
        .into_iter()
        .map(|(of, weight)| (of.level, of.subject, weight))
        .collect();
    if world.fair.past.is_empty() {
        world.fair.past = view.standing(now)?;
    }
    let names = TenantNames::read(view)?;
    let items = placement::fair_accounts(&world);
    let mut items: Vec<FairShareItem> = items.iter().filter_map(|one| names.item(one)).collect();
    items.extend(unused(view, &items, now)?);
    Ok(FairShareView {
        order: rule.order,
        backfill: rule.backfill,
        half_life_hours: rule.half_life_hours,
        generation: rule.generation,
        items,
    })
}

/// Weights of those that used nothing yet and wait for nothing.
fn unused(
    view: &ReadTransaction<'_>,
    known: &[FairShareItem],
    now: Timestamp,
) -> Result<Vec<FairShareItem>, Failure> {
    let mut more = Vec::new();
    for (of, weight) in view.fair_weights()? {
        let (domain, project, user) = match of.level {
            TenantLevel::Domain => (Some(DomainId(of.subject)), None, None),
            TenantLevel::Project => {
                let project = view.project(ProjectId(of.subject))?;
                (project.as_ref().map(|one| one.domain), project, None)
            }
            TenantLevel::User => {
                let home = view.home_project(UserId(of.subject), now)?;
                let project = match home {
                    Some((_, id)) => view.project(id)?,
                    None => None,
                };
                let user = view.user_name(UserId(of.subject))?;
                (home.map(|(domain, _)| domain), project, user)
            }
        };
        let domain = match domain {
            Some(id) => view.domains()?.into_iter().find(|one| one.id == id),
            None => None,
        };
        let named = FairShareItem {
            level: of.level,
            domain: domain.map_or_else(String::new, |one| one.name.to_string()),
            project: project.map_or_else(String::new, |one| one.name.to_string()),
            user: user.map_or_else(String::new, |name| name.to_string()),
            weight: u64::from(weight),
            share: 0.0,
            past: 0.0,
            value: 0.0,
        };
        let own = |item: &FairShareItem| match of.level {
            TenantLevel::Domain => item.domain.clone(),
            TenantLevel::Project => format!("{}/{}", item.domain, item.project),
            TenantLevel::User => item.user.clone(),
        };
        let there = |item: &FairShareItem| item.level == of.level && own(item) == own(&named);
        if !known.iter().any(there) {
            more.push(named);
        }
    }
    Ok(more)
}

/// Names of domains, projects and users by id.
struct TenantNames(BTreeMap<Uuid, String>);

impl TenantNames {
    fn read(view: &ReadTransaction<'_>) -> Result<Self, Failure> {
        Ok(Self(view.tenant_names()?.into_iter().collect()))
    }

    fn item(&self, one: &FairAccount) -> Option<FairShareItem> {
        let named = |id: Option<Uuid>| match id {
            Some(id) => self.0.get(&id).cloned(),
            None => Some(String::new()),
        };
        let part = |millionths: u64| millionths as f64 / 1e6;
        Some(FairShareItem {
            level: one.level,
            domain: named(Some(one.domain.0))?,
            project: named(one.project.map(|id| id.0))?,
            user: named(one.user.map(|id| id.0))?,
            weight: one.weight,
            share: part(one.now),
            past: part(one.past),
            value: placement::fair_value(one.value),
        })
    }
}

#[cfg(test)]
mod tests;
