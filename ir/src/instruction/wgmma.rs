//! Matrix instructions of a warp group.

use super::{Asynchrony, Fragments, Instruction, ThreadGroup};

/// `m64nNk16` of f16 and bf16, for all fragments of a [`Fragments`], operands read from shared memory (CUDA, compute capability 9.0).
pub static WGMMA: Instruction = Instruction {
    name: "wgmma",
    multiplies: Some(ThreadGroup::WarpGroup),
    asynchrony: Asynchrony::Reads,
    check: |body, site| Fragments::check(body, site, ThreadGroup::WarpGroup),
};
