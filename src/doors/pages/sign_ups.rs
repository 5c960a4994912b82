//! `/sign-up`, where a stranger asks for an account of a domain that lets them, and `/sign-ups`, where its administrators
//! decide. Never tells a stranger which names there are.

use api::secret::SecretText;
use api::sign_ups::{SignUpApprovalBody, SignUpRuleBody, SignUpRuleView, SignUpView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::{self, Caller, NewSignUp};
use server::actions::{rosters, sign_ups};

use super::authentication::{PageCaller, PagePeer};
use super::components::{self, Choice};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, guest, layout, responses};
use crate::doors::text::Text;

const ASK: &str = "/sign-up";
const PATH: &str = "/sign-ups";
const RULE: &str = "/sign-ups/rule";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/sign_up.html")]
pub struct SignUpPage {
    pub t: Text,
    pub f: PageLayout,
    /// None: the request was kept.
    pub form: Option<SignUpForm>,
}

/// The form of a stranger, as it was typed.
pub struct SignUpForm {
    /// Empty where only one domain is open.
    pub domains: Vec<Choice>,
    pub name: String,
    pub full_name: String,
    pub email: String,
    pub note: String,
    pub shortest: usize,
    pub longest: usize,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/sign_ups.html")]
pub struct SignUpsPage {
    pub t: Text,
    pub f: PageLayout,
    pub waiting: Vec<SignUpLine>,
    pub declined: Vec<SignUpLine>,
    pub rules: Vec<SignUpRuleLine>,
    pub may_change: bool,
}

/// One request.
pub struct SignUpLine {
    pub id: String,
    pub name: String,
    /// Who they are, where they asked from, and when.
    pub facts: String,
    pub note: String,
    /// A user has that name or that address already.
    pub is_taken: bool,
}

/// Who may ask in one domain.
pub struct SignUpRuleLine {
    pub domain: String,
    pub addresses: String,
    /// Where its form is sent.
    pub action: String,
}

/// What a stranger sent.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct SentSignUp {
    domain: String,
    name: String,
    full_name: String,
    email: String,
    password: String,
    again: String,
    note: String,
}

/// What the form of a decision sent.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SentDecision {
    decision: String,
    name: String,
    /// The last day of the account of a guest; empty: it has no end.
    expires: String,
}

/// What the form of a rule sent.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SentRule {
    domain: String,
    addresses: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/sign-up", get(ask).post(send))
        .route("/sign-ups", get(list))
        .route("/sign-ups/rule", post(set_rule))
        .route("/sign-ups/{id}/decide", post(decide))
}

/// Whether the page of the sign-in leads here.
pub(super) fn is_open(console: &PagesContext) -> bool {
    let open = access::open_for_sign_up(&console.server);
    open.is_ok_and(|open| !open.is_empty())
}

/// `GET /sign-up`: as a page that is not there where no domain lets strangers ask.
async fn ask(State(console): State<PagesContext>, visit: RequestContext) -> Response {
    asking(&console, &visit, StatusCode::OK, SentSignUp::default())
}

fn asking(
    console: &PagesContext,
    visit: &RequestContext,
    status: StatusCode,
    typed: SentSignUp,
) -> Response {
    let open = match access::open_for_sign_up(&console.server) {
        Ok(open) if open.is_empty() => {
            let closed = Failure::from(refusals::sign_up_closed());
            return responses::failure(console, visit, None, &closed);
        }
        Ok(open) => open,
        Err(failure) => return responses::failure(console, visit, None, &failure),
    };
    let domains = match open.len() {
        1 => Vec::new(),
        _ => open
            .into_iter()
            .map(|(name, title)| {
                let is_chosen = name == typed.domain;
                let shown = if title.is_empty() {
                    name.clone()
                } else {
                    title
                };
                Choice::new(name, shown, is_chosen)
            })
            .collect(),
    };
    let page = SignUpPage {
        t: visit.text,
        f: guest(console, visit),
        form: Some(SignUpForm {
            domains,
            name: typed.name,
            full_name: typed.full_name,
            email: typed.email,
            note: typed.note,
            shortest: console.server.settings().password_length as usize,
            longest: rules::sign_up::MAX_SIGN_UP_NOTE,
        }),
    };
    responses::page(console, visit, status, &page)
}

/// `POST /sign-up`
async fn send(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    Form(typed): Form<SentSignUp>,
) -> Response {
    let new = NewSignUp {
        domain: typed.domain.clone(),
        name: typed.name.clone(),
        full_name: typed.full_name.clone(),
        email: typed.email.clone(),
        password: SecretText::new(typed.password.clone()),
        note: typed.note.clone(),
    };
    let asked = match typed.password == typed.again {
        true => access::ask_for_account(&console.server, new, peer.address()).await,
        false => Err(refusals::password_differs().at("/again").into()),
    };
    match asked {
        Ok(()) => {
            let page = SignUpPage {
                t: visit.text,
                f: guest(&console, &visit),
                form: None,
            };
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(Failure::Refusal(refusal)) => {
            let status = responses::status(&refusal);
            let form = RefusedForm::new(visit.text, ASK, &refusal).otherwise_at("name");
            let visit = visit.refusing(form);
            asking(&console, &visit, status, typed)
        }
        Err(fault) => responses::failure(&console, &visit, None, &fault),
    }
}

/// `GET /sign-ups`
async fn list(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    answer(&console, &visit, &caller, StatusCode::OK).await
}

async fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
) -> Response {
    let read = async {
        let all = sign_ups::list(&console.server, caller).await?;
        let rules = sign_ups::rules(&console.server, caller).await?;
        Ok::<_, Failure>((all, rules))
    };
    let (all, rules) = match read.await {
        Ok(read) => read,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let (declined, waiting): (Vec<SignUpView>, Vec<SignUpView>) =
        all.into_iter().partition(|one| one.declined_at.is_some());
    let lines = |all: Vec<SignUpView>| -> Vec<SignUpLine> {
        all.into_iter().map(|one| line(visit, one)).collect()
    };
    let page = SignUpsPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Users),
        waiting: lines(waiting),
        declined: lines(declined),
        rules: rules.into_iter().map(rule_line).collect(),
        may_change: caller.subject.can(Permission::UsersWrite),
    };
    responses::page(console, visit, status, &page)
}

fn line(visit: &RequestContext, one: SignUpView) -> SignUpLine {
    let asked = visit.clock.date(one.asked_at);
    let mut facts = vec![one.email, one.domain, one.source, asked];
    if !one.full_name.is_empty() {
        facts.insert(0, one.full_name);
    }
    if let Some(by) = one.declined_by {
        facts.push(visit.text.sign_ups_declined_by(by.as_str()));
    }
    SignUpLine {
        id: one.id.to_string(),
        name: one.name,
        facts: facts.join(" · "),
        note: one.note,
        is_taken: one.is_taken,
    }
}

fn rule_line(rule: SignUpRuleView) -> SignUpRuleLine {
    SignUpRuleLine {
        action: rule_action(&rule.domain),
        addresses: rule.addresses.unwrap_or_default(),
        domain: rule.domain,
    }
}

/// Each form has an address of its own, so that a fault stands in the right one.
fn rule_action(domain: &str) -> String {
    format!("{RULE}?domain={domain}")
}

/// `POST /sign-ups/{id}/decide`
async fn decide(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<SentDecision>,
) -> Response {
    let server = &console.server;
    let (decided, told) = match sent.decision.as_str() {
        "approve" => {
            let decided = async {
                let body = SignUpApprovalBody {
                    name: Some(sent.name.clone()),
                    expires_at: end_of(&console, &caller, &sent)?,
                };
                sign_ups::approve(server, &caller, &id, body).await
            };
            (decided.await, "sign-up-approved")
        }
        "reopen" => (
            sign_ups::reopen(server, &caller, &id).await,
            "sign-up-reopened",
        ),
        _ => (
            sign_ups::decline(server, &caller, &id).await,
            "sign-up-declined",
        ),
    };
    match decided {
        Ok(()) => responses::see_with(PATH, told, ""),
        Err(Failure::Refusal(refusal)) if is_at_name(&refusal) || is_at_end(&refusal) => {
            let action = format!("{PATH}/{id}/decide");
            let field = if is_at_name(&refusal) {
                "name"
            } else {
                "expires"
            };
            let form = RefusedForm::new(visit.text, &action, &refusal).at(field);
            let typed = [("name", &*sent.name), ("expires", &*sent.expires)];
            let form = form.with(typed);
            let visit = visit.refusing(form);
            answer(&console, &visit, &caller, responses::status(&refusal)).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The last instant of the day that was typed; None for no end. Errors: `roster.date`, `grant.ends-in-past`.
fn end_of(
    console: &PagesContext,
    caller: &Caller,
    sent: &SentDecision,
) -> Result<Option<Timestamp>, Refusal> {
    let now = console.server.clock().now();
    match sent.expires.trim() {
        "" => Ok(None),
        text => rosters::last_instant(text, &caller.time_zone, now)
            .map(Some)
            .map_err(|refusal| refusal.at("/expires")),
    }
}

fn is_at_end(refusal: &Refusal) -> bool {
    matches!(refusal.pointer.as_deref(), Some("/expires" | "/expires_at"))
}

fn is_at_name(refusal: &Refusal) -> bool {
    refusal.code.starts_with("user.")
}

/// `POST /sign-ups/rule`
async fn set_rule(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<SentRule>,
) -> Response {
    let body = SignUpRuleBody {
        domain: Some(sent.domain.clone()),
        addresses: Some(sent.addresses.clone()),
    };
    match sign_ups::set_rule(&console.server, &caller, body).await {
        Ok(_) => responses::see_with(PATH, "sign-up-rule", ""),
        Err(Failure::Refusal(refusal)) if refusal.code.starts_with("sign-up.") => {
            let action = rule_action(&sent.domain);
            let form = RefusedForm::new(visit.text, &action, &refusal).at("addresses");
            let form = form.with([("addresses", sent.addresses.as_str())]);
            let visit = visit.refusing(form);
            answer(&console, &visit, &caller, responses::status(&refusal)).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::Users);
    responses::failure(console, visit, Some(frame), failure)
}
