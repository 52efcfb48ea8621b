//! Instructions that execute a whole loop nest.
//!
//! The body of a [`Node::Call`](crate::program::Node::Call) is the nest that its instruction
//! computes. Analysis, interpreter and verifier read the body and need not know the instruction. An
//! [`Instruction`] describes the rest: the form of nests that it accepts, and what remains in
//! progress after the call. The dialects of GPU languages know its syntax.
//!
//! ```text
//! call mma.sync                   16 x 8 sums of a warp, K reduction steps each
//!   unrolled s in 0..2
//!     ...
//!       acc[i, j, h, 2*p + c] += data_shared[..] * weight_shared[..]
//! ```
//!
//! A new instruction is a file with a static like [`MMA`], [`WGMMA`] and [`BOX_COPY`], and an entry
//! in the table of the dialects that support it.

use std::fmt;

use crate::dtype::DType;
use crate::target::{CpuTarget, GpuApi, GpuTarget, Isa};

mod box_copy;
mod dot;
mod fragments;
mod mma;
mod nest;
mod site;
mod tile;
mod wgmma;

pub use box_copy::{BOX_COPY, BOX_ROW_BYTES, BoxCopy};
pub(crate) use dot::is_dot_length;
pub use dot::{DOT_BF16, DOT_I16, DOT_U8_I8, DOT_U8_I8_AVX2, Dot, PAIRS_I16, PAIRS_I16_AVX2, dot_of};
pub use fragments::{Fragments, LANES};
pub use mma::MMA;
pub use site::CallSite;
pub use tile::{
    SPLIT_PRODUCTS, TILE_BF16, TILE_I8, TILE_ROWS, TileProduct, TileSpan, TileStrides, tile_of, tile_registers_of,
};
pub use wgmma::WGMMA;

/// Number of tile registers of a CPU.
pub const TILE_REGISTERS: usize = 8;

/// An instruction that executes a whole loop nest; a row of the instruction table.
pub struct Instruction {
    /// Short name in PTX or in the processor's manual; unique.
    pub name: &'static str,
    /// Supported types of the factors; empty if the instruction does not multiply.
    pub factors: &'static [Factors],
    /// Threads that execute it together.
    pub executor: Executor,
    /// Registers for its accumulators.
    pub registers: Registers,
    /// Processor feature that provides it.
    pub feature: Feature,
    /// Part of it that may still be in progress after the call.
    pub asynchrony: Asynchrony,
    /// Form of the loop nest that it computes.
    pub nest: NestForm,
}

/// Form of the loop nests that an instruction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestForm {
    /// A [`Dot`] with the instruction's number of steps and types.
    DotProduct,
    /// A [`Fragments`] for the threads that execute it together.
    MatrixProduct,
    /// A [`TileProduct`] with the instruction's number of steps and types.
    Tiles,
    /// A [`BoxCopy`] by the tensor memory accelerator.
    Box,
}

/// Types of factors that an instruction multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factors {
    /// Types of the first and of the second factor.
    pub dtypes: [DType; 2],
    /// Reduction steps of one instruction: per lane for vectors, of the whole product for matrices.
    pub steps: usize,
}

/// Threads that execute an instruction together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executor {
    /// A single CPU thread.
    Core,
    /// GPU threads whose registers hold the accumulators together.
    Threads(ThreadGroup),
    /// One GPU thread on behalf of its whole block.
    Block,
}

/// GPU threads that execute a matrix instruction together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadGroup {
    /// The 32 lanes of a warp.
    Warp,
    /// The lanes of four warps. The third thread loop from the inside, of extent 4, numbers the
    /// warps.
    WarpGroup,
}

impl ThreadGroup {
    /// Returns the rows of one instruction's result.
    pub fn rows(self) -> usize {
        match self {
            ThreadGroup::Warp => 16,
            ThreadGroup::WarpGroup => 64,
        }
    }

    /// Returns the number of threads.
    pub fn threads(self) -> usize {
        2 * self.rows()
    }
}

/// Registers for the accumulators of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Registers {
    /// The instruction has no accumulators.
    None,
    /// Registers of GPU threads.
    Thread,
    /// Vector registers of a CPU, one accumulator per lane.
    Vector {
        /// Registers for products that are not yet added to the accumulators.
        products: usize,
    },
    /// Tile registers of a CPU, see [`TILE_REGISTERS`].
    Tile,
}

/// Processor feature that an instruction requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Instruction set of a CPU, without extensions.
    Isa(Isa),
    /// Extension of a CPU's instruction set, by its name in
    /// [`CpuTarget::features`](crate::target::CpuTarget).
    Cpu(Isa, &'static str),
    /// CUDA compute capability, times ten, or a later one.
    ComputeCapability(u32),
}

/// Part of an instruction that may still be in progress after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asynchrony {
    /// The instruction is complete when the call returns.
    Nothing,
    /// Reads of shared memory may be in progress until the next instruction of the same kind has
    /// ended, or the innermost serial loop around the call. Other threads must synchronise after
    /// that by a barrier or a release.
    Reads,
    /// The instruction is an asynchronous copy, complete when its
    /// [`Node::CopyGroup`](crate::program::Node::CopyGroup) is; it must be in one. One thread
    /// starts it for the whole block; its nest is written as if all threads of the thread loops
    /// executed it.
    Copies,
}

impl Instruction {
    /// Returns the reduction steps of one instruction for two factors of type `dtype`; `None` if
    /// the instruction does not multiply these.
    pub fn steps(&self, dtype: DType) -> Option<usize> {
        self.factors.iter().find(|factors| factors.dtypes == [dtype; 2]).map(|factors| factors.steps)
    }

    /// Returns the GPU threads whose registers hold the accumulators; `None` for CPU instructions
    /// and for those that do not multiply.
    pub fn threads(&self) -> Option<ThreadGroup> {
        match self.executor {
            Executor::Threads(group) if !self.factors.is_empty() => Some(group),
            _ => None,
        }
    }
}

impl Factors {
    /// Returns the entry for two factors of the same type.
    const fn of(dtype: DType, steps: usize) -> Self {
        Self { dtypes: [dtype; 2], steps }
    }
}

impl Registers {
    /// Returns the number of a CPU's registers that are available for accumulators and factors.
    pub fn of_cpu(self, cpu: &CpuTarget) -> usize {
        match self {
            Registers::Vector { products } => cpu.isa.vector_registers() - products,
            Registers::Tile => TILE_REGISTERS,
            Registers::None | Registers::Thread => 0,
        }
    }
}

impl Feature {
    /// Returns true if `cpu` has the feature.
    pub fn is_of_cpu(self, cpu: &CpuTarget) -> bool {
        match self {
            Feature::Isa(isa) => cpu.isa == isa,
            Feature::Cpu(isa, name) => cpu.isa == isa && cpu.features.iter().any(|known| known == name),
            Feature::ComputeCapability(_) => false,
        }
    }

    /// Returns true if `gpu` has the feature.
    pub fn is_of_gpu(self, gpu: &GpuTarget) -> bool {
        matches!((self, gpu.api), (Feature::ComputeCapability(least), GpuApi::Cuda { sm }) if sm >= least)
    }
}

impl PartialEq for Instruction {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Instruction {}

impl fmt::Debug for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
