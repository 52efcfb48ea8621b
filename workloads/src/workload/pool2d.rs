//! Two-dimensional pooling: maxima and means over windows of images.

use std::fmt;

use autotune_ir::program::Expr;
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::element as element_of;
use super::window::{Window, WindowFields};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, Table, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "pool2d",
    fields: "n,c,h,w,k,kh,kw,s,sh,sw,p,ph,pw,d,dh,dw,global,ceil,exclude_pad,kind",
    example: "pool2d:c=64,h=112,w=112,k=3,s=2,p=1,kind=max",
    parse,
};

const AXES: [WindowFields; 2] = [WindowFields::HEIGHT, WindowFields::WIDTH];

const KINDS: [(&str, PoolKind); 2] = [("max", PoolKind::Max), ("avg", PoolKind::Average)];

/// Maximum number of outputs along an axis for which tables hold the sizes of windows.
const MOST_COUNTED: usize = 1 << 14;

/// Operator that combines the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolKind {
    /// Maximum of the elements; padding is ignored.
    Max,
    /// Mean of the elements. Padding counts as zeros; elements beyond the padding are ignored.
    Average,
    /// Mean of the elements inside the image.
    InnerAverage,
}

/// Two-dimensional pooling of `NCHW` images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pool2d {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of channels per image.
    pub c: usize,
    /// Input height in elements.
    pub h: usize,
    /// Input width in elements.
    pub w: usize,
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Stride over height and width.
    pub stride: [usize; 2],
    /// Padding on both ends of height and width.
    pub pad: [usize; 2],
    /// Distance between adjacent elements of the window over height and width.
    pub dilation: [usize; 2],
    /// True if windows count that begin inside the padded image but end beyond it.
    pub ceil: bool,
    /// Operator that combines the elements of a window.
    pub kind: PoolKind,
}

impl Pool2d {
    /// Returns the output height and width.
    pub fn output_hw(&self) -> [usize; 2] {
        [self.output_extent(0), self.output_extent(1)]
    }

    /// Returns the windows over height and width.
    fn windows(&self) -> [Window; 2] {
        let extents = [self.h, self.w];
        std::array::from_fn(|axis| Window {
            extent: extents[axis],
            kernel: self.kernel[axis],
            stride: self.stride[axis],
            pad: self.pad[axis],
            dilation: self.dilation[axis],
        })
    }

    fn output_extent(&self, axis: usize) -> usize {
        let window = self.windows()[axis];
        let (whole, rest) = (window.outputs(), (window.padded() - window.reach()) % window.stride);
        // With `ceil`, one more window covers the rest of the image, unless it would begin in the
        // padding after the image.
        let more = self.ceil && rest > 0 && whole * window.stride < window.extent + window.pad;
        whole + usize::from(more)
    }

    /// True if a mean ignores elements of some windows, whose sizes then differ.
    fn counts(&self) -> bool {
        let ends_beyond = || (0..2).any(|axis| self.output_extent(axis) > self.windows()[axis].outputs());
        match self.kind {
            PoolKind::Max => false,
            PoolKind::Average => ends_beyond(),
            PoolKind::InnerAverage => self.pad != [0, 0] || ends_beyond(),
        }
    }

    /// Returns the number of elements of a window that count: those inside the image, or inside its
    /// padding if that counts.
    fn counted(&self, axis: usize, output: i64) -> usize {
        let (extent, pad) = ([self.h, self.w][axis] as i64, self.pad[axis] as i64);
        let (stride, dilation) = (self.stride[axis] as i64, self.dilation[axis] as i64);
        let margin = if self.kind == PoolKind::Average { pad } else { 0 };
        let start = output * stride - pad;
        let first = ((-margin - start).max(0) as u64).div_ceil(dilation as u64) as i64;
        let behind = (extent - 1 + margin - start).div_euclid(dilation) + 1;
        (behind.min(self.kernel[axis] as i64) - first).max(0) as usize
    }

    /// True if no element of some window counts.
    fn misses(&self, axis: usize) -> bool {
        let (pad, stride, dilation) = (self.pad[axis] as i64, self.stride[axis] as i64, self.dilation[axis]);
        let outputs = self.output_extent(axis) as i64;
        let has_one = |y: i64| self.counted(axis, y) > 0;
        // Only dilated windows that begin in the padding, or the last window, may have no element
        // inside the image.
        let outer = if dilation > 1 { (pad / stride + 1).min(outputs) } else { 0 };
        !(0..outer).chain([outputs - 1]).all(has_one)
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let [h, w] = [fields.required("h")?, fields.required("w")?];
    let windows = match fields.flag("global")? {
        true => {
            for field in ["k", "kh", "kw", "s", "sh", "sw", "p", "ph", "pw", "d", "dh", "dw"] {
                if fields.number(field)?.is_some() {
                    let reason = "cannot be combined with 'global'".into();
                    return Err(WorkloadError::Unfit { op: KIND.name, field, reason });
                }
            }
            [h, w].map(|extent| Window { extent, kernel: extent, stride: 1, pad: 0, dilation: 1 })
        }
        false => Window::read(fields, [h, w], WindowFields::ALL, AXES)?,
    };

    let kind = fields.word("kind", &KINDS, "a pooling (max or avg)")?.unwrap_or(PoolKind::Max);
    let kind = match (fields.flag("exclude_pad")?, kind) {
        (true, PoolKind::Max) => {
            let reason = "applies only to kind=avg".into();
            return Err(WorkloadError::Unfit { op: KIND.name, field: "exclude_pad", reason });
        }
        (true, _) => PoolKind::InnerAverage,
        (_, kind) => kind,
    };

    Ok(Box::new(Pool2d {
        n: fields.number("n")?.unwrap_or(1),
        c: fields.required("c")?,
        h,
        w,
        kernel: windows.map(|window| window.kernel),
        stride: windows.map(|window| window.stride),
        pad: windows.map(|window| window.pad),
        dilation: windows.map(|window| window.dilation),
        ceil: fields.flag("ceil")?,
        kind,
    }))
}

impl WorkloadOperator for Pool2d {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn moves_bytes(&self) -> bool {
        true
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        if self.n != 1 {
            write!(f, "n={},", self.n)?;
        }
        write!(f, "c={},h={},w={}", self.c, self.h, self.w)?;
        Window::write(f, self.windows(), WindowFields::ALL, AXES)?;
        if self.ceil {
            f.write_str(",ceil")?;
        }
        f.write_str(match self.kind {
            PoolKind::Max => ",kind=max",
            PoolKind::InnerAverage if self.pad != [0, 0] => ",exclude_pad,kind=avg",
            PoolKind::Average | PoolKind::InnerAverage => ",kind=avg",
        })
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (p, op) = (self, KIND.name);
        let unfit = |field, reason| Err(WorkloadError::Unfit { op, field, reason });
        check_positive(op, &[("n", p.n), ("c", p.c), ("h", p.h), ("w", p.w)])?;

        for (window, names) in p.windows().iter().zip(AXES) {
            window.check(op, names, "window")?;
            if window.pad == window.reach() {
                let reason = format!("padding {} is not smaller than the window ({})", window.pad, window.reach());
                return unfit(names.pad, reason);
            }
        }
        let [oh, ow] = p.output_hw();
        let [rows, columns] = p.windows();
        let input = [p.n, p.c, rows.padded(), columns.padded()];
        let output = [p.n, p.c, oh, ow];
        let work = [&output[..], &p.kernel].concat();
        check_elements(op, &[("input", &input), ("output", &output)], &work)?;
        if let Some(most) = [oh, ow].into_iter().find(|&most| p.counts() && most > MOST_COUNTED) {
            let field = if p.ceil { "ceil" } else { "exclude_pad" };
            return unfit(field, format!("{most} windows along an axis exceed the maximum of {MOST_COUNTED}"));
        }
        match [(0, "ph"), (1, "pw")].into_iter().find(|(axis, _)| p.misses(*axis)) {
            Some((_, field)) => unfit(field, "a window contains no element of the image".into()),
            None => Ok(()),
        }
    }

    /// Axes `n, c, oh, ow | kh, kw`.
    fn formula(&self) -> OperatorFormula {
        let (pool, [oh, ow]) = (self, self.output_hw());
        let [kh, kw] = pool.kernel;
        let axes = [
            ("n", pool.n, false),
            ("c", pool.c, false),
            ("oh", oh, false),
            ("ow", ow, false),
            ("kh", kh, true),
            ("kw", kw, true),
        ];
        let reduction = match pool.kind {
            PoolKind::Max => Reduction::Max,
            PoolKind::Average | PoolKind::InnerAverage => Reduction::Sum,
        };

        let [n, c, y, x, i, j] = axis_vars();
        let [rows, columns] = pool.windows();
        let input = OperandTensor { name: "input", shape: vec![pool.n, pool.c, pool.h, pool.w], is_constant: false };
        let element = vec![n.clone(), c.clone(), rows.at(&y, &i), columns.at(&x, &j)];
        let output = (vec![pool.n, pool.c, oh, ow], vec![n, c, y.clone(), x.clone()]);
        let share = match pool.kind {
            PoolKind::Max => None,
            _ if pool.counts() => Some(Expr::product(element_of(1, &[y]), element_of(2, &[x]))),
            PoolKind::Average | PoolKind::InnerAverage => Some(Expr::Const(1.0 / (kh * kw) as f32)),
        };
        OperatorFormula { share, ..OperatorFormula::reduced(&axes, reduction, (input, element), output, 1) }
    }

    /// The reciprocal of the number of window elements that count, along either axis.
    fn tables(&self) -> Vec<Table> {
        if !self.counts() {
            return Vec::new();
        }
        let share = |axis: usize, y: usize| 1.0 / self.counted(axis, y as i64).max(1) as f32;
        let table =
            |(axis, name)| Table { name, elements: (0..self.output_extent(axis)).map(|y| share(axis, y)).collect() };
        [(0, "rows_share"), (1, "columns_share")].map(table).to_vec()
    }
}
