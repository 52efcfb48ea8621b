//! Assembles machine code from loop nests, without a compiler.
//!
//! | module | contents |
//! |---|---|
//! | `stage` | functions of stages: tasks, outer loops, calls of leaves |
//! | `nest`, `leaf`, `expander` | accesses of a leaf as pointers and displacements; unrolling |
//! | `block`, `plan` | straight-line code: instruction order and register allocation |
//! | `transpose`, `interleave` | groups of copies in another order: transposes, interleaving |
//! | `tile_grid`, `tiles` | products of tiles: registers and configuration; order of instructions |
//! | `fold` | horizontal reductions: the lanes of several accumulators combined into one |
//! | `instruction_set` | the interface to an instruction set |
//! | [`x86`] | AVX2 with FMA, and AVX-512 |
//!
//! A register tile becomes a subroutine, called a leaf. Its accumulators stay in vector registers
//! from the first load to the final store, and its pointers in integer registers. Every address in
//! straight-line code is a pointer plus a constant. In a loop body, the operand along the vector
//! is loaded and the other is broadcast:
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
//! Assembling is a pure function that takes microseconds on any host. The caller runs the code.

use autotune_ir::artifact::MachineCode;
use autotune_ir::program::Program;
use autotune_ir::target::{Isa, Target};

mod block;
mod error;
mod expander;
mod fold;
mod instruction_set;
mod interleave;
mod leaf;
mod nest;
mod numbers;
mod plan;
mod share;
mod stage;
#[cfg(test)]
mod tests;
mod tile_grid;
mod tiles;
mod transpose;
pub mod x86;

pub use error::AssembleError;

use error::Failure;
use instruction_set::InstructionSet;

/// Assembles the machine code of the program's kernel.
///
/// ```
/// use autotune_codegen::asm::{assemble, x86::disassemble};
/// use autotune_ir::{CpuTarget, KernelPlan, Target};
/// use autotune_schedules::{ScheduleSpace, lower};
/// use autotune_workloads::Workload;
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
    let cpu = target.cpu().ok_or(AssembleError::Gpu)?;
    // Lanes of vectors have 32 bits.
    if let Some(buffer) = program.buffers.iter().find(|buffer| buffer.dtype.bytes() > 4) {
        return Err(AssembleError::Type(buffer.dtype));
    }
    let assembled = match cpu.isa {
        Isa::Avx2 | Isa::Avx512 => generate(program, x86::X86::new(cpu)),
        isa @ (Isa::Neon | Isa::Generic) => return Err(AssembleError::Isa(isa)),
    };
    let ((bytes, code_bytes), entries) = assembled.map_err(|failure| *failure)?;
    Ok(MachineCode { bytes, code_bytes, entries })
}

/// Returns the code of a program, and the byte offset of each stage's function in it.
fn generate<I: InstructionSet>(program: &Program, set: I) -> Result<(I::Code, Vec<usize>), Failure> {
    let mut generator = stage::Generator::new(program, set);
    let entries = program.stages.iter().map(|s| generator.stage(s)).collect::<Result<_, _>>()?;
    Ok((generator.finish()?, entries))
}
