//! Rules that bring operations into the form or the place that the epilogue of the preceding
//! product requires.

use autotune_workloads::Activation;

use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::graph::{GraphNode, NodeId};
use crate::operators::{Binary, Reshape, Transpose};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "number_by_channel",
        before: "act(Conv(x)) * c + d, act(MatMul(x)) * c + d, with scalars c and d",
        after: "the same, with c and d for each channel",
        apply: number_by_channel,
    },
    Rule {
        name: "activation_before_movement",
        before: "act of a reshaped or transposed Conv or MatMul",
        after: "reshaped or transposed act(Conv(x)) or act(MatMul(x))",
        apply: activation_before_movement,
    },
];

/// Returns the channel axis of a convolution or matrix product, possibly with an addition, that has
/// one reader.
fn axis_of_sums(site: &RewriteSite, id: NodeId) -> Option<usize> {
    let axis = |node: &GraphNode| node.op.channel_of_sums(node.shape.len());
    let node = site.of(id);
    let axis = match node.op == Binary::Add {
        true => {
            let sums = node.operands.iter().filter(|&&sum| site.is_single(sum) && site.of(sum).shape == node.shape);
            sums.filter_map(|&sum| axis(site.of(sum))).next()
        }
        false => axis(node),
    };
    axis.filter(|_| site.is_single(id))
}

/// Returns the channel axis of an activation, possibly scaled, that is fused into a product's
/// epilogue and that the epilogue can continue after.
pub(super) fn axis_after_activation(site: &RewriteSite, id: NodeId) -> Option<usize> {
    let scaled = site.binary(id, Binary::Mul).filter(|[_, scale]| site.is_constant(*scale) && site.is_single(id));
    let activated = scaled.map_or(id, |[activated, _]| activated);
    axis_of_sums(site, activation_of(site, activated)?).filter(|_| site.is_single(activated))
}

/// Returns the operand of an activation that epilogues support.
fn activation_of(site: &RewriteSite, id: NodeId) -> Option<NodeId> {
    let (activation, x) = site.activation(id)?;
    (!matches!(activation, Activation::None | Activation::Prelu)).then_some(x)
}

fn number_by_channel(site: &mut RewriteSite) -> Rewritten {
    let ops = [Binary::Mul, Binary::Add];
    let found = ops.into_iter().find_map(|op| Some((op, site.with_scalar(site.id, op)?)));
    let Some((op, (x, number))) = found else { return Ok(None) };
    let Some(axis) = axis_after_activation(site, x).filter(|_| site.fits(x)) else { return Ok(None) };
    let mut shape = vec![1; site.node().shape.len()];
    shape[axis] = site.node().shape[axis];
    // With one channel the number is already in this form.
    if shape[axis] == 1 {
        return Ok(None);
    }
    let numbers = Tensor::f32(&shape, vec![number; shape[axis]]).map_err(|source| site.wrong(source))?;
    let operands = [site.made(x), site.constant(numbers)];
    site.add(op, &operands).map(Some)
}

fn activation_before_movement(site: &mut RewriteSite) -> Rewritten {
    let Some(mut at) = activation_of(site, site.id) else { return Ok(None) };
    let mut moves = Vec::new();
    // Skip movements that nothing else reads.
    while (site.of(at).op.is::<Reshape>() || site.of(at).op.is::<Transpose>()) && site.is_single(at) {
        moves.push(&site.of(at).op);
        at = site.of(at).operands[0];
    }
    if moves.is_empty() || axis_of_sums(site, at).is_none() {
        return Ok(None);
    }
    let sums = site.made(at);
    let mut x = site.add(site.node().op.clone(), &[sums])?;
    for op in moves.into_iter().rev() {
        x = site.add(op.clone(), &[x])?;
    }
    Ok(Some(x))
}
