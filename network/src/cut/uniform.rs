//! Tensors and workloads in a reduced precision on GPUs, whose kernels have tensors of one type.
//!
//! A step computes either in the reduced type, with all of its tensors, or in f32. Where a step
//! reads or writes another type than that of the tensor in memory, such as an input of the network,
//! the plan inserts a cast.

use autotune_ir::{DType, Target};
use autotune_workloads::Workload;

use super::rounded::has_integers;
use super::{Cut, Step, StepWork, ValueId};
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
        let is_kept = self.kept_by_writers(graph, &rounded, dtype);
        for number in 0..self.values.len() {
            let root = self.root(ValueId(number as u32)).0;
            if is_stored && !is_kept[root.0 as usize] {
                self.values[number].dtype = dtype;
            }
        }

        for (number, rounded) in rounded.into_iter().enumerate() {
            let Some(rounded) = rounded else { continue };
            if is_stored {
                self.set_constant_types(graph, number, &rounded);
            }
            self.steps[number].work = StepWork::Kernel(rounded);
        }
    }

    /// Returns for each value whether its memory stays as it is: that of inputs, outputs,
    /// constants, integers, and results of steps that do not compute in the type.
    fn kept_by_writers(&self, graph: &Graph, rounded: &[Option<Workload>], dtype: DType) -> Vec<bool> {
        let mut is_kept = vec![false; self.values.len()];
        let mut keep = |value: ValueId| is_kept[self.root(value).0.0 as usize] = true;
        for (number, value) in self.values.iter().enumerate() {
            if graph.is_given(value.node) || graph.node(value.node).dtype != DType::F32 {
                keep(ValueId(number as u32));
            }
        }
        self.outputs.iter().for_each(|&output| keep(output));
        for (step, rounded) in self.steps.iter().zip(rounded) {
            let writes = rounded.as_ref().map(Workload::result_dtype) == Some(dtype);
            if !writes && !matches!(step.work, StepWork::Copy(_)) {
                keep(step.output);
            }
        }
        is_kept
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
