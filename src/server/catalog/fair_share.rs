//! Rows of the queue's order and of fair share: which order holds, weights, and what the use of the past comes to.
//! Decides nothing; `rules::placement` sorts by it.

use rules::fair_share::{self, FairLeaf, FairShares, QueueOrder};
use rules::metering;
use rules::names::UserId;
use rules::policy::BackfillMode;
use rules::quota::TenantLevel;
use rules::resource_group::{GroupPlan, ResourceGroup};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::Timestamp;
use rules::world::whole_cluster;
use rusqlite::{OptionalExtension as _, Row};
use uuid::Uuid;

use super::Catalog;
use super::ledger::sum_row;
use super::reader::ReadTransaction;
use super::value;
use super::writer::{Lane, Rows};
use crate::Failure;

/// Half-lives that are read back: what is older counts less than a thousandth.
const HALF_LIVES: i64 = 10;

/// Which order holds, and who may start before one that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueRule {
    pub(crate) order: QueueOrder,
    pub(crate) backfill: BackfillMode,
    pub(crate) half_life_hours: u32,
    pub(crate) generation: u64,
}

/// What a weight is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WeightOf {
    pub(crate) level: TenantLevel,
    pub(crate) subject: Uuid,
}

fn leaf(row: &Row<'_>) -> rusqlite::Result<FairLeaf> {
    Ok(FairLeaf {
        domain: DomainId(value::id(row, "domain")?),
        project: ProjectId(value::id(row, "project")?),
        user: UserId(value::id(row, "owner")?),
    })
}

impl ReadTransaction<'_> {
    pub(crate) fn queue_rule(&self) -> Result<QueueRule, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select ordering, backfill, half_life_hours, generation
                 from queue_rule
                 where id = 1",
            )?
            .query_row([], |row| {
                Ok(QueueRule {
                    order: value::word(row, "ordering", QueueOrder::parse)?,
                    backfill: value::word(row, "backfill", BackfillMode::parse)?,
                    half_life_hours: row.get("half_life_hours")?,
                    generation: value::unsigned(row, "generation")?,
                })
            })?)
    }

    /// What shares go by; empty where neither the site's queue nor that of a group goes by them. Costs a visit a weight and
    /// a user of the past.
    pub(crate) fn fair_shares(
        &self,
        rule: QueueRule,
        groups: &GroupPlan,
    ) -> Result<FairShares, Failure> {
        let mut own = groups.groups.iter().flat_map(ResourceGroup::orders);
        if !rule.order.goes_by_share() && !own.any(QueueOrder::goes_by_share) {
            return Ok(FairShares::default());
        }
        let mut statement = self
            .connection
            .prepare_cached("select domain, project, owner, past from fair_standing")?;
        let rows =
            statement.query_map([], |row| Ok((leaf(row)?, value::unsigned(row, "past")?)))?;
        Ok(FairShares {
            weights: self
                .fair_weights()?
                .into_iter()
                .map(|(of, weight)| (of.level, of.subject, weight))
                .collect(),
            past: rows.collect::<Result<_, _>>()?,
        })
    }

    /// Weights other than 1, by kind and id.
    pub(crate) fn fair_weights(&self) -> Result<Vec<(WeightOf, u32)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select subject_kind, subject, weight from fair_weight order by subject_kind, subject",
        )?;
        let rows = statement.query_map([], |row| {
            let of = WeightOf {
                level: value::word(row, "subject_kind", TenantLevel::parse)?,
                subject: value::id(row, "subject")?,
            };
            Ok((of, row.get("weight")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Names of all domains, projects and users, by id. Costs a visit to each.
    pub(crate) fn tenant_names(&self) -> Result<Vec<(Uuid, String)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, name from domain
             union all
             select id, name from project
             union all
             select id, name from \"user\"",
        )?;
        let rows = statement.query_map([], |row| Ok((value::id(row, "id")?, row.get("name")?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether the site's queue, or that of some group, goes by the use of the past.
    fn counts_past(&self, rule: QueueRule) -> Result<bool, Failure> {
        let groups = self.resource_groups()?;
        let mut own = groups.iter().flat_map(ResourceGroup::orders);
        Ok(rule.order == QueueOrder::Fair || own.any(|order| order == QueueOrder::Fair))
    }

    /// Whether the use of the past has to be summed up for this hour.
    fn is_standing_due(&self, now: Timestamp) -> Result<bool, Failure> {
        if !self.counts_past(self.queue_rule()?)? {
            return Ok(false);
        }
        let of = self
            .connection
            .prepare_cached("select hour from fair_standing limit 1")?
            .query_row([], |row| row.get::<_, i64>("hour"))
            .optional()?;
        Ok(of != Some(metering::hour_of(now)))
    }

    /// What the use of the past comes to now. Costs a visit to each row of `usage` of ten half-lives.
    pub(crate) fn standing(&self, now: Timestamp) -> Result<Vec<(FairLeaf, u64)>, Failure> {
        let half_life = self.queue_rule()?.half_life_hours;
        let hour = metering::hour_of(now);
        let whole = whole_cluster(&self.nodes()?);
        let since = hour - i64::from(half_life) * HALF_LIVES;
        let mut statement = self.connection.prepare_cached(
            "select hour, domain, project, owner, session, gpu, cpu, memory, starts, waited
             from usage
             where hour >= ?1",
        )?;
        let rows = statement
            .query_map([since], |row| {
                Ok((leaf(row)?, row.get("hour")?, sum_row(row)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        Ok(fair_share::standing(
            whole,
            rows,
            hour,
            u64::from(half_life),
        ))
    }
}

impl Rows<'_> {
    /// Sets the rule, where it still is of the generation that this one names. False where it moved on.
    pub(crate) fn put_queue_rule(&self, rule: QueueRule) -> Result<bool, Failure> {
        let written = self
            .connection
            .prepare_cached(
                "update queue_rule
                 set ordering = ?1, backfill = ?2, half_life_hours = ?3, generation = generation + 1
                 where id = 1 and generation = ?4",
            )?
            .execute((
                rule.order.word(),
                rule.backfill.word(),
                rule.half_life_hours,
                value::signed(rule.generation),
            ))?;
        if written > 0 {
            self.sum_up_past()?;
        }
        Ok(written > 0)
    }

    /// Sums up the use of the past, as far as some queue goes by it now.
    pub(crate) fn sum_up_past(&self) -> Result<(), Failure> {
        let standing = match self.counts_past(self.queue_rule()?)? {
            true => self.standing(self.now)?,
            false => Vec::new(),
        };
        self.put_standing(&standing)
    }

    /// Sets a weight; 1 takes the row away.
    pub(crate) fn put_fair_weight(&self, of: WeightOf, weight: u32) -> Result<(), Failure> {
        let subject = of.subject.as_bytes();
        if weight == 1 {
            self.connection
                .prepare_cached("delete from fair_weight where subject_kind = ?1 and subject = ?2")?
                .execute((of.level.word(), subject))?;
        } else {
            self.connection
                .prepare_cached(
                    "insert into fair_weight (subject_kind, subject, weight)
                     values (?1, ?2, ?3)
                     on conflict (subject_kind, subject) do update set weight = ?3",
                )?
                .execute((of.level.word(), subject, weight))?;
        }
        Ok(())
    }

    fn put_standing(&self, standing: &[(FairLeaf, u64)]) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from fair_standing")?
            .execute([])?;
        let mut insert = self.connection.prepare_cached(
            "insert into fair_standing (domain, project, owner, past, hour)
             values (?1, ?2, ?3, ?4, ?5)",
        )?;
        let hour = metering::hour_of(self.now);
        for (leaf, past) in standing {
            insert.execute((
                leaf.domain.0.as_bytes(),
                leaf.project.0.as_bytes(),
                leaf.user.0.as_bytes(),
                value::signed(*past),
                hour,
            ))?;
        }
        Ok(())
    }
}

impl Catalog {
    /// Sums up the use of the past where another hour began and the queue goes by it.
    pub(crate) async fn refresh_standing(&self) -> Result<(), Failure> {
        let now = self.clock().now();
        let found = self
            .read("sum up the use of the past", move |view| {
                match view.is_standing_due(now)? {
                    true => view.standing(now).map(Some),
                    false => Ok(None),
                }
            })
            .await?;
        if let Some(standing) = found {
            self.write(Lane::Loops, "note the use of the past", move |rows| {
                rows.put_standing(&standing)
            })
            .await?;
        }
        Ok(())
    }
}
