//! Lowering of two fused contractions for GPUs: each like the `tiled` sketch, in the same tiles of
//! rows.

use std::mem::swap;
use std::sync::Arc;

use super::GpuFused;
use super::pair::PairMiddle;
use crate::contraction::{AxisId, divide};
use crate::gpu::Tiling;
use crate::gpu::lower::copy::CopyMode;
use crate::gpu::lower::pack::pack_weight;
use crate::gpu::lower::{GpuLowering, StageOperands, compute};
use crate::lower::nest::{NestParts, allocated, guarded, guarded_value};
use crate::lower::tables::tables;
use crate::lower::{OperandBuffers, assign, at, load, nest};
use autotune_ir::DType;
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Layout, LoopKind, Node, Program, Role, Scope, Stage, When};
use autotune_workloads::Workload;

use online::Online;

mod hide;
mod online;
mod stream;
mod weigh;

/// Prefix of the names of the first contraction's buffers.
const FIRST: &str = "first_";

/// Lowers a config to loop nests.
pub(in crate::fused) fn lower(workload: &Workload, fused: &GpuFused) -> Program {
    let (spec, pair) = (workload.spec(), &fused.pair);
    let mut all = NestParts::new(workload.spec(), workload.dtype());
    let shape = |role| spec.find(role).map_or(&[][..], |tensor| &tensor.shape);
    let whole = [Role::Operand(0), Role::Output].map(|role| (shape(role), Layout::Plain));
    let operands = OperandBuffers::new(&mut all, workload, whole[0], whole[1]);
    let (tables, made_ahead) = match &pair.between {
        // A causal mask compares numbers of keys and queries, not elements of a table.
        PairMiddle::Softmax(softmax) if softmax.later.is_some() => Default::default(),
        _ => tables(spec, &mut all, &[("b", LoopKind::Block), ("t", LoopKind::Thread)]),
    };

    let mut stages = Vec::from_iter(made_ahead);
    let mut add = |name: String, when, body| stages.push(Stage { name, when, body });
    let tilings = [&fused.first, &fused.second];
    let weights = [0, 1].map(|number| {
        let (tiling, weight) = (tilings[number], pair.weights[number]);
        let Some(packing) = &tiling.packing else { return weight };
        let name = format!("{}_packed", all.buffers[weight.0 as usize].name);
        let packed = all.buffer(name.clone(), Role::Packed, Scope::Global, tiling.staged[1].source.shape.clone());
        add(format!("pack_{name}"), When::AheadOfTime, pack_weight(tiling, packing, [weight, packed], &mut all));
        packed
    });

    // Buffer of the intermediate tensor if it is in global memory, else a placeholder that no code
    // accesses.
    let read = &pair.part(1).own.data;
    let name = spec.tensor(spec.equations[fused.second.roles.own.number].loads()[0]).name.to_string();
    let between = if fused.is_whole {
        all.buffer(name.clone(), Role::Packed, Scope::Global, read.shape.clone())
    } else {
        pair.data
    };
    if fused.is_whole {
        all.buffers[between.0 as usize].dtype = DType::F32;
    }
    let own = tilings.map(|tiling| &tiling.roles.own);
    let outside = |data, weight, operands| StageOperands { sources: [data, weight], partial: None, operands };
    let first = outside(pair.data, weights[0], operands.part(own[0], [pair.data, between]));
    let second = outside(between, weights[1], operands.part(own[1], [between, operands.output]));
    match fused.is_whole {
        true => {
            add(format!("compute_{name}"), When::EveryRun, compute(&fused.first, first, FIRST, &mut all));
            add("compute".into(), When::EveryRun, compute(&fused.second, second, "", &mut all));
        }
        false => {
            let mut spare = NestParts::new(workload.spec(), workload.dtype());
            let both = PairLowering::new(fused, [first, second], tables, [&mut all, &mut spare]);
            add("compute".into(), When::EveryRun, both.compute());
        }
    }

    let main = if spec.main == own[1].number { own[1] } else { own[0] };
    let (spec, axes) = (Arc::clone(spec), main.axes.clone());
    Program { algorithm: Arc::clone(&spec), spec, axes, vars: all.vars, buffers: all.buffers, stages, cold: false }
}

/// Lowering of both contractions in one kernel.
struct PairLowering<'a> {
    fused: &'a GpuFused,
    /// Owns the nest that is being built, except while the second one
    /// [has it](PairLowering::with_shared_nest).
    first: GpuLowering<'a>,
    second: GpuLowering<'a>,
    online: Option<Online>,
}

impl<'a> PairLowering<'a> {
    fn new(
        fused: &'a GpuFused,
        [of_first, of_second]: [StageOperands; 2],
        tables: Vec<Option<BufferId>>,
        [all, spare]: [&'a mut NestParts; 2],
    ) -> Self {
        let online = match &fused.pair.between {
            PairMiddle::Softmax(softmax) => Some(Online::new(softmax.clone(), fused, tables, all)),
            PairMiddle::Map => None,
        };
        // Both lowerings add their buffers to the common nest, one after the other.
        let first = GpuLowering::new(&fused.first, of_first, FIRST, all);
        swap(first.all, spare);
        let second = GpuLowering::new(&fused.second, of_second, "", spare);
        swap(first.all, second.all);
        for weights in [first.shared[1], second.shared[1]] {
            first.all.buffers[weights.0 as usize].shape[0] *= fused.slots.unwrap_or(1);
        }
        if let Some(shape) = fused.held_shape() {
            let held = &mut first.all.buffers[second.shared[0].0 as usize];
            (held.name, held.scope, held.shape) = ("weights_held".into(), Scope::Warp, shape);
        }
        Self { fused, first, second, online }
    }

    /// Calls `make` on the second contraction's lowering, which builds into the common nest
    /// meanwhile.
    fn with_shared_nest<T>(&mut self, make: impl FnOnce(&mut GpuLowering<'a>) -> T) -> T {
        swap(self.first.all, self.second.all);
        let made = make(&mut self.second);
        swap(self.first.all, self.second.all);
        made
    }

    fn compute(mut self) -> Vec<Node> {
        let mut loops = Vec::new();
        self.with_shared_nest(|second| {
            second.open_blocks(&mut loops);
            second.open_threads(&mut loops);
        });
        self.start_with_last_rows();
        self.place_first();

        let mut body = self.with_shared_nest(|second| second.clear());
        body.extend(self.begin_rows());
        body.extend(match self.fused.slots {
            Some(slots) => self.streamed_chunks(slots),
            None => self.chunks(),
        });

        body.extend(self.end_rows());
        body.extend(self.with_shared_nest(|second| second.write_output()));
        let online = self.online.iter().flat_map(|online| online.buffers());
        let buffers: Vec<BufferId> =
            self.first.buffers().into_iter().chain(self.second.buffers()).chain(online).collect();
        nest(loops, allocated(buffers, body))
    }

    /// Builds the loop over tiles of intermediate channels.
    fn chunks(&mut self) -> Vec<Node> {
        let mut body = Vec::new();
        // If no tile of channels needs other data, it is copied once before all of them.
        let (tiling, channel) = (self.first.tiling, self.fused.pair.channel);
        let is_alike = channel.is_none_or(|[channel, _]| !tiling.staged[0].source.uses(channel));
        let is_copied_once = is_alike && tiling.slots == 1 && tiling.chunk_counts().all(|count| count == 1);
        if is_copied_once {
            body.extend(self.first.copy_operand(0, CopyMode::Direct(&Affine::default()), &Vec::new()));
        }

        let mut chunks = Vec::new();
        let name = channel.map_or("", |[channel, _]| tiling.roles.name(channel));
        let count = self.fused.channel_tiles();
        let chunk = self.first.all.open_some(format!("{name}.0"), count, LoopKind::Serial, &mut chunks);
        let nodes = self.chunk(chunk, is_copied_once);
        body.extend(nest(chunks, nodes));
        body
    }

    /// Reverses the order of row tiles if a causal mask hides more keys of earlier ones: blocks
    /// with the most work then start first.
    fn start_with_last_rows(&mut self) {
        let is_causal = self.online.as_ref().is_some_and(|online| online.softmax.later.is_some());
        for &[_, row] in self.fused.pair.rows.iter().filter(|_| is_causal) {
            let (tiling, base) = (&self.fused.second, &mut self.second.block_base[row]);
            let last = (tiling.roles.extent(row).div_ceil(tiling.tile(row)) - 1) * tiling.tile(row);
            *base = base.clone() * -1 + last as i64;
        }
    }

    /// Derives the first contraction's block and thread indices from the second's: both have the
    /// same rows, and the first has channels in place of columns.
    fn place_first(&mut self) {
        let (pair, [first, second]) = (&self.fused.pair, [&self.fused.first, &self.fused.second]);
        for &[a, b] in pair.rows.iter().chain(&pair.batch) {
            self.first.block_base[a] = self.second.block_base[b].clone();
        }
        self.first.thread = self.second.thread.clone();
        let columns = pair.channel.zip(pair.column).map(|([channel, _], column)| [channel, column]);
        for [a, b] in pair.rows.iter().copied().chain(columns) {
            let (base, steps) = (&self.second.thread_base[b], [step(second, b), step(first, a)]);
            self.first.thread_base[a] = match steps {
                [own, other] if own == other => base.clone(),
                [own, other] => divide(base, own) * other as i64,
            };
        }
    }

    /// Builds a tile of intermediate channels:
    ///
    /// ```text
    /// first_acc = 0;  first_acc += ..;  data_shared = map or softmax weights of first_acc
    /// for the chunks of the second {
    ///   weight_shared = ..;  barrier;  acc += data_shared * weight_shared;  barrier, if several
    /// }
    /// ```
    ///
    /// No barrier is needed before the stores to shared memory: the first contraction contains at
    /// least one, after the last reads of the tile before.
    fn chunk(&mut self, number: Affine, is_copied_once: bool) -> Vec<Node> {
        let first = self.place_chunk(number);
        let mut nodes = self.first.clear();
        nodes.extend(if is_copied_once { self.copied_chunk() } else { self.first.chunks() });
        nodes.extend(match self.online.is_some() {
            true => self.weigh(),
            false => self.map(),
        });
        nodes.extend(self.multiply_second(first.clone()));
        guarded(self.is_seen(&first), nodes)
    }

    /// Sets the first contraction's tile of intermediate channels; returns its first channel.
    fn place_chunk(&mut self, number: Affine) -> Affine {
        let Some([channel, _]) = self.fused.pair.channel else { return Affine::default() };
        let first = number * self.fused.first.tile(channel) as i64;
        self.first.block_base[channel] = first.clone();
        first
    }

    /// Builds the second contraction's chunks of a tile of intermediate channels that begins at
    /// `first`.
    fn multiply_second(&mut self, first: Affine) -> Vec<Node> {
        let (fused, zero, count) = (self.fused, Affine::default(), self.fused.chunks());
        self.with_shared_nest(|second| {
            let (mut loops, mut place) = (Vec::new(), Vec::new());
            if let Some([channel, step]) = fused.pair.channel {
                let chunk = second.tiling.tile(step) as i64;
                let from = second.all.open_some(
                    format!("{}.c", second.tiling.roles.name(step)),
                    count,
                    LoopKind::Unrolled,
                    &mut loops,
                ) * chunk;
                place.push((step, first + &from));
                second.data_from = second.tiling.staged[0].source.dim_of(step).map(|dim| (dim, from));
                second.has_partial_chunk = !fused.first.roles.extent(channel).is_multiple_of(fused.first.tile(channel));
            }

            let mut nodes = second.copy_operand(1, CopyMode::Direct(&zero), &place);
            nodes.push(Node::Barrier);
            nodes.extend(second.multiply(&zero, &place));
            nodes.extend((count > 1).then_some(Node::Barrier));
            nest(loops, nodes)
        })
    }

    /// Builds the first contraction's only chunk, whose data was copied before.
    fn copied_chunk(&mut self) -> Vec<Node> {
        let (zero, place) = (Affine::default(), Vec::new());
        let mut nodes = self.first.copy_operand(1, CopyMode::Direct(&zero), &place);
        nodes.push(Node::Barrier);
        nodes.extend(self.first.multiply(&zero, &place));
        nodes
    }

    /// Builds `data_shared = map of first_acc`, with zeros past the last channel.
    fn map(&mut self) -> Vec<Node> {
        let tiling = self.first.tiling;
        let (loops, index) = self.first.open_sums(tiling.sums.iter());
        let values = self.first.in_block(tiling.sums.iter(), &index);
        let point = self.first.point(values.clone(), &Vec::new());

        let own = &tiling.roles.own;
        let to: Vec<Affine> = own.output.index.iter().map(|index| at(index, &point)).collect();
        let value = self.first.operands.operands.fused(load(self.first.acc, index), &at(&own.bias, &point), &to);
        let channel =
            self.fused.pair.channel.map(|[channel, _]| (point[channel].clone(), tiling.roles.extent(channel)));
        let when = self.first.all.guards(channel);
        let store = assign(self.second.shared[0], self.between(&values), guarded_value(when, value));
        nest(loops, vec![store])
    }

    /// Returns the index in shared memory of an intermediate value, by the first contraction's axis
    /// values within the block.
    fn between(&self, values: &[Affine]) -> Vec<Affine> {
        let pair = &self.fused.pair;
        let mut of_second = vec![Affine::default(); self.second.thread_base.len()];
        for [a, b] in pair.rows.iter().copied().chain(pair.channel) {
            of_second[b] = values[a].clone();
        }
        self.second.shared_index(0, &Affine::default(), &self.second.places(0, &of_second))
    }
}

/// Returns the distance of the first elements of neighbouring threads along an axis.
fn step(tiling: &Tiling, axis: AxisId) -> usize {
    tiling.threads.iter().find(|level| level.axis == axis).map_or(1, |level| level.step)
}
