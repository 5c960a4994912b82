//! Pages at counts that a fresh machine does not have: statements of one to five hundred lines, trials, findings of the
//! storage, registries, and a sign-in by SAML that failed. Made by the presenters of the pages. Never needs a server.

use api::fair_share::{FairShareItem, FairShareView};
use api::idle_rules::{IdleDryEndView, IdleDryRunView};
use api::queue_rehearsal::{QueueRehearsal, RehearsalFigures, RehearsedRules, RehearsedUser};
use api::statements::{ClosedMonthView, StatementAmounts, StatementItem, StatementView};
use askama::Template as _;
use axum::http::{Extensions, HeaderMap};
use rules::fair_share::QueueOrder;
use rules::names::SessionId;
use rules::notice::Notice;
use rules::policy::BackfillMode;
use rules::quota::TenantLevel;
use rules::units::{GpuShare, Timestamp};
use rules::{notices, refusals};
use server::actions::attention::{AttentionItem, AttentionList};
use server::actions::diagnostic_check::DiagnosticCheck;
use server::actions::statements::NextMonth;
use server::actions::usage::UsageMonth;

use super::super::attention;
use super::super::components::Alert;
use super::super::fair_share::{self, ShownFairShare, TypedFairShare};
use super::super::idle_rules::{self, IdleRulesPage, TypedRule};
use super::super::images::ImagesPage;
use super::super::layout::Nav;
use super::super::login::{LoginPage, ProviderLink};
use super::super::request_context::{LocalClock, RequestContext};
use super::super::statements::{self, PriceForm, ReadStatements, StatementsPage};
use super::super::system::{Checks, SystemPage, SystemTab};
use super::sample;
use crate::doors::text::{Text, codes};

/// 09:00 on 30 November 2026.
const NOW: Timestamp = Timestamp::from_millis(1_796_029_200_000);
/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;
const ZONE: &str = "Asia/Seoul";

/// Every page with a name for its file.
pub(super) fn pages(t: Text) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for lines in [1, 50, 500] {
        let page = statement(t, lines).render();
        all.push((format!("statements-{lines}"), page));
        let page = fair_trial(t, lines).render();
        all.push((format!("fair-share-tried-{lines}"), page));
        let page = idle_trial(t, lines).render();
        all.push((format!("idle-rules-tried-{lines}"), page));
    }
    for (name, next) in [
        ("first", "2026-08"),
        ("over", "2026-10"),
        ("later", "2026-11"),
    ] {
        let page = next_month(t, next, name == "first").render();
        all.push((format!("statements-next-{name}"), page));
    }
    for hosts in [0, 1, 50, 500] {
        let page = registries(t, hosts).render();
        all.push((format!("images-registries-{hosts}"), page));
    }
    for folders in [0, 1, 50] {
        let page = storage_findings(t, folders).render();
        all.push((format!("system-storage-{folders}"), page));
    }
    for (name, failed) in [("login-saml", false), ("login-saml-failed", true)] {
        all.push((name.to_owned(), by_saml(t, failed).render()));
    }
    let rendered = all.into_iter();
    rendered
        .map(|(name, page)| {
            let html = page.unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, html)
        })
        .collect()
}

fn visit(t: Text) -> RequestContext {
    let visit = RequestContext::of(&HeaderMap::new(), &Extensions::new(), "/".into());
    RequestContext {
        text: t,
        clock: LocalClock::of(t, ZONE),
        ..visit
    }
}

fn month(text: &str) -> UsageMonth {
    UsageMonth::parse(text).expect("a month")
}

fn prices(currency: &str) -> PriceForm {
    PriceForm {
        currency: currency.into(),
        gpu_hour: "1200".into(),
        core_hour: "30".into(),
        gib_hour: "4".into(),
        generation: "3".into(),
        ..PriceForm::default()
    }
}

fn amounts(n: u64) -> StatementAmounts {
    StatementAmounts {
        gpu_units: n * 360_000_000,
        core_units: n * 4 * 360_000_000,
        memory_units: n * 16 * 3_686_400_000,
        session_milliseconds: n * 3_600_000,
        starts: n,
        waited_milliseconds: n * 60_000,
        amount_micros: n * 1_384_000_000,
    }
}

/// October, closed, with so many lines in three projects; the last of them late.
fn statement(t: Text, lines: u64) -> StatementsPage {
    let item = |n: u64| StatementItem {
        position: n,
        part: match n == lines && n > 1 {
            true => "late".into(),
            false => "use".into(),
        },
        domain: "default".into(),
        project: match n % 3 {
            0 => "vision".into(),
            1 => "language".into(),
            _ => "robotics".into(),
        },
        user: format!("user-{n:03}"),
        used: amounts(n),
        statement: String::new(),
    };
    let (from, until) = (
        Timestamp::from_millis(NOW.as_millis() - 60 * 24 * HOUR),
        Timestamp::from_millis(NOW.as_millis() - 30 * 24 * HOUR),
    );
    let closed = ClosedMonthView {
        month: "2026-10".into(),
        from,
        until,
        time_zone: ZONE.into(),
        closed_at: until,
        currency: "KRW".into(),
    };
    let found = StatementView {
        month: closed.month.clone(),
        from,
        until,
        time_zone: closed.time_zone.clone(),
        closed_at: until,
        currency: closed.currency.clone(),
        total: amounts((1..=lines).sum()),
        items: (1..=lines).map(item).collect(),
        totals: Vec::new(),
        statement: String::new(),
        signature: String::new(),
        digests: Vec::new(),
    };
    let next = NextMonth {
        month: month("2026-11"),
        newest: month("2026-10"),
        time_zone: ZONE.into(),
        is_first: false,
    };
    let read = ReadStatements {
        closed: vec![closed],
        found: Some(found),
        whole: None,
        next: Some(statements::next_close(t, &next)),
        prices: Some(prices("KRW")),
    };
    of_read(t, read)
}

/// No statement yet, or none to be shown: the month that is closed next alone.
fn next_month(t: Text, next: &str, is_first: bool) -> StatementsPage {
    let next = NextMonth {
        month: month(next),
        newest: month("2026-10"),
        time_zone: ZONE.into(),
        is_first,
    };
    let read = ReadStatements {
        next: Some(statements::next_close(t, &next)),
        prices: Some(prices("")),
        ..ReadStatements::default()
    };
    of_read(t, read)
}

fn of_read(t: Text, read: ReadStatements) -> StatementsPage {
    let f = sample::layout(t, Nav::Usage, false);
    statements::page(&visit(t), f, "mina", &HeaderMap::new(), &[], read)
}

/// What other rules would have done to so many users.
fn fair_trial(t: Text, users: u64) -> fair_share::FairSharePage {
    let figures = |factor: u64| RehearsalFigures {
        waited_p50_seconds: 40 * factor,
        waited_p95_seconds: 900 * factor,
        waited_max_seconds: 4_000 * factor,
        slowdown_mean: 1.2 * factor as f64,
        slowdown_p95: 4.0,
        busy: 0.71,
        not_started: factor - 1,
    };
    let rules = |order, factor| RehearsedRules {
        order,
        backfill: BackfillMode::Timed,
        half_life_hours: 168,
        figures: figures(factor),
    };
    let user = |n: u64| RehearsedUser {
        domain: "default".into(),
        project: "vision".into(),
        user: format!("user-{n:03}"),
        sessions: n,
        present_share: 0.1,
        tried_share: 0.2,
        present_waited_seconds: 600,
        tried_waited_seconds: (users - n) * 30,
        change_seconds: i64::try_from((users - n) * 30).unwrap_or_default() - 600,
    };
    let run = QueueRehearsal {
        from: Timestamp::from_millis(NOW.as_millis() - 30 * 24 * HOUR),
        until: NOW,
        sessions: users * 7,
        complete: users < 500,
        recorded: figures(1),
        present: rules(QueueOrder::Turns, 1),
        tried: rules(QueueOrder::Fair, 2),
        items: (1..=users).map(user).collect(),
    };
    let account = |n: u64| FairShareItem {
        level: TenantLevel::User,
        domain: "default".into(),
        project: "vision".into(),
        user: format!("user-{n:03}"),
        weight: 1,
        share: 0.02,
        past: 0.01,
        value: 0.03,
    };
    let shown = ShownFairShare {
        view: FairShareView {
            order: QueueOrder::Turns,
            backfill: BackfillMode::Timed,
            half_life_hours: 168,
            generation: 1,
            items: (1..=users).map(account).collect(),
        },
        may_change: true,
        asked: &[],
        typed: &TypedFairShare::default(),
        tried: Some(fair_share::tried(t, &run)),
    };
    let f = sample::layout(t, Nav::FairShare, false);
    fair_share::page(&visit(t), f, &HeaderMap::new(), shown)
}

/// What a new rule would have ended; the answer has at most fifty of them.
fn idle_trial(t: Text, ended: u64) -> IdleRulesPage {
    let end = |n: u64| IdleDryEndView {
        session: SessionId(uuid::Uuid::from_u128(u128::from(n))),
        name: format!("notebook-{n}"),
        owner: format!("user-{n:03}"),
        at: Timestamp::from_millis(NOW.as_millis() - i64::try_from(n).unwrap_or_default() * HOUR),
        gpu: GpuShare(50),
        gpu_hours: 12.5,
        busy_again: n.is_multiple_of(7),
    };
    let run = IdleDryRunView {
        sessions: ended * 3,
        ended,
        gpu_hours: ended as f64 * 12.5,
        busy_again: ended / 7,
        examples: (1..=ended.min(50)).map(end).collect(),
    };
    let visit = visit(t);
    let action = ("/idle-rules".to_owned(), "/idle-rules/try".to_owned());
    IdleRulesPage {
        t,
        f: sample::layout(t, Nav::Policies, false),
        full: String::new(),
        form: idle_rules::form(t, action, true, true, TypedRule::default()),
        tried: Some(idle_rules::tried(&visit, &run, NOW)),
        table: idle_rules::table(&visit, "", Vec::new(), true),
    }
}

/// Images where so many registries may be pulled from.
fn registries(t: Text, hosts: usize) -> ImagesPage {
    let host = |n: usize| format!("registry-{n:03}.lab.example:5000");
    ImagesPage {
        registries: (1..=hosts).map(host).collect(),
        ..sample::images(t)
    }
}

/// Folders without a directory, and as many directories without a folder.
fn storage_findings(t: Text, folders: usize) -> SystemPage {
    let id = |n: usize| uuid::Uuid::from_u128(n as u128).to_string();
    let which = |named: &dyn Fn(usize) -> String| {
        let first = (1..=folders.min(5)).map(named);
        first.collect::<Vec<_>>().join(", ")
    };
    let gone = which(&|n| format!("mina/data-{n} ({})", id(n)));
    let strange = which(&id);
    let found = match folders {
        0 => Vec::new(),
        _ => vec![
            notices::folder_without_directory(folders, gone),
            notices::folder_directory_unknown(folders, strange),
        ],
    };
    let item = |Notice { code, text, hint }: Notice| {
        AttentionItem::Server(DiagnosticCheck {
            code: code.to_owned(),
            ok: false,
            minor: true,
            text,
            hint,
        })
    };
    let list = AttentionList {
        items: found.into_iter().map(item).collect(),
        passed: Vec::new(),
        diagnosed_at: Some(NOW),
    };
    let page = sample::system(t, SystemTab::Checks, true);
    SystemPage {
        checks: Checks {
            unwell: attention::rows(t, &list),
            summary: attention::summary(t, &list),
            ..page.checks
        },
        ..page
    }
}

/// The button of a provider by SAML, and what a response that does not hold leads to.
fn by_saml(t: Text, failed: bool) -> LoginPage {
    let refusal = refusals::provider_response_wrong();
    LoginPage {
        t,
        f: sample::stranger(t),
        name: String::new(),
        next: "/".into(),
        alert: failed.then(|| Alert::bad(codes::refusal(t, &refusal))),
        refused: false,
        directory: false,
        signs_up: false,
        providers: vec![ProviderLink {
            name: "Lab account".into(),
            href: "/login/saml?next=%2F".into(),
        }],
    }
}
