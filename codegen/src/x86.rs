//! Machine code for x86-64 with AVX2 and FMA or with AVX-512, without a compiler.
//!
//! A register tile becomes a subroutine: its accumulators stay in vector registers from the first load to the final store,
//! pointers stay in integer registers, and every address in straight-line code is a pointer and a constant. In a loop body
//! the operand along the vector is loaded, the other broadcast:
//!
//! ```text
//! vmovups ymm12,[rsi]                        weights, two vectors
//! vmovups ymm13,[rsi+20h]
//! vbroadcastss ymm14,[rdi]                   data at the first position
//! vfmadd231ps ymm0,ymm14,ymm12
//! vfmadd231ps ymm1,ymm14,ymm13
//! vbroadcastss ymm15,[rdi+40h]               data at the next
//! ...
//! ```
//!
//! Assembling is pure and takes microseconds on any host; running the code is up to the caller.

use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use thiserror::Error;

use autotune_ir::artifact::MachineCode;
use autotune_ir::program::{BufferId, Program};
use autotune_ir::target::{Isa, Target};

mod block;
mod emit;
mod encode;
mod leaf;
mod nest;
mod number;
mod plan;
mod stage;
mod transpose;

/// Why a program cannot be assembled for a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssembleError {
    /// The instruction set is neither AVX2 nor AVX-512.
    #[error("no assembler for instruction set {0}")]
    Isa(Isa),
    /// The target or the program is a GPU's.
    #[error("no assembler for GPUs")]
    Gpu,
    /// The partial sums of a register tile, and what is being added to them, exceed the vector registers.
    #[error("a register tile needs {needed} vector registers of {available}")]
    RegisterTile {
        /// Registers that it needs.
        needed: usize,
        /// Registers that there are.
        available: usize,
    },
    /// The places that a leaf reads and writes, and its loop counters, exceed the integer registers.
    #[error("a nest needs {needed} integer registers of {available}")]
    Pointers {
        /// Registers that it needs.
        needed: usize,
        /// Registers that there are.
        available: usize,
    },
    /// An element is too far from its pointer.
    #[error("a displacement of {bytes} bytes exceeds 32 bits")]
    Displacement {
        /// The displacement.
        bytes: i64,
    },
    /// A buffer of register scope is not indexed by constants and whole vectors that do not overlap.
    #[error("the elements of '{buffer}' cannot be given registers")]
    RegisterIndex {
        /// Name of the buffer.
        buffer: String,
    },
}

impl AssembleError {
    fn register_index(program: &Program, buffer: BufferId) -> Failure {
        Box::new(Self::RegisterIndex { buffer: program.buffer(buffer).name.clone() })
    }
}

/// What the many small steps of assembling return: an error that takes one register.
type Failure = Box<AssembleError>;

/// Machine code of the program's kernel.
///
/// ```
/// use autotune_codegen::x86::{assemble, disassemble};
/// use autotune_ir::{CpuTarget, KernelPlan, Target};
/// use autotune_schedules::{ScheduleSpace, Workload, lower};
///
/// let workload: Workload = "matmul:m=4,n=16,k=8".parse()?;
/// let target = Target::Cpu(CpuTarget::generic_avx2(1));
/// let config = ScheduleSpace::new(&workload, &target).default_config();
/// let program = lower(&workload, &target, &config)?;
/// let code = assemble(&program, &target)?;
/// assert_eq!(code.entries.len(), KernelPlan::of(&program).stages.len());
/// assert!(disassemble(&code).contains("vfmadd231ps ymm"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn assemble(program: &Program, target: &Target) -> Result<MachineCode, AssembleError> {
    let isa = target.cpu().ok_or(AssembleError::Gpu)?.isa;
    if !matches!(isa, Isa::Avx2 | Isa::Avx512) {
        return Err(AssembleError::Isa(isa));
    }
    code_of(program, isa).map_err(|failure| *failure)
}

fn code_of(program: &Program, isa: Isa) -> Result<MachineCode, Failure> {
    let mut generator = stage::Generator::new(program, emit::Emitter::new(isa));
    let entries = program.stages.iter().map(|s| generator.stage(s)).collect::<Result<_, _>>()?;
    let (bytes, code_bytes) = generator.finish()?;
    Ok(MachineCode { bytes, code_bytes, entries })
}

/// The code as text: a line `stage <number>:` at each entry, then offset and instruction, line by line.
pub fn disassemble(code: &MachineCode) -> String {
    let mut text = String::new();
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.options_mut().set_space_after_operand_separator(true);
    for instruction in Decoder::new(64, &code.bytes[..code.code_bytes], DecoderOptions::NONE) {
        if let Some(stage) = code.entries.iter().position(|&e| e as u64 == instruction.ip()) {
            let _ = writeln!(text, "stage {stage}:");
        }
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let _ = writeln!(text, "{:6x}  {line}", instruction.ip());
    }
    text
}
