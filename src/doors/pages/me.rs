//! `/me`: password, tokens, preferences.

use api::mail::{MailChoicesBody, MailChoicesView};
use api::notices::NoticeTopic;
use api::policies::EffectiveLimitView;
use api::storage::StorageView;
use api::users::UserPreferences;
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use rules::budget::GpuHours;
use rules::names::TokenId;
use rules::permissions::Permission;
use rules::quota::LimitKey;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::budgets::GPU_HOURS;
use server::actions::users::{self, access_keys, second_factor, tokens};
use server::actions::{audit, mail, policies, storage};

use super::audit as acts_page;
use super::authentication::{OptionalPageCaller, PageCaller};
use super::components::{self, Alert, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{AnnouncementBanner, Nav, PageLayout, Theme};
use super::request_context::{RequestContext, taste, zones};
use super::sign_ins::{self, SignInRow};
use super::table::{self, Pager};
use super::user::{self, HeldLimit, LimitRow};
use super::{PagesContext, layout, responses};
use crate::doors::text::{Language, Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/me.html")]
pub struct MePage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub who: String,
    pub user: String,
    pub shortest: usize,
    /// The password is an initial one: nothing else is shown until the user set their own.
    pub password_first: bool,
    /// A directory or an identity provider proves who they are.
    pub password_elsewhere: bool,
    /// Their signed-in browsers, newest first.
    pub sign_ins: Vec<SignInRow>,
    /// They sign in with a code too.
    pub second_factor: bool,
    pub new_token: Option<String>,
    /// The tokens of this page.
    pub tokens: Vec<OwnTokenRow>,
    pub pager: Pager,
    /// Why there can be no other token, in place of the form; empty while there is room.
    pub full: String,
    pub token_name: String,
    pub token_networks: String,
    pub scopes: Vec<Choice>,
    pub lifetimes: Vec<Choice>,
    pub languages: Vec<Choice>,
    pub themes: Vec<Choice>,
    pub zones: Vec<Choice>,
    pub zone_note: String,
    pub keys: bool,
    /// The newest acts in the user's name: when, what, of what or why, from where.
    pub acts: Vec<OwnActRow>,
    /// What bounds the user in their first project: name, amount and rule.
    pub limits: Vec<LimitRow>,
    /// Which notices they get by mail; None where the site sends none.
    pub mail: Option<OwnMail>,
}

/// Notices by mail, as their reader chooses them.
pub struct OwnMail {
    /// None: the account has no address.
    pub address: Option<String>,
    pub kinds: Vec<Choice>,
    /// The user chose nothing yet.
    pub by_default: bool,
}

/// One act in the access log of a user.
pub struct OwnActRow {
    pub when: String,
    pub what: String,
    pub detail: String,
    pub address: String,
}

pub struct OwnTokenRow {
    pub id: String,
    pub name: String,
    pub hint: String,
    pub scopes: String,
    pub ends: String,
    pub used: String,
}

/// Acts in the access log of this page.
const SHOWN_ACTS: u32 = 10;

/// Days a token may be good for; none is for ever.
const LIFETIMES: [u64; 4] = [7, 30, 90, 365];

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/me", get(show))
        .route("/me/password", post(password))
        .route("/me/mail", post(choose_mail))
        .route("/me/tokens", post(make_token))
        .route("/me/tokens/{id}/revoke", get(ask_revoke).post(revoke))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MadeQuery {
    /// The token that was just made, whose secret is shown this once.
    made: String,
    /// The page of tokens, from 1.
    page: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<MadeQuery>,
) -> Response {
    let token = asked.made.parse::<TokenId>().ok();
    let secret = token.and_then(|token| console.made_secrets.take(caller.subject.user, token.0));
    let secret = secret.map(|secret| secret.reveal().to_owned());
    let name = String::new();
    shown(
        &console,
        &visit,
        &caller,
        StatusCode::OK,
        None,
        secret,
        TokenPart {
            name,
            page: asked.page,
            ..TokenPart::default()
        },
    )
    .await
}

/// The banner of the overview for a user whose password an administrator chose. It goes when they close it or choose their
/// own.
pub(super) fn assigned_password(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    here: Nav,
) -> Option<AnnouncementBanner> {
    let at = match here {
        Nav::Overview => users::assigned_password(&console.server, caller)?,
        _ => return None,
    };
    let key = format!("password-{}", at.as_millis());
    let is_closed = visit.closed.split('.').any(|one| one == key);
    (!is_closed).then(|| AnnouncementBanner {
        key,
        is_warning: false,
        seconds_left: None,
        text: visit.text.me_password_assigned_there().to_owned(),
        link: Some(("/me", visit.text.me_password_choose())),
    })
}

/// What the part of the tokens shows: what was typed as a name and as networks, and which page of them.
#[derive(Default)]
struct TokenPart {
    name: String,
    networks: String,
    page: String,
}

async fn shown(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
    alert: Option<Alert>,
    new_token: Option<String>,
    part: TokenPart,
) -> Response {
    let t = visit.text;
    let now = console.server.clock().now();
    let f = layout(console, visit, caller, Nav::Me);
    let known = match tokens::list(&console.server, caller).await {
        Ok(known) => known,
        Err(failure) => return responses::failure(console, visit, Some(f), &failure),
    };
    // Those behind access keys count among them.
    let keys = access_keys::list(&console.server, caller).await;
    let keys = keys.map_or(0, |keys| keys.len());
    let used = known
        .iter()
        .map(|one| (one.name.as_str(), one.used_at, one.created_at));
    let full = full(t, tokens::no_room(known.len() + keys), used);
    let (known, pager) = table::one_page(t, "/me", &part.page, known);
    // Who is in no project has none.
    let limits = policies::effective(&console.server, caller, None, None);
    let folders = storage::own(&console.server, caller).await.ok();
    let limits = match limits.await {
        Ok(limits) => own_limits(visit, &limits, folders.as_ref()),
        Err(_) => Vec::new(),
    };
    let acts = match audit::own(&console.server, caller, SHOWN_ACTS).await {
        Ok(acts) => acts,
        Err(failure) => return responses::failure(console, visit, Some(f), &failure),
    };
    let mailed = mail::choices(&console.server, caller).await;
    let account = users::me(&console.server, caller).await;
    let elsewhere = account
        .as_ref()
        .is_ok_and(|account| !account.source.is_local());
    let initial = account.is_ok_and(|account| account.must_change_password);
    let signed_in = users::sign_ins(&console.server, caller).await;
    let signed_in = signed_in.unwrap_or_default();
    let factor = second_factor::show(&console.server, caller).await;
    let role = f
        .user
        .as_ref()
        .map_or_else(String::new, |user| user.role.clone());
    let zone = visit.clock.name().to_owned();
    let zones = zones(&zone);
    let page = MePage {
        t,
        password_first: caller.must_change_password,
        password_elsewhere: elsewhere,
        alert: alert.or_else(|| {
            let first = caller.must_change_password;
            let why = match initial {
                true => t.me_password_first(),
                false => t.me_password_aged(),
            };
            let assigned = || users::assigned_password(&console.server, caller).is_some();
            match first {
                true => Some(Alert::warning(why)),
                false => assigned().then(|| Alert::warning(t.me_password_assigned())),
            }
        }),
        who: format!("{} · {role}", caller.name),
        user: caller.name.to_string(),
        sign_ins: sign_ins::rows(visit, "/me", &signed_in, now),
        second_factor: factor.is_ok_and(|factor| factor.enabled),
        shortest: console.server.settings().password_length as usize,
        new_token,
        tokens: known
            .into_iter()
            .map(|token| OwnTokenRow {
                id: token.id.to_string(),
                hint: token.networks.join(" "),
                scopes: scopes_told(t, caller, &token.scopes),
                ends: token
                    .expires_at
                    .map_or_else(|| t.common_never().to_owned(), |at| visit.clock.date(at)),
                used: token.used_at.map_or_else(
                    || t.common_never().to_owned(),
                    |at| visit.clock.ago(at, now),
                ),
                name: token.name,
            })
            .collect(),
        pager,
        acts: acts
            .iter()
            .map(|act| OwnActRow {
                when: acts_page::when(visit, act),
                what: acts_page::what(t, act).1,
                detail: acts_page::detail(visit, act),
                address: act.address.clone(),
            })
            .collect(),
        full,
        token_name: part.name,
        token_networks: part.networks,
        scopes: vec![
            Choice::new("all", t.me_scope_all(), true),
            Choice::new("read", t.me_scope_read(), false),
        ],
        lifetimes: LIFETIMES
            .map(|days| Choice::new(days.to_string(), t.me_days_n(days), days == 30))
            .into(),
        languages: [Language::English, Language::Korean]
            .map(|language| {
                Choice::new(language.code(), language.own_name(), language == t.language)
            })
            .into(),
        themes: Theme::ALL
            .map(|theme| Choice::new(theme.code(), theme.name(t), theme == visit.theme))
            .into(),
        zones,
        zone_note: t.me_zone_note(visit.clock.minute(now)),
        limits,
        // Root on this machine has no account, hence no mail.
        mail: mailed.ok().and_then(|choices| own_mail(t, choices)),
        keys: visit.keys,
        f,
    };
    responses::page(console, visit, status, &page)
}

/// Why there can be no other, and which of those that there are was used least recently, by name, last use and begin;
/// empty while there is room.
pub(super) fn full<'a>(
    t: Text,
    refusal: Option<Refusal>,
    known: impl Iterator<Item = (&'a str, Option<Timestamp>, Timestamp)>,
) -> String {
    let Some(refusal) = refusal else {
        return String::new();
    };
    let told = codes::refusal(t, &refusal);
    let oldest = known.min_by_key(|(_, used, made)| used.unwrap_or(*made));
    match oldest {
        Some((name, ..)) => format!("{told} {}", t.me_token_oldest(name)),
        None => told,
    }
}

/// The kinds of notices with what the reader chose; None where the site sends no mail.
fn own_mail(t: Text, choices: MailChoicesView) -> Option<OwnMail> {
    let kinds = NoticeTopic::ALL.map(|topic| {
        let is_chosen = choices.kinds.contains(&topic);
        Choice::new(topic.word(), topic_name(t, topic), is_chosen)
    });
    choices.enabled.then_some(OwnMail {
        address: choices.address,
        kinds: kinds.into(),
        by_default: choices.by_default,
    })
}

/// What a kind of notice is called.
pub(super) fn topic_name(t: Text, topic: NoticeTopic) -> &'static str {
    match topic {
        NoticeTopic::WillEnd => t.mail_will_end(),
        NoticeTopic::Failed => t.mail_failed(),
        NoticeTopic::ReservationWarned => t.mail_reservation_warned(),
        NoticeTopic::ReservationAsked => t.mail_reservation_asked(),
        NoticeTopic::SignUp => t.mail_sign_up(),
        NoticeTopic::Budget => t.mail_budget(),
        NoticeTopic::Storage => t.mail_storage(),
        NoticeTopic::IdleWarned => t.mail_idle_warned(),
        NoticeTopic::Course => t.mail_course(),
        NoticeTopic::BreakGlass => t.mail_break_glass(),
        NoticeTopic::Approval => t.mail_approval(),
        NoticeTopic::SignIn => t.mail_sign_in(),
        NoticeTopic::LimitAsked => t.mail_limit_asked(),
        NoticeTopic::ReservationDecided => t.mail_reservation_decided(),
        NoticeTopic::Started => t.mail_started(),
        NoticeTopic::Ended => t.mail_ended(),
        NoticeTopic::Cancelled => t.mail_cancelled(),
        NoticeTopic::GpuWarned => t.mail_gpu_warned(),
        NoticeTopic::FoundIdle => t.mail_found_idle(),
        NoticeTopic::Maintenance => t.mail_maintenance(),
    }
}

/// `POST /me/mail`: the kinds that are ticked, or those that need an answer.
async fn choose_mail(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<Vec<(String, String)>>,
) -> Response {
    let is_reset = sent.iter().any(|(name, _)| name == "default");
    let ticked = sent.iter().filter(|(name, _)| name == "kind");
    let kinds = ticked.filter_map(|(_, word)| NoticeTopic::parse(word));
    let wanted = MailChoicesBody {
        kinds: (!is_reset).then(|| kinds.collect()),
    };
    match mail::choose(&console.server, &caller, wanted).await {
        Ok(_) => responses::see("/me?notice=saved"),
        Err(failure) => {
            refused(
                &console,
                &visit,
                &caller,
                &failure,
                "",
                TokenPart::default(),
            )
            .await
        }
    }
}

/// The limits that hold for the reader; one of a newer version is left out.
pub(super) fn own_held(
    limits: &[EffectiveLimitView],
    folders: Option<&StorageView>,
) -> Vec<HeldLimit> {
    let by_policy = limits.iter().filter_map(|one| {
        let mut keys = LimitKey::ALL.into_iter();
        Some(HeldLimit {
            key: keys.find(|key| key.word() == one.key)?,
            used: one.used,
            most: one.limit,
            policy: one.policy.clone(),
            raised: one.until.map(|until| (until, one.usual)),
        })
    });
    let mut held: Vec<HeldLimit> = by_policy.collect();
    let folders = folders.and_then(|taken| HeldLimit::of_folders(&held, taken.used, taken.limit));
    held.extend(folders);
    held
}

/// The limits of the reader as the page of a user tells them. Empty for who is in no project: nothing can be launched.
fn own_limits(
    visit: &RequestContext,
    limits: &[EffectiveLimitView],
    folders: Option<&StorageView>,
) -> Vec<LimitRow> {
    let listed = user::listed(visit, &own_held(limits, folders)).into_iter();
    let mut rows: Vec<LimitRow> = listed.map(|(_, row)| row).collect();
    let budgets = limits.iter().filter(|one| one.key == GPU_HOURS);
    let budgets = budgets.filter_map(|one| {
        let [used, amount] = [one.used, one.limit].map(GpuHours);
        Some(super::budgets::as_limit(visit, used, amount, one.until?))
    });
    rows.extend(budgets.map(LimitRow::plain));
    rows
}

/// What a token may do, in a word or two; else its scopes by name.
pub(super) fn scopes_told(t: Text, caller: &Caller, scopes: &[String]) -> String {
    let known = read_only();
    let all = every_scope(caller);
    if all.iter().all(|scope| scopes.contains(scope)) {
        t.me_scope_all().to_owned()
    } else if scopes.iter().all(|scope| known.contains(scope)) {
        t.me_scope_read().to_owned()
    } else {
        scopes.join(", ")
    }
}

/// Every scope that the caller may give away.
pub(super) fn every_scope(caller: &Caller) -> Vec<String> {
    let may = |verb: &&Permission| caller.subject.can(**verb);
    let words = Permission::ALL.iter().filter(may);
    words.map(|verb| verb.word().to_owned()).collect()
}

/// What a token that may only look may do.
pub(super) fn read_only() -> Vec<String> {
    [Permission::SessionsRead, Permission::ImagesRead]
        .map(|verb| verb.word().to_owned())
        .into()
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Passwords {
    old: String,
    new: String,
    again: String,
}

async fn password(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(typed): Form<Passwords>,
) -> Response {
    let t = visit.text;
    let changed = if typed.new == typed.again {
        users::change_password(&console.server, &caller, typed.old, typed.new).await
    } else {
        Err(refusals::password_differs_on_page(t.setup_differ()).into())
    };
    match changed {
        Ok(()) => responses::see("/me?notice=password"),
        Err(failure) => {
            refused(
                &console,
                &visit,
                &caller,
                &failure,
                "/me/password",
                TokenPart::default(),
            )
            .await
        }
    }
}

/// The page again with the fault in the form that is sent to `action`.
async fn refused(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
    action: &str,
    part: TokenPart,
) -> Response {
    match failure {
        Failure::Refusal(refusal) => {
            let form = RefusedForm::new(visit.text, action, refusal);
            let form = match (action, refusal.code.as_str()) {
                ("/me/password", rules::codes::PASSWORD_DIFFERS) => form.at("again"),
                ("/me/password", rules::codes::PASSWORD_WRONG) => form.at("old"),
                ("/me/password", _) => form.at("new"),
                _ => form,
            };
            shown(
                console,
                &visit.refusing(form),
                caller,
                responses::status(refusal),
                None,
                None,
                part,
            )
            .await
        }
        Failure::Fault(_) => {
            let f = layout(console, visit, caller, Nav::Me);
            responses::failure(console, visit, Some(f), failure)
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewTokenForm {
    name: String,
    scope: String,
    days: String,
    networks: String,
}

/// Networks as they were typed, with blanks, commas or lines between.
pub(super) fn networks_typed(text: &str) -> Vec<String> {
    text.split([' ', ',', ';', '\n', '\r', '\t'])
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Leads to the page that shows the secret once, so that a reload makes no second token.
async fn make_token(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(wanted): Form<NewTokenForm>,
) -> Response {
    let scopes = if wanted.scope == "read" {
        read_only()
    } else {
        every_scope(&caller)
    };
    let days = wanted
        .days
        .parse()
        .ok()
        .filter(|days| LIFETIMES.contains(days))
        .unwrap_or(30);
    let ends = console.server.clock().now().plus_seconds(days * 86_400);
    let (name, networks) = (&wanted.name, networks_typed(&wanted.networks));
    let made = tokens::create(
        &console.server,
        &caller,
        name,
        &scopes,
        Some(ends),
        &networks,
    );
    match made.await {
        Ok((token, secret)) => {
            let place = format!("/me?made={}#tokens", token.id);
            console
                .made_secrets
                .keep(caller.subject.user, token.id.0, secret);
            responses::see(&place)
        }
        Err(failure) => {
            refused(
                &console,
                &visit,
                &caller,
                &failure,
                "/me/tokens",
                TokenPart {
                    name: wanted.name,
                    networks: wanted.networks,
                    ..TokenPart::default()
                },
            )
            .await
        }
    }
}

/// `GET /me/tokens/{id}/revoke`: what would end with it.
async fn ask_revoke(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let f = layout(&console, &visit, &caller, Nav::Me);
    let known = match tokens::list(&console.server, &caller).await {
        Ok(known) => known,
        Err(failure) => return responses::failure(&console, &visit, Some(f), &failure),
    };
    let Some(token) = known.into_iter().find(|token| token.id.to_string() == id) else {
        return responses::refused(&console, &visit, Some(f), &refusals::page_unknown());
    };
    let page = DialogPage {
        t,
        f,
        title: t.me_revoke_title(&token.name),
        lead: t.me_revoke_lead().to_owned(),
        items: Vec::new(),
        more: String::new(),
        links: Vec::new(),
        form: Some(DialogForm {
            action: format!("/me/tokens/{}/revoke", token.id),
            fields: Vec::new(),
            icon: "trash-2",
            go: t.me_revoke().to_owned(),
            ends: true,
            force: None,
        }),
        why: "",
        back: "/me".to_owned(),
    };
    dialog::answer(&console, &visit, Nav::Me, page)
}

async fn revoke(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let revoked = match id.parse::<TokenId>() {
        Ok(id) => tokens::revoke(&console.server, &caller, id)
            .await
            .map(|_| ()),
        Err(refusal) => Err(refusal.into()),
    };
    match revoked {
        Ok(()) => responses::see("/me?notice=token-gone"),
        Err(failure) => {
            // No form of the page has this place: the refusal stands above it.
            refused(
                &console,
                &visit,
                &caller,
                &failure,
                "",
                TokenPart::default(),
            )
            .await
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Tastes {
    back: String,
    language: Option<String>,
    theme: Option<String>,
    zone: Option<String>,
    keys: Option<String>,
}

/// `POST /preferences`, open to everybody: cookies of this browser, and the account of who is signed in.
pub async fn preferences(
    State(console): State<PagesContext>,
    visit: RequestContext,
    OptionalPageCaller(caller): OptionalPageCaller,
    Form(tastes): Form<Tastes>,
) -> Response {
    let language = tastes.language.as_deref().and_then(Language::from_code);
    let theme = tastes.theme.as_deref().and_then(Theme::from_code);
    let zone = tastes
        .zone
        .filter(|zone| jiff::tz::TimeZone::get(zone).is_ok());
    let keys = tastes.keys.filter(|keys| keys == "on" || keys == "off");
    let mut response = responses::see(responses::own_place(&tastes.back));
    let mut keep = |name: &str, value: Option<&str>| {
        if let Some(value) = value
            && let Ok(cookie) = HeaderValue::try_from(taste(&visit, name, value))
        {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    };
    keep("fardel_language", language.map(Language::code));
    keep("fardel_theme", theme.map(Theme::code));
    keep("fardel_zone", zone.as_deref());
    keep("fardel_keys", keys.as_deref());
    if let Some(caller) = caller {
        let preferences = UserPreferences {
            language: language.map(|language| language.code().to_owned()),
            theme: theme.map(|theme| theme.code().to_owned()),
            time_zone: zone,
        };
        // This browser has its cookies already; the account only carries them to the next one.
        if let Err(failure) = users::set_me(&console.server, &caller, preferences).await {
            tracing::warn!(error = %failure, "preferences were not kept with the account");
        }
    }
    response
}
