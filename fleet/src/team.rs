//! Collector of a team, as tuners and followers see it.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use autotune_db::{Snapshot, TuningRecord};
use autotune_workloads::Workload;

use crate::collected::measured;
use crate::collector_message::{
    Answer, Fingerprint, MAX_PART_BYTES, MAX_RECORDS, NumberedAnswer, NumberedQuestion, Question, from_hex,
};
use crate::crew::greet;
use crate::error::FleetError;
use crate::message::{FleetBuild, WorkerMessage, decode, encode};
use crate::params::FleetParams;
use crate::transport::{Arrival, Dial, Wire};

/// Intervals at which the caller is asked whether to stop, and while connecting.
const POLL: Duration = Duration::from_millis(50);
const GREET_POLL: Duration = Duration::from_millis(1);

/// Largest snapshot that is fetched.
const MAX_SNAPSHOT_BYTES: u64 = 1 << 32;

/// Number of times that a snapshot is fetched from the start, after it was replaced meanwhile.
const FETCHES: usize = 5;

/// Connection with a collector, made anew when it is lost. Questions are asked again until they are
/// answered, a few times.
pub struct TeamMemory {
    dial: Arc<dyn Dial>,
    params: FleetParams,
    build: FleetBuild,
    is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>,
    wire: Option<Wire>,
    name: String,
    asked: u64,
}

/// Result of storing records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRecords {
    /// Number of records that were new to the collector.
    pub new: usize,
    /// Number of records that it refused, with the reason for the first.
    pub refused: usize,
    /// Reason for the first refusal.
    pub reason: Option<String>,
}

impl TeamMemory {
    /// Connects to a collector. `is_interrupted` is asked several times a second whether to stop.
    ///
    /// # Errors
    /// [`FleetError::Collector`] if it cannot be reached, or is of another version.
    pub fn connect(
        dial: Arc<dyn Dial>,
        params: &FleetParams,
        build: &FleetBuild,
        is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Result<Self, FleetError> {
        let (params, build, name) = (params.clone(), build.clone(), dial.address());
        let mut memory = Self { dial, params, build, is_interrupted, wire: None, name, asked: 0 };
        memory.greet()?;
        // A worker would refuse a question.
        memory.lacking(&[])?;
        Ok(memory)
    }

    /// Returns a further connection with the collector, which is made when it is first needed.
    pub fn another(&self, params: FleetParams) -> Self {
        let (dial, is_interrupted) = (Arc::clone(&self.dial), Arc::clone(&self.is_interrupted));
        Self { dial, params, build: self.build.clone(), is_interrupted, wire: None, name: self.name.clone(), asked: 0 }
    }

    /// Returns the name of the collector.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn error(&self, cause: impl Into<String>) -> FleetError {
        FleetError::Collector { address: self.dial.address(), cause: cause.into() }
    }

    /// Connects in a thread, since transports do so in one step that cannot be interrupted.
    fn greet(&mut self) -> Result<(), FleetError> {
        let (dial, build, params) = (Arc::clone(&self.dial), self.build.clone(), self.params.clone());
        let thread = thread::spawn(move || greet(&*dial, &build, &params));
        while !thread.is_finished() {
            if (self.is_interrupted)() {
                return Err(FleetError::Interrupted);
            }
            thread::sleep(GREET_POLL);
        }

        let greeted = thread.join().unwrap_or_else(|_| Err(self.error("connecting ended by a fault"))).map_err(
            |error| match error {
                FleetError::Unreachable { cause, .. } => self.error(format!("it is unreachable: {cause}")),
                FleetError::Version { cause, .. }
                | FleetError::Full { cause, .. }
                | FleetError::Refused { cause, .. } => self.error(cause),
                other => other,
            },
        );
        let (wire, name, _) = greeted?;
        (self.wire, self.name) = (Some(wire), name);
        Ok(())
    }

    /// Asks a question until it is answered.
    fn ask(&mut self, question: &Question) -> Result<Answer, FleetError> {
        self.asked += 1;
        let asked = NumberedQuestion { number: self.asked, question: question.clone() };
        let frame = encode(&asked).map_err(|cause| self.error(cause))?;
        let mut failure = None;
        for _ in 0..self.params.deliveries.max(1) {
            if self.wire.is_none()
                && let Err(error) = self.greet()
            {
                match error {
                    FleetError::Interrupted => return Err(error),
                    _ => failure = Some(error),
                }
                continue;
            }
            match self.exchange(&frame) {
                Ok(Answer::Failed { reason }) => return Err(self.error(reason)),
                Ok(answer) => return Ok(answer),
                Err(error @ FleetError::Interrupted) => return Err(error),
                Err(error) => (self.wire, failure) = (None, Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| self.error("it does not answer")))
    }

    /// Sends a question, and waits for its answer.
    fn exchange(&mut self, frame: &[u8]) -> Result<Answer, FleetError> {
        let (start, number) = (Instant::now(), self.asked);
        let Some(mut wire) = self.wire.take() else { return Err(self.error("it is not connected")) };
        wire.sender.send(frame).map_err(|error| self.error(error.to_string()))?;
        while start.elapsed() < self.params.lease {
            if (self.is_interrupted)() {
                return Err(FleetError::Interrupted);
            }
            let frame = match wire.receiver.receive(POLL.min(self.params.lease)) {
                Ok(Arrival::Frame(frame)) => frame,
                Ok(Arrival::Nothing) => continue,
                Ok(Arrival::End) => return Err(self.error("it ended the connection")),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(self.error(format!("it is no program of autotune: {error}")));
                }
                Err(error) => return Err(self.error(error.to_string())),
            };

            match decode(&frame) {
                Ok(NumberedAnswer { number: of, answer }) if of == number => {
                    self.wire = Some(wire);
                    return Ok(answer);
                }
                // An answer may be repeated, or overtaken by a later one.
                Ok(_) => {}
                Err(reason) => match decode(&frame) {
                    Ok(WorkerMessage::Refused { reason, .. }) => {
                        return Err(self.error(format!("it is no collector of this version: {reason}")));
                    }
                    Ok(WorkerMessage::Welcome { .. } | WorkerMessage::Progress { .. }) => {}
                    Ok(_) | Err(_) => return Err(self.error(reason)),
                },
            }
        }
        Err(self.error("it does not answer"))
    }

    fn unexpected(&self) -> FleetError {
        self.error("its answer is not one to the question")
    }

    /// Returns the positions of the records that the collector lacks.
    ///
    /// # Errors
    /// [`FleetError::Collector`] if it does not answer.
    pub fn lacking(&mut self, records: &[Fingerprint]) -> Result<Vec<usize>, FleetError> {
        let mut lacking = Vec::new();
        let mut start = 0;
        loop {
            let part = &records[start..records.len().min(start + MAX_RECORDS)];
            let Answer::Lacking { positions } = self.ask(&Question::Offer { records: part.to_vec() })? else {
                return Err(self.unexpected());
            };
            lacking.extend(positions.into_iter().filter(|position| *position < part.len()).map(|p| start + p));
            start += part.len();
            if start >= records.len() {
                return Ok(lacking);
            }
        }
    }

    /// Stores records durably, given as lines of a database. Records that the collector has already
    /// are not stored again.
    ///
    /// # Errors
    /// [`FleetError::Collector`] if it does not answer, or cannot store them. Some may be stored
    /// then.
    pub fn store(&mut self, lines: &[String]) -> Result<StoredRecords, FleetError> {
        let mut stored = StoredRecords::default();
        let mut left = lines;
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = |line: &&String| {
                bytes += line.len();
                bytes <= MAX_PART_BYTES
            };
            let count = left.iter().take(MAX_RECORDS).take_while(fits).count().max(1);
            let (part, rest) = left.split_at(count);
            let Answer::Stored { new, refused, reason } = self.ask(&Question::Store { lines: part.to_vec() })? else {
                return Err(self.unexpected());
            };
            stored.new += new;
            stored.refused += refused;
            stored.reason = stored.reason.or(reason);
            left = rest;
        }
        Ok(stored)
    }

    /// Returns the measured records of a task from a position on, 0 for all, and the position after
    /// them. Leaves out what the team's database has besides, such as imported records.
    ///
    /// # Errors
    /// [`FleetError::Collector`] if it does not answer, or sends a record of another task.
    pub fn recall(
        &mut self,
        workload: &Workload,
        target: &str,
        mut from: u64,
    ) -> Result<(Vec<TuningRecord>, u64), FleetError> {
        let mut records = Vec::new();
        loop {
            let question = Question::Recall { target: target.into(), workload: workload.to_string(), from };
            let Answer::Records { lines, next } = self.ask(&question)? else { return Err(self.unexpected()) };
            for line in &lines {
                let Ok(record) = measured(line) else { continue };
                if record.target != target || record.workload != *workload {
                    return Err(self.error("it sent a record of another task"));
                }
                records.push(record);
            }
            match next {
                Some(next) if next > from && !lines.is_empty() => from = next,
                _ => return Ok((records, from)),
            }
        }
    }

    /// Returns the present snapshot, with its fingerprint; `None` if it is the known one, or if the
    /// collector has no schedules yet.
    ///
    /// # Errors
    /// [`FleetError::Collector`] if it does not answer, or sends something other than a snapshot.
    pub fn snapshot(&mut self, known: Option<Fingerprint>) -> Result<Option<(Fingerprint, Snapshot)>, FleetError> {
        for _ in 0..FETCHES {
            let (mut bytes, mut whole) = (Vec::new(), None);
            loop {
                let from = bytes.len() as u64;
                let (snapshot, len, part) = match self.ask(&Question::Snapshot { known, from })? {
                    Answer::Current => return Ok(None),
                    Answer::Snapshot { snapshot, len, part } if len <= MAX_SNAPSHOT_BYTES => (snapshot, len, part),
                    _ => return Err(self.unexpected()),
                };
                // It was replaced meanwhile.
                if whole.is_some_and(|whole| whole != snapshot) {
                    break;
                }
                whole = Some(snapshot);
                let part = from_hex(&part).filter(|part| !part.is_empty());
                bytes.extend(part.ok_or_else(|| self.error("it sent a part of a snapshot without content"))?);
                if bytes.len() as u64 >= len {
                    return self.checked(bytes, snapshot).map(Some);
                }
            }
        }
        Err(self.error("its snapshot changes faster than it can be fetched"))
    }

    fn checked(&self, bytes: Vec<u8>, fingerprint: Fingerprint) -> Result<(Fingerprint, Snapshot), FleetError> {
        if Fingerprint::of(&bytes) != fingerprint {
            return Err(self.error("it sent a damaged snapshot"));
        }
        let snapshot = Snapshot::from_bytes(bytes).map_err(|error| self.error(error.to_string()))?;
        Ok((fingerprint, snapshot))
    }
}
