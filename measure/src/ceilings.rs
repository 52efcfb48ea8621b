//! Measured peak rates of this machine, the two lines of the roofline model: arithmetic and memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use autotune_ir::{CpuTarget, Target};

use crate::error::MeasureError;

mod cpu;
mod figures;
mod file;
pub(crate) mod gpu;

pub use figures::Ceilings;

use cpu::Loops;
use figures::fault;

impl Ceilings {
    /// Measures a CPU's ceilings, which takes a second or two. Later calls in this process return
    /// the same values. A GPU's ceilings are measured by a worker process:
    /// [`crate::WorkerMeasurer::ceilings`].
    ///
    /// Needs a C compiler if this crate has no loops for the target's instruction set.
    pub fn measure(target: &Target) -> Result<Self, MeasureError> {
        // Cached per process, because measuring takes seconds.
        static KNOWN: Mutex<Option<HashMap<String, Ceilings>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(HashMap::new);
        let key = target.key();
        if let Some(&ceilings) = known.get(&key) {
            return Ok(ceilings);
        }
        let ceilings = Loops::of(cpu(target)?)?.ceilings()?;
        known.insert(key, ceilings);
        Ok(ceilings)
    }
}

/// Returns the CPU of a target, or an error for a GPU.
fn cpu(target: &Target) -> Result<&CpuTarget, MeasureError> {
    target.cpu().ok_or_else(|| fault(format!("{target} is not a CPU")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_ir::Rates;

    #[test]
    fn ceilings_are_plausible_and_remembered() {
        let target = Target::Cpu(CpuTarget::detect(Some(1)).unwrap());
        let ceilings = Ceilings::measure(&target).unwrap();
        // Any 64-bit core of this century does more than a tenth of a multiply-add per nanosecond,
        // and none does a thousand.
        assert!((2e8..2e12).contains(&ceilings.core_flops_per_sec), "{ceilings:?}");
        assert!(ceilings.flops_per_sec >= ceilings.core_flops_per_sec);
        assert!((1e8..1e13).contains(&ceilings.bytes_per_sec), "{ceilings:?}");
        assert!(ceilings.read_bytes_per_sec.iter().all(|rate| (1e8..1e14).contains(rate)), "{ceilings:?}");
        assert!((1e-9..1e-3).contains(&ceilings.fork_join_secs), "{ceilings:?}");
        assert_eq!(Ceilings::measure(&target).unwrap(), ceilings);
    }

    #[test]
    fn a_target_is_rated_by_what_each_of_its_threads_gets() {
        let of = |threads| Target::Cpu(CpuTarget::generic_avx2(threads));
        // At 1 GHz: two multiply-adds of 8 lanes per cycle.
        let ceilings = Ceilings {
            core_flops_per_sec: 32e9,
            read_bytes_per_sec: [128e9, 64e9, 10e9],
            fork_join_secs: 1e-6,
            ..synthetic()
        };
        let rated = ceilings.rated(&of(2));
        let rates = Rates { bytes_per_kilocycle: [64_000, 32_000, 10_000], fork_join_cycles: 1000 };
        assert_eq!(rated, of(2).with_rates(rates));
        assert_eq!(rated.key(), of(2).key());
        assert_eq!(ceilings.rated(&of(4)).cpu().unwrap().rates.bytes_per_kilocycle, [32_000, 16_000, 10_000]);
    }

    fn synthetic() -> Ceilings {
        Ceilings {
            core_flops_per_sec: 1e9,
            flops_per_sec: 2e9,
            half_flops_per_sec: 1e12,
            tf32_flops_per_sec: 5e11,
            byte_flops_per_sec: 1e9,
            bytes_per_sec: 1e9,
            read_bytes_per_sec: [4e9, 2e9, 1e9],
            cache_bytes: [1e3, 1e6],
            fork_join_secs: 1e-6,
        }
    }

    #[test]
    fn the_roofline_is_the_larger_of_two_times() {
        let ceilings = synthetic();
        let min_secs = |text: &str| {
            let workload: autotune_workloads::Workload = text.parse().unwrap();
            ceilings.min_secs(workload.work(), workload.dtype())
        };
        let flops = 2.0 * 1e9;
        assert_eq!(min_secs("matmul:m=1000,n=1000,k=1000"), flops / 2e9);
        // With tensor cores, moving the bytes takes longer than the operations. A type of half the
        // size halves them.
        assert_eq!(min_secs("matmul:m=1000,n=1000,k=1000,dtype=tf32"), 12e6 / 1e9);
        assert_eq!(min_secs("matmul:m=1000,n=1000,k=1000,dtype=bf16"), 6e6 / 1e9);
        let cubed = 2.0 * 8000f64.powi(3);
        for (dtype, speed) in [("f32", 2e9), ("tf32", 5e11), ("f16", 1e12), ("bf16", 1e12)] {
            assert_eq!(min_secs(&format!("matmul:m=8000,n=8000,k=8000,dtype={dtype}")), cubed / speed);
        }
        let row = |n: usize| min_secs(&format!("matmul:m=1,n={n},k=1,dtype=f16"));
        assert_eq!(row(100), 2.0 * 201.0 / 4e9);
        assert_eq!(row(100_000), 2.0 * 200_001.0 / 2e9);
    }
}
