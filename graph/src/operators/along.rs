//! Products of tensors with constant matrices along one axis, for imports of linear operators.

use super::matmul::MatMul;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

impl Call<'_> {
    /// Adds a constant of this shape, whose elements count towards the budget of the import before
    /// they are computed.
    pub(super) fn computed(&mut self, shape: &[usize], all: impl FnOnce() -> Vec<f32>) -> Result<ImportValue> {
        self.draft.spend(elements(shape)?, shape)?;
        Ok(self.constant(Tensor::f32(shape, all())?))
    }

    /// Multiplies each line of a tensor along an axis by a matrix `[to, from]`.
    pub(super) fn product_along(&mut self, x: ImportValue, axis: usize, matrix: ImportValue) -> Result<ImportValue> {
        let (mut shape, of_matrix) = (self.shape(x), self.shape(matrix));
        let (&[to, from], Some(own)) = (&of_matrix[..], shape.get_mut(axis)) else {
            return unfit(format!("a product of a matrix of shape {of_matrix:?} along axis {axis}"));
        };
        if *own != from {
            return unfit(format!("a product of a matrix of shape {of_matrix:?} with {own} elements"));
        }
        *own = to;
        let (outer, inner) = (elements(&shape[..axis])?, elements(&shape[axis + 1..])?);

        let product = match inner {
            // Lines are adjacent: one product of matrices.
            1 => {
                let rows = self.reshape(&[outer, from], x)?;
                let columns = self.transpose(&[1, 0], matrix)?;
                self.add(MatMul, &[rows, columns])?
            }
            _ => {
                let columns = self.reshape(&[outer, from, inner], x)?;
                self.add(MatMul, &[matrix, columns])?
            }
        };
        self.reshape(&shape, product)
    }
}
