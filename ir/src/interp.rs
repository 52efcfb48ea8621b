//! The loop nest executed one iteration after another: slow and obviously right, the oracle for
//! every code generator.
//!
//! Memory that nothing has written is NaN, also in a buffer that is entered again, and every
//! operation passes NaN on, so that a read of undefined memory shows in the output. Values are f32,
//! integers i32 ([`Expr::is_integer`](crate::program::Expr::is_integer)); operands are rounded to
//! their types first, and whatever is stored is rounded to its buffer's. Memory is kept as f64,
//! which holds both exactly. Every index is looked at before it is used. Tasks that touch each
//! other's memory are an error.
//!
//! The threads of a GPU's block run one after the other from barrier to barrier. Two of them that
//! touch one element of shared memory between two barriers, or of global memory at any time, are an
//! error if one of them writes. A copy to shared memory that is under way touches its element
//! twice, where it begins and where it is awaited, and leaves it undefined in between; two of them
//! to one element are a race. Of a block whose warps are specialised, producer and consumers go on
//! each until it must wait for the other, the producer first whenever it can.

use ndarray::ArrayD;
use thiserror::Error;

use crate::layout::{LayoutError, from_layout, to_layout};
use crate::problem::{Problem, ProgramError};
use crate::program::{Buffer, Program, Role};
use crate::spec::Spec;

mod block;
mod machine;
mod marks;
mod roles;

use machine::Machine;

/// Why a program cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InterpError {
    /// The operands are not the workload's.
    #[error(transparent)]
    Operand(#[from] OperandError),
    /// Something that is done makes no sense. Tasks that meet are a [`Problem::Conflict`].
    #[error(transparent)]
    Program(#[from] ProgramError),
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

/// The output of `program` for the operands of its spec, in order; integers beyond 2^24 are rounded
/// to f32.
///
/// Vectorized, unrolled and parallel loops run like serial ones. A location of global memory that
/// is written by one task of a stage (see [`crate::program::Stage::tasks`]) and read or written by
/// another is a [`Problem::Conflict`], and so is one of shared memory that is touched by two
/// threads of a block without a barrier between.
pub fn interpret(program: &Program, operands: &[ArrayD<f32>]) -> Result<ArrayD<f32>, InterpError> {
    check_operands(&program.spec, operands)?;
    let memory = program.buffers.iter().map(|buffer| content(&program.spec, buffer, operands));
    let mut machine = Machine::new(program, memory.collect::<Result<_, _>>()?);
    for stage in &program.stages {
        let place = || format!("stage '{}'", stage.name);
        machine.stage(stage).map_err(|problem| ProgramError { place: place(), problem })?;
    }

    let output = program.find(Role::Output).ok_or_else(|| interface("program".into(), "there is no output"))?;
    let buffer = program.buffer(output);
    let shape = program.spec.find(Role::Output).map_or(&[][..], |tensor| &tensor.shape);
    let result: Vec<f32> = machine.memory[output.0 as usize].iter().map(|&number| number as f32).collect();
    Ok(from_layout(&result, shape, buffer.layout).map_err(|e| misfit(buffer, &e))?)
}

/// What a buffer holds at first: an operand, rounded as its type is where it is used, or nothing.
fn content(spec: &Spec, buffer: &Buffer, operands: &[ArrayD<f32>]) -> Result<Vec<f64>, ProgramError> {
    let given = match buffer.role {
        Role::Operand(number) => spec.find(buffer.role).zip(operands.get(number)),
        Role::Output | Role::Packed | Role::Accumulator => None,
    };
    let Some((tensor, operand)) = given else { return Ok(vec![f64::NAN; buffer.len()]) };
    let rounded = match spec.is_multiplied(tensor) {
        true => operand.mapv(|x| tensor.dtype.multiplied(x)),
        false => operand.mapv(|x| tensor.dtype.stored(x)),
    };
    let data = to_layout(&rounded, buffer.layout).map_err(|e| misfit(buffer, &e))?;
    if data.len() != buffer.len() {
        let what = format!("{} elements for a tensor of {}", buffer.len(), data.len());
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
