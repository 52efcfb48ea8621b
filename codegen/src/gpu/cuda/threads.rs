//! State of the CUDA dialect while a kernel is written.

use super::hoist::HoistedCopy;
use autotune_ir::affine::VarId;
use autotune_ir::plan::TensorBox;
use autotune_ir::program::{Node, WarpRole};

/// Thread layout and asynchronous copies of the kernel being written.
pub(in crate::gpu) struct Cuda {
    /// Variables of the two innermost thread loops, outer first. They number the lanes of a warp.
    pub(super) lanes: [Option<VarId>; 2],
    /// Variable of the third thread loop from the inside: the warp within its group.
    pub(super) group_warp: Option<VarId>,
    /// Number of threads in the thread loops. With warp specialisation the block has more.
    pub(super) block_threads: usize,
    pub(super) is_specialised: bool,
    /// Role of the specialised warps whose code is being written.
    pub(super) role: Option<WarpRole>,
    /// True if the kernel uses warp group instructions.
    pub(super) has_groups: bool,
    /// True while the stores of a copy group are written.
    pub(super) in_group: bool,
    /// Copies in the present loop whose addresses were computed before it, and variables that
    /// depend on its iteration.
    pub(super) hoisted: Vec<HoistedCopy>,
    pub(super) varying: Vec<VarId>,
    /// Addresses of a matrix product's operands that were computed before the present loop, by the
    /// address of the product's nest: rows, then columns.
    pub(super) operands: Vec<(*const Node, [String; 2])>,
    /// Boxes that have tensor maps.
    pub(super) boxes: Vec<TensorBox>,
    /// Number of slots in the ring of shared buffers that boxes are copied to; 0 without box
    /// copies.
    pub(super) slots: usize,
}
