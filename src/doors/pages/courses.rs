//! `/courses`: courses with their terms; for students what a launch begins with, for teachers a cell for each member and
//! the acts on all of them. Decides nothing.

use std::cmp::Reverse;

use api::courses::{
    CourseActView, CourseExtensionBody, CourseHandOutBody, CourseMemberView, CourseMessageBody,
    CoursePatchBody, CourseSlotBody, CourseStartBody, CourseStopBody, CourseView, MemberStanding,
    NewCourseBody,
};
use api::reservations::{ReservationView, ReservedResources};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use rules::course::CourseState;
use rules::refusal::Refusal;
use rules::refusals;
use rules::timetable::SLOT_DAYS;
use rules::units::{Bytes, CpuShare, GpuShare};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::IdempotencyKey;
use server::actions::courses::{self, ListedCourse};
use server::actions::presets;
use sha2::{Digest as _, Sha256};

use super::authentication::PageCaller;
use super::choice_field::ChoiceField;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage, MAX_NAMED};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::{LocalClock, RequestContext};
use super::table::{
    ColumnDisplay, DataTable, EmptyTable, FilterBar, ROWS_BY_FORM, RowAction, TableCell,
    TableColumn, TableLine, TableState,
};
use super::table_answer::{ListPage, answer, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::{PagesContext, launch, layout, presenter, responses};
use crate::doors::text::{Text, codes};
use crate::doors::{csv, download};

const PATH: &str = "/courses";
const FILTERS: [&str; 1] = ["q"];

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/courses.html", blocks = ["list"])]
pub struct CoursesPage {
    pub t: Text,
    pub f: PageLayout,
    /// None for those who teach nowhere.
    pub form: Option<CourseForm>,
    /// There is nothing to list yet, or the form was refused.
    pub is_form_open: bool,
    pub filter: FilterBar,
    pub table: DataTable,
}

impl ListPage for CoursesPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        None
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/course.html")]
pub struct CoursePage {
    pub t: Text,
    pub f: PageLayout,
    pub heading: String,
    pub state: &'static str,
    pub tone: &'static str,
    /// Project and term.
    pub facts: String,
    pub rules: String,
    /// Where the launch form opens as the teacher filled it; None where nothing is launched.
    pub launch: Option<String>,
    /// What a teacher may do with the course as a whole.
    pub verbs: Vec<CourseVerb>,
    pub here: String,
    /// None for students.
    pub board: Option<CourseBoard>,
    /// Weekly times that are booked: when, how much, and how it stands.
    pub slots: Vec<CourseSlotLine>,
    /// Another one can be booked.
    pub slot_form: Option<CourseSlotForm>,
    /// The folder to hand out, as it was typed; None where none can be.
    pub hand_out: Option<String>,
    pub form: Option<CourseForm>,
    pub is_form_open: bool,
}

/// One thing to do with a course.
pub struct CourseVerb {
    pub href: String,
    pub icon: &'static str,
    pub words: &'static str,
    /// It is asked about first; else it is sent at once.
    pub asks: bool,
}

/// A weekly time of the timetable.
pub struct CourseSlotLine {
    pub name: String,
    pub href: String,
    pub facts: String,
    pub state: &'static str,
}

/// The form for another one, as it was typed.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct CourseSlotForm {
    pub day: String,
    pub from: String,
    pub to: String,
    pub gpu: String,
    pub cpu: String,
    /// GiB.
    pub memory: String,
    /// Empty: no.
    pub skip_holidays: String,
}

impl CourseSlotForm {
    /// Days of the week, as the form offers them.
    pub fn days(&self, t: &Text) -> Vec<Choice> {
        let words = [
            t.reservations_monday(),
            t.reservations_tuesday(),
            t.reservations_wednesday(),
            t.reservations_thursday(),
            t.reservations_friday(),
            t.reservations_saturday(),
            t.reservations_sunday(),
        ];
        let days = SLOT_DAYS.into_iter().zip(words);
        days.map(|(day, word)| Choice::new(day, word, self.day == day))
            .collect()
    }

    /// Errors: those of the amounts, each at its field.
    fn body(&self) -> Result<CourseSlotBody, Refusal> {
        let typed = |text: &str| text.trim().to_owned();
        let memory = match typed(&self.memory) {
            none if none.is_empty() => Bytes::ZERO,
            gib => Bytes::parse(&format!("{gib}g")).map_err(|refusal| refusal.at("/memory"))?,
        };
        let gpu = match typed(&self.gpu) {
            none if none.is_empty() => GpuShare::ZERO,
            gpu => GpuShare::parse(&gpu).map_err(|refusal| refusal.at("/gpu"))?,
        };
        let cpu = match typed(&self.cpu) {
            none if none.is_empty() => CpuShare::ZERO,
            cpu => CpuShare::parse(&cpu).map_err(|refusal| refusal.at("/cpu"))?,
        };
        Ok(CourseSlotBody {
            day: typed(&self.day),
            from: typed(&self.from),
            to: typed(&self.to),
            resources: ReservedResources { gpu, cpu, memory },
            skip_holidays: !self.skip_holidays.is_empty(),
        })
    }
}

/// All members of a course.
pub struct CourseBoard {
    pub members: Vec<StudentCell>,
    /// How many stand how, those of none left out.
    pub counts: Vec<StandingCount>,
    /// What an act refused, by member, and that it left some.
    pub refused: Vec<String>,
    pub minutes: String,
    pub text: String,
    /// Of this answer alone: what is sent twice by it acts once.
    pub key: String,
    /// Sessions can be started.
    pub is_on: bool,
    /// Members do not see it: nothing is done to them.
    pub is_draft: bool,
}

/// How many members stand so.
pub struct StandingCount {
    pub number: u64,
    pub word: &'static str,
    pub tone: &'static str,
}

/// The cell of one member.
pub struct StudentCell {
    pub name: String,
    pub is_marked: bool,
    pub word: String,
    pub tone: &'static str,
    /// Their session, where there is one.
    pub href: Option<String>,
    /// Since when, and until when.
    pub note: String,
}

/// The fields of a course, as they are or as they were typed.
pub struct CourseForm {
    /// Where it is sent.
    pub action: String,
    pub typed: TypedCourse,
    /// Empty where the project stays.
    pub projects: ChoiceField,
    /// The zone in which times are typed.
    pub zone: String,
    pub is_new: bool,
}

/// What a form sent.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct TypedCourse {
    pub name: String,
    pub title: String,
    pub project: String,
    pub from: String,
    pub to: String,
    pub image: String,
    pub preset: String,
    pub max_runtime_seconds: String,
    pub rules: String,
    /// Of the row that the form shows; empty for a new one.
    pub generation: String,
}

/// What the form of the board sent.
#[derive(Default, Clone)]
struct TypedAct {
    act: String,
    members: Vec<String>,
    minutes: String,
    text: String,
    /// Of the board or of the question that was sent.
    key: String,
    /// The question was answered.
    is_sure: bool,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/courses", get(list).post(create))
        .route("/courses/{id}", get(show).post(change))
        .route("/courses/{id}/open", post(open))
        .route("/courses/{id}/close", get(ask_close).post(close))
        .route("/courses/{id}/archive", get(ask_archive).post(archive))
        .route("/courses/{id}/remove", get(ask_remove).post(remove))
        .route("/courses/{id}/act", post(act))
        .route("/courses/{id}/hand-out", post(hand_out))
        .route("/courses/{id}/timetable", post(book_slot))
        .route("/courses/{id}/attendance.csv", get(attendance))
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Courses);
    responses::failure(console, visit, Some(frame), failure)
}

fn tone(state: CourseState) -> &'static str {
    match state {
        CourseState::Running => "ok",
        CourseState::Open | CourseState::Draft => "warn",
        CourseState::Closed | CourseState::Archived => "",
    }
}

/// `2 Mar 09:00 – 18 Jun 18:00`, with the years.
fn term(clock: &LocalClock, course: &CourseView) -> String {
    format!("{} – {}", clock.day(course.from), clock.last_day(course.to))
}

/// The launch form, filled as the teacher filled the course.
fn launch_link(course: &CourseView) -> String {
    let limit = course.max_runtime_seconds.map(launch::typed_span);
    let fields = [
        ("project", course.project.as_str()),
        ("image", course.image.as_str()),
        ("preset", course.preset.as_str()),
        ("max_runtime", limit.as_deref().unwrap_or_default()),
    ];
    let said = fields.iter().filter(|(_, value)| !value.is_empty());
    let said = said.map(|(name, value)| format!("{name}={}", responses::encoded(value)));
    format!("/sessions/new?{}", said.collect::<Vec<_>>().join("&"))
}

/// `GET /courses`: the page, or the list alone for the page's own script.
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
    refused: Option<TypedCourse>,
) -> Result<CoursesPage, Failure> {
    let t = visit.text;
    let mut known = courses::listed(&console.server, caller).await?;
    let none = known.is_empty();
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.rows = ROWS_BY_FORM;
    state.choose_columns("courses", &columns, asked, headers, visit);
    for word in state.filter("q").to_lowercase().split_whitespace() {
        known.retain(|one| found(&one.course, word));
    }
    let by_name = |one: &ListedCourse| (one.course.heading().to_lowercase(), one.course.id);
    match state.sort.as_str() {
        "name" => known.sort_by_cached_key(by_name),
        "-name" => known.sort_by_cached_key(|one| Reverse(by_name(one))),
        "-term" => known.reverse(),
        _ => {}
    }
    let total = known.len() as u64;
    let page = state.page_of(known);
    let rows = page.iter().map(|one| row(visit, &state, one));
    let rows = rows.collect();
    let empty = match none {
        true => EmptyTable::without_rows("book-open", t.courses_none(), t.courses_none_lead()),
        false => EmptyTable::no_match(t, t.courses_no_match(), PATH),
    };
    let words = FilterWords {
        table: "courses",
        path: PATH,
        hint: t.courses_filter_hint(),
        label: t.courses_filter(),
        shipped: &[
            (t.courses_view_all(), ""),
            (t.courses_view_running(), "q=state%3Arunning"),
        ],
        examples: &[
            ("vision", t.courses_help_word()),
            ("name:vision", t.filter_help_name()),
            ("state:open", t.courses_help_state()),
        ],
    };
    let form = match courses::may_write(caller) {
        true => Some(new_form(console, visit, caller, refused.clone()).await?),
        false => None,
    };
    Ok(CoursesPage {
        t,
        f: layout(console, visit, caller, Nav::Courses),
        is_form_open: none || refused.is_some(),
        form,
        filter: filter_bar(visit, headers, &state, &columns, &words),
        table: DataTable::new(t, &state, &columns, "term", rows, total, empty),
    })
}

fn row(visit: &RequestContext, state: &TableState, listed: &ListedCourse) -> TableLine {
    let t = visit.text;
    let course = &listed.course;
    TableLine {
        id: format!("s-{}", course.id),
        mark: None,
        cells: state
            .columns
            .iter()
            .map(|key| cell(visit, key, course))
            .collect(),
        action: listed.launches.then(|| RowAction {
            href: launch_link(course),
            icon: "play",
            label: t.courses_launch().to_owned(),
            dialog: false,
        }),
    }
}

/// Whether a word of the filter finds the course: by name, title or project, or by `name:` or `state:`.
fn found(course: &CourseView, word: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(word);
    match word.split_once(':') {
        Some(("state", wanted)) => course.state.word() == wanted,
        Some(("name", name)) => course.name.as_str().contains(name),
        _ => has(course.name.as_str()) || has(&course.title) || has(&course.project),
    }
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("term", t.courses_term())
            .sorted_by("term")
            .class("why"),
        TableColumn::new("project", t.courses_project()).class("below"),
        TableColumn::new("state", t.courses_state()),
    ]
}

fn cell(visit: &RequestContext, key: &str, course: &CourseView) -> TableCell {
    match key {
        "name" => {
            let text = course.heading().to_owned();
            let note = match course.title.is_empty() {
                true => String::new(),
                false => course.name.to_string(),
            };
            TableCell::Link {
                href: format!("{PATH}/{}", course.id),
                text,
                note,
            }
        }
        "term" => TableCell::text(term(&visit.clock, course)),
        "project" => TableCell::text(course.project.clone()),
        "state" => TableCell::Pill {
            tone: tone(course.state),
            text: presenter::course_word(visit.text, course.state).to_owned(),
            note: String::new(),
        },
        _ => TableCell::Empty,
    }
}

async fn new_form(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    typed: Option<TypedCourse>,
) -> Result<CourseForm, Failure> {
    let typed = typed.unwrap_or_default();
    // Who writes presets of a project makes its courses too.
    let scopes = presets::scopes(&console.server, caller).await?;
    let choices = scopes.projects.iter();
    let choices = choices.map(|name| Choice::new(name, name, *name == typed.project));
    Ok(CourseForm {
        action: PATH.to_owned(),
        projects: ChoiceField::of(visit.text, choices.collect(), &typed.project),
        zone: visit.clock.name().to_owned(),
        typed,
        is_new: true,
    })
}

impl TypedCourse {
    /// As it is, with its times in its own zone.
    fn of(t: Text, course: &CourseView) -> Self {
        let clock = LocalClock::of(t, &course.time_zone);
        let limit = course.max_runtime_seconds;
        Self {
            name: course.name.to_string(),
            title: course.title.clone(),
            project: String::new(),
            from: clock.write(course.from),
            to: clock.write(course.to),
            image: course.image.clone(),
            preset: course.preset.clone(),
            max_runtime_seconds: limit.map_or_else(String::new, launch::typed_span),
            rules: course.rules.clone(),
            generation: course.generation.to_string(),
        }
    }

    fn limit(&self) -> Result<Option<u64>, Refusal> {
        launch::span(&self.max_runtime_seconds)
            .map_err(|refusal| refusal.at("/max_runtime_seconds"))
    }

    fn body(&self, zone: &str) -> Result<NewCourseBody, Refusal> {
        Ok(NewCourseBody {
            name: self.name.clone(),
            project: self.project.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            time_zone: Some(zone.to_owned()),
            title: Some(self.title.clone()),
            image: Some(self.image.clone()),
            preset: Some(self.preset.clone()),
            max_runtime_seconds: self.limit()?,
            rules: Some(self.rules.clone()),
        })
    }

    /// What the form changes; times that stand as they were are left out.
    fn patch(&self, was: &Self) -> Result<CoursePatchBody, Refusal> {
        let moved = |now: &str, then: &str| (now != then).then(|| now.to_owned());
        Ok(CoursePatchBody {
            name: Some(self.name.clone()),
            title: Some(self.title.clone()),
            state: None,
            from: moved(&self.from, &was.from),
            to: moved(&self.to, &was.to),
            time_zone: None,
            image: Some(self.image.clone()),
            preset: Some(self.preset.clone()),
            max_runtime_seconds: Some(self.limit()?),
            rules: Some(self.rules.clone()),
        })
    }
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(sent): Form<TypedCourse>,
) -> Response {
    let made = async {
        let body = sent.body(visit.clock.name())?;
        courses::create(&console.server, &caller, body, None).await
    };
    let refusal = match made.await {
        Ok(made) => {
            let place = format!("{PATH}/{}", made.value.id);
            return responses::see_with(&place, "course-added", made.value.name.as_str());
        }
        Err(Failure::Refusal(refusal)) if courses::may_write(&caller) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let form = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("name");
    let visit = visit.refusing(form);
    match listed(&console, &visit, &caller, &headers, &[], Some(sent)).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match read(&console, &visit, &caller, &id).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
) -> Result<CoursePage, Failure> {
    let t = visit.text;
    let listed = courses::get_listed(&console.server, caller, id).await?;
    let course = &listed.course;
    let here = format!("{PATH}/{}", course.id);
    let (board, form) = match listed.teaches {
        true => {
            let members = courses::members(&console.server, caller, id).await?;
            let now = console.server.clock().now();
            let rows = members.iter().map(|one| student_cell(visit, one, now));
            let board = CourseBoard {
                members: rows.collect(),
                counts: counts(t, &members),
                refused: Vec::new(),
                minutes: "30".to_owned(),
                text: String::new(),
                key: new_key(),
                is_on: course.state.is_on(),
                is_draft: course.state == CourseState::Draft,
            };
            let form = CourseForm {
                action: here.clone(),
                typed: TypedCourse::of(t, course),
                projects: ChoiceField::default(),
                zone: course.time_zone.clone(),
                is_new: false,
            };
            (Some(board), Some(form))
        }
        false => (None, None),
    };
    let slots = courses::timetable(&console.server, caller, id).await?;
    let is_over = matches!(course.state, CourseState::Closed | CourseState::Archived);
    Ok(CoursePage {
        t,
        f: layout(console, visit, caller, Nav::Courses),
        slots: slots.iter().map(|slot| slot_line(visit, slot)).collect(),
        slot_form: (listed.teaches && !is_over).then(CourseSlotForm::default),
        hand_out: (listed.teaches && course.state.is_on()).then(String::new),
        heading: course.heading().to_owned(),
        state: presenter::course_word(t, course.state),
        tone: tone(course.state),
        facts: format!("{} · {}", course.project, term(&visit.clock, course)),
        rules: course.rules.clone(),
        launch: listed.launches.then(|| launch_link(course)),
        verbs: match listed.teaches {
            true => verbs(t, course.state, &here),
            false => Vec::new(),
        },
        here,
        board,
        form,
        is_form_open: false,
    })
}

fn slot_line(visit: &RequestContext, slot: &ReservationView) -> CourseSlotLine {
    let t = visit.text;
    let ReservedResources { gpu, cpu, memory } = slot.resources;
    let amounts = [
        (gpu > GpuShare::ZERO).then(|| format!("{gpu} GPU")),
        (cpu > CpuShare::ZERO).then(|| t.common_cores(cpu)),
        (memory > Bytes::ZERO).then(|| memory.to_string()),
    ];
    let amounts: Vec<String> = amounts.into_iter().flatten().collect();
    let next = format!(
        "{} – {}",
        visit.clock.date(slot.from),
        visit.clock.date(slot.to)
    );
    let weeks = t.reservations_weeks(slot.times.len() as u64);
    CourseSlotLine {
        name: slot.name.to_string(),
        href: format!("/reservations/{}", slot.id),
        facts: format!("{next} · {weeks} · {}", amounts.join(", ")),
        state: presenter::reservation_word(t, slot.state),
    }
}

/// `POST /courses/{id}/timetable`: books a weekly time until the term ends.
async fn book_slot(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<CourseSlotForm>,
) -> Response {
    let booked = match sent.body() {
        Ok(body) => courses::book_slot(&console.server, &caller, &id, body, None).await,
        Err(refusal) => Err(refusal.into()),
    };
    let refusal = match booked {
        Ok(booked) => {
            let place = format!("{PATH}/{}", responses::encoded(&id));
            let name = booked.value.name.to_string();
            return responses::see_with(&place, "course-slot", &name);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let page = match read(&console, &visit, &caller, &id).await {
        Ok(page) if page.slot_form.is_some() => page,
        Ok(_) => return failed(&console, &visit, &caller, &refusal.into()),
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let action = format!("{}/timetable", page.here);
    let form = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("day");
    let visit = visit.refusing(form);
    let page = CoursePage {
        slot_form: Some(sent),
        ..page
    };
    responses::page(&console, &visit, responses::status(&refusal), &page)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SentHandOut {
    folder: String,
}

/// `POST /courses/{id}/hand-out`: members read a folder until the term ends.
async fn hand_out(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<SentHandOut>,
) -> Response {
    let asked = CourseHandOutBody {
        folder: sent.folder.trim().to_owned(),
    };
    let refusal = match courses::hand_out(&console.server, &caller, &id, asked, None).await {
        Ok(_) => {
            let place = format!("{PATH}/{}", responses::encoded(&id));
            return responses::see_with(&place, "course-handed-out", &sent.folder);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let page = match read(&console, &visit, &caller, &id).await {
        Ok(page) if page.hand_out.is_some() => page,
        Ok(_) => return failed(&console, &visit, &caller, &refusal.into()),
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let action = format!("{}/hand-out", page.here);
    let form = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("folder");
    let visit = visit.refusing(form);
    let page = CoursePage {
        hand_out: Some(sent.folder),
        ..page
    };
    responses::page(&console, &visit, responses::status(&refusal), &page)
}

/// What may follow the state of a course.
fn verbs(t: Text, state: CourseState, here: &str) -> Vec<CourseVerb> {
    let verb = |path: &str, icon, words, asks| CourseVerb {
        href: format!("{here}/{path}"),
        icon,
        words,
        asks,
    };
    let archive = || verb("archive", "package", t.courses_archive(), true);
    let remove = || verb("remove", "trash-2", t.courses_remove(), true);
    match state {
        CourseState::Draft => vec![verb("open", "play", t.courses_open(), false), remove()],
        CourseState::Open | CourseState::Running => {
            vec![verb("close", "circle-stop", t.courses_close(), true)]
        }
        CourseState::Closed => vec![verb("open", "play", t.courses_reopen(), false), archive()],
        CourseState::Archived => vec![remove()],
    }
}

fn standing_word(t: Text, standing: MemberStanding) -> &'static str {
    match standing {
        MemberStanding::Away => t.courses_member_away(),
        MemberStanding::Waiting => t.courses_member_waiting(),
        MemberStanding::Starting => t.courses_member_starting(),
        MemberStanding::Running => t.courses_member_running(),
        MemberStanding::Idle => t.courses_member_idle(),
        MemberStanding::Failed => t.courses_member_failed(),
        MemberStanding::Ended => t.courses_member_ended(),
    }
}

fn standing_tone(standing: MemberStanding) -> &'static str {
    match standing {
        MemberStanding::Running => "ok",
        MemberStanding::Waiting | MemberStanding::Idle => "warn",
        MemberStanding::Failed => "bad",
        MemberStanding::Away | MemberStanding::Starting | MemberStanding::Ended => "",
    }
}

fn counts(t: Text, members: &[CourseMemberView]) -> Vec<StandingCount> {
    let count = |standing: MemberStanding| {
        let stand_so = members.iter().filter(|one| one.state == standing);
        stand_so.count() as u64
    };
    let all = MemberStanding::ALL
        .into_iter()
        .map(|standing| StandingCount {
            number: count(standing),
            word: standing_word(t, standing),
            tone: standing_tone(standing),
        });
    all.filter(|one| one.number > 0).collect()
}

fn student_cell(
    visit: &RequestContext,
    one: &CourseMemberView,
    now: rules::units::Timestamp,
) -> StudentCell {
    let t = visit.text;
    let word = match one.why.as_deref() {
        Some("scheduled") => t.queue_scheduled(),
        Some("depends") => t.queue_depends(),
        Some("held") => t.queue_held(),
        Some("never") => t.preview_never(),
        _ => standing_word(t, one.state),
    };
    let since = one.since.map(|at| visit.clock.ago(at, now));
    let ends = one
        .ends_at
        .map(|at| format!("→ {}", visit.clock.near(at, now)));
    let note: Vec<String> = since.into_iter().chain(ends).collect();
    StudentCell {
        name: one.user.name.to_string(),
        is_marked: false,
        word: word.to_owned(),
        tone: standing_tone(one.state),
        href: one.session.as_ref().map(|id| format!("/sessions/{id}")),
        note: note.join(" "),
    }
}

async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedCourse>,
) -> Response {
    let t = visit.text;
    let changed = async {
        let now = courses::get(&console.server, &caller, &id).await?;
        let patch = sent.patch(&TypedCourse::of(t, &now))?;
        let shown = sent.generation.parse().ok();
        courses::change(&console.server, &caller, &id, patch, shown).await
    };
    let refusal = match changed.await {
        Ok(changed) => {
            let place = format!("{PATH}/{}", changed.id);
            return responses::see_with(&place, "course-changed", changed.name.as_str());
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let page = match read(&console, &visit, &caller, &id).await {
        Ok(page) if page.form.is_some() => page,
        Ok(_) => return failed(&console, &visit, &caller, &refusal.into()),
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let form = RefusedForm::new(t, &page.here, &refusal).otherwise_at("name");
    let visit = visit.refusing(form);
    let form = page.form.map(|form| CourseForm {
        typed: sent,
        ..form
    });
    let page = CoursePage {
        form,
        is_form_open: true,
        ..page
    };
    responses::page(&console, &visit, responses::status(&refusal), &page)
}

async fn set_state(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    state: CourseState,
) -> Response {
    let patch = CoursePatchBody {
        state: Some(state),
        ..CoursePatchBody::default()
    };
    match courses::change(&console.server, caller, id, patch, None).await {
        Ok(changed) => {
            let place = format!("{PATH}/{}", changed.id);
            responses::see_with(&place, "course-changed", changed.name.as_str())
        }
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

async fn open(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    set_state(&console, &visit, &caller, &id, CourseState::Open).await
}

async fn close(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    set_state(&console, &visit, &caller, &id, CourseState::Closed).await
}

async fn archive(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    set_state(&console, &visit, &caller, &id, CourseState::Archived).await
}

/// One that the caller teaches.
async fn taught(console: &PagesContext, caller: &Caller, id: &str) -> Result<CourseView, Failure> {
    let listed = courses::get_listed(&console.server, caller, id).await?;
    match listed.teaches {
        true => Ok(listed.course),
        false => {
            let word = rules::permissions::Permission::ProjectsWrite.word();
            Err(refusals::role_permission_missing(word).into())
        }
    }
}

/// A question about a course as a whole.
async fn ask(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    verb: &str,
) -> Response {
    let t = visit.text;
    let course = match taught(console, caller, id).await {
        Ok(course) => course,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let name = course.heading();
    let (title, lead, icon, go) = match verb {
        "close" => (
            t.courses_close_title(name),
            t.courses_close_lead(),
            "circle-stop",
            t.courses_close(),
        ),
        "archive" => (
            t.courses_archive_title(name),
            t.courses_archive_lead(),
            "package",
            t.courses_archive(),
        ),
        _ => (
            t.courses_remove_title(name),
            t.courses_remove_lead(),
            "trash-2",
            t.courses_remove(),
        ),
    };
    let frame = layout(console, visit, caller, Nav::Courses);
    let here = format!("{PATH}/{}", course.id);
    let mut page = DialogPage::titled(frame, here.clone(), title, lead);
    page.form = Some(DialogForm {
        action: format!("{here}/{verb}"),
        fields: Vec::new(),
        icon,
        go: go.to_owned(),
        ends: verb != "archive",
        force: None,
    });
    dialog::answer(console, visit, Nav::Courses, page)
}

async fn ask_close(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    ask(&console, &visit, &caller, &id, "close").await
}

async fn ask_archive(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    ask(&console, &visit, &caller, &id, "archive").await
}

async fn ask_remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    ask(&console, &visit, &caller, &id, "remove").await
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match courses::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "course-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn attendance(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match courses::attendance(&console.server, &caller, &id).await {
        Ok(rows) => {
            let file = csv::attendance(&rows).into_bytes();
            download::bytes(csv::ATTENDANCE, csv::KIND, file)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

impl TypedAct {
    fn read(sent: Vec<(String, String)>) -> Self {
        let mut typed = Self::default();
        for (name, value) in sent {
            match name.as_str() {
                "act" => typed.act = value,
                "member" => typed.members.push(value),
                "minutes" => typed.minutes = value,
                "text" => typed.text = value,
                "key" => typed.key = value,
                "sure" => typed.is_sure = true,
                _ => {}
            }
        }
        typed
    }

    /// The marked ones; None for all.
    fn users(&self) -> Option<Vec<String>> {
        Some(self.members.clone()).filter(|members| !members.is_empty())
    }

    /// Names what was sent: a second click on the same button of the same board acts once, and another act has another name.
    fn once(&self, id: &str) -> Option<IdempotencyKey> {
        let said = format!(
            "{:?}",
            (&self.act, &self.members, &self.minutes, &self.text)
        );
        let body_digest: [u8; 32] = Sha256::digest(said).into();
        (!self.key.is_empty()).then(|| IdempotencyKey {
            key: format!("{}.{}", self.key, rules::audit::hex(&body_digest[..8])),
            route: format!("POST {PATH}/{id}/act"),
            body_digest,
        })
    }

    fn minutes(&self) -> Result<u64, Refusal> {
        let most = rules::course::MAX_EXTENSION_MINUTES;
        let typed = self.minutes.trim().parse();
        typed.map_err(|_| refusals::course_minutes(most).at("/minutes"))
    }
}

/// `POST /courses/{id}/act`: what the board sent, for all members or those that are marked. To start and to stop is asked
/// about first.
async fn act(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<Vec<(String, String)>>,
) -> Response {
    let typed = TypedAct::read(sent);
    if !typed.is_sure && matches!(typed.act.as_str(), "start" | "stop") {
        return match question(&console, &visit, &caller, &id, &typed).await {
            Ok(page) => dialog::answer(&console, &visit, Nav::Courses, page),
            Err(failure) => failed(&console, &visit, &caller, &failure),
        };
    }
    let refusal = match done(&console, &caller, &id, &typed).await {
        Ok((word, done)) if done.refused.is_empty() && done.left == 0 => {
            let place = format!("{PATH}/{}", responses::encoded(&id));
            return responses::see_with(&place, word, &done.done.to_string());
        }
        Ok((_, done)) => return told(&console, &visit, &caller, &id, &done).await,
        Err(Failure::Refusal(refusal)) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let pointer = refusal.pointer.as_deref();
    if !matches!(pointer, Some("/minutes" | "/text")) {
        return failed(&console, &visit, &caller, &refusal.into());
    }
    let mut page = match read(&console, &visit, &caller, &id).await {
        Ok(page) => page,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let action = format!("{}/act", page.here);
    let visit = visit.refusing(RefusedForm::new(visit.text, &action, &refusal));
    if let Some(board) = &mut page.board {
        for member in &mut board.members {
            member.is_marked = typed.members.contains(&member.name);
        }
        (board.minutes, board.text) = (typed.minutes, typed.text);
    }
    responses::page(&console, &visit, responses::status(&refusal), &page)
}

/// The page with those for whom an act was refused, and why, and how many it left.
async fn told(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    done: &CourseActView,
) -> Response {
    let t = visit.text;
    match read(console, visit, caller, id).await {
        Ok(mut page) => {
            if let Some(board) = &mut page.board {
                let lines = done.refused.iter();
                let lines =
                    lines.map(|one| format!("{}: {}", one.user, codes::reason(t, &one.why)));
                let left = (done.left > 0).then(|| t.courses_start_left(done.left));
                board.refused = lines.chain(left).collect();
            }
            responses::page(console, visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

async fn done(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
    typed: &TypedAct,
) -> Result<(&'static str, CourseActView), Failure> {
    let (server, users) = (&console.server, typed.users());
    let key = typed.once(id);
    Ok(match typed.act.as_str() {
        "start" => {
            let body = CourseStartBody {
                users,
                dry_run: false,
            };
            let done = courses::start(server, caller, id, body, key).await?;
            ("course-started", done.value)
        }
        "stop" => {
            let body = CourseStopBody { users };
            let done = courses::stop(server, caller, id, body, key).await?;
            ("course-stopped", done.value)
        }
        "extend" => {
            let minutes = typed.minutes()?;
            let body = CourseExtensionBody { minutes, users };
            let done = courses::extend(server, caller, id, body, key).await?;
            ("course-extended", done.value)
        }
        _ => {
            let text = typed.text.clone();
            let body = CourseMessageBody { text, users };
            let done = courses::message(server, caller, id, body, key).await?;
            ("course-told", done.value)
        }
    })
}

/// The key of one answer: what is sent twice by it acts once.
fn new_key() -> String {
    rules::audit::hex(&rand::random::<[u8; 16]>())
}

/// How many would start and wait, or whose sessions would stop.
async fn question(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    typed: &TypedAct,
) -> Result<DialogPage, Failure> {
    let t = visit.text;
    let course = taught(console, caller, id).await?;
    let frame = layout(console, visit, caller, Nav::Courses);
    let here = format!("{PATH}/{}", course.id);
    let mut page = match typed.act.as_str() {
        "start" => {
            let body = CourseStartBody {
                users: typed.users(),
                dry_run: true,
            };
            let told = courses::start(&console.server, caller, id, body, None).await?;
            let told = told.value;
            let mut lead = t.courses_start_lead(told.skipped, told.waiting);
            if told.left > 0 {
                lead = format!("{lead} {}", t.courses_start_left(told.left));
            }
            if !told.refused.is_empty() {
                let named = told.refused.iter().take(MAX_NAMED);
                let names: Vec<&str> = named.map(|one| one.user.as_str()).collect();
                let count = told.refused.len() as u64;
                let refused = t.courses_start_refused(count, names.join(", "));
                lead = format!("{lead} {refused}");
            }
            let title = t.courses_start_title(told.done);
            DialogPage::titled(frame, here.clone(), title, &lead)
        }
        _ => {
            let title = t.courses_stop_title(course.heading());
            DialogPage::titled(frame, here.clone(), title, t.courses_stop_lead())
        }
    };
    page.items = typed.members.iter().take(MAX_NAMED).cloned().collect();
    let more = typed.members.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        page.more = t.courses_all(typed.members.len());
    }
    let is_start = typed.act == "start";
    let mut fields = vec![
        ("act", typed.act.clone()),
        ("sure", "1".to_owned()),
        // Of this question alone: one that is asked again later is another act.
        ("key", new_key()),
    ];
    fields.extend(typed.members.iter().map(|name| ("member", name.clone())));
    page.form = Some(DialogForm {
        action: format!("{here}/act"),
        fields,
        icon: if is_start { "play" } else { "circle-stop" },
        go: match is_start {
            true => t.courses_start().to_owned(),
            false => t.courses_stop().to_owned(),
        },
        ends: !is_start,
        force: None,
    });
    Ok(page)
}
