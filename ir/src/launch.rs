//! How a stage is launched on a GPU.

use serde::{Deserialize, Serialize};

use crate::instruction::{BOX_COPY, BoxCopy};
use crate::program::{Grid, Node, PRODUCER_THREADS, Program, Scope, Stage, WarpRole, preorder};

/// The grid of a stage, in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// Blocks (OpenCL: work-groups).
    pub blocks: usize,
    /// Threads of a block (OpenCL: work-items of a group).
    pub threads: usize,
    /// Shared memory of a block. CUDA: dynamic, aligned to 16 bytes, to 1024 where boxes are
    /// copied; OpenCL: declared by the kernel itself.
    pub shared_bytes: usize,
}

impl Launch {
    /// The launch of a GPU stage; `None` for any other.
    pub fn of(program: &Program, stage: &Stage) -> Option<Self> {
        let grid = Grid::of(stage)?;
        let blocks = grid.blocks.iter().map(|l| l.extent).product();
        let buffers = shared_offsets(program, grid.body).last().map_or(0, |&(_, end)| end);
        let arrivals =
            box_copies(grid.body).iter().map(|copy| program.buffer(copy.to.buffer).shape[0]).max().unwrap_or(0);
        let (releases, producers) = if WarpRole::occurs(grid.body) { (arrivals, PRODUCER_THREADS) } else { (0, 0) };
        let shared_bytes = buffers + (ARRIVAL_BYTES * (arrivals + releases)).next_multiple_of(16);
        Some(Self { blocks, threads: grid.block_threads() + producers, shared_bytes })
    }
}

/// Bytes behind the shared buffers that tell of the arrival of copies of boxes, for each slot; as
/// many again, behind those of all slots, tell a producer of releases.
pub const ARRIVAL_BYTES: usize = 8;

/// The copies of boxes in some nodes.
pub fn box_copies(nodes: &[Node]) -> Vec<BoxCopy<'_>> {
    let copies = preorder(nodes).filter_map(|node| match node {
        Node::Call { instruction, body } if **instruction == BOX_COPY => BoxCopy::of(body),
        _ => None,
    });
    copies.collect()
}

/// Each shared buffer that is allocated in the nodes: its position in [`Program::buffers`] and the
/// byte behind its last, rounded up, in the block's shared memory. Buffers begin at multiples of 16
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
