//! Import of attention in which groups of heads share keys and values, as ONNX Runtime has it.

use super::binary::Binary;
use super::choose::Where;
use super::concat::Concat;
use super::gather_elements::GatherNd;
use super::heads::Heads;
use super::prelude::*;
use super::rotary::Angles;
use super::score_mask::{Ahead, ScoreMask};
use crate::onnx::MICROSOFT;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::many("GroupQueryAttention", import).in_domain(MICROSOFT)];

/// Numbers of queries and keys of a node.
struct Steps {
    /// Elements of the batch.
    batch: usize,
    /// Tokens whose queries, keys and values are inputs.
    new: usize,
    /// Tokens in all, in the longest sequence of the batch.
    total: usize,
    /// Tokens in all of each sequence, `[b, 1, 1, 1]`, if they may differ.
    lengths: Option<ImportValue>,
}

impl Steps {
    /// Reads the numbers of tokens, of which that of the longest sequence is known.
    fn of(call: &mut Call, q: ImportValue) -> Result<Self> {
        let (shape, given) = (call.shape(q), call.operand(5)?);
        let &[batch, _, new, _] = &shape[..] else { return unfit(format!("queries of shape {shape:?}")) };
        let total = call.single_integer(6)?.and_then(|total| usize::try_from(total).ok());
        let total = total.filter(|&total| total >= new && total > 0);
        let total = total.ok_or_else(|| NodeError::Input { input: 6, reason: "is not a number of tokens".into() })?;

        // A single sequence is the longest.
        let last = (total as i64).saturating_sub(1);
        let of_constant = call.constant_of(given).and_then(|known| known.tensor().ok()?.as_i64());
        let are_equal = of_constant.is_some_and(|known| known.iter().all(|&number| number == last));
        let lengths = match batch == 1 || are_equal {
            true => None,
            false => {
                let lengths = call.reshape(&[batch, 1, 1, 1], given)?;
                Some(call.with(Binary::Add, lengths, 1.0)?)
            }
        };
        Ok(Self { batch, new, total, lengths })
    }

    /// True if no sequence has earlier tokens.
    fn is_first(&self) -> bool {
        self.new == self.total
    }

    /// Returns the position of the first new token, by sequence if these differ.
    fn ahead(&self) -> Ahead {
        match self.lengths {
            Some(lengths) if !self.is_first() => Ahead::OfBatch(lengths),
            _ => Ahead::Keys(self.total - self.new),
        }
    }

    /// Adds the position of each new token, `[b, new]` or `[1, new]`.
    fn positions(&self, call: &mut Call) -> Result<ImportValue> {
        match self.ahead() {
            Ahead::Keys(before) => call.positions(before as i64, self.new, [1, 2]),
            Ahead::OfBatch(lengths) => {
                let lengths = call.reshape(&[self.batch, 1], lengths)?;
                let steps = call.positions(-(self.new as i64), self.new, [1, 2])?;
                call.binary(Binary::Add, lengths, steps)
            }
        }
    }

    /// Adds the keys or values `[b, groups, total, d]` of all tokens, and the same followed by what
    /// a longer buffer has behind them.
    fn joined(&self, call: &mut Call, past: Option<ImportValue>, new: ImportValue) -> Result<[ImportValue; 2]> {
        let Some(past) = past.filter(|_| !self.is_first()) else {
            let all = self.with_rest(call, past, new)?;
            return Ok([new, all]);
        };
        let (before, room) = (self.total - self.new, call.shape(past).get(2).copied().unwrap_or(0));
        if call.rank(past) != 4 || room < before {
            return unfit(format!("keys of shape {:?} for {before} earlier tokens", call.shape(past)));
        }
        let all = match self.lengths {
            None => {
                let past = call.part(past, 2, [0, before])?;
                call.add(Concat { axis: 2 }, &[past, new])?
            }
            Some(lengths) => self.selected(call, lengths, past, new)?,
        };
        let whole = self.with_rest(call, Some(past), all)?;
        Ok([all, whole])
    }

    fn with_rest(&self, call: &mut Call, past: Option<ImportValue>, all: ImportValue) -> Result<ImportValue> {
        let room = past.and_then(|past| call.shape(past).get(2).copied()).unwrap_or(0);
        match (past, room.checked_sub(self.total)) {
            (Some(past), Some(rest @ 1..)) => {
                let rest = call.part(past, 2, [self.total, rest])?;
                call.add(Concat { axis: 2 }, &[all, rest])
            }
            _ => Ok(all),
        }
    }

    /// Adds the keys or values of sequences of different lengths: the new ones follow the earlier
    /// ones of each.
    fn selected(
        &self,
        call: &mut Call,
        lengths: ImportValue,
        past: ImportValue,
        new: ImportValue,
    ) -> Result<ImportValue> {
        let room = call.shape(past)[2];
        let both = call.add(Concat { axis: 2 }, &[past, new])?;
        let rows = call.transpose(&[0, 2, 1, 3], both)?;

        let lengths = call.reshape(&[self.batch, 1, 1], lengths)?;
        let before = call.with(Binary::Sub, lengths, self.new as f32)?;
        let places = call.positions(0, self.total, [1, 3])?;
        let is_earlier = call.binary(Binary::Less, places, before)?;
        let own = call.binary(Binary::Sub, places, before)?;
        // Places behind a shorter sequence repeat its last token; they are hidden.
        let own = call.with(Binary::Min, own, self.new as f32 - 1.0)?;
        let own = call.with(Binary::Add, own, room as f32)?;
        let index = call.add(Where, &[is_earlier, places, own])?;
        let selected = call.add(GatherNd { batch_axes: 1 }, &[rows, index])?;
        call.transpose(&[0, 2, 1, 3], selected)
    }
}

/// Fails if the node has one of the parts that are not supported.
fn check(call: &Call) -> Result<()> {
    call.check_most(12)?;
    let is_quantised = ["k_quant_type", "v_quant_type"].map(|name| Ok(call.word_or(name, "NONE")? != "NONE"));
    let [keys, values]: [Result<bool>; 2] = is_quantised;
    if keys? || values? || call.flag("sliding_window_cache", false)? {
        return unfit("quantised keys and values and buffers of a window are not supported");
    }
    call.ignore(&["kv_cache_bit_width", "qk_norm_epsilon", "qk_output"]);
    Ok(())
}

/// Returns queries, keys and values, which may be packed into one tensor.
fn heads_of(call: &mut Call) -> Result<Heads> {
    let (own, shared) = (call.head_count("num_heads")?, call.head_count("kv_num_heads")?);
    let rows = call.operand(0)?;
    let (q, k, v) = match (call.optional(1), call.optional(2)) {
        (Some(k), Some(v)) => (rows, k, v),
        (None, None) => {
            let all = own.saturating_add(shared).saturating_add(shared);
            let &[_, _, size] = &call.shape(rows)[..] else { return unfit("queries must have three axes") };
            if all == 0 || !size.is_multiple_of(all) {
                return unfit(format!("{size} columns for {all} heads"));
            }
            let (d, rest) = (size / all, own * (size / all));
            let [q, k, v] =
                [[0, rest], [rest, shared * d], [rest + shared * d, shared * d]].map(|part| call.part(rows, 2, part));
            (q?, k?, v?)
        }
        _ => return unfit("keys and values must come together"),
    };
    let (q, k) = (call.split_heads(q, own)?, call.split_heads(k, shared)?);
    Ok(Heads { q, k, v: call.split_heads(v, shared)? })
}

/// Rotates queries and keys by the angles of their positions.
fn rotate(call: &mut Call, heads: &mut Heads, steps: &Steps) -> Result<()> {
    let angles = Angles { cosines: call.operand(7)?, sines: call.operand(8)? };
    let (of_angles, of_heads) = (call.shape(angles.cosines), call.shape(heads.q));
    let is_fit = |half: usize| half > 0 && half.saturating_mul(2) <= of_heads[3];
    if !matches!(of_angles[..], [_, half] if is_fit(half)) || call.shape(angles.sines) != of_angles {
        return unfit(format!("angles of shape {of_angles:?} for heads of {} elements", of_heads[3]));
    }
    // Only the first position counts if there are no earlier tokens.
    let positions = match call.optional(9) {
        Some(given) if call.rank(given) != 2 => return unfit("positions must have two axes"),
        Some(given) if steps.is_first() => {
            let first = call.part(given, 0, [0, 1])?;
            let first = call.part(first, 1, [0, 1])?;
            let numbers = call.positions(0, steps.new, [1, 2])?;
            call.binary(Binary::Add, first, numbers)?
        }
        Some(given) => given,
        None => steps.positions(call)?,
    };
    let angles = angles.at(call, positions)?;
    let is_interleaved = call.flag("rotary_interleaved", false)?;
    heads.q = angles.rotated(call, heads.q, 1, is_interleaved)?;
    heads.k = angles.rotated(call, heads.k, 1, is_interleaved)?;
    Ok(())
}

/// Adds one more score for each head, by an input or zero, if the node has it.
fn sink(call: &mut Call, heads: usize) -> Result<Option<ImportValue>> {
    let given = match (call.optional(11), call.flag("smooth_softmax", false)?) {
        (Some(given), _) => given,
        (None, true) => call.constant(Tensor::f32(&[heads], vec![0.0; heads])?),
        (None, false) => return Ok(None),
    };
    call.reshape(&[1, heads, 1, 1], given).map(Some)
}

/// Imports attention of new tokens to themselves and to earlier ones.
fn import(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    check(call)?;
    let mut heads = heads_of(call)?;
    let steps = Steps::of(call, heads.q)?;
    if call.shape(heads.k).get(2) != Some(&steps.new) {
        return unfit(format!("{} queries and keys of shape {:?}", steps.new, call.shape(heads.k)));
    }
    if call.flag("do_rotary", false)? {
        rotate(call, &mut heads, &steps)?;
    }
    call.ignore(&["rotary_interleaved"]);
    let past = call.past(3)?;
    let [k, all_keys] = steps.joined(call, past.map(|past| past[0]), heads.k)?;
    let [v, all_values] = steps.joined(call, past.map(|past| past[1]), heads.v)?;
    (heads.k, heads.v) = (k, v);

    let ([_, count, m, d], [_, n, _]) = heads.extents(call)?;
    let (mut mask, ahead) = (ScoreMask::default(), steps.ahead());
    mask.sink = sink(call, count)?;
    if call.flag("causal", true)? {
        mask.causal(call, [m, n], &ahead)?;
    }
    if let Some(lengths) = steps.lengths {
        mask.first(call, lengths, n)?;
    }
    if let Ok(window @ 1..) = usize::try_from(call.int_or("local_window_size", -1)?) {
        mask.recent(call, [m, n], &ahead, window)?;
    }
    call.optional(10).map_or(Ok(()), |added| mask.add(call, added))?;

    let (scale, cap) = (call.score_scale(d)?, call.float_or("softcap", 0.0)?);
    let output = heads.attend(call, scale, cap, &mask, false)?.output;
    let output = call.join_heads(output)?;
    Ok([output, all_keys, all_values].into_iter().take(outputs).collect())
}
