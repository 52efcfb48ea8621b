//! Turns loop nests into loadable code where no external compiler is needed.

use autotune_ir::{Artifact, Code, GpuApi, KernelPlan, Program, Target};
use thiserror::Error;

use crate::asm::{AssembleError, assemble};
use crate::gpu;

/// The external compiler that code for a target needs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompilerNeeded {
    /// A C compiler, for the output of [`crate::c::generate`]: the assembler rejected the loop
    /// nests.
    #[error("{0}: a C compiler is needed")]
    C(AssembleError),
    /// NVRTC, for the output of [`crate::gpu::generate`].
    #[error("code for compute capability {}.{} is compiled by NVRTC", sm / 10, sm % 10)]
    Nvrtc {
        /// Compute capability times ten, e.g. 90 for 9.0.
        sm: u32,
    },
}

/// Generates a kernel's code: machine code for a CPU, source for an OpenCL device, whose driver
/// compiles it.
///
/// ```
/// use autotune_codegen::artifact;
/// use autotune_ir::{Code, CpuTarget, KernelPlan, Target};
/// use autotune_schedules::{ScheduleSpace, lower};
///
/// let workload = "matmul:m=16,n=24,k=8,bias".parse()?;
/// let target = Target::Cpu(CpuTarget::generic_avx2(1));
/// let program = lower(&workload, &target, &ScheduleSpace::new(&workload, &target).default_config())?;
/// let made = artifact(&program, &KernelPlan::of(&program), &target)?;
/// assert!(matches!(made.code, Code::Machine(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns the compiler that the target needs, if it needs one.
pub fn artifact(program: &Program, plan: &KernelPlan, target: &Target) -> Result<Artifact, CompilerNeeded> {
    let code = match target.gpu().map(|gpu| gpu.api) {
        None => Code::Machine(assemble(program, target).map_err(CompilerNeeded::C)?),
        Some(api @ GpuApi::OpenCl) => Code::OpenCl(gpu::generate(program, api)),
        Some(GpuApi::Cuda { sm }) => return Err(CompilerNeeded::Nvrtc { sm }),
    };
    Ok(Artifact { target: target.clone(), plan: plan.clone(), code })
}

#[cfg(test)]
mod tests {
    use autotune_ir::{CpuTarget, Isa};
    use autotune_schedules::ScheduleSpace;

    use super::*;

    fn made(target: &Target) -> Result<Artifact, CompilerNeeded> {
        let space = ScheduleSpace::new(&"matmul:m=16,n=24,k=8".parse().unwrap(), target);
        let program = space.default_candidate().lower().unwrap();
        artifact(&program, &KernelPlan::of(&program), target)
    }

    #[test]
    fn targets_that_need_a_compiler_name_it() {
        let neon = Target::Cpu(CpuTarget { isa: Isa::Neon, ..CpuTarget::generic_avx2(1) });
        assert_eq!(made(&neon).unwrap_err(), CompilerNeeded::C(AssembleError::Isa(Isa::Neon)));
        let cuda = made(&Target::detect("cuda:sm_90", None).unwrap()).unwrap_err();
        assert_eq!(cuda.to_string(), "code for compute capability 9.0 is compiled by NVRTC");
    }

    #[test]
    fn targets_without_compiler_yield_code_with_its_plan() {
        let opencl = made(&Target::detect("opencl", None).unwrap()).unwrap();
        assert!(matches!(&opencl.code, Code::OpenCl(source) if source.contains("__kernel")));
        let cpu = made(&Target::Cpu(CpuTarget::generic_avx2(1))).unwrap();
        let Code::Machine(code) = &cpu.code else { panic!("not assembled") };
        assert_eq!(code.entries.len(), cpu.plan.stages.len());
    }
}
