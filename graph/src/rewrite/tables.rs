//! Functions of one quantised tensor as tables.
//!
//! A chain such as `Quantize(gelu(Dequantize(x)))` maps each of 256 bytes to a byte, whatever its
//! operators are. The results are computed ahead of time by the reference, so that a look-up gives
//! exactly what the chain does.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use autotune_ir::DType;
use autotune_ir::program::TABLE_LEN;

use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::graph::NodeId;
use crate::memory::is_of_bytes;
use crate::op::{Op, Operator};
use crate::operators::{Binary, Cast, Dequantize, Lookup, Map, Not, Quantize, Reshape, Transpose, Unsigned, Where};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "table_of_bytes",
        before: "Quantize(f(Dequantize(x))), where f is any function of one element, with scalars",
        after: "Lookup(x, c) of u8 data or Lookup(Unsigned(x), c), where c has the 256 results",
        apply: table_of_bytes,
    },
    Rule {
        name: "table_before_movement",
        before: "Lookup(y, c) of a Reshape or Transpose y of x",
        after: "y of Lookup(x, c)",
        apply: table_before_movement,
    },
];

/// Maximum number of nodes between a tensor and the result that is looked up. Longer chains are
/// looked up in parts.
const MOST_NODES: usize = 64;

/// Nodes that compute each element of a tensor from one element of an 8-bit tensor.
struct ByteFunction {
    source: NodeId,
    /// Nodes in topological order; the last one computes the result.
    nodes: Vec<NodeId>,
}

impl ByteFunction {
    /// Finds the function of the rule's node that goes back farthest.
    ///
    /// Nodes are visited after all their readers. When the only one that is left to visit is of 8
    /// bits, everything visited is a function of it.
    fn of(site: &RewriteSite) -> Option<Self> {
        let (mut open, mut nodes, mut found) = (BTreeSet::from([site.id]), Vec::new(), None);
        let mut readers: HashMap<NodeId, usize> = HashMap::new();
        while let Some(id) = open.pop_last() {
            if open.is_empty() && !nodes.is_empty() && is_of_bytes(site.of(id).dtype) {
                found = Some((id, nodes.len()));
                // Computed for others anyway.
                if readers.get(&id) != Some(&site.uses[id.0 as usize]) {
                    break;
                }
            }
            if nodes.len() == MOST_NODES || !is_elementwise(site, id) {
                break;
            }
            nodes.push(id);
            for &operand in site.of(id).operands.iter().filter(|&&operand| !is_known(site, operand)) {
                *readers.entry(operand).or_default() += 1;
                open.insert(operand);
            }
        }

        let (source, count) = found?;
        nodes.truncate(count);
        nodes.reverse();
        Some(Self { source, nodes })
    }

    /// True if more is computed than changes of scales and types and the rule's own look-up.
    fn computes(&self, site: &RewriteSite) -> bool {
        let is_plain = |op: &Op| op.is::<Quantize>() || op.is::<Dequantize>() || op.is::<Unsigned>();
        let computing = self.nodes.iter().filter(|&&id| !is_plain(&site.of(id).op)).count();
        computing > usize::from(site.node().op.is::<Lookup>())
    }

    /// Returns the result for each number of the source's type, from the least on; `None` if the
    /// reference fails.
    fn results(&self, site: &RewriteSite) -> Option<Tensor> {
        let dtype = site.of(self.source).dtype;
        let least = dtype.range()[0] as f32;
        let numbers: Vec<f32> = (0..TABLE_LEN).map(|index| least + index as f32).collect();
        let numbers = Tensor::of_numbers(&[TABLE_LEN], dtype, &numbers).ok()?;
        let mut made = BTreeMap::from([(self.source, numbers)]);
        for id in &self.nodes {
            let node = site.of(*id);
            let operand = |id: &NodeId| match (made.get(id), &site.of(*id).shape[..]) {
                (Some(tensor), _) => Some(tensor.clone()),
                (None, [TABLE_LEN]) => site.tensor(*id).cloned(),
                // A scalar may have axes of extent 1.
                (None, _) => Reshape(Vec::new()).evaluate(&[&known(site, *id)?]).ok(),
            };
            let operands: Vec<Tensor> = node.operands.iter().map(operand).collect::<Option<_>>()?;
            made.insert(*id, node.op.evaluate(&operands.iter().collect::<Vec<_>>()).ok()?);
        }
        made.remove(self.nodes.last()?)
    }
}

/// True for a constant, quantised or not.
fn is_known(site: &RewriteSite, id: NodeId) -> bool {
    let node = site.of(id);
    site.is_constant(id) || node.op.is::<Dequantize>() && node.operands.iter().all(|&of| site.is_constant(of))
}

/// Returns the elements of a [known](is_known) node.
fn known(site: &RewriteSite, id: NodeId) -> Option<Tensor> {
    if site.is_constant(id) {
        return site.tensor(id).cloned();
    }
    let node = site.of(id);
    let operands: Vec<&Tensor> = node.operands.iter().map(|&of| site.tensor(of)).collect::<Option<_>>()?;
    node.op.evaluate(&operands).ok()
}

/// True if a node computes each element from the elements at the same place and from scalars.
fn is_elementwise(site: &RewriteSite, id: NodeId) -> bool {
    let (node, shape) = (site.of(id), &site.node().shape);
    let op = &node.op;
    let computes = op.is::<Map>() || op.is::<Binary>() || op.is::<Where>() || op.is::<Not>() || op.is::<Cast>();
    let quantises = op.is::<Quantize>() || op.is::<Dequantize>() || op.is::<Unsigned>();
    let is_table = op.is::<Lookup>();
    let fits = |&id: &NodeId| match is_known(site, id) {
        true => is_table || site.of(id).shape.iter().product::<usize>() == 1,
        false => site.of(id).shape == *shape,
    };
    (computes || quantises || is_table) && node.operands.iter().all(fits)
}

fn table_of_bytes(site: &mut RewriteSite) -> Rewritten {
    let op = &site.node().op;
    if !(op.is::<Quantize>() || op.is::<Unsigned>() || op.is::<Lookup>()) {
        return Ok(None);
    }
    let Some(function) = ByteFunction::of(site).filter(|function| function.computes(site)) else { return Ok(None) };
    let Some(table) = function.results(site) else { return Ok(None) };
    let (mut index, table) = (site.made(function.source), site.constant(table));
    if site.of(function.source).dtype == DType::I8 {
        index = site.add(Unsigned, &[index])?;
    }
    site.add(Lookup, &[index, table]).map(Some)
}

/// Looks elements up before they are moved, in the kernel that computes them.
fn table_before_movement(site: &mut RewriteSite) -> Rewritten {
    if !site.node().op.is::<Lookup>() {
        return Ok(None);
    }
    let [y, table] = [0, 1].map(|operand| site.operand(operand));
    let moved = site.of(y);
    if !(moved.op.is::<Reshape>() || moved.op.is::<Transpose>()) || !site.is_single(y) {
        return Ok(None);
    }
    let operands = [site.made(moved.operands[0]), site.made(table)];
    let found = site.add(Lookup, &operands)?;
    site.add(moved.op.clone(), &[found]).map(Some)
}
