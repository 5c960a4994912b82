//! The commands on policies, and on the limits that hold.

use api::policies::PolicyView;
use hyper::Method;
use rules::quota::{LimitKey, PolicyLevel};
use rules::units::{Bytes, CpuShare, GpuShare};
use serde_json::{Map, Value, json};

use super::args::{
    EgressFlags, HomeFlags, InnerDoorFlags, LimitFlags, PolicyCommand, PolicyPlace,
    RequiredLimitFlags, SudoFlags,
};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, print, values};

pub(super) async fn policy(
    client: &HttpClient,
    view: &OutputStyle,
    request: PolicyCommand,
) -> Result<u8, CliError> {
    match request {
        PolicyCommand::Ls => {
            let body = client.get("/api/v1/policies").await?;
            print(&view.list(&body, columns::POLICIES)?);
        }
        PolicyCommand::Get { policy } => {
            let body = client.get(&path(&policy)).await?;
            print(&view.one(&body, columns::POLICIES)?);
        }
        PolicyCommand::Create {
            name,
            limits,
            egress,
            sudo,
            inner_door,
            home,
            required_limit,
        } => {
            let mut body = json!({"name": name, "limits": said(&limits, Map::new())?});
            put_egress(&mut body, &egress, &Value::Null);
            put_sudo(&mut body, sudo);
            put_inner_door(&mut body, inner_door);
            put_home(&mut body, home);
            put_required_limit(&mut body, required_limit);
            let made = client.send::<PolicyView>("/api/v1/policies", &body).await?;
            print(&view.said(&made.body, &made.read.name)?);
        }
        PolicyCommand::Set {
            policy,
            limits,
            egress,
            sudo,
            inner_door,
            home,
            required_limit,
            dry_run,
        } => {
            let now = client
                .call(Method::GET, &path(&policy), Extra::default())
                .await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let now = now.json()?;
            let before = now["limits"].as_object().cloned();
            let mut body = json!({"limits": said(&limits, before.unwrap_or_default())?});
            put_egress(&mut body, &egress, &now["egress"]);
            put_sudo(&mut body, sudo);
            put_inner_door(&mut body, inner_door);
            put_home(&mut body, home);
            put_required_limit(&mut body, required_limit);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            if dry_run {
                let path = format!("{}?dry_run=true", path(&policy));
                let over = client.call(Method::PATCH, &path, extra).await?.json()?;
                if over["more"].as_u64().is_some_and(|more| more > 0) && view.for_humans() {
                    complain(&format!("And {} more.\n", over["more"]));
                }
                print(&view.list(&over, columns::OVER_LIMITS)?);
                return Ok(0);
            }
            let changed = client.call(Method::PATCH, &path(&policy), extra).await?;
            print(&view.one(&changed.json()?, columns::POLICIES)?);
        }
        PolicyCommand::Rm { policies } => {
            for policy in policies {
                client
                    .call(Method::DELETE, &path(&policy), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": policy}), &format!("{policy}  removed"))?);
            }
        }
        PolicyCommand::Attach { policy, place } => {
            let (level, subject) = of(&place);
            let body = json!({"level": level, "subject": subject});
            let path = format!("{}/uses", path(&policy));
            let set = client.call(Method::PUT, &path, Extra::json(&body)).await?;
            let told = format!("{policy}  {level} {}", subject.unwrap_or_default());
            print(&view.said(&set.json()?, told.trim_end())?);
        }
        PolicyCommand::Detach { policy, place } => {
            let (level, subject) = of(&place);
            let mut path = format!("{}/uses?level={level}", path(&policy));
            if let Some(subject) = subject {
                path.push_str(&format!("&subject={}", encoded(subject)));
            }
            let left = client.call(Method::DELETE, &path, Extra::default()).await?;
            print(&view.said(&left.json()?, &format!("{policy}  detached"))?);
        }
    }
    Ok(0)
}

pub(super) async fn limits(
    client: &HttpClient,
    view: &OutputStyle,
    user: Option<&str>,
    project: Option<&str>,
) -> Result<u8, CliError> {
    let mut path = "/api/v1/effective-limits?".to_owned();
    for (name, value) in [("user", user), ("project", project)] {
        if let Some(value) = value {
            path.push_str(&format!("{name}={}&", encoded(value)));
        }
    }
    let mut body = client.get(path.trim_end_matches(['&', '?'])).await?;
    if view.for_humans()
        && let Some(items) = body.get_mut("items").and_then(Value::as_array_mut)
    {
        *items = with_unlimited(std::mem::take(items));
    }
    print(&view.list(&body, columns::LIMITS)?);
    Ok(0)
}

/// Limits that are listed also where none holds, as on the pages. How large folders may be is not among them: without a
/// policy the site's own limit holds.
const ASKED_ABOUT: [LimitKey; 5] = [
    LimitKey::Gpu,
    LimitKey::Cpu,
    LimitKey::Memory,
    LimitKey::Sessions,
    LimitKey::RuntimeSeconds,
];

/// The limits that hold: those that are asked about first, with a row for each that is none.
fn with_unlimited(mut held: Vec<Value>) -> Vec<Value> {
    let mut listed = Vec::with_capacity(held.len() + ASKED_ABOUT.len());
    for key in ASKED_ABOUT {
        match held.iter().position(|one| one["key"] == key.word()) {
            Some(at) => listed.push(held.remove(at)),
            None => listed.push(json!({
                "key": key.word(), "limit": 0, "used": 0, "left": 0,
                "limit_text": columns::UNLIMITED, "used_text": "-",
                "level": PolicyLevel::Site, "policy": "", "until": null,
            })),
        }
    }
    listed.extend(held);
    listed
}

/// What the flags say of networks, beside what the policy said before; nothing where they name none.
fn put_egress(body: &mut Value, flags: &EgressFlags, before: &Value) {
    if flags.no_networks {
        body["egress"] = json!({});
        return;
    }
    if flags.networks.is_empty() && flags.target.is_empty() {
        return;
    }
    let said = |flags: &[String], before: &Value| match flags.is_empty() {
        true if before.is_array() => before.clone(),
        _ => json!(flags),
    };
    body["egress"] = json!({
        "networks": said(&flags.networks, &before["networks"]),
        "targets": said(&flags.target, &before["targets"]),
    });
}

/// What the flags say of sudo; nothing where neither stands.
fn put_sudo(body: &mut Value, flags: SudoFlags) {
    if flags.sudo || flags.no_sudo {
        body["sudo"] = flags.sudo.into();
    }
}

/// What the flags say of inner doors; nothing where neither stands.
fn put_inner_door(body: &mut Value, flags: InnerDoorFlags) {
    if flags.inner_door || flags.no_inner_door {
        body["no_inner_door"] = flags.no_inner_door.into();
    }
}

/// The same of homes.
fn put_home(body: &mut Value, flags: HomeFlags) {
    if flags.home || flags.no_home {
        body["no_home"] = flags.no_home.into();
    }
}

/// The same of the time limit that sessions have to name.
fn put_required_limit(body: &mut Value, flags: RequiredLimitFlags) {
    if flags.require_limit || flags.no_require_limit {
        body["require_limit"] = flags.require_limit.into();
    }
}

fn path(policy: &str) -> String {
    format!("/api/v1/policies/{}", encoded(policy))
}

fn of(place: &PolicyPlace) -> (&'static str, Option<&str>) {
    match (&place.domain, &place.project, &place.member_of, &place.user) {
        (Some(domain), ..) => ("domain", Some(domain)),
        (_, Some(project), ..) => ("project", Some(project)),
        (_, _, Some(project), _) => ("member", Some(project)),
        (.., Some(user)) => ("user", Some(user)),
        _ => ("site", None),
    }
}

/// The limits before, with those that the flags name; `none` takes one out.
pub(super) fn said(flags: &LimitFlags, mut before: Map<String, Value>) -> Result<Value, CliError> {
    let number = |text: &str| text.parse::<u64>().map(Value::from).ok();
    let bytes = |text: &str| Some(Value::from(Bytes::parse(text).ok()?.0));
    let gpu = |text: &str| serde_json::to_value(GpuShare::parse(text).ok()?).ok();
    let cpu = |text: &str| serde_json::to_value(CpuShare::parse(text).ok()?).ok();
    let time = |text: &str| values::seconds(text).ok().map(Value::from);
    type Reading<'a> = &'a dyn Fn(&str) -> Option<Value>;
    let all: [(&str, &Option<String>, Reading<'_>); 15] = [
        ("waiting", &flags.waiting, &number),
        ("waiting_bytes", &flags.waiting_bytes, &bytes),
        ("sessions", &flags.sessions, &number),
        ("gpu", &flags.gpu, &gpu),
        ("cpu", &flags.cpu, &cpu),
        ("memory", &flags.memory, &bytes),
        ("gpu_each", &flags.gpu_each, &gpu),
        ("cpu_each", &flags.cpu_each, &cpu),
        ("memory_each", &flags.memory_each, &bytes),
        ("disk_each", &flags.disk_each, &bytes),
        ("runtime_seconds", &flags.runtime, &time),
        ("priority", &flags.priority, &number),
        ("sign_ins", &flags.sign_ins, &number),
        ("folder_bytes", &flags.folder_bytes, &bytes),
        ("images", &flags.images, &number),
    ];
    for (name, text, read) in all {
        let Some(text) = text else {
            continue;
        };
        let value = match text.as_str() {
            "none" => Value::Null,
            text => read(text)
                .ok_or_else(|| CliError::usage(format!("{text} is no limit for {name}.")))?,
        };
        before.insert(name.to_owned(), value);
    }
    Ok(Value::Object(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::cli::args::Format;
    use rules::units::Timestamp;

    #[test]
    fn a_limit_that_is_asked_about_is_listed_where_none_holds() {
        let held = |key: &str| json!({"key": key, "limit_text": "4"});
        let listed = with_unlimited(vec![held("waiting"), held("sessions")]);
        let told: Vec<_> = listed
            .iter()
            .filter_map(|one| Some((one["key"].as_str()?, one["limit_text"].as_str()?)))
            .collect();
        assert_eq!(
            told,
            [
                ("gpu", "no limit"),
                ("cpu", "no limit"),
                ("memory", "no limit"),
                ("sessions", "4"),
                ("runtime_seconds", "no limit"),
                ("waiting", "4"),
            ]
        );
        let view = OutputStyle {
            format: Format::Table,
            width: None,
            quiet: false,
            now: Timestamp::from_millis(0),
            columns: Vec::new(),
        };
        let body = json!({"items": with_unlimited(Vec::new())});
        let printed = view.list(&body, columns::LIMITS).expect("a table");
        let gpus = printed.lines().nth(1).expect("a row");
        assert!(gpus.starts_with("GPUs  "), "{printed}");
        assert!(gpus.contains("no limit"), "{printed}");
    }
}
