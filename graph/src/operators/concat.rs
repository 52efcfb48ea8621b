//! Concatenation of tensors.

use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Concat", import).keeps_bytes()];

/// Concatenation of tensors along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concat {
    /// Axis along which the operands are joined.
    pub axis: usize,
}

impl Operator for Concat {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=usize::MAX)?;
        check_alike(operands, 0)?;
        let shapes: Vec<&[usize]> = operands.iter().map(|&(shape, _)| shape).collect();
        Ok((output(self.axis, &shapes)?, operands[0].1))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let axis = self.axis;
        fn of<T: Typed>(axis: usize, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
            let parts: Vec<_> =
                (0..operands.len()).map(|part| values::<T>(operands, part)).collect::<Result<_, _>>()?;
            let mut all: Vec<T> = Vec::with_capacity(elements(shape)?);
            let rows = shape[..axis].iter().product::<usize>();
            // A row of the output consists of the same row of each part.
            for row in 0..rows {
                for part in &parts {
                    let size = part.len() / rows;
                    all.extend(&part[row * size..(row + 1) * size]);
                }
            }
            tensor(shape, all)
        }
        by_type!(operands[0].dtype(), of(axis, operands, shape))
    }

    fn movement(&self, _: &NodeView) -> Option<Movement> {
        Some(Movement::Parts(self.axis))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("Concat", vec![int("axis", self.axis)])
    }
}

fn output(axis: usize, shapes: &[&[usize]]) -> Result<Vec<usize>, OpError> {
    let mut shape = shapes[0].to_vec();
    axis_of(axis, &shape)?;
    shape[axis] = 0;
    for other in shapes {
        let fits = other.len() == shape.len() && (0..shape.len()).all(|a| a == axis || other[a] == shape[a]);
        let sum = if fits { shape[axis].checked_add(other[axis]) } else { None };
        match sum {
            Some(sum) => shape[axis] = sum,
            None => return unfit(format!("cannot concatenate shapes {:?} and {other:?} along axis {axis}", shapes[0])),
        }
    }
    Ok(shape)
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    let operands = call.operands()?;
    let &first = operands.first().ok_or_else(|| missing(0))?;
    let number = call.int("axis")?.ok_or_else(|| attribute("axis", "is missing"))?;
    let axis = axis(number, call.rank(first))?;
    match &operands[..] {
        [only] => Ok(*only),
        _ => call.add(Concat { axis }, &operands),
    }
}
