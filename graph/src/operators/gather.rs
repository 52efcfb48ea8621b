//! Selection of slices by index.

use autotune_workloads::{self as workload, Workload};

use super::indices::place;
use super::prelude::*;
use crate::constant::Constant;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Gather", import)];

/// Slices of the first operand along an axis, selected by the integer indices in the second;
/// negative indices count from the end. The index shape replaces the axis in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Axis of the first operand that is indexed.
    pub axis: usize,
}

impl Operator for Gather {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 2..=2)?;
        check_dtype(operands, 1, DType::I64)?;
        let ((data, dtype), (numbers, _)) = (operands[0], operands[1]);
        let axis = axis_of(self.axis, data)?;
        Ok(([&data[..axis], numbers, &data[axis + 1..]].concat(), dtype))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let axis = self.axis;
        fn of<T: Typed>(axis: usize, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
            let (x, from) = (values::<T>(operands, 0)?, operands[0].shape());
            let (outer, extent) = (from[..axis].iter().product::<usize>(), from[axis]);
            let inner = from[axis + 1..].iter().product::<usize>();
            let place = |&number: &i64| place(number, extent, axis);
            let places: Vec<usize> = values::<i64>(operands, 1)?.iter().map(place).collect::<Result<_, _>>()?;

            let mut all: Vec<T> = Vec::with_capacity(elements(shape)?);
            for row in 0..outer {
                let row = &x[row * extent * inner..][..extent * inner];
                match inner {
                    // Appending slices of one element would take several times as long.
                    1 => all.extend(places.iter().map(|&place| row[place])),
                    _ => places.iter().for_each(|place| all.extend(&row[place * inner..][..inner])),
                }
            }
            tensor(shape, all)
        }
        by_type!(operands[0].dtype(), of(axis, operands, shape))
    }

    /// Returns a gather along the first axis. Indices that are not constant may be negative.
    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let known = node.op(1).of::<Constant>().and_then(|numbers| numbers.tensor().ok()?.as_i64());
        let from_end = known.is_none_or(|numbers| numbers.iter().any(|&number| number < 0));
        let (k, row) = node.shape(0).split_first().filter(|_| self.axis == 0)?;
        let (m, n) = (node.shape(1).iter().product(), row.iter().product());
        Some(Anchor::new(Workload::new(workload::GatherWorkload { m, n, k: *k, from_end }).ok()?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("Gather", vec![int("axis", self.axis)])
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let (x, numbers) = (call.operand(0)?, call.operand(1)?);
    let axis = axis(call.int_or("axis", 0)?, call.rank(x))?;
    call.add(Gather { axis }, &[x, numbers])
}
