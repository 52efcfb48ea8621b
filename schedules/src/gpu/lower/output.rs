//! Stores of a tile's sums from registers to the output.

use super::GpuLowering;
use crate::contraction::{AxisId, divide};
use crate::lower::nest::guarded;
use crate::lower::{assign, at, load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::program::{LoopKind, Node};

impl GpuLowering<'_> {
    /// Returns `output = act(acc + bias + residual)`, or `partial[part] = acc` for a split, for the
    /// elements in bounds:
    ///
    /// ```text
    /// unrolled sums of a row, vectorized the last { if inside { output[..] = .. } }
    /// ```
    ///
    /// The index of a pixel is split once for all channels. Where adjacent pixels are contiguous,
    /// as many as rows allow are stored as a vector:
    ///
    /// ```text
    /// unrolled sums of p { unflatten (n, oh, ow) = p/w { unrolled other sums { if inside {
    ///   vectorized lane in 0..w { output[..] = .. } } } } }
    /// ```
    pub(crate) fn write_output(&mut self) -> Vec<Node> {
        let tiling = self.tiling;
        let pixels = tiling.roles.pixels.as_ref();
        let fused_axis = pixels.map(|pixels| pixels.axis);
        let in_rows = pixels.filter(|pixels| pixels.contiguous).map(|pixels| pixels.digits[pixels.digits.len() - 1].1);
        let neighbours = tiling.sums.iter().rposition(|level| in_rows.is_some() && Some(level.axis) == fused_axis);

        // A vector of pixels must not cross the end of a row.
        let run = |extent: usize, row: usize| {
            (1..=extent).rev().find(|w| extent.is_multiple_of(*w) && row.is_multiple_of(*w)).unwrap_or(1)
        };

        // Sums are ordered by pixels first, then by axis.
        let rank = |axis: AxisId| (fused_axis != Some(axis), tiling.spatial.iter().position(|tile| tile.0 == axis));
        let mut order: Vec<usize> = (0..tiling.sums.len()).collect();
        order.sort_by_key(|&i| rank(tiling.sums[i].axis));

        let (mut outer, mut inner, mut lanes) = (Vec::new(), Vec::new(), Vec::new());
        let mut index = vec![Affine::default(); tiling.sums.len()];
        let (mut width, mut lane) = (1, Affine::default());
        for &i in &order {
            let level = &tiling.sums[i];
            let loops = if fused_axis == Some(level.axis) { &mut outer } else { &mut inner };
            index[i] = match in_rows.filter(|_| neighbours == Some(i)) {
                None => self.open(level, LoopKind::Unrolled, loops),
                Some(row) => {
                    width = run(level.extent, row);
                    lane = self.all.open_some("lane", width, LoopKind::Vectorized, &mut lanes);
                    let first = self.all.open_some("p.q", level.extent / width, LoopKind::Unrolled, loops);
                    first * width as i64
                }
            };
        }
        if let (None, Some(last), Some(&i)) = (in_rows, inner.last_mut(), order.last())
            && tiling.sums[i].extent > 1
        {
            last.2 = LoopKind::Vectorized;
        }

        let values = self.point(self.in_block(tiling.sums.iter(), &index), &Vec::new());
        if let Some(i) = neighbours {
            index[i] = index[i].clone() + &lane;
        }
        let sum = load(self.acc, index);

        // Splitting a pixel into digits skips numbers out of bounds, so only other axes need
        // guards.
        let edges = tiling.spatial.iter().filter(|tile| Some(tile.0) != fused_axis);
        let when = self.all.guards(edges.map(|&(axis, _)| (values[axis].clone(), tiling.roles.extent(axis))));
        let body = self.at_pixel(&values, (width, &lane), false, |this, own| {
            let (output, bias) = (&tiling.roles.own.output, &tiling.roles.own.bias);
            let to: Vec<Affine> = output.index.iter().map(|index| at(index, own)).collect();
            let operands = &this.operands.operands;
            let store = match this.operands.partial {
                Some(partial) => assign(partial, [std::slice::from_ref(&this.part), &to].concat(), sum),
                None => {
                    let value = operands.fused(sum, &at(bias, own), &to);
                    assign(operands.output, to, value)
                }
            };
            nest(inner, guarded(when, nest(lanes, vec![store])))
        });
        nest(outer, body)
    }

    /// Calls `body` with the values of the workload's own axes. These are the tiled axes, or, with
    /// pixels, the digits of a pixel. The pixel is `lane` after a multiple of `width`, which
    /// divides the rows. With `beyond`, pixel numbers after the last belong to images after the
    /// last; otherwise `body` is skipped for them.
    pub(super) fn at_pixel(
        &mut self,
        values: &[Affine],
        (width, lane): (usize, &Affine),
        beyond: bool,
        body: impl FnOnce(&mut Self, &[Affine]) -> Vec<Node>,
    ) -> Vec<Node> {
        let Some(pixels) = &self.tiling.roles.pixels else { return body(self, values) };
        let value = divide(&values[pixels.axis], width);
        let (mut digits, last) = (pixels.digits.clone(), pixels.digits.len() - 1);
        // The last digit counts vectors of pixels.
        digits[last].1 /= width;
        if beyond {
            let image: usize = digits[1..].iter().map(|digit| digit.1).product();
            digits[0].1 = self.all.range(&value).1 as usize / image + 1;
        }

        let (digits, mut pixel) = self.all.digits(digits);
        pixel[last] = pixel[last].clone() * width as i64 + lane;
        let own = self.tiling.roles.own_values(values, &pixel);
        vec![Node::Unflatten { value, digits, body: body(self, &own) }]
    }
}
