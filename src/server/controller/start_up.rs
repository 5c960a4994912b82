//! Fills in what sessions start with, on the way of an assignment to its node: the list that is written never has it, so
//! no row is read for a session that runs, and nothing of it is kept twice.

use base::observe::chain;
use rules::messages::Assignment;
use rules::names::UserId;
use rules::session::SessionState;
use rules::start_up::StartUpChoice;

use crate::catalog::Catalog;
use crate::controller::ControllerPass;

/// A container that is being started, by its place in an assignment, and what it is to get of whose.
pub(crate) type StartingSession = (usize, UserId, StartUpChoice);

/// The containers of an assignment that are to get something. Costs one look at each.
pub(crate) fn starting(pass: &ControllerPass, assignment: &Assignment) -> Vec<StartingSession> {
    let orders = assignment.containers.iter();
    orders
        .enumerate()
        .filter_map(|(place, order)| {
            let session = pass.world.session(order.name.session)?;
            let starts = matches!(
                session.state(),
                SessionState::Scheduled | SessionState::Preparing
            );
            let choice = session.start_up.choice;
            let is_due = starts && choice != StartUpChoice::Nothing;
            is_due.then_some((place, session.owner, choice))
        })
        .collect()
}

/// Gives each of them what its owner has for it now. Costs one visit of each row of those owners. What cannot be opened
/// is left out, and said in the log: it keeps no other container waiting.
pub(crate) async fn fill(
    catalog: &Catalog,
    starting: Vec<StartingSession>,
    mut assignment: Assignment,
) -> Assignment {
    if starting.is_empty() {
        return assignment;
    }
    let read = catalog
        .read("read what sessions start with", move |view| {
            let mut all = Vec::with_capacity(starting.len());
            for (place, owner, choice) in starting {
                match view.start_up(owner, choice) {
                    Ok(start_up) => all.push((place, start_up)),
                    Err(failure) => {
                        tracing::error!(user = %owner, error = %chain(&failure), "a session starts without what its owner has for it");
                    }
                }
            }
            Ok(all)
        })
        .await;
    match read {
        Ok(all) => {
            for (place, start_up) in all {
                assignment.containers[place].start_up = start_up;
            }
        }
        Err(failure) => {
            tracing::error!(error = %chain(&failure), "sessions start without what their owners have for them");
        }
    }
    assignment
}
