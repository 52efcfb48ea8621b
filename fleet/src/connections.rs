//! Connections that a worker or collector serves, each in a thread.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::message::{Refusal, WorkerMessage, encode};
use crate::params::MAX_CONNECTIONS;
use crate::transport::{Listen, Wire};

/// Interval at which connections and the end are looked for.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// Time that connections have to take the last messages at the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// Threads that serve connections.
#[derive(Default)]
pub(crate) struct Connections(Vec<JoinHandle<()>>);

impl Connections {
    /// Waits for connections, about as long as [`POLL`], and serves each with what `serving`
    /// returns. Refuses those beyond [`MAX_CONNECTIONS`].
    ///
    /// # Errors
    /// If connections can no longer be accepted.
    pub(crate) fn accept<S: FnOnce(Wire) + Send + 'static>(
        &mut self,
        listeners: &mut [Box<dyn Listen>],
        serving: impl Fn() -> S,
    ) -> io::Result<()> {
        let wait = POLL / listeners.len().max(1) as u32;
        for listener in listeners {
            let Some(wire) = listener.accept(wait)? else { continue };
            self.0.retain(|thread| !thread.is_finished());
            match self.0.len() < MAX_CONNECTIONS {
                true => {
                    let serve = serving();
                    self.0.push(thread::spawn(move || serve(wire)));
                }
                false => refuse(wire),
            }
        }
        Ok(())
    }

    /// Waits until all connections ended, but not long.
    pub(crate) fn wait(&self) {
        let start = Instant::now();
        while start.elapsed() < FAREWELL && self.0.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(POLL / 10);
        }
    }
}

fn refuse(mut wire: Wire) {
    let reason = format!("it serves {MAX_CONNECTIONS} connections");
    if let Ok(frame) = encode(&WorkerMessage::Refused { refusal: Refusal::Full, reason }) {
        // The peer may be gone already.
        let _ = wire.sender.send(&frame);
    }
}
