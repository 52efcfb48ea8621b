//! Connections of the tuner whose frames are counted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use autotune_fleet::FleetError;
use autotune_fleet::transport::{Arrival, Dial, FrameReceiver, FrameSender, Wire};

/// Frames that the tuner sent and received.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Traffic {
    fn count(&self, frame: &[u8]) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
    }
}

/// Connection whose frames are counted, at the tuner's end.
pub(crate) struct CountedDial {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) traffic: Arc<Traffic>,
}

impl Dial for CountedDial {
    fn address(&self) -> String {
        self.dial.address()
    }

    fn dial(&self, limit: Duration) -> Result<Wire, FleetError> {
        let Wire { peer, sender, receiver } = self.dial.dial(limit)?;
        let sender = Box::new(Counted { half: sender, traffic: Arc::clone(&self.traffic) });
        let receiver = Box::new(Counted { half: receiver, traffic: Arc::clone(&self.traffic) });
        Ok(Wire { peer, sender, receiver })
    }
}

struct Counted<T> {
    half: T,
    traffic: Arc<Traffic>,
}

impl FrameSender for Counted<Box<dyn FrameSender>> {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.traffic.count(frame);
        self.half.send(frame)
    }
}

impl FrameReceiver for Counted<Box<dyn FrameReceiver>> {
    fn receive(&mut self, wait: Duration) -> io::Result<Arrival> {
        let arrival = self.half.receive(wait)?;
        if let Arrival::Frame(frame) = &arrival {
            self.traffic.count(frame);
        }
        Ok(arrival)
    }
}
