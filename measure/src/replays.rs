//! Timing of many runs in a row, launched as one recording where a device supports it.
//!
//! A kernel of a few microseconds runs faster than a host launches it. Runs are therefore recorded
//! (on CUDA into a graph), and the replay of recordings of [`GRAPH_RUNS`] runs each is timed. This
//! measures the device's work and its own gaps between kernels, but not the launching. Other
//! libraries that kernels are compared with are timed in the same way.

use autotune_runtime::{Device, DeviceError};

/// Most runs in a recording: enough to hide the launch of the first.
pub(crate) const GRAPH_RUNS: usize = 20;

/// Recording of runs of one kernel.
pub(crate) struct Replays<D: Device> {
    /// Number of runs in the recording, and the recording.
    recorded: Option<(usize, D::Recording)>,
    is_refused: bool,
}

/// Number of runs and the seconds they took in total.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) runs: usize,
    pub(crate) secs: f64,
}

impl<D: Device> Replays<D> {
    pub(crate) fn new() -> Self {
        Self { recorded: None, is_refused: false }
    }

    /// Times `runs` runs by the device's clock, rounded up to whole recordings; `run` launches one
    /// run.
    pub(crate) fn time(
        &mut self,
        device: &D,
        runs: usize,
        run: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Timed, DeviceError> {
        let wanted = runs.clamp(1, GRAPH_RUNS);
        if !self.is_refused && self.graph_runs() < wanted {
            let mut work = || (0..wanted).try_for_each(|_| run());
            self.recorded = device.record(&mut work).map(|recording| (wanted, recording));
            self.is_refused = self.recorded.is_none();
        }

        let Some((recorded, recording)) = &self.recorded else {
            let secs = device.time(&mut || (0..runs).try_for_each(|_| run()))?;
            return Ok(Timed { runs, secs });
        };
        let replays = runs.div_ceil(*recorded);
        let secs = device.time(&mut || (0..replays).try_for_each(|_| device.replay(recording)))?;
        Ok(Timed { runs: replays * recorded, secs })
    }

    /// Number of runs in a recording; 0 if runs are started one by one.
    pub(crate) fn graph_runs(&self) -> usize {
        self.recorded.as_ref().map_or(0, |(runs, _)| *runs)
    }
}
