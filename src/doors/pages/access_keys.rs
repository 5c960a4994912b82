//! `/me/keys`: the access keys of the user who looks, a form for a new one, and the question before one is revoked. The
//! secret of a new key is shown once.

use api::secret::SecretText;
use api::users::AccessKeyView;
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use rules::names::TokenId;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::users::access_keys;
use uuid::Uuid;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::me::{every_scope, full, networks_typed, read_only, scopes_told};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/me/keys";
/// Days that a key may be good for.
const LIFETIMES: [u64; 4] = [7, 30, 90, 365];
/// What the form offers first.
const USUAL_DAYS: u64 = 90;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/access_keys.html")]
pub struct AccessKeysPage {
    pub t: Text,
    pub f: PageLayout,
    /// The secret of a key that was just made, shown this once.
    pub made: Option<ShownKey>,
    pub keys: Vec<OwnKeyRow>,
    /// Why there can be no other key, in place of the form; empty while there is room.
    pub full: String,
    pub name: String,
    pub networks: String,
    pub scopes: Vec<Choice>,
    pub lifetimes: Vec<Choice>,
}

/// A new key with its secret.
pub struct ShownKey {
    pub key: String,
    pub secret: String,
}

pub struct OwnKeyRow {
    pub id: String,
    pub name: String,
    pub key: String,
    pub scopes: String,
    /// That it may be used from; empty: everywhere.
    pub networks: String,
    pub ends: String,
    pub used: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/me/keys", get(show).post(make))
        .route("/me/keys/{id}/revoke", get(ask).post(revoke))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MadeKeyQuery {
    /// The key that was just made.
    made: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<MadeKeyQuery>,
) -> Response {
    let made = asked.made.parse::<Uuid>().ok();
    let secret = made.and_then(|made| {
        let secret = console.made_secrets.take(caller.subject.user, made)?;
        Some((made, secret))
    });
    let form = NewKeyForm::default();
    match read(&console, &visit, &caller, secret, form).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    made: Option<(Uuid, SecretText)>,
    form: NewKeyForm,
) -> Result<AccessKeysPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let keys = access_keys::list(&console.server, caller).await?;
    let made = made.and_then(|(id, secret)| {
        let key = keys.iter().find(|key| key.id.0 == id)?;
        Some(ShownKey {
            key: key.key.clone(),
            secret: secret.reveal().to_owned(),
        })
    });
    let used = keys
        .iter()
        .map(|key| (key.name.as_str(), key.used_at, key.created_at));
    Ok(AccessKeysPage {
        t,
        f: layout(console, visit, caller, Nav::Me),
        made,
        full: full(t, access_keys::no_room(keys.len()), used),
        keys: keys
            .iter()
            .map(|key| row(visit, caller, key, now))
            .collect(),
        scopes: vec![
            Choice::new("all", t.me_scope_all(), form.scope != "read"),
            Choice::new("read", t.me_scope_read(), form.scope == "read"),
        ],
        lifetimes: LIFETIMES
            .map(|days| Choice::new(days.to_string(), t.me_days_n(days), days == form.days()))
            .into(),
        name: form.name,
        networks: form.networks,
    })
}

fn row(visit: &RequestContext, caller: &Caller, key: &AccessKeyView, now: Timestamp) -> OwnKeyRow {
    let t = visit.text;
    let never = || t.common_never().to_owned();
    OwnKeyRow {
        id: key.id.to_string(),
        name: key.name.clone(),
        key: key.key.clone(),
        scopes: scopes_told(t, caller, &key.scopes),
        networks: key.networks.join(" "),
        ends: key.expires_at.map_or_else(never, |at| visit.clock.date(at)),
        used: key
            .used_at
            .map_or_else(never, |at| visit.clock.ago(at, now)),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewKeyForm {
    name: String,
    scope: String,
    days: String,
    networks: String,
}

impl NewKeyForm {
    fn days(&self) -> u64 {
        let days = self.days.parse().ok();
        days.filter(|days| LIFETIMES.contains(days))
            .unwrap_or(USUAL_DAYS)
    }
}

/// Leads to the page that shows the secret once, so that a reload makes no second key.
async fn make(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(form): Form<NewKeyForm>,
) -> Response {
    let scopes = match form.scope.as_str() {
        "read" => read_only(),
        _ => every_scope(&caller),
    };
    let now = console.server.clock().now();
    let ends = Some(now.plus_seconds(form.days() * 86_400));
    let (server, networks) = (&console.server, networks_typed(&form.networks));
    let made = access_keys::create(server, &caller, &form.name, &scopes, ends, &networks);
    match made.await {
        Ok((key, secret)) => {
            let place = format!("{PATH}?made={}", key.id);
            console
                .made_secrets
                .keep(caller.subject.user, key.id.0, secret);
            responses::see(&place)
        }
        Err(Failure::Refusal(refusal)) => {
            let refused = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("name");
            let visit = visit.refusing(refused);
            match read(&console, &visit, &caller, None, form).await {
                Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
                Err(failure) => failed(&console, &visit, &caller, &failure),
            }
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Me);
    responses::failure(console, visit, Some(frame), failure)
}

/// `GET /me/keys/{id}/revoke`: what would end with it.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let keys = match access_keys::list(&console.server, &caller).await {
        Ok(keys) => keys,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let Some(key) = keys.into_iter().find(|key| key.id.to_string() == id) else {
        let refusal = refusals::key_not_found();
        return failed(&console, &visit, &caller, &refusal.into());
    };
    let title = t.access_keys_revoke_title(&key.name);
    let frame = layout(&console, &visit, &caller, Nav::Me);
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.me_revoke_lead());
    page.items = vec![key.key];
    page.form = Some(DialogForm {
        action: format!("{PATH}/{}/revoke", key.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.me_revoke().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Me, page)
}

async fn revoke(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let revoked = match id.parse::<TokenId>() {
        Ok(id) => access_keys::revoke(&console.server, &caller, id).await,
        Err(_) => Err(refusals::key_not_found().into()),
    };
    match revoked {
        Ok(()) => responses::see_with(PATH, "key-gone", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
