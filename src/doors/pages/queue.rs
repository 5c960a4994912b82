//! `/queue`: what waits, in order and why, filtered and page by page, and a plan of what ends and starts when. Changes to
//! a waiting request are in `waiting_request`.

pub(super) mod cancel;

use api::sessions::SessionView;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use rules::fair_share::QueueOrder;
use rules::permissions::{Permission, Reach, reach};
use rules::placement::explain::Explanation;
use rules::policy::{BackfillMode, SharePolicy};
use rules::session::SessionState;
use rules::units::Timestamp;
use rules::workload::precedence::USUAL_PRIORITY;
use server::Failure;
use server::access::Caller;
use server::actions::gpus as devices;
use server::actions::sessions::{
    self, MAX_QUEUE_EXPORTED, PlannedSession, QueueFilter, QueueView, WaitingLaunch,
};

use super::authentication::PageCaller;
use super::components::{self, Alert, BarRow, Choice};
use super::hues::Hues;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{FilterBar, FilterExample, FilterPicker, Pager, TableCell, TableState};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::view_links;
use super::table_csv::csv;
use super::{PagesContext, gpus, layout, live as stream, presenter, responses};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/queue.html", blocks = ["count", "queue", "room", "plan"])]
pub struct QueuePage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    /// GPUs here do not exist.
    pub simulated: bool,
    /// `20 of 202 sessions`; empty where none waits.
    pub shown: String,
    /// That sessions of others wait; none where none does, or all are shown.
    pub others: Option<String>,
    pub waiting: Vec<QueueRow>,
    pub filter: FilterBar,
    /// Something is filtered, and nothing is found.
    pub unmatched: bool,
    pub may_cancel: bool,
    pub pager: Pager,
    pub room: Vec<BarRow>,
    pub plan: Vec<PlanRow>,
    /// How many more there are; empty where the plan has all.
    pub plan_more: String,
    /// In which order the queue is served, in words.
    pub order: &'static str,
    /// Who may start before a session that waits, in words.
    pub backfill: &'static str,
    /// Some wait in a resource group with another rule.
    pub own_rules: bool,
    /// Words under the plan's axis: now, the middle, the end.
    pub axis: [String; 3],
}

impl ListPage for QueuePage {
    fn list(&self) -> askama::Result<String> {
        self.as_queue().render()
    }

    fn stream(&self) -> Option<&str> {
        self.f.live.as_deref()
    }
}

pub struct QueueRow {
    pub id: String,
    /// What a mark sends: the session, or all that wait of its launch.
    pub mark: String,
    /// How many sessions the row stands for.
    pub count: u64,
    pub position: String,
    pub hue: u8,
    pub href: String,
    pub name: String,
    /// `and 497 more replicas`; none for one session.
    pub replicas: Option<String>,
    pub state: String,
    pub since: String,
    pub why: String,
    /// What else is in the way, and how much more than that.
    pub besides: Vec<String>,
    pub facts: String,
    pub hint: Option<String>,
    /// Smaller requests that would start now.
    pub instead: Vec<presenter::SmallerRequest>,
    pub held: bool,
    pub may_change: bool,
}

pub struct PlanRow {
    pub href: String,
    pub name: String,
    pub hue: u8,
    pub runs: bool,
    pub from: String,
    pub until: String,
    pub why: String,
    /// Where its bar begins and how long it is, in thousandths of the plan.
    pub at: u32,
    pub length: u32,
    /// It has no known end.
    pub open: bool,
}

/// Where the list is.
const PATH: &str = "/queue";
/// Launches of one page: each says in up to six lines what it waits for. Higher: a page grows past three thousand pixels.
const LAUNCHES: u32 = 15;
/// The parts of an address that choose rows.
const FILTERS: [&str; 2] = ["q", "why"];

type AskedQueue = Query<Vec<(String, String)>>;

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/queue", get(show))
        .route("/queue/live", get(live))
        .route("/queue.csv", get(export))
        .route("/queue/cancel", get(cancel::ask).post(cancel::cancel))
}

/// Least time that the plan shows: a plan of a minute would move all the time.
const MIN_PLAN: u64 = 3600;

/// `GET /queue`: the page, or the list alone for the page's own script.
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedQueue,
) -> Response {
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = read(&console, &visit, &caller, &headers, &asked).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

/// `GET /queue/live`
async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedQueue,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let (headers, asked) = (headers.clone(), asked.clone());
        async move {
            let page = read(&console, &visit, &caller, &headers, &asked)
                .await
                .ok()?;
            Some(vec![
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("shown", page.as_count().render().ok()?),
                ("queue", page.as_queue().render().ok()?),
                ("room", page.as_room().render().ok()?),
                ("plan", page.as_plan().render().ok()?),
            ])
        }
    })
}

/// `GET /queue.csv`: the launches that the filter lets through in the order of the queue, at most 500.
async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): AskedQueue,
) -> Response {
    let t = visit.text;
    let place = TableState::read(PATH, &FILTERS, &asked);
    let most = MAX_QUEUE_EXPORTED;
    let queue = sessions::queue_table(&console.server, &caller, wanted(&place), 1, most);
    let queue = match queue.await {
        Ok(queue) => queue,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let since = t.table_in_utc(t.queue_waits_since());
    let heads = [
        t.queue_place(),
        t.sessions_name(),
        t.queue_sessions(),
        t.events_user(),
        t.sessions_image(),
        t.queue_asked(),
        t.queue_why(),
        since.as_str(),
    ]
    .map(str::to_owned);
    let rows: Vec<Vec<TableCell>> = queue
        .launches
        .iter()
        .map(|launch| {
            let (session, answer) = (&launch.first.session, &launch.first.why);
            let position = answer.queue_position.map(|position| position.to_string());
            let asked = presenter::asked(t, &session.resources, SharePolicy::default());
            [
                position.unwrap_or_default(),
                session.name.to_string(),
                launch.replicas.to_string(),
                session.owner.name.to_string(),
                session.image.clone(),
                asked,
                presenter::sentence(t, &visit.clock, answer),
                session.created_at.to_string(),
            ]
            .map(TableCell::text)
            .into()
        })
        .collect();
    csv(&visit, "queue", &heads, &rows)
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Queue);
    responses::failure(console, visit, Some(frame), failure)
}

/// The page with these words on top.
pub(super) async fn with_alert(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    alert: Alert,
) -> Result<QueuePage, Failure> {
    let page = read(console, visit, caller, &HeaderMap::new(), &[]).await?;
    Ok(QueuePage {
        alert: Some(alert),
        ..page
    })
}

fn wanted(state: &TableState) -> QueueFilter {
    QueueFilter {
        q: state.filter("q").to_owned(),
        why: state.filter("why").to_owned(),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<QueuePage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.rows = LAUNCHES;
    let (number, limit) = (state.page as usize, LAUNCHES as usize);
    let queue = sessions::queue_table(&console.server, caller, wanted(&state), number, limit);
    let queue = queue.await?;
    // The last page where a later one was asked for.
    state.page = u32::try_from(queue.page).unwrap_or(1);
    let seen = sessions::overview(&console.server, caller).await?;
    let counts = seen.counts;
    let several = seen.machines.len() > 1;
    let devices = devices::list(&console.server, caller).await?;
    let waiting_owners = queue.launches.iter().map(|launch| &launch.first.session);
    let waiting_owners = waiting_owners.map(|session| session.owner.name.as_str());
    let planned = queue.plan.iter().map(|planned| planned.owner.as_str());
    let hues = Hues::with(&seen.machines, waiting_owners.chain(planned));
    let small = gpus::Drawing {
        hues: Some(&hues),
        ..gpus::Drawing::small()
    };
    let writable = reach(&caller.subject, Permission::SessionsWrite);
    let rows = queue.launches.len() as u64;
    let time = PlanTime::of(&queue.plan, now);
    Ok(QueuePage {
        t,
        f: PageLayout {
            sessions: counts.scheduled
                + counts.preparing
                + counts.running
                + counts.stopping
                + counts.pending,
            waiting: counts.pending,
            live: Some(state.beside("/queue/live")),
            ..layout(console, visit, caller, Nav::Queue)
        },
        alert: None,
        simulated: devices.simulated,
        shown: shown(t, &queue),
        others: (queue.others > 0).then(|| match queue.sessions {
            0 => t.queue_others_alone(queue.others as u64),
            _ => t.queue_others(queue.others as u64),
        }),
        waiting: queue
            .launches
            .iter()
            .map(|launch| waiting(t, visit, &hues, launch, devices.policy, &writable, now))
            .collect(),
        filter: filter(visit, headers, &state),
        unmatched: rows == 0 && state.filtered(),
        may_cancel: caller.subject.can(Permission::SessionsWrite),
        pager: Pager {
            csv: (rows > 0).then(|| state.beside("/queue.csv")),
            ..foot(t, &state, rows, queue.of as u64)
        },
        room: devices
            .items
            .iter()
            .map(|gpu| gpus::row(t, gpu, &small))
            .chain(seen.machines.iter().flat_map(|machine| {
                presenter::small_racks(t, &hues, machine, None).map(|row| BarRow {
                    name: if several {
                        format!("{} {}", machine.name, row.name)
                    } else {
                        row.name.clone()
                    },
                    ..row
                })
            }))
            .collect(),
        plan: queue
            .plan
            .iter()
            .map(|planned| plan_row(t, visit, &hues, planned, &time, now))
            .collect(),
        plan_more: match queue.unplanned {
            0 => String::new(),
            more => t.queue_plan_more(more as u64),
        },
        order: order_sentence(t, queue.order),
        backfill: backfill_sentence(t, queue.backfill),
        own_rules: queue.own_rules,
        axis: [0, 500, 1000].map(|part| match part {
            0 => t.queue_now().to_owned(),
            part => visit.clock.near(time.at(part), now),
        }),
    })
}

fn filter(visit: &RequestContext, headers: &HeaderMap, state: &TableState) -> FilterBar {
    let t = visit.text;
    let here = state.address();
    let shipped = [
        (t.queue_view_all(), ""),
        (t.queue_view_held(), "why=held"),
        (t.queue_view_never(), "why=never"),
    ]
    .map(|(name, query)| (name.to_owned(), query.to_owned()));
    let choice = |value, words: &str| Choice::new(value, words, state.filter("why") == value);
    let examples = [
        ("train", t.queue_help_word()),
        ("owner:mina", t.filter_help_owner()),
        ("name:train", t.filter_help_name()),
    ]
    .map(|(typed, finds)| FilterExample {
        typed,
        finds: finds.to_owned(),
    });
    FilterBar {
        t,
        module: super::assets::address("table.js"),
        table: "queue",
        path: PATH,
        q: state.filter("q").to_owned(),
        hint: t.queue_filter_hint().to_owned(),
        label: t.queue_filter().to_owned(),
        pickers: vec![FilterPicker {
            name: "why",
            label: t.queue_why().to_owned(),
            choices: vec![
                choice("", t.queue_any_reason()),
                choice("room", t.queue_for_room()),
                choice("scheduled", t.queue_scheduled()),
                choice("depends", t.queue_depends()),
                choice("held", t.queue_held()),
                choice("never", t.preview_never()),
            ],
        }],
        hidden: Vec::new(),
        columns: Vec::new(),
        views: view_links(headers, visit, "queue", PATH, &here, shipped.into()),
        examples: examples.into(),
        target: "queue",
        here,
    }
}

/// Which session of the queue is next, in one sentence.
fn order_sentence(t: Text, order: QueueOrder) -> &'static str {
    match order {
        QueueOrder::Turns => t.queue_order_turns(),
        QueueOrder::Fifo => t.queue_order_fifo(),
        QueueOrder::Lifo => t.queue_order_lifo(),
        QueueOrder::Drf => t.queue_order_drf(),
        QueueOrder::Fair => t.queue_order_fair(),
    }
}

/// Which session may start before it, in another.
fn backfill_sentence(t: Text, backfill: BackfillMode) -> &'static str {
    match backfill {
        BackfillMode::Strict => t.queue_backfill_strict(),
        BackfillMode::Timed => t.queue_backfill_timed(),
    }
}

/// The foot counts launches, and says so: the line above the list counts sessions.
fn foot(t: Text, state: &TableState, rows: u64, launches: u64) -> Pager {
    let foot = Pager::new(t, state, rows, launches);
    let range = match foot.range.as_str() {
        "" => String::new(),
        range => t.queue_launches(range),
    };
    Pager { range, ..foot }
}

/// How many of the sessions that wait stand on this page.
fn shown(t: Text, queue: &QueueView) -> String {
    let here: usize = queue.launches.iter().map(|launch| launch.replicas).sum();
    match queue.sessions {
        0 => String::new(),
        all if here == all => t.queue_count(all as u64),
        all => t.queue_count_of(here as u64, all as u64),
    }
}

/// What the width of the plan stands for. It moves in steps of a hundredth, so that a page at rest stays as it is.
struct PlanTime {
    begin: Timestamp,
    seconds: u64,
}

impl PlanTime {
    fn of(plan: &[PlannedSession], now: Timestamp) -> Self {
        let known = plan.iter().flat_map(|planned| {
            let starts = (!planned.runs).then_some(planned.from);
            [planned.until, starts]
        });
        let last = known.flatten().max().unwrap_or(now);
        // Room behind the last mark, in whole hours.
        let ahead = last.seconds_since(now) * 21 / 20;
        let seconds = ahead.div_ceil(MIN_PLAN).max(1) * MIN_PLAN;
        let step = i64::try_from(seconds * 10).unwrap_or(i64::MAX);
        let begin = now.as_millis().div_euclid(step) * step;
        Self {
            begin: Timestamp::from_millis(begin),
            seconds,
        }
    }

    /// The moment that is so many thousandths of the way.
    fn at(&self, part: u32) -> Timestamp {
        let seconds = self.seconds * u64::from(part) / 1000;
        self.begin.plus_seconds(seconds)
    }

    /// How many thousandths of the way a moment is.
    fn part(&self, at: Timestamp) -> u32 {
        let part = at.seconds_since(self.begin) * 1000 / self.seconds.max(1);
        u32::try_from(part).unwrap_or(1000).min(1000)
    }
}

fn plan_row(
    t: Text,
    visit: &RequestContext,
    hues: &Hues,
    planned: &PlannedSession,
    time: &PlanTime,
    now: Timestamp,
) -> PlanRow {
    let at = match planned.runs {
        true => 0,
        false => time.part(planned.from),
    };
    let end = planned.until.map_or(1000, |until| time.part(until));
    let when = |at| visit.clock.near(at, now);
    PlanRow {
        href: format!("/sessions/{}", planned.id),
        name: planned.name.to_string(),
        hue: hues.get(&planned.owner),
        runs: planned.runs,
        from: match planned.runs {
            true => t.queue_runs().to_owned(),
            false => when(planned.from),
        },
        until: planned
            .until
            .map_or_else(|| t.queue_no_end().to_owned(), when),
        why: match (&planned.after, planned.runs) {
            (Some(after), _) => t.queue_after(after.as_str()),
            (None, true) => match planned.until {
                Some(_) => t.queue_limit_reached().to_owned(),
                None => t.queue_no_limit().to_owned(),
            },
            (None, false) if planned.from <= now => t.queue_starts_now().to_owned(),
            (None, false) => t.queue_after_others().to_owned(),
        },
        at,
        length: end.saturating_sub(at).max(4),
        open: planned.until.is_none(),
    }
}

fn waiting(
    t: Text,
    visit: &RequestContext,
    hues: &Hues,
    launch: &WaitingLaunch,
    policy: SharePolicy,
    writable: &Reach,
    now: Timestamp,
) -> QueueRow {
    let (session, answer): (&SessionView, &Explanation) =
        (&launch.first.session, &launch.first.why);
    let may_write = writable.covers(&session.scope());
    let alone = launch.replicas == 1 && session.state == SessionState::Pending;
    QueueRow {
        id: session.id.to_string(),
        mark: match launch.replicas {
            1 => session.id.to_string(),
            _ => format!("all:{}", session.id),
        },
        count: launch.replicas as u64,
        position: answer
            .queue_position
            .map_or_else(|| "–".to_owned(), |position| position.to_string()),
        hue: hues.get(session.owner.name.as_str()),
        href: format!("/sessions/{}", session.id),
        name: session.name.to_string(),
        replicas: launch
            .last
            .as_ref()
            .map(|last| t.queue_replicas(launch.replicas as u64 - 1, last.as_str())),
        state: presenter::queue_word(t, answer).to_owned(),
        since: t.queue_since(visit.clock.near(session.created_at, now)),
        why: presenter::sentence(t, &visit.clock, answer),
        besides: besides(t, visit, answer),
        facts: {
            let asked = presenter::asked(t, &session.resources, policy);
            let facts = t.queue_asks(session.owner.name.as_str(), asked);
            let group = session.group.as_ref().map(ToString::to_string);
            let priority = session.priority != USUAL_PRIORITY;
            let priority = priority.then(|| t.queue_priority(session.priority));
            let all = [Some(facts), group, priority].into_iter().flatten();
            all.collect::<Vec<_>>().join(" · ")
        },
        hint: presenter::outlook(t, &visit.clock, answer, now),
        instead: match may_write && alone {
            true => presenter::smaller(t, answer, session, policy),
            false => Vec::new(),
        },
        held: session.held_by.is_some(),
        may_change: may_write,
    }
}

/// Reasons beside the first that a row names. Higher: rows of a large site are pages long.
const MAX_BESIDES: usize = 3;

/// What is in the way beside the first reason.
fn besides(t: Text, visit: &RequestContext, answer: &Explanation) -> Vec<String> {
    let others = answer.blockers.get(1..).unwrap_or_default();
    let mut all: Vec<String> = others
        .iter()
        .take(MAX_BESIDES)
        .map(|other| presenter::blocker(t, &visit.clock, other))
        .collect();
    if others.len() > MAX_BESIDES {
        all.push(t.attention_more(others.len() - MAX_BESIDES));
    }
    all
}

#[cfg(test)]
mod tests {
    use rules::names::{SessionId, SessionName};

    use super::*;
    use crate::doors::text::Language;

    fn planned(runs: bool, from: u64, until: Option<u64>) -> PlannedSession {
        let at = |seconds| Timestamp::from_millis(1_000_000_000).plus_seconds(seconds);
        PlannedSession {
            id: SessionId(uuid::Uuid::nil()),
            name: SessionName::parse("a").expect("a name"),
            owner: "kim".into(),
            runs,
            from: at(from),
            until: until.map(at),
            after: None,
        }
    }

    #[test]
    fn the_foot_of_the_queue_says_that_it_counts_launches() {
        for (language, told) in [
            (Language::English, "Launches 1–50 of 52"),
            (Language::Korean, "시작 요청"),
        ] {
            let t = Text::new(language);
            let state = TableState::read(PATH, &FILTERS, &[]);
            let range = foot(t, &state, 50, 52).range;
            assert!(range.contains(told), "{range}");
            assert_eq!(foot(t, &state, 0, 0).range, "", "nothing waits");
        }
    }

    #[test]
    fn a_plan_holds_all_that_is_known_and_moves_in_steps() {
        let now = Timestamp::from_millis(1_000_000_000);
        let plan = [
            planned(true, 0, Some(1800)),
            planned(false, 1800, Some(9000)),
            planned(true, 0, None),
        ];
        let time = PlanTime::of(&plan, now);
        assert_eq!(time.seconds, 3 * 3600);
        assert!(time.at(1000) >= plan[1].until.expect("an end"));
        assert!(time.begin <= now && now.seconds_since(time.begin) <= time.seconds / 100);
        let soon = PlanTime::of(&plan, now.plus_seconds(1));
        assert_eq!(time.begin, soon.begin, "a second later it is the same");
        assert_eq!(PlanTime::of(&[], now).seconds, MIN_PLAN);
        assert!(time.part(plan[0].until.expect("an end")) < time.part(plan[1].until.expect("one")));
    }
}
