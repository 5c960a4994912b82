//! `/system`: how the machine is, its backups, and the file for those who help. For administrators; everybody else gets what `server::actions` says.

use api::mail::MailTestBody;
use api::secret::SecretText;
use askama::Template;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusal::Refusal;
use rules::refusal::RefusalKind;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::attention::AttentionList;
use server::actions::backups::{self, BackupSchedule, BackupStanding};
use server::actions::system::{self, BundleMember};
use server::actions::{mail, settings};

use super::attention::{self, AttentionRow};
use super::authentication::PageCaller;
use super::components::{self, Alert};
use super::form_faults::RefusedForm;
use super::layout::{Attribute, Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::download;
use crate::doors::text::{Text, codes};

/// Which part is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemTab {
    Checks,
    Backups,
    Support,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/system.html")]
pub struct SystemPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub tab: SystemTab,
    pub checks: Checks,
    pub backups: BackupOverview,
    pub members: Vec<BundleFileRow>,
}

/// What was looked at, by how it came out.
#[derive(Default)]
pub struct Checks {
    /// What has failed first.
    pub unwell: Vec<AttentionRow>,
    /// What passed, by subject.
    pub well: Vec<CheckGroup>,
    pub passed: usize,
    pub summary: String,
    /// When the machine was looked at; empty where it never was.
    pub made: String,
}

/// Checks of one subject that passed.
pub struct CheckGroup {
    pub title: &'static str,
    pub rows: Vec<AttentionRow>,
}

/// The backups of the server.
#[derive(Default)]
pub struct BackupOverview {
    /// Where they go; none while the server makes none.
    pub directory: Option<String>,
    /// The server makes some without being asked.
    pub is_scheduled: bool,
    /// Newest first.
    pub files: Vec<BackupLine>,
    /// How often, how many are kept, and when the next is due.
    pub plan: String,
    pub form: BackupFields,
}

/// What the form of backups shows.
#[derive(Default)]
pub struct BackupFields {
    pub directory: String,
    pub every_hours: u32,
    pub keep: u32,
    /// One is set; the form may leave it.
    pub has_passphrase: bool,
    /// Why the one that is set cannot be read; empty where it can.
    pub passphrase_fault: String,
    /// Shown at once: nothing is scheduled yet, something typed was refused, or no passphrase can be read.
    pub open: bool,
}

/// One backup.
pub struct BackupLine {
    pub name: String,
    pub made: String,
    pub size: String,
}

/// One file of a bundle.
pub struct BundleFileRow {
    pub name: String,
    pub size: String,
    pub redacted: String,
    pub text: String,
}

/// Characters of one file that the page shows; the bundle holds all of it.
const SHOWN: usize = 20_000;

impl SystemPage {
    /// What the open part is called, in its tab too.
    fn title(&self) -> &'static str {
        match self.tab {
            SystemTab::Checks => self.t.system_checks(),
            SystemTab::Backups => self.t.backups_title(),
            SystemTab::Support => self.t.system_support(),
        }
    }

    fn current(&self, tab: SystemTab) -> Attribute {
        Attribute(if self.tab == tab {
            " aria-current=\"page\""
        } else {
            ""
        })
    }
}

/// `GET /system`
pub async fn first() -> Response {
    responses::see("/system/checks")
}

/// Checks younger than this many milliseconds are shown again, with their age. Longer: a fault is seen later. Shorter:
/// reading back and forth runs the programs of the checks each time.
const CHECKS_KEPT_MILLISECONDS: u64 = 60_000;

/// `GET /system/checks`: the newest checks with their age; made now where there are none of the last minute.
pub async fn checks(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let made = system::diagnose_within(&console.server, &caller, CHECKS_KEPT_MILLISECONDS).await;
    with_checks(&console, &visit, &caller, made.err()).await
}

/// `POST /system/checks`: makes them now.
pub async fn check_again(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match system::diagnose(&console.server, &caller).await {
        Ok(_) => responses::see("/system/checks"),
        Err(failure) => with_checks(&console, &visit, &caller, Some(failure)).await,
    }
}

/// The newest checks there are; `failure` is why there are no newer ones.
async fn with_checks(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: Option<Failure>,
) -> Response {
    let server = &console.server;
    let mut page = empty(console, visit, caller, SystemTab::Checks);
    if let Some(failure) = failure {
        match unavailable(visit, &failure) {
            Some(alert) => page.alert = Some(alert),
            None => return failed(console, visit, caller, &failure),
        }
    }
    let all = match server::actions::attention::attention(server, caller).await {
        Ok(all) => all,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    page.checks = sorted(visit.text, &all);
    page.checks.made = made(visit, all.diagnosed_at, server.clock().now());
    page.f.attention = server::actions::attention::count(server, caller);
    responses::page(console, visit, StatusCode::OK, &page)
}

/// When checks were made, with the time for a page that stays open.
fn made(visit: &RequestContext, at: Option<Timestamp>, now: Timestamp) -> String {
    let Some(at) = at else {
        return String::new();
    };
    let (time, age) = (visit.clock.second(at), visit.clock.ago(at, now));
    visit.text.system_made(time, age)
}

/// `POST /system/settings/reload`
pub async fn reload(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match system::reload_settings(&console.server, &caller).await {
        Ok(done) => {
            let changed = done.changed.join(", ");
            let word = if changed.is_empty() {
                "settings-same"
            } else {
                "settings"
            };
            responses::see_with("/system/settings", word, &changed)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /system/settings/test`: asks the directory and the identity provider.
pub async fn try_sources(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let tried = match settings::try_sign_in_sources(&console.server, &caller).await {
        Ok(tried) => tried.items,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let wrong: Vec<String> = tried
        .iter()
        .filter(|one| !one.works)
        .map(|one| {
            format!(
                "{}: {}",
                one.source,
                codes::stored(visit.text, &one.problem)
            )
        })
        .collect();
    let all: Vec<&str> = tried.iter().map(|one| one.source.as_str()).collect();
    let (word, of) = match (tried.is_empty(), wrong.is_empty()) {
        (true, _) => ("sources-none", String::new()),
        (false, true) => ("sources-work", all.join(", ")),
        (false, false) => ("sources-fail", wrong.join("; ")),
    };
    responses::see_with("/system/settings", word, &of)
}

/// Whom a test mail goes to.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TestMailForm {
    address: String,
}

/// `POST /system/settings/mail-test`: sends one mail, and says what the mail server answered.
pub async fn try_mail(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(form): Form<TestMailForm>,
) -> Response {
    let asked = MailTestBody {
        address: form.address,
    };
    let (word, said) = match mail::test(&console.server, &caller, asked).await {
        Ok(trial) if trial.works => ("mail-works", trial.answer),
        Ok(trial) => ("mail-fails", codes::stored(visit.text, &trial.problem)),
        Err(Failure::Refusal(refusal)) if is_of_mail(&refusal) => {
            ("mail-fails", codes::refusal(visit.text, &refusal))
        }
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    responses::see_part_with("/system/settings", "mail-trial", word, &said)
}

/// `POST /system/settings/mail-retry`: sends again what the mail server refused for good.
pub async fn retry_mail(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match mail::retry(&console.server, &caller).await {
        Ok(_) => responses::see_part_with("/system/settings", "mail-trial", "mail-retried", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// Whether a refusal says what is wrong with the address or the settings; any other is a page of its own.
fn is_of_mail(refusal: &Refusal) -> bool {
    refusal.pointer.is_some() || refusal.code == rules::codes::MAIL_UNSET
}

/// `GET /system/backups`
pub async fn backups(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    with_backups(&console, &visit, &caller, StatusCode::OK, None).await
}

/// `POST /system/backups`: makes one now; answers when it was verified.
pub async fn back_up(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    back_up_now(&console, &visit, &caller).await
}

async fn back_up_now(console: &PagesContext, visit: &RequestContext, caller: &Caller) -> Response {
    match backups::make(&console.server, caller).await {
        Ok(made) => responses::see_with("/system/backups", "backup", &made.name),
        Err(Failure::Refusal(refusal))
            if refusal.code.starts_with(rules::codes::family::BACKUP) =>
        {
            let alert = Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
            let status = responses::status(&refusal);
            with_backups(console, visit, caller, status, Some(alert)).await
        }
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

/// What was typed in the form of backups. Passphrases are never sent back.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ScheduleForm {
    /// `once` makes one backup and schedules none, `off` ends the schedule; saves the schedule for anything else.
    act: String,
    directory: String,
    every_hours: String,
    keep: String,
    passphrase: String,
    again: String,
}

const SCHEDULE: &str = "/system/backups/schedule";
/// What the form offers while no backup is scheduled.
const USUAL_HOURS: u32 = 24;

impl ScheduleForm {
    /// What is asked for with these texts.
    fn wanted(&self) -> BackupSchedule {
        BackupSchedule {
            directory: self.directory.clone(),
            every_hours: (self.act != "once").then(|| self.every_hours.clone()),
            keep: self.keep.clone(),
            passphrase: SecretText::new(self.passphrase.as_str()),
        }
    }

    /// What the form shows again after a refusal.
    fn kept(&self) -> [(&'static str, &str); 3] {
        [
            ("directory", self.directory.as_str()),
            ("every_hours", self.every_hours.as_str()),
            ("keep", self.keep.as_str()),
        ]
    }
}

/// `POST /system/backups/schedule`: where backups go, how often, how many are kept, and their passphrase; one backup
/// without a schedule; or the end of the schedule.
pub async fn schedule(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(typed): Form<ScheduleForm>,
) -> Response {
    let server = &console.server;
    let done = match (typed.act.as_str(), typed.passphrase == typed.again) {
        ("off", _) => backups::unschedule(server, &caller).await,
        (_, true) => backups::schedule(server, &caller, typed.wanted()).await,
        (_, false) => Err(refusals::backup_passphrases_differ().at("/again").into()),
    };
    match done {
        Ok(()) => match typed.act.as_str() {
            "once" => back_up_now(&console, &visit, &caller).await,
            "off" => responses::see_with("/system/backups", "backup-schedule-off", ""),
            _ => responses::see_with("/system/backups", "backup-schedule", ""),
        },
        Err(Failure::Refusal(refusal)) if refusal.pointer.is_some() => {
            let form = RefusedForm::new(visit.text, SCHEDULE, &refusal).with(typed.kept());
            let visit = visit.refusing(form);
            let status = responses::status(&refusal);
            with_backups(&console, &visit, &caller, status, None).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /system/backups/{name}`: one backup as a download.
pub async fn backup_file(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(name): Path<String>,
) -> Response {
    match backups::take(&console.server, &caller, name).await {
        Ok((found, open)) => {
            let lease = server::access::lease(&console.server, &caller);
            let kind = "application/octet-stream";
            download::file(&found.name, kind, found.size.0, open, lease)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn with_backups(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
    alert: Option<Alert>,
) -> Response {
    match backups::standing(&console.server, caller).await {
        Ok(standing) => {
            let page = SystemPage {
                alert: alert.or_else(|| past_failure(visit, &standing)),
                backups: backups_of(visit, &standing, console.server.clock().now()),
                ..empty(console, visit, caller, SystemTab::Backups)
            };
            responses::page(console, visit, status, &page)
        }
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

/// Why there is no newer backup, where the last try failed.
fn past_failure(visit: &RequestContext, standing: &BackupStanding) -> Option<Alert> {
    let failure = standing.failure.as_ref()?;
    let refusal = Refusal::from_parts(
        RefusalKind::Unavailable,
        failure.code.clone(),
        failure.text.clone(),
        failure.hint.clone(),
    );
    let title = visit.text.backups_failed(visit.clock.date(failure.at));
    Some(
        Alert::bad(title)
            .detail(told_fault(visit.text, &refusal))
            .code(failure.code.clone()),
    )
}

/// Why no backup can be made, as the page says it that has the fields of the passphrase.
fn told_fault(t: Text, fault: &Refusal) -> String {
    match fault.code.as_str() {
        rules::codes::BACKUP_PASSPHRASE_UNREADABLE => {
            t.backups_passphrase_unreadable(fault.text.as_str())
        }
        _ => codes::refusal(t, fault),
    }
}

fn backups_of(visit: &RequestContext, standing: &BackupStanding, now: Timestamp) -> BackupOverview {
    let t = visit.text;
    BackupOverview {
        directory: standing
            .directory
            .as_ref()
            .map(|directory| directory.display().to_string()),
        files: standing
            .files
            .iter()
            .map(|file| BackupLine {
                name: file.name.clone(),
                made: visit.clock.date(file.made_at),
                size: components::size(file.size.0),
            })
            .collect(),
        is_scheduled: standing.due_at.is_some(),
        plan: match standing.due_at {
            None => t.backups_plan_off(u64::from(standing.keep)),
            Some(_) if standing.passphrase_fault.is_some() => t.backups_plan_fails().to_owned(),
            Some(due) => t.backups_plan(
                u64::from(standing.every_hours),
                u64::from(standing.keep),
                match due > now {
                    true => visit.clock.near(due, now),
                    false => t.backups_due_now().to_owned(),
                },
            ),
        },
        form: BackupFields {
            directory: match &standing.directory {
                Some(directory) => directory.display().to_string(),
                None => standing.usual_directory.display().to_string(),
            },
            every_hours: match standing.every_hours {
                0 => USUAL_HOURS,
                hours => hours,
            },
            keep: standing.keep,
            has_passphrase: standing.has_passphrase,
            passphrase_fault: standing
                .passphrase_fault
                .as_ref()
                .map_or_else(String::new, |fault| told_fault(t, fault)),
            open: standing.directory.is_none()
                || standing.passphrase_fault.is_some()
                || visit.refused.is_some(),
        },
    }
}

/// `GET /system/support`: what a bundle would hold.
pub async fn support(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let mut page = empty(&console, &visit, &caller, SystemTab::Support);
    match system::preview_bundle(&console.server, &caller).await {
        Ok(members) => {
            page.members = members.into_iter().map(|m| member(visit.text, m)).collect();
        }
        Err(failure) => match unavailable(&visit, &failure) {
            Some(alert) => page.alert = Some(alert),
            None => return failed(&console, &visit, &caller, &failure),
        },
    }
    responses::page(&console, &visit, StatusCode::OK, &page)
}

/// `POST /system/support`: the bundle as a download.
pub async fn bundle(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match system::support_bundle(&console.server, &caller).await {
        Ok(bytes) => download::bytes("fardel-support.tar.gz", "application/gzip", bytes),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn empty(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    tab: SystemTab,
) -> SystemPage {
    SystemPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::System),
        alert: None,
        tab,
        checks: Checks::default(),
        backups: BackupOverview::default(),
        members: Vec::new(),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::System);
    responses::failure(console, visit, Some(frame), failure)
}

/// A server that cannot look now still shows its page, with why on top.
fn unavailable(visit: &RequestContext, failure: &Failure) -> Option<Alert> {
    match failure {
        Failure::Refusal(refusal) if refusal.code == rules::codes::DIAGNOSTICS_UNAVAILABLE => {
            Some(Alert::warning(codes::refusal(visit.text, refusal)).code(refusal.code.clone()))
        }
        _ => None,
    }
}

/// What needs attention, and what passed, by subject.
pub(super) fn sorted(t: Text, all: &AttentionList) -> Checks {
    let mut well: Vec<CheckGroup> = Vec::new();
    for check in &all.passed {
        let title = subject(t, &check.id);
        let row = attention::check(t, check);
        match well.iter_mut().find(|group| group.title == title) {
            Some(group) => group.rows.push(row),
            None => well.push(CheckGroup {
                title,
                rows: vec![row],
            }),
        }
    }
    Checks {
        unwell: attention::rows(t, all),
        passed: all.passed.len(),
        summary: attention::summary(t, all),
        made: String::new(),
        well,
    }
}

/// What a check is of.
fn subject(t: Text, id: &str) -> &'static str {
    match id {
        "accelerators" | "gpu" | "fences" => t.nav_gpus(),
        "address" | "host-name" | "port" | "port-apps" | "port-http" | "port-ssh" => {
            t.system_group_network()
        }
        "clock" | "clock-and-state" | "time-sync" | "randomness" => t.system_group_time(),
        "killed-for-memory" | "memory-pressure" | "overcommit" | "swap" => t.plan_memory(),
        "backup-disk" | "backups" | "catalog" | "catalog-log" | "catalog-sound" | "continuity"
        | "disk" | "disk-faults" | "findings" | "inodes" | "run-directory" | "schema"
        | "settings-file" | "state" | "state-disk" | "state-mount" | "state-owner" => {
            t.system_group_storage()
        }
        _ => t.system_group_system(),
    }
}

fn member(t: Text, member: BundleMember) -> BundleFileRow {
    let cut = member
        .text
        .char_indices()
        .nth(SHOWN)
        .map_or(member.text.len(), |(at, _)| at);
    let mut text = member.text;
    let whole = text.len() == cut;
    text.truncate(cut);
    if !whole {
        text.push_str("\n…");
    }
    BundleFileRow {
        size: components::size(member.bytes),
        redacted: match member.redacted {
            0 => String::new(),
            n => t.system_redacted(n),
        },
        name: member.name,
        text,
    }
}
