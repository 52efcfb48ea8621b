//! The nodes of trees in order.

use std::slice::Iter;

use smallvec::{SmallVec, smallvec};

use super::Node;

/// Every node of some trees, each before those within it.
pub fn preorder(nodes: &[Node]) -> impl Iterator<Item = &Node> {
    let mut open: SmallVec<[Iter<Node>; 16]> = smallvec![nodes.iter()];
    std::iter::from_fn(move || {
        while let Some(last) = open.last_mut() {
            if let Some(node) = last.next() {
                // Most nodes are leaves.
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
