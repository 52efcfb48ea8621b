//! The text form of workloads: printing and parsing.

use std::fmt;
use std::str::FromStr;

use autotune_ir::DType;

use super::operator::{Entry, OPERATORS};
use super::{Activation, Epilogue, Workload, WorkloadError};

/// The fields that every operator has.
const COMMON_FIELDS: &str = "dtype,bias,add,act,exact";

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entry, definition) = self.op.definition();
        write!(f, "{}:", entry.name)?;
        definition.write_fields(f)?;
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

/// `,both=v` for two equal values that are not the default, `,first=v,second=w` for others.
pub(super) fn write_pair(
    f: &mut fmt::Formatter<'_>,
    [both, first, second]: [&str; 3],
    values: [usize; 2],
    default: Option<usize>,
) -> fmt::Result {
    match values {
        [a, b] if a != b => write!(f, ",{first}={a},{second}={b}"),
        [a, _] if Some(a) != default => write!(f, ",{both}={a}"),
        _ => Ok(()),
    }
}

/// The fields of a workload's text, read one by one; every field must be taken or the rest is an error.
pub(super) struct Fields {
    of: &'static Entry,
    pairs: Vec<(String, Option<String>)>,
}

impl Fields {
    fn parse(of: &'static Entry, text: &str) -> Result<Self, WorkloadError> {
        let op = of.name;
        let mut pairs: Vec<(String, Option<String>)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = match part.split_once('=') {
                Some((k, v)) => (k.trim().to_string(), Some(v.trim().to_string())),
                None => (part.to_string(), None),
            };
            if !of.fields.split(',').chain(COMMON_FIELDS.split(',')).any(|k| k == key) {
                let known = format!("{},{COMMON_FIELDS}", of.fields);
                return Err(WorkloadError::UnknownField { op, field: key, known });
            }
            if pairs.iter().any(|(k, _)| *k == key) {
                return Err(WorkloadError::Duplicate { op, field: key });
            }
            pairs.push((key, value));
        }
        Ok(Self { of, pairs })
    }

    fn get(&self, field: &str) -> Option<&(String, Option<String>)> {
        self.pairs.iter().find(|(k, _)| k == field)
    }

    fn bad<T>(&self, field: &str, value: &str, expected: &'static str) -> Result<T, WorkloadError> {
        Err(WorkloadError::BadValue { op: self.of.name, field: field.into(), value: value.into(), expected })
    }

    pub(super) fn number(&self, field: &str) -> Result<Option<usize>, WorkloadError> {
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

    pub(super) fn required(&self, field: &'static str) -> Result<usize, WorkloadError> {
        let (op, example) = (self.of.name, self.of.example);
        self.number(field)?.ok_or(WorkloadError::Missing { op, field, example })
    }

    /// Two values from `both` or from `first` and `second`, which win over `both`.
    pub(super) fn pair(
        &self,
        both: &'static str,
        first: &str,
        second: &str,
        default: Option<usize>,
    ) -> Result<[usize; 2], WorkloadError> {
        let (op, example) = (self.of.name, self.of.example);
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
        let Some(entry) = OPERATORS.iter().find(|entry| entry.name == name.trim()) else {
            let known: Vec<String> = OPERATORS.iter().map(|entry| format!("'{}:...'", entry.name)).collect();
            return Err(WorkloadError::UnknownOperator { name: name.trim().into(), known: known.join(" or ") });
        };
        let fields = Fields::parse(entry, rest)?;
        let op = (entry.parse)(&fields)?;
        Self { op, dtype: fields.dtype()?, epilogue: fields.epilogue()?, exact: fields.flag("exact")? }.checked()
    }
}
