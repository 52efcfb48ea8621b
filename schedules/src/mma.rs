//! The sketch for tensor cores: warps multiply tiles by matrix instructions while the next tiles are copied to shared memory.
//!
//! ```text
//! block loops over parts of the reduction, batch, tiles of rows and columns
//!   thread loops: warps along rows, warps along columns, the 8 and 4 lanes of WarpTile
//!     acc = 0
//!     copy group { chunk 0 to slot 0 }  ..  copy group { chunk stages-2 to slot stages-2 }
//!     serial q in 0..chunks
//!       await copies but of stages-2 groups                    (chunk q is there)
//!       barrier                                                (for all threads; and nobody reads chunk q-1 any more)
//!       copy group { chunk q + stages-1 to the slot of chunk q-1, if there is such a chunk }
//!       mma { acc += data_shared[q % stages] * weight_shared[q % stages] }
//!     output = act(acc + bias + residual)                      (guarded where the tile sticks out)
//! ```
//!
//! Every workload is a matrix product here ([`Gemm`]): the pixels of a convolution are the rows, numbered over images, height and
//! width, its output channels the columns, kernel positions and channels the reduction. Its data has the channels last
//! (`NHWC`), so that what a row needs at a kernel position lies together, and weights are packed ahead of time in the same way:
//!
//! ```text
//! for n, o, y, x { for c, kh, kw { out[n,o,y,x] += in[n,c,y+kh,x+kw] * w[o,c,kh,kw] } }
//!   →  for p in 0..N*OH*OW, o { for kh, kw, c { (n, y, x) = p;  out[n,y,x,o] += in[n,y+kh,x+kw,c] * packed[o,kh,kw,c] } }
//! ```
//!
//! The data of a chunk is gathered by the copies themselves: each copies some channels of a pixel at a kernel position, or
//! zeros where that is in the padding. Rows of shared memory are 16 bytes longer than what they hold, which keeps the eight
//! rows that an `ldmatrix` reads at once in different banks.
//!
//! With `split=n` each of `n` blocks takes a part of the chunks, and a stage of its own adds up their sums, as in
//! [`crate::tiled`]. With `raster=n` the blocks that run at the same time share `n` tiles of rows, so that they find what they
//! read in the second-level cache.
//!
//! The sketch is CUTLASS's multistage kernel for the Ampere generation.
//!
//! # Warp groups
//!
//! A second sketch, `wgmma`, is for compute capability 9.0, matrix products with packed weights, and types of 16 bits. Four warps
//! multiply by one instruction, which reads both operands from shared memory while the warps go on; one thread starts the copy of
//! each operand's tile, which the copy engine does by itself. The instructions for chunk `q` run while the threads wait for
//! chunk `q+1`, so that what is overwritten meanwhile is the slot of chunk `q-1` at the earliest:
//!
//! ```text
//! serial q in 0..chunks
//!   await copies but of stages-3 groups
//!   barrier                                       (the instructions for chunk q-2 are done, those for q-1 may not be)
//!   copy group { box copy: chunk q + stages-2 to the slot of chunk q-2 }
//!   mma by warp group { acc += data_shared[q % stages] * weight_shared[q % stages] }
//! ```
//!
//! With `producer=group` a warp group more does the copies, one thread of it, as in CUTLASS's warp-specialised kernels: nobody
//! waits for all threads, and warp groups of consumers need not be in step. Registers go from the producer to the consumers
//! ([`Side::registers`]).
//!
//! ```text
//! producer
//!   serial q in 0..chunks
//!     await release but of stages-1 groups        (all consumers have done with chunk q-stages)
//!     copy group { box copy: chunk q to its slot }
//! consumers
//!   acc = 0
//!   serial q in 0..chunks
//!     await the next group                        (chunk q is there)
//!     mma by warp group { acc += data_shared[q % stages] * weight_shared[q % stages] }
//!     release but 1 group                         (the instructions for chunk q-1 are done)
//!   output = act(acc + bias + residual)
//! ```
//!
//! With `grid=persistent` there are only as many blocks as multiprocessors, and each goes from tile to tile, so that the producer
//! fills the slots for the next tile while the consumers store the last one:
//!
//! ```text
//! block w in 0..W
//!   ..
//!     producer
//!       serial t in 0..T
//!         unflatten (m.o, n.b, m.b) = W*t + w
//!           serial q in 0..chunks { .. }          (the slot of chunk q is that of number t*chunks + q)
//!     consumers
//!       serial t in 0..T
//!         unflatten (m.o, n.b, m.b) = W*t + w
//!           acc = 0
//!           serial q in 0..chunks { .. }
//!           release but 0 groups
//!           output = act(acc + bias + residual)
//! ```
//!
//! The packed weights lie in an order in which a lane has up to eight neighbouring columns of the result ([`Gemm::permuted`]), so
//! that its stores, and its loads of a residual, are of 16 bytes, and those of four lanes of whole sectors.

use crate::config::Config;
use crate::direct::reader::Reader;
use crate::lower::LowerError;
use crate::workload::{Operator, Workload};
use autotune_ir::DType;
use autotune_ir::launch::ARRIVAL_BYTES;
use autotune_ir::program::{LANES, PRODUCER_THREADS, Side, Team, WarpTile};
use autotune_ir::target::{GpuApi, GpuTarget};

mod estimate;
mod gemm;
mod knobs;
pub(crate) mod lower;
mod rules;
mod sketch;

pub use gemm::Gemm;
pub(crate) use sketch::MmaSketch;
pub use sketch::{GROUP_SKETCH, SKETCH};

/// Threads of a warp.
const WARP: usize = LANES[0] * LANES[1];
/// Bytes of the widest copy, and those by which rows of shared memory are longer than what they hold.
const COPY_BYTES: usize = 16;

/// The tile of the rows or of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Elements of a block.
    pub block: usize,
    /// Elements of a warp, or of a warp group; divides `block`.
    pub warp: usize,
}

impl Tile {
    /// Warps or warp groups along it.
    pub fn warps(self) -> usize {
        self.block / self.warp
    }
}

/// The typed form of a config.
#[derive(Clone, Debug)]
pub struct Mma {
    /// The workload as a matrix product.
    pub gemm: Gemm,
    /// Type of the operands.
    pub dtype: DType,
    /// Who multiplies together.
    pub by: Team,
    /// Tile of the rows.
    pub rows: Tile,
    /// Tile of the columns.
    pub columns: Tile,
    /// Steps of the reduction in a chunk.
    pub chunk: usize,
    /// Chunks in shared memory, 2 or more.
    pub stages: usize,
    /// True if a warp group of its own does the copies.
    pub producer: bool,
    /// Blocks that share all tiles, if not each tile has one.
    pub persistent: Option<usize>,
    /// Blocks that share the reduction of one tile.
    pub split: usize,
    /// Tiles of rows that blocks of neighbouring numbers share.
    pub raster: usize,
}

impl Mma {
    /// The typed form of `config`, or the first knob that is malformed, does not fit the workload, or breaks a limit of the
    /// target.
    pub fn new(workload: &Workload, target: &GpuTarget, by: Team, config: &Config) -> Result<Self, LowerError> {
        if !is_for(workload, target, by) {
            return Err(LowerError::unfit(&config.sketch, workload));
        }
        let reader = Reader(config);
        let tile = |name: &str| {
            let [block, warp] = reader.tile::<2>(name)?;
            Ok::<_, LowerError>(Tile { block, warp })
        };
        let packed = match (reader.choice("weights")?, Gemm::weight_choices(workload)) {
            (word, words) if words.contains(&word) => word == "packed",
            (word, _) => return Err(LowerError::knob("weights", format!("'{word}' does not fit the workload"))),
        };
        let mut gemm = Gemm::new(workload, packed);
        let (rows, columns) = (tile("tile.m")?, tile("tile.n")?);
        let [chunk] = reader.tile::<1>("tile.k")?;
        let raster = match reader.choice("raster")? {
            "all" => gemm.rows.extent.div_ceil(rows.block),
            _ => reader.number("raster")?,
        };
        let (stages, split) = (reader.number("stages")?, reader.number("split")?);
        let (mut producer, mut persistent) = (false, None);
        if by == Team::WarpGroup {
            gemm.run = if columns.block.is_multiple_of(32) { 4 } else { 2 };
            producer = match reader.choice("producer")? {
                "inline" => false,
                "group" => true,
                word => return Err(LowerError::knob("producer", format!("'{word}' is none"))),
            };
            persistent = match reader.choice("grid")? {
                "tiles" => None,
                "persistent" => Some(target.multiprocessors),
                word => return Err(LowerError::knob("grid", format!("'{word}' is none"))),
            };
        }
        let dtype = workload.dtype;
        let mma = Self { gemm, dtype, by, rows, columns, chunk, stages, producer, persistent, split, raster };
        mma.check(workload, target)?;
        Ok(mma)
    }

    /// Steps of one instruction.
    pub fn steps(&self) -> usize {
        WarpTile::steps(self.dtype).unwrap_or(1)
    }

    /// Warps of a block that multiply.
    pub fn warps(&self) -> usize {
        self.threads() / WARP
    }

    /// Threads of a block, those of a producer included.
    pub fn all_threads(&self) -> usize {
        self.threads() + if self.producer { PRODUCER_THREADS } else { 0 }
    }

    /// Threads of a block that multiply.
    pub fn threads(&self) -> usize {
        self.by.threads() * self.rows.warps() * self.columns.warps()
    }

    /// Chunks whose copies may begin before the first is multiplied, and later while one is.
    pub fn ahead(&self) -> usize {
        match self.by {
            Team::WarpGroup if !self.producer => self.stages - 2,
            Team::Warp | Team::WarpGroup => self.stages - 1,
        }
    }

    /// Tiles of rows and of columns.
    pub fn tiles(&self) -> [usize; 2] {
        [self.gemm.rows.extent.div_ceil(self.rows.block), self.gemm.columns.extent.div_ceil(self.columns.block)]
    }

    /// Tiles of the result, for each part of a split reduction.
    pub fn all_tiles(&self) -> usize {
        let [rows, columns] = self.tiles();
        self.split * self.gemm.batch.extent * rows * columns
    }

    /// Blocks of the grid of the compute stage.
    pub fn blocks(&self) -> usize {
        self.persistent.unwrap_or(self.all_tiles())
    }

    /// Chunks of the whole reduction.
    pub fn all_chunks(&self) -> usize {
        let outer: usize = self.gemm.outer.iter().map(|axis| axis.extent).product();
        outer * self.gemm.steps.extent.div_ceil(self.chunk)
    }

    /// Chunks that one block takes.
    pub fn chunks(&self) -> usize {
        self.all_chunks() / self.split
    }

    /// Instructions of a warp's tile along rows, and pairs of columns of a lane. For a warp group, the latter are of one
    /// instruction.
    pub fn instructions(&self) -> [usize; 2] {
        [self.rows.warp / self.by.rows(), self.columns.warp / 8]
    }

    /// Shape in shared memory of what a block needs of the data and of the weights, with the slots of the stages outermost.
    pub fn shared(&self) -> [Vec<usize>; 2] {
        let pad = match self.by {
            Team::Warp => COPY_BYTES / self.dtype.bytes(),
            Team::WarpGroup => 0,
        };
        let weights = match (self.gemm.columns_are_rows, self.dtype) {
            (true, _) => [self.columns.block, self.chunk + pad],
            // There is no `ldmatrix` that transposes words: four lanes read four rows, eight elements of each.
            (false, DType::Tf32) => [self.chunk, self.columns.block + 2 * pad],
            (false, _) => [self.chunk, self.columns.block + pad],
        };
        [[self.rows.block, self.chunk + pad], weights].map(|[rows, row]| vec![self.stages, rows, row])
    }

    /// Shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        let arrivals = match self.by {
            Team::Warp => 0,
            Team::WarpGroup if self.producer => (2 * ARRIVAL_BYTES * self.stages).next_multiple_of(16),
            Team::WarpGroup => (ARRIVAL_BYTES * self.stages).next_multiple_of(16),
        };
        self.shared().iter().map(|shape| shape.iter().product::<usize>() * self.dtype.bytes()).sum::<usize>() + arrivals
    }

    /// How many copies of up to 16 bytes each thread does, for the data and for the weights of a chunk.
    pub fn rounds(&self) -> [usize; 2] {
        [(self.rows.block, 0), (self.columns.block, 1)]
            .map(|(extent, which)| (extent * self.chunk / self.gemm.vectors[which]).div_ceil(self.threads()))
    }

    /// Registers that a thread needs, about: sums, what two steps multiply, and what the compiler keeps of the addresses and
    /// conditions of copies. The numbers are those above which few of some hundred kernels spilled (NVRTC 13.0).
    pub fn registers(&self) -> usize {
        const OVERHEAD: usize = 30;
        let [rows, columns] = self.instructions();
        let [data, weight] = self.rounds();
        if self.by == Team::WarpGroup {
            return 4 * rows * columns + OVERHEAD;
        }
        // Those of a convolution's data hold a pixel, too.
        let copies = 3 * weight + if self.gemm.outer.is_empty() { 3 } else { 6 } * data;
        4 * rows * columns + 4 * rows + 2 * columns + copies + OVERHEAD
    }

    /// Registers that each thread of a block is given at the launch, at most: a multiprocessor deals them out to four warps at a
    /// time, eight for each thread.
    pub fn launched_registers(&self, target: &GpuTarget) -> usize {
        let threads = self.all_threads().next_multiple_of(4 * target.warp_threads);
        target.registers_per_thread.min(target.registers_per_multiprocessor / threads / 8 * 8)
    }

    /// Registers that a thread may have which multiplies.
    pub fn most_registers(&self, target: &GpuTarget) -> usize {
        match Side::registers(self.threads()).filter(|_| self.producer) {
            Some([_, many]) => many,
            None => self.launched_registers(target),
        }
    }
}

/// True if a team has matrix instructions for the workload on the target.
pub fn is_for(workload: &Workload, target: &GpuTarget, by: Team) -> bool {
    let GpuApi::Cuda { sm } = target.api else { return false };
    let bytes = workload.dtype.bytes();
    match (by, workload.op) {
        (Team::Warp, _) => sm >= 80 && WarpTile::steps(workload.dtype).is_some(),
        (Team::WarpGroup, Operator::Matmul(m)) => {
            sm == 90 && bytes == 2 && m.b == 1 && (m.k * bytes).is_multiple_of(COPY_BYTES) && m.m > 1
        }
        (Team::WarpGroup, Operator::Conv2d(_)) => false,
    }
}

/// True if half of the columns and of the steps of an instruction are used at least.
pub fn fills(workload: &Workload) -> bool {
    let gemm = Gemm::new(workload, false);
    gemm.columns.extent >= 8 && gemm.steps.extent >= 4
}
