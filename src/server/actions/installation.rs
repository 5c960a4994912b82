//! The rest of the installation after the first administrator is made: steps that are ticked off, a test
//! session whose start is measured, and a report. An administrator's, step by step, in any order.

use std::sync::Arc;

use api::sessions::{LaunchRequest, SessionView};
use rules::permissions::Permission;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::attention::{self, AttentionList};
use super::diagnostic_check::DiagnosticCheck;
use super::sessions;
use super::system;
use super::{allowed, certificates};
use crate::access::Caller;
use crate::appliance::installation::{self, SetupRecord};
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server, ServerFault};

/// One step after the first administrator is made.
pub type Step = installation::SetupStep;

/// How far it got.
#[derive(Debug, Clone, PartialEq)]
pub struct SetupProgress {
    /// When the wizard was begun; None on a machine that was set up without it.
    pub began_at: Option<Timestamp>,
    /// Every step in its order, with the time it was done.
    pub steps: Vec<(Step, Option<Timestamp>)>,
    /// The session of the last test; None before it, and once it was forgotten.
    pub test: Option<SessionView>,
    pub finished_at: Option<Timestamp>,
}

impl SetupProgress {
    /// The first step that is not done.
    pub fn next(&self) -> Option<Step> {
        let open = self.steps.iter().find(|(_, done)| done.is_none());
        open.map(|(step, _)| *step)
    }
}

/// What the test session found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialMeasurement {
    /// From the commit of the launch to the running command.
    pub start_milliseconds: u64,
    /// How long the command counted.
    pub ran_milliseconds: u64,
    /// The command saw the limit of its memory as the memory of its machine.
    pub limit_held: bool,
    pub exit_code: Option<i32>,
    pub passed: bool,
}

/// The installation on one page.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub at: Timestamp,
    pub version: &'static str,
    pub installation_id: uuid::Uuid,
    /// Where browsers open the console.
    pub origins: Vec<String>,
    /// None where nothing is encrypted.
    pub fingerprint: Option<String>,
    pub machines: Vec<sessions::NodeOverview>,
    pub images: usize,
    /// What was looked at and is well.
    pub checks: Vec<DiagnosticCheck>,
    /// What is not, as the overview and the checks say it.
    pub attention: Arc<AttentionList>,
    pub progress: SetupProgress,
    pub measured: Option<TrialMeasurement>,
}

/// Memory of the test session, and what it must see inside.
const TEST_MEMORY_KIB: u64 = 256 << 10;
/// The exit code of the test's command where the limit is not seen inside.
const LIMIT_NOT_SEEN: i32 = 3;
/// In plain shell words, so that every environment with a shell can do it: looks for the limit, then counts.
const TEST: &str = "while read key value unit; do case $key in MemTotal:) \
    [ \"$value\" -le 262144 ] || exit 3;; esac; done < /proc/meminfo; \
    i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo counted to $i";

/// Notes that the wizard begins. Called once, when the first administrator is made in a browser.
pub fn begin(server: &Server) -> Result<(), Failure> {
    let data = server.settings().data.clone();
    let record = SetupRecord {
        began_at: Some(server.clock().now()),
        ..SetupRecord::default()
    };
    Ok(installation::write(&data, &record)?)
}

/// How far it got.
pub async fn progress(server: &Server, caller: &Caller) -> Result<SetupProgress, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let record = installation::read(&server.settings().data);
    let test = match record.test {
        Some(id) => sessions::get(server, caller, &id.to_string()).await.ok(),
        None => None,
    };
    Ok(SetupProgress {
        began_at: record.began_at,
        steps: Step::ALL
            .map(|step| (step, record.done.get(&step).copied()))
            .into(),
        test,
        finished_at: record.finished_at,
    })
}

/// Ticks a step off.
pub async fn done(server: &Server, caller: &Caller, step: Step) -> Result<(), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    change(server, move |record, now| {
        record.done.entry(step).or_insert(now);
    })
    .await
}

/// The installation is over; what is left out stays left out. Changes nothing where it was over before.
pub async fn finish(server: &Server, caller: &Caller) -> Result<(), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let known = installation::read(&server.settings().data);
    if known.finished_at.is_some() {
        return Ok(());
    }
    change(server, |record, now| {
        record.finished_at.get_or_insert(now);
    })
    .await?;
    let actor = caller.name.clone();
    server
        .catalog()
        .write(
            Lane::Requests,
            "note the end of the installation",
            move |rows| {
                rows.note(NewEvent {
                    actor: actor.as_str(),
                    topic: "system",
                    object: "installation",
                    scope: rules::tenancy::Scope::SITE,
                    code: "installation.finished",
                    before: "",
                    after: "",
                })
            },
        )
        .await
}

/// Launches the test session in an environment, half a core and 256 MiB.
///
/// Errors: as every launch.
pub async fn test(server: &Server, caller: &Caller, image: &str) -> Result<SessionView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let order = json!({
        "image": image,
        "kind": "batch",
        "command": ["sh", "-c", TEST],
        "labels": {"purpose": "installation-test"},
        "resources": {"cpu": 0.5, "memory": TEST_MEMORY_KIB << 10},
        "max_runtime_seconds": 60,
        "without_home": true,
    });
    let order: LaunchRequest = serde_json::from_value(order)
        .map_err(|error| ServerFault::new("write the test's order", error))?;
    let launched = sessions::launch(server, caller, order, None).await?;
    let session = launched
        .sessions
        .into_iter()
        .next()
        .ok_or_else(|| ServerFault::new("launch the test", "no session came of it"))?;
    let id = session.id;
    change(server, move |record, _| record.test = Some(id)).await?;
    Ok(session)
}

/// What a test session found out; None while it is not over.
pub fn measured(session: &SessionView) -> Option<TrialMeasurement> {
    let (started, ended) = (session.started_at, session.ended_at?);
    let exit_code = session.exit_code;
    Some(TrialMeasurement {
        start_milliseconds: started.map_or(0, |at| at.millis_since(session.created_at)),
        ran_milliseconds: started.map_or(0, |at| ended.millis_since(at)),
        limit_held: started.is_some() && exit_code.is_some() && exit_code != Some(LIMIT_NOT_SEEN),
        exit_code,
        passed: exit_code == Some(0),
    })
}

/// Everything on one page.
pub async fn report(server: &Server, caller: &Caller) -> Result<Report, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let progress = progress(server, caller).await?;
    let overview = sessions::overview(server, caller).await?;
    let authority = certificates::trust(server).await.ok();
    // Looked at now, so that the report is of this moment; a server without a machine has none to look at.
    let _ = system::diagnose(server, caller).await;
    let mut checks = system::health(server).await;
    checks.retain(|check| check.ok);
    Ok(Report {
        at: server.clock().now(),
        version: env!("CARGO_PKG_VERSION"),
        installation_id: server.installation_id(),
        origins: server.settings().origins(),
        fingerprint: authority.map(|authority| authority.fingerprint),
        machines: overview.machines,
        images: super::images::list(server, caller).await?.len(),
        checks,
        attention: attention::attention(server, caller).await?,
        measured: progress.test.as_ref().and_then(measured),
        progress,
    })
}

/// Reads, changes and writes the record where waiting for the disk holds no request up.
async fn change(
    server: &Server,
    act: impl FnOnce(&mut SetupRecord, Timestamp) + Send + 'static,
) -> Result<(), Failure> {
    let (data, now) = (server.settings().data.clone(), server.clock().now());
    tokio::task::spawn_blocking(move || {
        let mut record = installation::read(&data);
        act(&mut record, now);
        installation::write(&data, &record)
    })
    .await
    .map_err(|error| ServerFault::new("keep the record of the installation", error))??;
    Ok(())
}
