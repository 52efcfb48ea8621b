//! Element types of a workload's tensors, and their text form.

use autotune_ir::DType;
use autotune_ir::program::{BinaryOp, Expr};
use autotune_ir::spec::{Reduction, Spec};

use super::{Epilogue, Fields, WorkloadError};

/// Words for constant and non-constant weights.
pub(super) const WEIGHTS: [(&str, bool); 2] = [("constant", true), ("data", false)];

/// Description of valid types in messages.
const EXPECTED: &str = "an element type (f32, tf32, f16, bf16, i8, u8 or i32)";

/// Element types of a workload's tensors. Indices into other tensors are always f32.
///
/// | text | meaning |
/// |---|---|
/// | `dtype=bf16` | all tensors, as in [`Types::of`] |
/// | `data=u8,weights=i8` | sums in i32, also the result, `bias` and `add`; `scale` in f32 |
/// | `data=u8,weights=i8,out=u8,bias=f32` | the same, except for result and bias |
/// | `dtype=bf16,out=f32` | bf16, except for the result |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Types {
    /// Operands of the operator that are not weights.
    pub data: DType,
    /// Weights of the operator.
    pub weights: DType,
    /// Result, after the epilogue.
    pub out: DType,
    /// Factors of sums and residuals: `scale`, `post_scale`, slopes.
    pub scale: DType,
    /// Values that are added by channel: `bias`, `post_bias`.
    pub bias: DType,
    /// Residual tensors that are added: `add`, `post_add`.
    pub residual: DType,
}

impl Types {
    /// Returns the types for `dtype=`: one type for all tensors. For integers, biases and residuals
    /// have the sums' type i32, and scales are f32.
    pub fn of(dtype: DType) -> Self {
        let other = if dtype.is_integer() { Self::of_sums(dtype, dtype) } else { Self::all(dtype) };
        Self { out: dtype, ..other }
    }

    /// Returns the types for `data=` and `weights=`: all other tensors have the type of sums.
    pub fn of_sums(data: DType, weights: DType) -> Self {
        let sums = accumulator(data, weights);
        let scale = if sums.is_integer() { DType::F32 } else { sums };
        Self { data, weights, out: sums, scale, bias: sums, residual: sums }
    }

    fn all(dtype: DType) -> Self {
        Self { data: dtype, weights: dtype, out: dtype, scale: dtype, bias: dtype, residual: dtype }
    }

    /// Returns the types with those of absent tensors replaced by the types that the text form
    /// implies.
    pub(super) fn canonical(self, has_weights: bool, epilogue: &Epilogue) -> Self {
        let is_there = |types: &Self| Self {
            weights: if has_weights { self.weights } else { types.weights },
            scale: if epilogue.has_scales() { self.scale } else { types.scale },
            bias: if epilogue.bias || epilogue.post_bias { self.bias } else { types.bias },
            residual: if epilogue.has_residuals() { self.residual } else { types.residual },
            ..self
        };
        let uniform = Self::of(self.data);
        let weights = if has_weights { self.weights } else { self.data };
        if is_there(&uniform) == uniform { uniform } else { is_there(&Self::of_sums(self.data, weights)) }
    }

    /// True if `dtype=` alone expresses the types.
    pub fn is_uniform(&self) -> bool {
        *self == Self::of(self.data)
    }

    /// Reads the fields of a text.
    pub(super) fn read(fields: &Fields) -> Result<Self, WorkloadError> {
        let read = |field| fields.read(field, |text| of_text(text).ok_or(EXPECTED));
        let (dtype, data) = (read("dtype")?, read("data")?);
        let weights = fields.read("weights", |text| Ok(weights(text)?.1))?.flatten();
        let mut types = match (data.or(weights), dtype) {
            (None, dtype) => Self::of(dtype.unwrap_or_default()),
            (Some(given), None) => Self::of_sums(data.unwrap_or(given), weights.unwrap_or(given)),
            (Some(_), Some(dtype)) => {
                Self { data: data.unwrap_or(dtype), weights: weights.unwrap_or(dtype), ..Self::of(dtype) }
            }
        };

        types.out = read("out")?.unwrap_or(types.out);
        for (parts, to) in [
            (["scale", "post_scale"], &mut types.scale),
            (["bias", "post_bias"], &mut types.bias),
            (["add", "post_add"], &mut types.residual),
        ] {
            if let Some(dtype) = type_of_parts(fields, parts)? {
                *to = dtype;
            }
        }
        Ok(types)
    }

    /// Returns the fields for types, each after a comma, and `role`, the word for unusually
    /// constant or non-constant weights.
    pub(super) fn text(&self, role: Option<&str>, has_weights: bool) -> String {
        let role_field = role.map_or_else(String::new, |role| format!(",weights={role}"));
        if self.is_uniform() {
            let word = if self.data == DType::F32 { String::new() } else { format!(",dtype={}", self.data.word()) };
            return role_field + &word;
        }
        let role = role.map_or_else(String::new, |role| format!("{role}:"));
        let weights = if has_weights { format!(",weights={role}{}", self.weights.word()) } else { String::new() };
        format!(",data={}{weights},out={}", self.data.word(), self.out.word())
    }

    /// Returns `=TYPE` for each tensor of the epilogue whose type differs from the one that
    /// [`Types::text`] implies.
    pub(super) fn suffixes(&self) -> Suffixes {
        let implied = if self.is_uniform() { Self::of(self.data) } else { Self::of_sums(self.data, self.weights) };
        let suffix = |own: DType, implied| if own == implied { String::new() } else { format!("={}", own.word()) };
        Suffixes {
            scale: suffix(self.scale, implied.scale),
            bias: suffix(self.bias, implied.bias),
            residual: suffix(self.residual, implied.residual),
        }
    }
}

/// Suffixes of the flags of an epilogue.
pub(super) struct Suffixes {
    pub(super) scale: String,
    pub(super) bias: String,
    pub(super) residual: String,
}

/// Returns the type of a word, if workloads support it.
fn of_text(word: &str) -> Option<DType> {
    DType::of_word(word).filter(|dtype| DType::WORKLOADS.contains(dtype))
}

/// Reads `weights=`: true if they are constant, their type, or both, as in `data:i8`.
pub(super) fn weights(text: &str) -> Result<(Option<bool>, Option<DType>), &'static str> {
    const EXPECTED: &str = "constant or data, an element type, or both as in data:i8";
    let role = |word: &str| WEIGHTS.iter().find(|(known, _)| *known == word).map(|(_, is_constant)| *is_constant);
    match text.split_once(':') {
        Some((first, second)) => match (role(first), of_text(second)) {
            (Some(role), Some(dtype)) => Ok((Some(role), Some(dtype))),
            _ => Err(EXPECTED),
        },
        None => match (role(text), of_text(text)) {
            (None, None) => Err(EXPECTED),
            either => Ok(either),
        },
    }
}

/// Reads a flag of an epilogue. Its value may be the type of the tensor that is read.
pub(super) fn flag(fields: &Fields, field: &str) -> Result<(bool, Option<DType>), WorkloadError> {
    let read = |text: &str| match text {
        "" | "1" | "true" => Ok((true, None)),
        "0" | "false" => Ok((false, None)),
        word => of_text(word).map(|dtype| (true, Some(dtype))).ok_or("a flag (0 or 1) or an element type"),
    };
    Ok(fields.read(field, read)?.unwrap_or_default())
}

/// Returns the type in the flags of both parts of an epilogue that share one, if it is given.
fn type_of_parts(fields: &Fields, [before, behind]: [&str; 2]) -> Result<Option<DType>, WorkloadError> {
    let first = flag(fields, before)?.1;
    let Some(second) = flag(fields, behind)?.1 else { return Ok(first) };
    fields.read(behind, |_| match first.is_none_or(|first| first == second) {
        true => Ok(second),
        false => Err("the type in the field of this name without 'post_'"),
    })
}

/// Returns the type in which products are accumulated.
fn accumulator(a: DType, b: DType) -> DType {
    if a.is_integer() == b.is_integer() { a.accumulator() } else { DType::F32 }
}

/// Returns a description if sums of integers may exceed the type in which they are accumulated.
pub(super) fn overflow(spec: &Spec) -> Option<String> {
    spec.equations.iter().find_map(|equation| {
        let sums = spec.tensor(&equation.output).dtype;
        let is_sum = equation.reduction == Reduction::Sum && equation.reduces() && sums.is_integer();
        let len = equation.reduction_len();
        let most = largest(spec, &equation.value).filter(|_| is_sum)? * len as f64;
        (most > sums.range()[1])
            .then(|| format!("a sum of {len} values of up to {} may overflow {}", most / len as f64, sums.word()))
    })
}

/// Returns the largest magnitude of an integer value; `None` if it is not an integer.
fn largest(spec: &Spec, value: &Expr) -> Option<f64> {
    match value {
        Expr::Const(x) => Some(f64::from(x.abs())),
        Expr::Load(access) => {
            let dtype = spec.tensor(access).dtype;
            dtype.is_integer().then(|| dtype.range().into_iter().fold(0.0, |most: f64, end| most.max(end.abs())))
        }
        Expr::Binary(op, of) => {
            let [a, b] = [largest(spec, &of[0])?, largest(spec, &of[1])?];
            match op {
                BinaryOp::Mul => Some(a * b),
                BinaryOp::Add | BinaryOp::Sub => Some(a + b),
                _ => Some(a.max(b)),
            }
        }
        _ => None,
    }
}
