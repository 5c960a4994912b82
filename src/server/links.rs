//! The server's ends of the links to its nodes, by node: an assignment goes to the node that it is for, and
//! reports come from all of them. Decides nothing, and remembers no message.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use base::link::ServerEnd;
use rules::messages::{Assignment, NodeReport};
use rules::names::NodeId;

/// One link for each node.
#[derive(Debug, Default)]
pub struct Links(BTreeMap<NodeId, ServerEnd>);

impl Links {
    /// The link to a single node.
    pub fn to(node: NodeId, end: ServerEnd) -> Self {
        Self(BTreeMap::from([(node, end)]))
    }

    /// Adds the link to a node; an earlier one to the same node ends.
    pub fn add(&mut self, node: NodeId, end: ServerEnd) {
        self.0.insert(node, end);
    }

    /// Puts the newest assignment on the link of its node. One for a node without a link is dropped: its row
    /// has it, and it is due again once the node reports.
    pub(crate) fn send(&self, assignment: Assignment) {
        if let Some(end) = self.0.get(&assignment.node) {
            end.send(assignment);
        }
    }

    /// Waits for a report that is newer than the last one taken of its node; None once every node's end is
    /// gone. Safe to drop while it waits.
    pub(crate) async fn report(&mut self) -> Option<Arc<NodeReport>> {
        while !self.0.is_empty() {
            let (node, report) = self.next().await;
            if report.is_some() {
                return report;
            }
            self.0.remove(&node);
        }
        None
    }

    /// What came first: a report of a node, or the end of its link.
    async fn next(&mut self) -> (NodeId, Option<Arc<NodeReport>>) {
        type Waiting<'a> = Pin<Box<dyn Future<Output = Option<Arc<NodeReport>>> + Send + 'a>>;
        let mut waiting: Vec<(NodeId, Waiting<'_>)> = self
            .0
            .iter_mut()
            .map(|(node, end)| (*node, Box::pin(end.report()) as Waiting<'_>))
            .collect();
        poll_fn(|context| {
            for (node, report) in &mut waiting {
                if let Poll::Ready(report) = report.as_mut().poll(context) {
                    return Poll::Ready((*node, report));
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use base::link;
    use rules::names::BootId;
    use rules::resources::Capacity;
    use rules::units::{Bytes, CpuShare, Timestamp};
    use uuid::Uuid;

    use super::*;

    fn node(number: u128) -> NodeId {
        NodeId(Uuid::from_u128(number))
    }

    fn report(node: NodeId) -> NodeReport {
        NodeReport {
            node,
            name: "n".to_owned(),
            boot: BootId(Uuid::nil()),
            generation: 0,
            state: None,
            at: Timestamp::default(),
            capacity: Capacity {
                cpu: CpuShare(100),
                memory: Bytes::gib(1),
                devices: Vec::new(),
                others: Vec::new(),
            },
            host_environment: true,
            containers: Vec::new(),
            problems: Vec::new(),
            device_uses: Vec::new(),
            incidents: Vec::new(),
            partition_failures: Vec::new(),
            egress: Vec::new(),
            start_up_failures: Vec::new(),
            stuck_mounts: Vec::new(),
        }
    }

    fn assignment(node: NodeId) -> Assignment {
        Assignment {
            node,
            generation: 1,
            containers: Vec::new(),
            partitions: Vec::new(),
            state: None,
            accepted: false,
        }
    }

    #[tokio::test]
    async fn each_node_gets_its_own_assignments_and_all_are_heard() {
        let ((one, one_node), (two, two_node)) = (link::local(), link::local());
        let mut links = Links::to(node(1), one);
        links.add(node(2), two);
        two_node.send(report(node(2)));
        assert_eq!(links.report().await.unwrap().node, node(2));
        one_node.send(report(node(1)));
        assert_eq!(links.report().await.unwrap().node, node(1));

        links.send(assignment(node(2)));
        links.send(assignment(node(3)));
        assert_eq!(two_node.assigned().next().await.unwrap().node, node(2));
        let mut assigned = one_node.assigned();
        let nothing = tokio::time::timeout(std::time::Duration::from_millis(20), assigned.next());
        assert!(nothing.await.is_err(), "an assignment of another node came");

        drop(one_node);
        two_node.send(report(node(2)));
        assert_eq!(links.report().await.unwrap().node, node(2));
        drop(two_node);
        assert!(links.report().await.is_none(), "every link ended");
    }
}
