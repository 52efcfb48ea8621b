//! Schedules that are chosen without measuring.
#![allow(clippy::unwrap_used)]

use autotune::{PredictParams, predicted};
use autotune_ir::{CpuTarget, Isa, Target};
use autotune_schedules::ScheduleSpace;

fn space(text: &str, isa: Isa) -> ScheduleSpace {
    let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) });
    ScheduleSpace::new(&text.parse().unwrap(), &target)
}

#[test]
fn they_are_distinct_schedules_of_the_space_and_the_same_every_time() {
    for text in ["conv2d:c=40,h=20,w=24,o=48,k=3,p=1,bias", "matmul:m=60,n=100,k=70", "conv2d:c=1,h=1,w=1,o=1,k=1"] {
        let space = space(text, Isa::Avx512);
        let few = predicted(&space, 6, PredictParams::default());
        assert!((1..=6).contains(&few.len()), "{text}: {}", few.len());
        assert!(few.iter().all(|candidate| space.contains(candidate)), "{text}");
        assert!((1..few.len()).all(|i| few[..i].iter().all(|other| *other != few[i])), "{text}");
        assert_eq!(predicted(&space, 6, PredictParams::default()), few, "{text}");
        assert_eq!(predicted(&space, 1, PredictParams::default()), few[..1], "{text}");
    }
}

#[test]
fn a_convolution_that_winograd_is_made_for_gets_it() {
    let space = space("conv2d:c=96,h=40,w=40,o=96,k=3,p=1,bias,act=relu", Isa::Avx512);
    assert_eq!(space.default_candidate().sketch(), "direct");
    for rounds in [0, 4] {
        let params = PredictParams { rounds, ..PredictParams::default() };
        assert_eq!(predicted(&space, 1, params)[0].sketch(), "winograd", "{rounds} rounds");
    }
    let exact = space.workload().with_exact(true);
    let exact = ScheduleSpace::new(&exact, space.target());
    assert_eq!(predicted(&exact, 1, PredictParams::default())[0].sketch(), "direct");
}

#[test]
fn where_nothing_ships_for_the_target_the_rule_chooses() {
    let space = space("conv2d:c=16,h=20,w=24,o=32,k=3,p=1", Isa::Generic);
    assert_eq!(predicted(&space, 3, PredictParams::default()), [space.default_candidate().clone()]);
}
