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

use autotune_ir::DType;
use serde::{Deserialize, Serialize};
use thiserror::Error;

mod conv2d;
mod matmul;
mod operator;
mod spec;
mod text;

pub use conv2d::Conv2d;
pub use matmul::Matmul;
pub use operator::Operator;

use operator::Definition;

/// The point-wise function applied last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Activation {
    /// Identity.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
}

/// What happens to each output element at its final store, in this order: `act(x + bias + residual)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epilogue {
    /// Add one value per output channel (conv2d) or column (matmul).
    pub bias: bool,
    /// Add a tensor of the output's shape.
    pub residual: bool,
    /// Point-wise activation.
    pub activation: Activation,
}

/// One operator instance to be tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workload {
    /// Operator and sizes.
    pub op: Operator,
    /// Element type.
    pub dtype: DType,
    /// Fused tail.
    pub epilogue: Epilogue,
    /// True if kernels may only add up the workload's own products, in whatever order; false if they may also transform
    /// operands first (Winograd) at the cost of larger rounding errors.
    pub exact: bool,
}

/// Why a workload makes no sense. Names the offending field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// The part before `:` is no known operator.
    #[error("unknown operator '{name}': expected {known}")]
    UnknownOperator {
        /// The part.
        name: String,
        /// What would have been right.
        known: String,
    },
    /// A `key=value` field whose key is not known for the operator.
    #[error("{op}: unknown field '{field}' (known: {known})")]
    UnknownField {
        /// Operator name.
        op: &'static str,
        /// The field as given.
        field: String,
        /// Every field of the operator.
        known: String,
    },
    /// A field given more than once.
    #[error("{op}: field '{field}' is given twice")]
    Duplicate {
        /// Operator name.
        op: &'static str,
        /// The field.
        field: String,
    },
    /// A required field is absent.
    #[error("{op}: field '{field}' is missing (example: {example})")]
    Missing {
        /// Operator name.
        op: &'static str,
        /// The field.
        field: &'static str,
        /// A complete workload.
        example: &'static str,
    },
    /// A field whose value cannot be read.
    #[error("{op}: field '{field}': '{value}' is not {expected}")]
    BadValue {
        /// Operator name.
        op: &'static str,
        /// The field.
        field: String,
        /// The value as given.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// A field whose value is readable but does not fit the others.
    #[error("{op}: field '{field}': {reason}")]
    Unfit {
        /// Operator name.
        op: &'static str,
        /// The field.
        field: &'static str,
        /// What does not fit.
        reason: String,
    },
    /// A tensor or the amount of work is beyond what can be addressed.
    #[error("{op}: {what} overflows the supported size")]
    Overflow {
        /// Operator name.
        op: &'static str,
        /// The tensor or quantity.
        what: &'static str,
    },
}

impl Workload {
    /// A checked f32 convolution without epilogue.
    pub fn conv2d(conv: Conv2d) -> Result<Self, WorkloadError> {
        Self { op: Operator::Conv2d(conv), dtype: DType::F32, epilogue: Epilogue::default(), exact: false }.checked()
    }

    /// A checked f32 matrix product without epilogue.
    pub fn matmul(matmul: Matmul) -> Result<Self, WorkloadError> {
        Self { op: Operator::Matmul(matmul), dtype: DType::F32, epilogue: Epilogue::default(), exact: false }.checked()
    }

    /// The same workload with another epilogue.
    pub fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Self { epilogue, ..self }
    }

    /// Output shape, outermost first: `[n, o, oh, ow]` for conv2d, `[b, m, n]` for matmul.
    pub fn output_shape(&self) -> Vec<usize> {
        let [.., output] = self.definition().shapes();
        output
    }

    /// Shape of the data operand: `[n, c, h, w]` for conv2d, `[b, m, k]` for matmul.
    pub fn input_shape(&self) -> Vec<usize> {
        let [data, ..] = self.definition().shapes();
        data
    }

    /// Shape of the weight operand: `[o, c/groups, kh, kw]` for conv2d, `[b, k, n]` for matmul.
    pub fn weight_shape(&self) -> Vec<usize> {
        let [_, weight, _] = self.definition().shapes();
        weight
    }

    /// Length of the bias: output channels (conv2d) or columns (matmul).
    pub fn bias_len(&self) -> usize {
        self.definition().bias_len()
    }

    /// Length of the reduction behind one output element.
    pub fn reduction_len(&self) -> usize {
        self.definition().reduction_len()
    }

    /// Floating-point operations of one run: two per multiply-add of the direct algorithm, padding taps included,
    /// epilogue excluded (the convention of the AutoTVM paper, section 6).
    pub fn flops(&self) -> f64 {
        let outputs: f64 = self.output_shape().iter().map(|&d| d as f64).product();
        2.0 * outputs * self.reduction_len() as f64
    }

    /// Bytes that any algorithm must move at least once: every operand read and the output written.
    pub fn min_bytes(&self) -> f64 {
        let count = |shape: Vec<usize>| shape.iter().map(|&d| d as f64).product::<f64>();
        let output = count(self.output_shape());
        let mut elements = count(self.input_shape()) + count(self.weight_shape()) + output;
        if self.epilogue.bias {
            elements += self.bias_len() as f64;
        }
        if self.epilogue.residual {
            elements += output;
        }
        elements * self.dtype.bytes() as f64
    }

    /// What the direct algorithm has to do.
    pub fn work(&self) -> Work {
        Work { flops: self.flops(), bytes: self.min_bytes() }
    }

    /// The workload itself if its sizes make sense, else the first field that does not.
    pub fn checked(self) -> Result<Self, WorkloadError> {
        self.definition().check().map(|()| self)
    }

    fn definition(&self) -> &dyn Definition {
        self.op.definition().1
    }
}

/// What an algorithm has to do at least for a workload: floating-point operations, two per multiply-add, and bytes of operands read
/// and output written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Operations.
    pub flops: f64,
    /// Bytes.
    pub bytes: f64,
}

impl Serialize for Workload {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
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
            "matmul:m=197,n=197,k=64,dtype=bf16,bias",
            "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,g=2,dtype=f16,bias",
            "matmul:m=1,n=1000,k=512,dtype=tf32",
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
        assert!(error("conv3d:c=1").contains("unknown operator 'conv3d'"));
        assert!(error("conv2d:c=3,h=8,w=8,k=3").contains("'o' is missing"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,q=1").contains("unknown field 'q'"));
        assert!(error("conv2d:c=3,c=3,h=8,w=8,o=4,k=3").contains("'c' is given twice"));
        assert!(error("conv2d:c=0,h=8,w=8,o=4,k=3").contains("'c': must be at least 1"));
        assert!(error("conv2d:c=x,h=8,w=8,o=4,k=3").contains("'c': 'x' is not a whole number"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=11").contains("'kh': the dilated kernel spans 11"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,p=9").contains("'ph': padding 9"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,g=2").contains("'g': 2 groups do not divide"));
        assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,s=0").contains("'sh': must be at least 1"));
        assert!(error("conv2d:c=3,h=99999999999,w=99999999999,o=4,k=3").contains("overflows"));
        assert!(error("matmul:m=4294967296,n=4294967296,k=2").contains("C overflows"));
        assert!(error("matmul:m=4,n=4,k=2,act=gelu").contains("'act': 'gelu'"));
        assert!(error("matmul:m=4,n=4,k=2,dtype=f64").contains("'dtype': 'f64'"));
    }

    #[test]
    fn flops_count_two_per_multiply_add() {
        let w: Workload = "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1".parse().unwrap();
        assert_eq!(w.flops(), 2.0 * 64.0 * 56.0 * 56.0 * 64.0 * 9.0);
    }
}
