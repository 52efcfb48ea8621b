//! What kernels are made for.

use anyhow::Result;
use autotune::{Network, check_supported};
use autotune_ir::{Target, TargetError};
use autotune_measure::gpu;
use autotune_network::{Graph, Precision, Subject};
use autotune_workloads::Workload;
use clap::Args;

use super::Failure;

/// The CUDA device that kernels are planned for where there is none.
const ABSENT_CUDA: &str = "cuda:sm_90";

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// The device to make code for: cpu, cpu:avx2 (this CPU without AVX-512), cuda, cuda:sm_90,
    /// opencl
    #[arg(long, value_name = "TARGET", default_value = "cpu")]
    target: String,
    /// Threads that a kernel runs on [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl TargetArgs {
    /// The tasks of a subject as this target can measure them: on GPUs the weights of networks are
    /// where the last run left them. Fails if the types of a network are some of CPUs alone.
    pub(crate) fn tasks(&self, subject: &Subject, graph: Option<&Graph>) -> Result<Network, Failure> {
        graph.map_or(Ok(()), |graph| self.check_types(graph))?;
        let tasks = subject.tasks(graph);
        Ok(if self.is_cpu() || graph.is_none() { tasks } else { tasks.warm() })
    }

    /// Fails if the types of a network are some of CPUs alone.
    pub(crate) fn check_types(&self, graph: &Graph) -> Result<(), Failure> {
        let precision = graph.precision();
        if !self.is_cpu() && graph.is_quantised() {
            let why = "quantised tensors are integers on CPUs alone; on other targets, --quantised float";
            return Err(Failure::Usage(format!("--target {}: {why}", self.target)));
        }
        if self.is_cpu() || precision == Precision::F32 {
            return Ok(());
        }
        let why =
            format!("networks are in {precision} on CPUs alone; --dtype {precision} is for tasks of other targets");
        Err(Failure::Usage(format!("--precision {precision}: {why}")))
    }

    /// The target to make or look up code for, which must compute with the workloads' element
    /// types. `cuda` is this machine's device; `opencl` is too, if there is one. A stated compute
    /// capability needs none.
    pub(crate) fn detect(&self, workloads: &[Workload]) -> Result<Target> {
        match (self.stated(workloads)?, self.target.as_str()) {
            (Some(stated), "opencl") => Ok(self.device(workloads).unwrap_or(stated)),
            (Some(stated), _) => Ok(stated),
            (None, _) => self.device(workloads),
        }
    }

    /// The target to measure on, which this machine must have and which must compute with the
    /// workloads' element types.
    pub(crate) fn device(&self, workloads: &[Workload]) -> Result<Target> {
        if let Some(cpu @ Target::Cpu(_)) = self.stated(workloads)? {
            return Ok(cpu);
        }
        let target = Target::Gpu(gpu::find(&self.target)?.target);
        check(workloads, &target)?;
        Ok(target)
    }

    /// Fails unless the target is `cpu`, for what there is nothing else.
    pub(crate) fn check_cpu(&self, why: &str) -> Result<(), Failure> {
        match self.is_cpu() {
            true => Ok(()),
            false => Err(Failure::Usage(format!("--target {}: {why}, --target cpu", self.target))),
        }
    }

    /// True for this machine's CPU, with whatever instruction set.
    fn is_cpu(&self) -> bool {
        self.target == "cpu" || self.target.starts_with("cpu:")
    }

    /// Where this machine lacks the GPU: what stands for it, and why it is absent. `cuda` stands
    /// for [`ABSENT_CUDA`].
    pub(crate) fn absent(&self, workloads: &[Workload]) -> Result<Option<(Target, String)>, Failure> {
        let stated = match self.stated(workloads)? {
            Some(Target::Cpu(_)) => return Ok(None),
            Some(stated) => stated,
            None => Target::detect(ABSENT_CUDA, None).map_err(|e| Failure::Usage(e.to_string()))?,
        };
        Ok(gpu::find(&self.target).err().map(|why| (stated, why.to_string())))
    }

    /// What the words alone say; `None` for `cuda`.
    fn stated(&self, workloads: &[Workload]) -> Result<Option<Target>, Failure> {
        let usage = |e: TargetError| Failure::Usage(e.to_string());
        let stated = match (self.target.as_str(), self.threads) {
            ("cuda", None) => return Ok(None),
            ("cuda", Some(_)) => return Err(usage(TargetError::GpuThreads(self.target.clone()))),
            (word, threads) => Target::detect(word, threads).map_err(usage)?,
        };
        check(workloads, &stated)?;
        Ok(Some(stated))
    }
}

/// A target without kernels for a workload's element type was badly chosen.
fn check(workloads: &[Workload], target: &Target) -> Result<(), Failure> {
    check_supported(workloads, target).map_err(|e| Failure::Usage(e.to_string()))
}
