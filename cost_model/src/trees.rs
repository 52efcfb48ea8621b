//! Regression trees of a trained model, in a layout for fast prediction.

#[cfg(feature = "train")]
use rayon::prelude::*;

mod compact;
#[cfg(feature = "train")]
mod json;

#[cfg(feature = "train")]
pub use json::TreesError;

/// Flag in [`TreeNode::split`]: a missing value goes to the right child.
const MISSING_RIGHT: u32 = 1 << 31;
/// Number of rows that walk down a tree together, or of trees that a row walks down together, so
/// that their loads overlap.
const LANES: usize = 8;
/// Rows per parallel task.
#[cfg(feature = "train")]
const ROWS_PER_TASK: usize = 512;
/// Smallest batch, in rows times trees, that is predicted in parallel.
#[cfg(feature = "train")]
const STEPS_PER_BATCH_MIN: usize = 100_000;

/// Node of a tree. An inner node sends a row to `child` (left) or to the node after it (right). A
/// leaf sends every row to itself, so that rows at different depths can walk together: its
/// threshold is NaN, to which every comparison is false.
#[derive(Clone, Copy, Debug)]
struct TreeNode {
    /// Rows whose feature is at least the threshold go right.
    threshold: f32,
    /// Column of the feature, combined with the flag [`MISSING_RIGHT`].
    split: u32,
    /// Index of the left child; a leaf's own index.
    child: u32,
    /// Value that a leaf adds to the prediction.
    value: f32,
}

#[derive(Clone, Copy, Debug)]
struct Root {
    node: u32,
    /// Number of inner nodes on the longest path to a leaf.
    depth: u32,
}

/// Regression trees: a prediction is the sum of one leaf per tree, bit for bit equal to XGBoost's.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    columns: usize,
    base: f32,
    roots: Vec<Root>,
    nodes: Vec<TreeNode>,
}

impl Trees {
    /// Returns the number of feature columns of the training rows.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Predicts row-major `values` with [`Trees::columns`] values per row. NaN is a missing value.
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

    /// Adds the leaves of all trees in the order of the trees, since a sum of floats depends on its
    /// order.
    fn add(&self, values: &[f32], predictions: &mut [f32]) {
        let (columns, done) = (self.columns, predictions.len() / LANES * LANES);
        let (many, few) = predictions.split_at_mut(done);
        self.add_lanes(&values[..done * columns], many);
        for (prediction, row) in few.iter_mut().zip(values[done * columns..].chunks_exact(columns)) {
            self.add_row(row, prediction);
        }
    }

    /// Adds the leaves for a multiple of [`LANES`] rows; [`LANES`] rows walk down a tree together.
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

    /// Adds the leaves for one row, which walks down [`LANES`] trees together.
    fn add_row(&self, row: &[f32], prediction: &mut f32) {
        // Shallow trees wait in their leaves until the deepest of the group is done.
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
