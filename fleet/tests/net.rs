//! Transport in memory that loses, repeats, delays and reorders frames, cuts connections and holds
//! them up.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use autotune_fleet::FleetError;
use autotune_fleet::params::MAX_FRAME_BYTES;
use autotune_fleet::transport::{Arrival, Dial, FrameReceiver, FrameSender, Listen, Wire};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Probabilities of faults of a frame.
#[derive(Clone, Copy, Default)]
pub struct FrameFaults {
    pub lost: f64,
    pub doubled: f64,
    pub delayed: f64,
}

/// Longest delay of a frame.
const DELAY_MILLIS: u64 = 30;

/// Address in memory.
pub struct MemoryPlace {
    name: String,
    faults: FrameFaults,
    inner: Mutex<PlaceState>,
}

struct PlaceState {
    rng: ChaCha8Rng,
    listener: Option<Sender<Wire>>,
    wires: Vec<Arc<WireSwitches>>,
}

#[derive(Default)]
struct WireSwitches {
    is_cut: AtomicBool,
    is_held: AtomicBool,
}

impl MemoryPlace {
    pub fn new(name: &str, faults: FrameFaults, seed: u64) -> Arc<Self> {
        let state = PlaceState { rng: ChaCha8Rng::seed_from_u64(seed), listener: None, wires: Vec::new() };
        Arc::new(Self { name: name.into(), faults, inner: Mutex::new(state) })
    }

    /// Starts to listen, in place of an earlier listener.
    pub fn listen(&self) -> Box<dyn Listen> {
        let (sender, wires) = mpsc::channel();
        self.inner.lock().unwrap().listener = Some(sender);
        Box::new(MemoryListener { wires, name: self.name.clone() })
    }

    /// Cuts all connections, as the death of a process does: nothing that was not delivered yet
    /// arrives.
    pub fn cut(&self) {
        let mut state = self.inner.lock().unwrap();
        state.listener = None;
        state.wires.drain(..).for_each(|wire| wire.is_cut.store(true, Ordering::SeqCst));
    }

    /// Holds up all frames, or lets them go on.
    pub fn hold(&self, is_held: bool) {
        let state = self.inner.lock().unwrap();
        state.wires.iter().for_each(|wire| wire.is_held.store(is_held, Ordering::SeqCst));
    }
}

impl Dial for MemoryPlace {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn dial(&self, _limit: Duration) -> Result<Wire, FleetError> {
        let gone = || FleetError::Unreachable { address: self.name.clone(), cause: "nobody listens".into() };
        let mut state = self.inner.lock().unwrap();
        let switches = Arc::new(WireSwitches::default());
        let (there, far) = pipe(self.faults, state.rng.random(), &switches);
        let (back, near) = pipe(self.faults, state.rng.random(), &switches);
        let wire = |sender, receiver| Wire { peer: self.name.clone(), sender, receiver };
        state.listener.as_ref().ok_or_else(gone)?.send(wire(back, far)).map_err(|_| gone())?;
        state.wires.push(switches);
        Ok(wire(there, near))
    }
}

struct MemoryListener {
    wires: Receiver<Wire>,
    name: String,
}

impl Listen for MemoryListener {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn accept(&mut self, wait: Duration) -> io::Result<Option<Wire>> {
        match self.wires.recv_timeout(wait) {
            Ok(wire) => Ok(Some(wire)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(wait);
                Ok(None)
            }
        }
    }
}

/// Returns both ends of one direction, with a thread between them that makes the faults.
fn pipe(
    faults: FrameFaults,
    seed: u64,
    switches: &Arc<WireSwitches>,
) -> (Box<dyn FrameSender>, Box<dyn FrameReceiver>) {
    let (sender, frames) = mpsc::channel();
    let (out, receiver) = mpsc::channel();
    let on_way = Arc::clone(switches);
    thread::spawn(move || pass_on(&frames, &out, faults, seed, &on_way));
    let sender = MemorySender { frames: sender, switches: Arc::clone(switches) };
    (Box::new(sender), Box::new(MemoryReceiver { frames: receiver, switches: Arc::clone(switches) }))
}

fn pass_on(frames: &Receiver<Vec<u8>>, out: &Sender<Vec<u8>>, faults: FrameFaults, seed: u64, switches: &WireSwitches) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut is_open = true;
    while (is_open || !waiting.is_empty()) && !switches.is_cut.load(Ordering::SeqCst) {
        match frames.recv_timeout(Duration::from_millis(1)) {
            Ok(frame) => {
                let copies = 1 + usize::from(rng.random_bool(faults.doubled));
                for _ in 0..copies {
                    if rng.random_bool(faults.lost) {
                        continue;
                    }
                    let is_late = rng.random_bool(faults.delayed);
                    let millis = if is_late { rng.random_range(1..DELAY_MILLIS) } else { 0 };
                    waiting.push_back((Instant::now() + Duration::from_millis(millis), frame.clone()));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                is_open = false;
                thread::sleep(Duration::from_millis(1));
            }
        }

        if switches.is_held.load(Ordering::SeqCst) {
            continue;
        }
        // A delayed frame is overtaken by those behind it.
        let now = Instant::now();
        let (due, later): (VecDeque<_>, VecDeque<_>) = waiting.drain(..).partition(|(at, _)| *at <= now);
        waiting = later;
        for (_, frame) in due {
            if out.send(frame).is_err() {
                return;
            }
        }
    }
}

struct MemorySender {
    frames: Sender<Vec<u8>>,
    switches: Arc<WireSwitches>,
}

impl FrameSender for MemorySender {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let is_cut = self.switches.is_cut.load(Ordering::SeqCst);
        let sent = if is_cut { Err(()) } else { self.frames.send(frame.to_vec()).map_err(drop) };
        sent.map_err(|()| io::ErrorKind::BrokenPipe.into())
    }
}

struct MemoryReceiver {
    frames: Receiver<Vec<u8>>,
    switches: Arc<WireSwitches>,
}

impl FrameReceiver for MemoryReceiver {
    fn receive(&mut self, wait: Duration) -> io::Result<Arrival> {
        if self.switches.is_cut.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        match self.frames.recv_timeout(wait) {
            Ok(frame) => Ok(Arrival::Frame(frame)),
            Err(RecvTimeoutError::Timeout) => Ok(Arrival::Nothing),
            Err(RecvTimeoutError::Disconnected) if self.switches.is_cut.load(Ordering::SeqCst) => {
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Err(RecvTimeoutError::Disconnected) => Ok(Arrival::End),
        }
    }
}
