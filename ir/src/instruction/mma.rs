//! Matrix instructions of a warp.

use super::{Asynchrony, Fragments, Instruction, ThreadGroup};

/// `m16n8k16` of f16 and bf16, `m16n8k8` of tf32, for all fragments of a [`Fragments`] (CUDA, compute capability 8.0).
pub static MMA: Instruction = Instruction {
    name: "mma.sync",
    multiplies: Some(ThreadGroup::Warp),
    asynchrony: Asynchrony::Nothing,
    check: |body, site| Fragments::check(body, site, ThreadGroup::Warp),
};
