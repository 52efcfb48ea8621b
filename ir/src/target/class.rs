//! The measured class of a CPU: how many cycles its vector units take for an f32 multiply-add and
//! for an addition.
//!
//! Model numbers lie under virtualisation, and clocks change from moment to moment. Latencies in
//! cycles do neither: the time of a chain of instructions, each of which waits for the one before
//! it, is compared with that of a chain of 64-bit `imul`s, which take three cycles on every x86-64
//! core since 2008 but a few small ones. Unlike throughputs, which halve while another thread of
//! the same core uses its units, latencies hardly depend on what else runs: a key that is looked up
//! must be the same at every moment.

/// None: it is not known how these processors are measured.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn latency_cycles() -> Option<[u32; 2]> {
    None
}

/// Measures the cycles of a multiply-add and of an addition, in a few milliseconds; `None` where
/// they cannot be measured.
#[cfg(target_arch = "x86_64")]
pub(super) fn latency_cycles() -> Option<[u32; 2]> {
    if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
        return None;
    }

    let mut least_secs = [f64::INFINITY; 3];
    let (mut class, mut steady_rounds) = (None, 0);
    for _ in 0..x86::MAX_ROUNDS {
        // SAFETY: the CPU has AVX2 and FMA.
        let fma_secs = x86::secs(|| unsafe { x86::fma_chain() });
        // SAFETY: as before.
        let add_secs = x86::secs(|| unsafe { x86::add_chain() });
        let round_secs = [x86::secs(x86::multiply_chain), fma_secs, add_secs];
        least_secs.iter_mut().zip(round_secs).for_each(|(least, secs)| *least = secs.min(*least));

        let now = cycles(least_secs);
        steady_rounds = if now == class { steady_rounds + 1 } else { 0 };
        class = now;
        if steady_rounds >= x86::STEADY_ROUNDS {
            break;
        }
    }
    class
}

/// Whole cycles of the last two chains' instructions, by the times of three chains, the first of
/// which takes three cycles each.
fn cycles([three_secs, fma_secs, add_secs]: [f64; 3]) -> Option<[u32; 2]> {
    let cycles = [fma_secs, add_secs].map(|secs| (3.0 * secs / three_secs).round());
    let is_plausible = cycles.iter().all(|cycles| (1.0..32.0).contains(cycles));
    is_plausible.then(|| cycles.map(|cycles| cycles as u32))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::time::Instant;

    /// Runs of a loop's body.
    const REPEATS: u64 = 500;
    /// Rounds that the class must not change in, and most rounds: each takes some fifteen
    /// microseconds.
    pub(super) const STEADY_ROUNDS: u32 = 100;
    pub(super) const MAX_ROUNDS: u32 = 1000;

    /// Time of a run.
    pub(super) fn secs(run: impl FnOnce()) -> f64 {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    }

    /// Multiplications that each need the result of the one before.
    pub(super) fn multiply_chain() {
        // SAFETY: only the named registers and the flags change.
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

    /// Makes a function of twelve instructions in a row that each need the result of the one
    /// before, in ymm0, starting from zeros.
    macro_rules! vector_chain {
        ($name:ident, $instruction:literal) => {
            #[target_feature(enable = "avx2,fma")]
            pub(super) fn $name() {
                // SAFETY: only the named registers and the flags change; a vector register's whole
                // is named by its lowest part.
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
        assert_eq!(cycles([3.0, f64::NAN, 3.0]), None);
        assert_eq!(cycles([3.0, 4.0, 0.0]), None);
        assert_eq!(cycles([f64::INFINITY; 3]), None);
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
