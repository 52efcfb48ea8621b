//! Interface between the GPU printer and a GPU language.

use super::element;
use super::writer::GpuWriter;
use autotune_ir::DType;
use autotune_ir::instruction::Instruction;
use autotune_ir::launch::Launch;
use autotune_ir::program::{Expr, GpuGrid, Node, Program, Scope, Stage};

/// Printer of one instruction in a dialect.
pub(super) struct Printer<D: 'static> {
    pub(super) instruction: &'static Instruction,
    /// Returns the device functions that calls with these nests need.
    pub(super) functions: fn(DType, &[&[Node]]) -> String,
    /// Writes a call with this nest.
    pub(super) print: fn(&mut GpuWriter<'_, D>, &[Node]),
}

/// A dialect of C for GPUs, with its state while a kernel is written.
///
/// [`GpuWriter`] has everything that dialects share. Nodes reach the dialect through
/// [`Dialect::node`]. Nodes that it does not handle go to the writer: asynchronous copies become
/// plain stores, and whatever has no plain C, such as instructions that are not in the dialect's
/// table, becomes an `#error`.
pub(super) trait Dialect: Sized + 'static {
    /// Instructions that the dialect supports.
    const INSTRUCTIONS: &[Printer<Self>] = &[];

    /// Expression for the number of the block in the grid.
    const BLOCK_NUMBER: &str;
    /// Expression for the number of the thread in the block.
    const THREAD_NUMBER: &str;
    /// Statement that synchronises the threads of a block.
    const BARRIER: &str;

    /// Text before the return type of a function.
    const FUNCTION: &str;
    /// Names of the f32 square root, floor and fused multiply-add.
    const MATH: [&str; 3];

    /// Expression for positive infinity.
    const INFINITY: &str;

    /// True if formulas convert 16-bit elements, not instructions.
    const CONVERTS_BY_FORMULAS: bool = false;

    /// Returns the function that computes an expression's operation by an instruction, if there is
    /// one; other operations are computed by their formulas.
    fn function_of(_expr: &Expr) -> Option<&'static str> {
        None
    }

    /// Returns the dialect's state at the start of a kernel.
    fn new(program: &Program, stage: &Stage, grid: &GpuGrid, launch: Launch) -> Self;

    /// Returns functions that a program's kernels call.
    ///
    /// They include `max1`, the larger of two values, which returns a NaN in its first operand.
    fn prelude(program: &Program) -> String;

    /// Returns the declaration of a parameter that points to a global buffer.
    fn parameter(dtype: DType, name: &str, stored: bool) -> String;

    /// Returns parameters after the buffers.
    fn extra_parameters(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the head of a kernel, up to the opening brace.
    fn signature(&self, symbol: &str, parameters: &str, threads: usize) -> String;

    /// Returns the declaration before the shared buffers, if the dialect needs one.
    fn shared_memory(&self) -> Option<String> {
        None
    }

    /// Returns the declaration of a shared buffer of `len` elements from byte `start` on.
    fn shared_buffer(dtype: DType, name: &str, start: usize, len: usize) -> String;

    /// Returns the statements after the shared buffers, which end at byte `end`.
    fn begin(&self, _end: usize) -> Vec<String> {
        Vec::new()
    }

    /// Returns a statement which tells the compiler that a number derived from the thread's is the
    /// same for all lanes of a warp, or `None`.
    fn warp_uniform(&self, _number: &str) -> Option<String> {
        None
    }

    /// Returns a vector of type `vector` made of words.
    fn vector_of(vector: &str, words: &str) -> String;

    /// Returns the qualifier before the type of a pointer to memory of a scope.
    fn address_space(scope: Scope) -> &'static str;

    /// Writes a node in the dialect's own way, or by [`GpuWriter::common`].
    fn node(writer: &mut GpuWriter<Self>, node: &Node) {
        writer.common(node);
    }

    /// Returns the word of two values that are narrowed to 16 bits.
    fn pair(dtype: DType, values: &[String]) -> String {
        let halves: Vec<String> = values.iter().map(|value| element::narrowed(dtype, value)).collect();
        format!("pair({})", halves.join(", "))
    }

    /// Returns a vector of 2, 4 or 8 values as stored in memory. A word holds two 16-bit elements.
    fn vector(dtype: DType, values: &[String]) -> String {
        let words = match dtype.is_word() {
            true => values.to_vec(),
            false => values.chunks(2).map(|pair| Self::pair(dtype, pair)).collect(),
        };
        match &words[..] {
            [word] => word.clone(),
            words => Self::vector_of(element::vector_type(dtype, values.len()), &words.join(", ")),
        }
    }

    /// Returns the type of a pointer to a vector in global or shared memory.
    fn vector_pointer(dtype: DType, lanes: usize, scope: Scope, stored: bool) -> String {
        let constant = if stored { "" } else { "const " };
        format!("{constant}{}{} *", Self::address_space(scope), element::vector_type(dtype, lanes))
    }
}
