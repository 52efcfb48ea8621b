//! The trees of a trained model, laid out for fast prediction.

#[cfg(feature = "train")]
use rayon::prelude::*;

mod compact;
#[cfg(feature = "train")]
mod json;

#[cfg(feature = "train")]
pub use json::TreesError;

/// Set in [`Node::split`] when a missing value goes to the right child.
const MISSING_RIGHT: u32 = 1 << 31;
/// Rows that walk down a tree in step, or trees that a row walks down, so that their loads overlap.
const LANES: usize = 8;
/// Rows that one thread predicts at a time.
#[cfg(feature = "train")]
const ROWS_PER_TASK: usize = 512;
/// Batches with less work than this (rows times trees) are predicted on the calling thread.
#[cfg(feature = "train")]
const STEPS_PER_BATCH_MIN: usize = 100_000;

/// A node. Inner nodes send a row to `child` (left) or to the node after it (right). A leaf sends
/// every row to itself, so that rows at different depths can walk in step: nothing compares to its
/// threshold, NaN.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Rows whose feature is not below it go right.
    threshold: f32,
    /// The feature's column, and [`MISSING_RIGHT`].
    split: u32,
    /// The left child.
    child: u32,
    /// What a leaf adds to the prediction.
    value: f32,
}

#[derive(Clone, Copy, Debug)]
struct Root {
    node: u32,
    /// Inner nodes on the longest way to a leaf.
    depth: u32,
}

/// Regression trees: a prediction is the sum of one leaf per tree. Bit for bit what XGBoost
/// predicts.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    columns: usize,
    base: f32,
    roots: Vec<Root>,
    nodes: Vec<Node>,
}

impl Trees {
    /// Feature columns of the rows it was trained on.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Predicts row-major `values` of [`Trees::columns`] values per row. NaN is a missing value.
    pub(crate) fn predict(&self, values: &[f32]) -> Vec<f32> {
        let columns = self.columns;
        let mut predictions = vec![self.base; values.len() / columns];
        #[cfg(feature = "train")]
        if predictions.len() * self.roots.len() >= STEPS_PER_BATCH_MIN {
            predictions
                .par_chunks_mut(ROWS_PER_TASK)
                .zip(values.par_chunks(ROWS_PER_TASK * columns))
                .for_each(|(predictions, values)| self.add(values, predictions));
            return predictions;
        }

        self.add(values, &mut predictions);
        predictions
    }

    /// Adds the leaves of all trees, in the order of the trees: sums of floats depend on it.
    fn add(&self, values: &[f32], predictions: &mut [f32]) {
        let (columns, done) = (self.columns, predictions.len() / LANES * LANES);
        let (many, few) = predictions.split_at_mut(done);
        self.add_lanes(&values[..done * columns], many);
        for (prediction, row) in few.iter_mut().zip(values[done * columns..].chunks_exact(columns)) {
            self.add_row(row, prediction);
        }
    }

    /// The same of a multiple of [`LANES`] rows, [`LANES`] side by side.
    fn add_lanes(&self, values: &[f32], predictions: &mut [f32]) {
        let columns = self.columns;
        for root in &self.roots {
            let lanes = predictions.chunks_exact_mut(LANES).zip(values.chunks_exact(LANES * columns));
            for (predictions, rows) in lanes {
                let rows: [&[f32]; LANES] = std::array::from_fn(|lane| &rows[lane * columns..][..columns]);
                let mut at = [root.node as usize; LANES];
                for _ in 0..root.depth {
                    for (at, row) in at.iter_mut().zip(rows) {
                        *at = self.next(*at, row);
                    }
                }
                for (prediction, at) in predictions.iter_mut().zip(at) {
                    *prediction += self.nodes[at].value;
                }
            }
        }
    }

    /// The same of one row, [`LANES`] trees side by side.
    fn add_row(&self, row: &[f32], prediction: &mut f32) {
        for roots in self.roots.chunks(LANES) {
            let depth = roots.iter().map(|root| root.depth).max().unwrap_or(0);
            let mut at = [0; LANES];
            at.iter_mut().zip(roots).for_each(|(at, root)| *at = root.node as usize);
            for _ in 0..depth {
                for at in &mut at {
                    *at = self.next(*at, row);
                }
            }
            for (at, _) in at.iter().zip(roots) {
                *prediction += self.nodes[*at].value;
            }
        }
    }

    #[inline(always)]
    fn next(&self, at: usize, row: &[f32]) -> usize {
        let node = self.nodes[at];
        let value = row[(node.split & !MISSING_RIGHT) as usize];
        let right = (value >= node.threshold) | (value.is_nan() & (node.split & MISSING_RIGHT != 0));
        node.child as usize + usize::from(right)
    }
}
