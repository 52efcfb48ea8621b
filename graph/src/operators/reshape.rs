//! Change of shape without moving elements.

use super::prelude::*;
use crate::onnx::error::unfit;
use crate::onnx::tensor::extents;
use crate::op;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Reshape", import).keeps_bytes(),
    OnnxOperator::one("Flatten", flatten).keeps_bytes(),
    OnnxOperator::one("Squeeze", squeeze).keeps_bytes(),
    OnnxOperator::one("Unsqueeze", unsqueeze).keeps_bytes(),
];

/// Same elements in another shape, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape(pub Vec<usize>);

impl Operator for Reshape {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        let (shape, dtype) = operands[0];
        match elements(&self.0)? == elements(shape)? {
            true => Ok((self.0.clone(), dtype)),
            false => op::unfit(format!("{shape:?} does not have as many elements as {:?}", self.0)),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        fn of<T: Typed>(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
            tensor(shape, values::<T>(operands, 0)?.into_owned())
        }
        by_type!(operands[0].dtype(), of(operands, shape))
    }

    fn movement(&self, _: &NodeView) -> Option<Movement> {
        Some(Movement::Piece(0))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let shape = to.integers(self.0.iter().map(|&extent| extent as i64))?;
        // With `allowzero`, an extent of 0 does not copy the input's.
        to.node("Reshape", &[&to.input(0), &shape], vec![int("allowzero", 1)])
    }

    fn is_cheap(&self) -> bool {
        true
    }
}

impl Call<'_> {
    pub(crate) fn reshape(&mut self, shape: &[usize], x: ImportValue) -> call::Result<ImportValue> {
        match self.draft.shape(x) == shape {
            true => Ok(x),
            false => self.add(Reshape(shape.to_vec()), &[x]),
        }
    }

    /// Inserts axes of one element. Their positions in the result ascend.
    pub(crate) fn insert_axes(&mut self, x: ImportValue, axes: &[usize]) -> call::Result<ImportValue> {
        let mut shape = self.shape(x);
        // Each insertion leaves those before it in place.
        axes.iter().for_each(|&axis| shape.insert(axis, 1));
        self.reshape(&shape, x)
    }
}

/// Imports a reshape. An extent of 0 copies the input's, unless `allowzero` is set; -1 is inferred.
fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let means_zero = call.flag("allowzero", false)?;
    let from = call.shape(x);
    let wanted = call.known_integers(1)?.ok_or_else(|| missing(1))?;

    let same = |axis: usize| from.get(axis).map(|&extent| extent as i64);
    let filled = wanted.iter().enumerate().map(|(axis, &extent)| match extent {
        0 if !means_zero => same(axis),
        extent => Some(extent),
    });
    let filled: Option<Vec<i64>> = filled.collect();
    let Some(mut filled) = filled else {
        return unfit(format!("shape {:?} copies an axis that {from:?} lacks", listed(&wanted)));
    };

    // An extent of -1 takes the elements that are left.
    let open: Vec<usize> = (0..filled.len()).filter(|&axis| filled[axis] == -1).collect();
    if let &[axis] = &open[..] {
        // The open extent counts as 1 in the product of the others.
        filled[axis] = 1;
        let rest = elements(&extents(&filled).map_err(NodeError::Unfit)?)?;
        let whole = elements(&from)?;
        match whole.checked_div(rest) {
            Some(extent) if extent * rest == whole => filled[axis] = extent as i64,
            _ => return unfit(format!("{whole} elements do not fit shape {:?}", listed(&wanted))),
        }
    }
    let to = extents(&filled).map_err(NodeError::Unfit)?;
    call.reshape(&to, x)
}

/// Imports a reshape to a matrix; `axis` separates rows from columns.
fn flatten(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let at = match call.int_or("axis", 1)? {
        // The rank is valid here: then all axes are rows.
        at if at == shape.len() as i64 => shape.len(),
        at => axis(at, shape.len())?,
    };
    let matrix = [elements(&shape[..at])?, elements(&shape[at..])?];
    call.reshape(&matrix, x)
}

fn squeeze(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let axes = match call.integers("axes", 1, 13)? {
        Some(numbers) => axes(&numbers, shape.len())?,
        None => (0..shape.len()).filter(|&axis| shape[axis] == 1).collect(),
    };
    if let Some(axis) = axes.iter().find(|&&axis| shape[axis] != 1) {
        return unfit(format!("axis {axis} of shape {shape:?} does not have extent 1"));
    }
    let kept: Vec<usize> = (0..shape.len()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect();
    call.reshape(&kept, x)
}

/// Imports new axes of extent 1, counted in the output.
fn unsqueeze(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.operand(0)?;
    let none = || NodeError::Unfit("the axes are missing".into());
    let numbers = call.integers("axes", 1, 13)?.ok_or_else(none)?;
    let axes = axes(&numbers, call.rank(x) + numbers.len())?;
    call.insert_axes(x, &axes)
}
