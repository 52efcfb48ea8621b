//! Descriptions of inputs and outputs in a library, and the functions that return them.
//!
//! A record of a tensor consists of five numbers. Pointers are stored as distances from the record,
//! so no relocation is needed.

use autotune_codegen::asm::x86::Integer::{Rax, Rdi, Rsi};
use autotune_codegen::asm::x86::{Condition, Routine};
use autotune_graph::{GraphNode, NodeId, Output};
use autotune_ir::DType;

use crate::compiled::Compiled;
use crate::device::NetworkOps;
use crate::plan::SlotSpan;

/// Description of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) name: String,
    /// Element type, as the meaning of the elements.
    pub(super) dtype: DType,
    /// Element type in the caller's memory.
    pub(super) memory: DType,
    pub(super) shape: Vec<usize>,
}

impl Described {
    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub(super) fn bytes(&self) -> usize {
        self.elements() * self.memory.bytes()
    }
}

/// Returns the inputs and outputs of a network.
pub(super) fn described<D: NetworkOps>(network: &Compiled<D>) -> [Vec<Described>; 2] {
    let (graph, plan) = (network.graph(), &network.plan);
    let described = |name: &str, id: NodeId, &span: &SlotSpan| {
        let GraphNode { dtype, shape, .. } = graph.node(id);
        Described { name: name.into(), dtype: *dtype, memory: plan.dtype(span), shape: shape.clone() }
    };
    let input = |(&id, span): (&NodeId, _)| described(&graph.node(id).name, id, span);
    let output = |(output, span): (&Output, _)| described(&output.name, output.node, span);
    [
        graph.inputs().iter().zip(&plan.inputs).map(input).collect(),
        graph.outputs().iter().zip(&plan.outputs).map(output).collect(),
    ]
}

/// Property of a tensor, in the order of a record's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    DType,
    Shape,
    Rank,
    Elements,
}

impl Field {
    pub(super) const ALL: [Self; 5] = [Self::Name, Self::DType, Self::Rank, Self::Shape, Self::Elements];

    /// Returns the suffix of the function's name.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::DType => "type",
            Self::Shape => "shape",
            Self::Rank => "rank",
            Self::Elements => "elements",
        }
    }

    /// Returns the C type of the function's result.
    pub(super) fn c_type(self) -> &'static str {
        match self {
            Self::Name | Self::DType => "const char *",
            Self::Shape => "const size_t *",
            Self::Rank | Self::Elements => "size_t ",
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Rank | Self::Elements)
    }
}

const RECORD_BYTES: usize = 40;

/// Read-only data: records, numbers and texts.
#[derive(Default)]
pub(super) struct Data {
    pub(super) bytes: Vec<u8>,
}

impl Data {
    /// Appends a zero-terminated text, and returns its offset.
    pub(super) fn text(&mut self, text: &str) -> usize {
        let first = self.bytes.len();
        // A zero byte within a name would end the C string.
        self.bytes.extend(text.bytes().take_while(|&byte| byte != 0));
        self.bytes.push(0);
        first
    }

    /// Appends 8-byte numbers, and returns their offset.
    fn numbers(&mut self, numbers: impl IntoIterator<Item = i64>) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let first = self.bytes.len();
        self.bytes.extend(numbers.into_iter().flat_map(i64::to_le_bytes));
        first
    }

    /// Appends the records of tensors, and returns the offset of the first.
    pub(super) fn records(&mut self, tensors: &[&Described]) -> usize {
        // Texts come first, so that the records are contiguous.
        let parts: Vec<[usize; 3]> = tensors.iter().map(|tensor| self.parts(tensor)).collect();
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let first = self.bytes.len();
        for (number, (tensor, parts)) in tensors.iter().zip(parts).enumerate() {
            let distance = |part: usize| part as i64 - (first + number * RECORD_BYTES) as i64;
            let [name, dtype, shape] = parts.map(distance);
            self.numbers([name, dtype, shape, tensor.shape.len() as i64, tensor.elements() as i64]);
        }
        first
    }

    /// Appends name, type and shape, and returns their offsets.
    fn parts(&mut self, tensor: &Described) -> [usize; 3] {
        let (name, dtype) = (self.text(&tensor.name), self.text(&tensor.dtype.to_string()));
        [name, dtype, self.numbers(tensor.shape.iter().map(|&extent| extent as i64))]
    }
}

/// Emits a function that maps a tensor's number to a field of its record; it returns null or zero
/// for a number out of range. There are `count` records of each variant, at distance `records` from
/// the code. If there are several variants, the number of the variant is the first argument.
pub(super) fn emit(routine: &mut Routine, field: Field, [variants, count]: [usize; 2], records: i64) {
    let none = routine.label();
    if variants > 1 {
        routine.compare_value(Rdi, variants as i32);
        routine.jump_if(Condition::AtLeast, none);
        routine.compare_value(Rsi, count as i32);
        routine.jump_if(Condition::AtLeast, none);
        routine.multiply_value(Rdi, count as i32);
        routine.add(Rdi, Rsi);
    } else {
        routine.compare_value(Rdi, count as i32);
        routine.jump_if(Condition::AtLeast, none);
    }
    routine.multiply_value(Rdi, RECORD_BYTES as i32);
    routine.point_outside(Rax, records);
    routine.add(Rdi, Rax);
    routine.load(Rax, Rdi, 8 * field as i32);
    if !field.is_number() {
        routine.add(Rax, Rdi);
    }
    routine.ret();
    routine.bind(none);
    routine.set(Rax, 0);
    routine.ret();
}
