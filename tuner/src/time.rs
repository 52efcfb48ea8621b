//! Distribution of a run's wall-clock time.

use std::time::Instant;

use autotune_measurement::Measurement;
use serde::Serialize;

/// Times of planning a batch: start, end of learning from earlier results, and end of proposing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchTimes {
    pub(crate) begun: Instant,
    pub(crate) learnt: Instant,
    pub(crate) proposed: Instant,
}

/// Distribution of a run's wall-clock time, in seconds. The parts add up to at most the whole: work
/// done while the device runs counts only as far as the device waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeShares {
    /// Reading the database, and fitting the model on its records.
    pub start_secs: f64,
    /// Waiting for proposals: search, lowering, features, predictions.
    pub propose_secs: f64,
    /// Waiting for builds, including the last ones, which were not used.
    pub build_secs: f64,
    /// Kernel runs for checks and timing, see [`autotune_measurement::RunSecs::kernel_secs`].
    pub run_secs: f64,
    /// Other parts of measuring: loading kernels, packing weights ahead of time, comparing outputs,
    /// communication with the worker, failed candidates.
    pub trial_secs: f64,
    /// Writing results to the database.
    pub record_secs: f64,
    /// Waiting for the model: features of the results, fitting.
    pub fit_secs: f64,
    /// Final race of the tasks.
    pub race_secs: f64,
}

impl TimeShares {
    /// Adds the time from `from` to `to`, in which the device waited for the batch `planned`.
    pub(crate) fn waited(&mut self, from: Instant, to: Instant, planned: Option<BatchTimes>) {
        let within =
            |start: Instant, end: Instant| end.min(to).saturating_duration_since(start.max(from)).as_secs_f64();
        let fit_secs = planned.map_or(0.0, |planned| within(planned.begun, planned.learnt));
        let propose_secs = planned.map_or(0.0, |planned| within(planned.learnt, planned.proposed));
        self.fit_secs += fit_secs;
        self.propose_secs += propose_secs;
        self.build_secs += (within(from, to) - fit_secs - propose_secs).max(0.0);
    }

    /// Adds the time of measuring a candidate.
    pub(crate) fn measured(&mut self, measure_secs: f64, measurement: &Measurement) {
        let run_secs = measurement.outcome.as_ref().map_or(0.0, |run| run.kernel_secs).min(measure_secs);
        self.run_secs += run_secs;
        self.trial_secs += measure_secs - run_secs;
    }

    /// Returns the seconds of the search, from the first proposal to the last fit.
    pub fn search_secs(&self) -> f64 {
        self.propose_secs + self.build_secs + self.run_secs + self.trial_secs + self.record_secs + self.fit_secs
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_the_device_waited_for_counts() {
        let start = Instant::now();
        let at = |secs: f64| start + Duration::from_secs_f64(secs);
        let planned = Some(BatchTimes { begun: at(1.0), learnt: at(3.0), proposed: at(4.0) });
        let shares = |from: f64, to: f64, planned| {
            let mut shares = TimeShares::default();
            shares.waited(at(from), at(to), planned);
            [shares.fit_secs, shares.propose_secs, shares.build_secs].map(|secs| (secs * 1e6).round() / 1e6)
        };
        assert_eq!(shares(1.0, 6.0, planned), [2.0, 1.0, 2.0], "planned and built in sequence");
        assert_eq!(shares(2.5, 6.0, planned), [0.5, 1.0, 2.0], "the device ran until 2.5");
        assert_eq!(shares(5.0, 6.0, planned), [0.0, 0.0, 1.0], "it was being built already");
        assert_eq!(shares(0.0, 2.0, planned), [1.0, 0.0, 1.0], "nothing was being planned at first");
        assert_eq!(shares(6.0, 6.0, planned), [0.0; 3], "it was ready");
        assert_eq!(shares(1.0, 2.0, None), [0.0, 0.0, 1.0]);
    }
}
