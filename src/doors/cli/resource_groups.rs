//! The commands on resource groups.

use api::resource_groups::{GroupWindowView, ResourceGroupView};
use hyper::Method;
use rules::calendar::GroupWindow;
use serde_json::{Map, Value, json};

use super::args::{GroupCommand, GroupFlags};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/resource-groups";

pub(super) async fn group(
    client: &HttpClient,
    view: &OutputStyle,
    request: GroupCommand,
) -> Result<u8, CliError> {
    match request {
        GroupCommand::Ls => {
            print(&view.list(&client.get(PATH).await?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Get { group } => {
            let body = client.get(&path(&group)).await?;
            print(&view.one(&body, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Add { name, flags } => {
            let mut body = said(&flags);
            body.insert("name".to_owned(), name.into());
            let made = client
                .send::<ResourceGroupView>(PATH, &Value::Object(body))
                .await?;
            print(&view.said(&made.body, made.read.name.as_str())?);
        }
        GroupCommand::Edit {
            group,
            name,
            flags,
            if_match,
        } => {
            let path = path(&group);
            let mut patch = said(&flags);
            if let Some(name) = name {
                patch.insert("name".to_owned(), name.into());
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", version(if_match));
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Nodes {
            group,
            nodes,
            if_match,
        } => {
            let path = format!("{}/nodes", path(&group));
            let body = json!({ "nodes": nodes });
            let extra = Extra::json(&body).header("If-Match", version(if_match));
            let changed = client.call(Method::PUT, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Access {
            group,
            everybody,
            domain,
            project,
            user,
            if_match,
        } => {
            let path = format!("{}/access", path(&group));
            let body = json!({
                "everybody": everybody, "domains": domain, "projects": project, "users": user,
            });
            let extra = Extra::json(&body).header("If-Match", version(if_match));
            let changed = client.call(Method::PUT, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Windows {
            group,
            windows,
            // Then there are no windows, which the parser sees to.
            none: _,
            time_zone,
        } => {
            let path = format!("{}/windows", path(&group));
            let body = json!({ "windows": read(&windows)?, "time_zone": time_zone });
            let changed = client.call(Method::PUT, &path, Extra::json(&body)).await?;
            print(&view.one(&changed.json()?, columns::RESOURCE_GROUPS)?);
        }
        GroupCommand::Rm { groups } => {
            for group in groups {
                client
                    .call(Method::DELETE, &path(&group), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": group}), &format!("{group}  removed"))?);
            }
        }
    }
    Ok(0)
}

/// The version that a change is for: any, where the user named none. One that is read just before it is written would
/// find no change of another user.
fn version(if_match: Option<u64>) -> String {
    if_match.map_or_else(|| "*".to_owned(), |generation| format!("\"{generation}\""))
}

fn path(group: &str) -> String {
    format!("{PATH}/{}", encoded(group))
}

/// Windows as they were typed.
fn read(typed: &[String]) -> Result<Vec<GroupWindowView>, CliError> {
    let window = |line: &String| -> Result<GroupWindowView, CliError> {
        let window = GroupWindow::parse(line);
        let window = window.map_err(|refusal| CliError::usage(refusal.text).hint(refusal.hint))?;
        Ok(GroupWindowView::of(&window))
    };
    typed.iter().map(window).collect()
}

/// The fields that the flags name.
fn said(flags: &GroupFlags) -> Map<String, Value> {
    let mut body = Map::new();
    if let Some(title) = &flags.title {
        body.insert("title".to_owned(), title.clone().into());
    }
    if !flags.kind.is_empty() {
        body.insert("kinds".to_owned(), flags.kind.clone().into());
    }
    let own = [
        ("spreading", &flags.spreading),
        ("order", &flags.order),
        ("backfill", &flags.backfill),
    ];
    for (field, word) in own {
        match word.as_deref() {
            None => {}
            // As the settings or the rule of the site say.
            Some("settings" | "site") => {
                body.insert(field.to_owned(), Value::Null);
            }
            Some(word) => {
                body.insert(field.to_owned(), word.into());
            }
        }
    }
    if let Some(factor) = &flags.cpu_overcommit {
        body.insert("cpu_overcommit".to_owned(), factor.clone().into());
    }
    if let Some(mode) = &flags.preemption {
        body.insert("preemption".to_owned(), mode.clone().into());
    }
    body
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use clap::error::ErrorKind;

    use super::*;
    use crate::doors::cli::args::CommandLine;

    #[test]
    fn windows_are_taken_away_by_their_own_word_alone() {
        let parse = |words: &[&str]| {
            let command = ["fardel", "group", "windows", "lab"].into_iter();
            CommandLine::try_parse_from(command.chain(words.iter().copied())).map(drop)
        };
        for good in [&["--none"][..], &["daily 09:00-18:00"][..]] {
            assert!(parse(good).is_ok(), "{good:?}");
        }
        let wiped = parse(&[]).expect_err("no windows by mistake");
        assert_eq!(wiped.kind(), ErrorKind::MissingRequiredArgument);
        assert!(wiped.to_string().contains("--none"), "{wiped}");
        let both = parse(&["daily 09:00-18:00", "--none"]).expect_err("windows and none");
        assert_eq!(both.kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn a_change_is_for_the_version_that_was_named_or_for_any() {
        assert_eq!(version(None), "*");
        assert_eq!(version(Some(7)), "\"7\"");
        for words in [
            &["edit", "lab", "--title", "Lab"][..],
            &["nodes", "lab", "gpu-3"][..],
            &["access", "lab", "--everybody"][..],
        ] {
            let command = ["fardel", "group"].into_iter();
            let command = command.chain(words.iter().copied());
            let parsed = CommandLine::try_parse_from(command.chain(["--if-match", "7"]));
            assert!(parsed.is_ok(), "{words:?}");
        }
    }

    #[test]
    fn flags_become_the_body_of_a_group() {
        let flags = GroupFlags {
            title: Some("Lab".to_owned()),
            kind: vec!["batch".to_owned()],
            spreading: Some("settings".to_owned()),
            order: Some("drf".to_owned()),
            backfill: Some("site".to_owned()),
            cpu_overcommit: Some("1.5".to_owned()),
            preemption: Some("priority".to_owned()),
        };
        assert_eq!(
            Value::Object(said(&flags)),
            json!({
                "title": "Lab", "kinds": ["batch"], "spreading": null, "order": "drf",
                "backfill": null, "cpu_overcommit": "1.5", "preemption": "priority",
            })
        );
        assert!(said(&GroupFlags::default()).is_empty(), "the rest stays");
    }
}
