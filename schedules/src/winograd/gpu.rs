//! The Winograd sketch on a GPU: separate kernels for the transforms and a batched matrix product.
//!
//! ```text
//! ahead of time  U[xi, c, o] = (G g Gᵀ)[xi]                     a thread per pair of channels
//! every run      V[xi, c, t] = (Bᵀ d B)[xi]                     a thread per tile and channel
//!                M[xi, o, t] = sum over c of U[xi, c, o] * V[xi, c, t]     tiled, a block per xi
//!                output = act((Aᵀ M A)[valid] + bias + residual)     a thread per tile and channel
//! ```
//!
//! `t` counts the tiles of all images. Tiles of zeros follow them to a multiple of [`VECTOR`], so
//! that rows of `V` and `M` can be copied as vectors. With `split=n`, each product is `n` sums over
//! parts of the channels, `M[s, xi, o, t]`, which the last kernel adds up.

use std::sync::Arc;

use super::conv::WinogradConv;
use super::rewrite::{Multiples, rewritten};
use super::{SKETCH, TILE_SIZE_KNOB};
use crate::config::KnobValues;
use crate::contraction::Contraction;
use crate::direct::reader::KnobReader;
use crate::error::LowerError;
use crate::gpu::{AxisRoles, Tiling, threads};
use crate::knob_space::Knob;
use autotune_ir::DType;
use autotune_ir::target::GpuTarget;
use autotune_workloads::Workload;

pub(crate) mod lower;

/// Sizes of output tiles. Larger ones need more registers than a thread has.
const TILE_SIZES: [usize; 2] = [2, 4];
/// The number of tiles is padded to a multiple of this.
pub const VECTOR: usize = 4;

/// A config of the Winograd sketch on a GPU, parsed.
#[derive(Clone, Debug)]
pub struct GpuWinograd {
    /// Convolution that is computed.
    pub conv: WinogradConv,
    /// Rows (and columns) of an output tile.
    pub m: usize,
    /// Tiling of the matrix products.
    pub product: Tiling,
}

/// Returns the convolution if the sketch applies: f32, 3x3 taps, stride 1. Most others need more
/// registers for a tile than a thread has.
fn applies(workload: &Workload) -> Option<WinogradConv> {
    WinogradConv::of(workload).filter(|conv| (workload.dtype(), conv.taps, conv.stride) == (DType::F32, 3, 1))
}

/// Returns the roles of the matrix products, with axes `xi, t, o | c`. Filters are not packed,
/// since their transform can write them in any order.
fn product(workload: &Workload, conv: &WinogradConv, m: usize) -> Arc<AxisRoles> {
    workload.once(m, || {
        let multiples = Multiples { tiles: VECTOR, channels: 1 };
        let contraction = Contraction::with_unit_axes(&rewritten(workload, conv, m, multiples));
        AxisRoles::new(contraction.without_unit_axes(), [vec![2, 1], vec![0], vec![3]])
    })
}

/// Returns every knob of the sketch with its values, for one workload and target. Returns `None` if
/// the sketch does not apply.
pub fn knobs(workload: &Workload, target: &GpuTarget) -> Option<Vec<Knob>> {
    let conv = applies(workload)?;
    let sizes: Vec<usize> = TILE_SIZES.into_iter().filter(|&m| conv.saves_work(m)).collect();
    let words: Vec<String> = sizes.iter().map(usize::to_string).collect();
    let mut knobs: Vec<Knob> = Vec::new();
    // Products of different tile sizes have different extents; knobs offer the union of their
    // values.
    for &m in &sizes {
        for knob in threads::knobs(&product(workload, &conv, m), target) {
            match knobs.iter_mut().find(|known| known.name == knob.name) {
                Some(known) => {
                    let new = knob.values.into_iter().filter(|value| !known.values.contains(value));
                    let new: Vec<_> = new.collect();
                    known.values.extend(new);
                }
                None => knobs.push(knob),
            }
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    (!words.is_empty()).then(|| [vec![Knob::choice(TILE_SIZE_KNOB, &words)], knobs].concat())
}

impl GpuWinograd {
    /// Parses the knobs of a config. Fails with the first knob that is malformed, does not fit the
    /// workload, or breaks a limit of the target.
    pub fn new(workload: &Workload, target: &GpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let conv = applies(workload).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        let m = KnobReader(knobs).number(TILE_SIZE_KNOB)?;
        if !TILE_SIZES.contains(&m) || !conv.saves_work(m) {
            return Err(LowerError::knob(
                TILE_SIZE_KNOB,
                format!("tiles of {m}x{m} save no work or need too many registers"),
            ));
        }
        let product = threads::tiling(product(workload, &conv, m), workload.dtype(), knobs)?;
        Ok(Self { conv, m, product: product.checked(target)? })
    }

    /// Rows (and columns) of the transformed tile.
    pub fn a(&self) -> usize {
        self.conv.filtering(self.m).inputs()
    }

    /// Number of images, and rows and columns of tiles in each.
    pub fn grid(&self) -> [usize; 3] {
        let [rows, columns] = self.conv.grid(self.m);
        [self.conv.n, rows, columns]
    }

    /// Number of tiles of all images, with the padding tiles of zeros.
    pub fn tiles(&self) -> usize {
        self.grid().iter().product::<usize>().next_multiple_of(VECTOR)
    }
}
