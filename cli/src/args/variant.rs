//! Arguments that select variants of workloads: exact products, element type.

use autotune::Network;
use autotune_ir::DType;
use autotune_workloads::{Workload, WorkloadError};
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct VariantArgs {
    /// Only schedules that sum the operator's own products: no Winograd, and no parts of bf16 in
    /// f32 (AMX). Like ',exact' appended to every workload
    #[arg(long)]
    exact: bool,
    /// Element type: f32, bf16 on CPUs; tf32, f16, bf16 on CUDA; f16, bf16 for casts on any target.
    /// Like ',dtype=...' appended to every workload
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    dtype: Option<DType>,
}

impl VariantArgs {
    /// Returns the network with these options applied to the workload of each task.
    pub(crate) fn of(&self, mut network: Network) -> Result<Network, WorkloadError> {
        for task in &mut network.tasks {
            task.workload = self.of_workload(&task.workload)?;
        }
        Ok(network)
    }

    /// True if the options leave workloads unchanged.
    pub(crate) fn is_none(&self) -> bool {
        !self.exact && self.dtype.is_none()
    }

    /// Returns the workload with these options applied.
    pub(crate) fn of_workload(&self, workload: &Workload) -> Result<Workload, WorkloadError> {
        let workload = if self.exact { workload.with_exact(true) } else { workload.clone() };
        match self.dtype {
            Some(dtype) => workload.with_dtype(dtype),
            None => Ok(workload),
        }
    }
}

fn parse_dtype(text: &str) -> Result<DType, String> {
    let words = DType::WORKLOADS.map(DType::word).join(", ");
    let known = DType::of_word(text).filter(|dtype| DType::WORKLOADS.contains(dtype));
    known.ok_or_else(|| format!("--dtype '{text}' is not an element type ({words})"))
}
