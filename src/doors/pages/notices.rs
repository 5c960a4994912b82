//! `/notices`: what a user should know of their own sessions and requests, behind the bell. Opening the page reads nothing as read: the
//! user says that.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::idleness::IdleAction;
use rules::quota::{LimitKey, PolicyLimits};
use rules::session::Outcome;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::notices::{self, NoticeKind, OwnMaintenance, OwnNotice};

use super::authentication::PageCaller;
use super::components;
use super::layout::{Nav, PageLayout};
use super::policies::{amount_in, key_name};
use super::request_context::{LocalClock, RequestContext};
use super::table::{self, Pager};
use super::{PagesContext, layout, live as stream, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/notices.html", blocks = ["list"])]
pub struct NoticesPage {
    pub t: Text,
    pub f: PageLayout,
    pub rows: Vec<NoticeRow>,
    /// Of all notices, as the bell counts them.
    pub unread: u64,
    /// There may be older ones than those that are listed.
    pub is_cut: bool,
    pub pager: Pager,
}

/// One notice.
pub struct NoticeRow {
    pub icon: &'static str,
    pub tone: &'static str,
    pub what: String,
    /// Why, where it is known.
    pub why: String,
    pub name: String,
    pub href: Option<String>,
    pub when: String,
    pub unread: bool,
}

const PATH: &str = "/notices";

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct NoticesQuery {
    /// The page of notices, from 1.
    page: String,
}

/// `GET /notices`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<NoticesQuery>,
) -> Response {
    match read(&console, &visit, &caller, &asked.page).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /notices/live`
pub async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<NoticesQuery>,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let shown = asked.page.clone();
        async move {
            let page = read(&console, &visit, &caller, &shown).await.ok()?;
            Some(vec![
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("list", page.as_list().render().ok()?),
            ])
        }
    })
}

/// `POST /notices/read`
pub async fn mark_read(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match notices::mark_read(&console.server, &caller).await {
        Ok(()) => responses::see(PATH),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Nowhere);
    responses::failure(console, visit, Some(frame), failure)
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    shown: &str,
) -> Result<NoticesPage, Failure> {
    let all = notices::list(&console.server, caller).await?;
    let now = console.server.clock().now();
    let is_cut = all.len() >= notices::MAX_SHOWN as usize;
    let (rows, pager) = table::one_page(visit.text, PATH, shown, all);
    let f = PageLayout {
        live: Some(match shown {
            "" => "/notices/live".to_owned(),
            page => format!("/notices/live?page={}", responses::encoded(page)),
        }),
        ..layout(console, visit, caller, Nav::Nowhere)
    };
    Ok(NoticesPage {
        t: visit.text,
        unread: f.unread,
        f,
        is_cut: is_cut && pager.next.is_none(),
        pager,
        rows: rows
            .iter()
            .map(|notice| row(visit.text, &visit.clock, now, notice))
            .collect(),
    })
}

/// A notice in the reader's words, for the page and for mail.
pub(super) fn row(t: Text, clock: &LocalClock, now: Timestamp, notice: &OwnNotice) -> NoticeRow {
    let (icon, tone, what, why) = match &notice.about {
        NoticeKind::Started => ("play", "ok", t.notices_started().to_owned(), String::new()),
        NoticeKind::GpuWarned => (
            "triangle-alert",
            "warn",
            t.gpu_over_warned().to_owned(),
            String::new(),
        ),
        NoticeKind::IdleWarned(action, minutes) => (
            "hourglass",
            "warn",
            match action {
                IdleAction::Notice => t.idle_notice_notice().to_owned(),
                IdleAction::Stop => t.idle_notice_stop(*minutes),
                IdleAction::Pause => t.idle_notice_pause(*minutes),
                IdleAction::Requeue => t.idle_notice_requeue(*minutes),
            },
            String::new(),
        ),
        NoticeKind::FoundIdle => (
            "hourglass",
            "dim",
            t.idle_notice_idle().to_owned(),
            String::new(),
        ),
        NoticeKind::ReservationWarned(begins) => (
            "hourglass",
            "warn",
            t.reservations_notice(clock.near(*begins, now)),
            String::new(),
        ),
        NoticeKind::ReservationAsked(project) => (
            "hourglass",
            "warn",
            t.reservations_notice_asked(project.as_str()),
            String::new(),
        ),
        NoticeKind::ReservationApproved(why) => (
            "circle-check",
            "ok",
            t.reservations_notice_approved().to_owned(),
            why.clone(),
        ),
        NoticeKind::ReservationRefused(why) => (
            "circle-x",
            "bad",
            t.reservations_notice_refused().to_owned(),
            why.clone(),
        ),
        NoticeKind::ReservationExpired => (
            "circle-stop",
            "dim",
            t.reservations_notice_expired().to_owned(),
            String::new(),
        ),
        NoticeKind::CourseWarned(ends) => (
            "hourglass",
            "warn",
            t.courses_notice_warned(clock.near(*ends, now)),
            String::new(),
        ),
        NoticeKind::CourseMessage(text) => (
            "megaphone",
            "dim",
            t.courses_notice_message().to_owned(),
            text.clone(),
        ),
        NoticeKind::BudgetWarned(_, percent) => (
            "triangle-alert",
            "warn",
            t.notices_budget_warned(*percent),
            String::new(),
        ),
        NoticeKind::StorageWarned(percent) => (
            "triangle-alert",
            "warn",
            t.notices_storage_warned(*percent),
            String::new(),
        ),
        NoticeKind::LimitRaised(limits, until, why) => {
            let raised = LimitKey::ALL.into_iter().filter_map(|key| {
                let value = amount_in(t, key, limits.get(key)?);
                Some(format!("{}: {value}", key_name(t, key)))
            });
            let said = Some(why.clone()).filter(|why| !why.is_empty());
            let raised: Vec<String> = raised.chain(said).collect();
            (
                "circle-check",
                "ok",
                t.notices_limit_raised(clock.near(*until, now)),
                raised.join(" · "),
            )
        }
        NoticeKind::LimitDeclined(why) => (
            "circle-x",
            "warn",
            t.notices_limit_declined().to_owned(),
            why.clone(),
        ),
        NoticeKind::LimitsAsked(count) => (
            "shield-check",
            "warn",
            t.notices_limits_asked(*count),
            String::new(),
        ),
        NoticeKind::FolderOffered(owner) => (
            "folder",
            "warn",
            t.notices_folder_offered(owner.as_str()),
            String::new(),
        ),
        NoticeKind::WillEnd(at) => (
            "hourglass",
            "warn",
            t.notices_will_end(clock.near(*at, now)),
            String::new(),
        ),
        NoticeKind::SignUpsWait(count) => (
            "key-round",
            "warn",
            t.notices_sign_ups_wait(*count),
            String::new(),
        ),
        NoticeKind::AccountEnds(at) => (
            "hourglass",
            "warn",
            t.notices_account_ends(clock.near(*at, now)),
            String::new(),
        ),
        NoticeKind::SignedIn(source) => (
            "key-round",
            "warn",
            t.notices_signed_in(source.as_str()),
            t.notices_signed_in_why().to_owned(),
        ),
        NoticeKind::ApprovalsWait(count) => (
            "circle-check",
            "warn",
            t.notices_approvals_wait(*count),
            String::new(),
        ),
        NoticeKind::BreakGlass { by, reason } => (
            "key-round",
            "warn",
            t.notices_break_glass(by.as_str()),
            reason.clone(),
        ),
        NoticeKind::Preempted => (
            "circle-stop",
            "warn",
            t.notices_preempted().to_owned(),
            String::new(),
        ),
        NoticeKind::Cancelled => (
            "circle-stop",
            "dim",
            t.notices_cancelled().to_owned(),
            String::new(),
        ),
        NoticeKind::Ended(outcome, why) => {
            let (icon, tone, what) = ended(t, *outcome);
            let why = why.as_ref().map(|why| codes::reason(t, why));
            (icon, tone, what.to_owned(), why.unwrap_or_default())
        }
        NoticeKind::Maintenance(of) => (
            "hard-drive",
            "warn",
            match notice.at.as_millis() {
                0 => t.notices_maintenance().to_owned(),
                _ => t.notices_maintenance_since(clock.near(notice.at, now)),
            },
            maintenance(t, of),
        ),
    };
    NoticeRow {
        icon,
        tone,
        what,
        why,
        href: match (&notice.about, &notice.session, &notice.name) {
            (about, ..) if is_of_reservation(about) => Some("/reservations".to_owned()),
            (NoticeKind::BudgetWarned(id, _), ..) => Some(format!("/budgets/{id}")),
            (NoticeKind::LimitRaised(..) | NoticeKind::LimitDeclined(_), ..) => {
                Some("/me".to_owned())
            }
            (NoticeKind::LimitsAsked(_), ..) => Some("/allowances".to_owned()),
            (NoticeKind::AccountEnds(_) | NoticeKind::SignedIn(_), ..) => Some("/me".to_owned()),
            (NoticeKind::SignUpsWait(_), ..) => Some("/sign-ups".to_owned()),
            (NoticeKind::ApprovalsWait(_), ..) => Some("/approvals".to_owned()),
            (NoticeKind::StorageWarned(_) | NoticeKind::FolderOffered(_), ..) => {
                Some("/folders".to_owned())
            }
            (NoticeKind::BreakGlass { .. }, ..) => Some("/break-glass".to_owned()),
            (about, None, Some(_)) if is_of_course(about) => Some("/courses".to_owned()),
            (_, Some(session), Some(_)) => Some(format!("/sessions/{session}")),
            _ => None,
        },
        name: match (&notice.about, &notice.name) {
            (NoticeKind::StorageWarned(_), None) => t.folders_own().to_owned(),
            (NoticeKind::StorageWarned(_), Some(project)) => t.folder_owner_of_project(project),
            (NoticeKind::LimitRaised(limits, ..), _) => raised(t, limits),
            (NoticeKind::LimitDeclined(_), _) => t.users_limits().to_owned(),
            (NoticeKind::LimitsAsked(_), _) => t.allowances_requests().to_owned(),
            (NoticeKind::AccountEnds(_) | NoticeKind::SignedIn(_), _) => {
                t.users_account().to_owned()
            }
            (NoticeKind::SignUpsWait(_), _) => t.sign_ups_title().to_owned(),
            (NoticeKind::ApprovalsWait(_), _) => t.approvals_title().to_owned(),
            (_, Some(name)) => name.clone(),
            (_, None) => t.notices_deleted().to_owned(),
        },
        when: match notice.about {
            NoticeKind::WillEnd(_) | NoticeKind::AccountEnds(_) | NoticeKind::Maintenance(_) => {
                String::new()
            }
            _ => clock.ago(notice.at, now),
        },
        unread: notice.unread,
    }
}

/// Which limits are raised, by their names.
fn raised(t: Text, limits: &PolicyLimits) -> String {
    let keys = LimitKey::ALL.into_iter();
    let named = keys.filter(|key| limits.get(*key).is_some());
    named
        .map(|key| key_name(t, key))
        .collect::<Vec<_>>()
        .join(", ")
}

/// True where the notice is of a request and not of a session.
fn is_of_reservation(about: &NoticeKind) -> bool {
    matches!(
        about,
        NoticeKind::ReservationAsked(_)
            | NoticeKind::ReservationApproved(_)
            | NoticeKind::ReservationRefused(_)
            | NoticeKind::ReservationExpired
    )
}

fn is_of_course(about: &NoticeKind) -> bool {
    matches!(about, NoticeKind::CourseMessage(_))
}

/// The administrator's message, then what it means for the user's own sessions.
fn maintenance(t: Text, of: &OwnMaintenance) -> String {
    let mut said = Vec::new();
    if !of.message.is_empty() {
        said.push(of.message.clone());
    }
    if of.running > 0 {
        said.push(t.notices_maintenance_running(of.running));
    }
    if of.waiting > 0 {
        said.push(t.notices_maintenance_waiting(of.waiting));
    }
    said.join(" · ")
}

fn ended(t: Text, outcome: Option<Outcome>) -> (&'static str, &'static str, &'static str) {
    match outcome {
        Some(Outcome::Succeeded) => ("circle-check", "ok", t.notices_done()),
        Some(Outcome::Failed | Outcome::Lost | Outcome::Refused) => {
            ("circle-x", "bad", t.notices_failed())
        }
        Some(Outcome::Stopped) => ("circle-stop", "dim", t.notices_stopped()),
        None => ("circle-stop", "dim", t.timeline_ended()),
    }
}
