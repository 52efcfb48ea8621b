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
    let of = |body: &[Node]| body.iter().flat_map(bound_vars).collect::<Vec<_>>();
    match node {
        Node::Loop(l) => [vec![l.var], of(&l.body)].concat(),
        Node::Unflatten { digits, body, .. } => [digits.iter().map(|d| d.var).collect(), of(body)].concat(),
        Node::Alloc { body, .. } | Node::Guard { body, .. } => of(body),
        Node::Store(_) | Node::Barrier => Vec::new(),
    }
}
