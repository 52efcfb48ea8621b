//! What the dialect keeps while a kernel is written.

use autotune_ir::affine::VarId;
use autotune_ir::plan::TensorBox;
use autotune_ir::program::WarpRole;

/// A kernel's threads, and its copies.
pub(in crate::gpu) struct Cuda {
    /// The two innermost thread loops, and the third.
    pub(super) lanes: [Option<VarId>; 2],
    pub(super) group_warp: Option<VarId>,
    /// Threads that the thread loops number; the block has more where its warps are specialised.
    pub(super) block_threads: usize,
    pub(super) is_specialised: bool,
    /// Whose part is written.
    pub(super) role: Option<WarpRole>,
    /// True for instructions of warp groups.
    pub(super) has_groups: bool,
    /// True within a group of copies.
    pub(super) in_group: bool,
    /// What has tensor maps, and the slots that it is copied to: none where copies are not of
    /// boxes.
    pub(super) boxes: Vec<TensorBox>,
    pub(super) slots: usize,
}
