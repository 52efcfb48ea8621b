//! Workloads: an operator with its sizes, data types, prologue and epilogue.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use autotune_ir::program::Role;
use autotune_ir::{DType, Spec, Target};
use serde::{Deserialize, Serialize};

use crate::once::Once;

mod activation;
mod attention;
mod between;
mod conv1d;
mod conv2d;
mod conv3d;
mod conv_transpose2d;
mod convolution;
mod epilogue;
mod error;
mod fields;
mod gather;
mod group_norm;
mod layer_norm;
mod local_response_norm;
mod matmul;
mod mlp;
mod operator;
mod pad;
mod parse;
mod pointwise;
mod pool2d;
mod prologue;
mod rate;
mod reduce;
mod registry;
mod resample;
mod resize;
mod rms_norm;
mod separable_conv2d;
mod shape;
mod softmax;
mod spec;
mod terms;
mod text;
mod transpose;
mod types;
mod window;

pub use activation::Activation;
pub use attention::{AttentionWorkload, Mask};
pub use between::Between;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv1d::Conv1d;
pub use conv2d::Conv2d;
pub use conv3d::Conv3d;
pub use epilogue::Epilogue;
pub use error::WorkloadError;
pub use fields::{Fields, write_each};
pub use gather::GatherWorkload;
pub use group_norm::GroupNormWorkload;
pub use layer_norm::LayerNormWorkload;
pub use local_response_norm::LocalResponseNormWorkload;
pub use matmul::{Batch, Matmul, Sides};
pub use mlp::Mlp;
pub use operator::{
    Computed, OperandTensor, OperatorFormula, OperatorKind, Table, WorkloadOperator, check_elements, check_positive,
    element, named_axes,
};
pub use pad::{PadMode, PadWorkload};
pub use pointwise::{Broadcast, Channels, Function, Pointwise, PointwiseOp};
pub use pool2d::{Pool2d, PoolKind};
pub use prologue::Prologue;
pub use rate::{Rate, Work};
pub use reduce::{ReduceOp, ReduceWorkload};
pub use registry::{AlreadyRegistered, operators, register_operator};
pub use resample::{Coordinates, Resample, Rounding, Sampling};
pub use resize::{ResizeMode, ResizeWorkload};
pub use rms_norm::RmsNorm;
pub use separable_conv2d::SeparableConv2d;
pub use shape::shape_distance;
pub use softmax::SoftmaxWorkload;
pub use transpose::TransposeWorkload;
pub use types::Types;
pub use window::Window;

use terms::Terms;

/// One operator instance to be tuned; cheap to clone. Equality and order are those of the text
/// form.
#[derive(Clone)]
pub struct Workload(Arc<Inner>);

struct Inner {
    op: Arc<dyn WorkloadOperator>,
    terms: Terms,
    has_weights: bool,
    text: String,
    spec: Arc<Spec>,
    shape_vector: Vec<f32>,
    once: Once,
}

impl Workload {
    /// Creates a workload of an operator on f32 without prologue and epilogue. Fails with the first
    /// invalid field.
    ///
    /// ```
    /// use autotune_workloads::{Matmul, Workload};
    /// assert_eq!(Workload::new(Matmul::new(1, 2, 3, 4))?.to_string(), "matmul:m=2,n=3,k=4");
    /// # Ok::<(), autotune_workloads::WorkloadError>(())
    /// ```
    pub fn new(op: impl WorkloadOperator) -> Result<Self, WorkloadError> {
        Self::of(Arc::new(op), Terms::default())
    }

    fn of(op: Arc<dyn WorkloadOperator>, mut terms: Terms) -> Result<Self, WorkloadError> {
        op.check()?;
        let (name, formula) = (op.kind().name, op.formula());
        let unfit = |field, reason: &str| WorkloadError::Unfit { op: name, field, reason: reason.into() };
        if let Some(is_constant) = terms.weights {
            terms.weights = spec::unusual_weights(&formula, is_constant).map_err(|reason| unfit("weights", reason))?;
        }
        let formula = terms.prologue.apply_to(formula).map_err(|reason| unfit("pre", reason))?;
        Self::made(op, terms, formula).checked()
    }

    /// Fails if the types do not fit each other or the activation, or sums may overflow.
    fn checked(self) -> Result<Self, WorkloadError> {
        let types = self.types();
        let field = if types.is_uniform() { "dtype" } else { "data" };
        let unfit =
            |field, reason: String| Err(WorkloadError::Unfit { op: self.operator().kind().name, field, reason });
        if self.operator().result_dtype().is_some() && !types.is_uniform() {
            return unfit("out", "the operator has its own field for the type of its result".into());
        }
        if self.epilogue().activation.rounds() && types.out.bytes() > 1 {
            return unfit("act", "rounding needs a result of 8 bits, such as out=u8".into());
        }
        if self.epilogue().table && types.out.bytes() > 1 {
            return unfit("table", "a table needs a result of 8 bits, such as out=u8".into());
        }
        match types::overflow(self.spec()) {
            Some(reason) => unfit(field, reason),
            None => Ok(self),
        }
    }

    /// Creates a workload from an operator's formula, to which the prologue has been applied.
    fn made(op: Arc<dyn WorkloadOperator>, terms: Terms, formula: OperatorFormula) -> Self {
        let has_weights = formula.operands.iter().any(spec::is_weight);
        let types = terms.types.canonical(has_weights, &terms.epilogue);
        let terms = Terms { types, ..terms };
        let text = text::of(&*op, &terms, has_weights);
        let spec = Arc::new(spec::of(&*op, &text, &terms, formula));
        let shape_vector = shape::vector(&spec, &terms.epilogue);
        Self(Arc::new(Inner { op, terms, has_weights, text, spec, shape_vector, once: Once::default() }))
    }

    /// Returns the workload with other terms, but the same prologue.
    fn with(&self, terms: Terms) -> Self {
        if terms == self.0.terms {
            return self.clone();
        }
        let op = Arc::clone(&self.0.op);
        // Cannot fail: the operator accepted its prologue when the workload was made.
        let formula = terms.prologue.apply_to(op.formula()).unwrap_or_else(|_| op.formula());
        Self::made(op, terms, formula)
    }

    /// Returns the workload with another prologue.
    ///
    /// # Errors
    /// Fails if the operator cannot have this prologue (see [`Prologue`]).
    pub fn with_prologue(&self, prologue: Prologue) -> Result<Self, WorkloadError> {
        Self::of(Arc::clone(&self.0.op), Terms { prologue, ..self.0.terms })
    }

    /// Returns the workload with another epilogue.
    pub fn with_epilogue(&self, epilogue: Epilogue) -> Self {
        self.with(Terms { epilogue, ..self.0.terms })
    }

    /// Returns the workload on elements of another type.
    ///
    /// # Errors
    /// Fails if sums of integers may overflow.
    pub fn with_dtype(&self, dtype: DType) -> Result<Self, WorkloadError> {
        self.with_types(Types::of(dtype))
    }

    /// Returns the workload on tensors of other types.
    ///
    /// # Errors
    /// Fails if sums of integers may overflow, or if the operator itself sets the type of its
    /// result.
    pub fn with_types(&self, types: Types) -> Result<Self, WorkloadError> {
        let types = types.canonical(self.0.has_weights, &self.0.terms.epilogue);
        if types == self.types() {
            return Ok(self.clone());
        }
        self.with(Terms { types, ..self.0.terms }).checked()
    }

    /// Returns the workload with the requirement that kernels are exact ([`Workload::is_exact`]),
    /// or without it.
    pub fn with_exact(&self, exact: bool) -> Self {
        self.with(Terms { exact, ..self.0.terms })
    }

    /// Returns the workload with constant weights, which can be packed ahead of time, or with
    /// weights that are passed in every run.
    ///
    /// # Errors
    /// Fails if the operator has no weights.
    pub fn with_constant_weights(&self, is_constant: bool) -> Result<Self, WorkloadError> {
        let operands: Vec<_> = self.spec().operands().collect();
        match &self.weights()[..] {
            weights @ [_, ..] if weights.iter().all(|&number| operands[number].is_constant() == is_constant) => {
                Ok(self.clone())
            }
            _ => Self::of(Arc::clone(&self.0.op), Terms { weights: Some(is_constant), ..self.0.terms }),
        }
    }

    /// Returns the positions of the operands that are weights.
    pub fn weights(&self) -> Vec<usize> {
        let operands = self.operator().formula().operands;
        (0..operands.len()).filter(|&number| spec::is_weight(&operands[number])).collect()
    }

    /// Returns the workload with uncached constants ([`Workload::is_cold`]), or with constants
    /// that may be cached.
    pub fn with_cold(&self, cold: bool) -> Self {
        self.with(Terms { cold, ..self.0.terms })
    }

    /// Returns the workload as a part of a network ([`Workload::network`]), or of none.
    pub fn within(&self, network: Option<u64>) -> Self {
        self.with(Terms { within: network, ..self.0.terms })
    }

    /// Returns the operator with its sizes.
    pub fn operator(&self) -> &dyn WorkloadOperator {
        &*self.0.op
    }

    /// Returns the operator as type `T`, if it is one.
    ///
    /// ```
    /// use autotune_workloads::{Conv2d, Matmul, Workload};
    /// let workload: Workload = "matmul:m=2,n=3,k=4".parse()?;
    /// assert_eq!(workload.sizes::<Matmul>().map(|matmul| matmul.k), Some(4));
    /// assert_eq!(workload.sizes::<Conv2d>(), None);
    /// # Ok::<(), autotune_workloads::WorkloadError>(())
    /// ```
    pub fn sizes<T: WorkloadOperator>(&self) -> Option<&T> {
        let op: &dyn Any = self.operator();
        op.downcast_ref()
    }

    /// Returns the element type of the data.
    pub fn dtype(&self) -> DType {
        self.types().data
    }

    /// Returns the element types of all tensors.
    pub fn types(&self) -> Types {
        self.0.terms.types
    }

    /// Returns the element type of the result.
    pub fn result_dtype(&self) -> DType {
        self.operator().result_dtype().unwrap_or(self.types().out)
    }

    /// Returns a type for which a target has no kernels, with the field that sets it; `None` if all
    /// types are supported.
    ///
    /// The field is `dtype` for all tensors, `to` for the result of a cast, else the field of a
    /// tensor. CPUs support tensors of several types in one workload, GPUs of one type.
    pub fn unsupported_dtype(&self, target: &Target) -> Option<(&'static str, DType)> {
        let types = self.types();
        let is_mixed = !types.is_uniform();
        let is_supported = |dtype: DType| match (self.spec().is_contraction(), self.operator().is_cast()) {
            _ if is_mixed && target.gpu().is_some() => false,
            // Results of a prologue would be rounded to integers, where kernels and reference may
            // differ by one.
            (true, _) if dtype.is_integer() && !self.prologue().is_none() => false,
            (true, _) => target.multiplies(dtype),
            _ if dtype.is_integer() => self.operator().moves_bytes() && target.multiplies(dtype) && dtype.bytes() == 1,
            (_, true) => target.supports_cast(dtype),
            _ => target.supports(dtype),
        };
        let to = self.operator().result_dtype().filter(|&to| !target.supports_cast(to));
        let epilogue = self.epilogue();

        let all = [
            (true, "data", types.data),
            (is_mixed, "weights", types.weights),
            (is_mixed, "out", types.out),
            (is_mixed && epilogue.has_scales(), "scale", types.scale),
            (is_mixed && (epilogue.bias || epilogue.post_bias), "bias", types.bias),
            (is_mixed && epilogue.has_residuals(), "add", types.residual),
        ];
        let found = all.into_iter().find(|&(is_read, _, dtype)| is_read && !is_supported(dtype));
        let found = found.map(|(_, field, dtype)| (if is_mixed { field } else { "dtype" }, dtype));
        found.or(to.map(|to| ("to", to)))
    }

    /// Returns the operations on the data before the operator.
    pub fn prologue(&self) -> Prologue {
        self.0.terms.prologue
    }

    /// Returns the operations on the result after the operator.
    pub fn epilogue(&self) -> Epilogue {
        self.0.terms.epilogue
    }

    /// True if kernels may only add up the workload's own products, in any order. False if they may
    /// also transform operands first (Winograd), or split them into parts of fewer bits, at the
    /// cost of larger rounding errors.
    pub fn is_exact(&self) -> bool {
        self.0.terms.exact
    }

    /// True if constants are uncached: a kernel reads them from memory in every run, as in a
    /// network whose weights exceed the caches. False if they stay where the last run left them.
    ///
    /// The result is the same, but another schedule may be the fastest.
    pub fn is_cold(&self) -> bool {
        self.0.terms.cold
    }

    /// Returns the network that the workload is a part of, as an identifying number; `None` if it
    /// is standalone.
    ///
    /// For a part of a network, the schedule is chosen among all other kernels there, and the
    /// recorded time is that of the whole network.
    pub fn network(&self) -> Option<u64> {
        self.0.terms.within
    }

    /// Returns the text form.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns the equations.
    ///
    /// The operands of the operator come first. Those of the prologue are `pre_scale`, `pre_bias`
    /// and `pre_gate`. Those of the epilogue are `output_scale`, `bias`, `residual`, `slope` (of a
    /// PReLU), `post_scale`, `post_bias`, `residual_scale`, `post_residual` and `table`.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.0.spec
    }

    /// Returns the value of `make`, memoised by type and key, shared by all threads and clones.
    pub fn once<K, T>(&self, key: K, make: impl FnOnce() -> T) -> Arc<T>
    where
        K: PartialEq + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        self.0.once.get(key, make)
    }

    /// Returns the output shape, outermost first: `[n, o, oh, ow]` for conv2d, `[b, m, n]` for
    /// matmul.
    pub fn output_shape(&self) -> &[usize] {
        self.spec().find(Role::Output).map_or(&[], |tensor| &tensor.shape)
    }

    /// Returns the number of floating-point operations of the direct algorithm.
    pub fn flops(&self) -> f64 {
        self.spec().flops()
    }

    /// Returns the rate of a run of this duration: operations per second for products of tensors,
    /// else bytes per second.
    pub fn rate(&self, run_secs: f64) -> Rate {
        let Work { flops, bytes } = self.work();
        match self.spec().multiplies_tensors() {
            true => Rate::Operations(flops / run_secs),
            false => Rate::Bytes(bytes / run_secs),
        }
    }

    /// Returns the logarithmic shape vector of the workload. The closer those of two workloads of
    /// one operator are ([`shape_distance`]), the more alike are their good schedules.
    pub fn shape_vector(&self) -> &[f32] {
        &self.0.shape_vector
    }

    /// Returns the distance between the shapes of two workloads.
    ///
    /// It is infinite if operators or element types of data or weights differ. It is also infinite
    /// if the other one is a part of a network, since its schedules are recorded for the standalone
    /// workload, too.
    pub fn distance(&self, other: &Self) -> f32 {
        let read = |workload: &Self| [workload.types().data, workload.types().weights];
        let is_alike = self.operator().kind().name == other.operator().kind().name && read(self) == read(other);
        let is_alike = is_alike && other.network().is_none();
        if is_alike { shape_distance(self.shape_vector(), other.shape_vector()) } else { f32::INFINITY }
    }

    /// Returns the work of the direct algorithm.
    ///
    /// It counts two operations per multiply-add, including padding taps but not the epilogue
    /// (convention of the AutoTVM paper, section 6). Every operand is read and the output written
    /// once.
    pub fn work(&self) -> Work {
        Work { flops: self.spec().flops(), bytes: self.spec().min_bytes() }
    }
}

impl PartialEq for Workload {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
    }
}

impl Eq for Workload {}

impl Hash for Workload {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for Workload {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Workload {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workload({self})")
    }
}

impl Serialize for Workload {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Workload {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
