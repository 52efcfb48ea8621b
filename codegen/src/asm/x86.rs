//! Encoder for x86-64 with AVX2, FMA and F16C, or with AVX-512.

use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};

use super::instruction_set::{Dots, Vector};
use autotune_ir::artifact::MachineCode;
use autotune_ir::instruction::{DOT_BF16, TILE_BF16};
use autotune_ir::target::{CpuTarget, Isa};

mod bytes;
mod constants;
mod control;
mod dots;
mod encode;
mod fold;
mod index_registers;
mod moves;
mod narrow;
mod numbers;
mod routine;
mod tiles;
mod vectors;

pub use encode::Integer;
pub use routine::{Condition, Label, Routine};

/// Emits instructions of AVX2 or AVX-512.
pub(super) struct X86 {
    isa: Isa,
    code: encode::CodeBuffer,
    /// Dot product instructions of programs that the processor has.
    dots: Dots,
    /// True if the processor rounds vectors to bf16 (AVX512_BF16).
    rounds_to_bf16: bool,
    /// True if the processor has tile registers (AMX).
    has_tiles: bool,
    /// True if the processor selects bytes by their numbers (AVX512_VBMI).
    has_tables: bool,
    /// Lane counts of the masks in k1, k2, ...
    masks: Vec<u8>,
    /// True in leaves with vector slots. They have many constants, so these are loaded from memory
    /// after the code.
    has_steps: bool,
    /// Index vectors that the current leaf keeps in registers.
    held: IndexRegisters,
}

/// Registers with index vectors for permutations that the current leaf keeps (AVX-512 only).
#[derive(Clone, Copy, Default)]
struct IndexRegisters {
    /// Indices for loads of every other element from two vectors. The first half of the elements is
    /// in the second vector, the other half in the first, which begins 15 elements later.
    even_numbers: Option<Vector>,
    /// Indices of 16-bit elements, each twice, to put bf16 into the upper halves of lanes. The mask
    /// register `index_registers::UPPER_HALVES` is then in use, too.
    halves: Option<Vector>,
}

impl IndexRegisters {
    /// Returns the number of registers in use.
    fn count(self) -> usize {
        usize::from(self.even_numbers.is_some()) + usize::from(self.halves.is_some())
    }
}

impl X86 {
    pub(super) fn new(cpu: &CpuTarget) -> Self {
        Self {
            isa: cpu.isa,
            dots: dots::dots(cpu),
            rounds_to_bf16: DOT_BF16.feature.is_of_cpu(cpu),
            has_tiles: TILE_BF16.feature.is_of_cpu(cpu),
            has_tables: permutes_bytes(cpu),
            code: encode::CodeBuffer::default(),
            masks: Vec::new(),
            has_steps: false,
            held: IndexRegisters::default(),
        }
    }
}

/// True if a CPU has AVX512_VBMI, which is not a word of target keys: every processor with AMX has
/// it, and of AMD's every one with AVX512_BF16.
fn permutes_bytes(cpu: &CpuTarget) -> bool {
    let is_of_amd = cpu.model.starts_with("AuthenticAMD");
    TILE_BF16.feature.is_of_cpu(cpu) || is_of_amd && DOT_BF16.feature.is_of_cpu(cpu)
}

/// Disassembles code: a line `stage <number>:` at each entry, then an offset and an instruction per
/// line.
pub fn disassemble(code: &MachineCode) -> String {
    let mut text = String::new();
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.options_mut().set_space_after_operand_separator(true);
    for instruction in Decoder::new(64, &code.bytes[..code.code_bytes], DecoderOptions::NONE) {
        // Functions have no symbols, so their entries are marked in the text.
        if let Some(stage) = code.entries.iter().position(|&e| e as u64 == instruction.ip()) {
            let _ = writeln!(text, "stage {stage}:");
        }
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let _ = writeln!(text, "{:6x}  {line}", instruction.ip());
    }
    text
}
