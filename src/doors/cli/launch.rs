//! `fardel run`: turns flags into the body of a launch, sends it, and stays with the session until it
//! ends. Checks only what it needs to read the flags; the server judges the rest.

use std::time::Duration;

use api::mounts::NewMountBody;
use api::sessions::SessionView;
use hyper::Method;
use rules::folder::RequestedMount;
use rules::placement::{Explanation, Verdict};
use rules::session::{Outcome, SessionState};
use serde_json::{Map, Value, json};
use tokio::signal::unix::SignalKind;

use super::answer::Answer;
use super::args::{LaunchArguments, RunArguments, SessionKindArgument, WaitTarget};
use super::client::{Extra, HttpClient, MAX_RECONNECT, fresh_key};
use super::error::{CliError, INTERRUPTED, NEVER_RAN, TIMEOUT, UNREACHABLE};
use super::explain::{explained, in_full};
use super::output::OutputStyle;
use super::queue_wait::EndSignals;
use super::values::{GpuArguments, pairs, resources, seconds};
use super::{Surroundings, columns, complain, print, queue_wait, terminal, values};

/// How long one question "is it over?" waits at the server before it is asked again.
const LONG_POLL_SECONDS: u64 = 25;

/// Runs a command or a shell in a new session.
pub(super) async fn run(
    client: &HttpClient,
    view: &OutputStyle,
    around: &Surroundings,
    request: RunArguments,
) -> Result<u8, CliError> {
    let order = &request.order;
    let typed_in = request.tty && request.interactive;
    let interactive_view = order
        .kind
        .map_or(typed_in, |k| k == SessionKindArgument::Interactive);
    if order.dry_run {
        return preview(client, view, order, interactive_view, around).await;
    }
    let attached = !request.detach;
    if attached && order.replicas > 1 {
        return Err(
            CliError::usage("Several replicas cannot be attached to one terminal.")
                .hint("Add -d, then use `fardel ps` and `fardel logs`."),
        );
    }
    if attached && order.command.is_empty() && !interactive_view && order.image == "host" {
        return Err(CliError::usage("There is no command to run.").hint(
            "Add one (fardel run host -- nproc), -it for a shell, or -d for a session to work in.",
        ));
    }
    // A session without a command is one to work in: its shell waits for users.
    let interactive =
        interactive_view || (order.kind.is_none() && order.command.is_empty() && request.detach);
    let made = create(client, order, interactive, around).await?;
    if request.detach {
        return report(client, view, order, made).await;
    }
    let session = made
        .into_iter()
        .next()
        .map(|made| made.read)
        .ok_or_else(|| CliError::new(1, "answer.empty", "The server made no session."))?;
    let id = session.id.to_string();
    let signals = EndSignals::listen()?;
    if !view.quiet && interactive_view {
        complain(&format!("{} · detach with Ctrl-P Ctrl-Q\n", session.name));
    }
    let code = if interactive_view || request.interactive {
        with_input(client, view, &session, &request, signals).await?
    } else {
        follow(client, view, &session, signals).await?
    };
    if request.rm && code.1 {
        let _ = client
            .call(Method::DELETE, &values::path(&id), Extra::default())
            .await;
    }
    Ok(code.0)
}

/// Makes sessions and returns at once, or when `--wait` is satisfied.
pub(super) async fn create_only(
    client: &HttpClient,
    view: &OutputStyle,
    around: &Surroundings,
    order: LaunchArguments,
) -> Result<u8, CliError> {
    let interactive = order.kind.map_or(order.command.is_empty(), |k| {
        k == SessionKindArgument::Interactive
    });
    if order.dry_run {
        return preview(client, view, &order, interactive, around).await;
    }
    let made = create(client, &order, interactive, around).await?;
    report(client, view, &order, made).await
}

async fn create(
    client: &HttpClient,
    order: &LaunchArguments,
    interactive: bool,
    around: &Surroundings,
) -> Result<Vec<Answer<SessionView>>, CliError> {
    let body = body(order, interactive, around)?;
    let key = order.idempotency_key.clone().unwrap_or_else(fresh_key);
    let extra = Extra::json(&body).header("Idempotency-Key", key);
    let answer = client
        .call(Method::POST, "/api/v1/sessions", extra)
        .await?
        .json()?;
    made(answer)
}

/// The sessions that a launch gave: one as it is, several as a list.
pub(super) fn made(answer: Value) -> Result<Vec<Answer<SessionView>>, CliError> {
    let several = answer["items"].as_array().cloned();
    let several = several.unwrap_or_else(|| vec![answer]);
    several.into_iter().map(Answer::of).collect()
}

async fn report(
    client: &HttpClient,
    view: &OutputStyle,
    order: &LaunchArguments,
    made: Vec<Answer<SessionView>>,
) -> Result<u8, CliError> {
    let mut sessions = made;
    let mut code = 0;
    if let Some(until) = order.wait {
        let limit = order.wait_timeout.as_deref().map(seconds).transpose()?;
        for session in &mut sessions {
            *session = wait(client, &session.read.id.to_string(), until, limit).await?;
            let succeeded = session.read.outcome == Some(Outcome::Succeeded);
            if until == WaitTarget::Ended && !succeeded {
                code = super::error::FAILED;
            }
        }
    }
    if view.for_humans() {
        let names: String = sessions
            .iter()
            .map(|s| format!("{}  {}\n", s.read.name, columns::state(&s.read)))
            .collect();
        print(&names);
    } else if let [one] = sessions.as_slice() {
        print(&view.one(&one.body, &columns::session())?);
    } else {
        let sessions: Vec<&Value> = sessions.iter().map(|s| &s.body).collect();
        print(&view.list(&json!({"items": sessions}), columns::SESSIONS)?);
    }
    Ok(code)
}

async fn preview(
    client: &HttpClient,
    view: &OutputStyle,
    order: &LaunchArguments,
    interactive: bool,
    around: &Surroundings,
) -> Result<u8, CliError> {
    let body = body(order, interactive, around)?;
    let answer = client
        .call(
            Method::POST,
            "/api/v1/sessions?dry_run=true",
            Extra::json(&body),
        )
        .await?
        .json()?;
    let answer = Answer::<Explanation>::of(answer)?;
    let devices = in_full(client, view, &answer.read).await;
    print(&explained(view, &answer, &devices)?);
    let never = answer.read.verdict == Verdict::Never;
    Ok(if never { super::error::CAPACITY } else { 0 })
}

/// Waits at the server until the session reaches a state. A server that is away is waited for too.
pub(super) async fn wait(
    client: &HttpClient,
    id: &str,
    until: WaitTarget,
    limit: Option<u64>,
) -> Result<Answer<SessionView>, CliError> {
    let begun = std::time::Instant::now();
    let mut away: Option<std::time::Instant> = None;
    loop {
        let left = limit.map(|l| l.saturating_sub(begun.elapsed().as_secs()));
        let patience = left.map_or(LONG_POLL_SECONDS, |l| l.min(LONG_POLL_SECONDS));
        let word = match until {
            WaitTarget::Running => "running",
            WaitTarget::Ended => "ended",
        };
        let path = format!("{}?wait={word}&patience={patience}", values::path(id));
        match client.read::<SessionView>(&path).await {
            Ok(session) => {
                away = None;
                let there = match session.read.state {
                    SessionState::Ended => true,
                    SessionState::Running | SessionState::Stopping => until == WaitTarget::Running,
                    SessionState::Pending | SessionState::Scheduled | SessionState::Preparing => {
                        false
                    }
                };
                if there {
                    return Ok(session);
                }
            }
            Err(trouble) if trouble.exit == UNREACHABLE => {
                let since = *away.get_or_insert_with(std::time::Instant::now);
                if since.elapsed() > MAX_RECONNECT {
                    return Err(trouble);
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Err(trouble) => return Err(trouble),
        }
        if left == Some(0) {
            return Err(CliError::new(
                TIMEOUT,
                "wait.timeout",
                format!("{id} is not {word} after {} seconds.", limit.unwrap_or(0)),
            )
            .hint(format!(
                "The session continues; `fardel why {id}` says what it waits for."
            )));
        }
    }
}

/// Prints what the session writes until it ends; returns its code, and whether it is over. While it waits, a signal takes
/// it out of the queue. Once it started, the first Ctrl-C stops it and the second ends it at once; another signal leaves it.
async fn follow(
    client: &HttpClient,
    view: &OutputStyle,
    made: &SessionView,
    mut signals: EndSignals,
) -> Result<(u8, bool), CliError> {
    let (id, name) = (made.id.to_string(), made.name.as_str());
    let id = id.as_str();
    let mut interrupts = 0;
    let output = async {
        terminal::copy_log(client, (id, None), 0, true).await?;
        wait(client, id, WaitTarget::Ended, None).await
    };
    let telling = queue_wait::tell(client, view, id);
    tokio::pin!(output, telling);
    let mut told = false;
    let session = loop {
        tokio::select! {
            done = &mut output => break done?,
            () = &mut telling, if !told => told = true,
            signal = signals.next() => {
                if interrupts == 0 && queue_wait::left(client, name, id).await? {
                    return Ok((queue_wait::exit_code(signal), true));
                }
                if signal != SignalKind::interrupt() {
                    queue_wait::goes_on(name);
                    return Ok((queue_wait::exit_code(signal), false));
                }
                interrupts += 1;
                let verb = if interrupts == 1 { "stop" } else { "kill" };
                if interrupts == 1 {
                    complain("\nstopping; press Ctrl-C again to end it at once\n");
                }
                client.post(&format!("{}/{verb}", values::path(id)), &json!({})).await?;
            }
        }
    };
    Ok((ended_code(&session.read, interrupts > 0), true))
}

/// Connects this terminal to the session; returns its code, and whether it is over. While it waits, a signal takes it out
/// of the queue; once it started, a signal leaves it.
async fn with_input(
    client: &HttpClient,
    view: &OutputStyle,
    made: &SessionView,
    request: &RunArguments,
    mut signals: EndSignals,
) -> Result<(u8, bool), CliError> {
    let (id, name) = (made.id.to_string(), made.name.as_str());
    let id = id.as_str();
    let started = wait(client, id, WaitTarget::Running, None);
    let telling = queue_wait::tell(client, view, id);
    tokio::pin!(started, telling);
    let mut told = false;
    let session = loop {
        tokio::select! {
            done = &mut started => break done?,
            () = &mut telling, if !told => told = true,
            signal = signals.next() => {
                let left = queue_wait::left(client, name, id).await?;
                if !left {
                    queue_wait::goes_on(name);
                }
                return Ok((queue_wait::exit_code(signal), left));
            }
        }
    };
    let mut detached = false;
    if session.read.state == SessionState::Ended {
        terminal::copy_log(client, (id, None), 0, false).await?;
    } else {
        let pump = terminal::Pump {
            input: request.interactive,
            tty: request.tty,
            reattach: true,
        };
        let over = tokio::select! {
            biased;
            over = terminal::attached(client, view, (id, None), pump) => over?,
            // There is no stream that could take it: the server is away.
            signal = signals.next() => {
                queue_wait::goes_on(name);
                return Ok((queue_wait::exit_code(signal), false));
            }
        };
        detached = over == terminal::Over::Detached;
    }
    if detached {
        complain(&format!(
            "detached; fardel attach {} comes back\n",
            session.read.name
        ));
        return Ok((0, false));
    }
    tokio::select! {
        biased;
        session = wait(client, id, WaitTarget::Ended, None) => {
            Ok((ended_code(&session?.read, false), true))
        }
        // What ended the stream ends the run too.
        signal = signals.next() => {
            queue_wait::goes_on(name);
            Ok((queue_wait::exit_code(signal), false))
        }
    }
}

/// The exit code for a session that is over, after saying what users should know.
pub(super) fn ended_code(session: &SessionView, interrupted: bool) -> u8 {
    let reason = session.reason.as_ref();
    let code = session.exit_code.and_then(|c| u8::try_from(c).ok());
    let by_itself = matches!(session.outcome, Some(Outcome::Succeeded | Outcome::Failed))
        && matches!(
            reason.map(|reason| reason.code.as_str()),
            None | Some(rules::codes::SESSION_SUCCEEDED | rules::codes::SESSION_EXIT_CODE)
        );
    if let Some(reason) = reason
        && !by_itself
        && !reason.text.is_empty()
    {
        complain(&format!("{}: {}\n", session.name, reason.text));
    }
    if interrupted {
        return INTERRUPTED;
    }
    code.unwrap_or(NEVER_RAN)
}

/// The launch request that the flags mean: the JSON body of POST /sessions.
pub(super) fn body(
    order: &LaunchArguments,
    interactive: bool,
    around: &Surroundings,
) -> Result<Value, CliError> {
    let mut body = Map::new();
    let kind = if interactive { "interactive" } else { "batch" };
    body.insert("kind".into(), kind.into());
    body.insert("image".into(), order.image.clone().into());
    body.insert("command".into(), json!(order.command));
    body.insert("env".into(), pairs(&order.env, Some(around), "env")?);
    if !order.mount.is_empty() {
        let mut mounts = Vec::new();
        for text in &order.mount {
            mounts.push(json!(NewMountBody::from(RequestedMount::parse(text)?)));
        }
        body.insert("mounts".into(), Value::Array(mounts));
    }
    body.insert("labels".into(), pairs(&order.label, None, "label")?);
    body.insert("replicas".into(), order.replicas.into());
    if order.containers != 1 {
        body.insert("containers".into(), order.containers.into());
    }
    if let Some(name) = &order.name {
        body.insert("name".into(), name.clone().into());
    }
    if let Some(project) = &order.project {
        body.insert("project".into(), project.clone().into());
    }
    if let Some(owner) = &order.owner {
        body.insert("owner".into(), owner.clone().into());
    }
    if let Some(preset) = &order.preset {
        body.insert("preset".into(), preset.clone().into());
    }
    for text in order.texts.given() {
        body.insert(text.name.into(), text.typed.into());
    }
    if let Some(priority) = order.priority {
        body.insert("priority".into(), priority.into());
    }
    if order.yields {
        body.insert("yields".into(), true.into());
    }
    if order.without_startup {
        body.insert("without_start_up".into(), true.into());
    }
    if order.no_home {
        body.insert("without_home".into(), true.into());
    }
    if order.sudo {
        body.insert("sudo".into(), true.into());
    }
    let resources = resources(
        order.cpu.as_deref(),
        order.mem.as_deref(),
        order.shm.as_deref(),
        order.disk.as_deref(),
        &GpuArguments {
            share: order.gpu.as_deref(),
            memory: order.gpu_mem.as_deref(),
            mig: order.mig.as_deref(),
        },
    )?;
    if !resources.is_empty() {
        body.insert("resources".into(), Value::Object(resources));
    }
    for (key, value) in [
        ("timeout_seconds", &order.timeout),
        ("max_runtime_seconds", &order.max_runtime),
    ] {
        if let Some(value) = value {
            body.insert(key.into(), seconds(value)?.into());
        }
    }
    if let Some(at) = &order.start_at {
        let at = match at.strip_prefix('+') {
            Some(later) => super::now().plus_seconds(seconds(later)?),
            None => rules::units::Timestamp::parse(at)?,
        };
        body.insert("start_at".into(), at.to_string().into());
    }
    if !order.after.is_empty() {
        body.insert("depends_on".into(), json!(order.after));
    }
    Ok(Value::Object(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::cli::args::{Command, CommandLine};
    use clap::Parser;

    fn ordered(line: &str) -> Result<Value, CliError> {
        let words = std::iter::once("fardel").chain(line.split(' '));
        let around = Surroundings {
            variable: |name| (name == "OWN").then(|| "mine".to_owned()),
            socket: "/x".into(),
        };
        match CommandLine::try_parse_from(words).expect(line).command {
            Command::Run(run) => body(&run.order, run.tty, &around),
            other => panic!("read as {other:?}"),
        }
    }

    #[test]
    fn flags_become_the_body_of_a_launch() {
        assert_eq!(
            ordered(
                "run --name vit --cpu 0.5 --mem 256m --gpu 0.35 -e A=1=2 -e OWN -l team=vision \
                 --timeout 1h30m --after a,b host -- python3 train.py"
            )
            .expect("valid"),
            json!({
                "kind": "batch", "image": "host", "command": ["python3", "train.py"],
                "env": {"A": "1=2", "OWN": "mine"}, "labels": {"team": "vision"}, "replicas": 1,
                "name": "vit", "resources": {"cpu": 0.5, "memory": 268_435_456_u64, "gpu": 0.35},
                "timeout_seconds": 5400, "depends_on": ["a", "b"],
            })
        );
    }

    #[test]
    fn folders_to_mount_become_parts_of_the_body() {
        let body = ordered("run --mount home --mount data:/train:/data:ro host -- x");
        let expected = json!([
            {"folder": "home"},
            {"folder": "data", "subpath": "/train", "at": "/data", "access": "ro"},
        ]);
        assert_eq!(body.expect("valid")["mounts"], expected);
        assert!(ordered("run --mount data:here host -- x").is_err());
    }

    #[test]
    fn a_preset_goes_along_with_the_amounts_that_are_given() {
        let body = ordered("run --preset half --mem 2g host -- x").expect("valid");
        assert_eq!(body["preset"], "half");
        assert_eq!(body["resources"], json!({"memory": 2_u64 << 30}));
    }

    #[test]
    fn priority_and_yielding_go_along_where_they_are_said() {
        let body = ordered("run --priority 5 --yields host -- x").expect("valid");
        assert_eq!(body["priority"], 5);
        assert_eq!(body["yields"], true);
        let body = ordered("run host -- x").expect("valid");
        assert!(body.get("priority").is_none() && body.get("yields").is_none());
    }

    #[test]
    fn a_description_goes_along_as_it_is() {
        let body = ordered("run --description sweep host -- x").expect("valid");
        assert_eq!(body["description"], "sweep");
        let body = ordered("run host -- x").expect("valid");
        assert!(body.get("description").is_none(), "{body}");
    }

    #[test]
    fn flags_that_mean_nothing_are_refused_with_what_would_work() {
        for line in [
            "run --cpu 0.351 host -- x",
            "run --mem 12q host -- x",
            "run -e NOT_SET host -- x",
            "run -l plain host -- x",
            "run --timeout soon host -- x",
            "run --start-at noon host -- x",
        ] {
            let trouble = ordered(line).expect_err(line);
            assert_eq!(trouble.exit, 2, "{line}");
            assert!(
                ["Use ", "For example"]
                    .iter()
                    .any(|way| trouble.hint.contains(way)),
                "{line}: {}",
                trouble.hint
            );
        }
    }

    /// Proves too: `every_way_of_ending_has_its_true_code`
    #[test]
    fn the_sessions_own_code_is_returned() {
        let ended = |outcome: &str, code: Value| -> SessionView {
            let session = json!({
                "id": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f", "name": "a",
                "owner": {"id": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e40", "name": "kim"},
                "state": "ended", "desired": "run", "kind": "batch", "image": "host", "command": [],
                "env": {}, "labels": {}, "resources": {"cpu": 1, "memory": 1, "shm": 1},
                "depends_on": [], "paused": false, "incarnation": 1, "devices": [],
                "created_at": "2026-11-22T12:00:00Z", "outcome": outcome, "exit_code": code,
                "generation": 1,
            });
            serde_json::from_value(session).expect("a session")
        };
        assert_eq!(ended_code(&ended("failed", json!(7)), false), 7);
        assert_eq!(ended_code(&ended("succeeded", json!(0)), false), 0);
        assert_eq!(ended_code(&ended("refused", Value::Null), false), NEVER_RAN);
        assert_eq!(ended_code(&ended("stopped", json!(143)), true), INTERRUPTED);
    }
}
