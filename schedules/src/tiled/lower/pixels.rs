//! Reading and writing pixels of which only the number is known.

use super::{Lowering, Place, guarded, registers};
use crate::contraction::{AxisId, divide};
use crate::lower::partial::fused;
use crate::lower::{assign, at, load, nest};
use crate::tiled::pixels::{AXIS, Pixels};
use autotune_ir::affine::Affine;
use autotune_ir::program::{Digit, Expr, InBounds, LoopKind, Node};

/// Image, row and column of a pixel, and the node that finds them.
pub(super) struct Found {
    value: Affine,
    digits: Vec<Digit>,
    /// `n, oh, ow` of the first of `width` pixels.
    pub(super) pixel: [Affine; 3],
}

impl Found {
    /// The body within the node.
    pub(super) fn around(self, body: Vec<Node>) -> Vec<Node> {
        vec![Node::Unflatten { value: self.value, digits: self.digits, body }]
    }
}

impl Lowering<'_> {
    /// Finds the pixel `number`, a multiple of `width`, which divides the rows. With `beyond`, numbers that no pixel has are
    /// found in images beyond the last, else they are not.
    pub(super) fn find_pixel(&mut self, pixels: &Pixels, number: &Affine, width: usize, beyond: bool) -> Found {
        let [images, rows, columns] = pixels.extents;
        let value = divide(number, width);
        let (_, most) = value.range(|v| self.extents[v.0 as usize]);
        let of_image = rows * columns / width;
        let images = if beyond { most as usize / of_image + 1 } else { images };
        let names = ["n", "oh", "ow"].into_iter();
        let digits: Vec<Digit> = names
            .zip([images, rows, columns / width])
            .map(|(name, extent)| Digit { var: self.var(name.into(), extent), extent })
            .collect();
        let var = |i: usize, step: usize| Affine::var(digits[i].var) * step as i64;
        let pixel = [var(0, 1), var(1, 1), var(2, width)];
        Found { value, digits, pixel }
    }

    /// The values of the convolution's own axes.
    fn conv_values(&self, pixels: &Pixels, values: &[Affine], pixel: &[Affine; 3]) -> Vec<Affine> {
        let value = |name: &str| match name {
            "n" => pixel[0].clone(),
            "oh" => pixel[1].clone(),
            "ow" => pixel[2].clone(),
            _ => self.tiled.contraction.axis(name).map_or(Affine::default(), |axis| values[axis].clone()),
        };
        pixels.conv.axes.iter().map(|axis| value(axis.name)).collect()
    }

    /// The axis over pixels.
    fn pixel_axis(&self) -> AxisId {
        self.tiled.contraction.axis(AXIS).unwrap_or_default()
    }

    /// An element of the input, `places` behind the first of `columns` that the block needs of a chunk; zero in the padding,
    /// beyond the last pixel and beyond the last channel. `place` is that of the pixel without the lane.
    pub(super) fn fetch_pixel(
        &mut self,
        pixels: &Pixels,
        places: &[Affine],
        (place, lane): (&Affine, &Affine),
        base: &[(AxisId, Affine)],
    ) -> (Found, Expr) {
        let axis = self.pixel_axis();
        let number = self.block_base[axis].clone() + place.clone();
        let mut found = self.find_pixel(pixels, &number, self.tiled.staged[0].vector, true);
        found.pixel[2] = found.pixel[2].clone() + lane.clone();
        let mut values = self.block_base.clone();
        base.iter().for_each(|(axis, value)| values[*axis] = value.clone());
        for (index, place) in self.tiled.staged[0].source.index.iter().zip(places) {
            if let [(axis, 1)] = index.terms[..] {
                let axis = axis.0 as usize;
                values[axis] = values[axis].clone() + place.clone();
            }
        }
        let mut bounds = vec![(found.pixel[0].clone(), pixels.extents[0])];
        for (axis, info) in self.tiled.contraction.axes.iter().enumerate().filter(|(_, info)| info.reduce) {
            bounds.push((values[axis].clone(), info.extent));
        }
        let data = &pixels.conv.data;
        let own = self.conv_values(pixels, &values, &found.pixel);
        let index: Vec<Affine> = data.index.iter().map(|index| at(index, &own)).collect();
        // Rows and columns; images and channels end where their axes do.
        bounds.extend((2..4).map(|dim| (index[dim].clone(), data.shape[dim])));
        let when: Vec<InBounds> = self.guards(bounds);
        let value = load(self.sources[0], index);
        let value = if when.is_empty() { value } else { Expr::Guarded { when, value: Box::new(value) } };
        (found, value)
    }

    /// `output = act(acc + bias + residual)` or `partial[part] = acc`, as many neighbouring pixels at once as rows allow.
    ///
    /// ```text
    /// for p.v, p.q { unflatten (n, oh, ow) = pixel/w { for o { if o in 0..O { for lane in 0..w { output[n, o, oh, w*ow + lane] = .. }}}}}
    /// ```
    pub(super) fn write_pixels(&mut self, pixels: &Pixels) -> Vec<Node> {
        let tiled = self.tiled;
        let axis = self.pixel_axis();
        let tile = tiled.spatial.iter().find(|t| t.axis == axis).copied();
        let others: Vec<_> = tiled.spatial.iter().copied().filter(|t| t.axis != axis).collect();
        let (strands, register) = tile.map_or((1, 1), |t| (t.strands(), t.register));
        let width = (1..=register)
            .rev()
            .find(|w| register.is_multiple_of(*w) && pixels.extents[2].is_multiple_of(*w))
            .unwrap_or(1);
        let (mut loops, mut lanes) = (Vec::new(), Vec::new());
        let strand = self.open(format!("{AXIS}.v"), strands, LoopKind::Unrolled, &mut loops);
        let first = self.open(format!("{AXIS}.q"), register / width, LoopKind::Unrolled, &mut loops) * width as i64;
        let lane = self.open("lane".into(), width, LoopKind::Vectorized, &mut lanes);
        let place: Place = vec![(axis, [strand.clone(), first.clone()])];
        let number = self.in_block(&place)[axis].clone() + self.block_base[axis].clone();
        let mut found = self.find_pixel(pixels, &number, width, false);
        found.pixel[2] = found.pixel[2].clone() + lane.clone();

        let (other_loops, other_place) = self.tile_loops(&others, LoopKind::Unrolled);
        let mut values = self.in_block(&other_place);
        values.iter_mut().zip(&self.block_base).for_each(|(value, base)| *value = value.clone() + base.clone());
        let own = self.conv_values(pixels, &values, &found.pixel);
        let index: Vec<Affine> = pixels.conv.output.index.iter().map(|index| at(index, &own)).collect();
        let mut in_tile: Place = Vec::new();
        for t in &tiled.spatial {
            match other_place.iter().find(|(other, _)| *other == t.axis) {
                Some(place) => in_tile.push(place.clone()),
                None => in_tile.push((axis, [strand.clone(), first.clone() + lane.clone()])),
            }
        }
        let sum = load(self.acc, registers(&in_tile));
        let store = match self.partial {
            Some(partial) => assign(partial, [vec![self.part()], index].concat(), sum),
            None => {
                let value = fused(self.workload, &self.operands, sum, at(&pixels.conv.bias, &own), &index);
                assign(self.operands.output, index, value)
            }
        };
        let when = self.guards(others.iter().map(|t| (values[t.axis].clone(), self.extent(t.axis))));
        let body = found.around(nest(other_loops, guarded(when, nest(lanes, vec![store]))));
        nest(loops, body)
    }
}
