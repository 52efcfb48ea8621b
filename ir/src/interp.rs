//! The loop nest executed one iteration after another: slow and obviously right, the oracle for every code generator.
//!
//! Memory that nothing has written is NaN, also in a buffer that is entered again, and every operation passes NaN on, so
//! that a read of undefined memory shows in the output. Values are f32; operands are rounded to the workload's type first, and
//! whatever is stored is rounded to its buffer's. Tasks that touch each other's memory are an error.
//!
//! The threads of a GPU's block run one after the other from barrier to barrier. Two of them that touch one element of shared
//! memory between two barriers, or of global memory at any time, are an error if one of them writes. A copy to shared memory
//! that is under way touches its element twice, where it begins and where it is awaited, and leaves it undefined in between; two
//! of them to one element are a race.
//! Of a block whose warps are specialised, producer and consumers go on each until it must wait for the other, the producer first whenever it can.

use std::collections::HashSet;

use ndarray::ArrayD;
use thiserror::Error;

use crate::affine::Affine;
use crate::dtype::DType;
use crate::launch::Grid;
use crate::layout::{LayoutError, from_layout, to_layout};
use crate::program::{BufferId, Program, Role, Scope, Stage, StoreMode, parallel_prefix};
use crate::spec::Spec;

mod grid;
mod roles;
mod steps;

use steps::{Compiler, Flat, Step, Value};

/// Why a program cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InterpError {
    /// The operands are not the workload's.
    #[error(transparent)]
    Operand(#[from] OperandError),
    /// A buffer's layout does not fit its tensor.
    #[error("buffer '{buffer}': {source}")]
    Layout {
        /// The buffer.
        buffer: String,
        /// What does not fit.
        source: LayoutError,
    },
    /// A buffer that is given or returned has not the size of its tensor.
    #[error("buffer '{buffer}' has {found} elements, its tensor {wanted}")]
    BufferLen {
        /// The buffer.
        buffer: String,
        /// Elements of the buffer.
        found: usize,
        /// Elements of the tensor.
        wanted: usize,
    },
    /// The program has no buffer of role output.
    #[error("the program has no output")]
    NoOutput,
    /// An index leaves its dimension. Loops are rectangular, so that the extreme of an index is reached; where conditions
    /// guard it, it is an index that is used.
    #[error("stage '{stage}': {buffer}: index {index} in dimension {dim} of extent {extent}")]
    OutOfBounds {
        /// The stage.
        stage: String,
        /// The buffer.
        buffer: String,
        /// Physical dimension, outermost is 0.
        dim: usize,
        /// The extreme index.
        index: i64,
        /// Extent of the dimension.
        extent: usize,
    },
    /// A local or register buffer is used outside its allocation.
    #[error("stage '{stage}': '{buffer}' is used outside its allocation")]
    OutOfScope {
        /// The stage.
        stage: String,
        /// The buffer.
        buffer: String,
    },
    /// An operand is written.
    #[error("stage '{stage}': the operand '{buffer}' is written")]
    ReadOnly {
        /// The stage.
        stage: String,
        /// The buffer.
        buffer: String,
    },
    /// One task of a stage (on a GPU: one thread) writes what another one reads or writes.
    #[error("stage '{stage}': two tasks meet in {buffer}, element {offset}")]
    Race {
        /// The stage.
        stage: String,
        /// The buffer.
        buffer: String,
        /// The element, counted row-major.
        offset: usize,
    },
    /// The tree makes no sense.
    #[error("stage '{stage}': {reason}")]
    Malformed {
        /// The stage.
        stage: String,
        /// What is wrong.
        reason: String,
    },
}

/// Operands that do not belong to a spec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("operand '{operand}' has shape {found:?} where {wanted:?} is wanted")]
pub struct OperandError {
    /// Which operand.
    pub operand: String,
    /// Its shape; `None` if it is absent.
    pub found: Option<Vec<usize>>,
    /// The shape of its tensor; `None` if there should be no more operands.
    pub wanted: Option<Vec<usize>>,
}

/// Whether every operand has the shape that the spec says and none is missing or too many.
pub fn check_operands(spec: &Spec, operands: &[ArrayD<f32>]) -> Result<(), OperandError> {
    let mut wanted = spec.operands();
    for number in 0.. {
        let (tensor, operand) = (wanted.next(), operands.get(number));
        let (shape, found) = (tensor.map(|t| t.shape.clone()), operand.map(|o| o.shape().to_vec()));
        if shape.is_none() && found.is_none() {
            break;
        }
        if shape != found {
            let operand = tensor.map_or_else(|| format!("number {number}"), |tensor| tensor.name.to_string());
            return Err(OperandError { operand, found, wanted: shape });
        }
    }
    Ok(())
}

/// The output of `program` for the operands of its spec, in order.
///
/// Vectorized, unrolled and parallel loops run like serial ones. A location of global memory that is written by one task
/// of a stage (see [`Stage::tasks`]) and read or written by another is an [`InterpError::Race`], and so is one of shared
/// memory that is touched by two threads of a block without a barrier between.
pub fn interpret(program: &Program, operands: &[ArrayD<f32>]) -> Result<ArrayD<f32>, InterpError> {
    check_operands(&program.spec, operands)?;
    let mut memory = Vec::new();
    for buffer in &program.buffers {
        let data = match given(&program.spec, buffer.role, operands) {
            Some(tensor) => to_layout(&tensor, buffer.layout)
                .map_err(|source| InterpError::Layout { buffer: buffer.name.clone(), source })?,
            None => vec![f32::NAN; buffer.len()],
        };
        if data.len() != buffer.len() {
            let (found, wanted) = (buffer.len(), data.len());
            return Err(InterpError::BufferLen { buffer: buffer.name.clone(), found, wanted });
        }
        memory.push(data);
    }

    let dtypes = (0..program.buffers.len()).map(|id| program.dtype(BufferId(id as u32)));
    let mut machine = Machine {
        memory,
        dtypes: dtypes.collect(),
        vars: vec![0; program.vars.len()],
        marks: Vec::new(),
        task: 0,
        private_len: vec![0; program.buffers.len()],
        thread: 0,
        phase: grid::Phase::default(),
        copies: Vec::new(),
        under_way: HashSet::new(),
        in_group: false,
    };
    for stage in &program.stages {
        run_stage(program, stage, &mut machine)?;
    }
    let output = program.find(Role::Output).ok_or(InterpError::NoOutput)?;
    let buffer = program.buffer(output);
    let shape = program.spec.find(Role::Output).map_or(&[][..], |tensor| &tensor.shape);
    from_layout(&machine.memory[output.0 as usize], shape, buffer.layout)
        .map_err(|source| InterpError::Layout { buffer: buffer.name.clone(), source })
}

/// The operand of a role, rounded as its type is where it is used.
fn given(spec: &Spec, role: Role, operands: &[ArrayD<f32>]) -> Option<ArrayD<f32>> {
    let Role::Operand(number) = role else { return None };
    let (tensor, operand) = (spec.find(role)?, operands.get(number)?);
    Some(match spec.is_multiplied(tensor) {
        true => operand.mapv(|x| tensor.dtype.multiplied(x)),
        false => operand.mapv(|x| tensor.dtype.stored(x)),
    })
}

fn run_stage(program: &Program, stage: &Stage, machine: &mut Machine) -> Result<(), InterpError> {
    let mut compiler = Compiler {
        program,
        stage,
        extents: vec![None; program.vars.len()],
        open: Vec::new(),
        written: vec![false; program.buffers.len()],
        guards: 0,
        in_grid: false,
        role: None,
    };
    if let Some(grid) = Grid::of(stage) {
        return grid::run(compiler, &grid, machine);
    }
    let trees: Vec<Step> = stage.body.iter().map(|n| compiler.node(n)).collect::<Result<_, _>>()?;
    machine.watch(program, &compiler.written);
    for (node, tree) in stage.body.iter().zip(&trees) {
        let done = machine.run_tasks(tree, parallel_prefix(node).len());
        done.map_err(|fault| fault.error(program, stage))?;
    }
    Ok(())
}

/// Who touched each element of a buffer: the number of a task, from 1 on.
struct Marks {
    writer: Vec<u64>,
    /// Two of the tasks that have read, different ones if there are two.
    readers: Vec<[u64; 2]>,
}

impl Marks {
    fn new(len: usize) -> Self {
        Self { writer: vec![0; len], readers: vec![[0; 2]; len] }
    }

    /// Notes a read; false if another task has written the element. Tasks up to number `over` do not count.
    fn read(&mut self, offset: usize, task: u64, over: u64) -> bool {
        let [first, second] = &mut self.readers[offset];
        if *first <= over || *first == task {
            *first = task;
        } else {
            *second = task;
        }
        let writer = self.writer[offset];
        writer <= over || writer == task
    }

    /// Notes a write; false if another task has read or written the element. Tasks up to number `over` do not count.
    fn write(&mut self, offset: usize, task: u64, over: u64) -> bool {
        let free = |mark: u64| mark <= over || mark == task;
        let alone = free(self.writer[offset]) && self.readers[offset].into_iter().all(free);
        self.writer[offset] = task;
        alone
    }
}

/// What goes wrong in a run.
enum Fault {
    /// Two tasks meet in an element.
    Race { buffer: usize, offset: usize },
    /// Producer and consumers wait for each other.
    Stuck,
    /// A guarded index is out of bounds nevertheless.
    OutOfBounds { buffer: usize, dim: usize, index: i64, extent: usize },
}

impl Fault {
    fn error(self, program: &Program, stage: &Stage) -> InterpError {
        let stage = stage.name.clone();
        let name = |buffer: usize| program.buffers[buffer].name.clone();
        match self {
            Fault::Race { buffer, offset } => InterpError::Race { stage, buffer: name(buffer), offset },
            Fault::Stuck => {
                InterpError::Malformed { stage, reason: "producer and consumers wait for each other".into() }
            }
            Fault::OutOfBounds { buffer, dim, index, extent } => {
                InterpError::OutOfBounds { stage, buffer: name(buffer), dim, index, extent }
            }
        }
    }
}

struct Machine {
    /// By buffer.
    memory: Vec<Vec<f32>>,
    /// By buffer: type of the elements.
    dtypes: Vec<DType>,
    /// Value of every loop variable whose loop is open.
    vars: Vec<i64>,
    /// By buffer: there if the stage writes the buffer and tasks share it.
    marks: Vec<Option<Marks>>,
    /// The running task (on a GPU: thread of the grid), counted from 1 in each stage.
    task: u64,
    /// By buffer: elements of one thread where each thread of a block has its own, else 0.
    private_len: Vec<usize>,
    /// The running thread of its block.
    thread: usize,
    phase: grid::Phase,
    /// Copies under way, by thread of the block.
    copies: Vec<grid::Copies>,
    /// Elements that a copy under way will write: buffer and offset.
    under_way: HashSet<(usize, usize)>,
    /// True within a group of copies.
    in_group: bool,
}

impl Machine {
    /// Begins a stage: notes who touches the global buffers that it writes.
    fn watch(&mut self, program: &Program, written: &[bool]) {
        let shared = program.buffers.iter().zip(written);
        self.marks =
            shared.map(|(b, &written)| (written && b.scope == Scope::Global).then(|| Marks::new(b.len()))).collect();
        self.task = 0;
    }

    /// Runs a tree whose outermost `prefix` loops make the tasks.
    fn run_tasks(&mut self, step: &Step, prefix: usize) -> Result<(), Fault> {
        let Step::Loop { var, extent, body } = step else {
            self.task += 1;
            return self.run(step);
        };
        if prefix == 0 {
            self.task += 1;
            return self.run(step);
        }
        for value in 0..*extent {
            self.vars[*var] = value;
            if prefix > 1 {
                body.iter().try_for_each(|step| self.run_tasks(step, prefix - 1))?;
            } else {
                self.task += 1;
                body.iter().try_for_each(|step| self.run(step))?;
            }
        }
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), Fault> {
        match step {
            Step::Loop { var, extent, body } => {
                for value in 0..*extent {
                    self.vars[*var] = value;
                    for step in body {
                        self.run(step)?;
                    }
                }
                Ok(())
            }
            Step::Alloc { buffer, body } => {
                self.clear(*buffer);
                body.iter().try_for_each(|step| self.run(step))
            }
            Step::Nothing => Ok(()),
            Step::Store { dst, mode, value } => {
                let mut value = self.eval(value)?;
                if *mode == StoreMode::Accumulate {
                    value += self.load(dst)?;
                }
                let offset = self.offset(dst)?;
                let value = self.dtypes[dst.buffer].stored(value);
                if self.in_group {
                    return self.begin_copy(dst.buffer, offset, value);
                }
                self.write(dst.buffer, offset, value)
            }
            // Where all threads wait, one has nothing to do.
            Step::Barrier | Step::Specialised { .. } | Step::Mbarrier(_) => Ok(()),
            Step::CopyGroup { body } => {
                self.in_group = true;
                body.iter().try_for_each(|step| self.run(step))?;
                self.in_group = false;
                self.close_group();
                Ok(())
            }
            Step::AwaitCopies { but } => self.await_copies(*but),
            Step::Guard { when, body } => {
                if self.holds(when) {
                    body.iter().try_for_each(|step| self.run(step))?;
                }
                Ok(())
            }
            Step::Unflatten { value, digits, body } => {
                if self.bind(value, digits) {
                    body.iter().try_for_each(|step| self.run(step))?;
                }
                Ok(())
            }
        }
    }

    fn write(&mut self, buffer: usize, offset: usize, value: f32) -> Result<(), Fault> {
        let (task, over) = self.phase.who(buffer, self.task);
        if let Some(marks) = &mut self.marks[buffer]
            && !marks.write(offset, task, over)
        {
            return Err(Fault::Race { buffer, offset });
        }
        self.memory[buffer][offset] = value;
        Ok(())
    }

    fn eval(&mut self, value: &Value) -> Result<f32, Fault> {
        Ok(match value {
            Value::Const(value) => *value,
            Value::Load(flat) => self.load(flat)?,
            Value::Add(a, b) => self.eval(a)? + self.eval(b)?,
            Value::Mul(a, b) => self.eval(a)? * self.eval(b)?,
            Value::Max(a, b) => {
                let (a, b) = (self.eval(a)?, self.eval(b)?);
                if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
            }
            Value::Guarded(when, value) => {
                if self.holds(when) {
                    self.eval(value)?
                } else {
                    0.0
                }
            }
        })
    }

    fn load(&mut self, flat: &Flat) -> Result<f32, Fault> {
        let offset = self.offset(flat)?;
        let (task, over) = self.phase.who(flat.buffer, self.task);
        if let Some(marks) = &mut self.marks[flat.buffer]
            && !marks.read(offset, task, over)
        {
            return Err(Fault::Race { buffer: flat.buffer, offset });
        }
        Ok(self.memory[flat.buffer][offset])
    }

    fn at(&self, affine: &Affine) -> i64 {
        affine.eval(|var| self.vars[var.0 as usize])
    }

    fn offset(&self, flat: &Flat) -> Result<usize, Fault> {
        for &(dim, ref index, extent) in &flat.guarded {
            let index = self.at(index);
            if index < 0 || index >= extent as i64 {
                return Err(Fault::OutOfBounds { buffer: flat.buffer, dim, index, extent });
            }
        }
        Ok(self.at(&flat.offset) as usize + self.thread * self.private_len[flat.buffer])
    }
}
