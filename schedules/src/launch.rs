//! How a stage is launched on a GPU.

use serde::{Deserialize, Serialize};

use crate::program::{Loop, LoopKind, Node, Program, Scope, Stage};

/// The grid of a stage, in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// Blocks (OpenCL: work-groups).
    pub blocks: usize,
    /// Threads of a block (OpenCL: work-items of a group).
    pub threads: usize,
    /// Shared memory of a block. CUDA: dynamic, 16-byte aligned; OpenCL: declared by the kernel itself.
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

    /// Number of threads of a block.
    pub fn block_threads(&self) -> usize {
        self.threads.iter().map(|l| l.extent).product()
    }
}

impl Launch {
    /// The launch of a GPU stage; `None` for any other.
    pub fn of(program: &Program, stage: &Stage) -> Option<Self> {
        let grid = Grid::of(stage)?;
        let blocks = grid.blocks.iter().map(|l| l.extent).product();
        let shared_bytes = shared_offsets(program, grid.body).last().map_or(0, |&(_, end)| end);
        Some(Self { blocks, threads: grid.block_threads(), shared_bytes })
    }
}

/// Each shared buffer that is allocated in the nodes: its position in [`Program::buffers`] and the byte behind its last, rounded
/// up, in the block's shared memory. Buffers begin at multiples of 16 bytes and do not overlap.
pub(crate) fn shared_offsets(program: &Program, nodes: &[Node]) -> Vec<(usize, usize)> {
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
