//! Accounts, sign-in and tokens over REST. Secrets go out once and are never logged.

use api::sessions::Owner;
use api::users::{
    DepartureBody, FolderHandOverBody, MadeAccessKey, MadeToken, NewPasswordBody, NewTokenBody,
    NewUserBody, PasswordChangeBody, SetupBody, SignInBody, SignedIn, SuspendBody, UserPatchBody,
    UserPreferences,
};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use rules::names::TokenId;
use rules::refusals;
use server::access::{self, NewSignIn, NewToken, SignInFrom, SignInStep, SignInUse};
use server::actions::users::{self, Suspension, TokensAfterReset, access_keys, departure, tokens};

use super::ApiContext;
use super::authentication::{ApiCaller, ApiPeer};
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let users = users::list(&api.server, &caller).await?;
    responses::all(&headers, users)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let user = users::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &user, user.generation)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewUserBody>,
) -> ApiResult {
    let NewUserBody {
        name,
        role,
        password,
        domain,
    } = sent.value;
    let domain = domain.as_deref();
    let made = users::create_once(
        &api.server,
        &caller,
        &name,
        role,
        password,
        domain,
        sent.key,
    )
    .await?;
    let user = made.value;
    let location = format!("/api/v1/users/{}", user.id);
    let response = responses::made_version(&user, &location, user.generation)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn patch(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<UserPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let user = users::patch(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&user, user.generation)
}

pub(super) async fn set_password(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<NewPasswordBody>,
) -> ApiResult {
    let tokens = match sent.value.revoke_tokens {
        None | Some(true) => TokensAfterReset::Revoked,
        Some(false) => TokensAfterReset::Kept,
    };
    let password = sent.value.password;
    let user = users::set_password(&api.server, &caller, &id, password, tokens).await?;
    responses::changed(&user, user.generation)
}

pub(super) async fn suspend(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<SuspendBody>,
) -> ApiResult {
    let seen = responses::if_match(&headers)?;
    let asked = Suspension::asked(sent.value.suspended, sent.value.stop_sessions)?;
    let user = users::set_suspension(&api.server, &caller, &id, asked, seen).await?;
    responses::changed(&user, user.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let seen = responses::if_match(&headers)?;
    users::remove(&api.server, &caller, &id, seen).await?;
    responses::nothing()
}

#[derive(serde::Deserialize)]
pub(super) struct DepartureQuery {
    #[serde(default)]
    dry_run: bool,
}

pub(super) async fn depart(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    QueryParameters(query): QueryParameters<DepartureQuery>,
    headers: HeaderMap,
    sent: JsonBody<DepartureBody>,
) -> ApiResult {
    let ends = match query.dry_run {
        true => departure::plan(&api.server, &caller, &id, sent.value).await?,
        false => departure::depart(&api.server, &caller, &id, sent.value).await?,
    };
    responses::whole(&headers, &ends)
}

pub(super) async fn offer_folders(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<FolderHandOverBody>,
) -> ApiResult {
    let ends = departure::offer_folders(&api.server, &caller, &id, &sent.value.to).await?;
    responses::whole(&headers, &ends)
}

pub(super) async fn hand_over_reservations(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<FolderHandOverBody>,
) -> ApiResult {
    let to = &sent.value.to;
    let ends = departure::hand_over_reservations(&api.server, &caller, &id, to).await?;
    responses::whole(&headers, &ends)
}

pub(super) async fn me(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let user = users::me(&api.server, &caller).await?;
    responses::one(&headers, &user, user.generation)
}

pub(super) async fn set_me(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<UserPreferences>,
) -> ApiResult {
    let user = users::set_me(&api.server, &caller, sent.value).await?;
    responses::changed(&user, user.generation)
}

pub(super) async fn change_password(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<PasswordChangeBody>,
) -> ApiResult {
    let PasswordChangeBody { old, new } = sent.value;
    users::change_password(&api.server, &caller, old, new).await?;
    responses::nothing()
}

pub(super) async fn list_tokens(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let tokens = tokens::list(&api.server, &caller).await?;
    responses::all(&headers, tokens)
}

pub(super) async fn create_token(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewTokenBody>,
) -> ApiResult {
    let NewTokenBody {
        name,
        scopes,
        expires_at,
        networks,
    } = sent.value;
    let (server, ends) = (&api.server, expires_at);
    let made = tokens::create(server, &caller, &name, &scopes, ends, &networks).await?;
    let (token, secret) = made;
    let location = format!("/api/v1/me/tokens/{}", token.id);
    let body = MadeToken {
        token,
        secret: secret.reveal().to_owned(),
    };
    let made = responses::made(&body, &location)?;
    Ok(responses::with_header(made, "cache-control", "no-store"))
}

/// Revokes by id, or by a name that only one of the caller's tokens has.
pub(super) async fn revoke_token(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let id = match id.parse::<TokenId>() {
        Ok(id) => id,
        Err(_) => {
            let tokens = tokens::list(&api.server, &caller).await?;
            let mut named = tokens.iter().filter(|t| t.name == id);
            match (named.next(), named.next()) {
                (Some(one), None) => one.id,
                (Some(_), Some(_)) => {
                    return Err(refusals::token_ambiguous().into());
                }
                (None, _) => {
                    return Err(refusals::token_not_found_by_name().into());
                }
            }
        }
    };
    tokens::revoke(&api.server, &caller, id).await?;
    responses::nothing()
}

pub(super) async fn list_keys(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let keys = access_keys::list(&api.server, &caller).await?;
    responses::all(&headers, keys)
}

pub(super) async fn create_key(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewTokenBody>,
) -> ApiResult {
    let NewTokenBody {
        name,
        scopes,
        expires_at,
        networks,
    } = sent.value;
    let (server, ends) = (&api.server, expires_at);
    let made = access_keys::create(server, &caller, &name, &scopes, ends, &networks).await?;
    let (key, secret) = made;
    let location = format!("/api/v1/me/keys/{}", key.id);
    let body = MadeAccessKey {
        key,
        secret: secret.reveal().to_owned(),
    };
    let made = responses::made(&body, &location)?;
    Ok(responses::with_header(made, "cache-control", "no-store"))
}

pub(super) async fn revoke_key(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let id = id
        .parse::<TokenId>()
        .map_err(|_| refusals::key_not_found())?;
    access_keys::revoke(&api.server, &caller, id).await?;
    responses::nothing()
}

/// Trades name and password for a token: how programs sign in.
pub(super) async fn sign_in(
    State(api): State<ApiContext>,
    ApiPeer(peer): ApiPeer,
    sent: JsonBody<SignInBody>,
) -> ApiResult {
    let SignInBody {
        name,
        password,
        code,
        token_name,
        expires_seconds,
    } = sent.value;
    let server = &api.server;
    // Before a code of the second factor is spent on it.
    let wanted = NewToken::by_sign_in(server, &token_name, expires_seconds)?;
    let from = SignInFrom {
        use_of: SignInUse::Token(&wanted),
        ..peer.address().into()
    };
    let signed_in = match access::begin_sign_in(server, &name, password, from).await? {
        SignInStep::Done(signed_in) => signed_in,
        SignInStep::CodeNeeded(ticket) => {
            let needed = || refusals::second_factor_needed().at("/code");
            let code = code.ok_or_else(needed)?;
            access::finish_sign_in(server, &ticket, code.reveal(), from).await?
        }
    };
    token_instead(signed_in)
}

/// Makes the first administrator; works once.
pub(super) async fn set_up(
    State(api): State<ApiContext>,
    ApiPeer(peer): ApiPeer,
    sent: JsonBody<SetupBody>,
) -> ApiResult {
    let SetupBody {
        code,
        name,
        password,
    } = sent.value;
    let wanted = NewToken::by_sign_in(&api.server, &api::users::some_client(), None)?;
    let from = SignInFrom {
        use_of: SignInUse::Token(&wanted),
        ..peer.address().into()
    };
    let signed_in = access::set_up(&api.server, code.reveal(), &name, password, from).await?;
    token_instead(signed_in)
}

/// For root on the machine, and for the text console: the link that makes the first administrator.
pub(super) async fn setup_links(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
) -> ApiResult {
    let links = users::setup_links(&api.server, &caller).await?;
    let response = responses::plain(StatusCode::OK, &links)?;
    Ok(responses::with_header(
        response,
        "cache-control",
        "no-store",
    ))
}

/// Gives the token that a sign-in was traded for, instead of a cookie.
fn token_instead(signed_in: NewSignIn) -> ApiResult {
    let caller = signed_in.caller;
    let traded = signed_in.token.ok_or_else(|| {
        let failure = server::ServerFault::new("trade a sign-in for a token", "it has none");
        server::Failure::from(failure)
    });
    let (token, secret) = traded?;
    let body = SignedIn {
        user: Owner {
            id: caller.subject.user,
            name: caller.name,
        },
        token,
        secret: secret.reveal().to_owned(),
    };
    let response = responses::plain(StatusCode::CREATED, &body)?;
    Ok(responses::with_header(
        response,
        "cache-control",
        "no-store",
    ))
}
