//! Fields of a workload's text form.

use std::fmt;

use autotune_ir::spec::AxisId;

use super::error::WorkloadError;

/// Fields that all operators have.
const COMMON_FIELDS: &str =
    "weights,dtype,data,out,pre,scale,bias,add,act,post_scale,post_bias,post_add,table,exact,cold,within";

/// Writes extents as [`Fields::extents`] reads them.
pub(super) fn joined(extents: &[usize]) -> String {
    extents.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// Reads axis numbers of one digit each, such as `102`.
pub(super) fn axes(text: &str) -> Option<Vec<AxisId>> {
    text.chars().map(|digit| digit.to_digit(10).map(|digit| digit as AxisId)).collect()
}

/// Reads some of `rank` axis numbers in ascending order, such as `02`. Returns for each axis true
/// if it is included.
pub(super) fn some_axes(text: &str, rank: usize) -> Option<Vec<bool>> {
    let some = axes(text).filter(|some| !some.is_empty() && some.is_sorted_by(|a, b| a < b))?;
    some.iter().all(|&axis| axis < rank).then(|| (0..rank).map(|axis| some.contains(&axis)).collect())
}

/// Writes `,all=v` for equal values that are not the default, else `,first=v,second=w,..`.
pub fn write_each<const N: usize>(
    f: &mut dyn fmt::Write,
    all: &str,
    each: [&str; N],
    values: [usize; N],
    default: Option<usize>,
) -> fmt::Result {
    if values.iter().any(|value| *value != values[0]) {
        return each.iter().zip(values).try_for_each(|(field, value)| write!(f, ",{field}={value}"));
    }
    match values.first() {
        Some(value) if Some(*value) != default => write!(f, ",{all}={value}"),
        _ => Ok(()),
    }
}

/// Fields of a workload's text. Unknown fields are errors.
pub struct Fields {
    op: &'static str,
    own: &'static str,
    example: &'static str,
    pairs: Vec<(String, Option<String>)>,
}

impl Fields {
    /// Reads the text of an operator, given its name, its own fields, and an example for messages.
    pub(super) fn parse([op, own, example]: [&'static str; 3], text: &str) -> Result<Self, WorkloadError> {
        let mut pairs: Vec<(String, Option<String>)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = match part.split_once('=') {
                Some((k, v)) => (k.trim().to_string(), Some(v.trim().to_string())),
                None => (part.to_string(), None),
            };
            if !own.split(',').chain(COMMON_FIELDS.split(',')).any(|k| k == key) {
                let known = format!("{own},{COMMON_FIELDS}");
                return Err(WorkloadError::UnknownField { op, field: key, known });
            }
            if pairs.iter().any(|(k, _)| *k == key) {
                return Err(WorkloadError::Duplicate { op, field: key });
            }
            pairs.push((key, value));
        }
        Ok(Self { op, own, example, pairs })
    }

    /// Replaces an overflow by an error that names the field with the largest number.
    pub(super) fn naming_field(&self, error: WorkloadError) -> WorkloadError {
        let WorkloadError::Overflow { op, what } = error else { return error };
        let numbers = |(field, text): &(String, Option<String>)| {
            let largest = text.as_deref()?.split('x').filter_map(|number| number.parse::<usize>().ok()).max()?;
            Some((largest, field.clone()))
        };
        match self.pairs.iter().filter_map(numbers).max() {
            Some((value, field)) => WorkloadError::TooLarge { op, field, value, what },
            None => WorkloadError::Overflow { op, what },
        }
    }

    /// True for a field that the operator itself defines.
    pub(super) fn is_own(&self, field: &str) -> bool {
        self.own.split(',').any(|own| own == field)
    }

    fn get(&self, field: &str) -> Option<&(String, Option<String>)> {
        self.pairs.iter().find(|(k, _)| k == field)
    }

    fn bad<T>(&self, field: &str, value: &str, expected: &'static str) -> Result<T, WorkloadError> {
        Err(WorkloadError::BadValue { op: self.op, field: field.into(), value: value.into(), expected })
    }

    /// Returns the value of a field as an integer, if it is given.
    pub fn number(&self, field: &str) -> Result<Option<usize>, WorkloadError> {
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

    /// Returns the extents in a field, such as `128x12x64`, if it is given.
    pub(super) fn extents(&self, field: &str) -> Result<Option<Vec<usize>>, WorkloadError> {
        let numbers = |text: &str| text.split('x').map(str::parse).collect::<Result<Vec<usize>, _>>();
        self.read(field, |text| numbers(text).map_err(|_| "extents, such as 128x12x64"))
    }

    /// Fails with the first given one of some fields, which would contradict the field `shape`.
    pub(super) fn check_without(&self, fields: &[&'static str]) -> Result<(), WorkloadError> {
        for field in fields {
            if self.number(field)?.is_some() {
                let reason = "cannot be combined with 'shape'".into();
                return Err(WorkloadError::Unfit { op: self.op, field, reason });
            }
        }
        Ok(())
    }

    /// Returns the value of a field as a positive number, if it is given.
    pub fn positive(&self, field: &str) -> Result<Option<f32>, WorkloadError> {
        let Some((_, value)) = self.get(field) else { return Ok(None) };
        let text = value.as_deref().unwrap_or("");
        match text.parse::<f32>() {
            Ok(value) if value.is_finite() && value > 0.0 => Ok(Some(value)),
            _ => self.bad(field, text, "a positive number"),
        }
    }

    /// Returns the value of a required field as an integer.
    pub fn required(&self, field: &'static str) -> Result<usize, WorkloadError> {
        let Self { op, example, .. } = *self;
        self.number(field)?.ok_or(WorkloadError::Missing { op, field, example })
    }

    /// Returns one value per axis, from the axis's own field, else from the field `all`, else the
    /// default.
    pub fn each<const N: usize>(
        &self,
        all: &'static str,
        own: [&str; N],
        default: Option<usize>,
    ) -> Result<[usize; N], WorkloadError> {
        let Self { op, example, .. } = *self;
        let shared = self.number(all)?.or(default);
        let mut values = [0; N];
        for (value, field) in values.iter_mut().zip(own) {
            *value = self.number(field)?.or(shared).ok_or(WorkloadError::Missing { op, field: all, example })?;
        }
        Ok(values)
    }

    /// Returns the meaning of the word in a field, if it is given. `words` lists the words and
    /// their meanings.
    pub fn word<T: Copy>(
        &self,
        field: &str,
        words: &[(&str, T)],
        expected: &'static str,
    ) -> Result<Option<T>, WorkloadError> {
        let meant = |word: &str| words.iter().find(|(known, _)| *known == word).map(|(_, meant)| *meant);
        self.read(field, |word| meant(word).ok_or(expected))
    }

    /// True if a flag is given, and not as `0`.
    pub fn flag(&self, field: &str) -> Result<bool, WorkloadError> {
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

    /// Returns the value of a field, converted by `read`, if it is given.
    pub(super) fn read<T>(
        &self,
        field: &str,
        read: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Result<Option<T>, WorkloadError> {
        let Some((_, value)) = self.get(field) else { return Ok(None) };
        let text = value.as_deref().unwrap_or("");
        read(text).map(Some).or_else(|expected| self.bad(field, text, expected))
    }
}
