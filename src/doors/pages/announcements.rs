//! `/announcements`: what was announced, and the forms that write and change one.

use api::announcements::{AnnouncementPatchBody, AnnouncementView, NewAnnouncementBody};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use rules::announcement::AnnouncementLevel;
use rules::permissions::{Permission, may};
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::{announcements, tenancy};

use super::authentication::PageCaller;
use super::choice_field::ChoiceField;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::table::{
    DataTable, EmptyTable, ROWS_BY_FORM, RowAction, TableCell, TableColumn, TableLine, TableState,
};
use super::{PagesContext, layout, responses};
use crate::doors::text::{Language, Text, codes};

const PATH: &str = "/announcements";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/announcements.html")]
pub struct AnnouncementsPage {
    pub t: Text,
    pub f: PageLayout,
    /// None for those who only look.
    pub form: Option<AnnouncementForm>,
    /// Why there can be no other, in place of the form; empty while there is room.
    pub full: String,
    pub table: DataTable,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/announcement.html")]
pub struct AnnouncementPage {
    pub t: Text,
    pub f: PageLayout,
    pub here: String,
    pub form: AnnouncementForm,
}

/// The fields of an announcement, as they are or as they were typed.
pub struct AnnouncementForm {
    /// Where it is sent.
    pub action: String,
    pub text: String,
    pub text_ko: String,
    pub levels: Vec<Choice>,
    /// Empty where the domain stays.
    pub places: ChoiceField,
    pub from: String,
    pub until: String,
    /// None: it cannot be shown before sign-in.
    pub before_sign_in: Option<bool>,
    /// The zone of the times.
    pub zone: String,
    pub is_new: bool,
}

/// What a form sent.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedAnnouncement {
    text: String,
    text_ko: String,
    level: String,
    domain: String,
    from: String,
    until: String,
    before_sign_in: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListedPage {
    page: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/announcements", get(list).post(create))
        .route("/announcements/{id}", get(show).post(change))
        .route("/announcements/{id}/remove", get(ask_remove).post(remove))
}

/// The text in the language of the reader.
pub(super) fn in_language(t: Text, one: AnnouncementView) -> String {
    match t.language {
        Language::Korean if !one.text_ko.is_empty() => one.text_ko,
        Language::Korean | Language::English => one.text,
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Announcements);
    responses::failure(console, visit, Some(frame), failure)
}

async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<ListedPage>,
) -> Response {
    let typed = TypedAnnouncement::default();
    match listed(&console, &visit, &caller, &asked.page, &typed).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn listed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    page: &str,
    typed: &TypedAnnouncement,
) -> Result<AnnouncementsPage, Failure> {
    let t = visit.text;
    let all = announcements::list(&console.server, caller).await?;
    let may_write = announcements::may_write(caller);
    let now = console.server.clock().now();
    let mut full = None;
    let form = match may_write {
        true => {
            let places = places(console, t, caller, &typed.domain).await?;
            let names: Vec<String> = places.iter().map(|place| place.value.clone()).collect();
            // What was typed and refused is shown again.
            full = announcements::no_room(&all, &names, now).filter(|_| typed.text.is_empty());
            Some(AnnouncementForm {
                action: PATH.to_owned(),
                text: typed.text.clone(),
                text_ko: typed.text_ko.clone(),
                levels: levels(t, &typed.level),
                places: offered(t, places, &typed.domain),
                from: typed.from.clone(),
                until: typed.until.clone(),
                before_sign_in: caller
                    .subject
                    .can(Permission::SystemWrite)
                    .then_some(!typed.before_sign_in.is_empty()),
                zone: visit.clock.name().to_owned(),
                is_new: true,
            })
        }
        false => None,
    };
    Ok(AnnouncementsPage {
        t,
        f: layout(console, visit, caller, Nav::Announcements),
        form,
        full: full.map_or_else(String::new, |refusal| codes::refusal(t, &refusal)),
        table: table(visit, page, all, may_write, now),
    })
}

fn levels(t: Text, chosen: &str) -> Vec<Choice> {
    AnnouncementLevel::ALL
        .map(|level| Choice::new(level.word(), level_name(t, level), level.word() == chosen))
        .into()
}

fn level_name(t: Text, level: AnnouncementLevel) -> &'static str {
    match level {
        AnnouncementLevel::Info => t.announcements_info(),
        AnnouncementLevel::Warning => t.announcements_warning(),
    }
}

/// Whom the caller may tell something: everybody, or the users of a domain.
async fn places(
    console: &PagesContext,
    t: Text,
    caller: &Caller,
    chosen: &str,
) -> Result<Vec<Choice>, Failure> {
    let mut places = Vec::new();
    if caller.subject.can(Permission::SystemWrite) {
        places.push(Choice::new(
            "",
            t.announcements_everybody(),
            chosen.is_empty(),
        ));
    }
    let domains = tenancy::domains(&console.server, caller).await?;
    // The users of the only domain are everybody.
    if domains.len() == 1 && !places.is_empty() {
        return Ok(places);
    }
    for domain in domains {
        let scope = Scope::domain(domain.id);
        if may(&caller.subject, Permission::UsersWrite, &scope).is_ok() {
            let is_chosen = domain.name == chosen;
            let words = t.announcements_users_of(domain.name.as_str());
            places.push(Choice::new(domain.name.as_str(), words, is_chosen));
        }
    }
    Ok(places)
}

/// The field for one of these places.
fn offered(t: Text, places: Vec<Choice>, chosen: &str) -> ChoiceField {
    ChoiceField::of(t, places, chosen).asking("/choices/domains")
}

fn table(
    visit: &RequestContext,
    page: &str,
    all: Vec<AnnouncementView>,
    may_write: bool,
    now: Timestamp,
) -> DataTable {
    let t = visit.text;
    let are_for_some = all.iter().any(|one| one.domain.is_some());
    let mut columns = vec![
        TableColumn::new("text", t.announcements_text()).class("first say"),
        TableColumn::new("state", t.announcements_state()),
        TableColumn::new("from", t.announcements_from()).class("below when"),
        TableColumn::new("until", t.announcements_until()).class("below when"),
    ];
    if are_for_some {
        columns.insert(
            2,
            TableColumn::new("place", t.announcements_place()).class("below"),
        );
    }
    let asked = [("page".to_owned(), page.to_owned())];
    let mut state = TableState::read(PATH, &[], &asked);
    state.rows = ROWS_BY_FORM;
    state.columns = columns.iter().map(|column| column.key).collect();
    let total = all.len() as u64;
    let rows = state
        .page_of(all)
        .into_iter()
        .map(|one| TableLine {
            id: format!("a-{}", one.id),
            mark: None,
            cells: columns
                .iter()
                .map(|column| cell(visit, column.key, &one, may_write, now))
                .collect(),
            action: may_write.then(|| RowAction {
                href: format!("{PATH}/{}/remove", one.id),
                icon: "trash-2",
                label: t.announcements_remove_of(short(&one.text)),
                dialog: true,
            }),
        })
        .collect();
    let empty = EmptyTable::without_rows(
        "megaphone",
        t.announcements_none(),
        t.announcements_none_lead(),
    );
    DataTable::new(t, &state, &columns, "text", rows, total, empty)
}

fn cell(
    visit: &RequestContext,
    key: &str,
    one: &AnnouncementView,
    may_write: bool,
    now: Timestamp,
) -> TableCell {
    let t = visit.text;
    match key {
        "text" => {
            let text = in_language(t, one.clone());
            let mut notes = Vec::new();
            if one.level == AnnouncementLevel::Warning {
                notes.push(t.announcements_warning());
            }
            if one.before_sign_in {
                notes.push(t.announcements_at_the_door());
            }
            let note = notes.join(" · ");
            match may_write {
                true => TableCell::Link {
                    href: format!("{PATH}/{}", one.id),
                    text,
                    note,
                },
                false => TableCell::Text { text, note },
            }
        }
        "state" => {
            let (tone, text) = match one.until {
                Some(until) if until <= now => ("", t.announcements_over()),
                _ if one.from > now => ("acc", t.announcements_planned()),
                _ => ("ok", t.announcements_shown()),
            };
            TableCell::Pill {
                tone,
                text: text.to_owned(),
                note: String::new(),
            }
        }
        "place" => TableCell::text(match &one.domain {
            Some(domain) => t.announcements_users_of(domain.as_str()),
            None => t.announcements_everybody().to_owned(),
        }),
        "from" => TableCell::text(visit.clock.date(one.from)),
        "until" => TableCell::text(match one.until {
            Some(until) => visit.clock.date(until),
            None => t.announcements_removed_only().to_owned(),
        }),
        _ => TableCell::Empty,
    }
}

/// The beginning of a text, for the name of a button.
fn short(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Lines of a text field as one paragraph.
fn paragraph(typed: &str) -> String {
    let lines: Vec<&str> = typed.lines().map(str::trim).collect();
    lines.join(" ").trim().to_owned()
}

/// A time that was typed; None for nothing. Errors: `time.invalid` at the field.
fn time(visit: &RequestContext, typed: &str, field: &str) -> Result<Option<Timestamp>, Refusal> {
    match typed.trim() {
        "" => Ok(None),
        typed => match visit.clock.read(typed) {
            Some(at) => Ok(Some(at)),
            None => Err(refusals::time_not_a_time().at(format!("/{field}"))),
        },
    }
}

async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<TypedAnnouncement>,
) -> Response {
    let made = async {
        let asked = NewAnnouncementBody {
            text: paragraph(&sent.text),
            text_ko: Some(paragraph(&sent.text_ko)),
            level: AnnouncementLevel::parse(&sent.level).unwrap_or(AnnouncementLevel::Info),
            domain: Some(sent.domain.clone()),
            from: time(&visit, &sent.from, "from")?,
            until: time(&visit, &sent.until, "until")?,
            before_sign_in: !sent.before_sign_in.is_empty(),
        };
        announcements::create(&console.server, &caller, asked, None).await
    };
    let refusal = match made.await {
        Ok(_) => return responses::see_with(PATH, "announcement-added", ""),
        Err(Failure::Refusal(refusal)) if announcements::may_write(&caller) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let form = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("text");
    let visit = visit.refusing(form);
    match listed(&console, &visit, &caller, "", &sent).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// One that the caller may change.
async fn own(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
) -> Result<AnnouncementView, Failure> {
    let one = announcements::get(&console.server, caller, id).await?;
    match announcements::may_write(caller) {
        true => Ok(one),
        false => {
            let word = Permission::SystemWrite.word();
            Err(refusals::role_administrator_needed(word).into())
        }
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
            let typed = as_typed(&visit, &one);
            let page = page(&console, &visit, &caller, &one, typed);
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn as_typed(visit: &RequestContext, one: &AnnouncementView) -> TypedAnnouncement {
    let written = |at| visit.clock.write(at);
    TypedAnnouncement {
        text: one.text.clone(),
        text_ko: one.text_ko.clone(),
        level: one.level.word().to_owned(),
        domain: String::new(),
        from: written(one.from),
        until: one.until.map_or_else(String::new, written),
        before_sign_in: match one.before_sign_in {
            true => "1".to_owned(),
            false => String::new(),
        },
    }
}

fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    one: &AnnouncementView,
    typed: TypedAnnouncement,
) -> AnnouncementPage {
    let t = visit.text;
    let here = format!("{PATH}/{}", one.id);
    AnnouncementPage {
        t,
        f: layout(console, visit, caller, Nav::Announcements),
        form: AnnouncementForm {
            action: here.clone(),
            levels: levels(t, &typed.level),
            places: ChoiceField::default(),
            text: typed.text,
            text_ko: typed.text_ko,
            from: typed.from,
            until: typed.until,
            before_sign_in: one
                .domain
                .is_none()
                .then_some(!typed.before_sign_in.is_empty()),
            zone: visit.clock.name().to_owned(),
            is_new: false,
        },
        here,
    }
}

async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<TypedAnnouncement>,
) -> Response {
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    // A field of whole minutes that shows what was there changes nothing.
    let before = as_typed(&visit, &one);
    let changed = async {
        let from = match sent.from == before.from {
            true => one.from,
            false => {
                let now = console.server.clock().now();
                time(&visit, &sent.from, "from")?.unwrap_or(now)
            }
        };
        let until = match sent.until == before.until {
            true => one.until,
            false => time(&visit, &sent.until, "until")?,
        };
        let patch = AnnouncementPatchBody {
            text: Some(paragraph(&sent.text)),
            text_ko: Some(paragraph(&sent.text_ko)),
            level: AnnouncementLevel::parse(&sent.level),
            from: Some(from),
            until: Some(until),
            before_sign_in: Some(!sent.before_sign_in.is_empty()),
        };
        announcements::change(&console.server, &caller, &id, patch, None).await
    };
    match changed.await {
        Ok(_) => responses::see_with(PATH, "announcement-changed", ""),
        Err(Failure::Refusal(refusal)) => {
            let action = format!("{PATH}/{}", one.id);
            let form = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("text");
            let visit = visit.refusing(form);
            let page = page(&console, &visit, &caller, &one, sent);
            responses::page(&console, &visit, responses::status(&refusal), &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn ask_remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let one = match own(&console, &caller, &id).await {
        Ok(one) => one,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let frame = layout(&console, &visit, &caller, Nav::Announcements);
    let title = t.announcements_remove_title().to_owned();
    let lead = t.announcements_remove_lead();
    let action = format!("{PATH}/{}/remove", one.id);
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, lead);
    page.items = vec![in_language(t, one)];
    page.form = Some(DialogForm {
        action,
        fields: Vec::new(),
        icon: "trash-2",
        go: t.announcements_remove().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Announcements, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match announcements::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "announcement-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
