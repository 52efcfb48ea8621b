//! Blocks and threads of a GPU stage.

use super::{Loop, LoopKind, Node, Stage};

/// Loops that form the grid of a GPU stage.
pub struct GpuGrid<'a> {
    /// Block loops, outermost first.
    pub blocks: Vec<&'a Loop>,
    /// Thread loops, outermost first.
    pub threads: Vec<&'a Loop>,
    /// Nodes that every thread executes.
    pub body: &'a [Node],
}

impl<'a> GpuGrid<'a> {
    /// Returns the grid of a GPU stage: block loops, then thread loops, each the only child of its
    /// parent. `None` for other stages.
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

    /// Returns the number of threads per block that the thread loops number: all threads, or only
    /// the consumers.
    pub fn block_threads(&self) -> usize {
        self.threads.iter().map(|l| l.extent).product()
    }
}
