//! `/queue`: what waits, in order and why, and a plan of what ends and starts when. Changes to a waiting request are
//! in `waiting_request`.

use api::sessions::SessionView;
use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::placement::explain::Explanation;
use rules::policy::SharePolicy;
use rules::session::SessionState;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::gpus as devices;
use server::actions::sessions::{self, PlannedSession, QUEUE_PAGE, QueueView, WaitingLaunch};

use super::authentication::PageCaller;
use super::components::{self, Alert, BarRow};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
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
    /// Addresses of the pages before and behind.
    pub newer: Option<String>,
    pub older: Option<String>,
    pub room: Vec<BarRow>,
    pub plan: Vec<PlanRow>,
    /// Words under the plan's axis: now, the middle, the end.
    pub axis: [String; 3],
}

pub struct QueueRow {
    pub id: String,
    pub position: String,
    pub hue: u8,
    pub href: String,
    pub name: String,
    /// `and 497 more copies`; none for one session.
    pub copies: Option<String>,
    pub state: String,
    pub since: String,
    pub why: String,
    pub facts: String,
    pub hint: Option<String>,
    /// A smaller request that would start now.
    pub instead: Option<SmallerRequest>,
    pub held: bool,
    pub may_change: bool,
}

/// What a click sends to have the session start now.
pub struct SmallerRequest {
    pub words: String,
    pub cpu: String,
    pub memory: String,
    /// Empty where the share stays.
    pub gpu: String,
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

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct QueueQuery {
    page: Option<usize>,
}

/// Least time that the plan shows: a plan of a minute would move all the time.
const MIN_PLAN: u64 = 3600;

/// `GET /queue`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<QueueQuery>,
) -> Response {
    match read(&console, &visit, &caller, asked.page).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => {
            let frame = layout(&console, &visit, &caller, Nav::Queue);
            responses::failure(&console, &visit, Some(frame), &failure)
        }
    }
}

/// `GET /queue/live`
pub async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<QueueQuery>,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let number = asked.page;
        async move {
            let page = read(&console, &visit, &caller, number).await.ok()?;
            Some(vec![
                ("counts", page.f.counts()),
                ("shown", page.as_count().render().ok()?),
                ("queue", page.as_queue().render().ok()?),
                ("room", page.as_room().render().ok()?),
                ("plan", page.as_plan().render().ok()?),
            ])
        }
    })
}

/// The page with these words on top.
pub(super) async fn with_alert(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    alert: Alert,
) -> Result<QueuePage, Failure> {
    let page = read(console, visit, caller, None).await?;
    Ok(QueuePage {
        alert: Some(alert),
        ..page
    })
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    number: Option<usize>,
) -> Result<QueuePage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let queue = sessions::queue_page(&console.server, caller, number.unwrap_or(1)).await?;
    let seen = sessions::overview(&console.server, caller).await?;
    let counts = seen.counts;
    let several = seen.machines.len() > 1;
    let devices = devices::list(&console.server, caller).await?;
    let small = gpus::Drawing::small();
    let may_write = caller
        .subject
        .can(rules::permissions::Permission::SessionsWrite);
    let address = |page: usize| format!("/queue?page={page}");
    let pages = queue.of.div_ceil(QUEUE_PAGE);
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
            live: Some(format!("/queue/live?page={}", queue.page)),
            ..layout(console, visit, caller, Nav::Queue)
        },
        alert: None,
        simulated: devices.simulated,
        shown: shown(t, &queue),
        others: (queue.others > 0).then(|| t.queue_others(queue.others as u64)),
        waiting: queue
            .launches
            .iter()
            .map(|launch| waiting(t, visit, launch, devices.policy, may_write, now))
            .collect(),
        newer: (queue.page > 1).then(|| address(queue.page - 1)),
        older: (queue.page < pages).then(|| address(queue.page + 1)),
        room: devices
            .items
            .iter()
            .map(|gpu| gpus::row(t, gpu, &small))
            .chain(seen.machines.iter().flat_map(|machine| {
                presenter::small_racks(t, machine, None).map(|row| BarRow {
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
            .map(|planned| plan_row(t, visit, planned, &time, now))
            .collect(),
        axis: [0, 500, 1000].map(|part| match part {
            0 => t.queue_now().to_owned(),
            part => visit.clock.near(time.at(part), now),
        }),
    })
}

/// How many of those that wait stand on this page.
fn shown(t: Text, queue: &QueueView) -> String {
    let here: usize = queue.launches.iter().map(|launch| launch.copies).sum();
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
        hue: components::hue(&planned.owner),
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
    launch: &WaitingLaunch,
    policy: SharePolicy,
    may_write: bool,
    now: Timestamp,
) -> QueueRow {
    let (session, answer): (&SessionView, &Explanation) =
        (&launch.first.session, &launch.first.why);
    let alone = launch.copies == 1 && session.state == SessionState::Pending;
    QueueRow {
        id: session.id.to_string(),
        position: answer
            .queue_position
            .map_or_else(|| "–".to_owned(), |position| position.to_string()),
        hue: components::hue(session.owner.name.as_str()),
        href: format!("/sessions/{}", session.id),
        name: session.name.to_string(),
        copies: launch
            .last
            .as_ref()
            .map(|last| t.queue_copies(launch.copies as u64 - 1, last.as_str())),
        state: presenter::queue_word(t, answer).to_owned(),
        since: t.queue_since(visit.clock.near(session.created_at, now)),
        why: presenter::sentence(t, &visit.clock, answer),
        facts: t.queue_asks(
            session.owner.name.as_str(),
            presenter::asked(t, &session.resources, policy),
        ),
        hint: presenter::outlook(t, &visit.clock, answer, now),
        instead: answer
            .alternatives
            .first()
            .filter(|_| may_write && alone)
            .map(|other| SmallerRequest {
                words: presenter::asked(t, &other.demand, policy),
                cpu: other.demand.cpu.to_string(),
                memory: format!("{}b", other.demand.memory.0),
                gpu: match other.demand.gpu == session.resources.gpu {
                    true => String::new(),
                    false => other.demand.gpu.to_string(),
                },
            }),
        held: session.held_by.is_some(),
        may_change: may_write,
    }
}

#[cfg(test)]
mod tests {
    use rules::names::{SessionId, SessionName};

    use super::*;

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
