//! Rules between the knobs of the direct sketch, and limits of the target.

use super::{DataMode, Direct, Group, TileLoop};
use crate::contraction::{AxisId, Contraction, Operand};
use crate::error::LowerError;
use autotune_ir::affine::VarId;
use autotune_ir::analyse::{pieces, tile_registers};
use autotune_ir::instruction::Registers;
use autotune_ir::program::{Layout, MAX_LOCAL_BYTES};
use autotune_ir::target::CpuTarget;
use autotune_workloads::axes::Axes;

/// Straight-line multiply-accumulates of one loop body beyond which compilers are slow and the
/// instruction cache overflows.
const MAX_BODY: usize = 1024;
/// The same of all register tiles together: whole ones, remainders and those that touch padding.
const MAX_CODE: usize = 8 * MAX_BODY;
/// Nests that all register tiles together may become.
const MAX_LEAVES: usize = 32;
/// Fewest channels that share an element of a panel, where it makes a vector of what is strided in
/// the input.
pub(super) const MIN_PANEL_CHANNELS: usize = 16;
/// Fewest columns that share an element of a panel of a matrix product, which saves no instruction,
/// but conflicts in caches.
pub(super) const MIN_PANEL_COLUMNS: usize = 1024;
/// Fewest rows of a matrix product in a register tile that a panel serves.
const MIN_PANEL_ROWS: usize = 4;
/// Cache tiles along an axis that may each have a remainder behind their register tiles or unrolled
/// steps: more such pieces cannot be proven to cover the axis.
const MAX_CUT_TILES: usize = 1 << 15;
/// Tiles that may be peeled off one end of an axis for padding.
const MAX_PEELED: i64 = 4;

impl Direct {
    /// Rules between knobs and limits of the target.
    pub(crate) fn check(&self, axes: &Axes, target: &CpuTarget, data_layout: Layout) -> Result<(), LowerError> {
        let plain_in = self.in_layout == Layout::Plain;
        let plain_data = data_layout == Layout::Plain;
        if !plain_in && plain_data {
            return Err(LowerError::knob("layout.data", "a blocked input is not copied to a plain layout"));
        }

        match self.data_mode {
            DataMode::InPlace | DataMode::Panel if plain_in != plain_data => {
                return Err(LowerError::knob("layout.data", "differs from layout.in though no copy has it"));
            }
            DataMode::InPlace if self.contraction.prologue().is_some() => {
                return Err(LowerError::knob("data", "a prologue needs a copy"));
            }
            DataMode::Copy
                if plain_in == plain_data && !self.contraction.is_padded() && self.contraction.prologue().is_none() =>
            {
                return Err(LowerError::knob("data", "a copy without padding, prologue or another layout"));
            }
            DataMode::Panel => self.check_panel(axes)?,
            _ => {}
        }

        self.check_dot()?;
        if !self.packed_weights && !self.contraction.axes_beyond_weights().is_empty() {
            return Err(LowerError::knob("weights", "those that are read beyond their ends are packed"));
        }

        self.check_vector(target)?;
        let body = self.check_registers(target)?;
        self.check_peeling()?;
        self.check_cuts()?;
        self.check_memory(target)?;
        self.check_code(body)
    }

    /// The steps of a group are side by side in what register tiles read.
    fn check_dot(&self) -> Result<(), LowerError> {
        let of_group = |operand: &Operand, group: &Group| operand.stride(group.axis);
        let spec = &self.contraction.spec;
        if let Some(group) = &self.dot {
            if !self.packed_weights && of_group(&self.contraction.weight, group) != 1 {
                return Err(LowerError::knob("weights", "the steps of a dot product are not side by side"));
            }
            if self.data_mode != DataMode::Panel && of_group(&self.data, group) != 1 {
                return Err(LowerError::knob("data", "the steps of a dot product are not side by side"));
            }
            let data = &self.contraction.data;
            let goes_beyond = |dim: usize| data.index[dim].uses(VarId(group.axis as u32)) && self.contraction.pads(dim);
            if self.data_mode == DataMode::InPlace && (0..data.shape.len()).any(goes_beyond) {
                return Err(LowerError::knob("data", "steps of a dot product are read beyond the operand"));
            }
            let read_in_place = [self.data_mode == DataMode::InPlace, !self.packed_weights];
            for (number, factor) in spec.main().loads().into_iter().enumerate().take(2) {
                if read_in_place[number] && spec.tensor(factor).dtype != self.copied[number] {
                    let knob = ["data", "weights"][number];
                    return Err(LowerError::knob(knob, "a dot product reads them as another type"));
                }
            }
        }
        Ok(())
    }

    /// The vector is whole registers or the whole axis. Along it weights must have stride 0 or 1,
    /// the data operand too unless the vector runs along the width; the output any along packed
    /// channels, along the width that of its plain layout.
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
        if along_width && self.output.stride(self.vector) != self.contraction.output.stride(self.vector) {
            return Err(LowerError::knob("vector", "the output is strided along it"));
        }
        if along_width && self.data_mode == DataMode::InPlace && self.contraction.is_padded() {
            return Err(LowerError::knob("data", "vectors along a padded axis need a copy"));
        }
        Ok(())
    }

    /// Where cache tiles are very many, whole register tiles and whole groups of unrolled steps
    /// must fill them.
    fn check_cuts(&self) -> Result<(), LowerError> {
        let is_cut = |axis: AxisId, piece: usize| {
            let (extent, tile) = (self.contraction.axes[axis].extent, self.cache_extent(axis));
            extent / tile.max(1) > MAX_CUT_TILES && !tile.is_multiple_of(piece.max(1))
        };
        let spatial = (0..self.contraction.axes.len()).filter(|&axis| !self.contraction.axes[axis].reduce);
        if spatial.into_iter().any(|axis| is_cut(axis, self.register_extent(axis))) {
            return Err(LowerError::knob("tile", "too many tiles with remainders"));
        }

        // As many steps as the knob says are unrolled, from the innermost loop outwards.
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
        let needed = tile_registers(accumulators, [weights, data]);
        let class = self.dot.map_or(Registers::Vector { products: 0 }, |group| group.instruction.registers);
        let registers = class.of_cpu(target);
        if needed > registers {
            let reason = format!("the register tile needs {needed} vector registers of {registers}");
            return Err(LowerError::knob("tile", reason));
        }
        if accumulators * self.unroll > MAX_BODY {
            let reason = format!("{} multiply-accumulates in a row exceed {MAX_BODY}", accumulators * self.unroll);
            return Err(LowerError::knob("unroll", reason));
        }
        Ok(accumulators * self.unroll)
    }

    /// The register tiles must not become too much code: along each axis, runs of like tiles in
    /// runs of like cache tiles are nests of their own. `body` is the length of the straight-line
    /// body of a whole one.
    fn check_code(&self, body: usize) -> Result<(), LowerError> {
        let (mut leaves, mut code) = (1, body);
        for axis in (0..self.contraction.axes.len()).filter(|a| !self.batch.contains(a)) {
            let [along, taps] = self.leaves_along(axis);
            (leaves, code) = (leaves * along, code * taps);
            if leaves > MAX_LEAVES || code > MAX_CODE {
                let reason = format!("{leaves} nests with {code} multiply-accumulates or more");
                return Err(LowerError::knob("tile", reason));
            }
        }
        Ok(())
    }

    /// Nests along an axis, and the same where one in which taps are written out counts that often.
    fn leaves_along(&self, axis: AxisId) -> [usize; 2] {
        let extent = self.contraction.axes[axis].extent;
        let tile = self.cache_extent(axis).min(extent);
        let count = extent.div_ceil(tile);
        if self.contraction.axes[axis].reduce {
            return [count.min(3); 2];
        }
        let register = self.register_extent(axis);
        let taps = if self.data_mode == DataMode::InPlace { self.padded_taps(axis) } else { None };
        // Of the register tiles in `extent` elements, the remainder or `ends` at the ends of the
        // axis are by themselves.
        let runs = |extent: usize, ends: usize| {
            let tiles = extent.div_ceil(register);
            let leaves = tiles.min(ends.max(usize::from(!extent.is_multiple_of(register))) + 1);
            let written_out = if register > 1 { taps.unwrap_or(1) - 1 } else { 0 };
            [leaves, leaves + ends.min(tiles) * written_out]
        };
        let sum = |a: [usize; 2], b: [usize; 2]| [a[0] + b[0], a[1] + b[1]];
        match (taps, count) {
            (None, _) => sum(runs(tile, 0), if count > 1 { runs(extent % tile, 0) } else { [0; 2] }),
            (Some(_), 1) => runs(extent, 2),
            (Some(_), 2) => sum(runs(tile, 1), runs(extent - tile, 1)),
            (Some(_), _) => sum(sum(runs(tile, 1), runs(tile, 0)), runs(extent - (count - 1) * tile, 1)),
        }
    }

    /// Extent of the kernel along the padded dimension that a spatial axis concerns, if there is
    /// one.
    pub(super) fn padded_taps(&self, axis: AxisId) -> Option<usize> {
        let data = &self.contraction.data;
        let concerns = |dim: &usize| data.index[*dim].uses(VarId(axis as u32));
        let dim = (0..data.shape.len()).filter(concerns).find(|&dim| self.contraction.pads(dim))?;
        let reduced = data.index[dim].terms.iter().map(|t| &self.contraction.axes[t.0.0 as usize]);
        Some(reduced.filter(|a| a.reduce).map(|a| a.extent).product())
    }

    /// Peeling must stay small.
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

    /// A copied tile must fit the last-level cache share of a thread, a panel the second-level
    /// cache, both together what a thread may have.
    fn check_memory(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let is_panel = self.data_mode == DataMode::Panel;
        let copies_tile = self.data_mode == DataMode::Tile || is_panel && self.contraction.is_padded();
        let tile = if copies_tile { self.tile_shape().iter().product::<usize>() * self.copied[0].bytes() } else { 0 };
        let panel = if is_panel { self.panel_bytes() } else { 0 };
        let tile_limit = (target.l3_bytes / target.cores).max(target.l2_bytes);
        for (bytes, limit) in [(tile, tile_limit), (panel, target.l2_bytes), (tile + panel, MAX_LOCAL_BYTES)] {
            if bytes > limit {
                return Err(LowerError::knob("data", format!("a copy of {bytes} bytes exceeds {limit}")));
            }
        }
        Ok(())
    }

    /// A panel must be worth its copy: it serves vectors along a strided axis, or several rows of a
    /// matrix, and enough outputs are made of each of its elements.
    fn check_panel(&self, axes: &Axes) -> Result<(), LowerError> {
        let refuse = |reason: &str| Err(LowerError::knob("data", reason));
        // Dot products may have no other way to read the data.
        if self.dot.is_some() {
            return Ok(());
        }
        let rows = || axes.rows.iter().map(|&row| self.register_extent(row)).product::<usize>();
        let least = match axes.windows.is_empty() {
            true if rows() < MIN_PANEL_ROWS => return refuse("a panel of few rows"),
            true => MIN_PANEL_COLUMNS,
            false if self.contraction.data.stride(self.vector) < 2 => {
                return refuse("a panel for what vectors can be loaded from or need not be");
            }
            false => MIN_PANEL_CHANNELS,
        };
        if self.panel_reuse() < least { refuse("a panel for few outputs") } else { Ok(()) }
    }
}

/// True if more than [`MAX_PEELED`] tiles of a spatial axis would touch the padding at one of its
/// ends.
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

/// True if there is so much padding that tiles of single elements cannot be peeled: some schedules
/// need a padded copy then.
pub(super) fn pads_far(contraction: &Contraction) -> bool {
    (0..contraction.axes.len()).any(|axis| peels_many(contraction, axis, 1))
}
