//! The sketch `rows`: maps, reductions and chains of them, on GPUs.

use std::sync::Arc;

use super::turned::ContiguousAxes;
use super::{Rows, SKETCH, chain_of, kept, longest, lower, vectors, widest};
use crate::config::KnobValues;
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use crate::sketch::{self, Plan, Sketch};
use autotune_ir::program::Program;
use autotune_ir::target::Target;
use autotune_workloads::Workload;

/// Candidate numbers of threads per block.
const THREADS: [usize; 6] = [32, 64, 128, 256, 512, 1024];
/// Candidate numbers of threads per row.
const ROW_THREADS: [usize; 9] = [1, 4, 8, 16, 32, 64, 128, 256, 1024];
/// Candidate numbers of partial results that a thread combines at once.
const FAN_IN: [usize; 4] = [2, 4, 8, 16];
/// Candidate edge lengths for the tiles of a transposing copy.
const TILES: [&str; 3] = ["none", "32", "64"];
/// Candidate vector lengths in elements.
const VECTORS: [usize; 4] = [1, 2, 4, 8];

/// Sketch for chains of maps and reductions on GPUs.
pub(crate) struct RowsSketch;

impl Sketch for RowsSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        let (chain, gpu) = (chain_of(workload)?, target.gpu()?);

        let longest = longest(&chain).next_power_of_two();
        // A map needs one thread per element, and no others in its row.
        let most = if chain.passes().iter().any(|pass| pass.reduces()) { longest } else { 1 };
        let choice = |name: &str, numbers: &[usize], most: usize| {
            let words: Vec<String> = numbers.iter().filter(|&&number| number <= most).map(usize::to_string).collect();
            Knob::choice(name, &words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let divided = vectors(&chain).map_or(1, |(_, divided)| divided);
        let lanes: Vec<usize> = VECTORS.into_iter().filter(|&lanes| divided.is_multiple_of(lanes)).collect();
        let keep: &[&str] = if most > 1 && kept(&chain).next().is_some() { &["none", "shared"] } else { &["none"] };
        Some(vec![
            choice("threads", &THREADS, gpu.threads_per_block),
            choice("threads.row", &ROW_THREADS, most),
            choice("fan_in", &FAN_IN, most.max(2)),
            choice("unroll", &[1, 2, 4, 8], if longest > 1 { 8 } else { 1 }),
            Knob::choice("keep", keep),
            choice("vector", &lanes, widest(&chain)).optional(),
            Knob::choice("tile", if ContiguousAxes::of(&chain).is_some() { &TILES } else { &TILES[..1] }).optional(),
        ])
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        Ok(Box::new(Rows::new(workload, sketch::gpu_of(self, workload, target)?, knobs)?))
    }

    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        space.least(|point| sketch::cycles(self, workload, target, point))
    }
}

impl Plan for Rows {
    fn lower(&self) -> Program {
        lower::lower(self)
    }
}
