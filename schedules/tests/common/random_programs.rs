//! Random configs of a workload, verified and interpreted.

use autotune_ir::{Target, interpret, verify};
use autotune_schedules::{Config, ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Checks the default and random configs of all sketches.
pub fn check(workload: &Workload, target: &Target, seed: u64, configs: usize) {
    check_drawn(workload, target, seed, configs, &mut ChaCha8Rng::seed_from_u64(seed));
}

/// Checks the default and configs drawn from `rng`.
pub fn check_drawn(workload: &Workload, target: &Target, seed: u64, configs: usize, rng: &mut impl Rng) {
    let space = ScheduleSpace::new(workload, target);
    let drawn = (1..configs).map(|_| space.sample(rng).config().clone());
    check_configs(&space, seed, std::iter::once(space.default_config()).chain(drawn));
}

/// Asserts that configs are in the space and survive serialisation, that the verifier accepts their
/// programs, and that the interpreter agrees with the reference.
pub fn check_configs(space: &ScheduleSpace, seed: u64, configs: impl IntoIterator<Item = Config>) {
    let (workload, target) = (space.workload(), space.target());
    let operands = Operands::random(workload.spec(), seed);
    let expected = reference(workload, &operands);
    for config in configs {
        let context = format!("seed {seed}: {workload} on {target}\n{config}");
        assert!(space.contains(&config), "{context}");
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config, "{context}");
        let program = lower(workload, target, &config).unwrap();
        verify(&program, target).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
        let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
        let error = max_rel_error(&output, &expected);
        assert!(error <= tolerance(workload, &config), "{context}\nerror {error}\n{program}");
    }
}
