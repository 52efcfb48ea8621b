//! Connections of a tuner with its workers: a thread for each connects, reads, and connects again
//! when the connection was lost.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use autotune_schedules::Candidate;

use crate::error::FleetError;
use crate::message::{DeviceWish, FleetBuild, OpenedDevice, Refusal, TunerMessage, WorkerMessage, decode, encode};
use crate::params::FleetParams;
use crate::transport::{Arrival, Dial, FindWorkers, FrameReceiver, FrameSender, Wire};

/// Interval at which a thread that waits looks whether the tuner has ended.
const POLL: Duration = Duration::from_millis(50);

/// Half of a connection with which the tuner and the reading thread send.
#[derive(Clone)]
pub(crate) struct Outbound(Arc<Mutex<Box<dyn FrameSender>>>);

impl Outbound {
    pub(crate) fn send(&self, message: &TunerMessage) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).send(&frame)
    }
}

/// Event of a worker, or a batch that was proposed meanwhile.
pub(crate) enum CrewEvent {
    /// The worker opened its device.
    Joined {
        worker: usize,
        name: String,
        opened: Box<OpenedDevice>,
        outbound: Outbound,
    },
    /// An attempt to connect failed. It is repeated if the failure is temporary.
    Failed {
        worker: usize,
        error: FleetError,
    },
    /// The connection ended, and with it the worker's leases.
    Left {
        worker: usize,
        why: String,
    },
    Message {
        worker: usize,
        message: WorkerMessage,
    },
    /// A worker that is there now.
    Found(Arc<dyn Dial>),
    /// Batch for a run of batches; empty at its end.
    Proposed {
        run: u64,
        candidates: Vec<Candidate>,
    },
}

/// Threads of all connections. Dropping it ends them.
pub(crate) struct Crew {
    events: Receiver<CrewEvent>,
    sender: Sender<CrewEvent>,
    wish: DeviceWish,
    build: FleetBuild,
    params: FleetParams,
    is_over: Arc<AtomicBool>,
}

impl Crew {
    /// Returns a crew without connections.
    pub(crate) fn new(wish: &DeviceWish, build: &FleetBuild, params: &FleetParams) -> Self {
        let (sender, events) = mpsc::channel();
        let (wish, build, params) = (wish.clone(), build.clone(), params.clone());
        Self { events, sender, wish, build, params, is_over: Arc::new(AtomicBool::new(false)) }
    }

    /// Starts to connect to a worker. With `is_brief` the first failure ends the attempts.
    pub(crate) fn join(&self, worker: usize, dial: Arc<dyn Dial>, is_brief: bool) {
        let member = CrewMember {
            worker,
            dial,
            is_brief,
            wish: self.wish.clone(),
            build: self.build.clone(),
            params: self.params.clone(),
            events: self.sender.clone(),
            is_over: Arc::clone(&self.is_over),
        };
        thread::spawn(move || member.stay_connected());
    }

    /// Starts to look for workers again and again.
    pub(crate) fn look_for_workers(&self, find: FindWorkers) {
        let (events, is_over, interval) = (self.sender.clone(), Arc::clone(&self.is_over), self.params.find);
        thread::spawn(move || {
            while !pause(interval, &is_over) {
                for dial in find() {
                    if events.send(CrewEvent::Found(dial)).is_err() {
                        return;
                    }
                }
            }
        });
    }

    /// Returns the next event; `None` if there is none in time.
    pub(crate) fn next(&self, wait: Duration) -> Option<CrewEvent> {
        self.events.recv_timeout(wait).ok()
    }

    /// Returns a sender of further events.
    pub(crate) fn sender(&self) -> Sender<CrewEvent> {
        self.sender.clone()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// Waits, and returns true if the tuner ended meanwhile.
fn pause(time: Duration, is_over: &AtomicBool) -> bool {
    let start = Instant::now();
    while start.elapsed() < time && !is_over.load(Ordering::SeqCst) {
        thread::sleep(POLL.min(time));
    }
    is_over.load(Ordering::SeqCst)
}

/// Thread of one connection.
struct CrewMember {
    worker: usize,
    dial: Arc<dyn Dial>,
    is_brief: bool,
    wish: DeviceWish,
    build: FleetBuild,
    params: FleetParams,
    events: Sender<CrewEvent>,
    is_over: Arc<AtomicBool>,
}

impl CrewMember {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn stay_connected(&self) {
        let worker = self.worker;
        let mut has_joined = false;
        while !self.is_over() {
            let event = match self.connect() {
                Ok((outbound, mut receiver)) => {
                    has_joined = true;
                    let why = self.read(&outbound, &mut *receiver);
                    CrewEvent::Left { worker, why }
                }
                Err(error) => CrewEvent::Failed { worker, error },
            };
            // A worker that was of use once may be so again, such as after an update.
            let is_last = match &event {
                CrewEvent::Failed { error, .. } => self.is_brief || !has_joined && !error.is_temporary(),
                _ => false,
            };
            if self.events.send(event).is_err() || is_last || pause(self.params.retry, &self.is_over) {
                return;
            }
        }
    }

    /// Connects, and opens the device.
    fn connect(&self) -> Result<(Outbound, Box<dyn FrameReceiver>), FleetError> {
        let (wire, name, _) = greet(&*self.dial, &self.build, &self.params)?;
        let Wire { sender, mut receiver, .. } = wire;
        let outbound = Outbound(Arc::new(Mutex::new(sender)));
        let address = self.dial.address();
        let unreachable = |cause: String| FleetError::Unreachable { address: address.clone(), cause };
        outbound.send(&TunerMessage::Open(self.wish.clone())).map_err(|error| unreachable(error.to_string()))?;

        let start = Instant::now();
        while start.elapsed() < self.params.opening && !self.is_over() {
            if let Some(WorkerMessage::Opened(opened)) = next_message(&mut *receiver, POLL, &address)? {
                let joined = CrewEvent::Joined { worker: self.worker, name, opened, outbound: outbound.clone() };
                let _ = self.events.send(joined);
                return Ok((outbound, receiver));
            }
        }
        Err(unreachable("it opened no device in time".into()))
    }

    /// Passes on messages until the connection ends, and returns the reason.
    fn read(&self, outbound: &Outbound, receiver: &mut dyn FrameReceiver) -> String {
        let (mut heard, mut told) = (Instant::now(), Instant::now());
        // A thousand such threads that wake up at every `POLL` take a fifth of a core.
        let wait = POLL.max(self.params.progress / 4);
        while !self.is_over() {
            if told.elapsed() >= self.params.progress {
                told = Instant::now();
                if let Err(error) = outbound.send(&TunerMessage::Alive) {
                    return error.to_string();
                }
            }
            let frame = match receiver.receive(wait) {
                Ok(Arrival::Frame(frame)) => frame,
                Ok(Arrival::Nothing) if heard.elapsed() < self.params.silence => continue,
                Ok(Arrival::Nothing) => return "it is silent".into(),
                Ok(Arrival::End) => return "the connection ended".into(),
                Err(error) => return error.to_string(),
            };

            heard = Instant::now();
            match decode(&frame) {
                Ok(WorkerMessage::Refused { reason, .. }) => return reason,
                Ok(message) => {
                    if self.events.send(CrewEvent::Message { worker: self.worker, message }).is_err() {
                        break;
                    }
                }
                Err(reason) => return reason,
            }
        }
        "the tuner ended".into()
    }
}

/// Connects to a worker and exchanges greetings. Returns the connection, and the worker's name and
/// version.
pub(crate) fn greet(
    dial: &dyn Dial,
    build: &FleetBuild,
    params: &FleetParams,
) -> Result<(Wire, String, FleetBuild), FleetError> {
    let address = dial.address();
    let unreachable = |cause: String| FleetError::Unreachable { address: address.clone(), cause };
    let foreign = |cause: String| FleetError::Version { address: address.clone(), cause };
    let mut wire = dial.dial(params.greeting)?;
    let hello = encode(&TunerMessage::Hello { build: build.clone() }).map_err(unreachable)?;
    wire.sender.send(&hello).map_err(|error| unreachable(error.to_string()))?;

    let start = Instant::now();
    while start.elapsed() < params.greeting {
        let left = params.greeting.saturating_sub(start.elapsed());
        match next_message(&mut *wire.receiver, left, &address)? {
            Some(WorkerMessage::Welcome { build: theirs, name }) if theirs.agrees_with(build) => {
                return Ok((wire, name, theirs));
            }
            Some(WorkerMessage::Welcome { build: theirs, .. }) => {
                return Err(foreign(format!("it is {theirs}, this is {build}")));
            }
            // Progress may overtake the answer.
            Some(_) | None => {}
        }
    }
    Err(unreachable("it does not answer".into()))
}

fn refused(refusal: Refusal, cause: String, address: &str) -> FleetError {
    let address = address.to_string();
    match refusal {
        Refusal::Version => FleetError::Version { address, cause },
        Refusal::Full => FleetError::Full { address, cause },
        Refusal::NoDevice => FleetError::NoDevice { address, cause },
        Refusal::Invalid => FleetError::Refused { address, cause },
    }
}

/// Waits for one message; `None` if none arrives in time. A refusal is an error.
pub(crate) fn next_message(
    receiver: &mut dyn FrameReceiver,
    wait: Duration,
    address: &str,
) -> Result<Option<WorkerMessage>, FleetError> {
    let unreachable = |cause: String| FleetError::Unreachable { address: address.into(), cause };
    match receiver.receive(wait) {
        Ok(Arrival::Frame(frame)) => match decode(&frame) {
            Ok(WorkerMessage::Refused { refusal, reason }) => Err(refused(refusal, reason, address)),
            Ok(message) => Ok(Some(message)),
            Err(cause) => Err(FleetError::Version { address: address.into(), cause }),
        },
        Ok(Arrival::Nothing) => Ok(None),
        Ok(Arrival::End) => Err(unreachable("it ended the connection".into())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let cause = format!("it is no program of autotune: {error}");
            Err(FleetError::Version { address: address.into(), cause })
        }
        Err(error) => Err(unreachable(error.to_string())),
    }
}
