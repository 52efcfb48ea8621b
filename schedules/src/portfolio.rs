//! Schedules known to be good for some workload, to be transferred to others.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use autotune_ir::DType;
use autotune_ir::instruction::Factors;
use autotune_ir::target::{Isa, Target};
use autotune_workloads::Workload;
use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::config::Config;
use crate::direct::dot_factors;
use crate::space::ScheduleSpace;

/// Largest share of the direct algorithm's operations that another algorithm may need to be chosen
/// without measuring. Its savings must pay for the transforms and for reading larger filters.
/// Measured on 3x3 convolutions of stride 2 (one thread, AVX-512, on a disturbed machine), the
/// speed over the direct algorithm by share of operations was: 0.56 → 1.53, 0.69 → 1.29, 0.74 → 0.6
/// to 1.18, 0.91 → 0.94.
const MAX_WORK_SHARE: f64 = 0.7;

/// A few schedules which, transferred to other workloads, together come near the best of many of
/// them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Portfolio {
    /// Entries, ordered so that the first cover the most workloads.
    pub entries: Vec<PortfolioEntry>,
}

/// A schedule and the workload that it was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortfolioEntry {
    /// Workload that the schedule was measured on.
    pub workload: Workload,
    /// The schedule in text form.
    pub config: Config,
}

/// A portfolio and two models that ship, made by the example `pretrain` from one test bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShippedSet {
    /// For CPUs with AVX2.
    Avx2,
    /// For CPUs with AVX-512.
    Avx512,
    /// For contractions of bf16 or 8-bit integers by dot-product instructions of AVX-512.
    Avx512Narrow,
}

impl ShippedSet {
    /// Sets in the order in which they are stored.
    pub const ALL: [Self; 3] = [Self::Avx2, Self::Avx512, Self::Avx512Narrow];

    /// Returns the set for a workload; `None` if none ships for its target or instruction.
    pub fn of(workload: &Workload, target: &Target) -> Option<Self> {
        match (Self::of_target(target)?, dot_factors(workload, target.cpu()?)) {
            (set, None) => Some(set),
            (Self::Avx512, Some(factors)) if are_as_stored(&factors) => Some(Self::Avx512Narrow),
            _ => None,
        }
    }

    /// Returns the set for a target's f32 workloads; `None` if none ships for its instruction set.
    pub fn of_target(target: &Target) -> Option<Self> {
        match target.cpu()?.isa {
            Isa::Avx2 => Some(Self::Avx2),
            Isa::Avx512 => Some(Self::Avx512),
            Isa::Neon | Isa::Generic => None,
        }
    }
}

/// True if factors are not widened, as they were not where the set was recorded.
fn are_as_stored(factors: &Factors) -> bool {
    factors.dtypes.iter().all(|dtype| *dtype == DType::Bf16 || dtype.bytes() == 1)
}

/// Portfolios that ship, in the order of [`ShippedSet::ALL`].
static SHIPPED: LazyLock<[Portfolio; ShippedSet::ALL.len()]> = LazyLock::new(|| {
    [
        include_str!("../portfolio/avx2.jsonl"),
        include_str!("../portfolio/avx512.jsonl"),
        include_str!("../portfolio/avx512_narrow.jsonl"),
    ]
    .map(|text| Portfolio::parse(text).unwrap_or_default())
});

impl Portfolio {
    /// Returns a portfolio that ships.
    pub fn shipped(set: ShippedSet) -> &'static Self {
        &SHIPPED[set as usize]
    }

    /// Parses JSON Lines, one entry per line.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self { entries: text.lines().map(serde_json::from_str).collect::<Result<_, _>>()? })
    }

    /// Returns the entries as JSON Lines.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        let lines: Vec<String> = self.entries.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        Ok(lines.into_iter().map(|line| line + "\n").collect())
    }

    /// Returns the fastest schedule of each workload and sketch. `measured` yields workloads,
    /// schedules and run times in seconds.
    pub fn of_fastest<'a>(measured: impl IntoIterator<Item = (&'a Workload, &'a Config, f64)>) -> Self {
        let mut fastest: BTreeMap<(&Workload, &str), (f64, &Config)> = BTreeMap::new();
        for (workload, config, run_secs) in measured {
            let known = fastest.entry((workload, &config.sketch)).or_insert((run_secs, config));
            if run_secs < known.0 {
                *known = (run_secs, config);
            }
        }
        let entry = |((workload, _), (_, config)): ((&Workload, &str), (f64, &Config))| PortfolioEntry {
            workload: workload.clone(),
            config: config.clone(),
        };
        Self { entries: fastest.into_iter().map(entry).collect() }
    }

    /// True if the portfolio has schedules of the workload's operator, and types of data and
    /// weights.
    pub fn covers(&self, workload: &Workload) -> bool {
        self.entries.iter().any(|entry| workload.distance(&entry.workload).is_finite())
    }

    /// Returns [`nearest`] of the portfolio's entries.
    pub fn nearest(&self, workload: &Workload, n: usize) -> Vec<&PortfolioEntry> {
        nearest(&self.entries, workload, n)
    }
}

/// Returns the entries of the `n` workloads that are nearest to `workload` by
/// [`Workload::distance`], nearest first. Only workloads of the same operator and types of data and
/// weights count.
pub fn nearest<'a>(
    entries: impl IntoIterator<Item = &'a PortfolioEntry>,
    workload: &Workload,
    n: usize,
) -> Vec<&'a PortfolioEntry> {
    nearest_to(entries, |other| workload.distance(other), n)
}

/// Returns the entries of the `n` workloads with the least `distance`, nearest first. Workloads at
/// infinite distance are left out.
pub fn nearest_to<'a>(
    entries: impl IntoIterator<Item = &'a PortfolioEntry>,
    distance: impl Fn(&Workload) -> f32,
    n: usize,
) -> Vec<&'a PortfolioEntry> {
    let with_distance = entries.into_iter().map(|entry| (distance(&entry.workload), entry));
    let mut alike: Vec<(f32, &PortfolioEntry)> = with_distance.filter(|(distance, _)| distance.is_finite()).collect();
    // Ties are broken by workload, so that the result does not depend on the order of entries.
    alike.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.workload.cmp(&b.1.workload)));
    let of_workloads = alike.chunk_by(|a, b| a.1.workload == b.1.workload);
    of_workloads.take(n).flatten().map(|(_, entry)| *entry).collect()
}

/// Transfers entries to a space, each with at most `tries` combinations
/// ([`ScheduleSpace::adapt_within`]). The result has the order of the entries, without duplicates.
pub fn transferred_schedules<'a>(
    space: &ScheduleSpace,
    entries: impl IntoIterator<Item = &'a PortfolioEntry>,
    tries: usize,
) -> Vec<Candidate> {
    let mut met = HashSet::new();
    let carried = entries.into_iter().filter_map(|entry| space.adapt_within(&entry.config, &entry.workload, tries));
    carried.filter(|candidate| met.insert(candidate.stable_hash())).collect()
}

/// Returns the operations of a candidate's algorithm, as a multiple of the direct algorithm's.
fn work_share(candidate: &Candidate) -> f64 {
    let workload = candidate.workload();
    candidate.config().work(workload).flops / workload.work().flops
}

/// True if a schedule may be chosen without measuring: it uses the direct algorithm, or one that
/// needs at most 70 % of the direct algorithm's operations.
pub fn is_promising(candidate: &Candidate) -> bool {
    candidate.config().is_exact() || work_share(candidate) <= MAX_WORK_SHARE
}

/// Returns the candidates for a workload without a tuned schedule: the [promising](is_promising)
/// ones among the [transferred](transferred_schedules) entries, and the default schedule.
pub fn offered<'a>(
    space: &ScheduleSpace,
    entries: impl IntoIterator<Item = &'a PortfolioEntry>,
    tries: usize,
) -> Vec<Candidate> {
    let mut candidates = transferred_schedules(space, entries, tries);
    candidates.retain(is_promising);
    let default = space.default_candidate();
    if candidates.iter().all(|candidate| candidate.stable_hash() != default.stable_hash()) {
        candidates.push(default.clone());
    }
    candidates
}

#[cfg(test)]
mod tests {
    use autotune_ir::target::CpuTarget;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::space::MAX_TRIED;

    fn target_of(set: ShippedSet) -> Target {
        let isa = if set == ShippedSet::Avx2 { Isa::Avx2 } else { Isa::Avx512 };
        let features = ["avx512bf16", "avx512vnni"].map(String::from).to_vec();
        Target::Cpu(CpuTarget { isa, features, ..CpuTarget::generic_avx2(2) })
    }

    #[test]
    fn sets_are_for_the_instructions_that_they_were_recorded_with() {
        let [avx2, avx512] = [ShippedSet::Avx2, ShippedSet::Avx512].map(target_of);
        let plain = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) });
        let product = |types: &str| format!("matmul:m=77,n=200,k=300{types}").parse().unwrap();
        let of = |types: &str, target: &Target| ShippedSet::of(&product(types), target);
        for (types, expected) in [
            ("", [Some(ShippedSet::Avx2), Some(ShippedSet::Avx512), Some(ShippedSet::Avx512)]),
            (",dtype=bf16", [Some(ShippedSet::Avx2), Some(ShippedSet::Avx512Narrow), Some(ShippedSet::Avx512)]),
            (",data=u8,weights=i8", [None, Some(ShippedSet::Avx512Narrow), None]),
            (",data=i8,weights=i8", [None; 3]),
        ] {
            assert_eq!([&avx2, &avx512, &plain].map(|target| of(types, target)), expected, "{types}");
        }
    }

    #[test]
    fn shipped_schedules_are_valid_and_transferable() {
        for set in ShippedSet::ALL {
            let target = target_of(set);
            let portfolio = Portfolio::shipped(set);
            assert!(!portfolio.entries.is_empty(), "the example `pretrain` makes it");
            for PortfolioEntry { workload, config } in &portfolio.entries {
                // Limits that depend on cache sizes may exclude the schedule itself on this target,
                // but not all schedules near it.
                let space = ScheduleSpace::new(workload, &target);
                assert!(space.adapt(config, workload).is_some(), "{workload}: {config}");
            }

            let types = if set == ShippedSet::Avx512Narrow { ",data=bf16,weights=bf16" } else { "" };
            for text in ["conv2d:c=40,h=36,w=44,o=72,k=3,p=1,bias", "matmul:m=77,n=200,k=300"] {
                let workload = format!("{text}{types}").parse().unwrap();
                assert_eq!(ShippedSet::of(&workload, &target), Some(set), "{workload}");
                let space = ScheduleSpace::new(&workload, &target);
                let nearest = portfolio.nearest(space.workload(), usize::MAX);
                let candidates = transferred_schedules(&space, nearest, MAX_TRIED);
                assert!(candidates.len() >= 4, "{text}: {candidates:?}");
                assert!(candidates.iter().all(|candidate| space.contains(candidate)));
            }
            assert_eq!(Portfolio::parse(&portfolio.to_text().unwrap()).unwrap(), *portfolio);
        }
    }

    #[test]
    fn schedules_that_save_little_are_not_chosen_unmeasured() {
        let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) });
        let portfolio = Portfolio::shipped(ShippedSet::Avx512);
        for (text, saves) in [
            ("conv2d:c=64,h=56,w=56,o=64,k=3,p=1", true),
            ("conv2d:c=64,h=28,w=28,o=64,k=5,p=2", true),
            ("conv2d:c=96,h=160,w=160,o=24,k=3,p=1", true),
            ("conv2d:c=58,h=28,w=28,o=58,k=3,p=1", true),
            ("conv2d:c=24,h=56,w=56,o=96,k=3,p=1", true),
            ("conv2d:c=64,h=56,w=56,o=128,k=3,s=2,p=1", true),
            ("conv2d:c=256,h=14,w=14,o=512,k=3,s=2,p=1", false),
            ("conv2d:c=64,h=1,w=56,o=64,k=3,p=1", false),
        ] {
            let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
            let carried = transferred_schedules(&space, &portfolio.entries, MAX_TRIED);
            assert!(carried.iter().any(|candidate| !candidate.config().is_exact()), "{text}");
            let offered = offered(&space, &portfolio.entries, MAX_TRIED);
            assert!(!offered.is_empty() && offered.iter().all(is_promising), "{text}");
            assert_eq!(offered.iter().any(|candidate| !candidate.config().is_exact()), saves, "{text}");
            assert!(offered.iter().any(|candidate| candidate.config().is_exact()), "{text}");
        }
    }

    #[test]
    fn a_history_is_its_fastest_schedules_and_the_nearest_come_first() {
        let space = |text: &str| ScheduleSpace::new(&text.parse().unwrap(), &Target::Cpu(CpuTarget::generic_avx2(2)));
        let spaces = ["matmul:m=64,n=64,k=64", "matmul:m=64,n=64,k=128", "matmul:m=2,n=64,k=64"].map(space);
        let conv = space("conv2d:c=16,h=14,w=14,o=16,k=3,p=1");
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut measured = Vec::new();
        for space in spaces.iter().chain([&conv]) {
            for run_secs in [3.0, 1.0, 2.0] {
                measured.push((space.workload().clone(), space.sample(&mut rng).config().clone(), run_secs));
            }
        }
        let history = Portfolio::of_fastest(measured.iter().map(|(workload, config, secs)| (workload, config, *secs)));
        let fastest = |text: &str| {
            let of_workload = measured.iter().filter(|(workload, ..)| workload.as_str() == text);
            of_workload.min_by(|a, b| a.2.total_cmp(&b.2)).map(|(_, config, _)| config)
        };

        let asked = space("matmul:m=60,n=64,k=120");
        let nearest = history.nearest(asked.workload(), usize::MAX);
        let texts: Vec<&str> = nearest.iter().map(|entry| entry.workload.as_str()).collect();
        assert_eq!(texts, ["matmul:m=64,n=64,k=128", "matmul:m=64,n=64,k=64", "matmul:m=2,n=64,k=64"]);
        assert_eq!(history.nearest(asked.workload(), 2), nearest[..2]);
        assert!(nearest.iter().all(|entry| fastest(entry.workload.as_str()) == Some(&entry.config)));

        let candidates =
            transferred_schedules(&asked, nearest.iter().copied().chain(nearest.iter().copied()), MAX_TRIED);
        assert!(!candidates.is_empty() && candidates.len() <= 3);
        assert!(candidates.iter().all(|candidate| asked.contains(candidate)));
    }
}
