//! Code generators: each reads the same loop nests.

use crate::affine::{Affine, VarId};
use crate::program::{Access, Node, Program};

pub mod c;
pub mod gpu;
pub mod x86;

/// Row-major offset of an access in elements.
fn flat_offset(program: &Program, access: &Access) -> Affine {
    let strides = program.buffer(access.buffer).strides();
    access.index.iter().zip(strides).fold(Affine::default(), |acc, (index, stride)| acc + index.clone() * stride as i64)
}

/// The variables of the loops in a node, in order of appearance.
fn bound_vars(node: &Node) -> Vec<VarId> {
    let mut vars = match node {
        Node::Loop(l) => vec![l.var],
        Node::Unflatten { digits, .. } => digits.iter().map(|d| d.var).collect(),
        _ => Vec::new(),
    };
    vars.extend(node.body().iter().flat_map(bound_vars));
    vars
}
