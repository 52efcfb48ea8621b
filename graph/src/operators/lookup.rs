//! Look-ups of bytes in tables.

use autotune_ir::program::TABLE_LEN;
use autotune_workloads::{Epilogue, Pointwise, Types, Workload};
use rten_onnx::onnx::DataType;

use super::pointwise::rows_and_columns;
use super::prelude::*;
use super::scaled::{copy_along, saturated};
use crate::memory::is_of_bytes;
use crate::onnx::attribute::typed;

/// Element of a table, the second operand, at each index in the first, a tensor of u8. Tables have
/// an 8-bit type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup;

impl Operator for Lookup {
    fn output(&self, facts: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(facts, 2..=2)?;
        check_dtype(facts, 0, DType::U8)?;
        match facts[1] {
            ([TABLE_LEN], dtype) if is_of_bytes(dtype) => Ok((facts[0].0.to_vec(), dtype)),
            (shape, dtype) => unfit(format!("a table of {TABLE_LEN} bytes is needed, not {dtype} of shape {shape:?}")),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        fn of<T: Typed>(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
            let (indices, table) = (values::<u8>(operands, 0)?, values::<T>(operands, 1)?);
            tensor(shape, indices.iter().map(|&index| table[usize::from(index)]).collect())
        }
        by_type!(operands[1].dtype(), of(operands, shape))
    }

    /// Returns a copy whose epilogue looks elements up: of images for several spatial axes.
    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let (shape, out) = node.output();
        let copy = match shape.len() {
            4.. => copy_along(shape, 1),
            _ => Pointwise::copy(rows_and_columns(shape)),
        };
        let bare = Workload::new(copy).ok()?.with_epilogue(Epilogue { table: true, ..Epilogue::default() });
        let workload = bare.with_types(Types { out, ..Types::of(DType::U8) }).ok()?;
        Some(Anchor::new(workload, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        // In f32, as few runtimes read elements of bytes.
        let (index, table) = (to.input(0), to.input(1));
        let index = to.between("Cast", &[&index], vec![typed("to", DataType::INT64)]);
        let table = to.between("Cast", &[&table], vec![typed("to", DataType::FLOAT)]);
        let found = to.between("Gather", &[&table, &index], Vec::new());
        let dtype = to.operand(1).1;
        saturated(to, &found, dtype)
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}
