//! Parser of the text form of workloads.

use std::str::FromStr;

use super::fields::Fields;
use super::registry::operators;
use super::types::{self, Types};
use super::{Activation, Epilogue, Prologue, Terms, Workload, WorkloadError};

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let kinds = operators();
        let Some(&kind) = kinds.iter().find(|kind| kind.name == name.trim()) else {
            let known: Vec<String> = kinds.iter().map(|kind| format!("'{}:...'", kind.name)).collect();
            return Err(WorkloadError::UnknownOperator { name: name.trim().into(), known: known.join(" or ") });
        };
        let fields = Fields::parse([kind.name, kind.fields, kind.example], rest)?;
        let op = (kind.parse)(&fields).map_err(|e| fields.naming_field(e))?;
        let (types, prologue, epilogue) = (Types::read(&fields)?, prologue(&fields)?, epilogue(&fields)?);
        let within = fields.read("within", |text| {
            u64::from_str_radix(text, 16).map_err(|_| "a hexadecimal number of at most 16 digits")
        })?;
        let weights = fields.read("weights", types::weights)?.and_then(|(role, _)| role);
        let (exact, cold) = (fields.flag("exact")?, fields.flag("cold")?);
        let terms = Terms { weights, types, prologue, epilogue, exact, cold, within };
        Self::of(op.into(), terms).map_err(|e| fields.naming_field(e))
    }
}

/// Reads the prologue; there is none if `pre` is a field of the operator itself.
fn prologue(fields: &Fields) -> Result<Prologue, WorkloadError> {
    const NAME: &str = "pre";
    match fields.is_own(NAME) {
        true => Ok(Prologue::default()),
        false => Ok(fields.read(NAME, Prologue::parse)?.unwrap_or_default()),
    }
}

fn epilogue(fields: &Fields) -> Result<Epilogue, WorkloadError> {
    let activation = fields.read("act", Activation::parse)?.unwrap_or_default();
    let flag = |field| Ok::<_, WorkloadError>(types::flag(fields, field)?.0);
    let (scale, bias, residual) = (flag("scale")?, flag("bias")?, flag("add")?);
    let (post_scale, post_bias, post_residual) = (flag("post_scale")?, flag("post_bias")?, flag("post_add")?);
    let table = fields.flag("table")?;
    Ok(Epilogue { scale, bias, residual, activation, post_scale, post_bias, post_residual, table })
}
