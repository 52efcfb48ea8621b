//! A contraction as a config lays out its activations.

use std::sync::Arc;

use smallvec::SmallVec;

use super::reader::Reader;
use super::roles::{LoopNames, Roles};
use crate::contraction::{AxisId, Contraction, Operand, with_layout};
use crate::error::LowerError;
use autotune_ir::program::Layout;

/// Layouts of the activations.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Layouts {
    pub(super) input: Layout,
    pub(super) data: Layout,
    pub(super) output: Layout,
}

impl Layouts {
    pub(super) fn read(
        reader: &Reader,
        [input_blocks, output_blocks]: [bool; 2],
        block: usize,
    ) -> Result<Self, LowerError> {
        let layout = |name: &str, fits: bool| match reader.layout(name, block)? {
            Layout::ChannelBlocked(_) if !fits => {
                Err(LowerError::knob(name, format!("{block} does not divide the channels")))
            }
            layout => Ok(layout),
        };
        let data = if reader.has("layout.data") { "layout.data" } else { "layout.in" };
        Ok(Self {
            input: layout("layout.in", input_blocks)?,
            data: layout(data, input_blocks)?,
            output: layout("layout.out", output_blocks)?,
        })
    }
}

/// The axes of channels split as layouts need, and the operands in these layouts.
pub(super) struct Laid {
    /// Operands are in their plain layouts.
    pub(super) contraction: Arc<Contraction>,
    /// The axes that are split, each with that over its lanes.
    lanes: SmallVec<[(AxisId, AxisId); 2]>,
    pub(super) input: Arc<Operand>,
    pub(super) data: Arc<Operand>,
    pub(super) output: Arc<Operand>,
    pub(super) names: LoopNames,
}

impl Laid {
    /// Blocks are of so many channels.
    pub(super) fn of(roles: &Roles, layouts: Layouts, block: usize) -> Self {
        let is_blocked = |layout: Layout| layout != Layout::Plain;
        let input = roles.input_channel().filter(|_| is_blocked(layouts.input) || is_blocked(layouts.data));
        let output = is_blocked(layouts.output).then_some(roles.channel);

        let (mut contraction, mut lanes) = (roles.contraction.clone(), SmallVec::<[(AxisId, AxisId); 2]>::new());
        for axis in [input, output].into_iter().flatten() {
            if lanes.iter().all(|lane| lane.0 != axis) {
                lanes.push((axis, contraction.split(axis, block)));
            }
        }

        let lane_of = |axis: AxisId| lanes.iter().find(|lane| lane.0 == axis).map(|lane| lane.1);
        let (in_lane, out_lane) = (roles.input_channel().and_then(lane_of), lane_of(roles.channel));
        let laid = |operand: &Operand, layout, lane| Arc::new(with_layout(operand, layout, lane));
        Self {
            input: laid(&contraction.data, layouts.input, in_lane),
            data: laid(&contraction.data, layouts.data, in_lane),
            output: laid(&contraction.output, layouts.output, out_lane),
            names: LoopNames::of(roles, roles.blockable(block)[0]),
            contraction: Arc::new(contraction),
            lanes,
        }
    }

    /// The axis over the lanes of a split axis.
    pub(super) fn lane_of(&self, axis: AxisId) -> Option<AxisId> {
        self.lanes.iter().find(|lane| lane.0 == axis).map(|lane| lane.1)
    }
}
