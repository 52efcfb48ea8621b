//! Interpreter of loop nests: executes one iteration after another. It is slow and simple, the
//! oracle for every code generator.
//!
//! Unwritten memory is NaN, also in a buffer that is allocated again, and every operation
//! propagates NaN: a read of undefined memory shows in the output. Values are f32, integers i32
//! ([`Expr::is_integer`](crate::program::Expr::is_integer)). Operands are first rounded to their
//! types, and every stored value is rounded to the type of its buffer. Memory is represented as
//! f64, which holds both exactly. Every index is checked before it is used. Tasks that access each
//! other's memory are an error.
//!
//! The threads of a GPU block run one after the other from barrier to barrier. Two threads may not
//! access one element of shared memory between two barriers, or of global memory at any time, if
//! one of them writes. An asynchronous copy to shared memory accesses its element when it begins
//! and when it is awaited, and leaves it undefined in between; two copies to one element are a
//! race. In a block with specialised warps, producer and consumers each run until they must wait
//! for the other; the producer runs first whenever it can.

use ndarray::ArrayD;
use thiserror::Error;

use crate::layout::{LayoutError, from_layout, to_layout};
use crate::problem::{Problem, ProgramError};
use crate::program::{Buffer, Program, Role};
use crate::spec::Spec;

mod block;
mod machine;
mod marks;
mod nest;
mod roles;

use machine::Interpreter;

/// Error of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InterpError {
    /// The operands do not match the workload.
    #[error(transparent)]
    Operand(#[from] OperandError),
    /// The program is invalid. Races between tasks are a [`Problem::Conflict`].
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Operand that does not match the spec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("operand '{operand}' has shape {found:?}, expected {wanted:?}")]
pub struct OperandError {
    /// Name of the operand, or its number if the spec has no such operand.
    pub operand: String,
    /// Shape of the operand; `None` if it is missing.
    pub found: Option<Vec<usize>>,
    /// Shape that the spec requires; `None` if the spec has no such operand.
    pub wanted: Option<Vec<usize>>,
}

/// Checks that the operands have the number and the shapes that the spec requires.
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

/// Executes `program` with the operands of its spec, in order, and returns the output. Integers
/// beyond 2^24 are rounded to f32.
///
/// Vectorised, unrolled and parallel loops are executed like serial ones. A race is a
/// [`Problem::Conflict`]: an element of global memory that one task of a stage (see
/// [`crate::program::Stage::tasks`]) writes and another accesses, or an element of shared memory
/// that two threads of a block access without a barrier between them, one of them writing.
pub fn interpret(program: &Program, operands: &[ArrayD<f32>]) -> Result<ArrayD<f32>, InterpError> {
    check_operands(&program.spec, operands)?;
    let memory = program.buffers.iter().map(|buffer| content(&program.spec, buffer, operands));
    let mut machine = Interpreter::new(program, memory.collect::<Result<_, _>>()?);
    for stage in &program.stages {
        let place = || format!("stage '{}'", stage.name);
        machine.stage(stage).map_err(|problem| ProgramError { place: place(), problem })?;
    }

    let output =
        program.find(Role::Output).ok_or_else(|| interface("program".into(), "the program has no output buffer"))?;
    let buffer = program.buffer(output);
    let shape = program.spec.find(Role::Output).map_or(&[][..], |tensor| &tensor.shape);
    let result: Vec<f32> = machine.memory[output.0 as usize].iter().map(|&number| number as f32).collect();
    Ok(from_layout(&result, shape, buffer.layout).map_err(|e| misfit(buffer, &e))?)
}

/// Returns the initial content of a buffer: an operand, rounded to its type, or NaN.
fn content(spec: &Spec, buffer: &Buffer, operands: &[ArrayD<f32>]) -> Result<Vec<f64>, ProgramError> {
    let given = match buffer.role {
        Role::Operand(number) => spec.find(buffer.role).zip(operands.get(number)),
        Role::Output | Role::Packed | Role::Accumulator => None,
    };
    let Some((tensor, operand)) = given else { return Ok(vec![f64::NAN; buffer.len()]) };

    // Factors of a contraction may be rounded more coarsely than stored elements (tf32).
    let rounded = match spec.is_multiplied(tensor) {
        true => operand.mapv(|x| tensor.dtype.multiplied(x)),
        false => operand.mapv(|x| tensor.dtype.stored(x)),
    };
    let data = to_layout(&rounded, buffer.layout).map_err(|e| misfit(buffer, &e))?;
    if data.len() != buffer.len() {
        let what = format!("the buffer has {} elements, the tensor {}", buffer.len(), data.len());
        return Err(interface(format!("buffer '{}'", buffer.name), what));
    }
    Ok(data.into_iter().map(f64::from).collect())
}

fn misfit(buffer: &Buffer, error: &LayoutError) -> ProgramError {
    interface(format!("buffer '{}'", buffer.name), error.to_string())
}

fn interface(place: String, what: impl Into<String>) -> ProgramError {
    ProgramError { place, problem: Problem::Interface(what.into()) }
}
