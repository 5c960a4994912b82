//! The usage ledger: told from the rows of each second, without the ledger's own arithmetic.

use rules::metering::UsageSum;
use rules::session::Session;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use super::{Fault, Kept, Run, SimulatedMoment};

/// Seconds between two looks at the sums: they visit every row.
const LOOK: u64 = 5;
/// Seconds between two passes of the meter.
const METER: u64 = 37;

/// What all sessions held until a moment.
#[derive(Default)]
pub(super) struct HeldUse {
    sum: UsageSum,
    /// What is held since the last look, for each millisecond.
    now: UsageSum,
    at: Option<Timestamp>,
}

impl Run {
    /// The sums of use are what the rows of each second held, whatever died, and whatever the clock showed; both tables
    /// of the ledger say the same.
    pub(super) fn use_is_exact(&mut self, world: &ClusterSnapshot, now: SimulatedMoment) -> Kept {
        let passed = self.held.at.map_or(0, |at| now.steady.millis_since(at));
        let held = times(self.held.now, passed);
        self.held.sum = self.held.sum.plus(held);
        self.held.at = Some(now.steady);
        self.held.now = world
            .sessions
            .iter()
            .filter(|session| session.state().holds_resources())
            .map(rate)
            .fold(UsageSum::default(), UsageSum::plus);
        if !self.second.is_multiple_of(LOOK) {
            return Ok(());
        }
        let totals = self
            .server
            .ledger()
            .map_err(|failure| format!("the ledger cannot be read: {failure}"))?;
        let used = UsageSum {
            starts: 0,
            waited: 0,
            ..totals.used
        };
        if used != totals.allocated || used != self.held.sum {
            return Err(format!(
                "the ledger says that {used:?} was used and {:?} allocated; sessions held {:?}",
                totals.allocated, self.held.sum
            ));
        }
        Ok(())
    }

    /// Counts what sessions hold, now and then. A full disk or a death puts it off.
    pub(super) fn meter(&mut self) {
        if self.second.is_multiple_of(METER) {
            let _ = self.server.meter();
            self.died("while it counted use");
        }
    }

    /// The clocks of the server, or one that somebody set where the fault is planted.
    pub(super) fn clocks(&self, now: SimulatedMoment) -> SimulatedMoment {
        match self.fault {
            Some(Fault::UseByTheWall) => SimulatedMoment {
                steady: now.wall,
                ..now
            },
            _ => now,
        }
    }
}

fn rate(session: &Session) -> UsageSum {
    let demand = &session.spec.demand;
    let shares = session
        .live_containers()
        .flat_map(|container| container.holds().into_owned())
        .map(|device| u64::from(device.share.0));
    UsageSum {
        session: 1,
        gpu: shares.sum(),
        cpu: u64::from(demand.cpu.0),
        memory: demand.memory.0.div_ceil(1 << 20),
        ..UsageSum::default()
    }
}

fn times(sum: UsageSum, millis: u64) -> UsageSum {
    UsageSum {
        session: sum.session * millis,
        gpu: sum.gpu * millis,
        cpu: sum.cpu * millis,
        memory: sum.memory * millis,
        ..UsageSum::default()
    }
}
