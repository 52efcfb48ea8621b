//! What a runtime must know to run a kernel: its buffers and its entry points. Independent of how the kernel was made.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::launch::{Launch, boxes};
use crate::program::{BufferId, Layout, Program, Role, Scope, When};

/// A buffer of a kernel, by its position in [`KernelPlan::buffers`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBuffer {
    /// What it is for.
    pub role: Role,
    /// True if the runtime provides it (scope global); false for thread-private memory, whose pointer is null.
    pub global: bool,
    /// Physical shape, outermost first.
    pub shape: Vec<usize>,
    /// How the logical tensor lies in it.
    pub layout: Layout,
    /// Type of its elements.
    #[serde(default)]
    pub dtype: DType,
}

impl PlanBuffer {
    /// Number of elements; `None` if that is too large a number.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))
    }
}

/// A part of a matrix that one instruction copies, for which a kernel wants a tensor map: of the last two dimensions of a
/// buffer, with a swizzle of 128 bytes and zeros beyond the edges (CUDA, `cuTensorMapEncodeTiled`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorBox {
    /// Position of the buffer in [`KernelPlan::buffers`].
    pub buffer: usize,
    /// Rows and columns of the part.
    pub shape: [usize; 2],
}

/// One entry point of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStage {
    /// Symbol of a function `void f(float *const *buffers, char *local, long begin, long end)` (C ABI) that runs the tasks
    /// `begin..end`. `buffers[i]` is the buffer `i`, 64-byte aligned; `local` is `local_bytes` of memory that no other
    /// thread uses meanwhile, 64-byte aligned. Of a stage with a launch: a kernel whose parameters are pointers to the global
    /// buffers, in order, each 16-byte aligned.
    pub symbol: String,
    /// When it runs.
    pub when: When,
    /// Number of tasks; any partition of `0..tasks` among threads is right.
    pub tasks: usize,
    /// The grid on a GPU; `None` for a stage that the CPU runs.
    #[serde(default)]
    pub launch: Option<Launch>,
    /// Boxes whose tensor maps are further parameters, in order, behind the buffers.
    #[serde(default)]
    pub boxes: Vec<TensorBox>,
}

/// A kernel's interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPlan {
    /// Every buffer.
    pub buffers: Vec<PlanBuffer>,
    /// Entry points, run in this order with a barrier between them.
    pub stages: Vec<PlanStage>,
    /// Thread-private memory per thread.
    pub local_bytes: usize,
}

impl KernelPlan {
    /// The interface of a program's kernel.
    pub fn of(program: &Program) -> Self {
        let buffers = program.buffers.iter().enumerate().map(|(id, b)| PlanBuffer {
            dtype: program.dtype(BufferId(id as u32)),
            role: b.role,
            global: b.scope == Scope::Global,
            shape: b.shape.clone(),
            layout: b.layout,
        });
        let stages = program.stages.iter().map(|s| PlanStage {
            symbol: format!("autotune_{}", s.name),
            when: s.when,
            tasks: s.tasks(),
            launch: Launch::of(program, s),
            boxes: boxes(s),
        });
        Self { buffers: buffers.collect(), stages: stages.collect(), local_bytes: program.local_bytes() }
    }
}
