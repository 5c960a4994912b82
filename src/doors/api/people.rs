//! Accounts, sign-in and tokens over REST. Secrets go out once and are never logged.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use rules::names::TokenId;
use rules::people::Role;
use rules::permissions::Verb;
use rules::refusal::Refusal;
use rules::units::Timestamp;
use serde::Deserialize;
use serde_json::json;
use server::access::secret::Secret;
use server::access::{self, SignedIn};
use server::actions::people::{self, Preferences, TokensAfterReset, tokens};

use super::Api;
use super::answer::{self, Answer};
use super::body::Sent;
use super::who::{From, Who};
use crate::doors::problem::Problem;

/// How long a token made by signing in is good, unless the client says otherwise: 90 days.
const USUAL_TOKEN_SECONDS: u64 = 90 * 86_400;

pub(super) async fn list(State(api): State<Api>, Who(caller): Who, headers: HeaderMap) -> Answer {
    let people = people::list(&api.server, &caller).await?;
    answer::all(&headers, people)
}

pub(super) async fn get(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let person = people::get(&api.server, &caller, &id).await?;
    answer::one(&headers, &person, person.generation)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUser {
    name: String,
    #[serde(default = "ordinary")]
    role: Role,
    password: Secret,
}

fn ordinary() -> Role {
    Role::User
}

pub(super) async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    sent: Sent<NewUser>,
) -> Answer {
    let NewUser {
        name,
        role,
        password,
    } = sent.value;
    let made = people::create_once(&api.server, &caller, &name, role, password, sent.key).await?;
    let person = made.value;
    let response = answer::made(&person, &format!("/api/v1/users/{}", person.id))?;
    let response = answer::with_header(response, "etag", &format!("\"{}\"", person.generation));
    Ok(answer::replayed(response, made.replayed))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserPatch {
    role: Role,
}

pub(super) async fn patch(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: Sent<UserPatch>,
) -> Answer {
    let seen = answer::must_match(&headers)?;
    let person = people::set_role(&api.server, &caller, &id, sent.value.role, seen).await?;
    answer::changed(&person, person.generation)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPassword {
    password: Secret,
    /// None: they are revoked.
    revoke_tokens: Option<bool>,
}

pub(super) async fn set_password(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    sent: Sent<NewPassword>,
) -> Answer {
    let tokens = match sent.value.revoke_tokens {
        None | Some(true) => TokensAfterReset::Revoked,
        Some(false) => TokensAfterReset::Kept,
    };
    let password = sent.value.password;
    let person = people::set_password(&api.server, &caller, &id, password, tokens).await?;
    answer::changed(&person, person.generation)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuspendRequest {
    suspended: bool,
}

pub(super) async fn suspend(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: Sent<SuspendRequest>,
) -> Answer {
    let seen = answer::if_match(&headers)?;
    let suspended = sent.value.suspended;
    let person = people::suspend(&api.server, &caller, &id, suspended, seen).await?;
    answer::changed(&person, person.generation)
}

pub(super) async fn remove(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let seen = answer::if_match(&headers)?;
    people::remove(&api.server, &caller, &id, seen).await?;
    answer::nothing()
}

pub(super) async fn me(State(api): State<Api>, Who(caller): Who, headers: HeaderMap) -> Answer {
    let person = people::me(&api.server, &caller).await?;
    answer::one(&headers, &person, person.generation)
}

pub(super) async fn set_me(
    State(api): State<Api>,
    Who(caller): Who,
    sent: Sent<Preferences>,
) -> Answer {
    let person = people::set_me(&api.server, &caller, sent.value).await?;
    answer::changed(&person, person.generation)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PasswordChange {
    old: Secret,
    new: Secret,
}

pub(super) async fn change_password(
    State(api): State<Api>,
    Who(caller): Who,
    sent: Sent<PasswordChange>,
) -> Answer {
    let PasswordChange { old, new } = sent.value;
    people::change_password(&api.server, &caller, old, new).await?;
    answer::nothing()
}

pub(super) async fn list_tokens(
    State(api): State<Api>,
    Who(caller): Who,
    headers: HeaderMap,
) -> Answer {
    let tokens = tokens::list(&api.server, &caller).await?;
    answer::all(&headers, tokens)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    name: String,
    scopes: Vec<String>,
    #[serde(default)]
    expires_at: Option<Timestamp>,
}

pub(super) async fn create_token(
    State(api): State<Api>,
    Who(caller): Who,
    sent: Sent<NewToken>,
) -> Answer {
    let NewToken {
        name,
        scopes,
        expires_at,
    } = sent.value;
    let (token, secret) = tokens::create(&api.server, &caller, &name, &scopes, expires_at).await?;
    let body = json!({"token": token, "secret": secret.reveal()});
    let made = answer::made(&body, &format!("/api/v1/me/tokens/{}", token.id))?;
    Ok(answer::with_header(made, "cache-control", "no-store"))
}

/// Revokes by id, or by a name that only one of the caller's tokens has.
pub(super) async fn revoke_token(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Answer {
    let id = match id.parse::<TokenId>() {
        Ok(id) => id,
        Err(_) => {
            let tokens = tokens::list(&api.server, &caller).await?;
            let mut named = tokens.iter().filter(|t| t.name == id);
            match (named.next(), named.next()) {
                (Some(one), None) => one.id,
                (Some(_), Some(_)) => {
                    return Err(Refusal::conflict(
                        "token.ambiguous",
                        "Several of your tokens have this name.",
                    )
                    .hint("Give the id instead.")
                    .into());
                }
                (None, _) => {
                    return Err(
                        Refusal::not_found("token.not-found", "You have no such token.").into(),
                    );
                }
            }
        }
    };
    tokens::revoke(&api.server, &caller, id).await?;
    answer::nothing()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignInRequest {
    name: String,
    password: Secret,
    /// What the token will be called; what it is for.
    #[serde(default = "some_client")]
    token_name: String,
    #[serde(default)]
    expires_seconds: Option<u64>,
}

fn some_client() -> String {
    "API client".to_owned()
}

/// Trades name and password for a token: how programs sign in.
pub(super) async fn sign_in(
    State(api): State<Api>,
    From(peer): From,
    sent: Sent<SignInRequest>,
) -> Answer {
    let SignInRequest {
        name,
        password,
        token_name,
        expires_seconds,
    } = sent.value;
    let signed_in = access::sign_in(&api.server, &name, password, peer.address()).await?;
    token_instead(&api, signed_in, &token_name, expires_seconds).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetupRequest {
    /// From the one-time link that the server printed.
    code: Secret,
    name: String,
    password: Secret,
}

/// Makes the first administrator; works once.
pub(super) async fn set_up(
    State(api): State<Api>,
    From(peer): From,
    sent: Sent<SetupRequest>,
) -> Answer {
    let SetupRequest {
        code,
        name,
        password,
    } = sent.value;
    let source = peer.address();
    let signed_in = access::set_up(&api.server, code.reveal(), &name, password, source).await?;
    token_instead(&api, signed_in, &some_client(), None).await
}

/// For root on the machine, and for the text console: the link that makes the first administrator.
pub(super) async fn setup_links(State(api): State<Api>, Who(caller): Who) -> Answer {
    let links = people::setup_links(&api.server, &caller).await?;
    let response = answer::plain(StatusCode::OK, &links)?;
    Ok(answer::with_header(response, "cache-control", "no-store"))
}

/// Gives a token with everything the person may, and ends the browser's sign-in that proved them.
async fn token_instead(
    api: &Api,
    signed_in: SignedIn,
    token_name: &str,
    expires_seconds: Option<u64>,
) -> Result<axum::response::Response, Problem> {
    let caller = signed_in.caller;
    let scopes: Vec<String> = Verb::ALL
        .into_iter()
        .map(|verb| verb.word().to_owned())
        .collect();
    let seconds = expires_seconds.unwrap_or(USUAL_TOKEN_SECONDS);
    let ends = api.server.clock().now().plus_seconds(seconds);
    let made = tokens::create(&api.server, &caller, token_name, &scopes, Some(ends)).await;
    access::sign_out(&api.server, &caller).await?;
    let (token, secret) = made?;
    let body = json!({
        "user": {"id": caller.subject.user, "name": caller.name},
        "token": token,
        "secret": secret.reveal(),
    });
    let response = answer::plain(StatusCode::CREATED, &body)?;
    Ok(answer::with_header(response, "cache-control", "no-store"))
}
