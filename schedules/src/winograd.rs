//! The Winograd sketch on a CPU (on a GPU: [`gpu`]): convolutions with kernels `k x k` of stride
//! `s` by minimal filtering `F(m x m, k x k)`.
//!
//! The output is cut into tiles of `m x m`, each of which needs `a x a` inputs,
//! `a = s (m - 1) + k`. Input tiles and filters are transformed; then each of the `a²` products is
//! a matrix product over the input channels; its results are transformed back. That takes `a²`
//! multiply-adds per tile and pair of channels where the direct way takes `k² m²`:
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
//! A strided convolution is several of stride 1 in one ([`matrices`]), or, of few channels, one of
//! stride 1 with more of them ([`Conv`]).
//!
//! Channels that blocks do not divide lie plain. Transforms have vectors of them nevertheless: rows
//! of input tiles are transposed into blocks of channels first, rows of output tiles back last, in
//! memory of the task, and the last vector has fewer lanes. Products have all lanes of the last
//! block of output channels, where transformed filters are zeros.
//!
//! ```text
//! ahead of time                                     U[xi, o, c] = (G g Gᵀ)[xi]
//! parallel n, blocks of th x tw tiles               (and chunks of output channels, with input=stage)
//!   V[xi, c, t] = (Bᵀ d B)[xi]                      input=fused: for the block's tiles; input=stage: a stage of its own
//!   chunks of output channels
//!     xi in 0..a²
//!       chunk, tiles of the block                    (register tiles)
//!         acc = 0
//!         c: unrolled register tile, vectors over o: acc += V * U
//!         M[o, t, xi] = acc
//!     output = act((Aᵀ M A)[valid] + bias + residual)
//! ```
//!
//! Rounding errors are larger than those of the direct sum, see `tolerance`.

use crate::config::KnobValues;
use crate::direct::{block_size, reader::Reader};
use crate::error::LowerError;
use autotune_ir::analyse::tile_registers;
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

use conv::Conv;
use matrices::Filtering;
pub(crate) use sketch::WinogradSketch;

/// Name of the sketch in configs.
pub const SKETCH: &str = "winograd";

/// Name of the knob with the size of output tiles.
pub const TILE_SIZE_KNOB: &str = "m";

/// Name of the knob that says whether the input is transformed in a stage of its own, on CPUs.
pub const INPUT_KNOB: &str = "input";

/// Straight-line multiply-accumulates of one loop body, at most.
const MAX_BODY: usize = 1024;

/// The typed form of a config.
#[derive(Clone, Debug)]
pub struct Winograd {
    /// The operator.
    pub conv: Conv,
    /// Channels of a block, one vector or more.
    pub block: usize,
    /// Rows and columns of an output tile.
    pub m: usize,
    /// Rows and columns of tiles that a task takes.
    pub tiles: [usize; 2],
    /// Tiles and channel blocks of the register tile.
    pub register: [usize; 2],
    /// Channel blocks of a chunk of output channels.
    pub chunk: usize,
    /// True if the whole input is transformed by a stage of its own.
    pub staged: bool,
    /// Reduction steps in one straight-line body; divides the block.
    pub unroll: usize,
    /// Distance in f32 elements at which transformed weights are prefetched, 0 for none.
    pub prefetch: usize,
}

/// What is to be done for a workload with tiles of `m` outputs, transforms apart; nothing if the
/// sketch is not for it. The filters are read transformed.
pub(crate) fn work(workload: &Workload, m: usize) -> Option<Work> {
    let conv = Conv::of(workload).filter(|conv| conv.filtering(m).is_known())?;
    let direct = workload.work();
    let [filters, transformed] =
        [conv.taps, conv.filtering(m).inputs() * conv.phases()].map(|size| (conv.o * conv.c * size * size) as f64);
    let more_bytes = (transformed - filters) * workload.dtype().bytes() as f64;
    Some(Work { flops: direct.flops * conv.work_share(m), bytes: direct.bytes + more_bytes })
}

impl Winograd {
    /// The typed form of `config`, or the first knob that is malformed, does not fit the workload,
    /// or breaks a limit of the target.
    pub fn new(workload: &Workload, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let conv = Conv::of(workload).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        let reader = Reader(knobs);
        let block = block_size(target);

        let [rows] = reader.tile::<1>("tile.th")?;
        let [columns] = reader.tile::<1>("tile.tw")?;
        let [positions, channels] = reader.tile::<2>("tile.register")?;
        let [chunk] = reader.tile::<1>("tile.o")?;
        for (name, size) in [("tile.register", channels), ("tile.o", chunk)] {
            if !size.is_multiple_of(block) {
                return Err(LowerError::knob(name, format!("{size} is no multiple of {block}")));
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
            unroll: reader.number("unroll")?,
            prefetch: reader.prefetch()?,
        };
        winograd.check(target)?;
        Ok(winograd)
    }

    /// Rows and columns of the transformed tile.
    pub fn a(&self) -> usize {
        self.conv.filtering(self.m).inputs()
    }

    /// Inputs from the first of a tile to that of the next.
    pub fn tiles_apart(&self) -> usize {
        self.m * self.conv.filtering(self.m).stride
    }

    /// Rows and columns of tiles of an image.
    pub fn grid(&self) -> [usize; 2] {
        self.conv.grid(self.m)
    }

    /// Layouts of input and output: blocks of channels where these are whole ones.
    pub fn layouts(&self) -> [Layout; 2] {
        [self.conv.c, self.conv.o].map(|channels| match channels.is_multiple_of(self.block) {
            true => Layout::ChannelBlocked(self.block),
            false => Layout::Plain,
        })
    }

    /// Blocks of the channels of products, the last of which may not be whole.
    pub fn c_blocks(&self) -> usize {
        self.conv.depth().div_ceil(self.block)
    }

    /// Blocks of output channels, the last of which may not be whole.
    pub fn o_blocks(&self) -> usize {
        self.conv.o.div_ceil(self.block)
    }

    /// Channels of products that lie side by side when they are transformed: a block, or all where
    /// blocks are not whole.
    pub fn c_lanes(&self) -> usize {
        if self.layouts()[0] == Layout::Plain { self.conv.depth() } else { self.block }
    }

    /// Channels of products that are transformed together.
    pub fn depth_block(&self) -> usize {
        self.conv.depth_block(self.block)
    }

    /// Shape of the transformed input of a block of tiles: `[xi, c block, tile, lane]`, or
    /// `[xi, 0, tile, c]` where blocks are not whole. The number of tiles is odd, and so is that of
    /// vectors of a tile, so that neither channel blocks nor products nor tiles fall on the same
    /// cache sets.
    pub fn input_shape(&self) -> [usize; 4] {
        let tiles = self.tiles.iter().product::<usize>() | 1;
        let [blocks, lanes] = match self.layouts()[0] {
            Layout::Plain => [1, (self.c_blocks() | 1) * self.block],
            Layout::ChannelBlocked(block) => [self.c_blocks(), block],
        };
        [self.a() * self.a(), blocks, tiles, lanes]
    }

    /// Shape of a row of input tiles of a block of channels: `[row, column, lane]`.
    pub fn input_strip(&self) -> [usize; 3] {
        [self.a(), (self.tiles[1] - 1) * self.tiles_apart() + self.a(), self.depth_block().next_power_of_two()]
    }

    /// The same of outputs.
    pub fn output_strip(&self) -> [usize; 3] {
        [self.m, self.tiles[1] * self.m, self.block]
    }

    /// Shape of the products of a block of tiles and a chunk of channels:
    /// `[o block, tile, xi, lane]`, the last but one odd.
    pub fn product_shape(&self) -> [usize; 4] {
        [self.chunk, self.tiles.iter().product(), (self.a() * self.a()) | 1, self.block]
    }

    /// Rules between knobs and limits of the target.
    fn check(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let refuse = |name: &str, reason: String| Err(LowerError::knob(name, reason));
        if !self.conv.pays(self.m, self.block) {
            return refuse(TILE_SIZE_KNOB, format!("tiles of {0}x{0} save nothing", self.m));
        }

        let grid = self.grid();
        for (name, size, count) in [("tile.th", self.tiles[0], grid[0]), ("tile.tw", self.tiles[1], grid[1])] {
            if size > count {
                return refuse(name, format!("{size} of {count} tiles"));
            }
        }

        let [positions, channels] = self.register;
        if positions > self.tiles.iter().product() {
            return refuse("tile.register", "more positions than tiles of a block".into());
        }
        if channels > self.chunk || self.chunk > self.o_blocks() {
            return refuse("tile.o", "less than a register tile or more than there is".into());
        }
        if self.chunk < self.o_blocks() && !self.chunk.is_multiple_of(channels) {
            return refuse("tile.o", "no multiple of the register tile".into());
        }

        let vectors = channels * (self.block / target.lanes()).max(1);
        let (needed, registers) =
            (tile_registers(positions * vectors, [vectors, positions]), target.isa.vector_registers());
        if needed > registers {
            return refuse("tile.register", format!("needs {needed} vector registers of {registers}"));
        }
        if !self.block.is_multiple_of(self.unroll) || positions * vectors * self.unroll > MAX_BODY {
            return refuse("unroll", format!("no divisor of {}, or too long a body", self.block));
        }
        self.check_memory(target)
    }

    /// What a task keeps to itself must stay near the second-level cache.
    fn check_memory(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let bytes = |shape: &[usize]| shape.iter().fold(4usize, |bytes, &d| bytes.saturating_mul(d));
        let strip = |layout: Layout, shape: [usize; 3]| if layout == Layout::Plain { bytes(&shape) } else { 0 };
        let input = if self.staged { 0 } else { bytes(&self.input_shape()) };
        let [read, written] = self.layouts();
        let strips = strip(read, self.input_strip()).max(strip(written, self.output_strip()));
        let needed = input.saturating_add(bytes(&self.product_shape())).saturating_add(strips);
        let limit = 2 * target.l2_bytes;
        if needed > limit {
            return Err(LowerError::knob("tile.th", format!("a task's {needed} bytes exceed {limit}")));
        }
        Ok(())
    }
}

/// The relative error that kernels may have and still be right: ten times the largest error met, or
/// more. Errors go by the number of points, whatever the kernel and the stride: on 200 random
/// convolutions of 16 to 512 channels for each they were 1e-6 at most for 2 and 3 points, 4e-6 for
/// 4, 5e-6 for 5, 2e-5 for 6 and 4e-5 for 7.
fn tolerance(filtering: Filtering) -> f64 {
    if filtering.points() <= 5 { 1e-4 } else { 4e-4 }
}
