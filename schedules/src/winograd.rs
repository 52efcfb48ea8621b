//! The Winograd sketch: convolutions with square kernels of `k x k` taps and stride `s` by minimal
//! filtering `F(m x m, k x k)`. This module is the CPU's; [`gpu`] is the GPU's.
//!
//! The output is divided into tiles of `m x m`. Each needs `a x a` inputs, with
//! `a = s (m - 1) + k`. Input tiles and filters are transformed. Then each of the `a²` products is
//! a matrix product over the input channels, and its results are transformed back. That takes `a²`
//! multiply-adds per tile and pair of channels, where the direct algorithm takes `k² m²`. Per
//! output:
//!
//! | kernel, stride | direct | `m = 2` | 3 | 4 | 6 |
//! |---|---|---|---|---|---|
//! | 2x2, 1 | 4 | 2.25 | 1.78 | 1.56 | 1.36 |
//! | 3x3, 1 | 9 | 4 | 2.78 | 2.25 | 1.78 |
//! | 3x3, 2 | 9 | 6.25 | 5.44 | 5.06 | 4.69 |
//! | 5x5, 1 | 25 | 9 | 5.44 | 4 | |
//! | 7x7, 2 | 49 | 20.25 | 13.44 | 10.56 | |
//! | 7x7, 2, few channels | 49 | 25 | 16 | 12.25 | |
//!
//! A strided convolution is a sum of several with stride 1 ([`matrices`]). With few channels, it is
//! instead one convolution of stride 1 with more channels ([`WinogradConv`]).
//!
//! Tensors whose channels are not a multiple of the block stay in the plain layout. To vectorise
//! their transforms over channels, a task transposes rows of input tiles into channel blocks first,
//! and rows of output tiles back last. The last block has fewer lanes in the transforms. Products
//! compute all lanes of the last block of output channels, for which transformed filters are zeros.
//!
//! ```text
//! ahead of time                            U[xi, o, c] = (G g Gᵀ)[xi]
//! parallel n, blocks of th x tw tiles      (and chunks of output channels, with input=stage)
//!   V[xi, c, t] = (Bᵀ d B)[xi]             (input=stage: before, by a separate stage)
//!   chunks of output channels
//!     xi in 0..a²
//!       chunk, tiles of the block                    (register tiles)
//!         acc = 0
//!         c: unrolled register tile, vectors over o: acc += V * U
//!         M[o, t, xi] = acc
//!     output = act((Aᵀ M A)[valid] + bias + residual)
//! ```
//!
//! Rounding errors are larger than those of the direct algorithm, see `tolerance`. If data and
//! filters are bf16, so are `U` and `V`. A dot-product instruction then multiplies pairs of input
//! channels, and only the smallest tiles are precise enough.

use crate::config::KnobValues;
use crate::direct::{block_size, reader::KnobReader};
use crate::error::LowerError;
use autotune_ir::DType;
use autotune_ir::analyse::tile_registers;
use autotune_ir::instruction::{Instruction, dot_of};
use autotune_ir::program::Layout;
use autotune_ir::target::CpuTarget;
use autotune_workloads::{Work, Workload};

pub mod conv;
pub mod gpu;
mod knobs;
mod lower;
pub mod matrices;
pub(crate) mod passes;
pub(crate) mod rewrite;
mod sketch;

use conv::WinogradConv;
pub(crate) use sketch::WinogradSketch;

/// Name of the sketch in configs.
pub const SKETCH: &str = "winograd";

/// Name of the knob for the size `m` of output tiles.
pub const TILE_SIZE_KNOB: &str = "m";

/// Name of the CPU's knob that decides whether a separate stage transforms the input.
pub const INPUT_KNOB: &str = "input";

/// Maximum number of multiply-accumulates in a straight-line loop body.
const MAX_BODY: usize = 1024;

/// A config of the Winograd sketch on a CPU, parsed.
#[derive(Clone, Debug)]
pub struct Winograd {
    /// Convolution that is computed.
    pub conv: WinogradConv,
    /// Channels per block: at least one vector.
    pub block: usize,
    /// Rows (and columns) of an output tile.
    pub m: usize,
    /// Rows and columns of tiles in the block of tiles that a task computes.
    pub tiles: [usize; 2],
    /// Register tile: number of tiles, number of channel blocks.
    pub register: [usize; 2],
    /// Channel blocks per chunk of output channels.
    pub chunk: usize,
    /// True if a separate stage transforms the whole input.
    pub staged: bool,
    /// Instruction that multiplies groups of reduction steps, and the steps of a group; `None` if
    /// steps are multiplied one by one.
    pub dot: Option<(&'static Instruction, usize)>,
    /// Number of groups of reduction steps (or steps) in one straight-line body; it divides those
    /// of a block.
    pub unroll: usize,
    /// Prefetch distance of transformed weights in f32 elements; 0 for no prefetches.
    pub prefetch: usize,
}

/// Returns the work with tiles of `m` outputs, without the transforms; `None` if the algorithm does
/// not apply. The bytes include the transformed filters instead of the filters.
pub(crate) fn work(workload: &Workload, m: usize) -> Option<Work> {
    let conv = WinogradConv::of(workload).filter(|conv| conv.filtering(m).is_known())?;
    let direct = workload.work();
    let [filters, transformed] =
        [conv.taps, conv.filtering(m).inputs() * conv.phases()].map(|size| (conv.o * conv.c * size * size) as f64);
    let more_bytes = (transformed - filters) * workload.dtype().bytes() as f64;
    Some(Work { flops: direct.flops * conv.work_share(m), bytes: direct.bytes + more_bytes })
}

/// Returns the instruction that multiplies transformed tensors in groups of reduction steps, and
/// the steps of a group. `None` for f32.
fn dot(conv: &WinogradConv, target: &CpuTarget) -> Option<(&'static Instruction, usize)> {
    let (instruction, factors) = dot_of(target, [conv.transformed; 2])?;
    Some((instruction, factors.steps))
}

/// Returns the workload's convolution if the sketch applies on a CPU. For transformed tensors in
/// bf16, the CPU needs a dot-product instruction, and steps must be whole groups.
pub fn conv_on(workload: &Workload, target: &CpuTarget) -> Option<WinogradConv> {
    let fits = |conv: &WinogradConv| {
        let has_groups =
            || dot(conv, target).is_some_and(|(_, steps)| conv.phases() == 1 && conv.depth().is_multiple_of(steps));
        conv.transformed == DType::F32 || has_groups()
    };
    WinogradConv::of(workload).filter(fits)
}

impl Winograd {
    /// Parses the knobs of a config. Fails with the first knob that is malformed, does not fit the
    /// workload, or breaks a limit of the target.
    pub fn new(workload: &Workload, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let conv = conv_on(workload, target).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        let reader = KnobReader(knobs);
        let block = block_size(target);

        let [rows] = reader.tile::<1>("tile.th")?;
        let [columns] = reader.tile::<1>("tile.tw")?;
        let [positions, channels] = reader.tile::<2>("tile.register")?;
        let [chunk] = reader.tile::<1>("tile.o")?;
        // Knobs count channels, but the plan counts blocks.
        for (name, size) in [("tile.register", channels), ("tile.o", chunk)] {
            if !size.is_multiple_of(block) {
                return Err(LowerError::knob(name, format!("{size} is not a multiple of {block}")));
            }
        }

        let winograd = Self {
            conv,
            block,
            m: reader.number(TILE_SIZE_KNOB)?,
            tiles: [rows, columns],
            register: [positions, channels / block],
            chunk: chunk / block,
            staged: match reader.choice(INPUT_KNOB)? {
                "fused" => false,
                "stage" => true,
                other => return Err(LowerError::knob(INPUT_KNOB, format!("'{other}' is not fused or stage"))),
            },
            dot: dot(&conv, target),
            unroll: reader.number("unroll")?,
            prefetch: reader.prefetch()?,
        };
        winograd.check(target)?;
        Ok(winograd)
    }

    /// Number of reduction steps that are multiplied together.
    pub fn group_steps(&self) -> usize {
        self.dot.map_or(1, |(_, steps)| steps)
    }

    /// Rows (and columns) of the transformed tile.
    pub fn a(&self) -> usize {
        self.conv.filtering(self.m).inputs()
    }

    /// Distance in inputs between adjacent tiles.
    pub fn tile_stride(&self) -> usize {
        self.m * self.conv.filtering(self.m).stride
    }

    /// Rows and columns of tiles in one image.
    pub fn grid(&self) -> [usize; 2] {
        self.conv.grid(self.m)
    }

    /// Layouts of input and output: channel-blocked where the block divides the channels.
    pub fn layouts(&self) -> [Layout; 2] {
        [self.conv.c, self.conv.o].map(|channels| match channels.is_multiple_of(self.block) {
            true => Layout::ChannelBlocked(self.block),
            false => Layout::Plain,
        })
    }

    /// Number of blocks of the products' input channels; the last may be incomplete.
    pub fn c_blocks(&self) -> usize {
        self.conv.depth().div_ceil(self.block)
    }

    /// Number of blocks of output channels; the last may be incomplete.
    pub fn o_blocks(&self) -> usize {
        self.conv.o.div_ceil(self.block)
    }

    /// Number of contiguous input channels in a transformed tile: one block, or all channels if the
    /// input is in the plain layout.
    pub fn c_lanes(&self) -> usize {
        if self.layouts()[0] == Layout::Plain { self.conv.depth() } else { self.block }
    }

    /// Number of input channels that are transformed together.
    pub fn depth_block(&self) -> usize {
        self.conv.depth_block(self.block)
    }

    /// Shape of the transformed input of a block of tiles: `[xi, c block, tile, lane]`, or
    /// `[xi, 0, tile, c]` for the plain layout. The number of tiles and the number of vectors per
    /// tile are odd. Channel blocks, products and tiles then map to different cache sets.
    pub fn input_shape(&self) -> [usize; 4] {
        let tiles = self.tiles.iter().product::<usize>() | 1;
        let [blocks, lanes] = match self.layouts()[0] {
            Layout::Plain => [1, (self.c_blocks() | 1) * self.block],
            Layout::ChannelBlocked(block) => [self.c_blocks(), block],
        };
        [self.a() * self.a(), blocks, tiles, lanes]
    }

    /// Shape of a row of input tiles for a block of channels: `[row, column, lane]`.
    pub fn input_tile_row(&self) -> [usize; 3] {
        [self.a(), (self.tiles[1] - 1) * self.tile_stride() + self.a(), self.depth_block().next_power_of_two()]
    }

    /// Shape of a row of output tiles for a block of channels: `[row, column, lane]`.
    pub fn output_tile_row(&self) -> [usize; 3] {
        [self.m, self.tiles[1] * self.m, self.block]
    }

    /// Shape of the products of a block of tiles and a chunk of channels:
    /// `[o block, tile, xi, lane]`. The extent along `xi` is odd to avoid cache conflicts.
    pub fn product_shape(&self) -> [usize; 4] {
        [self.chunk, self.tiles.iter().product(), (self.a() * self.a()) | 1, self.block]
    }

    /// Checks the rules between knobs and the limits of the target.
    fn check(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let refuse = |name: &str, reason: String| Err(LowerError::knob(name, reason));
        if !self.conv.pays(self.m, self.block) {
            return refuse(
                TILE_SIZE_KNOB,
                format!("tiles of {0}x{0} are not available or save too little work", self.m),
            );
        }

        let grid = self.grid();
        for (name, size, count) in [("tile.th", self.tiles[0], grid[0]), ("tile.tw", self.tiles[1], grid[1])] {
            if size > count {
                return refuse(name, format!("{size} exceeds the {count} tiles along this axis"));
            }
        }

        let [positions, channels] = self.register;
        if positions > self.tiles.iter().product() {
            return refuse("tile.register", "has more positions than a block has tiles".into());
        }
        if channels > self.chunk || self.chunk > self.o_blocks() {
            return refuse("tile.o", "must be at least a register tile and at most all output channels".into());
        }
        // Weights are packed by register tiles, so each chunk must begin with a whole one.
        if self.chunk < self.o_blocks() && !self.chunk.is_multiple_of(channels) {
            return refuse("tile.o", "is not a multiple of the register tile".into());
        }

        // Sums of a register tile, one step's weights and the broadcast data must fit the
        // registers.
        let vectors = channels * (self.block / target.lanes()).max(1);
        let (needed, registers) =
            (tile_registers(positions * vectors, [vectors, positions]), target.isa.vector_registers());
        if needed > registers {
            return refuse("tile.register", format!("needs {needed} vector registers, {registers} are available"));
        }
        // Unrolled steps must not cross the end of a channel block.
        let groups = self.block / self.group_steps();
        if !groups.is_multiple_of(self.unroll) || positions * vectors * self.unroll > MAX_BODY {
            return refuse("unroll", format!("does not divide {groups}, or unrolls too much code"));
        }
        self.check_memory(target)
    }

    /// Checks that a task's local buffers fit twice the second-level cache.
    fn check_memory(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let size = |shape: &[usize], dtype: DType| shape.iter().fold(dtype.bytes(), |size, &d| size.saturating_mul(d));
        let bytes = |shape: &[usize]| size(shape, DType::F32);
        let strip = |layout: Layout, shape: [usize; 3]| if layout == Layout::Plain { bytes(&shape) } else { 0 };
        let input = if self.staged { 0 } else { size(&self.input_shape(), self.conv.transformed) };
        // Tile rows of inputs and of outputs are not live at the same time.
        let [read, written] = self.layouts();
        let strips = strip(read, self.input_tile_row()).max(strip(written, self.output_tile_row()));
        let needed = input.saturating_add(bytes(&self.product_shape())).saturating_add(strips);
        let limit = 2 * target.l2_bytes;
        if needed > limit {
            return Err(LowerError::knob("tile.th", format!("{needed} bytes per task exceed the limit of {limit}")));
        }
        Ok(())
    }
}

/// Returns the relative error that kernels may have and still be correct: at least ten times the
/// largest error seen. Errors depend on the number of points only, not on kernel and stride. On 200
/// random convolutions of 16 to 512 channels for each number of points, they were at most 1e-6 for
/// 2 and 3 points, 4e-6 for 4, 5e-6 for 5, 2e-5 for 6 and 4e-5 for 7.
///
/// Transformed tensors in bf16 cause much larger errors. A mistake, such as a wrong tap or tile
/// edge, still causes errors of the size of the outputs.
fn tolerance(conv: &WinogradConv, m: usize) -> f64 {
    match conv.transformed {
        DType::F32 if conv.filtering(m).points() <= 5 => 1e-4,
        DType::F32 => 4e-4,
        _ => 2e-2,
    }
}
