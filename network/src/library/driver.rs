//! Code generation for the library's exported functions, which check their arguments and run the
//! steps one after the other.
//!
//! During a run, rbx is the workspace, r12 and r13 are the caller's `parallel_for` and its context,
//! r14 the inputs and r15 the outputs. The stack holds the record of a stage that threads share,
//! the buffer table of a kernel, and loop counters of copies.

use autotune_codegen::asm::AssembleError;
use autotune_codegen::asm::x86::Integer::{R8, R9, R11, R12, R13, R14, R15, Rax, Rbp, Rbx, Rcx, Rdi, Rdx, Rsi, Rsp};
use autotune_codegen::asm::x86::{Condition, Integer, Label, Routine};

use super::copy;
use super::description::{self, Described};
use super::export::{Export, Fault, Side};
use super::format::FunctionRange;
use super::processor::Features;
use super::stage::{self, BUFFERS, FUNCTION, PARTS, PRIVATE, PRIVATE_STRIDE, TABLE, TASKS};
use super::steps::{ByteLocation, KernelStep, LibraryStep, LibrarySteps};
use super::workspace::{self, HEADER_BYTES, SET, WEIGHTS, WorkspaceStart};

/// Registers that a function must preserve (System V ABI).
const PRESERVED: [Integer; 6] = [Rbx, Rbp, R12, R13, R14, R15];

/// Input of the code generation.
pub(super) struct DriverJob<'a> {
    /// Networks for each instruction set, the widest first.
    pub(super) sets: Vec<LibrarySet<'a>>,
    pub(super) threads: usize,
    pub(super) workspace_bytes: usize,
    pub(super) weights_bytes: usize,
    pub(super) at: Distances,
}

/// Networks of a library for one instruction set.
pub(super) struct LibrarySet<'a> {
    pub(super) features: Features,
    /// Networks for different shapes of the inputs, the same shapes in all sets.
    pub(super) variants: Vec<LibraryVariant<'a>>,
}

/// Network of a library.
#[derive(Clone, Copy)]
pub(super) struct LibraryVariant<'a> {
    pub(super) plan: &'a LibrarySteps,
    /// Inputs and outputs, by [`Side`].
    pub(super) tensors: &'a [Vec<Described>; 2],
}

/// Distances from the first byte of the driver's code.
pub(super) struct Distances {
    /// Distances of the weights, and of the kernels. The latter's address marks workspaces.
    pub(super) weights: i64,
    pub(super) text: i64,
    /// Distances of the records of inputs and outputs.
    pub(super) records: [i64; 2],
    /// Distances of the texts of the instruction sets and of the error messages.
    pub(super) instruction_sets: Vec<i64>,
    pub(super) faults: [i64; Fault::ALL.len()],
}

impl<'a> DriverJob<'a> {
    /// Returns the number of inputs or outputs, the same for all variants.
    fn count(&self, side: Side) -> usize {
        self.variants().first().map_or(0, |variant| variant.tensors[side as usize].len())
    }

    /// Returns the variants of the first set, whose tensors are those of all sets.
    fn variants(&self) -> &[LibraryVariant<'a>] {
        self.sets.first().map_or(&[], |set| &set.variants)
    }
}

impl LibraryVariant<'_> {
    /// Returns the numbers of nonempty tensors.
    fn with_elements(&self, side: Side) -> Vec<usize> {
        let tensors = self.tensors[side as usize].iter().enumerate();
        tensors.filter(|(_, tensor)| tensor.elements() > 0).map(|(number, _)| number).collect()
    }
}

struct Driver<'a> {
    job: &'a DriverJob<'a>,
    routine: Routine,
    /// Function that distributes a stage over threads.
    share: Label,
    /// Stack offset of the loop counters of copies.
    counters: i32,
}

/// Code of the driver.
pub(super) struct DriverCode {
    pub(super) bytes: Vec<u8>,
    /// Functions of [`Export::all`], in this order.
    pub(super) functions: Vec<FunctionRange>,
    /// Offsets of displacements to other parts of the library.
    pub(super) references: Vec<usize>,
}

/// Generates the functions of a library.
pub(super) fn driver(job: &DriverJob) -> Result<DriverCode, AssembleError> {
    let steps = job.sets.iter().flat_map(|set| &set.variants).flat_map(|variant| &variant.plan.steps);
    let buffers = steps.map(|step| match step {
        LibraryStep::Kernel(kernel) => kernel.buffers.len(),
        _ => 0,
    });
    let counters = TABLE + 8 * buffers.max().unwrap_or(0) as i32;
    let mut routine = Routine::default();
    let share = stage::emit(&mut routine);
    let mut driver = Driver { job, routine, share, counters };
    let exports = Export::all(job.variants().len() > 1, job.sets.len() > 1);
    let functions = exports.into_iter().map(|export| driver.function(export)).collect();
    let (bytes, references) = driver.routine.finish_with_references()?;
    Ok(DriverCode { bytes, functions, references })
}

impl Driver<'_> {
    fn function(&mut self, export: Export) -> FunctionRange {
        self.routine.align();
        let first = self.routine.offset();
        match export {
            Export::WorkspaceBytes => self.constant(self.job.workspace_bytes),
            Export::Threads => self.constant(self.job.threads),
            Export::Count(side) => self.constant(self.job.count(side)),
            Export::InstructionSet => self.instruction_set(),
            Export::InstructionSets => self.constant(self.job.sets.len()),
            Export::InitFor => self.init_for(),
            Export::UsedSet => self.used_set(),
            Export::Of(side, field) => {
                let counts = [self.job.variants().len(), self.job.count(side)];
                description::emit(&mut self.routine, field, counts, self.job.at.records[side as usize]);
            }
            Export::Error => self.error(),
            Export::Init => self.init(),
            Export::Run => self.run(),
            Export::Variants => self.constant(self.job.variants().len()),
            Export::Variant => self.variant(),
            Export::Weights => self.address(self.job.at.weights),
            Export::WeightsBytes => self.constant(self.job.weights_bytes),
            Export::UseWeights => self.use_weights(),
        }
        FunctionRange { first, bytes: self.routine.offset() - first }
    }

    fn constant(&mut self, value: usize) {
        self.routine.set(Rax, value as i64);
        self.routine.ret();
    }

    fn address(&mut self, at: i64) {
        self.routine.point_outside(Rax, at);
        self.routine.ret();
    }

    /// Emits `(int fault) -> const char *`.
    fn error(&mut self) {
        for (fault, at) in Fault::ALL.into_iter().zip(self.job.at.faults) {
            let next = self.routine.label();
            self.routine.set(Rax, fault as i64);
            self.routine.compare_halves(Rdi, Rax);
            self.routine.jump_if(Condition::NotEqual, next);
            self.address(at);
            self.routine.bind(next);
        }
        // An unknown fault has no text: the result is null.
        self.constant(0);
    }

    fn fail(&mut self, at: Label, fault: Fault) {
        self.routine.bind(at);
        self.constant(fault as usize);
    }

    /// Emits `() -> const char *`, or `(size_t set) -> const char *` if there are several sets.
    fn instruction_set(&mut self) {
        let texts = &self.job.at.instruction_sets;
        if let &[only] = &texts[..] {
            return self.address(only);
        }
        for (number, &at) in texts.iter().enumerate() {
            let next = self.routine.label();
            self.routine.compare_value(Rdi, number as i32);
            self.routine.jump_if(Condition::NotEqual, next);
            self.address(at);
            self.routine.bind(next);
        }
        self.constant(0);
    }

    /// Emits `(void *workspace) -> int`, which initialises the workspace for the first instruction
    /// set that the CPU has.
    fn init(&mut self) {
        let [bad, lacking, refused] = [(); 3].map(|()| self.routine.label());
        workspace::emit_check_block(&mut self.routine, Rdi, bad);
        for number in 0..self.job.sets.len() {
            // The last set decides about the result.
            if number + 1 == self.job.sets.len() {
                self.init_set(number, lacking, refused);
            } else {
                let next = self.routine.label();
                self.init_set(number, next, next);
                self.routine.bind(next);
            }
        }
        self.fail(bad, Fault::Workspace);
        self.fail(lacking, Fault::Processor);
        self.fail(refused, Fault::Tiles);
    }

    /// Emits `(void *workspace, size_t set) -> int`, which initialises the workspace for a given
    /// instruction set.
    fn init_for(&mut self) {
        let [bad, lacking, refused] = [(); 3].map(|()| self.routine.label());
        workspace::emit_check_block(&mut self.routine, Rdi, bad);
        for number in 0..self.job.sets.len() {
            let next = self.routine.label();
            self.routine.compare_value(Rsi, number as i32);
            self.routine.jump_if(Condition::NotEqual, next);
            self.init_set(number, lacking, refused);
            self.routine.bind(next);
        }
        self.constant(Fault::Set as usize);
        self.fail(bad, Fault::Workspace);
        self.fail(lacking, Fault::Processor);
        self.fail(refused, Fault::Tiles);
    }

    /// Emits the initialisation of the workspace at rdi for an instruction set, and the return.
    /// Jumps to a label if the CPU or the system lacks something.
    fn init_set(&mut self, number: usize, lacking: Label, refused: Label) {
        let Distances { text, weights, .. } = self.job.at;
        let start = WorkspaceStart { text, weights, set: number, features: self.job.sets[number].features };
        start.emit(&mut self.routine, lacking, refused);
        self.constant(Fault::None as usize);
    }

    /// Emits `(const void *workspace) -> int`, the number of the instruction set that the workspace
    /// is initialised for, or -1.
    fn used_set(&mut self) {
        let none = self.routine.label();
        self.check_workspace(none, none);
        self.routine.load(Rax, Rdi, SET);
        self.routine.ret();
        self.routine.bind(none);
        self.routine.set(Rax, -1);
        self.routine.ret();
    }

    /// Emits `(void *workspace, const void *weights) -> int`, which makes runs in the workspace
    /// read weights at another address.
    fn use_weights(&mut self) {
        let [bad, not_initialised, no_weights] = [(); 3].map(|()| self.routine.label());
        self.check_workspace(bad, not_initialised);
        workspace::emit_check_block(&mut self.routine, Rsi, no_weights);
        self.routine.store(Rdi, WEIGHTS, Rsi);
        self.constant(Fault::None as usize);

        self.fail(bad, Fault::Workspace);
        self.fail(not_initialised, Fault::NotInitialised);
        self.fail(no_weights, Fault::Weights);
    }

    /// Jumps to a label unless rdi is the address of an initialised workspace.
    fn check_workspace(&mut self, bad: Label, not_initialised: Label) {
        workspace::emit_check(&mut self.routine, self.job.at.text, bad, not_initialised);
    }

    /// Emits `(const size_t *const *shapes) -> int`, the number of the variant with these shapes of
    /// the inputs, or -1.
    fn variant(&mut self) {
        let none = self.routine.label();
        let found: Vec<Label> = self.job.variants().iter().map(|_| self.routine.label()).collect();
        self.choose(Rdi, &found, none);
        for (number, &label) in found.iter().enumerate() {
            self.routine.bind(label);
            self.constant(number);
        }
        self.routine.bind(none);
        self.routine.set(Rax, -1);
        self.routine.ret();
    }

    /// Jumps to the label of the variant with the shapes that a register points to; overwrites rax
    /// and r11.
    fn choose(&mut self, shapes: Integer, found: &[Label], none: Label) {
        self.routine.compare_value(shapes, 0);
        self.routine.jump_if(Condition::Equal, none);
        for (variant, &label) in self.job.variants().iter().zip(found) {
            let next = self.routine.label();
            for (number, tensor) in variant.tensors[Side::Input as usize].iter().enumerate() {
                if tensor.shape.is_empty() {
                    continue;
                }
                self.routine.load(Rax, shapes, 8 * number as i32);
                self.routine.compare_value(Rax, 0);
                self.routine.jump_if(Condition::Equal, none);
                for (axis, &extent) in tensor.shape.iter().enumerate() {
                    self.routine.set(R11, extent as i64);
                    self.routine.compare_with(R11, Rax, 8 * axis as i32);
                    self.routine.jump_if(Condition::NotEqual, next);
                }
            }
            self.routine.jump(label);
            self.routine.bind(next);
        }
        self.routine.jump(none);
    }

    /// Emits `(void *workspace, const float *const *inputs, float *const *outputs, parallel_for,
    /// void *context) -> int`. If there are several variants, the second argument is the shapes of
    /// the inputs.
    fn run(&mut self) {
        let [bad, not_initialised, no_tensor, no_variant] = [(); 4].map(|()| self.routine.label());
        self.check_workspace(bad, not_initialised);
        for (number, set) in self.job.sets.iter().enumerate() {
            let next = self.routine.label();
            // The last set is the only one left.
            if number + 1 < self.job.sets.len() {
                self.routine.set(Rax, number as i64);
                self.routine.compare_with(Rax, Rdi, SET);
                self.routine.jump_if(Condition::NotEqual, next);
            }
            self.run_set(set, no_tensor, no_variant);
            self.routine.bind(next);
        }

        self.fail(no_variant, Fault::Shape);
        self.fail(bad, Fault::Workspace);
        self.fail(not_initialised, Fault::NotInitialised);
        self.fail(no_tensor, Fault::Tensor);
    }

    /// Emits the run of the variant of a set that the shapes choose, if there are several.
    fn run_set(&mut self, set: &LibrarySet, no_tensor: Label, no_variant: Label) {
        if let &[only] = &set.variants[..] {
            return self.run_variant(only, no_tensor);
        }
        let found: Vec<Label> = set.variants.iter().map(|_| self.routine.label()).collect();
        self.choose(Rsi, &found, no_variant);
        for (&variant, &label) in set.variants.iter().zip(&found) {
            self.routine.bind(label);
            for (to, from) in [(Rsi, Rdx), (Rdx, Rcx), (Rcx, R8), (R8, R9)] {
                self.routine.copy(to, from);
            }
            self.run_variant(variant, no_tensor);
        }
    }

    /// Emits the run of one variant, from the check of its tensors to the return.
    fn run_variant(&mut self, variant: LibraryVariant, no_tensor: Label) {
        // Arguments are checked before the frame exists, so that failures can return at once.
        for (side, register) in Side::ALL.into_iter().zip([Rsi, Rdx]) {
            self.check_tensors(variant, side, register, no_tensor);
        }

        let frame = self.enter(variant);
        self.move_tensors(variant, Side::Input);
        for step in &variant.plan.steps {
            match step {
                LibraryStep::Kernel(kernel) => self.kernel(kernel),
                LibraryStep::Copy { strided, element, from, to } => {
                    self.point(Rsi, *from, element * strided.from);
                    self.point(Rdi, *to, 0);
                    copy::emit(&mut self.routine, strided, *element, self.counters);
                }
            }
        }
        self.move_tensors(variant, Side::Output);
        self.leave(frame);
        self.constant(Fault::None as usize);
    }

    /// Jumps to a label if the pointer to a nonempty tensor is null.
    fn check_tensors(&mut self, variant: LibraryVariant, side: Side, pointers: Integer, missing: Label) {
        for number in variant.with_elements(side) {
            // The array itself may be null if all of its tensors are empty.
            self.routine.compare_value(pointers, 0);
            self.routine.jump_if(Condition::Equal, missing);
            self.routine.load(Rax, pointers, 8 * number as i32);
            self.routine.compare_value(Rax, 0);
            self.routine.jump_if(Condition::Equal, missing);
        }
    }

    /// Saves registers and allocates the stack frame; returns the frame's size in bytes.
    fn enter(&mut self, variant: LibraryVariant) -> i32 {
        PRESERVED.iter().for_each(|&register| self.routine.push(register));
        // Calls preserve these registers, unlike those of the arguments.
        for (to, from) in [(Rbx, Rdi), (R14, Rsi), (R15, Rdx), (R12, Rcx), (R13, R8)] {
            self.routine.copy(to, from);
        }
        let slots = variant.plan.steps.iter().map(|step| match step {
            LibraryStep::Copy { strided, .. } => copy::slots(strided),
            _ => 0,
        });
        // The return address and six saved registers leave the stack misaligned by 8; calls need
        // 16-byte alignment.
        let slots = slots.max().unwrap_or(0);
        let frame = (self.counters as usize + 8 * slots).next_multiple_of(16) as i32 + 8;
        self.routine.add_value(Rsp, -frame);
        frame
    }

    fn leave(&mut self, frame: i32) {
        self.routine.add_value(Rsp, frame);
        PRESERVED.iter().rev().for_each(|&register| self.routine.pop(register));
    }

    /// Copies inputs that kernels do not read in place, or all outputs.
    fn move_tensors(&mut self, variant: LibraryVariant, side: Side) {
        for number in variant.with_elements(side) {
            let (place, disp) = (variant.plan.places[side as usize][number], 8 * number as i32);
            // Kernels read such an input in the caller's memory.
            if matches!(place, ByteLocation::Input(..)) {
                continue;
            }
            match side {
                Side::Input => {
                    self.routine.load(Rsi, R14, disp);
                    self.point(Rdi, place, 0);
                }
                Side::Output => {
                    self.point(Rsi, place, 0);
                    self.routine.load(Rdi, R15, disp);
                }
            }
            self.routine.set(Rcx, variant.tensors[side as usize][number].bytes() as i64);
            self.routine.copy_bytes();
        }
    }

    /// Loads the address `bytes` bytes after a place into `to`.
    fn point(&mut self, to: Integer, place: ByteLocation, bytes: usize) {
        match place {
            ByteLocation::Workspace(first) => self.routine.point(to, Rbx, (HEADER_BYTES + first + bytes) as i32),
            ByteLocation::Weights(first) => {
                self.routine.load(to, Rbx, WEIGHTS);
                self.routine.point(to, to, (first + bytes) as i32);
            }
            ByteLocation::Input(number, first) => {
                self.routine.load(to, R14, 8 * number as i32);
                self.routine.point(to, to, (first + bytes) as i32);
            }
            ByteLocation::Absent => self.routine.set(to, 0),
        }
    }

    fn kernel(&mut self, kernel: &KernelStep) {
        for (number, &buffer) in kernel.buffers.iter().enumerate() {
            self.point(Rax, buffer, 0);
            self.routine.store(Rsp, TABLE + 8 * number as i32, Rax);
        }
        let (private, stride) = kernel.private;
        // A stage with a single part is called directly, others go through `parallel_for`.
        for &(first, tasks) in &kernel.stages {
            let function = self.job.at.text + first as i64;
            let parts = tasks.min(self.job.threads);
            if parts <= 1 {
                self.routine.point(Rdi, Rsp, TABLE);
                self.point(Rsi, private, 0);
                self.routine.set(Rdx, 0);
                self.routine.set(Rcx, tasks as i64);
                self.routine.call_outside(function);
                continue;
            }

            self.routine.point_outside(Rax, function);
            self.routine.store(Rsp, FUNCTION, Rax);
            self.routine.point(Rax, Rsp, TABLE);
            self.routine.store(Rsp, BUFFERS, Rax);
            self.point(Rax, private, 0);
            self.routine.store(Rsp, PRIVATE, Rax);
            for (disp, value) in [(PRIVATE_STRIDE, stride), (TASKS, tasks), (PARTS, parts)] {
                self.routine.set(Rax, value as i64);
                self.routine.store(Rsp, disp, Rax);
            }
            self.routine.copy(Rdi, Rsp);
            self.routine.call(self.share);
        }
    }
}
