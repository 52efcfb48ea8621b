//! Queries about warp specialisation.

use super::{Node, WarpRole, preorder};

impl WarpRole {
    /// Returns the bodies of the producer and of the consumers; `None` unless `nodes` are exactly
    /// these two.
    pub fn both(nodes: &[Node]) -> Option<[&[Node]; 2]> {
        match nodes {
            [
                Node::Specialised { role: WarpRole::Producer, body: producer },
                Node::Specialised { role: WarpRole::Consumers, body },
            ] => Some([producer, body]),
            _ => None,
        }
    }

    /// Returns true if some node is executed by the warps of one role only.
    pub fn occurs(nodes: &[Node]) -> bool {
        preorder(nodes).any(|node| matches!(node, Node::Specialised { .. }))
    }
}
