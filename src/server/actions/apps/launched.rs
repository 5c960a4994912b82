//! Apps that launches name: started once their session runs, and given their port of this machine, so that their links are
//! there without a click. What was given a port since the session began is never started again: its user may have
//! ended it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::link::streams::Streams;
use base::observe::chain;
use rules::app_launch::LaunchedApp;
use rules::names::ContainerName;
use rules::refusals;
use rules::session::Session;
use tokio::task::JoinSet;

use super::{OpenApp, commands, definition_of, lease_port};
use crate::app_starts::answers;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server};

/// Commits within this time are looked at together. Higher: an app starts as much later. Lower: each commit pays for a look.
const TOGETHER: Duration = Duration::from_millis(300);

/// How long a session may keep one of its apps waiting before it starts. Longer: what cannot start is told later. Shorter: a
/// machine that is busy has apps less.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Containers whose apps were looked at: once each.
type Begun = BTreeSet<ContainerName>;

/// Runs until it is dropped or the catalog is closed; wakes on commits, about three times a second at most. A look costs a
/// step of an index for each running session whose launch names apps. A session whose container does not answer keeps its
/// own apps waiting alone.
pub(crate) async fn keep(server: Server, streams: Arc<dyn Streams>) {
    let mut revision = server.catalog().revision();
    let mut begun = Begun::new();
    // Those that begin now; dropped with this loop.
    let mut beginning = JoinSet::new();
    loop {
        revision.borrow_and_update();
        match due(&server, &mut begun) {
            Ok(all) => {
                for (session, apps) in all {
                    let (server, streams) = (server.clone(), Arc::clone(&streams));
                    beginning.spawn(begin_all(server, streams, session, apps));
                }
            }
            Err(failure) => {
                tracing::warn!(error = %chain(&failure), "apps of launches could not be looked for; tried again");
            }
        }
        while beginning.try_join_next().is_some() {}
        if revision.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(TOGETHER).await;
    }
}

/// The sessions with apps that are to be started now. Each container comes once.
fn due(server: &Server, begun: &mut Begun) -> Result<Vec<(Session, Vec<LaunchedApp>)>, Failure> {
    let (live, found) = server
        .catalog()
        .read_now("look for apps of launches", |view| {
            let live: Begun = view.containers_with_apps()?.into_iter().collect();
            let mut found = Vec::new();
            for container in live.difference(begun) {
                if let Some(session) = view.session(container.session)? {
                    let ports = view.app_ports_of(session.id)?;
                    found.push((session, ports));
                }
            }
            Ok((live, found))
        })?;
    *begun = live;
    let mut all = Vec::new();
    for (session, ports) in found {
        let had_port = |app: &LaunchedApp| {
            ports
                .iter()
                .any(|port| port.app == app.choice && Some(port.used_at) >= session.started_at())
        };
        let apps: Vec<LaunchedApp> = session
            .apps
            .iter()
            .filter(|app| !had_port(app))
            .cloned()
            .collect();
        if !apps.is_empty() {
            all.push((session, apps));
        }
    }
    Ok(all)
}

/// Begins these apps of a session, one after the other.
async fn begin_all(
    server: Server,
    streams: Arc<dyn Streams>,
    session: Session,
    apps: Vec<LaunchedApp>,
) {
    for app in &apps {
        let beginning = begin(&server, &streams, &session, app);
        let done = match tokio::time::timeout(BEGIN_TIMEOUT, beginning).await {
            Ok(done) => done,
            Err(_) => Err(refusals::app_too_slow(BEGIN_TIMEOUT.as_secs()).into()),
        };
        if let Err(failure) = done
            && let Err(failure) = tell(&server, &session, app, &failure).await
        {
            tracing::warn!(error = %chain(&failure), app = %app.choice, "the journal was not told of an app");
        }
    }
}

/// Gives an app its port of this machine, and starts its program unless it answers.
async fn begin(
    server: &Server,
    streams: &Arc<dyn Streams>,
    session: &Session,
    app: &LaunchedApp,
) -> Result<(), Failure> {
    let definition = definition_of(server, &**streams, session, app.choice.clone()).await?;
    let open = OpenApp {
        session: session.clone(),
        definition,
    };
    let leased = lease_port(server, &open).await;
    let container = session.container();
    let is_started = !open.definition.command.is_empty();
    if is_started && !answers(&**streams, container, &open.definition).await {
        let starts = server.app_starts();
        starts.begin(
            Arc::clone(streams),
            container,
            &open.definition,
            commands(&open),
        );
    }
    // Without an address it runs all the same: `fardel forward` reaches it.
    leased
}

/// Says in the journal why an app of a launch is not there.
async fn tell(
    server: &Server,
    session: &Session,
    app: &LaunchedApp,
    failure: &Failure,
) -> Result<(), Failure> {
    let why = match failure {
        Failure::Refusal(refusal) => refusal.text.clone(),
        Failure::Fault(fault) => {
            tracing::warn!(error = %chain(fault), app = %app.choice, "an app of a launch could not be started");
            String::new()
        }
    };
    let (object, scope) = (session.id.to_string(), session.scope());
    let app = app.choice.to_string();
    server
        .catalog()
        .write(Lane::Loops, "tell of an app of a launch", move |rows| {
            rows.note(NewEvent {
                actor: "system",
                topic: "sessions",
                object: &object,
                scope,
                code: "app.not-begun",
                before: &app,
                after: &why,
            })
        })
        .await
}
