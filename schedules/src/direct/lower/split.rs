//! Copies of f32 factors in two parts of fewer bits, for tile instructions.
//!
//! ```text
//! tile[0, ..] = x                    rounded to bf16: the high part
//! tile[1, ..] = x - bf16(x)          rounded to bf16: the low part
//! sums[..] += data[0, ..] * weight[0, ..]
//!           + data[0, ..] * weight[1, ..] + data[1, ..] * weight[0, ..]
//! ```
//!
//! Each part has 8 significant bits, so that a value loses at most 2^-17 of itself. The product of
//! the low parts is left out: it is at most 2^-18 of the whole product. Infinities become NaN.

use super::{DirectLowering, assign};
use crate::direct::PARTS;
use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BinaryOp, BufferId, Expr, Node, UnaryOp};

impl DirectLowering<'_> {
    /// Returns the leading index of a part of split copies; none for copies that are not split.
    pub(super) fn part(&self, part: usize) -> Vec<Affine> {
        if self.direct.is_split { vec![Affine::constant(part as i64)] } else { Vec::new() }
    }

    /// Returns the shape of a copy, with a dimension for its parts if it is split.
    pub(super) fn with_parts(&self, shape: Vec<usize>) -> Vec<usize> {
        let parts = self.direct.is_split.then_some(PARTS);
        parts.into_iter().chain(shape).collect()
    }

    /// Returns the stores of a value to an element of a copy: one store per part.
    pub(super) fn copy_of(&self, dst: BufferId, index: Vec<Affine>, value: Expr) -> Vec<Node> {
        if !self.direct.is_split {
            return vec![assign(dst, index, value)];
        }
        let dtype = self.all.buffers[dst.0 as usize].dtype;
        let high = Expr::unary(UnaryOp::Cast(dtype), value.clone());
        let low = match value {
            Expr::Const(0.0) => value.clone(),
            _ => Expr::binary(BinaryOp::Sub, value.clone(), high),
        };
        let of_part = |(part, value)| assign(dst, [self.part(part), index.clone()].concat(), value);
        [value, low].into_iter().enumerate().map(of_part).collect()
    }

    /// Returns the product of two factors, given their high parts if they are split.
    pub(super) fn product_of(&self, data: Expr, weight: Expr) -> Expr {
        if !self.direct.is_split {
            return Expr::product(data, weight);
        }
        let low = |high: &Expr| match high {
            Expr::Load(Access { buffer, index }) => {
                let mut index = index.clone();
                index[0] = Affine::constant(1);
                Expr::Load(Access { buffer: *buffer, index })
            }
            other => other.clone(),
        };
        let parts = [low(&data), low(&weight)];
        Expr::split_product([data, weight], parts)
    }
}
