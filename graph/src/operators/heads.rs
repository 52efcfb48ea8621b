//! Imports of attention with several heads, as matrix products around a softmax.

use autotune_ir::program::UnaryOp;
use autotune_workloads::{Function, ReduceOp};

use super::binary::Binary;
use super::choose::Where;
use super::concat::Concat;
use super::map::Map;
use super::matmul::MatMul;
use super::prelude::*;
use super::score_mask::{Ahead, ScoreMask, are_first};
use super::softmax::Softmax;
use crate::onnx::MICROSOFT;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::many("Attention", attention),
    OnnxOperator::many("MultiHeadAttention", of_projections).in_domain(MICROSOFT),
    OnnxOperator::many("Attention", with_projections).in_domain(MICROSOFT),
];

/// Queries `[b, heads, m, d]`, keys `[b, groups, n, d]` and values `[b, groups, n, e]`.
/// Neighbouring heads of queries share a group of keys and values.
pub(super) struct Heads {
    pub(super) q: ImportValue,
    pub(super) k: ImportValue,
    pub(super) v: ImportValue,
}

/// Results of the stages of attention, for all heads.
pub(super) struct Attended {
    products: ImportValue,
    capped: ImportValue,
    masked: ImportValue,
    weights: ImportValue,
    pub(super) output: ImportValue,
}

impl Heads {
    /// Returns the extents `[b, heads, m, d]`, and `[groups, n, e]`; fails unless they match.
    pub(super) fn extents(&self, call: &Call) -> Result<([usize; 4], [usize; 3])> {
        let shapes = [self.q, self.k, self.v].map(|x| call.shape(x));
        if let ([b, heads, m, d], [k_b, groups, n, k_d], [v_b, v_groups, v_n, e]) =
            (&shapes[0][..], &shapes[1][..], &shapes[2][..])
            && [b, groups, n, d, b] == [k_b, v_groups, v_n, k_d, v_b]
            && *groups > 0
            && heads.is_multiple_of(*groups)
        {
            return Ok(([*b, *heads, *m, *d], [*groups, *n, *e]));
        }
        let [q, k, v] = shapes;
        unfit(format!("heads of queries {q:?}, keys {k:?} and values {v:?} do not match"))
    }

    /// Puts the keys and values of earlier steps before these.
    pub(super) fn behind(&mut self, call: &mut Call, past: [ImportValue; 2]) -> Result<()> {
        self.k = call.add(Concat { axis: 2 }, &[past[0], self.k])?;
        self.v = call.add(Concat { axis: 2 }, &[past[1], self.v])?;
        Ok(())
    }

    /// Adds the attention. Rows of queries that share keys form one matrix, so that these need not
    /// be repeated. If `has_zeros`, the output is zero, not NaN, for queries that see no key.
    pub(super) fn attend(
        &self,
        call: &mut Call,
        scale: f32,
        cap: f32,
        mask: &ScoreMask,
        has_zeros: bool,
    ) -> Result<Attended> {
        let ([b, heads, m, d], [groups, n, e]) = self.extents(call)?;
        let rows = (heads / groups).saturating_mul(m);
        let q = call.reshape(&[b, groups, rows, d], self.q)?;
        let keys = call.transpose(&[0, 1, 3, 2], self.k)?;
        let products = call.add(MatMul, &[q, keys])?;
        let products = call.with(Binary::Mul, products, scale)?;

        let capped = if cap > 0.0 { call.capped(products, cap)? } else { products };
        let sink = mask.sink;
        let mask = match mask.whole(call)? {
            Some(mask) => Some(shared(call, mask, [groups, heads / groups, m])?),
            None => None,
        };
        let masked = mask.map_or(Ok(capped), |mask| masked(call, capped, mask))?;
        let mut weights = match sink {
            Some(sink) => {
                let sink = shared(call, sink, [groups, heads / groups, m])?;
                with_sink(call, masked, sink)?
            }
            None => call.add(Softmax { axis: 3, log: false }, &[masked])?,
        };
        let mut output = call.add(MatMul, &[weights, self.v])?;
        if let Some(mask) = mask.filter(|_| has_zeros) {
            [weights, output] = without_hidden(call, mask, [weights, output])?;
        }

        let mut split = |x, columns| call.reshape(&[b, heads, m, columns], x);
        Ok(Attended {
            products: split(products, n)?,
            capped: split(capped, n)?,
            masked: split(masked, n)?,
            weights: split(weights, n)?,
            output: split(output, e)?,
        })
    }
}

/// Returns a mask of `[b, heads, m, n]` for rows of all heads that share keys.
fn shared(call: &mut Call, mask: ImportValue, [groups, repeats, m]: [usize; 3]) -> Result<ImportValue> {
    let own = call.shape(mask);
    let Some(missing) = 4usize.checked_sub(own.len()) else { return unfit(format!("a mask of shape {own:?}")) };
    let shape = [vec![1; missing], own].concat();
    let (b, heads, rows, columns) = (shape[0], shape[1], shape[2], shape[3]);
    // A row for all queries, or a mask for heads without groups, needs no repetition.
    if repeats == 1 || heads == 1 && rows == 1 {
        return call.reshape(&shape, mask);
    }
    let (outer, inner) = if heads == 1 { (1, 1) } else { (groups, repeats) };
    let split = call.reshape(&[b, outer, inner, rows, columns], mask)?;
    let repeated = call.expand(&[b, outer, repeats, m, columns], split)?;
    call.reshape(&[b, outer, repeats.saturating_mul(m), columns], repeated)
}

/// Adds the softmax of scores and one more in each row, without its share.
fn with_sink(call: &mut Call, scores: ImportValue, sink: ImportValue) -> Result<ImportValue> {
    let mut shape = call.shape(scores);
    let n = std::mem::replace(&mut shape[3], 1);
    let sink = call.expand(&shape, sink)?;
    let all = call.add(Concat { axis: 3 }, &[scores, sink])?;
    let weights = call.add(Softmax { axis: 3, log: false }, &[all])?;
    call.part(weights, 3, [0, n])
}

fn masked(call: &mut Call, scores: ImportValue, mask: ImportValue) -> Result<ImportValue> {
    match call.dtype(mask) {
        DType::Bool => {
            let hidden = call.number(f32::NEG_INFINITY, scores)?;
            call.add(Where, &[mask, scores, hidden])
        }
        _ => call.binary(Binary::Add, scores, mask),
    }
}

/// Makes rows zero whose mask hides all keys.
fn without_hidden(call: &mut Call, mask: ImportValue, rows: [ImportValue; 2]) -> Result<[ImportValue; 2]> {
    let none = if call.dtype(mask) == DType::Bool { 0.0 } else { f32::NEG_INFINITY };
    let numbers = call.cast(DType::F32, mask)?;
    let most = call.reduce(ReduceOp::Max, &[3], true, numbers)?;
    let is_hidden = call.with(Binary::Equal, most, none)?;
    if let Some(constant) = call.constant_of(is_hidden)
        && constant.tensor()?.to_numbers().iter().all(|&truth| truth == 0.0)
    {
        return Ok(rows);
    }
    let [first, second] = rows.map(|x| {
        let zero = call.number(0.0, x)?;
        call.add(Where, &[is_hidden, zero, x])
    });
    Ok([first?, second?])
}

impl Call<'_> {
    /// Adds `cap * tanh(x / cap)`.
    fn capped(&mut self, x: ImportValue, cap: f32) -> Result<ImportValue> {
        let scaled = self.with(Binary::Div, x, cap)?;
        let bounded = self.add(Map(Function::Op(UnaryOp::Tanh)), &[scaled])?;
        self.with(Binary::Mul, bounded, cap)
    }

    /// Splits rows `[b, m, heads * d]` to `[b, heads, m, d]`.
    pub(super) fn split_heads(&mut self, x: ImportValue, heads: usize) -> Result<ImportValue> {
        match self.shape(x)[..] {
            [b, m, all] if heads > 0 && all.is_multiple_of(heads) => {
                let split = self.reshape(&[b, m, heads, all / heads], x)?;
                self.transpose(&[0, 2, 1, 3], split)
            }
            ref shape => unfit(format!("a tensor of shape {shape:?} does not have {heads} heads")),
        }
    }

    /// Joins `[b, heads, m, e]` to rows `[b, m, heads * e]`.
    pub(super) fn join_heads(&mut self, x: ImportValue) -> Result<ImportValue> {
        let [b, heads, m, e] = self.shape(x)[..] else { return Ok(x) };
        let rows = self.transpose(&[0, 2, 1, 3], x)?;
        self.reshape(&[b, m, heads.saturating_mul(e)], rows)
    }

    pub(super) fn head_count(&self, name: &'static str) -> Result<usize> {
        let count = self.int(name)?.and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| attribute(name, "is missing or negative"))
    }

    /// Returns the factor of the scores: by default that of ONNX, `1 / sqrt(d)`.
    pub(super) fn score_scale(&self, d: usize) -> Result<f32> {
        let given = self.float("scale")?.filter(|&scale| scale != 0.0);
        Ok(given.unwrap_or(1.0 / (d as f32).sqrt()))
    }

    /// Returns keys and values of earlier steps at inputs `first` and the next, if there are any.
    pub(super) fn past(&self, first: usize) -> Result<Option<[ImportValue; 2]>> {
        match (self.optional(first), self.optional(first + 1)) {
            (Some(k), Some(v)) => Ok(Some([k, v])),
            (None, None) => Ok(None),
            _ => unfit("keys and values of earlier steps must come together"),
        }
    }
}

/// Imports attention of the domain `ai.onnx`. The precision of the softmax is always f32.
fn attention(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    call.check_most(7)?;
    call.ignore(&["softmax_precision"]);
    let [q, k, v] = [call.operand(0)?, call.operand(1)?, call.operand(2)?];
    let is_flat = call.rank(q) == 3;
    let mut heads = Heads { q, k, v };
    if is_flat {
        let (own, shared) = (call.head_count("q_num_heads")?, call.head_count("kv_num_heads")?);
        let (q, k) = (call.split_heads(q, own)?, call.split_heads(k, shared)?);
        heads = Heads { q, k, v: call.split_heads(v, shared)? };
    }
    call.ignore(&["q_num_heads", "kv_num_heads"]);
    let past = call.past(4)?;
    let before = past.map_or(0, |[k, _]| call.shape(k).get(2).copied().unwrap_or(0));
    past.map_or(Ok(()), |past| heads.behind(call, past))?;

    let ([b, _, m, d], [_, n, _]) = heads.extents(call)?;
    let mut mask = ScoreMask::default();
    call.optional(3).map_or(Ok(()), |given| mask.given(call, given, n))?;
    let mut ahead = Ahead::Keys(before);
    if let Some(counts) = call.optional(6) {
        let counts = call.reshape(&[b, 1, 1, 1], counts)?;
        mask.first(call, counts, n)?;
        ahead = Ahead::OfBatch(counts);
    }
    if call.flag("is_causal", false)? {
        mask.causal(call, [m, n], &ahead)?;
    }

    let (scale, cap, stage) =
        (call.score_scale(d)?, call.float_or("softcap", 0.0)?, call.int_or("qk_matmul_output_mode", 0)?);
    let found = heads.attend(call, scale, cap, &mask, true)?;
    let output = if is_flat { call.join_heads(found.output)? } else { found.output };
    let scores = match stage {
        0 => found.products,
        1 => found.capped,
        2 => found.masked,
        3 => found.weights,
        _ => return Err(attribute("qk_matmul_output_mode", "expected 0 to 3")),
    };
    Ok([output, heads.k, heads.v, scores].into_iter().take(outputs).collect())
}

/// Adds the mask of ONNX Runtime's operators: truths for each key, or for each query and key, or
/// the number of keys. Hidden keys get an attribute's number added.
fn key_mask(call: &mut Call, mask: &mut ScoreMask, input: usize, [b, m, n]: [usize; 3]) -> Result<()> {
    let filter = call.float_or("mask_filter_value", -10_000.0)?;
    let Some(given) = call.optional(input) else { return Ok(()) };
    let given = call.cast(DType::I64, given)?;
    let zero = call.number(0.0, given)?;

    let visible = match call.shape(given)[..] {
        [count] if count == b => {
            let counts = call.reshape(&[b, 1, 1, 1], given)?;
            are_first(call, counts, n)?
        }
        [count] if count == b.saturating_mul(2) => {
            // The ends of the sequences, then their starts.
            let [ends, starts] = [0, b].map(|first| call.part(given, 0, [first, b]));
            let [ends, starts] = [ends?, starts?].map(|bounds| call.reshape(&[b, 1, 1, 1], bounds));
            let is_before = are_first(call, ends?, n)?;
            let numbers = call.positions(1, n, [3, 4])?;
            let is_behind = call.binary(Binary::Less, starts?, numbers)?;
            call.binary(Binary::And, is_before, is_behind)?
        }
        [rows, keys] if [rows, keys] == [b, n] => {
            let truths = call.reshape(&[b, 1, 1, n], given)?;
            call.binary(Binary::Less, zero, truths)?
        }
        [rows, queries, keys] if [rows, queries, keys] == [b, m, n] => {
            let truths = call.reshape(&[b, 1, m, n], given)?;
            call.binary(Binary::Less, zero, truths)?
        }
        ref shape => return unfit(format!("a mask of shape {shape:?} for {n} keys is not supported")),
    };
    let (none, hidden) = (call.constant(Tensor::scalar(0.0)), call.constant(Tensor::scalar(filter)));
    let added = call.add(Where, &[visible, none, hidden])?;
    mask.add(call, added)
}

/// Returns queries, keys and values of a node, which may be packed into one or two tensors.
fn rows_of(call: &mut Call) -> Result<[ImportValue; 3]> {
    let q = call.operand(0)?;
    let unpacked = |call: &mut Call, x, count: usize, part: usize| match call.shape(x)[..] {
        [b, m, heads, parts, d] if parts == count => {
            let part = call.part(x, 3, [part, 1])?;
            call.reshape(&[b, m, heads.saturating_mul(d)], part)
        }
        ref shape => unfit(format!("a tensor of shape {shape:?} does not have {count} packed parts")),
    };
    match (call.optional(1), call.optional(2)) {
        (Some(k), Some(v)) => Ok([q, k, v]),
        (Some(packed), None) => Ok([q, unpacked(call, packed, 2, 0)?, unpacked(call, packed, 2, 1)?]),
        (None, None) => Ok([unpacked(call, q, 3, 0)?, unpacked(call, q, 3, 1)?, unpacked(call, q, 3, 2)?]),
        (None, Some(_)) => unfit("values without keys"),
    }
}

/// Imports attention of ONNX Runtime whose inputs are projected.
fn of_projections(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    call.check_most(8)?;
    let count = call.head_count("num_heads")?;
    let mut inputs = rows_of(call)?;
    if let Some(bias) = call.optional(3) {
        let mut start = 0;
        for x in &mut inputs {
            let (&[_, _, size], 1) = (&call.shape(*x)[..], call.rank(bias)) else {
                return unfit("a bias needs one axis, and rows of keys and values");
            };
            let own = call.part(bias, 0, [start, size])?;
            *x = call.binary(Binary::Add, *x, own)?;
            start += size;
        }
    }
    let [q, k, v] = inputs.map(|x| if call.rank(x) == 4 { Ok(x) } else { call.split_heads(x, count) });
    let mut heads = Heads { q: q?, k: k?, v: v? };
    let past = call.past(6)?;
    let before = past.map_or(0, |[k, _]| call.shape(k).get(2).copied().unwrap_or(0));
    past.map_or(Ok(()), |past| heads.behind(call, past))?;

    let output = attended(call, &heads, [4, 5], before)?;
    Ok([output, heads.k, heads.v].into_iter().take(outputs).collect())
}

/// Imports attention of ONNX Runtime with the projections of its input.
fn with_projections(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    call.check_most(6)?;
    if call.flag("do_rotary", false)? || call.flag("past_present_share_buffer", false)? {
        return unfit("rotations and shared buffers are not supported");
    }
    call.ignore(&["rotary_embedding_dim"]);
    let (count, x, weights) = (call.head_count("num_heads")?, call.operand(0)?, call.operand(1)?);
    let mut rows = call.add(MatMul, &[x, weights])?;
    if let Some(bias) = call.optional(2) {
        rows = call.binary(Binary::Add, rows, bias)?;
    }
    let &[_, _, all] = &call.shape(rows)[..] else { return unfit("the input must have three axes") };
    let sizes = call.extents("qkv_hidden_sizes")?.unwrap_or_else(|| vec![all / 3; 3]);
    let &[of_q, of_k, of_v] = &sizes[..] else { return Err(attribute("qkv_hidden_sizes", "expected three numbers")) };
    if of_q.checked_add(of_k).and_then(|sum| sum.checked_add(of_v)) != Some(all) {
        return unfit(format!("{all} columns of weights for queries, keys and values of {:?}", listed(&sizes)));
    }

    let parts = [[0, of_q], [of_q, of_k], [of_q + of_k, of_v]];
    let [q, k, v] = parts.map(|part| {
        let rows = call.part(rows, 2, part)?;
        call.split_heads(rows, count)
    });
    let mut heads = Heads { q: q?, k: k?, v: v? };
    let mut before = 0;
    // Keys come before values along the first axis.
    if let Some(past) = call.optional(4) {
        let &[2, b, heads_of_past, count, d] = &call.shape(past)[..] else {
            return unfit(format!("keys and values of earlier steps of shape {:?}", call.shape(past)));
        };
        let halves = [0, 1].map(|half| {
            let half = call.part(past, 0, [half, 1])?;
            call.reshape(&[b, heads_of_past, count, d], half)
        });
        let [k, v] = halves;
        heads.behind(call, [k?, v?])?;
        before = count;
    }

    let mut all = vec![attended(call, &heads, [3, 5], before)?];
    if outputs > 1 {
        let both = [heads.k, heads.v].map(|x| {
            let shape = [&[1], &call.shape(x)[..]].concat();
            call.reshape(&shape, x)
        });
        let [k, v] = both;
        all.push(call.add(Concat { axis: 0 }, &[k?, v?])?);
    }
    Ok(all)
}

/// Adds attention of ONNX Runtime with the mask and the summand of scores at these inputs.
fn attended(call: &mut Call, heads: &Heads, [mask_at, added_at]: [usize; 2], before: usize) -> Result<ImportValue> {
    let ([b, _, m, d], [_, n, _]) = heads.extents(call)?;
    let mut mask = ScoreMask::default();
    key_mask(call, &mut mask, mask_at, [b, m, n])?;
    call.optional(added_at).map_or(Ok(()), |added| mask.add(call, added))?;
    if call.flag("unidirectional", false)? {
        mask.causal(call, [m, n], &Ahead::Keys(before))?;
    }
    let scale = call.score_scale(d)?;
    let output = heads.attend(call, scale, 0.0, &mask, false)?.output;
    call.join_heads(output)
}
