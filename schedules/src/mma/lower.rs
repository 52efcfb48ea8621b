//! Lowering of the sketch for tensor cores.

use super::gemm::Place;
use super::{Mma, Tile};
use crate::lower::partial::{Sums, add_partial};
use crate::lower::{OperandBuffers, assign, dtype_of, load, nest};
use crate::workload::Workload;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{
    Access, Buffer, BufferId, Digit, Expr, InBounds, LANES, Layout, LoopKind, Node, Program, Role, Scope, Side, Signal,
    Stage, Store, StoreMode, Team, VarName, When,
};
use std::sync::Arc;

mod copy;
mod output;

/// The loop nests of a config.
pub(crate) fn lower(workload: &Workload, mma: &Mma) -> Program {
    Lowering::new(workload, mma).run()
}

struct Lowering<'a> {
    workload: &'a Workload,
    mma: &'a Mma,
    vars: Vec<VarName>,
    extents: Vec<usize>,
    buffers: Vec<Buffer>,
    operands: OperandBuffers,
    /// Where the compute stage reads data and weights.
    sources: [BufferId; 2],
    shared: [BufferId; 2],
    acc: BufferId,
    /// Sums of the parts of a split reduction, if it is split.
    partial: Option<BufferId>,
    /// The part of the reduction that the block takes.
    part: Affine,
    /// Where a block goes from tile to tile: the loop, the number of the tile, and its digits.
    turns: Option<(Loops, Affine, Vec<Digit>)>,
    /// First element of the block: batch, row, column.
    block: Place,
    /// First row and column of the warp within the block, for the first of its sums.
    warp: [Affine; 2],
    /// The lane's number along rows and along columns.
    lane: [Affine; 2],
    /// Number of the thread.
    thread: Affine,
}

type Loops = Vec<(VarId, usize, LoopKind)>;

impl<'a> Lowering<'a> {
    fn new(workload: &'a Workload, mma: &'a Mma) -> Self {
        let mut buffers = Vec::new();
        let [input, output] = mma.gemm.operands(workload);
        let operands = OperandBuffers::new(&mut buffers, workload, (&input.0, input.1), (&output.0, output.1));
        let mut add = |name: &str, role, scope, shape: Vec<usize>| {
            let dtype = dtype_of(workload, role);
            buffers.push(Buffer { name: name.into(), role, scope, shape, layout: Layout::Plain, dtype });
            BufferId(buffers.len() as u32 - 1)
        };
        let weight = match mma.gemm.packed {
            true => add("weight_packed", Role::Packed, Scope::Global, mma.gemm.packed_shape()),
            false => operands.weight,
        };
        let partial = (mma.split > 1)
            .then(|| add("partial", Role::Accumulator, Scope::Global, [&[mma.split], &output.0[..]].concat()));
        let [data_shape, weight_shape] = mma.shared();
        let shared = [
            add("data_shared", Role::Packed, Scope::Shared, data_shape),
            add("weight_shared", Role::Packed, Scope::Shared, weight_shape),
        ];
        let [rows, columns] = mma.instructions();
        let run = mma.gemm.run;
        let acc = add("acc", Role::Accumulator, Scope::Register, vec![rows, columns / run, 2, 2 * run]);
        Self {
            workload,
            mma,
            vars: Vec::new(),
            extents: Vec::new(),
            sources: [operands.input, weight],
            buffers,
            operands,
            shared,
            acc,
            partial,
            part: Affine::default(),
            turns: None,
            block: Place { outer: vec![Affine::default(); mma.gemm.outer.len()], ..Place::default() },
            warp: Default::default(),
            lane: Default::default(),
            thread: Affine::default(),
        }
    }

    fn run(mut self) -> Program {
        let mut stages = Vec::new();
        if self.mma.gemm.packed {
            stages.push(Stage { name: "pack_weight".into(), when: When::AheadOfTime, body: self.pack_weight() });
        }
        stages.push(Stage { name: "compute".into(), when: When::EveryRun, body: self.compute() });
        if let Some(partial) = self.partial {
            let channel = self.buffers[self.operands.output.0 as usize].shape.len() - 1;
            let sums =
                Sums { workload: self.workload, operands: &self.operands, partial, parts: self.mma.split, channel };
            let body = add_partial(&sums, &mut self.vars, &mut self.buffers);
            stages.push(Stage { name: "add_partial".into(), when: When::EveryRun, body });
        }
        let axes = self.mma.gemm.axes();
        let spec = Arc::clone(&self.mma.gemm.spec);
        Program { algorithm: Arc::clone(&spec), spec, axes, vars: self.vars, buffers: self.buffers, stages }
    }

    fn var(&mut self, name: impl Into<VarName>, extent: usize) -> VarId {
        self.vars.push(name.into());
        self.extents.push(extent);
        VarId(self.vars.len() as u32 - 1)
    }

    /// A variable with its loop pushed to `loops`.
    fn open(&mut self, name: impl Into<VarName>, extent: usize, kind: LoopKind, loops: &mut Loops) -> Affine {
        let var = self.var(name, extent);
        loops.push((var, extent, kind));
        Affine::var(var)
    }

    /// The same, but zero where the extent is 1.
    fn open_some(&mut self, name: impl Into<VarName>, extent: usize, kind: LoopKind, loops: &mut Loops) -> Affine {
        if extent == 1 { Affine::default() } else { self.open(name, extent, kind, loops) }
    }

    /// `body` with the digits of `value`: the variables of `names` with their extents, the most significant first.
    fn unflatten(
        &mut self,
        value: Affine,
        names: &[(&'static str, usize)],
        body: impl FnOnce(&mut Self, Vec<Affine>) -> Vec<Node>,
    ) -> Vec<Node> {
        let digits = names.iter().map(|&(name, extent)| Digit { var: self.var(name, extent), extent });
        let digits: Vec<Digit> = digits.collect();
        let body = body(self, digits.iter().map(|d| Affine::var(d.var)).collect());
        vec![Node::Unflatten { value, digits, body }]
    }

    /// The conditions that do not always hold.
    fn guards(&self, bounds: impl IntoIterator<Item = (Affine, usize)>) -> Vec<InBounds> {
        let leaves = |(index, extent): &(Affine, usize)| {
            let (low, high) = index.range(|v| self.extents[v.0 as usize]);
            low < 0 || high >= *extent as i64
        };
        bounds.into_iter().filter(leaves).map(|(index, extent)| InBounds { index, extent }).collect()
    }

    fn compute(&mut self) -> Vec<Node> {
        let mut loops = Vec::new();
        self.open_blocks(&mut loops);
        self.open_threads(&mut loops);
        let body = if self.mma.producer { self.sides() } else { self.all_do_all() };
        let buffers = [self.shared[0], self.shared[1], self.acc];
        let body = buffers.into_iter().rev().fold(body, |body, buffer| vec![Node::Alloc { buffer, body }]);
        nest(loops, body)
    }

    /// Threads that copy and multiply.
    fn all_do_all(&mut self) -> Vec<Node> {
        let mut body = self.clear();
        body.extend(self.pipeline());
        body.extend(self.write_output());
        body
    }

    /// A producer that copies, and consumers that multiply; see [`crate::mma`].
    fn sides(&mut self) -> Vec<Node> {
        let producer = self.in_turns(Self::produce);
        let consumers = self.in_turns(|this, first| {
            let mut body = this.clear();
            body.extend(this.consume(first));
            body.extend(this.write_output());
            body
        });
        let side = |side, body| Node::Side { side, body };
        vec![side(Side::Producer, producer), side(Side::Consumers, consumers)]
    }

    /// `body` for each tile of the block, with the number of its first chunk.
    fn in_turns(&mut self, body: impl FnOnce(&mut Self, Affine) -> Vec<Node>) -> Vec<Node> {
        let Some((loops, value, digits)) = self.turns.clone() else { return body(self, Affine::default()) };
        let turn = Affine::var(loops[0].0);
        let body = body(self, turn * self.mma.chunks() as i64);
        nest(loops, vec![Node::Unflatten { value, digits, body }])
    }

    fn produce(&mut self, first: Affine) -> Vec<Node> {
        let mut loops = Vec::new();
        let q = self.open("q", self.mma.chunks(), LoopKind::Serial, &mut loops);
        let copies = self.in_slot(first + q.clone(), |this, slot| this.copy_chunk(&q, &slot));
        let wait = Node::Signal(Signal::AwaitReleased { but: self.mma.stages - 1 });
        nest(loops, vec![wait, Node::CopyGroup { body: copies }])
    }

    fn consume(&mut self, first: Affine) -> Vec<Node> {
        let mut loops = Vec::new();
        let q = self.open("q", self.mma.chunks(), LoopKind::Serial, &mut loops);
        let mut step = vec![Node::Signal(Signal::AwaitFilled)];
        step.extend(self.in_slot(first + q.clone(), |this, slot| this.multiply(&q, &slot)));
        step.push(Node::Signal(Signal::Release { but: 1 }));
        let mut nodes = nest(loops, step);
        if self.turns.is_some() {
            nodes.push(Node::Signal(Signal::Release { but: 0 }));
        }
        nodes
    }

    /// Parts of the reduction, batch, and tiles: all columns for some rows before the next rows.
    fn open_blocks(&mut self, loops: &mut Loops) {
        let Mma { gemm, rows, columns, split, raster, .. } = self.mma;
        let [row_tiles, column_tiles] = self.mma.tiles();
        let kind = LoopKind::Block;
        self.part = self.open_some(format!("{}.s", gemm.steps.name), *split, kind, loops);
        self.block.batch = self.open_some(format!("{}.b", gemm.batch.name), gemm.batch.extent, kind, loops);
        let mut tiles = Vec::new();
        let outer = self.open_some(format!("{}.o", gemm.rows.name), row_tiles / raster, kind, &mut tiles);
        let column = self.open_some(format!("{}.b", gemm.columns.name), column_tiles, kind, &mut tiles);
        let inner = self.open_some(format!("{}.b", gemm.rows.name), *raster, kind, &mut tiles);
        self.block.row = (outer * *raster as i64 + inner) * rows.block as i64;
        self.block.column = column * columns.block as i64;
        match self.mma.persistent {
            Some(blocks) => self.open_turns(blocks, tiles, loops),
            None => loops.extend(tiles),
        }
    }

    /// So many blocks that go from tile to tile, those of one turn to neighbouring ones.
    fn open_turns(&mut self, blocks: usize, tiles: Loops, loops: &mut Loops) {
        let block = self.open("w", blocks, LoopKind::Block, loops);
        let mut turns = Vec::new();
        let turn = self.open("t", self.mma.all_tiles().div_ceil(blocks), LoopKind::Serial, &mut turns);
        let digits = tiles.into_iter().map(|(var, extent, _)| Digit { var, extent }).collect();
        self.turns = Some((turns, turn * blocks as i64 + block, digits));
    }

    fn open_threads(&mut self, loops: &mut Loops) {
        let Mma { gemm, rows, columns, .. } = self.mma;
        let tiles: [(&str, Tile); 2] = [(gemm.rows.name, *rows), (gemm.columns.name, *columns)];
        let warps = tiles.map(|(name, tile)| {
            let warp = self.open_some(format!("{name}.w"), tile.warps(), LoopKind::Thread, loops);
            self.thread = self.thread.clone() * tile.warps() as i64 + warp.clone();
            warp * tile.warp as i64
        });
        self.warp = warps;
        if self.mma.by == Team::WarpGroup {
            let warp = self.open(format!("{}.g", gemm.rows.name), 4, LoopKind::Thread, loops);
            self.thread = self.thread.clone() * 4 + warp.clone();
            self.warp[0] = self.warp[0].clone() + warp * 16;
        }
        self.lane = [(gemm.rows.name, LANES[0]), (gemm.columns.name, LANES[1])].map(|(name, lanes)| {
            let lane = self.open(format!("{name}.t"), lanes, LoopKind::Thread, loops);
            self.thread = self.thread.clone() * lanes as i64 + lane.clone();
            lane
        });
    }

    /// `acc = 0`.
    fn clear(&mut self) -> Vec<Node> {
        let mut loops = Vec::new();
        let ([rows, columns], run) = (self.mma.instructions(), self.mma.gemm.run);
        let shape = [("i", rows), ("j", columns / run), ("h", 2), ("c", 2 * run)];
        let index = shape.map(|(name, extent)| self.open(name, extent, LoopKind::Unrolled, &mut loops));
        nest(loops, vec![assign(self.acc, index.into(), Expr::Const(0.0))])
    }

    /// The loop over chunks, with the copies of the next ones under way; see [`crate::mma`].
    fn pipeline(&mut self) -> Vec<Node> {
        let (ahead, chunks) = (self.mma.ahead(), self.mma.chunks());
        let mut first = Vec::new();
        let s = self.open("s", ahead, LoopKind::Unrolled, &mut first);
        let copies = self.copy_chunk(&s, &s);
        let mut nodes = nest(first, vec![Node::CopyGroup { body: copies }]);
        let mut loops = Vec::new();
        let q = self.open("q", chunks, LoopKind::Serial, &mut loops);
        let next = q.clone() + ahead as i64;
        let copies = self.in_slot(next.clone(), |this, slot| this.copy_chunk(&next, &slot));
        let when = self.guards([(next, chunks)]);
        let body = match chunks > ahead {
            true if when.is_empty() => copies,
            true => vec![Node::Guard { when, body: copies }],
            false => Vec::new(),
        };
        let mut step = vec![Node::AwaitCopies { but: ahead - 1 }, Node::Barrier, Node::CopyGroup { body }];
        step.extend(self.in_slot(q.clone(), |this, slot| this.multiply(&q, &slot)));
        nodes.extend(nest(loops, step));
        nodes
    }

    /// `body` with the slot of chunk `q`: the remainder of the division by the number of stages.
    fn in_slot(&mut self, q: Affine, body: impl FnOnce(&mut Self, Affine) -> Vec<Node>) -> Vec<Node> {
        let stages = self.mma.stages;
        let (_, last) = q.range(|v| self.extents[v.0 as usize]);
        let names = [("round", last as usize / stages + 1), ("slot", stages)];
        self.unflatten(q, &names, |this, digits| body(this, digits[1].clone()))
    }

    /// `body` at the first step of chunk `q` of the block's part.
    fn at_chunk(&mut self, q: &Affine, body: impl FnOnce(&mut Self, Place) -> Vec<Node>) -> Vec<Node> {
        let Mma { gemm, chunk, .. } = self.mma;
        let number = self.part.clone() * self.mma.chunks() as i64 + q.clone();
        let outer: Vec<(&str, usize)> = gemm.outer.iter().map(|a| (a.name, a.extent)).filter(|o| o.1 > 1).collect();
        let mut place = self.block.clone();
        if outer.is_empty() {
            place.step = number * *chunk as i64;
            return body(self, place);
        }
        let of_steps = [(gemm.steps.name, gemm.steps.extent.div_ceil(*chunk))];
        self.unflatten(number, &[&outer[..], &of_steps].concat(), |this, digits| {
            let mut digits = digits.into_iter();
            for (value, axis) in place.outer.iter_mut().zip(&gemm.outer) {
                *value = if axis.extent > 1 { digits.next().unwrap_or_default() } else { Affine::default() };
            }
            place.step = digits.next().unwrap_or_default() * *chunk as i64;
            body(this, place)
        })
    }

    /// `mma { acc += data_shared[slot] * weight_shared[slot] }` for chunk `q`, which lies in `slot`.
    fn multiply(&mut self, q: &Affine, slot: &Affine) -> Vec<Node> {
        let mma = self.mma;
        let mut loops = Vec::new();
        let ([rows, columns], steps, run) = (mma.instructions(), mma.steps(), mma.gemm.run);
        let (s, j) = (("s", mma.chunk / steps), ("j", columns / run));
        let shape = [s, ("i", rows), j, ("h", 2), ("p", run), ("c", 2), ("k", steps)];
        let [s, i, j, h, p, c, k] = shape.map(|(name, extent)| self.open(name, extent, LoopKind::Unrolled, &mut loops));
        let acc = vec![i.clone(), j.clone(), h.clone(), p.clone() * 2 + c.clone()];
        let row = self.row(i, h);
        let [column, packed] = self.columns([j, p, self.lane[1].clone(), c]);
        let step = s * steps as i64 + k;
        let weight = match mma.gemm.columns_are_rows {
            true => vec![slot.clone(), packed, step.clone()],
            false => vec![slot.clone(), step.clone(), packed],
        };
        let data = load(self.shared[0], vec![slot.clone(), row.clone(), step.clone()]);
        let value = Expr::product(data, load(self.shared[1], weight));
        self.at_chunk(q, |this, mut place| {
            place.row = place.row + row;
            place.column = place.column + column;
            place.step = place.step + step;
            let point = mma.gemm.point(&place);
            let dst = Access { buffer: this.acc, index: acc };
            let store = Node::Store(Store { dst, mode: StoreMode::Accumulate, value, point });
            vec![Node::Mma { by: mma.by, body: nest(loops, vec![store]) }]
        })
    }

    /// Row within the block's tile of the lane's sums `i` and `h`.
    fn row(&self, i: Affine, h: Affine) -> Affine {
        self.warp[0].clone() + i * self.mma.by.rows() as i64 + h * LANES[0] as i64 + self.lane[0].clone()
    }

    /// Column within the block's tile, in the result and where weights are packed, of the sums `[j, p, q, c]` of [`Gemm::permuted`].
    fn columns(&self, sums: [Affine; 4]) -> [Affine; 2] {
        self.mma.gemm.permuted(sums).map(|column| self.warp[1].clone() + column)
    }
}
