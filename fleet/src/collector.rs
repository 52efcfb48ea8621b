//! Collector: receives the records that the tuners of a team store, and answers from its database.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;

use crate::collected::Collected;
use crate::collector_message::{NumberedAnswer, NumberedQuestion};
use crate::connections::{Connections, POLL};
use crate::message::{FleetBuild, Refusal, TunerMessage, WorkerMessage, decode, encode};
use crate::params::FleetParams;
use crate::transport::{Arrival, FrameReceiver, FrameSender, Listen, Wire};
use crate::worker::read_greeting;

/// Settings of a collector.
pub struct CollectorOptions {
    /// Name for people.
    pub name: String,
    /// Times and limits.
    pub params: FleetParams,
    /// Version that the collector reports.
    pub build: FleetBuild,
}

impl CollectorOptions {
    /// Returns the default settings.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), params: FleetParams::default(), build: FleetBuild::own() }
    }
}

/// Serves tuners and followers until `is_stopped` returns true. `notice` receives lines for people.
///
/// # Errors
/// If connections can no longer be accepted.
pub fn serve_collector(
    mut listeners: Vec<Box<dyn Listen>>,
    collected: &Arc<Collected>,
    options: &CollectorOptions,
    is_stopped: &dyn Fn() -> bool,
    notice: impl Fn(String) + Clone + Send + 'static,
) -> io::Result<()> {
    let (is_over, mut connections) = (Arc::new(AtomicBool::new(false)), Connections::default());
    let serving = || {
        let connection = CollectorConnection {
            collected: Arc::clone(collected),
            name: options.name.clone(),
            params: options.params.clone(),
            build: options.build.clone(),
            is_over: Arc::clone(&is_over),
        };
        let notice = notice.clone();
        move |wire| connection.serve(wire, &notice)
    };
    let mut accepted = Ok(());
    while accepted.is_ok() && !is_stopped() {
        accepted = connections.accept(&mut listeners, serving);
    }

    // Answers that are under way are still given; later questions are asked again elsewhere.
    is_over.store(true, Ordering::SeqCst);
    drop(listeners);
    connections.wait();
    accepted
}

/// Connection with a tuner or a follower, served by a thread.
struct CollectorConnection {
    collected: Arc<Collected>,
    name: String,
    params: FleetParams,
    build: FleetBuild,
    is_over: Arc<AtomicBool>,
}

impl CollectorConnection {
    fn serve(&self, wire: Wire, notice: &dyn Fn(String)) {
        let Wire { peer, mut sender, mut receiver } = wire;
        let served = read_greeting(&mut *receiver, &self.build, &self.params).and_then(|()| {
            let welcome = WorkerMessage::Welcome { build: self.build.clone(), name: self.name.clone() };
            match send(&mut *sender, &welcome) {
                Ok(()) => self.answer_all(&mut *sender, &mut *receiver),
                Err(_) => Ok(()),
            }
        });

        if let Err((refusal, reason)) = served {
            notice(format!("{peer} is refused: {reason}"));
            let _ = send(&mut *sender, &WorkerMessage::Refused { refusal, reason });
        }
    }

    /// Answers questions until the connection ends.
    fn answer_all(
        &self,
        sender: &mut dyn FrameSender,
        receiver: &mut dyn FrameReceiver,
    ) -> Result<(), (Refusal, String)> {
        let invalid = |reason: String| (Refusal::Invalid, reason);
        let mut heard = Instant::now();
        while !self.is_over.load(Ordering::SeqCst) {
            let frame = match receiver.receive(POLL) {
                Ok(Arrival::Frame(frame)) => frame,
                Ok(Arrival::Nothing) if heard.elapsed() < self.params.silence => continue,
                Ok(Arrival::Nothing | Arrival::End) => break,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(invalid(error.to_string())),
                Err(_) => break,
            };
            heard = Instant::now();

            let NumberedQuestion { number, question } = match decode(&frame) {
                Ok(question) => question,
                // A transport may repeat the greeting.
                Err(reason) => match decode(&frame) {
                    Ok(TunerMessage::Hello { .. }) => continue,
                    Ok(_) => return Err(invalid("it is a collector of records, and measures nothing".into())),
                    Err(_) => return Err(invalid(reason)),
                },
            };
            let answer = self.collected.answer(question).map_err(invalid)?;
            if send(sender, &NumberedAnswer { number, answer }).is_err() {
                break;
            }
        }
        Ok(())
    }
}

fn send(sender: &mut dyn FrameSender, message: &impl Serialize) -> io::Result<()> {
    sender.send(&encode(message).map_err(io::Error::other)?)
}
