//! Apps that launches name: started once their session runs, and given their port of this machine, so that their links are
//! there without a click. What was given a port since the session began is never started again: its user may have
//! ended it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::link::streams::Streams;
use base::observe::chain;
use rules::app::AppChoice;
use rules::app_launch::LaunchedApp;
use rules::names::ContainerName;
use rules::session::Session;

use super::{OpenApp, commands, definition_of, lease_port};
use crate::app_starts::answers;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server};

/// Commits within this time are looked at together. Higher: an app starts as much later. Lower: each commit pays for a look.
const TOGETHER: Duration = Duration::from_millis(300);

type Begun = BTreeSet<(ContainerName, AppChoice)>;

/// Runs until it is dropped or the catalog is closed; wakes on commits, about three times a second at most. A look costs a
/// visit of each running session whose launch names apps.
pub(crate) async fn keep(server: Server, streams: Arc<dyn Streams>) {
    let mut revision = server.catalog().revision();
    let mut begun = Begun::new();
    loop {
        revision.borrow_and_update();
        if let Err(failure) = begin_due(&server, &streams, &mut begun).await {
            tracing::warn!(error = %chain(&failure), "apps of launches could not be looked for; tried again");
        }
        if revision.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(TOGETHER).await;
    }
}

async fn begin_due(
    server: &Server,
    streams: &Arc<dyn Streams>,
    begun: &mut Begun,
) -> Result<(), Failure> {
    let running = server
        .catalog()
        .read_now("look for apps of launches", |view| {
            let sessions = view.sessions_with_apps()?.into_iter();
            sessions
                .map(|session| {
                    let ports = view.app_ports_of(session.id)?;
                    Ok((session, ports))
                })
                .collect::<Result<Vec<_>, Failure>>()
        })?;
    let live: BTreeSet<ContainerName> = running.iter().map(|(one, _)| one.container()).collect();
    begun.retain(|(container, _)| live.contains(container));
    for (session, ports) in running {
        for app in session.apps.iter() {
            let had_port = ports
                .iter()
                .any(|port| port.app == app.choice && Some(port.used_at) >= session.started_at());
            let is_new = begun.insert((session.container(), app.choice.clone()));
            if had_port || !is_new {
                continue;
            }
            if let Err(failure) = begin(server, streams, &session, app).await {
                tell(server, &session, app, &failure).await?;
            }
        }
    }
    Ok(())
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
