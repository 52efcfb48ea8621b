//! What a measurer and its worker say to each other: JSON with its length before it, over the worker's standard input
//! and output.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::builder::Built;
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;

/// Changes with every change of the messages: measurer and worker must be of one version.
pub(crate) const VERSION: u32 = 1;

/// Largest message; more is noise that something else wrote.
const MAX_BYTES: u32 = 64 << 20;

/// A kernel to be run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) built: Built,
    /// File with the operands and the reference.
    pub(crate) problem: PathBuf,
}

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) timing: TimingOptions,
    pub(crate) memory_slack_bytes: usize,
    pub(crate) task: Task,
}

/// One kernel alone or several in turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    Time { job: Box<Job>, incumbent_secs: Option<f64> },
    Race { jobs: Vec<Job> },
}

/// What the worker says: `Hello` once, then for each request `Started` and `Done`, or `Failed`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    /// Ready.
    Hello { version: u32 },
    /// From here on a death is the kernel's doing.
    Started { memory: MemoryAtStart },
    /// One outcome per job.
    Done { outcomes: Vec<Result<RunSecs, CandidateError>> },
    /// The request cannot be carried out; not a kernel's fault.
    Failed { message: String },
}

/// Memory of the worker before a kernel ran, to tell a death for want of memory from others.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MemoryAtStart {
    /// Private writable memory.
    pub(crate) data_bytes: usize,
    /// What the worker may allocate on top of what it has.
    pub(crate) allowance_bytes: usize,
}

/// Writes one message.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let len = u32::try_from(body.len()).ok().filter(|&len| len <= MAX_BYTES);
    let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the message is too long"))?;
    let mut frame = len.to_le_bytes().to_vec();
    frame.extend(body);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads one message; `None` at a proper end.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u32::from_le_bytes(len);
    if len > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no message"));
    }
    let mut body = vec![0; len as usize];
    from.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let mut pipe = Vec::new();
        send(&mut pipe, &Response::Hello { version: 7 }).unwrap();
        let wrong = CandidateError::WrongResult { max_rel_error: f64::INFINITY, tolerance: 1e-4 };
        send(&mut pipe, &Response::Done { outcomes: vec![Err(wrong.clone())] }).unwrap();
        let mut from = pipe.as_slice();
        assert!(matches!(receive(&mut from), Ok(Some(Response::Hello { version: 7 }))));
        let Ok(Some(Response::Done { outcomes })) = receive(&mut from) else { panic!() };
        assert_eq!(outcomes, [Err(wrong)]);
        assert!(matches!(receive::<Response>(&mut from), Ok(None)));
    }

    #[test]
    fn noise_is_an_error_and_never_a_panic() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for _ in 0..2000 {
            let len = rng.random_range(4..40);
            let mut noise: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            noise[3] = 0;
            noise[2] = 0;
            assert!(receive::<Response>(&mut noise.as_slice()).is_err());
        }
        assert!(receive::<Response>(&mut [0xff; 8].as_slice()).is_err());
    }
}
