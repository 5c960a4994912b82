//! Rows of strangers who ask for an account, and which domains let them. Decides nothing.

use rules::names::{EmailAddress, SignUpId, UserName};
use rules::sign_up::SignUpRule;
use rules::tenancy::{Domain, DomainId};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Days for which a request waits, and for which it is kept once it was declined. Longer: hashes of passwords of strangers lie around. Shorter: a holiday
/// loses requests.
const KEPT_DAYS: i64 = 30;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignUpRow {
    pub(crate) id: SignUpId,
    pub(crate) domain: DomainId,
    pub(crate) name: UserName,
    pub(crate) full_name: String,
    pub(crate) email: EmailAddress,
    /// A hash.
    pub(crate) password: String,
    pub(crate) note: String,
    pub(crate) source: String,
    pub(crate) asked_at: Timestamp,
    /// None while it waits.
    pub(crate) declined_at: Option<Timestamp>,
    pub(crate) declined_by: Option<String>,
}

fn sign_up_row(row: &Row<'_>) -> rusqlite::Result<SignUpRow> {
    Ok(SignUpRow {
        id: SignUpId(value::id(row, "id")?),
        domain: DomainId(value::id(row, "domain")?),
        name: value::word(row, "name", |text| UserName::parse(text).ok())?,
        full_name: row.get("full_name")?,
        email: value::word(row, "email", |text| EmailAddress::parse(text).ok())?,
        password: row.get("password")?,
        note: row.get("note")?,
        source: row.get("source")?,
        asked_at: value::time(row, "asked_at")?,
        declined_at: value::time_or_none(row, "declined_at")?,
        declined_by: row.get("declined_by")?,
    })
}

impl ReadTransaction<'_> {
    /// The rule of a domain; None where no stranger may ask.
    pub(crate) fn sign_up_rule(&self, domain: DomainId) -> Result<Option<SignUpRule>, Failure> {
        let text: Option<String> = self
            .connection
            .prepare_cached("select sign_up from domain where id = ?1")?
            .query_row([domain.0.as_bytes()], |row| row.get("sign_up"))
            .optional()?
            .flatten();
        Ok(text.and_then(|text| SignUpRule::parse(&text).ok()))
    }

    /// The domains that let strangers ask, by name, each with its rule. Costs one read where none does: pages of strangers ask.
    pub(crate) fn open_domains(&self) -> Result<Vec<(Domain, SignUpRule)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, sign_up from domain where sign_up is not null order by name",
        )?;
        let rows = statement.query_map([], |row| {
            let rule: String = row.get("sign_up")?;
            Ok((DomainId(value::id(row, "id")?), rule))
        })?;
        let rows: Vec<(DomainId, String)> = rows.collect::<Result<_, _>>()?;
        let mut open = Vec::new();
        for (id, rule) in rows {
            if let (Some(domain), Ok(rule)) = (self.domain(id)?, SignUpRule::parse(&rule)) {
                open.push((domain, rule));
            }
        }
        Ok(open)
    }

    /// How many requests of a domain wait, and when the newest was made. Reads an index, and no request.
    pub(crate) fn waiting_sign_ups(
        &self,
        domain: DomainId,
    ) -> Result<(u64, Option<Timestamp>), Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*) as n, max(asked_at) as newest
                 from sign_up
                 where domain = ?1 and declined_at is null",
            )?
            .query_row([domain.0.as_bytes()], |row| {
                Ok((
                    value::unsigned(row, "n")?,
                    value::time_or_none(row, "newest")?,
                ))
            })?)
    }

    /// Every request of a domain, the oldest first; bounded by those who write them.
    pub(crate) fn sign_ups(&self, domain: DomainId) -> Result<Vec<SignUpRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, domain, name, full_name, email, password, note, source, asked_at,
                    declined_at, declined_by
             from sign_up
             where domain = ?1
             order by asked_at, id",
        )?;
        let rows = statement.query_map([domain.0.as_bytes()], sign_up_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(crate) fn sign_up(&self, id: SignUpId) -> Result<Option<SignUpRow>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select id, domain, name, full_name, email, password, note, source, asked_at,
                        declined_at, declined_by
                 from sign_up
                 where id = ?1",
            )?
            .query_row([id.0.as_bytes()], sign_up_row)
            .optional()?)
    }
}

impl Rows<'_> {
    pub(crate) fn put_sign_up_rule(
        &self,
        domain: DomainId,
        rule: Option<&SignUpRule>,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update domain set sign_up = ?2 where id = ?1")?
            .execute((domain.0.as_bytes(), rule.map(SignUpRule::told)))?;
        Ok(())
    }

    pub(crate) fn insert_sign_up(&self, row: &SignUpRow) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into sign_up
                     (id, domain, name, full_name, email, password, note, source, asked_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute((
                row.id.0.as_bytes(),
                row.domain.0.as_bytes(),
                row.name.as_str(),
                &row.full_name,
                row.email.as_str(),
                &row.password,
                &row.note,
                &row.source,
                row.asked_at.as_millis(),
            ))?;
        Ok(())
    }

    /// Declines a request; None lets it wait again, as one that was made now: otherwise an old one would be dropped at once.
    pub(crate) fn decline_sign_up(&self, id: SignUpId, by: Option<&str>) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update sign_up
                 set declined_at = iif(?2 is null, null, ?3), declined_by = ?2,
                     asked_at = iif(?2 is null, ?3, asked_at)
                 where id = ?1",
            )?
            .execute((id.0.as_bytes(), by, self.now.as_millis()))?;
        Ok(())
    }

    pub(crate) fn forget_sign_up(&self, id: SignUpId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from sign_up where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Drops requests that waited for 30 days, or were declined as long ago; gives how many.
    pub(crate) fn forget_old_sign_ups(&self) -> Result<usize, Failure> {
        let before = self.now.as_millis() - KEPT_DAYS * 86_400_000;
        Ok(self
            .connection
            .prepare_cached("delete from sign_up where coalesce(declined_at, asked_at) < ?1")?
            .execute([before])?)
    }
}
