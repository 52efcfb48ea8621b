//! Random test cases that are shrunk by proptest when they fail.

use std::convert::Infallible;
use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use proptest::collection;
use proptest::num::u8::ANY;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use rand::rand_core::TryRng;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of a case's random values that shrink. Those drawn later stay the same.
const SIMPLER: usize = 48;

/// Maximum number of attempts to shrink a failed case.
const TRIES: u32 = 400;

/// Returns the number of random cases of a test: `AUTOTUNE_CASES` in the environment, else `usual`.
pub fn cases(usual: u64) -> u64 {
    match env::var("AUTOTUNE_CASES") {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("AUTOTUNE_CASES={text}: {e}")),
        Err(_) => usual,
    }
}

/// Random number generator of a case. The highest bytes of its first values shrink.
///
/// Generators interpret zeros as the first choice, the smallest size, and true.
pub struct Choices {
    highest: std::vec::IntoIter<u8>,
    rest: ChaCha8Rng,
}

impl Choices {
    fn new(highest: Vec<u8>, seed: u64) -> Self {
        Self { highest: highest.into_iter(), rest: ChaCha8Rng::seed_from_u64(seed) }
    }
}

impl TryRng for Choices {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.try_next_u64()? >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let drawn = self.rest.next_u64();
        Ok(match self.highest.next() {
            Some(0) => 0,
            Some(highest) => u64::from(highest) << 56 | drawn >> 8,
            None => drawn,
        })
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.try_next_u64()?.to_le_bytes()[..part.len()]);
        }
        Ok(())
    }
}

/// Tests a property on cases numbered from 0, each with its number as the seed. A failing case is
/// shrunk; the panic message shows the smallest one found.
pub fn for_cases(cases: u64, property: impl Fn(u64, &mut Choices)) {
    tell((0..cases).find_map(|seed| Some((seed, for_case(seed, &property).err()?))));
}

/// Like [`for_cases`], but on all cores and in any order. Of several failing cases, the first is
/// reported.
pub fn for_cases_in_parallel(cases: u64, property: impl Fn(u64, &mut Choices) + Sync) {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        let seeds = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|&seed| seed < cases);
        let found: Vec<_> = seeds.filter_map(|seed| Some((seed, for_case(seed, &property).err()?))).collect();
        failed.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    tell(failed.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().min());
}

fn tell(failed: Option<(u64, String)>) {
    if let Some((seed, error)) = failed {
        panic!("seed {seed}, made simpler: {error}");
    }
}

fn for_case(seed: u64, property: &impl Fn(u64, &mut Choices)) -> Result<(), String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: 1, failure_persistence: None, max_shrink_iters: TRIES, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let tested = runner.run(&collection::vec(ANY, SIMPLER), |numbers| {
        property(seed, &mut Choices::new(numbers, seed));
        Ok::<(), TestCaseError>(())
    });
    tested.map_err(|error| match error {
        TestError::Fail(reason, _) => reason.to_string(),
        error => error.to_string(),
    })
}
