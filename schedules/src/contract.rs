//! Contract tests for sketches, from this crate or others.

use autotune_ir::interp::interpret;
use autotune_ir::{Target, verify};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::{Candidate, ScheduleSpace, tolerance};

/// Workloads with more operations than this are not interpreted.
const MAX_FLOPS: f64 = 4e6;

/// Tests a sketch on those of `workloads` that it applies to. For each, `configs` random configs of
/// the sketch and its default are lowered; the verifier must accept each program, and the
/// interpreter's output must match the reference. Workloads should be small: beyond four million
/// operations they are verified, but not interpreted.
///
/// # Panics
///
/// If a test fails.
pub fn sketch(name: &str, target: &Target, workloads: &[Workload], configs: usize) {
    let mut tested = 0;
    for (seed, workload) in workloads.iter().enumerate() {
        let space = ScheduleSpace::new(workload, target);
        let offered = if space.refusal().is_some() { &[] } else { space.sketches() };
        let Some(knobs) = offered.iter().find(|knobs| knobs.name() == name) else { continue };
        let is_of_sketch = |candidate: &Candidate| candidate.sketch() == name;
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        // The space may have other sketches, so that not every draw is one of this sketch.
        let draws = (0..configs * 8).map(|_| space.sample(&mut rng)).filter(is_of_sketch).take(configs);
        let default = knobs.sketch.default(workload, target, knobs);
        let default = default.map(|(_, point)| space.candidate(&point.to_config()));

        let operands = (workload.flops() <= MAX_FLOPS).then(|| Operands::random(workload.spec(), seed as u64));
        let wanted = operands.as_ref().map(|operands| reference(workload, operands));
        for candidate in default.into_iter().chain(draws.collect::<Vec<_>>()) {
            let place = format!("{workload}\n{candidate}\non {}", target.key());
            assert!(space.contains(&candidate), "a sampled config is not in the schedule space: {place}");
            let program = candidate.lower().unwrap_or_else(|error| panic!("{error}: {place}"));
            verify(&program, target).unwrap_or_else(|error| panic!("{error}: {place}"));

            if let (Some(operands), Some(wanted)) = (&operands, &wanted) {
                let output = interpret(&program, operands).unwrap_or_else(|error| panic!("{error}: {place}"));
                let error = max_rel_error(&output, wanted);
                assert!(
                    error <= tolerance(workload, &candidate),
                    "the relative error {error:.1e} exceeds the tolerance: {place}"
                );
            }
            tested += 1;
        }
    }
    assert!(tested > 0, "sketch '{name}' applies to none of the workloads, or none of its configs is valid");
}
