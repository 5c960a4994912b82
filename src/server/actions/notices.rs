//! What a user should know of their own sessions: started, ended, failed, and soon to be ended by their time limit. Read
//! up to a moment that the server keeps for each user. Sends nothing anywhere.

use api::notices::{NoticeView, NoticeWord};
use rules::names::SessionId;
use rules::permissions::Permission;
use rules::reason::Reason;
use rules::session::Outcome;
use rules::units::Timestamp;

use super::allowed;
use crate::access::Caller;
use crate::catalog::Lane;
use crate::catalog::journal::{LimitedSessionRow, ToldEventRow};
use crate::{Failure, Server};

/// Notices that a user is shown.
const MAX_SHOWN: u32 = 50;
/// Unread notices are counted up to this.
pub const MAX_COUNTED: u32 = 99;
/// A user is told this many seconds before a time limit ends a session.
const TOLD_BEFORE_SECONDS: u64 = 900;

/// One notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNotice {
    pub at: Timestamp,
    pub about: NoticeKind,
    /// The session's id; a link only where it has a name.
    pub session: String,
    /// None once the session was deleted.
    pub name: Option<String>,
    pub unread: bool,
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeKind {
    Started,
    /// How it ended and why; None where it runs again or was deleted.
    Ended(Option<Outcome>, Option<Reason>),
    /// It was stopped before it ran.
    Cancelled,
    /// It uses more memory of a GPU than it was given.
    GpuWarned,
    /// Its time limit ends it then.
    WillEnd(Timestamp),
}

/// The caller's notices, newest first: what will end soon, then what happened. At most 50 of each; costs an index look-up
/// for each.
///
/// Errors: `denied` without `me`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<OwnNotice>, Failure> {
    allowed(caller, Permission::Me)?;
    let (user, until) = (caller.subject.user, told_until(server));
    server
        .catalog()
        .read("list notices", move |view| {
            let (_, read, read_at) = view.unread_notices(user, 0)?;
            let ending = view.ending_before(user, until, MAX_SHOWN)?;
            let mut all: Vec<OwnNotice> = ending
                .into_iter()
                .map(|row| will_end(row, read_at))
                .collect();
            let told = view.notices_of(user, MAX_SHOWN)?;
            all.extend(told.into_iter().map(|row| happened(row, read)));
            Ok(all)
        })
        .await
}

/// The same for programs.
///
/// Errors: as `list`.
pub async fn views(server: &Server, caller: &Caller) -> Result<Vec<NoticeView>, Failure> {
    let all = list(server, caller).await?;
    Ok(all.into_iter().map(view).collect())
}

fn view(notice: OwnNotice) -> NoticeView {
    let (kind, outcome, reason) = match notice.about {
        NoticeKind::Started => (NoticeWord::Started, None, None),
        NoticeKind::Ended(outcome, reason) => (NoticeWord::Ended, outcome, reason),
        NoticeKind::Cancelled => (NoticeWord::Cancelled, None, None),
        NoticeKind::GpuWarned => (NoticeWord::GpuWarned, None, None),
        NoticeKind::WillEnd(_) => (NoticeWord::WillEnd, None, None),
    };
    NoticeView {
        at: notice.at,
        kind,
        session: notice.session,
        name: notice.name,
        outcome,
        reason,
        unread: notice.unread,
    }
}

/// How many of the caller's notices are unread, counted up to 99; 0 for callers who may not know. One indexed read.
pub fn unread(server: &Server, caller: &Caller) -> u64 {
    if allowed(caller, Permission::Me).is_err() {
        return 0;
    }
    let (user, until) = (caller.subject.user, told_until(server));
    let counted = server.catalog().read_now("count notices", |view| {
        let (count, _, read_at) = view.unread_notices(user, MAX_COUNTED)?;
        let ending = view.ending_before(user, until, MAX_COUNTED)?;
        let new = ending
            .iter()
            .filter(|row| row.ends_at > read_at.plus_seconds(TOLD_BEFORE_SECONDS));
        Ok((count + new.count() as u64).min(u64::from(MAX_COUNTED)))
    });
    // A count is no reason to refuse a page; the fault shows where it matters.
    counted.unwrap_or_default()
}

/// Marks the caller's notices as read.
///
/// Errors: `denied` without `me`; those of a write.
pub async fn mark_read(server: &Server, caller: &Caller) -> Result<(), Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server
        .catalog()
        .write(Lane::Requests, "mark notices as read", move |rows| {
            rows.read_notices(user)
        })
        .await
}

fn told_until(server: &Server) -> Timestamp {
    server.clock().now().plus_seconds(TOLD_BEFORE_SECONDS)
}

/// A limit that is told again after it was read would not go away: it is new only where it came near since.
fn will_end(row: LimitedSessionRow, read_at: Timestamp) -> OwnNotice {
    let LimitedSessionRow { id, name, ends_at } = row;
    OwnNotice {
        at: ends_at,
        about: NoticeKind::WillEnd(ends_at),
        session: SessionId::to_string(&id),
        name: Some(name),
        unread: ends_at > read_at.plus_seconds(TOLD_BEFORE_SECONDS),
    }
}

fn happened(row: ToldEventRow, read: u64) -> OwnNotice {
    let ToldEventRow {
        event,
        own,
        session,
    } = row;
    let cancelled = session
        .as_ref()
        .is_some_and(|one| one.outcome == Some(Outcome::Stopped) && one.started_at.is_none());
    let (name, outcome, reason) = match session {
        Some(one) => (Some(one.name), one.outcome, one.reason),
        None => (None, None, None),
    };
    OwnNotice {
        at: event.at,
        about: match event.code.as_str() {
            "session.running" => NoticeKind::Started,
            "session.gpu-warned" => NoticeKind::GpuWarned,
            _ if cancelled => NoticeKind::Cancelled,
            _ => NoticeKind::Ended(outcome, reason.filter(|_| outcome.is_some())),
        },
        session: event.object,
        name,
        // What they did themselves they know.
        unread: event.sequence > read && !own,
    }
}
