//! Synthetic test bed for tests.

use std::path::Path;

use autotune_ir::{CpuTarget, Isa, Target};
use autotune_lab::test_bed::{ConfigSource, RecordedSample, Recording, TestBed, TestBedHeader};
use autotune_schedules::config::fnv1a;
use autotune_schedules::{Candidate, ScheduleSpace};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Returns a target for which a pretrained model ships.
pub(crate) fn target() -> Target {
    Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(2) })
}

/// Computes a synthetic time: the product of one factor per knob value. One config in 16 fails.
pub(crate) fn run_secs(candidate: &Candidate) -> Option<f64> {
    let factor = |text: String| 1.0 + (fnv1a(text.as_bytes()) % 64) as f64 / 64.0;
    let factors = candidate.knobs().map(|(name, value)| factor(format!("{name}={value}")));
    (!candidate.stable_hash().is_multiple_of(16)).then(|| 1e-6 * factors.product::<f64>())
}

/// Writes a test bed of `configs` configs for each pair of family and workload. The first half,
/// with the default config, is recorded as random, the second half as searched.
pub(crate) fn write(path: &Path, workloads: &[(&str, &str)], configs: usize) {
    let target = target();
    let mut test_bed = TestBed::open(path, TestBedHeader::new(&target)).unwrap();
    for (family, text) in workloads {
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let default = space.default_candidate().clone();
        let sample = |candidate: Candidate| RecordedSample {
            config: candidate.config().clone(),
            run_secs: run_secs(&candidate),
        };
        let mut samples: Vec<RecordedSample> = vec![sample(default)];
        samples.extend((1..configs).map(|_| sample(space.sample(&mut rng))));
        samples[0].run_secs = Some(1e-3);

        let searched = samples.split_off(configs / 2);
        for (source, samples) in [(ConfigSource::Random, samples), (ConfigSource::Search, searched)] {
            let (family, workload) = (family.to_string(), space.workload().clone());
            test_bed.append(Recording { family, workload, source, samples }).unwrap();
        }
    }
}
