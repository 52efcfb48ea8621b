//! Networks and databases that are made up, for tests.
#![allow(clippy::expect_used)]

use autotune_db::{Phase, Provenance, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measurement::{Measurement, RunSecs};
use autotune_schedules::{Config, LOWERING_VERSION, ScheduleSpace};
use autotune_workloads::Workload;
use rand::{Rng, RngExt};

use crate::builder::{Builder, Conv, Seeded};
use crate::cut::{Cut, Work};
use crate::graph::Graph;
use crate::op::Sliding;

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

/// A record that says how long a schedule takes.
pub(crate) fn record(workload: &Workload, target: &Target, config: Config, run_secs: f64) -> TuningRecord {
    let provenance = Provenance {
        device: String::new(),
        backend: None,
        compiler: String::new(),
        flags: String::new(),
        tuner_version: String::new(),
        lowering: LOWERING_VERSION,
        harness: String::new(),
        seed: 0,
        unix_secs: 1,
    };
    TuningRecord {
        workload: workload.clone(),
        target: target.key(),
        config,
        measurement: Measurement::of(Ok(RunSecs { max_rel_error: 1e-7, ..RunSecs::made_up(run_secs) })),
        phase: Phase::Search,
        provenance,
        imported: false,
    }
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
                db.append(&record(workload, target, config, any_secs(rng))).expect("a record that makes sense");
            }
        }
    }
    db
}
