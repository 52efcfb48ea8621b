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
    deliveries: usize,
}

struct OpenWish {
    candidate: Candidate,
    /// Number of deliveries that were lost.
    lost: usize,
    /// True once a worker got it.
    is_leased: bool,
}

/// Wishes that a worker holds.
struct Lease {
    worker: usize,
    wishes: Vec<u64>,
    seen: Instant,
    /// True if its only wish was lost before.
    is_suspect: bool,
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
            self.open.insert(self.given, OpenWish { candidate, lost: 0, is_leased: false });
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
        self.leases.values().filter(|lease| lease.worker == worker).map(|lease| lease.wishes.len()).sum()
    }

    /// Returns the candidate that waits longest.
    pub fn next(&self) -> Option<&Candidate> {
        self.waiting.front().and_then(|number| self.open.get(number)).map(|wish| &wish.candidate)
    }

    /// Leases up to `most` waiting wishes of one workload to a worker; `None` if there are none for
    /// it.
    pub fn take(&mut self, worker: usize, most: usize, now: Instant) -> Option<Leased> {
        let is_suspect = self.open.get(self.waiting.front()?)?.lost > 0;
        let mut held = self.leases.values().filter(|lease| lease.worker == worker);
        if held.any(|lease| is_suspect || lease.is_suspect) {
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
            wish.is_leased = true;
            wishes.push((number, wish.candidate.clone()));
            self.waiting.pop_front();
        }

        let number = self.leased;
        self.leased += 1;
        let numbers = wishes.iter().map(|(number, _)| *number).collect();
        self.leases.insert(number, Lease { worker, wishes: numbers, seen: now, is_suspect });
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
        if run != self.run || !self.open.get(&wish)?.is_leased {
            return None;
        }
        let answered = self.open.remove(&wish)?;
        self.waiting.retain(|number| *number != wish);
        for lease in self.leases.values_mut() {
            if let Some(at) = lease.wishes.iter().position(|number| *number == wish) {
                lease.wishes.remove(at);
                lease.seen = now;
            }
        }
        self.leases.retain(|_, lease| !lease.wishes.is_empty());
        Some(answered.candidate)
    }

    /// Ends a lease that a worker returned; its wishes wait again. With a fault they count as lost.
    pub fn give_back(&mut self, lease: LeaseId, fault: Option<&str>) -> LostWishes {
        let ended = self.own(lease).and_then(|number| self.leases.remove(&number));
        ended.map(|lease| self.wait_again(lease.wishes, fault)).unwrap_or_default()
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
        let ended = self.leases.extract_if(.., |_, lease| is_ended(lease));
        let wishes = ended.flat_map(|(_, lease)| lease.wishes).collect();
        self.wait_again(wishes, fault)
    }

    /// Puts wishes back in front of the others, in order.
    fn wait_again(&mut self, wishes: Vec<u64>, fault: Option<&str>) -> LostWishes {
        let mut lost = LostWishes::default();
        for number in wishes.into_iter().rev() {
            let Some(wish) = self.open.get_mut(&number) else { continue };
            wish.lost += usize::from(fault.is_some());
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
