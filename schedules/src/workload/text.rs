//! The text form of workloads: printing and parsing.

use std::fmt;
use std::str::FromStr;

use autotune_ir::DType;

use super::{Activation, Conv2d, Epilogue, Matmul, Operator, Workload, WorkloadError};

const CONV_FIELDS: &str = "n,c,h,w,o,k,kh,kw,s,sh,sw,p,ph,pw,d,dh,dw,g,dtype,bias,add,act,exact";
const MATMUL_FIELDS: &str = "b,m,n,k,dtype,bias,add,act,exact";
const CONV_EXAMPLE: &str = "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1";
const MATMUL_EXAMPLE: &str = "matmul:m=512,n=512,k=512";

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.op {
            Operator::Conv2d(c) => {
                write!(f, "conv2d:n={},c={},h={},w={},o={}", c.n, c.c, c.h, c.w, c.o)?;
                let mut pair = |both: &str, first: &str, second: &str, v: [usize; 2], default: Option<usize>| {
                    if v[0] != v[1] {
                        write!(f, ",{first}={},{second}={}", v[0], v[1])
                    } else if Some(v[0]) != default {
                        write!(f, ",{both}={}", v[0])
                    } else {
                        Ok(())
                    }
                };
                pair("k", "kh", "kw", [c.kh, c.kw], None)?;
                pair("s", "sh", "sw", c.stride, None)?;
                pair("p", "ph", "pw", c.pad, None)?;
                pair("d", "dh", "dw", c.dilation, Some(1))?;
                if c.groups != 1 {
                    write!(f, ",g={}", c.groups)?;
                }
            }
            Operator::Matmul(m) => {
                f.write_str("matmul:")?;
                if m.b != 1 {
                    write!(f, "b={},", m.b)?;
                }
                write!(f, "m={},n={},k={}", m.m, m.n, m.k)?;
            }
        }
        if self.dtype != DType::F32 {
            write!(f, ",dtype={}", self.dtype.word())?;
        }
        if self.epilogue.bias {
            f.write_str(",bias")?;
        }
        if self.epilogue.residual {
            f.write_str(",add")?;
        }
        match self.epilogue.activation {
            Activation::None => {}
            Activation::Relu => f.write_str(",act=relu")?,
        }
        if self.exact { f.write_str(",exact") } else { Ok(()) }
    }
}

/// The fields of a workload's text, read one by one; every field must be taken or the rest is an error.
struct Fields {
    op: &'static str,
    known: &'static str,
    example: &'static str,
    pairs: Vec<(String, Option<String>)>,
}

impl Fields {
    fn parse(op: &'static str, known: &'static str, example: &'static str, text: &str) -> Result<Self, WorkloadError> {
        let mut pairs: Vec<(String, Option<String>)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = match part.split_once('=') {
                Some((k, v)) => (k.trim().to_string(), Some(v.trim().to_string())),
                None => (part.to_string(), None),
            };
            if !known.split(',').any(|k| k == key) {
                return Err(WorkloadError::UnknownField { op, field: key, known });
            }
            if pairs.iter().any(|(k, _)| *k == key) {
                return Err(WorkloadError::Duplicate { op, field: key });
            }
            pairs.push((key, value));
        }
        Ok(Self { op, known, example, pairs })
    }

    fn get(&self, field: &str) -> Option<&(String, Option<String>)> {
        debug_assert!(self.known.split(',').any(|k| k == field));
        self.pairs.iter().find(|(k, _)| k == field)
    }

    fn bad<T>(&self, field: &str, value: &str, expected: &'static str) -> Result<T, WorkloadError> {
        Err(WorkloadError::BadValue { op: self.op, field: field.into(), value: value.into(), expected })
    }

    fn number(&self, field: &str) -> Result<Option<usize>, WorkloadError> {
        match self.get(field) {
            None => Ok(None),
            Some((_, value)) => {
                let text = value.as_deref().unwrap_or("");
                match text.parse() {
                    Ok(v) => Ok(Some(v)),
                    Err(_) => self.bad(field, text, "a whole number in range"),
                }
            }
        }
    }

    fn required(&self, field: &'static str) -> Result<usize, WorkloadError> {
        let (op, example) = (self.op, self.example);
        self.number(field)?.ok_or(WorkloadError::Missing { op, field, example })
    }

    /// Two values from `both` or from `first` and `second`, which win over `both`.
    fn pair(
        &self,
        both: &'static str,
        first: &str,
        second: &str,
        default: Option<usize>,
    ) -> Result<[usize; 2], WorkloadError> {
        let (op, example) = (self.op, self.example);
        let shared = self.number(both)?.or(default);
        let missing = || WorkloadError::Missing { op, field: both, example };
        let a = self.number(first)?.or(shared).ok_or_else(missing)?;
        let b = self.number(second)?.or(shared).ok_or_else(missing)?;
        Ok([a, b])
    }

    fn flag(&self, field: &str) -> Result<bool, WorkloadError> {
        match self.get(field) {
            None => Ok(false),
            Some((_, None)) => Ok(true),
            Some((_, Some(v))) => match v.as_str() {
                "1" | "true" => Ok(true),
                "0" | "false" => Ok(false),
                other => self.bad(field, other, "a flag (0 or 1)"),
            },
        }
    }

    fn dtype(&self) -> Result<DType, WorkloadError> {
        match self.get("dtype") {
            None => Ok(DType::F32),
            Some((_, value)) => {
                let word = value.as_deref().unwrap_or("");
                match DType::WORDS.into_iter().find(|(known, _)| *known == word) {
                    Some((_, dtype)) => Ok(dtype),
                    None => self.bad("dtype", word, "a supported element type (f32, tf32, f16 or bf16)"),
                }
            }
        }
    }

    fn epilogue(&self) -> Result<Epilogue, WorkloadError> {
        let activation = match self.get("act") {
            None => Activation::None,
            Some((_, value)) => match value.as_deref().unwrap_or("") {
                "none" => Activation::None,
                "relu" => Activation::Relu,
                other => return self.bad("act", other, "an activation (none or relu)"),
            },
        };
        Ok(Epilogue { bias: self.flag("bias")?, residual: self.flag("add")?, activation })
    }
}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match name.trim() {
            "conv2d" => {
                let f = Fields::parse("conv2d", CONV_FIELDS, CONV_EXAMPLE, rest)?;
                let [kh, kw] = f.pair("k", "kh", "kw", None)?;
                let conv = Conv2d {
                    n: f.number("n")?.unwrap_or(1),
                    c: f.required("c")?,
                    h: f.required("h")?,
                    w: f.required("w")?,
                    o: f.required("o")?,
                    kh,
                    kw,
                    stride: f.pair("s", "sh", "sw", Some(1))?,
                    pad: f.pair("p", "ph", "pw", Some(0))?,
                    dilation: f.pair("d", "dh", "dw", Some(1))?,
                    groups: f.number("g")?.unwrap_or(1),
                };
                Self { op: Operator::Conv2d(conv), dtype: f.dtype()?, epilogue: f.epilogue()?, exact: f.flag("exact")? }
                    .checked()
            }
            "matmul" => {
                let f = Fields::parse("matmul", MATMUL_FIELDS, MATMUL_EXAMPLE, rest)?;
                let matmul = Matmul {
                    b: f.number("b")?.unwrap_or(1),
                    m: f.required("m")?,
                    n: f.required("n")?,
                    k: f.required("k")?,
                };
                Self {
                    op: Operator::Matmul(matmul),
                    dtype: f.dtype()?,
                    epilogue: f.epilogue()?,
                    exact: f.flag("exact")?,
                }
                .checked()
            }
            other => Err(WorkloadError::UnknownOperator(other.to_string())),
        }
    }
}
