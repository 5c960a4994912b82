//! What a user should know of their own sessions: started, ended, failed, soon to be ended by their time
//! limit, and nodes in maintenance that they run on or may wait for; what became of their reservation requests, and
//! those that they decide. Read up to a moment that the server keeps for each user. Sends nothing anywhere.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use api::folders::FolderInvitationView;
use api::notices::{NoticeTopic, NoticeView, NoticeWord};
use rules::folder_rights::leads;
use rules::grants::GrantScope;
use rules::idleness::{self, IdleAction};
use rules::names::{BudgetId, SessionId, UserId};
use rules::permissions::{Permission, may, own, reach};
use rules::quota::PolicyLimits;
use rules::reason::Reason;
use rules::session::Outcome;
use rules::storage::{StorageLevel, percent};
use rules::tenancy::{ProjectId, Scope};
use rules::units::Timestamp;
use rules::users::ACCOUNT_WARNING_SECONDS;

use super::allowed;
use super::folders::sharing;
use super::four_eyes;
use super::reservations::open_requests;
use super::resource_groups::seen_ids;
use super::sign_ups;
use crate::access::Caller;
use crate::catalog::allowances::{AllowanceRecord, LIMIT_DECLINED};
use crate::catalog::break_glass::{FOLDER_OPENED, SESSION_OPENED};
use crate::catalog::budgets::{self, BudgetRecord};
use crate::catalog::courses;
use crate::catalog::events::EventRow;
use crate::catalog::idle_rules::WARNED;
use crate::catalog::journal::{LimitedSessionRow, MaintenanceRow, ToldEventRow};
use crate::catalog::occasions::Occasions;
use crate::catalog::reservations::{self, AskedReservationRow};
use crate::catalog::storage::StorageWarning;
use crate::catalog::users::SIGNED_IN_ELSEWHERE;
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server};

/// Notices that a user is shown.
pub const MAX_SHOWN: u32 = 50;
/// Unread notices are counted up to this.
pub const MAX_COUNTED: u32 = 99;
/// A user is told this many seconds before a time limit ends a session.
const TOLD_BEFORE_SECONDS: u64 = 900;
/// Events of a budget that are looked through for its newest warning.
const LOOKED: u32 = 8;

/// One notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNotice {
    /// Names it among the notices of its reader: an output sends each once.
    pub key: String,
    /// The event that told it; None where it follows from rows.
    pub event: Option<u64>,
    pub at: Timestamp,
    pub about: NoticeKind,
    /// The session's id; a link only where it has a name. None for a notice of a node or a reservation.
    pub session: Option<String>,
    /// The name of the session, None once it was deleted; or of the node or the reservation.
    pub name: Option<String>,
    pub unread: bool,
}

impl OwnNotice {
    /// What a user chooses it by.
    pub fn topic(&self) -> NoticeTopic {
        match &self.about {
            NoticeKind::Started => NoticeTopic::Started,
            NoticeKind::Ended(Some(Outcome::Failed | Outcome::Lost | Outcome::Refused), _) => {
                NoticeTopic::Failed
            }
            NoticeKind::Ended(Some(Outcome::Succeeded | Outcome::Stopped) | None, _)
            | NoticeKind::Preempted => NoticeTopic::Ended,
            NoticeKind::Cancelled => NoticeTopic::Cancelled,
            NoticeKind::GpuWarned => NoticeTopic::GpuWarned,
            NoticeKind::IdleWarned(..) => NoticeTopic::IdleWarned,
            NoticeKind::FoundIdle => NoticeTopic::FoundIdle,
            NoticeKind::ReservationWarned(_) => NoticeTopic::ReservationWarned,
            NoticeKind::ReservationAsked(_) => NoticeTopic::ReservationAsked,
            NoticeKind::ReservationApproved(_)
            | NoticeKind::ReservationRefused(_)
            | NoticeKind::ReservationExpired => NoticeTopic::ReservationDecided,
            NoticeKind::CourseWarned(_) | NoticeKind::CourseMessage(_) => NoticeTopic::Course,
            NoticeKind::BudgetWarned(..)
            | NoticeKind::LimitRaised(..)
            | NoticeKind::LimitDeclined(_) => NoticeTopic::Budget,
            NoticeKind::LimitsAsked(_) => NoticeTopic::LimitAsked,
            NoticeKind::StorageWarned(_) | NoticeKind::FolderOffered(_) => NoticeTopic::Storage,
            NoticeKind::WillEnd(_) | NoticeKind::AccountEnds(_) => NoticeTopic::WillEnd,
            NoticeKind::SignUpsWait(_) => NoticeTopic::SignUp,
            NoticeKind::Maintenance(_) => NoticeTopic::Maintenance,
            NoticeKind::BreakGlass { .. } => NoticeTopic::BreakGlass,
            NoticeKind::SignedIn(_) => NoticeTopic::SignIn,
            NoticeKind::ApprovalsWait(_) => NoticeTopic::Approval,
        }
    }
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeKind {
    Started,
    /// How it ended and why; None where it runs again, ended again later, or was deleted.
    Ended(Option<Outcome>, Option<Reason>),
    /// It was stopped for a session of higher priority, and is queued again.
    Preempted,
    /// It was stopped before it ran.
    Cancelled,
    /// It uses more memory of a GPU than it was given.
    GpuWarned,
    /// A rule does this to it in so many minutes, as it is idle.
    IdleWarned(IdleAction, u64),
    /// It is idle by a rule, and runs on or was paused.
    FoundIdle,
    /// Where it runs a reservation of others begins then, and ends it.
    ReservationWarned(Timestamp),
    /// It waits for a decision of the reader's; the project that it is for.
    ReservationAsked(String),
    /// What the reader asked for is booked; what the administrator said, which may be empty.
    ReservationApproved(String),
    /// It is not; why.
    ReservationRefused(String),
    /// Its begin came before it was decided.
    ReservationExpired,
    /// The term of its course ends then, and the session with it.
    CourseWarned(Timestamp),
    /// A teacher of a course tells its members this.
    CourseMessage(String),
    /// So many percent of it are used.
    BudgetWarned(BudgetId, u64),
    /// So many percent of what the reader's folders may take are used, or of what those of a project may that the reader leads:
    /// then it has the project's name.
    StorageWarned(u64),
    /// These limits of the reader's are raised until then; why, which may be empty. It stands in the console alone.
    LimitRaised(PolicyLimits, Timestamp, String),
    /// The higher limits that the reader asked for are declined; what the administrator said, which may be empty.
    LimitDeclined(String),
    /// So many users ask for higher limits, and the reader decides.
    LimitsAsked(u64),
    /// A folder is offered to the reader, who has not answered; its owner.
    FolderOffered(String),
    /// Its time limit ends it then.
    WillEnd(Timestamp),
    /// The account of the reader ends then.
    AccountEnds(Timestamp),
    /// The reader, or another with their password, signed in from this address, in a network that they never came from.
    SignedIn(String),
    /// So many strangers wait for an account, and the reader decides.
    SignUpsWait(u64),
    /// A node takes no new sessions.
    Maintenance(OwnMaintenance),
    /// So many acts of other administrators wait, and the reader decides.
    ApprovalsWait(u64),
    /// This administrator looks into it, for this reason.
    BreakGlass {
        by: String,
        reason: String,
    },
}

/// What a user is told of a node in maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnMaintenance {
    /// In the administrator's words; empty where nothing was said.
    pub message: String,
    /// Sessions of the user on the node, which go on, and those that wait in the queue.
    pub running: u64,
    pub waiting: u64,
}

/// The caller's notices, newest first across all kinds; what will end soon counts as told now. At most 50 of each
/// kind; costs an index look-up for each.
///
/// Errors: `denied` without `me`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<OwnNotice>, Failure> {
    allowed(caller, Permission::Me)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    server
        .catalog()
        .read("list notices", move |view| {
            let mut all = of(view, &caller, now)?;
            newest_first(&mut all, now);
            Ok(all)
        })
        .await
}

/// Puts notices into the order that readers see. What has a time to come, or none, stands in front; equals stay in their
/// order.
fn newest_first(all: &mut [OwnNotice], now: Timestamp) {
    all.sort_by_key(|notice| match notice.at == Timestamp::default() {
        true => Reverse(now),
        false => Reverse(notice.at.min(now)),
    });
}

/// The same out of rows that are read already: what mail says of a notice is what the reader sees at that moment.
pub(crate) fn of(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    now: Timestamp,
) -> Result<Vec<OwnNotice>, Failure> {
    let user = caller.subject.user;
    let (_, read, read_at) = view.unread_notices(user, 0)?;
    let asked = open_requests(view, caller, Timestamp::default(), MAX_SHOWN)?;
    let asked = asked.into_iter();
    let mut all: Vec<OwnNotice> = asked.map(|one| request(one, read_at)).collect();
    let warned = warned_budgets(view, caller, now)?.into_iter();
    all.extend(warned.map(|(row, event)| nearly_used(row, event, read_at)));
    let storage = storage_warnings(view, caller)?.into_iter();
    all.extend(storage.map(|warned| nearly_full(warned, read_at)));
    let raised = view.allowances_to(user, MAX_SHOWN)?.into_iter();
    all.extend(raised.map(|row| {
        let unread = is_news(&row, caller, read_at);
        limit_raised(row, unread)
    }));
    let requests = sign_ups::waiting_requests(view, caller)?;
    all.extend(requests.map(|one| sign_ups_wait(one, read_at)));
    let limits = limits_waiting(view, caller)?;
    all.extend(limits.map(|one| limits_asked(one, read_at)));
    let acts = four_eyes::waiting_for(view, caller, now)?;
    all.extend(acts.map(|one| approvals_wait(one, read_at)));
    let account = account_end(view, user, now)?;
    all.extend(account.map(|end| account_ends(end, read_at)));
    let offers = sharing::offers(view, caller, now)?.into_iter();
    all.extend(offers.map(|offer| offered(offer, read_at)));
    let closed = closed_nodes(view, caller)?;
    all.extend(closed.into_iter().map(|row| maintenance(row, read)));
    let ending = view.ending_before(user, told_until(now), MAX_SHOWN)?;
    all.extend(ending.into_iter().map(|row| will_end(row, read_at)));
    let told = view.notices_of(user, MAX_SHOWN)?;
    let mut ended = BTreeSet::new();
    all.extend(told.into_iter().map(|row| {
        let is_end = row.event.code == rules::codes::SESSION_ENDED;
        // How a session ended is known of its newest end alone: an earlier one may have been another.
        let is_newest = !is_end || ended.insert(row.event.object.clone());
        happened(row, read, is_newest)
    }));
    Ok(all)
}

/// The budgets of the caller and those that they look after that are nearly used, each with the event that told so. One
/// whose event is forgotten is left out.
fn warned_budgets(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    now: Timestamp,
) -> Result<Vec<(BudgetRecord, EventRow)>, Failure> {
    let looked_after = reach(&caller.subject, Permission::ProjectsWrite);
    let mut rows = view.warned_budgets(&own(&caller.subject), now)?;
    rows.extend(view.warned_budgets(&looked_after, now)?);
    let mut known = BTreeSet::new();
    rows.retain(|row| known.insert(row.budget.id));
    rows.truncate(MAX_SHOWN as usize);
    let mut all = Vec::new();
    for row in rows {
        let events = view.events_of(&row.budget.id.to_string(), LOOKED)?;
        let newest = events
            .into_iter()
            .rfind(|event| event.code == budgets::WARNED);
        all.extend(newest.map(|event| (row, event)));
    }
    Ok(all)
}

/// A limit of folders that is near, of the reader or of a project that they lead.
struct WarnedFolders {
    /// Id and name of the project; None for the reader's own folders.
    project: Option<(ProjectId, String)>,
    warning: StorageWarning,
}

/// What the caller is told of their folders and those of projects that they lead: nothing while there is room. Costs two steps
/// of indexes for each of these projects.
fn storage_warnings(
    view: &ReadTransaction<'_>,
    caller: &Caller,
) -> Result<Vec<WarnedFolders>, Failure> {
    let is_near = |warning: &StorageWarning| warning.level > StorageLevel::Free;
    let own = view.storage_of(caller.subject.user)?.filter(is_near);
    let mut all: Vec<WarnedFolders> = own
        .into_iter()
        .map(|warning| WarnedFolders {
            project: None,
            warning,
        })
        .collect();
    let grants = &caller.subject.grants;
    let projects = grants.iter().filter_map(|grant| match grant.scope {
        GrantScope::Project(project) => Some(project),
        GrantScope::Site | GrantScope::Domain(_) => None,
    });
    let led: BTreeSet<ProjectId> = projects.filter(|project| leads(grants, *project)).collect();
    for project in led {
        let Some(warning) = view.storage_of(project)?.filter(is_near) else {
            continue;
        };
        if let Some(found) = view.project(project)? {
            all.push(WarnedFolders {
                project: Some((project, found.name.to_string())),
                warning,
            });
        }
    }
    Ok(all)
}

/// Told while requests wait; new until the newest of them was read.
fn sign_ups_wait((count, newest): (u64, Timestamp), read_at: Timestamp) -> OwnNotice {
    OwnNotice {
        // One mail a day, however many ask: strangers must fill no mailbox.
        key: format!("sign-ups {}", newest.as_millis() / 86_400_000),
        event: None,
        at: newest,
        about: NoticeKind::SignUpsWait(count),
        session: None,
        name: None,
        unread: newest > read_at,
    }
}

/// How many users ask for higher limits and when the newest did, for who decides; None where none asks, and for all others.
/// A suspended user waits for no answer, and is told of again once they are admitted.
fn limits_waiting(
    view: &ReadTransaction<'_>,
    caller: &Caller,
) -> Result<Option<(u64, Timestamp)>, Failure> {
    if may(&caller.subject, Permission::SystemWrite, &Scope::SITE).is_err() {
        return Ok(None);
    }
    let mut all = view.limit_requests()?;
    all.retain(|asker| !asker.suspended);
    let newest = all.iter().map(|asker| asker.request.asked_at).max();
    Ok(newest.map(|newest| (all.len() as u64, newest)))
}

/// Told while users ask; new until the newest request was read.
fn limits_asked((count, newest): (u64, Timestamp), read_at: Timestamp) -> OwnNotice {
    OwnNotice {
        // One mail a day, however many ask.
        key: format!("limits {}", newest.as_millis() / 86_400_000),
        event: None,
        at: newest,
        about: NoticeKind::LimitsAsked(count),
        session: None,
        name: None,
        unread: newest > read_at,
    }
}

/// Told while acts wait; new until the newest of them was read.
fn approvals_wait((count, newest): (u64, Timestamp), read_at: Timestamp) -> OwnNotice {
    OwnNotice {
        key: format!("approvals {newest}"),
        event: None,
        at: newest,
        about: NoticeKind::ApprovalsWait(count),
        session: None,
        name: None,
        unread: newest > read_at,
    }
}

/// When the account of the reader ends, where that is near.
fn account_end(
    view: &ReadTransaction<'_>,
    user: UserId,
    now: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    let end = view.user(user)?.and_then(|user| user.expires_at);
    Ok(end.filter(|end| *end <= now.plus_seconds(ACCOUNT_WARNING_SECONDS)))
}

/// New until it was read since it came near.
fn is_account_end_new(end: Timestamp, read_at: Timestamp) -> bool {
    end > read_at.plus_seconds(ACCOUNT_WARNING_SECONDS)
}

fn account_ends(end: Timestamp, read_at: Timestamp) -> OwnNotice {
    OwnNotice {
        key: format!("account {end}"),
        event: None,
        at: end,
        about: NoticeKind::AccountEnds(end),
        session: None,
        name: None,
        unread: is_account_end_new(end, read_at),
    }
}

/// Nodes in maintenance on which a session of the caller runs, and those of groups that they see where one waits: of others
/// they learn neither the name nor what an administrator says.
fn closed_nodes(
    view: &ReadTransaction<'_>,
    caller: &Caller,
) -> Result<Vec<MaintenanceRow>, Failure> {
    let mut closed = view.maintenance_of(caller.subject.user)?;
    if closed.iter().any(|row| row.running == 0) {
        let seen = seen_ids(view, caller)?;
        closed.retain(|row| row.running > 0 || seen.contains(&row.group));
    }
    Ok(closed)
}

/// The same for programs.
///
/// Errors: as `list`.
pub async fn views(server: &Server, caller: &Caller) -> Result<Vec<NoticeView>, Failure> {
    let all = list(server, caller).await?;
    Ok(all.into_iter().map(view).collect())
}

fn view(notice: OwnNotice) -> NoticeView {
    let plain = |kind| (kind, None, None, None);
    let (kind, outcome, reason, message) = match notice.about {
        NoticeKind::Started => plain(NoticeWord::Started),
        NoticeKind::Ended(outcome, reason) => (NoticeWord::Ended, outcome, reason, None),
        NoticeKind::Preempted => plain(NoticeWord::Preempted),
        NoticeKind::Cancelled => plain(NoticeWord::Cancelled),
        NoticeKind::GpuWarned => plain(NoticeWord::GpuWarned),
        NoticeKind::IdleWarned(action, minutes) => {
            let words = idleness::told(action, minutes);
            (NoticeWord::IdleWarned, None, None, Some(words))
        }
        NoticeKind::FoundIdle => plain(NoticeWord::FoundIdle),
        NoticeKind::ReservationWarned(begins) => {
            let begins = begins.to_string();
            (NoticeWord::ReservationWarned, None, None, Some(begins))
        }
        NoticeKind::ReservationAsked(project) => {
            (NoticeWord::ReservationAsked, None, None, Some(project))
        }
        NoticeKind::ReservationApproved(why) => {
            let why = Some(why).filter(|why| !why.is_empty());
            (NoticeWord::ReservationApproved, None, None, why)
        }
        NoticeKind::ReservationRefused(why) => {
            (NoticeWord::ReservationRefused, None, None, Some(why))
        }
        NoticeKind::ReservationExpired => plain(NoticeWord::ReservationExpired),
        NoticeKind::CourseWarned(ends) => {
            let ends = ends.to_string();
            (NoticeWord::CourseWarned, None, None, Some(ends))
        }
        NoticeKind::CourseMessage(text) => (NoticeWord::CourseMessage, None, None, Some(text)),
        NoticeKind::BudgetWarned(_, percent) => {
            let used = format!("{percent} %");
            (NoticeWord::BudgetWarned, None, None, Some(used))
        }
        NoticeKind::StorageWarned(percent) => {
            let used = format!("{percent} %");
            (NoticeWord::StorageWarned, None, None, Some(used))
        }
        NoticeKind::LimitRaised(limits, until, why) => {
            let told = match why.as_str() {
                "" => format!("{} until {until}", limits.told()),
                why => format!("{} until {until}: {why}", limits.told()),
            };
            (NoticeWord::LimitRaised, None, None, Some(told))
        }
        NoticeKind::LimitDeclined(why) => (NoticeWord::LimitDeclined, None, None, Some(why)),
        NoticeKind::LimitsAsked(count) => {
            (NoticeWord::LimitsAsked, None, None, Some(count.to_string()))
        }
        NoticeKind::FolderOffered(owner) => (NoticeWord::FolderOffered, None, None, Some(owner)),
        NoticeKind::WillEnd(_) => plain(NoticeWord::WillEnd),
        NoticeKind::AccountEnds(_) => plain(NoticeWord::AccountEnds),
        NoticeKind::SignedIn(source) => (NoticeWord::SignedIn, None, None, Some(source)),
        NoticeKind::SignUpsWait(count) => {
            (NoticeWord::SignUpsWait, None, None, Some(count.to_string()))
        }
        NoticeKind::ApprovalsWait(count) => (
            NoticeWord::ApprovalsWait,
            None,
            None,
            Some(count.to_string()),
        ),
        NoticeKind::Maintenance(of) => (NoticeWord::Maintenance, None, None, Some(of.message)),
        NoticeKind::BreakGlass { by, reason } => {
            let told = format!("{by}: {reason}");
            (NoticeWord::BreakGlass, None, None, Some(told))
        }
    };
    NoticeView {
        at: notice.at,
        kind,
        session: notice.session,
        name: notice.name,
        outcome,
        reason,
        message,
        unread: notice.unread,
    }
}

/// How many of the caller's notices are unread, counted up to 99; 0 for callers who may not know. One indexed read, and one
/// more for each kind of which there is any on this site.
pub fn unread(server: &Server, caller: &Caller) -> u64 {
    if allowed(caller, Permission::Me).is_err() {
        return 0;
    }
    let now = server.clock().now();
    let any = server.occasions();
    let counted = server
        .catalog()
        .read_now("count notices", |view| count_unread(view, caller, now, any));
    // A count is no reason to refuse a page; the fault shows where it matters.
    counted.unwrap_or_default()
}

/// The same as of one moment; `any` says of what there may be rows.
fn count_unread(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    now: Timestamp,
    any: Occasions,
) -> Result<u64, Failure> {
    let user = caller.subject.user;
    let (mut all, read, read_at) = view.unread_notices(user, MAX_COUNTED)?;
    if any.asked_reservations {
        all += open_requests(view, caller, read_at, MAX_COUNTED)?.len() as u64;
    }
    if any.warned_budgets {
        let warned = warned_budgets(view, caller, now)?;
        let warned = warned.iter().filter(|(_, event)| event.at > read_at);
        all += warned.count() as u64;
    }
    if any.near_storage {
        let storage = storage_warnings(view, caller)?;
        let storage = storage.iter().filter(|one| one.warning.since > read_at);
        all += storage.count() as u64;
    }
    if any.allowances {
        let raised = view.allowances_to(user, MAX_COUNTED)?;
        let raised = raised.iter().filter(|row| is_news(row, caller, read_at));
        all += raised.count() as u64;
    }
    if any.shared_folders {
        let offers = sharing::offers(view, caller, now)?;
        let offers = offers.iter().filter(|offer| offer.created_at > read_at);
        all += offers.count() as u64;
    }
    if any.closed_nodes {
        let closed = closed_nodes(view, caller)?;
        all += closed.iter().filter(|row| is_new(row, read)).count() as u64;
    }
    if any.limited_sessions {
        let ending = view.ending_before(user, told_until(now), MAX_COUNTED)?;
        let new = ending
            .iter()
            .filter(|row| row.ends_at > read_at.plus_seconds(TOLD_BEFORE_SECONDS));
        all += new.count() as u64;
    }
    if any.ending_accounts {
        let account = account_end(view, user, now)?;
        all += u64::from(account.is_some_and(|end| is_account_end_new(end, read_at)));
    }
    if any.sign_ups {
        let requests = sign_ups::waiting_requests(view, caller)?;
        all += u64::from(requests.is_some_and(|(_, newest)| newest > read_at));
    }
    if any.limit_requests {
        let limits = limits_waiting(view, caller)?;
        all += u64::from(limits.is_some_and(|(_, newest)| newest > read_at));
    }
    if any.approvals {
        let acts = four_eyes::waiting_for(view, caller, now)?;
        all += u64::from(acts.is_some_and(|(_, newest)| newest > read_at));
    }
    Ok(all.min(u64::from(MAX_COUNTED)))
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
            // To read is no act.
            rows.mute_acts();
            rows.read_notices(user)
        })
        .await
}

/// Sessions that end up to then are told of.
pub(crate) fn told_until(now: Timestamp) -> Timestamp {
    now.plus_seconds(TOLD_BEFORE_SECONDS)
}

/// Names a limit that came near among the notices of its owner.
pub(crate) fn end_key(row: &LimitedSessionRow) -> String {
    format!("end {} {}", row.id, row.ends_at)
}

/// A limit that is told again after it was read would not go away: it is new only where it came near since.
fn will_end(row: LimitedSessionRow, read_at: Timestamp) -> OwnNotice {
    let key = end_key(&row);
    let LimitedSessionRow { id, name, ends_at } = row;
    OwnNotice {
        key,
        event: None,
        at: ends_at,
        about: NoticeKind::WillEnd(ends_at),
        session: Some(SessionId::to_string(&id)),
        name: Some(name),
        unread: ends_at > read_at.plus_seconds(TOLD_BEFORE_SECONDS),
    }
}

/// A request is told until it is decided; it is new until the reader read it.
fn request(one: AskedReservationRow, read_at: Timestamp) -> OwnNotice {
    OwnNotice {
        key: format!("request {} {}", one.name, one.asked_at),
        event: None,
        at: one.asked_at,
        about: NoticeKind::ReservationAsked(one.project),
        session: None,
        name: Some(one.name.to_string()),
        unread: one.asked_at > read_at,
    }
}

/// What an event tells that is of no session: of a request of the reader's, of a course, or of their account; None for one of
/// a session.
fn decided(row: &ToldEventRow) -> Option<NoticeKind> {
    let why = || row.event.after.clone();
    match row.event.code.as_str() {
        reservations::APPROVED => Some(NoticeKind::ReservationApproved(why())),
        reservations::REFUSED => Some(NoticeKind::ReservationRefused(why())),
        reservations::EXPIRED => Some(NoticeKind::ReservationExpired),
        courses::MESSAGE => Some(NoticeKind::CourseMessage(why())),
        FOLDER_OPENED => Some(looked_into(&row.event)),
        SIGNED_IN_ELSEWHERE => Some(NoticeKind::SignedIn(why())),
        LIMIT_DECLINED => Some(NoticeKind::LimitDeclined(why())),
        _ => None,
    }
}

fn looked_into(event: &EventRow) -> NoticeKind {
    NoticeKind::BreakGlass {
        by: event.actor.clone(),
        reason: event.after.clone(),
    }
}

/// It is told while the budget holds; it is new until the reader read it.
fn nearly_used(row: BudgetRecord, event: EventRow, read_at: Timestamp) -> OwnNotice {
    OwnNotice {
        key: format!("event {}", event.sequence),
        event: Some(event.sequence),
        at: event.at,
        about: NoticeKind::BudgetWarned(row.budget.id, row.budget.warned),
        session: None,
        name: Some(row.whose()),
        unread: event.at > read_at,
    }
}

/// Names a limit of folders that came near among the notices of their owner, or of who leads the project that is.
pub(crate) fn storage_key(project: Option<ProjectId>, warning: &StorageWarning) -> String {
    let (level, since) = (warning.level.word(), warning.since);
    match project {
        None => format!("storage {level} {since}"),
        Some(project) => format!("storage {project} {level} {since}"),
    }
}

/// It is told while the limit is near; it is new until the reader read it, and again once it is nearer.
fn nearly_full(warned: WarnedFolders, read_at: Timestamp) -> OwnNotice {
    let WarnedFolders { project, warning } = warned;
    OwnNotice {
        key: storage_key(project.as_ref().map(|(id, _)| *id), &warning),
        event: None,
        at: warning.since,
        about: NoticeKind::StorageWarned(percent(warning.taken.used, warning.taken.limit)),
        session: None,
        name: project.map(|(_, name)| name),
        unread: warning.since > read_at,
    }
}

/// It is told while it holds. What the reader raised themselves they know.
fn is_news(row: &AllowanceRecord, reader: &Caller, read_at: Timestamp) -> bool {
    row.created_at > read_at && row.actor != reader.name.as_str()
}

fn limit_raised(row: AllowanceRecord, unread: bool) -> OwnNotice {
    OwnNotice {
        key: format!("allowance {}", row.id),
        event: None,
        at: row.created_at,
        about: NoticeKind::LimitRaised(row.allowance.limits, row.allowance.until, row.reason),
        session: None,
        name: None,
        unread,
    }
}

/// It is told until it is answered; it is new until the reader read it.
fn offered(offer: FolderInvitationView, read_at: Timestamp) -> OwnNotice {
    OwnNotice {
        key: format!("offer {}", offer.id),
        event: None,
        at: offer.created_at,
        about: NoticeKind::FolderOffered(offer.owner.name),
        session: None,
        name: Some(offer.name.to_string()),
        unread: offer.created_at > read_at,
    }
}

fn maintenance(row: MaintenanceRow, read: u64) -> OwnNotice {
    let unread = is_new(&row, read);
    OwnNotice {
        key: format!("event {} {}", row.told.unwrap_or_default(), row.node),
        event: row.told,
        at: row.since.unwrap_or_default(),
        about: NoticeKind::Maintenance(OwnMaintenance {
            message: row.message,
            running: row.running,
            waiting: row.waiting,
        }),
        session: None,
        name: Some(row.node),
        unread,
    }
}

/// A changed message is new again; what they did themselves they know.
fn is_new(row: &MaintenanceRow, read: u64) -> bool {
    !row.own && row.told.is_some_and(|sequence| sequence > read)
}

fn happened(row: ToldEventRow, read: u64, is_newest: bool) -> OwnNotice {
    let key = format!("event {}", row.event.sequence);
    let told = Some(row.event.sequence);
    if let Some(about) = decided(&row) {
        let is_of_account = matches!(
            about,
            NoticeKind::SignedIn(_) | NoticeKind::LimitDeclined(_)
        );
        return OwnNotice {
            key,
            event: told,
            at: row.event.at,
            about,
            session: None,
            name: (!is_of_account).then_some(row.event.object),
            unread: row.event.sequence > read && !row.own,
        };
    }
    let ToldEventRow {
        event,
        own,
        session,
    } = row;
    let cancelled = session
        .as_ref()
        .filter(|_| is_newest)
        .is_some_and(|one| one.outcome == Some(Outcome::Stopped) && one.started_at.is_none());
    let (name, outcome, reason) = match session {
        Some(one) => (
            Some(one.name),
            one.outcome.filter(|_| is_newest),
            one.reason,
        ),
        None => (None, None, None),
    };
    OwnNotice {
        key,
        event: told,
        at: event.at,
        about: match event.code.as_str() {
            "session.running" => NoticeKind::Started,
            "session.gpu-warned" => NoticeKind::GpuWarned,
            WARNED => {
                let (action, minutes) =
                    idleness::read_told(&event.after).unwrap_or((IdleAction::Notice, 0));
                NoticeKind::IdleWarned(action, minutes)
            }
            reservations::WARNED => {
                let begins = Timestamp::parse(&event.after).unwrap_or(event.at);
                NoticeKind::ReservationWarned(begins)
            }
            courses::WARNED => {
                let ends = Timestamp::parse(&event.after).unwrap_or(event.at);
                NoticeKind::CourseWarned(ends)
            }
            SESSION_OPENED => looked_into(&event),
            rules::codes::SESSION_IDLE => NoticeKind::FoundIdle,
            rules::codes::SESSION_PREEMPTED => NoticeKind::Preempted,
            _ if cancelled => NoticeKind::Cancelled,
            _ => NoticeKind::Ended(outcome, reason.filter(|_| outcome.is_some())),
        },
        session: Some(event.object),
        name,
        // What they did themselves they know.
        unread: event.sequence > read && !own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_notice_stands_first_of_all_kinds() {
        let at = |second: u64| Timestamp::default().plus_seconds(second);
        let one = |at: Timestamp, about: NoticeKind| OwnNotice {
            key: String::new(),
            event: None,
            at,
            about,
            session: None,
            name: None,
            unread: false,
        };
        let asked = one(at(40), NoticeKind::ReservationAsked("lab".into()));
        let ends = one(at(900), NoticeKind::WillEnd(at(900)));
        let closed = OwnMaintenance {
            message: String::new(),
            running: 1,
            waiting: 0,
        };
        let closed = one(Timestamp::default(), NoticeKind::Maintenance(closed));
        let (older, newer) = (
            one(at(10), NoticeKind::Started),
            one(at(50), NoticeKind::Started),
        );
        let mut all = vec![asked, ends, closed, newer, older];
        newest_first(&mut all, at(100));
        let order: Vec<Timestamp> = all.iter().map(|one| one.at).collect();
        assert_eq!(order, [at(900), at(0), at(50), at(40), at(10)]);
    }
}
