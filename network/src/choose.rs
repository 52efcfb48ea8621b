//! Which schedules a network's steps may choose from.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use autotune::{Query, Tuned};
use autotune_db::Source;
use autotune_ir::Target;
use autotune_workloads::Workload;
use rayon::prelude::*;

use crate::cut::step_number;
use crate::error::CompileError;

/// Where the schedules of a plan come from.
pub(crate) trait Choose {
    /// Looks up what there is for steps, by their numbers, all at once and side by side.
    fn prepare(&mut self, steps: &[(usize, &Workload)]) -> Result<(), CompileError> {
        let _ = steps;
        Ok(())
    }

    /// Has predicted schedules of workloads that share a constant pack it alike, where that costs
    /// little: the others follow one that was tuned, else the one with the most operations.
    fn agree(&mut self, sharing: &[Vec<&Workload>]) -> Result<(), CompileError> {
        let _ = sharing;
        Ok(())
    }

    /// Those that there are for a step, by its number, the best first; at least one.
    fn of_step(&mut self, step: usize, workload: &Workload) -> Result<Arc<[Tuned]>, CompileError>;

    /// True if a kernel copies what lies in one piece, where the device has nothing else that
    /// copies.
    fn copies_by_kernels(&self) -> bool;

    /// The one of a conversion of layouts.
    fn of_conversion(&mut self, workload: &Workload) -> Result<Tuned, CompileError>;

    /// Seconds of a conversion; `None` if it was not measured.
    fn conversion_secs(&mut self, workload: &Workload) -> Result<Option<f64>, CompileError>;
}

/// For each step of a network its schedule; `None` where it runs no kernel.
pub(crate) type Choice = Vec<Option<Tuned>>;

/// Schedules that a source has, those that are predicted where it has none.
pub(crate) struct Schedules<'a> {
    source: Option<&'a dyn Source>,
    target: &'a Target,
    among: Among<'a>,
    known: HashMap<Workload, Arc<[Tuned]>>,
}

enum Among<'a> {
    /// The best of each kind.
    Kinds,
    /// What the network of this number was found to be the fastest with; the best of each kind
    /// where that is not known.
    Network(u64),
    /// These.
    Chosen(&'a Choice),
}

impl<'a> Schedules<'a> {
    /// The best of each kind that a source has of a workload; the predicted ones without a source.
    pub(crate) fn kinds(source: Option<&'a dyn Source>, target: &'a Target) -> Self {
        Self { source, target, among: Among::Kinds, known: HashMap::new() }
    }

    /// What a source knows a network to be the fastest with, by its number.
    pub(crate) fn of_network(source: &'a dyn Source, target: &'a Target, network: u64) -> Self {
        Self { among: Among::Network(network), ..Self::kinds(Some(source), target) }
    }

    /// The schedules of a choice; conversions are as the source has them.
    pub(crate) fn chosen(source: &'a dyn Source, target: &'a Target, choice: &'a Choice) -> Self {
        Self { among: Among::Chosen(choice), ..Self::kinds(Some(source), target) }
    }

    /// What there is for a workload, wherever it is in the network.
    fn of_workload(&mut self, workload: &Workload) -> Result<Arc<[Tuned]>, CompileError> {
        if let Some(known) = self.known.get(workload) {
            return Ok(Arc::clone(known));
        }
        let found = self.found(workload)?;
        self.known.insert(workload.clone(), Arc::clone(&found));
        Ok(found)
    }

    fn found(&self, workload: &Workload) -> Result<Arc<[Tuned]>, CompileError> {
        let query = self.query(workload);
        let found = match self.among {
            Among::Network(network) => query.within(network).kinds()?,
            Among::Kinds | Among::Chosen(_) => query.kinds()?,
        };
        Ok(found.into())
    }

    /// Asks the source, if there is one.
    fn query<'q>(&self, workload: &'q Workload) -> Query<'q>
    where
        'a: 'q,
    {
        let query = Query::new(workload, self.target);
        self.source.map_or(query, |source| query.source(source))
    }

    /// The schedule of a choice for a step.
    fn chosen_for(&self, step: usize) -> Option<&'a Tuned> {
        match self.among {
            Among::Chosen(choice) => choice.get(step)?.as_ref(),
            _ => None,
        }
    }
}

impl Choose for Schedules<'_> {
    fn prepare(&mut self, steps: &[(usize, &Workload)]) -> Result<(), CompileError> {
        let open = steps.iter().filter(|(step, _)| self.chosen_for(*step).is_none()).map(|(_, workload)| *workload);
        let open: HashSet<&Workload> = open.filter(|workload| !self.known.contains_key(*workload)).collect();
        let found = open.into_par_iter().map(|workload| Ok((workload.clone(), self.found(workload)?)));
        let found: Vec<_> = found.collect::<Result<_, CompileError>>()?;
        self.known.extend(found);
        Ok(())
    }

    fn agree(&mut self, sharing: &[Vec<&Workload>]) -> Result<(), CompileError> {
        let mut agreed: HashSet<&Workload> = HashSet::new();
        for workloads in sharing {
            // Not copies of schedules: a schedule keeps the loop nests that are made of it.
            let found = |workload: &&Workload| self.known.get(*workload).map(Arc::clone);
            let known: Vec<(&Workload, Arc<[Tuned]>)> =
                workloads.iter().filter_map(|w| Some((*w, found(w)?))).collect();
            let weight = |of: &(&Workload, Arc<[Tuned]>)| (of.1[0].is_tuned(), of.0.work().flops);
            let heavier = |a: &_, b: &_| {
                let (a, b) = (weight(a), weight(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            };
            let Some((leader, packed)) = known.iter().max_by(|a, b| heavier(a, b)) else { continue };

            agreed.insert(*leader);
            for (workload, own) in known.iter().filter(|(workload, _)| !agreed.contains(workload)) {
                if let Some(alike) = own[0].packed_like(&packed[0])? {
                    self.known.insert((*workload).clone(), Arc::new([alike]));
                }
            }
            agreed.extend(known.iter().map(|(workload, _)| *workload));
        }
        Ok(())
    }

    fn of_step(&mut self, step: usize, workload: &Workload) -> Result<Arc<[Tuned]>, CompileError> {
        if let Some(chosen) = self.chosen_for(step) {
            return Ok(Arc::new([chosen.clone()]));
        }
        let found = self.of_workload(workload)?;
        let Among::Network(network) = self.among else { return Ok(found) };

        // Steps of one workload may differ.
        let own = self.query(workload).within(step_number(network, step)).record()?;
        Ok(own.filter(|own| own.is_known_as_well_as(&found[0])).map_or(found, |own| Arc::new([own])))
    }

    fn copies_by_kernels(&self) -> bool {
        self.target.gpu().is_some()
    }

    fn of_conversion(&mut self, workload: &Workload) -> Result<Tuned, CompileError> {
        Ok(self.query(workload).best()?)
    }

    fn conversion_secs(&mut self, workload: &Workload) -> Result<Option<f64>, CompileError> {
        let found = self.query(workload).record()?;
        Ok(found.as_ref().and_then(Tuned::run_secs))
    }
}
