//! Random networks and databases for tests.
#![allow(clippy::expect_used)]

#[path = "../../workloads/tests/common/cases.rs"]
#[allow(dead_code, unreachable_pub)]
pub(crate) mod cases;

use std::sync::Arc;

use autotune_db::{TuningDb, TuningRecord};
use autotune_ir::{DType, Target};
use autotune_schedules::ScheduleSpace;
use rand::{Rng, RngExt};

use crate::compiled::Compiled;
use crate::cut::{Cut, StepWork};
use crate::error::CompileError;
use autotune_graph::Tensor;
use autotune_graph::op::Op;
use autotune_graph::operators::{Concat, Expand, Range, Slice, Sliding};
use autotune_graph::{Builder, ConvLayer, Seeded};
use autotune_graph::{Graph, NodeId};

/// Creates a random network on images of 16 or 32 channels: convolutions, some of them equal,
/// products of two tensors, and concatenations. Some tensors are outputs.
pub(crate) fn random_graph(rng: &mut impl Rng, layers: usize) -> Graph {
    let net = Builder::new("random", Seeded { seed: 1 });
    let mut values = vec![net.input("x", &[1, 16, 4, 4])];
    for layer in 0..layers {
        let mut any = || values[rng.random_range(values.len().saturating_sub(3)..values.len())];
        let (a, b) = (any(), any());
        let name = format!("layer{layer}");
        values.push(match rng.random_range(0..6) {
            0 if a.shape() == b.shape() => a * b,
            1 => a.concat(&[b], 1),
            2 => a.conv(&name, ConvLayer::new(32, Sliding::new(1))),
            _ => a.conv(&name, ConvLayer::new(16, Sliding::new(1))),
        });
        if layer + 1 == layers || rng.random_bool(0.2) {
            net.output(&name, values[values.len() - 1]);
        }
    }
    net.finish().expect("a valid graph")
}

/// Returns a small random time.
pub(crate) fn any_secs(rng: &mut impl Rng) -> f64 {
    1e-6 * rng.random_range(1.0..10.0)
}

/// Creates a database with a few random schedules and times for every workload of a graph.
pub(crate) fn known(graph: &Graph, target: &Target, rng: &mut impl Rng, schedules: usize) -> TuningDb {
    let db = TuningDb::temporary().expect("a temporary folder");
    for step in &Cut::of(graph).steps {
        let StepWork::Kernel(workload) = &step.work else { continue };
        let space = ScheduleSpace::new(workload, target);
        for _ in 0..schedules {
            let config = space.sample(rng).config().clone();
            if space.proven(&config).is_ok() {
                db.append(&TuningRecord::synthetic(workload, target, config, any_secs(rng))).expect("a valid record");
            }
        }
    }
    db
}

/// Creates a graph that only copies an input and a constant: repeated, sliced backwards with a step
/// of 2, and concatenated.
pub(crate) fn moves() -> Graph {
    let numbers = (0..30 * 7).map(|i| (i * 37 % 101) as f32 / 4.0 - 9.0).collect();
    let fixed = Tensor::f32(&[30, 1, 7], numbers).expect("one number for each element");
    let range = |start, step, count| Range { start, step, count };
    let back = vec![range(29, -2, 15), range(1, 1, 9), range(0, 3, 3)];

    let mut graph = Graph::new("moves");
    let x = graph.input("x", DType::F32, &[30, 11, 7]).expect("a first input");
    let fixed = graph.constant("fixed", fixed);
    let ops: [(&str, Op, &[NodeId]); 3] = [
        ("often", Expand(vec![3, 30, 11, 7]).into(), &[x]),
        ("back", Slice(back).into(), &[x]),
        ("joined", Concat { axis: 1 }.into(), &[x, fixed]),
    ];
    for (name, op, operands) in ops {
        let node = graph.add(name, op, operands).expect("a valid node");
        graph.output(name, node);
    }
    graph.output("x", x);
    graph
}

/// Returns numbers for the input of [`moves`]; their range and count exceed those of small types.
pub(crate) fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7919 % 4001) as f32 / 10.0 - 200.0).collect()
}

/// Compiles a graph without rewriting, for one thread, with all tensors stored in one type.
pub(crate) fn compiled_as(graph: &Graph, dtype: DType) -> Result<Arc<Compiled>, CompileError> {
    let mut cut = Cut::of(graph);
    for value in &mut cut.values {
        value.dtype = dtype;
    }
    Compiled::of_cut(graph, cut, None, &Target::detect("cpu", Some(1)).expect("a CPU target"))
}
