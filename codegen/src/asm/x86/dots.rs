//! Dot product instructions of x86.

use crate::asm::instruction_set::{Arithmetic, Dots};
use autotune_ir::instruction::{DOT_BF16, DOT_I16, DOT_U8_I8, DOT_U8_I8_AVX2, Instruction, PAIRS_I16, PAIRS_I16_AVX2};
use autotune_ir::target::CpuTarget;

const ALL: [(&Instruction, Arithmetic); 6] = [
    (&DOT_BF16, Arithmetic::DotBf16),
    (&DOT_U8_I8, Arithmetic::DotU8I8),
    (&DOT_U8_I8_AVX2, Arithmetic::DotU8I8),
    (&DOT_I16, Arithmetic::DotI16),
    (&PAIRS_I16, Arithmetic::MulPairs),
    (&PAIRS_I16_AVX2, Arithmetic::MulPairs),
];

/// Returns the dot product instructions of programs that a CPU has.
pub(super) fn dots(cpu: &CpuTarget) -> Dots {
    ALL.into_iter().filter(|(dot, _)| dot.feature.is_of_cpu(cpu)).collect()
}
