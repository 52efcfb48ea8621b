//! One run of batches on a fleet, and races.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

use autotune_measure::{Batches, MeasureError, Measurer, OnResult, RaceResult};
use autotune_measurement::Measurement;
use autotune_schedules::Candidate;

use crate::crew::CrewEvent;
use crate::fleet::{Fleet, Heard, POLL};
use crate::ledger::{Leased, Ledger, LostWishes};
use crate::message::{LeaseId, Racer, TunerMessage, Wish, WishBatch, WorkerMessage, implausible};
use crate::params::MAX_WISHES;
use crate::random::random_number;

/// Number of wishes in a batch of a workload of which no time is known.
const FIRST_WISHES: usize = 8;

/// Most leases of one worker: one that it measures, and the next.
const LEASES: usize = 2;

/// Weight of the latest result in the mean time of a wish.
const NEWS: f64 = 0.2;

impl Measurer for Fleet {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let ledger = Ledger::new(random_number(), self.options.params.deliveries);
        let (run, events) = (ledger.run(), self.crew.sender());
        thread::scope(|scope| {
            let (ask, asked) = mpsc::channel::<()>();
            scope.spawn(move || {
                for () in asked {
                    let candidates = next_batch();
                    let is_last = candidates.is_empty();
                    if events.send(CrewEvent::Proposed { run, candidates }).is_err() || is_last {
                        return;
                    }
                }
            });
            let now = Instant::now();
            let looks = Looks { only: None, all: now, usable: 0 };
            let mut run = BatchRun { fleet: self, ledger, ask, is_asked: false, is_over: false, checked: now, looks };
            let ended = run.until_done(on_result);
            run.return_leases();
            ended
        })
    }

    /// Races all candidates on one worker: that of the last race, else the one with the fastest
    /// reference kernel.
    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        if candidates.iter().any(|candidate| candidate.target().key() != self.target().key()) {
            return Err(MeasureError::MixedTargets);
        }
        if candidates.is_empty() {
            return Ok(RaceResult::interleaved(Vec::new()));
        }
        let mut failure = "no worker was free".to_string();
        for number in 0..self.options.params.deliveries as u64 {
            let worker = self.next_racer()?;
            let lease = LeaseId { run: random_number(), number };
            match self.race_on(worker, lease, candidates, budget_secs) {
                Err(RaceLoss::Error(error)) => {
                    self.send(worker, &TunerMessage::Return { lease });
                    return Err(error);
                }
                Err(RaceLoss::Again(why)) => {
                    self.racer = None;
                    failure = why;
                }
                Ok(result) => return Ok(result),
            }
        }
        Err(MeasureError::Device { message: format!("no worker could race: {failure}") })
    }

    fn reports_load(&self) -> bool {
        true
    }
}

/// State of one run of batches.
struct BatchRun<'a> {
    fleet: &'a mut Fleet,
    ledger: Ledger,
    ask: Sender<()>,
    /// True while a batch is being proposed.
    is_asked: bool,
    /// True once a batch was empty.
    is_over: bool,
    /// Time at which the leases were checked last.
    checked: Instant,
    looks: Looks,
}

/// Search for workers that have room. Only a message of a worker makes room at that worker, so that
/// most messages need no look at the others.
struct Looks {
    /// Worker to look at; `None` means all.
    only: Option<usize>,
    /// Time of the last look at all.
    all: Instant,
    /// Number of workers that may get wishes, at that time.
    usable: usize,
}

impl BatchRun<'_> {
    /// Measures until every wish is answered and no batch is left, or the caller breaks off.
    fn until_done(&mut self, on_result: &mut OnResult<'_>) -> Result<(), MeasureError> {
        loop {
            self.fleet.check()?;
            let workers = self.look();
            self.lease(&workers);
            if self.is_over && self.ledger.is_done() {
                return Ok(());
            }
            if !self.is_over && !self.is_asked && self.ledger.waiting() == 0 && self.is_hungry(&workers) {
                self.is_asked = self.ask.send(()).is_ok();
            }

            let heard = self.fleet.hear();
            self.looks.only = match &heard {
                Heard::Message(worker, _) if self.looks.all.elapsed() < POLL => Some(*worker),
                _ => None,
            };
            if self.act(heard, on_result).is_break() || self.expire(on_result).is_break() {
                return Ok(());
            }
        }
    }

    /// Returns the workers that may get wishes and may have room since the last look.
    fn look(&mut self) -> Vec<usize> {
        match self.looks.only {
            Some(worker) => Vec::from_iter(self.fleet.is_usable(worker).then_some(worker)),
            None => {
                let usable = self.fleet.usable();
                (self.looks.all, self.looks.usable) = (Instant::now(), usable.len());
                usable
            }
        }
    }

    /// Returns true if a worker will soon have nothing to do.
    fn is_hungry(&self, workers: &[usize]) -> bool {
        let secs = self.secs_of(None);
        workers.iter().any(|&worker| self.has_room(worker, secs))
    }

    /// Returns the seconds of a wish of a candidate's workload; of the fastest workload if it has
    /// none, and 0 if no time is known.
    fn secs_of(&self, next: Option<&Candidate>) -> f64 {
        let secs = next.and_then(|next| self.fleet.wish_secs.get(next.workload()).copied());
        secs.or_else(|| self.fleet.wish_secs.values().copied().reduce(f64::min)).unwrap_or(0.0)
    }

    /// Returns true if a worker's work ends soon, judged by the seconds of a wish.
    fn has_room(&self, worker: usize, secs: f64) -> bool {
        let held = self.ledger.held_by(worker);
        held == 0
            || self.ledger.leases_of(worker) < LEASES
                && held as f64 * secs < self.fleet.options.params.ahead_secs
                && secs > 0.0
    }

    /// Leases waiting wishes to those workers that have room.
    fn lease(&mut self, workers: &[usize]) {
        let Some(mut secs) = self.ledger.next().map(|next| self.secs_of(Some(next))) else { return };
        for &worker in workers {
            while let Some(next) = self.ledger.next()
                && self.has_room(worker, secs)
            {
                let known = self.fleet.wish_secs.get(next.workload());
                let size = |part: f64| known.map_or(FIRST_WISHES, |secs| (part / secs) as usize).clamp(1, MAX_WISHES);
                let [least, most] = self.fleet.options.params.batch_secs.map(size);
                let most = self.ledger.waiting().div_ceil(self.looks.usable.max(1)).clamp(least, most.max(least));
                let Some(leased) = self.ledger.take(worker, most, Instant::now()) else { break };
                let Some(batch) = self.batch(leased) else { break };
                // Another workload may be next.
                secs = self.ledger.next().map_or(secs, |next| self.secs_of(Some(next)));
                if !self.fleet.send(worker, &TunerMessage::Measure(batch)) {
                    // The lease is lost with the connection.
                    break;
                }
            }
        }
    }

    fn batch(&self, Leased { lease, wishes }: Leased) -> Option<WishBatch> {
        let workload = wishes.first()?.1.workload();
        Some(WishBatch {
            lease,
            workload: workload.to_string(),
            incumbent_secs: self.fleet.best_secs.get(workload).copied(),
            wishes: wishes.iter().map(|(number, c)| Wish { number: *number, config: c.config().clone() }).collect(),
        })
    }

    fn act(&mut self, heard: Heard, on_result: &mut OnResult<'_>) -> ControlFlow<()> {
        match heard {
            Heard::Nothing => {}
            Heard::Proposed(run, candidates) if run == self.ledger.run() => {
                (self.is_asked, self.is_over) = (false, candidates.is_empty());
                self.ledger.add(candidates);
            }
            Heard::Proposed(..) => {}
            Heard::Left(worker, why) => {
                let lost = match why {
                    Some(why) => self.ledger.lose(worker, &why),
                    None => self.ledger.release(worker),
                };
                return self.report(lost, on_result);
            }
            Heard::Message(worker, message) => return self.read(worker, message, on_result),
        }
        ControlFlow::Continue(())
    }

    fn read(&mut self, worker: usize, message: WorkerMessage, on_result: &mut OnResult<'_>) -> ControlFlow<()> {
        let now = Instant::now();
        let lost = match message {
            WorkerMessage::Measured { lease, wish, measurement } => {
                if let Some(why) = implausible(&measurement) {
                    self.fleet.expel(worker, &why);
                    self.ledger.lose(worker, &why)
                } else {
                    let Some(candidate) = self.ledger.answer(lease.run, wish, now) else {
                        return ControlFlow::Continue(());
                    };
                    self.learn(worker, &candidate, &measurement);
                    return on_result(wish as usize, *measurement);
                }
            }

            WorkerMessage::Progress { leases } => {
                leases.into_iter().for_each(|lease| self.ledger.progress(lease, now));
                LostWishes::default()
            }
            WorkerMessage::Finished { lease, .. } => self.ledger.give_back(lease, None),
            WorkerMessage::Returned { lease, fault } => {
                if let Some(fault) = &fault {
                    let name = self.fleet.members[worker].name.clone();
                    self.fleet.notice(format!("worker {name} returned a batch: {fault}"));
                }
                self.ledger.give_back(lease, fault.as_deref())
            }
            _ => LostWishes::default(),
        };
        self.report(lost, on_result)
    }

    /// Updates the times by which batches are sized and slow candidates are stopped.
    fn learn(&mut self, worker: usize, candidate: &Candidate, measurement: &Measurement) {
        self.fleet.count_answer(worker);
        let secs = (measurement.build_secs + measurement.measure_secs).max(1e-4);
        let workload = candidate.workload();
        let mean = self.fleet.wish_secs.entry(workload.clone()).or_insert(secs);
        *mean += NEWS * (secs - *mean);
        if let Some(run_secs) = measurement.run_secs() {
            let best = self.fleet.best_secs.entry(workload.clone()).or_insert(run_secs);
            *best = best.min(run_secs);
        }
    }

    /// Ends leases without progress. Their workers get no wishes until they are heard of.
    fn expire(&mut self, on_result: &mut OnResult<'_>) -> ControlFlow<()> {
        if self.checked.elapsed() < POLL {
            return ControlFlow::Continue(());
        }
        self.checked = Instant::now();
        let (workers, lost) = self.ledger.expire(self.checked, self.fleet.options.params.lease);
        for worker in workers {
            self.fleet.members[worker].is_silent = true;
            let name = self.fleet.members[worker].name.clone();
            self.fleet.notice(format!("worker {name} reports no progress: its wishes are measured again"));
        }
        self.report(lost, on_result)
    }

    /// Reports wishes that were lost too often as failures.
    fn report(&mut self, lost: LostWishes, on_result: &mut OnResult<'_>) -> ControlFlow<()> {
        for (number, measurement) in lost.failed {
            on_result(number as usize, measurement)?;
        }
        ControlFlow::Continue(())
    }

    /// Tells the workers that the remaining leases are no longer wanted.
    fn return_leases(&mut self) {
        let leases: Vec<(usize, LeaseId)> = self.ledger.leases().collect();
        for (worker, lease) in leases {
            self.fleet.send(worker, &TunerMessage::Return { lease });
        }
    }
}

/// Reason that a worker gave no result of a race.
enum RaceLoss {
    /// Another attempt may succeed.
    Again(String),
    Error(MeasureError),
}

impl Fleet {
    /// Waits for a worker to race on.
    fn next_racer(&mut self) -> Result<usize, MeasureError> {
        loop {
            self.check()?;
            let usable = self.usable();
            let ratio = |worker: &usize| self.health.ratio(*worker).unwrap_or(f64::INFINITY);
            let fastest = usable.iter().copied().min_by(|a, b| ratio(a).total_cmp(&ratio(b)));
            if let Some(racer) = self.racer.filter(|racer| usable.contains(racer)).or(fastest) {
                self.racer = Some(racer);
                return Ok(racer);
            }
            self.hear();
        }
    }

    fn race_on(
        &mut self,
        worker: usize,
        lease: LeaseId,
        candidates: &[Candidate],
        budget_secs: f64,
    ) -> Result<RaceResult, RaceLoss> {
        let racer = |c: &Candidate| Racer { workload: c.workload().to_string(), config: c.config().clone() };
        let racers = candidates.iter().map(racer).collect();
        if !self.send(worker, &TunerMessage::Race { lease, racers, budget_secs }) {
            return Err(RaceLoss::Again("its connection ended".into()));
        }
        let mut seen = Instant::now();
        loop {
            self.check().map_err(RaceLoss::Error)?;
            if seen.elapsed() > self.options.params.lease {
                self.members[worker].is_silent = true;
                return Err(RaceLoss::Again("its worker reported no progress".into()));
            }

            match self.hear() {
                Heard::Left(left, why) if left == worker => {
                    return Err(RaceLoss::Again(why.unwrap_or_else(|| "it stopped".into())));
                }
                Heard::Message(_, WorkerMessage::Progress { leases }) if leases.contains(&lease) => {
                    seen = Instant::now();
                }
                Heard::Message(_, WorkerMessage::Raced { lease: of, measurements, failure }) if of == lease => {
                    let bad = measurements.iter().find_map(implausible);
                    if bad.is_some() || measurements.len() != candidates.len() {
                        let why = bad.unwrap_or_else(|| "a race without all its results".into());
                        self.expel(worker, &why);
                        return Err(RaceLoss::Again(why));
                    }
                    let failure = failure.map(|message| MeasureError::Worker { message });
                    return Ok(RaceResult { measurements, failure });
                }
                Heard::Message(_, WorkerMessage::Returned { lease: of, fault }) if of == lease => {
                    return Err(RaceLoss::Again(fault.unwrap_or_else(|| "it stopped".into())));
                }
                _ => {}
            }
        }
    }
}
