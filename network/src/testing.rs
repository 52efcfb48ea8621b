//! Networks and databases that are made up, for tests.
#![allow(clippy::expect_used)]

#[path = "../../workloads/tests/common/cases.rs"]
#[allow(dead_code, unreachable_pub)]
pub(crate) mod cases;

use autotune_db::{TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_schedules::ScheduleSpace;
use rand::{Rng, RngExt};

use crate::builder::{Builder, Conv, Seeded};
use crate::cut::{Cut, Work};
use crate::graph::Graph;
use crate::operators::Sliding;

/// A few layers on images of 16 channels or 32: convolutions of which some compute the same, products of two tensors, parts side by side. Some are
/// outputs.
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
            2 => a.conv(&name, Conv::new(32, Sliding::new(1))),
            _ => a.conv(&name, Conv::new(16, Sliding::new(1))),
        });
        if layer + 1 == layers || rng.random_bool(0.2) {
            net.output(&name, values[values.len() - 1]);
        }
    }
    net.finish().expect("a graph that makes sense")
}

/// Seconds of something small.
pub(crate) fn any_secs(rng: &mut impl Rng) -> f64 {
    1e-6 * rng.random_range(1.0..10.0)
}

/// A database with a few schedules of every workload of a graph, of whatever kinds and times.
pub(crate) fn known(graph: &Graph, target: &Target, rng: &mut impl Rng, schedules: usize) -> TuningDb {
    let db = TuningDb::temporary().expect("a folder for temporary files");
    for step in &Cut::of(graph).steps {
        let Work::Kernel(workload) = &step.work else { continue };
        let space = ScheduleSpace::new(workload, target);
        for _ in 0..schedules {
            let config = space.sample(rng).config().clone();
            if space.proven(&config).is_ok() {
                db.append(&TuningRecord::made_up(workload, target, config, any_secs(rng)))
                    .expect("a record that makes sense");
            }
        }
    }
    db
}
