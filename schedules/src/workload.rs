//! What is to be computed: an operator, its sizes, its data type and its epilogue.
//!
//! The text form is the database key and the word on the command line:
//!
//! ```
//! use autotune_schedules::Workload;
//! let w: Workload = "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,bias,act=relu".parse().unwrap();
//! assert_eq!(w.output_shape(), [1, 64, 56, 56]);
//! assert_eq!(w.to_string(), "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,bias,act=relu");
//! ```

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
mod error;
mod gather;
mod group_norm;
mod layer_norm;
mod local_response_norm;
mod matmul;
mod mlp;
mod operator;
mod pad;
mod pointwise;
mod pool2d;
mod prologue;
mod rate;
mod reduce;
mod resample;
mod resize;
mod rms_norm;
mod separable_conv2d;
mod shape;
mod softmax;
mod spec;
mod text;
mod transpose;
mod window;

pub use activation::Activation;
pub use attention::{Attention, Mask};
pub use between::Between;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv1d::Conv1d;
pub use conv2d::Conv2d;
pub use conv3d::Conv3d;
pub use error::WorkloadError;
pub use gather::Gather;
pub use group_norm::GroupNorm;
pub use layer_norm::LayerNorm;
pub use local_response_norm::LocalResponseNorm;
pub use matmul::{Batch, Matmul, Sides};
pub use mlp::Mlp;
pub use operator::{
    AlreadyRegistered, Computed, Formula, Operator, OperatorKind, Table, Tensor, check_elements, check_positive,
    element, named_axes, operators, register,
};
pub use pad::{Pad, PadMode};
pub use pointwise::{Broadcast, Channels, Function, Pointwise, PointwiseOp};
pub use pool2d::{Pool2d, PoolKind};
pub use prologue::Prologue;
pub use rate::{Rate, Work};
pub use reduce::{Reduce, ReduceOp};
pub use resample::{Coordinates, Resample, Rounding, Sampling};
pub use resize::{Resize, ResizeMode};
pub use rms_norm::RmsNorm;
pub use separable_conv2d::SeparableConv2d;
pub use shape::shape_distance;
pub use softmax::Softmax;
pub use text::{Fields, write_each};
pub use transpose::Transpose;
pub use window::Window;

/// What happens to each output element at its final store, in this order: `act(scale * x + bias + residual) * post_scale + post_bias`.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Epilogue {
    /// Multiply by one value per output channel (conv2d) or column (matmul).
    pub scale: bool,
    /// Add one value per output channel (conv2d) or column (matmul).
    pub bias: bool,
    /// Add a tensor of the output's shape.
    pub residual: bool,
    /// The function of that.
    pub activation: Activation,
    /// Multiply what it makes by one value per output channel.
    pub post_scale: bool,
    /// Add one value per output channel to that.
    pub post_bias: bool,
}

impl Epilogue {
    /// True if it reads a value for each output channel.
    pub fn is_by_channel(&self) -> bool {
        self.scale || self.bias || self.activation.has_slopes() || self.post_scale || self.post_bias
    }
}

/// What is said of a workload beside its operator.
#[derive(Clone, Copy, Default)]
struct Terms {
    /// Whether weights are constant, where that is not as it is with the operator alone.
    weights: Option<bool>,
    dtype: DType,
    prologue: Prologue,
    epilogue: Epilogue,
    exact: bool,
    cold: bool,
    within: Option<u64>,
}

/// One operator instance to be tuned; cheap to clone. Two are the same, and sorted, by their text forms.
#[derive(Clone)]
pub struct Workload(Arc<Inner>);

struct Inner {
    op: Arc<dyn Operator>,
    terms: Terms,
    text: String,
    spec: Arc<Spec>,
    shape_vector: Vec<f32>,
    once: Once,
}

impl Workload {
    /// An operator on f32 without epilogue, or the first of its fields that makes no sense.
    ///
    /// ```
    /// use autotune_schedules::{Matmul, Workload};
    /// assert_eq!(Workload::new(Matmul::new(1, 2, 3, 4))?.to_string(), "matmul:m=2,n=3,k=4");
    /// # Ok::<(), autotune_schedules::WorkloadError>(())
    /// ```
    pub fn new(op: impl Operator) -> Result<Self, WorkloadError> {
        Self::of(Arc::new(op), Terms::default())
    }

    fn of(op: Arc<dyn Operator>, mut terms: Terms) -> Result<Self, WorkloadError> {
        op.check()?;
        let (name, formula) = (op.kind().name, op.formula());
        let unfit = |field, reason: &str| WorkloadError::Unfit { op: name, field, reason: reason.into() };
        if let Some(is_constant) = terms.weights {
            terms.weights = spec::unusual_weights(&formula, is_constant).map_err(|reason| unfit("weights", reason))?;
        }
        let formula = terms.prologue.in_front_of(formula).map_err(|reason| unfit("pre", reason))?;
        Ok(Self::made(op, terms, formula))
    }

    /// Of an operator's formula behind the prologue.
    fn made(op: Arc<dyn Operator>, terms: Terms, formula: Formula) -> Self {
        let text = text::of(&*op, &terms);
        let spec = Arc::new(spec::of(&*op, &text, &terms, formula));
        let shape_vector = shape::vector(&spec, &terms.epilogue);
        Self(Arc::new(Inner { op, terms, text, spec, shape_vector, once: Once::default() }))
    }

    /// The same workload with other terms, but for the prologue.
    fn with(&self, terms: Terms) -> Self {
        let op = Arc::clone(&self.0.op);
        // That the operator can have its prologue was found when it was made.
        let formula = terms.prologue.in_front_of(op.formula()).unwrap_or_else(|_| op.formula());
        Self::made(op, terms, formula)
    }

    /// The same workload with another prologue.
    ///
    /// # Errors
    /// If the operator can have no such thing in front of it ([`Prologue`]).
    pub fn with_prologue(&self, prologue: Prologue) -> Result<Self, WorkloadError> {
        Self::of(Arc::clone(&self.0.op), Terms { prologue, ..self.0.terms })
    }

    /// The same workload with another epilogue.
    pub fn with_epilogue(&self, epilogue: Epilogue) -> Self {
        self.with(Terms { epilogue, ..self.0.terms })
    }

    /// The same workload on elements of another type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        self.with(Terms { dtype, ..self.0.terms })
    }

    /// The same workload for kernels that are exact ([`Workload::is_exact`]) or need not be.
    pub fn with_exact(&self, exact: bool) -> Self {
        self.with(Terms { exact, ..self.0.terms })
    }

    /// The same workload with weights that are the same in every run, so that they are packed ahead of time, or come with every run as data does.
    ///
    /// # Errors
    /// If the operator has no weights.
    pub fn with_constant_weights(&self, is_constant: bool) -> Result<Self, WorkloadError> {
        let operands: Vec<_> = self.spec().operands().collect();
        match &self.weights()[..] {
            weights @ [_, ..] if weights.iter().all(|&number| operands[number].is_constant() == is_constant) => {
                Ok(self.clone())
            }
            _ => Self::of(Arc::clone(&self.0.op), Terms { weights: Some(is_constant), ..self.0.terms }),
        }
    }

    /// Numbers of the operands that are weights.
    pub fn weights(&self) -> Vec<usize> {
        let operands = self.operator().formula().operands;
        (0..operands.len()).filter(|&number| spec::is_weight(&operands[number])).collect()
    }

    /// The same workload with constants that come from memory ([`Workload::is_cold`]) or may be in the caches.
    pub fn with_cold(&self, cold: bool) -> Self {
        self.with(Terms { cold, ..self.0.terms })
    }

    /// The same workload as a part of a network ([`Workload::network`]), or of none.
    pub fn within(&self, network: Option<u64>) -> Self {
        self.with(Terms { within: network, ..self.0.terms })
    }

    /// Operator and sizes.
    pub fn operator(&self) -> &dyn Operator {
        &*self.0.op
    }

    /// The sizes of an operator, if it is that one.
    ///
    /// ```
    /// use autotune_schedules::{Conv2d, Matmul, Workload};
    /// let workload: Workload = "matmul:m=2,n=3,k=4".parse()?;
    /// assert_eq!(workload.sizes::<Matmul>().map(|matmul| matmul.k), Some(4));
    /// assert_eq!(workload.sizes::<Conv2d>(), None);
    /// # Ok::<(), autotune_schedules::WorkloadError>(())
    /// ```
    pub fn sizes<T: Operator>(&self) -> Option<&T> {
        let op: &dyn Any = self.operator();
        op.downcast_ref()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.0.terms.dtype
    }

    /// The type of the result's elements: the same, but for casts.
    pub fn result_dtype(&self) -> DType {
        self.operator().result_dtype().unwrap_or(self.dtype())
    }

    /// The type that a target has no kernels with, if there is one, and the field that says it: `dtype`, the operands', or `to`, the result's.
    pub fn unsupported_dtype(&self, target: &Target) -> Option<(&'static str, DType)> {
        let (operands, result) = (self.dtype(), self.result_dtype());
        let is_cast = self.operator().is_cast();
        match target.supports(operands) || is_cast && target.supports_cast(operands) {
            true => (!target.supports_cast(result)).then_some(("to", result)),
            false => Some(("dtype", operands)),
        }
    }

    /// What happens to the data first.
    pub fn prologue(&self) -> Prologue {
        self.0.terms.prologue
    }

    /// Fused tail.
    pub fn epilogue(&self) -> Epilogue {
        self.0.terms.epilogue
    }

    /// True if kernels may only add up the workload's own products, in whatever order; false if they may also transform
    /// operands first (Winograd) at the cost of larger rounding errors.
    pub fn is_exact(&self) -> bool {
        self.0.terms.exact
    }

    /// True if a kernel finds its constants in memory in every run, as the weights of a network are that has more of them than the caches
    /// hold; false if they are where the last run left them. The same is computed, but another schedule may be the fastest.
    pub fn is_cold(&self) -> bool {
        self.0.terms.cold
    }

    /// The network whose part it is, by a number that tells networks apart: what is chosen for the workload there, with all others around it, and
    /// what is kept of it is the time of the whole network. `None` if it is by itself.
    pub fn network(&self) -> Option<u64> {
        self.0.terms.within
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// What it means. The operands are those of the operator, then those of the prologue that it has, `pre_scale`, `pre_bias` and `pre_gate`,
    /// and of the epilogue, `output_scale`, `bias`, `residual`, the `slope`s of a PReLU, `post_scale` and `post_bias`.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.0.spec
    }

    /// What `make` makes of the workload, made once for each type and key, for all threads and clones.
    pub(crate) fn once<K, T>(&self, key: K, make: impl FnOnce() -> T) -> Arc<T>
    where
        K: PartialEq + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        self.0.once.get(key, make)
    }

    /// Output shape, outermost first: `[n, o, oh, ow]` for conv2d, `[b, m, n]` for matmul.
    pub fn output_shape(&self) -> &[usize] {
        self.spec().find(Role::Output).map_or(&[], |tensor| &tensor.shape)
    }

    /// Floating-point operations of the direct algorithm.
    pub fn flops(&self) -> f64 {
        self.spec().flops()
    }

    /// How fast a run is that takes so long.
    pub fn rate(&self, run_secs: f64) -> Rate {
        let Work { flops, bytes } = self.work();
        match self.spec().multiplies_tensors() {
            true => Rate::Operations(flops / run_secs),
            false => Rate::Bytes(bytes / run_secs),
        }
    }

    /// Where the workload is among those of its operator: the nearer two are ([`shape_distance`]), the more alike are the schedules that
    /// are good for them.
    pub fn shape_vector(&self) -> &[f32] {
        &self.0.shape_vector
    }

    /// How unlike the shapes of two workloads of one operator and element type are; infinity for others, and where the other is a part of a
    /// network, whose schedules are known of the workload by itself, too.
    pub fn distance(&self, other: &Self) -> f32 {
        let is_alike = self.operator().kind().name == other.operator().kind().name && self.dtype() == other.dtype();
        let is_alike = is_alike && other.network().is_none();
        if is_alike { shape_distance(self.shape_vector(), other.shape_vector()) } else { f32::INFINITY }
    }

    /// What the direct algorithm has to do: two operations per multiply-add, padding taps included, epilogue excluded (the convention
    /// of the AutoTVM paper, section 6); every operand read and the output written.
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
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Workload>().unwrap_err().to_string()
    }

    #[test]
    fn text_form_round_trips() {
        for text in [
            "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1",
            "conv2d:n=2,c=32,h=17,w=19,o=32,kh=3,kw=5,sh=1,sw=2,ph=1,pw=2,dh=2,dw=1,g=32,bias,add,act=relu",
            "matmul:m=1,n=1000,k=512,bias",
            "matmul:b=12,m=197,n=197,k=64,act=relu,exact",
            "matmul:m=1,n=1000,k=512,bias,cold",
            "matmul:m=197,n=197,k=64,dtype=bf16,bias",
            "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,g=2,dtype=f16,bias",
            "matmul:m=1,n=1000,k=512,dtype=tf32",
            "matmul:m=3,n=5,k=7,ta,tb,bias",
            "matmul:m=3,n=5,k=7,weights=data",
            "matmul:b=2,m=3,n=5,k=7,tb,weights=constant,add",
            "matmul:b=8,lhs=shared,m=3,n=5,k=7",
            "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,weights=data,bias",
            "matmul:b=2x12,lhs=0,rhs=1,m=3,n=5,k=7,ta,bias",
            "matmul:b=2x3x4x5,lhs=02,m=3,n=5,k=7",
            "reduce:m=8,n=5,k=7,op=min",
            "pointwise:m=8,n=5,op=gelu,to=f32,dtype=f16,bias",
            "reduce:shape=8x64x784,axes=02,op=mean,bias,act=relu",
            "reduce:shape=2x3x4x5,axes=13,op=prod",
            "matmul:m=1,n=1000,k=512,scale,bias,add,act=prelu,exact",
            "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,dtype=f16,scale,act=clip:0:6",
            "conv1d:n=1,c=64,w=1000,o=128,k=5,s=1,p=2,bias,act=leaky_relu:0.2",
            "pointwise:m=4,n=5,op=hard_sigmoid:0.2:0.5,act=hard_sigmoid",
            "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,bias,act=hard_swish,post_scale,post_bias,exact,cold",
            "matmul:m=1,n=1000,k=512,post_bias",
            "matmul:m=1,n=1000,k=512,cold,within=00c0ffee00c0ffee",
        ] {
            let w: Workload = text.parse().unwrap();
            assert_eq!(w.to_string(), text);

            assert_eq!(serde_json::from_str::<Workload>(&serde_json::to_string(&w).unwrap()).unwrap(), w);
        }
    }

    #[test]
    fn optional_fields_have_the_usual_defaults() {
        let w: Workload = "conv2d:c=3,h=8,w=8,o=4,k=3".parse().unwrap();
        assert_eq!(w.to_string(), "conv2d:n=1,c=3,h=8,w=8,o=4,k=3,s=1,p=0");
        assert_eq!(w.output_shape(), [1, 4, 6, 6]);
        assert_eq!("matmul:m=4,n=4,k=2,dtype=f32".parse::<Workload>().unwrap().to_string(), "matmul:m=4,n=4,k=2");
    }

    #[test]
    fn errors_name_the_field() {
        assert!(error("conv4d:c=1").contains("unknown operator 'conv4d'"));
        assert!(error("conv2d:c=3,h=8,w=8,k=3").contains("'o' is missing"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,q=1").contains("unknown field 'q'"));
        assert!(error("conv2d:c=3,c=3,h=8,w=8,o=4,k=3").contains("'c' is given twice"));
        assert!(error("conv2d:c=0,h=8,w=8,o=4,k=3").contains("'c': must be at least 1"));
        assert!(error("conv2d:c=x,h=8,w=8,o=4,k=3").contains("'c': 'x' is not a whole number"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=11").contains("'kh': the dilated kernel spans 11"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,p=9").contains("'ph': padding 9"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,g=2").contains("'g': 2 groups do not divide"));
        assert!(error("matmul:b=2x3,lhs=02,m=4,n=4,k=2").contains("'lhs': '02' is not the axes of the batch"));
        assert!(error("matmul:b=2x3,lhs=0,rhs=0,m=4,n=4,k=2").contains("'rhs': axis 1 of the batch is of neither"));
        assert!(error("matmul:b=2x0,lhs=0,m=4,n=4,k=2").contains("'b': must be at least 1"));
        assert!(error("reduce:shape=2x3,axes=2,op=sum").contains("'axes': axis 2, of 2 that are counted from 0"));
        assert!(error("reduce:shape=2x3,axes=11,op=sum").contains("'axes': has axis 1 twice"));
        assert!(error("reduce:shape=2x0,axes=1,op=sum").contains("'shape': must be at least 1"));
        assert!(error("reduce:shape=2x3,op=sum").contains("'axes' is missing"));
        assert!(error("reduce:shape=2x3,axes=1,k=2,op=sum").contains("'k': is said by the shape"));
        assert!(error("softmax:m=4,n=4,weights=data").contains("'weights': the operator has none"));
        assert!(error("matmul:m=4,n=4,k=2,weights=any").contains("'weights': 'any' is not constant or data"));
        assert!(error("matmul:m=4,n=4,k=2,within=me").contains("'within': 'me' is not a number of"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,s=0").contains("'sh': must be at least 1"));
        assert!(error("conv2d:c=3,h=99999999999,w=99999999999,o=4,k=3").contains("overflows"));
        assert!(error("matmul:m=4294967296,n=4294967296,k=2").contains("C overflows"));
        assert!(
            error("matmul:m=4,n=4,k=2,act=cosh").contains("'act': 'cosh' is not an activation (none, relu, clip:LO:HI")
        );
        assert!(error("matmul:m=4,n=4,k=2,act=clip:6:0").contains("'act': 'clip:6:0' is not clip:LO:HI, two bounds"));
        assert!(error("matmul:m=4,n=4,k=2,act=relu:6").contains("'act': 'relu:6' is not a function with parameters"));
        assert!(error("pointwise:m=4,n=4,op=copy,to=tf32").contains("'to': 'tf32' is not an element type in memory"));
        assert!(error("matmul:m=4,n=4,k=2,scale=2").contains("'scale': '2' is not a flag"));
        assert!(error("matmul:m=4,n=4,k=2,dtype=f64").contains("'dtype': 'f64'"));
    }

    #[test]
    fn flops_count_two_per_multiply_add() {
        let w: Workload = "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1".parse().unwrap();
        assert_eq!(w.spec().flops(), 2.0 * 64.0 * 56.0 * 56.0 * 64.0 * 9.0);
    }
}
