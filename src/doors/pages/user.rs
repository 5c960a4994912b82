//! `/users/{id}`: one account for administrators: what runs, what it may have, what it used, from where it is signed in,
//! and the ways to change it. Changes nothing itself.

use api::history::HistoryRange;
use api::sessions::{ListQuery, SessionView};
use api::users::UserPatchBody;
use askama::Template;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::budget::GpuHours;
use rules::names::EmailAddress;
use rules::permissions::Permission;
use rules::quota::{LimitKey, LimitKind};
use rules::refusal::Refusal;
use rules::units::{Bytes, Timestamp};
use rules::users::UserSource;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::users::{self, UserProfile};
use server::actions::{history, rosters, sessions, tenancy};

use super::authentication::PageCaller;
use super::choice_field::ChoiceField;
use super::components::{self, Choice};
use super::form_faults::RefusedForm;
use super::history::{HistoryParts, HistoryView};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::sign_in_links;
use super::sign_ins::{self, SignInRow};
use super::user_roles::{self, RoleRow};
use super::users::{PATH, failed, password_href, role_name, state_name, told_kept};
use super::{PagesContext, layout, policies, presenter, responses};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/user.html")]
pub struct UserPage {
    pub t: Text,
    pub f: PageLayout,
    pub id: String,
    pub name: String,
    pub full_name: String,
    pub email: String,
    /// Networks that they may come from, with blanks between.
    pub networks: String,
    /// The last day of the account, as a date; empty: it has no end.
    pub expires: String,
    /// The version that the form was made of.
    pub generation: String,
    /// Tone and word for whether they may sign in.
    pub state: (&'static str, &'static str),
    pub suspended: bool,
    pub may_change: bool,
    /// Where their password is set; of one's own on the page of the account, with the old one.
    pub password_href: String,
    /// Why they can neither be suspended nor removed; empty where nothing keeps the account.
    pub kept: String,
    pub facts: Vec<(&'static str, String)>,
    /// Of projects, domains and the site.
    pub roles: Vec<RoleRow>,
    /// Where the reader may give roles, empty where nowhere, and which.
    pub scopes: ChoiceField,
    pub offered: Vec<Choice>,
    /// What they may hold and have waiting.
    pub limits: Vec<LimitRow>,
    /// Where a policy is begun for them; empty for who changes none.
    pub policy_href: String,
    pub live: Vec<UserSessionRow>,
    pub more: u64,
    pub sessions_href: String,
    pub events_href: String,
    pub sign_ins: Vec<SignInRow>,
    /// Where a link is made by which they sign in once; empty where there is none for this account.
    pub link_href: String,
    pub view: HistoryView,
    pub ranges: Vec<(String, &'static str, bool)>,
    pub csv: String,
}

/// One limit as it stands in a list.
pub struct LimitRow {
    pub name: &'static str,
    pub value: String,
    /// Where it is raised for a time; empty where none can be raised, or not by the reader.
    pub raise: String,
}

impl LimitRow {
    pub(super) fn plain((name, value): (&'static str, String)) -> Self {
        Self {
            name,
            value,
            raise: String::new(),
        }
    }
}

/// A session of theirs that has not ended.
pub struct UserSessionRow {
    pub href: String,
    pub name: String,
    pub tone: &'static str,
    pub state: &'static str,
    pub asked: String,
    pub since: String,
}

/// Live sessions that the page lists; the sessions page has the others.
const SHOWN: u32 = 20;

/// What the page's charts show.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct UserQuery {
    range: String,
}

/// `GET /users/{id}`, by id or name.
pub(super) async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<UserQuery>,
) -> Response {
    match read(&console, &visit, &caller, &id, &asked).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn told(email: Option<&EmailAddress>) -> String {
    email.map_or_else(String::new, ToString::to_string)
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ProfileForm {
    full_name: String,
    email: String,
    /// None: as they are. A form that lacks the field must not let anybody in from everywhere.
    networks: Option<String>,
    /// The last day of the account; empty: it has no end. None: as it is.
    expires: Option<String>,
    /// What the form showed there.
    expires_shown: String,
    /// The version that the form was made of.
    generation: String,
}

/// `POST /users/{id}/profile`: what a user is called, and their address.
pub(super) async fn set_profile(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<ProfileForm>,
) -> Response {
    let changed = sent.expires.as_deref().map(str::trim);
    let expires_at = match changed.filter(|text| *text != sent.expires_shown) {
        None => None,
        Some("") => Some(None),
        Some(text) => {
            let now = console.server.clock().now();
            match rosters::last_instant(text, &caller.time_zone, now) {
                Ok(end) => Some(Some(end)),
                Err(refusal) => {
                    let form = format!("{PATH}/{id}/profile");
                    let form = (form.as_str(), "expires");
                    let refusal = refusal.at("/expires");
                    let typed = [
                        ("full_name", sent.full_name.as_str()),
                        ("email", sent.email.as_str()),
                        ("expires", text),
                    ];
                    return refused(&console, &visit, &caller, &id, form, &typed, refusal).await;
                }
            }
        }
    };
    let patch = UserPatchBody {
        expires_at,
        role: None,
        full_name: Some(sent.full_name.clone()),
        email: Some(sent.email.clone()),
        networks: sent.networks.as_deref().map(|text| {
            text.split([' ', ',', ';', '\n', '\r', '\t'])
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect()
        }),
    };
    let seen = sent.generation.parse().ok();
    match users::patch(&console.server, &caller, &id, patch, seen).await {
        Ok(user) => {
            let place = format!("{PATH}/{}", encoded(user.name.as_str()));
            responses::see_with(&place, "user-changed", user.name.as_str())
        }
        Err(Failure::Refusal(refusal)) => {
            let mut typed = vec![
                ("full_name", sent.full_name.as_str()),
                ("email", sent.email.as_str()),
            ];
            typed.extend(sent.networks.as_deref().map(|text| ("networks", text)));
            typed.extend(sent.expires.as_deref().map(|text| ("expires", text)));
            let refusal = match refusal.pointer.as_deref() {
                Some("/expires_at") => refusal.at("/expires"),
                _ => refusal,
            };
            if refusal.code == rules::codes::USER_STALE {
                // What stands there now is to be read before it is changed.
                typed.clear();
            }
            let form = format!("{PATH}/{id}/profile");
            let form = (form.as_str(), "full_name");
            refused(&console, &visit, &caller, &id, form, &typed, refusal).await
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// The page again with one of its forms as it was typed, and why it was refused at its field. `form` is its address and
/// the field of a refusal that names none.
pub(super) async fn refused(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    form: (&str, &str),
    typed: &[(&str, &str)],
    refusal: Refusal,
) -> Response {
    let (action, field) = form;
    let form = RefusedForm::new(visit.text, action, &refusal)
        .otherwise_at(field)
        .with(typed.iter().copied());
    let visit = visit.refusing(form);
    match read(console, &visit, caller, id, &UserQuery::default()).await {
        Ok(page) => responses::page(console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(console, &visit, caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asked: &UserQuery,
) -> Result<UserPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let now = server.clock().now();
    let profile = users::profile(server, caller, id).await?;
    let name = profile.user.name.to_string();
    let wanted = ListQuery {
        q: format!("owner:{name} state:live"),
        limit: Some(SHOWN),
        ..ListQuery::default()
    };
    let live = sessions::list(server, caller, &wanted).await?;
    let range = HistoryRange::parse(&asked.range).unwrap_or(HistoryRange::Week);
    let of = format!("user:{name}");
    let used = history::history(server, caller, &of, range).await?;
    let here = format!("{PATH}/{}", encoded(&name));
    let roles = tenancy::grants(server, caller, id).await?;
    let may_change = caller.subject.can(Permission::UsersWrite);
    let may_raise = caller.subject.can(Permission::SystemWrite);
    Ok(UserPage {
        t,
        f: layout(console, visit, caller, Nav::Users),
        id: profile.user.id.to_string(),
        full_name: profile.user.full_name.clone(),
        email: told(profile.user.email.as_ref()),
        networks: profile.user.networks.join(" "),
        expires: profile.user.expires_at.map_or_else(String::new, |end| {
            let last = Timestamp::from_millis(end.as_millis() - 1);
            visit.clock.write(last).chars().take(10).collect()
        }),
        generation: profile.user.generation.to_string(),
        state: state_name(t, &profile.user),
        suspended: profile.user.suspended,
        may_change,
        password_href: password_href(caller, &profile.user),
        kept: told_kept(t, &profile),
        facts: facts(visit, &profile, now),
        roles: roles
            .iter()
            .map(|one| user_roles::row(visit, id, one, profile.last_administrator))
            .collect(),
        offered: user_roles::roles(visit),
        scopes: match may_change {
            true => user_roles::scopes(console, visit, caller).await?,
            false => ChoiceField::default(),
        },
        limits: limits(visit, &profile, may_raise),
        policy_href: match may_raise {
            true => format!("/policies/new?subject=user:{}", encoded(&name)),
            false => String::new(),
        },
        more: live.estimated_total.saturating_sub(live.items.len() as u64),
        live: live
            .items
            .iter()
            .map(|session| row(visit, session, now))
            .collect(),
        sessions_href: format!("/sessions?q=owner%3A{}", encoded(&name)),
        events_href: format!("/events?q=user%3A{}", encoded(&name)),
        sign_ins: sign_ins::rows(
            visit,
            &format!("{PATH}/{}", profile.user.id),
            &profile.sign_ins,
            now,
        ),
        link_href: match may_change && sign_in_links::may_have_one(caller, &profile.user) {
            true => sign_in_links::address(&profile.user),
            false => String::new(),
        },
        view: super::history::view(t, &visit.clock, &used, HistoryParts::All),
        ranges: super::history::ranges(t, &of, range)
            .into_iter()
            .zip(HistoryRange::ALL)
            .map(|((_, name, chosen), range)| {
                (format!("{here}?range={}", range.word()), name, chosen)
            })
            .collect(),
        csv: format!("/history/export?of={}&range={}", encoded(&of), range.word()),
        name,
    })
}

fn row(visit: &RequestContext, session: &SessionView, now: Timestamp) -> UserSessionRow {
    let t = visit.text;
    let (tone, state) = presenter::state(t, session);
    UserSessionRow {
        href: format!("/sessions/{}", session.id),
        name: session.name.to_string(),
        tone,
        state,
        asked: presenter::asked(t, &session.resources, Default::default()),
        since: visit
            .clock
            .ago(session.started_at.unwrap_or(session.created_at), now),
    }
}

fn facts(
    visit: &RequestContext,
    profile: &UserProfile,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let t = visit.text;
    let user = &profile.user;
    let tokens = match (profile.tokens, profile.token_used_at) {
        (0, _) => t.common_none().to_owned(),
        (n, Some(at)) => t.users_tokens_used(n as u64, visit.clock.ago(at, now)),
        (n, None) => t.users_tokens(n as u64),
    };
    vec![
        (t.users_role(), role_name(t, user.role).to_owned()),
        (
            t.users_origin(),
            match user.source {
                UserSource::Local => t.users_origin_local().to_owned(),
                UserSource::Directory => t.users_origin_directory().to_owned(),
                UserSource::Provider | UserSource::Saml => t.users_origin_provider().to_owned(),
            },
        ),
        (t.users_created(), visit.clock.day(user.created_at)),
        (
            t.users_signed_in(),
            user.signed_in_at
                .map_or_else(|| "–".to_owned(), |at| visit.clock.ago(at, now)),
        ),
        (t.me_tokens(), tokens),
        (
            t.factor_title(),
            match user.second_factor {
                true => t.factor_on().to_owned(),
                false => t.factor_off().to_owned(),
            },
        ),
        (
            t.me_zone(),
            match user.time_zone.as_str() {
                "" => t.me_zone_browser().to_owned(),
                zone => zone.to_owned(),
            },
        ),
        ("ID", user.id.to_string()),
    ]
}

/// The limits that hold for the account, whether a policy says them or they are built in.
pub(super) fn held(profile: &UserProfile) -> Vec<HeldLimit> {
    let mut held: Vec<HeldLimit> = profile
        .limits
        .iter()
        .map(|one| HeldLimit {
            key: one.key,
            used: one.used,
            most: one.value,
            policy: one.policy.clone(),
            raised: one.until.map(|until| (until, one.usual)),
        })
        .collect();
    let folders = &profile.folders;
    held.extend(HeldLimit::of_folders(&held, folders.used, folders.limit));
    held
}

fn limits(visit: &RequestContext, profile: &UserProfile, may_raise: bool) -> Vec<LimitRow> {
    let t = visit.text;
    // The setting of the machine, beside what policies say.
    let setting = profile.gpus.map(super::gpus::share);
    let setting = setting.map(|gpus| LimitRow::plain((t.users_limit_gpus(), gpus)));
    let mut rows: Vec<LimitRow> = setting.into_iter().collect();
    let name = encoded(profile.user.name.as_str());
    rows.extend(listed(visit, &held(profile)).into_iter().map(|(key, row)| {
        let raises = may_raise && profile.raisable.get(key).is_some();
        LimitRow {
            raise: match raises {
                true => {
                    format!(
                        "/allowances?back=/users/{name}&subject={name}&key={}",
                        key.word()
                    )
                }
                false => String::new(),
            },
            ..row
        }
    }));
    let budgets = profile.budgets.iter().filter_map(|one| {
        let [used, amount] = [one.used, one.limit].map(GpuHours);
        Some(super::budgets::as_limit(visit, used, amount, one.until?))
    });
    rows.extend(budgets.map(LimitRow::plain));
    rows
}

/// A limit that holds for a user.
pub(super) struct HeldLimit {
    pub(super) key: LimitKey,
    pub(super) used: u64,
    pub(super) most: u64,
    /// Name of the policy; empty for what is built in.
    pub(super) policy: String,
    /// When the allowance ends that raised it, and what holds then.
    pub(super) raised: Option<(Timestamp, Option<u64>)>,
}

impl HeldLimit {
    /// What folders may take where no policy among those that hold says it.
    pub(super) fn of_folders(held: &[Self], used: Bytes, most: Bytes) -> Option<Self> {
        let key = LimitKey::FolderBytes;
        let by_policy = held.iter().any(|one| one.key == key);
        (!by_policy).then(|| Self {
            key,
            used: used.0,
            most: most.0,
            policy: String::new(),
            raised: None,
        })
    }
}

/// Limits that are listed also where none holds: who reads the list looks for these.
const ASKED_ABOUT: [LimitKey; 6] = [
    LimitKey::Gpu,
    LimitKey::Cpu,
    LimitKey::Memory,
    LimitKey::Sessions,
    LimitKey::RuntimeSeconds,
    LimitKey::FolderBytes,
];

/// The limits of a user by key: those that are asked about first, with "no limit" where there is none.
pub(super) fn listed(visit: &RequestContext, held: &[HeldLimit]) -> Vec<(LimitKey, LimitRow)> {
    let others = held.iter().map(|one| one.key);
    let others = others.filter(|key| !ASKED_ABOUT.contains(key));
    let keys = ASKED_ABOUT.into_iter().chain(others);
    keys.map(|key| {
        let told = told_of(visit, held, key);
        let row = LimitRow::plain((policies::key_name(visit.text, key), told));
        (key, row)
    })
    .collect()
}

/// What is told of one limit: that there is none, or as `told_limit`.
pub(super) fn told_of(visit: &RequestContext, held: &[HeldLimit], key: LimitKey) -> String {
    match held.iter().find(|one| one.key == key) {
        Some(one) => told_limit(visit, one),
        None => visit.text.common_unlimited().to_owned(),
    }
}

/// How much of a limit is used, by which policy it holds, until when an allowance raises it and what holds then.
fn told_limit(visit: &RequestContext, limit: &HeldLimit) -> String {
    let t = visit.text;
    let told = |value| policies::amount(visit, limit.key, value);
    let amount = match (limit.key, limit.key.kind()) {
        (LimitKey::FolderBytes, _) | (_, LimitKind::Queue | LimitKind::Held) => {
            t.common_of_two(told(limit.used), told(limit.most))
        }
        (_, LimitKind::Each | LimitKind::Account) => told(limit.most),
    };
    let rule = match (limit.policy.as_str(), limit.raised) {
        (_, Some((until, Some(usual)))) => {
            let time = visit.clock.date(until);
            format!(" · {}", t.allowances_until_then(time, told(usual)))
        }
        (_, Some((until, None))) => {
            let time = visit.clock.date(until);
            format!(" · {}", t.allowances_until_at(time))
        }
        ("", None) => format!(" · {}", t.system_built_in()),
        (name, None) => format!(" · {}", t.policies_by(name)),
    };
    format!("{amount}{rule}")
}
