//! Padding of images by constants, mirrored or edge elements.

use std::fmt;

use autotune_ir::Affine;
use autotune_ir::program::{Access, BufferId, Compare, Expr};
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{element, named_axes};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, Table, WorkloadError, WorkloadOperator, check_elements,
    check_positive, write_each,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "pad",
    fields: "n,c,h,w,p,pt,pb,pl,pr,mode,value",
    example: "pad:c=64,h=56,w=56,p=1,mode=reflect",
    parse,
};

/// Fields of the sides: above, below, left and right.
const SIDES: [&str; 4] = ["pt", "pb", "pl", "pr"];
const MODES: [(&str, PadMode); 3] =
    [("constant", PadMode::Constant), ("reflect", PadMode::Reflect), ("edge", PadMode::Edge)];

/// Maximum number of rows or columns of an output, since a table has the source of each.
pub(super) const MOST_PLACES: usize = 1 << 14;

/// Contents of the padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PadMode {
    /// The constant in [`PadWorkload::value`].
    #[default]
    Constant,
    /// The image, mirrored at its outermost elements, which are not repeated.
    Reflect,
    /// The nearest element of the image.
    Edge,
}

/// `output[n, c, y, x] = input[n, c, y - above, x - left]`: `NCHW` images with padding around them.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct PadWorkload {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of channels per image.
    pub c: usize,
    /// Input height in elements.
    pub h: usize,
    /// Input width in elements.
    pub w: usize,
    /// Rows above and below, columns left and right.
    pub pad: [usize; 4],
    /// Contents of the padding.
    pub mode: PadMode,
    /// Value of the padding in mode [`PadMode::Constant`].
    pub value: f32,
}

impl PadWorkload {
    /// Returns the output height and width; `None` if they overflow.
    fn extents(&self) -> Option<[usize; 2]> {
        let [above, below, left, right] = self.pad;
        let sum = |extent: usize, a: usize, b: usize| extent.checked_add(a)?.checked_add(b);
        Some([sum(self.h, above, below)?, sum(self.w, left, right)?])
    }

    /// Returns the input index for each output index along an axis, -1 for a constant.
    fn sources(&self, axis: usize) -> Vec<f32> {
        let (extent, before) = ([self.h, self.w][axis] as i64, self.pad[2 * axis] as i64);
        let source = |place: i64| match self.mode {
            PadMode::Constant if (0..extent).contains(&place) => place,
            PadMode::Constant => -1,
            PadMode::Reflect => (extent - 1) - ((extent - 1) - place.abs()).abs(),
            PadMode::Edge => place.clamp(0, extent - 1),
        };
        let places = self.extents().map_or(0, |extents| extents[axis]) as i64;
        (0..places).map(|place| source(place - before) as f32).collect()
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let mode = fields.word("mode", &MODES, "a padding mode (constant, reflect or edge)")?.unwrap_or_default();
    let number = |text: &str| text.parse().ok().filter(|value: &f32| !value.is_nan()).ok_or("a number");
    let value = fields.read("value", number)?;
    if value.is_some() && mode != PadMode::Constant {
        let reason = "applies only to mode=constant".into();
        return Err(WorkloadError::Unfit { op: KIND.name, field: "value", reason });
    }
    Ok(Box::new(PadWorkload {
        n: fields.number("n")?.unwrap_or(1),
        c: fields.required("c")?,
        h: fields.required("h")?,
        w: fields.required("w")?,
        pad: fields.each("p", SIDES, Some(0))?,
        mode,
        // Normalises -0 to 0, so that equal workloads have one text.
        value: value.unwrap_or(0.0) + 0.0,
    }))
}

impl WorkloadOperator for PadWorkload {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        if self.n != 1 {
            write!(f, "n={},", self.n)?;
        }
        write!(f, "c={},h={},w={}", self.c, self.h, self.w)?;
        write_each(f, "p", SIDES, self.pad, None)?;
        let word = MODES.iter().find(|(_, mode)| *mode == self.mode).map_or("", |(word, _)| word);
        write!(f, ",mode={word}")?;
        if self.value == 0.0 { Ok(()) } else { write!(f, ",value={}", self.value) }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { n, c, h, w, pad, mode, .. }, op) = (*self, KIND.name);
        check_positive(op, &[("n", n), ("c", c), ("h", h), ("w", w)])?;
        for (side, field) in SIDES.into_iter().enumerate() {
            let (pad, extent) = (pad[side], [h, w][side / 2]);
            if mode == PadMode::Reflect && pad >= extent {
                let reason = format!("reflected padding {pad} is not smaller than the extent ({extent})");
                return Err(WorkloadError::Unfit { op, field, reason });
            }
        }
        let [oh, ow] = self.extents().ok_or(WorkloadError::Overflow { op, what: "output" })?;
        for (most, field) in [(oh, "h"), (ow, "w")] {
            if most > MOST_PLACES {
                let reason = format!("the output extent {most} exceeds the maximum of {MOST_PLACES}");
                return Err(WorkloadError::Unfit { op, field, reason });
            }
        }
        check_elements(op, &[("input", &[n, c, h, w]), ("output", &[n, c, oh, ow])], &[n, c, oh, ow])
    }

    /// Axes `n, c, oh, ow`, without a reduction.
    fn formula(&self) -> OperatorFormula {
        let Self { n, c, h, w, mode, value, .. } = *self;
        let [oh, ow] = self.extents().unwrap_or_default();
        let [image, channel, y, x] = axis_vars();
        let first = vec![image.clone(), channel.clone(), Affine::default(), Affine::default()];
        let [row, column] = [(1, &y), (2, &x)].map(|(table, at)| element(table, std::slice::from_ref(at)));
        let inside = Access { buffer: BufferId(0), index: first.into() };
        let mut padded = Expr::gather(inside, vec![2, 3], vec![row.clone(), column.clone()]);
        if mode == PadMode::Constant {
            for place in [column, row] {
                padded = Expr::select(Compare::Less, [place, Expr::Const(0.0)], Expr::Const(value), padded);
            }
        }
        OperatorFormula {
            operands: vec![OperandTensor { name: "input", shape: vec![n, c, h, w], is_constant: false }],
            computed: Vec::new(),
            axes: named_axes(&[("n", n, false), ("c", c, false), ("oh", oh, false), ("ow", ow, false)]),
            value: padded,
            reduction: Reduction::Sum,
            share: None,
            shape: vec![n, c, oh, ow],
            index: vec![image, channel, y, x],
            channel: 1,
        }
    }

    fn tables(&self) -> Vec<Table> {
        [(0, "row_of"), (1, "column_of")].map(|(axis, name)| Table { name, elements: self.sources(axis) }).into()
    }
}
