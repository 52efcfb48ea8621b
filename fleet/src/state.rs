//! State of workers, for people.

use std::time::Instant;

use crate::crew::{greet, next_message};
use crate::error::FleetError;
use crate::message::{FleetBuild, TunerMessage, WorkerMessage, WorkerState, encode};
use crate::params::FleetParams;
use crate::transport::Dial;

/// Answer of a worker to the question for its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Queried {
    /// Name of the worker.
    pub name: String,
    /// Version of the worker.
    pub build: FleetBuild,
    /// State of the worker.
    pub state: WorkerState,
}

/// Asks a worker for its state.
///
/// # Errors
/// If it cannot be reached, refuses, or is of another version.
pub fn query(dial: &dyn Dial, params: &FleetParams) -> Result<Queried, FleetError> {
    let (mut wire, name, build) = greet(dial, &FleetBuild::own(), params)?;
    let unreachable = |cause: String| FleetError::Unreachable { address: dial.address(), cause };
    let question = encode(&TunerMessage::State).map_err(unreachable)?;
    wire.sender.send(&question).map_err(|error| unreachable(error.to_string()))?;

    let start = Instant::now();
    while start.elapsed() < params.greeting {
        let left = params.greeting.saturating_sub(start.elapsed());
        if let Some(WorkerMessage::State(state)) = next_message(&mut *wire.receiver, left, &dial.address())? {
            return Ok(Queried { name, build, state });
        }
    }
    Err(unreachable("it does not answer".into()))
}
