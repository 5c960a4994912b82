//! `/reservations`: what is booked of machines, as a week and as a list, what is asked for, and the forms that book, change
//! and decide. Decides nothing.

use std::cmp::Reverse;

use api::reservations::{
    NewReservationBody, ReservationPatchBody, ReservationTimeView, ReservationView,
    ReservedResources,
};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime};
use rules::holiday::{CalendarDay, Holidays};
use rules::object::Object;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::reservation::{BeforeReservation, ReservationState};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::holidays;
use server::actions::presets;
use server::actions::reservations::{self, ListedReservation};

use super::authentication::PageCaller;
use super::choice_field::ChoiceField;
use super::components::{self, Choice, FormFieldError};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::{LocalClock, RequestContext};
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, ROWS_BY_FORM, RowAction, TableCell,
    TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::typed::point;
use super::{PagesContext, launch, layout, presenter, responses};
use crate::doors::text::{Language, Text, codes};

const PATH: &str = "/reservations";
const FILTERS: [&str; 1] = ["q"];
/// Reservations that a day of the week shows; the list below has them all.
const MAX_OF_A_DAY: usize = 8;
/// Requests that an administrator has forms for at once, those that begin first. Higher: leads who ask for much make the
/// page long. Lower: an administrator decides in more steps.
const MAX_REQUESTS_SHOWN: usize = 25;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/reservations.html", blocks = ["list"])]
pub struct ReservationsPage {
    pub t: Text,
    pub f: PageLayout,
    /// None for those who only look.
    pub form: Option<ReservationForm>,
    /// That there are as many as there may be, instead of the form; empty: there is room.
    pub full: String,
    /// There is nothing to list yet, or the form was refused.
    pub is_form_open: bool,
    /// Those that the reader decides, the first of them.
    pub requests: Vec<RequestRow>,
    /// How many more there are.
    pub more_requests: u64,
    pub week: ReservedWeek,
    pub filter: FilterBar,
    pub table: DataTable,
}

impl ListPage for ReservationsPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/reservation.html")]
pub struct ReservationPage {
    pub t: Text,
    pub f: PageLayout,
    pub name: String,
    pub holder: String,
    pub here: String,
    /// Something is left to cancel.
    pub is_open: bool,
    pub form: ReservationForm,
}

/// A request with the form that decides it.
pub struct RequestRow {
    pub id: String,
    pub name: String,
    /// When, how much, for whom.
    pub facts: String,
    /// Who asked; empty once that account is gone.
    pub asked: String,
    /// Where the decision is sent.
    pub action: String,
}

/// A week of reservations, Monday first.
pub struct ReservedWeek {
    pub title: String,
    /// The weeks before and after, as addresses.
    pub earlier: String,
    pub later: String,
    pub days: Vec<ReservedDay>,
}

/// One day of it.
pub struct ReservedDay {
    pub title: String,
    pub is_today: bool,
    /// Its name where it is off; empty on other days.
    pub holiday: String,
    pub items: Vec<ReservedHours>,
    /// Those of the day that are not shown.
    pub more: u64,
}

/// What one reservation takes of a day.
pub struct ReservedHours {
    /// `09:00–12:00`
    pub hours: String,
    pub name: String,
    pub amount: String,
    /// `ok`, `warn` or nothing.
    pub tone: &'static str,
    pub state: &'static str,
}

/// The fields of a reservation, as they are or as they were typed.
pub struct ReservationForm {
    /// Where it is sent.
    pub action: String,
    pub typed: TypedReservation,
    /// Empty where the holder stays.
    pub holders: ChoiceField,
    pub befores: Vec<Choice>,
    /// What a lead should know of the quotas of their projects; empty for administrators.
    pub quotas: Vec<String>,
    /// In which zone times are typed, in words.
    pub zone: String,
    pub is_new: bool,
}

/// What a form sent.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct TypedReservation {
    pub name: String,
    /// `project:DOMAIN/NAME`, `user:NAME` or `maintenance`.
    pub holder: String,
    pub gpu: String,
    pub cpu: String,
    pub memory: String,
    pub from: String,
    pub to: String,
    pub repeats: String,
    /// `1`: weeks that begin on a holiday are left out.
    pub skip_holidays: String,
    pub before: String,
    /// Of the row that the form shows; empty for a new one.
    pub generation: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/reservations", get(list).post(book))
        .route("/reservations/{id}", get(show).post(change))
        .route("/reservations/{id}/cancel", get(ask_cancel).post(cancel))
        .route("/reservations/{id}/decide", post(decide))
        .route(
            "/reservations/{id}/withdraw",
            get(ask_withdraw).post(withdraw),
        )
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Reservations);
    responses::failure(console, visit, Some(frame), failure)
}

fn tone(state: ReservationState) -> &'static str {
    match state {
        ReservationState::Active => "ok",
        ReservationState::Warned | ReservationState::Asked => "warn",
        _ => "",
    }
}

fn holder(t: Text, one: &ReservationView) -> String {
    match (&one.project, &one.user) {
        (Some(project), _) => t.presets_of_project(project.as_str()),
        (None, Some(user)) => t.reservations_of_user(user.as_str()),
        (None, None) => t.reservations_of_maintenance().to_owned(),
    }
}

/// `12 GPUs · 8 CPU · 64 GiB`, only what there is.
fn amount(t: Text, of: &ReservedResources) -> String {
    let mut all = Vec::new();
    if of.gpu > GpuShare::ZERO {
        all.push(presenter::gpu_amount(t, of.gpu));
    }
    if of.cpu > CpuShare::ZERO {
        all.push(t.presets_cores(of.cpu));
    }
    if of.memory > Bytes::ZERO {
        all.push(components::size(of.memory.0));
    }
    all.join(" · ")
}

/// `GET /reservations`: the page, or the list alone for the page's own script.
async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let place = TableState::read(PATH, &FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = listed(&console, &visit, &caller, &headers, &asked, None).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

async fn listed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
    refused: Option<TypedReservation>,
) -> Result<ReservationsPage, Failure> {
    let t = visit.text;
    let mut known = reservations::listed(&console.server, caller).await?;
    let may_write = reservations::may_write(caller);
    let (requests, more_requests) = requests(visit, &known);
    let none = known.is_empty();
    let now = visit.clock.write(console.server.clock().now());
    let off = holidays::own(&console.server, caller)
        .await
        .unwrap_or_default();
    let week = week(t, &visit.clock, (&known[..], &off), asked, &now);
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.rows = ROWS_BY_FORM;
    state.choose_columns("reservations", &columns, asked, headers, visit);
    for word in state.filter("q").to_lowercase().split_whitespace() {
        known.retain(|one| found(&one.reservation, word));
    }
    match state.sort.as_str() {
        "name" => known.sort_by_cached_key(|one| one.reservation.name.to_string()),
        "-name" => known.sort_by_cached_key(|one| Reverse(one.reservation.name.to_string())),
        "-from" => known.reverse(),
        _ => {}
    }
    let total = known.len() as u64;
    let page = state.page_of(known);
    let rows = page.iter().map(|one| row(visit, &state, one));
    let rows = rows.collect();
    let empty = match none {
        true => EmptyTable::without_rows(
            "hourglass",
            t.reservations_none(),
            t.reservations_none_lead(),
        ),
        false => EmptyTable::no_match(t, t.reservations_no_match(), PATH),
    };
    let words = FilterWords {
        table: "reservations",
        path: PATH,
        hint: t.reservations_filter_hint(),
        label: t.reservations_filter(),
        shipped: &[
            (t.reservations_view_all(), ""),
            (t.reservations_view_active(), "q=state%3Aactive"),
            (t.reservations_requests(), "q=state%3Aasked"),
        ],
        examples: &[
            ("lecture", t.reservations_help_word()),
            ("name:lecture", t.filter_help_name()),
            ("state:booked", t.reservations_help_state()),
        ],
    };
    // What was typed and refused is shown again.
    let full = match may_write && refused.is_none() {
        true => reservations::no_room(&console.server, caller).await?,
        false => None,
    };
    let form = match may_write {
        true => Some(new_form(console, visit, caller, refused.clone()).await?),
        false => None,
    };
    Ok(ReservationsPage {
        t,
        f: layout(console, visit, caller, Nav::Reservations),
        is_form_open: none || refused.is_some(),
        full: full.map_or_else(String::new, |refusal| codes::refusal(t, &refusal)),
        form,
        requests,
        more_requests,
        week,
        filter: filter_bar(visit, headers, &state, &columns, &words),
        table: DataTable::new(t, &state, &columns, "from", rows, total, empty),
    })
}

fn row(visit: &RequestContext, state: &TableState, listed: &ListedReservation) -> TableLine {
    let t = visit.text;
    let one = &listed.reservation;
    let action = match (listed.cancels, listed.withdraws) {
        (true, _) => Some(("cancel", t.reservations_cancel_of(one.name.as_str()))),
        (false, true) => Some(("withdraw", t.reservations_withdraw_of(one.name.as_str()))),
        (false, false) => None,
    };
    TableLine {
        id: format!("s-{}", one.id),
        mark: None,
        cells: state
            .columns
            .iter()
            .map(|key| cell(visit, key, listed))
            .collect(),
        action: action.map(|(verb, label)| RowAction {
            href: format!("{PATH}/{}/{verb}", one.id),
            icon: "trash-2",
            label,
            dialog: true,
        }),
    }
}

/// The first of those that the reader decides, each with its form, and how many more there are.
fn requests(visit: &RequestContext, known: &[ListedReservation]) -> (Vec<RequestRow>, u64) {
    let t = visit.text;
    let is_open = |listed: &&ListedReservation| {
        listed.decides && listed.reservation.state == ReservationState::Asked
    };
    let open: Vec<&ListedReservation> = known.iter().filter(is_open).collect();
    let more = open.len().saturating_sub(MAX_REQUESTS_SHOWN) as u64;
    let open = open.into_iter().take(MAX_REQUESTS_SHOWN).map(|listed| {
        let one = &listed.reservation;
        let asked = one.asked_by.as_deref();
        RequestRow {
            id: one.id.to_string(),
            name: one.name.to_string(),
            facts: facts(visit, one),
            asked: asked.map_or_else(String::new, |name| t.reservations_asked_by(name)),
            action: format!("{PATH}/{}/decide", one.id),
        }
    });
    (open.collect(), more)
}

/// When it is, how much, for whom; how many weeks.
fn facts(visit: &RequestContext, one: &ReservationView) -> String {
    let t = visit.text;
    let mut all = vec![
        visit.clock.period(one.from, one.to),
        amount(t, &one.resources),
        holder(t, one),
    ];
    if one.times.len() > 1 {
        all.push(t.reservations_weeks(one.times.len() as u64));
    }
    all.join(" · ")
}

/// Whether a word of the filter finds the reservation: by name or holder, or by `name:` or `state:`.
fn found(one: &ReservationView, word: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(word);
    match word.split_once(':') {
        Some(("state", wanted)) => one.state.word() == wanted,
        Some(("name", name)) => one.name.as_str().contains(name),
        _ => {
            let holders = [&one.project, &one.user];
            has(one.name.as_str()) || holders.into_iter().flatten().any(|name| has(name))
        }
    }
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("from", t.reservations_time())
            .sorted_by("from")
            .class("why"),
        TableColumn::new("amount", t.presets_amounts()).class("below"),
        TableColumn::new("holder", t.reservations_holder()).class("below"),
        TableColumn::new("state", t.reservations_state()),
    ]
}

fn cell(visit: &RequestContext, key: &str, listed: &ListedReservation) -> TableCell {
    let t = visit.text;
    let one = &listed.reservation;
    let is_request = one.state == ReservationState::Asked;
    match key {
        "name" => {
            let text = one.name.to_string();
            let note = match one.times.len() {
                1 => String::new(),
                weeks => t.reservations_weeks(weeks as u64),
            };
            match listed.decides && !is_request {
                true => TableCell::Link {
                    href: format!("{PATH}/{}", one.id),
                    text,
                    note,
                },
                false => TableCell::Text { text, note },
            }
        }
        "from" => TableCell::text(visit.clock.period(one.from, one.to)),
        "amount" => TableCell::text(amount(t, &one.resources)),
        "holder" => TableCell::text(holder(t, one)),
        "state" => TableCell::Pill {
            tone: tone(one.state),
            text: presenter::reservation_word(t, one.state).to_owned(),
            note: match (&one.reason, &one.asked_by) {
                (Some(reason), _) => reason.clone(),
                (None, Some(name)) if is_request => t.reservations_asked_by(name.as_str()),
                (None, _) => String::new(),
            },
        },
        _ => TableCell::Empty,
    }
}

fn local(typed: &str) -> DateTime {
    typed.parse().unwrap_or_default()
}

fn monday(day: Date) -> Date {
    let back = i64::from(day.weekday().to_monday_zero_offset());
    day.checked_sub(back.days()).unwrap_or(day)
}

fn day_title(t: Text, day: Date) -> String {
    let weekday = match day.weekday().to_monday_zero_offset() {
        0 => t.reservations_monday(),
        1 => t.reservations_tuesday(),
        2 => t.reservations_wednesday(),
        3 => t.reservations_thursday(),
        4 => t.reservations_friday(),
        5 => t.reservations_saturday(),
        _ => t.reservations_sunday(),
    };
    format!("{weekday} {}", day.day())
}

/// The week that is asked for, or that of now, with what is or was reserved on each day, by its begin. `now` is local.
fn week(
    t: Text,
    clock: &LocalClock,
    (all, off): (&[ListedReservation], &Holidays),
    asked: &[(String, String)],
    now: &str,
) -> ReservedWeek {
    let today = local(now).date();
    let named = asked.iter().find(|(key, _)| key == "week");
    let named = named.and_then(|(_, day)| day.parse::<Date>().ok());
    let begin = monday(named.unwrap_or(today));
    let shift = |days: i64| begin.checked_add(days.days()).unwrap_or(begin);
    let shown = |state: ReservationState| state.counts() || state == ReservationState::Over;
    let spans: Vec<(DateTime, DateTime, &ReservationView, ReservationState)> = all
        .iter()
        .map(|listed| &listed.reservation)
        .flat_map(|one| one.times.iter().map(move |time| (one, time)))
        .filter(|(_, time)| shown(time.state))
        .map(|(one, time)| {
            let from = local(&clock.write(time.from));
            (from, local(&clock.write(time.to)), one, time.state)
        })
        .collect();
    let day = |offset: i64| {
        let date = shift(offset);
        let (midnight, next) = (
            date.to_datetime(jiff::civil::Time::midnight()),
            shift(offset + 1),
        );
        let next = next.to_datetime(jiff::civil::Time::midnight());
        let mut here: Vec<_> = spans
            .iter()
            .filter(|(from, to, _, _)| *from < next && *to > midnight)
            .collect();
        here.sort_by_key(|(from, _, one, _)| (*from, one.id));
        let items = here
            .iter()
            .take(MAX_OF_A_DAY)
            .map(|(from, to, one, state)| {
                let begins = match *from < midnight {
                    true => "00:00".to_owned(),
                    false => from.strftime("%H:%M").to_string(),
                };
                let ends = match *to >= next {
                    true => "24:00".to_owned(),
                    false => to.strftime("%H:%M").to_string(),
                };
                ReservedHours {
                    hours: format!("{begins}–{ends}"),
                    name: one.name.to_string(),
                    amount: amount(t, &one.resources),
                    tone: tone(*state),
                    state: presenter::reservation_word(t, *state),
                }
            });
        ReservedDay {
            title: day_title(t, date),
            is_today: date == today,
            holiday: CalendarDay::of(date)
                .and_then(|day| off.get(&day))
                .map_or_else(String::new, |name| match name.is_empty() {
                    true => t.holidays_one().to_owned(),
                    false => name.clone(),
                }),
            items: items.collect(),
            more: here.len().saturating_sub(MAX_OF_A_DAY) as u64,
        }
    };
    ReservedWeek {
        title: match t.language {
            Language::English => begin.strftime("%-d %b %Y").to_string(),
            Language::Korean => begin.strftime("%Y년 %-m월 %-d일").to_string(),
        },
        earlier: format!("{PATH}?week={}", shift(-7)),
        later: format!("{PATH}?week={}", shift(7)),
        days: (0..7).map(day).collect(),
    }
}

fn befores(t: Text, typed: &str) -> Vec<Choice> {
    let is_fit = typed == BeforeReservation::Fit.word();
    vec![
        Choice::new("drain", t.reservations_drain(), !is_fit),
        Choice::new("fit", t.reservations_fit(), is_fit),
    ]
}

async fn new_form(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    typed: Option<TypedReservation>,
) -> Result<ReservationForm, Failure> {
    let t = visit.text;
    let typed = typed.unwrap_or_default();
    // Who writes presets somewhere books there too.
    let scopes = presets::scopes(&console.server, caller).await?;
    let quotas = quotas(console, t, caller).await?;
    let mut choices = Vec::new();
    let mut put = |value: String, name: String| {
        let is_chosen = value == typed.holder;
        choices.push(Choice::new(&value, &name, is_chosen));
    };
    // Nobody is chosen unasked.
    put(String::new(), String::new());
    for project in &scopes.projects {
        put(
            format!("project:{project}"),
            t.presets_of_project(project.as_str()),
        );
    }
    if scopes.site {
        let own = caller.name.as_str();
        put(format!("user:{own}"), t.reservations_of_user(own));
        put(
            "maintenance".to_owned(),
            t.reservations_of_maintenance().to_owned(),
        );
    }
    Ok(ReservationForm {
        action: PATH.to_owned(),
        holders: ChoiceField::of(t, choices, &typed.holder),
        befores: befores(t, &typed.before),
        quotas,
        zone: t.reservations_zone(visit.clock.name()),
        typed,
        is_new: true,
    })
}

/// What is left of the quota of each project that the caller leads, and that the rest is asked for.
async fn quotas(console: &PagesContext, t: Text, caller: &Caller) -> Result<Vec<String>, Failure> {
    let led = reservations::lead_quotas(&console.server, caller).await?;
    let mut all: Vec<String> = led
        .iter()
        .map(|one| {
            let quota = &one.quota;
            t.reservations_quota_left(
                one.project.as_str(),
                components::grouped(&quota.left),
                components::grouped(&quota.gpu_hours),
            )
        })
        .collect();
    if !all.is_empty() {
        all.push(t.reservations_quota_help().to_owned());
        let hours = reservations::notice_hours(&console.server);
        if hours > 0 {
            all.push(t.reservations_notice_help(hours));
        }
    }
    Ok(all)
}

fn is_booked(time: &&ReservationTimeView) -> bool {
    time.state == ReservationState::Booked
}

/// The next of its times, which its form shows.
fn next_time(one: &ReservationView) -> (Timestamp, Timestamp) {
    let next = one.times.iter().find(is_booked);
    next.map_or((one.from, one.to), |time| (time.from, time.to))
}

/// The zone of a booking, in which its form is; where the reader's is another, also when it is by their clock.
fn zone_told(visit: &RequestContext, one: &ReservationView) -> String {
    let (t, clock) = (visit.text, &visit.clock);
    let zone = one.time_zone.as_str();
    if zone == clock.name() {
        return t.reservations_zone(zone);
    }
    let (from, to) = next_time(one);
    let own = format!("{} – {}", clock.date(from), clock.near(to, from));
    t.reservations_zone_other(zone, own)
}

impl TypedReservation {
    /// As it is, with its times from the next one on, in its own zone.
    fn of(t: Text, one: &ReservationView) -> Self {
        let of = &one.resources;
        let clock = LocalClock::of(t, &one.time_zone);
        let (from, to) = next_time(one);
        let weeks = match one.times.iter().filter(is_booked).count() {
            0 => one.times.len(),
            weeks => weeks,
        };
        Self {
            name: one.name.to_string(),
            holder: String::new(),
            gpu: of.gpu.to_string(),
            cpu: of.cpu.to_string(),
            memory: launch::typed_memory(of.memory),
            from: clock.write(from),
            to: clock.write(to),
            repeats: weeks.to_string(),
            skip_holidays: String::new(),
            before: one.before.word().to_owned(),
            generation: one.generation.to_string(),
        }
    }

    /// The amounts. Errors: what cannot be read, at its field.
    fn resources(&self) -> Result<ReservedResources, Refusal> {
        fn read<T: Default>(
            typed: &str,
            field: &str,
            reading: impl Fn(&str) -> Result<T, Refusal>,
        ) -> Result<T, Refusal> {
            match typed.trim() {
                "" | "0" => Ok(T::default()),
                typed => reading(&point(typed))
                    .map_err(|refusal| refusal.at(format!("/resources/{field}"))),
            }
        }
        Ok(ReservedResources {
            gpu: read(&self.gpu, "gpu", GpuShare::parse)?,
            cpu: read(&self.cpu, "cpu", CpuShare::parse)?,
            memory: read(&self.memory, "memory", launch::memory)?,
        })
    }

    fn weeks(&self) -> Result<Option<u32>, Refusal> {
        match self.repeats.trim() {
            "" => Ok(None),
            typed => typed.parse().map(Some).map_err(|_| {
                refusals::reservation_repeats(rules::reservation::MAX_REPEATS).at("/repeats")
            }),
        }
    }

    fn way(&self) -> Result<Option<BeforeReservation>, Refusal> {
        match self.before.trim() {
            "" => Ok(None),
            typed => BeforeReservation::parse(typed)
                .map(Some)
                .ok_or_else(|| refusals::reservation_before_invalid().at("/before")),
        }
    }

    fn body(&self, zone: &str) -> Result<NewReservationBody, Refusal> {
        let holder = self.holder.trim();
        let (kind, name) = holder.split_once(':').unwrap_or((holder, ""));
        let name = || Some(name.trim().to_owned()).filter(|name| !name.is_empty());
        let (project, user, maintenance) = match kind {
            "project" => (name(), None, false),
            "user" => (None, name(), false),
            "maintenance" => (None, None, true),
            _ => return Err(refusals::reservation_holder().at("/holder")),
        };
        Ok(NewReservationBody {
            name: self.name.clone(),
            project,
            user,
            maintenance,
            resources: self.resources()?,
            from: self.from.clone(),
            to: self.to.clone(),
            repeats: self.weeks()?,
            before: self.way()?,
            time_zone: Some(zone.to_owned()),
            skip_holidays: !self.skip_holidays.is_empty(),
        })
    }

    /// What was typed other than `shown`: times stay to the second where nobody touched them.
    fn patch(&self, shown: &Self, zone: &str) -> Result<ReservationPatchBody, Refusal> {
        let is_same = (&self.from, &self.to, self.repeats.trim())
            == (&shown.from, &shown.to, shown.repeats.as_str());
        let typed = |text: &String| Some(text.clone()).filter(|_| !is_same);
        let sizes = (&self.gpu, &self.cpu, &self.memory);
        let resources = match sizes == (&shown.gpu, &shown.cpu, &shown.memory) {
            true => None,
            false => Some(Object(self.resources()?)),
        };
        Ok(ReservationPatchBody {
            name: Some(self.name.clone()),
            resources,
            from: typed(&self.from),
            to: typed(&self.to),
            repeats: self.weeks()?.filter(|_| !is_same),
            before: self.way()?,
            time_zone: Some(zone.to_owned()),
            skip_holidays: None,
        })
    }
}

/// The field of the form that a place in the request is about: the holder is one field here. When everything is free is
/// told in the zone of the form.
fn refused(t: Text, clock: &LocalClock, action: &str, refusal: Refusal) -> (RefusedForm, Refusal) {
    let refusal = match refusal.pointer.as_deref() {
        Some("/project" | "/user") => refusal.at("/holder"),
        Some("/resources") => refusal.at("/gpu"),
        _ => refusal,
    };
    let form = match conflict(t, clock, &refusal) {
        Some(told) => RefusedForm::with_faults(action, vec![FormFieldError::new("from", told)]),
        None => RefusedForm::new(t, action, &refusal).otherwise_at("name"),
    };
    (form, refusal)
}

/// When everything is free, by this clock; None for another refusal.
fn conflict(t: Text, clock: &LocalClock, refusal: &Refusal) -> Option<String> {
    let free = refusal.values.get("free");
    let free = free.and_then(|free| Timestamp::parse(free).ok());
    let free = free.filter(|_| refusal.code == rules::codes::RESERVATION_CONFLICT)?;
    Some(t.reservations_conflict(clock.date(free)))
}

async fn book(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<TypedReservation>,
) -> Response {
    let made = async {
        let body = sent.body(visit.clock.name())?;
        reservations::book(&console.server, &caller, body, None).await
    };
    let refusal = match made.await {
        Ok(made) => {
            let notice = match made.value.state {
                ReservationState::Asked => "reservation-asked",
                _ => "reservation-booked",
            };
            return responses::see_with(PATH, notice, made.value.name.as_str());
        }
        Err(Failure::Refusal(refusal)) if reservations::may_write(&caller) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (form, refusal) = refused(visit.text, &visit.clock, PATH, refusal);
    let visit = visit.refusing(form);
    // The week that was meant, not that of now.
    let day = sent.from.get(..10).unwrap_or_default().to_owned();
    let asked = [("week".to_owned(), day)];
    match listed(&console, &visit, &caller, &headers, &asked, Some(sent)).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// One that the caller may change.
async fn own(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
) -> Result<ReservationView, Failure> {
    let one = reservations::get_listed(&console.server, caller, id).await?;
    match one.decides {
        true => Ok(one.reservation),
        false => Err(not_theirs()),
    }
}

fn not_theirs() -> Failure {
    let word = Permission::ProjectsWrite.word();
    refusals::role_permission_missing(word).into()
}

fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    one: &ReservationView,
    typed: TypedReservation,
) -> ReservationPage {
    let t = visit.text;
    let here = format!("{PATH}/{}", one.id);
    ReservationPage {
        t,
        f: layout(console, visit, caller, Nav::Reservations),
        name: one.name.to_string(),
        holder: holder(t, one),
        is_open: one.state.counts(),
        form: ReservationForm {
            action: here.clone(),
            befores: befores(t, &typed.before),
            quotas: Vec::new(),
            typed,
            holders: ChoiceField::default(),
            zone: zone_told(visit, one),
            is_new: false,
        },
        here,
    }
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match own(&console, &caller, &id).await {
        Ok(one) => {
            let typed = TypedReservation::of(visit.text, &one);
            let page = page(&console, &visit, &caller, &one, typed);
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedReservation>,
) -> Response {
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let changed = async {
        let shown = TypedReservation::of(visit.text, &one);
        let patch = sent.patch(&shown, &one.time_zone)?;
        let seen = sent.generation.parse().ok();
        reservations::change(&console.server, &caller, &id, patch, seen).await
    };
    match changed.await {
        Ok(changed) => responses::see_with(PATH, "reservation-changed", changed.name.as_str()),
        Err(Failure::Refusal(refusal)) => {
            let clock = LocalClock::of(visit.text, &one.time_zone);
            let action = format!("{PATH}/{}", one.id);
            let (form, refusal) = refused(visit.text, &clock, &action, refusal);
            let visit = visit.refusing(form);
            let page = page(&console, &visit, &caller, &one, sent);
            responses::page(&console, &visit, responses::status(&refusal), &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn ask_cancel(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let one = match reservations::get_listed(&console.server, &caller, &id).await {
        Ok(one) if one.cancels || one.decides => one.reservation,
        Ok(_) => return failed(&console, &visit, &caller, &not_theirs()),
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let title = t.reservations_cancel_title(one.name.as_str());
    let frame = layout(&console, &visit, &caller, Nav::Reservations);
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.reservations_cancel_lead());
    page.items = vec![facts(&visit, &one)];
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/cancel", one.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.reservations_cancel().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Reservations, page)
}

async fn ask_withdraw(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let one = match reservations::get_listed(&console.server, &caller, &id).await {
        Ok(one) if one.withdraws => one.reservation,
        Ok(_) => return failed(&console, &visit, &caller, &not_theirs()),
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let title = t.reservations_withdraw_title(one.name.as_str());
    let frame = layout(&console, &visit, &caller, Nav::Reservations);
    let lead = t.reservations_withdraw_lead();
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, lead);
    page.items = vec![facts(&visit, &one)];
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/withdraw", one.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.reservations_withdraw().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Reservations, page)
}

async fn withdraw(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match reservations::withdraw(&console.server, &caller, &id).await {
        Ok(one) => responses::see_with(PATH, "reservation-withdrawn", one.name.as_str()),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The reason, and which of the two buttons was pressed.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedDecision {
    reason: String,
    decision: String,
}

async fn decide(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(sent): Form<TypedDecision>,
) -> Response {
    let server = &console.server;
    let (decided, notice) = match sent.decision.as_str() {
        "approve" => (
            reservations::approve(server, &caller, &id, &sent.reason).await,
            "reservation-approved",
        ),
        _ => (
            reservations::refuse(server, &caller, &id, &sent.reason).await,
            "reservation-refused",
        ),
    };
    let refusal = match decided {
        Ok(one) => return responses::see_with(PATH, notice, one.name.as_str()),
        Err(Failure::Refusal(refusal)) if reservations::may_grant(&caller) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let action = format!("{PATH}/{id}/decide");
    let form = match conflict(visit.text, &visit.clock, &refusal) {
        Some(told) => RefusedForm::with_faults(&action, vec![FormFieldError::new("reason", told)]),
        None => RefusedForm::new(visit.text, &action, &refusal).at("reason"),
    };
    let visit = visit.refusing(form.with([("reason", sent.reason.as_str())]));
    match listed(&console, &visit, &caller, &headers, &[], None).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn cancel(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match reservations::cancel(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "reservation-cancelled", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Extensions, header};
    use rules::names::TenantName;

    use super::*;

    fn visit(zone: &str) -> RequestContext {
        let mut headers = HeaderMap::new();
        let cookie = format!("fardel_zone={zone}").parse().expect("a value");
        headers.insert(header::COOKIE, cookie);
        RequestContext::of(&headers, &Extensions::new(), PATH.into())
    }

    fn booked(zone: &str) -> ReservationView {
        let at = |text| Timestamp::parse(text).expect("a time");
        let time = |number, state, from, to| ReservationTimeView {
            number,
            from: at(from),
            to: at(to),
            state,
        };
        ReservationView {
            id: uuid::Uuid::nil(),
            name: TenantName::parse("lecture").expect("a good name"),
            project: None,
            user: None,
            asked_by: None,
            reason: None,
            resources: ReservedResources::default(),
            before: BeforeReservation::Drain,
            time_zone: zone.to_owned(),
            state: ReservationState::Active,
            from: at("2026-11-28T03:00:00Z"),
            to: at("2026-11-28T05:00:00Z"),
            times: vec![
                time(
                    1,
                    ReservationState::Active,
                    "2026-11-28T03:00:00Z",
                    "2026-11-28T05:00:00Z",
                ),
                time(
                    2,
                    ReservationState::Booked,
                    "2026-12-05T03:00:00Z",
                    "2026-12-05T05:00:00Z",
                ),
            ],
            generation: 1,
        }
    }

    #[test]
    fn the_form_of_a_booking_is_in_its_zone_and_says_so() {
        let (seoul, utc) = (visit("Asia/Seoul"), booked("UTC"));
        let typed = TypedReservation::of(seoul.text, &utc);
        let shown = [&typed.from, &typed.to, &typed.repeats];
        assert_eq!(shown, ["2026-12-05T03:00", "2026-12-05T05:00", "1"]);
        assert_eq!(
            zone_told(&seoul, &utc),
            "Time zone of the booking: UTC. By your clock: 5 Dec 12:00 – 14:00."
        );
        let own = booked("Asia/Seoul");
        assert_eq!(zone_told(&seoul, &own), "Time zone: Asia/Seoul");
    }
}
