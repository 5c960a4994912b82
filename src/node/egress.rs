//! Keeps the relay serving what the assignment gives a network, and takes what it counted for the report. Opens no connection;
//! without a relay, sessions run on without their network until one answers again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rules::egress::{EgressReport, SessionEgress};
use rules::names::ContainerName;

use crate::relay::{Relay, RelaySight};
use crate::runtime::{Runtime, RuntimeName};

/// How long it waits after a relay did not start. Longer: sessions are without their network for longer. Shorter: one that
/// cannot start holds up every round.
const AGAIN: Duration = Duration::from_secs(30);

/// A container that is to have a network.
pub(crate) struct WantedEgress {
    pub(crate) container: ContainerName,
    pub(crate) name: RuntimeName,
    pub(crate) egress: SessionEgress,
    /// Its command runs.
    pub(crate) runs: bool,
}

/// This machine's relay, and what it counted last.
pub(crate) struct EgressWatch {
    relay: Relay,
    reports: Vec<EgressReport>,
    /// Once a relay was looked at since a container began: it may still serve, and have counted, what is over.
    looked: bool,
    /// What the relay was told last of each container that it serves.
    told: BTreeMap<ContainerName, SessionEgress>,
    /// When none could be started.
    failed_at: Option<Instant>,
}

impl EgressWatch {
    /// The relay below `run`, started as `BINARY relay` where a session needs it.
    pub(crate) fn of(run: PathBuf, binary: PathBuf) -> Self {
        Self {
            relay: Relay::of(run, binary),
            reports: Vec::new(),
            looked: false,
            told: BTreeMap::new(),
            failed_at: None,
        }
    }

    /// Starts a relay where none answers. After a failure it is not tried for a while: each try takes seconds, and other
    /// sessions wait for it.
    pub(crate) fn ready(&mut self) -> io::Result<()> {
        // A container may begin and end between two looks.
        self.looked = false;
        if self.failed_at.is_some_and(|at| at.elapsed() < AGAIN) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let ready = self.relay.ready();
        self.failed_at = ready.is_err().then(Instant::now);
        ready
    }

    /// What was counted when it was looked at last.
    pub(crate) fn reports(&self) -> Vec<EgressReport> {
        self.reports.clone()
    }

    /// Whether a container may open something else by now than what the relay was told: its connections are to be judged by it
    /// at once. One that the relay was not told of yet counts where something was taken away from it. Costs one look at each.
    pub(crate) fn is_other(
        &self,
        container: ContainerName,
        egress: Option<&SessionEgress>,
    ) -> bool {
        let told = self.told.get(&container);
        egress.is_some_and(|egress| match told {
            Some(told) => egress != told,
            None => !egress.refused.is_empty(),
        })
    }

    /// Has the relay serve each wanted container that runs, has it close what is wanted no more, and takes its counts. Costs
    /// one question, and one more for each container that it did not serve, or that may open something else by now.
    pub(crate) fn look(&mut self, runtime: &Runtime, wanted: &[WantedEgress]) {
        if wanted.is_empty() && self.looked && self.reports.is_empty() {
            return;
        }
        if wanted.iter().any(|one| one.runs)
            && let Err(error) = self.ready()
        {
            tracing::warn!(%error, "the relay does not serve");
        }
        self.looked = true;
        // Where none answers there is nothing to ask for: each container would wait as long.
        let Ok(sights) = self.relay.look() else {
            self.reports.clear();
            return;
        };
        let known: BTreeSet<&str> = wanted.iter().map(|one| one.name.as_str()).collect();
        let mut over = Vec::new();
        for sight in sights
            .iter()
            .filter(|one| !known.contains(one.name.as_str()))
        {
            // Reported once more: what it did at its very end was not counted yet.
            if let Ok(container) = ContainerName::try_from(sight.name.clone()) {
                over.push(EgressReport {
                    container,
                    rows: sight.rows.clone(),
                    ends: sight.ends.clone(),
                });
            }
            if let Err(error) = self.relay.close(sight.name.clone()) {
                tracing::warn!(container = sight.name, %error, "its connections stay open");
            }
        }
        self.told
            .retain(|container, _| wanted.iter().any(|one| one.container == *container));
        for one in wanted.iter().filter(|one| one.runs) {
            let serves = |sight: &RelaySight| sight.name == one.name.as_str() && sight.lives;
            let is_told = self.told.get(&one.container) == Some(&one.egress);
            if (!sights.iter().any(serves) || !is_told) && self.serve(runtime, one) {
                self.told.insert(one.container, one.egress.clone());
            }
        }
        let reports = wanted.iter().filter_map(|one| {
            let sight = sights
                .iter()
                .find(|sight| sight.name == one.name.as_str())?;
            Some(EgressReport {
                container: one.container,
                rows: sight.rows.clone(),
                ends: sight.ends.clone(),
            })
        });
        self.reports = reports.chain(over).collect();
    }

    /// Whether the relay was told.
    fn serve(&self, runtime: &Runtime, wanted: &WantedEgress) -> bool {
        let [namespace, process] = match runtime.relay_descriptors(&wanted.name) {
            Ok(descriptors) => descriptors,
            // It has just ended; the next look says so.
            Err(error) => {
                tracing::debug!(container = %wanted.name, %error, "it needs no network any more");
                return false;
            }
        };
        let (name, egress) = (wanted.name.to_string(), wanted.egress.clone());
        let descriptors = [namespace.as_fd(), process.as_fd()];
        match self.relay.open(name, egress, &descriptors) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(container = %wanted.name, %error, "it has no network until this is mended");
                false
            }
        }
    }
}
