//! The CUDA C dialect.
//!
//! A store in a [`Node::CopyGroup`] that moves 4, 8 or 16 bytes becomes a `cp.async`, which writes
//! zeros where its guard is false. Instructions are inline PTX.
//!
//! Functions with inline PTX are at the start of the source. They are left out if `__CUDACC__` is
//! not defined, so that the kernels can be run elsewhere.

use super::dialect::{Dialect, Printer};
use super::element;
use super::used::Used;
use super::writer::GpuWriter;
use autotune_ir::DType;
use autotune_ir::instruction::WGMMA;
use autotune_ir::launch::{Launch, box_copies};
use autotune_ir::plan::TensorBox;
use autotune_ir::program::{BinaryOp, Expr, GpuGrid, LoopKind, Node, Program, Scope, Stage, UnaryOp};

mod copy;
mod functions;
mod hoist;
mod mma;
mod roles;
mod threads;
mod wgmma;

pub use functions::device_functions;
pub(super) use threads::Cuda;

/// Returns the architecture to compile CUDA source of [`crate::gpu::generate`] for.
///
/// `sm` is the compute capability times ten. The result is `sm_90`, for example, or `sm_90a` if the
/// source uses `wgmma`, which needs the architecture-specific target.
pub fn architecture(source: &str, sm: u32) -> String {
    format!("sm_{sm}{}", if source.contains("wgmma") { "a" } else { "" })
}

impl Dialect for Cuda {
    const INSTRUCTIONS: &[Printer<Self>] = &[mma::PRINTER, copy::PRINTER, wgmma::PRINTER];

    const BLOCK_NUMBER: &str = "blockIdx.x";
    const THREAD_NUMBER: &str = "threadIdx.x";
    const BARRIER: &str = "__syncthreads();";

    const FUNCTION: &str = "static __device__ __forceinline__";
    const MATH: [&str; 3] = ["sqrtf", "floorf", "fmaf"];

    const INFINITY: &str = "__uint_as_float(0x7f800000u)";

    fn function_of(expr: &Expr) -> Option<&'static str> {
        match expr {
            Expr::Unary(UnaryOp::Exp2, _) => Some("power_of_two"),
            Expr::Binary(BinaryOp::MaxNumber, _) => Some("fmaxf"),
            _ => None,
        }
    }

    fn new(program: &Program, stage: &Stage, grid: &GpuGrid, launch: Launch) -> Self {
        let thread = |from_within: usize| grid.threads.iter().rev().nth(from_within).map(|l| l.var);
        // The first dimension of a shared buffer for boxes numbers its slots.
        let slots = box_copies(grid.body).iter().map(|copy| program.buffer(copy.to.buffer).shape[0]).max();
        Self {
            lanes: if grid.threads.len() < 2 { [None; 2] } else { [thread(1), thread(0)] },
            group_warp: thread(2),
            block_threads: grid.block_threads(),
            is_specialised: launch.threads > grid.block_threads(),
            role: None,
            has_groups: Used::of(grid.body).calls(&WGMMA),
            in_group: false,
            hoisted: Vec::new(),
            varying: Vec::new(),
            operands: Vec::new(),
            boxes: TensorBox::all(stage),
            slots: slots.unwrap_or(0),
        }
    }

    fn prelude(program: &Program) -> String {
        let larger = "static __device__ __forceinline__ float max1(float a, float b) { return a < b ? b : a; }\n";
        format!("{larger}{}", functions::of(program))
    }

    fn parameter(dtype: DType, name: &str, stored: bool) -> String {
        let constant = if stored { "" } else { "const " };
        format!("{constant}{} *__restrict__ {name}", element::type_of(dtype))
    }

    fn extra_parameters(&self) -> Vec<String> {
        (0..self.boxes.len()).map(|i| format!("const __grid_constant__ TensorMap map{i}")).collect()
    }

    /// A block with warp specialisation is to have the multiprocessor to itself, hence the bound of
    /// one block.
    fn signature(&self, symbol: &str, parameters: &str, threads: usize) -> String {
        let bounds = format!("__launch_bounds__({threads}{})", if self.is_specialised { ", 1" } else { "" });
        format!("extern \"C\" __global__ void {bounds} {symbol}({parameters}) {{")
    }

    /// CUDA limits static shared memory to 48 KiB, so shared memory is dynamic. TMA boxes with
    /// swizzling need an alignment of 1024 bytes.
    fn shared_memory(&self) -> Option<String> {
        let alignment = if self.boxes.is_empty() { 16 } else { 1024 };
        Some(format!("extern __shared__ __align__({alignment}) unsigned char shared[];"))
    }

    fn shared_buffer(dtype: DType, name: &str, start: usize, _: usize) -> String {
        let element = element::type_of(dtype);
        format!("{element} *const {name} = ({element} *)(shared + {start});")
    }

    fn begin(&self, end: usize) -> Vec<String> {
        self.begin_arrivals(end)
    }

    fn warp_uniform(&self, number: &str) -> Option<String> {
        self.has_groups.then(|| format!("{number} = of_warp({number});"))
    }

    fn vector_of(vector: &str, words: &str) -> String {
        format!("make_{vector}({words})")
    }

    fn pair(dtype: DType, values: &[String]) -> String {
        format!("pair_{}({})", dtype.word(), values.join(", "))
    }

    fn address_space(_: Scope) -> &'static str {
        ""
    }

    fn node(writer: &mut GpuWriter<Self>, node: &Node) {
        match node {
            Node::CopyGroup { body } => writer.copy_group(body),
            Node::AwaitCopies { pending } => writer.await_copies(*pending),
            // If the hardware has no such asynchronous copy, the store is written as a plain one
            // below.
            Node::Store(store) if writer.dialect.in_group && writer.copy_async(store) => {}
            Node::Specialised { role, body } => writer.role(*role, body),
            Node::Mbarrier(mbarrier) => writer.mbarrier(*mbarrier),
            Node::Loop(l) if l.kind == LoopKind::Serial => writer.serial(l),
            Node::Loop(l) if l.kind == LoopKind::Unrolled => writer.copying(l),
            node => writer.common(node),
        }
    }
}
