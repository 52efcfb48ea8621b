//! Comparison of the workers of one target key by a kernel that all of them time.
//!
//! Every worker times the reference kernel when its device is opened and after every batch. Its
//! present time is the fastest of the last few, since a moment's disturbance says nothing about
//! the machine. A worker that takes longer than the fleet is quarantined: it gets no wishes until
//! it is as fast as the others again. Times themselves are not changed.

use std::collections::{HashMap, VecDeque};

/// Number of last times of which the fastest counts.
const LOOKS: usize = 3;

/// Reference times of the workers.
pub struct FleetHealth {
    /// Factor over the fleet's time beyond which a worker is quarantined.
    drift: f64,
    workers: HashMap<usize, WorkerHealth>,
}

#[derive(Default)]
struct WorkerHealth {
    looks: VecDeque<f64>,
    is_quarantined: bool,
}

impl WorkerHealth {
    fn secs(&self) -> Option<f64> {
        self.looks.iter().copied().min_by(f64::total_cmp)
    }
}

/// Change in a worker's standing, with its reference time over the fleet's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HealthChange {
    /// The worker gets no more wishes.
    Quarantined(f64),
    /// The worker gets wishes again.
    Recovered(f64),
}

impl FleetHealth {
    /// Returns an empty comparison. A worker that takes more than `drift` times as long as the
    /// others is quarantined.
    pub fn new(drift: f64) -> Self {
        Self { drift, workers: HashMap::new() }
    }

    /// Starts to compare a worker, with the time from its opening.
    pub fn join(&mut self, worker: usize, secs: Option<f64>) -> Option<HealthChange> {
        self.workers.insert(worker, WorkerHealth::default());
        self.look(worker, secs?)
    }

    /// Forgets a worker that left.
    pub fn leave(&mut self, worker: usize) {
        self.workers.remove(&worker);
    }

    /// Records a reference time, and returns the change that follows from it. The last healthy
    /// worker is never quarantined: there is none to compare it with.
    pub fn look(&mut self, worker: usize, secs: f64) -> Option<HealthChange> {
        let known = self.workers.get_mut(&worker).filter(|_| secs.is_finite() && secs > 0.0)?;
        known.looks.push_front(secs);
        known.looks.truncate(LOOKS);
        let own_secs = known.secs()?;

        let others = self.workers.iter().filter(|(other, health)| **other != worker && !health.is_quarantined);
        let fleet_secs = others.filter_map(|(_, health)| health.secs()).min_by(f64::total_cmp);
        let ratio = own_secs / fleet_secs?;
        let is_slow = ratio > self.drift;
        let known = self.workers.get_mut(&worker)?;
        let change = match (known.is_quarantined, is_slow) {
            (false, true) => Some(HealthChange::Quarantined(ratio)),
            (true, false) => Some(HealthChange::Recovered(ratio)),
            _ => None,
        };
        known.is_quarantined = is_slow;
        change
    }

    /// Returns true if a worker must not measure.
    pub fn is_quarantined(&self, worker: usize) -> bool {
        let healthy = |health: &WorkerHealth| !health.is_quarantined;
        let is_slow = self.workers.get(&worker).is_some_and(|health| health.is_quarantined);
        // With all others gone, a slow worker is better than none, and is compared with itself.
        is_slow && self.workers.values().any(healthy)
    }

    /// Returns the reference time of a worker over that of the fastest; `None` if unknown.
    pub fn ratio(&self, worker: usize) -> Option<f64> {
        let fastest = self.workers.values().filter_map(WorkerHealth::secs).min_by(f64::total_cmp)?;
        Some(self.workers.get(&worker)?.secs()? / fastest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_worker_is_quarantined_until_it_recovers() {
        let mut health = FleetHealth::new(1.25);
        assert_eq!(health.join(0, Some(1.0)), None, "there is none to compare it with");
        assert_eq!(health.join(1, Some(1.2)), None);
        assert_eq!(health.join(2, Some(2.0)), Some(HealthChange::Quarantined(2.0)));
        assert_eq!([0, 1, 2].map(|worker| health.is_quarantined(worker)), [false, false, true]);
        assert_eq!(health.look(2, 1.9), None, "it still is");
        assert_eq!(health.look(2, 1.1), Some(HealthChange::Recovered(1.1)));
        assert!(!health.is_quarantined(2));

        // Worker 1 drifts, but only the fastest of three looks counts.
        assert_eq!([health.look(1, 1.6), health.look(1, 1.6)], [None; 2]);
        assert_eq!(health.look(1, 1.6), Some(HealthChange::Quarantined(1.6)));
    }

    #[test]
    fn the_last_worker_measures_however_slow_it_is() {
        let mut health = FleetHealth::new(1.25);
        health.join(0, Some(1.0));
        health.join(1, Some(9.0));
        assert!(health.is_quarantined(1));
        health.leave(0);
        assert!(!health.is_quarantined(1));
        assert_eq!(health.look(1, f64::NAN), None);
        assert_eq!(health.ratio(0), None);
        assert_eq!(health.ratio(1), Some(1.0));
    }
}
