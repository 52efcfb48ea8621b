//! Grouping of a network's steps by workload.

use std::collections::HashMap;

use autotune_workloads::Workload;

use crate::cut::{Cut, StepWork};

/// Steps of a network by workload.
pub(super) struct StepsByWorkload {
    /// Distinct workloads in the order of their first run, with their steps.
    groups: Vec<(Workload, Vec<usize>)>,
    /// Group of each step; `None` for steps without a kernel.
    of_steps: Vec<Option<usize>>,
}

impl StepsByWorkload {
    pub(super) fn of(cut: &Cut) -> Self {
        let mut alike = Self { groups: Vec::new(), of_steps: Vec::with_capacity(cut.steps.len()) };
        let mut known: HashMap<&Workload, usize> = HashMap::new();
        for (number, step) in cut.steps.iter().enumerate() {
            let StepWork::Kernel(workload) = &step.work else {
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

    /// Returns the distinct workloads and their steps.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&Workload, &[usize])> {
        self.groups.iter().map(|(workload, steps)| (workload, &steps[..]))
    }

    /// Returns the workload of each step; `None` for steps without a kernel.
    pub(super) fn workloads(&self) -> impl Iterator<Item = Option<&Workload>> {
        (0..self.of_steps.len()).map(|step| self.workload(step))
    }

    /// Returns the workload of a step, if it has a kernel.
    pub(super) fn workload(&self, step: usize) -> Option<&Workload> {
        self.of_steps.get(step).copied().flatten().map(|group| &self.groups[group].0)
    }
}
