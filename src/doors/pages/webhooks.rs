//! `/system/webhooks`: addresses of other programs that are told of events, a form for a new one, and the question before one
//! is removed. The secret of a new one is shown once.

use api::secret::SecretText;
use api::webhooks::{NewWebhookBody, WebhookPatchBody, WebhookView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::permissions::Permission;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::webhooks;
use uuid::Uuid;

use super::authentication::PageCaller;
use super::components;
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::{Text, codes};

const PATH: &str = "/system/webhooks";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/webhooks.html")]
pub struct WebhooksPage {
    pub t: Text,
    pub f: PageLayout,
    /// The secret of one that was just made, shown this once.
    pub made: Option<String>,
    pub rows: Vec<WebhookLine>,
    /// What was typed; None for those who only look.
    pub form: Option<NewWebhookForm>,
}

/// One webhook.
pub struct WebhookLine {
    pub here: String,
    pub name: String,
    pub address: String,
    pub kinds: String,
    pub active: bool,
    /// When it took events last, what it lost, and why it takes none; empty where nothing is to be said.
    pub delivered: String,
    pub lost: String,
    pub problem: String,
}

/// The fields of a new webhook, as they were typed.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct NewWebhookForm {
    pub name: String,
    pub address: String,
    /// With blanks or commas between.
    pub kinds: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MadeWebhookQuery {
    /// The webhook that was just made.
    made: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SwitchForm {
    active: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/system/webhooks", get(show).post(make))
        .route("/system/webhooks/{id}/switch", post(switch))
        .route("/system/webhooks/{id}/test", post(test))
        .route("/system/webhooks/{id}/remove", get(ask).post(remove))
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<MadeWebhookQuery>,
) -> Response {
    let made = asked.made.parse::<Uuid>().ok();
    let secret = made.and_then(|made| console.made_secrets.take(caller.subject.user, made));
    let form = NewWebhookForm::default();
    match read(&console, &visit, &caller, secret, form).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    made: Option<SecretText>,
    form: NewWebhookForm,
) -> Result<WebhooksPage, Failure> {
    let all = webhooks::list(&console.server, caller).await?;
    let may_change = caller.subject.can(Permission::SystemWrite);
    Ok(WebhooksPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::System),
        made: made.map(|secret| secret.reveal().to_owned()),
        rows: all.into_iter().map(|one| line(visit, one)).collect(),
        form: may_change.then_some(form),
    })
}

fn line(visit: &RequestContext, one: WebhookView) -> WebhookLine {
    let t = visit.text;
    let shown = |at| visit.clock.date(at);
    WebhookLine {
        here: format!("{PATH}/{}", one.id),
        name: one.name,
        address: one.address,
        kinds: one.kinds.join(", "),
        active: one.active,
        delivered: match one.delivered_at {
            Some(at) => t.webhooks_delivered(shown(at)),
            None => t.webhooks_never().to_owned(),
        },
        lost: match one.lost {
            0 => String::new(),
            lost => t.webhooks_lost(lost),
        },
        problem: match one.problem_since {
            Some(since) => t.webhooks_problem(shown(since), codes::stored(t, &one.problem)),
            None => String::new(),
        },
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::System);
    responses::failure(console, visit, Some(frame), failure)
}

/// Leads to the page that shows the secret once, so that a reload makes no second one.
async fn make(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(form): Form<NewWebhookForm>,
) -> Response {
    let words = form.kinds.split([',', ' ', '\n', '\r', '\t']);
    let words = words.filter(|word| !word.is_empty());
    let asked = NewWebhookBody {
        name: form.name.clone(),
        address: form.address.clone(),
        kinds: words.map(str::to_owned).collect(),
    };
    let refusal = match webhooks::create(&console.server, &caller, asked).await {
        Ok((webhook, secret)) => {
            let place = format!("{PATH}?made={}", webhook.id);
            console
                .made_secrets
                .keep(caller.subject.user, webhook.id, secret);
            return responses::see(&place);
        }
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::SystemWrite) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let shown = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("name");
    let visit = visit.refusing(shown);
    match read(&console, &visit, &caller, None, form).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /system/webhooks/{id}/switch`: on or off.
async fn switch(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(form): Form<SwitchForm>,
) -> Response {
    let patch = WebhookPatchBody {
        active: Some(form.active == "on"),
        ..WebhookPatchBody::default()
    };
    match webhooks::change(&console.server, &caller, &id, patch, None).await {
        Ok(webhook) => {
            let word = match webhook.active {
                true => "webhook-on",
                false => "webhook-off",
            };
            responses::see_with(PATH, word, &webhook.name)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /system/webhooks/{id}/test`: sends one request, and says what came back.
async fn test(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match webhooks::test(&console.server, &caller, &id).await {
        Ok(trial) if trial.works => responses::see_with(PATH, "webhook-works", &trial.answer),
        Ok(trial) => {
            let why = codes::stored(visit.text, &trial.problem);
            responses::see_with(PATH, "webhook-fails", &why)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /system/webhooks/{id}/remove`: what ends with it.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let webhook = match webhooks::get(&console.server, &caller, &id).await {
        Ok(webhook) => webhook,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let page = DialogPage {
        t,
        f: layout(&console, &visit, &caller, Nav::System),
        title: t.webhooks_remove_title(&webhook.name),
        lead: t.webhooks_remove_lead().to_owned(),
        items: Vec::new(),
        more: String::new(),
        links: Vec::new(),
        form: Some(DialogForm {
            action: format!("{PATH}/{}/remove", webhook.id),
            fields: Vec::new(),
            icon: "trash-2",
            go: t.webhooks_remove().to_owned(),
            ends: true,
            force: None,
        }),
        why: "",
        back: PATH.to_owned(),
    };
    dialog::answer(&console, &visit, Nav::System, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match webhooks::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "webhook-removed", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
