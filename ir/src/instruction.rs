//! Instructions that do a whole loop nest.
//!
//! A [`Node::Call`](crate::program::Node::Call) has as its body the nest that its instruction does,
//! so that what runs, counts or proves a program reads the body and needs to know nothing of the
//! instruction; an [`Instruction`] says what no nest can say: the form of the nests that it does,
//! and which part of it still runs after the call. Dialects of GPU languages know how it is
//! written.
//!
//! ```text
//! call mma.sync                                  sixteen times eight sums of a warp, and K steps of their reduction
//!   unrolled s in 0..2
//!     ...
//!       acc[i, j, h, 2*p + c] += data_shared[..] * weight_shared[..]
//! ```
//!
//! A new one is a file with a static beside [`MMA`], [`WGMMA`] and [`BOX_COPY`], and its entry in
//! the table of the dialects that have it.

use std::fmt;

use crate::dtype::DType;
use crate::target::{CpuTarget, GpuApi, GpuTarget, Isa};

mod box_copy;
mod dot;
mod fragments;
mod mma;
mod nest;
mod site;
mod wgmma;

pub use box_copy::{BOX_COPY, BOX_ROW_BYTES, BoxCopy};
pub(crate) use dot::is_group_of_steps;
pub use dot::{DOT_BF16, DOT_I16, DOT_U8_I8, DOT_U8_I8_AVX2, Dot, PAIRS_I16, PAIRS_I16_AVX2, dot_of};
pub use fragments::{Fragments, LANES};
pub use mma::MMA;
pub use site::Site;
pub use wgmma::WGMMA;

/// A row of the table: an instruction.
pub struct Instruction {
    /// How PTX or another machine's manual calls it, in short; unique.
    pub name: &'static str,
    /// Types of the factors that it multiplies; none if it does not multiply.
    pub factors: &'static [Factors],
    /// Threads that execute it together.
    pub executor: Executor,
    /// Registers that hold its sums.
    pub registers: Registers,
    /// Processor feature that offers it.
    pub feature: Feature,
    /// What of it goes on behind it.
    pub asynchrony: Asynchrony,
    /// Nest that it does.
    pub nest: NestForm,
}

/// Form of a nest that instructions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestForm {
    /// A [`Dot`], of the instruction's steps and types.
    DotProduct,
    /// A [`Fragments`], of the threads that execute it together.
    MatrixProduct,
    /// A [`BoxCopy`].
    Box,
}

/// Factors of some types that an instruction multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factors {
    /// Types of the first and of the second factor.
    pub dtypes: [DType; 2],
    /// Steps of the reduction that one instruction takes: in a lane for vectors, in the whole
    /// product for matrices.
    pub steps: usize,
}

/// Threads that execute an instruction together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executor {
    /// A thread of a CPU.
    Core,
    /// Threads of a GPU whose registers hold the sums together.
    Threads(ThreadGroup),
    /// One thread of a GPU for its whole block.
    Block,
}

/// The threads that run a matrix instruction together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadGroup {
    /// The lanes of a warp.
    Warp,
    /// The lanes of four warps, numbered by the third thread loop from within, of extent 4.
    WarpGroup,
}

impl ThreadGroup {
    /// Rows of one instruction.
    pub fn rows(self) -> usize {
        match self {
            ThreadGroup::Warp => 16,
            ThreadGroup::WarpGroup => 64,
        }
    }

    /// Its threads.
    pub fn threads(self) -> usize {
        2 * self.rows()
    }
}

/// Registers that hold the sums of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Registers {
    /// None: it leaves nothing in registers.
    None,
    /// Those of single threads of a GPU.
    Thread,
    /// Vector registers, a sum in each lane.
    Vector {
        /// Registers of products on their way to the sums.
        products: usize,
    },
}

/// What a processor must have for an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// An instruction set of CPUs, whatever else they have.
    Isa(Isa),
    /// A feature of CPUs by its name in [`CpuTarget::features`](crate::target::CpuTarget), and the
    /// instruction set that it extends.
    Cpu(Isa, &'static str),
    /// A compute capability of CUDA, or a later one.
    ComputeCapability(u32),
}

/// What of an instruction goes on while the threads that called it do something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asynchrony {
    /// Nothing.
    Nothing,
    /// It may go on reading shared memory until the end of the next instruction of its kind, or of
    /// the innermost serial loop around, which other threads know behind a barrier or a release.
    Reads,
    /// It is a copy, and only in a [`Node::CopyGroup`](crate::program::Node::CopyGroup), with which
    /// it ends. One thread starts it for the whole block: its nest is written as if the threads of
    /// the thread loops did it.
    Copies,
}

impl Instruction {
    /// Returns the steps of the reduction that one instruction takes for two factors of a type;
    /// `None` if it does not multiply these.
    pub fn steps(&self, dtype: DType) -> Option<usize> {
        self.factors.iter().find(|factors| factors.dtypes == [dtype; 2]).map(|factors| factors.steps)
    }

    /// Returns the threads of a GPU whose registers hold its sums; `None` if it is of CPUs or does
    /// not multiply.
    pub fn threads(&self) -> Option<ThreadGroup> {
        match self.executor {
            Executor::Threads(group) if !self.factors.is_empty() => Some(group),
            _ => None,
        }
    }
}

impl Factors {
    /// Two factors of a type.
    const fn of(dtype: DType, steps: usize) -> Self {
        Self { dtypes: [dtype; 2], steps }
    }
}

impl Registers {
    /// Returns how many of them a CPU has for sums and factors.
    pub fn of_cpu(self, cpu: &CpuTarget) -> usize {
        match self {
            Registers::Vector { products } => cpu.isa.vector_registers() - products,
            Registers::None | Registers::Thread => 0,
        }
    }
}

impl Feature {
    /// True if a CPU has it.
    pub fn is_of_cpu(self, cpu: &CpuTarget) -> bool {
        match self {
            Feature::Isa(isa) => cpu.isa == isa,
            Feature::Cpu(isa, name) => cpu.isa == isa && cpu.features.iter().any(|known| known == name),
            Feature::ComputeCapability(_) => false,
        }
    }

    /// True if a GPU has it.
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
