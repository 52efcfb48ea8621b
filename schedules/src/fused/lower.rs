//! Lowering of two fused contractions for CPUs: each uses the direct sketch's register tiles, in
//! the same tiles of rows.

use std::mem::swap;
use std::sync::Arc;

use crate::contraction::divide;
use crate::direct::lower::{DirectLowering, Region, TileOperand, bases};
use crate::direct::{Direct, TileLoop};
use crate::fused::Fused;
use crate::lower::OperandBuffers;
use crate::lower::nest::{NestParts, StageBuilder, allocated};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, LoopKind, Node, Program, Role, Scope, Stage, When};
use autotune_workloads::Workload;

/// Lowers a config to loop nests, for vectors of `lanes` elements.
pub(crate) fn lower(workload: &Workload, fused: &Fused, lanes: usize) -> Program {
    let Fused { first, second, is_whole, .. } = fused;
    let spec = workload.spec();
    let mut all = NestParts::new(workload.spec(), workload.dtype());
    let input = (first.input.shape.as_slice(), first.in_layout);
    let operands = OperandBuffers::new(&mut all, workload, input, (&second.output.shape, second.out_layout));

    let name = &spec.tensor(&spec.equations[first.contraction.tail].output).name;
    let (scope, shape) = match is_whole {
        true => (Scope::Global, second.input.shape.clone()),
        false => (Scope::Local, fused.kept_shape()),
    };
    let between = all.buffer(name.to_string(), Role::Packed, scope, shape);
    all.buffers[between.0 as usize].dtype = fused.pair.dtype;
    let of_first = operands.part(&first.contraction, [operands.input, between]);
    let of_second = operands.part(&second.contraction, [between, operands.output]);
    // Two lowerings share one nest. It is built by the second first, which may add a buffer for
    // partial sums, and then moved to the first.
    let mut second_nests = DirectLowering::of_part(all, of_second, second, lanes);
    let all = std::mem::replace(&mut second_nests.all, NestParts::new(workload.spec(), workload.dtype()));
    let mut first_nests = DirectLowering::of_part(all, of_first, first, lanes);

    let mut stages = first_nests.copies();
    stages.extend(with_shared_nest(&mut first_nests, &mut second_nests, DirectLowering::copies));
    let mut stage = |name: String, body| stages.push(Stage { name, when: When::EveryRun, body });
    match is_whole {
        true => {
            stage(format!("compute_{name}"), first_nests.compute());
            stage("compute".into(), with_shared_nest(&mut first_nests, &mut second_nests, DirectLowering::compute));
        }
        false => {
            let mut tile = |first: &mut DirectLowering, region: &mut Region| {
                both(first, &mut second_nests, (fused, between), region)
            };
            stage("compute".into(), first_nests.trees(&fused.shared_loops(), &mut tile));
        }
    }

    let main = if spec.main == second.contraction.number { second } else { first };
    let NestParts { vars, buffers, .. } = first_nests.all;
    let axes = main.contraction.axes.clone();
    Program { spec: Arc::clone(spec), algorithm: Arc::clone(spec), axes, vars, buffers, stages, cold: false }
}

/// Calls `make` on another lowering, which builds into the nest of this one meanwhile.
fn with_shared_nest<'a, T>(
    of: &mut DirectLowering<'_>,
    other: &mut DirectLowering<'a>,
    make: impl FnOnce(&mut DirectLowering<'a>) -> T,
) -> T {
    swap(&mut of.all, &mut other.all);
    let made = make(other);
    swap(&mut of.all, &mut other.all);
    made
}

/// Builds both contractions for a tile of rows, one chunk of intermediate channels after the other:
///
/// ```text
/// for c.0 { alloc mid { mid[..] = map of Σ data * weight;  output[..] (+)= Σ mid[..] * weight } }
/// ```
fn both(
    first: &mut DirectLowering,
    second: &mut DirectLowering,
    (fused, between): (&Fused, BufferId),
    region: &mut Region,
) -> Vec<Node> {
    let (pair, [made, read]) = (&fused.pair, fused.units);
    let mut of_second = with_shared_nest(first, second, |second| second.whole_region());
    for &[a, b] in pair.rows.iter().chain(&pair.batch) {
        of_second[b] = region[a].clone();
    }

    let chunks = TileLoop { axis: pair.step, tile: fused.second.cache_extent(pair.step) };
    let whole = of_second[pair.step].clone();
    let segments = with_shared_nest(first, second, |second| second.segments(chunks, &of_second, false));
    let own_steps: Vec<TileLoop> = own_steps(&fused.first);
    let mut nodes = Vec::new();
    for segment in segments {
        let name = second.cache_loop(pair.step);
        nodes.extend(first.repeat(name, segment.count, LoopKind::Serial, |first, index| {
            let chunk = whole.tile(segment, index);
            // The chunk counts in steps of the second contraction; the first may count in other
            // units.
            let channel = &mut region[pair.first.channel];
            channel.base = divide(&(chunk.base.clone() * read as i64), made);
            channel.extent = chunk.extent * read / made;
            of_second[pair.step] = chunk;

            first.sums = intermediate_tile(between, &fused.first.output.index, region);
            let mut body = first.cache_nest(&own_steps, region);
            second.data = intermediate_tile(between, &fused.second.data.index, &of_second);
            body.extend(with_shared_nest(first, second, |second| second.register_nest(&mut of_second)));
            allocated([between], body)
        }));
    }
    nodes
}

/// Returns the loops of the first contraction over its own reduction axis.
fn own_steps(first: &Direct) -> Vec<TileLoop> {
    let is_step = |loops: &&TileLoop| first.contraction.axes[loops.axis].reduce;
    first.cache.iter().filter(is_step).copied().collect()
}

/// Returns the location of the intermediate tile that belongs to a region.
fn intermediate_tile(buffer: BufferId, index: &[Affine], region: &Region) -> TileOperand {
    TileOperand { buffer, leading: Vec::new(), index: index.to_vec(), origin: Some(bases(region)) }
}
