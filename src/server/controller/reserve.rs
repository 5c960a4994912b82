//! Takes reservations forward: chooses their devices, tells owners whose sessions stand there, and stops those that
//! still do when one begins. Decides nothing itself: `rules::placement::reserve` does.

use std::time::Duration;

use rules::placement;
use rules::reasons;
use rules::reservation::{ReservationState, UNUSED_SECONDS, WARNING_SECONDS};
use rules::session::DesiredState;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::controller::pass::ControllerPass;

/// Carries out what is due. A session that ran by itself waits in the queue again; every other one is stopped, with its
/// grace.
pub(crate) fn reserve(pass: &mut ControllerPass) {
    let now = pass.now;
    for step in placement::reserve(&pass.world, now) {
        let is_warning = step.to == Some(ReservationState::Warned);
        let begins = step.time.state == ReservationState::Active;
        let mut warned = Vec::new();
        for other in &step.displaced {
            let session = pass.world.session(other.session);
            if let (true, Some(session)) = (is_warning, session) {
                warned.push((session.id, session.scope()));
            }
        }
        pass.step(step.time, warned);
        if !begins {
            continue;
        }
        for other in step.displaced {
            pass.change(other.session, "reservations", |session| {
                if session.generation != other.seen {
                    return false;
                }
                session.restart |= other.requeue;
                session.stop(DesiredState::Stop, reasons::session_reserved(), now)
            });
        }
    }
}

/// Until the first moment at which a reservation is due for a step; None where none waits for time. O(reservations).
pub(crate) fn until_due(world: &ClusterSnapshot, now: Timestamp) -> Option<Duration> {
    let moments = world.reservations.iter().flat_map(|time| {
        let before = |seconds: u64| {
            let millis = i64::try_from(seconds * 1000).unwrap_or(i64::MAX);
            Timestamp::from_millis(time.from.as_millis().saturating_sub(millis))
        };
        let told = time.warned_at.map(|at| at.plus_seconds(WARNING_SECONDS));
        let unused = time.unused_since.map(|at| at.plus_seconds(UNUSED_SECONDS));
        [
            Some(before(time.ahead())),
            Some(before(WARNING_SECONDS)),
            Some(time.from),
            Some(time.to),
            told,
            unused,
        ]
    });
    let left = moments.flatten().filter(|at| *at > now);
    left.map(|at| Duration::from_millis(at.millis_since(now)))
        .min()
}
