//! Generated C against the reference, for schedules that are rarely drawn (`operators.rs` tests all
//! others).

use autotune_ir::Target;
use autotune_schedules::{Config, ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::common::or_long;
use crate::common::spaces::{random_blocked, random_odd_winograd, random_panel, sample_winograd};
use crate::common::workloads::random_winograd;

fn check(workload: &Workload, target: &Target, seed: u64, configs: impl Fn(&ScheduleSpace) -> Vec<Config>) {
    let space = ScheduleSpace::new(workload, target);
    let operands = Operands::random(workload.spec(), seed);
    let expected = reference(workload, &operands);
    for config in configs(&space) {
        assert!(space.contains(&config), "{workload}: {config} {:?}", lower(workload, target, &config).err());
        let program = lower(workload, target, &config).unwrap();
        let error = max_rel_error(&crate::common::c::run(&program, target, &operands).unwrap(), &expected);
        assert!(error <= tolerance(workload, &config), "seed {seed}: {workload}\n{config}\nerror {error}\n{program}");
    }
}

#[test]
fn random_images_in_blocks_of_channels_agree_with_the_reference() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    (0..or_long([3, 24u64])).into_par_iter().for_each(|seed| {
        let (workload, config) = random_blocked(&target, &mut ChaCha8Rng::seed_from_u64(seed));
        check(&workload, &target, seed, |_| vec![config.clone()]);
    });
}

#[test]
fn random_panels_agree_with_the_reference() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    (0..or_long([2, 16u64])).into_par_iter().for_each(|seed| {
        let (workload, config) = random_panel(&target, &mut ChaCha8Rng::seed_from_u64(seed));
        check(&workload, &target, seed, |_| vec![config.clone()]);
    });
}

#[test]
fn random_winograd_programs_agree_with_the_reference() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    (0..or_long([2, 16u64])).into_par_iter().for_each(|seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = match seed % 2 == 0 {
            true => random_winograd(&mut rng, target.cpu().unwrap().lanes().max(8)),
            false => random_odd_winograd(&mut rng, &target),
        };
        check(&workload, &target, seed, |space| vec![sample_winograd(space, &mut rng.clone())]);
    });
}
