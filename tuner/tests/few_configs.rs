//! Searches of spaces with few valid configs.

use std::collections::HashSet;

use autotune::search::Ask;
use autotune_ir::{CpuTarget, Isa, Target};
use autotune_schedules::{Candidate, ScheduleSpace};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::kind::{KINDS, Kind};

fn ask(kind: Kind, space: &ScheduleSpace, seen: &HashSet<u64>, n: usize) -> Vec<Candidate> {
    let mut score = |candidates: &[Candidate]| vec![Some(0.0); candidates.len()];
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    kind.searcher().ask(Ask { space, score: &mut score, explore: 0.1, seen, n, rng: &mut rng })
}

#[test]
fn the_last_config_of_a_space_is_proposed_and_then_no_more() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let space = ScheduleSpace::new(&"matmul:m=1,n=1,k=1".parse().unwrap(), &target);
    let all: Vec<Candidate> = space.iter().collect();
    let mut seen: HashSet<u64> = all[1..].iter().map(Candidate::stable_hash).collect();
    for kind in KINDS {
        assert_eq!(ask(kind, &space, &seen, 16), all[..1], "{kind:?}");
    }
    seen.insert(all[0].stable_hash());
    for kind in KINDS {
        assert!(ask(kind, &space, &seen, 16).is_empty(), "{kind:?}");
    }
}

#[test]
fn spaces_of_which_hardly_any_combination_is_valid_are_searched() {
    for (text, isa, threads) in [
        ("conv2d:n=1,c=4,h=27,w=15,o=16,k=17,s=1,p=9,exact", Isa::Avx2, 2),
        ("conv2d:c=8,h=68,w=10,o=65,k=3,bias", Isa::Avx2, 16),
        ("conv2d:c=512,h=47,w=16,o=512,kh=32,kw=24,sh=4,sw=7,ph=16,pw=12,g=512", Isa::Avx512, 192),
    ] {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) });
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
        for kind in KINDS {
            let batch = ask(kind, &space, &HashSet::new(), 16);
            assert!(!batch.is_empty() && batch.iter().all(|config| space.contains(config)), "{kind:?}: {text}");
        }
    }
}
