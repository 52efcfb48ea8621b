//! Masks of the scores of attention.

use super::binary::Binary;
use super::choose::Where;
use super::concat::Concat;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

/// Masks of scores `[b, heads, m, n]`, which broadcast to them.
#[derive(Default)]
pub(super) struct ScoreMask {
    /// Truth values: which scores count.
    visible: Option<ImportValue>,
    /// Numbers to add to the scores before the softmax.
    added: Option<ImportValue>,
    /// One more score of each head, of a key without a value.
    pub(super) sink: Option<ImportValue>,
}

impl ScoreMask {
    pub(super) fn only(&mut self, call: &mut Call, visible: ImportValue) -> Result<()> {
        let both = |earlier| call.binary(Binary::And, earlier, visible);
        self.visible = Some(self.visible.map_or(Ok(visible), both)?);
        Ok(())
    }

    pub(super) fn add(&mut self, call: &mut Call, number: ImportValue) -> Result<()> {
        let sum = |earlier| call.binary(Binary::Add, earlier, number);
        self.added = Some(self.added.map_or(Ok(number), sum)?);
        Ok(())
    }

    /// Adds the caller's mask of `n` or fewer keys; keys that it lacks are hidden.
    pub(super) fn given(&mut self, call: &mut Call, mask: ImportValue, n: usize) -> Result<()> {
        let mut shape = call.shape(mask);
        let Some(last) = shape.last_mut() else { return unfit("a mask without axes") };
        let is_truth = call.dtype(mask) == DType::Bool;
        let hidden =
            if is_truth { Tensor::of_numbers(&[], DType::Bool, &[0.0])? } else { Tensor::scalar(f32::NEG_INFINITY) };
        let mut mask = if is_truth { mask } else { call.cast(DType::F32, mask)? };
        if *last < n {
            *last = n - *last;
            let rest = call.filled(&hidden.into(), &shape)?;
            mask = call.add(Concat { axis: shape.len() - 1 }, &[mask, rest])?;
        }
        if is_truth { self.only(call, mask) } else { self.add(call, mask) }
    }

    /// Hides the keys behind each query, whose position among the keys is its number plus `ahead`.
    pub(super) fn causal(&mut self, call: &mut Call, [m, n]: [usize; 2], ahead: &Ahead) -> Result<()> {
        let keys = call.positions(0, n, [1, 2])?;
        let ends = ahead.ends(call, m, 0)?;
        let visible = call.binary(Binary::Less, keys, ends)?;
        self.only(call, visible)
    }

    /// Hides all keys up to each query but the last `count`.
    pub(super) fn recent(&mut self, call: &mut Call, [m, n]: [usize; 2], ahead: &Ahead, count: usize) -> Result<()> {
        let keys = call.positions(1, n, [1, 2])?;
        let starts = ahead.ends(call, m, count)?;
        let visible = call.binary(Binary::Less, starts, keys)?;
        self.only(call, visible)
    }

    /// Hides keys from a number on, which each element of the batch has, `[b, 1, 1, 1]`.
    pub(super) fn first(&mut self, call: &mut Call, counts: ImportValue, n: usize) -> Result<()> {
        let visible = are_first(call, counts, n)?;
        self.only(call, visible)
    }

    /// Returns the mask of all, of truth values or numbers.
    pub(super) fn whole(&self, call: &mut Call) -> Result<Option<ImportValue>> {
        match (self.visible, self.added) {
            (Some(visible), Some(added)) => {
                let hidden = call.number(f32::NEG_INFINITY, added)?;
                call.add(Where, &[visible, added, hidden]).map(Some)
            }
            (visible, added) => Ok(visible.or(added)),
        }
    }
}

/// Adds truth values of `n` keys: true before a number, `[b, 1, 1, 1]`.
pub(super) fn are_first(call: &mut Call, counts: ImportValue, n: usize) -> Result<ImportValue> {
    let keys = call.positions(0, n, [3, 4])?;
    call.binary(Binary::Less, keys, counts)
}

/// Number of keys before the first query.
pub(super) enum Ahead {
    Keys(usize),
    /// For each element of the batch, shaped `[b, 1, 1, 1]`: as many that the last query sees this
    /// number of keys.
    OfBatch(ImportValue),
}

impl Ahead {
    /// Returns the number of keys up to each query, less `count`.
    fn ends(&self, call: &mut Call, m: usize, count: usize) -> Result<ImportValue> {
        let count = count as i64;
        match *self {
            Ahead::Keys(before) => call.positions((before as i64).saturating_add(1).saturating_sub(count), m, [0, 2]),
            Ahead::OfBatch(counts) => {
                let ends = call.positions((1 - m as i64).saturating_sub(count), m, [0, 2])?;
                call.binary(Binary::Add, counts, ends)
            }
        }
    }
}
