//! Interface of transports: they carry frames between tuners and workers, and know no messages.
//!
//! A transport may lose, repeat, delay and reorder frames; leases make up for it. It must not
//! change, cut or merge them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::error::FleetError;

/// Sending half of a connection. Dropping it ends the connection for both sides.
pub trait FrameSender: Send {
    /// Sends one frame of at most [`crate::params::MAX_FRAME_BYTES`].
    ///
    /// # Errors
    /// If the connection has ended, or the peer does not take the frame in time.
    fn send(&mut self, frame: &[u8]) -> io::Result<()>;
}

/// Event on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Content of a frame.
    Frame(Vec<u8>),
    /// No frame arrived in time.
    Nothing,
    /// The peer ended the connection.
    End,
}

/// Receiving half of a connection.
pub trait FrameReceiver: Send {
    /// Waits at most `wait` for the next frame.
    ///
    /// # Errors
    /// If the connection is broken, or the peer sends something other than frames, such as a frame
    /// that is too long.
    fn receive(&mut self, wait: Duration) -> io::Result<Arrival>;
}

/// Connection between a tuner and a worker.
pub struct Wire {
    /// Name of the other side for people.
    pub peer: String,
    /// Half that sends.
    pub sender: Box<dyn FrameSender>,
    /// Half that receives.
    pub receiver: Box<dyn FrameReceiver>,
}

/// Place of one worker, to which tuners connect.
pub trait Dial: Send + Sync {
    /// Returns the address for people.
    fn address(&self) -> String;

    /// Connects within the time limit.
    ///
    /// # Errors
    /// [`FleetError::Unreachable`] if nothing answers.
    fn dial(&self, limit: Duration) -> Result<Wire, FleetError>;
}

/// Callback that returns the workers that are there now, for transports that know them.
pub type FindWorkers = Box<dyn Fn() -> Vec<Arc<dyn Dial>> + Send>;

/// Place at which a worker waits for tuners.
pub trait Listen: Send {
    /// Returns the address for people.
    fn address(&self) -> String;

    /// Waits at most `wait` for a connection.
    ///
    /// # Errors
    /// If no connection can arrive any more.
    fn accept(&mut self, wait: Duration) -> io::Result<Option<Wire>>;
}
