//! Messages between a measurer and its worker, over the worker's standard input and output. A
//! message consists of two lengths (32 bits, little-endian), JSON text of the first length, and raw
//! bytes (code) of the second.
//!
//! Other transports can send kernels in the same form, [`Job`], and results as JSON:
//!
//! ```
//! # fn relay(built: &autotune_measure::Built, wire: &mut Vec<u8>) -> std::io::Result<()> {
//! use autotune_measure::protocol::{Job, receive, send};
//!
//! let mut code = Vec::new();
//! let job = Job::new(built, &mut code);
//! send(wire, &job, &code)?;
//! let received: Option<(Job, Vec<u8>)> = receive(&mut wire.as_slice())?;
//! assert_eq!(received.and_then(|(job, code)| job.built(&code)).as_ref(), Some(built));
//! # Ok(()) }
//! ```
//!
//! Running a kernel received over a transport means running foreign code: accept it only from
//! trusted senders.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::PathBuf;

use autotune_ir::{Artifact, Code, GpuTarget, KernelPlan, MachineCode, Target};
use autotune_measurement::{CandidateError, RunSecs};
use autotune_workloads::Workload;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::built::Built;
use crate::ceilings::Ceilings;
use crate::memory::MemoryAtStart;
use crate::nvrtc::CompiledCuda;
use crate::options::TimingOptions;

mod version;

pub(crate) use version::version;

/// Most bytes of a message part; a larger length means that another program wrote to the stream.
const MAX_BYTES: u32 = 64 << 20;

/// Kernel to run, whose code is among the raw bytes of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub(crate) workload: Workload,
    pub(crate) target: Target,
    pub(crate) plan: KernelPlan,
    tolerance: f64,
    code: CodePlace,
}

/// Location of a job's code.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum CodePlace {
    /// Path of a shared object.
    Library(PathBuf),
    /// Range of machine code among the raw bytes, with its entry points.
    Machine { bytes: Range<usize>, code_bytes: usize, entries: Vec<usize> },
    /// Range of a CUDA binary among the raw bytes.
    Cubin(Range<usize>),
    /// Range of OpenCL source among the raw bytes.
    OpenCl(Range<usize>),
}

impl Job {
    /// Returns the job that runs `built`. Appends its code to `raw`.
    pub fn new(built: &Built, raw: &mut Vec<u8>) -> Self {
        let mut place = |bytes: &[u8]| {
            let start = raw.len();
            raw.extend(bytes);
            start..raw.len()
        };
        let Built { workload, artifact: Artifact { target, plan, code }, tolerance } = built;
        let code = match code {
            Code::Library(path) => CodePlace::Library(path.clone()),
            Code::Machine(MachineCode { bytes, code_bytes, entries }) => {
                CodePlace::Machine { bytes: place(bytes), code_bytes: *code_bytes, entries: entries.clone() }
            }
            Code::Cubin(bytes) => CodePlace::Cubin(place(bytes)),
            Code::OpenCl(source) => CodePlace::OpenCl(place(source.as_bytes())),
        };
        let (target, plan) = (target.clone(), plan.clone());
        Self { workload: workload.clone(), target, plan, tolerance: *tolerance, code }
    }

    /// Returns the kernel with its code from the message's raw bytes; `None` if the code is
    /// incomplete.
    pub fn built(&self, raw: &[u8]) -> Option<Built> {
        let code = match &self.code {
            CodePlace::Library(path) => Code::Library(path.clone()),
            CodePlace::Machine { bytes, code_bytes, entries } => Code::Machine(MachineCode {
                bytes: raw.get(bytes.clone())?.to_vec(),
                code_bytes: *code_bytes,
                entries: entries.clone(),
            }),
            CodePlace::Cubin(bytes) => Code::Cubin(raw.get(bytes.clone())?.to_vec()),
            CodePlace::OpenCl(bytes) => Code::OpenCl(String::from_utf8(raw.get(bytes.clone())?.to_vec()).ok()?),
        };
        let Self { workload, target, plan, tolerance, .. } = self;
        let artifact = Artifact { target: target.clone(), plan: plan.clone(), code };
        Some(Built { workload: workload.clone(), artifact, tolerance: *tolerance })
    }
}

/// Request from the measurer to its worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) timing: TimingOptions,
    pub(crate) memory_slack_bytes: usize,
    pub(crate) task: WorkerTask,
}

/// Task of a request: time one kernel, race several, measure a GPU's ceilings, or compile CUDA C
/// for a compute capability (times ten).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum WorkerTask {
    Time { job: Box<Job>, incumbent_secs: Option<f64> },
    Race { jobs: Vec<Job>, budget_secs: f64 },
    Ceilings { target: GpuTarget },
    Compile { source: String, sm: u32 },
}

/// Response of the worker. It sends `Hello` once. To each request it sends `Started` and then
/// `Done`, `Ceilings` or `CompiledCuda`; or it sends `NoMemory` or `Failed`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    /// Sent once: the worker is ready for requests.
    Hello { version: u64 },
    /// Operands and reference are still being made. This may take long and is not a kernel's fault,
    /// so the measurer's time limit starts again.
    Preparing,
    /// From now on a crash is the fault of the kernel or of its source.
    Started { memory: MemoryAtStart },
    /// One outcome per job, and whether a kernel may have damaged the process or the device.
    Done { outcomes: Vec<Result<RunSecs, CandidateError>>, is_spoilt: bool },
    /// Ceilings of the GPU.
    Ceilings { ceilings: Ceilings },
    /// Machine code, or the compiler's error.
    Compiled { outcome: Result<CompiledCuda, CandidateError> },
    /// Operands and reference need more memory than is available.
    NoMemory { workload: Workload, needed_bytes: usize, available_bytes: usize },
    /// The request cannot be carried out, for a reason that is not a kernel's fault.
    Failed { message: String },
}

/// Writes one message and flushes the stream.
///
/// # Errors
/// If text or raw bytes are longer than 64 MiB, or the stream fails.
pub fn send(to: &mut impl Write, message: &impl Serialize, raw: &[u8]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut frame = Vec::with_capacity(8 + text.len() + raw.len());
    for part in [text.as_slice(), raw] {
        let len = u32::try_from(part.len()).ok().filter(|&len| len <= MAX_BYTES);
        let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the message is too long"))?;
        frame.extend(len.to_le_bytes());
    }
    frame.extend(text);
    frame.extend(raw);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads one message and its raw bytes; `None` if the stream ends before the message.
///
/// # Errors
/// If the stream ends within the message or fails, or the text is not of the type.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut lens = [0; 8];
    match from.read_exact(&mut lens) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let [a, b, c, d, e, f, g, h] = lens;
    let [text_len, raw_len] = [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])];
    if text_len.max(raw_len) > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a message of the worker protocol"));
    }
    let text = read_bytes(from, text_len)?;
    let raw = read_bytes(from, raw_len)?;
    Ok(Some((serde_json::from_slice(&text)?, raw)))
}

/// Reads exactly `len` bytes. The buffer grows with the received bytes, so a wrong length does not
/// allocate memory.
fn read_bytes(from: &mut impl Read, len: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match from.take(u64::from(len)).read_to_end(&mut bytes)? {
        read if read == len as usize => Ok(bytes),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let mut pipe = Vec::new();
        send(&mut pipe, &Response::Hello { version: 7 }, &[1, 2, 3]).unwrap();
        let wrong = CandidateError::WrongResult { max_rel_error: f64::INFINITY, tolerance: 1e-4 };
        send(&mut pipe, &Response::Done { outcomes: vec![Err(wrong.clone())], is_spoilt: true }, &[]).unwrap();
        let mut from = pipe.as_slice();
        let Ok(Some((Response::Hello { version: 7 }, raw))) = receive(&mut from) else { panic!() };
        assert_eq!(raw, [1, 2, 3]);
        let Ok(Some((Response::Done { outcomes, is_spoilt: true }, _))) = receive(&mut from) else { panic!() };
        assert_eq!(outcomes, [Err(wrong)]);
        assert!(matches!(receive::<Response>(&mut from), Ok(None)));
    }

    #[test]
    fn jobs_carry_their_machine_code() {
        let target = Target::Cpu(autotune_ir::CpuTarget::generic_avx2(2));
        let plan = KernelPlan { buffers: vec![], stages: vec![], local_bytes: 0, uses_tiles: false };
        let built_of = |code| Built {
            workload: "matmul:m=2,n=3,k=4".parse().unwrap(),
            artifact: Artifact { target: target.clone(), plan: plan.clone(), code },
            tolerance: 1e-4,
        };
        let built = |bytes: &[u8]| {
            built_of(Code::Machine(MachineCode { bytes: bytes.to_vec(), code_bytes: bytes.len(), entries: vec![0] }))
        };
        let (first, second) = (built(&[1, 2, 3]), built(&[4, 5]));
        let mut raw = Vec::new();
        let jobs = [&first, &second].map(|b| Job::new(b, &mut raw));
        assert_eq!(jobs[0].built(&raw), Some(first));
        assert_eq!(jobs[1].built(&raw), Some(second));
        assert_eq!(jobs[1].built(&raw[..4]), None);
        let gpu = [Code::Cubin(vec![1, 2, 3]), Code::OpenCl("__kernel".into())];
        let gpu = gpu.map(built_of);
        let jobs = gpu.each_ref().map(|b| Job::new(b, &mut raw));
        assert_eq!(jobs.map(|job| job.built(&raw)), gpu.map(Some));
    }

    #[test]
    fn damaged_messages_are_messages_or_errors_and_never_a_panic() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let messages = version::examples();
        let (mut understood, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut frame = Vec::new();
            send(&mut frame, &messages[rng.random_range(0..messages.len())], &[1, 2, 3]).unwrap();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..frame.len());
                match rng.random_range(0..4) {
                    0 => frame[at] ^= 1 << rng.random_range(0..8),
                    1 => frame[at] = rng.random(),
                    2 => frame.iter_mut().take(8).for_each(|byte| *byte = rng.random()),
                    _ => frame.truncate(at.max(1)),
                }
            }
            let request = receive::<Request>(&mut frame.as_slice());
            if let Ok(Some((Request { task: WorkerTask::Race { jobs, .. }, .. }, raw))) = &request {
                jobs.iter().for_each(|job| drop(job.built(raw)));
            }
            let is_response = matches!(receive::<Response>(&mut frame.as_slice()), Ok(Some(_)));
            let is_message = matches!(request, Ok(Some(_))) || is_response;
            *(if is_message { &mut understood } else { &mut refused }) += 1;
        }
        assert!(understood > 100 && refused > 1000, "{understood}, {refused}");
    }

    #[test]
    fn noise_is_an_error_and_never_a_panic() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for _ in 0..2000 {
            let len = rng.random_range(8..40);
            let mut noise: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            for high in [2, 3, 6, 7] {
                noise[high] = 0;
            }
            assert!(receive::<Response>(&mut noise.as_slice()).is_err());
        }
        assert!(receive::<Response>(&mut [0xff; 9].as_slice()).is_err());
    }
}
