//! `/users`: the table of accounts for administrators, the menu of one account, and suspending it after a question.

use api::users::DepartureBody;
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use rules::names::EmailAddress;
use rules::permissions::Permission;
use rules::units::Timestamp;
use rules::users::{Role, User};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::sign_ups;
use server::actions::users::{self, Suspension, UserProfile, departure};

use super::authentication::PageCaller;
use super::components;
use super::dialog::{self, DialogForm, DialogLink, DialogPage};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::table::{
    self, ColumnDisplay, DataTable, EmptyTable, FilterBar, RowAction, TableCell, TableColumn,
    TableLine, TableState,
};
use super::table_answer::{ListPage, answer, file, name_times, shorter};
use super::table_choices::{FilterWords, filter_bar};
use super::{PagesContext, layout, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/users.html", blocks = ["list"])]
pub struct UsersPage {
    pub t: Text,
    pub f: PageLayout,
    pub count: String,
    pub may_add: bool,
    /// Strangers who wait for an account.
    pub asked: u64,
    pub filter: FilterBar,
    pub table: DataTable,
}

impl ListPage for UsersPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        self.f.live.as_deref()
    }
}

pub(super) const PATH: &str = "/users";
const FILTERS: [&str; 1] = ["q"];

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/users", get(list))
        .route("/users.csv", get(export))
        .route("/users/{id}/menu", get(menu))
        .route("/users/{id}/suspend", get(ask).post(suspend))
        .route("/users/{id}/restore", axum::routing::post(restore))
}

/// Where a user is shown, for those who may see it. Root on the machine has no account.
pub(super) fn href(f: &PageLayout, name: &str) -> Option<String> {
    let known = f.administrator && !matches!(name, "" | "root");
    known.then(|| format!("{PATH}/{}", encoded(name)))
}

type AskedUsers = Query<Vec<(String, String)>>;

pub(super) fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Users);
    responses::failure(console, visit, Some(frame), failure)
}

/// `GET /users`: the page, or the list alone for the page's own script.
async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedUsers,
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

/// `GET /users.csv`: the accounts that the filter lets through, with the columns that are shown.
async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedUsers,
) -> Response {
    let known = match users::list(&console.server, &caller).await {
        Ok(known) => known,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let t = visit.text;
    let mut columns = columns(t);
    let times = [
        ("signed_in", t.users_signed_in()),
        ("expires", t.users_expires()),
        ("created", t.users_created()),
    ];
    name_times(t, &mut columns, &times);
    let mut state = TableState::read(PATH, &FILTERS, &asked);
    state.choose_columns("users", &columns, &asked, &headers, &visit);
    let rows = chosen(&state, known);
    file(
        &visit,
        "users",
        &state,
        &columns,
        &rows,
        |user, key| match key {
            "created" => TableCell::text(user.created_at.to_string()),
            "name" => TableCell::text(user.name.as_str()),
            key => cell(&visit, key, user, None),
        },
    )
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<UsersPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let known = users::list(&console.server, caller).await?;
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.choose_columns("users", &columns, asked, headers, visit);
    let suspended = known.iter().filter(|user| user.suspended).count() as u64;
    let count = t.users_count(known.len() as u64, suspended);
    let found = chosen(&state, known);
    let total = found.len() as u64;
    let first = usize::try_from(state.offset()).unwrap_or(usize::MAX);
    let may_change = caller.subject.can(Permission::UsersWrite);
    let rows = found
        .iter()
        .skip(first)
        .take(table::ROWS as usize)
        .map(|user| TableLine {
            id: format!("u-{}", user.id),
            mark: None,
            cells: state
                .columns
                .iter()
                .map(|key| cell(visit, key, user, Some(now)))
                .collect(),
            action: may_change.then(|| RowAction {
                href: format!("{PATH}/{}/menu", user.id),
                icon: "ellipsis",
                label: t.sessions_verbs_of(user.name.as_str()),
                dialog: true,
            }),
        })
        .collect();
    let empty = EmptyTable::no_match(t, t.users_none(), PATH);
    let mut table = DataTable::new(t, &state, &columns, "name", rows, total, empty);
    table.csv = (!table.rows.is_empty()).then(|| state.beside("/users.csv"));
    let filter = filter_bar(
        visit,
        headers,
        &state,
        &columns,
        &FilterWords {
            table: "users",
            path: PATH,
            hint: t.users_filter_hint(),
            label: t.users_filter(),
            shipped: &[
                (t.users_view_all(), ""),
                (t.users_view_administrators(), "q=role%3Aadministrator"),
                (t.users_view_suspended(), "q=state%3Asuspended"),
                (t.users_view_unseen(), "sort=signed_in_at"),
            ],
            examples: &[
                ("mina", t.filter_help_name()),
                ("role:administrator", t.users_help_role()),
                ("state:suspended", t.users_help_state()),
            ],
        },
    );
    Ok(UsersPage {
        t,
        f: layout(console, visit, caller, Nav::Users),
        count,
        may_add: may_change,
        asked: sign_ups::waiting(&console.server, caller),
        filter,
        table,
    })
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", t.sessions_name())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("state", t.sessions_state()).class("why"),
        TableColumn::new("full_name", t.users_full_name())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("email", t.rosters_email()).class("wide"),
        TableColumn::new("role", t.users_role()).sorted_by("role"),
        TableColumn::new("signed_in", t.users_signed_in())
            .sorted_by("signed_in_at")
            .class("num"),
        TableColumn::new("expires", t.users_expires())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("language", t.me_language())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("zone", t.me_zone())
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("id", "ID")
            .class("wide")
            .display(ColumnDisplay::Hidden),
        TableColumn::new("created", t.users_created())
            .sorted_by("-created_at")
            .class("num wide"),
    ]
}

/// The users that the filter lets through, in the order of the address. Words narrow; `role:` and `state:` look there.
fn chosen(state: &TableState, mut known: Vec<User>) -> Vec<User> {
    let typed = state.filter("q").to_lowercase();
    for word in typed.split_whitespace() {
        known.retain(|user| match word.split_once(':') {
            Some(("role", role)) => user.role.word().starts_with(role),
            Some(("state", wanted)) => user.suspended == (wanted == "suspended"),
            Some(("name", name)) => user.name.as_str().contains(name),
            _ => {
                let email = user.email.as_ref().map_or("", EmailAddress::as_str);
                let told = [user.name.as_str(), email, &user.full_name.to_lowercase()];
                told.iter().any(|text| text.contains(word))
            }
        });
    }
    let (key, descending) = match state.sort.strip_prefix('-') {
        Some(key) => (key, true),
        None => (state.sort.as_str(), false),
    };
    match key {
        "role" => known.sort_by_key(|user| user.role.word()),
        "created_at" => known.sort_by_key(|user| user.created_at),
        // Who never did stands first.
        "signed_in_at" => known.sort_by_key(|user| user.signed_in_at),
        _ => known.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str())),
    }
    if descending {
        known.reverse();
    }
    known
}

pub(super) fn role_name(t: Text, role: Role) -> &'static str {
    match role {
        Role::Administrator => t.me_role_administrator(),
        Role::User => t.me_role_user(),
    }
}

/// Tone and word for whether a user may sign in.
pub(super) fn state_name(t: Text, user: &User) -> (&'static str, &'static str) {
    match (user.departs_at, user.suspended) {
        (Some(_), _) => ("bad", t.departure_departing()),
        (None, true) => ("warn", t.users_suspended()),
        (None, false) => ("ok", t.users_active()),
    }
}

/// Where the password of a user is set. One's own is changed with the old one.
pub(super) fn password_href(caller: &Caller, user: &User) -> String {
    match user.id == caller.subject.user {
        true => "/me".to_owned(),
        false => format!("{PATH}/{}/password", user.id),
    }
}

/// Why an account can neither be suspended nor removed; empty where nothing keeps it.
pub(super) fn told_kept(t: Text, profile: &UserProfile) -> String {
    let kept = profile.kept.as_ref();
    kept.map_or_else(String::new, |kept| codes::refusal(t, kept))
}

/// A field of an account. Without `now` it is told for a file that is read later.
fn cell(visit: &RequestContext, key: &str, user: &User, now: Option<Timestamp>) -> TableCell {
    let t = visit.text;
    match key {
        "name" => TableCell::Link {
            href: format!("{PATH}/{}", encoded(user.name.as_str())),
            text: user.name.to_string(),
            note: user.full_name.clone(),
        },
        "full_name" => TableCell::text(user.full_name.clone()),
        "email" => {
            let email = user.email.as_ref();
            TableCell::text(email.map_or_else(String::new, ToString::to_string))
        }
        "role" => TableCell::text(role_name(t, user.role)),
        "state" => {
            let (tone, text) = state_name(t, user);
            TableCell::Pill {
                tone,
                text: text.to_owned(),
                note: String::new(),
            }
        }
        "language" => TableCell::text(user.language.clone()),
        "zone" => TableCell::text(user.time_zone.clone()),
        "id" => TableCell::Code(user.id.to_string()),
        "signed_in" => TableCell::text(match (user.signed_in_at, now) {
            (Some(at), Some(now)) => visit.clock.ago(at, now),
            (Some(at), None) => at.to_string(),
            (None, Some(_)) => "–".to_owned(),
            (None, None) => String::new(),
        }),
        "expires" => TableCell::text(match (user.expires_at, now) {
            (Some(at), Some(_)) => visit.clock.last_day(at),
            (Some(at), None) => at.to_string(),
            (None, _) => String::new(),
        }),
        "created" => TableCell::text(match now {
            Some(now) => visit.clock.ago(user.created_at, now),
            None => user.created_at.to_string(),
        }),
        _ => TableCell::Empty,
    }
}

pub(super) fn question(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    title: String,
    lead: &str,
) -> DialogPage {
    let frame = layout(console, visit, caller, Nav::Users);
    DialogPage::titled(frame, PATH.to_owned(), title, lead)
}

/// `GET /users/{id}/menu`: what can be done with one account.
async fn menu(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let profile = match users::profile(&console.server, &caller, &id).await {
        Ok(profile) => profile,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (user, kept) = (&profile.user, told_kept(t, &profile));
    let mut page = question(&console, &visit, &caller, user.name.to_string(), &kept);
    page.links.push(DialogLink {
        href: format!("/sessions?q=owner%3A{}", encoded(user.name.as_str())),
        icon: "square-terminal",
        words: t.users_sessions().to_owned(),
        asks: false,
        ends: false,
    });
    let verb = |path: &str, icon: &'static str, words: &str, asks: bool, ends: bool| DialogLink {
        href: format!("{PATH}/{}/{path}", user.id),
        icon,
        words: words.to_owned(),
        asks,
        ends,
    };
    page.links.extend([
        DialogLink {
            href: password_href(&caller, user),
            icon: "key-round",
            words: t.users_password_ask().to_owned(),
            asks: false,
            ends: false,
        },
        match user.role {
            Role::User => verb("role", "shield-check", t.users_promote_ask(), true, false),
            Role::Administrator => verb("role", "user", t.users_demote_ask(), true, false),
        },
    ]);
    if user.source.is_local() && !user.suspended && user.id != caller.subject.user {
        let words = t.sign_in_link_ask();
        page.links
            .push(verb("sign-in-link", "link", words, false, false));
    }
    if user.second_factor && user.id != caller.subject.user {
        let words = t.factor_reset_ask();
        page.links
            .push(verb("second-factor", "key-round", words, true, false));
    }
    page.links
        .push(verb("remove", "trash-2", t.users_remove_ask(), false, true));
    match user.suspended {
        true => {
            page.form = Some(DialogForm {
                action: format!("{PATH}/{}/restore", user.id),
                fields: Vec::new(),
                icon: "play",
                go: t.users_restore().to_owned(),
                ends: false,
                force: None,
            });
        }
        false => page
            .links
            .push(verb("suspend", "ban", t.users_suspend_ask(), true, true)),
    }
    // What cannot be done stands there inactive, with its reason above.
    let demotes = profile.last_administrator.then(|| t.users_demote_ask());
    for link in &mut page.links {
        if (link.ends && !kept.is_empty()) || demotes == Some(link.words.as_str()) {
            link.href.clear();
        }
    }
    dialog::answer(&console, &visit, Nav::Users, page)
}

/// `GET /users/{id}/suspend`: what would end for that user.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let profile = match users::profile(&console.server, &caller, &id).await {
        Ok(profile) => profile,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (user, kept) = (&profile.user, told_kept(t, &profile));
    let title = t.users_suspend_title(user.name.as_str());
    let lead = match kept.as_str() {
        "" => t.users_suspend_lead(),
        kept => kept,
    };
    let live = match kept.is_empty() {
        true => {
            match departure::plan(&console.server, &caller, &id, DepartureBody::default()).await {
                Ok(ends) => ends.running + ends.waiting,
                Err(failure) => return failed(&console, &visit, &caller, &failure),
            }
        }
        false => 0,
    };
    let mut page = question(&console, &visit, &caller, title, lead);
    page.back = format!("{PATH}/{}", user.id);
    page.form = kept.is_empty().then(|| DialogForm {
        action: format!("{PATH}/{}/suspend", user.id),
        fields: Vec::new(),
        icon: "ban",
        go: t.users_suspend().to_owned(),
        ends: true,
        force: (live > 0).then(|| t.users_suspend_stop(live)),
    });
    dialog::answer(&console, &visit, Nav::Users, page)
}

/// The answer to whether users are to be suspended.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SuspensionForm {
    /// Not empty: their sessions stop, too.
    force: String,
}

impl SuspensionForm {
    pub(super) fn asked(&self) -> Suspension {
        match self.force.is_empty() {
            true => Suspension::SessionsGoOn,
            false => Suspension::SessionsStop,
        }
    }
}

async fn suspend(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<SuspensionForm>,
) -> Response {
    let asked = sent.asked();
    match users::set_suspension(&console.server, &caller, &id, asked, None).await {
        Ok(user) => responses::see_with(PATH, "user-suspended", user.name.as_str()),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn restore(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match users::suspend(&console.server, &caller, &id, false, None).await {
        Ok(user) => responses::see_with(PATH, "user-restored", user.name.as_str()),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
