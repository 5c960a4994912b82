//! Fills in what sessions start with, on the way of an assignment to its node: the list that is written never has it, so
//! no row is read for a session that runs. Carried until the node says that it took a list with it: lists that follow have
//! nothing of it, and the node keeps what it has until the command ran.

use std::collections::{BTreeMap, BTreeSet};

use base::observe::chain;
use rules::messages::Assignment;
use rules::names::{ContainerName, NodeId, UserId};
use rules::start_up::StartUpChoice;
use rules::workload::container::ContainerProgress;

use crate::catalog::Catalog;
use crate::controller::ControllerPass;

/// A container that is being started, by its place in an assignment, and what it is to get of whose.
pub(crate) type StartingSession = (usize, UserId, StartUpChoice);

/// What was carried to nodes. A fresh one does as well: it carries everything once more.
#[derive(Debug, Default)]
pub(crate) struct CarriedStartUps {
    /// Containers that are being started, with their node and the first list that had what they start with.
    since: BTreeMap<ContainerName, (NodeId, u64)>,
}

impl CarriedStartUps {
    /// The containers of an assignment that are to get something with it. Costs one look at each.
    pub(crate) fn starting(
        &mut self,
        pass: &ControllerPass,
        assignment: &Assignment,
    ) -> Vec<StartingSession> {
        let node = assignment.node;
        let taken = pass.world.node(node).map_or(0, |node| node.generation);
        let mut starting = Vec::new();
        let mut due = BTreeSet::new();
        for (place, order) in assignment.containers.iter().enumerate() {
            let Some(session) = pass.world.session(order.name.session) else {
                continue;
            };
            let choice = session.start_up.choice;
            let starts = session.live_containers().any(|one| {
                one.index == order.name.index
                    && matches!(
                        one.state,
                        ContainerProgress::Scheduled | ContainerProgress::Preparing
                    )
            });
            if !starts || choice == StartUpChoice::Nothing {
                continue;
            }
            due.insert(order.name);
            // What a machine took of another state says nothing of this one's lists.
            let known = self.since.get(&order.name).copied();
            match known.filter(|(of, _)| *of == node && !assignment.accepted) {
                Some((_, first)) if taken >= first => continue,
                Some(_) => {}
                None => {
                    self.since.insert(order.name, (node, assignment.generation));
                }
            }
            starting.push((place, session.owner, choice));
        }
        self.since
            .retain(|name, (of, _)| *of != node || due.contains(name));
        starting
    }

    /// Gives each of them what its owner has for it now. Costs one visit of each row of those owners. What cannot be opened
    /// is left out, and said in the log: it keeps no other container waiting.
    pub(crate) async fn fill(
        &mut self,
        catalog: &Catalog,
        starting: Vec<StartingSession>,
        mut assignment: Assignment,
    ) -> Assignment {
        if starting.is_empty() {
            return assignment;
        }
        let places: Vec<usize> = starting.iter().map(|(place, ..)| *place).collect();
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
                // The next list carries it, where one comes before they start.
                for place in places {
                    self.since.remove(&assignment.containers[place].name);
                }
                tracing::error!(error = %chain(&failure), "sessions start without what their owners have for them");
            }
        }
        assignment
    }
}
