//! Random targets for tests.

use autotune_ir::{CpuTarget, GpuTarget, Isa, Target};
use rand::Rng;
use rand::seq::IndexedRandom;

/// Draws a CPU with any instruction set, few or many cores, and small or large caches.
pub fn random_cpu<R: Rng>(rng: &mut R) -> Target {
    const CACHES: [[usize; 3]; 3] =
        [[32 << 10, 512 << 10, 32 << 20], [48 << 10, 2 << 20, 480 << 20], [8 << 10, 64 << 10, 256 << 10]];
    let isas = [Isa::Avx2, Isa::Avx2, Isa::Avx512, Isa::Avx512, Isa::Neon, Isa::Generic];
    let isa = *isas.choose(rng).unwrap();
    let threads = *[1, 1, 2, 2, 3, 4, 7, 16, 64, 192].choose(rng).unwrap();
    let [l1d_bytes, l2_bytes, l3_bytes] = *CACHES.choose(rng).unwrap();
    Target::Cpu(CpuTarget { isa, l1d_bytes, l2_bytes, l3_bytes, ..CpuTarget::generic_avx2(threads) })
}

/// Draws one of the GPUs that can be named without being present.
pub fn random_gpu<R: Rng>(rng: &mut R) -> Target {
    let words: Vec<String> = GpuTarget::stated_words().collect();
    Target::Gpu(GpuTarget::stated(words.choose(rng).unwrap()).unwrap())
}
