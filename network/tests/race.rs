//! Records that a race of whole networks leaves in a database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use autotune::{Cancel, Query};
use autotune_db::{Snapshot, SnapshotWriter, Source, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_network::operators::Sliding;
use autotune_network::{Builder, Compiled, ConvLayer, Graph, RaceError, Seeded, race, tasks};
use autotune_schedules::{Config, ScheduleSpace};
use autotune_workloads::{Activation, Workload};
use rand::seq::IndexedRandom;

use crate::common::graphs::brought;
use crate::common::rng;

/// Enough time for every comparison.
const LIMIT: Duration = Duration::from_secs(30);

/// Creates a sequence of convolutions, two of which are equal.
fn graph(name: &str, layers: usize) -> Graph {
    let net = Builder::new(name, Seeded { seed: name.len() as u64 });
    let mut x = net.input("x", &[1, 16, 12, 12]);
    for layer in 0..layers {
        x = x.conv(&format!("conv{layer}"), ConvLayer::new(16, Sliding::new(3).pad(1)).bias());
    }
    net.output("y", x.conv("last", ConvLayer::new(32, Sliding::new(1))));
    net.finish().unwrap()
}

/// Creates a database with several schedules of every workload, all with similar times.
fn known(graph: &Graph, target: &Target) -> TuningDb {
    let db = TuningDb::temporary().unwrap();
    let mut rng = rng(5);
    for task in tasks([graph], target) {
        let space = ScheduleSpace::new(&task.workload, target);
        let fitting: Vec<Config> = (0..200)
            .map(|_| space.sample(&mut rng).config().clone())
            .filter(|config| space.proven(config).is_ok())
            .collect();
        for (place, config) in fitting.sample(&mut rng, 6).enumerate() {
            let run_secs = 1e-3 * (1.0 + 0.01 * place as f64);
            db.append(&TuningRecord::synthetic(&task.workload, target, config.clone(), run_secs)).unwrap();
        }
    }
    db
}

/// Returns the configs of a network, and how many of them come from a record of the network.
fn configs(graph: &Graph, source: &dyn Source, target: &Target) -> (HashMap<Workload, Config>, usize) {
    let network = Compiled::new(graph, Some(source), target).unwrap();
    let is_within = |found: &autotune_db::Best| found.record.workload.network().is_some();
    let within = network.schedules().iter().filter(|tuned| tuned.best().is_some_and(is_within)).count();
    let configs = network.schedules().iter().map(|tuned| (tuned.workload().clone(), tuned.config().clone()));
    (configs.collect(), within)
}

#[test]
fn network_winners_are_chosen_only_in_that_network() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let (graph, other) = (graph("three", 3), graph("two", 2));
    let db = known(&graph, &target);
    let before = tasks([&graph], &target)
        .iter()
        .map(|task| db.best(&task.workload, &target.key(), &|_| true).unwrap())
        .collect::<Vec<_>>();
    let (of_other, _) = configs(&other, &db, &target);
    assert_eq!(configs(&graph, &db, &target).1, 0);

    let inputs = brought(&graph, &mut rng(1));
    let raced = race(&graph, &db, &target, &inputs, LIMIT, &Cancel::default()).unwrap();
    assert!(raced.is_new);
    let (chosen, within) = configs(&graph, &db, &target);
    assert!(within >= 1, "no schedule of {chosen:?} is kept");

    // Records have the same time, that of the whole network, and a snapshot gives the same answers
    // as the database.
    let network = Compiled::new(&graph, Some(&db), &target).unwrap();
    let secs = network
        .schedules()
        .iter()
        .filter_map(|tuned| tuned.best().filter(|best| best.record.workload.network().is_some()));
    let secs: Vec<f64> = secs.filter_map(|best| best.record.measurement.run_secs()).collect();
    assert!(secs.iter().all(|&other| other == secs[0] && other < 1e-3), "{secs:?}");
    let mut writer = SnapshotWriter::default();
    assert_eq!(writer.add_best_of(&db, &|_| true).unwrap(), []);
    let snapshot = Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap();
    assert_eq!(configs(&graph, &snapshot, &target), (chosen.clone(), within));

    // A network with the same steps is the same network, whatever its name and weights.
    assert_eq!(configs(&self::graph("of other weights", 3), &db, &target), (chosen.clone(), within));

    // Other networks and look-ups use their own records.
    assert_eq!(configs(&other, &db, &target), (of_other, 0));
    let after = tasks([&graph], &target)
        .iter()
        .map(|task| db.best(&task.workload, &target.key(), &|_| true).unwrap())
        .collect::<Vec<_>>();
    assert_eq!(before, after);

    // A second race keeps a valid choice; it is unchanged unless the race reports a new one.
    let raced = race(&graph, &db, &target, &inputs, LIMIT, &Cancel::default()).unwrap();
    assert!(raced.is_new || configs(&graph, &db, &target) == (chosen, within));
}

#[test]
fn without_records_nothing_is_kept() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let (graph, db) = (graph("two", 2), TuningDb::temporary().unwrap());
    let inputs = brought(&graph, &mut rng(1));
    assert!(!race(&graph, &db, &target, &inputs, LIMIT, &Cancel::default()).unwrap().is_new);
    assert!(db.is_empty());
}

#[test]
fn a_race_that_is_interrupted_or_has_no_time_is_left_out() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let graph = graph("two", 2);
    let (db, inputs) = (known(&graph, &target), brought(&graph, &mut rng(1)));
    let known = db.query_target(&target.key()).unwrap();

    let cancel = Cancel::default();
    assert!(!race(&graph, &db, &target, &inputs, Duration::ZERO, &cancel).unwrap().is_new);
    cancel.cancel();
    let raced = race(&graph, &db, &target, &inputs, LIMIT, &cancel);
    assert!(matches!(raced, Err(RaceError::Interrupted)));
    assert_eq!(db.query_target(&target.key()).unwrap(), known);
}

/// Networks compiled from each other share common kernels and constants, and each computes the same
/// as alone.
#[test]
fn networks_side_by_side_compute_what_they_do_alone() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let graph = graph("three", 3);
    let (db, inputs) = (known(&graph, &target), brought(&graph, &mut rng(1)));
    let run = |network: Arc<Compiled>| network.workspace().unwrap().run_tensors(&inputs).unwrap();

    let alone = Compiled::new(&graph, None, &target).unwrap();
    for source in [None, Some(&db as &dyn Source)] {
        let beside = Compiled::new(&graph, source, &target).unwrap().untuned_sharing(&target).unwrap();
        assert_eq!(beside.schedules().len(), alone.schedules().len());
        assert_eq!(run(beside), run(Arc::clone(&alone)));
    }
}

/// Tens of thousands of steps, many of them equal; superlinear time would take minutes here.
#[test]
fn a_long_chain_is_planned_and_raced_in_proportion_to_its_length() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let net = Builder::new("chain", Seeded { seed: 1 });
    let mut x = net.input("x", &[1, 16, 4, 4]);
    for step in 0..20_000 {
        x = x.activation([Activation::Sigmoid, Activation::Tanh, Activation::Silu][step % 3]);
    }
    net.output("y", x);
    let graph = net.finish().unwrap();
    let db = TuningDb::temporary().unwrap();
    for task in tasks([&graph], &target) {
        let config = Query::new(&task.workload, &target).best().unwrap().config().clone();
        db.append(&TuningRecord::synthetic(&task.workload, &target, config, 1e-6)).unwrap();
    }
    let inputs = brought(&graph, &mut rng(1));
    let raced = race(&graph, &db, &target, &inputs, Duration::from_secs(1000), &Cancel::default()).unwrap();
    assert!(raced.is_new && configs(&graph, &db, &target).1 == tasks([&graph], &target).len());
}
