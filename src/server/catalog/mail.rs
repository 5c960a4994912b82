//! Rows of notices that go out by mail: what each user chose, and what waits. A row names a notice and does not say it: what
//! is mailed is read from the user's own notices when it is sent.

use std::collections::BTreeSet;

use api::notices::NoticeTopic;
use rules::names::UserId;
use rules::units::Timestamp;
use rusqlite::OptionalExtension as _;

use super::outputs::NoticeOutput;
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Notices that wait, of all users. Higher: a server that is dead for days fills the disk. Lower: a class of users loses
/// theirs while it is restarted.
pub(crate) const MAX_WAITING_MAIL: u64 = 10_000;
/// Notices of one user that wait, and as many that the mail server refused for good. Higher: one user takes the room of
/// others. Lower: a night's failures are told in part.
pub(crate) const MAX_WAITING_OF_USER: u64 = 200;
/// Notices that the mail server refused for good and that can be sent again. Higher: a retry sends a flood. Lower: of a
/// relay that was set up wrongly for a day, an administrator sends a part again.
pub(crate) const MAX_FAILED_MAIL: u64 = 1_000;
/// Milliseconds that a user's next mail waits after notices of theirs were queued. Longer: what needs an answer comes late.
/// Shorter: a user whose sessions start and end without pause has the mail server flooded, which then refuses mail of all.
const SPACED_MILLIS: i64 = 60_000;
/// Hours for which a notice is tried. Longer: what is told is old. Shorter: a weekend without a mail server loses it.
const TRIED_HOURS: i64 = 72;
/// Days for which a notice that was sent is remembered, longer than it can be told again.
const REMEMBERED_DAYS: i64 = 30;

/// One notice that is to be mailed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewMailNotice {
    pub(crate) user: UserId,
    /// Names it among the notices of the user.
    pub(crate) key: String,
    pub(crate) topic: NoticeTopic,
}

/// What is due for one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DueMail {
    pub(crate) user: UserId,
    pub(crate) keys: BTreeSet<String>,
    /// How often the one that was tried most was.
    pub(crate) tries: u64,
}

/// Notices that the mail server refused for good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FailedMail {
    pub(crate) count: u64,
    /// Why the newest of them was; empty where there is none.
    pub(crate) why: String,
}

/// Those who are due first.
const DUE_USERS: &str = "select user
     from mail_notice indexed by mail_notice_due
     where next_at <= ?1
     order by next_at
     limit 1";

impl ReadTransaction<'_> {
    /// What a user chose; None where they did not.
    pub(crate) fn mail_choice(
        &self,
        user: UserId,
    ) -> Result<Option<BTreeSet<NoticeTopic>>, Failure> {
        let words: Option<Vec<String>> = self
            .connection
            .prepare_cached("select kinds from mail_choice where user = ?1")?
            .query_row([user.0.as_bytes()], |row| value::json(row, "kinds"))
            .optional()?;
        // A word of a newer version is of no kind here.
        Ok(words.map(|words| {
            let known = words.iter().filter_map(|word| NoticeTopic::parse(word));
            known.collect()
        }))
    }

    /// The user whose mail is due first, with all of theirs that is due; None where none is.
    pub(crate) fn due_mail(&self, now: Timestamp) -> Result<Option<DueMail>, Failure> {
        let now = now.as_millis();
        let user = self
            .connection
            .prepare_cached(DUE_USERS)?
            .query_row([now], |row| Ok(UserId(value::id(row, "user")?)))
            .optional()?;
        let Some(user) = user else {
            return Ok(None);
        };
        let mut due = DueMail {
            user,
            keys: BTreeSet::new(),
            tries: 0,
        };
        let mut statement = self.connection.prepare_cached(
            // One that only waits its turn goes along.
            "select key, tries
             from mail_notice
             where user = ?1
             and next_at is not null
             and (next_at <= ?2 or tries = 0)",
        )?;
        let mut rows = statement.query((user.0.as_bytes(), now))?;
        while let Some(row) = rows.next()? {
            due.keys.insert(row.get("key")?);
            due.tries = due.tries.max(value::unsigned(row, "tries")?);
        }
        Ok(Some(due))
    }

    /// Whether a notice waits for a user, was mailed to them, or was given up.
    pub(crate) fn knows_mail(&self, user: UserId, key: &str) -> Result<bool, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select exists (select 1 from mail_notice where user = ?1 and key = ?2)",
        )?;
        Ok(statement.query_row((user.0.as_bytes(), key), |row| row.get(0))?)
    }

    /// The notices that can be sent again. O(those), at most 1,000.
    pub(crate) fn failed_mail(&self) -> Result<FailedMail, Failure> {
        let count = self
            .connection
            .prepare_cached("select count(*) as n from mail_notice where failed_at is not null")?
            .query_row([], |row| value::unsigned(row, "n"))?;
        let why: Option<Option<String>> = self
            .connection
            .prepare_cached(
                "select failure
                 from mail_notice
                 where failed_at is not null
                 order by failed_at desc
                 limit 1",
            )?
            .query_row([], |row| row.get("failure"))
            .optional()?;
        Ok(FailedMail {
            count,
            why: why.flatten().unwrap_or_default(),
        })
    }

    /// How many notices wait to be mailed.
    pub(crate) fn waiting_mail(&self) -> Result<u64, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select count(*) as waiting from mail_notice where next_at is not null",
        )?;
        Ok(statement.query_row([], |row| value::unsigned(row, "waiting"))?)
    }
}

impl Rows<'_> {
    pub(crate) fn put_mail_choice(
        &self,
        user: UserId,
        topics: &BTreeSet<NoticeTopic>,
    ) -> Result<(), Failure> {
        let words: Vec<&str> = topics.iter().map(|topic| topic.word()).collect();
        self.connection
            .prepare_cached(
                "insert into mail_choice (user, kinds)
                 values (?1, ?2)
                 on conflict (user) do update
                 set kinds = excluded.kinds",
            )?
            .execute((user.0.as_bytes(), value::text(&words)))?;
        Ok(())
    }

    pub(crate) fn forget_mail_choice(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from mail_choice where user = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(())
    }

    /// Queues notices; one that is known stays as it is. Those of a user who had some queued just before wait a little. What
    /// is too much, the oldest first, is given up and counted.
    pub(crate) fn queue_mail(&self, notices: &[NewMailNotice]) -> Result<(), Failure> {
        for notice in notices {
            self.connection
                .prepare_cached(
                    "insert into mail_notice (user, key, kind, queued_at, next_at, tries)
                     values (?1, ?2, ?3, ?4,
                         ?4 + ?5 * exists (
                             select 1
                             from mail_notice indexed by mail_notice_old
                             where user = ?1
                             and queued_at > ?4 - ?5
                             and queued_at < ?4),
                         0)
                     on conflict (user, key) do nothing",
                )?
                .execute((
                    notice.user.0.as_bytes(),
                    &notice.key,
                    notice.topic.word(),
                    self.now.as_millis(),
                    SPACED_MILLIS,
                ))?;
        }
        let users: BTreeSet<UserId> = notices.iter().map(|notice| notice.user).collect();
        for user in users {
            self.give_up_beyond_of_user(user)?;
        }
        self.give_up_beyond()
    }

    fn give_up_beyond_of_user(&self, user: UserId) -> Result<(), Failure> {
        let lost = self
            .connection
            .prepare_cached(
                "update mail_notice
                 set next_at = null
                 where user = ?1
                 and next_at is not null
                 and key not in (
                     select key
                     from mail_notice
                     where user = ?1
                     and next_at is not null
                     order by queued_at desc, key desc
                     limit ?2)",
            )?
            .execute((user.0.as_bytes(), value::signed(MAX_WAITING_OF_USER)))?;
        self.count_lost(NoticeOutput::Mail, lost)
    }

    /// Those of courses first: a user who teaches one tells five hundred others something as often as they like, and takes no
    /// room by it from what a session or a budget has to say.
    fn give_up_beyond(&self) -> Result<(), Failure> {
        let beyond = self.waiting_mail()?.saturating_sub(MAX_WAITING_MAIL);
        if beyond == 0 {
            return Ok(());
        }
        let lost = self
            .connection
            .prepare_cached(
                "update mail_notice
                 set next_at = null
                 where (user, key) in (
                     select user, key
                     from mail_notice
                     where next_at is not null
                     order by kind <> ?2, queued_at
                     limit ?1)",
            )?
            .execute((value::signed(beyond), NoticeTopic::Course.word()))?;
        self.count_lost(NoticeOutput::Mail, lost)
    }

    /// Notes that notices were mailed, or that nothing is to be mailed of them any more: they are remembered and wait no
    /// longer.
    pub(crate) fn settle_mail(&self, due: &DueMail) -> Result<usize, Failure> {
        let mut settled = 0;
        for key in &due.keys {
            settled += self
                .connection
                .prepare_cached(
                    "update mail_notice
                     set next_at = null
                     where user = ?1
                     and key = ?2
                     and next_at is not null",
                )?
                .execute((due.user.0.as_bytes(), key))?;
        }
        Ok(settled)
    }

    /// Notes that the mail server refused notices for good: they wait no longer, and can be sent again. Of too many, of the
    /// user or of all, the oldest are given up and counted.
    pub(crate) fn fail_mail(&self, due: &DueMail, why: &str) -> Result<(), Failure> {
        for key in &due.keys {
            self.connection
                .prepare_cached(
                    "update mail_notice
                     set next_at = null, failed_at = ?3, failure = ?4
                     where user = ?1
                     and key = ?2
                     and next_at is not null",
                )?
                .execute((due.user.0.as_bytes(), key, self.now.as_millis(), why))?;
        }
        // A user whose address is wrong takes no room of others.
        let lost = self
            .connection
            .prepare_cached(
                "update mail_notice
                 set failed_at = null, failure = null
                 where user = ?1
                 and failed_at is not null
                 and key not in (
                     select key
                     from mail_notice
                     where user = ?1
                     and failed_at is not null
                     order by queued_at desc, key desc
                     limit ?2)",
            )?
            .execute((due.user.0.as_bytes(), value::signed(MAX_WAITING_OF_USER)))?;
        self.count_lost(NoticeOutput::Mail, lost)?;
        let beyond = self.failed_mail()?.count.saturating_sub(MAX_FAILED_MAIL);
        if beyond == 0 {
            return Ok(());
        }
        let lost = self
            .connection
            .prepare_cached(
                "update mail_notice
                 set failed_at = null, failure = null
                 where (user, key) in (
                     select user, key
                     from mail_notice
                     where failed_at is not null
                     order by failed_at
                     limit ?1)",
            )?
            .execute([value::signed(beyond)])?;
        self.count_lost(NoticeOutput::Mail, lost)
    }

    /// Queues again what the mail server refused for good, and says how many notices these are. What is too much then, the
    /// oldest first, is given up and counted.
    pub(crate) fn retry_mail(&self) -> Result<usize, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select distinct user
             from mail_notice indexed by mail_notice_failed
             where failed_at is not null",
        )?;
        let rows = statement.query_map([], |row| Ok(UserId(value::id(row, "user")?)))?;
        let users: Vec<UserId> = rows.collect::<Result<_, _>>()?;
        let retried = self
            .connection
            .prepare_cached(
                "update mail_notice
                 set next_at = ?1, tries = 0, failed_at = null, failure = null
                 where failed_at is not null",
            )?
            .execute([self.now.as_millis()])?;
        for user in users {
            self.give_up_beyond_of_user(user)?;
        }
        self.give_up_beyond()?;
        Ok(retried)
    }

    /// Notes that notices could not be mailed now.
    pub(crate) fn put_off_mail(&self, due: &DueMail, until: Timestamp) -> Result<(), Failure> {
        for key in &due.keys {
            self.connection
                .prepare_cached(
                    "update mail_notice
                     set next_at = ?3,
                         tries = tries + 1
                     where user = ?1
                     and key = ?2
                     and next_at is not null",
                )?
                .execute((due.user.0.as_bytes(), key, until.as_millis()))?;
        }
        Ok(())
    }

    /// Puts what is due behind what is due of others; it stays due.
    pub(crate) fn pass_over_mail(&self, due: &DueMail) -> Result<(), Failure> {
        for key in &due.keys {
            self.connection
                .prepare_cached(
                    "update mail_notice
                     set next_at = ?3
                     where user = ?1
                     and key = ?2
                     and next_at is not null",
                )?
                .execute((due.user.0.as_bytes(), key, self.now.as_millis()))?;
        }
        Ok(())
    }

    /// Gives up what was tried for too long, and forgets what was settled long ago.
    pub(crate) fn age_mail(&self) -> Result<(), Failure> {
        let now = self.now.as_millis();
        let lost = self
            .connection
            .prepare_cached(
                "update mail_notice indexed by mail_notice_due
                 set next_at = null
                 where queued_at < ?1
                 and next_at is not null",
            )?
            .execute([now - TRIED_HOURS * 3_600_000])?;
        self.count_lost(NoticeOutput::Mail, lost)?;
        let lost = self
            .connection
            .prepare_cached(
                "update mail_notice indexed by mail_notice_failed
                 set failed_at = null, failure = null
                 where queued_at < ?1
                 and failed_at is not null",
            )?
            .execute([now - TRIED_HOURS * 3_600_000])?;
        self.count_lost(NoticeOutput::Mail, lost)?;
        self.connection
            .prepare_cached("delete from mail_notice where queued_at < ?1")?
            .execute([now - REMEMBERED_DAYS * 86_400_000])?;
        Ok(())
    }

    /// Forgets all that waits, for a site without a mail server.
    pub(crate) fn forget_mail(&self) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from mail_notice")?
            .execute([])?;
        self.forget_output(NoticeOutput::Mail)
    }

    /// Forgets what waits for a user who is taken out, and what they chose.
    pub(super) fn forget_mail_of(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from mail_notice where user = ?1")?
            .execute([user.0.as_bytes()])?;
        self.forget_mail_choice(user)
    }
}
