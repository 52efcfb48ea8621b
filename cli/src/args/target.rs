//! Arguments for the target device and the number of threads.

use std::fmt::Display;

use anyhow::Result;
use autotune::{Network, check_supported};
use autotune_fleet::DeviceWish;
use autotune_ir::{Target, TargetError};
use autotune_measure::gpu;
use autotune_measurement::Backend;
use autotune_network::{Graph, Precision, Subject, Waiting};
use autotune_workloads::Workload;
use clap::Args;

use super::{Failure, LoadedNetwork};

/// CUDA target for which kernels are planned on machines without a CUDA device.
const ABSENT_CUDA: &str = "cuda:sm_90";

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Device for which code is generated: cpu, cpu:avx2 (this CPU without AVX-512), cpu:avx512
    /// (without its extensions), cuda, cuda:sm_90, opencl; for tuning on a fleet also any: every
    /// kind that its workers have; for compile also several CPUs, such as cpu:avx2,cpu:avx512
    #[arg(long, value_name = "TARGET", default_value = "cpu")]
    target: String,
    /// Number of threads of a kernel [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Word for every kind of device that the workers of a fleet have.
const ANY: &str = "any";

impl TargetArgs {
    /// Returns true for every kind that the workers of a fleet have.
    pub(crate) fn is_any(&self) -> bool {
        self.target == ANY
    }

    /// Returns the number of threads of a kernel on CPUs; `None` means all cores.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.threads
    }

    /// Returns the arguments for one kind of device, by its key.
    pub(crate) fn of_kind(key: &str) -> Self {
        Self { target: key.to_string(), threads: None }
    }

    /// Returns the tasks of a subject. On GPUs they are timed warm, with the weights of networks in
    /// the caches after the previous run. Fails if the network uses element types that only CPUs
    /// support.
    pub(crate) fn tasks(&self, subject: &Subject, loaded: &[LoadedNetwork]) -> Result<Network, Failure> {
        self.tasks_on(subject, loaded, &self.assumed(&[])?)
    }

    /// Returns the tasks of a subject on the target of a fleet, which this machine need not have.
    pub(crate) fn tasks_for(
        &self,
        subject: &Subject,
        loaded: &[LoadedNetwork],
        target: &Target,
    ) -> Result<Network, Failure> {
        let tasks = self.tasks_on(subject, loaded, target)?;
        check(&tasks.workloads(), target)?;
        Ok(tasks)
    }

    fn tasks_on(&self, subject: &Subject, loaded: &[LoadedNetwork], target: &Target) -> Result<Network, Failure> {
        loaded.iter().try_for_each(|loaded| self.check_types_on(&loaded.graph, target))?;
        let graphs = loaded.iter().map(|loaded| (&loaded.graph, loaded.calls));
        let tasks = subject.tasks_of_calls(graphs, target);
        Ok(if target.cpu().is_some() || loaded.is_empty() { tasks } else { tasks.warm() })
    }

    /// Fails if the network uses element types that only CPUs support and the target is another
    /// device.
    pub(crate) fn check_types(&self, graph: &Graph) -> Result<(), Failure> {
        self.check_types_on(graph, &self.assumed(&[])?)
    }

    fn check_types_on(&self, graph: &Graph, target: &Target) -> Result<(), Failure> {
        if target.cpu().is_none() && graph.is_quantised() {
            let why = "quantised tensors are supported as integers on CPUs only; use --quantised float";
            return Err(self.wrong(why));
        }
        check_precision(Some(graph.precision()), target)
    }

    /// Returns the device to ask fleet workers for.
    pub(crate) fn wish(&self, backend: Backend) -> DeviceWish {
        DeviceWish { target: self.target.clone(), threads: self.threads, backend }
    }

    /// Returns the target to generate or look up code for, and checks that it supports the
    /// workloads' element types. `cuda` is this machine's device; `opencl` is too, if there is one.
    /// A stated compute capability needs no device.
    pub(crate) fn detect(&self, workloads: &[Workload]) -> Result<Target> {
        match (self.stated(workloads)?, self.target.as_str()) {
            (Some(stated), "opencl") => Ok(self.device(workloads).unwrap_or(stated)),
            (Some(stated), _) => Ok(stated),
            (None, _) => self.device(workloads),
        }
    }

    /// Returns the target to measure on: a device of this machine that supports the workloads'
    /// element types.
    pub(crate) fn device(&self, workloads: &[Workload]) -> Result<Target> {
        if let Some(cpu @ Target::Cpu(_)) = self.stated(workloads)? {
            return Ok(cpu);
        }
        let target = Target::Gpu(gpu::find(&self.target)?.target);
        check(workloads, &target)?;
        Ok(target)
    }

    /// Fails unless the target is a CPU; `why` says why only CPUs are supported.
    pub(crate) fn check_cpu(&self, why: &str) -> Result<(), Failure> {
        match self.is_cpu() {
            true => Ok(()),
            false => Err(self.wrong(format!("{why}; use --target cpu"))),
        }
    }

    /// Returns the behaviour of helper threads that `--spin` asks for. Fails unless the target is a
    /// CPU.
    pub(crate) fn waiting(&self, spin: Option<Waiting>) -> Result<Waiting, Failure> {
        spin.map_or(Ok(()), |_| self.check_cpu("--spin: only runs on CPUs have helper threads"))?;
        Ok(spin.unwrap_or_default())
    }

    /// True for this machine's CPU, with any instruction set, or several.
    pub(crate) fn is_cpu(&self) -> bool {
        self.words().all(|word| word == "cpu" || word.starts_with("cpu:"))
    }

    /// Returns the arguments for each target of a list.
    pub(crate) fn each(&self) -> Vec<Self> {
        self.words().map(|word| Self { target: word.into(), threads: self.threads }).collect()
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.target.split(',')
    }

    /// Returns a usage error of this argument.
    pub(crate) fn wrong(&self, why: impl Display) -> Failure {
        Failure::Usage(format!("--target {}: {why}", self.target))
    }

    /// Returns a stated target in place of the GPU and why it is absent, if this machine lacks it.
    pub(crate) fn absent(&self, workloads: &[Workload]) -> Result<Option<(Target, String)>, Failure> {
        let target = self.assumed(workloads)?;
        let why = if target.gpu().is_some() { gpu::find(&self.target).err() } else { None };
        Ok(why.map(|why| (target, why.to_string())))
    }

    /// Returns the stated target; [`ABSENT_CUDA`] stands in for `cuda`. Looks for no device.
    fn assumed(&self, workloads: &[Workload]) -> Result<Target, Failure> {
        match self.stated(workloads)? {
            Some(stated) => Ok(stated),
            None => Target::detect(ABSENT_CUDA, None).map_err(|e| Failure::Usage(e.to_string())),
        }
    }

    /// Returns the target that the arguments state without looking for a device; `None` for `cuda`.
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

/// Fails if networks do not run in a precision on a target, or without one, for `--precision auto`,
/// if there is no choice.
pub(crate) fn check_precision(precision: Option<Precision>, target: &Target) -> Result<(), Failure> {
    let supported = Precision::ALL.into_iter().filter(|other| target.supports(other.dtype()));
    let supported: Vec<&str> = supported.map(Precision::word).collect();
    let word = precision.map_or("auto", Precision::word);
    if supported.contains(&word) || precision.is_none() && supported.len() > 1 {
        return Ok(());
    }
    let (supported, key) = (supported.join(", "), target.key());
    Err(Failure::Usage(format!("--precision {word}: networks on {key} run in {supported}")))
}

/// Reads the value of `--spin`.
pub(super) fn parse_spin(text: &str) -> Result<Waiting, String> {
    Waiting::of_spin(text).ok_or_else(|| format!("--spin '{text}' is none of on, brief, off"))
}

/// Reports a target without kernels for a workload's element type as a usage error.
fn check(workloads: &[Workload], target: &Target) -> Result<(), Failure> {
    check_supported(workloads, target).map_err(|e| Failure::Usage(e.to_string()))
}
