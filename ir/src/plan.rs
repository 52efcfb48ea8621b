//! What a runtime must know to run a kernel: its buffers and its entry points. Independent of how
//! the kernel was made.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::instruction::BoxCopy;
use crate::launch::{Launch, box_copies};
use crate::program::{Buffer, BufferId, Layout, Node, Program, Role, Scope, Stage, StoreMode, When, preorder};

/// Who provides the memory of a buffer, and when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// The caller's: read in every run, and another in each.
    Data,
    /// The caller's, the same in all runs: stages that run ahead of time may read it.
    Constant {
        /// False if runs read only what stages ahead of time made of it.
        read_in_runs: bool,
    },
    /// The caller's, written in every run.
    Output,
    /// Written ahead of time, read in runs.
    Packed,
    /// Written and read within a run.
    Scratch,
    /// No memory of its own that outlives a stage: of a thread or a block. Its pointer is null on a
    /// CPU, and no parameter on a GPU.
    Private,
}

/// A buffer of a kernel, by its position in [`KernelPlan::buffers`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBuffer {
    /// Its name in the program, for people.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Who provides it.
    pub binding: Binding,
    /// Physical shape, outermost first.
    pub shape: Vec<usize>,
    /// How the logical tensor lies in it.
    pub layout: Layout,
    /// Type of its elements.
    #[serde(default)]
    pub dtype: DType,
}

impl PlanBuffer {
    /// True if the runtime gives it to the kernel.
    pub fn is_global(&self) -> bool {
        self.binding != Binding::Private
    }

    /// Its size; `None` if that is too large a number.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.dtype.bytes())
    }

    /// Number of elements; `None` if that is too large a number.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))
    }
}

/// A part of a matrix that one instruction copies, for which a kernel wants a tensor map: of the
/// last two dimensions of a buffer, with a swizzle of 128 bytes and zeros beyond the edges (CUDA,
/// `cuTensorMapEncodeTiled`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorBox {
    /// Position of the buffer in [`KernelPlan::buffers`].
    pub buffer: usize,
    /// Rows and columns of the part.
    pub shape: [usize; 2],
}

impl TensorBox {
    /// What a copy copies.
    pub fn of(copy: &BoxCopy) -> Self {
        Self { buffer: copy.from.buffer.0 as usize, shape: copy.shape() }
    }

    /// What a stage copies, each once.
    pub fn all(stage: &Stage) -> Vec<Self> {
        let mut found = Vec::new();
        for one in box_copies(&stage.body).iter().map(Self::of) {
            if !found.contains(&one) {
                found.push(one);
            }
        }
        found
    }
}

/// One entry point of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStage {
    /// Symbol of a function `void f(float *const *buffers, char *local, long begin, long end)` (C
    /// ABI) that runs the tasks `begin..end`. `buffers[i]` is the buffer `i`, aligned as its
    /// elements are; `local` is `local_bytes` of memory that no other thread uses meanwhile,
    /// 64-byte aligned. Of a stage with a launch: a kernel whose parameters are pointers to the
    /// global buffers, in order, each 16-byte aligned.
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
        Self { buffers: buffers.collect(), stages: stages.collect(), local_bytes: program.local_bytes() }
    }
}

/// Which buffers some stages read and write.
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
        None if is_written_ahead => Binding::Packed,
        None => Binding::Scratch,
    }
}
