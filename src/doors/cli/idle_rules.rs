//! The commands on idle rules, and the one that keeps a session.

use api::idle_rules::{IdleRuleView, SessionIdleView};
use hyper::Method;
use rules::idleness::IdleAction;
use rules::units::{CpuShare, Timestamp};
use serde_json::{Map, Value, json};

use super::args::{IdleFlags, IdlePlace, IdleRuleCommand};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, print, values};

const PATH: &str = "/api/v1/idle-rules";

pub(super) async fn idle_rule(
    client: &HttpClient,
    view: &OutputStyle,
    request: IdleRuleCommand,
) -> Result<u8, CliError> {
    match request {
        IdleRuleCommand::Ls => {
            let body = client.get(PATH).await?;
            print(&view.list(&body, columns::IDLE_RULES)?);
        }
        IdleRuleCommand::Get { rule } => {
            let body = client.get(&path(&rule)).await?;
            print(&view.one(&body, columns::IDLE_RULES)?);
        }
        IdleRuleCommand::Create { name, place, rule } => {
            let mut body = said(&rule, Map::new())?;
            body.insert("name".to_owned(), name.into());
            put_place(&mut body, &place);
            let made = client.send::<IdleRuleView>(PATH, &body.into()).await?;
            print(&view.said(&made.body, &made.read.name)?);
        }
        IdleRuleCommand::Set {
            rule,
            name,
            changed,
        } => {
            let path = path(&rule);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let before = now.json()?["below"].as_object().cloned();
            let mut body = said(&changed, before.unwrap_or_default())?;
            if let Some(name) = name {
                body.insert("name".to_owned(), name.into());
            }
            let body = Value::Object(body);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::IDLE_RULES)?);
        }
        IdleRuleCommand::Rm { rules } => {
            for rule in rules {
                client
                    .call(Method::DELETE, &path(&rule), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": rule}), &format!("{rule}  removed"))?);
            }
        }
        IdleRuleCommand::Try {
            rule,
            place,
            changed,
        } => try_out(client, view, rule.as_deref(), &place, &changed).await?,
    }
    Ok(0)
}

async fn try_out(
    client: &HttpClient,
    view: &OutputStyle,
    rule: Option<&str>,
    place: &IdlePlace,
    changed: &IdleFlags,
) -> Result<(), CliError> {
    let mut body = match rule {
        Some(rule) => {
            let found = client.get(&path(rule)).await?;
            let mut known = found.as_object().cloned().unwrap_or_default();
            for field in ["id", "generation"] {
                known.remove(field);
            }
            known
        }
        None => Map::new(),
    };
    let below = body.get("below").and_then(Value::as_object).cloned();
    body.append(&mut said(changed, below.unwrap_or_default())?);
    put_place(&mut body, place);
    let path = format!("{PATH}/dry-run");
    let run = client.post(&path, &Value::Object(body)).await?;
    if view.for_humans() {
        complain(&format!("{}\n", sentence(&run)));
        if run["ended"] == 0 {
            return Ok(());
        }
        let rows = json!({"items": run["examples"]});
        print(&view.list(&rows, columns::IDLE_DRY_ENDS)?);
        return Ok(());
    }
    print(&view.said(&run, &sentence(&run))?);
    Ok(())
}

/// `Would have acted 14 times and freed 61.0 GPU-hours; 2 were busy again within the hour.`
fn sentence(run: &Value) -> String {
    let count = |field: &str| run[field].as_u64().unwrap_or_default();
    if count("sessions") == 0 {
        return "No session with samples falls under this rule. A closer or older rule may cover them."
            .to_owned();
    }
    let hours = run["gpu_hours"].as_f64().unwrap_or_default();
    format!(
        "Of {} sessions it would have acted {} times and freed {hours:.1} GPU-hours; {} were busy again within the hour.",
        count("sessions"),
        count("ended"),
        count("busy_again"),
    )
}

pub(super) async fn keep(
    client: &HttpClient,
    view: &OutputStyle,
    sessions: &[String],
) -> Result<u8, CliError> {
    for session in sessions {
        let path = format!("{}/keep", values::path(session));
        let kept = client.send::<SessionIdleView>(&path, &json!({})).await?;
        let until = kept.read.ends_at.map_or_else(
            || format!("{session}  kept"),
            |at| {
                let then = match kept.read.action {
                    IdleAction::Notice => "its owner is told",
                    IdleAction::Stop => "stopped",
                    IdleAction::Pause => "paused",
                    IdleAction::Requeue => "queued again",
                };
                format!("{session}  kept until {}, then {then} if idle", second(at))
            },
        );
        print(&view.said(&kept.body, &until)?);
    }
    Ok(0)
}

/// `2026-11-28T03:56:02Z`: a time without its milliseconds.
fn second(at: Timestamp) -> String {
    let at = at.to_string();
    match at.split_once('.') {
        Some((second, _)) => format!("{second}Z"),
        None => at,
    }
}

fn path(rule: &str) -> String {
    format!("{PATH}/{}", encoded(rule))
}

fn put_place(body: &mut Map<String, Value>, place: &IdlePlace) {
    let (level, subject) = match (&place.domain, &place.project) {
        (Some(domain), _) => ("domain", domain),
        (_, Some(project)) => ("project", project),
        _ => return,
    };
    body.insert("level".to_owned(), level.into());
    body.insert("subject".to_owned(), subject.as_str().into());
}

/// What the flags say; thresholds are those of before with the ones that are named, and `none` takes one out.
fn said(flags: &IdleFlags, before: Map<String, Value>) -> Result<Map<String, Value>, CliError> {
    let number = |text: &str| text.parse::<u32>().map(Value::from).ok();
    let cores = |text: &str| serde_json::to_value(CpuShare::parse(text).ok()?).ok();
    let mut below = before;
    type ThresholdReader<'a> = &'a dyn Fn(&str) -> Option<Value>;
    let thresholds: [(&str, &Option<String>, ThresholdReader<'_>); 4] = [
        ("gpu_percent", &flags.gpu, &number),
        ("cpu", &flags.cpu, &cores),
        ("terminals", &flags.terminals, &number),
        ("keys", &flags.keys, &number),
    ];
    let named = thresholds.iter().any(|(_, text, _)| text.is_some());
    for (field, text, read) in thresholds {
        let value = match text.as_deref() {
            None => continue,
            Some("none") => Value::Null,
            Some(text) => read(text)
                .ok_or_else(|| CliError::usage(format!("{text} is no threshold for {field}.")))?,
        };
        below.insert(field.to_owned(), value);
    }
    let mut body = Map::new();
    if named {
        body.insert("below".to_owned(), Value::Object(below));
    }
    let times = [
        ("window_seconds", &flags.window),
        ("grace_seconds", &flags.grace),
        ("extend_seconds", &flags.extend),
    ];
    for (field, text) in times {
        if let Some(text) = text {
            body.insert(field.to_owned(), values::seconds(text)?.into());
        }
    }
    let words = [
        ("of", &flags.of),
        ("action", &flags.action),
        ("exempt", &flags.exempt),
    ];
    for (field, text) in words {
        if let Some(text) = text {
            body.insert(field.to_owned(), text.as_str().into());
        }
    }
    if let Some(times) = flags.times {
        body.insert("extend_times".to_owned(), times.into());
    }
    match flags.kind.as_deref() {
        None => {}
        Some("any") => {
            body.insert("kind".to_owned(), Value::Null);
        }
        Some(kind) => {
            body.insert("kind".to_owned(), kind.into());
        }
    }
    Ok(body)
}
