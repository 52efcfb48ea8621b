//! Launch configuration of a GPU stage.

use serde::{Deserialize, Serialize};

use crate::instruction::{BOX_COPY, BoxCopy};
use crate::program::{GpuGrid, Node, PRODUCER_THREADS, Program, Scope, Stage, WarpRole, preorder};

/// One-dimensional grid of a GPU stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// Number of blocks (OpenCL: work-groups).
    pub blocks: usize,
    /// Threads per block (OpenCL: work-items per group).
    pub threads: usize,
    /// Bytes of shared memory per block. On CUDA it is dynamic, aligned to 16 bytes, or to 1024 if
    /// boxes are copied; on OpenCL the kernel declares it.
    pub shared_bytes: usize,
}

impl Launch {
    /// Computes the launch of a GPU stage; `None` for other stages.
    pub fn of(program: &Program, stage: &Stage) -> Option<Self> {
        let grid = GpuGrid::of(stage)?;
        let blocks = grid.blocks.iter().map(|l| l.extent).product();
        let buffers = shared_offsets(program, grid.body).last().map_or(0, |&(_, end)| end);
        // All copies to one slot share mbarriers; the buffer with most slots determines their
        // number.
        let arrivals =
            box_copies(grid.body).iter().map(|copy| program.buffer(copy.to.buffer).shape[0]).max().unwrap_or(0);
        let (releases, producers) = if WarpRole::occurs(grid.body) { (arrivals, PRODUCER_THREADS) } else { (0, 0) };
        // The mbarriers follow the buffers.
        let shared_bytes = buffers + (ARRIVAL_BYTES * (arrivals + releases)).next_multiple_of(16);
        Some(Self { blocks, threads: grid.block_threads() + producers, shared_bytes })
    }
}

/// Bytes of an mbarrier. For each slot of box copies, one that signals arrival follows the shared
/// buffers; with a producer, one per slot that signals release follows these.
pub const ARRIVAL_BYTES: usize = 8;

/// Returns the box copies in `nodes`.
pub fn box_copies(nodes: &[Node]) -> Vec<BoxCopy<'_>> {
    let copies = preorder(nodes).filter_map(|node| match node {
        Node::Call { instruction, body } if **instruction == BOX_COPY => BoxCopy::of(body),
        _ => None,
    });
    copies.collect()
}

/// Returns the layout of shared memory: for each shared buffer allocated in `nodes`, its position
/// in [`Program::buffers`] and its end, in bytes, rounded up. Buffers begin at multiples of 16
/// bytes and do not overlap.
pub fn shared_offsets(program: &Program, nodes: &[Node]) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for node in preorder(nodes) {
        if let Node::Alloc { buffer, .. } = node
            && let Some(info) = program.buffers.get(buffer.0 as usize)
            && info.scope == Scope::Shared
            && found.iter().all(|&(known, _)| known != buffer.0 as usize)
        {
            let start = found.last().map_or(0, |&(_, end)| end);
            let bytes = info.len() * info.dtype.bytes();
            found.push((buffer.0 as usize, start + bytes.next_multiple_of(16)));
        }
    }
    found
}
