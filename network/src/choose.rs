//! Candidate schedules for the steps of a network.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use autotune::{Query, Tuned};
use autotune_db::Source;
use autotune_graph::Identity;
use autotune_ir::Target;
use autotune_ir::program::Layout;
use autotune_schedules::Candidate;
use autotune_workloads::Workload;
use rayon::current_num_threads;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::cut::{ValueId, step_number};
use crate::error::CompileError;
use crate::similar::SimilarSchedules;

/// Source of schedules for a network's plan.
pub(crate) trait Choose {
    /// Looks up the schedules of many steps in parallel; the numbers are those of the steps.
    /// Predicted schedules of workloads that share a constant are made to pack it alike, where that
    /// costs little. They follow the schedule of another network that packed the constant; else the
    /// others follow the tuned one, else the one with the most operations.
    fn prepare(&mut self, steps: &[(usize, &Workload)], sharing: &[Sharing]) -> Result<(), CompileError> {
        let _ = (steps, sharing);
        Ok(())
    }

    /// Returns the candidate schedules of a step, the best first; at least one.
    fn of_step(&mut self, step: usize, workload: &Workload) -> Result<Arc<[Tuned]>, CompileError>;

    /// Returns the target of the schedules.
    fn target(&self) -> &Target;

    /// Returns the schedule of a layout conversion.
    fn of_conversion(&mut self, workload: &Workload) -> Result<Tuned, CompileError>;

    /// Returns the seconds that a layout conversion takes, if it was measured.
    fn conversion_secs(&mut self, workload: &Workload) -> Result<Option<f64>, CompileError>;

    /// Returns the layouts of values if they are fixed, together with one schedule of each step.
    fn blocked_roots(&self) -> Option<&BlockedRoots> {
        None
    }
}

/// Layouts of root values; others are plain.
pub(crate) type BlockedRoots = FxHashMap<ValueId, Layout>;

/// Workloads of a network that read one constant, their largest.
pub(crate) struct Sharing<'a> {
    pub(crate) constant: Identity,
    pub(crate) workloads: Vec<&'a Workload>,
}

/// Stages of a kernel that pack constants ahead of time.
pub(crate) struct PackingStages {
    /// Schedule of the kernel.
    pub(crate) schedule: Candidate,
    /// Text of the stages; equal for stages that compute the same.
    pub(crate) text: Arc<str>,
    /// Names of the buffers that they use.
    pub(crate) buffers: Vec<String>,
    /// True if the schedule was transferred from a similar workload's.
    pub(crate) is_transferred: bool,
}

/// Schedule of each step of a network; `None` for steps without a kernel.
pub(crate) type Choice = Vec<Option<Tuned>>;

/// Schedules from a source, with predicted ones where the source has none.
pub(crate) struct Schedules<'a> {
    source: Option<&'a dyn Source>,
    target: &'a Target,
    among: ScheduleChoice<'a>,
    known: HashMap<Workload, Arc<[Tuned]>>,
    /// Schedules of other networks.
    similar: SimilarSchedules,
    packing_loss: f32,
}

/// Ratio of a workload's estimated time with another workload's packing to its time with its own
/// packing that one packed copy of a constant is worth.
pub(crate) const PACKING_LOSS: f32 = 1.1;

/// Ratio like [`PACKING_LOSS`] where all copies may need much memory.
pub(crate) const SCARCE_PACKING_LOSS: f32 = 1.5;

enum ScheduleChoice<'a> {
    /// The best schedule of each kind ([`Query::kinds`]).
    Kinds,
    /// The fastest known schedules of the network with this number, else the best of each kind.
    Network(u64),
    /// Exactly these schedules.
    Chosen(&'a Choice),
}

impl<'a> Schedules<'a> {
    /// Uses the best schedules of each kind from a source; predicted ones without a source.
    pub(crate) fn kinds(source: Option<&'a dyn Source>, target: &'a Target) -> Self {
        let (known, similar) = (HashMap::new(), SimilarSchedules::default());
        Self { source, target, among: ScheduleChoice::Kinds, known, similar, packing_loss: PACKING_LOSS }
    }

    /// Uses the schedules that a source has for a network as a whole, identified by its number.
    pub(crate) fn of_network(source: &'a dyn Source, target: &'a Target, network: u64) -> Self {
        Self { among: ScheduleChoice::Network(network), ..Self::kinds(Some(source), target) }
    }

    /// Uses the schedules of a choice; those of conversions come from the source.
    pub(crate) fn chosen(source: &'a dyn Source, target: &'a Target, choice: &'a Choice) -> Self {
        Self { among: ScheduleChoice::Chosen(choice), ..Self::kinds(Some(source), target) }
    }

    /// Transfers schedules of similar workloads where the source has none, and prefers schedules
    /// that pack constants alike unless they take more than `packing_loss` times as long by
    /// estimate.
    pub(crate) fn similar_to(self, similar: SimilarSchedules, packing_loss: f32) -> Self {
        Self { similar, packing_loss, ..self }
    }

    /// Returns the schedules of a workload, independent of its place in the network.
    fn of_workload(&mut self, workload: &Workload) -> Result<Arc<[Tuned]>, CompileError> {
        if let Some(known) = self.known.get(workload) {
            return Ok(Arc::clone(known));
        }
        let found = self.found(workload, None)?;
        self.known.insert(workload.clone(), Arc::clone(&found));
        Ok(found)
    }

    /// Looks up the schedules of a workload. On a miss, `like` is transferred.
    fn found(&self, workload: &Workload, like: Option<&Candidate>) -> Result<Arc<[Tuned]>, CompileError> {
        let query = self.query(workload);
        let query = like.map_or(query, |like| query.like(like));
        let found = match self.among {
            ScheduleChoice::Network(network) => query.within(network).kinds()?,
            ScheduleChoice::Kinds | ScheduleChoice::Chosen(_) => query.kinds()?,
        };
        Ok(found.into())
    }

    /// Creates a query of the source, if there is one.
    fn query<'q>(&self, workload: &'q Workload) -> Query<'q>
    where
        'a: 'q,
    {
        let query = Query::new(workload, self.target);
        self.source.map_or(query, |source| query.source(source))
    }

    /// Returns the chosen schedule of a step.
    fn chosen_for(&self, step: usize) -> Option<&'a Tuned> {
        match self.among {
            ScheduleChoice::Chosen(choice) => choice.get(step)?.as_ref(),
            _ => None,
        }
    }

    /// Makes predicted schedules of workloads that share a constant pack it alike.
    fn agree(&mut self, sharing: &[Sharing]) -> Result<(), CompileError> {
        let mut agreed: HashSet<&Workload> = HashSet::new();
        for Sharing { constant, workloads } in sharing {
            // Handles are shared, not copied: a schedule caches the loop nests that are lowered
            // from it.
            let found = |workload: &&Workload| self.known.get(*workload).map(Arc::clone);
            let known: Vec<(&Workload, Arc<[Tuned]>)> =
                workloads.iter().filter_map(|w| Some((*w, found(w)?))).collect();
            let weight = |of: &(&Workload, Arc<[Tuned]>)| (of.1[0].is_tuned(), of.0.work().flops);
            let heavier = |a: &_, b: &_| {
                let (a, b) = (weight(a), weight(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            };

            let Some((heaviest, own)) = known.iter().max_by(|a, b| heavier(a, b)) else { continue };
            let (leader, packing) = match self.similar.first_packing(constant) {
                Some(stages) => (&stages.schedule, Arc::clone(&stages.text)),
                None if known.len() == 1 => continue,
                None => {
                    agreed.insert(*heaviest);
                    (own[0].candidate(), Arc::clone(own[0].packing()?.0))
                }
            };
            let loss = self.packing_loss;
            let open = known.par_iter().filter(|(workload, _)| !agreed.contains(workload));
            let alike = open.map(|(workload, own)| Ok((*workload, own[0].packed_like(leader, &packing, loss)?)));
            let alike: Vec<(&Workload, Option<Tuned>)> = alike.collect::<Result<_, CompileError>>()?;
            for (workload, alike) in alike {
                self.known.extend(alike.map(|alike| (workload.clone(), Arc::from([alike]))));
            }
            agreed.extend(known.iter().map(|(workload, _)| *workload));
        }
        Ok(())
    }
}

impl Choose for Schedules<'_> {
    fn prepare(&mut self, steps: &[(usize, &Workload)], sharing: &[Sharing]) -> Result<(), CompileError> {
        let constants = sharing
            .iter()
            .flat_map(|Sharing { constant, workloads }| workloads.iter().map(move |&workload| (workload, constant)));
        let constants: HashMap<&Workload, &Identity> = constants.collect();
        let are_several = current_num_threads() > 1;

        // Equal workloads are looked up once, and different ones in parallel.
        let open = steps.iter().filter(|(step, _)| self.chosen_for(*step).is_none()).map(|(_, workload)| *workload);
        let open: HashSet<&Workload> = open.filter(|workload| !self.known.contains_key(*workload)).collect();
        let found = open.into_par_iter().map(|workload| {
            let constant = constants.get(workload).copied();
            let found = self.found(workload, self.similar.of_similar(constant, workload))?;
            // Agreement compares packings, one constant after the other: schedules are lowered here
            // before it. With one thread that would only move their memory to another thread.
            if are_several && constant.is_some() && !found[0].is_tuned() {
                found[0].packing()?;
            }
            Ok((workload.clone(), found))
        });
        let found: Vec<_> = found.collect::<Result<_, CompileError>>()?;
        self.known.extend(found);

        self.agree(sharing)?;
        if are_several {
            let schedules: Vec<&Tuned> = self.known.values().flat_map(|known| known.iter()).collect();
            schedules.into_par_iter().try_for_each(|schedule| schedule.plan().map(drop))?;
        }
        Ok(())
    }

    fn of_step(&mut self, step: usize, workload: &Workload) -> Result<Arc<[Tuned]>, CompileError> {
        if let Some(chosen) = self.chosen_for(step) {
            return Ok(Arc::new([chosen.clone()]));
        }
        let found = self.of_workload(workload)?;
        let ScheduleChoice::Network(network) = self.among else { return Ok(found) };
        // A race stores records of single steps only for workloads that were measured.
        if !found[0].is_tuned() {
            return Ok(found);
        }

        // Steps with the same workload may have different schedules.
        let own = self.query(workload).within(step_number(network, step)).record()?;
        // A step's own record counts only if it is as trustworthy as the workload's.
        Ok(own.filter(|own| own.is_at_least_as_specific_as(&found[0])).map_or(found, |own| Arc::new([own])))
    }

    fn target(&self) -> &Target {
        self.target
    }

    fn of_conversion(&mut self, workload: &Workload) -> Result<Tuned, CompileError> {
        let query = self.query(workload);
        let similar = self.similar.of_similar(None, workload);
        Ok(similar.map_or(query, |similar| query.like(similar)).best()?)
    }

    fn conversion_secs(&mut self, workload: &Workload) -> Result<Option<f64>, CompileError> {
        let found = self.query(workload).record()?;
        Ok(found.as_ref().and_then(Tuned::run_secs))
    }
}
