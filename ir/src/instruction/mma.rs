//! Matrix instruction of a warp.

use super::{Asynchrony, Executor, Factors, Feature, Instruction, NestForm, Registers, ThreadGroup};
use crate::dtype::DType;

/// `mma.sync`: `m16n8k16` for f16 and bf16, `m16n8k8` for tf32, repeated for all fragments of a
/// [`Fragments`](super::Fragments) (CUDA, compute capability 8.0).
pub static MMA: Instruction = Instruction {
    name: "mma.sync",
    factors: &[Factors::of(DType::Tf32, 8), Factors::of(DType::F16, 16), Factors::of(DType::Bf16, 16)],
    executor: Executor::Threads(ThreadGroup::Warp),
    registers: Registers::Thread,
    feature: Feature::ComputeCapability(80),
    asynchrony: Asynchrony::Nothing,
    nest: NestForm::MatrixProduct,
};
