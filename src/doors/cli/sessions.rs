//! The commands on sessions: list, show, change, explain. Never follows their output (`terminal`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::commits::CommitRequest;
use api::page::ListPage;
use api::sessions::{SessionView, WaitingView};
use hyper::Method;
use rules::placement::Explanation;
use rules::session::SessionState;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::args::{Removal, SessionCommand, SessionLs};
use super::client::{Extra, HttpClient};
use super::error::{CONFLICT, CliError, NOT_FOUND, PARTLY, TIMEOUT};
use super::explain::{explained, in_full, waits_for};
use super::output::OutputStyle;
use super::values::path;
use super::{Surroundings, columns, complain, images, launch, print, terminal, values};

/// Rows asked for at once while a list is read to its end.
const PAGE: u32 = 500;

pub(super) async fn session(
    client: &HttpClient,
    view: &OutputStyle,
    around: &Surroundings,
    request: SessionCommand,
) -> Result<u8, CliError> {
    match request {
        SessionCommand::Ls(request) => list(client, view, &request).await,
        SessionCommand::Get(named) => {
            let session = client.get(&path(&named.session)).await?;
            print(&view.one(&session, &columns::session())?);
            Ok(0)
        }
        SessionCommand::Create(order) => launch::create_only(client, view, around, order).await,
        SessionCommand::Stop(several) => each(client, view, &several.sessions, "stop").await,
        SessionCommand::Kill(several) => each(client, view, &several.sessions, "kill").await,
        SessionCommand::Restart(several) => each(client, view, &several.sessions, "restart").await,
        SessionCommand::Hold(several) => each(client, view, &several.sessions, "hold").await,
        SessionCommand::Release(several) => each(client, view, &several.sessions, "release").await,
        SessionCommand::Pause(several) => each(client, view, &several.sessions, "pause").await,
        SessionCommand::Resume(several) => each(client, view, &several.sessions, "resume").await,
        SessionCommand::Rename {
            session,
            name,
            if_match,
        } => {
            let body = json!({"name": name});
            shown(
                view,
                &patched(client, &session.session, &body, if_match).await?,
            )
        }
        SessionCommand::Set {
            session,
            cpu,
            mem,
            gpu,
            gpu_mem,
            max_runtime,
            priority,
            label,
        } => {
            let devices = values::GpuArguments {
                share: gpu.as_deref(),
                memory: gpu_mem.as_deref(),
                mig: None,
            };
            let (cpu, mem) = (cpu.as_deref(), mem.as_deref());
            let resources = values::resources(cpu, mem, None, None, &devices)?;
            let mut labels = values::pairs(&label, None, "label")?;
            // A merge patch removes what is null.
            for value in labels.as_object_mut().into_iter().flat_map(Map::values_mut) {
                if value == "" {
                    *value = Value::Null;
                }
            }
            let name = &session.session;
            // Each is refused by itself.
            let mut alone = Vec::new();
            if let Some(limit) = max_runtime {
                let seconds = match limit.as_str() {
                    "none" => Value::Null,
                    limit => values::seconds(limit)?.into(),
                };
                alone.push(json!({"max_runtime_seconds": seconds}));
            }
            alone.extend(priority.map(|priority| json!({"priority": priority})));
            let mut limited = None;
            for body in &alone {
                limited = Some(patched(client, name, body, None).await?);
            }
            if let (Some(limited), true, true) = (limited, resources.is_empty(), label.is_empty()) {
                return shown(view, &limited);
            }
            if resources.is_empty() && label.is_empty() {
                return Err(CliError::usage("There is nothing to change.")
                    .hint("For example: --cpu 2, --mem 4g, --gpu 0.5 or --label team=vision."));
            }
            // Limits may be refused, so they go first and alone.
            let limits = json!({"resources": resources});
            let words = json!({"labels": labels});
            if label.is_empty() {
                return shown(view, &patched(client, name, &limits, None).await?);
            }
            if !resources.is_empty() {
                patched(client, name, &limits, None).await?;
            }
            shown(view, &patched(client, name, &words, None).await?)
        }
        SessionCommand::Rm(Removal { several, force }) => {
            remove(client, view, &several.sessions, force).await
        }
        SessionCommand::Events(named) => {
            let events = client
                .get(&format!("{}/events", path(&named.session)))
                .await?;
            print(&view.list(&events, columns::EVENTS)?);
            Ok(0)
        }
        SessionCommand::Connections(named) => {
            let connections = client
                .get(&format!("{}/connections", path(&named.session)))
                .await?;
            print(&view.list(&connections, columns::CONNECTIONS)?);
            Ok(0)
        }
        SessionCommand::Why(named) => why(client, view, &named.session).await,
        SessionCommand::Logs(request) => terminal::logs(client, &request).await,
        SessionCommand::Exec(request) => terminal::exec(client, view, around, request).await,
        SessionCommand::Attach(request) => terminal::attach(client, view, &request).await,
        SessionCommand::Metrics { session, since } => {
            let since = values::seconds(&since)?;
            let from = super::now().as_millis() - i64::try_from(since).unwrap_or(0) * 1000;
            let from = rules::units::Timestamp::from_millis(from.max(0));
            let query = values::query(&[("since", from.to_string())]);
            let samples = client
                .get(&format!("{}/metrics{query}", path(&session.session)))
                .await?;
            print(&view.list(&samples, columns::SAMPLES)?);
            Ok(0)
        }
        SessionCommand::Forward {
            container,
            session,
            ports,
        } => {
            let container = container.container.as_deref();
            terminal::forward(client, view, (session.session.as_str(), container), &ports).await
        }
        SessionCommand::Commit {
            session,
            reference,
            exclude,
            accept_secrets,
            dry_run,
            detach,
        } => {
            let request = CommitRequest {
                reference,
                exclude,
                accept_secrets,
            };
            images::commit(client, view, &session.session, &request, (dry_run, detach)).await
        }
        SessionCommand::Duplicate {
            session,
            name,
            dry_run,
        } => duplicate(client, view, &session.session, name, dry_run).await,
    }
}

pub(super) async fn list(
    client: &HttpClient,
    view: &OutputStyle,
    request: &SessionLs,
) -> Result<u8, CliError> {
    let mut query = request.query.clone();
    if !request.all && !query.contains("state:") {
        query = format!("{query} state:live").trim().to_owned();
    }
    let mut cursor = String::new();
    let mut all: Vec<Value> = Vec::new();
    let none;
    let body = loop {
        let left = request
            .limit
            .map_or(PAGE, |l| l.saturating_sub(all.len() as u32).min(PAGE));
        let parts = [
            ("q", query.clone()),
            ("sort", request.sort.clone().unwrap_or_default()),
            ("limit", left.to_string()),
            (
                "scope",
                if request.everybody {
                    "all".into()
                } else {
                    String::new()
                },
            ),
            ("cursor", cursor.clone()),
        ];
        let page = format!("/api/v1/sessions{}", values::query(&parts));
        let Answer { mut body, read } = client.read::<ListPage<Value>>(&page).await?;
        all.extend(read.items);
        let enough = request.limit.is_some_and(|l| all.len() >= l as usize);
        match read.next_cursor {
            Some(next) if !enough => cursor = next,
            _ => {
                none = all.is_empty();
                if view.for_humans() {
                    tell_waits(client, &mut all).await;
                }
                body["items"] = Value::Array(all);
                break body;
            }
        }
    };
    if view.for_humans() && none {
        complain(if request.all || !request.query.is_empty() {
            "No sessions match.\n"
        } else {
            "No live sessions; -a shows ended ones. Start one with: fardel run -it host\n"
        });
        return Ok(0);
    }
    print(&view.list(&body, columns::SESSIONS)?);
    Ok(0)
}

/// Says in the rows of waiting sessions what each waits for: of those on the first page of the queue. Where it cannot be
/// read, the rows stay as they are.
async fn tell_waits(client: &HttpClient, rows: &mut [Value]) {
    if !rows.iter().any(is_untold) {
        return;
    }
    let queue = client.read::<ListPage<WaitingView>>("/api/v1/queue").await;
    let Ok(Answer { read, .. }) = queue else {
        return;
    };
    let told: BTreeMap<String, &Explanation> = read
        .items
        .iter()
        .map(|one| (one.session.id.to_string(), &one.why))
        .collect();
    for row in rows {
        let id = row["id"].as_str().unwrap_or_default();
        if let (true, Some(why)) = (is_untold(row), told.get(id)) {
            row["reason"] = json!({"code": "", "text": waits_for(why)});
        }
    }
}

/// Whether this is the row of a session that waits, without a word on why.
fn is_untold(row: &Value) -> bool {
    row["state"] == "pending" && row["reason"].is_null()
}

/// Seconds between two looks at what still lives while everything ends.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// What is killed gets this long to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// Ends every session of everybody, asking first and killing what is left after `timeout`.
///
/// Gives 7 where something still lives then, and names it.
pub(super) async fn drain(
    client: &HttpClient,
    view: &OutputStyle,
    timeout: &str,
) -> Result<u8, CliError> {
    let asked = Duration::from_secs(values::seconds(timeout)?);
    let begun = Instant::now();
    let mut told: BTreeMap<String, &str> = BTreeMap::new();
    loop {
        let live = live(client).await?;
        if live.is_empty() {
            let body = json!({"ended": told.len()});
            print(&view.said(
                &body,
                &format!("{} sessions ended; none is left", told.len()),
            )?);
            return Ok(0);
        }
        if begun.elapsed() > asked + KILL_TIMEOUT {
            let names: Vec<&str> = live.iter().map(|s| s.name.as_str()).collect();
            return Err(CliError::new(
                TIMEOUT,
                "drain.timeout",
                format!("These sessions do not end: {}.", names.join(", ")),
            )
            .hint("`fardel session events NAME` says what happened to each."));
        }
        let verb = if begun.elapsed() < asked {
            "stop"
        } else {
            "kill"
        };
        for session in &live {
            let id = session.id.to_string();
            if told.get(&id) == Some(&verb) {
                continue;
            }
            match client
                .post(&format!("{}/{verb}", path(&id)), &json!({}))
                .await
            {
                // It ended between the look and the word.
                Err(trouble) if matches!(trouble.exit, CONFLICT | NOT_FOUND) => {}
                Err(trouble) => return Err(trouble),
                Ok(_) => {}
            }
            told.insert(id, verb);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Sessions of everybody that wait or run; at most a page of them, so a caller looks again.
async fn live(client: &HttpClient) -> Result<Vec<SessionView>, CliError> {
    let parts = [
        ("q", "state:live".to_owned()),
        ("limit", PAGE.to_string()),
        ("scope", "all".to_owned()),
    ];
    let page = format!("/api/v1/sessions{}", values::query(&parts));
    let page = client.read::<ListPage<SessionView>>(&page).await?;
    Ok(page.read.items)
}

pub(super) async fn queue(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let Answer { body, read } = client.read::<ListPage<Value>>("/api/v1/queue").await?;
    if view.for_humans() && read.items.is_empty() {
        complain("No session waits.\n");
        return Ok(0);
    }
    print(&view.list(&body, columns::QUEUE)?);
    Ok(0)
}

pub(super) async fn why(
    client: &HttpClient,
    view: &OutputStyle,
    session: &str,
) -> Result<u8, CliError> {
    let why = format!("{}/why", path(session));
    let answer = client.read::<Explanation>(&why).await?;
    let devices = in_full(client, view, &answer.read).await;
    print(&explained(view, &answer, &devices)?);
    Ok(0)
}

pub(super) async fn patched(
    client: &HttpClient,
    session: &str,
    body: &Value,
    if_match: Option<u64>,
) -> Result<Answer<SessionView>, CliError> {
    let mut extra = Extra::json(body);
    extra.content_type = Some("application/merge-patch+json");
    if let Some(generation) = if_match {
        extra = extra.header("If-Match", format!("\"{generation}\""));
    }
    let answer = client.call(Method::PATCH, &path(session), extra).await?;
    Answer::of(answer.json()?)
}

fn shown(view: &OutputStyle, changed: &Answer<SessionView>) -> Result<u8, CliError> {
    let line = format!("{}  {}", changed.read.name, columns::state(&changed.read));
    print(&view.said(&changed.body, &line)?);
    Ok(0)
}

/// Does one verb to several sessions. All are tried; the code is the failure's own where all failed,
/// 9 where some did.
async fn each(
    client: &HttpClient,
    view: &OutputStyle,
    names: &[String],
    verb: &str,
) -> Result<u8, CliError> {
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for name in names {
        match client
            .send(&format!("{}/{verb}", path(name)), &json!({}))
            .await
        {
            Ok(session) => done.push(session),
            Err(trouble) => failed.push((name, trouble)),
        }
    }
    told(view, done, failed)
}

fn told(
    view: &OutputStyle,
    done: Vec<Answer<SessionView>>,
    failed: Vec<(&String, CliError)>,
) -> Result<u8, CliError> {
    if view.for_humans() {
        let lines: String = done
            .iter()
            .map(|s| format!("{}  {}\n", s.read.name, columns::state(&s.read)))
            .collect();
        print(&lines);
    } else if let [one] = done.as_slice() {
        print(&view.one(&one.body, &columns::session())?);
    } else if !done.is_empty() {
        let done: Vec<&Value> = done.iter().map(|s| &s.body).collect();
        print(&view.list(&json!({"items": done}), columns::SESSIONS)?);
    }
    let mut failed = failed;
    match (failed.len(), done.is_empty()) {
        (0, _) => Ok(0),
        (1, true) => Err(failed.remove(0).1),
        _ => {
            let as_json = matches!(view.format, super::Format::Json | super::Format::Jsonl);
            for (name, trouble) in &failed {
                if !as_json {
                    complain(&format!("{name}: "));
                }
                complain(&trouble.written(as_json, false));
            }
            let first = failed[0].1.exit;
            let alike = failed.iter().all(|(_, t)| t.exit == first);
            Ok(if done.is_empty() && alike {
                first
            } else {
                PARTLY
            })
        }
    }
}

async fn remove(
    client: &HttpClient,
    view: &OutputStyle,
    names: &[String],
    force: bool,
) -> Result<u8, CliError> {
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for name in names {
        match remove_one(client, name, force).await {
            Ok(session) => done.push(session),
            Err(trouble) => failed.push((name, trouble)),
        }
    }
    if view.for_humans() {
        let lines: String = done
            .iter()
            .map(|s| format!("{}  removed\n", s.read.name))
            .collect();
        print(&lines);
        return told(
            &OutputStyle {
                quiet: true,
                ..view.clone()
            },
            Vec::new(),
            failed,
        )
        .map(|code| {
            if code != 0 && !done.is_empty() {
                PARTLY
            } else {
                code
            }
        });
    }
    told(view, done, failed)
}

async fn remove_one(
    client: &HttpClient,
    name: &str,
    force: bool,
) -> Result<Answer<SessionView>, CliError> {
    let session = client.read::<SessionView>(&path(name)).await?;
    let id = session.read.id.to_string();
    if force && session.read.state != SessionState::Ended {
        client
            .post(&format!("{}/kill", path(&id)), &json!({}))
            .await?;
        launch::wait(client, &id, super::args::WaitTarget::Ended, Some(60)).await?;
    }
    client
        .call(Method::DELETE, &path(&id), Extra::default())
        .await?;
    Ok(session)
}

async fn duplicate(
    client: &HttpClient,
    view: &OutputStyle,
    session: &str,
    name: Option<String>,
    dry_run: bool,
) -> Result<u8, CliError> {
    let mut request = client
        .post(&format!("{}/duplicate", path(session)), &json!({}))
        .await?;
    request["name"] = name.map_or(Value::Null, Value::String);
    if dry_run {
        print(&format!("{request:#}\n"));
        return Ok(0);
    }
    let answer = client.post("/api/v1/sessions", &request).await?;
    told(view, launch::made(answer)?, Vec::new())
}
