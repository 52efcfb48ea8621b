//! Chains over images in channel-blocked layouts.
//!
//! ```text
//! output[n, c, y, x] = max input[n, c, y + kh, x + kw]              c in 0..64
//!   →  output[n, c, y, x, ci] = max input[n, c, y + kh, x + kw, ci]  c in 0..4, ci in 0..16
//! ```
//!
//! The axis over the channels of a block becomes the last row and the vector axis: accesses along
//! it are contiguous whatever the stride of a window. An image that stays plain is accessed at
//! channel `16 * c + ci`.

use std::sync::Arc;

use autotune_ir::Affine;
use autotune_ir::VarId;
use autotune_ir::layout::physical_shape;
use autotune_ir::program::{Access, BufferId, Expr, Layout};
use autotune_ir::spec::{Axis, AxisId, Equation, Spec};

use super::chain::{Chain, axis_of, is_given};
use crate::contraction::lane_name;
use crate::direct::reader::KnobReader;
use crate::error::LowerError;

/// Layouts of a chain's images and its channel axis.
#[derive(Clone, Debug)]
pub(crate) struct ChainLayout {
    /// Spec of the workload, in which channels are one axis.
    spec: Arc<Spec>,
    /// Layout of each tensor of the spec.
    layouts: Vec<Layout>,
    channel: AxisId,
    lane: AxisId,
    block: usize,
}

/// Returns the row that is the channel axis of images `[n, c, ..]`. The chain must have a single
/// pass that reads one image, and otherwise only tables that do not depend on the channel; gathered
/// indices are not allowed; and its result must be an image, too.
pub(super) fn channel(chain: &Chain) -> Option<AxisId> {
    let ([pass], 0) = (chain.passes(), chain.numbers.start) else { return None };
    let loads = pass.loads();
    let (given, tables): (Vec<&Access>, Vec<&Access>) = loads.iter().partition(|access| is_given(&chain.spec, access));
    let [input] = given[..] else { return None };
    let gathers = pass.value.any(&|expr| matches!(expr, Expr::Gather(_)));
    let channel = axis_of(input.index.get(1)?).filter(|&axis| axis < chain.rows)?;
    lane_name(pass.axes[channel].name)?;
    let is_image = |access: &Access| {
        let uses = |index: &&Affine| index.uses(VarId(channel as u32));
        access.index.len() > 2 && access.index[1] == input.index[1] && access.index.iter().filter(uses).count() == 1
    };
    let is_of_channels = |access: &Access| access.index.iter().any(|index| index.uses(VarId(channel as u32)));
    // Tables over channels and gathered indices have no blocked form.
    let is_plain = gathers || tables.into_iter().any(is_of_channels);
    (!is_plain && is_image(input) && is_image(&pass.output)).then_some(channel)
}

/// Returns the channel axis if its extent is a multiple of `block`.
pub(super) fn blockable(chain: &Chain, block: usize) -> Option<AxisId> {
    channel(chain).filter(|&axis| chain.row_axes()[axis].extent.is_multiple_of(block))
}

impl ChainLayout {
    /// Reads the layouts from the knobs; `None` if all images are plain.
    pub(super) fn read(chain: &Chain, block: usize, reader: &KnobReader) -> Result<Option<Self>, LowerError> {
        let [input, output] = ["layout.in", "layout.out"].map(|name| Ok((name, reader.layout(name, block)?)));
        let layouts = [input?, output?];
        let Some(&(name, _)) = layouts.iter().find(|(_, layout)| *layout != Layout::Plain) else { return Ok(None) };
        match blockable(chain, block) {
            Some(channel) => Ok(Some(Self::of(chain, (channel, block), layouts.map(|(_, layout)| layout)))),
            None => {
                Err(LowerError::knob(name, format!("the workload has no channels that the block size {block} divides")))
            }
        }
    }

    fn of(chain: &Chain, (channel, block): (AxisId, usize), [input, output]: [Layout; 2]) -> Self {
        let mut layouts = vec![Layout::Plain; chain.spec.tensors.len()];
        let mut set = |access: &Access, layout| layouts[access.buffer.0 as usize] = layout;

        let last = chain.last();
        let given = last.loads().into_iter().filter(|access| is_given(&chain.spec, access));
        given.for_each(|access| set(access, input));
        // Tensors that the tail reads at the result's index, such as a residual, have the result's
        // layout.
        let behind = chain.tail().into_iter().flat_map(|tail| tail.loads().into_iter().chain([&tail.output]));
        let of_result = behind.filter(|access| access.index == last.output.index);
        of_result.chain([&last.output]).for_each(|access| set(access, output));
        Self { spec: Arc::clone(&chain.spec), layouts, channel, lane: chain.rows, block }
    }

    /// Returns the chain with the channel axis split into blocks and lanes, over physical shapes.
    pub(super) fn chain(&self, chain: &Chain) -> Chain {
        let mut spec = Spec::clone(&self.spec);
        for (tensor, &layout) in spec.tensors.iter_mut().zip(&self.layouts) {
            // Layouts were checked when they were read, so that the default is never used.
            tensor.shape = physical_shape(&tensor.shape, layout).unwrap_or_default();
        }
        for equation in &mut spec.equations {
            *equation = self.equation(equation);
        }
        Chain { spec: Arc::new(spec), numbers: chain.numbers.clone(), rows: chain.rows + 1 }
    }

    fn equation(&self, of: &Equation) -> Equation {
        let Axis { name, extent, reduce } = of.axes[self.channel];
        let mut axes = of.axes.clone();
        axes[self.channel].extent = extent / self.block;
        axes.insert(self.lane, Axis { name: lane_name(name).unwrap_or(name), extent: self.block, reduce });
        let value = of.value.replaced(&mut |access| Expr::Load(self.access(access)));
        Equation { axes, output: self.access(&of.output), value, reduction: of.reduction }
    }

    fn access(&self, access: &Access) -> Access {
        let (channel, lane) = (VarId(self.channel as u32), VarId(self.lane as u32));
        let moved = |index: &Affine| {
            let mut moved = Affine::constant(index.constant);
            for &(VarId(axis), c) in &index.terms {
                let behind = u32::from(axis >= lane.0);
                moved.add_scaled(&Affine::var(VarId(axis + behind)), c);
            }
            moved
        };

        let mut index: Vec<Affine> = access.index.iter().map(moved).collect();
        match self.layouts[access.buffer.0 as usize] {
            Layout::ChannelBlocked(_) => index.push(Affine::var(lane)),
            _ => {
                let channels = Affine::var(channel) * self.block as i64 + Affine::var(lane);
                index.iter_mut().for_each(|index| *index = index.substitute(channel, &channels));
            }
        }
        Access { buffer: access.buffer, index: index.into() }
    }

    /// Converts tile sizes of the workload's rows, where channels count, to those of the split
    /// rows: whole blocks of channels.
    pub(super) fn tiles(&self, mut tiles: Vec<usize>) -> Result<Vec<usize>, LowerError> {
        let channels = tiles[self.channel];
        if !channels.is_multiple_of(self.block) {
            let knob = format!("tile.{}", self.spec.main().axes[self.channel].name);
            return Err(LowerError::knob(
                &knob,
                format!("{channels} channels are not a multiple of the block size {}", self.block),
            ));
        }
        tiles[self.channel] = channels / self.block;
        tiles.push(self.block);
        Ok(tiles)
    }

    /// Returns the axis over the channels of a block.
    pub(super) fn lane(&self) -> AxisId {
        self.lane
    }

    pub(super) fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    pub(crate) fn layout(&self, tensor: BufferId) -> Layout {
        self.layouts[tensor.0 as usize]
    }

    /// Converts a point of an equation of the chain to the point of the workload's equation.
    pub(crate) fn point(&self, mut point: Vec<Affine>) -> Vec<Affine> {
        let lane = point.remove(self.lane);
        point[self.channel] = point[self.channel].clone() * self.block as i64 + lane;
        point
    }
}
