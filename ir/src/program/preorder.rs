//! Preorder traversal of loop trees.

use std::slice::Iter;

use smallvec::{SmallVec, smallvec};

use super::Node;

/// Iterates over all nodes of some trees, each node before its children.
pub fn preorder(nodes: &[Node]) -> impl Iterator<Item = &Node> {
    let mut open: SmallVec<[Iter<Node>; 16]> = smallvec![nodes.iter()];
    std::iter::from_fn(move || {
        while let Some(last) = open.last_mut() {
            if let Some(node) = last.next() {
                // Most nodes are leaves, which have no children to visit.
                if !node.body().is_empty() {
                    open.push(node.body().iter());
                }
                return Some(node);
            }
            open.pop();
        }
        None
    })
}
