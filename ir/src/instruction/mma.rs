//! Matrix instructions of a warp.

use super::{Asynchrony, Instruction, Team, WarpTile};

/// `m16n8k16` of f16 and bf16, `m16n8k8` of tf32, for all fragments of a [`WarpTile`] (CUDA, compute capability 8.0).
pub static MMA: Instruction = Instruction {
    name: "mma.sync",
    multiplies: Some(Team::Warp),
    asynchrony: Asynchrony::Nothing,
    check: |body, site| WarpTile::check(body, site, Team::Warp),
};
