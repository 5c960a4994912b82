//! The commands on users, their tokens and one's own account. Passwords and secrets come and go by
//! file, standard input or keyboard, never as arguments.

use api::users::{MadeAccessKey, MadeSignInLink, MadeToken};
use hyper::Method;
use rules::permissions::Permission;
use rules::users::User;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::args::{KeyCommand, Me, SignInCommand, TokenCommand, UserCommand, UserSecondFactor};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, login, print, second_factor, values};

/// Prints the links that the server gives, one a line.
pub(super) async fn setup_link(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let answer = client.post("/api/v1/setup/link", &json!({})).await?;
    let links: Vec<&str> = answer["links"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !view.for_humans() && !view.quiet {
        print(&view.said(&answer, &links.join("\n"))?);
        return Ok(0);
    }
    if view.for_humans() {
        complain(if answer["open"] == true {
            "Open one of these in a browser; it works once, within an hour:\n"
        } else {
            "This machine is already set up. Sign in at:\n"
        });
    }
    print(&format!("{}\n", links.join("\n")));
    Ok(0)
}

/// Changes the version of an account that is there now.
async fn patch(client: &HttpClient, user: &str, body: &Value) -> Result<Value, CliError> {
    let path = user_path(user);
    let now = client.call(Method::GET, &path, Extra::default()).await?;
    let tag = now.header("etag").unwrap_or("*").to_owned();
    let mut extra = Extra::json(body).header("If-Match", tag);
    extra.content_type = Some("application/merge-patch+json");
    client.call(Method::PATCH, &path, extra).await?.json()
}

fn user_path(user: &str) -> String {
    format!("/api/v1/users/{}", encoded(user))
}

pub(super) async fn user(
    client: &HttpClient,
    view: &OutputStyle,
    request: UserCommand,
) -> Result<u8, CliError> {
    match request {
        UserCommand::Ls => {
            let body = client.get("/api/v1/users").await?;
            print(&view.list(&body, columns::USERS)?);
        }
        UserCommand::Get { user } => {
            let body = client.get(&user_path(&user)).await?;
            print(&view.one(&body, columns::USERS)?);
        }
        UserCommand::Add {
            name,
            administrator,
            domain,
            password,
        } => {
            let role = if administrator {
                "administrator"
            } else {
                "user"
            };
            let mut body = json!({
                "name": name,
                "role": role,
                "password": login::new_password(&password)?,
            });
            if let Some(domain) = domain {
                body["domain"] = domain.into();
            }
            let made = client.send::<User>("/api/v1/users", &body).await?;
            print(&view.said(&made.body, &format!("{}  {role}", made.read.name))?);
        }
        UserCommand::Passwd {
            user,
            keep_tokens,
            password,
        } => {
            let body = json!({
                "password": login::new_password(&password)?,
                "revoke_tokens": !keep_tokens,
            });
            let path = format!("{}/password", user_path(&user));
            let changed = client.post(&path, &body).await?;
            print(&view.said(&changed, &format!("{user}  new password set"))?);
        }
        UserCommand::Set {
            user,
            full_name,
            email,
            networks,
            expires,
        } => {
            let mut body = Map::new();
            for (name, value) in [("full_name", full_name), ("email", email)] {
                body.extend(value.map(|value| (name.to_owned(), Value::from(value))));
            }
            if let Some(networks) = networks {
                let words = networks.split([',', ' ']).filter(|word| !word.is_empty());
                body.insert("networks".to_owned(), words.collect());
            }
            if let Some(expires) = expires {
                let end = match expires.as_str() {
                    "none" => Value::Null,
                    expires => json!(values::ahead(expires, true, super::now())?),
                };
                body.insert("expires_at".to_owned(), end);
            }
            if body.is_empty() {
                return Err(CliError::usage(
                    "Say --full-name, --email, --networks or --expires.",
                ));
            }
            let changed = patch(client, &user, &Value::Object(body)).await?;
            print(&view.said(&changed, &format!("{user}  changed"))?);
        }
        UserCommand::Role { user, role } => {
            let changed = patch(client, &user, &json!({"role": role})).await?;
            print(&view.said(&changed, &format!("{user}  {role}"))?);
        }
        UserCommand::Suspend {
            user,
            stop_sessions,
            undo,
        } => {
            let body = json!({"suspended": !undo, "stop_sessions": stop_sessions});
            let path = format!("{}/suspend", user_path(&user));
            let changed = client.post(&path, &body).await?;
            let state = if undo { "active" } else { "suspended" };
            print(&view.said(&changed, &format!("{user}  {state}"))?);
        }
        UserCommand::SignInLink {
            user,
            valid,
            revoke,
        } => {
            let path = format!("{}/sign-in-link", user_path(&user));
            if revoke {
                client.call(Method::DELETE, &path, Extra::default()).await?;
                print(&view.said(&json!({"name": user}), &format!("{user}  link revoked"))?);
                return Ok(0);
            }
            let body = json!({"valid_minutes": values::seconds(&valid)?.div_ceil(60)});
            let made = client.send::<MadeSignInLink>(&path, &body).await?;
            if view.for_humans() {
                complain("The link is shown this once, and signs the user in once.\n");
            }
            print(&view.said(&made.body, &made.read.links.join("\n"))?);
        }
        UserCommand::SecondFactor(UserSecondFactor::Reset { user }) => {
            let path = format!("{}/second-factor", user_path(&user));
            let answer = client
                .call(Method::DELETE, &path, Extra::default())
                .await?
                .json()?;
            print(&view.said(&answer, &format!("{user}  second factor taken away"))?);
        }
        UserCommand::Depart {
            user,
            finish_within,
            dry_run,
        } => {
            let mut body = json!({});
            if let Some(text) = finish_within {
                let until = super::now().plus_seconds(values::seconds(&text)?);
                body = json!({"sessions": "finish", "until": until.to_string()});
            }
            let dry = if dry_run { "?dry_run=true" } else { "" };
            let path = format!("{}/depart{dry}", user_path(&user));
            let answer = client.post(&path, &body).await?;
            print(&view.one(&answer, columns::DEPARTURES)?);
        }
        UserCommand::OfferFolders { user, to } => {
            let path = format!("{}/offer-folders", user_path(&user));
            let answer = client.post(&path, &json!({"to": to})).await?;
            print(&view.one(&answer, columns::DEPARTURES)?);
        }
        UserCommand::HandOverReservations { user, to } => {
            let path = format!("{}/hand-over-reservations", user_path(&user));
            let answer = client.post(&path, &json!({"to": to})).await?;
            print(&view.one(&answer, columns::DEPARTURES)?);
        }
        UserCommand::Rm { users } => {
            for user in users {
                client
                    .call(Method::DELETE, &user_path(&user), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": user}), &format!("{user}  removed"))?);
            }
        }
    }
    Ok(0)
}

pub(super) async fn token(
    client: &HttpClient,
    view: &OutputStyle,
    request: TokenCommand,
) -> Result<u8, CliError> {
    match request {
        TokenCommand::Ls => {
            let body = client.get("/api/v1/me/tokens").await?;
            print(&view.list(&body, columns::TOKENS)?);
        }
        TokenCommand::Create {
            name,
            scope,
            expires,
            networks,
        } => {
            let path = "/api/v1/me/tokens";
            let bounds = (expires.as_deref(), networks.as_deref());
            let made = make::<MadeToken>(client, path, &name, scope, bounds).await?;
            if view.for_humans() {
                complain("This secret is shown once; keep it where only you can read it.\n");
            }
            let secret = &made.read.secret;
            if view.quiet {
                print(&format!("{secret}\n"));
            } else {
                print(&view.said(&made.body, secret)?);
            }
        }
        TokenCommand::Rm { tokens } => {
            for token in tokens {
                let path = format!("/api/v1/me/tokens/{}", encoded(&token));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                print(&view.said(&json!({"id": token}), &format!("{token}  revoked"))?);
            }
        }
    }
    Ok(0)
}

/// How long a token or an access key is good where its user says nothing.
const USUAL_TIME: &str = "90d";

/// Makes a token or an access key. Where no time was given and the token that asks ends earlier, both end together.
async fn make<T: DeserializeOwned>(
    client: &HttpClient,
    path: &str,
    name: &str,
    scopes: Vec<String>,
    (expires, networks): (Option<&str>, Option<&str>),
) -> Result<Answer<T>, CliError> {
    let at = super::now().plus_seconds(values::seconds(expires.unwrap_or(USUAL_TIME))?);
    let scopes = if scopes.is_empty() {
        Permission::ALL.map(|verb| verb.word().to_owned()).to_vec()
    } else {
        scopes
    };
    let words = networks.unwrap_or_default().split([',', ' ']);
    let networks: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut body = json!({"name": name, "scopes": scopes});
    if !networks.is_empty() {
        body["networks"] = json!(networks);
    }
    let endless = body.clone();
    body["expires_at"] = json!(at.to_string());
    match client.send(path, &body).await {
        Err(refused)
            if expires.is_none() && refused.code == rules::codes::EXPIRES_AT_AFTER_MAKER =>
        {
            client.send(path, &endless).await
        }
        answer => answer,
    }
}

pub(super) async fn key(
    client: &HttpClient,
    view: &OutputStyle,
    request: KeyCommand,
) -> Result<u8, CliError> {
    match request {
        KeyCommand::Ls => {
            let body = client.get("/api/v1/me/keys").await?;
            print(&view.list(&body, columns::ACCESS_KEYS)?);
        }
        KeyCommand::Create {
            name,
            scope,
            expires,
            networks,
        } => {
            let path = "/api/v1/me/keys";
            let bounds = (expires.as_deref(), networks.as_deref());
            let made = make::<MadeAccessKey>(client, path, &name, scope, bounds).await?;
            if view.for_humans() {
                complain("Access key and secret; the secret is shown once.\n");
            }
            let told = format!("{} {}", made.read.key.key, made.read.secret);
            if view.quiet {
                print(&format!("{told}\n"));
            } else {
                print(&view.said(&made.body, &told)?);
            }
        }
        KeyCommand::Revoke { keys } => {
            for key in keys {
                let path = format!("/api/v1/me/keys/{}", encoded(&key));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                print(&view.said(&json!({"id": key}), &format!("{key}  revoked"))?);
            }
        }
    }
    Ok(0)
}

pub(super) async fn sign_in(
    client: &HttpClient,
    view: &OutputStyle,
    request: SignInCommand,
) -> Result<u8, CliError> {
    let whose = |of: Option<String>| match of {
        Some(user) => format!("{}/sign-ins", user_path(&user)),
        None => "/api/v1/me/sign-ins".to_owned(),
    };
    match request {
        SignInCommand::Ls { of } => {
            let body = client.get(&whose(of)).await?;
            print(&view.list(&body, columns::SIGN_INS)?);
        }
        SignInCommand::Rm { ids, of } => {
            let path = whose(of);
            for id in ids {
                let one = format!("{path}/{}", encoded(&id));
                client.call(Method::DELETE, &one, Extra::default()).await?;
                print(&view.said(&json!({"id": id}), &format!("{id}  signed out"))?);
            }
        }
    }
    Ok(0)
}

pub(super) async fn me(
    client: &HttpClient,
    view: &OutputStyle,
    request: Me,
) -> Result<u8, CliError> {
    match request {
        Me::Get => {
            let body = client.get("/api/v1/me").await?;
            print(&view.one(&body, columns::USERS)?);
        }
        Me::Set {
            language,
            theme,
            time_zone,
        } => {
            let mut body = Map::new();
            for (key, value) in [
                ("language", language),
                ("theme", theme),
                ("time_zone", time_zone),
            ] {
                if let Some(value) = value {
                    body.insert(key.into(), value.into());
                }
            }
            if body.is_empty() {
                return Err(
                    CliError::usage("There is nothing to set.").hint("For example: --language ko.")
                );
            }
            let mut extra = Extra::json(&Value::Object(body));
            extra.content_type = Some("application/merge-patch+json");
            let changed = client
                .call(Method::PATCH, "/api/v1/me", extra)
                .await?
                .json()?;
            print(&view.one(&changed, columns::USERS)?);
        }
        Me::Passwd { stdin } => {
            let from = |stdin| super::args::Password {
                password_file: None,
                password_stdin: stdin,
            };
            let (old, new) = if stdin {
                let mut lines = std::io::stdin().lines().map_while(Result::ok);
                let mut next = || lines.next().unwrap_or_default();
                (next(), next())
            } else {
                let old = login::password(&from(false), "Password now: ")?;
                (old, login::new_password(&from(false))?)
            };
            let body = json!({"old": old, "new": new});
            let answer = client.post("/api/v1/me/password", &body).await?;
            print(&view.said(
                &answer,
                "New password set. Your browsers were signed out and your other tokens revoked.",
            )?);
        }
        Me::SecondFactor(request) => second_factor::run(request, client, view).await?,
    }
    Ok(0)
}
