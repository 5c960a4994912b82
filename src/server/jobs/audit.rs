//! What the audit log needs by the clock: rows of acts that were counted, a signed checkpoint each day and at the end of
//! the server, and the end of rows that are older than is kept.

use std::time::Duration;

use base::observe::chain;
use rules::units::Timestamp;

use crate::access::repeated;
use crate::actions::audit::checkpoint;
use crate::catalog::Lane;
use crate::{Failure, Server};

/// How often is looked what is due.
const LOOK: Duration = Duration::from_secs(repeated::SUMMED_SECONDS);
/// Seconds between two checkpoints.
const CHECKPOINT_SECONDS: u64 = 86_400;
/// Rows that are forgotten in one commit, which is one a minute. Higher: users' requests wait behind it. Lower: a clean-up
/// takes longer.
const MAX_FORGOTTEN: u32 = 1_000;

/// Does what is due, until it is dropped.
pub(crate) async fn keep(server: Server) {
    loop {
        tokio::time::sleep(LOOK).await;
        if let Err(failure) = look(&server).await {
            tracing::error!(error = %chain(&failure), "the audit log was not looked after");
        }
    }
}

/// Writes and signs what there is, before the server ends.
pub(crate) async fn close(server: &Server) {
    let closed = async {
        repeated::flush(server, true).await?;
        checkpoint(server).await
    };
    if let Err(failure) = closed.await {
        tracing::error!(error = %chain(&failure), "the audit log was not signed");
    }
}

/// One look, and what follows from it.
pub(crate) async fn look(server: &Server) -> Result<(), Failure> {
    repeated::flush(server, false).await?;
    let now = server.clock().now();
    let newest = server
        .catalog()
        .read_now("look for a checkpoint", |view| view.newest_checkpoints(1))?;
    if is_due(newest.first().map(|newest| newest.at), now) {
        checkpoint(server).await?;
    }
    forget(server, now).await
}

/// Whether the next checkpoint is due. After a clock was set back the newest lies ahead of it: a day of difference either way
/// is one.
fn is_due(newest: Option<Timestamp>, now: Timestamp) -> bool {
    newest.is_none_or(|at| now.seconds_since(at).max(at.seconds_since(now)) >= CHECKPOINT_SECONDS)
}

/// One commit for each look: a year of a busy site goes within days, and a clock that was set far ahead by mistake takes
/// little before it is set right.
async fn forget(server: &Server, now: Timestamp) -> Result<(), Failure> {
    let kept = i64::from(server.settings().audit_keep_days) * 86_400_000;
    let before = Timestamp::from_millis(now.as_millis().saturating_sub(kept));
    let due = server
        .catalog()
        .read_now("look for old acts", |view| view.has_acts_to_forget(before))?;
    if !due {
        return Ok(());
    }
    server
        .catalog()
        .write(Lane::Loops, "forget old acts", move |rows| {
            rows.forget_acts(before, MAX_FORGOTTEN)
        })
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests;
