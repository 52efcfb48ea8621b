//! Where warps are specialised.

use super::{Node, WarpRole, preorder};

impl WarpRole {
    /// The bodies of the producer and of the consumers; `None` for any other list of nodes.
    pub fn both(nodes: &[Node]) -> Option<[&[Node]; 2]> {
        match nodes {
            [
                Node::Specialised { role: WarpRole::Producer, body: producer },
                Node::Specialised { role: WarpRole::Consumers, body },
            ] => Some([producer, body]),
            _ => None,
        }
    }

    /// True if some of the nodes are for warps of one role.
    pub fn occurs(nodes: &[Node]) -> bool {
        preorder(nodes).any(|node| matches!(node, Node::Specialised { .. }))
    }
}
