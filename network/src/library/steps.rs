//! A network's actions as code addresses and memory places.

use std::collections::HashMap;
use std::ops::Range;

use autotune_codegen::asm::assemble;
use autotune_ir::Program;
use autotune_ir::plan::Binding;
use autotune_ir::program::When;
use autotune_runtime::{Cpu, HostMemory};

use super::error::LibraryError;
use super::processor::Instructions;
use super::weights::LibraryWeights;
use crate::compiled::Compiled;
use crate::cut::Strided;
use crate::plan::{ActionKind, ActionOperand, SlotSpan};

/// Alignment of kernels in bytes, required by their constants.
const CODE_ALIGNMENT: usize = 64;

/// Place of data at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteLocation {
    /// Offset in bytes from the workspace's first tensor.
    Workspace(usize),
    /// Offset in bytes from the first weight.
    Weights(usize),
    /// Number of an input, and the offset in bytes in the caller's memory.
    Input(usize, usize),
    /// No memory, for buffers that are never accessed.
    Absent,
}

/// A step of the network.
#[derive(Debug)]
pub(super) enum LibraryStep {
    Kernel(KernelStep),
    /// Copies elements of `element` bytes.
    Copy {
        strided: Strided,
        element: usize,
        from: ByteLocation,
        to: ByteLocation,
    },
}

#[derive(Debug)]
pub(super) struct KernelStep {
    /// Offsets of the stages' functions in the code, with their numbers of tasks.
    pub(super) stages: Vec<(usize, usize)>,
    pub(super) buffers: Vec<ByteLocation>,
    /// Private memory of the first thread, and the distance to the next thread's in bytes.
    pub(super) private: (ByteLocation, usize),
}

/// Steps of a network, and the memory of its inputs and outputs.
pub(super) struct LibrarySteps {
    pub(super) steps: Vec<LibraryStep>,
    /// Memory of inputs and of outputs.
    pub(super) places: [Vec<ByteLocation>; 2],
}

/// Code of the kernels of a library's networks, and the constants that they read in every run. What
/// networks have in common is there once.
#[derive(Default)]
pub(super) struct LibraryKernels<'a> {
    pub(super) text: Vec<u8>,
    pub(super) instructions: Instructions,
    pub(super) weights: LibraryWeights<'a>,
    /// Offsets of kernels by their code.
    known: HashMap<Vec<u8>, usize>,
}

struct StepsBuilder<'a, 'l> {
    network: &'a Compiled,
    kernels: &'l mut LibraryKernels<'a>,
    /// Offsets and task counts of assembled kernels' stages, by kernel of the network.
    code: HashMap<usize, Vec<(usize, usize)>>,
}

impl LibrarySteps {
    /// Returns the steps of a network; adds its kernels and constants to those of the library.
    pub(super) fn of<'a>(network: &'a Compiled, kernels: &mut LibraryKernels<'a>) -> Result<Self, LibraryError> {
        let mut maker = StepsBuilder { network, kernels, code: HashMap::new() };
        let plan = &network.plan;
        let steps = (0..plan.actions.len()).map(|number| maker.step(number)).collect::<Result<_, _>>()?;
        let mut places = |spans: &[SlotSpan]| spans.iter().map(|&span| maker.span(span)).collect::<Result<_, _>>();
        let places = [places(&plan.inputs)?, places(&plan.outputs)?];
        Ok(Self { steps, places })
    }
}

impl LibraryKernels<'_> {
    /// Returns the offset of a kernel's code; adds the code unless it is there.
    fn place(&mut self, code: &[u8]) -> usize {
        if let Some(&known) = self.known.get(code) {
            return known;
        }
        // The gap is filled with int3, so that stray jumps trap.
        self.text.resize(self.text.len().next_multiple_of(CODE_ALIGNMENT), 0xcc);
        let first = self.text.len();
        self.text.extend(code);
        self.known.insert(code.to_vec(), first);
        first
    }
}

impl<'a> StepsBuilder<'a, '_> {
    fn step(&mut self, number: usize) -> Result<LibraryStep, LibraryError> {
        let network = self.network;
        let action = &network.plan.actions[number];
        match &action.work {
            ActionKind::Copy(strided) => {
                let from = action.operands.first().map_or(Ok(ByteLocation::Absent), |operand| self.operand(operand))?;
                let element = network.plan.dtype(action.output).bytes();
                Ok(LibraryStep::Copy { strided: strided.clone(), element, from, to: self.span(action.output)? })
            }
            ActionKind::Interpret(node) => {
                let node = network.graph.node(*node);
                Err(LibraryError::Interpreted { node: node.name.clone(), op: node.op.name() })
            }
            ActionKind::Kernel(kernel) => Ok(LibraryStep::Kernel(self.kernel(number, *kernel)?)),
        }
    }

    /// Returns the place of an operand that is not packed.
    fn operand(&mut self, operand: &ActionOperand) -> Result<ByteLocation, LibraryError> {
        match operand {
            ActionOperand::Span(span) => self.span(*span),
            // Kernels read packed copies of these constants, which are buffers of their own.
            ActionOperand::Constant(_) => Ok(ByteLocation::Absent),
        }
    }

    fn span(&mut self, span: SlotSpan) -> Result<ByteLocation, LibraryError> {
        let network = self.network;
        let first = network.plan.offset(span);
        if let Some(&input) = network.in_place.get(&span.slot) {
            return Ok(ByteLocation::Input(input, first));
        }
        Ok(match &network.constants.slots[span.slot] {
            Some(constant) => {
                let bytes = network.plan.slots[span.slot].bytes().ok_or(LibraryError::TooLarge)?;
                ByteLocation::Weights(self.kernels.weights.place(&constant.elements()[..bytes]) + first)
            }
            None => ByteLocation::Workspace(network.places[span.slot] + first),
        })
    }

    fn kernel(&mut self, number: usize, kernel: usize) -> Result<KernelStep, LibraryError> {
        let network = self.network;
        let (action, plan) = (&network.plan.actions[number], network.kernels[kernel].plan());
        let stages = self.code(&action.name, kernel)?;
        let scratch = network.kernels[kernel].scratch_ranges(&Cpu::new(1))?;
        let place = |range: Range<usize>| (ByteLocation::Workspace(network.scratch[number] + range.start), range.len());
        let mut scratch = scratch.into_iter().map(place);

        let held = network.constants.held[number].as_deref();
        let (packed, unpacked) = held.map_or((&[][..], &[][..]), |held| (held.packed.memory(), &held.unpacked));
        // Operands and packed constants are in the order of the plan's buffers.
        let (mut operands, mut packed) = (action.operands.iter().zip(unpacked), packed.iter());
        let mut buffers = Vec::new();
        for buffer in &plan.buffers {
            let bytes = buffer.bytes().ok_or(LibraryError::TooLarge)?;
            buffers.push(match buffer.binding {
                Binding::Data | Binding::Constant { .. } => match operands.next() {
                    Some((ActionOperand::Span(span), _)) => self.span(*span)?,
                    Some((_, Some(unpacked))) => self.memory(unpacked, bytes),
                    _ => ByteLocation::Absent,
                },
                Binding::Packed => packed.next().map_or(ByteLocation::Absent, |memory| self.memory(memory, bytes)),
                Binding::Output => self.span(action.output)?,
                Binding::Scratch => scratch.next().map_or(ByteLocation::Absent, |(place, _)| place),
                Binding::Private => ByteLocation::Absent,
            });
        }
        Ok(KernelStep { stages, buffers, private: scratch.next().unwrap_or((ByteLocation::Absent, 0)) })
    }

    fn memory(&mut self, memory: &'a HostMemory, bytes: usize) -> ByteLocation {
        ByteLocation::Weights(self.kernels.weights.place(&memory.elements()[..bytes]))
    }

    /// Assembles the stages of a kernel that run in every run, unless that was done before. Returns
    /// their offsets and task counts.
    fn code(&mut self, step: &str, kernel: usize) -> Result<Vec<(usize, usize)>, LibraryError> {
        if let Some(known) = self.code.get(&kernel) {
            return Ok(known.clone());
        }
        let tuned = &self.network.plan.kernels[kernel];
        let program = tuned.program()?;
        // Ahead-of-time stages have run; the library contains only their results.
        let stages = program.stages.iter().filter(|stage| stage.when == When::EveryRun);
        let program = Program { stages: stages.cloned().collect(), ..program.clone() };
        let assembled = assemble(&program, tuned.target());
        let code = assembled.map_err(|source| LibraryError::Assemble { step: step.into(), source })?;

        if let Some(cpu) = tuned.target().cpu() {
            self.kernels.instructions.add(cpu.isa, &code);
        }

        let first = self.kernels.place(&code.bytes);
        let stages = code.entries.iter().zip(&program.stages).map(|(entry, stage)| (first + entry, stage.tasks()));
        let stages: Vec<(usize, usize)> = stages.collect();
        self.code.insert(kernel, stages.clone());
        Ok(stages)
    }
}
