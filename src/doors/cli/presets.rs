//! The commands on presets.

use api::presets::PresetView;
use hyper::Method;
use rules::units::{Bytes, CpuShare, GpuShare};
use serde_json::{Map, Value, json};

use super::args::{PresetCommand, PresetFlags};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print, values};

const PATH: &str = "/api/v1/presets";

pub(super) async fn preset(
    client: &HttpClient,
    view: &OutputStyle,
    request: PresetCommand,
) -> Result<u8, CliError> {
    match request {
        PresetCommand::Ls { project } => {
            let path = match project {
                Some(project) => format!("{PATH}?project={}", encoded(&project)),
                None => PATH.to_owned(),
            };
            print(&view.list(&client.get(&path).await?, columns::PRESETS)?);
        }
        PresetCommand::Get { preset } => {
            let body = client.get(&path(&preset)).await?;
            print(&view.one(&body, columns::PRESETS)?);
        }
        PresetCommand::Add {
            name,
            domain,
            project,
            flags,
        } => {
            let mut body = said(&flags, &Value::Null)?;
            body.insert("name".to_owned(), name.into());
            for (key, scope) in [("domain", domain), ("project", project)] {
                if let Some(scope) = scope {
                    body.insert(key.to_owned(), scope.into());
                }
            }
            let made = client
                .send::<PresetView>(PATH, &Value::Object(body))
                .await?;
            print(&view.said(&made.body, made.read.name.as_str())?);
        }
        PresetCommand::Edit {
            preset,
            name,
            flags,
        } => {
            let path = path(&preset);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let mut patch = said(&flags, &now.json()?["resources"])?;
            if let Some(name) = name {
                patch.insert("name".to_owned(), name.into());
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::PRESETS)?);
        }
        PresetCommand::Rm { presets } => {
            for preset in presets {
                client
                    .call(Method::DELETE, &path(&preset), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": preset}), &format!("{preset}  removed"))?);
            }
        }
    }
    Ok(0)
}

fn path(preset: &str) -> String {
    format!("{PATH}/{}", encoded(preset))
}

/// The fields that the flags name; `none` takes an amount out. `before`: the amounts that the preset has now, since they
/// are replaced as a whole.
fn said(flags: &PresetFlags, before: &Value) -> Result<Map<String, Value>, CliError> {
    let mut body = Map::new();
    for (name, text) in [
        ("title", &flags.title),
        ("title_ko", &flags.korean),
        ("group", &flags.group),
    ] {
        if let Some(text) = text {
            body.insert(name.to_owned(), text.clone().into());
        }
    }
    if let Some(position) = flags.position {
        body.insert("position".to_owned(), position.into());
    }
    if let Some(word) = &flags.default {
        body.insert("default".to_owned(), (word == "yes").into());
    }
    let bytes = |text: &str| serde_json::to_value(Bytes::parse(text).ok()?).ok();
    let cpu = |text: &str| serde_json::to_value(CpuShare::parse(text).ok()?).ok();
    let gpu = |text: &str| serde_json::to_value(GpuShare::parse(text).ok()?).ok();
    let mig = |text: &str| Some(Value::from(text));
    let time = |text: &str| values::seconds(text).ok().map(Value::from);
    type Reading<'a> = &'a dyn Fn(&str) -> Option<Value>;
    let read = |name: &str, text: &str, reading: Reading<'_>| match text {
        "none" => Ok(Value::Null),
        text => {
            reading(text).ok_or_else(|| CliError::usage(format!("{text} is no amount for {name}.")))
        }
    };
    let all: [(&str, &Option<String>, Reading<'_>); 7] = [
        ("cpu", &flags.cpu, &cpu),
        ("memory", &flags.mem, &bytes),
        ("shm", &flags.shm, &bytes),
        ("disk", &flags.disk, &bytes),
        ("gpu", &flags.gpu, &gpu),
        ("gpu_memory", &flags.gpu_mem, &bytes),
        ("mig", &flags.mig, &mig),
    ];
    if all.iter().any(|(_, text, _)| text.is_some()) {
        let mut resources = before.as_object().cloned().unwrap_or_default();
        for (name, text, reading) in all {
            if let Some(text) = text {
                resources.insert(name.to_owned(), read(name, text, reading)?);
            }
        }
        body.insert("resources".to_owned(), Value::Object(resources));
    }
    if let Some(text) = &flags.max_runtime {
        let limit = read("max_runtime_seconds", text, &time)?;
        body.insert("max_runtime_seconds".to_owned(), limit);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_the_body_of_a_preset() {
        let flags = PresetFlags {
            cpu: Some("4".to_owned()),
            gpu: Some("0.5".to_owned()),
            shm: Some("none".to_owned()),
            max_runtime: Some("4h".to_owned()),
            default: Some("yes".to_owned()),
            ..PresetFlags::default()
        };
        let before = json!({"cpu": 1, "memory": 1024, "shm": 64});
        let body = Value::Object(said(&flags, &before).expect("valid"));
        assert_eq!(
            body,
            json!({
                "resources": {"cpu": 4, "memory": 1024, "shm": null, "gpu": 0.5},
                "max_runtime_seconds": 14_400, "default": true,
            })
        );
        let wrong = PresetFlags {
            gpu: Some("half".to_owned()),
            ..PresetFlags::default()
        };
        assert!(said(&wrong, &Value::Null).is_err());
        let nothing = said(&PresetFlags::default(), &before).expect("valid");
        assert!(nothing.is_empty(), "what is left out stays");
    }
}
