//! Carries assignments down and reports up. Here both parties live in one process; over a rack the
//! same two messages travel. Holds only the newest of each: both are complete, so an older one is
//! worth nothing.

pub mod images;
pub mod streams;

use std::sync::Arc;

use rules::messages::{Assignment, NodeReport};
use tokio::sync::watch;

/// Makes the two ends of a link inside one process.
pub fn local() -> (ServerEnd, NodeEnd) {
    let (assign, assigned) = watch::channel(None);
    let (report, reported) = watch::channel(None);
    (ServerEnd { assign, reported }, NodeEnd { assigned, report })
}

/// The server's end.
#[derive(Debug)]
pub struct ServerEnd {
    assign: watch::Sender<Option<Arc<Assignment>>>,
    reported: watch::Receiver<Option<Arc<NodeReport>>>,
}

impl ServerEnd {
    /// Puts the newest assignment on the link; the one before it is forgotten.
    pub fn send(&self, assignment: Assignment) {
        self.assign.send_replace(Some(Arc::new(assignment)));
    }

    /// Waits for a report newer than the last one taken; None once the node's end is gone.
    pub async fn report(&mut self) -> Option<Arc<NodeReport>> {
        loop {
            self.reported.changed().await.ok()?;
            let newest = self.reported.borrow_and_update().clone();
            if newest.is_some() {
                return newest;
            }
        }
    }
}

/// The node's end.
#[derive(Debug)]
pub struct NodeEnd {
    assigned: watch::Receiver<Option<Arc<Assignment>>>,
    report: watch::Sender<Option<Arc<NodeReport>>>,
}

impl NodeEnd {
    /// Puts the newest report on the link.
    pub fn send(&self, report: NodeReport) {
        self.report.send_replace(Some(Arc::new(report)));
    }

    /// The assignments of this link, as they come.
    pub fn assigned(&self) -> Assigned {
        Assigned(self.assigned.clone())
    }
}

/// Hands out assignments; only ever the newest.
#[derive(Debug)]
pub struct Assigned(watch::Receiver<Option<Arc<Assignment>>>);

impl Assigned {
    /// Waits for an assignment newer than the last one taken; None once the server's end is gone.
    pub async fn next(&mut self) -> Option<Arc<Assignment>> {
        loop {
            self.0.changed().await.ok()?;
            let newest = self.0.borrow_and_update().clone();
            if newest.is_some() {
                return newest;
            }
        }
    }
}
