//! `/usage`: what users, projects and domains used in a month, by day and in sums; the same as a file.

use std::collections::BTreeMap;

use api::usage::{Usage, UsageAmounts, UsageGrouping, UsageItem};
use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::civil::Date;
use rules::refusals;
use server::Failure;
use server::access::Caller;
use server::actions::usage::{self, UsageMonth, UsageTime};
use server::actions::{gpus, tenancy};

use super::authentication::PageCaller;
use super::charts::{self, ChartFigure, Curve, Scale};
use super::components::{self, Choice};
use super::history::HistoryView;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, TableCell, TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer};
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;
use crate::doors::{csv, download};

const PATH: &str = "/usage";
const FILTERS: [&str; 2] = ["month", "by"];
const HOUR: f64 = 3600.0;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/usage.html", blocks = ["list"])]
pub struct UsagePage {
    pub t: Text,
    pub f: PageLayout,
    /// `2026-11`
    pub month: String,
    pub by: &'static str,
    pub previous: MonthLink,
    /// None where the month is the present one.
    pub next: Option<MonthLink>,
    pub groupings: Vec<Choice>,
    pub export: String,
    /// The history of the first GPU, from which the others are chosen; None without any.
    pub by_gpu: Option<String>,
    pub simulated: bool,
    pub view: HistoryView,
    pub table: DataTable,
}

/// The way to another month.
pub struct MonthLink {
    pub href: String,
    pub month: String,
}

impl ListPage for UsagePage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Usage);
    responses::failure(console, visit, Some(frame), failure)
}

/// `GET /usage`
pub(super) async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let state = TableState::read(PATH, &FILTERS, &asked);
    let page = read(&console, &visit, &caller, &headers, &asked).await;
    answer(&console, &visit, &state, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

/// `GET /usage/export`: the sums as CSV, with exact amounts.
pub(super) async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let state = TableState::read(PATH, &FILTERS, &asked);
    match used(&console, &caller, &state).await {
        Ok(used) => {
            let file = csv::usage(&used).into_bytes();
            download::bytes(&csv::usage_name(&used), csv::KIND, file)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn used(
    console: &PagesContext,
    caller: &Caller,
    state: &TableState,
) -> Result<Usage, Failure> {
    let by = match state.filter("by") {
        "" => UsageGrouping::default(),
        word => UsageGrouping::parse(word).ok_or_else(refusals::usage_grouping_unknown)?,
    };
    let time = UsageTime {
        month: state.filter("month").to_owned(),
        ..UsageTime::default()
    };
    usage::usage(&console.server, caller, &time, by).await
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<UsagePage, Failure> {
    let t = visit.text;
    let mut state = TableState::read(PATH, &FILTERS, asked);
    let used = used(console, caller, &state).await?;
    let several = tenancy::domains(&console.server, caller).await?.len() > 1;
    let devices = gpus::list(&console.server, caller).await?.items;
    let zone = &caller.time_zone;
    let month = UsageMonth::of(used.from, zone);
    let present = UsageMonth::of(console.server.clock().now(), zone);
    let link = |month: UsageMonth| MonthLink {
        href: state.with_filter("month", &month.to_string()).address(),
        month: month.to_string(),
    };
    let (previous, next) = (
        link(month.previous()),
        (month < present).then(|| link(month.next())),
    );
    let columns = columns(t, used.by, several);
    state.choose_columns("usage", &columns, asked, headers, visit);
    let total = used.items.len() as u64;
    let rows = state
        .page_of(used.items.iter().enumerate().collect())
        .into_iter()
        .map(|(at, item)| TableLine {
            id: format!("u-{at}"),
            mark: None,
            cells: state
                .columns
                .iter()
                .map(|key| cell(visit, key, item, &used.total))
                .collect(),
            action: None,
        })
        .collect();
    let empty = EmptyTable {
        icon: "chart-line",
        title: t.usage_none().to_owned(),
        lead: t.usage_none_lead().to_owned(),
        href: previous.href.clone(),
        go: previous.month.clone(),
    };
    let groupings = UsageGrouping::ALL
        .into_iter()
        .filter(|by| several || *by != UsageGrouping::Domain)
        .map(|by| Choice::new(by.word(), grouping_name(t, by), by == used.by))
        .collect();
    Ok(UsagePage {
        t,
        f: layout(console, visit, caller, Nav::Usage),
        month: month.to_string(),
        by: used.by.word(),
        previous,
        next,
        groupings,
        export: state.beside("/usage/export"),
        by_gpu: devices.first().map(|gpu| {
            let of = responses::encoded(&format!("gpu:{}", gpu.id));
            format!("/history?of={of}&range=month")
        }),
        simulated: devices.iter().any(|gpu| gpu.simulated),
        view: view(t, &used, month, month == present),
        table: DataTable::new(t, &state, &columns, "gpu", rows, total, empty),
    })
}

fn grouping_name(t: Text, by: UsageGrouping) -> &'static str {
    match by {
        UsageGrouping::User => t.projects_add_user(),
        UsageGrouping::Project => t.sessions_project(),
        UsageGrouping::Domain => t.projects_domain(),
        UsageGrouping::Member => t.usage_by_member(),
    }
}

fn columns(t: Text, by: UsageGrouping, several: bool) -> Vec<TableColumn> {
    let whose: &[&'static str] = match by {
        UsageGrouping::User => &["user"],
        UsageGrouping::Project => &["project"],
        UsageGrouping::Domain => &["domain"],
        UsageGrouping::Member => &["user", "project"],
    };
    let mut columns: Vec<TableColumn> = whose
        .iter()
        .enumerate()
        .map(|(at, key)| {
            let name = match *key {
                "user" => t.projects_add_user(),
                "project" => t.sessions_project(),
                _ => t.projects_domain(),
            };
            let column = TableColumn::new(key, name).display(ColumnDisplay::Fixed);
            if at == 0 {
                column.class("first")
            } else {
                column
            }
        })
        .collect();
    if several && matches!(by, UsageGrouping::Project | UsageGrouping::Member) {
        columns.push(TableColumn::new("domain", t.projects_domain()));
    }
    columns.push(TableColumn::new("gpu", t.history_gpu_hours()).class("u below"));
    if by == UsageGrouping::User {
        columns.push(TableColumn::new("busy", t.usage_busy()).class("num below"));
    }
    columns.extend([
        TableColumn::new("cpu", t.history_core_hours()).class("num below"),
        TableColumn::new("memory", t.usage_memory_hours()).class("num wide"),
        TableColumn::new("starts", t.nav_sessions()).class("num below"),
        TableColumn::new("wait", t.usage_wait()).class("num wide"),
    ]);
    columns
}

/// Hours of so many seconds.
fn hours(seconds: f64) -> String {
    components::hours(seconds / HOUR)
}

fn wait(t: Text, used: &UsageAmounts) -> String {
    match used.starts {
        0 => "–".to_owned(),
        starts => components::span(t, (used.waited_seconds / starts as f64) as u64),
    }
}

fn cell(visit: &RequestContext, key: &str, item: &UsageItem, total: &UsageAmounts) -> TableCell {
    let used = &item.used;
    match key {
        "user" => TableCell::Link {
            href: format!(
                "/history?of=user:{}&range=month",
                responses::encoded(&item.user)
            ),
            text: item.user.clone(),
            note: String::new(),
        },
        "project" => TableCell::text(item.project.clone()),
        "domain" => TableCell::text(item.domain.clone()),
        "gpu" => TableCell::Bar {
            text: hours(used.gpu_seconds),
            percent: match total.gpu_seconds > 0.0 {
                true => (used.gpu_seconds / total.gpu_seconds * 100.0).round() as u8,
                false => 0,
            },
            accent: true,
        },
        "busy" => TableCell::text(match item.gpu_busy {
            Some(part) => format!("{}%", components::percent(part, 1.0)),
            None => "–".to_owned(),
        }),
        "cpu" => TableCell::text(hours(used.cpu_seconds)),
        "memory" => TableCell::text(hours(used.memory_mib_seconds / 1024.0)),
        "starts" => TableCell::text(components::grouped(used.starts)),
        "wait" => TableCell::text(wait(visit.text, used)),
        _ => TableCell::Empty,
    }
}

/// The charts by day and the sums. Empty where nothing was used.
fn view(t: Text, used: &Usage, month: UsageMonth, present: bool) -> HistoryView {
    if used.days.is_empty() {
        return HistoryView::default();
    }
    let known: BTreeMap<&str, &UsageAmounts> = used
        .days
        .iter()
        .map(|day| (day.day.as_str(), &day.used))
        .collect();
    let newest = used.days.last().map_or("", |day| day.day.as_str());
    let first: Option<Date> = format!("{month}-01").parse().ok();
    let days: Vec<String> = first
        .into_iter()
        .flat_map(|first| first.series(jiff::Span::new().days(1)))
        .take_while(|day| first.is_some_and(|first| day.month() == first.month()))
        .map(|day| day.to_string())
        .filter(|day| !present || day.as_str() <= newest)
        .collect();
    let curve = |hue, of: &dyn Fn(&UsageAmounts) -> f64| Curve {
        name: t.history_allocated().to_owned(),
        hue,
        filled: true,
        values: days
            .iter()
            .map(|day| Some(known.get(day.as_str()).map_or(0.0, |used| of(used) / HOUR)))
            .collect(),
    };
    let mut shown = Vec::new();
    if used.total.gpu_seconds > 0.0 {
        shown.push((t.history_gpu_hours(), curve("ca", &|used| used.gpu_seconds)));
    }
    shown.push((
        t.history_core_hours(),
        curve("ci", &|used| used.cpu_seconds),
    ));
    let mut head = vec![t.usage_day().to_owned()];
    let mut figures = Vec::new();
    let mut columns: Vec<(Scale, &[Option<f64>])> = Vec::new();
    for (title, curve) in &shown {
        head.push((*title).to_owned());
        columns.push((Scale::Number, &curve.values));
        let top = Scale::Number.top(charts::peak(&curve.values));
        let label = format!("{title}, {}–{}", days[0], newest);
        figures.push(ChartFigure {
            title: (*title).to_owned(),
            note: String::new(),
            keys: Vec::new(),
            drawing: charts::draw(std::slice::from_ref(curve), top, None, &label),
            y: charts::ticks(Scale::Number, top),
            x: [days.first(), days.last()]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            columns: columns.len().to_string(),
        });
    }
    let total = &used.total;
    let mut sums = vec![
        (t.history_core_hours().to_owned(), hours(total.cpu_seconds)),
        (
            t.nav_sessions().to_owned(),
            components::grouped(total.starts),
        ),
        (t.usage_wait().to_owned(), wait(t, total)),
    ];
    if total.gpu_seconds > 0.0 {
        sums.insert(
            0,
            (t.history_gpu_hours().to_owned(), hours(total.gpu_seconds)),
        );
    }
    HistoryView {
        figures,
        head,
        rows: charts::rows(days.clone(), &columns),
        period: month.to_string(),
        sums,
        holders: None,
    }
}
