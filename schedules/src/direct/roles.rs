//! Roles of a contraction's axes in the direct sketch.

use std::sync::Arc;

use super::DataMode;
use crate::contraction::{AxisId, Contraction, Operand, lane_name};
use crate::error::LowerError;
use autotune_ir::DType;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::instruction::{Factors, Instruction, dot_of, tile_of};
use autotune_ir::target::CpuTarget;
use autotune_workloads::axes::{Axes, WindowAxis, count};
use autotune_workloads::{Once, Workload};

/// Minimum numbers of rows and of channels for products of the parts of f32. With fewer, most of a
/// tile is empty.
const LEAST_SPLIT_ROWS: usize = 4;
const LEAST_SPLIT_CHANNELS: usize = 32;
/// Minimum number of uses of data elements, and of weights that are not constant, which are split
/// in every run.
const LEAST_SPLIT_USES: [usize; 2] = [32, 512];

/// Returns the block size of channel-blocked layouts, in channels: one vector of f32, at least 8.
pub(crate) fn block_size(target: &CpuTarget) -> usize {
    target.lanes().max(8)
}

/// Roles of the axes of a contraction.
///
/// | role | matmul | conv2d | depthwise |
/// |---|---|---|---|
/// | batch | `b` | `n`, `g` | `n` |
/// | spatial | `m`, `n` | `o`, `oh`, `ow` | `g`, `oh`, `ow` |
/// | channel | `n` | `o` | `g` |
/// | width | | `ow` | `ow` |
/// | step | `k` | `c` | `c` |
pub(crate) struct Roles {
    /// The contraction; its operands are in plain layouts.
    pub(crate) contraction: Contraction,
    /// Axes by the operands that use them.
    pub(crate) axes: Axes,
    /// Tiled axes of the result.
    pub(crate) spatial: Vec<AxisId>,
    /// Axes of the result that are not tiled: outermost loops of one element per iteration.
    pub(crate) batch: Vec<AxisId>,
    /// Axis of output channels (or columns). Vectors may run along it.
    pub(crate) channel: AxisId,
    /// Row axis along which the output is contiguous. Vectors may run along it, too.
    pub(crate) width: Option<AxisId>,
    /// Reduction axis that is split into chunks.
    pub(crate) step: Option<AxisId>,
    /// True for depthwise convolutions: no input element is used by two channels.
    pub(crate) is_depthwise: bool,
    /// Element types of the factors: data, weights.
    pub(crate) factors: [DType; 2],
    /// True if factors in f32 may be split into parts of fewer bits.
    is_splittable: bool,
    /// Cache of [`SplitContraction`](super::layouts::SplitContraction) by layouts, block size and
    /// group size.
    pub(super) split_contractions: Once,
}

impl Roles {
    /// Returns the roles of a workload. They are computed once per workload.
    pub(crate) fn of_workload(workload: &Workload) -> Option<Arc<Self>> {
        let of_workload = || {
            let roles = Self::of(Contraction::of(workload)?)?;
            let is_splittable = !workload.is_exact() && roles.splitting_pays();
            Some(Arc::new(Self { is_splittable, ..roles }))
        };
        Option::clone(&workload.once((), of_workload))
    }

    /// Returns `None` without channels, or for an equation that is not a contraction.
    pub(crate) fn of(contraction: Contraction) -> Option<Self> {
        let main = contraction.equation();
        let axes = Axes::of_equation(&contraction.spec, main)?;
        let is_depthwise = axes.is_depthwise(main);
        let channels = if is_depthwise { axes.groups() } else { axes.columns.clone() };
        let channel = *channels.last()?;

        // Tiling an axis pays where its elements share data. In a convolution, rows without a
        // window share only the weights, so only windowed rows are tiled. In a product, all rows
        // are tiled. A depthwise convolution has a single column, which needs no loop.
        let is_row = |&axis: &AxisId| axes.rows.contains(&axis) && (axes.windows.is_empty() || axes.is_windowed(axis));
        let is_channel = |axis: &AxisId| *axis == channel || main.axes[*axis].extent > 1 && channels.contains(axis);
        let is_tiled = |axis: &AxisId| is_channel(axis) || is_row(axis);
        let needs_loop = |axis: &AxisId| !main.axes[*axis].reduce && (!is_depthwise || !axes.columns.contains(axis));
        let (spatial, batch) = (0..main.axes.len()).filter(needs_loop).partition(is_tiled);

        let innermost = main.output.index.last()?;
        let width = axes.rows.iter().copied().find(|&row| innermost.uses(VarId(row as u32)));
        let step = axes.steps.first().copied();
        let loads = main.loads();
        let factor = |number: usize| loads.get(number).map_or(DType::F32, |load| contraction.spec.tensor(load).dtype);
        let (factors, split_contractions) = ([0, 1].map(factor), Once::default());
        Some(Self {
            contraction,
            axes,
            spatial,
            batch,
            channel,
            width,
            step,
            is_depthwise,
            factors,
            is_splittable: false,
            split_contractions,
        })
    }

    /// True if products of the parts of f32 are likely to be faster than products of f32: tiles
    /// have several rows and whole blocks of channels, and factors that are split in every run have
    /// many uses.
    fn splitting_pays(&self) -> bool {
        let rows = count(self.contraction.equation(), &self.axes.rows);
        let [of_data, of_weights] = LEAST_SPLIT_USES;
        // A window that moves by several elements uses each of them less often.
        let per_element = |window: &WindowAxis| self.extent(window.tap) as f64 / window.stride as f64;
        let uses = self.columns() as f64 * self.axes.windows.iter().map(per_element).product::<f64>();
        rows >= LEAST_SPLIT_ROWS
            && self.step.is_some_and(|step| self.extent(step) >= LEAST_SPLIT_CHANNELS)
            && uses >= of_data as f64
            && (self.contraction.weight_is_constant || rows >= of_weights)
    }

    /// True if a tile instruction multiplies parts of the factors instead of the factors.
    pub(crate) fn splits(&self) -> bool {
        self.is_splittable && self.factors == [DType::F32; 2]
    }

    pub(crate) fn name(&self, axis: AxisId) -> &'static str {
        self.contraction.equation().axes[axis].name
    }

    /// Returns the extent of an axis before it is split.
    pub(crate) fn extent(&self, axis: AxisId) -> usize {
        self.contraction.equation().axes[axis].extent
    }

    /// True if data is widened before it is multiplied, so that a copy widens each element once for
    /// all vectors that read it. This does not help depthwise convolutions of floating-point data:
    /// their channels share no elements, and loads widen whole vectors.
    pub(crate) fn widens(&self, target: &CpuTarget) -> bool {
        let is_shared = !self.is_depthwise || self.factors[0].is_integer();
        self.factors[0].bytes() < 4 && is_shared && self.dot(target).is_none()
    }

    /// Returns the instruction that multiplies groups of reduction steps, with the element types
    /// and the size of a group. Returns `None` if no instruction fits the factors, or there is only
    /// one step.
    pub(crate) fn dot(&self, target: &CpuTarget) -> Option<(&'static Instruction, Factors)> {
        let step = self.step.filter(|&step| self.extent(step) > 1 && !self.is_depthwise)?;
        let fits = |steps: usize| self.extent(step).is_multiple_of(steps) || self.ends_operands(step);
        dot_of(target, self.factors).filter(|(_, factors)| fits(factors.steps))
    }

    /// Returns the tile instruction that multiplies groups of reduction steps, with the element
    /// types and the size of a group. Returns `None` if no instruction fits the factors, or if the
    /// last group would be incomplete without a copy that fills it.
    pub(crate) fn tile(&self, target: &CpuTarget) -> Option<(&'static Instruction, Factors)> {
        let step = self.step.filter(|&step| self.extent(step) > 1 && !self.is_depthwise)?;
        let extent = self.extent(step);
        let fits = |steps: usize| self.pads_rows(DataMode::Tile) || extent > steps && extent.is_multiple_of(steps);
        // Only whole blocks of channels are split fast.
        let is_split = self.splits();
        if is_split && !self.is_product() && !self.blockable(block_size(target))[0] {
            return None;
        }
        let dtypes = if is_split { [DType::Bf16; 2] } else { self.factors };
        tile_of(target, dtypes).filter(|(_, factors)| fits(factors.steps))
    }

    /// True if a copy of the data for tiles may fill the last row of a tile with zeros: data is
    /// images, and steps after the last are [out of bounds](Roles::ends_operands), in the copy of a
    /// tile at least in the weights.
    pub(crate) fn pads_rows(&self, mode: DataMode) -> bool {
        let Some(step) = self.step.filter(|&step| self.has_images(self.extent(step))) else { return false };
        match mode {
            DataMode::Tile => self.ends_along(step, &self.contraction.weight),
            DataMode::Copy => self.ends_operands(step),
            DataMode::InPlace | DataMode::Panel => false,
        }
    }

    /// True if steps after the last are out of bounds in both operands and count as zeros, because
    /// the dimensions of the step use no other axis.
    fn ends_operands(&self, step: AxisId) -> bool {
        let Contraction { data, weight, .. } = &self.contraction;
        self.ends_along(step, data) && self.ends_along(step, weight)
    }

    fn ends_along(&self, step: AxisId, operand: &Operand) -> bool {
        let is_step = |index: &Affine| !index.uses(VarId(step as u32)) || index.terms.len() == 1;
        operand.index.iter().all(is_step)
    }

    /// Returns the axis and the number of the taps that slide along the width, if they are next to
    /// each other.
    pub(crate) fn adjacent_taps(&self) -> Option<(AxisId, usize)> {
        let of_width = |window: &&WindowAxis| self.width == Some(window.row) && window.dilation == 1;
        let tap = self.axes.windows.iter().find(of_width).map(|window| window.tap)?;
        Some((tap, self.extent(tap))).filter(|(_, taps)| *taps > 1)
    }

    /// True if the data is images whose channels are the reduction steps. In a grouped convolution,
    /// the channels of each group must be a multiple of `steps`.
    pub(crate) fn has_images(&self, steps: usize) -> bool {
        let is_step = |axis: VarId| self.step == Some(axis.0 as usize);
        let fits = |&(axis, of)| if is_step(axis) { of == 1 } else { of % steps as i64 == 0 };
        let channel = self.contraction.data.index.get(1);
        !self.is_product() && channel.is_some_and(|index| index.constant == 0 && index.terms.iter().all(fits))
    }

    /// Returns the element types of copies of data and weights: those of the dot-product
    /// instruction, else 32-bit types.
    pub(crate) fn copied(&self, dot: Option<Factors>) -> [DType; 2] {
        // Narrow elements are widened by the copy, once for all their uses.
        let word = |dtype: DType| if dtype.bytes() < 4 { dtype.accumulator() } else { dtype };
        dot.map_or_else(|| self.factors.map(word), |factors| factors.dtypes)
    }

    /// Returns the names of the axes with more than one element. The order knobs permute them.
    fn present(&self, axes: impl IntoIterator<Item = AxisId>) -> Vec<&'static str> {
        axes.into_iter().filter(|&axis| self.extent(axis) > 1).map(|axis| self.name(axis)).collect()
    }

    /// True for a row axis that is tiled.
    pub(crate) fn is_row(&self, axis: AxisId) -> bool {
        axis != self.channel && self.axes.rows.contains(&axis) && self.spatial.contains(&axis)
    }

    /// Returns the axis called `word`. Fails if vectors may not run along it.
    pub(crate) fn vector_of(&self, word: &str) -> Result<AxisId, LowerError> {
        let vector = [Some(self.channel), self.width].into_iter().flatten().find(|&axis| self.name(axis) == word);
        vector.ok_or_else(|| LowerError::knob("vector", format!("'{word}' is not an axis that can be vectorised")))
    }

    /// True for a matrix product: no window slides over the data.
    pub(crate) fn is_product(&self) -> bool {
        self.axes.windows.is_empty()
    }

    /// Returns the number of columns that each position of the data contributes to.
    pub(crate) fn columns(&self) -> usize {
        count(self.contraction.equation(), &self.axes.columns)
    }

    /// Returns the channel axis of the input.
    pub(crate) fn input_channel(&self) -> Option<AxisId> {
        if self.is_depthwise { Some(self.channel) } else { self.step }
    }

    /// True if input and output, in this order, can be channel-blocked: convolutions whose number
    /// of channels is a multiple of `block`.
    pub(crate) fn blockable(&self, block: usize) -> [bool; 2] {
        let has_blocks = |operand: &Operand, channel: AxisId| {
            let step = operand.index.get(1).map_or(0, |index| index.coefficient(VarId(channel as u32)));
            !self.is_product() && step == 1 && self.extent(channel).is_multiple_of(block)
        };
        let Contraction { data, output, .. } = &self.contraction;
        [self.input_channel().is_some_and(|channel| has_blocks(data, channel)), has_blocks(output, self.channel)]
    }

    /// Returns the axes that vectors may run along: the channels, and also the width where the
    /// channels are not whole vectors, or where a depthwise input is not blocked.
    pub(crate) fn vectors(&self, target: &CpuTarget) -> Vec<AxisId> {
        let whole = self.extent(self.channel).is_multiple_of(target.lanes());
        let lanes_match = !self.is_depthwise || self.blockable(block_size(target))[0];
        let width = self.width.filter(|_| !whole || !lanes_match);
        [Some(self.channel), width].into_iter().flatten().collect()
    }
}

/// Axes that the order knobs permute: those with more than one element, by name.
pub(crate) struct LoopNames {
    pub(crate) spatial: Vec<&'static str>,
    /// Spatial axes, then the reduction axis that is split into chunks.
    pub(crate) cache: Vec<&'static str>,
    /// Reduction axes, outermost first.
    pub(crate) reduce: Vec<&'static str>,
}

impl LoopNames {
    /// Returns the names for a workload; `input_blocks` says whether the input may be
    /// channel-blocked.
    pub(crate) fn of(roles: &Roles, input_blocks: bool) -> Self {
        let spatial = roles.present(roles.spatial.iter().copied());
        let mut cache = spatial.clone();
        cache.extend(roles.present(roles.step));
        let axes = &roles.contraction.equation().axes;
        let mut reduce = roles.present((0..axes.len()).filter(|&axis| axes[axis].reduce));
        let lanes = roles.step.filter(|_| input_blocks && !roles.is_depthwise);
        reduce.extend(lanes.and_then(|step| lane_name(roles.name(step))));
        Self { spatial, cache, reduce }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DirectSketch, default::default_point, knobs::knobs};
    use super::*;
    use crate::knob_space::KnobSpace;
    use autotune_ir::Spec;
    use autotune_ir::program::{Access, BufferId, Expr};
    use autotune_ir::spec::{Axis, Equation, Reduction, TensorSource, TensorSpec};

    /// Builds `result[..] = Σ data[..] * weight[..]`. Each index is a sum of axes; axes with
    /// capital letters are reduced.
    fn contraction(axes: &[(&'static str, usize)], accesses: [&[&str]; 3]) -> Roles {
        let axis_of = |name: &str| axes.iter().position(|axis| axis.0 == name).unwrap();
        let index = |sum: &&str| {
            sum.split('+').fold(Affine::default(), |sum, name| sum + Affine::var(VarId(axis_of(name) as u32)))
        };
        let access = |number: usize| Access {
            buffer: BufferId(number as u32),
            index: accesses[number].iter().map(index).collect(),
        };
        let extent = |index: &Affine| index.range(|axis| axes[axis.0 as usize].1).1 as usize + 1;

        let sources = [
            TensorSource::Given { is_constant: false },
            TensorSource::Given { is_constant: true },
            TensorSource::Computed,
        ];
        let tensors = (0..3).zip(sources).map(|(number, source)| {
            let shape = access(number).index.iter().map(extent).collect();
            TensorSpec { name: format!("t{number}").into(), shape, dtype: DType::F32, source }
        });

        let is_summed = |name: &str| name.starts_with(char::is_uppercase);
        let equation = Equation {
            axes: axes.iter().map(|&(name, extent)| Axis { name, extent, reduce: is_summed(name) }).collect(),
            output: access(2),
            value: Expr::product(Expr::Load(access(0)), Expr::Load(access(1))),
            reduction: Reduction::Sum,
        };
        let tensors = tensors.collect();
        let spec = Arc::new(Spec { name: "contraction".into(), tensors, equations: vec![equation], main: 0 });
        Roles::of(Contraction::with_unit_axes(&spec).without_unit_axes()).unwrap()
    }

    /// Names of the tiled axes, and of those that vectors may run along.
    fn tiled(roles: &Roles) -> [Vec<&'static str>; 2] {
        let cpu = CpuTarget::generic_avx2(1);
        let names = |axes: &[AxisId]| axes.iter().map(|&axis| roles.name(axis)).collect();

        // Every contraction has a schedule.
        let space = Arc::new(KnobSpace::new(&DirectSketch, 0, knobs(roles, &cpu)));
        assert!(default_point(roles, &cpu, &space).is_some());
        [names(&roles.spatial), names(&roles.vectors(&cpu))]
    }

    #[test]
    fn products_are_tiled_whichever_operand_is_transposed() {
        let axes = [("m", 32), ("n", 64), ("K", 16)];
        for (data, weight) in [(["m", "K"], ["K", "n"]), (["K", "m"], ["K", "n"]), (["m", "K"], ["n", "K"])] {
            let roles = contraction(&axes, [&data, &weight, &["m", "n"]]);
            assert_eq!(tiled(&roles), [vec!["m", "n"], vec!["n"]]);
            assert!(roles.is_product() && roles.blockable(8) == [false; 2]);
        }
    }

    #[test]
    fn vectors_run_along_contiguous_rows_if_columns_are_no_whole_vectors() {
        let roles = contraction(&[("m", 32), ("n", 60), ("K", 16)], [&["m", "K"], &["K", "n"], &["n", "m"]]);
        assert_eq!(tiled(&roles), [vec!["m", "n"], vec!["n", "m"]]);
    }

    #[test]
    fn convolutions_of_any_number_of_dimensions_have_blocks_of_channels() {
        let line = [("n", 2), ("o", 24), ("x", 12), ("C", 16), ("J", 3)];
        let roles = contraction(&line, [&["n", "C", "x+J"], &["o", "C", "J"], &["n", "o", "x"]]);
        assert_eq!(tiled(&roles), [vec!["o", "x"], vec!["o"]]);
        assert_eq!((roles.batch.as_slice(), roles.step, roles.blockable(8)), (&[0][..], Some(3), [true; 2]));

        let space = [("n", 1), ("o", 5), ("z", 4), ("y", 6), ("x", 12), ("C", 8), ("I", 3), ("J", 3), ("K", 3)];
        let data = ["n", "C", "z+I", "y+J", "x+K"];
        let roles = contraction(&space, [&data, &["o", "C", "I", "J", "K"], &["n", "o", "z", "y", "x"]]);
        assert_eq!(tiled(&roles), [vec!["o", "z", "y", "x"], vec!["o", "x"]]);
        assert_eq!(roles.blockable(8), [true, false]);
    }

    #[test]
    fn depthwise_convolutions_are_tiled_along_their_groups() {
        let line = [("n", 2), ("g", 24), ("o", 1), ("x", 12), ("J", 3)];
        let roles = contraction(&line, [&["n", "g", "x+J"], &["g", "o", "J"], &["n", "g", "x"]]);
        assert!(roles.is_depthwise && roles.step.is_none());
        assert_eq!(tiled(&roles), [vec!["g", "x"], vec!["g"]]);
    }
}
