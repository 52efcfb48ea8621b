//! Splits into training and held-out data: by family, by workload, or by config of the same
//! workload.

use crate::data::{Measured, drawn};

/// Number of folds over workloads.
const FOLDS: usize = 5;

/// Method of splitting the record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Split {
    /// Trains on this number of configs of a workload and holds out its others.
    Own(usize),
    /// Holds out one workload in five, and trains on this number of configs of each other workload.
    Shapes(usize),
    /// Holds out one family, and trains on this number of configs of each workload of the others.
    Families(usize),
}

/// One fold of a split: training and held-out workloads with the positions of their configs.
pub(crate) struct Fold<'d> {
    pub(crate) known: Vec<(&'d Measured, Vec<usize>)>,
    pub(crate) held_out: Vec<(&'d Measured, Vec<usize>)>,
}

impl Split {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Own(n) => format!("{n} configs of the same workload"),
            Self::Shapes(_) => "other workloads".into(),
            Self::Families(_) => "other families".into(),
        }
    }

    /// Returns the folds; the seed determines which configs are in the training data.
    pub(crate) fn folds(self, all: &[Measured], seed: u64) -> Vec<Fold<'_>> {
        let part = |is_held_out: &dyn Fn(usize) -> bool, n: usize| {
            let of =
                |held: bool| (0..all.len()).filter(|&i| is_held_out(i) == held).map(|i| &all[i]).collect::<Vec<_>>();
            Fold { known: drawn(&of(false), n, seed), held_out: drawn(&of(true), usize::MAX, seed) }
        };
        match self {
            Self::Own(n) => all.iter().map(|of| own(of, n, seed)).collect(),
            Self::Shapes(n) => {
                // Workloads are distributed within each family, so that each fold has some of each.
                let turn = |i: usize| all[..i].iter().filter(|other| other.family == all[i].family).count() % FOLDS;
                (0..FOLDS).map(|fold| part(&|i| turn(i) == fold, n)).collect()
            }
            Self::Families(n) => {
                let mut families: Vec<&str> = all.iter().map(|of| of.family.as_str()).collect();
                families.dedup();
                families.iter().map(|family| part(&|i| all[i].family == *family, n)).collect()
            }
        }
    }
}

fn own(of: &Measured, n: usize, seed: u64) -> Fold<'_> {
    let mut known = drawn(&[of], usize::MAX, seed);
    let positions = &mut known[0].1;
    let rest = positions.split_off(n.min(positions.len()));
    let held_out = if rest.is_empty() { Vec::new() } else { vec![(of, rest)] };
    Fold { known, held_out }
}
