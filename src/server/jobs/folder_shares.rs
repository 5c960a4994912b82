//! Ends shares of folders whose time is over, and holds sessions that wait to what shares give now: a member leaves a project,
//! a user moves to another domain, and no request about the folder says so. Never touches a session that runs.

use std::time::Duration;

use base::observe::chain;

use crate::Server;
use crate::actions::folders::sharing::{end_due, hold_waiting};

/// Between two looks. Longer: a session that waited for its place may start with a folder whose share ended so long ago.
/// Shorter: the rows of waiting sessions are read more often.
const LOOK: Duration = Duration::from_secs(5);

/// Looks, until it is dropped.
pub(crate) async fn keep(server: Server) {
    loop {
        tokio::time::sleep(LOOK).await;
        if let Err(failure) = end_due(&server).await {
            tracing::error!(error = %chain(&failure), "shares of folders whose time is over stay");
        }
        if let Err(failure) = hold_waiting(&server).await {
            tracing::error!(error = %chain(&failure), "waiting sessions were not held to shares of folders");
        }
    }
}
