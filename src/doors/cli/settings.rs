//! Settings of a running server from the command line: list, show, set, unset, undo, read again.

use api::settings::{SettingChange, SignInSourceTrial, SignInSourceTrials};
use hyper::Method;
use serde_json::{Value, json};

use super::answer::Answer;
use super::args::{Config, DryRun};
use super::client::{Extra, HttpClient, encoded, fresh_key};
use super::error::{CliError, FAILED};
use super::format::setting_value;
use super::output::OutputStyle;
use super::{columns, print};

pub(super) async fn config(
    client: &HttpClient,
    view: &OutputStyle,
    verb: Config,
) -> Result<u8, CliError> {
    match verb {
        Config::Ls => {
            let body = client.get("/api/v1/settings").await?;
            print(&view.list(&body, columns::SETTINGS)?);
        }
        Config::Get { key } => {
            let body = client.get(&path(&key)).await?;
            print(&view.one(&body, columns::SETTING)?);
        }
        Config::Set { key, value, dry } => {
            let body = Extra::json(&json!({"value": value}));
            changed(client, view, Method::PUT, &path(&key), body, &dry).await?;
        }
        Config::Unset { key, dry } => {
            let nothing = Extra::default();
            changed(client, view, Method::DELETE, &path(&key), nothing, &dry).await?;
        }
        Config::Undo { key, dry } => {
            let path = format!("{}/undo", path(&key));
            let once = Extra::json(&json!({})).header("Idempotency-Key", fresh_key());
            changed(client, view, Method::POST, &path, once, &dry).await?;
        }
        Config::Reload => reload(client, view).await?,
        Config::Test => return test(client, view).await,
        Config::Validate { .. } | Config::Show { .. } | Config::Sample => {
            return Err(CliError::new(
                FAILED,
                "command.not-here",
                "This command is not one of the client's.",
            ));
        }
    }
    Ok(0)
}

fn path(key: &str) -> String {
    format!("/api/v1/settings/{}", encoded(key))
}

async fn changed(
    client: &HttpClient,
    view: &OutputStyle,
    method: Method,
    path: &str,
    extra: Extra,
    dry: &DryRun,
) -> Result<(), CliError> {
    let query = if dry.dry_run { "?dry_run=true" } else { "" };
    let answer = client
        .call(method, &format!("{path}{query}"), extra)
        .await?;
    let done = Answer::<SettingChange>::of(answer.json()?)?;
    print(&view.said(&done.body, &told(&done.read))?);
    Ok(())
}

/// `backup_keep  3 → 9`, and what is left to do.
fn told(done: &SettingChange) -> String {
    let before = setting_value(done.before.as_ref());
    let after = setting_value(done.after.as_ref());
    let more = match (done.dry_run, done.needs_restart) {
        (true, true) => "  (would wait for a restart; nothing was written)",
        (true, false) => "  (would be in force; nothing was written)",
        (false, true) => "  (after a restart of the server)",
        (false, false) => "",
    };
    format!("{}  {before} → {after}{more}", done.key)
}

/// Has the server read its settings again and says what came of it.
async fn reload(client: &HttpClient, view: &OutputStyle) -> Result<(), CliError> {
    let body = client.post("/api/v1/settings/reload", &json!({})).await?;
    let names = |key: &str| {
        let keys = body[key].as_array().into_iter().flatten();
        keys.filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let lines = match (names("changed"), names("needs_restart")) {
        (changed, waiting) if changed.is_empty() && waiting.is_empty() => {
            "Nothing differs from what is in force.\n".to_owned()
        }
        (changed, waiting) => {
            let mut lines = String::new();
            if !changed.is_empty() {
                lines.push_str(&format!("now in force: {changed}\n"));
            }
            if !waiting.is_empty() {
                lines.push_str(&format!("after a restart of the server: {waiting}\n"));
            }
            lines
        }
    };
    print(&view.said(&body, &lines)?);
    Ok(())
}

/// Asks the directory, the identity provider and the receivers of the audit log; 1 where one of them does not work.
async fn test(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let path = "/api/v1/settings/sign-in/test";
    let answer = client.send::<SignInSourceTrials>(path, &json!({})).await?;
    let tried = &answer.read.items;
    let lines = match tried.is_empty() {
        true => "No directory, identity provider or receiver of the audit log is set.\n".to_owned(),
        false => tried.iter().map(tried_line).collect(),
    };
    print(&view.said(&answer.body, &lines)?);
    Ok(u8::from(!tried.iter().all(|one| one.works)))
}

/// `ldap  works`, `audit-http  works: status 200`, or what is wrong.
fn tried_line(one: &SignInSourceTrial) -> String {
    let said = match (one.works, one.answer.as_str()) {
        (true, "") => "works".to_owned(),
        (true, answer) => format!("works: {answer}"),
        (false, _) => one.problem.clone(),
    };
    format!("{}  {said}\n", one.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_with_both_values_and_what_is_left_to_do() {
        let mut done = SettingChange {
            key: "gpu_units".to_owned(),
            before: None,
            after: Some(10.into()),
            needs_restart: true,
            dry_run: false,
        };
        assert_eq!(
            told(&done),
            "gpu_units  - → 10  (after a restart of the server)"
        );
        (done.needs_restart, done.before) = (false, Some("a b".into()));
        assert_eq!(told(&done), "gpu_units  a b → 10");
        done.dry_run = true;
        assert!(told(&done).ends_with("nothing was written)"));
    }
}
