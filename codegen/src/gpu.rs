//! Generates kernels in C for GPUs: one printer, and a dialect for each API.
//!
//! Each stage becomes a kernel whose parameters are the global buffers, in order. Variables of
//! block and thread loops are the digits of the block and thread number. Shared buffers are parts
//! of the block's shared memory. Register buffers are arrays whose indices are all constant once
//! the marked loops are unrolled. A vectorised loop becomes accesses of 4 or 2 elements if they are
//! contiguous, aligned and under one guard, else an unrolled loop:
//!
//! ```text
//! vectorized v in 0..4 { data_frag[v] = data_shared[0, k, 4*m.t + v] }
//!   →  const float4 x0 = *(const float4 *)(data_shared + 128*k + 4*m_t);
//!      data_frag[0] = x0.x;  data_frag[1] = x0.y;  data_frag[2] = x0.z;  data_frag[3] = x0.w;
//! ```
//!
//! Values in registers are f32. Elements of 16 bits are widened at loads and rounded at stores.
//!
//! To add a GPU API, write a module like `cuda` or `opencl` with its `Dialect`, and add an arm to
//! [`generate`].

use std::fmt::Write;

use crate::formula;
use autotune_ir::KernelPlan;
use autotune_ir::program::{GpuGrid, Program};
use autotune_ir::target::GpuApi;

mod cuda;
mod dialect;
mod element;
mod opencl;
mod used;
mod writer;

pub use cuda::{architecture, device_functions};
use dialect::Dialect;
use writer::GpuWriter;

/// Generates the source of the program's kernels, named and launched as [`KernelPlan::of`] states.
///
/// A stage that is not for a GPU becomes an `#error`.
///
/// ```
/// use autotune_codegen::gpu;
/// use autotune_ir::{GpuApi, Target};
/// use autotune_schedules::{ScheduleSpace, lower};
/// use autotune_workloads::Workload;
///
/// let workload: Workload = "matmul:m=64,n=64,k=64".parse()?;
/// let target = Target::detect("cuda:sm_90", None)?;
/// let config = ScheduleSpace::new(&workload, &target).default_config();
/// let source = gpu::generate(&lower(&workload, &target, &config)?, GpuApi::Cuda { sm: 90 });
/// assert!(source.contains("__global__ void"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn generate(program: &Program, api: GpuApi) -> String {
    match api {
        GpuApi::Cuda { .. } => in_dialect::<cuda::Cuda>(program),
        GpuApi::OpenCl => in_dialect::<opencl::OpenCl>(program),
    }
}

fn in_dialect<D: Dialect>(program: &Program) -> String {
    let mut source = D::prelude(program);
    if formula::gathers(program) {
        source.push_str(&formula::gathered(D::FUNCTION, "int"));
    }

    let (mut functions, mut conversions) = (formula::used(program), formula::conversions(program));
    // A dialect with conversion instructions needs no formulas for them.
    conversions.retain(|_, _| D::CONVERTS_BY_FORMULAS);
    if !conversions.is_empty() {
        // Conversions call scalar primitives, which are written only if there are functions.
        functions.get_or_insert_default().extend(&conversions);
    }
    if let Some(functions) = functions {
        source.push_str(&formula::scalar_primitives(D::FUNCTION, D::MATH));
        functions.iter().for_each(|(name, of)| source.push_str(&formula::function(D::FUNCTION, "float", 1, name, of)));
    }
    if !conversions.is_empty() {
        source.push_str(&element::conversions(D::FUNCTION, conversions.keys().copied()));
    }

    for (stage, plan) in program.stages.iter().zip(&KernelPlan::of(program).stages) {
        match (GpuGrid::of(stage), plan.launch) {
            (Some(grid), Some(launch)) => {
                source.push_str(&GpuWriter::<D>::kernel(program, stage, &plan.symbol, &grid, launch));
            }
            _ => {
                let _ = writeln!(source, "#error \"stage {} has no grid of GPU threads\"", stage.name);
            }
        }
    }
    source
}
