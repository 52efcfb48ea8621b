//! Kinds of workers: those of one target key, among workers that may have several devices each.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use autotune_ir::{CpuTarget, Target};

use crate::error::FleetError;
use crate::params::FleetParams;
use crate::state::query;
use crate::transport::{Dial, FindWorkers};

/// Pause before a worker that still looks for its devices is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Workers of one target key.
pub struct WorkerKind {
    /// Key of the target.
    pub key: String,
    /// Places of the workers.
    pub dials: Vec<Arc<dyn Dial>>,
}

impl WorkerKind {
    /// Asks workers for their devices, and returns the kinds in the order of their keys. On CPUs,
    /// kernels have `threads` threads, or one for each core of the worker. `notice` receives lines
    /// about workers that are left out.
    ///
    /// # Errors
    /// If no worker can be used: the reason of the first.
    pub fn find_all(
        dials: &[Arc<dyn Dial>],
        threads: Option<usize>,
        params: &FleetParams,
        notice: &mut dyn FnMut(String),
    ) -> Result<Vec<Self>, FleetError> {
        let asked: Vec<Result<Vec<String>, FleetError>> = thread::scope(|scope| {
            let ask = |dial| scope.spawn(move || keys_of(dial, threads, params));
            let threads: Vec<_> = dials.iter().map(ask).collect();
            let lost = |_| Err(FleetError::NoWorker);
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
        });

        let mut kinds: BTreeMap<String, Vec<Arc<dyn Dial>>> = BTreeMap::new();
        let mut failures = Vec::new();
        for (dial, keys) in dials.iter().zip(asked) {
            match keys {
                Ok(keys) => keys.into_iter().for_each(|key| kinds.entry(key).or_default().push(Arc::clone(dial))),
                Err(error) => failures.push(error),
            }
        }
        if kinds.is_empty() {
            return Err(failures.into_iter().next().unwrap_or(FleetError::NoWorker));
        }
        failures.into_iter().for_each(|error| notice(error.to_string()));
        Ok(kinds.into_iter().map(|(key, dials)| Self { key, dials }).collect())
    }
}

/// Returns a search for later workers of a kind, among those that `find` returns. Each is asked for
/// its devices once.
pub fn finder_of(key: &str, threads: Option<usize>, params: &FleetParams, find: FindWorkers) -> FindWorkers {
    let (key, params) = (key.to_string(), params.clone());
    let known: Mutex<HashMap<String, bool>> = Mutex::default();
    Box::new(move || {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_of_kind = |dial: &Arc<dyn Dial>| {
            let address = dial.address();
            if let Some(is_one) = known.get(&address) {
                return *is_one;
            }
            // A worker that cannot be asked now is asked again when it is found again.
            let Ok(keys) = keys_of(dial, threads, &params) else { return false };
            *known.entry(address).or_insert(keys.contains(&key))
        };
        find().into_iter().filter(&mut is_of_kind).collect()
    })
}

/// Returns the keys of a worker's devices, for kernels with this number of threads on CPUs.
fn keys_of(dial: &Arc<dyn Dial>, threads: Option<usize>, params: &FleetParams) -> Result<Vec<String>, FleetError> {
    let start = Instant::now();
    let offers = loop {
        if let Some(offers) = query(&**dial, params)?.state.offers {
            break offers;
        }
        if start.elapsed() > params.opening {
            let cause = "it still looks for its devices".into();
            return Err(FleetError::Unreachable { address: dial.address(), cause });
        }
        thread::sleep(PAUSE);
    };

    let keys: Vec<String> = offers.iter().filter_map(|offer| with_threads(offer, threads)).collect();
    match keys.is_empty() {
        true => {
            let cause = format!("it has {}", offers.join(", "));
            Err(FleetError::NoDevice { address: dial.address(), cause })
        }
        false => Ok(keys),
    }
}

/// Returns the key of a CPU whose kernels have this number of threads; `None` if it has fewer
/// cores. Keys of other devices stay the same.
fn with_threads(key: &str, threads: Option<usize>) -> Option<String> {
    let (Some(threads), Some(Target::Cpu(cpu))) = (threads, Target::of_key(key)) else {
        return Some(key.to_string());
    };
    (1..=cpu.threads).contains(&threads).then(|| CpuTarget { threads, ..cpu }.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_have_the_threads_that_are_asked_for_and_other_devices_their_own() {
        let key = |threads| Target::Cpu(CpuTarget::generic_avx2(threads)).key();
        assert_eq!(with_threads(&key(4), Some(2)), Some(key(2)));
        assert_eq!(with_threads(&key(4), None), Some(key(4)));
        assert_eq!([Some(0), Some(5)].map(|threads| with_threads(&key(4), threads)), [None, None]);
        assert_eq!(with_threads("cuda:sm_90:H100", Some(2)).as_deref(), Some("cuda:sm_90:H100"));
    }
}
