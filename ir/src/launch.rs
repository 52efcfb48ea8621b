//! How a stage is launched on a GPU.

use serde::{Deserialize, Serialize};

use crate::instruction::{BOX_COPY, BoxCopy};
use crate::plan::TensorBox;
use crate::program::{Loop, LoopKind, Node, PRODUCER_THREADS, Program, Scope, Stage, WarpRole};

/// The grid of a stage, in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// Blocks (OpenCL: work-groups).
    pub blocks: usize,
    /// Threads of a block (OpenCL: work-items of a group).
    pub threads: usize,
    /// Shared memory of a block. CUDA: dynamic, aligned to 16 bytes, to 1024 where boxes are copied; OpenCL: declared by the kernel itself.
    pub shared_bytes: usize,
}

/// The loops that make the grid of a GPU stage.
pub struct Grid<'a> {
    /// Block loops, outermost first.
    pub blocks: Vec<&'a Loop>,
    /// Thread loops, outermost first.
    pub threads: Vec<&'a Loop>,
    /// What every thread runs.
    pub body: &'a [Node],
}

impl<'a> Grid<'a> {
    /// The grid of a GPU stage: block loops, then thread loops, each the only node of the one around it. `None` for any
    /// other stage.
    pub fn of(stage: &'a Stage) -> Option<Self> {
        let mut grid = Self { blocks: Vec::new(), threads: Vec::new(), body: &stage.body };
        while let [Node::Loop(l)] = grid.body {
            match l.kind {
                LoopKind::Block if grid.threads.is_empty() => grid.blocks.push(l),
                LoopKind::Thread => grid.threads.push(l),
                _ => break,
            }
            grid.body = &l.body;
        }
        (!grid.blocks.is_empty() || !grid.threads.is_empty()).then_some(grid)
    }

    /// Number of threads of a block that the thread loops number: all, or the consumers.
    pub fn block_threads(&self) -> usize {
        self.threads.iter().map(|l| l.extent).product()
    }
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

/// Bytes behind the shared buffers that tell of the arrival of copies of boxes, for each slot; as many again, behind those of all
/// slots, tell a producer of releases.
pub const ARRIVAL_BYTES: usize = 8;

/// The copies of boxes in some nodes.
pub fn box_copies(nodes: &[Node]) -> Vec<BoxCopy<'_>> {
    let mut found = Vec::new();
    for node in nodes {
        match node {
            Node::Call { instruction, body } if **instruction == BOX_COPY => found.extend(BoxCopy::of(body)),
            node => found.extend(box_copies(node.body())),
        }
    }
    found
}

/// The boxes that a stage copies, each once.
pub fn boxes(stage: &Stage) -> Vec<TensorBox> {
    let mut found: Vec<TensorBox> = Vec::new();
    for copy in box_copies(&stage.body) {
        let one = TensorBox { buffer: copy.from.buffer.0 as usize, shape: copy.shape() };
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Each shared buffer that is allocated in the nodes: its position in [`Program::buffers`] and the byte behind its last, rounded
/// up, in the block's shared memory. Buffers begin at multiples of 16 bytes and do not overlap.
pub fn shared_offsets(program: &Program, nodes: &[Node]) -> Vec<(usize, usize)> {
    fn collect(program: &Program, nodes: &[Node], found: &mut Vec<(usize, usize)>) {
        for node in nodes {
            if let Node::Alloc { buffer, .. } = node
                && let Some(info) = program.buffers.get(buffer.0 as usize)
                && info.scope == Scope::Shared
                && found.iter().all(|&(known, _)| known != buffer.0 as usize)
            {
                let start = found.last().map_or(0, |&(_, end)| end);
                let bytes = info.len() * program.dtype(*buffer).bytes();
                found.push((buffer.0 as usize, start + bytes.next_multiple_of(16)));
            }
            collect(program, node.body(), found);
        }
    }
    let mut found = Vec::new();
    collect(program, nodes, &mut found);
    found
}
