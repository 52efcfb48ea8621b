//! Options of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use autotune_db::{EmptySource, Source, TuningDb, open_source};
use autotune_graph::{Precision, Tensor};
use autotune_ir::Target;
use autotune_runtime::Waiting;

use super::error::SessionError;
use crate::family::{FamilyOptions, ShapeRange};
use crate::pinned::PinnedNetwork;

/// Options of a [`Session`](crate::Session).
#[derive(Clone, Default)]
pub struct SessionOptions {
    /// Shapes that inputs may have, by name. Other inputs have the shapes that the file declares,
    /// with any extent where it leaves one open.
    pub shapes: BTreeMap<String, ShapeRange>,
    /// Inputs with the same value in all runs, by name. They are not passed to runs.
    pub values: BTreeMap<String, Tensor>,
    /// Precision of the computation.
    pub precision: SessionPrecision,
    /// True if quantised tensors of the file are computed in floating point.
    pub is_dequantised: bool,
    /// CPU and number of threads; by default this machine with all its cores.
    pub target: Option<Target>,
    /// Source of schedules; by default the database at [`TuningDb::default_path`], if it exists.
    pub source: Option<Arc<dyn Source>>,
    /// Behaviour of helper threads between runs and between the steps of a run.
    pub waiting: Waiting,
    /// Maximum number of networks in memory, each for one shape; by default that of
    /// [`FamilyOptions::of_inputs`].
    pub most_networks: Option<usize>,
    /// Plans of an earlier session of the same model ([`Session::pinned`](crate::Session::pinned)).
    /// Networks for which they [hold](PinnedNetwork::check) are made from them: source and
    /// measurements are not used.
    pub pinned: Vec<PinnedNetwork>,
}

/// Precision of a session's computation.
#[derive(Clone, Debug)]
pub enum SessionPrecision {
    /// One precision for all steps that support it.
    In(Precision),
    /// The fastest on example inputs whose outputs differ from f32 by at most `max_error` of their
    /// largest element. Requires fixed shapes.
    Fastest {
        /// Largest permitted relative error.
        max_error: f64,
        /// Tensors of inputs by name; others are [random](crate::random_input).
        examples: BTreeMap<String, Tensor>,
    },
}

impl Default for SessionPrecision {
    fn default() -> Self {
        Self::In(Precision::F32)
    }
}

impl SessionOptions {
    /// Returns the names of inputs with shapes or examples.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        let examples = match &self.precision {
            SessionPrecision::Fastest { examples, .. } => Some(examples.keys()),
            SessionPrecision::In(_) => None,
        };
        self.shapes.keys().chain(examples.into_iter().flatten())
    }

    /// True if the precision may be that of the whole network.
    pub(super) fn permits(&self, precision: Precision) -> bool {
        match self.precision {
            SessionPrecision::In(only) => only == precision,
            SessionPrecision::Fastest { .. } => true,
        }
    }

    /// Returns the CPU to run on.
    pub(super) fn target(&self) -> Result<Target, SessionError> {
        match &self.target {
            Some(target) if target.cpu().is_none() => Err(SessionError::NoCpu),
            Some(target) => Ok(target.clone()),
            None => Ok(Target::detect("cpu", None)?),
        }
    }

    /// Returns the source of schedules.
    pub fn source(&self) -> Result<Arc<dyn Source>, SessionError> {
        if let Some(source) = &self.source {
            return Ok(Arc::clone(source));
        }
        let opened = TuningDb::default_path().map(open_source).transpose();
        match opened {
            Err(error) if error.is_missing() => Ok(Arc::new(EmptySource)),
            opened => Ok(opened?.map_or_else(|| Arc::new(EmptySource) as Arc<dyn Source>, Arc::from)),
        }
    }

    /// Returns the options of a family with some inputs.
    pub(super) fn family(&self, inputs: Vec<(String, ShapeRange)>) -> FamilyOptions {
        let options = FamilyOptions::of_inputs(inputs);
        let most_networks = self.most_networks.unwrap_or(options.most_networks);
        FamilyOptions { most_networks, pinned: self.pinned.clone(), ..options }
    }
}
