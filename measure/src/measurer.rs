//! What measures candidates.

use std::ops::ControlFlow;

use autotune_measurement::Measurement;
use autotune_schedules::Candidate;

use crate::error::MeasureError;

/// What a race yields.
#[derive(Debug)]
pub struct RaceResult {
    /// One for each candidate, in order.
    pub measurements: Vec<Measurement>,
    /// Why the candidates were timed one by one, which makes their times no better than those of a
    /// search; `None` if they were timed in turns.
    pub failure: Option<MeasureError>,
}

impl RaceResult {
    /// Measurements of candidates that were timed in turns.
    pub fn in_turns(measurements: Vec<Measurement>) -> Self {
        Self { measurements, failure: None }
    }
}

/// Gives the next candidates to be measured; none is the end.
pub type Batches<'a> = dyn FnMut() -> Vec<Candidate> + Send + 'a;

/// Takes the position of a candidate among all that were given, and its measurement;
/// [`ControlFlow::Break`] ends the measuring.
pub type OnResult<'a> = dyn FnMut(usize, Measurement) -> ControlFlow<()> + 'a;

/// Measures candidates on one device.
///
/// A failed candidate is a result; an error means that the infrastructure is broken and says
/// nothing about candidates.
pub trait Measurer {
    /// Measures batches of candidates until `next_batch` gives an empty one. Each measurement goes
    /// to `on_result` once, in this thread, as soon as it is there, with the candidate's position
    /// among all of them, by which who takes it knows it: those of several devices come in any
    /// order. After a break nothing more is measured.
    ///
    /// On a CPU the next batch is asked for once the last one is measured. On a GPU it is asked
    /// for, in another thread, once all of the last one are being built, and built while the device
    /// runs: the results of the latest candidates are not there yet.
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError>;

    /// Measures one batch; [`Measurer::measure_batches`].
    fn measure(&mut self, candidates: &[Candidate], on_result: &mut OnResult<'_>) -> Result<(), MeasureError> {
        let mut batch = candidates.to_vec();
        self.measure_batches(&mut || std::mem::take(&mut batch), on_result)
    }

    /// Measures a few candidates in turns, many short rounds of each, so that whatever disturbs the
    /// machine disturbs all of them: for comparisons that must be fair. One measurement per
    /// candidate, in order; one that fails, or takes too long, fails alone. Where candidates cannot
    /// be timed in turns, since the process that does it dies again and again, each is timed by
    /// itself, and the result says so. The candidates must be of one target. The rounds take
    /// `budget_secs` together at most, but each candidate has one, and three where they do not take
    /// long; building, loading and checking come on top.
    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError>;
}
