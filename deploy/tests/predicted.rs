//! Schedules chosen without measuring.

use autotune_cost_model::RankingModel;
use autotune_db::{TuningDb, TuningRecord};
use autotune_deploy::{Origin, PredictParams, Query, Tuned, predicted};
use autotune_ir::{CpuTarget, Isa, Target};
use autotune_schedules::portfolio::ShippedSet;
use autotune_schedules::{Candidate, KnobValue, ScheduleSpace};

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
fn an_algorithm_that_saves_next_to_nothing_is_left_to_measurements() {
    let sketch = |text: &str| predicted(&space(text, Isa::Avx512), 1, PredictParams::default())[0].sketch().to_string();
    assert_eq!(sketch("conv2d:c=64,h=56,w=56,o=128,k=3,s=2,p=1,bias,act=relu"), "winograd");
    assert_eq!(sketch("conv2d:c=256,h=14,w=14,o=512,k=3,s=2,p=1,bias,act=relu"), "direct");
}

#[test]
fn rules_choose_where_no_model_ships_and_for_transposes() {
    for space in
        [space("conv2d:c=16,h=20,w=24,o=32,k=3,p=1", Isa::Generic), space("transpose:m=768,n=3072", Isa::Avx512)]
    {
        assert_eq!(predicted(&space, 3, PredictParams::default()), [space.default_candidate().clone()]);
    }
}

#[test]
fn a_miss_is_answered_by_a_schedule_that_the_draft_puts_before_the_default() {
    for text in [
        "conv2d:c=40,h=20,w=24,o=48,k=3,p=1,bias",
        "conv2d:c=1,h=1,w=1,o=1,k=1",
        "conv2d:c=37,h=41,w=43,o=53,k=3,p=1",
        "matmul:m=2,n=3,k=65537",
        "matmul:m=1,n=1009,k=1",
        "matmul:m=60,n=100,k=70",
    ] {
        let (space, empty) = (space(text, Isa::Avx512), TuningDb::temporary().unwrap());
        let look_up = || Query::new(space.workload(), space.target()).source(&empty).best().unwrap();
        let tuned = look_up();
        assert!(matches!(tuned.origin(), Origin::Predicted { expected_loss } if *expected_loss >= 1.0), "{text}");
        assert!(space.contains(tuned.candidate()) && space.checked(tuned.config()).is_ok(), "{text}");
        assert_eq!(look_up().config(), tuned.config(), "{text}");

        let ranked = [tuned.candidate().clone(), space.default_candidate().clone()];
        let scores = RankingModel::shipped(ShippedSet::Avx512).unwrap().scores(&ranked);
        assert!(scores[0] >= scores[1], "{text}: {scores:?}");
    }
}

#[test]
fn a_miss_is_answered_by_the_schedule_of_the_most_similar_workload() {
    let conv = |size: usize| space(&format!("conv2d:c=32,h={size},w={size},o=48,k=1,bias"), Isa::Avx512);
    let (own, other, near) = (conv(40), conv(56), conv(44));
    let narrow = |space: &ScheduleSpace| {
        let mut config = space.default_config();
        config.knobs.insert("unroll".into(), KnobValue::Choice("1".into()));
        space.admitted(&config).unwrap()
    };
    let (db, like) = (TuningDb::temporary().unwrap(), other.default_candidate());
    let look_up = || Query::new(own.workload(), own.target()).source(&db).like(like).best().unwrap();

    let transferred = look_up();
    assert_eq!(transferred.origin(), &Origin::Transferred);
    assert_eq!(Some(transferred.candidate()), own.adapt(like.config(), other.workload()).as_ref());
    assert!(own.checked(transferred.config()).is_ok());

    let record = |space: &ScheduleSpace, candidate: &Candidate| {
        let record = TuningRecord::synthetic(space.workload(), space.target(), candidate.config().clone(), 1e-6);
        db.append(&record).unwrap();
    };
    let nearer = narrow(&near);
    record(&near, &nearer);
    assert_eq!(Some(look_up().candidate()), own.adapt(nearer.config(), near.workload()).as_ref());
    assert_ne!(look_up().config(), transferred.config());

    record(&own, own.default_candidate());
    assert!(look_up().is_tuned());
}

/// A product with a single row must not follow: with a matrix packed for many rows it would take
/// twice as long.
#[test]
fn schedules_follow_the_packing_of_another_workload_unless_that_takes_longer() {
    let tuned = |text: &str| {
        let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(2) });
        Query::new(&text.parse().unwrap(), &target).best().unwrap()
    };
    let packing = |tuned: &Tuned| tuned.program().unwrap().packing().0;
    let other = tuned("matmul:m=512,n=768,k=3072");
    let follow = |own: &Tuned| own.packed_like(other.candidate(), &packing(&other), 1.1).unwrap();
    let mut followers = 0;
    for rows in [16, 32, 64, 100, 128, 197, 256] {
        let own = tuned(&format!("matmul:m={rows},n=768,k=3072"));
        match follow(&own) {
            Some(alike) => {
                followers += 1;
                assert_eq!(packing(&alike), packing(&other), "{rows} rows: {}", alike.config());
                assert_eq!(alike.workload(), own.workload());
                assert!(follow(&alike).is_none(), "it packs alike already");
            }
            None => assert_eq!(packing(&own), packing(&other), "{rows} rows: {}", own.config()),
        }
    }
    assert!(followers > 0);

    let vector = tuned("matmul:m=1,n=768,k=3072");
    assert!(follow(&vector).is_none());
    assert_ne!(packing(&vector), packing(&other), "{}", vector.config());
}
