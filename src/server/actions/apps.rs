//! What a user may do with the apps of a session: see them, start and open them. Who may enter a session may open its
//! apps, which are programs of its owner and run as its user.

pub(crate) mod launched;
pub mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::apps::{AppProblem, AppState, AppView, OpenedApp};
use api::secret::SecretText;
use base::app_files;
use base::link::streams::{AppFile, ExecRequest, Streams};
use rules::app::{
    APPS_LABEL, AppChoice, AppDefinition, AppSource, AppTemplates, MAX_APPS_LABEL, MAX_IMAGE_APPS,
    apps_of_image, is_path, offered, query_value,
};
use rules::app_origin::{OWN_PATHS, app_host};
use rules::app_port::{APP_NUMBERS, AppPort, AppPortRequest, app_port, app_ports};
use rules::app_services::{
    RUNTIME_LABEL, SERVICES_LABEL, ServiceFiles, ServiceSource, apps_of_services, service_name,
};
use rules::names::{ContainerName, SessionId};
use rules::permissions::Permission;
use rules::refusal::{Refusal, RefusalKind};
use rules::refusals;
use rules::session::{Session, SessionEnvironment, SessionState};
use rules::units::Timestamp;

use super::allowed;
use super::sessions::find::{check_entry, find_to_enter};
use crate::access::{Caller, new_app_ticket, repeated};
use crate::app_starts::{AppCommands, AppProgress, AppStart, answers, listens};
use crate::catalog::app_shares::AppShareRecord;
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server};

/// Ports that are tried when other programs have those that were free. Higher: opening an app takes longer where they have
/// many.
const MAX_PORT_TRIES: usize = 8;
/// How long opening waits for an app that is about to answer. Longer: a page comes later. Shorter: one more page is seen on
/// the way.
const READY_TIMEOUT: Duration = Duration::from_millis(1_500);
/// What the names of files of services end with; those of ours are TOML.
const SERVICE_ENDING: &str = ".json";
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// After a commit, the wait before an open app's leave is looked at again; as for streams, of whose two seconds it is a part.
const GATHER: Duration = Duration::from_millis(700);
/// Longest wait between two looks: a share ends by the clock.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A session with an app, for a caller who may open it.
struct OpenApp {
    session: Session,
    definition: AppDefinition,
}

/// The apps of a session: those that its image describes, the built-in ones whose programs it has, and other ports that
/// a process listens on or that were opened by their number. Empty for one that does not run.
///
/// Errors: those of `sessions::enter`; `app.image-label-invalid` and those of descriptions where the image's are wrong.
pub async fn list(
    server: &Server,
    streams: &dyn Streams,
    caller: &Caller,
    id: &str,
) -> Result<Vec<AppView>, Failure> {
    let session = session_to_enter(server, caller, id)?;
    if session.state() != SessionState::Running {
        return Ok(Vec::new());
    }
    let mut apps = definitions(server, streams, &session).await?;
    let opened = ports_of(server, session.id)?;
    // A node that cannot tell shows those that were opened.
    let found = streams.listening(session.container()).await;
    let found = found.unwrap_or_default();
    let by_number = opened.iter().filter_map(|port| match port.app {
        AppChoice::Port(number) => Some(number),
        AppChoice::Named(_) => None,
    });
    let ports: BTreeSet<u16> = by_number.chain(found.iter().copied()).collect();
    for port in ports {
        if apps.iter().all(|app| app.port != port) {
            apps.push(AppDefinition::of_port(port));
        }
    }
    let mut all = Vec::with_capacity(apps.len());
    for app in &apps {
        // What is known is not asked for: a program that takes no connection would keep us waiting.
        let listens =
            found.contains(&app.port) || listens(streams, session.container(), app.port).await;
        all.push(shown(server, session.container(), app, &opened, listens));
    }
    Ok(all)
}

/// One app, by its name or the number of its port, and whether it answers now.
///
/// Errors: those of `list`; `app.name-invalid`, `port.invalid`, `app.not-found`, `app.session-not-running`.
pub async fn get(
    server: &Server,
    streams: &dyn Streams,
    caller: &Caller,
    id: &str,
    app: &str,
) -> Result<AppView, Failure> {
    let open = open_app(server, streams, caller, id, app).await?;
    let opened = ports_of(server, open.session.id)?;
    let container = open.session.container();
    let answers = answers(streams, container, &open.definition).await;
    Ok(shown(server, container, &open.definition, &opened, answers))
}

/// Starts an app unless it answers, gives it a port of this machine, and waits a moment for it.
///
/// Errors: those of `get`; `app.not-answering` for what its user starts and did not, `app.no-address`,
/// `app.ports-many`, `app.ports-used-up`, `app.port-unusable`.
pub async fn open(
    server: &Server,
    streams: &Arc<dyn Streams>,
    caller: &Caller,
    id: &str,
    app: &str,
) -> Result<AppView, Failure> {
    let open = open_app(server, &**streams, caller, id, app).await?;
    let container = open.session.container();
    let is_ready = answers(&**streams, container, &open.definition).await;
    if !is_ready && open.definition.command.is_empty() {
        return Err(refusals::app_not_answering(open.definition.port).into());
    }
    lease_port(server, &open).await?;
    if !is_ready {
        let commands = commands(&open);
        let starts = server.app_starts();
        let start = starts.begin(Arc::clone(streams), container, &open.definition, commands);
        wait(&start).await;
    }
    repeated::entered(
        server,
        caller,
        open.session.id.to_string(),
        open.session.scope(),
    );
    get(server, &**streams, caller, id, app).await
}

/// Where a browser enters an app, once and for 30 seconds: the port of this machine or the name, and the path. None until it
/// is ready and was opened, and for root on the machine. `to`: the path that it then shows; the app's own first page for none.
///
/// Errors: those of `get`.
pub async fn entry(
    server: &Server,
    streams: &dyn Streams,
    caller: &Caller,
    id: &str,
    app: &str,
    to: Option<&str>,
) -> Result<(AppView, Option<AppWay>), Failure> {
    let open = open_app(server, streams, caller, id, app).await?;
    let view = get(server, streams, caller, id, app).await?;
    let Some(port) = view.address_port.filter(|_| view.state == AppState::Ready) else {
        return Ok((view, None));
    };
    let to = to.filter(|to| is_path(to)).unwrap_or(&open.definition.open);
    let ticket = new_app_ticket(server, caller, open.session.id, port);
    let way = ticket.map(|ticket| way(server, &open.definition.choice, port, &ticket, to));
    Ok((view, way))
}

/// Where a browser enters an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppWay {
    /// The port of this machine, or the number of a name.
    pub port: u16,
    /// The host, where apps have names of their own.
    pub name: Option<String>,
    /// Path and query, with the ticket.
    pub path: String,
}

impl AppWay {
    /// The whole address for a client that calls the console by `scheme`, `host` and `port`.
    pub fn address(&self, scheme: &str, host: &str, port: Option<u16>) -> String {
        let (host, port) = match &self.name {
            Some(name) => (name.as_str(), port),
            None => (host, Some(self.port)),
        };
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        format!("{scheme}://{host}{port}{}", self.path)
    }
}

fn way(server: &Server, app: &AppChoice, port: u16, ticket: &SecretText, to: &str) -> AppWay {
    let below = server.settings().apps_name.clone();
    let to = query_value(to);
    AppWay {
        port,
        name: below.map(|below| app_host(&app.to_string(), port, &below)),
        path: format!("{OWN_PATHS}enter?ticket={}&to={to}", ticket.reveal()),
    }
}

/// `open`, then `entry`, for a client that calls the console by `scheme`, `host` and `port`.
///
/// Errors: those of `open`.
pub async fn open_at(
    server: &Server,
    streams: &Arc<dyn Streams>,
    caller: &Caller,
    (id, app): (&str, &str),
    (scheme, host, port): (&str, &str, Option<u16>),
) -> Result<OpenedApp, Failure> {
    open(server, streams, caller, id, app).await?;
    let (app, way) = entry(server, &**streams, caller, id, app, None).await?;
    let entry = way.map(|way| way.address(scheme, host, port));
    Ok(OpenedApp { app, entry })
}

/// Which session and which app a port of this machine leads to, for those who may enter the session; None for its visitors.
///
/// Errors: `app.not-opened`, also for those who may open no app there.
pub async fn at_port(
    server: &Server,
    caller: &Caller,
    port: u16,
) -> Result<Option<(SessionId, AppChoice)>, Failure> {
    let now = server.clock().now();
    server.catalog().read_now("find the app at a port", |view| {
        let missing = || Failure::from(refusals::app_not_opened());
        let at = view.app_port(port)?.ok_or_else(missing)?;
        let session = at.session.ok_or_else(missing)?;
        let row = view.session(session)?.ok_or_else(missing)?;
        match check_entry(view, caller, &row, now) {
            Ok(()) => return Ok(Some((session, at.app))),
            Err(Failure::Refusal(_)) => {}
            Err(fault) => return Err(fault),
        }
        match may_open(view, caller, &row, &at.app, now) {
            Ok(()) => Ok(None),
            Err(Failure::Refusal(_)) => Err(missing()),
            Err(fault) => Err(fault),
        }
    })
}

/// Checks that the caller may use the app at a port now; gives the container that it runs in.
///
/// Errors: `app.not-opened` where the port leads elsewhere, `app.session-not-running`, those of `sessions::enter`.
pub async fn enter(
    server: &Server,
    caller: &Caller,
    at: &AppPort,
) -> Result<ContainerName, Failure> {
    let now = server.clock().now();
    let (container, session) = server.catalog().read_now("enter an app", |view| {
        let session = entered(view, caller, at, now)?;
        Ok((session.container(), session))
    })?;
    repeated::entered(server, caller, session.id.to_string(), session.scope());
    left(server, at);
    Ok(container)
}

/// Notes that an app was in use at its port until now: a visit of it begins, or is over.
pub fn left(server: &Server, at: &AppPort) {
    let at = at.clone();
    server
        .catalog()
        .write_later(Lane::Loops, "note an app's last use", move |rows| {
            rows.touch_app_port(&at)
        });
}

/// Ready once the caller may use the app at a port no longer, or its session runs no more. The sign-in is `access::lease`'s.
pub async fn withdrawn(
    server: &Server,
    caller: &Caller,
    at: &AppPort,
    container: ContainerName,
) -> Refusal {
    let mut revision = server.catalog().revision();
    loop {
        revision.borrow_and_update();
        let now = server.clock().now();
        let looked = server.catalog().read_now("look at an open app", |view| {
            let session = entered(view, caller, at, now)?;
            let look = view.open_break_glass(caller.subject.user, session.id.0)?;
            Ok((session, look.map(|look| look.ends_at)))
        });
        let mut wait = MAX_WAIT;
        match looked {
            Ok((session, end)) if session.container() == container => {
                if let Some(end) = end.filter(|end| now < *end) {
                    wait = wait.min(Duration::from_millis(end.millis_since(now)));
                }
            }
            Ok(_) => return refusals::app_session_not_running(),
            Err(Failure::Refusal(refusal)) if refusal.kind != RefusalKind::Unavailable => {
                return refusal;
            }
            // A disk that stutters closes no notebook; the next look tells.
            Err(_) => {}
        }
        // A share ends by the clock, and so does an administrator's look.
        match tokio::time::timeout(wait, revision.changed()).await {
            Ok(Ok(())) => tokio::time::sleep(GATHER).await,
            Ok(Err(_)) => return refusals::server_stopping(),
            Err(_) => {}
        }
    }
}

/// The session that a port leads into, for a caller who may open the app there.
fn entered(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    at: &AppPort,
    now: Timestamp,
) -> Result<Session, Failure> {
    let known = view.app_port(at.port)?;
    let session = known
        .filter(|known| known.app == at.app)
        .and_then(|known| known.session);
    let (Some(session), true) = (session, session == at.session) else {
        return Err(refusals::app_not_opened().into());
    };
    let session = view
        .session(session)?
        .ok_or_else(refusals::app_not_opened)?;
    may_open(view, caller, &session, &at.app, now)?;
    match session.state() {
        SessionState::Running => Ok(session),
        _ => Err(refusals::app_session_not_running().into()),
    }
}

/// Checks that a caller may enter the session, or opens this app of it as a visitor. Refused as the session would be.
fn may_open(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    session: &Session,
    app: &AppChoice,
    now: Timestamp,
) -> Result<(), Failure> {
    let by_right = find_to_enter(view, caller, &session.id.to_string(), now);
    let refusal = match by_right {
        Ok(_) => return Ok(()),
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return Err(fault),
    };
    allowed(caller, Permission::SessionsEnter)?;
    let shares = view.app_shares(session.id, app)?;
    let opens = |known: &AppShareRecord| {
        let share = &known.share;
        share.opens_for(&caller.subject, session.project, now)
    };
    match shares.iter().any(opens) {
        true => Ok(()),
        false => Err(refusal.into()),
    }
}

fn session_to_enter(server: &Server, caller: &Caller, id: &str) -> Result<Session, Failure> {
    let now = server.clock().now();
    server
        .catalog()
        .read_now("look at apps of a session", |view| {
            find_to_enter(view, caller, id, now)
        })
}

async fn open_app(
    server: &Server,
    streams: &dyn Streams,
    caller: &Caller,
    id: &str,
    app: &str,
) -> Result<OpenApp, Failure> {
    let session = session_to_enter(server, caller, id)?;
    let choice = AppChoice::parse(app)?;
    if session.state() != SessionState::Running {
        return Err(refusals::app_session_not_running().into());
    }
    let definition = definition_of(server, streams, &session, choice).await?;
    Ok(OpenApp {
        session,
        definition,
    })
}

/// How an app of a running session is started and opened. Errors: `app.not-found`.
async fn definition_of(
    server: &Server,
    streams: &dyn Streams,
    session: &Session,
    choice: AppChoice,
) -> Result<AppDefinition, Failure> {
    if let AppChoice::Port(port) = choice {
        return Ok(AppDefinition::of_port(port));
    }
    let known = definitions(server, streams, session).await?;
    let found = known.into_iter().find(|known| known.choice == choice);
    found.ok_or_else(|| refusals::app_not_found(choice).into())
}

/// The apps that a running session has.
async fn definitions(
    server: &Server,
    streams: &dyn Streams,
    session: &Session,
) -> Result<Vec<AppDefinition>, Failure> {
    let files = streams.app_files(session.container()).await?;
    let of_files = of_files(&files)?;
    let of_labels = match &session.spec.environment {
        SessionEnvironment::Host => Vec::new(),
        SessionEnvironment::Image { id, .. } => {
            let id = *id;
            let image = server
                .catalog()
                .read_now("read the apps of an image", |view| view.image(id))?;
            of_labels(image.map(|image| image.labels).unwrap_or_default(), &files)?
        }
    };
    let mut of_image = first_of_each(of_files.into_iter().chain(of_labels));
    of_image.truncate(MAX_IMAGE_APPS);
    let all = offered(of_image.clone(), |_| true);
    let wanted = all.into_iter().map(|app| app.program);
    let wanted: BTreeSet<String> = wanted.filter(|program| !program.is_empty()).collect();
    let found = streams.programs(session.container(), wanted.into_iter().collect());
    let found: BTreeSet<String> = found.await?.into_iter().collect();
    let known = offered(of_image, |program| found.contains(program));
    Ok(session.apps.joined(known))
}

/// The apps with names of their own, the first of each name.
fn first_of_each(apps: impl Iterator<Item = AppDefinition>) -> Vec<AppDefinition> {
    let mut all: Vec<AppDefinition> = Vec::new();
    for app in apps {
        if all.iter().all(|known| known.choice != app.choice) {
            all.push(app);
        }
    }
    all
}

/// What files in a session say of its apps: those of its image, as its user has changed them.
fn of_files(files: &[AppFile]) -> Result<Vec<AppDefinition>, Failure> {
    let mut sources = Vec::new();
    for file in files
        .iter()
        .filter(|file| !file.name.ends_with(SERVICE_ENDING))
    {
        let described = app_files::described(&file.text);
        sources.extend(described.map_err(|error| refusals::app_file_invalid(&file.name, error))?);
    }
    Ok(apps_of_image(sources)?)
}

/// What files in a session say of services that its image lists. One that cannot be read says nothing: it is not ours.
fn services_of(files: &[AppFile]) -> BTreeMap<String, ServiceSource> {
    let sources = files.iter().filter_map(|file| {
        let name = file.name.strip_suffix(SERVICE_ENDING)?;
        let source = serde_json::from_str(&file.text).ok()?;
        Some((service_name(name), source))
    });
    sources.collect()
}

/// What the labels of an image say of its apps: our own first.
fn of_labels(
    mut labels: BTreeMap<String, String>,
    files: &[AppFile],
) -> Result<Vec<AppDefinition>, Refusal> {
    let own = match labels.remove(APPS_LABEL) {
        Some(label) => described(&label)?,
        None => Vec::new(),
    };
    let services = labels.remove(SERVICES_LABEL);
    let services = services.filter(|label| label.len() <= MAX_APPS_LABEL);
    let files = ServiceFiles {
        sources: services_of(files),
        runtime_path: labels.remove(RUNTIME_LABEL).unwrap_or_default(),
    };
    let services = services.map_or_else(Vec::new, |label| apps_of_services(&label, &files));
    Ok(first_of_each(own.into_iter().chain(services)))
}

/// What the label of an image says of its apps.
fn described(label: &str) -> Result<Vec<AppDefinition>, Refusal> {
    if label.len() > MAX_APPS_LABEL {
        return Err(refusals::app_image_label_invalid("it is too long"));
    }
    let sources: Vec<AppSource> =
        serde_json::from_str(label).map_err(refusals::app_image_label_invalid)?;
    apps_of_image(sources)
}

fn ports_of(server: &Server, session: SessionId) -> Result<Vec<AppPort>, Failure> {
    server
        .catalog()
        .read_now("list the ports of a session's apps", |view| {
            view.app_ports_of(session)
        })
}

/// How far an app is, where it is known whether it answers.
fn state_of(server: &Server, container: ContainerName, app: &AppChoice, answers: bool) -> AppState {
    let start = server.app_starts().known(container, app);
    match (answers, start.map(|start| start.progress())) {
        (true, _) => AppState::Ready,
        (false, Some(AppProgress::Starting)) => AppState::Starting,
        (false, Some(AppProgress::Failed(_))) => AppState::Failed,
        (false, Some(AppProgress::Ready) | None) => AppState::Stopped,
    }
}

fn shown(
    server: &Server,
    container: ContainerName,
    app: &AppDefinition,
    opened: &[AppPort],
    answers: bool,
) -> AppView {
    let start = server.app_starts().known(container, &app.choice);
    let state = state_of(server, container, &app.choice, answers);
    let problem = match start.as_ref().map(|start| start.progress()) {
        Some(AppProgress::Failed(refusal)) if state == AppState::Failed => Some(AppProblem {
            code: refusal.code,
            text: refusal.text,
            hint: refusal.hint,
        }),
        _ => None,
    };
    let lines = match (state, start) {
        (AppState::Starting | AppState::Failed, Some(start)) => start.lines(),
        _ => Vec::new(),
    };
    let at = opened.iter().find(|port| port.app == app.choice);
    let below = server.settings().apps_name.clone();
    let named = at.zip(below);
    AppView {
        name: app.choice.to_string(),
        title: app.title.clone(),
        title_ko: app.title_ko.clone(),
        port: app.port,
        state,
        startable: !app.command.is_empty(),
        problem,
        lines,
        address_port: at.map(|port| port.port),
        address_name: named
            .map(|(port, below)| app_host(&app.choice.to_string(), port.port, &below)),
    }
}

/// What starts an app, its own command last.
fn commands(open: &OpenApp) -> AppCommands {
    let app = &open.definition;
    let templates = AppTemplates {
        port: app.port,
        session: open.session.name.as_str(),
    };
    let environment = app.environment.iter();
    let env: Vec<(String, String)> = environment
        .map(|(name, value)| (name.clone(), templates.fill(value)))
        .collect();
    let request = |words: &[String], background: Option<String>| ExecRequest {
        argv: words.iter().map(|word| templates.fill(word)).collect(),
        env: env.clone(),
        cwd: None,
        user: None,
        tty: None,
        guest: None,
        background,
    };
    let before = app.before.iter();
    AppCommands {
        before: before.map(|words| request(words, None)).collect(),
        own: request(&app.command, Some(app.choice.to_string())),
    }
}

/// Waits until a start is decided, but not for long.
async fn wait(start: &AppStart) {
    let decided = async {
        while start.progress() == AppProgress::Starting {
            tokio::time::sleep(LOOK).await;
        }
    };
    let _ = tokio::time::timeout(READY_TIMEOUT, decided).await;
}

/// Gives an app its port of this machine, and has it served.
async fn lease_port(server: &Server, open: &OpenApp) -> Result<(), Failure> {
    let settings = server.settings();
    let first = settings.listen_apps.map(|address| address.port());
    let ports = match (&settings.apps_name, first.filter(|port| *port > 0)) {
        (Some(_), _) => APP_NUMBERS,
        (None, Some(first)) => app_ports(first),
        (None, None) => return Err(refusals::app_no_address().into()),
    };
    let mut unusable = BTreeSet::new();
    loop {
        let wanted = AppPortRequest {
            owner: open.session.owner,
            app: open.definition.choice.clone(),
            session: open.session.id,
            inner_port: open.definition.port,
            now: server.clock().now(),
            ports: ports.clone(),
            can_pass: settings.apps_name.is_none(),
            unusable: unusable.clone(),
        };
        let leased = server
            .catalog()
            .write(Lane::Requests, "give an app a port", move |rows| {
                let known = rows.app_ports()?;
                let mut live = BTreeSet::new();
                // Where none passes on, others' do not matter.
                let asked = known
                    .iter()
                    .filter(|port| wanted.can_pass || port.owner == wanted.owner);
                for session in asked.filter_map(|port| port.session) {
                    let row = rows.session(session)?;
                    if row.is_some_and(|row| row.state() != SessionState::Ended) {
                        live.insert(session);
                    }
                }
                let port = app_port(&known, &wanted, |session| live.contains(&session))?;
                rows.put_app_port(&port)?;
                Ok(port)
            })
            .await?;
        let served = match server.app_listeners() {
            Some(listeners) if settings.apps_name.is_none() => listeners.serve(leased.port),
            _ => Ok(()),
        };
        let Err(error) = served else {
            return Ok(());
        };
        unusable.insert(leased.port);
        if unusable.len() >= MAX_PORT_TRIES {
            return Err(refusals::app_port_unusable(leased.port, error).into());
        }
        tracing::warn!(port = leased.port, %error, "a port of apps cannot be opened");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_describes_its_apps_in_json() {
        let label = r#"[{"name": "dash", "title": {"en": "Dash"}, "port": 8050, "command": ["dash", "{port}"]}]"#;
        let apps = described(label).unwrap();
        assert_eq!((apps[0].port, apps[0].program.as_str()), (8050, "dash"));
        for (label, code) in [
            ("{}", "app.image-label-invalid"),
            ("[{\"name\": \"a\"}]", "app.image-label-invalid"),
            (
                r#"[{"name": "a", "port": 1, "run": "x"}]"#,
                "app.image-label-invalid",
            ),
            (
                r#"[{"name": "a", "port": 99999}]"#,
                "app.image-label-invalid",
            ),
            (r#"[{"name": "a/b", "port": 1}]"#, "app.name-invalid"),
        ] {
            assert_eq!(described(label).unwrap_err().code, code, "{label}");
        }
        let long = format!("[]{}", " ".repeat(MAX_APPS_LABEL));
        assert_eq!(
            described(&long).unwrap_err().code,
            "app.image-label-invalid"
        );
    }
}
