//! Tensors and workloads of a cut in another element type than f32.
//!
//! Tensors that kernels give to each other are rounded, and what is multiplied; what callers bring
//! and get, whole numbers, biases and scales stay as they are. Where a tensor lies in another type
//! than a step reads it in, the plan converts it.

use autotune_ir::DType;
use autotune_schedules::winograd::conv::Conv;
use autotune_workloads::{Epilogue, Types, Workload};

use super::{Cut, Step, ValueId, Work};
use crate::graph::Graph;

/// Share of its products that minimal filtering may leave of a convolution to be faster in f32 than
/// all of them two at a time.
///
/// One thread of an AMD EPYC (family 25, model 17), untuned: of 3x3 convolutions of ResNet-18 those
/// with a share of 0.23 take 0.56 times the time of `vdpbf16ps`, of 0.33 0.85 times where tiles are
/// many, and 1.7 times where weights are read more often than the caches have them.
const MOST_SHARE: f64 = 0.3;

/// True if a convolution of data of a type is faster by minimal filtering in f32.
fn saves_products(workload: &Workload, data: DType) -> bool {
    let types = Types { data, ..Types::of(DType::F32) };
    let filtered = workload.with_types(types).ok();
    let conv = filtered.as_ref().and_then(Conv::of);
    conv.is_some_and(|conv| conv.least_work_share() < MOST_SHARE)
}

impl Cut {
    /// Has tensors of a run that may be rounded lie in a type, and steps compute on them as they lie.
    pub(super) fn round_to(&mut self, graph: &Graph, dtype: DType) {
        let is_kept = self.kept(graph, dtype);
        for number in 0..self.values.len() {
            let root = self.root(ValueId(number as u32)).0;
            if !is_kept[root.0 as usize] {
                self.values[number].dtype = dtype;
            }
        }

        for number in 0..self.steps.len() {
            let step = &self.steps[number];
            let Work::Kernel(workload) = &step.work else { continue };
            let types = self.types(graph, step, workload, dtype);
            if let Ok(rounded) = workload.with_types(types) {
                self.lay_constants(graph, number, &rounded);
                self.steps[number].work = Work::Kernel(rounded);
            }
        }
    }

    /// For each value whether it lies in memory whose elements are not rounded.
    fn kept(&self, graph: &Graph, dtype: DType) -> Vec<bool> {
        let mut is_kept = vec![false; self.values.len()];
        let mut keep = |value: ValueId| is_kept[self.root(value).0.0 as usize] = true;

        for (number, value) in self.values.iter().enumerate() {
            if graph.is_given(value.node) || graph.node(value.node).dtype != DType::F32 {
                keep(ValueId(number as u32));
            }
        }
        self.outputs.iter().for_each(|&output| keep(output));
        for step in &self.steps {
            match &step.work {
                Work::Kernel(workload) => {
                    let rounded = workload.with_dtype(dtype).ok();
                    if rounded.as_ref().map(Workload::result_dtype) != Some(dtype) {
                        keep(step.output);
                    }
                    let operands = rounded.iter().flat_map(|rounded| rounded.spec().operands());
                    let whole = step.operands.iter().zip(operands).filter(|(_, tensor)| tensor.dtype != dtype);
                    whole.for_each(|(&operand, _)| keep(operand));
                }
                Work::Interpret(_) => keep(step.output),
                Work::Copy(_) => {}
            }
        }
        is_kept
    }

    /// Returns the types of a step's workload on its tensors as they lie.
    fn types(&self, graph: &Graph, step: &Step, workload: &Workload, dtype: DType) -> Types {
        let flowing = |place: usize| {
            let value = self.value(*step.operands.get(place)?);
            graph.constant_of(value.node).is_none().then_some(value.dtype)
        };
        let is_constant = |place: &usize| flowing(*place).is_none();
        let out = self.value(step.output).dtype;
        let weights = workload.weights();
        let spec = workload.with_dtype(dtype).unwrap_or_else(|_| workload.clone());
        let tensors: Vec<_> = spec.spec().operands().collect();
        let own = workload.operator().formula().operands.len();

        // Positions in other tensors are whole numbers. Tables of constants stay as they are: a run
        // reads few of their rows.
        let data = (0..own).filter(|place| !weights.contains(place) && tensors[*place].dtype == dtype);
        let data = data.filter_map(flowing).max_by_key(|data| *data == dtype).unwrap_or(DType::F32);
        let is_vector = |place: &usize| tensors[*place].shape.len() <= 1;
        let weights = match weights.iter().find_map(|&place| flowing(place)) {
            Some(flowing) => flowing,
            // Vectors such as the scales of norms are small.
            None if weights.iter().filter(|place| is_constant(place)).all(is_vector) => DType::F32,
            None if saves_products(workload, data) => DType::F32,
            None => data,
        };

        let Epilogue { scale, bias, residual, activation, post_scale, post_bias } = workload.epilogue();
        let has_slopes = activation.has_slopes();
        let parts = [scale, bias, residual, has_slopes, post_scale, post_bias];
        let mut place = own;
        let [scale, bias, residual, slope, post_scale, post_bias] = parts.map(|is_there| {
            place += usize::from(is_there);
            is_there.then(|| flowing(place - 1)).flatten()
        });
        Types {
            data,
            weights,
            out: workload.operator().result_dtype().unwrap_or(out),
            scale: scale.or(post_scale).or(slope).unwrap_or(DType::F32),
            bias: bias.or(post_bias).unwrap_or(DType::F32),
            residual: residual.unwrap_or(out),
        }
    }

    /// Has the constants of a step lie as its workload reads them.
    fn lay_constants(&mut self, graph: &Graph, step: usize, workload: &Workload) {
        let dtypes: Vec<DType> = workload.spec().operands().map(|tensor| tensor.dtype).collect();
        for (&operand, dtype) in self.steps[step].operands.iter().zip(dtypes) {
            let value = &mut self.values[operand.0 as usize];
            if value.within.is_none() && graph.constant_of(value.node).is_some() {
                value.dtype = dtype;
            }
        }
    }
}
