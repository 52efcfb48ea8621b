//! Variants of a schedule for tensors in other layouts.

use super::ScheduleSpace;
use crate::candidate::Candidate;
use crate::config::{Config, KnobValue};
use crate::knob_space::Knob;

/// Names of the knobs for the layouts of a kernel's data and output.
pub const LAYOUT_KNOBS: [&str; 2] = ["layout.in", "layout.out"];

impl ScheduleSpace {
    /// Returns one candidate for every other combination of layouts of data and output: the valid
    /// one that is nearest to a config of this space. Empty if the sketch has no choice of layouts.
    ///
    /// `direct; layout.in=plain layout.out=plain` → blocked output, blocked data, and both blocked.
    pub fn in_other_layouts(&self, config: &Config) -> Vec<Candidate> {
        self.other_layouts(config).iter().filter_map(|wanted| self.in_layouts_of(wanted)).collect()
    }

    /// Returns a config with every other combination of layouts, valid or not.
    pub fn other_layouts(&self, config: &Config) -> Vec<Config> {
        let Some(sketch) = self.sketches.iter().find(|sketch| sketch.name() == config.sketch) else {
            return Vec::new();
        };
        let knobs = LAYOUT_KNOBS.iter().filter_map(|name| sketch.knobs.iter().find(|knob| knob.name == *name));
        let mut wanted = vec![config.clone()];
        for Knob { name, values, .. } in knobs {
            let with = |config: &Config, value: &KnobValue| {
                let mut other = config.clone();
                other.knobs.insert(name.clone(), value.clone());
                other
            };
            wanted = wanted.iter().flat_map(|config| values.iter().map(move |value| with(config, value))).collect();
        }
        wanted.retain(|other| !have_same_layouts(other, config));
        wanted
    }

    /// Returns the valid candidate with the layouts of a config that is nearest to it.
    pub fn in_layouts_of(&self, wanted: &Config) -> Option<Candidate> {
        // The nearest candidate may have other layouts.
        self.adapt(wanted, self.workload()).filter(|found| have_same_layouts(wanted, found.config()))
    }
}

fn have_same_layouts(a: &Config, b: &Config) -> bool {
    LAYOUT_KNOBS.iter().all(|name| a.knobs.get(*name) == b.knobs.get(*name))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use autotune_ir::Target;
    use autotune_ir::target::CpuTarget;

    #[test]
    fn a_schedule_is_found_in_every_other_layout() {
        let target = Target::Cpu(CpuTarget::generic_avx2(1));
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for (text, layouts) in [
            ("conv2d:c=64,h=14,w=14,o=64,k=1", 4),
            // No block size divides the channels of the output.
            ("conv2d:c=64,h=14,w=14,o=7,k=1", 2),
            // Pooling of plain images has lanes of pixels, of blocked images lanes of channels. One
            // combination has no valid schedule nearby.
            ("pool2d:c=64,h=14,w=14,k=3,s=2,p=1,kind=max", 3),
            ("matmul:m=8,n=16,k=8", 1),
        ] {
            let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
            let mut most = 0;

            for _ in 0..20 {
                let config = space.sample(&mut rng).config().clone();
                let mut found = space.in_other_layouts(&config);
                assert!(found.iter().all(|candidate| space.contains(candidate.config())), "{text}");
                found.push(space.candidate(&config));

                let lies =
                    |c: &Candidate| LAYOUT_KNOBS.map(|name| c.config().knobs.get(name).map(KnobValue::to_string));
                let mut lying: Vec<_> = found.iter().map(lies).collect();
                lying.sort();
                lying.dedup();
                assert_eq!(lying.len(), found.len(), "{text}: {lying:?}");
                most = most.max(lying.len());
            }
            assert_eq!(most, layouts, "{text}");
        }
    }
}
