//! Where a node stands among the nodes of a world, found in one step: each pass looks the node of every running
//! container up, and a tree was a fifth of a decision among 10,000 of them. `HashMap` is not for `rules`, since its
//! order differs from run to run; this one has no order.

use crate::names::NodeId;

/// The nodes of a world by id.
#[derive(Debug, Clone)]
pub(super) struct NodeIndex {
    /// A power of two of places, at most half of them taken; a node stands at the first free one from its own on.
    places: Vec<Option<(NodeId, usize)>>,
}

impl NodeIndex {
    /// Numbers the nodes in this order, from 0. Costs O(n); of an id that comes twice the first counts.
    pub(super) fn new(nodes: impl ExactSizeIterator<Item = NodeId>) -> Self {
        let mut index = Self {
            places: vec![None; (nodes.len() * 2).next_power_of_two()],
        };
        for (number, node) in nodes.enumerate() {
            let place = index.place(node);
            index.places[place].get_or_insert((node, number));
        }
        index
    }

    /// The number of a node; None for an unknown one. Costs O(1): ids are random, or count up.
    pub(super) fn get(&self, node: NodeId) -> Option<usize> {
        self.places[self.place(node)].map(|(_, number)| number)
    }

    /// Where a node stands, or would stand.
    fn place(&self, node: NodeId) -> usize {
        let (mask, id) = (self.places.len() - 1, node.0.as_u128());
        let mut place = (id ^ (id >> 64)) as usize & mask;
        while self.places[place].is_some_and(|(known, _)| known != node) {
            place = (place + 1) & mask;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_found_and_no_other() {
        for count in [0, 1, 2, 3, 500] {
            // Half of them fall on the same places.
            let id = |n: u128| NodeId(uuid::Uuid::from_u128(((n % 2 * n) << 20) | (n << 90)));
            let index = NodeIndex::new((0..count).map(|n| id(n as u128)));
            for n in 0..count {
                assert_eq!(index.get(id(n as u128)), Some(n), "{n} of {count}");
            }
            assert_eq!(index.get(id(1 << 30)), None);
        }
    }
}
