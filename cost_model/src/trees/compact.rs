//! Compact binary form of trees: six bytes per node.
//!
//! All numbers are little-endian. The header is `columns: u32`, `base: f32`, `trees: u32`. Each
//! tree has `nodes: u32`, followed by its nodes breadth first, so that the position of a node's two
//! children follows from the nodes before. A node is `split: u16` (the column, or [`LEAF`]; the
//! highest bit, [`RIGHT`], is set if a missing value goes right) and `number: f32` (the threshold,
//! or a leaf's value).

use super::{MISSING_RIGHT, Root, TreeNode, Trees};

const LEAF: u16 = 0x7fff;
const RIGHT: u16 = 0x8000;

impl Trees {
    /// Encodes the trees; `None` if there are more columns than the form can number.
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(self.columns).ok().filter(|_| self.columns <= usize::from(LEAF))?.to_le_bytes());
        bytes.extend(self.base.to_le_bytes());
        bytes.extend((self.roots.len() as u32).to_le_bytes());
        let ends = self.roots.iter().skip(1).map(|root| root.node as usize).chain([self.nodes.len()]);
        for (root, end) in self.roots.iter().zip(ends) {
            let nodes = &self.nodes[root.node as usize..end];
            bytes.extend((nodes.len() as u32).to_le_bytes());
            for (at, node) in (root.node..).zip(nodes) {
                let right = if node.split & MISSING_RIGHT != 0 { RIGHT } else { 0 };
                let is_leaf = node.child == at;
                let split = if is_leaf { LEAF } else { (node.split & !MISSING_RIGHT) as u16 | right };
                let number = if is_leaf { node.value } else { node.threshold };
                bytes.extend(split.to_le_bytes());
                bytes.extend(number.to_le_bytes());
            }
        }
        Some(bytes)
    }

    /// Decodes trees; `None` for bytes that are no valid trees.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut bytes = NumberReader(bytes);
        let (columns, base) = (bytes.u32()? as usize, f32::from_bits(bytes.u32()?));
        let mut trees = Self { columns, base, roots: Vec::new(), nodes: Vec::new() };
        for _ in 0..bytes.u32()? {
            trees.read_tree(&mut bytes)?;
        }
        let is_sound = bytes.0.is_empty() && base.is_finite() && (1..=usize::from(LEAF)).contains(&columns);
        is_sound.then_some(trees)
    }

    fn read_tree(&mut self, bytes: &mut NumberReader<'_>) -> Option<()> {
        let root = u32::try_from(self.nodes.len()).ok()?;
        let count = bytes.u32()?;
        // Breadth first, so that a node's depth is known before its children are read.
        let mut depths = vec![0];
        for at in 0..count {
            let (split, number) = (bytes.u16()?, f32::from_bits(bytes.u32()?));
            let depth = *depths.get(at as usize)?;
            if split == LEAF {
                self.nodes.push(TreeNode { threshold: f32::NAN, split: 0, child: root + at, value: number });
                continue;
            }

            let column = u32::from(split & !RIGHT);
            let child = u32::try_from(depths.len()).ok().filter(|child| child + 1 < count)?;
            if column as usize >= self.columns {
                return None;
            }
            depths.extend([depth + 1; 2]);
            let missing = if split & RIGHT != 0 { MISSING_RIGHT } else { 0 };
            self.nodes.push(TreeNode { threshold: number, split: column | missing, child: root + child, value: 0.0 });
        }
        let is_whole = depths.len() == count as usize;
        self.roots.push(Root { node: root, depth: depths.into_iter().max()? });
        is_whole.then_some(())
    }
}

/// Reader of little-endian numbers.
struct NumberReader<'a>(&'a [u8]);

impl NumberReader<'_> {
    fn u16(&mut self) -> Option<u16> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_le_bytes(*number))
    }

    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }
}

#[cfg(test)]
#[cfg(feature = "train")]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{CostModel, Sample, XgbModel, XgbParams};

    fn trained(seed: u64) -> (Trees, Vec<f32>) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rows: Vec<Vec<f32>> = (0..200).map(|_| (0..7).map(|_| rng.random_range(-4.0..4.0)).collect()).collect();
        let sample = |row: &Vec<f32>| {
            let mut features = row.clone();
            features[2] = if row[2] > 3.0 { f32::NAN } else { row[2] };
            Sample { score: row[0] * row[1] - row[2], features, group: 0 }
        };
        let mut model = XgbModel::new(XgbParams { rounds: 20, depth: 5, ..XgbParams::default() });
        model.fit(&rows.iter().map(sample).collect::<Vec<_>>()).unwrap();
        (model.trees().unwrap().clone(), rows.concat())
    }

    #[test]
    fn reloaded_trees_predict_the_same() {
        for seed in 0..8 {
            let (trees, rows) = trained(seed);
            let again = Trees::from_bytes(&trees.to_bytes().unwrap()).unwrap();
            assert_eq!(again.predict(&rows), trees.predict(&rows), "seed {seed}");
            assert_eq!(again.to_bytes(), trees.to_bytes(), "seed {seed}");
        }
    }

    #[test]
    fn other_bytes_are_no_trees_or_trees_that_predict() {
        let (trees, rows) = trained(1);
        let bytes = trees.to_bytes().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for length in 0..bytes.len() {
            assert!(Trees::from_bytes(&bytes[..length]).is_none(), "{length} bytes");
        }
        for round in 0..3_000 {
            let mut bytes = bytes.clone();
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
            if let Some(trees) = Trees::from_bytes(&bytes).filter(|trees| trees.columns() == 7) {
                assert_eq!(trees.predict(&rows).len(), 200, "round {round}");
            }
        }
    }
}
