//! `/history`: what was given and used of the box, of a GPU or of a user, over an hour to a month; the same as a
//! table and as a file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::history::{History, HistoryHolder, HistoryPoint, HistoryRange};
use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::permissions::{Permission, reach};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::access::Caller;
use server::actions::{gpus, history};
use server::{Failure, Server};

use super::authentication::PageCaller;
use super::charts::{self, ChartFigure, Curve, Scale};
use super::choice_field::{ChoiceField, MAX_LISTED};
use super::components::{self, Choice};
use super::layout::{Nav, PageLayout};
use super::request_context::{LocalClock, RequestContext};
use super::{PagesContext, layout, responses};
use crate::doors::text::{Text, codes};
use crate::doors::{csv, download};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/history.html")]
pub struct HistoryPage {
    pub t: Text,
    pub f: PageLayout,
    /// `site`, `gpu:ID` or `user:NAME`.
    pub of: String,
    pub name: String,
    pub range: &'static str,
    /// Address, name, whether this is it.
    pub ranges: Vec<(String, &'static str, bool)>,
    pub gpus: Vec<Choice>,
    pub users: Vec<Choice>,
    /// The field for one of them, where there are too many for a list.
    pub subject: Option<ChoiceField>,
    pub simulated: bool,
    /// The reader sees the sessions of all users: what is left out for others is not told.
    pub sees_all: bool,
    pub view: HistoryView,
}

/// Charts of one history, and the table that says the same.
#[derive(Default)]
pub struct HistoryView {
    pub figures: Vec<ChartFigure>,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// From when to when, with dates.
    pub period: String,
    /// What was allocated and used in all that time: name, sum.
    pub sums: Vec<(String, String)>,
    /// Who held the device; None where it is no device's.
    pub holders: Option<HolderTable>,
}

/// The sessions that held a device.
pub struct HolderTable {
    pub rows: Vec<HolderRow>,
    /// There are further ones.
    pub is_cut: bool,
}

/// One of them.
pub struct HolderRow {
    pub href: String,
    pub name: String,
    pub user: String,
    pub gpu_hours: String,
    pub from: String,
    /// Empty while it holds it.
    pub until: String,
}

/// What a history is asked for.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct HistoryAddress {
    pub of: String,
    pub range: String,
    /// `holders` asks the file for who held the device; anything else for the points.
    pub what: String,
}

/// Which charts a history has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HistoryParts {
    /// Everything that is known.
    All,
    /// Only what matters most: GPUs where there are any, else processors.
    First,
}

/// `GET /history`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<HistoryAddress>,
) -> Response {
    let page = match read(&console, &visit, &caller, &asked).await {
        Err(Failure::Refusal(refusal)) => {
            mistyped(&console, &visit, &caller, &asked, refusal).await
        }
        page => page.map(|page| (StatusCode::OK, page)),
    };
    match page {
        Ok((status, page)) => responses::page(&console, &visit, status, &page),
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::History);
            responses::failure(&console, &visit, Some(frame), &failure)
        }
    }
}

/// What a reader has who typed whose history they want, with why there is none at the field. Errors: the refusal, where
/// one is chosen from a list.
async fn mistyped(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    asked: &HistoryAddress,
    refusal: Refusal,
) -> Result<(StatusCode, HistoryPage), Failure> {
    let usual = HistoryAddress {
        of: String::new(),
        range: asked.range.clone(),
        ..HistoryAddress::default()
    };
    let page = match asked.of.is_empty() {
        true => None,
        false => read(console, visit, caller, &usual).await.ok(),
    };
    match page {
        Some(page) if page.subject.is_some() => {
            let why = codes::refusal(visit.text, &refusal);
            let subject = page.subject.map(|field| field.refused(&asked.of, why));
            let status = responses::status(&refusal);
            Ok((status, HistoryPage { subject, ..page }))
        }
        _ => Err(refusal.into()),
    }
}

/// The field for one of a site with more devices and users than a page lists; None where they are a list.
fn subject(t: Text, gpus: &[Choice], users: &[Choice], of: &str) -> Option<ChoiceField> {
    (gpus.len() + users.len() >= MAX_LISTED).then(|| {
        let site = Choice::new("site", t.history_site(), false);
        let all = std::iter::once(site).chain(users.iter().chain(gpus).cloned());
        ChoiceField::of(t, all.collect(), of)
    })
}

/// `GET /history/export`: the points, or who held the device, as CSV, with times in UTC, sizes in bytes and numbers as they are.
pub async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<HistoryAddress>,
) -> Response {
    match asked_of(&console.server, &caller, &asked).await {
        Ok(history) => {
            let (name, file) = match asked.what.as_str() {
                "holders" => (csv::holders_name(&history), csv::holders(&history.holders)),
                _ => (csv::history_name(&history), csv::history(&history)),
            };
            download::bytes(&name, csv::KIND, file.into_bytes())
        }
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::History);
            responses::failure(&console, &visit, Some(frame), &failure)
        }
    }
}

async fn asked_of(
    server: &Server,
    caller: &Caller,
    asked: &HistoryAddress,
) -> Result<History, Failure> {
    let range = match asked.range.as_str() {
        "" => HistoryRange::default(),
        word => HistoryRange::parse(word).ok_or_else(refusals::history_range_unknown)?,
    };
    history::history(server, caller, &asked.of, range).await
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    asked: &HistoryAddress,
) -> Result<HistoryPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let history = asked_of(server, caller, asked).await?;
    let devices = gpus::list(server, caller).await?;
    let mut users = history::users(server, caller).await?;
    let (kind, name) = history.of.split_once(':').unwrap_or_default();
    if kind == "user" && !users.iter().any(|user| user == name) {
        users.push(name.to_owned());
    }
    let name = match kind {
        "gpu" => devices
            .items
            .iter()
            .find(|gpu| gpu.id == name)
            .map_or_else(|| name.to_owned(), |gpu| format!("GPU {}", gpu.index)),
        "user" => name.to_owned(),
        _ => t.history_site().to_owned(),
    };
    let several = devices
        .items
        .iter()
        .any(|gpu| gpu.node != devices.items[0].node);
    let gpus: Vec<Choice> = devices
        .items
        .iter()
        .map(|gpu| {
            let value = format!("gpu:{}", gpu.id);
            let chosen = value == history.of;
            let name = match several {
                true => format!("{} · GPU {}", gpu.node_name, gpu.index),
                false => format!("GPU {}", gpu.index),
            };
            Choice::new(value, name, chosen)
        })
        .collect();
    let users: Vec<Choice> = users
        .into_iter()
        .map(|name| {
            let value = format!("user:{name}");
            let chosen = value == history.of;
            Choice::new(value, name, chosen)
        })
        .collect();
    Ok(HistoryPage {
        t,
        f: layout(console, visit, caller, Nav::History),
        name,
        range: history.range.word(),
        ranges: ranges(t, &history.of, history.range),
        subject: subject(t, &gpus, &users, &history.of),
        gpus,
        users,
        simulated: history.simulated,
        sees_all: reach(&caller.subject, Permission::SessionsRead).is_everything(),
        view: view(t, &visit.clock, &history, HistoryParts::All),
        of: history.of,
    })
}

/// Links to the same history over other ranges.
pub fn ranges(t: Text, of: &str, here: HistoryRange) -> Vec<(String, &'static str, bool)> {
    let name = |range| match range {
        HistoryRange::Hour => t.history_hour(),
        HistoryRange::Day => t.history_day(),
        HistoryRange::Week => t.history_week(),
        HistoryRange::Month => t.history_month(),
        HistoryRange::ThisWeek => t.history_this_week(),
        HistoryRange::LastWeek => t.history_last_week(),
    };
    let of = responses::encoded(of);
    HistoryRange::ALL
        .into_iter()
        .map(|range| {
            let href = format!("/history?of={of}&range={}", range.word());
            (href, name(range), range == here)
        })
        .collect()
}

/// What a chart shows: how its curves are named, drawn and scaled.
struct Shown {
    title: String,
    scale: Scale,
    /// What there is to give; 0 where that is not known or not what the curves are part of.
    whole: f64,
    curves: Vec<Curve>,
}

/// Languages and zones in which one history is kept drawn. Higher: more memory, some 20 KiB for each. Lower: where readers are in
/// many zones it is drawn for each look.
const MAX_VIEWS_KEPT: usize = 16;

/// One history, drawn for its readers in each of their languages and zones, until it changes.
#[derive(Default)]
pub struct KeptViews(Mutex<Option<KeptHistory>>);

struct KeptHistory {
    history: History,
    views: BTreeMap<(&'static str, String), Arc<HistoryView>>,
}

impl KeptViews {
    /// As `view` with `HistoryParts::First`, but for `period`, which is as of the first look. Drawn once for all who read it
    /// in the same language and zone.
    pub fn first(&self, t: Text, clock: &LocalClock, history: &History) -> Arc<HistoryView> {
        let reader = (t.language.code(), clock.name().to_owned());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.as_mut().filter(|kept| is_same(&kept.history, history));
        if let Some(kept) = known {
            if kept.views.len() >= MAX_VIEWS_KEPT && !kept.views.contains_key(&reader) {
                kept.views.clear();
            }
            let drawn = kept.views.entry(reader);
            let drawn = drawn.or_insert_with(|| draw_first(t, clock, history));
            return Arc::clone(drawn);
        }
        let drawn = draw_first(t, clock, history);
        *kept = Some(KeptHistory {
            history: history.clone(),
            views: BTreeMap::from([(reader, Arc::clone(&drawn))]),
        });
        drawn
    }
}

fn draw_first(t: Text, clock: &LocalClock, history: &History) -> Arc<HistoryView> {
    Arc::new(view(t, clock, history, HistoryParts::First))
}

/// Whether two histories are drawn alike: time has passed between them, and nothing else.
fn is_same(one: &History, other: &History) -> bool {
    let of_time = |of: &History| (slots(of).first().copied(), slots(of).last().copied());
    let same_time = History {
        from: other.from,
        until: other.until,
        ..one.clone()
    };
    of_time(one) == of_time(other) && same_time == *other
}

/// The charts of a history and its table. Empty where nothing was kept yet. Costs its points.
pub fn view(t: Text, clock: &LocalClock, history: &History, parts: HistoryParts) -> HistoryView {
    let holders = history.is_of_device().then(|| HolderTable {
        rows: history
            .holders
            .iter()
            .map(|one| holder(clock, one))
            .collect(),
        is_cut: history.more_holders,
    });
    if history.points.is_empty() {
        return HistoryView {
            period: t.history_period(clock.date(history.from), clock.date(history.until)),
            holders,
            ..HistoryView::default()
        };
    }
    let times = slots(history);
    let shown = shown(t, history, &times, parts);
    let label = |at: &i64| {
        let at = Timestamp::from_millis(*at * 1000);
        match history.range {
            HistoryRange::Hour => clock.second(at),
            HistoryRange::Day
            | HistoryRange::Week
            | HistoryRange::Month
            | HistoryRange::ThisWeek
            | HistoryRange::LastWeek => clock.date(at),
        }
    };
    let last = times.len() - 1;
    let mut x: Vec<String> = (0..3).map(|part| label(&times[last * part / 3])).collect();
    x.push(match history.range {
        HistoryRange::LastWeek => clock.date(history.until),
        _ => t.metrics_now().to_owned(),
    });
    let x = charts::once(x);
    let mut head = vec![t.history_time().to_owned()];
    let mut columns: Vec<(Scale, &[Option<f64>])> = Vec::new();
    let mut figures = Vec::new();
    for chart in &shown {
        let begin = columns.len() + 1;
        let mut words = Vec::new();
        for curve in &chart.curves {
            head.push(format!("{}, {}", chart.title, curve.name));
            columns.push((chart.scale, &curve.values));
            let now = curve.values.iter().rev().flatten().next();
            let now = now.map_or_else(|| "–".to_owned(), |now| chart.scale.write(*now));
            words.push(format!("{} {now}", curve.name));
        }
        let highest = chart
            .curves
            .iter()
            .map(|curve| charts::peak(&curve.values))
            .fold(0.0, f64::max);
        let top = match chart.whole {
            whole if whole > 0.0 && highest <= whole => whole,
            whole => chart.scale.top(highest.max(whole)),
        };
        let label = format!("{}: {}", chart.title, words.join(", "));
        figures.push(ChartFigure {
            title: chart.title.clone(),
            note: match chart.whole > 0.0 {
                true => t.common_of(chart.scale.write(chart.whole)),
                false => String::new(),
            },
            keys: chart
                .curves
                .iter()
                .map(|curve| (curve.hue, curve.name.clone()))
                .collect(),
            drawing: charts::draw(&chart.curves, top, None, &label),
            y: charts::ticks(chart.scale, top),
            x: x.clone(),
            columns: (begin..=columns.len())
                .map(|column| column.to_string())
                .collect::<Vec<_>>()
                .join(" "),
        });
    }
    HistoryView {
        rows: charts::rows(times.iter().map(label).collect(), &columns),
        figures,
        head,
        period: t.history_period(
            clock.date(Timestamp::from_millis(times[0] * 1000)),
            clock.date(history.until),
        ),
        sums: match parts {
            HistoryParts::All => sums(t, history),
            HistoryParts::First => Vec::new(),
        },
        holders,
    }
}

fn holder(clock: &LocalClock, one: &HistoryHolder) -> HolderRow {
    HolderRow {
        href: format!("/sessions/{}", one.session),
        name: one.name.clone(),
        user: one.user.clone(),
        gpu_hours: components::hours(one.gpu_hours),
        from: clock.date(one.from),
        until: one.until.map_or_else(String::new, |at| clock.date(at)),
    }
}

/// GPU-hours and core-hours of all points: allocated, and busy where that is known. A point stands for the seconds of
/// it that were measured.
fn sums(t: Text, history: &History) -> Vec<(String, String)> {
    let hours = |of: &dyn Fn(&HistoryPoint) -> Option<f64>| {
        let mut known = false;
        let mut sum = 0.0;
        for point in &history.points {
            if let Some(value) = of(point) {
                known = true;
                sum += value * f64::from(point.seconds) / 3600.0;
            }
        }
        known.then_some(sum)
    };
    let told = |allocated: Option<f64>, busy: Option<f64>| {
        let write = components::hours;
        let allocated = t.history_hours_allocated(write(allocated.unwrap_or_default()));
        match busy {
            Some(busy) => format!("{allocated} · {}", t.history_hours_busy(write(busy))),
            None => allocated,
        }
    };
    let mut all = Vec::new();
    if history.gpus > 0 {
        let allocated = hours(&|point| Some(point.gpu_allocated));
        let busy = hours(&|point| point.gpu_busy);
        all.push((t.history_gpu_hours().to_owned(), told(allocated, busy)));
    }
    if !history.is_of_device() {
        let allocated = hours(&|point| Some(point.cpu_allocated));
        let busy = hours(&|point| Some(point.cpu_busy));
        all.push((t.history_core_hours().to_owned(), told(allocated, busy)));
    }
    all
}

/// The seconds at which its points begin, those without a point included.
fn slots(history: &History) -> Vec<i64> {
    let every = i64::from(history.every.max(1));
    let until = history.until.as_millis() / 1000;
    if history.range.weeks_back().is_some() {
        let from = history.from.as_millis() / 1000;
        let first = from - from.rem_euclid(every);
        // A week that has just begun has one.
        let count = ((until - first + every - 1) / every).max(1);
        return (0..count).map(|slot| first + slot * every).collect();
    }
    let last = until - until.rem_euclid(every);
    let count = i64::from(history.range.seconds().0) / every;
    (0..count)
        .map(|back| last - (count - 1 - back) * every)
        .collect()
}

fn shown(t: Text, history: &History, times: &[i64], parts: HistoryParts) -> Vec<Shown> {
    let points: BTreeMap<i64, &HistoryPoint> = history
        .points
        .iter()
        .map(|point| (point.at.as_millis() / 1000, point))
        .collect();
    let curve = |name: &str, hue, filled, of: &dyn Fn(&HistoryPoint) -> Option<f64>| Curve {
        name: name.to_owned(),
        hue,
        filled,
        values: times
            .iter()
            .map(|at| points.get(at).and_then(|point| of(point)))
            .collect(),
    };
    let given = |of: &dyn Fn(&HistoryPoint) -> f64| {
        curve(t.history_allocated(), "ci", false, &|point| Some(of(point)))
    };
    let used = |of: &dyn Fn(&HistoryPoint) -> Option<f64>| curve(t.history_busy(), "ca", true, of);
    let chart = |title: &str, scale, whole, curves| Shown {
        title: title.to_owned(),
        scale,
        whole,
        curves,
    };
    let device = history.is_of_device();
    let mut all = Vec::new();
    if history.gpus > 0 {
        let curves = vec![
            used(&|point| point.gpu_busy),
            given(&|point| point.gpu_allocated),
        ];
        all.push(chart(
            t.history_gpu(),
            Scale::Number,
            f64::from(history.gpus),
            curves,
        ));
        if parts == HistoryParts::First {
            return all;
        }
        let curves = vec![
            used(&|point| point.gpu_memory_used),
            given(&|point| point.gpu_memory_allocated),
        ];
        all.push(chart(
            t.history_gpu_memory(),
            Scale::Bytes,
            history.gpu_memory as f64,
            curves,
        ));
    }
    if device {
        let known = |curve: &Curve| curve.values.iter().any(Option::is_some);
        let heat = curve(t.history_heat(), "c3", true, &|point| point.celsius);
        let power = curve(t.history_power(), "c2", true, &|point| point.watts);
        if known(&heat) {
            all.push(chart(t.history_heat(), Scale::Celsius, 0.0, vec![heat]));
        }
        if known(&power) {
            all.push(chart(t.history_power(), Scale::Watts, 0.0, vec![power]));
        }
        return all;
    }
    let curves = vec![
        used(&|point| Some(point.cpu_busy)),
        given(&|point| point.cpu_allocated),
    ];
    all.push(chart(t.history_cpu(), Scale::Number, history.cpu, curves));
    if parts == HistoryParts::First {
        return all;
    }
    let curves = vec![
        used(&|point| Some(point.memory_used)),
        given(&|point| point.memory_allocated),
    ];
    all.push(chart(
        t.history_memory(),
        Scale::Bytes,
        history.memory as f64,
        curves,
    ));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::text::Language;

    fn history(of: &str, points: &[(i64, f64)]) -> History {
        History {
            of: of.to_owned(),
            range: HistoryRange::Day,
            every: 600,
            from: Timestamp::from_millis(1_799_913_600_000),
            until: Timestamp::from_millis(1_800_000_000_000),
            cpu: 4.0,
            memory: 8 << 30,
            gpus: 1,
            gpu_memory: 80 << 30,
            simulated: true,
            points: points
                .iter()
                .map(|(back, value)| HistoryPoint {
                    at: Timestamp::from_millis((1_800_000_000 - back) * 1000),
                    cpu_allocated: *value,
                    cpu_busy: value / 2.0,
                    memory_allocated: 1e9,
                    memory_used: 5e8,
                    gpu_allocated: 0.5,
                    gpu_busy: None,
                    gpu_memory_allocated: 4e10,
                    gpu_memory_used: None,
                    celsius: Some(61.0),
                    watts: None,
                    seconds: u32::try_from((*back).clamp(0, 600)).expect("seconds"),
                })
                .collect(),
            holders: Vec::new(),
            more_holders: false,
        }
    }

    #[test]
    fn of_more_than_fifty_subjects_one_is_typed() {
        let t = Text::default();
        let some = |count: usize| -> Vec<Choice> {
            let name = |n| format!("user:u{n}");
            (0..count)
                .map(|n| Choice::new(name(n), name(n), false))
                .collect()
        };
        // With the site they are as many as a list holds, then one more.
        assert!(subject(t, &some(9), &some(MAX_LISTED - 10), "site").is_none());
        let field = subject(t, &some(10), &some(MAX_LISTED - 10), "user:u7");
        let shown = field.expect("a field").control("of", "", "");
        assert!(shown.as_str().contains(" value=\"user:u7\""));
    }

    #[test]
    fn a_history_has_a_row_for_each_moment_and_says_what_is_unknown() {
        let t = Text::default();
        let clock = LocalClock::of(t, "UTC");
        let all = view(
            t,
            &clock,
            &history("site", &[(0, 2.0), (1200, 1.0)]),
            HistoryParts::All,
        );
        assert_eq!(all.figures.len(), 4);
        assert_eq!(all.figures[2].columns, "5 6");
        assert_eq!((all.rows.len(), all.head.len()), (144, 9));
        let cells = |row: usize| (all.rows[row][5].as_str(), all.rows[row][6].as_str());
        assert_eq!(cells(143), ("1.00", "2.00"));
        assert_eq!(cells(142), ("–", "–"), "the server did not run");
        assert_eq!(cells(141), ("0.50", "1.00"));
        assert_eq!(all.rows[143][1], "–", "load is unknown");
        let device = view(t, &clock, &history("gpu:x", &[(0, 2.0)]), HistoryParts::All);
        let titles: Vec<&str> = device.figures.iter().map(|f| f.title.as_str()).collect();
        assert_eq!(
            titles,
            [t.history_gpu(), t.history_gpu_memory(), t.history_heat()]
        );
        let first = view(
            t,
            &clock,
            &history("site", &[(0, 2.0)]),
            HistoryParts::First,
        );
        assert_eq!((first.figures.len(), first.head.len()), (1, 3));
        let none = view(t, &clock, &history("site", &[]), HistoryParts::All);
        assert!(none.figures.is_empty());
        assert!(none.period.contains("14 Jan"), "{}", none.period);
    }

    #[test]
    fn a_day_is_drawn_once_for_each_language_and_zone_until_it_changes() {
        let kept = KeptViews::default();
        let (english, korean) = (Text::default(), Text::new(Language::Korean));
        let clock = LocalClock::of;
        let day = history("site", &[(0, 2.0)]);
        let first = kept.first(english, &clock(english, "UTC"), &day);
        let later = History {
            until: Timestamp::from_millis(day.until.as_millis() + 9_000),
            ..day.clone()
        };
        let again = kept.first(english, &clock(english, ""), &later);
        assert!(
            Arc::ptr_eq(&first, &again),
            "a zone that is not known is UTC"
        );
        let seoul = kept.first(korean, &clock(korean, "Asia/Seoul"), &later);
        let drawn = view(
            korean,
            &clock(korean, "Asia/Seoul"),
            &later,
            HistoryParts::First,
        );
        assert_eq!((&seoul.head, &seoul.rows), (&drawn.head, &drawn.rows));
        assert_ne!(seoul.rows[0][0], first.rows[0][0]);
        let busier = History {
            points: history("site", &[(0, 3.0)]).points,
            ..later.clone()
        };
        let next = kept.first(english, &clock(english, "UTC"), &busier);
        assert_eq!(next.rows[143][2], "0.50");
        assert!(!Arc::ptr_eq(&first, &next));
        // Ten minutes later its last row is another one.
        let moved = History {
            until: Timestamp::from_millis(busier.until.as_millis() + 600_000),
            ..busier
        };
        let moved = kept.first(english, &clock(english, "UTC"), &moved);
        assert_eq!(moved.rows[142], next.rows[143]);
    }

    #[test]
    fn a_week_has_its_hours_and_its_own_end() {
        let t = Text::default();
        let clock = LocalClock::of(t, "UTC");
        let week = History {
            range: HistoryRange::LastWeek,
            every: 3600,
            from: Timestamp::from_millis(1_799_625_600_000),
            until: Timestamp::from_millis(1_800_230_400_000),
            ..history("gpu:x", &[(0, 2.0)])
        };
        let all = view(t, &clock, &week, HistoryParts::All);
        assert_eq!(all.rows.len(), 168);
        assert_eq!(all.figures[0].x[3], clock.date(week.until));
        assert!(all.holders.expect("a device").rows.is_empty());
        // It has just begun.
        let begun = History {
            range: HistoryRange::ThisWeek,
            until: week.from,
            ..week
        };
        let all = view(t, &clock, &begun, HistoryParts::All);
        assert_eq!(all.rows.len(), 1);
    }

    #[test]
    fn a_history_has_its_dates_and_the_hours_of_all_points() {
        let t = Text::default();
        let clock = LocalClock::of(t, "UTC");
        // Points of 600 s: two whole ones, and one of which 300 s have passed.
        let mut all = history("site", &[(300, 2.0), (900, 1.0), (1500, 1.0)]);
        all.points[0].gpu_busy = Some(0.25);
        let view = view(t, &clock, &all, HistoryParts::All);
        let hours = 0.5 * (600.0 + 600.0 + 300.0) / 3600.0;
        assert_eq!(
            view.sums[0],
            (
                t.history_gpu_hours().to_owned(),
                format!(
                    "{} · {}",
                    t.history_hours_allocated(format!("{hours:.2}")),
                    t.history_hours_busy("0.02")
                )
            )
        );
        assert_eq!(view.sums[1].0, t.history_core_hours());
        assert!(view.sums[1].1.contains("0.50"), "{}", view.sums[1].1);
        assert!(view.period.contains("15 Jan"), "{}", view.period);
        for label in &view.figures[0].x[..3] {
            assert!(label.contains("Jan"), "{label}");
        }
        let device = super::view(t, &clock, &history("gpu:x", &[(0, 2.0)]), HistoryParts::All);
        assert_eq!(device.sums.len(), 1, "a GPU has no core hours");
    }
}
