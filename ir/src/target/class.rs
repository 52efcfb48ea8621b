//! Measured class of a CPU: the latencies of its vector units for an f32 multiply-add and for an
//! addition, in cycles.
//!
//! Virtual machines may report a false model number, and clock rates change all the time. Latencies
//! in cycles are independent of both. The time of a chain of dependent instructions is compared
//! with that of a chain of 64-bit `imul`s, which take three cycles on every x86-64 core since 2008
//! except a few small ones. Throughputs halve while another thread uses the units of the same core;
//! latencies hardly depend on other load. A database key must be the same at every moment.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Returns `None`: no measurement is implemented for this architecture.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn latency_cycles() -> Option<[u32; 2]> {
    None
}

/// Measures the latencies of a multiply-add and of an addition in cycles, within some milliseconds;
/// `None` if they cannot be measured.
#[cfg(target_arch = "x86_64")]
pub(super) fn latency_cycles() -> Option<[u32; 2]> {
    if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
        return None;
    }
    agreed(|| {
        // SAFETY: AVX2 and FMA were detected above.
        unsafe { x86::least_secs() }
    })
}

/// Repeats a measurement of three chains until three results agree, and returns their latencies in
/// cycles; `None` if no result was plausible. A clock that is set or a busy millisecond spoils one
/// measurement only.
fn agreed(mut measure: impl FnMut() -> [f64; 3]) -> Option<[u32; 2]> {
    const AGREEING: u32 = 3;
    const MAX_MEASUREMENTS: u32 = 15;
    let mut counts = BTreeMap::new();
    for _ in 0..MAX_MEASUREMENTS {
        let Some(class) = cycles(measure()) else { continue };
        let count = counts.entry(class).or_insert(0);
        *count += 1;
        if *count == AGREEING {
            return Some(class);
        }
    }

    // Interference makes latencies longer, so the shorter of equally frequent ones is taken.
    counts.into_iter().min_by_key(|(class, count)| (Reverse(*count), *class)).map(|(class, _)| class)
}

/// Converts the times of three chains to the latencies of the last two in cycles; the instructions
/// of the first take three cycles each. `None` if the result is implausible.
///
/// Latencies are whole numbers, and interference mostly adds to them: a value in the middle between
/// two of them is rounded down.
fn cycles([three_secs, fma_secs, add_secs]: [f64; 3]) -> Option<[u32; 2]> {
    const TOLERANCE: f64 = 0.3;
    let cycles = [fma_secs, add_secs].map(|secs| (3.0 * secs / three_secs + TOLERANCE).floor());
    let is_plausible = cycles.iter().all(|cycles| (1.0..32.0).contains(cycles));
    is_plausible.then(|| cycles.map(|cycles| cycles as u32))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::time::Instant;

    /// Iterations of a chain's loop: few, so that some chains run between two disturbances by the
    /// other thread of the core. With 500, a busy neighbour made four cycles look like 4.5.
    const REPEATS: u64 = 100;
    /// Rounds of a measurement. A round takes about three microseconds.
    const ROUNDS: u32 = 500;

    /// Returns the least time in seconds of each chain: multiplications, multiply-adds, additions.
    /// The chains alternate, so that all run at the same clock rate.
    ///
    /// # Safety
    ///
    /// The processor must support AVX2 and FMA.
    pub(super) unsafe fn least_secs() -> [f64; 3] {
        let mut least_secs = [f64::INFINITY; 3];
        for _ in 0..ROUNDS {
            // SAFETY: the caller guarantees the features.
            let [fma_secs, add_secs] = unsafe { [secs(|| fma_chain()), secs(|| add_chain())] };
            // Interference only adds time, so the minima converge to the true times.
            let round_secs = [secs(multiply_chain), fma_secs, add_secs];
            least_secs.iter_mut().zip(round_secs).for_each(|(least, secs)| *least = secs.min(*least));
        }
        least_secs
    }

    /// Returns the time of one call in seconds.
    fn secs(run: impl FnOnce()) -> f64 {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    }

    /// Runs a chain of dependent multiplications.
    fn multiply_chain() {
        // SAFETY: the code changes only the named registers and the flags, and accesses no memory.
        unsafe {
            asm!(
                "2:",
                ".rept 12",
                "imul {product}, {product}",
                ".endr",
                "dec {count}",
                "jnz 2b",
                product = inout(reg) 3u64 => _,
                count = inout(reg) REPEATS => _,
                options(nomem, nostack),
            );
        }
    }

    /// Defines a function with a loop of twelve dependent instructions on ymm0, starting from zero.
    macro_rules! vector_chain {
        ($name:ident, $instruction:literal) => {
            #[target_feature(enable = "avx2,fma")]
            fn $name() {
                // SAFETY: the code changes only the named registers and the flags, and accesses no
                // memory; naming `xmm0` declares all of `ymm0` as changed.
                unsafe {
                    asm!(
                        "vxorps xmm0, xmm0, xmm0",
                        "vxorps xmm1, xmm1, xmm1",
                        "2:",
                        ".rept 12",
                        concat!($instruction, " ymm0, ymm0, ymm1"),
                        ".endr",
                        "dec {count}",
                        "jnz 2b",
                        "vzeroupper",
                        count = inout(reg) REPEATS => _,
                        out("xmm0") _, out("xmm1") _,
                        options(nomem, nostack),
                    );
                }
            }
        };
    }

    vector_chain!(fma_chain, "vfmadd213ps");
    vector_chain!(add_chain, "vaddps");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_whole_and_plausible() {
        assert_eq!(cycles([3.0, 4.2, 2.9]), Some([4, 3]));
        assert_eq!(cycles([6e-6, 8e-6, 4.2e-6]), Some([4, 2]));
        assert_eq!(cycles([3.0, 4.6, 2.0]), Some([4, 2]), "disturbance adds");
        assert_eq!(cycles([3.0, 3.8, 1.9]), Some([4, 2]), "a clock that was set meanwhile");
        assert_eq!(cycles([3.0, f64::NAN, 3.0]), None);
        assert_eq!(cycles([3.0, 4.0, 0.0]), None);
        assert_eq!(cycles([f64::INFINITY; 3]), None);
    }

    #[test]
    fn most_measurements_decide() {
        let of = |least_secs: &[[f64; 3]]| {
            let mut rest = least_secs.iter().copied();
            agreed(|| rest.next().unwrap_or([f64::NAN; 3]))
        };
        let (four, five, three) = ([3.0, 4.0, 2.0], [3.0, 5.0, 2.0], [3.0, 3.2, 2.0]);
        assert_eq!(of(&[five, four, three, four, four, five, five]), Some([4, 2]));
        assert_eq!(of(&[five, four, four, five]), Some([4, 2]), "interference adds");
        assert_eq!(of(&[three, four, four]), Some([4, 2]));
        assert_eq!(of(&[]), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_core_with_fma_has_a_class() {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            let latency_cycles = latency_cycles().unwrap();
            assert!(latency_cycles.iter().all(|cycles| (1..=10).contains(cycles)), "{latency_cycles:?}");
        }
    }
}
