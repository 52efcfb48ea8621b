//! Rules between the knobs of the direct sketch, and limits of the target.

use super::{DataMode, Direct, extent};
use crate::affine::VarId;
use crate::contraction::AxisId;
use crate::lower::LowerError;
use crate::program::Layout;
use crate::target::CpuTarget;

/// Straight-line multiply-accumulates of one loop body beyond which compilers are slow and the instruction cache overflows.
const MAX_BODY: usize = 1024;
/// The same of all register tiles together: whole ones, remainders and those that touch padding.
const MAX_CODE: usize = 8 * MAX_BODY;
/// Tiles that may be peeled off one end of an axis for padding.
const MAX_PEELED: i64 = 4;

impl Direct {
    /// Rules between knobs and limits of the target.
    pub(super) fn check(&self, target: &CpuTarget, data_layout: Layout) -> Result<(), LowerError> {
        let plain_in = self.in_layout == Layout::Plain;
        let plain_data = data_layout == Layout::Plain;
        if !plain_in && plain_data {
            return Err(LowerError::knob("layout.data", "a blocked input is not copied to a plain layout"));
        }
        match self.data_mode {
            DataMode::InPlace if plain_in != plain_data => {
                return Err(LowerError::knob("layout.data", "differs from layout.in though data is read in place"));
            }
            DataMode::Copy if plain_in == plain_data && !self.contraction.is_padded() => {
                return Err(LowerError::knob("data", "a copy without padding or another layout"));
            }
            _ => {}
        }
        self.check_vector(target)?;
        let body = self.check_registers(target)?;
        self.check_peeling()?;
        self.check_memory(target)?;
        let code = body.saturating_mul(self.leaves());
        if code > MAX_CODE {
            let reason = format!("{code} multiply-accumulates in all register tiles exceed {MAX_CODE}");
            return Err(LowerError::knob("tile", reason));
        }
        Ok(())
    }

    /// The vector is whole registers or the whole axis. Along it weights and output must have stride 0 or 1 (the output any along packed channels), the data operand
    /// too unless the vector runs along the width.
    fn check_vector(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let register = self.register_extent(self.vector);
        if !register.is_multiple_of(target.lanes()) && register < self.contraction.axes[self.vector].extent {
            return Err(LowerError::knob("tile", format!("{register} elements are no whole vectors")));
        }
        if register == 1 {
            return Ok(());
        }
        if !self.packed_weights && ![0, 1].contains(&self.contraction.weight.stride(self.vector)) {
            return Err(LowerError::knob("vector", "the weights are strided along it"));
        }
        let along_width = !self.contraction.weight.uses(self.vector);
        if !along_width && ![0, 1].contains(&self.data.stride(self.vector)) {
            return Err(LowerError::knob("vector", "the data operand is strided along it"));
        }
        if along_width && self.output.stride(self.vector) != 1 {
            return Err(LowerError::knob("vector", "the output is strided along it"));
        }
        if along_width && self.data_mode == DataMode::InPlace && self.contraction.is_padded() {
            return Err(LowerError::knob("data", "vectors along a padded axis need a copy"));
        }
        Ok(())
    }

    /// Register budget and length of the straight-line body, which is returned.
    fn check_registers(&self, target: &CpuTarget) -> Result<usize, LowerError> {
        let pieces = pieces(self.register_extent(self.vector), target.lanes());
        let tile = self.register_tile();
        let product = |uses: &dyn Fn(AxisId) -> bool| -> usize {
            tile.iter().filter(|t| t.0 != self.vector && uses(t.0)).map(|t| t.1).product()
        };
        let accumulators = product(&|_| true) * pieces;
        let weights_are_vectors = self.contraction.weight.uses(self.vector);
        let data_are_vectors = self.data.uses(self.vector);
        let weights = product(&|a| self.contraction.weight.uses(a)) * if weights_are_vectors { pieces } else { 1 };
        let data = product(&|a| self.data.uses(a)) * if data_are_vectors { pieces } else { 1 };
        let needed = accumulators + weights.min(data) + 1;
        let registers = target.isa.vector_registers();
        if needed > registers {
            let reason = format!("the register tile needs {needed} vector registers of {registers}");
            return Err(LowerError::knob("tile", reason));
        }
        let steps = if self.contraction.is_padded() && self.data_mode == DataMode::InPlace {
            let taps = |n: &str| extent(&self.contraction, n);
            self.unroll.max(taps("kh") * taps("kw"))
        } else {
            self.unroll
        };
        if accumulators * steps > MAX_BODY {
            let reason = format!("{} multiply-accumulates in a row exceed {MAX_BODY}", accumulators * steps);
            return Err(LowerError::knob("unroll", reason));
        }
        Ok(accumulators * steps)
    }

    /// Number of nests that the register tiles become: along each axis, runs of like tiles in runs of like cache tiles.
    fn leaves(&self) -> usize {
        let axes = 0..self.contraction.axes.len();
        axes.filter(|a| !self.batch.contains(a)).map(|a| self.leaves_along(a)).fold(1, usize::saturating_mul)
    }

    fn leaves_along(&self, axis: AxisId) -> usize {
        let extent = self.contraction.axes[axis].extent;
        let tile = self.cache_extent(axis);
        let (whole, rest) = (extent / tile, extent % tile);
        if self.contraction.axes[axis].reduce {
            return extent.div_ceil(tile).min(3);
        }
        let register = self.register_extent(axis);
        let runs = |extent: usize| usize::from(extent >= register) + usize::from(!extent.is_multiple_of(register));
        let touches_padding = self.data_mode == DataMode::InPlace && {
            let dims = 0..self.contraction.data.shape.len();
            let index = |d: usize| &self.contraction.data.index[d];
            dims.filter(|&d| index(d).coefficient(VarId(axis as u32)) != 0).any(|d| self.contraction.pads(d))
        };
        // A cache tile at either end is by itself, and so is a register tile at either end of the axis.
        let ends = if touches_padding { whole.saturating_sub(1).min(2) * runs(tile) + 2 } else { 0 };
        usize::from(whole > 0) * runs(tile) + usize::from(rest > 0) * runs(rest) + ends
    }

    /// Peeling must stay small.
    fn check_peeling(&self) -> Result<(), LowerError> {
        if self.data_mode == DataMode::Copy {
            return Ok(());
        }
        for dim in 0..self.contraction.data.shape.len() {
            let (low, high) = self.contraction.data_range(dim);
            let over = (-low).max(high - self.contraction.data.shape[dim] as i64 + 1);
            if over <= 0 {
                continue;
            }
            let index = &self.contraction.data.index[dim];
            let tiles = if self.data_mode == DataMode::InPlace { &self.inner } else { &self.cache };
            for l in tiles {
                let stride = index.coefficient(VarId(l.axis as u32));
                let spatial = !self.contraction.axes[l.axis].reduce;
                if stride > 0 && spatial && over > stride * l.tile as i64 * MAX_PEELED {
                    return Err(LowerError::knob("tile", "too many tiles would be peeled for padding"));
                }
            }
        }
        Ok(())
    }

    /// A copied tile must fit the last-level cache share of a thread.
    fn check_memory(&self, target: &CpuTarget) -> Result<(), LowerError> {
        if self.data_mode == DataMode::Tile {
            let bytes = self.tile_shape().iter().product::<usize>() * 4;
            let limit = (target.l3_bytes / target.cores).max(target.l2_bytes);
            if bytes > limit {
                return Err(LowerError::knob("data", format!("a copied tile of {bytes} bytes exceeds {limit}")));
            }
        }
        Ok(())
    }
}

/// Vector registers that hold `extent` elements: whole vectors, then ever smaller powers of two.
pub fn pieces(extent: usize, lanes: usize) -> usize {
    extent / lanes + (extent % lanes).count_ones() as usize
}
