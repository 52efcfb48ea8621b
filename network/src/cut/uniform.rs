//! Tensors and workloads in a reduced precision on GPUs, whose kernels have tensors of one type.
//!
//! A step computes either in the reduced type, with all of its tensors, or in f32. Where a step
//! reads or writes another type than that of the tensor in memory, such as an input of the network,
//! the plan inserts a cast.

use autotune_ir::{DType, Target};
use autotune_workloads::Workload;

use super::rounded::has_integers;
use super::{Cut, Step, StepWork};
use autotune_graph::Graph;

impl Cut {
    /// Makes steps compute in a type where the target can, and stores the tensors in it that only
    /// such steps write.
    pub(super) fn round_uniformly(&mut self, graph: &Graph, dtype: DType, target: &Target) {
        let is_exact = |step: &Step| graph.exact().contains(&self.value(step.output).node);
        let rounded = |step: &Step| if is_exact(step) { None } else { step.uniform(dtype, target) };
        let rounded: Vec<Option<Workload>> = self.steps.iter().map(rounded).collect();

        // In memory, tf32 is f32.
        let is_stored = !DType::F32.has_same_bits_as(dtype);
        if is_stored {
            self.store_rounded(graph, &rounded, dtype);
        }

        for (number, rounded) in rounded.into_iter().enumerate() {
            let Some(rounded) = rounded else { continue };
            if is_stored {
                self.set_constant_types(graph, number, &rounded);
            }
            self.steps[number].work = StepWork::Kernel(rounded);
        }
    }
}

impl Step {
    /// Returns the step's workload with all tensors in a type, if the target computes it so.
    fn uniform(&self, dtype: DType, target: &Target) -> Option<Workload> {
        let StepWork::Kernel(workload) = &self.work else { return None };
        // Integers are never rounded; only products gain from tf32.
        let gains = !DType::F32.has_same_bits_as(dtype) || workload.spec().is_contraction();
        if has_integers(workload) || !gains {
            return None;
        }
        workload.with_dtype(dtype).ok().filter(|rounded| rounded.unsupported_dtype(target).is_none())
    }
}
