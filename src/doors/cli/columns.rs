//! The columns of each noun's table, in their order, with the rank by which they are dropped.
//! Reads only what the API answers.

use std::collections::BTreeMap;

use api::allowances::{AllowanceView, LimitRequestView};
use api::announcements::AnnouncementView;
use api::approvals::ApprovalView;
use api::apps::{AppShareView, AppState, AppView};
use api::audit::{AuditCheckpointView, AuditEntryView, AuditTargetView};
use api::break_glass::BreakGlassView;
use api::budgets::BudgetView;
use api::courses::{AttendanceView, CourseMemberView, CourseView};
use api::environments::EnvironmentView;
use api::events::EventView;
use api::fair_share::FairShareItem;
use api::folder_browsing::SubfolderUsageView;
use api::folder_snapshots::FolderSnapshotView;
use api::folders::{
    FolderEntryView, FolderInvitationView, FolderOwnerKind, FolderSessionView, FolderShareView,
    FolderTransferView, FolderView, RemovedEntryView,
};
use api::gpus::Gpu;
use api::history::{HistoryHolder, HistoryPoint};
use api::idle_rules::{IdleDryEndView, IdleRuleView};
use api::invitations::InvitationView;
use api::nodes::NodeView;
use api::notices::{NoticeView, NoticeWord};
use api::operations::OperationView;
use api::policies::{EffectiveLimitView, OverLimitView, PolicyView};
use api::presets::PresetView;
use api::queue_rehearsal::RehearsedUser;
use api::reservations::{ReservationQuotaView, ReservationView};
use api::resource_groups::ResourceGroupView;
use api::rosters::{RosterRow, RosterSlip, RosterView};
use api::second_factor::SecondFactorView;
use api::sessions::{ConnectionView, SessionView, UsageSample, WaitingView};
use api::settings::SettingView;
use api::sign_ups::{SignUpRuleView, SignUpView};
use api::ssh::SshKeyView;
use api::start_up::{DotfileView, OwnVariableView};
use api::statements::{ClosedMonthView, MonthCheckView, PricesView, StatementItem};
use api::storage::{PoolView, StorageView};
use api::tenancy::{DomainView, GrantView, MemberView, ProjectView};
use api::usage::UsageItem;
use api::users::{AccessKeyView, DepartureView, SignInView, TokenView};
use api::volumes::VolumeView;
use api::webhooks::WebhookView;
use rules::folder_path::FolderEntryKind;
use rules::grants::GrantRole;
use rules::idleness::IdleMatch;
use rules::image::CatalogImage;
use rules::placement::MAX_PREEMPTIONS;
use rules::quota::{LimitKey, PolicyLimits};
use rules::session::{SessionKind, SessionState};
use rules::units::Bytes;
use rules::users::User;

use super::format;
use super::output::{Column, OutputStyle, bytes, column, dash, maybe, span};
use crate::doors::launch_texts;
use crate::doors::text::{Text, codes};

/// `running`, `running, paused`, `pending, held`, `ended 7`, `ended, stopped`.
pub(super) fn state(session: &SessionView) -> String {
    let state = session.state.word();
    if session.held_by.is_some() {
        return format!("{state}, held");
    }
    // By its owner, or by its machine because it fills the disk.
    if session.paused || session.stands_still() {
        return format!("{state}, paused");
    }
    match (session.exit_code, session.outcome) {
        (Some(code), _) => format!("{state} {code}"),
        (None, Some(outcome)) => format!("{state}, {}", outcome.word()),
        (None, None) => state.to_owned(),
    }
}

fn ran(session: &SessionView, view: &OutputStyle) -> String {
    match (session.started_at, session.ended_at) {
        (Some(from), Some(to)) => span(to.seconds_since(from)),
        (Some(from), None) => span(view.now.seconds_since(from)),
        _ => "-".to_owned(),
    }
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    dash(&pairs.join(","))
}

fn is_state(words: &str) -> bool {
    SessionState::parse(words).is_some()
}

/// `before → after`, as far as there is one of them; a reason, and the state before it.
pub(super) fn what(event: &EventView) -> String {
    match (event.before.as_str(), event.after.as_str()) {
        ("", "") => "-".to_owned(),
        ("", after) => after.to_owned(),
        (before, "") => before.to_owned(),
        // A reason is no state: an arrow to it would read as one.
        (before, reason) if is_state(before) && !is_state(reason) => {
            format!("{reason} (before: {before})")
        }
        (before, after) => format!("{before} → {after}"),
    }
}

fn reason(session: &SessionView) -> String {
    session
        .reason
        .as_ref()
        .map_or("-".to_owned(), |reason| dash(&reason.text))
}

pub(super) const SESSIONS: &[Column<SessionView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("STATE", 1, |r, _| state(r)),
    column("IMAGE", 3, |r, _| dash(&r.image)),
    column("CPU", 4, |r, _| r.resources.cpu.to_string()),
    column("MEMORY", 4, |r, _| r.resources.memory.to_string()),
    column("GPU", 6, |r, _| format::asked(&r.resources)),
    column("AGE", 2, |r, v| v.since(r.created_at)),
    column("RAN", 5, ran),
    column("OWNER", 5, |r, _| r.owner.name.to_string()),
    column("PROJECT", 8, |r, _| r.project.name.to_string()),
    column("ID", 9, |r, _| r.id.to_string()),
    column("KIND", 9, |r, _| format::kind(r.kind)),
    column("NODE", 9, |r, _| maybe(r.node.as_ref())),
    column("LABELS", 9, |r, _| labels(&r.labels)),
    column("COMMAND", 9, |r, _| dash(&r.command.join(" "))),
    column("REASON", 7, |r, _| reason(r)),
    column("WAITED", 9, |r, _| maybe(r.waited_seconds.map(span))),
];

/// All that is printed of one session, in its order.
pub(super) fn session() -> Vec<Column<SessionView>> {
    let mut all: Vec<Column<SessionView>> = vec![
        column("NAME", 0, |r, _| r.name.to_string()),
        column("ID", 0, |r, _| r.id.to_string()),
        column("STATE", 0, |r, _| state(r)),
        column("REASON", 0, |r, _| reason(r)),
        column("OWNER", 0, |r, _| r.owner.name.to_string()),
    ];
    let shown = launch_texts::shown::<OutputStyle>().into_iter();
    all.extend(shown.map(|text| column(text.heading, 0, text.give)));
    let behind: Vec<Column<SessionView>> = vec![
        column("KIND", 0, |r, _| format::kind(r.kind)),
        column("IMAGE", 0, |r, _| dash(&r.image)),
        column("COMMAND", 0, |r, _| match r.document_kept {
            true => dash(&r.command.join(" ")),
            false => "no longer kept".to_owned(),
        }),
        column("CPU", 0, |r, _| r.resources.cpu.to_string()),
        column("MEMORY", 0, |r, _| r.resources.memory.to_string()),
        column("SHM", 0, |r, _| r.resources.shm.to_string()),
        column("DISK", 0, |r, _| maybe(r.resources.disk.as_ref())),
        column("GPU", 0, |r, _| format::asked(&r.resources)),
        column("DEVICES", 0, |r, _| dash(&format::grants(&r.devices))),
        column("CONTAINERS", 0, |r, _| r.containers.to_string()),
        column("NODE", 0, |r, _| maybe(r.node.as_ref())),
        column("LABELS", 0, |r, _| labels(&r.labels)),
        column("PRIORITY", 0, |r, _| r.priority.to_string()),
        column("YIELDS", 0, |r, _| match (r.yields, r.preempted_count) {
            (false, _) => "no".to_owned(),
            (true, 0) => "yes".to_owned(),
            (true, times) => format!("yes, preempted {times} of {MAX_PREEMPTIONS} times"),
        }),
        column("CREATED", 0, |r, _| r.created_at.to_string()),
        column("START AT", 0, |r, _| maybe(r.start_at)),
        column("STARTED", 0, |r, _| maybe(r.started_at)),
        column("WAITED", 0, |r, _| maybe(r.waited_seconds.map(span))),
        column("ENDED", 0, |r, _| maybe(r.ended_at)),
        column("RAN", 0, ran),
        column("OUTCOME", 0, |r, _| maybe(r.outcome.map(|o| o.word()))),
        column("EXIT CODE", 0, |r, _| maybe(r.exit_code)),
        column("START", 0, |r, _| r.incarnation.to_string()),
        column("GENERATION", 0, |r, _| r.generation.to_string()),
    ];
    all.extend(behind);
    all
}

fn free(gpu: &Gpu) -> String {
    if gpu.cordoned {
        "cordoned".to_owned()
    } else if gpu.planned.is_some() {
        "to be partitioned".to_owned()
    } else if !gpu.partitions.is_empty() {
        let free = gpu.partitions.iter().filter(|part| !part.taken).count();
        format!("{free} of {} parts", gpu.partitions.len())
    } else {
        gpu.share_free.to_string()
    }
}

pub(super) const GPUS: &[Column<Gpu>] = &[
    column("GPU", 0, |r, _| r.index.to_string()),
    column("MODEL", 1, |r, _| match r.simulated {
        true => format!("{} (simulated)", r.model),
        false => dash(&r.model),
    }),
    column("FREE", 1, |r, _| free(r)),
    column("GIVEN", 3, |r, _| r.share_used.to_string()),
    column("BUSY", 3, |r, _| format::busy(r.doing.as_ref())),
    column("MEMORY FREE", 4, |r, _| r.memory_free.to_string()),
    column("HEALTH", 5, |r, _| format::health(&r.health)),
    column("TESTED", 5, |r, _| format::tested(r.self_test)),
    column("SLICES", 2, |r, v| format::slices(&r.slices, v.now)),
    column("NODE", 6, |r, _| dash(&r.node_name)),
    column("NAME", 9, |r, _| dash(&r.id)),
    column("SOCKET", 9, |r, _| maybe(r.numa)),
];

pub(super) const QUEUE: &[Column<WaitingView>] = &[
    column("PLACE", 0, |r, _| maybe(r.why.queue_position)),
    column("NAME", 0, |r, _| r.session.name.to_string()),
    column("OWNER", 4, |r, _| r.session.owner.name.to_string()),
    column("CPU", 3, |r, _| r.session.resources.cpu.to_string()),
    column("MEMORY", 3, |r, _| r.session.resources.memory.to_string()),
    column("WAITS", 2, |r, v| v.since(r.session.created_at)),
    column("STARTS IN", 5, |r, _| match (&r.why.likely, &r.why.eta) {
        (Some(likely), _) => format!("~{}", span(likely.seconds)),
        (None, Some(eta)) => span(eta.p50_seconds),
        (None, None) => "unknown".to_owned(),
    }),
    column("WHY", 1, |r, _| dash(&r.why.sentence)),
];

pub(super) const EVENTS: &[Column<EventView>] = &[
    column("AT", 0, |r, _| r.at.to_string()),
    column("CODE", 1, |r, _| dash(&r.code)),
    column("WHO", 2, |r, _| dash(&r.actor)),
    column("WHAT", 0, |r, _| what(r)),
    column("NUMBER", 9, |r, _| r.sequence.to_string()),
    column("OBJECT", 9, |r, _| dash(&r.object)),
];

/// An event that a search found, with the name of its object where it has one.
#[derive(serde::Deserialize)]
pub(super) struct FoundEvent {
    #[serde(flatten)]
    event: EventView,
    #[serde(default)]
    name: Option<String>,
}

pub(super) const FOUND_EVENTS: &[Column<FoundEvent>] = &[
    column("AT", 0, |r, _| r.event.at.to_string()),
    column("CODE", 1, |r, _| dash(&r.event.code)),
    column("OBJECT", 3, |r, _| {
        dash(r.name.as_deref().unwrap_or(&r.event.object))
    }),
    column("WHO", 2, |r, _| dash(&r.event.actor)),
    column("WHAT", 0, |r, _| what(&r.event)),
    column("NUMBER", 9, |r, _| r.event.sequence.to_string()),
    column("TOPIC", 9, |r, _| dash(&r.event.topic)),
    column("ID", 9, |r, _| dash(&r.event.object)),
];

/// An act that a search found, with the name of its object where there is one.
#[derive(serde::Deserialize)]
pub(super) struct FoundAct {
    #[serde(flatten)]
    act: AuditEntryView,
    #[serde(default)]
    name: Option<String>,
}

pub(super) const FOUND_ACTS: &[Column<FoundAct>] = &[
    column("AT", 0, |r, _| r.act.at.to_string()),
    column("ACT", 1, |r, _| dash(&r.act.act)),
    column("OBJECT", 3, |r, _| {
        dash(r.name.as_deref().unwrap_or(&r.act.object))
    }),
    column("WHO", 2, |r, _| dash(&r.act.actor)),
    column("FROM", 4, |r, _| dash(&r.act.address)),
    column("REFUSED", 5, |r, _| dash(&r.act.reason)),
    column("NUMBER", 9, |r, _| r.act.sequence.to_string()),
    column("VIA", 9, |r, _| dash(&r.act.via)),
    column("BEFORE", 9, |r, _| dash(&r.act.before)),
    column("AFTER", 9, |r, _| dash(&r.act.after)),
    column("DOMAIN", 9, |r, _| maybe(r.act.domain.as_ref())),
    column("PROJECT", 9, |r, _| maybe(r.act.project.as_ref())),
    column("ID", 9, |r, _| dash(&r.act.object)),
    column("REQUEST", 9, |r, _| dash(&r.act.request)),
];

pub(super) const AUDIT_CHECKPOINTS: &[Column<AuditCheckpointView>] = &[
    column("ROW", 0, |r, _| r.sequence.to_string()),
    column("AT", 1, |r, _| r.at.to_string()),
    column("HASH", 2, |r, _| r.hash.clone()),
    column("SIGNATURE", 9, |r, _| r.signature.clone()),
];

pub(super) const WEBHOOKS: &[Column<WebhookView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("STATE", 0, |r, _| match r.active {
        true => "on".to_owned(),
        false => "off".to_owned(),
    }),
    column("ADDRESS", 1, |r, _| r.address.clone()),
    column("KINDS", 2, |r, _| r.kinds.join(", ")),
    column("LOST", 1, |r, _| r.lost.to_string()),
    column("PROBLEM", 2, |r, _| dash(&r.problem)),
    column("SINCE", 3, |r, _| maybe(r.problem_since.as_ref())),
    column("DELIVERED", 3, |r, _| maybe(r.delivered_at.as_ref())),
    column("ID", 9, |r, _| r.id.to_string()),
];

pub(super) const AUDIT_TARGETS: &[Column<AuditTargetView>] = &[
    column("TARGET", 0, |r, _| r.target.clone()),
    column("PLACE", 1, |r, _| r.place.clone()),
    column("ROW", 1, |r, _| r.delivered.to_string()),
    column("WAITING", 1, |r, _| r.waiting.to_string()),
    column("LOST", 1, |r, _| r.lost.to_string()),
    column("PROBLEM", 2, |r, _| dash(&r.problem)),
    column("SINCE", 3, |r, _| maybe(r.problem_since.as_ref())),
    column("AT", 9, |r, _| maybe(r.delivered_at.as_ref())),
];

/// `2 of 8`, `12 of 16 (8 cores)`.
pub(super) fn cpu_of(node: &NodeView) -> String {
    match node.cpu_room > node.cpu {
        true => format!(
            "{} of {} ({} cores)",
            node.cpu_used, node.cpu_room, node.cpu
        ),
        false => format!("{} of {}", node.cpu_used, node.cpu),
    }
}

/// `8`, `8, 1 cordoned`, `8 (simulated)`.
pub(super) fn gpus_of(node: &NodeView) -> String {
    let mut words = node.gpus.to_string();
    if node.gpus_cordoned > 0 {
        words.push_str(&format!(", {} cordoned", node.gpus_cordoned));
    }
    if node.simulated {
        words.push_str(" (simulated)");
    }
    words
}

pub(super) const NODES: &[Column<NodeView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("CPU", 2, |r, _| cpu_of(r)),
    column("MEMORY", 3, |r, _| {
        format!("{} of {}", r.memory_used, r.memory)
    }),
    column("GPUS", 3, |r, _| gpus_of(r)),
    column("SESSIONS", 4, |r, _| r.sessions.to_string()),
    column("REPORTED", 5, |r, v| v.ago(r.seen_at)),
    column("MESSAGE", 1, |r, _| dash(&r.message)),
    column("PROBLEMS", 9, |r, _| {
        let texts: Vec<&str> = r.problems.iter().map(|one| one.text.as_str()).collect();
        dash(&texts.join(" "))
    }),
    column("ID", 9, |r, _| r.id.to_string()),
];

fn told(notice: &NoticeView) -> String {
    match (notice.kind, notice.outcome) {
        (NoticeWord::Started, _) => "started".to_owned(),
        (NoticeWord::Ended, Some(outcome)) => format!("ended, {}", outcome.word()),
        (NoticeWord::Ended, None) => "ended".to_owned(),
        (NoticeWord::Preempted, _) => "makes way for a higher priority, queued again".to_owned(),
        (NoticeWord::Cancelled, _) => "cancelled".to_owned(),
        (NoticeWord::GpuWarned, _) => "uses more GPU memory than it was given".to_owned(),
        (NoticeWord::IdleWarned, _) => match &notice.message {
            Some(message) => format!("is idle: {message}"),
            None => "is idle".to_owned(),
        },
        (NoticeWord::FoundIdle, _) => "was found idle".to_owned(),
        (NoticeWord::ReservationWarned, _) => match &notice.message {
            Some(begins) => format!("is stopped for a reservation that begins at {begins}"),
            None => "is stopped for a reservation".to_owned(),
        },
        (NoticeWord::ReservationAsked, _) => match &notice.message {
            Some(project) => format!("a reservation was requested for {project}"),
            None => "a reservation was requested".to_owned(),
        },
        (NoticeWord::ReservationApproved, _) => "your reservation was approved".to_owned(),
        (NoticeWord::ReservationRefused, _) => "your reservation was refused".to_owned(),
        (NoticeWord::ReservationExpired, _) => "your reservation request expired".to_owned(),
        (NoticeWord::CourseWarned, _) => match &notice.message {
            Some(ends) => format!("is stopped when the term of its course ends at {ends}"),
            None => "is stopped when the term of its course ends".to_owned(),
        },
        (NoticeWord::CourseMessage, _) => match &notice.message {
            Some(text) => format!("says: {text}"),
            None => "sent a message".to_owned(),
        },
        (NoticeWord::BudgetWarned, _) => match &notice.message {
            Some(used) => format!("budget is used to {used}"),
            None => "budget is nearly used".to_owned(),
        },
        (NoticeWord::StorageWarned, _) => match &notice.message {
            Some(used) => format!("folders take {used} of their limit"),
            None => "folders take nearly all of their limit".to_owned(),
        },
        (NoticeWord::LimitRaised, _) => match &notice.message {
            Some(limits) => format!("your limits are raised: {limits}"),
            None => "your limits are raised".to_owned(),
        },
        (NoticeWord::WillEnd | NoticeWord::AccountEnds, _) => format!("ends at {}", notice.at),
        (NoticeWord::LimitDeclined, _) => match notice.message.as_deref() {
            Some("") | None => "what you asked for is declined".to_owned(),
            Some(why) => format!("what you asked for is declined: {why}"),
        },
        (NoticeWord::LimitsAsked, _) => match &notice.message {
            Some(count) => format!("{count} wait for your decision"),
            None => "wait for your decision".to_owned(),
        },
        (NoticeWord::SignedIn, _) => match &notice.message {
            Some(source) => format!("was signed in to from a new place: {source}"),
            None => "was signed in to from a new place".to_owned(),
        },
        (NoticeWord::SignUpsWait, _) => match &notice.message {
            Some(count) => format!("{count} wait for your decision"),
            None => "wait for your decision".to_owned(),
        },
        (NoticeWord::FolderOffered, _) => match &notice.message {
            Some(owner) => format!("is offered to you by {owner}"),
            None => "is offered to you".to_owned(),
        },
        (NoticeWord::Maintenance, _) => "node in maintenance".to_owned(),
        (NoticeWord::ApprovalsWait, _) => match &notice.message {
            Some(count) => format!("{count} wait for your approval"),
            None => "wait for your approval".to_owned(),
        },
        (NoticeWord::BreakGlass, _) => match &notice.message {
            Some(told) => format!("an administrator looks into it: {told}"),
            None => "an administrator looks into it".to_owned(),
        },
    }
}

pub(super) const NOTICES: &[Column<NoticeView>] = &[
    column("AT", 1, |r, _| r.at.to_string()),
    column("NAME", 0, |r, _| {
        let none = match r.kind {
            NoticeWord::StorageWarned => "folders",
            NoticeWord::LimitRaised | NoticeWord::LimitDeclined => "limits",
            NoticeWord::LimitsAsked => "requests for higher limits",
            NoticeWord::AccountEnds | NoticeWord::SignedIn => "your account",
            NoticeWord::SignUpsWait => "requests for accounts",
            NoticeWord::ApprovalsWait => "acts of administrators",
            _ => "(deleted)",
        };
        r.name.clone().unwrap_or_else(|| none.to_owned())
    }),
    column("WHAT", 0, |r, _| told(r)),
    column("WHY", 2, |r, _| {
        let message = r.message.as_ref().filter(|message| !message.is_empty());
        maybe(r.reason.as_ref().map(|reason| &reason.text).or(message))
    }),
    column("NEW", 0, |r, _| match r.unread {
        true => "new".to_owned(),
        false => "-".to_owned(),
    }),
    column("ID", 9, |r, _| maybe(r.session.as_ref())),
];

fn waiting(setting: &SettingView) -> String {
    match &setting.waiting {
        Some(waiting) => format::setting_value(waiting.value.as_ref()),
        None => "-".to_owned(),
    }
}

/// What an undo would set.
fn undo(setting: &SettingView) -> String {
    match &setting.undo {
        None => "-".to_owned(),
        Some(earlier) => match &earlier.value {
            None => "default".to_owned(),
            value => format::setting_value(value.as_ref()),
        },
    }
}

pub(super) const SETTINGS: &[Column<SettingView>] = &[
    column("KEY", 0, |r, _| r.key.clone()),
    column("VALUE", 0, |r, _| format::setting_value(r.value.as_ref())),
    column("AFTER A RESTART", 1, |r, _| waiting(r)),
    column("DEFAULT", 3, |r, _| {
        format::setting_value(r.default.as_ref())
    }),
    column("SOURCE", 2, |r, _| r.source.clone()),
    column("UNDO", 9, |r, _| undo(r)),
    column("VARIABLE", 9, |r, _| r.variable.clone()),
    column("ABOUT", 9, |r, _| r.about.clone()),
];

pub(super) const SETTING: &[Column<SettingView>] = &[
    column("KEY", 0, |r, _| r.key.clone()),
    column("ABOUT", 0, |r, _| r.about.clone()),
    column("VALUE", 0, |r, _| format::setting_value(r.value.as_ref())),
    column("AFTER A RESTART", 0, |r, _| waiting(r)),
    column("DEFAULT", 0, |r, _| {
        format::setting_value(r.default.as_ref())
    }),
    column("SOURCE", 0, |r, _| r.source.clone()),
    column("UNDO", 0, |r, _| undo(r)),
    column("VARIABLE", 0, |r, _| r.variable.clone()),
];

/// Bytes that were measured as a mean.
fn mean(amount: Option<f64>) -> String {
    bytes(amount.map(|amount| rules::units::Bytes(amount as u64)))
}

fn two(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.2}"))
}

pub(super) const HISTORY: &[Column<HistoryPoint>] = &[
    column("AT", 0, |r, _| r.at.to_string()),
    column("CPU GIVEN", 3, |r, _| two(Some(r.cpu_allocated))),
    column("CPU USED", 1, |r, _| two(Some(r.cpu_busy))),
    column("MEMORY GIVEN", 4, |r, _| mean(Some(r.memory_allocated))),
    column("MEMORY USED", 2, |r, _| mean(Some(r.memory_used))),
    column("GPU GIVEN", 1, |r, _| two(Some(r.gpu_allocated))),
    column("GPU USED", 1, |r, _| two(r.gpu_busy)),
    column("GPU MEMORY GIVEN", 5, |r, _| {
        mean(Some(r.gpu_memory_allocated))
    }),
    column("GPU MEMORY USED", 3, |r, _| mean(r.gpu_memory_used)),
    column("CELSIUS", 9, |r, _| two(r.celsius)),
    column("WATTS", 9, |r, _| two(r.watts)),
];

pub(super) const HOLDERS: &[Column<HistoryHolder>] = &[
    column("SESSION", 0, |r, _| r.name.clone()),
    column("USER", 0, |r, _| r.user.clone()),
    column("GPU HOURS", 0, |r, _| two(Some(r.gpu_hours))),
    column("FROM", 1, |r, _| r.from.to_string()),
    column("UNTIL", 1, |r, _| maybe(r.until.as_ref())),
    column("ID", 2, |r, _| r.session.to_string()),
];

pub(super) const ALLOWANCES: &[Column<AllowanceView>] = &[
    column("FOR", 0, |r, _| format!("{} {}", r.level.word(), r.name)),
    column("LIMITS", 0, |r, _| {
        dash(&PolicyLimits::from(r.limits).told())
    }),
    column("UNTIL", 1, |r, _| r.until.to_string()),
    column("REASON", 3, |r, _| dash(&r.reason)),
    column("BY", 4, |r, _| r.actor.clone()),
    column("ID", 2, |r, _| r.id.to_string()),
];

pub(super) const LIMIT_REQUESTS: &[Column<LimitRequestView>] = &[
    column("USER", 0, |r, _| r.user.clone()),
    column("LIMITS", 0, |r, _| {
        dash(&PolicyLimits::from(r.limits).told())
    }),
    column("ACCOUNT", 1, |r, _| {
        let state = if r.suspended { "suspended" } else { "active" };
        state.to_owned()
    }),
    column("DAYS", 1, |r, _| r.days.to_string()),
    column("REASON", 1, |r, _| dash(&r.reason)),
    column("ASKED", 2, |r, v| v.since(r.asked_at)),
];

pub(super) const BUDGETS: &[Column<BudgetView>] = &[
    column("FOR", 0, |r, _| match (&r.project, &r.user) {
        (Some(project), _) => format!("{}/{project}", r.domain),
        (None, user) => user.clone().unwrap_or_default(),
    }),
    column("GPU-HOURS", 0, |r, _| r.gpu_hours.clone()),
    column("USED", 0, |r, _| r.used.clone()),
    column("RESERVED", 1, |r, _| r.reserved.clone()),
    column("LEFT", 0, |r, _| r.left.clone()),
    column("KIND", 1, |r, _| {
        let kind = if r.hard { "hard" } else { "soft" };
        kind.to_owned()
    }),
    column("FROM", 2, |r, _| r.from.to_string()),
    column("UNTIL", 1, |r, _| r.until.to_string()),
    column("RUNS OUT FROM", 3, |r, _| maybe(r.used_earliest.as_ref())),
    column("RUNS OUT BY", 9, |r, _| maybe(r.used_latest.as_ref())),
    column("ID", 0, |r, _| r.id.to_string()),
];

pub(super) const APPS: &[Column<AppView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("TITLE", 1, |r, _| dash(&r.title)),
    column("STATE", 0, |r, _| app_state(r.state).to_owned()),
    column("PORT", 0, |r, _| r.port.to_string()),
    column("OPENED AT", 1, |r, _| maybe(r.address_port)),
    column("PROBLEM", 2, |r, _| {
        let problem = r.problem.as_ref();
        problem.map_or_else(|| dash(""), |problem| problem.text.clone())
    }),
];

pub(super) const APP_SHARES: &[Column<AppShareView>] = &[
    column("WITH", 0, |r, _| {
        r.user.clone().unwrap_or_else(|| "project".to_owned())
    }),
    column("UNTIL", 0, |r, _| r.ends_at.to_string()),
    column("SINCE", 2, |r, _| r.created_at.to_string()),
    column("ID", 0, |r, _| r.id.to_string()),
];

fn app_state(state: AppState) -> &'static str {
    match state {
        AppState::Stopped => "stopped",
        AppState::Starting => "starting",
        AppState::Ready => "ready",
        AppState::Failed => "failed",
    }
}

pub(super) const FOLDERS: &[Column<FolderView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("OWNER", 1, |r, _| r.owner.name.clone()),
    column("RIGHT", 1, |r, _| {
        r.right
            .map_or_else(|| dash(""), |right| right.word().to_owned())
    }),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("SIZE", 0, |r, _| bytes(r.bytes.map(Bytes))),
    column("FILES", 1, |r, _| maybe(r.entries)),
    column("LIMIT", 2, |r, _| bytes(r.limit.map(Bytes))),
    column("COUNTED", 2, |r, _| maybe(r.counted_at.as_ref())),
    column("USED", 2, |r, _| maybe(r.used_at.as_ref())),
    column("PURGED", 1, |r, _| maybe(r.purge_at.as_ref())),
    column("VOLUME", 3, |r, _| maybe(r.volume.as_ref())),
    column("KIND", 3, |r, _| r.kind.word().to_owned()),
    column("CREATED", 3, |r, _| r.created_at.to_string()),
    column("ID", 2, |r, _| r.id.to_string()),
];

pub(super) const BIGGEST: &[Column<FolderView>] = &[
    column("OWNER", 0, |r, _| r.owner.name.clone()),
    column("NAME", 0, |r, _| r.name.to_string()),
    column("SIZE", 0, |r, _| bytes(r.bytes.map(Bytes))),
    column("FILES", 2, |r, _| maybe(r.entries)),
    column("USED", 0, |r, _| maybe(r.used_at.as_ref())),
    column("COUNTED", 1, |r, _| maybe(r.counted_at.as_ref())),
    column("STATE", 2, |r, _| r.state.word().to_owned()),
    column("VOLUME", 1, |r, _| maybe(r.volume.as_ref())),
    column("ID", 2, |r, _| r.id.to_string()),
];

pub(super) const FOLDER_SHARES: &[Column<FolderShareView>] = &[
    column("WITH", 0, |r, _| match (&r.user, &r.project) {
        (Some(user), _) => user.clone(),
        (None, Some(project)) => format!("project {project}"),
        (None, None) => dash(""),
    }),
    column("RIGHT", 0, |r, _| r.right.word().to_owned()),
    column("ACCEPTED", 1, |r, _| maybe(r.accepted_at.as_ref())),
    column("UNTIL", 0, |r, _| maybe(r.ends_at.as_ref())),
    column("BY", 2, |r, _| r.created_by.clone()),
    column("SINCE", 2, |r, _| r.created_at.to_string()),
    column("ID", 0, |r, _| r.id.to_string()),
];

pub(super) const SNAPSHOTS: &[Column<FolderSnapshotView>] = &[
    column("NUMBER", 0, |r, _| r.number.to_string()),
    column("MADE", 0, |r, _| r.created_at.to_string()),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("OF", 1, |r, _| r.origin.word().to_owned()),
    column("FROZEN", 1, |r, _| r.frozen.to_string()),
    column("SIZE", 1, |r, _| bytes(r.bytes.map(Bytes))),
    column("ENTRIES", 2, |r, _| {
        r.entries
            .map_or_else(|| dash(""), |count| count.to_string())
    }),
    column("BY", 2, |r, _| r.created_by.clone()),
];

pub(super) const FOLDER_SESSIONS: &[Column<FolderSessionView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("OWNER", 0, |r, _| r.owner.name.to_string()),
    column("ACCESS", 0, |r, _| {
        let word = if r.access.is_read_only() { "ro" } else { "rw" };
        word.to_owned()
    }),
    column("ALLOWED", 0, |r, _| r.allowed.to_string()),
    column("STUCK", 1, |r, _| r.stuck.to_string()),
];

pub(super) const FOLDER_INVITATIONS: &[Column<FolderInvitationView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("OWNER", 0, |r, _| r.owner.name.clone()),
    column("RIGHT", 0, |r, _| r.right.word().to_owned()),
    column("UNTIL", 1, |r, _| maybe(r.ends_at.as_ref())),
    column("BY", 2, |r, _| r.created_by.clone()),
    column("OFFERED", 1, |r, _| r.created_at.to_string()),
    column("ID", 0, |r, _| r.id.to_string()),
];

pub(super) const FOLDER_TRANSFERS: &[Column<FolderTransferView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("OWNER", 0, |r, _| r.owner.name.clone()),
    column("TO", 0, |r, _| match r.to.kind {
        FolderOwnerKind::User => r.to.name.clone(),
        FolderOwnerKind::Project => format!("project {}", r.to.name),
    }),
    column("SIZE", 1, |r, _| bytes(r.bytes.map(Bytes))),
    column("BY", 2, |r, _| r.created_by.clone()),
    column("OFFERED", 1, |r, _| r.created_at.to_string()),
    column("ID", 0, |r, _| r.folder.to_string()),
];

pub(super) const FOLDER_ENTRIES: &[Column<FolderEntryView>] = &[
    column("NAME", 0, |r, _| match r.kind {
        FolderEntryKind::Directory => format!("{}/", r.name),
        _ => r.name.clone(),
    }),
    column("SIZE", 0, |r, _| match r.kind {
        FolderEntryKind::File => bytes(Some(Bytes(r.size))),
        _ => "-".to_owned(),
    }),
    column("MODIFIED", 1, |r, _| r.modified_at.to_string()),
    column("KIND", 1, |r, _| r.kind.word().to_owned()),
    column("PATH", 9, |r, _| r.path.clone()),
];

pub(super) const FOUND_ENTRIES: &[Column<FolderEntryView>] = &[
    column("PATH", 0, |r, _| match r.kind {
        FolderEntryKind::Directory => format!("{}/", r.path),
        _ => r.path.clone(),
    }),
    column("SIZE", 0, |r, _| match r.kind {
        FolderEntryKind::File => bytes(Some(Bytes(r.size))),
        _ => "-".to_owned(),
    }),
    column("MODIFIED", 1, |r, _| r.modified_at.to_string()),
    column("KIND", 1, |r, _| r.kind.word().to_owned()),
];

pub(super) const SUBFOLDERS: &[Column<SubfolderUsageView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("SIZE", 0, |r, _| bytes(Some(Bytes(r.bytes)))),
    column("ENTRIES", 1, |r, _| r.entries.to_string()),
    column("PATH", 9, |r, _| r.path.clone()),
];

pub(super) const REMOVED_ENTRIES: &[Column<RemovedEntryView>] = &[
    column("PATH", 0, |r, _| r.path.clone()),
    column("KIND", 1, |r, _| r.kind.word().to_owned()),
    column("SIZE", 2, |r, _| bytes(Some(Bytes(r.size)))),
    column("REMOVED", 1, |r, _| r.removed_at.to_string()),
    column("PURGED", 2, |r, _| r.purge_at.to_string()),
    column("ID", 0, |r, _| r.id.to_string()),
];

pub(super) const STORAGE: &[Column<StorageView>] = &[
    column("OWNER", 0, |r, _| r.owner.name.clone()),
    column("USED", 0, |r, _| r.used.to_string()),
    column("LIMIT", 0, |r, _| r.limit.to_string()),
    column("PERCENT", 1, |r, _| r.percent.to_string()),
    column("LEVEL", 1, |r, _| r.level.word().to_owned()),
    column("HELD", 2, |r, _| r.enforcement.word().to_owned()),
    column("SEEN", 2, |r, _| maybe(r.at.as_ref())),
];

pub(super) const PRESETS: &[Column<PresetView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("SCOPE", 1, |r, _| match (&r.domain, &r.project) {
        (Some(domain), Some(project)) => format!("{domain}/{project}"),
        (Some(domain), None) => domain.clone(),
        (None, _) => "site".to_owned(),
    }),
    column("GROUP", 3, |r, _| maybe(r.group.as_ref())),
    column("CPU", 0, |r, _| maybe(r.resources.cpu.as_ref())),
    column("MEMORY", 0, |r, _| maybe(r.resources.memory.as_ref())),
    column("GPU", 0, |r, _| maybe(r.resources.gpu.as_ref())),
    column("MIG", 3, |r, _| maybe(r.resources.mig.as_ref())),
    column("TIME LIMIT", 2, |r, _| {
        r.max_runtime_seconds.map_or_else(|| dash(""), span)
    }),
    column("DEFAULT", 1, |r, _| match r.default {
        true => "yes".to_owned(),
        false => dash(""),
    }),
    column("TITLE", 3, |r, _| dash(&r.title)),
    column("SHM", 9, |r, _| maybe(r.resources.shm.as_ref())),
    column("DISK", 9, |r, _| maybe(r.resources.disk.as_ref())),
    column("GPU MEMORY", 9, |r, _| {
        maybe(r.resources.gpu_memory.as_ref())
    }),
    column("KOREAN", 9, |r, _| dash(&r.title_ko)),
    column("POSITION", 9, |r, _| r.position.to_string()),
    column("ID", 2, |r, _| r.id.to_string()),
];

pub(super) const COURSES: &[Column<CourseView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("PROJECT", 1, |r, _| r.project.clone()),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("FROM", 0, |r, _| r.from.to_string()),
    column("TO", 0, |r, _| r.to.to_string()),
    column("IMAGE", 2, |r, _| dash(&r.image)),
    column("PRESET", 2, |r, _| dash(&r.preset)),
    column("TIME LIMIT", 2, |r, _| {
        r.max_runtime_seconds.map_or_else(|| dash(""), span)
    }),
    column("TITLE", 3, |r, _| dash(&r.title)),
    column("RULES", 9, |r, _| dash(&r.rules)),
    column("TIME ZONE", 9, |r, _| r.time_zone.clone()),
    column("ID", 3, |r, _| r.id.to_string()),
];

pub(super) const COURSE_MEMBERS: &[Column<CourseMemberView>] = &[
    column("USER", 0, |r, _| r.user.name.to_string()),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("WHY", 1, |r, _| maybe(r.why.as_ref())),
    column("SINCE", 1, |r, _| maybe(r.since.as_ref())),
    column("ENDS", 2, |r, _| maybe(r.ends_at.as_ref())),
    column("SESSION", 3, |r, _| maybe(r.session.as_ref())),
];

pub(super) const ATTENDANCE: &[Column<AttendanceView>] = &[
    column("USER", 0, |r, _| r.user.name.to_string()),
    column("SESSIONS", 0, |r, _| r.sessions.to_string()),
    column("FIRST", 1, |r, _| maybe(r.first.as_ref())),
    column("LAST", 1, |r, _| maybe(r.last.as_ref())),
    column("RAN", 0, |r, _| span(r.seconds)),
];

pub(super) const RESOURCE_GROUPS: &[Column<ResourceGroupView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("NODES", 1, |r, _| {
        dash(
            &r.nodes
                .as_ref()
                .map_or(String::new(), |nodes| nodes.join(" ")),
        )
    }),
    column("ACCESS", 1, |r, _| match &r.access {
        _ if r.everybody => "everybody".to_owned(),
        None => "listed".to_owned(),
        Some(access) => {
            let lists = [&access.domains, &access.projects, &access.users];
            let names: Vec<&str> = lists.into_iter().flatten().map(String::as_str).collect();
            dash(&names.join(" "))
        }
    }),
    column("KINDS", 2, |r, _| {
        let kinds = r.kinds.iter().map(|kind| match kind {
            SessionKind::Interactive => "interactive",
            SessionKind::Batch => "batch",
        });
        kinds.collect::<Vec<_>>().join(" ")
    }),
    column("SPREADING", 3, |r, _| {
        r.spreading
            .map_or_else(|| dash(""), |how| how.word().to_owned())
    }),
    column("ORDER", 3, |r, _| {
        r.order
            .map_or_else(|| dash(""), |order| order.word().to_owned())
    }),
    column("BACKFILL", 3, |r, _| {
        r.backfill
            .map_or_else(|| dash(""), |mode| mode.word().to_owned())
    }),
    column("WINDOWS", 3, |r, _| {
        let windows = r.windows.iter().filter_map(|one| one.window().ok());
        let told: Vec<String> = windows.map(|window| window.to_string()).collect();
        dash(&told.join("; "))
    }),
    column("OVERCOMMIT", 3, |r, _| r.cpu_overcommit.to_string()),
    column("PREEMPTION", 3, |r, _| r.preemption.word().to_owned()),
    column("TITLE", 3, |r, _| dash(&r.title)),
    column("ID", 2, |r, _| r.id.to_string()),
];

pub(super) const RESERVATION_QUOTA: &[Column<ReservationQuotaView>] = &[
    column("GPU-HOURS", 0, |r, _| r.gpu_hours.clone()),
    column("DAYS", 0, |r, _| r.days.to_string()),
    column("USED", 0, |r, _| r.used.clone()),
    column("LEFT", 0, |r, _| r.left.clone()),
];

pub(super) const RESERVATIONS: &[Column<ReservationView>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("FOR", 1, |r, _| match (&r.project, &r.user) {
        (Some(project), _) => project.clone(),
        (None, Some(user)) => user.clone(),
        (None, None) => "maintenance".to_owned(),
    }),
    column("FROM", 0, |r, _| r.from.to_string()),
    column("TO", 0, |r, _| r.to.to_string()),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("GPU", 0, |r, _| r.resources.gpu.to_string()),
    column("CPU", 2, |r, _| r.resources.cpu.to_string()),
    column("MEMORY", 2, |r, _| r.resources.memory.to_string()),
    column("TIMES", 2, |r, _| r.times.len().to_string()),
    column("BY", 3, |r, _| maybe(r.asked_by.as_ref())),
    column("REASON", 3, |r, _| maybe(r.reason.as_ref())),
    column("BEFORE", 9, |r, _| r.before.word().to_owned()),
    column("ID", 3, |r, _| r.id.to_string()),
];

pub(super) const VOLUMES: &[Column<VolumeView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("USED", 0, |r, _| bytes(r.used.map(Bytes))),
    column("FREE", 0, |r, _| bytes(r.free.map(Bytes))),
    column("TOTAL", 2, |r, _| bytes(r.total.map(Bytes))),
    column("FOLDERS", 1, |r, _| r.folders.to_string()),
    column("LIMITS", 2, |r, _| r.enforcement.word().to_owned()),
    column("EACH", 2, |r, _| bytes(r.folder_limit.map(Bytes))),
    column("DIRECTORY", 1, |r, _| maybe(r.path.as_ref())),
    column("DOMAINS", 2, |r, _| dash(&r.domains.join(","))),
    column("PROJECTS", 2, |r, _| dash(&r.projects.join(","))),
    column("SEEN", 3, |r, _| r.seen_at.to_string()),
    column("ID", 3, |r, _| r.id.to_string()),
];

pub(super) const POOL: &[Column<PoolView>] = &[
    column("LIMITS", 0, |r, _| r.enforcement.word().to_owned()),
    column("SIZE", 0, |r, _| bytes(r.size.map(Bytes))),
    column("USED", 0, |r, _| bytes(r.used.map(Bytes))),
    column("PROMISED", 1, |r, _| bytes(r.promised.map(Bytes))),
    column("MOST", 1, |r, _| bytes(r.most.map(Bytes))),
    column("DISK", 2, |r, _| bytes(r.disk_total.map(Bytes))),
    column("FREE", 2, |r, _| bytes(r.disk_free.map(Bytes))),
];

pub(super) const SIGN_UPS: &[Column<SignUpView>] = &[
    column("ID", 0, |r, _| r.id.to_string()),
    column("NAME", 0, |r, _| r.name.clone()),
    column("EMAIL", 1, |r, _| r.email.clone()),
    column("FULL NAME", 2, |r, _| dash(&r.full_name)),
    column("DOMAIN", 2, |r, _| r.domain.clone()),
    column("ASKED", 1, |r, v| v.since(r.asked_at)),
    column("TAKEN", 3, |r, _| r.is_taken.to_string()),
    column("DECLINED", 3, |r, _| maybe(r.declined_at.as_ref())),
    column("FROM", 9, |r, _| r.source.clone()),
    column("NOTE", 9, |r, _| dash(&r.note)),
];

pub(super) const APPROVALS: &[Column<ApprovalView>] = &[
    column("ID", 0, |r, _| r.id.to_string()),
    column("ACT", 0, |r, _| r.act.clone()),
    column("OBJECT", 0, |r, _| dash(&r.object)),
    column("ASKED BY", 1, |r, _| r.asker.clone()),
    column("ASKED", 1, |r, v| v.ago(r.asked_at)),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("UNTIL", 2, |r, _| r.expires_at.to_string()),
    column("BY", 2, |r, _| maybe(r.decided_by.as_ref())),
    column("DETAIL", 3, |r, _| r.detail.clone()),
];

pub(super) const BREAK_GLASS: &[Column<BreakGlassView>] = &[
    column("ID", 0, |r, _| r.id.to_string()),
    column("KIND", 1, |r, _| r.kind.word().to_owned()),
    column("NAME", 0, |r, _| r.name.clone()),
    column("OWNER", 1, |r, _| r.owner.clone()),
    column("BY", 0, |r, _| r.actor.clone()),
    column("BEGAN", 1, |r, v| v.ago(r.began_at)),
    column("UNTIL", 1, |r, _| {
        r.ended_at.unwrap_or(r.ends_at).to_string()
    }),
    column("OPEN", 1, |r, _| r.ended_at.is_none().to_string()),
    column("REASON", 0, |r, _| r.reason.clone()),
];

pub(super) const SIGN_UP_RULES: &[Column<SignUpRuleView>] = &[
    column("DOMAIN", 0, |r, _| r.domain.clone()),
    column("ADDRESSES", 0, |r, _| maybe(r.addresses.as_ref())),
];

pub(super) const ANNOUNCEMENTS: &[Column<AnnouncementView>] = &[
    column("ID", 0, |r, _| r.id.to_string()),
    column("LEVEL", 1, |r, _| r.level.word().to_owned()),
    column("DOMAIN", 2, |r, _| maybe(r.domain.as_ref())),
    column("FROM", 3, |r, _| r.from.to_string()),
    column("UNTIL", 1, |r, _| maybe(r.until.as_ref())),
    column("TEXT", 0, |r, _| r.text.clone()),
    column("KOREAN", 9, |r, _| dash(&r.text_ko)),
    column("BEFORE SIGN-IN", 9, |r, _| r.before_sign_in.to_string()),
];

pub(super) const FAIR_SHARE: &[Column<FairShareItem>] = &[
    column("LEVEL", 0, |r, _| r.level.word().to_owned()),
    column("DOMAIN", 2, |r, _| dash(&r.domain)),
    column("PROJECT", 0, |r, _| dash(&r.project)),
    column("USER", 0, |r, _| dash(&r.user)),
    column("WEIGHT", 0, |r, _| r.weight.to_string()),
    column("HOLDS", 1, |r, _| format!("{:.1}%", r.share * 100.0)),
    column("USED", 1, |r, _| format!("{:.1}%", r.past * 100.0)),
    column("VALUE", 3, |r, _| format!("{:.4}", r.value)),
];

pub(super) const REHEARSED: &[Column<RehearsedUser>] = &[
    column("DOMAIN", 3, |r, _| dash(&r.domain)),
    column("PROJECT", 1, |r, _| dash(&r.project)),
    column("USER", 0, |r, _| dash(&r.user)),
    column("SESSIONS", 0, |r, _| r.sessions.to_string()),
    column("WAITED", 0, |r, _| span(r.present_waited_seconds)),
    column("TRIED", 0, |r, _| span(r.tried_waited_seconds)),
    column("CHANGE", 0, |r, _| match r.change_seconds {
        0 => "-".to_owned(),
        more @ 1.. => format!("+{}", span(more.unsigned_abs())),
        less => format!("-{}", span(less.unsigned_abs())),
    }),
    column("SHARE", 1, |r, _| {
        format!("{:.1}%", r.present_share * 100.0)
    }),
    column("TRIED SHARE", 1, |r, _| {
        format!("{:.1}%", r.tried_share * 100.0)
    }),
];

fn hours(seconds: f64) -> String {
    format!("{:.2}", seconds / 3600.0)
}

pub(super) const USAGE: &[Column<UsageItem>] = &[
    column("DOMAIN", 3, |r, _| dash(&r.domain)),
    column("PROJECT", 1, |r, _| dash(&r.project)),
    column("USER", 0, |r, _| dash(&r.user)),
    column("GPU HOURS", 0, |r, _| hours(r.used.gpu_seconds)),
    column("GPU BUSY", 1, |r, _| {
        maybe(r.gpu_busy.map(|part| format!("{:.0}%", part * 100.0)))
    }),
    column("CORE HOURS", 0, |r, _| hours(r.used.cpu_seconds)),
    column("GIB HOURS", 2, |r, _| {
        hours(r.used.memory_mib_seconds / 1024.0)
    }),
    column("SESSIONS", 2, |r, _| r.used.starts.to_string()),
    column("SESSION HOURS", 4, |r, _| hours(r.used.session_seconds)),
    column("WAITED HOURS", 4, |r, _| hours(r.used.waited_seconds)),
];

pub(super) const IMAGES: &[Column<CatalogImage>] = &[
    column("REFERENCE", 0, |r, _| dash(&r.reference)),
    column("SIZE", 2, |r, _| r.size.to_string()),
    column("IMPORTED", 3, |r, v| v.ago(r.imported_at)),
    column("ARCHITECTURE", 4, |r, _| dash(&r.architecture)),
    column("ID", 5, |r, _| r.id.to_string()),
    column("DIGEST", 9, |r, _| dash(&r.digest)),
    column("ENTRY POINT", 9, |r, _| dash(&r.entrypoint.join(" "))),
    column("COMMAND", 9, |r, _| dash(&r.command.join(" "))),
    column("USER", 9, |r, _| dash(&r.user)),
    column("DIRECTORY", 9, |r, _| dash(&r.working_directory)),
    column("LIMITS", 9, |r, _| dash(&r.limits.figures())),
    column("LABELS", 9, |r, _| labels(&r.labels)),
];

pub(super) const ENVIRONMENTS: &[Column<EnvironmentView>] = &[
    column("NAME", 0, |r, _| dash(&r.name)),
    column("VERSION", 0, |r, _| dash(&r.version)),
    column("NEWEST", 3, |r, _| {
        if r.newest { "yes" } else { "no" }.to_owned()
    }),
    column("SIGNED BY", 2, |r, _| {
        dash(r.signer.as_deref().unwrap_or_default())
    }),
    column("IMPORTED", 4, |r, v| v.ago(r.imported_at)),
    column("IMAGES", 1, |r, _| {
        let names: Vec<&str> = r.images.iter().map(|one| one.reference.as_str()).collect();
        dash(&names.join(" "))
    }),
    column("ABOUT", 9, |r, _| dash(&r.about)),
    column("DIGEST", 9, |r, _| dash(&r.digest)),
];

pub(super) const JOBS: &[Column<OperationView>] = &[
    column("ID", 0, |r, _| r.id.to_string()),
    column("KIND", 2, |r, _| dash(&r.kind)),
    column("STATE", 0, |r, _| r.state.word().to_owned()),
    column("STEP", 3, |r, _| dash(&r.step)),
    column("DONE", 1, |r, _| match r.total {
        0 => "-".to_owned(),
        total => format!("{} %", r.done.saturating_mul(100) / total),
    }),
    column("AGE", 2, |r, v| v.since(r.created_at)),
    column("TROUBLE", 4, |r, _| {
        maybe(r.refusal.as_ref().map(|refusal| &refusal.text))
    }),
];

pub(super) const USERS: &[Column<User>] = &[
    column("NAME", 0, |r, _| r.name.to_string()),
    column("FULL NAME", 3, |r, _| dash(&r.full_name)),
    column("EMAIL", 4, |r, _| maybe(r.email.as_ref())),
    column("ROLE", 1, |r, _| r.role.word().to_owned()),
    column("STATE", 2, |r, _| match r.suspended {
        true => "suspended".to_owned(),
        false => "active".to_owned(),
    }),
    column("SIGNED IN", 2, |r, v| {
        maybe(r.signed_in_at.map(|at| v.since(at)))
    }),
    column("SINCE", 3, |r, v| v.since(r.created_at)),
    column("ENDS", 9, |r, _| maybe(r.expires_at)),
    column("SECOND FACTOR", 9, |r, _| {
        if r.second_factor { "yes" } else { "no" }.to_owned()
    }),
    column("NETWORKS", 9, |r, _| dash(&r.networks.join(" "))),
    column("LANGUAGE", 9, |r, _| dash(&r.language)),
    column("TIME ZONE", 9, |r, _| dash(&r.time_zone)),
    column("ID", 9, |r, _| r.id.to_string()),
];

pub(super) const SIGN_INS: &[Column<SignInView>] = &[
    column("ADDRESS", 0, |r, _| r.source.clone()),
    column("BROWSER", 1, |r, _| dash(&r.browser)),
    column("SINCE", 2, |r, v| v.since(r.created_at)),
    column("LAST SEEN", 1, |r, v| v.since(r.used_at)),
    column("ID", 0, |r, _| r.id.to_string()),
];

pub(super) const SECOND_FACTORS: &[Column<SecondFactorView>] = &[
    column("ENABLED", 0, |r, _| {
        if r.enabled { "yes" } else { "no" }.to_owned()
    }),
    column("SINCE", 1, |r, _| maybe(r.since)),
    column("RECOVERY CODES", 1, |r, _| r.recovery_codes.to_string()),
];

pub(super) const ROSTERS: &[Column<RosterView>] = &[
    column("ID", 0, |r, _| r.id.to_string()),
    column("APPLIED", 0, |r, v| v.ago(r.applied_at)),
    column("BY", 2, |r, _| r.actor.clone()),
    column("CREATED", 1, |r, _| r.creates.to_string()),
    column("JOINED", 1, |r, _| r.joins.to_string()),
    column("CHANGED", 1, |r, _| r.changes.to_string()),
    column("SUSPENDED", 1, |r, _| r.suspended.to_string()),
    column("UNDONE", 1, |r, _| maybe(r.undone_at)),
];

pub(super) const ROSTER_ROWS: &[Column<RosterRow>] = &[
    column("LINE", 0, |r, _| r.line.to_string()),
    column("NAME", 0, |r, _| dash(&r.name)),
    column("RESULT", 0, |r, _| r.action.word().to_owned()),
    column("PROJECT", 2, |r, _| dash(&r.project)),
    column("ROLE", 3, |r, _| r.role.word().to_owned()),
    column("POLICY", 4, |r, _| dash(&r.policy)),
    column("EXPIRES", 4, |r, _| maybe(r.expires_at)),
    column("EMAIL", 5, |r, _| dash(&r.email)),
    column("FULL NAME", 4, |r, _| dash(&r.full_name)),
    column("FAULTS", 1, |r, _| {
        let told = r.faults.iter();
        let told = told.map(|fault| format!("{}: {}", fault.column, fault.refusal.text));
        dash(&told.collect::<Vec<_>>().join(" "))
    }),
];

pub(super) const SLIPS: &[Column<RosterSlip>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("FULL NAME", 1, |r, _| dash(&r.full_name)),
    column("PASSWORD", 0, |r, _| r.password.clone()),
];

pub(super) const DOMAINS: &[Column<DomainView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("TITLE", 2, |r, _| dash(&r.title)),
    column("USERS", 1, |r, _| r.users.to_string()),
    column("ID", 9, |r, _| r.id.to_string()),
];

pub(super) const PROJECTS: &[Column<ProjectView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("DOMAIN", 2, |r, _| r.domain.clone()),
    column("TITLE", 4, |r, _| dash(&r.title)),
    column("STATE", 3, |r, _| r.state.word().to_owned()),
    column("ROLE", 1, |r, _| maybe(r.role.map(GrantRole::word))),
    column("MEMBERS", 3, |r, _| r.members.to_string()),
    column("SESSIONS", 3, |r, _| r.live_sessions.to_string()),
    column("ID", 9, |r, _| r.id.to_string()),
];

pub(super) const MEMBERS: &[Column<MemberView>] = &[
    column("NAME", 0, |r, _| r.user.name.to_string()),
    column("ROLE", 1, |r, _| r.role.word().to_owned()),
    column("EXPIRES", 2, |r, _| maybe(r.expires_at)),
    column("ID", 9, |r, _| r.user.id.to_string()),
];

pub(super) const DEPARTURES: &[Column<DepartureView>] = &[
    column("NAME", 0, |r, _| r.user.name.to_string()),
    column("RUNNING", 0, |r, _| r.running.to_string()),
    column("WAITING", 0, |r, _| r.waiting.to_string()),
    column("SIGN-INS", 1, |r, _| r.sign_ins.to_string()),
    column("TOKENS", 1, |r, _| r.tokens.to_string()),
    column("INVITATIONS", 2, |r, _| r.invitations.to_string()),
    column("ROLES", 2, |r, _| r.roles.to_string()),
    column("KEYS", 2, |r, _| r.keys.to_string()),
    column("FOLDERS", 1, |r, _| r.folders.to_string()),
    column("OFFERED", 1, |r, _| r.offered.to_string()),
    column("RESERVATIONS", 2, |r, _| r.reservations.to_string()),
    column("IMAGES", 3, |r, _| r.images.to_string()),
    column("LEADS", 3, |r, _| dash(&r.leads.join(","))),
    column("REMOVED FROM", 1, |r, _| r.departs_at.to_string()),
];

pub(super) const POLICIES: &[Column<PolicyView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("LIMITS", 1, |r, _| {
        dash(&PolicyLimits::from(r.limits).told())
    }),
    column("SUDO", 9, |r, _| match r.sudo {
        true => "yes".to_owned(),
        false => "-".to_owned(),
    }),
    column("INNER DOOR", 9, |r, _| match r.no_inner_door {
        true => "closed".to_owned(),
        false => "-".to_owned(),
    }),
    column("TIME LIMIT", 9, |r, _| match r.require_limit {
        true => "needed".to_owned(),
        false => "-".to_owned(),
    }),
    column("ATTACHED TO", 1, |r, _| {
        let places = r.uses.iter();
        let places = places.map(|one| format!("{} {}", one.level.word(), one.name));
        let told: Vec<String> = places.map(|one| one.trim_end().to_owned()).collect();
        dash(&told.join(", "))
    }),
    column("ID", 9, |r, _| r.id.to_string()),
];

pub(super) const IDLE_RULES: &[Column<IdleRuleView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("OF", 0, |r, _| {
        let place = format!("{} {}", r.level.word(), r.subject);
        place.trim_end().to_owned()
    }),
    column("KIND", 1, |r, _| {
        r.kind.map_or_else(|| "-".to_owned(), format::kind)
    }),
    column("BELOW", 0, |r, _| below(r)),
    column("FOR", 0, |r, _| span(r.window_seconds)),
    column("THEN", 0, |r, _| r.action.word().to_owned()),
    column("GRACE", 2, |r, _| span(r.grace_seconds)),
    column("KEEP", 2, |r, _| {
        format!("{} × {}", r.extend_times, span(r.extend_seconds))
    }),
    column("EXEMPT", 2, |r, _| dash(&r.exempt)),
    column("ID", 9, |r, _| r.id.to_string()),
];

/// `gpu 5% and cpu 0.1`
fn below(rule: &IdleRuleView) -> String {
    let below = &rule.below;
    let all = [
        below.gpu_percent.map(|percent| format!("gpu {percent}%")),
        below.cpu.map(|cpu| format!("cpu {cpu}")),
        below.terminals.map(|count| format!("terminals {count}")),
        below.keys.map(|count| format!("keys {count}")),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    all.join(match rule.of {
        IdleMatch::All => " and ",
        IdleMatch::Any => " or ",
    })
}

pub(super) const IDLE_DRY_ENDS: &[Column<IdleDryEndView>] = &[
    column("SESSION", 0, |r, _| r.name.clone()),
    column("OWNER", 0, |r, _| r.owner.clone()),
    column("AT", 0, |r, _| r.at.to_string()),
    column("GPU", 0, |r, _| r.gpu.to_string()),
    column("GPU HOURS", 0, |r, _| format!("{:.1}", r.gpu_hours)),
    column("BUSY AGAIN", 0, |r, _| match r.busy_again {
        true => "within the hour".to_owned(),
        false => "-".to_owned(),
    }),
    column("ID", 9, |r, _| r.session.to_string()),
];

/// What stands in place of a limit where none holds.
pub(super) const UNLIMITED: &str = "no limit";

/// The name of a limit as the pages have it; its key where this program is older than the server.
fn limit_name(key: &str) -> String {
    let t = Text::default();
    let name = match key {
        "gpu_hours" => Some(t.budgets_one()),
        key => {
            let mut all = LimitKey::ALL.into_iter();
            let known = all.find(|known| known.word() == key);
            known.map(|known| codes::limit_name(t, known))
        }
    };
    name.unwrap_or(key).to_owned()
}

pub(super) const OVER_LIMITS: &[Column<OverLimitView>] = &[
    column("LEVEL", 0, |r, _| r.level.word().to_owned()),
    column("NAME", 0, |r, _| dash(&r.name)),
    column("USER", 0, |r, _| {
        dash(r.user.as_deref().unwrap_or_default())
    }),
    column("LIMIT", 0, |r, _| limit_name(&r.key)),
    column("USED", 0, |r, _| r.used_text.clone()),
    column("OF", 0, |r, _| r.limit_text.clone()),
];

pub(super) const LIMITS: &[Column<EffectiveLimitView>] = &[
    column("LIMIT", 0, |r, _| limit_name(&r.key)),
    column("USED", 0, |r, _| r.used_text.clone()),
    column("OF", 0, |r, _| r.limit_text.clone()),
    column("POLICY", 1, |r, _| dash(&r.policy)),
    column("LEVEL", 1, |r, _| match r.limit_text.as_str() {
        UNLIMITED => "-".to_owned(),
        _ => r.level.word().to_owned(),
    }),
    column("RAISED UNTIL", 2, |r, _| maybe(r.until.as_ref())),
];

pub(super) const INVITATIONS: &[Column<InvitationView>] = &[
    column("ID", 0, |r, _| r.id.to_string()),
    column("ROLE", 0, |r, _| r.role.word().to_owned()),
    column("EMAIL", 1, |r, _| maybe(r.email.as_ref())),
    column("USED", 1, |r, _| format!("{}/{}", r.used, r.max_uses)),
    column("EXPIRES", 0, |r, _| r.expires_at.to_string()),
    column("MEMBER UNTIL", 3, |r, _| maybe(r.member_until)),
    column("BY", 2, |r, _| r.actor.clone()),
];

pub(super) const GRANTS: &[Column<GrantView>] = &[
    column("ROLE", 0, |r, _| r.role.word().to_owned()),
    column("SCOPE", 1, |r, _| r.scope.clone()),
    column("DOMAIN", 2, |r, _| maybe(r.domain.as_ref())),
    column("PROJECT", 2, |r, _| maybe(r.project.as_ref())),
    column("EXPIRES", 3, |r, _| maybe(r.expires_at)),
];

pub(super) const TOKENS: &[Column<TokenView>] = &[
    column("NAME", 0, |r, _| dash(&r.name)),
    column("ID", 0, |r, _| r.id.to_string()),
    column("SCOPES", 3, |r, _| match r.scopes.is_empty() {
        true => "everything".to_owned(),
        false => r.scopes.join(" "),
    }),
    column("NETWORKS", 3, |r, _| dash(&r.networks.join(" "))),
    column("EXPIRES", 1, |r, _| maybe(r.expires_at)),
    column("LAST USED", 2, |r, _| maybe(r.used_at)),
];

pub(super) const ACCESS_KEYS: &[Column<AccessKeyView>] = &[
    column("NAME", 0, |r, _| dash(&r.name)),
    column("KEY", 0, |r, _| r.key.clone()),
    column("ID", 0, |r, _| r.id.to_string()),
    column("SCOPES", 3, |r, _| r.scopes.join(" ")),
    column("NETWORKS", 3, |r, _| dash(&r.networks.join(" "))),
    column("EXPIRES", 1, |r, _| maybe(r.expires_at)),
    column("LAST USED", 2, |r, _| maybe(r.used_at)),
];

pub(super) const SSH_KEYS: &[Column<SshKeyView>] = &[
    column("NAME", 0, |r, _| dash(&r.name)),
    column("FINGERPRINT", 0, |r, _| r.fingerprint.clone()),
    column("ID", 0, |r, _| r.id.to_string()),
    column("KIND", 2, |r, _| r.kind.clone()),
    column("BITS", 3, |r, _| r.bits.to_string()),
    column("EXPIRES", 1, |r, _| maybe(r.expires_at)),
    column("LAST USED", 2, |r, _| maybe(r.used_at)),
];

pub(super) const CONNECTIONS: &[Column<ConnectionView>] = &[
    column("HOST", 0, |r, _| format!("{}:{}", r.host, r.port)),
    column("OUTCOME", 0, |r, _| r.outcome.clone()),
    column("TIMES", 1, |r, _| r.count.to_string()),
    column("SENT", 1, |r, _| Bytes(r.sent).to_string()),
    column("RECEIVED", 1, |r, _| Bytes(r.received).to_string()),
    column("LAST", 0, |r, _| r.last_at.to_string()),
    column("FIRST", 9, |r, _| r.first_at.to_string()),
    column("START", 9, |r, _| r.incarnation.to_string()),
];

pub(super) const DOTFILES: &[Column<DotfileView>] = &[
    column("PATH", 0, |r, _| r.path.clone()),
    column("MODE", 0, |r, _| r.mode.clone()),
    column("BYTES", 0, |r, _| r.bytes.to_string()),
    column("CHANGED", 1, |r, _| r.changed_at.to_string()),
];

pub(super) const VARIABLES: &[Column<OwnVariableView>] = &[
    column("NAME", 0, |r, _| r.name.clone()),
    column("CHANGED", 0, |r, _| r.changed_at.to_string()),
];

pub(super) const SAMPLES: &[Column<UsageSample>] = &[
    column("AT", 0, |r, _| r.at.to_string()),
    column("CPU %", 0, |r, _| percent(Some(r.cpu_percent_of_limit))),
    column("CPU WAIT %", 1, |r, _| percent(r.cpu_waiting_percent)),
    column("MEMORY", 0, |r, _| r.memory.to_string()),
    column("MEMORY WAIT %", 1, |r, _| percent(r.memory_waiting_percent)),
    column("GPU %", 2, |r, _| {
        made_up(r, percent(r.gpu.and_then(|gpu| gpu.load_percent)))
    }),
    column("GPU MEMORY", 2, |r, _| {
        made_up(r, bytes(r.gpu.and_then(|gpu| gpu.memory)))
    }),
];

/// Marks a figure of a device that does not exist.
fn made_up(sample: &UsageSample, figure: String) -> String {
    match sample.gpu.is_some_and(|gpu| gpu.simulated) {
        true => format!("{figure} (simulated)"),
        false => figure,
    }
}

fn percent(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |percent| format!("{percent:.1}"))
}

pub(super) const STATEMENT: &[Column<StatementItem>] = &[
    column("PART", 4, |r, _| r.part.clone()),
    column("DOMAIN", 3, |r, _| dash(&r.domain)),
    column("PROJECT", 1, |r, _| dash(&r.project)),
    column("USER", 0, |r, _| dash(&r.user)),
    column("GPU HOURS", 0, |r, _| r.used.gpu_hours()),
    column("CORE HOURS", 0, |r, _| r.used.core_hours()),
    column("GIB HOURS", 2, |r, _| r.used.memory_gib_hours()),
    column("AMOUNT", 2, |r, _| match r.used.amount_micros {
        0 => "-".to_owned(),
        _ => r.used.amount(),
    }),
    column("GPU UNITS", 9, |r, _| r.used.gpu_units.to_string()),
    column("CORE UNITS", 9, |r, _| r.used.core_units.to_string()),
    column("MEMORY UNITS", 9, |r, _| r.used.memory_units.to_string()),
];

pub(super) const MONTHS: &[Column<ClosedMonthView>] = &[
    column("MONTH", 0, |r, _| r.month.clone()),
    column("CLOSED", 1, |r, _| r.closed_at.to_string()),
    column("TIME ZONE", 2, |r, _| r.time_zone.clone()),
    column("CURRENCY", 3, |r, _| dash(&r.currency)),
    column("FROM", 4, |r, _| r.from.to_string()),
    column("UNTIL", 4, |r, _| r.until.to_string()),
];

pub(super) const MONTH_CHECKS: &[Column<MonthCheckView>] = &[
    column("MONTH", 0, |r, _| r.month.clone()),
    column("LINES", 1, |r, _| r.lines.to_string()),
    column("STATE", 0, |r, _| match r.whole {
        true => "whole".to_owned(),
        false => format!("broken: {}", r.code),
    }),
    column("WHAT", 2, |r, _| dash(&r.text)),
];

pub(super) const PRICES: &[Column<PricesView>] = &[
    column("CURRENCY", 0, |r, _| dash(&r.currency)),
    column("GPU HOUR", 0, |r, _| r.gpu_hour.clone()),
    column("CORE HOUR", 0, |r, _| r.core_hour.clone()),
    column("GIB HOUR", 0, |r, _| r.gib_hour.clone()),
];
