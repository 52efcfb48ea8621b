//! One of two fused contractions, as a plan of the direct sketch.

use std::sync::Arc;

use autotune_ir::spec::AxisId;
use autotune_ir::target::CpuTarget;

use super::pair::Pair;
use crate::config::{KnobValue, KnobValues};
use crate::direct::layouts::{DataLayouts, Groups, SplitContraction};
use crate::direct::reader::KnobReader;
use crate::direct::roles::Roles;
use crate::direct::{DataMode, Direct, TileLoop};
use crate::error::LowerError;

/// Prefixes of the knobs of the first and the second contraction.
pub(super) const PARTS: [&str; 2] = ["first", "second"];

/// One of the contractions in its layouts.
pub(super) struct FusedPart<'a> {
    pub(super) number: usize,
    roles: &'a Roles,
    contraction: Arc<SplitContraction>,
    layouts: DataLayouts,
    block: usize,
}

impl<'a> FusedPart<'a> {
    pub(super) fn new(pair: &'a Pair, number: usize, layouts: DataLayouts, block: usize) -> Self {
        let roles = [&pair.first, &pair.second][number];
        Self { number, roles, contraction: roles.in_layouts(layouts, block, Groups::NONE), layouts, block }
    }

    /// Returns the elements per step of an axis: a block if the axis is split, otherwise 1.
    pub(super) fn unit(&self, axis: AxisId) -> usize {
        if self.contraction.lane_of(axis).is_some() { self.block } else { 1 }
    }

    /// Reads the direct sketch's plan of this contraction. `cache` has the tiles of shared loops,
    /// outermost first; the tile of the contraction's own reduction is read here. The first
    /// `parallel` loops are parallel.
    pub(super) fn direct(
        &self,
        target: &CpuTarget,
        knobs: &dyn KnobValues,
        cache: Vec<(AxisId, usize)>,
        parallel: usize,
    ) -> Result<Direct, LowerError> {
        let own = Own { name: PARTS[self.number], all: knobs };
        let direct = self.read(&KnobReader(&own), cache, parallel);
        let checked = direct.and_then(|direct| {
            direct.check(&self.roles.axes, target, self.layouts.data)?;
            Ok(direct)
        });
        checked.map_err(|error| own.named(error))
    }

    fn read(
        &self,
        reader: &KnobReader,
        mut cache: Vec<(AxisId, usize)>,
        parallel: usize,
    ) -> Result<Direct, LowerError> {
        let Self { roles, contraction, layouts, .. } = self;
        let several = |axis: &AxisId| roles.extent(*axis) > 1;
        let own_step = roles.step.filter(several).filter(|step| cache.iter().all(|known| known.0 != *step));
        cache.extend(own_step.map(|step| Ok((step, self.tile(reader, step)?))).transpose()?);

        let (axes, axis) = (&contraction.contraction.axes, |name: &&str| contraction.contraction.axis(name));
        let tile_loop = |(axis, tile): (AxisId, usize)| TileLoop { axis, tile: tile.min(axes[axis].extent) };
        let order = reader.order("order.inner", &contraction.names.spatial)?;
        let inner = order.iter().filter_map(axis).map(|axis| Ok(tile_loop((axis, self.tile(reader, axis)?))));
        let vector = roles.vector_of(reader.choice("vector")?)?;
        Ok(Direct {
            contraction: Arc::clone(&contraction.contraction),
            input: Arc::clone(&contraction.input),
            in_layout: layouts.input,
            data: Arc::clone(&contraction.data),
            output: Arc::clone(&contraction.output),
            out_layout: layouts.output,
            // The intermediate tensor has the layout that the second reads already.
            data_mode: if self.number == 0 { reader.data_mode()? } else { DataMode::InPlace },
            packed_weights: reader.packs_weights()?,
            dot: None,
            copied: roles.copied(None),
            is_split: false,
            vector: contraction.lane_of(vector).unwrap_or(vector),
            batch: roles.batch.clone(),
            cache: cache.into_iter().filter(|tile| several(&tile.0)).map(tile_loop).collect(),
            parallel,
            inner: inner.collect::<Result<_, LowerError>>()?,
            reduce: contraction.names.reduce.iter().filter_map(axis).collect(),
            unroll: reader.number("unroll")?,
            prefetch: 0,
        })
    }

    /// Reads the tile of an axis, in steps.
    fn tile(&self, reader: &KnobReader, axis: AxisId) -> Result<usize, LowerError> {
        let (knob, unit) = (format!("tile.{}", self.roles.name(axis)), self.unit(axis));
        match reader.tile::<1>(&knob)? {
            [size] if size.is_multiple_of(unit) => Ok(size / unit),
            [size] => Err(LowerError::knob(&knob, format!("{size} is not a multiple of {unit}"))),
        }
    }
}

/// Values of one contraction's knobs, by their names in the direct sketch.
struct Own<'a> {
    name: &'static str,
    all: &'a dyn KnobValues,
}

impl Own<'_> {
    /// Returns an error with the prefixed name that the knob has in this sketch.
    fn named(&self, error: LowerError) -> LowerError {
        match error {
            LowerError::Knob { name, reason } => LowerError::Knob { name: format!("{}.{name}", self.name), reason },
            other => other,
        }
    }
}

impl KnobValues for Own<'_> {
    fn sketch(&self) -> &str {
        self.all.sketch()
    }

    fn value(&self, knob: &str) -> Option<&KnobValue> {
        self.all.value(&format!("{}.{knob}", self.name))
    }
}
