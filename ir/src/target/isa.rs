//! Instruction sets of CPUs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Instruction set family of a CPU, at the granularity of the code generators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// x86-64 with AVX-512 F and VL.
    Avx512,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// 64-bit Arm with Advanced SIMD.
    Neon,
    /// Any other instruction set; 128-bit vectors are assumed.
    Generic,
}

impl Isa {
    /// Returns the width of a vector register in bytes.
    pub fn vector_bytes(self) -> usize {
        match self {
            Isa::Avx512 => 64,
            Isa::Avx2 => 32,
            Isa::Neon | Isa::Generic => 16,
        }
    }

    /// Returns true if code for this instruction set runs on `machine`.
    pub fn runs_on(self, machine: Isa) -> bool {
        self == machine || matches!((self, machine), (Isa::Avx2, Isa::Avx512))
    }

    /// Returns the number of architectural vector registers.
    pub fn vector_registers(self) -> usize {
        match self {
            Isa::Avx512 | Isa::Neon => 32,
            Isa::Avx2 | Isa::Generic => 16,
        }
    }

    /// Detects the instruction set of this machine.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                return Isa::Avx512;
            }
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if has_avx2 && is_x86_feature_detected!("f16c") {
                return Isa::Avx2;
            }
        }
        if cfg!(target_arch = "aarch64") { Isa::Neon } else { Isa::Generic }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}
