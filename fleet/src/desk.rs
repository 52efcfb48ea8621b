//! State that the threads of a worker share: tuners, their jobs and leases, and statistics.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use autotune_measurement::Backend;

use crate::message::{DeviceWish, LeaseId, Racer, Refusal, WishBatch, WorkerMessage, WorkerState};
use crate::params::{MAX_JOBS, MAX_TUNERS};

/// Time over which the trials per second are counted.
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// Number of leases of a tuner that are remembered.
const SEEN_LEASES: usize = 256;

/// Work for the thread that measures.
pub(crate) enum FleetJob {
    Open(DeviceWish),
    Measure(WishBatch),
    Race { lease: LeaseId, racers: Vec<Racer>, budget_secs: f64 },
}

impl FleetJob {
    /// Returns the lease of a job that has one.
    fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Open(_) => None,
            Self::Measure(batch) => Some(batch.lease),
            Self::Race { lease, .. } => Some(*lease),
        }
    }

    fn wishes(&self) -> usize {
        match self {
            Self::Open(_) => 0,
            Self::Measure(batch) => batch.wishes.len(),
            Self::Race { racers, .. } => racers.len(),
        }
    }
}

/// A job, its tuner, and the device that the tuner opened last.
pub(crate) struct DeskJob {
    pub(crate) tuner: u64,
    pub(crate) device: Option<DeviceWish>,
    pub(crate) job: FleetJob,
}

/// Connected tuner, with its jobs and leases.
struct TunerDesk {
    outbox: SyncSender<WorkerMessage>,
    jobs: VecDeque<FleetJob>,
    /// Leases that wait or are being measured.
    held: Vec<LeaseId>,
    /// Latest leases, which are not carried out again if a message is repeated.
    seen: VecDeque<LeaseId>,
    device: Option<DeviceWish>,
}

/// Device that is open, with its reference kernel.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFigures {
    pub(crate) key: String,
    pub(crate) backend: Backend,
    /// Seconds per run of the reference kernel, after the last batch and when the device was
    /// opened.
    pub(crate) reference_secs: Option<f64>,
    pub(crate) first_secs: Option<f64>,
}

impl DeviceFigures {
    /// Returns key and backend, which tell devices apart.
    pub(crate) fn name(&self) -> (String, String) {
        (self.key.clone(), self.backend.to_string())
    }
}

/// Numbers since the start of the worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeskCounts {
    /// Wishes that ran, and those whose result is a failure.
    pub(crate) measured: u64,
    pub(crate) failed: u64,
    /// Wishes that were given up without a result.
    pub(crate) returned: u64,
    pub(crate) races: u64,
    pub(crate) leases: u64,
    /// Time at which the last lease came.
    pub(crate) last_lease: Option<SystemTime>,
}

/// State of a worker in figures.
pub(crate) struct WorkerFigures {
    pub(crate) state: WorkerState,
    pub(crate) devices: Vec<DeviceFigures>,
    pub(crate) counts: DeskCounts,
}

/// Job that is being carried out.
struct CurrentJob {
    tuner: u64,
    lease: Option<LeaseId>,
    /// Wishes or racers without an answer.
    left: usize,
    is_race: bool,
}

/// Shared state of a worker.
pub(crate) struct Desk {
    state: Mutex<DeskState>,
    has_changed: Condvar,
    /// True if the job that is being carried out is no longer wanted.
    is_aborted: AtomicBool,
}

struct DeskState {
    tuners: BTreeMap<u64, TunerDesk>,
    /// Number of tuners so far.
    met: u64,
    /// Tuner whose job was carried out last.
    last_served: u64,
    current: Option<CurrentJob>,
    is_stopping: bool,
    start: Instant,
    busy_until: Instant,
    counts: DeskCounts,
    recent: VecDeque<Instant>,
    own_key: String,
    offers: Option<Vec<String>>,
    devices: Vec<DeviceFigures>,
    drift: Option<f64>,
}

impl Desk {
    /// Returns the desk of a worker without tuners, whose CPU has the key `own_key`.
    pub(crate) fn new(own_key: String) -> Self {
        let now = Instant::now();
        let state = DeskState {
            tuners: BTreeMap::new(),
            met: 0,
            last_served: 0,
            current: None,
            is_stopping: false,
            start: now,
            busy_until: now,
            counts: DeskCounts::default(),
            recent: VecDeque::new(),
            own_key,
            offers: None,
            devices: Vec::new(),
            drift: None,
        };
        Self { state: Mutex::new(state), has_changed: Condvar::new(), is_aborted: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. Connections that only ask for the state have room beside the tuners.
    pub(crate) fn join(&self, outbox: SyncSender<WorkerMessage>) -> Result<u64, (Refusal, String)> {
        let mut state = self.lock();
        if state.tuners.len() >= 2 * MAX_TUNERS || state.is_stopping {
            return Err((Refusal::Full, "it has no room for another connection".into()));
        }
        state.met += 1;
        let tuner = state.met;
        let desk = TunerDesk { outbox, jobs: VecDeque::new(), held: Vec::new(), seen: VecDeque::new(), device: None };
        state.tuners.insert(tuner, desk);
        Ok(tuner)
    }

    /// Removes a connection. Its jobs are dropped, and the present one is interrupted.
    pub(crate) fn leave(&self, tuner: u64) {
        let mut state = self.lock();
        if let Some(desk) = state.tuners.remove(&tuner) {
            state.counts.returned += desk.jobs.iter().map(FleetJob::wishes).sum::<usize>() as u64;
            if desk.device.is_some() {
                state.busy_until = Instant::now();
            }
        }
        self.abort_if(&state, |current| current.tuner == tuner);
    }

    /// Adds a job of a tuner. A lease that the tuner sent before is ignored.
    pub(crate) fn enqueue(&self, tuner: u64, job: FleetJob) -> Result<(), (Refusal, String)> {
        let mut state = self.lock();
        let tuners = state.tuners.values().filter(|tuner| tuner.device.is_some()).count();
        let is_stopping = state.is_stopping;
        let Some(desk) = state.tuners.get_mut(&tuner) else { return Ok(()) };
        match (&job, &desk.device) {
            (FleetJob::Open(_), None) if tuners >= MAX_TUNERS => {
                return Err((Refusal::Full, format!("it serves {tuners} tuners")));
            }
            (FleetJob::Open(wish), _) => desk.device = Some(wish.clone()),
            (_, None) => return Err((Refusal::Invalid, "wishes before a device was opened".into())),
            (_, Some(_)) => {}
        }
        if desk.jobs.len() >= MAX_JOBS {
            return Err((Refusal::Full, format!("its queue has {MAX_JOBS} batches of this tuner")));
        }

        if let Some(lease) = job.lease() {
            if desk.seen.contains(&lease) {
                return Ok(());
            }
            desk.seen.truncate(SEEN_LEASES - 1);
            desk.seen.push_front(lease);
            if is_stopping {
                let _ = desk.outbox.try_send(WorkerMessage::Returned { lease, fault: None });
                return Ok(());
            }
            desk.held.push(lease);
        }
        let has_lease = job.lease().is_some();
        desk.jobs.push_back(job);
        if has_lease {
            state.counts.leases += 1;
            state.counts.last_lease = Some(SystemTime::now());
        }
        self.has_changed.notify_all();
        Ok(())
    }

    /// Ends a lease that a tuner no longer wants. A waiting one is returned at once, the present
    /// one by the thread that measures.
    pub(crate) fn give_back(&self, tuner: u64, lease: LeaseId) {
        let mut state = self.lock();
        self.abort_if(&state, |current| current.tuner == tuner && current.lease == Some(lease));
        let DeskState { tuners, counts, .. } = &mut *state;
        let Some(desk) = tuners.get_mut(&tuner) else { return };
        let at = desk.jobs.iter().position(|job| job.lease() == Some(lease));
        if let Some(job) = at.and_then(|at| desk.jobs.remove(at)) {
            counts.returned += job.wishes() as u64;
            desk.held.retain(|held| *held != lease);
            let _ = desk.outbox.try_send(WorkerMessage::Returned { lease, fault: None });
        }
    }

    fn abort_if(&self, state: &DeskState, is_meant: impl Fn(&CurrentJob) -> bool) {
        if state.current.as_ref().is_some_and(is_meant) {
            self.is_aborted.store(true, Ordering::SeqCst);
        }
    }

    /// Waits for the next job; the tuners take turns. `None` once the worker stops.
    pub(crate) fn next(&self) -> Option<DeskJob> {
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            let last = state.last_served;
            let has_work = |(_, desk): &(&u64, &TunerDesk)| !desk.jobs.is_empty();
            let after = state.tuners.range(last + 1..).find(has_work);
            let next = after.or_else(|| state.tuners.iter().find(has_work)).map(|(tuner, _)| *tuner);
            if let Some(tuner) = next
                && let Some(desk) = state.tuners.get_mut(&tuner)
                && let Some(job) = desk.jobs.pop_front()
            {
                let device = desk.device.clone();
                state.last_served = tuner;
                let is_race = matches!(job, FleetJob::Race { .. });
                state.current = Some(CurrentJob { tuner, lease: job.lease(), left: job.wishes(), is_race });
                self.is_aborted.store(false, Ordering::SeqCst);
                return Some(DeskJob { tuner, device, job });
            }
            state = self.has_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the present job with its last message.
    pub(crate) fn finish(&self, tuner: u64, last: WorkerMessage) {
        let mut state = self.lock();
        let ended = state.current.take();
        let lease = ended.as_ref().and_then(|ended| ended.lease);
        match (&last, ended) {
            (WorkerMessage::Raced { .. }, _) => state.counts.races += 1,
            (WorkerMessage::Returned { .. }, Some(ended)) if !ended.is_race => {
                state.counts.returned += ended.left as u64
            }
            _ => {}
        }
        state.busy_until = Instant::now();
        if let Some(desk) = state.tuners.get_mut(&tuner) {
            desk.held.retain(|held| Some(*held) != lease);
        }
        state.tell(tuner, last);
    }

    /// Returns true if the present job is no longer wanted.
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }

    /// Sends a message to a tuner. A tuner that does not read its messages is removed.
    pub(crate) fn tell(&self, tuner: u64, message: WorkerMessage) {
        let mut state = self.lock();
        if let WorkerMessage::Measured { measurement, .. } = &message {
            state.count(measurement.outcome.is_ok(), Instant::now());
        }
        state.tell(tuner, message);
    }

    /// Returns the leases that a tuner holds; `None` if it is not connected.
    pub(crate) fn leases(&self, tuner: u64) -> Option<Vec<LeaseId>> {
        self.lock().tuners.get(&tuner).map(|desk| desk.held.clone())
    }

    /// Returns the devices that tuners have opened.
    pub(crate) fn wanted_devices(&self) -> HashSet<DeviceWish> {
        self.lock().tuners.values().filter_map(|desk| desk.device.clone()).collect()
    }

    /// Records the keys of all devices.
    pub(crate) fn set_offers(&self, keys: Vec<String>) {
        self.lock().offers = Some(keys);
    }

    /// Records the open devices.
    pub(crate) fn set_devices(&self, devices: Vec<DeviceFigures>) {
        self.lock().devices = devices;
    }

    /// Records the present time of the reference kernel over its first.
    pub(crate) fn set_drift(&self, drift: Option<f64>) {
        let mut state = self.lock();
        state.drift = drift.or(state.drift);
    }

    /// Returns the time since which there has been neither a tuner nor work; `None` if there is.
    pub(crate) fn idle(&self) -> Option<Duration> {
        let state = self.lock();
        let is_idle = state.current.is_none() && state.tuners.values().all(|tuner| tuner.device.is_none());
        is_idle.then(|| state.busy_until.elapsed())
    }

    /// Stops the work: waiting jobs are returned, and the present one is interrupted.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopping = true;
        let DeskState { tuners, counts, .. } = &mut *state;
        for desk in tuners.values_mut() {
            let _ = desk.outbox.try_send(WorkerMessage::Leaving);
            let jobs = std::mem::take(&mut desk.jobs);
            counts.returned += jobs.iter().map(FleetJob::wishes).sum::<usize>() as u64;
            for lease in jobs.iter().filter_map(FleetJob::lease) {
                desk.held.retain(|held| *held != lease);
                let _ = desk.outbox.try_send(WorkerMessage::Returned { lease, fault: None });
            }
        }
        self.abort_if(&state, |_| true);
        self.has_changed.notify_all();
    }

    /// Removes all connections; messages that wait are still sent.
    pub(crate) fn dismiss(&self) {
        self.lock().tuners.clear();
    }

    /// Returns the state for people.
    pub(crate) fn state(&self) -> WorkerState {
        self.lock().state(Instant::now())
    }

    /// Returns the state in figures.
    pub(crate) fn figures(&self) -> WorkerFigures {
        let mut state = self.lock();
        WorkerFigures { state: state.state(Instant::now()), devices: state.devices.clone(), counts: state.counts }
    }
}

impl DeskState {
    fn state(&mut self, now: Instant) -> WorkerState {
        let state = self;
        state.forget_old(now);
        let waiting = state.tuners.values().flat_map(|desk| &desk.jobs).map(FleetJob::wishes).sum::<usize>();
        let secs = now.duration_since(state.start).min(RATE_WINDOW).as_secs_f64();
        WorkerState {
            target: state.own_key.clone(),
            offers: state.offers.clone(),
            devices: state.devices.iter().map(|device| device.key.clone()).collect(),
            tuners: state.tuners.values().filter(|tuner| tuner.device.is_some()).count(),
            queued: waiting + state.current.as_ref().map_or(0, |current| current.left),
            trials: state.counts.measured + state.counts.failed,
            trials_per_sec: state.recent.len() as f64 / secs.max(1.0),
            up_secs: now.duration_since(state.start).as_secs_f64(),
            idle_secs: state.recent.back().map(|last| now.duration_since(*last).as_secs_f64()),
            drift: state.drift,
        }
    }

    fn tell(&mut self, tuner: u64, message: WorkerMessage) {
        let is_read = self.tuners.get(&tuner).is_none_or(|desk| desk.outbox.try_send(message).is_ok());
        if !is_read && let Some(desk) = self.tuners.remove(&tuner) {
            self.counts.returned += desk.jobs.iter().map(FleetJob::wishes).sum::<usize>() as u64;
        }
    }

    fn count(&mut self, has_run: bool, now: Instant) {
        *(if has_run { &mut self.counts.measured } else { &mut self.counts.failed }) += 1;
        self.recent.push_back(now);
        self.forget_old(now);
        if let Some(current) = &mut self.current {
            current.left = current.left.saturating_sub(1);
        }
    }

    /// Forgets trials outside the window, except the last.
    fn forget_old(&mut self, now: Instant) {
        while self.recent.len() > 1 && self.recent.front().is_some_and(|t| now.duration_since(*t) > RATE_WINDOW) {
            self.recent.pop_front();
        }
    }
}
