//! Pattern of attention: matrix products around a softmax.

use autotune_ir::DType;

use super::bounds::is_moderate;
use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::operators::{Attention, Binary, MatMul, Softmax, Transpose, Where};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "added_mask",
        before: "Attention(q, k, v, mask) with truth values",
        after: "Attention(q, k, v, Where(mask, 0, -inf))",
        apply: added_mask,
    },
    Rule {
        name: "attention",
        before: "MatMul(Softmax(MatMul(q, Transpose(k)) * scale + mask), v), with scales on q, k or their product, Where(mask, .., -inf)",
        after: "Attention(q, k, v, mask)",
        apply: attention,
    },
];

/// Parts of the scores, the softmax's operand.
struct AttentionScores {
    queries: NodeId,
    /// Keys with the last two axes exchanged.
    keys: NodeId,
    scale: f64,
    mask: MaskPattern,
}

/// Mask of the scores.
#[derive(Clone, Copy)]
enum MaskPattern {
    None,
    Added(NodeId),
    /// Boolean mask; the flag is the value of visible scores.
    Chosen(NodeId, bool),
}

fn attention(site: &mut RewriteSite) -> Rewritten {
    let (Some(MatMul), &[weights, v]) = (site.node().op.of(), &site.node().operands[..]) else { return Ok(None) };
    let Some(&Softmax { axis, log: false }) = site.of(weights).op.of() else { return Ok(None) };
    let shape = &site.of(weights).shape;
    if axis + 1 != shape.len() || shape.len() < 2 || !site.is_single(weights) {
        return Ok(None);
    }
    let Some(scores) = scores(site, site.of(weights).operands[0]) else { return Ok(None) };
    // The kernels scale by 1/sqrt(d); the queries absorb the rest, which must not overflow.
    let usual = site.of(scores.queries).shape.last().map_or(1.0, |&d| 1.0 / (d as f64).sqrt());
    if !is_moderate((scores.scale / usual) as f32) {
        return Ok(None);
    }

    // All operands need the same batch, since the kernels do not broadcast it.
    let batch = |id: NodeId| site.of(id).shape.split_last_chunk::<2>().map(|(batch, _)| batch);
    let are_alike = [scores.queries, scores.keys, v].map(batch).windows(2).all(|pair| pair[0] == pair[1]);
    if !are_alike || batch(v).is_none() || !is_mask(site, scores.mask, shape) {
        return Ok(None);
    }
    let mask = made_mask(site, scores.mask)?;
    let (queries, keys, v) = (site.made(scores.queries), site.made(scores.keys), site.made(v));
    // The operator takes keys that are not transposed.
    let mut perm: Vec<usize> = (0..shape.len()).collect();
    perm.swap(shape.len() - 2, shape.len() - 1);
    let keys = site.add(Transpose(perm), &[keys])?;
    let operands: Vec<NewNode> = [queries, keys, v].into_iter().chain(mask).collect();
    site.add(Attention { scale: scores.scale as f32 }, &operands).map(Some)
}

/// True if a mask broadcasts to scores of this shape.
fn is_mask(site: &RewriteSite, mask: MaskPattern, scores: &[usize]) -> bool {
    let (MaskPattern::Added(id) | MaskPattern::Chosen(id, _)) = mask else { return true };
    crate::op::broadcast(&site.of(id).shape, scores).is_ok_and(|shape| shape == scores)
}

fn made_mask(site: &mut RewriteSite, mask: MaskPattern) -> Result<Option<NewNode>, GraphError> {
    match mask {
        MaskPattern::None => Ok(None),
        MaskPattern::Added(id) => Ok(Some(site.made(id))),
        MaskPattern::Chosen(id, counts) => {
            let id = site.made(id);
            added(site, id, counts).map(Some)
        }
    }
}

/// Converts a boolean mask to summands; `counts` is its value for visible scores.
fn added(site: &mut RewriteSite, choice: NewNode, counts: bool) -> Result<NewNode, GraphError> {
    let (zero, none) = (site.constant(Tensor::scalar(0.0)), site.constant(Tensor::scalar(f32::NEG_INFINITY)));
    let operands = if counts { [choice, zero, none] } else { [choice, none, zero] };
    site.add(Where, &operands)
}

fn added_mask(site: &mut RewriteSite) -> Rewritten {
    let (Some(Attention { .. }), &[.., mask]) = (site.node().op.of(), &site.node().operands[..]) else {
        return Ok(None);
    };
    if site.of(mask).dtype != DType::Bool {
        return Ok(None);
    }
    let (mut operands, mask) = (site.operands_of(site.id), site.made(mask));
    operands[3] = added(site, mask, true)?;
    site.add(site.node().op.clone(), &operands).map(Some)
}

/// Matches the scores, whose only reader is the softmax.
fn scores(site: &RewriteSite, id: NodeId) -> Option<AttentionScores> {
    if !site.is_single(id) {
        return None;
    }
    let masked = |[scores, mask]: [NodeId; 2]| {
        Some(AttentionScores { mask: MaskPattern::Added(mask), ..products(site, scores)? })
    };
    let added = || site.both_orders(id, Binary::Add).into_iter().find_map(masked);
    products(site, id).or_else(added).or_else(|| chosen(site, id))
}

/// Matches scores that a boolean mask replaces by -inf.
fn chosen(site: &RewriteSite, id: NodeId) -> Option<AttentionScores> {
    let (Some(Where), &[choice, yes, no]) = (site.of(id).op.of(), &site.of(id).operands[..]) else { return None };
    let is_none = |id| site.scalar(id) == Some(f32::NEG_INFINITY);
    match [is_none(yes), is_none(no)] {
        [false, true] => Some(AttentionScores { mask: MaskPattern::Chosen(choice, true), ..products(site, yes)? }),
        [true, false] => Some(AttentionScores { mask: MaskPattern::Chosen(choice, false), ..products(site, no)? }),
        _ => None,
    }
}

/// Matches a scaled product of queries and keys.
fn products(site: &RewriteSite, id: NodeId) -> Option<AttentionScores> {
    let (scale, factors) = site.factors(id);
    let &[product] = &factors[..] else { return None };
    let (Some(MatMul), &[queries, keys]) = (site.of(product).op.of(), &site.of(product).operands[..]) else {
        return None;
    };
    // Factors of an operand are factors of the product.
    let scaled = |id: NodeId| match site.with_scalar(id, Binary::Mul) {
        Some((x, scale)) if site.of(x).shape == site.of(id).shape => (x, f64::from(scale)),
        _ => (id, 1.0),
    };
    let ((queries, by_queries), (keys, by_keys)) = (scaled(queries), scaled(keys));
    let rank = site.of(id).shape.len();
    let scale = scale * by_queries * by_keys;
    let are_moderate = [scale, by_queries, by_keys].iter().all(|&scale| is_moderate(scale as f32));
    let fits = are_moderate
        && site.is_single(id)
        && site.is_single(product)
        && site.of(queries).shape.len() == rank
        && site.of(keys).shape.len() == rank;
    fits.then_some(AttentionScores { queries, keys, scale, mask: MaskPattern::None })
}
