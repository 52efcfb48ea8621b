//! Matrix instructions of a warp group.

use super::{Asynchrony, Instruction, Team, WarpTile};

/// `m64nNk16` of f16 and bf16, for all fragments of a [`WarpTile`], operands read from shared memory (CUDA, compute capability 9.0).
pub static WGMMA: Instruction = Instruction {
    name: "wgmma",
    multiplies: Some(Team::WarpGroup),
    asynchrony: Asynchrony::Reads,
    check: |body, site| WarpTile::check(body, site, Team::WarpGroup),
};
