//! Steps of a network that compute the same.

use std::collections::HashMap;

use autotune_workloads::Workload;

use crate::cut::{Cut, Work};

/// The steps of a network by their workloads.
pub(super) struct Alike {
    /// The workloads, each once, in the order in which they first run, with their steps.
    groups: Vec<(Workload, Vec<usize>)>,
    /// For each step its group; `None` of one without a kernel.
    of_steps: Vec<Option<usize>>,
}

impl Alike {
    pub(super) fn of(cut: &Cut) -> Self {
        let mut alike = Self { groups: Vec::new(), of_steps: Vec::with_capacity(cut.steps.len()) };
        let mut known: HashMap<&Workload, usize> = HashMap::new();
        for (number, step) in cut.steps.iter().enumerate() {
            let Work::Kernel(workload) = &step.work else {
                alike.of_steps.push(None);
                continue;
            };
            let group = *known.entry(workload).or_insert(alike.groups.len());
            if group == alike.groups.len() {
                alike.groups.push((workload.clone(), Vec::new()));
            }
            alike.groups[group].1.push(number);
            alike.of_steps.push(Some(group));
        }
        alike
    }

    /// The workloads, each once, and their steps.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&Workload, &[usize])> {
        self.groups.iter().map(|(workload, steps)| (workload, &steps[..]))
    }

    /// The workload of each step; `None` of one without a kernel.
    pub(super) fn workloads(&self) -> impl Iterator<Item = Option<&Workload>> {
        (0..self.of_steps.len()).map(|step| self.workload(step))
    }

    /// The workload of a step, if it has a kernel.
    pub(super) fn workload(&self, step: usize) -> Option<&Workload> {
        self.of_steps.get(step).copied().flatten().map(|group| &self.groups[group].0)
    }
}
