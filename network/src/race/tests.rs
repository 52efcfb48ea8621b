//! Comparison of times, and the records that a race stores.
#![allow(clippy::unwrap_used)]

use autotune_db::{Snapshot, SnapshotWriter, Source, TuningRecord};
use autotune_ir::CpuTarget;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::plan::NetworkPlan;
use crate::testing::{known, random_graph};

#[test]
fn a_step_gains_only_if_it_does_in_most_rounds() {
    assert_eq!(gain(vec![0.9, 0.95, 0.9, 0.8]), Some(0.9));
    assert_eq!(gain(vec![0.98; 9]), None);
    assert_eq!(gain(vec![0.5, 0.5, 0.5, 1.2, 1.2]), None);
}

#[test]
fn networks_are_compared_round_by_round() {
    let disturbed = [1.0, 5.0, 1.1, 9.0, 1.0];
    let faster = disturbed.map(|secs| 0.9 * secs);
    assert!(is_faster(&faster, &disturbed) && !is_faster(&disturbed, &faster));
    assert!(!is_faster(&disturbed, &disturbed));
}

/// Returns a random known schedule for every step.
fn any_choice(course: &NetworkRace<'_>, rng: &mut impl Rng) -> Choice {
    let any = |workload: &Workload| {
        let kinds = Query::new(workload, course.target).source(course.db).kinds().unwrap();
        kinds.choose(rng).cloned().unwrap()
    };
    let mut any = any;
    course.by_workload.workloads().map(|workload| workload.map(&mut any)).collect()
}

/// Returns the choice that a network gets from a source.
fn loaded(course: &NetworkRace<'_>, source: &dyn Source) -> Choice {
    let network = course.cut.fingerprint(course.graph);
    let mut choose = Schedules::of_network(source, course.target, network);
    NetworkPlan::of(course.graph, &course.cut, &mut choose).unwrap().choice()
}

/// A winning choice is loaded step by step, including differing schedules of one workload, whatever
/// was chosen before; also from a snapshot.
#[test]
fn winners_are_loaded() {
    let (target, cancel) = (Target::Cpu(CpuTarget::generic_avx2(1)), Cancel::default());
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut differing, mut winners) = (0, 0);
    for _ in 0..6 {
        let graph = random_graph(&mut rng, 8);
        let db = known(&graph, &target, &mut rng, 6);
        let course = NetworkRace::of(&graph, &db, &target, &[], &cancel);
        let alone = course.plans().unwrap().remove(0);
        assert!(is_same(&loaded(&course, &db), &alone));

        for race in 0..5 {
            let (before, choice) = (loaded(&course, &db), any_choice(&course, &mut rng));
            // Slower than in the previous race, but faster within this one.
            let secs = 1.0 + race as f64;
            assert!(course.append((&choice, secs), Some((&before, 1.1 * secs)), 7).unwrap());
            assert!(is_same(&loaded(&course, &db), &choice), "{race}");
            let mut writer = SnapshotWriter::default();
            assert_eq!(writer.add_best_of(&db, &|_| true).unwrap(), []);
            let snapshot = Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap();
            assert!(is_same(&loaded(&course, &snapshot), &choice), "{race}");

            let steps: Vec<_> = course.by_workload.workloads().zip(&choice).collect();
            let differs = |(workload, tuned): &(Option<&Workload>, &Option<Tuned>)| {
                steps.iter().any(|(other, others)| other == workload && config(others) != config(tuned))
            };
            differing += usize::from(steps.iter().any(differs));
            winners += 1;
        }
        // Look-ups of single workloads use their own records.
        assert!(is_same(&course.plans().unwrap()[0], &alone));
    }
    assert!(differing > winners / 3, "{differing} of {winners}");
}

#[test]
fn a_plan_is_raced_by_what_it_changes() {
    let (target, cancel) = (Target::Cpu(CpuTarget::generic_avx2(1)), Cancel::default());
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let graph = random_graph(&mut rng, 8);
    let db = known(&graph, &target, &mut rng, 6);
    let course = NetworkRace::of(&graph, &db, &target, &[], &cancel);
    let [leader, from, to] = [0; 3].map(|_| any_choice(&course, &mut rng));
    let found = changed(&leader, &from, &to);
    for step in 0..leader.len() {
        let wanted = if config(&from[step]) == config(&to[step]) { &leader[step] } else { &to[step] };
        assert_eq!(config(&found[step]), config(wanted));
    }
    assert!(is_same(&changed(&from, &from, &to), &to) && is_same(&changed(&leader, &to, &to), &leader));
}

/// A similar machine uses the differing schedules of steps until it has measurements of its own.
#[test]
fn step_choices_of_another_machine_hold_until_more_is_known() {
    let (target, cancel) = (Target::Cpu(CpuTarget::generic_avx2(1)), Cancel::default());
    let alike = Target::Cpu(CpuTarget { l3_bytes: 16 << 20, ..CpuTarget::generic_avx2(1) });
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let graph = random_graph(&mut rng, 8);
    let db = known(&graph, &target, &mut rng, 6);
    let course = NetworkRace::of(&graph, &db, &target, &[], &cancel);
    let choice = any_choice(&course, &mut rng);
    assert!(course.append((&choice, 1.0), None, 7).unwrap());

    let there = NetworkRace::of(&graph, &db, &alike, &[], &cancel);
    assert!(is_same(&loaded(&there, &db), &choice));
    for (workload, _) in there.by_workload.groups() {
        let config = Query::new(workload, &alike).best().unwrap().config().clone();
        db.append(&TuningRecord::synthetic(workload, &alike, config, 1.0)).unwrap();
    }
    let own =
        there.by_workload.workloads().map(|workload| Some(Query::new(workload?, &alike).best().unwrap())).collect();
    assert!(is_same(&loaded(&there, &db), &own) && is_same(&loaded(&course, &db), &choice));
}
