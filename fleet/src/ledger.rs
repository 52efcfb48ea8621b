//! Book of the wishes of one run: who holds which, and that each gets exactly one answer.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use autotune_measurement::{CandidateError, Measurement};
use autotune_schedules::Candidate;

use crate::message::LeaseId;
use crate::params::MAX_WISHES;

/// Wishes of a run, by their positions among all candidates.
///
/// A wish waits, or is part of one lease, or is answered. A lease is lost with its worker, or when
/// the worker reports no progress in time; its wishes wait again. The first answer to a wish
/// counts, also if it comes from a lost lease; others are ignored. A wish whose deliveries were
/// lost too often is answered by a failure.
///
/// A wish may be the reason that its worker died. After a lost delivery it is therefore leased
/// alone, to a worker that holds nothing else, so that no other wish is lost with it again.
pub struct Ledger {
    run: u64,
    /// Number of wishes so far.
    given: u64,
    /// Number of leases so far.
    leased: u64,
    open: HashMap<u64, OpenWish>,
    waiting: VecDeque<u64>,
    leases: BTreeMap<u64, Lease>,
    loads: HashMap<usize, WorkerLoad>,
    deliveries: usize,
}

/// Work of one worker.
#[derive(Clone, Copy, Default)]
struct WorkerLoad {
    leases: usize,
    wishes: usize,
    /// True if it measures a wish that was lost before.
    has_suspect: bool,
}

struct OpenWish {
    candidate: Candidate,
    /// Number of deliveries that were lost.
    lost: usize,
    /// Lease that it was part of last, and whether that still runs. `None` if no worker ever got
    /// it.
    lease: Option<(u64, bool)>,
}

/// Wishes that a worker holds.
struct Lease {
    worker: usize,
    wishes: Vec<u64>,
    seen: Instant,
}

/// Wishes for one workload that were leased together.
pub struct Leased {
    /// Identity of the lease.
    pub lease: LeaseId,
    /// Candidates with their positions.
    pub wishes: Vec<(u64, Candidate)>,
}

/// Consequences of lost leases.
#[derive(Debug, Default)]
pub struct LostWishes {
    /// Number of wishes that wait again.
    pub again: usize,
    /// Answers to wishes that were lost too often.
    pub failed: Vec<(u64, Measurement)>,
}

impl Ledger {
    /// Returns an empty ledger. `run` distinguishes its leases from those of others; a wish fails
    /// after `deliveries` lost ones.
    pub fn new(run: u64, deliveries: usize) -> Self {
        Self {
            run,
            given: 0,
            leased: 0,
            open: HashMap::new(),
            waiting: VecDeque::new(),
            leases: BTreeMap::new(),
            loads: HashMap::new(),
            deliveries: deliveries.max(1),
        }
    }

    /// Returns the number of the run.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Adds candidates; their positions follow those of the last ones.
    pub fn add(&mut self, candidates: Vec<Candidate>) {
        for candidate in candidates {
            self.open.insert(self.given, OpenWish { candidate, lost: 0, lease: None });
            self.waiting.push_back(self.given);
            self.given += 1;
        }
    }

    /// Returns the number of wishes that no worker holds.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if every wish is answered.
    pub fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the number of unanswered wishes that a worker holds.
    pub fn held_by(&self, worker: usize) -> usize {
        self.load(worker).wishes
    }

    /// Returns the number of leases of a worker.
    pub fn leases_of(&self, worker: usize) -> usize {
        self.load(worker).leases
    }

    fn load(&self, worker: usize) -> WorkerLoad {
        self.loads.get(&worker).copied().unwrap_or_default()
    }

    /// Returns the candidate that waits longest.
    pub fn next(&self) -> Option<&Candidate> {
        self.waiting.front().and_then(|number| self.open.get(number)).map(|wish| &wish.candidate)
    }

    /// Leases up to `most` waiting wishes of one workload to a worker; `None` if there are none for
    /// it.
    pub fn take(&mut self, worker: usize, most: usize, now: Instant) -> Option<Leased> {
        let is_suspect = self.open.get(self.waiting.front()?)?.lost > 0;
        let load = self.load(worker);
        if load.has_suspect || is_suspect && load.leases > 0 {
            return None;
        }

        let most = if is_suspect { 1 } else { most.clamp(1, MAX_WISHES) };
        let mut wishes: Vec<(u64, Candidate)> = Vec::new();
        while let Some(&number) = self.waiting.front()
            && let Some(wish) = self.open.get_mut(&number)
            && wishes.len() < most
            && (wish.lost > 0) == is_suspect
            && wishes.first().is_none_or(|(_, first)| first.workload() == wish.candidate.workload())
        {
            wish.lease = Some((self.leased, true));
            wishes.push((number, wish.candidate.clone()));
            self.waiting.pop_front();
        }

        let number = self.leased;
        self.leased += 1;
        let numbers = wishes.iter().map(|(number, _)| *number).collect();
        self.leases.insert(number, Lease { worker, wishes: numbers, seen: now });
        let load = self.loads.entry(worker).or_default();
        load.leases += 1;
        load.wishes += wishes.len();
        load.has_suspect = is_suspect;
        Some(Leased { lease: LeaseId { run: self.run, number }, wishes })
    }

    /// Records that a worker still works on a lease.
    pub fn progress(&mut self, lease: LeaseId, now: Instant) {
        if let Some(lease) = self.own(lease).and_then(|number| self.leases.get_mut(&number)) {
            lease.seen = now;
        }
    }

    /// Records an answer. Returns the candidate if it is the first one to the wish, and a worker
    /// ever got it.
    pub fn answer(&mut self, run: u64, wish: u64, now: Instant) -> Option<Candidate> {
        if run != self.run {
            return None;
        }
        let (number, is_running) = self.open.get(&wish)?.lease?;
        let answered = self.open.remove(&wish)?;
        if !is_running {
            self.waiting.retain(|waiting| *waiting != wish);
        }

        if let Some(lease) = self.leases.get_mut(&number).filter(|_| is_running) {
            lease.wishes.retain(|held| *held != wish);
            lease.seen = now;
            let (worker, is_over) = (lease.worker, lease.wishes.is_empty());
            if is_over {
                self.leases.remove(&number);
            }
            self.unload(worker, 1, is_over);
        }
        Some(answered.candidate)
    }

    /// Records that a worker holds fewer wishes, and one lease less if it is over.
    fn unload(&mut self, worker: usize, wishes: usize, is_over: bool) {
        let Some(load) = self.loads.get_mut(&worker) else { return };
        load.wishes -= wishes;
        if is_over {
            load.leases -= 1;
            load.has_suspect = false;
        }
    }

    /// Ends a lease that a worker returned; its wishes wait again. With a fault they count as lost.
    pub fn give_back(&mut self, lease: LeaseId, fault: Option<&str>) -> LostWishes {
        let ended = self.own(lease).and_then(|number| self.leases.remove(&number));
        ended.map(|lease| self.wait_again(vec![lease], fault)).unwrap_or_default()
    }

    /// Ends all leases of a worker that is lost.
    pub fn lose(&mut self, worker: usize, why: &str) -> LostWishes {
        self.end_leases(|lease| lease.worker == worker, Some(why))
    }

    /// Ends all leases of a worker that stopped in good order.
    pub fn release(&mut self, worker: usize) -> LostWishes {
        self.end_leases(|lease| lease.worker == worker, None)
    }

    /// Ends the leases without progress for the time `limit`. Returns their workers, too.
    pub fn expire(&mut self, now: Instant, limit: Duration) -> (Vec<usize>, LostWishes) {
        let is_over = |lease: &Lease| now.saturating_duration_since(lease.seen) > limit;
        let mut workers: Vec<usize> = self.leases.values().filter(|l| is_over(l)).map(|lease| lease.worker).collect();
        workers.dedup();
        if workers.is_empty() {
            return (workers, LostWishes::default());
        }
        let lost = self.end_leases(is_over, Some("its worker reported no progress"));
        (workers, lost)
    }

    /// Returns the leases that workers hold, with the workers.
    pub fn leases(&self) -> impl Iterator<Item = (usize, LeaseId)> {
        self.leases.iter().map(|(number, lease)| (lease.worker, LeaseId { run: self.run, number: *number }))
    }

    fn own(&self, lease: LeaseId) -> Option<u64> {
        (lease.run == self.run).then_some(lease.number)
    }

    fn end_leases(&mut self, is_ended: impl Fn(&Lease) -> bool, fault: Option<&str>) -> LostWishes {
        let ended = self.leases.extract_if(.., |_, lease| is_ended(lease)).map(|(_, lease)| lease).collect();
        self.wait_again(ended, fault)
    }

    /// Puts the wishes of ended leases back in front of the others, in order.
    fn wait_again(&mut self, ended: Vec<Lease>, fault: Option<&str>) -> LostWishes {
        for lease in &ended {
            self.unload(lease.worker, lease.wishes.len(), true);
        }
        let wishes: Vec<u64> = ended.into_iter().flat_map(|lease| lease.wishes).collect();
        let mut lost = LostWishes::default();
        for number in wishes.into_iter().rev() {
            let Some(wish) = self.open.get_mut(&number) else { continue };
            wish.lost += usize::from(fault.is_some());
            wish.lease = wish.lease.map(|(lease, _)| (lease, false));
            match fault {
                Some(why) if wish.lost >= self.deliveries => {
                    self.open.remove(&number);
                    let message = format!("not measured in {} deliveries to workers; the last: {why}", self.deliveries);
                    lost.failed.push((number, Measurement::of(Err(CandidateError::Crash { message }))));
                }
                _ => {
                    self.waiting.push_front(number);
                    lost.again += 1;
                }
            }
        }
        lost
    }
}
