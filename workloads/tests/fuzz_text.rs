//! Fuzz test of the parser with valid and invalid texts: it must not panic, and must be able to
//! read what it prints. Failing texts are shrunk. `AUTOTUNE_CASES` sets the number of texts.

use std::sync::atomic::{AtomicU64, Ordering};

use autotune_ir::DType;
use autotune_workloads::{Types, Workload};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

use crate::common::cases::{cases, for_cases_in_parallel};
use crate::common::odd_workloads::odd_workload;

const USUAL_CASES: u64 = 100_000;

/// Pieces that random texts are made of.
const PIECES: [&str; 61] = [
    "conv2d",
    "matmul",
    "conv3d",
    ":",
    ",",
    "=",
    "n",
    "c",
    "h",
    "w",
    "o",
    "k",
    "kh",
    "kw",
    "s",
    "sh",
    "sw",
    "p",
    "ph",
    "pw",
    "d",
    "dh",
    "dw",
    "g",
    "b",
    "m",
    "bias",
    "add",
    "act",
    "relu",
    "clip",
    "prelu",
    "leaky_relu:0.1",
    "hard_sigmoid",
    "inf",
    "scale",
    "none",
    "exact",
    "dtype",
    "f16",
    "bf16",
    "u8",
    "i8",
    "i32",
    "data",
    "weights",
    "data:i8",
    "out",
    "tf32",
    "f32",
    "0",
    "1",
    "3",
    "64",
    "-1",
    "+7",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    " ",
    "é\u{0}",
];

fn piece<R: Rng>(rng: &mut R) -> String {
    match rng.random_range(0..4) {
        0 => rng.random_range(0..5000u64).to_string(),
        1 => (1u64 << rng.random_range(0..64)).to_string(),
        _ => PIECES.choose(rng).unwrap().to_string(),
    }
}

/// Returns types that the text form implies, or arbitrary ones.
fn random_types<R: Rng>(rng: &mut R) -> Types {
    let mut dtype = || *DType::WORKLOADS.choose(rng).unwrap();
    let [data, weights, out, scale, bias, residual] = std::array::from_fn(|_| dtype());
    match data.bytes() % 2 + weights.bytes() % 2 {
        0 => Types::of(data),
        1 => Types { out, ..Types::of_sums(data, weights) },
        _ => Types { data, weights, out, scale, bias, residual },
    }
}

/// Returns concatenated pieces, or the text of a workload with some random changes.
fn random_text<R: Rng>(rng: &mut R) -> String {
    if rng.random_ratio(1, 4) {
        return (0..rng.random_range(0..24)).map(|_| piece(rng)).collect();
    }
    let plain = odd_workload(rng);
    let workload = plain.with_types(random_types(rng)).unwrap_or(plain);
    let mut chars: Vec<char> = workload.to_string().chars().collect();
    for _ in 0..rng.random_range(0..4) {
        let at = rng.random_range(0..=chars.len());
        let end = (at + rng.random_range(0..4)).min(chars.len());
        let new = if rng.random() { piece(rng) } else { String::new() };
        chars.splice(at..end, new.chars());
    }
    chars.into_iter().collect()
}

#[test]
fn no_text_makes_the_parser_panic_and_what_it_takes_is_printed_so_that_it_takes_it_again() {
    let (taken, cases) = (AtomicU64::new(0), cases(USUAL_CASES));
    for_cases_in_parallel(cases, |seed, choices| {
        let text = random_text(choices);
        let Ok(workload) = text.parse::<Workload>() else { return };
        taken.fetch_add(1, Ordering::Relaxed);
        let printed = workload.to_string();
        assert_eq!(printed.parse::<Workload>().as_ref(), Ok(&workload), "seed {seed}: {text:?}");
        assert_eq!(printed.parse::<Workload>().unwrap().to_string(), printed, "seed {seed}: {text:?}");
        // All sizes were validated, so these numbers are positive.
        assert!(workload.flops() > 0.0 && workload.work().bytes > 0.0, "seed {seed}: {text:?}");
        assert!(workload.output_shape().iter().all(|&extent| extent > 0), "seed {seed}: {text:?}");
    });
    let taken = taken.into_inner();
    assert!((cases / 20..cases).contains(&taken), "{taken} of {cases} are workloads");
}
