//! Worker of a fleet: offers the devices of its machine to tuners.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::connections::Connections;
use crate::desk::{Desk, FleetJob};
use crate::exposition::exposition;
use crate::measuring::measure_jobs;
use crate::message::{FleetBuild, Refusal, TunerMessage, WorkerMessage, WorkerState, check_count, decode, encode};
use crate::metrics::MetricsPlace;
use crate::params::{FleetParams, MAX_UNREAD};
use crate::transport::{Arrival, FrameReceiver, FrameSender, Listen, Wire};
use crate::work_device::OpenDevice;

/// Settings of a worker.
pub struct WorkerOptions {
    /// Name for people, such as the host's.
    pub name: String,
    /// Time without tuners after which the worker ends; `None` means never.
    pub exit_when_idle: Option<Duration>,
    /// Times and limits.
    pub params: FleetParams,
    /// Version that the worker reports.
    pub build: FleetBuild,
    /// Address at which the worker states its metrics; `None` means nowhere.
    pub metrics: Option<MetricsPlace>,
}

impl WorkerOptions {
    /// Returns the default settings of a worker that serves until it is stopped.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            exit_when_idle: None,
            params: FleetParams::default(),
            build: FleetBuild::own(),
            metrics: None,
        }
    }
}

/// Serves tuners until `is_stopped` returns true or the worker has been idle for long enough. Then
/// the present batch is returned to its tuner with all others, within two seconds. Returns the last
/// state. `notice` receives lines for people.
///
/// # Errors
/// If connections can no longer be accepted, or measuring ended by a fault of this program.
pub fn serve_fleet(
    mut listeners: Vec<Box<dyn Listen>>,
    mut devices: Box<dyn OpenDevice>,
    options: &WorkerOptions,
    is_stopped: &dyn Fn() -> bool,
    notice: impl Fn(String) + Clone + Send + 'static,
) -> io::Result<WorkerState> {
    let desk = Arc::new(Desk::new(devices.own_key()));
    let measuring = {
        let desk = Arc::clone(&desk);
        thread::spawn(move || measure_jobs(&desk, &mut *devices))
    };
    let _metrics = options.metrics.as_ref().map(|place| {
        let (desk, name, build) = (Arc::clone(&desk), options.name.clone(), options.build.clone());
        place.serve(move || exposition(&name, &build, &desk.figures()))
    });
    let serving = || {
        let connection = Connection::new(&desk, options, notice.clone());
        move |wire| connection.serve(wire)
    };
    let (mut connections, mut accepted) = (Connections::default(), Ok(()));
    let is_idle = || options.exit_when_idle.is_some_and(|limit| desk.idle().is_some_and(|idle| idle >= limit));

    while accepted.is_ok() && !is_stopped() && !is_idle() && !measuring.is_finished() {
        accepted = connections.accept(&mut listeners, serving);
    }

    let is_fault = measuring.is_finished();
    drop(listeners);
    desk.stop();
    let measured = measuring.join();
    let state = desk.state();
    desk.dismiss();
    connections.wait();
    accepted?;
    match measured {
        Err(_) => Err(io::Error::other("measuring ended by a fault of the program")),
        Ok(()) if is_fault => Err(io::Error::other("measuring ended")),
        Ok(()) => Ok(state),
    }
}

/// Connection with a tuner, served by a thread that reads and one that writes.
struct Connection<N> {
    desk: Arc<Desk>,
    name: String,
    params: FleetParams,
    build: FleetBuild,
    notice: N,
}

impl<N: Fn(String)> Connection<N> {
    fn new(desk: &Arc<Desk>, options: &WorkerOptions, notice: N) -> Self {
        let WorkerOptions { name, params, build, .. } = options;
        Self { desk: Arc::clone(desk), name: name.clone(), params: params.clone(), build: build.clone(), notice }
    }

    fn serve(&self, wire: Wire) {
        let Wire { peer, mut sender, mut receiver } = wire;
        if let Err((refusal, reason)) = read_greeting(&mut *receiver, &self.build, &self.params) {
            let _ = send(&mut *sender, &WorkerMessage::Refused { refusal, reason });
            return;
        }
        let (outbox, messages) = mpsc::sync_channel(MAX_UNREAD);
        let tuner = match self.desk.join(outbox.clone()) {
            Ok(tuner) => tuner,
            Err((refusal, reason)) => {
                let _ = send(&mut *sender, &WorkerMessage::Refused { refusal, reason });
                return;
            }
        };

        let welcome = WorkerMessage::Welcome { build: self.build.clone(), name: self.name.clone() };
        let _ = outbox.try_send(welcome);
        drop(outbox);
        let (desk, progress) = (Arc::clone(&self.desk), self.params.progress);
        let writing = thread::spawn(move || write(&desk, tuner, sender, &messages, progress));
        if let Err((refusal, reason)) = self.read(tuner, &peer, &mut *receiver) {
            (self.notice)(format!("tuner {peer} is refused: {reason}"));
            self.desk.tell(tuner, WorkerMessage::Refused { refusal, reason });
        }
        self.desk.leave(tuner);
        let _ = writing.join();
    }

    /// Reads messages until the connection ends.
    fn read(&self, tuner: u64, peer: &str, receiver: &mut dyn FrameReceiver) -> Result<(), (Refusal, String)> {
        let mut heard = Instant::now();
        let mut has_device = false;
        while self.desk.leases(tuner).is_some() {
            let frame = match receiver.receive(self.params.progress) {
                Ok(Arrival::Frame(frame)) => frame,
                Ok(Arrival::Nothing) if heard.elapsed() < self.params.silence => continue,
                Ok(Arrival::Nothing | Arrival::End) => break,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err((Refusal::Invalid, error.to_string()));
                }
                Err(_) => break,
            };
            heard = Instant::now();
            let message = decode(&frame).map_err(|reason| (Refusal::Invalid, reason))?;
            if let TunerMessage::Open(wish) = &message {
                has_device = true;
                (self.notice)(format!("tuner {peer} asks for {}", wish.target));
            }
            self.act(tuner, message)?;
        }

        if has_device {
            (self.notice)(format!("tuner {peer} left"));
        }
        Ok(())
    }

    fn act(&self, tuner: u64, message: TunerMessage) -> Result<(), (Refusal, String)> {
        let invalid = |reason: String| (Refusal::Invalid, reason);
        match message {
            // A transport may repeat the greeting.
            TunerMessage::Hello { .. } | TunerMessage::Alive => Ok(()),
            TunerMessage::State => {
                self.desk.tell(tuner, WorkerMessage::State(self.desk.state()));
                Ok(())
            }

            TunerMessage::Open(wish) => self.desk.enqueue(tuner, FleetJob::Open(wish)),
            TunerMessage::Measure(batch) => {
                check_count(batch.wishes.len()).map_err(invalid)?;
                self.desk.enqueue(tuner, FleetJob::Measure(batch))
            }
            TunerMessage::Race { lease, racers, budget_secs } => {
                check_count(racers.len()).map_err(invalid)?;
                if !(budget_secs.is_finite() && (0.0..=3600.0).contains(&budget_secs)) {
                    return Err(invalid(format!("a race of {budget_secs} s")));
                }
                self.desk.enqueue(tuner, FleetJob::Race { lease, racers, budget_secs })
            }
            TunerMessage::Return { lease } => {
                self.desk.give_back(tuner, lease);
                Ok(())
            }
        }
    }
}

/// Waits for the greeting of a tuner, and compares the versions.
pub(crate) fn read_greeting(
    receiver: &mut dyn FrameReceiver,
    own: &FleetBuild,
    params: &FleetParams,
) -> Result<(), (Refusal, String)> {
    let invalid = |reason: String| (Refusal::Invalid, reason);
    let first = match receiver.receive(params.greeting) {
        Ok(Arrival::Frame(frame)) => decode(&frame).map_err(invalid)?,
        Ok(Arrival::Nothing | Arrival::End) => return Err(invalid("no greeting".into())),
        Err(error) => return Err(invalid(error.to_string())),
    };
    match first {
        TunerMessage::Hello { build } if build.agrees_with(own) => Ok(()),
        TunerMessage::Hello { build } => Err((Refusal::Version, format!("it is {own}, the tuner {build}"))),
        _ => Err(invalid("the first message is no greeting".into())),
    }
}

fn send(sender: &mut dyn FrameSender, message: &WorkerMessage) -> io::Result<()> {
    sender.send(&encode(message).map_err(io::Error::other)?)
}

/// Writes messages to a tuner until the desk has removed it, and reports progress in between.
fn write(
    desk: &Desk,
    tuner: u64,
    mut sender: Box<dyn FrameSender>,
    messages: &Receiver<WorkerMessage>,
    progress: Duration,
) {
    let mut told = Instant::now();
    loop {
        let sent = match messages.recv_timeout(progress.saturating_sub(told.elapsed())) {
            Ok(message) => send(&mut *sender, &message),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => Ok(()),
        };

        let is_due = told.elapsed() >= progress;
        let sent = sent.and_then(|()| match desk.leases(tuner).filter(|_| is_due) {
            Some(leases) => {
                told = Instant::now();
                send(&mut *sender, &WorkerMessage::Progress { leases })
            }
            None => Ok(()),
        });
        if sent.is_err() {
            desk.leave(tuner);
            return;
        }
    }
}
