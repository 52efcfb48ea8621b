//! State of the CUDA dialect while a kernel is written.

use autotune_ir::affine::VarId;
use autotune_ir::plan::TensorBox;
use autotune_ir::program::WarpRole;

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
    /// Boxes that have tensor maps.
    pub(super) boxes: Vec<TensorBox>,
    /// Number of slots in the ring of shared buffers that boxes are copied to; 0 without box
    /// copies.
    pub(super) slots: usize,
}
