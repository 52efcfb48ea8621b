//! Ways to store a result to memory.

use std::sync::LazyLock;

use autotune_ir::program::Access;
use autotune_ir::spec::{AxisId, TensorSpec};
use autotune_ir::target::CpuTarget;
use autotune_ir::{Affine, VarId};

use super::chain::{Chain, axis_of, contiguous_axis};
use crate::config::KnobValues;
use crate::error::LowerError;
use crate::knob_space::Knob;

/// Name of the knob.
pub(super) const KNOB: &str = "result";

/// Way to store a result. A plain store to a line that is in no cache waits until the line was
/// read, unless it was prefetched early enough. Stores of whole lines that bypass the caches do not
/// wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// Plain stores through the caches.
    Cached,
    /// An earlier pass over the tile, which computes more than the last one, prefetches the lines
    /// that the last pass stores to.
    Fetched,
    /// Whole vectors that bypass the caches.
    Streamed,
}

const ALL: [Storing; 3] = [Storing::Cached, Storing::Fetched, Storing::Streamed];

/// Knob with all values, to read configs with.
static WHOLE_KNOB: LazyLock<Knob> = LazyLock::new(|| Storing::knob(&ALL));

impl Storing {
    pub(super) fn word(self) -> &'static str {
        match self {
            Storing::Cached => "cached",
            Storing::Fetched => "fetched",
            Storing::Streamed => "streamed",
        }
    }

    /// Returns a knob that offers these values.
    pub(super) fn knob(offered: &[Self]) -> Knob {
        let words: Vec<&str> = offered.iter().map(|storing| storing.word()).collect();
        Knob::choice(KNOB, &words).optional()
    }

    /// Returns the values that a chain's knob offers. Results smaller than the second-level cache
    /// offer plain stores only. Results much smaller than the last-level cache never bypass it: the
    /// next reader would have to wait, which a measurement of the chain alone does not show.
    pub(super) fn of(chain: &Chain, cpu: &CpuTarget) -> Vec<Self> {
        let bytes = result_bytes(chain);
        let is_offered = |storing: &Self| match storing {
            Self::Cached => true,
            Self::Fetched => bytes > cpu.l2_bytes && chain.result_prefetch().is_some(),
            Self::Streamed => bytes > cpu.l2_bytes.max(cpu.l3_bytes / 4),
        };
        ALL.into_iter().filter(is_offered).collect()
    }

    /// Returns the default way: stores bypass the caches only if the next reader would not find the
    /// result there anyway.
    pub(super) fn unmeasured(chain: &Chain, cpu: &CpuTarget) -> Self {
        let offered = Self::of(chain, cpu);
        match result_bytes(chain) > cpu.l3_bytes / 2 {
            true => offered.last().copied().unwrap_or(Self::Cached),
            false => offered.into_iter().find(|&storing| storing == Self::Fetched).unwrap_or(Self::Cached),
        }
    }

    /// Reads the value of the knob.
    pub(super) fn read(chain: &Chain, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let position = WHOLE_KNOB.position(knobs.value(KNOB));
        let storing = ALL[position.ok_or_else(|| LowerError::knob(KNOB, "is not a way to store the result"))?];
        match storing == Self::Fetched && chain.result_prefetch().is_none() {
            true => Err(LowerError::knob(KNOB, "no earlier pass traverses the result")),
            false => Ok(storing),
        }
    }
}

/// Returns the tensor of the result, whose element type may differ from that of the last pass.
pub(super) fn result(chain: &Chain) -> &TensorSpec {
    let id = chain.spec.result().unwrap_or(chain.last().output.buffer);
    &chain.spec.tensors[id.0 as usize]
}

fn result_bytes(chain: &Chain) -> usize {
    let result = result(chain);
    result.dtype.bytes() * result.shape.iter().product::<usize>()
}

impl Chain {
    /// Returns the last pass before the final one that goes along the same own axis as the result,
    /// and the result's element indexed by that pass's axes.
    pub(super) fn result_prefetch(&self) -> Option<(usize, Access)> {
        let ([before @ .., last], output) = (self.passes(), &self.last().output) else { return None };
        let along = contiguous_axis(output).filter(|&axis| axis >= self.rows)?;
        let is_alike = |number: usize, own: AxisId, axis: AxisId| {
            let (own, axis) = (&before[number].axes[own], &last.axes[axis]);
            (own.name, own.extent) == (axis.name, axis.extent)
        };
        (0..before.len()).rev().find_map(|number| {
            let own = |axis: AxisId| (0..before[number].axes.len()).find(|&own| is_alike(number, own, axis));
            // The pass must go along the result's contiguous axis, or its prefetches would miss
            // lines.
            own(along)?;
            let by_own = |index: &Affine| match axis_of(index) {
                Some(axis) => Some(Affine::var(VarId(own(axis)? as u32))),
                None => index.terms.is_empty().then(|| index.clone()),
            };
            let index = output.index.iter().map(by_own).collect::<Option<_>>()?;
            Some((number, Access { buffer: output.buffer, index }))
        })
    }
}
