//! Rules between the knobs of the direct sketch, and limits of the target.

use super::{DataMode, Direct, Group, TileLoop};
use crate::contraction::{AxisId, Contraction, Operand};
use crate::error::LowerError;
use autotune_ir::affine::VarId;
use autotune_ir::analyse::{pieces, tile_registers};
use autotune_ir::instruction::{Registers, TILE_REGISTERS, TILE_ROWS, tile_registers_of};
use autotune_ir::program::{Layout, MAX_LOCAL_BYTES};
use autotune_ir::target::CpuTarget;
use autotune_workloads::axes::Axes;

/// Maximum number of multiply-accumulates in a straight-line loop body. Larger bodies compile
/// slowly and overflow the instruction cache.
const MAX_BODY: usize = 1024;
/// Maximum number of multiply-accumulates in all register tiles together: whole ones, remainders
/// and those that touch padding.
const MAX_CODE: usize = 8 * MAX_BODY;
/// Maximum number of nests that all register tiles together are lowered to.
const MAX_LEAVES: usize = 32;
/// Minimum number of channels that share an element of a panel, where the panel makes strided input
/// contiguous.
pub(super) const MIN_PANEL_CHANNELS: usize = 16;
/// Minimum number of columns that share an element of a panel of a matrix product. There the panel
/// avoids cache conflicts, but saves no instructions.
pub(super) const MIN_PANEL_COLUMNS: usize = 1024;
/// Minimum number of rows in the register tile of a matrix product with a panel.
const MIN_PANEL_ROWS: usize = 4;
/// Maximum number of cache tiles along an axis that may each have a remainder of register tiles or
/// unrolled steps. The verifier cannot prove that more pieces cover the axis.
const MAX_CUT_TILES: usize = 1 << 15;
/// Maximum number of tiles that are peeled off one end of an axis for padding.
const MAX_PEELED: i64 = 4;

impl Direct {
    /// Checks the rules between knobs and the limits of the target.
    pub(crate) fn check(&self, axes: &Axes, target: &CpuTarget, data_layout: Layout) -> Result<(), LowerError> {
        let plain_in = self.in_layout == Layout::Plain;
        let plain_data = data_layout == Layout::Plain;
        if !plain_in && plain_data {
            return Err(LowerError::knob("layout.data", "a channel-blocked input cannot be copied to a plain layout"));
        }

        // Only copies of the input or of tiles change the layout.
        match self.data_mode {
            DataMode::InPlace | DataMode::Panel if plain_in != plain_data => {
                return Err(LowerError::knob("layout.data", "differs from layout.in, but no copy changes the layout"));
            }
            DataMode::InPlace if self.contraction.prologue().is_some() => {
                return Err(LowerError::knob("data", "a prologue needs a copy of the data"));
            }
            DataMode::Copy
                if self.tile_group().is_none()
                    && plain_in == plain_data
                    && !self.contraction.is_padded()
                    && self.contraction.prologue().is_none() =>
            {
                return Err(LowerError::knob("data", "a copy needs padding, a prologue or a layout change"));
            }
            DataMode::Panel => self.check_panel(axes)?,
            _ => {}
        }

        self.check_dot()?;
        self.check_tiles()?;
        if !self.packed_weights && !self.contraction.axes_beyond_weights().is_empty() {
            return Err(LowerError::knob("weights", "weights that are read out of bounds must be packed"));
        }

        self.check_vector(target)?;
        let body = self.check_registers(target)?;
        self.check_peeling()?;
        self.check_cuts()?;
        self.check_memory(target)?;
        self.check_code(body)
    }

    /// Checks that the steps of a group are adjacent in both operands as register tiles read them.
    fn check_dot(&self) -> Result<(), LowerError> {
        let of_group = |operand: &Operand, group: &Group| operand.stride(group.axis);

        let spec = &self.contraction.spec;
        if let Some(group) = &self.dot {
            if !self.packed_weights && of_group(&self.contraction.weight, group) != 1 {
                return Err(LowerError::knob("weights", "the steps of a dot product must be adjacent in memory"));
            }
            if self.data_mode != DataMode::Panel && of_group(&self.data, group) != 1 {
                return Err(LowerError::knob("data", "the steps of a dot product must be adjacent in memory"));
            }

            // A dot product loads whole groups, so that it cannot leave out single steps in the
            // padding.
            let data = &self.contraction.data;
            let goes_beyond = |dim: usize| data.index[dim].uses(VarId(group.axis as u32)) && self.contraction.pads(dim);
            if self.data_mode == DataMode::InPlace && (0..data.shape.len()).any(goes_beyond) {
                return Err(LowerError::knob("data", "the steps of a dot product are read out of bounds"));
            }

            // Operands that are not copied keep their type, which must be the one that the
            // instruction reads.
            let read_in_place = [self.data_mode == DataMode::InPlace, !self.packed_weights];
            for (number, factor) in spec.main().loads().into_iter().enumerate().take(2) {
                if read_in_place[number] && spec.tensor(factor).dtype != self.copied[number] {
                    let knob = ["data", "weights"][number];
                    return Err(LowerError::knob(knob, "the dot-product instruction reads another element type"));
                }
            }
        }
        Ok(())
    }

    /// Checks the rules of tile instructions: sums stay in registers for the whole reduction, rows
    /// are along the data, and columns along packed weights.
    fn check_tiles(&self) -> Result<(), LowerError> {
        let refuse = |knob: &str, reason: &str| Err(LowerError::knob(knob, reason));
        let Some(group) = self.tile_group() else { return Ok(()) };
        if group.row_axes().next().is_none() {
            return refuse("instruction", "the steps do not fill a row of a tile");
        }

        let axes = &self.contraction.axes;
        let is_whole = |axis: AxisId| self.cache_extent(axis) >= axes[axis].extent;
        if !(0..axes.len()).filter(|&axis| axes[axis].reduce).all(is_whole) {
            return refuse("tile", "tile instructions need the whole reduction in one chunk");
        }
        if !self.packed_weights || self.data_mode == DataMode::Panel {
            return refuse("instruction", "tiles need packed weights, and data that is no panel");
        }
        if self.data_mode == DataMode::InPlace && self.contraction.is_padded() {
            return refuse("data", "tiles of padded data need a copy");
        }
        let is_adjacent = |(adjacent, fits): (usize, bool), axis: AxisId| {
            (adjacent * axes[axis].extent, fits && self.data.stride(axis) == adjacent as i64)
        };
        let (_, fits) =
            [group.row[1], group.row[0]].into_iter().flatten().fold((axes[group.axis].extent, true), is_adjacent);
        if !self.contraction.weight.uses(self.vector) || !fits {
            return refuse("instruction", "the rows of a tile are along the data, and its columns along the weights");
        }
        Ok(())
    }

    /// Returns the numbers of tiles along the rows and along the columns of the register tile.
    fn tiles(&self) -> [usize; 2] {
        // Remainders are narrower, so that rows of the next axis are at other distances.
        let is_even = |axis: AxisId, extent: usize| {
            let (cache, whole) = (self.cache_extent(axis), self.contraction.axes[axis].extent);
            cache.is_multiple_of(extent) && whole.is_multiple_of(cache)
        };

        // Rows at equal distances, other rows, and columns.
        let (mut run, mut others, mut columns) = ((1, None), 1, 1);
        let data = self.data_read();

        // From the innermost axis outwards.
        for (axis, extent) in self.register_tile().into_iter().rev() {
            if self.contraction.weight.uses(axis) {
                columns *= if axis == self.vector { extent.div_ceil(TILE_ROWS) } else { extent };
                continue;
            }
            let along = data.stride(axis);
            match run {
                (_, None) => run = (extent, Some(along)),
                (rows, Some(distance)) if others == 1 && along == distance * rows as i64 => run.0 *= extent,
                _ => others *= extent,
            }
            if !is_even(axis, extent) {
                run.1 = Some(0);
            }
        }
        [run.0.div_ceil(TILE_ROWS) * others, columns]
    }

    /// Checks the vectorised axis. The vector must be whole registers or the whole axis. Along it,
    /// weights must have stride 0 or 1, and so must the data operand unless the vector runs along
    /// the width. The output may have any stride along packed channels; along the width it must
    /// have the stride of its plain layout.
    fn check_vector(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let register = self.register_extent(self.vector);
        if !register.is_multiple_of(target.lanes()) && register < self.contraction.axes[self.vector].extent {
            return Err(LowerError::knob(
                "tile",
                format!("a register tile of {register} elements is not a multiple of the vector length"),
            ));
        }
        // A single element is not a vector, so strides along it do not matter.
        if register == 1 {
            return Ok(());
        }

        if !self.packed_weights && ![0, 1].contains(&self.contraction.weight.stride(self.vector)) {
            return Err(LowerError::knob("vector", "the weights are strided along this axis"));
        }
        let along_width = !self.contraction.weight.uses(self.vector);
        if !along_width && ![0, 1].contains(&self.data.stride(self.vector)) {
            return Err(LowerError::knob("vector", "the data operand is strided along this axis"));
        }
        if along_width && self.output.stride(self.vector) != self.contraction.output.stride(self.vector) {
            return Err(LowerError::knob("vector", "the output is strided along this axis"));
        }
        if along_width && self.data_mode == DataMode::InPlace && self.contraction.is_padded() {
            return Err(LowerError::knob("data", "vectors along a padded axis need a copy of the data"));
        }
        Ok(())
    }

    /// Checks that whole register tiles and whole groups of unrolled steps fill the cache tiles,
    /// where there are very many of these.
    fn check_cuts(&self) -> Result<(), LowerError> {
        let is_cut = |axis: AxisId, piece: usize| {
            let (extent, tile) = (self.contraction.axes[axis].extent, self.cache_extent(axis));
            extent / tile.max(1) > MAX_CUT_TILES && !tile.is_multiple_of(piece.max(1))
        };
        let spatial = (0..self.contraction.axes.len()).filter(|&axis| !self.contraction.axes[axis].reduce);
        if spatial.into_iter().any(|axis| is_cut(axis, self.register_extent(axis))) {
            return Err(LowerError::knob("tile", "too many tiles with remainders"));
        }

        // The knob's number of steps is unrolled, from the innermost loop outwards.
        let mut budget = self.unroll;
        for &axis in self.reduce.iter().rev() {
            let tile = self.cache_extent(axis);
            if tile > budget && is_cut(axis, budget) {
                return Err(LowerError::knob("unroll", "too many tiles with remainders"));
            }
            budget = if tile <= budget { budget / tile.max(1) } else { 1 };
        }
        Ok(())
    }

    /// Checks the number of registers and the length of the straight-line body. Returns that length
    /// in multiply-accumulates.
    fn check_registers(&self, target: &CpuTarget) -> Result<usize, LowerError> {
        if self.tile_group().is_some() {
            return self.check_tile_registers();
        }
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
        let needed = tile_registers(accumulators, [weights, data]);

        // A dot-product instruction may need other registers than multiply-adds do.
        let class = self.dot.map_or(Registers::Vector { products: 0 }, |group| group.instruction.registers);
        let registers = class.of_cpu(target);
        if needed > registers {
            let reason = format!("the register tile needs {needed} vector registers, {registers} are available");
            return Err(LowerError::knob("tile", reason));
        }
        if accumulators * self.unroll > MAX_BODY {
            let reason =
                format!("{} unrolled multiply-accumulates exceed the limit of {MAX_BODY}", accumulators * self.unroll);
            return Err(LowerError::knob("unroll", reason));
        }
        Ok(accumulators * self.unroll)
    }

    /// Checks the number of tile registers. Returns the number of stores of sums.
    fn check_tile_registers(&self) -> Result<usize, LowerError> {
        let needed = tile_registers_of(self.tiles());
        if needed > TILE_REGISTERS {
            let reason = format!("the register tile needs {needed} tile registers, {TILE_REGISTERS} are available");
            return Err(LowerError::knob("tile", reason));
        }
        Ok(TILE_REGISTERS * TILE_ROWS)
    }

    /// Checks the amount of code. Along each axis, runs of equal register tiles in runs of equal
    /// cache tiles are separate nests. `body` is the length of the straight-line body of a whole
    /// register tile, in multiply-accumulates.
    fn check_code(&self, body: usize) -> Result<(), LowerError> {
        let (mut leaves, mut code) = (1, body);
        for axis in (0..self.contraction.axes.len()).filter(|a| !self.batch.contains(a)) {
            let [along, taps] = self.leaves_along(axis);
            (leaves, code) = (leaves * along, code * taps);
            if leaves > MAX_LEAVES || code > MAX_CODE {
                let reason = format!("too much code: {leaves} loop nests, {code} multiply-accumulates or more");
                return Err(LowerError::knob("tile", reason));
            }
        }
        Ok(())
    }

    /// Returns the number of nests along an axis, and that number with each nest counted once per
    /// tap that it writes out.
    fn leaves_along(&self, axis: AxisId) -> [usize; 2] {
        let extent = self.contraction.axes[axis].extent;
        let tile = self.cache_extent(axis).min(extent);
        let count = extent.div_ceil(tile);
        // The first, middle and last chunks of a reduction are separate nests.
        if self.contraction.axes[axis].reduce {
            return [count.min(3); 2];
        }
        let register = self.register_extent(axis);
        let taps = if self.data_mode == DataMode::InPlace { self.padded_taps(axis) } else { None };
        // Of the register tiles in `extent` elements, the remainder is a separate nest, or the
        // `ends` tiles at the ends of the axis are.
        let runs = |extent: usize, ends: usize| {
            let tiles = extent.div_ceil(register);
            let leaves = tiles.min(ends.max(usize::from(!extent.is_multiple_of(register))) + 1);
            let written_out = if register > 1 { taps.unwrap_or(1) - 1 } else { 0 };
            [leaves, leaves + ends.min(tiles) * written_out]
        };
        let sum = |a: [usize; 2], b: [usize; 2]| [a[0] + b[0], a[1] + b[1]];

        // The padded ends of the axis are in a single cache tile, or in the first and the last one.
        match (taps, count) {
            (None, _) => sum(runs(tile, 0), if count > 1 { runs(extent % tile, 0) } else { [0; 2] }),
            (Some(_), 1) => runs(extent, 2),
            (Some(_), 2) => sum(runs(tile, 1), runs(extent - tile, 1)),
            (Some(_), _) => sum(sum(runs(tile, 1), runs(tile, 0)), runs(extent - (count - 1) * tile, 1)),
        }
    }

    /// Returns the extent of the kernel along the padded dimension that a spatial axis indexes;
    /// `None` without padding there.
    pub(super) fn padded_taps(&self, axis: AxisId) -> Option<usize> {
        let data = &self.contraction.data;
        let concerns = |dim: &usize| data.index[*dim].uses(VarId(axis as u32));
        let dim = (0..data.shape.len()).filter(concerns).find(|&dim| self.contraction.pads(dim))?;
        let reduced = data.index[dim].terms.iter().map(|t| &self.contraction.axes[t.0.0 as usize]);
        Some(reduced.filter(|a| a.reduce).map(|a| a.extent).product())
    }

    /// Checks that few tiles are peeled for padding.
    fn check_peeling(&self) -> Result<(), LowerError> {
        if self.data_mode == DataMode::Copy {
            return Ok(());
        }
        let tiles = if self.data_mode == DataMode::InPlace { &self.inner } else { &self.cache };
        let peels = |l: &TileLoop| peels_many(&self.contraction, l.axis, l.tile);
        match tiles.iter().any(peels) {
            true => Err(LowerError::knob("tile", "too many tiles would be peeled for padding")),
            false => Ok(()),
        }
    }

    /// Checks the size of copies. A copied tile must fit a thread's share of the last-level cache,
    /// a panel must fit the second-level cache, and both must fit a thread's local memory.
    fn check_memory(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let is_panel = self.data_mode == DataMode::Panel;
        let copies_tile = self.data_mode == DataMode::Tile || is_panel && self.contraction.is_padded();
        let tile = if copies_tile { self.tile_shape().iter().product::<usize>() * self.copied_bytes() } else { 0 };
        let panel = if is_panel { self.panel_bytes() } else { 0 };
        // A thread's share of the last-level cache, but at least its own second-level cache.
        let tile_limit = (target.l3_bytes / target.cores).max(target.l2_bytes);
        for (bytes, limit) in [(tile, tile_limit), (panel, target.l2_bytes), (tile + panel, MAX_LOCAL_BYTES)] {
            if bytes > limit {
                return Err(LowerError::knob("data", format!("a copy of {bytes} bytes exceeds the limit of {limit}")));
            }
        }
        Ok(())
    }

    /// Checks that a panel pays for its copy. It must serve vectors along a strided axis or several
    /// rows of a matrix, and enough outputs must use each of its elements.
    fn check_panel(&self, axes: &Axes) -> Result<(), LowerError> {
        let refuse = |reason: &str| Err(LowerError::knob("data", reason));
        // A panel may be the only way to make the steps of dot products adjacent.
        if self.dot.is_some() {
            return Ok(());
        }
        let rows = || axes.rows.iter().map(|&row| self.register_extent(row)).product::<usize>();
        let least = match axes.windows.is_empty() {
            true if rows() < MIN_PANEL_ROWS => return refuse("a panel needs a register tile with more rows"),
            true => MIN_PANEL_COLUMNS,
            false if self.contraction.data.stride(self.vector) < 2 => {
                return refuse("a panel needs data that are strided along the vector axis");
            }
            false => MIN_PANEL_CHANNELS,
        };
        if self.panel_reuse() < least { refuse("too few outputs use each element of the panel") } else { Ok(()) }
    }
}

/// True if more than [`MAX_PEELED`] tiles of a spatial axis touch the padding at one of its ends.
fn peels_many(contraction: &Contraction, axis: AxisId, tile: usize) -> bool {
    let data = &contraction.data;
    let mut dims = data.index.iter().zip(&data.shape).enumerate();
    !contraction.axes[axis].reduce
        && dims.any(|(dim, (index, &extent))| {
            let (low, high) = contraction.data_range(dim);
            let over = (-low).max(high - extent as i64 + 1);
            let stride = index.coefficient(VarId(axis as u32));
            stride > 0 && over > stride * tile as i64 * MAX_PEELED
        })
}

/// True if there is so much padding that not even tiles of single elements can be peeled. Some
/// schedules then need a padded copy.
pub(super) fn pads_far(contraction: &Contraction) -> bool {
    (0..contraction.axes.len()).any(|axis| peels_many(contraction, axis, 1))
}
