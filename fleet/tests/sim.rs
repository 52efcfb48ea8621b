//! Simulated workers: real connections, leases and messages, with devices that return times which
//! follow from the config.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use autotune_fleet::message::FleetBuild;
use autotune_fleet::transport::{Dial, Listen};
use autotune_fleet::work_device::{IsUnwanted, OpenDevice, WorkDevice};
use autotune_fleet::{DeviceWish, Fleet, FleetError, FleetOptions, FleetParams, WorkerOptions, serve_fleet};
use autotune_ir::{CpuTarget, Target};
use autotune_measure::{Batches, Ceilings, MeasureError, Measurer, OnResult, RaceResult};
use autotune_measurement::{Backend, Measurement, RunSecs};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Returns the target of simulated workers.
pub fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(1))
}

pub fn wish() -> DeviceWish {
    DeviceWish { target: "cpu".into(), threads: Some(1), backend: Backend::Assembler }
}

/// Returns short times, so that faults are noticed within a fraction of a second.
pub fn params() -> FleetParams {
    let millis = Duration::from_millis;
    FleetParams {
        lease: millis(150),
        progress: millis(20),
        greeting: millis(300),
        opening: millis(600),
        retry: millis(10),
        find: millis(50),
        give_up: millis(20_000),
        silence: millis(1000),
        batch_secs: [0.01, 0.03],
        ahead_secs: 0.005,
        deliveries: 3,
        drift: 1.25,
    }
}

/// Returns distinct candidates of a workload.
pub fn candidates(count: usize, seed: u64) -> Vec<Candidate> {
    candidates_on(&target(), count, seed)
}

/// Returns distinct candidates of a workload for a target.
pub fn candidates_on(target: &Target, count: usize, seed: u64) -> Vec<Candidate> {
    let workload: Workload = "matmul:m=48,n=48,k=48".parse().unwrap();
    let space = ScheduleSpace::new(&workload, target);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut seen, mut distinct) = (HashSet::new(), Vec::new());
    while distinct.len() < count {
        let candidate = space.sample(&mut rng);
        if seen.insert(candidate.stable_hash()) {
            distinct.push(candidate);
        }
    }
    distinct
}

/// Returns the time that every simulated device measures for a config.
pub fn secs_of(candidate: &Candidate) -> f64 {
    1e-6 * (1 + candidate.stable_hash() % 1000) as f64
}

/// Behaviour of simulated devices, shared by the workers of a test.
#[derive(Clone)]
pub struct SimDevice {
    /// Time that a wish takes.
    pub wish: Duration,
    /// Factor over the reference time of other workers, in per cent.
    pub reference_percent: Arc<AtomicUsize>,
    /// Hash of a config that kills its worker.
    pub poison: Option<u64>,
    /// True once a poisoned config asked for the death of the worker.
    pub is_dying: Arc<AtomicBool>,
    /// Number of wishes that were measured.
    pub measured: Arc<AtomicUsize>,
    /// Number of races.
    pub races: Arc<AtomicUsize>,
    pub target: Target,
}

impl Default for SimDevice {
    fn default() -> Self {
        Self {
            wish: Duration::from_millis(2),
            reference_percent: Arc::new(AtomicUsize::new(100)),
            poison: None,
            is_dying: Arc::default(),
            measured: Arc::default(),
            races: Arc::default(),
            target: target(),
        }
    }
}

impl OpenDevice for SimDevice {
    fn own_key(&self) -> String {
        self.target.key()
    }

    fn open(&mut self, wish: &DeviceWish, is_unwanted: IsUnwanted) -> Result<Box<dyn WorkDevice>, String> {
        if wish.target != "cpu" && wish.target != self.target.key() {
            return Err(format!("its CPU is {}", self.target));
        }
        Ok(Box::new(SimWork { device: self.clone(), measurer: SimMeasurer { device: self.clone(), is_unwanted } }))
    }
}

struct SimWork {
    device: SimDevice,
    measurer: SimMeasurer,
}

impl WorkDevice for SimWork {
    fn target(&self) -> &Target {
        &self.device.target
    }

    fn name(&self) -> &str {
        "simulated"
    }

    fn harness(&self) -> &str {
        "{}"
    }

    fn ceilings(&self) -> Option<Ceilings> {
        None
    }

    fn measurer(&mut self) -> &mut dyn Measurer {
        &mut self.measurer
    }

    fn foresee(&self, _workload: &Workload) -> Result<(), String> {
        Ok(())
    }

    fn set_incumbent(&mut self, _workload: &Workload, _run_secs: f64) {}
}

struct SimMeasurer {
    device: SimDevice,
    is_unwanted: IsUnwanted,
}

impl SimMeasurer {
    fn measure_one(&self, candidate: &Candidate) -> Result<Measurement, MeasureError> {
        if self.device.poison == Some(candidate.stable_hash()) {
            self.device.is_dying.store(true, Ordering::SeqCst);
            // The death takes effect in another thread.
            while !(self.is_unwanted)() {
                thread::sleep(Duration::from_millis(1));
            }
            return Err(MeasureError::Interrupted);
        }
        let is_reference = candidate.workload().to_string().contains("m=128");
        let percent = self.device.reference_percent.load(Ordering::SeqCst);
        let run_secs = if is_reference { 1e-6 * percent as f64 } else { secs_of(candidate) };
        if !is_reference {
            thread::sleep(self.device.wish);
            self.device.measured.fetch_add(1, Ordering::SeqCst);
        }
        let measure_secs = self.device.wish.as_secs_f64();
        Ok(Measurement { measure_secs, ..Measurement::of(Ok(RunSecs::synthetic(run_secs))) })
    }
}

impl Measurer for SimMeasurer {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let mut index = 0;
        let mut batch = next_batch();
        while !batch.is_empty() {
            for candidate in &batch {
                if on_result(index, self.measure_one(candidate)?).is_break() {
                    return Ok(());
                }
                index += 1;
            }
            batch = next_batch();
        }
        Ok(())
    }

    fn race(&mut self, candidates: &[Candidate], _budget_secs: f64) -> Result<RaceResult, MeasureError> {
        self.device.races.fetch_add(1, Ordering::SeqCst);
        let measurements = candidates.iter().map(|candidate| self.measure_one(candidate)).collect::<Result<_, _>>()?;
        Ok(RaceResult::interleaved(measurements))
    }
}

/// Worker that runs in threads of the test.
pub struct SimWorker {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SimWorker {
    pub fn start(listener: Box<dyn Listen>, name: &str, device: &SimDevice) -> Self {
        Self::start_with(listener, WorkerOptions { params: params(), ..WorkerOptions::new(name) }, device)
    }

    pub fn start_with(listener: Box<dyn Listen>, options: WorkerOptions, device: &SimDevice) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (switch, device) = (Arc::clone(&is_stopped), Box::new(device.clone()));
        let thread = thread::spawn(move || {
            let stopped = || switch.load(Ordering::SeqCst);
            serve_fleet(vec![listener], device, &options, &stopped, drop).unwrap();
        });
        Self { is_stopped, thread: Some(thread) }
    }

    /// Asks the worker to end, as SIGTERM does, and waits for it.
    pub fn stop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for SimWorker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lines for people, as a fleet reported them.
pub type Notices = Arc<Mutex<Vec<String>>>;

/// Connects to workers. Returns the lines for people, too.
pub fn connect(dials: Vec<Arc<dyn Dial>>) -> (Result<Fleet, FleetError>, Notices) {
    connect_with(dials, params(), FleetBuild::own())
}

pub fn connect_with(
    dials: Vec<Arc<dyn Dial>>,
    params: FleetParams,
    build: FleetBuild,
) -> (Result<Fleet, FleetError>, Notices) {
    let notices = Notices::default();
    let lines = Arc::clone(&notices);
    let notice = Box::new(move |line| lines.lock().unwrap().push(line));
    let options = FleetOptions { params, build, notice, ..FleetOptions::default() };
    (Fleet::connect(dials, &wish(), options), notices)
}

/// Measures candidates in batches of 16, and returns all results in the order of arrival.
pub fn measure_all(fleet: &mut Fleet, candidates: &[Candidate]) -> Vec<(usize, Measurement)> {
    let mut results = Vec::new();
    let mut batches = candidates.chunks(16);
    let mut next = || batches.next().unwrap_or_default().to_vec();
    let measured = fleet.measure_batches(&mut next, &mut |index, measurement| {
        results.push((index, measurement));
        ControlFlow::Continue(())
    });
    measured.unwrap();
    results
}

/// Checks that every candidate has one result, and returns the number of failures.
pub fn check_results(candidates: &[Candidate], mut results: Vec<(usize, Measurement)>) -> usize {
    results.sort_by_key(|(index, _)| *index);
    let indices: Vec<usize> = results.iter().map(|(index, _)| *index).collect();
    assert_eq!(indices, Vec::from_iter(0..candidates.len()), "one result for each");
    let mut failures = 0;
    for (candidate, (_, measurement)) in candidates.iter().zip(&results) {
        match measurement.run_secs() {
            Some(secs) => assert_eq!(secs, secs_of(candidate)),
            None => failures += 1,
        }
    }
    failures
}

/// Waits until something is so, for ten seconds at most.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
