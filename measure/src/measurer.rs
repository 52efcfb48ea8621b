//! Interface of measurers and of their results.

use std::ops::ControlFlow;

use autotune_measurement::Measurement;
use autotune_schedules::Candidate;

use crate::error::MeasureError;

/// Result of a race.
#[derive(Debug)]
pub struct RaceResult {
    /// One measurement per candidate, in order.
    pub measurements: Vec<Measurement>,
    /// Reason that the candidates were timed one after another, without interleaving. Such times
    /// are no more comparable than those of a search. `None` if timing was interleaved.
    pub failure: Option<MeasureError>,
}

impl RaceResult {
    /// Returns the result of a race with interleaved timing.
    pub fn interleaved(measurements: Vec<Measurement>) -> Self {
        Self { measurements, failure: None }
    }
}

/// Callback that returns the next batch of candidates; an empty batch ends the measuring.
pub type Batches<'a> = dyn FnMut() -> Vec<Candidate> + Send + 'a;

/// Callback that receives the position of a candidate among all candidates given so far, and its
/// measurement; [`ControlFlow::Break`] ends the measuring.
pub type OnResult<'a> = dyn FnMut(usize, Measurement) -> ControlFlow<()> + 'a;

/// Measures candidates on one device.
///
/// A failed candidate is a result; an error means that the infrastructure is broken and says
/// nothing about candidates.
pub trait Measurer {
    /// Measures batches of candidates until `next_batch` returns an empty one. `on_result` receives
    /// each measurement once, on the calling thread, as soon as it is available, with the
    /// candidate's position among all candidates. Results of several devices arrive in any order.
    /// After a break nothing more is measured.
    ///
    /// On a CPU the next batch is requested when the last one is measured. On a GPU builds overlap
    /// with measurements: the next batch is requested on another thread as soon as all of the last
    /// one are being built, so that the latest results are not yet known then.
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError>;

    /// Measures one batch, as [`Measurer::measure_batches`] does.
    fn measure(&mut self, candidates: &[Candidate], on_result: &mut OnResult<'_>) -> Result<(), MeasureError> {
        let mut batch = candidates.to_vec();
        self.measure_batches(&mut || std::mem::take(&mut batch), on_result)
    }

    /// Measures a few candidates with interleaved timing, in many short rounds, so that any
    /// disturbance of the machine affects all of them equally. Returns one measurement per
    /// candidate, in order; a candidate that fails or takes too long fails alone. If interleaving
    /// is impossible because the worker process dies again and again, each candidate is timed
    /// separately, and the result says so. All candidates must be of one target. The rounds take at
    /// most `budget_secs` together, but each candidate gets one, or three if they are short.
    /// Building, loading and checking are not included.
    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError>;

    /// Returns true if measurements of races state the share of the threads' time that others took
    /// ([`Measurement::taken`]), because the device is not one of this machine. By default it is.
    fn reports_load(&self) -> bool {
        false
    }
}
