//! Schedules of networks in memory, from which those of similar workloads are transferred.

use std::collections::HashMap;
use std::sync::Arc;

use autotune_graph::Identity;
use autotune_schedules::Candidate;
use autotune_workloads::Workload;

use crate::choose::PackingStages;

/// Largest [distance](Workload::distance) of workloads up to which one has the other's schedule:
/// that of images with twice as many pixels.
const MOST_DISTANCE: f32 = 1.0;

/// Maximum number of schedules for one operator or constant.
const MOST_KEPT: usize = 64;

/// Schedules of networks that share a store. Those that were transferred themselves are not among
/// them: over several transfers, schedules would become worse.
#[derive(Clone, Default)]
pub(crate) struct SimilarSchedules {
    /// Stages that pack each constant, the first ones first.
    packing: HashMap<Identity, Vec<Arc<PackingStages>>>,
    /// Schedules of kernels that pack no constants, by operator.
    plain: HashMap<String, Vec<Candidate>>,
}

impl SimilarSchedules {
    /// Keeps stages that pack constants.
    pub(crate) fn keep_packing<'a>(
        &mut self,
        constants: impl Iterator<Item = &'a Identity>,
        stages: &Arc<PackingStages>,
    ) {
        for constant in constants {
            let kept = self.packing.entry(constant.clone()).or_default();
            if is_new(kept.iter().map(|stages| &stages.schedule), &stages.schedule) {
                kept.push(Arc::clone(stages));
            }
        }
    }

    /// Keeps a schedule that packs no constants.
    pub(crate) fn keep_plain(&mut self, schedule: &Candidate) {
        let operator = schedule.workload().operator().kind().name;
        let kept = self.plain.entry(operator.to_string()).or_default();
        if is_new(kept.iter(), schedule) {
            kept.push(schedule.clone());
        }
    }

    /// Returns the stages that first packed a constant.
    pub(crate) fn first_packing(&self, constant: &Identity) -> Option<&PackingStages> {
        Some(self.packing.get(constant)?.first()?)
    }

    /// Returns the schedule of the most similar workload that packs the constant, else of the most
    /// similar one that packs none. `None` if no workload is similar.
    pub(crate) fn of_similar(&self, constant: Option<&Identity>, workload: &Workload) -> Option<&Candidate> {
        let packing = constant.and_then(|constant| self.packing.get(constant));
        let plain = || self.plain.get(workload.operator().kind().name).into_iter().flatten();
        match packing {
            Some(packing) => nearest(packing.iter().map(|stages| &stages.schedule), workload),
            None => nearest(plain(), workload),
        }
    }

    /// Forgets stages of constants that no network has any more.
    pub(crate) fn forget_unused(&mut self) {
        self.packing.retain(|constant, _| constant.exists());
    }
}

/// Returns the schedule of the most similar workload; `None` if no workload is similar.
fn nearest<'a>(known: impl Iterator<Item = &'a Candidate>, workload: &Workload) -> Option<&'a Candidate> {
    let distances = known.map(|known| (workload.distance(known.workload()), known));
    let nearest = distances.min_by(|a, b| a.0.total_cmp(&b.0))?;
    (nearest.0 <= MOST_DISTANCE).then_some(nearest.1)
}

/// True if a schedule is to be kept beside others.
fn is_new<'a>(kept: impl ExactSizeIterator<Item = &'a Candidate>, schedule: &Candidate) -> bool {
    let workload = schedule.workload();
    let mut kept = kept.take(MOST_KEPT);
    kept.len() < MOST_KEPT && kept.all(|known| known.workload() != workload)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_ir::{CpuTarget, Target};
    use autotune_schedules::ScheduleSpace;

    use super::*;

    fn schedule(text: &str) -> Candidate {
        let target = Target::Cpu(CpuTarget::generic_avx2(1));
        ScheduleSpace::new(&text.parse().unwrap(), &target).default_candidate().clone()
    }

    #[test]
    fn the_most_similar_schedule_is_found_up_to_a_distance() {
        let mut similar = SimilarSchedules::default();
        for size in [16, 16, 64, 96] {
            similar.keep_plain(&schedule(&format!("pool2d:c=16,h={size},w={size},k=2,s=2,kind=max")));
        }
        assert_eq!(similar.plain["pool2d"].len(), 3);

        let nearest = |text: &str| {
            let found = similar.of_similar(None, &text.parse().unwrap())?;
            Some(found.workload().to_string())
        };
        let wanted = Some("pool2d:c=16,h=64,w=64,k=2,s=2,p=0,kind=max".to_string());
        assert_eq!(nearest("pool2d:c=16,h=80,w=56,k=2,s=2,kind=max"), wanted);
        assert_eq!(nearest("pool2d:c=16,h=256,w=256,k=2,s=2,kind=max"), None);
        assert_eq!(nearest("softmax:m=64,n=64"), None);
    }
}
