//! `/system`: how the machine is, what is set and from where, its backups, and the file for those who
//! helps. For administrators; everybody else gets what `server::actions` says.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusal::Refusal;
use rules::refusal::RefusalKind;
use rules::units::Timestamp;
use server::Failure;
use server::access::Caller;
use server::actions::backups::{self, BackupStanding};
use server::actions::system::{self, BundleMember, Diagnostic};

use super::authentication::PageCaller;
use super::components::{self, Alert};
use super::layout::{Attribute, Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::download;
use crate::doors::text::{Text, codes};

/// Which part is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemTab {
    Checks,
    Settings,
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
    pub settings: Vec<Setting>,
    pub backups: BackupOverview,
    pub members: Vec<BundleFileRow>,
}

/// What was looked at, by how it came out.
#[derive(Default)]
pub struct Checks {
    pub unwell: Vec<SystemCheckRow>,
    pub well: Vec<SystemCheckRow>,
    pub summary: String,
}

/// One check.
pub struct SystemCheckRow {
    pub id: String,
    /// What it looks at and how to mend it, in the reader's language where that is not English.
    pub told: Option<(&'static str, &'static str)>,
    pub icon: &'static str,
    pub tone: &'static str,
    pub found: String,
    pub fix: String,
}

/// One setting.
pub struct Setting {
    pub key: String,
    pub about: String,
    pub value: String,
    pub default: String,
    pub source: String,
    pub variable: String,
    /// What a source says by now and waits for a restart; empty where nothing does.
    pub waiting: String,
    pub changed: bool,
}

/// The backups that the server makes by itself.
#[derive(Default)]
pub struct BackupOverview {
    /// Where they go; none while the server makes none.
    pub directory: Option<String>,
    /// Newest first.
    pub files: Vec<BackupLine>,
    /// How often, how many are kept, and when the next is due.
    pub plan: String,
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

/// `GET /system/checks`
pub async fn checks(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let mut page = empty(&console, &visit, &caller, SystemTab::Checks);
    match system::diagnose(&console.server, &caller).await {
        Ok(found) => page.checks = sorted(visit.text, found),
        Err(failure) => match unavailable(&visit, &failure) {
            Some(alert) => page.alert = Some(alert),
            None => return failed(&console, &visit, &caller, &failure),
        },
    }
    responses::page(&console, &visit, StatusCode::OK, &page)
}

/// `GET /system/settings`
pub async fn settings(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match system::settings(&console.server, &caller).await {
        Ok(standings) => {
            let t = visit.text;
            let settings = standings
                .iter()
                .filter_map(|standing| Some(setting(t, &serde_json::to_value(standing).ok()?)))
                .collect();
            let page = SystemPage {
                settings,
                ..empty(&console, &visit, &caller, SystemTab::Settings)
            };
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
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
    match backups::make(&console.server, &caller).await {
        Ok(made) => responses::see_with("/system/backups", "backup", &made.name),
        Err(Failure::Refusal(refusal))
            if refusal.code.starts_with(rules::codes::family::BACKUP) =>
        {
            let alert = Alert::bad(codes::refusal(visit.text, &refusal)).code(refusal.code.clone());
            let status = responses::status(&refusal);
            with_backups(&console, &visit, &caller, status, Some(alert)).await
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
            .detail(codes::refusal(visit.text, &refusal))
            .code(failure.code.clone()),
    )
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
        plan: t.backups_plan(
            u64::from(standing.every_hours),
            u64::from(standing.keep),
            match standing.due_at.filter(|due| *due > now) {
                Some(due) => visit.clock.near(due, now),
                None => t.common_now().to_owned(),
            },
        ),
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
        settings: Vec::new(),
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

pub(super) fn sorted(t: Text, found: Vec<Diagnostic>) -> Checks {
    let count = |state: &str| found.iter().filter(|check| check.state == state).count() as u64;
    let summary = t.system_summary(count("ok"), count("warn"), count("fail"));
    let (well, unwell): (Vec<SystemCheckRow>, Vec<SystemCheckRow>) = found
        .into_iter()
        .map(|check| SystemCheckRow {
            icon: match check.state.as_str() {
                "ok" => "circle-check",
                "warn" => "triangle-alert",
                _ => "circle-x",
            },
            tone: match check.state.as_str() {
                "ok" => "ok",
                "warn" => "warn",
                _ => "bad",
            },
            told: codes::check(t, &check.id, &check.found),
            id: check.id,
            found: check.found,
            fix: check.fix,
        })
        .partition(|line| line.tone == "ok");
    Checks {
        unwell,
        well,
        summary,
    }
}

fn setting(t: Text, standing: &serde_json::Value) -> Setting {
    let word = |value: &serde_json::Value| match value {
        serde_json::Value::Null => t.system_unset().to_owned(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let plain = |name: &str| word(&standing[name]);
    Setting {
        key: plain("key"),
        about: plain("about"),
        value: plain("value"),
        default: plain("default"),
        source: source(t, &standing["source"]),
        variable: plain("variable"),
        waiting: match &standing["waiting"] {
            serde_json::Value::Null => String::new(),
            waiting => t.system_waits(word(&waiting["value"])),
        },
        changed: standing["value"] != standing["default"],
    }
}

/// Where a value comes from: `default`, or an object that names file, variable or flag.
fn source(t: Text, source: &serde_json::Value) -> String {
    match source {
        serde_json::Value::String(word) if word == "default" || word == "built-in" => {
            t.system_built_in().to_owned()
        }
        serde_json::Value::String(word) => word.clone(),
        serde_json::Value::Object(parts) => parts
            .values()
            .filter_map(|part| match part {
                serde_json::Value::String(text) => Some(text.clone()),
                serde_json::Value::Number(number) => Some(number.to_string()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join(":"),
        other => other.to_string(),
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
