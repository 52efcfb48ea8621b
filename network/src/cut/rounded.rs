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

/// Operations for each element of data from which on it is worth converting for products of bf16:
/// a core converts some elements in a nanosecond, in which it saves half of some hundred operations.
const FLOPS_OF_CONVERSION: f64 = 256.0;

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
            let out = self.value(step.output).dtype;
            let operands = Operands::of(workload, self.lying(graph, step), dtype);
            if let Ok(rounded) = workload.with_types(operands.types(out)) {
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

    /// Returns the type in which each operand of a step lies; `None` of constants, which may lie in any.
    fn lying(&self, graph: &Graph, step: &Step) -> Vec<Option<DType>> {
        let values = step.operands.iter().map(|&operand| self.value(operand));
        values.map(|value| graph.constant_of(value.node).is_none().then_some(value.dtype)).collect()
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

/// The operands of a workload that may be rounded.
struct Operands<'a> {
    workload: &'a Workload,
    /// Type in which each lies; `None` of constants.
    lying: Vec<Option<DType>>,
    /// Number of those of the operator itself, which come first.
    own: usize,
    /// Those of the operator that are weights.
    weights: Vec<usize>,
    /// The workload with all that can be in a type.
    rounded: Workload,
    dtype: DType,
}

impl<'a> Operands<'a> {
    fn of(workload: &'a Workload, lying: Vec<Option<DType>>, dtype: DType) -> Self {
        let own = workload.operator().formula().operands.len().min(lying.len());
        let rounded = workload.with_dtype(dtype).unwrap_or_else(|_| workload.clone());
        Self { workload, lying, own, weights: workload.weights(), rounded, dtype }
    }

    /// Returns the types of the workload, given that of its output.
    fn types(&self, out: DType) -> Types {
        let data = self.data();
        let Epilogue { scale, bias, residual, activation, post_scale, post_bias } = self.workload.epilogue();
        let has_slopes = activation.has_slopes();
        let mut place = self.own;
        let parts = [scale, bias, residual, has_slopes, post_scale, post_bias].map(|is_there| {
            place += usize::from(is_there);
            is_there.then(|| self.lying.get(place - 1).copied().flatten()).flatten()
        });

        let [scale, bias, residual, slope, post_scale, post_bias] = parts;
        Types {
            data,
            weights: self.weights(data),
            out: self.workload.operator().result_dtype().unwrap_or(out),
            scale: scale.or(post_scale).or(slope).unwrap_or(DType::F32),
            bias: bias.or(post_bias).unwrap_or(DType::F32),
            residual: residual.unwrap_or(out),
        }
    }

    /// Tables of constants stay as they are, of which a run reads few rows; and so do positions in
    /// other tensors, which are whole numbers.
    fn data(&self) -> DType {
        let tensors = self.rounded.spec().operands().enumerate().take(self.own);
        let data = tensors.filter(|(place, tensor)| !self.weights.contains(place) && tensor.dtype == self.dtype);
        let (mut lying, mut elements) = (DType::F32, 0);
        for (place, tensor) in data {
            elements += tensor.shape.iter().product::<usize>();
            if self.lying[place] == Some(self.dtype) {
                lying = self.dtype;
            }
        }

        let multiplies = self.workload.spec().is_contraction() && self.has_constant_matrix();
        let is_worth_it = self.workload.flops() >= FLOPS_OF_CONVERSION * elements as f64;
        if multiplies && is_worth_it && !saves_products(self.workload, lying) { self.dtype } else { lying }
    }

    fn weights(&self, data: DType) -> DType {
        match self.weights.iter().find_map(|&place| self.lying.get(place).copied().flatten()) {
            Some(lying) => lying,
            None if self.has_constant_matrix() && !saves_products(self.workload, data) => data,
            None => DType::F32,
        }
    }

    /// True if weights are the same in all runs, and more than vectors such as the scales of norms.
    fn has_constant_matrix(&self) -> bool {
        let mut tensors = self.rounded.spec().operands().enumerate();
        let is_constant = |place: &usize| self.lying.get(*place) == Some(&None);
        self.weights.iter().all(is_constant)
            && tensors.any(|(place, tensor)| self.weights.contains(&place) && tensor.shape.len() > 1)
    }
}
