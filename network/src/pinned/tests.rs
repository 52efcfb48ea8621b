use std::slice;

use autotune_db::EmptySource;
use autotune_graph::Tensor;
use autotune_ir::CpuTarget;
use autotune_runtime::Cpu;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::example::random_input;
use crate::testing::{known, random_graph};

fn target() -> Target {
    Target::detect("cpu", Some(1)).unwrap()
}

fn store() -> Arc<NetworkStore> {
    Arc::new(NetworkStore::new(Cpu::origin(&target()).unwrap()))
}

/// Returns all that a plan does, as text.
fn told(network: &Compiled) -> String {
    let plan = &network.plan;
    let configs: Vec<&Config> = plan.kernels.iter().map(Tuned::config).collect();
    format!("{configs:?} {:?} {:?} {:?} {:?}", plan.slots, plan.actions, plan.inputs, plan.outputs)
}

fn read(json: &str) -> PinnedNetwork {
    serde_json::from_str(json).unwrap()
}

/// Plans with tuned schedules, blocked layouts and conversions are made again, bit by bit.
#[test]
fn a_pinned_network_is_equal_to_its_own() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut blocked, mut conversions) = (0, 0);
    for _ in 0..12 {
        let graph = random_graph(&mut rng, 5);
        let db = known(&graph, &target(), &mut rng, 3);
        let own = Compiled::new(&graph, Some(&db), &target()).unwrap();
        let json = serde_json::to_string(&PinnedNetwork::of(&own, &target())).unwrap();
        let pinned = read(&json);
        blocked += pinned.blocked.len();
        conversions += pinned.conversions.len();

        let again = pinned_in(&store(), &graph, slice::from_ref(&pinned), &target()).unwrap().unwrap();
        assert_eq!(told(&again), told(&own));
        assert_eq!(PinnedNetwork::of(&again, &target()), pinned);
        let inputs: Vec<Tensor> =
            graph.inputs().iter().map(|&input| random_input(graph.node(input), 3).unwrap()).collect();
        let run = |network: &Arc<Compiled>| network.workspace().unwrap().run_tensors(&inputs).unwrap();
        assert_eq!(run(&again), run(&own));
    }
    assert!(blocked > 0 && conversions > 0, "{blocked} blocked, {conversions} converted");
}

/// Plans that do not fit are not used, and those that fit by chance compute the same function.
#[test]
fn foreign_plans_are_not_used() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let graph = random_graph(&mut rng, 6);
    let db = known(&graph, &target(), &mut rng, 2);
    let own = PinnedNetwork::of(&Compiled::new(&graph, Some(&db), &target()).unwrap(), &target());
    let of = |pinned: PinnedNetwork, graph: &Graph| pinned_in::<Cpu>(&store(), graph, &[pinned], &target()).unwrap();
    assert!(of(own.clone(), &graph).is_some());

    assert!(of(own.clone(), &random_graph(&mut rng, 4)).is_none());
    assert!(of(PinnedNetwork { steps: own.steps[1..].to_vec(), ..own.clone() }, &graph).is_none());
    assert!(of(PinnedNetwork { steps: vec![Some(usize::MAX); own.steps.len()], ..own.clone() }, &graph).is_none());
    let unknown = Config { sketch: "none".into(), knobs: BTreeMap::new() };
    assert!(of(PinnedNetwork { configs: vec![unknown; own.configs.len()], ..own.clone() }, &graph).is_none());
    let conversions = [("nonsense".to_string(), 0)].into();
    assert!(of(PinnedNetwork { conversions, ..own.clone() }, &graph).is_none());
    assert!(PinnedNetwork { exact: [u32::MAX].into(), ..own.clone() }.in_precision(&graph).is_none());
    assert!(PinnedNetwork { precision: "f31".into(), ..own.clone() }.in_precision(&graph).is_none());

    // Layouts that tensors cannot have are replaced; others are converted.
    let inputs: Vec<Tensor> = graph.inputs().iter().map(|&input| random_input(graph.node(input), 3).unwrap()).collect();
    let wanted = Compiled::new(&graph, Some(&EmptySource), &target()).unwrap();
    let wanted = wanted.workspace().unwrap().run_tensors(&inputs).unwrap();
    for block in [0, 3, 8, 16, usize::MAX] {
        let blocked = (0..100).map(|root| (root, block)).collect();
        let network = of(PinnedNetwork { blocked, ..own.clone() }, &graph).unwrap();
        let found = network.workspace().unwrap().run_tensors(&inputs).unwrap();
        assert!(crate::output_error(&found, &wanted) < 1e-4, "blocks of {block}");
    }
}

#[test]
fn other_targets_and_versions_are_told() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let network = Compiled::new(&random_graph(&mut rng, 2), None, &target()).unwrap();
    let own = PinnedNetwork::of(&network, &target());
    own.check(&target()).unwrap();
    let foreign = Target::Cpu(CpuTarget::generic_avx2(7));
    let error = own.check(&foreign).unwrap_err();
    assert!(error.to_string().ends_with(&format!("not for {}", foreign.key())), "{error}");

    let earlier = PinnedNetwork { version: "0.0.1".into(), ..own.clone() };
    assert!(earlier.check(&target()).unwrap_err().to_string().starts_with("its schedules are of autotune 0.0.1 with "));
    let earlier = PinnedNetwork { lowering: 0, ..own };
    assert!(matches!(earlier.check(&target()), Err(PinnedMismatch::Version { .. })));
}
