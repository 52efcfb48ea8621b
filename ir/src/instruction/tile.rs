//! Matrix instructions of a CPU that multiply tiles of two dimensions.

use smallvec::SmallVec;

use super::{Asynchrony, CallSite, Executor, Factors, Feature, Instruction, NestForm, Registers, TILE_REGISTERS};
use crate::affine::{Affine, VarId};
use crate::dtype::DType;
use crate::program::{Access, Expr, Loop, LoopKind, Node, Program, Scope, Store, StoreMode};
use crate::target::{CpuTarget, Isa};

/// `tdpbf16ps` of a [`TileProduct`] (AMX): each sum adds the products of pairs. Denormal factors
/// and sums are treated as zero (Intel, "Software Developer's Manual", volume 2).
pub static TILE_BF16: Instruction = Instruction {
    name: "tdpbf16ps",
    factors: &[Factors::of(DType::Bf16, 2)],
    executor: Executor::Core,
    registers: Registers::Tile,
    feature: Feature::Cpu(Isa::Avx512, "amx"),
    asynchrony: Asynchrony::Nothing,
    nest: NestForm::Tiles,
};

/// `tdpbusd`, `tdpbssd`, `tdpbuud` and `tdpbsud` of a [`TileProduct`] (AMX): each sum adds four
/// products of bytes, wrapping in 32 bits.
pub static TILE_I8: Instruction = Instruction {
    name: "tdpbusd",
    factors: &[
        Factors { dtypes: [DType::U8, DType::I8], steps: 4 },
        Factors::of(DType::I8, 4),
        Factors::of(DType::U8, 4),
        Factors { dtypes: [DType::I8, DType::U8], steps: 4 },
    ],
    ..TILE_BF16
};

/// Tile instructions of CPUs.
static TILES: [&Instruction; 2] = [&TILE_BF16, &TILE_I8];

/// Rows of a tile, sums of a row, and 32-bit words of a row of factors.
pub const TILE_ROWS: usize = 16;

/// Number of products of high and low parts in place of one product of f32: all but the product of
/// the low parts.
pub const SPLIT_PRODUCTS: usize = 3;

/// Returns the tile instruction of `cpu` for factors of exactly these types, and their entry in its
/// table.
pub fn tile_of(cpu: &CpuTarget, dtypes: [DType; 2]) -> Option<(&'static Instruction, Factors)> {
    let of_cpu = TILES.iter().filter(|tile| tile.feature.is_of_cpu(cpu));
    of_cpu.filter_map(|&tile| Some((tile, *tile.factors.iter().find(|known| known.dtypes == dtypes)?))).next()
}

/// Returns the number of tile registers for the sums of `rows` by `columns` tiles, and for the
/// factors.
pub fn tile_registers_of([rows, columns]: [usize; 2]) -> usize {
    rows * columns + rows + columns
}

/// Loop nest of a [`TILE_BF16`] or [`TILE_I8`]: clears the sums of a register tile, then adds all
/// products of its reduction. The sums are in thread-private memory after the call.
///
/// ```text
/// unrolled or vectorized ..                 all of the sums
///   sums[..] = 0
/// serial ..                                 any number of loops over reduction steps
///   unrolled ..                             rows and columns of tiles, in any order
///     unrolled u in 0..U                    words of a row of `data`, at most 16
///       unrolled s in 0..STEPS              elements of a word
///         vectorized v in 0..V
///           sums[.., v] += data[STEPS*u + s + ..] * weights[s + STEPS*v + ..]
/// ```
///
/// Factors in f32 are split: `data` and `weights` hold the high part of each value, its nearest
/// bf16, and at a fixed distance the low part, the nearest bf16 to what is left. The innermost
/// statement then has [`SPLIT_PRODUCTS`] products ([`Store::split_factors`]). This is the sum of
/// three products of Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence
/// datatype for higher-precision computations", 2019.
///
/// The words may have two loops, if they are adjacent across both. The indices stand for row-major
/// offsets. In the offset in `data`, `..` is a multiple of `STEPS` without `v`; in `weights`, it is
/// a multiple of `STEPS`. Rows are unrolled loops that index `data` and not `weights`; columns are
/// those that index `weights` and not `data`.
pub struct TileProduct<'a> {
    /// Store that clears the sums.
    pub clear: &'a Store,
    /// Serial loops over reduction steps, outermost first.
    pub step_loops: SmallVec<[&'a Loop; 4]>,
    /// Unrolled loops over rows, outermost first.
    pub rows: SmallVec<[&'a Loop; 4]>,
    /// Unrolled loops over columns, outermost first.
    pub columns: SmallVec<[&'a Loop; 4]>,
    /// Unrolled outer loop over the words of a row, if the words have two loops.
    pub runs: Option<&'a Loop>,
    /// Loop over adjacent words of a row of `data`.
    pub words: &'a Loop,
    /// Loop over the elements of a word.
    pub steps: &'a Loop,
    /// Vectorised loop over columns.
    pub lanes: &'a Loop,
    /// The multiply-accumulate in the innermost loop.
    pub store: &'a Store,
    /// First factor: one row of words per row of sums.
    pub data: &'a Access,
    /// Second factor: one word per step and column.
    pub weights: &'a Access,
    /// Low parts of data and weights, if `data` and `weights` are high parts.
    pub low: Option<[&'a Access; 2]>,
}

/// Rows or columns of one tile register. Offsets are in elements, relative to the register tile's
/// first element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileSpan {
    /// Offset of the first row or column in its factor.
    pub factor: i64,
    /// Offset of the first row or column in the sums.
    pub sums: i64,
    /// Number of rows or columns, at most [`TILE_ROWS`].
    pub count: usize,
}

/// Distances between rows, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileStrides {
    /// Between rows of `data`.
    pub data: i64,
    /// Between words of `weights` in one column.
    pub weights: i64,
    /// Between rows of the sums.
    pub sums: i64,
}

impl<'a> TileProduct<'a> {
    /// Matches the parts of a nest; `None` if it has another structure.
    pub fn of(body: &'a [Node]) -> Option<Self> {
        let [clear, product] = body else { return None };
        let (_, clear) = perfect(clear)?;
        let (mut loops, store) = perfect(product)?;
        let ([data, weights], low) = match store.split_factors() {
            Some([high, low]) => (high, Some(low)),
            None => (store.factors()?, None),
        };

        let [words, steps, lanes] = *loops.last_chunk()?;
        loops.truncate(loops.len() - 3);
        let is_around = |l: &&Loop| l.kind == LoopKind::Serial;
        let step_loops: SmallVec<_> = loops.iter().copied().take_while(is_around).collect();
        let mut inner = loops.split_off(step_loops.len());
        let is_inner = |l: &mut &Loop| uses(data, l.var) && uses(weights, l.var);
        // The loop over runs is the only inner one that both operands depend on, as it continues
        // the rows of words.
        let runs = inner.pop_if(is_inner);
        let (rows, columns) = inner.into_iter().partition(|l| uses(data, l.var));
        Some(Self { clear, step_loops, rows, columns, runs, words, steps, lanes, store, data, weights, low })
    }

    /// Returns the number of words in a row of `data`.
    pub fn row_words(&self) -> usize {
        self.runs.map_or(1, |l| l.extent) * self.words.extent
    }

    /// Returns the row tiles and the distances between rows. Adjacent rows at equal distances in
    /// both buffers share a tile. `None` if the distances differ between tiles.
    pub fn row_tiles(&self, program: &Program) -> Option<(Vec<TileSpan>, TileStrides)> {
        let [data, weights, sums] = self.offsets(program);
        let rows = positions(&self.rows, [&data, &sums]);
        // Instructions have one distance between rows for the whole product, that of the first two.
        let distances = match rows[..] {
            [first, second, ..] => (second.0 - first.0, second.1 - first.1),
            _ => (TILE_ROWS as i64, TILE_ROWS as i64),
        };
        let is_next = |a: &(i64, i64), b: &(i64, i64)| (b.0 - a.0, b.1 - a.1) == distances;
        let mut tiles = Vec::new();
        for run in rows.chunk_by(is_next) {
            // A run can have more rows than a tile register.
            let parts = run.len().div_ceil(TILE_ROWS);
            // Tiles of equal heights, as far as possible.
            let at = |part: usize| part * run.len() / parts;
            let tile = |part: usize| TileSpan {
                factor: run[at(part)].0,
                sums: run[at(part)].1,
                count: at(part + 1) - at(part),
            };
            tiles.extend((0..parts).map(tile));
        }

        let (data, sums) = distances;
        // A single row after rows at other distances would be fine, but no schedule needs it.
        let is_regular = tiles.iter().all(|tile| tile.count > 1) || tiles.len() == 1;
        let weights = weights.coefficient(self.words.var);
        is_regular.then_some((tiles, TileStrides { data, weights, sums }))
    }

    /// Returns the column tiles.
    pub fn column_tiles(&self, program: &Program) -> Vec<TileSpan> {
        let [_, weights, sums] = self.offsets(program);
        let along = weights.coefficient(self.lanes.var);
        let tile = |(factor, sums): (i64, i64)| {
            (0..self.lanes.extent).step_by(TILE_ROWS).map(move |first| TileSpan {
                factor: factor + along * first as i64,
                sums: sums + first as i64,
                count: TILE_ROWS.min(self.lanes.extent - first),
            })
        };
        positions(&self.columns, [&weights, &sums]).into_iter().flat_map(tile).collect()
    }

    /// Returns the row-major offsets of data, weights and sums.
    pub fn offsets(&self, program: &Program) -> [Affine; 3] {
        [self.data, self.weights, &self.store.dst].map(|access| offset(access, program))
    }

    /// Returns the distances in elements from the high to the low parts of data and weights. `None`
    /// if there are no low parts, or if they are not at one distance in the same buffer.
    pub fn low_distances(&self, program: &Program) -> Option<[i64; 2]> {
        let distance = |high: &Access, low: &Access| {
            let apart = offset(low, program) + offset(high, program) * -1;
            apart.as_constant().filter(|_| low.buffer == high.buffer)
        };
        let [data, weights] = self.low?;
        Some([distance(self.data, data)?, distance(self.weights, weights)?])
    }

    /// Checks that a body is a product that `instruction` computes.
    pub(super) fn check(body: &[Node], site: &CallSite, instruction: &Instruction) -> Result<(), &'static str> {
        let program = site.program;
        let Some(tile) = TileProduct::of(body) else { return Err("not a product of tiles") };
        let dtypes = [tile.data, tile.weights].map(|factor| program.dtype(factor.buffer));
        let Some(&Factors { steps, .. }) = instruction.factors.iter().find(|factors| factors.dtypes == dtypes) else {
            return Err("the instruction does not multiply these element types");
        };

        if !tile.has_loops(steps) {
            return Err("the loops do not match the tile instruction");
        }
        if !tile.has_own_sums(body, program, dtypes[0].accumulator()) {
            return Err("the sums of a tile instruction must be all of a thread-private buffer");
        }
        if !tile.reads_words(steps as i64, program) {
            return Err("the factors of a tile instruction must be rows of adjacent words");
        }
        let of_words = |distances: [i64; 2]| distances.iter().all(|distance| distance % steps as i64 == 0);
        if tile.low.is_some() && !tile.low_distances(program).is_some_and(of_words) {
            return Err("low parts must be at a fixed distance in words from the high parts");
        }
        let Some((rows, _)) = tile.row_tiles(program) else {
            return Err("the rows of a tile instruction must be at equal distances");
        };
        match tile_registers_of([rows.len(), tile.column_tiles(program).len()]) {
            ..=TILE_REGISTERS => Ok(()),
            _ => Err("the product needs more tile registers than there are"),
        }
    }

    fn has_loops(&self, steps: usize) -> bool {
        let is_unrolled = |l: &&Loop| l.kind == LoopKind::Unrolled;
        let are_apart = |l: &&Loop| !uses(self.weights, l.var);
        self.rows.iter().all(|l| is_unrolled(l) && are_apart(l))
            && self.columns.iter().all(is_unrolled)
            && self.runs.iter().chain([&self.words, &self.steps]).all(is_unrolled)
            && self.lanes.kind == LoopKind::Vectorized
            && self.row_words() <= TILE_ROWS
            && self.steps.extent == steps
    }

    fn has_own_sums(&self, body: &[Node], program: &Program, dtype: DType) -> bool {
        let sums = program.buffer(self.store.dst.buffer);
        let Some((loops, _)) = body.first().and_then(perfect) else { return false };
        let cleared: Affine = offset(&self.clear.dst, program);
        let extents: usize = loops.iter().map(|l| l.extent).product();
        let is_written_out = |l: &&Loop| matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized);

        // Distinct loops that index the sums cover them if there are as many iterations as sums.
        let covers = extents == sums.len() && loops.iter().all(|l| cleared.uses(l.var));
        let [_, _, of_product] = self.offsets(program);
        let is_of_tile = |l: &&Loop| of_product.uses(l.var);
        sums.scope == Scope::Local
            && sums.dtype == dtype
            && self.store.mode == StoreMode::Accumulate
            && self.clear.mode == StoreMode::Assign
            && self.clear.dst.buffer == self.store.dst.buffer
            && matches!(self.clear.value, Expr::Const(0.0))
            && loops.iter().all(is_written_out)
            && covers
            && of_product.coefficient(self.lanes.var) == 1
            && self
                .step_loops
                .iter()
                .chain(&self.runs)
                .chain([&self.words, &self.steps])
                .all(|l| !of_product.uses(l.var))
            && self.rows.iter().chain(&self.columns).all(is_of_tile)
    }

    fn reads_words(&self, steps: i64, program: &Program) -> bool {
        let [data, weights, _] = self.offsets(program);
        let is_whole = |of: &Affine| {
            let others = of.terms.iter().filter(|term| term.0 != self.steps.var);
            of.constant % steps == 0 && others.clone().all(|term| term.1 % steps == 0)
        };
        let is_adjacent = |l: &&Loop| {
            let words = self.words.extent as i64;
            [&data, &weights].iter().all(|of| of.coefficient(l.var) == words * of.coefficient(self.words.var))
        };
        is_whole(&data)
            && self.runs.iter().all(is_adjacent)
            && is_whole(&weights)
            && [&data, &weights].iter().all(|of| of.coefficient(self.steps.var) == 1)
            && data.coefficient(self.words.var) == steps
            && weights.coefficient(self.lanes.var) == steps
            && !data.uses(self.lanes.var)
    }
}

/// Returns the loops of a perfect nest, outermost first, and its only statement.
fn perfect(node: &Node) -> Option<(Vec<&Loop>, &Store)> {
    let (mut loops, mut node) = (Vec::new(), node);
    loop {
        match node {
            Node::Store(store) => return Some((loops, store)),
            Node::Loop(l) => {
                let [inner] = &l.body[..] else { return None };
                loops.push(l);
                node = inner;
            }
            _ => return None,
        }
    }
}

/// Returns the offsets of every iteration of some loops, outermost first, in two buffers.
fn positions(loops: &[&Loop], [a, b]: [&Affine; 2]) -> Vec<(i64, i64)> {
    loops.iter().fold(vec![(0, 0)], |known, l| {
        let along = [a.coefficient(l.var), b.coefficient(l.var)];
        let inside = |(a, b): (i64, i64)| (0..l.extent as i64).map(move |i| (a + along[0] * i, b + along[1] * i));
        known.into_iter().flat_map(inside).collect()
    })
}

fn uses(access: &Access, var: VarId) -> bool {
    access.index.iter().any(|index| index.uses(var))
}

/// Returns the row-major offset of an access in its buffer.
pub(super) fn offset(access: &Access, program: &Program) -> Affine {
    let dims = access.index.iter().zip(program.buffer(access.buffer).strides());
    dims.fold(Affine::default(), |mut offset, (index, stride)| {
        offset.add_scaled(index, stride);
        offset
    })
}
