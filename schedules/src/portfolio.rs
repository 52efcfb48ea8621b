//! Schedules that are known to be good for some workload, to be carried over to others.

use std::sync::LazyLock;

use autotune_ir::target::{Isa, Target};
use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::config::Config;
use crate::space::ScheduleSpace;
use crate::workload::Workload;

/// A few schedules that together come near the best of many workloads, once carried over to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Portfolio {
    /// The first cover the most.
    pub entries: Vec<Entry>,
}

/// A schedule and the workload that it is known from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it is known from.
    pub workload: Workload,
    /// The schedule.
    pub config: Config,
}

/// What ships: a portfolio for each family of instruction sets, made by the example `pretrain`.
static AVX2: LazyLock<Option<Portfolio>> =
    LazyLock::new(|| Portfolio::parse(include_str!("../portfolio/avx2.jsonl")).ok());
static AVX512: LazyLock<Option<Portfolio>> =
    LazyLock::new(|| Portfolio::parse(include_str!("../portfolio/avx512.jsonl")).ok());

impl Portfolio {
    /// The portfolio that ships for a target, if one does.
    pub fn for_target(target: &Target) -> Option<&'static Self> {
        match target.cpu()?.isa {
            Isa::Avx2 => AVX2.as_ref(),
            Isa::Avx512 => AVX512.as_ref(),
            Isa::Neon | Isa::Generic => None,
        }
    }

    /// Reads JSON Lines, one entry a line.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self { entries: text.lines().map(serde_json::from_str).collect::<Result<_, _>>()? })
    }

    /// The entries as JSON Lines.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        let lines: Vec<String> = self.entries.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        Ok(lines.into_iter().map(|line| line + "\n").collect())
    }

    /// The entries of a space's operator, carried over to it ([`ScheduleSpace::adapt`]), each schedule once.
    pub fn candidates(&self, space: &ScheduleSpace) -> Vec<Candidate> {
        let kind = space.workload().operator().kind();
        let alike = self.entries.iter().filter(|entry| entry.workload.operator().kind().name == kind.name);
        let carried = alike.filter_map(|entry| {
            let origin = ScheduleSpace::new(&entry.workload, space.target());
            space.adapt(&entry.config, &origin)
        });
        let mut candidates: Vec<Candidate> = Vec::new();
        for candidate in carried {
            if candidates.iter().all(|other| other.stable_hash() != candidate.stable_hash()) {
                candidates.push(candidate);
            }
        }
        candidates
    }
}

#[cfg(test)]
mod tests {
    use autotune_ir::target::CpuTarget;

    use super::*;

    #[test]
    fn what_ships_are_schedules_of_their_workloads_that_can_be_carried_over() {
        for isa in [Isa::Avx2, Isa::Avx512] {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) });
            let portfolio = Portfolio::for_target(&target).expect("the example `pretrain` makes it");
            assert!(!portfolio.entries.is_empty());
            for Entry { workload, config } in &portfolio.entries {
                // Limits that depend on the machine's caches may rule it out there, but not all that is near it.
                let space = ScheduleSpace::new(workload, &target);
                assert!(space.adapt(config, &space).is_some(), "{workload}: {config}");
            }

            for text in ["conv2d:c=40,h=36,w=44,o=72,k=3,p=1,bias", "matmul:m=77,n=200,k=300"] {
                let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
                let candidates = portfolio.candidates(&space);
                assert!(candidates.len() > 4, "{text}: {candidates:?}");
                assert!(candidates.iter().all(|candidate| space.contains(candidate)));
            }
            assert_eq!(Portfolio::parse(&portfolio.to_text().unwrap()).unwrap(), *portfolio);
        }
    }
}
