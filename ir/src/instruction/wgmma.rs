//! Matrix instruction of a warp group.

use super::{Asynchrony, Executor, Factors, Feature, Instruction, NestForm, Registers, ThreadGroup};
use crate::dtype::DType;

/// `wgmma`: `m64nNk16` for f16 and bf16, repeated for all fragments of a
/// [`Fragments`](super::Fragments), with operands in shared memory (CUDA, compute capability 9.0).
pub static WGMMA: Instruction = Instruction {
    name: "wgmma",
    factors: &[Factors::of(DType::F16, 16), Factors::of(DType::Bf16, 16)],
    executor: Executor::Threads(ThreadGroup::WarpGroup),
    registers: Registers::Thread,
    feature: Feature::ComputeCapability(90),
    asynchrony: Asynchrony::Reads,
    nest: NestForm::MatrixProduct,
};
