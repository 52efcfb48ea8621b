//! Machine code from loop nests, without a compiler.
//!
//! | module | what it holds |
//! |---|---|
//! | `stage` | functions of stages: tasks, outer loops, calls of leaves |
//! | `nest`, `leaf` | a leaf's accesses as pointers and displacements; its loops written out |
//! | `block`, `plan` | straight-line code: in which order, and what stays in registers |
//! | `instruction_set` | what all that asks of an instruction set |
//! | [`x86`] | AVX2 with FMA, and AVX-512 |
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

use thiserror::Error;

use autotune_ir::artifact::MachineCode;
use autotune_ir::program::{BufferId, Program};
use autotune_ir::target::{Isa, Target};

mod block;
mod instruction_set;
mod leaf;
mod nest;
mod number;
mod plan;
#[cfg(test)]
mod simulator;
mod stage;
mod transpose;
pub mod x86;

use instruction_set::InstructionSet;

/// Why a program cannot be assembled for a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssembleError {
    /// There is no assembler for the instruction set.
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
/// use autotune_codegen::asm::{assemble, x86::disassemble};
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
    let assembled = match isa {
        Isa::Avx2 | Isa::Avx512 => generate(program, x86::X86::new(isa)),
        Isa::Neon | Isa::Generic => return Err(AssembleError::Isa(isa)),
    };
    let ((bytes, code_bytes), entries) = assembled.map_err(|failure| *failure)?;
    Ok(MachineCode { bytes, code_bytes, entries })
}

/// The code of a program, and the place of each stage's function in it.
fn generate<I: InstructionSet>(program: &Program, set: I) -> Result<(I::Code, Vec<usize>), Failure> {
    let mut generator = stage::Generator::new(program, set);
    let entries = program.stages.iter().map(|s| generator.stage(s)).collect::<Result<_, _>>()?;
    Ok((generator.finish()?, entries))
}
