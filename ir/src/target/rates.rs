//! Measured rates of a CPU, relative to its peak.

use serde::{Deserialize, Serialize};

use crate::machine::cpu::{BARRIER_CYCLES, READ_BYTES_PER_CYCLE, peak_flops_per_cycle};

/// Significant digits of a rate; few, so that repeated measurements of a machine nearly always
/// agree.
const DIGITS: i32 = 2;

/// Rates of a CPU's caches, memory and threads relative to the peak of one core, so that they are
/// comparable between machines. A *cycle* is the time in which a core at its peak starts
/// [`FMAS_PER_CYCLE`](crate::machine::cpu::FMAS_PER_CYCLE) vector multiply-adds. It equals a clock
/// cycle, or two if the units are half as wide as the vectors.
///
/// Rates have two significant digits. Without measurement they are the [nominal](Rates::NOMINAL)
/// rates of the machine table. They are not part of a key: targets that differ only in rates are
/// the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rates {
    /// Bytes read per thousand cycles: from the second-level cache and from the last-level cache by
    /// each thread while all threads of the target read, and from memory by all threads together.
    pub bytes_per_kilocycle: [u32; 3],
    /// Cycles of a stage with almost no work on all threads.
    pub fork_join_cycles: u32,
}

impl Rates {
    /// Rates of the machine table.
    pub const NOMINAL: Self = Self {
        bytes_per_kilocycle: [
            (1e3 * READ_BYTES_PER_CYCLE[0]) as u32,
            (1e3 * READ_BYTES_PER_CYCLE[1]) as u32,
            (1e3 * READ_BYTES_PER_CYCLE[2]) as u32,
        ],
        fork_join_cycles: BARRIER_CYCLES as u32,
    };

    /// Converts measurements to rates: f32 FLOP per second of a core with vectors of `lanes` lanes
    /// (a multiply-add is two), bytes read per second as in [`Rates::bytes_per_kilocycle`], and
    /// seconds of a fork and join. A measurement that is not positive and finite is replaced by the
    /// nominal rate.
    pub fn measured(lanes: usize, core_flops_per_sec: f64, read_bytes_per_sec: [f64; 3], fork_join_secs: f64) -> Self {
        let cycles_per_sec = core_flops_per_sec / peak_flops_per_cycle(lanes);
        let mut rates = Self::NOMINAL;
        for (rate, bytes_per_sec) in rates.bytes_per_kilocycle.iter_mut().zip(read_bytes_per_sec) {
            *rate = rounded(1e3 * bytes_per_sec / cycles_per_sec).unwrap_or(*rate);
        }
        rates.fork_join_cycles = rounded(fork_join_secs * cycles_per_sec).unwrap_or(rates.fork_join_cycles);
        rates
    }

    /// Returns [`Rates::bytes_per_kilocycle`] per single cycle.
    pub fn read_bytes_per_cycle(&self) -> [f64; 3] {
        self.bytes_per_kilocycle.map(|bytes| f64::from(bytes.max(1)) / 1e3)
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self::NOMINAL
    }
}

/// Rounds a positive number to [`DIGITS`] significant digits; `None` if it is not positive and
/// finite.
fn rounded(value: f64) -> Option<u32> {
    if !value.is_finite() || value <= 0.0 {
        return None;
    }
    // At least 1, since rates are integers.
    let unit = 10f64.powi(value.log10().floor() as i32 + 1 - DIGITS).max(1.0);
    Some(((value / unit).round() * unit).max(1.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_are_kept() {
        let cases = [(1.0, 1), (0.2, 1), (9.6, 10), (99.4, 99), (123.0, 120), (45_678.0, 46_000), (1e12, u32::MAX)];
        for (value, expected) in cases {
            assert_eq!(rounded(value), Some(expected), "{value}");
        }
        for absurd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(rounded(absurd), None);
        }
    }

    #[test]
    fn a_rate_is_over_the_peak_whatever_the_clock_and_the_vectors() {
        // At 2 GHz, with two multiply-adds of 8 lanes per cycle.
        let of = |lanes, speed: f64| {
            Rates::measured(
                lanes,
                speed * 2.0 * 2.0 * 8.0 * 2e9,
                [128e9, 40e9, 7e9].map(|rate| speed * rate),
                1e-6 / speed,
            )
        };
        let rates = of(8, 1.0);
        assert_eq!(rates, Rates { bytes_per_kilocycle: [64_000, 20_000, 3_500], fork_join_cycles: 2_000 });
        assert_eq!(of(8, 1.7), rates);
        // Units half as wide as the vectors: the same speed in half as many cycles.
        let halved = Rates { bytes_per_kilocycle: [130_000, 40_000, 7_000], fork_join_cycles: 1_000 };
        assert_eq!(of(16, 1.0), halved);
        assert_eq!(Rates::measured(8, f64::NAN, [0.0; 3], 0.0), Rates::NOMINAL);
    }
}
