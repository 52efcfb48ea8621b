//! What tells one GPU language from another.

use super::element;
use super::writer::Writer;
use autotune_ir::DType;
use autotune_ir::instruction::Instruction;
use autotune_ir::launch::Launch;
use autotune_ir::program::{Grid, Node, Program, Scope, Stage};

/// How a dialect writes an instruction.
pub(super) struct Printer<D: 'static> {
    pub(super) instruction: &'static Instruction,
    /// Functions that a source takes for calls with these nests.
    pub(super) functions: fn(DType, &[&[Node]]) -> String,
    /// Writes a call with this nest.
    pub(super) print: fn(&mut Writer<'_, D>, &[Node]),
}

/// A dialect of C for GPUs, with what it keeps while a kernel is written.
///
/// Everything that dialects share is [`Writer`]'s. What a GPU does in a way of its own reaches the
/// dialect by [`Dialect::node`]; one that does not take it leaves it to the writer, which writes
/// copies that may be under way as plain stores and, for instructions that are not in the dialect's
/// table and whatever else there is no plain C for, an `#error`.
pub(super) trait Dialect: Sized + 'static {
    /// The instructions that it has.
    const INSTRUCTIONS: &[Printer<Self>] = &[];

    /// What a block's and a thread's number are, and how the threads of a block wait for each
    /// other.
    const BLOCK_NUMBER: &str;
    const THREAD_NUMBER: &str;
    const BARRIER: &str;

    /// What comes before a function, and the names of square root, floor and fused multiply-add for
    /// f32.
    const FUNCTION: &str;
    const MATH: [&str; 3];

    /// Infinity.
    const INFINITY: &str;

    /// True if formulas convert from and to elements of 16 bits, not instructions.
    const CONVERTS_BY_FORMULAS: bool = false;

    /// For one kernel.
    fn new(program: &Program, stage: &Stage, grid: &Grid, launch: Launch) -> Self;

    /// Functions that the kernels of a program call; `max1`, the larger of two, passes on a first
    /// operand that is not a number.
    fn prelude(program: &Program) -> String;

    /// A pointer to a global buffer.
    fn parameter(dtype: DType, name: &str, stored: bool) -> String;

    /// Parameters behind the buffers.
    fn further_parameters(&self) -> Vec<String> {
        Vec::new()
    }

    /// The head of a kernel.
    fn signature(&self, symbol: &str, parameters: &str, threads: usize) -> String;

    /// What comes before the shared buffers of a kernel.
    fn shared_memory(&self) -> Option<String> {
        None
    }

    /// A shared buffer of `len` elements that begins at byte `start`.
    fn shared_buffer(dtype: DType, name: &str, start: usize, len: usize) -> String;

    /// What a kernel begins with, behind its shared buffers, which end at byte `end`.
    fn begin(&self, _end: usize) -> Vec<String> {
        Vec::new()
    }

    /// Tells the compiler, if it is to know, that a number made of a thread's is the same for all
    /// lanes of a warp.
    fn same_for_warp(&self, _number: &str) -> Option<String> {
        None
    }

    /// A vector of the type, from its words.
    fn vector_of(vector: &str, words: &str) -> String;

    /// What comes before the type of a pointer to memory of a scope.
    fn address_space(scope: Scope) -> &'static str;

    /// Writes a node: in the dialect's own way, or by [`Writer::common`].
    fn node(writer: &mut Writer<Self>, node: &Node) {
        writer.common(node);
    }

    /// A vector in memory of 2, 4 or 8 values.
    fn vector(dtype: DType, values: &[String]) -> String {
        match &element::words(dtype, values)[..] {
            [word] => word.clone(),
            words => Self::vector_of(element::vector_type(dtype, values.len()), &words.join(", ")),
        }
    }

    /// Type of a pointer to a vector in global or shared memory.
    fn vector_pointer(dtype: DType, lanes: usize, scope: Scope, stored: bool) -> String {
        let constant = if stored { "" } else { "const " };
        format!("{constant}{}{} *", Self::address_space(scope), element::vector_type(dtype, lanes))
    }
}
