//! Protocol version, derived from examples of the messages.

use autotune_ir::plan::{Binding, PlanBuffer, PlanStage, TensorBox};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{Artifact, Code, CpuTarget, GpuTarget, KernelPlan, Launch, MachineCode, Target};
use autotune_measurement::{CandidateError, RunSecs};
use autotune_workloads::{Matmul, Workload};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{Job, Request, Response, WorkerTask};
use crate::built::Built;
use crate::ceilings::Ceilings;
use crate::memory::MemoryAtStart;
use crate::nvrtc::CompiledCuda;
use crate::options::TimingOptions;

/// Returns the protocol version: a hash of the crate's version and of an example of every message
/// with all field names and values. Programs whose messages differ have different versions.
pub(crate) fn version() -> u64 {
    hash(&examples())
}

/// Hashes with XXH3, which gives the same result in every program.
fn hash(examples: &[Value]) -> u64 {
    let text = examples.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + env!("CARGO_PKG_VERSION");
    xxh3_64(text.as_bytes())
}

/// Returns an example of every message.
pub(super) fn examples() -> Vec<Value> {
    let tasks = std::iter::successors(Some(first_task()), task_after);
    let requests =
        tasks.map(|task| Request { timing: TimingOptions::default(), memory_slack_bytes: 7, task }).map(as_json);
    let responses = std::iter::successors(Some(Response::Hello { version: 7 }), response_after).map(as_json);
    let targets = [Target::Cpu(CpuTarget::generic_avx2(1))].into_iter().chain(gpu().map(Target::Gpu)).map(as_json);
    requests.chain(responses).chain(targets).collect()
}

fn as_json(message: impl serde::Serialize) -> Value {
    serde_json::to_value(message).unwrap_or_default()
}

/// Returns the example after `task`, one per kind of task.
fn task_after(task: &WorkerTask) -> Option<WorkerTask> {
    match task {
        WorkerTask::Time { .. } => Some(WorkerTask::Race {
            jobs: std::iter::successors(Some(first_code()), code_after).map(job).collect(),
            budget_secs: 1.0,
        }),
        WorkerTask::Race { .. } => gpu().map(|target| WorkerTask::Ceilings { target }),
        WorkerTask::Ceilings { .. } => Some(WorkerTask::Compile { source: "source".into(), sm: 90 }),
        WorkerTask::Compile { .. } => None,
    }
}

fn first_task() -> WorkerTask {
    WorkerTask::Time { job: Box::new(job(first_code())), incumbent_secs: Some(0.5) }
}

fn first_code() -> Code {
    Code::Library("library".into())
}

fn code_after(code: &Code) -> Option<Code> {
    match code {
        Code::Library(_) => Some(Code::Machine(MachineCode { bytes: vec![1, 2], code_bytes: 2, entries: vec![0] })),
        Code::Machine(_) => Some(Code::Cubin(vec![1, 2])),
        Code::Cubin(_) => Some(Code::OpenCl("source".into())),
        Code::OpenCl(_) => None,
    }
}

/// Returns the example after `response`, one per kind of response.
fn response_after(response: &Response) -> Option<Response> {
    match response {
        Response::Hello { .. } => Some(Response::Preparing),
        Response::Preparing => Some(Response::Started { memory: MemoryAtStart { data_bytes: 7, allowance_bytes: 8 } }),
        Response::Started { .. } => Some(Response::Done { outcomes: outcomes(), is_spoilt: true }),
        Response::Done { .. } => Some(Response::Ceilings { ceilings: ceilings() }),
        Response::Ceilings { .. } => {
            let compiled = CompiledCuda { cubin: vec![1], log: "log".into(), compiler: "compiler".into() };
            Some(Response::Compiled { outcome: Ok(compiled) })
        }
        Response::Compiled { .. } => {
            Some(Response::NoMemory { workload: job(first_code()).workload, needed_bytes: 8, available_bytes: 7 })
        }
        Response::NoMemory { .. } => Some(Response::Failed { message: "message".into() }),
        Response::Failed { .. } => None,
    }
}

fn outcomes() -> Vec<Result<RunSecs, CandidateError>> {
    let run = RunSecs {
        run_secs: 0.5,
        median_secs: 0.6,
        spread: 0.1,
        repeats: 7,
        stopped_early: true,
        max_rel_error: 0.2,
        slowdown: 1.1,
        kernel_secs: 0.9,
        graph_runs: 20,
    };
    let first = CandidateError::Lower { message: "message".into() };
    std::iter::once(Ok(run)).chain(std::iter::successors(Some(first), error_after).map(Err)).collect()
}

/// Returns the example after `error`, one per kind of failure.
fn error_after(error: &CandidateError) -> Option<CandidateError> {
    let message = || "message".to_string();
    match error {
        CandidateError::Lower { .. } => Some(CandidateError::Build { message: message() }),
        CandidateError::Build { .. } => Some(CandidateError::BuildTimeout { limit_secs: 0.5 }),
        CandidateError::BuildTimeout { .. } => {
            Some(CandidateError::WrongResult { max_rel_error: f64::INFINITY, tolerance: 0.1 })
        }
        CandidateError::WrongResult { .. } => Some(CandidateError::Crash { message: message() }),
        CandidateError::Crash { .. } => Some(CandidateError::Timeout { limit_secs: 0.5 }),
        CandidateError::Timeout { .. } => Some(CandidateError::StrayWrite { message: message() }),
        CandidateError::StrayWrite { .. } => Some(CandidateError::OutOfMemory { message: message() }),
        CandidateError::OutOfMemory { .. } => None,
    }
}

fn ceilings() -> Ceilings {
    Ceilings {
        core_flops_per_sec: 1.0,
        flops_per_sec: 2.0,
        half_flops_per_sec: 3.0,
        byte_flops_per_sec: 3.5,
        tf32_flops_per_sec: 4.0,
        bytes_per_sec: 5.0,
        read_bytes_per_sec: [6.0, 7.0, 8.0],
        cache_bytes: [9.0, 10.0],
        fork_join_secs: 0.5,
    }
}

fn gpu() -> Option<GpuTarget> {
    GpuTarget::stated("cuda:sm_90")
}

fn job(code: Code) -> Job {
    let buffer = |(role, binding): (Role, Binding), layout| PlanBuffer {
        name: "name".into(),
        role,
        binding,
        shape: vec![1, 2],
        layout,
        dtype: Default::default(),
    };
    let constant = (Role::Operand(1), Binding::Constant { read_in_runs: true });
    let launch = Launch { blocks: 1, threads: 2, shared_bytes: 3 };
    let boxes = vec![TensorBox { buffer: 0, shape: [8, 9] }];
    let stage =
        |when| PlanStage { symbol: "symbol".into(), when, tasks: 4, launch: Some(launch), boxes: boxes.clone() };

    let plan = KernelPlan {
        buffers: vec![
            buffer((Role::Operand(0), Binding::Data), Layout::Plain),
            buffer(constant, Layout::Plain),
            buffer((Role::Output, Binding::Output), Layout::ChannelBlocked(2)),
        ],
        stages: vec![stage(When::AheadOfTime), stage(When::EveryRun)],
        local_bytes: 5,
        uses_tiles: true,
    };

    let workload = Workload::new(Matmul::new(1, 2, 3, 4));
    let workload = workload.unwrap_or_else(|error| unreachable!("the sizes are valid: {error}"));
    let target = Target::Cpu(CpuTarget::generic_avx2(2));
    let artifact = Artifact { target, plan, code };
    Job::new(&Built { workload, artifact, tolerance: 0.1 }, &mut Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_every_value_of_a_message_counts() {
        let right = examples();
        let text = right.iter().map(Value::to_string).collect::<String>();
        for word in ["incumbent_secs", "Cubin", "wrong_result", "is_spoilt", "NoMemory", "available_bytes", "l3_bytes"]
        {
            assert!(text.contains(word), "{word} is in no example");
        }
        for (index, message) in right.iter().enumerate() {
            for path in paths(message) {
                let mut changed = right.clone();
                *changed[index].pointer_mut(&path).unwrap() = Value::from("something else");
                assert_ne!(hash(&changed), hash(&right), "{path}");
            }
        }
        assert_eq!(version(), hash(&right));
    }

    /// Returns the JSON pointers of all values.
    fn paths(value: &Value) -> Vec<String> {
        let below = |(name, value): (String, &Value)| {
            let inner = paths(value).into_iter().map(move |path| format!("/{name}{path}"));
            inner.collect::<Vec<_>>()
        };
        let mut all = vec![String::new()];
        match value {
            Value::Object(fields) => {
                all.extend(fields.iter().map(|(name, value)| (name.clone(), value)).flat_map(below))
            }
            Value::Array(items) => {
                all.extend(items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).flat_map(below));
            }
            _ => {}
        }
        all
    }
}
