//! What is to be computed: an operator, its sizes, its data type and its epilogue.
//!
//! The text form is the database key and the word on the command line:
//!
//! ```
//! use crate::workload::Workload;
//! let w: Workload = "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,bias,act=relu".parse().unwrap();
//! assert_eq!(w.output_shape(), [1, 64, 56, 56]);
//! assert_eq!(w.to_string(), "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,bias,act=relu");
//! ```

use autotune_ir::DType;
use serde::{Deserialize, Serialize};
use thiserror::Error;

mod spec;
mod text;

/// Largest number of elements any one tensor, and largest number of multiply-adds any one workload, may have.
const MAX_ELEMENTS: usize = 1 << 34;
const MAX_MACS: usize = 1 << 50;

/// A two-dimensional convolution (cross-correlation) with `NCHW` input, `O(C/g)KhKw` weights and `NCHW` output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conv2d {
    /// Batch.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Output channels.
    pub o: usize,
    /// Kernel height.
    pub kh: usize,
    /// Kernel width.
    pub kw: usize,
    /// Stride over height and width.
    pub stride: [usize; 2],
    /// Zero padding on both ends of height and width.
    pub pad: [usize; 2],
    /// Distance between neighbouring taps over height and width.
    pub dilation: [usize; 2],
    /// Channel groups; depthwise is `groups == c`.
    pub groups: usize,
}

impl Conv2d {
    /// Output height and width.
    pub fn output_hw(&self) -> [usize; 2] {
        let size = |extent: usize, kernel: usize, axis: usize| {
            (extent + 2 * self.pad[axis] - self.dilation[axis] * (kernel - 1) - 1) / self.stride[axis] + 1
        };
        [size(self.h, self.kh, 0), size(self.w, self.kw, 1)]
    }
}

/// A batch of matrix products `C[b,m,n] = A[b,m,k] * B[b,k,n]`.
///
/// With `b == 1` the operand `B` is a weight (it may be packed ahead of time); with a real batch both are activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Matmul {
    /// Batch.
    pub b: usize,
    /// Rows of `A` and `C`.
    pub m: usize,
    /// Columns of `B` and `C`.
    pub n: usize,
    /// Columns of `A`, rows of `B`.
    pub k: usize,
}

/// The operator of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    /// Two-dimensional convolution.
    Conv2d(Conv2d),
    /// (Batched) matrix product.
    Matmul(Matmul),
}

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
    #[error("unknown operator '{0}': expected 'conv2d:...' or 'matmul:...'")]
    UnknownOperator(String),
    /// A `key=value` field whose key is not known for the operator.
    #[error("{op}: unknown field '{field}' (known: {known})")]
    UnknownField {
        /// Operator name.
        op: &'static str,
        /// The field as given.
        field: String,
        /// Every field of the operator.
        known: &'static str,
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
        match self.op {
            Operator::Conv2d(c) => {
                let [oh, ow] = c.output_hw();
                vec![c.n, c.o, oh, ow]
            }
            Operator::Matmul(m) => vec![m.b, m.m, m.n],
        }
    }

    /// Shape of the data operand: `[n, c, h, w]` for conv2d, `[b, m, k]` for matmul.
    pub fn input_shape(&self) -> Vec<usize> {
        match self.op {
            Operator::Conv2d(c) => vec![c.n, c.c, c.h, c.w],
            Operator::Matmul(m) => vec![m.b, m.m, m.k],
        }
    }

    /// Shape of the weight operand: `[o, c/groups, kh, kw]` for conv2d, `[b, k, n]` for matmul.
    pub fn weight_shape(&self) -> Vec<usize> {
        match self.op {
            Operator::Conv2d(c) => vec![c.o, c.c / c.groups, c.kh, c.kw],
            Operator::Matmul(m) => vec![m.b, m.k, m.n],
        }
    }

    /// Length of the bias: output channels (conv2d) or columns (matmul).
    pub fn bias_len(&self) -> usize {
        match self.op {
            Operator::Conv2d(c) => c.o,
            Operator::Matmul(m) => m.n,
        }
    }

    /// Length of the reduction behind one output element.
    pub fn reduction_len(&self) -> usize {
        match self.op {
            Operator::Conv2d(c) => c.c / c.groups * c.kh * c.kw,
            Operator::Matmul(m) => m.k,
        }
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
        match self.op {
            Operator::Conv2d(c) => check_conv(&c)?,
            Operator::Matmul(m) => check_matmul(&m)?,
        }
        Ok(self)
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

fn product(op: &'static str, what: &'static str, dims: &[usize], limit: usize) -> Result<usize, WorkloadError> {
    dims.iter()
        .try_fold(1usize, |acc, &d| acc.checked_mul(d))
        .filter(|&p| p <= limit)
        .ok_or(WorkloadError::Overflow { op, what })
}

fn check_positive(op: &'static str, fields: &[(&'static str, usize)]) -> Result<(), WorkloadError> {
    match fields.iter().find(|(_, v)| *v == 0) {
        Some((field, _)) => Err(WorkloadError::Unfit { op, field, reason: "must be at least 1".into() }),
        None => Ok(()),
    }
}

fn check_conv(c: &Conv2d) -> Result<(), WorkloadError> {
    let op = "conv2d";
    check_positive(
        op,
        &[
            ("n", c.n),
            ("c", c.c),
            ("h", c.h),
            ("w", c.w),
            ("o", c.o),
            ("kh", c.kh),
            ("kw", c.kw),
            ("sh", c.stride[0]),
            ("sw", c.stride[1]),
            ("dh", c.dilation[0]),
            ("dw", c.dilation[1]),
            ("g", c.groups),
        ],
    )?;
    if !c.c.is_multiple_of(c.groups) || !c.o.is_multiple_of(c.groups) {
        let reason = format!("{} groups do not divide c={} and o={}", c.groups, c.c, c.o);
        return Err(WorkloadError::Unfit { op, field: "g", reason });
    }
    let mut out = [0usize; 2];
    for (axis, (extent, kernel, k_field, p_field)) in
        [(c.h, c.kh, "kh", "ph"), (c.w, c.kw, "kw", "pw")].into_iter().enumerate()
    {
        let overflow = WorkloadError::Overflow { op, what: "padded input" };
        let padded = c.pad[axis].checked_mul(2).and_then(|p| p.checked_add(extent)).ok_or(overflow.clone())?;
        let reach = c.dilation[axis].checked_mul(kernel - 1).and_then(|r| r.checked_add(1)).ok_or(overflow)?;
        if reach > padded {
            let reason = format!("the dilated kernel spans {reach} but the padded input only {padded}");
            return Err(WorkloadError::Unfit { op, field: k_field, reason });
        }
        if c.pad[axis] > reach {
            let reason = format!("padding {} is larger than the dilated kernel ({reach})", c.pad[axis]);
            return Err(WorkloadError::Unfit { op, field: p_field, reason });
        }
        out[axis] = (padded - reach) / c.stride[axis] + 1;
    }
    let [oh, ow] = out;
    let input = [c.n, c.c, c.h + 2 * c.pad[0], c.w + 2 * c.pad[1]];
    product(op, "input", &input, MAX_ELEMENTS)?;
    product(op, "weight", &[c.o, c.c / c.groups, c.kh, c.kw], MAX_ELEMENTS)?;
    let outputs = product(op, "output", &[c.n, c.o, oh, ow], MAX_ELEMENTS)?;
    product(op, "work", &[outputs, c.c / c.groups, c.kh, c.kw], MAX_MACS)?;
    Ok(())
}

fn check_matmul(m: &Matmul) -> Result<(), WorkloadError> {
    let op = "matmul";
    check_positive(op, &[("b", m.b), ("m", m.m), ("n", m.n), ("k", m.k)])?;
    product(op, "A", &[m.b, m.m, m.k], MAX_ELEMENTS)?;
    product(op, "B", &[m.b, m.k, m.n], MAX_ELEMENTS)?;
    let outputs = product(op, "C", &[m.b, m.m, m.n], MAX_ELEMENTS)?;
    product(op, "work", &[outputs, m.k], MAX_MACS)?;
    Ok(())
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
