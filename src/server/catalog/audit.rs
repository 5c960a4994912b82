//! Rows of the audit log: one for each act, chained, written in the commit of the act. Never changed; the oldest are
//! forgotten behind a signed checkpoint only. What a row says is `rules::audit`'s.

use base::observe::random;
use rules::audit::{AuditHash, AuditStatement, NO_HASH, hex, linked};
use rules::names::{PARTS_OF_SERVER, UserId};
use rules::permissions::{Extent, Reach};
use rules::tenancy::{DomainId, Scope};
use rules::units::Timestamp;
use rusqlite::types::Value;
use rusqlite::{OptionalExtension as _, Row, params_from_iter};
use sha2::{Digest as _, Sha256};

use super::origin::{ProvenCaller, RequestOrigin};
use super::reach::{AUDIT, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Rows that a count counts. Higher: a page of a long log costs more. Lower: more of it stands behind "older".
const MAX_COUNTED: u32 = 10_000;

/// Parts of a reach that are looked through one by one. Higher: a query of a lead of many projects is longer. Lower: theirs
/// visits more rows.
const MAX_PARTS: usize = 64;

/// Rows that enter the indexes at once, in the commit of the last of them. Higher: a search visits more rows one by one.
/// Lower: an act changes more pages.
pub(super) const INDEX_BATCH: u64 = 64;

/// Holds for the rows that no index has yet: fewer than `INDEX_BATCH`, found by their keys.
const NOT_IN_INDEX: &str =
    "sequence > (select max(sequence) / 64 * 64 from audit) and in_index = 0";

/// How a request that changes rows without an act of its own is called; what it was doing stands behind it.
pub(crate) const UNNAMED: &str = "server.changed";

/// What an act is, before it has a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewAct<'a> {
    pub(crate) actor: ActingUser<'a>,
    pub(crate) act: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) object: &'a str,
    pub(crate) scope: Scope,
    pub(crate) before: &'a str,
    pub(crate) after: &'a str,
    /// The code of a refusal; empty where it was done.
    pub(crate) reason: &'a str,
}

/// Who acts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ActingUser<'a> {
    /// By the name that events have: a user's, or the part of the server that acts.
    Named(&'a str),
    Known {
        user: UserId,
        name: &'a str,
        domain: DomainId,
    },
    /// No user was authenticated.
    Unauthenticated,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditRow {
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
    /// Byte for byte.
    pub(crate) statement: String,
}

/// One row of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainRow {
    pub(crate) sequence: u64,
    /// None where the reader may not see it.
    pub(crate) statement: Option<String>,
    pub(crate) digest: AuditHash,
    pub(crate) hash: AuditHash,
}

/// One signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckpointRow {
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
    pub(crate) hash: AuditHash,
    pub(crate) statement: String,
    pub(crate) signature: Vec<u8>,
}

/// Which acts are wanted; empty text asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AuditFilter {
    /// None: of everybody. Ids of the accounts that have or had a name.
    pub(crate) actors: Option<Vec<UserId>>,
    /// An act, or its beginning up to a dot.
    pub(crate) act: String,
    /// Empty: any.
    pub(crate) objects: Vec<String>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
}

/// Some acts, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FoundActs {
    pub(crate) rows: Vec<AuditRow>,
    /// How many there are, counted up to 10,000.
    pub(crate) count: u64,
    /// Where older ones begin that were not counted.
    pub(crate) older: Option<AuditPlace>,
}

/// A place in the order of the list.
pub(crate) type AuditPlace = (i64, u64);

pub(crate) fn sha256(bytes: &[u8]) -> AuditHash {
    Sha256::digest(bytes).into()
}

impl Rows<'_> {
    /// What this request does follows from rows and is no act: it leaves no row.
    pub(crate) fn mute_acts(&self) {
        self.acts.muted.set(true);
        self.acts.settled.set(true);
    }

    /// Writes the row of one act. Costs a look at the newest row by its key, two digests and one insert; each 64th also
    /// the entries of 64 rows in five indexes.
    pub(crate) fn record(&self, new: NewAct<'_>) -> Result<(), Failure> {
        if self.acts.muted.get() {
            return Ok(());
        }
        self.acts.settled.set(true);
        let (sequence, previous) = self.newest_act()?;
        let caller = self.acts.origin.as_deref().and_then(RequestOrigin::caller);
        let who = self.acting(new.actor, caller.as_ref())?;
        let scope = new.scope;
        // What is of the whole site is of no domain: also where a user of one did it, the rest of the domain does not
        // read it.
        let domain = match (scope.domain, scope.owner) {
            (Some(domain), _) => Some(domain),
            (None, Some(owner)) if Some(owner) == who.user => who.domain,
            (None, Some(owner)) => self.domain_of_user(owner)?,
            (None, None) => None,
        };
        let origin = self.acts.origin.as_deref();
        // What the caller proved says nothing of another.
        let proven = caller.filter(|caller| who.user == Some(caller.user));
        let via = match (&proven, origin) {
            (Some(caller), _) => caller.via,
            (None, Some(_)) => "none",
            (None, None) => "server",
        };
        let statement = AuditStatement {
            sequence: sequence + 1,
            at: self.now,
            actor: who.name,
            actor_id: who.user,
            via: via.to_owned(),
            credential: proven.and_then(|caller| caller.credential),
            address: origin.map_or_else(String::new, |o| o.address.clone()),
            act: new.act.to_owned(),
            topic: new.topic.to_owned(),
            object: new.object.to_owned(),
            owner: scope.owner,
            domain,
            project: scope.project,
            before: new.before.to_owned(),
            after: new.after.to_owned(),
            reason: new.reason.to_owned(),
            request: origin.map_or_else(String::new, |o| o.request.clone()),
            salt: hex(&random::<16>()),
        };
        let text = statement.canonical();
        let digest = sha256(text.as_bytes());
        let hash = linked(&previous, &digest, sha256);
        self.connection
            .prepare_cached(
                "insert into audit
                     (sequence, statement, digest, hash, at, actor, act, object, domain, project,
                      in_index)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0)",
            )?
            .execute((
                value::signed(statement.sequence),
                text,
                digest,
                hash,
                statement.at.as_millis(),
                statement.actor_id.map(|id| *id.0.as_bytes()),
                new.act,
                new.object,
                domain.map(|id| *id.0.as_bytes()),
                scope.project.map(|id| *id.0.as_bytes()),
            ))?;
        if statement.sequence.is_multiple_of(INDEX_BATCH) {
            self.connection
                .prepare_cached(
                    "update audit set in_index = 1 where sequence > ?1 and in_index = 0",
                )?
                .execute([value::signed(statement.sequence - INDEX_BATCH)])?;
        }
        Ok(())
    }

    /// The row of a request that changed something and named no act.
    pub(super) fn record_unnamed(&self, what: &str) -> Result<(), Failure> {
        let caller = self.acts.origin.as_deref().and_then(RequestOrigin::caller);
        let scope = caller.as_ref().map_or(Scope::SITE, |c| Scope::user(c.user));
        self.record(NewAct {
            actor: match &caller {
                Some(caller) => ActingUser::Named(&caller.name),
                None => ActingUser::Unauthenticated,
            },
            act: UNNAMED,
            topic: "system",
            object: "",
            scope,
            before: "",
            after: what,
            reason: "",
        })
    }

    fn acting(
        &self,
        actor: ActingUser<'_>,
        caller: Option<&ProvenCaller>,
    ) -> Result<ActorFacts, Failure> {
        let name = match actor {
            ActingUser::Unauthenticated => return Ok(ActorFacts::default()),
            ActingUser::Known { user, name, domain } => {
                return Ok(ActorFacts {
                    name: name.to_owned(),
                    user: Some(user),
                    domain: Some(domain),
                });
            }
            ActingUser::Named(name) => name,
        };
        if let Some(caller) = caller.filter(|caller| caller.name == name) {
            return Ok(ActorFacts {
                name: name.to_owned(),
                user: Some(caller.user),
                domain: Some(caller.domain),
            });
        }
        if PARTS_OF_SERVER.contains(&name) {
            // A user of this name, who is from before such names were refused, acts in a request, or not at all.
            return Ok(ActorFacts {
                name: name.to_owned(),
                ..ActorFacts::default()
            });
        }
        let known = self
            .connection
            .prepare_cached("select id, domain from user where name = ?1 and removed_at is null")?
            .query_row([name], |row| {
                Ok((
                    UserId(value::id(row, "id")?),
                    DomainId(value::id(row, "domain")?),
                ))
            })
            .optional()?;
        Ok(ActorFacts {
            name: name.to_owned(),
            user: known.map(|(user, _)| user),
            domain: known.map(|(_, domain)| domain),
        })
    }

    fn domain_of_user(&self, user: UserId) -> Result<Option<DomainId>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select domain from user where id = ?1")?
            .query_row([user.0.as_bytes()], |row| {
                Ok(DomainId(value::id(row, "domain")?))
            })
            .optional()?)
    }

    /// Keeps a checkpoint; one of the same row stays as it is.
    pub(crate) fn put_checkpoint(&self, checkpoint: &CheckpointRow) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into audit_checkpoint (sequence, at, hash, statement, signature)
                 values (?1, ?2, ?3, ?4, ?5)
                 on conflict (sequence) do nothing",
            )?
            .execute((
                value::signed(checkpoint.sequence),
                checkpoint.at.as_millis(),
                checkpoint.hash,
                &checkpoint.statement,
                &checkpoint.signature,
            ))?;
        Ok(())
    }

    /// Forgets the oldest rows, at most `most`, up to the newest checkpoint whose row is older than `before`; gives how
    /// many. The checkpoint stays: the row behind it hangs on its hash.
    pub(crate) fn forget_acts(&self, before: Timestamp, most: u32) -> Result<usize, Failure> {
        let end: Option<i64> = self
            .connection
            .prepare_cached(
                "select max(sequence)
                 from audit_checkpoint
                 where at < ?1
                 and sequence < (select max(sequence) from audit)",
            )?
            .query_row([before.as_millis()], |row| row.get(0))?;
        let Some(end) = end else {
            return Ok(0);
        };
        let gone = self
            .connection
            .prepare_cached(
                "delete from audit
                 where sequence in (select sequence
                                    from audit
                                    where sequence <= ?1
                                    order by sequence
                                    limit ?2)",
            )?
            .execute((end, most))?;
        if gone < most as usize {
            self.connection
                .prepare_cached("delete from audit_checkpoint where sequence < ?1")?
                .execute([end])?;
        }
        Ok(gone)
    }
}

#[derive(Default)]
struct ActorFacts {
    name: String,
    user: Option<UserId>,
    domain: Option<DomainId>,
}

impl ReadTransaction<'_> {
    /// The newest row and its hash; (0, zeros) before the first.
    pub(crate) fn newest_act(&self) -> Result<(u64, AuditHash), Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select sequence, hash
                 from audit
                 order by sequence desc
                 limit 1",
            )?
            .query_row([], |row| {
                Ok((value::unsigned(row, "sequence")?, row.get("hash")?))
            })
            .optional()?
            .unwrap_or((0, NO_HASH)))
    }

    /// The oldest row that is kept and the hash before it; (1, zeros) before the first.
    #[cfg(test)]
    pub(crate) fn oldest_act(&self) -> Result<(u64, AuditHash), Failure> {
        let first = self.oldest_kept_act()?;
        Ok((first, self.hash_before(first)?))
    }

    /// The number of the oldest row that is kept; 1 before the first.
    pub(crate) fn oldest_kept_act(&self) -> Result<u64, Failure> {
        let first: Option<i64> = self
            .connection
            .prepare_cached("select min(sequence) from audit")?
            .query_row([], |row| row.get(0))?;
        Ok(first.and_then(|n| u64::try_from(n).ok()).unwrap_or(1))
    }

    /// Rows behind one, whole and in their order, at most `most`. For who may see all of them.
    pub(crate) fn acts_after(&self, after: u64, most: u32) -> Result<Vec<AuditRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select sequence, at, statement
             from audit
             where sequence > ?1
             order by sequence
             limit ?2",
        )?;
        let rows = statement.query_map((value::signed(after), most), audit_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// True where `forget_acts` finds rows.
    pub(crate) fn has_acts_to_forget(&self, before: Timestamp) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select 1
                 from audit
                 where sequence <= (select max(sequence)
                                    from audit_checkpoint
                                    where at < ?1
                                    and sequence < (select max(sequence) from audit))
                 limit 1",
            )?
            .exists([before.as_millis()])?)
    }

    /// The hash that a row hangs on.
    pub(crate) fn hash_before(&self, sequence: u64) -> Result<AuditHash, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select hash from audit where sequence = ?1
                 union all
                 select hash from audit_checkpoint where sequence = ?1
                 limit 1",
            )?
            .query_row([value::signed(sequence.saturating_sub(1))], |row| {
                row.get(0)
            })
            .optional()?;
        Ok(found.unwrap_or(NO_HASH))
    }

    /// The first and the last row between two times; None where there is none.
    pub(crate) fn acts_between(
        &self,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Result<Option<(u64, u64)>, Failure> {
        let edge =
            |which: &str, order: &str, at: Option<Timestamp>| -> Result<Option<i64>, Failure> {
                let query = match at {
                    None => format!("select {which}(sequence) from audit where ?1 is null"),
                    Some(_) => format!(
                        "select {which}(sequence)
                     from (select {which}(sequence) as sequence
                           from audit indexed by audit_at
                           where in_index = 1
                           and at {order} ?1
                           union all
                           select {which}(sequence)
                           from audit
                           where {NOT_IN_INDEX}
                           and at {order} ?1)"
                    ),
                };
                Ok(self
                    .connection
                    .prepare_cached(&query)?
                    .query_row([at.map(Timestamp::as_millis)], |row| row.get(0))?)
            };
        let first = edge("min", ">=", since)?;
        let last = edge("max", "<=", until)?;
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        Ok(first
            .zip(last)
            .filter(|(first, last)| first <= last)
            .map(|(first, last)| (number(first), number(last))))
    }

    /// Rows from one on, in their order, at most `most`; of those beyond the reach, and of other actors than these, their
    /// digests alone.
    pub(crate) fn chain(
        &self,
        reach: &Reach,
        actors: Option<&[UserId]>,
        from: u64,
        most: u32,
    ) -> Result<Vec<ChainRow>, Failure> {
        let (reached, value) = condition(reach, AUDIT, "?2");
        let mut statement = self.connection.prepare_cached(&format!(
            "select sequence, digest, hash, actor, iif({reached}, statement, null) as statement
             from audit
             where sequence >= ?1
             order by sequence
             limit ?3"
        ))?;
        let rows = statement.query_map((value::signed(from), value, most), |row| {
            let actor = value::id_or_none(row, "actor")?.map(UserId);
            let is_told = |actors: &[UserId]| actor.is_some_and(|actor| actors.contains(&actor));
            let statement: Option<String> = row.get("statement")?;
            Ok(ChainRow {
                sequence: value::unsigned(row, "sequence")?,
                statement: statement.filter(|_| actors.is_none_or(is_told)),
                digest: row.get("digest")?,
                hash: row.get("hash")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Checkpoints of the rows from one to another, in their order; at most one for each row.
    pub(crate) fn checkpoints_between(
        &self,
        from: u64,
        to: u64,
    ) -> Result<Vec<CheckpointRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select sequence, at, hash, statement, signature
             from audit_checkpoint
             where sequence between ?1 and ?2
             order by sequence",
        )?;
        let range = (value::signed(from), value::signed(to));
        let rows = statement.query_map(range, checkpoint_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The newest checkpoints, newest first, at most `most`.
    pub(crate) fn newest_checkpoints(&self, most: u32) -> Result<Vec<CheckpointRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select sequence, at, hash, statement, signature
             from audit_checkpoint
             order by sequence desc
             limit ?1",
        )?;
        let rows = statement.query_map([most], checkpoint_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Acts in reach that a filter finds, newest first: `limit` of them after `offset`, and how many there are. `before`
    /// leaves out newer ones. Costs a visit to what the filter's index finds, up to 10,000 rows of it.
    pub(crate) fn search_acts(
        &self,
        reach: &Reach,
        filter: &AuditFilter,
        before: Option<AuditPlace>,
        (offset, limit): (u64, u32),
    ) -> Result<FoundActs, Failure> {
        if filter.actors.as_ref().is_some_and(Vec::is_empty) {
            return Ok(FoundActs::default());
        }
        let mut places = self.places_of_acts(filter.unindexed(reach, before))?;
        places.extend(self.places_of_acts(filter.indexed(reach, before))?);
        // Two sorted runs.
        places.sort_by(|one, other| other.cmp(one));
        places.truncate(MAX_COUNTED as usize);
        let mut row = self
            .connection
            .prepare_cached("select sequence, at, statement from audit where sequence = ?1")?;
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let rows = places
            .iter()
            .skip(skipped)
            .take(limit as usize)
            .map(|(_, sequence)| row.query_row([value::signed(*sequence)], audit_row))
            .collect::<Result<_, _>>()?;
        let full = places.len() == MAX_COUNTED as usize;
        Ok(FoundActs {
            rows,
            count: places.len() as u64,
            older: places.last().copied().filter(|_| full),
        })
    }

    fn places_of_acts(
        &self,
        (query, values): (String, Vec<Value>),
    ) -> Result<Vec<AuditPlace>, Failure> {
        let mut statement = self.connection.prepare_cached(&query)?;
        let rows = statement.query_map(params_from_iter(values), |row| {
            Ok((row.get("at")?, value::unsigned(row, "sequence")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn audit_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        sequence: value::unsigned(row, "sequence")?,
        at: value::time(row, "at")?,
        statement: row.get("statement")?,
    })
}

fn checkpoint_row(row: &Row<'_>) -> rusqlite::Result<CheckpointRow> {
    Ok(CheckpointRow {
        sequence: value::unsigned(row, "sequence")?,
        at: value::time(row, "at")?,
        hash: row.get("hash")?,
        statement: row.get("statement")?,
        signature: row.get("signature")?,
    })
}

/// The parts of a reach that have an index each, with the column and the value; None where one index has all of it, and
/// where there are too many to look through one by one.
fn parts(reach: &Reach) -> Option<Vec<(&'static str, &'static str, [u8; 16])>> {
    let Extent::Some {
        owner,
        projects,
        domains,
    } = reach.extent()
    else {
        return None;
    };
    let own = owner.iter();
    let parts: Vec<_> = own
        .map(|user| ("audit_actor", "actor", *user.0.as_bytes()))
        .chain(
            projects
                .iter()
                .map(|project| ("audit_project", "project", *project.0.as_bytes())),
        )
        .chain(
            domains
                .iter()
                .map(|domain| ("audit_domain", "domain", *domain.0.as_bytes())),
        )
        .collect();
    (1..=MAX_PARTS).contains(&parts.len()).then_some(parts)
}

/// A condition with so many parameters; None for none. With one the index has the order too.
fn one_of(column: &str, number: usize) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("{column} = ?")),
        many => Some(format!("{column} in ({})", vec!["?"; many].join(", "))),
    }
}

impl AuditFilter {
    /// The query of the places that no index has yet, newest first, and the values for its parameters in order.
    fn unindexed(&self, reach: &Reach, before: Option<AuditPlace>) -> (String, Vec<Value>) {
        let (filtered, values) = self.conditions(before);
        let (reached, value) = condition(reach, AUDIT, "?");
        let value = value.map_or(Value::Null, |id| Value::Blob(id.to_vec()));
        let query = format!(
            "select sequence, at
             from audit
             where {NOT_IN_INDEX}
             and {reached}{filtered}
             order by at desc, sequence desc"
        );
        (query, [value].into_iter().chain(values).collect())
    }

    /// The query of the places that the indexes have, newest first, and the values for its parameters in order. A user's and a thing's acts come
    /// from their own index, those of a reach from one index for each part of it: each gives its newest in order, so that
    /// no more than 10,000 rows of each are visited where nothing else is filtered.
    fn indexed(&self, reach: &Reach, before: Option<AuditPlace>) -> (String, Vec<Value>) {
        let (filtered, values) = self.conditions(before);
        let one = |index: &str, reached: &str| {
            let index = match index {
                "" => String::new(),
                index => format!("indexed by {index}"),
            };
            format!(
                "select sequence, at
                 from audit {index}
                 where in_index = 1
                 and {reached}{filtered}
                 order by at desc, sequence desc
                 limit {MAX_COUNTED}"
            )
        };
        let index = match () {
            () if !self.objects.is_empty() => Some("audit_object"),
            () if self.actors.is_some() => Some("audit_actor"),
            () if reach.is_everything() => Some("audit_at"),
            () => None,
        };
        let parts = index.is_none().then(|| parts(reach)).flatten();
        let Some(parts) = parts else {
            let (reached, value) = condition(reach, AUDIT, "?");
            let value = value.map_or(Value::Null, |id| Value::Blob(id.to_vec()));
            let all = [value].into_iter().chain(values).collect();
            return (one(index.unwrap_or_default(), &reached), all);
        };
        let mut all = Vec::new();
        let queries: Vec<String> = parts
            .iter()
            .map(|(index, column, id)| {
                all.push(Value::Blob(id.to_vec()));
                all.extend(values.iter().cloned());
                let query = one(index, &format!("{column} = ?"));
                format!("select sequence, at from ({query})")
            })
            .collect();
        let query = match queries.as_slice() {
            [query] => query.clone(),
            several => format!(
                "{}
                 order by at desc, sequence desc
                 limit {MAX_COUNTED}",
                several.join(" union ")
            ),
        };
        (query, all)
    }

    /// Its conditions, each led by `and`, and the values for their parameters in order.
    fn conditions(&self, before: Option<AuditPlace>) -> (String, Vec<Value>) {
        let mut clauses = String::new();
        let mut values = Vec::new();
        let mut add = |clause: String, more: Vec<Value>| {
            clauses.push_str(" and ");
            clauses.push_str(&clause);
            values.extend(more);
        };
        if let Some(actors) = &self.actors {
            let blobs = actors
                .iter()
                .map(|id| Value::Blob(id.0.as_bytes().to_vec()))
                .collect();
            let none = || "actor is null and 0".to_owned();
            add(one_of("actor", actors.len()).unwrap_or_else(none), blobs);
        }
        let act = self.act.replace(['%', '_', '\\'], "");
        if !act.is_empty() {
            let act = Value::Text(act);
            add(
                "(act = ? or act like ? || '.%')".to_owned(),
                vec![act.clone(), act],
            );
        }
        let objects: Vec<Value> = self.objects.iter().cloned().map(Value::Text).collect();
        if let Some(clause) = one_of("object", objects.len()) {
            add(clause, objects);
        }
        if let Some(since) = self.since {
            add(
                "at >= ?".to_owned(),
                vec![Value::Integer(since.as_millis())],
            );
        }
        if let Some(until) = self.until {
            add(
                "at <= ?".to_owned(),
                vec![Value::Integer(until.as_millis())],
            );
        }
        if let Some((at, sequence)) = before {
            let sequence = Value::Integer(value::signed(sequence));
            add(
                "(at, sequence) < (?, ?)".to_owned(),
                vec![Value::Integer(at), sequence],
            );
        }
        (clauses, values)
    }
}
