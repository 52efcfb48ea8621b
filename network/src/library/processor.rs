//! Required instructions of a library, and their detection (Intel 64 and IA-32 Architectures
//! Software Developer's Manual, volume 1, section 14.3, "Detection of Intel AVX instructions", 15.2
//! for AVX-512, and 18.2 for AMX; volume 2 for `cpuid`).

use std::ops::BitOr;

use autotune_codegen::asm::x86::Integer::{R9, R10, Rax, Rbx, Rcx, Rdi, Rdx, Rsi};
use autotune_codegen::asm::x86::{Condition, Integer, Label, Routine};
use autotune_ir::{Isa, MachineCode};
use iced_x86::{CpuidFeature, Decoder, DecoderOptions};

/// Instruction set of a library's kernels, with the extensions that their code uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Instructions {
    pub(super) isa: Option<Isa>,
    /// Positions in [`EXTENSIONS`], sorted.
    extensions: Vec<usize>,
}

/// Feature bits that code needs, by the register that reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    /// Bits in ecx of `cpuid` leaf 1.
    pub(super) basic: u32,
    /// Register state that the operating system saves (XCR0).
    pub(super) xcr0: u32,
    /// Bits in ebx, ecx and edx of `cpuid` leaf 7.
    pub(super) extended: [u32; 3],
    /// Bits in eax of subleaf 1 of leaf 7, which is 0 where there is no such subleaf.
    pub(super) leaf7_1_eax: u32,
}

/// Extension of the instruction sets.
pub(super) struct Extension {
    pub(super) name: &'static str,
    /// Its instructions in the disassembler's tables.
    known: CpuidFeature,
    pub(super) features: Features,
}

const FMA: u32 = 1 << 12;
const OSXSAVE: u32 = 1 << 27;
const AVX: u32 = 1 << 28;
const XMM_YMM: u32 = 0b110;
const MASKS_ZMM: u32 = 0b1110_0000;
/// Configuration and data of tile registers.
const TILES: u32 = 0b11 << 17;
const AVX2: u32 = 1 << 5;
const AVX512F: u32 = 1 << 16;
const AVX512VL: u32 = 1 << 31;

const NONE: Features = Features { basic: 0, xcr0: 0, extended: [0; 3], leaf7_1_eax: 0 };

/// Extensions that code for an instruction set may use, where its target has them.
pub(super) const EXTENSIONS: [Extension; 7] = [
    Extension {
        name: "AVX512_VNNI",
        known: CpuidFeature::AVX512_VNNI,
        features: Features { extended: [0, 1 << 11, 0], ..NONE },
    },
    Extension {
        name: "AVX512_VBMI",
        known: CpuidFeature::AVX512_VBMI,
        features: Features { extended: [0, 1 << 1, 0], ..NONE },
    },
    Extension { name: "AVX-VNNI", known: CpuidFeature::AVX_VNNI, features: Features { leaf7_1_eax: 1 << 4, ..NONE } },
    Extension {
        name: "AVX512_BF16",
        known: CpuidFeature::AVX512_BF16,
        features: Features { leaf7_1_eax: 1 << 5, ..NONE },
    },
    Extension {
        name: "AMX-TILE",
        known: CpuidFeature::AMX_TILE,
        features: Features { xcr0: TILES, extended: [0, 0, 1 << 24], ..NONE },
    },
    Extension {
        name: "AMX-BF16",
        known: CpuidFeature::AMX_BF16,
        features: Features { extended: [0, 0, 1 << 22], ..NONE },
    },
    Extension {
        name: "AMX-INT8",
        known: CpuidFeature::AMX_INT8,
        features: Features { extended: [0, 0, 1 << 25], ..NONE },
    },
];

impl Instructions {
    /// Adds code of a kernel for an instruction set. Kernels may be for different ones; the widest
    /// includes the others.
    pub(super) fn add(&mut self, isa: Isa, code: &MachineCode) {
        // A wider instruction set includes the narrower ones.
        self.isa = self.isa.into_iter().chain([isa]).max_by_key(|isa| isa.vector_bytes());
        // The code is decoded because the code generator picks instructions of extensions by
        // itself, such as conversions to bf16.
        for instruction in Decoder::new(64, &code.bytes[..code.code_bytes], DecoderOptions::NONE) {
            let of = instruction.cpuid_features();
            let used = EXTENSIONS.iter().enumerate().filter(|(_, extension)| of.contains(&extension.known));
            self.extensions.extend(used.map(|(number, _)| number));
        }
        // In the table's order, the text does not depend on the order of kernels.
        self.extensions.sort_unstable();
        self.extensions.dedup();
    }

    /// Returns a key by which instructions are sorted: by the width of vectors, then by the number
    /// of extensions.
    pub(super) fn rank(&self) -> (usize, usize) {
        (self.isa.map_or(0, Isa::vector_bytes), self.extensions.len())
    }

    /// Returns the instruction set and the extensions in words.
    pub(super) fn words(&self) -> String {
        let isa = match self.isa {
            Some(Isa::Avx512) => "x86-64 with AVX-512 F and VL",
            Some(Isa::Avx2) => "x86-64 with AVX2 and FMA",
            _ => "x86-64",
        };
        let extensions = self.extensions.iter().map(|&number| EXTENSIONS[number].name);
        std::iter::once(isa).chain(extensions).collect::<Vec<_>>().join(", ")
    }

    /// Returns the features that the code needs.
    pub(super) fn features(&self) -> Features {
        let of_isa = self.isa.and_then(Features::of).unwrap_or_default();
        self.extensions.iter().fold(of_isa, |all, &number| all | EXTENSIONS[number].features)
    }
}

impl Features {
    /// Returns the features that code for an instruction set needs; `None` for other architectures
    /// than x86-64.
    pub(super) fn of(isa: Isa) -> Option<Self> {
        let avx2 = Self { basic: FMA | OSXSAVE | AVX, xcr0: XMM_YMM, extended: [AVX2, 0, 0], leaf7_1_eax: 0 };
        match isa {
            Isa::Avx2 => Some(avx2),
            Isa::Avx512 => {
                Some(Self { xcr0: XMM_YMM | MASKS_ZMM, extended: [AVX2 | AVX512F | AVX512VL, 0, 0], ..avx2 })
            }
            Isa::Neon | Isa::Generic => None,
        }
    }

    /// Returns true if tile registers are among them.
    pub(super) fn have_tiles(&self) -> bool {
        self.xcr0 & TILES != 0
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            basic: self.basic | other.basic,
            xcr0: self.xcr0 | other.xcr0,
            extended: std::array::from_fn(|register| self.extended[register] | other.extended[register]),
            leaf7_1_eax: self.leaf7_1_eax | other.leaf7_1_eax,
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
    check(routine, Rax, features.xcr0, lacking);

    routine.set(Rax, 7);
    routine.set(Rcx, 0);
    routine.cpuid();
    for (register, bits) in [Rbx, Rcx, Rdx].into_iter().zip(features.extended) {
        check(routine, register, bits, lacking);
    }
    // Where the subleaf does not exist, it reads as 0, so that the check fails as it should.
    if features.leaf7_1_eax != 0 {
        routine.set(Rax, 7);
        routine.set(Rcx, 1);
        routine.cpuid();
        check(routine, Rax, features.leaf7_1_eax, lacking);
    }
}

/// Emits a jump to a label unless all of `bits` are set in a register.
fn check(routine: &mut Routine, register: Integer, bits: u32, lacking: Label) {
    if bits == 0 {
        return;
    }
    // `cpuid` and `xgetbv` leave R9 and R10 alone.
    routine.copy(R9, register);
    routine.and(R9, bits);
    routine.set(R10, bits.into());
    routine.compare(R9, R10);
    routine.jump_if(Condition::NotEqual, lacking);
}

/// Number of Linux's system call `arch_prctl`, its operation `ARCH_REQ_XCOMP_PERM`, and the number
/// of the state of tile registers, `XFEATURE_XTILEDATA` (Documentation/arch/x86/xstate.rst).
const ASK_FOR_TILES: [(Integer, i64); 3] = [(Rax, 158), (Rdi, 0x1023), (Rsi, 18)];

/// Emits a system call that asks for tile registers for all threads of the process, and a jump to a
/// label if it is refused. Clobbers rax, rcx, rsi and r11.
pub(super) fn emit_request(routine: &mut Routine, refused: Label) {
    // The system call takes an argument in RDI, which still holds one of this function.
    routine.push(Rdi);
    ASK_FOR_TILES.into_iter().for_each(|(register, value)| routine.set(register, value));
    routine.system_call();
    routine.pop(Rdi);
    routine.compare_value(Rax, 0);
    routine.jump_if(Condition::NotEqual, refused);
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use autotune_ir::program::{Role, When};
    use autotune_ir::{Artifact, Code, CpuTarget, Target};
    use autotune_runtime::{Cpu, Kernel, Runner, ViewMut, contract};

    /// Runs code that jumps to a label or does not, and returns true if it does not.
    fn passes(emit: impl Fn(&mut Routine, Label)) -> bool {
        let mut routine = Routine::default();
        let lacking = routine.label();
        routine.push(Rbx);
        emit(&mut routine, lacking);
        let finish = |routine: &mut Routine, answer| {
            routine.pop(Rbx);
            routine.load(Rax, Rdi, 0);
            routine.set(R9, answer);
            routine.store_half(Rax, 0, R9);
            routine.ret();
        };
        finish(&mut routine, 1);
        routine.bind(lacking);
        finish(&mut routine, 2);

        let bytes = routine.finish().unwrap();
        let code = Code::Machine(MachineCode { code_bytes: bytes.len(), bytes, entries: vec![0] });
        let mut plan = contract::plan(1, None);
        plan.buffers.retain(|buffer| buffer.role == Role::Output);
        plan.stages.retain(|stage| stage.when == When::EveryRun);
        plan.stages.truncate(1);
        let shape = plan.buffers[0].shape.clone();
        let artifact = Artifact { target: Target::Cpu(CpuTarget::generic_avx2(1)), plan, code };
        let cpu = Cpu::new(1);
        // SAFETY: the function writes one word to the output.
        let kernel = unsafe { Kernel::load(&cpu, &artifact) }.unwrap();
        let mut output = [0.0f32; contract::LEN];
        Runner::new(kernel, cpu).unwrap().run(&[], &mut [ViewMut::new(&mut output, &shape)]).unwrap();
        match output[0].to_bits() {
            1 => true,
            2 => false,
            other => panic!("the code returned {other}"),
        }
    }

    /// Returns the function that looks for one of this processor's features by Linux's word.
    fn flags() -> impl Fn(&str) -> bool {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap().to_string();
        move |flag| flags.split_whitespace().any(|known| known == flag)
    }

    #[test]
    fn every_feature_is_detected_and_nothing_else() {
        let has = flags();
        let avx2 = Features::of(Isa::Avx2).unwrap();
        if !passes(|routine, lacking| emit_check(routine, avx2, lacking)) {
            return eprintln!("skipped: no AVX2");
        }
        let passes = |features| passes(|routine, lacking| emit_check(routine, avx2 | features, lacking));
        assert_eq!(passes(Features::of(Isa::Avx512).unwrap()), has("avx512f") && has("avx512vl"));
        let words = ["avx512_vnni", "avx512vbmi", "avx_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"];
        for (extension, word) in EXTENSIONS.iter().zip(words) {
            assert_eq!(passes(extension.features), has(word), "{}", extension.name);
        }

        // No processor has all bits of a register.
        let register = |register: usize| std::array::from_fn(|other| if other == register { u32::MAX } else { 0 });
        let in_leaf_7 = [0, 1, 2].map(|number| Features { extended: register(number), ..NONE });
        let others = [
            Features { basic: u32::MAX, ..NONE },
            Features { xcr0: u32::MAX, ..NONE },
            Features { leaf7_1_eax: u32::MAX, ..NONE },
        ];
        assert!(in_leaf_7.into_iter().chain(others).all(|features| !passes(features)));
    }

    #[test]
    fn tile_registers_are_asked_for() {
        assert_eq!(passes(emit_request), flags()("amx_tile"));
    }

    #[test]
    fn code_needs_the_extensions_of_its_instructions() {
        let needed = |isa, bytes: &[u8]| {
            let mut instructions = Instructions::default();
            let code = |bytes: &[u8]| MachineCode { bytes: bytes.into(), code_bytes: bytes.len(), entries: vec![0] };
            // Kernels for a narrower instruction set change nothing.
            instructions.add(isa, &code(bytes));
            instructions.add(Isa::Avx2, &code(&[0xc3]));
            (instructions.words(), instructions.features())
        };

        let (vex_dot, dot) = (&[0xc4, 0xe2, 0x75, 0x50, 0xc2][..], &[0x62, 0xf2, 0x75, 0x48, 0x50, 0xc2][..]);
        let (round, tile) = (&[0x62, 0xf2, 0x7e, 0x48, 0x72, 0xc0][..], &[0xc4, 0xe2, 0x6a, 0x5c, 0xc1][..]);
        let look_up = &[0x62, 0xf2, 0x75, 0x48, 0x75, 0xc2][..];
        let release = &[0xc4, 0xe2, 0x78, 0x49, 0xc0][..];

        for (isa, code, words) in [
            (Isa::Avx2, &[0xc3][..], "x86-64 with AVX2 and FMA"),
            (Isa::Avx2, vex_dot, "x86-64 with AVX2 and FMA, AVX-VNNI"),
            (Isa::Avx512, &[0xc3], "x86-64 with AVX-512 F and VL"),
            (Isa::Avx512, dot, "x86-64 with AVX-512 F and VL, AVX512_VNNI"),
            (Isa::Avx512, look_up, "x86-64 with AVX-512 F and VL, AVX512_VBMI"),
            (Isa::Avx512, round, "x86-64 with AVX-512 F and VL, AVX512_BF16"),
            (
                Isa::Avx512,
                &[tile, round, release].concat(),
                "x86-64 with AVX-512 F and VL, AVX512_BF16, AMX-TILE, AMX-BF16",
            ),
        ] {
            let (found, features) = needed(isa, code);
            assert_eq!(found, words);
            assert_eq!(features.have_tiles(), words.contains("AMX"));
        }
        let bits = needed(Isa::Avx512, &[tile, round, release].concat()).1;
        assert_eq!((bits.extended[2], bits.leaf7_1_eax), (1 << 22 | 1 << 24, 1 << 5));
    }
}
