//! A contraction with the layouts that a config chooses for its activations.

use std::sync::Arc;

use smallvec::SmallVec;

use super::reader::KnobReader;
use super::roles::{LoopNames, Roles};
use crate::contraction::{AxisId, Contraction, Operand, var, with_layout};
use crate::error::LowerError;
use autotune_ir::affine::Affine;
use autotune_ir::program::Layout;

/// Layouts of the activations: input, data as the compute nest reads it, and output.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct DataLayouts {
    pub(crate) input: Layout,
    pub(crate) data: Layout,
    pub(crate) output: Layout,
}

impl DataLayouts {
    pub(crate) fn read(
        reader: &KnobReader,
        [input_blocks, output_blocks]: [bool; 2],
        block: usize,
    ) -> Result<Self, LowerError> {
        // Schedules without copies in another layout have no knob for the data.
        let data = if reader.has("layout.data") { "layout.data" } else { "layout.in" };
        Ok(Self {
            input: layout(reader, "layout.in", input_blocks, block)?,
            data: layout(reader, data, input_blocks, block)?,
            output: layout(reader, "layout.out", output_blocks, block)?,
        })
    }
}

/// Returns the layout that a knob names, with blocks of `block` channels. Fails if blocks do not
/// fit.
pub(crate) fn layout(reader: &KnobReader, name: &str, fits: bool, block: usize) -> Result<Layout, LowerError> {
    match reader.layout(name, block)? {
        Layout::ChannelBlocked(_) if !fits => {
            Err(LowerError::knob(name, format!("the block size {block} does not divide the channels")))
        }
        layout => Ok(layout),
    }
}

/// A contraction with its channel axes split for the layouts, and the operands in these layouts.
pub(crate) struct SplitContraction {
    /// The contraction with split axes; its operands are in plain layouts.
    pub(crate) contraction: Arc<Contraction>,
    /// Axes that are split into blocks, each with the axis over the lanes of a block.
    lanes: SmallVec<[(AxisId, AxisId); 2]>,
    pub(crate) input: Arc<Operand>,
    pub(crate) data: Arc<Operand>,
    pub(crate) output: Arc<Operand>,
    pub(crate) names: LoopNames,
    /// Axis over the steps of a group; `None` without groups.
    pub(crate) group: Option<AxisId>,
    /// Axis over the groups in a row of a tile; `None` without tiles.
    pub(crate) words: Option<AxisId>,
}

/// Groups of reduction steps for dot-product and tile instructions.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Groups {
    /// Steps per group; 1 without groups.
    pub(crate) steps: usize,
    /// Groups in a row of a tile; 1 without tiles.
    pub(crate) words: usize,
    /// True if data in the plain layout has the steps of a group adjacent, which copies of images
    /// can provide.
    pub(crate) in_images: bool,
}

impl Groups {
    pub(crate) const NONE: Self = Self { steps: 1, words: 1, in_images: false };
}

impl Roles {
    /// Returns the contraction in some layouts, with blocks of `block` channels and groups of
    /// steps. The result is cached per workload.
    pub(crate) fn in_layouts(&self, layouts: DataLayouts, block: usize, groups: Groups) -> Arc<SplitContraction> {
        self.split_contractions.get((block, layouts, groups), || SplitContraction::of(self, layouts, block, groups))
    }
}

/// Returns the data with its channels in rows of `steps` channels each, as the last dimension. The
/// channels of every group begin with a row of their own.
fn in_rows(contraction: &Contraction, lane: Affine, steps: usize) -> Operand {
    let mut data = contraction.data.clone();
    let channel = data.index[1].clone() + lane.clone() * -1;
    let rows = channel.terms.iter().map(|&(axis, channels)| (axis, channels.unsigned_abs().div_ceil(steps as u64)));
    data.index[1] = Affine { constant: 0, terms: rows.map(|(axis, rows)| (axis, rows as i64)).collect() };
    let (_, last) = data.index[1].range(|axis| contraction.axes[axis.0 as usize].extent);
    data.shape[1] = last as usize + 1;
    data.index.push(lane);
    data.shape.push(steps);
    data
}

/// Names of the axes over the steps of a group, and over the groups in a row of a tile.
const GROUP: &str = "group";
const WORDS: &str = "word";

impl SplitContraction {
    /// Splits the axes and lays out the operands, with blocks of `block` channels.
    pub(crate) fn of(roles: &Roles, layouts: DataLayouts, block: usize, groups: Groups) -> Self {
        let is_blocked = |layout: Layout| layout != Layout::Plain;
        // Copies for tiles have blocks of their own.
        let has_tiles = groups.words > 1;
        let copies = has_tiles && groups.in_images;
        let reads_blocks = (is_blocked(layouts.input) || is_blocked(layouts.data)) && !copies;
        let input = roles.input_channel().filter(|_| reads_blocks);
        let output = is_blocked(layouts.output).then_some(roles.channel);

        // Input and output share the channel axis of a depthwise convolution, which is split once.
        let (mut contraction, mut lanes) = (roles.contraction.clone(), SmallVec::<[(AxisId, AxisId); 2]>::new());
        for axis in [input, output].into_iter().flatten() {
            if lanes.iter().all(|lane| lane.0 != axis) {
                lanes.push((axis, contraction.split(axis, block)));
            }
        }

        let lane_of = |axis: AxisId| lanes.iter().find(|lane| lane.0 == axis).map(|lane| lane.1);
        let (in_lane, out_lane) = (roles.input_channel().and_then(lane_of), lane_of(roles.channel));
        let mut input = with_layout(&contraction.data, layouts.input, in_lane);
        let mut data = with_layout(&contraction.data, layouts.data, in_lane);
        let mut output = with_layout(&contraction.output, layouts.output, out_lane);

        // A group consists of adjacent channels: those of one block if the input is blocked.
        let split = in_lane.filter(|_| !roles.is_depthwise).or(roles.step).filter(|_| groups.steps > 1);
        let group = split.map(|axis| {
            let (group, replacement) = contraction.split_to(axis, groups.steps, GROUP);
            for operand in [&mut input, &mut data, &mut output] {
                operand.substitute(axis, &replacement);
            }
            group
        });
        // Without its lanes, the axis over groups is the step's own.
        let of_groups = in_lane.filter(|_| !roles.is_depthwise).or(roles.step).filter(|_| has_tiles);
        let words = of_groups.map(|axis| {
            let (words, replacement) = contraction.split_to(axis, groups.words, WORDS);
            for operand in [&mut input, &mut data, &mut output] {
                operand.substitute(axis, &replacement);
            }
            words
        });
        if groups.in_images && in_lane.is_none() {
            let of_words = words.map_or(Affine::default(), |words| var(words) * groups.steps as i64);
            let lane = of_words + group.map_or(Affine::default(), var);
            data = in_rows(&contraction, lane, groups.words * groups.steps);
        }
        if copies && is_blocked(layouts.input) {
            let mut plain = roles.contraction.clone();
            let lane = roles.step.map(|step| plain.split(step, block));
            input = with_layout(&plain.data, layouts.input, lane);
        }
        Self {
            input: Arc::new(input),
            data: Arc::new(data),
            output: Arc::new(output),
            names: LoopNames::of(roles, roles.blockable(block)[0]),
            contraction: Arc::new(contraction),
            lanes,
            group,
            words,
        }
    }

    /// Returns the number of steps of one instruction that must be adjacent in the data.
    pub(crate) fn adjacent_steps(&self) -> usize {
        [self.group, self.words].into_iter().flatten().map(|axis| self.contraction.axes[axis].extent).product()
    }

    /// Returns the axis over the lanes of a split axis.
    pub(crate) fn lane_of(&self, axis: AxisId) -> Option<AxisId> {
        self.lanes.iter().find(|lane| lane.0 == axis).map(|lane| lane.1)
    }
}
