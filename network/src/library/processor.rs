//! Required instruction sets of a library, and their detection (Intel 64 and IA-32 Architectures
//! Software Developer's Manual, volume 1, section 14.3, "Detection of Intel AVX instructions", and
//! 15.2 for AVX-512).

use autotune_codegen::asm::x86::Integer::{R9, R10, Rax, Rbx, Rcx};
use autotune_codegen::asm::x86::{Condition, Integer, Label, Routine};
use autotune_ir::Isa;

/// Required feature bits: ecx of `cpuid` leaf 1, register state saved by the operating system
/// (XCR0), and ebx of `cpuid` leaf 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) basic: u32,
    pub(super) kept: u32,
    pub(super) extended: u32,
}

const FMA: u32 = 1 << 12;
const OSXSAVE: u32 = 1 << 27;
const AVX: u32 = 1 << 28;
const XMM_YMM: u32 = 0b110;
const MASKS_ZMM: u32 = 0b1110_0000;
const AVX2: u32 = 1 << 5;
const AVX512F: u32 = 1 << 16;
const AVX512VL: u32 = 1 << 31;

impl Features {
    /// Returns the features that code for an instruction set needs; `None` for other architectures
    /// than x86-64.
    pub(super) fn of(isa: Isa) -> Option<Self> {
        let avx2 = Self { basic: FMA | OSXSAVE | AVX, kept: XMM_YMM, extended: AVX2 };
        match isa {
            Isa::Avx2 => Some(avx2),
            Isa::Avx512 => Some(Self { kept: XMM_YMM | MASKS_ZMM, extended: AVX2 | AVX512F | AVX512VL, ..avx2 }),
            Isa::Neon | Isa::Generic => None,
        }
    }
}

/// Emits a check that jumps to a label if the CPU lacks a feature. Clobbers rax, rbx, rcx, rdx, r9
/// and r10.
pub(super) fn emit_check(routine: &mut Routine, features: Features, lacking: Label) {
    if features == Features::default() {
        return;
    }
    // Leaf 0 returns the highest supported leaf.
    routine.set(Rax, 0);
    routine.cpuid();
    routine.compare_value(Rax, 7);
    routine.jump_if(Condition::Below, lacking);

    routine.set(Rax, 1);
    routine.cpuid();
    check(routine, Rcx, features.basic, lacking);
    // `xgetbv` exists only if OSXSAVE is set, which was just checked.
    routine.set(Rcx, 0);
    routine.xgetbv();
    check(routine, Rax, features.kept, lacking);
    routine.set(Rax, 7);
    routine.set(Rcx, 0);
    routine.cpuid();
    check(routine, Rbx, features.extended, lacking);
}

/// Emits a jump to a label unless all of `bits` are set in a register.
fn check(routine: &mut Routine, register: Integer, bits: u32, lacking: Label) {
    routine.copy(R9, register);
    routine.and(R9, bits);
    routine.set(R10, bits.into());
    routine.compare(R9, R10);
    routine.jump_if(Condition::NotEqual, lacking);
}
