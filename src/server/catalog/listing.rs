//! Lists of sessions: filters, order and pages as SQL. What a word of the query language means is
//! decided in `actions`; here it is only looked up.

use rules::names::{ContainerName, ResourceGroupId, SessionId};
use rules::permissions::Reach;
use rules::session::{Outcome, Session, SessionKind, SessionState};
use rules::workload::container::MAIN;
use rusqlite::types::Value;

use super::reach::{SESSION, condition};
use super::reader::ReadTransaction;
use super::sessions::{columns_read, from_row, kind_word};
use super::value;
use crate::Failure;

/// Which sessions of a reach a list holds. Everything given must hold; empty means every session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SessionFilter {
    /// Names of owners; any of them.
    pub(crate) owners: Vec<String>,
    /// Names of projects, or `DOMAIN/NAME`; any of them.
    pub(crate) projects: Vec<String>,
    /// Names of resource groups; any of them.
    pub(crate) groups: Vec<String>,
    pub(crate) states: Vec<SessionState>,
    pub(crate) kinds: Vec<SessionKind>,
    /// Parts of references; any of them.
    pub(crate) images: Vec<String>,
    /// Parts of names; any of them.
    pub(crate) names: Vec<String>,
    /// Labels by name, and by value where one is given; all of them.
    pub(crate) labels: Vec<(String, Option<String>)>,
    /// How they ended; any of them.
    pub(crate) outcomes: Vec<Outcome>,
    /// One of the replicas of a launch; any of these launches.
    pub(crate) replicas: Vec<SessionId>,
    /// Words that stand somewhere in name, image, command, labels or id; all of them.
    pub(crate) words: Vec<String>,
}

/// By what a list is sorted; the id breaks ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortKey {
    Created,
    Started,
    Ended,
    Name,
}

impl SortKey {
    fn column(self) -> &'static str {
        match self {
            Self::Created => "created_at",
            Self::Started => "coalesce(started_at, 0)",
            Self::Ended => "coalesce(ended_at, 0)",
            Self::Name => "lower(name)",
        }
    }

    /// The value of this key in a row, as a cursor keeps it.
    pub(crate) fn of(self, session: &Session) -> SortValue {
        let time = |at: Option<rules::units::Timestamp>| {
            SortValue::Number(at.map_or(0, rules::units::Timestamp::as_millis))
        };
        match self {
            Self::Created => time(Some(session.created_at)),
            Self::Started => time(session.started_at()),
            Self::Ended => time(session.ended_at()),
            Self::Name => SortValue::Text(session.name.as_str().to_ascii_lowercase()),
        }
    }
}

/// The value of a sort key.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum SortValue {
    Number(i64),
    Text(String),
}

/// One page's order and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListOrder {
    pub(crate) key: SortKey,
    pub(crate) descending: bool,
    /// The last row of the page before.
    pub(crate) after: Option<(SortValue, SessionId)>,
    pub(crate) limit: u32,
}

/// A list is counted up to here; beyond, "about" is all that a page can use.
const COUNTED: u32 = 10_000;

impl ReadTransaction<'_> {
    /// One page of the sessions that `filter` lets through.
    pub(crate) fn list_sessions(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        order: &ListOrder,
    ) -> Result<Vec<Session>, Failure> {
        let (mut clauses, mut values) = filter.sql(reach);
        let column = order.key.column();
        let direction = if order.descending { "desc" } else { "asc" };
        if let Some((key, id)) = &order.after {
            let sign = if order.descending { "<" } else { ">" };
            clauses.push(format!("({column}, id) {sign} (?, ?)"));
            values.push(match key {
                SortValue::Number(number) => Value::Integer(*number),
                SortValue::Text(text) => Value::Text(text.clone()),
            });
            values.push(Value::Blob(id.0.as_bytes().to_vec()));
        }
        values.push(Value::Integer(order.limit.into()));
        let mut statement = self.connection.prepare_cached(&format!(
            "select {}
             from session
             {}
             order by {column} {direction}, id {direction}
             limit ?",
            columns_read(),
            filter_clause(&clauses)
        ))?;
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
            from_row(row, self.seal)
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How many sessions `filter` lets through; 10,000 stands for that many or more.
    pub(crate) fn count_sessions(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
    ) -> Result<u64, Failure> {
        let (clauses, mut values) = filter.sql(reach);
        values.push(Value::Integer(COUNTED.into()));
        let count = self
            .connection
            .prepare_cached(&format!(
                "select count(*) as n
                 from (select 1 from session {} limit ?)",
                filter_clause(&clauses)
            ))?
            .query_row(rusqlite::params_from_iter(values), |row| {
                value::unsigned(row, "n")
            })?;
        Ok(count)
    }

    /// How many sessions ended after `since`, and how many of them did not end well.
    pub(crate) fn count_ended(
        &self,
        reach: &Reach,
        since: rules::units::Timestamp,
    ) -> Result<(u64, u64), Failure> {
        let (reached, value) = condition(reach, SESSION, "?2");
        // Named, for with two conditions on indexed columns SQLite would read the rows of the owner.
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select count(*) as ended,
                        count(*) filter (where outcome in ('failed', 'lost', 'refused')) as failed
                 from session indexed by session_ended
                 where state = 'ended' and ended_at > ?1 and {reached}"
            ))?
            .query_row((since.as_millis(), value), |row| {
                Ok((
                    value::unsigned(row, "ended")?,
                    value::unsigned(row, "failed")?,
                ))
            })?)
    }

    /// Sessions of this name, live ones first, then the newest.
    pub(crate) fn sessions_called(
        &self,
        reach: &Reach,
        name: &str,
    ) -> Result<Vec<Session>, Failure> {
        let (reached, value) = condition(reach, SESSION, "?2");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {}
             from session
             where name = ?1 and {reached}
             order by state = 'ended', created_at desc, id desc
             limit 8",
            columns_read()
        ))?;
        let rows = statement.query_map((name, value), |row| from_row(row, self.seal))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The main containers of running sessions whose launch names apps, by id.
    pub(crate) fn containers_with_apps(&self) -> Result<Vec<ContainerName>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, incarnation
             from session
             where apps <> '' and state = 'running'
             order by id",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(ContainerName {
                session: SessionId(value::id(row, "id")?),
                incarnation: row.get("incarnation")?,
                index: MAIN,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Sessions with ids from `low` to `high`, at most two: enough to know whether a prefix is
    /// unique.
    pub(crate) fn sessions_between(
        &self,
        reach: &Reach,
        low: [u8; 16],
        high: [u8; 16],
    ) -> Result<Vec<Session>, Failure> {
        let (reached, value) = condition(reach, SESSION, "?3");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {}
             from session
             where id between ?1 and ?2 and {reached}
             order by id
             limit 2",
            columns_read()
        ))?;
        let rows = statement.query_map((low, high, value), |row| from_row(row, self.seal))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

pub(super) fn filter_clause(clauses: &[String]) -> String {
    if clauses.is_empty() {
        String::new()
    } else {
        format!("where {}", clauses.join(" and "))
    }
}

impl SessionFilter {
    /// Its conditions, and the values for their parameters in order.
    pub(super) fn sql(&self, reach: &Reach) -> (Vec<String>, Vec<Value>) {
        let (reached, value) = condition(reach, SESSION, "?");
        let mut clauses = vec![reached];
        let mut values = vec![value.map_or(Value::Null, |id| Value::Blob(id.to_vec()))];
        let mut any = |clause: &str, texts: Vec<String>| {
            if !texts.is_empty() {
                let each = vec![clause; texts.len()];
                clauses.push(format!("({})", each.join(" or ")));
                values.extend(texts.into_iter().map(Value::Text));
            }
        };
        any(
            "owner in (select id from user where name = ?)",
            self.owners.clone(),
        );
        any(
            "project in (select project.id from project
             join domain on domain.id = project.domain
             where ? in (project.name, domain.name || '/' || project.name))",
            self.projects.clone(),
        );
        let in_group = format!(
            "coalesce(resource_group, x'{}') in (select id from resource_group where name = ?)",
            ResourceGroupId::DEFAULT.0.simple()
        );
        any(&in_group, self.groups.clone());
        let states = self
            .states
            .iter()
            .map(|state| state.word().to_owned())
            .collect();
        any("state = ?", states);
        let kinds = self
            .kinds
            .iter()
            .map(|k| kind_word(*k).to_owned())
            .collect();
        any("kind = ?", kinds);
        let outcomes = self.outcomes.iter().map(|o| o.word().to_owned()).collect();
        any("outcome = ?", outcomes);
        any("instr(image_reference, ?) > 0", self.images.clone());
        any("instr(lower(name), ?) > 0", lowered(&self.names));
        if !self.replicas.is_empty() {
            let each = vec![SAME_LAUNCH; self.replicas.len()];
            clauses.push(format!("({})", each.join(" or ")));
            let ids = self.replicas.iter();
            values.extend(ids.map(|id| Value::Blob(id.0.as_bytes().to_vec())));
        }
        for (name, wanted) in &self.labels {
            let value = if wanted.is_some() {
                " and value = ?"
            } else {
                ""
            };
            clauses.push(format!(
                "exists (select 1 from json_each(labels) where key = ?{value})"
            ));
            values.push(Value::Text(name.clone()));
            values.extend(wanted.clone().map(Value::Text));
        }
        for word in lowered(&self.words) {
            // One text after another: joining and lowering them for each row costs twice as much.
            let mut texts = vec!["name", "image_reference", "command", "labels"];
            // Writing out the id of each row costs as much as all the rest.
            if word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                texts.push("hex(id)");
            }
            let pattern = Value::Text(value::containing(&word));
            values.extend(vec![pattern; texts.len()]);
            let each: Vec<String> = texts
                .iter()
                .map(|text| format!("{text} like ? escape '\\'"))
                .collect();
            clauses.push(format!("({})", each.join(" or ")));
        }
        (clauses, values)
    }

    /// Whether it reads texts of every session there is: then the table is read in its own order, for an index would
    /// only lead to each row from another place of the file.
    pub(super) fn reads_all(&self, reach: &Reach) -> bool {
        let narrows = [&self.owners, &self.projects, &self.groups];
        let narrows = narrows.iter().any(|names| !names.is_empty())
            || !self.replicas.is_empty()
            || !self.states.is_empty();
        self.looks_at_text() && reach.is_everything() && !narrows
    }

    /// Whether it reads texts of each session, so that no index finds what it lets through.
    pub(super) fn looks_at_text(&self) -> bool {
        let parts = [&self.images, &self.names, &self.words];
        parts.iter().any(|part| !part.is_empty()) || !self.labels.is_empty()
    }
}

/// Sessions of the launch of one session whose names differ in their number only.
const SAME_LAUNCH: &str = "(owner, created_at, rtrim(name, '0123456789'), coalesce(launch, id)) = \
    (select one.owner, one.created_at, rtrim(one.name, '0123456789'), coalesce(one.launch, one.id) \
    from session one where one.id = ?)";

fn lowered(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| text.to_lowercase()).collect()
}
