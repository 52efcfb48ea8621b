//! Limit of the time that a device may take for a first run: a kernel that hangs cannot be stopped,
//! so the process ends.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{env, process, thread};

use autotune_ir::Target;

use crate::output::say;

/// Environment variable with the limit in seconds.
const VARIABLE: &str = "AUTOTUNE_DEVICE_LIMIT";

/// Limit without the variable, in seconds: far more than the first run of a large network takes.
const SECS: f64 = 300.0;

/// Ends the process with a message unless it is dropped within the limit.
pub(crate) struct DeviceLimit {
    /// Tells the waiting thread that the work is done, when it is dropped.
    _done: Option<Sender<()>>,
}

impl DeviceLimit {
    /// Starts the time for a network on a GPU; CPUs have no limit.
    pub(crate) fn start(network: &str, target: &Target) -> Self {
        if target.gpu().is_none() {
            return Self { _done: None };
        }
        let given = env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        let secs = given.filter(|secs: &f64| secs.is_finite() && *secs > 0.0).unwrap_or(SECS);
        let (done, waiting) = channel::<()>();
        let message = format!(
            "autotune: {network}: {} did not end a run within {secs} s: a kernel hangs; {VARIABLE}=SECONDS allows more",
            target.key()
        );
        thread::spawn(move || {
            if waiting.recv_timeout(Duration::from_secs_f64(secs)) == Err(RecvTimeoutError::Timeout) {
                say(message);
                process::exit(1);
            }
        });
        Self { _done: Some(done) }
    }
}
