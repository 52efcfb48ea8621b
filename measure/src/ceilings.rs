//! What this machine can do at best: the roofline's two lines.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use autotune_ir::{CpuTarget, DType, Rates, Target};
use autotune_workloads::Work;
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;

mod cpu;
pub(crate) mod gpu;
mod kept;

use cpu::Loops;

/// Measured ceilings of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// f32 multiply-adds on one core, two FLOP each, per second; on a GPU, a multiprocessor's share of all.
    pub core_flops_per_sec: f64,
    /// The same on the target's threads; on a GPU, on all of it, without tensor cores.
    pub flops_per_sec: f64,
    /// The same with f16 or bf16 operands and f32 sums: tensor cores, by the matrix instructions of warps (CUDA from compute
    /// capability 8.0 on) or, where those are faster, of warp groups (9.0); on a CPU with bf16 operands, if an instruction
    /// multiplies them; else `flops_per_sec`.
    pub half_flops_per_sec: f64,
    /// The same with tf32 operands.
    pub tf32_flops_per_sec: f64,
    /// The same with operands of bytes and sums of 32 bits, if an instruction of a CPU multiplies them; else `flops_per_sec`.
    pub byte_flops_per_sec: f64,
    /// Bytes read plus bytes written per second by a copy in memory, larger than any cache, on the target's threads.
    pub bytes_per_sec: f64,
    /// Bytes read per second from the second-level caches, from the last-level cache and from memory, on the target's threads. A
    /// GPU's second-level cache is its last.
    pub read_bytes_per_sec: [f64; 3],
    /// Sizes of the second-level caches of the target's threads together and of the last-level cache.
    pub cache_bytes: [f64; 2],
    /// Seconds that a stage of next to no work takes on the target's threads, run after run: what a fork and join costs;
    /// on a GPU, a launch.
    pub fork_join_secs: f64,
}

impl Ceilings {
    /// Measures a CPU's ceilings, which takes a second or two; the second time it is asked, it remembers. Those of a GPU are for
    /// a worker to measure: [`crate::WorkerMeasurer::ceilings`].
    ///
    /// It needs a C compiler where there is no assembler for the target's instruction set.
    pub fn measure(target: &Target) -> Result<Self, MeasureError> {
        // Facts of the machine, which take seconds to measure.
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

    /// Of each figure the better one.
    fn best_of(self, other: Self) -> Self {
        let [a, b] = [self.read_bytes_per_sec, other.read_bytes_per_sec];
        Self {
            core_flops_per_sec: self.core_flops_per_sec.max(other.core_flops_per_sec),
            flops_per_sec: self.flops_per_sec.max(other.flops_per_sec),
            half_flops_per_sec: self.half_flops_per_sec.max(other.half_flops_per_sec),
            tf32_flops_per_sec: self.tf32_flops_per_sec.max(other.tf32_flops_per_sec),
            byte_flops_per_sec: self.byte_flops_per_sec.max(other.byte_flops_per_sec),
            bytes_per_sec: self.bytes_per_sec.max(other.bytes_per_sec),
            read_bytes_per_sec: [a[0].max(b[0]), a[1].max(b[1]), a[2].max(b[2])],
            cache_bytes: self.cache_bytes,
            fork_join_secs: self.fork_join_secs.min(other.fork_join_secs),
        }
    }

    /// A target with the [rates](Rates) that these ceilings are for its peak, of which its threads share the caches and memory evenly. A GPU
    /// is what it was.
    pub fn rated(&self, target: &Target) -> Target {
        let Some(cpu) = target.cpu() else { return target.clone() };
        let [l2, l3, memory] = self.read_bytes_per_sec;
        let threads = cpu.threads.max(1) as f64;
        let read = [l2 / threads, l3 / threads, memory];
        target.clone().with_rates(Rates::measured(cpu.lanes(), self.core_flops_per_sec, read, self.fork_join_secs))
    }

    /// Multiply-adds of a type, two FLOP each, per second on the target's threads or on all of the GPU.
    pub fn dtype_flops_per_sec(&self, dtype: DType) -> f64 {
        match dtype {
            DType::Tf32 => self.tf32_flops_per_sec,
            DType::F16 | DType::Bf16 => self.half_flops_per_sec,
            DType::I8 | DType::U8 => self.byte_flops_per_sec,
            _ => self.flops_per_sec,
        }
    }

    /// The least seconds in which an algorithm can be run over and over on operands of a type: all operations at full speed, or
    /// every byte moved once, from the cache that all of them fit, whichever takes longer.
    pub fn min_secs(&self, work: Work, dtype: DType) -> f64 {
        let Work { flops, bytes } = work;
        let level = self.cache_bytes.iter().position(|&size| bytes <= size).unwrap_or(self.cache_bytes.len());
        (flops / self.dtype_flops_per_sec(dtype)).max(bytes / self.read_bytes_per_sec[level])
    }
}

/// The CPU that a target is.
fn cpu(target: &Target) -> Result<&CpuTarget, MeasureError> {
    target.cpu().ok_or_else(|| fault(format!("{target} is no CPU")))
}

fn fault(cause: impl std::fmt::Display) -> MeasureError {
    MeasureError::Ceilings { message: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_plausible_and_remembered() {
        let target = Target::Cpu(CpuTarget::detect(Some(1)).unwrap());
        let ceilings = Ceilings::measure(&target).unwrap();
        // Any 64-bit core of this century does more than a tenth of a multiply-add per nanosecond, and none a thousand.
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
        // 1 GHz: two multiply-adds of 8 lanes a cycle.
        let ceilings = Ceilings {
            core_flops_per_sec: 32e9,
            read_bytes_per_sec: [128e9, 64e9, 10e9],
            fork_join_secs: 1e-6,
            ..made_up()
        };
        let rated = ceilings.rated(&of(2));
        let rates = Rates { bytes_per_kilocycle: [64_000, 32_000, 10_000], fork_join_cycles: 1000 };
        assert_eq!(rated, of(2).with_rates(rates));
        assert_eq!(rated.key(), of(2).key());
        assert_eq!(ceilings.rated(&of(4)).cpu().unwrap().rates.bytes_per_kilocycle, [32_000, 16_000, 10_000]);
    }

    fn made_up() -> Ceilings {
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
        let ceilings = made_up();
        let min_secs = |text: &str| {
            let workload: autotune_workloads::Workload = text.parse().unwrap();
            ceilings.min_secs(workload.work(), workload.dtype())
        };
        let flops = 2.0 * 1e9;
        assert_eq!(min_secs("matmul:m=1000,n=1000,k=1000"), flops / 2e9);
        // As many bytes take longer than the operations on tensor cores; half as many with half the type.
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
