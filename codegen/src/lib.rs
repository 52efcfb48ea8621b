//! Code generators from loop nests: machine code ([`asm`]), C ([`c`]), CUDA C and OpenCL C
//! ([`gpu`]).

use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Access, Node, Program, preorder};

mod artifact;
pub mod asm;
pub mod c;
mod formula;
pub mod gpu;

pub use artifact::{CompilerNeeded, artifact};

/// Row-major offset of an access in elements.
fn flat_offset(program: &Program, access: &Access) -> Affine {
    let (mut offset, mut stride) = (Affine::default(), 1);
    for (index, &extent) in access.index.iter().zip(&program.buffer(access.buffer).shape).rev() {
        offset.add_scaled(index, stride);
        stride *= extent as i64;
    }
    offset
}

/// Returns the variables bound by the loops and digits inside a node, in order of appearance.
fn bound_vars(node: &Node) -> Vec<VarId> {
    let bound = |node: &Node| match node {
        Node::Loop(l) => vec![l.var],
        Node::Unflatten { digits, .. } => digits.iter().map(|d| d.var).collect(),
        _ => Vec::new(),
    };
    preorder(std::slice::from_ref(node)).flat_map(bound).collect()
}
