//! Interface of a compiled kernel: the buffers and entry points that a runtime needs, however the
//! kernel was generated.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::instruction::{BoxCopy, Registers};
use crate::launch::{Launch, box_copies};
use crate::program::{Buffer, BufferId, Layout, Node, Program, Role, Scope, Stage, StoreMode, When, preorder};

/// Owner of a buffer's memory, and when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// Memory of the caller, read in every run; may differ from run to run.
    Data,
    /// Memory of the caller with the same content in all runs; stages that run ahead of time may
    /// read it.
    Constant {
        /// False if runs read only packed copies of it.
        read_in_runs: bool,
    },
    /// Memory of the caller, written in every run.
    Output,
    /// Written ahead of time, read in runs.
    Packed,
    /// Written and read within a run.
    Scratch,
    /// Memory of a thread or a block that does not outlive a stage. Its pointer is null on a CPU;
    /// on a GPU it is no parameter.
    Private,
}

/// Description of a kernel's buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBuffer {
    /// Name in the program, for messages.
    pub name: String,
    /// Role of the buffer in the computation.
    pub role: Role,
    /// Owner of the memory.
    pub binding: Binding,
    /// Physical shape, outermost first.
    pub shape: Vec<usize>,
    /// Layout of the logical tensor in the buffer.
    pub layout: Layout,
    /// Type of the elements in memory.
    #[serde(default)]
    pub dtype: DType,
}

impl PlanBuffer {
    /// Returns true if the runtime passes the buffer to the kernel.
    pub fn is_global(&self) -> bool {
        self.binding != Binding::Private
    }

    /// Returns the size in bytes; `None` on overflow.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.dtype.bytes())
    }

    /// Returns the number of elements; `None` on overflow.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))
    }
}

/// Rectangle of a matrix that one instruction copies. The kernel needs a tensor map for it: over
/// the last two dimensions of a buffer, with the 128-byte swizzle and zeros beyond the edges (CUDA,
/// `cuTensorMapEncodeTiled`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorBox {
    /// Position of the buffer in [`KernelPlan::buffers`].
    pub buffer: usize,
    /// Rows and columns of the rectangle.
    pub shape: [usize; 2],
}

impl TensorBox {
    /// Returns the rectangle that `copy` reads.
    pub fn of(copy: &BoxCopy) -> Self {
        Self { buffer: copy.from.buffer.0 as usize, shape: copy.shape() }
    }

    /// Returns the distinct rectangles that a stage copies.
    pub fn all(stage: &Stage) -> Vec<Self> {
        let mut found = Vec::new();
        for one in box_copies(&stage.body).iter().map(Self::of) {
            // Kernels take one descriptor per box, however often they copy it.
            if !found.contains(&one) {
                found.push(one);
            }
        }
        found
    }
}

/// Entry point of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStage {
    /// Symbol of the function that runs the stage.
    ///
    /// On a CPU, `void f(float *const *buffers, char *local, long begin, long end)` (C ABI) runs
    /// the tasks `begin..end`. `buffers[i]` is buffer `i`, aligned to its element size; `local` is
    /// `local_bytes` of memory for the calling thread alone, 64-byte aligned.
    ///
    /// On a GPU (with a launch), a kernel whose parameters are pointers to the global buffers, in
    /// order, each 16-byte aligned.
    pub symbol: String,
    /// Time at which the stage runs.
    pub when: When,
    /// Number of tasks; threads may share `0..tasks` in any way.
    pub tasks: usize,
    /// Launch configuration on a GPU; `None` for a stage that runs on the CPU.
    #[serde(default)]
    pub launch: Option<Launch>,
    /// Rectangles whose tensor maps are further kernel parameters, in order, after the buffers.
    #[serde(default)]
    pub boxes: Vec<TensorBox>,
}

/// Interface of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPlan {
    /// All buffers, in the order of the program.
    pub buffers: Vec<PlanBuffer>,
    /// Entry points, run in this order with a barrier between them.
    pub stages: Vec<PlanStage>,
    /// Bytes of thread-private memory per thread.
    pub local_bytes: usize,
    /// True if stages may use the tile registers of a CPU. A process must ask its system for them
    /// before it runs such machine code.
    #[serde(default)]
    pub uses_tiles: bool,
}

impl KernelPlan {
    /// Returns the interface of the kernel that `program` compiles to.
    pub fn of(program: &Program) -> Self {
        let [ahead, runs] = [When::AheadOfTime, When::EveryRun].map(|when| Accesses::of(program, when));
        let buffers = program.buffers.iter().enumerate().map(|(id, b)| PlanBuffer {
            name: b.name.clone(),
            role: b.role,
            binding: binding(program, b, ahead.written[id], runs.read[id]),
            shape: b.shape.clone(),
            layout: b.layout,
            dtype: program.dtype(BufferId(id as u32)),
        });
        let stages = program.stages.iter().map(|s| PlanStage {
            symbol: format!("autotune_{}", s.name),
            when: s.when,
            tasks: s.tasks(),
            launch: Launch::of(program, s),
            boxes: TensorBox::all(s),
        });
        Self {
            buffers: buffers.collect(),
            stages: stages.collect(),
            local_bytes: program.local_bytes(),
            uses_tiles: program.stages.iter().flat_map(|stage| preorder(&stage.body)).any(uses_tiles),
        }
    }
}

fn uses_tiles(node: &Node) -> bool {
    matches!(node, Node::Call { instruction, .. } if instruction.registers == Registers::Tile)
}

/// Buffers that some stages read and write, by position.
struct Accesses {
    read: Vec<bool>,
    written: Vec<bool>,
}

impl Accesses {
    fn of(program: &Program, when: When) -> Self {
        let none = vec![false; program.buffers.len()];
        let mut accesses = Self { read: none.clone(), written: none };
        let stages = program.stages.iter().filter(|stage| stage.when == when);
        for node in stages.flat_map(|stage| preorder(&stage.body)) {
            let Node::Store(store) = node else { continue };
            let to = store.dst.buffer.0 as usize;
            accesses.written[to] = true;
            // An accumulation reads what it adds to.
            accesses.read[to] |= store.mode == StoreMode::Accumulate;
            store.value.for_each_load(&mut |from| accesses.read[from.buffer.0 as usize] = true);
        }
        accesses
    }
}

fn binding(program: &Program, buffer: &Buffer, is_written_ahead: bool, read_in_runs: bool) -> Binding {
    if buffer.scope != Scope::Global {
        return Binding::Private;
    }
    match program.spec.find(buffer.role).filter(|tensor| tensor.is_given()) {
        Some(tensor) if tensor.is_constant() => Binding::Constant { read_in_runs },
        Some(_) => Binding::Data,
        None if buffer.role == Role::Output => Binding::Output,
        // Content that is written once must outlive a run; other buffers can share scratch memory.
        None if is_written_ahead => Binding::Packed,
        None => Binding::Scratch,
    }
}
